#include <stdlib.h>
#include <string.h>

#include "worker/engine/checkpoint/private.h"

/* Gradients are zero between steps; secondary shards are copies. */
const char *zt_ckpt_kind_name(const struct zt_engine *e, zt_state_kind kind)
{
    const struct zt_optimizer *o = e->run->optim.optimizer;

    if (kind == ZT_STATE_WEIGHTS)
        return "weights";
    if (kind == ZT_STATE_MASTER)
        return "master";
    if (kind >= ZT_STATE_MOMENT && (int)(kind - ZT_STATE_MOMENT) < o->num_states)
        return o->states[kind - ZT_STATE_MOMENT].name;
    return NULL;
}

static bool exists(const struct zt_engine *e, zt_state_kind kind)
{
    for (int i = 0; i < e->model->num_params; i++)
        if (zt_zero_has(e->zero, kind, e->model->params[i]))
            return true;
    return false;
}

static void describe_param(const struct zt_engine *e, const struct zt_ckpt_state *s,
                           const struct zt_param *p, struct zt_ckpt_param *out)
{
    out->name = p->name;
    out->ndim = p->ndim;
    memcpy(out->shape, p->shape, sizeof(out->shape));
    out->numel = p->numel;
    out->frozen = p->flags & ZT_FROZEN;
    for (int k = 0; k < s->num_kinds && !p->is_base; k++)
        out->kinds |= (zt_zero_has(e->zero, s->state[k], p) ? 1u : 0) << k;
}

zt_err zt_ckpt_state_open(const struct zt_engine *e, struct zt_ckpt_state *out,
                          struct zt_fault *fault)
{
    const struct zt_model *m = e->model;
    struct zt_ckpt_state s = {.num_params = m->num_params};

    s.params = calloc((size_t)m->num_params + 1, sizeof(*s.params));
    if (!s.params)
        return zt_fault_set(fault, ZT_E_NOMEM, "checkpoint: no host memory");
    for (zt_state_kind kind = 0; kind < ZT_NUM_STATE_KINDS; kind++) {
        const char *name = zt_ckpt_kind_name(e, kind);

        if (!name || !exists(e, kind))
            continue;
        s.kinds[s.num_kinds] = (struct zt_ckpt_kind){name, zt_zero_dtype(e->zero, kind)};
        s.state[s.num_kinds++] = kind;
    }
    for (int i = 0; i < m->num_params; i++)
        describe_param(e, &s, m->params[i], &s.params[i]);
    *out = s;
    return ZT_OK;
}

void zt_ckpt_state_release(struct zt_ckpt_state *s)
{
    free(s->params);
    s->params = NULL;
}
