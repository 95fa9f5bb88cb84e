/* config_check.c -- one value of a config against its row: type, range, status. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/config.h"
#include "common/suggest.h"

static void problem(struct zt_config *c, const struct zt_item *i, const char *wanted)
{
    char text[64];

    zt_jnode_brief(i->value, text, sizeof(text));
    zt_report_problem(&c->report, ZT_E_CONFIG, "%s: \"%s\" must be %s, not %s", i->where,
                      i->path, wanted, text);
}

/* Replace the value, keeping its place in the file. */
static void become(struct zt_config *c, struct zt_item *i, zt_json_type type,
                   const char *text)
{
    struct zt_jnode *n = zt_jnode_new(&c->keep, type, text);
    char was[64];

    if (!n)
        return;
    zt_jnode_brief(i->value, was, sizeof(was));
    n->line = i->value->line;
    n->col = i->value->col;
    zt_report_note(&c->report, "%s: \"%s\": %s is taken as %s", i->where, i->path, was,
                   text);
    i->value = n;
}

static bool in_range(const char *range, double v)
{
    char *end;
    double lo, hi;

    if (!range)
        return true;
    lo = strtod(range + 1, &end);
    hi = strtod(end + 1, &end);
    return (*range == '[' ? v >= lo : v > lo) && (*end == ']' ? v <= hi : v < hi);
}

static const char *wanted_number(struct zt_config *c, const struct zt_item *i)
{
    return zt_keep_printf(
        &c->keep, "%s%s%s", i->key->type == ZT_KEY_INT ? "a whole number" : "a number",
        i->key->range ? " in " : "", i->key->range ? i->key->range : "");
}

static bool take_number(struct zt_config *c, struct zt_item *i, bool strict)
{
    bool quoted = i->value->type == ZT_JSON_STRING;
    const char *text = i->value->text;
    char digits[24];
    int64_t whole;
    double real;

    if (i->value->type != ZT_JSON_NUMBER && !(quoted && strict)) {
        problem(c, i, wanted_number(c, i));
        return false;
    }
    if (!strcmp(text, "Infinity") && in_range(i->key->range, INFINITY) && i->key->range) {
        become(c, i, ZT_JSON_NUMBER, "9223372036854775807");
        return true;
    }
    if (!zt_number_real(text, &real) || !in_range(i->key->range, real)) {
        problem(c, i, wanted_number(c, i));
        return false;
    }
    if (i->key->type == ZT_KEY_FLOAT) {
        if (quoted)
            become(c, i, ZT_JSON_NUMBER, text);
        return true;
    }
    if (!zt_number_int(text, &whole)) {
        problem(c, i, wanted_number(c, i));
        return false;
    }
    snprintf(digits, sizeof(digits), "%lld", (long long)whole);
    if (quoted || strcmp(digits, text) != 0)
        become(c, i, ZT_JSON_NUMBER, digits);
    return true;
}

static bool take_truth(struct zt_config *c, struct zt_item *i)
{
    bool truth;

    if (i->value->type == ZT_JSON_BOOL)
        return true;
    if ((i->value->type == ZT_JSON_STRING || i->value->type == ZT_JSON_NUMBER) &&
        zt_number_truth(i->value->text, &truth)) {
        become(c, i, ZT_JSON_BOOL, truth ? "true" : "false");
        return true;
    }
    problem(c, i, "true or false");
    return false;
}

/* The choice that this text is, as the table spells it; NULL: none. */
static const char *spelling(struct zt_config *c, const struct zt_key *k, const char *text,
                            bool any_case)
{
    size_t n = strlen(text);

    for (const char *w = k->choices; w; w = strchr(w, '|')) {
        w += *w == '|';
        if (strcspn(w, "|") == n &&
            (any_case ? !strncasecmp(w, text, n) : !strncmp(w, text, n)))
            return zt_keep_text(&c->keep, w, n);
    }
    return NULL;
}

static void no_choice(struct zt_config *c, const struct zt_item *i)
{
    struct zt_suggest s;
    const char *best;

    zt_suggest_init(&s, i->value->text);
    for (const char *w = i->key->choices; w; w = strchr(w, '|')) {
        w += *w == '|';
        zt_suggest_offer(&s, zt_keep_text(&c->keep, w, strcspn(w, "|")));
    }
    best = zt_suggest_best(&s);
    problem(c, i,
            zt_keep_printf(&c->keep, "one of %s%s%s%s", i->key->choices,
                           best ? " (did you mean \"" : "", best ? best : "",
                           best ? "\"?)" : ""));
}

static bool take_choice(struct zt_config *c, struct zt_item *i)
{
    bool any_case = !strcmp(i->path, "optimizer.type") ||
                    !strcmp(i->path, "checkpoint.tag_validation");
    bool number = strchr("0123456789", *i->key->choices) != NULL;
    const char *text = i->value->text, *found = NULL;
    char whole[ZT_REAL_TEXT];
    double real;

    if (number && i->value->type == ZT_JSON_NUMBER && zt_number_real(text, &real)) {
        zt_real_text(real, whole); /* 2.0 is 2 */
        found = spelling(c, i->key, whole, false);
    } else if (!number && i->value->type == ZT_JSON_STRING) {
        found = spelling(c, i->key, text, any_case);
    }
    if (!found) {
        if (i->value->type == ZT_JSON_STRING)
            no_choice(c, i);
        else
            problem(c, i, zt_keep_printf(&c->keep, "one of %s", i->key->choices));
        return false;
    }
    if (strcmp(found, text) != 0)
        become(c, i, number ? ZT_JSON_NUMBER : ZT_JSON_STRING, found);
    return true;
}

static bool take_array(struct zt_config *c, struct zt_item *i)
{
    if (!strcmp(i->path, "optimizer.params.betas")) {
        bool good = i->value->type == ZT_JSON_ARRAY && i->value->num_children == 2;

        for (const struct zt_jnode *e = good ? i->value->first : NULL; e; e = e->next)
            good = good && e->type == ZT_JSON_NUMBER &&
                   in_range("[0,1)", atof(e->text)) && strcmp(e->text, "NaN") != 0;
        if (!good)
            problem(c, i, "two numbers in [0,1)");
        return good;
    }
    if (!strncmp(i->path, "zlaunch.", 8)) {
        bool good = i->value->type == ZT_JSON_ARRAY;

        for (const struct zt_jnode *e = good ? i->value->first : NULL; e; e = e->next)
            good = good && e->type == ZT_JSON_STRING;
        if (!good)
            problem(c, i, "an array of strings");
        return good;
    }
    if (i->value->type == ZT_JSON_ARRAY || i->value->type == ZT_JSON_STRING)
        return true; /* one name may stand for a list of one */
    problem(c, i, "an array");
    return false;
}

static bool take_auto(struct zt_config *c, struct zt_item *i, bool strict)
{
    i->is_auto = true;
    if (i->key->flags & ZT_KEY_AUTO)
        return true;
    if (strict) {
        zt_report_note(&c->report, "%s: \"%s\": \"auto\" is taken as the default",
                       i->where, i->path);
        return true;
    }
    problem(c, i, "a value: \"auto\" has no meaning for it");
    return false;
}

bool zt_config_take(struct zt_config *c, struct zt_item *item, bool strict)
{
    const struct zt_key *k = item->key;

    if (item->value->type == ZT_JSON_NULL && k->type != ZT_KEY_ANY) {
        if (k->flags & ZT_KEY_NULL)
            zt_report_note(&c->report, "%s: \"%s\": null is taken as not given",
                           item->where, item->path);
        else
            problem(c, item, "a value");
        return false;
    }
    if (item->value->type == ZT_JSON_STRING && !strcmp(item->value->text, "auto") &&
        k->type != ZT_KEY_STRING && k->type != ZT_KEY_ANY && k->type != ZT_KEY_OBJECT &&
        !zt_key_in_words(k->choices, "auto", false))
        return take_auto(c, item, strict);
    switch (k->type) {
    case ZT_KEY_BOOL:
        return take_truth(c, item);
    case ZT_KEY_INT:
    case ZT_KEY_FLOAT:
        return take_number(c, item, strict);
    case ZT_KEY_ENUM:
        return take_choice(c, item);
    case ZT_KEY_ARRAY:
        return take_array(c, item);
    case ZT_KEY_STRING:
        if (item->value->type != ZT_JSON_STRING)
            problem(c, item, "a string");
        return item->value->type == ZT_JSON_STRING;
    case ZT_KEY_OBJECT:
        if (item->value->type == ZT_JSON_OBJECT ||
            (item->value->type == ZT_JSON_BOOL && !item->value->truth &&
             k->flags & ZT_KEY_PRESENCE))
            return true;
        problem(c, item, "an object");
        return false;
    case ZT_KEY_ANY:
        break;
    }
    return true;
}

/* ---- status ---- */

static bool is_default(const struct zt_item *i)
{
    double a, b;

    if (!i->key->def)
        return false;
    if (i->value->type == ZT_JSON_BOOL)
        return !strcmp(i->key->def, i->value->truth ? "true" : "false");
    if (i->value->type == ZT_JSON_NUMBER)
        return zt_number_real(i->value->text, &a) && zt_number_real(i->key->def, &b) &&
               a == b;
    if (i->value->type == ZT_JSON_STRING) {
        size_t n = strlen(i->value->text);

        return i->key->def[0] == '"' && strlen(i->key->def) == n + 2 &&
               !strncmp(i->key->def + 1, i->value->text, n);
    }
    return i->value->num_children == 0;
}

static bool is_neutral(const struct zt_item *i)
{
    const struct zt_jnode *v = i->value;
    const char *text = v->type == ZT_JSON_BOOL ? (v->truth ? "true" : "false") : v->text;

    return is_default(i) ||
           (i->key->neutral && text && zt_key_in_words(i->key->neutral, text, false));
}

/* A section that counts as soon as it is there. */
static bool is_switched_off(const struct zt_item *i)
{
    const struct zt_jnode *enabled = zt_jnode_get(i->value, "enabled");

    return i->value->type == ZT_JSON_BOOL || !i->value->first ||
           (enabled && enabled->type == ZT_JSON_BOOL && !enabled->truth);
}

void zt_config_check_status(struct zt_config *c, const struct zt_item *item)
{
    const struct zt_key *k = item->key;
    bool refused = false;
    char text[64];

    if (item->is_auto)
        return;
    if (k->flags & ZT_KEY_PRESENCE)
        refused = k->status >= ZT_LATER && !is_switched_off(item);
    else if (k->type == ZT_KEY_OBJECT || k->flags & ZT_KEY_DETAIL)
        refused = false; /* its keys, or the switch of its feature, speak */
    else if (k->status >= ZT_LATER || (k->status == ZT_HONOURED && k->neutral))
        refused = !is_neutral(item);
    if (refused) {
        zt_jnode_brief(item->value, text, sizeof(text));
        zt_report_problem(&c->report, ZT_E_CONFIG, "%s: \"%s\": %s %s: %s%s%s%s",
                          item->where, item->path, text,
                          k->status == ZT_NEVER ? "will not be supported"
                                                : "is not in this version",
                          k->why, k->def ? " (" : "", k->def ? k->def : "",
                          k->def ? " is accepted)" : "");
        return;
    }
    if (k->status != ZT_HONOURED && k->type != ZT_KEY_OBJECT && k->why &&
        !is_default(item))
        zt_report_note(&c->report, "%s: \"%s\" %s: %s", item->where, item->path,
                       k->status == ZT_ALWAYS ? "is always so" : "has no effect", k->why);
}
