/* Timelines: what is recorded comes out, as JSON that a viewer reads; every failure once.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <cmocka.h>

#include "common/trace/trace.h"
#include "test/unit/data/files.h"

static struct zt_fault fault;

/* ---- reading back ---- */

static json_t *load(const char *path)
{
    json_error_t e;
    json_t *j = json_load_file(path, JSON_REJECT_DUPLICATES, &e);

    if (!j)
        print_error("%s:%d: %s\n", path, e.line, e.text);
    assert_non_null(j);
    return j;
}

static const char *text_of(const json_t *e, const char *key)
{
    const char *s = json_string_value(json_object_get(e, key));

    return s ? s : "";
}

static int64_t int_of(const json_t *e, const char *key)
{
    json_t *v = json_object_get(e, key);

    assert_true(json_is_integer(v));
    return json_integer_value(v);
}

/* Nanoseconds of a field in microseconds; exact below 2^53 ns, that is 100 days. */
static int64_t ns_of(const json_t *e, const char *key)
{
    json_t *v = json_object_get(e, key);

    assert_true(json_is_real(v));
    return (int64_t)(json_real_value(v) * 1000 + 0.5);
}

static bool is(const json_t *e, const char *ph, int64_t pid, int64_t tid)
{
    return strcmp(text_of(e, "ph"), ph) == 0 && int_of(e, "pid") == pid &&
           int_of(e, "tid") == tid;
}

/* args.name of the metadata event, "" when there is none. */
static const char *named(const json_t *root, const char *what, int64_t pid, int64_t tid)
{
    const char *found = "";
    json_t *e;
    size_t i;

    json_array_foreach(json_object_get(root, "traceEvents"), i, e)
    {
        if (is(e, "M", pid, tid) && strcmp(text_of(e, "name"), what) == 0)
            found = text_of(json_object_get(e, "args"), "name");
    }
    return found;
}

struct seen {
    char *text; /* "name(depth) name(depth) ..." of the spans in order */
    int spans, instants;
};

/*
 * The spans of a thread, which must nest: each begins inside the innermost one that is
 * still open, and ends there.
 */
static struct seen see(const json_t *root, int64_t pid, int64_t tid)
{
    int64_t end[ZT_TRACE_MAX_DEPTH], last = 0;
    struct seen s = {0};
    size_t i, bytes;
    FILE *f = open_memstream(&s.text, &bytes);
    int depth = 0;
    json_t *e;

    assert_non_null(f);
    json_array_foreach(json_object_get(root, "traceEvents"), i, e)
    {
        int64_t ts, dur;

        s.instants += is(e, "i", pid, tid);
        if (!is(e, "X", pid, tid))
            continue;
        ts = ns_of(e, "ts");
        dur = ns_of(e, "dur");
        assert_true(ts >= last && dur >= 0);
        last = ts;
        /* a sibling that ends when the next begins is not its parent */
        while (depth && (end[depth - 1] < ts || (end[depth - 1] == ts && dur)))
            depth--;
        assert_true(!depth || ts + dur <= end[depth - 1]);
        assert_true(depth < ZT_TRACE_MAX_DEPTH);
        fprintf(f, "%s(%d) ", text_of(e, "name"), depth);
        end[depth++] = ts + dur;
        s.spans++;
    }
    fclose(f);
    return s;
}

/* Let the clock go on, so that no two events share a nanosecond. */
static void tick(void)
{
    struct timespec a, b;

    clock_gettime(CLOCK_MONOTONIC, &a);
    do
        clock_gettime(CLOCK_MONOTONIC, &b);
    while (a.tv_nsec == b.tv_nsec);
}

static int64_t clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void open_trace(const char *path, int rank, int world)
{
    if (zt_trace_open(path, rank, world, &fault))
        fail_msg("%s", fault.text);
}

static void close_trace(void)
{
    if (zt_trace_close(&fault))
        fail_msg("%s", fault.text);
}

/* ---- tests ---- */

static void test_without_a_path_nothing_happens(void **state)
{
    (void)state;
    open_trace(NULL, 0, 1);
    assert_false(zt_trace_on());
    zt_trace_thread("compute");
    zt_trace_begin("step", "forward");
    zt_trace_instant("step", "now");
    zt_trace_end();
    assert_string_equal(zt_trace_text("block"), "");
    close_trace();
    assert_int_equal(zt_trace_merge(NULL, 4, &fault), ZT_OK);
    assert_int_equal(count_files(scratch_dir), 0);
}

struct walk {
    unsigned seed;
    FILE *expect;
    int spans;
};

/* Spans in spans at random; what they should look like goes to w->expect. */
static void wander(struct walk *w, int depth)
{
    static const char *const names[] = {"forward", "backward", "reduce", "update"};

    for (int i = (int)(rand_r(&w->seed) % 4) + !depth; i > 0; i--) {
        int k = (int)(rand_r(&w->seed) % 4);

        zt_trace_begin_with("step", names[k], "bytes", (int64_t)k << 40);
        fprintf(w->expect, "%s(%d) ", names[k], depth);
        w->spans++;
        tick();
        if (depth < 5)
            wander(w, depth + 1);
        tick();
        zt_trace_end();
        tick();
    }
}

struct lane {
    unsigned seed;
    const char *name;
    char *expect;
    int spans;
};

static void *run_lane(void *arg)
{
    struct lane *l = arg;
    struct walk w = {.seed = l->seed};
    size_t n;

    w.expect = open_memstream(&l->expect, &n);
    zt_trace_thread(l->name);
    for (int i = 0; i < 20; i++)
        wander(&w, 0);
    zt_trace_end(); /* of nothing */
    zt_trace_instant("step", "over");
    fclose(w.expect);
    l->spans = w.spans;
    return NULL;
}

static void test_spans_of_threads_come_out_as_they_nested(void **state)
{
    struct lane lanes[3] = {{.seed = 1, .name = "compute"},
                            {.seed = 2, .name = "comm"},
                            {.seed = 3, .name = "data"}};
    bool found[3] = {0};
    const char *path = in_scratch("t.json");
    int64_t before = clock_ns(), after;
    pthread_t th[3];
    json_t *root, *e;
    size_t at;

    (void)state;
    open_trace(path, 0, 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&th[i], NULL, run_lane, &lanes[i]), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(th[i], NULL);
    after = clock_ns();
    close_trace();
    assert_int_equal(zt_trace_merge(path, 1, &fault), ZT_OK);
    assert_int_equal(count_files(scratch_dir), 1);

    root = load(path);
    for (int tid = 0; tid < 3; tid++) {
        const char *name = named(root, "thread_name", 0, tid);
        struct seen s = see(root, 0, tid);

        for (int i = 0; i < 3; i++) {
            if (strcmp(name, lanes[i].name) != 0)
                continue;
            found[i] = true;
            assert_string_equal(s.text, lanes[i].expect);
            assert_int_equal(s.spans, lanes[i].spans);
            assert_int_equal(s.instants, 1);
        }
        free(s.text);
    }
    json_array_foreach(json_object_get(root, "traceEvents"), at, e)
    {
        if (strcmp(text_of(e, "ph"), "X") != 0)
            continue;
        assert_true(ns_of(e, "ts") >= before && ns_of(e, "ts") <= after);
        assert_string_equal(text_of(e, "cat"), "step");
        if (strcmp(text_of(e, "name"), "update") == 0)
            assert_int_equal(int_of(json_object_get(e, "args"), "bytes"),
                             (int64_t)3 << 40);
    }
    json_decref(root);
    for (int i = 0; i < 3; i++) {
        assert_true(found[i]);
        free(lanes[i].expect);
    }
}

/* A process that is rank `rank` and writes its part. */
static pid_t start_rank(const char *path, int rank, int world)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid)
        return pid;
    if (zt_trace_open(path, rank, world, NULL))
        _exit(1);
    zt_trace_thread("compute");
    for (int i = 0; i <= rank; i++) {
        zt_trace_begin("step", "step");
        tick();
        zt_trace_end();
        tick();
    }
    _exit(zt_trace_close(NULL) ? 2 : 0);
}

static void write_parts(const char *path, int world)
{
    for (int r = 0; r < world; r++) {
        pid_t pid = start_rank(path, r, world);
        int status;

        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
}

static void test_parts_of_ranks_become_one_file(void **state)
{
    const char *path = in_scratch("all.json");
    json_t *root;

    (void)state;
    write_parts(path, 3);
    assert_int_equal(count_files(scratch_dir), 3);
    json_decref(load(in_scratch("all.json.rank1"))); /* a trace by itself */
    if (zt_trace_merge(path, 3, &fault))
        fail_msg("%s", fault.text);
    assert_int_equal(count_files(scratch_dir), 1);
    root = load(path);
    assert_int_equal(int_of(json_object_get(root, "otherData"), "ranks"), 3);
    for (int r = 0; r < 3; r++) {
        char name[16];
        struct seen s = see(root, r, 0);

        snprintf(name, sizeof(name), "rank %d", r);
        assert_string_equal(named(root, "process_name", r, 0), name);
        assert_string_equal(named(root, "thread_name", r, 0), "compute");
        assert_int_equal(s.spans, r + 1);
        free(s.text);
    }
    json_decref(root);
}

static void test_a_missing_part_is_named_and_the_others_stay(void **state)
{
    const char *path = in_scratch("all.json");

    (void)state;
    write_parts(path, 3);
    unlink(in_scratch("all.json.rank2"));
    assert_int_equal(zt_trace_merge(path, 3, &fault), ZT_E_NOINPUT);
    assert_non_null(strstr(fault.text, "rank 2"));
    assert_non_null(strstr(fault.text, "all.json.rank2"));
    assert_int_equal(count_files(scratch_dir), 2);
}

static void test_a_part_cut_anywhere_is_refused(void **state)
{
    char *path = strdup(in_scratch("all.json")); /* put_file() uses up the ring */
    char *part = strdup(in_scratch("all.json.rank0"));
    char buf[4096];
    FILE *f;
    size_t n;

    (void)state;
    write_parts(path, 1);
    f = fopen(part, "rb");
    assert_non_null(f);
    n = fread(buf, 1, sizeof(buf), f);
    fclose(f);
    assert_true(n > 0 && n < sizeof(buf));
    for (size_t cut = 0; cut < n; cut++) {
        put_file("all.json.rank0", buf, cut);
        assert_int_equal(zt_trace_merge(path, 1, &fault), ZT_E_FORMAT);
        assert_non_null(strstr(fault.text, part));
        assert_int_equal(count_files(scratch_dir), 1);
    }
    put_file("all.json.rank0", buf, n);
    assert_int_equal(zt_trace_merge(path, 1, &fault), ZT_OK);
    /* a head whose end is the beginning of a tail */
    n = (size_t)snprintf(buf, sizeof(buf), "%s",
                         "{\"otherData\":{\"dropped_events\":[]},\"displayTimeUnit\":"
                         "\"ms\",\"traceEvents\":[\n]}\n");
    put_file("all.json.rank0", buf, n);
    assert_int_equal(zt_trace_merge(path, 1, &fault), ZT_E_FORMAT);
    free(path);
    free(part);
}

static void test_a_full_track_ends_and_tells_how_many_were_dropped(void **state)
{
    const char *path = in_scratch("full.json");
    json_t *root, *dropped;
    struct seen s;

    (void)state;
    open_trace(path, 0, 1);
    zt_trace_thread("compute");
    zt_trace_begin("step", "outer");
    for (int i = 0; i < ZT_TRACE_MAX_EVENTS + 4; i++) {
        zt_trace_begin("step", "inner");
        zt_trace_end();
    }
    zt_trace_end(); /* the outer one had its place: it ends where it should */
    zt_trace_begin("step", "late");
    zt_trace_end();
    close_trace();
    root = load(in_scratch("full.json.rank0"));
    s = see(root, 0, 0);
    assert_int_equal(s.spans, ZT_TRACE_MAX_EVENTS);
    assert_int_equal(s.instants, 1); /* that says where the record ends */
    assert_null(strstr(s.text, "late"));
    assert_memory_equal(s.text, "outer(0) inner(1) ", 18);
    free(s.text);
    dropped = json_object_get(json_object_get(root, "otherData"), "dropped_events");
    assert_int_equal(json_array_size(dropped), 1);
    dropped = json_array_get(dropped, 0);
    assert_int_equal(int_of(dropped, "events"), 6); /* five inner ones and the late one */
    assert_string_equal(text_of(dropped, "thread"), "compute");
    json_decref(root);
}

static void test_spans_too_deep_are_dropped_and_those_around_stay(void **state)
{
    json_t *root;
    struct seen s;

    (void)state;
    open_trace(in_scratch("deep.json"), 0, 1);
    for (int i = 0; i < ZT_TRACE_MAX_DEPTH + 3; i++) {
        zt_trace_begin("step", "in");
        tick();
    }
    for (int i = 0; i < ZT_TRACE_MAX_DEPTH + 3; i++) {
        tick();
        zt_trace_end();
    }
    close_trace();
    root = load(in_scratch("deep.json.rank0"));
    s = see(root, 0, 0);
    assert_int_equal(s.spans, ZT_TRACE_MAX_DEPTH);
    assert_string_equal(named(root, "thread_name", 0, 0), "thread 0");
    free(s.text);
    json_decref(root);
}

static void test_open_spans_end_with_the_trace(void **state)
{
    json_t *root;
    struct seen s;

    (void)state;
    open_trace(in_scratch("open.json"), 0, 1);
    zt_trace_begin("step", "a");
    tick();
    zt_trace_begin("step", "b");
    tick();
    close_trace();
    zt_trace_end(); /* too late; harmless */
    root = load(in_scratch("open.json.rank0"));
    s = see(root, 0, 0);
    assert_string_equal(s.text, "a(0) b(1) ");
    free(s.text);
    json_decref(root);
    /* the next trace of the process begins empty */
    open_trace(in_scratch("open.json"), 0, 1);
    zt_trace_end();
    zt_trace_begin("step", "c");
    zt_trace_end();
    close_trace();
    root = load(in_scratch("open.json.rank0"));
    s = see(root, 0, 0);
    assert_string_equal(s.text, "c(0) ");
    free(s.text);
    json_decref(root);
}

static void test_names_of_any_bytes_are_valid_json(void **state)
{
    static const char *const names[] = {"a \"quoted\" \\ name", "line\nbreak\t\x01", "",
                                        "h\xc3\xa9", "not utf-8: \xff\xc3"};
    static const char *const read[] = {"a \"quoted\" \\ name", "line\nbreak\t\x01", "",
                                       "h\xc3\xa9",
                                       "not utf-8: \xef\xbf\xbd\xef\xbf\xbd"};
    char scratch[32];
    json_t *root, *e;
    size_t i;
    int n = 0;

    (void)state;
    open_trace(in_scratch("odd.json"), 0, 1);
    for (int k = 0; k < 5; k++) {
        snprintf(scratch, sizeof(scratch), "%s", names[k]); /* goes away: a copy stays */
        zt_trace_begin("step", zt_trace_text(scratch));
        zt_trace_end();
        assert_ptr_equal(zt_trace_text(scratch), zt_trace_text(names[k]));
    }
    close_trace();
    root = load(in_scratch("odd.json.rank0"));
    json_array_foreach(json_object_get(root, "traceEvents"), i, e)
    {
        if (strcmp(text_of(e, "ph"), "X") == 0)
            assert_string_equal(text_of(e, "name"), read[n++]);
    }
    assert_int_equal(n, 5);
    json_decref(root);
}

static void test_a_folder_that_takes_no_file_is_told_at_once(void **state)
{
    (void)state;
    assert_int_equal(zt_trace_open("/nowhere/at/all.json", 0, 1, &fault),
                     ZT_E_CANTCREATE);
    assert_non_null(strstr(fault.text, "/nowhere/at"));
    assert_int_equal(zt_trace_open(in_scratch("folder/"), 0, 1, &fault), ZT_E_CANTCREATE);
    assert_false(zt_trace_on());
}

static void test_two_traces_at_once_are_refused(void **state)
{
    (void)state;
    open_trace(in_scratch("one.json"), 0, 1);
    assert_int_equal(zt_trace_open(in_scratch("two.json"), 0, 1, &fault), ZT_E_ARG);
    close_trace();
    assert_int_equal(count_files(scratch_dir), 1);
}

/* A limit on the size of files stands for a disk that is full. */
static void test_a_disk_that_fills_is_one_error_and_leaves_no_file(void **state)
{
    const char *path = in_scratch("big.json");
    struct rlimit was, small;

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small = was;
    small.rlim_cur = 20000;
    open_trace(path, 0, 1);
    for (int i = 0; i < 1000; i++) {
        zt_trace_begin("step", "forward");
        zt_trace_end();
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(zt_trace_close(&fault), ZT_E_CANTCREATE);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_non_null(strstr(fault.text, "big.json.rank0"));
    assert_non_null(strstr(fault.text, strerror(EFBIG)));
    assert_null(strchr(fault.text, '\n'));
    assert_int_equal(count_files(scratch_dir), 0);

    write_parts(path, 4); /* four parts that fit, and their sum, which does not */
    small.rlim_cur = 1000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(zt_trace_merge(path, 4, &fault), ZT_E_CANTCREATE);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(count_files(scratch_dir), 4);
}

static atomic_bool stop;
static atomic_int rounds;

static void *keep_recording(void *arg)
{
    zt_trace_thread(arg);
    while (!atomic_load(&stop)) {
        zt_trace_begin_with("comm", "reduce", "bytes", 1);
        zt_trace_instant("comm", "half");
        zt_trace_end();
        atomic_fetch_add(&rounds, 1);
    }
    return NULL;
}

static void test_closing_meets_threads_that_record(void **state)
{
    char names[2][8] = {"comm", "data"};
    pthread_t th[2];
    json_t *root;

    (void)state;
    open_trace(in_scratch("busy.json"), 0, 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&th[i], NULL, keep_recording, names[i]), 0);
    while (atomic_load(&rounds) < 5000)
        zt_trace_instant("step", "main");
    close_trace();
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(th[i], NULL);
    root = load(in_scratch("busy.json.rank0"));
    for (int tid = 0; tid < 3; tid++)
        free(see(root, 0, tid).text);
    json_decref(root);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_make, scratch_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_without_a_path_nothing_happens),
        TEST(test_spans_of_threads_come_out_as_they_nested),
        TEST(test_parts_of_ranks_become_one_file),
        TEST(test_a_missing_part_is_named_and_the_others_stay),
        TEST(test_a_part_cut_anywhere_is_refused),
        TEST(test_a_full_track_ends_and_tells_how_many_were_dropped),
        TEST(test_spans_too_deep_are_dropped_and_those_around_stay),
        TEST(test_open_spans_end_with_the_trace),
        TEST(test_names_of_any_bytes_are_valid_json),
        TEST(test_a_folder_that_takes_no_file_is_told_at_once),
        TEST(test_two_traces_at_once_are_refused),
        TEST(test_a_disk_that_fills_is_one_error_and_leaves_no_file),
        TEST(test_closing_meets_threads_that_record),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
