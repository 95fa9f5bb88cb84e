/* loss.c -- sums of losses, and the head of a language model. */
#include "worker/autograd/tape.h"

/* ---- cross-entropy ---- */

enum { LOGITS, TARGETS, LSE };

/*
 * The head of a language model makes the gradient of its logits while it has a row of them at
 * hand for the loss: a pass over (B, T, V) less. It needs what the loss's own gradient will
 * be, which the pass says, and logits that nobody else sees. Where backward starts from
 * another number, what was made is multiplied by what is missing.
 */
struct cross_entropy {
    float made_for; /* the logits are their gradient for this dloss; 0: they are logits */
};

/* Rows, with nothing between them but what makes their memory begin well. */
static bool is_all_of(const struct zt_storage *st, const struct zt_view *rows)
{
    return rows->shape[0] * rows->stride[0] == st->numel;
}

/*
 * True when the logits' memory can become their gradient: this node is all that keeps
 * them, and nothing else has sent them a gradient. The memory changes hands.
 */
static bool take_over(struct zt_tensor *logits)
{
    const struct zt_storage *st = logits->store;

    return st->owned && st->refs == 1 && !st->grad && st->grad_dtype == st->dtype &&
           is_all_of(st, &logits->view);
}

/* Backward began at this value, from that number. */
static bool starts_from(const struct zt_step *s, const struct zt_tensor *loss,
                        float dloss)
{
    return s->root == loss->store && s->dloss == dloss;
}

static void cross_entropy_backward(struct zt_step *s, struct zt_node *n)
{
    const struct cross_entropy *how = n->attr;
    struct zt_tensor *logits = n->in[0];
    bool in_place = take_over(logits);
    struct zt_cross_entropy_bwd_args a = {
        .logits = zt_data(logits),
        .targets = zt_data(n->saved[TARGETS]),
        .lse = zt_data(n->saved[LSE]),
        .dloss = zt_grad_of(n->out),
        .ignore = ZT_IGNORE_TARGET,
        .smoothing = s->cfg.label_smoothing,
        .made_for = how->made_for,
    };
    struct zt_grad_sink d = {.temp = NULL};

    a.targets = zt_view_of(a.targets.data, ZT_I32, 1, a.logits.shape);
    if (in_place) {
        if (!zt_grad_adopt(s, logits->store) || starts_from(s, n->out, how->made_for))
            return;
        a.dlogits = a.logits;
        a.clear_between = true;
    } else {
        if (!zt_grad_sink_open(s, &d, logits, ZT_SINK_SAME))
            return;
        a.dlogits = d.view;
        a.accumulate = d.accumulate;
    }
    zt_step_check(s, s->k->cross_entropy_bwd(s->cfg.device, NULL, &a, &s->fault));
    zt_grad_sink_close(s, &d);
}

static const struct zt_op op_cross_entropy = {"cross_entropy", cross_entropy_backward};

/* Whether the logits, which only this op will read, can become their gradient at once. */
static bool can_make_gradient(const struct zt_step *s, struct zt_tensor *logits)
{
    return s->pass.mode == ZT_MODE_TRAIN && s->pass.dloss != 0 &&
           zt_requires_grad(s, &logits, 1) && take_over(logits);
}

/* A target for each row of logits: in the same places, or where one of them is a list of all. */
static bool are_targets(const struct zt_view *targets, const struct zt_view *logits)
{
    bool ok =
        logits->ndim >= 1 &&
        zt_view_numel(targets) * logits->shape[logits->ndim - 1] == zt_view_numel(logits);

    for (int i = 0; ok && targets->ndim == logits->ndim - 1 && i < targets->ndim; i++)
        ok = targets->shape[i] == logits->shape[i];
    return ok;
}

/* is_private: nobody but the caller has the logits, and it will not read them again. */
static struct zt_tensor *cross_entropy(struct zt_step *s, struct zt_tensor *logits,
                                       struct zt_tensor *targets, bool is_private)
{
    struct zt_cross_entropy_args a = {.ignore = ZT_IGNORE_TARGET,
                                      .smoothing = s->cfg.label_smoothing};
    struct cross_entropy how = {.made_for = 0};
    struct zt_tensor *saved[3], *loss;
    const struct zt_view *v;

    if (!ZT_OP_START(s, "cross_entropy", logits, targets))
        return NULL;
    v = &logits->view;
    if (v->dtype > ZT_F16 || targets->view.dtype != ZT_I32 ||
        !are_targets(&targets->view, v) || !zt_view_is_contiguous(&targets->view))
        return zt_step_fail(s, ZT_E_ARG, "logits %s %s but targets %s %s",
                            ZT_SHAPE_TEXT(logits), zt_dtype_name(v->dtype),
                            ZT_SHAPE_TEXT(targets), zt_dtype_name(targets->view.dtype));
    loss = zt_value_new(s, ZT_F32, 0, NULL);
    logits = zt_unit_last(s, logits);
    logits = logits ? zt_rows_strided(s, logits) : NULL;
    if (s->fault.code)
        return NULL;
    saved[LOGITS] = logits;
    saved[TARGETS] = targets;
    saved[LSE] = zt_value_new(s, ZT_F32, 1, logits->view.shape);
    if (s->fault.code)
        return NULL;
    a.logits = zt_data(logits);
    a.targets = zt_view_of(zt_data(targets).data, ZT_I32, 1, logits->view.shape);
    a.loss = zt_data(loss);
    a.lse = zt_data(saved[LSE]);
    if (is_private && can_make_gradient(s, logits)) {
        a.dlogits = a.logits;
        a.clear_between = true; /* a padded product multiplies it (linear.c) */
        a.dloss = how.made_for = s->pass.dloss;
    }
    zt_step_check(s, s->k->cross_entropy(s->cfg.device, NULL, &a, &s->fault));
    return zt_record(s, &op_cross_entropy, loss, &logits, 1, saved, 3, &how, sizeof(how));
}

zt_tensor *zt_cross_entropy(zt_step *s, zt_tensor *logits, zt_tensor *targets)
{
    return cross_entropy(s, logits, targets, false);
}

/* ---- squared error ---- */

static void squared_error_backward(struct zt_step *s, struct zt_node *n)
{
    struct zt_squared_error_bwd_args a = {
        .x = zt_data(n->saved[0]),
        .y = zt_data(n->saved[1]),
        .dloss = zt_grad_of(n->out),
    };
    struct zt_grad_sink dx, dy;

    zt_grad_sink_open(s, &dx, n->in[0], ZT_SINK_SAME);
    if (n->in[0]->store == n->in[1]->store)
        zt_grad_sink_open_apart(s, &dy, n->in[1]);
    else
        zt_grad_sink_open(s, &dy, n->in[1], ZT_SINK_SAME);
    a.dx = dx.view;
    a.dy = dy.view;
    a.accumulate_x = dx.accumulate;
    a.accumulate_y = dy.accumulate;
    if (!s->fault.code)
        zt_step_check(s, s->k->squared_error_bwd(s->cfg.device, NULL, &a, &s->fault));
    zt_grad_sink_close(s, &dx);
    zt_grad_sink_close(s, &dy);
}

static const struct zt_op op_squared_error = {"squared_error", squared_error_backward};

zt_tensor *zt_squared_error(zt_step *s, zt_tensor *x, zt_tensor *y)
{
    struct zt_squared_error_args a;
    struct zt_tensor *in[2], *loss;
    bool ok;

    if (!ZT_OP_START(s, "squared_error", x, y))
        return NULL;
    ok = x->view.ndim == y->view.ndim && x->view.dtype == y->view.dtype &&
         x->view.dtype <= ZT_F16;
    for (int i = 0; ok && i < x->view.ndim; i++)
        ok = x->view.shape[i] == y->view.shape[i];
    if (!ok)
        return zt_step_fail(s, ZT_E_ARG, "x %s %s but y %s %s", ZT_SHAPE_TEXT(x),
                            zt_dtype_name(x->view.dtype), ZT_SHAPE_TEXT(y),
                            zt_dtype_name(y->view.dtype));
    loss = zt_value_new(s, ZT_F32, 0, NULL);
    in[0] = zt_dense(s, x);
    in[1] = zt_dense(s, y);
    if (s->fault.code)
        return NULL;
    a.x = zt_data(in[0]);
    a.y = zt_data(in[1]);
    a.loss = zt_data(loss);
    zt_step_check(s, s->k->squared_error(s->cfg.device, NULL, &a, &s->fault));
    return zt_record(s, &op_squared_error, loss, in, 2, in, 2, NULL, 0);
}

/* ---- language models ---- */

zt_tensor *zt_lm_head(zt_step *s, zt_tensor *x, zt_tensor *w, zt_tensor *targets)
{
    return zt_lm_head_bias(s, x, w, NULL, targets);
}

zt_tensor *zt_lm_head_bias(zt_step *s, zt_tensor *x, zt_tensor *w, zt_tensor *bias,
                           zt_tensor *targets)
{
    if (!ZT_OP_START(s, "lm_head", x, w))
        return NULL;
    if (x->view.ndim != 3)
        return zt_step_fail(s, ZT_E_ARG, "x %s, but (B, T, C) is wanted",
                            ZT_SHAPE_TEXT(x));
    if (targets)
        return cross_entropy(s, zt_linear_spaced(s, x, w, bias, ZT_OUTPUT_HEAD), targets,
                             true);
    if (s->pass.last_only)
        x = zt_slice(s, x, 1, x->view.shape[1] - 1, 1);
    return zt_linear(s, x, w, bias, ZT_OUTPUT_HEAD);
}
