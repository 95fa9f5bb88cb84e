/*
 * job.h -- ranks that train the model of net.h under some ZeRO options, and what they
 * leave: norms, losses, fingerprints and final weights, in memory shared with the test.
 *
 *      struct job j = make_job(world, stage, dtype);   then change what is to be tested
 *      train(&j, &result);                             forked ranks over shm
 *
 * A rank checks with CHECK() and DO() of ranks.h. Everything is static: each test program
 * has its own.
 */
#ifndef TEST_ZERO_JOB_H
#define TEST_ZERO_JOB_H

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

#include "test/unit/sample.h"
#include "test/unit/comm/ranks.h"
#include "test/unit/zero/net.h"
#include "worker/zero/private.h"

#define MAX_STEPS         6
#define MAX_WEIGHTS       40000
#define JOB_B             2
#define JOB_SEED          11
#define JOB_WEIGHTS_PIECE 8192 /* elements */

struct job {
    int world;
    zt_dtype dtype;
    struct zt_zero_options o;
    int64_t micro_batches;
    bool every, recompute;
    bool on_host;            /* what may be kept in host memory is, in the host tier */
    bool in_reach;           /* kernels work on it there */
    const char *dir;         /* on_host: in files here instead; NULL: none */
    bool pipeline;           /* pieces before and behind the one at work move */
    bool weights_too;        /* on_host, dir: of the weights what is gathered */
    int weights_buffers;     /* of them, in files; 0: 2 */
    int64_t weights_in_host; /* dir: of them, so many elements stay in host memory */
    double ratio;            /* of it that is; 0: all */
    int steps, eval_steps;   /* a pass of evaluation after every so many; 0: none */
    float dloss;             /* grad_scale is its reciprocal */
    const char *engine;      /* NULL: shm */
    /* which blocks run in micro-batch i of a step; NULL: all, in order */
    net_order (*order)(int step, int64_t micro);
    /* other hooks of the step, which call zt_zero_hooks() in between; NULL: those */
    struct zt_step_hooks (*watch)(struct zt_zero *z);
};

struct result {
    double sumsq[MAX_STEPS], loss[MAX_STEPS], eval[MAX_STEPS];
    uint64_t fingerprint[MAX_STEPS];
    int64_t gathered_peak;
    int num_weights;
    float weights[MAX_WEIGHTS]; /* of all parameters, as zt_zero_get() tells them */
};

/* A rank's things. */
struct rank {
    const struct job *j;
    const struct zt_backend *backend;
    struct zt_device *device;
    struct zt_model *model;
    struct zt_comm *comm;
    struct zt_zero *zero;
    struct zt_step *step;
    struct zt_pool *pool;
    void *pool_base;
    size_t pool_bytes, gathered_bytes, transient_bytes; /* as planned */
    float *scalars;                                     /* [0]: grad_scale */
};

/* AdamW, unless a test has its own. */
static struct zt_optim_config job_optim;

static void UNUSED set_job_value(const char *name, int i, double value)
{
    job_optim.value[zt_hyper_find(job_optim.optimizer->params, name)->slot + i] = value;
}

static const struct zt_optim_config *job_config(void)
{
    if (job_optim.optimizer)
        return &job_optim;
    job_optim.optimizer = zt_optimizer_find("AdamW");
    set_job_value("lr", 0, 3e-3);
    set_job_value("betas", 0, 0.9);
    set_job_value("betas", 1, 0.95);
    set_job_value("eps", 0, 1e-8);
    set_job_value("weight_decay", 0, 0.1);
    set_job_value("bias_correction", 0, 1);
    return &job_optim;
}

static const struct job *the_job UNUSED;
static struct result *the_result UNUSED; /* shared with the ranks */

/* The defaults of the config. */
static struct job UNUSED make_job(int world, int stage, zt_dtype dtype)
{
    return (struct job){
        .world = world,
        .dtype = dtype,
        .micro_batches = 1,
        .steps = 2,
        .dloss = dtype == ZT_F16 ? 64 : 1,
        .o = {.stage = stage,
              .overlap_comm = stage == 3,
              .reduce_scatter = true,
              .allgather_partitions = true,
              .reduce_bucket_size = 500000000,
              .allgather_bucket_size = 500000000,
              .sub_group_size = 1000000000,
              .prefetch_bucket_size = 50000000,
              .max_live_parameters = 1000000000,
              .max_reuse_distance = 1000000000,
              .param_persistence_threshold = 0,
              .model_persistence_threshold = INT64_MAX,
              .hpz_partition_size = 1,
              .ignore_unused_parameters = true,
              .predivide_factor = 1,
              .communication_dtype = ZT_F32,
              .grad_accum_dtype = ZT_F32},
    };
}

/* ---- batches ---- */

static void UNUSED make_batch(int32_t *tokens, int32_t *targets, int step, int64_t micro,
                              int rank)
{
    for (int i = 0; i < JOB_B * NET_T; i++) {
        uint64_t at = ((uint64_t)step << 40) + ((uint64_t)micro << 20) + (uint64_t)i;

        tokens[i] = (int32_t)(mix(1, (uint64_t)rank, at) % NET_VOCAB);
        targets[i] = (int32_t)(mix(2, (uint64_t)rank, at) % NET_VOCAB);
    }
}

/* Forward (and backward) of micro-batch `micro` of rank `rank`; adds to *loss. */
static zt_err UNUSED run_pass(struct rank *r, zt_mode mode, int step, int64_t micro,
                              int rank, double *loss)
{
    int32_t tokens[JOB_B * NET_T], targets[JOB_B * NET_T];
    struct zt_pass pass = {.mode = mode,
                           .step = (uint64_t)step,
                           .row0 = rank * JOB_B,
                           .B = JOB_B,
                           .T = NET_T,
                           .fields = {tokens, targets}};
    zt_tensor *out = NULL;
    zt_err rc;

    make_batch(tokens, targets, step, micro, rank);
    net_now = r->j->order && !r->zero->planning ? r->j->order(step, micro) : NET_ALL;
    zt_zero_pass_begin(r->zero, mode, micro);
    rc = zt_step_forward(r->step, &pass, &out, &fault);
    if (!rc && loss)
        *loss += (double)*(const float *)zt_tensor_view(out)->data;
    if (!rc && mode == ZT_MODE_TRAIN)
        rc = zt_step_backward(r->step, out, r->j->dloss, &fault);
    zt_step_end(r->step);
    return rc ? rc : zt_zero_pass_end(r->zero, &fault);
}

/* ---- opening ---- */

/* Gradients may be there where no collective works on 16-bit accumulators. */
static bool UNUSED grads_may_move(const struct job *j)
{
    bool every = j->o.stage >= 2 || j->every || j->micro_batches == 1;

    return j->o.grad_accum_dtype == ZT_F32 || j->world == 1 || every;
}

static struct zt_zero_config UNUSED zero_config(const struct rank *r)
{
    const struct zt_tier *host = r->j->dir       ? &zt_file_tier
                                 : r->j->on_host ? &zt_host_tier
                                                 : NULL;
    static const char *dirs[2];

    dirs[0] = r->j->dir;
    return (struct zt_zero_config){
        .backend = r->backend,
        .device = r->device,
        .model = r->model,
        .comm = r->comm,
        .rank = my_rank,
        .world = r->j->world,
        .dtype = r->j->dtype,
        .training = true,
        .optimizer = job_config()->optimizer,
        .tiers = {[ZT_STATE_WEIGHTS] = r->j->weights_too ? host : NULL,
                  [ZT_STATE_MASTER] = host,
                  [ZT_STATE_MOMENT] = host,
                  [ZT_STATE_MOMENT + 1] = host,
                  [ZT_STATE_GRADIENTS] = grads_may_move(r->j) ? host : NULL},
        .offload_ratio = r->j->ratio ? r->j->ratio : 1,
        .host_in_reach = r->j->in_reach,
        .aio = {.block_size = 4096, .queue_depth = 3, .threads = 2},
        .swap = {.dirs = dirs,
                 .pipeline_read = r->j->pipeline,
                 .pipeline_write = r->j->pipeline,
                 .verify = true},
        .weights_swap = {.dirs = dirs,
                         .buffers = r->j->weights_buffers ? r->j->weights_buffers : 2,
                         .pipeline_read = true,
                         .pipeline_write = r->j->pipeline,
                         .verify = true},
        .weights_piece = JOB_WEIGHTS_PIECE,
        .weights_in_host = r->j->weights_in_host,
        .micro_batches = r->j->micro_batches,
        .reduce_every_micro_batch = r->j->every,
        .options = &r->j->o,
        .gathered_bytes = r->gathered_bytes,
        .transient_bytes = r->transient_bytes};
}

static void UNUSED open_model(struct rank *r, const struct job *j)
{
    struct zt_model_config mc = {.compute_dtype = j->dtype};

    r->j = j;
    DO(zt_model_open(&net_plugin, &mc, &r->model, &fault));
    zt_model_layout(r->model, j->world);
}

static void UNUSED open_step(struct rank *r)
{
    struct zt_step_config sc = {.backend = r->backend,
                                .device = r->device,
                                .pool = r->pool,
                                .model = r->model,
                                .compute_dtype = r->j->dtype,
                                .recompute = r->j->recompute,
                                .seed = JOB_SEED,
                                .hooks = zt_zero_hooks(r->zero)};

    if (r->j->watch && !r->zero->planning)
        sc.hooks = r->j->watch(r->zero);
    DO(zt_step_open(&sc, &r->step, &fault));
}

/* Passes on shapes alone, as the engine plans a run: what the pools will need. */
static void UNUSED plan_rank(struct rank *r)
{
    struct rank p = *r;
    int64_t last = r->j->micro_batches - 1;

    p.comm = NULL;
    DO(zt_backend_find("meta", &p.backend, &fault));
    DO(p.backend->open(0, 1, &p.device, &fault));
    DO(zt_pool_open((void *)((uintptr_t)1 << 46), (size_t)1 << 45, &p.pool, &fault));
    {
        struct zt_zero_config zc = zero_config(&p);

        DO(zt_zero_open(&zc, &p.zero, &fault));
        DO(zt_zero_open_pools(p.zero, &fault));
    }
    open_step(&p);
    for (int i = 0; i < 2; i++) {
        DO(run_pass(&p, ZT_MODE_TRAIN, 1, 0, 0, NULL));
        if (last)
            DO(run_pass(&p, ZT_MODE_TRAIN, 1, last, 0, NULL));
    }
    for (int i = 0; i < 2 && r->j->eval_steps; i++)
        DO(run_pass(&p, ZT_MODE_EVAL, 1, 0, 0, NULL));
    r->pool_bytes = zt_pool_peak(p.pool);
    r->gathered_bytes = zt_zero_measure(p.zero).in[ZT_PLACE_DEVICE].gathered;
    r->transient_bytes = zt_zero_measure(p.zero).in[ZT_PLACE_DEVICE].transient;
    CHECK(zt_pool_used(p.zero->gathered_pool) == 0);
    CHECK(zt_pool_used(p.zero->transient_pool) == 0);
    zt_step_close(p.step);
    zt_zero_close(p.zero);
    zt_pool_close(p.pool);
    p.backend->close(p.device);
}

static zt_err UNUSED open_state(struct rank *r)
{
    struct zt_zero_config zc = zero_config(r);
    zt_err rc = zt_zero_open(&zc, &r->zero, &fault);

    if (!rc)
        open_step(r);
    if (!rc) /* needs no pools, as loading does not */
        rc = zt_zero_init(r->zero, JOB_SEED, &fault);
    return rc ? rc : zt_zero_open_pools(r->zero, &fault);
}

static void UNUSED open_device(struct rank *r)
{
    void *p = NULL;

    DO(zt_backend_find("cpu", &r->backend, &fault));
    DO(r->backend->open(0, 1, &r->device, &fault));
    DO(r->backend->alloc(r->device, r->pool_bytes, &r->pool_base, &fault));
    DO(zt_pool_open(r->pool_base, r->pool_bytes, &r->pool, &fault));
    DO(r->backend->alloc(r->device, 64, &p, &fault));
    r->scalars = p;
    r->scalars[0] = 1 / r->j->dloss;
}

static void UNUSED close_rank(struct rank *r)
{
    zt_step_close(r->step);
    zt_zero_close(r->zero);
    zt_pool_close(r->pool);
    r->backend->free(r->device, r->pool_base, r->pool_bytes);
    r->backend->free(r->device, r->scalars, 64);
    r->backend->close(r->device);
    zt_model_close(r->model);
}

/* Ready to train, over `c`. */
static void UNUSED open_rank(struct rank *r, const struct job *j, struct zt_comm *c)
{
    *r = (struct rank){.comm = c};
    open_model(r, j);
    plan_rank(r);
    open_device(r);
    DO(open_state(r));
}

/* ---- a step ---- */

static zt_err UNUSED update(struct rank *r, int step)
{
    struct zt_optim_step how = {.backend = r->backend,
                                .device = r->device,
                                .cfg = job_config(),
                                .lr = job_optim.value[ZT_OPTIM_LR],
                                .t = step,
                                .grad_scale = r->scalars};

    return zt_zero_update(r->zero, &how, &fault);
}

/* Step `step` (1, 2, ...): sums[0] is the squared norm, sums[1] the loss, of all ranks.
 */
static zt_err UNUSED train_step(struct rank *r, int step, double sums[2])
{
    zt_err rc = ZT_OK;

    sums[0] = sums[1] = 0;
    for (int64_t i = 0; !rc && i < r->j->micro_batches; i++)
        rc = run_pass(r, ZT_MODE_TRAIN, step, i, my_rank, &sums[1]);
    if (!rc)
        rc = zt_zero_sumsq(r->zero, &sums[0], &fault);
    if (!rc)
        rc = zt_sum_f64(r->comm, sums, 2, &fault);
    if (!rc)
        rc = update(r, step);
    return rc ? rc : zt_zero_step_model(r->zero, step, NULL, &fault);
}

/* ---- results ---- */

/* The code of x in a 16-bit type. */
static uint16_t UNUSED code_of(float x, zt_dtype dtype)
{
    return (uint16_t)(dtype == ZT_BF16 ? encode((double)x, 8, 7)
                                       : encode((double)x, 5, 10));
}

/* What this rank holds of a parameter's 16-bit weights is the rounded fp32 value. */
static void UNUSED check_rounding(const struct rank *r, const struct zt_param *p,
                                  const float *values)
{
    struct zt_zero *z = r->zero;
    int64_t from = 0, n = p->numel;
    struct zt_piece piece;

    if (r->j->dtype == ZT_F32)
        return;
    if (!zt_is_whole(z, ZT_STATE_WEIGHTS, p->block))
        zt_zero_part(z, p, &from, &n);
    if (n == 0)
        return;
    for (int64_t i = from; i < from + n;) {
        DO(zt_state_acquire_around(z, ZT_STATE_WEIGHTS, p->block, p->offset_elems + i,
                                   from + n - i, ZT_READ, &piece, &fault));
        for (; i < from + n && p->offset_elems + i < piece.begin + piece.n; i++) {
            const uint16_t *w = zt_piece_at(&piece, p->offset_elems + i);

            CHECK(*w == code_of(values[i], r->j->dtype));
        }
        DO(zt_state_commit(&piece, ZT_OK, &fault));
    }
}

static void UNUSED get_weights(struct rank *r, float *out, int *num)
{
    int at = 0;

    for (int i = 0; i < r->model->num_params; i++) {
        const struct zt_param *p = r->model->params[i];

        CHECK(at + p->numel <= MAX_WEIGHTS);
        DO(zt_zero_get(r->zero, ZT_STATE_VALUE, p, 0, p->numel, out + at, &fault));
        check_rounding(r, p, out + at);
        at += (int)p->numel;
    }
    *num = at;
}

/* All steps of the job on an open rank; the result to `out`. */
static void UNUSED run_steps(struct rank *r, struct result *out)
{
    for (int s = 1; s <= r->j->steps; s++) {
        double sums[2], eval = 0;

        DO(train_step(r, s, sums));
        out->sumsq[s - 1] = sums[0];
        out->loss[s - 1] = sums[1];
        if (s < r->j->steps)
            DO(zt_zero_fingerprint(r->zero, &out->fingerprint[s - 1], &fault));
        if (!r->j->eval_steps || s % r->j->eval_steps)
            continue;
        DO(run_pass(r, ZT_MODE_EVAL, s, 0, my_rank, &eval));
        DO(zt_sum_f64(r->comm, &eval, 1, &fault));
        out->eval[s - 1] = eval;
    }
    out->gathered_peak = zt_zero_gathered_peak(r->zero);
    /* right behind the last step, whose new weights may still be on their way */
    get_weights(r, out->weights, &out->num_weights);
    DO(zt_zero_fingerprint(r->zero, &out->fingerprint[r->j->steps - 1], &fault));
}

/* The pools needed just what was planned, and nothing is left in them. */
static void UNUSED check_plan(const struct rank *r)
{
    struct zt_state_bytes b = zt_zero_measure(r->zero).in[ZT_PLACE_DEVICE];

    CHECK(b.gathered == r->gathered_bytes && b.transient == r->transient_bytes);
    CHECK(zt_pool_peak(r->pool) == r->pool_bytes && zt_pool_used(r->pool) == 0);
    CHECK(!r->gathered_bytes || zt_pool_used(r->zero->gathered_pool) == 0);
    CHECK(!r->transient_bytes || zt_pool_used(r->zero->transient_pool) == 0);
}

/* Every rank must have the same; rank 0's is what the test sees. */
static void UNUSED train_rank(struct zt_comm *c)
{
    static struct result mine;
    struct rank r;

    open_rank(&r, the_job, c);
    run_steps(&r, &mine);
    if (!the_job->order)
        check_plan(&r);
    if (my_rank == 0)
        *the_result = mine;
    DO(zt_barrier(c, &fault));
    CHECK(memcmp(mine.weights, the_result->weights, sizeof(mine.weights)) == 0);
    CHECK(memcmp(mine.sumsq, the_result->sumsq, sizeof(mine.sumsq)) == 0);
    CHECK(memcmp(mine.fingerprint, the_result->fingerprint, sizeof(mine.fingerprint)) ==
          0);
    close_rank(&r);
}

/* An empty result that the ranks can fill. */
static void UNUSED share_result(void)
{
    if (!the_result) {
        the_result = mmap(NULL, sizeof(*the_result), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(the_result != MAP_FAILED);
    }
    memset(the_result, 0, sizeof(*the_result));
}

static void UNUSED start_job(struct group *g, const struct job *j, rank_fn fn)
{
    share_result();
    the_job = j;
    *g = (struct group){.world = j->world, .engine = j->engine};
    make_fd(g);
    for (int r = 0; r < j->world; r++)
        start_rank(g, r, true, fn);
}

static void UNUSED run_job(const struct job *j, rank_fn fn)
{
    struct group g;

    start_job(&g, j, fn);
    assert_ranks_end_well(&g);
}

static void UNUSED train(const struct job *j, struct result *out)
{
    run_job(j, train_rank);
    *out = *the_result;
    assert_true(out->num_weights > 0 && out->loss[0] > 0 && out->sumsq[0] > 0);
}

static void UNUSED print_job(const struct job *j)
{
    const struct zt_zero_options *o = &j->o;

    print_message(
        "  world %d stage %d dtype %d micro %d every %d recompute %d overlap %d "
        "bucket %lld scatter %d allgather %d prefetch %lld live %lld reuse %lld "
        "persist %lld hpz %d share %d comm %d accum %d\n",
        j->world, o->stage, (int)j->dtype, (int)j->micro_batches, j->every, j->recompute,
        o->overlap_comm, (long long)o->reduce_bucket_size, o->reduce_scatter,
        o->allgather_partitions, (long long)o->prefetch_bucket_size,
        (long long)o->max_live_parameters, (long long)o->max_reuse_distance,
        (long long)o->param_persistence_threshold, o->hpz_partition_size,
        o->share_node_weights, (int)o->communication_dtype, (int)o->grad_accum_dtype);
}

/* The same bits: weights, norms, losses. */
static void UNUSED assert_same(const struct job *j, const struct result *a,
                               const struct result *b)
{
    if (memcmp(a->weights, b->weights, sizeof(a->weights)) ||
        memcmp(a->sumsq, b->sumsq, sizeof(a->sumsq)) ||
        memcmp(a->loss, b->loss, sizeof(a->loss)) ||
        memcmp(a->eval, b->eval, sizeof(a->eval)) ||
        memcmp(a->fingerprint, b->fingerprint, sizeof(a->fingerprint))) {
        print_job(j);
        for (int s = 0; s < j->steps; s++)
            print_message("  step %d: loss %.9g %.9g, sumsq %.17g %.17g\n", s + 1,
                          a->loss[s], b->loss[s], a->sumsq[s], b->sumsq[s]);
        fail_msg("these two differ");
    }
}

/* What the job gives is, bit for bit, what the other one gives; in_sample() only. */
static void UNUSED assert_trains_like(const struct job *j, const struct result *want)
{
    static struct result got;

    if (!in_sample())
        return;
    train(j, &got);
    assert_same(j, want, &got);
}

/* The same of two jobs. */
static void UNUSED assert_train_alike(const struct job *j, const struct job *like)
{
    static struct result want, got;

    if (!in_sample())
        return;
    train(like, &want);
    train(j, &got);
    assert_same(j, &want, &got);
}

#endif
