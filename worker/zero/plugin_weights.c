/* plugin_weights.c -- <zlaunch/weights.h>: a plugin's hooks read and change weights, and
 * zt_save_checkpoint(): they ask for checkpoints. */
#include <stdio.h>
#include <string.h>

#include <zlaunch/save.h>
#include <zlaunch/weights.h>

#include "worker/zero/private.h"

struct zt_weights {
    struct zt_zero *zero;
    struct zt_fault fault; /* the first failure */
    bool changed;
    struct zt_save_requests *saves; /* NULL: this hook may not ask for any */
};

int zt_weights_rank(const zt_weights *w)
{
    return w->zero->cfg.rank;
}

int zt_weights_world(const zt_weights *w)
{
    return w->zero->cfg.world;
}

int64_t zt_param_numel(const zt_param *p)
{
    return p->numel;
}

static bool check(zt_weights *w, const zt_param *p, int64_t from, int64_t n,
                  const float *values)
{
    if (w->fault.code)
        return false;
    if (p && values && from >= 0 && n >= 0 && from <= p->numel && n <= p->numel - from)
        return true;
    zt_fault_set(&w->fault, ZT_E_PLUGIN,
                 "%lld elements from %lld on of %s, which has %lld%s", (long long)n,
                 (long long)from, p ? p->name : "no parameter",
                 (long long)(p ? p->numel : 0), values ? "" : ": there is no array");
    return false;
}

bool zt_weights_read(zt_weights *w, const zt_param *p, int64_t from, int64_t n,
                     float *values)
{
    return check(w, p, from, n, values) &&
           !zt_zero_get(w->zero, ZT_STATE_VALUE, p, from, n, values, &w->fault);
}

bool zt_weights_write(zt_weights *w, zt_param *p, int64_t from, int64_t n, float *values)
{
    struct zt_zero *z = w->zero;
    int64_t lo, have, end;
    zt_err rc;

    if (!check(w, p, from, n, values))
        return false;
    /* what setup writes it writes at every start */
    if (p->is_base && w->saves) {
        zt_fault_set(
            &w->fault, ZT_E_PLUGIN,
            "zt_weights_write(): %s is of the model under adapters (--lora_r), "
            "which stays as it is: neither checkpoints nor the files of adapters "
            "have it",
            p->name);
        return false;
    }
    rc = zt_broadcast(z->host, values, (size_t)n, ZT_F32, 0, &w->fault);
    zt_zero_part(z, p, &lo, &have);
    end = lo + have < from + n ? lo + have : from + n;
    lo = lo > from ? lo : from;
    if (!rc && end > lo)
        rc = zt_zero_set(z, ZT_STATE_VALUE, p, lo, end - lo, values + (lo - from),
                         &w->fault);
    w->changed = z->unpublished = true;
    return !rc;
}

/* Only noted: all ranks agree on it and save when the step has ended. */
bool zt_save_checkpoint(zt_weights *w, const char *dir, const char *tag)
{
    struct zt_save_requests *saves = w->saves;
    zt_err rc = ZT_OK;

    if (w->fault.code)
        return false;
    if (!saves)
        rc = zt_fault_set(&w->fault, ZT_E_PLUGIN,
                          "zt_save_checkpoint() is for the hook after_step");
    else if (saves->num == ZT_MOST_SAVES)
        rc = zt_fault_set(&w->fault, ZT_E_PLUGIN,
                          "zt_save_checkpoint(): more than %d checkpoints of one step",
                          ZT_MOST_SAVES);
    else if ((dir && strlen(dir) >= ZT_SAVE_DIR) || (tag && strlen(tag) >= ZT_SAVE_TAG))
        rc = zt_fault_set(&w->fault, ZT_E_PLUGIN,
                          "zt_save_checkpoint(): the name of a folder has at most %d "
                          "bytes, a tag %d",
                          ZT_SAVE_DIR - 1, ZT_SAVE_TAG - 1);
    if (rc)
        return false;
    snprintf(saves->of[saves->num].dir, ZT_SAVE_DIR, "%s", dir ? dir : "");
    snprintf(saves->of[saves->num].tag, ZT_SAVE_TAG, "%s", tag ? tag : "");
    saves->num++;
    return true;
}

static zt_err finish(zt_weights *w, zt_err hook, const char *name, struct zt_fault *fault)
{
    struct zt_zero *z = w->zero;
    const char *plugin = z->cfg.model->plugin->name;
    zt_err wrong = zt_model_check_options(z->cfg.model, fault);

    if (wrong)
        return wrong;
    if (w->fault.code)
        return zt_fault_set(fault, w->fault.code, "plugin %s, %s: %s", plugin, name,
                            w->fault.text);
    if (hook)
        return zt_fault_set(fault, ZT_E_PLUGIN, "plugin %s: %s failed (%s)", plugin, name,
                            zt_err_name(hook));
    return w->changed ? zt_zero_publish(z, fault) : ZT_OK;
}

zt_err zt_zero_setup_model(struct zt_zero *z, struct zt_fault *fault)
{
    const struct zt_plugin *p = z->cfg.model->plugin;
    zt_weights w = {.zero = z};

    if (!p->setup)
        return ZT_OK;
    return finish(&w, p->setup(&w, z->cfg.model->self), "setup", fault);
}

zt_err zt_zero_step_model(struct zt_zero *z, int64_t step, struct zt_save_requests *saves,
                          struct zt_fault *fault)
{
    const struct zt_plugin *p = z->cfg.model->plugin;
    zt_weights w = {.zero = z, .saves = saves};

    if (!p->after_step)
        return ZT_OK;
    return finish(&w, p->after_step(&w, z->cfg.model->self, step), "after_step", fault);
}
