#include "common/run_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/config.h"

static bool ends_in(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n >= m && strcmp(s + n - m, end) == 0;
}

/* Of one node alone. */
static bool is_local(const char *path)
{
    return ends_in(path, "_path") || ends_in(path, "_dir") || ends_in(path, "_file") ||
           strcmp(path, "zlaunch.threads") == 0;
}

/* 2.0 and 2e0 are the number 2; whole numbers that a double cannot hold stay as written.
 */
static void put_number(FILE *out, const char *text)
{
    double value = strtod(text, NULL);
    char real[ZT_REAL_TEXT];

    if (fabs(value) < 0x1p53) {
        if (value == floor(value))
            snprintf(real, sizeof(real), "%.0f", value);
        else
            zt_real_text(value, real);
        text = real;
    }
    fprintf(out, "%s\n", text);
}

/* A line for each value below `node`; paths are kept in `keep`. */
static void put_lines(FILE *out, struct zt_keep *keep, const char *path,
                      const struct zt_jnode *node)
{
    int i = 0;

    if (is_local(path))
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
            put_lines(out, keep, zt_keep_printf(keep, "%s[%d]", path, i), c);
        else
            put_lines(out, keep,
                      zt_keep_printf(keep, "%s%s%s", path, *path ? "." : "", c->key), c);
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
    struct zt_keep keep = {0};
    char *text = NULL, *done = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    bool ok = f != NULL;

    zt_config_complete(run->config);
    if (f) {
        put_lines(f, &keep, "", run->config->resolved);
        ok = !ferror(f) && !keep.failed && !run->config->keep.failed;
        ok = fclose(f) == 0 && ok;
    }
    if (ok)
        done = sorted(text, bytes);
    free(text);
    zt_keep_release(&keep);
    if (!done)
        return zt_fault_set(fault, ZT_E_NOMEM, "the config as text: no host memory");
    *out = done;
    return ZT_OK;
}
