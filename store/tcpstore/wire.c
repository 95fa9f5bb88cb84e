#include "store/tcpstore/wire.h"

#include <string.h>

/* Fields of each command: 4 and 8 bytes, k key, v value, n list of keys, m list of pairs
 * of key and value. */
static const char *const layouts[ZT_TCP_NUM_COMMANDS] = {
    [ZT_TCP_VALIDATE] = "4",   [ZT_TCP_SET] = "kv",      [ZT_TCP_COMPARE_SET] = "kvv",
    [ZT_TCP_GET] = "k",        [ZT_TCP_ADD] = "k8",      [ZT_TCP_CHECK] = "n",
    [ZT_TCP_WAIT] = "n",       [ZT_TCP_NUM_KEYS] = "",   [ZT_TCP_DELETE] = "k",
    [ZT_TCP_APPEND] = "kv",    [ZT_TCP_MULTI_GET] = "n", [ZT_TCP_MULTI_SET] = "m",
    [ZT_TCP_CANCEL_WAIT] = "", [ZT_TCP_PING] = "4",      [ZT_TCP_QUEUE_PUSH] = "kv",
    [ZT_TCP_QUEUE_POP] = "k",  [ZT_TCP_QUEUE_LEN] = "k", [ZT_TCP_LIST_KEYS] = "",
    [ZT_TCP_BARRIER] = "k8",
};

static uint64_t load_u64(const uint8_t *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof(v));
    return v;
}

static zt_err skip(struct zt_tcp_scan *s, size_t n, size_t bytes)
{
    if (bytes > n - s->at)
        return ZT_E_SHORT;
    s->at += bytes;
    return ZT_OK;
}

/* A string of at most `max` bytes; s->at moves over all of it or not at all. */
static zt_err skip_string(struct zt_tcp_scan *s, const uint8_t *p, size_t n, size_t max)
{
    uint64_t bytes;

    if (n - s->at < 8)
        return ZT_E_SHORT;
    bytes = load_u64(p + s->at);
    return bytes > max ? ZT_E_FORMAT : skip(s, n, 8 + (size_t)bytes);
}

/* Items are pairs (kind 'm') or keys. Half a pair is looked at again. */
static zt_err skip_item(struct zt_tcp_scan *s, const uint8_t *p, size_t n, char kind)
{
    size_t start = s->at;
    zt_err rc = skip_string(s, p, n, ZT_TCP_KEY);

    if (!rc && kind == 'm')
        rc = skip_string(s, p, n, ZT_TCP_VALUE);
    if (rc)
        s->at = start;
    return rc;
}

static zt_err skip_list(struct zt_tcp_scan *s, const uint8_t *p, size_t n, char kind)
{
    zt_err rc = ZT_OK;

    if (!s->in_list) {
        if (n - s->at < 8)
            return ZT_E_SHORT;
        s->items = load_u64(p + s->at);
        if (s->items > ZT_TCP_LIST)
            return ZT_E_FORMAT;
        s->at += 8;
        s->in_list = true;
    }
    for (; !rc && s->items; s->items -= !rc)
        rc = skip_item(s, p, n, kind);
    if (!rc)
        s->in_list = false;
    return rc;
}

static zt_err skip_field(struct zt_tcp_scan *s, const uint8_t *p, size_t n, char kind)
{
    switch (kind) {
    case '4':
        return skip(s, n, 4);
    case '8':
        return skip(s, n, 8);
    case 'k':
        return skip_string(s, p, n, ZT_TCP_KEY);
    case 'v':
        return skip_string(s, p, n, ZT_TCP_VALUE);
    default:
        return skip_list(s, p, n, kind);
    }
}

zt_err zt_tcp_scan(struct zt_tcp_scan *s, const uint8_t *p, size_t n, size_t *bytes)
{
    const char *layout;
    zt_err rc = ZT_OK;

    if (!n)
        return ZT_E_SHORT;
    if (p[0] >= ZT_TCP_NUM_COMMANDS)
        return ZT_E_FORMAT;
    layout = layouts[p[0]];
    if (!s->field) {
        s->at = 1;
        s->field = 1;
    }
    while (!rc && layout[s->field - 1]) {
        rc = skip_field(s, p, n, layout[s->field - 1]);
        s->field += !rc;
    }
    if (rc == ZT_E_SHORT && n > ZT_TCP_REQUEST)
        rc = ZT_E_FORMAT;
    if (!rc)
        *bytes = s->at;
    return rc;
}

uint32_t zt_tcp_u32(struct zt_tcp_reader *r)
{
    uint32_t v = 0;

    if ((size_t)(r->end - r->p) < sizeof(v))
        return 0;
    memcpy(&v, r->p, sizeof(v));
    r->p += sizeof(v);
    return v;
}

uint64_t zt_tcp_u64(struct zt_tcp_reader *r)
{
    uint64_t v;

    if ((size_t)(r->end - r->p) < sizeof(v))
        return 0;
    v = load_u64(r->p);
    r->p += sizeof(v);
    return v;
}

struct zt_span zt_tcp_bytes(struct zt_tcp_reader *r)
{
    uint64_t n = zt_tcp_u64(r);
    struct zt_span s = {r->p, 0};

    if (n > (uint64_t)(r->end - r->p))
        return s;
    s.bytes = (size_t)n;
    r->p += n;
    return s;
}
