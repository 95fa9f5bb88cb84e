/* Samples as rows: each once in an epoch, whoever reads it; padded, cut off and put in order by length. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "test/unit/data/files.h"
#include "worker/data/sampler.h"
#include "worker/data/tokens.h"

enum { NUM = 61, T = 12, PAD = 7, NO_TARGET = -5 };

static struct zt_fault fault;

/* Row i is lengths[i] times the letter of its number; the end of text follows it. */
static int64_t length_of(int i)
{
    return 1 + i * 29 % 17;
}

static struct zt_dataset *rows_of(int first, int num, bool keeps_lengths)
{
    static char text[NUM * 64];
    struct zt_text_encoding how = {.keeps_lengths = keeps_lengths, .threads = 1};
    struct zt_dataset *ds = NULL;
    const char *path;
    size_t n = 0;

    for (int i = first; i < first + num; i++) {
        n += (size_t)sprintf(text + n, "{\"text\": \"");
        for (int k = 0; k < length_of(i); k++)
            text[n++] = (char)('0' + i);
        text[n - 1] = (char)(text[n - 1] == '\\' ? '/' : text[n - 1]);
        for (size_t k = n - (size_t)length_of(i); k < n; k++)
            text[k] = text[k] == '\\' || text[k] == '"' ? '~' : text[k];
        n += (size_t)sprintf(text + n, "\"}\n");
    }
    path = put_file("rows.jsonl", text, n);
    if (zt_dataset_open_text((const char *const[]){path, NULL}, "auto", &how, 0, &ds,
                             &fault))
        fail_msg("%s", fault.text);
    return ds;
}

static struct zt_field_buffers buffers_of(int32_t *tokens, int32_t *targets,
                                          int32_t *lengths)
{
    static const struct zt_field fields[] = {
        {.name = "tokens", .dtype = ZT_I32, .shape = {ZT_DIM_B, ZT_DIM_T}, .pad = PAD},
        {.name = "targets",
         .dtype = ZT_I32,
         .shape = {ZT_DIM_B, ZT_DIM_T},
         .pad = NO_TARGET},
        {.name = "lengths", .dtype = ZT_I32, .shape = {ZT_DIM_B}},
    };

    return (struct zt_field_buffers){
        .fields = fields, .num = 3, .data = {tokens, targets, lengths}};
}

/* The sample that stands in a row of `width` tokens, which has to be all of it. */
static int check_row(const struct zt_dataset *ds, const int32_t *tokens,
                     const int32_t *targets, int64_t n, int64_t width)
{
    for (int64_t i = 0; i < zt_dataset_num_samples(ds); i++) {
        int32_t whole[64];
        int64_t at, all;

        zt_dataset_sample(ds, i, &at, &all);
        assert_true(all < 64);
        assert_int_equal(zt_dataset_read(ds, at, all, whole, &fault), ZT_OK);
        if (tokens[0] != whole[0])
            continue;
        assert_int_equal(n, all - 1 < T ? all - 1 : T);
        for (int64_t k = 0; k < width; k++) {
            assert_int_equal(tokens[k], k < n ? whole[k] : PAD);
            assert_int_equal(targets[k], k < n ? whole[k + 1] : NO_TARGET);
        }
        return (int)i;
    }
    fail_msg("no sample begins with %d", (int)tokens[0]);
    return -1;
}

/* The samples of all rows of `steps` steps from a position, or the beginning, on, by global row;
 * widths of micro-batches are checked. */
static void read_order(const struct zt_dataset *ds, struct zt_sampler_config cfg,
                       const struct zt_sampler_state *from, int64_t steps, int *out)
{
    int64_t G = cfg.micro_rows * cfg.num_micro * cfg.world;

    for (cfg.rank = 0; cfg.rank < cfg.world; cfg.rank++) {
        struct zt_sampler *s = NULL;

        assert_int_equal(zt_sampler_open(ds, &cfg, &s, &fault), ZT_OK);
        assert_int_equal(zt_sampler_num_blocks(s), zt_dataset_num_samples(ds));
        if (from)
            assert_int_equal(zt_sampler_seek(s, from, &fault), ZT_OK);
        for (int64_t i = 0; i < steps * cfg.num_micro; i++) {
            int32_t tokens[24 * T], targets[24 * T], lengths[24];
            struct zt_field_buffers b = buffers_of(tokens, targets, lengths);
            int64_t step = i / cfg.num_micro + 1, m = i % cfg.num_micro, width;
            struct zt_widths widths = {0, 0};
            int64_t longest = 0, k = cfg.padding.multiple;

            assert_int_equal(zt_sampler_read(s, step, m, &b, &widths, &fault), ZT_OK);
            width = widths.row;
            for (int64_t row = 0; row < cfg.micro_rows; row++) {
                longest = lengths[row] > longest ? lengths[row] : longest;
                out[(step - 1) * G + zt_sampler_row0(s, m) + row] = check_row(
                    ds, tokens + row * width, targets + row * width, lengths[row], width);
            }
            longest = (longest + k - 1) / k * k;
            assert_int_equal(width, cfg.padding.to_max || longest > T ? T : longest);
        }
        zt_sampler_close(s);
    }
}

static void test_each_sample_is_read_once_whoever_reads_it(void **state)
{
    struct zt_dataset *ds = rows_of(0, NUM, true);
    int want[3 * NUM + 24], got[3 * NUM + 24];
    int64_t all = zt_dataset_num_samples(ds);

    (void)state;
    assert_int_equal(all, NUM);
    for (int kind = 0; kind < 4; kind++) {
        struct zt_sampler_config cfg = {.block_size = T,
                                        .seed = 5,
                                        .group_by_length = kind & 1,
                                        .padding = {kind & 2 ? 4 : 1, kind == 2}};
        int seen[NUM] = {0};
        int64_t steps = 2 * all / 24 + 1;

        for (int world = 1; world <= 8; world++)
            for (int64_t micro = 1; micro <= 3; micro++) {
                cfg.world = world;
                cfg.num_micro = micro;
                cfg.micro_rows = 24 / (world * micro);
                if (world * micro * cfg.micro_rows != 24)
                    continue;
                read_order(ds, cfg, NULL, steps, world * micro == 1 ? want : got);
                if (world * micro > 1)
                    assert_memory_equal(got, want, (size_t)(steps * 24) * sizeof(*got));
            }
        for (int64_t i = 0; i < all; i++) /* an epoch */
            assert_int_equal(seen[want[i]]++, 0);
    }
    zt_dataset_close(ds);
}

static void test_grouping_puts_the_longest_of_a_stretch_first(void **state)
{
    struct zt_dataset *ds = rows_of(0, NUM, true);
    struct zt_sampler_config cfg = {.block_size = T,
                                    .micro_rows = 4,
                                    .num_micro = 1,
                                    .world = 1,
                                    .seed = 5,
                                    .group_by_length = true,
                                    .padding = {1, false}};
    int order[64];
    int64_t stretch = NUM / (4 * 4) * 4, last = INT64_MAX;

    (void)state;
    read_order(ds, cfg, NULL, 15, order);
    for (int64_t i = 0; i < 60; i++) {
        int64_t at, n;

        zt_dataset_sample(ds, order[i], &at, &n);
        assert_true(i % stretch == 0 || n <= last);
        last = n;
    }
    zt_dataset_close(ds);
}

/* A run that goes on in the middle of an epoch, with batches of another size, or not grouped. */
static void test_an_epoch_keeps_its_order_of_length(void **state)
{
    struct zt_dataset *ds = rows_of(0, NUM, true);

    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        struct zt_sampler_config cfg = {.block_size = T,
                                        .micro_rows = 4,
                                        .num_micro = 1,
                                        .world = 1,
                                        .seed = 5,
                                        .group_by_length = kind != 2,
                                        .padding = {1, false}};
        int order[NUM + 16], seen[NUM] = {0};
        struct zt_sampler_state at;
        struct zt_sampler *s;

        read_order(ds, cfg, NULL, 2, order);
        assert_int_equal(zt_sampler_open(ds, &cfg, &s, &fault), ZT_OK);
        zt_sampler_tell(s, 2, &at);
        zt_sampler_close(s);
        cfg.micro_rows = kind == 1 ? 4 : 11;
        cfg.group_by_length = kind != 1;
        read_order(ds, cfg, &at, (NUM - 8) / cfg.micro_rows + 1, order + 8);
        for (int64_t i = 0; i < NUM; i++)
            assert_int_equal(seen[order[i]]++, 0);
    }
    zt_dataset_close(ds);
}

static void test_evaluation_reads_each_sample_once(void **state)
{
    struct zt_dataset *ds = rows_of(3, 29, true);
    int seen[29] = {0};
    int64_t rows = 0;

    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        struct zt_eval_batches ev;

        assert_int_equal(zt_eval_batches_init(&ev, ds, T, 4, rank, 3, &fault), ZT_OK);
        ev.padding.multiple = 2;
        assert_int_equal(ev.num_batches, 3);
        for (int64_t k = 0; k < ev.num_batches; k++) {
            int32_t tokens[4 * T], targets[4 * T], lengths[4];
            struct zt_field_buffers b = buffers_of(tokens, targets, lengths);
            int64_t num = 0, width;
            struct zt_widths widths = {0, 0};

            assert_int_equal(zt_eval_batches_read(&ev, k, &b, &num, &widths, &fault),
                             ZT_OK);
            width = widths.row;
            for (int64_t row = 0; row < 4; row++) {
                if (row >= num)
                    assert_int_equal(targets[row * width], NO_TARGET);
                else
                    seen[check_row(ds, tokens + row * width, targets + row * width,
                                   lengths[row], width)]++;
            }
            rows += num;
        }
    }
    assert_int_equal(rows, 29);
    for (int i = 0; i < 29; i++)
        assert_int_equal(seen[i], 1);
    zt_dataset_close(ds);
}

static void test_a_split_and_a_view_are_of_whole_samples(void **state)
{
    struct zt_dataset *ds = rows_of(0, 20, true), *train, *eval, *some;
    int64_t at, n, end, first, all;

    (void)state;
    zt_dataset_sample(ds, 17, &at, &n);
    assert_int_equal(zt_dataset_split(ds, 0.1, 512, &train, &eval, &fault), ZT_OK);
    assert_int_equal(zt_dataset_num_samples(train), 18);
    assert_int_equal(zt_dataset_num_samples(eval), 2);
    zt_dataset_sample(train, 17, &first, &all);
    assert_int_equal(first, at);
    assert_int_equal(zt_dataset_num_tokens(train), at + n);
    zt_dataset_sample(eval, 0, &first, &all);
    assert_int_equal(first, 0);
    assert_int_equal(zt_dataset_view_samples(train, 5, 3, &some, &fault), ZT_OK);
    zt_dataset_sample(train, 5, &at, &n);
    zt_dataset_sample(train, 7, &end, &all);
    assert_int_equal(zt_dataset_num_tokens(some), end + all - at);
    assert_int_equal(zt_dataset_view_samples(some, 1, 3, &train, &fault), ZT_E_ARG);
    zt_dataset_close(some);
    zt_dataset_close(eval);
    zt_dataset_close(train);
    zt_dataset_close(ds);
}

static void test_borders_are_part_of_the_fingerprint(void **state)
{
    struct zt_dataset *a = rows_of(0, 20, true), *b = rows_of(0, 20, false);

    (void)state;
    assert_int_equal(zt_dataset_num_samples(b), 0);
    assert_int_equal(zt_dataset_num_tokens(a), zt_dataset_num_tokens(b));
    assert_true(zt_dataset_fingerprint(a) != zt_dataset_fingerprint(b));
    zt_dataset_close(a);
    zt_dataset_close(b);
}

static void test_what_has_no_samples_is_refused(void **state)
{
    struct zt_text_encoding how = {.keeps_lengths = true};
    struct zt_dataset *ds;
    const char *path = put_file("plain.txt", "words", 5);

    (void)state;
    assert_int_equal(zt_dataset_open_text((const char *const[]){path, NULL}, "auto", &how,
                                          0, &ds, &fault),
                     ZT_E_USAGE);
    assert_non_null(strstr(fault.text, "is one stream of tokens and has no samples"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_sample_is_read_once_whoever_reads_it),
        cmocka_unit_test(test_grouping_puts_the_longest_of_a_stretch_first),
        cmocka_unit_test(test_an_epoch_keeps_its_order_of_length),
        cmocka_unit_test(test_evaluation_reads_each_sample_once),
        cmocka_unit_test(test_a_split_and_a_view_are_of_whole_samples),
        cmocka_unit_test(test_borders_are_part_of_the_fingerprint),
        cmocka_unit_test(test_what_has_no_samples_is_refused),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
