#include "store/tcpstore/client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/log.h"
#include "store/core/sock.h"
#include "store/tcpstore/wire.h"

#define ANSWER_S 30.0 /* for an answer that needs no waiting: the store may be busy */

struct zt_tcp_store {
    int fd;
    char where[300];
    struct zt_buf out;
    bool broken;
    struct zt_fault why;
};

/* ---------------------------------------------------------------- bytes */

static zt_err break_off(struct zt_tcp_store *s, zt_err rc, struct zt_fault *fault)
{
    s->broken = true;
    s->why.code = rc;
    if (fault)
        *fault = s->why;
    return rc;
}

static zt_err put_u64(struct zt_buf *out, uint64_t v)
{
    return zt_buf_put(out, &v, sizeof(v));
}

static zt_err put_string(struct zt_buf *out, const void *data, size_t bytes)
{
    zt_err rc = put_u64(out, bytes);

    return rc ? rc : zt_buf_put(out, data, bytes);
}

static zt_err put_key(struct zt_buf *out, const char *key)
{
    size_t n = strlen(key);
    zt_err rc = n >= ZT_TCP_KEY ? ZT_E_LIMIT : put_u64(out, n + 1);

    if (!rc)
        rc = zt_buf_put(out, "/", 1);
    return rc ? rc : zt_buf_put(out, key, n);
}

/* A request with its first key; NULL: none. */
static zt_err begin(struct zt_tcp_store *s, zt_tcp_command command, const char *key)
{
    zt_err rc;

    zt_buf_drop(&s->out, zt_buf_used(&s->out));
    rc = zt_buf_put_u8(&s->out, (uint8_t)command);
    return rc || !key ? rc : put_key(&s->out, key);
}

static zt_err begin_list(struct zt_tcp_store *s, zt_tcp_command command,
                         const char *const *keys, size_t num_keys)
{
    zt_err rc = begin(s, command, NULL);

    if (!rc)
        rc = put_u64(&s->out, num_keys);
    for (size_t i = 0; !rc && i < num_keys; i++)
        rc = put_key(&s->out, keys[i]);
    return rc;
}

/* Send what was put together (rc: how that went). */
static zt_err finish(struct zt_tcp_store *s, zt_err rc, struct zt_fault *fault)
{
    if (s->broken)
        return break_off(s, s->why.code, fault);
    if (rc)
        return zt_fault_set(fault, rc,
                            "TCPStore: a key of more than %u bytes, or a "
                            "value of more than %u",
                            ZT_TCP_KEY - 1, ZT_TCP_VALUE);
    rc = zt_sock_write(s->fd, zt_buf_head(&s->out), zt_buf_used(&s->out),
                       zt_now() + ANSWER_S, s->where, &s->why);
    return rc ? break_off(s, rc, fault) : ZT_OK;
}

static zt_err read_bytes(struct zt_tcp_store *s, void *to, size_t n,
                         struct zt_fault *fault)
{
    zt_err rc = zt_sock_read(s->fd, to, n, zt_now() + ANSWER_S, s->where, &s->why);

    return rc ? break_off(s, rc, fault) : ZT_OK;
}

static zt_err read_vector(struct zt_tcp_store *s, void **out, size_t *bytes,
                          struct zt_fault *fault)
{
    uint64_t n;
    char *value;
    zt_err rc = read_bytes(s, &n, sizeof(n), fault);

    if (rc)
        return rc;
    if (n > ZT_TCP_VALUE) {
        zt_fault_set(&s->why, ZT_E_FORMAT, "%s: a value of %llu bytes", s->where,
                     (unsigned long long)n);
        return break_off(s, ZT_E_FORMAT, fault);
    }
    value = malloc((size_t)n + 1);
    if (!value) {
        zt_fault_set(&s->why, ZT_E_NOMEM, "%s: no memory for a value", s->where);
        return break_off(s, ZT_E_NOMEM, fault);
    }
    rc = read_bytes(s, value, (size_t)n, fault);
    if (rc) {
        free(value);
        return rc;
    }
    value[n] = 0;
    *out = value;
    if (bytes)
        *bytes = (size_t)n;
    return ZT_OK;
}

/* ---------------------------------------------------------------- opening */

/* VALIDATE in one write of its own: some servers decide on what the first read gave. */
static zt_err greet(struct zt_tcp_store *s, struct zt_fault *fault)
{
    uint32_t magic = ZT_TCP_MAGIC, nonce = (uint32_t)getpid(), echo = 0;
    zt_err rc = begin(s, ZT_TCP_VALIDATE, NULL);

    if (!rc)
        rc = zt_buf_put(&s->out, &magic, sizeof(magic));
    rc = finish(s, rc, fault);
    if (rc)
        return rc;
    rc = begin(s, ZT_TCP_PING, NULL);
    if (!rc)
        rc = zt_buf_put(&s->out, &nonce, sizeof(nonce));
    rc = finish(s, rc, fault);
    if (!rc)
        rc = read_bytes(s, &echo, sizeof(echo), fault);
    if (rc || echo != nonce)
        return zt_fault_set(fault, rc ? rc : ZT_E_PEER,
                            "%s: no TCPStore of torch 2.2 or newer answers there; with "
                            "TORCHELASTIC_USE_AGENT_STORE=True the launcher must serve "
                            "one",
                            s->where);
    return ZT_OK;
}

zt_err zt_tcp_store_open(const char *host, int port, double timeout_s, double resolve_s,
                         struct zt_tcp_store **out, struct zt_fault *fault)
{
    struct zt_tcp_store *s = calloc(1, sizeof(*s));
    zt_err rc;

    if (!s)
        return zt_fault_set(fault, ZT_E_NOMEM, "TCPStore: no memory");
    s->fd = -1;
    zt_buf_init(&s->out, ZT_TCP_VALUE + 4u * ZT_TCP_KEY);
    snprintf(s->where, sizeof(s->where), "TCPStore at %.240s port %d", host, port);
    rc = zt_sock_connect(host, port, zt_now() + timeout_s, resolve_s, &s->fd, fault);
    if (!rc)
        rc = greet(s, fault);
    if (rc) {
        zt_tcp_store_close(s);
        return rc;
    }
    *out = s;
    return ZT_OK;
}

void zt_tcp_store_close(struct zt_tcp_store *s)
{
    if (!s)
        return;
    if (s->fd >= 0)
        close(s->fd);
    zt_buf_release(&s->out);
    free(s);
}

/* ---------------------------------------------------------------- calls */

zt_err zt_tcp_store_set(struct zt_tcp_store *s, const char *key, const void *value,
                        size_t bytes, struct zt_fault *fault)
{
    zt_err rc = begin(s, ZT_TCP_SET, key);

    if (!rc)
        rc = bytes > ZT_TCP_VALUE ? ZT_E_LIMIT : put_string(&s->out, value, bytes);
    return finish(s, rc, fault);
}

zt_err zt_tcp_store_add(struct zt_tcp_store *s, const char *key, int64_t delta,
                        int64_t *out, struct zt_fault *fault)
{
    zt_err rc = begin(s, ZT_TCP_ADD, key);

    if (!rc)
        rc = put_u64(&s->out, (uint64_t)delta);
    rc = finish(s, rc, fault);
    return rc ? rc : read_bytes(s, out, sizeof(*out), fault);
}

/* Take the wait back. The answer may have been on its way: then a second byte follows. */
static zt_err cancel_wait(struct zt_tcp_store *s, bool *came, struct zt_fault *fault)
{
    uint8_t byte = 0;
    zt_err rc = finish(s, begin(s, ZT_TCP_CANCEL_WAIT, NULL), fault);

    *came = false;
    if (!rc)
        rc = read_bytes(s, &byte, 1, fault);
    if (rc || byte)
        return rc;
    *came = true;
    return read_bytes(s, &byte, 1, fault);
}

/* Has the server something to say by then? */
static bool answers(struct zt_tcp_store *s, double deadline)
{
    struct pollfd p = {.fd = s->fd, .events = POLLIN};

    for (;;) {
        int n = poll(&p, 1, zt_sock_wait_ms(deadline));

        if (n > 0)
            return true;
        if (n == 0 && zt_now() >= deadline)
            return false;
    }
}

zt_err zt_tcp_store_wait(struct zt_tcp_store *s, const char *const *keys, size_t num_keys,
                         double timeout_s, struct zt_fault *fault)
{
    double deadline = zt_now() + timeout_s;
    bool came = false;
    uint8_t byte;
    zt_err rc = finish(s, begin_list(s, ZT_TCP_WAIT, keys, num_keys), fault);

    if (rc)
        return rc;
    if (answers(s, deadline))
        return read_bytes(s, &byte, 1, fault);
    rc = cancel_wait(s, &came, fault);
    if (rc || came)
        return rc;
    return zt_fault_set(fault, ZT_E_PEER,
                        "%s: key \"%.200s\"%s: nobody set it within "
                        "%.1f s",
                        s->where, num_keys ? keys[0] : "",
                        num_keys > 1 ? " or one of those beside it" : "", timeout_s);
}

zt_err zt_tcp_store_get(struct zt_tcp_store *s, const char *key, double timeout_s,
                        void **out, size_t *bytes, struct zt_fault *fault)
{
    zt_err rc = zt_tcp_store_wait(s, &key, 1, timeout_s, fault);

    if (!rc)
        rc = finish(s, begin(s, ZT_TCP_GET, key), fault);
    return rc ? rc : read_vector(s, out, bytes, fault);
}

zt_err zt_tcp_store_check(struct zt_tcp_store *s, const char *const *keys,
                          size_t num_keys, bool *all, struct zt_fault *fault)
{
    uint8_t byte;
    zt_err rc = finish(s, begin_list(s, ZT_TCP_CHECK, keys, num_keys), fault);

    if (!rc)
        rc = read_bytes(s, &byte, 1, fault);
    if (!rc)
        *all = byte == 0;
    return rc;
}

zt_err zt_tcp_store_compare_set(struct zt_tcp_store *s, const char *key,
                                const char *expected, const char *desired, char **now,
                                struct zt_fault *fault)
{
    void *value;
    zt_err rc = begin(s, ZT_TCP_COMPARE_SET, key);

    if (!rc)
        rc = put_string(&s->out, expected, strlen(expected));
    if (!rc)
        rc = put_string(&s->out, desired, strlen(desired));
    rc = finish(s, rc, fault);
    if (!rc)
        rc = read_vector(s, &value, NULL, fault);
    if (!rc)
        *now = value;
    return rc;
}

zt_err zt_tcp_store_delete(struct zt_tcp_store *s, const char *key, bool *was,
                           struct zt_fault *fault)
{
    int64_t num = 0;
    zt_err rc = finish(s, begin(s, ZT_TCP_DELETE, key), fault);

    if (!rc)
        rc = read_bytes(s, &num, sizeof(num), fault);
    if (!rc)
        *was = num > 0;
    return rc;
}
