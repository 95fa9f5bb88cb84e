/* A daemon believes no job description that it has not checked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

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
        cmocka_unit_test(each_broken_one_is_refused_naming_the_field),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
