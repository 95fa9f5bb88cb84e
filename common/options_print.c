/* options_print.c -- help, man page and completion from option tables. */
#include <string.h>
#include <unistd.h>

#include "common/env.h"
#include "common/options.h"

#define SIGN_BYTES 160

/* "-H, --hostfile FILE", "--eval_file, --validation_file FILE..." */
static void signature(const struct zt_option *o, const struct zt_option_extra *e,
                      char out[SIGN_BYTES])
{
    const char *value = o->kind == ZT_OPT_FLAG ? NULL : o->value;
    char letter[8] = "";

    if (e->letter)
        snprintf(letter, sizeof(letter), "-%c, ", e->letter);
    snprintf(out, SIGN_BYTES, "%s--%s%s%s%s%s", letter, o->name, e->alias ? ", --" : "",
             e->alias ? e->alias : "", value ? " " : "", value ? value : "");
}

/* A default that says something: not "0", "-1" or "". */
static const char *shown_default(const struct zt_option *o)
{
    if (!o->def || !*o->def || !strcmp(o->def, "0") || !strcmp(o->def, "-1"))
        return NULL;
    return o->def;
}

/* Words of `text` from column `at`, wrapped at `width`, further lines at `indent`. */
static void wrap(FILE *out, const char *text, int at, int indent, int width)
{
    while (*text) {
        int n = (int)strcspn(text, " ");

        if (at + n + 1 > width && at > indent) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
        }
        if (at > indent) {
            fputc(' ', out);
            at++;
        }
        fprintf(out, "%.*s", n, text);
        at += n;
        text += n;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

static void print_row(FILE *out, const struct zt_option *o,
                      const struct zt_option_extra *e, int width)
{
    const int indent = 34;
    const char *def = shown_default(o);
    char sign[SIGN_BYTES], text[512];
    int at;

    signature(o, e, sign);
    at = fprintf(out, "  %s", sign);
    if (at > indent - 2)
        fprintf(out, "\n%*s", indent, "");
    else
        fprintf(out, "%*s", indent - at, "");
    snprintf(text, sizeof(text), "%s%s%s%s", e->refused ? e->refused : o->help,
             def ? " (default: " : "", def ? def : "", def ? ")" : "");
    wrap(out, text, indent, indent, width);
}

static int width_of(FILE *out)
{
    int columns = zt_env_columns(fileno(out));

    return columns < 60 ? 60 : columns > 110 ? 110 : columns;
}

void zt_options_print_help(FILE *out, const char *title, const struct zt_option *table)
{
    static const struct zt_option_extra none;
    int width = width_of(out);

    fprintf(out, "%s:\n", title);
    for (const struct zt_option *o = table; o->name; o++)
        print_row(out, o, &none, width);
}

void zt_options_print_groups(FILE *out, const struct zt_option *table,
                             const struct zt_option_extra *extras)
{
    int width = width_of(out);

    for (const struct zt_option *o = table; o->name; o++) {
        const struct zt_option_extra *e = zt_option_extra_of(extras, o->name);

        if (e->group)
            fprintf(out, "%s%s:\n", o == table ? "" : "\n", e->group);
        print_row(out, o, e, width);
    }
}

/* ---- man page ---- */

static void roff(FILE *out, const char *s)
{
    for (; *s; s++) {
        if (*s == '\\')
            fputs("\\e", out);
        else if (*s == '-')
            fputs("\\-", out);
        else
            fputc(*s, out);
    }
}

void zt_options_print_man(FILE *out, const struct zt_option *table,
                          const struct zt_option_extra *extras)
{
    for (const struct zt_option *o = table; o->name; o++) {
        const struct zt_option_extra *e = zt_option_extra_of(extras, o->name);
        const char *def = shown_default(o);
        char sign[SIGN_BYTES];

        if (e->group)
            fprintf(out, ".SS %s\n", e->group);
        signature(o, e, sign);
        fputs(".TP\n.B ", out);
        roff(out, sign);
        fputc('\n', out);
        roff(out, o->help);
        if (def) {
            fputs(" (default: ", out);
            roff(out, def);
            fputc(')', out);
        }
        fputs(".\n", out);
        if (e->refused) {
            fputs("Refused: ", out);
            roff(out, e->refused);
            fputs(".\n", out);
        }
    }
}

/* ---- completion ---- */

static bool is_file(const struct zt_option *o)
{
    return o->value && (strstr(o->value, "FILE") || strstr(o->value, "DIR") ||
                        strstr(o->value, "PATH"));
}

void zt_options_print_bash(FILE *out, const char *program, const struct zt_option *table,
                           const struct zt_option_extra *extras)
{
    fprintf(out, "_%s() {\n    local cur=${COMP_WORDS[COMP_CWORD]}\n", program);
    fprintf(out, "    case ${COMP_WORDS[COMP_CWORD-1]} in\n");
    for (const struct zt_option *o = table; o->name; o++) {
        if (o->kind != ZT_OPT_CHOICE)
            continue;
        fprintf(out, "    --%s) mapfile -t COMPREPLY < <(compgen -W '", o->name);
        for (const char *c = o->choices; *c; c++)
            fputc(*c == '|' ? ' ' : *c, out);
        fprintf(out, "' -- \"$cur\"); return ;;\n");
    }
    fprintf(out, "    esac\n    if [[ $cur == -* ]]; then\n"
                 "        mapfile -t COMPREPLY < <(compgen -W '");
    for (const struct zt_option *o = table; o->name; o++)
        if (!zt_option_extra_of(extras, o->name)->refused)
            fprintf(out, "%s--%s", o == table ? "" : " ", o->name);
    fprintf(out,
            "' -- \"$cur\")\n    else\n        mapfile -t COMPREPLY < <(compgen -f -- "
            "\"$cur\")\n    fi\n}\ncomplete -o filenames -F _%s %s\n",
            program, program);
}

/* Text inside '...[...]' of a zsh specification. */
static void zsh_text(FILE *out, const char *s)
{
    for (; *s; s++) {
        if (*s == '\'')
            fputs("'\\''", out);
        else if (strchr("[]:\\", *s))
            fprintf(out, "\\%c", *s);
        else
            fputc(*s, out);
    }
}

void zt_options_print_zsh(FILE *out, const char *program, const struct zt_option *table,
                          const struct zt_option_extra *extras)
{
    fprintf(out, "#compdef %s\n_arguments \\\n", program);
    for (const struct zt_option *o = table; o->name; o++) {
        if (zt_option_extra_of(extras, o->name)->refused)
            continue;
        fprintf(out, "  '%s--%s[", o->kind == ZT_OPT_LIST ? "*" : "", o->name);
        zsh_text(out, o->help);
        fputc(']', out);
        if (o->kind != ZT_OPT_FLAG) {
            fputc(':', out);
            zsh_text(out, o->value ? o->value : "value");
            fputc(':', out);
        }
        if (o->kind == ZT_OPT_CHOICE) {
            fputc('(', out);
            for (const char *c = o->choices; *c; c++)
                fputc(*c == '|' ? ' ' : *c, out);
            fputc(')', out);
        } else if (is_file(o)) {
            fputs("_files", out);
        }
        fputs("' \\\n", out);
    }
    fputs("  '*:file:_files'\n", out);
}
