/* BLEU, chrF and ROUGE of texts: the numbers of sacrebleu and rouge_score
 * (test/golden/make_metrics.py). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "worker/tasks/text_scores.h"

static struct zt_fault fault;

static zt_err add(struct zt_text_scores *s, const char *written, const char *meant)
{
    return zt_text_scores_add(s, written, strlen(written), meant, strlen(meant), &fault);
}

/* written, meant; a line each, which make_metrics.py reads */
/* clang-format off */
static const char *const texts[][2] = {
    {"the cat sat on the mat.", "The cat sat on the mat, didn't it?"},
    {"Die Bibliothek enthält größere Änderungen.", "Diese Bibliothek enthält viele größere Änderungen"},
    {"pi is 3.14, e is 2.71; x-1 and 5-6 (or $5)", "pi is 3.14 and e is 2.71; x-1, 5-6 or $5."},
    {"a &quot;quoted&quot; &amp;lt; b<skipped> wo-\nrd", "a \"quoted\" &lt; b wo rd"},
    {"something else", "nothing of that"},
    {"", "an empty one"},
    {"\u212aelvin \u0130stanbul 2", "kelvin i stanbul 2"},
};
/* clang-format on */
enum { NUM = sizeof(texts) / sizeof(texts[0]) };

static const double want[NUM + 1][5] = {
    {40.049701493983, 59.9129822806783, 80, 76.9230769230769, 80},
    {22.9574884666143, 76.2007902467889, 80, 61.5384615384615, 80},
    {40.21074690812, 60.855078767882, 100, 78.5714285714286, 93.3333333333333},
    {70.1396726799769, 30.2448103128829, 75, 28.5714285714286, 75},
    {0, 22.978502978503, 0, 0, 0},
    {0, 0, 0, 0, 0},
    {0, 61.3761238761239, 100, 100, 100},
    {38.797379023587, 55.3808834173996, 62.1428571428571, 49.3720565149137,
     61.1904761904762},
};

static void near(double got, double to)
{
    if (!(fabs(got - to) < 1e-9))
        fail_msg("%.15g, not %.15g", got, to);
}

static void check(const struct zt_text_scores *s, const double to[5])
{
    near(zt_bleu(s), to[0]);
    near(zt_chrf(s), to[1]);
    near(zt_rouge(s, ZT_ROUGE_1), to[2]);
    near(zt_rouge(s, ZT_ROUGE_2), to[3]);
    near(zt_rouge(s, ZT_ROUGE_L), to[4]);
}

static void test_texts_have_the_scores_of_sacrebleu_and_rouge_score(void **state)
{
    struct zt_text_scores all = {.num = 0};

    (void)state;
    for (int i = 0; i < NUM; i++) {
        struct zt_text_scores one = {.num = 0};

        assert_int_equal(add(&one, texts[i][0], texts[i][1]), ZT_OK);
        check(&one, want[i]);
        assert_int_equal(add(&all, texts[i][0], texts[i][1]), ZT_OK);
    }
    check(&all, want[NUM]);
}

static void test_what_has_nothing_in_common_or_is_no_text_is_0(void **state)
{
    const double none[5] = {0};
    struct zt_text_scores s = {.num = 0};

    (void)state;
    check(&s, none);
    assert_int_equal(add(&s, "\xff\xfe", "ab"), ZT_OK);
    assert_int_equal(add(&s, "", ""), ZT_OK);
    check(&s, none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_have_the_scores_of_sacrebleu_and_rouge_score),
        cmocka_unit_test(test_what_has_nothing_in_common_or_is_no_text_is_0),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
