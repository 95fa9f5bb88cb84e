#include "worker/text/sentencepiece/protobuf.h"

#include <string.h>

struct zt_pb zt_pb_of(const void *bytes, size_t n)
{
    const uint8_t *at = bytes;

    return (struct zt_pb){.at = at, .end = n ? at + n : at};
}

static bool fail(struct zt_pb *r)
{
    r->bad = true;
    return false;
}

static bool read_varint(struct zt_pb *r, uint64_t *out)
{
    uint64_t v = 0;

    for (int shift = 0; shift < 70 && r->at < r->end; shift += 7) {
        uint8_t byte = *r->at++;

        if (shift < 64)
            v |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *out = v;
            return true;
        }
    }
    return fail(r);
}

static bool read_fixed(struct zt_pb *r, int bytes, uint64_t *out)
{
    uint64_t v = 0;

    if (r->end - r->at < bytes)
        return fail(r);
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)r->at[i] << (8 * i);
    r->at += bytes;
    *out = v;
    return true;
}

static bool read_bytes(struct zt_pb *r, struct zt_pb_field *f)
{
    uint64_t n;

    if (!read_varint(r, &n))
        return false;
    if (n > (uint64_t)(r->end - r->at))
        return fail(r);
    f->bytes = r->at;
    f->n = (size_t)n;
    r->at += n;
    return true;
}

bool zt_pb_next(struct zt_pb *r, struct zt_pb_field *f)
{
    uint64_t tag;

    if (r->bad || r->at == r->end || !read_varint(r, &tag))
        return false;
    if (tag >> 3 == 0 || tag > UINT32_MAX)
        return fail(r);
    *f = (struct zt_pb_field){.number = (uint32_t)(tag >> 3),
                              .type = (zt_pb_type)(tag & 7)};
    switch (f->type) {
    case ZT_PB_VARINT:
        return read_varint(r, &f->value);
    case ZT_PB_FIXED64:
        return read_fixed(r, 8, &f->value);
    case ZT_PB_BYTES:
        return read_bytes(r, f);
    case ZT_PB_FIXED32:
        return read_fixed(r, 4, &f->value);
    }
    return fail(r); /* groups, which nothing writes any more */
}

float zt_pb_float(const struct zt_pb_field *f)
{
    uint32_t bits = (uint32_t)f->value;
    float v;

    memcpy(&v, &bits, sizeof(v));
    return v;
}
