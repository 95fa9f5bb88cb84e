/* The rules for logits against what they say, word for word, on many small texts. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "worker/generate/logits.h"

enum { VOCAB = 5, MOST = 12 };

static uint64_t state = 7;

static int below(int n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)n);
}

static void draw(int32_t ids[MOST], float logits[VOCAB])
{
    for (int i = 0; i < MOST; i++)
        ids[i] = below(VOCAB);
    for (int i = 0; i < VOCAB; i++)
        logits[i] = (float)(below(2001) - 1000) / 100;
}

/* Whether `id` behind the text would end a run of `size` tokens that stands in it. */
static bool repeats(const int32_t *ids, int n, int size, int32_t id)
{
    int32_t run[MOST + 1];

    if (n + 1 < size)
        return false;
    memcpy(run, ids + n + 1 - size, (size_t)(size - 1) * sizeof(*run));
    run[size - 1] = id;
    for (int i = 0; i + size <= n; i++)
        if (memcmp(ids + i, run, (size_t)size * sizeof(*run)) == 0)
            return true;
    return false;
}

static void test_no_run_comes_again(void **unused)
{
    float logits[VOCAB], was[VOCAB], scratch[MOST];
    int32_t ids[MOST];

    (void)unused;
    for (int round = 0; round < 2000; round++) {
        int n = 1 + below(MOST), size = 1 + below(4);
        struct zt_logits_rules rules = {.repetition_penalty = 1,
                                        .no_repeat_ngram_size = size};

        draw(ids, logits);
        memcpy(was, logits, sizeof(was));
        zt_logits_apply(&rules, ids, n, 1, logits, VOCAB, scratch);
        for (int32_t id = 0; id < VOCAB; id++)
            assert_true(logits[id] == (repeats(ids, n, size, id) ? -INFINITY : was[id]));
    }
}

static void test_a_token_is_penalised_once(void **unused)
{
    struct zt_logits_rules rules = {.repetition_penalty = 1.5};
    float logits[VOCAB], was[VOCAB], scratch[MOST];
    int32_t ids[MOST];

    (void)unused;
    for (int round = 0; round < 2000; round++) {
        int n = 1 + below(MOST);

        draw(ids, logits);
        memcpy(was, logits, sizeof(was));
        zt_logits_apply(&rules, ids, n, n, logits, VOCAB, scratch);
        for (int32_t id = 0; id < VOCAB; id++) {
            bool there = false;

            for (int i = 0; i < n; i++)
                there |= ids[i] == id;
            if (!there)
                assert_true(logits[id] == was[id]);
            else
                assert_true(logits[id] ==
                            (was[id] < 0 ? was[id] * 1.5f : was[id] / 1.5f));
        }
    }
}

static void test_no_text_ends_before_its_least_length(void **unused)
{
    const int32_t ends[] = {1, 4, 77}; /* one is no token of this vocabulary */
    struct zt_logits_rules rules = {
        .repetition_penalty = 1, .min_new_tokens = 3, .ends = ends, .num_ends = 3};
    float scratch[MOST];
    int32_t ids[MOST] = {0};

    (void)unused;
    for (int added = 0; added < 5; added++) {
        float logits[VOCAB] = {1, 2, 3, 4, 5};

        zt_logits_apply(&rules, ids, 4 + added, 4, logits, VOCAB, scratch);
        for (int id = 0; id < VOCAB; id++)
            assert_true((logits[id] == -INFINITY) ==
                        (added < 3 && zt_logits_is_end(&rules, id)));
    }
    assert_true(zt_logits_is_end(&rules, 77));
    assert_false(zt_logits_is_end(&rules, 0));
}

/* Behind one token, and as the last of max_new_tokens; in between any. */
static void test_tokens_are_forced(void **unused)
{
    const int32_t first[] = {3}, last[] = {1, 4};
    struct zt_logits_rules rules = {.repetition_penalty = 1,
                                    .forced_first = first,
                                    .num_forced_first = 1,
                                    .forced_last = last,
                                    .num_forced_last = 2,
                                    .max_new_tokens = 5};
    float scratch[MOST];
    int32_t ids[MOST] = {0};

    (void)unused;
    for (int n = 1; n <= 6; n++)
        for (int num_prompt = 1; num_prompt <= n; num_prompt++) {
            float logits[VOCAB] = {1, 2, 3, 4, 5};
            bool ends = n - num_prompt == 4;

            zt_logits_apply(&rules, ids, n, num_prompt, logits, VOCAB, scratch);
            for (int id = 0; id < VOCAB; id++)
                if (ends)
                    assert_true(logits[id] == (id == 1 || id == 4 ? 0 : -INFINITY));
                else if (n == 1)
                    assert_true(logits[id] == (id == 3 ? 0 : -INFINITY));
                else
                    assert_true(logits[id] == (float)(id + 1));
        }
}

static void test_logarithms_of_probabilities(void **unused)
{
    float logits[VOCAB] = {1, -INFINITY, 88, 3, 87}, all[2] = {-INFINITY, -INFINITY};
    double sum = 0;

    (void)unused;
    zt_logits_normalize(logits, VOCAB);
    for (int i = 0; i < VOCAB; i++)
        sum += exp((double)logits[i]);
    assert_true(fabs(sum - 1) < 1e-6);
    assert_true(fabsf(logits[2] - logits[4] - 1) < 1e-6f);
    assert_true(logits[1] == -INFINITY);
    zt_logits_normalize(all, 2);
    assert_true(all[0] == -INFINITY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_run_comes_again),
        cmocka_unit_test(test_a_token_is_penalised_once),
        cmocka_unit_test(test_no_text_ends_before_its_least_length),
        cmocka_unit_test(test_tokens_are_forced),
        cmocka_unit_test(test_logarithms_of_probabilities),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
