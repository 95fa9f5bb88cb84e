/*
 * Public key authentication: the files the user named, then the agent's keys, then the
 * default files. Keys that libssh2 cannot use (RSA, hardware keys, certificates, files
 * with a passphrase) are remembered: if no other key is accepted, the ssh program tries
 * them.
 */
#include "launcher/ssh/agent.h"
#include "launcher/ssh/formats.h"
#include "launcher/ssh/key.h"
#include "launcher/ssh/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { METHODS, NAMED_FILES, AGENT, DEFAULT_FILES, NOTHING_LEFT };

struct zt_auth {
    struct zt_agent *agent;
    int stage, index; /* of the list of this stage */
    int tried;        /* keys the server has refused */
    char why[256];    /* what the ssh program may manage; empty: nothing */
    void *abstract;   /* of the sign callback: this struct */
    bool waiting;     /* for the agent */
    bool broken;      /* the agent would not sign */
};

void zt_auth_release(struct zt_ssh_session *l)
{
    if (l->auth)
        zt_agent_close(l->auth->agent);
    free(l->auth);
    l->auth = NULL;
}

static void remember(struct zt_auth *a, const char *fmt, const char *what)
{
    if (!a->why[0])
        snprintf(a->why, sizeof(a->why), fmt, what);
}

/* The server's answer to one key; *next_key is set when that one is refused. */
static zt_ssh_session_step judge(struct zt_ssh_session *l, int rc, bool *next_key)
{
    struct zt_auth *a = l->auth;

    if (rc == 0)
        return ZT_STEP_NEXT;
    if (rc == LIBSSH2_ERROR_EAGAIN)
        return ZT_STEP_WAIT;
    if (rc == LIBSSH2_ERROR_SOCKET_DISCONNECT || rc == LIBSSH2_ERROR_SOCKET_RECV ||
        rc == LIBSSH2_ERROR_SOCKET_SEND || rc == LIBSSH2_ERROR_SOCKET_NONE)
        return zt_ssh_session_fail(
            l, false, ZT_E_HOST,
            "the server hung up after %d keys (user %s): name the right "
            "one with --ssh_identity",
            a->tried, l->cfg->user);
    a->tried++;
    a->index++;
    *next_key = true;
    return ZT_STEP_WAIT;
}

/* ------------------------------------------------------------------ files */

static zt_ssh_session_step try_file(struct zt_ssh_session *l, const char *path,
                                    bool named, bool *next_key)
{
    struct zt_auth *a = l->auth;
    zt_key_kind kind = zt_key_read(path);
    char cert[4096];

    *next_key = false;
    snprintf(cert, sizeof(cert), "%s-cert.pub", path);
    if (access(cert, R_OK) == 0)
        remember(a, "%s is a certificate, which the ssh library cannot present", cert);
    if (kind == ZT_KEY_USABLE)
        return judge(l,
                     libssh2_userauth_publickey_fromfile(l->session, l->cfg->user, NULL,
                                                         path, NULL),
                     next_key);
    if (kind == ZT_KEY_RSA)
        remember(a, "the key %s is RSA, for which the ssh library has only SHA-1", path);
    else if (kind == ZT_KEY_HARDWARE)
        remember(a, "the key %s lies in a hardware token", path);
    else if (kind == ZT_KEY_ENCRYPTED && named)
        remember(a, "the key %s has a passphrase (add it to ssh-agent with ssh-add)",
                 path);
    else if (kind == ZT_KEY_ABSENT && named)
        return zt_ssh_session_fail(l, false, ZT_E_NOINPUT,
                                   "the key file %s does not exist", path);
    else if (kind == ZT_KEY_OTHER && named)
        return zt_ssh_session_fail(
            l, false, ZT_E_NOINPUT,
            "the key file %s cannot be read or holds no private key", path);
    a->index++;
    *next_key = true;
    return ZT_STEP_WAIT;
}

static zt_ssh_session_step try_files(struct zt_ssh_session *l, char *const *files,
                                     bool named)
{
    struct zt_auth *a = l->auth;
    zt_ssh_session_step step = ZT_STEP_WAIT;
    bool next_key = true;

    while (next_key && files && files[a->index])
        step = try_file(l, files[a->index], named, &next_key);
    if (next_key && step == ZT_STEP_WAIT) {
        a->stage++;
        a->index = 0;
    }
    return step;
}

/* ------------------------------------------------------------------ the agent */

static void on_agent(void *ctx)
{
    zt_ssh_session_wake(ctx);
}

/* Called by libssh2 within a try; EAGAIN makes it ask again later. */
static int sign(LIBSSH2_SESSION *session, unsigned char **sig, size_t *sig_bytes,
                const unsigned char *data, size_t n, void **abstract)
{
    struct zt_auth *a = *abstract;

    (void)session;
    switch (zt_agent_sign(a->agent, a->index, data, n, sig, sig_bytes)) {
    case ZT_AGENT_BUSY:
        a->waiting = true;
        return LIBSSH2_ERROR_EAGAIN;
    case ZT_AGENT_READY:
        return 0;
    default:
        a->broken = true;
        return -1;
    }
}

static zt_ssh_session_step try_agent_key(struct zt_ssh_session *l, bool *next_key)
{
    struct zt_auth *a = l->auth;
    size_t n, type_bytes;
    const uint8_t *blob = zt_agent_key(a->agent, a->index, &n), *type;
    struct zt_ssh_reader w = {blob, blob + n};
    zt_key_kind kind = ZT_KEY_OTHER;

    if (zt_ssh_read_string(&w, &type, &type_bytes))
        kind = zt_key_kind_of_type((const char *)type, type_bytes);
    else
        type = NULL;
    *next_key = false;
    a->abstract = a;
    a->waiting = false;
    if (kind == ZT_KEY_USABLE)
        return judge(l,
                     libssh2_userauth_publickey(l->session, l->cfg->user, blob, n, sign,
                                                &a->abstract),
                     next_key);
    if (kind == ZT_KEY_RSA)
        remember(a, "%s is RSA, for which the ssh library has only SHA-1",
                 "a key in the agent");
    else if (kind == ZT_KEY_HARDWARE || type)
        remember(a, "%s is of a kind that the ssh library does not know",
                 "a key in the agent");
    a->index++;
    *next_key = true;
    return ZT_STEP_WAIT;
}

static zt_ssh_session_step try_agent(struct zt_ssh_session *l)
{
    struct zt_auth *a = l->auth;
    zt_ssh_session_step step = ZT_STEP_WAIT;
    bool next_key = true;

    if (!a->agent && l->cfg->agent) {
        a->agent = zt_agent_open(l->loop, l->cfg->agent, on_agent, l);
        if (!a->agent)
            return zt_ssh_session_fail(l, false, ZT_E_NOMEM, "no memory for the agent");
    }
    if (a->agent && zt_agent_listed(a->agent) == ZT_AGENT_BUSY) {
        l->parked = true;
        return ZT_STEP_WAIT;
    }
    while (next_key && a->agent && a->index < zt_agent_num_keys(a->agent))
        step = try_agent_key(l, &next_key);
    l->parked = a->waiting && step == ZT_STEP_WAIT && !next_key;
    if (next_key && step == ZT_STEP_WAIT) {
        a->stage++;
        a->index = 0;
    }
    return step;
}

/* ------------------------------------------------------------------ the order of it */

/* Also succeeds by itself on a server that needs no authentication. */
static zt_ssh_session_step ask_methods(struct zt_ssh_session *l)
{
    struct zt_auth *a = l->auth;
    const char *list =
        libssh2_userauth_list(l->session, l->cfg->user, (unsigned)strlen(l->cfg->user));
    bool gssapi;

    if (!list) {
        if (libssh2_userauth_authenticated(l->session))
            return ZT_STEP_NEXT;
        if (libssh2_session_last_errno(l->session) == LIBSSH2_ERROR_EAGAIN)
            return ZT_STEP_WAIT;
        return zt_ssh_session_fail(l, false, ZT_E_HOST, "authentication of user %s: %s",
                                   l->cfg->user, zt_ssh_session_error(l));
    }
    gssapi = strstr(list, "gssapi") && getenv("KRB5CCNAME");
    if (gssapi)
        remember(a, "%s", "the server takes GSSAPI, and there is a Kerberos ticket");
    if (!strstr(list, "publickey"))
        return zt_ssh_session_fail(
            l, gssapi || strstr(list, "hostbased"), ZT_E_HOST,
            "user %s cannot log in with a key, only with %s: allow "
            "publickey in its sshd_config",
            l->cfg->user, list);
    a->stage = NAMED_FILES;
    return ZT_STEP_WAIT;
}

static zt_ssh_session_step refused(struct zt_ssh_session *l)
{
    struct zt_auth *a = l->auth;

    if (a->why[0])
        return zt_ssh_session_fail(l, true, ZT_E_HOST, "%s", a->why);
    if (!a->tried)
        return zt_ssh_session_fail(
            l, false, ZT_E_HOST,
            "there is no key to log in with as user %s: make one "
            "(ssh-keygen -t ed25519), copy it (ssh-copy-id), or name one "
            "with --ssh_identity",
            l->cfg->user);
    return zt_ssh_session_fail(
        l, false, ZT_E_HOST,
        "permission denied: user %s, %d key%s tried%s: copy yours there "
        "(ssh-copy-id) or name another with --ssh_identity",
        l->cfg->user, a->tried, a->tried == 1 ? "" : "s",
        a->broken ? ", the agent would not sign with one" : "");
}

zt_ssh_session_step zt_auth_step(struct zt_ssh_session *l)
{
    zt_ssh_session_step step = ZT_STEP_WAIT;
    struct zt_auth *a;
    int before;

    if (!l->auth)
        l->auth = calloc(1, sizeof(*l->auth));
    a = l->auth;
    if (!a)
        return zt_ssh_session_fail(l, false, ZT_E_NOMEM, "no memory for authentication");
    do {
        before = a->stage;
        if (before == METHODS)
            step = ask_methods(l);
        else if (before == NAMED_FILES)
            step = try_files(l, l->cfg->identities, true);
        else if (before == AGENT)
            step = try_agent(l);
        else if (before == DEFAULT_FILES)
            step = try_files(l, l->cfg->default_files, false);
        else
            step = refused(l);
    } while (step == ZT_STEP_WAIT && a->stage != before);
    if (step == ZT_STEP_NEXT)
        zt_auth_release(l);
    return step;
}
