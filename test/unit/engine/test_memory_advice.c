/* What a run that does not fit is told has been planned, and fits. */
#include "test/unit/autograd/nets.h"

#include <sys/statvfs.h>

#include <zlaunch/save.h>

#include "worker/engine/checkpoint/writer.h"
#include "worker/engine/memory/plan.h"
#include "worker/engine/memory/process.h"

enum { BLOCK_SIZE = 16 };

struct job {
    struct zt_run *run;
    struct zt_model *model;
    struct zt_memory_plan_inputs in;
    struct zt_memory_plan plan;
    struct zt_fault fault;
};

static const bool offered[ZT_MAX_FIELDS] = {true, true};

/* A training of `world` ranks on one machine, planned. */
static void job_open(struct job *j, int world, const char *rows, const char *more)
{
    char *argv[] = {"--do_train",
                    "--train_file",
                    "/proc/self/exe",
                    "--device",
                    "cpu",
                    "--output_dir=none",
                    "--per_device_train_batch_size",
                    (char *)rows,
                    (char *)more};
    struct zt_run_facts facts = {.world = world, .local_world = world, .program = "x"};
    struct zt_model_config mc = {.compute_dtype = ZT_F32};

    *j = (struct job){.fault = {ZT_OK, ""}};
    expect_ok(zt_run_open(more ? 9 : 8, argv, &facts, &j->run, &j->fault), &j->fault);
    expect_ok(zt_model_open(&gpt_plugin, &mc, &j->model, &j->fault), &j->fault);
    zt_model_layout(j->model, world);
    expect_ok(zt_run_resolve(j->run, WIDTH, 1, &j->fault), &j->fault);
    j->in = (struct zt_memory_plan_inputs){.run = j->run,
                                           .model = j->model,
                                           .block_size = BLOCK_SIZE,
                                           .prompt_tokens = 1,
                                           .offered = offered};
    expect_ok(zt_memory_plan_make(&j->in, &j->plan, &j->fault), &j->fault);
    j->plan.sharers = world;
}

static void job_close(struct job *j)
{
    zt_model_close(j->model);
    zt_run_close(j->run);
}

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

static void says(const char *text, const char *phrase)
{
    if (!strstr(text, phrase))
        fail_msg("\"%s\" does not say \"%s\"", text, phrase);
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

/* On a cpu the limit counts what is not offloaded. */
static void test_a_limit_of_the_device_advises_offload(void **state)
{
    struct job j;

    (void)state;
    job_open(&j, 1, "1", "--gradient_checkpointing");
    j.plan.device_limit = j.plan.on_device - 1;
    says(refusal(&j, SIZE_MAX),
         "; \"zero_optimization\": {\"stage\": 1, \"offload_optimizer\": {\"device\": "
         "\"cpu\"}} would fit, with ");
    says(j.fault.text, "and --device_memory is");
    j.plan.device_limit = SIZE_MAX;
    says_not(refusal(&j, j.plan.total - 1), "offload");
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

/* Of a disk with 100 blocks of 1 KiB left. */
int statvfs(const char *path, struct statvfs *fs)
{
    (void)path;
    *fs = (struct statvfs){.f_bavail = 100, .f_frsize = 1024};
    return 0;
}

static void test_files_have_the_room_of_all_folders_that_they_are_striped_over(
    void **state)
{
    static const char *const two[] = {"/a", "/b", NULL};
    struct job j;
    struct zt_run run;

    (void)state;
    job_open(&j, 2, "8", NULL);
    run = *j.run;
    run.zero.offload_optimizer.nvme_paths = two;
    expect_ok(zt_memory_plan_measure(&j.plan, &run, NULL, NULL, &j.fault), &j.fault);
    assert_int_equal(j.plan.files_available, 2 * 100 * 1024 / 2);
    run.zero.offload_param.nvme_paths = two + 1;
    expect_ok(zt_memory_plan_measure(&j.plan, &run, NULL, NULL, &j.fault), &j.fault);
    assert_int_equal(j.plan.files_available, 2 * 100 * 1024 / 2);
    run.zero.offload_optimizer.nvme_paths = NULL;
    expect_ok(zt_memory_plan_measure(&j.plan, &run, NULL, NULL, &j.fault), &j.fault);
    assert_int_equal(j.plan.files_available, 100 * 1024 / 2);
    run.zero.offload_param.nvme_paths = NULL;
    expect_ok(zt_memory_plan_measure(&j.plan, &run, NULL, NULL, &j.fault), &j.fault);
    assert_true(j.plan.files_available == SIZE_MAX);
    job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_save_that_may_be_asked_for_is_planned),
        cmocka_unit_test(test_a_snapshot_of_checkpoints_is_planned_where_there_is_room),
        cmocka_unit_test(test_the_least_change_that_fits_is_what_is_to_be_typed),
        cmocka_unit_test(test_a_batch_of_one_row_is_not_told_to_be_smaller),
        cmocka_unit_test(test_fewer_ranks_are_advised_where_they_fit_and_only_there),
        cmocka_unit_test(test_what_the_process_takes_itself_is_part_of_the_plan),
        cmocka_unit_test(test_what_the_process_takes_is_what_proc_counts),
        cmocka_unit_test(test_a_limit_of_the_device_advises_offload),
        cmocka_unit_test(
            test_files_have_the_room_of_all_folders_that_they_are_striped_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
