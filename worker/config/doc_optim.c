/* doc_optim.c -- the optimizers and schedules that are built, for manual and docs. */
#include <string.h>

#include "worker/config/config.h"
#include "worker/optim/optim.h"
#include "worker/optim/sched/sched.h"

/* ---- markdown ---- */

/* "a|b" as `a`, `b`; nothing for NULL. */
static void put_words(FILE *out, const char *words)
{
    for (const char *w = words; w && *w; w += strcspn(w, "|"), w += *w == '|')
        fprintf(out, "%s`%.*s`", w == words ? "" : ", ", (int)strcspn(w, "|"), w);
}

/* `lr` 0.001, `betas` [0.9, 0.999] */
static void put_params(FILE *out, const struct zt_hyperparam *params)
{
    for (const struct zt_hyperparam *p = params; p->name; p++)
        fprintf(out, "%s`%s`%s%s", p == params ? "" : ", ", p->name, p->def ? " " : "",
                p->def ? p->def : "");
}

static void put_states(FILE *out, const struct zt_optimizer *o)
{
    for (int k = 0; k < o->num_states; k++)
        fprintf(out, "%s`%s` %s", k ? ", " : "", o->states[k].name,
                zt_dtype_name(o->states[k].dtype));
}

void zt_config_print_optim_markdown(FILE *out)
{
    fputs("\n## Optimizers\n\n`optimizer.type` of a config, or `--optim`. Each has the "
          "parameters with these defaults, and keeps beside the weights what the last "
          "column says of every element.\n\n| type | --optim | what it is | parameters "
          "| state |\n| --- | --- | --- | --- | --- |\n",
          out);
    for (int i = 0; zt_optimizers[i]; i++) {
        const struct zt_optimizer *o = zt_optimizers[i];

        fprintf(out, "| `%s` | ", o->name);
        put_words(out, o->options);
        fprintf(out, " | %s | ", o->help);
        put_params(out, o->params);
        fputs(" | ", out);
        put_states(out, o);
        fputs(" |\n", out);
    }
    fputs(
        "\n## Schedules\n\n`scheduler.type` of a config, or `--lr_scheduler_type` where "
        "the config has no scheduler.\n\n| type | --lr_scheduler_type | what it is | "
        "parameters |\n| --- | --- | --- | --- |\n",
        out);
    for (int i = 0; zt_schedules[i]; i++) {
        const struct zt_schedule *s = zt_schedules[i];

        fputs("| ", out);
        put_words(out, s->type);
        fputs(" | ", out);
        put_words(out, s->options);
        fprintf(out, " | %s | ", s->help);
        put_params(out, s->params);
        fputs(" |\n", out);
    }
}

/* ---- roff ---- */

static void man_entry(FILE *out, const char *type, const char *options, const char *help,
                      const struct zt_hyperparam *params)
{
    fprintf(out, ".TP\n.B %s\n%s", type ? type : options, help);
    if (type && options)
        fprintf(out, " (%s)", options);
    for (const struct zt_hyperparam *p = params; p->name; p++)
        fprintf(out, "%s%s%s%s", p == params ? "; parameters: " : ", ", p->name,
                p->def ? " " : "", p->def ? p->def : "");
    fputs(".\n", out);
}

void zt_config_print_optim_man(FILE *out)
{
    fputs(".SH OPTIMIZERS\n", out);
    for (int i = 0; zt_optimizers[i]; i++)
        man_entry(out, zt_optimizers[i]->name, zt_optimizers[i]->options,
                  zt_optimizers[i]->help, zt_optimizers[i]->params);
    fputs(".SH SCHEDULES\n", out);
    for (int i = 0; zt_schedules[i]; i++)
        man_entry(out, zt_schedules[i]->type, zt_schedules[i]->options,
                  zt_schedules[i]->help, zt_schedules[i]->params);
}
