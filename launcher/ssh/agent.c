#include "launcher/ssh/agent.h"

#include "common/buf.h"
#include "launcher/ssh/formats.h"

#include <stdlib.h>
#include <string.h>

#define LIST_REQUEST  11
#define LIST_ANSWER   12
#define SIGN_REQUEST  13
#define SIGN_ANSWER   14
#define MAX_KEYS      256
#define MAX_ANSWER    (256u << 10)
#define MAX_SIGN_DATA (64u << 10)

struct zt_agent {
    uv_pipe_t pipe;
    uv_connect_t connect;
    void (*on_change)(void *ctx); /* NULL: closed */
    void *ctx;
    struct zt_buf in;
    struct zt_buf list; /* the answer that the keys lie in */
    struct {
        const uint8_t *blob;
        size_t bytes;
    } key[MAX_KEYS];
    int num_keys;
    zt_agent_state listed, signing;
    bool asked; /* a signature, whose answer is not taken yet */
    uint8_t *sig;
    size_t sig_bytes;
};

struct request {
    uv_write_t req;
    struct zt_buf bytes;
};

static void on_closed(uv_handle_t *handle)
{
    struct zt_agent *a = handle->data;

    zt_buf_release(&a->in);
    zt_buf_release(&a->list);
    free(a->sig);
    free(a);
}

void zt_agent_close(struct zt_agent *a)
{
    if (!a)
        return;
    a->on_change = NULL;
    if (!uv_is_closing((uv_handle_t *)&a->pipe))
        uv_close((uv_handle_t *)&a->pipe, on_closed);
}

/* Whatever was waited for will not come. */
static void gone(struct zt_agent *a)
{
    if (a->listed == ZT_AGENT_BUSY)
        a->listed = ZT_AGENT_GONE;
    a->signing = ZT_AGENT_GONE;
    if (a->on_change)
        a->on_change(a->ctx);
}

static void on_sent(uv_write_t *req, int status)
{
    struct request *r = (struct request *)req;

    (void)status; /* a dead agent shows when it is read */
    zt_buf_release(&r->bytes);
    free(r);
}

/* Takes `r`; its bytes are a whole message. */
static bool send_request(struct zt_agent *a, struct request *r, zt_err rc)
{
    uv_buf_t buf;

    if (!rc) {
        buf = uv_buf_init((char *)r->bytes.data, (unsigned)zt_buf_used(&r->bytes));
        if (uv_write(&r->req, (uv_stream_t *)&a->pipe, &buf, 1, on_sent) == 0)
            return true;
    }
    zt_buf_release(&r->bytes);
    free(r);
    return false;
}

static bool ask_list(struct zt_agent *a)
{
    struct request *r = calloc(1, sizeof(*r));
    zt_err rc;

    if (!r)
        return false;
    zt_buf_init(&r->bytes, 16);
    rc = zt_buf_put_u32(&r->bytes, 1);
    if (!rc)
        rc = zt_buf_put_u8(&r->bytes, LIST_REQUEST);
    return send_request(a, r, rc);
}

static bool ask_signature(struct zt_agent *a, int index, const uint8_t *data, size_t n)
{
    struct request *r = calloc(1, sizeof(*r));
    size_t blob_bytes = a->key[index].bytes;
    zt_err rc;

    if (!r)
        return false;
    zt_buf_init(&r->bytes, MAX_ANSWER + MAX_SIGN_DATA + 32);
    rc = zt_buf_put_u32(&r->bytes, (uint32_t)(1 + 4 + blob_bytes + 4 + n + 4));
    if (!rc)
        rc = zt_buf_put_u8(&r->bytes, SIGN_REQUEST);
    if (!rc)
        rc = zt_buf_put_u32(&r->bytes, (uint32_t)blob_bytes);
    if (!rc)
        rc = zt_buf_put(&r->bytes, a->key[index].blob, blob_bytes);
    if (!rc)
        rc = zt_buf_put_u32(&r->bytes, (uint32_t)n);
    if (!rc)
        rc = zt_buf_put(&r->bytes, data, n);
    if (!rc)
        rc = zt_buf_put_u32(&r->bytes, 0);
    return send_request(a, r, rc);
}

/* ------------------------------------------------------------------ answers */

static void take_list(struct zt_agent *a, const uint8_t *p, size_t n)
{
    struct zt_ssh_reader w;
    const uint8_t *comment;
    size_t bytes;
    uint32_t num;

    a->listed = ZT_AGENT_GONE;
    if (n < 1 || *p != LIST_ANSWER || zt_buf_put(&a->list, p, n))
        return;
    w = (struct zt_ssh_reader){zt_buf_head(&a->list) + 1,
                               zt_buf_head(&a->list) + zt_buf_used(&a->list)};
    if (!zt_ssh_read_u32(&w, &num))
        return;
    a->listed = ZT_AGENT_READY;
    while (
        num-- && a->num_keys < MAX_KEYS &&
        zt_ssh_read_string(&w, &a->key[a->num_keys].blob, &a->key[a->num_keys].bytes) &&
        zt_ssh_read_string(&w, &comment, &bytes))
        a->num_keys++;
}

/* string(string algorithm, string signature) */
static void take_signature(struct zt_agent *a, const uint8_t *p, size_t n)
{
    struct zt_ssh_reader w = {p + 1, p + n}, inner;
    const uint8_t *s;
    size_t bytes;

    a->signing = ZT_AGENT_GONE;
    if (n < 1 || *p != SIGN_ANSWER || !zt_ssh_read_string(&w, &s, &bytes))
        return;
    inner = (struct zt_ssh_reader){s, s + bytes};
    if (!zt_ssh_read_string(&inner, &s, &bytes) ||
        !zt_ssh_read_string(&inner, &s, &bytes))
        return;
    free(a->sig);
    a->sig = malloc(bytes ? bytes : 1);
    if (!a->sig)
        return;
    memcpy(a->sig, s, bytes);
    a->sig_bytes = bytes;
    a->signing = ZT_AGENT_READY;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct zt_agent *a = handle->data;
    uint8_t *room;

    (void)suggested;
    if (zt_buf_reserve(&a->in, 8192, &room))
        *buf = uv_buf_init(NULL, 0); /* read as ENOBUFS: an agent that talks too much */
    else
        *buf = uv_buf_init((char *)room, 8192);
}

static void on_read(uv_stream_t *stream, ssize_t k, const uv_buf_t *buf)
{
    struct zt_agent *a = stream->data;
    bool news = false;

    (void)buf;
    if (k < 0) {
        uv_read_stop(stream);
        gone(a);
        return;
    }
    zt_buf_commit(&a->in, (size_t)k);
    while (zt_buf_used(&a->in) >= 4) {
        struct zt_ssh_reader w = {zt_buf_head(&a->in),
                                  zt_buf_head(&a->in) + zt_buf_used(&a->in)};
        const uint8_t *p;
        size_t n;

        if (!zt_ssh_read_string(&w, &p, &n))
            break;
        if (a->listed == ZT_AGENT_BUSY)
            take_list(a, p, n);
        else if (a->asked && a->signing == ZT_AGENT_BUSY)
            take_signature(a, p, n);
        zt_buf_drop(&a->in, 4 + n);
        news = true;
    }
    if (news && a->on_change)
        a->on_change(a->ctx);
}

static void on_connected(uv_connect_t *req, int status)
{
    struct zt_agent *a = req->data;

    if (uv_is_closing((uv_handle_t *)&a->pipe))
        return;
    if (status < 0 || uv_read_start((uv_stream_t *)&a->pipe, on_alloc, on_read) < 0 ||
        !ask_list(a))
        gone(a);
}

struct zt_agent *zt_agent_open(uv_loop_t *loop, const char *path,
                               void (*on_change)(void *ctx), void *ctx)
{
    struct zt_agent *a = calloc(1, sizeof(*a));

    if (!a)
        return NULL;
    uv_pipe_init(loop, &a->pipe, 0);
    a->pipe.data = a->connect.data = a;
    a->on_change = on_change;
    a->ctx = ctx;
    zt_buf_init(&a->in, MAX_ANSWER);
    zt_buf_init(&a->list, MAX_ANSWER);
    uv_pipe_connect(&a->connect, &a->pipe, path, on_connected);
    return a;
}

zt_agent_state zt_agent_listed(const struct zt_agent *a)
{
    return a->listed;
}

int zt_agent_num_keys(const struct zt_agent *a)
{
    return a->num_keys;
}

const uint8_t *zt_agent_key(const struct zt_agent *a, int index, size_t *bytes)
{
    *bytes = a->key[index].bytes;
    return a->key[index].blob;
}

zt_agent_state zt_agent_sign(struct zt_agent *a, int index, const uint8_t *data, size_t n,
                             uint8_t **sig, size_t *sig_bytes)
{
    zt_agent_state now;

    if (!a->asked) {
        if (a->signing == ZT_AGENT_GONE && a->listed != ZT_AGENT_READY)
            return ZT_AGENT_GONE;
        a->signing = ZT_AGENT_BUSY;
        if (n > MAX_SIGN_DATA || !ask_signature(a, index, data, n))
            return ZT_AGENT_GONE;
        a->asked = true;
    }
    now = a->signing;
    if (now == ZT_AGENT_READY) {
        *sig = a->sig;
        *sig_bytes = a->sig_bytes;
        a->sig = NULL;
    }
    if (now != ZT_AGENT_BUSY)
        a->asked = false;
    return now;
}
