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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changed_bytes_mean_what_they_say_or_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
