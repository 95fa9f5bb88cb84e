/* print_docs.c -- the table of keys as a manual page and as a page of the docs. */
#include <string.h>

#include "worker/config/config.h"

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
    "A config is one JSON object in DeepSpeed's format; comments, trailing commas "
    "and numbers such as 5e8 are accepted, as DeepSpeed accepts them (it reads "
    "Hjson). Unknown keys, keys that stand twice and values of the wrong type are "
    "errors that name file, line and column; what can only mean one value of the "
    "right type is taken, with a note: \"yes\" as true. A number in quotes is taken "
    "in the sections where DeepSpeed converts it (zero_optimization, fp16, bf16, "
    "those of monitors, comms_logger and a few more): \"stage\": \"2\" as 2; "
    "elsewhere, as at the top level and in the params of optimizer and scheduler, it "
    "is an error. Keys that begin with '_' or '#', and those listed in the top-level "
    "array \"x-ignore\", are comments. \"auto\" takes the value of the run option "
    "that belongs to the key. The option --check_config prints the resolved config "
    "and where each value comes from.";

/* What "auto" means for a key; *prefix is "--" before the name of an option, else "". */
static const char *auto_rule(const struct zt_key *k, const char **prefix)
{
    *prefix = "";
    if (!(k->flags & ZT_KEY_AUTO))
        return NULL;
    if (k->auto_rule)
        return k->auto_rule->text;
    if (k->auto_text)
        return k->auto_text;
    if (!k->option)
        return "the default";
    *prefix = "--";
    return k->option;
}

/* A section says nothing itself, its keys do. */
static const char *status_of(const struct zt_key *k)
{
    return k->type == ZT_KEY_OBJECT && k->status == ZT_IDLE && !k->why
               ? "section"
               : zt_key_status_name(k->status);
}

/* ---- roff ---- */

static void print_roff(FILE *out, const char *s)
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
    const char *prefix, *rule = auto_rule(k, &prefix);

    fputs(".TP\n.B ", out);
    print_roff(out, k->path);
    fprintf(out, "\n%s", zt_key_type_name(k->type));
    if (k->choices) {
        fputs(" (", out);
        print_roff(out, k->choices);
        fputc(')', out);
    }
    if (k->range) {
        fputs(", in ", out);
        print_roff(out, k->range);
    }
    if (k->def) {
        fputs(", default ", out);
        print_roff(out, k->def);
    }
    fprintf(out, "; %s", status_of(k));
    if (k->why) {
        fputs(": ", out);
        print_roff(out, k->why);
    }
    fputs(".\n", out);
    if (rule) {
        fputs("\"auto\": ", out);
        print_roff(out, prefix);
        print_roff(out, rule);
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
    print_roff(out, intro);
    fputs("\n.SH STATUS\n", out);
    for (size_t i = 0; i < sizeof(legend) / sizeof(*legend); i++) {
        fprintf(out, ".TP\n.B %s\n", zt_key_status_name(legend[i].status));
        print_roff(out, legend[i].what);
        fputs(".\n", out);
    }
    fputs(".SH KEYS\n", out);
    for (const struct zt_key *k = zt_key_next(NULL); k; k = zt_key_next(k))
        man_key(out, k);
    zt_config_print_optim_man(out);
    fputs(".SH SEE ALSO\n.BR zlaunch (1),\n.BR zworker (1)\n", out);
}

/* ---- markdown ---- */

static void print_cell(FILE *out, const char *s)
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

static void print_code(FILE *out, const char *s)
{
    fputc('`', out);
    for (; *s; s++)
        fputs(*s == '|' ? "\\|" : (char[]){*s, 0}, out);
    fputc('`', out);
}

static void markdown_row(FILE *out, const struct zt_key *k)
{
    const char *prefix, *rule = auto_rule(k, &prefix);

    fputs("| ", out);
    print_code(out, k->path);
    fprintf(out, " | %s", zt_key_type_name(k->type));
    if (k->choices) {
        fputc(' ', out);
        print_code(out, k->choices);
    }
    if (k->range) {
        fputc(' ', out);
        print_cell(out, k->range);
    }
    fputs(" | ", out);
    if (k->def)
        print_code(out, k->def);
    fprintf(out, " | %s | ", status_of(k));
    print_cell(out, k->why);
    if (rule)
        fprintf(out, "%sauto: %s%s", k->why ? "; " : "", prefix, rule);
    if (k->alias)
        fprintf(out, "%salso `%s`", k->why || rule ? "; " : "", k->alias);
    if (k->replaced_by) {
        fprintf(out, "%sold: ", k->why || rule || k->alias ? "; " : "");
        print_cell(out, k->replaced_by);
    }
    fputs(" |\n", out);
}

void zt_config_print_markdown(FILE *out)
{
    int counts[sizeof(legend) / sizeof(*legend)] = {0}, all = 0;

    for (const struct zt_key *k = zt_key_next(NULL); k; k = zt_key_next(k), all++)
        counts[k->status]++;
    fprintf(out,
            "# Config keys\n\n%s\n\nMade from the table in `worker/config/schema` by "
            "`make docs`.\n\n| status | keys | meaning |\n"
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
    zt_config_print_optim_markdown(out);
}
