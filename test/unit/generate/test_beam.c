/*
 * Beam search on a model that is a table: the next logits follow from the last token alone.
 * With as many beams as there are texts nothing is left out, so what it finds is what trying
 * them all finds.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "worker/generate/beam.h"

enum { VOCAB = 4, END = 3, LENGTH = 4, MOST = VOCAB * VOCAB * VOCAB * VOCAB };

static float table[VOCAB][VOCAB];
static const int32_t ends[] = {END};
static const struct zt_logits_rules rules = {
    .repetition_penalty = 1, .ends = ends, .num_ends = 1};

static void make_table(uint64_t seed)
{
    for (int i = 0; i < VOCAB; i++) {
        for (int k = 0; k < VOCAB; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            table[i][k] = (float)((double)(seed >> 40) / (1 << 23));
        }
        zt_logits_normalize(table[i], VOCAB);
    }
}

/* Run a search to its end; the logits of each beam's text are those of its last token. */
static struct zt_beams *search(const struct zt_beam_config *cfg)
{
    const int32_t prompt[] = {0};
    struct zt_fault fault = {0};
    struct zt_beams *b = NULL;
    bool done = false;
    float *logits = malloc((size_t)(cfg->num_beams * VOCAB) * sizeof(*logits));
    int32_t *from = malloc((size_t)cfg->num_beams * sizeof(*from));

    assert_non_null(logits);
    assert_non_null(from);
    assert_int_equal(zt_beams_open(cfg, prompt, 1, &b, &fault), ZT_OK);
    while (!done) {
        int32_t *before = malloc((size_t)cfg->num_beams * 16 * sizeof(*before));
        int64_t n;

        assert_non_null(before);
        for (int64_t i = 0; i < cfg->num_beams; i++) {
            const int32_t *ids = zt_beams_ids(b, i, &n);

            memcpy(before + 16 * i, ids, (size_t)n * sizeof(*ids));
            memcpy(logits + i * VOCAB, table[ids[n - 1]], sizeof(table[0]));
        }
        assert_int_equal(zt_beams_step(b, logits, from, &done, &fault), ZT_OK);
        for (int64_t i = 0; i < cfg->num_beams && !done; i++) { /* `from` is the truth */
            const int32_t *ids = zt_beams_ids(b, i, &n);

            assert_in_range(from[i], 0, cfg->num_beams - 1);
            assert_memory_equal(ids, before + 16 * from[i],
                                (size_t)(n - 1) * sizeof(*ids));
        }
        free(before);
    }
    free(logits);
    free(from);
    return b;
}

/* Every text of at most LENGTH new tokens: its score, best first. */
struct text {
    int32_t ids[LENGTH + 1];
    int n;
    double score;
};

static int by_score(const void *a, const void *b)
{
    double x = ((const struct text *)a)->score, y = ((const struct text *)b)->score;

    return x < y ? 1 : x > y ? -1 : 0;
}

static int try_all(struct text *out, struct text at, double sum, double penalty)
{
    int num = 0;

    for (int id = 0; id < VOCAB; id++) {
        struct text next = at;
        double s = sum + (double)table[at.ids[at.n - 1]][id];

        next.ids[next.n++] = id;
        next.score = s / pow(next.n - 1, penalty);
        if (id == END || next.n == LENGTH + 1)
            out[num++] = next;
        else
            num += try_all(out + num, next, s, penalty);
    }
    return num;
}

/* Texts with the same steps in another order have the same score: any of them will do. */
static bool is_among(const struct text *all, int num, const int32_t *ids, int64_t n,
                     double score)
{
    for (int i = 0; i < num; i++)
        if (all[i].n == n && fabs(all[i].score - score) < 1e-5 &&
            memcmp(all[i].ids, ids, (size_t)n * sizeof(*ids)) == 0)
            return true;
    return false;
}

static void test_many_beams_find_what_trying_all_texts_finds(void **state)
{
    static const double penalties[] = {0, 1, -0.7, 2};
    static struct text all[2 * MOST];

    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct zt_beam_config cfg = {.num_beams = 40,
                                     .vocab = VOCAB,
                                     .max_new_tokens = LENGTH,
                                     .length_penalty = penalties[seed % 4],
                                     .early_stopping = ZT_STOP_NEVER,
                                     .rules = &rules};
        struct zt_beams *b;
        int num;

        make_table(seed);
        num = try_all(all, (struct text){.ids = {0}, .n = 1}, 0, cfg.length_penalty);
        qsort(all, (size_t)num, sizeof(*all), by_score);
        b = search(&cfg);
        for (int i = 0; i < 5; i++) {
            int64_t n;
            float score;
            const int32_t *ids = zt_beams_result(b, i, &n, &score);

            assert_true(fabs((double)score - all[i].score) < 1e-5);
            assert_true(is_among(all, num, ids, n, (double)score));
        }
        zt_beams_close(b);
    }
}

static void test_one_beam_is_greedy(void **state)
{
    struct zt_beam_config cfg = {.num_beams = 1,
                                 .vocab = VOCAB,
                                 .max_new_tokens = LENGTH,
                                 .length_penalty = 1,
                                 .rules = &rules};

    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct zt_beams *b;
        const int32_t *ids;
        float score;
        int64_t n;

        make_table(seed);
        b = search(&cfg);
        ids = zt_beams_result(b, 0, &n, &score);
        for (int64_t i = 1; i < n; i++)
            for (int k = 0; k < VOCAB; k++)
                assert_true(table[ids[i - 1]][ids[i]] >= table[ids[i - 1]][k]);
        assert_true(ids[n - 1] == END || n == LENGTH + 1);
        zt_beams_close(b);
    }
}

static void test_drawn_beams_repeat_with_their_seed_alone(void **state)
{
    struct zt_sampling sampling = {.temperature = 1.5, .top_p = 1, .min_kept = 2};
    struct zt_beam_config cfg = {.num_beams = 3,
                                 .vocab = VOCAB,
                                 .max_new_tokens = LENGTH,
                                 .length_penalty = 1,
                                 .sampling = &sampling,
                                 .rules = &rules};
    int differ = 0;

    (void)state;
    make_table(5);
    for (uint64_t seed = 0; seed < 10; seed++) {
        struct zt_beams *b[3];
        int64_t n[3];
        const int32_t *ids[3];
        float score;

        for (int i = 0; i < 3; i++) {
            cfg.rng = (struct zt_philox){.seed = seed + (i == 2), .stream = 9};
            b[i] = search(&cfg);
            ids[i] = zt_beams_result(b[i], 0, &n[i], &score);
        }
        assert_int_equal(n[0], n[1]);
        assert_memory_equal(ids[0], ids[1], (size_t)n[0] * sizeof(*ids[0]));
        differ +=
            n[0] != n[2] || memcmp(ids[0], ids[2], (size_t)n[0] * sizeof(int32_t)) != 0;
        for (int i = 0; i < 3; i++)
            zt_beams_close(b[i]);
    }
    assert_in_range(differ, 1, 10);
}

static void test_texts_that_a_penalty_leaves_no_score_are_an_error(void **state)
{
    struct zt_beam_config cfg = {.num_beams = 2,
                                 .vocab = VOCAB,
                                 .max_new_tokens = LENGTH,
                                 .length_penalty = -100,
                                 .rules = &rules};
    float logits[2 * VOCAB] = {0, 0, 0, -INFINITY, 0, 0, 0, -INFINITY};
    struct zt_fault fault = {0};
    struct zt_beams *b = NULL;
    int32_t from[2], prompt = 0;
    bool done = false;
    zt_err rc = zt_beams_open(&cfg, &prompt, 1, &b, &fault);

    (void)state;
    while (!rc && !done)
        rc = zt_beams_step(b, logits, from, &done, &fault);
    assert_int_equal(rc, ZT_E_USAGE);
    assert_non_null(strstr(fault.text, "--length_penalty -100 leaves no text a score"));
    zt_beams_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_beams_find_what_trying_all_texts_finds),
        cmocka_unit_test(test_one_beam_is_greedy),
        cmocka_unit_test(test_drawn_beams_repeat_with_their_seed_alone),
        cmocka_unit_test(test_texts_that_a_penalty_leaves_no_score_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
