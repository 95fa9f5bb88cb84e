#include "store/tcpstore/session.h"

#include <stdlib.h>
#include <string.h>

#include "store/tcpstore/wire.h"

#define BUFFERED_BYTES ((size_t)256 << 20) /* of requests that are not all there */

#define MAX_BARRIERS 1024u

/* Opens for all in it when `count` have come; then it is gone. */
struct tcp_barrier {
    struct tcp_barrier *next;
    uint64_t count, num_came;
    struct zt_tcp_session *waiting; /* linked by next_in_barrier */
    size_t key_bytes;
    char key[];
};

struct zt_tcp_hub {
    struct zt_kv *kv;
    struct tcp_barrier *barriers;
    uint32_t num_barriers;
    size_t buffered; /* bytes of all sessions' `in` */
};

struct zt_tcp_session {
    struct zt_tcp_hub *hub;
    struct zt_peer *peer;
    struct zt_kv_wait wait;
    struct tcp_barrier *barrier;
    struct zt_tcp_session *next_in_barrier;
    struct zt_tcp_scan scan;
    struct zt_buf in;
    bool valid;
    uint64_t num_requests;
};

zt_err zt_tcp_hub_open(struct zt_tcp_hub **out)
{
    static const struct zt_kv_limits limits = {
        .key_bytes = ZT_TCP_KEY,
        .value_bytes = ZT_TCP_VALUE,
        .num_keys = 1u << 20,
        .total_bytes = (size_t)512 << 20,
        .wait_keys = ZT_TCP_LIST,
    };
    struct zt_tcp_hub *h = calloc(1, sizeof(*h));
    zt_err rc = h ? zt_kv_open(&limits, &h->kv) : ZT_E_NOMEM;

    if (rc) {
        free(h);
        return rc;
    }
    *out = h;
    return ZT_OK;
}

void zt_tcp_hub_close(struct zt_tcp_hub *h)
{
    if (!h)
        return;
    zt_kv_close(h->kv);
    free(h);
}

void zt_tcp_hub_clear(struct zt_tcp_hub *h)
{
    zt_kv_clear(h->kv);
}

/* ---------------------------------------------------------------- replies */

static void reply_u8(struct zt_tcp_session *s, uint8_t v)
{
    s->peer->send(s->peer, &v, sizeof(v));
}

static void reply_i64(struct zt_tcp_session *s, int64_t v)
{
    s->peer->send(s->peer, &v, sizeof(v));
}

static zt_err put_vector(struct zt_buf *out, struct zt_span v)
{
    uint64_t n = v.bytes;
    zt_err rc = zt_buf_put(out, &n, sizeof(n));

    return rc ? rc : zt_buf_put(out, v.data, v.bytes);
}

static zt_err reply_vector(struct zt_tcp_session *s, struct zt_span v)
{
    struct zt_buf out;
    zt_err rc;

    zt_buf_init(&out, v.bytes + 8);
    rc = put_vector(&out, v);
    if (!rc)
        s->peer->send(s->peer, zt_buf_head(&out), zt_buf_used(&out));
    zt_buf_release(&out);
    return rc;
}

/* ---------------------------------------------------------------- commands */

static zt_err do_validate(struct zt_tcp_session *s, struct zt_tcp_reader *r)
{
    if (zt_tcp_u32(r) != ZT_TCP_MAGIC)
        return ZT_E_FORMAT;
    s->valid = true;
    return ZT_OK;
}

static zt_err do_put(struct zt_tcp_session *s, struct zt_tcp_reader *r, int command)
{
    struct zt_span key = zt_tcp_bytes(r), value = zt_tcp_bytes(r);

    if (command == ZT_TCP_APPEND)
        return zt_kv_append(s->hub->kv, key, value);
    if (command == ZT_TCP_QUEUE_PUSH)
        return zt_kv_push(s->hub->kv, key, value);
    return zt_kv_set(s->hub->kv, key, value);
}

/* A missing key that was expected to have a value: that value comes back, as torch's
 * clients are used to. */
static zt_err do_compare_set(struct zt_tcp_session *s, struct zt_tcp_reader *r)
{
    struct zt_span key = zt_tcp_bytes(r), expected = zt_tcp_bytes(r), now;
    struct zt_span desired = zt_tcp_bytes(r), was;
    bool stored, there = !zt_kv_get(s->hub->kv, key, &was);
    zt_err rc = zt_kv_compare_set(s->hub->kv, key, expected, desired, &stored, &now);

    return rc ? rc : reply_vector(s, stored || there ? now : expected);
}

static zt_err do_get(struct zt_tcp_session *s, struct zt_tcp_reader *r)
{
    struct zt_span value = {0};

    if (zt_kv_get(s->hub->kv, zt_tcp_bytes(r), &value))
        value = (struct zt_span){0};
    return reply_vector(s, value);
}

static zt_err do_add(struct zt_tcp_session *s, struct zt_tcp_reader *r)
{
    struct zt_span key = zt_tcp_bytes(r);
    int64_t v = 0;
    zt_err rc = zt_kv_add(s->hub->kv, key, (int64_t)zt_tcp_u64(r), &v);

    if (!rc)
        reply_i64(s, v);
    return rc;
}

static void do_check(struct zt_tcp_session *s, struct zt_tcp_reader *r)
{
    bool all = true;

    for (uint64_t n = zt_tcp_u64(r); n; n--)
        all = zt_kv_has(s->hub->kv, zt_tcp_bytes(r)) && all;
    reply_u8(s, !all);
}

static void wait_is_over(struct zt_kv_wait *w)
{
    reply_u8((struct zt_tcp_session *)((char *)w - offsetof(struct zt_tcp_session, wait)),
             0);
}

static zt_err do_wait(struct zt_tcp_session *s, struct zt_tcp_reader *r)
{
    uint64_t n = zt_tcp_u64(r);
    struct zt_span *keys = calloc(n ? (size_t)n : 1, sizeof(*keys));
    zt_err rc;

    if (!keys)
        return ZT_E_NOMEM;
    for (uint64_t i = 0; i < n; i++)
        keys[i] = zt_tcp_bytes(r);
    zt_kv_unwait(s->hub->kv, &s->wait);
    s->wait.done = wait_is_over;
    rc = zt_kv_wait(s->hub->kv, &s->wait, keys, (size_t)n);
    free(keys);
    if (!rc && !s->wait.missing)
        reply_u8(s, 0);
    return rc;
}

/* ---------------------------------------------------------------- barriers */

static void free_barrier(struct zt_tcp_hub *h, struct tcp_barrier *b)
{
    struct tcp_barrier **at = &h->barriers;

    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
    h->num_barriers--;
    free(b);
}

static void leave_barrier(struct zt_tcp_session *s)
{
    struct zt_tcp_session **at;
    struct tcp_barrier *b = s->barrier;

    if (!b)
        return;
    for (at = &b->waiting; *at != s; at = &(*at)->next_in_barrier)
        ;
    *at = s->next_in_barrier;
    s->barrier = NULL;
    if (--b->num_came == 0)
        free_barrier(s->hub, b);
}

static struct tcp_barrier *obtain_barrier(struct zt_tcp_hub *h, struct zt_span key,
                                          uint64_t count)
{
    struct tcp_barrier *b = h->barriers;

    while (b && (b->key_bytes != key.bytes || memcmp(b->key, key.data, key.bytes) != 0))
        b = b->next;
    if (b || h->num_barriers >= MAX_BARRIERS)
        return b;
    b = calloc(1, sizeof(*b) + key.bytes);
    if (!b)
        return NULL;
    b->count = count;
    b->key_bytes = key.bytes;
    if (key.bytes)
        memcpy(b->key, key.data, key.bytes);
    b->next = h->barriers;
    h->barriers = b;
    h->num_barriers++;
    return b;
}

static zt_err do_barrier(struct zt_tcp_session *s, struct zt_tcp_reader *r)
{
    struct zt_span key = zt_tcp_bytes(r);
    struct tcp_barrier *b;

    leave_barrier(s);
    b = obtain_barrier(s->hub, key, zt_tcp_u64(r));
    if (!b)
        return ZT_E_LIMIT;
    b->num_came++;
    s->barrier = b;
    s->next_in_barrier = b->waiting;
    b->waiting = s;
    if (b->num_came < b->count)
        return ZT_OK;
    for (struct zt_tcp_session *m = b->waiting, *next; m; m = next) {
        next = m->next_in_barrier;
        m->barrier = NULL;
        reply_u8(m, 0);
    }
    free_barrier(s->hub, b);
    return ZT_OK;
}

/* ---------------------------------------------------------------- lists */

struct listing {
    struct zt_buf out;
    zt_err rc;
};

static void list_one(void *ctx, struct zt_span key)
{
    struct listing *l = ctx;

    if (!l->rc)
        l->rc = put_vector(&l->out, key);
}

static zt_err do_list_keys(struct zt_tcp_session *s)
{
    uint64_t n = zt_kv_count(s->hub->kv);
    struct listing l = {.rc = ZT_OK};

    zt_buf_init(&l.out, ZT_TCP_REQUEST);
    l.rc = zt_buf_put(&l.out, &n, sizeof(n));
    zt_kv_each(s->hub->kv, list_one, &l);
    if (!l.rc)
        s->peer->send(s->peer, zt_buf_head(&l.out), zt_buf_used(&l.out));
    zt_buf_release(&l.out);
    return l.rc;
}

static zt_err do_multi_get(struct zt_tcp_session *s, struct zt_tcp_reader *r)
{
    struct zt_buf out;
    zt_err rc = ZT_OK;

    zt_buf_init(&out, ZT_TCP_REQUEST);
    for (uint64_t n = zt_tcp_u64(r); !rc && n; n--) {
        struct zt_span value = {0};

        if (zt_kv_get(s->hub->kv, zt_tcp_bytes(r), &value))
            value = (struct zt_span){0};
        rc = put_vector(&out, value);
    }
    if (!rc && zt_buf_used(&out))
        s->peer->send(s->peer, zt_buf_head(&out), zt_buf_used(&out));
    zt_buf_release(&out);
    return rc;
}

static zt_err do_multi_set(struct zt_tcp_session *s, struct zt_tcp_reader *r)
{
    zt_err rc = ZT_OK;

    for (uint64_t n = zt_tcp_u64(r); !rc && n; n--)
        rc = do_put(s, r, ZT_TCP_SET);
    return rc;
}

static zt_err do_pop(struct zt_tcp_session *s, struct zt_tcp_reader *r)
{
    struct zt_span key = zt_tcp_bytes(r), value = {0};
    size_t len = zt_kv_queue_len(s->hub->kv, key);
    void *v = zt_kv_pop(s->hub->kv, key, &value.bytes);
    zt_err rc = ZT_OK;

    reply_i64(s, (int64_t)len);
    value.data = v;
    if (v)
        rc = reply_vector(s, value);
    free(v);
    return rc;
}

static zt_err run(struct zt_tcp_session *s, const uint8_t *p, size_t bytes)
{
    struct zt_tcp_reader r = {p + 1, p + bytes};
    uint32_t nonce;

    if (!s->valid && p[0] != ZT_TCP_VALIDATE)
        return ZT_E_FORMAT;
    switch ((zt_tcp_command)p[0]) {
    case ZT_TCP_VALIDATE:
        return do_validate(s, &r);
    case ZT_TCP_SET:
    case ZT_TCP_APPEND:
    case ZT_TCP_QUEUE_PUSH:
        return do_put(s, &r, p[0]);
    case ZT_TCP_COMPARE_SET:
        return do_compare_set(s, &r);
    case ZT_TCP_GET:
        return do_get(s, &r);
    case ZT_TCP_ADD:
        return do_add(s, &r);
    case ZT_TCP_CHECK:
        do_check(s, &r);
        return ZT_OK;
    case ZT_TCP_WAIT:
        return do_wait(s, &r);
    case ZT_TCP_NUM_KEYS:
        reply_i64(s, (int64_t)zt_kv_count(s->hub->kv));
        return ZT_OK;
    case ZT_TCP_DELETE:
        reply_i64(s, zt_kv_delete(s->hub->kv, zt_tcp_bytes(&r)));
        return ZT_OK;
    case ZT_TCP_MULTI_GET:
        return do_multi_get(s, &r);
    case ZT_TCP_MULTI_SET:
        return do_multi_set(s, &r);
    case ZT_TCP_CANCEL_WAIT:
        zt_kv_unwait(s->hub->kv, &s->wait);
        leave_barrier(s);
        reply_u8(s, 1);
        return ZT_OK;
    case ZT_TCP_PING:
        nonce = zt_tcp_u32(&r);
        s->peer->send(s->peer, &nonce, sizeof(nonce));
        return ZT_OK;
    case ZT_TCP_QUEUE_POP:
        return do_pop(s, &r);
    case ZT_TCP_QUEUE_LEN:
        reply_i64(s, (int64_t)zt_kv_queue_len(s->hub->kv, zt_tcp_bytes(&r)));
        return ZT_OK;
    case ZT_TCP_LIST_KEYS:
        return do_list_keys(s);
    case ZT_TCP_BARRIER:
        return do_barrier(s, &r);
    default:
        return ZT_E_FORMAT;
    }
}

/* ---------------------------------------------------------------- sessions */

static zt_err run_all(struct zt_tcp_session *s, struct zt_buf *in)
{
    size_t bytes;

    for (;;) {
        zt_err rc = zt_tcp_scan(&s->scan, zt_buf_head(in), zt_buf_used(in), &bytes);

        if (rc == ZT_E_SHORT)
            return ZT_OK;
        if (!rc)
            rc = run(s, zt_buf_head(in), bytes);
        if (rc)
            return rc;
        s->scan = (struct zt_tcp_scan){0};
        s->num_requests++;
        zt_buf_drop(in, bytes);
    }
}

static zt_err keep(struct zt_tcp_session *s, const void *data, size_t bytes)
{
    if (bytes > BUFFERED_BYTES - s->hub->buffered)
        return ZT_E_LIMIT;
    return zt_buf_put(&s->in, data, bytes);
}

zt_err zt_tcp_session_feed(struct zt_tcp_session *s, const void *data, size_t bytes)
{
    struct zt_buf view = {
        .data = (uint8_t *)data, .len = bytes, .cap = bytes, .max = bytes};
    size_t before = zt_buf_used(&s->in);
    zt_err rc;

    if (!before) { /* most of the time: no copy, no memory */
        rc = run_all(s, &view);
        if (!rc && zt_buf_used(&view))
            rc = keep(s, zt_buf_head(&view), zt_buf_used(&view));
    } else {
        rc = keep(s, data, bytes);
        if (!rc)
            rc = run_all(s, &s->in);
        if (!zt_buf_used(&s->in))
            zt_buf_release(&s->in);
    }
    s->hub->buffered += zt_buf_used(&s->in) - before;
    return rc;
}

bool zt_tcp_session_is_valid(const struct zt_tcp_session *s)
{
    return s->valid;
}

bool zt_tcp_session_is_partial(const struct zt_tcp_session *s)
{
    return zt_buf_used(&s->in) > 0;
}

uint64_t zt_tcp_session_num_requests(const struct zt_tcp_session *s)
{
    return s->num_requests;
}

zt_err zt_tcp_session_open(struct zt_tcp_hub *h, struct zt_peer *peer,
                           struct zt_tcp_session **out)
{
    struct zt_tcp_session *s = calloc(1, sizeof(*s));

    if (!s)
        return ZT_E_NOMEM;
    s->hub = h;
    s->peer = peer;
    zt_buf_init(&s->in, ZT_TCP_REQUEST + (1u << 20));
    *out = s;
    return ZT_OK;
}

void zt_tcp_session_close(struct zt_tcp_session *s)
{
    if (!s)
        return;
    zt_kv_unwait(s->hub->kv, &s->wait);
    leave_barrier(s);
    s->hub->buffered -= zt_buf_used(&s->in);
    zt_buf_release(&s->in);
    free(s);
}
