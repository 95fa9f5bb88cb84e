/*
 * torch_file.c -- the two containers of torch.save, and state dictionaries in them.
 *
 *      zip:     X/data.pkl, X/data/KEY for each storage, X/version, X/byteorder
 *      stream:  magic, protocol, system, value, keys (five pickles), then for each key
 *               u64 numel and the data
 */
#include "worker/torch_file/torch_file.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/mapped_file.h"
#include "worker/torch_file/zip.h"

struct zt_torch_file {
    char *path;
    struct zt_mapping map;
    struct zt_zip zip;
    struct zt_pickle pickle;
    struct zt_pickle before[3], keys; /* of a stream; kept until close */
    char **names;                     /* given out by zt_torch_file_tensors */
    size_t num_names;
};

/* The pickle of the number that a stream begins with. */
static const uint8_t magic[] = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46,
                                0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, 0x2e};

/* ---- tensors get their data ---- */

static zt_err bind_tensors(struct zt_torch_file *f, struct zt_fault *fault)
{
    for (size_t i = 0; i < f->pickle.num_tensors; i++) {
        struct zt_torch_tensor *x = f->pickle.tensors[i];

        x->t.path = f->path;
        if (x->storage->data)
            x->t.data = x->storage->data + x->offset * x->bytes_per_elem;
        else if (x->t.elems)
            return zt_fault_set(fault, ZT_E_FORMAT,
                                "%s: damaged or truncated: the data of its storage %.*s "
                                "are missing",
                                f->path, (int)x->storage->key_bytes, x->storage->key);
    }
    return ZT_OK;
}

/* ---- the zip archive ---- */

/* The folder that all members are in: up to the slash of X/data.pkl. */
static const struct zt_zip_member *find_pickle(const struct zt_zip *z, size_t *folder)
{
    static const char tail[] = "/data.pkl";

    for (size_t i = 0; i < z->num; i++) {
        const struct zt_zip_member *m = &z->members[i];
        size_t n = sizeof(tail) - 1;

        if (m->name_bytes > n && memcmp(m->name + m->name_bytes - n, tail, n) == 0) {
            *folder = m->name_bytes - n;
            return m;
        }
    }
    return NULL;
}

static zt_err bind_member(struct zt_torch_file *f, const char *folder, size_t n,
                          struct zt_torch_storage *s, struct zt_fault *fault)
{
    const struct zt_zip_member *m;
    char name[64];

    if (s->key_bytes > 48)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: a storage of a name that is too long", f->path);
    snprintf(name, sizeof(name), "data/%.*s", (int)s->key_bytes, s->key);
    m = zt_zip_find(&f->zip, folder, n, name);
    if (m && (s->first || m->bytes / s->bytes_per_elem < (uint64_t)s->numel))
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: damaged: %s has %zu bytes where %lld elements of %s are "
                            "said to be",
                            f->path, name, m->bytes, (long long)s->numel, s->type);
    s->data = m ? m->data : NULL;
    return m ? zt_zip_check(f->path, m, fault) : ZT_OK;
}

static zt_err check_byte_order(const struct zt_torch_file *f, const char *folder,
                               size_t n, struct zt_fault *fault)
{
    const struct zt_zip_member *m = zt_zip_find(&f->zip, folder, n, "byteorder");

    zt_err rc = m ? zt_zip_check(f->path, m, fault) : ZT_OK;

    if (rc)
        return rc;
    if (m && m->bytes >= 3 && memcmp(m->data, "big", 3) == 0)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "%s: written on a big-endian machine; save it again on "
                            "another",
                            f->path);
    return ZT_OK;
}

static zt_err open_zip(struct zt_torch_file *f, struct zt_fault *fault)
{
    const struct zt_zip_member *m;
    size_t folder = 0, used = 0;
    zt_err rc = zt_zip_open(f->path, f->map.data, f->map.bytes, &f->zip, fault);

    if (rc)
        return rc;
    m = find_pickle(&f->zip, &folder);
    if (!m)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: a zip archive, but not one of torch.save: it has no "
                            "data.pkl",
                            f->path);
    rc = zt_zip_check(f->path, m, fault);
    if (!rc)
        rc = check_byte_order(f, m->name, folder, fault);
    if (!rc)
        rc = zt_pickle_parse(f->path, m->data, m->bytes, &f->pickle, &used, fault);
    for (size_t i = 0; !rc && i < f->pickle.num_storages; i++)
        rc = bind_member(f, m->name, folder, f->pickle.storages[i], fault);
    zt_mapping_forget(&f->map);
    return rc;
}

/* ---- the stream ---- */

static int by_key(const void *a, const void *b)
{
    const struct zt_torch_storage *x = *(struct zt_torch_storage *const *)a;
    const struct zt_torch_storage *y = *(struct zt_torch_storage *const *)b;
    size_t n = x->key_bytes < y->key_bytes ? x->key_bytes : y->key_bytes;
    int c = memcmp(x->key, y->key, n);

    return c ? c : (x->key_bytes > y->key_bytes) - (x->key_bytes < y->key_bytes);
}

/* The storages of one key: first of them in the sorted list; `num` if there is none. */
static size_t find_storages(const struct zt_pickle *p, const struct zt_pickled *key)
{
    const struct zt_torch_storage want = {.key = key->text, .key_bytes = key->text_bytes};
    const struct zt_torch_storage *wanted = &want;
    size_t lo = 0, hi = p->num_storages;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (by_key(&p->storages[mid], &wanted) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo < p->num_storages && by_key(&p->storages[lo], &wanted) == 0)
        return lo;
    return p->num_storages;
}

/* The data of one key at *at, which moves on. */
static zt_err bind_stream(struct zt_torch_file *f, const struct zt_pickled *key,
                          size_t *at, struct zt_fault *fault)
{
    struct zt_pickle *p = &f->pickle;
    size_t i =
        key && key->kind == ZT_PICKLED_TEXT ? find_storages(p, key) : p->num_storages;
    const struct zt_torch_storage *first = i < p->num_storages ? p->storages[i] : NULL;
    uint64_t numel = 0, left = f->map.bytes - *at;

    if (first && left >= 8)
        memcpy(&numel, f->map.data + *at, 8); /* little-endian, as all machines here */
    if (!first || left < 8 || numel > (left - 8) / first->bytes_per_elem)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: damaged or truncated: its storages do not fit into the "
                            "file",
                            f->path);
    for (; i < p->num_storages && by_key(&p->storages[i], &first) == 0; i++) {
        struct zt_torch_storage *s = p->storages[i];

        if (s->bytes_per_elem != first->bytes_per_elem || (uint64_t)s->first > numel ||
            (uint64_t)s->numel > numel - (uint64_t)s->first)
            return zt_fault_set(fault, ZT_E_FORMAT,
                                "%s: damaged: a storage has %llu elements, and parts "
                                "outside of them",
                                f->path, (unsigned long long)numel);
        s->data = f->map.data + *at + 8 + s->first * s->bytes_per_elem;
    }
    *at += 8 + numel * first->bytes_per_elem;
    return ZT_OK;
}

static zt_err open_stream(struct zt_torch_file *f, struct zt_fault *fault)
{
    size_t at = 0, used = 0;
    zt_err rc = ZT_OK;
    struct zt_pickle *const parts[] = {&f->before[0], &f->before[1], &f->before[2],
                                       &f->pickle, &f->keys};

    for (int i = 0; !rc && i < 5; i++) {
        rc = zt_pickle_parse(f->path, f->map.data + at, f->map.bytes - at, parts[i],
                             &used, fault);
        at += used;
    }
    if (rc)
        return rc;
    if (f->pickle.num_storages)
        qsort(f->pickle.storages, f->pickle.num_storages, sizeof(*f->pickle.storages),
              by_key);
    for (int64_t i = 0; !rc && i < zt_pickled_count(f->keys.root); i++)
        rc = bind_stream(f, zt_pickled_at(f->keys.root, i), &at, fault);
    return rc;
}

/* ---- other files ---- */

/* What people have in its place, by its first four bytes; NULL: not known. */
static const char *other_file(const struct zt_mapping *map)
{
    static const struct {
        uint32_t magic; /* little-endian */
        const char *what;
    } known[] = {
        {20240326,
         "weights of llm.c, which are not read: its dev/eval/export_hf.py makes a "
         "Hugging Face folder of them, and that is what to name"},
        {20240527,
         "an optimizer state of llm.c, which is not read; weights are what a model "
         "begins with"},
        {20240328, "a tokenizer of llm.c, no weights"},
        {20240520, "a token file of llm.c, no weights: that is for --train_file"},
        {20240801, "a token file of llm.c, no weights: that is for --train_file"},
        {0x46554747,
         "a GGUF file, which is written here and not read: name the folder of the "
         "model that it was made from"},
    };
    uint32_t first;

    if (map->bytes < sizeof(first))
        return NULL;
    memcpy(&first, map->data, sizeof(first));
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (le32toh(first) == known[i].magic)
            return known[i].what;
    return NULL;
}

/* ---- the file ---- */

static zt_err open_any(struct zt_torch_file *f, struct zt_fault *fault)
{
    const uint8_t *p = f->map.data;
    const char *other = other_file(&f->map);
    zt_err rc;

    if (f->map.bytes >= 4 && memcmp(p, "PK\3\4", 4) == 0)
        rc = open_zip(f, fault);
    else if (f->map.bytes >= sizeof(magic) && memcmp(p, magic, sizeof(magic)) == 0)
        rc = open_stream(f, fault);
    else
        return zt_fault_set(fault, ZT_E_UNSUPPORTED, "%s: %s", f->path,
                            other ? other
                                  : "not a file of torch.save (neither its zip form nor "
                                    "the stream before PyTorch 1.6), or damaged");
    return rc ? rc : bind_tensors(f, fault);
}

zt_err zt_torch_file_open(const char *path, struct zt_torch_file **out,
                          struct zt_fault *fault)
{
    struct zt_torch_file *f = calloc(1, sizeof(*f));
    zt_err rc = ZT_OK;

    if (f)
        f->path = strdup(path);
    if (!f || !f->path)
        rc = zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", path);
    if (!rc)
        rc = zt_mapping_open(path, &f->map, fault);
    if (!rc)
        rc = open_any(f, fault);
    if (rc) {
        zt_torch_file_close(f);
        return rc;
    }
    *out = f;
    return ZT_OK;
}

void zt_torch_file_close(struct zt_torch_file *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->num_names; i++)
        free(f->names[i]);
    free(f->names);
    for (int i = 0; i < 3; i++)
        zt_pickle_release(&f->before[i]);
    zt_pickle_release(&f->keys);
    zt_pickle_release(&f->pickle);
    zt_zip_release(&f->zip);
    zt_mapping_release(&f->map);
    free(f->path);
    free(f);
}

void zt_torch_file_forget(const struct zt_torch_file *f)
{
    zt_mapping_forget(&f->map);
}

const struct zt_pickled *zt_torch_file_root(const struct zt_torch_file *f)
{
    return f->pickle.root;
}

/* ---- state dictionaries ---- */

static zt_err keep_name(struct zt_torch_file *f, const struct zt_pickled *key,
                        const char **out, struct zt_fault *fault)
{
    char *copy;

    if (!key || key->kind != ZT_PICKLED_TEXT || memchr(key->text, 0, key->text_bytes))
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: its dictionary has a key that is no name", f->path);
    copy = strndup(key->text, key->text_bytes);
    if (!copy)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", f->path);
    f->names[f->num_names++] = copy;
    *out = copy;
    return ZT_OK;
}

static zt_err add_entries(struct zt_torch_file *f, const struct zt_pickled *dict,
                          struct zt_safetensors_tensor *out, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int64_t i = 0; !rc && i < zt_pickled_count(dict); i++) {
        const struct zt_pickled *v = zt_pickled_value(dict, i);
        const struct zt_torch_tensor *x = zt_pickled_tensor(v);
        const char *name = NULL;
        char what[128];

        rc = keep_name(f, zt_pickled_key(dict, i), &name, fault);
        if (rc)
            return rc;
        zt_pickled_describe(v, what, sizeof(what));
        if (!x)
            return zt_fault_set(fault, ZT_E_FORMAT,
                                "%s: entry %s is %s, not a tensor; only dictionaries of "
                                "tensors are read as weights",
                                f->path, name, what);
        out[i] = x->t;
        out[i].name = name;
    }
    return rc;
}

zt_err zt_torch_file_tensors(struct zt_torch_file *f, const char *key,
                             struct zt_safetensors_tensor **out, int *num,
                             struct zt_fault *fault)
{
    const struct zt_pickled *dict =
        key ? zt_pickled_get(f->pickle.root, key) : f->pickle.root;
    size_t n = (size_t)zt_pickled_count(dict);
    struct zt_safetensors_tensor *all = calloc(n + 1, sizeof(*all));
    char **names = realloc(f->names, (f->num_names + n + 1) * sizeof(*names));
    zt_err rc = ZT_OK;
    char what[128];

    if (names)
        f->names = names;
    zt_pickled_describe(dict, what, sizeof(what));
    if (!all || !names)
        rc = zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", f->path);
    else if (!dict || dict->kind != ZT_PICKLED_DICT)
        rc = zt_fault_set(fault, ZT_E_FORMAT,
                          "%s: holds %s where a dictionary of tensors is expected",
                          f->path, what);
    else
        rc = add_entries(f, dict, all, fault);
    if (rc) {
        free(all);
        return rc;
    }
    *out = all;
    *num = (int)n;
    return ZT_OK;
}
