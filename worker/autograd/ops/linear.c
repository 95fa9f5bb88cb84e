/*
 * linear.c -- products with a weight, and of two activations.
 *
 * Weight gradients go straight into the block's fp32 gradients, added in the product's
 * own last step.
 *
 * With fp8 the three products of a linear op take codes, made just before from the values
 * at hand: x and w in e4m3, which has more fraction, dy in e5m2, which has more range
 * (the "hybrid" recipe of Transformer Engine, with current scaling). A tensor core wants
 * both operands with neighbours on the summed axis, so a product takes either the codes
 * as they lie or those of the transpose:
 *
 *                          w (out, in)            w (in, out)
 *      y  = x w^T          x   by rows, w         x, w^T
 *      dx = dy w           dy, w^T                dy, w
 *      dw                  dy^T, x^T              x^T, dy^T
 *
 * Logits of an odd vocabulary (50257) are multiplied as if it were a multiple of what the
 * device likes (50304), where their rows and the block that w is in have the room: rows behind
 * w are other weights or zeros, what they make of x lies between the rows of y, where nobody
 * reads it, and the gradient there is 0 (ops/loss.c). The gradient of w is not padded.
 *
 * Where w has an adapter, y = x w^T + b + low up^T: the product of its pair is added in
 * place, and one node sends gradients back to all.
 */
#include "worker/autograd/adapter.h"
#include "worker/autograd/tape.h"

#define ROW_ALIGN 8  /* elements: 16 bytes of a 16-bit type */
#define ROW_ROOM  64 /* to a multiple of this, where there must be room */

static struct zt_view transposed(struct zt_view v)
{
    return zt_view_transposed(&v);
}

static void note_largest(struct zt_step *s, const struct zt_gemm_args *a)
{
    int64_t n = a->c.shape[a->c.ndim - 1], k = a->a.shape[a->a.ndim - 1];
    struct zt_product p = {zt_view_numel(&a->c) / n, n, k}, *most = &s->largest;

    if ((double)p.m * (double)n * (double)k >
        (double)most->m * (double)most->n * (double)most->k)
        *most = p;
}

/* c = a b, or c += a b; counted, unless it only repeats what was counted before. */
static bool product(struct zt_step *s, struct zt_gemm_args *a)
{
    int n = a->a.ndim;
    double mnk = (double)zt_view_numel(&a->c) * (double)a->a.shape[n - 1];

    a->alpha = 1;
    a->tf32 = s->cfg.tf32;
    a->rows_alone = s->pass.mode == ZT_MODE_GENERATE && s->pass.T == 1 && s->pass.S == 0;
    if (!s->recomputing)
        s->flops += 2 * mnk;
    note_largest(s, a);
    return zt_step_check(s, s->k->gemm(s->cfg.device, NULL, a, &s->fault));
}

/* t's gradient = or += a b; `more` has the scales of fp8 operands, and what is summed. */
static void grad_product(struct zt_step *s, struct zt_tensor *t, struct zt_view a,
                         struct zt_view b, struct zt_gemm_args more)
{
    struct zt_grad_sink d;

    if (!zt_grad_sink_open(s, &d, t, ZT_SINK_ANY))
        return;
    more.a = a;
    more.b = b;
    more.c = d.view;
    more.accumulate = d.accumulate;
    more.as_added = t->store->param; /* new or not, as the next micro-batch's */
    product(s, &more);
    zt_grad_sink_close(s, &d);
}

/* ---- fp8 ---- */

/* A matrix as codes: scratch that holds the scale, then the codes. */
struct coded {
    void *mem;
    float *scale;
    struct zt_view row_major, transposed; /* (R, C) and (C, R); data NULL: not made */
};

enum { ROW_MAJOR = 1, TRANSPOSED = 2 };
#define SCALE_BYTES 64 /* keeps codes aligned */

/* false: the step has failed, and there is nothing to let go of. */
static bool encode(struct zt_step *s, struct coded *q, const struct zt_view *x,
                   zt_dtype type, int forms)
{
    int64_t n = zt_view_numel(x), rows = x->shape[0], cols = x->shape[1];
    struct zt_quantize_args a = {.x = *x};
    char *at;

    *q = (struct coded){
        .mem = zt_scratch(
            s, SCALE_BYTES + n * (forms == (ROW_MAJOR | TRANSPOSED) ? 2 : 1), ZT_U8)};
    if (!q->mem)
        return false;
    at = (char *)q->mem + SCALE_BYTES;
    a.scale = q->scale = q->mem;
    if (forms & ROW_MAJOR) {
        q->row_major = zt_view_of(at, type, 2, (int64_t[]){rows, cols});
        at += n;
    }
    if (forms & TRANSPOSED)
        q->transposed = zt_view_of(at, type, 2, (int64_t[]){cols, rows});
    a.y = q->row_major;
    a.yt = q->transposed;
    if (zt_step_check(s, s->k->quantize(s->cfg.device, NULL, &a, &s->fault)))
        return true;
    zt_scratch_free(s, q->mem);
    return false;
}

/* In t, and so in its gradient, lines of neighbours begin at multiples of 16 bytes. */
static bool has_aligned_lines(const struct zt_tensor *t)
{
    const int64_t *stride = t->view.stride;

    return t->offset_elems % 8 == 0 && stride[stride[1] == 1 ? 0 : 1] % 8 == 0;
}

/*
 * Whether the shapes and types of a linear op let its products be of fp8, all three or
 * none; x (rows, in) and w are matrices.
 */
static bool takes_fp8(const struct zt_step *s, const struct zt_tensor *x,
                      const struct zt_tensor *w, int64_t out)
{
    const int64_t *n = x->view.shape;

    return s->cfg.fp8 && x->view.dtype == ZT_BF16 && n[0] % 16 == 0 && n[1] % 16 == 0 &&
           out % 16 == 0 && has_aligned_lines(x) && has_aligned_lines(w);
}

/* ---- linear ---- */

struct linear {
    bool in_out; /* w is (in, out) */
    bool fp8;
    zt_epilogue epilogue;
    int64_t padded; /* columns of y as they are multiplied; 0: those that there are */
};

/* Operands and saved values of a node; LOW and UP where an adapter adds low up^T. */
enum { X, W, BIAS, PRE, LOW, UP, NUM_LINEAR };

/* What is added to x w^T: low (..., r), up (out, r); both NULL: nothing. */
struct low_rank {
    struct zt_tensor *low, *up;
};

/* d(result before the epilogue): dy itself, or a scratch that the caller frees. */
static struct zt_view before_epilogue(struct zt_step *s, struct zt_node *n,
                                      struct zt_view dy, void **scratch)
{
    const struct linear *l = n->attr;
    struct zt_unary_bwd_args a = {.dy = dy, .x = dy, .dx = dy};

    *scratch = NULL;
    if (l->epilogue == ZT_EPI_NONE || n->out->store->activation->done)
        return dy;
    *scratch = zt_scratch(s, zt_view_numel(&dy), dy.dtype);
    if (!*scratch)
        return dy;
    a.kind = l->epilogue == ZT_EPI_GELU_TANH ? ZT_U_GELU_TANH : ZT_U_GELU_ERF;
    a.x.data = zt_data(n->saved[PRE]).data;
    a.dx.data = *scratch;
    zt_step_check(s, s->k->unary_bwd(s->cfg.device, NULL, &a, &s->fault));
    return a.dx;
}

/* (..., C), rows equally far apart, as (N, C) */
static struct zt_view rows_of(struct zt_view v)
{
    int last = v.ndim - 1;
    int64_t cols = v.shape[last], n = zt_view_numel(&v) / cols;
    struct zt_view r = zt_view_of(v.data, v.dtype, 2, (int64_t[]){n, cols});

    if (last > 0)
        r.stride[0] = v.stride[last - 1];
    return r;
}

static void backward_x_fp8(struct zt_step *s, struct zt_node *n, const struct coded *dy)
{
    const struct linear *l = n->attr;
    struct zt_view w = zt_data(n->saved[W]);
    struct coded q;

    if (!zt_requires_grad(s, &n->in[X], 1) ||
        !encode(s, &q, &w, ZT_F8E4M3, l->in_out ? ROW_MAJOR : TRANSPOSED))
        return;
    grad_product(s, n->in[X], dy->row_major,
                 transposed(l->in_out ? q.row_major : q.transposed),
                 (struct zt_gemm_args){.a_scale = dy->scale, .b_scale = q.scale});
    zt_scratch_free(s, q.mem);
}

static void backward_w_fp8(struct zt_step *s, struct zt_node *n, const struct coded *dy)
{
    const struct linear *l = n->attr;
    const struct coded *a, *b;
    struct coded q;
    struct zt_view x;

    if (!zt_requires_grad(s, &n->in[W], 1))
        return;
    x = zt_data(n->saved[X]);
    if (!encode(s, &q, &x, ZT_F8E4M3, TRANSPOSED))
        return;
    a = l->in_out ? &q : dy;
    b = l->in_out ? dy : &q;
    grad_product(s, n->in[W], a->transposed, transposed(b->transposed),
                 (struct zt_gemm_args){.a_scale = a->scale, .b_scale = b->scale});
    zt_scratch_free(s, q.mem);
}

/* dy w is the gradient of a SwiGLU: on to those of its gate and of what that lets through. */
static void backward_swiglu(struct zt_step *s, const struct zt_activation *made_by,
                            const struct zt_view *dy, const struct zt_view *w)
{
    struct zt_gemm_args a = {.a = *dy, .b = *w, .epilogue = ZT_EPI_SWIGLU_BWD};
    struct zt_grad_sink dgate, dup;

    if (zt_grad_sink_open(s, &dgate, made_by->gate, ZT_SINK_SAME) &&
        zt_grad_sink_open(s, &dup, made_by->up, ZT_SINK_SAME)) {
        a.gate = zt_data(made_by->gate);
        a.up = zt_data(made_by->up);
        a.dgate = dgate.view;
        a.c = dup.view;
        product(s, &a);
        zt_grad_sink_close(s, &dup);
    }
    zt_grad_sink_close(s, &dgate);
}

/* Columns that a product was padded by are no work that was asked for. y (rows, out) */
static void discount_padding(struct zt_step *s, const struct linear *l, int64_t rows,
                             int64_t out, int64_t in)
{
    if (l->padded && !s->recomputing)
        s->flops -= 2 * (double)rows * (double)(l->padded - out) * (double)in;
}

/* The gradient of x; of what an activation made x of, where that is all that it gets. */
static void backward_x(struct zt_step *s, struct zt_node *n, const struct zt_view *dy)
{
    const struct linear *l = n->attr;
    struct zt_view w = zt_data(n->saved[W]);
    struct zt_gemm_args more = {.accumulate = false};
    struct zt_tensor *x = n->in[X];
    struct zt_activation *made_by = zt_sole_activation(s, x);
    struct zt_view padded_dy = *dy;

    if (l->in_out)
        w = transposed(w);
    if (l->padded) {
        padded_dy.shape[1] = w.shape[0] = l->padded;
        dy = &padded_dy;
    }
    if (made_by && made_by->backward == ZT_EPI_SWIGLU_BWD) {
        backward_swiglu(s, made_by, dy, &w);
        return;
    }
    if (made_by) {
        more.epilogue = made_by->backward;
        more.pre =
            zt_view_of(zt_data(made_by->pre).data, x->view.dtype, 2, x->view.shape);
        made_by->done = true;
    }
    if (zt_requires_grad(s, &x, 1))
        discount_padding(s, l, dy->shape[0], zt_data(n->saved[W]).shape[0], w.shape[1]);
    grad_product(s, x, *dy, w, more);
}

/* The gradient of w, and of the bias beside it if `db` is there. */
static void backward_w(struct zt_step *s, struct zt_node *n, const struct zt_view *dy,
                       const struct zt_grad_sink *db)
{
    const struct linear *l = n->attr;
    struct zt_gemm_args more = {.accumulate = false};
    struct zt_view x;

    if (!zt_requires_grad(s, &n->in[W], 1))
        return;
    x = zt_data(n->saved[X]);
    if (db) {
        *(l->in_out ? &more.b_sum : &more.a_sum) = db->view;
        more.accumulate_sums = db->accumulate;
    }
    if (l->in_out)
        grad_product(s, n->in[W], transposed(x), *dy, more);
    else
        grad_product(s, n->in[W], transposed(*dy), x, more);
}

/* The gradients of x, w and the bias. `db`: NULL, or the bias' goes with w's. */
static void backward_products(struct zt_step *s, struct zt_node *n,
                              const struct zt_view *dy, const struct zt_grad_sink *db)
{
    const struct linear *l = n->attr;
    struct coded q;

    if (l->fp8) {
        if (!zt_requires_grad(s, n->in, 2) ||
            !encode(s, &q, dy, ZT_F8E5M2, ROW_MAJOR | TRANSPOSED))
            return;
        backward_x_fp8(s, n, &q);
        backward_w_fp8(s, n, &q);
        zt_scratch_free(s, q.mem);
        return;
    }
    backward_x(s, n, dy);
    backward_w(s, n, dy, db);
}

/* Can the sum go with the product for w? */
static bool goes_with_w(const struct zt_step *s, struct zt_node *n,
                        const struct zt_view *dy, const struct zt_grad_sink *db)
{
    const struct linear *l = n->attr;

    return !l->fp8 && zt_requires_grad(s, &n->in[W], 1) && db->view.dtype == ZT_F32 &&
           zt_view_is_contiguous(&db->view) && zt_view_is_contiguous(dy);
}

/* And those of what an adapter adds. */
static void backward_low_rank(struct zt_step *s, struct zt_node *n,
                              const struct zt_view *dy)
{
    const struct zt_gemm_args as_is = {.accumulate = false};

    if (n->num_in <= UP)
        return;
    grad_product(s, n->in[LOW], *dy, zt_data(n->saved[UP]), as_is);
    grad_product(s, n->in[UP], transposed(*dy), zt_data(n->saved[LOW]), as_is);
}

static void linear_backward(struct zt_step *s, struct zt_node *n)
{
    struct zt_view dy = rows_of(zt_grad_of(n->out));
    struct zt_grad_sink db;
    bool has_bias, with_w;
    void *scratch;

    zt_grad_complete(s, n->out);
    dy = before_epilogue(s, n, dy, &scratch);
    has_bias = zt_grad_sink_open(s, &db, n->in[BIAS], ZT_SINK_ANY);
    with_w = has_bias && goes_with_w(s, n, &dy, &db);
    backward_products(s, n, &dy, with_w ? &db : NULL);
    backward_low_rank(s, n, &dy);
    if (has_bias && !with_w) {
        struct zt_colsum_args sum = {.x = dy, .y = db.view, .accumulate = db.accumulate};

        zt_step_check(s, s->k->colsum(s->cfg.device, NULL, &sum, &s->fault));
    }
    if (has_bias)
        zt_grad_sink_close(s, &db);
    zt_scratch_free(s, scratch);
}

static const struct zt_op op_linear = {"linear", linear_backward};

static bool check_linear(struct zt_step *s, const struct zt_tensor *x,
                         const struct zt_tensor *w, const struct zt_tensor *bias,
                         unsigned flags)
{
    const struct zt_view *xv = &x->view, *wv = &w->view;
    int in = flags & ZT_W_IN_OUT ? 0 : 1;

    if (flags & ~(ZT_W_IN_OUT | ZT_GELU_TANH | ZT_GELU_ERF | ZT_OUTPUT_HEAD))
        zt_step_fail(s, ZT_E_ARG, "unknown flags 0x%x", flags);
    else if ((flags & ZT_GELU_TANH) && (flags & ZT_GELU_ERF))
        zt_step_fail(s, ZT_E_ARG, "both forms of gelu are asked for");
    else if (xv->ndim < 1 || wv->ndim != 2 || xv->shape[xv->ndim - 1] != wv->shape[in])
        zt_step_fail(s, ZT_E_ARG, "x %s but w %s, as (%s)", ZT_SHAPE_TEXT(x),
                     ZT_SHAPE_TEXT(w), in ? "out, in" : "in, out");
    else if (xv->dtype != wv->dtype || xv->dtype > ZT_F16)
        zt_step_fail(s, ZT_E_ARG, "x is %s but w is %s", zt_dtype_name(xv->dtype),
                     zt_dtype_name(wv->dtype));
    else if (bias && (bias->view.ndim != 1 || bias->view.shape[0] != wv->shape[1 - in]))
        zt_step_fail(s, ZT_E_ARG, "w %s but bias %s", ZT_SHAPE_TEXT(w),
                     ZT_SHAPE_TEXT(bias));
    return !s->fault.code;
}

/* Like y, for the values before the epilogue, when backward will want them. */
static struct zt_tensor *keep_pre(struct zt_step *s, struct zt_gemm_args *a,
                                  struct zt_tensor *const *in)
{
    struct zt_tensor *pre;

    if (a->epilogue == ZT_EPI_NONE || !zt_requires_grad(s, in, 3))
        return NULL;
    pre = zt_value_new(s, a->c.dtype, 2, a->c.shape);
    if (pre)
        a->pre = zt_data(pre);
    return pre;
}

/*
 * A value whose rows begin at boundaries that matrix units want: with room between them
 * when their own length is odd (50257 words), and without when it is not.
 */
static struct zt_tensor *new_spaced(struct zt_step *s, struct zt_view v)
{
    int last = v.ndim - 1;
    int64_t cols = v.shape[last];
    struct zt_tensor *t;

    if (cols % ROW_ALIGN == 0)
        return zt_value_new(s, v.dtype, v.ndim, v.shape);
    v.shape[last] = (cols + ROW_ROOM - 1) / ROW_ROOM * ROW_ROOM;
    t = zt_value_new(s, v.dtype, v.ndim, v.shape);
    v.shape[last] = cols;
    return t ? zt_value_view(s, t, v.ndim, v.shape, t->view.stride, 0) : NULL;
}

/* Columns that y = x w^T may have in memory: more than it has, or 0: no more. */
static int64_t padded_columns(const struct zt_step *s, const struct zt_tensor *w,
                              const struct zt_tensor *y)
{
    const struct zt_param *p = w->store->param;
    const struct zt_view *rows = &y->view;
    int64_t in = w->view.shape[1], out = w->view.shape[0], to;

    if (s->cfg.product_align <= 1 || out % ROW_ALIGN == 0 || !p || w->offset_elems ||
        w->view.stride[0] != in)
        return 0;
    to = (out + s->cfg.product_align - 1) / s->cfg.product_align * s->cfg.product_align;
    return to <= rows->stride[rows->ndim - 2] &&
                   p->offset_elems + to * in <= p->block->padded_elems
               ? to
               : 0;
}

/* The forward product, a->a and a->b being x and w as (in, out). */
static bool forward_product(struct zt_step *s, const struct linear *l,
                            struct zt_gemm_args *a)
{
    struct zt_view w = l->in_out ? a->b : transposed(a->b);
    struct coded qx, qw;
    bool ok;

    if (!l->fp8)
        return product(s, a);
    if (!encode(s, &qx, &a->a, ZT_F8E4M3, ROW_MAJOR))
        return false;
    ok = encode(s, &qw, &w, ZT_F8E4M3, l->in_out ? TRANSPOSED : ROW_MAJOR);
    if (ok) {
        a->a = qx.row_major;
        a->b = transposed(l->in_out ? qw.transposed : qw.row_major);
        a->a_scale = qx.scale;
        a->b_scale = qw.scale;
        ok = product(s, a);
        zt_scratch_free(s, qw.mem);
    }
    zt_scratch_free(s, qx.mem);
    return ok;
}

/* y += low up^T */
static bool add_low_rank(struct zt_step *s, const struct low_rank *more, struct zt_view y)
{
    struct zt_gemm_args a = {.accumulate = true, .c = y};

    if (!more->low)
        return true;
    a.a = zt_data(more->low);
    a.b = transposed(zt_data(more->up));
    return product(s, &a);
}

static void note_linear_use(const struct zt_step *s, const struct zt_tensor *w,
                            unsigned flags)
{
    struct zt_param *p = (struct zt_param *)w->store->param;
    unsigned in_out = flags & ZT_W_IN_OUT ? ZT_USED_IN_OUT : 0;

    if (!s->cfg.note_uses || !p)
        return;
    if (w->view.ndim != p->ndim || zt_view_numel(&w->view) != p->numel ||
        ((p->uses & ZT_USED_LINEAR) && (p->uses & ZT_USED_IN_OUT) != in_out))
        p->uses |= ZT_USED_ELSE;
    p->uses |= ZT_USED_LINEAR | in_out | (flags & ZT_OUTPUT_HEAD ? ZT_USED_HEAD : 0);
}

static struct zt_tensor *linear(struct zt_step *s, struct zt_tensor *x,
                                struct zt_tensor *w, struct zt_tensor *bias,
                                unsigned flags, struct low_rank more, bool spaced)
{
    struct linear l = {.in_out = flags & ZT_W_IN_OUT};
    struct zt_view shape = x->view;
    struct zt_tensor *in[NUM_LINEAR] = {NULL}, *saved[NUM_LINEAR] = {NULL}, *y;
    struct zt_gemm_args a = {.accumulate = false};
    int num = more.low ? NUM_LINEAR : PRE + 1;

    x = zt_rows_strided(s, x);
    x = x ? zt_matrices(s, x) : NULL;
    w = zt_matrices(s, w);
    bias = bias ? zt_dense(s, bias) : NULL;
    if (!x || !w || s->fault.code)
        return NULL;
    l.epilogue = flags & ZT_GELU_TANH  ? ZT_EPI_GELU_TANH
                 : flags & ZT_GELU_ERF ? ZT_EPI_GELU_ERF
                                       : ZT_EPI_NONE;
    a.epilogue = l.epilogue;
    a.a = zt_data(x);
    a.b = l.in_out ? zt_data(w) : transposed(zt_data(w));
    /* what an output head rounds goes straight into the loss */
    l.fp8 = !(flags & ZT_OUTPUT_HEAD) && takes_fp8(s, x, w, a.b.shape[1]);
    if (bias)
        a.bias = zt_data(bias);
    shape.shape[shape.ndim - 1] = a.b.shape[1];
    y = spaced ? new_spaced(s, shape)
               : zt_value_new(s, shape.dtype, shape.ndim, shape.shape);
    if (!y)
        return NULL;
    a.c = rows_of(zt_data(y));
    if (spaced && !l.in_out && !bias && !more.low)
        l.padded = padded_columns(s, w, y);
    if (l.padded)
        a.b.shape[1] = a.c.shape[1] = l.padded;
    in[X] = x;
    in[W] = saved[W] = w;
    in[BIAS] = bias;
    in[LOW] = saved[LOW] = more.low;
    in[UP] = saved[UP] = more.up;
    if (zt_requires_grad(s, &w, 1)) /* a frozen one wants no x */
        saved[X] = x;
    saved[PRE] = keep_pre(s, &a, in);
    if (s->fault.code || !forward_product(s, &l, &a) ||
        !add_low_rank(s, &more, rows_of(zt_data(y))))
        return NULL;
    discount_padding(s, &l, a.c.shape[0], zt_data(w).shape[0], a.b.shape[0]);
    if (saved[PRE])
        zt_note_activation(
            s, y,
            (struct zt_activation){.pre = saved[PRE],
                                   .backward = l.epilogue == ZT_EPI_GELU_TANH
                                                   ? ZT_EPI_GELU_TANH_BWD
                                                   : ZT_EPI_GELU_ERF_BWD});
    return zt_record(s, &op_linear, y, in, num, saved, num, &l, sizeof(l));
}

/* x under the adapter's dropout: where all rows share it, such as a table, all ranks drop the
 * same elements of it. */
static struct zt_tensor *drop_out(struct zt_step *s, const struct zt_adapter *ad,
                                  struct zt_tensor *x)
{
    if (ad->dropout == 0 || !zt_is_training(s))
        return x;
    x = x->store->of_batch ? zt_dropout(s, x, ad->dropout)
                           : zt_dropout_shared(s, x, ad->dropout);
    if (s->fault.code)
        zt_fault_context(&s->fault, s->fault.code,
                         "%s cannot be trained with --lora_dropout %g, but with 0",
                         ad->a->name, (double)ad->dropout);
    return x;
}

/* s x A^T (N, r), and B. The small products stay in the type of activations (--fp8). */
static struct low_rank low_rank_of(struct zt_step *s, const struct zt_adapter *ad,
                                   struct zt_tensor *x)
{
    const struct low_rank none = {NULL, NULL};
    struct zt_tensor *a = zt_weight(s, ad->a);
    struct low_rank r = none;

    x = drop_out(s, ad, x);
    if (!x || !a)
        return none;
    r.low = linear(s, x, a, NULL, ZT_OUTPUT_HEAD, none, false);
    r.low = zt_scale(s, r.low, ad->scale);
    r.low = r.low ? zt_rows(s, r.low) : NULL;
    r.up = zt_weight(s, ad->b);
    s->op = "linear";
    return r;
}

/* A linear op of checked operands, and what the adapter of its weight adds before gelu. */
static struct zt_tensor *adapted(struct zt_step *s, struct zt_tensor *x,
                                 struct zt_tensor *w, struct zt_tensor *bias,
                                 unsigned flags, bool spaced)
{
    const struct zt_param *p = w->store->param;
    unsigned gelu = flags & (ZT_GELU_TANH | ZT_GELU_ERF);
    struct low_rank more = {NULL, NULL};
    struct zt_tensor *y;

    note_linear_use(s, w, flags);
    if (!p || !p->adapter)
        return linear(s, x, w, bias, flags, more, spaced);
    more = low_rank_of(s, p->adapter, x);
    if (s->fault.code)
        return NULL;
    y = linear(s, x, w, bias, flags & ~gelu, more, spaced);
    return gelu == ZT_GELU_TANH  ? zt_gelu(s, y)
           : gelu == ZT_GELU_ERF ? zt_gelu_erf(s, y)
                                 : y;
}

zt_tensor *zt_linear(zt_step *s, zt_tensor *x, zt_tensor *w, zt_tensor *bias,
                     unsigned flags)
{
    if (!ZT_OP_START(s, "linear", x, w) || !check_linear(s, x, w, bias, flags))
        return NULL;
    return adapted(s, x, w, bias, flags, false);
}

struct zt_tensor *zt_linear_spaced(struct zt_step *s, struct zt_tensor *x,
                                   struct zt_tensor *w, struct zt_tensor *bias,
                                   unsigned flags)
{
    if (!ZT_OP_START(s, "linear", x, w) || !check_linear(s, x, w, bias, flags))
        return NULL;
    return adapted(s, x, w, bias, flags, true);
}

/* ---- several at once ---- */

/* One behind the other in their block, of one kind and trained alike; NULLs: nothing is. */
static bool are_alike(zt_param *const *p, int num)
{
    for (int i = 0; i < num; i++)
        if (!p[i] || p[i]->block != p[0]->block || p[i]->adapter ||
            p[i]->ndim != p[0]->ndim || p[i]->flags != p[0]->flags ||
            (p[i]->ndim == 2 && p[i]->shape[1] != p[0]->shape[1]) ||
            (i && p[i]->offset_elems != p[i - 1]->offset_elems + p[i - 1]->numel))
            return false;
    return true;
}

/* Where p begins in its block's list; what follows there is what follows in memory. */
static struct zt_param *const *in_block(const struct zt_param *p)
{
    struct zt_param *const *at = p->block->params;

    while (*at != p)
        at++;
    return at;
}

/* Decided by the model and its options alone, so that all ranks and passes do so alike. With
 * fp8 each weight has a scale of its own. */
static bool can_join(const struct zt_step *s, zt_param *const *w, zt_param *const *bias,
                     int num)
{
    bool any = false;

    for (int i = 0; bias && i < num; i++)
        any |= bias[i] != NULL;
    return num > 1 && !s->cfg.fp8 && !s->cfg.note_uses && are_alike(w, num) &&
           w[0]->ndim == 2 &&
           (!any || (are_alike(bias, num) && bias[0]->ndim == 1 &&
                     (bias[0]->flags & ZT_FROZEN) == (w[0]->flags & ZT_FROZEN)));
}

static bool joined(struct zt_step *s, struct zt_tensor *x, zt_param *const *w,
                   zt_param *const *bias, int num, struct zt_tensor **out)
{
    const struct low_rank none = {NULL, NULL};
    int64_t width[ZT_MAX_LINEARS], shape[2] = {0, w[0]->shape[1]}, at = 0;
    struct zt_tensor *all, *sums = NULL, *y;

    for (int i = 0; i < num; i++)
        shape[0] += width[i] = w[i]->shape[0];
    all = zt_joined_weights(s, in_block(w[0]), num, 2, shape);
    if (bias && bias[0])
        sums = zt_joined_weights(s, in_block(bias[0]), num, 1, shape);
    if (s->fault.code || !check_linear(s, x, all, sums, 0))
        return false;
    y = linear(s, x, all, sums, 0, none, false);
    if (!y)
        return false;
    zt_grad_in_parts(s, y, width, num);
    for (int i = 0; i < num; at += width[i++])
        out[i] = zt_slice(s, y, y->view.ndim - 1, at, width[i]);
    return !s->fault.code;
}

bool zt_linears(zt_step *s, zt_tensor *x, zt_param *const *w, zt_param *const *bias,
                int num, zt_tensor **out)
{
    for (int i = 0; i < num; i++)
        out[i] = NULL;
    if (!ZT_OP_START(s, "linear", x))
        return false;
    if (num < 1 || num > ZT_MAX_LINEARS)
        return zt_step_fail(s, ZT_E_ARG, "%d maps of one value, but %d is the most", num,
                            ZT_MAX_LINEARS);
    if (can_join(s, w, bias, num))
        return joined(s, x, w, bias, num, out);
    for (int i = 0; i < num; i++) {
        zt_param *b = bias ? bias[i] : NULL;

        out[i] = zt_linear(s, x, zt_weight(s, w[i]), b ? zt_weight(s, b) : NULL, 0);
    }
    return !s->fault.code;
}

/* ---- matmul ---- */

static void matmul_backward(struct zt_step *s, struct zt_node *n)
{
    struct zt_view a = zt_data(n->saved[0]), b = zt_data(n->saved[1]);
    struct zt_view dy = zt_grad_of(n->out);
    const struct zt_gemm_args as_is = {.accumulate = false};

    dy = a.ndim == 2
             ? zt_view_of(dy.data, dy.dtype, 2, (int64_t[]){a.shape[0], b.shape[1]})
             : zt_view_of(dy.data, dy.dtype, 3,
                          (int64_t[]){a.shape[0], a.shape[1], b.shape[2]});
    grad_product(s, n->in[0], dy, transposed(b), as_is);
    grad_product(s, n->in[1], transposed(a), dy, as_is);
}

static const struct zt_op op_matmul = {"matmul", matmul_backward};

static bool check_matmul(struct zt_step *s, const struct zt_tensor *a,
                         const struct zt_tensor *b)
{
    const struct zt_view *va = &a->view, *vb = &b->view;
    int n = va->ndim;
    bool ok = n >= 2 && vb->ndim == n && va->shape[n - 1] == vb->shape[n - 2];

    for (int i = 0; ok && i < n - 2; i++)
        ok = va->shape[i] == vb->shape[i];
    if (!ok)
        zt_step_fail(s, ZT_E_ARG, "a %s but b %s", ZT_SHAPE_TEXT(a), ZT_SHAPE_TEXT(b));
    else if (va->dtype != vb->dtype || va->dtype > ZT_F16)
        zt_step_fail(s, ZT_E_ARG, "a is %s but b is %s", zt_dtype_name(va->dtype),
                     zt_dtype_name(vb->dtype));
    return ok && !s->fault.code;
}

zt_tensor *zt_matmul(zt_step *s, zt_tensor *a, zt_tensor *b)
{
    struct zt_gemm_args args = {.accumulate = false};
    struct zt_tensor *in[2], *y;
    struct zt_view shape;

    if (!ZT_OP_START(s, "matmul", a, b) || !check_matmul(s, a, b))
        return NULL;
    shape = a->view;
    shape.shape[shape.ndim - 1] = b->view.shape[shape.ndim - 1];
    in[0] = zt_matrices(s, a);
    in[1] = zt_matrices(s, b);
    y = in[0] && in[1] ? zt_value_new(s, shape.dtype, shape.ndim, shape.shape) : NULL;
    if (!y)
        return NULL;
    args.a = zt_data(in[0]);
    args.b = zt_data(in[1]);
    args.c = args.a;
    args.c.shape[args.c.ndim - 1] = args.b.shape[args.b.ndim - 1];
    args.c = zt_view_of(zt_data(y).data, shape.dtype, args.c.ndim, args.c.shape);
    if (!product(s, &args))
        return NULL;
    return zt_record(s, &op_matmul, y, in, 2, in, 2, NULL, 0);
}
