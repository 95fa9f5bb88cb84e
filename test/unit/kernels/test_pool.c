#include "test/unit/kernels/ref.h"

#include "kernels/pool.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#define BASE ((char *)((uintptr_t)1 << 46)) /* made up: the pool must not touch it */
#define UNIT ZT_POOL_ALIGN

static struct zt_pool *open_pool(size_t bytes)
{
    struct zt_pool *p = NULL;

    assert_int_equal(zt_pool_open(BASE, bytes, &p, NULL), ZT_OK);
    return p;
}

static size_t take(struct zt_pool *p, size_t bytes)
{
    void *at = NULL;

    assert_int_equal(zt_pool_alloc(p, bytes, &at, NULL), ZT_OK);
    return (size_t)((char *)at - BASE);
}

static void give(struct zt_pool *p, size_t off)
{
    zt_pool_free(p, BASE + off);
}

static void test_alloc_takes_the_smallest_hole_that_fits(void **state)
{
    struct zt_pool *p = open_pool(20 * UNIT);
    size_t a = take(p, 4 * UNIT), b = take(p, 1), c = take(p, 2 * UNIT), d = take(p, 1);

    (void)state;
    give(p, a);
    give(p, c);
    assert_int_equal(take(p, 2 * UNIT), c);
    assert_int_equal(take(p, UNIT), a);
    give(p, b);
    give(p, d);
    zt_pool_close(p);
}

static void test_equal_holes_go_lowest_first(void **state)
{
    struct zt_pool *p = open_pool(6 * UNIT);
    size_t off[6];

    (void)state;
    for (int i = 0; i < 6; i++)
        off[i] = take(p, UNIT);
    give(p, off[4]);
    give(p, off[0]);
    give(p, off[2]);
    assert_int_equal(take(p, 1), off[0]);
    assert_int_equal(take(p, 1), off[2]);
    zt_pool_close(p);
}

static void test_free_merges_both_neighbours(void **state)
{
    struct zt_pool *p = open_pool(3 * UNIT);
    size_t a = take(p, UNIT), b = take(p, UNIT), c = take(p, UNIT);

    (void)state;
    give(p, a);
    give(p, c);
    give(p, b);
    assert_int_equal(take(p, 3 * UNIT), 0);
    zt_pool_close(p);
}

static void test_sizes_round_up_and_zero_has_an_address(void **state)
{
    struct zt_pool *p = open_pool(4 * UNIT);
    size_t a = take(p, 0), b = take(p, UNIT + 1);

    (void)state;
    assert_int_not_equal(a, b);
    assert_int_equal(zt_pool_used(p), 3 * UNIT);
    zt_pool_close(p);
}

static void test_full_pool_says_so_and_changes_nothing(void **state)
{
    struct zt_pool *p = open_pool(4 * UNIT + 63);
    struct zt_fault fault = {0};
    void *at = p;

    (void)state;
    (void)take(p, 3 * UNIT);
    assert_int_equal(zt_pool_alloc(p, 2 * UNIT, &at, &fault), ZT_E_NOMEM);
    assert_null(at);
    assert_string_equal(fault.text, "pool: 128 bytes do not fit: 192 of 256 are in use");
    assert_int_equal(zt_pool_alloc(p, SIZE_MAX, &at, &fault), ZT_E_NOMEM);
    assert_int_equal(zt_pool_used(p), 3 * UNIT);
    assert_int_equal(take(p, UNIT), 3 * UNIT);
    zt_pool_close(p);
}

static void test_open_refuses_a_crooked_base(void **state)
{
    struct zt_pool *p;
    struct zt_fault fault = {0};

    (void)state;
    assert_int_equal(zt_pool_open(BASE + 1, 4096, &p, &fault), ZT_E_ARG);
    assert_int_equal(zt_pool_open(NULL, 4096, &p, &fault), ZT_E_ARG);
    assert_null(p);
    zt_pool_close(NULL);
}

static void test_peak_is_the_highest_end_since_reset(void **state)
{
    struct zt_pool *p = open_pool(100 * UNIT);
    size_t a = take(p, 10 * UNIT), b = take(p, 20 * UNIT), c = take(p, 5 * UNIT);

    (void)state;
    assert_int_equal(zt_pool_peak(p), 35 * UNIT);
    give(p, b);
    give(p, c);
    assert_int_equal(zt_pool_peak(p), 35 * UNIT);
    zt_pool_reset_peak(p);
    assert_int_equal(zt_pool_peak(p), 10 * UNIT);
    b = take(p, UNIT);
    assert_int_equal(zt_pool_peak(p), 11 * UNIT);
    give(p, a);
    zt_pool_reset_peak(p);
    assert_int_equal(zt_pool_peak(p), 11 * UNIT);
    give(p, b);
    zt_pool_reset_peak(p);
    assert_int_equal(zt_pool_peak(p), 0);
    zt_pool_close(p);
}

/* ---- against a map of units that is scanned from the start each time ---- */

#define MODEL_UNITS 600
#define MODEL_LIVE  200

struct model {
    bool taken[MODEL_UNITS];
    size_t at[MODEL_LIVE], len[MODEL_LIVE];
    int live;
};

/* Start of the smallest run that fits, the last one if need be; MODEL_UNITS: none. */
static size_t model_find(const struct model *m, size_t len)
{
    size_t best = MODEL_UNITS, best_len = MODEL_UNITS + 1;

    for (size_t i = 0; i < MODEL_UNITS;) {
        size_t j = i;

        while (j < MODEL_UNITS && !m->taken[j])
            j++;
        if (j - i >= len && j - i < best_len &&
            (j < MODEL_UNITS || best == MODEL_UNITS)) {
            best = i;
            best_len = j - i;
        }
        i = j == i ? i + 1 : j;
    }
    return best;
}

static size_t model_used(const struct model *m)
{
    size_t n = 0;

    for (int i = 0; i < MODEL_UNITS; i++)
        n += m->taken[i];
    return n;
}

static void model_step(struct model *m, struct zt_pool *p)
{
    if (m->live < MODEL_LIVE && (m->live == 0 || ref_below(100) < 55)) {
        size_t len = 1 + (size_t)ref_below(ref_below(4) ? 4 : 60);
        size_t want = model_find(m, len);
        void *got = NULL;
        zt_err rc = zt_pool_alloc(p, len * UNIT - (size_t)ref_below(UNIT), &got, NULL);

        if (want == MODEL_UNITS) {
            assert_int_equal(rc, ZT_E_NOMEM);
            return;
        }
        assert_int_equal(rc, ZT_OK);
        assert_ptr_equal(got, BASE + want * UNIT);
        memset(m->taken + want, true, len);
        m->at[m->live] = want;
        m->len[m->live++] = len;
    } else {
        int i = (int)ref_below(m->live);

        give(p, m->at[i] * UNIT);
        memset(m->taken + m->at[i], false, m->len[i]);
        m->live--;
        m->at[i] = m->at[m->live];
        m->len[i] = m->len[m->live];
    }
    assert_int_equal(zt_pool_used(p), model_used(m) * UNIT);
}

static void test_random_sequences_do_as_the_obvious_model(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct zt_pool *p = open_pool(MODEL_UNITS * UNIT);
        struct model m = {0};

        for (int i = 0; i < 3000; i++)
            model_step(&m, p);
        while (m.live > 0) {
            m.live--;
            give(p, m.at[m.live] * UNIT);
        }
        assert_int_equal(take(p, MODEL_UNITS * UNIT), 0);
        zt_pool_close(p);
    }
}

/* One sequence of calls; what it is given goes to `offsets`. */
static void play(struct zt_pool *p, uint64_t seed, size_t *offsets, int n)
{
    size_t live[100];
    int num_live = 0;

    for (int i = 0; i < n; i++) {
        uint64_t r = seed = seed * 6364136223846793005u + 1442695040888963407u;

        offsets[i] = SIZE_MAX;
        if (num_live == 100 || (num_live > 0 && r >> 63)) {
            size_t k = (size_t)(r >> 33) % (size_t)num_live;

            give(p, live[k]);
            live[k] = live[--num_live];
        } else {
            offsets[i] = take(p, 1 + (size_t)(r >> 40) % (7 * UNIT));
            live[num_live++] = offsets[i];
        }
    }
}

static void test_a_region_of_the_peak_gives_the_offsets_of_an_endless_one(void **state)
{
    enum { N = 400 };
    size_t planned[N], real[N];

    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct zt_pool *p = open_pool((size_t)1 << 40);
        size_t peak;

        play(p, seed, planned, N);
        peak = zt_pool_peak(p);
        zt_pool_close(p);
        p = open_pool(peak);
        play(p, seed, real, N);
        assert_memory_equal(planned, real, sizeof(real));
        zt_pool_close(p);
    }
}

static void test_thousands_of_live_allocations_keep_their_places(void **state)
{
    enum { N = 5000 };
    struct zt_pool *p = open_pool((size_t)N * UNIT);

    (void)state;
    for (size_t i = 0; i < N; i++)
        assert_int_equal(take(p, 1), i * UNIT);
    for (size_t i = 0; i < N; i += 2)
        give(p, i * UNIT);
    for (size_t i = 0; i < N; i += 2)
        assert_int_equal(take(p, 1), i * UNIT);
    assert_int_equal(zt_pool_used(p), (size_t)N * UNIT);
    zt_pool_close(p);
}

static void test_freed_memory_is_out_of_bounds_under_asan(void **state)
{
#if defined(__SANITIZE_ADDRESS__)
    char *mem = aligned_alloc(UNIT, 16 * UNIT);
    struct zt_pool *p = NULL;
    void *a = NULL;

    (void)state;
    assert_int_equal(zt_pool_open(mem, 16 * UNIT, &p, NULL), ZT_OK);
    assert_true(__asan_address_is_poisoned(mem));
    assert_int_equal(zt_pool_alloc(p, 100, &a, NULL), ZT_OK);
    assert_false(__asan_address_is_poisoned((char *)a + 99));
    assert_true(__asan_address_is_poisoned((char *)a + 104));
    zt_pool_free(p, a);
    assert_true(__asan_address_is_poisoned(a));
    zt_pool_close(p);
    assert_false(__asan_address_is_poisoned(mem));
    free(mem);
#else
    (void)state;
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc_takes_the_smallest_hole_that_fits),
        cmocka_unit_test(test_equal_holes_go_lowest_first),
        cmocka_unit_test(test_free_merges_both_neighbours),
        cmocka_unit_test(test_sizes_round_up_and_zero_has_an_address),
        cmocka_unit_test(test_full_pool_says_so_and_changes_nothing),
        cmocka_unit_test(test_open_refuses_a_crooked_base),
        cmocka_unit_test(test_peak_is_the_highest_end_since_reset),
        cmocka_unit_test(test_random_sequences_do_as_the_obvious_model),
        cmocka_unit_test(test_a_region_of_the_peak_gives_the_offsets_of_an_endless_one),
        cmocka_unit_test(test_thousands_of_live_allocations_keep_their_places),
        cmocka_unit_test(test_freed_memory_is_out_of_bounds_under_asan),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
