/*
 * problems.h -- every problem of a command line and a config, collected, and the
 * notes; and the memory that holds all strings of a run.
 *
 * Ownership: the caller owns the structs, they own their text.
 * Failure:   memory that is out is remembered (`failed`), strings are then "", and
 *            zt_problems_end() says so; nobody has to look in between.
 * Threads:   one.
 */
#ifndef COMMON_PROBLEMS_H
#define COMMON_PROBLEMS_H

#include "common/fault.h"

struct zt_text_arena_chunk;

/* Memory that is freed at once. */
struct zt_text_arena {
    struct zt_text_arena_chunk *chunks;
    bool failed;
};

/* Zeroed; NULL when memory is out. */
void *zt_text_arena_alloc(struct zt_text_arena *a, size_t bytes);
/* Never NULL. */
const char *zt_text_arena_copy(struct zt_text_arena *a, const char *text, size_t n);
const char *zt_text_arena_printf(struct zt_text_arena *a, const char *fmt, ...)
    ZT_PRINTF(2, 3);
void zt_text_arena_release(struct zt_text_arena *a);

struct zt_problems_line {
    struct zt_problems_line *next;
    const char *text;
};

struct zt_problems {
    struct zt_text_arena *arena;
    struct zt_problems_line *problems, **problems_end;
    struct zt_problems_line *notes, **notes_end;
    int num_problems;
    zt_err code; /* of the first problem */
};

void zt_problems_init(struct zt_problems *r, struct zt_text_arena *arena);
void zt_problems_add(struct zt_problems *r, zt_err code, const char *fmt, ...)
    ZT_PRINTF(3, 4);
void zt_problems_note(struct zt_problems *r, const char *fmt, ...) ZT_PRINTF(2, 3);

/*
 * ZT_OK without problems; else the code of the first one, and one line each in fault.
 * What does not fit there is counted in a last line.
 */
zt_err zt_problems_end(const struct zt_problems *r, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
