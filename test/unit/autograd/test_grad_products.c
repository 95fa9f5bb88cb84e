/* Gradients of products, lookups, norms and losses against finite differences. */
#include "test/unit/autograd/gradcheck.h"

static double gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_erf(double x)
{
    return 0.5 * x * (1 + erf(x / sqrt(2)));
}

/* ---- linear: dim = rows, in, out; x viewed as (1, rows, in) ---- */

static unsigned linear_flags;
static bool linear_bias;

static zt_tensor *run_linear(zt_step *s, zt_tensor **in)
{
    return zt_linear(s, in[0], in[1], linear_bias ? in[2] : NULL, linear_flags);
}

static void ref_linear(double *const *in, double *out)
{
    int64_t N = dim[0], I = dim[1], O = dim[2];

    for (int64_t n = 0; n < N; n++)
        for (int64_t o = 0; o < O; o++) {
            double sum = linear_bias ? in[2][o] : 0;

            for (int64_t i = 0; i < I; i++)
                sum += in[0][n * I + i] *
                       (linear_flags & ZT_W_IN_OUT ? in[1][i * O + o] : in[1][o * I + i]);
            if (linear_flags & ZT_GELU_TANH)
                sum = gelu_tanh(sum);
            if (linear_flags & ZT_GELU_ERF)
                sum = gelu_erf(sum);
            out[n * O + o] = sum;
        }
}

static void test_linear_gradients_of_both_layouts_and_epilogues(void **state)
{
    const unsigned flags[] = {0,
                              ZT_W_IN_OUT,
                              ZT_GELU_TANH,
                              ZT_W_IN_OUT | ZT_GELU_TANH,
                              ZT_GELU_ERF,
                              ZT_W_IN_OUT | ZT_GELU_ERF};

    (void)state;
    for (int f = 0; f < 12; f++) {
        struct op_check c = {.name = "linear",
                             .num_in = f < 6 ? 3 : 2,
                             .run = run_linear,
                             .ref = ref_linear};
        int64_t N = odd(9), I = odd(11), O = odd(13);

        linear_flags = flags[f % 6];
        linear_bias = f < 6;
        memcpy(dim, (int64_t[]){N, I, O}, 3 * sizeof(*dim));
        c.in[0] = FLOATS(1, N, I);
        c.in[1] = linear_flags & ZT_W_IN_OUT ? FLOATS(I, O) : FLOATS(O, I);
        c.in[2] = FLOATS(O);
        c.out_numel = N * O;
        check_op(c);
    }
}

/* ---- a product behind a SwiGLU: dim = rows, inner, out ---- */

static zt_tensor *run_gated(zt_step *s, zt_tensor **in)
{
    zt_tensor *x = zt_swiglu(s, in[0], in[1]);

    return zt_linear(s, x, in[2], NULL, linear_flags);
}

static void ref_gated(double *const *in, double *out)
{
    int64_t N = dim[0], F = dim[1], O = dim[2];

    for (int64_t n = 0; n < N; n++)
        for (int64_t o = 0; o < O; o++)
            for (int64_t f = 0; f < F; f++) {
                double g = in[0][n * F + f],
                       w = in[2][linear_flags ? f * O + o : o * F + f];

                out[n * O + o] += g / (1 + exp(-g)) * in[1][n * F + f] * w;
            }
}

static void test_gradients_go_through_a_swiglu_into_its_gate(void **state)
{
    (void)state;
    for (int t = 0; t < 8; t++) {
        struct op_check c = {
            .name = "gated", .num_in = 3, .run = run_gated, .ref = ref_gated};
        int64_t N = odd(9), F = odd(11), O = odd(13);

        linear_flags = t % 2 ? ZT_W_IN_OUT : 0;
        memcpy(dim, (int64_t[]){N, F, O}, 3 * sizeof(*dim));
        c.in[0] = c.in[1] = FLOATS(1, N, F);
        c.in[2] = linear_flags ? FLOATS(F, O) : FLOATS(O, F);
        c.out_numel = N * O;
        check_op(c);
    }
}

/* ---- matmul: dim = batch, M, K, N ---- */

static bool matmul_turned; /* b comes as (batch, N, K) and is transposed first */

static zt_tensor *run_matmul(zt_step *s, zt_tensor **in)
{
    return zt_matmul(s, in[0], matmul_turned ? zt_transpose(s, in[1], -1, -2) : in[1]);
}

static void ref_matmul(double *const *in, double *out)
{
    int64_t M = dim[1], K = dim[2], N = dim[3];

    for (int64_t b = 0; b < dim[0]; b++)
        for (int64_t m = 0; m < M; m++)
            for (int64_t n = 0; n < N; n++)
                for (int64_t k = 0; k < K; k++)
                    out[(b * M + m) * N + n] +=
                        in[0][(b * M + m) * K + k] *
                        in[1][matmul_turned ? (b * N + n) * K + k : (b * K + k) * N + n];
}

static void test_matmul_gradients_batched_and_turned(void **state)
{
    (void)state;
    for (int t = 0; t < 8; t++) {
        struct op_check c = {
            .name = "matmul", .num_in = 2, .run = run_matmul, .ref = ref_matmul};
        int64_t B = t % 4 ? odd(5) : 1, M = odd(7), K = odd(9), N = odd(7);

        matmul_turned = t % 2;
        memcpy(dim, (int64_t[]){2 * B, M, K, N}, 4 * sizeof(*dim));
        c.in[0] = FLOATS(2, B, M, K);
        c.in[1] = matmul_turned ? FLOATS(2, B, N, K) : FLOATS(2, B, K, N);
        c.out_numel = 2 * B * M * N;
        check_op(c);
    }
}

/* ---- embedding: dim = ids, V, C ---- */

static zt_tensor *run_embedding(zt_step *s, zt_tensor **in)
{
    return zt_embedding(s, in[0], in[1]);
}

static void ref_embedding(double *const *in, double *out)
{
    for (int64_t n = 0; n < dim[0]; n++)
        for (int64_t c = 0; c < dim[2]; c++)
            out[n * dim[2] + c] = in[1][(int64_t)in[0][n] * dim[2] + c];
}

static void test_embedding_gradient_adds_up_repeated_ids(void **state)
{
    (void)state;
    TRIALS
    {
        struct op_check c = {
            .name = "embedding", .num_in = 2, .run = run_embedding, .ref = ref_embedding};
        int64_t B = odd(5), T = odd(7), V = odd(9), C = odd(11);

        memcpy(dim, (int64_t[]){B * T, V, C}, 3 * sizeof(*dim));
        c.in[0] = IDS(V, B, T);
        c.in[1] = FLOATS(V, C);
        c.out_numel = B * T * C;
        check_op(c);
    }
}

/* ---- norms: dim = rows, C ---- */

static bool norm_bias;
static unsigned rms_flags;

static zt_tensor *run_layernorm(zt_step *s, zt_tensor **in)
{
    return zt_layernorm(s, in[0], in[1], norm_bias ? in[2] : NULL, 1e-5f);
}

static void ref_layernorm(double *const *in, double *out)
{
    int64_t C = dim[1];

    for (int64_t n = 0; n < dim[0]; n++) {
        const double *x = in[0] + n * C;
        double mean = 0, var = 0;

        for (int64_t c = 0; c < C; c++)
            mean += x[c] / (double)C;
        for (int64_t c = 0; c < C; c++)
            var += (x[c] - mean) * (x[c] - mean) / (double)C;
        for (int64_t c = 0; c < C; c++)
            out[n * C + c] = (x[c] - mean) / sqrt(var + (double)1e-5f) * in[1][c] +
                             (norm_bias ? in[2][c] : 0);
    }
}

static zt_tensor *run_rmsnorm(zt_step *s, zt_tensor **in)
{
    return zt_rmsnorm(s, in[0], in[1], 1e-5f, rms_flags);
}

static void ref_rmsnorm(double *const *in, double *out)
{
    int64_t C = dim[1];

    for (int64_t n = 0; n < dim[0]; n++) {
        const double *x = in[0] + n * C;
        double mean = 0;

        for (int64_t c = 0; c < C; c++)
            mean += x[c] * x[c] / (double)C;
        for (int64_t c = 0; c < C; c++)
            out[n * C + c] =
                x[c] / sqrt(mean + (double)1e-5f) * (in[1][c] + (rms_flags ? 1 : 0));
    }
}

/*
 * The norm of a sum times the sum, so that gradients come back through both results.
 * turned: the second term is (C, rows) in memory.
 */
static bool turned;

static zt_tensor *second(zt_step *s, zt_tensor *y)
{
    return turned ? zt_transpose(s, y, 0, 1) : y;
}

static zt_tensor *run_add_layernorm(zt_step *s, zt_tensor **in)
{
    zt_tensor *sum, *y = zt_add_layernorm(s, in[0], second(s, in[1]), in[2],
                                          norm_bias ? in[3] : NULL, 1e-5f, &sum);

    return zt_mul(s, y, sum);
}

static zt_tensor *run_add_rmsnorm(zt_step *s, zt_tensor **in)
{
    zt_tensor *sum,
        *y = zt_add_rmsnorm(s, in[0], second(s, in[1]), in[2], 1e-5f, rms_flags, &sum);

    return zt_mul(s, y, sum);
}

static void times_sum(void (*norm)(double *const *, double *), double *const *in,
                      double *out)
{
    int64_t n = dim[0] * dim[1];
    double *sum = calloc((size_t)n, sizeof(double));

    for (int64_t i = 0; i < n; i++)
        sum[i] = in[0][i] + in[1][turned ? i % dim[1] * dim[0] + i / dim[1] : i];
    norm((double *[]){sum, in[2], in[3]}, out);
    for (int64_t i = 0; i < n; i++)
        out[i] *= sum[i];
    free(sum);
}

static void ref_add_layernorm(double *const *in, double *out)
{
    times_sum(ref_layernorm, in, out);
}

static void ref_add_rmsnorm(double *const *in, double *out)
{
    times_sum(ref_rmsnorm, in, out);
}

static void test_norm_of_a_sum_gradients(void **state)
{
    (void)state;
    for (int t = 0; t < 8; t++) {
        struct op_check c = {
            .name = "add_layernorm", .run = run_add_layernorm, .ref = ref_add_layernorm};
        int64_t B = odd(5), N = odd(7), C = 2 + odd(19);

        norm_bias = t % 2;
        rms_flags = t % 2 ? ZT_RMS_ADD_ONE : 0;
        memcpy(dim, (int64_t[]){B * N, C}, 2 * sizeof(*dim));
        turned = t % 4 >= 2;
        c.in[0] = turned ? FLOATS(B * N, C) : FLOATS(B, N, C);
        c.in[1] = turned ? FLOATS(C, B * N) : c.in[0];
        c.in[2] = c.in[3] = FLOATS(C);
        c.num_in = norm_bias ? 4 : 3;
        c.out_numel = B * N * C;
        if (t >= 4) {
            c.name = "add_rmsnorm";
            c.num_in = 3;
            c.run = run_add_rmsnorm;
            c.ref = ref_add_rmsnorm;
        }
        check_op(c);
    }
}

static void test_norm_gradients(void **state)
{
    (void)state;
    for (int t = 0; t < 8; t++) {
        struct op_check c = {
            .name = "layernorm", .run = run_layernorm, .ref = ref_layernorm};
        int64_t B = odd(5), N = odd(7), C = 2 + odd(19);

        norm_bias = t % 2;
        rms_flags = t % 2 ? ZT_RMS_ADD_ONE : 0;
        memcpy(dim, (int64_t[]){B * N, C}, 2 * sizeof(*dim));
        c.in[0] = FLOATS(B, N, C);
        c.in[1] = FLOATS(C);
        c.in[2] = FLOATS(C);
        c.num_in = norm_bias ? 3 : 2;
        c.out_numel = B * N * C;
        if (t >= 4) {
            c.name = "rmsnorm";
            c.num_in = 2;
            c.run = run_rmsnorm;
            c.ref = ref_rmsnorm;
        }
        check_op(c);
    }
}

/* ---- losses ---- */

static zt_tensor *run_cross_entropy(zt_step *s, zt_tensor **in)
{
    return zt_cross_entropy(s, in[0], in[1]);
}

static void ref_cross_entropy(double *const *in, double *out)
{
    for (int64_t n = 0; n < dim[0]; n++) {
        double sum = 0;

        if (in[1][n] < 0)
            continue;
        for (int64_t v = 0; v < dim[1]; v++)
            sum += exp(in[0][n * dim[1] + v]);
        out[0] += log(sum) - in[0][n * dim[1] + (int64_t)in[1][n]];
    }
}

static void test_cross_entropy_gradient_leaves_ignored_rows_out(void **state)
{
    (void)state;
    TRIALS
    {
        struct op_check c = {.name = "cross_entropy",
                             .num_in = 2,
                             .run = run_cross_entropy,
                             .ref = ref_cross_entropy,
                             .out_numel = 1,
                             .is_loss = true};
        int64_t B = odd(5), T = odd(7), V = 2 + odd(33);

        memcpy(dim, (int64_t[]){B * T, V}, 2 * sizeof(*dim));
        c.in[0] = FLOATS(B, T, V);
        c.in[1] = TARGETS(V, B, T);
        check_op(c);
    }
}

static zt_tensor *run_squared_error(zt_step *s, zt_tensor **in)
{
    return zt_squared_error(s, in[0], in[1]);
}

static void ref_squared_error(double *const *in, double *out)
{
    for (int64_t i = 0; i < dim[0]; i++)
        out[0] += (in[0][i] - in[1][i]) * (in[0][i] - in[1][i]);
}

static void test_squared_error_gradients_of_both_sides(void **state)
{
    (void)state;
    TRIALS
    {
        struct op_check c = {.name = "squared_error",
                             .num_in = 2,
                             .run = run_squared_error,
                             .ref = ref_squared_error,
                             .out_numel = 1,
                             .is_loss = true};

        dim[0] = odd(99);
        c.in[0] = c.in[1] = FLOATS(dim[0]);
        check_op(c);
    }
}

/* ---- head: dim = rows, C, V ---- */

static zt_tensor *run_head(zt_step *s, zt_tensor **in)
{
    return zt_lm_head(s, in[0], in[1], in[2]);
}

static void ref_head(double *const *in, double *out)
{
    double logits[64];

    for (int64_t n = 0; n < dim[0]; n++) {
        double sum = 0;

        if (in[2][n] < 0)
            continue;
        for (int64_t v = 0; v < dim[2]; v++) {
            logits[v] = 0;
            for (int64_t c = 0; c < dim[1]; c++)
                logits[v] += in[0][n * dim[1] + c] * in[1][v * dim[1] + c];
            sum += exp(logits[v]);
        }
        out[0] += log(sum) - logits[(int64_t)in[2][n]];
    }
}

static void test_lm_head_gradients(void **state)
{
    (void)state;
    TRIALS
    {
        struct op_check c = {.name = "lm_head",
                             .num_in = 3,
                             .run = run_head,
                             .ref = ref_head,
                             .out_numel = 1,
                             .is_loss = true};
        int64_t B = odd(3), T = odd(7), C = odd(9), V = 2 + odd(33);

        memcpy(dim, (int64_t[]){B * T, C, V}, 3 * sizeof(*dim));
        c.in[0] = FLOATS(B, T, C);
        c.in[1] = FLOATS(V, C);
        c.in[2] = TARGETS(V, B, T);
        check_op(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear_gradients_of_both_layouts_and_epilogues),
        cmocka_unit_test(test_gradients_go_through_a_swiglu_into_its_gate),
        cmocka_unit_test(test_matmul_gradients_batched_and_turned),
        cmocka_unit_test(test_embedding_gradient_adds_up_repeated_ids),
        cmocka_unit_test(test_norm_gradients),
        cmocka_unit_test(test_norm_of_a_sum_gradients),
        cmocka_unit_test(test_cross_entropy_gradient_leaves_ignored_rows_out),
        cmocka_unit_test(test_squared_error_gradients_of_both_sides),
        cmocka_unit_test(test_lm_head_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
