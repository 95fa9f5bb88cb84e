#include "launcher/supervise/verdict.h"

#include "common/json/line.h"
#include "common/log.h"
#include "common/proc.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_SYSTEM     71
#define EXIT_CANTCREATE 73
#define EXIT_PLAN       78
#define EXIT_TIMEOUT    124
#define TOGETHER_S      0.5 /* exits closer than this may be reported in any order */

zt_err zt_notes_init(struct zt_notes *n, int num_ranks, struct zt_fault *fault)
{
    *n = (struct zt_notes){0};
    n->ranks = calloc((size_t)num_ranks, sizeof(*n->ranks));
    if (!n->ranks)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for %d ranks", num_ranks);
    n->num_ranks = num_ranks;
    for (int i = 0; i < num_ranks; i++)
        n->ranks[i].rank = i;
    return ZT_OK;
}

void zt_notes_release(struct zt_notes *n)
{
    for (int i = 0; i < n->num_ranks; i++) {
        json_decref(n->ranks[i].phase);
        json_decref(n->ranks[i].tail);
        json_decref(n->ranks[i].fail);
        json_decref(n->ranks[i].state);
    }
    free(n->ranks);
    free(n->down);
    *n = (struct zt_notes){0};
}

void zt_notes_node_lost(struct zt_notes *n, const char *front, const char *text,
                        int exit_code)
{
    if (n->down)
        return;
    n->down_code = exit_code;
    n->down_s = zt_now();
    if (asprintf(&n->down, "%s%s", front, text) < 0)
        n->down = strdup("a node was lost");
}

static bool failed(const struct zt_rank_note *r)
{
    return r->exited && (r->code || r->signal);
}

/* Its own report says that another rank failed: that one is the cause. */
static bool blames_peer(const struct zt_rank_note *r)
{
    return r->fail && json_is_true(json_object_get(r->fail, "peer"));
}

/* It saw a connection end; where no rank failed by itself, that is the cause. */
static bool lost_connection(const struct zt_rank_note *r)
{
    return strcmp(zt_json_get_text(r->fail, "code", ""), zt_err_name(ZT_E_LOST)) == 0;
}

/* The higher, the more likely the failure is a cause and not a consequence. */
static int weight(const struct zt_rank_note *r)
{
    if (blames_peer(r))
        return lost_connection(r) ? 1 : 0;
    return r->signal == SIGKILL && !r->stop_requested ? 3 : 2;
}

/* `a` is more likely the first cause than `b`. */
static bool is_before(const struct zt_rank_note *a, const struct zt_rank_note *b)
{
    double apart_s = a->time_s - b->time_s;
    bool close = apart_s < TOGETHER_S && apart_s > -TOGETHER_S;

    if (weight(a) != weight(b))
        return weight(a) > weight(b);
    if (close && (a->signal == SIGABRT) != (b->signal == SIGABRT))
        return b->signal == SIGABRT;
    return a->order < b->order;
}

/* Ranks of a job that failed are told to stop by SIGTERM and killed by SIGKILL: this signal was
 * somebody else's, and may have been heard of after what followed from it. */
static bool was_struck_before(const struct zt_notes *n, const struct zt_rank_note *r)
{
    return n->stop == ZT_STOP_NONE &&
           (r->signal == SIGHUP || r->signal == SIGINT || r->signal == SIGQUIT);
}

static const struct zt_rank_note *first_cause(const struct zt_notes *n)
{
    const struct zt_rank_note *best = NULL;

    for (int i = 0; i < n->num_ranks; i++) {
        const struct zt_rank_note *r = &n->ranks[i];

        /* told to stop, yet it has a failure of its own to report: that counts */
        if (!failed(r) || (r->stop_requested && !(r->fail && !blames_peer(r)) &&
                           !was_struck_before(n, r)))
            continue;
        if (!best || is_before(r, best))
            best = r;
    }
    return best;
}

/* A node was lost before this rank failed, or the rank only reports that loss. */
static bool node_was_first(const struct zt_notes *n, const struct zt_rank_note *r)
{
    return n->down && (blames_peer(r) || n->down_s < r->time_s);
}

/* A rank that was on its way out with a code of its own when it was told to stop keeps that
 * code, even if the signal was faster. */
static int exit_code_of(const struct zt_rank_note *r)
{
    int reported = (int)zt_json_get_int(r->fail, "exit_code", 0);

    if (r->signal && r->stop_requested && reported)
        return reported;
    return r->signal ? 128 + r->signal : r->code;
}

/* After SIGTERM: every rank ended well or saved, and at least one saved. Of ranks that save
 * together one is enough to know: what is still running then is told to stop. */
static bool saved_for_requeue(const struct zt_notes *n)
{
    bool saved = false, started = false;

    for (int i = 0; i < n->num_ranks; i++)
        started = started || n->ranks[i].started;
    if (!started) /* between two starts */
        return n->saved_before;
    for (int i = 0; i < n->num_ranks; i++) {
        const struct zt_rank_note *r = &n->ranks[i];

        if (!r->started) /* of a node that has a zlaunch of its own */
            continue;
        if (!r->exited)
            return false;
        if ((r->signal || (r->code && r->code != ZT_EXIT_REQUEUE)) &&
            !(n->saves && r->stop_requested))
            return false;
        saved = saved || r->code == ZT_EXIT_REQUEUE;
    }
    return saved;
}

/* A run that saves was told to end by a signal to its ranks, and its checkpoint could not be saved:
 * they have said why. */
static bool stopped_without_checkpoint(const struct zt_notes *n)
{
    bool any = false;

    if (!n->saves || n->down || n->stop != ZT_STOP_NONE)
        return false;
    for (int i = 0; i < n->num_ranks; i++) {
        const struct zt_rank_note *r = &n->ranks[i];
        bool ended_so = r->exited && r->code == ZT_EXIT_TERMINATED && !r->stop_requested;

        if (r->fail || (failed(r) && !r->stop_requested && !ended_so))
            return false;
        any = any || ended_so;
    }
    return any;
}

void zt_notes_judge(const struct zt_notes *n, struct zt_verdict *out)
{
    bool stopped = n->stop != ZT_STOP_NONE && n->stop_was_first;
    int failures = 0;

    *out = (struct zt_verdict){0};
    for (int i = 0; i < n->num_ranks; i++)
        failures += failed(&n->ranks[i]) || (n->ranks[i].started && !n->ranks[i].exited);
    if (stopped && n->stop == ZT_STOP_TIMEOUT) {
        out->exit_code = EXIT_TIMEOUT;
    } else if (stopped && n->stop_signal == SIGTERM && saved_for_requeue(n)) {
        out->exit_code = ZT_EXIT_REQUEUE;
        out->saved = true;
    } else if (stopped && n->stop == ZT_STOP_HANG) {
        out->exit_code = EXIT_TIMEOUT;
    } else if (stopped) {
        out->exit_code = 128 + n->stop_signal;
        out->saved = n->saves && saved_for_requeue(n);
    } else if (n->saves && !n->down && n->stop == ZT_STOP_NONE && saved_for_requeue(n)) {
        out->exit_code = ZT_EXIT_REQUEUE; /* by a signal to the ranks alone */
        out->saved = true;
    } else if (stopped_without_checkpoint(n)) {
        out->exit_code = ZT_EXIT_TERMINATED;
        out->unsaved = true;
    } else if ((out->rank = first_cause(n)) && !node_was_first(n, out->rank)) {
        out->exit_code = exit_code_of(out->rank);
    } else if (n->down) {
        out->rank = NULL;
        out->exit_code = n->down_code ? n->down_code : EXIT_SYSTEM;
        out->saved = n->down_code == 128 + SIGTERM && saved_for_requeue(n);
        if (out->saved)
            out->exit_code = ZT_EXIT_REQUEUE;
    } else if (failures) { /* stopped, but not by this zlaunch */
        for (int i = 0; i < n->num_ranks && !out->rank; i++)
            if (failed(&n->ranks[i]))
                out->rank = &n->ranks[i];
        out->exit_code = out->rank ? exit_code_of(out->rank) : EXIT_SYSTEM;
    }
    out->others_stopped = failures - (out->rank != NULL);
}

bool zt_fail_is_permanent(const json_t *fail, bool begun)
{
    static const int codes[] = {2, 65, 66, 78}; /* usage, config, input, plan */
    int64_t code = zt_json_get_int(fail, "exit_code", 0);

    for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++)
        if (code == codes[i])
            return true;
    return code == EXIT_CANTCREATE && !begun;
}

/* ------------------------------------------------------------------ words */

static void rank_end(const struct zt_rank_note *r, char *out, size_t n)
{
    if (r->signal)
        snprintf(out, n, "was killed by %s", zt_signal_text(r->signal));
    else
        snprintf(out, n, "exited with code %d", r->code);
}

static void rank_sentence(FILE *f, const struct zt_rank_note *r)
{
    const char *phase = json_string_value(r->phase);
    char end[96];

    if (r->fail) {
        fprintf(f, "%s", zt_json_get_text(r->fail, "text", ""));
        return;
    }
    rank_end(r, end, sizeof(end));
    fprintf(f, "rank %d", r->rank);
    if (r->host)
        fprintf(f, " on %s", r->host);
    fprintf(f, " (pid %d) %s", (int)r->pid, end);
    if (phase && *phase)
        fprintf(f, " during: %s", phase);
}

/* Is the failure about what all ranks were given, a file or folder among it, so that no
 * rank's part in it matters? */
static bool is_of_all(const struct zt_rank_note *r)
{
    return r->fail && !r->host && zt_fail_is_permanent(r->fail, false);
}

static void rank_evidence(FILE *f, const struct zt_notes *n, const struct zt_rank_note *r)
{
    const char *phase = json_string_value(r->phase);
    size_t lines = json_array_size(r->tail);

    if (r->fail && n->num_ranks > 1 && !is_of_all(r))
        fprintf(f, "  from rank %d%s%s%s%s\n", r->rank, r->host ? " on " : "",
                r->host ? r->host : "", phase && *phase ? ", during: " : "",
                phase ? phase : "");
    if (r->oom)
        fprintf(
            f,
            "  the kernel's out-of-memory killer struck meanwhile: the rank most likely "
            "ran out of memory\n");
    if (r->fail || !lines)
        return;
    fprintf(f, "  last lines of rank %d:\n", r->rank);
    for (size_t i = 0; i < lines; i++)
        fprintf(f, "  | %s\n", json_string_value(json_array_get(r->tail, i)));
}

/* Past "rank N: " where `text` begins with it. */
static const char *skip_rank(const char *text)
{
    size_t n = strncmp(text, "rank ", 5) == 0 ? 5 + strspn(text + 5, "0123456789") : 0;

    return n > 5 && strncmp(text + n, ": ", 2) == 0 ? text + n + 2 : text;
}

/* "what: rank 0: why" is what rank 0 has told the others; it reports "what: why" itself. measured:
 * numbers may differ, as ranks measure memory by themselves. */
static bool is_same_report(const char *a, const char *b, bool measured)
{
    do {
        a = skip_rank(a);
        b = skip_rank(b);
        if (measured) {
            a += strspn(a, "0123456789.");
            b += strspn(b, "0123456789.");
        }
        if (*a != *b)
            return false;
    } while (*a++ && *b++);
    return true;
}

/* Reports of other ranks that differ from the first one. */
static void other_reports(FILE *f, const struct zt_notes *n,
                          const struct zt_rank_note *first)
{
    const char *told = zt_json_get_text(first->fail, "text", "");
    bool measured = zt_json_get_int(first->fail, "exit_code", 0) == EXIT_PLAN;
    int more = 0;

    for (int i = 0; i < n->num_ranks; i++) {
        const struct zt_rank_note *r = &n->ranks[i];
        const char *text = zt_json_get_text(r->fail, "text", "");

        if (r == first || !r->fail || blames_peer(r) ||
            is_same_report(text, told, measured))
            continue;
        if (more++ < 3)
            fprintf(f, "  rank %d reported: %s\n", r->rank, text);
    }
    if (more > 3)
        fprintf(f, "  and %d other ranks reported something else again\n", more - 3);
}

static void hang_sentence(FILE *f, const struct zt_notes *n)
{
    const struct zt_rank_note *r =
        n->hang_rank >= 0 && n->hang_rank < n->num_ranks ? &n->ranks[n->hang_rank] : NULL;
    const char *phase = zt_json_get_text(r ? r->state : NULL, "phase", "");

    fprintf(f, "no progress for %g s", n->hang_s);
    if (!r)
        return;
    fprintf(f, "; rank %d%s%s (pid %d) is %s", r->rank, r->host ? " on " : "",
            r->host ? r->host : "", (int)r->pid,
            zt_json_get_text(r->state, "state", "somewhere else"));
    if (*phase)
        fprintf(f, ", during: %s", phase);
    if (zt_json_get_int(r->state, "collectives", 0))
        fprintf(f, ", %s collective %lld (%s)",
                json_is_true(json_object_get(r->state, "inside")) ? "in" : "after",
                (long long)zt_json_get_int(r->state, "collectives", 0),
                zt_json_get_text(r->state, "collective", ""));
}

static void stop_sentence(FILE *f, const struct zt_notes *n)
{
    if (n->stop == ZT_STOP_HANG)
        hang_sentence(f, n);
    else if (n->stop == ZT_STOP_TIMEOUT)
        fprintf(f, "stopped: the time given with --timeout is over");
    else if (n->stop_by_ctl)
        fprintf(f, "stopped by zlaunch --ctl");
    else if (n->stop_signal == SIGINT)
        fprintf(f, "interrupted");
    else
        fprintf(f, "stopped by %s", zt_signal_text(n->stop_signal));
}

void zt_verdict_text(const struct zt_notes *n, const struct zt_verdict *v,
                     char **sentence, char **evidence)
{
    size_t bytes;
    FILE *f;

    *sentence = *evidence = NULL;
    if (!v->exit_code && n->stop == ZT_STOP_NONE)
        return;
    f = open_memstream(sentence, &bytes);
    if (!f)
        return;
    if (v->rank)
        rank_sentence(f, v->rank);
    else if (n->stop != ZT_STOP_NONE && (n->stop_was_first || !n->down))
        stop_sentence(f, n);
    else if ((v->saved || v->unsaved) && !n->down)
        fprintf(f, "stopped by %s to the ranks%s",
                n->asked_by ? zt_signal_text(n->asked_by) : "a signal",
                v->unsaved ? ", and no checkpoint could be saved" : "");
    else if (n->down)
        fprintf(f, "%s", n->down);
    else
        fprintf(f, "the ranks were stopped by nobody this zlaunch knows");
    if (v->saved && n->saves && n->behind)
        fprintf(
            f,
            "; the training is saved: --resume_from_checkpoint checkpoint-%lld goes on",
            (long long)n->behind);
    else if (v->saved && n->saves)
        fprintf(f, "; the training is saved: --resume_from_checkpoint auto goes on");
    fclose(f);
    f = open_memstream(evidence, &bytes);
    if (!f)
        return;
    if (v->rank) {
        rank_evidence(f, n, v->rank);
        other_reports(f, n, v->rank);
        if (v->others_stopped > 0 && !is_of_all(v->rank))
            fprintf(f, "  %d other rank%s stopped\n", v->others_stopped,
                    v->others_stopped == 1 ? " was" : "s were");
    }
    fclose(f);
}

json_t *zt_verdict_json(const struct zt_notes *n, const struct zt_verdict *v)
{
    json_t *o = json_object();
    char *sentence, *evidence;

    zt_verdict_text(n, v, &sentence, &evidence);
    json_object_set_new(o, "event", json_string("end"));
    json_object_set_new(o, "exit_code", json_integer(v->exit_code));
    json_object_set_new(o, "ranks", json_integer(n->num_ranks));
    if (sentence)
        json_object_set_new(o, "cause", zt_json_text(sentence, strlen(sentence)));
    if (v->rank) {
        json_object_set_new(o, "failed_rank", json_integer(v->rank->rank));
        if (v->rank->host)
            json_object_set_new(o, "host", json_string(v->rank->host));
        json_object_set_new(o, "pid", json_integer(v->rank->pid));
        if (v->rank->signal)
            json_object_set_new(o, "signal", json_integer(v->rank->signal));
        else
            json_object_set_new(o, "code", json_integer(v->rank->code));
        if (v->rank->phase)
            json_object_set(o, "phase", v->rank->phase);
        if (v->rank->tail)
            json_object_set(o, "tail", v->rank->tail);
        json_object_set_new(o, "oom", json_boolean(v->rank->oom));
    }
    free(sentence);
    free(evidence);
    return o;
}
