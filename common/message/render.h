/*
 * render.h -- the output of a run, as text for a person or as JSON lines for a program.
 *
 * Text: results (evaluations, samples, output of ranks on stdout) go to stdout, messages and progress
 * to stderr; with several ranks each line is tagged "[rank 1] ". On a terminal, steps
 * are one live line, redrawn at most ten times a second, taken away before any other line
 * and put back after it; elsewhere each step is a plain line.
 * JSON: one object a line on stdout for all of it: ts, event, then the event's own
 * fields. What a rank prints becomes the text of an "output" event, whatever it is.
 *
 * Lines wait in one queue for both descriptors, so they reach them in order and whole.
 * zt_render_flush() never blocks; zt_render_drain() and zt_render_close() do.
 * Threads:   one.
 * Failure:   a line that cannot be kept or written is lost; no run fails on it.
 */
#ifndef COMMON_MESSAGE_RENDER_H
#define COMMON_MESSAGE_RENDER_H

#include "common/fault.h"
#include "common/log.h"

#include <jansson.h>

struct zt_render_config {
    int out_fd, err_fd;
    bool json;
    bool color;         /* of messages */
    bool live;          /* steps as one line redrawn in place on err_fd */
    bool tag;           /* name the rank in front of its lines */
    bool one_file;      /* what goes to err_fd is kept where out_fd's is: a log */
    zt_log_level level; /* below INFO: no progress and no notes, results stay */
    const char *who; /* in front of messages: "zlaunch"; lives as long as the renderer */
    /* called for every whole line, without its newline; may be NULL */
    void (*on_line)(void *ctx, int stream, const char *tag, const char *text, size_t n);
    void *on_line_ctx;
};

struct zt_render;

zt_err zt_render_open(const struct zt_render_config *cfg, struct zt_render **out,
                      struct zt_fault *fault) ZT_MUST_CHECK;
void zt_render_close(struct zt_render *r); /* NULL is fine */

bool zt_render_is_json(const struct zt_render *r);

/* An event of a rank: {"event": "step", ...} as common/message/event.c makes it. Not
 * kept. */
void zt_render_event(struct zt_render *r, int rank, const json_t *event);

/* n bytes of whole lines, each ending in '\n', that a rank wrote to stream 1 or 2. */
void zt_render_output(struct zt_render *r, int rank, int stream, const char *lines,
                      size_t n);

/* A line of a rank's JSON log (common/log.h), without its newline: in JSON it is
 * passed on unchanged, as text it is a line of stderr. */
void zt_render_log(struct zt_render *r, int rank, const char *line, size_t n);

/* The program's own sentence: "zlaunch: text" or a JSON object of event "log". */
void zt_render_message(struct zt_render *r, zt_log_level level, const char *fmt, ...)
    ZT_PRINTF(3, 4);

/* The same of level info, at any level: somebody has asked for it. */
void zt_render_answer(struct zt_render *r, const char *fmt, ...) ZT_PRINTF(2, 3);

/* Nobody reads `out_fd` any more: what is for it is dropped, and messages of a job that
 * prints JSON go to `err_fd` as text. */
void zt_render_unread(struct zt_render *r);

/* A block of lines of the program's own, already laid out; text only. */
void zt_render_block(struct zt_render *r, const char *text);

/* A JSON object of the program's own; JSON only. Takes no reference. */
void zt_render_record(struct zt_render *r, const json_t *event);

/* What stands in front of a line that is typed, to err_fd; text only. */
void zt_render_prompt(struct zt_render *r, const char *text);

/* Draw the live line if it changed and its time has come; call it about ten times a
 * second. */
void zt_render_tick(struct zt_render *r);
/* What is said from here on stands below the last state of the live line. */
void zt_render_finish_live(struct zt_render *r);

/* Write what can be written without blocking. True: nothing waits any more. */
bool zt_render_flush(struct zt_render *r);
size_t zt_render_pending_bytes(const struct zt_render *r);
/* errno of what out_fd did not take, as a full device, or err_fd where both are one file;
 * 0: none. A reader that left is no error. */
int zt_render_lost(const struct zt_render *r);
/* Does anybody take what goes to out_fd, as far as known? */
bool zt_render_is_read(const struct zt_render *r);
/* Drop the descriptor that blocks, and everything that is queued for it. */
void zt_render_discard(struct zt_render *r);
void zt_render_drain(struct zt_render *r); /* write it all, however long that takes */

#endif
