/*
 * protobuf.h -- protobuf's wire format, read field by field from bytes in memory.
 *
 *      struct zt_pb r = zt_pb_of(bytes, n);
 *      struct zt_pb_field f;
 *
 *      while (zt_pb_next(&r, &f))
 *          ...                    f.number, f.type say what it is
 *      if (r.bad) ...             the bytes are no message
 *
 * Nothing is copied: what a field of bytes holds lies in the message. No byte past its
 * end is read, whatever the message says.
 */
#ifndef WORKER_TEXT_SENTENCEPIECE_PROTOBUF_H
#define WORKER_TEXT_SENTENCEPIECE_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum zt_pb_type {
    ZT_PB_VARINT = 0,
    ZT_PB_FIXED64 = 1,
    ZT_PB_BYTES = 2, /* a string, bytes, or a message */
    ZT_PB_FIXED32 = 5
} zt_pb_type;

struct zt_pb {
    const uint8_t *at, *end;
    bool bad;
};

struct zt_pb_field {
    uint32_t number;
    zt_pb_type type;
    uint64_t value;       /* numbers */
    const uint8_t *bytes; /* ZT_PB_BYTES */
    size_t n;
};

struct zt_pb zt_pb_of(const void *bytes, size_t n);
/* False: the end, or r->bad. */
bool zt_pb_next(struct zt_pb *r, struct zt_pb_field *f);
/* A fixed 32 as the float that it is. */
float zt_pb_float(const struct zt_pb_field *f);

#endif
