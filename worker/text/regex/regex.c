#define PCRE2_CODE_UNIT_WIDTH 8
#include "worker/text/regex/regex.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>

/* What one match may cost before it is given up. */
#define MATCH_LIMIT 10000000u
#define HEAP_KIB    (64u << 10)
#define STACK_MIN   ((size_t)32 << 10)
#define STACK_MAX   ((size_t)8 << 20)
#define PATTERN_MAX ((size_t)64 << 10)

struct zt_regex {
    pcre2_code *code;
};

bool zt_regex_is_script(const char *name, size_t n)
{
    char pattern[64];
    PCRE2_SIZE at;
    int len =
        snprintf(pattern, sizeof(pattern), "\\p{sc:%.*s}", (int)(n < 64 ? n : 64), name);
    int code;
    pcre2_code *script;

    if (len >= (int)sizeof(pattern))
        return false;
    script = pcre2_compile((PCRE2_SPTR)pattern, (PCRE2_SIZE)len, PCRE2_UTF | PCRE2_UCP,
                           &code, &at, NULL);
    pcre2_code_free(script);
    return script != NULL;
}

zt_err zt_regex_compile(const struct zt_setting *where, const char *pattern, size_t n,
                        struct zt_regex **out, struct zt_fault *fault)
{
    /* Ruby's ^ and $ are those of lines, and . stops at a line feed alone */
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE;
    struct zt_regex *r = calloc(1, sizeof(*r));
    struct zt_buf text;
    PCRE2_SIZE at = 0;
    int code = 0;
    zt_err rc;

    zt_buf_init(&text, 16 * PATTERN_MAX);
    if (!r)
        rc = zt_fault_set(fault, ZT_E_NOMEM, "tokenizer: no memory");
    else if (n > PATTERN_MAX)
        rc = zt_setting_refuse(where, fault, "is longer than %zu bytes", PATTERN_MAX);
    else
        rc = zt_regex_translate(where, pattern, n, &text, fault);
    if (!rc) {
        r->code = pcre2_compile(text.len ? zt_buf_head(&text) : (PCRE2_SPTR) "", text.len,
                                options, &code, &at, NULL);
        if (!r->code) {
            PCRE2_UCHAR why[128] = "";

            pcre2_get_error_message(code, why, sizeof(why));
            rc = zt_setting_refuse(where, fault, "as a regular expression: %s",
                                   (char *)why);
        } else {
            /* without a JIT for this processor, or memory for it, it is interpreted */
            (void)pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE);
        }
    }
    zt_buf_release(&text);
    if (rc) {
        zt_regex_free(r);
        return rc;
    }
    *out = r;
    return ZT_OK;
}

void zt_regex_free(struct zt_regex *r)
{
    if (r)
        pcre2_code_free(r->code);
    free(r);
}

zt_err zt_regex_scratch_init(struct zt_regex_scratch *s, struct zt_fault *fault)
{
    pcre2_match_context *context = pcre2_match_context_create(NULL);

    s->context = context;
    s->match = pcre2_match_data_create(1, NULL);
    s->stack = pcre2_jit_stack_create(STACK_MIN, STACK_MAX, NULL);
    if (!s->context || !s->match) {
        zt_regex_scratch_release(s);
        return zt_fault_set(fault, ZT_E_NOMEM, "tokenizer: no memory");
    }
    pcre2_set_match_limit(context, MATCH_LIMIT);
    pcre2_set_heap_limit(context, HEAP_KIB);
    pcre2_set_depth_limit(context, MATCH_LIMIT);
    if (s->stack) /* none where there is no JIT */
        pcre2_jit_stack_assign(context, NULL, s->stack);
    return ZT_OK;
}

void zt_regex_scratch_release(struct zt_regex_scratch *s)
{
    pcre2_match_data_free(s->match);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->stack);
    *s = (struct zt_regex_scratch){0};
}

zt_err zt_regex_next(const struct zt_regex *r, const struct zt_regex_scratch *s,
                     const char *text, size_t n, size_t from, bool *found, size_t *start,
                     size_t *end, struct zt_fault *fault)
{
    int rc = pcre2_match(r->code, (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK, s->match,
                         s->context);
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(s->match);

    *found = rc >= 0;
    if (rc >= 0) {
        *start = ends[0];
        *end = ends[1] < ends[0] ? ends[0] : ends[1]; /* \K in a look-ahead */
        return ZT_OK;
    }
    if (rc == PCRE2_ERROR_NOMATCH)
        return ZT_OK;
    if (rc == PCRE2_ERROR_NOMEMORY)
        return zt_fault_set(fault, ZT_E_NOMEM, "tokenizer: no memory");
    return zt_fault_set(fault, ZT_E_FORMAT,
                        "the tokenizer's regular expression gives up on a text of %zu "
                        "bytes at byte %zu: it needs more backtracking than is allowed; "
                        "cut that line",
                        n, from);
}
