/* Gradients of attention, rope, element by element ops and shapes, by finite differences.
 */
#include "test/unit/autograd/gradcheck.h"

/* ---- element by element: dim = rows, C ---- */

static int which;

static zt_tensor *run_unary(zt_step *s, zt_tensor **in)
{
    zt_tensor *(*const op[])(zt_step *, zt_tensor *) = {
        zt_gelu, zt_gelu_erf, zt_silu, zt_relu, zt_tanh, zt_softmax, zt_contiguous};

    if (which == 8) /* whatever the dtype: there and back */
        return zt_cast(s, zt_scale(s, zt_cast(s, in[0], ZT_F32), -1.75f),
                       zt_tensor_dtype(in[0]));
    return which == 7 ? zt_scale(s, in[0], -1.75f) : op[which](s, in[0]);
}

static double unary(double x)
{
    switch (which) {
    case 0:
        return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case 1:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case 2:
        return x / (1 + exp(-x));
    case 3:
        return x > 0 ? x : 0;
    case 4:
        return tanh(x);
    case 5:
        return exp(x);
    case 7:
    case 8:
        return -1.75 * x;
    default:
        return x;
    }
}

static void ref_unary(double *const *in, double *out)
{
    for (int64_t n = 0; n < dim[0]; n++) {
        double sum = 0;

        for (int64_t c = 0; c < dim[1]; c++)
            sum += out[n * dim[1] + c] = unary(in[0][n * dim[1] + c]);
        for (int64_t c = 0; c < dim[1] && which == 5; c++)
            out[n * dim[1] + c] /= sum;
    }
}

static void test_gradients_of_functions_of_one_value(void **state)
{
    (void)state;
    for (which = 0; which < 9; which++)
        TRIALS
        {
            struct op_check c = {
                .name = "unary", .num_in = 1, .run = run_unary, .ref = ref_unary};
            int64_t B = odd(3);

            dim[0] = B * odd(7);
            dim[1] = 1 + odd(17);
            c.in[0] = FLOATS(B, dim[0] / B, dim[1]);
            c.out_numel = dim[0] * dim[1];
            check_op(c);
        }
}

static bool repeated; /* b is a suffix of a */

static zt_tensor *run_binary(zt_step *s, zt_tensor **in)
{
    zt_tensor *(*const op[])(zt_step *, zt_tensor *, zt_tensor *) = {zt_add, zt_mul,
                                                                     zt_swiglu};

    return op[which](s, in[0], in[1]);
}

static void ref_binary(double *const *in, double *out)
{
    for (int64_t i = 0; i < dim[0] * dim[1]; i++) {
        double a = in[0][i], b = in[1][repeated ? i % dim[1] : i];

        out[i] = which == 0 ? a + b : which == 1 ? a * b : a / (1 + exp(-a)) * b;
    }
}

static void test_gradients_of_sums_and_products(void **state)
{
    (void)state;
    for (int k = 0; k < 5; k++)
        TRIALS
        {
            struct op_check c = {
                .name = "binary", .num_in = 2, .run = run_binary, .ref = ref_binary};

            which = k / 2;
            repeated = k % 2;
            dim[0] = odd(9);
            dim[1] = odd(17);
            c.in[0] = FLOATS(dim[0], dim[1]);
            c.in[1] = repeated ? FLOATS(dim[1]) : c.in[0];
            c.out_numel = dim[0] * dim[1];
            check_op(c);
        }
}

static zt_tensor *run_packed_swiglu(zt_step *s, zt_tensor **in)
{
    return zt_swiglu(s, zt_slice(s, in[0], -1, 0, dim[1]),
                     zt_slice(s, in[0], -1, dim[1], dim[1]));
}

static void ref_packed_swiglu(double *const *in, double *out)
{
    for (int64_t n = 0; n < dim[0]; n++)
        for (int64_t c = 0; c < dim[1]; c++) {
            double a = in[0][n * 2 * dim[1] + c], b = in[0][(n * 2 + 1) * dim[1] + c];

            out[n * dim[1] + c] = a / (1 + exp(-a)) * b;
        }
}

static void test_swiglu_gradient_of_a_packed_tensor(void **state)
{
    (void)state;
    TRIALS
    {
        struct op_check c = {.name = "swiglu",
                             .num_in = 1,
                             .run = run_packed_swiglu,
                             .ref = ref_packed_swiglu};

        dim[0] = 3 * odd(5);
        dim[1] = odd(11);
        c.in[0] = FLOATS(3, dim[0] / 3, 2 * dim[1]);
        c.out_numel = dim[0] * dim[1];
        check_op(c);
    }
}

/* ---- shapes ---- */

/* (A, B, C): turned, flattened (copied), cut and joined with an end of itself. */
static zt_tensor *run_shapes(zt_step *s, zt_tensor **in)
{
    zt_tensor *x = zt_transpose(s, in[0], 0, 2); /* (C, B, A) */
    zt_tensor *parts[3];

    parts[0] = zt_reshape(s, x, ZT_SHAPE(dim[2], -1));           /* (C, B*A) */
    parts[1] = zt_slice(s, parts[0], 1, 1, dim[0] * dim[1] - 1); /* all but a column */
    parts[2] = zt_slice(s, zt_reshape(s, x, ZT_SHAPE(dim[2], dim[1] * dim[0])), 1, 0, 1);
    return zt_concat(s, 1, parts, 3); /* (C, 2*B*A) */
}

static void ref_shapes(double *const *in, double *out)
{
    int64_t A = dim[0], B = dim[1], C = dim[2], W = 2 * A * B;

    for (int64_t c = 0; c < C; c++)
        for (int64_t j = 0; j < W; j++) {
            int64_t at = j < A * B ? j : j < W - 1 ? j - A * B + 1 : 0;

            out[c * W + j] = in[0][(at % A * B + at / A) * C + c];
        }
}

static void test_gradients_go_through_views_and_copies(void **state)
{
    (void)state;
    TRIALS
    {
        struct op_check c = {
            .name = "shapes", .num_in = 1, .run = run_shapes, .ref = ref_shapes};

        for (int i = 0; i < 3; i++)
            dim[i] = 1 + odd(5);
        c.in[0] = FLOATS(dim[0], dim[1], dim[2]);
        c.out_numel = 2 * dim[0] * dim[1] * dim[2];
        check_op(c);
    }
}

/* A value used whole, in part and through itself: gradients add up. */
static zt_tensor *run_fan_out(zt_step *s, zt_tensor **in)
{
    zt_tensor *x = zt_add(s, in[0], in[0]);
    zt_tensor *head = zt_slice(s, x, 1, 0, 1); /* reaches the gradient first, in part */
    zt_tensor *y = zt_mul(s, x, zt_add(s, x, in[0]));

    return zt_concat(s, 1, (zt_tensor *[]){y, x, zt_silu(s, head)}, 3);
}

static void ref_fan_out(double *const *in, double *out)
{
    int64_t C = dim[1], W = 2 * C + 1;

    for (int64_t n = 0; n < dim[0]; n++) {
        const double *x = in[0] + n * C;

        for (int64_t c = 0; c < C; c++) {
            out[n * W + c] = 2 * x[c] * 3 * x[c];
            out[n * W + C + c] = 2 * x[c];
        }
        out[n * W + 2 * C] = 2 * x[0] / (1 + exp(-2 * x[0]));
    }
}

static void test_gradients_add_up_over_fan_out(void **state)
{
    (void)state;
    TRIALS
    {
        struct op_check c = {
            .name = "fan-out", .num_in = 1, .run = run_fan_out, .ref = ref_fan_out};

        dim[0] = odd(7);
        dim[1] = odd(9);
        c.in[0] = FLOATS(dim[0], dim[1]);
        c.out_numel = dim[0] * (2 * dim[1] + 1);
        check_op(c);
    }
}

/* y hands one gradient to x and h; then x gets more, while h has not been played yet. */
static zt_tensor *run_shared(zt_step *s, zt_tensor **in)
{
    zt_tensor *h = zt_tanh(s, in[0]), *x = zt_silu(s, in[1]);
    zt_tensor *u = zt_mul(s, x, in[0]), *y = zt_add(s, x, h);

    return zt_concat(s, 0, (zt_tensor *[]){y, u}, 2);
}

static void ref_shared(double *const *in, double *out)
{
    for (int64_t i = 0; i < dim[0]; i++) {
        double x = in[1][i] / (1 + exp(-in[1][i]));

        out[i] = x + tanh(in[0][i]);
        out[dim[0] + i] = x * in[0][i];
    }
}

static void test_a_gradient_that_serves_two_values_is_not_written(void **state)
{
    (void)state;
    TRIALS
    {
        struct op_check c = {
            .name = "shared", .num_in = 2, .run = run_shared, .ref = ref_shared};

        dim[0] = odd(33);
        c.in[0] = c.in[1] = FLOATS(dim[0]);
        c.out_numel = 2 * dim[0];
        check_op(c);
    }
}

/* ---- rope: dim = B, T, H, D, rotary ---- */

static struct zt_rope rope;
static float inv_freq[16];
static bool own_positions; /* of each row, instead of 0, 1, ... in all */
static int32_t position[32];

static zt_tensor *run_rope(zt_step *s, zt_tensor **in)
{
    zt_tensor *at = own_positions
                        ? zt_constant(s, ZT_I32, ZT_SHAPE(dim[0], dim[1]), position)
                        : zt_positions(s, dim[1]);

    return zt_rope_apply(s, in[0], at, &rope);
}

static void ref_rope(double *const *in, double *out)
{
    int64_t half = dim[4] / 2;

    memcpy(out, in[0], (size_t)(dim[0] * dim[1] * dim[2] * dim[3]) * sizeof(double));
    for (int64_t row = 0; row < dim[0] * dim[1] * dim[2]; row++)
        for (int64_t i = 0; i < half; i++) {
            int64_t token = row / dim[2];
            double at = (double)(own_positions ? position[token] : token % dim[1]);
            double angle = at * (double)inv_freq[i];
            double m = rope.magnitude != 0 ? (double)rope.magnitude : 1;
            int64_t ia = row * dim[3] + (rope.interleaved ? 2 * i : i);
            int64_t ib = ia + (rope.interleaved ? 1 : half);
            double a = in[0][ia], b = in[0][ib];

            out[ia] = m * (a * cos(angle) - b * sin(angle));
            out[ib] = m * (b * cos(angle) + a * sin(angle));
        }
}

static void test_rope_gradients_half_and_interleaved(void **state)
{
    (void)state;
    for (int t = 0; t < 16; t++) {
        struct op_check c = {
            .name = "rope", .num_in = 1, .run = run_rope, .ref = ref_rope};

        memcpy(dim, (int64_t[]){odd(3), odd(7), odd(3), 2 * rnd_int(2, 6)},
               4 * sizeof(*dim));
        dim[4] = t & 2 ? dim[3] : dim[3] - 2;
        own_positions = t & 8;
        for (int64_t i = 0; i < dim[0] * dim[1]; i++)
            position[i] = (int32_t)rnd_int(0, dim[1] - 1);
        rope = ZT_ROPE(.inv_freq = inv_freq, .rotary_dims = (int)dim[4],
                       .interleaved = t & 1, .magnitude = t & 4 ? 1.25f : 0);
        zt_rope_frequencies(inv_freq, (int)dim[4], 100);
        c.in[0] = FLOATS(dim[0], dim[1], dim[2], dim[3]);
        c.out_numel = dim[0] * dim[1] * dim[2] * dim[3];
        check_op(c);
    }
}

/* ---- attention: dim = B, Tq, Tk, H, K, D ---- */

static struct zt_attention how;
static int bias_rows, bias_heads; /* of the bias; 0: none */
static bool packed;               /* q, k and v are slices of input 0 */
static bool limited;              /* queries see keys [key_begin, key_end) alone */
static int32_t key_begin[64], key_end[64];
static bool masked; /* key j of every row adds mask_of(j) */

static double mask_of(int64_t j)
{
    return j % 3 == 1 ? -1e30 : (double)(j % 4) / 4;
}

static zt_tensor *run_attention(zt_step *s, zt_tensor **in)
{
    struct zt_attention a = how;
    zt_tensor *q = in[0], *k = in[1], *v = in[2];

    if (packed) {
        q = zt_slice(s, in[0], 2, 0, dim[3]);
        k = zt_slice(s, in[0], 2, dim[3], dim[4]);
        v = zt_slice(s, in[0], 2, dim[3] + dim[4], dim[4]);
    }
    a.bias = bias_rows ? in[3] : NULL;
    if (limited) {
        a.key_begin = zt_constant(s, ZT_I32, ZT_SHAPE(dim[0], dim[1]), key_begin);
        a.key_end = zt_constant(s, ZT_I32, ZT_SHAPE(dim[0], dim[1]), key_end);
    }
    if (masked) {
        float values[32 * 32];

        for (int64_t i = 0; i < dim[1] * dim[2]; i++)
            values[i] = (float)mask_of(i % dim[2]);
        a.mask = zt_constant(s, ZT_F32, ZT_SHAPE(1, 1, dim[1], dim[2]), values);
    }
    return zt_attention(s, q, k, v, &a);
}

/* Element (b, t, h, d) of q (what 0), k (1) or v (2). */
static double element(double *const *in, int what, int64_t b, int64_t t, int64_t h,
                      int64_t d)
{
    int64_t T = what ? dim[2] : dim[1], H = what ? dim[4] : dim[3];

    if (!packed)
        return in[what][((b * T + t) * H + h) * dim[5] + d];
    h += what == 0 ? 0 : what == 1 ? dim[3] : dim[3] + dim[4];
    return in[0][((b * T + t) * (dim[3] + 2 * dim[4]) + h) * dim[5] + d];
}

static bool sees(int64_t b, int64_t i, int64_t j)
{
    int64_t end = i + dim[2] - dim[1], row = b * dim[1] + i;

    return (!how.causal || j <= end) && (!how.window || j > end - how.window) &&
           (!limited || (j >= key_begin[row] && j < key_end[row]));
}

static void attend(double *const *in, int64_t b, int64_t h, int64_t i, double *out)
{
    int64_t Tk = dim[2], D = dim[5], g = h * dim[4] / dim[3];
    double scale = how.scale != 0 ? (double)how.scale : 1 / sqrt((double)D), sum = 0;
    double p[32] = {0};

    for (int64_t j = 0; j < Tk; j++) {
        double score = 0;

        if (!sees(b, i, j))
            continue;
        for (int64_t d = 0; d < D; d++)
            score += element(in, 0, b, i, h, d) * element(in, 1, b, j, g, d) * scale;
        if (bias_rows)
            score +=
                in[3]
                  [(((bias_rows == 1 ? 0 : b) * bias_heads + (bias_heads == 1 ? 0 : h)) *
                        dim[1] +
                    i) *
                       Tk +
                   j];
        sum += p[j] = exp(score + (masked ? mask_of(j) : 0));
    }
    for (int64_t j = 0; j < Tk && sum > 0; j++)
        for (int64_t d = 0; d < D; d++)
            out[d] += p[j] / sum * element(in, 2, b, j, g, d);
}

static void ref_attention(double *const *in, double *out)
{
    for (int64_t b = 0; b < dim[0]; b++)
        for (int64_t i = 0; i < dim[1]; i++)
            for (int64_t h = 0; h < dim[3]; h++)
                attend(in, b, h, i, out + ((b * dim[1] + i) * dim[3] + h) * dim[5]);
}

static void check_attention(int64_t Tq, int64_t Tk, int64_t groups)
{
    struct op_check c = {.name = "attention",
                         .num_in = bias_rows ? 4
                                   : packed  ? 1
                                             : 3,
                         .run = run_attention,
                         .ref = ref_attention};
    int64_t B = 2, K = odd(3), D = 1 + odd(5);

    memcpy(dim, (int64_t[]){B, Tq, Tk, K * groups, K, D}, 6 * sizeof(*dim));
    c.in[0] = FLOATS(B, Tq, K * groups + (packed ? 2 * K : 0), D);
    c.in[1] = c.in[2] = FLOATS(B, Tk, K, D);
    bias_rows = bias_rows > 1 ? (int)B : bias_rows;
    bias_heads = bias_heads > 1 ? (int)(K * groups) : bias_heads;
    c.in[3] = FLOATS(bias_rows, bias_heads, Tq, Tk);
    c.out_numel = B * Tq * K * groups * D;
    check_op(c);
}

static void test_attention_gradients_full_causal_windowed_and_grouped(void **state)
{
    (void)state;
    bias_rows = bias_heads = 0;
    for (int t = 0; t < 12; t++) {
        int64_t T = 2 + odd(11); /* one key alone has no gradient */

        packed = t % 2;
        how = ZT_ATTENTION(.causal = t % 3 > 0, .scale = t % 4 ? 0 : 0.3f);
        if (t % 3 == 2)
            how.window = 3;
        check_attention(T, T, 1 + t / 4);
    }
    packed = false;
}

static void test_attention_gradients_with_fewer_queries_than_keys(void **state)
{
    (void)state;
    bias_rows = bias_heads = 0;
    for (int t = 0; t < 4; t++) {
        how = ZT_ATTENTION(.causal = t % 2);
        check_attention(odd(5), 5 + odd(5), 2);
    }
}

static void test_attention_gradients_reach_the_bias(void **state)
{
    (void)state;
    for (int t = 0; t < 8; t++) {
        how = ZT_ATTENTION(.causal = t % 2);
        bias_rows = 1 + t % 2;
        bias_heads = 1 + t / 2 % 2;
        masked = t >= 4;
        check_attention(5, 5, 2);
    }
    bias_rows = bias_heads = 0;
    masked = false;
}

/* Samples of 1 to 4 tokens in rows of 13. */
static void test_attention_gradients_of_samples_that_share_rows(void **state)
{
    enum { B = 2, T = 13 };

    (void)state;
    bias_rows = bias_heads = 0;
    limited = true;
    for (int t = 0; t < 8; t++) {
        for (int64_t b = 0; b < B; b++)
            for (int64_t i = 0, next = 0, first = 0; i < T; i++) {
                if (i == next) {
                    first = i;
                    next = i + rnd_int(1, 4);
                    next = next < T ? next : T;
                }
                key_begin[b * T + i] = (int32_t)first;
                key_end[b * T + i] = (int32_t)next;
            }
        packed = t & 1;
        bias_rows = bias_heads = !packed && t & 2;
        how = ZT_ATTENTION(.causal = t & 4, .window = t == 7 ? 2 : 0);
        check_attention(T, T, 1 + t / 4);
    }
    packed = limited = false;
    bias_rows = bias_heads = 0;
}

/* One tensor in all three places: three gradients of one memory. */
static zt_tensor *run_self(zt_step *s, zt_tensor **in)
{
    return zt_attention(s, in[0], in[0], in[0], &how);
}

static void ref_self(double *const *in, double *out)
{
    double *all[3] = {in[0], in[0], in[0]};

    ref_attention(all, out);
}

static void test_attention_gradient_when_q_k_and_v_are_one_tensor(void **state)
{
    struct op_check c = {
        .name = "self-attention", .num_in = 1, .run = run_self, .ref = ref_self};

    (void)state;
    how = ZT_ATTENTION(.causal = true);
    memcpy(dim, (int64_t[]){2, 7, 7, 3, 3, 5}, 6 * sizeof(*dim));
    c.in[0] = FLOATS(2, 7, 3, 5);
    c.out_numel = 2 * 7 * 3 * 5;
    check_op(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_of_functions_of_one_value),
        cmocka_unit_test(test_gradients_of_sums_and_products),
        cmocka_unit_test(test_swiglu_gradient_of_a_packed_tensor),
        cmocka_unit_test(test_gradients_go_through_views_and_copies),
        cmocka_unit_test(test_gradients_add_up_over_fan_out),
        cmocka_unit_test(test_a_gradient_that_serves_two_values_is_not_written),
        cmocka_unit_test(test_rope_gradients_half_and_interleaved),
        cmocka_unit_test(test_attention_gradients_full_causal_windowed_and_grouped),
        cmocka_unit_test(test_attention_gradients_with_fewer_queries_than_keys),
        cmocka_unit_test(test_attention_gradients_reach_the_bias),
        cmocka_unit_test(test_attention_gradients_of_samples_that_share_rows),
        cmocka_unit_test(test_attention_gradient_when_q_k_and_v_are_one_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
