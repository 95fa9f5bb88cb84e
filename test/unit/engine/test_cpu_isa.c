/* Ranks on processors use the instructions that all of them have. */
#include "test/unit/comm/ranks.h"

#include "common/log.h"
#include "kernels/cpu/features.h"
#include "worker/engine/cpu_isa.h"

/* Processors as ranks may have them. */
#define INTEL (ZT_CPU_AVX2 | ZT_CPU_AVX512 | ZT_CPU_AVX512_BF16)
#define AMD   (INTEL | ZT_CPU_FAST_DOT | ZT_CPU_FAST_BF16)
#define AMX   (INTEL | ZT_CPU_AMX_BF16 | ZT_CPU_FAST_BF16)

static unsigned features[MAX_RANKS], expected;
static const char *sentence; /* in what rank 0 logs; NULL: ranks do not differ */
static char logged[4096];

static bool keep_line(const char *line, size_t n)
{
    size_t at = strlen(logged);

    snprintf(logged + at, sizeof(logged) - at, "%.*s\n", (int)n, line);
    return true;
}

static void agree_rank(struct zt_comm *c)
{
    unsigned before = features[my_rank];

    zt_log_init(ZT_LOG_INFO, true, "test");
    zt_log_set_sink(keep_line);
    if (before != ZT_CPU_ANY_FEATURES)
        zt_cpu_set_features(before);
    DO(zt_cpu_isa_agree(c, before, &fault));
    CHECK(before == ZT_CPU_ANY_FEATURES || zt_cpu_features() == expected);
    if (my_rank) {
        CHECK(!*logged);
    } else {
        CHECK(!sentence == !strstr(logged, "\"warning\""));
        CHECK(!sentence || strstr(logged, sentence));
    }
}

static void ranks_use(int world, unsigned all)
{
    expected = all;
    run_ranks(world, agree_rank);
}

static void test_equal_ranks_keep_what_they_have(void **state)
{
    static const unsigned kinds[] = {INTEL, AMD, AMX};

    (void)state;
    sentence = NULL;
    for (int k = 0; k < 3; k++) {
        for (int r = 0; r < 3; r++)
            features[r] = kinds[k];
        ranks_use(1, kinds[k]);
        ranks_use(3, kinds[k]);
    }
}

static void test_the_lowest_level_is_that_of_all_and_its_rank_is_named(void **state)
{
    (void)state;
    features[0] = features[1] = features[3] = AMX;
    features[2] = AMD;
    sentence = "all use avx512_bf16, the highest level of rank 2 (host ";
    ranks_use(4, INTEL);
    sentence = "); rank 0 (host ";
    ranks_use(4, INTEL);
    features[0] = INTEL;
    sentence = "all use avx512_bf16, the highest level of rank 0 (host ";
    ranks_use(2, INTEL);
}

static void test_processors_of_one_level_multiply_alike(void **state)
{
    (void)state;
    features[0] = AMD;
    features[1] = INTEL;
    sentence = "all ranks multiply fp32";
    ranks_use(2, INTEL);
}

static void test_a_rank_with_a_gpu_limits_nobody(void **state)
{
    (void)state;
    features[0] = AMX;
    features[1] = ZT_CPU_ANY_FEATURES;
    sentence = NULL;
    ranks_use(2, AMX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_ranks_keep_what_they_have),
        cmocka_unit_test(test_the_lowest_level_is_that_of_all_and_its_rank_is_named),
        cmocka_unit_test(test_processors_of_one_level_multiply_alike),
        cmocka_unit_test(test_a_rank_with_a_gpu_limits_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
