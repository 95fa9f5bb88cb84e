#include "test/unit/kernels/ref.h"

#include "kernels/cpu/philox_words.h"

/* From the test vectors published with Random123. */
static void test_philox_gives_the_published_answers(void **state)
{
    static const struct {
        uint32_t ctr[4], key[2], want[4];
    } row[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u},
         {~0u, ~0u},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    uint32_t got[4];

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        zt_philox4x32(row[i].ctr, row[i].key[0], row[i].key[1], got);
        assert_memory_equal(got, row[i].want, sizeof(got));
    }
}

static void test_element_is_word_of_its_counter(void **state)
{
    struct zt_philox rng = {0x299f31d0a4093822u, 0x0370734413198a2eu, 0};
    uint64_t block = 0x85a308d3243f6a88u;

    (void)state;
    rng.offset = block * 4; /* wraps: the counter is what is left */
    block = rng.offset / 4;
    for (uint64_t i = 0; i < 9; i++) {
        uint32_t four[4];

        zt_philox_block(rng, block + i / 4, four);
        assert_int_equal(zt_philox_u32(rng, i), four[i % 4]);
    }
    rng.offset = 0;
    uint32_t want[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}, got[4];
    zt_philox_block(rng, 0x85a308d3243f6a88u, got);
    assert_memory_equal(got, want, sizeof(got));
}

static void test_batch_equals_single_blocks_across_carry(void **state)
{
    struct zt_philox rng = {42, 0xfeedfacecafebeefu, 0};
    const uint64_t first[] = {0, 16, 0xfffffff8u, 0x7fffffff8u, ~(uint64_t)0 - 7};
    uint32_t batch[4 * ZT_PHILOX_BATCH], four[4];

    (void)state;
    for (size_t k = 0; k < sizeof(first) / sizeof(first[0]); k++) {
        zt_philox_batch(rng, first[k], batch);
        for (uint64_t j = 0; j < ZT_PHILOX_BATCH; j++) {
            zt_philox_block(rng, first[k] + j, four);
            assert_memory_equal(batch + 4 * j, four, sizeof(four));
        }
    }
}

static void test_runs_of_words_equal_single_elements(void **state)
{
    struct zt_philox rng = {0x0123456789abcdefu, 0xfeedfacecafebeefu, 0};
    const uint64_t first[] = {0, 64, 20, 0x3ffffffc0u, (uint64_t)0 - 128};
    uint32_t run[2 * ZT_PHILOX_WORDS_BATCH];

    (void)state;
    for (size_t k = 0; k < sizeof(first) / sizeof(first[0]); k++) {
        zt_philox_words(rng, first[k], 2 * ZT_PHILOX_WORDS_BATCH, run);
        for (uint64_t i = 0; i < 2 * ZT_PHILOX_WORDS_BATCH; i++)
            assert_int_equal(run[i], zt_philox_u32(rng, first[k] + i));
    }
}

static void test_unit_is_below_one(void **state)
{
    (void)state;
    assert_true(zt_philox_unit(0) == 0.0f);
    assert_true(zt_philox_unit(~0u) < 1.0f);
    assert_true(zt_philox_unit(~0u) > 0.9999999f);
}

static void test_drop_threshold_is_the_probability(void **state)
{
    (void)state;
    assert_int_equal(zt_philox_drop_below(0), 0);
    assert_int_equal(zt_philox_drop_below(0.5f), 0x80000000u);
    assert_int_equal(zt_philox_drop_below(0.25f), 0x40000000u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_gives_the_published_answers),
        cmocka_unit_test(test_element_is_word_of_its_counter),
        cmocka_unit_test(test_batch_equals_single_blocks_across_carry),
        cmocka_unit_test(test_runs_of_words_equal_single_elements),
        cmocka_unit_test(test_unit_is_below_one),
        cmocka_unit_test(test_drop_threshold_is_the_probability),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
