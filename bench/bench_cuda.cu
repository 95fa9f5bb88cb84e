/*
 * bench_cuda -- what each kernel of the cuda backend reaches on this device, beside the
 * device's own limits in the same run.
 *
 *      bench_cuda [limits | products]   exit code 1: a kernel failed; 69: no device
 *      limits: those of the device alone; products: matrix products and attention
 *
 * Shapes are those of GPT-2 124M with 16 x 1024 tokens in bf16, and of products also those of
 * GPT-2 1558M and Qwen2.5-1.5B with 8 x 1024, as a step computes them: with what is fused, and
 * with an odd vocabulary padded; gradients of weights, master weights and moments are fp32. A time is the median of up to 30 runs between two
 * events, each after a write of 256 MiB, so that no operand lies in the L2. GB are bytes
 * that the kernel must at least read and write, GFLOP what the result must at least cost.
 * The limits: a copy of 1 GiB within the device, read and written, and the fastest
 * algorithm that cuBLASLt proposes for a product of 8192 cubed in bf16. Attention is
 * causal, and by cuDNN only when its object is found (kernels/cuda/attention/sdpa.h).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm/gated.h"

#define BATCH  16
#define SEQ    1024
#define TOKENS ((int64_t)BATCH * SEQ)
#define WIDTH  768
#define INNER  (4 * WIDTH)
#define HEADS  12
#define HEAD   (WIDTH / HEADS)
#define VOCAB  50257
#define SPACED 50304 /* from a row of logits to the next, and what products run over */
#define PARAMS ((int64_t)124439808)
#ifndef SQUARE /* a test on the shim takes small ones */
#define SQUARE 8192
#define COPY   ((size_t)1 << 30)
#define ARENA  ((size_t)6 << 30)
#define FLUSH  ((size_t)256 << 20)
#endif
#define WARM_UP 3
#define RUNS    30
#define FEW     5 /* of what takes longer than SLOW */
#define SLOW_MS 100.0f

static struct zt_device *dev;
static char *arena, *flush;
static size_t used;
static cudaEvent_t begun[RUNS], ended[RUNS];
static struct zt_fault fault;
static double copy_gbs, gemm_tflops; /* the limits */
static int failed;

static void must(bool ok)
{
    if (ok)
        return;
    fprintf(stderr, "bench_cuda: %s: %s\n", fault.text,
            cudaGetErrorString(cudaGetLastError()));
    exit(1);
}

/* ---- operands: carved from one region, which each case begins anew ---- */

static struct zt_view carve(zt_dtype dtype, std::initializer_list<int64_t> shape)
{
    struct zt_view v = zt_view_of(NULL, dtype, (int)shape.size(), shape.begin());

    v.data = arena + used;
    used += ((size_t)zt_view_numel(&v) * zt_dtype_bytes(dtype) + 511) / 512 * 512;
    if (used > ARENA)
        snprintf(fault.text, sizeof(fault.text), "operands of %zu bytes", used);
    must(used <= ARENA);
    return v;
}

/* Normal numbers: products of zeros would draw less power and run faster. */
static struct zt_view tensor(zt_dtype dtype, std::initializer_list<int64_t> shape,
                             float deviation = 1)
{
    struct zt_view v = carve(dtype, shape);
    struct zt_random_args a = {v, {1, used, 0}, true, 0, deviation};

    must(zt_cuda_random(dev, NULL, &a, &fault) == ZT_OK);
    return v;
}

static struct zt_view bf16(std::initializer_list<int64_t> shape)
{
    return tensor(ZT_BF16, shape);
}

static struct zt_view fp32(std::initializer_list<int64_t> shape)
{
    return tensor(ZT_F32, shape);
}

static struct zt_view transposed(struct zt_view v)
{
    std::swap(v.shape[0], v.shape[1]);
    std::swap(v.stride[0], v.stride[1]);
    return v;
}

static struct zt_view upload(const std::vector<int32_t> &x)
{
    struct zt_view v = carve(ZT_I32, {(int64_t)x.size()});

    must(zt_cuda_backend.upload(dev, NULL, v.data, x.data(), x.size() * 4, &fault) ==
             ZT_OK &&
         zt_cuda_backend.sync(dev, NULL, &fault) == ZT_OK);
    return v;
}

/* As many as there are tokens, below `limit`; *distinct: how many different ones. */
static struct zt_view ids(int32_t limit, int64_t *distinct)
{
    std::vector<int32_t> x((size_t)TOKENS);
    std::vector<bool> seen((size_t)limit);
    uint64_t state = 7;

    *distinct = 0;
    for (int32_t &id : x) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        id = (int32_t)((state >> 33) % (uint64_t)limit);
        *distinct += !seen[(size_t)id];
        seen[(size_t)id] = true;
    }
    return upload(x);
}

static double bytes(std::initializer_list<const struct zt_view *> all)
{
    double sum = 0;

    for (const struct zt_view *v : all)
        sum += (double)zt_view_numel(v) * (double)zt_dtype_bytes(v->dtype);
    return sum;
}

/* ---- time ---- */

struct times {
    float median, least; /* ms */
};

/* f queues work on the main stream and says whether it could. */
template <typename F> static bool measure(int runs, F f, struct times *out)
{
    cudaStream_t s = dev->main.cuda;
    std::vector<float> ms((size_t)runs);

    for (int i = 0; i < runs; i++)
        if (cudaMemsetAsync(flush, i, FLUSH, s) != cudaSuccess ||
            cudaEventRecord(begun[i], s) != cudaSuccess || !f() ||
            cudaEventRecord(ended[i], s) != cudaSuccess)
            return false;
    if (zt_cuda_backend.sync(dev, NULL, &fault) != ZT_OK)
        return false;
    for (int i = 0; i < runs; i++)
        if (cudaEventElapsedTime(&ms[(size_t)i], begun[i], ended[i]) != cudaSuccess)
            return false;
    std::sort(ms.begin(), ms.end());
    *out = {ms[(size_t)runs / 2], ms[0]};
    return true;
}

template <typename F> static bool timed(F f, struct times *out)
{
    if (!measure(WARM_UP, f, out))
        return false;
    return measure(out->median > SLOW_MS ? FEW : RUNS, f, out);
}

/* ---- the limits ---- */

static double measure_copy(void)
{
    struct times t;

    must(timed(
        [] {
            return cudaMemcpyAsync(arena + COPY, arena, COPY, cudaMemcpyDeviceToDevice,
                                   dev->main.cuda) == cudaSuccess;
        },
        &t));
    return 2e-6 * (double)COPY / (double)t.median;
}

struct product {
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t square;
    cublasLtMatmulPreference_t want;
    cublasLtMatmulHeuristicResult_t found[8];
    int num;
};

static bool product_open(struct product *p)
{
    const cublasOperation_t transpose = CUBLAS_OP_T;
    const size_t most = ZT_CUDA_WORKSPACE;
    const auto ok = CUBLAS_STATUS_SUCCESS;

    return cublasLtMatmulDescCreate(&p->op, CUBLAS_COMPUTE_32F, CUDA_R_32F) == ok &&
           cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                          sizeof(transpose)) == ok &&
           cublasLtMatrixLayoutCreate(&p->square, CUDA_R_16BF, SQUARE, SQUARE, SQUARE) ==
               ok &&
           cublasLtMatmulPreferenceCreate(&p->want) == ok &&
           cublasLtMatmulPreferenceSetAttribute(p->want,
                                                CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                &most, sizeof(most)) == ok &&
           cublasLtMatmulAlgoGetHeuristic(dev->blas, p->op, p->square, p->square,
                                          p->square, p->square, p->want, 8, p->found,
                                          &p->num) == ok &&
           p->num > 0;
}

static void product_close(struct product *p)
{
    cublasLtMatmulPreferenceDestroy(p->want);
    cublasLtMatrixLayoutDestroy(p->square);
    cublasLtMatmulDescDestroy(p->op);
}

static double measure_gemm(void)
{
    struct product p = {};
    const float one = 1, zero = 0;
    float best = 0;

    used = 0;
    struct zt_view a = bf16({SQUARE, SQUARE}), b = bf16({SQUARE, SQUARE}),
                   c = carve(ZT_BF16, {SQUARE, SQUARE});
    snprintf(fault.text, sizeof(fault.text), "cuBLASLt has no product of %d cubed",
             SQUARE);
    must(product_open(&p));
    for (int i = 0; i < p.num; i++) {
        struct times t;
        bool ran = timed(
            [&] {
                return cublasLtMatmul(dev->blas, p.op, &one, a.data, p.square, b.data,
                                      p.square, &zero, c.data, p.square, c.data, p.square,
                                      &p.found[i].algo, dev->main.workspace,
                                      ZT_CUDA_WORKSPACE,
                                      dev->main.cuda) == CUBLAS_STATUS_SUCCESS;
            },
            &t);

        if (ran && (best == 0 || t.median < best))
            best = t.median;
    }
    product_close(&p);
    must(best > 0);
    return 2e-9 * SQUARE * SQUARE * SQUARE / (double)best;
}

static void limits(const char *when)
{
    double copy = measure_copy(), gemm = measure_gemm();

    printf("limits %-6s  copy %8.1f GB/s   bf16 product %8.1f TFLOP/s\n", when, copy,
           gemm);
    copy_gbs = copy;
    gemm_tflops = gemm;
}

/* ---- a row of the table ---- */

enum unit { GB, GFLOP };

template <typename F>
static void row(const char *kernel, const char *shape, enum unit unit, double work, F f)
{
    struct times t;
    double rate, limit = unit == GB ? copy_gbs : gemm_tflops * 1e3;

    memset(&fault, 0, sizeof(fault));
    if (!timed([&] { return f() == ZT_OK; }, &t)) {
        printf("%-18s %-28s FAILED: %s: %s\n", kernel, shape, fault.text,
               cudaGetErrorString(cudaGetLastError()));
        failed = 1;
        return;
    }
    rate = work * 1e-6 / (double)t.median; /* a second */
    printf("%-18s %-28s %9.3f %9.3f %9.3f %9.1f %-7s %10.1f\n", kernel, shape,
           (double)t.median, (double)t.least, work * 1e-9,
           unit == GB ? rate : rate * 1e-3, unit == GB ? "GB/s" : "TFLOP/s",
           100 * rate / limit);
    fflush(stdout);
}

#define ROW(name, shape, unit, work, args)                                               \
    row(#name, shape, unit, work, [&] { return zt_cuda_##name(dev, NULL, args, &fault); })

/* ---- products and attention ---- */

static struct zt_gemm_args product_of(struct zt_view a, struct zt_view b,
                                      struct zt_view c)
{
    struct zt_gemm_args g = {};

    g.a = a;
    g.b = b;
    g.c = c;
    g.alpha = 1;
    return g;
}

/* A linear op: the weight (in, out) as GPT-2 has it, or (out, in). */
struct linear {
    const char *name;
    int64_t in, out;
    bool in_out, bias;
    zt_epilogue epilogue;
};

/* y = x w + bias and its gradients: that of the bias beside that of w. */
static void measure_linear(const char *model, int64_t tokens, const struct linear &l)
{
    struct zt_view x = bf16({tokens, l.in}), y = bf16({tokens, l.out}),
                   stored = l.in_out ? bf16({l.in, l.out}) : bf16({l.out, l.in}),
                   w = l.in_out ? stored : transposed(stored),
                   dw = l.in_out ? fp32({l.in, l.out}) : fp32({l.out, l.in});
    double flop = 2.0 * (double)tokens * (double)l.in * (double)l.out;
    struct zt_gemm_args f = product_of(x, w, y), dx = product_of(y, transposed(w), x),
                        wg = l.in_out ? product_of(transposed(x), y, dw)
                                      : product_of(transposed(y), x, dw);
    char label[64];

    if (l.bias) {
        f.bias = bf16({l.out});
        *(l.in_out ? &wg.b_sum : &wg.a_sum) = fp32({l.out});
        wg.accumulate_sums = true;
    }
    f.epilogue = l.epilogue;
    if (l.epilogue != ZT_EPI_NONE)
        f.pre = bf16({tokens, l.out});
    wg.accumulate = true;
    snprintf(label, sizeof(label), "%s%s, y", model, l.name);
    ROW(gemm, label, GFLOP, flop, &f);
    snprintf(label, sizeof(label), "%s%s, dx", model, l.name);
    ROW(gemm, label, GFLOP, flop, &dx);
    snprintf(label, sizeof(label), "%s%s, dw +=", model, l.name);
    ROW(gemm, label, GFLOP, flop, &wg);
}

/* dx of a product that takes what a GELU made, on to what that was made of. */
static void behind_gelu(const char *model, int64_t tokens, int64_t in, int64_t out)
{
    struct zt_gemm_args g =
        product_of(bf16({tokens, out}), transposed(bf16({in, out})), bf16({tokens, in}));
    char label[64];

    g.pre = bf16({tokens, in});
    g.epilogue = ZT_EPI_GELU_TANH_BWD;
    snprintf(label, sizeof(label), "%s%lld to %lld, gelu's dx", model, (long long)in,
             (long long)out);
    ROW(gemm, label, GFLOP, 2.0 * (double)tokens * (double)in * (double)out, &g);
}

/* The same of a SwiGLU: by two kernels, and by the library if it is there. */
static void behind_swiglu(const char *model, int64_t tokens, int64_t in, int64_t out)
{
    struct zt_gemm_args g =
        product_of(bf16({tokens, out}), bf16({out, in}), bf16({tokens, in}));
    struct zt_cuda_sdpa *library = dev->sdpa;
    double flop = 2.0 * (double)tokens * (double)in * (double)out;
    char label[64];

    g.gate = bf16({tokens, in});
    g.up = bf16({tokens, in});
    g.dgate = bf16({tokens, in});
    g.epilogue = ZT_EPI_SWIGLU_BWD;
    dev->sdpa = NULL;
    snprintf(label, sizeof(label), "%sswiglu's dx, apart", model);
    ROW(gemm, label, GFLOP, flop, &g);
    dev->sdpa = library;
    snprintf(label, sizeof(label), "%sswiglu's dx, cuDNN", model);
    if (library)
        ROW(gemm, label, GFLOP, flop, &g);
}

/* Logits as training has them: rows of an odd vocabulary apart, products over `padded`. */
static void head(const char *model, int64_t tokens, int64_t in, int64_t words,
                 int64_t padded)
{
    struct zt_view x = bf16({tokens, in}), w = bf16({padded, in}),
                   y = bf16({tokens, padded}), dw = fp32({words, in}), dy = y;
    double flop = 2.0 * (double)tokens * (double)in * (double)words;
    char label[64];

    dy.shape[1] = words;
    struct zt_gemm_args f = product_of(x, transposed(w), y), dx = product_of(y, w, x),
                        wg = product_of(transposed(dy), x, dw);

    wg.accumulate = true;
    snprintf(label, sizeof(label), "%shead, y", model);
    ROW(gemm, label, GFLOP, flop, &f);
    snprintf(label, sizeof(label), "%shead, dx", model);
    ROW(gemm, label, GFLOP, flop, &dx);
    snprintf(label, sizeof(label), "%shead, dw +=", model);
    ROW(gemm, label, GFLOP, flop, &wg);
}

#define FEWER (TOKENS / 2) /* tokens of the larger models */

static void products(void)
{
    static const struct linear
        small[] = {{"768 to 2304", WIDTH, 3 * WIDTH, true, true, ZT_EPI_NONE},
                   {"768 to 768", WIDTH, WIDTH, true, true, ZT_EPI_NONE},
                   {"768 to 3072, gelu", WIDTH, INNER, true, true, ZT_EPI_GELU_TANH},
                   {"3072 to 768", INNER, WIDTH, true, true, ZT_EPI_NONE}},
        xl[] = {{"1600 to 4800", 1600, 4800, true, true, ZT_EPI_NONE},
                {"1600 to 1600", 1600, 1600, true, true, ZT_EPI_NONE},
                {"1600 to 6400, gelu", 1600, 6400, true, true, ZT_EPI_GELU_TANH},
                {"6400 to 1600", 6400, 1600, true, true, ZT_EPI_NONE}},
        qwen[] = {{"q, k, v", 1536, 2048, false, true, ZT_EPI_NONE},
                  {"q", 1536, 1536, false, true, ZT_EPI_NONE},
                  {"k, v", 1536, 256, false, true, ZT_EPI_NONE},
                  {"o", 1536, 1536, false, false, ZT_EPI_NONE},
                  {"gate, up", 1536, 8960, false, false, ZT_EPI_NONE},
                  {"down", 8960, 1536, false, false, ZT_EPI_NONE}};

    for (const auto &l : small) {
        used = 0;
        measure_linear("", TOKENS, l);
    }
    used = 0;
    behind_gelu("", TOKENS, INNER, WIDTH);
    for (const auto &l : xl) {
        used = 0;
        measure_linear("XL ", FEWER, l);
    }
    used = 0;
    behind_gelu("XL ", FEWER, 6400, 1600);
    for (const auto &l : qwen) {
        used = 0;
        measure_linear("Qwen ", FEWER, l);
    }
    used = 0;
    behind_swiglu("Qwen ", FEWER, 8960, 1536);
}

static void heads(void)
{
    head("", TOKENS, WIDTH, VOCAB, SPACED);
    used = 0;
    head("unpadded ", TOKENS, WIDTH, VOCAB, VOCAB);
    used = 0;
    head("XL ", FEWER, 1600, VOCAB, SPACED);
    used = 0;
    head("Qwen ", FEWER, 1536, 151936, 151936);
}

/* Heads [from, from + num) of (B, T, heads, D). */
static struct zt_view heads_of(struct zt_view v, int64_t from, int64_t num)
{
    v.data = (char *)v.data + from * v.stride[2] * 2;
    v.shape[2] = num;
    return v;
}

struct attention_shape {
    const char *name;
    int64_t batch, seq, heads, kv_heads, head;
};

static void attention_of(const struct attention_shape &n, const char *by)
{
    int64_t all = n.heads + 2 * n.kv_heads;
    struct zt_view qkv = bf16({n.batch, n.seq, all, n.head}),
                   d = bf16({n.batch, n.seq, all, n.head});
    struct zt_attention_bwd_args a = {};
    /* causal: half of it */
    double product = (double)(n.batch * n.heads * n.head) * (double)(n.seq * n.seq);
    char label[64];

    a.fwd.q = heads_of(qkv, 0, n.heads);
    a.fwd.k = heads_of(qkv, n.heads, n.kv_heads);
    a.fwd.v = heads_of(qkv, n.heads + n.kv_heads, n.kv_heads);
    a.fwd.out = bf16({n.batch, n.seq, n.heads, n.head});
    a.fwd.lse = fp32({n.batch, n.heads, n.seq});
    a.fwd.scale = 0.125f;
    a.fwd.causal = true;
    a.dout = bf16({n.batch, n.seq, n.heads, n.head});
    a.dq = heads_of(d, 0, n.heads);
    a.dk = heads_of(d, n.heads, n.kv_heads);
    a.dv = heads_of(d, n.heads + n.kv_heads, n.kv_heads);
    snprintf(label, sizeof(label), "%s, %s", n.name, by);
    ROW(attention, label, GFLOP, 2 * product, &a.fwd);
    ROW(attention_bwd, label, GFLOP, 5 * product, &a);
    if (!dev->sdpa)
        return;
    a.any_order = true;
    snprintf(label, sizeof(label), "%s, any order", n.name);
    ROW(attention_bwd, label, GFLOP, 5 * product, &a);
}

/* By the own kernels, and by the library of kernels/cuda/attention/sdpa.h if it is there. */
static void attention(void)
{
    static const struct attention_shape shapes[] = {
        {"16 x 1024, 12 x 64", BATCH, SEQ, HEADS, HEADS, HEAD},
        {"8 x 1024, 25 x 64", 8, SEQ, 25, 25, 64},
        {"8 x 1024, 12/2 x 128", 8, SEQ, 12, 2, 128},
        {"8 x 2048, 16 x 128", 8, 2048, 16, 16, 128},
        {"2 x 8192, 32/8 x 128", 2, 8192, 32, 8, 128}};
    struct zt_cuda_sdpa *library = dev->sdpa;

    for (const auto &n : shapes) {
        used = 0;
        dev->sdpa = NULL;
        attention_of(n, "own");
        dev->sdpa = library;
        used = 0;
        if (library)
            attention_of(n, "cuDNN");
    }
}

/* ---- norms ---- */

static void norms(void)
{
    struct zt_view x = bf16({TOKENS, WIDTH}), y = bf16({TOKENS, WIDTH}),
                   dy = bf16({TOKENS, WIDTH}), dx = bf16({TOKENS, WIDTH}),
                   sum = bf16({TOKENS, WIDTH});
    struct zt_view w = bf16({WIDTH}), b = bf16({WIDTH}), dw = fp32({WIDTH}),
                   db = fp32({WIDTH}), mean = fp32({TOKENS}), rstd = fp32({TOKENS});
    struct zt_layernorm_args f = {x, w, b, y, mean, rstd, 1e-5f, {}, {}};
    struct zt_layernorm_args fsum = {x, w, b, y, mean, rstd, 1e-5f, dy, sum};
    struct zt_layernorm_bwd_args g = {dy, x,  w,     mean,  rstd, dx,
                                      dw, db, false, false, false};
    struct zt_rmsnorm_args rf = {x, w, y, rstd, 1e-5f, false, {}, {}};
    struct zt_rmsnorm_args rfsum = {x, w, y, rstd, 1e-5f, false, dy, sum};
    struct zt_rmsnorm_bwd_args rg = {dy, x, w, rstd, dx, dw, false, false, false};
    const char *shape = "16384 x 768", *added = "16384 x 768, of x + add";

    ROW(layernorm, shape, GB, bytes({&x, &y, &mean, &rstd}), &f);
    ROW(layernorm, added, GB, bytes({&x, &dy, &sum, &y, &mean, &rstd}), &fsum);
    ROW(layernorm_bwd, shape, GB, bytes({&dy, &x, &dx, &mean, &rstd}), &g);
    ROW(rmsnorm, shape, GB, bytes({&x, &y, &rstd}), &rf);
    ROW(rmsnorm, added, GB, bytes({&x, &dy, &sum, &y, &rstd}), &rfsum);
    ROW(rmsnorm_bwd, shape, GB, bytes({&dy, &x, &dx, &rstd}), &rg);
}

/* ---- lookups and positions ---- */

static void lookups(void)
{
    int64_t distinct;
    struct zt_view id = ids(VOCAB, &distinct), table = bf16({VOCAB, WIDTH}),
                   y = bf16({TOKENS, WIDTH}), dtable = fp32({VOCAB, WIDTH});
    double rows = (double)distinct * WIDTH;
    struct zt_embedding_args f = {id, table, y};
    struct zt_embedding_bwd_args b = {id, y, dtable};

    ROW(embedding, "16384 of 50257 x 768", GB, bytes({&id, &y}) + 2 * rows, &f);
    ROW(embedding_bwd, "16384 of 50257 x 768", GB, bytes({&id, &y}) + 8 * rows, &b);
}

static void rope(void)
{
    std::vector<int32_t> at(SEQ);

    for (int32_t i = 0; i < SEQ; i++)
        at[(size_t)i] = i;
    struct zt_view x = bf16({BATCH, SEQ, HEADS, HEAD}),
                   y = bf16({BATCH, SEQ, HEADS, HEAD}), pos = upload(at),
                   cos = fp32({SEQ, HEAD / 2}), sin = fp32({SEQ, HEAD / 2});
    struct zt_rope_args a = {x, y, pos, cos, sin, HEAD, false, false, false};

    ROW(rope, "16 x 1024, 12 x 64", GB, bytes({&x, &y}), &a);
}

/* ---- elements ---- */

static void activations(void)
{
    struct zt_view x = bf16({TOKENS, INNER}), y = bf16({TOKENS, INNER}),
                   dy = bf16({TOKENS, INNER}), dx = bf16({TOKENS, INNER}),
                   dup = bf16({TOKENS, INNER});
    struct zt_unary_args f = {ZT_U_GELU_TANH, x, y};
    struct zt_unary_bwd_args b = {ZT_U_GELU_TANH, dy, x, dx, false};
    struct zt_glu_args gf = {ZT_U_SILU, x, dx, y};
    struct zt_glu_bwd_args gb = {ZT_U_SILU, dy, x, y, dx, dup, false, false};

    ROW(unary, "gelu, 16384 x 3072", GB, bytes({&x, &y}), &f);
    ROW(unary_bwd, "gelu, 16384 x 3072", GB, bytes({&dy, &x, &dx}), &b);
    ROW(glu, "silu, 16384 x 3072", GB, bytes({&x, &dx, &y}), &gf);
    ROW(glu_bwd, "silu, 16384 x 3072", GB, bytes({&dy, &x, &y, &dx, &dup}), &gb);
}

static void elements(void)
{
    struct zt_view x = bf16({TOKENS, WIDTH}), z = bf16({TOKENS, WIDTH}),
                   y = bf16({TOKENS, WIDTH}), wide = bf16({TOKENS, 3 * WIDTH}),
                   sum = fp32({3 * WIDTH}), none = {};
    struct zt_binary_args add = {ZT_B_ADD, x, z, y, false};
    struct zt_dropout_args drop = {x, y, 0.1f, {1, 2, 0}, false};
    struct zt_colsum_args columns = {wide, none, sum, true};

    ROW(binary, "add, 16384 x 768", GB, bytes({&x, &z, &y}), &add);
    ROW(dropout, "16384 x 768", GB, bytes({&x, &y}), &drop);
    ROW(colsum, "16384 x 2304", GB, bytes({&wide, &sum, &sum}), &columns);
}

static void whole_model(void)
{
    struct zt_view x = fp32({PARAMS}), y = carve(ZT_BF16, {PARAMS}),
                   z = carve(ZT_F32, {PARAMS});
    struct zt_axpby_args round = {x, y, 1, 0};
    struct zt_fill_args fill = {z, 0};
    struct zt_random_args normal = {z, {1, 2, 0}, true, 0, 0.02f};
    struct zt_sumsq_args sumsq = {x, (double *)carve(ZT_I64, {ZT_NORM_LANES}).data, 0,
                                  false};

    ROW(axpby, "fp32 to bf16, 124M", GB, bytes({&x, &y}), &round);
    ROW(fill, "fp32, 124M", GB, bytes({&z}), &fill);
    ROW(random, "fp32 normal, 124M", GB, bytes({&z}), &normal);
    ROW(sumsq, "fp32, 124M", GB, bytes({&x}), &sumsq);
}

static void adamw(void)
{
    struct zt_adamw_args a = {};
    struct zt_fill_args one = {carve(ZT_F32, {1}), 1};

    a.master = tensor(ZT_F32, {PARAMS}, 0.02f);
    a.m = carve(ZT_F32, {PARAMS});
    a.v = carve(ZT_F32, {PARAMS});
    a.grad = tensor(ZT_F32, {PARAMS}, 1e-3f);
    a.param = carve(ZT_BF16, {PARAMS});
    struct zt_fill_args m = {a.m, 0}, v = {a.v, 0};
    must(zt_cuda_fill(dev, NULL, &one, &fault) == ZT_OK &&
         zt_cuda_fill(dev, NULL, &m, &fault) == ZT_OK &&
         zt_cuda_fill(dev, NULL, &v, &fault) == ZT_OK);
    a.grad_scale = (const float *)one.y.data;
    a.lr = a.lr_t = 1e-4f;
    a.vscale = 1;
    a.beta1 = 0.9f;
    a.beta2 = 0.999f;
    a.eps = 1e-8f;
    a.weight_decay = 0.1f;
    a.decoupled = true;
    ROW(adamw, "124M, bf16 weights out", GB, 30.0 * (double)PARAMS, &a);
}

/* ---- rows of classes ---- */

static void softmax(void)
{
    struct zt_view x = bf16({TOKENS, SEQ}), y = bf16({TOKENS, SEQ}),
                   dx = bf16({TOKENS, SEQ});
    struct zt_softmax_args f = {x, y};
    struct zt_softmax_bwd_args b = {x, y, dx, false};

    ROW(softmax, "16384 x 1024", GB, bytes({&x, &y}), &f);
    ROW(softmax_bwd, "16384 x 1024", GB, bytes({&x, &y, &dx}), &b);
}

static void losses(void)
{
    int64_t distinct;
    struct zt_view target = ids(VOCAB, &distinct), x = bf16({TOKENS, SPACED}),
                   loss = fp32({1}), lse = fp32({TOKENS}), dloss = fp32({1});
    struct zt_view p = bf16({TOKENS, WIDTH}), q = bf16({TOKENS, WIDTH}),
                   dp = bf16({TOKENS, WIDTH}), dq = bf16({TOKENS, WIDTH});

    loss.ndim = dloss.ndim = 0;
    x.shape[1] = VOCAB;
    struct zt_cross_entropy_args f = {x, target, loss, lse, -100, 0, {}, 0, false},
                                 fb = f;
    struct zt_cross_entropy_bwd_args b = {x,    target, lse,  dloss, x,
                                          -100, false,  0.0f, 0.0f,  true};
    struct zt_squared_error_args sf = {p, q, loss};
    struct zt_squared_error_bwd_args sb = {p, q, dloss, dp, dq, false, false};

    fb.dlogits = x;
    fb.dloss = 1e-4f;
    fb.clear_between = true;
    ROW(cross_entropy, "16384 x 50257", GB, bytes({&x}), &f);
    ROW(cross_entropy, "16384 x 50257, gradient", GB, bytes({&x, &x}), &fb);
    ROW(cross_entropy_bwd, "16384 x 50257, in place", GB, bytes({&x, &x}), &b);
    ROW(squared_error, "16384 x 768", GB, bytes({&p, &q}), &sf);
    ROW(squared_error_bwd, "16384 x 768", GB, bytes({&p, &q, &dp, &dq}), &sb);
}

/* ---- all of it ---- */

static void open_all(void)
{
    struct cudaDeviceProp is;
    zt_err rc = zt_cuda_backend.open(0, 1, &dev, &fault);
    void *p = NULL, *q = NULL;
    int driver = 0, runtime = 0;

    if (rc != ZT_OK) {
        fprintf(stderr, "bench_cuda: %s\n", fault.text);
        exit(rc == ZT_E_UNSUPPORTED ? 69 : 1);
    }
    must(cudaGetDeviceProperties(&is, 0) == cudaSuccess &&
         cudaDriverGetVersion(&driver) == cudaSuccess &&
         cudaRuntimeGetVersion(&runtime) == cudaSuccess);
    printf("%s, compute capability %d.%d, %d SMs, %.0f GiB; driver for CUDA %d.%d, "
           "runtime %d.%d, cuBLASLt %zu, %s\n",
           is.name, is.major, is.minor, is.multiProcessorCount,
           (double)is.totalGlobalMem / (1 << 30), driver / 1000, driver % 1000 / 10,
           runtime / 1000, runtime % 1000 / 10, cublasLtGetVersion(),
           dev->sdpa ? zt_cuda_gated_library(dev) : "no cuDNN");
    must(zt_cuda_backend.alloc(dev, ARENA, &p, &fault) == ZT_OK &&
         zt_cuda_backend.alloc(dev, FLUSH, &q, &fault) == ZT_OK);
    arena = (char *)p;
    flush = (char *)q;
    for (int i = 0; i < RUNS; i++)
        must(cudaEventCreate(&begun[i]) == cudaSuccess &&
             cudaEventCreate(&ended[i]) == cudaSuccess);
}

int main(int argc, char **argv)
{
    void (*const cases[])(void) = {products, heads,  attention,   norms,
                                   lookups,  rope,   activations, elements,
                                   softmax,  losses, whole_model, adamw};
    bool few = argc == 2 && strcmp(argv[1], "products") == 0;
    bool none = argc == 2 && strcmp(argv[1], "limits") == 0;
    int num = few ? 3 : (int)(sizeof(cases) / sizeof(cases[0]));

    if (argc > 1 && !few && !none) {
        fprintf(stderr, "usage: bench_cuda [limits | products]\n");
        return 64;
    }

    open_all();
    limits("before");
    if (none) {
        zt_cuda_backend.close(dev);
        return 0;
    }
    printf("\n%-18s %-28s %9s %9s %9s %9s %-7s %10s\n", "kernel", "operands", "ms",
           "least ms", "GB, GFLOP", "rate", "", "% of limit");
    for (int i = 0; i < num; i++) {
        used = 0;
        cases[i]();
    }
    printf("\n");
    limits("after");
    zt_cuda_backend.close(dev);
    return failed;
}
