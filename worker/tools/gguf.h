/*
 * gguf.h -- a GGUF file, version 3, as llama.cpp reads: keys, tensors, data as a stream.
 *
 * Put keys, then tensors, begin, then each tensor's data whole and in order, commit.
 * Ownership: the caller owns the struct; release removes a file that is not committed.
 * Threads:   one.
 */
#ifndef WORKER_TOOLS_GGUF_H
#define WORKER_TOOLS_GGUF_H

#include "common/buf.h"
#include "worker/checkpoint/atomic_file.h"

/* Types of tensors, as ggml numbers them. */
typedef enum zt_gguf_type {
    ZT_GGUF_F32 = 0,
    ZT_GGUF_F16 = 1,
    ZT_GGUF_Q8_0 = 8, /* blocks of 32: an f16 scale and 32 bytes */
    ZT_GGUF_BF16 = 30,
} zt_gguf_type;

#define ZT_GGUF_BLOCK       32
#define ZT_GGUF_BLOCK_BYTES 34

struct zt_gguf {
    struct zt_buf keys, tensors;
    uint64_t num_keys, num_tensors, data_bytes;
    zt_err error; /* of the calls that put */
    struct zt_atomic_file file;
    uint64_t written; /* of data */
};

void zt_gguf_init(struct zt_gguf *g);
void zt_gguf_release(struct zt_gguf *g);

void zt_gguf_put_text(struct zt_gguf *g, const char *key, const char *value);
void zt_gguf_put_u32(struct zt_gguf *g, const char *key, uint32_t value);
void zt_gguf_put_f32(struct zt_gguf *g, const char *key, float value);
/* The shape is row-major; for Q8_0 its last axis is a multiple of 32. */
void zt_gguf_put_tensor(struct zt_gguf *g, const char *name, zt_gguf_type type, int ndim,
                        const int64_t *shape);

/* Bytes of n elements. */
size_t zt_gguf_bytes(zt_gguf_type type, int64_t n);
/* n elements as the type has them; n is a multiple of 32 for Q8_0. */
void zt_gguf_encode(zt_gguf_type type, const float *in, int64_t n, void *out);

/* Write the head; ZT_E_CANTCREATE. */
zt_err zt_gguf_begin(struct zt_gguf *g, const char *path,
                     struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_gguf_write(struct zt_gguf *g, const void *data, size_t bytes,
                     struct zt_fault *fault) ZT_MUST_CHECK;
/* A tensor has ended: on to the next one's place. */
zt_err zt_gguf_end_tensor(struct zt_gguf *g, struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_gguf_commit(struct zt_gguf *g, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
