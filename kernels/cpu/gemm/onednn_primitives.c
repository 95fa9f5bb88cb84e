/* oneDNN primitives for products, and the cache they live in. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/features.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/gemm/onednn.h"

#define CACHE_SETS  128
#define MANY_PINNED 2048

/* What tells one primitive from another: plain words, no padding. */
struct plan_key {
    int64_t word[16];
};

struct zt_gemm_plan {
    struct plan_key key;
    struct zt_onednn_product *product;
    dnnl_stream_t stream;
    uint64_t used;             /* when, in lookups */
    struct zt_gemm_plan *next; /* of the pinned ones */
};

struct zt_gemm_cache {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    uint64_t clock;
    struct zt_gemm_plan *way[CACHE_SETS][ZT_GEMM_PLANS];
    struct zt_gemm_plan *pinned[CACHE_SETS];
    int num_pinned;
};

static void plan_free(struct zt_gemm_plan *p)
{
    if (!p)
        return;
    zt_onednn_free(p->product);
    free(p);
}

static void drop_pinned(struct zt_gemm_cache *cache)
{
    for (int i = 0; i < CACHE_SETS; i++) {
        for (struct zt_gemm_plan *p = cache->pinned[i], *next; p; p = next) {
            next = p->next;
            plan_free(p);
        }
        cache->pinned[i] = NULL;
    }
    cache->num_pinned = 0;
}

void zt_gemm_trim(struct zt_device *dev)
{
    if (dev->gemm && dev->gemm->num_pinned > MANY_PINNED)
        drop_pinned(dev->gemm);
}

void zt_gemm_cache_free(struct zt_gemm_cache *cache)
{
    if (!cache)
        return;
    for (int i = 0; i < CACHE_SETS; i++)
        for (int j = 0; j < ZT_GEMM_PLANS; j++)
            plan_free(cache->way[i][j]);
    drop_pinned(cache);
    dnnl_stream_destroy(cache->stream);
    dnnl_engine_destroy(cache->engine);
    free(cache);
}

static zt_err dnnl_fault(struct zt_fault *fault, const char *what, dnnl_status_t status,
                         const struct zt_gemm_problem *p)
{
    return zt_fault_set(fault, status == dnnl_out_of_memory ? ZT_E_NOMEM : ZT_E_SYSTEM,
                        "oneDNN: %s failed with status %d for a product of %lld x (%lld, "
                        "%lld) (%lld, %lld) in %s",
                        what, (int)status, (long long)p->batch, (long long)p->m,
                        (long long)p->k, (long long)p->k, (long long)p->n,
                        zt_dtype_name(p->ab));
}

static zt_err cache_open(struct zt_device *dev, struct zt_fault *fault)
{
    struct zt_gemm_cache *cache;
    zt_err rc;

    if (dev->gemm)
        return ZT_OK;
    rc = zt_cpu_limit_onednn(fault);
    if (rc)
        return rc;
    cache = calloc(1, sizeof(*cache));
    if (!cache)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the cache of products");
    if (dnnl_engine_create(&cache->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&cache->stream, cache->engine, dnnl_stream_default_flags) !=
            dnnl_success) {
        zt_gemm_cache_free(cache);
        return zt_fault_set(fault, ZT_E_SYSTEM, "oneDNN has no cpu engine here");
    }
    dev->gemm = cache;
    return ZT_OK;
}

static dnnl_data_type_t dnnl_type(zt_dtype dtype)
{
    return dtype == ZT_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* Strides of an axis of length 1 say nothing; oneDNN still wants sensible ones. */
static struct zt_onednn_matrix matrix_of(zt_dtype dtype, int64_t batch, int64_t rows,
                                         int64_t cols, const int64_t s[3])
{
    dnnl_data_type_t type = dnnl_type(dtype);
    int64_t row = s[1], col = s[2];

    if (cols == 1)
        col = 1;
    if (rows == 1) {
        row = col == 1 ? cols : 1;
    } else if (cols == 1 && row < 1) {
        row = 1;
    }
    if (batch == 1)
        return (struct zt_onednn_matrix){2, type, {rows, cols}, {row, col}};
    if (s[0] == 0)
        return (struct zt_onednn_matrix){
            3, type, {1, rows, cols}, {rows * cols, row, col}};
    return (struct zt_onednn_matrix){3, type, {batch, rows, cols}, {s[0], row, col}};
}

static struct zt_onednn_matmul matmul_of(const struct zt_gemm_problem *p)
{
    struct zt_onednn_matmul matmul = {
        .a = matrix_of(p->ab, p->batch, p->m, p->k, p->as),
        .b = matrix_of(p->ab, p->batch, p->k, p->n, p->bs),
        .c = matrix_of(p->c, p->batch, p->m, p->n, p->cs),
        .has_bias = p->has_bias,
        .accumulate = p->accumulate,
        .alpha = p->alpha,
    };
    const dnnl_data_type_t type = dnnl_type(p->bias);

    if (p->has_bias)
        matmul.bias =
            p->batch == 1
                ? (struct zt_onednn_matrix){2, type, {1, p->n}, {p->n, 1}}
                : (struct zt_onednn_matrix){3, type, {1, 1, p->n}, {p->n, p->n, 1}};
    return matmul;
}

static struct plan_key key_of(const struct zt_gemm_problem *p)
{
    int64_t alpha = 0;

    memcpy(&alpha, &p->alpha, sizeof(p->alpha));
    return (struct plan_key){{p->batch, p->m, p->n, p->k, p->as[0], p->as[1], p->as[2],
                              p->bs[0], p->bs[1], p->bs[2], p->cs[0], p->cs[1], p->cs[2],
                              p->ab | p->c << 8 | p->bias << 16, alpha,
                              p->accumulate | p->has_bias << 1}};
}

static unsigned set_of(const struct plan_key *key)
{
    uint64_t h = 1469598103934665603u;

    for (size_t i = 0; i < sizeof(key->word) / sizeof(key->word[0]); i++) {
        h = (h ^ (uint64_t)key->word[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return (unsigned)(h % CACHE_SETS);
}

static struct zt_gemm_plan *find_plan(struct zt_gemm_cache *cache,
                                      const struct plan_key *key, unsigned set,
                                      bool pinned)
{
    if (pinned) {
        for (struct zt_gemm_plan *p = cache->pinned[set]; p; p = p->next)
            if (memcmp(&p->key, key, sizeof(*key)) == 0)
                return p;
        return NULL;
    }
    for (int i = 0; i < ZT_GEMM_PLANS; i++) {
        struct zt_gemm_plan *p = cache->way[set][i];

        if (p && memcmp(&p->key, key, sizeof(*key)) == 0)
            return p;
    }
    return NULL;
}

static void keep_plan(struct zt_gemm_cache *cache, struct zt_gemm_plan *plan,
                      unsigned set, bool pinned)
{
    int oldest = 0;

    if (pinned) {
        plan->next = cache->pinned[set];
        cache->pinned[set] = plan;
        cache->num_pinned++;
        return;
    }
    for (int i = 0; i < ZT_GEMM_PLANS; i++) {
        if (!cache->way[set][i]) {
            oldest = i;
            break;
        }
        if (cache->way[set][i]->used < cache->way[set][oldest]->used)
            oldest = i;
    }
    plan_free(cache->way[set][oldest]);
    cache->way[set][oldest] = plan;
}

zt_err zt_gemm_plan(struct zt_device *dev, const struct zt_gemm_problem *p, bool pinned,
                    const struct zt_gemm_plan **out, struct zt_fault *fault)
{
    struct plan_key key = key_of(p);
    unsigned set = set_of(&key);
    struct zt_onednn_matmul matmul;
    struct zt_gemm_plan *plan;
    dnnl_status_t st;
    zt_err rc = cache_open(dev, fault);

    *out = NULL;
    if (rc != ZT_OK)
        return rc;
    plan = find_plan(dev->gemm, &key, set, pinned);
    if (!plan) {
        plan = calloc(1, sizeof(*plan));
        if (!plan)
            return zt_fault_set(fault, ZT_E_NOMEM, "no memory for a product's plan");
        matmul = matmul_of(p);
        plan->key = key;
        plan->stream = dev->gemm->stream;
        st = zt_onednn_make(dev->gemm->engine, &matmul, &plan->product);
        if (st != dnnl_success) {
            plan_free(plan);
            return dnnl_fault(fault, "making a primitive", st, p);
        }
        keep_plan(dev->gemm, plan, set, pinned);
    }
    plan->used = ++dev->gemm->clock;
    *out = plan;
    return ZT_OK;
}

size_t zt_gemm_plan_scratch(const struct zt_gemm_plan *plan)
{
    return (zt_onednn_scratch_bytes(plan->product) + 63) / 64 * 64;
}

zt_err zt_gemm_run(const struct zt_gemm_plan *plan, const void *a, const void *b,
                   const void *bias, void *c, void *scratch, struct zt_fault *fault)
{
    dnnl_status_t st = zt_onednn_run(plan->product, plan->stream, a, b, bias, c, scratch);

    if (st != dnnl_success)
        return zt_fault_set(fault, ZT_E_SYSTEM, "oneDNN: a product failed with status %d",
                            (int)st);
    return ZT_OK;
}
