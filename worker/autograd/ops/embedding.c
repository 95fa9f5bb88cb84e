/* embedding.c -- rows of a table by number. */
#include "worker/autograd/tape.h"

static void embedding_backward(struct zt_step *s, struct zt_node *n)
{
    struct zt_embedding_bwd_args a = {.ids = zt_data(n->saved[0])};
    struct zt_view dy = zt_grad_of(n->out);
    struct zt_grad_sink d;

    if (!zt_grad_sink_open_adding(s, &d, n->in[0], ZT_SINK_F32))
        return;
    a.ids = zt_view_of(a.ids.data, ZT_I32, 1, (int64_t[]){zt_view_numel(&a.ids)});
    a.dtable = d.view;
    a.dy = zt_view_of(dy.data, dy.dtype, 2, (int64_t[]){a.ids.shape[0], d.view.shape[1]});
    zt_step_check(s, s->k->embedding_bwd(s->cfg.device, NULL, &a, &s->fault));
    zt_grad_sink_close(s, &d);
}

static const struct zt_op op_embedding = {"embedding", embedding_backward};

zt_tensor *zt_embedding(zt_step *s, zt_tensor *ids, zt_tensor *table)
{
    struct zt_embedding_args a;
    struct zt_view shape;
    struct zt_tensor *y;

    if (!ZT_OP_START(s, "embedding", ids, table))
        return NULL;
    if (ids->view.dtype != ZT_I32 || ids->view.ndim >= ZT_MAX_NDIM ||
        table->view.ndim != 2 || table->view.dtype > ZT_F16)
        return zt_step_fail(s, ZT_E_ARG, "ids %s %s and table %s %s", ZT_SHAPE_TEXT(ids),
                            zt_dtype_name(ids->view.dtype), ZT_SHAPE_TEXT(table),
                            zt_dtype_name(table->view.dtype));
    if (!zt_view_is_contiguous(&ids->view))
        return zt_step_fail(s, ZT_E_ARG, "ids %s must be row-major", ZT_SHAPE_TEXT(ids));
    shape = ids->view;
    shape.shape[shape.ndim++] = table->view.shape[1];
    table = zt_dense(s, table);
    y = table ? zt_value_new(s, table->view.dtype, shape.ndim, shape.shape) : NULL;
    if (!y)
        return NULL;
    a.ids =
        zt_view_of(zt_data(ids).data, ZT_I32, 1, (int64_t[]){zt_view_numel(&ids->view)});
    a.table = zt_data(table);
    a.y = zt_view_of(zt_data(y).data, y->view.dtype, 2,
                     (int64_t[]){a.ids.shape[0], table->view.shape[1]});
    zt_step_check(s, s->k->embedding(s->cfg.device, NULL, &a, &s->fault));
    return zt_record(s, &op_embedding, y, &table, 1, &ids, 1, NULL, 0);
}
