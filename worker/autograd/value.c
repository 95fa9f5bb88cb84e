#include <string.h>

#include "worker/autograd/tape.h"

static size_t bytes_of(int64_t numel, zt_dtype dtype)
{
    return (size_t)numel * zt_dtype_bytes(dtype);
}

static void *pool_take(struct zt_step *s, int64_t numel, zt_dtype dtype)
{
    void *p = NULL;
    zt_err rc;

    if (s->fault.code)
        return NULL;
    rc = zt_pool_alloc(s->cfg.pool, bytes_of(numel, dtype), &p, &s->fault);
    return zt_step_check(s, rc) ? p : NULL;
}

/* ---- values ---- */

static void *arena_take(struct zt_step *s, size_t bytes)
{
    void *p = zt_arena_take(s->arena, bytes);

    return p ? p : zt_step_fail(s, ZT_E_NOMEM, "no host memory for the tape");
}

static struct zt_storage *new_store(struct zt_step *s, int64_t numel, zt_dtype dtype)
{
    struct zt_storage *st = arena_take(s, sizeof(*st));

    if (!st)
        return NULL;
    st->numel = numel;
    st->dtype = st->grad_dtype = dtype;
    st->refs = 1;
    st->next = s->stores;
    s->stores = st;
    st->next_local = s->frame;
    s->frame = st;
    return st;
}

static struct zt_tensor *new_handle(struct zt_step *s, struct zt_storage *st)
{
    struct zt_tensor *t = st ? arena_take(s, sizeof(*t)) : NULL;

    if (!t)
        return NULL;
    t->step = s;
    t->pass = s->pass_id;
    t->store = st;
    return t;
}

struct zt_tensor *zt_value_new(struct zt_step *s, zt_dtype dtype, int ndim,
                               const int64_t *shape)
{
    struct zt_view v = zt_view_of(NULL, dtype, ndim, shape);
    int64_t numel = zt_view_numel(&v);
    struct zt_tensor *t;

    v.data = pool_take(s, numel, dtype);
    if (!v.data)
        return NULL;
    t = new_handle(s, new_store(s, numel, dtype));
    if (!t) {
        zt_pool_free(s->cfg.pool, v.data);
        return NULL;
    }
    t->store->data = v.data;
    t->store->owned = true;
    t->view = v;
    return t;
}

struct zt_tensor *zt_value_borrow(struct zt_step *s, const struct zt_view *v)
{
    struct zt_tensor *t;

    if (s->fault.code)
        return NULL;
    t = new_handle(s, new_store(s, zt_view_numel(v), v->dtype));
    if (!t)
        return NULL;
    t->store->data = v->data;
    t->view = *v;
    return t;
}

struct zt_tensor *zt_value_view(struct zt_step *s, struct zt_tensor *t, int ndim,
                                const int64_t *shape, const int64_t *stride,
                                int64_t offset_elems)
{
    struct zt_tensor *v = new_handle(s, t->store);

    if (!v)
        return NULL;
    v->offset_elems = offset_elems;
    v->view.dtype = t->view.dtype;
    v->view.ndim = ndim;
    memcpy(v->view.shape, shape, (size_t)ndim * sizeof(*shape));
    memcpy(v->view.stride, stride, (size_t)ndim * sizeof(*stride));
    v->view = zt_data(v);
    return v;
}

struct zt_view zt_data(const struct zt_tensor *t)
{
    const struct zt_storage *st = t->store;
    struct zt_view v = t->view;
    size_t width = zt_dtype_bytes(v.dtype);
    char *base;

    if (st->place != ZT_ON_DEVICE)
        zt_host_input_need(t->step, t->store);
    base = st->data;
    if (st->param) /* a block's weights may move between two calls */
        base =
            (char *)st->param->block->weights + (size_t)st->param->offset_elems * width;
    v.data = base + (size_t)t->offset_elems * width;
    return v;
}

void zt_value_upload(struct zt_step *s, struct zt_tensor *t, const void *src)
{
    size_t bytes = bytes_of(t->store->numel, t->view.dtype);

    zt_step_check(s, s->cfg.backend->upload(s->cfg.device, NULL, t->view.data, src, bytes,
                                            &s->fault));
}

void zt_store_ref(struct zt_storage *st)
{
    st->refs++;
}

void zt_store_unref(struct zt_step *s, struct zt_storage *st)
{
    if (--st->refs > 0 || !st->owned)
        return;
    zt_host_input_drop(s, st);
    zt_pool_free(s->cfg.pool, st->data);
    st->owned = false;
    st->gone = true;
}

void zt_grad_drop(struct zt_step *s, struct zt_storage *st)
{
    struct zt_grad *g = st->grad;

    st->grad = NULL;
    if (g && --g->refs == 0 && g->owned)
        zt_pool_free(s->cfg.pool, g->data);
}

bool zt_grad_adopt(struct zt_step *s, struct zt_storage *st)
{
    struct zt_grad *g = arena_take(s, sizeof(*g));

    if (!g)
        return false;
    *g = (struct zt_grad){.data = st->data, .refs = 1, .owned = true};
    st->grad = g;
    st->owned = false;
    return true;
}

void zt_stores_release(struct zt_step *s)
{
    for (struct zt_storage *st = s->stores; st; st = st->next) {
        zt_grad_drop(s, st);
        zt_host_input_drop(s, st);
        if (st->owned)
            zt_pool_free(s->cfg.pool, st->data);
        st->owned = false;
    }
    s->stores = s->frame = s->leaving = NULL;
}

/* ---- gradients ---- */

struct zt_view zt_grad_of(const struct zt_tensor *t)
{
    const struct zt_storage *st = t->store;
    struct zt_view v = t->view;

    v.dtype = st->grad_dtype;
    v.data = (char *)st->grad->data + bytes_of(t->offset_elems, v.dtype);
    return v;
}

static bool fill_zero(struct zt_step *s, void *data, zt_dtype dtype, int64_t numel)
{
    struct zt_fill_args a = {.y = zt_view_of(data, dtype, 1, &numel)};

    return zt_step_check(s, s->k->fill(s->cfg.device, NULL, &a, &s->fault));
}

static bool add_into(struct zt_step *s, struct zt_view x, struct zt_view y,
                     bool accumulate)
{
    struct zt_axpby_args a = {.x = x, .y = y, .alpha = 1, .beta = accumulate ? 1 : 0};

    return zt_step_check(s, s->k->axpby(s->cfg.device, NULL, &a, &s->fault));
}

static int num_params(const struct zt_storage *st)
{
    return st->num_params ? st->num_params : 1;
}

static struct zt_param *param_at(const struct zt_storage *st, int i)
{
    return st->num_params ? st->params[i] : (struct zt_param *)st->param;
}

static struct zt_grad *new_grad(struct zt_step *s, struct zt_storage *st)
{
    struct zt_grad *g = arena_take(s, sizeof(*g));

    if (!g)
        return NULL;
    g->refs = 1;
    if (st->param) {
        for (int i = 0; i < num_params(st); i++)
            param_at(st, i)->reached = true;
        g->data = st->param->block->grads + st->param->offset_elems;
        return g;
    }
    g->data = pool_take(s, st->numel, st->grad_dtype);
    g->owned = true;
    return g->data ? g : NULL;
}

/* A gradient that only `st` has, with the values of the one it shares (G2). */
static bool unshare(struct zt_step *s, struct zt_storage *st)
{
    struct zt_grad *was = st->grad, *g;

    if (was->refs == 1)
        return true;
    g = new_grad(s, st);
    if (!g)
        return false;
    was->refs--;
    st->grad = g;
    return add_into(s, zt_view_of(was->data, st->grad_dtype, 1, &st->numel),
                    zt_view_of(g->data, st->grad_dtype, 1, &st->numel), false);
}

static bool covers(const struct zt_tensor *t)
{
    return zt_view_numel(&t->view) == t->store->numel;
}

/*
 * Whether what is in the gradients of all weights of a store counts for nothing; where that is
 * so of some alone, they become zero. It does count from now on.
 */
static bool take_new(struct zt_step *s, const struct zt_storage *st)
{
    bool all = true;

    for (int i = 0; i < num_params(st); i++)
        all &= param_at(st, i)->is_new;
    for (int i = 0; i < num_params(st); i++) {
        struct zt_param *p = param_at(st, i);

        if (p->is_new && !all)
            fill_zero(s, p->block->grads + p->offset_elems, ZT_F32, p->numel);
        p->is_new = false;
    }
    return all;
}

/* The part of its store's columns that t is; -1: none of them. */
static int part_of(const struct zt_tensor *t)
{
    const struct zt_parts *p = t->store->parts;
    int64_t rows = p ? t->store->numel / p->begin[p->num] : 0;

    for (int i = 0; p && i < p->num; i++)
        if (t->offset_elems == p->begin[i] &&
            zt_view_numel(&t->view) == rows * (p->begin[i + 1] - p->begin[i]))
            return i;
    return -1;
}

void zt_grad_in_parts(struct zt_step *s, struct zt_tensor *t, const int64_t *widths,
                      int num)
{
    struct zt_parts *p = arena_take(s, sizeof(*p));

    if (!p)
        return;
    *p = (struct zt_parts){.num = num};
    for (int i = 0; i < num; i++)
        p->begin[i + 1] = p->begin[i] + widths[i];
    t->store->parts = p;
}

/* Zeros into a view, whatever its strides. */
static bool clear(struct zt_step *s, const struct zt_view *y)
{
    struct zt_view x = *y;
    void *zero;

    if (zt_view_is_contiguous(y))
        return fill_zero(s, y->data, y->dtype, zt_view_numel(y));
    zero = pool_take(s, 1, y->dtype);
    x.data = zero;
    memset(x.stride, 0, sizeof(x.stride));
    if (zero && fill_zero(s, zero, y->dtype, 1))
        add_into(s, x, *y, false);
    zt_pool_free(s->cfg.pool, zero);
    return !s->fault.code;
}

void zt_grad_complete(struct zt_step *s, struct zt_tensor *t)
{
    const struct zt_storage *st = t->store;
    struct zt_parts *p = st->parts;

    for (int i = 0; p && i < p->num && !s->fault.code; i++) {
        int64_t cols = p->begin[p->num], width = p->begin[i + 1] - p->begin[i];
        struct zt_view v =
            zt_view_of((char *)st->grad->data + bytes_of(p->begin[i], st->grad_dtype),
                       st->grad_dtype, 2, (int64_t[]){st->numel / cols, width});

        v.stride[0] = cols;
        if (!p->is_written[i])
            clear(s, &v);
        p->is_written[i] = true;
    }
}

/* Make t's gradient writable. *fresh: it was not there and is not initialised. */
static bool hold_grad(struct zt_step *s, struct zt_tensor *t, bool *fresh)
{
    struct zt_storage *st = t->store;

    int part = part_of(t);
    bool is_first = !st->grad;

    *fresh = false;
    if (st->grad && !unshare(s, st))
        return false;
    if (is_first)
        st->grad = new_grad(s, st);
    if (!st->grad)
        return false;
    if (part >= 0) {
        *fresh = !st->parts->is_written[part];
        st->parts->is_written[part] = true;
        return true;
    }
    if (st->parts)
        zt_grad_complete(s, t);
    if (!is_first || st->parts)
        return !s->fault.code;
    if (st->param && !take_new(s, st)) /* adds to other calls and micro-batches */
        return true;
    *fresh = covers(t);
    return *fresh || fill_zero(s, st->grad->data, st->grad_dtype, st->numel);
}

static bool sink_temp(struct zt_step *s, struct zt_grad_sink *k, zt_dtype dtype,
                      bool zero)
{
    int64_t n = zt_view_numel(&k->t->view);

    k->temp = pool_take(s, n, dtype);
    if (!k->temp)
        return false;
    k->view = zt_view_of(k->temp, dtype, k->t->view.ndim, k->t->view.shape);
    k->accumulate = zero;
    return !zero || fill_zero(s, k->temp, dtype, n);
}

static bool sink_open(struct zt_step *s, struct zt_grad_sink *k, struct zt_tensor *t,
                      zt_sink_kind kind, bool adding)
{
    zt_dtype want;
    bool fresh;

    *k = (struct zt_grad_sink){.t = t};
    if (s->fault.code || !t || !t->store->requires_grad)
        return false;
    want = kind == ZT_SINK_F32    ? ZT_F32
           : kind == ZT_SINK_SAME ? t->view.dtype
                                  : t->store->grad_dtype;
    if (want != t->store->grad_dtype)
        return sink_temp(s, k, want, adding);
    if (!hold_grad(s, t, &fresh))
        return false;
    k->view = zt_grad_of(t);
    k->accumulate = !fresh;
    if (!fresh || !adding)
        return true;
    k->accumulate = true;
    return clear(s, &k->view);
}

bool zt_grad_sink_open(struct zt_step *s, struct zt_grad_sink *k, struct zt_tensor *t,
                       zt_sink_kind kind)
{
    return sink_open(s, k, t, kind, false);
}

bool zt_grad_sink_open_adding(struct zt_step *s, struct zt_grad_sink *k,
                              struct zt_tensor *t, zt_sink_kind kind)
{
    return sink_open(s, k, t, kind, true);
}

bool zt_grad_sink_open_apart(struct zt_step *s, struct zt_grad_sink *k,
                             struct zt_tensor *t)
{
    *k = (struct zt_grad_sink){.t = t};
    return !s->fault.code && t && t->store->requires_grad &&
           sink_temp(s, k, t->view.dtype, false);
}

void zt_grad_sink_open_discarded(struct zt_step *s, struct zt_grad_sink *k,
                                 const struct zt_tensor *t)
{
    *k = (struct zt_grad_sink){.t = NULL};
    k->temp = pool_take(s, zt_view_numel(&t->view), t->view.dtype);
    k->view = zt_view_of(k->temp, t->view.dtype, t->view.ndim, t->view.shape);
}

void zt_grad_sink_close(struct zt_step *s, struct zt_grad_sink *k)
{
    bool fresh;

    if (!k->temp)
        return;
    if (k->t && !s->fault.code && hold_grad(s, k->t, &fresh))
        add_into(s, k->view, zt_grad_of(k->t), !fresh);
    zt_pool_free(s->cfg.pool, k->temp);
    k->temp = NULL;
}

/* Views alike but for one axis, one behind the other, filling the whole of the store. */
static bool is_partition(struct zt_tensor **ts, int count)
{
    const struct zt_view *a = &ts[0]->view;
    struct zt_view all = *a;
    int64_t next;

    for (int axis = 0; axis < a->ndim; axis++) { /* the axis along which they follow */
        bool ok = true;

        next = 0;
        all.shape[axis] = 0;
        for (int i = 0; ok && i < count; i++) {
            const struct zt_view *v = &ts[i]->view;

            ok = v->ndim == a->ndim && ts[i]->store == ts[0]->store &&
                 ts[i]->offset_elems == next;
            for (int d = 0; ok && d < a->ndim; d++)
                ok = v->stride[d] == a->stride[d] &&
                     (d == axis || v->shape[d] == a->shape[d]);
            next += v->shape[axis] * v->stride[axis];
            all.shape[axis] += v->shape[axis];
        }
        if (ok && zt_view_numel(&all) == ts[0]->store->numel &&
            zt_view_is_contiguous(&all))
            return true;
        all.shape[axis] = a->shape[axis];
    }
    return false;
}

bool zt_grad_split(struct zt_step *s, struct zt_tensor **ts, int count)
{
    struct zt_storage *st = ts[0]->store;

    if (s->fault.code || st->grad || st->param || !st->requires_grad ||
        st->grad_dtype != st->dtype || !is_partition(ts, count))
        return false;
    st->grad = new_grad(s, st);
    for (int i = 0; st->parts && i < st->parts->num; i++)
        st->parts->is_written[i] = true;
    return st->grad != NULL;
}

void zt_grad_pass(struct zt_step *s, struct zt_tensor *from, struct zt_tensor *t)
{
    struct zt_storage *st = t->store;
    struct zt_grad_sink k;

    if (!st->grad && !st->param && st->requires_grad && !s->fault.code && covers(t) &&
        covers(from) && st->grad_dtype == from->store->grad_dtype &&
        zt_view_is_contiguous(&t->view) && zt_view_is_contiguous(&from->view)) {
        st->grad = from->store->grad;
        st->grad->refs++;
        return;
    }
    if (!zt_grad_sink_open(s, &k, t, ZT_SINK_ANY))
        return;
    add_into(s,
             zt_view_of(zt_grad_of(from).data, from->store->grad_dtype, t->view.ndim,
                        t->view.shape),
             k.view, k.accumulate);
    zt_grad_sink_close(s, &k);
}

/* All of t's gradient is still to come, in t's own type and from one node alone. */
static bool has_one_gradient(const struct zt_tensor *t)
{
    const struct zt_storage *st = t->store;

    return st->num_uses == 1 && !st->grad && st->requires_grad && !st->param &&
           st->grad_dtype == st->dtype && covers(t) && zt_view_is_contiguous(&t->view);
}

/*
 * Made in the same call of a block, so a recomputed block, whose values outside are others,
 * decides as one that is not.
 */
struct zt_activation *zt_sole_activation(const struct zt_step *s,
                                         const struct zt_tensor *t)
{
    struct zt_activation *a = t->store->activation;

    if (!a || a->made_in != s->open || !has_one_gradient(t))
        return NULL;
    if (a->backward != ZT_EPI_SWIGLU_BWD)
        return a;
    return a->gate->store != a->up->store && has_one_gradient(a->gate) &&
                   has_one_gradient(a->up)
               ? a
               : NULL;
}

void zt_note_activation(struct zt_step *s, struct zt_tensor *t, struct zt_activation a)
{
    struct zt_activation *kept = arena_take(s, sizeof(*kept));

    if (!kept)
        return;
    *kept = a;
    kept->made_in = s->open;
    t->store->activation = kept;
}

void *zt_scratch(struct zt_step *s, int64_t numel, zt_dtype dtype)
{
    return pool_take(s, numel, dtype);
}

void zt_scratch_free(struct zt_step *s, void *p)
{
    zt_pool_free(s->cfg.pool, p);
}
