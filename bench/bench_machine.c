/*
 * bench_machine.c -- what this machine can do at best: the baselines of the other
 * benches.
 *
 *      bench_machine [SECONDS per figure, default 1]
 *
 * Prints "name value" lines:
 *   gemm_f32_gflops    best of the shapes below: oneDNN called directly, which packed the
 *   gemm_bf16_gflops   weights beforehand, bf16 in and out; nothing of ours is on the way.
 *                      Where oneDNN has no products of bf16: those of fp32
 *   triad_gbs          a = b + s c over 3 x 256 MiB, stores past the caches, 12 bytes an
 *                      element: memory bandwidth
 *   read_gbs           768 MiB summed up: the same of reading alone
 * Threads: as OMP_NUM_THREADS says. A figure is the median of repetitions.
 */
#include <dnnl.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "bench/read_memory.h"
#include "kernels/cpu/features.h"

static double seconds_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Median time of fn(ctx) over about `budget` seconds, after one call that does not count.
 */
static double median_time(void (*fn)(void *), void *ctx, double budget)
{
    double times[1024], end;
    size_t n = 0;

    fn(ctx);
    end = seconds_now() + budget;
    do {
        double start = seconds_now();

        fn(ctx);
        times[n++] = seconds_now() - start;
    } while (n < sizeof(times) / sizeof(times[0]) && (seconds_now() < end || n < 3));
    qsort(times, n, sizeof(times[0]), ascending);
    return times[n / 2];
}

/* ---- matrix products ---- */

static void must(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return;
    fprintf(stderr, "bench_machine: oneDNN: %s failed (%d)\n", what, (int)status);
    exit(1);
}

struct product {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_memory_t operands[3]; /* a (M, K), b (K, N), c (M, N) */
    size_t bytes[3];           /* of each */
};

/* Small numbers in both types: none is zero or denormal. */
static void fill(dnnl_memory_t mem, size_t bytes)
{
    void *data;

    must(dnnl_memory_map_data(mem, &data), "map");
    for (size_t i = 0; i < bytes / 2; i++)
        ((uint16_t *)data)[i] = (uint16_t)(0x3c00 + i % 251);
    must(dnnl_memory_unmap_data(mem, data), "unmap");
}

/* Whether there is one on this processor. */
static bool there_is(dnnl_status_t status)
{
    if (status != dnnl_unimplemented)
        must(status, "matmul");
    return status == dnnl_success;
}

/*
 * The primitive of a (M, K) b (K, N), and what its operands look like: b is packed.
 * false: there are none of this type.
 */
#if DNNL_VERSION_MAJOR < 3
static bool describe_product(struct product *p, dnnl_dims_t dims[3],
                             dnnl_data_type_t type)
{
    dnnl_memory_desc_t md[3];
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t pd;

    for (int i = 0; i < 3; i++)
        must(dnnl_memory_desc_init_by_tag(&md[i], 2, dims[i], type,
                                          i == 1 ? dnnl_format_tag_any : dnnl_ab),
             "descriptor");
    must(dnnl_matmul_desc_init(&desc, &md[0], &md[1], NULL, &md[2]), "matmul");
    if (!there_is(dnnl_primitive_desc_create(&pd, &desc, NULL, p->engine, NULL)))
        return false;
    md[1] = *dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    must(dnnl_primitive_create(&p->primitive, pd), "matmul");
    must(dnnl_primitive_desc_destroy(pd), "matmul");
    for (int i = 0; i < 3; i++) {
        must(dnnl_memory_create(&p->operands[i], &md[i], p->engine, DNNL_MEMORY_ALLOCATE),
             "memory");
        p->bytes[i] = dnnl_memory_desc_get_size(&md[i]);
    }
    return true;
}
#else
static bool describe_product(struct product *p, dnnl_dims_t dims[3],
                             dnnl_data_type_t type)
{
    static const dnnl_query_t query[3] = {dnnl_query_src_md, dnnl_query_weights_md,
                                          dnnl_query_dst_md};
    dnnl_memory_desc_t md[3];
    dnnl_primitive_desc_t pd;

    for (int i = 0; i < 3; i++)
        must(dnnl_memory_desc_create_with_tag(&md[i], 2, dims[i], type,
                                              i == 1 ? dnnl_format_tag_any : dnnl_ab),
             "descriptor");
    if (!there_is(dnnl_matmul_primitive_desc_create(&pd, p->engine, md[0], md[1], NULL,
                                                    md[2], NULL)))
        return false;
    must(dnnl_primitive_create(&p->primitive, pd), "matmul");
    for (int i = 0; i < 3; i++) {
        const_dnnl_memory_desc_t made = dnnl_primitive_desc_query_md(pd, query[i], 0);

        must(dnnl_memory_create(&p->operands[i], made, p->engine, DNNL_MEMORY_ALLOCATE),
             "memory");
        p->bytes[i] = dnnl_memory_desc_get_size(made);
        must(dnnl_memory_desc_destroy(md[i]), "descriptor");
    }
    must(dnnl_primitive_desc_destroy(pd), "matmul");
    return true;
}
#endif

static bool open_product(struct product *p, int64_t M, int64_t N, int64_t K,
                         dnnl_data_type_t type)
{
    dnnl_dims_t dims[3] = {{M, K}, {K, N}, {M, N}};

    if (zt_cpu_limit_onednn(NULL) != ZT_OK)
        must(dnnl_runtime_error, "limit of instructions");
    must(dnnl_engine_create(&p->engine, dnnl_cpu, 0), "engine");
    must(dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags), "stream");
    if (!describe_product(p, dims, type)) {
        must(dnnl_stream_destroy(p->stream), "stream");
        must(dnnl_engine_destroy(p->engine), "engine");
        return false;
    }
    for (int i = 0; i < 3; i++)
        fill(p->operands[i], p->bytes[i]);
    return true;
}

static void close_product(struct product *p)
{
    for (int i = 0; i < 3; i++)
        must(dnnl_memory_destroy(p->operands[i]), "memory");
    must(dnnl_primitive_destroy(p->primitive), "matmul");
    must(dnnl_stream_destroy(p->stream), "stream");
    must(dnnl_engine_destroy(p->engine), "engine");
}

static void multiply(void *ctx)
{
    struct product *p = ctx;
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, p->operands[0]},
                              {DNNL_ARG_WEIGHTS, p->operands[1]},
                              {DNNL_ARG_DST, p->operands[2]}};

    must(dnnl_primitive_execute(p->primitive, p->stream, 3, args), "matmul");
    must(dnnl_stream_wait(p->stream), "matmul");
}

/* GFLOP/s of the shape that oneDNN likes most; 0: it has no products of this type. */
static double gemm_rate(dnnl_data_type_t type, double budget)
{
    static const int64_t shapes[][3] = {
        {1024, 3072, 768}, {1024, 768, 3072}, {1024, 2304, 768}, {2048, 2048, 2048}};
    size_t n = sizeof(shapes) / sizeof(shapes[0]);
    double best = 0;

    for (size_t i = 0; i < n; i++) {
        const int64_t *s = shapes[i];
        struct product p;
        double took;

        if (!open_product(&p, s[0], s[1], s[2], type))
            return 0;
        took = median_time(multiply, &p, budget / (double)n);
        close_product(&p);
        best = fmax(best, 2e-9 * (double)s[0] * (double)s[1] * (double)s[2] / took);
    }
    return best;
}

/* ---- memory ---- */

#define TRIAD_ELEMS ((int64_t)64 << 20) /* 256 MiB of floats per array */
#define TRIAD_PIECE ((int64_t)1 << 14)

struct triad {
    float *a, *b, *c;
};

#ifdef __SSE2__
static void triad_piece(float *a, const float *b, const float *c, int64_t n)
{
    __m128 s = _mm_set1_ps(3);

    for (int64_t i = 0; i < n; i += 4)
        _mm_stream_ps(a + i,
                      _mm_add_ps(_mm_load_ps(b + i), _mm_mul_ps(s, _mm_load_ps(c + i))));
}
#else
static void triad_piece(float *a, const float *b, const float *c, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        a[i] = b[i] + 3 * c[i];
}
#endif

static void triad(void *ctx)
{
    struct triad *t = ctx;

#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < TRIAD_ELEMS; i += TRIAD_PIECE)
        triad_piece(t->a + i, t->b + i, t->c + i, TRIAD_PIECE);
}

static volatile float read_sum;

static void read_arrays(void *ctx)
{
    struct triad *t = ctx;
    const float *array[3] = {t->a, t->b, t->c};

#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < 3 * TRIAD_ELEMS; i += TRIAD_PIECE)
        read_sum = zt_read_floats(array[i / TRIAD_ELEMS] + i % TRIAD_ELEMS, TRIAD_PIECE);
}

/* GB/s of the triad and of reading. */
static void measure_memory(double budget, double *triad_gbs, double *read_gbs)
{
    size_t bytes = (size_t)TRIAD_ELEMS * sizeof(float);
    struct triad t = {aligned_alloc(4096, bytes), aligned_alloc(4096, bytes),
                      aligned_alloc(4096, bytes)};

    if (!t.a || !t.b || !t.c) {
        fprintf(stderr, "bench_machine: no memory for 3 x %zu bytes\n", bytes);
        exit(1);
    }
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < TRIAD_ELEMS; i++) {
        t.a[i] = 0;
        t.b[i] = 1;
        t.c[i] = 2;
    }
    *triad_gbs = 3e-9 * (double)bytes / median_time(triad, &t, budget);
    *read_gbs = 3e-9 * (double)bytes / median_time(read_arrays, &t, budget);
    free(t.a);
    free(t.b);
    free(t.c);
}

int main(int argc, char **argv)
{
    double budget = argc > 1 ? atof(argv[1]) : 1, f32, bf16, triad_gbs, read_gbs;

    if (!(budget > 0)) {
        fprintf(stderr, "usage: bench_machine [SECONDS]\n");
        return 2;
    }
    f32 = gemm_rate(dnnl_f32, budget);
    bf16 = gemm_rate(dnnl_bf16, budget);
    printf("gemm_f32_gflops %.1f\n", f32);
    printf("gemm_bf16_gflops %.1f\n", bf16 > 0 ? bf16 : f32);
    measure_memory(budget, &triad_gbs, &read_gbs);
    printf("triad_gbs %.2f\n", triad_gbs);
    printf("read_gbs %.2f\n", read_gbs);
    return 0;
}
