#include "worker/checkpoint/shard.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "worker/checkpoint/hf_folder.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/checksummed_json.h"

/* What is copied is hashed before it leaves the caches. */
#define IN_CACHE ((size_t)256 << 10)

struct zt_ckpt_shard_writer {
    char dir[PATH_MAX];
    int rank;
    struct zt_ckpt_tables tables;
    const struct zt_ckpt_part *parts;
    int64_t num_parts;
    struct zt_safetensors_writer *file;

    XXH3_state_t *hash; /* of the piece at hand */
    int64_t part;       /* at hand */
    int64_t part_left;  /* bytes of it still to come */
    int64_t piece_left; /* bytes of the piece still to come */
    char *hashes;       /* of the part's pieces so far, as text */
    size_t hashes_len;
    int64_t at; /* byte of the file where the part begins */
    json_t *list;
};

void zt_ckpt_shard_names(int rank, char file[ZT_CKPT_SHARD_NAME],
                         char index[ZT_CKPT_SHARD_NAME])
{
    snprintf(file, ZT_CKPT_SHARD_NAME, "zero_rank_%05d.safetensors", rank);
    snprintf(index, ZT_CKPT_SHARD_NAME, "zero_rank_%05d.json", rank);
}

static int64_t part_bytes(const struct zt_ckpt_shard_writer *w,
                          const struct zt_ckpt_part *p)
{
    return p->elems * (int64_t)zt_dtype_bytes(w->tables.kinds[p->kind].dtype);
}

/* ---- the safetensors file ---- */

static zt_err describe(const struct zt_ckpt_shard_writer *w, const struct zt_ckpt_part *p,
                       struct zt_safetensors_decl *d, struct zt_fault *fault)
{
    const struct zt_ckpt_kind *k = &w->tables.kinds[p->kind];
    const struct zt_ckpt_param *param = &w->tables.params[p->param];
    bool whole = p->elems == param->numel;
    char *name = NULL;
    int n =
        whole ? asprintf(&name, "%s/%s", k->name, param->name)
              : asprintf(&name, "%s/%s@%lld", k->name, param->name, (long long)p->first);

    if (n < 0)
        return zt_fault_set(fault, ZT_E_NOMEM, "checkpoint: no host memory");
    *d = (struct zt_safetensors_decl){
        .name = name,
        .dtype = k->dtype,
        .ndim = whole ? param->ndim : 1,
        .shape = whole ? param->shape : &p->elems,
    };
    return ZT_OK;
}

static zt_err open_file(struct zt_ckpt_shard_writer *w, struct zt_fault *fault)
{
    struct zt_safetensors_decl *decls = calloc((size_t)w->num_parts + 1, sizeof(*decls));
    char file[ZT_CKPT_SHARD_NAME], index[ZT_CKPT_SHARD_NAME], path[PATH_MAX];
    zt_err rc = decls && w->num_parts < INT_MAX
                    ? ZT_OK
                    : zt_fault_set(fault, ZT_E_NOMEM, "checkpoint: no host memory");

    zt_ckpt_shard_names(w->rank, file, index);
    snprintf(path, sizeof(path), "%s/%s", w->dir, file);
    for (int64_t i = 0; !rc && i < w->num_parts; i++)
        rc = describe(w, &w->parts[i], &decls[i], fault);
    if (!rc)
        rc = zt_safetensors_writer_open(path, decls, (int)w->num_parts, &w->file, fault);
    for (int64_t i = 0; decls && i < w->num_parts; i++)
        free((char *)decls[i].name);
    free(decls);
    return rc;
}

/* ---- pieces ---- */

/* The next part that has bytes; none: part == num_parts. */
static zt_err begin_part(struct zt_ckpt_shard_writer *w, struct zt_fault *fault)
{
    int64_t bytes;
    char *room;

    if (w->part == w->num_parts)
        return ZT_OK;
    bytes = part_bytes(w, &w->parts[w->part]);
    room =
        realloc(w->hashes, (size_t)(bytes / ZT_CKPT_PIECE_BYTES + 1) * ZT_HASH_TEXT + 1);
    if (!room)
        return zt_fault_set(fault, ZT_E_NOMEM, "checkpoint: no host memory");
    w->hashes = room;
    w->hashes_len = 0;
    w->part_left = bytes;
    w->piece_left = bytes < ZT_CKPT_PIECE_BYTES ? bytes : ZT_CKPT_PIECE_BYTES;
    XXH3_64bits_reset(w->hash);
    return ZT_OK;
}

static void end_piece(struct zt_ckpt_shard_writer *w)
{
    if (w->hashes_len)
        w->hashes[w->hashes_len++] = ' ';
    zt_hash_print(XXH3_64bits_digest(w->hash), w->hashes + w->hashes_len);
    w->hashes_len += ZT_HASH_TEXT - 1;
    w->piece_left =
        w->part_left < ZT_CKPT_PIECE_BYTES ? w->part_left : ZT_CKPT_PIECE_BYTES;
    XXH3_64bits_reset(w->hash);
}

static zt_err end_part(struct zt_ckpt_shard_writer *w, struct zt_fault *fault)
{
    const struct zt_ckpt_part *p = &w->parts[w->part++];
    json_t *one =
        json_pack("[i, i, I, I, I, s%]", p->kind, p->param, (json_int_t)p->first,
                  (json_int_t)p->elems, (json_int_t)w->at, w->hashes, w->hashes_len);

    w->at += part_bytes(w, p);
    if (json_array_append_new(w->list, one))
        return zt_fault_set(fault, ZT_E_NOMEM, "checkpoint: no host memory");
    return begin_part(w, fault);
}

static zt_err append(struct zt_ckpt_shard_writer *w, const void *data, size_t bytes,
                     bool lent, struct zt_fault *fault)
{
    const char *from = data;
    zt_err rc = ZT_OK;

    while (!rc && bytes > 0) {
        size_t n = bytes < (size_t)w->piece_left ? bytes : (size_t)w->piece_left;

        n = n < IN_CACHE ? n : IN_CACHE;
        rc = lent ? zt_safetensors_writer_lend(w->file, from, n, fault)
                  : zt_safetensors_writer_put(w->file, from, n, fault);
        if (rc)
            return rc;
        XXH3_64bits_update(w->hash, from, n);
        from += n;
        bytes -= n;
        w->piece_left -= (int64_t)n;
        w->part_left -= (int64_t)n;
        if (!w->piece_left)
            end_piece(w);
        if (!w->part_left)
            rc = end_part(w, fault);
    }
    return rc;
}

zt_err zt_ckpt_shard_put(struct zt_ckpt_shard_writer *w, const void *data, size_t bytes,
                         struct zt_fault *fault)
{
    return append(w, data, bytes, false, fault);
}

zt_err zt_ckpt_shard_lend(struct zt_ckpt_shard_writer *w, const void *data, size_t bytes,
                          struct zt_fault *fault)
{
    return append(w, data, bytes, true, fault);
}

/* ---- the whole ---- */

zt_err zt_ckpt_shard_open(const char *dir, int rank, const struct zt_ckpt_tables *tables,
                          const struct zt_ckpt_part *parts, int64_t num_parts,
                          struct zt_ckpt_shard_writer **out, struct zt_fault *fault)
{
    struct zt_ckpt_shard_writer *w = calloc(1, sizeof(*w));
    size_t header = 0;
    zt_err rc;

    if (w)
        w->hash = XXH3_createState();
    if (w)
        w->list = json_array();
    if (!w || !w->hash || !w->list) {
        zt_ckpt_shard_close(w);
        return zt_fault_set(fault, ZT_E_NOMEM, "checkpoint: no host memory");
    }
    snprintf(w->dir, sizeof(w->dir), "%s", dir);
    w->rank = rank;
    w->tables = *tables;
    w->parts = parts;
    w->num_parts = num_parts;
    rc = open_file(w, fault);
    if (!rc)
        rc = begin_part(w, fault);
    if (rc) {
        zt_ckpt_shard_close(w);
        return rc;
    }
    (void)zt_safetensors_writer_header(w->file, &header);
    w->at = (int64_t)header;
    *out = w;
    return ZT_OK;
}

static zt_err write_index(struct zt_ckpt_shard_writer *w, uint64_t *hash,
                          struct zt_fault *fault)
{
    char file[ZT_CKPT_SHARD_NAME], index[ZT_CKPT_SHARD_NAME], head_hash[ZT_HASH_TEXT];
    size_t header = 0, bytes = 0;
    const void *head = zt_safetensors_writer_header(w->file, &header);
    char *text = NULL;
    json_t *root;
    zt_err rc;

    zt_ckpt_shard_names(w->rank, file, index);
    zt_hash_print(zt_hash_bytes(head, header), head_hash);
    root = json_pack("{s:s, s:i, s:s, s:I, s:s, s:i, s:O}", "format", ZT_CKPT_SHARD,
                     "version", ZT_CKPT_VERSION, "file", file, "header_bytes",
                     (json_int_t)header, "header_xxh3", head_hash, "piece_bytes",
                     ZT_CKPT_PIECE_BYTES, "parts", w->list);
    if (!root)
        return zt_fault_set(fault, ZT_E_NOMEM, "checkpoint: no host memory");
    rc = zt_sealed_json_print(root, &text, &bytes, hash, fault);
    json_decref(root);
    if (!rc)
        rc = zt_hf_write_text(w->dir, index, text, fault);
    free(text);
    return rc;
}

zt_err zt_ckpt_shard_finish(struct zt_ckpt_shard_writer *w,
                            struct zt_ckpt_shard_made *made, struct zt_fault *fault)
{
    zt_err rc = zt_safetensors_writer_commit(w->file, fault);

    made->bytes = w->at;
    return rc ? rc : write_index(w, &made->index_hash, fault);
}

void zt_ckpt_shard_close(struct zt_ckpt_shard_writer *w)
{
    if (!w)
        return;
    zt_safetensors_writer_close(w->file);
    XXH3_freeState(w->hash);
    json_decref(w->list);
    free(w->hashes);
    free(w);
}
