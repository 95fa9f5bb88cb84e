/*
 * publish_weights.c -- new weights from the ranks that made them to all who hold them whole.
 *
 * After an optimizer step every rank has its shard of each block; an all-gather per block
 * makes the block whole again, in place. With overlap_comm these run beside the next
 * forward pass: a call waits for the blocks it needs, and at most allgather_bucket_size
 * elements are in flight at a time.
 */
#include <stdlib.h>

#include "worker/zero/private.h"

zt_err zt_publish_open(struct zt_zero *z, struct zt_fault *fault)
{
    struct zt_publish *p = &z->publish;

    p->handle = calloc((size_t)z->cfg.model->num_blocks + 1, sizeof(*p->handle));
    p->weights = calloc((size_t)z->cfg.model->num_blocks + 1, sizeof(*p->weights));
    p->num_started = p->num_arrived = z->cfg.model->num_blocks;
    return p->handle && p->weights
               ? ZT_OK
               : zt_fault_set(fault, ZT_E_NOMEM, "model state: no host memory");
}

void zt_publish_close(struct zt_zero *z)
{
    /* only what was started: behind a failure the others may start no more */
    for (int i = 0; z->publish.handle && z->publish.weights && i < z->publish.num_started;
         i++) {
        zt_err rc = zt_comm_wait(z->cfg.comm, z->publish.handle[i], NULL);

        rc = zt_state_commit(&z->publish.weights[i], rc, NULL);
        (void)rc;
    }
    free(z->publish.handle);
    free(z->publish.weights);
}

static bool is_published(const struct zt_zero *z, int i)
{
    const struct zt_block *b = z->cfg.model->blocks[i];

    return zt_is_whole(z, ZT_STATE_WEIGHTS, b) && b->padded_elems &&
           (!b->frozen || z->publish.with_frozen);
}

/* Gather the shards of a block on every rank that holds it whole. */
static zt_err start_block(struct zt_zero *z, const struct zt_block *b,
                          struct zt_fault *fault)
{
    struct zt_piece *weights = &z->publish.weights[b->index];
    zt_comm_handle *handle = &z->publish.handle[b->index];
    size_t n = (size_t)zt_shard_elems(z, b);
    zt_err rc =
        zt_state_acquire_all(z, ZT_STATE_WEIGHTS, b, ZT_READ_WRITE, weights, fault);

    if (!rc && z->cfg.options->allgather_partitions)
        return zt_all_gather_start(z->cfg.comm,
                                   zt_piece_at(weights, zt_shard_begin(z, b)),
                                   weights->data, n, z->cfg.dtype, handle, fault);
    for (int r = 0; !rc && r < z->cfg.world; r++)
        rc = zt_broadcast_start(z->cfg.comm, zt_piece_at(weights, r * (int64_t)n), n,
                                z->cfg.dtype, r, handle, fault);
    return rc;
}

/* Start as many blocks as may be in flight and have new weights, and in any case those up
 * to `until`. */
static zt_err start_gathers(struct zt_zero *z, int until, struct zt_fault *fault)
{
    struct zt_publish *p = &z->publish;
    int64_t most = z->cfg.options->allgather_bucket_size;
    zt_err rc = ZT_OK;

    for (; !rc && p->num_started < z->cfg.model->num_blocks &&
           (p->num_started <= until ||
            (p->elems_in_flight < most &&
             !zt_update_is_due(z, z->cfg.model->blocks[p->num_started])));
         p->num_started++) {
        const struct zt_block *b = z->cfg.model->blocks[p->num_started];

        if (!is_published(z, p->num_started))
            continue;
        rc = start_block(z, b, fault);
        p->elems_in_flight += b->padded_elems;
    }
    return rc;
}

/* Block `index` has arrived, and with it all that were started before. */
static zt_err wait_for_block(struct zt_zero *z, int index, struct zt_fault *fault)
{
    struct zt_publish *p = &z->publish;
    zt_err rc = start_gathers(z, index, fault);

    if (!rc)
        rc = zt_comm_wait(z->cfg.comm, p->handle[index], fault);
    for (; p->num_arrived <= index; p->num_arrived++) {
        if (is_published(z, p->num_arrived))
            p->elems_in_flight -= z->cfg.model->blocks[p->num_arrived]->padded_elems;
        rc = zt_state_commit(&p->weights[p->num_arrived], rc, fault);
    }
    if (!rc)
        rc = start_gathers(z, -1, fault);
    return rc ? zt_fault_context(fault, rc, "publishing new weights of block %s",
                                 z->cfg.model->blocks[index]->name)
              : ZT_OK;
}

zt_err zt_publish_wait(struct zt_zero *z, const struct zt_block *called,
                       struct zt_fault *fault)
{
    struct zt_publish *p = &z->publish;
    struct zt_block *b;
    zt_err rc = ZT_OK;

    if (p->num_arrived == z->cfg.model->num_blocks)
        return ZT_OK;
    for (int i = 0; !rc && called && (b = zt_needed_block(called, i)); i++)
        if (b->index >= p->num_arrived && is_published(z, b->index))
            rc = wait_for_block(z, b->index, fault);
    for (; !rc && !called && p->num_arrived < z->cfg.model->num_blocks;)
        if (is_published(z, p->num_arrived))
            rc = wait_for_block(z, p->num_arrived, fault);
        else
            p->num_arrived++;
    return rc;
}

zt_err zt_publish_finish(struct zt_zero *z, struct zt_fault *fault)
{
    struct zt_publish *p = &z->publish;
    zt_err rc = ZT_OK;

    for (int i = p->num_arrived; !rc && i < p->num_started; i++) {
        if (!p->weights[i].region)
            continue;
        rc = zt_comm_wait(z->cfg.comm, p->handle[i], fault);
        rc = zt_state_commit(&p->weights[i], rc, fault);
    }
    return rc;
}

/* What a plan would gather. */
static void count_gathers(struct zt_zero *z)
{
    for (int i = 0; i < z->cfg.model->num_blocks; i++)
        if (is_published(z, i))
            z->traffic.gathered += (double)z->cfg.model->blocks[i]->padded_elems *
                                   (double)zt_dtype_bytes(z->cfg.dtype);
}

zt_err zt_publish(struct zt_zero *z, bool with_frozen, struct zt_fault *fault)
{
    struct zt_publish *p = &z->publish;
    zt_err rc;

    if (z->stage == 0)
        return ZT_OK;
    /* one copy for the node: no rank reads what a peer still writes */
    if (z->regions[ZT_STATE_WEIGHTS].memory == ZT_MEMORY_NODE)
        return z->planning ? ZT_OK : zt_barrier(z->cfg.comm, fault);
    if (z->planning) {
        count_gathers(z);
        return ZT_OK;
    }
    rc = zt_publish_finish(z, fault);
    if (rc)
        return rc;
    p->with_frozen = with_frozen;
    p->num_started = p->num_arrived = 0;
    p->elems_in_flight = 0;
    rc = start_gathers(z, -1, fault);
    return rc || z->cfg.options->overlap_comm ? rc : zt_publish_wait(z, NULL, fault);
}

zt_err zt_zero_publish(struct zt_zero *z, struct zt_fault *fault)
{
    z->unpublished = false;
    return zt_publish(z, true, fault);
}
