/*
 * adapter.h -- low-rank pairs beside the weights of linear ops (LoRA, Hu et al. 2021).
 *
 *      y = x W^T + b + s (dropout(x) A^T) B^T        A (r, in), B (out, r)
 *
 * A plugin knows nothing of it: zt_linear() adds the product where its weight has a pair.
 * The pairs of a block's weights lie in a block of their own, "NAME.adapters", behind all
 * others, and every block that may read such a weight shares them: they are gathered with
 * it, and reduced, updated and stored alone. With the rest frozen, the blocks of the model
 * itself have no gradients, moments and master weights.
 */
#ifndef WORKER_AUTOGRAD_ADAPTER_H
#define WORKER_AUTOGRAD_ADAPTER_H

#include "worker/autograd/model.h"

struct zt_adapter {
    struct zt_param *a, *b; /* (r, in), (out, r) */
    float scale, dropout;
};

struct zt_adapter_spec {
    int64_t rank;
    float scale; /* alpha / r, or alpha / sqrt(r) */
    float dropout;
};

/* How ops have taken a parameter: of a step with note_uses. */
#define ZT_USED_LINEAR 1u /* zt_linear(), whole */
#define ZT_USED_IN_OUT 2u /* there it is (in, out) */
#define ZT_USED_HEAD   4u /* there it makes logits */
#define ZT_USED_ELSE   8u /* by another op, or a part of it */

/* Can it have a pair? It is taken by linear ops alone, in one orientation. */
bool zt_param_is_linear(const struct zt_param *p);

/*
 * A pair beside each of `weights` (num), for which zt_param_is_linear() holds. A begins
 * uniform in +-1/sqrt(in), B with zeros. Before zt_model_layout(), which then has to be
 * called. ZT_E_NOMEM, ZT_E_PLUGIN: a name is taken.
 */
zt_err zt_model_adapt(struct zt_model *m, struct zt_param *const *weights, int num,
                      const struct zt_adapter_spec *spec,
                      struct zt_fault *fault) ZT_MUST_CHECK;

/* No parameter but pairs and those of ZT_EXTRA is trained, and no checkpoint has the
 * others: they are those of the folder that a run starts from. */
void zt_model_freeze_base(struct zt_model *m);

#endif
