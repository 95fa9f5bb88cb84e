/*
 * safetensors_write.c -- the streaming writer of safetensors files.
 *
 * Shapes are known before data, so the header is written first, at its final length, and
 * the data follow as they come. It is written with the first of them: until then a large
 * file takes no buffers, and a folder has many of those open. The header is padded with spaces to a multiple of 8, in a large file
 * to whole pages, so that the data of the first tensor are aligned.
 */
#include <endian.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "worker/checkpoint/atomic_file.h"
#include "worker/checkpoint/safetensors.h"

struct zt_safetensors_writer {
    struct zt_atomic_file file;
    char *header;
    size_t header_bytes;
    bool header_is_written;
    int64_t bytes_left; /* data bytes still to come */
};

static const struct {
    const char *name;
    int64_t bytes;
} stored[ZT_NUM_DTYPE] = {
    [ZT_F32] = {"F32", 4}, [ZT_BF16] = {"BF16", 2}, [ZT_F16] = {"F16", 2},
    [ZT_I32] = {"I32", 4}, [ZT_I64] = {"I64", 8},   [ZT_U8] = {"U8", 1},
};

zt_err zt_safetensors_decl_bytes(const struct zt_safetensors_decl *d, int64_t *out,
                                 struct zt_fault *fault)
{
    bool good = (unsigned)d->dtype < ZT_NUM_DTYPE && d->ndim >= 0;
    int64_t bytes = good ? stored[d->dtype].bytes : 0;

    for (int i = 0; good && i < d->ndim; i++)
        good = d->shape[i] >= 0 && !__builtin_mul_overflow(bytes, d->shape[i], &bytes);
    if (!good)
        return zt_fault_set(fault, ZT_E_ARG, "tensor %s: a bad dtype or shape", d->name);
    *out = bytes;
    return ZT_OK;
}

/* {"dtype":..,"shape":[..],"data_offsets":[at, at + bytes]}; NULL: no memory */
static json_t *describe(const struct zt_safetensors_decl *d, int64_t at, int64_t bytes)
{
    json_int_t begin = at, end = at + bytes;
    json_t *shape = json_array(), *o;
    bool whole = shape;

    for (int i = 0; i < d->ndim; i++)
        whole = !json_array_append_new(shape, json_integer(d->shape[i])) && whole;
    o = json_pack("{s:s, s:o, s:[I, I]}", "dtype", stored[d->dtype].name, "shape", shape,
                  "data_offsets", begin, end);
    if (!whole) {
        json_decref(o);
        o = NULL;
    }
    return o;
}

static zt_err add_tensor(json_t *header, const struct zt_safetensors_decl *d, int64_t *at,
                         struct zt_fault *fault)
{
    int64_t bytes = 0;
    json_t *entry;
    zt_err rc = zt_safetensors_decl_bytes(d, &bytes, fault);

    if (rc)
        return rc;
    if (json_object_get(header, d->name))
        return zt_fault_set(fault, ZT_E_ARG, "tensor %s: declared twice, or reserved",
                            d->name);
    /* a name that is no UTF-8 is refused here */
    entry = describe(d, *at, bytes);
    if (!entry)
        return zt_fault_set(fault, ZT_E_NOMEM, "safetensors header: no memory");
    if (json_object_set_new(header, d->name, entry))
        return zt_fault_set(fault, ZT_E_ARG, "tensor %s: its name cannot be stored",
                            d->name);
    if (__builtin_add_overflow(*at, bytes, at))
        return zt_fault_set(fault, ZT_E_ARG, "tensor %s: the file gets too large",
                            d->name);
    return ZT_OK;
}

/* The length word and the padded header as one allocation. */
static zt_err serialise(const json_t *header, size_t align, char **out, size_t *out_bytes,
                        struct zt_fault *fault)
{
    size_t n = json_dumpb(header, NULL, 0, JSON_COMPACT);
    size_t padded = (8 + n + align - 1) / align * align - 8;
    uint64_t word = htole64(padded);
    char *all = n ? malloc(8 + padded) : NULL;

    if (all) {
        memcpy(all, &word, 8);
        memset(all + 8, ' ', padded);
    }
    if (all && json_dumpb(header, all + 8, padded, JSON_COMPACT) != n) {
        free(all);
        all = NULL;
    }
    if (!all)
        return zt_fault_set(fault, ZT_E_NOMEM, "safetensors header: no memory");
    *out = all;
    *out_bytes = 8 + padded;
    return ZT_OK;
}

/* Of the data, in the file. */
static size_t align_of(int64_t data_bytes)
{
    size_t align = zt_atomic_file_align(data_bytes);

    return align < 8 ? 8 : align;
}

static zt_err make_header(const struct zt_safetensors_decl *decls, int num_decls,
                          char **out, size_t *out_bytes, int64_t *data_bytes,
                          struct zt_fault *fault)
{
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    zt_err rc = ZT_OK;

    if (!header)
        return zt_fault_set(fault, ZT_E_NOMEM, "safetensors header: no memory");
    *data_bytes = 0;
    for (int i = 0; !rc && i < num_decls; i++)
        rc = add_tensor(header, &decls[i], data_bytes, fault);
    if (!rc)
        rc = serialise(header, align_of(*data_bytes), out, out_bytes, fault);
    json_decref(header);
    return rc;
}

zt_err zt_safetensors_writer_open(const char *path,
                                  const struct zt_safetensors_decl *decls, int num_decls,
                                  struct zt_safetensors_writer **out,
                                  struct zt_fault *fault)
{
    struct zt_safetensors_writer *w = calloc(1, sizeof(*w));
    zt_err rc;

    if (!w)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", path);
    w->file.fd = -1;
    rc = make_header(decls, num_decls, &w->header, &w->header_bytes, &w->bytes_left,
                     fault);
    if (!rc)
        rc = zt_atomic_file_open(&w->file, path, (int64_t)w->header_bytes + w->bytes_left,
                                 fault);
    if (rc) {
        zt_safetensors_writer_close(w);
        return rc;
    }
    *out = w;
    return ZT_OK;
}

const void *zt_safetensors_writer_header(const struct zt_safetensors_writer *w,
                                         size_t *bytes)
{
    *bytes = w->header_bytes;
    return w->header;
}

static zt_err write_header(struct zt_safetensors_writer *w, struct zt_fault *fault)
{
    if (w->header_is_written)
        return ZT_OK;
    w->header_is_written = true;
    return zt_atomic_file_write(&w->file, w->header, w->header_bytes, fault);
}

static zt_err append(struct zt_safetensors_writer *w, const void *data, size_t bytes,
                     bool lent, struct zt_fault *fault)
{
    zt_err rc;

    if (bytes > (uint64_t)w->bytes_left)
        return zt_fault_set(fault, ZT_E_ARG,
                            "%s: %zu bytes of data where %lld are still to come",
                            w->file.path, bytes, (long long)w->bytes_left);
    rc = write_header(w, fault);
    if (!rc)
        rc = lent ? zt_atomic_file_lend(&w->file, data, bytes, fault)
                  : zt_atomic_file_write(&w->file, data, bytes, fault);
    if (!rc)
        w->bytes_left -= (int64_t)bytes;
    return rc;
}

zt_err zt_safetensors_writer_put(struct zt_safetensors_writer *w, const void *data,
                                 size_t bytes, struct zt_fault *fault)
{
    return append(w, data, bytes, false, fault);
}

zt_err zt_safetensors_writer_lend(struct zt_safetensors_writer *w, const void *data,
                                  size_t bytes, struct zt_fault *fault)
{
    return append(w, data, bytes, true, fault);
}

/* All data came; of a file without any the header is still to be written. */
static zt_err make_whole(struct zt_safetensors_writer *w, struct zt_fault *fault)
{
    if (w->bytes_left)
        return zt_fault_set(fault, ZT_E_ARG, "%s: %lld bytes of data never came",
                            w->file.path, (long long)w->bytes_left);
    return write_header(w, fault);
}

zt_err zt_safetensors_writer_sync(struct zt_safetensors_writer *w, struct zt_fault *fault)
{
    zt_err rc = make_whole(w, fault);

    return rc ? rc : zt_atomic_file_sync(&w->file, fault);
}

zt_err zt_safetensors_writer_commit(struct zt_safetensors_writer *w,
                                    struct zt_fault *fault)
{
    zt_err rc = make_whole(w, fault);

    return rc ? rc : zt_atomic_file_publish(&w->file, fault);
}

void zt_safetensors_writer_close(struct zt_safetensors_writer *w)
{
    if (!w)
        return;
    zt_atomic_file_release(&w->file);
    free(w->header);
    free(w);
}
