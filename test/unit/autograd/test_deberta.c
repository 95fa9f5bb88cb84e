/*
 * The numbers of models/deberta.c: published sizes have the published counts, config.json is
 * taken whole or refused by the name of what is not built; rows of distances. Nothing is computed.
 */
#include "models/deberta.c"
#include "test/unit/autograd/config_mutations.h"

static void test_published_sizes_have_the_published_counts(void **state)
{
    static const struct {
        const char *name;
        int64_t numel; /* with the head of masked tokens */
    } published[] = {
        {"deberta-v3-base", 184551780},     {"deberta-v3-xsmall", 70958820},
        {"deberta-v3-small", 142024548},    {"deberta-v3-large", 435191908},
        {"mdeberta-v3-base", 279061880},    {"deberta-v2-xlarge", 887085156},
        {"deberta-v2-xxlarge", 1567041636},
    };
    size_t n = sizeof(published) / sizeof(published[0]);

    (void)state;
    assert_int_equal(n, sizeof(sizes) / sizeof(sizes[0]));
    for (size_t i = 0; i < n; i++) {
        struct zt_fault fault = {ZT_OK, ""};
        struct zt_model *m = NULL;
        char words[64];

        assert_string_equal(published[i].name, sizes[i].name);
        snprintf(words, sizeof(words), "--model %s", published[i].name);
        assert_non_null(strstr(options[0].choices, published[i].name));
        if (open_plugin(&zt_plugin_entry, words, NULL, &m, &fault))
            fail_msg("%s", fault.text);
        if (m->numel != published[i].numel)
            fail_msg("%s has %lld parameters", published[i].name, (long long)m->numel);
        assert_int_equal(m->max_tokens, 512);
        zt_model_close(m);
    }
}

/* As the published v2 and v3 have it: 256 buckets on either side, of 512 positions. */
static void test_far_distances_share_rows_of_the_table(void **state)
{
    const struct deberta_config c = {.buckets = 256, .max_distance = 512};
    static const int64_t rows[][2] = {{0, 256},   {1, 257},    {-1, 255},   {128, 384},
                                      {129, 385}, {130, 386},  {131, 387},  {511, 511},
                                      {512, 511}, {9000, 511}, {-129, 127}, {-511, 1},
                                      {-512, 0},  {-9000, 0}};
    int64_t before = -1;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(row_of(&c, rows[i][0]), rows[i][1]);
    for (int64_t d = -600; d <= 600; d++) {
        assert_true(row_of(&c, d) >= before); /* so that each bucket is one run */
        before = row_of(&c, d);
    }
    assert_int_equal(num_rows(&c, 1), 1);
    assert_int_equal(num_rows(&c, 128), 255);
    assert_int_equal(num_rows(&c, 512), 511);
}

static const char *const ignored[] = {
    "transformers_version", "torch_dtype", "dtype", "z_steps", "architectures", NULL};
static const char *const fixed[] = {"conv_groups", "attention_head_size",
                                    "pooler_hidden_size", "problem_type", NULL};
static const struct config_format format = {
    .plugin = &zt_plugin_entry,
    .whole =
        "{\"architectures\": [\"DebertaV2ForMaskedLM\"], \"attention_head_size\": 16,"
        " \"attention_probs_dropout_prob\": 0.125, \"cls_dropout\": 0.375,"
        " \"conv_act\": \"gelu\", \"conv_groups\": 1, \"conv_kernel_size\": 3,"
        " \"embedding_size\": 48, \"hidden_act\": \"gelu\","
        " \"hidden_dropout_prob\": 0.25, \"hidden_size\": 64,"
        " \"initializer_range\": 0.02, \"intermediate_size\": 96,"
        " \"layer_norm_eps\": 1e-07, \"legacy\": true, \"max_position_embeddings\": 128,"
        " \"max_relative_positions\": 100, \"model_type\": \"deberta-v2\","
        " \"norm_rel_ebd\": \"layer_norm\", \"num_attention_heads\": 4,"
        " \"num_hidden_layers\": 2, \"pad_token_id\": 0, \"pooler_dropout\": 0.5,"
        " \"pooler_hidden_act\": \"tanh\", \"pooler_hidden_size\": 64,"
        " \"pos_att_type\": [\"p2c\", \"c2p\"], \"position_biased_input\": false,"
        " \"position_buckets\": 32, \"relative_attention\": true,"
        " \"share_att_key\": true, \"tie_word_embeddings\": true,"
        " \"torch_dtype\": \"float32\", \"transformers_version\": \"4.40.0\","
        " \"type_vocab_size\": 2, \"vocab_size\": 320}",
    .ignored = ignored,
    .fixed = fixed,
    .tolerance = 1e-8,
};

static void test_changed_bytes_mean_what_they_say_or_are_refused(void **state)
{
    (void)state;
    mutate_config(&format);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_sizes_have_the_published_counts),
        cmocka_unit_test(test_far_distances_share_rows_of_the_table),
        cmocka_unit_test(test_changed_bytes_mean_what_they_say_or_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
