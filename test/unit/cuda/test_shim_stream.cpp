/* Streams, events, and work that no event orders. */
#include "test/unit/cuda/shim_test.h"

#include <pthread.h>

#include <atomic>

static __global__ void set(int *x, int value)
{
    *x = value;
}

static __global__ void move(int *to, const int *from)
{
    *to = *from;
}

static cudaStream_t new_stream(void)
{
    cudaStream_t s = NULL;

    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}

static cudaEvent_t new_event(void)
{
    cudaEvent_t e = NULL;

    OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    return e;
}

#define ONE dim3(1), dim3(1)

/* ---- two streams ---- */

/* What the consumer sees of the 1 that the producer writes. */
static int hand_over(bool with_wait)
{
    cudaStream_t producer = new_stream(), consumer = new_stream();
    cudaEvent_t done = new_event();
    int *x = managed(2, 0), seen;

    OK(launch(producer, ONE, set, x, 1));
    OK(cudaEventRecord(done, producer));
    if (with_wait)
        OK(cudaStreamWaitEvent(consumer, done));
    OK(launch(consumer, ONE, move, x + 1, x));
    OK(cudaStreamSynchronize(consumer));
    seen = x[1];
    cudaFree(x);
    OK(cudaEventDestroy(done));
    OK(cudaStreamDestroy(producer));
    OK(cudaStreamDestroy(consumer));
    return seen;
}

static void test_a_missing_wait_for_an_event_shows(void **)
{
    shim_set_seed(0);
    assert_int_equal(hand_over(true), 1);
    assert_int_equal(hand_over(false), 0);
    shim_set_seed(1);
    assert_int_equal(hand_over(false), 0);
    for (uint64_t seed = 0; seed < 50; seed++) {
        shim_set_seed(seed);
        assert_int_equal(hand_over(true), 1);
    }
    shim_set_seed(0);
}

/* The writer must not pass the reader of what it overwrites. */
static int overwrite(bool with_wait)
{
    cudaStream_t reader = new_stream(), writer = new_stream();
    cudaEvent_t read = new_event();
    int *x = managed(2, 7), seen;

    OK(launch(reader, ONE, move, x + 1, x));
    OK(cudaEventRecord(read, reader));
    if (with_wait)
        OK(cudaStreamWaitEvent(writer, read));
    OK(launch(writer, ONE, set, x, 8));
    OK(cudaDeviceSynchronize());
    seen = x[1];
    cudaFree(x);
    OK(cudaEventDestroy(read));
    OK(cudaStreamDestroy(reader));
    OK(cudaStreamDestroy(writer));
    return seen;
}

static void test_a_write_that_should_have_waited_for_a_read_shows(void **)
{
    shim_set_seed(0);
    assert_int_equal(overwrite(true), 7);
    assert_int_equal(overwrite(false), 8);
}

static void test_a_host_that_waits_for_the_wrong_stream_sees_the_past(void **)
{
    cudaStream_t a = new_stream(), b = new_stream();
    int *x = managed(2, 0);

    shim_set_seed(1);
    OK(launch(a, ONE, set, x, 1));
    OK(launch(b, ONE, set, x + 1, 1));
    assert_int_equal(x[0], 0);
    OK(cudaStreamSynchronize(b));
    assert_int_equal(x[0], 0);
    assert_int_equal(x[1], 1);
    OK(cudaStreamSynchronize(a));
    assert_int_equal(x[0], 1);
    shim_set_seed(0);
    cudaFree(x);
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
}

/* ---- events ---- */

static __global__ void append(int *list, int *len, int value)
{
    list[(*len)++] = value;
}

static void test_events_order_a_chain_over_streams(void **)
{
    enum { N = 3, STEPS = 12 };

    for (uint64_t seed = 0; seed < 30; seed++) {
        cudaStream_t s[N];
        cudaEvent_t e = new_event();
        int *list = managed(STEPS, -1), *len = managed(1, 0);

        shim_set_seed(seed);
        for (int i = 0; i < N; i++)
            s[i] = new_stream();
        for (int i = 0; i < STEPS; i++) {
            if (i > 0)
                OK(cudaStreamWaitEvent(s[i % N], e));
            OK(launch(s[i % N], ONE, append, list, len, i));
            OK(cudaEventRecord(e, s[i % N])); /* the same event, again and again */
        }
        OK(cudaEventSynchronize(e));
        assert_int_equal(*len, STEPS);
        for (int i = 0; i < STEPS; i++)
            assert_int_equal(list[i], i);
        cudaFree(list);
        cudaFree(len);
        OK(cudaEventDestroy(e));
        for (int i = 0; i < N; i++)
            OK(cudaStreamDestroy(s[i]));
    }
    shim_set_seed(0);
}

static void test_a_wait_is_for_the_record_before_it(void **)
{
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t e = new_event();
    int *x = managed(2, 0);

    shim_set_seed(1);
    OK(cudaStreamWaitEvent(b, e)); /* never recorded: no wait */
    OK(launch(a, ONE, set, x, 1));
    OK(cudaEventRecord(e, a));
    OK(cudaStreamWaitEvent(b, e));
    OK(launch(a, ONE, set, x, 2));
    OK(cudaEventRecord(e, a));
    OK(launch(b, ONE, move, x + 1, x));
    OK(cudaStreamSynchronize(b));
    assert_int_equal(x[1], 1);
    assert_int_equal(x[0], 1);
    OK(cudaEventSynchronize(e));
    assert_int_equal(x[0], 2);
    shim_set_seed(0);
    cudaFree(x);
    OK(cudaEventDestroy(e));
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
}

static void test_a_loop_of_queries_ends(void **)
{
    cudaStream_t s = new_stream();
    cudaEvent_t from, to;
    int *x = managed(1, 0), rounds = 0;
    float ms = -1;

    OK(cudaEventCreate(&from));
    OK(cudaEventCreate(&to));
    OK(cudaEventRecord(from, s));
    for (int i = 0; i < 5; i++)
        OK(launch(s, ONE, set, x, i));
    OK(cudaEventRecord(to, s));
    assert_int_equal(cudaEventElapsedTime(&ms, from, to), cudaErrorNotReady);
    while (cudaEventQuery(to) == cudaErrorNotReady)
        rounds++;
    assert_true(rounds > 2);
    assert_int_equal(*x, 4);
    OK(cudaEventElapsedTime(&ms, from, to));
    assert_true(ms >= 0);
    assert_int_equal(cudaStreamQuery(s), cudaSuccess);
    cudaFree(x);
    OK(cudaEventDestroy(from));
    OK(cudaEventDestroy(to));
    assert_int_equal(cudaEventSynchronize(to), cudaErrorInvalidResourceHandle);
    OK(cudaStreamDestroy(s));
    assert_int_equal(cudaStreamSynchronize(s), cudaErrorInvalidResourceHandle);
}

static void test_the_null_stream_orders_those_that_follow_it(void **)
{
    cudaStream_t with, without = new_stream();
    int *x = managed(4, 0);

    shim_set_seed(0);
    OK(cudaStreamCreate(&with));
    OK(launch(0, ONE, set, x, 1));
    OK(launch(with, ONE, move, x + 1, x));
    OK(launch(0, ONE, move, x + 3, x + 1));
    OK(launch(without, ONE, move, x + 2, x));
    OK(cudaDeviceSynchronize());
    assert_int_equal(x[1], 1);
    assert_int_equal(x[2], 0);
    assert_int_equal(x[3], 1);
    cudaFree(x);
    OK(cudaStreamDestroy(with));
    OK(cudaStreamDestroy(without));
}

/* ---- arguments ---- */

struct many {
    int values[8];
};

static __global__ void sum_of(int *out, struct many m)
{
    for (int i = 0; i < 8; i++)
        *out += m.values[i];
}

static void test_arguments_are_copied_at_the_launch(void **)
{
    struct many m = {{1, 2, 3, 4, 5, 6, 7, 8}};
    int *x = managed(1, 0);

    OK(launch(0, ONE, sum_of, x, m));
    m = {};
    OK(cudaDeviceSynchronize());
    assert_int_equal(*x, 36);
    cudaFree(x);
}

static void add_one(void *ctx)
{
    ++*(int *)ctx;
}

static void test_host_functions_run_in_their_stream(void **)
{
    cudaStream_t s = new_stream();
    int *x = managed(1, 0);

    OK(launch(s, ONE, set, x, 5));
    OK(cudaLaunchHostFunc(s, add_one, x));
    OK(launch(s, ONE, move, x, x));
    assert_int_equal(*x, 0);
    OK(cudaStreamSynchronize(s));
    assert_int_equal(*x, 6);
    cudaFree(x);
    OK(cudaStreamDestroy(s));
}

/* ---- a wait that is forgotten ---- */

/* The second wait of a process orders nothing. */
static void drop_the_second(void)
{
    int seen[3];

    shim_set_seed(0);
    setenv("SHIM_DROP_WAIT", "2", 1);
    for (int &one : seen)
        one = hand_over(true);
    _exit(seen[0] == 1 && seen[1] == 0 && seen[2] == 1 ? 7 : 8);
}

static void test_one_wait_can_be_forgotten(void **)
{
    int status = 0;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        execl("/proc/self/exe", "test_shim_stream", "drop", NULL); /* none counted yet */
        _exit(9);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
}

/* ---- a second thread ---- */

struct watched {
    cudaEvent_t before, after;
    std::atomic<bool> works, asked;
    cudaError_t seen[2], last;
    int device;
};

static void *watchdog(void *context)
{
    struct watched *w = (struct watched *)context;

    while (!w->works)
        sched_yield();
    w->seen[0] = cudaEventQuery(w->before);
    w->seen[1] = cudaEventQuery(w->after);
    cudaGetDevice(&w->device);
    cudaSetDevice(1);
    cudaEventQuery(NULL); /* an error of this thread's */
    w->last = cudaPeekAtLastError();
    w->asked = true;
    return NULL;
}

/* Work that does not end before the watchdog has its answers. */
static void work_until_asked(void *context)
{
    struct watched *w = (struct watched *)context;

    w->works = true;
    while (!w->asked)
        sched_yield();
}

static void test_a_watchdog_asks_while_work_runs(void **)
{
    struct watched w = {};
    cudaStream_t s = new_stream();
    pthread_t thread;
    int device = -1;

    (void)cudaGetLastError();
    setenv("SHIM_DEVICES", "2", 1);
    w.before = new_event();
    w.after = new_event();
    assert_int_equal(pthread_create(&thread, NULL, watchdog, &w), 0);
    OK(cudaEventRecord(w.before, s));
    OK(cudaLaunchHostFunc(s, work_until_asked, &w));
    OK(cudaEventRecord(w.after, s));
    OK(cudaStreamSynchronize(s));
    pthread_join(thread, NULL);
    assert_int_equal(w.seen[0], cudaSuccess);
    assert_int_equal(w.seen[1], cudaErrorNotReady);
    assert_int_equal(w.last, cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
    assert_int_equal(w.device, 0);
    OK(cudaGetDevice(&device));
    assert_int_equal(device, 0);
    OK(cudaEventDestroy(w.before));
    OK(cudaEventDestroy(w.after));
    OK(cudaStreamDestroy(s));
    unsetenv("SHIM_DEVICES");
}

static void *only_asks(void *context)
{
    struct watched *w = (struct watched *)context;

    for (int i = 0; i < 100; i++)
        w->seen[0] = cudaEventQuery(w->after);
    return NULL;
}

static void test_only_who_queued_moves_work_on_by_asking(void **)
{
    struct watched w = {};
    cudaStream_t s = new_stream();
    pthread_t thread;
    int *x = managed(1, 0);

    w.after = new_event();
    OK(launch(s, ONE, set, x, 1));
    OK(cudaEventRecord(w.after, s));
    assert_int_equal(pthread_create(&thread, NULL, only_asks, &w), 0);
    pthread_join(thread, NULL);
    assert_int_equal(w.seen[0], cudaErrorNotReady);
    assert_int_equal(*x, 0);
    while (cudaEventQuery(w.after) == cudaErrorNotReady)
        ;
    assert_int_equal(*x, 1);
    cudaFree(x);
    OK(cudaEventDestroy(w.after));
    OK(cudaStreamDestroy(s));
}

int main(int argc, char **)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_missing_wait_for_an_event_shows),
        cmocka_unit_test(test_a_write_that_should_have_waited_for_a_read_shows),
        cmocka_unit_test(test_a_host_that_waits_for_the_wrong_stream_sees_the_past),
        cmocka_unit_test(test_events_order_a_chain_over_streams),
        cmocka_unit_test(test_a_wait_is_for_the_record_before_it),
        cmocka_unit_test(test_a_loop_of_queries_ends),
        cmocka_unit_test(test_the_null_stream_orders_those_that_follow_it),
        cmocka_unit_test(test_arguments_are_copied_at_the_launch),
        cmocka_unit_test(test_host_functions_run_in_their_stream),
        cmocka_unit_test(test_one_wait_can_be_forgotten),
        cmocka_unit_test(test_a_watchdog_asks_while_work_runs),
        cmocka_unit_test(test_only_who_queued_moves_work_on_by_asking),
    };

    if (argc > 1)
        drop_the_second();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
