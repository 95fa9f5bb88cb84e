/*
 * tape.h -- what the files of autograd share: values, stores, nodes, calls, the step.
 *
 * A handle (zt_tensor) is a window on a store; a store is one piece of memory and, in
 * backward, the gradient of all of it. So the gradient of a view is the same window on
 * the gradient of its base, and reshape, transpose and slice need no backward.
 *
 *      handle --+
 *      handle --+--> store --> data      pool memory, or the caller's, or a weight
 *      handle --+          \-> grad      made on first write, let go when consumed
 *
 * Who keeps `data`: the function that is running (its frame), and every node that saved
 * it. Who keeps `grad`: the store; until the node that made the value has run backward.
 * A grad may serve several stores at once; it is copied before one of them adds to it.
 * G1: a store in a frame or a save list has refs > 0 and live data.
 * G2: a gradient with refs > 1 is never written.
 * G3: what zt_step_end finds in the list of stores is all there is to free.
 */
#ifndef WORKER_AUTOGRAD_TAPE_H
#define WORKER_AUTOGRAD_TAPE_H

#include "worker/autograd/arena.h"
#include "worker/autograd/step.h"

struct zt_grad {
    void *data;
    int refs;   /* stores it belongs to */
    bool owned; /* pool memory; else a slice of a block's grads */
};

/*
 * Of a value that an activation made. The product that sends back its only gradient can go
 * on to what the activation was made of: `done` says that the gradient of a GELU is that of
 * `pre` already. Of a SwiGLU the gradients of gate and up are then there, its own is not.
 */
struct zt_activation {
    zt_epilogue backward;
    struct zt_tensor
        *pre; /* of a GELU; like gate and up saved by the node that made it */
    struct zt_tensor *gate, *up; /* of a SwiGLU */
    struct zt_call *made_in;     /* the call of a block, NULL: outside of any */
    bool done;
};

/* Where an input of a recomputed block is: see host_inputs.c. */
enum zt_value_place { ZT_ON_DEVICE, ZT_LEAVING, ZT_ON_HOST, ZT_RETURNING };

/* Columns of a value (rows, begin[num]), each part of which gets its gradient by itself. */
struct zt_parts {
    int num;
    int64_t begin[ZT_MAX_LINEARS + 1];
    bool is_written[ZT_MAX_LINEARS]; /* once there is a gradient: of this part, too */
};

struct zt_storage {
    struct zt_storage *next;       /* all of the step */
    struct zt_storage *next_local; /* all of the frame */
    void *data;
    const struct zt_param *param; /* a weight: data is found through its block */
    struct zt_param *const
        *params;    /* weights side by side, the first of which is `param` */
    int num_params; /* 0: `param` alone, if any */
    struct zt_parts
        *parts; /* of its columns, which get their gradients apart; NULL: none */
    struct zt_grad *grad; /* NULL: nothing has reached it */
    int64_t numel;
    zt_dtype dtype, grad_dtype;
    enum zt_value_place place;
    void *host;                      /* its copy in the host pool; NULL: on the device */
    struct zt_storage *next_leaving; /* of the same block's inputs */
    bool has_left;                   /* it was on the host in this pass */
    int refs;
    int num_uses;                     /* nodes that it is an operand of */
    struct zt_activation *activation; /* that made it; NULL: none */
    bool owned;                       /* data is pool memory */
    bool gone;                        /* it was, and has been given back */
    bool requires_grad; /* a weight or leaf that wants one, or computed from such */
    bool of_batch;      /* a field of the batch, or computed from one */
    bool keep;          /* used while a frame is being left */
};

struct zt_tensor {
    struct zt_step *step;
    uint64_t pass; /* in which it was made: zt_step.pass_id */
    struct zt_storage *store;
    int64_t offset_elems;   /* of the view in the store */
    struct zt_view view;    /* as it was when the handle was made */
    struct zt_view on_leaf; /* what zt_step_leaf_grad() hands out */
};

struct zt_node;

/* A kind of operation: its name in messages, and how gradients go back through it. */
struct zt_op {
    const char *name;
    void (*backward)(struct zt_step *s, struct zt_node *n); /* failures go to the step */
};

struct zt_node {
    struct zt_node *prev; /* recorded before it; runs backward after it */
    const struct zt_op *op;
    struct zt_tensor *out;
    struct zt_tensor **in;    /* gradients go there */
    struct zt_tensor **saved; /* values that backward reads */
    int num_in, num_saved;
    void *attr; /* the op's own struct */
};

/* One call of a block, or a run of ops outside any block (block NULL). */
struct zt_call {
    struct zt_call *prev;
    struct zt_block *block;
    zt_block_fn fn;
    void *ctx;
    struct zt_tensor *in[ZT_MAX_BLOCK_IO], *out[ZT_MAX_BLOCK_IO];
    int num_in, num_out;
    int index;      /* among the calls of this block in this pass */
    int num_random; /* random ops so far; keys the next */
    bool recompute; /* nodes were dropped; run fn again before going backward */
    uint64_t did;   /* of a recomputed call: what its nodes were, as a hash */
    struct zt_node *last;
};

struct zt_batch {
    const struct zt_batch_layout *layout;
    struct zt_tensor *fields[ZT_MAX_FIELDS]; /* NULL: absent */
    uint32_t asked; /* a bit of each that forward has asked for */
};

/* cos and sin of one set of frequencies, (positions, rotary_dims / 2) each. */
struct zt_rope_table {
    struct zt_rope_table *next;
    float *inv_freq;
    int rotary_dims;
    float magnitude;
    int64_t positions;
    void *cos, *sin; /* pool memory */
    float *host;     /* (2, host_positions, rotary_dims / 2): cos and sin once more */
    int64_t host_positions;
};

/* A value beside the loss. */
struct zt_result {
    struct zt_result *next;
    const char *name;
    struct zt_tensor *t;
};

/* Keys and values of one attention call: (B, max_tokens, heads, width) each, or of a source
 * (num_sources, max_source, heads, width). */
struct zt_cache_entry {
    void *k, *v; /* pool memory */
    int64_t heads, width;
};

struct zt_cache_entries {
    struct zt_cache_entry *at;
    int num, next; /* next: ordinal of the next such call of this pass */
};

struct zt_cache {
    bool open;
    int64_t B, max_tokens;
    int32_t *lengths;  /* (B) tokens of each row */
    int32_t *uploaded; /* as they are in the pass that runs: memory that uploads read */
    struct zt_cache_entries texts;   /* of self-attention */
    struct zt_cache_entries sources; /* of cross-attention */
    /* rows [i * rows_each, (i + 1) * rows_each) are written from source i; 0: from none */
    int64_t rows_each, num_sources, max_source;
    int32_t *source_lengths;    /* (num_sources) tokens; 0: none has been read */
    int32_t *uploaded_sources;  /* (B) those of the rows of the pass that runs */
    int32_t *relative;          /* (B, max_tokens) ids of zt_relative_positions() */
    bool relative_is_uploading; /* in this pass */
};

struct zt_step {
    struct zt_step_config cfg;
    const struct zt_kernels *k;
    struct zt_arena *arena;
    struct zt_fault fault; /* code ZT_OK: all is well */

    uint64_t pass_id; /* of the pass at hand: no other has it */
    bool active, bare, in_backward, recomputing;
    struct zt_pass pass; /* mode and sizes; its pointers are not kept */
    struct zt_batch batch;
    struct zt_storage *stores, *frame;
    struct zt_call *calls, *open;  /* the newest, and the one that is running */
    const char *op;                /* that runs, for messages */
    const struct zt_storage *root; /* where backward began, from */
    float dloss;
    double flops;
    struct zt_recompute_times times;
    struct zt_product largest; /* of the products so far; zeros: none */

    int *num_calls; /* per block: in this pass */
    int *touched;   /* per block: calls to run backward that add to its gradients */
    bool *ready;    /* per block: reported */

    struct zt_rope_table *ropes;
    struct zt_constant *constants;
    zt_mode constants_mode; /* of the pass before, which they are from */
    struct zt_extent constants_size;
    struct zt_result *results;
    struct zt_cache cache;

    /* inputs of recomputed blocks on the host: NULL without a host pool */
    struct zt_stream *copies;
    struct zt_stream_event *queued, *copied; /* of the main stream; of the copies */
    struct zt_storage *leaving;

    int32_t *position_ids; /* 0, 1, 2, ... in host memory: positions are a slice of it */
    int64_t num_position_ids;
};

/* ---- store.c: values and gradients ---- */

/* A new value with memory from the pool, in the running frame. NULL: the step failed. */
struct zt_tensor *zt_value_new(struct zt_step *s, zt_dtype dtype, int ndim,
                               const int64_t *shape);
/* The same over memory that is not the step's. */
struct zt_tensor *zt_value_borrow(struct zt_step *s, const struct zt_view *v);
/* Another window on t's store. */
struct zt_tensor *zt_value_view(struct zt_step *s, struct zt_tensor *t, int ndim,
                                const int64_t *shape, const int64_t *stride,
                                int64_t offset_elems);
/* Where the value is now. */
struct zt_view zt_data(const struct zt_tensor *t);
/* Host numbers into a value; they stay until the device has passed. */
void zt_value_upload(struct zt_step *s, struct zt_tensor *t, const void *src);

void zt_store_ref(struct zt_storage *st);
void zt_store_unref(struct zt_step *s, struct zt_storage *st);
void zt_grad_drop(struct zt_step *s, struct zt_storage *st);
/* The store's own memory becomes its gradient; its data are gone. */
bool zt_grad_adopt(struct zt_step *s, struct zt_storage *st);
/* Let go of all values and gradients of the step. */
void zt_stores_release(struct zt_step *s);

/*
 * Where a kernel writes the gradient of one operand:
 *
 *      if (zt_grad_sink_open(s, &dx, x, ZT_SINK_SAME)) {
 *          kernel(.dx = dx.view, .accumulate = dx.accumulate);
 *          zt_grad_sink_close(s, &dx);
 *      }
 *
 * false: nobody wants it (view.data is NULL then), or the step failed. A gradient of
 * another dtype than the kernel writes goes through a temporary.
 */
typedef enum zt_sink_kind {
    ZT_SINK_SAME, /* the kernel writes the dtype of the operand */
    ZT_SINK_F32,  /* the kernel writes fp32 only */
    ZT_SINK_ANY,  /* the kernel writes either */
} zt_sink_kind;

struct zt_grad_sink {
    struct zt_view view;
    bool accumulate; /* += ; false: what is there is not initialised */
    struct zt_tensor *t;
    void *temp;
};
bool zt_grad_sink_open(struct zt_step *s, struct zt_grad_sink *k, struct zt_tensor *t,
                       zt_sink_kind kind);
/* The same for a kernel that only adds: the memory starts at zero. */
bool zt_grad_sink_open_adding(struct zt_step *s, struct zt_grad_sink *k,
                              struct zt_tensor *t, zt_sink_kind kind);
/* The same for a kernel with several results, when another sink may be the same memory.
 */
bool zt_grad_sink_open_apart(struct zt_step *s, struct zt_grad_sink *k,
                             struct zt_tensor *t);
/* Scratch shaped as t, for a gradient that a kernel writes and that is not needed. */
void zt_grad_sink_open_discarded(struct zt_step *s, struct zt_grad_sink *k,
                                 const struct zt_tensor *t);
void zt_grad_sink_close(struct zt_step *s, struct zt_grad_sink *k);

/*
 * When `ts` are neighbouring slices that together are all of one store without gradient
 * yet, make it without zeros: each is about to be overwritten. Then true, and sinks of
 * them must be opened with `accumulate` taken as false.
 */
bool zt_grad_split(struct zt_step *s, struct zt_tensor **ts, int count);

/*
 * Gradients of t (..., C) will come to windows on its columns, widths[i] wide each (num of
 * them, all of C), so no zeros are needed first. zt_grad_complete() is called before t's
 * gradient is read: parts that none has come to are zero then.
 */
void zt_grad_in_parts(struct zt_step *s, struct zt_tensor *t, const int64_t *widths,
                      int num);
void zt_grad_complete(struct zt_step *s, struct zt_tensor *t);

/* Gradient of t (shaped as t), there must be one. */
struct zt_view zt_grad_of(const struct zt_tensor *t);
/*
 * t's gradient += from's (row-major, as many elements), without a copy where one buffer
 * can serve both.
 */
void zt_grad_pass(struct zt_step *s, struct zt_tensor *from, struct zt_tensor *t);

/*
 * The activation that made t, when t's only gradient comes from the node that runs and what
 * t was made of is used for nothing else; NULL: it did not, or there is more to add.
 */
struct zt_activation *zt_sole_activation(const struct zt_step *s,
                                         const struct zt_tensor *t);
/* Says of a value how it was made; copied. */
void zt_note_activation(struct zt_step *s, struct zt_tensor *t, struct zt_activation a);

/* Scratch of one backward function. */
void *zt_scratch(struct zt_step *s, int64_t numel, zt_dtype dtype);
void zt_scratch_free(struct zt_step *s, void *p);

/* ---- host_inputs.c: inputs of recomputed blocks that wait in host memory ---- */

zt_err zt_host_inputs_open(struct zt_step *s, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_host_inputs_close(struct zt_step *s);
/* After the forward of a call that will be computed again: its inputs begin to leave. */
void zt_host_inputs_leave(struct zt_step *s, struct zt_call *c);
/* Before it is computed again: its inputs are there, those of the call before it begin to
 * return. */
void zt_host_inputs_return(struct zt_step *s, struct zt_call *c);
/* A kernel is about to read the value, wherever it is. */
void zt_host_input_need(struct zt_step *s, struct zt_storage *st);
/* Nobody will; its device memory, if it has any, may be given back after that. */
void zt_host_input_drop(struct zt_step *s, struct zt_storage *st);

/* ---- tape.c: nodes and calls ---- */

/* True when an op on these needs a node; NULLs in the list are fine. */
bool zt_requires_grad(const struct zt_step *s, struct zt_tensor *const *in, int num_in);

/*
 * Remember how `out` was made. `attr` (attr_bytes) is copied. Makes no node when no input
 * wants a gradient. Returns `out`, or NULL when the step has failed: for `return`.
 */
struct zt_tensor *zt_record(struct zt_step *s, const struct zt_op *op,
                            struct zt_tensor *out, struct zt_tensor *const *in,
                            int num_in, struct zt_tensor *const *saved, int num_saved,
                            const void *attr, size_t attr_bytes);

/* Let go of the frame's values, but for those marked: they move to the frame `outer`. */
void zt_frame_leave(struct zt_step *s, struct zt_storage *outer);

/* Backward of everything recorded, and the report of every block's gradients. */
void zt_run_backward(struct zt_step *s, struct zt_tensor *loss, float dloss);

/* Key of the next random op; `per_row` elements of each row of the global batch. */
struct zt_philox zt_next_random(struct zt_step *s, int64_t per_row);

/* ---- step.c: starting and failing ---- */

/* Weights of the running block that lie side by side from *params on (in its block's list), as
 * one of that shape. NULL: the step failed. */
struct zt_tensor *zt_joined_weights(struct zt_step *s, struct zt_param *const *params,
                                    int num, int ndim, const int64_t *shape);

/*
 * Every op begins here: false when the step has failed already, or one of `in` (num_in)
 * is NULL or cannot be read here. `name` is used in messages until the next op starts.
 */
bool zt_op_start(struct zt_step *s, const char *name, struct zt_tensor *const *in,
                 int num_in);
#define ZT_OP_START(s, name, ...)                                                        \
    zt_op_start(                                                                         \
        s, name, (struct zt_tensor *const[]){__VA_ARGS__},                               \
        (int)(sizeof((struct zt_tensor *const[]){__VA_ARGS__}) / sizeof(void *)))

/* Whether an operand that may be absent, and is not, can be read here; `name` is the op's. */
bool zt_operand_is_there(struct zt_step *s, const char *name, const struct zt_tensor *t);

/* The first failure stays; NULL, so that an op can return it. */
void *zt_step_fail(struct zt_step *s, zt_err code, const char *fmt, ...) ZT_PRINTF(3, 4);
/* Status of a kernel or a hook whose text is in s->fault. true: it went well. */
bool zt_step_check(struct zt_step *s, zt_err rc);

/* "(2, 8, 768)"; for messages: ZT_SHAPE_TEXT(x). */
const char *zt_shape_text(const struct zt_tensor *t, char out[96]);
#define ZT_SHAPE_TEXT(t) zt_shape_text(t, (char[96]){0})

/* ---- op_shape.c: what other ops need ---- */

/* t itself when row-major, else a copy (recorded). */
struct zt_tensor *zt_dense(struct zt_step *s, struct zt_tensor *t);
/* (..., C) as (rows, C): a view, of a dense copy if need be. */
struct zt_tensor *zt_rows(struct zt_step *s, struct zt_tensor *t);
/* The same, but rows may lie apart as long as the distance is regular. */
struct zt_tensor *zt_rows_strided(struct zt_step *s, struct zt_tensor *t);
/* (..., M, N) as (batch, M, N), or (M, N), with a unit stride in one of the last two. */
struct zt_tensor *zt_matrices(struct zt_step *s, struct zt_tensor *t);
/* t with the last axis of stride one. */
struct zt_tensor *zt_unit_last(struct zt_step *s, struct zt_tensor *t);

/* ---- attention_decode.c ---- */

/* zt_attention() of one token a row, q, k and v (B, 1, heads, D), behind what is cached. */
struct zt_tensor *zt_attention_decode(struct zt_step *s, struct zt_tensor *q,
                                      struct zt_tensor *k, struct zt_tensor *v,
                                      const struct zt_attention *how);

/* ---- op_elementwise.c ---- */

/*
 * zt_add() of two values of one shape but for its kernel, which the caller runs: terms
 * become dense, the result, recorded, has no values yet.
 */
struct zt_tensor *zt_add_unfilled(struct zt_step *s, struct zt_tensor *terms[2]);

/* ---- op_linear.c ---- */

/* zt_linear() whose rows have room between them where that lets their memory begin well:
 * for the logits of an odd number of words. */
struct zt_tensor *zt_linear_spaced(struct zt_step *s, struct zt_tensor *x,
                                   struct zt_tensor *w, struct zt_tensor *bias,
                                   unsigned flags);

/* ---- constant.c ---- */

/* The ends of a pass, and of the step. */
void zt_constants_begin(struct zt_step *s);
void zt_constants_end(struct zt_step *s);
void zt_constants_close(struct zt_step *s);

/* ---- cache.c ---- */

/* A pass begins. The device has passed the one before. */
void zt_cache_begin(struct zt_step *s);
/* Whether this pass reads the cache and adds to it. */
bool zt_cache_is_used(const struct zt_step *s);
/* Tokens that row `row` of the pass has in it; and the most that any has. */
int64_t zt_cache_length(const struct zt_step *s, int64_t row);
int64_t zt_cache_longest(const struct zt_step *s);
/* (B) i32 on the device: tokens that the rows of this pass have in it. */
struct zt_tensor *zt_cache_lengths(struct zt_step *s);
/* The entry of the attention call that is next, for k (B, T, K, D). NULL: the step failed. */
struct zt_cache_entry *zt_cache_next(struct zt_step *s, const struct zt_tensor *k);
/* The pass's rows of an entry: (B, max_tokens, K, D). */
struct zt_view zt_cache_rows(const struct zt_step *s, const struct zt_cache_entry *e,
                             void *memory);
/* Put k and v (B, T, K, D) behind the cached ones; *k, *v become all of them. Rows of the
 * pass have equally many. */
void zt_cache_extend(struct zt_step *s, struct zt_tensor **k, struct zt_tensor **v);
/* Whether rows have sources, and keys and values of them are kept. */
bool zt_cache_has_sources(const struct zt_step *s);
/*
 * The entry of the cross-attention call that is next. In a pass that reads a source its k and
 * v (1, S, K, D) are copied there, in others both are NULL. NULL: the step failed.
 */
struct zt_cache_entry *zt_cache_source(struct zt_step *s, const struct zt_tensor *k,
                                       const struct zt_tensor *v);
/* (B) i32 on the device: tokens of the sources of the rows of this pass. */
struct zt_tensor *zt_cache_source_lengths(struct zt_step *s);
/* Memory for `n` ids that a pass uploads, n at most B * max_tokens. NULL: the step failed. */
int32_t *zt_cache_relative_ids(struct zt_step *s);
/* A pass went well: its tokens are part of the past now. */
void zt_cache_advance(struct zt_step *s);

/* The table for these frequencies, of at least so many positions. NULL: the step failed.
 * */
struct zt_rope_table *zt_rope_table(struct zt_step *s, const struct zt_rope *rope,
                                    int64_t positions);
/* Give the pool back what they have there; the next pass that needs it has it again. */
void zt_rope_tables_drop(struct zt_step *s);
void zt_rope_tables_close(struct zt_step *s);

#endif
