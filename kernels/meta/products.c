#include "kernels/meta/products.h"

#include <stdlib.h>

#define ALIGNED 16  /* bytes, the most that a product may count on */
#define NOWHERE 256 /* a multiple of it that is no address */

/* The operands of a product. */
#define NUM_VIEWS 10
static void views_of(struct zt_gemm_args *a, struct zt_view *out[NUM_VIEWS])
{
    struct zt_view *const views[NUM_VIEWS] = {&a->a,   &a->b,     &a->c,     &a->bias,
                                              &a->pre, &a->a_sum, &a->b_sum, &a->gate,
                                              &a->up,  &a->dgate};

    for (int i = 0; i < NUM_VIEWS; i++)
        out[i] = views[i];
}

static bool same_view(const struct zt_view *a, const struct zt_view *b)
{
    bool same = a->data == b->data;

    if (!a->data || !same)
        return same;
    same = a->dtype == b->dtype && a->ndim == b->ndim;
    for (int i = 0; same && i < a->ndim; i++)
        same = a->shape[i] == b->shape[i] && a->stride[i] == b->stride[i];
    return same;
}

static bool same_product(struct zt_gemm_args *a, struct zt_gemm_args *b)
{
    struct zt_view *x[NUM_VIEWS], *y[NUM_VIEWS];
    bool same = a->alpha == b->alpha && a->accumulate == b->accumulate &&
                a->accumulate_sums == b->accumulate_sums && a->tf32 == b->tf32 &&
                a->epilogue == b->epilogue && !a->a_scale == !b->a_scale;

    views_of(a, x);
    views_of(b, y);
    for (int i = 0; same && i < NUM_VIEWS; i++)
        same = same_view(x[i], y[i]);
    return same;
}

void zt_products_add(struct zt_products *all, const struct zt_gemm_args *args)
{
    struct zt_gemm_args a = *args;
    struct zt_view *views[NUM_VIEWS];

    views_of(&a, views);
    for (int i = 0; i < NUM_VIEWS; i++)
        if (views[i]->data)
            views[i]->data = (void *)(NOWHERE + (uintptr_t)views[i]->data % ALIGNED);
    for (int i = 0; i < all->num; i++)
        if (same_product(&all->at[i], &a))
            return;
    if (all->num == all->room) {
        int room = all->room ? 2 * all->room : 32;
        void *at = realloc(all->at, (size_t)room * sizeof(*all->at));

        all->incomplete |= !at;
        if (!at)
            return;
        all->at = at;
        all->room = room;
    }
    all->at[all->num++] = a;
}

void zt_products_release(struct zt_products *all)
{
    free(all->at);
    *all = (struct zt_products){.at = NULL};
}
