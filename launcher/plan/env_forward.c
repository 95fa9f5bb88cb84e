#include "launcher/plan/env_forward.h"

#include "launcher/ssh/formats.h"
#include "launcher/ssh/quote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX_BYTES (4u << 20)

struct forward_list {
    char **item; /* (num) NAME=VALUE */
    size_t num;
    char **left_out; /* where the text about files that are goes; NULL: nowhere */
};

static const char *const prefixes[] = {"NCCL_", "UCX",    "OMP_",    "MLFLOW",
                                       "MV2",   "PYTHON", "ZLAUNCH_"};

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static const char *lookup(char *const *env, const char *name)
{
    size_t n = strlen(name);

    for (; *env; env++)
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
            return *env + n + 1;
    return NULL;
}

/* Forwarded by prefix, without secrets and what is only valid in this process. */
static bool by_prefix(const char *item, size_t name_bytes)
{
    char name[256];
    size_t n = name_bytes;

    if (!zt_env_name_ok(item, n) || n >= sizeof(name))
        return false;
    memcpy(name, item, n);
    name[n] = 0;
    if (strcmp(name, "LD_LIBRARY_PATH") == 0)
        return true;
    if (starts(name, "ZLAUNCH_") &&
        (strstr(name, "SECRET") || strstr(name, "TOKEN") || strstr(name, "PASSWORD") ||
         strcmp(name, "ZLAUNCH_ZWORKER") == 0 ||
         (n > 3 && strcmp(name + n - 3, "_FD") == 0)))
        return false;
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
        if (starts(name, prefixes[i]))
            return true;
    return false;
}

/* Set or replace; the name is [name, name+n). */
static zt_err set(struct forward_list *l, const char *name, size_t n, const char *value,
                  size_t value_bytes, struct zt_fault *fault)
{
    char *item = malloc(n + value_bytes + 2), **grown;
    size_t i = 0;

    if (item) {
        memcpy(item, name, n);
        item[n] = '=';
        memcpy(item + n + 1, value, value_bytes);
        item[n + 1 + value_bytes] = 0;
        while (i < l->num && strncmp(l->item[i], item, n + 1) != 0)
            i++;
        if (i < l->num) {
            free(l->item[i]);
            l->item[i] = item;
            return ZT_OK;
        }
        grown = realloc(l->item, (l->num + 2) * sizeof(*grown));
        if (grown) {
            l->item = grown;
            grown[l->num++] = item;
            grown[l->num] = NULL;
            return ZT_OK;
        }
    }
    free(item);
    return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the environment");
}

static zt_err take_line(struct forward_list *l, const char *p, const char *end,
                        const char *file, int line, struct zt_fault *fault)
{
    const char *eq;

    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    if (end > p && end[-1] == '\r')
        end--;
    if (p == end || *p == '#')
        return ZT_OK;
    eq = memchr(p, '=', (size_t)(end - p));
    if (!eq || !zt_env_name_ok(p, (size_t)(eq - p)) || memchr(p, 0, (size_t)(end - p)))
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s:%d: '%.*s': expected NAME=VALUE, the name of letters, "
                            "digits and _",
                            file, line, (int)(end - p < 80 ? end - p : 80), p);
    return set(l, p, (size_t)(eq - p), eq + 1, (size_t)(end - eq - 1), fault);
}

static zt_err tell_left_out(struct forward_list *l, const char *path, int why,
                            struct zt_fault *fault)
{
    char *before = l->left_out ? *l->left_out : NULL;

    if (!l->left_out)
        return ZT_OK;
    if (asprintf(l->left_out, "%s%s%s: %s; left out", before ? before : "",
                 before ? "\n" : "", path, strerror(why)) < 0) {
        *l->left_out = before;
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the environment");
    }
    free(before);
    return ZT_OK;
}

/* A file of the user's home that cannot be read is left out: the job may well not be about
 * it. Where a job says which file, or has one beside it, that is an error. */
static zt_err take_file(struct forward_list *l, const char *folder, const char *name,
                        bool is_home, bool *found, struct zt_fault *fault)
{
    bool left_out;
    char *path, *text = NULL;
    zt_err rc = ZT_OK;
    size_t n = 0;
    int line = 0;

    if (asprintf(&path, "%s%s%s", folder, *folder ? "/" : "", name) < 0)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the environment");
    text = zt_small_file(path, FILE_MAX_BYTES, &n);
    *found = *found || text || (errno != ENOENT && errno != ENOTDIR);
    left_out = !text && is_home &&
               (errno == EACCES || errno == EPERM || errno == EINVAL || errno == EIO);
    if (left_out)
        rc = tell_left_out(l, path, errno, fault);
    else if (!text && errno != ENOENT && errno != ENOTDIR)
        rc = zt_fault_set(fault, ZT_E_NOINPUT, "%s: %s", path, strerror(errno));
    for (const char *p = text; !rc && p && p < text + n;) {
        const char *nl = memchr(p, '\n', (size_t)(text + n - p));

        rc = take_line(l, p, nl ? nl : text + n, path, ++line, fault);
        p = nl ? nl + 1 : text + n;
    }
    free(text);
    free(path);
    return rc;
}

static zt_err take_files(struct forward_list *l, char *const *env, struct zt_fault *fault)
{
    const char *home = lookup(env, "HOME"), *name = lookup(env, "DS_ENV_FILE");
    bool found = !name || !*name, other = false; /* one that is named has to be there */
    zt_err rc = ZT_OK;

    if (found)
        name = ".deepspeed_env";
    if (*name == '/')
        rc = take_file(l, "", name, false, &found, fault);
    for (int i = 0; !rc && i < 2; i++) {
        const char *folder = i == 0 ? home : ".";

        if (!folder)
            continue;
        if (*name != '/')
            rc = take_file(l, folder, name, i == 0, &found, fault);
        if (!rc)
            rc = take_file(l, folder, ".zlaunch_env", i == 0, &other, fault);
    }
    if (!rc && !found)
        rc = zt_fault_set(fault, ZT_E_NOINPUT, "DS_ENV_FILE=%s: there is no such file%s",
                          name, *name == '/' ? "" : ", neither here nor in HOME");
    return rc;
}

static zt_err take_export(struct forward_list *l, char *const *env, const char *word,
                          struct zt_fault *fault)
{
    size_t n = strcspn(word, "=");
    const char *value = word[n] ? word + n + 1 : NULL;

    if (!zt_env_name_ok(word, n))
        return zt_fault_set(
            fault, ZT_E_USAGE,
            "--export '%.80s': expected NAME or NAME=VALUE, the name of "
            "letters, digits and _ (a value with commas: set it here, and "
            "--export its name)",
            word);
    if (!value)
        value = lookup(env, word);
    if (!value)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--export %s: it is not set here; write --export %s=VALUE "
                            "(a value with commas: set it here, and --export its name)",
                            word, word);
    return set(l, word, n, value, strlen(value), fault);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static zt_err forward(char *const *env, char *const *exports, bool only_named,
                      char ***out, char **left_out, struct zt_fault *fault)
{
    struct forward_list l = {.item = calloc(1, sizeof(*l.item)), .left_out = left_out};
    zt_err rc = ZT_OK;

    if (!l.item)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the environment");
    for (char *const *e = env; !rc && !only_named && *e; e++) {
        size_t n = strcspn(*e, "=");

        if ((*e)[n] && by_prefix(*e, n))
            rc = set(&l, *e, n, *e + n + 1, strlen(*e + n + 1), fault);
    }
    if (!rc)
        rc = take_files(&l, env, fault);
    for (; !rc && exports && *exports; exports++)
        rc = take_export(&l, env, *exports, fault);
    if (rc) {
        zt_forward_release(l.item);
        return rc;
    }
    qsort(l.item, l.num, sizeof(*l.item), by_name);
    *out = l.item;
    return ZT_OK;
}

zt_err zt_forward_env(char *const *env, char *const *exports, char ***out,
                      char **left_out, struct zt_fault *fault)
{
    return forward(env, exports, false, out, left_out, fault);
}

zt_err zt_forward_named(char *const *env, char *const *exports, char ***out,
                        struct zt_fault *fault)
{
    return forward(env, exports, true, out, NULL, fault);
}

void zt_forward_release(char **list)
{
    for (char **p = list; p && *p; p++)
        free(*p);
    free(list);
}
