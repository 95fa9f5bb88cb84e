/* Attention of one query a row over cached keys, against sums in double. */
#include "test/unit/kernels/ref.h"

struct problem {
    int64_t rows, room, heads, kv_heads, dim, window;
    int64_t bias_rows, bias_heads; /* 0: no bias */
    bool appends;
    struct arr q, k, v, k_new, v_new, lengths, bias, out;
    struct zt_attention_decode_args a;
};

static struct arr of_heads(const struct problem *p, zt_dtype t, int64_t tokens,
                           int64_t heads)
{
    return arr_new(t, 4, (int64_t[]){p->rows, tokens, heads, p->dim}, -2, 2);
}

static void open_problem(struct problem *p, zt_dtype t)
{
    p->q = of_heads(p, t, 1, p->heads);
    p->out = of_heads(p, t, 1, p->heads);
    p->k = of_heads(p, t, p->room, p->kv_heads);
    p->v = of_heads(p, t, p->room, p->kv_heads);
    p->k_new = of_heads(p, t, 1, p->kv_heads);
    p->v_new = of_heads(p, t, 1, p->kv_heads);
    p->lengths = arr_1(ZT_I32, p->rows, 0, (double)p->room);
    p->bias = arr_new(t, 4, (int64_t[]){p->bias_rows, p->bias_heads, 1, p->room}, -3, 3);
    p->a = (struct zt_attention_decode_args){.q = p->q.v,
                                             .k = p->k.v,
                                             .v = p->v.v,
                                             .lengths = p->lengths.v,
                                             .out = p->out.v,
                                             .scale = 0.3f,
                                             .window = p->window};
    if (p->appends) {
        p->a.k_new = p->k_new.v;
        p->a.v_new = p->v_new.v;
    }
    if (p->bias_rows)
        p->a.bias = p->bias.v;
}

static void close_problem(struct problem *p)
{
    struct arr *all[] = {&p->q,     &p->k,       &p->v,    &p->k_new,
                         &p->v_new, &p->lengths, &p->bias, &p->out};

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        arr_free(all[i]);
}

/* Element d of key j of row b, of keys or values. */
static double key(const struct problem *p, const struct arr *old, const struct arr *fresh,
                  int64_t b, int64_t j, int64_t kv, int64_t d)
{
    if (p->appends && j == (int64_t)p->lengths.d[b])
        return fresh->d[(b * p->kv_heads + kv) * p->dim + d];
    return old->d[((b * p->room + j) * p->kv_heads + kv) * p->dim + d];
}

static double score(const struct problem *p, int64_t b, int64_t h, int64_t j)
{
    int64_t kv = h / (p->heads / p->kv_heads);
    double s = 0;

    for (int64_t d = 0; d < p->dim; d++)
        s += p->q.d[(b * p->heads + h) * p->dim + d] *
             key(p, &p->k, &p->k_new, b, j, kv, d);
    s *= (double)p->a.scale;
    if (p->bias_rows)
        s += p->bias.d[((p->bias_rows == 1 ? 0 : b) * p->bias_heads +
                        (p->bias_heads == 1 ? 0 : h)) *
                           p->room +
                       j];
    return s;
}

static void check_row(struct problem *p, int64_t b, int64_t h)
{
    int64_t n = (int64_t)p->lengths.d[b] + p->appends, kv = h / (p->heads / p->kv_heads);
    int64_t lo = p->window && n > p->window ? n - p->window : 0;
    double sum = 0, most = -1e300;

    for (int64_t j = lo; j < n; j++)
        most = fmax(most, score(p, b, h, j));
    for (int64_t j = lo; j < n; j++)
        sum += exp(score(p, b, h, j) - most);
    for (int64_t d = 0; d < p->dim; d++) {
        double want = 0;

        for (int64_t j = lo; j < n; j++)
            want += exp(score(p, b, h, j) - most) / sum *
                    key(p, &p->v, &p->v_new, b, j, kv, d);
        ref_close("out", &p->out.v, (b * p->heads + h) * p->dim + d, want, 1e-5);
    }
}

/* What was appended is in its place, and nothing else has changed. */
static void check_cache(struct problem *p, const struct arr *cache,
                        const struct arr *fresh)
{
    int64_t row = p->kv_heads * p->dim;

    for (int64_t i = 0; i < cache->n; i++) {
        int64_t b = i / (p->room * row), j = i / row % p->room, at = i % row;
        double want = cache->d[i];

        if (p->appends && j == (int64_t)p->lengths.d[b])
            want = fresh->d[b * row + at];
        assert_true(ref_get(&cache->v, i) == want);
    }
}

static void run_problem(struct zt_device *dev, struct problem p, zt_dtype t)
{
    open_problem(&p, t);
    ref_put(&p.lengths, 0, 0); /* one row has nothing, one all that there is room for */
    ref_put(&p.lengths, p.rows - 1, (double)(p.room - p.appends));
    REF_RUN(dev, attention_decode, &p.a);
    for (int64_t b = 0; b < p.rows; b++)
        for (int64_t h = 0; h < p.heads; h++)
            check_row(&p, b, h);
    check_cache(&p, &p.k, &p.k_new);
    check_cache(&p, &p.v, &p.v_new);
    close_problem(&p);
}

static void test_decode_is_the_reference(void **state)
{
    static const struct problem shapes[] = {
        {.rows = 3, .room = 21, .heads = 4, .kv_heads = 4, .dim = 64, .appends = true},
        {.rows = 4, .room = 9, .heads = 6, .kv_heads = 2, .dim = 20, .appends = true},
        {.rows = 2,
         .room = 40,
         .heads = 4,
         .kv_heads = 1,
         .dim = 7,
         .window = 5,
         .appends = true},
        {.rows = 3, .room = 70, .heads = 2, .kv_heads = 2, .dim = 128},
        {.rows = 2,
         .room = 17,
         .heads = 3,
         .kv_heads = 3,
         .dim = 16,
         .bias_rows = 1,
         .bias_heads = 3,
         .appends = true},
        {.rows = 3,
         .room = 33,
         .heads = 2,
         .kv_heads = 1,
         .dim = 33,
         .bias_rows = 3,
         .bias_heads = 1,
         .window = 9},
    };
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        for (int t = 0; t < 3; t++)
            run_problem(dev, shapes[i], ref_floats[t]);
    zt_cpu_backend.close(dev);
}

static void test_a_row_has_the_same_bits_whatever_stands_beside_it(void **state)
{
    struct problem p = {.rows = 3, .room = 50, .heads = 4, .kv_heads = 2, .dim = 24};
    struct zt_device *dev = ref_open(2);
    float together[4 * 24];

    (void)state;
    open_problem(&p, ZT_F32);
    ref_put(&p.lengths, 1, 11);
    REF_RUN(dev, attention_decode, &p.a);
    memcpy(together, (float *)p.out.v.data + 4 * 24, sizeof(together));

    /* the second row alone, in a cache with room for its own keys alone */
    p.a.q.data = (float *)p.q.v.data + 4 * 24;
    p.a.k.data = (float *)p.k.v.data + 50 * 2 * 24;
    p.a.v.data = (float *)p.v.v.data + 50 * 2 * 24;
    p.a.lengths.data = (int32_t *)p.lengths.v.data + 1;
    p.a.q.shape[0] = p.a.k.shape[0] = p.a.v.shape[0] = p.a.out.shape[0] = 1;
    p.a.lengths.shape[0] = 1;
    p.a.k.shape[1] = p.a.v.shape[1] = 11;
    REF_RUN(dev, attention_decode, &p.a);
    assert_memory_equal(p.out.v.data, together, sizeof(together));
    close_problem(&p);
    zt_cpu_backend.close(dev);
}

static void test_wrong_shapes_are_refused(void **state)
{
    struct problem p = {
        .rows = 2, .room = 5, .heads = 4, .kv_heads = 2, .dim = 8, .appends = true};
    struct zt_device *dev = ref_open(1);
    struct zt_attention_decode_args a;
    struct zt_fault fault = {0};

    (void)state;
    open_problem(&p, ZT_F32);
    a = p.a;
    a.q.shape[1] = 2;
    assert_int_equal(REF_KERNELS.attention_decode(dev, NULL, &a, &fault), ZT_E_ARG);
    a = p.a;
    a.v_new.data = NULL;
    assert_int_equal(REF_KERNELS.attention_decode(dev, NULL, &a, &fault), ZT_E_ARG);
    assert_non_null(strstr(fault.text, "k_new and v_new"));
    a = p.a;
    a.k.shape[2] = a.v.shape[2] = 3;
    assert_int_equal(REF_KERNELS.attention_decode(dev, NULL, &a, &fault), ZT_E_ARG);
    a = p.a;
    a.window = -1;
    assert_int_equal(REF_KERNELS.attention_decode(dev, NULL, &a, &fault), ZT_E_ARG);
    close_problem(&p);
    zt_cpu_backend.close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode_is_the_reference),
        cmocka_unit_test(test_a_row_has_the_same_bits_whatever_stands_beside_it),
        cmocka_unit_test(test_wrong_shapes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
