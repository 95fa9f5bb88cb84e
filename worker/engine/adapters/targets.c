#include "worker/engine/adapters/targets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/text/regex/regex.h"

static zt_err no_memory(struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_NOMEM, "adapters: no host memory");
}

static bool has_syntax(const char *word)
{
    return strpbrk(word, "*+?()[]{}|^$\\") != NULL;
}

/* A whole path has to match, as with Python's re.fullmatch. */
static zt_err compile(const char *where, struct zt_targets *t, struct zt_fault *fault)
{
    const struct zt_setting from = {.file = where};
    char *whole = NULL;
    zt_err rc;

    if (asprintf(&whole, "\\A(?:%s)\\z", t->pattern) < 0)
        return no_memory(fault);
    rc = zt_regex_compile(&from, whole, strlen(whole), &t->regex, fault);
    free(whole);
    return rc ? zt_fault_set(fault, rc == ZT_E_FORMAT ? ZT_E_CONFIG : rc,
                             "%s: \"%s\" is no regular expression that can be used",
                             where, t->pattern)
              : ZT_OK;
}

static zt_err add_name(const char *where, const char *word, struct zt_targets *t,
                       struct zt_fault *fault)
{
    if (!*word || has_syntax(word))
        return zt_fault_set(fault, ZT_E_CONFIG,
                            "%s: \"%s\" is no name of modules; a regular expression "
                            "stands alone",
                            where, word);
    if (strcmp(word, ZT_ALL_LINEAR) == 0)
        return zt_fault_set(fault, ZT_E_CONFIG, "%s: %s stands alone", where, word);
    t->names[t->num] = strdup(word);
    return t->names[t->num++] ? ZT_OK : no_memory(fault);
}

/* Names that a word has between commas, and may have more of than there are words. */
static zt_err add_names(const char *where, const char *word, struct zt_targets *t,
                        struct zt_fault *fault)
{
    char *names = strdup(word), *rest = names;
    zt_err rc = names ? ZT_OK : no_memory(fault);

    while (!rc && rest) {
        const char *name = strsep(&rest, ",");

        name += strspn(name, " ");
        rc = add_name(where, name, t, fault);
    }
    free(names);
    return rc;
}

static int count_names(const char *const *words, int num)
{
    int names = num;

    for (int i = 0; i < num; i++)
        for (const char *c = words[i]; *c; c++)
            names += *c == ',';
    return names;
}

zt_err zt_targets_open(const char *where, const char *const *words, int num,
                       bool is_regex, struct zt_targets *out, struct zt_fault *fault)
{
    struct zt_targets t = {
        .names = calloc((size_t)count_names(words, num) + 1, sizeof(*t.names))};
    zt_err rc = t.names ? ZT_OK : no_memory(fault);

    if (!rc && num == 0)
        rc = zt_fault_set(fault, ZT_E_CONFIG, "%s: it names no modules", where);
    if (!rc && num == 1 && strcmp(words[0], ZT_ALL_LINEAR) == 0) {
        t.all_linear = true;
    } else if (!rc && num == 1 && (is_regex || has_syntax(words[0]))) {
        t.pattern = strdup(words[0]);
        rc = t.pattern ? compile(where, &t, fault) : no_memory(fault);
    } else {
        for (int i = 0; !rc && i < num; i++)
            rc = add_names(where, words[i], &t, fault);
    }
    if (rc)
        zt_targets_close(&t);
    else
        *out = t;
    return rc;
}

void zt_targets_close(struct zt_targets *t)
{
    for (int i = 0; i < t->num; i++)
        free(t->names[i]);
    free(t->names);
    free(t->pattern);
    zt_regex_free(t->regex);
    *t = (struct zt_targets){.num = 0};
}

bool zt_targets_name_ends(const char *path, const char *name)
{
    size_t n = strlen(path), m = strlen(name);

    return n >= m && strcmp(path + n - m, name) == 0 &&
           (n == m || path[n - m - 1] == '.');
}

zt_err zt_targets_match(const struct zt_targets *t, const char *path, bool *is,
                        struct zt_fault *fault)
{
    struct zt_regex_scratch scratch = {NULL};
    size_t start, end;
    zt_err rc;

    *is = false;
    for (int i = 0; i < t->num && !*is; i++)
        *is = zt_targets_name_ends(path, t->names[i]);
    if (!t->regex)
        return ZT_OK;
    rc = zt_regex_scratch_init(&scratch, fault);
    if (!rc)
        rc = zt_regex_next(t->regex, &scratch, path, strlen(path), 0, is, &start, &end,
                           fault);
    zt_regex_scratch_release(&scratch);
    return rc;
}
