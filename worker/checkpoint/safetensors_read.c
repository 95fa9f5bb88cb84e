/*
 * safetensors_read.c -- the reader of safetensors files.
 *
 * The JSON header becomes a table of tensors sorted by their place, which is walked once
 * to see that they lie back to back and fill the file; lookups use a second table of
 * pointers sorted by name.
 */
#include <endian.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/mapped_file.h"
#include "worker/checkpoint/safetensors.h"

#define HEADER_MAX 100000000u

struct zt_safetensors_file {
    char *path;
    struct zt_mapping map;
    json_t *header; /* names and types in the table are its strings */
    struct zt_safetensors_tensor *tensors;
    const struct zt_safetensors_tensor **by_name;
    int64_t *shapes; /* of all tensors, one behind the other */
    int count;
};

/* Bits of an element, and what it is to us. */
static const struct type {
    const char *name;
    unsigned bits;
    bool loadable;
    zt_dtype dtype;
} types[] = {
    {"F32", 32, true, ZT_F32},    {"BF16", 16, true, ZT_BF16},
    {"F16", 16, true, ZT_F16},    {"I32", 32, true, ZT_I32},
    {"I64", 64, true, ZT_I64},    {"U8", 8, true, ZT_U8},
    {"BOOL", 8, false, 0},        {"I8", 8, false, 0},
    {"I16", 16, false, 0},        {"U16", 16, false, 0},
    {"U32", 32, false, 0},        {"U64", 64, false, 0},
    {"F64", 64, false, 0},        {"C64", 64, false, 0},
    {"F8_E5M2", 8, false, 0},     {"F8_E4M3", 8, false, 0},
    {"F8_E8M0", 8, false, 0},     {"F8_E4M3FNUZ", 8, false, 0},
    {"F8_E5M2FNUZ", 8, false, 0}, {"F4", 4, false, 0},
    {"F6_E2M3", 6, false, 0},     {"F6_E3M2", 6, false, 0},
};

static const struct type *find_type(const char *name)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

bool zt_safetensors_set_type(struct zt_safetensors_tensor *t, const char *type)
{
    const struct type *found = find_type(type);

    if (!found)
        return false;
    t->type = found->name;
    t->loadable = found->loadable;
    t->dtype = found->dtype;
    return true;
}

/* ---- the header ---- */

static zt_err parse_header(struct zt_safetensors_file *f, size_t *data_at,
                           struct zt_fault *fault)
{
    static const char lfs[] = "version https://git-lfs";
    json_error_t e;
    uint64_t n;

    if (f->map.bytes < 8)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: truncated: %zu bytes are no safetensors file", f->path,
                            f->map.bytes);
    if (memcmp(f->map.data, "GGUF", 4) == 0)
        return zt_fault_set(
            fault, ZT_E_FORMAT,
            "%s: is a GGUF file, a form that is written and not read: name "
            "the weights that it was made of",
            f->path);
    if (f->map.bytes >= sizeof(lfs) - 1 && memcmp(f->map.data, lfs, sizeof(lfs) - 1) == 0)
        return zt_fault_set(
            fault, ZT_E_FORMAT,
            "%s: is a pointer of Git LFS in place of the file: git lfs pull, "
            "in its folder, brings that",
            f->path);
    memcpy(&n, f->map.data, sizeof(n));
    n = le64toh(n);
    if (n > HEADER_MAX)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: is no safetensors file, or damaged: its header claims "
                            "%llu bytes",
                            f->path, (unsigned long long)n);
    if (n > f->map.bytes - 8)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: truncated: its header of %llu bytes ends after the file "
                            "(%zu bytes)",
                            f->path, (unsigned long long)n, f->map.bytes);
    if (n == 0 || f->map.data[8] != '{')
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: is no safetensors file: its header is no JSON object",
                            f->path);
    f->header =
        json_loadb((const char *)f->map.data + 8, (size_t)n, JSON_REJECT_DUPLICATES, &e);
    if (!f->header && !e.text[0]) /* jansson has no words for it */
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", f->path);
    if (!f->header)
        return zt_fault_set(fault, ZT_E_FORMAT, "%s: malformed header, byte %d: %s",
                            f->path, 8 + e.position, e.text);
    *data_at = 8 + (size_t)n;
    return ZT_OK;
}

static zt_err check_metadata(const struct zt_safetensors_file *f, const json_t *meta,
                             struct zt_fault *fault)
{
    bool good = json_is_object(meta);
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)meta, key, value)
    {
        good = good && json_is_string(value);
    }
    if (!good)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: malformed header: __metadata__ may hold strings only",
                            f->path);
    return ZT_OK;
}

/* The shape into `dims`, and the bits it takes. */
static zt_err parse_shape(const struct zt_safetensors_file *f,
                          struct zt_safetensors_tensor *t, const json_t *shape,
                          unsigned bits, int64_t *dims, int64_t *total_bits,
                          struct zt_fault *fault)
{
    bool empty = false;

    t->ndim = (int)json_array_size(shape);
    t->shape = dims;
    t->elems = 1;
    for (int i = 0; i < t->ndim; i++) {
        const json_t *d = json_array_get(shape, (size_t)i);

        dims[i] = json_integer_value(d);
        if (!json_is_integer(d) || dims[i] < 0)
            return zt_fault_set(fault, ZT_E_FORMAT,
                                "%s: tensor %s: axis %d of its shape is no count",
                                f->path, t->name, i);
        empty |= dims[i] == 0;
    }
    for (int i = 0; !empty && i < t->ndim; i++)
        if (__builtin_mul_overflow(t->elems, dims[i], &t->elems))
            return zt_fault_set(fault, ZT_E_FORMAT,
                                "%s: tensor %s: its shape is too large", f->path,
                                t->name);
    if (empty)
        t->elems = 0;
    if (__builtin_mul_overflow(t->elems, (int64_t)bits, total_bits))
        return zt_fault_set(fault, ZT_E_FORMAT, "%s: tensor %s: its shape is too large",
                            f->path, t->name);
    return ZT_OK;
}

static zt_err parse_tensor(const struct zt_safetensors_file *f, const char *name,
                           const json_t *o, size_t data_at, int64_t *dims,
                           struct zt_safetensors_tensor *t, struct zt_fault *fault)
{
    const char *type_name = json_string_value(json_object_get(o, "dtype"));
    const json_t *shape = json_object_get(o, "shape");
    const json_t *place = json_object_get(o, "data_offsets");
    const json_t *from = json_array_get(place, 0), *to = json_array_get(place, 1);
    int64_t begin = json_integer_value(from), end = json_integer_value(to), bits = 0;
    int64_t all = (int64_t)(f->map.bytes - data_at);
    const struct type *type;
    zt_err rc;

    if (!type_name || !json_is_array(shape) || json_array_size(place) != 2 ||
        json_object_size(o) != 3)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: tensor %s: needs exactly dtype, shape and data_offsets "
                            "[begin, end]",
                            f->path, name);
    type = find_type(type_name);
    if (!type)
        return zt_fault_set(fault, ZT_E_FORMAT, "%s: tensor %s: unknown dtype %s",
                            f->path, name, type_name);
    *t = (struct zt_safetensors_tensor){.name = name,
                                        .type = type->name,
                                        .loadable = type->loadable,
                                        .dtype = type->dtype,
                                        .path = f->path};
    rc = parse_shape(f, t, shape, type->bits, dims, &bits, fault);
    if (rc)
        return rc;
    if (!json_is_integer(from) || !json_is_integer(to) || begin < 0 || end < begin ||
        end > all)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: tensor %s: its data [%lld, %lld] lie outside the %lld "
                            "bytes there are; the file is truncated or damaged",
                            f->path, name, (long long)begin, (long long)end,
                            (long long)all);
    if (bits % 8 || bits / 8 != end - begin)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: tensor %s: %lld elements of %s do not take the %lld "
                            "bytes its offsets say",
                            f->path, name, (long long)t->elems, type_name,
                            (long long)(end - begin));
    t->bytes = (size_t)(end - begin);
    t->data = f->map.data + data_at + begin;
    return ZT_OK;
}

/* ---- the tables ---- */

static int by_place(const void *a, const void *b)
{
    const struct zt_safetensors_tensor *x = a, *y = b;

    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    if ((x->bytes == 0) != (y->bytes == 0)) /* an empty one takes no place */
        return x->bytes == 0 ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    const struct zt_safetensors_tensor *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

/* No hole, no overlap, nothing left over. */
static zt_err check_places(const struct zt_safetensors_file *f, size_t data_at,
                           struct zt_fault *fault)
{
    const uint8_t *next = f->map.data + data_at, *end = f->map.data + f->map.bytes;

    for (int i = 0; i < f->count; i++) {
        const struct zt_safetensors_tensor *t = &f->tensors[i];

        if (t->data != next)
            return zt_fault_set(
                fault, ZT_E_FORMAT, "%s: malformed: a %s of %lld bytes before tensor %s",
                f->path, t->data > next ? "hole" : "overlap",
                (long long)(t->data > next ? t->data - next : next - t->data), t->name);
        next += t->bytes;
    }
    if (next != end)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: malformed: %lld bytes after the last tensor", f->path,
                            (long long)(end - next));
    return ZT_OK;
}

static zt_err allocate(struct zt_safetensors_file *f, struct zt_fault *fault)
{
    size_t n = json_object_size(f->header), axes = 0;
    const char *key;
    json_t *value;

    json_object_foreach(f->header, key, value)
    {
        axes += json_array_size(json_object_get(value, "shape"));
    }
    f->tensors = calloc(n + 1, sizeof(*f->tensors));
    f->by_name = calloc(n + 1, sizeof(*f->by_name));
    f->shapes = calloc(axes + 1, sizeof(*f->shapes));
    if (!f->tensors || !f->by_name || !f->shapes)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory for %zu tensors", f->path,
                            n);
    return ZT_OK;
}

static zt_err parse(struct zt_safetensors_file *f, struct zt_fault *fault)
{
    size_t data_at = 0, axes = 0;
    const char *key;
    json_t *value;
    zt_err rc = parse_header(f, &data_at, fault);

    if (!rc)
        rc = allocate(f, fault);
    if (rc)
        return rc;
    json_object_foreach(f->header, key, value)
    {
        if (strcmp(key, "__metadata__") == 0) {
            rc = check_metadata(f, value, fault);
        } else {
            struct zt_safetensors_tensor *t = &f->tensors[f->count];

            rc = parse_tensor(f, key, value, data_at, f->shapes + axes, t, fault);
            axes += (size_t)t->ndim;
            f->count++;
        }
        if (rc)
            return rc;
    }
    qsort(f->tensors, (size_t)f->count, sizeof(*f->tensors), by_place);
    for (int i = 0; i < f->count; i++)
        f->by_name[i] = &f->tensors[i];
    qsort(f->by_name, (size_t)f->count, sizeof(*f->by_name), by_name);
    return check_places(f, data_at, fault);
}

/* ---- the interface ---- */

zt_err zt_safetensors_open(const char *path, struct zt_safetensors_file **out,
                           struct zt_fault *fault)
{
    struct zt_safetensors_file *f = calloc(1, sizeof(*f));
    zt_err rc = ZT_OK;

    if (f)
        f->path = strdup(path);
    if (!f || !f->path)
        rc = zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", path);
    if (!rc)
        rc = zt_mapping_open(path, &f->map, fault);
    if (!rc)
        rc = parse(f, fault);
    if (rc) {
        zt_safetensors_close(f);
        return rc;
    }
    *out = f;
    return ZT_OK;
}

void zt_safetensors_close(struct zt_safetensors_file *f)
{
    if (!f)
        return;
    free(f->tensors);
    free(f->by_name);
    free(f->shapes);
    json_decref(f->header);
    zt_mapping_release(&f->map);
    free(f->path);
    free(f);
}

void zt_safetensors_forget(const struct zt_safetensors_file *f)
{
    zt_mapping_forget(&f->map);
}

int zt_safetensors_count(const struct zt_safetensors_file *f)
{
    return f->count;
}

const struct zt_safetensors_tensor *zt_safetensors_at(const struct zt_safetensors_file *f,
                                                      int i)
{
    return i >= 0 && i < f->count ? &f->tensors[i] : NULL;
}

const struct zt_safetensors_tensor *zt_safetensors_find(
    const struct zt_safetensors_file *f, const char *name)
{
    const struct zt_safetensors_tensor want = {.name = name}, *key = &want;
    const struct zt_safetensors_tensor *const *found =
        bsearch(&key, f->by_name, (size_t)f->count, sizeof(*f->by_name), by_name);

    return found ? *found : NULL;
}

const char *zt_safetensors_metadata(const struct zt_safetensors_file *f, const char *key)
{
    const json_t *meta = json_object_get(f->header, "__metadata__");

    return json_string_value(json_object_get(meta, key));
}

/* ---- values ---- */

static float bits_to_float(uint32_t bits)
{
    float out;

    memcpy(&out, &bits, sizeof(out));
    return out;
}

static float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31;
    uint32_t fraction = h & 0x3ff;

    if (exponent == 31) /* infinity, or a NaN with its payload */
        return bits_to_float(sign | 0x7f800000 | fraction << 13);
    if (exponent == 0) { /* zero, or fraction * 2^-24, which a float holds exactly */
        float small = (float)fraction * 0x1p-24f;

        return sign ? -small : small;
    }
    return bits_to_float(sign | (exponent + 112) << 23 | fraction << 13);
}

/* Where element i lies that is counted row-major. */
static int64_t place_of(const struct zt_safetensors_tensor *t, int64_t i)
{
    int64_t at = 0;

    for (int k = t->ndim - 1; k >= 0; k--) {
        at += i % t->shape[k] * t->stride[k];
        i /= t->shape[k];
    }
    return at;
}

zt_err zt_safetensors_read_f32(const struct zt_safetensors_tensor *t, int64_t first,
                               int64_t n, float *out, struct zt_fault *fault)
{
    const uint8_t *p = t->data;

    if (!t->loadable || (t->dtype != ZT_F32 && t->dtype != ZT_BF16 && t->dtype != ZT_F16))
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "%s: tensor %s: %s is not read as weights; convert it to "
                            "F32, BF16 or F16",
                            t->path, t->name, t->type);
    if (first < 0 || n < 0 || first > t->elems || n > t->elems - first)
        return zt_fault_set(fault, ZT_E_ARG,
                            "%s: tensor %s: elements %lld + %lld of %lld", t->path,
                            t->name, (long long)first, (long long)n, (long long)t->elems);
    for (int64_t i = first; i < first + n; i++) {
        int64_t at = t->stride ? place_of(t, i) : i;
        uint32_t wide;
        uint16_t half;

        if (t->dtype == ZT_F32) {
            memcpy(&wide, p + 4 * at, sizeof(wide));
            *out++ = bits_to_float(le32toh(wide));
            continue;
        }
        memcpy(&half, p + 2 * at, sizeof(half));
        half = le16toh(half);
        *out++ = t->dtype == ZT_F16 ? half_to_float(half)
                                    : bits_to_float((uint32_t)half << 16);
    }
    return ZT_OK;
}
