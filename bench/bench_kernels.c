/*
 * bench_kernels -- what each memory-bound kernel moves, beside a triad in the same run.
 *
 *      bench_kernels [threads]
 *
 * Shapes are those of GPT-2 124M with 8 x 1024 tokens in bf16. A line shows the bytes
 * that the kernel must at least read and write, the median time, GB/s, and that rate as a
 * share of the triad's (a[i] = b[i] + s * c[i] on fp32, 4 bytes per access, no write
 * allocation counted). The triad is measured before and after each kernel, so that a
 * noisy neighbour slows both.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/times.h"
#include "common/log.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"

#define TOKENS  8192
#define WIDTH   768
#define VOCAB   50257
#define CE_ROWS 1024
#define PARAMS  ((int64_t)16 << 20)
#define REPEATS 9

/* ---- the triad ---- */

struct triad {
    float *a, *b, *c;
};

ZT_SIMD static void triad_part(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct triad *t = ctx;
    float *restrict a = t->a;
    const float *restrict b = t->b, *restrict c = t->c;

    (void)thread;
    for (int64_t i = begin; i < end; i++)
        a[i] = b[i] + 3.0f * c[i];
}

/* ---- memory ---- */

static struct zt_device *dev;
static struct triad triad;

static void must(zt_err rc, const struct zt_fault *fault)
{
    if (rc == ZT_OK)
        return;
    fprintf(stderr, "bench_kernels: %s\n", fault->text);
    exit(1);
}

/* Random values; the process ends with them. */
static struct zt_view tensor(zt_dtype dtype, int64_t rows, int64_t cols)
{
    struct zt_view v =
        zt_view_of(NULL, dtype, rows ? 2 : 1, &(int64_t[]){rows, cols}[!rows]);
    struct zt_fault fault;
    void *p;

    must(zt_cpu_backend.alloc(dev, (size_t)zt_view_numel(&v) * zt_dtype_bytes(dtype), &p,
                              &fault),
         &fault);
    v.data = p;
    if (dtype == ZT_I32) {
        for (int64_t i = 0; i < zt_view_numel(&v); i++)
            ((int32_t *)p)[i] = (int32_t)((uint64_t)i * 2654435761u % VOCAB);
        return v;
    }
    struct zt_random_args a = {v, {7, (uint64_t)(uintptr_t)p, 0}, true, 0, 1};
    must(zt_cpu_kernels.random(dev, NULL, &a, &fault), &fault);
    return v;
}

/* ---- one line ---- */

/* call_<name>: the kernel with its arguments behind a plain pointer */
typedef zt_err (*kernel_fn)(const void *args, struct zt_fault *fault);
#define CALL(name, args_type)                                                            \
    __attribute__((unused)) static zt_err call_##name(const void *args,                  \
                                                      struct zt_fault *fault)            \
    {                                                                                    \
        return zt_cpu_kernels.name(dev, NULL, (const args_type *)args, fault);           \
    }
ZT_KERNELS(CALL)
#undef CALL

static void line(const char *name, kernel_fn run, const void *args, double bytes)
{
    double took[REPEATS], base[REPEATS], t, rate, ceiling;
    struct zt_fault fault;

    must(run(args, &fault), &fault); /* warm */
    for (int i = 0; i < REPEATS; i++) {
        t = zt_now();
        zt_parallel_for(PARAMS, 8192, triad_part, &triad);
        base[i] = zt_now() - t;
        t = zt_now();
        must(run(args, &fault), &fault);
        took[i] = zt_now() - t;
    }
    t = median_of(took, REPEATS);
    rate = bytes / t * 1e-9;
    ceiling = 12.0 * (double)PARAMS / median_of(base, REPEATS) * 1e-9;
    printf("%-18s %9.1f MB %9.3f ms %8.2f GB/s %6.0f%% of triad (%.1f GB/s)\n", name,
           bytes * 1e-6, t * 1e3, rate, 100 * rate / ceiling, ceiling);
}

#define LINE(name, args, bytes) line(#name, call_##name, &(args), (double)(bytes))

static void bench_rows(void)
{
    const double act = 2.0 * TOKENS * WIDTH, ff = 4 * act; /* bytes of one activation */
    struct zt_view x = tensor(ZT_BF16, TOKENS, WIDTH), y = tensor(ZT_BF16, TOKENS, WIDTH),
                   z = tensor(ZT_BF16, TOKENS, WIDTH), w = tensor(ZT_BF16, 0, WIDTH),
                   dw = tensor(ZT_F32, 0, WIDTH), db = tensor(ZT_F32, 0, WIDTH),
                   mean = tensor(ZT_F32, 0, TOKENS), rstd = tensor(ZT_F32, 0, TOKENS),
                   ids = tensor(ZT_I32, 0, TOKENS),
                   h = tensor(ZT_BF16, TOKENS, 4 * WIDTH),
                   h2 = tensor(ZT_BF16, TOKENS, 4 * WIDTH),
                   h3 = tensor(ZT_BF16, TOKENS, 4 * WIDTH),
                   bias = tensor(ZT_BF16, 0, 4 * WIDTH),
                   dbias = tensor(ZT_F32, 0, 4 * WIDTH),
                   total = tensor(ZT_BF16, TOKENS, WIDTH);
    struct zt_layernorm_args ln = {
        .x = x, .w = w, .b = w, .y = y, .mean = mean, .rstd = rstd, .eps = 1e-5f};
    struct zt_layernorm_bwd_args lnb = {z,  x,  w,    mean,  rstd, y,
                                        dw, db, true, false, false};
    struct zt_rmsnorm_args rms = {.x = x, .w = w, .y = y, .rstd = rstd, .eps = 1e-5f};
    struct zt_rmsnorm_bwd_args rmsb = {z, x, w, rstd, y, dw, false, false, false};
    struct zt_layernorm_args add_ln = ln;
    struct zt_rmsnorm_args add_rms = rms;
    struct zt_unary_args gelu = {ZT_U_GELU_TANH, h, h2};
    struct zt_unary_bwd_args gelub = {ZT_U_GELU_TANH, h, h2, h3, false};
    struct zt_glu_args glu = {ZT_U_SILU, h, h2, h3};
    struct zt_binary_args add = {ZT_B_ADD, x, z, y, false};
    struct zt_binary_args add_bias = {ZT_B_ADD, h, bias, h2, false};
    struct zt_colsum_args sum = {.x = h, .y = dbias, .accumulate = true};
    struct zt_axpby_args copy = {x, y, 1, 0};
    struct zt_dropout_args drop = {x, y, 0.1f, {1, 2, 3}, false};
    struct zt_random_args rnd = {x, {1, 2, 3}, true, 0, 1};

    add_ln.add = add_rms.add = z;
    add_ln.sum = add_rms.sum = total;
    LINE(layernorm, ln, 2 * act);
    line("add, layernorm", call_layernorm, &add_ln, 4 * act);
    LINE(layernorm_bwd, lnb, 4 * act);
    LINE(rmsnorm, rms, 2 * act);
    line("add, rmsnorm", call_rmsnorm, &add_rms, 4 * act);
    LINE(rmsnorm_bwd, rmsb, 3 * act);
    LINE(unary, gelu, 2 * ff);
    LINE(unary_bwd, gelub, 3 * ff);
    gelu.kind = gelub.kind = ZT_U_GELU_ERF;
    LINE(unary, gelu, 2 * ff);
    LINE(unary_bwd, gelub, 3 * ff);
    LINE(glu, glu, 3 * ff);
    LINE(binary, add, 3 * act);
    LINE(binary, add_bias, 2 * ff);
    LINE(colsum, sum, ff);
    LINE(axpby, copy, 2 * act);
    LINE(dropout, drop, 2 * act);
    LINE(random, rnd, act);
    struct zt_embedding_args emb = {ids, tensor(ZT_BF16, VOCAB, WIDTH), y};
    struct zt_embedding_bwd_args embb = {ids, y, tensor(ZT_F32, VOCAB, WIDTH)};
    LINE(embedding, emb, 2 * act);
    LINE(embedding_bwd, embb, 5 * act);
}

static void bench_losses(void)
{
    const double bytes = 2.0 * CE_ROWS * VOCAB;
    struct zt_view x = tensor(ZT_BF16, CE_ROWS, VOCAB),
                   dx = tensor(ZT_BF16, CE_ROWS, VOCAB),
                   target = tensor(ZT_I32, 0, CE_ROWS), lse = tensor(ZT_F32, 0, CE_ROWS),
                   one = tensor(ZT_F32, 0, 1);
    struct zt_cross_entropy_args ce = {
        .logits = x, .targets = target, .loss = one, .lse = lse, .ignore = -100};
    struct zt_cross_entropy_bwd_args ceb = {.logits = x,
                                            .targets = target,
                                            .lse = lse,
                                            .dloss = one,
                                            .dlogits = dx,
                                            .ignore = -100};
    struct zt_softmax_args sm = {x, dx};

    LINE(cross_entropy, ce, bytes);
    LINE(cross_entropy_bwd, ceb, 2 * bytes);
    LINE(softmax, sm, 2 * bytes);
}

static void bench_optimizer(void)
{
    static const float scale = 0.5f;
    double sums[ZT_NORM_LANES];
    struct zt_adamw_args a = {.master = tensor(ZT_F32, 0, PARAMS),
                              .m = tensor(ZT_F32, 0, PARAMS),
                              .v = tensor(ZT_F32, 0, PARAMS),
                              .grad = tensor(ZT_F32, 0, PARAMS),
                              .grad_scale = &scale,
                              .lr = 1e-4f,
                              .lr_t = 1e-4f,
                              .vscale = 1,
                              .beta1 = 0.9f,
                              .beta2 = 0.999f,
                              .eps = 1e-8f,
                              .weight_decay = 0.1f,
                              .decoupled = true};
    struct zt_fill_args zero = {a.v, 0};
    struct zt_sumsq_args sq = {.x = a.grad, .sums = sums};
    struct zt_fault fault;

    LINE(fill, zero, 4 * PARAMS);
    LINE(sumsq, sq, 4 * PARAMS);
    LINE(adamw, a, 28 * PARAMS);
    a.param = tensor(ZT_BF16, 0, PARAMS);
    LINE(adamw, a, 30 * PARAMS);
    must(zt_cpu_kernels.fill(dev, NULL, &zero, &fault), &fault);
    LINE(adamw, a, 34 * PARAMS);
}

int main(int argc, char **argv)
{
    struct zt_fault fault;

    must(zt_cpu_backend.open(0, argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0, &dev,
                             &fault),
         &fault);
    triad = (struct triad){tensor(ZT_F32, 0, PARAMS).data, tensor(ZT_F32, 0, PARAMS).data,
                           tensor(ZT_F32, 0, PARAMS).data};
    printf("%s; %d x %d in bf16, logits %d x %d, %lld parameters; medians of %d\n",
           zt_cpu_describe(), TOKENS, WIDTH, CE_ROWS, VOCAB, (long long)PARAMS, REPEATS);
    bench_rows();
    bench_losses();
    bench_optimizer();
    zt_cpu_backend.close(dev);
    return 0;
}
