/* oneDNN primitives for products, and the cache they live in. */
#include <dnnl.h>
#ifndef ZT_PARALLEL_PTHREADS
#include <omp.h>
#endif
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/parallel.h"

#define CACHE_SETS  128
#define CACHE_WAYS  4
#define MANY_PINNED 2048

/* What tells one primitive from another: plain words, no padding. */
struct plan_key {
    int64_t word[18];
};

struct zt_gemm_plan {
    struct plan_key key;
    dnnl_primitive_t prim;
    dnnl_memory_desc_t a, b, c, bias;
    const dnnl_memory_desc_t *pad;
    size_t pad_bytes;
    bool has_bias;
    uint64_t used;             /* when, in lookups */
    struct zt_gemm_plan *next; /* of the pinned ones */
    dnnl_primitive_desc_t desc;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

struct zt_gemm_cache {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    uint64_t clock;
    struct zt_gemm_plan *way[CACHE_SETS][CACHE_WAYS];
    struct zt_gemm_plan *pinned[CACHE_SETS];
    int num_pinned;
};

static void plan_free(struct zt_gemm_plan *p)
{
    if (!p)
        return;
    dnnl_primitive_destroy(p->prim);
    dnnl_primitive_desc_destroy(p->desc);
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
        for (int j = 0; j < CACHE_WAYS; j++)
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

    if (dev->gemm)
        return ZT_OK;
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
static dnnl_status_t describe(dnnl_memory_desc_t *md, zt_dtype dtype, int64_t batch,
                              int64_t rows, int64_t cols, const int64_t s[3])
{
    int64_t row = s[1], col = s[2];

    if (cols == 1)
        col = 1;
    if (rows == 1) {
        row = col == 1 ? cols : 1;
    } else if (cols == 1 && row < 1) {
        row = 1;
    }
    if (batch == 1)
        return dnnl_memory_desc_init_by_strides(
            md, 2, (dnnl_dims_t){rows, cols}, dnnl_type(dtype), (dnnl_dims_t){row, col});
    if (s[0] == 0)
        return dnnl_memory_desc_init_by_strides(md, 3, (dnnl_dims_t){1, rows, cols},
                                                dnnl_type(dtype),
                                                (dnnl_dims_t){rows * cols, row, col});
    return dnnl_memory_desc_init_by_strides(md, 3, (dnnl_dims_t){batch, rows, cols},
                                            dnnl_type(dtype),
                                            (dnnl_dims_t){s[0], row, col});
}

static dnnl_status_t describe_all(struct zt_gemm_plan *plan,
                                  const struct zt_gemm_problem *p)
{
    dnnl_status_t st = describe(&plan->a, p->ab, p->batch, p->m, p->k, p->as);

    if (st == dnnl_success)
        st = describe(&plan->b, p->ab, p->batch, p->k, p->n, p->bs);
    if (st == dnnl_success)
        st = describe(&plan->c, p->c, p->batch, p->m, p->n, p->cs);
    if (st == dnnl_success && p->has_bias) {
        int nd = p->batch == 1 ? 2 : 3;
        dnnl_dims_t dims = {1, 1, 1}, strides = {p->n, p->n, p->n};

        dims[nd - 1] = p->n;
        strides[nd - 1] = 1;
        st = dnnl_memory_desc_init_by_strides(&plan->bias, nd, dims, dnnl_type(p->bias),
                                              strides);
    }
    return st;
}

static dnnl_status_t make_attr(dnnl_primitive_attr_t *attr,
                               const struct zt_gemm_problem *p)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t st = dnnl_primitive_attr_create(attr);

    if (st == dnnl_success)
        st = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    if (st == dnnl_success && p->alpha != 1)
        st = dnnl_primitive_attr_set_output_scales(*attr, 1, 0, &p->alpha);
    if (st == dnnl_success && p->accumulate) {
        st = dnnl_post_ops_create(&ops);
        if (st == dnnl_success)
            st = dnnl_post_ops_append_sum(ops, 1);
        if (st == dnnl_success)
            st = dnnl_primitive_attr_set_post_ops(*attr, ops);
        dnnl_post_ops_destroy(ops);
    }
    return st;
}

static dnnl_status_t make_primitive(struct zt_gemm_cache *cache,
                                    struct zt_gemm_plan *plan,
                                    const struct zt_gemm_problem *p)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_matmul_desc_t desc;
    dnnl_status_t st = describe_all(plan, p);

    if (st == dnnl_success)
        st = make_attr(&attr, p);
    if (st == dnnl_success)
        st = dnnl_matmul_desc_init(&desc, &plan->a, &plan->b,
                                   p->has_bias ? &plan->bias : NULL, &plan->c);
    if (st == dnnl_success)
        st = dnnl_primitive_desc_create(&plan->desc, &desc, attr, cache->engine, NULL);
    if (st == dnnl_success)
        st = dnnl_primitive_create(&plan->prim, plan->desc);
    dnnl_primitive_attr_destroy(attr);
    if (st != dnnl_success)
        return st;
    plan->pad = dnnl_primitive_desc_query_md(plan->desc, dnnl_query_scratchpad_md, 0);
    plan->pad_bytes = dnnl_memory_desc_get_size(plan->pad);
    plan->has_bias = p->has_bias;
    plan->engine = cache->engine;
    plan->stream = cache->stream;
    return st;
}

/* oneDNN splits the work for as many threads as OpenMP would start at this moment. */
static void plan_for_threads(int n)
{
#ifdef ZT_PARALLEL_PTHREADS
    (void)n; /* OpenMP is kept at one thread */
#else
    omp_set_num_threads(n);
#endif
}

static struct plan_key key_of(const struct zt_gemm_problem *p)
{
    int64_t alpha = 0;

    memcpy(&alpha, &p->alpha, sizeof(p->alpha));
    return (struct plan_key){{p->batch, p->m, p->n, p->k, p->as[0], p->as[1], p->as[2],
                              p->bs[0], p->bs[1], p->bs[2], p->cs[0], p->cs[1], p->cs[2],
                              p->ab | p->c << 8 | p->bias << 16, alpha,
                              p->accumulate | p->has_bias << 1 | p->serial << 2,
                              p->serial ? 1 : zt_num_threads()}};
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
    for (int i = 0; i < CACHE_WAYS; i++) {
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
    for (int i = 0; i < CACHE_WAYS; i++) {
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
        plan->key = key;
        if (p->serial)
            plan_for_threads(1);
        st = make_primitive(dev->gemm, plan, p);
        if (p->serial)
            plan_for_threads(zt_num_threads());
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
    return (plan->pad_bytes + 63) / 64 * 64;
}

zt_err zt_gemm_run(const struct zt_gemm_plan *plan, const void *a, const void *b,
                   const void *bias, void *c, void *scratch, struct zt_fault *fault)
{
    const dnnl_memory_desc_t *md[5] = {&plan->a, &plan->b, &plan->c, plan->pad,
                                       &plan->bias};
    void *ptr[5] = {(void *)(uintptr_t)a, (void *)(uintptr_t)b, c, scratch,
                    (void *)(uintptr_t)bias};
    dnnl_exec_arg_t arg[5] = {{DNNL_ARG_SRC, NULL},
                              {DNNL_ARG_WEIGHTS, NULL},
                              {DNNL_ARG_DST, NULL},
                              {DNNL_ARG_SCRATCHPAD, NULL},
                              {DNNL_ARG_BIAS, NULL}};
    int n = plan->has_bias ? 5 : 4, made = 0;
    dnnl_status_t st = dnnl_success;

    for (; made < n && st == dnnl_success; made++)
        st = dnnl_memory_create(&arg[made].memory, md[made], plan->engine, ptr[made]);
    if (st == dnnl_success)
        st = dnnl_primitive_execute(plan->prim, plan->stream, n, arg);
    for (int i = 0; i < made; i++)
        dnnl_memory_destroy(arg[i].memory);
    if (st != dnnl_success)
        return zt_fault_set(fault, ZT_E_SYSTEM, "oneDNN: a product failed with status %d",
                            (int)st);
    return ZT_OK;
}
