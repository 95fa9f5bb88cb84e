/*
 * Any bytes from two clients of the TCPStore server: whole or in pieces they are answered
 * alike, and nothing outside the request is read.
 */
#include "store/tcpstore/session.h"
#include "store/tcpstore/wire.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct fake {
    struct zt_peer peer; /* first */
    struct zt_tcp_session *s;
    struct zt_buf got;
};

static void fake_send(struct zt_peer *p, const void *data, size_t bytes)
{
    assert(zt_buf_put(&((struct fake *)p)->got, data, bytes) == ZT_OK);
}

static void fake_drop(struct zt_peer *p)
{
    (void)p;
}

/* One client takes all of it in pieces, after a second one has begun to wait. */
static zt_err play(const uint8_t *data, size_t size, size_t piece, struct zt_buf *got)
{
    static const uint8_t waiter[] = {0, 0xce, 0xf7, 0x85, 0x3c, 6, 1, 0, 0, 0, 0,  0,
                                     0, 0,    1,    0,    0,    0, 0, 0, 0, 0, 'k'};
    struct fake f[2] = {{.peer = {fake_send, fake_drop}},
                        {.peer = {fake_send, fake_drop}}};
    struct zt_tcp_hub *hub;
    zt_err rc = ZT_OK;

    assert(zt_tcp_hub_open(&hub) == ZT_OK);
    for (int i = 0; i < 2; i++) {
        zt_buf_init(&f[i].got, 256u << 20);
        assert(zt_tcp_session_open(hub, &f[i].peer, &f[i].s) == ZT_OK);
    }
    assert(zt_tcp_session_feed(f[1].s, waiter, sizeof(waiter)) == ZT_OK);
    for (size_t at = 0; !rc && at < size; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        uint8_t *copy = malloc(n); /* of exactly that size, so that ASan sees the end */

        memcpy(copy, data + at, n);
        rc = zt_tcp_session_feed(f[0].s, copy, n);
        free(copy);
    }
    assert(zt_buf_used(&f[1].got) <= 1);
    for (int i = 0; i < 2; i++)
        zt_tcp_session_close(f[i].s);
    zt_tcp_hub_close(hub);
    *got = f[0].got;
    zt_buf_release(&f[1].got);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zt_buf whole, pieces;
    zt_err a, b;

    if (size < 1)
        return 0;
    a = play(data + 1, size - 1, size, &whole);
    b = play(data + 1, size - 1, data[0] % 16 + 1u, &pieces);
    assert((a == ZT_OK) == (b == ZT_OK));
    assert(zt_buf_used(&whole) == zt_buf_used(&pieces));
    if (zt_buf_used(&whole) && !memchr(data, ZT_TCP_LIST_KEYS, size)) /* in no order */
        assert(memcmp(zt_buf_head(&whole), zt_buf_head(&pieces), zt_buf_used(&whole)) ==
               0);
    zt_buf_release(&whole);
    zt_buf_release(&pieces);
    return 0;
}
