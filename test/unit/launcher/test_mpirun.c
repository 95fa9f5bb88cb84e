/* The words that each MPI launcher is started with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/mpirun/mpirun.h"
#include "test/unit/launcher/plan_helper.h"

static const char two[] = "h1 slots=2\nh2 slots=2\n";

/* The words with blanks between, "%H" for the hostfile that was given. */
static void expect(const char *hosts, const char *const *words, const char *want)
{
    char text[4096] = "", wanted[4096] = "";
    struct zt_mpirun run;
    struct made m;
    size_t at = 0;

    unsetenv("LD_LIBRARY_PATH");
    assert_int_equal(make_plan(&m, hosts, words), ZT_OK);
    assert_int_equal(zt_mpirun_init(&run, m.plan, &m.fault), ZT_OK);
    for (char **w = run.argv; *w; w++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s", at ? "|" : "", *w);
    at = 0;
    for (const char *p = want; *p; p++) {
        const char *put = p[0] == '%' && p[1] == 'H'   ? m.hostfile
                          : p[0] == '%' && p[1] == 'J' ? run.hostfile
                                                       : NULL;

        if (put)
            p++;
        at += (size_t)snprintf(wanted + at, sizeof(wanted) - at, "%.*s",
                               put ? (int)strlen(put) : 1, put ? put : p);
    }
    assert_string_equal(text, wanted);
    zt_mpirun_release(&run);
    unmake_plan(&m);
}

static int set_up(void **state)
{
    (void)state;
    clearenv();
    setenv("PATH", "/bin:/usr/bin", 1);
    setenv("NCCL_DEBUG", "INFO", 1);
    return 0;
}

static void openmpi(void **state)
{
    static const char *const words[] = {"--launcher", "openmpi", "--",
                                        "true",       "a b",     NULL};
    static const char *const own_if[] = {
        "--launcher", "openmpi", "--launcher_args=--mca btl_tcp_if_include 'ib 0' \\\"",
        "--",         "true",    NULL};

    (void)state;
    expect(two, words,
           "mpirun|-n|4|-hostfile|%H|--mca|btl|^openib|--mca|btl_tcp_if_include|eth0|-x|"
           "UCX_TLS=tcp|-x|NCCL_DEBUG=INFO|-x|ZLAUNCH_LOG_FORMAT=text|-x|"
           "ZLAUNCH_LOG_LEVEL=info|/bin/true|a b");
    expect(
        two, own_if,
        "mpirun|-n|4|-hostfile|%H|--mca|btl|^openib|--mca|btl_tcp_if_include|ib 0|\"|-x|"
        "UCX_TLS=tcp|-x|NCCL_DEBUG=INFO|-x|ZLAUNCH_LOG_FORMAT=text|-x|"
        "ZLAUNCH_LOG_LEVEL=info|/bin/true");
}

static void mpich(void **state)
{
    static const char *const words[] = {
        "--launcher", "mpich", "--master_port", "77", "--", "true", NULL};

    (void)state;
    expect(two, words,
           "mpirun|-n|4|-ppn|2|-genv|NCCL_DEBUG=INFO|-genv|ZLAUNCH_LOG_FORMAT=text|-genv|"
           "ZLAUNCH_LOG_LEVEL=info|-genv|MASTER_ADDR|h1|-genv|MASTER_PORT|77|-genv|"
           "WORLD_SIZE|4|-genv|LOCAL_SIZE|2|-hosts|h1,h2|sh|-c|export "
           "RANK=\"${PMIX_RANK:-$PMI_RANK}\" "
           "LOCAL_RANK=\"${PALS_LOCAL_RANKID:-$MPI_LOCALRANKID}\"; exec \"$@\"|sh|/bin/"
           "true");
}

static void impi(void **state)
{
    static const char *const words[] = {"--launcher", "impi", "--", "true", NULL};

    (void)state;
    expect(
        "h1 slots=1\nh2 slots=1\n", words,
        "mpirun|-ppn|1|-genv|NCCL_DEBUG|INFO|-genv|ZLAUNCH_LOG_FORMAT|text|-genv|"
        "ZLAUNCH_LOG_LEVEL|info|-genv|MASTER_ADDR|h1|-genv|MASTER_PORT|29500|-genv|"
        "WORLD_SIZE|2|-genv|LOCAL_SIZE|1|-genv|I_MPI_PIN|0|-hosts|h1,h2|-n|1|-env|RANK|"
        "0|-env|LOCAL_RANK|0|/bin/true|:|-n|1|-env|RANK|1|-env|LOCAL_RANK|0|/bin/true");
}

static void mvapich(void **state)
{
    static const char *const words[] = {"--launcher", "mvapich", "--", "true", NULL};

    (void)state;
    expect(two, words,
           "mpirun|-np|4|-ppn|2|--hostfile|%J|-env|MV2_SMP_USE_CMA=0|-env|"
           "MV2_DEBUG_SHOW_BACKTRACE=1|-env|MV2_USE_CUDA=1|-env|MV2_SUPPORT_DL=1|-env|"
           "MV2_ENABLE_AFFINITY=0|-env|MV2_INTER_ALLGATHER_TUNING=5|-env|"
           "MV2_CUDA_USE_NAIVE=0|-env|NCCL_DEBUG=INFO|-env|ZLAUNCH_LOG_FORMAT=text|-env|"
           "ZLAUNCH_LOG_LEVEL=info|/bin/true");
}

static void srun(void **state)
{
    static const char *const words[] = {"--launcher", "slurm", "--num_nodes", "1",
                                        "--num_gpus", "2",     "--export",    "A=1",
                                        "--",         "true",  NULL};
    static const char *const chosen[] = {"--launcher", "slurm", "--exclude", "h1",
                                         "--",         "true",  NULL};

    (void)state;
    setenv("UCX_LIST", "a,b", 1); /* a comma would end the value */
    expect(two, words,
           "srun|-n|2|--nodelist|h1|--nodes|1|--gpus|2|--export=ALL,A=1,NCCL_DEBUG=INFO,"
           "UCX_LIST|/bin/"
           "true");
    expect(two, chosen,
           "srun|-n|2|--nodelist|h2|--export=ALL,NCCL_DEBUG=INFO,UCX_LIST|/bin/true");
}

static void what_a_kind_cannot_have_is_refused(void **state)
{
    static const struct {
        const char *hosts, *words[10], *named;
    } cases[] = {
        {two, {"--launcher", "openmpi", "--include", "h1", "--", "true"}, "--include"},
        {two, {"--launcher", "mpich", "--num_nodes", "1", "--", "true"}, "--num_nodes"},
        {two, {"--launcher", "impi", "--num_gpus", "1", "--", "true"}, "--num_gpus"},
        {two,
         {"--launcher", "slurm", "--master_port", "7", "--", "true"},
         "--master_port"},
        {"a@h1 slots=1\n", {"--launcher", "slurm", "--", "true"}, "host h1: names"},
        {"a slots=1\nb slots=2\n", {"--launcher", "mvapich", "--", "true"}, "b 2"},
        {"a slots=1\nb slots=2\n", {"--launcher", "mpich", "--", "true"}, "b 2"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct zt_mpirun run;
        struct made m;

        assert_int_equal(make_plan(&m, cases[i].hosts, cases[i].words), ZT_OK);
        assert_int_equal(zt_mpirun_init(&run, m.plan, &m.fault), ZT_E_USAGE);
        assert_non_null(strstr(m.fault.text, cases[i].named));
        unmake_plan(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(openmpi, set_up),
        cmocka_unit_test_setup(mpich, set_up),
        cmocka_unit_test_setup(impi, set_up),
        cmocka_unit_test_setup(mvapich, set_up),
        cmocka_unit_test_setup(srun, set_up),
        cmocka_unit_test_setup(what_a_kind_cannot_have_is_refused, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
