/*
 * bench_gemm: the products of a GPT-2 124M step and of the layers of a Llama of 1B beside
 * the processor's own peak.
 *
 *      build/release/bench/bench_gemm [threads] [f32|bf16|f16|MODEL ...]
 *
 * forward  y = x w + b with w (in, out) or, of BERT and Qwen, (out, in);  head  logits = x e^T with e (V, C)
 * dgrad    dx = dy w^T                    wgrad dw += x^T dy in fp32
 * peak is a loop of fused multiply-adds (bf16: AMX tiles or vdpbf16ps where there are
 * such) on all threads, taken by turns with each product, as clocks and neighbours change: `% peak`
 * is the median of what both were at a time. One untimed product first; `first` is that one, with
 * the making of the primitive; ms is the median of the timed ones. Where products in fp32 may be
 * of panels, `onednn` is the time by oneDNN alone, by turns, and ratio that over ms. `% bytes` is the rate,
 * of the peak, at which the bytes of the operands and of the result, each once (of what is added to,
 * twice), pass at the bandwidth of memory: a = b + s c over three arrays of 128 MiB with stores past the
 * caches, the best of some. Last, for a type: the products under 85 % of what they can reach, which is the
 * lesser of that and of the rate of the one that comes nearest to the peak. Operands have values of a
 * uniform distribution, such that results have a variance of about 1.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "bench/times.h"
#include "common/log.h"
#include "kernels/backend.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/gemm/panels.h"
#include "kernels/cpu/parallel.h"

#define REPEATS  15
#define BUDGET_S 0.4

/* ---- peak ---- */

#define PEAK_LOOPS 3000000L
#define PEAK_LANES 12

#if defined(__x86_64__)
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

__attribute__((target("avx512f"))) static double fma_avx512(void)
{
#define DECLARE(i) __m512 a##i = _mm512_set1_ps((float)i);
#define STEP(i)    a##i = _mm512_fmadd_ps(a##i, x, y);
#define KEEP(i)    __asm__ volatile("" : : "v"(a##i));
    __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f);
    EACH(DECLARE)
    for (long n = 0; n < PEAK_LOOPS; n++) {
        __asm__ volatile("" : "+v"(x), "+v"(y));
        EACH(STEP)
    }
    EACH(KEEP)
    return 2.0 * 16 * PEAK_LANES * PEAK_LOOPS;
#undef DECLARE
#undef STEP
#undef KEEP
}

__attribute__((target("avx512f,avx512bf16"))) static double dot_bf16(void)
{
#define DECLARE(i) __m512 a##i = _mm512_set1_ps((float)i);
#define STEP(i)    a##i = _mm512_dpbf16_ps(a##i, (__m512bh)x, (__m512bh)y);
#define KEEP(i)    __asm__ volatile("" : : "v"(a##i));
    __m512i x = _mm512_set1_epi16(0x3f00), y = _mm512_set1_epi16(0x3a00);
    EACH(DECLARE)
    for (long n = 0; n < PEAK_LOOPS; n++) {
        __asm__ volatile("" : "+v"(x), "+v"(y));
        EACH(STEP)
    }
    EACH(KEEP)
    return 4.0 * 16 * PEAK_LANES * PEAK_LOOPS;
#undef DECLARE
#undef STEP
#undef KEEP
}

/* Four accumulators of 16 x 16, two tiles of each operand. */
__attribute__((target("amx-tile,amx-bf16"))) static double dot_amx(void)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};

    for (int i = 0; i < 8; i++) {
        config.bytes[i] = 64;
        config.rows[i] = 16;
    }
    (void)syscall(SYS_arch_prctl, 0x1023, 18); /* ask for tile data */
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    for (long n = 0; n < PEAK_LOOPS / 4; n++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
    return 2.0 * 16 * 16 * 32 * 4 * (PEAK_LOOPS / 4);
}

__attribute__((target("avx2,fma"))) static double fma_avx2(void)
{
#define DECLARE(i) __m256 a##i = _mm256_set1_ps((float)i);
#define STEP(i)    a##i = _mm256_fmadd_ps(a##i, x, y);
#define KEEP(i)    __asm__ volatile("" : : "x"(a##i));
    __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f);
    EACH(DECLARE)
    for (long n = 0; n < PEAK_LOOPS; n++) {
        __asm__ volatile("" : "+x"(x), "+x"(y));
        EACH(STEP)
    }
    EACH(KEEP)
    return 2.0 * 8 * PEAK_LANES * PEAK_LOOPS;
#undef DECLARE
#undef STEP
#undef KEEP
}
#endif

/* Each thread times itself, so that what else the machine does counts little. */
struct peak {
    zt_dtype dtype;
    int loops;
    double best[ZT_MAX_THREADS]; /* FLOP/s */
};

static double peak_loop(zt_dtype dtype)
{
#if defined(__x86_64__)
    unsigned f = zt_cpu_features();

    if (dtype == ZT_BF16 && (f & ZT_CPU_AMX_BF16))
        return dot_amx();
    if (dtype == ZT_BF16 && (f & ZT_CPU_FAST_BF16))
        return dot_bf16();
    if (f & ZT_CPU_AVX512)
        return fma_avx512();
    if (f & ZT_CPU_AVX2)
        return fma_avx2();
#endif
    (void)dtype;
    return 0;
}

static void peak_part(int64_t begin, int64_t end, int thread, void *ctx)
{
    struct peak *p = ctx;

    (void)begin;
    (void)end;
    for (int i = 0; i < p->loops; i++) {
        double t0 = zt_now(), rate = peak_loop(p->dtype);

        rate /= zt_now() - t0;

        if (rate > p->best[thread])
            p->best[thread] = rate;
    }
}

/* FLOP/s, the best of some loops; 0 where this bench does not know the processor's
 * instructions. */
static double measure_peak(zt_dtype dtype, int loops)
{
    static struct peak p;
    double sum = 0;

    p = (struct peak){.dtype = dtype, .loops = loops};
    zt_parallel_for(zt_num_threads(), 1, peak_part, &p);
    for (int t = 0; t < zt_num_threads(); t++)
        sum += p.best[t];
    return sum;
}

/* ---- products ---- */

struct product {
    const char *name;
    int64_t m, k, n;
    bool ta, tb, accumulate, bias;
    zt_epilogue epilogue;
};

static char *memory; /* a | b | c | pre | bias */
static size_t region;
static double bandwidth; /* of memory, bytes a second */

static struct zt_view matrix(int which, zt_dtype dtype, int64_t rows, int64_t cols,
                             bool transposed)
{
    struct zt_view v =
        zt_view_of(memory + (size_t)which * region, dtype, 2, (int64_t[]){rows, cols});

    if (transposed) {
        v.stride[0] = 1;
        v.stride[1] = rows;
    }
    return v;
}

/* ---- bandwidth of memory ---- */

#define TRIAD_ELEMS   ((int64_t)32 << 20) /* of each array */
#define TRIAD_REPEATS 8

static void triad_part(int64_t begin, int64_t end, int thread, void *ctx)
{
    float *a = (float *)(void *)memory, *b = (float *)(void *)(memory + region);
    float *c = (float *)(void *)(memory + 2 * region);

    (void)thread;
    (void)ctx;
#if defined(__x86_64__)
    const __m128 scale = _mm_set1_ps(3);

    for (int64_t i = 4 * begin; i < 4 * end; i += 4)
        _mm_stream_ps(
            a + i, _mm_add_ps(_mm_load_ps(b + i), _mm_mul_ps(scale, _mm_load_ps(c + i))));
#else
    for (int64_t i = 4 * begin; i < 4 * end; i++)
        a[i] = b[i] + 3 * c[i];
#endif
}

/* Bytes a second. */
static double measure_bandwidth(void)
{
    double best = 0;

    for (int i = 0; i < TRIAD_REPEATS; i++) {
        double took = zt_now();

        zt_parallel_for(TRIAD_ELEMS / 4, 4096, triad_part, NULL);
        took = zt_now() - took;
        best = fmax(best, 3.0 * sizeof(float) * (double)TRIAD_ELEMS / took);
    }
    return best;
}

/* ---- products of given operands ---- */

#define PATTERN 65521 /* a prime: rows and columns of no matrix repeat */

/*
 * Values in [-scale, scale). Pages that nobody has written would all be the one page of zeros,
 * which stays in a cache whatever the size of a matrix is.
 */
static void fill(const struct zt_view *v, float scale)
{
    static float values[PATTERN];
    size_t width = zt_dtype_bytes(v->dtype);
    int64_t n = v->shape[0] * (v->ndim > 1 ? v->shape[1] : 1);
    uint64_t seed = 1;

    for (int i = 0; i < PATTERN; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        values[i] = scale * ((float)(seed >> 40) / (float)(1 << 23) - 1);
    }
    for (int64_t i = 0; i < n; i += PATTERN)
        zt_store_row((char *)v->data + (size_t)i * width, v->dtype, 1, values,
                     n - i < PATTERN ? n - i : PATTERN);
}

/* Of a type, for the list at the end. */
static struct result {
    char name[64];
    double of_peak, bytes_of_peak;
} results[256];
static int num_results;

static void list_slow(zt_dtype dtype)
{
    const struct result *best = results;
    int slow = 0;

    for (int i = 1; i < num_results; i++)
        if (results[i].of_peak > best->of_peak)
            best = &results[i];
    for (int i = 0; i < num_results; i++) {
        const struct result *r = &results[i];
        bool by_bytes = r->bytes_of_peak < best->of_peak;
        double reach = by_bytes ? r->bytes_of_peak : best->of_peak;

        if (r->of_peak >= 0.85 * reach)
            continue;
        slow++;
        printf("# %s: %.0f%% of %s\n", r->name, 100 * r->of_peak / reach,
               by_bytes ? "what its bytes allow" : "the best");
    }
    if (num_results)
        printf(
            "# %s: %d of %d under 85%% of the best or of what their bytes allow, %s at "
            "%.1f%% of the peak\n",
            zt_dtype_name(dtype), slow, num_results, best->name, 100 * best->of_peak);
    num_results = 0;
}

static void keep_result(const struct product *p, double of_peak, double bytes_of_peak)
{
    struct result *r = &results[num_results];

    if (num_results == (int)(sizeof(results) / sizeof(results[0])))
        return;
    snprintf(r->name, sizeof(r->name), "%s %lld x %lld x %lld", p->name, (long long)p->m,
             (long long)p->k, (long long)p->n);
    r->of_peak = of_peak;
    r->bytes_of_peak = bytes_of_peak;
    num_results++;
}

/* Bytes of operands and results. */
static double bytes_of(const struct product *p, zt_dtype dtype)
{
    double width = (double)zt_dtype_bytes(dtype), m = (double)p->m, n = (double)p->n;
    double c = p->accumulate ? 2.0 * (double)zt_dtype_bytes(ZT_F32) : width;

    if (p->epilogue != ZT_EPI_NONE)
        c += width; /* what the activation is of */
    return width * (m + n) * (double)p->k + c * m * n + (p->bias ? width * n : 0);
}

/* Seconds of the same product where panels are not used. */
static zt_err by_onednn(const struct zt_backend *be, struct zt_device *dev,
                        const struct zt_gemm_args *g, double *took,
                        struct zt_fault *fault)
{
    zt_err rc;

    zt_gemm_use_panels(ZT_PANELS_NEVER);
    *took = zt_now();
    rc = be->kernels->gemm(dev, NULL, g, fault);
    *took = zt_now() - *took;
    zt_gemm_use_panels(ZT_PANELS_THAT_GAIN);
    return rc;
}

static zt_err run(const struct zt_backend *be, struct zt_device *dev, zt_dtype dtype,
                  const struct product *p, struct zt_fault *fault)
{
    zt_dtype out = p->accumulate ? ZT_F32 : dtype;
    struct zt_gemm_args g = {
        .alpha = 1, .accumulate = p->accumulate, .epilogue = p->epilogue};
    bool both = dtype == ZT_F32 && zt_panel_kernels();
    double flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    double took[REPEATS], onednn[REPEATS], of_peak[REPEATS], peak[REPEATS], first, start;
    double bytes_of_peak;
    int n = 0;

    g.a = matrix(0, dtype, p->m, p->k, p->ta);
    g.b = matrix(1, dtype, p->k, p->n, p->tb);
    g.c = matrix(2, out, p->m, p->n, false);
    if (p->epilogue != ZT_EPI_NONE)
        g.pre = matrix(3, out, p->m, p->n, false);
    if (p->bias)
        g.bias = zt_view_of(memory + 4 * region, dtype, 1, &p->n);
    fill(&g.a, 1);
    fill(&g.b, 3 / sqrtf((float)p->k)); /* sums are as a normal distribution has them */
    fill(&g.c, 1);
    if (p->bias)
        fill(&g.bias, 1);
    start = zt_now();
    zt_err rc = be->kernels->gemm(dev, NULL, &g, fault);
    first = zt_now() - start;
    if (both && rc == ZT_OK) /* the making of the primitive */
        rc = by_onednn(be, dev, &g, &onednn[0], fault);
    for (start = zt_now();
         rc == ZT_OK && n < REPEATS && (n < 3 || zt_now() - start < BUDGET_S); n++) {
        double t0;

        if (both) { /* each after the same loop */
            rc = by_onednn(be, dev, &g, &onednn[n], fault);
            (void)measure_peak(dtype, 1);
        }
        if (rc != ZT_OK)
            break;
        t0 = zt_now();
        rc = be->kernels->gemm(dev, NULL, &g, fault);
        took[n] = zt_now() - t0;
        peak[n] = measure_peak(dtype, 1);
        of_peak[n] = peak[n] > 0 ? flops / took[n] / peak[n] : 0;
    }
    if (rc != ZT_OK)
        return rc;
    qsort(took, (size_t)n, sizeof(took[0]), by_value);
    qsort(onednn, both ? (size_t)n : 0, sizeof(onednn[0]), by_value);
    start = median_of(peak, n);
    bytes_of_peak = start > 0 ? flops / bytes_of(p, dtype) * bandwidth / start : 0;
    keep_result(p, median_of(of_peak, n), bytes_of_peak);
    printf("%-5s %-12s %5lld %5lld %5lld  %8.2f %8.2f %8.2f %7.0f %6.1f %7.0f",
           zt_dtype_name(dtype), p->name, (long long)p->m, (long long)p->k,
           (long long)p->n, 1e3 * first, 1e3 * took[n / 2], 1e3 * took[0],
           flops / took[n / 2] / 1e9, 100 * of_peak[n / 2], 100 * bytes_of_peak);
    if (both)
        printf(" %8.2f %6.2f", 1e3 * onednn[n / 2], onednn[n / 2] / took[n / 2]);
    printf("\n");
    return ZT_OK;
}

/* The linear layers of a model: inputs and outputs. */
struct layers {
    const char *model;
    int num;
    bool by_outputs; /* weights are (out, in), as Hugging Face has them but for GPT-2 */
    int64_t in_out[6][2];
    int64_t width, vocab; /* of the output head; 0: it is not run */
    int64_t tokens[3];
    int num_tokens;
};

static const struct layers all_layers[] = {
    {"gpt2",
     4,
     false,
     {{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}},
     768,
     50257,
     {256, 1024, 4096},
     3},
    {"llama 1b",
     4,
     false,
     {{2048, 2048}, {2048, 512}, {2048, 8192}, {8192, 2048}},
     0,
     0,
     {256, 1024},
     2},
    {"bert base",
     4,
     true,
     {{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}},
     0,
     0,
     {1024},
     1},
    {"qwen2.5 0.5b",
     4,
     true,
     {{896, 896}, {896, 128}, {896, 4864}, {4864, 896}},
     896,
     151936,
     {1024},
     1},
};

static zt_err run_tokens(const struct zt_backend *be, struct zt_device *dev,
                         zt_dtype dtype, const struct layers *l, int64_t t,
                         struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int i = 0; i < l->num && rc == ZT_OK; i++) {
        int64_t k = l->in_out[i][0], n = l->in_out[i][1];
        bool out = l->by_outputs;
        const struct product all[] = {
            {"forward", t, k, n, false, out, false, true, ZT_EPI_NONE},
            {"forward gelu", t, k, n, false, out, false, true, ZT_EPI_GELU_TANH},
            {"dgrad", t, n, k, false, !out, false, false, ZT_EPI_NONE},
            {"wgrad", out ? n : k, t, out ? k : n, true, false, true, false, ZT_EPI_NONE},
        };

        for (int j = 0; j < 4 && rc == ZT_OK; j++)
            if (j != 1 || n == 3072)
                rc = run(be, dev, dtype, &all[j], fault);
    }
    const struct product head[] = {
        {"head", t, l->width, l->vocab, false, true, false, false, ZT_EPI_NONE},
        {"head dgrad", t, l->vocab, l->width, false, false, false, false, ZT_EPI_NONE},
        {"head wgrad", l->vocab, t, l->width, true, false, true, false, ZT_EPI_NONE},
        {"head wgrad =", l->vocab, t, l->width, true, false, false, false, ZT_EPI_NONE},
    };
    for (int j = 0; j < 4 && rc == ZT_OK && l->vocab && t <= 1024; j++)
        rc = run(be, dev, dtype, &head[j], fault);
    return rc;
}

static const zt_dtype types[] = {ZT_F32, ZT_BF16, ZT_F16};
#define NUM_TYPES (int)(sizeof(types) / sizeof(types[0]))

/* What the command line names: types or models by how they begin; of neither, all are run. */
static char **words;
static int num_words;

static bool is_type(const char *word)
{
    for (int i = 0; i < NUM_TYPES; i++)
        if (strcmp(word, zt_dtype_name(types[i])) == 0)
            return true;
    return false;
}

static bool is_wanted(const char *name)
{
    bool all = true;

    for (int i = 0; i < num_words; i++)
        if (is_type(words[i]) == is_type(name)) {
            all = false;
            if (strncmp(name, words[i], strlen(words[i])) == 0)
                return true;
        }
    return all;
}

static zt_err run_type(const struct zt_backend *be, struct zt_device *dev, zt_dtype dtype,
                       struct zt_fault *fault)
{
    double peak = measure_peak(dtype, 10), square;
    zt_err rc = zt_measure_gemm(be, dev, dtype, false, 0.5, &square, fault);

    if (rc != ZT_OK)
        return rc;
    bandwidth = measure_bandwidth();
    printf("# %s %s: peak %.0f GFLOP/s, square product %.0f (%.1f%%), memory %.1f GB/s\n",
           zt_dtype_name(dtype), zt_cpu_describe(), peak / 1e9, square / 1e9,
           peak > 0 ? 100 * square / peak : 0, bandwidth / 1e9);
    printf("%-5s %-12s %5s %5s %5s  %8s %8s %8s %7s %6s %7s%s\n", "type", "product", "m",
           "k", "n", "first/ms", "ms", "best/ms", "GFLOP/s", "% peak", "% bytes",
           dtype == ZT_F32 && zt_panel_kernels() ? "   onednn  ratio" : "");
    for (size_t m = 0; m < sizeof(all_layers) / sizeof(all_layers[0]); m++) {
        const struct layers *l = &all_layers[m];

        if (!is_wanted(l->model))
            continue;
        printf("# %s\n", l->model);
        for (int i = 0; i < l->num_tokens && rc == ZT_OK; i++)
            rc = run_tokens(be, dev, dtype, l, l->tokens[i], fault);
    }
    list_slow(dtype);
    return rc;
}

int main(int argc, char **argv)
{
    const struct zt_backend *be;
    struct zt_device *dev = NULL;
    struct zt_fault fault = {0};
    void *mem = NULL;
    zt_err rc = zt_backend_find("cpu", &be, &fault);

    if (rc == ZT_OK)
        rc = be->open(0, argc > 1 ? atoi(argv[1]) : 0, &dev, &fault);
    region = (size_t)1024 * 151936 * sizeof(float) + 4096;
    region = region / 4096 * 4096;
    if (rc == ZT_OK)
        rc = be->alloc(dev, 5 * region, &mem, &fault);
    memory = mem;
    words = argv + 2;
    num_words = argc - 2;
    for (int i = 0; i < NUM_TYPES && rc == ZT_OK; i++)
        if (is_wanted(zt_dtype_name(types[i])))
            rc = run_type(be, dev, types[i], &fault);
    if (mem)
        be->free(dev, mem, 5 * region);
    if (dev)
        be->close(dev);
    if (rc != ZT_OK)
        fprintf(stderr, "bench_gemm: %s\n", fault.text);
    return zt_err_exit_code(rc);
}
