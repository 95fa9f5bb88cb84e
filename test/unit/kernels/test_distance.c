#include "test/unit/kernels/ref.h"

struct problem {
    int64_t B, H, Tq, Tk, R;
    zt_dtype in, out;
    bool by_query, by_key;
    float scale;
    struct arr query, key, bucket, first, y;
};

/* Both terms of one type. */
static struct problem both(int64_t B, int64_t H, int64_t Tq, int64_t Tk, int64_t R,
                           zt_dtype dtype, float scale)
{
    return (struct problem){.B = B,
                            .H = H,
                            .Tq = Tq,
                            .Tk = Tk,
                            .R = R,
                            .in = dtype,
                            .out = dtype,
                            .by_query = true,
                            .by_key = true,
                            .scale = scale};
}

/* R buckets of random widths, some of them empty, over all distances. */
static void make_buckets(struct problem *p)
{
    int64_t n = p->Tq + p->Tk - 1, at = 0;

    p->bucket = arr_1(ZT_I32, n, 0, 1);
    p->first = arr_1(ZT_I32, p->R + 1, 0, 1);
    for (int64_t i = 0, u = 0; i < n; i++) {
        while (u < p->R - 1 && ref_below(n) < p->R)
            u++;
        ref_put(&p->bucket, i, (double)u);
    }
    for (int64_t u = 0; u <= p->R; u++) {
        while (at < n && (int64_t)p->bucket.d[at] < u)
            at++;
        ref_put(&p->first, u, (double)at);
    }
}

static void open_problem(struct problem *p)
{
    make_buckets(p);
    p->query = arr_new(p->in, 4, (int64_t[]){p->H, p->B, p->Tq, p->R}, -2, 2);
    p->key = arr_new(p->in, 4, (int64_t[]){p->H, p->B, p->Tk, p->R}, -2, 2);
    p->y = arr_new(p->out, 4, (int64_t[]){p->B, p->H, p->Tq, p->Tk}, -1, 1);
}

static void close_problem(struct problem *p)
{
    arr_free(&p->query);
    arr_free(&p->key);
    arr_free(&p->bucket);
    arr_free(&p->first);
    arr_free(&p->y);
}

static int64_t bucket_of(const struct problem *p, int64_t i, int64_t j)
{
    return (int64_t)p->bucket.d[i - j + p->Tk - 1];
}

static int64_t at_query(const struct problem *p, int64_t b, int64_t h, int64_t i,
                        int64_t u)
{
    return ((h * p->B + b) * p->Tq + i) * p->R + u;
}

static int64_t at_key(const struct problem *p, int64_t b, int64_t h, int64_t j, int64_t u)
{
    return ((h * p->B + b) * p->Tk + j) * p->R + u;
}

static int64_t at_score(const struct problem *p, int64_t b, int64_t h, int64_t i,
                        int64_t j)
{
    return ((b * p->H + h) * p->Tq + i) * p->Tk + j;
}

#define EACH_PAIR(p)                                                                     \
    for (int64_t b = 0; b < (p)->B; b++)                                                 \
        for (int64_t h = 0; h < (p)->H; h++)                                             \
            for (int64_t i = 0; i < (p)->Tq; i++)                                        \
                for (int64_t j = 0; j < (p)->Tk; j++)

static void check_scores(struct zt_device *dev, struct problem *p)
{
    struct zt_distance_args a = {.bucket = p->bucket.v, .y = p->y.v, .scale = p->scale};

    if (p->by_query)
        a.by_query = p->query.v;
    if (p->by_key)
        a.by_key = p->key.v;
    REF_RUN(dev, distance, &a);
    EACH_PAIR(p)
    {
        int64_t u = bucket_of(p, i, j);
        double want = (p->by_query ? p->query.d[at_query(p, b, h, i, u)] : 0) +
                      (p->by_key ? p->key.d[at_key(p, b, h, j, u)] : 0);

        ref_close("y", &p->y.v, at_score(p, b, h, i, j), want * (double)p->scale, 1e-6);
    }
}

/* y holds dy */
static void check_gradients(struct zt_device *dev, struct problem *p, bool accumulate)
{
    struct arr dq = arr_copy(&p->query), dk = arr_copy(&p->key);
    struct zt_distance_bwd_args a = {.dy = p->y.v,
                                     .first = p->first.v,
                                     .scale = p->scale,
                                     .accumulate_query = accumulate,
                                     .accumulate_key = accumulate};
    double slack = 3e-8 * (double)(p->Tq + p->Tk) + 1e-6; /* of a sum in fp32 */
    double *q = calloc((size_t)dq.n, sizeof(*q)), *k = calloc((size_t)dk.n, sizeof(*k));

    arr_restore(&p->y);
    if (p->by_query)
        a.dby_query = dq.v;
    if (p->by_key)
        a.dby_key = dk.v;
    EACH_PAIR(p)
    {
        int64_t u = bucket_of(p, i, j);
        double dy = p->y.d[at_score(p, b, h, i, j)] * (double)p->scale;

        q[at_query(p, b, h, i, u)] += dy;
        k[at_key(p, b, h, j, u)] += dy;
    }
    REF_RUN(dev, distance_bwd, &a);
    for (int64_t i = 0; i < dq.n; i++)
        ref_close("dby_query", &dq.v, i,
                  p->by_query ? q[i] + (accumulate ? dq.d[i] : 0) : dq.d[i], slack);
    for (int64_t i = 0; i < dk.n; i++)
        ref_close("dby_key", &dk.v, i,
                  p->by_key ? k[i] + (accumulate ? dk.d[i] : 0) : dk.d[i], slack);
    free(q);
    free(k);
    arr_free(&dq);
    arr_free(&dk);
}

static void check_problem(struct problem p)
{
    struct zt_device *dev = ref_open(1 + (int)ref_below(3));

    open_problem(&p);
    check_scores(dev, &p);
    check_gradients(dev, &p, false);
    check_gradients(dev, &p, true);
    close_problem(&p);
    zt_cpu_backend.close(dev);
}

static void test_scores_and_gradients_of_every_type_and_term(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            for (int terms = 1; terms < 4; terms++)
                check_problem((struct problem){.B = 2,
                                               .H = 3,
                                               .Tq = 7,
                                               .Tk = i == j ? 7 : 11,
                                               .R = 6,
                                               .in = ref_floats[i],
                                               .out = ref_floats[j],
                                               .by_query = terms & 1,
                                               .by_key = terms & 2,
                                               .scale = 0.37f});
}

static void test_one_token_and_rows_longer_than_a_tile(void **state)
{
    (void)state;
    check_problem(both(1, 2, 1, 1, 1, ZT_F32, 1));
    check_problem(both(1, 1, 3, 2049, 1100, ZT_F32, 0.5f));
    check_problem(both(1, 2, 1030, 5, 1034, ZT_BF16, 2));
}

/* A long row of gradients: the sum is in order, whatever the threads. */
static void test_gradients_are_sums_in_order(void **state)
{
    struct problem p = both(1, 1, 1, 3000, 1, ZT_F32, 1);
    float want = 0;

    (void)state;
    open_problem(&p);
    for (int64_t j = 0; j < 3000; j++)
        want += (float)p.y.d[j];
    for (int threads = 1; threads <= 3; threads++) {
        struct zt_device *dev = ref_open(threads);
        struct zt_distance_bwd_args a = {
            .dy = p.y.v, .first = p.first.v, .dby_query = p.query.v, .scale = 1};

        REF_RUN(dev, distance_bwd, &a);
        assert_memory_equal(p.query.v.data, &want, sizeof(want));
        zt_cpu_backend.close(dev);
    }
    close_problem(&p);
}

static void test_operands_that_do_not_go_together_are_named(void **state)
{
    struct problem p = both(2, 3, 4, 5, 6, ZT_F32, 1);
    struct zt_device *dev = ref_open(1);

    (void)state;
    open_problem(&p);
    struct zt_distance_args a = {p.query.v, p.key.v, p.bucket.v, p.y.v, 1};
    struct zt_distance_bwd_args back = {.dy = p.y.v, .first = p.bucket.v, .scale = 1};

    a.by_query = a.by_key = (struct zt_view){0};
    REF_REFUSES(dev, distance, &a, "distance: neither queries nor keys are given");
    a.by_query = p.key.v;
    REF_REFUSES(
        dev, distance, &a,
        "distance: scores by query (2, 3, 4, 5) f32 but by_query (3, 2, 5, 6) f32");
    a.by_query = p.query.v;
    a.bucket = p.first.v;
    REF_REFUSES(dev, distance, &a, "distance: bucket (7) i32: want 8 numbers");
    back.dby_key = p.key.v;
    REF_REFUSES(dev, distance_bwd, &back, "distance_bwd: first (8) i32: want 7 numbers");
    close_problem(&p);
    zt_cpu_backend.close(dev);
}

static void test_buckets_that_fall_are_refused_on_cpu(void **state)
{
    struct problem p = both(1, 1, 2, 2, 3, ZT_F32, 1);
    struct zt_device *dev;

    (void)state;
    if (strcmp(REF_BACKEND.name, "cpu") != 0)
        skip(); /* a device does not look: the op has checked them on the host */
    dev = ref_open(1);
    open_problem(&p);
    struct zt_distance_args a = {p.query.v, p.key.v, p.bucket.v, p.y.v, 1};

    for (int i = 0; i < 3; i++)
        ref_put(&p.bucket, i, i == 1 ? 2 : 1);
    REF_REFUSES(
        dev, distance, &a,
        "distance: bucket 1 at position 2 is outside [0, 3) or below the one before "
        "it");
    close_problem(&p);
    zt_cpu_backend.close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores_and_gradients_of_every_type_and_term),
        cmocka_unit_test(test_one_token_and_rows_longer_than_a_tile),
        cmocka_unit_test(test_gradients_are_sums_in_order),
        cmocka_unit_test(test_operands_that_do_not_go_together_are_named),
        cmocka_unit_test(test_buckets_that_fall_are_refused_on_cpu),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
