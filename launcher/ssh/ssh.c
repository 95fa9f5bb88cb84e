/*
 *   start -+-> [jump] -> link -> push -> exec -> marker seen: up -> stream -+-> down
 *          |        |      |                                               |
 *          |        +------+--- libssh2 cannot: close both,                |
 *          +--> program <------ a note, then the ssh program --------------+
 *
 * zt_ssh_finish() is the only way down: it closes what is open; when the last part is
 * closed on_down is told and everything freed.
 */
#include "launcher/ssh/private.h"

#include "launcher/ssh/quote.h"
#include "launcher/start/program.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define MAX_OUT      (64u << 20)  /* bytes that wait for the network */
#define MAX_HEAD     (256u << 10) /* what start-up files may print */
#define KEEPALIVE_S  5
#define KEEPALIVE_MS 5000
#define DEFAULT_S    10.0

static void part_closed(void *ctx)
{
    zt_ssh_part_closed(ctx);
}

/* ------------------------------------------------------------------ the end */

static void release(struct zt_ssh *s)
{
    zt_push_close(s->push);
    zt_ssh_route_release(&s->route);
    zt_ssh_route_release(&s->jump_route);
    zt_buf_release(&s->out);
    zt_buf_release(&s->head);
    free(s->jump_label);
    free(s->here);
    free(s->searched);
    free(s->program_reason);
    free(s);
}

static void on_tick_closed(uv_handle_t *handle)
{
    struct zt_ssh *s = handle->data;

    s->ev->on_down(s->ctx, s->failed ? &s->fault : NULL);
    release(s);
}

void zt_ssh_finish(struct zt_ssh *s, const struct zt_fault *why)
{
    if (s->ending)
        return;
    s->ending = true;
    if (why) {
        s->failed = true;
        s->fault = *why;
    }
    uv_timer_stop(&s->tick);
    zt_ssh_session_close(s->link);
    zt_jump_close(s->jump);
    zt_ssh_program_close(s->program);
    zt_ssh_part_closed(s);
}

static void end_with(struct zt_ssh *s, zt_err code, const char *fmt, ...) ZT_PRINTF(3, 4);
static void end_with(struct zt_ssh *s, zt_err code, const char *fmt, ...)
{
    char text[ZT_FAULT_TEXT];
    struct zt_fault why;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    zt_fault_set(&why, code, "%s", text);
    zt_ssh_finish(s, &why);
}

/* Without sftp the files are sent in front of the script. */
static zt_err push_first(struct zt_ssh *s)
{
    struct zt_buf all;
    zt_err rc;

    zt_buf_init(&all, 2 * MAX_OUT + zt_push_bytes(s->push));
    rc = zt_push_script(s->push, &all);
    if (!rc)
        rc = zt_buf_put(&all, zt_buf_head(&s->out), zt_buf_used(&s->out));
    if (rc) {
        zt_buf_release(&all);
        return rc;
    }
    zt_buf_release(&s->out);
    s->out = all;
    return ZT_OK;
}

static void start_program(struct zt_ssh *s)
{
    struct zt_fault why = {0};
    char note[ZT_FAULT_TEXT];

    snprintf(note, sizeof(note), "falling back to the ssh program: %s",
             s->program_reason);
    if (!s->opt.program)
        s->ev->on_note(s->ctx, note);
    if (s->ending)
        return;
    if (s->push && push_first(s)) {
        end_with(s, ZT_E_NOMEM, "--push: no memory");
        return;
    }
    s->program = zt_ssh_program_open(s, &why);
    if (!s->program)
        zt_ssh_finish(s, &why);
}

void zt_ssh_part_closed(struct zt_ssh *s)
{
    if (s->link || s->jump || s->program)
        return;
    if (!s->ending && s->program_reason)
        start_program(s);
    else if (s->ending && !uv_is_closing((uv_handle_t *)&s->tick))
        uv_close((uv_handle_t *)&s->tick, on_tick_closed);
}

static void on_link_closed(void *ctx)
{
    struct zt_ssh *s = ctx;

    s->link = NULL;
    s->exec = NULL;
    part_closed(s);
}

static void on_jump_closed(void *ctx)
{
    struct zt_ssh *s = ctx;

    s->jump = NULL;
    part_closed(s);
}

/* A session failed: if libssh2 lacks a feature, and nothing runs yet, use the program. */
static void on_way_failed(void *ctx, const struct zt_fault *why, bool program)
{
    struct zt_ssh *s = ctx;

    if (!program || s->executed || s->ending) {
        zt_ssh_finish(s, why);
        return;
    }
    s->program_reason = strdup(why->text);
    if (!s->program_reason) {
        zt_ssh_finish(s, why);
        return;
    }
    zt_ssh_session_close(s->link);
    zt_jump_close(s->jump);
}

/* ------------------------------------------------------------------ what it says */

static void keep_line(struct zt_ssh *s)
{
    while (s->line_bytes && s->line[s->line_bytes - 1] == '\r')
        s->line_bytes--;
    s->line[s->line_bytes] = 0;
    s->line_bytes = 0;
    if (!s->line[0])
        return;
    memcpy(s->tail[s->num_lines++ % ZT_SSH_TAIL_LINES], s->line, sizeof(s->line));
    s->ev->on_note(s->ctx, s->line);
}

void zt_ssh_on_stderr(struct zt_ssh *s, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n && !s->ending; i++) {
        if (bytes[i] != '\n' && s->line_bytes < sizeof(s->line) - 1)
            s->line[s->line_bytes++] = bytes[i];
        if (bytes[i] == '\n')
            keep_line(s);
    }
}

const char *zt_ssh_last_line(struct zt_ssh *s)
{
    if (s->line_bytes)
        keep_line(s);
    if (s->num_lines)
        return s->tail[(s->num_lines - 1) % ZT_SSH_TAIL_LINES];
    if (!s->up && zt_buf_used(&s->head)) {
        /* the shell's own words may be on stdout ("This account is not available") */
        size_t n = zt_buf_used(&s->head);
        const char *p = (const char *)zt_buf_head(&s->head);

        while (n && (p[n - 1] == '\n' || p[n - 1] == '\r'))
            n--;
        if (n >= sizeof(s->tail[0]))
            n = sizeof(s->tail[0]) - 1;
        memcpy(s->tail[0], p, n);
        s->tail[0][n] = 0;
        return s->tail[0];
    }
    return "";
}

static void on_marker(struct zt_ssh *s, const char *rest, size_t n)
{
    s->up = true;
    if (s->link)
        zt_ssh_session_phase(s->link, NULL, 0);
    s->ev->on_up(s->ctx);
    if (n && !s->ending)
        s->ev->on_bytes(s->ctx, rest, n);
}

/* Everything before the marker comes from start-up files and is ignored. */
static void find_marker(struct zt_ssh *s)
{
    const char *p = (const char *)zt_buf_head(&s->head);
    size_t n = zt_buf_used(&s->head), m = strlen(s->marker);
    const char *at = memmem(p, n, s->marker, m), *end;

    if (!at)
        return;
    at += m;
    end = memchr(at, '\n', n - (size_t)(at - p));
    if (!end)
        return;
    if (end - at == 2 && memcmp(at, "up", 2) == 0)
        on_marker(s, end + 1, n - (size_t)(end + 1 - p));
    else
        s->missing = true;
}

void zt_ssh_on_stdout(struct zt_ssh *s, const char *bytes, size_t n)
{
    if (s->ending || s->missing)
        return;
    if (s->up) {
        s->ev->on_bytes(s->ctx, bytes, n);
        return;
    }
    if (zt_buf_put(&s->head, bytes, n)) {
        end_with(s, ZT_E_LIMIT,
                 "the shell's start-up files print without end: they must be silent when "
                 "there is no terminal");
        return;
    }
    find_marker(s);
}

static int signal_number(const char *name)
{
    for (int sig = 1; sig < NSIG; sig++)
        if (sigabbrev_np(sig) && strcmp(sigabbrev_np(sig), name) == 0)
            return sig;
    return 0;
}

void zt_ssh_on_exit(struct zt_ssh *s, int status, const char *signal_name)
{
    const char *words = zt_ssh_last_line(s);

    if (s->ending)
        return;
    s->channel.exit_code = signal_name ? 128 + signal_number(signal_name) : status;
    if (s->missing) {
        s->channel.exit_code = 0;
        end_with(s, ZT_E_NOINPUT,
                 "no zworker in %s: install zlaunch there, give --zworker PATH, or use "
                 "--push",
                 s->searched);
    } else if (!s->up && s->push && status == ZT_PUSH_FAILED) {
        s->channel.exit_code = 0;
        end_with(s, ZT_E_CANTCREATE,
                 "--push: %s cannot be written: %s: make room there, or give --push_dir",
                 zt_push_dir(s->push), *words ? words : "it does not say why");
    } else if (!s->up) {
        s->channel.exit_code = 0;
        end_with(s, ZT_E_HOST,
                 "the remote shell ended with code %d before zworker was started%s%s",
                 status, *words ? ": " : "", words);
    } else if (signal_name) {
        end_with(s, ZT_E_SYSTEM, "the node daemon was killed by SIG%s", signal_name);
    } else if (status) {
        end_with(s, ZT_E_SYSTEM, "the node daemon ended early with exit code %d%s%s",
                 status, *words ? ": " : "", words);
    } else {
        zt_ssh_finish(s, NULL);
    }
}

/* ------------------------------------------------------------------ the ways */

static void on_ready(void *ctx)
{
    struct zt_ssh *s = ctx;

    libssh2_keepalive_config(s->link->session, 1, KEEPALIVE_S);
    zt_ssh_session_phase(s->link, s->push ? "--push" : "opening a session",
                         s->rq.timeout_s);
}

static void on_work(void *ctx)
{
    zt_ssh_exec_work(ctx);
}

static const struct zt_ssh_session_events link_events = {on_ready, on_work, on_way_failed,
                                                         on_link_closed};

static bool open_link(struct zt_ssh *s)
{
    s->link = zt_ssh_session_open(s->loop, &s->route.link, &link_events, s);
    return s->link != NULL;
}

static void on_jump_fd(void *ctx, int fd)
{
    struct zt_ssh *s = ctx;

    s->route.link.fd = fd;
    if (!open_link(s)) {
        close(fd);
        end_with(s, ZT_E_NOMEM, "no memory for an ssh session");
    }
}

static const struct zt_jump_events jump_events = {on_jump_fd, on_way_failed,
                                                  on_jump_closed};

static void on_alive(uv_timer_t *timer)
{
    struct zt_ssh *s = timer->data;
    int next;

    if (s->overflow) {
        end_with(s, ZT_E_LIMIT, "the node takes no bytes any more: %u MB wait for it",
                 MAX_OUT >> 20);
        return;
    }
    if (!s->link || !s->executed || s->eof || zt_ssh_session_sending(s->link))
        return; /* what waits to be sent is as good a sign of life */
    libssh2_keepalive_send(s->link->session,
                           &next); /* a dead link shows when it is read */
    zt_ssh_session_wake(s->link);
}

/* ------------------------------------------------------------------ channel */

static void ssh_write(struct zt_channel *c, const void *data, size_t n)
{
    struct zt_ssh *s = (struct zt_ssh *)c;

    if (s->ending)
        return;
    if (zt_buf_put(&s->out, data, n)) {
        s->overflow = true;
        uv_timer_start(&s->tick, on_alive, 0, 0); /* told from the loop, as every end */
        return;
    }
    if (s->link && s->executed)
        zt_ssh_session_wake(s->link);
    if (s->program)
        zt_ssh_program_wake(s->program);
}

static void ssh_pause(struct zt_channel *c, bool pause)
{
    struct zt_ssh *s = (struct zt_ssh *)c;

    s->paused = pause;
    if (s->link && s->executed)
        zt_ssh_session_wake(s->link);
    if (s->program)
        zt_ssh_program_wake(s->program);
}

static void ssh_close(struct zt_channel *c)
{
    zt_ssh_finish((struct zt_ssh *)c, NULL);
}

static const struct zt_channel_ops ssh_ops = {
    .write = ssh_write, .pause = ssh_pause, .close = ssh_close};

/* ------------------------------------------------------------------ starting */

static zt_err no_memory(struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_NOMEM, "no memory for an ssh connection");
}

static zt_err make_routes(struct zt_ssh *s, struct zt_fault *fault)
{
    struct zt_ssh_target t = {.name = s->rq.host,
                              .user = s->rq.user,
                              .port = s->rq.port ? s->rq.port : s->opt.port,
                              .timeout_s = s->rq.timeout_s};
    struct zt_ssh_options jump_opt = s->opt;
    char *user = NULL, *host = NULL;
    zt_err rc;
    int port;

    rc = zt_ssh_route_init(&s->route, &t, &s->opt, fault);
    if (rc || !s->route.jump || s->route.needs_program)
        return rc;
    rc = zt_ssh_split(s->route.jump, &user, &host, &port, fault);
    if (rc)
        return zt_fault_context(fault, rc, "jump host");
    if (asprintf(&s->jump_label, "jump host %s", host) < 0) {
        s->jump_label = NULL;
        rc = no_memory(fault);
    }
    t = (struct zt_ssh_target){host, s->jump_label, user, port, s->rq.timeout_s};
    jump_opt.jump = "none";
    if (!rc)
        rc = zt_ssh_route_init(&s->jump_route, &t, &jump_opt, fault);
    if (!rc && (s->jump_route.needs_program || s->jump_route.jump)) {
        s->route.needs_program =
            strdup(s->jump_route.needs_program ? s->jump_route.needs_program
                                               : "the jump host has a jump host itself");
        if (!s->route.needs_program)
            rc = no_memory(fault);
    }
    free(user);
    free(host);
    return rc;
}

/* The paths where zworker is searched, also as text for messages. */
static zt_err put_script(struct zt_ssh *s, const char *nonce, struct zt_fault *fault)
{
    char *pushed = s->push ? zt_push_find(s->push, "zworker") : NULL;
    const char *places[5] = {NULL};
    struct zt_shell_job job = {.nonce = nonce,
                               .cwd = s->rq.cwd,
                               .other_cwd = s->push ? zt_push_dir(s->push) : NULL,
                               .env = s->rq.env,
                               .zworkers = places,
                               .pushed = s->push ? zt_push_dir(s->push) : NULL};
    int n = 0;
    zt_err rc;

    if (s->rq.zworker || pushed) {
        places[n++] = s->rq.zworker ? s->rq.zworker : pushed;
        s->searched = strdup(places[0]);
    } else {
        if (s->here)
            places[n++] = s->here;
        places[n++] = "zworker";
        places[n] = "~/.zlaunch/bin/zworker";
        if (asprintf(&s->searched, "%s%sPATH or ~/.zlaunch/bin", s->here ? s->here : "",
                     s->here ? ", " : "") < 0)
            s->searched = NULL;
    }
    rc = s->searched ? zt_shell_script(&s->out, &job, fault) : no_memory(fault);
    free(pushed);
    return rc;
}

/* Where this zlaunch would find its own zworker: often there as well. */
static void find_here(struct zt_ssh *s)
{
    char *found_here = NULL, full[PATH_MAX];

    if (zt_find_zworker(&found_here, NULL) == ZT_OK && realpath(found_here, full))
        s->here = strdup(full);
    free(found_here);
}

static zt_err make_nonce(struct zt_ssh *s, char nonce[ZT_SSH_NONCE + 1],
                         struct zt_fault *fault)
{
    uint64_t bits;

    if (getrandom(&bits, sizeof(bits), 0) != sizeof(bits))
        return zt_fault_set(fault, ZT_E_SYSTEM, "no random numbers: %s", strerror(errno));
    snprintf(nonce, ZT_SSH_NONCE + 1, "%016llx", (unsigned long long)bits);
    snprintf(s->marker, sizeof(s->marker), "zlaunch-%s ", nonce);
    return ZT_OK;
}

static zt_err prepare(struct zt_ssh *s, struct zt_fault *fault)
{
    char nonce[ZT_SSH_NONCE + 1];
    zt_err rc = make_routes(s, fault);

    if (!rc)
        rc = make_nonce(s, nonce, fault);
    if (!rc && s->opt.push)
        rc = zt_push_open(s->opt.push_files, s->opt.push_dir, &s->push, fault);
    if (!rc) {
        find_here(s);
        rc = put_script(s, nonce, fault);
    }
    if (rc)
        return rc;
    if (s->opt.program)
        s->program_reason = strdup("it was asked for");
    else if (s->route.needs_program)
        s->program_reason = strdup(s->route.needs_program);
    if (!s->program_reason && (s->opt.program || s->route.needs_program))
        return no_memory(fault);
    return ZT_OK;
}

static void on_first_tick(uv_timer_t *timer)
{
    struct zt_ssh *s = timer->data;

    uv_timer_start(&s->tick, on_alive, KEEPALIVE_MS, KEEPALIVE_MS);
    if (s->program_reason) {
        start_program(s);
        return;
    }
    if (s->route.jump)
        s->jump = zt_jump_open(s->loop, &s->jump_route.link, s->route.host,
                               s->route.link.port, &jump_events, s);
    if (s->route.jump ? !s->jump : !open_link(s))
        end_with(s, ZT_E_NOMEM, "no memory for an ssh session");
}

static zt_err start_ssh(const struct zt_start_request *rq, uv_loop_t *loop,
                        const struct zt_channel_events *ev, void *ctx,
                        struct zt_channel **out, struct zt_fault *fault)
{
    struct zt_ssh *s = calloc(1, sizeof(*s));
    zt_err rc;

    if (!s)
        return no_memory(fault);
    s->channel.ops = &ssh_ops;
    s->ev = ev;
    s->ctx = ctx;
    s->loop = loop;
    s->unsent = -1;
    s->rq = *rq;
    s->opt = rq->ssh ? *rq->ssh : (struct zt_ssh_options){.check_host_key = true};
    if (s->rq.timeout_s <= 0)
        s->rq.timeout_s = DEFAULT_S;
    zt_buf_init(&s->out, MAX_OUT);
    zt_buf_init(&s->head, MAX_HEAD);
    rc = prepare(s, fault);
    if (rc) {
        release(s);
        return rc;
    }
    uv_timer_init(loop, &s->tick);
    s->tick.data = s;
    uv_timer_start(&s->tick, on_first_tick, 0, 0);
    *out = &s->channel;
    return ZT_OK;
}

const struct zt_starter zt_starter_ssh = {.name = "ssh", .start = start_ssh};
