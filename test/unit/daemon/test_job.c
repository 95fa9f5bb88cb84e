/* A daemon believes no job description that it has not checked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "worker/daemon/job.h"

#define GOOD                                                                             \
    "{\"id\":\"j\",\"argv\":[\"prog\",\"arg\"],\"env\":{\"A\":\"1=2\"},\"first_rank\":"  \
    "2,"                                                                                 \
    "\"local_world\":2,\"world\":4,\"node_rank\":1,\"num_nodes\":2,\"master_addr\":"     \
    "\"h\","                                                                             \
    "\"master_port\":1,\"grace_ms\":1000,\"bind\":true,\"log_dir\":null}"

static void a_good_one_is_read_whole(void **state)
{
    struct zt_job *job = NULL;

    (void)state;
    assert_int_equal(zt_job_open(GOOD, strlen(GOOD), &job, NULL), ZT_OK);
    assert_string_equal(job->argv[1], "arg");
    assert_null(job->argv[2]);
    assert_string_equal(job->env[0], "A=1=2");
    assert_int_equal(job->first_rank, 2);
    assert_true(job->bind);
    assert_null(job->log_dir);
    zt_job_close(job);
}

static void what_may_be_missing_has_defaults(void **state)
{
    struct zt_job *job = NULL;

    (void)state;
    assert_int_equal(zt_job_open(GOOD, strlen(GOOD), &job, NULL), ZT_OK);
    assert_int_equal(job->restart, 0);
    assert_int_equal(job->silence_ms, 0);
    assert_int_equal(job->share_first, 0);
    assert_int_equal(job->share_ranks, 2);
    assert_null(job->pmi_mapping);
    zt_job_close(job);
}

/* GOOD with more fields. */
static zt_err open_with(const char *fields, struct zt_job **out, struct zt_fault *fault)
{
    char text[1024];

    snprintf(text, sizeof(text), "%.*s,%s}", (int)strlen(GOOD) - 1, GOOD, fields);
    return zt_job_open(text, strlen(text), out, fault);
}

static void words_are_set_to_what_they_are_here(void **state)
{
    struct zt_job *job = NULL;
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    (void)state;
    assert_true(n > 0);
    self[n] = 0;
    setenv("ZLAUNCH_PUSH_DIR", "/there", 1);
    assert_int_equal(open_with("\"self\":true,\"pushed\":[1]", &job, NULL), ZT_OK);
    assert_string_equal(job->argv[0], self);
    assert_string_equal(job->argv[1], "/there/arg");
    zt_job_close(job);
    assert_int_equal(open_with("\"pushed\":[2]", &job, NULL), ZT_E_FORMAT);
    assert_int_equal(open_with("\"pushed\":[-1]", &job, NULL), ZT_E_FORMAT);
    assert_int_equal(open_with("\"pushed\":[\"0\"]", &job, NULL), ZT_E_FORMAT);
    unsetenv("ZLAUNCH_PUSH_DIR"); /* nothing was pushed to this node */
    assert_int_equal(open_with("\"pushed\":[1]", &job, NULL), ZT_OK);
    assert_string_equal(job->argv[1], "arg");
    zt_job_close(job);
}

static void a_share_of_the_cores_must_hold_its_ranks(void **state)
{
    struct zt_fault fault = {0};
    struct zt_job *job = NULL;

    (void)state;
    assert_int_equal(open_with("\"share_first\":2,\"share_ranks\":4", &job, NULL), ZT_OK);
    assert_int_equal(job->share_first, 2);
    zt_job_close(job);
    assert_int_equal(open_with("\"share_first\":3,\"share_ranks\":4", &job, &fault),
                     ZT_E_FORMAT);
    assert_non_null(strstr(fault.text, "share_ranks"));
    assert_int_equal(open_with("\"silence_ms\":-1", &job, &fault), ZT_E_FORMAT);
    assert_non_null(strstr(fault.text, "silence_ms"));
}

static void each_broken_one_is_refused_naming_the_field(void **state)
{
    static const struct {
        const char *from, *to, *named;
    } cases[] = {
        {"\"world\":4", "\"world\":3", "world"},
        {"\"world\":4", "\"world\":\"4\"", "world"},
        {"\"argv\":[\"prog\",\"arg\"]", "\"argv\":[]", "argv"},
        {"\"argv\":[\"prog\",\"arg\"]", "\"argv\":[\"prog\",1]", "argv"},
        {"\"A\":\"1=2\"", "\"A=B\":\"1\"", "env"},
        {"\"A\":\"1=2\"", "\"A\":1", "env"},
        {"\"local_world\":2", "\"local_world\":0", "local_world"},
        {"\"local_world\":2", "\"local_world\":99999", "local_world"},
        {"\"grace_ms\":1000", "\"grace_ms\":-1", "grace_ms"},
        {"\"id\":\"j\"", "\"id\":null", "id"},
        {"\"log_dir\":null", "\"log_dir\":\"d\"", "log_stamp"},
        {"\"master_addr\":\"h\",", "", "master_addr"},
        {"true", "tru", "JSON"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const char *at = strstr(GOOD, cases[i].from);
        struct zt_fault fault = {0};
        struct zt_job *job = NULL;
        char text[1024];

        assert_non_null(at);
        snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - GOOD), GOOD, cases[i].to,
                 at + strlen(cases[i].from));
        assert_int_equal(zt_job_open(text, strlen(text), &job, &fault), ZT_E_FORMAT);
        assert_null(job);
        assert_non_null(strstr(fault.text, cases[i].named));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_one_is_read_whole),
        cmocka_unit_test(what_may_be_missing_has_defaults),
        cmocka_unit_test(words_are_set_to_what_they_are_here),
        cmocka_unit_test(a_share_of_the_cores_must_hold_its_ranks),
        cmocka_unit_test(each_broken_one_is_refused_naming_the_field),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
