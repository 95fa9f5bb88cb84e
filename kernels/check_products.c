/* check_products.c -- argument checks of matrix products, fp8 and attention. */
#include "kernels/check_rules.h"

/* ---- products ---- */

/* 2 or 3 axes; of the last two one has stride 1, or no more than one element */
static void check_gemm_operand(struct check *c, const char *name, const struct zt_view *v)
{
    int64_t rows, cols, row_stride, col_stride;

    check_present(c, name, v);
    if (!is_fp8(v->dtype))
        check_float(c, name, v);
    if (c->rc)
        return;
    if (v->ndim != 2 && v->ndim != 3) {
        fail_operand(c, name, v, "2 or 3 axes");
        return;
    }
    rows = v->shape[v->ndim - 2];
    cols = v->shape[v->ndim - 1];
    row_stride = v->stride[v->ndim - 2];
    col_stride = v->stride[v->ndim - 1];
    if (rows == 0 || cols == 0) /* dense strides of nothing may be 0 */
        return;
    if ((rows > 1 && row_stride < 1) || (cols > 1 && col_stride < 1) ||
        (v->ndim == 3 && v->shape[0] > 1 && v->stride[0] < 0))
        fail_operand(c, name, v, "strides that go forward");
    if (rows > 1 && cols > 1 && row_stride != 1 && col_stride != 1)
        fail_operand(c, name, v, "stride 1 on one of its last two axes");
}

/* Contiguous lines along axis k begin on 16-byte boundaries. */
static void check_16_byte_lines(struct check *c, const char *name,
                                const struct zt_view *v, int k)
{
    int64_t bytes = (int64_t)zt_dtype_bytes(v->dtype);

    if (!c->rc &&
        (v->stride[k] != 1 || v->stride[1 - k] * bytes % 16 || (uintptr_t)v->data % 16))
        fail_operand(c, name, v,
                     "lines of neighbours that begin at multiples of 16 bytes");
}

/* `k` is the axis K. */
static void check_fp8_operand(struct check *c, const char *name, const struct zt_view *v,
                              int k)
{
    if (!c->rc && (v->ndim != 2 || v->shape[0] % 16 || v->shape[1] % 16))
        fail_operand(c, name, v, "2 axes that 16 divides");
    check_16_byte_lines(c, name, v, k);
}

static void check_gemm_scales(struct check *c, const struct zt_gemm_args *a)
{
    const struct zt_view *pre = &a->pre;

    if (!is_fp8(a->a.dtype)) {
        check_rule(c, !a->a_scale && !a->b_scale, "scales are for fp8 operands");
        return;
    }
    check_fp8_operand(c, "a", &a->a, 1);
    check_fp8_operand(c, "b", &a->b, 0);
    check_rule(c, a->a.dtype != ZT_F8E5M2 || a->b.dtype != ZT_F8E5M2,
               "of two fp8 operands one must be e4m3");
    check_rule(c, a->a_scale && a->b_scale, "fp8 operands without their scales");
    check_16_byte_lines(c, "c", &a->c, a->c.stride[1] == 1);
    if (is_present(pre) && a->epilogue != ZT_EPI_NONE)
        check_16_byte_lines(c, "pre", pre, pre->stride[1] == 1);
}

static int64_t gemm_batch(const struct zt_view *v)
{
    return v->ndim == 3 ? v->shape[0] : 1;
}

/* a_sum, b_sum: of an operand with `n` lines of K, contiguous as it is or transposed */
static void check_gemm_sum(struct check *c, const char *name, const struct zt_view *sum,
                           const struct zt_view *x, int64_t n)
{
    if (!is_present(sum))
        return;
    if (!c->rc && (sum->dtype != ZT_F32 || sum->ndim != 1 || sum->shape[0] != n))
        fail_operand(c, name, sum, "one fp32 for each line of its operand");
    check_contiguous(c, name, sum);
    check_rule(c, x->ndim == 2 && !is_fp8(x->dtype), "sums are of matrices, not of fp8");
}

static void check_gemm_swiglu(struct check *c, const struct zt_gemm_args *a)
{
    const struct {
        const char *name;
        const struct zt_view *v;
    } all[] = {{"gate", &a->gate}, {"up", &a->up}, {"dgate", &a->dgate}};

    check_rule(c, !is_present(&a->bias) && !is_present(&a->pre) && a->alpha == 1,
               "the backward of a swiglu goes with neither bias, pre nor alpha");
    check_rule(c, a->c.ndim == 2, "the backward of a swiglu is of matrices");
    check_contiguous(c, "c", &a->c);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        check_like(c, "c", &a->c, all[i].name, all[i].v);
        if (!c->rc && all[i].v->dtype != a->c.dtype)
            fail_mismatch(c, "c", &a->c, all[i].name, all[i].v);
    }
}

static void check_gemm_epilogue(struct check *c, const struct zt_gemm_args *a)
{
    check_rule(c, (unsigned)a->epilogue <= ZT_EPI_SWIGLU_BWD, "unknown epilogue");
    check_rule(c, !a->accumulate || (!is_present(&a->bias) && a->epilogue == ZT_EPI_NONE),
               "accumulate goes with neither bias nor epilogue");
    if (a->epilogue == ZT_EPI_SWIGLU_BWD)
        check_gemm_swiglu(c, a);
    if (!zt_is_gelu_bwd(a->epilogue))
        return;
    check_rule(c, is_present(&a->pre) && !is_present(&a->bias),
               "the backward of a gelu goes with pre and without bias");
    check_contiguous(c, "c", &a->c);
    if (!c->rc)
        check_contiguous(c, "pre", &a->pre);
}

zt_err zt_check_gemm(const struct zt_gemm_args *a, struct zt_fault *fault)
{
    struct check c = {"gemm", fault, ZT_OK};
    const struct zt_view *va = &a->a, *vb = &a->b, *vc = &a->c;

    check_gemm_operand(&c, "a", va);
    check_gemm_operand(&c, "b", vb);
    check_gemm_operand(&c, "c", vc);
    if (c.rc)
        return c.rc;
    int n = va->ndim;
    bool fp8 = is_fp8(va->dtype) && is_fp8(vb->dtype);
    if (vb->ndim != n || va->shape[n - 1] != vb->shape[n - 2] ||
        (va->dtype != vb->dtype && !fp8))
        fail_mismatch(&c, "a", va, "b", vb);
    else if (vc->ndim != n || va->shape[n - 2] != vc->shape[n - 2] ||
             (gemm_batch(va) != gemm_batch(vc) && gemm_batch(va) != 1) ||
             (vc->dtype != va->dtype && vc->dtype != ZT_F32 && !fp8))
        fail_mismatch(&c, "a", va, "c", vc);
    else if (vb->shape[n - 1] != vc->shape[n - 1] ||
             (gemm_batch(vb) != gemm_batch(vc) && gemm_batch(vb) != 1))
        fail_mismatch(&c, "b", vb, "c", vc);
    check_float(&c, "c", vc);
    check_rule(&c, gemm_batch(vc) <= 1 || vc->stride[0] > 0,
               "c's batch axis must not repeat");
    check_gemm_epilogue(&c, a);
    check_gemm_sum(&c, "a_sum", &a->a_sum, va, va->shape[0]);
    check_gemm_sum(&c, "b_sum", &a->b_sum, vb, vb->shape[n - 1]);
    if (is_present(&a->bias)) {
        check_float(&c, "bias", &a->bias);
        if (!c.rc && (a->bias.ndim != 1 || a->bias.shape[0] != vc->shape[n - 1]))
            fail_mismatch(&c, "c", vc, "bias", &a->bias);
    }
    if (is_present(&a->pre) && a->epilogue != ZT_EPI_NONE) {
        check_gemm_operand(&c, "pre", &a->pre);
        if (!c.rc && (!same_shape(vc, &a->pre) || vc->dtype != a->pre.dtype))
            fail_mismatch(&c, "c", vc, "pre", &a->pre);
    }
    check_gemm_scales(&c, a);
    return c.rc;
}

/* A contiguous fp8 matrix (rows, cols) of dtype `type`. */
static void check_fp8_codes(struct check *c, const char *name, const struct zt_view *v,
                            int64_t rows, int64_t cols, zt_dtype type)
{
    check_present(c, name, v);
    if (!c->rc && (!is_fp8(v->dtype) || v->dtype != type))
        fail_operand(c, name, v, "one type of fp8");
    check_ndim(c, name, v, 2);
    if (!c->rc && (v->shape[0] != rows || v->shape[1] != cols))
        fail_operand(c, name, v, "the shape of x, or of its transpose");
    check_contiguous(c, name, v);
}

zt_err zt_check_quantize(const struct zt_quantize_args *a, struct zt_fault *fault)
{
    struct check c = {"quantize", fault, ZT_OK};
    const struct zt_view *x = &a->x;
    zt_dtype type = is_present(&a->y) ? a->y.dtype : a->yt.dtype;

    check_present(&c, "x", x);
    check_float(&c, "x", x);
    check_ndim(&c, "x", x, 2);
    if (c.rc)
        return c.rc;
    if (is_present(&a->y))
        check_fp8_codes(&c, "y", &a->y, x->shape[0], x->shape[1], type);
    if (is_present(&a->yt))
        check_fp8_codes(&c, "yt", &a->yt, x->shape[1], x->shape[0], type);
    check_rule(&c, is_present(&a->y) || is_present(&a->yt) || zt_view_numel(x) == 0,
               "neither y nor yt is given");
    check_rule(&c, a->scale != NULL, "scale is missing");
    return c.rc;
}

/* ---- attention ---- */

static void check_strided4(struct check *c, const char *name, const struct zt_view *v)
{
    check_present(c, name, v);
    check_float(c, name, v);
    check_ndim(c, name, v, 4);
    check_unit_stride(c, name, v);
}

static void check_strided4_like(struct check *c, const char *xname,
                                const struct zt_view *x, const char *name,
                                const struct zt_view *v)
{
    check_strided4(c, name, v);
    if (!c->rc && (!same_shape(x, v) || x->dtype != v->dtype))
        fail_mismatch(c, xname, x, name, v);
}

static void check_attention_bias(struct check *c, const char *name,
                                 const struct zt_view *v, const struct zt_view *q,
                                 const struct zt_view *k)
{
    check_strided4(c, name, v);
    if (!c->rc && ((v->shape[0] != 1 && v->shape[0] != q->shape[0]) ||
                   (v->shape[1] != 1 && v->shape[1] != q->shape[2]) ||
                   v->shape[2] != q->shape[1] || v->shape[3] != k->shape[1]))
        fail_mismatch(c, "q", q, name, v);
}

static void check_attention_args(struct check *c, const struct zt_attention_args *a)
{
    const struct zt_view *q = &a->q, *k = &a->k, *lse = &a->lse;

    check_strided4(c, "q", q);
    check_strided4(c, "k", k);
    if (!c->rc &&
        (q->shape[0] != k->shape[0] || q->shape[3] != k->shape[3] ||
         q->dtype != k->dtype || k->shape[2] == 0 || q->shape[2] % k->shape[2] != 0))
        fail_mismatch(c, "q", q, "k", k);
    check_strided4_like(c, "k", k, "v", &a->v);
    check_strided4_like(c, "q", q, "out", &a->out);
    if (is_present(lse)) {
        check_dtype(c, "lse", lse, ZT_F32);
        check_ndim(c, "lse", lse, 3);
        check_contiguous(c, "lse", lse);
        if (!c->rc && (lse->shape[0] != q->shape[0] || lse->shape[1] != q->shape[2] ||
                       lse->shape[2] != q->shape[1]))
            fail_mismatch(c, "q", q, "lse", lse);
    }
    if (is_present(&a->bias))
        check_attention_bias(c, "bias", &a->bias, q, k);
    if (is_present(&a->key_begin))
        check_of_tokens(c, "q", q, "key_begin", &a->key_begin);
    if (is_present(&a->key_end))
        check_of_tokens(c, "q", q, "key_end", &a->key_end);
    if (is_present(&a->mask)) {
        check_attention_bias(c, "mask", &a->mask, q, k);
        check_dtype(c, "mask", &a->mask, ZT_F32);
    }
    check_rule(c, a->window >= 0, "window must not be negative");
    check_rule(c, a->dropout >= 0 && a->dropout < 1, "dropout must be in [0, 1)");
}

zt_err zt_check_attention(const struct zt_attention_args *a, struct zt_fault *fault)
{
    struct check c = {"attention", fault, ZT_OK};

    check_attention_args(&c, a);
    return c.rc;
}

zt_err zt_check_attention_bwd(const struct zt_attention_bwd_args *a,
                              struct zt_fault *fault)
{
    struct check c = {"attention_bwd", fault, ZT_OK};

    check_attention_args(&c, &a->fwd);
    check_present(&c, "lse", &a->fwd.lse);
    check_rule(&c, is_present(&a->fwd.lse), "lse is missing");
    check_strided4_like(&c, "q", &a->fwd.q, "dout", &a->dout);
    check_strided4(&c, "dq", &a->dq);
    if (!c.rc && !same_shape(&a->fwd.q, &a->dq))
        fail_mismatch(&c, "q", &a->fwd.q, "dq", &a->dq);
    check_strided4(&c, "dk", &a->dk);
    if (!c.rc && !same_shape(&a->fwd.k, &a->dk))
        fail_mismatch(&c, "k", &a->fwd.k, "dk", &a->dk);
    check_strided4(&c, "dv", &a->dv);
    if (!c.rc && !same_shape(&a->fwd.v, &a->dv))
        fail_mismatch(&c, "v", &a->fwd.v, "dv", &a->dv);
    if (is_present(&a->dbias)) {
        check_attention_bias(&c, "dbias", &a->dbias, &a->fwd.q, &a->fwd.k);
        check_rule(&c, is_present(&a->fwd.bias), "dbias without a bias");
        if (!c.rc && !same_shape(&a->fwd.bias, &a->dbias))
            fail_mismatch(&c, "bias", &a->fwd.bias, "dbias", &a->dbias);
    }
    return c.rc;
}

zt_err zt_check_attention_decode(const struct zt_attention_decode_args *a,
                                 struct zt_fault *fault)
{
    struct check c = {"attention_decode", fault, ZT_OK};
    const struct zt_view *q = &a->q, *k = &a->k, *bias = &a->bias;

    check_strided4(&c, "q", q);
    check_strided4(&c, "k", k);
    if (!c.rc &&
        (q->shape[0] != k->shape[0] || q->shape[1] != 1 || q->shape[3] != k->shape[3] ||
         q->dtype != k->dtype || k->shape[2] == 0 || q->shape[2] % k->shape[2] != 0))
        fail_mismatch(&c, "q", q, "k", k);
    check_strided4_like(&c, "k", k, "v", &a->v);
    check_strided4_like(&c, "q", q, "out", &a->out);
    check_rule(&c, is_present(&a->k_new) == is_present(&a->v_new),
               "k_new and v_new are both there, or neither");
    if (is_present(&a->k_new)) {
        check_strided4(&c, "k_new", &a->k_new);
        check_strided4_like(&c, "k_new", &a->k_new, "v_new", &a->v_new);
        if (!c.rc && (a->k_new.shape[0] != k->shape[0] || a->k_new.shape[1] != 1 ||
                      a->k_new.shape[2] != k->shape[2] ||
                      a->k_new.shape[3] != k->shape[3] || a->k_new.dtype != k->dtype))
            fail_mismatch(&c, "k", k, "k_new", &a->k_new);
    }
    check_vector(&c, "q", q, 0, "lengths", &a->lengths);
    check_dtype(&c, "lengths", &a->lengths, ZT_I32);
    if (is_present(bias)) {
        check_strided4(&c, "bias", bias);
        if (!c.rc && ((bias->shape[0] != 1 && bias->shape[0] != q->shape[0]) ||
                      (bias->shape[1] != 1 && bias->shape[1] != q->shape[2]) ||
                      bias->shape[2] != 1))
            fail_mismatch(&c, "q", q, "bias", bias);
    }
    check_rule(&c, a->window >= 0, "window must not be negative");
    return c.rc;
}

/* v (H, B, T, R) goes with axis `axis` of scores (B, H, Tq, Tk). */
static void check_by_distance(struct check *c, const struct zt_view *scores,
                              const char *name, const struct zt_view *v, int axis)
{
    check_flat(c, name, v);
    check_ndim(c, name, v, 4);
    if (!c->rc && (v->shape[0] != scores->shape[1] || v->shape[1] != scores->shape[0] ||
                   v->shape[2] != scores->shape[axis]))
        fail_mismatch(c, axis == 2 ? "scores by query" : "scores by key", scores, name,
                      v);
}

/* `by_query` and `by_key`, one of which may be absent, of scores (B, H, Tq, Tk). */
static void check_distances(struct check *c, const struct zt_view *scores,
                            const char *query, const struct zt_view *by_query,
                            const char *key, const struct zt_view *by_key)
{
    check_flat(c, "scores", scores);
    check_ndim(c, "scores", scores, 4);
    check_rule(c, is_present(by_query) || is_present(by_key),
               "neither queries nor keys are given");
    if (is_present(by_query))
        check_by_distance(c, scores, query, by_query, 2);
    if (is_present(by_key))
        check_by_distance(c, scores, key, by_key, 3);
    if (!c->rc && is_present(by_query) && is_present(by_key) &&
        by_query->shape[3] != by_key->shape[3])
        fail_mismatch(c, query, by_query, key, by_key);
}

/* i32, as long as `n` says */
static void check_places(struct check *c, const char *name, const struct zt_view *v,
                         int64_t n)
{
    char want[48];

    snprintf(want, sizeof(want), "%lld numbers", (long long)n);
    check_present(c, name, v);
    check_dtype(c, name, v, ZT_I32);
    check_contiguous(c, name, v);
    if (!c->rc && (v->ndim != 1 || v->shape[0] != n))
        fail_operand(c, name, v, want);
}

zt_err zt_check_distance(const struct zt_distance_args *a, struct zt_fault *fault)
{
    struct check c = {"distance", fault, ZT_OK};

    check_distances(&c, &a->y, "by_query", &a->by_query, "by_key", &a->by_key);
    if (!c.rc)
        check_places(&c, "bucket", &a->bucket, a->y.shape[2] + a->y.shape[3] - 1);
    return c.rc;
}

zt_err zt_check_distance_bwd(const struct zt_distance_bwd_args *a, struct zt_fault *fault)
{
    struct check c = {"distance_bwd", fault, ZT_OK};
    const struct zt_view *to = is_present(&a->dby_query) ? &a->dby_query : &a->dby_key;

    check_distances(&c, &a->dy, "dby_query", &a->dby_query, "dby_key", &a->dby_key);
    if (!c.rc)
        check_places(&c, "first", &a->first, to->shape[3] + 1);
    return c.rc;
}
