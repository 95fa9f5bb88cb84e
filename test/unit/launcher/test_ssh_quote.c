/* The bootstrap and its script in a real shell: every byte of a value must arrive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/ssh/quote.h"

static char folder[] = "/tmp/zt_quote_XXXXXX";
static char zworker[64]; /* prints its folder, its words and variables, NUL after each */

/* What the shell prints when it gets these lines on stdin, as sshd would run it. */
static size_t run(const char *shell, const struct zt_buf *script, const char *more,
                  char *out, size_t max, int *status)
{
    char in[64], command[300];
    size_t n;
    FILE *f;

    snprintf(in, sizeof(in), "%s/in", folder);
    f = fopen(in, "w");
    assert_non_null(f);
    fwrite(zt_buf_head(script), 1, zt_buf_used(script), f);
    fputs(more, f);
    fclose(f);
    setenv("ZT_BOOTSTRAP", zt_shell_bootstrap, 1);
    snprintf(command, sizeof(command), "HOME=%s %s -c \"$ZT_BOOTSTRAP\" <%s 2>%s/err",
             folder, shell, in, folder);
    f = popen(command, "r");
    assert_non_null(f);
    n = fread(out, 1, max - 1, f);
    out[n] = 0;
    *status = WEXITSTATUS(pclose(f));
    return n;
}

static bool has(const char *out, size_t n, const char *text)
{
    return memmem(out, n, text, strlen(text) + 1) != NULL; /* with its NUL */
}

static int set_up(void **state)
{
    FILE *f;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(zworker, sizeof(zworker), "%s/z 'w", folder);
    f = fopen(zworker, "w");
    assert_non_null(f);
    fputs("#!/bin/sh\nprintf '%s\\0' \"$PWD\" \"$@\"\nenv -0\ncat\n", f);
    fclose(f);
    return chmod(zworker, 0755);
}

static int tear_down(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

static const char *const shells[] = {"/bin/sh", "/bin/bash", "/bin/dash"};

static void every_byte_of_a_value_arrives(void **state)
{
    char all[300],
        twisted[] = "V=it's \"$HOME\" `id` $(id) \\ \\n \t!x *?[a] ~ # ; & | <>\n"
                    "second 'line\\\n\n",
        leading[] = "W= -n =x", empty[] = "E=";
    char *env[] = {all, twisted, leading, empty, NULL};
    const char *places[] = {"/nonexistent/zworker", zworker, NULL};
    struct zt_shell_job job = {
        .nonce = "n0", .cwd = "/tmp", .env = env, .zworkers = places};
    char out[20000];

    (void)state;
    strcpy(all, "ALL=");
    for (int c = 1; c < 256; c++)
        all[3 + c] = (char)c;
    all[259] = 0;
    for (size_t i = 0; i < sizeof(shells) / sizeof(*shells); i++) {
        struct zt_buf script;
        int status;
        size_t n;

        if (access(shells[i], X_OK) != 0)
            continue;
        zt_buf_init(&script, 1u << 20);
        assert_int_equal(zt_shell_script(&script, &job, NULL), ZT_OK);
        n = run(shells[i], &script, "frames of bytes", out, sizeof(out), &status);
        assert_int_equal(status, 0);
        assert_int_equal(strncmp(out, "zlaunch-n0 up\n/tmp", 18), 0);
        assert_true(has(out, n, "--daemon"));
        for (char **e = env; *e; e++)
            if (!has(out, n, *e))
                fail_msg("%s: '%.20s...' did not arrive", shells[i], *e);
        /* what follows the script is zworker's stdin, whole */
        assert_string_equal(out + n - 15, "frames of bytes");
        zt_buf_release(&script);
    }
}

static void a_missing_zworker_is_announced(void **state)
{
    const char *places[] = {"/nonexistent/zworker", "no-such-program-zt", NULL};
    struct zt_shell_job job = {.nonce = "n1", .zworkers = places};
    struct zt_buf script;
    char out[1000];
    int status;

    (void)state;
    zt_buf_init(&script, 1u << 20);
    assert_int_equal(zt_shell_script(&script, &job, NULL), ZT_OK);
    run("/bin/sh", &script, "", out, sizeof(out), &status);
    assert_string_equal(out, "zlaunch-n1 none\n");
    assert_int_equal(status, 127);
    zt_buf_release(&script);
}

static void folders_fall_back_in_order(void **state)
{
    static const struct {
        const char *cwd, *other, *want; /* want NULL: the home */
    } cases[] = {
        {"/", NULL, "/"},
        {"/no'where", "/usr", "/usr"},
        {"/nowhere", NULL, NULL},
        {NULL, NULL, NULL},
    };
    const char *places[] = {"~/z 'w", NULL};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct zt_shell_job job = {.nonce = "n2",
                                   .cwd = cases[i].cwd,
                                   .other_cwd = cases[i].other,
                                   .zworkers = places};
        struct zt_buf script;
        char out[10000], *at;
        int status;

        zt_buf_init(&script, 1u << 20);
        assert_int_equal(zt_shell_script(&script, &job, NULL), ZT_OK);
        run("/bin/sh", &script, "", out, sizeof(out), &status);
        assert_int_equal(status, 0);
        at = strchr(out, '\n');
        assert_non_null(at);
        assert_string_equal(at + 1, cases[i].want ? cases[i].want : folder);
        zt_buf_release(&script);
    }
}

static void names_no_shell_can_export_are_refused(void **state)
{
    static const char *const names[] = {"A-B=1",   "1A=1",  "=1",
                                        "NOTHING", "F()=x", "A B=1"};
    const char *places[] = {"x", NULL};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char item[16], *env[] = {item, NULL};
        struct zt_shell_job job = {.nonce = "n", .env = env, .zworkers = places};
        struct zt_fault fault = {0};
        struct zt_buf script;

        snprintf(item, sizeof(item), "%s", names[i]);
        zt_buf_init(&script, 1u << 20);
        assert_int_equal(zt_shell_script(&script, &job, &fault), ZT_E_ARG);
        assert_non_null(strstr(fault.text, "named"));
        zt_buf_release(&script);
    }
}

/* csh and fish read ' and \ as sh does only while neither ! nor ' nor \ is inside. */
static void the_bootstrap_suits_other_login_shells(void **state)
{
    const char *open = strchr(zt_shell_bootstrap, '\''),
               *close = strrchr(zt_shell_bootstrap, '\'');

    (void)state;
    assert_non_null(open);
    assert_null(strpbrk(zt_shell_bootstrap, "!\n\\"));
    assert_ptr_equal(strchr(open + 1, '\''), close);
    assert_int_equal(close[1], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_of_a_value_arrives),
        cmocka_unit_test(a_missing_zworker_is_announced),
        cmocka_unit_test(folders_fall_back_in_order),
        cmocka_unit_test(names_no_shell_can_export_are_refused),
        cmocka_unit_test(the_bootstrap_suits_other_login_shells),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
