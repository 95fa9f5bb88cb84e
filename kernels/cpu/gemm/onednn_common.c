#include "kernels/cpu/gemm/onednn_common.h"

#include <assert.h>
#include <stdint.h>

dnnl_status_t zt_onednn_make_attr(dnnl_primitive_attr_t *attr,
                                  const struct zt_onednn_matmul *matmul)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t st = dnnl_primitive_attr_create(attr);

    if (st == dnnl_success)
        st = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    if (st == dnnl_success && matmul->alpha != 1)
        st = zt_onednn_attr_alpha(*attr, &matmul->alpha);
    if (st == dnnl_success && matmul->accumulate) {
        st = dnnl_post_ops_create(&ops);
        if (st == dnnl_success)
            st = zt_onednn_append_sum(ops);
        if (st == dnnl_success)
            st = dnnl_primitive_attr_set_post_ops(*attr, ops);
        dnnl_post_ops_destroy(ops);
    }
    return st;
}

dnnl_status_t zt_onednn_execute(dnnl_engine_t engine, const_dnnl_primitive_t primitive,
                                dnnl_stream_t stream,
                                const struct zt_onednn_argument *arguments,
                                int num_arguments)
{
    dnnl_exec_arg_t arg[ZT_ONEDNN_MAX_ARGUMENTS] = {{0, NULL}};
    dnnl_status_t st = dnnl_success;
    int made = 0;

    assert(num_arguments <= ZT_ONEDNN_MAX_ARGUMENTS);
    for (int i = 0; i < num_arguments && st == dnnl_success; i++) {
        if (!arguments[i].desc)
            continue;
        arg[made] = (dnnl_exec_arg_t){arguments[i].name, NULL};
        st = dnnl_memory_create(&arg[made].memory, arguments[i].desc, engine,
                                (void *)(uintptr_t)arguments[i].data);
        made += st == dnnl_success;
    }
    if (st == dnnl_success)
        st = dnnl_primitive_execute(primitive, stream, made, arg);
    for (int i = 0; i < made; i++)
        dnnl_memory_destroy(arg[i].memory);
    return st;
}
