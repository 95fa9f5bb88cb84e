#include "kernels/cuda/gemm/gated.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/attention/sdpa.h"

extern "C" {
#include "common/half.h"
#include "common/log.h"
}

#define MOST_PLANS   64 /* problems after these are computed apart */
#define MOST_ENGINES 64 /* that are timed */

struct gated_plan {
    struct zt_sdpa_gated p;
    struct zt_sdpa_gated_plan *plan; /* NULL: apart */
};

struct zt_gated_plans {
    int num;
    struct gated_plan plans[MOST_PLANS];
};

void zt_cuda_gated_close(struct zt_device *dev, struct zt_gated_plans *g)
{
    if (!g)
        return;
    for (int i = 0; i < g->num; i++)
        zt_cuda_sdpa_use(dev->sdpa).table->gated_plan_close(g->plans[i].plan);
    free(g);
}

const char *zt_cuda_gated_library(const struct zt_device *dev)
{
    static thread_local char name[64];
    struct zt_sdpa_use use = zt_cuda_sdpa_use(dev->sdpa);

    snprintf(name, sizeof(name), "%s %zu", use.table->name,
             use.table->version ? use.table->version() : 0);
    return name;
}

static bool has_library(const struct zt_device *dev)
{
    return dev->sdpa && zt_cuda_sdpa_use(dev->sdpa).table->gated_plan;
}

/* ---- problems ---- */

static bool is_aligned(const struct zt_view *v)
{
    return (uintptr_t)v->data % ZT_GEMM_ALIGNED == 0;
}

/* Rows or columns of neighbours begin at multiples of 16 bytes. */
static bool fits(const struct zt_view *v)
{
    int64_t apart = v->stride[1] == 1 ? v->stride[0] : v->stride[1];

    return (v->stride[0] == 1 || v->stride[1] == 1) && apart % 8 == 0 && is_aligned(v);
}

static bool problem_of(const struct zt_gemm_args *g, struct zt_sdpa_gated *p)
{
    memset(p, 0, sizeof(*p));
    if (g->c.dtype != g->a.dtype || (g->c.dtype != ZT_BF16 && g->c.dtype != ZT_F16) ||
        g->a.ndim != 2 || g->a_sum.data || g->b_sum.data || !fits(&g->a) || !fits(&g->b))
        return false;
    p->m = g->c.shape[0];
    p->n = g->c.shape[1];
    p->k = g->a.shape[1];
    p->a_row = g->a.stride[0];
    p->a_col = g->a.stride[1];
    p->b_row = g->b.stride[0];
    p->b_col = g->b.stride[1];
    p->dtype = g->c.dtype;
    return p->n % 8 == 0 && p->m > 0 && p->k > 0 && is_aligned(&g->c) &&
           is_aligned(&g->gate) && is_aligned(&g->up) && is_aligned(&g->dgate);
}

/* The name of the problem among choices. */
static struct zt_gemm_key key_of(const struct zt_sdpa_gated *p)
{
    struct zt_gemm_key k = {};

    k.m = p->m;
    k.n = p->n;
    k.k = p->k;
    k.step_a = p->a_row;
    k.ld_a = p->a_col;
    k.step_b = p->b_row;
    k.ld_b = p->b_col;
    k.type_a = k.type_b = k.type_d = p->dtype;
    k.epilogue = ZT_GEMM_SWIGLU_BWD;
    return k;
}

static struct zt_sdpa_gated_data data_of(const struct zt_gemm_args *g)
{
    return {g->a.data, g->b.data, g->gate.data, g->up.data, g->dgate.data, g->c.data};
}

/* ---- running ---- */

static zt_err run(struct zt_device *dev, const struct zt_sdpa_gated_plan *plan,
                  const struct zt_gemm_args *g, struct zt_fault *fault)
{
    struct zt_sdpa_use use = zt_cuda_sdpa_use(dev->sdpa);
    struct zt_sdpa_gated_data d = data_of(g);
    char why[1024] = "";
    zt_err rc = use.table->gated_run(use.lib, plan, dev->main.cuda, &d, use.workspace,
                                     why, sizeof(why));

    return rc ? zt_fault_set(fault, rc, "cuda: gemm: %s: %s", use.table->name, why) : rc;
}

/* ---- numbers of one way and the other ---- */

#define PROBES 256 /* elements that are compared, spread over the result */

/* Some elements of v, as floats, when all that is queued has run. */
static zt_err probe(struct zt_device *dev, const struct zt_view *v, float x[PROBES],
                    struct zt_fault *fault)
{
    int64_t n = zt_view_numel(v);
    uint16_t word = 0;

    for (int i = 0; i < PROBES; i++) {
        const char *at = static_cast<const char *>(v->data) + n * i / PROBES * 2;
        zt_err rc = zt_cuda_backend.download(dev, NULL, &word, at, sizeof(word), fault);

        if (!rc)
            rc = zt_cuda_backend.sync(dev, NULL, fault);
        if (rc)
            return rc;
        x[i] = v->dtype == ZT_BF16 ? zt_float_of_bf16(word) : zt_float_of_f16(word);
    }
    return ZT_OK;
}

/* Equal but for a rounding of the product, which one way has and the other has not. */
static bool agree(const float x[PROBES], const float want[PROBES])
{
    float largest = 0;

    for (int i = 0; i < PROBES; i++)
        largest = fmaxf(largest, fabsf(want[i]));
    for (int i = 0; i < PROBES; i++)
        if (!(fabsf(x[i] - want[i]) <= 0.02f * fabsf(want[i]) + 0.002f * largest))
            return false;
    return true;
}

struct results {
    float dgate[PROBES], dup[PROBES];
};

static zt_err probe_both(struct zt_device *dev, const struct zt_gemm_args *g,
                         struct results *r, struct zt_fault *fault)
{
    zt_err rc = probe(dev, &g->dgate, r->dgate, fault);

    return rc ? rc : probe(dev, &g->c, r->dup, fault);
}

/* Whether it gives the right numbers, in *works. */
static zt_err compare(struct zt_device *dev, const struct zt_gemm_args *g, int engine,
                      const struct results *want, bool *works, struct zt_fault *fault)
{
    struct results got;
    zt_err rc = probe_both(dev, g, &got, fault);

    *works = !rc && agree(got.dgate, want->dgate) && agree(got.dup, want->dup);
    if (!rc && !*works)
        zt_warn("cuda",
                "engine %d of %s gives other numbers for a product of %lld x %lld x %lld "
                "and its SwiGLU: it is not used",
                engine, zt_cuda_sdpa_use(dev->sdpa).table->name, (long long)g->c.shape[0],
                (long long)g->a.shape[1], (long long)g->c.shape[1]);
    return rc;
}

/* ---- engines that nobody has measured ---- */

#define SMALL_M     256 /* of the product that such an engine is tried on */
#define SMALL_N     128
#define SMALL_K     64
#define SMALL_BYTES ((size_t)1 << 20) /* for it, at the end of the workspace */

/* A matrix of random numbers at *at, its neighbours along the same axis as `like`. */
static zt_err small_matrix(struct zt_device *dev, char **at, const struct zt_view *like,
                           int64_t rows, int64_t cols, struct zt_view *out,
                           struct zt_fault *fault)
{
    const char *end =
        static_cast<char *>(zt_cuda_sdpa_use(dev->sdpa).workspace) + ZT_SDPA_WORKSPACE;
    const int64_t shape[2] = {rows, cols}, flipped[2] = {cols, rows};
    bool by_rows = like->stride[1] == 1;
    struct zt_random_args r = {};

    r.y = zt_view_of(*at, like->dtype, 2, by_rows ? shape : flipped);
    r.normal = true;
    r.b = 1;
    r.rng.seed = (uint64_t)(end - *at); /* another for each, the same on every rank */
    *out = by_rows ? r.y : zt_view_transposed(&r.y);
    *at += rows * cols * 2;
    return zt_cuda_random(dev, NULL, &r, fault);
}

/* A small product of the kind of g. */
static zt_err small_product(struct zt_device *dev, const struct zt_gemm_args *g,
                            struct zt_gemm_args *out, struct zt_fault *fault)
{
    char *at = static_cast<char *>(zt_cuda_sdpa_use(dev->sdpa).workspace) +
               (ZT_SDPA_WORKSPACE - SMALL_BYTES);
    zt_err rc;

    memset(out, 0, sizeof(*out));
    out->epilogue = ZT_EPI_SWIGLU_BWD;
    out->alpha = 1;
    rc = small_matrix(dev, &at, &g->a, SMALL_M, SMALL_K, &out->a, fault);
    if (!rc)
        rc = small_matrix(dev, &at, &g->b, SMALL_K, SMALL_N, &out->b, fault);
    for (struct zt_view *v : {&out->gate, &out->up, &out->dgate, &out->c})
        if (!rc)
            rc = small_matrix(dev, &at, &g->c, SMALL_M, SMALL_N, v, fault);
    return rc;
}

/* Whether the engine computes a small product of this kind as the kernels apart do. */
static zt_err is_right(struct zt_device *dev, const struct zt_gemm_args *g, int engine,
                       zt_gated_apart run_apart, bool *right, struct zt_fault *fault)
{
    struct zt_sdpa_use use = zt_cuda_sdpa_use(dev->sdpa);
    struct zt_sdpa_gated_plan *plan = NULL;
    struct zt_gemm_args small;
    struct zt_sdpa_gated p;
    struct results want;
    char why[1024] = "";
    size_t bytes = 0;
    zt_err rc = small_product(dev, g, &small, fault);

    *right = false;
    if (!rc)
        rc = run_apart(dev, NULL, &small, fault);
    if (!rc)
        rc = probe_both(dev, &small, &want, fault);
    if (rc || !problem_of(&small, &p) ||
        use.table->gated_plan(use.lib, &p, engine, &plan, &bytes, why, sizeof(why)))
        return rc;
    if (bytes <= ZT_SDPA_WORKSPACE - SMALL_BYTES) {
        rc = run(dev, plan, &small, fault);
        if (!rc)
            rc = compare(dev, &small, engine, &want, right, fault);
    }
    use.table->gated_plan_close(plan);
    return rc;
}

/* The library's own choice of an engine, if it works; NULL in *out: apart. */
static zt_err plan_unmeasured(struct zt_device *dev, const struct zt_sdpa_gated *p,
                              const struct zt_gemm_args *g, zt_gated_apart run_apart,
                              struct zt_sdpa_gated_plan **out, struct zt_fault *fault)
{
    struct zt_sdpa_use use = zt_cuda_sdpa_use(dev->sdpa);
    int engine = use.table->gated_engine ? use.table->gated_engine(use.lib, p) : -1;
    char why[1024] = "";
    bool right = false;
    size_t bytes = 0;
    zt_err rc = ZT_OK;

    if (engine >= 0)
        rc = is_right(dev, g, engine, run_apart, &right, fault);
    if (rc || !right)
        return rc;
    if (use.table->gated_plan(use.lib, p, engine, out, &bytes, why, sizeof(why)))
        *out = NULL;
    if (*out && bytes > ZT_SDPA_WORKSPACE) {
        use.table->gated_plan_close(*out);
        *out = NULL;
    }
    return ZT_OK;
}

/* ---- plans ---- */

static zt_err open_table(struct zt_device *dev, struct zt_fault *fault)
{
    if (!dev->gated)
        dev->gated = static_cast<struct zt_gated_plans *>(calloc(1, sizeof(*dev->gated)));
    return dev->gated ? ZT_OK
                      : zt_fault_set(fault, ZT_E_NOMEM, "cuda: gemm: no host memory");
}

/* The plan of the engine that was chosen; NULL in it: apart. */
static zt_err plan_chosen(struct zt_device *dev, const struct zt_sdpa_gated *p,
                          const struct zt_gemm_choice *choice,
                          struct zt_sdpa_gated_plan **out, struct zt_fault *fault)
{
    struct zt_sdpa_use use = zt_cuda_sdpa_use(dev->sdpa);
    char why[1024] = "";
    size_t bytes = 0;
    zt_err rc;

    if (choice->algo[0] == 0)
        return ZT_OK;
    rc = use.table->gated_plan(use.lib, p, (int)choice->algo[0] - 1, out, &bytes, why,
                               sizeof(why));
    if (!rc && bytes > ZT_SDPA_WORKSPACE) {
        use.table->gated_plan_close(*out);
        rc = ZT_E_UNSUPPORTED;
        snprintf(why, sizeof(why), "it needs a workspace of %zu bytes", bytes);
    }
    if (!rc)
        return ZT_OK;
    *out = NULL;
    return zt_fault_set(fault, ZT_E_PLAN,
                        "cuda: gemm: the way that tuning has chosen for a product "
                        "and its SwiGLU is refused by %s: %s: tune anew, with "
                        "another --product_tuning",
                        use.table->name, why);
}

static zt_err find(struct zt_device *dev, const struct zt_sdpa_gated *p,
                   const struct zt_gemm_args *g, zt_gated_apart run_apart,
                   struct zt_sdpa_gated_plan **out, struct zt_fault *fault)
{
    struct zt_gemm_key key = key_of(p);
    const struct zt_gemm_choice *choice = zt_gemm_choice_of(dev, &key);
    struct zt_gated_plans *all = dev->gated;
    zt_err rc;

    *out = NULL;
    for (int i = 0; i < all->num; i++)
        if (memcmp(&all->plans[i].p, p, sizeof(*p)) == 0) {
            *out = all->plans[i].plan;
            return ZT_OK;
        }
    if (all->num == MOST_PLANS)
        return ZT_OK;
    rc = choice ? plan_chosen(dev, p, choice, out, fault)
                : plan_unmeasured(dev, p, g, run_apart, out, fault);
    if (rc)
        return rc;
    all->plans[all->num].p = *p;
    all->plans[all->num++].plan = *out;
    return ZT_OK;
}

zt_err zt_cuda_gated(struct zt_device *dev, struct zt_stream *s,
                     const struct zt_gemm_args *g, zt_gated_apart run_apart, bool *done,
                     struct zt_fault *fault)
{
    struct zt_sdpa_gated_plan *plan = NULL;
    struct zt_sdpa_gated p;
    zt_err rc;

    *done = false;
    if (!has_library(dev) || zt_cuda_stream(dev, s) != &dev->main || !problem_of(g, &p))
        return ZT_OK;
    rc = open_table(dev, fault);
    if (!rc)
        rc = find(dev, &p, g, run_apart, &plan, fault);
    if (rc || !plan)
        return rc;
    *done = true;
    return run(dev, plan, g, fault);
}

/* ---- tuning ---- */

/* *works: an engine can, and rightly, and takes *ms. ZT_E_LIMIT: there is none. */
static zt_err time_engine(struct zt_device *dev, const struct zt_sdpa_gated *p,
                          int engine, const struct zt_gemm_args *g,
                          const struct results *want, float *ms, bool *works,
                          struct zt_fault *fault)
{
    struct zt_sdpa_use use = zt_cuda_sdpa_use(dev->sdpa);
    struct zt_sdpa_gated_plan *plan = NULL;
    char why[1024] = "";
    size_t bytes = 0;
    zt_err rc =
        use.table->gated_plan(use.lib, p, engine, &plan, &bytes, why, sizeof(why));

    *works = false;
    if (rc)
        return rc == ZT_E_LIMIT ? rc : ZT_OK;
    if (bytes <= ZT_SDPA_WORKSPACE) {
        rc = zt_gemm_time(
            dev, [&] { return run(dev, plan, g, fault); }, ms, fault);
        if (!rc)
            rc = compare(dev, g, engine, want, works, fault);
    }
    use.table->gated_plan_close(plan);
    return rc;
}

zt_err zt_cuda_gated_tune(struct zt_device *dev, const struct zt_gemm_args *g,
                          zt_gated_apart run_apart, struct zt_fault *fault)
{
    struct zt_gemm_choice choice = {};
    struct zt_sdpa_gated p;
    struct results want;
    float best = 0, ms = 0;
    bool works = false;
    zt_err rc;

    if (!has_library(dev) || !problem_of(g, &p))
        return ZT_OK;
    choice.key = key_of(&p);
    if (zt_gemm_choice_of(dev, &choice.key))
        return ZT_OK;
    rc = zt_gemm_time(
        dev, [&] { return run_apart(dev, NULL, g, fault); }, &best, fault);
    if (!rc)
        rc = probe_both(dev, g, &want, fault);
    for (int engine = 0; !rc && engine < MOST_ENGINES; engine++) {
        rc = time_engine(dev, &p, engine, g, &want, &ms, &works, fault);
        if (rc || !works || ms > ZT_FASTER * best)
            continue;
        best = ms;
        choice.algo[0] = (uint64_t)engine + 1;
    }
    return !rc || rc == ZT_E_LIMIT ? zt_gemm_choice_add(dev, &choice, fault) : rc;
}
