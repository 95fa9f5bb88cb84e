/*
 * The way through libssh2, after authentication: copy files if --push is given, run the
 * shell, then pass bytes both ways until the remote command ends.
 */
#include "launcher/ssh/private.h"

#include "launcher/ssh/quote.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK     32768
#define MAX_READS 32 /* in one go; then others have their turn */
#define CLOSE_S   2.0

static void fail(struct zt_ssh *s, const char *what)
{
    zt_ssh_session_fail(s->link, false, ZT_E_HOST, "%s: %s", what,
                        zt_ssh_session_error(s->link));
}

/* ------------------------------------------------------------------ getting there */

static bool push(struct zt_ssh *s)
{
    if (!s->push || zt_push_step(s->push, s->link) == ZT_STEP_NEXT)
        return true;
    return false;
}

static bool open_channel(struct zt_ssh *s)
{
    if (s->exec)
        return true;
    zt_ssh_session_phase(s->link, "starting a remote shell", s->rq.timeout_s);
    s->exec = libssh2_channel_open_session(s->link->session);
    if (s->exec)
        return true;
    if (libssh2_session_last_errno(s->link->session) != LIBSSH2_ERROR_EAGAIN)
        fail(s, "the server opens no session (MaxSessions?)");
    return false;
}

static bool execute(struct zt_ssh *s)
{
    int rc;

    if (s->executed)
        return true;
    rc = libssh2_channel_exec(s->exec, zt_shell_bootstrap);
    if (rc == LIBSSH2_ERROR_EAGAIN)
        return false;
    if (rc) {
        fail(s, "the server runs no command");
        return false;
    }
    s->executed = true;
    zt_ssh_session_phase(s->link,
                         "waiting for the remote shell, whose start-up files come first",
                         s->rq.timeout_s);
    return true;
}

/* ------------------------------------------------------------------ the stream */

static void lost(struct zt_ssh *s)
{
    zt_ssh_session_fail(
        s->link, false, ZT_E_HOST,
        "the ssh connection was lost (%s): the machine, its network or its sshd "
        "went away",
        zt_ssh_session_error(s->link));
}

static bool write_out(struct zt_ssh *s)
{
    s->link->want_write = false;
    while (zt_buf_used(&s->out)) {
        ssize_t k = libssh2_channel_write(s->exec, (const char *)zt_buf_head(&s->out),
                                          zt_buf_used(&s->out));

        if (k == LIBSSH2_ERROR_EAGAIN) {
            s->link->want_write = true;
            return true;
        }
        if (k == LIBSSH2_ERROR_CHANNEL_CLOSED || k == LIBSSH2_ERROR_CHANNEL_EOF_SENT) {
            zt_buf_drop(&s->out, zt_buf_used(&s->out)); /* it is over: see read_in() */
            return true;
        }
        if (k < 0) {
            lost(s);
            return false;
        }
        zt_buf_drop(&s->out, (size_t)k);
    }
    return true;
}

/*
 * Read one stream until it is empty or has had its turn. A read may have to send a window
 * adjustment; `must`: an earlier read could not send all of it. False: the link fails.
 */
static bool read_stream(struct zt_ssh *s, int number, bool must, bool *more)
{
    char chunk[CHUNK];

    for (int i = 0; i < MAX_READS && (!s->paused || must) && !s->ending; i++) {
        ssize_t k = libssh2_channel_read_ex(s->exec, number, chunk, sizeof(chunk));

        must = false;
        if (k == LIBSSH2_ERROR_EAGAIN || k == 0)
            return true;
        if (k < 0) {
            lost(s);
            return false;
        }
        if (number)
            zt_ssh_on_stderr(s, chunk, (size_t)k);
        else
            zt_ssh_on_stdout(s, chunk, (size_t)k);
    }
    *more = !s->paused && !s->ending;
    return true;
}

static bool read_in(struct zt_ssh *s, bool *more)
{
    static const int streams[] = {0, SSH_EXTENDED_DATA_STDERR};

    for (int i = 0; i < 2; i++) {
        bool must = s->unsent == streams[i];

        if (s->unsent >= 0 && !must)
            continue;
        s->unsent = -1;
        if (!read_stream(s, streams[i], must, more))
            return false;
        if (!s->ending && zt_ssh_session_sending(s->link)) {
            s->unsent = streams[i];
            s->link->want_write = true;
            return true;
        }
    }
    return true;
}

static void closing(struct zt_ssh *s)
{
    char *name = NULL, signal[32] = "";
    int rc;

    if (!s->eof) {
        s->eof = true;
        zt_ssh_session_phase(s->link, "waiting for the exit code of zworker", CLOSE_S);
    }
    rc = libssh2_channel_wait_closed(s->exec);
    if (rc == LIBSSH2_ERROR_EAGAIN)
        return;
    if (rc) {
        lost(s);
        return;
    }
    zt_ssh_session_phase(s->link, NULL, 0);
    libssh2_channel_get_exit_signal(s->exec, &name, NULL, NULL, NULL, NULL, NULL);
    if (name) {
        snprintf(signal, sizeof(signal), "%s", name);
        libssh2_free(s->link->session, name); /* now: the end may close the session */
    }
    zt_ssh_on_exit(s, libssh2_channel_get_exit_status(s->exec), name ? signal : NULL);
}

static void stream(struct zt_ssh *s)
{
    bool more = false, owed = s->unsent >= 0;

    s->link->want_read = !s->paused;
    if (!s->eof && s->unsent < 0 && (!write_out(s) || zt_ssh_session_sending(s->link)))
        return;
    if (!s->eof && !read_in(s, &more))
        return;
    if (s->ending)
        return;
    s->link->want_read = !s->paused;     /* somebody may have paused meanwhile */
    if (more || (owed && s->unsent < 0)) /* what stood back has its turn */
        zt_ssh_session_wake(s->link);
    else if (!s->paused && s->unsent < 0 && libssh2_channel_eof(s->exec))
        closing(s);
}

void zt_ssh_exec_work(struct zt_ssh *s)
{
    if (s->executed || (push(s) && open_channel(s) && execute(s)))
        stream(s);
}
