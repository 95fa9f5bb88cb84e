/*
 * file_buffers.h -- the buffers of the tier of files (file_tier.c): which one a piece takes, and what
 * moves to and from files. Private to that tier.
 *
 * Ownership: a store owns its buffers, and memory for them from when one is first taken.
 * Threads:   one. Failure: after an error of a call only close.
 */
#ifndef WORKER_OFFLOAD_FILE_BUFFERS_H
#define WORKER_OFFLOAD_FILE_BUFFERS_H

#include "worker/offload/tier.h"

struct zt_file_buffer {
    char *data;   /* host memory */
    char *device; /* what is lent: device memory, or the same */
    enum { FREE, READING, LENT, WRITING } state;
    bool read_too;        /* WRITING: and lent to a reader meanwhile */
    bool holds;           /* FREE: the piece's bytes are still there */
    bool dirty;           /* FREE, LENT: and were not written since they changed */
    size_t offset, bytes; /* of the piece */
    zt_access access;
    int readers; /* LENT: beside the one it was lent to first, who only reads then as well */
    struct zt_aio_job jobs[2]; /* READING, WRITING: jobs[job] */
    int job;
    bool follows;   /* READING: the other job, a write of the piece before, comes first */
    uint64_t write; /* WRITING: its number among the writes of the store */
};

struct zt_file_store {
    struct zt_tier_config cfg;
    struct zt_aio_files files;
    uint64_t *sums; /* of every ZT_TIER_ALIGN bytes; NULL: they are not compared */
    size_t piece_bytes;
    struct zt_file_buffer *buffers;
    int num_buffers;
    char *slab;    /* memory of all buffers, where kernels reach it */
    bool resident; /* it has room for all: a piece's place in it is that in the store */
    int num_lent, num_loans; /* buffers that are lent; by so many acquires */
    int turn;                /* the buffer that is looked at first */
    size_t
        used_at; /* offset of the piece that was read last: those behind it come next */
    uint64_t num_writes;
};

/* What of a buffer's piece is given up for its buffer. */
enum zt_give_up { CLEAN, DIRTY, READ_AHEAD }; /* each of them with those before it */

/* Pieces of a run of `bytes`, and the bytes of piece i of it. */
int zt_file_pieces(const struct zt_file_store *s, size_t bytes);
size_t zt_file_run_piece(const struct zt_file_store *s, size_t bytes, int i);

/* Whether a piece that was committed stays in its buffer, and is written when another takes that:
 * where pieces are used in order the buffers of those used last are taken, else they have to be
 * enough for all. */
bool zt_file_puts_off(const struct zt_file_store *s);

/* ---- one buffer ---- */

bool zt_file_overlaps(const struct zt_file_buffer *b, size_t offset, size_t bytes);
bool zt_file_is_piece(const struct zt_file_buffer *b, size_t offset, size_t bytes);
/* The buffer is to be of this piece. */
void zt_file_set_piece(const struct zt_file_store *s, struct zt_file_buffer *b,
                       size_t offset, size_t bytes);
/* Whether it may be lent while it is written. */
bool zt_file_is_readable(const struct zt_file_buffer *b, zt_access access);
/* Whether it may be lent to a reader while another has it. */
bool zt_file_is_shared(const struct zt_file_buffer *b, zt_access access);
/* What is read to a buffer that is written comes after that. */
void zt_file_start(struct zt_file_store *s, struct zt_file_buffer *b, bool write);
/* Wait for what moves; the buffer is free then, and what was read stands in it. */
zt_err zt_file_settle(struct zt_file_store *s, struct zt_file_buffer *b,
                      struct zt_fault *fault) ZT_MUST_CHECK;

/* ---- which buffer ---- */

/* The buffer in this state that was used the longest ago. */
struct zt_file_buffer *zt_file_find(struct zt_file_store *s, int state);
/* A run of n buffers: of nothing, or those of what is used the latest. */
struct zt_file_buffer *zt_file_find_run(const struct zt_file_store *s, int n,
                                        enum zt_give_up most);
/* It has memory from when it is first taken on, so not while weights are loaded. */
zt_err zt_file_take(struct zt_file_store *s, struct zt_file_buffer *b,
                    struct zt_fault *fault) ZT_MUST_CHECK;
/* A buffer for a piece that is used now, once its write has ended. */
zt_err zt_file_take_buffer(struct zt_file_store *s, struct zt_file_buffer **out,
                           struct zt_fault *fault) ZT_MUST_CHECK;
/* A buffer for a piece that is used later, to which one may still be written from; NULL: none, but
 * for those of pieces that are used before it. */
zt_err zt_file_take_spare_buffer(struct zt_file_store *s, size_t offset,
                                 struct zt_file_buffer **out,
                                 struct zt_fault *fault) ZT_MUST_CHECK;
/* The n buffers that are taken next are written meanwhile, where none are ready; none are taken
 * where every piece has its own. */
void zt_file_write_ahead(struct zt_file_store *s, int n);

/* Nothing of these bytes is on the move any more, and no buffer holds what changes, but for those of a
 * run that are here (NULL: none are); *here: one that has the piece. */
zt_err zt_file_clear_overlaps(struct zt_file_store *s, size_t offset, size_t bytes,
                              zt_access access, const struct zt_file_buffer *run,
                              struct zt_file_buffer **here,
                              struct zt_fault *fault) ZT_MUST_CHECK;

void zt_file_close_buffers(struct zt_file_store *s);

#endif
