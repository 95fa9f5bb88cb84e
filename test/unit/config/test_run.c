/* What a run is by its options and its config together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <glob.h>
#include <math.h>
#include <sys/stat.h>

#include "test/unit/config/run_asserts.h"

static void assert_betas(const struct zt_run *r, double beta1, double beta2)
{
    const struct zt_hyperparam *p = zt_hyper_find(r->optim.optimizer->params, "betas");

    assert_true(r->optim.value[p->slot] == beta1);
    assert_true(r->optim.value[p->slot + 1] == beta2);
}

static void test_run_defaults_are_those_of_hugging_face(void **state)
{
    struct zt_run *r = accepted(try_it(2, NULL));

    (void)state;
    assert_int_equal(r->micro_batch_size, 8);
    assert_int_equal(r->grad_accum_steps, 1);
    assert_int_equal(r->train_batch_size, 16);
    assert_true(optim_value(r, "lr") == 5e-5);
    assert_betas(r, 0.9, 0.999);
    assert_true(optim_value(r, "eps") == 1e-8 && optim_value(r, "weight_decay") == 0);
    assert_string_equal(r->optim.optimizer->name, "AdamW");
    assert_true(optim_value(r, "bias_correction") == 1);
    assert_ptr_equal(r->sched.schedule, zt_schedule_of_option("linear"));
    assert_true(sched_value(r, "total_num_steps") == 1000);
    assert_true(r->max_grad_norm == 1);
    assert_int_equal(r->seed, 42);
    assert_int_equal(r->max_steps, -1);
    assert_true(r->num_train_epochs == 3);
    assert_int_equal(r->compute_dtype, ZT_F32);
    assert_int_equal(r->logging_steps, 10);
    assert_true(r->top_p == 1 && r->temperature == 1);
    assert_false(r->do_train);
    assert_null(r->output_dir);
    assert_string_equal(r->device, "auto");
    zt_run_close(r);
}

static void test_run_words_of_an_option_become_an_enum(void **state)
{
    struct zt_run *r = accepted(try_it(1, NULL));

    (void)state;
    assert_int_equal(r->reduction_order, ZT_ORDER_RANK);
    zt_run_close(r);
    r = accepted(try_it(1, NULL, "--reduction_order", "any"));
    assert_int_equal(r->reduction_order, ZT_ORDER_ANY);
    zt_run_close(r);
}

static void test_run_batch_follows_from_any_subset(void **state)
{
    /* B, m, g given (0: not); what comes out with 4 ranks, or 0: refused */
    static const int64_t cases[][6] = {
        {0, 0, 0, 32, 8, 1},  {64, 0, 0, 64, 16, 1}, {0, 3, 0, 12, 3, 1},
        {0, 0, 5, 160, 8, 5}, {64, 4, 0, 64, 4, 4},  {64, 0, 2, 64, 8, 2},
        {0, 2, 3, 24, 2, 3},  {24, 2, 3, 24, 2, 3},  {64, 3, 0, 0, 0, 0},
        {66, 0, 0, 0, 0, 0},  {64, 0, 3, 0, 0, 0},   {25, 2, 3, 0, 0, 0},
        {3, 0, 0, 0, 0, 0},
    };
    static const char *const names[] = {"train_batch_size",
                                        "train_micro_batch_size_per_gpu",
                                        "gradient_accumulation_steps"};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const int64_t *c = cases[i];
        char text[256] = "{ ";
        struct run_trial t;

        for (int k = 0; k < 3; k++)
            if (c[k])
                sprintf(text + strlen(text), "%s\"%s\": %d", strlen(text) > 2 ? ", " : "",
                        names[k], (int)c[k]);
        strcat(text, " }");
        t = try_it(4, text);
        if (!c[3]) {
            refused(t, ZT_E_CONFIG, "train_batch_size", "4 ranks");
            continue;
        }
        accepted(t);
        assert_int_equal(t.run->train_batch_size, c[3]);
        assert_int_equal(t.run->micro_batch_size, c[4]);
        assert_int_equal(t.run->grad_accum_steps, c[5]);
        zt_run_close(t.run);
    }
}

static void test_run_batch_takes_options_too(void **state)
{
    struct zt_run *r = accepted(
        try_it(2, "{\"train_batch_size\": 64}", "--per_device_train_batch_size", "4"));

    (void)state;
    assert_int_equal(r->grad_accum_steps, 8);
    zt_run_close(r);
    refused(try_it(2, "{\"train_batch_size\": 64, \"gradient_accumulation_steps\": 4}",
                   "--per_device_train_batch_size", "4"),
            ZT_E_CONFIG, "train_batch_size 64", "--per_device_train_batch_size");
}

static void test_run_batch_that_does_not_fit_names_one_that_does(void **state)
{
    (void)state;
    refused(try_it(3, "{\"train_batch_size\": 16}"), ZT_E_CONFIG,
            "3 ranks; what fits: train_batch_size 15 or 18", "train_batch_size 16 (");
    refused(try_it(3, "{\"train_batch_size\": 2}"), ZT_E_CONFIG,
            "3 ranks; what fits: train_batch_size 3", "");
    refused(try_it(2, "{\"train_batch_size\": 16}", "--per_device_train_batch_size", "3"),
            ZT_E_CONFIG,
            "what fits: train_batch_size 12 or 18, or train_micro_batch_size_per_gpu 2 "
            "with gradient_accumulation_steps 4",
            "");
    refused(try_it(2, "{\"train_batch_size\": 64, \"gradient_accumulation_steps\": 4}",
                   "--per_device_train_batch_size", "4"),
            ZT_E_CONFIG,
            "what fits: train_batch_size 32, or train_micro_batch_size_per_gpu 4 with "
            "gradient_accumulation_steps 8",
            "");
    refused(try_it(2, "{\"train_batch_size\": 9e18, "
                      "\"train_micro_batch_size_per_gpu\": 8e18}"),
            ZT_E_CONFIG, "train_batch_size", "2 ranks");
    refused(try_it(1, "{\"train_batch_size\": 9223372036854775807}"), ZT_E_CONFIG,
            "train_micro_batch_size_per_gpu 9223372036854775807 (rule: train_batch_size",
            "too large: at most 2147483647");
    refused(try_it(1, "{\"gradient_accumulation_steps\": 288230376151711744}"),
            ZT_E_CONFIG, "gradient_accumulation_steps 288230376151711744", "too large");
}

/* A section that is a comment says nothing, and an option that names its key does. */
static void test_run_comments_are_not_the_config(void **state)
{
    struct zt_run *r = accepted(try_it(
        1,
        "{\"x-ignore\": [\"optimizer\", \"scheduler\", \"zero_optimization.stage\"], "
        "\"optimizer\": {\"type\": \"Lamb\"}, \"scheduler\": {\"type\": \"OneCycle\"}, "
        "\"zero_optimization\": {\"stage\": 1}}",
        "--lr_scheduler_type=cosine", "--zero_stage=2"));

    (void)state;
    assert_true(optim_value(r, "lr") == 5e-5);
    assert_ptr_equal(r->sched.schedule, zt_schedule_of_option("cosine"));
    assert_int_equal(r->zero.stage, 2);
    zt_run_close(r);
    refused(try_it(1, "{\"x-ignore\": [\"scheduler.type\"], \"scheduler\": {\"type\": "
                      "\"WarmupLR\", \"params\": {\"warmup_num_steps\": 2}}}"),
            ZT_E_CONFIG, "\"scheduler\" has no \"type\"", "");
}

static const char everything_auto[] =
    "{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\",\n"
    " \"gradient_accumulation_steps\": \"auto\", \"gradient_clipping\": \"auto\",\n"
    " \"fp16\": {\"enabled\": \"auto\"}, \"bf16\": {\"enabled\": \"auto\"},\n"
    " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": \"auto\", \"betas\": "
    "\"auto\", \"eps\": \"auto\", \"weight_decay\": \"auto\"}},\n"
    " \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": "
    "\"auto\", \"warmup_min_lr\": \"auto\", \"warmup_max_lr\": \"auto\", "
    "\"warmup_num_steps\": \"auto\"}},\n"
    " \"zero_optimization\": {\"stage\": 0, \"reduce_bucket_size\": \"auto\"}}";

static void test_run_auto_takes_the_options(void **state)
{
    struct zt_run *r = accepted(try_it(
        2, everything_auto, "--bf16", "--learning_rate", "2e-4", "--adam_beta2", "0.95",
        "--adam_epsilon=1e-6", "--weight_decay", "0.1", "--max_grad_norm", "0.5",
        "--per_device_train_batch_size", "3", "--gradient_accumulation_steps", "2",
        "--warmup_ratio", "0.05", "--max_steps", "200"));
    char *text;

    (void)state;
    assert_int_equal(r->train_batch_size, 12);
    assert_int_equal(r->compute_dtype, ZT_BF16);
    assert_true(optim_value(r, "lr") == 2e-4);
    assert_betas(r, 0.9, 0.95);
    assert_true(optim_value(r, "eps") == 1e-6 && optim_value(r, "weight_decay") == 0.1);
    assert_true(r->max_grad_norm == 0.5);
    assert_string_equal(r->sched.schedule->type, "WarmupDecayLR");
    assert_true(sched_value(r, "warmup_max_lr") == 2e-4);
    assert_true(sched_value(r, "warmup_min_lr") == 0);
    assert_true(sched_value(r, "warmup_type") == 0); /* log */
    assert_true(sched_value(r, "warmup_num_steps") == 10);
    assert_true(sched_value(r, "total_num_steps") == 200);
    text = resolved_text(r);
    assert_non_null(strstr(text, "\"lr\": 0.0002, // auto: --learning_rate\n"));
    assert_non_null(strstr(text, "\"reduce_bucket_size\": 4096"));
    assert_null(strstr(text, "\"auto\", // auto"));
    free(text);
    zt_run_close(r);
}

static void test_run_file_and_option_must_not_contradict(void **state)
{
    static const struct {
        const char *config, *key;
        char *words[3];
    } cases[] = {
        {"{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 1e-3}}}",
         ":1:49: \"optimizer.params.lr\" is 1e-3",
         {"--learning_rate", "2e-3"}},
        {"{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"betas\": [0.9, 0.99]}}}",
         "optimizer.params.betas",
         {"--adam_beta2", "0.9"}},
        {"{\"gradient_clipping\": 1}", "gradient_clipping", {"--max_grad_norm", "2"}},
        {"{\"fp16\": {\"enabled\": false}}", "fp16.enabled", {"--fp16"}},
        {"{\"dataloader_drop_last\": false}", /* takes no "auto" */
         "make them agree, or leave one of them out",
         {"--dataloader_drop_last"}},
        {"{\"gradient_accumulation_steps\": 2}",
         "gradient_accumulation_steps",
         {"--gradient_accumulation_steps", "3"}},
        {"{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": "
         "10}}}",
         "scheduler.params.warmup_num_steps",
         {"--warmup_steps", "3"}},
        {"{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": "
         "10}}}",
         "scheduler.params.warmup_num_steps",
         {"--warmup_ratio", "0.5"}},
        {"{\"scheduler\": {\"type\": \"WarmupLR\"}}",
         "scheduler.type",
         {"--lr_scheduler_type", "cosine"}},
        {"{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": "
         "{\"total_num_steps\": "
         "10}}}",
         "total_num_steps",
         {"--max_steps", "3"}},
        {"{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"adam_w_mode\": false}}}",
         "adam_w_mode",
         {"--optim", "adamw"}},
        {"{\"activation_checkpointing\": {\"partition_activations\": true}}",
         "partition_activations",
         {"--no_gradient_checkpointing"}},
        {"{\"activation_checkpointing\": {\"cpu_checkpointing\": true}}",
         "cpu_checkpointing",
         {"--no_gradient_checkpointing"}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const char *name = strcmp(cases[i].words[0], "--no_gradient_checkpointing")
                               ? cases[i].words[0]
                               : "--gradient_checkpointing";

        refused(try_run(1, cases[i].config, cases[i].words), ZT_E_CONFIG, cases[i].key,
                name);
    }
    /* the same value twice is none */
    zt_run_close(accepted(try_it(1, cases[0].config, "--learning_rate", "0.001")));
}

/* What --activations stands for, and what may not stand beside it. */
static void test_run_activations(void **state)
{
    const char *host = "{\"activation_checkpointing\": {\"cpu_checkpointing\": true}}";
    struct zt_run *r;

    (void)state;
    r = accepted(try_it(1, "{}", "--activations", "recompute"));
    assert_true(r->gradient_checkpointing && !r->cpu_checkpointing);
    zt_run_close(r);
    r = accepted(try_it(1, "{}", "--activations", "host"));
    assert_true(r->gradient_checkpointing && r->cpu_checkpointing);
    zt_run_close(r);
    r = accepted(try_it(1, "{}", "--activations", "keep"));
    assert_true(!r->gradient_checkpointing && !r->cpu_checkpointing);
    zt_run_close(r);
    r = accepted(try_it(1, host, "--seed", "1"));
    assert_true(r->gradient_checkpointing && r->cpu_checkpointing);
    zt_run_close(r);
    refused(try_it(1, host, "--activations", "auto"), ZT_E_USAGE, "--activations is auto",
            ":1:");
    refused(try_it(1, "{}", "--activations", "keep", "--gradient_checkpointing"),
            ZT_E_USAGE, "--activations is keep", "--gradient_checkpointing");
}

static void test_run_flag_beats_environment_beats_file_beats_default(void **state)
{
    const char *config =
        "{\"zlaunch\": {\"seed\": 1, \"max_steps\": 2, \"eval_steps\": 3, "
        "\"model\": {\"n_layer\": 4, \"dropout\": 0.5}}}";
    struct zt_run *r;
    char *text;

    (void)state;
    setenv("ZLAUNCH_SEED", "10", 1);
    setenv("ZLAUNCH_MAX_STEPS", "20", 1);
    r = accepted(try_it(1, config, "--seed", "100", "--n_layer", "40"));
    assert_int_equal(r->seed, 100);
    assert_int_equal(r->max_steps, 20);
    assert_int_equal(r->eval_steps, 3);
    assert_int_equal(r->eval_batches, 0);
    assert_int_equal(zt_args_int(r->model_args, "n_layer"), 40);
    assert_true(zt_args_float(r->model_args, "dropout") == 0.5);
    text = resolved_text(r);
    assert_non_null(strstr(text, "\"seed\": 100, // --seed\n"));
    assert_non_null(strstr(text, "\"max_steps\": 20, // ZLAUNCH_MAX_STEPS\n"));
    assert_non_null(strstr(text, "\"eval_steps\": 3, // /tmp/"));
    assert_non_null(strstr(text, "\"eval_batches\": 0, // default\n"));
    free(text);
    zt_run_close(r);
    /* what the weights' config.json decides has no default, and can be given back */
    r = accepted(try_it(1, "{}", "--model_name_or_path", "/tmp/none"));
    text = resolved_text(r);
    assert_null(strstr(text, "\"n_layer\""));
    free(text);
    zt_run_close(r);
    r = accepted(try_it(3, "{}", "--model_name_or_path", "/tmp/none", "--n_layer", "7"));
    text = resolved_text(r);
    assert_non_null(strstr(text, "\"n_layer\": 7"));
    free(text);
    zt_run_close(r);
    unsetenv("ZLAUNCH_SEED");
    unsetenv("ZLAUNCH_MAX_STEPS");
}

static void test_run_all_problems_come_at_once(void **state)
{
    struct run_trial t =
        try_it(2,
               "{\"train_batch_sise\": 4,\n"
               " \"fp16\": {\"enabled\": true}, \"bf16\": {\"enabled\": true},\n"
               " \"zero_optimization\": {\"zero_quantized_weights\": true}}",
               "--learnin_rate", "1", "--max_steps", "many");

    (void)state;
    refused(t, ZT_E_USAGE,
            "--learnin_rate: unknown option; did you mean --learning_rate?",
            "--max_steps: \"many\"");
    refused(t, ZT_E_USAGE,
            ":1:2: unknown key \"train_batch_sise\"; did you mean "
            "\"train_batch_size\"?",
            "exclude each other");
    refused(t, ZT_E_USAGE, ":3:50: \"zero_optimization.zero_quantized_weights\": true",
            "not in this version");
}

static void test_run_missing_files_have_their_own_code(void **state)
{
    (void)state;
    refused(try_it(1, NULL, "--deepspeed", "/nowhere/ds.json"), ZT_E_NOINPUT,
            "/nowhere/ds.json", "No such file");
    refused(try_it(1, NULL, "--train_file", "/nowhere/*.txt"), ZT_E_NOINPUT,
            "/nowhere/*.txt", "--train_file");
    refused(try_it(1, NULL, "--do_train"), ZT_E_USAGE, "--do_train", "--train_file");
}

static void test_run_globs_are_expanded_in_order(void **state)
{
    struct zt_run *r =
        accepted(try_it(1, NULL, "--train_file", "common/json/*.h", "worker/config/run.h",
                        "--validation_file", "worker/config/run.c"));

    (void)state;
    assert_string_equal(r->train_files[0], "common/json/line.h");
    assert_string_equal(r->train_files[1], "common/json/tree.h");
    assert_string_equal(r->train_files[2], "worker/config/run.h");
    assert_null(r->train_files[3]);
    assert_string_equal(r->eval_files[0], "worker/config/run.c");
    zt_run_close(r);
    r = accepted(
        try_it(1, NULL, "--train_file", "{worker/config/{run,config},common/l*}.h"));
    assert_string_equal(r->train_files[0], "worker/config/run.h");
    assert_string_equal(r->train_files[1], "worker/config/config.h");
    assert_string_equal(r->train_files[2], "common/loadable.h");
    zt_run_close(r);
    refused(try_it(1, NULL, "--train_file", "worker/config/{run,nowhere}.h"),
            ZT_E_NOINPUT, "there is no file worker/config/nowhere.h", "--train_file");
}

static void test_run_weights_are_not_replaced_unasked(void **state)
{
    struct zt_run_facts facts = {.world = 1, .local_world = 1, .program = "train.so"};
    char dir[] = "/tmp/zt_out_XXXXXX", path[64];
    struct zt_fault fault = {0};
    struct zt_run *run = NULL;
    FILE *f;

    (void)state;
    assert_non_null(mkdtemp(dir));
    char *argv[] = {
        "--do_train", "--train_file",          "worker/config/run.h", "--output_dir",
        dir,          "--overwrite_output_dir"};

    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(zt_run_open(5, argv, &facts, &run, &fault), ZT_E_CANTCREATE);
    assert_non_null(strstr(fault.text, path));
    assert_int_equal(zt_run_open(6, argv, &facts, &run, &fault), ZT_OK);
    zt_run_close(run);
    unlink(path);
    rmdir(dir);
}

static void test_run_needs_something_to_do(void **state)
{
    struct zt_run_facts facts = {.world = 1, .local_world = 1, .program = "train.so"};
    char *argv[] = {"--prompt", "x"};
    struct zt_fault fault = {0};
    struct zt_run *run = NULL;

    (void)state;
    assert_int_equal(zt_run_open(0, argv, &facts, &run, &fault), ZT_E_USAGE);
    assert_int_equal(zt_run_open(2, argv, &facts, &run, &fault), ZT_OK);
    assert_int_equal(run->generate_tokens, 100);
    zt_run_close(run);
}

/* Data say what is meant; who names one thing alone gets that alone. */
static void test_run_task_follows_from_the_files(void **state)
{
    static const struct {
        const char *words[5];
        bool train, eval;
    } cases[] = {
        {{"--train_file", "Makefile"}, true, false},
        {{"--train_file", "Makefile", "--dry_run"}, true, false},
        {{"--eval_file", "Makefile"}, false, true},
        {{"--train_file", "Makefile", "--eval_file", "Makefile"}, true, true},
        {{"--do_train", "--train_file=Makefile", "--eval_file=Makefile"}, true, false},
        {{"--train_file", "Makefile", "--do_eval"}, false, true},
        {{"--train_file", "Makefile", "--do_eval=false"}, true, false},
        {{"--train_file", "Makefile", "--do_train=false"}, false, false},
        {{"--train_file", "Makefile", "--prompt", "a"}, true, false},
        {{"--eval_file", "Makefile", "--prompt", "a"}, false, true},
        {{"--prompt", "a"}, false, false},
        {{"--check_config"}, false, false},
    };
    struct zt_run *r;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        r = accepted(try_run(1, NULL, (char *const *)(uintptr_t)cases[i].words));
        assert_int_equal(r->do_train, cases[i].train);
        assert_int_equal(r->do_eval, cases[i].eval);
        zt_run_close(r);
    }
    r = accepted(try_it(1, "{\"zlaunch\": {\"train_file\": [\"Makefile\"]}}"));
    assert_true(r->do_train);
    zt_run_close(r);
}

static void test_run_plugin_options_cannot_hide_run_options(void **state)
{
    static const struct zt_option clash[] = {
        {.name = "seed", .kind = ZT_OPT_INT, .help = "x"}, {.name = NULL}};
    struct zt_run_facts facts = {
        .world = 1, .model_options = clash, .program = "train.so"};
    struct zt_fault fault = {0};
    struct zt_run *run = NULL;

    (void)state;
    assert_int_equal(zt_run_open(0, NULL, &facts, &run, &fault), ZT_E_PLUGIN);
    assert_non_null(strstr(fault.text, "--seed"));
}

static void test_run_config_may_come_as_base64(void **state)
{
    /* {"zlaunch":{"seed":7}} */
    struct zt_run *r =
        accepted(try_it(1, NULL, "--deepspeed", "eyJ6bGF1bmNoIjp7InNlZWQiOjd9fQ=="));

    (void)state;
    assert_int_equal(r->seed, 7);
    zt_run_close(r);
}

/* Resolving what was printed prints the same; a second time, to the letter. */
static void check_fixed_point(const char *config, char *const *words)
{
    struct zt_run *one = accepted(try_run(2, config, words)), *two, *three;
    char *first = resolved_text(one), *second, *third, *bare;

    bare = strdup(first);
    two = accepted(try_it(2, first));
    second = resolved_text(two);
    three = accepted(try_it(2, second));
    third = resolved_text(three);
    assert_string_equal(second, third);
    assert_string_equal(without_comments(bare), without_comments(second));
    assert_int_equal(one->max_steps, two->max_steps);
    assert_memory_equal(&one->optim, &two->optim, sizeof(one->optim));
    assert_memory_equal(&one->scaler, &two->scaler, sizeof(one->scaler));
    assert_memory_equal(&one->sched, &two->sched, sizeof(one->sched));
    assert_int_equal(one->compute_dtype, two->compute_dtype);
    assert_int_equal(one->generate_tokens, two->generate_tokens);
    assert_int_equal(one->logging_steps, two->logging_steps);
    assert_int_equal(one->gradient_checkpointing, two->gradient_checkpointing);
    free(first);
    free(second);
    free(third);
    free(bare);
    zt_run_close(one);
    zt_run_close(two);
    zt_run_close(three);
}

static char *whole_file(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = calloc(1, 65536);

    assert_non_null(f);
    assert_non_null(text);
    assert_true(fread(text, 1, 65535, f) > 0);
    fclose(f);
    return text;
}

static void test_run_printed_config_is_a_fixed_point(void **state)
{
    char *words[] = {"--max_steps", "30",           "--n_layer",
                     "3",           "--train_file", "worker/config/run.h",
                     "--do_train",  "--seed",       "9",
                     "--prompt",    "a \"b\" // c", NULL};
    char *none[] = {NULL};
    glob_t files;

    (void)state;
    assert_int_equal(glob("ds_configs/*.json", 0, NULL, &files), 0);
    check_fixed_point("{}", words);
    check_fixed_point(everything_auto, words);
    check_fixed_point(
        "{\"fp16\": {\"enabled\": true}, \"flops_profiler\": {\"enabled\": "
        "false, \"profile_step\": 4}, \"aio\": {\"queue_depth\": 3e1}, "
        "\"optimizer\": {}, \"scheduler\": {}, \"tensor_parallel\": {\"tp\": "
        "{\"tp_size\": 1}}, \"activation_checkpointing\": "
        "{\"partition_activations\": true}}",
        none);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        char *text = whole_file(files.gl_pathv[i]);

        if (strstr(files.gl_pathv[i], "zero") == NULL)
            check_fixed_point(text, words);
        free(text);
    }
    globfree(&files);
}

static void test_run_shipped_configs_are_accepted(void **state)
{
    glob_t files;

    (void)state;
    assert_int_equal(glob("ds_configs/*.json", 0, NULL, &files), 0);
    assert_true(files.gl_pathc >= 7);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        char *text = whole_file(files.gl_pathv[i]);

        zt_run_close(accepted(try_it(2, text, "--max_steps", "30")));
        free(text);
    }
    globfree(&files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_defaults_are_those_of_hugging_face),
        cmocka_unit_test(test_run_words_of_an_option_become_an_enum),
        cmocka_unit_test(test_run_batch_follows_from_any_subset),
        cmocka_unit_test(test_run_batch_takes_options_too),
        cmocka_unit_test(test_run_batch_that_does_not_fit_names_one_that_does),
        cmocka_unit_test(test_run_comments_are_not_the_config),
        cmocka_unit_test(test_run_auto_takes_the_options),
        cmocka_unit_test(test_run_file_and_option_must_not_contradict),
        cmocka_unit_test(test_run_activations),
        cmocka_unit_test(test_run_flag_beats_environment_beats_file_beats_default),
        cmocka_unit_test(test_run_all_problems_come_at_once),
        cmocka_unit_test(test_run_missing_files_have_their_own_code),
        cmocka_unit_test(test_run_globs_are_expanded_in_order),
        cmocka_unit_test(test_run_weights_are_not_replaced_unasked),
        cmocka_unit_test(test_run_needs_something_to_do),
        cmocka_unit_test(test_run_task_follows_from_the_files),
        cmocka_unit_test(test_run_plugin_options_cannot_hide_run_options),
        cmocka_unit_test(test_run_config_may_come_as_base64),
        cmocka_unit_test(test_run_printed_config_is_a_fixed_point),
        cmocka_unit_test(test_run_shipped_configs_are_accepted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
