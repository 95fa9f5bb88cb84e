#include "worker/checkpoint/manifest.h"

#include <stdlib.h>
#include <string.h>

#include "worker/checkpoint/checksummed_json.h"

bool zt_ckpt_is_plain_name(const char *name)
{
    return name && name[0] && name[0] != '.' && !strchr(name, '/') && strlen(name) < 200;
}

static const char *text_of(const json_t *obj, const char *key)
{
    return json_string_value(json_object_get(obj, key));
}

static int64_t int_of(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);

    return json_is_integer(v) ? json_integer_value(v) : -1;
}

static bool hash_of(const json_t *obj, const char *key, uint64_t *out)
{
    const char *text = text_of(obj, key);

    return text && strlen(text) == ZT_HASH_TEXT - 1 && zt_hash_parse(text, out);
}

static zt_err malformed(const char *name, const char *what, size_t i,
                        struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_FORMAT, "%s: malformed: %s %zu", name, what, i);
}

static zt_err check_format(const char *name, const json_t *root, const char *format,
                           struct zt_fault *fault)
{
    const char *is = text_of(root, "format");
    int64_t version = int_of(root, "version");

    if (!is || strcmp(is, format) != 0)
        return zt_fault_set(fault, ZT_E_FORMAT, "%s: is no %s", name, format);
    if (version != ZT_CKPT_VERSION)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "%s: is of format version %lld; this program reads version "
                            "%d: use a newer one",
                            name, (long long)version, ZT_CKPT_VERSION);
    return ZT_OK;
}

/* ---- the manifest ---- */

static bool parse_dtype(const char *text, zt_dtype *out)
{
    for (int t = 0; text && t < ZT_NUM_DTYPE; t++) {
        if (strcmp(text, zt_dtype_name((zt_dtype)t)) == 0) {
            *out = (zt_dtype)t;
            return true;
        }
    }
    return false;
}

static zt_err parse_kinds(const char *name, struct zt_ckpt_manifest *m,
                          struct zt_fault *fault)
{
    const json_t *list = json_object_get(m->root, "kinds");
    size_t n = json_array_size(list);

    if (n > ZT_CKPT_MAX_KINDS)
        return malformed(name, "too many kinds:", n, fault);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(list, i);
        struct zt_ckpt_kind *k = &m->kinds[i];

        k->name = text_of(one, "name");
        if (!k->name || !k->name[0] || strchr(k->name, '/') ||
            zt_ckpt_find_kind(m, k->name) >= 0 ||
            !parse_dtype(text_of(one, "dtype"), &k->dtype))
            return malformed(name, "kind", i, fault);
        m->num_kinds++;
    }
    return ZT_OK;
}

static bool parse_shape(const json_t *shape, struct zt_ckpt_param *p)
{
    size_t n = json_array_size(shape);

    if (!json_is_array(shape) || n > ZT_MAX_NDIM)
        return false;
    p->ndim = (int)n;
    p->numel = 1;
    for (size_t i = 0; i < n; i++) {
        p->shape[i] = json_integer_value(json_array_get(shape, i));
        if (p->shape[i] < 1 || __builtin_mul_overflow(p->numel, p->shape[i], &p->numel) ||
            p->numel > INT64_MAX / 16)
            return false;
    }
    return true;
}

static bool parse_param(const struct zt_ckpt_manifest *m, const json_t *one,
                        struct zt_ckpt_param *p)
{
    const json_t *kinds = json_object_get(one, "kinds");

    p->name = text_of(one, "name");
    p->frozen = json_is_true(json_object_get(one, "frozen"));
    if (!p->name || !p->name[0] || !parse_shape(json_object_get(one, "shape"), p))
        return false;
    for (size_t i = 0; i < json_array_size(kinds); i++) {
        const json_t *k = json_array_get(kinds, i);

        if (!json_is_integer(k) || json_integer_value(k) < 0 ||
            json_integer_value(k) >= m->num_kinds)
            return false;
        p->kinds |= 1u << json_integer_value(k);
    }
    return true;
}

static int by_param_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Two parameters of one name would make every look-up a guess. */
static zt_err check_names(const char *name, const struct zt_ckpt_manifest *m,
                          struct zt_fault *fault)
{
    const char **names = calloc((size_t)m->num_params + 1, sizeof(*names));
    zt_err rc = ZT_OK;

    if (!names)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", name);
    for (int i = 0; i < m->num_params; i++)
        names[i] = m->params[i].name;
    qsort(names, (size_t)m->num_params, sizeof(*names), by_param_name);
    for (int i = 1; !rc && i < m->num_params; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            rc = zt_fault_set(fault, ZT_E_FORMAT, "%s: malformed: two parameters %s",
                              name, names[i]);
    free(names);
    return rc;
}

static zt_err parse_params(const char *name, struct zt_ckpt_manifest *m,
                           struct zt_fault *fault)
{
    const json_t *list = json_object_get(m->root, "params");
    size_t n = json_array_size(list);

    m->params = calloc(n + 1, sizeof(*m->params));
    if (!m->params || n > INT32_MAX)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", name);
    for (size_t i = 0; i < n; i++) {
        if (!parse_param(m, json_array_get(list, i), &m->params[i]))
            return malformed(name, "parameter", i, fault);
        m->num_params++;
    }
    return check_names(name, m, fault);
}

static bool is_taken(const struct zt_ckpt_manifest *m, const char *name)
{
    for (int i = 0; i < m->num_aliases; i++)
        if (strcmp(m->aliases[i].name, name) == 0)
            return true;
    return zt_ckpt_find_param(m, name) >= 0;
}

static zt_err parse_aliases(const char *name, struct zt_ckpt_manifest *m,
                            struct zt_fault *fault)
{
    const json_t *list = json_object_get(m->root, "aliases");
    size_t n = json_array_size(list);

    m->aliases = calloc(n + 1, sizeof(*m->aliases));
    if (!m->aliases || n > INT32_MAX)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", name);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(list, i);
        const char *alias = text_of(one, "name"), *of = text_of(one, "of");
        int param = of ? zt_ckpt_find_param(m, of) : -1;

        if (!alias || !alias[0] || param < 0 || is_taken(m, alias))
            return malformed(name, "alias", i, fault);
        m->aliases[m->num_aliases++] = (struct zt_ckpt_alias){alias, param};
    }
    return ZT_OK;
}

void zt_ckpt_add_alias(json_t *root, const char *name, const char *of)
{
    json_t *list = json_object_get(root, "aliases");

    if (!list) {
        list = json_array();
        json_object_set_new(root, "aliases", list);
    }
    json_array_append_new(list, json_pack("{s:s, s:s}", "name", name, "of", of));
}

static zt_err parse_shards(const char *name, struct zt_ckpt_manifest *m,
                           struct zt_fault *fault)
{
    const json_t *list = json_object_get(m->root, "shards");
    size_t n = json_array_size(list);

    m->shards = calloc(n + 1, sizeof(*m->shards));
    if (!m->shards || n > INT32_MAX)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", name);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(list, i);
        struct zt_ckpt_shard *s = &m->shards[i];

        s->file = text_of(one, "file");
        s->index = text_of(one, "index");
        s->bytes = int_of(one, "bytes");
        if (!zt_ckpt_is_plain_name(s->file) || !zt_ckpt_is_plain_name(s->index) ||
            s->bytes < 0 || !hash_of(one, "index_xxh3", &s->index_hash))
            return malformed(name, "shard", i, fault);
        m->num_shards++;
    }
    return ZT_OK;
}

zt_err zt_ckpt_manifest_parse(const char *name, json_t *root,
                              struct zt_ckpt_manifest *out, struct zt_fault *fault)
{
    struct zt_ckpt_manifest m = {.root = root};
    zt_err rc = check_format(name, root, ZT_CKPT_FORMAT, fault);

    m.tag = text_of(root, "tag");
    if (!rc && !zt_ckpt_is_plain_name(m.tag))
        rc = zt_fault_set(fault, ZT_E_FORMAT, "%s: malformed: it has no tag", name);
    if (!rc)
        rc = parse_kinds(name, &m, fault);
    if (!rc)
        rc = parse_params(name, &m, fault);
    if (!rc)
        rc = parse_aliases(name, &m, fault);
    if (!rc)
        rc = parse_shards(name, &m, fault);
    if (rc)
        zt_ckpt_manifest_release(&m);
    else
        *out = m;
    return rc;
}

void zt_ckpt_manifest_release(struct zt_ckpt_manifest *m)
{
    for (int i = 0; i < m->num_shards; i++)
        json_decref(m->shards[i].root);
    free(m->shards);
    free(m->params);
    free(m->aliases);
    free(m->parts);
    json_decref(m->root);
    *m = (struct zt_ckpt_manifest){0};
}

/* ---- an index ---- */

/* 16 digits a piece, one blank between two. */
static bool are_hashes(const char *text, int64_t pieces)
{
    size_t n = text ? strlen(text) : 0;
    uint64_t hash;

    if (!text || pieces < 0 || pieces > INT64_MAX / 32 ||
        n != (pieces ? (size_t)pieces * ZT_HASH_TEXT - 1 : 0))
        return false;
    for (int64_t i = 0; i < pieces; i++)
        if (!zt_hash_parse(text + i * ZT_HASH_TEXT, &hash) ||
            (i + 1 < pieces && text[(i + 1) * ZT_HASH_TEXT - 1] != ' '))
            return false;
    return true;
}

static bool parse_part(const struct zt_ckpt_manifest *m, const struct zt_ckpt_shard *s,
                       const json_t *one, struct zt_ckpt_part *p)
{
    int64_t v[5], bytes, numel;

    if (json_array_size(one) != 6)
        return false;
    for (size_t i = 0; i < 5; i++) {
        const json_t *n = json_array_get(one, i);

        v[i] = json_is_integer(n) ? json_integer_value(n) : -1;
        if (v[i] < 0)
            return false;
    }
    if (v[0] >= m->num_kinds || v[1] >= m->num_params ||
        !(m->params[v[1]].kinds >> v[0] & 1))
        return false;
    numel = m->params[v[1]].numel;
    if (v[2] > numel || v[3] < 1 || v[3] > numel - v[2])
        return false;
    bytes = v[3] * (int64_t)zt_dtype_bytes(m->kinds[v[0]].dtype);
    if (v[4] < s->header_bytes || v[4] > s->bytes || bytes > s->bytes - v[4])
        return false;
    *p = (struct zt_ckpt_part){(int)v[0], (int)v[1], v[2], v[3], v[4], 0, NULL};
    p->hashes = json_string_value(json_array_get(one, 5));
    return are_hashes(p->hashes, (bytes + s->piece_bytes - 1) / s->piece_bytes);
}

static zt_err parse_index_head(const char *name, struct zt_ckpt_shard *s,
                               struct zt_fault *fault)
{
    const char *file = text_of(s->root, "file");
    zt_err rc = check_format(name, s->root, ZT_CKPT_SHARD, fault);

    if (rc)
        return rc;
    s->header_bytes = int_of(s->root, "header_bytes");
    s->piece_bytes = int_of(s->root, "piece_bytes");
    if (!file || strcmp(file, s->file) != 0 || s->header_bytes < 0 ||
        s->header_bytes > s->bytes || s->piece_bytes < 8 || s->piece_bytes % 8 ||
        s->piece_bytes > ZT_CKPT_MAX_PIECE ||
        !hash_of(s->root, "header_xxh3", &s->header_hash))
        return zt_fault_set(fault, ZT_E_FORMAT, "%s: malformed: it is no index of %s",
                            name, s->file);
    return ZT_OK;
}

zt_err zt_ckpt_index_parse(const char *name, struct zt_ckpt_manifest *m, int shard,
                           json_t *root, struct zt_fault *fault)
{
    struct zt_ckpt_shard *s = &m->shards[shard];
    const json_t *list = json_object_get(root, "parts");
    size_t n = json_array_size(list);
    struct zt_ckpt_part *parts;
    zt_err rc;

    json_decref(s->root);
    s->root = root;
    rc = parse_index_head(name, s, fault);
    if (rc)
        return rc;
    parts = realloc(m->parts, ((size_t)m->num_parts + n + 1) * sizeof(*parts));
    if (!parts)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", name);
    m->parts = parts;
    for (size_t i = 0; i < n; i++) {
        struct zt_ckpt_part *p = &parts[m->num_parts];

        if (!parse_part(m, s, json_array_get(list, i), p))
            return malformed(name, "part", i, fault);
        p->shard = shard;
        m->num_parts++;
    }
    return ZT_OK;
}

/* ---- the parts of all ---- */

static int by_place(const void *a, const void *b)
{
    const struct zt_ckpt_part *x = a, *y = b;

    if (x->kind != y->kind)
        return x->kind - y->kind;
    if (x->param != y->param)
        return x->param - y->param;
    return (x->first > y->first) - (x->first < y->first);
}

static bool is_same_tensor(const struct zt_ckpt_part *a, const struct zt_ckpt_part *b)
{
    return a->kind == b->kind && a->param == b->param;
}

zt_err zt_ckpt_sort_parts(const char *name, struct zt_ckpt_manifest *m,
                          struct zt_fault *fault)
{
    if (m->num_parts)
        qsort(m->parts, (size_t)m->num_parts, sizeof(*m->parts), by_place);
    for (int64_t i = 1; i < m->num_parts; i++) {
        const struct zt_ckpt_part *a = &m->parts[i - 1], *b = &m->parts[i];

        if (is_same_tensor(a, b) && b->first < a->first + a->elems)
            return zt_fault_set(fault, ZT_E_FORMAT,
                                "%s: malformed: %s of %s is there twice", name,
                                m->kinds[b->kind].name, m->params[b->param].name);
    }
    return ZT_OK;
}

zt_err zt_ckpt_check_complete(const char *name, const struct zt_ckpt_manifest *m,
                              struct zt_fault *fault)
{
    for (int p = 0; p < m->num_params; p++) {
        for (int k = 0; k < m->num_kinds; k++) {
            int64_t at = 0;
            const struct zt_ckpt_part *part;

            if (!(m->params[p].kinds >> k & 1))
                continue;
            while (at < m->params[p].numel) {
                part = zt_ckpt_find_part(m, k, p, at);
                if (!part)
                    return zt_fault_set(fault, ZT_E_FORMAT,
                                        "%s: incomplete: %s of %s is missing from "
                                        "element %lld on",
                                        name, m->kinds[k].name, m->params[p].name,
                                        (long long)at);
                at = part->first + part->elems;
            }
        }
    }
    return ZT_OK;
}

/* ---- look-ups ---- */

int zt_ckpt_find_kind(const struct zt_ckpt_manifest *m, const char *name)
{
    for (int i = 0; i < m->num_kinds; i++)
        if (strcmp(m->kinds[i].name, name) == 0)
            return i;
    return -1;
}

int zt_ckpt_find_param(const struct zt_ckpt_manifest *m, const char *name)
{
    for (int i = 0; i < m->num_params; i++)
        if (strcmp(m->params[i].name, name) == 0)
            return i;
    return -1;
}

const struct zt_ckpt_part *zt_ckpt_find_part(const struct zt_ckpt_manifest *m, int kind,
                                             int param, int64_t element)
{
    const struct zt_ckpt_part want = {.kind = kind, .param = param, .first = element};
    int64_t lo = 0, hi = m->num_parts; /* the last part that begins at or before it */
    const struct zt_ckpt_part *p;

    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;

        if (by_place(&m->parts[mid], &want) <= 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == 0)
        return NULL;
    p = &m->parts[lo - 1];
    return is_same_tensor(p, &want) && element < p->first + p->elems ? p : NULL;
}
