/*
 * oracle.h -- what ranks should give, computed by one process without collectives.
 *
 * A world of one runs every rank's micro-batches in turn; the gradients are copied out,
 * rounded, and added up here in rank order, as the options say in words:
 *
 *      every:  per micro-batch, the sum over ranks of (what is sent), to the accumulators
 *      else:   per rank, micro-batches to the accumulators; then the sum over ranks
 *
 * Only the optimizer's kernel is shared with what is tested; it is tested elsewhere.
 */
#ifndef TEST_ZERO_ORACLE_H
#define TEST_ZERO_ORACLE_H

#include "test/unit/zero/job.h"

/* fp32 through a type and back. */
static float round_to(float x, zt_dtype dtype)
{
    if (dtype == ZT_F32)
        return x;
    return (float)(dtype == ZT_BF16 ? decode(code_of(x, dtype), 8, 7)
                                    : decode(code_of(x, dtype), 5, 10));
}

struct oracle {
    struct rank r;
    struct zt_comm *solo;
    int64_t elems;        /* of all trainable blocks' flat buffers */
    float *sum;           /* the accumulators */
    float *of[MAX_RANKS]; /* what each rank would send */
};

/* Take the gradients of the pass that was just run, adding to `out` in `dtype`. */
static void take_grads(struct oracle *o, float *out, bool first, zt_dtype dtype)
{
    for (int i = 0; i < o->r.model->num_blocks; i++) {
        struct zt_block *b = o->r.model->blocks[i];

        if (b->frozen || b->padded_elems == 0)
            continue;
        for (int64_t k = 0; k < b->padded_elems; k++)
            out[k] = round_to(first ? b->grads[k] : out[k] + b->grads[k], dtype);
        memset(b->grads, 0, (size_t)b->padded_elems * sizeof(float));
        out += b->padded_elems;
    }
}

/* The sum over ranks of what they send, added to the accumulators. */
static void reduce(struct oracle *o, bool first)
{
    const struct zt_zero_options *how = &the_job->o;
    float pre = the_job->world > 1 && how->prescale_gradients
                    ? 1 / (float)the_job->world
                    : 1 / (float)how->predivide_factor;
    zt_dtype wire = how->communication_dtype;

    for (int64_t i = 0; i < o->elems; i++) {
        float s = 0;

        for (int q = 0; q < the_job->world; q++) {
            float x = round_to(o->of[q][i] * pre, wire);

            s = q ? s + x : x;
        }
        s = round_to(s, wire) * (1 / pre);
        o->sum[i] = round_to(first ? s : o->sum[i] + s, how->grad_accum_dtype);
    }
}

static void oracle_micro(struct oracle *o, int step, int64_t m, int q, double *loss)
{
    bool every = the_job->every || the_job->o.stage >= 2;

    DO(run_pass(&o->r, ZT_MODE_TRAIN, step, m, q, loss));
    if (every)
        take_grads(o, o->of[q], true, ZT_F32);
    else if (the_job->o.grad_accum_dtype != ZT_F32 || m == the_job->micro_batches - 1)
        /* fp32 accumulators are what backward adds to, from micro-batch to micro-batch */
        take_grads(o, o->of[q], m == 0 || the_job->o.grad_accum_dtype == ZT_F32,
                   the_job->o.grad_accum_dtype);
}

static double oracle_grads(struct oracle *o, int step)
{
    bool every = the_job->every || the_job->o.stage >= 2;
    double loss = 0;

    if (every)
        for (int64_t m = 0; m < the_job->micro_batches; m++) {
            for (int q = 0; q < the_job->world; q++)
                oracle_micro(o, step, m, q, &loss);
            reduce(o, m == 0);
        }
    else {
        for (int q = 0; q < the_job->world; q++)
            for (int64_t m = 0; m < the_job->micro_batches; m++)
                oracle_micro(o, step, m, q, &loss);
        reduce(o, true);
    }
    return loss;
}

static void oracle_open(struct oracle *o, struct job *one)
{
    struct zt_comm_config cfg = {.engine = "solo", .world = 1, .shm_fd = -1};
    int world = one->world;

    *o = (struct oracle){.elems = 0};
    DO(zt_comm_open(&cfg, &o->solo, &fault));
    o->r.comm = o->solo;
    open_model(&o->r, one); /* blocks as in that world */
    one->world = 1;
    one->micro_batches = 1;
    one->every = false;
    one->o.stage = 0;
    one->o.communication_dtype = one->o.grad_accum_dtype = ZT_F32;
    plan_rank(&o->r);
    open_device(&o->r);
    DO(open_state(&o->r));
    for (int i = 0; i < o->r.model->num_blocks; i++)
        o->elems +=
            o->r.model->blocks[i]->frozen ? 0 : o->r.model->blocks[i]->padded_elems;
    o->sum = calloc((size_t)o->elems, sizeof(float));
    for (int q = 0; q < world; q++)
        o->of[q] = calloc((size_t)o->elems, sizeof(float));
}

static void oracle_step(struct oracle *o, int step, struct result *out)
{
    const float *from = o->sum;
    double sumsq = 0;

    out->loss[step - 1] = oracle_grads(o, step);
    for (int i = 0; i < o->r.model->num_blocks; i++) {
        struct zt_block *b = o->r.model->blocks[i];

        if (b->frozen || b->padded_elems == 0)
            continue;
        memcpy(b->grads, from, (size_t)b->padded_elems * sizeof(float));
        for (int64_t k = 0; k < b->padded_elems; k++)
            sumsq += (double)from[k] * (double)from[k];
        from += b->padded_elems;
    }
    out->sumsq[step - 1] = sumsq;
    DO(update(&o->r, step));
    DO(zt_zero_fingerprint(o->r.zero, &out->fingerprint[step - 1], &fault));
}

static void oracle_rank(struct zt_comm *c)
{
    struct job one = *the_job;
    struct oracle o;

    (void)c;
    oracle_open(&o, &one);
    for (int s = 1; s <= the_job->steps; s++)
        oracle_step(&o, s, the_result);
    get_weights(&o.r, the_result->weights, &the_result->num_weights);
    for (int q = 0; q < the_job->world; q++)
        free(o.of[q]);
    free(o.sum);
    close_rank(&o.r);
    zt_comm_close(o.solo);
}

/* What the job should give. */
static void UNUSED oracle(const struct job *j, struct result *out)
{
    struct group g = {.world = 1, .fd = -1};

    share_result();
    the_job = j;
    start_rank(&g, 0, false, oracle_rank);
    assert_int_equal(end_of_rank(&g, 0), 0);
    *out = *the_result;
}

/* The same weights bit for bit; sums of squares but for the order they are added in. */
static void UNUSED assert_matches(const struct job *j, const struct result *want,
                                  const struct result *got)
{
    bool same = !memcmp(want->weights, got->weights, sizeof(want->weights)) &&
                !memcmp(want->fingerprint, got->fingerprint, sizeof(want->fingerprint));

    for (int s = 0; s < j->steps; s++)
        same = same && fabs(want->sumsq[s] - got->sumsq[s]) <= 1e-12 * want->sumsq[s] &&
               fabs(want->loss[s] - got->loss[s]) <= 1e-12 * want->loss[s];
    if (!same) {
        print_job(j);
        for (int s = 0; s < j->steps; s++)
            print_message("  step %d: loss %.17g %.17g, sumsq %.17g %.17g\n", s + 1,
                          want->loss[s], got->loss[s], want->sumsq[s], got->sumsq[s]);
        fail_msg("not what the oracle gives");
    }
}

static void UNUSED assert_oracle(const struct job *j)
{
    static struct result want, got;

    if (!in_sample())
        return;
    oracle(j, &want);
    train(j, &got);
    assert_matches(j, &want, &got);
}

#endif
