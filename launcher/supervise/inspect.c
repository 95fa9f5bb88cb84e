/*
 * What is every rank doing? Each daemon is asked (INSPECT) and answers with a frame for
 * each of its ranks (INSPECTED), which is printed and kept in the notes. Ranks that catch
 * SIGQUIT print their stack meanwhile. A rank whose daemon has not answered in time is
 * named: silence is an answer, too.
 */
#include "launcher/supervise/private.h"

#include "common/json/line.h"
#include "common/log.h"

#include <stdio.h>
#include <string.h>

#define ANSWER_S  1.0 /* for answers, and for the stacks that ranks print */
#define NAMED_MAX 16  /* ranks that are named one by one */

void zt_sup_inspect(struct zt_supervisor *s)
{
    s->inspect_until_s = zt_now() + ANSWER_S;
    for (int i = 0; i < s->notes.num_ranks; i++) {
        json_decref(s->notes.ranks[i].state);
        s->notes.ranks[i].state = NULL;
    }
    for (int i = 0; i < s->plan->num_nodes; i++)
        if (s->nodes[i].state == NODE_RUNNING)
            zt_sup_node_send(&s->nodes[i], ZT_FRAME_INSPECT, NULL);
}

bool zt_sup_inspecting(const struct zt_supervisor *s)
{
    return s->inspect_until_s > 0;
}

/* ", in collective 12 (all_reduce)"; empty: it has made none. */
static const char *collective_text(const json_t *o, char *out, size_t n)
{
    int64_t num = zt_json_get_int(o, "collectives", 0);
    bool inside = json_is_true(json_object_get(o, "inside"));

    out[0] = 0;
    if (num)
        snprintf(out, n, ", %s collective %lld (%.32s)", inside ? "in" : "after",
                 (long long)num, zt_json_get_text(o, "collective", ""));
    return out;
}

void zt_sup_inspected(struct zt_supervisor *s, const json_t *o)
{
    struct zt_rank_note *note = &s->notes.ranks[zt_json_get_int(o, "rank", 0)];
    const char *phase = zt_json_get_text(o, "phase", "");
    const char *where = zt_json_get_text(o, "where", "");
    const char *stack = zt_json_get_text(o, "stack", "");
    char collective[96];
    json_t *record = json_copy((json_t *)o);
    char text[1024];

    json_decref(note->state);
    note->state = json_copy((json_t *)o);
    snprintf(text, sizeof(text), "rank %d%s%s (pid %d) is %s%s%s%s%s%s", note->rank,
             note->host ? " on " : "", note->host ? note->host : "", (int)note->pid,
             zt_json_get_text(o, "state", "?"), *where ? " in " : "", where,
             *phase ? ", during: " : "", phase,
             collective_text(o, collective, sizeof(collective)));
    if (s->hang_seen)
        zt_render_message(s->render, ZT_LOG_ERROR, "%s", text);
    else
        zt_render_answer(s->render, "%s", text);
    if (*stack)
        zt_render_block(s->render, stack);
    json_object_set_new(record, "event", json_string("inspected"));
    zt_render_record(s->render, record);
    json_decref(record);
}

/* Ranks that run, as far as is known, and whose daemon has not answered for them. */
static int list_silent(const struct zt_supervisor *s, char *text, size_t n)
{
    int num = 0;

    text[0] = 0;
    for (int i = 0; i < s->notes.num_ranks; i++) {
        const struct zt_rank_note *r = &s->notes.ranks[i];
        size_t at = strlen(text);

        if (!r->started || r->exited || r->state)
            continue;
        if (++num <= NAMED_MAX)
            snprintf(text + at, n - at, "%s%d%s%.200s", num > 1 ? ", " : "", r->rank,
                     r->host ? " on " : "", r->host ? r->host : "");
        else if (num == NAMED_MAX + 1)
            snprintf(text + at, n - at, ", ...");
    }
    return num;
}

void zt_sup_inspect_tick(struct zt_supervisor *s, double now)
{
    char text[NAMED_MAX * 256];
    int num;

    if (!s->inspect_until_s || now < s->inspect_until_s)
        return;
    s->inspect_until_s = 0;
    num = list_silent(s, text, sizeof(text));
    if (num)
        zt_render_message(
            s->render, s->hang_seen ? ZT_LOG_ERROR : ZT_LOG_WARN,
            "no answer in %g s about rank%s %s: the node daemon is stopped, "
            "or slow",
            ANSWER_S, num == 1 ? "" : "s", text);
}
