#include "common/manpage.h"

#include <string.h>

void zt_man_title(FILE *out, const char *name, int section, const char *manual)
{
    fprintf(out, ".TH %s %d \"\" \"zlaunch %s\" \"%s\"\n", name, section, ZT_VERSION,
            manual);
}

void zt_man_text(FILE *out, const char *text)
{
    bool start = true;

    for (; *text; text++) {
        if (start && (*text == '.' || *text == '\''))
            fputs("\\&", out);
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else
            fputc(*text, out);
        start = *text == '\n';
    }
}

void zt_option_signature(const struct zt_option *o, char *out, size_t out_bytes)
{
    const char *value = o->value ? o->value : o->choices;

    snprintf(out, out_bytes, "--%s%s%s", o->name, value ? " " : "", value ? value : "");
}

void zt_man_option(FILE *out, const struct zt_option *o, const char *alias,
                   const char *more)
{
    char sign[160];

    zt_option_signature(o, sign, sizeof(sign));
    fputs(".TP\n.B ", out);
    if (alias && *alias) {
        zt_man_text(out, alias);
        fputs(", ", out);
    }
    zt_man_text(out, sign);
    fputc('\n', out);
    zt_man_text(out, o->help);
    if (o->def && *o->def && strcmp(o->def, "0") != 0) {
        fputs(" (default: ", out);
        zt_man_text(out, o->def);
        fputc(')', out);
    }
    if (more) {
        fputs(". ", out);
        zt_man_text(out, more);
    }
    fputs(".\n", out);
}

void zt_man_options(FILE *out, const struct zt_option *table)
{
    for (; table && table->name; table++)
        zt_man_option(out, table, NULL, NULL);
}
