/* A rank finds its place in the environment of every launcher, and says what is missing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "store/launch_env.h"

/* Only these variables, "NAME=value" each. */
static zt_err place_of(const char *const *vars, struct zt_launch_env *p,
                       struct zt_fault *fault)
{
    clearenv();
    for (; *vars; vars++) {
        char item[256], *eq;

        snprintf(item, sizeof(item), "%s", *vars);
        eq = strchr(item, '=');
        *eq = 0;
        setenv(item, eq + 1, 1);
    }
    return zt_launch_env_read(p, fault);
}

static void every_launcher_is_understood(void **state)
{
    static const struct {
        const char *vars[16];
        struct zt_launch_env want;
    } cases[] = {
        {{"HOME=/"}, {.kind = ZT_LAUNCH_ALONE, .world = 1, .job = "none"}},
        {{"WORLD_SIZE=1"}, {.kind = ZT_LAUNCH_ENV, .world = 1, .job = "none"}},
        {{"RANK="}, {.kind = ZT_LAUNCH_ALONE, .world = 1, .job = "none"}},
        {{"LOCAL_RANK=0", "MASTER_ADDR=h"},
         {.kind = ZT_LAUNCH_ALONE, .world = 1, .job = "none", .master_addr = "h"}},
        {{"RANK=3", "WORLD_SIZE=4", "MASTER_ADDR=h0", "MASTER_PORT=29500"},
         {.kind = ZT_LAUNCH_ENV,
          .rank = 3,
          .world = 4,
          .local_rank = 3,
          .job = "none",
          .master_addr = "h0",
          .master_port = 29500}},
        {{"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2",
          "MASTER_ADDR=h0", "MASTER_PORT=29500", "TORCHELASTIC_USE_AGENT_STORE=True",
          "TORCHELASTIC_RUN_ID=run", "TORCHELASTIC_RESTART_COUNT=2"},
         {.kind = ZT_LAUNCH_TORCHRUN,
          .rank = 3,
          .world = 4,
          .local_rank = 1,
          .local_world = 2,
          .attempt = 2,
          .job = "run",
          .master_addr = "h0",
          .master_port = 29500}},
        {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=h0", "MASTER_PORT=1",
          "TORCHELASTIC_USE_AGENT_STORE=true"}, /* torch wants a capital T */
         {.kind = ZT_LAUNCH_ENV,
          .rank = 1,
          .world = 2,
          .local_rank = 1,
          .job = "none",
          .master_addr = "h0",
          .master_port = 1}},
        {{"SLURM_JOB_ID=7", "SLURM_STEP_ID=2", "SLURM_STEP_NUM_TASKS=7", "SLURM_PROCID=4",
          "SLURM_LOCALID=1", "SLURM_NODEID=1", "SLURM_STEP_NUM_NODES=3",
          "SLURM_STEP_TASKS_PER_NODE=3,2(x2)", "SLURM_STEP_NODELIST=node[01-03]",
          "SLURM_TASKS_PER_NODE=4,2,1"},
         {.kind = ZT_LAUNCH_SLURM,
          .rank = 4,
          .world = 7,
          .local_rank = 1,
          .local_world = 2,
          .job = "7.2",
          .master_addr = "node01",
          .master_port = 20000 + 7 * 37 + 2}},
        {{"SLURM_JOB_ID=7", "SLURM_STEP_ID=2", "SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1",
          "SLURM_LOCALID=1", "SLURM_STEP_NUM_NODES=1", "SLURM_STEP_NODELIST=node01",
          "SLURM_RESTART_COUNT=1"},
         {.kind = ZT_LAUNCH_SLURM,
          .rank = 1,
          .world = 2,
          .local_rank = 1,
          .attempt = 1,
          .job = "7.2",
          .master_addr = "127.0.0.1",
          .master_port = 20000 + 7 * 37 + 2}},
        /* a batch script, and a step of one task: no ranks */
        {{"SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_NTASKS=8"},
         {.kind = ZT_LAUNCH_ALONE, .world = 1, .job = "7"}},
        {{"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=1",
          "SLURM_PROCID=0"},
         {.kind = ZT_LAUNCH_ALONE, .world = 1, .job = "7"}},
        /* what the user sets wins over Slurm */
        {{"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=0",
          "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=5"},
         {.kind = ZT_LAUNCH_ENV,
          .rank = 1,
          .world = 2,
          .local_rank = 1,
          .job = "7",
          .master_addr = "h",
          .master_port = 5}},
        {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2",
          "OMPI_COMM_WORLD_LOCAL_RANK=0", "OMPI_COMM_WORLD_LOCAL_SIZE=1"},
         {.kind = ZT_LAUNCH_MPI, .rank = 1, .world = 2, .local_world = 1, .job = "none"}},
        {{"PMI_RANK=1", "PMI_SIZE=2"},
         {.kind = ZT_LAUNCH_MPI, .rank = 1, .world = 2, .local_rank = 1, .job = "none"}},
        {{"RANK=1", "WORLD_SIZE=2", "ZLAUNCH_CONTROL_FD=5", "ZLAUNCH_JOB_ID=j"},
         {.kind = ZT_LAUNCH_ZLAUNCH, .rank = 1, .world = 2, .local_rank = 1, .job = "j"}},
        /* one rank of a zlaunch that is a task of srun; MPI's names it leaves its ranks none */
        {{"RANK=0", "WORLD_SIZE=1", "ZLAUNCH_CONTROL_FD=5", "ZLAUNCH_JOB_ID=j",
          "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1"},
         {.kind = ZT_LAUNCH_ZLAUNCH, .world = 1, .job = "j"}},
        {{"RANK=0", "WORLD_SIZE=1", "ZLAUNCH_CONTROL_FD=5", "ZLAUNCH_JOB_ID=j",
          "PMI_RANK=0", "PMI_SIZE=1"},
         {.kind = ZT_LAUNCH_ZLAUNCH, .world = 1, .job = "j"}},
        /* one rank, to everybody */
        {{"RANK=0", "WORLD_SIZE=1", "PMI_RANK=0", "PMI_SIZE=1"},
         {.kind = ZT_LAUNCH_ENV, .world = 1, .job = "none"}},
        {{"RANK=0", "WORLD_SIZE=1", "SLURM_JOB_ID=7", "SLURM_NTASKS=8", "SLURM_PROCID=0"},
         {.kind = ZT_LAUNCH_ENV, .world = 1, .job = "7"}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct zt_launch_env *want = &cases[i].want;
        struct zt_fault fault = {0};
        struct zt_launch_env p;

        if (place_of(cases[i].vars, &p, &fault))
            fail_msg("case %zu: %s", i, fault.text);
        if (p.kind != want->kind || p.rank != want->rank || p.world != want->world ||
            p.local_rank != want->local_rank || p.local_world != want->local_world ||
            p.attempt != want->attempt || strcmp(p.job, want->job) != 0 ||
            strcmp(p.master_addr, want->master_addr) != 0 ||
            p.master_port != want->master_port)
            fail_msg("case %zu: %s rank %d/%d local %d/%d attempt %d job %s at %s:%d", i,
                     zt_launch_kind_name(p.kind), p.rank, p.world, p.local_rank,
                     p.local_world, (int)p.attempt, p.job, p.master_addr, p.master_port);
    }
}

static void what_is_missing_or_wrong_is_named(void **state)
{
    static const struct {
        const char *vars[10], *name;
    } cases[] = {
        {{"RANK=1"}, "WORLD_SIZE is not set, but RANK is"},
        {{"RANK=0"}, "WORLD_SIZE is not set, but RANK is"},
        {{"RANK=0", "PMI_RANK=0", "PMI_SIZE=3"}, "WORLD_SIZE is not set, but RANK is"},
        {{"WORLD_SIZE=2"}, "RANK is not set, but WORLD_SIZE is"},
        {{"RANK=2", "WORLD_SIZE=2"}, "RANK is '2'"},
        {{"RANK=x", "WORLD_SIZE=2"}, "RANK is 'x'"},
        {{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=2"}, "LOCAL_RANK is '2'"},
        {{"RANK=0", "WORLD_SIZE=2", "MASTER_PORT=70000"}, "MASTER_PORT is '70000'"},
        {{"SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2"}, "SLURM_PROCID is not set"},
        {{"SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=0",
          "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_TASKS_PER_NODE=2"},
         "SLURM_STEP_TASKS_PER_NODE"},
        {{"PMI_SIZE=2"}, "PMI_RANK is not set, but PMI_SIZE is"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct zt_fault fault = {0};
        struct zt_launch_env p;

        assert_int_equal(place_of(cases[i].vars, &p, &fault), ZT_E_USAGE);
        if (!strstr(fault.text, cases[i].name))
            fail_msg("case %zu: %s", i, fault.text);
    }
}

/* Each of them would train alone. */
static void a_world_of_one_in_a_job_of_several_is_refused(void **state)
{
    static const struct {
        const char *vars[10], *says;
    } cases[] = {
        {{"RANK=0", "WORLD_SIZE=1", "ZLAUNCH_CONTROL_FD=5", "ZLAUNCH_JOB_ID=j",
          "PALS_RANKID=1", "PALS_SIZE=2"},
         "to an MPI launcher in it (PALS_SIZE) this is rank 1 of 2"},
        {{"RANK=0", "WORLD_SIZE=1", "PMI_RANK=1", "PMI_SIZE=2"},
         "to an MPI launcher (PMI_SIZE) it is rank 1 of 2"},
        {{"WORLD_SIZE=1", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2"},
         "(OMPI_COMM_WORLD_SIZE) it is rank 0 of 2"},
        {{"RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=h", "MASTER_PORT=5",
          "TORCHELASTIC_USE_AGENT_STORE=True", "MV2_COMM_WORLD_RANK=1",
          "MV2_COMM_WORLD_SIZE=2"},
         "(MV2_COMM_WORLD_SIZE) it is rank 1 of 2"},
        {{"RANK=0", "WORLD_SIZE=1", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=4",
          "SLURM_PROCID=3"},
         "to srun (SLURM_STEP_NUM_TASKS) it is rank 3 of 4"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct zt_fault fault = {0};
        const char *way_out = i ? "(unset RANK WORLD_SIZE)"
                                : "zlaunch --num_gpus 2 TARGET.so or mpirun -n 2 zworker";
        struct zt_launch_env p;

        if (place_of(cases[i].vars, &p, &fault) != ZT_E_UNSUPPORTED ||
            !strstr(fault.text, cases[i].says) || !strstr(fault.text, way_out))
            fail_msg("case %zu: %s", i, fault.text);
    }
}

static void torchruns_error_file_holds_our_error(void **state)
{
    struct zt_fault fault = {0};
    char path[] = "/tmp/zt-error-XXXXXX", text[512] = "";
    FILE *f;

    (void)state;
    close(mkstemp(path));
    setenv("TORCHELASTIC_ERROR_FILE", path, 1);
    zt_fault_set(&fault, ZT_E_CONFIG, "ds.json:3: \"lr\" is no number");
    zt_torchrun_report_error(&fault);
    f = fopen(path, "re");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof(text), f));
    fclose(f);
    assert_non_null(strstr(
        text, "\"message\": {\"message\": \"ds.json:3: \\\"lr\\\" is no number\""));
    assert_non_null(strstr(text, "\"timestamp\": \"1"));
    unlink(path);
    clearenv();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_launcher_is_understood),
        cmocka_unit_test(what_is_missing_or_wrong_is_named),
        cmocka_unit_test(a_world_of_one_in_a_job_of_several_is_refused),
        cmocka_unit_test(torchruns_error_file_holds_our_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
