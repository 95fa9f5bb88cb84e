/* torch_values.c -- values as the pickle that torch.load reads, without a memo. */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/torch_file/torch_write.h"

/* A value of these many bytes is a mistake. */
#define MAX_PICKLE ((size_t)1 << 30)

static const char *const storages[ZT_NUM_DTYPE] = {
    [ZT_F32] = "FloatStorage", [ZT_BF16] = "BFloat16Storage", [ZT_F16] = "HalfStorage",
    [ZT_I32] = "IntStorage",   [ZT_I64] = "LongStorage",      [ZT_U8] = "ByteStorage",
};

void zt_torch_values_init(struct zt_torch_values *v)
{
    *v = (struct zt_torch_values){0};
    zt_buf_init(&v->pickle, MAX_PICKLE);
    v->error = zt_buf_put(&v->pickle, "\x80\x02", 2);
}

void zt_torch_values_release(struct zt_torch_values *v)
{
    zt_buf_release(&v->pickle);
    free(v->bytes);
    *v = (struct zt_torch_values){0};
}

static void put(struct zt_torch_values *v, const void *bytes, size_t n)
{
    if (!v->error)
        v->error = zt_buf_put(&v->pickle, bytes, n);
}

static void put_op(struct zt_torch_values *v, char op)
{
    put(v, &op, 1);
}

static void put_words(struct zt_torch_values *v, const char *ops)
{
    put(v, ops, strlen(ops));
}

void zt_torch_put_mark(struct zt_torch_values *v, zt_torch_container what)
{
    put_words(v, what == ZT_TORCH_DICT ? "}(" : what == ZT_TORCH_LIST ? "](" : "(");
}

void zt_torch_put_end(struct zt_torch_values *v, zt_torch_container what)
{
    put_op(v, what == ZT_TORCH_DICT ? 'u' : what == ZT_TORCH_LIST ? 'e' : 't');
}

void zt_torch_put_text(struct zt_torch_values *v, const char *text)
{
    uint32_t n = htole32((uint32_t)strlen(text));

    put_op(v, 'X');
    put(v, &n, sizeof(n));
    put_words(v, text);
}

void zt_torch_put_int(struct zt_torch_values *v, int64_t value)
{
    uint64_t bits = htole64((uint64_t)value);

    if (value >= INT32_MIN && value <= INT32_MAX) {
        put_op(v, 'J');
        put(v, &bits, 4);
    } else {
        put(v, "\x8a\x08", 2);
        put(v, &bits, 8);
    }
}

void zt_torch_put_real(struct zt_torch_values *v, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    bits = htobe64(bits);
    put_op(v, 'G');
    put(v, &bits, sizeof(bits));
}

void zt_torch_put_bool(struct zt_torch_values *v, bool value)
{
    put(v, value ? "\x88" : "\x89", 1);
}

void zt_torch_put_none(struct zt_torch_values *v)
{
    put_op(v, 'N');
}

/* ('storage', class, key, 'cpu', numel) as a persistent id; the key is the member that has
 * the data */
static void put_storage(struct zt_torch_values *v, zt_dtype dtype, int64_t numel,
                        size_t number)
{
    char key[32];

    snprintf(key, sizeof(key), "%zu", number);
    put_op(v, '(');
    zt_torch_put_text(v, "storage");
    put_words(v, "ctorch\n");
    put_words(v, storages[dtype]);
    put_op(v, '\n');
    zt_torch_put_text(v, key);
    zt_torch_put_text(v, "cpu");
    zt_torch_put_int(v, numel);
    put_words(v, "tQ");
}

static bool keep_bytes(struct zt_torch_values *v, int64_t bytes)
{
    if (v->num == v->cap) {
        size_t cap = v->cap ? 2 * v->cap : 16;
        int64_t *bigger = realloc(v->bytes, cap * sizeof(*bigger));

        if (!bigger)
            return false;
        v->bytes = bigger;
        v->cap = cap;
    }
    v->bytes[v->num++] = bytes;
    return true;
}

void zt_torch_put_tensor_again(struct zt_torch_values *v,
                               const struct zt_safetensors_decl *d, size_t index)
{
    int64_t bytes = 0;

    if (!v->error)
        v->error = zt_safetensors_decl_bytes(d, &bytes, NULL);
    if (v->error)
        return;
    put_words(v, "ctorch._utils\n_rebuild_tensor_v2\n(");
    put_storage(v, d->dtype, bytes / (int64_t)zt_dtype_bytes(d->dtype), index);
    zt_torch_put_int(v, 0);
    put_op(v, '(');
    for (int i = 0; i < d->ndim; i++)
        zt_torch_put_int(v, d->shape[i]);
    put_words(v, "t(");
    for (int i = 0; i < d->ndim; i++) {
        int64_t stride = 1;

        for (int k = i + 1; k < d->ndim; k++)
            stride *= d->shape[k] ? d->shape[k] : 1;
        zt_torch_put_int(v, stride);
    }
    put_op(v, 't');
    zt_torch_put_bool(v, false);
    put_words(v, "ccollections\nOrderedDict\n)RtR");
}

void zt_torch_put_tensor(struct zt_torch_values *v, const struct zt_safetensors_decl *d)
{
    int64_t bytes = 0;

    zt_torch_put_tensor_again(v, d, v->num);
    if (!v->error)
        v->error = zt_safetensors_decl_bytes(d, &bytes, NULL);
    if (!v->error && !keep_bytes(v, bytes))
        v->error = ZT_E_NOMEM;
}

void zt_torch_put_tensors(struct zt_torch_values *v, const struct zt_safetensors_decl *d,
                          int num)
{
    put_op(v, '}');
    for (int i = 0; i < num; i++) {
        if (i % 1000 == 0) /* as Python does: the reader stacks what is between */
            put_op(v, '(');
        zt_torch_put_text(v, d[i].name);
        zt_torch_put_tensor(v, &d[i]);
        if (i % 1000 == 999 || i == num - 1)
            put_op(v, 'u');
    }
}
