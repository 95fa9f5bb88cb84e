/*
 * writer.h -- a Megatron dataset that grows, and goes on growing after it was killed.
 *
 *      STEM.bin.partial   ids, one line's behind the other's
 *      STEM.idx.partial   a blank header, then how many ids each line has
 *      STEM.note          where both were when all before was on the disk
 *
 * At the end the index is completed and both get their names, the index last: where it is,
 * all of it is. Without an end the three stay, and the next one goes on from the note if it
 * is of the same tokenizer and the same text. One process at a time: the first file is locked.
 */
#ifndef WORKER_TOOLS_ZTOK_WRITER_H
#define WORKER_TOOLS_ZTOK_WRITER_H

#include <stdio.h>

#include "common/fault.h"

/* How far it is: what a note says. */
struct zt_ids_place {
    int64_t file, bytes; /* of the texts, so many are done, and so much of the next one */
    int64_t tokens, lines;   /* written */
    int64_t replaced, empty; /* places that were no UTF-8; rows that were passed over */
    uint64_t text;           /* hash of all text that is done */
};

/* One of the two files while it grows. */
struct zt_growing_file {
    char *path, *partial;
    FILE *f;
};

struct zt_ids_writer {
    struct zt_growing_file bin, idx;
    char *note;
    bool wide;      /* ids are i32, else u16 */
    uint64_t maker; /* hash of what makes ids of text */
    struct zt_ids_place at;
    bool noted; /* there is a note */
};

/* The first n characters of `stem`. w->at: where the note is, else zeroed. ZT_E_CANTCREATE:
 * it is there already, another process writes it, or the system says why. */
zt_err zt_ids_writer_open(struct zt_ids_writer *w, const char *stem, size_t n, bool wide,
                          uint64_t maker, struct zt_fault *fault) ZT_MUST_CHECK;
/* Go on from w->at, or, where that is zeroed, begin. */
zt_err zt_ids_writer_begin(struct zt_ids_writer *w, struct zt_fault *fault) ZT_MUST_CHECK;
/* The next lines; w->at grows by them, but for its text. */
zt_err zt_ids_writer_put(struct zt_ids_writer *w, const int32_t *ids, size_t num,
                         const uint32_t *line_tokens, size_t num_lines,
                         struct zt_fault *fault) ZT_MUST_CHECK;
/* Note where it is. */
zt_err zt_ids_writer_note(struct zt_ids_writer *w, struct zt_fault *fault) ZT_MUST_CHECK;
/* The two files under their names. */
zt_err zt_ids_writer_end(struct zt_ids_writer *w, struct zt_fault *fault) ZT_MUST_CHECK;
/* Without an end what a note is of stays, and nothing else. Zeroed: fine. */
void zt_ids_writer_close(struct zt_ids_writer *w);

#endif
