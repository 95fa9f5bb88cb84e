/* Which variables go along: prefixes, the two files in two folders, --export. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/stat.h>
#include <unistd.h>

#include "launcher/plan/env_forward.h"

static char home[] = "/tmp/zt_home_XXXXXX", work[] = "/tmp/zt_work_XXXXXX";

static int set_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(home));
    assert_non_null(mkdtemp(work));
    return chdir(work);
}

static int tear_down(void **state)
{
    char command[100];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s %s", home, work);
    return chdir("/") || system(command);
}

static void put(const char *folder, const char *name, const char *text)
{
    char path[100];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    remove(path);
    if (!text)
        return;
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* The list, joined by "|". */
static const char *show(char *const *env, char *const *exports)
{
    static char text[2000];
    struct zt_fault fault = {0};
    char **list = NULL;

    text[0] = 0;
    if (zt_forward_env(env, exports, &list, NULL, &fault) != ZT_OK)
        fail_msg("%s", fault.text);
    for (char **p = list; *p; p++) {
        strcat(text, p == list ? "" : "|");
        strcat(text, *p);
    }
    zt_forward_release(list);
    return text;
}

static void variables_go_by_their_prefix(void **state)
{
    char *env[] = {"PATH=/bin",
                   "NCCL_DEBUG=INFO",
                   "UCX_TLS=tcp",
                   "OMP_NUM_THREADS=2",
                   "MLFLOW_RUN=x",
                   "PYTHONPATH=/p=q",
                   "MV2_X=1",
                   "LD_LIBRARY_PATH=/l",
                   "LD_PRELOAD=/no",
                   "ZLAUNCH_LOG_LEVEL=debug",
                   "ZLAUNCH_SECRET=no",
                   "ZLAUNCH_STORE_TOKEN=no",
                   "ZLAUNCH_SHM_FD=3",
                   "ZLAUNCH_ZWORKER=/here",
                   "NCCL_ODD=a'b\n\"c",
                   "NCCL_BAD-NAME=1",
                   "OMPI_COMM_WORLD_RANK=0",
                   "UCX_EMPTY=",
                   NULL};

    (void)state;
    assert_string_equal(
        show(env, NULL),
        "LD_LIBRARY_PATH=/l|MLFLOW_RUN=x|MV2_X=1|NCCL_DEBUG=INFO|NCCL_ODD="
        "a'b\n\"c|OMP_NUM_THREADS=2|PYTHONPATH=/"
        "p=q|UCX_EMPTY=|UCX_TLS=tcp|ZLAUNCH_LOG_LEVEL=debug");
}

static void files_and_exports_override_in_order(void **state)
{
    char home_var[64], *env[] = {home_var, "NCCL_A=env", "MINE=my own", NULL};
    char *exports[] = {"E=cmd=line", "MINE", "EMPTY=", NULL};

    (void)state;
    snprintf(home_var, sizeof(home_var), "HOME=%s", home);
    put(home, ".deepspeed_env",
        "# a comment\n\nNCCL_A=home\n  B=1 \r\nC=\"q\" 'r' $x\\\n");
    assert_string_equal(show(env, NULL), "B=1 |C=\"q\" 'r' $x\\|NCCL_A=home");
    put(work, ".deepspeed_env", "B=2\nE==x=\n");
    put(home, ".zlaunch_env", "B=3\nD=home");
    assert_string_equal(show(env, NULL), "B=2|C=\"q\" 'r' $x\\|D=home|E==x=|NCCL_A=home");
    put(work, ".zlaunch_env", "D=work\n");
    assert_string_equal(
        show(env, exports),
        "B=2|C=\"q\" 'r' $x\\|D=work|E=cmd=line|EMPTY=|MINE=my own|NCCL_A=home");
    put(home, ".deepspeed_env", NULL);
    put(home, ".zlaunch_env", NULL);
    put(work, ".deepspeed_env", NULL);
    put(work, ".zlaunch_env", NULL);
}

static void ds_env_file_renames_the_file(void **state)
{
    char home_var[64], absolute[64];
    char *env[] = {home_var, "DS_ENV_FILE=.other", NULL};

    (void)state;
    snprintf(home_var, sizeof(home_var), "HOME=%s", home);
    put(work, ".deepspeed_env", "A=1\n");
    put(work, ".other", "B=1\n");
    assert_string_equal(show(env, NULL), "B=1");
    snprintf(absolute, sizeof(absolute), "DS_ENV_FILE=%s/.deepspeed_env", work);
    env[1] = absolute;
    assert_string_equal(show(env, NULL), "A=1");
    put(work, ".deepspeed_env", NULL);
    put(work, ".other", NULL);
    for (int i = 0; i < 2; i++) { /* one that is named, and nowhere */
        struct zt_fault fault = {0};
        char **list = NULL;

        assert_int_equal(zt_forward_env(env, NULL, &list, NULL, &fault), ZT_E_NOINPUT);
        assert_non_null(strstr(fault.text, env[1]));
        env[1] = "DS_ENV_FILE=.other";
    }
}

static void mistakes_are_named(void **state)
{
    static const struct {
        const char *file, *export, *want;
    } cases[] = {
        {"A=1\nno value\n", NULL, "./.zlaunch_env:2: 'no value'"},
        {"\n#\n=1\n", NULL, "./.zlaunch_env:3"},
        {"export A=1\n", NULL, "./.zlaunch_env:1"},
        {NULL, "NOT_SET", "--export NOT_SET"},
        {NULL, "A-B=1", "--export 'A-B=1'"},
        {NULL, "", "--export ''"},
        {NULL, "=1", "--export '=1'"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char word[32], *env[] = {NULL}, *exports[] = {word, NULL}, **list = NULL;
        struct zt_fault fault = {0};

        put(work, ".zlaunch_env", cases[i].file);
        snprintf(word, sizeof(word), "%s", cases[i].export ? cases[i].export : "");
        assert_int_equal(
            zt_forward_env(env, cases[i].export ? exports : NULL, &list, NULL, &fault),
            cases[i].export ? ZT_E_USAGE : ZT_E_FORMAT);
        if (!strstr(fault.text, cases[i].want))
            fail_msg("'%s' lacks '%s'", fault.text, cases[i].want);
        assert_null(list);
    }
    put(work, ".zlaunch_env", NULL);
    mkdir(".zlaunch_env", 0700);
    {
        char *env[] = {NULL}, **list = NULL;

        assert_int_equal(zt_forward_env(env, NULL, &list, NULL, NULL), ZT_E_NOINPUT);
    }
    rmdir(".zlaunch_env");
}

/* The warning. */
static const char *warning_of(char *const *env, const char *want)
{
    static char text[300];
    struct zt_fault fault = {0};
    char **list = NULL, *left_out = NULL;

    assert_int_equal(zt_forward_env(env, NULL, &list, &left_out, &fault), ZT_OK);
    assert_string_equal(list[0], want);
    assert_null(list[1]);
    snprintf(text, sizeof(text), "%s", left_out ? left_out : "");
    zt_forward_release(list);
    free(left_out);
    return text;
}

/* One at home that nobody may read is a warning, one beside the job an error. */
static void a_file_that_cannot_be_read(void **state)
{
    char home_var[64], want[200], *env[] = {home_var, NULL}, **list = NULL;
    struct zt_fault fault = {0};
    uid_t me = geteuid();

    (void)state;
    snprintf(home_var, sizeof(home_var), "HOME=%s", home);
    put(home, ".deepspeed_env", "A=1\n");
    put(work, ".zlaunch_env", "B=1\n");
    assert_int_equal(chmod(home, 0), 0);
    assert_int_equal(chmod(work, 0755), 0);
    if (!me) /* root may read everything */
        assert_int_equal(seteuid(65534), 0);
    snprintf(want, sizeof(want),
             "%s/.deepspeed_env: Permission denied; left out\n"
             "%s/.zlaunch_env: Permission denied; left out",
             home, home);
    assert_string_equal(warning_of(env, "B=1"), want);
    assert_int_equal(seteuid(me), 0);
    assert_int_equal(chmod(".zlaunch_env", 0), 0);
    if (!me)
        assert_int_equal(seteuid(65534), 0);
    assert_int_equal(zt_forward_env(env + 1, NULL, &list, NULL, &fault), ZT_E_NOINPUT);
    assert_string_equal(fault.text, "./.zlaunch_env: Permission denied");
    assert_int_equal(seteuid(me), 0);
    assert_int_equal(chmod(home, 0700), 0);
    put(home, ".deepspeed_env", NULL);
    put(work, ".zlaunch_env", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variables_go_by_their_prefix),
        cmocka_unit_test(files_and_exports_override_in_order),
        cmocka_unit_test(ds_env_file_renames_the_file),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(a_file_that_cannot_be_read),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
