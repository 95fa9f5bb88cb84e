#include "worker/daemon/job.h"

#include "common/json/line.h"
#include "common/message/frame.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static zt_err bad(struct zt_fault *fault, const char *key, const char *why)
{
    return zt_fault_set(fault, ZT_E_FORMAT, "job description: \"%s\" %s", key, why);
}

static zt_err get_int(const json_t *o, const char *key, int min, int max, int *out,
                      struct zt_fault *fault)
{
    const json_t *v = json_object_get(o, key);

    if (!json_is_integer(v))
        return bad(fault, key, "is no whole number");
    if (json_integer_value(v) < min || json_integer_value(v) > max)
        return bad(fault, key, "is out of range");
    *out = (int)json_integer_value(v);
    return ZT_OK;
}

/* The same, but it may be missing: then *out stays. */
static zt_err get_some_int(const json_t *o, const char *key, int min, int max, int *out,
                           struct zt_fault *fault)
{
    return json_object_get(o, key) ? get_int(o, key, min, max, out, fault) : ZT_OK;
}

/* A string, or null when `optional`. */
static zt_err get_text(const json_t *o, const char *key, bool optional, const char **out,
                       struct zt_fault *fault)
{
    const json_t *v = json_object_get(o, key);

    if (json_is_string(v))
        *out = json_string_value(v);
    else if (!optional || (v && !json_is_null(v)))
        return bad(fault, key, "is no string");
    return ZT_OK;
}

static zt_err get_argv(const json_t *o, char ***out, struct zt_fault *fault)
{
    const json_t *list = json_object_get(o, "argv");
    size_t n = json_array_size(list);
    char **argv;

    if (!n)
        return bad(fault, "argv", "is no list of words");
    argv = calloc(n + 1, sizeof(*argv));
    if (!argv)
        return zt_fault_set(fault, ZT_E_NOMEM, "job description: no memory");
    *out = argv;
    for (size_t i = 0; i < n; i++) {
        argv[i] = (char *)json_string_value(json_array_get(list, i));
        if (!argv[i])
            return bad(fault, "argv", "holds something that is no word");
    }
    return ZT_OK;
}

static zt_err get_env(const json_t *o, const char *name, char ***out,
                      struct zt_fault *fault)
{
    json_t *env = json_object_get(o, name), *v;
    char **list = calloc(json_object_size(env) + 1, sizeof(*list));
    const char *key;
    size_t n = 0;

    if (!list)
        return zt_fault_set(fault, ZT_E_NOMEM, "job description: no memory");
    *out = list;
    json_object_foreach(env, key, v)
    {
        if (!json_is_string(v) || !*key || strchr(key, '='))
            return bad(fault, name, "holds something that is no NAME: \"value\"");
        if (asprintf(&list[n], "%s=%s", key, json_string_value(v)) < 0) {
            list[n] = NULL;
            return zt_fault_set(fault, ZT_E_NOMEM, "job description: no memory");
        }
        n++;
    }
    return ZT_OK;
}

/* argv[at] becomes `word`, which is taken. */
static zt_err set_word(struct zt_job *job, size_t at, char *word, struct zt_fault *fault)
{
    size_t n = 0;
    char **grown;

    while (job->own && job->own[n])
        n++;
    grown = word ? realloc(job->own, (n + 2) * sizeof(*grown)) : NULL;
    if (!grown) {
        free(word);
        return zt_fault_set(fault, ZT_E_NOMEM, "job description: no memory");
    }
    job->own = grown;
    job->own[n] = job->argv[at] = word;
    job->own[n + 1] = NULL;
    return ZT_OK;
}

/* "self": the ranks run the program that the daemon is, wherever that is on this node. */
static zt_err get_self(const json_t *o, struct zt_job *job, struct zt_fault *fault)
{
    char path[4096];
    ssize_t n;

    if (!json_is_true(json_object_get(o, "self")))
        return ZT_OK;
    n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (n < 0)
        return zt_fault_set(fault, ZT_E_SYSTEM, "/proc/self/exe: %s", strerror(errno));
    path[n] = 0;
    return set_word(job, 0, strdup(path), fault);
}

/* "pushed": these words name files that were copied to ZLAUNCH_PUSH_DIR. */
static zt_err get_pushed(const json_t *o, struct zt_job *job, struct zt_fault *fault)
{
    const json_t *list = json_object_get(o, "pushed");
    const char *dir = getenv("ZLAUNCH_PUSH_DIR");
    size_t num_words = 0;
    zt_err rc = ZT_OK;

    while (job->argv[num_words])
        num_words++;
    for (size_t i = 0; !rc && dir && i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        size_t at = (size_t)json_integer_value(v);
        char *word = NULL, *slash;

        if (!json_is_integer(v) || at >= num_words)
            return bad(fault, "pushed", "holds something that is no word of argv");
        slash = strrchr(job->argv[at], '/');
        if (asprintf(&word, "%s/%s", dir, slash ? slash + 1 : job->argv[at]) < 0)
            word = NULL;
        rc = set_word(job, at, word, fault);
    }
    return rc;
}

static zt_err get_some_ints(const json_t *o, struct zt_job *job, struct zt_fault *fault)
{
    const struct {
        const char *key;
        int min, max;
        int *out;
    } ints[] = {
        {.key = "restart", .min = 0, .max = 1 << 24, .out = &job->restart},
        {.key = "max_restarts", .min = 0, .max = 1 << 24, .out = &job->max_restarts},
        {.key = "silence_ms", .min = 0, .max = 3600 * 1000, .out = &job->silence_ms},
        {.key = "share_first", .min = 0, .max = 1 << 24, .out = &job->share_first},
        {.key = "share_ranks", .min = 1, .max = 1 << 24, .out = &job->share_ranks},
    };
    zt_err rc = ZT_OK;

    job->share_ranks = job->local_world;
    for (size_t i = 0; !rc && i < sizeof(ints) / sizeof(*ints); i++)
        rc = get_some_int(o, ints[i].key, ints[i].min, ints[i].max, ints[i].out, fault);
    if (!rc && job->share_first + job->local_world > job->share_ranks)
        rc = bad(fault, "share_ranks", "is smaller than the ranks of this node need");
    return rc;
}

static zt_err fill(struct zt_job *job, const json_t *o, struct zt_fault *fault)
{
    const struct {
        const char *key;
        int min, max;
        int *out;
    } ints[] = {
        {.key = "first_rank", .min = 0, .max = 1 << 24, .out = &job->first_rank},
        {.key = "local_world",
         .min = 1,
         .max = ZT_MAX_LOCAL_RANKS,
         .out = &job->local_world},
        {.key = "world", .min = 1, .max = 1 << 24, .out = &job->world},
        {.key = "node_rank", .min = 0, .max = 1 << 20, .out = &job->node_rank},
        {.key = "num_nodes", .min = 1, .max = 1 << 20, .out = &job->num_nodes},
        {.key = "master_port", .min = 0, .max = 65535, .out = &job->master_port},
        {.key = "grace_ms", .min = 0, .max = ZT_GRACE_MAX_MS, .out = &job->grace_ms},
    };
    const struct {
        const char *key;
        bool optional;
        const char **out;
    } texts[] = {
        {.key = "id", .optional = false, .out = &job->id},
        {.key = "cwd", .optional = true, .out = &job->cwd},
        {.key = "secret", .optional = true, .out = &job->secret},
        {.key = "master_addr", .optional = false, .out = &job->master_addr},
        {.key = "core_list", .optional = true, .out = &job->core_list},
        {.key = "pmi_mapping", .optional = true, .out = &job->pmi_mapping},
        {.key = "log_dir", .optional = true, .out = &job->log_dir},
        {.key = "log_stamp", .optional = true, .out = &job->log_stamp},
        {.key = "pid_file", .optional = true, .out = &job->pid_file},
    };
    zt_err rc = ZT_OK;

    for (size_t i = 0; !rc && i < sizeof(ints) / sizeof(*ints); i++)
        rc = get_int(o, ints[i].key, ints[i].min, ints[i].max, ints[i].out, fault);
    for (size_t i = 0; !rc && i < sizeof(texts) / sizeof(*texts); i++)
        rc = get_text(o, texts[i].key, texts[i].optional, texts[i].out, fault);
    if (!rc && job->first_rank + job->local_world > job->world)
        rc = bad(fault, "world", "is smaller than the ranks of this node need");
    if (!rc && job->log_dir && !job->log_stamp)
        rc = bad(fault, "log_stamp", "is missing");
    job->bind = json_is_true(json_object_get(o, "bind"));
    job->hold_user_signals = json_is_true(json_object_get(o, "hold_user_signals"));
    job->stay = json_is_true(json_object_get(o, "stay"));
    if (!rc)
        rc = get_some_ints(o, job, fault);
    if (!rc)
        rc = get_argv(o, &job->argv, fault);
    if (!rc)
        rc = get_self(o, job, fault);
    if (!rc)
        rc = get_pushed(o, job, fault);
    if (!rc)
        rc = get_env(o, "env", &job->env, fault);
    if (!rc)
        rc = get_env(o, "defaults", &job->defaults, fault);
    return rc;
}

zt_err zt_job_open(const void *json, size_t bytes, struct zt_job **out,
                   struct zt_fault *fault)
{
    json_t *o = zt_json_object(json, bytes);
    struct zt_job *job;
    zt_err rc;

    if (!o)
        return zt_fault_set(fault, ZT_E_FORMAT, "job description: no JSON object");
    job = calloc(1, sizeof(*job));
    if (!job) {
        json_decref(o);
        return zt_fault_set(fault, ZT_E_NOMEM, "job description: no memory");
    }
    job->root = o;
    rc = fill(job, o, fault);
    if (rc) {
        zt_job_close(job);
        return rc;
    }
    *out = job;
    return ZT_OK;
}

void zt_job_close(struct zt_job *job)
{
    if (!job)
        return;
    for (char **e = job->env; e && *e; e++)
        free(*e);
    free(job->env);
    for (char **e = job->defaults; e && *e; e++)
        free(*e);
    free(job->defaults);
    free(job->argv);
    for (char **w = job->own; w && *w; w++)
        free(*w);
    free(job->own);
    json_decref(job->root);
    free(job);
}
