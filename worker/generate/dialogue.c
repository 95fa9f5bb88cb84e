#include "worker/generate/dialogue.h"

#include <jansson.h>
#include <string.h>

#include "common/json/line.h"
#include "common/log.h"
#include "common/message/event.h"
#include "worker/generate/text_out.h"
#include "worker/generate/writer.h"
#include "worker/text/chat.h"

#define WAIT_MS 500 /* for a line, before the other ranks hear that none has come */

#define MESSAGES "messages"

/* What rank 0 tells the others. */
enum dialogue_state { WAITS, ANSWERS, ENDS };

struct dialogue {
    struct zt_engine *e;
    struct zt_writer w;
    struct zt_prompts prompts; /* of the turn at hand: one */

    /* of rank 0 */
    struct zt_template *chat; /* NULL: each line is a text by itself */
    json_t *history;          /* {"messages": [{"role": ..., "content": ...}, ...]} */
    int64_t dropped;          /* turns that no longer fit */
    struct zt_text_pieces pieces;
    struct zt_fault live_fault; /* of showing what comes; the passes go on all the same */
    bool asks;                  /* for a line that has not come yet */
};

static zt_err out_of_memory(struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_NOMEM, "dialogue: no host memory");
}

/* ---- history ---- */

static json_t *messages(const struct dialogue *d)
{
    return json_object_get(d->history, MESSAGES);
}

static zt_err add_message(struct dialogue *d, const char *role, const struct zt_buf *text,
                          struct zt_fault *fault)
{
    json_t *m =
        json_pack("{s:s, s:o}", "role", role, "content",
                  zt_json_text((const char *)zt_buf_head(text), zt_buf_used(text)));

    return m && !json_array_append_new(messages(d), m) ? ZT_OK : out_of_memory(fault);
}

/* The prompt of the history, or of the line alone where there is no template. */
static zt_err make_prompt(struct dialogue *d, const struct zt_buf *line,
                          struct zt_fault *fault)
{
    struct zt_prompt_encoding how = zt_engine_prompt_encoding(d->e);
    struct zt_buf text;
    zt_err rc;

    zt_prompts_release(&d->prompts);
    zt_prompts_init(&d->prompts);
    if (!d->chat)
        return zt_prompts_add(&d->prompts, &how, "the line",
                              (const char *)zt_buf_head(line), zt_buf_used(line), fault);
    zt_buf_init(&text, ZT_TEXT_MAX_BYTES);
    rc = zt_chat_prompt(d->e->tokenizer, d->chat, d->history, MESSAGES, &text, fault);
    if (!rc)
        rc = zt_prompts_add_rendered(&d->prompts, &how, "the dialogue",
                                     (const char *)zt_buf_head(&text), zt_buf_used(&text),
                                     fault);
    zt_buf_release(&text);
    return rc;
}

/* The oldest question, and its answer. */
static void drop_turn(struct dialogue *d)
{
    json_array_remove(messages(d), 0);
    json_array_remove(messages(d), 0);
    d->dropped++;
}

static void tell_of_dropped(const struct dialogue *d, int64_t before)
{
    if (d->dropped > before)
        zt_info("dialogue",
                "the oldest %lld turn%s no longer read: beside an answer of %lld tokens "
                "there is room for %lld",
                (long long)d->dropped, d->dropped == 1 ? " is" : "s are",
                (long long)d->e->run->generate_tokens, (long long)d->e->prompts.longest);
}

/* *fits: the prompt is there; else the line was too long, which is said. */
static zt_err fit_prompt(struct dialogue *d, const struct zt_buf *line, bool *fits,
                         struct zt_fault *fault)
{
    int64_t most = d->e->prompts.longest, before = d->dropped;
    zt_err rc = make_prompt(d, line, fault);

    while (!rc && d->prompts.longest > most && d->chat &&
           json_array_size(messages(d)) > 1) {
        drop_turn(d);
        rc = make_prompt(d, line, fault);
    }
    *fits = d->prompts.longest <= most;
    if (!rc)
        tell_of_dropped(d, before);
    if (!rc && !*fits)
        zt_warn(
            "dialogue",
            "that was not read: it has %lld tokens, and beside an answer of %lld there "
            "is room for %lld",
            (long long)d->prompts.longest, (long long)d->e->run->generate_tokens,
            (long long)most);
    return rc;
}

static void forget_line(struct dialogue *d)
{
    size_t n = json_array_size(messages(d));

    if (d->chat && n)
        json_array_remove(messages(d), n - 1);
}

/* A line as the prompt of a turn; *fits false: it is none, and the next one is asked for. */
static zt_err take_line(struct dialogue *d, const struct zt_buf *line, bool *fits,
                        struct zt_fault *fault)
{
    struct zt_fault why = {0};
    zt_err rc = ZT_OK;

    *fits = false;
    if (!zt_buf_used(line))
        return ZT_OK;
    if (d->chat)
        rc = add_message(d, "user", line, &why);
    if (!rc)
        rc = fit_prompt(d, line, fits, &why);
    if (!*fits || rc)
        forget_line(d);
    if (rc == ZT_E_NOMEM) {
        if (fault)
            *fault = why;
        return rc;
    }
    if (rc) /* of this line: the template refuses it, or it is no numbers */
        zt_warn("dialogue", "that was not read: %s", why.text);
    *fits = *fits && !rc;
    return ZT_OK;
}

/* ---- a turn ---- */

/* What rank 0 has to say: waits for a line a while. */
static zt_err next_state(struct dialogue *d, double *state, struct zt_fault *fault)
{
    struct zt_buf line;
    zt_input_kind kind;
    bool fits = false;
    zt_err rc = ZT_OK;

    *state = WAITS;
    if (!d->asks) {
        zt_event_phase("waiting for a line of input");
        zt_event_ask();
        d->asks = true;
    }
    zt_buf_init(&line, ZT_INPUT_MAX);
    kind = zt_event_wait_input(&line, WAIT_MS);
    if (kind == ZT_INPUT_LINE) {
        d->asks = false;
        rc = take_line(d, &line, &fits, fault);
        *state = fits ? ANSWERS : WAITS;
    } else if (kind != ZT_INPUT_NONE) {
        *state = ENDS;
    }
    zt_buf_release(&line);
    return rc;
}

static bool show_token(void *user, int32_t id)
{
    struct dialogue *d = user;

    return d->live_fault.code ||
           zt_text_pieces_put(&d->pieces, &id, 1, &d->live_fault) != ZT_OK ||
           zt_event_interrupted();
}

/* What was written is told, and part of the history. */
static zt_err end_answer(struct dialogue *d, struct zt_fault *fault)
{
    const struct zt_written *t = d->w.written;
    struct zt_buf text;
    zt_err rc;

    if (d->live_fault.code) {
        if (fault)
            *fault = d->live_fault;
        return d->live_fault.code;
    }
    zt_buf_init(&text, ZT_TEXT_MAX_BYTES);
    rc = d->w.on_token ? zt_text_pieces_end(&d->pieces, fault) : ZT_OK;
    if (!rc)
        rc = zt_text_of_ids(d->e, t->ids + t->num_prompt, t->n - t->num_prompt, &text,
                            fault);
    if (!rc && d->chat)
        rc = add_message(d, "assistant", &text, fault);
    if (!rc)
        zt_event_bytes("reply", (const char *)zt_buf_head(&text), zt_buf_used(&text));
    zt_buf_release(&text);
    return rc;
}

static zt_err answer(struct dialogue *d, struct zt_fault *fault)
{
    bool talks = d->e->run->rank == 0;
    zt_err rc = ZT_OK;

    zt_event_phase("answering");
    if (talks && d->w.on_token)
        rc = zt_text_pieces_open(&d->pieces, d->e, "reply_part", fault);
    if (!rc)
        rc = zt_writer_run(&d->w, fault);
    if (!rc && talks)
        rc = end_answer(d, fault);
    zt_text_pieces_close(&d->pieces);
    zt_writer_forget(&d->w);
    d->w.first++;
    return rc;
}

/* ---- the whole ---- */

static zt_err open_dialogue(struct dialogue *d, struct zt_fault *fault)
{
    struct zt_engine *e = d->e;
    zt_err rc = zt_writer_open(&d->w, e, &e->prompts, fault); /* as long as it may get */

    d->w.prompts = &d->prompts;
    zt_prompts_init(&d->prompts);
    d->prompts.num = 1;
    if (rc || e->run->rank)
        return rc;
    if (d->w.g.each == 1) {
        d->w.on_token = show_token;
        d->w.user = d;
    }
    d->history = json_pack("{s:[]}", MESSAGES);
    if (!d->history)
        return out_of_memory(fault);
    return e->tokenizer && zt_chat_has_template(e->tokenizer)
               ? zt_chat_open(e->tokenizer, &d->chat, fault)
               : ZT_OK;
}

zt_err zt_converse(struct zt_engine *e, struct zt_fault *fault)
{
    struct dialogue d = {.e = e};
    double state = WAITS;
    zt_err rc = open_dialogue(&d, fault);

    while (!rc && state != ENDS) {
        if (e->run->rank == 0)
            rc = next_state(&d, &state, fault);
        if (!rc)
            rc = zt_broadcast(e->comm, &state, sizeof(state), ZT_U8, 0, fault);
        if (!rc && state == ANSWERS)
            rc = answer(&d, fault);
    }
    zt_prompts_release(&d.prompts);
    zt_writer_release(&d.w);
    zt_template_close(d.chat);
    json_decref(d.history);
    return rc;
}
