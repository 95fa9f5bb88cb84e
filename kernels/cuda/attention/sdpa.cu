/*
 * Dispatches attention to the library behind sdpa.h if it is loaded and takes the problem,
 * in parts that fit into its workspace; else to our own kernels.
 */
#include "kernels/cuda/attention/sdpa.h"
#include "kernels/cuda/attention/attention.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "common/loadable.h"
#include "common/log.h"
#include "kernels/integers.h"
}

#define MAX_PLANS   128 /* problems after these are done by our own kernels */
#define ALIGN_BYTES 16  /* bytes: alignment of memory and strides */

/* A problem that was seen, and its plan. */
struct cached_plan {
    struct zt_sdpa_problem p;
    struct zt_sdpa_plan *plan;     /* for parts of this size; NULL: unsupported */
    int64_t batch_step, head_step; /* size of a part: batches, K heads */
};

struct zt_cuda_sdpa {
    const struct zt_sdpa *table;
    struct zt_sdpa_lib *lib;
    void *workspace; /* ZT_SDPA_WORKSPACE */
    bool warned;     /* about a problem that the library does not support */
    int num;
    struct cached_plan cached[MAX_PLANS];
};

/* ---- the object ---- */

/* NULL, and why not. */
static const struct zt_sdpa *load(const char *path, char *why, size_t why_bytes)
{
    /* never closed: callbacks of the library may still run */
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const struct zt_sdpa *t;

    if (!object) {
        snprintf(why, why_bytes, "%s", dlerror());
        return NULL;
    }
    t = static_cast<const struct zt_sdpa *>(dlsym(object, ZT_SDPA_SYMBOL));
    if (!t) {
        snprintf(why, why_bytes, "%s exports no %s: rebuild it", path, ZT_SDPA_SYMBOL);
        return NULL;
    }
    if (t->abi != ZT_SDPA_ABI || t->struct_bytes != sizeof(*t)) {
        snprintf(why, why_bytes, "%s is of another version of zlaunch: run make again",
                 path);
        return NULL;
    }
    return t;
}

void zt_cuda_sdpa_close(struct zt_cuda_sdpa *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->num; i++)
        c->table->plan_close(c->cached[i].plan);
    if (c->table)
        c->table->close(c->lib);
    (void)cudaFree(c->workspace);
    free(c);
}

static bool start(struct zt_cuda_sdpa *c, const char *path, char *why, size_t why_bytes)
{
    c->table = load(path, why, why_bytes);
    if (!c->table || c->table->open(&c->lib, why, why_bytes) != ZT_OK)
        return false;
    if (cudaMalloc(&c->workspace, ZT_SDPA_WORKSPACE) == cudaSuccess)
        return true;
    (void)cudaGetLastError(); /* or the next launch would report it */
    snprintf(why, why_bytes, "%zu MiB of device memory for its workspace are not free",
             ZT_SDPA_WORKSPACE >> 20);
    return false;
}

struct zt_cuda_sdpa *zt_cuda_sdpa_open(void)
{
    struct zt_cuda_sdpa *c;
    char path[ZT_LOADABLE_PATH], why[ZT_LOADABLE_PATH + 128] = "no host memory";

    if (!zt_loadable_find(ZT_SDPA_ENVIRONMENT, ZT_SDPA_FILE, path, sizeof(path)))
        return NULL;
    c = static_cast<struct zt_cuda_sdpa *>(calloc(1, sizeof(*c)));
    if (c && start(c, path, why, sizeof(why)))
        return c;
    zt_warn("cuda",
            "cuDNN cannot be used, attention is done by slower kernels: %s "
            "(ZLAUNCH_CUDNN_BACKEND=0 does not look for it)",
            why);
    zt_cuda_sdpa_close(c);
    return NULL;
}

struct zt_sdpa_use zt_cuda_sdpa_use(const struct zt_cuda_sdpa *c)
{
    return {c->table, c->lib, c->workspace};
}

/* ---- problems that the library supports ---- */

static bool fits(const struct zt_view *v, zt_dtype dtype, struct zt_sdpa_strides *out)
{
    int64_t apart = ALIGN_BYTES / (int64_t)zt_dtype_bytes(dtype);

    *out = {v->stride[0], v->stride[1], v->stride[2]};
    return v->dtype == dtype && (uintptr_t)v->data % ALIGN_BYTES == 0 &&
           out->batch % apart == 0 && out->row % apart == 0 && out->head % apart == 0;
}

static bool problem_of(const struct zt_attention_args *a, struct zt_sdpa_problem *p)
{
    const struct zt_view *q = &a->q;

    memset(p, 0, sizeof(*p));
    p->batch = q->shape[0];
    p->tq = q->shape[1];
    p->heads = q->shape[2];
    p->dim = q->shape[3];
    p->tk = a->k.shape[1];
    p->kv_heads = a->k.shape[2];
    p->dtype = q->dtype;
    p->causal = a->causal;
    return (q->dtype == ZT_BF16 || q->dtype == ZT_F16) && !a->bias.data &&
           !a->mask.data && a->dropout == 0 && a->window == 0 && !a->key_begin.data &&
           !a->key_end.data && (!a->causal || p->tq == p->tk) && p->dim % 8 == 0 &&
           p->dim <= ZT_MAX_HEAD_DIM && zt_view_numel(q) > 0 &&
           zt_view_numel(&a->k) > 0 && fits(q, q->dtype, &p->q) &&
           fits(&a->k, q->dtype, &p->k) && fits(&a->v, q->dtype, &p->v) &&
           fits(&a->out, q->dtype, &p->out);
}

static bool problem_of_bwd(const struct zt_attention_bwd_args *a,
                           struct zt_sdpa_problem *p)
{
    zt_dtype dtype = a->fwd.q.dtype;

    if (!problem_of(&a->fwd, p) || a->accumulate_q || a->accumulate_k || a->accumulate_v)
        return false;
    p->backward = true;
    p->sums = a->any_order ? ZT_SDPA_AS_THEY_COME : ZT_SDPA_STORED;
    return fits(&a->dout, dtype, &p->dout) && fits(&a->dq, dtype, &p->dq) &&
           fits(&a->dk, dtype, &p->dk) && fits(&a->dv, dtype, &p->dv);
}

/* ---- plans ---- */

/* The largest divisor of n that is at most `most`. */
static int64_t divisor(int64_t n, int64_t most)
{
    while (n % most)
        most--;
    return most;
}

/* Parts of p, all of one size, of at most `most` K heads each. */
static struct zt_sdpa_problem fit_to_workspace(const struct zt_sdpa_problem *p,
                                               int64_t most)
{
    struct zt_sdpa_problem part = *p;

    if (most >= p->kv_heads) {
        part.batch = divisor(p->batch, most / p->kv_heads);
        return part;
    }
    part.batch = 1;
    part.kv_heads = divisor(p->kv_heads, most);
    part.heads = p->heads / p->kv_heads * part.kv_heads;
    return part;
}

static void warn_once(struct zt_cuda_sdpa *c, const struct zt_sdpa_problem *p,
                      const char *why)
{
    if (c->warned)
        return;
    c->warned = true;
    zt_warn("cuda",
            "attention%s of %lld x %lld, %lld heads of %lld in %s, is done by slower "
            "kernels: %s: %s",
            p->backward ? " backward" : "", (long long)p->tq, (long long)p->tk,
            (long long)p->heads, (long long)p->dim, zt_dtype_name((zt_dtype)p->dtype),
            c->table->name, why);
}

/* The plan of the largest parts that fit into the workspace; false, and why: there is none. */
static bool plan_parts(struct zt_cuda_sdpa *c, struct cached_plan *k,
                       enum zt_sdpa_sums sums, char why[1024])
{
    struct zt_sdpa_problem whole = k->p, part;
    size_t bytes = 0;

    whole.sums = sums;
    part = whole;
    while (c->table->plan(c->lib, &part, &k->plan, &bytes, why, 1024) == ZT_OK) {
        int64_t heads = part.batch * part.kv_heads;
        double most = (double)heads * (double)ZT_SDPA_WORKSPACE / (double)bytes;

        if (bytes <= ZT_SDPA_WORKSPACE) {
            k->batch_step = part.batch;
            k->head_step = part.kv_heads;
            return true;
        }
        c->table->plan_close(k->plan);
        k->plan = NULL;
        if (heads == 1) {
            snprintf(why, 1024, "it needs a workspace of %zu MiB, there are %zu",
                     bytes >> 20, ZT_SDPA_WORKSPACE >> 20);
            return false;
        }
        part = fit_to_workspace(&whole, most < 1 ? 1 : zt_min((int64_t)most, heads - 1));
    }
    return false;
}

/* The fastest way of those that keep what the problem asks for. */
static void make_plan(struct zt_cuda_sdpa *c, struct cached_plan *k)
{
    char why[1024] = "", other[1024] = "";

    if (k->p.sums == ZT_SDPA_AS_THEY_COME &&
        plan_parts(c, k, ZT_SDPA_AS_THEY_COME, other))
        return;
    if (plan_parts(c, k, ZT_SDPA_STORED, why) ||
        (k->p.backward && plan_parts(c, k, ZT_SDPA_IN_ORDER, other)))
        return;
    warn_once(c, &k->p, why);
}

/* NULL: more problems than the table holds. */
static const struct cached_plan *find(struct zt_cuda_sdpa *c,
                                      const struct zt_sdpa_problem *p)
{
    struct cached_plan *k;

    for (int i = 0; i < c->num; i++)
        if (memcmp(&c->cached[i].p, p, sizeof(*p)) == 0)
            return &c->cached[i];
    if (c->num == MAX_PLANS)
        return NULL;
    k = &c->cached[c->num++];
    k->p = *p;
    make_plan(c, k);
    return k;
}

/* ---- running ---- */

static void *moved(const void *p, const struct zt_sdpa_strides *s, int64_t batch,
                   int64_t head)
{
    /* elements of 2 bytes */
    return p ? (char *)p + 2 * (batch * s->batch + head * s->head) : NULL;
}

/* Where the part from `batch` and K head `kv` on begins. */
static struct zt_sdpa_data part_of(const struct zt_sdpa_problem *p,
                                   const struct zt_sdpa_data *d, int64_t batch,
                                   int64_t kv)
{
    int64_t head = p->heads / p->kv_heads * kv;
    struct zt_sdpa_data part = *d;

    part.q = moved(d->q, &p->q, batch, head);
    part.k = moved(d->k, &p->k, batch, kv);
    part.v = moved(d->v, &p->v, batch, kv);
    part.out = moved(d->out, &p->out, batch, head);
    part.lse = d->lse + (batch * p->heads + head) * p->tq;
    part.dout = moved(d->dout, &p->dout, batch, head);
    part.dq = moved(d->dq, &p->dq, batch, head);
    part.dk = moved(d->dk, &p->dk, batch, kv);
    part.dv = moved(d->dv, &p->dv, batch, kv);
    return part;
}

/* *done: it is queued; else the own kernels must. */
static zt_err serve(struct zt_device *dev, const struct zt_sdpa_problem *p,
                    const struct zt_sdpa_data *d, bool *done, struct zt_fault *fault)
{
    struct zt_cuda_sdpa *c = dev->sdpa;
    const struct cached_plan *k = find(c, p);
    char why[1024] = "";

    if (!k || !k->plan)
        return ZT_OK;
    for (int64_t b = 0; b < p->batch; b += k->batch_step)
        for (int64_t h = 0; h < p->kv_heads; h += k->head_step) {
            struct zt_sdpa_data part = part_of(p, d, b, h);
            zt_err rc = c->table->run(c->lib, k->plan, dev->main.cuda, &part,
                                      c->workspace, why, sizeof(why));

            if (rc != ZT_OK)
                return zt_fault_set(fault, rc, "cuda: attention%s: %s: %s",
                                    p->backward ? "_bwd" : "", c->table->name, why);
        }
    *done = true;
    return ZT_OK;
}

zt_err zt_cuda_sdpa_forward(struct zt_device *dev, struct zt_stream *s,
                            const struct zt_attention_args *a, bool *done,
                            struct zt_fault *fault)
{
    struct zt_sdpa_problem p;
    struct zt_sdpa_data d;

    *done = false;
    if (!dev->sdpa || zt_cuda_stream(dev, s) != &dev->main || !problem_of(a, &p))
        return ZT_OK;
    memset(&d, 0, sizeof(d));
    d.q = a->q.data;
    d.k = a->k.data;
    d.v = a->v.data;
    d.out = a->out.data;
    d.lse = static_cast<float *>(a->lse.data ? a->lse.data : zt_cuda_scratch(dev, s));
    d.scale = a->scale;
    if (!a->lse.data && p.batch * p.heads * p.tq > (int64_t)(ZT_CUDA_SCRATCH / 4))
        return ZT_OK;
    return serve(dev, &p, &d, done, fault);
}

zt_err zt_cuda_sdpa_backward(struct zt_device *dev, struct zt_stream *s,
                             const struct zt_attention_bwd_args *a, bool *done,
                             struct zt_fault *fault)
{
    struct zt_sdpa_problem p;
    struct zt_sdpa_data d;

    *done = false;
    if (!dev->sdpa || zt_cuda_stream(dev, s) != &dev->main || !problem_of_bwd(a, &p))
        return ZT_OK;
    memset(&d, 0, sizeof(d));
    d.q = a->fwd.q.data;
    d.k = a->fwd.k.data;
    d.v = a->fwd.v.data;
    d.out = a->fwd.out.data;
    d.lse = static_cast<float *>(a->fwd.lse.data);
    d.dout = a->dout.data;
    d.dq = a->dq.data;
    d.dk = a->dk.data;
    d.dv = a->dv.data;
    d.scale = a->fwd.scale;
    return serve(dev, &p, &d, done, fault);
}
