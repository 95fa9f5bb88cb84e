/*
 * pickle_machine.h -- the state of the machine that a pickle is a program for: a stack with
 * marks, a memo, and where the program stands.
 *
 * A call that fails has set `why`.
 * Threads: one.
 */
#ifndef WORKER_TORCH_FILE_PICKLE_MACHINE_H
#define WORKER_TORCH_FILE_PICKLE_MACHINE_H

#include "worker/torch_file/private.h"

struct pickle_machine {
    struct zt_pickle *out;
    const char *path;
    const uint8_t *data;
    size_t at, bytes;
    struct zt_pickled **stack;
    size_t height, stack_cap;
    size_t *marks, num_marks, marks_cap;
    struct zt_pickled **memo;
    size_t memo_cap, next_memo;
    size_t growth; /* of stack, marks and memo, in bytes */
    struct zt_pickled *none, *yes, *no, *empty;
    const char *why; /* an operation failed: the reason */
    bool done;
};

/* Reasons; the first one is a limit, not a mistake of the file. */
extern const char zt_pickle_no_room[], zt_pickle_short_stack[];

/* A list of the machine with room for `want` items of `size` bytes; new ones are zero. */
bool zt_pickle_reserve(struct pickle_machine *m, void *list, size_t *cap, size_t want,
                       size_t size);

/* ---- the stack; NULL: it is empty above the last mark ---- */

bool zt_pickle_push(struct pickle_machine *m, struct zt_pickled *v); /* NULL: fails */
struct zt_pickled *zt_pickle_pop(struct pickle_machine *m);
struct zt_pickled *zt_pickle_top(struct pickle_machine *m);
/* The height that the last mark notes, or 0. */
size_t zt_pickle_floor_of(const struct pickle_machine *m);
/* The last mark goes; *first is the height it noted. */
bool zt_pickle_pop_mark(struct pickle_machine *m, size_t *first);

/* The value on top as number `i` of the memo. */
bool zt_pickle_remember(struct pickle_machine *m, uint64_t i);

/* ---- operands ---- */

/* The next `n` bytes; a little-endian number of `bytes`; a line without its end. */
const uint8_t *zt_pickle_take(struct pickle_machine *m, uint64_t n);
bool zt_pickle_take_number(struct pickle_machine *m, int bytes, uint64_t *out);
const uint8_t *zt_pickle_take_line(struct pickle_machine *m, size_t *n);

#endif
