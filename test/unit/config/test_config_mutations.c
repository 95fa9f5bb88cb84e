/*
 * A thousand random mutations of valid configs, each against an oracle that knows nothing
 * of the resolver: a mutant is either refused with the mutated key in the message, or
 * accepted, and then
 *   - whatever the file says stands in the resolved config with the same value, and
 *   - whatever it does not say has the value it has without any file, unless it follows
 *     from the batch triad or the optimizer's rate.
 * Files and resolved configs are compared as jansson reads them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <strings.h>

#include "test/unit/config/run_helper.h"
#include "test/unit/mutations.h"

static const char *const bases[] = {
    "{\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 4,"
    " \"gradient_accumulation_steps\": 4, \"steps_per_print\": 20,"
    " \"gradient_clipping\": 0.5, \"dump_state\": false, \"dataloader_drop_last\": true,"
    " \"fp16\": {\"enabled\": true, \"loss_scale\": 0, \"initial_scale_power\": 12,"
    " \"loss_scale_window\": 500, \"hysteresis\": 3, \"min_loss_scale\": 2},"
    " \"bf16\": {\"enabled\": false},"
    " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.002, \"betas\": [0.8,"
    " 0.95], \"eps\": 1e-7, \"weight_decay\": 0.1, \"bias_correction\": false}},"
    " \"zero_optimization\": {\"stage\": 0, \"reduce_bucket_size\": 1000,"
    " \"overlap_comm\": true, \"offload_optimizer\": {\"device\": \"none\"}},"
    " \"activation_checkpointing\": {\"partition_activations\": false,"
    " \"number_checkpoints\": 4}, \"wall_clock_breakdown\": false,"
    " \"zlaunch\": {\"seed\": 5, \"max_steps\": 50, \"lr_scheduler_type\": \"cosine\","
    " \"warmup_steps\": 7, \"temperature\": 0.5, \"model\": {\"n_layer\": 3,"
    " \"dropout\": 0.25}}}",

    "{\"train_micro_batch_size_per_gpu\": 2, \"bf16\": {\"enabled\": true,"
    " \"check_grad_overflow\": false}, \"communication_data_type\": \"fp32\","
    " \"data_types\": {\"grad_accum_dtype\": \"fp32\"}, \"prescale_gradients\": true,"
    " \"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.01, \"adam_w_mode\":"
    " false, \"torch_adam\": false}},"
    " \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_min_lr\": 1e-5,"
    " \"warmup_max_lr\": 0.01, \"warmup_num_steps\": 10, \"total_num_steps\": 100,"
    " \"warmup_type\": \"linear\"}}, \"aio\": {\"block_size\": 4096, \"queue_depth\": 4},"
    " \"flops_profiler\": {\"enabled\": false, \"profile_step\": 3},"
    " \"tensorboard\": {\"enabled\": false, \"job_name\": \"x\"},"
    " \"checkpoint\": {\"tag_validation\": \"Fail\"}, \"steps_per_print\": 5}",

    "{\"train_micro_batch_size_per_gpu\": 1, \"communication_data_type\": \"bf16\","
    " \"data_types\": {\"grad_accum_dtype\": \"bf16\"}, \"prescale_gradients\": true,"
    " \"gradient_predivide_factor\": 2.0, \"zero_optimization\": {\"stage\": 3,"
    " \"overlap_comm\": false, \"reduce_scatter\": false, \"reduce_bucket_size\": 5e6,"
    " \"allgather_partitions\": false, \"allgather_bucket_size\": 7000000,"
    " \"sub_group_size\": 100000, \"contiguous_gradients\": true,"
    " \"stage3_prefetch_bucket_size\": 300000, \"stage3_param_persistence_threshold\": "
    "64,"
    " \"stage3_model_persistence_threshold\": 9000, \"stage3_max_live_parameters\": 4e5,"
    " \"stage3_max_reuse_distance\": 0, \"round_robin_gradients\": true,"
    " \"stage3_gather_16bit_weights_on_model_save\": true, \"zero_hpz_partition_size\": "
    "2,"
    " \"ignore_unused_parameters\": false}, \"zlaunch\": {\"comm\": \"shm\","
    " \"trace\": \"t.json\"}}",
};

/* ---- random ---- */

static uint64_t seed = 20240607;

static unsigned draw(unsigned n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % n;
}

/* ---- a tree as paths ---- */

struct leaf {
    char path[256];
    json_t *value; /* borrowed */
    json_t *parent;
    char key[64];
};

struct leaves {
    struct leaf at[512];
    int n;
};

/* Every member of every object; arrays are values. `inner` adds the objects too. */
static void collect(json_t *obj, const char *prefix, bool inner, struct leaves *out)
{
    const char *key;
    json_t *value;

    json_object_foreach(obj, key, value)
    {
        struct leaf *l = &out->at[out->n];

        if ((*key == '#' || *key == '_') && strcmp(prefix, "zlaunch.model") != 0)
            continue; /* a comment, and noted as one */
        assert_true(out->n < 512);
        snprintf(l->path, sizeof(l->path), "%s%s%s", prefix, *prefix ? "." : "", key);
        snprintf(l->key, sizeof(l->key), "%s", key);
        l->value = value;
        l->parent = obj;
        if (json_is_object(value)) {
            char path[256];

            snprintf(path, sizeof(path), "%s", l->path);
            out->n += inner;
            collect(value, path, inner, out);
        } else {
            out->n++;
        }
    }
}

static json_t *look_up(json_t *root, const char *path)
{
    char name[256];

    while (root && *path) {
        size_t n = strcspn(path, ".");

        snprintf(name, sizeof(name), "%.*s", (int)n, path);
        root = json_object_get(root, name);
        path += n + (path[n] == '.');
    }
    return root;
}

/* Same meaning: numbers by value; what the reader takes as a boolean value, too. */
static bool same(json_t *said, json_t *got)
{
    if (json_is_number(said) && json_is_number(got))
        return json_number_value(said) == json_number_value(got);
    if (json_is_boolean(got) && json_is_string(said))
        return !strcmp(json_string_value(said), json_is_true(got) ? "true" : "false");
    if (json_is_boolean(got) && json_is_integer(said))
        return json_integer_value(said) == json_is_true(got);
    if (json_is_array(said) && json_is_array(got)) {
        size_t i;
        json_t *v;

        json_array_foreach(said, i, v) if (!same(v, json_array_get(got, i))) return false;
        return json_array_size(said) == json_array_size(got);
    }
    return json_equal(said, got);
}

/* The documented old forms: names and choices in any case, ZeRO as true or false. */
static bool same_in_old_form(const char *path, json_t *said, json_t *got)
{
    if ((!strcmp(path, "optimizer.type") || !strcmp(path, "checkpoint.tag_validation") ||
         !strcmp(path, "zlaunch.lr_scheduler_type") || !strcmp(path, "zlaunch.comm")) &&
        json_is_string(said) && json_is_string(got))
        return !strcasecmp(json_string_value(said), json_string_value(got));
    if (!strcmp(path, "zero_optimization") && json_is_boolean(said))
        return json_integer_value(json_object_get(got, "stage")) == json_is_true(said);
    return false;
}

/* ---- the oracle ---- */

static json_t *resolved_json(const struct zt_run *run)
{
    char *text = without_comments(resolved_text(run));
    json_t *tree = json_loads(text, JSON_REJECT_DUPLICATES, NULL);

    assert_non_null(tree);
    free(text);
    return tree;
}

/* Values that follow from others when the file leaves them out. */
static bool follows(const char *path)
{
    static const char *const names[] = {
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps",
        "optimizer.params.lr",
        "scheduler.",
        "zlaunch.gradient_checkpointing",
        "optimizer.params.weight_decay",
        "zlaunch.generate_tokens",
        "zlaunch.warmup",
        "zlaunch.lr_scheduler_type",
        "zero_optimization.overlap_comm",
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (!strncmp(path, names[i], strlen(names[i])))
            return true;
    return false;
}

static void complain(const char *what, const char *path, const char *text)
{
    print_error("%s: %s\nin %s\n", what, path, text);
    fail();
}

static json_t *plain; /* the resolved config of an empty file */

static int resolve_nothing(void **state)
{
    struct run_trial none = try_it(2, "{}");

    (void)state;
    plain = resolved_json(none.run);
    zt_run_close(none.run);
    return 0;
}

static int forget_it(void **state)
{
    (void)state;
    json_decref(plain);
    return 0;
}

static void check_meaning(json_t *said, const struct zt_run *run, const char *text)
{
    static struct leaves file, all;
    json_t *got = resolved_json(run);

    file.n = all.n = 0;
    collect(said, "", false, &file);
    collect(got, "", false, &all);
    for (int i = 0; i < file.n; i++) {
        json_t *value = look_up(got, file.at[i].path);

        if (json_is_null(file.at[i].value))
            continue; /* not given: checked below */
        if (!value || (!same(file.at[i].value, value) &&
                       !same_in_old_form(file.at[i].path, file.at[i].value, value)))
            complain("the file says otherwise", file.at[i].path, text);
    }
    for (int i = 0; i < all.n; i++) {
        json_t *in_file = look_up(said, all.at[i].path);

        if ((in_file && !json_is_null(in_file)) || follows(all.at[i].path))
            continue;
        if (json_is_true(json_object_get(said, "zero_optimization")) &&
            strcmp(all.at[i].path, "zero_optimization.stage") == 0) {
            /* the oldest form */
            assert_int_equal(json_integer_value(all.at[i].value), 1);
            continue;
        }
        if (!json_equal(all.at[i].value, look_up(plain, all.at[i].path)))
            complain("nobody said so", all.at[i].path, text);
    }
    json_decref(got);
}

/* The numbers of the run are those it prints. */
static void check_numbers(const struct zt_run *run, const char *text)
{
    json_t *t = resolved_json(run);
    const struct {
        const char *path;
        double value;
    } pairs[] = {
        {"train_batch_size", (double)run->train_batch_size},
        {"train_micro_batch_size_per_gpu", (double)run->micro_batch_size},
        {"gradient_accumulation_steps", (double)run->grad_accum_steps},
        {"steps_per_print", (double)run->logging_steps},
        {"gradient_clipping", run->max_grad_norm},
        {"optimizer.params.lr", optim_value(run, "lr")},
        {"optimizer.params.eps", optim_value(run, "eps")},
        {"optimizer.params.weight_decay", optim_value(run, "weight_decay")},
        {"fp16.loss_scale", run->scaler.loss_scale},
        {"fp16.initial_scale_power", run->scaler.initial_scale_power},
        {"fp16.loss_scale_window", (double)run->scaler.loss_scale_window},
        {"fp16.hysteresis", run->scaler.hysteresis},
        {"fp16.min_loss_scale", run->scaler.min_loss_scale},
        {"scheduler.params.warmup_max_lr", sched_value(run, "warmup_max_lr")},
        {"scheduler.params.warmup_num_steps", sched_value(run, "warmup_num_steps")},
        {"zlaunch.seed", (double)run->seed},
        {"zlaunch.max_steps", (double)run->max_steps},
        {"zlaunch.temperature", run->temperature},
        {"zlaunch.model.n_layer", (double)zt_args_int(run->model_args, "n_layer")},
        {"zlaunch.model.dropout", zt_args_float(run->model_args, "dropout")},
    };
    zt_dtype dtype = json_is_true(look_up(t, "fp16.enabled"))   ? ZT_F16
                     : json_is_true(look_up(t, "bf16.enabled")) ? ZT_BF16
                                                                : ZT_F32;

    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
        json_t *v = look_up(t, pairs[i].path);

        if (v && json_number_value(v) != pairs[i].value)
            complain("printed is not what is done", pairs[i].path, text);
    }
    assert_int_equal(run->compute_dtype, dtype);
    assert_int_equal(optim_value(run, "bias_correction"),
                     json_is_true(look_up(t, "optimizer.params.bias_correction")));
    assert_int_equal(run->train_batch_size,
                     run->micro_batch_size * run->grad_accum_steps * run->world);
    json_decref(t);
}

/* ---- mutations ---- */

static json_t *random_value(void)
{
    switch (draw(12)) {
    case 0:
        return json_true();
    case 1:
        return json_false();
    case 2:
        return json_null();
    case 3:
        return json_string("auro");
    case 4:
        return json_string("true");
    case 5:
        return json_array();
    case 6:
        return json_object();
    case 7:
        return json_integer(-(json_int_t)draw(5));
    case 8:
        return json_integer(draw(100));
    case 9:
        return json_real(draw(100) / 8.0);
    case 10:
        return json_real(1e300);
    default:
        return json_integer((json_int_t)1 << draw(62));
    }
}

static void misspell(char *name)
{
    size_t n = strlen(name), i = draw((unsigned)n);
    char c = (char)('a' + draw(26));

    switch (draw(4)) {
    case 0:
        name[i] = c;
        break;
    case 1:
        memmove(name + i, name + i + 1, n - i);
        break;
    case 2:
        memmove(name + i + 1, name + i, n - i + 1);
        name[i] = c;
        break;
    default:
        if (i + 1 < n) {
            c = name[i];
            name[i] = name[i + 1];
            name[i + 1] = c;
        }
    }
}

/* Change `root` at a random place; `named` receives the key a refusal must name. */
static void mutate(json_t *root, char *named, size_t n)
{
    static struct leaves all;
    struct leaf *l, *other;

    all.n = 0;
    collect(root, "", true, &all);
    l = &all.at[draw((unsigned)all.n)];
    other = &all.at[draw((unsigned)all.n)];
    snprintf(named, n, "%s", l->key);
    switch (draw(6)) {
    case 0: /* another name */
        misspell(named);
        json_incref(l->value);
        json_object_del(l->parent, l->key);
        json_object_set_new(l->parent, named, l->value);
        return;
    case 1: /* not there */
        json_object_del(l->parent, l->key);
        return;
    case 2: /* at another place */
        if (json_is_object(other->value) && other->value != l->value &&
            !json_is_object(l->value)) {
            json_object_set(other->value, l->key, l->value);
            json_object_del(l->parent, l->key);
        }
        return;
    case 3: /* another number nearby, another switch */
        if (json_is_integer(l->value))
            json_integer_set(l->value, json_integer_value(l->value) * draw(4));
        else if (json_is_real(l->value))
            json_real_set(l->value, json_real_value(l->value) * draw(4) / 2);
        else if (json_is_boolean(l->value))
            json_object_set_new(l->parent, l->key, json_boolean(!json_is_true(l->value)));
        else
            json_object_set_new(l->parent, l->key, random_value());
        return;
    default:
        json_object_set_new(l->parent, l->key, random_value());
    }
}

static void test_config_mutants_mean_what_they_say_or_are_refused_by_name(void **state)
{
    int refused = 0, accepted = 0;

    (void)state;
    for (int i = 0; i < num_mutations(1000); i++) {
        json_t *root = json_loads(bases[i % 3], 0, NULL);
        char named[128] = "", *text;
        struct run_trial t;

        assert_non_null(root);
        mutate(root, named, sizeof(named));
        text = json_dumps(root, JSON_REAL_PRECISION(17));
        t = try_it(2, text);
        if (t.run) {
            accepted++;
            check_meaning(root, t.run, text);
            check_numbers(t.run, text);
            zt_run_close(t.run);
        } else {
            refused++;
            if (!strstr(t.fault.text, named))
                print_error("no \"%s\" in \"%s\"\nof %s\n", named, t.fault.text, text);
            assert_non_null(strstr(t.fault.text, named));
        }
        free(text);
        json_decref(root);
    }
    print_message("%d mutations, %d accepted\n", accepted + refused, accepted);
    assert_true(accepted > num_mutations(1000) / 10 &&
                refused > num_mutations(1000) / 10);
}

/* Bytes instead of keys: whatever is still JSON for a strict reader means what it says.
 */
static void test_config_changed_bytes_mean_what_they_say_or_are_refused(void **state)
{
    int accepted = 0;

    (void)state;
    for (int i = 0; i < num_mutations(2000); i++) {
        char *text = strdup(bases[i % 3]);
        size_t at = draw((unsigned)strlen(text));
        struct run_trial t;
        json_t *root;

        if (draw(2)) /* a digit, so that many are still numbers */
            text[at + strcspn(text + at, "123456789}")] = (char)('0' + draw(10));
        else
            text[at] = (char)(32 + draw(95));
        t = try_it(2, text);
        root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        if (t.run && root) {
            accepted++;
            check_meaning(root, t.run, text);
            check_numbers(t.run, text);
        } else if (!t.run) {
            assert_int_equal(t.rc, ZT_E_CONFIG);
            assert_true(strlen(t.fault.text) > 10);
        }
        zt_run_close(t.run);
        json_decref(root);
        free(text);
    }
    print_message("%d mutations, %d accepted\n", num_mutations(2000), accepted);
    assert_true(accepted > num_mutations(2000) / 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_mutants_mean_what_they_say_or_are_refused_by_name),
        cmocka_unit_test(test_config_changed_bytes_mean_what_they_say_or_are_refused),
    };

    if (getenv("ZT_MUTATION_SEED"))
        seed = mutation_seed();
    return cmocka_run_group_tests(tests, resolve_nothing, forget_it);
}
