/* The config.json of models/gpt2.c: taken whole, or refused by name. Nothing is computed. */
#include "models/gpt2.c"
#include "test/unit/autograd/config_mutations.h"

static const char *const ignored[] = {
    "n_ctx",           "summary_*",         "reorder_and_upcast_attn",
    "use_cache",       "initializer_range", "transformers_version",
    "task_specific_*", "torch_dtype",       NULL};
static const char *const fixed[] = {"scale_attn_weights",
                                    "scale_attn_by_inverse_layer_idx",
                                    "add_cross_attention", "tie_word_embeddings", NULL};
static const struct config_format format = {
    .plugin = &zt_plugin_entry,
    .whole =
        "{\"activation_function\": \"gelu_new\", \"add_cross_attention\": false,"
        " \"architectures\": [\"GPT2LMHeadModel\"], \"attn_pdrop\": 0.125,"
        " \"bos_token_id\": 319, \"embd_pdrop\": 0.25, \"eos_token_id\": 319,"
        " \"initializer_range\": 0.02, \"layer_norm_epsilon\": 1e-05,"
        " \"model_type\": \"gpt2\", \"n_ctx\": 128, \"n_embd\": 64, \"n_head\": 4,"
        " \"n_inner\": 96, \"n_layer\": 2, \"n_positions\": 128, \"resid_pdrop\": 0.5,"
        " \"reorder_and_upcast_attn\": false, \"scale_attn_by_inverse_layer_idx\": false,"
        " \"scale_attn_weights\": true, \"summary_type\": \"cls_index\","
        " \"summary_use_proj\": true, \"task_specific_params\": null,"
        " \"tie_word_embeddings\": true, \"torch_dtype\": \"float32\","
        " \"transformers_version\": \"4.40.0\", \"use_cache\": true,"
        " \"vocab_size\": 320}",
    .ignored = ignored,
    .fixed = fixed,
    .tolerance = 1e-7, /* numbers are floats here */
};

static void test_changed_bytes_mean_what_they_say_or_are_refused(void **state)
{
    (void)state;
    mutate_config(&format);
}

/* tokens: of config.json, as they come out again. */
static void expect_tokens(const char *json, const char *line)
{
    struct zt_model *m = NULL;
    struct zt_fault fault = {ZT_OK, ""};
    char *text;

    assert_int_equal(open_plugin(&zt_plugin_entry, NULL, json, &m, &fault), ZT_OK);
    text = zt_model_config_text(m);
    assert_non_null(text);
    if (!strstr(text, line))
        fail_msg("%s is not in %s", line, text);
    free(text);
    zt_model_close(m);
}

static void test_tokens_of_an_imported_config_stay(void **state)
{
    (void)state;
    expect_tokens(
        "{\"model_type\": \"gpt2\", \"vocab_size\": 300, \"bos_token_id\": null, "
        "\"eos_token_id\": 7}",
        "\"bos_token_id\": null,\n  \"eos_token_id\": 7,\n");
    expect_tokens(
        "{\"model_type\": \"gpt2\", \"vocab_size\": 50257, \"bos_token_id\": 7, "
        "\"eos_token_id\": null}",
        "\"bos_token_id\": 7,\n  \"eos_token_id\": null,\n");
    expect_tokens("{\"model_type\": \"gpt2\", \"vocab_size\": 50304}",
                  "\"bos_token_id\": 50256,\n  \"eos_token_id\": 50256,\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changed_bytes_mean_what_they_say_or_are_refused),
        cmocka_unit_test(test_tokens_of_an_imported_config_stay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
