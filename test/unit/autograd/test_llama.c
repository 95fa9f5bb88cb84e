/*
 * The numbers of models/llama.c: published sizes have the published counts, config.json
 * is taken whole or refused by the name of what is not built. Nothing is computed.
 */
#include "models/llama.c"
#include "test/unit/autograd/config_mutations.h"

static zt_err open_model(const char *words, const char *json, struct zt_model **out,
                         struct zt_fault *fault)
{
    return open_plugin(&zt_plugin_entry, words, json, out, fault);
}

static struct zt_model *open_good(const char *words, const char *json)
{
    struct zt_fault fault = {ZT_OK, ""};
    struct zt_model *m = NULL;

    if (open_model(words, json, &m, &fault))
        fail_msg("%s", fault.text);
    return m;
}

static void expect_refusal(const char *words, const char *json, const char *text,
                           zt_err code)
{
    struct zt_fault fault = {ZT_OK, ""};
    struct zt_model *m = NULL;

    assert_int_equal(open_model(words, json, &m, &fault), code);
    assert_null(m);
    if (!strstr(fault.text, text))
        fail_msg("\"%s\" does not say \"%s\"", fault.text, text);
}

/* ---- sizes ---- */

static void test_published_sizes_have_the_published_counts(void **state)
{
    static const struct {
        const char *name;
        int64_t numel;
    } published[] = {
        {"llama-7b", 6738415616},        {"llama2-7b", 6738415616},
        {"llama2-13b", 13015864320},     {"llama2-70b", 68976648192},
        {"tinyllama-1.1b", 1100048384},  {"llama3-8b", 8030261248},
        {"llama3-70b", 70553706496},     {"llama3.1-8b", 8030261248},
        {"llama3.1-70b", 70553706496},   {"llama3.1-405b", 405853388800},
        {"llama3.2-1b", 1235814400},     {"llama3.2-3b", 3212749824},
        {"qwen2-0.5b", 494032768},       {"qwen2-1.5b", 1543714304},
        {"qwen2-7b", 7615616512},        {"qwen2.5-0.5b", 494032768},
        {"qwen2.5-1.5b", 1543714304},    {"qwen2.5-3b", 3085938688},
        {"qwen2.5-7b", 7615616512},      {"qwen2.5-14b", 14770033664},
        {"qwen2.5-32b", 32763876352},    {"mistral-7b-v0.1", 7241732096},
        {"mistral-7b-v0.3", 7248023552}, {"qwen3-0.6b", 596049920},
        {"qwen3-1.7b", 1720574976},      {"qwen3-4b", 4022468096},
        {"qwen3-8b", 8190735360},        {"qwen3-14b", 14768307200},
        {"qwen3-32b", 32762123264},      {"gemma-2b", 2506172416},
        {"gemma-7b", 8537680896},
    };
    size_t n = sizeof(published) / sizeof(published[0]), choices = 1;

    (void)state;
    assert_int_equal(n, sizeof(sizes) / sizeof(sizes[0]));
    for (const char *at = NAMES; *at; at++)
        choices += *at == '|';
    assert_int_equal(n, choices);
    for (size_t i = 0; i < n; i++) {
        char words[64];
        struct zt_model *m;

        assert_string_equal(published[i].name, sizes[i].name);
        snprintf(words, sizeof(words), "--model %s", published[i].name);
        m = open_good(words, NULL);
        if (m->numel != published[i].numel)
            fail_msg("%s has %lld parameters", published[i].name, (long long)m->numel);
        assert_int_equal(m->vocab, sizes[i].vocab);
        assert_int_equal(m->hidden_size, sizes[i].width);
        assert_int_equal(m->max_tokens, sizes[i].positions);
        zt_model_close(m);
    }
}

static void test_options_change_single_numbers_of_a_size(void **state)
{
    struct zt_model *m = open_good("--model qwen2.5-0.5b --num_hidden_layers 2 "
                                   "--vocab_size 1000 --no_tie_word_embeddings "
                                   "--head_dim 32 --num_key_value_heads 7",
                                   NULL);

    (void)state;
    assert_int_equal(m->num_blocks, 4);
    assert_int_equal(m->vocab, 1000);
    assert_int_equal(zt_model_find(m, "lm_head.weight")->shape[0], 1000);
    assert_int_equal(zt_model_find(m, "model.layers.1.self_attn.q_proj.weight")->shape[0],
                     14 * 32);
    assert_int_equal(zt_model_find(m, "model.layers.0.self_attn.k_proj.bias")->shape[0],
                     7 * 32);
    assert_null(zt_model_find(m, "model.layers.0.self_attn.o_proj.bias"));
    assert_int_equal(zt_model_find(m, "model.layers.0.self_attn.k_proj.bias")->flags &
                         ZT_NO_DECAY,
                     ZT_NO_DECAY);
    assert_int_equal(zt_model_find(m, "lm_head.weight")->flags, 0);
    zt_model_close(m);
}

/* ---- frequencies ---- */

/* As transformers 5 computes them in fp32; some are kept, some between, some divided. */
static void test_frequencies_of_llama3_are_those_of_transformers(void **state)
{
    static const struct {
        const char *words;
        int at[7];
        double want[7];
    } cases[] = {
        {"--model llama3.1-8b",
         {0, 16, 28, 32, 36, 40, 63},
         {1.0, 0.0376060307, 0.00321144611, 0.000524846022, 7.78465546e-05,
          3.42810235e-05, 3.06892588e-07}},
        {"--model llama3.2-1b",
         {0, 8, 14, 16, 18, 20, 31},
         {1.0, 0.0376060307, 0.00321144611, 0.000429556705, 1.94616387e-05,
          8.57025589e-06, 9.41830649e-08}},
    };

    (void)state;
    for (size_t c = 0; c < 2; c++) {
        struct zt_model *m = open_good(cases[c].words, NULL);
        const struct llama *net = m->self;

        for (int i = 0; i < 7; i++) {
            double got = (double)net->inv_freq[cases[c].at[i]], want = cases[c].want[i];

            if (!(fabs(got - want) <= 2e-6 * want))
                fail_msg("%s: frequency %d is %.9g, not %.9g", cases[c].words,
                         cases[c].at[i], got, want);
        }
        zt_model_close(m);
    }
}

static void test_linear_scaling_divides_every_frequency(void **state)
{
    struct zt_model *a = open_good("--model llama2-7b", NULL);
    struct zt_model *b =
        open_good("--model llama2-7b --rope_type linear --rope_factor 4", NULL);
    const struct llama *plain = a->self, *linear4 = b->self;

    (void)state;
    for (int i = 0; i < 64; i++)
        assert_true(linear4->inv_freq[i] == plain->inv_freq[i] / 4);
    zt_model_close(a);
    zt_model_close(b);
}

/* ---- config.json ---- */

static void test_reals_that_are_whole_are_written_with_a_point(void **state)
{
    struct zt_model *m =
        open_good("--model llama2-7b --initializer_range 0 --rms_norm_eps 1", NULL);
    char *text = zt_model_config_text(m);

    (void)state;
    assert_non_null(text);
    assert_non_null(strstr(text, "\"initializer_range\": 0.0,"));
    assert_non_null(strstr(text, "\"rms_norm_eps\": 1.0,"));
    assert_non_null(strstr(text, "\"attention_dropout\": 0.0,"));
    free(text);
    zt_model_close(m);
}

static void test_keys_that_are_left_out_are_those_of_transformers(void **state)
{
    struct zt_model *m = open_good(NULL, "{\"model_type\": \"llama\"}");
    const struct llama *net = m->self;

    (void)state;
    assert_int_equal(m->numel, 6738415616);
    assert_true(net->c.eps == 1e-6 && net->c.theta == 1e4);
    assert_int_equal(net->c.scaling.type, NOT);
    zt_model_close(m);
    m = open_good(NULL, "{\"model_type\": \"qwen2\", \"num_attention_heads\": 16,"
                        "\"num_hidden_layers\": 2, \"head_dim\": null,"
                        "\"use_sliding_window\": true, \"max_window_layers\": 1,"
                        "\"layer_types\": [\"full_attention\", \"sliding_attention\"]}");
    net = m->self;
    assert_int_equal(net->c.kv_heads, 16);
    assert_int_equal(net->c.head_dim, 256);
    assert_int_equal(net->layers[0].window, 0);
    assert_int_equal(net->layers[1].window, 4096);
    assert_true(net->c.qkv_bias && !net->c.o_bias && !net->c.tied);
    zt_model_close(m);
}

static const struct llama *net_of(const char *json, struct zt_model **m)
{
    *m = open_good(NULL, json);
    return (*m)->self;
}

static void test_mistral_has_its_window_unless_it_is_null(void **state)
{
    struct zt_model *m;
    const struct llama *net =
        net_of("{\"model_type\": \"mistral\", \"num_hidden_layers\": 2}", &m);

    (void)state;
    assert_int_equal(net->c.kv_heads, 8);
    assert_int_equal(net->c.positions, 131072);
    assert_int_equal(net->layers[0].window, 4096);
    assert_int_equal(net->layers[1].window, 4096);
    zt_model_close(m);
    net = net_of("{\"model_type\": \"mistral\", \"num_hidden_layers\": 2,"
                 "\"sliding_window\": null}",
                 &m);
    assert_int_equal(net->layers[0].window, 0);
    assert_null(zt_model_find(m, "model.layers.0.self_attn.q_proj.bias"));
    zt_model_close(m);
}

static void test_qwen3_and_gemma_have_heads_of_their_own_width(void **state)
{
    struct zt_model *m;
    const struct llama *net =
        net_of("{\"model_type\": \"qwen3\", \"num_hidden_layers\": 1,"
               "\"hidden_size\": 1024, \"num_attention_heads\": 12,"
               "\"num_key_value_heads\": 4, \"attention_bias\": true}",
               &m);

    (void)state;
    assert_int_equal(net->c.head_dim, 128);
    assert_int_equal(zt_model_find(m, "model.layers.0.self_attn.q_norm.weight")->numel,
                     128);
    assert_non_null(zt_model_find(m, "model.layers.0.self_attn.o_proj.bias"));
    assert_false(net->c.tied);
    zt_model_close(m);
    net = net_of("{\"model_type\": \"gemma\", \"num_hidden_layers\": 1,"
                 "\"hidden_act\": \"gelu\"}",
                 &m);
    assert_int_equal(net->c.head_dim, 256);
    assert_int_equal(net->c.kv_heads, 16);
    assert_true(net->c.tied);
    assert_int_equal(zt_model_find(m, "model.norm.weight")->init.kind, ZT_INIT_ZEROS);
    assert_null(zt_model_find(m, "model.layers.0.self_attn.q_norm.weight"));
    zt_model_close(m);
}

static void test_settings_that_are_not_built_are_refused_by_name(void **state)
{
    static const struct {
        const char *json, *text;
    } cases[] = {
        {"{}", "config.json has model_type \"\"; this plugin builds llama, mistral, "},
        {"{\"model_type\": \"gemma2\"}", "model_type \"gemma2\""},
        {"{\"model_type\": \"mistral\", \"layer_types\": [\"full_attention\"]}",
         "layer_types.0 is not \"sliding_attention\""},
        {"{\"model_type\": \"mistral\", \"attention_bias\": true}", "attention_bias"},
        {"{\"model_type\": \"qwen3\", \"hidden_act\": \"gelu\"}",
         "\"hidden_act\" is \"gelu\", which is not built"},
        {"{\"model_type\": \"gemma\", \"hidden_act\": \"silu\"}",
         "\"hidden_act\" is \"silu\", which is not built"},
        {"{\"model_type\": \"gemma\", \"hidden_activation\": \"gelu\"}",
         "\"hidden_activation\" is \"gelu\", which is not built"},
        {"{\"model_type\": \"gemma\", \"use_bidirectional_attention\": true}",
         "\"use_bidirectional_attention\" is true, which is not built"},
        {"{\"model_type\": \"gemma\", \"sliding_window\": 4096}",
         "sliding_window: the gemma kind has none"},
        {"{\"model_type\": \"llama\", \"hidden_act\": \"gelu\"}",
         "\"hidden_act\" is \"gelu\", which is not built"},
        {"{\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"dynamic\"}}",
         "rope_type \"dynamic\": only default, linear and llama3 are built"},
        {"{\"model_type\": \"qwen2\", \"rope_scaling\": {\"rope_type\": \"yarn\"}}",
         "rope_type \"yarn\""},
        {"{\"model_type\": \"qwen2\", \"rope_parameters\": {\"rope_type\": "
         "\"longrope\"}}",
         "rope_type \"longrope\""},
        {"{\"model_type\": \"llama\", \"rope_parameters\": {\"rope_type\": \"default\"},"
         "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}",
         "rope_parameters and rope_scaling, of which transformers reads the latter"},
        {"{\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"linear\"}}",
         "rope_type linear of config.json needs a factor above 0"},
        {"{\"model_type\": \"llama\", \"partial_rotary_factor\": 0.5}",
         "partial_rotary_factor: only 1 is built"},
        {"{\"model_type\": \"llama\", \"rope_parameters\": {\"rope_type\": \"default\","
         "\"partial_rotary_factor\": 0.5}}",
         "partial_rotary_factor: only 1 is built"},
        {"{\"model_type\": \"llama\", \"rope_scaling\": {\"rope_type\": \"llama3\","
         "\"factor\": 8, \"low_freq_factor\": 4, \"high_freq_factor\": 4}}",
         "do not fit together"},
        {"{\"model_type\": \"llama\", \"sliding_window\": 4096}",
         "sliding_window: the llama kind has none"},
        {"{\"model_type\": \"qwen2\", \"use_sliding_window\": true,"
         "\"max_window_layers\": 1, \"num_hidden_layers\": 2,"
         "\"layer_types\": [\"sliding_attention\", \"sliding_attention\"]}",
         "layer_types.0 is not \"full_attention\", as sliding_window 4096 and "
         "max_window_layers 1 say"},
        {"{\"model_type\": \"llama\", \"num_attention_heads\": 6}",
         "hidden_size 4096 is not a multiple of num_attention_heads 6"},
        {"{\"model_type\": \"llama\", \"num_key_value_heads\": 5}",
         "num_attention_heads 32 is not a multiple of num_key_value_heads 5"},
        {"{\"model_type\": \"llama\", \"num_attention_heads\": 0}",
         "num_attention_heads is 0; it must be between 1 and 1024"},
        {"{\"model_type\": \"llama\", \"num_hidden_layers\": 1000000000000}",
         "num_hidden_layers is 1000000000000; it must be between 1 and 1000"},
        {"{\"model_type\": \"llama\", \"num_key_value_heads\": -1}",
         "num_key_value_heads is -1; it must be"},
        {"{\"model_type\": \"llama\", \"head_dim\": 33}", "head_dim 33 is not an even"},
        {"{\"model_type\": \"llama\", \"head_dim\": 2048}",
         "head_dim is 2048; it must be between 2 and 1024"},
        {"{\"model_type\": \"llama\", \"vocab_size\": \"many\"}",
         "vocab_size is \"many\", but an integer is wanted"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_refusal(NULL, cases[i].json, cases[i].text, ZT_E_CONFIG);
}

static void test_options_against_config_json_are_refused(void **state)
{
    static const char json[] = "{\"model_type\": \"llama\", \"num_hidden_layers\": 2,"
                               "\"rope_scaling\": {\"rope_type\": \"linear\","
                               "\"factor\": 2.0}}";

    (void)state;
    zt_model_close(open_good("--num_hidden_layers 2 --rope_type linear --rope_factor 2 "
                             "--rms_norm_eps 1e-6 --no_tie_word_embeddings",
                             json));
    expect_refusal("--num_hidden_layers 3", json,
                   "--num_hidden_layers 3, but the config.json of the weights says 2",
                   ZT_E_CONFIG);
    expect_refusal("--rope_theta 5e5", json,
                   "--rope_theta 500000, but the config.json of the weights says 10000",
                   ZT_E_CONFIG);
    expect_refusal("--rope_type llama3", json,
                   "--rope_type llama3, but the config.json of the weights says linear",
                   ZT_E_CONFIG);
    expect_refusal("--rope_factor 8", json, "--rope_factor 8, but", ZT_E_CONFIG);
    expect_refusal("--tie_word_embeddings", json, "--tie_word_embeddings is not what",
                   ZT_E_CONFIG);
}

static void expect_export(const char *words, const char *json, const char *line)
{
    struct zt_model *m = open_good(words, json);
    char *text = zt_model_config_text(m);

    assert_non_null(text);
    if (!strstr(text, line))
        fail_msg("%s is not in %s", line, text);
    free(text);
    zt_model_close(m);
}

static void test_exports_say_what_the_model_is(void **state)
{
    (void)state;
    expect_export("--model llama3.2-1b", NULL,
                  "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": "
                  "32.0000000000000, \"low_freq_factor\": 1.00000000000000, "
                  "\"high_freq_factor\": 4.00000000000000, "
                  "\"original_max_position_embeddings\": 8192},\n");
    expect_export("--model llama3.2-1b", NULL, "\"eos_token_id\": 128001,\n");
    expect_export("--model llama3.2-1b --vocab_size 300", NULL,
                  "\"eos_token_id\": null,\n");
    expect_export("--model llama3.2-1b", NULL, "\"tie_word_embeddings\": true,\n");
    expect_export("--model qwen2.5-7b --sliding_window 64 --max_window_layers 3", NULL,
                  "\"use_sliding_window\": true,\n  \"sliding_window\": 64,\n"
                  "  \"max_window_layers\": 3\n");
    expect_export("--model qwen2.5-7b", NULL,
                  "\"architectures\": [\"Qwen2ForCausalLM\"],\n");
    expect_export(NULL, "{\"model_type\": \"llama\", \"eos_token_id\": [7, 8, 9]}",
                  "\"eos_token_id\": [7, 8, 9],\n");
    expect_export(NULL, "{\"model_type\": \"llama\", \"eos_token_id\": null}",
                  "\"bos_token_id\": 1,\n  \"eos_token_id\": null,\n");
    expect_export(NULL, "{\"model_type\": \"llama\", \"vocab_size\": 300}",
                  "\"bos_token_id\": 1,\n  \"eos_token_id\": 2,\n");
    expect_export(NULL, "{\"model_type\": \"llama\", \"attention_bias\": true}",
                  "\"attention_bias\": true,\n  \"mlp_bias\": false\n");
    expect_export("--model mistral-7b-v0.1", NULL, "\"sliding_window\": 4096\n");
    expect_export("--model mistral-7b-v0.3", NULL, "\"sliding_window\": null\n");
    expect_export("--model qwen3-0.6b", NULL, "\"head_dim\": 128,\n");
    expect_export("--model gemma-2b", NULL, "\"hidden_act\": \"gelu_pytorch_tanh\",\n");
}

/* ---- mutations ---- */

static const char whole[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\","
    " \"vocab_size\": 320, \"hidden_size\": 64, \"intermediate_size\": 96,"
    " \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"
    " \"head_dim\": 16, \"max_position_embeddings\": 128, \"hidden_act\": \"silu\","
    " \"rms_norm_eps\": 1e-05, \"initializer_range\": 0.02, \"rope_theta\": 10000.0,"
    " \"attention_bias\": false, \"attention_dropout\": 0.125, \"mlp_bias\": false,"
    " \"tie_word_embeddings\": false, \"bos_token_id\": 1, \"eos_token_id\": 2,"
    " \"use_cache\": true, \"pretraining_tp\": 1, \"torch_dtype\": \"float32\","
    " \"transformers_version\": \"4.40.0\"}";

static const char *const ignored[] = {"use_cache", "pretraining_tp", "torch_dtype",
                                      "transformers_version", NULL};
static const char *const fixed[] = {NULL};
static const struct config_format format = {.plugin = &zt_plugin_entry,
                                            .whole = whole,
                                            .ignored = ignored,
                                            .fixed = fixed,
                                            .tolerance = 1e-14};

static void test_changed_bytes_mean_what_they_say_or_are_refused(void **state)
{
    (void)state;
    mutate_config(&format);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_sizes_have_the_published_counts),
        cmocka_unit_test(test_options_change_single_numbers_of_a_size),
        cmocka_unit_test(test_frequencies_of_llama3_are_those_of_transformers),
        cmocka_unit_test(test_linear_scaling_divides_every_frequency),
        cmocka_unit_test(test_reals_that_are_whole_are_written_with_a_point),
        cmocka_unit_test(test_keys_that_are_left_out_are_those_of_transformers),
        cmocka_unit_test(test_mistral_has_its_window_unless_it_is_null),
        cmocka_unit_test(test_qwen3_and_gemma_have_heads_of_their_own_width),
        cmocka_unit_test(test_settings_that_are_not_built_are_refused_by_name),
        cmocka_unit_test(test_options_against_config_json_are_refused),
        cmocka_unit_test(test_exports_say_what_the_model_is),
        cmocka_unit_test(test_changed_bytes_mean_what_they_say_or_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
