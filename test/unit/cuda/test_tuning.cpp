/* Choices of products: found, kept as text, taken again, and refused when damaged. */
#include "test/unit/cuda/device_test.h"

#include <vector>

#include "kernels/cuda/cuda.h"

static struct zt_device *dev;

static int open_device(void **)
{
    return zt_cuda_backend.open(0, 1, &dev, NULL);
}

static int close_device(void **)
{
    zt_cuda_backend.close(dev);
    return 0;
}

#define M 24
#define N 40
#define K 48

static struct zt_view matrix(zt_dtype dtype, int64_t rows, int64_t cols)
{
    const int64_t shape[2] = {rows, cols};

    return zt_view_of(managed<uint32_t>((size_t)(rows * cols), 0), dtype, 2, shape);
}

static void fill(const struct zt_view *v, uint64_t seed)
{
    struct zt_random_args r = {};
    struct zt_fault fault = {};

    r.y = *v;
    r.normal = true;
    r.b = 1;
    r.rng.seed = seed;
    if (zt_cuda_random(dev, NULL, &r, &fault) != ZT_OK)
        fail_msg("%s", fault.text);
}

/* A product of each kind that a step has: plain, into fp32 with a sum, with a bias and a
 * GELU, backward of a SwiGLU. */
#define KINDS 4
static struct zt_gemm_args product(int kind)
{
    struct zt_gemm_args g = {};
    const int64_t n = N;

    g.a = matrix(ZT_BF16, M, K);
    g.b = matrix(ZT_BF16, K, N);
    g.c = matrix(kind == 1 ? ZT_F32 : ZT_BF16, M, N);
    g.alpha = 1;
    if (kind == 1)
        g.b_sum = zt_view_of(managed<float>(N, 0), ZT_F32, 1, &n);
    if (kind == 2) {
        g.bias = zt_view_of(managed<uint32_t>(N, 0), ZT_BF16, 1, &n);
        g.pre = matrix(ZT_BF16, M, N);
        g.epilogue = ZT_EPI_GELU_TANH;
    }
    if (kind == 3) {
        g.epilogue = ZT_EPI_SWIGLU_BWD;
        g.gate = matrix(ZT_BF16, M, N);
        g.up = matrix(ZT_BF16, M, N);
        g.dgate = matrix(ZT_BF16, M, N);
        fill(&g.gate, 3);
        fill(&g.up, 4);
    }
    fill(&g.a, 1);
    fill(&g.b, 2);
    return g;
}

/* The text of tuning all kinds. */
static std::string tuned(const char *known)
{
    struct zt_gemm_args all[KINDS];
    struct zt_fault fault = {};
    char *text = NULL;
    std::string out;

    for (int i = 0; i < KINDS; i++)
        all[i] = product(i);
    if (zt_cuda_backend.tune(dev, all, KINDS, known, &text, &fault) != ZT_OK)
        fail_msg("%s", fault.text);
    out = text;
    free(text);
    return out;
}

static std::vector<char> run(int kind)
{
    struct zt_gemm_args g = product(kind);
    struct zt_fault fault = {};
    const char *at = static_cast<const char *>(g.c.data);

    if (zt_cuda_gemm(dev, NULL, &g, &fault) != ZT_OK ||
        zt_cuda_backend.sync(dev, NULL, &fault) != ZT_OK)
        fail_msg("%s", fault.text);
    return std::vector<char>(at, at + M * N * zt_dtype_bytes(g.c.dtype));
}

static void test_choices_are_taken_again_from_their_text(void **)
{
    std::string text = tuned(NULL), again = tuned(text.c_str());
    struct zt_fault fault = {};
    std::vector<char> bits[KINDS];

    assert_string_equal(text.c_str(), again.c_str());
    for (int i = 0; i < KINDS; i++)
        bits[i] = run(i);
    assert_int_equal(zt_cuda_backend.use_tuning(dev, text.c_str(), &fault), ZT_OK);
    for (int i = 0; i < KINDS; i++)
        assert_true(bits[i] == run(i));
}

static void test_what_is_known_is_not_timed_again(void **)
{
    std::string text = tuned(NULL);
    size_t second = text.find('\n', text.find('\n') + 1);
    std::string less = text.substr(0, second + 1), again = tuned(less.c_str());

    assert_int_equal(again.compare(0, less.size(), less), 0);
    assert_true(again.size() == text.size() || again.size() > less.size());
}

static void refuse(const std::string &text, zt_err want, const char *said)
{
    struct zt_fault fault = {};

    assert_int_equal(zt_cuda_backend.use_tuning(dev, text.c_str(), &fault), want);
    expect_part(fault.text, said);
}

static void test_other_devices_and_other_texts_are_refused(void **)
{
    std::string text = tuned(NULL);

    refuse("", ZT_E_CONFIG, "the tuning of products is of \"\"");
    refuse("x" + text, ZT_E_CONFIG, "name another file by --product_tuning");
    refuse(text + "1 2 3\n", ZT_E_FORMAT, "is none of its lines");
    refuse(text.substr(0, text.size() - 3), ZT_E_FORMAT, "is none of its lines");
}

/* Whatever byte is another: a code and a reason, or choices. */
static void test_changed_bytes_are_choices_or_refused(void **)
{
    std::string text = tuned(NULL);
    uint64_t x = 88172645463325252u; /* xorshift */
    int accepted = 0;

    for (int i = 0; i < 2000; i++) {
        std::string other = text;
        struct zt_fault fault = {};

        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        other[x % other.size()] =
            (char)(i % 2 ? '0' + (x >> 32) % 10 : 1 + (x >> 32) % 126);
        if (i % 7 == 0)
            other.resize(x % other.size());
        if (zt_cuda_backend.use_tuning(dev, other.c_str(), &fault) == ZT_OK)
            accepted++;
        else if (strlen(fault.text) < 10)
            fail_msg("no reason for %s", other.c_str());
    }
    assert_true(accepted > 100);
    refuse("", ZT_E_CONFIG, "the tuning of products");
}

/* The address of a run says how its memory is aligned, and nothing is accessed there. */
static void test_operands_are_not_touched(void **)
{
    struct zt_gemm_args g = product(0);
    struct zt_fault fault = {};
    char *text = NULL;

    g.a.data = (void *)(uintptr_t)256;
    g.b.data = (void *)(uintptr_t)(256 + 8);
    g.c.data = (void *)(uintptr_t)(256 + 2);
    if (zt_cuda_backend.tune(dev, &g, 1, NULL, &text, &fault) != ZT_OK)
        fail_msg("%s", fault.text);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choices_are_taken_again_from_their_text),
        cmocka_unit_test(test_what_is_known_is_not_timed_again),
        cmocka_unit_test(test_other_devices_and_other_texts_are_refused),
        cmocka_unit_test(test_changed_bytes_are_choices_or_refused),
        cmocka_unit_test(test_operands_are_not_touched),
    };

    return cmocka_run_group_tests(tests, open_device, close_device);
}
