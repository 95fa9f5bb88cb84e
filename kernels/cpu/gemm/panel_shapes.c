/* Which products are of packed panels: by shape, level of instructions and release of
 * oneDNN, so that ranks of a run choose alike. */
#include "kernels/cpu/gemm/call.h"
#include "kernels/cpu/gemm/onednn.h"
#include "kernels/cpu/gemm/panels.h"

/* rows and k */
#define LEAST      128
#define LEAST_ROWS 256
#define LEAST_COLS 256
#define FEW        512
#define DEEP       3072
#define MANY_ROWS  2048
#define PAGE       4096

static enum zt_panel_use use;

void zt_gemm_use_panels(enum zt_panel_use which)
{
    use = which;
}

/*
 * Whether they are faster than oneDNN, by shape. It packs few rows that are stored by rows
 * at less cost, and rows that are many for their k.
 */
static bool are_faster_by_avx2(const struct zt_gemm_call *k)
{
    int64_t rows = k->c.rows, depth = k->a.cols;
    int64_t least_rows = k->a.stride[1] == 1 ? LEAST : LEAST_ROWS;

    return rows >= least_rows && (depth >= FEW || rows < MANY_ROWS);
}

/* Whether lines of an operand, each of one value of k, are whole pages apart. */
static bool are_pages_apart(int64_t along, int64_t step)
{
    return along == 1 && step * (int64_t)sizeof(float) % PAGE == 0;
}

/*
 * With AVX-512 oneDNN is about as fast for few rows, few columns, and c by columns, but for lines
 * of k that are pages apart, and many k of b by columns in release 3. It is slower at all
 * else.
 */
static bool are_faster_by_avx512(const struct zt_gemm_call *k)
{
    bool by_columns = k->b.stride[2] == 1;
    int64_t rows = k->c.rows;

    if (rows < LEAST_ROWS)
        return false;
    if (are_pages_apart(k->b.stride[2], k->b.stride[1]) ||
        are_pages_apart(k->a.stride[1], k->a.stride[2]))
        return true;
    if (k->a.stride[1] == 1 && by_columns)
        return true;
    if (k->c.stride[2] == 1 && k->a.stride[2] == 1)
        return k->c.cols >= LEAST_COLS;
    return DNNL_VERSION_MAJOR >= 3 && by_columns && k->a.cols >= DEEP;
}

static bool are_faster(const struct zt_gemm_call *k)
{
    if (k->c.cols < LEAST || k->a.cols < LEAST)
        return false;
    return zt_cpu_features() & ZT_CPU_AVX512 ? are_faster_by_avx512(k)
                                             : are_faster_by_avx2(k);
}

/* Whether k of an operand follow each other, and lines begin with words of two. */
static bool are_words(const struct zt_gemm_mat *m, int k)
{
    return m->stride[k] == 1 && m->stride[3 - k] % 2 == 0;
}

/* Of bf16, rounded to it, of rows whose k follow each other. */
static bool are_pairs(const struct zt_gemm_call *k)
{
    return k->c.dtype == ZT_BF16 && k->c.stride[2] == 1 && !k->accumulate &&
           (!k->pre.data || (k->pre.dtype == ZT_BF16 && k->pre.stride[2] == 1)) &&
           k->a.stride[2] == 1 && k->a.cols > 1 &&
           (are_words(&k->b, 1) || k->b.stride[2] == 1);
}

/* Of bf16, a gradient of weights that has not more inputs than outputs. */
static bool is_gradient_of_pairs(const struct zt_gemm_call *k)
{
    return k->c.dtype == ZT_F32 && k->c.stride[2] == 1 && k->a.stride[1] == 1 &&
           k->a.cols % 2 == 0 && k->b.stride[2] == 1 && k->epilogue == ZT_EPI_NONE &&
           !k->bias && k->c.rows <= k->c.cols;
}

static bool suits_pairs(const struct zt_gemm_call *k)
{
    bool fits = k->c.batch == 1 && (are_pairs(k) || is_gradient_of_pairs(k));

    if (use == ZT_PANELS_NEVER || !fits || !zt_panel_kernels_of_pairs())
        return false;
    return use == ZT_PANELS_ALWAYS ||
           (k->c.rows >= LEAST_ROWS && k->c.cols >= LEAST_COLS && k->a.cols >= LEAST);
}

bool zt_gemm_suits_panels(const struct zt_gemm_call *k)
{
    if (k->a.dtype == ZT_BF16)
        return suits_pairs(k);
    bool plain = k->epilogue == ZT_EPI_NONE && !k->bias;
    bool by_rows = k->c.stride[2] == 1 && (!k->pre.data || k->pre.stride[2] == 1);

    return use != ZT_PANELS_NEVER && zt_panel_kernels() && k->a.dtype == ZT_F32 &&
           k->c.dtype == ZT_F32 && !k->tf32 && (plain || (by_rows && !k->accumulate)) &&
           (!k->pre.data || k->pre.dtype == ZT_F32) &&
           (use == ZT_PANELS_ALWAYS || are_faster(k));
}
