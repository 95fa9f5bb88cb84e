/*
 * types.h -- scalars, error codes and handles shared by every zlaunch header.
 *
 * A plugin is plain C that sees include/zlaunch only. Everything behind a handle
 * belongs to the worker; a plugin never allocates or frees one, and never looks inside.
 * Threads: a rank calls a plugin from one thread only.
 */
#ifndef ZLAUNCH_TYPES_H
#define ZLAUNCH_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The plugin ABI. The minor number grows when these headers gain something: a function, a
 * flag, a member at the end of a struct that callers fill. Such a struct carries its size
 * in `struct_bytes`, which a macro sets, and members that an older header did not have
 * read as zero. So a plugin built against an older header of the same major number loads
 * and means what it meant. The major number grows when a struct, a signature or a meaning
 * changes in any other way. A plugin of another major number, or of a newer minor one, is
 * refused by name when it is loaded.
 */
#define ZT_ABI_MAJOR 3u
#define ZT_ABI_MINOR 5u
#define ZT_ABI       (ZT_ABI_MAJOR << 16 | ZT_ABI_MINOR)

/* What a worker offers to plugins. Everything else in it is hidden. */
#define ZT_API __attribute__((visibility("default")))

#define ZT_MUST_CHECK                 __attribute__((warn_unused_result))
#define ZT_PRINTF(fmt_arg, first_arg) __attribute__((format(printf, fmt_arg, first_arg)))

/* The most axes a tensor can have. */
#define ZT_MAX_NDIM 6

/* Status of a call. Zero is success. Each maps to one exit code: see zt_err_exit_code().
 */
typedef enum zt_err {
    ZT_OK = 0,
    ZT_E_NOMEM,       /* memory is out */
    ZT_E_SYSTEM,      /* a system call failed; the text carries strerror */
    ZT_E_ARG,         /* the caller broke a rule of the call: shapes, dtypes, NULL */
    ZT_E_USAGE,       /* a bad command line */
    ZT_E_CONFIG,      /* a bad config file, or one that contradicts the command line */
    ZT_E_NOINPUT,     /* an input file is missing or unreadable */
    ZT_E_FORMAT,      /* an input file or message is malformed or truncated */
    ZT_E_LIMIT,       /* a cap was reached */
    ZT_E_SHORT,       /* fewer bytes than asked for */
    ZT_E_PLUGIN,      /* the plugin is unusable: ABI, symbols, its own error */
    ZT_E_PLAN,        /* the run cannot fit in memory, or no such device */
    ZT_E_PEER,        /* another rank failed */
    ZT_E_NUMERIC,     /* numbers went bad: the loss scale hit its floor, NaN in weights */
    ZT_E_UNSUPPORTED, /* known by name but not built or not available here */
    ZT_E_CANCELLED,   /* asked to stop */
    ZT_E_CANTCREATE,  /* an output file or folder cannot be written */
    ZT_E_HOST,        /* a node cannot be reached, or was lost */
    ZT_E_LOST,        /* the connection to another rank was lost, or cannot be made */
    ZT_NUM_ERR
} zt_err;

/* Element types of a tensor. Sums are always taken in fp32 whatever the storage is. */
typedef enum zt_dtype {
    ZT_F32 = 0,
    ZT_BF16, /* bfloat16: 8 bits of exponent, 7 of fraction */
    ZT_F16,  /* IEEE 754 binary16 */
    ZT_I32,
    ZT_I64,
    ZT_U8,
    ZT_NUM_DTYPE,

    /* Not of tensors, files and messages: operands of products inside the worker, and what
     * bf16 leaves of an fp32 number. */
    ZT_F8E4M3, /* 4 bits of exponent, 3 of fraction */
    ZT_F8E5M2, /* 5 bits of exponent, 2 of fraction */
    ZT_REST16
} zt_dtype;

/* Bytes of one element; "f32", "bf16", "f16", "i32", "i64", "u8", "f8e4m3". */
ZT_API size_t zt_dtype_bytes(zt_dtype dtype);
ZT_API const char *zt_dtype_name(zt_dtype dtype);

/* Handles. */
typedef struct zt_model zt_model;   /* a model under construction, then its table */
typedef struct zt_block zt_block;   /* the unit of gathering, recomputation, offload */
typedef struct zt_param zt_param;   /* one named weight tensor */
typedef struct zt_tensor zt_tensor; /* a value inside one step; owned by the step */
typedef struct zt_step zt_step;     /* one forward (and backward) pass */
typedef struct zt_batch zt_batch;   /* the named inputs of one pass */
typedef struct zt_args zt_args;     /* the plugin's own options, parsed and checked */

#ifdef __cplusplus
}
#endif
#endif
