/* A plan from a command line and a hostfile, for the tests of what is made of plans. */
#ifndef TEST_LAUNCHER_PLAN_HELPER_H
#define TEST_LAUNCHER_PLAN_HELPER_H

#include "launcher/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_TEST_WORDS 32

struct made {
    char hostfile[64];
    char *argv[MAX_TEST_WORDS + 4];
    struct zt_launch *launch;
    struct zt_job_plan *plan;
    struct zt_fault fault;
};

static const char *zworker; /* NULL: any program */

/* words: NULL-terminated, without the program's name and the hostfile. */
static zt_err make_plan(struct made *m, const char *hosts, const char *const *words)
{
    int argc = 0, fd;
    zt_err rc;

    *m = (struct made){.hostfile = "/tmp/zt-test-hosts-XXXXXX"};
    fd = mkstemp(m->hostfile);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, hosts, strlen(hosts)), strlen(hosts));
    close(fd);
    setenv("ZLAUNCH_ZWORKER", zworker ? zworker : "/bin/true", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    setenv("HOME", "/nowhere", 1);
    m->argv[argc++] = (char *)"zlaunch";
    m->argv[argc++] = (char *)"--hostfile";
    m->argv[argc++] = m->hostfile;
    while (*words && argc < MAX_TEST_WORDS)
        m->argv[argc++] = (char *)*words++;
    rc = zt_launch_open(argc, m->argv, &m->launch, &m->fault);
    if (!rc)
        rc = zt_job_plan_open(m->launch, &m->plan, &m->fault);
    return rc;
}

static void unmake_plan(struct made *m)
{
    zt_job_plan_close(m->plan);
    zt_launch_close(m->launch);
    unlink(m->hostfile);
}

#endif
