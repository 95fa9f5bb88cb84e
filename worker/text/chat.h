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

/* ZT_E_FORMAT: the folder has no template, or what it says is not in the subset; ZT_E_NOMEM. */
zt_err zt_chat_open(const struct zt_tokenizer *t, struct zt_template **out,
                    struct zt_fault *fault) ZT_MUST_CHECK;

/* Appends the text of a row whose `column` holds the messages. ZT_E_FORMAT: they are no
 * messages, or the template refuses them. */
zt_err zt_chat_render(const struct zt_tokenizer *t, const struct zt_template *template,
                      const json_t *row, const char *column, struct zt_buf *out,
                      struct zt_fault *fault) ZT_MUST_CHECK;

#endif
