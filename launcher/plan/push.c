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

/* The backends beside zworker keep their folder: "/usr/bin/./backends/mpi.so". */
static zt_err take_backends(struct zt_job_plan *p, struct zt_fault *fault)
{
    const char *slash = strrchr(p->zworker, '/');
    char *path = NULL;

    if (!slash || asprintf(&path, "%.*s/./backends/mpi.so", (int)(slash - p->zworker),
                           p->zworker) < 0)
        return ZT_OK;
    if (access(path, R_OK) == 0)
        return take(p, path, fault);
    free(path);
    return ZT_OK;
}

static bool is_config_option(const char *word)
{
    for (size_t i = 0; i < sizeof(config_options) / sizeof(*config_options); i++)
        if (strcmp(word, config_options[i]) == 0)
            return true;
    return false;
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
    for (int i = 1; !rc && p->is_plugin && p->argv[i]; i++)
        if (is_config_option(p->argv[i]) && p->argv[i + 1] &&
            access(p->argv[i + 1], R_OK) == 0)
            rc = take_word(p, i + 1, fault);
    p->ssh.push_files = p->push;
    return rc;
}
