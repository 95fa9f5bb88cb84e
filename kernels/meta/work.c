#include "kernels/meta/work.h"

#include <stddef.h>

#define MOST_VIEWS 8

/* Where the operands stand in the arguments of a kernel, each plus 1; 0 behind the last. */
struct operands {
    zt_work_kind kind;
    unsigned at[MOST_VIEWS];
};

#define AT(args, member) (unsigned)offsetof(struct zt_##args##_args, member) + 1

/* gemm and attention count FLOPs instead. Cross-entropy takes two exponentials of a logit:
 * of all of them for their sum, and again for the gradient. */
static const struct operands operands_of[] = {
    [ZT_KERNEL_gemm] = {ZT_WORK_PRODUCTS, {0}},
    [ZT_KERNEL_layernorm] = {ZT_WORK_FUNCTIONS,
                             {AT(layernorm, x), AT(layernorm, y), AT(layernorm, add),
                              AT(layernorm, sum)}},
    [ZT_KERNEL_layernorm_bwd] = {ZT_WORK_FUNCTIONS,
                                 {AT(layernorm_bwd, dy), AT(layernorm_bwd, x),
                                  AT(layernorm_bwd, dx)}},
    [ZT_KERNEL_rmsnorm] = {ZT_WORK_FUNCTIONS,
                           {AT(rmsnorm, x), AT(rmsnorm, y), AT(rmsnorm, add),
                            AT(rmsnorm, sum)}},
    [ZT_KERNEL_rmsnorm_bwd] = {ZT_WORK_FUNCTIONS,
                               {AT(rmsnorm_bwd, dy), AT(rmsnorm_bwd, x),
                                AT(rmsnorm_bwd, dx)}},
    [ZT_KERNEL_embedding] = {ZT_WORK_STREAMS, {AT(embedding, y), AT(embedding, y)}},
    [ZT_KERNEL_embedding_bwd] = {ZT_WORK_STREAMS,
                                 {AT(embedding_bwd, dy), AT(embedding_bwd, dy)}},
    [ZT_KERNEL_rope] = {ZT_WORK_STREAMS, {AT(rope, x), AT(rope, y)}},
    [ZT_KERNEL_attention] = {ZT_WORK_ATTENTION, {0}},
    [ZT_KERNEL_attention_bwd] = {ZT_WORK_ATTENTION, {0}},
    [ZT_KERNEL_attention_decode] = {ZT_WORK_STREAMS,
                                    {AT(attention_decode, k), AT(attention_decode, v)}},
    [ZT_KERNEL_distance] = {ZT_WORK_FUNCTIONS, {AT(distance, y), AT(distance, y)}},
    [ZT_KERNEL_distance_bwd] = {ZT_WORK_FUNCTIONS,
                                {AT(distance_bwd, dy), AT(distance_bwd, dby_query),
                                 AT(distance_bwd, dby_key)}},
    [ZT_KERNEL_unary] = {ZT_WORK_FUNCTIONS, {AT(unary, x), AT(unary, y)}},
    [ZT_KERNEL_unary_bwd] = {ZT_WORK_FUNCTIONS,
                             {AT(unary_bwd, dy), AT(unary_bwd, x), AT(unary_bwd, dx)}},
    [ZT_KERNEL_glu] = {ZT_WORK_FUNCTIONS, {AT(glu, gate), AT(glu, up), AT(glu, y)}},
    [ZT_KERNEL_glu_bwd] = {ZT_WORK_FUNCTIONS,
                           {AT(glu_bwd, dy), AT(glu_bwd, gate), AT(glu_bwd, up),
                            AT(glu_bwd, dgate), AT(glu_bwd, dup)}},
    [ZT_KERNEL_softmax] = {ZT_WORK_FUNCTIONS, {AT(softmax, x), AT(softmax, y)}},
    [ZT_KERNEL_softmax_bwd] = {ZT_WORK_STREAMS,
                               {AT(softmax_bwd, dy), AT(softmax_bwd, y),
                                AT(softmax_bwd, dx)}},
    [ZT_KERNEL_binary] = {ZT_WORK_STREAMS, {AT(binary, a), AT(binary, b), AT(binary, y)}},
    [ZT_KERNEL_colsum] = {ZT_WORK_STREAMS, {AT(colsum, x), AT(colsum, z)}},
    [ZT_KERNEL_axpby] = {ZT_WORK_STREAMS, {AT(axpby, x), AT(axpby, y)}},
    [ZT_KERNEL_fill] = {ZT_WORK_STREAMS, {AT(fill, y)}},
    [ZT_KERNEL_dropout] = {ZT_WORK_FUNCTIONS, {AT(dropout, x), AT(dropout, y)}},
    [ZT_KERNEL_random] = {ZT_WORK_FUNCTIONS, {AT(random, y)}},
    [ZT_KERNEL_cross_entropy] = {ZT_WORK_FUNCTIONS,
                                 {AT(cross_entropy, logits), AT(cross_entropy, logits),
                                  AT(cross_entropy, logits), AT(cross_entropy, dlogits)}},
    [ZT_KERNEL_cross_entropy_bwd] = {ZT_WORK_FUNCTIONS,
                                     {AT(cross_entropy_bwd, logits),
                                      AT(cross_entropy_bwd, dlogits)}},
    [ZT_KERNEL_squared_error] = {ZT_WORK_STREAMS,
                                 {AT(squared_error, x), AT(squared_error, y)}},
    [ZT_KERNEL_squared_error_bwd] = {ZT_WORK_STREAMS,
                                     {AT(squared_error_bwd, x), AT(squared_error_bwd, y),
                                      AT(squared_error_bwd, dx),
                                      AT(squared_error_bwd, dy)}},
    [ZT_KERNEL_quantize] = {ZT_WORK_STREAMS,
                            {AT(quantize, x), AT(quantize, x), AT(quantize, y),
                             AT(quantize, yt)}},
    [ZT_KERNEL_rank_sum] = {ZT_WORK_STREAMS, {AT(rank_sum, x), AT(rank_sum, y)}},
    [ZT_KERNEL_sumsq] = {ZT_WORK_STREAMS, {AT(sumsq, x)}},
    [ZT_KERNEL_adamw] = {ZT_WORK_UPDATES,
                         {AT(adamw, master), AT(adamw, m), AT(adamw, v), AT(adamw, grad),
                          AT(adamw, param)}},
};

static double bytes_of(const struct zt_view *v)
{
    return v->data ? (double)zt_view_numel(v) * (double)zt_dtype_bytes(v->dtype) : 0;
}

static double gemm_flops(const struct zt_gemm_args *a)
{
    return 2 * (double)zt_view_numel(&a->c) * (double)a->a.shape[a->a.ndim - 1];
}

double zt_attention_flops(const struct zt_attention_args *a, bool backward)
{
    double Tq = (double)a->q.shape[1], Tk = (double)a->k.shape[1];
    double keys = a->causal ? Tk - (Tq - 1) / 2 : Tk; /* that a query sees, on average */

    if (a->window && (double)a->window < keys)
        keys = (double)a->window;
    return (backward ? 10 : 4) * keys * (double)zt_view_numel(&a->q);
}

/* A GELU behind a product passes over what is stored once more; its backward reads and
 * writes the gradient. */
static void add_gemm(struct zt_device_work *w, const struct zt_gemm_args *a)
{
    w->of[ZT_WORK_PRODUCTS] += gemm_flops(a);
    w->of[ZT_WORK_OPERANDS] += bytes_of(&a->a) + bytes_of(&a->b) + bytes_of(&a->c);
    if (a->epilogue == ZT_EPI_SWIGLU_BWD)
        w->of[ZT_WORK_FUNCTIONS] += 5 * bytes_of(&a->c); /* as glu_bwd */
    else if (a->epilogue != ZT_EPI_NONE)
        w->of[ZT_WORK_FUNCTIONS] +=
            (zt_is_gelu_bwd(a->epilogue) ? 2 : 1) * bytes_of(&a->c) + bytes_of(&a->pre);
}

void zt_work_add_kernel(struct zt_device_work *w, zt_kernel_id kernel, const void *args)
{
    const struct operands *o = &operands_of[kernel];

    if (kernel == ZT_KERNEL_gemm)
        add_gemm(w, args);
    else if (kernel == ZT_KERNEL_attention)
        w->of[o->kind] += zt_attention_flops(args, false);
    else if (kernel == ZT_KERNEL_attention_bwd)
        w->of[o->kind] +=
            zt_attention_flops(&((const struct zt_attention_bwd_args *)args)->fwd, true);
    for (int i = 0; i < MOST_VIEWS && o->at[i]; i++)
        w->of[o->kind] += bytes_of(
            (const struct zt_view *)(const void *)((const char *)args + o->at[i] - 1));
}
