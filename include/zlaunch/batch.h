/*
 * batch.h -- what a model is fed: fields, each with a name, a type and a shape.
 *
 * `build` declares them. Before a run the data are asked for each field by name; a
 * required one that they cannot offer is an error that names it. In `forward`
 * zt_batch_field() gives the field of the micro-batch at hand.
 *
 * Token data offer:
 *   "tokens"   (B, T) i32   the row's tokens
 *   "targets"  (B, T) i32   the token after each
 *   "lengths"  (B) i32      how many tokens of the row are data; the rest is padding
 * What "targets" holds depends on the task (zt_model_task()): of masked language models the
 * token that was masked, of tags the class of a word at its first token; all else is
 * padding. With a task that reads rows of records there are, too
 *   "token_types" (B, T) i32    which text of a pair, as the tokenizer numbers them
 *   "labels"      (B) i32, f32  of rows: the class, or the number
 * Where samples share rows (--packing bfd), or a model requires them, there are (since 3.3)
 *   "positions"     (B, T) i32   of the token in its sample, from 0
 *   "segment_begin" (B, T) i32   where in the row the token's sample begins
 *   "segment_end"   (B, T) i32   one past where it ends
 * Padding is no part of a sample: each of its tokens is a segment by itself.
 * Pairs of texts, for a model that reads one and writes the other (ZT_TASK_SEQ2SEQ):
 *   "source"          (B, S) i32   the text to read
 *   "source_lengths"  (B) i32      how many tokens of it are data
 *   "tokens"          (B, T) i32   the start token, then the targets but the last
 *   "targets"         (B, T) i32   the text to write
 *   "lengths"         (B) i32      how many tokens of it are data
 * A plugin that declares no field gets zt_model_language_fields().
 */
#ifndef ZLAUNCH_BATCH_H
#define ZLAUNCH_BATCH_H

#include <zlaunch/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Axes that the run decides, in the shape of a field. */
#define ZT_DIM_B (-1) /* rows of the micro-batch */
#define ZT_DIM_T (-2) /* tokens of a row: --block_size */
#define ZT_DIM_S (-3) /* tokens of a row's source: --max_source_length (since ABI 3.3) */

#define ZT_MAX_FIELDS 16 /* of a model */

struct zt_field {
    uint32_t struct_bytes; /* sizeof(struct zt_field); ZT_BATCH_FIELD() fills it */
    zt_dtype dtype;
    const char *name;
    /* ZT_DIM_B first, then ZT_DIM_T, ZT_DIM_S or sizes; ends with the first 0 */
    int64_t shape[ZT_MAX_NDIM];
    bool required; /* no run without it; otherwise it may be absent */
    bool label;    /* what is to be learnt: absent when text is generated */
    double pad;    /* the value where a row has no data */
};
#define ZT_BATCH_FIELD(...)                                                              \
    (&(struct zt_field){.struct_bytes = sizeof(struct zt_field), __VA_ARGS__})

/*
 * Declare a field, in `build`:
 *
 *     zt_model_field(m, ZT_BATCH_FIELD(.name = "mask", .dtype = ZT_I32,
 *                                      .shape = {ZT_DIM_B, ZT_DIM_T}, .required = true));
 */
ZT_API void zt_model_field(zt_model *m, const struct zt_field *field);

/* The fields of a language model: ZT_TOKENS, and ZT_TARGETS as its label. */
ZT_API void zt_model_language_fields(zt_model *m);
#define ZT_TOKENS        "tokens"  /* (B, T) i32, padded with 0 */
#define ZT_TARGETS       "targets" /* (B, T) i32, padded with ZT_IGNORE_TARGET */
#define ZT_LENGTHS       "lengths"
#define ZT_TOKEN_TYPES   "token_types" /* this and the next: since ABI 3.3 */
#define ZT_LABELS        "labels"
#define ZT_IGNORE_TARGET (-100) /* nothing is to be learnt here */

/*
 * What keeps samples that share a row apart, none of it required: ZT_POSITIONS for rotary or
 * learned positions, and ZT_SEGMENT_BEGIN for .key_begin of causal attention. Attention that
 * sees both ways declares ZT_SEGMENT_END as well, for .key_end. A model without
 * ZT_SEGMENT_BEGIN is not given rows that samples share. (since 3.3)
 */
ZT_API void zt_model_packed_fields(zt_model *m);
#define ZT_POSITIONS     "positions"
#define ZT_SEGMENT_BEGIN "segment_begin"
#define ZT_SEGMENT_END   "segment_end"

/*
 * The fields of a model that reads one text and writes another: ZT_SOURCE, ZT_SOURCE_LENGTHS,
 * and those of a language model over the text to write, whose tokens begin with `start`
 * (decoder_start_token_id). (since ABI 3.3)
 */
ZT_API void zt_model_pair_fields(zt_model *m, int32_t start);
#define ZT_SOURCE         "source"         /* (B, S) i32, padded with 0 */
#define ZT_SOURCE_LENGTHS "source_lengths" /* (B) i32 */

/*
 * What the loss that `forward` returns is a sum over. The engine divides it by the number
 * of these in the whole global batch: of all ranks and all micro-batches. Evaluation
 * divides by their number in all of its data.
 */
typedef enum zt_divisor {
    ZT_DIVISOR_TARGETS = 0, /* entries of `field` (NULL: "targets") that are not
                               ZT_IGNORE_TARGET; what a model has that says nothing */
    ZT_DIVISOR_ROWS,        /* rows that hold data; no field */
    ZT_DIVISOR_FIELD_SUM,   /* the sum of all values of `field` */
} zt_divisor;
ZT_API void zt_model_set_loss_divisor(zt_model *m, zt_divisor divisor, const char *field);

/* A declared field of the batch; NULL, without error, when it is absent. */
ZT_API zt_tensor *zt_batch_field(zt_step *s, const zt_batch *b, const char *name);

#ifdef __cplusplus
}
#endif
#endif
