/* What a plan counts of a step, and how long that takes by the machine's rates. */
#include "test/unit/engine/planned_job.h"

#include <jansson.h>
#include <math.h>
#include <unistd.h>

#include "worker/engine/memory/rates.h"
#include "worker/engine/memory/rates_files.h"
#include "worker/engine/memory/step_time.h"

/* The plan of the job with another stage and place of the optimizer's state. */
static void replan(struct job *j, struct zt_run *run, int stage,
                   zt_offload_device optimizer)
{
    static const char *const dirs[] = {"/tmp", NULL};

    run->zero.stage = stage;
    run->zero.offload_optimizer.device = optimizer;
    run->zero.offload_optimizer.ratio = 1;
    run->zero.offload_optimizer.nvme_paths = dirs;
    j->in.run = run;
    expect_ok(zt_memory_plan_make(&j->in, &j->plan, &j->fault), &j->fault);
}

static double padded_elems(const struct job *j)
{
    double sum = 0;

    for (int i = 0; i < j->model->num_blocks; i++)
        sum += (double)j->model->blocks[i]->padded_elems;
    return sum;
}

static void test_a_plan_counts_what_a_step_does(void **state)
{
    double all, kept, recomputed;
    struct zt_run run;
    struct job j;

    (void)state;
    job_open(&j, 2, "4", NULL);
    run = *j.run;
    all = padded_elems(&j);

    replan(&j, &run, 0, ZT_OFFLOAD_NONE); /* an all-reduce */
    kept = j.plan.work.first.device.of[ZT_WORK_PRODUCTS];
    assert_true(j.plan.work.first.traffic.reduced == 4 * all);
    assert_true(j.plan.work.first.traffic.gathered == 4 * all);
    assert_true(j.plan.work.update.traffic.gathered == 0);
    assert_true(j.plan.work.update.device.of[ZT_WORK_UPDATES] > 0);

    replan(&j, &run, 2, ZT_OFFLOAD_NONE); /* shards of sums, then of new weights */
    assert_true(j.plan.work.first.traffic.reduced == 4 * all);
    assert_true(j.plan.work.first.traffic.gathered == 0);
    assert_true(j.plan.work.update.traffic.gathered == 4 * all);
    assert_true(j.plan.work.first.device.of[ZT_WORK_PRODUCTS] == kept);

    run.gradient_checkpointing = true; /* all but the head is computed once more */
    replan(&j, &run, 2, ZT_OFFLOAD_NONE);
    recomputed = j.plan.work.first.device.of[ZT_WORK_PRODUCTS];
    assert_true(recomputed > 1.2 * kept && recomputed < 4.0 / 3 * kept);
    job_close(&j);
}

static void test_a_plan_counts_what_files_have_to_move(void **state)
{
    const struct zt_step_work *w;
    struct zt_run run;
    struct job j;
    double files;

    (void)state;
    job_open(&j, 2, "4", NULL);
    run = *j.run;
    replan(&j, &run, 2, ZT_OFFLOAD_NVME); /* two moments and gradients, of fp32 */
    w = &j.plan.work;
    files = (double)j.plan.files;
    assert_true(files == 3 * 4 * padded_elems(&j) / 2);
    assert_true(w->first.traffic.files.read == 0);
    assert_true(w->first.traffic.files.written == files / 3);
    assert_true(w->norm.traffic.files.read == 0); /* it is taken on their way there */
    /* what backward has written last is still in its buffer: a chunk of 4096 sums */
    assert_true(w->update.traffic.files.read == files - 4096 * 4);
    assert_true(w->update.traffic.files.written == 2 * files / 3);
    assert_true(w->norm.traffic.files.written == 0);
    job_close(&j);
}

/* Weights in files, but for the first blocks. */
static void test_a_plan_counts_weights_that_stay_in_host_memory(void **state)
{
    static const char *const dirs[] = {"/tmp", NULL};
    struct zt_step_work w;
    size_t files, host;
    struct zt_run run;
    struct job j;

    (void)state;
    job_open(&j, 2, "4", NULL);
    run = *j.run;
    run.verify_swap = false; /* no checksums in host memory */
    run.zero.param_persistence_threshold = 0;
    run.zero.offload_param = (struct zt_offload_param){.device = ZT_OFFLOAD_NVME,
                                                       .buffer_count = 1,
                                                       .buffer_size = ZT_SHARD_ALIGN,
                                                       .nvme_paths = dirs};
    replan(&j, &run, 3, ZT_OFFLOAD_NONE);
    w = j.plan.work;
    files = j.plan.files;
    host = zt_zero_total(&j.plan.state, ZT_PLACE_HOST);
    assert_true((double)files == 4 * padded_elems(&j) / 2);
    assert_true(w.weights_in_host == 0 && w.first.traffic.files.read > 0);

    run.zero.offload_param.max_in_cpu = j.model->blocks[0]->padded_elems / 2;
    replan(&j, &run, 3, ZT_OFFLOAD_NONE); /* the first one, and buffers as before */
    assert_true(j.plan.work.weights_in_host ==
                4 * (double)run.zero.offload_param.max_in_cpu);
    assert_int_equal(files - j.plan.files, j.plan.work.weights_in_host);
    assert_int_equal(zt_zero_total(&j.plan.state, ZT_PLACE_HOST) - host,
                     j.plan.work.weights_in_host);
    assert_true(j.plan.work.first.traffic.files.read < w.first.traffic.files.read);
    assert_true(j.plan.work.update.traffic.files.written ==
                w.update.traffic.files.written - j.plan.work.weights_in_host);

    run.zero.offload_param.max_in_cpu = 1000000000;
    replan(&j, &run, 3, ZT_OFFLOAD_NONE); /* no buffers any more */
    assert_int_equal(j.plan.files, 0);
    assert_int_equal(zt_zero_total(&j.plan.state, ZT_PLACE_HOST), files);
    assert_true(j.plan.work.first.traffic.files.read == 0);

    run.zero.offload_param.device = ZT_OFFLOAD_CPU; /* nothing depends on it */
    replan(&j, &run, 3, ZT_OFFLOAD_NONE);
    assert_true(j.plan.work.weights_in_host == 0);
    host = j.plan.total;
    run.zero.offload_param.max_in_cpu = 0;
    replan(&j, &run, 3, ZT_OFFLOAD_NONE);
    assert_int_equal(j.plan.total, host);
    job_close(&j);
}

/* Ten of a second each, but for what `set` says. */
static struct zt_rates tens(void)
{
    struct zt_rates r = {.node = 10, .network = 10, .read = 10, .write = 10};

    for (int k = 0; k < ZT_NUM_WORK_KINDS; k++)
        r.device.of[k] = 10;
    return r;
}

static void test_time_is_work_divided_by_rates_beside_what_overlaps(void **state)
{
    struct zt_step_work w = {
        .first = {.device = {{[ZT_WORK_PRODUCTS] = 100, [ZT_WORK_STREAMS] = 20}},
                  .traffic = {.reduced = 40}},
        .last = {.device = {{[ZT_WORK_PRODUCTS] = 100}}, .traffic = {.reduced = 40}},
        .norm = {.traffic = {.files = {.read = 30}}},
        .update = {.device = {{[ZT_WORK_UPDATES] = 50}},
                   .traffic = {.gathered = 20, .files = {.read = 60, .written = 40}}},
        .micro_batches = 1,
        .reduces_each = true,
    };
    struct zt_rates r = tens();
    const char *missing;
    struct zt_run run;
    struct job j;

    (void)state;
    job_open(&j, 2, "4", NULL);
    run = *j.run;
    run.verify_swap = false;
    run.zero.overlap_comm = true;
    /* sums read both halves and write one: 6; gathers read and write one: 2; the pipelines
     * of files are off */
    assert_true(fabs(zt_step_seconds(&w, &run, &r, &missing) -
                     ((10 + 2 + 6) + 3 + (5 + 2 + 6 + 4))) < 1e-9);
    r.has_idle_cores = true;
    assert_true(fabs(zt_step_seconds(&w, &run, &r, &missing) - (12 + 3 + (5 + 6 + 4))) <
                1e-9);
    w.update.traffic.gathered = 120; /* beside the next forward */
    assert_true(fabs(zt_step_seconds(&w, &run, &r, &missing) - (18 + 3 + (5 + 6 + 4))) <
                1e-9);
    w.update.traffic.gathered = 20;
    w.first.device.of[ZT_WORK_OPERANDS] = 10; /* packed beside what is multiplied */
    assert_true(fabs(zt_step_seconds(&w, &run, &r, &missing) - (13 + 3 + (5 + 6 + 4))) <
                1e-9);
    r.device.of[ZT_WORK_OPERANDS] = 0; /* of no time of their own */
    run.zero.offload_optimizer.pipeline_read = true;
    run.zero.offload_optimizer.pipeline_write = true;
    run.zero.share_node_weights = true; /* nobody goes on before all have updated */
    assert_true(fabs(zt_step_seconds(&w, &run, &r, &missing) - (12 + 3 + 10)) < 1e-9);
    run.zero.share_node_weights = false;
    r.moves = 10; /* by a core that no rank computes on */
    assert_true(fabs(zt_step_seconds(&w, &run, &r, &missing) - (12 + 3 + 10)) < 1e-9);
    r.has_idle_cores = false; /* 30 bytes of the norm, 100 of the update */
    assert_true(fabs(zt_step_seconds(&w, &run, &r, &missing) -
                     ((12 + 6 + 2) + 3 + (5 + 10))) < 1e-9);
    r.has_idle_cores = true;
    run.zero.offload_param.device = ZT_OFFLOAD_NVME; /* a bucket of 80 bytes */
    run.zero.prefetch_bucket_size = 160 / (int64_t)zt_dtype_bytes(run.compute_dtype);
    w.first.traffic.files = (struct zt_swap_traffic){.read = 120, .reads = 6};
    assert_true(fabs(zt_step_seconds(&w, &run, &r, &missing) - ((12 + 8) + 3 + 10)) <
                1e-9);
    w.weights_in_host = 50; /* the first of the bucket */
    assert_true(fabs(zt_step_seconds(&w, &run, &r, &missing) - ((12 + 3) + 3 + 10)) <
                1e-9);
    w.weights_in_host = 100; /* all of it */
    assert_true(fabs(zt_step_seconds(&w, &run, &r, &missing) - (12 + 3 + 10)) < 1e-9);
    w.weights_in_host = 0;
    w.first.traffic.files.read = 60; /* all of it in the bucket */
    assert_true(fabs(zt_step_seconds(&w, &run, &r, &missing) - ((12 + 6) + 3 + 10)) <
                1e-9);
    run.zero.prefetch_bucket_size = 0; /* none ahead but the next one */
    assert_true(fabs(zt_step_seconds(&w, &run, &r, &missing) - (12 + 3 + 10)) < 1e-9);

    assert_null(missing);
    r.read = 0;
    assert_true(isnan(zt_step_seconds(&w, &run, &r, &missing)));
    assert_string_equal(missing, "read");
    r = tens();
    r.network = 0;
    run.world = 4; /* on two machines */
    assert_true(isnan(zt_step_seconds(&w, &run, &r, &missing)));
    assert_string_equal(missing, "network");
    job_close(&j);
}

/* A pass of 12 s, a third of it forward, and an update of 5 s that goes on beside that. */
static void test_files_of_an_update_move_beside_all_of_a_pass(void **state)
{
    struct zt_step_work w = {
        .first = {.device = {{[ZT_WORK_PRODUCTS] = 120}}},
        .update = {.device = {{[ZT_WORK_UPDATES] = 50}},
                   .traffic = {.files = {.read = 60,
                                         .written = 40,
                                         .reads = 6,
                                         .writes = 4,
                                         .longest = 20}}},
        .micro_batches = 1,
        .buffers = 200, /* for pieces of 20, but those are 10 long */
    };
    struct zt_rates r = tens();
    const char *missing;
    struct zt_run run;
    struct job j;

    (void)state;
    job_open(&j, 1, "4", NULL);
    run = *j.run;
    run.verify_swap = false;
    run.zero.offload_optimizer.device = ZT_OFFLOAD_NVME;
    run.zero.offload_optimizer.pipeline_read = true;
    run.zero.offload_optimizer.pipeline_write = true;
    assert_true(fabs(zt_step_seconds(&w, &run, &r, &missing) - (12 + 5)) < 1e-9);
    w.update.traffic.files.read = 180; /* the drive is at work all the time */
    w.update.traffic.files.reads = 18;
    assert_true(fabs(zt_step_seconds(&w, &run, &r, &missing) - (18 + 4)) < 1e-9);
    w.update.traffic.files.read = 90;
    w.update.traffic.files.reads = 9;
    w.buffers = 0; /* all of that beside forward */
    assert_true(fabs(zt_step_seconds(&w, &run, &r, &missing) - (9 + 4 + 8)) < 1e-9);
    run.zero.offload_optimizer.pipeline_write = false;
    assert_true(fabs(zt_step_seconds(&w, &run, &r, &missing) - (4 + 9 + 8)) < 1e-9);
    run.gradient_checkpointing = true; /* forward is a fourth */
    w.update.traffic.files.read = 60;
    assert_true(fabs(zt_step_seconds(&w, &run, &r, &missing) - (4 + 3 + 5 + 9)) < 1e-9);
    w.micro_batches = 3;
    w.last.device.of[ZT_WORK_PRODUCTS] = 120;
    assert_true(fabs(zt_step_seconds(&w, &run, &r, &missing) - (4 + 3 + 5 + 9 + 24)) <
                1e-9);
    assert_null(missing);
    job_close(&j);
}

/* Whatever holds up a drive, no rate becomes 0, infinite or negative by it. */
static void test_pieces_of_files_divide_into_bytes_and_what_is_beside_them(void **state)
{
    (void)state;
    assert_true(fabs(zt_rates_share_of_bytes(9, 2, 1.0 / 8) - 8.0 / 9) < 1e-9);
    assert_true(fabs(zt_rates_share_of_bytes(8, 1, 1.0 / 8) - 1) < 1e-9);
    assert_true(zt_rates_share_of_bytes(8, 0.5, 1.0 / 8) == 1);
    assert_true(zt_rates_share_of_bytes(8, 8, 1.0 / 8) == 1);
    assert_true(zt_rates_share_of_bytes(8, 30, 1.0 / 8) == 1);
}

static void *no_memory(size_t n)
{
    (void)n;
    return NULL;
}

static void test_rates_of_a_file_are_taken_and_mistakes_in_it_named(void **state)
{
    static const struct {
        const char *text, *says;
    } wrong[] = {{"{\"products\": 1e12, \"prodcuts\": 1}", "no rate \"prodcuts\""},
                 {"{\"read\": 0}", "\"read\" has to be a number above 0"},
                 {"[1]", "want an object"},
                 {"{\"read\": 1", "'}' expected"}};
    char path[] = "/tmp/test_rates_XXXXXX";
    struct zt_rates r;
    struct zt_run run;
    struct job j;
    FILE *f;

    (void)state;
    job_open(&j, 2, "4", NULL);
    run = *j.run;
    run.rates = path;
    assert_true(close(mkstemp(path)) == 0);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        f = fopen(path, "w");
        assert_true(f && fputs(wrong[i].text, f) >= 0 && fclose(f) == 0);
        assert_int_equal(zt_rates_find(&run, NULL, NULL, 1, &r, &j.fault), ZT_E_CONFIG);
        says(j.fault.text, wrong[i].says);
    }
    f = fopen(path, "w");
    assert_true(f && fputs("{\"products\": 5e12, \"network\": 3}", f) >= 0 &&
                fclose(f) == 0);
    json_set_alloc_funcs(no_memory, free);
    assert_int_equal(zt_rates_find(&run, NULL, NULL, 1, &r, &j.fault), ZT_E_NOMEM);
    json_set_alloc_funcs(malloc, free);
    says(j.fault.text, "no host memory");
    expect_ok(zt_rates_find(&run, NULL, NULL, 1, &r, &j.fault), &j.fault);
    assert_true(r.device.of[ZT_WORK_PRODUCTS] == 5e12 && r.network == 3 && r.read == 0);
    assert_int_equal(remove(path), 0);
    assert_int_equal(zt_rates_find(&run, NULL, NULL, 1, &r, &j.fault), ZT_E_NOINPUT);
    job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_plan_counts_what_a_step_does),
        cmocka_unit_test(test_a_plan_counts_what_files_have_to_move),
        cmocka_unit_test(test_a_plan_counts_weights_that_stay_in_host_memory),
        cmocka_unit_test(test_time_is_work_divided_by_rates_beside_what_overlaps),
        cmocka_unit_test(test_files_of_an_update_move_beside_all_of_a_pass),
        cmocka_unit_test(test_pieces_of_files_divide_into_bytes_and_what_is_beside_them),
        cmocka_unit_test(test_rates_of_a_file_are_taken_and_mistakes_in_it_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
