#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/config/config.h"
#include "worker/config/run.h"
#include "worker/optim/optim.h"

static struct zt_config config;

static int read_config(const char *text)
{
    zt_config_init(&config);
    zt_config_read_text(&config, "ds.json", text, strlen(text));
    return config.report.num_problems;
}

static bool noted(const char *what)
{
    for (const struct zt_problems_line *l = config.report.notes; l; l = l->next)
        if (strstr(l->text, what))
            return true;
    return false;
}

static const char *problem(void)
{
    return config.report.problems ? config.report.problems->text : "(none)";
}

static bool any_problem_says(const char *what)
{
    for (const struct zt_problems_line *l = config.report.problems; l; l = l->next)
        if (strstr(l->text, what))
            return true;
    return false;
}

/* ---- the table itself ---- */

static void test_config_table_has_each_key_once(void **state)
{
    int n = 0;

    (void)state;
    for (const struct zt_key *k = zt_key_next(NULL); k; k = zt_key_next(k), n++) {
        assert_ptr_equal(zt_key_find(k->path), k);
        assert_true(strlen(k->path) < ZT_KEY_PATH);
        assert_int_equal(k->type == ZT_KEY_ENUM, k->choices != NULL);
        if (k->status == ZT_LATER || k->status == ZT_NEVER || k->status == ZT_ALWAYS)
            assert_non_null(k->why);
    }
    assert_true(n >= 609);
}

static bool ends_in(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n >= m && strcmp(s + n - m, end) == 0;
}

/* Every word of the row's choices has a number. */
static void check_words(const struct zt_key *k)
{
    char word[64];
    int value;

    for (const char *c = k->choices; c; c = strchr(c, '|')) {
        c += *c == '|';
        snprintf(word, sizeof(word), "%.*s", (int)strcspn(c, "|"), c);
        assert_true(zt_enum_word_find(k->store.words, word, &value));
    }
}

static void test_config_a_row_says_all_that_its_value_needs(void **state)
{
    zt_args *args = NULL;
    int stored = 0;

    (void)state;
    assert_int_equal(zt_args_open(zt_run_options(), &args, NULL), ZT_OK);
    for (const struct zt_key *k = zt_key_next(NULL); k; k = zt_key_next(k)) {
        bool path = ends_in(k->path, "_path") || ends_in(k->path, "_file") ||
                    ends_in(k->path, "_dir");

        if (k->option)
            assert_string_equal(zt_args_find(args, k->option), k->option);
        if (path && !k->option) /* of an option the option's row says it */
            assert_true(k->flags & ZT_KEY_PER_NODE);
        if (k->store.type == ZT_MEMBER_NONE)
            continue;
        stored++;
        assert_int_equal(k->status, ZT_HONOURED);
        assert_true(k->def || k->option || k->default_rule);
        if (k->store.type == ZT_MEMBER_ENUM)
            check_words(k);
    }
    assert_true(stored >= 25);
    zt_args_close(args);
}

/* {"a": {"b": VALUE}} for a path; user-chosen names become "mine", [] an array. */
static void nest(char *out, const char *path, const char *leaf, const char *value)
{
    char closing[64] = "", names[ZT_KEY_PATH], *rest = names, *name;

    snprintf(names, sizeof(names), "%s", path);
    *out = 0;
    while ((name = strsep(&rest, "."))) {
        char *array = strstr(name, "[]");

        if (array)
            *array = 0;
        if (*name == '<')
            name = "mine";
        sprintf(out + strlen(out), "{\"%s\": %s", !rest && leaf ? leaf : name,
                array ? "[" : "");
        memmove(closing + 1 + !!array, closing, strlen(closing) + 1);
        memcpy(closing, array ? "]}" : "}", (size_t)1 + !!array);
    }
    sprintf(out + strlen(out), "%s%s", value, closing);
}

/* A value of the right type that is not the default. */
static const char *other_value(const struct zt_key *k, char *buf)
{
    switch (k->type) {
    case ZT_KEY_BOOL:
        return k->def && !strcmp(k->def, "true") ? "false" : "true";
    case ZT_KEY_INT:
    case ZT_KEY_FLOAT:
        return k->range && strstr(k->range, ",1]") ? "0.33" : "7";
    case ZT_KEY_ENUM: {
        const char *first = k->choices, *bar = strrchr(first, '|');
        const char *last = bar ? bar + 1 : first;
        bool number = strchr("0123456789", *first);
        size_t n = strcspn(first, "|");

        if (k->def && strstr(k->def, last))
            sprintf(buf, number ? "%.*s" : "\"%.*s\"", (int)n, first);
        else
            sprintf(buf, number ? "%s" : "\"%s\"", last);
        return buf;
    }
    case ZT_KEY_STRING:
        return "\"something\"";
    case ZT_KEY_ARRAY:
        return "[]";
    case ZT_KEY_OBJECT:
        return k->flags & ZT_KEY_PRESENCE ? "{\"enabled\": true}" : "{}";
    case ZT_KEY_ANY:
        break;
    }
    return "7";
}

/* The keys of one optimizer or schedule are refused with the others'. */
static bool is_argument(const struct zt_key *k)
{
    return k->types || !strncmp(k->path, "optimizer.params.<", 18);
}

/* Within a section whose presence alone is refused? */
static bool is_inside_refused(const struct zt_key *k)
{
    for (const struct zt_key *o = zt_key_next(NULL); o; o = zt_key_next(o))
        if (o->flags & ZT_KEY_PRESENCE && !strncmp(k->path, o->path, strlen(o->path)))
            return true;
    return false;
}

static void test_config_defaults_of_the_table_pass_its_own_checks(void **state)
{
    char text[1024];

    (void)state;
    for (const struct zt_key *k = zt_key_next(NULL); k; k = zt_key_next(k)) {
        if (!k->def || is_argument(k) || is_inside_refused(k))
            continue;
        nest(text, k->path, NULL, k->def);
        if (read_config(text))
            print_error("%s: %s\n", text, problem());
        assert_int_equal(config.report.num_problems, 0);
        zt_config_release(&config);
    }
}

static void test_config_values_of_the_wrong_type_are_refused_by_name(void **state)
{
    char text[1024];
    int seen = 0;

    (void)state;
    for (const struct zt_key *k = zt_key_next(NULL); k; k = zt_key_next(k)) {
        const char *wrong = k->type == ZT_KEY_OBJECT || k->type == ZT_KEY_STRING ||
                                    k->type == ZT_KEY_ARRAY
                                ? "17"
                                : "{\"x\": 1}";
        const char *name = strrchr(k->path, '.');

        if (k->type == ZT_KEY_ANY || is_argument(k))
            continue;
        nest(text, k->path, NULL, wrong);
        read_config(text);
        if (!config.report.num_problems ||
            (name && name[1] != '<' && !strstr(problem(), name + 1)))
            print_error("%s: %s\n", text, problem());
        assert_true(config.report.num_problems > 0);
        assert_non_null(strstr(problem(), "ds.json:1:"));
        if (name && name[1] != '<')
            assert_non_null(strstr(problem(), name + 1));
        zt_config_release(&config);
        seen++;
    }
    assert_true(seen > 500);
}

static void test_config_what_is_not_built_is_refused_by_name(void **state)
{
    char text[1024], buf[64];
    int refused = 0;

    (void)state;
    for (const struct zt_key *k = zt_key_next(NULL); k; k = zt_key_next(k)) {
        bool must = (k->status == ZT_LATER || k->status == ZT_NEVER) &&
                    (k->type != ZT_KEY_OBJECT || k->flags & ZT_KEY_PRESENCE) &&
                    !(k->flags & ZT_KEY_DETAIL) && !is_argument(k);

        if (!must)
            continue;
        nest(text, k->path, NULL, other_value(k, buf));
        read_config(text);
        if (!config.report.num_problems || !strstr(problem(), k->path))
            print_error("%s: %s\n", text, problem());
        assert_true(config.report.num_problems > 0);
        assert_non_null(strstr(problem(), k->path));
        assert_non_null(strstr(problem(), k->why));
        zt_config_release(&config);
        refused++;
    }
    assert_true(refused > 40);
}

static void test_config_switches_refuse_what_details_do_not(void **state)
{
    (void)state;
    assert_int_equal(read_config("{\"flops_profiler\": {\"enabled\": false, "
                                 "\"profile_step\": 5}}"),
                     0);
    assert_true(noted("flops_profiler.profile_step"));
    zt_config_release(&config);
    assert_int_equal(read_config("{\"flops_profiler\": {\"enabled\": true, "
                                 "\"profile_step\": 5}}"),
                     1);
    assert_non_null(strstr(problem(), "flops_profiler.enabled"));
    zt_config_release(&config);
    /* switches that act whatever the section above says */
    assert_int_equal(read_config("{\"data_efficiency\": {\"data_routing\": "
                                 "{\"random_ltd\": {\"enabled\": true}}}}"),
                     1);
    assert_non_null(strstr(problem(), "random_ltd.enabled"));
    zt_config_release(&config);
    assert_int_equal(read_config("{\"data_efficiency\": {\"data_sampling\": "
                                 "{\"curriculum_learning\": {\"enabled\": true}}}}"),
                     1);
    assert_non_null(strstr(problem(), "curriculum_learning.enabled"));
    zt_config_release(&config);
    assert_int_equal(read_config("{\"weight_quantization\": {\"enabled\": false, "
                                 "\"num_bits\": 4}}"),
                     0);
    zt_config_release(&config);
    assert_int_equal(read_config("{\"datastates_ckpt\": false}"), 0);
    zt_config_release(&config);
    /* DeepSpeed takes its defaults then */
    assert_int_equal(read_config("{\"zero_optimization\": {\"zenflow\": {}}}"), 1);
    assert_non_null(strstr(problem(), "zero_optimization.zenflow"));
    zt_config_release(&config);
    assert_int_equal(read_config("{\"zero_optimization\": {\"zenflow\": null}}"), 0);
    zt_config_release(&config);
}

/* ---- what DeepSpeed's reader takes ---- */

static void test_config_oddities_are_accepted_and_noted(void **state)
{
    static const struct {
        const char *text, *path, *value, *note;
    } cases[] = {
        {"{\"fp16\": {\"enabled\": \"true\"}}", "fp16.enabled", "true", "taken as true"},
        {"{\"fp16\": {\"loss_scale_window\": 5e2}}", "fp16.loss_scale_window", "500",
         "5e2 is taken as 500"},
        {"{\"fp16\": {\"hysteresis\": \"4\"}}", "fp16.hysteresis", "4", "taken as 4"},
        {"{\"zero_optimization\": {\"stage\": \"2\"}}", "zero_optimization.stage", "2",
         "taken as 2"},
        {"{\"zero_optimization\": {\"offload_optimizer\": {\"ratio\": \"5e-1\"}}}",
         "zero_optimization.offload_optimizer.ratio", "5e-1", "taken as 5e-1"},
        {"{\"zero_optimization\": {\"aio\": {\"queue_depth\": 4}}}", "aio.queue_depth",
         "4", "belongs to the top level"},
        {"{\"zero_optimization\": {\"prefetch_bucket_size\": 5}}",
         "zero_optimization.stage3_prefetch_bucket_size", "5", "another name"},
        {"{\"bfloat16\": {\"enabled\": true}}", "bf16.enabled", "true", "old name"},
        {"{\"zero_optimization\": false}", "zero_optimization.stage", "0",
         "means stage 0"},
        {"{\"optimizer\": {\"type\": \"ADAMW\"}}", "optimizer.type", "AdamW",
         "taken as AdamW"},
        {"{\"elasticity\": {\"prefer_large_batch\": true}}",
         "elasticity.prefer_large_batch", "true", "is old"},
        {"{\"steps_per_print\": Infinity}", "steps_per_print", "9223372036854775807",
         "taken as"},
        {"{\"zero_optimization\": {\"stage\": 0.0}}", "zero_optimization.stage", "0",
         "taken as 0"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const struct zt_item *item;
        char got[64];

        if (read_config(cases[i].text))
            print_error("%s: %s\n", cases[i].text, problem());
        assert_int_equal(config.report.num_problems, 0);
        item = zt_config_find(&config, cases[i].path);
        assert_non_null(item);
        zt_jnode_brief(item->value, got, sizeof(got));
        assert_non_null(strstr(got, cases[i].value));
        assert_true(noted(cases[i].note));
        zt_config_release(&config);
    }
}

static void test_config_switch_of_another_section_is_not_suggested(void **state)
{
    (void)state;
    assert_int_equal(read_config("{\"compile\": {\"enabled\": true}}"), 1);
    assert_string_equal(problem(),
                        "ds.json:1:14: unknown key \"enabled\" in \"compile\"");
    zt_config_release(&config);
}

static void test_config_problems_name_file_line_and_column(void **state)
{
    static const struct {
        const char *text, *what;
    } cases[] = {
        {"[]", "ds.json: a config is an object"},
        {"{\n \"fp16\": {\n  \"enabled\": 3}}", "ds.json:3:14: \"fp16.enabled\""},
        {"{\"loss_scale\": 0}", "did you mean \"fp16.loss_scale\"?"},
        {"{\"max_grad_norm\": 1}", "did you mean \"gradient_clipping\"?"},
        {"{\"micro_batch_size\": 1}", "did you mean \"train_micro_batch_size_per_gpu\"?"},
        {"{\"zlaunch\": {\"bf16\": true}}", "did you mean \"bf16.enabled\"?"},
        {"{\"zlaunch\": {\"fp16\": true}}", "did you mean \"fp16.enabled\"?"},
        {"{\"comment\": \"x\"}", "begin its name with '_' or '#'"},
        {"{\"bf16\": {\"note\": 1}}",
         "unknown key \"note\" in \"bf16\"; if it is a comment"},
        {"{\"zero_stage\": 1}", "did you mean \"zero_optimization.stage\"?"},
        {"{\"lr\": 1}", "did you mean \"optimizer.params.lr\"?"},
        {"{\"seed\": 1}", "did you mean \"zlaunch.seed\"?"},
        {"{\"zlaunch\": {\"max_new_tokens\": 1}}",
         "did you mean \"zlaunch.generate_tokens\"?"},
        {"{\"zlaunch\": {\"logging_steps\": 1}}", "did you mean \"steps_per_print\"?"},
        {"{\"validation_file\": 1}", "did you mean \"zlaunch.eval_file\"?"},
        {"{\"optimizer\": {\"type\": \"AdamW\", \"learning_rate\": 1}}",
         "did you mean \"optimizer.params.lr\"?"},
        {"{\"scheduler\": {\"type\": \"WarmupLR\", \"warmup_steps\": 1}}",
         "did you mean \"scheduler.params.warmup_num_steps\"?"},
        {"{\"zero_optimization\": {\"stage\": 4}}", "must be one of 0|1|2|3, not 4"},
        {"{\"zero_optimization\": {\"stage3_prefetch_bucket_size\": 1, "
         "\"prefetch_bucket_size\": 1}}",
         "a second time under another name"},
        {"{\"bf16\": {\"enabled\": true}, \"bfloat16\": {\"enabled\": true}}",
         "a second time under another name"},
        {"{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"freeze_step\": 1}}}",
         "AdamW takes no \"optimizer.params.freeze_step\""},
        {"{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"max_grad_norm\": 1}}}",
         "gradient_clipping"},
        {"{\"optimizer\": {\"type\": \"Lamb\", \"params\": {\"max_coeff\": 1}}}",
         "\"optimizer.type\": \"Lamb\" is not in this version: built are AdamW, Adam"},
        {"{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"betas\": [0.9, 1]}}}",
         "two numbers in [0,1)"},
        {"{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"total_num_steps\": "
         "1}}}",
         "WarmupLR takes no"},
        {"{\"train_batch_size\": 1.5}", "a whole number in [1,inf), not 1.5"},
        {"{\"train_batch_size\": \"4\"}", "a whole number in [1,inf), not \"4\""},
        {"{\"gradient_clipping\": NaN}", "a number in [0,inf), not NaN"},
        {"{\"dump_state\": \"auto\"}", "\"auto\" has no meaning"},
        {"{\"gradient_clipping\": null}", "\"gradient_clipping\" must be a value"},
        {"{\"quantize_training\": {\"quantize_bits\": 3}}", "must be an object"},
        {"{\"x-ignore\": 3}", "\"x-ignore\" must be an array"},
        {"{\"_train_batch_siz\": 3}", "unknown key \"_train_batch_siz\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        if (read_config(cases[i].text) != 1 || !strstr(problem(), cases[i].what))
            print_error("%s: %s\n", cases[i].text, problem());
        assert_int_equal(config.report.num_problems, 1);
        assert_int_equal(config.report.code, ZT_E_CONFIG);
        assert_int_equal(strncmp(problem(), "ds.json:", 8), 0);
        assert_non_null(strstr(problem(), cases[i].what));
        zt_config_release(&config);
    }
}

static void test_an_optimizer_that_is_not_built_is_answered_with_all_that_are(
    void **state)
{
    (void)state;
    assert_int_equal(read_config("{\"optimizer\": {\"type\": \"Lamb\"}}"), 1);
    for (int i = 0; zt_optimizers[i]; i++)
        assert_non_null(strstr(problem(), zt_optimizers[i]->name));
    zt_config_release(&config);
}

static void test_config_comments_can_be_keys(void **state)
{
    (void)state;
    assert_int_equal(read_config("{\"_why\": 1, \"#fp16\": {}, \"fp16\": {\"_x\": []}, "
                                 "\"mine\": 2, \"bf16\": {\"mine\": 1}, "
                                 "\"x-ignore\": [\"mine\", \"bf16.mine\"]}"),
                     0);
    assert_true(noted("\"_why\" is a comment"));
    assert_true(noted("\"bf16.mine\" is a comment"));
    zt_config_release(&config);
}

/* ---- slips of the pen ---- */

/* Is this what some row or alias of the section is called? */
static bool is_documented(const char *section, const char *name)
{
    size_t n = strlen(section);

    for (const struct zt_key *k = zt_key_next(NULL); k; k = zt_key_next(k)) {
        const char *rest = k->path + n;

        if (strncmp(k->path, section, n) != 0)
            continue;
        if ((!strncmp(rest, name, strlen(name)) &&
             (!rest[strlen(name)] || rest[strlen(name)] == '.')) ||
            (k->alias && !strcmp(k->alias, name)))
            return true;
    }
    return !strcmp(name, "bfloat16");
}

struct slips {
    int made, missed, right;
};

/* Write `slip` for the key's last name: must be refused, and the right name offered. */
static void try_slip(const struct zt_key *k, const char *section, const char *name,
                     const char *slip, struct slips *s)
{
    char text[1024], wanted[ZT_KEY_PATH], buf[64];

    if (is_documented(section, slip) || !*slip)
        return;
    nest(text, k->path, slip, k->def ? k->def : other_value(k, buf));
    snprintf(wanted, sizeof(wanted), "%s\"?", name);
    read_config(text);
    s->made++;
    if (!any_problem_says(slip)) {
        print_error("missed: %s: %s\n", text, problem());
        s->missed++;
    }
    s->right += any_problem_says(wanted);
    zt_config_release(&config);
}

static void test_config_every_one_letter_slip_is_seen_and_named(void **state)
{
    struct slips s = {0};

    (void)state;
    for (const struct zt_key *k = zt_key_next(NULL); k; k = zt_key_next(k)) {
        const char *dot = strrchr(k->path, '.');
        const char *name = dot ? dot + 1 : k->path;
        char section[ZT_KEY_PATH], slip[ZT_KEY_PATH];
        size_t len = strlen(name);

        snprintf(section, sizeof(section), "%.*s", (int)(name - k->path), k->path);
        if (*name == '<')
            continue;
        for (size_t i = 0; i < len; i++) {
            snprintf(slip, sizeof(slip), "%.*s%s", (int)i, name, name + i + 1);
            try_slip(k, section, name, slip, &s); /* left out */
            snprintf(slip, sizeof(slip), "%.*sq%s", (int)i, name, name + i + 1);
            try_slip(k, section, name, slip, &s); /* changed */
            snprintf(slip, sizeof(slip), "%.*sz%s", (int)i, name, name + i);
            try_slip(k, section, name, slip, &s); /* put in */
            snprintf(slip, sizeof(slip), "%s", name);
            if (i + 1 < len && name[i] != name[i + 1]) {
                slip[i] = name[i + 1];
                slip[i + 1] = name[i];
                try_slip(k, section, name, slip, &s); /* swapped */
            }
        }
    }
    print_message("%d slips, %d missed, %d with the right name\n", s.made, s.missed,
                  s.right);
    assert_true(s.made > 10000);
    assert_int_equal(s.missed, 0);
    assert_true(s.right * 100 >= s.made * 95);
}

static void test_config_manual_has_every_key(void **state)
{
    char *man = NULL, *page = NULL;
    size_t n;
    FILE *f = open_memstream(&man, &n);

    (void)state;
    zt_config_print_man(f);
    fclose(f);
    f = open_memstream(&page, &n);
    zt_config_print_markdown(f);
    fclose(f);
    for (const struct zt_key *k = zt_key_next(NULL); k; k = zt_key_next(k)) {
        char row[ZT_KEY_PATH + 8];

        snprintf(row, sizeof(row), "\n| `%s` |", k->path);
        assert_non_null(strstr(page, row));
        if (!strpbrk(k->path, "-'"))
            assert_non_null(strstr(man, k->path));
    }
    free(man);
    free(page);
}

/* docs/CONFIG.md is what the table prints. */
static void test_config_page_of_the_docs_is_current(void **state)
{
    char *page = NULL, *file = calloc(1, 1 << 20);
    FILE *f = fopen("docs/CONFIG.md", "r");
    size_t n;

    (void)state;
    assert_non_null(f);
    assert_true(fread(file, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    f = open_memstream(&page, &n);
    zt_config_print_markdown(f);
    fclose(f);
    assert_true(strcmp(page, file) == 0);
    free(page);
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_table_has_each_key_once),
        cmocka_unit_test(test_config_a_row_says_all_that_its_value_needs),
        cmocka_unit_test(test_config_defaults_of_the_table_pass_its_own_checks),
        cmocka_unit_test(test_config_values_of_the_wrong_type_are_refused_by_name),
        cmocka_unit_test(test_config_what_is_not_built_is_refused_by_name),
        cmocka_unit_test(test_config_switches_refuse_what_details_do_not),
        cmocka_unit_test(test_config_oddities_are_accepted_and_noted),
        cmocka_unit_test(test_config_problems_name_file_line_and_column),
        cmocka_unit_test(test_config_switch_of_another_section_is_not_suggested),
        cmocka_unit_test(
            test_an_optimizer_that_is_not_built_is_answered_with_all_that_are),
        cmocka_unit_test(test_config_comments_can_be_keys),
        cmocka_unit_test(test_config_every_one_letter_slip_is_seen_and_named),
        cmocka_unit_test(test_config_manual_has_every_key),
        cmocka_unit_test(test_config_page_of_the_docs_is_current),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
