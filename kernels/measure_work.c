#include "kernels/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cpu/parallel.h"

#define ROWS          ((int64_t)512) /* of the queries and keys of attention */
#define HEAD          ((int64_t)64)
#define QUEUED        8 /* calls between two looks at the clock, where there is a queue */
#define FEWEST_ROUNDS 3
#define MOST_ROUNDS   64
#define THINNER       8 /* times that the rows of the second product are fewer */
#define HALVED        4 /* times that the first call of a device with memory of its own is */

/* What is measured, and where: memory for four arrays of `elems` floats and a scalar. */
struct bench {
    const struct zt_backend *be;
    struct zt_device *dev;
    zt_dtype product, dtype; /* of products, of what else a model computes */
    bool tf32;
    double seconds;
    int64_t elems, side; /* side: of the squares that are multiplied */
    int64_t rows;        /* of what is multiplied by one */
    int halved;          /* sides so many times, arrays three times as often */
    float *memory;
    int64_t turns; /* calls so far */
    void *host;    /* a quarter of it in host memory; NULL where both are one */
    double clock[ZT_MAX_THREADS]; /* when a round began */
};

static double read_clock(clockid_t clock)
{
    struct timespec ts;

    clock_gettime(clock, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static double now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

static void read_own_clocks(int64_t begin, int64_t end, int thread, void *seconds)
{
    (void)end;
    (void)thread;
    ((double *)seconds)[begin] = read_clock(CLOCK_THREAD_CPUTIME_ID);
}

/*
 * Of a processor the time that each of its threads got: other programs take some in between,
 * and a rate that is measured once is to hold for days. A thread reads its own: what the
 * kernel says of another one is as old as its last tick, which may be a whole round.
 */
static void start_clocks(struct bench *b)
{
    b->clock[0] = now();
    if (b->be->runs_on_processor)
        zt_parallel_for(zt_num_threads(), 1, read_own_clocks, b->clock);
}

/* Since then; of threads the one that had the most to do. */
static double read_clocks(struct bench *b)
{
    double begin[ZT_MAX_THREADS], most = 0;
    int n = b->be->runs_on_processor ? zt_num_threads() : 1;

    memcpy(begin, b->clock, (size_t)n * sizeof(*begin));
    start_clocks(b);
    for (int i = 0; i < n; i++)
        most = b->clock[i] - begin[i] > most ? b->clock[i] - begin[i] : most;
    return most;
}

/* Of operands of so many floats, those whose turn it is. */
static float *next_operands(struct bench *b, int64_t elems)
{
    return b->memory + b->turns++ % (4 * b->elems / elems) * elems;
}

/* What one call takes of an array. */
static int64_t share(const struct bench *b)
{
    return b->elems >> (3 * b->halved);
}

static struct zt_view array_of(const struct bench *b, zt_dtype dtype, int i)
{
    const int64_t n = share(b);

    return zt_view_of(b->memory + i * b->elems, dtype, 1, &n);
}

static struct zt_view array(const struct bench *b, int i)
{
    return array_of(b, ZT_F32, i);
}

/* ---- one call of each kind, and what it is worth ---- */

/* A linear layer: its output, and the gradients of its input and its weights. */
static zt_err multiply(struct bench *b, struct zt_device_work *done,
                       struct zt_fault *fault)
{
    const int64_t side = b->side >> b->halved, square[2] = {side, side};
    const int64_t shape[2] = {b->rows >> b->halved, side};
    float *at = next_operands(b, 4 * side * side);
    struct zt_view x = zt_view_of(at, b->dtype, 2, shape),
                   w = zt_view_of(at + side * side, b->dtype, 2, square),
                   y = zt_view_of(at + 2 * side * side, b->dtype, 2, shape),
                   dw = zt_view_of(at + 3 * side * side, ZT_F32, 2, square);
    struct zt_gemm_args calls[] = {
        {.a = x, .b = zt_view_transposed(&w), .c = y},
        {.a = x, .b = w, .c = y},
        {.a = zt_view_transposed(&x), .b = y, .c = dw},
    };
    zt_err rc = ZT_OK;

    for (size_t i = 0; !rc && i < sizeof(calls) / sizeof(*calls); i++) {
        calls[i].alpha = 1;
        calls[i].tf32 = b->tf32;
        zt_work_add_kernel(done, ZT_KERNEL_gemm, &calls[i]);
        rc = b->be->kernels->gemm(b->dev, NULL, &calls[i], fault);
    }
    return rc;
}

/* Forward and backward of enough heads. */
static zt_err attend(struct bench *b, struct zt_device_work *done, struct zt_fault *fault)
{
    int64_t most = b->elems / (4 * ROWS * HEAD) < 16 ? b->elems / (4 * ROWS * HEAD) : 16;
    int64_t heads = most >> b->halved ? most >> b->halved : 1;
    const int64_t shape[4] = {1, ROWS, heads, HEAD}, lse[3] = {1, heads, ROWS};
    const int64_t elems = heads * ROWS * HEAD;
    float *at = next_operands(b, 8 * elems + heads * ROWS);
    struct zt_view v[8];
    struct zt_attention_bwd_args a;
    zt_err rc;

    for (int i = 0; i < 8; i++)
        v[i] = zt_view_of(at + i * elems, b->dtype, 4, shape);
    a = (struct zt_attention_bwd_args){
        .fwd = {.q = v[0],
                .k = v[1],
                .v = v[2],
                .out = v[3],
                .lse = zt_view_of(at + 8 * elems, ZT_F32, 3, lse),
                .scale = 0.125f,
                .causal = true},
        .dout = v[4],
        .dq = v[5],
        .dk = v[6],
        .dv = v[7],
    };
    rc = b->be->kernels->attention(b->dev, NULL, &a.fwd, fault);
    if (!rc)
        rc = b->be->kernels->attention_bwd(b->dev, NULL, &a, fault);
    zt_work_add_kernel(done, ZT_KERNEL_attention, &a.fwd);
    zt_work_add_kernel(done, ZT_KERNEL_attention_bwd, &a);
    return rc;
}

static zt_err apply_function(struct bench *b, struct zt_device_work *done,
                             struct zt_fault *fault)
{
    struct zt_unary_args a = {.kind = ZT_U_GELU_TANH,
                              .x = array_of(b, b->dtype, 0),
                              .y = array_of(b, b->dtype, 1)};

    zt_work_add_kernel(done, ZT_KERNEL_unary, &a);
    return b->be->kernels->unary(b->dev, NULL, &a, fault);
}

static zt_err stream(struct bench *b, struct zt_device_work *done, struct zt_fault *fault)
{
    int64_t n = 2 * share(b);
    struct zt_axpby_args a = {.x = zt_view_of(b->memory, ZT_F32, 1, &n),
                              .y = zt_view_of(b->memory + 2 * b->elems, ZT_F32, 1, &n),
                              .alpha = 0.5f,
                              .beta = 0.5f};

    zt_work_add_kernel(done, ZT_KERNEL_axpby, &a);
    return b->be->kernels->axpby(b->dev, NULL, &a, fault);
}

static zt_err update(struct bench *b, struct zt_device_work *done, struct zt_fault *fault)
{
    struct zt_adamw_args a = {.master = array(b, 0),
                              .m = array(b, 1),
                              .v = array(b, 2),
                              .grad = array(b, 3),
                              .grad_scale = b->memory + 4 * b->elems,
                              .lr = 1e-4f,
                              .lr_t = 1e-4f,
                              .vscale = 1,
                              .beta1 = 0.9f,
                              .beta2 = 0.999f,
                              .eps = 1e-8f,
                              .weight_decay = 0.1f,
                              .decoupled = true};

    zt_work_add_kernel(done, ZT_KERNEL_adamw, &a);
    return b->be->kernels->adamw(b->dev, NULL, &a, fault);
}

static zt_err transfer(struct bench *b, struct zt_device_work *done,
                       struct zt_fault *fault)
{
    size_t bytes = (size_t)share(b) * sizeof(float);

    done->of[ZT_WORK_TRANSFERS] += (double)bytes;
    return b->be->upload(b->dev, NULL, b->memory, b->host, bytes, fault);
}

/* ---- rates ---- */

typedef zt_err (*call)(struct bench *b, struct zt_device_work *done,
                       struct zt_fault *fault);

/* A round of calls: what it did and how long it took. */
static zt_err time_round(struct bench *b, call fn, int calls, struct zt_device_work *done,
                         double *took, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    start_clocks(b);
    *done = (struct zt_device_work){{0}};
    for (int i = 0; !rc && i < calls; i++)
        rc = fn(b, done, fault);
    if (!rc)
        rc = b->be->sync(b->dev, NULL, fault);
    *took = read_clocks(b);
    return rc;
}

/*
 * Warms up, and finds how much a device does at a time: a GPU needs large calls and a
 * queue of them to be at its rate; one that is emulated would take minutes for them.
 */
static zt_err choose_size(struct bench *b, call fn, int *calls, struct zt_fault *fault)
{
    struct zt_device_work done;
    double took = 0;
    zt_err rc;

    b->halved = b->be->unified ? 0 : HALVED;
    for (;;) {
        rc = time_round(b, fn, 1, &done, &took, fault);
        if (!rc && !b->be->unified)
            rc = time_round(b, fn, 1, &done, &took, fault);
        if (rc || b->halved == 0 || 8 * took > b->seconds)
            break;
        b->halved--;
    }
    *calls = !b->be->unified && QUEUED * took <= b->seconds ? QUEUED : 1;
    return rc;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* What a round does, and the median of the seconds of several. */
static zt_err time_rounds(struct bench *b, call fn, struct zt_device_work *done,
                          double *seconds, struct zt_fault *fault)
{
    double took[MOST_ROUNDS], start;
    int calls, rounds = 0;
    zt_err rc = choose_size(b, fn, &calls, fault);

    start = now();
    while (!rc && rounds < MOST_ROUNDS &&
           (rounds < FEWEST_ROUNDS || now() - start < b->seconds)) {
        rc = time_round(b, fn, calls, done, &took[rounds], fault);
        rounds++;
    }
    if (rc)
        return rc;
    qsort(took, (size_t)rounds, sizeof(*took), compare);
    *seconds = took[rounds / 2];
    return ZT_OK;
}

static zt_err measure(struct bench *b, zt_work_kind kind, call fn, double *rate,
                      struct zt_fault *fault)
{
    struct zt_device_work done;
    double seconds;
    zt_err rc = time_rounds(b, fn, &done, &seconds, fault);

    *rate = rc ? 0 : done.of[kind] / seconds;
    return rc;
}

/* Small random numbers: of equal ones a GPU multiplies more in a second. */
static zt_err fill_operands(const struct bench *b, struct zt_fault *fault)
{
    const int64_t n = 4 * b->elems * (int64_t)(sizeof(float) / zt_dtype_bytes(b->dtype));
    struct zt_random_args a = {.y = zt_view_of(b->memory, b->dtype, 1, &n),
                               .rng = {.seed = 1},
                               .normal = true,
                               .b = 0.5f};

    return b->be->kernels->random(b->dev, NULL, &a, fault);
}

/*
 * A processor packs and converts operands before it multiplies them. What it takes for their bytes,
 * beside the FLOPs, is what makes thin products slower: from products of two shapes.
 */
static zt_err measure_operands(struct bench *b, struct zt_device_work *rates,
                               struct zt_fault *fault)
{
    struct zt_device_work done[2];
    double seconds[2], bytes[2], of_bytes, of_flops;
    zt_err rc = time_rounds(b, multiply, &done[0], &seconds[0], fault);

    b->rows = b->side / THINNER;
    if (!rc)
        rc = time_rounds(b, multiply, &done[1], &seconds[1], fault);
    b->rows = b->side;
    if (rc)
        return rc;
    for (int i = 0; i < 2; i++)
        bytes[i] = done[i].of[ZT_WORK_OPERANDS];
    of_bytes = (seconds[1] - seconds[0] / THINNER) / (bytes[1] - bytes[0] / THINNER);
    of_flops = (seconds[0] - bytes[0] * of_bytes) / done[0].of[ZT_WORK_PRODUCTS];
    if (of_bytes > 0 && of_flops > 0) {
        rates->of[ZT_WORK_PRODUCTS] = 1 / of_flops;
        rates->of[ZT_WORK_OPERANDS] = 1 / of_bytes;
    } else {
        rates->of[ZT_WORK_PRODUCTS] = done[0].of[ZT_WORK_PRODUCTS] / seconds[0];
    }
    return ZT_OK;
}

static zt_err measure_products(struct bench *b, struct zt_device_work *rates,
                               struct zt_fault *fault)
{
    double *rate = &rates->of[ZT_WORK_PRODUCTS];
    int64_t side;
    zt_err rc;

    rates->of[ZT_WORK_OPERANDS] = INFINITY;
    if (b->be->runs_on_processor && b->product == b->dtype)
        return measure_operands(b, rates, fault);
    rc = measure(b, ZT_WORK_PRODUCTS, multiply, rate, fault);
    side = b->side >> b->halved;
    if (rc || b->product == b->dtype)
        return rc;
    return zt_measure_gemm_in(b->be, b->dev, b->product, false, b->seconds, b->memory,
                              (struct zt_product){side, side, side}, rate, fault);
}

static zt_err clear_memory(const struct bench *b, struct zt_fault *fault)
{
    const int64_t n = 4 * b->elems;
    struct zt_fill_args a = {.y = zt_view_of(b->memory, ZT_F32, 1, &n)};

    return b->be->kernels->fill(b->dev, NULL, &a, fault);
}

static zt_err measure_all(struct bench *b, struct zt_device_work *rates,
                          struct zt_fault *fault)
{
    static const struct {
        zt_work_kind kind;
        call fn;
    } kinds[] = {{ZT_WORK_ATTENTION, attend},
                 {ZT_WORK_FUNCTIONS, apply_function},
                 {ZT_WORK_STREAMS, stream},
                 {ZT_WORK_UPDATES, update}};
    zt_err rc = fill_operands(b, fault);

    if (!rc)
        rc = measure_products(b, rates, fault);
    if (!rc)
        rc = clear_memory(b, fault); /* what is there are no numbers of other types */
    for (size_t i = 0; !rc && i < sizeof(kinds) / sizeof(*kinds); i++)
        rc = measure(b, kinds[i].kind, kinds[i].fn, &rates->of[kinds[i].kind], fault);
    rates->of[ZT_WORK_TRANSFERS] = rates->of[ZT_WORK_STREAMS] / 2; /* read and written */
    if (!rc && b->host)
        rc =
            measure(b, ZT_WORK_TRANSFERS, transfer, &rates->of[ZT_WORK_TRANSFERS], fault);
    return rc;
}

zt_err zt_measure_work(const struct zt_backend *be, struct zt_device *dev,
                       zt_dtype product, zt_dtype dtype, bool tf32, double seconds,
                       size_t memory, struct zt_device_work *rates,
                       struct zt_fault *fault)
{
    const int64_t fewest = (int64_t)(be->unified ? 5 : 25) << 20,
                  elems = (int64_t)(memory / (4 * sizeof(float)));
    struct bench b = {.be = be,
                      .dev = dev,
                      .product = product,
                      .dtype = dtype,
                      .tf32 = tf32,
                      .seconds = seconds,
                      .elems = elems > fewest ? elems : fewest,
                      .side = be->unified ? 768 : 4096};
    size_t bytes = (4 * (size_t)b.elems + 1) * sizeof(float);
    void *p = NULL;
    zt_err rc = be->alloc(dev, bytes, &p, fault);

    *rates = (struct zt_device_work){{0}};
    b.rows = b.side;
    b.memory = p;
    if (!rc && !be->unified)
        rc = be->host_alloc(dev, (size_t)b.elems * sizeof(float), &b.host, fault);
    if (!rc)
        rc = measure_all(&b, rates, fault);
    if (b.host)
        be->host_free(dev, b.host, (size_t)b.elems * sizeof(float));
    if (p)
        be->free(dev, p, bytes);
    return rc;
}
