/* An optimizer that needs the tensor: its slices stay within a parameter and name it. */
#include "test/unit/zero/oracle.h"

static struct zt_optimizer adamw_on_tensors; /* AdamW that says needs_tensor */
static struct zt_zero *state_of_rank;
static int64_t updated[64]; /* elements of each parameter, all steps together */

static struct zt_step_hooks remember(struct zt_zero *z)
{
    state_of_rank = z;
    return zt_zero_hooks(z);
}

/* Where element `at` of the parameter's block is, on the device. */
static void *address_of(struct zt_zero *z, zt_state_kind kind, const struct zt_param *p,
                        int64_t at)
{
    struct zt_piece piece;
    void *data;

    DO(zt_state_acquire_around(z, kind, p->block, at, 1, ZT_READ, &piece, &fault));
    data = zt_piece_at(&piece, at);
    DO(zt_state_commit(&piece, ZT_OK, &fault));
    return data;
}

/* The slice is what it says it is; then AdamW. */
static zt_err update_tensor(const struct zt_optim_step *step,
                            const struct zt_optim_slice *slice, struct zt_fault *f)
{
    const struct zt_optimizer *adamw = zt_optimizer_find("AdamW");
    struct zt_zero *z = state_of_rank;
    const struct zt_param *p = zt_model_find(z->cfg.model, slice->tensor.name);
    struct zt_optim_config cfg = *step->cfg;
    struct zt_optim_step plain = *step;
    int64_t at;

    CHECK(p != NULL && !(p->flags & ZT_FROZEN));
    CHECK(slice->tensor.ndim == p->ndim);
    CHECK(memcmp(slice->tensor.shape, p->shape, sizeof(p->shape)) == 0);
    CHECK(slice->tensor.first >= 0 && slice->n > 0);
    CHECK(slice->tensor.first + slice->n <= p->numel);
    CHECK(slice->decay == !(p->flags & ZT_NO_DECAY));
    at = p->offset_elems + slice->tensor.first;
    CHECK(slice->master ==
          address_of(z, z->cfg.dtype == ZT_F32 ? ZT_STATE_WEIGHTS : ZT_STATE_MASTER, p,
                     at));
    CHECK(slice->state[1] == address_of(z, ZT_STATE_MOMENT + 1, p, at));
    updated[p->index] += slice->n;
    cfg.optimizer = adamw;
    plain.cfg = &cfg;
    return adamw->update(&plain, slice, f);
}

/* Every element of a parameter that is this rank's was updated once a step. */
static void train_and_count(struct zt_comm *c)
{
    static struct result mine;
    struct rank r;

    open_rank(&r, the_job, c);
    run_steps(&r, &mine);
    for (int i = 0; i < r.model->num_params; i++) {
        const struct zt_param *p = r.model->params[i];
        int64_t from = 0, n = p->numel;

        if (r.zero->stage)
            zt_zero_part(r.zero, p, &from, &n);
        if (p->flags & ZT_FROZEN)
            n = 0;
        CHECK(updated[i] == n * the_job->steps);
    }
    if (my_rank == 0)
        *the_result = mine;
    DO(zt_barrier(c, &fault));
    close_rank(&r);
}

static void use_tensors(bool tensors)
{
    job_config(); /* its values stay */
    adamw_on_tensors = *zt_optimizer_find("AdamW");
    adamw_on_tensors.needs_tensor = true;
    adamw_on_tensors.update = update_tensor;
    job_optim.optimizer = tensors ? &adamw_on_tensors : zt_optimizer_find("AdamW");
}

static void test_slices_of_tensors_name_them_and_give_the_same_bits(void **state)
{
    static struct result want, got;

    (void)state;
    for (int stage = 0; stage < 4; stage++)
        for (int world = 1; world < 4; world += 2) {
            struct job j = make_job(world, stage, world == 1 ? ZT_F32 : ZT_BF16);

            use_tensors(false);
            train(&j, &want);
            use_tensors(true);
            j.watch = remember;
            j.o.sub_group_size = stage % 2 ? 1000 : 0;
            run_job(&j, train_and_count);
            got = *the_result;
            assert_same(&j, &want, &got);
        }
}

static void count_segments(struct zt_comm *c)
{
    struct rank r;
    int trainable = 0;

    open_rank(&r, the_job, c);
    for (int i = 0; i < r.model->num_params; i++)
        trainable += !(r.model->params[i]->flags & ZT_FROZEN);
    if (job_optim.optimizer->needs_tensor)
        CHECK(r.zero->num_segments == trainable);
    else
        CHECK(r.zero->num_segments < trainable);
    close_rank(&r);
}

static void test_runs_are_cut_at_parameters_only_where_that_is_needed(void **state)
{
    struct job j = make_job(1, 0, ZT_F32);

    (void)state;
    for (int tensors = 0; tensors < 2; tensors++) {
        use_tensors(tensors);
        run_job(&j, count_segments);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices_of_tensors_name_them_and_give_the_same_bits),
        cmocka_unit_test(test_runs_are_cut_at_parameters_only_where_that_is_needed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
