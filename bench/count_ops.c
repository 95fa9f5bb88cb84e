/*
 * count_ops.c -- the cuda backend of the shim, with every op of training counted: calls, launches,
 * and bytes of device memory, each operand read once and each result written once. It is loaded
 * as ZLAUNCH_CUDA_BACKEND; with SHIM_COUNT_ONLY=1 nothing is executed (bench/count_step).
 *
 * Passes and updates are counted; what the engine does to measure products, and initial
 * values, begin with random numbers and end with the next lookup of tokens.
 */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/backend.h"

extern const struct zt_backend zt_cuda_backend;
extern uint64_t shim_num_launches(void);

static struct zt_backend counted;
extern const struct zt_backend *const zt_loaded_backend;
__attribute__((visibility("default"))) const struct zt_backend *const zt_loaded_backend =
    &counted;

static bool is_counting;
static bool
    is_apart; /* ZT_COUNT_APART: what products took over is counted as it was before */
static uint64_t launches_of_call;

struct op {
    const char *name;
    uint64_t calls, launches, bytes;
};

static uint64_t once(const struct zt_view *v)
{
    return v->data ? (uint64_t)zt_view_numel(v) * zt_dtype_bytes(v->dtype) : 0;
}

/* What is written, or read and written. */
static uint64_t into(const struct zt_view *v, bool accumulate)
{
    return once(v) * (accumulate ? 2 : 1);
}

enum {
#define NUMBER(name, args) OP_##name,
    ZT_KERNELS(NUMBER) NUM_OPS
};

static struct op ops[NUM_OPS] = {
#define NAME(name_, args) {.name = #name_},
    ZT_KERNELS(NAME)};

/* A part of a product that cuBLASLt has refused is an op of its own. */
static void split_off(int op, uint64_t launches, uint64_t bytes)
{
    if (!is_counting || !bytes)
        return;
    ops[op].calls++;
    ops[op].launches += launches;
    ops[op].bytes += bytes;
    ops[OP_gemm].launches -= launches;
}

/* ---- bytes of a call ---- */

#define BYTES(name, args) static uint64_t bytes_##name(const args *a)
#define ONCE(x)           once(&a->x)

BYTES(gemm, struct zt_gemm_args)
{
    uint64_t alone = ONCE(a) + ONCE(b) + into(&a->c, a->accumulate) + ONCE(bias);
    uint64_t sums =
        into(&a->a_sum, a->accumulate_sums) + into(&a->b_sum, a->accumulate_sums);

    if (a->epilogue == ZT_EPI_SWIGLU_BWD) {
        if (launches_of_call ==
            1) /* one kernel of a library: 2 are read, 1 more written */
            return alone + 3 * ONCE(c);
        split_off(OP_glu_bwd, 1, 5 * ONCE(c));
    }
    if (!is_apart)
        return alone + (a->epilogue ? ONCE(pre) : 0) + sums;
    if (a->a_sum.data || a->b_sum.data)
        split_off(OP_colsum, 2, sums + (a->a_sum.data ? ONCE(a) : ONCE(b)));
    if (zt_is_gelu_bwd(a->epilogue))
        split_off(OP_unary_bwd, 1, 2 * ONCE(c) + ONCE(pre));
    else if (a->epilogue)
        alone += ONCE(pre);
    return alone;
}
BYTES(layernorm, struct zt_layernorm_args)
{
    return ONCE(x) + ONCE(w) + ONCE(b) + ONCE(y) + ONCE(mean) + ONCE(rstd) + ONCE(add) +
           ONCE(sum);
}
BYTES(layernorm_bwd, struct zt_layernorm_bwd_args)
{
    return ONCE(dy) + ONCE(x) + ONCE(w) + ONCE(mean) + ONCE(rstd) +
           into(&a->dx, a->accumulate) + into(&a->dw, a->accumulate_w) +
           into(&a->db, a->accumulate_b);
}
BYTES(rmsnorm, struct zt_rmsnorm_args)
{
    return ONCE(x) + ONCE(w) + ONCE(y) + ONCE(rstd) + ONCE(add) + ONCE(sum);
}
BYTES(rmsnorm_bwd, struct zt_rmsnorm_bwd_args)
{
    return ONCE(dy) + ONCE(x) + ONCE(w) + ONCE(rstd) + into(&a->dx, a->accumulate) +
           into(&a->dw, a->accumulate_w);
}
BYTES(embedding, struct zt_embedding_args)
{
    return ONCE(ids) + 2 * ONCE(y);
}
BYTES(embedding_bwd, struct zt_embedding_bwd_args)
{
    return ONCE(ids) + ONCE(dy) + 2 * (uint64_t)zt_view_numel(&a->dy) * sizeof(float);
}
BYTES(rope, struct zt_rope_args)
{
    return ONCE(x) + into(&a->y, a->accumulate);
}
BYTES(attention, struct zt_attention_args)
{
    return ONCE(q) + ONCE(k) + ONCE(v) + ONCE(out) + ONCE(lse) + ONCE(bias);
}
BYTES(attention_bwd, struct zt_attention_bwd_args)
{
    return bytes_attention(&a->fwd) + ONCE(dout) + ONCE(dq) + ONCE(dk) + ONCE(dv) +
           ONCE(dbias);
}
BYTES(attention_decode, struct zt_attention_decode_args) /* of all the room */
{
    return ONCE(q) + ONCE(k) + ONCE(v) + 2 * (ONCE(k_new) + ONCE(v_new)) + ONCE(bias) +
           ONCE(out);
}
BYTES(distance, struct zt_distance_args)
{
    return 2 * ONCE(y) + ONCE(by_query) + ONCE(by_key);
}
BYTES(distance_bwd, struct zt_distance_bwd_args)
{
    return 2 * ONCE(dy) + into(&a->dby_query, a->accumulate_query) +
           into(&a->dby_key, a->accumulate_key);
}
BYTES(unary, struct zt_unary_args)
{
    return ONCE(x) + ONCE(y);
}
BYTES(unary_bwd, struct zt_unary_bwd_args)
{
    return ONCE(dy) + ONCE(x) + into(&a->dx, a->accumulate);
}
BYTES(glu, struct zt_glu_args)
{
    return ONCE(gate) + ONCE(up) + ONCE(y);
}
BYTES(glu_bwd, struct zt_glu_bwd_args)
{
    return ONCE(dy) + ONCE(gate) + ONCE(up) + into(&a->dgate, a->accumulate_gate) +
           into(&a->dup, a->accumulate_up);
}
BYTES(softmax, struct zt_softmax_args)
{
    return ONCE(x) + ONCE(y);
}
BYTES(softmax_bwd, struct zt_softmax_bwd_args)
{
    return ONCE(dy) + ONCE(y) + into(&a->dx, a->accumulate);
}
BYTES(binary, struct zt_binary_args)
{
    return ONCE(a) + ONCE(b) + into(&a->y, a->accumulate);
}
BYTES(colsum, struct zt_colsum_args)
{
    return ONCE(x) + ONCE(z) + into(&a->y, a->accumulate);
}
BYTES(axpby, struct zt_axpby_args)
{
    return ONCE(x) + into(&a->y, a->beta != 0);
}
BYTES(fill, struct zt_fill_args)
{
    return ONCE(y);
}
BYTES(dropout, struct zt_dropout_args)
{
    return ONCE(x) + into(&a->y, a->accumulate);
}
BYTES(random, struct zt_random_args)
{
    return ONCE(y);
}
BYTES(cross_entropy, struct zt_cross_entropy_args)
{
    return ONCE(logits) + ONCE(targets) + ONCE(lse) + ONCE(dlogits);
}
BYTES(cross_entropy_bwd, struct zt_cross_entropy_bwd_args)
{
    return ONCE(logits) + ONCE(targets) + ONCE(lse) + into(&a->dlogits, a->accumulate);
}
BYTES(squared_error, struct zt_squared_error_args)
{
    return ONCE(x) + ONCE(y);
}
BYTES(squared_error_bwd, struct zt_squared_error_bwd_args)
{
    return ONCE(x) + ONCE(y) + into(&a->dx, a->accumulate_x) +
           into(&a->dy, a->accumulate_y);
}
BYTES(quantize, struct zt_quantize_args)
{
    return 2 * ONCE(x) + ONCE(y) + ONCE(yt);
}
BYTES(rank_sum, struct zt_rank_sum_args)
{
    return ONCE(x) + ONCE(y);
}
BYTES(sumsq, struct zt_sumsq_args)
{
    return ONCE(x);
}
BYTES(adamw, struct zt_adamw_args)
{
    uint64_t read = a->master.dtype == ZT_REST16 ? 2 : 1; /* and written */

    return 2 * (ONCE(master) + ONCE(m) + ONCE(v)) + ONCE(grad) + read * ONCE(param);
}

/* ---- the counting kernels ---- */

static void note(int op, uint64_t launches, uint64_t bytes)
{
    if (op == OP_random || op == OP_embedding)
        is_counting = op == OP_embedding;
    if (!is_counting)
        return;
    ops[op].calls++;
    ops[op].launches += launches;
    ops[op].bytes += bytes;
}

#define COUNT(name, args)                                                                \
    static zt_err count_##name(struct zt_device *dev, struct zt_stream *s,               \
                               const args *a, struct zt_fault *fault)                    \
    {                                                                                    \
        uint64_t before = shim_num_launches();                                           \
        zt_err rc = zt_cuda_backend.kernels->name(dev, s, a, fault);                     \
                                                                                         \
        launches_of_call = shim_num_launches() - before;                                 \
        note(OP_##name, launches_of_call, bytes_##name(a));                              \
        return rc;                                                                       \
    }
ZT_KERNELS(COUNT)

#define MEMBER(name, args) .name = count_##name,
static const struct zt_kernels counting_kernels = {ZT_KERNELS(MEMBER)};

__attribute__((constructor)) static void fill_table(void)
{
    counted = zt_cuda_backend;
    counted.kernels = &counting_kernels;
    is_apart = getenv("ZT_COUNT_APART") != NULL;
}

__attribute__((destructor)) static void write_counts(void)
{
    const char *path = getenv("ZT_COUNT_FILE");
    FILE *f = path ? fopen(path, "w") : NULL;

    for (int i = 0; f && i < NUM_OPS; i++)
        if (ops[i].calls)
            fprintf(f, "%s %llu %llu %llu\n", ops[i].name,
                    (unsigned long long)ops[i].calls, (unsigned long long)ops[i].launches,
                    (unsigned long long)ops[i].bytes);
    if (f && fclose(f))
        fprintf(stderr, "count_ops: %s could not be written\n", path);
}
