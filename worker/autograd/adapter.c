#include "worker/autograd/adapter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/autograd/model_private.h"

bool zt_param_is_linear(const struct zt_param *p)
{
    return p->ndim == 2 && (p->uses & ZT_USED_LINEAR) && !(p->uses & ZT_USED_ELSE);
}

/* The block of the pairs of b's weights; NULL: the model has failed. */
static struct zt_block *block_of_pairs(struct zt_model *m, const struct zt_block *b)
{
    char name[512];

    snprintf(name, sizeof(name), "%s.adapters", b->name);
    for (int i = b->index + 1; i < m->num_blocks; i++)
        if (strcmp(m->blocks[i]->name, name) == 0)
            return m->blocks[i];
    return zt_model_block(m, name);
}

/* "h.0.attn.c_attn.weight" -> "h.0.attn.c_attn.lora_A.weight" */
static struct zt_param *new_factor(struct zt_block *b, const struct zt_param *w,
                                   const char *factor, int64_t rows, int64_t columns,
                                   struct zt_init init)
{
    size_t n = strlen(w->name), end = strlen(".weight");
    char name[512];

    if (n > end && strcmp(w->name + n - end, ".weight") == 0)
        n -= end;
    snprintf(name, sizeof(name), "%.*s.%s.weight", (int)n, w->name, factor);
    return zt_block_param(b, name, ZT_SHAPE(rows, columns), init, ZT_EXTRA);
}

static bool reads(const struct zt_block *b, const struct zt_param *w)
{
    for (int i = 0; i < b->num_shared; i++)
        if (b->shared[i] == w)
            return true;
    return b == w->block;
}

static void add_pair(struct zt_model *m, struct zt_param *w,
                     const struct zt_adapter_spec *spec)
{
    bool in_out = w->uses & ZT_USED_IN_OUT;
    int64_t in = w->shape[in_out ? 0 : 1], out = w->shape[in_out ? 1 : 0];
    float bound = 1 / sqrtf((float)in); /* Kaiming's with a = sqrt(5), as PEFT's */
    struct zt_block *b = block_of_pairs(m, w->block);
    struct zt_adapter *ad = calloc(1, sizeof(*ad));

    w->adapter = ad;
    if (!ad) {
        zt_model_misuse(m, "no host memory for the adapter of %s", w->name);
        return;
    }
    *ad = (struct zt_adapter){.scale = spec->scale, .dropout = spec->dropout};
    ad->a = new_factor(b, w, "lora_A", spec->rank, in, ZT_UNIFORM(-bound, bound));
    ad->b = new_factor(b, w, "lora_B", out, spec->rank, ZT_ZEROS());
    if (!ad->a || !ad->b)
        return;
    ad->a->adapts = ad->b->adapts = w;
    for (int i = 0; i < m->num_blocks; i++) {
        if (!reads(m->blocks[i], w))
            continue;
        zt_block_share(m->blocks[i], ad->a);
        zt_block_share(m->blocks[i], ad->b);
    }
}

zt_err zt_model_adapt(struct zt_model *m, struct zt_param *const *weights, int num,
                      const struct zt_adapter_spec *spec, struct zt_fault *fault)
{
    bool declared = m->priv->declared;

    m->priv->declared = false;
    for (int i = 0; i < num && !zt_model_status(m); i++)
        add_pair(m, weights[i], spec);
    m->priv->declared = declared;
    return zt_model_status(m) ? zt_fault_set(fault, m->priv->fault.code, "adapters: %s",
                                             m->priv->fault.text)
                              : ZT_OK;
}

void zt_model_freeze_base(struct zt_model *m)
{
    for (int i = 0; i < m->num_blocks; i++) {
        struct zt_block *b = m->blocks[i];

        b->frozen = b->num_params > 0;
        for (int k = 0; k < b->num_params; k++) {
            struct zt_param *p = b->params[k];

            p->is_base = !(p->flags & ZT_EXTRA);
            if (p->is_base)
                p->flags |= ZT_FROZEN;
            b->frozen = b->frozen && (p->flags & ZT_FROZEN);
        }
    }
}
