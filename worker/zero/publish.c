/*
 * publish.c -- new weights from the ranks that made them to all who hold them whole.
 *
 * After an optimizer step every rank has its shard of each block; an all-gather per block
 * makes the block whole again, in place. With overlap_comm these run beside the next
 * forward pass: a call waits for the blocks it needs, and at most allgather_bucket_size
 * elements are on their way at a time.
 */
#include <stdlib.h>

#include "worker/zero/private.h"

zt_err zt_publish_open(struct zt_zero *z, struct zt_fault *fault)
{
    struct zt_publish *p = &z->publish;

    p->handle = calloc((size_t)z->cfg.model->num_blocks + 1, sizeof(*p->handle));
    p->next = p->done = z->cfg.model->num_blocks;
    return p->handle ? ZT_OK
                     : zt_fault_set(fault, ZT_E_NOMEM, "model state: no host memory");
}

void zt_publish_close(struct zt_zero *z)
{
    /* only what was started: behind a failure the others may start no more */
    for (int i = 0; z->publish.handle && i < z->publish.next; i++) {
        zt_err rc = zt_comm_wait(z->cfg.comm, z->publish.handle[i], NULL);

        (void)rc;
    }
    free(z->publish.handle);
}

static bool is_published(const struct zt_zero *z, int i)
{
    const struct zt_block *b = z->cfg.model->blocks[i];

    return z->weights.whole[i] && b->padded_elems && (!b->frozen || z->publish.all);
}

/* Everybody's shard of a block into everybody's whole. */
static zt_err start(struct zt_zero *z, const struct zt_block *b, zt_comm_handle *handle,
                    struct zt_fault *fault)
{
    char *all = zt_region_at(z, &z->weights, b, 0);
    size_t n = (size_t)zt_shard_elems(z, b), width = zt_dtype_bytes(z->cfg.dtype);
    zt_err rc = ZT_OK;

    if (z->cfg.options->allgather_partitions)
        return zt_all_gather_start(z->cfg.comm, all + (size_t)z->cfg.rank * n * width,
                                   all, n, z->cfg.dtype, handle, fault);
    for (int r = 0; !rc && r < z->cfg.world; r++)
        rc = zt_broadcast_start(z->cfg.comm, all + (size_t)r * n * width, n, z->cfg.dtype,
                                r, handle, fault);
    return rc;
}

/* Start what fits beside what is on its way, and in any case up to block `until`. */
static zt_err pump(struct zt_zero *z, int until, struct zt_fault *fault)
{
    struct zt_publish *p = &z->publish;
    int64_t most = z->cfg.options->allgather_bucket_size;
    zt_err rc = ZT_OK;

    for (; !rc && p->next < z->cfg.model->num_blocks &&
           (p->next <= until || p->flying < most);
         p->next++) {
        const struct zt_block *b = z->cfg.model->blocks[p->next];

        if (!is_published(z, p->next))
            continue;
        rc = start(z, b, &p->handle[p->next], fault);
        p->flying += b->padded_elems;
    }
    return rc;
}

/* Block `index` has arrived, and with it all that were started before. */
static zt_err await_block(struct zt_zero *z, int index, struct zt_fault *fault)
{
    struct zt_publish *p = &z->publish;
    zt_err rc = pump(z, index, fault);

    if (!rc)
        rc = zt_comm_wait(z->cfg.comm, p->handle[index], fault);
    for (; p->done <= index; p->done++)
        if (is_published(z, p->done))
            p->flying -= z->cfg.model->blocks[p->done]->padded_elems;
    if (!rc)
        rc = pump(z, -1, fault);
    return rc ? zt_fault_context(fault, rc, "publishing new weights of block %s",
                                 z->cfg.model->blocks[index]->name)
              : ZT_OK;
}

zt_err zt_publish_await(struct zt_zero *z, const struct zt_block *called,
                        struct zt_fault *fault)
{
    struct zt_publish *p = &z->publish;
    struct zt_block *b;
    zt_err rc = ZT_OK;

    if (p->done == z->cfg.model->num_blocks)
        return ZT_OK;
    for (int i = 0; !rc && called && (b = zt_needed(called, i)); i++)
        if (b->index >= p->done && is_published(z, b->index))
            rc = await_block(z, b->index, fault);
    for (; !rc && !called && p->done < z->cfg.model->num_blocks;)
        if (is_published(z, p->done))
            rc = await_block(z, p->done, fault);
        else
            p->done++;
    return rc;
}

zt_err zt_publish(struct zt_zero *z, bool all, struct zt_fault *fault)
{
    struct zt_publish *p = &z->publish;
    zt_err rc;

    if (z->stage == 0 || z->planning)
        return ZT_OK;
    if (z->weights.zone == ZT_ZONE_NODE) /* nobody reads what a peer still writes */
        return zt_barrier(z->cfg.comm, fault);
    p->all = all;
    p->next = p->done = 0;
    p->flying = 0;
    rc = pump(z, -1, fault);
    return rc || z->cfg.options->overlap_comm ? rc : zt_publish_await(z, NULL, fault);
}

zt_err zt_zero_publish(struct zt_zero *z, struct zt_fault *fault)
{
    z->unpublished = false;
    return zt_publish(z, true, fault);
}
