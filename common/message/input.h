/*
 * input.h -- standard input by lines, as zlaunch reads it for a rank that asks, and a rank
 *            that has no zlaunch by itself.
 *
 *      | u8 kind | bytes of a line, without its line feed |      the body of an INPUT frame
 *
 * A line that is longer than ZT_INPUT_MAX is none: it is passed over to its end, and counted.
 * The last line may have no line feed.
 * Ownership: the struct owns its buffer; the descriptor is the caller's.
 * Threads:   one.
 */
#ifndef COMMON_MESSAGE_INPUT_H
#define COMMON_MESSAGE_INPUT_H

#include "common/buf.h"

#define ZT_INPUT_MAX ((size_t)64 << 10) /* bytes of a line */

typedef enum zt_input_kind {
    ZT_INPUT_NONE,      /* nothing has come; in no frame */
    ZT_INPUT_LINE,      /* bytes follow */
    ZT_INPUT_END,       /* nothing more will come */
    ZT_INPUT_INTERRUPT, /* what is being written is not wanted any longer */
} zt_input_kind;

struct zt_line_reader {
    struct zt_buf in;
    int64_t too_long; /* lines that were passed over */
    bool skips;       /* so it does with the one at hand */
    bool ended;
};

void zt_line_reader_init(struct zt_line_reader *r);
void zt_line_reader_release(struct zt_line_reader *r);

/* One read() of a descriptor that has something to read; waits where it has not. An error is
 * the end of the input. */
void zt_line_reader_fill(struct zt_line_reader *r, int fd);

/* ZT_INPUT_LINE: the next line, appended; ZT_INPUT_END; ZT_INPUT_NONE: more is to be read. */
zt_input_kind zt_line_reader_take(struct zt_line_reader *r, struct zt_buf *line);

#endif
