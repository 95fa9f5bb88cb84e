/*
 * input.c -- standard input, for the rank that asks for a line of it (--interactive).
 *
 *      IDLE --ask--> ASKED --a line: INPUT to the rank--> ANSWERED --ask--> ASKED
 *                      |                                   | Ctrl-C: INPUT to the rank
 *                      |                                   v
 *                      | end of input: INPUT to the rank  INTERRUPTED --ask--> ASKED
 *                      v
 *                    IDLE
 *
 * It is read while a rank asks and at no other time: other programs behind zlaunch may want
 * it, and what is typed beforehand waits where it is. Ctrl-C ends an answer once; any other
 * stops the job as it always does.
 */
#include "launcher/supervise/private.h"

#include "common/json/line.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static void send_input(const struct zt_sup_input *in, zt_input_kind kind,
                       const struct zt_buf *line)
{
    struct zt_buf body;

    zt_buf_init(&body, ZT_FRAME_MAX);
    if (!zt_buf_put_u32(&body, (uint32_t)in->rank) &&
        !zt_buf_put_u8(&body, (uint8_t)kind) &&
        !(line && zt_buf_put(&body, zt_buf_head(line), zt_buf_used(line))))
        zt_sup_node_send_bytes(in->node, ZT_FRAME_INPUT, zt_buf_head(&body),
                               zt_buf_used(&body));
    zt_buf_release(&body);
}

/* A prompt is for a person: one whose input comes from a program does not see it. */
static bool is_typed(void)
{
    return isatty(STDIN_FILENO);
}

static void tell_of_long_lines(struct zt_supervisor *s)
{
    struct zt_sup_input *in = &s->input;

    if (in->reader.too_long == in->told_too_long)
        return;
    in->told_too_long = in->reader.too_long;
    zt_render_message(s->render, ZT_LOG_WARN,
                      "a line of more than %zu bytes was passed over", ZT_INPUT_MAX);
}

/* A line goes to the rank if one is there, or the end. False: more has to be read. */
static bool pass_on(struct zt_supervisor *s)
{
    struct zt_sup_input *in = &s->input;
    zt_input_kind kind;
    struct zt_buf line;

    zt_buf_init(&line, ZT_INPUT_MAX);
    kind = zt_line_reader_take(&in->reader, &line);
    tell_of_long_lines(s);
    if (kind != ZT_INPUT_NONE) {
        in->state = kind == ZT_INPUT_LINE ? INPUT_ANSWERED : INPUT_IDLE;
        send_input(in, kind, &line);
        if (kind == ZT_INPUT_END && is_typed())
            zt_render_prompt(s->render, "\n"); /* Ctrl-D moves no cursor */
        zt_sup_flush_screen(s);
    }
    zt_buf_release(&line);
    return kind != ZT_INPUT_NONE;
}

static void on_input(uv_poll_t *poll, int status, int events)
{
    struct zt_supervisor *s = poll->data;

    (void)events;
    if (status < 0)
        s->input.reader.ended = true;
    else
        zt_line_reader_fill(&s->input.reader, STDIN_FILENO);
    if (pass_on(s))
        uv_poll_stop(poll);
}

/* libuv makes what it polls non-blocking, also for the shell that has the same terminal. */
static bool can_poll(struct zt_supervisor *s)
{
    struct zt_sup_input *in = &s->input;
    int flags = fcntl(STDIN_FILENO, F_GETFL);

    if (!in->has_poll)
        in->has_poll = uv_poll_init(&s->loop, &in->poll, STDIN_FILENO) == 0;
    if (flags >= 0)
        fcntl(STDIN_FILENO, F_SETFL, flags);
    in->poll.data = s;
    return in->has_poll;
}

/* A file cannot be polled, and is read without waiting. */
static void read_line(struct zt_supervisor *s)
{
    while (!pass_on(s)) {
        if (can_poll(s) && !uv_poll_start(&s->input.poll, UV_READABLE, on_input))
            return;
        zt_line_reader_fill(&s->input.reader, STDIN_FILENO);
    }
}

void zt_sup_input_event(struct zt_sup_node *node, int rank, const json_t *event)
{
    struct zt_supervisor *s = node->sup;
    struct zt_sup_input *in = &s->input;

    if (strcmp(zt_json_get_text(event, "event", ""), "ask") != 0)
        return;
    in->node = node;
    in->rank = rank;
    in->state = INPUT_ASKED;
    if (is_typed())
        zt_render_prompt(s->render, "> ");
    read_line(s);
}

bool zt_sup_input_is_awaited(const struct zt_supervisor *s)
{
    return s->input.state == INPUT_ASKED;
}

bool zt_sup_input_interrupt(struct zt_supervisor *s)
{
    struct zt_sup_input *in = &s->input;

    if (in->state != INPUT_ANSWERED || s->state != SUP_RUNNING)
        return false;
    in->state = INPUT_INTERRUPTED;
    send_input(in, ZT_INPUT_INTERRUPT, NULL);
    return true;
}

void zt_sup_input_reset(struct zt_supervisor *s)
{
    s->input.state = INPUT_IDLE;
    if (s->input.has_poll)
        uv_poll_stop(&s->input.poll);
}

void zt_sup_input_open(struct zt_supervisor *s)
{
    zt_line_reader_init(&s->input.reader);
}

void zt_sup_input_release(struct zt_supervisor *s)
{
    zt_line_reader_release(&s->input.reader);
}
