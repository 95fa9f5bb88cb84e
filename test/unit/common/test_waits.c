/* Times that a thread waits: they add up by kind, and each thread has its own. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "common/log.h"
#include "common/trace/waits.h"

/* A wait of at least `seconds`; how long it really was. */
static double wait_for(zt_wait_kind kind, double seconds)
{
    double begin = zt_now();

    zt_wait_begin();
    while (zt_now() - begin < seconds)
        ;
    zt_wait_end(kind);
    return zt_now() - begin;
}

static void *other_thread(void *ctx)
{
    (void)ctx;
    wait_for(ZT_WAIT_RANKS, 0.001);
    return NULL;
}

static void test_waits_add_up_by_kind_and_thread(void **state)
{
    double took, more, seconds[ZT_NUM_WAITS];
    pthread_t id;

    (void)state;
    zt_waits_take(seconds);
    took = wait_for(ZT_WAIT_FILES, 0.001);
    took += wait_for(ZT_WAIT_FILES, 0.001);
    more = wait_for(ZT_WAIT_RANKS, 0.002);
    assert_int_equal(pthread_create(&id, NULL, other_thread, NULL), 0);
    assert_int_equal(pthread_join(id, NULL), 0);
    zt_waits_take(seconds);
    assert_true(seconds[ZT_WAIT_FILES] >= 0.0019 && seconds[ZT_WAIT_FILES] <= took);
    assert_true(seconds[ZT_WAIT_RANKS] >= 0.0019 && seconds[ZT_WAIT_RANKS] <= more);
    zt_waits_take(seconds);
    assert_true(seconds[ZT_WAIT_FILES] == 0 && seconds[ZT_WAIT_RANKS] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waits_add_up_by_kind_and_thread),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
