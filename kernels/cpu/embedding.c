/*
 * Lookups. Backward gives each thread a range of columns: rows of one id are then added
 * in order of N by one thread, without a lock and whatever the number of threads.
 */
#include "kernels/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tile.h"

/* Before anything is written. */
static zt_err ids_in_range(const char *op, const struct zt_view *ids, int64_t rows,
                           struct zt_fault *fault)
{
    const int32_t *id = ids->data;

    for (int64_t i = 0; i < ids->shape[0]; i++)
        if (id[i] < 0 || id[i] >= rows)
            return zt_fault_set(fault, ZT_E_ARG,
                                "%s: id %d at position %lld is outside [0, %lld)", op,
                                (int)id[i], (long long)i, (long long)rows);
    return ZT_OK;
}

static void lookup_rows(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct zt_embedding_args *a = ctx;
    const int32_t *id = a->ids.data;
    int64_t cols = a->y.shape[1];
    size_t bytes = (size_t)cols * zt_dtype_bytes(a->y.dtype);
    float in[ZT_TILE];

    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        if (a->table.dtype == a->y.dtype) {
            memcpy((char *)a->y.data + (size_t)row * bytes,
                   (const char *)a->table.data + (size_t)id[row] * bytes, bytes);
            continue;
        }
        for (int64_t at = 0; at < cols; at += ZT_TILE) {
            int64_t n = cols - at < ZT_TILE ? cols - at : ZT_TILE;
            const float *t =
                zt_tile_load(a->table.data, a->table.dtype, id[row] * cols + at, n, in);

            zt_tile_store(a->y.data, a->y.dtype, row * cols + at, n, t, false);
        }
    }
}

zt_err zt_cpu_embedding(struct zt_device *dev, struct zt_stream *s,
                        const struct zt_embedding_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_embedding(a, fault);

    (void)dev;
    (void)s;
    if (!rc)
        rc = ids_in_range("embedding", &a->ids, a->table.shape[0], fault);
    if (!rc)
        zt_parallel_for(a->y.shape[0], 16, lookup_rows, (void *)a);
    return rc;
}

static void scatter_columns(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct zt_embedding_bwd_args *a = ctx;
    const int32_t *id = a->ids.data;
    float *table = a->dtable.data, in[ZT_TILE];
    int64_t cols = a->dy.shape[1];

    (void)thread;
    for (int64_t at = begin; at < end; at += ZT_TILE) {
        int64_t n = end - at < ZT_TILE ? end - at : ZT_TILE;

        for (int64_t row = 0; row < a->dy.shape[0]; row++)
            zt_tile_add(table + id[row] * cols + at,
                        zt_tile_load(a->dy.data, a->dy.dtype, row * cols + at, n, in), n);
    }
}

zt_err zt_cpu_embedding_bwd(struct zt_device *dev, struct zt_stream *s,
                            const struct zt_embedding_bwd_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_embedding_bwd(a, fault);

    (void)dev;
    (void)s;
    if (!rc)
        rc = ids_in_range("embedding_bwd", &a->ids, a->dtable.shape[0], fault);
    if (!rc)
        zt_parallel_for(a->dy.shape[1], 64, scatter_columns, (void *)a);
    return rc;
}
