/*
 * config_mutations.h -- the config.json of an imported model with one character changed.
 * What is accepted stands in the config.json that leaves with the model.
 */
#ifndef TEST_UNIT_AUTOGRAD_CONFIG_MUTATIONS_H
#define TEST_UNIT_AUTOGRAD_CONFIG_MUTATIONS_H

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/options/options.h"
#include "common/problems.h"
#include "test/unit/mutations.h"
#include "worker/autograd/model.h"

#define MAX_WORDS 32

/* The model of these words ("--name value ...") and this config.json, either NULL. */
static zt_err open_plugin(const struct zt_plugin *plugin, const char *words,
                          const char *json, struct zt_model **out, struct zt_fault *fault)
{
    struct zt_model_config cfg = {.compute_dtype = ZT_F32};
    char text[512], path[64], *argv[MAX_WORDS];
    struct zt_problems report;
    struct zt_text_arena arena = {NULL, false};
    zt_args *args = NULL;
    FILE *f;
    zt_err rc;
    int argc = 0;

    snprintf(text, sizeof(text), "%s", words ? words : "");
    for (char *at = NULL, *w = strtok_r(text, " ", &at); w; w = strtok_r(NULL, " ", &at))
        argv[argc++] = w;
    assert_int_equal(zt_args_open(plugin->options, &args, fault), ZT_OK);
    zt_problems_init(&report, &arena);
    zt_args_read_words(&args, 1, argc, argv, NULL, &report);
    assert_int_equal(report.num_problems, 0);
    zt_text_arena_release(&arena);
    if (json) {
        snprintf(path, sizeof(path), "/tmp/zt_%s_%d.json", plugin->name, (int)getpid());
        f = fopen(path, "w");
        assert_non_null(f);
        fputs(json, f);
        fclose(f);
        cfg.config_json = path;
    }
    cfg.args = args;
    while (plugin->tasks && !(plugin->tasks & ZT_CAN(cfg.task)))
        cfg.task++; /* its first one */
    rc = zt_model_open(plugin, &cfg, out, fault);
    zt_args_close(args);
    if (json)
        unlink(path);
    return rc;
}

struct config_format {
    const struct zt_plugin *plugin;
    const char *whole; /* a config.json with all that is read */
    /* keys that mean nothing here ("summary_*": those that begin so), and keys that are
     * accepted with the value they have in `whole` alone; NULL behind the last */
    const char *const *ignored, *const *fixed;
    double tolerance; /* relative, of numbers */
};

static bool is_listed(const char *const *keys, const char *key)
{
    for (; *keys; keys++) {
        size_t n = strlen(*keys);

        if (strcmp(*keys, key) == 0 ||
            ((*keys)[n - 1] == '*' && strncmp(*keys, key, n - 1) == 0))
            return true;
    }
    return false;
}

static bool means_nothing(const struct config_format *f, const char *key)
{
    const char *token = strstr(key, "_token_id"); /* of text, not of training */

    return (token && strcmp(token, "_token_id") == 0) || is_listed(f->ignored, key);
}

static bool same_value(const json_t *a, const json_t *b, double tolerance)
{
    if (json_is_number(a) && json_is_number(b))
        return fabs(json_number_value(a) - json_number_value(b)) <=
               tolerance * fabs(json_number_value(a));
    return json_equal(a, b);
}

/* A null is as if it were not there. */
static void check_meaning(const struct config_format *f, const json_t *root,
                          const struct zt_model *m, const char *text)
{
    char *out = zt_model_config_text(m);
    json_t *exported = json_loads(out, 0, NULL), *whole = json_loads(f->whole, 0, NULL);
    const char *key;
    json_t *v;

    assert_non_null(exported);
    assert_non_null(whole);
    json_object_foreach((json_t *)root, key, v)
    {
        const json_t *of = is_listed(f->fixed, key) ? whole : exported;

        if (!json_is_null(v) && !means_nothing(f, key) &&
            !same_value(v, json_object_get(of, key), f->tolerance))
            fail_msg("\"%s\" of %s was lost: %s", key, text, out);
    }
    json_decref(exported);
    json_decref(whole);
    free(out);
}

static void mutate_config(const struct config_format *f)
{
    int mutations = num_mutations(500), accepted = 0;
    uint64_t x = mutation_seed();

    for (int i = 0; i < mutations; i++) {
        struct zt_fault fault = {ZT_OK, ""};
        struct zt_model *m = NULL;
        char *text = strdup(f->whole);
        json_t *root;
        size_t at;

        at = next_random(&x) % strlen(text);
        if (i % 2) /* a digit, so that many are still numbers */
            at += strcspn(text + at, "0123456789}");
        text[at] = (char)(i % 2 ? '0' + (x >> 32) % 10 : 32 + (x >> 32) % 95);
        root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        if (open_plugin(f->plugin, NULL, text, &m, &fault) == ZT_OK) {
            assert_true(json_is_object(root));
            check_meaning(f, root, m, text);
            accepted++;
            zt_model_close(m);
        } else if (strlen(fault.text) < 10) {
            fail_msg("no reason for %s", text);
        }
        json_decref(root);
        free(text);
    }
    print_message("%d mutations, %d accepted\n", mutations, accepted);
    assert_true(accepted > mutations / 20);
}

#endif
