/*
 * pickle_globals.c -- the calls in a pickle whose result is built: tensors, storages and
 * the containers around them. This is the whole list; every other call becomes an object
 * that is its name and its arguments.
 */
#include <stdlib.h>
#include <string.h>

#include "worker/torch_file/private.h"

#define MAX_NDIM 64

static const struct element {
    const char *storage, *dtype; /* classes; NULL: there is none */
    const char *type;            /* as in safetensors */
    unsigned bytes;
} elements[] = {
    {"torch FloatStorage", "torch float32", "F32", 4},
    {"torch BFloat16Storage", "torch bfloat16", "BF16", 2},
    {"torch HalfStorage", "torch float16", "F16", 2},
    {"torch DoubleStorage", "torch float64", "F64", 8},
    {"torch LongStorage", "torch int64", "I64", 8},
    {"torch IntStorage", "torch int32", "I32", 4},
    {"torch ShortStorage", "torch int16", "I16", 2},
    {"torch CharStorage", "torch int8", "I8", 1},
    {"torch ByteStorage", "torch uint8", "U8", 1},
    {"torch BoolStorage", "torch bool", "BOOL", 1},
    {"torch ComplexFloatStorage", "torch complex64", "C64", 8},
    {"torch UntypedStorage", NULL, "U8", 1},
    {"torch.storage UntypedStorage", NULL, "U8", 1},
    {NULL, "torch uint16", "U16", 2},
    {NULL, "torch uint32", "U32", 4},
    {NULL, "torch uint64", "U64", 8},
    {NULL, "torch float8_e4m3fn", "F8_E4M3", 1},
    {NULL, "torch float8_e5m2", "F8_E5M2", 1},
};

static const struct element *find_element(const struct zt_pickled *cls, bool as_dtype)
{
    for (size_t i = 0; i < sizeof(elements) / sizeof(*elements); i++) {
        const char *name = as_dtype ? elements[i].dtype : elements[i].storage;

        if (name && cls && cls->kind == ZT_PICKLED_CLASS && zt_pickled_is(cls, name))
            return &elements[i];
    }
    return NULL;
}

static bool grow(void *list, size_t *cap, size_t num)
{
    size_t more = *cap ? 2 * *cap : 64;
    void *bigger;

    if (num < *cap)
        return true;
    bigger = realloc(*(void **)list, more * sizeof(void *));
    if (!bigger)
        return false;
    *(void **)list = bigger;
    *cap = more;
    return true;
}

/* ---- storages ---- */

/* ('storage', class, key, location, numel [, view]), view: None or (key, first, numel) */
struct zt_pickled *zt_pickle_persistent(struct zt_pickle *p, struct zt_pickled *id,
                                        const char **why)
{
    const struct element *e = find_element(zt_pickled_at(id, 1), false);
    const struct zt_pickled *key = zt_pickled_at(id, 2), *view = zt_pickled_at(id, 5);
    struct zt_pickled *v = zt_pickle_make(p, ZT_PICKLED_STORAGE);
    struct zt_torch_storage *s = zt_pickle_alloc(p, sizeof(*s));

    *why = "no memory within its limit";
    if (!v || !s || !grow(&p->storages, &p->cap_storages, p->num_storages))
        return NULL;
    *why = "a reference to something outside of the pickle that is no storage of tensors";
    if (!zt_pickled_is(zt_pickled_at(id, 0), "storage") || !key ||
        key->kind != ZT_PICKLED_TEXT || !zt_pickled_int(zt_pickled_at(id, 4), &s->numel))
        return NULL;
    *why = "a storage of a type that is not known";
    if (!e)
        return NULL;
    *why = "a storage of a size that cannot be";
    if (view && view->kind == ZT_PICKLED_TUPLE &&
        (!zt_pickled_int(zt_pickled_at(view, 1), &s->first) ||
         !zt_pickled_int(zt_pickled_at(view, 2), &s->numel)))
        return NULL;
    if (s->numel < 0 || s->first < 0 || s->numel > INT64_MAX / 16 ||
        s->first > INT64_MAX / 16)
        return NULL;
    s->key = key->text;
    s->key_bytes = key->text_bytes;
    s->type = e->type;
    s->bytes_per_elem = e->bytes;
    v->storage = s;
    p->storages[p->num_storages++] = s;
    return v;
}

/* ---- tensors ---- */

static bool read_axes(const struct zt_pickled *sizes, const struct zt_pickled *strides,
                      int64_t *shape, int64_t *stride)
{
    int64_t n = sizes && strides ? zt_pickled_count(sizes) : 0;

    for (int64_t i = 0; i < n; i++)
        if (!zt_pickled_int(sizes->items[i], &shape[i]) || shape[i] < 0 ||
            !zt_pickled_int(strides->items[i], &stride[i]) || stride[i] < 0)
            return false;
    return true;
}

/* Elements, and whether all of them lie within `room` elements. */
static bool measure(struct zt_safetensors_tensor *t, int64_t offset, int64_t room)
{
    int64_t last = offset, step;

    t->elems = 1;
    for (int i = 0; i < t->ndim; i++)
        if (t->shape[i] == 0) {
            t->elems = 0;
            return true;
        }
    for (int i = 0; i < t->ndim; i++)
        if (__builtin_mul_overflow(t->elems, t->shape[i], &t->elems) ||
            __builtin_mul_overflow(t->shape[i] - 1, t->stride[i], &step) ||
            __builtin_add_overflow(last, step, &last))
            return false;
    return offset >= 0 && last < room && t->elems <= INT64_MAX / 16;
}

/* Strides that are those of a tensor without gaps are not kept. */
static void drop_usual_strides(struct zt_safetensors_tensor *t)
{
    int64_t expected = 1;

    for (int i = t->ndim - 1; i >= 0; i--) {
        if (t->shape[i] != 1 && t->stride[i] != expected)
            return;
        expected *= t->shape[i];
    }
    t->stride = NULL;
}

static bool fill(struct zt_pickle *p, struct zt_torch_tensor *x, const struct element *e,
                 const struct zt_pickled *sizes, const struct zt_pickled *strides)
{
    int64_t n = zt_pickled_count(sizes), room;
    int64_t *axes = zt_pickle_alloc(p, (size_t)(2 * n + 1) * sizeof(*axes));

    if (!axes || !read_axes(sizes, strides, axes, axes + n))
        return false;
    room = x->storage->numel * x->storage->bytes_per_elem / e->bytes;
    x->bytes_per_elem = e->bytes;
    x->t.ndim = (int)n;
    x->t.shape = axes;
    x->t.stride = axes + n;
    zt_safetensors_set_type(&x->t, e->type);
    if (!measure(&x->t, x->offset, room))
        return false;
    if (x->t.elems == 0)
        x->t.stride = NULL;
    else
        drop_usual_strides(&x->t);
    x->t.bytes = (size_t)x->t.elems * e->bytes;
    return true;
}

static const struct element *element_of_storage(const struct zt_torch_storage *s)
{
    for (size_t i = 0; i < sizeof(elements) / sizeof(*elements); i++)
        if (elements[i].type == s->type)
            return &elements[i];
    return NULL;
}

/* (storage, offset, sizes, strides, ...); e: NULL is the storage's type */
static struct zt_pickled *make_tensor(struct zt_pickle *p, const struct zt_pickled *args,
                                      const struct element *e, const char **why)
{
    const struct zt_pickled *from = zt_pickled_at(args, 0);
    const struct zt_pickled *sizes = zt_pickled_at(args, 2);
    const struct zt_pickled *strides = zt_pickled_at(args, 3);
    struct zt_pickled *v = zt_pickle_make(p, ZT_PICKLED_TENSOR);
    struct zt_torch_tensor *x = zt_pickle_alloc(p, sizeof(*x));

    *why = "no memory within its limit";
    if (!v || !x || !grow(&p->tensors, &p->cap_tensors, p->num_tensors))
        return NULL;
    *why = "a tensor whose parts are not those of one";
    if (!from || from->kind != ZT_PICKLED_STORAGE ||
        !zt_pickled_int(zt_pickled_at(args, 1), &x->offset) ||
        zt_pickled_count(sizes) != zt_pickled_count(strides) ||
        zt_pickled_count(sizes) > MAX_NDIM || (sizes && sizes->kind == ZT_PICKLED_DICT))
        return NULL;
    *why = "a tensor that does not fit into its storage";
    x->storage = from->storage;
    if (!e)
        e = element_of_storage(from->storage);
    if (!e || !fill(p, x, e, sizes, strides))
        return NULL;
    x->t.name = "";
    v->tensor = x;
    p->tensors[p->num_tensors++] = x;
    return v;
}

/* A view whose numbers are the negatives of those in the storage. */
static bool is_negated(const struct zt_pickled *metadata, const char **why)
{
    int64_t on = 0;

    *why =
        "a tensor that is stored by its negative; resolve_neg() of torch makes it plain";
    return zt_pickled_int(zt_pickled_get(metadata, "neg"), &on) && on;
}

/* (storage, offset, sizes, strides, requires_grad, hooks, metadata) */
static struct zt_pickled *rebuild_v2(struct zt_pickle *p, struct zt_pickled *args,
                                     const char **why)
{
    return is_negated(zt_pickled_at(args, 6), why) ? NULL
                                                   : make_tensor(p, args, NULL, why);
}

/* (storage, offset, sizes, strides, requires_grad, hooks, dtype, metadata) */
static struct zt_pickled *rebuild_v3(struct zt_pickle *p, struct zt_pickled *args,
                                     const char **why)
{
    const struct element *e = find_element(zt_pickled_at(args, 6), true);

    if (is_negated(zt_pickled_at(args, 7), why))
        return NULL;
    *why = "a tensor of a type that is not known";
    return e ? make_tensor(p, args, e, why) : NULL;
}

/* (tensor, ...): what stands first */
static struct zt_pickled *rebuild_parameter(struct zt_pickle *p, struct zt_pickled *args,
                                            const char **why)
{
    (void)p;
    *why = "a parameter without a tensor";
    return zt_pickled_tensor(zt_pickled_at(args, 0)) ? args->items[0] : NULL;
}

/* (function, type, arguments, state) */
static struct zt_pickled *rebuild_from_type(struct zt_pickle *p, struct zt_pickled *args,
                                            const char **why)
{
    const struct zt_pickled *f = zt_pickled_at(args, 0), *in = zt_pickled_at(args, 2);

    *why = "a tensor of a class of its own that is not made from a plain one";
    if (zt_pickled_is(f, "torch._utils _rebuild_tensor_v2"))
        return make_tensor(p, in, NULL, why);
    return zt_pickled_is(f, "torch._utils _rebuild_parameter")
               ? rebuild_parameter(p, args->items[2], why)
               : NULL;
}

/* ---- containers ---- */

/* OrderedDict(), OrderedDict([(key, value), ...]) */
static struct zt_pickled *make_dict(struct zt_pickle *p, struct zt_pickled *args,
                                    const char **why)
{
    const struct zt_pickled *pairs = zt_pickled_at(args, 0);
    struct zt_pickled *d = zt_pickle_make(p, ZT_PICKLED_DICT);

    *why = "a dictionary whose entries are no pairs, or too large";
    for (int64_t i = 0; d && i < zt_pickled_count(pairs); i++) {
        const struct zt_pickled *pair = zt_pickled_at(pairs, i);

        if (zt_pickled_count(pair) != 2 || pair->kind == ZT_PICKLED_DICT ||
            !zt_pickle_append(p, d, pair->items[0]) ||
            !zt_pickle_append(p, d, pair->items[1]))
            return NULL;
    }
    return d;
}

/* defaultdict(factory): what fills it are later operations */
static struct zt_pickled *make_empty_dict(struct zt_pickle *p, struct zt_pickled *args,
                                          const char **why)
{
    (void)args;
    *why = "no memory within its limit";
    return zt_pickle_make(p, ZT_PICKLED_DICT);
}

/* torch.Size((..)), set([..]): what is in the argument */
static struct zt_pickled *make_sequence(struct zt_pickle *p, struct zt_pickled *args,
                                        const char **why)
{
    const struct zt_pickled *from = zt_pickled_at(args, 0);
    struct zt_pickled *v = zt_pickle_make(p, ZT_PICKLED_TUPLE);

    *why = "a sequence that is none";
    if (!v || (from && from->kind != ZT_PICKLED_TUPLE && from->kind != ZT_PICKLED_LIST))
        return NULL;
    if (from) {
        v->items = from->items; /* full: what is appended later moves it */
        v->num = v->cap = from->num;
    }
    return v;
}

static const struct {
    const char *name;
    struct zt_pickled *(*call)(struct zt_pickle *, struct zt_pickled *, const char **);
} calls[] = {
    {"torch._utils _rebuild_tensor_v2", rebuild_v2},
    {"torch._utils _rebuild_tensor_v3", rebuild_v3},
    {"torch._utils _rebuild_parameter", rebuild_parameter},
    {"torch._utils _rebuild_parameter_with_state", rebuild_parameter},
    {"torch._tensor _rebuild_from_type_v2", rebuild_from_type},
    {"collections OrderedDict", make_dict},
    {"collections defaultdict", make_empty_dict},
    {"torch Size", make_sequence},
    {"builtins set", make_sequence},
    {"__builtin__ set", make_sequence},
};

struct zt_pickled *zt_pickle_call(struct zt_pickle *p, struct zt_pickled *callee,
                                  struct zt_pickled *args, const char **why)
{
    struct zt_pickled *v;

    *why = "a call of something that has no name";
    if (callee->kind != ZT_PICKLED_CLASS && callee->kind != ZT_PICKLED_OBJECT)
        return NULL;
    for (size_t i = 0;
         callee->kind == ZT_PICKLED_CLASS && i < sizeof(calls) / sizeof(*calls); i++)
        if (zt_pickled_is(callee, calls[i].name))
            return calls[i].call(p, args, why);
    *why = "no memory within its limit";
    v = zt_pickle_make(p, ZT_PICKLED_OBJECT);
    if (!v || !zt_pickle_append(p, v, args))
        return NULL;
    v->text = callee->text;
    v->text_bytes = callee->text_bytes;
    return v;
}
