#include "kernels/cpu/gemm/call.h"

#include <string.h>

#include "kernels/check.h"
#include "kernels/cpu/elementwise/activation.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm/wgrad.h"
#include "kernels/cpu/parallel.h"
#include "kernels/integers.h"

/* ---- arguments ---- */

/* The view as zt_check_gemm lets it through; axes of length 1 get a stride that fits. */
static struct zt_gemm_mat mat_of(const struct zt_view *v)
{
    int at = v->ndim - 2;
    struct zt_gemm_mat m = {
        .data = v->data,
        .dtype = v->dtype,
        .batch = at ? v->shape[0] : 1,
        .rows = v->shape[at],
        .cols = v->shape[at + 1],
        .stride = {at ? v->stride[0] : 0, v->stride[at], v->stride[at + 1]}};

    if (m.batch == 1)
        m.stride[0] = 0;
    if (m.cols == 1) {
        m.stride[2] = 1;
        if (m.rows == 1)
            m.stride[1] = 1;
    } else if (m.rows == 1) {
        m.stride[1] = m.stride[2] == 1 ? m.cols : 1;
    }
    return m;
}

static zt_err check(struct zt_gemm_call *k, const struct zt_gemm_args *g,
                    struct zt_fault *fault)
{
    zt_err rc = zt_check_gemm(g, fault);

    if (rc != ZT_OK)
        return rc;
    *k = (struct zt_gemm_call){.a = mat_of(&g->a),
                               .b = mat_of(&g->b),
                               .c = mat_of(&g->c),
                               .alpha = g->alpha,
                               .accumulate = g->accumulate,
                               .tf32 = g->tf32 && g->a.dtype == ZT_F32,
                               .rows_alone = g->rows_alone,
                               .epilogue = g->epilogue};
    if (g->a_scale)
        k->alpha *= *g->a_scale * *g->b_scale;
    if (g->epilogue != ZT_EPI_NONE && g->pre.data)
        k->pre = mat_of(&g->pre);
    if (g->bias.data) {
        k->bias = g->bias.data;
        k->bias_dtype = g->bias.dtype;
        k->bias_stride = g->bias.stride[0];
    }
    return ZT_OK;
}

/* ---- the pass over rows after a product: bias, pre, activation ---- */

/* What is stored is what the activation sees, so that backward can recompute from it. */
static void round_row(float *x, zt_dtype dtype, int64_t n)
{
    uint16_t half[ZT_GEMM_PASS_COLS];

    if (dtype == ZT_F32)
        return;
    zt_store_row(half, dtype, 1, x, n);
    zt_load_row(x, half, dtype, 1, n);
}

/* Whether sums were made where `pre` keeps them, so that they are rounded already. */
static bool has_stored_pre(const struct zt_gemm_pass *p)
{
    const struct zt_gemm_call *k = p->k;

    return k->pre.data && p->from.data == k->pre.data && k->pre.dtype == k->c.dtype &&
           !p->add_bias;
}

/* The activation of n sums x, in fp32, which c gets. */
static void activate_piece(const struct zt_gemm_pass *p, int64_t batch, int64_t row,
                           int64_t col, int64_t n, const float *x)
{
    const struct zt_gemm_mat *c = &p->k->c;
    char *to = zt_gemm_element(c, batch, row, col);
    bool in_place = c->dtype == ZT_F32 && c->stride[2] == 1;
    float made[ZT_GEMM_PASS_COLS], *y = in_place ? (float *)(void *)to : made;

    zt_tile_activate(p->k->epilogue == ZT_EPI_GELU_TANH ? ZT_U_GELU_TANH : ZT_U_GELU_ERF,
                     y, x, n);
    if (!in_place)
        zt_store_row(to, c->dtype, c->stride[2], y, n);
}

void zt_gemm_pass_piece(const struct zt_gemm_pass *p, int64_t batch, int64_t row,
                        int64_t col, int64_t n)
{
    const struct zt_gemm_call *k = p->k;
    float x[ZT_GEMM_PASS_COLS], extra[ZT_GEMM_PASS_COLS];
    const char *from = NULL;

    if (p->from.data)
        from = zt_gemm_element(&p->from, batch, row - p->row, col - p->col);
    if (k->epilogue != ZT_EPI_NONE && has_stored_pre(p) && p->from.dtype == ZT_F32 &&
        p->from.stride[2] == 1) {
        activate_piece(p, batch, row, col, n, (const float *)(const void *)from);
        return;
    }
    if (from)
        zt_load_row(x, from, p->from.dtype, p->from.stride[2], n);
    else
        memset(x, 0, sizeof(x));
    if (p->add_bias) {
        const char *bias = k->bias;

        bias += col * k->bias_stride * (int64_t)zt_dtype_bytes(k->bias_dtype);
        zt_load_row(extra, bias, k->bias_dtype, k->bias_stride, n);
        for (int64_t i = 0; i < n; i++)
            x[i] += extra[i];
    }
    if (k->epilogue == ZT_EPI_NONE) {
        zt_store_row(zt_gemm_element(&k->c, batch, row, col), k->c.dtype, k->c.stride[2],
                     x, n);
        return;
    }
    if (!has_stored_pre(p)) {
        if (k->pre.data)
            zt_store_row(zt_gemm_element(&k->pre, batch, row, col), k->pre.dtype,
                         k->pre.stride[2], x, n);
        round_row(x, k->c.dtype, n);
    }
    activate_piece(p, batch, row, col, n, x);
}

/* The same onto what is there. */
static void add_piece(const struct zt_gemm_pass *p, int64_t batch, int64_t row,
                      int64_t col, int64_t n)
{
    const struct zt_gemm_mat *c = &p->k->c;
    float old[ZT_GEMM_PASS_COLS], more[ZT_GEMM_PASS_COLS];
    char *at = zt_gemm_element(c, batch, row, col);

    zt_load_row(old, at, c->dtype, c->stride[2], n);
    zt_load_row(more, zt_gemm_element(&p->from, batch, row - p->row, col - p->col),
                p->from.dtype, p->from.stride[2], n);
    for (int64_t i = 0; i < n; i++)
        old[i] += more[i];
    zt_store_row(at, c->dtype, c->stride[2], old, n);
}

void zt_gemm_pass_row(const struct zt_gemm_pass *p, int64_t batch, int64_t row,
                      int64_t col, int64_t n)
{
    for (int64_t end = col + n; col < end; col += ZT_GEMM_PASS_COLS)
        (p->k->accumulate ? add_piece : zt_gemm_pass_piece)(
            p, batch, row, col, zt_min(ZT_GEMM_PASS_COLS, end - col));
}

static void pass_rows(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct zt_gemm_pass *p = ctx;
    const struct zt_gemm_mat *c = &p->k->c;

    (void)thread;
    for (int64_t i = begin; i < end; i++)
        zt_gemm_pass_row(p, i / c->rows, i % c->rows, 0, c->cols);
}

static void run_pass(const struct zt_gemm_call *k, const struct zt_gemm_mat *from,
                     bool add_bias)
{
    struct zt_gemm_pass p = {.k = k, .from = *from, .add_bias = add_bias};

    zt_parallel_for(k->c.batch * k->c.rows, 1, pass_rows, &p);
}

void zt_gemm_finish_rows(const struct zt_gemm_call *k, const struct zt_gemm_mat *from)
{
    run_pass(k, from, k->bias != NULL);
}

/* ---- products straight through oneDNN ---- */

static zt_err direct(struct zt_device *dev, const struct zt_gemm_call *k,
                     struct zt_fault *fault)
{
    bool pass = k->epilogue != ZT_EPI_NONE;
    struct zt_gemm_call first = *k;
    /* oneDNN would scale the bias by alpha too, and wants it along the rows it writes */
    bool fused = k->bias && k->alpha == 1 && k->c.stride[2] == 1 &&
                 (k->bias_stride == 1 || k->c.cols == 1) &&
                 (k->bias_dtype == ZT_F32 || k->bias_dtype == k->a.dtype);
    zt_err rc;

    if (k->pre.data)
        first.c = k->pre;
    if (k->pre.data && k->pre.stride[2] != 1)
        fused = false;
    rc = zt_gemm_by_onednn(dev, &first, fused, fault);
    if (rc == ZT_OK && (pass || (k->bias && !fused)))
        run_pass(k, &first.c, k->bias && !fused);
    return rc;
}

/* Whether the call is a weight gradient that is faster without oneDNN; *w is it. */
static bool is_wgrad(const struct zt_gemm_call *k, struct zt_wgrad *w)
{
    if (k->a.dtype != ZT_BF16 || k->c.dtype != ZT_F32 || k->c.batch != 1 || k->bias ||
        k->epilogue != ZT_EPI_NONE)
        return false;
    if (k->a.stride[1] != 1 || k->b.stride[2] != 1 || k->c.stride[2] != 1)
        return false;
    *w = (struct zt_wgrad){.m = k->c.rows,
                           .n = k->c.cols,
                           .k = k->a.cols,
                           .a = (const uint16_t *)(void *)k->a.data,
                           .b = (const uint16_t *)(void *)k->b.data,
                           .c = (float *)(void *)k->c.data,
                           .lda = k->a.stride[2],
                           .ldb = k->b.stride[1],
                           .ldc = k->c.stride[1],
                           .alpha = k->alpha,
                           .accumulate = k->accumulate};
    return zt_wgrad_is_faster(w);
}

static bool goes_direct(const struct zt_gemm_call *k)
{
    return (k->a.dtype == ZT_F32 && !k->tf32) ||
           (k->a.dtype == ZT_BF16 && (zt_cpu_features() & ZT_CPU_FAST_BF16));
}

/* sum = or += the sum over k of an operand whose lines of K are columns of (K, n). */
static zt_err add_sum(struct zt_device *dev, struct zt_stream *s, const struct zt_view *x,
                      const struct zt_view *sum, bool accumulate, struct zt_fault *fault)
{
    struct zt_colsum_args a = {.x = *x, .y = *sum, .accumulate = accumulate};

    return sum->data ? zt_cpu_colsum(dev, s, &a, fault) : ZT_OK;
}

/* c, which is the gradient of the result, becomes that of `up`. */
static zt_err run_swiglu_bwd(struct zt_device *dev, struct zt_stream *s,
                             const struct zt_gemm_args *g, struct zt_fault *fault)
{
    struct zt_glu_bwd_args a = {.kind = ZT_U_SILU,
                                .dy = g->c,
                                .gate = g->gate,
                                .up = g->up,
                                .dgate = g->dgate,
                                .dup = g->c};

    return zt_cpu_glu_bwd(dev, s, &a, fault);
}

/* What goes with a product apart from it: the slope of a gelu, and sums of operands. */
static zt_err finish(struct zt_device *dev, struct zt_stream *s,
                     const struct zt_gemm_args *g, struct zt_fault *fault)
{
    struct zt_unary_bwd_args slope = {.dy = g->c, .x = g->pre, .dx = g->c};
    struct zt_view at = zt_view_transposed(&g->a);
    zt_err rc = ZT_OK;

    slope.kind = g->epilogue == ZT_EPI_GELU_TANH_BWD ? ZT_U_GELU_TANH : ZT_U_GELU_ERF;
    if (zt_is_gelu_bwd(g->epilogue))
        rc = zt_cpu_unary_bwd(dev, s, &slope, fault);
    if (g->epilogue == ZT_EPI_SWIGLU_BWD)
        rc = run_swiglu_bwd(dev, s, g, fault);
    if (!rc)
        rc = add_sum(dev, s, &at, &g->a_sum, g->accumulate_sums, fault);
    return rc ? rc : add_sum(dev, s, &g->b, &g->b_sum, g->accumulate_sums, fault);
}

/* Zeros are added to where that may give other bits: by oneDNN, and where c is rounded. */
static void add_to_zeros(struct zt_gemm_call *k)
{
    run_pass(k, &(struct zt_gemm_mat){0}, false);
    k->accumulate = true;
}

static zt_err run_product(struct zt_device *dev, const struct zt_gemm_args *g,
                          struct zt_fault *fault)
{
    bool added = g->as_added && !g->accumulate;
    struct zt_wgrad wgrad;
    struct zt_gemm_call k;
    zt_err rc = check(&k, g, fault);

    if (rc != ZT_OK || k.c.batch * k.c.rows * k.c.cols == 0)
        return rc;
    if (k.a.cols == 0) { /* an empty sum */
        if (!k.accumulate)
            run_pass(&k, &(struct zt_gemm_mat){0}, k.bias != NULL);
        return ZT_OK;
    }
    if (added && k.c.dtype != ZT_F32)
        add_to_zeros(&k);
    if (zt_gemm_takes_rows_alone(&k))
        return zt_gemm_rows_alone(dev, &k, fault);
    if (zt_gemm_is_tiled(&k))
        return zt_gemm_tiled(dev, &k, fault);
    if (zt_gemm_suits_panels(&k))
        return zt_gemm_by_panels(dev, &k, fault);
    if (is_wgrad(&k, &wgrad))
        return zt_wgrad_run(dev, &wgrad, fault);
    if (added && !k.accumulate)
        add_to_zeros(&k);
    return goes_direct(&k) ? direct(dev, &k, fault) : zt_gemm_in_fp32(dev, &k, fault);
}

zt_err zt_cpu_gemm(struct zt_device *dev, struct zt_stream *s,
                   const struct zt_gemm_args *g, struct zt_fault *fault)
{
    struct zt_gemm_args alone = *g;
    zt_err rc = zt_check_gemm(g, fault);

    if (rc)
        return rc;
    if (zt_is_gelu_bwd(g->epilogue) || g->epilogue == ZT_EPI_SWIGLU_BWD) {
        alone.epilogue = ZT_EPI_NONE;
        alone.pre.data = NULL;
    }
    rc = run_product(dev, &alone, fault);
    return rc ? rc : finish(dev, s, g, fault);
}
