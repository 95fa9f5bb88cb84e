#include "worker/config/canonical_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/config/config.h"

/* What of text follows the prefix; NULL: it does not begin with it. */
static const char *after(const char *text, const char *prefix)
{
    size_t len = strlen(prefix);

    return strncmp(text, prefix, len) == 0 ? text + len : NULL;
}

/* The option that the key zlaunch.NAME or zlaunch.model.NAME is; NULL: it is none. */
static const struct zt_option *option_of(const struct zt_config *c, const char *path)
{
    const char *of_model = after(path, "zlaunch.model.");
    const char *name = of_model ? of_model : after(path, "zlaunch.");

    if (!name)
        return NULL;
    for (const struct zt_option *o = zt_args_table(of_model ? c->model_args : c->args);
         o->name; o++)
        if (!strcmp(o->name, name))
            return o;
    return NULL;
}

/* May it differ between ranks? Its row says so. */
static bool is_per_node(const struct zt_config *c, const char *path)
{
    const struct zt_option *option = option_of(c, path);
    const struct zt_item *item = zt_config_find(c, path);
    const struct zt_key *key = item ? item->key : zt_key_find(path);

    return (option && option->flags & ZT_OPTION_PER_NODE) ||
           (key && key->flags & ZT_KEY_PER_NODE);
}

/* 2.0 and 2e0 are the number 2; whole numbers that a double cannot hold stay as written.
 */
static void put_number(FILE *out, const char *text)
{
    double value = strtod(text, NULL);
    char real[ZT_DOUBLE_TEXT];

    if (fabs(value) < 0x1p53) {
        if (value == floor(value))
            snprintf(real, sizeof(real), "%.0f", value);
        else
            zt_format_double(value, real);
        text = real;
    }
    fprintf(out, "%s\n", text);
}

/* A line for each value below `node`; paths are kept in `arena`. */
static void put_lines(FILE *out, const struct zt_config *config,
                      struct zt_text_arena *arena, const char *path,
                      const struct zt_jnode *node)
{
    int i = 0;

    if (is_per_node(config, path))
        return;
    if (!node->first) {
        fprintf(out, "%s: ", path);
        if (node->type == ZT_JSON_NUMBER)
            put_number(out, node->text);
        else
            zt_jtree_print(out, node); /* a scalar, or empty: on one line */
        return;
    }
    for (const struct zt_jnode *c = node->first; c; c = c->next, i++) {
        if (node->type == ZT_JSON_ARRAY)
            put_lines(out, config, arena, zt_text_arena_printf(arena, "%s[%d]", path, i),
                      c);
        else
            put_lines(
                out, config, arena,
                zt_text_arena_printf(arena, "%s%s%s", path, *path ? "." : "", c->key), c);
    }
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The lines of `text`, cut in place, in order and with their ends again; NULL: no memory.
 */
static char *sorted(char *text, size_t bytes)
{
    char **lines = NULL, *out = malloc(bytes + 1), *at = out, *save = NULL;
    size_t n = 0;

    for (const char *p = text; *p; p++)
        n += *p == '\n';
    lines = calloc(n + 1, sizeof(*lines));
    if (!lines || !out) {
        free(lines);
        free(out);
        return NULL;
    }
    n = 0;
    for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save))
        lines[n++] = l;
    qsort(lines, n, sizeof(*lines), by_text);
    for (size_t i = 0; i < n; i++) {
        at = stpcpy(at, lines[i]);
        *at++ = '\n';
    }
    *at = 0;
    free(lines);
    return out;
}

zt_err zt_run_config_text(const struct zt_run *run, char **out, struct zt_fault *fault)
{
    struct zt_text_arena arena = {0};
    char *text = NULL, *done = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    bool ok = f != NULL;

    zt_config_complete(run->config);
    if (f) {
        put_lines(f, run->config, &arena, "", run->config->resolved);
        ok = !ferror(f) && !arena.failed && !run->config->arena.failed;
        ok = fclose(f) == 0 && ok;
    }
    if (ok)
        done = sorted(text, bytes);
    free(text);
    zt_text_arena_release(&arena);
    if (!done)
        return zt_fault_set(fault, ZT_E_NOMEM, "the config as text: no host memory");
    *out = done;
    return ZT_OK;
}

zt_err zt_run_paths_text(const struct zt_run *run, char **out, struct zt_fault *fault)
{
    const unsigned path = ZT_OPTION_PATH | ZT_OPTION_PER_NODE;
    const zt_args *args = run->config->args;
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    bool ok = f != NULL;

    for (const struct zt_option *o = zt_args_table(args); f && o->name; o++) {
        const struct zt_value *v = zt_args_value(args, o->name);

        if ((o->flags & path) == path)
            fprintf(f, "--%s %s\n", o->name,
                    v->text || (v->list && *v->list) ? "given" : "not given");
    }
    if (f) {
        ok = !ferror(f);
        ok = fclose(f) == 0 && ok;
    }
    if (!ok) {
        free(text);
        return zt_fault_set(fault, ZT_E_NOMEM, "the paths as text: no host memory");
    }
    *out = text;
    return ZT_OK;
}

/* ---- where a value comes from ---- */

/* Names what nobody has written: not an option, a variable, or a place in a file. */
static bool is_rule(const char *origin)
{
    const char *of_auto = after(origin, "auto: ");

    if (of_auto)
        return !after(of_auto, "--") && !after(of_auto, "ZLAUNCH_");
    return after(origin, "default") || after(origin, "rule: ");
}

const char *zt_run_config_rule(const struct zt_run *run, const char *line)
{
    const struct zt_jnode *n = run->config->resolved;
    char name[ZT_KEY_PATH];

    for (size_t len; n; line += len + 1) {
        len = strcspn(line, ".[:");
        snprintf(name, sizeof(name), "%.*s", (int)len, line);
        n = zt_jnode_get(n, name);
        if (n && line[len] != '.')
            return n->comment && is_rule(n->comment) ? n->comment : NULL;
    }
    return NULL;
}

bool zt_run_is_share(const struct zt_run *run, const char *line)
{
    const struct zt_option *o = zt_args_table(run->config->model_args);
    const char *name = after(line, "zlaunch.model.");
    size_t n = name ? strcspn(name, ":") : 0;

    while (o->name && (strlen(o->name) != n || strncmp(o->name, name, n) != 0))
        o++;
    return n && o->name && o->kind == ZT_OPT_FLOAT;
}
