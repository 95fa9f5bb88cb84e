#include "worker/autograd/tape.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/autograd/adapter.h"

/* ---- failing ---- */

const char *zt_shape_text(const struct zt_tensor *t, char out[96])
{
    return zt_sizes_text(t->view.ndim, t->view.shape, out);
}

/* Say where: "block h.3: linear: ...". Kernels often name themselves already. */
static void add_place(struct zt_step *s)
{
    size_t n = s->op ? strlen(s->op) : 0;

    if (n && (strncmp(s->fault.text, s->op, n) != 0 || s->fault.text[n] != ':'))
        zt_fault_context(&s->fault, s->fault.code, "%s", s->op);
    if (s->op && s->in_backward && !s->recomputing)
        zt_fault_context(&s->fault, s->fault.code, "backward");
    if (s->open)
        zt_fault_context(&s->fault, s->fault.code, "block %s", s->open->block->name);
}

void *zt_step_fail(struct zt_step *s, zt_err code, const char *fmt, ...)
{
    char text[ZT_FAULT_TEXT];
    va_list ap;

    if (s->fault.code)
        return NULL;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    zt_fault_set(&s->fault, code, "%s", text);
    add_place(s);
    return NULL;
}

bool zt_step_check(struct zt_step *s, zt_err rc)
{
    if (!rc)
        return !s->fault.code;
    if (!s->fault.code) /* it failed without a word */
        zt_fault_set(&s->fault, rc, "%s", zt_err_name(rc));
    add_place(s);
    return false;
}

/* Linear ops note for themselves how they take a weight (ops/linear.c). */
static void note_use(const char *op, const struct zt_tensor *t)
{
    struct zt_param *p = (struct zt_param *)t->store->param;

    if (p && strcmp(op, "linear") != 0 && strcmp(op, "lm_head") != 0)
        p->uses |= ZT_USED_ELSE;
}

static bool has_param(const struct zt_block *b, const zt_param *p)
{
    if (p->block == b)
        return true;
    for (int i = 0; i < b->num_shared; i++)
        if (b->shared[i] == p)
            return true;
    return false;
}

/* Why an operand cannot be read here; NULL: it can. A plugin may have kept it where it should
 * not. */
static const char *why_not(const struct zt_step *s, const struct zt_tensor *t)
{
    if (!t)
        return "is NULL";
    if (t->step != s || t->pass != s->pass_id)
        return "is of an earlier pass; a plugin keeps no tensors between passes";
    if (t->store->gone)
        return "is there no more: what a block makes leaves it by `out` alone, and what "
               "its "
               "function reads comes by `in`";
    if (t->store->param && (!s->open || !has_param(s->open->block, t->store->param)))
        return "is a weight of another block; zt_weight() is called where it is used";
    return NULL;
}

bool zt_operand_is_there(struct zt_step *s, const char *name, const struct zt_tensor *t)
{
    const char *why = s->fault.code ? NULL : why_not(s, t);

    if (why)
        zt_step_fail(s, ZT_E_ARG, "%s %s", name, why);
    return !s->fault.code;
}

bool zt_op_start(struct zt_step *s, const char *name, struct zt_tensor *const *in,
                 int num_in)
{
    char operand[24];

    if (s->fault.code)
        return false;
    s->op = name;
    if (!s->active)
        zt_step_fail(s, ZT_E_ARG, "no pass is open");
    for (int i = 0; i < num_in && !s->fault.code; i++) {
        snprintf(operand, sizeof(operand), "operand %d", i + 1);
        if (zt_operand_is_there(s, operand, in[i]) && s->cfg.note_uses)
            note_use(name, in[i]);
    }
    return !s->fault.code;
}

zt_err zt_step_status(const struct zt_step *s, struct zt_fault *fault)
{
    if (!s->fault.code)
        return ZT_OK;
    return zt_fault_set(fault, s->fault.code, "%s", s->fault.text);
}

/* ---- opening ---- */

#define FIRST_PASS                                                                       \
    0x9e3779b97f4a7c15u /* no number that memory of another use has by chance */

zt_err zt_step_open(const struct zt_step_config *cfg, struct zt_step **out,
                    struct zt_fault *fault)
{
    size_t blocks = (cfg->model ? (size_t)cfg->model->num_blocks : 0) + 1;
    struct zt_step *s;
    zt_err rc;

    if (cfg->compute_dtype > ZT_F16)
        return zt_fault_set(fault, ZT_E_ARG, "a step computes in f32, bf16 or f16");
    s = calloc(1, sizeof(*s));
    if (!s)
        return zt_fault_set(fault, ZT_E_NOMEM, "step: no host memory");
    s->cfg = *cfg;
    s->pass_id = FIRST_PASS;
    s->k = cfg->backend->kernels;
    s->arena = zt_arena_open();
    s->num_calls = calloc(blocks, sizeof(*s->num_calls));
    s->touched = calloc(blocks, sizeof(*s->touched));
    s->ready = calloc(blocks, sizeof(*s->ready));
    if (!s->arena || !s->num_calls || !s->touched || !s->ready) {
        zt_step_close(s);
        return zt_fault_set(fault, ZT_E_NOMEM, "step: no host memory");
    }
    rc = zt_host_inputs_open(s, fault);
    if (rc) {
        zt_step_close(s);
        return rc;
    }
    *out = s;
    return ZT_OK;
}

static void free_position_ids(struct zt_step *s)
{
    s->cfg.backend->host_free(s->cfg.device, s->position_ids,
                              (size_t)s->num_position_ids * sizeof(*s->position_ids));
}

void zt_step_close(struct zt_step *s)
{
    if (!s)
        return;
    free_position_ids(s);
    if (s->active)
        zt_step_end(s);
    zt_step_cache_close(s);
    zt_rope_tables_close(s);
    zt_constants_close(s);
    zt_host_inputs_close(s);
    zt_arena_close(s->arena);
    free(s->num_calls);
    free(s->touched);
    free(s->ready);
    free(s);
}

/* ---- a pass ---- */

static zt_err begin(struct zt_step *s, const struct zt_pass *pass, struct zt_fault *fault)
{
    size_t blocks = s->cfg.model ? (size_t)s->cfg.model->num_blocks : 0;

    if (s->active)
        return zt_fault_set(fault, ZT_E_ARG, "the pass before has not been ended");
    s->pass = *pass;
    s->active = true;
    s->pass_id++;
    s->bare = s->in_backward = s->recomputing = false;
    zt_cache_begin(s);
    zt_constants_begin(s);
    memset(s->num_calls, 0, blocks * sizeof(*s->num_calls));
    memset(s->touched, 0, blocks * sizeof(*s->touched));
    memset(s->ready, 0, blocks * sizeof(*s->ready));
    return ZT_OK;
}

zt_err zt_step_begin_bare(struct zt_step *s, zt_mode mode, struct zt_fault *fault)
{
    struct zt_pass pass = {.mode = mode};
    zt_err rc = begin(s, &pass, fault);

    s->bare = !rc;
    return rc;
}

/* Whether what a field says was in a pass before, or, of an uncached pass, counts for
 * nothing. */
static bool is_kept(const struct zt_step *s, const struct zt_pass *p,
                    const struct zt_field *f)
{
    return p->mode == ZT_MODE_GENERATE && p->S == 0 && zt_cache_has_sources(s) &&
           zt_field_is_of_source(f);
}

static zt_err check_pass(const struct zt_step *s, const struct zt_pass *p,
                         struct zt_fault *fault)
{
    const struct zt_model *m = s->cfg.model;

    if (!m || !m->plugin)
        return zt_fault_set(fault, ZT_E_ARG, "this step has no model to run");
    if (p->B <= 0 || p->T <= 0)
        return zt_fault_set(fault, ZT_E_ARG, "a pass of B %lld, T %lld", (long long)p->B,
                            (long long)p->T);
    for (int i = 0; i < m->layout.num; i++) {
        const struct zt_field *f = &m->layout.fields[i];

        if (p->fields[i] && zt_field_is_of_source(f) && p->S <= 0)
            return zt_fault_set(fault, ZT_E_ARG, "a pass with field %s of S %lld",
                                f->name, (long long)p->S);
        if (f->required && !p->fields[i] && (!f->label || p->mode == ZT_MODE_TRAIN) &&
            !is_kept(s, p, f))
            return zt_fault_set(fault, ZT_E_ARG, "a %s needs the field %s",
                                f->label ? "training pass" : "pass", f->name);
    }
    return ZT_OK;
}

/* Rows that read a source do so one by one, others have read theirs. */
static zt_err check_sources(const struct zt_step *s, const struct zt_pass *p,
                            struct zt_fault *fault)
{
    const struct zt_cache *c = &s->cache;
    int64_t last;

    if (!c->rows_each)
        return ZT_OK;
    last = (p->cache_row + p->B - 1) / c->rows_each;
    if (p->T > 1 || last >= c->num_sources)
        return zt_fault_set(fault, ZT_E_ARG,
                            "%lld tokens in rows %lld to %lld: a text from a source is "
                            "written token by token, in %lld rows",
                            (long long)p->T, (long long)p->cache_row,
                            (long long)(p->cache_row + p->B - 1),
                            (long long)(c->num_sources * c->rows_each));
    if (p->S && (p->B > 1 || p->cache_row % c->rows_each || p->S > c->max_source))
        return zt_fault_set(fault, ZT_E_ARG,
                            "a source of %lld tokens in %lld rows from row %lld: one of "
                            "at most %lld is read by the first of its %lld rows",
                            (long long)p->S, (long long)p->B, (long long)p->cache_row,
                            (long long)c->max_source, (long long)c->rows_each);
    for (int64_t i = p->cache_row / c->rows_each; !p->S && i <= last; i++)
        if (!c->source_lengths[i])
            return zt_fault_set(fault, ZT_E_ARG, "source %lld has not been read",
                                (long long)i);
    return ZT_OK;
}

/* The rows of a pass that reads the cache have room there, and begin where it can have
 * them begin. */
static zt_err check_cache(const struct zt_step *s, const struct zt_pass *p,
                          struct zt_fault *fault)
{
    const struct zt_cache *c = &s->cache;

    if (p->mode != ZT_MODE_GENERATE || !c->open || p->uncached)
        return ZT_OK;
    if (p->cache_row < 0 || p->B > c->B || p->cache_row > c->B - p->B)
        return zt_fault_set(fault, ZT_E_ARG,
                            "%lld rows from row %lld, but the cache is for %lld",
                            (long long)p->B, (long long)p->cache_row, (long long)c->B);
    for (int64_t b = 0; b < p->B; b++) {
        int64_t have = c->lengths[p->cache_row + b], first = c->lengths[p->cache_row];

        if (p->T > c->max_tokens - have)
            return zt_fault_set(fault, ZT_E_LIMIT,
                                "%lld tokens behind %lld cached ones are more than the "
                                "%lld that the cache holds",
                                (long long)p->T, (long long)have,
                                (long long)c->max_tokens);
        if (p->T > 1 && have != first)
            return zt_fault_set(
                fault, ZT_E_ARG,
                "%lld tokens behind %lld cached ones in one row, and %lld "
                "in another: in a pass of their own",
                (long long)p->T, (long long)first, (long long)have);
    }
    return check_sources(s, p, fault);
}

static struct zt_tensor *upload_field(struct zt_step *s, const struct zt_field *f,
                                      const void *values)
{
    int64_t shape[ZT_MAX_NDIM];
    struct zt_tensor *t;
    int ndim;

    if (!values || s->fault.code)
        return NULL;
    ndim = zt_field_shape(f, (struct zt_extent){s->pass.B, s->pass.T, s->pass.S}, shape);
    t = zt_value_new(s, f->dtype, ndim, shape);
    if (!t)
        return NULL;
    t->store->of_batch = true;
    zt_value_upload(s, t, values);
    return t;
}

static void upload_batch(struct zt_step *s)
{
    const struct zt_batch_layout *l = &s->cfg.model->layout;

    s->batch = (struct zt_batch){.layout = l};
    for (int i = 0; i < l->num; i++) {
        s->batch.fields[i] = upload_field(s, &l->fields[i], s->pass.fields[i]);
        s->pass.fields[i] = NULL;
    }
}

/* Whether the batch has all that a loss depends on: of labels those that are required, and of
 * others one at least. */
static bool has_labels(const struct zt_step *s)
{
    const struct zt_batch_layout *l = &s->cfg.model->layout;
    int labels = 0, there = 0;

    for (int i = 0; i < l->num; i++) {
        labels += l->fields[i].label;
        there += l->fields[i].label && s->batch.fields[i];
        if (l->fields[i].label && l->fields[i].required && !s->batch.fields[i])
            return false;
    }
    return s->pass.mode == ZT_MODE_TRAIN ||
           (s->pass.mode == ZT_MODE_EVAL && (there || !labels));
}

/* Logits of every position, or of the last: (B, T or 1, V). */
static bool is_logits(const struct zt_step *s, const struct zt_view *v)
{
    int64_t vocab = s->cfg.model->vocab;

    return v->ndim == 3 && v->shape[0] == s->pass.B &&
           (v->shape[1] == s->pass.T || v->shape[1] == 1) &&
           (!vocab || v->shape[2] == vocab) && v->stride[2] == 1 && v->dtype <= ZT_F16;
}

/* Whether samples share rows, and forward has not asked where each begins. */
static bool mixes_samples(const struct zt_step *s)
{
    int i = zt_batch_find(s->batch.layout, ZT_SEGMENT_BEGIN);

    return i >= 0 && s->batch.fields[i] && !(s->batch.asked & 1u << i) &&
           !s->cfg.note_uses; /* whose pass has every field */
}

/* What the plugin handed back: a loss where one is due, logits where text is written. */
static void check_result(struct zt_step *s, const struct zt_tensor *t)
{
    const char *name = s->cfg.model->plugin->name;

    s->op = NULL;
    if (s->fault.code)
        return;
    if (!t)
        zt_step_fail(s, ZT_E_PLUGIN, "plugin %s: forward returned NULL", name);
    else if (mixes_samples(s))
        zt_step_fail(
            s, ZT_E_PLUGIN,
            "plugin %s: samples share rows (--packing bfd), and forward does not "
            "take the field " ZT_SEGMENT_BEGIN ", as .key_begin of attention, to "
            "keep them apart",
            name);
    else if (has_labels(s) && (t->view.dtype != ZT_F32 || t->store->numel != 1))
        zt_step_fail(s, ZT_E_PLUGIN,
                     "plugin %s: with labels in the batch forward must return the "
                     "summed loss, a scalar f32; it returned %s %s",
                     name, zt_dtype_name(t->view.dtype), ZT_SHAPE_TEXT(t));
    else if (s->pass.mode == ZT_MODE_GENERATE && !is_logits(s, &t->view))
        zt_step_fail(s, ZT_E_PLUGIN,
                     "plugin %s: without labels forward must return the logits of all "
                     "positions, (%lld, %lld, %lld), or of the last alone; it returned "
                     "%s %s",
                     name, (long long)s->pass.B, (long long)s->pass.T,
                     (long long)s->cfg.model->vocab, zt_dtype_name(t->view.dtype),
                     ZT_SHAPE_TEXT(t));
    else if (t->store->param)
        zt_step_fail(s, ZT_E_PLUGIN, "plugin %s: forward returned a weight", name);
    else if (s->pass.mode == ZT_MODE_TRAIN && !t->store->requires_grad)
        zt_step_fail(
            s, ZT_E_PLUGIN,
            "plugin %s: the loss that forward returned depends on no parameter "
            "that is trained (those of ZT_FROZEN are not): nothing would be learnt",
            name);
}

static void keep(struct zt_tensor *t)
{
    if (t)
        t->store->keep = true;
}

zt_err zt_step_forward(struct zt_step *s, const struct zt_pass *pass, zt_tensor **out,
                       struct zt_fault *fault)
{
    const struct zt_model *m = s->cfg.model;
    struct zt_tensor *t = NULL;
    zt_err rc = check_pass(s, pass, fault);

    if (!rc)
        rc = check_cache(s, pass, fault);
    if (!rc)
        rc = begin(s, pass, fault);
    if (rc)
        return rc;
    upload_batch(s);
    if (!s->fault.code)
        t = m->plugin->forward(s, m->self, &s->batch);
    if (!zt_model_check_options(m, &s->fault))
        check_result(s, t);
    if (s->fault.code)
        return zt_step_status(s, fault);
    keep(t);
    for (int i = 0; i < m->layout.num; i++)
        keep(s->batch.fields[i]);
    zt_frame_leave(s, NULL);
    zt_cache_advance(s);
    *out = t;
    return ZT_OK;
}

zt_err zt_step_backward(struct zt_step *s, zt_tensor *loss, float dloss,
                        struct zt_fault *fault)
{
    if (!s->active || s->pass.mode != ZT_MODE_TRAIN || s->in_backward)
        return zt_fault_set(fault, ZT_E_ARG,
                            "backward needs a training pass, and only one of it");
    if (!loss || loss->store->numel != 1 || loss->view.dtype != ZT_F32)
        return zt_fault_set(fault, ZT_E_ARG, "backward starts from a scalar f32");
    s->in_backward = true;
    zt_run_backward(s, loss, dloss);
    return zt_step_status(s, fault);
}

void zt_step_end(struct zt_step *s)
{
    zt_stores_release(s);
    zt_constants_end(s);
    zt_arena_reset(s->arena);
    s->results = NULL;
    s->calls = s->open = NULL;
    s->root = NULL;
    s->batch = (struct zt_batch){.layout = NULL};
    s->op = NULL;
    s->fault.code = ZT_OK;
    s->fault.text[0] = 0;
    s->active = false;
}

double zt_step_take_flops(struct zt_step *s)
{
    double flops = s->flops;

    s->flops = 0;
    return flops;
}

struct zt_recompute_times zt_step_take_times(struct zt_step *s)
{
    struct zt_recompute_times times = s->times;

    s->times = (struct zt_recompute_times){.calls = 0};
    return times;
}

struct zt_product zt_step_largest_product(const struct zt_step *s)
{
    return s->largest;
}

/* ---- results ---- */

const zt_tensor *zt_step_find_result(const struct zt_step *s, const char *name)
{
    const struct zt_result *r = s->results;

    while (r && strcmp(r->name, name) != 0)
        r = r->next;
    return r ? r->t : NULL;
}

/* ---- what a plugin asks ---- */

const struct zt_view *zt_tensor_view(const zt_tensor *t)
{
    return &t->view;
}

int zt_tensor_ndim(const zt_tensor *t)
{
    return t ? t->view.ndim : 0;
}

int64_t zt_tensor_dim(const zt_tensor *t, int axis)
{
    int at;

    if (!t)
        return 0;
    at = axis < 0 ? axis + t->view.ndim : axis;
    if (at < 0 || at >= t->view.ndim) {
        t->step->op = NULL;
        zt_step_fail(t->step, ZT_E_ARG, "zt_tensor_dim: no axis %d in %s", axis,
                     ZT_SHAPE_TEXT(t));
        return 0;
    }
    return t->view.shape[at];
}

zt_dtype zt_tensor_dtype(const zt_tensor *t)
{
    return t ? t->view.dtype : ZT_F32;
}

zt_dtype zt_compute_dtype(const zt_step *s)
{
    return s->cfg.compute_dtype;
}

bool zt_is_training(const zt_step *s)
{
    return s->pass.mode == ZT_MODE_TRAIN;
}

zt_tensor *zt_batch_field(zt_step *s, const zt_batch *b, const char *name)
{
    int i;

    if (!zt_op_start(s, "batch", NULL, 0))
        return NULL;
    i = name ? zt_batch_find(b->layout, name) : -1;
    if (i < 0)
        return zt_step_fail(s, ZT_E_PLUGIN,
                            "no field %s was declared in build (zt_model_field)",
                            name ? name : "NULL");
    s->batch.asked |= 1u << i;
    return b->fields[i];
}

struct zt_tensor *zt_joined_weights(struct zt_step *s, struct zt_param *const *params,
                                    int num, int ndim, const int64_t *shape)
{
    struct zt_param *param = *params;
    struct zt_tensor *t;
    struct zt_view v;

    if (!s->open || !has_param(s->open->block, param))
        return zt_step_fail(s, ZT_E_PLUGIN, "%s belongs to block %s%s", param->name,
                            param->block->name,
                            s->open ? ", which this one neither is nor shares it with"
                                    : ", and is only reachable inside a block call");
    if (!param->block->weights)
        return zt_step_fail(s, ZT_E_ARG, "%s has no memory bound to it", param->name);
    v = zt_view_of(NULL, s->cfg.compute_dtype, ndim, shape);
    t = zt_value_borrow(s, &v);
    if (!t)
        return NULL;
    t->store->param = param;
    t->store->params = num > 1 ? params : NULL;
    t->store->num_params = num > 1 ? num : 0;
    t->store->grad_dtype = ZT_F32;
    t->store->requires_grad = s->pass.mode == ZT_MODE_TRAIN &&
                              param->block->requires_grads && !(param->flags & ZT_FROZEN);
    t->view = zt_data(t);
    return t;
}

zt_tensor *zt_weight(zt_step *s, zt_param *param)
{
    if (!zt_op_start(s, "weight", NULL, 0))
        return NULL;
    if (!param)
        return zt_step_fail(s, ZT_E_ARG, "the parameter is NULL");
    return zt_joined_weights(s, &param, 1, param->ndim, param->shape);
}

/* At least `n` numbers to count with, which an upload may read at any time. */
static bool grow_position_ids(struct zt_step *s, int64_t n)
{
    const struct zt_backend *be = s->cfg.backend;
    int64_t most = n > 2 * s->num_position_ids ? n : 2 * s->num_position_ids;
    void *more = NULL;
    zt_err rc = ZT_OK;

    if (n <= s->num_position_ids)
        return true;
    rc = be->host_alloc(s->cfg.device, (size_t)most * sizeof(*s->position_ids), &more,
                        &s->fault);
    if (!rc)
        rc = be->sync(s->cfg.device, NULL, &s->fault); /* uploads from the one before */
    if (!zt_step_check(s, rc)) {
        be->host_free(s->cfg.device, more, (size_t)most * sizeof(*s->position_ids));
        return false;
    }
    free_position_ids(s);
    s->position_ids = more;
    s->num_position_ids = most;
    for (int64_t i = 0; i < most; i++)
        s->position_ids[i] = (int32_t)i;
    return true;
}

zt_tensor *zt_positions(zt_step *s, int64_t T)
{
    bool cached = zt_cache_is_used(s);
    int64_t first = cached ? zt_cache_length(s, 0) : 0;
    struct zt_tensor *t;

    if (!zt_op_start(s, "positions", NULL, 0))
        return NULL;
    if (cached && s->pass.B > 1 && T == 1) { /* each row has its own */
        t = zt_cache_lengths(s);
        return t ? zt_value_view(s, t, 2, (int64_t[]){s->pass.B, 1}, (int64_t[]){1, 1}, 0)
                 : NULL;
    }
    if (T <= 0 || T > INT32_MAX / 2 - first)
        return zt_step_fail(s, ZT_E_ARG, "%lld of them", (long long)T);
    t = grow_position_ids(s, first + T) ? zt_value_new(s, ZT_I32, 1, &T) : NULL;
    if (!t)
        return NULL;
    zt_value_upload(s, t, s->position_ids + first);
    return s->fault.code ? NULL : t;
}

/* ---- single ops, for tests ---- */

zt_tensor *zt_step_leaf(struct zt_step *s, struct zt_view v, bool requires_grad)
{
    struct zt_tensor *t;

    if (!zt_op_start(s, "leaf", NULL, 0))
        return NULL;
    if (!zt_view_is_contiguous(&v))
        return zt_step_fail(s, ZT_E_ARG, "its view must be row-major");
    t = zt_value_borrow(s, &v);
    if (t)
        t->store->requires_grad = requires_grad && s->pass.mode == ZT_MODE_TRAIN;
    return t;
}

const struct zt_view *zt_step_leaf_grad(const zt_tensor *leaf)
{
    struct zt_tensor *t = (struct zt_tensor *)leaf;

    if (!t->store->grad)
        return NULL;
    t->on_leaf = zt_grad_of(t);
    return &t->on_leaf;
}
