/*
 * products.h -- which matrix products a run on the meta backend asked for: what a device
 * is tuned with (zt_backend.tune).
 */
#ifndef KERNELS_META_PRODUCTS_H
#define KERNELS_META_PRODUCTS_H

#include "kernels/backend.h"

/* Each product once. `data` of its operands is NULL, or says by its last four bits how the
 * address was aligned. */
struct zt_products {
    struct zt_gemm_args *at;
    int num, room;
    bool incomplete; /* host memory was out */
};

/* Those of one more call. */
void zt_products_add(struct zt_products *all, const struct zt_gemm_args *a);
void zt_products_release(struct zt_products *all);

/* What is multiplied on a device of the meta backend goes there; NULL: nowhere. */
void zt_meta_note_products(struct zt_device *dev, struct zt_products *all);

#endif
