/* zero.c -- the model state of a rank: opened, closed, measured, and hung on a step. */
#include <stdlib.h>
#include <string.h>

#include "common/trace/trace.h"
#include "worker/zero/private.h"

/* Addresses for a plan's pools: never read or written. */
#define PLAN_BASE  ((void *)((uintptr_t)1 << 46))
#define PLAN_BYTES ((size_t)1 << 45)

static size_t page_up(size_t bytes)
{
    return (bytes + 4095) & ~(size_t)4095;
}

/* ---- small things ---- */

zt_err zt_zero_axpby(struct zt_zero *z, const void *x, zt_dtype xt, void *y, zt_dtype yt,
                     int64_t n, float alpha, float beta, struct zt_fault *fault)
{
    struct zt_axpby_args a = {.x = zt_view_of((void *)x, xt, 1, &n),
                              .y = zt_view_of(y, yt, 1, &n),
                              .alpha = alpha,
                              .beta = beta};

    return n ? z->kernels->axpby(z->cfg.device, NULL, &a, fault) : ZT_OK;
}

zt_err zt_zero_clear(struct zt_zero *z, void *y, zt_dtype dtype, int64_t n,
                     struct zt_fault *fault)
{
    struct zt_fill_args a = {.y = zt_view_of(y, dtype, 1, &n)};

    return n ? z->kernels->fill(z->cfg.device, NULL, &a, fault) : ZT_OK;
}

struct zt_block *zt_needed_block(const struct zt_block *b, int i)
{
    if (i == 0)
        return (struct zt_block *)b;
    for (int k = 0, found = 0; k < b->num_shared; k++) {
        struct zt_block *owner = b->shared[k]->block;
        bool seen = owner == b;

        for (int j = 0; j < k && !seen; j++)
            seen = b->shared[j]->block == owner;
        if (!seen && ++found == i)
            return owner;
    }
    return NULL;
}

zt_err zt_zero_pool_alloc(struct zt_pool *p, size_t bytes, void **out,
                          struct zt_fault *fault)
{
    if (p)
        return zt_pool_alloc(p, bytes, out, fault);
    return zt_fault_set(fault, ZT_E_PLUGIN,
                        "a block is called that the plan saw no call of: forward must do "
                        "the same in every pass");
}

/* ---- regions ---- */

/*
 * Stage 3: blocks of few parameters stay whole on every rank, since gathering them costs
 * more than holding them, until together they are as many as the model may keep.
 */
static void keep_small_blocks(struct zt_zero *z)
{
    const struct zt_zero_options *o = z->cfg.options;
    int64_t kept = 0;

    for (int i = 0; i < z->cfg.model->num_blocks; i++) {
        const struct zt_block *b = z->cfg.model->blocks[i];

        if (b->numel > o->param_persistence_threshold ||
            b->numel > o->model_persistence_threshold - kept)
            continue;
        z->regions[ZT_STATE_WEIGHTS].whole[i] = true;
        kept += b->numel;
    }
}

/* What is offloaded of weights is what is gathered for use: to host memory from the first block on,
 * until the next one is more than what may be there, and the others to their tier. */
static void move_weights(struct zt_zero *z)
{
    struct zt_region *r = &z->regions[ZT_STATE_WEIGHTS];
    int64_t in_host = 0;
    bool fits = true;

    for (int i = 0; i < z->cfg.model->num_blocks; i++) {
        r->in[i] = ZT_STORE_DEVICE;
        if (r->whole[i])
            continue;
        in_host += zt_shard_elems(z, z->cfg.model->blocks[i]);
        fits = fits && in_host <= z->cfg.weights_in_host;
        r->in[i] = fits ? ZT_STORE_HOST : ZT_STORE_OFFLOADED;
    }
}

static zt_memory_kind weights_memory(const struct zt_zero *z)
{
    if (z->stage == 0)
        return ZT_MEMORY_PRIVATE;
    return z->stage < 3 && z->cfg.options->share_node_weights ? ZT_MEMORY_NODE
                                                              : ZT_MEMORY_PEERS;
}

static zt_err open_weights(struct zt_zero *z, struct zt_fault *fault)
{
    zt_err rc =
        zt_region_open(z, ZT_STATE_WEIGHTS, z->cfg.dtype, true, z->stage < 3, fault);

    if (!rc && z->stage == 3)
        keep_small_blocks(z);
    if (!rc && z->cfg.tiers[ZT_STATE_WEIGHTS])
        move_weights(z);
    return rc ? rc
              : zt_region_fill(z, ZT_STATE_WEIGHTS, weights_memory(z), z->stage < 3,
                               fault);
}

/* State that the optimizer alone works on: a rank has its shard of it. */
static zt_err open_optimizer_state(struct zt_zero *z, zt_state_kind kind, zt_dtype dtype,
                                   struct zt_fault *fault)
{
    zt_err rc = zt_region_open(z, kind, dtype, false, z->stage == 0, fault);

    return rc ? rc : zt_region_fill(z, kind, ZT_MEMORY_PRIVATE, false, fault);
}

static zt_err open_gradients(struct zt_zero *z, struct zt_fault *fault)
{
    bool many = z->cfg.world > 1;
    /* accumulators hold sums over ranks; else peers read them to make the sums, or they
     * are loaded for every pass */
    bool summed = z->transient && z->reduce_every;
    bool in_place = !z->transient || (many && !summed && !z->carried);
    zt_err rc = zt_region_open(z, ZT_STATE_GRADIENTS, z->cfg.options->grad_accum_dtype,
                               false, z->stage == 0 || !summed, fault);

    if (rc)
        return rc;
    return zt_region_fill(z, ZT_STATE_GRADIENTS,
                          many && in_place ? ZT_MEMORY_PEERS : ZT_MEMORY_PRIVATE,
                          in_place, fault);
}

static zt_err open_training(struct zt_zero *z, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    if (z->cfg.dtype != ZT_F32)
        rc = open_optimizer_state(z, ZT_STATE_MASTER,
                                  z->cfg.split_master ? ZT_REST16 : ZT_F32, fault);
    for (int k = 0; !rc && k < zt_num_moments(z); k++)
        rc = open_optimizer_state(z, ZT_STATE_MOMENT + k,
                                  z->cfg.optimizer->states[k].dtype, fault);
    return rc ? rc : open_gradients(z, fault);
}

/* Groups of neighbouring ranks with a second, coarser partition of the weights. */
static zt_err open_secondary(struct zt_zero *z, struct zt_fault *fault)
{
    int group = z->cfg.options->hpz_partition_size;
    struct zt_region *r = &z->regions[ZT_STATE_SECONDARY];
    int64_t elems = 0;
    zt_err rc = zt_region_open(z, ZT_STATE_SECONDARY, z->cfg.dtype, true, false, fault);

    if (rc)
        return rc;
    r->parts = group;
    r->part = z->cfg.rank % group;
    for (int i = 0; i < z->cfg.model->num_blocks; i++) {
        bool gathered = zt_is_gathered(z, z->cfg.model->blocks[i]);

        r->offset[i] = gathered ? 0 : -1;
        elems += gathered ? z->cfg.model->blocks[i]->padded_elems : 0;
    }
    if (!z->planning && elems)
        rc = zt_comm_split(z->cfg.comm, z->cfg.rank / group, &z->secondary_comm, fault);
    return rc ? rc : zt_region_fill(z, ZT_STATE_SECONDARY, ZT_MEMORY_GROUP, true, fault);
}

/* Blocks work on what is whole for as long as the state is open. */
static zt_err bind_blocks(struct zt_zero *z, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    z->bound = calloc(2 * (size_t)z->cfg.model->num_blocks + 1, sizeof(*z->bound));
    if (!z->bound)
        return zt_fault_set(fault, ZT_E_NOMEM, "model state: no host memory");
    for (int i = 0; !rc && i < z->cfg.model->num_blocks; i++) {
        struct zt_block *b = z->cfg.model->blocks[i];
        struct zt_piece *weights = &z->bound[2 * i], *grads = weights + 1;

        if (zt_state_has(z, ZT_STATE_WEIGHTS, b) && zt_is_whole(z, ZT_STATE_WEIGHTS, b))
            rc = zt_state_acquire_all(z, ZT_STATE_WEIGHTS, b, ZT_READ_WRITE, weights,
                                      fault);
        if (!rc && !z->transient && zt_state_has(z, ZT_STATE_GRADIENTS, b))
            rc = zt_state_acquire_all(z, ZT_STATE_GRADIENTS, b, ZT_READ_WRITE, grads,
                                      fault);
        zt_block_bind(b, weights->data, grads->data);
        b->requires_grads = z->cfg.training && !b->frozen;
    }
    return rc;
}

static void unbind_blocks(struct zt_zero *z)
{
    for (int i = 0; z->bound && i < 2 * z->cfg.model->num_blocks; i++) {
        zt_err rc = zt_state_commit(&z->bound[i], ZT_OK, NULL);

        (void)rc; /* the state goes with it */
    }
    free(z->bound);
}

/* ---- pools ---- */

static zt_err open_pool(struct zt_zero *z, zt_memory_kind memory, size_t bytes,
                        void **base, struct zt_pool **pool, struct zt_fault *fault)
{
    zt_err rc;

    if (z->planning)
        return zt_pool_open(PLAN_BASE, PLAN_BYTES, pool, fault);
    if (!bytes)
        return ZT_OK;
    rc = zt_memory_alloc(z, memory, bytes, base, fault);
    if (!rc)
        rc = zt_pool_open(*base, bytes, pool, fault);
    if (!rc && z->cfg.staged)
        zt_pool_set_stream_ordered(*pool);
    return rc;
}

/* ---- the whole ---- */

/* The threads that move bytes of files, where any state is there. A folder has to be good
 * also when every block is too small to leave the device: with the next model one does. */
static zt_err open_aio(struct zt_zero *z, struct zt_fault *fault)
{
    bool weights = z->cfg.tiers[ZT_STATE_WEIGHTS] == &zt_file_tier, others = false;
    zt_err rc = ZT_OK;

    for (int kind = 0; kind < ZT_NUM_STATE_KINDS; kind++)
        others |= kind != ZT_STATE_WEIGHTS && z->cfg.tiers[kind] == &zt_file_tier;
    if (weights && !z->planning)
        rc = zt_aio_check_folders(z->cfg.weights_swap.dirs, fault);
    if (!rc && others && z->cfg.training && !z->planning)
        rc = zt_aio_check_folders(z->cfg.swap.dirs, fault);
    if (!rc && (weights || others) && !z->planning)
        rc = zt_aio_open(&z->cfg.aio, &z->cfg.swap.aio, fault);
    z->cfg.weights_swap.aio = z->cfg.swap.aio;
    z->cfg.weights_swap.planned = z->cfg.swap.planned = &z->traffic.files;
    return rc;
}

static zt_err open_all(struct zt_zero *z, struct zt_fault *fault)
{
    const struct zt_zero_config *cfg = &z->cfg;
    zt_err rc = open_aio(z, fault);

    if (!rc)
        rc = open_weights(z, fault);
    if (!rc && cfg->training)
        rc = open_training(z, fault);
    if (!rc && z->hpz)
        rc = open_secondary(z, fault);
    if (!rc)
        rc = zt_gather_open(z, fault);
    if (!rc)
        rc = zt_publish_open(z, fault);
    if (!rc && cfg->training)
        rc = zt_grads_open(z, fault);
    if (!rc && cfg->training)
        rc = zt_update_open(z, fault);
    if (!rc)
        rc = zt_values_open(z, fault);
    return rc ? rc : bind_blocks(z, fault);
}

zt_err zt_zero_open(const struct zt_zero_config *cfg, struct zt_zero **out,
                    struct zt_fault *fault)
{
    struct zt_zero *z = calloc(1, sizeof(*z));
    zt_err rc;

    if (!z)
        return zt_fault_set(fault, ZT_E_NOMEM, "model state: no host memory");
    z->cfg = *cfg;
    z->host = cfg->comm ? zt_comm_host(cfg->comm) : NULL;
    z->kernels = cfg->backend->kernels;
    z->stage = cfg->options->stage;
    if (cfg->world == 1 && !(z->stage == 3 && cfg->tiers[ZT_STATE_WEIGHTS]))
        z->stage = 0;
    z->hpz = z->stage == 3 && cfg->options->hpz_partition_size > 1;
    z->planning = cfg->comm == NULL;
    zt_grads_plan(z);
    rc = open_all(z, fault);
    if (rc) {
        zt_zero_close(z);
        return rc;
    }
    *out = z;
    return ZT_OK;
}

zt_err zt_zero_open_pools(struct zt_zero *z, struct zt_fault *fault)
{
    zt_err rc = open_pool(z, ZT_MEMORY_PRIVATE, z->cfg.gathered_bytes, &z->gathered_base,
                          &z->gathered_pool, fault);

    return rc ? rc
              : open_pool(z, ZT_MEMORY_PEERS, z->cfg.transient_bytes, &z->transient_base,
                          &z->transient_pool, fault);
}

void zt_zero_close(struct zt_zero *z)
{
    if (!z)
        return;
    zt_values_close(z);
    zt_update_close(z);
    zt_grads_close(z);
    zt_publish_close(z);
    zt_gather_close(z);
    zt_pool_close(z->transient_pool);
    zt_pool_close(z->gathered_pool);
    zt_memory_free(z, ZT_MEMORY_PEERS, z->transient_base, z->cfg.transient_bytes);
    zt_memory_free(z, ZT_MEMORY_PRIVATE, z->gathered_base, z->cfg.gathered_bytes);
    unbind_blocks(z);
    for (int kind = 0; kind < ZT_NUM_STATE_KINDS; kind++)
        zt_region_close(z, kind);
    zt_aio_close(z->cfg.swap.aio);
    zt_comm_close(z->secondary_comm);
    free(z);
}

/* ---- figures ---- */

static size_t pool_bytes(const struct zt_pool *p)
{
    return p ? page_up(zt_pool_peak(p)) : 0;
}

static void add_region(struct zt_zero_bytes *b, const struct zt_region *r)
{
    size_t bytes[ZT_NUM_PLACES] = {0};

    zt_region_measure(r, bytes);
    for (int place = 0; place < ZT_NUM_PLACES; place++) {
        struct zt_state_bytes *in = &b->in[place];
        size_t *sum = r->kind == ZT_STATE_WEIGHTS     ? &in->weights
                      : r->kind == ZT_STATE_MASTER    ? &in->master
                      : r->kind == ZT_STATE_GRADIENTS ? &in->grads
                      : r->kind == ZT_STATE_SECONDARY ? &in->secondary
                                                      : &in->moments;

        *sum += bytes[place];
    }
}

/* Addresses of what a rank maps of its peers; devices send instead. */
static size_t peer_bytes(const struct zt_zero *z, size_t transient)
{
    const struct zt_region *weights = &z->regions[ZT_STATE_WEIGHTS];
    const struct zt_region *grads = &z->regions[ZT_STATE_GRADIENTS];
    size_t others = (size_t)z->cfg.world - 1, sum = others * transient;

    if (z->cfg.staged)
        return 0;
    if (weights->memory == ZT_MEMORY_NODE)
        sum += weights->stores[ZT_STORE_DEVICE].bytes -
               page_up(weights->stores[ZT_STORE_DEVICE].bytes / (others + 1));
    else if (weights->memory == ZT_MEMORY_PEERS)
        sum += others * weights->stores[ZT_STORE_DEVICE].bytes;
    if (grads->memory == ZT_MEMORY_PEERS)
        sum += others * grads->stores[ZT_STORE_DEVICE].bytes;
    if (z->hpz)
        sum += (size_t)(z->cfg.options->hpz_partition_size - 1) *
               z->regions[ZT_STATE_SECONDARY].stores[ZT_STORE_DEVICE].bytes;
    return sum;
}

struct zt_zero_bytes zt_zero_measure(const struct zt_zero *z)
{
    struct zt_zero_bytes b = {.peers = 0};
    struct zt_state_bytes *device = &b.in[ZT_PLACE_DEVICE];

    for (int kind = 0; kind < ZT_NUM_STATE_KINDS; kind++)
        add_region(&b, &z->regions[kind]);
    if (z->regions[ZT_STATE_WEIGHTS].memory == ZT_MEMORY_NODE)
        device->weights = page_up(device->weights / (size_t)z->cfg.world);
    if (z->grads_fp32)
        device->grads += zt_update_piece_bytes();
    device->gathered = pool_bytes(z->gathered_pool);
    device->transient = pool_bytes(z->transient_pool);
    device->staging = zt_values_staging_bytes(z);
    b.peers = peer_bytes(z, device->transient);
    b.weights_in_host = z->regions[ZT_STATE_WEIGHTS].stores[ZT_STORE_HOST].bytes;
    return b;
}

size_t zt_zero_total(const struct zt_zero_bytes *b, zt_memory_place place)
{
    const struct zt_state_bytes *in = &b->in[place];

    return in->weights + in->master + in->grads + in->moments + in->gathered +
           in->transient + in->secondary + in->staging;
}

struct zt_zero_traffic zt_zero_take_traffic(struct zt_zero *z)
{
    struct zt_zero_traffic t = z->traffic;

    z->traffic = (struct zt_zero_traffic){.gathered = 0};
    return t;
}

int64_t zt_zero_gathered_peak(const struct zt_zero *z)
{
    return z->gathered_peak;
}

/* ---- hooks ---- */

static zt_err on_enter(void *ctx, struct zt_block *b, bool backward, struct zt_fault *f)
{
    struct zt_zero *z = ctx;
    zt_err rc;

    z->in_backward = backward;
    rc = zt_update_enter(z, b, f);
    if (!rc)
        rc = zt_publish_wait(z, b, f);
    if (!rc)
        rc = zt_gather_enter(z, b, f);
    if (!rc && backward)
        rc = zt_grads_alloc(z, b, f);
    if (!z->planning)
        zt_trace_begin(backward ? "backward" : "forward", b->name);
    return rc;
}

static zt_err on_leave(void *ctx, struct zt_block *b, bool backward, struct zt_fault *f)
{
    struct zt_zero *z = ctx;

    (void)backward;
    if (!z->planning)
        zt_trace_end();
    return zt_gather_leave(z, b, f);
}

static zt_err on_ready(void *ctx, struct zt_block *b, struct zt_fault *f)
{
    return zt_grads_ready(ctx, b, f);
}

struct zt_step_hooks zt_zero_hooks(struct zt_zero *z)
{
    return (struct zt_step_hooks){
        .ctx = z,
        .block_enter = on_enter,
        .block_leave = on_leave,
        .grads_ready = on_ready,
    };
}

void zt_zero_pass_begin(struct zt_zero *z, zt_mode mode, int64_t micro)
{
    z->mode = mode;
    z->first_micro = micro == 0;
    z->last_micro = micro == z->cfg.micro_batches - 1;
    z->in_backward = false;
    for (int i = 0; i < z->cfg.model->num_params; i++)
        z->cfg.model->params[i]->reached = false;
    if (mode == ZT_MODE_TRAIN)
        zt_grads_begin(z);
    zt_gather_begin(z);
}

zt_err zt_zero_pass_end(struct zt_zero *z, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    if (z->mode == ZT_MODE_TRAIN)
        rc = zt_grads_end(z, fault);
    return rc ? rc : zt_gather_end(z, fault);
}
