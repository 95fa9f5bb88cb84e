/* state_copy.c -- state that this rank keeps, in and out as it is stored: checkpoints. */
#include "worker/zero/private.h"

zt_err zt_zero_settle(struct zt_zero *z, struct zt_fault *fault)
{
    return zt_publish_wait(z, NULL, fault);
}

zt_dtype zt_zero_dtype(const struct zt_zero *z, zt_state_kind kind)
{
    zt_dtype dtype = zt_state_dtype(z, kind);

    return dtype == ZT_REST16 ? ZT_F32 : dtype;
}

/* A shard, also of what every rank has whole: each rank has another part to write. */
void zt_zero_own_part(const struct zt_zero *z, const struct zt_param *p, int64_t *from,
                      int64_t *n)
{
    int64_t begin = zt_shard_begin(z, p->block) - p->offset_elems;
    int64_t end = begin + zt_shard_elems(z, p->block);

    begin = begin > 0 ? begin : 0;
    end = end < p->numel ? end : p->numel;
    *from = begin;
    *n = end > begin ? end - begin : 0;
}

/* Between host memory and one acquired piece. */
static zt_err copy_piece(struct zt_zero *z, struct zt_piece *piece, int64_t at, int64_t n,
                         char *host, zt_access access, struct zt_fault *fault)
{
    const struct zt_backend *be = z->cfg.backend;
    size_t bytes = (size_t)n * zt_dtype_bytes(piece->dtype);
    void *there = zt_piece_at(piece, at);
    zt_err rc = access == ZT_READ
                    ? be->download(z->cfg.device, NULL, host, there, bytes, fault)
                    : be->upload(z->cfg.device, NULL, there, host, bytes, fault);

    return rc ? rc : be->sync(z->cfg.device, NULL, fault);
}

zt_err zt_state_copy(struct zt_zero *z, zt_state_kind kind, const struct zt_block *b,
                     int64_t at, int64_t n, void *host, zt_access access,
                     struct zt_fault *fault)
{
    int64_t end = at + n, k;
    char *next = host;
    zt_err rc = ZT_OK;

    for (; !rc && at < end; at += k) {
        struct zt_piece piece;

        rc = zt_state_acquire_around(z, kind, b, at, end - at, access, &piece, fault);
        if (rc)
            return rc;
        k = piece.begin + piece.n < end ? piece.begin + piece.n - at : end - at;
        rc = copy_piece(z, &piece, at, k, next, access, fault);
        next += (size_t)k * zt_dtype_bytes(piece.dtype);
        rc = zt_state_commit(&piece, rc, fault);
    }
    return rc;
}

zt_err zt_zero_copy_out(struct zt_zero *z, zt_state_kind kind, const struct zt_param *p,
                        int64_t from, int64_t n, void *out, struct zt_fault *fault)
{
    const struct zt_block *b = p->block;
    int64_t at = p->offset_elems + from;

    return zt_is_split(z, kind, b)
               ? zt_split_load(z, b, at, n, out, fault)
               : zt_state_copy(z, kind, b, at, n, out, ZT_READ, fault);
}

zt_err zt_zero_copy_in(struct zt_zero *z, zt_state_kind kind, const struct zt_param *p,
                       int64_t from, int64_t n, const void *values,
                       struct zt_fault *fault)
{
    const struct zt_block *b = p->block;
    int64_t at = p->offset_elems + from;
    zt_err rc = zt_publish_finish(z, fault);

    if (rc)
        return rc;
    return zt_is_split(z, kind, b)
               ? zt_split_store(z, b, at, n, values, fault)
               : zt_state_copy(z, kind, b, at, n, (void *)values, ZT_WRITE, fault);
}
