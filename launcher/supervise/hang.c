/*
 * A job without progress. When --hang_timeout is over without an event of any rank, and
 * without a new phase or collective of any (of a program: without output), all ranks are
 * inspected. When the answers are there the job is stopped, or started again, with the most
 * suspicious rank named.
 */
#include "launcher/supervise/private.h"

#include "common/json/line.h"

#include <signal.h>

static void inspect(struct zt_supervisor *s)
{
    s->hang_seen = true;
    zt_render_message(s->render, ZT_LOG_ERROR,
                      "no progress for %g s; this is what the ranks are doing:",
                      s->plan->hang_timeout_s);
    zt_sup_inspect(s);
}

/* Collectives that a rank has begun. */
static int64_t num_collectives(const struct zt_rank_note *r)
{
    return zt_json_get_int(r->state, "collectives", 0);
}

/* A rank that is stopped, or else the one that has begun the fewest collectives: the
 * others wait for it in the next one. NULL: all have begun as many. */
static const struct zt_rank_note *suspect(const struct zt_notes *n)
{
    const struct zt_rank_note *last = NULL;
    int64_t most = 0;

    for (int i = 0; i < n->num_ranks; i++) {
        const struct zt_rank_note *r = &n->ranks[i];

        if (!r->state)
            continue;
        if (json_is_true(json_object_get(r->state, "stopped")))
            return r;
        if (!last || num_collectives(r) < num_collectives(last))
            last = r;
        most = num_collectives(r) > most ? num_collectives(r) : most;
    }
    return last && num_collectives(last) < most ? last : NULL;
}

static void conclude(struct zt_supervisor *s)
{
    const struct zt_rank_note *r = suspect(&s->notes);

    zt_sup_note_stop(s, ZT_STOP_HANG, 0);
    s->notes.hang_s = s->plan->hang_timeout_s;
    s->notes.hang_rank = r ? r->rank : -1;
    zt_sup_stop(s, SIGTERM, s->plan->grace_ms);
}

void zt_sup_hang_tick(struct zt_supervisor *s, double now)
{
    double limit = s->plan->hang_timeout_s;

    if (limit <= 0 || s->state != SUP_RUNNING)
        return;
    if (zt_sup_input_is_awaited(s) || !s->reading)
        s->progress_s =
            now; /* a person makes none: input is awaited, output is not read */
    if (!s->hang_seen && now - s->progress_s >= limit)
        inspect(s);
    else if (s->hang_seen &&
             !zt_sup_inspecting(s)) /* also where the look woke a rank up */
        conclude(s);
}
