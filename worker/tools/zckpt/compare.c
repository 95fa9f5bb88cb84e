/* compare.c -- zckpt diff and average. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/files/folders.h"
#include "common/half.h"
#include "worker/tools/export.h"
#include "worker/tools/zckpt/zckpt.h"

static bool same_shape(const struct zt_checkpoint_tensor *a,
                       const struct zt_checkpoint_tensor *b)
{
    bool same = a->ndim == b->ndim;

    for (int i = 0; same && i < a->ndim; i++)
        same = a->shape[i] == b->shape[i];
    return same;
}

/* ---- diff ---- */

struct comparison {
    struct zt_checkpoint_source *a, *b;
    const char *kind;
    int kind_a, kind_b;
    double tolerance;
    float *piece; /* two of ZT_EXPORT_PIECE */
    int differ, same;
};

/* Elements that differ and the largest difference; a NaN is equal to a NaN. */
static zt_err compare_tensors(struct comparison *c, int i, int j, int64_t *differ,
                              double *most, struct zt_fault *fault)
{
    int64_t numel = c->a->tensors[i].t.numel;
    float *x = c->piece, *y = c->piece + ZT_EXPORT_PIECE;
    zt_err rc = ZT_OK;

    for (int64_t at = 0; !rc && at < numel; at += ZT_EXPORT_PIECE) {
        int64_t n = numel - at < ZT_EXPORT_PIECE ? numel - at : ZT_EXPORT_PIECE;

        rc = zt_source_read(c->a, c->kind_a, i, at, n, x, fault);
        if (!rc)
            rc = zt_source_read(c->b, c->kind_b, j, at, n, y, fault);
        for (int64_t k = 0; !rc && k < n; k++) {
            double d = fabs((double)x[k] - y[k]);

            if (zt_float_bits(x[k]) == zt_float_bits(y[k]) ||
                (isnan(x[k]) && isnan(y[k])) || d <= c->tolerance)
                continue;
            ++*differ;
            *most = isnan(*most) || d <= *most ? *most : d; /* NaN is the most */
        }
    }
    return rc;
}

/* PEFT's names of adapters have this before those of the model. */
#define PEFT_PREFIX "base_model.model."

/* The tensor of that name, with or without the prefix; -1: none. */
static int find_same(const struct zt_checkpoint_source *s, const char *name)
{
    size_t n = strlen(PEFT_PREFIX);
    int j = zt_source_find(s, name);

    if (j < 0 && strncmp(name, PEFT_PREFIX, n) == 0)
        return zt_source_find(s, name + n);
    for (int i = 0; j < 0 && i < s->num; i++)
        if (strncmp(s->tensors[i].t.name, PEFT_PREFIX, n) == 0 &&
            strcmp(s->tensors[i].t.name + n, name) == 0)
            j = i;
    return j;
}

/* Tied weights: tensor i of `s`, which `other` has not, is there by another of its names. */
static bool is_there_as_alias(const struct zt_checkpoint_source *s, int i,
                              const struct zt_checkpoint_source *other)
{
    bool there = false;

    for (int k = 0; !there && k < s->num; k++)
        there = k != i && zt_source_is_tied(s, i, k) &&
                zt_source_find(other, s->tensors[k].t.name) >= 0;
    return there;
}

/* Integers, and what is not read as floats: their bytes alone are known. */
static bool has_bytes(const struct zt_checkpoint_source *s, int i)
{
    return s->tensors[i].stored && !s->tensors[i].t.readable;
}

static bool same_bytes(const struct zt_safetensors_tensor *x,
                       const struct zt_safetensors_tensor *y)
{
    return x && y && strcmp(x->type, y->type) == 0 && x->bytes == y->bytes &&
           !x->stride && !y->stride &&
           (!x->bytes || memcmp(x->data, y->data, x->bytes) == 0);
}

static void diff_bytes(struct comparison *c, int i, int j)
{
    const struct zt_safetensors_tensor *x = c->a->tensors[i].stored;
    const struct zt_safetensors_tensor *y = c->b->tensors[j].stored;

    if (same_bytes(x, y)) {
        c->same++;
        return;
    }
    printf("%s: stored as %s and %s, with other bytes\n", c->a->tensors[i].t.name,
           x ? x->type : zt_dtype_name(c->a->tensors[i].dtype),
           y ? y->type : zt_dtype_name(c->b->tensors[j].dtype));
    c->differ++;
}

/* Tensor i, if there is one, has this kind of state here. */
static bool is_here(const struct zt_checkpoint_source *s, int i, int kind)
{
    return i >= 0 && s->tensors[i].kinds >> kind & 1 && !zt_source_is_elsewhere(s, i);
}

/* Weights, or what may be some: a mask that one of two files lacks is none. */
static bool is_weights(const struct zt_checkpoint_source *s, int i)
{
    return s->tensors[i].t.readable || zt_source_unread_type(s, i);
}

static zt_err diff_one(struct comparison *c, int i, struct zt_fault *fault)
{
    const struct zt_source_tensor *t = &c->a->tensors[i];
    int j = find_same(c->b, t->t.name);
    int64_t differ = 0;
    double most = 0;
    zt_err rc = ZT_OK;

    if (!is_here(c->a, i, c->kind_a) || (j < 0 && !is_weights(c->a, i)))
        return ZT_OK;
    if (j < 0 && is_there_as_alias(c->a, i, c->b))
        return ZT_OK; /* the tensor is compared by that name */
    if (!is_here(c->b, j, c->kind_b)) {
        printf("only in %s: %s\n", c->a->path, t->t.name);
    } else if (!same_shape(&t->t, &c->b->tensors[j].t)) {
        printf("%s: other shapes\n", t->t.name);
    } else if (has_bytes(c->a, i) || has_bytes(c->b, j)) {
        diff_bytes(c, i, j);
        return ZT_OK;
    } else {
        rc = compare_tensors(c, i, j, &differ, &most, fault);
        c->same += !rc && !differ;
        if (rc || !differ)
            return rc;
    }
    if (differ)
        printf("%s: %lld of %lld elements differ, by up to %.9g\n", t->t.name,
               (long long)differ, (long long)t->t.numel, most);
    c->differ++;
    return rc;
}

static zt_err diff_all(struct comparison *c, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    c->kind_a = zt_source_find_kind(c->a, c->kind);
    c->kind_b = zt_source_find_kind(c->b, c->kind);
    if (c->kind_a < 0 || c->kind_b < 0)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--kind %s: %s has none; zckpt ls shows kinds", c->kind,
                            c->kind_a < 0 ? c->a->path : c->b->path);
    for (int i = 0; !rc && i < c->a->num; i++)
        rc = diff_one(c, i, fault);
    for (int i = 0; !rc && i < c->b->num; i++) {
        int j = find_same(c->a, c->b->tensors[i].t.name);

        if (is_weights(c->b, i) && is_here(c->b, i, c->kind_b) &&
            !is_here(c->a, j, c->kind_a) &&
            (j >= 0 || !is_there_as_alias(c->b, i, c->a))) {
            printf("only in %s: %s\n", c->b->path, c->b->tensors[i].t.name);
            c->differ++;
        }
    }
    return rc;
}

zt_err zt_zckpt_diff(const zt_args *args, const char *const *words, int num_words,
                     struct zt_fault *fault)
{
    struct comparison c = {.kind = zt_args_string(args, "kind"),
                           .tolerance = zt_args_float(args, "tolerance"),
                           .piece = malloc(2 * ZT_EXPORT_PIECE * sizeof(float))};
    zt_err rc = c.piece ? ZT_OK : zt_fault_set(fault, ZT_E_NOMEM, "no memory");

    (void)num_words;
    if (!rc)
        rc = zt_source_open(words[0], NULL, &c.a, fault);
    if (!rc)
        rc = zt_source_open(words[1], NULL, &c.b, fault);
    if (!rc)
        rc = diff_all(&c, fault);
    if (!rc)
        printf("%d tensors alike, %d differ\n", c.same, c.differ);
    if (!rc && c.differ) {
        if (fault)
            fault->text[0] = 0; /* what differs is said already */
        rc = ZT_E_PEER;
    }
    free(c.piece);
    zt_source_close(c.a);
    zt_source_close(c.b);
    return rc;
}

/* ---- average ---- */

struct average {
    struct zt_checkpoint_source **sources;
    int num;
    float *piece;
    double *sum;
    const char *lost; /* the first tensor whose mean is not finite; NULL: none */
};

/* Tensor i of `s` in `other`, by one of its names; -1: it is not there. */
static int find_by_any_name(const struct zt_checkpoint_source *other,
                            const struct zt_checkpoint_source *s, int i)
{
    int j = find_same(other, s->tensors[i].t.name);

    for (int k = 0; j < 0 && k < s->num; k++)
        if (k != i && zt_source_is_tied(s, i, k))
            j = find_same(other, s->tensors[k].t.name);
    return j;
}

/* The mean in double, rounded once. */
static zt_err mean(void *arg, int i, int64_t first, int64_t n, float *out,
                   struct zt_fault *fault)
{
    struct average *a = arg;
    zt_err rc = ZT_OK;

    memset(a->sum, 0, (size_t)n * sizeof(*a->sum));
    for (int k = 0; !rc && k < a->num; k++) {
        rc = zt_source_read(a->sources[k], 0,
                            find_by_any_name(a->sources[k], a->sources[0], i), first, n,
                            a->piece, fault);
        for (int64_t x = 0; !rc && x < n; x++)
            a->sum[x] += a->piece[x];
    }
    for (int64_t x = 0; !rc && x < n; x++) {
        out[x] = (float)(a->sum[x] / a->num);
        if (!isfinite(out[x]) && !a->lost)
            a->lost = a->sources[0]->tensors[i].t.name;
    }
    return rc;
}

/* What is one tensor by the names i and k in `s` is one in `other`, too. */
static zt_err check_tied(const struct zt_checkpoint_source *other,
                         const struct zt_checkpoint_source *s, int i, int k,
                         struct zt_fault *fault)
{
    const char *x = s->tensors[i].t.name, *y = s->tensors[k].t.name;
    int there = zt_source_find(other, x), also = zt_source_find(other, y);

    if (there < 0 || also < 0 || zt_source_is_tied(other, there, also))
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_FORMAT,
                        "%s: %s and %s are one tensor, and in %s they are two", s->path,
                        x, y, other->path);
}

/* Whole numbers are those of the first model, which are those of all that have them. */
static zt_err check_integers(const struct average *a,
                             const struct zt_checkpoint_source *other,
                             const struct zt_checkpoint_source *s, int i,
                             struct zt_fault *fault)
{
    const char *name = s->tensors[i].t.name;
    int j = find_same(other, name);

    if (j < 0) { /* a mask, as older files have it */
        fprintf(stderr, "%s: has no %s, of whole numbers, as %s has; it is %s\n",
                other->path, name, s->path, s == a->sources[0] ? "kept" : "left out");
        return ZT_OK;
    }
    if (same_bytes(s->tensors[i].stored, other->tensors[j].stored))
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_FORMAT,
                        "%s: %s holds other whole numbers than in %s; of these there is "
                        "no mean",
                        other->path, name, s->path);
}

static zt_err check_floats(const struct zt_checkpoint_source *other,
                           const struct zt_checkpoint_source *s, int i,
                           struct zt_fault *fault)
{
    const struct zt_checkpoint_tensor *t = &s->tensors[i].t;
    int j = find_by_any_name(other, s, i);

    if (j < 0 || !same_shape(t, &other->tensors[j].t))
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: has no tensor %s of the shape that it has in %s",
                            other->path, t->name, s->path);
    if (other->tensors[j].raw)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: %s holds whole numbers, and others in %s", other->path,
                            t->name, s->path);
    return ZT_OK;
}

/* Tensors of `s` are in `other`, with their shapes. */
static zt_err check_has_those_of(const struct average *a,
                                 const struct zt_checkpoint_source *other,
                                 const struct zt_checkpoint_source *s,
                                 struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < s->num; i++) {
        if (s->tensors[i].t.readable)
            rc = check_floats(other, s, i, fault);
        else if (s->tensors[i].raw)
            rc = check_integers(a, other, s, i, fault);
        for (int k = 0; !rc && k < i; k++)
            if (zt_source_is_tied(s, i, k))
                rc = check_tied(other, s, i, k, fault);
    }
    return rc;
}

static zt_err check_alike(const struct average *a, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int k = 1; !rc && k < a->num; k++) {
        rc = check_has_those_of(a, a->sources[k], a->sources[0], fault);
        if (!rc)
            rc = check_has_those_of(a, a->sources[0], a->sources[k], fault);
    }
    return rc;
}

/* `name` beside the weights, config.json; NULL: there is none that can be read. */
static json_t *config_of(const struct zt_checkpoint_source *s, const char *name)
{
    char *path = NULL;
    json_t *o = NULL;

    if (!zt_source_neighbour(s, name, &path, NULL) && path)
        o = json_load_file(path, 0, NULL);
    free(path);
    return o;
}

/* null: what follows from other values, which are compared, or that there is none of it. */
static bool is_other(const char *key, const json_t *a, const json_t *b)
{
    if (strcmp(key, "rope_scaling") == 0 || strcmp(key, "sliding_window") == 0)
        return a && b && !json_equal(a, b);
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) != json_number_value(b);
    return a && b && !json_is_null(a) && !json_is_null(b) && !json_equal(a, b);
}

/* The same tensors can be of models that compute other things: heads, positions. */
static void tell_other_configs(const struct average *a)
{
    static const char *const of_files[] = {"_name_or_path", "dtype", "torch_dtype",
                                           "transformers_version", "use_cache"};
    json_t *first = config_of(a->sources[0], "config.json");

    for (int k = 1; first && k < a->num; k++) {
        json_t *other = config_of(a->sources[k], "config.json"), *value;
        const char *key;

        json_object_foreach(first, key, value)
        {
            bool matters = is_other(key, value, json_object_get(other, key));

            for (size_t i = 0; i < sizeof(of_files) / sizeof(*of_files); i++)
                matters = matters && strcmp(key, of_files[i]) != 0;
            if (matters)
                fprintf(
                    stderr,
                    "%s: config.json has another %s than that of %s, which is taken\n",
                    a->sources[k]->path, key, a->sources[0]->path);
        }
        json_decref(other);
    }
    json_decref(first);
}

/* Adapters count by what is beside them alone. */
static void tell_other_scales(const struct average *a)
{
    static const char *const keys[] = {"lora_alpha", "use_rslora"};
    json_t *first = config_of(a->sources[0], "adapter_config.json");

    for (int k = 1; k < a->num; k++) {
        json_t *other = config_of(a->sources[k], "adapter_config.json");

        for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
            if (is_other(keys[i], json_object_get(first, keys[i]),
                         json_object_get(other, keys[i])))
                fprintf(stderr,
                        "%s: adapter_config.json has another %s than that of %s: their "
                        "mean is of numbers that do not count alike\n",
                        a->sources[k]->path, keys[i], a->sources[0]->path);
        json_decref(other);
    }
    json_decref(first);
}

/* words[0], which is written, is none of the others, which are read, nor has one of them. */
static zt_err check_not_among(const char *const *words, int num, struct zt_fault *fault)
{
    for (int i = 1; i < num; i++)
        if (zt_is_of_folder(words[0], words[i]))
            return zt_fault_set(fault, ZT_E_USAGE,
                                "%s is to be written, and %s is read; OUT comes first, "
                                "and is none of the others: zckpt average OUT A B",
                                words[0],
                                zt_is_one_file(words[0], words[i]) ? "it" : words[i]);
    return ZT_OK;
}

zt_err zt_zckpt_average(const zt_args *args, const char *const *words, int num_words,
                        struct zt_fault *fault)
{
    struct average a = {
        .sources = calloc((size_t)num_words, sizeof(struct zt_checkpoint_source *)),
        .piece = malloc(ZT_EXPORT_PIECE * sizeof(float)),
        .sum = malloc(ZT_EXPORT_PIECE * sizeof(double))};
    struct zt_tensor_export how = {.to = words[0],
                                   .dtype = ZT_F32,
                                   .shard_bytes = INT64_C(5000000000),
                                   .safe = true,
                                   .value = mean,
                                   .arg = &a};
    struct zt_exported made;
    zt_err rc = a.sources && a.piece && a.sum
                    ? ZT_OK
                    : zt_fault_set(fault, ZT_E_NOMEM, "no memory");

    if (!rc)
        rc = check_not_among(words, num_words, fault);
    if (!rc)
        rc = zt_zckpt_check_out(words[0], args, fault);
    for (; !rc && a.num < num_words - 1; a.num += !rc)
        rc = zt_source_open(words[a.num + 1], NULL, &a.sources[a.num], fault);
    if (!rc)
        rc = check_alike(&a, fault);
    if (!rc && zt_source_is_adapters(a.sources[0]))
        tell_other_scales(&a);
    else if (!rc)
        tell_other_configs(&a);
    if (!rc)
        rc = zt_export(a.sources[0], &how, &made, fault);
    if (!rc && a.lost)
        fprintf(stderr,
                "%s: %s has numbers that are not finite, as one of the models has\n",
                words[0], a.lost);
    if (!rc)
        printf("%s: the mean of %d, %d tensors\n", words[0], a.num, made.tensors);
    for (int i = 0; i < a.num; i++)
        zt_source_close(a.sources[i]);
    free(a.sources);
    free(a.piece);
    free(a.sum);
    return rc;
}
