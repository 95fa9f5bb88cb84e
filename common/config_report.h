/*
 * config_report.h -- every problem of a command line and a config, collected, and the
 * notes; and the memory that holds all strings of a run.
 *
 * Ownership: the caller owns the structs, they own their text.
 * Failure:   memory that is out is remembered (`failed`), strings are then "", and
 *            zt_report_end() says so; nobody has to look in between.
 * Threads:   one.
 */
#ifndef COMMON_CONFIG_REPORT_H
#define COMMON_CONFIG_REPORT_H

#include "common/fault.h"

struct zt_keep_chunk;

/* Memory that is freed at once. */
struct zt_keep {
    struct zt_keep_chunk *chunks;
    bool failed;
};

/* Zeroed; NULL when memory is out. */
void *zt_keep_alloc(struct zt_keep *k, size_t bytes);
/* Never NULL. */
const char *zt_keep_text(struct zt_keep *k, const char *text, size_t n);
const char *zt_keep_printf(struct zt_keep *k, const char *fmt, ...) ZT_PRINTF(2, 3);
void zt_keep_release(struct zt_keep *k);

struct zt_report_line {
    struct zt_report_line *next;
    const char *text;
};

struct zt_report {
    struct zt_keep *keep;
    struct zt_report_line *problems, **problems_end;
    struct zt_report_line *notes, **notes_end;
    int num_problems;
    zt_err code; /* of the first problem */
};

void zt_report_init(struct zt_report *r, struct zt_keep *keep);
void zt_report_problem(struct zt_report *r, zt_err code, const char *fmt, ...)
    ZT_PRINTF(3, 4);
void zt_report_note(struct zt_report *r, const char *fmt, ...) ZT_PRINTF(2, 3);

/*
 * ZT_OK without problems; else the code of the first one, and one line each in fault.
 * What does not fit there is counted in a last line.
 */
zt_err zt_report_end(const struct zt_report *r, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
