/*
 * A job without progress. When --hang_timeout is over without an event of any rank, and
 * without a new phase or collective of any, every daemon is asked to look at its ranks
 * (LOOK); their answers are shown and kept, and a second later the job is stopped, or
 * started again, with the most suspicious rank named.
 */
#include "launcher/supervise_private.h"

#include "common/jsonline.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_S 1.0 /* for the answers to come, and the stacks that ranks print */

void zt_hang_ask(struct zt_sup *s)
{
    for (int i = 0; i < s->plan->num_nodes; i++)
        if (s->members[i].state == MEMBER_RUNNING)
            zt_member_send(&s->members[i], ZT_FRAME_LOOK, NULL);
}

static void begin(struct zt_sup *s, double now)
{
    s->look_until_s = now + LOOK_S;
    zt_render_message(s->render, ZT_LOG_ERROR,
                      "no progress for %g s; this is what the ranks are doing:",
                      s->plan->hang_timeout_s);
    zt_hang_ask(s);
}

/* ", in collective 12 (all_reduce)"; empty: it has made none. */
static const char *call_text(const json_t *o, char *out, size_t n)
{
    int64_t num = zt_json_get_int(o, "collectives", 0);
    bool inside = json_is_true(json_object_get(o, "inside"));

    snprintf(out, n, num ? ", %s collective %lld (%.32s)" : "", inside ? "in" : "after",
             (long long)num, zt_json_get_text(o, "collective", ""));
    return out;
}

void zt_hang_looked(struct zt_sup *s, const json_t *o)
{
    struct zt_rank_note *note = &s->notes.ranks[zt_json_get_int(o, "rank", 0)];
    const char *phase = zt_json_get_text(o, "phase", "");
    const char *where = zt_json_get_text(o, "where", "");
    const char *stack = zt_json_get_text(o, "stack", "");
    char call[96];
    json_t *record = json_copy((json_t *)o);

    json_decref(note->look);
    note->look = json_copy((json_t *)o);
    zt_render_message(s->render, ZT_LOG_ERROR, "rank %d%s%s (pid %d) is %s%s%s%s%s%s",
                      note->rank, note->host ? " on " : "", note->host ? note->host : "",
                      (int)note->pid, zt_json_get_text(o, "state", "?"),
                      *where ? " in " : "", where, *phase ? ", during: " : "", phase,
                      call_text(o, call, sizeof(call)));
    if (*stack)
        zt_render_block(s->render, stack);
    json_object_set_new(record, "event", json_string("looked"));
    zt_render_record(s->render, record);
    json_decref(record);
}

/* How far a rank has come: the more, the further. */
static int64_t calls_of(const struct zt_rank_note *r)
{
    return zt_json_get_int(r->look, "collectives", 0);
}

/* A stopped rank, or else the one that has begun the fewest collectives: the others wait
 * for it in the next. NULL: they are all alike. */
static const struct zt_rank_note *suspect(const struct zt_notes *n)
{
    const struct zt_rank_note *last = NULL;
    int64_t most = 0;

    for (int i = 0; i < n->num_ranks; i++) {
        const struct zt_rank_note *r = &n->ranks[i];

        if (!r->look)
            continue;
        if (strstr(zt_json_get_text(r->look, "state", ""), "stopped"))
            return r;
        if (!last || calls_of(r) < calls_of(last))
            last = r;
        most = calls_of(r) > most ? calls_of(r) : most;
    }
    return last && calls_of(last) < most ? last : NULL;
}

static void conclude(struct zt_sup *s)
{
    const struct zt_rank_note *r = suspect(&s->notes);

    zt_sup_note_stop(s, ZT_STOP_HANG, 0);
    s->notes.hang_s = s->plan->hang_timeout_s;
    s->notes.hang_rank = r ? r->rank : -1;
    zt_sup_stop(s, SIGTERM, s->plan->grace_ms);
}

void zt_hang_tick(struct zt_sup *s, double now)
{
    double limit = s->plan->hang_timeout_s;

    if (limit <= 0 || s->state != SUP_RUNNING)
        return;
    if (now - s->progress_s < limit)
        s->look_until_s = 0;
    else if (!s->look_until_s)
        begin(s, now);
    else if (now > s->look_until_s)
        conclude(s);
}
