#include "kernels/cpu/gemm.h"

#include <string.h>

#include "kernels/check.h"
#include "kernels/convert.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm_wgrad.h"
#include "kernels/cpu/parallel.h"

/* A matrix, or a stack of them: (batch, rows, cols). */
struct mat {
    char *data;
    zt_dtype dtype;
    int64_t batch, rows, cols;
    int64_t stride[3];
};

/* What is left of a call once its arguments are checked. */
struct call {
    struct mat a, b, c, pre; /* pre.data NULL: absent */
    const void *bias;        /* NULL: absent */
    zt_dtype bias_dtype;
    int64_t bias_stride;
    float alpha;
    bool accumulate, tf32; /* tf32: and it makes a difference */
    zt_epilogue epilogue;
};

/* ---- arguments ---- */

/* The view as zt_check_gemm lets it through; axes of length 1 get a stride that fits. */
static struct mat mat_of(const struct zt_view *v)
{
    int at = v->ndim - 2;
    struct mat m = {.data = v->data,
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

static struct mat transposed(struct mat m)
{
    int64_t t = m.rows;

    m.rows = m.cols;
    m.cols = t;
    t = m.stride[1];
    m.stride[1] = m.stride[2];
    m.stride[2] = t;
    return m;
}

static zt_err check(struct call *k, const struct zt_gemm_args *g, struct zt_fault *fault)
{
    zt_err rc = zt_check_gemm(g, fault);

    if (rc != ZT_OK)
        return rc;
    *k = (struct call){.a = mat_of(&g->a),
                       .b = mat_of(&g->b),
                       .c = mat_of(&g->c),
                       .alpha = g->alpha,
                       .accumulate = g->accumulate,
                       .tf32 = g->tf32 && g->a.dtype == ZT_F32,
                       .epilogue = g->epilogue};
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

#define PASS_COLS 512

struct pass {
    const struct call *k;
    struct mat from;  /* the product; data NULL: zeros */
    int64_t row, col; /* where in c its first element belongs */
    bool add_bias;
};

static char *element(const struct mat *m, int64_t batch, int64_t row, int64_t col)
{
    int64_t at = batch * m->stride[0] + row * m->stride[1] + col * m->stride[2];

    return m->data + at * (int64_t)zt_dtype_bytes(m->dtype);
}

/* What is stored is what the activation sees, so that backward can recompute from it. */
static void round_row(float *x, zt_dtype dtype, int64_t n)
{
    uint16_t half[PASS_COLS];

    if (dtype == ZT_F32)
        return;
    zt_store_row(half, dtype, 1, x, n);
    zt_load_row(x, half, dtype, 1, n);
}

static void pass_piece(const struct pass *p, int64_t batch, int64_t row, int64_t col,
                       int64_t n)
{
    const struct call *k = p->k;
    float x[PASS_COLS], extra[PASS_COLS];

    if (p->from.data)
        zt_load_row(x, element(&p->from, batch, row - p->row, col - p->col),
                    p->from.dtype, p->from.stride[2], n);
    else
        memset(x, 0, sizeof(x));
    if (p->add_bias) {
        const char *bias = k->bias;

        bias += col * k->bias_stride * (int64_t)zt_dtype_bytes(k->bias_dtype);
        zt_load_row(extra, bias, k->bias_dtype, k->bias_stride, n);
        for (int64_t i = 0; i < n; i++)
            x[i] += extra[i];
    }
    if (k->epilogue != ZT_EPI_NONE) {
        if (k->pre.data)
            zt_store_row(element(&k->pre, batch, row, col), k->pre.dtype,
                         k->pre.stride[2], x, n);
        round_row(x, k->c.dtype, n);
        zt_tile_activate(k->epilogue == ZT_EPI_GELU_TANH ? ZT_U_GELU_TANH : ZT_U_GELU_ERF,
                         x, x, n);
    }
    zt_store_row(element(&k->c, batch, row, col), k->c.dtype, k->c.stride[2], x, n);
}

static void pass_rows(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct pass *p = ctx;
    const struct mat *c = &p->k->c;

    (void)thread;
    for (int64_t i = begin; i < end; i++)
        for (int64_t col = 0; col < c->cols; col += PASS_COLS) {
            int64_t left = c->cols - col;

            pass_piece(p, i / c->rows, i % c->rows, col,
                       left < PASS_COLS ? left : PASS_COLS);
        }
}

static void run_pass(const struct call *k, const struct mat *from, bool add_bias)
{
    struct pass p = {.k = k, .from = *from, .add_bias = add_bias};

    zt_parallel_for(k->c.batch * k->c.rows, 1, pass_rows, &p);
}

/* ---- products straight through oneDNN ---- */

/* oneDNN writes rows: a c that is stored by columns is the transposed product. */
static void swap_operands(struct call *k)
{
    struct mat t;

    if (k->c.stride[2] == 1)
        return;
    t = transposed(k->a);
    k->a = transposed(k->b);
    k->b = t;
    k->c = transposed(k->c);
}

static zt_err product(struct zt_device *dev, const struct call *in, bool with_bias,
                      struct zt_fault *fault)
{
    struct call k = *in;
    const struct zt_gemm_plan *plan;
    void *scratch;
    zt_err rc;

    swap_operands(&k);
    struct zt_gemm_problem p = {.batch = k.c.batch,
                                .m = k.c.rows,
                                .n = k.c.cols,
                                .k = k.a.cols,
                                .ab = k.a.dtype,
                                .c = k.c.dtype,
                                .bias = with_bias ? k.bias_dtype : ZT_F32,
                                .alpha = k.alpha,
                                .accumulate = k.accumulate,
                                .has_bias = with_bias};
    memcpy(p.as, k.a.stride, sizeof(p.as));
    memcpy(p.bs, k.b.stride, sizeof(p.bs));
    memcpy(p.cs, k.c.stride, sizeof(p.cs));
    rc = zt_gemm_plan(dev, &p, false, &plan, fault);
    if (rc == ZT_OK)
        rc = zt_cpu_scratch(dev, ZT_SCRATCH_GEMM_PAD, zt_gemm_plan_scratch(plan),
                            &scratch, fault);
    if (rc == ZT_OK)
        rc = zt_gemm_run(plan, k.a.data, k.b.data, k.bias, k.c.data, scratch, fault);
    return rc;
}

static zt_err direct(struct zt_device *dev, const struct call *k, struct zt_fault *fault)
{
    bool pass = k->epilogue != ZT_EPI_NONE;
    struct call first = *k;
    /* oneDNN would scale the bias by alpha too, and wants it along the rows it writes */
    bool fused = k->bias && k->alpha == 1 && k->c.stride[2] == 1 &&
                 (k->bias_stride == 1 || k->c.cols == 1) &&
                 (k->bias_dtype == ZT_F32 || k->bias_dtype == k->a.dtype);
    zt_err rc;

    if (k->pre.data)
        first.c = k->pre;
    if (k->pre.data && k->pre.stride[2] != 1)
        fused = false;
    rc = product(dev, &first, fused, fault);
    if (rc == ZT_OK && (pass || (k->bias && !fused)))
        run_pass(k, &first.c, k->bias && !fused);
    return rc;
}

/* Whether the call is a weight gradient that is faster without oneDNN; *w is it. */
static bool is_wgrad(const struct call *k, struct zt_wgrad *w)
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
    return zt_wgrad_pays(w);
}

/* ---- products in fp32 of operands that are made fp32 first, piece by piece ---- */

#define PIECE_M 1024
#define PIECE_N 2048
#define PIECE_K 2048

struct widen {
    struct mat from;
    int64_t batch, row, col, cols;
    float *to;
    bool tf32;
};

/* To 10 bits of fraction, to nearest even; infinities and NaNs stay. */
static void round_to_tf32(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = zt_float_bits(x[i]);

        if ((u & 0x7f800000u) != 0x7f800000u)
            x[i] = zt_float_of_bits((u + 0xfffu + (u >> 13 & 1u)) & ~0x1fffu);
    }
}

static void widen_rows(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct widen *w = ctx;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        zt_load_row(w->to + i * w->cols, element(&w->from, w->batch, w->row + i, w->col),
                    w->from.dtype, w->from.stride[2], w->cols);
        if (w->tf32)
            round_to_tf32(w->to + i * w->cols, w->cols);
    }
}

/* Copies a piece into `to`, keeping which of its axes is the contiguous one. */
static struct mat widen(const struct mat *from, bool tf32, int64_t batch, int64_t row,
                        int64_t rows, int64_t col, int64_t cols, float *to)
{
    bool flip = from->stride[2] != 1;
    struct widen w = {.from = flip ? transposed(*from) : *from,
                      .batch = batch,
                      .row = flip ? col : row,
                      .col = flip ? row : col,
                      .cols = flip ? rows : cols,
                      .to = to,
                      .tf32 = tf32};
    int64_t n = flip ? cols : rows;
    struct mat out = {.data = (char *)to,
                      .dtype = ZT_F32,
                      .batch = 1,
                      .rows = n,
                      .cols = w.cols,
                      .stride = {0, w.cols, 1}};

    zt_parallel_for(n, 16, widen_rows, &w);
    return flip ? transposed(out) : out;
}

struct finish {
    const struct call *k;
    struct pass pass;
    const float *from;
    int64_t batch, row, col, cols;
};

/* The sums of a piece of c, in fp32, become c; one rounding. */
static void finish_rows(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct finish *f = ctx;
    const struct call *k = f->k;
    float old[PASS_COLS];

    (void)thread;
    for (int64_t i = begin; i < end; i++)
        for (int64_t j = 0; j < f->cols; j += PASS_COLS) {
            int64_t left = f->cols - j, n = left < PASS_COLS ? left : PASS_COLS;
            char *at = element(&k->c, f->batch, f->row + i, f->col + j);

            if (!k->accumulate) {
                pass_piece(&f->pass, f->batch, f->row + i, f->col + j, n);
                continue;
            }
            zt_load_row(old, at, k->c.dtype, k->c.stride[2], n);
            for (int64_t x = 0; x < n; x++)
                old[x] += f->from[i * f->cols + j + x];
            zt_store_row(at, k->c.dtype, k->c.stride[2], old, n);
        }
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

struct pieces {
    float *a, *b, *c;
};

/*
 * One piece of c: rows and cols from (row, col), over the whole of K. *b is the widened
 * piece of b that the rows below will find again.
 */
static zt_err widened_piece(struct zt_device *dev, const struct call *k, int64_t batch,
                            int64_t row, int64_t col, const struct pieces *buf,
                            struct mat *b, struct zt_fault *fault)
{
    int64_t rows = least(PIECE_M, k->c.rows - row);
    int64_t cols = least(PIECE_N, k->c.cols - col);
    struct mat sums = {.data = (char *)buf->c,
                       .dtype = ZT_F32,
                       .batch = 1,
                       .rows = rows,
                       .cols = cols,
                       .stride = {0, cols, 1}};
    struct finish f = {.k = k,
                       .pass = {k, sums, row, col, k->bias != NULL},
                       .from = buf->c,
                       .batch = batch,
                       .row = row,
                       .col = col,
                       .cols = cols};

    for (int64_t at = 0; at < k->a.cols; at += PIECE_K) {
        int64_t depth = least(PIECE_K, k->a.cols - at);
        struct call part = {.c = sums, .alpha = k->alpha, .accumulate = at > 0};

        part.a = widen(&k->a, k->tf32, batch, row, rows, at, depth, buf->a);
        if (row == 0 || k->a.cols > PIECE_K) /* else it is still there */
            *b = widen(&k->b, k->tf32, batch, at, depth, col, cols, buf->b);
        part.b = *b;
        zt_err rc = product(dev, &part, false, fault);
        if (rc != ZT_OK)
            return rc;
    }
    zt_parallel_for(rows, 1, finish_rows, &f);
    return ZT_OK;
}

static zt_err widened(struct zt_device *dev, const struct call *k, struct zt_fault *fault)
{
    size_t m = (size_t)least(PIECE_M, k->c.rows), n = (size_t)least(PIECE_N, k->c.cols);
    size_t depth = (size_t)least(PIECE_K, k->a.cols);
    struct pieces buf;
    struct mat b = {0};
    void *mem;
    zt_err rc =
        zt_cpu_scratch(dev, ZT_SCRATCH_GEMM,
                       (m * depth + depth * n + m * n) * sizeof(float), &mem, fault);

    if (rc != ZT_OK)
        return rc;
    buf.a = mem;
    buf.b = buf.a + m * depth;
    buf.c = buf.b + depth * n;
    for (int64_t batch = 0; batch < k->c.batch; batch++)
        for (int64_t col = 0; col < k->c.cols; col += PIECE_N)
            for (int64_t row = 0; row < k->c.rows; row += PIECE_M) {
                rc = widened_piece(dev, k, batch, row, col, &buf, &b, fault);
                if (rc != ZT_OK)
                    return rc;
            }
    return ZT_OK;
}

static bool goes_direct(const struct call *k)
{
    return (k->a.dtype == ZT_F32 && !k->tf32) ||
           (k->a.dtype == ZT_BF16 && (zt_cpu_features() & ZT_CPU_FAST_BF16));
}

zt_err zt_cpu_gemm(struct zt_device *dev, struct zt_stream *s,
                   const struct zt_gemm_args *g, struct zt_fault *fault)
{
    struct zt_wgrad wgrad;
    struct call k;
    zt_err rc = check(&k, g, fault);

    (void)s;
    if (rc != ZT_OK || k.c.batch * k.c.rows * k.c.cols == 0)
        return rc;
    if (k.a.cols == 0) { /* an empty sum */
        if (!k.accumulate)
            run_pass(&k, &(struct mat){0}, k.bias != NULL);
        return ZT_OK;
    }
    if (is_wgrad(&k, &wgrad))
        return zt_wgrad_run(dev, &wgrad, fault);
    return goes_direct(&k) ? direct(dev, &k, fault) : widened(dev, &k, fault);
}
