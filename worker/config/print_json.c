/* print_json.c -- the resolved config as one JSON event, with where each value comes from. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json/line.h"
#include "worker/config/config.h"
#include "worker/config/run.h"

static json_t *value_json(const struct zt_jnode *node)
{
    json_t *o;

    switch (node->type) {
    case ZT_JSON_NULL:
        return json_null();
    case ZT_JSON_BOOL:
        return json_boolean(node->boolean);
    case ZT_JSON_NUMBER:
        o = json_loads(node->text, JSON_DECODE_ANY, NULL);
        return o ? o : zt_json_real(strtod(node->text, NULL));
    case ZT_JSON_STRING:
        return zt_json_text(node->text, strlen(node->text));
    case ZT_JSON_ARRAY:
        o = json_array();
        for (const struct zt_jnode *c = node->first; c; c = c->next)
            json_array_append_new(o, value_json(c));
        return o;
    case ZT_JSON_OBJECT:
        break;
    }
    o = json_object();
    for (const struct zt_jnode *c = node->first; c; c = c->next)
        json_object_set_new(o, c->key, value_json(c));
    return o;
}

/* "zero_optimization.stage": "ds.json:3:5". */
static void add_origins(json_t *out, struct zt_text_arena *arena, const char *path,
                        const struct zt_jnode *obj)
{
    for (const struct zt_jnode *c = obj->first; c; c = c->next) {
        const char *name =
            zt_text_arena_printf(arena, "%s%s%s", path, *path ? "." : "", c->key);

        if (!name)
            return; /* memory is out; the arena knows */
        if (c->comment)
            json_object_set_new(out, name, zt_json_text(c->comment, strlen(c->comment)));
        if (c->type == ZT_JSON_OBJECT)
            add_origins(out, arena, name, c);
    }
}

zt_err zt_run_print_config_json(const struct zt_run *run, FILE *out,
                                struct zt_fault *fault)
{
    json_t *o = zt_json_event("config"), *origins = json_object();
    bool ok;

    zt_config_complete(run->config);
    json_object_set_new(o, "config", value_json(run->config->resolved));
    add_origins(origins, &run->config->arena, "", run->config->resolved);
    json_object_set_new(o, "origins", origins);
    ok = !run->config->arena.failed &&
         (json_dumpf(o, out, JSON_COMPACT) == 0 || ferror(out));
    fputc('\n', out);
    json_decref(o);
    if (!ok)
        return zt_fault_set(fault, ZT_E_NOMEM, "printing the config: no host memory");
    return ZT_OK;
}
