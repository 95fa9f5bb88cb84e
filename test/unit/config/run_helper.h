/* run_helper.h -- a run from a config text and some words, for the tests. */
#ifndef TEST_RUN_HELPER_H
#define TEST_RUN_HELPER_H

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/config/config.h"
#include "worker/config/run.h"

#define UNUSED __attribute__((unused))

static const struct zt_option plugin_options[] = {
    {.name = "n_layer", .kind = ZT_OPT_INT, .min = 1, .max = 1000, .help = "layers"},
    {.name = "dropout", .kind = ZT_OPT_FLOAT, .def = "0", .max = 0.99, .help = "share"},
    {.name = NULL},
};

struct run_trial {
    struct zt_run *run; /* NULL: refused */
    struct zt_fault fault;
    zt_err rc;
};

/* A parameter of the run's optimizer or schedule; of a pair the first. NAN: it has none. */
static double UNUSED hyper(const struct zt_hyperparam *rows, const double *value,
                           const char *name)
{
    const struct zt_hyperparam *p = zt_hyper_find(rows, name);

    return p ? value[p->slot] : NAN;
}

static double UNUSED optim_value(const struct zt_run *r, const char *name)
{
    return hyper(r->optim.optimizer->params, r->optim.value, name);
}

static double UNUSED sched_value(const struct zt_run *r, const char *name)
{
    return hyper(r->sched.schedule->params, r->sched.value, name);
}

/* The file that holds the config of a trial; made on first use, removed at exit. */
static char config_path[64];

static void remove_config(void)
{
    unlink(config_path);
}

static const char *config_file(const char *text)
{
    FILE *f;

    if (!*config_path) {
        snprintf(config_path, sizeof(config_path), "/tmp/zt_run_%d.json", (int)getpid());
        atexit(remove_config);
    }
    f = fopen(config_path, "w");
    assert(f);
    fputs(text, f);
    fclose(f);
    return config_path;
}

/* `config` NULL: none. Words end with NULL. --check_config is always given, so that a run
 * without data is no problem. */
static struct run_trial try_run(int world, const char *config, char *const *words)
{
    struct zt_run_facts facts = {.world = world,
                                 .local_world = world,
                                 .model_options = plugin_options,
                                 .program = "train.so"};
    char *argv[64] = {"--check_config"};
    struct run_trial t = {0};
    int n = 1;

    if (config) {
        argv[n++] = "--deepspeed";
        argv[n++] = (char *)(uintptr_t)config_file(config);
    }
    while (*words)
        argv[n++] = *words++;
    t.rc = zt_run_open(n, argv, &facts, &t.run, &t.fault);
    if (!t.rc) {
        int64_t steps = t.run->max_steps > 0 ? t.run->max_steps : 1000;

        t.rc = zt_run_resolve(t.run, 64, steps, &t.fault);
        if (t.rc) {
            zt_run_close(t.run);
            t.run = NULL;
        }
    }
    return t;
}

#define try_it(world, config, ...)                                                       \
    try_run(world, config, (char *[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

/* What --check_config prints; the caller frees. */
static UNUSED char *resolved_text(const struct zt_run *run)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);

    assert(f);
    if (zt_run_print_config(run, f, NULL))
        abort();
    fclose(f);
    return text;
}

/* Cut the comments: " // " to the end of each line. In place. */
static UNUSED char *without_comments(char *text)
{
    char *out = text;

    for (const char *in = text; *in;) {
        if (!strncmp(in, " // ", 4))
            in += strcspn(in, "\n");
        else
            *out++ = *in++;
    }
    *out = 0;
    return text;
}

#endif
