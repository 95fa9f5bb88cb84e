/* Streams and events of the backend's table, in every order that the shim draws. */
#include "test/unit/cuda/shim_test.h"

#include "kernels/cuda/cuda.h"

static const struct zt_backend *const be = &zt_cuda_backend;

#define N ((int64_t)1000)

/* Two streams beside the main one, an event, and memory that all of them reach. */
struct scene {
    struct zt_device *dev;
    struct zt_stream *first, *second;
    struct zt_stream_event *event;
    float *x, *y;
};

static struct scene scene_new(void)
{
    struct scene s = {};

    assert_int_equal(be->open(0, 1, &s.dev, NULL), ZT_OK);
    assert_int_equal(be->stream_open(s.dev, &s.first, NULL), ZT_OK);
    assert_int_equal(be->stream_open(s.dev, &s.second, NULL), ZT_OK);
    assert_int_equal(be->event_open(s.dev, &s.event, NULL), ZT_OK);
    s.x = managed((size_t)N, 0.0f);
    s.y = managed((size_t)N, 0.0f);
    return s;
}

static void scene_end(struct scene *s)
{
    be->event_close(s->dev, s->event);
    be->stream_close(s->dev, s->first);
    be->stream_close(s->dev, s->second);
    be->close(s->dev);
    OK(cudaFree(s->x));
    OK(cudaFree(s->y));
}

static struct zt_view row(float *p)
{
    const int64_t n = N;

    return zt_view_of(p, ZT_F32, 1, &n);
}

/* y = 2 x on `on`. */
static void queue_double(const struct scene *s, struct zt_stream *on)
{
    const struct zt_axpby_args a = {row(s->x), row(s->y), 2, 0};

    assert_int_equal(be->kernels->axpby(s->dev, on, &a, NULL), ZT_OK);
}

static void queue_fill(const struct scene *s, struct zt_stream *on, float value)
{
    const struct zt_fill_args a = {row(s->x), value};

    assert_int_equal(be->kernels->fill(s->dev, on, &a, NULL), ZT_OK);
}

/* What the second stream makes of the 1 that the first one writes. */
static float hand_over(bool with_wait)
{
    struct scene s = scene_new();
    float seen;

    queue_fill(&s, s.first, 1);
    assert_int_equal(be->event_record(s.dev, s.event, s.first, NULL), ZT_OK);
    if (with_wait)
        assert_int_equal(be->event_wait(s.dev, s.event, s.second, NULL), ZT_OK);
    queue_double(&s, s.second);
    assert_int_equal(be->sync(s.dev, s.second, NULL), ZT_OK);
    seen = s.y[N - 1];
    assert_int_equal(be->sync(s.dev, s.first, NULL), ZT_OK);
    scene_end(&s);
    return seen;
}

/* The same from the main stream and back to it, by two points of one event. */
static float there_and_back(bool with_wait)
{
    struct scene s = scene_new();
    float seen;

    queue_fill(&s, NULL, 5);
    assert_int_equal(be->event_record(s.dev, s.event, NULL, NULL), ZT_OK);
    assert_int_equal(be->event_wait(s.dev, s.event, s.first, NULL), ZT_OK);
    queue_double(&s, s.first);
    assert_int_equal(be->event_record(s.dev, s.event, s.first, NULL), ZT_OK);
    if (with_wait)
        assert_int_equal(be->event_wait(s.dev, s.event, NULL, NULL), ZT_OK);
    queue_fill(&s, NULL, 9); /* must not pass the reader of what it overwrites */
    assert_int_equal(be->sync(s.dev, NULL, NULL), ZT_OK);
    assert_int_equal(be->sync(s.dev, s.first, NULL), ZT_OK);
    seen = s.y[0];
    scene_end(&s);
    return seen;
}

#define SEEDS 30

/* In every order with the wait; without it some order shows another value. */
static void check_orders(float (*run)(bool with_wait), float want)
{
    int wrong = 0;

    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        shim_set_seed(seed);
        assert_true(run(true) == want);
        shim_set_seed(seed);
        wrong += run(false) != want;
    }
    assert_true(wrong > 0);
    shim_set_seed(0);
}

static void test_an_event_orders_two_streams_and_its_absence_shows(void **)
{
    check_orders(hand_over, 2);
}

static void test_an_event_recorded_again_is_a_new_point(void **)
{
    check_orders(there_and_back, 10);
}

static void test_an_event_has_not_passed_before_its_stream(void **)
{
    struct scene s = scene_new();
    bool passed = true;

    shim_set_seed(1); /* only what is waited for runs */
    queue_fill(&s, s.first, 1);
    assert_int_equal(be->event_record(s.dev, s.event, s.first, NULL), ZT_OK);
    assert_int_equal(be->event_passed(s.dev, s.event, &passed, NULL), ZT_OK);
    assert_false(passed);
    queue_double(&s, NULL); /* no launch hears of "not ready" */
    assert_int_equal(be->sync(s.dev, s.first, NULL), ZT_OK);
    assert_int_equal(be->event_passed(s.dev, s.event, &passed, NULL), ZT_OK);
    assert_true(passed);
    scene_end(&s);
    shim_set_seed(0);
}

/* The seen value of a copy on one stream of what another one uploads. */
static float upload_then_copy(bool with_wait)
{
    struct scene s = scene_new();
    void *p = NULL, *host = NULL;
    float seen;

    assert_int_equal(be->alloc(s.dev, 2 * sizeof(float), &p, NULL), ZT_OK);
    assert_int_equal(be->host_alloc(s.dev, 2 * sizeof(float), &host, NULL), ZT_OK);
    float *there = (float *)p, *here = (float *)host;
    here[0] = 7;
    assert_int_equal(be->upload(s.dev, s.first, there, here, sizeof(float), NULL), ZT_OK);
    assert_int_equal(be->event_record(s.dev, s.event, s.first, NULL), ZT_OK);
    if (with_wait)
        assert_int_equal(be->event_wait(s.dev, s.event, s.second, NULL), ZT_OK);
    assert_int_equal(be->copy(s.dev, s.second, there + 1, there, sizeof(float), NULL),
                     ZT_OK);
    assert_int_equal(
        be->download(s.dev, s.second, here + 1, there + 1, sizeof(float), NULL), ZT_OK);
    assert_int_equal(be->sync(s.dev, s.second, NULL), ZT_OK);
    seen = here[1];
    assert_int_equal(be->sync(s.dev, s.first, NULL), ZT_OK);
    be->host_free(s.dev, host, 2 * sizeof(float));
    be->free(s.dev, p, 2 * sizeof(float));
    scene_end(&s);
    return seen;
}

static void test_transfers_keep_the_order_of_events(void **)
{
    check_orders(upload_then_copy, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_event_orders_two_streams_and_its_absence_shows),
        cmocka_unit_test(test_an_event_recorded_again_is_a_new_point),
        cmocka_unit_test(test_an_event_has_not_passed_before_its_stream),
        cmocka_unit_test(test_transfers_keep_the_order_of_events),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
