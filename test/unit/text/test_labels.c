/* Labels: numbered by their order, found by name or number; and frames of pairs of texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "worker/text/rows/labels.h"
#include "worker/text/tokenizer.h"

static struct zt_fault fault;

static struct zt_labels made_of(const char *const *names)
{
    struct zt_labels l = {0};

    for (; *names; names++)
        assert_int_equal(zt_labels_add(&l, *names, &fault), ZT_OK);
    zt_labels_sort(&l);
    return l;
}

static void test_names_are_in_the_order_of_text_and_numbers_in_theirs(void **state)
{
    struct zt_labels words =
        made_of((const char *const[]){"red", "blue", "red", "10", NULL});
    struct zt_labels numbers =
        made_of((const char *const[]){"10", "-1", "9", "10", NULL});

    (void)state;
    assert_int_equal(words.num, 3);
    assert_int_equal(zt_labels_find(&words, "10"), 0);
    assert_int_equal(zt_labels_find(&words, "blue"), 1);
    assert_int_equal(zt_labels_find(&words, "red"), 2);
    assert_int_equal(zt_labels_find(&words, "1"), -1);
    assert_int_equal(zt_labels_find(&numbers, "-1"), 0);
    assert_int_equal(zt_labels_find(&numbers, "9"), 1);
    assert_int_equal(zt_labels_find(&numbers, "10"), 2);
    assert_string_equal(numbers.names[2], "10");
    zt_labels_release(&words);
    zt_labels_release(&numbers);
}

static void test_labels_without_names_are_found_by_their_number(void **state)
{
    struct zt_labels l = made_of((const char *const[]){"LABEL_0", "LABEL_1", NULL});

    (void)state;
    assert_int_equal(zt_labels_find(&l, "1"), 1);
    assert_int_equal(zt_labels_find(&l, "LABEL_1"), 1);
    assert_int_equal(zt_labels_find(&l, "2"), -1);
    assert_int_equal(zt_labels_find(&l, "-1"), -1);
    assert_int_equal(zt_labels_find(&l, ""), -1);
    zt_labels_release(&l);
}

/* ---- frames ---- */

#define TOKENIZER(post)                                                                  \
    "{\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"[C]\":" \
    "1,"                                                                                 \
    "\"[S]\":2}},\"post_processor\":" post "}"

static struct zt_tokenizer *parse(const char *json)
{
    struct zt_tokenizer *t = NULL;

    assert_int_equal(zt_tokenizer_parse("t", json, strlen(json), &t, &fault), ZT_OK);
    return t;
}

static void test_a_template_of_pairs_gives_ids_and_types(void **state)
{
    struct zt_tokenizer *t = parse(TOKENIZER(
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"[C]\","
        "\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":["
        "{\"SpecialToken\":{\"id\":\"[C]\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\","
        "\"type_id\":0}},{\"SpecialToken\":{\"id\":\"[S]\",\"type_id\":0}},"
        "{\"SpecialToken\":{\"id\":\"[S]\",\"type_id\":1}},{\"Sequence\":{\"id\":\"B\","
        "\"type_id\":1}}],\"special_tokens\":{\"[C]\":{\"id\":\"[C]\",\"ids\":[1],"
        "\"tokens\":[\"[C]\"]},\"[S]\":{\"id\":\"[S]\",\"ids\":[2],\"tokens\":[\"[S]\"]}}"
        "}"));
    struct zt_row_frame one = zt_tokenizer_frame(t), two;

    (void)state;
    assert_int_equal(one.before.num, 1);
    assert_int_equal(one.after.num, 0);
    assert_int_equal(zt_tokenizer_frame_pair(t, &two, &fault), ZT_OK);
    assert_int_equal(two.before.num, 1);
    assert_int_equal(two.before.ids[0], 1);
    assert_int_equal(two.between.num, 2);
    assert_int_equal(two.between.ids[1], 2);
    assert_int_equal(two.between.types[0], 0);
    assert_int_equal(two.between.types[1], 1);
    assert_int_equal(two.after.num, 0);
    assert_int_equal(two.type_a, 0);
    assert_int_equal(two.type_b, 1);
    zt_tokenizer_close(t);
}

static void test_frames_of_bert_and_roberta_differ_as_they_do(void **state)
{
    struct zt_tokenizer *bert = parse(TOKENIZER(
        "{\"type\":\"BertProcessing\",\"cls\":[\"[C]\",1],\"sep\":[\"[S]\",2]}"));
    struct zt_tokenizer *roberta = parse(TOKENIZER(
        "{\"type\":\"RobertaProcessing\",\"cls\":[\"[C]\",1],\"sep\":[\"[S]\",2],"
        "\"trim_offsets\":true,\"add_prefix_space\":false}"));
    struct zt_row_frame f;

    (void)state;
    assert_int_equal(zt_tokenizer_frame_pair(bert, &f, &fault), ZT_OK);
    assert_int_equal(f.between.num, 1);
    assert_int_equal(f.after.types[0], 1);
    assert_int_equal(f.type_b, 1);
    assert_int_equal(zt_tokenizer_frame_pair(roberta, &f, &fault), ZT_OK);
    assert_int_equal(f.between.num, 2);
    assert_int_equal(f.after.types[0], 0);
    assert_int_equal(f.type_b, 0);
    zt_tokenizer_close(bert);
    zt_tokenizer_close(roberta);
}

static void test_a_template_without_pairs_refuses_them_alone(void **state)
{
    struct zt_tokenizer *t = parse(TOKENIZER(
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\","
        "\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"B\",\"type_id\":0}},"
        "{\"Sequence\":{\"id\":\"A\",\"type_id\":1}}],\"special_tokens\":{}}"));
    struct zt_row_frame f = zt_tokenizer_frame(t);

    (void)state;
    assert_int_equal(f.before.num + f.after.num, 0);
    assert_int_equal(zt_tokenizer_frame_pair(t, &f, &fault), ZT_E_FORMAT);
    assert_non_null(strstr(fault.text, "how two texts are put together"));
    zt_tokenizer_close(t);
}

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[64];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void test_types_are_left_out_where_transformers_has_no_such_input(void **state)
{
    static const struct {
        const char *config;
        int type_b;
    } cases[] = {
        {"{}", 1},
        {"{\"tokenizer_class\":\"BertTokenizer\"}", 1},
        {"{\"tokenizer_class\":\"TokenizersBackend\"}", 0},
        {"{\"tokenizer_class\":\"TokenizersBackend\",\"model_input_names\":"
         "[\"input_ids\",\"token_type_ids\"]}",
         1},
        {"{\"tokenizer_class\":\"BertTokenizer\",\"model_input_names\":"
         "[\"input_ids\",\"attention_mask\"]}",
         0},
    };
    char dir[] = "/tmp/test_labels.XXXXXX", path[64];

    (void)state;
    assert_non_null(mkdtemp(dir));
    write_file(dir, "tokenizer.json",
               TOKENIZER("{\"type\":\"BertProcessing\",\"cls\":[\"[C]\",1],"
                         "\"sep\":[\"[S]\",2]}"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct zt_tokenizer *t = NULL;
        struct zt_row_frame f;

        write_file(dir, "tokenizer_config.json", cases[i].config);
        assert_int_equal(zt_tokenizer_open(dir, &t, &fault), ZT_OK);
        assert_int_equal(zt_tokenizer_frame_pair(t, &f, &fault), ZT_OK);
        assert_int_equal(f.type_b, cases[i].type_b);
        assert_int_equal(f.after.types ? f.after.types[0] : 0, cases[i].type_b);
        assert_int_equal(f.between.ids[0], 2);
        zt_tokenizer_close(t);
    }
    snprintf(path, sizeof(path), "%s/tokenizer.json", dir);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof(path), "%s/tokenizer_config.json", dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_are_in_the_order_of_text_and_numbers_in_theirs),
        cmocka_unit_test(test_labels_without_names_are_found_by_their_number),
        cmocka_unit_test(test_a_template_of_pairs_gives_ids_and_types),
        cmocka_unit_test(test_frames_of_bert_and_roberta_differ_as_they_do),
        cmocka_unit_test(test_a_template_without_pairs_refuses_them_alone),
        cmocka_unit_test(test_types_are_left_out_where_transformers_has_no_such_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
