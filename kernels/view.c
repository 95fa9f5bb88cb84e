#include "kernels/backend.h"

struct zt_view zt_view_of(void *data, zt_dtype dtype, int ndim, const int64_t *shape)
{
    struct zt_view v = {.data = data, .dtype = dtype, .ndim = ndim};
    int64_t stride = 1;

    for (int i = ndim - 1; i >= 0; i--) {
        v.shape[i] = shape[i];
        v.stride[i] = stride;
        stride *= shape[i];
    }
    return v;
}

int64_t zt_view_numel(const struct zt_view *v)
{
    int64_t n = 1;

    for (int i = 0; i < v->ndim; i++)
        n *= v->shape[i];
    return n;
}

bool zt_view_is_contiguous(const struct zt_view *v)
{
    int64_t stride = 1;

    for (int i = v->ndim - 1; i >= 0; i--) {
        if (v->shape[i] == 0)
            return true;
        if (v->shape[i] != 1 && v->stride[i] != stride)
            return false;
        stride *= v->shape[i];
    }
    return true;
}

struct zt_view zt_view_transposed(const struct zt_view *v)
{
    int n = v->ndim;
    struct zt_view t = *v;

    t.shape[n - 1] = v->shape[n - 2];
    t.shape[n - 2] = v->shape[n - 1];
    t.stride[n - 1] = v->stride[n - 2];
    t.stride[n - 2] = v->stride[n - 1];
    return t;
}
