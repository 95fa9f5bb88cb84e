/* Pairs as rows: sources and targets, shifted, cut off and padded; each pair once in an epoch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "test/unit/data/files.h"
#include "worker/data/pair_rows.h"
#include "worker/data/sampler.h"
#include "worker/data/tokens.h"

enum {
    NUM = 37,
    S = 9,
    T = 7,
    PAD = 5,
    NO_TARGET = -100,
    START = 3,
    END = 256,
    ROWS = 4
};

static struct zt_fault fault;

/* Pair i: so many letters of its number, behind a prefix; the target's are capital ones. */
static int64_t source_of(int i)
{
    return i * 5 % 12;
}

static int64_t target_of(int i)
{
    return i * 7 % 11;
}

static struct zt_dataset *pairs_of(int num)
{
    static char text[NUM * 96];
    struct zt_text_encoding how = {
        .pair = {.source = "s", .target = "t", .prefix = ":", .separate = true},
        .answers_only = true,
        .keeps_lengths = true,
        .rows = {.kind = ZT_ROWS_PAIRS},
        .threads = 1};
    struct zt_dataset *ds = NULL;
    const char *path;
    size_t n = 0;

    for (int i = 0; i < num; i++) {
        n += (size_t)sprintf(text + n, "{\"s\": \"");
        for (int k = 0; k < source_of(i); k++)
            text[n++] = (char)('a' + (i + k) % 26);
        n += (size_t)sprintf(text + n, "\", \"t\": \"");
        for (int k = 0; k < target_of(i); k++)
            text[n++] = (char)('A' + (i + k) % 26);
        n += (size_t)sprintf(text + n, "\"}\n");
    }
    path = put_file("pairs.jsonl", text, n);
    if (zt_dataset_open_text((const char *const[]){path, NULL}, "auto", &how, 0, &ds,
                             &fault))
        fail_msg("%s", fault.text);
    return ds;
}

/* Token k of text (0: source, 1: target) of pair i in a row of at most `most`; -1: behind it. */
static int32_t token_of(int i, int text, int64_t k, int64_t most)
{
    int64_t letters = text ? target_of(i) : source_of(i) + 1, all = letters + 1;
    int64_t n = all < most ? all : most;

    if (k >= n)
        return -1;
    if (k == n - 1)
        return END; /* it ends the text, also of one that is cut off */
    if (!text && k == 0)
        return ':';
    return text ? 'A' + (int32_t)((i + k) % 26) : 'a' + (int32_t)((i + k - 1) % 26);
}

struct batch {
    int32_t source[ROWS * S], lengths[ROWS], tokens[ROWS * T], targets[ROWS * T];
    struct zt_widths widths;
};

static struct zt_field_buffers buffers_of(struct batch *b)
{
    static const struct zt_field fields[] = {
        {.name = "source", .dtype = ZT_I32, .shape = {ZT_DIM_B, ZT_DIM_S}, .pad = PAD},
        {.name = "source_lengths", .dtype = ZT_I32, .shape = {ZT_DIM_B}},
        {.name = "tokens", .dtype = ZT_I32, .shape = {ZT_DIM_B, ZT_DIM_T}, .pad = PAD},
        {.name = "targets",
         .dtype = ZT_I32,
         .shape = {ZT_DIM_B, ZT_DIM_T},
         .pad = NO_TARGET},
    };

    return (struct zt_field_buffers){
        .fields = fields,
        .num = 4,
        .start = START,
        .data = {b->source, b->lengths, b->tokens, b->targets}};
}

/* Row r of the batch is pair i, or without data (-1). */
static void check_row(const struct batch *b, int64_t r, int i)
{
    const int32_t *source = b->source + r * b->widths.source;
    const int32_t *tokens = b->tokens + r * b->widths.row;
    const int32_t *targets = b->targets + r * b->widths.row;
    int32_t n = 0;

    for (int64_t k = 0; k < b->widths.source; k++) {
        int32_t want = i < 0 ? -1 : token_of(i, 0, k, S);

        n += want >= 0;
        assert_int_equal(source[k], want < 0 ? PAD : want);
    }
    assert_int_equal(b->lengths[r], n);
    for (int64_t k = 0; k < b->widths.row; k++) {
        int32_t want = i < 0 ? -1 : token_of(i, 1, k, T);

        assert_int_equal(targets[k], want < 0 ? NO_TARGET : want);
        assert_int_equal(tokens[k], want < 0 ? PAD
                                    : k == 0 ? START
                                             : token_of(i, 1, k - 1, T + 1));
    }
}

static void test_rows_are_the_texts_shifted_and_padded(void **state)
{
    const struct zt_pair_limits most = {T, S, {.multiple = 1}};
    struct zt_dataset *ds = pairs_of(NUM);

    (void)state;
    assert_true(zt_dataset_is_pairs(ds));
    assert_int_equal(zt_dataset_num_samples(ds), NUM);
    for (int i = 0; i + 2 < NUM; i++) {
        struct batch b = {.widths = {0, 0}};
        struct zt_field_buffers out = buffers_of(&b);
        int64_t samples[ROWS] = {i + 1, -1, i, i + 2};

        assert_int_equal(
            zt_pair_rows_read(ds, &most, samples, ROWS, &out, &b.widths, &fault), ZT_OK);
        for (int r = 0; r < ROWS; r++)
            check_row(&b, r, (int)samples[r]);
    }
    zt_dataset_close(ds);
}

/* T and S are those of the longest texts, in multiples, or the most. */
static void test_widths_are_those_of_the_longest_texts(void **state)
{
    struct zt_dataset *ds = pairs_of(NUM);

    (void)state;
    for (int i = 0; i < NUM; i++)
        for (int k = 1; k < 4; k++)
            for (int to_max = 0; to_max < 2; to_max++) {
                const struct zt_pair_limits most = {T, S, {k, to_max != 0}};
                int64_t s = source_of(i) + 2, t = target_of(i) + 1;
                struct batch b = {.widths = {0, 0}};
                struct zt_field_buffers out = buffers_of(&b);

                s = (s + k - 1) / k * k;
                t = (t + k - 1) / k * k;
                assert_int_equal(zt_pair_rows_read(ds, &most, (int64_t[]){i}, 1, &out,
                                                   &b.widths, &fault),
                                 ZT_OK);
                assert_int_equal(b.widths.source, to_max || s > S ? S : s);
                assert_int_equal(b.widths.row, to_max || t > T ? T : t);
                check_row(&b, 0, i);
            }
    zt_dataset_close(ds);
}

static void test_an_epoch_has_each_pair_once_whatever_the_ranks(void **state)
{
    struct zt_dataset *ds = pairs_of(NUM);
    int32_t first[2][2 * ROWS];

    (void)state;
    for (int world = 1; world <= 2; world++)
        for (int rank = 0; rank < world; rank++) {
            struct zt_sampler_config cfg = {.block_size = T,
                                            .source_size = S,
                                            .micro_rows = ROWS,
                                            .num_micro = 3 - world,
                                            .rank = rank,
                                            .world = world,
                                            .seed = 7,
                                            .group_by_length = true,
                                            .padding = {.multiple = 1}};
            struct zt_sampler *s = NULL;

            assert_int_equal(zt_sampler_open(ds, &cfg, &s, &fault), ZT_OK);
            for (int64_t m = 0; m < cfg.num_micro; m++) {
                struct batch b = {.widths = {0, 0}};
                struct zt_field_buffers out = buffers_of(&b);

                assert_int_equal(zt_sampler_read(s, 2, m, &out, &b.widths, &fault),
                                 ZT_OK);
                for (int64_t r = 0; r < ROWS; r++)
                    first[world - 1][zt_sampler_row0(s, m) + r] =
                        b.source[r * b.widths.source + 1];
            }
            zt_sampler_close(s);
        }
    assert_memory_equal(first[0], first[1], sizeof(first[0]));
    zt_dataset_close(ds);
}

static void test_evaluation_reads_each_pair_once(void **state)
{
    struct zt_dataset *ds = pairs_of(NUM);
    int seen = 0;

    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        struct zt_eval_batches ev;

        assert_int_equal(zt_eval_batches_init(&ev, ds, T, ROWS, rank, 2, &fault), ZT_OK);
        ev.source_size = S;
        ev.padding.multiple = 1;
        for (int64_t k = 0; k < ev.num_batches; k++) {
            struct batch b = {.widths = {0, 0}};
            struct zt_field_buffers out = buffers_of(&b);
            int64_t num = 0, row0 = (k * 2 + rank) * ROWS;

            assert_int_equal(zt_eval_batches_read(&ev, k, &out, &num, &b.widths, &fault),
                             ZT_OK);
            seen += (int)num;
            for (int64_t r = 0; r < ROWS; r++)
                check_row(&b, r, r < num ? (int)(row0 + r) : -1);
        }
    }
    assert_int_equal(seen, NUM);
    zt_dataset_close(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_the_texts_shifted_and_padded),
        cmocka_unit_test(test_widths_are_those_of_the_longest_texts),
        cmocka_unit_test(test_an_epoch_has_each_pair_once_whatever_the_ranks),
        cmocka_unit_test(test_evaluation_reads_each_pair_once),
    };

    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
