/*
 * host_inputs.c -- the inputs of recomputed blocks wait in host memory until backward
 * (DeepSpeed's cpu_checkpointing).
 *
 * After a block's forward its inputs begin to leave: they are copied on a stream of their
 * own while the next block computes, and their device memory is free when that one is
 * done. In backward the inputs of the block before begin to return while a block is
 * computed again.
 *
 *      DEVICE --forward of its block is done--> LEAVING --of the next one--> HOST
 *         ^                                        |                           |
 *         |<---------- used once more -------------+       its turn is next, or used
 *         |                                                                    v
 *         +<------------------------- its turn is here ------------------ RETURNING
 *
 * A value leaves once: what other blocks read as well (the output of an encoder) stays on
 * the device when it has returned. The stream waits for the main one before it reads or
 * writes device memory, the main one for the stream before that memory is used or given
 * back; host memory is the stream's alone, so its order is enough there.
 */
#include "worker/autograd/tape.h"

static size_t bytes_of(const struct zt_storage *st)
{
    return (size_t)st->numel * zt_dtype_bytes(st->dtype);
}

/* What is queued on the main stream from now on runs after the copies so far. */
static void wait_for_copies(struct zt_step *s)
{
    const struct zt_backend *be = s->cfg.backend;

    zt_step_check(s, be->event_wait(s->cfg.device, s->copied, NULL, &s->fault));
}

/* What is copied from now on is copied after all that the main stream has been given. */
static bool begin_copies(struct zt_step *s)
{
    const struct zt_backend *be = s->cfg.backend;

    return zt_step_check(s,
                         be->event_record(s->cfg.device, s->queued, NULL, &s->fault)) &&
           zt_step_check(s,
                         be->event_wait(s->cfg.device, s->queued, s->copies, &s->fault));
}

static bool end_copies(struct zt_step *s)
{
    return zt_step_check(
        s, s->cfg.backend->event_record(s->cfg.device, s->copied, s->copies, &s->fault));
}

zt_err zt_host_inputs_open(struct zt_step *s, struct zt_fault *fault)
{
    const struct zt_backend *be = s->cfg.backend;
    zt_err rc = ZT_OK;

    if (!s->cfg.host_pool)
        return ZT_OK;
    rc = be->stream_open(s->cfg.device, &s->copies, fault);
    if (!rc)
        rc = be->event_open(s->cfg.device, &s->queued, fault);
    return rc ? rc : be->event_open(s->cfg.device, &s->copied, fault);
}

void zt_host_inputs_close(struct zt_step *s)
{
    const struct zt_backend *be = s->cfg.backend;

    if (s->copies)
        be->stream_close(s->cfg.device, s->copies);
    if (s->queued)
        be->event_close(s->cfg.device, s->queued);
    if (s->copied)
        be->event_close(s->cfg.device, s->copied);
}

/* ---- leaving ---- */

/* Indices and masks are small, and many blocks read them. */
static bool can_leave(const struct zt_storage *st)
{
    return st->owned && st->requires_grad && st->place == ZT_ON_DEVICE && !st->has_left;
}

static void start_leaving(struct zt_step *s, struct zt_storage *st)
{
    const struct zt_backend *be = s->cfg.backend;
    zt_err rc = zt_pool_alloc(s->cfg.host_pool, bytes_of(st), &st->host, &s->fault);

    if (!rc)
        rc = be->download(s->cfg.device, s->copies, st->host, st->data, bytes_of(st),
                          &s->fault);
    if (!zt_step_check(s, rc))
        return;
    st->place = ZT_LEAVING;
    st->has_left = true;
    st->next_leaving = s->leaving;
    s->leaving = st;
}

/* The copies of the block before are needed now: their device memory is free. */
static void finish_leaving(struct zt_step *s)
{
    if (s->leaving)
        wait_for_copies(s);
    for (struct zt_storage *st = s->leaving; st; st = st->next_leaving) {
        if (st->place != ZT_LEAVING)
            continue;
        zt_pool_free(s->cfg.pool, st->data);
        st->data = NULL;
        st->place = ZT_ON_HOST;
    }
    s->leaving = NULL;
}

void zt_host_inputs_leave(struct zt_step *s, struct zt_call *c)
{
    int count = 0;

    if (!s->cfg.host_pool)
        return;
    finish_leaving(s);
    if (!begin_copies(s))
        return;
    for (int i = 0; i < c->num_in && !s->fault.code; i++)
        if (c->in[i] && can_leave(c->in[i]->store)) {
            start_leaving(s, c->in[i]->store);
            count++;
        }
    if (count && !s->fault.code)
        end_copies(s);
}

/* ---- returning ---- */

static void drop_host(struct zt_step *s, struct zt_storage *st)
{
    zt_pool_free(s->cfg.host_pool, st->host);
    st->host = NULL;
}

static void start_return(struct zt_step *s, struct zt_storage *st)
{
    const struct zt_backend *be = s->cfg.backend;
    void *data = NULL;
    zt_err rc = zt_pool_alloc(s->cfg.pool, bytes_of(st), &data, &s->fault);

    if (!zt_step_check(s, rc))
        return;
    st->data = data;
    st->place = ZT_RETURNING;
    if (begin_copies(s) &&
        zt_step_check(s, be->upload(s->cfg.device, s->copies, data, st->host,
                                    bytes_of(st), &s->fault)))
        end_copies(s);
}

void zt_host_input_need(struct zt_step *s, struct zt_storage *st)
{
    if (st->place == ZT_ON_HOST)
        start_return(s, st);
    if (st->place == ZT_ON_DEVICE || s->fault.code)
        return;
    wait_for_copies(s);
    drop_host(s, st);
    st->place = ZT_ON_DEVICE;
}

void zt_host_inputs_return(struct zt_step *s, struct zt_call *c)
{
    struct zt_call *next = c->prev;

    if (!s->cfg.host_pool)
        return;
    for (int i = 0; i < c->num_in && !s->fault.code; i++)
        if (c->in[i])
            zt_host_input_need(s, c->in[i]->store);
    while (next && !next->recompute)
        next = next->prev;
    for (int i = 0; next && i < next->num_in && !s->fault.code; i++)
        if (next->in[i] && next->in[i]->store->place == ZT_ON_HOST)
            start_return(s, next->in[i]->store);
}

void zt_host_input_drop(struct zt_step *s, struct zt_storage *st)
{
    if (st->place == ZT_ON_DEVICE)
        return;
    if (st->place != ZT_ON_HOST) /* a copy reads or writes the device memory */
        wait_for_copies(s);
    drop_host(s, st);
    st->place = ZT_ON_DEVICE;
}
