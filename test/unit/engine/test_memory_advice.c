/* What a run that does not fit is told has been planned, and fits. */
#include "test/unit/engine/planned_job.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <zlaunch/save.h>

#include "worker/engine/checkpoint/writer.h"
#include "worker/engine/memory/process.h"
#include "worker/engine/memory/trial.h"

/* Bytes of a rank of this job. No other is open: their models share one self. */
static size_t total_of(int world, const char *rows, const char *more)
{
    struct job j;
    size_t bytes;

    job_open(&j, world, rows, more);
    bytes = j.plan.total;
    job_close(&j);
    return bytes;
}

/* The refusal where the machine has so many bytes; the layout is that of `world` ranks. */
static const char *refusal(struct job *j, size_t available)
{
    int64_t padded = j->model->blocks[0]->padded_elems;

    j->plan.available = available;
    assert_int_equal(zt_memory_plan_check(&j->in, &j->plan, &j->fault), ZT_E_PLAN);
    assert_int_equal(j->model->blocks[0]->padded_elems, padded);
    return j->fault.text;
}

static void says_not(const char *text, const char *phrase)
{
    if (strstr(text, phrase))
        fail_msg("\"%s\" says \"%s\"", text, phrase);
}

static void test_the_least_change_that_fits_is_what_is_to_be_typed(void **state)
{
    const size_t all = total_of(1, "32", "--gradient_checkpointing"),
                 half = total_of(1, "16", "--gradient_checkpointing"),
                 eighth = total_of(1, "4", "--gradient_checkpointing"),
                 least = total_of(1, "2", "--gradient_checkpointing");
    struct job j;

    (void)state;
    job_open(&j, 1, "32", NULL);
    says(refusal(&j, all), "; --gradient_checkpointing would fit, with ");
    says(refusal(&j, least), "; --gradient_checkpointing --per_device_train_batch_size 2 "
                             "--gradient_accumulation_steps 16 would fit, with ");
    job_close(&j);

    job_open(&j, 1, "32", "--gradient_checkpointing");
    says(refusal(&j, half),
         "; --per_device_train_batch_size 16 --gradient_accumulation_steps 2 would fit");
    says(refusal(&j, eighth),
         "; --per_device_train_batch_size 4 --gradient_accumulation_steps 8 would fit");
    job_close(&j);
}

/* The divisors of a number are not looked for among all below it, and reach up to itself: here
 * there are 1343 of them besides 1. The alarm ends a test that goes on for ever. */
static void test_a_batch_of_any_size_has_an_advice_soon(void **state)
{
    const size_t one = total_of(1, "1", "--gradient_checkpointing");
    struct job j;

    (void)state;
    alarm(60);
    job_open(&j, 1, "2147483647", "--gradient_checkpointing"); /* a prime */
    says(refusal(&j, one),
         "; --per_device_train_batch_size 1 --gradient_accumulation_steps 2147483647");
    job_close(&j);
    job_open(&j, 1, "735134400", "--gradient_checkpointing");
    says(refusal(&j, one),
         "; --per_device_train_batch_size 1 --gradient_accumulation_steps 735134400");
    job_close(&j);
    alarm(0);
}

static void test_too_many_rows_of_an_evaluation_are_told_so_and_no_more(void **state)
{
    size_t fits;
    struct job j;

    (void)state;
    job_open(&j, 1, "8", NULL);
    j.run->do_eval = true;
    j.run->per_device_eval_batch_size = 512;
    expect_ok(zt_memory_plan_make(&j.in, &j.plan, &j.fault), &j.fault);
    fits = j.plan.total;
    j.run->per_device_eval_batch_size = 4096;
    expect_ok(zt_memory_plan_make(&j.in, &j.plan, &j.fault), &j.fault);
    says(refusal(&j, fits), "; --per_device_eval_batch_size 512 would fit, with ");
    job_close(&j);
}

/* Tokens and targets of each of its rows wait in host memory. */
static void test_the_rows_of_a_whole_step_are_planned(void **state)
{
    size_t one;
    struct job j;

    (void)state;
    job_open(&j, 1, "8", NULL);
    j.in.process_now = 1 << 20;
    expect_ok(zt_memory_plan_make(&j.in, &j.plan, &j.fault), &j.fault);
    one = j.plan.process;
    j.run->grad_accum_steps = 1000;
    expect_ok(zt_memory_plan_make(&j.in, &j.plan, &j.fault), &j.fault);
    assert_int_equal(j.plan.process - one,
                     (size_t)999 * 8 * BLOCK_SIZE * 2 * sizeof(int32_t));
    job_close(&j);
}

static void test_a_batch_of_one_row_is_not_told_to_be_smaller(void **state)
{
    struct job j;
    const char *text;

    (void)state;
    job_open(&j, 1, "1", "--gradient_checkpointing");
    text = refusal(&j, j.plan.total - 1);
    says(text, "; --block_size 8 would fit, with ");
    says_not(text, "batch_size");
    job_close(&j);
}

static void test_fewer_ranks_are_advised_where_they_fit_and_only_there(void **state)
{
    const size_t one = total_of(1, "1", "--gradient_checkpointing");
    struct job j;
    const char *text;

    (void)state;
    job_open(&j, 4, "1", "--gradient_checkpointing");
    assert_true(2 * j.plan.total > one + 64);
    says(refusal(&j, one + 64),
         "; --num_gpus 1 --gradient_accumulation_steps 4 would fit, with ");
    text = refusal(&j, 4096);
    says(text, "; with --num_gpus 1 ");
    says(text, "it would still need ");
    says(text, " for each of 1: a smaller model, or more memory");
    says_not(text, "would fit");
    job_close(&j);
}

static void test_what_the_process_takes_itself_is_part_of_the_plan(void **state)
{
    const size_t held = (size_t)9 << 20;
    struct job j;
    size_t bare;

    (void)state;
    job_open(&j, 1, "2", NULL);
    bare = j.plan.total;
    j.in.process_now = held;
    expect_ok(zt_memory_plan_make(&j.in, &j.plan, &j.fault), &j.fault);
    assert_true(j.plan.process > held && j.plan.process < held + ((size_t)60 << 20));
    assert_int_equal(j.plan.total, bare + j.plan.process);
    j.plan.available = j.plan.total - held; /* which it holds already */
    assert_true(zt_memory_plan_fits(&j.plan));
    j.plan.available--;
    assert_false(zt_memory_plan_fits(&j.plan));
    job_close(&j);
}

static void test_what_the_process_takes_is_what_proc_counts(void **state)
{
    (void)state;
    assert_int_equal(zt_process_memory_now("/nowhere", 1), 0);
    assert_true(zt_process_memory_now("", 1) > zt_process_memory_now("", 4));
    assert_true(zt_process_memory_now("", 4) > 0);
}

/* Of an advice, which has each as an option or not. */
enum { STAGE, OPTIMIZER, WEIGHTS, RECOMPUTE, ROWS, RANKS, NUM_CHANGES };
static const char *const options[NUM_CHANGES] = {"--zero_stage ",
                                                 "--offload_optimizer_device ",
                                                 "--offload_param_device ",
                                                 "--gradient_checkpointing",
                                                 "--per_device_train_batch_size ",
                                                 "--num_gpus "};

/* Whether the job fits as the advice says, but for one change. */
static bool fits_but_for(struct job *j, const char *advice, int left_out)
{
    struct zt_memory_trial t = {.given = &j->in, .of = &j->plan};
    const char *at[NUM_CHANGES];
    bool fits;

    for (int i = 0; i < NUM_CHANGES; i++)
        at[i] = i == left_out ? NULL : strstr(advice, options[i]);
    zt_memory_trial_begin(&t);
    if (at[STAGE])
        zt_memory_trial_set_stage(&t, atoi(at[STAGE] + strlen(options[STAGE])));
    if (at[OPTIMIZER])
        t.run.zero.offload_optimizer =
            (struct zt_offload_optimizer){.device = ZT_OFFLOAD_CPU, .ratio = 1};
    if (at[WEIGHTS])
        t.run.zero.offload_param.device = ZT_OFFLOAD_CPU;
    t.run.gradient_checkpointing = at[RECOMPUTE] != NULL;
    if (at[ROWS]) {
        t.run.micro_batch_size = atoi(at[ROWS] + strlen(options[ROWS]));
        t.run.grad_accum_steps = j->run->micro_batch_size / t.run.micro_batch_size;
    }
    if (at[RANKS]) {
        t.run.world = t.run.local_world = atoi(at[RANKS] + strlen(options[RANKS]));
        t.run.grad_accum_steps *= j->run->world / t.run.world;
    }
    fits = zt_memory_trial_fits(&t);
    zt_memory_trial_end(&t);
    return fits;
}

static void test_nothing_can_be_left_out_of_an_advice(void **state)
{
    int advised = 0, several = 0;
    struct job j;

    (void)state;
    job_open(&j, 2, "8", NULL);
    for (size_t limit = j.plan.on_device - 1, step = limit / 60; limit > 2 * step;
         limit -= step) {
        char advice[512];
        int changes = 0;

        j.plan.device_limit = limit;
        snprintf(advice, sizeof(advice), "%s", strrchr(refusal(&j, SIZE_MAX), ';'));
        if (!strstr(advice, "would fit") || strstr(advice, "--block_size"))
            continue;
        if (!fits_but_for(&j, advice, -1))
            fail_msg("of %zu bytes: \"%s\" does not fit", limit, advice);
        for (int i = 0; i < NUM_CHANGES; i++) {
            if (!strstr(advice, options[i]))
                continue;
            changes++;
            if ((i != STAGE || !strstr(advice, "offload")) && fits_but_for(&j, advice, i))
                fail_msg("of %zu bytes: \"%s\" fits without %s", limit, advice,
                         options[i]);
        }
        advised++;
        several += changes > 1;
    }
    job_close(&j);
    assert_true(advised > 20 && several > 5);
}

/* On a cpu the limit counts what is not offloaded. */
static void test_a_limit_of_the_device_advises_offload(void **state)
{
    struct job j;

    (void)state;
    job_open(&j, 1, "1", "--gradient_checkpointing");
    j.plan.device_limit = j.plan.on_device - 1;
    says(refusal(&j, SIZE_MAX),
         "; --zero_stage 1 --offload_optimizer_device cpu would fit, with ");
    says(j.fault.text, "and --device_memory is");
    j.plan.device_limit = SIZE_MAX;
    says_not(refusal(&j, j.plan.total - 1), "offload");
    job_close(&j);

    /* in the words of a config, where there is one */
    job_open(&j, 1, "1", "--deepspeed={\"zero_optimization\": {\"stage\": 0}}");
    j.run->gradient_checkpointing = true;
    expect_ok(zt_memory_plan_make(&j.in, &j.plan, &j.fault), &j.fault);
    j.plan.device_limit = j.plan.on_device - 1;
    says(refusal(&j, SIZE_MAX),
         "; \"zero_optimization\": {\"stage\": 1, \"offload_optimizer\": {\"device\": "
         "\"cpu\"}} would fit, with ");
    job_close(&j);
}

/* What a rank of the job takes as one of `world`, with its state on the host. */
static struct zt_memory_plan offloaded(struct job *j, int world, bool weights)
{
    struct zt_memory_trial t = {.given = &j->in, .of = &j->plan};

    zt_memory_trial_begin(&t);
    zt_memory_trial_set_stage(&t, weights ? 3 : 1);
    t.run.zero.offload_optimizer =
        (struct zt_offload_optimizer){.device = ZT_OFFLOAD_CPU, .ratio = 1};
    if (weights)
        t.run.zero.offload_param.device = ZT_OFFLOAD_CPU;
    t.run.world = t.run.local_world = world;
    t.run.grad_accum_steps = j->run->world / world;
    (void)zt_memory_trial_fits(&t);
    zt_memory_trial_end(&t);
    return t.plan;
}

/* Four ranks of one row that gather no more than they need at once. */
static void job_open_of_four(struct job *j, const char *more)
{
    job_open(j, 4, "1", more);
    j->run->gradient_checkpointing = true;
    j->run->zero.max_live_parameters = j->run->zero.prefetch_bucket_size =
        j->run->zero.param_persistence_threshold = 0;
    expect_ok(zt_memory_plan_make(&j->in, &j->plan, &j->fault), &j->fault);
    j->plan.sharers = 4;
}

/* Of a device that is too small without offload and a machine that is too small for all. */
static void test_fewer_ranks_with_offload_are_advised_where_they_fit(void **state)
{
    struct zt_memory_plan optimizer, all;
    struct job j;

    (void)state;
    job_open_of_four(&j, NULL);
    optimizer = offloaded(&j, 1, false);
    all = offloaded(&j, 1, true);
    assert_true(all.on_device < optimizer.on_device);
    j.plan.device_limit = optimizer.on_device;
    says(refusal(&j, optimizer.total),
         "; --num_gpus 1 --zero_stage 1 --offload_optimizer_device cpu "
         "--gradient_accumulation_steps 4 would fit, with ");
    j.plan.device_limit = all.on_device;
    says(refusal(&j, all.total),
         "; --num_gpus 1 --zero_stage 3 --offload_optimizer_device cpu "
         "--offload_param_device cpu --gradient_accumulation_steps 4 would fit, with ");
    job_close(&j);

    job_open_of_four(&j, "--deepspeed={\"zero_optimization\": {\"stage\": 0}}");
    j.plan.device_limit = all.on_device;
    says(refusal(&j, all.total),
         "; --num_gpus 1 \"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": "
         "{\"device\": \"cpu\"}, \"offload_param\": {\"device\": \"cpu\"}} "
         "--gradient_accumulation_steps 4 would fit, with ");
    job_close(&j);
}

static zt_err save_now_and_then(zt_weights *w, void *self, int64_t step)
{
    (void)self;
    return step % 10 || zt_save_checkpoint(w, "/mine", NULL) ? ZT_OK : ZT_E_PLUGIN;
}

static void test_a_save_that_may_be_asked_for_is_planned(void **state)
{
    struct zt_plugin hooked = gpt_plugin;
    struct job j;
    size_t bare;

    (void)state;
    job_open(&j, 1, "8", NULL);
    assert_int_equal(j.plan.snapshot, ZT_CKPT_WRITER_LEAST); /* --ctl JOB save */
    assert_int_equal(j.plan.snapshot_least, ZT_CKPT_WRITER_LEAST);
    bare = j.plan.total - ZT_CKPT_WRITER_LEAST;

    j.run->output_dir = NULL; /* where that has no place to go */
    expect_ok(zt_memory_plan_make(&j.in, &j.plan, &j.fault), &j.fault);
    assert_int_equal(j.plan.snapshot, 0);
    assert_int_equal(j.plan.total, bare);

    hooked.after_step = save_now_and_then;
    j.model->plugin = &hooked;
    expect_ok(zt_memory_plan_make(&j.in, &j.plan, &j.fault), &j.fault);
    assert_int_equal(j.plan.snapshot, ZT_CKPT_WRITER_LEAST);
    assert_int_equal(j.plan.total, bare + ZT_CKPT_WRITER_LEAST);
    j.model->plugin = &gpt_plugin;
    job_close(&j);
}

/* Of the largest parameter a piece as fp32, and once more as what is saved. */
static void test_weights_that_are_saved_at_the_end_pass_through_planned_memory(
    void **state)
{
    const size_t most = (size_t)WIDTH * 3 * WIDTH;
    struct zt_run bare;
    struct job j;
    size_t saving;

    (void)state;
    job_open(&j, 1, "2", NULL);
    bare = *j.run;
    bare.output_dir = NULL;
    j.in.process_now = 1;
    for (int i = 0; i < 3; i++) { /* rounded at any stage, where it is asked for */
        bool rounded = i > 0;

        j.run->zero.stage = bare.zero.stage = i == 2 ? 3 : 0;
        j.run->zero.gather_16bit_on_save = bare.zero.gather_16bit_on_save = rounded;
        j.run->compute_dtype = bare.compute_dtype = rounded ? ZT_BF16 : ZT_F32;
        j.in.run = j.run;
        expect_ok(zt_memory_plan_make(&j.in, &j.plan, &j.fault), &j.fault);
        saving = j.plan.process;
        j.in.run = &bare;
        expect_ok(zt_memory_plan_make(&j.in, &j.plan, &j.fault), &j.fault);
        assert_int_equal(saving - j.plan.process, most * (rounded ? 6 : 4));
    }
    job_close(&j);
}

static void test_a_snapshot_of_checkpoints_is_planned_where_there_is_room(void **state)
{
    size_t without = total_of(2, "8", NULL) - ZT_CKPT_WRITER_LEAST, least;
    struct job j;

    (void)state;
    job_open(&j, 2, "8", "--save_steps=5");
    least = j.plan.snapshot_least;
    assert_true(least > 0 && j.plan.snapshot >= least);
    assert_int_equal(j.plan.total, without + j.plan.snapshot);

    /* as of a larger model */
    j.plan.snapshot = 3 * least;
    j.plan.available = 2 * (without + 3 * least);
    j.plan.total = without + 3 * least;
    zt_memory_plan_fit_snapshot(&j.plan, j.run);
    assert_int_equal(j.plan.snapshot, 3 * least);
    j.plan.available--;
    zt_memory_plan_fit_snapshot(&j.plan, j.run);
    assert_int_equal(j.plan.snapshot, least);
    assert_int_equal(j.plan.total, without + least);
    job_close(&j);
}

static fsblkcnt_t drive_kib = 100;

/* Of a disk with so many blocks of 1 KiB left. */
int statvfs(const char *path, struct statvfs *fs)
{
    (void)path;
    *fs = (struct statvfs){.f_bavail = drive_kib, .f_blocks = 1 << 20, .f_frsize = 1024};
    return 0;
}

/* The folder whose drive is too small for so many bytes of each of two ranks; NULL: none is. */
static const char *full(struct job *j, const struct zt_run *run, size_t optimizer,
                        size_t weights)
{
    struct zt_state_bytes *s = &j->plan.state.in[ZT_PLACE_FILE];

    s->moments = optimizer;
    s->weights = weights;
    j->plan.files = optimizer + weights;
    expect_ok(zt_memory_plan_measure(&j->plan, run, NULL, NULL, &j->fault), &j->fault);
    return j->plan.full.folder;
}

static void test_files_have_the_room_of_all_folders_that_they_are_striped_over(
    void **state)
{
    enum { KIB = 1024 };
    static const char *const two[] = {"/", "/proc", NULL};
    static const char *const same[] = {"/", "/", NULL};
    static const char *const memory[] = {"/dev/shm", NULL};
    struct job j;
    struct zt_run run;

    (void)state;
    job_open(&j, 2, "8", NULL);
    run = *j.run;
    run.zero.offload_optimizer.nvme_paths = two;
    assert_null(full(&j, &run, 100 * KIB, 0));
    assert_string_equal(full(&j, &run, 101 * KIB, 0), "/");
    assert_int_equal(j.plan.full.needs, 101 * KIB);
    assert_int_equal(j.plan.full.left, 100 * KIB);
    assert_false(zt_memory_plan_fits(&j.plan));
    says(refusal(&j, SIZE_MAX),
         "the 0.10 MiB in files of the ranks of this machine are "
         "more than the 0.10 MiB that the drive of nvme_path / has "
         "left; make room there");
    run.zero.offload_optimizer.nvme_paths =
        same; /* one drive has no more room by two names */
    assert_null(full(&j, &run, 50 * KIB, 0));
    assert_string_equal(full(&j, &run, 51 * KIB, 0), "/");

    /* each by itself, and together where they share a drive */
    run.zero.offload_optimizer.nvme_paths = two;
    run.zero.offload_param.nvme_paths = two + 1;
    assert_null(full(&j, &run, 60 * KIB, 20 * KIB));
    assert_string_equal(full(&j, &run, 60 * KIB, 21 * KIB), "/proc");
    assert_null(full(&j, &run, 0, 50 * KIB));
    assert_string_equal(full(&j, &run, 0, 51 * KIB), "/proc");

    /* what is a part of the machine's memory has no more room than that */
    run.zero.offload_param.nvme_paths = memory;
    assert_null(full(&j, &run, 0, 50 * KIB));
    j.plan.total = SIZE_MAX / 4;
    assert_string_equal(full(&j, &run, 0, 50 * KIB), "/dev/shm");
    says(refusal(&j, SIZE_MAX),
         "/dev/shm has left (it is memory, which the run takes as well); name folders");
    run.zero.offload_param.nvme_paths = two;
    assert_null(full(&j, &run, 0, 50 * KIB));

    /* of folders that nothing goes to no drive is too small */
    assert_null(full(&j, &run, 0, 0));
    job_close(&j);
}

/* What is left is for one rank to see: others have perhaps begun to take it. */
/* Weights of a run in files that are in host memory all the same, more than there is. */
static void test_weights_that_stay_in_host_memory_are_told_to_go(void **state)
{
    static const char *const dirs[] = {"/tmp", NULL};
    struct job j;
    struct zt_run run;
    size_t none;

    (void)state;
    job_open(&j, 1, "1", "--gradient_checkpointing");
    run = *j.run;
    run.zero.stage = 3;
    run.zero.param_persistence_threshold = run.zero.max_live_parameters = 0;
    run.zero.offload_optimizer.device = run.zero.offload_param.device = ZT_OFFLOAD_NVME;
    run.zero.offload_optimizer.nvme_paths = run.zero.offload_param.nvme_paths = dirs;
    run.zero.offload_param.buffer_count = 1;
    run.zero.offload_param.buffer_size = ZT_SHARD_ALIGN;
    j.in.run = &run;
    drive_kib = 1 << 20;
    expect_ok(zt_memory_plan_make(&j.in, &j.plan, &j.fault), &j.fault);
    none = j.plan.total;
    run.zero.offload_param.max_in_cpu = 1000000000;
    expect_ok(zt_memory_plan_make(&j.in, &j.plan, &j.fault), &j.fault);
    assert_true(j.plan.total > none);
    says(refusal(&j, none), "state in files (offload_optimizer and offload_param, device "
                            "nvme, without max_in_cpu, docs/OFFLOAD.md)");
    drive_kib = 100;
    job_close(&j);
}

static void test_files_of_mpi_have_to_fit_into_shared_memory(void **state)
{
    struct zt_run run;
    struct job j;

    (void)state;
    job_open(&j, 2, "8", "--comm=mpi");
    run = *j.run;
    j.in.run = &run;
    run.dry_run = true;
    expect_ok(zt_memory_plan_measure(&j.plan, &run, NULL, NULL, &j.fault), &j.fault);
    assert_int_equal(j.plan.shm_available, 100 * 1024);
    says(refusal(&j, SIZE_MAX),
         "of /dev/shm for the ranks of this machine, and 0 MiB are "
         "left there; make it larger (docker run --shm-size=1g");
    run.local_rank = 1;
    expect_ok(zt_memory_plan_measure(&j.plan, &run, NULL, NULL, &j.fault), &j.fault);
    assert_true(j.plan.shm_available == (size_t)1 << 30);
    run.local_rank = 0;
    run.comm = "shm";
    expect_ok(zt_memory_plan_make(&j.in, &j.plan, &j.fault), &j.fault);
    expect_ok(zt_memory_plan_measure(&j.plan, &run, NULL, NULL, &j.fault), &j.fault);
    assert_true(j.plan.shm == 0 && zt_memory_plan_fits(&j.plan));
    job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_save_that_may_be_asked_for_is_planned),
        cmocka_unit_test(test_a_snapshot_of_checkpoints_is_planned_where_there_is_room),
        cmocka_unit_test(
            test_weights_that_are_saved_at_the_end_pass_through_planned_memory),
        cmocka_unit_test(test_the_least_change_that_fits_is_what_is_to_be_typed),
        cmocka_unit_test(test_a_batch_of_any_size_has_an_advice_soon),
        cmocka_unit_test(test_too_many_rows_of_an_evaluation_are_told_so_and_no_more),
        cmocka_unit_test(test_the_rows_of_a_whole_step_are_planned),
        cmocka_unit_test(test_a_batch_of_one_row_is_not_told_to_be_smaller),
        cmocka_unit_test(test_fewer_ranks_are_advised_where_they_fit_and_only_there),
        cmocka_unit_test(test_nothing_can_be_left_out_of_an_advice),
        cmocka_unit_test(test_what_the_process_takes_itself_is_part_of_the_plan),
        cmocka_unit_test(test_what_the_process_takes_is_what_proc_counts),
        cmocka_unit_test(test_a_limit_of_the_device_advises_offload),
        cmocka_unit_test(test_fewer_ranks_with_offload_are_advised_where_they_fit),
        cmocka_unit_test(
            test_files_have_the_room_of_all_folders_that_they_are_striped_over),
        cmocka_unit_test(test_weights_that_stay_in_host_memory_are_told_to_go),
        cmocka_unit_test(test_files_of_mpi_have_to_fit_into_shared_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
