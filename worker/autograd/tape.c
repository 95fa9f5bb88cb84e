/*
 * tape.c -- nodes, block calls, and running them backward.
 *
 * The tape is a list of calls, newest first, each with a list of nodes, newest first.
 * Ops outside any block go to calls without a block, so that their place is kept.
 *
 * Recomputation: the forward of a call always leaves nodes, because what they save lives
 * until the function returns anyway; then they are dropped, and what they saved with
 * them. In backward the function runs again on the same inputs with the same random keys,
 * the gradients that reached the first outputs move to the second, and the new nodes are
 * run backward. A call whose outputs are all scalars (the loss) keeps its nodes: its
 * backward comes first, when all that recomputing would give is the same memory again.
 */
#include <string.h>

#include "common/log.h"
#include "worker/autograd/tape.h"

bool zt_requires_grad(const struct zt_step *s, struct zt_tensor *const *in, int num_in)
{
    if (s->pass.mode != ZT_MODE_TRAIN)
        return false;
    for (int i = 0; i < num_in; i++)
        if (in[i] && in[i]->store->requires_grad)
            return true;
    return false;
}

/* ---- recording ---- */

static void *take(struct zt_step *s, size_t bytes)
{
    void *p = zt_arena_take(s->arena, bytes);

    return p ? p : zt_step_fail(s, ZT_E_NOMEM, "no host memory for the tape");
}

static struct zt_call *push_call(struct zt_step *s, struct zt_block *block)
{
    struct zt_call *c = take(s, sizeof(*c));

    if (!c)
        return NULL;
    c->block = block;
    c->prev = s->calls;
    s->calls = c;
    return c;
}

/* The call that an op of this moment belongs to. */
static struct zt_call *current_call(struct zt_step *s)
{
    if (s->open)
        return s->open;
    if (s->calls && !s->calls->block)
        return s->calls;
    return push_call(s, NULL);
}

static struct zt_tensor **copy_list(struct zt_step *s, struct zt_tensor *const *from,
                                    int count)
{
    struct zt_tensor **to = take(s, (size_t)(count + 1) * sizeof(struct zt_tensor *));

    if (to && count)
        memcpy(to, from, (size_t)count * sizeof(*to));
    return to;
}

static bool any_of_batch(struct zt_tensor *const *ts, int num)
{
    for (int i = 0; i < num; i++)
        if (ts[i] && ts[i]->store->of_batch)
            return true;
    return false;
}

struct zt_tensor *zt_record(struct zt_step *s, const struct zt_op *op,
                            struct zt_tensor *out, struct zt_tensor *const *in,
                            int num_in, struct zt_tensor *const *saved, int num_saved,
                            const void *attr, size_t attr_bytes)
{
    struct zt_call *c;
    struct zt_node *n;

    if (s->fault.code)
        return NULL;
    out->store->of_batch |= any_of_batch(in, num_in) || any_of_batch(saved, num_saved);
    if (!zt_requires_grad(s, in, num_in))
        return out;
    c = current_call(s);
    n = c ? take(s, sizeof(*n)) : NULL;
    if (!n)
        return NULL;
    n->op = op;
    n->out = out;
    n->in = copy_list(s, in, num_in);
    n->saved = copy_list(s, saved, num_saved);
    n->attr = take(s, attr_bytes + 1);
    if (!n->in || !n->saved || !n->attr)
        return NULL;
    if (attr_bytes)
        memcpy(n->attr, attr, attr_bytes);
    n->num_in = num_in;
    n->num_saved = num_saved;
    for (int i = 0; i < num_saved; i++)
        if (saved[i])
            zt_store_ref(saved[i]->store);
    for (int i = 0; i < num_in; i++)
        if (in[i])
            in[i]->store->num_uses++;
    out->store->requires_grad = true;
    n->prev = c->last;
    c->last = n;
    return out;
}

static void drop_saved(struct zt_step *s, struct zt_node *n)
{
    for (int i = 0; i < n->num_saved; i++)
        if (n->saved[i])
            zt_store_unref(s, n->saved[i]->store);
    n->num_saved = 0;
}

static void drop_nodes(struct zt_step *s, struct zt_call *c)
{
    for (struct zt_node *n = c->last; n; n = n->prev)
        drop_saved(s, n);
    c->last = NULL;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) + 0x9e3779b97f4a7c15u; /* splitmix64 */
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
    return h ^ (h >> 31);
}

struct zt_philox zt_next_random(struct zt_step *s, int64_t per_row)
{
    struct zt_call *c = current_call(s);
    struct zt_philox rng = {.seed = s->cfg.seed};
    uint64_t h = mix(0, s->pass.step);

    if (!c)
        return rng;
    h = mix(h, c->block ? (uint64_t)c->block->index + 1 : 0);
    h = mix(h, (uint64_t)c->index);
    rng.stream = mix(h, (uint64_t)c->num_random++);
    rng.offset = (uint64_t)(s->pass.row0 * per_row);
    return rng;
}

/* ---- hooks ---- */

static bool enter(struct zt_step *s, struct zt_block *b, bool backward)
{
    const struct zt_step_hooks *h = &s->cfg.hooks;

    return !h->block_enter ||
           zt_step_check(s, h->block_enter(h->ctx, b, backward, &s->fault));
}

static bool leave(struct zt_step *s, struct zt_block *b, bool backward)
{
    const struct zt_step_hooks *h = &s->cfg.hooks;

    return !h->block_leave ||
           zt_step_check(s, h->block_leave(h->ctx, b, backward, &s->fault));
}

static void report_ready(struct zt_step *s, struct zt_block *b)
{
    const struct zt_step_hooks *h = &s->cfg.hooks;

    if (s->fault.code || s->ready[b->index] || b->frozen || !b->num_params ||
        !b->requires_grads)
        return;
    s->ready[b->index] = true;
    if (h->grads_ready)
        zt_step_check(s, h->grads_ready(h->ctx, b, &s->fault));
}

/* Count (+1) or uncount (-1) the blocks whose gradients a call of b adds to. */
static void touch(struct zt_step *s, struct zt_block *b, int by)
{
    for (int i = -1; i < b->num_shared; i++) {
        struct zt_block *owner = i < 0 ? b : b->shared[i]->block;
        bool seen = false;

        for (int j = 0; j < i; j++)
            seen |= b->shared[j]->block == owner;
        if (seen)
            continue;
        s->touched[owner->index] += by;
        if (by < 0 && s->touched[owner->index] == 0)
            report_ready(s, owner);
    }
}

/* ---- block calls ---- */

void zt_frame_leave(struct zt_step *s, struct zt_storage *outer)
{
    struct zt_storage *next;

    for (struct zt_storage *st = s->frame; st; st = next) {
        next = st->next_local;
        if (st->keep) {
            st->keep = false;
            st->next_local = outer;
            outer = st;
        } else {
            zt_store_unref(s, st);
        }
    }
    s->frame = outer;
}

static bool check_outputs(struct zt_step *s, struct zt_tensor **out, int num_out)
{
    for (int i = 0; i < num_out; i++) {
        if (s->fault.code)
            return false;
        if (!out[i])
            zt_step_fail(s, ZT_E_PLUGIN, "its function left output %d empty", i);
        else if (out[i]->store->param)
            zt_step_fail(s, ZT_E_PLUGIN,
                         "output %d is the weight %s itself; weights are only reachable "
                         "inside a block",
                         i, out[i]->store->param->name);
    }
    return !s->fault.code;
}

/* Run fn; values it made are gone after, but for outputs when keep_outputs. */
static bool run_function(struct zt_step *s, struct zt_call *c, struct zt_tensor **out,
                         bool keep_outputs)
{
    struct zt_tensor *in[ZT_MAX_BLOCK_IO] = {NULL};
    struct zt_storage *outer = s->frame;

    memcpy(in, c->in, sizeof(in)); /* fn may change its list */
    s->frame = NULL;
    s->open = c;
    s->op = NULL;
    c->num_random = 0;
    c->fn(s, c->ctx, in, out);
    s->op = NULL;
    check_outputs(s, out, c->num_out);
    s->open = NULL;
    for (struct zt_storage *st = s->frame; st && keep_outputs; st = st->next_local)
        for (int i = 0; i < c->num_out; i++)
            st->keep |= out[i] && out[i]->store == st;
    zt_frame_leave(s, outer);
    return !s->fault.code;
}

static bool all_scalars(struct zt_tensor *const *out, int num_out)
{
    for (int i = 0; i < num_out; i++)
        if (out[i]->store->numel != 1)
            return false;
    return true;
}

static struct zt_call *begin_call(struct zt_step *s, struct zt_block *block,
                                  zt_block_fn fn, void *ctx, zt_tensor **in, int num_in,
                                  int num_out)
{
    struct zt_call *c;

    if (!block || !fn || block->model != s->cfg.model)
        return zt_step_fail(s, ZT_E_PLUGIN, "zt_block_call: no block or no function");
    if (s->open)
        return zt_step_fail(s, ZT_E_PLUGIN,
                            "block %s is called inside another block; blocks do not nest",
                            block->name);
    if (num_in < 0 || num_in > ZT_MAX_BLOCK_IO || num_out < 0 ||
        num_out > ZT_MAX_BLOCK_IO)
        return zt_step_fail(s, ZT_E_PLUGIN,
                            "block %s: %d inputs and %d outputs, but %d is the most",
                            block->name, num_in, num_out, ZT_MAX_BLOCK_IO);
    c = push_call(s, block);
    if (!c)
        return NULL;
    c->fn = fn;
    c->ctx = ctx;
    c->num_in = num_in;
    c->num_out = num_out;
    c->index = s->num_calls[block->index]++;
    if (num_in)
        memcpy(c->in, in, (size_t)num_in * sizeof(*in));
    return c;
}

/* The time when the device has done what it was given, where times are taken; else 0. */
static double profile_time(struct zt_step *s)
{
    if (!s->cfg.profile)
        return 0;
    zt_step_check(s, s->cfg.backend->sync(s->cfg.device, NULL, &s->fault));
    return zt_now();
}

/* Forward; *took: its time. */
static bool run_timed(struct zt_step *s, struct zt_call *c, struct zt_tensor **out,
                      double *took)
{
    double start = profile_time(s);
    bool ok = run_function(s, c, out, true);

    *took = profile_time(s) - start;
    return ok;
}

/* What the nodes of a call are: their ops, weights and shapes, and those of what it returns. */
static uint64_t what_it_did(const struct zt_call *c, struct zt_tensor *const *out)
{
    uint64_t h = 0;

    for (const struct zt_node *n = c->last; n; n = n->prev) {
        h = mix(h, (uint64_t)(uintptr_t)n->op);
        for (int i = 0; i < n->out->view.ndim; i++)
            h = mix(h, (uint64_t)n->out->view.shape[i]);
        for (int i = 0; i < n->num_in; i++)
            h = mix(h, n->in[i] ? (uint64_t)(uintptr_t)n->in[i]->store->param : 1);
    }
    for (int i = 0; i < c->num_out; i++)
        h = mix(h, (uint64_t)zt_view_numel(&out[i]->view));
    return h;
}

/* After forward: what backward needs stays, the rest goes. */
static void settle_call(struct zt_step *s, struct zt_call *c)
{
    if (!c->last) /* nothing in it wants a gradient */
        return;
    touch(s, c->block, 1);
    if (!s->cfg.recompute || !c->block->num_params || all_scalars(c->out, c->num_out))
        return;
    c->did = what_it_did(c, c->out);
    drop_nodes(s, c);
    c->recompute = true;
    for (int i = 0; i < c->num_in; i++)
        if (c->in[i])
            zt_store_ref(c->in[i]->store);
    zt_host_inputs_leave(s, c);
}

bool zt_block_call(zt_step *s, zt_block *block, zt_block_fn fn, void *ctx, zt_tensor **in,
                   int num_in, zt_tensor **out, int num_out)
{
    struct zt_tensor *made[ZT_MAX_BLOCK_IO] = {NULL};
    struct zt_call *c;
    double took;

    s->op = NULL;
    c = s->fault.code ? NULL : begin_call(s, block, fn, ctx, in, num_in, num_out);
    if (c && enter(s, block, false) && run_timed(s, c, made, &took)) {
        memcpy(c->out, made, sizeof(made));
        settle_call(s, c);
        s->times.forward += c->recompute ? took : 0;
        s->times.calls += c->recompute;
        leave(s, block, false);
    }
    for (int i = 0; i < num_out && i < ZT_MAX_BLOCK_IO; i++)
        out[i] = s->fault.code ? NULL : made[i];
    return !s->fault.code;
}

/* ---- backward ---- */

static void run_nodes_backward(struct zt_step *s, struct zt_call *c)
{
    for (struct zt_node *n = c->last; n && !s->fault.code; n = n->prev) {
        s->op = n->op->name;
        if (n->out->store->grad) {
            n->op->backward(s, n);
            zt_grad_drop(s, n->out->store); /* whole, and handed on */
        }
        drop_saved(s, n);
    }
    c->last = NULL;
    s->op = NULL;
}

/* Run the function again, and let its outputs inherit what has come to the first ones. */
static bool run_again(struct zt_step *s, struct zt_call *c)
{
    struct zt_tensor *out[ZT_MAX_BLOCK_IO] = {NULL};
    bool ok;

    zt_host_inputs_return(s, c);
    s->recomputing = true;
    ok = run_function(s, c, out, false);
    s->recomputing = false;
    if (ok && what_it_did(c, out) != c->did)
        ok = zt_step_fail(
                 s, ZT_E_PLUGIN,
                 "block %s: its function did something else when it was computed "
                 "again for backward than before; it may depend on its ctx and its "
                 "inputs alone, and ctx may not change during a step",
                 c->block->name) != NULL;
    for (int i = 0; ok && i < c->num_out; i++) {
        struct zt_storage *was = c->out[i]->store, *now = out[i]->store;

        if (was == now || !was->grad)
            continue;
        now->grad = was->grad;
        was->grad = NULL;
        if (was->parts && now->parts)
            *now->parts = *was->parts;
    }
    return ok;
}

/* Backward of a call whose values are there, or are computed again first. */
static void run_values_backward(struct zt_step *s, struct zt_call *c)
{
    double start = profile_time(s), again;

    if (c->recompute && !run_again(s, c))
        return;
    again = profile_time(s);
    s->open = c->block ? c : NULL;
    run_nodes_backward(s, c);
    if (!c->recompute)
        return;
    s->times.again += again - start;
    s->times.backward += profile_time(s) - again;
}

static bool is_reached(const struct zt_call *c)
{
    if (!c->block)
        return c->last != NULL;
    for (int i = 0; i < c->num_out; i++)
        if (c->out[i]->store->grad)
            return true;
    return false;
}

static void run_call_backward(struct zt_step *s, struct zt_call *c)
{
    bool counted = c->block && (c->last || c->recompute);

    if (!counted && !c->last)
        return;
    if (!is_reached(c)) {
        drop_nodes(s, c);
    } else if (!c->block || enter(s, c->block, true)) {
        s->open = c->block ? c : NULL;
        run_values_backward(s, c);
        s->open = NULL;
        if (c->block && !s->fault.code)
            leave(s, c->block, true);
    }
    for (int i = 0; i < c->num_in && c->recompute; i++)
        if (c->in[i])
            zt_store_unref(s, c->in[i]->store);
    if (counted && !s->fault.code)
        touch(s, c->block, -1);
}

void zt_run_backward(struct zt_step *s, struct zt_tensor *loss, float dloss)
{
    struct zt_fill_args fill = {.value = dloss};
    struct zt_grad_sink k;

    s->root = loss->store;
    s->dloss = dloss;
    if (zt_grad_sink_open(s, &k, loss, ZT_SINK_SAME)) {
        fill.y = k.view;
        zt_step_check(s, s->k->fill(s->cfg.device, NULL, &fill, &s->fault));
        zt_grad_sink_close(s, &k);
    }
    for (struct zt_call *c = s->calls; c && !s->fault.code; c = c->prev)
        run_call_backward(s, c);
    s->calls = NULL;
    for (int i = 0; s->cfg.model && i < s->cfg.model->num_blocks; i++)
        report_ready(s, s->cfg.model->blocks[i]);
}
