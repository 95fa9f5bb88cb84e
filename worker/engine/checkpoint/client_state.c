#include "worker/engine/checkpoint/client_state.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/checkpoint/safetensors.h"

#define MOST_KEYS 4096
#define KEY_BYTES 201 /* with its end */

struct entry {
    char key[KEY_BYTES];
    int64_t bytes;
    void *data;
};

struct zt_client_state {
    struct entry *of;
    int num;
    int64_t total;         /* bytes */
    struct zt_fault fault; /* the first failure of a put */
};

/* ---- the interface of plugins ---- */

static bool is_key(const char *key)
{
    size_t n = key ? strlen(key) : 0;

    for (size_t i = 0; i < n; i++)
        if (key[i] < ' ' || key[i] > '~')
            return false;
    return n > 0 && n < KEY_BYTES && strcmp(key, "__metadata__") != 0;
}

static const struct entry *find(const zt_client_state *s, const char *key)
{
    for (int i = 0; key && i < s->num; i++)
        if (strcmp(s->of[i].key, key) == 0)
            return &s->of[i];
    return NULL;
}

static zt_err check_put(zt_client_state *s, const char *key, const void *data,
                        size_t bytes)
{
    if (!is_key(key) || (bytes && !data))
        return zt_fault_set(&s->fault, ZT_E_PLUGIN,
                            "zt_client_state_put(): a key has 1 to %d printable ASCII "
                            "characters, and there are data under it",
                            KEY_BYTES - 1);
    if (find(s, key))
        return zt_fault_set(&s->fault, ZT_E_PLUGIN,
                            "zt_client_state_put(): %s was put before", key);
    if (bytes > (size_t)(ZT_CLIENT_STATE_BYTES - s->total) || s->num == MOST_KEYS)
        return zt_fault_set(&s->fault, ZT_E_PLUGIN,
                            "zt_client_state_put(): %s goes past %d MiB, or %d keys, of "
                            "a checkpoint",
                            key, ZT_CLIENT_STATE_BYTES >> 20, MOST_KEYS);
    return ZT_OK;
}

bool zt_client_state_put(zt_client_state *s, const char *key, const void *data,
                         size_t bytes)
{
    struct entry *more;

    if (s->fault.code || check_put(s, key, data, bytes))
        return false;
    more = realloc(s->of, ((size_t)s->num + 1) * sizeof(*more));
    if (more) {
        s->of = more;
        more += s->num;
        *more = (struct entry){.bytes = (int64_t)bytes, .data = malloc(bytes + 1)};
        snprintf(more->key, sizeof(more->key), "%s", key);
    }
    if (!more || !more->data) {
        zt_fault_set(&s->fault, ZT_E_NOMEM, "zt_client_state_put(): no host memory");
        return false;
    }
    if (bytes)
        memcpy(more->data, data, bytes);
    s->total += (int64_t)bytes;
    s->num++;
    return true;
}

const void *zt_client_state_get(const zt_client_state *s, const char *key, size_t *bytes)
{
    const struct entry *e = find(s, key);

    if (e && bytes)
        *bytes = (size_t)e->bytes;
    return e ? e->data : NULL;
}

/* ---- saving ---- */

static zt_err no_memory(struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_NOMEM, "client state: no host memory");
}

static zt_err hook_failed(const struct zt_engine *e, const char *hook, zt_err rc,
                          const struct zt_fault *why, struct zt_fault *fault)
{
    if (why && why->code)
        return zt_fault_set(fault, why->code, "plugin %s, %s: %s", e->plugin->name, hook,
                            why->text);
    return rc ? zt_fault_set(fault, ZT_E_PLUGIN, "plugin %s: %s failed (%s)",
                             e->plugin->name, hook, zt_err_name(rc))
              : ZT_OK;
}

zt_err zt_client_state_collect(const struct zt_engine *e, zt_client_state **out,
                               struct zt_fault *fault)
{
    zt_client_state *s;
    zt_err rc;

    *out = NULL;
    if (!e->plugin->save_state)
        return ZT_OK;
    s = calloc(1, sizeof(*s));
    if (!s)
        return no_memory(fault);
    rc = e->plugin->save_state(s, e->model->self);
    rc = hook_failed(e, "save_state", rc, &s->fault, fault);
    if (rc)
        zt_client_state_free(s);
    else
        *out = s;
    return rc;
}

void zt_client_state_free(zt_client_state *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->num; i++)
        free(s->of[i].data);
    free(s->of);
    free(s);
}

zt_err zt_client_state_write(const zt_client_state *s, const char *dir,
                             struct zt_fault *fault)
{
    struct zt_safetensors_decl *decls = calloc((size_t)s->num + 1, sizeof(*decls));
    struct zt_safetensors_writer *w = NULL;
    char path[PATH_MAX + 32];
    zt_err rc;

    if (!decls)
        return no_memory(fault);
    for (int i = 0; i < s->num; i++)
        decls[i] = (struct zt_safetensors_decl){s->of[i].key, ZT_U8, 1, &s->of[i].bytes};
    snprintf(path, sizeof(path), "%s/" ZT_CLIENT_STATE_FILE, dir);
    rc = zt_safetensors_writer_open(path, decls, s->num, &w, fault);
    for (int i = 0; !rc && i < s->num; i++)
        rc = zt_safetensors_writer_put(w, s->of[i].data, (size_t)s->of[i].bytes, fault);
    if (!rc)
        rc = zt_safetensors_writer_commit(w, fault);
    zt_safetensors_writer_close(w);
    free(decls);
    return rc;
}

/* ---- and back ---- */

static zt_err take_tensors(const char *path, zt_client_state *s, struct zt_fault *fault)
{
    struct zt_safetensors_file *f = NULL;
    zt_err rc = zt_safetensors_open(path, &f, fault);

    for (int i = 0; !rc && i < zt_safetensors_count(f); i++) {
        const struct zt_safetensors_tensor *t = zt_safetensors_at(f, i);

        if (!zt_client_state_put(s, t->name, t->data, t->bytes))
            rc = zt_fault_set(fault, ZT_E_FORMAT, "%s: %s", path, s->fault.text);
    }
    zt_safetensors_close(f);
    return rc;
}

zt_err zt_client_state_read(const char *dir, zt_client_state **out,
                            struct zt_fault *fault)
{
    char path[PATH_MAX + 32];

    snprintf(path, sizeof(path), "%s/" ZT_CLIENT_STATE_FILE, dir);
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return no_memory(fault);
    return access(path, F_OK) ? ZT_OK : take_tensors(path, *out, fault);
}

/* One entry from rank 0 into `to`, which has it there already. */
static zt_err pass_entry(struct zt_engine *e, const struct entry *from,
                         zt_client_state *to, struct zt_fault *fault)
{
    struct entry one = from ? *from : (struct entry){.bytes = 0};
    zt_err rc =
        zt_broadcast(e->comm, &one, offsetof(struct entry, data), ZT_U8, 0, fault);
    void *data;

    if (rc)
        return rc;
    data = malloc((size_t)one.bytes + 1);
    if (!data)
        return no_memory(fault);
    if (from && one.bytes)
        memcpy(data, from->data, (size_t)one.bytes);
    if (one.bytes)
        rc = zt_broadcast(e->comm, data, (size_t)one.bytes, ZT_U8, 0, fault);
    if (!rc && !zt_client_state_put(to, one.key, data, (size_t)one.bytes))
        rc = zt_fault_set(fault, to->fault.code, "%s", to->fault.text);
    free(data);
    return rc;
}

zt_err zt_client_state_give(struct zt_engine *e, const zt_client_state *of_rank_0,
                            zt_err *refused, struct zt_fault *fault)
{
    int64_t num = of_rank_0 ? of_rank_0->num : 0;
    zt_client_state *s;
    zt_err rc = ZT_OK;

    *refused = ZT_OK;
    if (!e->plugin->load_state)
        return ZT_OK;
    s = calloc(1, sizeof(*s));
    if (!s)
        return no_memory(fault);
    rc = zt_broadcast(e->comm, &num, 1, ZT_I64, 0, fault);
    for (int64_t i = 0; !rc && i < num; i++)
        rc = pass_entry(e, of_rank_0 ? &of_rank_0->of[i] : NULL, s, fault);
    if (!rc)
        *refused = hook_failed(e, "load_state", e->plugin->load_state(s, e->model->self),
                               NULL, fault);
    zt_client_state_free(s);
    return rc;
}
