/* onednn2.c -- matrix products by oneDNN 2: descriptors are structs. */
#include "kernels/cpu/gemm/onednn_common.h"

#if DNNL_VERSION_MAJOR < 3

#include <stdlib.h>

struct zt_onednn_product {
    dnnl_engine_t engine;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    dnnl_memory_desc_t a, b, c, bias;
    const dnnl_memory_desc_t *scratch; /* of desc */
    bool has_bias;
};

void zt_onednn_free(struct zt_onednn_product *p)
{
    if (!p)
        return;
    dnnl_primitive_destroy(p->primitive);
    dnnl_primitive_desc_destroy(p->desc);
    free(p);
}

static dnnl_status_t describe(dnnl_memory_desc_t *md, const struct zt_onednn_matrix *m)
{
    return dnnl_memory_desc_init_by_strides(md, m->num_axes, m->dims, m->type,
                                            m->strides);
}

static dnnl_status_t describe_all(struct zt_onednn_product *p,
                                  const struct zt_onednn_matmul *matmul)
{
    dnnl_status_t st = describe(&p->a, &matmul->a);

    if (st == dnnl_success)
        st = describe(&p->b, &matmul->b);
    if (st == dnnl_success)
        st = describe(&p->c, &matmul->c);
    if (st == dnnl_success && matmul->has_bias)
        st = describe(&p->bias, &matmul->bias);
    return st;
}

dnnl_status_t zt_onednn_attr_alpha(dnnl_primitive_attr_t attr, const float *alpha)
{
    return dnnl_primitive_attr_set_output_scales(attr, 1, 0, alpha);
}

dnnl_status_t zt_onednn_append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1);
}

static dnnl_status_t make_primitive(struct zt_onednn_product *p,
                                    const struct zt_onednn_matmul *matmul)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_matmul_desc_t desc;
    dnnl_status_t st = describe_all(p, matmul);

    if (st == dnnl_success)
        st = zt_onednn_make_attr(&attr, matmul);
    if (st == dnnl_success)
        st = dnnl_matmul_desc_init(&desc, &p->a, &p->b,
                                   matmul->has_bias ? &p->bias : NULL, &p->c);
    if (st == dnnl_success)
        st = dnnl_primitive_desc_create(&p->desc, &desc, attr, p->engine, NULL);
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
    dnnl_status_t st;

    if (!p)
        return dnnl_out_of_memory;
    p->engine = engine;
    p->has_bias = matmul->has_bias;
    st = make_primitive(p, matmul);
    if (st == dnnl_success)
        *out = p;
    else
        zt_onednn_free(p);
    return st;
}

size_t zt_onednn_scratch_bytes(const struct zt_onednn_product *p)
{
    return dnnl_memory_desc_get_size(p->scratch);
}

dnnl_status_t zt_onednn_run(const struct zt_onednn_product *p, dnnl_stream_t stream,
                            const void *a, const void *b, const void *bias, void *c,
                            void *scratch)
{
    const struct zt_onednn_argument all[] = {
        {DNNL_ARG_SRC, &p->a, a},
        {DNNL_ARG_WEIGHTS, &p->b, b},
        {DNNL_ARG_DST, &p->c, c},
        {DNNL_ARG_SCRATCHPAD, p->scratch, scratch},
        {DNNL_ARG_BIAS, p->has_bias ? &p->bias : NULL, bias},
    };

    return zt_onednn_execute(p->engine, p->primitive, stream, all,
                             sizeof(all) / sizeof(all[0]));
}

#endif
