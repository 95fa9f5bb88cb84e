/*
 * The files of --push, for nodes without a shared folder: zworker and its backends, the
 * plugin or program, and the config. Other inputs (data, weights) have to be on the
 * nodes. The daemon puts the folder of the pushed files in front of the words that name
 * them.
 */
#include "launcher/plan/plan.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const config_options[] = {"--deepspeed", "--deepspeed_config",
                                             "--deepspeed-config"};

/* Takes `path`. */
static zt_err take(struct zt_job_plan *p, char *path, struct zt_fault *fault)
{
    size_t n = 0;
    char **grown;

    while (p->push[n])
        n++;
    grown = path ? realloc(p->push, (n + 2) * sizeof(*grown)) : NULL;
    if (!grown) {
        free(path);
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the plan");
    }
    p->push = grown;
    p->push[n] = path;
    p->push[n + 1] = NULL;
    return ZT_OK;
}

/* A backend, beside zworker or where it is installed; it keeps its folder:
 * "/usr/bin/./backends/mpi.so". */
static zt_err take_backend(struct zt_job_plan *p, const char *name,
                           struct zt_fault *fault)
{
    static const char *const places[] = {"", "/../lib/zlaunch"};
    const char *slash = strrchr(p->zworker, '/');

    for (int i = 0; slash && i < 2; i++) {
        char *path = NULL;

        if (asprintf(&path, "%.*s%s/./backends/%s.so", (int)(slash - p->zworker),
                     p->zworker, places[i], name) < 0)
            return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the plan");
        if (access(path, R_OK) == 0)
            return take(p, path, fault);
        free(path);
    }
    return ZT_OK;
}

static zt_err take_backends(struct zt_job_plan *p, struct zt_fault *fault)
{
    static const char *const names[] = {"mpi", "nccl", "cuda", "cudnn"};
    zt_err rc = ZT_OK;

    for (size_t i = 0; !rc && i < sizeof(names) / sizeof(*names); i++)
        rc = take_backend(p, names[i], fault);
    return rc;
}

static bool is_config_option(const char *word, size_t n)
{
    for (size_t i = 0; i < sizeof(config_options) / sizeof(*config_options); i++)
        if (strlen(config_options[i]) == n && strncmp(word, config_options[i], n) == 0)
            return true;
    return false;
}

/* "--deepspeed=FILE" becomes two words: what is pushed is a word of its own. */
static zt_err split_config_words(struct zt_job_plan *p, struct zt_fault *fault)
{
    for (int i = 1; p->argv[i]; i++) {
        size_t n = strcspn(p->argv[i], "="), num = 0;
        char *value, **grown;

        if (!p->argv[i][n] || !is_config_option(p->argv[i], n))
            continue;
        while (p->argv[num])
            num++;
        value = strdup(p->argv[i] + n + 1);
        grown = value ? realloc(p->argv, (num + 2) * sizeof(*grown)) : NULL;
        if (!grown) {
            free(value);
            return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the plan");
        }
        p->argv = grown;
        memmove(grown + i + 2, grown + i + 1, (num - (size_t)i) * sizeof(*grown));
        grown[i][n] = 0;
        grown[i + 1] = value;
    }
    return ZT_OK;
}

static zt_err take_word(struct zt_job_plan *p, int at, struct zt_fault *fault)
{
    json_array_append_new(p->pushed, json_integer(at));
    return take(p, strdup(p->argv[at]), fault);
}

zt_err zt_job_plan_choose_push(struct zt_job_plan *p, struct zt_fault *fault)
{
    zt_err rc;

    p->ssh = p->launch->ssh;
    if (!p->ssh.push)
        return ZT_OK;
    p->push = calloc(1, sizeof(*p->push));
    p->pushed = json_array();
    if (!p->push || !p->pushed)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the plan");
    rc = take(p, strdup(p->zworker), fault);
    if (!rc)
        rc = take_backends(p, fault);
    if (!rc) /* behind zworker stands the plugin */
        rc = take_word(p, p->is_plugin ? 1 : 0, fault);
    if (!rc && p->is_plugin)
        rc = split_config_words(p, fault);
    for (int i = 1; !rc && p->is_plugin && p->argv[i]; i++)
        if (is_config_option(p->argv[i], strlen(p->argv[i])) && p->argv[i + 1] &&
            access(p->argv[i + 1], R_OK) == 0)
            rc = take_word(p, i + 1, fault);
    p->ssh.push_files = p->push;
    return rc;
}
