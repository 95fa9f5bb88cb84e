/*
 * bench_bits: hashes of what kernels of the cpu backend compute, at the level of instructions
 * in use (ZLAUNCH_CPU_ISA).
 *
 *      build/release/bench/bench_bits [threads] [FILE]
 *
 * A line for each result: its kernel, type and shape, who computed it, and XXH3 of its bytes.
 * Inputs are the same on every machine. `own`: loops of this project, which have the same bits on
 * all processors of a level; `onednn`: at least one product of it was oneDNN's, which promises
 * that for no other release and no other processor. FILE: such lines of another machine (from
 * bench/results/bits-LEVEL.txt); what differs is listed, and exit code 1 says that something own does.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/fault.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/features.h"
#include "kernels/cpu/gemm/onednn.h"

#define MEMORY ((size_t)1 << 30)

static struct zt_device *dev;
static char *memory;
static size_t used;
static uint64_t seed;

static FILE *known;
static int num_lines, num_other, num_wrong;

static void must(zt_err rc, const struct zt_fault *fault)
{
    if (!rc)
        return;
    fprintf(stderr, "bench_bits: %s\n", fault->text);
    exit(zt_err_exit_code(rc));
}

/* ---- who computes ---- */

static int
    num_onednn; /* products since the last line; one thread at a time looks at it */

/* Stands before the library's own: calls of the kernels come here. */
dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive,
                                     dnnl_stream_t stream, int num,
                                     const dnnl_exec_arg_t *args)
{
    static dnnl_status_t (*real)(const_dnnl_primitive_t, dnnl_stream_t, int,
                                 const dnnl_exec_arg_t *);

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "dnnl_primitive_execute");
    __atomic_add_fetch(&num_onednn, 1, __ATOMIC_RELAXED);
    return real ? real(primitive, stream, num, args) : dnnl_runtime_error;
}

/* ---- inputs ---- */

static struct zt_view take(zt_dtype dtype, int ndim, const int64_t *shape)
{
    struct zt_view v = zt_view_of(memory + used, dtype, ndim, shape);
    size_t bytes = (size_t)zt_view_numel(&v) * zt_dtype_bytes(dtype);

    used += (bytes + 63) / 64 * 64;
    if (used > MEMORY) {
        fprintf(stderr, "bench_bits: shapes do not fit into its memory\n");
        exit(1);
    }
    memset(v.data, 0, bytes);
    return v;
}

/* Normal numbers, others for each call. */
static struct zt_view normal(zt_dtype dtype, int ndim, const int64_t *shape)
{
    struct zt_random_args r = {take(dtype, ndim, shape), {7, ++seed, 0}, true, 0, 1};
    struct zt_fault fault;

    must(zt_cpu_kernels.random(dev, NULL, &r, &fault), &fault);
    return r.y;
}

static struct zt_view matrix(zt_dtype dtype, int64_t rows, int64_t cols, bool transposed)
{
    struct zt_view v = normal(dtype, 2, (int64_t[]){rows, cols});

    if (transposed) {
        v.stride[0] = 1;
        v.stride[1] = rows;
    }
    return v;
}

/* ---- a line ---- */

/* Where FILE has this result: its line, else NULL. */
static const char *find_known(const char *name, char line[256])
{
    size_t n = strlen(name);

    rewind(known);
    while (fgets(line, 256, known))
        if (strncmp(line, name, n) == 0 && line[n] == ' ')
            return line + n;
    return NULL;
}

static void compare(const char *name, const char *who, uint64_t hash)
{
    char line[256], their_who[16];
    unsigned long long theirs;
    const char *rest = find_known(name, line);

    if (!rest || sscanf(rest, "%15s %llx", their_who, &theirs) != 2) {
        printf("# not in the other file: %s\n", name);
        num_other++;
    } else if (theirs != hash || strcmp(who, their_who) != 0) {
        bool own = strcmp(who, "own") == 0 && strcmp(their_who, "own") == 0;

        printf("# differs: %s, there %s %016llx\n", name, their_who, theirs);
        num_other++;
        num_wrong += own;
    }
}

/* Of all that the views hold; those without data are left out. Forgets all memory. */
static void result(const char *name, const struct zt_view *const *views, int num)
{
    const char *who = num_onednn ? "onednn" : "own";
    XXH3_state_t *state = XXH3_createState();
    uint64_t hash;

    if (!state || XXH3_64bits_reset(state) == XXH_ERROR)
        abort();
    for (int i = 0; i < num; i++)
        if (views[i]->data)
            XXH3_64bits_update(state, views[i]->data,
                               (size_t)zt_view_numel(views[i]) *
                                   zt_dtype_bytes(views[i]->dtype));
    hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    printf("%-52s %-6s %016llx\n", name, who, (unsigned long long)hash);
    if (known)
        compare(name, who, hash);
    num_lines++;
    num_onednn = 0;
    used = 0;
    seed = 0;
}
#define RESULT(name, ...)                                                                \
    result(name, (const struct zt_view *const[]){__VA_ARGS__},                           \
           (int)(sizeof((const struct zt_view *const[]){__VA_ARGS__}) /                  \
                 sizeof(const struct zt_view *)))
#define RUN(kernel, args)                                                                \
    do {                                                                                 \
        struct zt_fault fault_;                                                          \
        must(zt_cpu_kernels.kernel(dev, NULL, &(args), &fault_), &fault_);               \
    } while (0)

/* ---- products ---- */

static void product(zt_dtype dtype, const char *kind, int64_t m, int64_t k, int64_t n,
                    bool ta, bool tb)
{
    bool wgrad = strcmp(kind, "wgrad") == 0;
    struct zt_gemm_args g = {.alpha = 1, .accumulate = wgrad};
    char name[96];

    g.a = matrix(dtype, m, k, ta);
    g.b = matrix(dtype, k, n, tb);
    g.c = normal(wgrad ? ZT_F32 : dtype, 2, (int64_t[]){m, n});
    if (strncmp(kind, "forward", 7) == 0)
        g.bias = normal(dtype, 1, &n);
    if (strcmp(kind, "forward,gelu") == 0) {
        g.epilogue = ZT_EPI_GELU_TANH;
        g.pre = take(dtype, 2, (int64_t[]){m, n});
    }
    g.rows_alone = strcmp(kind, "rows,alone") == 0;
    RUN(gemm, g);
    snprintf(name, sizeof(name), "gemm,%s %s %lldx%lldx%lld%s%s", kind,
             zt_dtype_name(dtype), (long long)m, (long long)k, (long long)n,
             ta ? ",a^T" : "", tb ? ",b^T" : "");
    RESULT(name, &g.c, &g.pre);
}

static void products(zt_dtype dtype)
{
    static const int64_t layers[][2] = {{768, 2304}, {768, 768}, {768, 3072}, {3072, 768},
                                        {2048, 512}, {896, 128}, {130, 77}};
    static const int64_t rows[] = {1, 100, 256, 1024};

    for (size_t i = 0; i < sizeof(layers) / sizeof(*layers); i++)
        for (size_t j = 0; j < sizeof(rows) / sizeof(*rows); j++) {
            int64_t k = layers[i][0], n = layers[i][1], t = rows[j];

            product(dtype, "forward", t, k, n, false, false);
            product(dtype, "forward", t, k, n, false, true);
            product(dtype, "forward,gelu", t, k, n, false, false);
            product(dtype, "rows,alone", t < 100 ? t : 8, k, n, false, true);
            product(dtype, "dgrad", t, n, k, false, true);
            product(dtype, "dgrad", t, n, k, false, false);
            product(dtype, "wgrad", k, t, n, true, false);
            product(dtype, "wgrad", n, t, k, true, false);
        }
    product(dtype, "head", 256, 768, 50257, false, true);
    product(dtype, "dgrad", 256, 50257, 768, false, false);
    product(dtype, "wgrad", 50257, 256, 768, true, false);
}

/* ---- attention ---- */

struct attention_case {
    int64_t queries, keys, heads, kv_heads, size, window;
    bool causal, bias;
    float dropout;
};

static void attention(zt_dtype dtype, const struct attention_case *c)
{
    const int64_t q[] = {2, c->queries, c->heads, c->size},
                  k[] = {2, c->keys, c->kv_heads, c->size},
                  lse[] = {2, c->heads, c->queries},
                  bias[] = {1, c->heads, c->queries, c->keys};
    struct zt_attention_bwd_args a = {.fwd = {.q = normal(dtype, 4, q),
                                              .k = normal(dtype, 4, k),
                                              .v = normal(dtype, 4, k),
                                              .out = take(dtype, 4, q),
                                              .lse = take(ZT_F32, 3, lse),
                                              .scale = 0.125f,
                                              .causal = c->causal,
                                              .window = c->window,
                                              .dropout = c->dropout,
                                              .rng = {1, 2, 3}}};
    char name[96];

    if (c->bias) {
        a.fwd.bias = normal(dtype, 4, bias);
        a.dbias = take(ZT_F32, 4, bias);
    }
    RUN(attention, a.fwd);
    a.dout = normal(dtype, 4, q);
    a.dq = take(dtype, 4, q);
    a.dk = take(dtype, 4, k);
    a.dv = take(dtype, 4, k);
    RUN(attention_bwd, a);
    snprintf(name, sizeof(name), "attention %s %lldx%lldx%lld/%lldx%lld%s%s%s%s",
             zt_dtype_name(dtype), (long long)c->queries, (long long)c->keys,
             (long long)c->heads, (long long)c->kv_heads, (long long)c->size,
             c->causal ? ",causal" : "", c->window ? ",window" : "",
             c->bias ? ",bias" : "", c->dropout > 0 ? ",dropout" : "");
    RESULT(name, &a.fwd.out, &a.fwd.lse, &a.dq, &a.dk, &a.dv, &a.dbias);
}

static void attentions(zt_dtype dtype)
{
    static const struct attention_case cases[] = {
        {300, 300, 4, 4, 64, 0, true, false, 0},
        {300, 300, 4, 4, 64, 0, true, false, 0.1f},
        {512, 512, 4, 2, 128, 0, true, false, 0},
        {512, 512, 4, 4, 64, 100, true, false, 0},
        {77, 130, 4, 4, 64, 0, false, true, 0},
        {1024, 1024, 2, 1, 80, 0, true, false, 0}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        attention(dtype, &cases[i]);
}

/* ---- the rest ---- */

static void rows(zt_dtype dtype)
{
    const int64_t shape[] = {200, 771}, n = 771, t = 200;
    struct zt_layernorm_args ln = {.x = normal(dtype, 2, shape),
                                   .w = normal(dtype, 1, &n),
                                   .b = normal(dtype, 1, &n),
                                   .y = take(dtype, 2, shape),
                                   .mean = take(ZT_F32, 1, &t),
                                   .rstd = take(ZT_F32, 1, &t),
                                   .eps = 1e-5f};
    struct zt_layernorm_bwd_args lnb = {normal(dtype, 2, shape),
                                        ln.x,
                                        ln.w,
                                        ln.mean,
                                        ln.rstd,
                                        take(dtype, 2, shape),
                                        take(ZT_F32, 1, &n),
                                        take(ZT_F32, 1, &n),
                                        false,
                                        false,
                                        false};
    struct zt_rmsnorm_args rms = {.x = ln.x,
                                  .w = ln.w,
                                  .y = take(dtype, 2, shape),
                                  .rstd = take(ZT_F32, 1, &t),
                                  .eps = 1e-5f};
    char name[96];

    RUN(layernorm, ln);
    RUN(layernorm_bwd, lnb);
    RUN(rmsnorm, rms);
    snprintf(name, sizeof(name), "norms %s 200x771", zt_dtype_name(dtype));
    RESULT(name, &ln.y, &ln.mean, &ln.rstd, &lnb.dx, &lnb.dw, &lnb.db, &rms.y, &rms.rstd);
}

static void activations(zt_dtype dtype)
{
    static const zt_unary kinds[] = {ZT_U_GELU_TANH, ZT_U_GELU_ERF, ZT_U_SILU, ZT_U_RELU,
                                     ZT_U_TANH};
    const int64_t shape[] = {100, 771};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        struct zt_unary_args f = {kinds[i], normal(dtype, 2, shape),
                                  take(dtype, 2, shape)};
        struct zt_unary_bwd_args b = {kinds[i], normal(dtype, 2, shape), f.x,
                                      take(dtype, 2, shape), false};
        char name[96];

        RUN(unary, f);
        RUN(unary_bwd, b);
        snprintf(name, sizeof(name), "activation,%d %s 100x771", (int)kinds[i],
                 zt_dtype_name(dtype));
        RESULT(name, &f.y, &b.dx);
    }
}

static void losses(zt_dtype dtype)
{
    const int64_t shape[] = {50, 5003}, t = 50;
    struct zt_cross_entropy_args ce = {.logits = normal(dtype, 2, shape),
                                       .targets = take(ZT_I32, 1, &t),
                                       .loss = take(ZT_F32, 0, NULL),
                                       .lse = take(ZT_F32, 1, &t),
                                       .ignore = -100};
    struct zt_softmax_args sm = {ce.logits, take(dtype, 2, shape)};
    char name[96];

    for (int i = 0; i < t; i++)
        ((int32_t *)ce.targets.data)[i] = i * 97 % 5003;
    RUN(cross_entropy, ce);
    RUN(softmax, sm);
    snprintf(name, sizeof(name), "loss,softmax %s 50x5003", zt_dtype_name(dtype));
    RESULT(name, &ce.loss, &ce.lse, &sm.y);
}

static void optimizer(void)
{
    static const float scale = 0.5f;
    const int64_t n = 10007;
    struct zt_adamw_args a = {.master = normal(ZT_F32, 1, &n),
                              .m = take(ZT_F32, 1, &n),
                              .v = take(ZT_F32, 1, &n),
                              .grad = normal(ZT_F32, 1, &n),
                              .param = take(ZT_BF16, 1, &n),
                              .grad_scale = &scale,
                              .lr = 1e-3f,
                              .lr_t = 1e-3f,
                              .vscale = 1,
                              .beta1 = 0.9f,
                              .beta2 = 0.999f,
                              .eps = 1e-8f,
                              .weight_decay = 0.1f,
                              .decoupled = true};

    for (int i = 0; i < 3; i++)
        RUN(adamw, a);
    RESULT("adamw f32 10007", &a.master, &a.m, &a.v, &a.param);
}

static void randoms(zt_dtype dtype)
{
    const int64_t n = 10007;
    struct zt_dropout_args d = {
        normal(dtype, 1, &n), take(dtype, 1, &n), 0.1f, {1, 2, 3}, false};
    char name[96];

    RUN(dropout, d);
    snprintf(name, sizeof(name), "random,dropout %s 10007", zt_dtype_name(dtype));
    RESULT(name, &d.x, &d.y);
}

int main(int argc, char **argv)
{
    static const zt_dtype types[] = {ZT_F32, ZT_BF16, ZT_F16};
    struct zt_fault fault;
    void *p;

    must(zt_cpu_backend.open(0, argc > 1 ? atoi(argv[1]) : 0, &dev, &fault), &fault);
    must(zt_cpu_backend.alloc(dev, MEMORY, &p, &fault), &fault);
    memory = p;
    if (argc > 2 && !(known = fopen(argv[2], "re"))) {
        fprintf(stderr, "bench_bits: cannot open %s\n", argv[2]);
        return 66;
    }
    setlinebuf(stdout);
    printf("# level %s; oneDNN %d.%d.%d; %s\n",
           zt_cpu_isa_name(zt_cpu_isa_of(zt_cpu_features())), dnnl_version()->major,
           dnnl_version()->minor, dnnl_version()->patch, zt_cpu_describe());
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        products(types[i]);
        attentions(types[i]);
        rows(types[i]);
        activations(types[i]);
        losses(types[i]);
        randoms(types[i]);
    }
    optimizer();
    if (known)
        printf("# %d of %d are other bits or missing, %d of them own\n", num_other,
               num_lines, num_wrong);
    if (known)
        fclose(known);
    zt_cpu_backend.free(dev, p, MEMORY);
    zt_cpu_backend.close(dev);
    return num_wrong != 0;
}
