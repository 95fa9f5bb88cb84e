#include "common/buf.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define MIN_CAP 256

void zt_buf_init(struct zt_buf *b, size_t max)
{
    *b = (struct zt_buf){.max = max};
}

void zt_buf_release(struct zt_buf *b)
{
    free(b->data);
    *b = (struct zt_buf){.max = b->max};
}

zt_err zt_buf_reserve(struct zt_buf *b, size_t n, uint8_t **out)
{
    size_t used = zt_buf_used(b), cap;
    uint8_t *grown;

    if (n > b->max - used)
        return ZT_E_LIMIT;
    if (n <= b->cap - b->len) {
        *out = b->data + b->len;
        return ZT_OK;
    }
    /* consumed bytes are given up before memory is asked for, unless little would be won
     */
    if (b->off && n <= b->cap - used && b->off >= b->cap / 2) {
        memmove(b->data, b->data + b->off, used);
        b->off = 0;
        b->len = used;
        *out = b->data + b->len;
        return ZT_OK;
    }
    cap = b->cap ? b->cap : MIN_CAP;
    while (cap < used + n)
        cap = cap > SIZE_MAX / 2 ? used + n : cap * 2;
    grown = malloc(cap);
    if (!grown)
        return ZT_E_NOMEM;
    if (used)
        memcpy(grown, b->data + b->off, used);
    free(b->data);
    b->data = grown;
    b->cap = cap;
    b->off = 0;
    b->len = used;
    *out = b->data + b->len;
    return ZT_OK;
}

void zt_buf_commit(struct zt_buf *b, size_t n)
{
    assert(n <= b->cap - b->len);
    b->len += n;
}

zt_err zt_buf_put(struct zt_buf *b, const void *src, size_t n)
{
    uint8_t *to;
    zt_err rc;

    if (!n)
        return ZT_OK;
    rc = zt_buf_reserve(b, n, &to);
    if (rc)
        return rc;
    memcpy(to, src, n);
    b->len += n;
    return ZT_OK;
}

zt_err zt_buf_put_u32(struct zt_buf *b, uint32_t value)
{
    uint8_t raw[4] = {(uint8_t)(value >> 24), (uint8_t)(value >> 16),
                      (uint8_t)(value >> 8), (uint8_t)value};

    return zt_buf_put(b, raw, sizeof(raw));
}

zt_err zt_buf_put_u8(struct zt_buf *b, uint8_t value)
{
    return zt_buf_put(b, &value, 1);
}

void zt_buf_drop(struct zt_buf *b, size_t n)
{
    assert(n <= zt_buf_used(b));
    b->off += n;
    if (b->off == b->len)
        b->off = b->len = 0;
}
