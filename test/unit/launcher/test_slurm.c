/* The allocation of a Slurm job becomes hosts and slots, with the variables of one scope.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "launcher/start/slurm.h"

static void set_only(const char *const *vars)
{
    clearenv();
    for (; *vars; vars++) {
        char item[256], *eq;

        snprintf(item, sizeof(item), "%s", *vars);
        eq = strchr(item, '=');
        *eq = 0;
        setenv(item, eq + 1, 1);
    }
}

static void hosts_and_slots_are_those_of_the_allocation(void **state)
{
    static const struct {
        const char *vars[8], *hosts;
    } cases[] = {
        {{"SLURM_JOB_NODELIST=node[01-03]"}, "node01:1 node02:1 node03:1 "},
        {{"SLURM_JOB_NODELIST=node[01-03]", "SLURM_TASKS_PER_NODE=4,2,1"},
         "node01:4 node02:2 node03:1 "},
        {{"SLURM_JOB_NODELIST=a1,b[1-2]", "SLURM_TASKS_PER_NODE=2(x3)"},
         "a1:2 b1:2 b2:2 "},
        /* one task a node, as batch scripts ask for, and GPUs */
        {{"SLURM_JOB_NODELIST=n[1-2]", "SLURM_TASKS_PER_NODE=1(x2)",
          "SLURM_GPUS_ON_NODE=8", "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7"},
         "n1:8 n2:8 "},
        {{"SLURM_JOB_NODELIST=n1", "SLURM_GPUS_ON_NODE=8", "CUDA_VISIBLE_DEVICES=2,3"},
         "n1:2 "},
        {{"SLURM_JOB_NODELIST=n1", "SLURM_TASKS_PER_NODE=16", "SLURM_GPUS_ON_NODE=8"},
         "n1:16 "},
        /* of the step, not of the job: not looked at */
        {{"SLURM_JOB_NODELIST=n[1-2]", "SLURM_STEP_NODELIST=n1",
          "SLURM_STEP_TASKS_PER_NODE=5"},
         "n1:1 n2:1 "},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct zt_fault fault = {0};
        struct zt_hosts h;
        char all[256] = "";

        set_only(cases[i].vars);
        if (zt_slurm_hosts(&h, &fault))
            fail_msg("case %zu: %s", i, fault.text);
        for (int k = 0; k < h.num; k++) {
            assert_int_equal(h.host[k].slots[h.host[k].num_slots - 1],
                             h.host[k].num_slots - 1);
            snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s:%d ",
                     h.host[k].name, h.host[k].num_slots);
        }
        assert_string_equal(all, cases[i].hosts);
        zt_hosts_release(&h);
    }
}

static void nonsense_is_refused_with_the_variable(void **state)
{
    static const struct {
        const char *vars[4], *name;
    } cases[] = {
        {{"SLURM_JOB_ID=1"}, "SLURM_JOB_NODELIST is not"},
        {{"SLURM_JOB_NODELIST=n[3-1]"}, "SLURM_JOB_NODELIST: "},
        {{"SLURM_JOB_NODELIST=,"}, "names no host"},
        {{"SLURM_JOB_NODELIST=n[1-2]", "SLURM_TASKS_PER_NODE=1"},
         "SLURM_TASKS_PER_NODE: "},
        {{"SLURM_JOB_NODELIST=n1", "SLURM_TASKS_PER_NODE=5000"}, "n1: 5000 tasks"},
        {{"SLURM_JOB_NODELIST=n1", "SLURM_GPUS_ON_NODE=x"}, "SLURM_GPUS_ON_NODE is 'x'"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct zt_fault fault = {0};
        struct zt_hosts h;

        set_only(cases[i].vars);
        assert_int_equal(zt_slurm_hosts(&h, &fault), ZT_E_USAGE);
        if (!strstr(fault.text, cases[i].name))
            fail_msg("case %zu: %s", i, fault.text);
    }
}

static void an_allocation_is_told_from_a_task(void **state)
{
    static const struct {
        const char *vars[5];
        bool want;
    } cases[] = {
        {{"HOME=/"}, false},
        {{"SLURM_JOB_ID=1", "SLURM_PROCID=0"}, true}, /* a batch script */
        {{"SLURM_JOB_ID=1", "SLURM_STEP_ID=4294967290", "SLURM_STEP_NUM_TASKS=1"}, true},
        {{"SLURM_JOB_ID=1", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=4"}, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        set_only(cases[i].vars);
        assert_int_equal(zt_slurm_is_allocation(), cases[i].want);
    }
    clearenv();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_and_slots_are_those_of_the_allocation),
        cmocka_unit_test(nonsense_is_refused_with_the_variable),
        cmocka_unit_test(an_allocation_is_told_from_a_task),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
