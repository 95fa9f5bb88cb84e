/* Which products in fp32 are of packed panels: by shape, level of instructions and release of
 * oneDNN, so that ranks of a run choose alike. */
#include "kernels/cpu/gemm/call.h"
#include "kernels/cpu/gemm/onednn.h"
#include "kernels/cpu/gemm/panels.h"

/* rows and k */
#define LEAST      128
#define LEAST_ROWS 256
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
 * With AVX-512 it is about as fast but for lines of k that are pages apart, and gradients of
 * weights: in release 2 of few rows of a batch, or of many inputs. Release 3 is slower at all
 * of them, and where many k follow each other in rows of a.
 */
static bool are_faster_by_avx512(const struct zt_gemm_call *k)
{
    bool by_columns = k->b.stride[2] == 1, transposed = k->a.stride[1] == 1 && by_columns;
    int64_t rows = k->c.rows, depth = k->a.cols;

    if (rows < LEAST_ROWS)
        return false;
    if (are_pages_apart(k->b.stride[2], k->b.stride[1]) ||
        are_pages_apart(k->a.stride[1], k->a.stride[2]))
        return true;
    if (DNNL_VERSION_MAJOR >= 3)
        return transposed || (by_columns && depth >= DEEP);
    return transposed && (depth < FEW || rows >= MANY_ROWS);
}

static bool are_faster(const struct zt_gemm_call *k)
{
    if (k->c.cols < LEAST || k->a.cols < LEAST)
        return false;
    return zt_cpu_features() & ZT_CPU_AVX512 ? are_faster_by_avx512(k)
                                             : are_faster_by_avx2(k);
}

bool zt_gemm_suits_panels(const struct zt_gemm_call *k)
{
    bool plain = k->epilogue == ZT_EPI_NONE && !k->bias;
    bool by_rows = k->c.stride[2] == 1 && (!k->pre.data || k->pre.stride[2] == 1);

    return use != ZT_PANELS_NEVER && zt_panel_kernels() && k->a.dtype == ZT_F32 &&
           k->c.dtype == ZT_F32 && !k->tf32 && (plain || (by_rows && !k->accumulate)) &&
           (!k->pre.data || k->pre.dtype == ZT_F32) &&
           (use == ZT_PANELS_ALWAYS || are_faster(k));
}
