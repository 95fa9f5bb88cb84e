/* split_master.c -- fp32 masters that are kept as the weights and what these leave of them. */
#include <stdlib.h>

#include "kernels/integers.h"
#include "kernels/split.h"
#include "worker/zero/private.h"

#define PIECE_ELEMS ((int64_t)1 << 20)

bool zt_is_split(const struct zt_zero *z, zt_state_kind kind, const struct zt_block *b)
{
    return z->cfg.split_master && (kind == ZT_STATE_MASTER || kind == ZT_STATE_VALUE) &&
           zt_state_has(z, ZT_STATE_MASTER, b);
}

/* Both halves of n elements, between the state and host memory. */
static zt_err copy_halves(struct zt_zero *z, const struct zt_block *b, int64_t at,
                          int64_t n, uint16_t *weights, uint16_t *rest, zt_access access,
                          struct zt_fault *fault)
{
    zt_err rc = zt_state_copy(z, ZT_STATE_WEIGHTS, b, at, n, weights, access, fault);

    return rc ? rc : zt_state_copy(z, ZT_STATE_MASTER, b, at, n, rest, access, fault);
}

static zt_err alloc_halves(int64_t n, uint16_t **weights, uint16_t **rest,
                           struct zt_fault *fault)
{
    int64_t most = zt_min(n, PIECE_ELEMS);

    *weights = malloc(2 * ((size_t)most + 1) * sizeof(**weights)); /* n may be 0 */
    *rest = *weights ? *weights + most : NULL;
    return *weights ? ZT_OK
                    : zt_fault_set(fault, ZT_E_NOMEM, "split masters: no host memory");
}

zt_err zt_split_store(struct zt_zero *z, const struct zt_block *b, int64_t at, int64_t n,
                      const float *values, struct zt_fault *fault)
{
    uint16_t *weights, *rest;
    zt_err rc = alloc_halves(n, &weights, &rest, fault);

    for (int64_t done = 0, k; !rc && done < n; done += k) {
        k = zt_min(n - done, PIECE_ELEMS);
        for (int64_t i = 0; i < k; i++) {
            struct zt_halves s = zt_split(values[done + i]);

            weights[i] = s.bf16;
            rest[i] = s.rest;
        }
        rc = copy_halves(z, b, at + done, k, weights, rest, ZT_WRITE, fault);
    }
    free(weights);
    return rc;
}

zt_err zt_split_load(struct zt_zero *z, const struct zt_block *b, int64_t at, int64_t n,
                     float *values, struct zt_fault *fault)
{
    uint16_t *weights, *rest;
    zt_err rc = alloc_halves(n, &weights, &rest, fault);

    for (int64_t done = 0, k; !rc && done < n; done += k) {
        k = zt_min(n - done, PIECE_ELEMS);
        rc = copy_halves(z, b, at + done, k, weights, rest, ZT_READ, fault);
        for (int64_t i = 0; !rc && i < k; i++)
            values[done + i] = zt_join(weights[i], rest[i]);
    }
    free(weights);
    return rc;
}
