#include "store/native/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/message/frame.h"
#include "common/log.h"
#include "store/core/sock.h"
#include "store/native/wire.h"

#define ANSWER_S    10.0 /* beyond the time that a request may wait at the store */
#define CHALLENGE_S 5.0  /* for the challenge of a store that accepted the connection */
#define REFUSALS    3   /* a busy store can throw us out; a wrong secret is no accident */
#define MAX_TIMEOUT 4e6 /* seconds; fits the protocol's milliseconds */

struct zt_store_client {
    int fd;
    uint32_t index, count;
    char where[300]; /* "store of the job at HOST port N" */
    struct zt_buf out, in;
    bool broken;
    struct zt_fault why; /* it is broken */
};

/* ---------------------------------------------------------------- handshake */

/* *refused: the store closed without a word after our answer. */
static zt_err prove(struct zt_store_client *s, const struct zt_store_config *cfg,
                    double deadline, bool *refused, struct zt_fault *fault)
{
    struct zt_handshake_key key = {cfg->secret, cfg->job};
    uint8_t challenge[ZT_HANDSHAKE_CHALLENGE], answer[ZT_HANDSHAKE_ANSWER];
    uint8_t verdict[ZT_HANDSHAKE_VERDICT];
    double soon = zt_now() + CHALLENGE_S;
    struct zt_handshake p;
    zt_err rc;

    *refused = true;
    rc = zt_sock_read(s->fd, challenge, sizeof(challenge),
                      soon < deadline ? soon : deadline, s->where, fault);
    if (rc)
        return rc;
    rc = zt_handshake_respond(&p, &key, cfg->generation, challenge, answer, fault);
    if (rc) {
        *refused = false;
        return zt_fault_context(fault, rc, "%s", s->where);
    }
    rc = zt_sock_write(s->fd, answer, sizeof(answer), deadline, s->where, fault);
    if (!rc && zt_sock_read(s->fd, verdict, sizeof(verdict), deadline, s->where, NULL))
        return zt_fault_set(fault, ZT_E_PEER,
                            "%s: refused this process: its secret or its job id (%s) is "
                            "not that of the job; %s must be the same for all ranks",
                            s->where, cfg->job,
                            cfg->secret_of ? cfg->secret_of : "ZLAUNCH_SECRET_FILE");
    if (rc)
        return rc;
    *refused = false;
    rc = zt_handshake_accept(&p, &key, verdict, fault);
    return rc ? zt_fault_context(fault, rc, "%s", s->where) : ZT_OK;
}

static zt_err connect_and_prove(struct zt_store_client *s,
                                const struct zt_store_config *cfg, struct zt_fault *fault)
{
    double deadline = zt_now() + cfg->timeout_s;
    bool refused = true;
    zt_err rc = ZT_OK;

    for (int tries = 0; refused && tries < REFUSALS; tries++) {
        if (s->fd >= 0)
            close(s->fd);
        s->fd = -1;
        if (tries)
            zt_sock_pause(0.1 * tries, deadline);
        rc = zt_sock_connect(cfg->host, cfg->port, deadline,
                             cfg->resolve_s > 0 ? cfg->resolve_s : 60, &s->fd, fault);
        if (rc)
            return rc;
        rc = prove(s, cfg, deadline, &refused, fault);
    }
    return rc;
}

/* ---------------------------------------------------------------- requests */

static zt_err break_off(struct zt_store_client *s, zt_err rc, struct zt_fault *fault)
{
    s->broken = true;
    s->why.code = rc;
    if (fault)
        *fault = s->why;
    return rc;
}

/* One reply into s->in. */
static zt_err read_reply(struct zt_store_client *s, double deadline, uint8_t *status,
                         struct zt_span *body)
{
    size_t n = 4, bytes;
    uint8_t *to;
    zt_err rc;

    zt_buf_drop(&s->in, zt_buf_used(&s->in));
    for (int part = 0; part < 2; part++) {
        rc = zt_buf_reserve(&s->in, n, &to);
        if (rc)
            return zt_fault_set(&s->why, rc, "%s: no memory for an answer", s->where);
        rc = zt_sock_read(s->fd, to, n, deadline, s->where, &s->why);
        if (rc)
            return rc;
        zt_buf_commit(&s->in, n);
        if (part)
            break;
        n = zt_get_u32(zt_buf_head(&s->in));
        if (n < 1 || n > ZT_STORE_MESSAGE)
            return zt_fault_set(&s->why, ZT_E_FORMAT, "%s: malformed answer", s->where);
    }
    rc = zt_store_peek(&s->in, status, body, &bytes);
    return rc ? zt_fault_set(&s->why, ZT_E_FORMAT, "%s: malformed answer", s->where) : rc;
}

static zt_err status_to_err(uint8_t status)
{
    switch (status) {
    case ZT_STORE_OK:
        return ZT_OK;
    case ZT_STORE_ABSENT:
        return ZT_E_NOINPUT;
    case ZT_STORE_REFUSED:
        return ZT_E_ARG;
    case ZT_STORE_FULL:
        return ZT_E_LIMIT;
    default:
        return ZT_E_PEER;
    }
}

/* *body lies in the store's buffer until the next request. */
static zt_err request(struct zt_store_client *s, const struct zt_store_request *r,
                      struct zt_span *body, struct zt_fault *fault)
{
    double deadline = zt_now() + r->timeout_ms / 1e3 + ANSWER_S;
    uint8_t status;
    zt_err rc;

    *body = (struct zt_span){"", 0};
    if (s->broken)
        return break_off(s, s->why.code, fault);
    zt_buf_drop(&s->out, zt_buf_used(&s->out));
    rc = zt_store_put_request(&s->out, r);
    if (rc)
        return zt_fault_set(fault, rc,
                            "store: key \"%.*s\": longer than %u bytes, or a value of "
                            "more than %u",
                            (int)(r->key.bytes < 64 ? r->key.bytes : 64),
                            r->key.data ? (const char *)r->key.data : "", ZT_STORE_KEY,
                            ZT_STORE_VALUE);
    rc = zt_sock_write(s->fd, zt_buf_head(&s->out), zt_buf_used(&s->out), deadline,
                       s->where, &s->why);
    if (!rc)
        rc = read_reply(s, deadline, &status, body);
    if (rc)
        return break_off(s, rc, fault);
    rc = status_to_err(status);
    if (!rc)
        return ZT_OK;
    zt_fault_set(&s->why, rc, "%.*s", (int)body->bytes, (const char *)body->data);
    if (status == ZT_STORE_STALE)
        return break_off(s, rc, fault);
    if (fault)
        *fault = s->why;
    return rc;
}

static zt_err malformed(struct zt_store_client *s, struct zt_fault *fault)
{
    zt_fault_set(&s->why, ZT_E_FORMAT, "%s: malformed answer", s->where);
    return break_off(s, ZT_E_FORMAT, fault);
}

static struct zt_span text_span(const char *text)
{
    return (struct zt_span){text, strlen(text)};
}

/* At least 1 ms, so that only 0 does not wait. */
static uint32_t milliseconds(double s)
{
    return s <= 0            ? 0
           : s > MAX_TIMEOUT ? (uint32_t)(MAX_TIMEOUT * 1e3)
                             : (uint32_t)(s * 1e3) + 1;
}

static zt_err join(struct zt_store_client *s, const struct zt_store_config *cfg,
                   struct zt_fault *fault)
{
    char label[160], host[96] = "";
    struct zt_store_request r = {.op = ZT_STORE_JOIN};
    struct zt_span body;

    if (!cfg->count)
        return ZT_OK;
    gethostname(host, sizeof(host) - 1);
    snprintf(label, sizeof(label), "%s pid %d", host, (int)getpid());
    r.index = cfg->index;
    r.count = cfg->count;
    r.key = text_span(cfg->label ? cfg->label : label);
    return request(s, &r, &body, fault);
}

zt_err zt_store_open(const struct zt_store_config *cfg, struct zt_store_client **out,
                     struct zt_fault *fault)
{
    struct zt_store_client *s = calloc(1, sizeof(*s));
    zt_err rc;

    if (!s)
        return zt_fault_set(fault, ZT_E_NOMEM, "store: no memory");
    s->fd = -1;
    s->index = cfg->index;
    s->count = cfg->count;
    zt_buf_init(&s->out, ZT_STORE_MESSAGE + 4);
    zt_buf_init(&s->in, ZT_STORE_MESSAGE + 4);
    snprintf(s->where, sizeof(s->where), "store of the job at %.240s port %d", cfg->host,
             cfg->port);
    rc = connect_and_prove(s, cfg, fault);
    if (!rc)
        rc = join(s, cfg, fault);
    if (rc) {
        zt_store_close(s);
        return rc;
    }
    *out = s;
    return ZT_OK;
}

void zt_store_close(struct zt_store_client *s)
{
    if (!s)
        return;
    if (s->fd >= 0)
        close(s->fd);
    zt_buf_release(&s->out);
    zt_buf_release(&s->in);
    free(s);
}

/* ---------------------------------------------------------------- calls */

zt_err zt_store_set(struct zt_store_client *s, const char *key, const void *value,
                    size_t bytes, struct zt_fault *fault)
{
    struct zt_store_request r = {
        .op = ZT_STORE_SET, .key = text_span(key), .value = {value, bytes}};
    struct zt_span body;

    return request(s, &r, &body, fault);
}

static zt_err copy_out(struct zt_span body, void **out, size_t *bytes,
                       struct zt_fault *fault)
{
    char *copy = malloc(body.bytes + 1);

    if (!copy)
        return zt_fault_set(fault, ZT_E_NOMEM, "store: no memory for a value");
    memcpy(copy, body.data, body.bytes);
    copy[body.bytes] = 0;
    *out = copy;
    if (bytes)
        *bytes = body.bytes;
    return ZT_OK;
}

zt_err zt_store_get(struct zt_store_client *s, const char *key, double timeout_s,
                    void **out, size_t *bytes, struct zt_fault *fault)
{
    struct zt_store_request r = {
        .op = ZT_STORE_GET, .key = text_span(key), .timeout_ms = milliseconds(timeout_s)};
    struct zt_span body;
    zt_err rc = request(s, &r, &body, fault);

    return rc ? rc : copy_out(body, out, bytes, fault);
}

zt_err zt_store_add(struct zt_store_client *s, const char *key, int64_t delta,
                    int64_t *out, struct zt_fault *fault)
{
    struct zt_store_request r = {
        .op = ZT_STORE_ADD, .key = text_span(key), .delta = delta};
    struct zt_span body;
    zt_err rc = request(s, &r, &body, fault);

    if (rc)
        return rc;
    if (body.bytes != 8)
        return malformed(s, fault);
    *out = zt_store_get_i64(body.data);
    return ZT_OK;
}

zt_err zt_store_compare_set(struct zt_store_client *s, const char *key,
                            const char *expected, const char *desired, bool *stored,
                            char **now, struct zt_fault *fault)
{
    struct zt_store_request r = {.op = ZT_STORE_CAS,
                                 .key = text_span(key),
                                 .expected = text_span(expected),
                                 .value = text_span(desired)};
    struct zt_span body;
    void *text;
    zt_err rc = request(s, &r, &body, fault);

    if (rc)
        return rc;
    if (body.bytes < 1)
        return malformed(s, fault);
    *stored = *(const uint8_t *)body.data;
    body.data = (const uint8_t *)body.data + 1;
    body.bytes--;
    rc = copy_out(body, &text, NULL, fault);
    if (!rc)
        *now = text;
    return rc;
}

zt_err zt_store_wait(struct zt_store_client *s, const char *const *keys,
                     uint32_t num_keys, double timeout_s, struct zt_fault *fault)
{
    struct zt_store_request r = {.op = ZT_STORE_WAIT,
                                 .timeout_ms = milliseconds(timeout_s)};
    struct zt_span body;

    if (num_keys > ZT_STORE_WAIT_KEYS)
        return zt_fault_set(fault, ZT_E_LIMIT, "store: a wait for %u keys; %u at most",
                            num_keys, ZT_STORE_WAIT_KEYS);
    r.num_keys = num_keys;
    for (uint32_t i = 0; i < num_keys; i++)
        r.keys[i] = text_span(keys[i]);
    return request(s, &r, &body, fault);
}

zt_err zt_store_delete(struct zt_store_client *s, const char *key, bool *was,
                       struct zt_fault *fault)
{
    struct zt_store_request r = {.op = ZT_STORE_DELETE, .key = text_span(key)};
    struct zt_span body;
    zt_err rc = request(s, &r, &body, fault);

    if (rc)
        return rc;
    if (body.bytes != 1)
        return malformed(s, fault);
    *was = *(const uint8_t *)body.data;
    return ZT_OK;
}

zt_err zt_store_barrier(struct zt_store_client *s, const char *name, double timeout_s,
                        struct zt_fault *fault)
{
    struct zt_store_request r = {.op = ZT_STORE_BARRIER,
                                 .timeout_ms = milliseconds(timeout_s),
                                 .index = s->index,
                                 .count = s->count,
                                 .key = text_span(name)};
    struct zt_span body;

    return request(s, &r, &body, fault);
}
