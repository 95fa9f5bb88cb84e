#include "store/native/wire.h"

#include <string.h>

#include "common/message/frame.h"

/* What the body of each request holds, in order: t timeout, i index and count, k key (u16
 * length), v value (u32 length), e expected value, d i64, n list of keys. */
static const char *const layouts[] = {
    [ZT_STORE_JOIN] = "ik",  [ZT_STORE_SET] = "kv",      [ZT_STORE_GET] = "tk",
    [ZT_STORE_ADD] = "kd",   [ZT_STORE_CAS] = "kev",     [ZT_STORE_WAIT] = "tn",
    [ZT_STORE_DELETE] = "k", [ZT_STORE_BARRIER] = "tik",
};

static const char *layout_of(unsigned op)
{
    return op < sizeof(layouts) / sizeof(layouts[0]) ? layouts[op] : NULL;
}

void zt_store_put_i64(uint8_t out[8], int64_t v)
{
    zt_set_u32(out, (uint32_t)((uint64_t)v >> 32));
    zt_set_u32(out + 4, (uint32_t)(uint64_t)v);
}

int64_t zt_store_get_i64(const uint8_t in[8])
{
    return (int64_t)((uint64_t)zt_get_u32(in) << 32 | zt_get_u32(in + 4));
}

/* ---------------------------------------------------------------- writing */

static zt_err put_key(struct zt_buf *out, struct zt_span s)
{
    uint8_t head[2] = {(uint8_t)(s.bytes >> 8), (uint8_t)s.bytes};
    zt_err rc = s.bytes > ZT_STORE_KEY ? ZT_E_LIMIT : zt_buf_put(out, head, 2);

    return rc ? rc : zt_buf_put(out, s.data, s.bytes);
}

static zt_err put_value(struct zt_buf *out, struct zt_span s)
{
    zt_err rc =
        s.bytes > ZT_STORE_VALUE ? ZT_E_LIMIT : zt_buf_put_u32(out, (uint32_t)s.bytes);

    return rc ? rc : zt_buf_put(out, s.data, s.bytes);
}

static zt_err put_keys(struct zt_buf *out, const struct zt_store_request *r)
{
    zt_err rc =
        r->num_keys > ZT_STORE_WAIT_KEYS ? ZT_E_LIMIT : zt_buf_put_u32(out, r->num_keys);

    for (uint32_t i = 0; !rc && i < r->num_keys; i++)
        rc = put_key(out, r->keys[i]);
    return rc;
}

static zt_err put_field(struct zt_buf *out, char field, const struct zt_store_request *r)
{
    uint8_t number[8];
    zt_err rc;

    switch (field) {
    case 't':
        return zt_buf_put_u32(out, r->timeout_ms);
    case 'i':
        rc = zt_buf_put_u32(out, r->index);
        return rc ? rc : zt_buf_put_u32(out, r->count);
    case 'k':
        return put_key(out, r->key);
    case 'v':
        return put_value(out, r->value);
    case 'e':
        return put_value(out, r->expected);
    case 'd':
        zt_store_put_i64(number, r->delta);
        return zt_buf_put(out, number, sizeof(number));
    default:
        return put_keys(out, r);
    }
}

/* Set the length at `head` to what came after it, or take all of it back. */
static zt_err seal(struct zt_buf *out, size_t head, zt_err rc)
{
    size_t bytes = out->len - out->off - head;

    if (!rc && bytes - 4 > ZT_STORE_MESSAGE)
        rc = ZT_E_LIMIT;
    if (rc)
        out->len = out->off + head;
    else
        zt_set_u32(out->data + out->off + head, (uint32_t)(bytes - 4));
    return rc;
}

zt_err zt_store_put_request(struct zt_buf *out, const struct zt_store_request *r)
{
    const char *layout = layout_of(r->op);
    size_t head = zt_buf_used(out);
    zt_err rc = layout ? zt_buf_put_u32(out, 0) : ZT_E_ARG;

    if (rc)
        return rc;
    rc = zt_buf_put_u8(out, (uint8_t)r->op);
    for (; !rc && *layout; layout++)
        rc = put_field(out, *layout, r);
    return seal(out, head, rc);
}

zt_err zt_store_put_reply(struct zt_buf *out, zt_store_status status, const void *body,
                          size_t bytes)
{
    size_t head = zt_buf_used(out);
    zt_err rc = zt_buf_put_u32(out, 0);

    if (rc)
        return rc;
    rc = zt_buf_put_u8(out, (uint8_t)status);
    if (!rc)
        rc = zt_buf_put(out, body, bytes);
    return seal(out, head, rc);
}

/* ---------------------------------------------------------------- reading */

zt_err zt_store_peek(const struct zt_buf *in, uint8_t *kind, struct zt_span *body,
                     size_t *bytes)
{
    const uint8_t *p = zt_buf_head(in);
    size_t used = zt_buf_used(in), n;

    if (used < 4)
        return ZT_E_SHORT;
    n = zt_get_u32(p);
    if (n < 1 || n > ZT_STORE_MESSAGE)
        return ZT_E_FORMAT;
    if (used - 4 < n)
        return ZT_E_SHORT;
    *kind = p[4];
    *body = (struct zt_span){p + 5, n - 1};
    *bytes = n + 4;
    return ZT_OK;
}

struct cursor {
    const uint8_t *p;
    size_t left;
    bool bad;
};

/* The next n bytes; NULL and bad when there are not so many. */
static const uint8_t *take(struct cursor *c, size_t n)
{
    const uint8_t *p = c->p;

    if (c->bad || n > c->left) {
        c->bad = true;
        return NULL;
    }
    c->p += n;
    c->left -= n;
    return p;
}

static uint32_t take_u32(struct cursor *c)
{
    const uint8_t *p = take(c, 4);

    return p ? zt_get_u32(p) : 0;
}

static struct zt_span take_bytes(struct cursor *c, size_t n, size_t max)
{
    struct zt_span s = {NULL, n};

    c->bad = c->bad || n > max;
    s.data = take(c, n);
    return s;
}

static struct zt_span take_key(struct cursor *c)
{
    const uint8_t *p = take(c, 2);

    return take_bytes(c, p ? (size_t)p[0] << 8 | p[1] : 0, ZT_STORE_KEY);
}

static struct zt_span take_value(struct cursor *c)
{
    return take_bytes(c, take_u32(c), ZT_STORE_VALUE);
}

static void take_keys(struct cursor *c, struct zt_store_request *r)
{
    r->num_keys = take_u32(c);
    c->bad = c->bad || r->num_keys > ZT_STORE_WAIT_KEYS;
    for (uint32_t i = 0; !c->bad && i < r->num_keys; i++)
        r->keys[i] = take_key(c);
}

static void take_member(struct cursor *c, struct zt_store_request *r)
{
    r->index = take_u32(c);
    r->count = take_u32(c);
    c->bad = c->bad || r->count > ZT_STORE_MEMBERS || r->index >= r->count;
}

static void take_field(struct cursor *c, char field, struct zt_store_request *r)
{
    const uint8_t *p;

    switch (field) {
    case 't':
        r->timeout_ms = take_u32(c);
        break;
    case 'i':
        take_member(c, r);
        break;
    case 'k':
        r->key = take_key(c);
        break;
    case 'v':
        r->value = take_value(c);
        break;
    case 'e':
        r->expected = take_value(c);
        break;
    case 'd':
        p = take(c, 8);
        r->delta = p ? zt_store_get_i64(p) : 0;
        break;
    default:
        take_keys(c, r);
        break;
    }
}

zt_err zt_store_parse(uint8_t op, struct zt_span body, struct zt_store_request *out)
{
    const char *layout = layout_of(op);
    struct cursor c = {body.data, body.bytes, false};

    if (!layout)
        return ZT_E_FORMAT;
    out->op = (zt_store_op)op;
    for (; !c.bad && *layout; layout++)
        take_field(&c, *layout, out);
    return c.bad || c.left ? ZT_E_FORMAT : ZT_OK;
}
