/* Entities that tags mark: the numbers of seqeval (test/golden/make_metrics.py). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "worker/tasks/spans.h"

static struct zt_fault fault;

static void near(double got, double to)
{
    if (!(fabs(got - to) < 1e-9))
        fail_msg("%.15g, not %.15g", got, to);
}

static int64_t next_random(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)(*seed >> 33);
}

static void test_tags_have_the_scores_of_seqeval(void **state)
{
    const char *const names[] = {"O",     "B-PER", "I-PER", "B-LOC",
                                 "I-LOC", "E-LOC", "S-LOC"};
    int32_t meant[50][20], predicted[50][20];
    struct zt_span_counts c = {0};
    struct zt_span_tags tags;
    uint64_t seed = 11;

    (void)state;
    assert_true(zt_tags_mark_spans(names, 7));
    assert_int_equal(zt_span_tags_open(&tags, names, 7, &fault), ZT_OK);
    for (int i = 0; i < 50 * 20; i++)
        meant[i / 20][i % 20] = (int32_t)(next_random(&seed) % 7);
    for (int i = 0; i < 50 * 20; i++)
        predicted[i / 20][i % 20] = next_random(&seed) % 4
                                        ? meant[i / 20][i % 20]
                                        : (int32_t)(next_random(&seed) % 7);
    for (int i = 0; i < 50; i++)
        zt_spans_add(&c, &tags, predicted[i], meant[i], 20);
    near(zt_span_precision(&c), 0.772413793103448);
    near(zt_span_recall(&c), 0.782122905027933);
    near(zt_span_f1(&c), 0.777238029146426);
    zt_span_tags_close(&tags);
}

static void test_tags_that_mark_nothing_are_known(void **state)
{
    const char *const speech[] = {"NOUN", "O", "VERB"}, *const none[] = {"O"};
    const struct zt_span_counts c = {0};

    (void)state;
    assert_false(zt_tags_mark_spans(speech, 3));
    assert_false(zt_tags_mark_spans(none, 1));
    near(zt_span_f1(&c), 0);
    near(zt_span_precision(&c), 0);
    near(zt_span_recall(&c), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tags_have_the_scores_of_seqeval),
        cmocka_unit_test(test_tags_that_mark_nothing_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
