/*
 * steps.c -- lists of steps read from JSON, and what several kinds share: patterns,
 * replacing, the buffers that they work in.
 */
#include <stdlib.h>
#include <string.h>

#include "worker/text/unicode/chars.h"
#include "worker/text/pipeline.h"

#define MAX_STEPS 256

zt_err zt_text_out_of_memory(struct zt_fault *fault, zt_err rc)
{
    if (rc == ZT_E_NOMEM)
        return zt_fault_set(fault, rc, "tokenizer: no memory");
    if (rc == ZT_E_LIMIT)
        return zt_fault_set(fault, rc, "tokenizer: the text is longer than it can take");
    return rc; /* said already */
}

/* ---- buffers ---- */

#define WORK_MAX (ZT_TEXT_MAX_BYTES * 16)

zt_err zt_text_work_init(struct zt_text_work *w, struct zt_fault *fault)
{
    zt_buf_init(&w->text, WORK_MAX);
    zt_buf_init(&w->next, WORK_MAX);
    zt_buf_init(&w->pieces, WORK_MAX * 4);
    zt_buf_init(&w->more, WORK_MAX * 4);
    zt_buf_init(&w->points, WORK_MAX * 4);
    zt_buf_init(&w->scratch, WORK_MAX * 4);
    return zt_regex_scratch_init(&w->regex, fault);
}

void zt_text_work_release(struct zt_text_work *w)
{
    zt_buf_release(&w->text);
    zt_buf_release(&w->next);
    zt_buf_release(&w->pieces);
    zt_buf_release(&w->more);
    zt_buf_release(&w->points);
    zt_buf_release(&w->scratch);
    zt_regex_scratch_release(&w->regex);
}

size_t zt_text_work_bytes(const struct zt_text_work *w)
{
    return w->text.cap + w->next.cap + w->pieces.cap + w->more.cap + w->points.cap +
           w->scratch.cap;
}

static void swap(struct zt_buf *a, struct zt_buf *b)
{
    struct zt_buf c = *a;

    *a = *b;
    *b = c;
}

void zt_text_work_swap_text(struct zt_text_work *w)
{
    swap(&w->text, &w->next);
}

void zt_text_work_swap_pieces(struct zt_text_work *w)
{
    swap(&w->pieces, &w->more);
}

zt_err zt_rewrite_pieces(const struct zt_text_step *step, struct zt_text_work *w,
                         zt_rewrite_piece rewrite, struct zt_fault *fault)
{
    size_t num;
    struct zt_text_piece *p = zt_pieces_of(&w->pieces, &num);
    zt_err rc = ZT_OK;

    zt_buf_empty(&w->next);
    for (size_t i = 0; !rc && i < num; i++) {
        const char *s = zt_text_of(&w->text) + p[i].at;
        size_t at = w->next.len;

        if (p[i].token >= 0)
            continue; /* its text is not looked at any more */
        rc = rewrite(step, &p[i], i, s, &w->next);
        p[i].at = at;
        p[i].n = w->next.len - at;
    }
    zt_text_work_swap_text(w);
    return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
}

/* ---- settings that several kinds have ---- */

zt_err zt_step_copy_text(const struct zt_setting *s, const char *key, char **out,
                         size_t *n, struct zt_fault *fault)
{
    const char *text;
    zt_err rc = zt_setting_string(s, key, true, &text, n, fault);

    if (rc)
        return rc;
    *out = malloc(*n + 1);
    if (!*out)
        return zt_text_out_of_memory(fault, ZT_E_NOMEM);
    memcpy(*out, text, *n + 1);
    return ZT_OK;
}

zt_err zt_step_read_pattern(const struct zt_setting *s, struct zt_text_step *step,
                            struct zt_fault *fault)
{
    struct zt_setting pattern, regex;
    zt_err rc;

    if (!zt_setting_get(s, "pattern", &pattern))
        return zt_setting_refuse(&pattern, fault, "is missing");
    rc = zt_setting_check_keys(&pattern, "String Regex", fault);
    if (rc)
        return rc;
    if (zt_setting_get(&pattern, "Regex", &regex)) {
        if (!json_is_string(regex.value))
            return zt_setting_refuse(&regex, fault, "is no string");
        return zt_regex_compile(&regex, json_string_value(regex.value),
                                json_string_length(regex.value), &step->regex, fault);
    }
    rc = zt_step_copy_text(&pattern, "String", &step->text, &step->text_bytes, fault);
    if (!rc && step->text_bytes == 0)
        rc = zt_setting_refuse(&pattern, fault, "is empty");
    return rc;
}

zt_err zt_step_read_character(const struct zt_setting *s, const char *key, uint32_t *out,
                              struct zt_fault *fault)
{
    struct zt_setting at;
    const char *text;
    size_t n, end = 0;
    zt_err rc = zt_setting_string(s, key, true, &text, &n, fault);

    if (rc)
        return rc;
    if (n)
        *out = zt_utf8_next(text, &end);
    zt_setting_get(s, key, &at);
    return n && end == n ? ZT_OK : zt_setting_refuse(&at, fault, "is not one character");
}

static bool is_one_of(const char *s, const char *a, const char *b, const char *c)
{
    return strcmp(s, a) == 0 || strcmp(s, b) == 0 || strcmp(s, c) == 0;
}

zt_err zt_step_read_metaspace(const struct zt_setting *s, struct zt_text_step *step,
                              struct zt_fault *fault)
{
    struct zt_setting at;
    const char *scheme;
    bool prefix;
    size_t n;
    zt_err rc = zt_step_read_character(s, "replacement", &step->character, fault);

    if (!rc) /* older files have this alone */
        rc = zt_setting_bool(s, "add_prefix_space", true, &prefix, fault);
    if (!rc)
        rc = zt_setting_string(s, "prepend_scheme", false, &scheme, &n, fault);
    if (rc)
        return rc;
    zt_setting_get(s, "prepend_scheme", &at);
    if (scheme && !is_one_of(scheme, "always", "first", "never"))
        return zt_setting_refuse(&at, fault, "%.64s is not known here", scheme);
    if (scheme && !prefix && strcmp(scheme, "never") != 0)
        return zt_setting_refuse(&at, fault, "contradicts add_prefix_space");
    step->flag[ZT_PREPEND_ALWAYS] = scheme ? strcmp(scheme, "always") == 0 : prefix;
    step->flag[ZT_PREPEND_FIRST] = scheme && strcmp(scheme, "first") == 0;
    return ZT_OK;
}

/* ---- places of a pattern ---- */

zt_err zt_step_find(const void *rule, const struct zt_text_work *w, const char *text,
                    size_t n, size_t from, bool *found, size_t *start, size_t *end,
                    struct zt_fault *fault)
{
    const struct zt_text_step *step = rule;
    const char *hit;

    if (step->regex)
        return zt_regex_next(step->regex, &w->regex, text, n, from, found, start, end,
                             fault);
    hit = from < n ? memmem(text + from, n - from, step->text, step->text_bytes) : NULL;
    *found = hit != NULL;
    if (hit) {
        *start = (size_t)(hit - text);
        *end = *start + step->text_bytes;
    }
    return ZT_OK;
}

zt_err zt_step_read_replace(const struct zt_setting *s, struct zt_text_step *step,
                            struct zt_fault *fault)
{
    zt_err rc =
        zt_step_copy_text(s, "content", &step->content, &step->content_bytes, fault);

    return rc ? rc : zt_step_read_pattern(s, step, fault);
}

zt_err zt_step_replace(const struct zt_text_step *step, const struct zt_text_work *w,
                       const char *s, size_t n, struct zt_buf *out,
                       struct zt_fault *fault)
{
    struct zt_matches m = {.find = zt_step_find, .rule = step, .w = w, .text = s, .n = n};
    bool found = true;
    zt_err rc = ZT_OK;

    while (!rc) {
        rc = zt_next_match(&m, &found, fault);
        if (rc)
            return rc;
        if (!found)
            break;
        rc = zt_buf_put(out, s + m.done, m.start - m.done);
        if (!rc)
            rc = zt_buf_put(out, step->content, step->content_bytes);
    }
    if (!rc)
        rc = zt_buf_put(out, s + m.done, n - m.done);
    return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
}

/* ---- lists ---- */

static void release_step(struct zt_text_step *step)
{
    zt_regex_free(step->regex);
    zt_charsmap_free(step->charsmap);
    free(step->text);
    free(step->content);
}

void zt_steps_release(struct zt_steps *steps)
{
    for (int i = 0; i < steps->num; i++)
        release_step(&steps->steps[i]);
    free(steps->steps);
    *steps = (struct zt_steps){0};
}

static zt_err append(struct zt_steps *steps, const struct zt_text_step *step,
                     struct zt_fault *fault)
{
    struct zt_text_step *more =
        realloc(steps->steps, (size_t)(steps->num + 1) * sizeof(*more));

    if (!more)
        return zt_text_out_of_memory(fault, ZT_E_NOMEM);
    more[steps->num++] = *step;
    steps->steps = more;
    return ZT_OK;
}

static zt_err read_step(const struct zt_setting *s, const struct zt_step_kind *kind,
                        struct zt_steps *out, struct zt_fault *fault)
{
    struct zt_text_step step = {.kind = kind};
    char keys[256] = "type ";
    zt_err rc;

    strncat(keys, kind->keys, sizeof(keys) - sizeof("type "));
    rc = zt_setting_check_keys(s, keys, fault);
    if (!rc && kind->read)
        rc = kind->read(s, &step, fault);
    if (!rc)
        rc = append(out, &step, fault);
    if (rc)
        release_step(&step);
    return rc;
}

static zt_err refuse_type(const struct zt_setting *s, const struct zt_step_kind *kinds,
                          const char *type, struct zt_fault *fault)
{
    char names[512] = "Sequence";
    struct zt_setting at;

    for (int i = 0; kinds[i].type; i++) {
        strncat(names, ", ", sizeof(names) - strlen(names) - 1);
        strncat(names, kinds[i].type, sizeof(names) - strlen(names) - 1);
    }
    zt_setting_get(s, "type", &at);
    return zt_setting_refuse(&at, fault, "%.64s is not known here; known are %s", type,
                             names);
}

static zt_err read_steps(const struct zt_setting *s, const struct zt_step_kind *kinds,
                         const char *list, int depth, struct zt_steps *out,
                         struct zt_fault *fault)
{
    const char *type;
    size_t n;
    zt_err rc;

    if (!json_is_object(s->value))
        return zt_setting_refuse(s, fault, "is no object");
    if (out->num >= MAX_STEPS || depth > 16)
        return zt_setting_refuse(s, fault, "is more than %d steps, or nested too deeply",
                                 MAX_STEPS);
    rc = zt_setting_string(s, "type", true, &type, &n, fault);
    if (rc)
        return rc;
    if (strcmp(type, "Sequence") == 0) {
        char keys[64] = "type ";
        struct zt_setting steps, one;

        strncat(keys, list, sizeof(keys) - sizeof("type "));
        rc = zt_setting_check_keys(s, keys, fault);
        if (!rc)
            rc = zt_setting_list(s, list, true, &steps, &n, fault);
        for (size_t i = 0; !rc && i < n; i++) {
            zt_setting_at(&steps, i, &one);
            rc = read_steps(&one, kinds, list, depth + 1, out, fault);
        }
        return rc;
    }
    for (int i = 0; kinds[i].type; i++)
        if (strcmp(kinds[i].type, type) == 0)
            return read_step(s, &kinds[i], out, fault);
    return refuse_type(s, kinds, type, fault);
}

zt_err zt_steps_read(const struct zt_setting *s, const struct zt_step_kind *kinds,
                     const char *list, struct zt_steps *out, struct zt_fault *fault)
{
    if (!s->value || json_is_null(s->value))
        return ZT_OK;
    out->there = true;
    return read_steps(s, kinds, list, 0, out, fault);
}
