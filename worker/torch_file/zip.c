/*
 * zip.c -- the central directory of a zip archive, with its 64-bit fields.
 *
 *      members ... | central directory | [zip64 end, locator] | end, comment
 *
 * The end is found from behind; everything it says is compared with the file's length
 * before it is used.
 */
#include "worker/torch_file/zip.h"

#include <stdlib.h>
#include <string.h>

#include "worker/torch_file/zip_write.h"

#define END_BYTES     22
#define LOCATOR_BYTES 20
#define END64_BYTES   56
#define CENTRAL_BYTES 46
#define LOCAL_BYTES   30

struct directory {
    uint64_t at, bytes, entries;
};

static uint16_t u16_at(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t u32_at(const uint8_t *p)
{
    return u16_at(p) | (uint32_t)u16_at(p + 2) << 16;
}

static uint64_t u64_at(const uint8_t *p)
{
    return u32_at(p) | (uint64_t)u32_at(p + 4) << 32;
}

static zt_err malformed(const char *path, const char *what, struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_FORMAT, "%s: damaged or truncated: %s", path, what);
}

/* The place of the end record; 0: there is none. */
static size_t find_end(const uint8_t *data, size_t bytes)
{
    size_t lowest = bytes > END_BYTES + 0xffff ? bytes - END_BYTES - 0xffff : 0;

    if (bytes < END_BYTES)
        return 0;
    for (size_t at = bytes - END_BYTES; at > lowest; at--)
        if (u32_at(data + at) == 0x06054b50 &&
            u16_at(data + at + 20) == bytes - END_BYTES - at)
            return at;
    return 0;
}

static zt_err read_end64(const char *path, const uint8_t *data, size_t end,
                         struct directory *d, struct zt_fault *fault)
{
    const uint8_t *locator = data + end - LOCATOR_BYTES;
    uint64_t at;

    if (end < LOCATOR_BYTES || u32_at(locator) != 0x07064b50)
        return malformed(path, "its 64-bit directory is missing", fault);
    at = u64_at(locator + 8);
    if (at > end || end - at < END64_BYTES || u32_at(data + at) != 0x06064b50)
        return malformed(path, "its 64-bit directory is not where it should be", fault);
    d->entries = u64_at(data + at + 32);
    d->bytes = u64_at(data + at + 40);
    d->at = u64_at(data + at + 48);
    return ZT_OK;
}

static zt_err read_end(const char *path, const uint8_t *data, size_t bytes,
                       struct directory *d, struct zt_fault *fault)
{
    size_t end = find_end(data, bytes);
    const uint8_t *p = data + end;
    zt_err rc = ZT_OK;

    if (!end)
        return malformed(path, "the directory at its end is missing", fault);
    if ((u16_at(p + 4) && u16_at(p + 4) != 0xffff) ||
        (u16_at(p + 6) && u16_at(p + 6) != 0xffff))
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "%s: an archive of several volumes; refused", path);
    d->entries = u16_at(p + 10);
    d->bytes = u32_at(p + 12);
    d->at = u32_at(p + 16);
    if (d->entries == 0xffff || d->bytes == 0xffffffff || d->at == 0xffffffff)
        rc = read_end64(path, data, end, d, fault);
    if (!rc &&
        (d->at > end || d->bytes > end - d->at || d->entries > d->bytes / CENTRAL_BYTES))
        rc = malformed(path, "its directory lies outside of the file", fault);
    return rc;
}

/* Fields that do not fit their 32 bits stand in an extra field, in this order. */
static bool widen(const uint8_t *extra, size_t bytes, uint64_t *size, uint64_t *stored,
                  uint64_t *at)
{
    uint64_t *const fields[] = {size, stored, at};

    while (bytes >= 4) {
        size_t n = u16_at(extra + 2), used = 0;

        if (n > bytes - 4)
            return false;
        for (int i = 0; u16_at(extra) == 1 && i < 3; i++) {
            if (*fields[i] != 0xffffffff)
                continue;
            if (n - used < 8)
                return false;
            *fields[i] = u64_at(extra + 4 + used);
            used += 8;
        }
        extra += 4 + n;
        bytes -= 4 + n;
    }
    return true;
}

/* Where the data of a member begin, by its local header; 0: not in the file. */
static uint64_t find_data(const uint8_t *data, uint64_t limit, uint64_t at)
{
    if (at > limit || limit - at < LOCAL_BYTES || u32_at(data + at) != 0x04034b50)
        return 0;
    return at + LOCAL_BYTES + u16_at(data + at + 26) + u16_at(data + at + 28);
}

/* One entry at `p`, which has `left` bytes to its end; *used: its own. */
static zt_err read_entry(const char *path, const uint8_t *data, uint64_t limit,
                         const uint8_t *p, uint64_t left, struct zt_zip_member *m,
                         uint64_t *used, struct zt_fault *fault)
{
    uint64_t stored, size, at, begin, names;

    if (left < CENTRAL_BYTES || u32_at(p) != 0x02014b50)
        return malformed(path, "an entry of its directory is none", fault);
    m->name = (const char *)p + CENTRAL_BYTES;
    m->name_bytes = u16_at(p + 28);
    names = (uint64_t)m->name_bytes + u16_at(p + 30) + u16_at(p + 32);
    if (names > left - CENTRAL_BYTES)
        return malformed(path, "an entry of its directory is cut", fault);
    *used = CENTRAL_BYTES + names;
    stored = u32_at(p + 20);
    size = u32_at(p + 24);
    at = u32_at(p + 42);
    if (!widen(p + CENTRAL_BYTES + m->name_bytes, u16_at(p + 30), &size, &stored, &at))
        return malformed(path, "an entry of its directory is malformed", fault);
    if (u16_at(p + 10) != 0 || (u16_at(p + 8) & 1) || stored != size)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "%s: its member %.*s is compressed or encrypted; torch.save "
                            "writes neither",
                            path, (int)m->name_bytes, m->name);
    begin = find_data(data, limit, at);
    if (!begin || begin > limit || size > limit - begin)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: damaged or truncated: member %.*s lies outside of the "
                            "file",
                            path, (int)m->name_bytes, m->name);
    m->data = data + begin;
    m->bytes = (size_t)size;
    m->crc = u32_at(p + 16);
    return ZT_OK;
}

static int compare(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    int c = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);

    return c ? c : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static int by_name(const void *a, const void *b)
{
    const struct zt_zip_member *x = a, *y = b;

    return compare(x->name, x->name_bytes, y->name, y->name_bytes);
}

zt_err zt_zip_open(const char *path, const uint8_t *data, size_t bytes,
                   struct zt_zip *out, struct zt_fault *fault)
{
    struct directory d = {0};
    struct zt_zip z = {0};
    uint64_t at = 0, used = 0;
    zt_err rc = read_end(path, data, bytes, &d, fault);

    if (rc)
        return rc;
    z.members = calloc(d.entries + 1, sizeof(*z.members));
    if (!z.members)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", path);
    for (; !rc && z.num < d.entries; at += used, z.num++)
        rc = read_entry(path, data, d.at, data + d.at + at, d.bytes - at,
                        &z.members[z.num], &used, fault);
    if (rc) {
        zt_zip_release(&z);
        return rc;
    }
    qsort(z.members, z.num, sizeof(*z.members), by_name);
    *out = z;
    return ZT_OK;
}

void zt_zip_release(struct zt_zip *z)
{
    free(z->members);
    *z = (struct zt_zip){0};
}

/* A member's name against FOLDER/NAME. */
static int compare_path(const char *folder, size_t folder_bytes, const char *name,
                        const struct zt_zip_member *m)
{
    int c = compare(folder, folder_bytes, m->name,
                    m->name_bytes < folder_bytes ? m->name_bytes : folder_bytes);

    if (c || m->name_bytes == folder_bytes)
        return c ? c : 1;
    if (m->name[folder_bytes] != '/')
        return '/' < (uint8_t)m->name[folder_bytes] ? -1 : 1;
    return compare(name, strlen(name), m->name + folder_bytes + 1,
                   m->name_bytes - folder_bytes - 1);
}

const struct zt_zip_member *zt_zip_find(const struct zt_zip *z, const char *folder,
                                        size_t folder_bytes, const char *name)
{
    size_t lo = 0, hi = z->num;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = compare_path(folder, folder_bytes, name, &z->members[mid]);

        if (c == 0)
            return &z->members[mid];
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

zt_err zt_zip_check(const char *path, const struct zt_zip_member *m,
                    struct zt_fault *fault)
{
    if (!m->crc || zt_crc32(0, m->data, m->bytes) == m->crc)
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_FORMAT,
                        "%s: damaged: the check sum of its member %.*s does not match",
                        path, (int)m->name_bytes, m->name);
}
