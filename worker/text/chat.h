/*
 * chat.h -- the chat template of a tokenizer's folder: conversations become text.
 *
 *      {"messages": [{"role": "user", "content": ...}, ...], "tools": ...} -> text
 *
 * It is chat_template.jinja of the folder, else `chat_template` of tokenizer_config.json, of
 * several the one that is named "default". The text is what apply_chat_template of transformers
 * makes of the row (worker/template/template.h), and has the special tokens in it.
 */
#ifndef WORKER_TEXT_CHAT_H
#define WORKER_TEXT_CHAT_H

#include "worker/template/template.h"
#include "worker/text/tokenizer.h"

/* The folder has a template, whatever it says. */
bool zt_chat_has_template(const struct zt_tokenizer *t);

/* ZT_E_FORMAT: the folder has no template, or what it says is not in the subset; ZT_E_NOMEM. */
zt_err zt_chat_open(const struct zt_tokenizer *t, struct zt_template **out,
                    struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Appends the text of a row whose `column` holds the messages, and to `answers` (NULL: not
 * wanted) what of it the assistant says, as zt_template_span: what the template has within
 * {% generation %}; in one without, what is between the text of the messages before, as it
 * asks for an answer (add_generation_prompt), and the text up to the answer's end.
 * ZT_E_FORMAT: they are no messages, the template refuses them, or a conversation's text does
 * not begin as that of its first messages.
 */
zt_err zt_chat_render(const struct zt_tokenizer *t, const struct zt_template *template,
                      const json_t *row, const char *column, struct zt_buf *out,
                      struct zt_buf *answers, struct zt_fault *fault) ZT_MUST_CHECK;

/* Appends the text of a row up to where the assistant is to answer. Errors as above. */
zt_err zt_chat_prompt(const struct zt_tokenizer *t, const struct zt_template *template,
                      const json_t *row, const char *column, struct zt_buf *out,
                      struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Ids (num) of a text (n), encoded with `frame`, that are no answer become ~id. A token that has
 * a part of an answer is learnt. ZT_E_NOMEM, and as zt_encode(), whose ids of `e` are gone.
 */
zt_err zt_chat_mark_context(struct zt_encoder *e, const char *text, size_t n, bool frame,
                            const struct zt_buf *answers, int32_t *ids, size_t num,
                            struct zt_fault *fault) ZT_MUST_CHECK;

#endif
