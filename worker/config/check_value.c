/* check_value.c -- one value of a config against its row: type, range, status. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "worker/config/config.h"
#include "common/suggest.h"

static void report_wrong_value(struct zt_config *c, const struct zt_item *i,
                               const char *wanted)
{
    char text[64];

    zt_jnode_brief(i->value, text, sizeof(text));
    zt_problems_add(&c->report, ZT_E_CONFIG, "%s: \"%s\" must be %s, not %s", i->where,
                    i->path, wanted, text);
}

/* Replace the value, keeping its place in the file. */
static void replace_value(struct zt_config *c, struct zt_item *i, zt_json_type type,
                          const char *text)
{
    struct zt_jnode *n = zt_jnode_new(&c->arena, type, text);
    char was[64];

    if (!n)
        return;
    zt_jnode_brief(i->value, was, sizeof(was));
    n->line = i->value->line;
    n->col = i->value->col;
    zt_problems_note(&c->report, "%s: \"%s\": %s is taken as %s", i->where, i->path, was,
                     text);
    i->value = n;
}

bool zt_range_has(const char *range, double v)
{
    char *end;
    double lo, hi;

    if (!range)
        return true;
    lo = strtod(range + 1, &end);
    hi = strtod(end + 1, &end);
    return (*range == '[' ? v >= lo : v > lo) && (*end == ']' ? v <= hi : v < hi);
}

static const char *describe_number(struct zt_config *c, const struct zt_item *i)
{
    return zt_text_arena_printf(
        &c->arena, "%s%s%s", i->key->type == ZT_KEY_INT ? "a whole number" : "a number",
        i->key->range ? " in " : "", i->key->range ? i->key->range : "");
}

static void report_wrong_number(struct zt_config *c, const struct zt_item *i,
                                bool is_quoted)
{
    if (is_quoted)
        zt_problems_add(&c->report, ZT_E_CONFIG,
                        "%s: \"%s\" must be %s, not \"%s\": write it without quotes",
                        i->where, i->path, describe_number(c, i), i->value->text);
    else
        report_wrong_value(c, i, describe_number(c, i));
}

static bool convert_number(struct zt_config *c, struct zt_item *i, bool strict)
{
    bool quoted = i->value->type == ZT_JSON_STRING;
    const char *text = i->value->text;
    char digits[24];
    int64_t whole;
    double real;

    if (i->value->type != ZT_JSON_NUMBER && !(quoted && strict)) {
        report_wrong_number(c, i, quoted && zt_parse_double(text, &real));
        return false;
    }
    if (!strcmp(text, "Infinity") && zt_range_has(i->key->range, INFINITY) &&
        i->key->range) {
        replace_value(c, i, ZT_JSON_NUMBER, "9223372036854775807");
        return true;
    }
    if (!zt_parse_double(text, &real) || !zt_range_has(i->key->range, real)) {
        report_wrong_value(c, i, describe_number(c, i));
        return false;
    }
    if (i->key->type == ZT_KEY_FLOAT) {
        if (quoted)
            replace_value(c, i, ZT_JSON_NUMBER, text);
        return true;
    }
    if (!zt_parse_int64(text, &whole)) {
        if (real >= 0x1p63)
            zt_problems_add(&c->report, ZT_E_CONFIG,
                            "%s: \"%s\": %s is too large: at most 9223372036854775807",
                            i->where, i->path, text);
        else
            report_wrong_value(c, i, describe_number(c, i));
        return false;
    }
    snprintf(digits, sizeof(digits), "%lld", (long long)whole);
    if (quoted || strcmp(digits, text) != 0)
        replace_value(c, i, ZT_JSON_NUMBER, digits);
    return true;
}

static bool convert_bool(struct zt_config *c, struct zt_item *i)
{
    bool boolean;

    if (i->value->type == ZT_JSON_BOOL)
        return true;
    if ((i->value->type == ZT_JSON_STRING || i->value->type == ZT_JSON_NUMBER) &&
        zt_parse_bool(i->value->text, &boolean)) {
        replace_value(c, i, ZT_JSON_BOOL, boolean ? "true" : "false");
        return true;
    }
    report_wrong_value(c, i, "true or false");
    return false;
}

/* The choice that this text is, as the table spells it; NULL: none. */
static const char *find_spelling(struct zt_config *c, const struct zt_key *k,
                                 const char *text, bool any_case)
{
    size_t n = strlen(text);

    for (const char *w = k->choices; w; w = strchr(w, '|')) {
        w += *w == '|';
        if (strcspn(w, "|") == n &&
            (any_case ? !strncasecmp(w, text, n) : !strncmp(w, text, n)))
            return zt_text_arena_copy(&c->arena, w, n);
    }
    return NULL;
}

static void report_bad_choice(struct zt_config *c, const struct zt_item *i)
{
    const struct zt_key *k = i->key;
    /* of some choices that are known not all are taken: those that are */
    const char *taken = k->status == ZT_HONOURED && k->neutral ? k->neutral : k->choices;
    struct zt_suggest s;
    const char *best;

    zt_suggest_init(&s, i->value->text);
    for (const char *w = taken; w; w = strchr(w, '|')) {
        w += *w == '|';
        zt_suggest_offer(&s, zt_text_arena_copy(&c->arena, w, strcspn(w, "|")));
    }
    best = zt_suggest_best(&s);
    if (strchr("0123456789", *taken)) {
        report_wrong_value(
            c, i,
            zt_text_arena_printf(&c->arena, "one of %s, a number without quotes", taken));
        return;
    }
    report_wrong_value(c, i,
                       zt_text_arena_printf(&c->arena, "one of %s%s%s%s", taken,
                                            best ? " (did you mean \"" : "",
                                            best ? best : "", best ? "\"?)" : ""));
}

static bool convert_choice(struct zt_config *c, struct zt_item *i, bool strict)
{
    bool any_case = i->key->flags & ZT_KEY_ANY_CASE;
    bool number = strchr("0123456789", *i->key->choices) != NULL;
    const char *text = i->value->text, *found = NULL;
    bool quoted = i->value->type == ZT_JSON_STRING;
    bool is_number = i->value->type == ZT_JSON_NUMBER || (quoted && strict);
    char whole[ZT_DOUBLE_TEXT];
    double real;

    if (number && is_number && zt_parse_double(text, &real)) {
        zt_format_double(real, whole); /* 2.0 is 2 */
        found = find_spelling(c, i->key, whole, false);
    } else if (!number && quoted) {
        found = find_spelling(c, i->key, text, any_case);
    }
    if (!found) {
        if (quoted)
            report_bad_choice(c, i);
        else
            report_wrong_value(
                c, i, zt_text_arena_printf(&c->arena, "one of %s", i->key->choices));
        return false;
    }
    if (strcmp(found, text) != 0 || (number && quoted))
        replace_value(c, i, number ? ZT_JSON_NUMBER : ZT_JSON_STRING, found);
    return true;
}

static bool are_numbers(const struct zt_jnode *array, const char *range)
{
    double v;

    for (const struct zt_jnode *e = array->first; e; e = e->next)
        if (e->type != ZT_JSON_NUMBER || !zt_parse_double(e->text, &v) ||
            !zt_range_has(range, v))
            return false;
    return true;
}

static bool are_strings(const struct zt_jnode *array)
{
    for (const struct zt_jnode *e = array->first; e; e = e->next)
        if (e->type != ZT_JSON_STRING)
            return false;
    return true;
}

static bool convert_array(struct zt_config *c, struct zt_item *i)
{
    static const char *const counts[] = {"no", "one", "two", "three", "four"};
    const struct zt_key *k = i->key;
    bool array = i->value->type == ZT_JSON_ARRAY;
    bool good = array || i->value->type == ZT_JSON_STRING; /* a list of one name */
    const char *wanted = "an array";

    if (k->range) {
        good = array && i->value->num_children == k->length &&
               are_numbers(i->value, k->range);
        wanted = zt_text_arena_printf(&c->arena, "%s numbers in %s", counts[k->length],
                                      k->range);
    } else if (k->flags & ZT_KEY_STRINGS) {
        good = array && are_strings(i->value);
        wanted = "an array of strings";
    }
    if (!good)
        report_wrong_value(c, i, wanted);
    return good;
}

static bool convert_auto(struct zt_config *c, struct zt_item *i, bool strict)
{
    i->is_auto = true;
    if (i->key->flags & ZT_KEY_AUTO)
        return true;
    if (strict) {
        zt_problems_note(&c->report, "%s: \"%s\": \"auto\" is taken as the default",
                         i->where, i->path);
        return true;
    }
    report_wrong_value(c, i, "a value: \"auto\" has no meaning for it");
    return false;
}

/* A section that has a switch is written with it. */
static const char *describe_object(struct zt_config *c, const struct zt_item *i)
{
    const char *path = zt_text_arena_printf(&c->arena, "%s.enabled", i->key->path);

    if (i->value->type == ZT_JSON_BOOL && path && zt_key_find(path))
        return i->value->boolean ? "an object, as in {\"enabled\": true}"
                                 : "an object, as in {\"enabled\": false}";
    return "an object";
}

bool zt_config_convert(struct zt_config *c, struct zt_item *item, bool strict)
{
    const struct zt_key *k = item->key;

    if (item->value->type == ZT_JSON_NULL && k->type != ZT_KEY_ANY) {
        if (k->flags & ZT_KEY_NULL)
            zt_problems_note(&c->report, "%s: \"%s\": null is taken as not given",
                             item->where, item->path);
        else
            report_wrong_value(c, item, "a value");
        return false;
    }
    if (item->value->type == ZT_JSON_STRING && !strcmp(item->value->text, "auto") &&
        k->type != ZT_KEY_STRING && k->type != ZT_KEY_OBJECT &&
        (k->type != ZT_KEY_ANY || k->flags & ZT_KEY_AUTO) &&
        !zt_is_one_of(k->choices, "auto", false))
        return convert_auto(c, item, strict);
    switch (k->type) {
    case ZT_KEY_BOOL:
        return convert_bool(c, item);
    case ZT_KEY_INT:
    case ZT_KEY_FLOAT:
        return convert_number(c, item, strict);
    case ZT_KEY_ENUM:
        return convert_choice(c, item, strict);
    case ZT_KEY_ARRAY:
        return convert_array(c, item);
    case ZT_KEY_STRING:
        if (item->value->type != ZT_JSON_STRING)
            report_wrong_value(c, item, "a string");
        return item->value->type == ZT_JSON_STRING;
    case ZT_KEY_OBJECT:
        if (item->value->type == ZT_JSON_OBJECT ||
            (item->value->type == ZT_JSON_BOOL && !item->value->boolean &&
             k->flags & ZT_KEY_PRESENCE))
            return true;
        report_wrong_value(c, item, describe_object(c, item));
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
        return !strcmp(i->key->def, i->value->boolean ? "true" : "false");
    if (i->value->type == ZT_JSON_NUMBER)
        return zt_parse_double(i->value->text, &a) && zt_parse_double(i->key->def, &b) &&
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
    const char *text =
        v->type == ZT_JSON_BOOL ? (v->boolean ? "true" : "false") : v->text;

    return is_default(i) ||
           (i->key->neutral && text && zt_is_one_of(i->key->neutral, text, false));
}

/* A section that counts as soon as it is there. */
static bool is_switched_off(const struct zt_item *i)
{
    const struct zt_jnode *enabled = zt_jnode_get(i->value, "enabled");

    return i->value->type == ZT_JSON_BOOL ||
           (enabled && enabled->type == ZT_JSON_BOOL && !enabled->boolean);
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
        zt_problems_add(&c->report, ZT_E_CONFIG, "%s: \"%s\": %s %s: %s%s%s%s",
                        item->where, item->path, text,
                        k->status == ZT_NEVER ? "will not be supported"
                                              : "is not in this version",
                        k->why, k->def ? " (" : "", k->def ? k->def : "",
                        k->def ? " is accepted)" : "");
        return;
    }
    if (k->status != ZT_HONOURED && (k->type != ZT_KEY_OBJECT || zt_key_is_free(k)) &&
        k->why && !is_default(item))
        zt_problems_note(&c->report, "%s: \"%s\" %s: %s", item->where, item->path,
                         k->status == ZT_ALWAYS ? "is always so" : "has no effect",
                         k->why);
}
