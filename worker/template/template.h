/*
 * template.h -- chat templates: conversations become the text that a model was taught with.
 *
 *      messages + template of the model's folder -> text
 *
 * A template is written in a subset of Jinja 2: that of the templates of Llama, Qwen,
 * Mistral and ChatML. What is rendered equals `apply_chat_template` of transformers, which
 * sets trim_blocks and lstrip_blocks. What is not in the subset is refused by name, with its
 * line, when the template is parsed or, of a name that is looked up, when it is rendered.
 *
 *      statements   for ... if ... else, if, set, break, continue, generation
 *      expressions  literals, lists, dicts, slices, . [ ] ( ), + - * / // % ** ~, comparisons,
 *                   in, is, not, and, or, a if b else c, filters
 *      functions    raise_exception, namespace, range, dict, strftime_now
 *
 * Follows:  jinja.palletsprojects.com, "Template Designer Documentation", 3.1.
 * Bounds:   64 levels, 2 Mi steps and 256 MiB of values and of text, so that no template
 *           runs for ever.
 * Threads:  a parsed template does not change; several threads may render it.
 */
#ifndef WORKER_TEMPLATE_TEMPLATE_H
#define WORKER_TEMPLATE_TEMPLATE_H

#include <jansson.h>

#include "common/buf.h"
#include "common/fault.h"

struct zt_template;

/* A stretch of rendered text: bytes [from, to). */
struct zt_template_span {
    size_t from, to;
};

/* `name` is what messages call it: "DIR/tokenizer_config.json: chat_template". The text (n) is
 * copied. ZT_E_FORMAT with name and line, ZT_E_NOMEM. */
zt_err zt_template_parse(const char *name, const char *text, size_t n,
                         struct zt_template **out, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_template_close(struct zt_template *t); /* NULL is fine */

/*
 * Appends what the template makes of `values`, an object: messages, bos_token, eos_token,
 * add_generation_prompt, ... ZT_E_FORMAT: the template refuses them (raise_exception), or
 * does what is not in the subset; ZT_E_LIMIT: past a bound; ZT_E_NOMEM.
 * `spans`: what stands within {% generation %}, as zt_template_span in order, counted from
 * where the text begins, is appended to it; NULL: it is not wanted.
 */
zt_err zt_template_render(const struct zt_template *t, const json_t *values,
                          struct zt_buf *out, struct zt_buf *spans,
                          struct zt_fault *fault) ZT_MUST_CHECK;

/* Whether {% generation %} is somewhere in it. */
bool zt_template_marks_generation(const struct zt_template *t);

#endif
