/*
 * zip_write.c -- members, then the central directory.
 *
 *      local header (30) | name | 64-bit sizes (20, large members) | filler | data
 *
 * The filler is an extra field of id "FB", as PyTorch writes it.
 */
#include "worker/torch_file/zip_write.h"

#include <endian.h>
#include <string.h>

#define ALIGNMENT     64
#define LARGE         UINT64_C(0xffffffff)
#define MAX_DIRECTORY ((size_t)1 << 30)
#define CRC_AT        14 /* in the local header */

/* Little-endian fields, one behind the other. */
struct fields {
    uint8_t data[128];
    size_t n;
};

static void add(struct fields *f, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        f->data[f->n++] = i < 8 ? (uint8_t)(value >> 8 * i) : 0;
}

static uint64_t clip(uint64_t value)
{
    return value >= LARGE ? LARGE : value;
}

zt_err zt_zip_writer_open(struct zt_zip_writer *w, const char *path, int64_t bytes,
                          struct zt_fault *fault)
{
    *w = (struct zt_zip_writer){0};
    zt_buf_init(&w->directory, MAX_DIRECTORY);
    return zt_atomic_file_open(&w->file, path, bytes, fault);
}

static zt_err write_out(struct zt_zip_writer *w, const void *data, size_t bytes,
                        struct zt_fault *fault)
{
    w->at += bytes;
    return zt_atomic_file_write(&w->file, data, bytes, fault);
}

/* What local header and central entry share, from the version on. */
static void add_common(struct fields *f, uint64_t size, uint32_t crc)
{
    add(f, size >= LARGE ? 45 : 20, 2);
    add(f, 0x0800, 2);     /* names are UTF-8 */
    add(f, 0, 2);          /* stored */
    add(f, 0x21 << 16, 4); /* 1 January 1980: the same bytes on every run */
    add(f, crc, 4);
    add(f, clip(size), 4);
    add(f, clip(size), 4);
}

static zt_err put_entry(struct zt_zip_writer *w, struct zt_fault *fault)
{
    const char *name = w->name;
    uint64_t size = w->size;
    bool big = size >= LARGE, far = w->header_at >= LARGE;
    struct fields f = {.n = 0}, extra = {.n = 0};
    zt_err rc;

    if (big || far) {
        add(&extra, 1, 2);
        add(&extra, big && far ? 24 : big ? 16 : 8, 2);
        if (big) {
            add(&extra, size, 8);
            add(&extra, size, 8);
        }
        if (far)
            add(&extra, w->header_at, 8);
    }
    add(&f, 0x02014b50, 4);
    add(&f, 45, 2);
    add_common(&f, size, w->crc);
    add(&f, strlen(name), 2);
    add(&f, extra.n, 2);
    add(&f, 0, 2 + 2 + 2);
    add(&f, 0, 4);
    add(&f, clip(w->header_at), 4);
    rc = zt_buf_put(&w->directory, f.data, f.n);
    if (!rc)
        rc = zt_buf_put(&w->directory, name, strlen(name));
    if (!rc)
        rc = zt_buf_put(&w->directory, extra.data, extra.n);
    w->num++;
    return rc ? zt_fault_set(fault, rc, "%s: too many members", w->file.path) : ZT_OK;
}

/* The member that was begun has ended: its check sum goes into its header, and its entry
 * into the directory. */
static zt_err end_member(struct zt_zip_writer *w, struct zt_fault *fault)
{
    uint32_t crc = htole32(w->crc);
    zt_err rc;

    if (!w->name[0])
        return ZT_OK;
    if (w->left)
        return zt_fault_set(fault, ZT_E_ARG, "%s: %llu bytes of %s never came",
                            w->file.path, (unsigned long long)w->left, w->name);
    rc = zt_atomic_file_write_at(&w->file, (int64_t)w->header_at + CRC_AT, &crc,
                                 sizeof(crc), fault);
    return rc ? rc : put_entry(w, fault);
}

zt_err zt_zip_writer_begin(struct zt_zip_writer *w, const char *name, uint64_t size,
                           struct zt_fault *fault)
{
    struct fields f = {.n = 0}, extra = {.n = 0};
    size_t n = strlen(name), fill;
    zt_err rc = end_member(w, fault);

    if (!rc && n >= sizeof(w->name))
        rc = zt_fault_set(fault, ZT_E_ARG, "%s: member name too long: %s", w->file.path,
                          name);
    if (rc)
        return rc;
    w->header_at = w->at;
    if (size >= LARGE) {
        add(&extra, 1, 2);
        add(&extra, 16, 2);
        add(&extra, size, 8);
        add(&extra, size, 8);
    }
    fill = (ALIGNMENT - (w->at + 30 + n + extra.n + 4) % ALIGNMENT) % ALIGNMENT;
    add(&extra, 0x4246, 2);
    add(&extra, fill, 2);
    for (size_t i = 0; i < fill; i++)
        add(&extra, 'Z', 1);
    add(&f, 0x04034b50, 4);
    add_common(&f, size, 0);
    add(&f, n, 2);
    add(&f, extra.n, 2);
    rc = write_out(w, f.data, f.n, fault);
    if (!rc)
        rc = write_out(w, name, n, fault);
    if (!rc)
        rc = write_out(w, extra.data, extra.n, fault);
    memcpy(w->name, name, n + 1);
    w->size = w->left = size;
    w->crc = 0;
    return rc;
}

zt_err zt_zip_writer_put(struct zt_zip_writer *w, const void *data, size_t bytes,
                         struct zt_fault *fault)
{
    if (bytes > w->left)
        return zt_fault_set(fault, ZT_E_ARG, "%s: more bytes than %s has", w->file.path,
                            w->name);
    w->crc = zt_crc32(w->crc, data, bytes);
    w->left -= bytes;
    return write_out(w, data, bytes, fault);
}

/* The end: with 64-bit fields always, in the 32-bit record as well where they fit. */
static zt_err write_end(struct zt_zip_writer *w, struct zt_fault *fault)
{
    uint64_t at = w->at, bytes = zt_buf_used(&w->directory);
    struct fields f = {.n = 0};
    uint64_t num = w->num < 0xffff ? w->num : 0xffff;
    zt_err rc = write_out(w, zt_buf_head(&w->directory), bytes, fault);

    add(&f, 0x06064b50, 4);
    add(&f, 44, 8);
    add(&f, 45, 2);
    add(&f, 45, 2);
    add(&f, 0, 4 + 4);
    add(&f, w->num, 8);
    add(&f, w->num, 8);
    add(&f, bytes, 8);
    add(&f, at, 8);
    add(&f, 0x07064b50, 4);
    add(&f, 0, 4);
    add(&f, at + bytes, 8);
    add(&f, 1, 4);
    add(&f, 0x06054b50, 4);
    add(&f, 0, 2 + 2);
    add(&f, num, 2);
    add(&f, num, 2);
    add(&f, clip(bytes), 4);
    add(&f, clip(at), 4);
    add(&f, 0, 2);
    return rc ? rc : write_out(w, f.data, f.n, fault);
}

zt_err zt_zip_writer_publish(struct zt_zip_writer *w, struct zt_fault *fault)
{
    zt_err rc = end_member(w, fault);

    if (!rc)
        rc = write_end(w, fault);
    return rc ? rc : zt_atomic_file_publish(&w->file, fault);
}

void zt_zip_writer_release(struct zt_zip_writer *w)
{
    zt_atomic_file_release(&w->file);
    zt_buf_release(&w->directory);
}
