/* config_doc.c -- the table of keys as a manual page and as a page of the docs. */
#include <string.h>

#include "common/config.h"

static const struct {
    zt_key_status status;
    const char *what;
} legend[] = {
    {ZT_HONOURED, "does what it says"},
    {ZT_ALWAYS, "holds by design, whatever the value; the remark tells how"},
    {ZT_IDLE, "accepted and checked, but without effect in this version"},
    {ZT_LATER, "not in this version: refused by name, unless it has its default; details "
               "of a feature are accepted while the feature is off"},
    {ZT_NEVER, "as before, and not planned; the remark tells why"},
};

static const char intro[] =
    "A config is one JSON object in DeepSpeed's format; comments, trailing commas and "
    "numbers such as 5e8 are accepted. Unknown keys, keys that stand twice and values of "
    "the wrong type are errors that name file, line and column. Keys that begin with '_' "
    "or '#', and those listed in the top-level array \"x-ignore\", are comments. "
    "\"auto\" "
    "takes the value of the run option that belongs to the key. "
    "The option --check_config prints the resolved config and where each value comes "
    "from.";

static const char *const auto_of[][2] = {
    {"train_batch_size", "micro batch * accumulation steps * ranks"},
    {"train_micro_batch_size_per_gpu", "--per_device_train_batch_size"},
    {"gradient_accumulation_steps", "--gradient_accumulation_steps"},
    {"gradient_clipping", "--max_grad_norm"},
    {"optimizer.params.lr", "--learning_rate"},
    {"optimizer.params.betas", "--adam_beta1, --adam_beta2"},
    {"optimizer.params.eps", "--adam_epsilon"},
    {"optimizer.params.weight_decay", "--weight_decay"},
    {"scheduler.params.warmup_min_lr", "0"},
    {"scheduler.params.warmup_max_lr", "--learning_rate"},
    {"scheduler.params.warmup_num_steps", "--warmup_steps, or --warmup_ratio * steps"},
    {"scheduler.params.total_num_steps", "the steps of the run"},
    {"fp16.enabled", "--fp16"},
    {"bf16.enabled", "--bf16"},
    {"zero_optimization.reduce_bucket_size", "hidden size squared"},
};

static const char *auto_rule(const struct zt_key *k)
{
    for (size_t i = 0; i < sizeof(auto_of) / sizeof(*auto_of); i++)
        if (!strcmp(auto_of[i][0], k->path))
            return auto_of[i][1];
    return k->flags & ZT_KEY_AUTO ? "the default" : NULL;
}

/* A section says nothing itself, its keys do. */
static const char *status_of(const struct zt_key *k)
{
    return k->type == ZT_KEY_OBJECT && k->status == ZT_IDLE && !k->why
               ? "section"
               : zt_key_status_name(k->status);
}

/* ---- roff ---- */

static void roff(FILE *out, const char *s)
{
    for (; *s; s++) {
        if (*s == '\\')
            fputs("\\e", out);
        else if (*s == '-')
            fputs("\\-", out);
        else if (*s == '\'')
            fputs("\\(aq", out);
        else
            fputc(*s, out);
    }
}

static void man_key(FILE *out, const struct zt_key *k)
{
    const char *rule = auto_rule(k);

    fputs(".TP\n.B ", out);
    roff(out, k->path);
    fprintf(out, "\n%s", zt_key_type_name(k->type));
    if (k->choices) {
        fputs(" (", out);
        roff(out, k->choices);
        fputc(')', out);
    }
    if (k->range) {
        fputs(", in ", out);
        roff(out, k->range);
    }
    if (k->def) {
        fputs(", default ", out);
        roff(out, k->def);
    }
    fprintf(out, "; %s", status_of(k));
    if (k->why) {
        fputs(": ", out);
        roff(out, k->why);
    }
    fputs(".\n", out);
    if (rule) {
        fputs("\"auto\": ", out);
        roff(out, rule);
        fputs(".\n", out);
    }
    if (k->alias)
        fprintf(out, "Also spelled %s.\n", k->alias);
    if (k->replaced_by)
        fprintf(out, "Old; now %s.\n", k->replaced_by);
}

void zt_config_print_man(FILE *out)
{
    fprintf(out,
            ".TH ZLAUNCH-CONFIG 5 \"\" \"zlaunch %s\" \"File Formats\"\n"
            ".SH NAME\nzlaunch\\-config \\- the keys of a config\n.SH DESCRIPTION\n",
            ZT_VERSION);
    roff(out, intro);
    fputs("\n.SH STATUS\n", out);
    for (size_t i = 0; i < sizeof(legend) / sizeof(*legend); i++) {
        fprintf(out, ".TP\n.B %s\n", zt_key_status_name(legend[i].status));
        roff(out, legend[i].what);
        fputs(".\n", out);
    }
    fputs(".SH KEYS\n", out);
    for (const struct zt_key *k = zt_key_next(NULL); k; k = zt_key_next(k))
        man_key(out, k);
    fputs(".SH SEE ALSO\n.BR zlaunch (1),\n.BR zworker (1)\n", out);
}

/* ---- markdown ---- */

static void cell(FILE *out, const char *s)
{
    for (; s && *s; s++) {
        if (*s == '|')
            fputs("\\|", out);
        else if (*s == '<')
            fputs("&lt;", out);
        else
            fputc(*s, out);
    }
}

static void code(FILE *out, const char *s)
{
    fputc('`', out);
    for (; *s; s++)
        fputs(*s == '|' ? "\\|" : (char[]){*s, 0}, out);
    fputc('`', out);
}

static void markdown_row(FILE *out, const struct zt_key *k)
{
    const char *rule = auto_rule(k);

    fputs("| ", out);
    code(out, k->path);
    fprintf(out, " | %s", zt_key_type_name(k->type));
    if (k->choices) {
        fputc(' ', out);
        code(out, k->choices);
    }
    if (k->range) {
        fputc(' ', out);
        cell(out, k->range);
    }
    fputs(" | ", out);
    if (k->def)
        code(out, k->def);
    fprintf(out, " | %s | ", status_of(k));
    cell(out, k->why);
    if (rule)
        fprintf(out, "%sauto: %s", k->why ? "; " : "", rule);
    if (k->alias)
        fprintf(out, "%salso `%s`", k->why || rule ? "; " : "", k->alias);
    if (k->replaced_by) {
        fprintf(out, "%sold: ", k->why || rule ? "; " : "");
        cell(out, k->replaced_by);
    }
    fputs(" |\n", out);
}

void zt_config_print_markdown(FILE *out)
{
    int counts[sizeof(legend) / sizeof(*legend)] = {0}, all = 0;

    for (const struct zt_key *k = zt_key_next(NULL); k; k = zt_key_next(k), all++)
        counts[k->status]++;
    fprintf(out,
            "# Config keys\n\n%s\n\nMade from the table in `common/schema_*.c` by "
            "`zworker --print_man markdown`.\n\n| status | keys | meaning |\n"
            "| --- | --- | --- |\n",
            intro);
    for (size_t i = 0; i < sizeof(legend) / sizeof(*legend); i++)
        fprintf(out, "| %s | %d | %s |\n", zt_key_status_name(legend[i].status),
                counts[legend[i].status], legend[i].what);
    fprintf(out,
            "\n%d keys:\n\n| key | type | default | status | remark |\n"
            "| --- | --- | --- | --- | --- |\n",
            all);
    for (const struct zt_key *k = zt_key_next(NULL); k; k = zt_key_next(k))
        markdown_row(out, k);
}
