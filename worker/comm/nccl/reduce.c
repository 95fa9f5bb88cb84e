/*
 * reduce.c -- sums and maxima over ranks in memory of a device.
 *
 * Floats are summed in rank order in fp32 and rounded once, as everywhere (comm.h), which
 * NCCL's own reductions do not do. So NCCL moves and the backend's rank_sum adds: every
 * rank gets its slice from all of them, a row of the staging memory each, in pieces.
 *
 *      send of rank 0  | slice 0 | slice 1 |
 *      send of rank 1  | slice 0 | slice 1 |
 *           ->  stage of rank 1  | slice 1 of rank 0 |
 *                                | slice 1 of rank 1 |
 *
 * An all_reduce does that for a window of `world` slices at a time, then gathers what was
 * summed. The volume is that of a ring, and no piece waits for another: they follow each
 * other on one stream, since a sum takes a small part of the time of the transfer.
 *
 * In place: a slice is overwritten after it was sent, and where recv lies in slice 0 or
 * the rank's own it is behind, or at, what was sent.
 */
#include "worker/comm/nccl/engine.h"

#include <assert.h>

#define ALIGN_BYTES 16u /* of a row: what vector loads want */

zt_err zt_nccl_rank_sum(struct zt_nccl_group *s, const struct zt_comm_call *call,
                        const void *rows, int num_rows, size_t row_elems, void *out,
                        size_t count, struct zt_fault *fault)
{
    const struct zt_nccl_family *f = s->family;
    const int64_t n = (int64_t)count, shape[2] = {num_rows, n};
    struct zt_rank_sum_args args = {
        .x = zt_view_of((void *)rows, call->dtype, 2, shape),
        .y = zt_view_of(out, call->dtype, 1, &n),
        .scale = call->scale,
    };

    args.x.stride[0] = (int64_t)row_elems;
    return f->be->kernels->rank_sum(f->dev, f->stream, &args, fault);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* `count` elements from `at` of the slice that begins at send + r * slice_bytes, for
 * every rank r: my rows into the staging memory, their sum into out. */
static zt_err sum_piece(struct zt_nccl_group *s, const struct zt_comm_call *call,
                        const char *send, size_t slice_bytes, void *out, size_t count,
                        struct zt_fault *fault)
{
    struct zt_nccl_family *f = s->family;
    size_t bytes = count * zt_dtype_bytes(call->dtype);
    size_t row = (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    zt_err rc = zt_nccl_begin(f, fault);

    if (!rc)
        rc = zt_nccl_end(s, zt_comm_op_name(call->op),
                         f->nccl->all_to_all(s->comm, f->native, send, slice_bytes,
                                             f->stage, row, bytes),
                         fault);
    if (!rc)
        rc = zt_nccl_rank_sum(s, call, f->stage, s->world,
                              row / zt_dtype_bytes(call->dtype), out, count, fault);
    return rc;
}

/* Elements of a row, so that the rows of all ranks fit into the staging memory. */
static size_t row_elems(const struct zt_nccl_group *s, size_t elem)
{
    return s->family->stage_bytes / (size_t)s->world / ALIGN_BYTES * ALIGN_BYTES / elem;
}

static zt_err ordered_reduce_scatter(struct zt_nccl_group *s,
                                     const struct zt_comm_call *call,
                                     struct zt_fault *fault)
{
    size_t elem = zt_dtype_bytes(call->dtype), per = row_elems(s, elem), n;
    zt_err rc = ZT_OK;

    for (size_t at = 0; !rc && at < call->count; at += n) {
        n = least(call->count - at, per);
        rc = sum_piece(s, call, (const char *)call->send + at * elem, call->count * elem,
                       (char *)call->recv + at * elem, n, fault);
    }
    return rc;
}

/* `count` elements, too few to cut: everybody gets all and adds all. */
static zt_err sum_whole(struct zt_nccl_group *s, const struct zt_comm_call *call,
                        const void *send, void *recv, size_t count,
                        struct zt_fault *fault)
{
    struct zt_nccl_family *f = s->family;
    zt_err rc = zt_nccl_begin(f, fault);

    if (!rc)
        rc = zt_nccl_end(s, zt_comm_op_name(call->op),
                         f->nccl->all_gather(s->comm, f->native, send, f->stage,
                                             count * zt_dtype_bytes(call->dtype)),
                         fault);
    return rc ? rc
              : zt_nccl_rank_sum(s, call, f->stage, s->world, count, recv, count, fault);
}

/* A window of a slice per rank, of `n` elements each. */
static zt_err sum_window(struct zt_nccl_group *s, const struct zt_comm_call *call,
                         const char *send, char *recv, size_t n, struct zt_fault *fault)
{
    struct zt_nccl_family *f = s->family;
    size_t bytes = n * zt_dtype_bytes(call->dtype);
    char *mine = recv + (size_t)s->rank * bytes;
    zt_err rc = sum_piece(s, call, send, bytes, mine, n, fault);

    if (!rc)
        rc = zt_nccl_begin(f, fault);
    if (rc)
        return rc;
    return zt_nccl_end(s, zt_comm_op_name(call->op),
                       f->nccl->all_gather(s->comm, f->native, mine, recv, bytes), fault);
}

/* What a call may be without being cut; ranks alike. */
#define WHOLE_BYTES ((size_t)64 << 10)

static zt_err ordered_all_reduce(struct zt_nccl_group *s, const struct zt_comm_call *call,
                                 struct zt_fault *fault)
{
    size_t world = (size_t)s->world, elem = zt_dtype_bytes(call->dtype);
    size_t step = ALIGN_BYTES / elem, per = row_elems(s, elem) / step * step, n;
    zt_err rc = ZT_OK;

    for (size_t at = 0; !rc && at < call->count; at += n) {
        const char *send = (const char *)call->send + at * elem;
        char *recv = (char *)call->recv + at * elem;
        size_t left = call->count - at, slice = least(left / world / step * step, per);

        n = slice * world;
        if (!slice || left * elem * world <= WHOLE_BYTES) {
            n = left;
            assert(n * elem * world <= s->family->stage_bytes);
            rc = sum_whole(s, call, send, recv, n, fault);
        } else {
            rc = sum_window(s, call, send, recv, slice, fault);
        }
    }
    return rc;
}

/* As NCCL does it: integers, whose sums do not depend on an order, and floats on request.
 */
static zt_err plain_reduce(struct zt_nccl_group *s, const struct zt_comm_call *call,
                           struct zt_fault *fault)
{
    struct zt_nccl_family *f = s->family;
    struct zt_nccl_reduction how = {.dtype = call->dtype,
                                    .max = call->reduce == ZT_MAX,
                                    .scatter = call->op == ZT_COMM_REDUCE_SCATTER,
                                    .count = call->count};
    size_t bytes = call->count * zt_dtype_bytes(call->dtype);
    int64_t n = (int64_t)call->count;
    char *recv = call->recv;
    zt_err rc = zt_nccl_begin(f, fault);

    /* NCCL has one in-place form: with send == recv the sum is made there first */
    if (how.scatter && call->send == call->recv)
        recv += (size_t)s->rank * bytes;
    if (!rc)
        rc = zt_nccl_end(s, zt_comm_op_name(call->op),
                         f->nccl->reduce(s->comm, f->native, call->send, recv, &how),
                         fault);
    if (!rc && recv != call->recv)
        rc = f->be->copy(f->dev, f->stream, call->recv, recv, bytes, fault);
    if (!rc && call->scale != 1) {
        struct zt_axpby_args args = {.x = zt_view_of(call->recv, call->dtype, 1, &n),
                                     .alpha = call->scale};

        args.y = args.x;
        rc = f->be->kernels->axpby(f->dev, f->stream, &args, fault);
    }
    return rc;
}

zt_err zt_nccl_reduce(struct zt_nccl_group *s, const struct zt_comm_call *call,
                      struct zt_fault *fault)
{
    if (call->dtype > ZT_F16 || !s->family->ordered)
        return plain_reduce(s, call, fault);
    return call->op == ZT_COMM_ALL_REDUCE ? ordered_all_reduce(s, call, fault)
                                          : ordered_reduce_scatter(s, call, fault);
}
