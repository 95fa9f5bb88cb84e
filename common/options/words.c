/*
 * words.c -- the words of a command line: to the options of the tables, or to the names
 * that others have for them.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common/options/private.h"
#include "common/suggest.h"

static int find_letter(const zt_args *a, char letter)
{
    for (int i = 0; a->table[i].name; i++)
        if (a->table[i].letter == letter)
            return i;
    return -1;
}

/* Somebody else's name that has set an option or a key. */
struct foreign_said {
    const char *name;
    const char *written; /* "--mixed_precision bf16" */
    struct foreign_said *next;
};

struct word_reader {
    zt_args *const *sets;
    int num_sets, argc, at;
    bool has_rest; /* words that belong to no option end the options */
    char *const *argv;
    struct zt_problems *report;
    struct foreign_said *said; /* the last one first */
};

/* Is this word an option rather than a value? "-3" and "-" are values. */
static bool is_option(const char *word)
{
    double d;

    return word[0] == '-' && word[1] && !zt_parse_double(word, &d);
}

/* Is the word at argv[i] the plugin that ends our options? Then it is the value of none that
 * is no text. */
static bool is_target(const struct word_reader *r, int i)
{
    size_t n = r->has_rest && i < r->argc ? strlen(r->argv[i]) : 0;

    return n > 3 && !strcmp(r->argv[i] + n - 3, ".so") && !strchr(r->argv[i], '=');
}

/* ---- the value of an option ---- */

/* An option as it stands in the words, and those that are its value. */
struct option_words {
    const char *const *texts;
    int num_texts; /* 0: a value is missing */
};

/*
 * What belongs to the option at argv[at], of which `value` stands behind '=' or is NULL.
 * Moves on to its last word.
 */
static struct option_words take_words(struct word_reader *r, zt_option_kind kind,
                                      const char *const *value)
{
    static const char *const yes[] = {"true"};
    int first = r->at + 1, n = 0;
    bool boolean;

    if (*value)
        return (struct option_words){value, 1};
    if (kind == ZT_OPT_FLAG) {
        const char *next = first < r->argc ? r->argv[first] : "";
        bool word = zt_parse_bool(next, &boolean) &&
                    (isalpha((unsigned char)*next) || !r->has_rest);

        r->at += word;
        return (struct option_words){
            word ? (const char *const *)&r->argv[first] : (const char *const *)yes, 1};
    }
    while (first + n < r->argc && !is_option(r->argv[first + n]) &&
           (kind == ZT_OPT_LIST || n < 1) &&
           (kind == ZT_OPT_STRING || !is_target(r, first + n)))
        n++;
    if (!n && kind == ZT_OPT_STRING && first < r->argc &&
        strncmp(r->argv[first], "--", 2) != 0)
        n = 1; /* text may begin with one dash */
    r->at += n;
    return (struct option_words){(const char *const *)&r->argv[first], n};
}

/* ---- names of others ---- */

/* A value of a name that somebody else has. */
struct foreign_word {
    const struct zt_foreign *row; /* for this value */
    const char *option;           /* "--report_to" */
    const char *value;
    const char *written; /* "--report_to wandb", of a flag "--fp16_full_eval" */
};

/* What the row makes of the value: a word of its own, or the number in our unit. */
static const char *our_value(const struct word_reader *r, const struct foreign_word *w)
{
    const char *text;
    double d;

    if (w->row->value)
        return w->row->value;
    if (w->row->times == 0 || !zt_parse_double(w->value, &d))
        return w->value;
    text = zt_text_arena_printf(r->report->arena, "%.15g", d * w->row->times);
    return text ? text : w->value;
}

/* What messages about the value begin with: where it is in another unit, with both. */
static const char *where_of(const struct word_reader *r, const struct foreign_word *w,
                            const char *value)
{
    const char *text = value == w->value || value == w->row->value
                           ? NULL
                           : zt_text_arena_printf(r->report->arena, "%s (--%s %s)",
                                                  w->written, w->row->to, value);

    return text ? text : w->option;
}

static void set_ours(struct word_reader *r, const struct foreign_word *w)
{
    const struct zt_foreign *f = w->row;
    const char *value = our_value(r, w);

    for (int k = 0; k < r->num_sets; k++) {
        int row = zt_args_row(r->sets[k], f->to, strlen(f->to));

        if (row < 0)
            continue;
        if (f->times != 0 && value == w->value) { /* the range that there is is another */
            zt_problems_add(r->report, ZT_E_USAGE, "%s: \"%s\" is no plain number",
                            w->option, value);
            return;
        }
        zt_problems_note(r->report, "%s is --%s %s", w->written, f->to, value);
        zt_args_set(r->sets[k], row, &value, 1, ZT_FROM_FLAG, where_of(r, w, value),
                    r->report);
        return;
    }
}

static void add_key(struct word_reader *r, zt_args *a, const struct foreign_word *w)
{
    struct zt_foreign_key *key = zt_text_arena_alloc(&a->arena, sizeof(*key));

    if (!key)
        return;
    *key = (struct zt_foreign_key){
        .path = w->row->to,
        .text = our_value(r, w),
        .where = zt_text_arena_copy(&a->arena, w->option, strlen(w->option)),
    };
    *a->keys_end = key;
    a->keys_end = &key->next;
    zt_problems_note(r->report, "%s is \"%s\": %s of the config", w->written, key->path,
                     key->text);
}

static void report_two_values(struct word_reader *r, const char *first,
                              const char *second)
{
    zt_problems_add(r->report, ZT_E_USAGE,
                    "%s: %s stands before it; leave one of them out", second, first);
}

/* The last value counts: where it means that all is as it is, it cannot take back what
 * another value of the name has set. Then that has been said. */
static bool is_too_late(struct word_reader *r, const struct foreign_word *w)
{
    const struct foreign_said *s = r->said;

    while (s && strcmp(s->name, w->row->name) != 0)
        s = s->next;
    if (s)
        report_two_values(r, s->written, w->written);
    return s;
}

static void remember(struct word_reader *r, const struct foreign_word *w)
{
    struct foreign_said *s = zt_text_arena_alloc(r->report->arena, sizeof(*s));

    if (!s)
        return;
    *s = (struct foreign_said){w->row->name, w->written, r->said};
    r->said = s;
}

static void answer(struct word_reader *r, zt_args *a, const struct foreign_word *w)
{
    const struct zt_foreign *f = w->row;

    switch (f->answer) {
    case ZT_FOREIGN_ALREADY:
        if (!is_too_late(r, w))
            zt_problems_note(r->report, "%s: %s", w->written, f->why);
        break;
    case ZT_FOREIGN_OPTION:
        set_ours(r, w);
        remember(r, w);
        break;
    case ZT_FOREIGN_KEY:
        add_key(r, a, w);
        remember(r, w);
        break;
    case ZT_FOREIGN_REFUSED:
        zt_problems_add(r->report, ZT_E_USAGE, "%s: %s", w->written, f->why);
        break;
    }
}

/* One value of a name, of which `first` is the first row. */
static void foreign_value(struct word_reader *r, zt_args *a,
                          const struct zt_foreign *first, const char *option,
                          const char *value)
{
    struct foreign_word w = {.option = option, .value = value};
    bool boolean;

    if (first->kind == ZT_OPT_FLAG && zt_parse_bool(value, &boolean)) {
        w.value = boolean ? "true" : "false";
        w.written =
            boolean ? option : zt_text_arena_printf(r->report->arena, "%s false", option);
    } else {
        w.written = zt_text_arena_printf(r->report->arena, "%s %s", option, value);
    }
    w.row = zt_foreign_for(first, w.value);
    if (w.row)
        answer(r, a, &w);
    else
        zt_problems_add(r->report, ZT_E_USAGE, "%s: that is none of %s", w.written,
                        first->values);
}

/* The option with this letter on the target's other side; NULL: none. */
static const struct zt_option *beyond_letter(const zt_args *a, char letter)
{
    const struct zt_option *o = a->names ? a->names->beyond : NULL;

    while (o && o->name && o->letter != letter)
        o++;
    return o && o->name ? o : NULL;
}

/* It stands on the wrong side of the target: what to type instead. */
static void say_misplaced(struct word_reader *r, const struct zt_foreign_names *names,
                          const char *option, const struct option_words *words)
{
    const char *value = words->num_texts ? words->texts[0] : NULL;

    zt_problems_add(r->report, ZT_E_USAGE, "%s %s, as in: %s%s%s%s%s", option,
                    names->place, names->before, option, value ? " " : "",
                    value ? value : "", names->behind);
}

/* Is the option word[0..n) one that somebody else has? Then it has been answered. */
static bool foreign_option(struct word_reader *r, zt_args *a, const char *word, size_t n,
                           const char *value, char letter)
{
    const struct zt_foreign *rows = a->names ? a->names->rows : NULL;
    const struct zt_foreign *f = rows ? zt_foreign_find(rows, word, n) : NULL;
    const struct zt_option *beyond = letter ? beyond_letter(a, letter) : NULL;
    struct option_words words;
    const char *option;

    if (!f && rows && n > 3 && zt_name_is("no_", word, 3)) {
        f = zt_foreign_find(rows, word + 3, n - 3);
        if (f && f->kind != ZT_OPT_FLAG)
            f = NULL;
        word += 3;
        n -= 3;
        value = "false";
    }
    if (!f)
        return false;
    option = letter ? zt_text_arena_printf(r->report->arena, "-%c", letter)
                    : zt_text_arena_printf(r->report->arena, "%s%.*s",
                                           zt_foreign_dashes(f), (int)n, word);
    if (f->kind == ZT_OPT_FLAG && !value && r->at + 1 < r->argc &&
        zt_is_one_of(f->values, r->argv[r->at + 1], true))
        value = r->argv[++r->at]; /* a flag that has words of its own */
    words = take_words(r, f->kind, &value);
    if (!words.num_texts && beyond && beyond->kind == ZT_OPT_FLAG)
        say_misplaced(r, a->names, option, &words);
    else if (!words.num_texts)
        zt_problems_add(r->report, ZT_E_USAGE, "%s: %s", option,
                        f->answer == ZT_FOREIGN_REFUSED ? f->why : "a value is missing");
    for (int i = 0; i < words.num_texts; i++)
        foreign_value(r, a, f, option, words.texts[i]);
    return true;
}

/* Is it an option of the target's other side? Then that has been said. */
static bool misplaced_option(struct word_reader *r, const zt_args *a, const char *word,
                             size_t n, const char *value)
{
    const struct zt_option *o = a->names ? a->names->beyond : NULL;
    struct option_words words;

    for (; o && o->name; o++) {
        if (!zt_name_is(o->name, word, n) && !(o->alias && zt_name_is(o->alias, word, n)))
            continue;
        words = take_words(r, o->kind == ZT_OPT_LIST ? ZT_OPT_STRING : o->kind, &value);
        if (o->kind == ZT_OPT_FLAG && !value)
            words.num_texts = 0;
        say_misplaced(r, a->names,
                      zt_text_arena_printf(r->report->arena, "--%.*s", (int)n, word),
                      &words);
        return true;
    }
    return false;
}

/* Whether some value of a name, or it alone, is refused: to suggest it would lead to that. */
static bool is_refused(const struct zt_foreign *rows, const char *name)
{
    for (; rows->name; rows++)
        if (rows->answer == ZT_FOREIGN_REFUSED && strcmp(rows->name, name) == 0)
            return true;
    return false;
}

/* What follows an option that is wrong: its value, if it has one, is no second problem. */
static void skip_value(struct word_reader *r, const char *word)
{
    if (!strchr(word, '=') && r->at + 1 < r->argc && !is_option(r->argv[r->at + 1]) &&
        !is_target(r, r->at + 1))
        r->at++;
}

static void unknown_option(struct word_reader *r, const char *word, size_t n)
{
    const char *best;
    struct zt_suggest s;

    zt_suggest_init(&s, zt_text_arena_copy(r->report->arena, word, n));
    for (int k = 0; k < r->num_sets; k++) {
        const struct zt_foreign_names *names = r->sets[k]->names;

        for (const struct zt_option *o = r->sets[k]->table; o->name; o++) {
            zt_suggest_offer(&s, o->name);
            if (o->alias)
                zt_suggest_offer(&s, o->alias);
        }
        for (const struct zt_foreign *f = names ? names->rows : NULL; f && f->name; f++)
            if (!is_refused(names->rows, f->name))
                zt_suggest_offer(&s, f->name);
    }
    zt_suggest_offer(&s, "help"); /* of a target it is no row */
    best = zt_suggest_best(&s);
    if (best)
        zt_problems_add(r->report, ZT_E_USAGE, "--%s: unknown option; did you mean --%s?",
                        s.word, best);
    else
        zt_problems_add(r->report, ZT_E_USAGE, "--%s: unknown option; see --help",
                        s.word);
    skip_value(r, word);
}

/* A value that our option does not take, and somebody else's of that name does: then it
 * has been answered. */
static bool foreign_meaning(struct word_reader *r, zt_args *a, int row,
                            const char *option, const char *value)
{
    const struct zt_foreign *rows = a->names ? a->names->rows : NULL, *f, *meant;
    const struct zt_option *o = &a->table[row];
    const struct zt_value *old = &a->values[row];

    if (!rows || zt_option_takes(o, value))
        return false;
    f = zt_foreign_find(rows, o->name, strlen(o->name));
    meant = f && strcmp(f->name, o->name) == 0 ? zt_foreign_for(f, value) : NULL;
    if (!meant)
        return false;
    if (old->from == ZT_FROM_FLAG && meant->answer != ZT_FOREIGN_REFUSED &&
        (!meant->to || strcmp(meant->to, o->name) != 0))
        report_two_values(
            r, zt_text_arena_printf(r->report->arena, "%s %s", old->where, old->text),
            zt_text_arena_printf(r->report->arena, "%s %s", option, value));
    else
        foreign_value(r, a, f, option, value);
    return true;
}

/* ---- options ---- */

/* "--deepspeed --deepspeed_config FILE": the value stands behind the other name. */
static bool value_by_other_name(const struct word_reader *r, const struct zt_option *o)
{
    for (int i = 0; i < r->argc; i++) {
        const char *word = r->argv[i];
        size_t n = strcspn(word, "=");

        if (n > 2 && !strncmp(word, "--", 2) && i != r->at &&
            (word[n] || (i + 1 < r->argc && !is_option(r->argv[i + 1]))) &&
            (zt_name_is(o->name, word + 2, n - 2) ||
             (o->alias && zt_name_is(o->alias, word + 2, n - 2))))
            return true;
    }
    return false;
}

/* As it was written: an option may have two names. word NULL: a letter. */
static const char *name_written(const struct zt_option *o, const char *word, size_t n)
{
    return word && o->alias && zt_name_is(o->alias, word, n) ? o->alias : o->name;
}

/* The option is at argv[at], with this name; `value` is what stands behind '=', or NULL. */
static void parse_option(struct word_reader *r, zt_args *a, int row, const char *name,
                         bool negated, const char *value)
{
    const struct zt_option *o = &a->table[row];
    const char *where = zt_text_arena_printf(r->report->arena, "--%s", name);
    struct option_words words;

    if (negated) {
        if (value)
            zt_problems_add(r->report, ZT_E_USAGE, "--no_%s takes no value", name);
        else
            zt_args_set(a, row, (const char *[]){"false"}, 1, ZT_FROM_FLAG, where,
                        r->report);
        return;
    }
    words = take_words(r, o->kind, &value);
    if (words.num_texts == 1 && foreign_meaning(r, a, row, where, words.texts[0]))
        return;
    if (words.num_texts)
        zt_args_set(a, row, words.texts, words.num_texts, ZT_FROM_FLAG, where, r->report);
    else if (!o->alias || !value_by_other_name(r, o))
        zt_problems_add(r->report, ZT_E_USAGE, "%s: a value is missing%s%s", where,
                        zt_option_value_word(o) ? ": " : "",
                        zt_option_value_word(o) ? zt_option_value_word(o) : "");
}

static void long_option(struct word_reader *r, const char *word)
{
    size_t n = strcspn(word, "=");
    const char *value = word[n] ? word + n + 1 : NULL;

    for (int k = 0; k < r->num_sets; k++) {
        int row = zt_args_row(r->sets[k], word, n);

        if (row >= 0) {
            parse_option(r, r->sets[k], row,
                         name_written(&r->sets[k]->table[row], word, n), false, value);
            return;
        }
    }
    for (int k = 0; k < r->num_sets && n > 3 && zt_name_is("no_", word, 3); k++) {
        int row = zt_args_row(r->sets[k], word + 3, n - 3);

        if (row >= 0 && r->sets[k]->table[row].kind == ZT_OPT_FLAG) {
            parse_option(r, r->sets[k], row,
                         name_written(&r->sets[k]->table[row], word + 3, n - 3), true,
                         value);
            return;
        }
    }
    for (int k = 0; k < r->num_sets; k++)
        if (misplaced_option(r, r->sets[k], word, n, value) ||
            foreign_option(r, r->sets[k], word, n, value, 0))
            return;
    unknown_option(r, word, n);
}

/* Is it a letter that somebody else has? Then it has been answered. */
static bool foreign_letter(struct word_reader *r, const char *c)
{
    for (int k = 0; k < r->num_sets; k++) {
        const struct zt_foreign_names *names = r->sets[k]->names;

        for (const struct zt_foreign *f = names ? names->rows : NULL; f && f->name; f++)
            if (f->letter == *c)
                return foreign_option(r, r->sets[k], f->name, strlen(f->name),
                                      c[1] ? c + 1 : NULL, *c);
    }
    return false;
}

/* Is it a letter of the target's other side? Then that has been said. */
static bool misplaced_letter(struct word_reader *r, const char *c)
{
    const char *value = c[1] ? c + 1 : NULL;

    for (int k = 0; k < r->num_sets; k++) {
        const struct zt_option *o = beyond_letter(r->sets[k], *c);
        struct option_words words;

        if (!o)
            continue;
        words = take_words(r, o->kind, &value);
        if (o->kind == ZT_OPT_FLAG)
            words.num_texts = 0;
        say_misplaced(r, r->sets[k]->names,
                      zt_text_arena_printf(r->report->arena, "-%c", *c), &words);
        return true;
    }
    return false;
}

/* Is word[0..n) the name of an option, on either side of the target, or one that others have
 * and we take? */
static bool is_long_name(const struct word_reader *r, const char *word, size_t n)
{
    for (int k = 0; k < r->num_sets; k++) {
        const struct zt_foreign_names *names = r->sets[k]->names;
        const struct zt_foreign *f = names ? zt_foreign_find(names->rows, word, n) : NULL;

        if (zt_args_row(r->sets[k], word, n) >= 0 ||
            (f && !is_refused(names->rows, f->name)))
            return true;
        for (const struct zt_option *o = names ? names->beyond : NULL; o && o->name; o++)
            if (zt_name_is(o->name, word, n) ||
                (o->alias && zt_name_is(o->alias, word, n)))
                return true;
    }
    return false;
}

/* "-bf16", which would be read as -b with the value f16: then that has been said. */
static bool one_dash_too_few(struct word_reader *r, const char *word)
{
    size_t n = strcspn(word + 1, "=");

    if (n < 2 || !is_long_name(r, word + 1, n))
        return false;
    zt_problems_add(r->report, ZT_E_USAGE,
                    "%s: one dash stands before single letters; did you mean -%s?", word,
                    word);
    skip_value(r, word);
    return true;
}

/* "-v", "-vq", "-H FILE", "-HFILE" */
static void parse_letters(struct word_reader *r, const char *word)
{
    if (one_dash_too_few(r, word))
        return;
    for (const char *c = word + 1; *c; c++) {
        int row = -1, k;

        for (k = 0; k < r->num_sets && row < 0; k++)
            row = find_letter(r->sets[k], *c);
        if (row < 0 && (foreign_letter(r, c) || misplaced_letter(r, c)))
            return;
        if (row < 0) {
            zt_problems_add(r->report, ZT_E_USAGE,
                            "-%c: unknown option in \"%s\"; see --help", *c, word);
            return;
        }
        if (r->sets[k - 1]->table[row].kind == ZT_OPT_FLAG) {
            zt_args_set(r->sets[k - 1], row, (const char *[]){"true"}, 1, ZT_FROM_FLAG,
                        zt_text_arena_printf(r->report->arena, "-%c", *c), r->report);
            continue;
        }
        parse_option(r, r->sets[k - 1], row, r->sets[k - 1]->table[row].name, false,
                     c[1] ? c + 1 : NULL);
        return;
    }
}

/* A word where none is expected; behind a switch it was meant as its value. */
static void stray_word(struct word_reader *r, const char *word)
{
    const char *before = r->at ? r->argv[r->at - 1] : "";
    bool is_switch = false;

    for (int k = 0; !strncmp(before, "--", 2) && k < r->num_sets; k++) {
        int row = zt_args_row(r->sets[k], before + 2, strlen(before + 2));

        is_switch = is_switch || (row >= 0 && r->sets[k]->table[row].kind == ZT_OPT_FLAG);
    }
    if (is_switch)
        zt_problems_add(r->report, ZT_E_USAGE, "%s: \"%s\" is neither true nor false",
                        before, word);
    else
        zt_problems_add(r->report, ZT_E_USAGE, "\"%s\": a word that belongs to no option",
                        word);
}

void zt_args_read_words(zt_args *const *sets, int num_sets, int argc, char *const *argv,
                        int *rest, struct zt_problems *report)
{
    struct word_reader r = {.sets = sets,
                            .num_sets = num_sets,
                            .argc = argc,
                            .has_rest = rest != NULL,
                            .argv = argv,
                            .report = report};

    for (; r.at < argc; r.at++) {
        const char *word = argv[r.at];

        if (!strncmp(word, "--", 2) && word[2])
            long_option(&r, word + 2);
        else if (rest && (!is_option(word) || !strcmp(word, "--")))
            break;
        else if (is_option(word) && word[1] != '-')
            parse_letters(&r, word);
        else
            stray_word(&r, word);
    }
    if (rest)
        *rest = r.at;
}
