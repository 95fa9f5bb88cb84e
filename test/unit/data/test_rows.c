/* Rows of examples and of masked tokens: what is cut off, what frames it, what is masked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>

#include "test/unit/data/files.h"
#include "worker/data/rows.h"
#include "worker/data/sampler.h"
#include "worker/data/tokens.h"

static struct zt_fault fault;

/* [90 A 91] and [90 A 91 92 B 91], types as BERT has them */
static const int32_t cls[] = {90}, sep[] = {91}, seps[] = {91, 92};
static const uint8_t zeros[] = {0, 0}, ones[] = {1};
static const struct zt_row_options framed = {
    .kind = ZT_ROWS_EXAMPLES,
    .examples = ZT_EXAMPLES_CLASS,
    .single = {.before = {cls, zeros, 1}, .after = {sep, zeros, 1}},
    .pair = {.before = {cls, zeros, 1},
             .between = {seps, zeros, 2},
             .after = {sep, ones, 1},
             .type_b = 1}};

/* What the truncation longest_first of the package tokenizers leaves of two texts. */
static void test_the_longest_text_is_cut_off_first(void **state)
{
    static const struct {
        uint32_t first, second;
        int64_t T, a, b;
    } cases[] = {
        {3, 4, 20, 3, 4},  {3, 4, 11, 3, 4}, {3, 9, 12, 3, 5}, {9, 3, 12, 5, 3},
        {9, 9, 13, 4, 5},  {9, 9, 14, 5, 5}, {8, 9, 9, 2, 3},  {9, 8, 9, 3, 2},
        {20, 7, 10, 3, 3}, {0, 9, 8, 0, 4},  {5, 0, 6, 2, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct zt_example x = {.tokens = cases[i].first + cases[i].second,
                               .first = cases[i].first,
                               .is_pair = 1};
        int64_t a, b, n = zt_example_cut(&framed, &x, cases[i].T, &a, &b);

        assert_int_equal(a, cases[i].a);
        assert_int_equal(b, cases[i].b);
        assert_int_equal(n, a + b + 4);
    }
}

static void test_a_text_is_cut_off_before_its_frame(void **state)
{
    struct zt_example x = {.tokens = 30, .first = 30};
    int64_t a, b;

    (void)state;
    assert_int_equal(zt_example_cut(&framed, &x, 64, &a, &b), 32);
    assert_int_equal(zt_example_cut(&framed, &x, 10, &a, &b), 10);
    assert_int_equal(a, 8);
    assert_int_equal(zt_example_cut(&framed, &x, 1, &a, &b), 1); /* half a frame */
    assert_int_equal(a, 0);
}

/* ---- through a dataset ---- */

static const char *const names[] = {"no", "yes"};

static struct zt_dataset *open_rows(const char *text, struct zt_example_spec *spec,
                                    struct zt_labels *labels, struct zt_row_options rows)
{
    const char *path = put_file("rows.jsonl", text, strlen(text));
    struct zt_text_encoding how = {
        .examples = spec, .rows = rows, .keeps_lengths = true, .threads = 1};
    struct zt_dataset *ds = NULL;

    for (int i = 0; i < 2; i++)
        assert_int_equal(zt_labels_add(labels, names[i], &fault), ZT_OK);
    spec->labels = labels;
    if (zt_dataset_open_text((const char *const[]){path, NULL}, "auto", &how, 0, &ds,
                             &fault))
        return NULL;
    return ds;
}

enum { T = 8 };

static void test_fields_of_pairs_are_framed_typed_and_padded(void **state)
{
    static const struct zt_field fields[] = {
        {.name = ZT_TOKENS, .dtype = ZT_I32, .shape = {ZT_DIM_B, ZT_DIM_T}, .pad = 7},
        {.name = ZT_TOKEN_TYPES, .dtype = ZT_I32, .shape = {ZT_DIM_B, ZT_DIM_T}},
        {.name = ZT_LENGTHS, .dtype = ZT_I32, .shape = {ZT_DIM_B}},
        {.name = ZT_LABELS, .dtype = ZT_I32, .shape = {ZT_DIM_B}, .pad = -100}};
    int32_t tokens[2][T], types[2][T], lengths[2], classes[2];
    struct zt_field_buffers out = {
        .fields = fields, .num = 4, .data = {tokens, types, lengths, classes}};
    struct zt_example_spec spec = {.kind = ZT_EXAMPLES_CLASS};
    struct zt_labels labels = {0};
    struct zt_dataset *ds =
        open_rows("{\"sentence1\":\"a\",\"sentence2\":\"bc\",\"label\":\"yes\"}\n", &spec,
                  &labels, framed);
    static const int32_t want[T] = {90, 'a', 91, 92, 'b', 'c', 91, 7};
    static const int32_t want_types[T] = {0, 0, 0, 0, 1, 1, 1, 0};
    bool offered = false;

    (void)state;
    assert_non_null(ds);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(
            zt_data_offers(&fields[i], "the data", &framed, false, &offered, &fault),
            ZT_OK);
        assert_true(offered);
    }
    assert_int_equal(
        zt_data_fill_row(ds, &out, 0, T, &(struct zt_row_piece){0, 7, 0, 0}, 1, &fault),
        ZT_OK);
    assert_int_equal(zt_data_fill_row(ds, &out, 1, T, NULL, 0, &fault), ZT_OK);
    assert_memory_equal(tokens[0], want, sizeof(want));
    assert_memory_equal(types[0], want_types, sizeof(want_types));
    assert_int_equal(lengths[0], 7);
    assert_int_equal(classes[0], 1);
    for (int i = 0; i < T; i++) /* a row past the end */
        assert_int_equal(tokens[1][i], 7);
    assert_int_equal(lengths[1], 0);
    assert_int_equal(classes[1], -100);
    zt_dataset_close(ds);
    zt_labels_release(&labels);
}

static void test_tags_are_at_the_first_token_of_a_word(void **state)
{
    static const struct zt_field fields[] = {
        {.name = ZT_TOKENS, .dtype = ZT_I32, .shape = {ZT_DIM_B, ZT_DIM_T}},
        {.name = ZT_TARGETS,
         .dtype = ZT_I32,
         .shape = {ZT_DIM_B, ZT_DIM_T},
         .pad = -100}};
    int32_t tokens[T], targets[T];
    struct zt_field_buffers out = {.fields = fields, .num = 2, .data = {tokens, targets}};
    struct zt_example_spec spec = {.kind = ZT_EXAMPLES_TAGS};
    struct zt_row_options rows = framed;
    struct zt_labels labels = {0};
    struct zt_dataset *ds;
    static const int32_t want[T] = {90, 'a', 'b', 'c', 'd', 'e', 91, 0};
    static const int32_t want_tags[T] = {-100, 1, -100, 0, 1, -100, -100, -100};

    (void)state;
    rows.examples = ZT_EXAMPLES_TAGS;
    ds = open_rows(
        "{\"tokens\":[\"ab\",\"c\",\"de\"],\"ner_tags\":[\"yes\",\"no\",\"yes\"]}\n",
        &spec, &labels, rows);
    assert_non_null(ds);
    assert_int_equal(
        zt_data_fill_row(ds, &out, 0, T, &(struct zt_row_piece){0, 7, 0, 0}, 1, &fault),
        ZT_OK);
    assert_memory_equal(tokens, want, sizeof(want));
    assert_memory_equal(targets, want_tags, sizeof(want_tags));
    zt_dataset_close(ds);
    zt_labels_release(&labels);
}

static void refuses(zt_example_kind kind, const char *text, const char *why)
{
    struct zt_example_spec spec = {.kind = kind};
    struct zt_labels labels = {0};

    assert_null(open_rows(text, &spec, &labels, framed));
    if (!strstr(fault.text, why))
        fail_msg("said: %s", fault.text);
    zt_labels_release(&labels);
}

static void test_malformed_rows_are_named_by_their_line(void **state)
{
    (void)state;
    refuses(ZT_EXAMPLES_CLASS,
            "{\"text\":\"a\",\"label\":\"no\"}\n{\"text\":\"b\",\"label\":\"maybe\"}\n",
            "rows.jsonl:2: \"label\" has the label \"maybe\"");
    refuses(ZT_EXAMPLES_CLASS, "{\"text\":\"a\",\"label\":0.5}\n", "--task regress");
    refuses(ZT_EXAMPLES_CLASS, "{\"text\":\"a\",\"label\":\"no\"}\n{\"text\":\"b\"}\n",
            "rows.jsonl:2: the row has no \"label\"");
    refuses(ZT_EXAMPLES_CLASS, "{\"a\":\"a\",\"label\":\"no\"}\n", "--text_column says");
    refuses(ZT_EXAMPLES_NUMBER, "{\"text\":\"a\",\"label\":\"no\"}\n", "is no number");
    refuses(ZT_EXAMPLES_TAGS, "{\"tokens\":[\"a\"],\"tags\":[\"no\",\"no\"]}\n",
            "there are 1 words and 2 tags");
    refuses(ZT_EXAMPLES_TAGS, "{\"tokens\":[1],\"tags\":[\"no\"]}\n",
            "word 1 of \"tokens\" is no text");
    refuses(ZT_EXAMPLES_TAGS, "{\"tokens\":\"a\",\"tags\":[\"no\"]}\n",
            "is no list of words");
}

/* ---- masks ---- */

enum { NUM = 40000, MASK = 4, VOCAB = 1000 };

static const struct zt_row_options masked = {
    .kind = ZT_ROWS_MASKED,
    .masking = {.probability = 0.15, .seed = 5, .mask = MASK, .vocab = VOCAB},
    .single = {.before = {cls, zeros, 1}, .after = {sep, zeros, 1}}};

static double share(int64_t part, int64_t of)
{
    return (double)part / (double)of;
}

static void test_masks_have_the_shares_of_bert(void **state)
{
    static int32_t original[NUM], tokens[NUM], targets[NUM];
    int64_t chosen = 0, mask = 0, same = 0, frame = 0;

    (void)state;
    for (int i = 0; i < NUM; i++)
        original[i] = i % 20 == 0 ? 90 : 200 + i % 700;
    zt_mask_row(&masked, 0, 0, original, NUM, tokens, targets, -100);
    for (int i = 0; i < NUM; i++) {
        if (targets[i] == -100) {
            assert_int_equal(tokens[i], original[i]);
            continue;
        }
        assert_int_equal(targets[i], original[i]);
        assert_in_range(tokens[i], 0, VOCAB - 1);
        chosen++;
        mask += tokens[i] == MASK;
        same += tokens[i] == original[i];
        frame += original[i] == 90;
    }
    assert_int_equal(frame, 0);
    assert_true(fabs(share(chosen, NUM * 19 / 20) - 0.15) < 0.01);
    assert_true(fabs(share(mask, chosen) - 0.8) < 0.02);
    assert_true(fabs(share(same, chosen) - 0.1) < 0.02);
}

static void test_masks_follow_from_epoch_and_place_alone(void **state)
{
    int32_t original[64], a[64], b[64], c[64], d[64];

    (void)state;
    for (int i = 0; i < 64; i++)
        original[i] = 200 + i;
    zt_mask_row(&masked, 3, 17, original, 64, a, NULL, 0);
    zt_mask_row(&masked, 3, 17, original, 64, b, NULL, 0);
    zt_mask_row(&masked, 4, 17, original, 64, c, NULL, 0);
    zt_mask_row(&masked, 3, 18, original, 64, d, NULL, 0);
    assert_memory_equal(a, b, sizeof(a));
    assert_memory_not_equal(a, c, sizeof(a));
    assert_memory_not_equal(a, d, sizeof(a));
}

/* Bytes, of which 256 ends a row as [SEP] ends a text. */
static void test_a_masked_text_that_is_cut_off_keeps_its_end(void **state)
{
    static const struct zt_field fields[] = {
        {.name = ZT_TOKENS, .dtype = ZT_I32, .shape = {ZT_DIM_B, ZT_DIM_T}}};
    static const int32_t end[] = {256},
                         want[2][4] = {{'a', 'b', 'c', 256}, {'f', 'g', 'h', 256}};
    struct zt_row_options rows = {.kind = ZT_ROWS_MASKED,
                                  .masking = masked.masking,
                                  .single = {.after = {end, zeros, 1}}};
    struct zt_text_encoding how = {.rows = rows, .keeps_lengths = true, .threads = 1};
    static const char text[] = "{\"text\": \"abcde\"}\n{\"text\": \"fgh\"}\n";
    const char *path = put_file("rows.jsonl", text, strlen(text));
    struct zt_field_buffers out = {.fields = fields, .num = 1};
    struct zt_dataset *ds = NULL;
    struct zt_eval_batches ev;
    int32_t tokens[2][4];
    int64_t num = 0;

    (void)state;
    how.rows.masking.probability = 1e-9;
    out.data[0] = tokens;
    assert_int_equal(zt_dataset_open_text((const char *const[]){path, NULL}, "auto", &how,
                                          0, &ds, &fault),
                     ZT_OK);
    assert_int_equal(zt_eval_batches_init(&ev, ds, 4, 2, 0, 1, &fault), ZT_OK);
    assert_int_equal(zt_eval_batches_read(&ev, 0, &out, &num, NULL, &fault), ZT_OK);
    assert_int_equal(num, 2);
    assert_memory_equal(tokens, want, sizeof(want));
    zt_dataset_close(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_longest_text_is_cut_off_first),
        cmocka_unit_test(test_a_text_is_cut_off_before_its_frame),
        cmocka_unit_test(test_fields_of_pairs_are_framed_typed_and_padded),
        cmocka_unit_test(test_tags_are_at_the_first_token_of_a_word),
        cmocka_unit_test(test_malformed_rows_are_named_by_their_line),
        cmocka_unit_test(test_masks_have_the_shares_of_bert),
        cmocka_unit_test(test_masks_follow_from_epoch_and_place_alone),
        cmocka_unit_test(test_a_masked_text_that_is_cut_off_keeps_its_end),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
