/* print.c -- help, man page and completion from option tables. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/env.h"
#include "common/options/private.h"

#define SIGN_BYTES 160
#define NARROW     76 /* columns, below which there is no room for two */

const char *zt_option_value_word(const struct zt_option *o)
{
    return o->kind == ZT_OPT_FLAG || o->value ? o->value : o->choices;
}

/* "-H, --hostfile FILE", "--eval_file, --validation_file FILE..." */
static void signature(const struct zt_option *o, char out[SIGN_BYTES])
{
    const char *value = o->kind == ZT_OPT_FLAG ? NULL : zt_option_value_word(o);
    char letter[8] = "";

    if (o->letter)
        snprintf(letter, sizeof(letter), "-%c, ", o->letter);
    snprintf(out, SIGN_BYTES, "%s--%s%s%s%s%s", letter, o->name, o->alias ? ", --" : "",
             o->alias ? o->alias : "", value ? " " : "", value ? value : "");
}

/* A default that says something: not "0", "-1" or "". */
static const char *shown_default(const struct zt_option *o)
{
    if (!o->def || !*o->def || !strcmp(o->def, "0") || !strcmp(o->def, "-1"))
        return NULL;
    return o->def;
}

/* ---- lines no longer than the terminal is wide ---- */

static int width_of(FILE *out)
{
    int columns = zt_env_columns(fileno(out));

    return columns < 60 ? 60 : columns > 110 ? 110 : columns;
}

/* How much of a word of n bytes has room, up to a border between its parts; all of it where
 * it has no parts. */
static int part_of_word(const char *word, int n, int room)
{
    int k = n < room ? n : room;

    while (k > 0 && k < n && !strchr("|./,", word[k - 1]))
        k--;
    return k > 0 ? k : n;
}

/* Words of `text` from column `at`, wrapped at `width`, further lines at `indent`. */
static void print_wrapped(FILE *out, const char *text, int at, int indent, int width)
{
    bool space = false;

    while (*text) {
        int n = (int)strcspn(text, " "), k;

        if (at + space + n > width && at > indent) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
            space = false;
        }
        k = part_of_word(text, n, width - at - space);
        at += fprintf(out, "%s%.*s", space ? " " : "", k, text);
        text += k;
        space = k == n;
        if (space)
            text += strspn(text, " ");
    }
    fputc('\n', out);
}

void zt_help_print_text(FILE *out, const char *text)
{
    int width = width_of(out);

    while (*text) {
        int n = (int)strcspn(text, "\n"), indent = (int)strspn(text, " ");
        char *line = n > indent ? strndup(text + indent, (size_t)(n - indent)) : NULL;

        if (line) {
            fprintf(out, "%*s", indent, "");
            print_wrapped(out, line, indent, indent, width);
        } else {
            fputc('\n', out);
        }
        free(line);
        text += n + (text[n] == '\n');
    }
}

/* A name, and what it means: beside it, or below a long one and where there is no room. */
static void print_entry(FILE *out, const char *name, const char *text)
{
    int width = width_of(out), indent = width < NARROW ? 8 : 34;
    int at = 2 + (int)strlen(name);

    fputs("  ", out);
    if (at > indent - 2) {
        print_wrapped(out, name, 2, 4, width);
        fprintf(out, "%*s", indent, "");
    } else {
        fprintf(out, "%s%*s", name, indent - at, "");
    }
    print_wrapped(out, text, indent, indent, width);
}

/* ---- help ---- */

static void print_row(FILE *out, const struct zt_option *o)
{
    const char *def = shown_default(o);
    char sign[SIGN_BYTES], text[512];

    signature(o, sign);
    snprintf(text, sizeof(text), "%s%s%s%s%s",
             o->refused ? o->refused
             : o->help  ? o->help
                        : "",
             (o->help || o->refused) && def ? " " : "", def ? "(default: " : "",
             def ? def : "", def ? ")" : "");
    print_entry(out, sign, text);
}

void zt_options_print_help(FILE *out, const char *title, const struct zt_option *table)
{
    if (title)
        fprintf(out, "%s:\n", title);
    for (const struct zt_option *o = table; o->name; o++) {
        if (o->group)
            fprintf(out, "%s%s:\n", !title && o == table ? "" : "\n", o->group);
        print_row(out, o);
    }
}

/* ---- names of others ---- */

/* What is done with a row, as a sentence. */
static void foreign_text(const struct zt_foreign *f, char *out, size_t cap)
{
    char unit[32] = "";

    if (f->times != 0)
        snprintf(unit, sizeof(unit), ", times %.15g", f->times);
    switch (f->answer) {
    case ZT_FOREIGN_ALREADY:
        snprintf(out, cap, "accepted: %s", f->why);
        break;
    case ZT_FOREIGN_OPTION:
        snprintf(out, cap, "is --%s%s%s%s", f->to, f->value ? " " : "",
                 f->value ? f->value : "", unit);
        break;
    case ZT_FOREIGN_KEY:
        snprintf(out, cap, "is the key %s%s%s%s", f->to, f->value ? ": " : "",
                 f->value ? f->value : "", unit);
        break;
    case ZT_FOREIGN_REFUSED:
        snprintf(out, cap, "refused: %s", f->why);
        break;
    }
}

static void print_foreign(FILE *out, const struct zt_foreign *f)
{
    char sign[512], text[512];

    snprintf(sign, sizeof(sign), "%s%s%s%s", zt_foreign_dashes(f), f->name,
             f->values ? " " : "",
             !f->values     ? ""
             : f->values[0] ? f->values
                            : "\"\"");
    foreign_text(f, text, sizeof(text));
    print_entry(out, sign, text);
}

void zt_foreign_print_help(FILE *out, const struct zt_foreign *rows)
{
    for (const struct zt_foreign *f = rows; f->name; f++) {
        if (f->program && (f == rows || !f[-1].program))
            fprintf(out, "\nNames of %s:\n", f->program);
        print_foreign(out, f);
    }
}

void zt_foreign_print_keys(FILE *out, const struct zt_foreign *rows)
{
    zt_help_print_text(
        out, "\nKeys of a config, as options by the names that other programs have:\n");
    for (const struct zt_foreign *f = rows; f->name; f++)
        if (f->answer == ZT_FOREIGN_KEY)
            print_foreign(out, f);
}

static void print_cell(FILE *out, const char *s)
{
    for (; *s; s++) {
        if (*s == '|')
            fputc('\\', out);
        fputc(*s, out);
    }
}

void zt_foreign_print_markdown(FILE *out, const struct zt_foreign *rows)
{
    char text[512];

    for (const struct zt_foreign *f = rows; f->name; f++) {
        if (f->program && (f == rows || !f[-1].program))
            fprintf(out, "\n## %s\n\n| name | value | here |\n| --- | --- | --- |\n",
                    f->program);
        fprintf(out, "| `%s%s` | ", zt_foreign_dashes(f), f->name);
        print_cell(out, !f->values ? "" : f->values[0] ? f->values : "(empty)");
        fputs(" | ", out);
        foreign_text(f, text, sizeof(text));
        print_cell(out, text);
        fputs(" |\n", out);
    }
}

/* ---- man page ---- */

static void print_roff(FILE *out, const char *s)
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

void zt_options_print_man(FILE *out, const struct zt_option *table)
{
    for (const struct zt_option *o = table; o->name; o++) {
        const char *def = shown_default(o);
        char sign[SIGN_BYTES];

        if (o->group)
            fprintf(out, ".SS %s\n", o->group);
        signature(o, sign);
        fputs(".TP\n.B ", out);
        print_roff(out, sign);
        fputc('\n', out);
        print_roff(out, o->help);
        if (def) {
            fputs(" (default: ", out);
            print_roff(out, def);
            fputc(')', out);
        }
        fputs(".\n", out);
        if (o->refused) {
            fputs("Refused: ", out);
            print_roff(out, o->refused);
            fputs(".\n", out);
        }
    }
}

/* ---- completion ---- */

static bool is_job(const struct zt_completion *c, const struct zt_option *o)
{
    return c->job_words && o->value && !strcmp(o->value, "JOB");
}

/* Lines of the case about the word before: values of its option. */
static void bash_values(FILE *out, const struct zt_completion *c,
                        const struct zt_option *table)
{
    for (const struct zt_option *o = table; o && o->name; o++) {
        if (is_job(c, o))
            fprintf(out,
                    "    --%s) mapfile -t COMPREPLY < <(compgen -W \"$(%s)\" -- "
                    "\"$cur\"); return ;;\n",
                    o->name, c->job_words);
        if (o->kind != ZT_OPT_CHOICE || !o->choices)
            continue;
        fprintf(out, "    --%s) mapfile -t COMPREPLY < <(compgen -W '", o->name);
        for (const char *p = o->choices; *p; p++)
            fputc(*p == '|' ? ' ' : *p, out);
        fprintf(out, "' -- \"$cur\"); return ;;\n");
    }
}

static void bash_names(FILE *out, const struct zt_option *table)
{
    const char *space = "";

    for (const struct zt_option *o = table; o && o->name; o++)
        if (!o->refused) {
            fprintf(out, "%s--%s", space, o->name);
            space = " ";
        }
}

void zt_options_print_bash(FILE *out, const struct zt_completion *c)
{
    fprintf(out,
            "_%s() {\n    local cur=${COMP_WORDS[COMP_CWORD]} names w\n"
            "    case ${COMP_WORDS[COMP_CWORD-1]} in\n",
            c->program);
    bash_values(out, c, c->table);
    bash_values(out, c, c->behind);
    fprintf(out, "    esac\n    names='");
    bash_names(out, c->table);
    fprintf(out, "'\n    for w in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
                 "        [[ $w != *.so ]] || names='");
    bash_names(out, c->behind);
    fprintf(out,
            "'\n    done\n    if [[ $cur == -* ]]; then\n"
            "        mapfile -t COMPREPLY < <(compgen -W \"$names\" -- \"$cur\")\n"
            "    else\n        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n    fi\n"
            "}\ncomplete -o filenames -F _%s %s\n",
            c->program, c->program);
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

static bool is_in(const struct zt_option *table, const char *name)
{
    for (const struct zt_option *o = table; o->name; o++)
        if (!strcmp(o->name, name))
            return true;
    return false;
}

static void zsh_row(FILE *out, const struct zt_completion *c, const struct zt_option *o)
{
    fprintf(out, "  '%s--%s[", o->kind == ZT_OPT_LIST ? "*" : "", o->name);
    zsh_text(out, o->help);
    fputc(']', out);
    if (o->kind != ZT_OPT_FLAG) {
        fputc(':', out);
        zsh_text(out, zt_option_value_word(o) ? zt_option_value_word(o) : "value");
        fputc(':', out);
    }
    if (is_job(c, o)) {
        fprintf(out, "($(%s))", c->job_words);
    } else if (o->kind == ZT_OPT_CHOICE && o->choices) {
        fputc('(', out);
        for (const char *p = o->choices; *p; p++)
            fputc(*p == '|' ? ' ' : *p, out);
        fputc(')', out);
    } else if (o->flags & ZT_OPTION_PATH) {
        fputs("_files", out);
    }
    fputs("' \\\n", out);
}

void zt_options_print_zsh(FILE *out, const struct zt_completion *c)
{
    fprintf(out, "#compdef %s\n_arguments \\\n", c->program);
    for (const struct zt_option *o = c->table; o->name; o++)
        if (!o->refused)
            zsh_row(out, c, o);
    for (const struct zt_option *o = c->behind; o && o->name; o++)
        if (!is_in(c->table, o->name))
            zsh_row(out, c, o);
    fputs("  '*:file:_files'\n", out);
}
