/* torch_write.c -- the zip archive of torch.save: values first, then tensor after tensor. */
#include "worker/torch_file/torch_write.h"

#include <stdio.h>
#include <stdlib.h>

#include "worker/torch_file/zip_write.h"

#define FOLDER "archive/"

struct zt_torch_writer {
    struct zt_zip_writer zip;
    int64_t *bytes; /* of each tensor */
    size_t num, next;
    int64_t left; /* of the tensor before `next` */
};

static zt_err put_member(struct zt_torch_writer *w, const char *name, const void *data,
                         size_t bytes, struct zt_fault *fault)
{
    zt_err rc = zt_zip_writer_begin(&w->zip, name, bytes, fault);

    return rc ? rc : zt_zip_writer_put(&w->zip, data, bytes, fault);
}

/* On to the next tensor that has data. */
static zt_err next_tensor(struct zt_torch_writer *w, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    while (!rc && w->left == 0 && w->next < w->num) {
        char name[48];

        snprintf(name, sizeof(name), FOLDER "data/%zu", w->next);
        w->left = w->bytes[w->next++];
        rc = zt_zip_writer_begin(&w->zip, name, (uint64_t)w->left, fault);
    }
    return rc;
}

static zt_err write_head(struct zt_torch_writer *w, const struct zt_torch_values *v,
                         struct zt_fault *fault)
{
    zt_err rc = put_member(w, FOLDER "data.pkl", zt_buf_head(&v->pickle),
                           zt_buf_used(&v->pickle), fault);

    if (!rc)
        rc = put_member(w, FOLDER "byteorder", "little", 6, fault);
    if (!rc)
        rc = put_member(w, FOLDER "version", "3\n", 2, fault);
    return rc ? rc : next_tensor(w, fault);
}

zt_err zt_torch_writer_open(const char *path, struct zt_torch_values *v,
                            struct zt_torch_writer **out, struct zt_fault *fault)
{
    struct zt_torch_writer *w = calloc(1, sizeof(*w));
    int64_t total = 0;
    zt_err rc;

    if (!v->error)
        v->error = zt_buf_put(&v->pickle, ".", 1);
    if (v->error || !w) {
        free(w);
        return zt_fault_set(fault, v->error ? v->error : ZT_E_NOMEM,
                            "%s: what is to be saved cannot be described: %s", path,
                            zt_err_name(v->error ? v->error : ZT_E_NOMEM));
    }
    for (size_t i = 0; i < v->num; i++)
        total += v->bytes[i] + 256;
    w->bytes = v->bytes;
    w->num = v->num;
    v->bytes = NULL;
    v->num = v->cap = 0;
    rc = zt_zip_writer_open(&w->zip, path, total + (int64_t)zt_buf_used(&v->pickle),
                            fault);
    if (!rc)
        rc = write_head(w, v, fault);
    if (rc) {
        zt_torch_writer_close(w);
        return rc;
    }
    *out = w;
    return ZT_OK;
}

zt_err zt_torch_writer_put(struct zt_torch_writer *w, const void *data, size_t bytes,
                           struct zt_fault *fault)
{
    const uint8_t *p = data;
    zt_err rc = ZT_OK;

    while (!rc && bytes > 0) {
        size_t n = bytes < (uint64_t)w->left ? bytes : (size_t)w->left;

        if (n == 0)
            return zt_fault_set(fault, ZT_E_ARG, "%s: more data than its tensors have",
                                w->zip.file.path);
        rc = zt_zip_writer_put(&w->zip, p, n, fault);
        p += n;
        bytes -= n;
        w->left -= (int64_t)n;
        if (!rc)
            rc = next_tensor(w, fault);
    }
    return rc;
}

zt_err zt_torch_writer_commit(struct zt_torch_writer *w, struct zt_fault *fault)
{
    if (w->left || w->next < w->num)
        return zt_fault_set(fault, ZT_E_ARG, "%s: data of its tensors never came",
                            w->zip.file.path);
    return zt_zip_writer_publish(&w->zip, fault);
}

void zt_torch_writer_close(struct zt_torch_writer *w)
{
    if (!w)
        return;
    zt_zip_writer_release(&w->zip);
    free(w->bytes);
    free(w);
}
