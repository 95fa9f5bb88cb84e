/*
 * bench_decode: the products of one written token of GPT-2 124M beside reading its weights.
 *
 *      build/release/bench/bench_decode [threads] [f32|bf16|f16 ...]
 *
 * Twelve layers of four products and the output head, each with weights of its own, so none
 * are in a cache when their turn comes. For 1, 2, 4 and 8 texts at once: ms and GB/s of the
 * products of a kind, and of all; read: the same bytes summed up, by turns. Medians.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/read_memory.h"
#include "bench/times.h"
#include "common/log.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/parallel.h"

#define REPEATS   15
#define LAYERS    12
#define KINDS     5
#define MOST_ROWS 8
#define VOCAB     50257
#define PIECE     ((int64_t)1 << 14) /* floats that a thread reads together */

/* weights (K, N), or of the head (N, K) */
static const struct kind {
    const char *name;
    int64_t k, n;
    int num;
    bool transposed;
} kinds[KINDS] = {
    {"qkv", 768, 2304, LAYERS, false}, {"out", 768, 768, LAYERS, false},
    {"up", 768, 3072, LAYERS, false},  {"down", 3072, 768, LAYERS, false},
    {"head", 768, VOCAB, 1, true},
};

static void must(zt_err rc, const struct zt_fault *fault)
{
    if (rc == ZT_OK)
        return;
    fprintf(stderr, "bench_decode: %s\n", fault->text);
    exit(1);
}

static struct zt_device *dev;
static char *memory; /* weights, one behind the other, rows of x, rows of y */

static int64_t num_weights(const struct kind *kind)
{
    return (kind->k * kind->n + 63) / 64 * 64;
}

static int64_t all_weights(void)
{
    int64_t n = 0;

    for (int i = 0; i < KINDS; i++)
        n += kinds[i].num * num_weights(&kinds[i]);
    return n;
}

/* ---- reading ---- */

static volatile float read_sum;

static void read_part(int64_t begin, int64_t end, int thread, void *ctx)
{
    (void)thread;
    read_sum = zt_read_floats((const float *)ctx + begin * PIECE, (end - begin) * PIECE);
}

static double read_once(int64_t floats)
{
    double start = zt_now();

    zt_parallel_for(floats / PIECE, 1, read_part, memory);
    return zt_now() - start;
}

/* ---- a token ---- */

/* Adds the time of each kind to took[kind]. */
static void write_token(zt_dtype t, int64_t rows, double took[KINDS])
{
    int64_t width = (int64_t)zt_dtype_bytes(t);
    char *at = memory, *x = memory + all_weights() * width;
    char *y = x + (int64_t)MOST_ROWS * 3072 * width;

    for (int i = 0; i < KINDS; i++) {
        const struct kind *kind = &kinds[i];
        double start = zt_now();

        for (int layer = 0; layer < kind->num; layer++) {
            struct zt_gemm_args g = {.alpha = 1, .rows_alone = true};
            struct zt_fault fault;

            g.a = zt_view_of(x, t, 2, (int64_t[]){rows, kind->k});
            g.b = kind->transposed ? zt_view_of(at, t, 2, (int64_t[]){kind->n, kind->k})
                                   : zt_view_of(at, t, 2, (int64_t[]){kind->k, kind->n});
            if (kind->transposed)
                g.b = zt_view_transposed(&g.b);
            g.c = zt_view_of(y, t, 2, (int64_t[]){rows, kind->n});
            must(zt_cpu_kernels.gemm(dev, NULL, &g, &fault), &fault);
            at += num_weights(kind) * width;
        }
        took[i] = zt_now() - start;
    }
}

static void print_line(const char *name, int64_t rows, const char *kind, double bytes,
                       double seconds, double rate)
{
    printf("%-5s %4lld  %-5s %9.2f ms %8.2f GB/s %6.0f%% of read\n", name,
           (long long)rows, kind, seconds * 1e3, bytes / seconds * 1e-9,
           100 * bytes / seconds / rate);
}

static void run(zt_dtype t, int64_t rows)
{
    double width = (double)zt_dtype_bytes(t), bytes = (double)all_weights() * width;
    double took[KINDS][REPEATS], whole[REPEATS], reading[REPEATS], rate;

    for (int i = -1; i < REPEATS; i++) {
        double one[KINDS], read = read_once((int64_t)bytes / 4);

        write_token(t, rows, one);
        if (i < 0)
            continue;
        reading[i] = read;
        whole[i] = 0;
        for (int k = 0; k < KINDS; k++) {
            took[k][i] = one[k];
            whole[i] += one[k];
        }
    }
    rate = bytes / median_of(reading, REPEATS);
    for (int k = 0; k < KINDS; k++)
        print_line(zt_dtype_name(t), rows, kinds[k].name,
                   (double)(kinds[k].num * num_weights(&kinds[k])) * width,
                   median_of(took[k], REPEATS), rate);
    print_line(zt_dtype_name(t), rows, "all", bytes, median_of(whole, REPEATS), rate);
    printf("%-5s %4lld  %-5s %9.2f ms %8.2f GB/s\n", zt_dtype_name(t), (long long)rows,
           "read", bytes / rate * 1e3, rate * 1e-9);
}

static void fill(zt_dtype t, int64_t n)
{
    struct zt_view v = zt_view_of(memory, t, 1, &n);
    struct zt_random_args a = {v, {7, 3, 0}, true, 0, 0.02f};
    struct zt_fault fault;

    must(zt_cpu_kernels.random(dev, NULL, &a, &fault), &fault);
}

int main(int argc, char **argv)
{
    static const zt_dtype types[] = {ZT_F32, ZT_BF16, ZT_F16};
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    int64_t n = all_weights() + MOST_ROWS * (3072 + VOCAB);
    struct zt_fault fault;
    void *p;

    if (threads < 1) {
        fprintf(stderr, "usage: bench_decode [THREADS] [f32|bf16|f16 ...]\n");
        return 2;
    }
    must(zt_cpu_backend.open(0, threads, &dev, &fault), &fault);
    must(zt_cpu_backend.alloc(dev, (size_t)n * sizeof(float), &p, &fault), &fault);
    memory = p;
    for (int i = 0; i < 3; i++) {
        bool wanted = argc < 3 && i < 2;

        for (int k = 2; k < argc; k++)
            wanted |= strcmp(argv[k], zt_dtype_name(types[i])) == 0;
        if (!wanted)
            continue;
        fill(types[i], n);
        for (int64_t rows = 1; rows <= MOST_ROWS; rows *= 2)
            run(types[i], rows);
    }
    zt_cpu_backend.free(dev, p, (size_t)n * sizeof(float));
    zt_cpu_backend.close(dev);
    return 0;
}
