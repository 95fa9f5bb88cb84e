/* A training that is planned and does not run, for tests of plans; one is open at a time. */
#ifndef TEST_UNIT_ENGINE_PLANNED_JOB_H
#define TEST_UNIT_ENGINE_PLANNED_JOB_H

#include "test/unit/autograd/nets.h"

#include "worker/engine/memory/plan.h"

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
                                           .longest_prompt = 1,
                                           .offered = offered};
    expect_ok(zt_memory_plan_make(&j->in, &j->plan, &j->fault), &j->fault);
    j->plan.sharers = world;
}

static void job_close(struct job *j)
{
    zt_model_close(j->model);
    zt_run_close(j->run);
}

static void says(const char *text, const char *phrase)
{
    if (!strstr(text, phrase))
        fail_msg("\"%s\" does not say \"%s\"", text, phrase);
}

#endif
