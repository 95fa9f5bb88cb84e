/*
 * onednn3.c -- matrix products by oneDNN 3: descriptors are handles, and alpha is the
 * scale of a, an argument of every call.
 *
 * oneDNN 3.7 computes wrong numbers where a is one row, or c one column, whose elements
 * are not neighbours: it takes them for neighbours. Such a vector is copied to and from
 * scratch, where they are.
 */
#include "kernels/cpu/gemm/onednn_common.h"

#if DNNL_VERSION_MAJOR >= 3

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Vectors whose elements are not neighbours: `batch` of them, of n elements each. */
struct spread {
    int64_t batch, n, from_vector, from_element; /* strides, in elements */
    size_t width;                                /* of an element; 0: there is none */
};

struct zt_onednn_product {
    dnnl_engine_t engine;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    dnnl_memory_desc_t a, b, c, bias, scale;
    const_dnnl_memory_desc_t scratch; /* of desc */
    struct spread spread_a, spread_c;
    bool accumulate;
    float alpha;
};

void zt_onednn_free(struct zt_onednn_product *p)
{
    dnnl_memory_desc_t md[5];

    if (!p)
        return;
    dnnl_primitive_destroy(p->primitive);
    dnnl_primitive_desc_destroy(p->desc);
    md[0] = p->a, md[1] = p->b, md[2] = p->c, md[3] = p->bias, md[4] = p->scale;
    for (int i = 0; i < 5; i++)
        if (md[i])
            dnnl_memory_desc_destroy(md[i]);
    free(p);
}

/* ---- vectors whose elements are not neighbours ---- */

/* Makes m describe vectors of neighbours if it is one line along `axis` of others. */
static struct spread gather_line(struct zt_onednn_matrix *m, int axis, int other)
{
    struct spread s = {.batch = m->num_axes == 3 ? m->dims[0] : 1,
                       .n = m->dims[axis],
                       .from_vector = m->num_axes == 3 ? m->strides[0] : 0,
                       .from_element = m->strides[axis]};

    if (m->dims[other] != 1 || s.n == 1 || s.from_element == 1)
        return s;
    s.width = m->type == dnnl_bf16 ? sizeof(uint16_t) : sizeof(float);
    m->strides[axis] = 1;
    m->strides[other] = axis > other ? s.n : 1;
    if (m->num_axes == 3)
        m->strides[0] = s.n;
    return s;
}

static size_t spread_bytes(const struct spread *s)
{
    return ((size_t)(s->batch * s->n) * s->width + 63) / 64 * 64;
}

static void copy_element(char *dst, const char *src, size_t width)
{
    if (width == sizeof(uint16_t))
        memcpy(dst, src, sizeof(uint16_t));
    else
        memcpy(dst, src, sizeof(float));
}

static void gather(const struct spread *s, char *dst, const char *src)
{
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t i = 0; i < s->n; i++) {
            int64_t at = b * s->from_vector + i * s->from_element;

            copy_element(dst, src + at * (int64_t)s->width, s->width);
            dst += s->width;
        }
}

static void scatter(const struct spread *s, char *dst, const char *src)
{
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t i = 0; i < s->n; i++) {
            int64_t at = b * s->from_vector + i * s->from_element;

            copy_element(dst + at * (int64_t)s->width, src, s->width);
            src += s->width;
        }
}

/* ---- making it ---- */

static dnnl_status_t describe(dnnl_memory_desc_t *md, const struct zt_onednn_matrix *m)
{
    return dnnl_memory_desc_create_with_strides(md, m->num_axes, m->dims, m->type,
                                                m->strides);
}

static dnnl_status_t describe_all(struct zt_onednn_product *p,
                                  const struct zt_onednn_matmul *matmul)
{
    const struct zt_onednn_matrix one = {1, dnnl_f32, {1}, {1}};
    dnnl_status_t st = describe(&p->a, &matmul->a);

    if (st == dnnl_success)
        st = describe(&p->b, &matmul->b);
    if (st == dnnl_success)
        st = describe(&p->c, &matmul->c);
    if (st == dnnl_success && matmul->has_bias)
        st = describe(&p->bias, &matmul->bias);
    if (st == dnnl_success && matmul->alpha != 1)
        st = describe(&p->scale, &one);
    return st;
}

dnnl_status_t zt_onednn_attr_alpha(dnnl_primitive_attr_t attr, const float *alpha)
{
    (void)alpha; /* an argument of every call */
    return dnnl_primitive_attr_set_scales_mask(attr, DNNL_ARG_SRC, 0);
}

dnnl_status_t zt_onednn_append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
}

static dnnl_status_t make_primitive(struct zt_onednn_product *p,
                                    const struct zt_onednn_matmul *matmul)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t st = describe_all(p, matmul);

    if (st == dnnl_success)
        st = zt_onednn_make_attr(&attr, matmul);
    if (st == dnnl_success)
        st = dnnl_matmul_primitive_desc_create(&p->desc, p->engine, p->a, p->b, p->bias,
                                               p->c, attr);
    if (st == dnnl_success)
        st = dnnl_primitive_create(&p->primitive, p->desc);
    dnnl_primitive_attr_destroy(attr);
    if (st == dnnl_success)
        p->scratch = dnnl_primitive_desc_query_md(p->desc, dnnl_query_scratchpad_md, 0);
    return st;
}

dnnl_status_t zt_onednn_make(dnnl_engine_t engine, const struct zt_onednn_matmul *matmul,
                             struct zt_onednn_product **out)
{
    struct zt_onednn_product *p = calloc(1, sizeof(*p));
    struct zt_onednn_matmul gathered = *matmul;
    int row = matmul->a.num_axes - 2, col = row + 1;
    dnnl_status_t st;

    if (!p)
        return dnnl_out_of_memory;
    p->engine = engine;
    p->alpha = matmul->alpha;
    p->accumulate = matmul->accumulate;
    p->spread_a = gather_line(&gathered.a, col, row);
    p->spread_c = gather_line(&gathered.c, row, col);
    st = make_primitive(p, &gathered);
    if (st == dnnl_success)
        *out = p;
    else
        zt_onednn_free(p);
    return st;
}

size_t zt_onednn_scratch_bytes(const struct zt_onednn_product *p)
{
    return spread_bytes(&p->spread_a) + spread_bytes(&p->spread_c) +
           dnnl_memory_desc_get_size(p->scratch);
}

/* ---- running it ---- */

static dnnl_status_t run_primitive(const struct zt_onednn_product *p,
                                   dnnl_stream_t stream, const void *a, const void *b,
                                   const void *bias, void *c, void *scratch)
{
    const struct zt_onednn_argument all[] = {
        {DNNL_ARG_SRC, p->a, a},
        {DNNL_ARG_WEIGHTS, p->b, b},
        {DNNL_ARG_DST, p->c, c},
        {DNNL_ARG_SCRATCHPAD, p->scratch, scratch},
        {DNNL_ARG_BIAS, p->bias, bias},
        {DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, p->scale, &p->alpha},
    };

    return zt_onednn_execute(p->engine, p->primitive, stream, all,
                             sizeof(all) / sizeof(all[0]));
}

dnnl_status_t zt_onednn_run(const struct zt_onednn_product *p, dnnl_stream_t stream,
                            const void *a, const void *b, const void *bias, void *c,
                            void *scratch)
{
    char *room_a = scratch, *room_c = room_a + spread_bytes(&p->spread_a);
    void *spread_c = p->spread_c.width ? c : NULL;
    dnnl_status_t st;

    scratch = room_c + spread_bytes(&p->spread_c);
    if (p->spread_a.width) {
        gather(&p->spread_a, room_a, a);
        a = room_a;
    }
    if (spread_c) {
        if (p->accumulate)
            gather(&p->spread_c, room_c, c);
        c = room_c;
    }
    st = run_primitive(p, stream, a, b, bias, c, scratch);
    if (st == dnnl_success && spread_c)
        scatter(&p->spread_c, spread_c, room_c);
    return st;
}

#endif
