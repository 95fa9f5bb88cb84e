/*
 * gguf.c -- the layout of a GGUF file.
 *
 *      "GGUF", u32 3, u64 tensors, u64 keys | keys | tensors | zeros | data, each tensor at
 *      a multiple of 32
 *
 * A tensor's axes stand in reverse order, its bytes do not change by that.
 */
#include "worker/tools/gguf.h"

#include <endian.h>
#include <math.h>
#include <string.h>

#include "common/half.h"

#define ALIGNMENT 32
#define MAX_HEAD  ((size_t)256 << 20)
#define TYPE_U32  4
#define TYPE_F32  6
#define TYPE_TEXT 8

void zt_gguf_init(struct zt_gguf *g)
{
    *g = (struct zt_gguf){.file.fd = -1};
    zt_buf_init(&g->keys, MAX_HEAD);
    zt_buf_init(&g->tensors, MAX_HEAD);
}

void zt_gguf_release(struct zt_gguf *g)
{
    zt_buf_release(&g->keys);
    zt_buf_release(&g->tensors);
    zt_atomic_file_release(&g->file);
}

/* ---- the head ---- */

static void put(struct zt_gguf *g, struct zt_buf *to, const void *data, size_t n)
{
    if (!g->error)
        g->error = zt_buf_put(to, data, n);
}

static void put_number(struct zt_gguf *g, struct zt_buf *to, uint64_t value, size_t bytes)
{
    uint64_t v = htole64(value);

    put(g, to, &v, bytes);
}

static void put_string(struct zt_gguf *g, struct zt_buf *to, const char *text)
{
    put_number(g, to, strlen(text), 8);
    put(g, to, text, strlen(text));
}

static void put_key(struct zt_gguf *g, const char *key, uint32_t type)
{
    put_string(g, &g->keys, key);
    put_number(g, &g->keys, type, 4);
    g->num_keys++;
}

void zt_gguf_put_text(struct zt_gguf *g, const char *key, const char *value)
{
    put_key(g, key, TYPE_TEXT);
    put_string(g, &g->keys, value);
}

void zt_gguf_put_u32(struct zt_gguf *g, const char *key, uint32_t value)
{
    put_key(g, key, TYPE_U32);
    put_number(g, &g->keys, value, 4);
}

void zt_gguf_put_f32(struct zt_gguf *g, const char *key, float value)
{
    put_key(g, key, TYPE_F32);
    put_number(g, &g->keys, zt_float_bits(value), 4);
}

static uint64_t aligned(uint64_t n)
{
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void zt_gguf_put_tensor(struct zt_gguf *g, const char *name, zt_gguf_type type, int ndim,
                        const int64_t *shape)
{
    int64_t numel = 1;

    put_string(g, &g->tensors, name);
    put_number(g, &g->tensors, (uint64_t)ndim, 4);
    for (int i = ndim - 1; i >= 0; i--) {
        put_number(g, &g->tensors, (uint64_t)shape[i], 8);
        numel *= shape[i];
    }
    put_number(g, &g->tensors, type, 4);
    put_number(g, &g->tensors, g->data_bytes, 8);
    g->data_bytes += aligned(zt_gguf_bytes(type, numel));
    g->num_tensors++;
}

/* ---- elements ---- */

size_t zt_gguf_bytes(zt_gguf_type type, int64_t n)
{
    if (type == ZT_GGUF_Q8_0)
        return (size_t)(n / ZT_GGUF_BLOCK) * ZT_GGUF_BLOCK_BYTES;
    return (size_t)n * (type == ZT_GGUF_F32 ? 4 : 2);
}

/* A block of 32: the largest magnitude is 127; all are 0 where the scale is 0 in f16. */
static void encode_block(const float *in, uint8_t *out)
{
    float most = 0, scale, inverse;
    uint16_t half;

    for (int i = 0; i < ZT_GGUF_BLOCK; i++)
        most = fmaxf(most, fabsf(in[i]));
    scale = most / 127.0f;
    half = htole16(zt_f16_of_float(scale));
    inverse = half ? 1.0f / scale : 0;
    memcpy(out, &half, sizeof(half));
    for (int i = 0; i < ZT_GGUF_BLOCK; i++)
        out[2 + i] = (uint8_t)(int8_t)roundf(in[i] * inverse);
}

void zt_gguf_encode(zt_gguf_type type, const float *in, int64_t n, void *out)
{
    uint8_t *bytes = out;
    uint16_t *halves = out;

    if (type == ZT_GGUF_F32)
        memcpy(out, in, (size_t)n * sizeof(*in));
    else if (type == ZT_GGUF_Q8_0)
        for (int64_t b = 0; b < n / ZT_GGUF_BLOCK; b++)
            encode_block(in + b * ZT_GGUF_BLOCK, bytes + b * ZT_GGUF_BLOCK_BYTES);
    else
        for (int64_t i = 0; i < n; i++)
            halves[i] = htole16(type == ZT_GGUF_F16 ? zt_f16_of_float(in[i])
                                                    : zt_bf16_of_float(in[i]));
}

/* ---- the file ---- */

static zt_err write_zeros(struct zt_gguf *g, size_t n, struct zt_fault *fault)
{
    static const uint8_t zeros[ALIGNMENT];

    return n ? zt_atomic_file_write(&g->file, zeros, n, fault) : ZT_OK;
}

zt_err zt_gguf_begin(struct zt_gguf *g, const char *path, struct zt_fault *fault)
{
    size_t keys = zt_buf_used(&g->keys), tensors = zt_buf_used(&g->tensors);
    uint64_t head = 24 + keys + tensors;
    struct {
        char magic[4];
        uint32_t version;
        uint64_t tensors, keys;
    } top = {
        {'G', 'G', 'U', 'F'}, htole32(3), htole64(g->num_tensors), htole64(g->num_keys)};
    zt_err rc;

    if (g->error)
        return zt_fault_set(fault, g->error, "%s: too many keys or tensors", path);
    rc = zt_atomic_file_open(&g->file, path, (int64_t)(aligned(head) + g->data_bytes),
                             fault);
    if (!rc)
        rc = zt_atomic_file_write(&g->file, &top, sizeof(top), fault);
    if (!rc)
        rc = zt_atomic_file_write(&g->file, zt_buf_head(&g->keys), keys, fault);
    if (!rc)
        rc = zt_atomic_file_write(&g->file, zt_buf_head(&g->tensors), tensors, fault);
    return rc ? rc : write_zeros(g, aligned(head) - head, fault);
}

zt_err zt_gguf_write(struct zt_gguf *g, const void *data, size_t bytes,
                     struct zt_fault *fault)
{
    g->written += bytes;
    return zt_atomic_file_write(&g->file, data, bytes, fault);
}

zt_err zt_gguf_end_tensor(struct zt_gguf *g, struct zt_fault *fault)
{
    uint64_t rest = aligned(g->written) - g->written;

    g->written += rest;
    return write_zeros(g, rest, fault);
}

zt_err zt_gguf_commit(struct zt_gguf *g, struct zt_fault *fault)
{
    if (g->written != g->data_bytes)
        return zt_fault_set(fault, ZT_E_ARG, "%s: data of its tensors never came",
                            g->file.path);
    return zt_atomic_file_publish(&g->file, fault);
}
