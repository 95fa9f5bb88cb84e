/*
 * pickle.h -- Python's pickles as data: nothing in one is ever executed.
 *
 * A pickle is a program for a small machine with a stack. Most of its operations build
 * lists, dictionaries and texts; the others name a class and call it. Here those calls
 * are data: of the names in pickle_globals.c (tensors, their storages, OrderedDict ...) the
 * result is built, and a call of anything else becomes an object of that name, which can
 * be listed and holds no tensor. Protocols 2 to 5.
 *
 * Memory is bounded by the pickle's length, and by ZT_PICKLE_ARENA at most; nothing
 * recurses. A value can be part of several others, and of itself: walk with a bound.
 * Ownership: values belong to the pickle, texts to what was parsed.
 * Threads:   a parsed pickle may be read by several.
 */
#ifndef WORKER_TORCH_FILE_PICKLE_H
#define WORKER_TORCH_FILE_PICKLE_H

#include "worker/checkpoint/safetensors.h"

#define ZT_PICKLE_BYTES ((size_t)256 << 20) /* a longer one is refused */
#define ZT_PICKLE_ARENA ((size_t)512 << 20) /* its values and stack */

typedef enum zt_pickled_kind {
    ZT_PICKLED_NONE,
    ZT_PICKLED_BOOL,    /* integer */
    ZT_PICKLED_INT,     /* integer */
    ZT_PICKLED_FLOAT,   /* real */
    ZT_PICKLED_TEXT,    /* text, text_bytes */
    ZT_PICKLED_BYTES,   /* text, text_bytes */
    ZT_PICKLED_LIST,    /* items, num; a set as well */
    ZT_PICKLED_TUPLE,   /* items, num */
    ZT_PICKLED_DICT,    /* items: key, value, key, value ...; num counts both */
    ZT_PICKLED_CLASS,   /* text: "module name" */
    ZT_PICKLED_OBJECT,  /* text: its class; items: arguments, state, if any */
    ZT_PICKLED_STORAGE, /* storage */
    ZT_PICKLED_TENSOR,  /* tensor */
} zt_pickled_kind;

/* The memory behind tensors. */
struct zt_torch_storage {
    const char *key; /* its name in the file */
    size_t key_bytes;
    const char *type; /* as in safetensors: "F32"; "U8" for an untyped one */
    unsigned bytes_per_elem;
    int64_t numel;
    int64_t first;       /* old form: it begins at this element of what `key` names */
    const uint8_t *data; /* NULL until the container has found it */
};

struct zt_torch_tensor {
    struct zt_safetensors_tensor t; /* its name is empty */
    struct zt_torch_storage *storage;
    int64_t offset; /* elements into the storage */
    unsigned bytes_per_elem;
};

struct zt_pickled {
    zt_pickled_kind kind;
    int64_t num, cap;
    struct zt_pickled **items;
    union {
        int64_t integer;
        double real;
        size_t text_bytes;
    };
    union {
        const char *text; /* UTF-8, without a NUL */
        struct zt_torch_storage *storage;
        struct zt_torch_tensor *tensor;
    };
};

struct zt_pickle {
    struct zt_pickled *root;
    struct zt_torch_storage **storages;
    struct zt_torch_tensor **tensors;
    size_t num_storages, num_tensors, cap_storages, cap_tensors;
    struct zt_pickle_chunk *chunks; /* the arena */
    size_t arena_bytes;
};

/*
 * One pickle at the beginning of `data`; *used: its length. `path` is what messages call
 * the file. ZT_E_FORMAT: malformed; ZT_E_UNSUPPORTED: an operation that is not known;
 * ZT_E_LIMIT. Messages say the byte.
 */
zt_err zt_pickle_parse(const char *path, const uint8_t *data, size_t bytes,
                       struct zt_pickle *out, size_t *used,
                       struct zt_fault *fault) ZT_MUST_CHECK;
void zt_pickle_release(struct zt_pickle *p); /* a zeroed struct is fine */

/* ---- looking at values; each takes NULL, as a value of the wrong kind ---- */

/* The value of a text key; the last of several. NULL: none, or no dictionary. */
const struct zt_pickled *zt_pickled_get(const struct zt_pickled *dict, const char *key);
/* Item i of a list or tuple; NULL: none. */
const struct zt_pickled *zt_pickled_at(const struct zt_pickled *list, int64_t i);
/* Items of a list or tuple, pairs of a dictionary; else 0. */
int64_t zt_pickled_count(const struct zt_pickled *v);
/* Key (value) i of a dictionary, in its order; NULL: none. */
const struct zt_pickled *zt_pickled_key(const struct zt_pickled *dict, int64_t i);
const struct zt_pickled *zt_pickled_value(const struct zt_pickled *dict, int64_t i);
/* False: another kind. A bool is an integer, an integer a real. */
bool zt_pickled_int(const struct zt_pickled *v, int64_t *out);
bool zt_pickled_real(const struct zt_pickled *v, double *out);
/* Whether it is this text. */
bool zt_pickled_is(const struct zt_pickled *v, const char *text);
/* NULL: no tensor. */
const struct zt_torch_tensor *zt_pickled_tensor(const struct zt_pickled *v);
/* What it is, for messages: "a list", "an object of class x.Y". */
void zt_pickled_describe(const struct zt_pickled *v, char *out, size_t cap);

#endif
