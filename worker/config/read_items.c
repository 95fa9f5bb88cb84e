/*
 * read_items.c -- a file to a tree, and the tree to items by walking it with the table.
 *
 * A key is looked for among the documented names of its section, then among aliases, then
 * among user-chosen names ("<group>"). Keys that begin with '_' or '#', or are listed in
 * the top-level array "x-ignore", are comments.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "worker/config/config.h"
#include "common/suggest.h"
#include "worker/config/options.h"

/* Where the walk is: a section, as the table and as messages name it. */
struct section_cursor {
    const char *row;   /* "zero_optimization", with <...>; "" at the top */
    const char *path;  /* user-chosen names filled in */
    const char *steps; /* the same, '\x1f' between */
    bool strict;
};

static void walk(struct zt_config *c, const struct zt_jnode *obj,
                 const struct section_cursor *at);

static const char *join(struct zt_config *c, const char *a, char sep, const char *b)
{
    return *a ? zt_text_arena_printf(&c->arena, "%s%c%s", a, sep, b) : b;
}

static const char *where_is(struct zt_config *c, int line, int col)
{
    if (!line) /* no file: an option */
        return c->file;
    return zt_text_arena_printf(&c->arena, "%s:%d:%d", c->file, line, col);
}

/* ---- finding rows ---- */

/* The last name of the row's path if it stands directly in `section`; else NULL. */
static const char *name_in(const struct zt_key *k, const char *section)
{
    size_t n = strlen(section);
    const char *rest = k->path;

    if (n) {
        if (strncmp(rest, section, n) != 0 || rest[n] != '.')
            return NULL;
        rest += n + 1;
    }
    return *rest == '[' ? NULL : rest;
}

/* Is the row's own name `key` within section? Deeper rows are not. */
static const struct zt_key *find_row(const char *section, const char *key)
{
    for (const struct zt_key *k = zt_key_next(NULL); k; k = zt_key_next(k)) {
        const char *name = name_in(k, section);

        if (name && !strpbrk(name, ".[") &&
            (!strcmp(name, key) || (k->alias && !strcmp(k->alias, key))))
            return k;
    }
    return NULL;
}

static const struct zt_key *find_placeholder(const char *section)
{
    for (const struct zt_key *k = zt_key_next(NULL); k; k = zt_key_next(k)) {
        const char *name = name_in(k, section);

        if (name && *name == '<' && !strchr(name, '.'))
            return k;
    }
    return NULL;
}

/* Is section.key the beginning of documented rows that has no row itself? On success
 * *row is its name in the table ("<group>" for a user's). */
static bool is_implied(struct zt_config *c, const char *section, const char *key,
                       const char **row)
{
    for (const struct zt_key *k = zt_key_next(NULL); k; k = zt_key_next(k)) {
        const char *name = name_in(k, section);
        size_t n = name ? strcspn(name, ".") : 0;

        if (n && name[n] && (*name == '<' || (!strncmp(name, key, n) && !key[n]))) {
            *row = zt_text_arena_copy(&c->arena, name, n);
            return true;
        }
    }
    return false;
}

/* ---- suggestions ---- */

static void offer_section(struct zt_config *c, struct zt_suggest *s, const char *section)
{
    const char *last = ""; /* rows below one name stand together: offer it once */

    for (const struct zt_key *k = zt_key_next(NULL); k; k = zt_key_next(k)) {
        const char *name = name_in(k, section);
        size_t n = name ? strcspn(name, ".[") : 0;

        if (!n || *name == '<')
            continue;
        if (strncmp(last, name, n) != 0 || last[n]) {
            last = zt_text_arena_copy(&c->arena, name, n);
            zt_suggest_offer(s, last);
        }
        if (k->alias && !name[n])
            zt_suggest_offer(s, k->alias);
    }
}

/* A key that works, of any section, those below `section` first; inside of one, not an option of
 * ours. A letter may be wrong in a long enough word. */
static const char *suggest_anywhere(const char *section, const char *key)
{
    const struct zt_key *best = NULL;
    int cost = 4;

    for (const struct zt_key *k = zt_key_next(NULL); k; k = zt_key_next(k)) {
        const char *name = strrchr(k->path, '.');
        int d;

        if (k->status >= ZT_LATER || (*section && strncmp(k->path, "zlaunch.", 8) == 0))
            continue;
        name = name ? name + 1 : k->path;
        d = zt_suggest_distance(key, name);
        if (d > 1 || (d && strlen(name) <= 4))
            continue;
        if (strcmp(name, "enabled") ==
            0) /* the switch of something else is never meant */
            continue;
        d = 2 * d + (name_in(k, section) == NULL);
        if (d < cost) {
            cost = d;
            best = k;
        }
    }
    return best ? best->path : NULL;
}

/* What is written for a name of DeepSpeed's by who knows another program, and the other name
 * of an option for a key, which has one. */
static const char *habitual_name(const char *key)
{
    static const char *const names[][2] = {
        {"learning_rate", "lr"},
        {"wd", "weight_decay"},
        {"epsilon", "eps"},
        {"adam_epsilon", "eps"},
        {"beta1", "betas"},
        {"beta2", "betas"},
        {"adam_beta1", "betas"},
        {"adam_beta2", "betas"},
        {"num_warmup_steps", "warmup_num_steps"},
        {"warmup_steps", "warmup_num_steps"},
        {"num_training_steps", "total_num_steps"},
        {"max_grad_norm", "gradient_clipping"},
        {"clip_grad_norm", "gradient_clipping"},
        {"gradient_clip", "gradient_clipping"},
        {"gradient_clip_val", "gradient_clipping"},
        {"grad_clip", "gradient_clipping"},
        {"batch_size", "train_batch_size"},
        {"global_batch_size", "train_batch_size"},
        {"micro_batch_size", "train_micro_batch_size_per_gpu"},
        {"per_device_train_batch_size", "train_micro_batch_size_per_gpu"},
        {"accumulation_steps", "gradient_accumulation_steps"},
        {"grad_accum_steps", "gradient_accumulation_steps"},
        {"grad_accumulation_steps", "gradient_accumulation_steps"},
        {"zero", "zero_optimization"},
        {"zero_stage", "stage"},
        {"logging_steps", "steps_per_print"},
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(key, names[i][0]) == 0)
            return names[i][1];
    for (const struct zt_option *o = zt_run_options(); o->name; o++)
        if (o->alias && strcmp(key, o->alias) == 0)
            return o->name;
    return key;
}

/* What people call text that is for people. */
static bool is_remark(const char *key)
{
    static const char *const names[] = {"comment", "comments", "description",
                                        "note",    "notes",    "//"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(key, names[i]) == 0)
            return true;
    return false;
}

static void unknown_key(struct zt_config *c, const struct section_cursor *p,
                        const struct zt_jnode *n)
{
    const char *where = where_is(c, n->key_line, n->key_col), *best, *elsewhere;
    const char *name = habitual_name(n->key);
    const struct zt_key *enabled;
    struct zt_suggest s;

    if (is_remark(n->key)) {
        zt_problems_add(
            &c->report, ZT_E_CONFIG,
            "%s: unknown key \"%s\"%s%s%s; if it is a comment, begin its name "
            "with '_' or '#', or write the line behind #",
            where, n->key, *p->path ? " in \"" : "", p->path, *p->path ? "\"" : "");
        return;
    }
    zt_suggest_init(&s, name);
    offer_section(c, &s, p->row);
    best = zt_suggest_best(&s);
    if (best)
        best = join(c, p->path, '.', best);
    elsewhere = best && s.distance < 2 ? NULL : suggest_anywhere(p->row, name);
    if (elsewhere)
        best = elsewhere;
    enabled = elsewhere ? zt_key_find(join(c, best, '.', "enabled")) : NULL;
    if (enabled && enabled->status < ZT_LATER && n->type != ZT_JSON_OBJECT)
        best = enabled->path;
    zt_problems_add(&c->report, ZT_E_CONFIG, "%s: unknown key \"%s\"%s%s%s%s%s", where,
                    n->key, *p->path ? " in \"" : "", p->path, *p->path ? "\"" : "",
                    best ? "; did you mean " : "",
                    best ? zt_text_arena_printf(&c->arena, "\"%s\"?", best) : "");
}

/* ---- comments ---- */

/* One letter away from a documented name of the section, and none itself. */
static bool nearly_documented(struct zt_config *c, const struct section_cursor *p,
                              const char *key)
{
    struct zt_suggest s;

    zt_suggest_init(&s, key);
    offer_section(c, &s, p->row);
    return s.best && s.distance == 1 && strlen(key) > 2;
}

static bool in_ignore_list(const struct zt_config *c, const char *path)
{
    const struct zt_jnode *list = zt_jnode_get(c->root, "x-ignore");

    for (const struct zt_jnode *e = list ? list->first : NULL; e; e = e->next)
        if (e->type == ZT_JSON_STRING && !strcmp(e->text, path))
            return true;
    return false;
}

/* Whoever looks into the tree itself, as for the type of a section, finds nothing there. */
static void blank(struct zt_jnode *n)
{
    n->type = ZT_JSON_NULL;
    n->text = NULL;
    n->first = n->last = NULL;
    n->num_children = 0;
}

static bool is_comment(struct zt_config *c, const struct section_cursor *p,
                       const struct zt_jnode *n)
{
    const char *path = join(c, p->path, '.', n->key);
    bool mark =
        (*n->key == '_' || *n->key == '#') && strcmp(p->row, "zlaunch.model") != 0;

    if (!strcmp(path, "x-ignore")) {
        if (n->type != ZT_JSON_ARRAY)
            zt_problems_add(&c->report, ZT_E_CONFIG,
                            "%s:%d:%d: \"x-ignore\" must be an array of keys", c->file,
                            n->line, n->col);
        return true;
    }
    if (!n->key_line)
        return false; /* an option says it, not the file */
    if (mark && nearly_documented(c, p, n->key + 1))
        return false; /* a misspelt key, not a comment */
    if (!mark && !in_ignore_list(c, path))
        return false;
    zt_problems_note(&c->report, "%s:%d:%d: \"%s\" is a comment", c->file, n->key_line,
                     n->key_col, path);
    blank((struct zt_jnode *)(uintptr_t)n);
    return true;
}

/* ---- one key ---- */

static struct zt_item *new_item(struct zt_config *c, const struct zt_key *k,
                                const struct section_cursor *p, const char *key,
                                const struct zt_jnode *n)
{
    struct zt_item *item = zt_text_arena_alloc(&c->arena, sizeof(*item));

    if (!item)
        return NULL;
    item->key = k;
    item->path = join(c, p->path, '.', key);
    item->steps = join(c, p->steps, '\x1f', key);
    item->where = where_is(c, n->line, n->col);
    item->value = (struct zt_jnode *)n;
    return item;
}

static void add_item(struct zt_config *c, struct zt_item *item)
{
    struct zt_item *twin = (struct zt_item *)zt_config_find(c, item->path);

    if (twin && !item->value->line && item->value->type == ZT_JSON_OBJECT)
        return; /* around the key of an option */
    /* as accelerate fills it in; and of two options the last one counts */
    if (twin && !item->value->line && (twin->is_auto || !twin->value->line)) {
        item->next = twin->next;
        *twin = *item;
        return;
    }
    if (twin && !item->value->line) {
        if (zt_jnode_equal(twin->value, item->value))
            return;
        zt_problems_add(
            &c->report, ZT_E_CONFIG,
            "%s: the config says \"%s\" already, at %s; leave one of them out",
            item->where, item->path, twin->where);
        return;
    }
    if (twin) {
        zt_problems_add(&c->report, ZT_E_CONFIG,
                        "%s: \"%s\" is here a second time under another name; the first "
                        "is at %s",
                        item->where, item->path, twin->where);
        return;
    }
    *c->items_end = item;
    c->items_end = &item->next;
}

/* Elements of an array whose objects have documented keys. */
static void walk_elements(struct zt_config *c, const struct zt_key *k,
                          const struct zt_item *item)
{
    struct section_cursor element = {
        .row = zt_text_arena_printf(&c->arena, "%s[]", k->path)};
    bool documented = false;
    int i = 0;

    for (const struct zt_key *o = zt_key_next(NULL); o; o = zt_key_next(o))
        documented |= name_in(o, element.row) != NULL;
    if (!documented)
        return;
    for (const struct zt_jnode *e = item->value->first; e; e = e->next, i++) {
        struct zt_item **end = c->items_end;

        element.path = zt_text_arena_printf(&c->arena, "%s[%d]", item->path, i);
        element.steps = element.path;
        if (e->type == ZT_JSON_OBJECT)
            walk(c, e, &element);
        else
            zt_problems_add(&c->report, ZT_E_CONFIG, "%s:%d:%d: \"%s\" must be an object",
                            c->file, e->line, e->col, element.path);
        *end = NULL; /* the array is one item; its parts were only checked */
        c->items_end = end;
    }
}

/* The old forms that DeepSpeed's reader still takes. True: the node is done with. */
static bool old_form(struct zt_config *c, const struct section_cursor *p,
                     const struct zt_jnode *n)
{
    static const struct section_cursor top = {.row = "", .path = "", .steps = ""};
    struct zt_jnode *wrapped, *stage;

    if (!strcmp(p->path, "zero_optimization") && !strcmp(n->key, "aio") &&
        n->type == ZT_JSON_OBJECT) {
        struct section_cursor aio = {.row = "aio", .path = "aio", .steps = "aio"};

        zt_problems_note(&c->report,
                         "%s:%d:%d: \"aio\" belongs to the top level; taken as "
                         "if it stood there",
                         c->file, n->key_line, n->key_col);
        walk(c, n, &aio);
        return true;
    }
    if (*p->path || (n->type != ZT_JSON_BOOL && n->type != ZT_JSON_OBJECT))
        return false;
    if (!strcmp(n->key, "zero_optimization") && n->type == ZT_JSON_BOOL) {
        zt_problems_note(&c->report, "%s:%d:%d: \"zero_optimization\": %s means stage %d",
                         c->file, n->line, n->col, n->boolean ? "true" : "false",
                         n->boolean);
        wrapped = zt_jnode_new(&c->arena, ZT_JSON_OBJECT, NULL);
        stage = zt_jnode_new(&c->arena, ZT_JSON_NUMBER, n->boolean ? "1" : "0");
    } else if (!strcmp(n->key, "bfloat16") && n->type == ZT_JSON_OBJECT) {
        zt_problems_note(&c->report, "%s:%d:%d: \"bfloat16\" is the old name of \"bf16\"",
                         c->file, n->key_line, n->key_col);
        walk(c, n, &(struct section_cursor){"bf16", "bf16", "bf16", true});
        return true;
    } else {
        return false;
    }
    if (!wrapped || !stage)
        return true;
    stage->line = stage->key_line = n->line;
    stage->col = stage->key_col = n->col;
    zt_jnode_add(wrapped, "stage", stage);
    walk(c, wrapped,
         &(struct section_cursor){join(c, top.path, '.', n->key), n->key, n->key, true});
    return true;
}

static void section(struct zt_config *c, const struct zt_key *k,
                    const struct section_cursor *p, const struct zt_item *item,
                    const char *row)
{
    struct section_cursor inner = {.row = row,
                                   .path = item->path,
                                   .steps = item->steps,
                                   .strict =
                                       p->strict || (k && k->flags & ZT_KEY_STRICT)};

    walk(c, item->value, &inner);
}

/* The optimizer's or scheduler's own idea of which arguments it has. */
static bool takes_argument(struct zt_config *c, const struct zt_key *k,
                           const struct zt_item *item)
{
    const char *group = !strncmp(k->path, "optimizer.", 10) ? "optimizer" : "scheduler";
    const struct zt_jnode *type = zt_jnode_get(zt_jnode_get(c->root, group), "type");

    if (!k->types || !type || type->type != ZT_JSON_STRING ||
        !zt_is_one_of(
            zt_key_find(*group == 'o' ? "optimizer.type" : "scheduler.type")->neutral,
            type->text, *group == 'o'))
        return true; /* of every type; or the type itself is the problem */
    if (zt_is_one_of(k->types, type->text, true))
        return true;
    zt_problems_add(&c->report, ZT_E_CONFIG, "%s: %s takes no \"%s\"; it belongs to %s",
                    item->where, type->text, item->path, k->types);
    return false;
}

/* A placeholder row stands for this key, unless it looks like a slip of the pen. */
static const struct zt_key *placeholder_for(struct zt_config *c,
                                            const struct section_cursor *p,
                                            const struct zt_jnode *n)
{
    const struct zt_key *k = find_placeholder(p->row);
    const struct zt_jnode *type =
        zt_jnode_get(zt_jnode_get(c->root, "optimizer"), "type");

    if (!k || nearly_documented(c, p, n->key))
        return NULL;
    if (!strcmp(p->row, "optimizer.params") &&
        (!type || type->type != ZT_JSON_STRING ||
         zt_is_one_of(zt_key_find("optimizer.type")->choices, type->text, true)))
        return NULL; /* the arguments of these are all documented */
    return k;
}

static void one_key(struct zt_config *c, const struct section_cursor *p,
                    const struct zt_jnode *n)
{
    const struct zt_key *k = find_row(p->row, n->key);
    const char *row, *name = n->key;
    struct zt_item *item;

    if (old_form(c, p, n))
        return;
    if (!k && !is_implied(c, p->row, n->key, &row)) {
        k = placeholder_for(c, p, n);
        if (!k) {
            unknown_key(c, p, n);
            return;
        }
    } else if (!k) {
        item = new_item(c, NULL, p, n->key, n);
        if (item && n->type != ZT_JSON_OBJECT)
            zt_problems_add(&c->report, ZT_E_CONFIG,
                            "%s: \"%s\" must be an object, not %s", item->where,
                            item->path, zt_jnode_type_name(n));
        else if (item)
            section(c, NULL, p, item, join(c, p->row, '.', row));
        return;
    }
    row = k->path;
    if (k->alias && !strcmp(k->alias, n->key)) {
        name = strrchr(k->path, '.') + 1;
        zt_problems_note(&c->report, "%s:%d:%d: \"%s\" is another name of \"%s\"",
                         c->file, n->key_line, n->key_col, n->key, name);
    }
    if (k->replaced_by)
        zt_problems_note(&c->report, "%s:%d:%d: \"%s\" is old; now %s", c->file,
                         n->key_line, n->key_col, k->path, k->replaced_by);
    item = new_item(c, k, p, name, n);
    if (!item || !takes_argument(c, k, item) || !zt_config_convert(c, item, p->strict))
        return;
    add_item(c, item);
    zt_config_check_status(c, item);
    if (item->is_auto)
        return;
    if (k->type == ZT_KEY_OBJECT && !zt_key_is_free(k) &&
        item->value->type == ZT_JSON_OBJECT)
        section(c, k, p, item, row);
    else if (k->type == ZT_KEY_ARRAY)
        walk_elements(c, k, item);
}

static void walk(struct zt_config *c, const struct zt_jnode *obj,
                 const struct section_cursor *at)
{
    for (const struct zt_jnode *n = obj->first; n; n = n->next)
        if (!is_comment(c, at, n))
            one_key(c, at, n);
}

/* ---- reading ---- */

/* A config of the other kind that DeepSpeed has, told by a key that only those have. */
static bool is_of_inference(struct zt_config *c)
{
    static const char *const keys[] = {"replace_with_kernel_inject",
                                       "kernel_inject",
                                       "injection_policy",
                                       "injection_policy_tuple",
                                       "replace_method",
                                       "max_out_tokens",
                                       "min_out_tokens",
                                       "enable_cuda_graph",
                                       "mp_size",
                                       "triangular_masking",
                                       "state_manager",
                                       "return_tuple",
                                       "training_mp_size",
                                       "transposed_mode",
                                       "use_triton",
                                       "set_empty_params",
                                       "keep_module_on_host"};
    const struct zt_jnode *n = NULL;

    for (size_t i = 0; !n && i < sizeof(keys) / sizeof(*keys); i++)
        n = zt_jnode_get(c->root, keys[i]);
    if (n)
        zt_problems_add(&c->report, ZT_E_CONFIG,
                        "%s: with \"%s\" this is a config for DeepSpeed's inference; "
                        "zlaunch takes one for training, and needs none for a --prompt",
                        where_is(c, n->key_line, n->key_col), n->key);
    return n;
}

void zt_config_read_text(struct zt_config *c, const char *name, const char *text,
                         size_t n)
{
    static const struct section_cursor top = {.row = "", .path = "", .steps = ""};

    c->file = zt_text_arena_copy(&c->arena, name, strlen(name));
    c->root = zt_jtree_parse(&c->arena, c->file, text, n, &c->report);
    if (!c->root)
        return;
    if (c->root->type != ZT_JSON_OBJECT) {
        zt_problems_add(&c->report, ZT_E_CONFIG, "%s: a config is an object: { ... }",
                        c->file);
        return;
    }
    if (!is_of_inference(c))
        walk(c, c->root, &top);
}

/* URL-safe base64 to bytes, in place of a file. 0: it is none. */
static size_t decode(const char *text, char *out)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    size_t n = 0, len = strcspn(text, "=");
    uint32_t bits = 0;
    int have = 0;

    if (strspn(text + len, "=") != strlen(text + len))
        return 0;
    for (size_t i = 0; i < len; i++) {
        const char *d = strchr(digits, text[i]);

        if (!d)
            return 0;
        bits = bits << 6 | (uint32_t)(d - digits);
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[n++] = (char)(bits >> have & 0xff);
        }
    }
    return n && (out[0] == '{' || strchr(" \n\t\r/#", out[0])) ? n : 0;
}

/* Under which of its names the file was given. */
static const char *config_option(const struct zt_config *c)
{
    return zt_args_value(c->args, "deepspeed")->where;
}

static void read_stream(struct zt_config *c, const char *path, FILE *f)
{
    char *text = malloc(ZT_JSON_MAX_BYTES + 1);
    size_t n = text ? fread(text, 1, ZT_JSON_MAX_BYTES + 1, f) : 0;

    if (!text)
        zt_problems_add(&c->report, ZT_E_NOMEM, "%s: no host memory", path);
    else if (ferror(f))
        zt_problems_add(&c->report, ZT_E_NOINPUT, "%s: cannot read %s: %s",
                        config_option(c), path, strerror(errno));
    else
        zt_config_read_text(c, path, text, n);
    free(text);
}

/* A value as an option has it, as a node: a number, true or false where the key can be one,
 * else a string. A folder may be called "off", or "12". */
static struct zt_jnode *node_of_text(struct zt_config *c, const char *path,
                                     const char *text)
{
    const struct zt_key *k = zt_key_find(path);
    bool is_text = k && (k->type == ZT_KEY_ANY || k->type == ZT_KEY_STRING);
    double number;
    bool boolean;

    if (is_text)
        return zt_jnode_new(&c->arena, ZT_JSON_STRING, text);
    if (zt_parse_double(text, &number))
        return zt_jnode_new(&c->arena, ZT_JSON_NUMBER, text);
    if ((!k || k->type != ZT_KEY_ENUM) && zt_parse_bool(text, &boolean))
        return zt_jnode_new(&c->arena, ZT_JSON_BOOL, boolean ? "true" : "false");
    return zt_jnode_new(&c->arena, ZT_JSON_STRING, text);
}

void zt_config_read_key(struct zt_config *c, const struct zt_foreign_key *key)
{
    static const struct section_cursor top = {.row = "", .path = "", .steps = ""};
    struct zt_jnode *root = zt_jnode_new(&c->arena, ZT_JSON_OBJECT, NULL), *obj = root;
    const char *file = c->file, *path = key->path, *dot;

    while (obj && (dot = strchr(path, '.'))) {
        struct zt_jnode *inner = zt_jnode_new(&c->arena, ZT_JSON_OBJECT, NULL);

        zt_jnode_add(obj, zt_text_arena_copy(&c->arena, path, (size_t)(dot - path)),
                     inner);
        obj = inner;
        path = dot + 1;
    }
    if (!obj)
        return; /* memory is out; the report says so */
    zt_jnode_add(obj, path, node_of_text(c, key->path, key->text));
    c->file = key->where;
    walk(c, root, &top);
    c->file = file;
}

/* A pipe, which would be empty for all ranks but one. */
static bool can_be_read_once_only(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode));
}

void zt_config_read(struct zt_config *c, const char *path)
{
    char *decoded;
    size_t n;
    FILE *f;

    if (!*path) {
        zt_problems_add(&c->report, ZT_E_USAGE,
                        "%s: it is empty, as a variable that is not set is; name a file, "
                        "or leave it out",
                        config_option(c));
        return;
    }
    if (path[strspn(path, " \n\t\r")] == '{') {
        zt_config_read_text(c, config_option(c), path, strlen(path));
        return;
    }
    if (can_be_read_once_only(path)) {
        zt_problems_add(&c->report, ZT_E_USAGE,
                        "%s: %s is no regular file, and every rank reads it; "
                        "give a file, or the JSON itself",
                        config_option(c), path);
        return;
    }
    f = fopen(path, "re");
    if (f) {
        read_stream(c, path, f);
        fclose(f);
        return;
    }
    decoded = zt_text_arena_alloc(&c->arena, strlen(path) + 1);
    n = decoded ? decode(path, decoded) : 0;
    if (n)
        zt_config_read_text(c, "(base64)", decoded, n);
    else
        zt_problems_add(&c->report, ZT_E_NOINPUT, "%s: cannot open %s: %s",
                        config_option(c), path, strerror(errno));
}
