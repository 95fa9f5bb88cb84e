/*
 * Any bytes, cut anywhere, from several clients of the rendezvous store: no answer is
 * malformed, sessions that are closed leave nothing, and what a request says, written
 * again, is the same request.
 *
 * Input: records of | client (1) | length (1) | bytes |; client 250: time passes, 251: a
 * client goes and comes again, 252: a restart.
 */
#include "store/native/session.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define CLIENTS 4

struct fake {
    struct zt_peer peer; /* first */
    struct zt_session *s;
    struct zt_buf got;
    bool dropped;
};

static void fake_send(struct zt_peer *p, const void *data, size_t bytes)
{
    struct fake *f = (struct fake *)p;
    struct zt_span body;
    uint8_t status;
    size_t n;

    assert(zt_buf_put(&f->got, data, bytes) == ZT_OK);
    assert(zt_store_peek(&f->got, &status, &body, &n) == ZT_OK);
    assert(status <= ZT_STORE_STALE && n == zt_buf_used(&f->got));
    zt_buf_drop(&f->got, n);
}

static void fake_drop(struct zt_peer *p)
{
    ((struct fake *)p)->dropped = true;
}

static void come(struct zt_hub *hub, struct fake *f)
{
    *f = (struct fake){.peer = {fake_send, fake_drop}};
    zt_buf_init(&f->got, 4u << 20);
    assert(zt_session_open(hub, &f->peer, &f->s) == ZT_OK);
}

static void go(struct fake *f)
{
    zt_session_close(f->s);
    zt_buf_release(&f->got);
}

/* A request that can be read can be written, and is the same bytes. */
static void round_trip(const uint8_t *data, size_t size)
{
    struct zt_buf in = {.data = (uint8_t *)data, .len = size, .cap = size, .max = size},
                  out;
    struct zt_store_request r;
    struct zt_span body;
    uint8_t op;
    size_t n;

    if (zt_store_peek(&in, &op, &body, &n) || zt_store_parse(op, body, &r))
        return;
    zt_buf_init(&out, ZT_STORE_MESSAGE + 4);
    assert(zt_store_put_request(&out, &r) == ZT_OK);
    assert(zt_buf_used(&out) == n && memcmp(zt_buf_head(&out), data, n) == 0);
    zt_buf_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fake f[CLIENTS];
    uint64_t generation = 1;
    struct zt_hub *hub;
    double now = 1;

    round_trip(data, size);
    assert(zt_hub_open(generation, "rank", &hub) == ZT_OK);
    for (int i = 0; i < CLIENTS; i++)
        come(hub, &f[i]);
    while (size >= 2) {
        struct fake *k = &f[data[0] % CLIENTS];
        int what = data[0];
        size_t n = data[1];

        data += 2;
        size -= 2;
        n = n < size ? n : size;
        if (what == 250) {
            now += (double)n / 100;
            zt_hub_expire(hub, now);
        } else if (what == 252) {
            zt_hub_advance(hub, ++generation);
        }
        if (what == 251 || k->dropped || zt_session_feed(k->s, data, n, now)) {
            go(k);
            come(hub, k);
        }
        data += n;
        size -= n;
    }
    zt_hub_expire(hub, now + 1e10);
    assert(zt_hub_next(hub) == 0);
    for (int i = 0; i < CLIENTS; i++)
        go(&f[i]);
    zt_hub_close(hub);
    return 0;
}
