/*
 * regex.h -- regular expressions of tokenizer files, by PCRE2.
 *
 * They are written for Oniguruma with Ruby's syntax. Where PCRE2 would read the same
 * characters in another way (\s \w \d \h \v, intervals, anchors) they are rewritten to
 * mean what Oniguruma means; what has no such form is refused by name.
 *
 * Threads: a compiled expression is shared; the scratch of a match is a thread's own.
 */
#ifndef WORKER_TEXT_REGEX_H
#define WORKER_TEXT_REGEX_H

#include "common/buf.h"
#include "worker/text/settings.h"

struct zt_regex;

/* Room that matching needs; made once for a thread. */
struct zt_regex_scratch {
    void *match, *context, *stack;
};

zt_err zt_regex_compile(const struct zt_setting *where, const char *pattern, size_t n,
                        struct zt_regex **out, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_regex_free(struct zt_regex *r); /* NULL is fine */

/* Whether a property of this name is a script, as "Han" is. */
bool zt_regex_is_script(const char *name, size_t n);

zt_err zt_regex_scratch_init(struct zt_regex_scratch *s,
                             struct zt_fault *fault) ZT_MUST_CHECK;
void zt_regex_scratch_release(struct zt_regex_scratch *s); /* a zeroed struct is fine */

/*
 * The first match at or behind `from` in valid UTF-8. *found false: none. ZT_E_FORMAT: it
 * gave up, for the text needs more backtracking than its limit.
 */
zt_err zt_regex_next(const struct zt_regex *r, const struct zt_regex_scratch *s,
                     const char *text, size_t n, size_t from, bool *found, size_t *start,
                     size_t *end, struct zt_fault *fault) ZT_MUST_CHECK;

/* `pattern` as PCRE2 reads it, in `out`. `where` is for messages. */
zt_err zt_regex_translate(const struct zt_setting *where, const char *pattern, size_t n,
                          struct zt_buf *out, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
