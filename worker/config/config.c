/*
 * config.c -- the items of a config: found in the tree, put into the resolved one.
 */
#include "worker/config/config.h"

#include <string.h>

#include "common/suggest.h"
#include "worker/config/options.h"
#include "worker/config/resolve.h"

void zt_config_init(struct zt_config *c)
{
    *c = (struct zt_config){0};
    zt_problems_init(&c->report, &c->arena);
    c->items_end = &c->items;
    c->resolved = zt_jnode_new(&c->arena, ZT_JSON_OBJECT, NULL);
}

void zt_config_release(struct zt_config *c)
{
    zt_args_close(c->args);
    zt_args_close(c->model_args);
    zt_text_arena_release(&c->arena);
}

const struct zt_item *zt_config_find(const struct zt_config *c, const char *path)
{
    for (const struct zt_item *i = c->items; i; i = i->next)
        if (!strcmp(i->path, path))
            return i;
    return NULL;
}

/* The member of obj with this key of n bytes; made as an object when it is not there. */
static struct zt_jnode *object_at(struct zt_config *c, struct zt_jnode *obj,
                                  const char *key, size_t n)
{
    const char *name = zt_text_arena_copy(&c->arena, key, n);
    struct zt_jnode *node = zt_jnode_get(obj, name);

    if (!node) {
        node = zt_jnode_new(&c->arena, ZT_JSON_OBJECT, NULL);
        zt_jnode_add(obj, name, node);
    }
    return node;
}

/* `sep` stands between the names of the path. */
static void set_path(struct zt_config *c, const char *path, char sep,
                     const struct zt_jnode *value, const char *origin)
{
    struct zt_jnode *obj = c->resolved, *old;
    struct zt_jnode *copy = value ? zt_jnode_copy(&c->arena, value) : NULL;
    const char *end;

    while (obj && (end = strchr(path, sep))) {
        obj = object_at(c, obj, path, (size_t)(end - path));
        path = end + 1;
    }
    if (!obj || !copy)
        return; /* memory is out; the report says so */
    copy->comment = origin ? zt_text_arena_copy(&c->arena, origin, strlen(origin)) : NULL;
    old = zt_jnode_get(obj, path);
    if (old) { /* keep its place among the members */
        copy->key = old->key;
        copy->next = old->next;
        *old = *copy;
        return;
    }
    zt_jnode_add(obj, zt_text_arena_copy(&c->arena, path, strlen(path)), copy);
}

void zt_config_set(struct zt_config *c, const char *path, struct zt_jnode *value,
                   const char *origin)
{
    set_path(c, path, '.', value, origin);
}

/* ---- between options and the "zlaunch" section ---- */

/* Words of a command line for a value; false: it has none. */
static bool append_texts(const struct zt_jnode *v, const char **texts, int *n)
{
    switch (v->type) {
    case ZT_JSON_BOOL:
        texts[(*n)++] = v->boolean ? "true" : "false";
        return true;
    case ZT_JSON_NUMBER:
    case ZT_JSON_STRING:
        texts[(*n)++] = v->text;
        return true;
    case ZT_JSON_ARRAY:
        for (const struct zt_jnode *e = v->first; e; e = e->next)
            if (e->type == ZT_JSON_ARRAY || !append_texts(e, texts, n))
                return false;
        return true;
    case ZT_JSON_NULL:
    case ZT_JSON_OBJECT:
        break;
    }
    return false;
}

static void item_to_args(struct zt_config *c, zt_args *args, const char *name,
                         const struct zt_item *item)
{
    const char *texts[ZT_JSON_MAX_MEMBERS], *where;
    int n = 0;

    if (item->value->type == ZT_JSON_NULL) {
        zt_problems_note(&c->report, "%s: \"%s\": null is taken as not given",
                         item->where, item->path);
        return;
    }
    where = zt_text_arena_printf(&c->arena, "%s: \"%s\"", item->where, item->path);
    if (append_texts(item->value, texts, &n))
        zt_args_set_from_file(args, name, texts, n, where, item->where, &c->report);
    else
        zt_problems_add(&c->report, ZT_E_CONFIG,
                        "%s must be a number, a string, true or false", where);
}

static void report_unknown_option(struct zt_config *c, const struct zt_item *item,
                                  const char *name)
{
    struct zt_suggest s;
    const char *best;

    zt_suggest_init(&s, name);
    for (const struct zt_option *o = zt_args_table(c->model_args); o->name; o++)
        zt_suggest_offer(&s, o->name);
    best = zt_suggest_best(&s);
    zt_problems_add(&c->report, ZT_E_CONFIG, "%s: the plugin has no option \"%s\"%s%s%s",
                    item->where, name, best ? "; did you mean \"" : "", best ? best : "",
                    best ? "\"?" : "");
}

void zt_config_to_args(struct zt_config *c)
{
    static const char section[] = "zlaunch.", model[] = "zlaunch.model.";

    for (const struct zt_item *i = c->items; i; i = i->next) {
        const char *name = i->path + sizeof(section) - 1;

        if (strncmp(i->path, section, sizeof(section) - 1) != 0 || i->is_auto ||
            i->key->type == ZT_KEY_OBJECT)
            continue;
        if (strncmp(i->path, model, sizeof(model) - 1) != 0) {
            item_to_args(c, c->args, name, i);
            continue;
        }
        name = i->path + sizeof(model) - 1;
        if (zt_args_find(c->model_args, name))
            item_to_args(c, c->model_args, name, i);
        else
            report_unknown_option(c, i, name);
    }
}

static struct zt_jnode *value_node(struct zt_config *c, const struct zt_option *o,
                                   const struct zt_value *v)
{
    struct zt_jnode *node;
    char text[ZT_DOUBLE_TEXT];

    switch (o->kind) {
    case ZT_OPT_FLAG:
        return zt_jnode_new(&c->arena, ZT_JSON_BOOL, v->boolean ? "true" : "false");
    case ZT_OPT_INT:
        snprintf(text, sizeof(text), "%lld", (long long)v->integer);
        return zt_jnode_new(&c->arena, ZT_JSON_NUMBER, text);
    case ZT_OPT_FLOAT:
        zt_format_double(v->real, text);
        return zt_jnode_new(&c->arena, ZT_JSON_NUMBER, text);
    case ZT_OPT_LIST:
        node = zt_jnode_new(&c->arena, ZT_JSON_ARRAY, NULL);
        for (int i = 0; v->list[i]; i++)
            zt_jnode_add(node, NULL, zt_jnode_new(&c->arena, ZT_JSON_STRING, v->list[i]));
        return node;
    case ZT_OPT_STRING:
    case ZT_OPT_CHOICE:
        break;
    }
    return zt_jnode_new(&c->arena, ZT_JSON_STRING, v->text);
}

static void set_option(struct zt_config *c, const char *prefix, const zt_args *args,
                       const struct zt_option *o)
{
    const struct zt_value *v = zt_args_value(args, o->name);

    /* a default, where the config.json of the weights, which is read with them, decides */
    if (args == c->model_args && strcmp(v->origin, "default") == 0 &&
        zt_option_given(c, "model_name_or_path"))
        return;
    if (v->text || (o->kind == ZT_OPT_FLAG))
        zt_config_set(c, zt_text_arena_printf(&c->arena, "%s%s", prefix, o->name),
                      value_node(c, o, v), v->origin);
}

/* ---- completing the resolved tree ---- */

/* A file's value that no decision has taken: as it is; "auto" by its default. */
static void set_unresolved(struct zt_config *c, const struct zt_item *i)
{
    const struct zt_key *k = i->key;
    const char *origin = i->where;
    struct zt_jnode *value = i->value;

    if (k->type == ZT_KEY_OBJECT && value->first && !zt_key_is_free(k))
        return; /* its members are items */
    if (i->is_auto && k->def && strcmp(k->def, "\"auto\"") != 0) {
        struct zt_problems unused;

        zt_problems_init(&unused, &c->arena);
        value = zt_jtree_parse(&c->arena, "", k->def, strlen(k->def), &unused);
        origin = "auto: the default";
    } else if (k->status != ZT_HONOURED && k->why) {
        origin = zt_text_arena_printf(&c->arena, "%s; %s: %s", i->where,
                                      k->status == ZT_ALWAYS ? "always so" : "no effect",
                                      k->why);
    }
    set_path(c, i->steps, '\x1f', value, origin);
}

static bool is_resolved(const struct zt_config *c, const char *steps)
{
    const struct zt_jnode *n = c->resolved;
    char name[ZT_KEY_PATH];

    for (;;) {
        size_t len = strcspn(steps, "\x1f");

        snprintf(name, sizeof(name), "%.*s", (int)len, steps);
        n = zt_jnode_get(n, name);
        if (!n || !steps[len])
            return n != NULL;
        steps += len + 1;
    }
}

void zt_config_complete(struct zt_config *c)
{
    bool scheduler = zt_jnode_get(c->resolved, "scheduler") &&
                     zt_jnode_get(c->resolved, "scheduler")->num_children;

    for (const struct zt_item *i = c->items; i; i = i->next)
        if (strncmp(i->path, "zlaunch", 7) != 0 && !is_resolved(c, i->steps))
            set_unresolved(c, i);
    for (const struct zt_option *o = zt_args_table(c->args); o->name; o++) {
        char path[ZT_KEY_PATH];

        snprintf(path, sizeof(path), "zlaunch.%s", o->name);
        if (!zt_key_find(path) || (scheduler && o->flags & ZT_OPTION_OF_SCHEDULE))
            continue;
        set_option(c, "zlaunch.", c->args, o);
    }
    for (const struct zt_option *o = zt_args_table(c->model_args); o->name; o++)
        set_option(c, "zlaunch.model.", c->model_args, o);
}
