/*
 * The job: one loop, a channel for each node. It is over when every channel is down and
 * everything below zlaunch is gone; then it may be started again.
 */
#include "launcher/supervise/supervise.h"

#include "common/json/line.h"
#include "common/proc.h"
#include "common/process/limits.h"
#include "common/process/shm_files.h"
#include "common/process/streams.h"
#include "launcher/ctl/detach.h"
#include "launcher/start/start.h"
#include "launcher/supervise/private.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK_MS        100
#define FLUSH_MS       2
#define CLOSE_MS       1000 /* from DONE of the last node to the end of its channel */
#define NODE_FILES     4 /* of zlaunch for one: its channel, and pipes of what starts it */
#define LEFTOVER_TRIES 200
#define LEFTOVER_US    5000
#define FLUSH_OUTPUT_S                                                                   \
    1.0 /* how long a blocked stdout or stderr may delay the exit of a stopped job */
#define BACKOFF_MS     100 /* before the first restart; doubled for each one after */
#define BACKOFF_MAX_MS 30000

/* ------------------------------------------------------------------ the screen */

static void on_flush(uv_timer_t *timer)
{
    zt_sup_flush_screen(timer->data);
}

/* A slow reader of our output slows the job down instead of filling memory. */
void zt_sup_flush_screen(struct zt_supervisor *s)
{
    bool empty = zt_render_flush(s->render);
    bool full = zt_render_pending_bytes(s->render) > ZT_SCREEN_HIGH;
    /* a stopping job is read in any case: its output is small, its end matters */
    bool read = !full || s->stops;

    if (empty)
        uv_timer_stop(&s->flush);
    else if (!uv_is_active((uv_handle_t *)&s->flush))
        uv_timer_start(&s->flush, on_flush, FLUSH_MS, FLUSH_MS);
    if (s->reading == read)
        return;
    s->reading = read;
    for (int i = 0; i < s->plan->num_nodes; i++)
        zt_sup_node_pause(&s->nodes[i], !read);
}

/* If this process was suspended, that time counts neither as silence nor as a hang. */
static void discount_suspension(struct zt_supervisor *s, double now)
{
    double gap = now - s->ticked_s - TICK_MS / 1000.0;

    s->ticked_s = now;
    if (gap < 1)
        return;
    s->progress_s += gap;
    for (int i = 0; i < s->plan->num_nodes; i++)
        s->nodes[i].heard_s += gap;
}

static void on_tick(uv_timer_t *timer)
{
    struct zt_supervisor *s = timer->data;
    double now = zt_now();
    bool ping = now - s->pinged_s > ZT_HEARTBEAT_MS / 1000.0;

    discount_suspension(s, now);
    if (ping)
        s->pinged_s = now;
    for (int i = 0; i < s->plan->num_nodes; i++) {
        if (ping && (s->nodes[i].state == NODE_RUNNING || s->nodes[i].stayed))
            zt_sup_node_send(&s->nodes[i], ZT_FRAME_PING, NULL);
        if (s->reading)
            zt_sup_node_check_silence(&s->nodes[i], now);
    }
    zt_sup_inspect_tick(s, now);
    zt_sup_hang_tick(s, now);
    zt_sup_watch_readers(s);
    zt_render_tick(s->render);
    zt_sup_flush_screen(s);
}

/* ------------------------------------------------------------------ a start of the job
 */

static void start_nodes(struct zt_supervisor *s)
{
    struct zt_fault fault = {0};
    bool paused = !s->reading;

    s->state = SUP_STARTING;
    s->stop_grace_ms = -1;
    s->unclean = false;
    s->inspect_until_s = 0;
    s->hang_seen = false;
    s->reading = true;
    zt_preflight_reset(s);
    for (int i = 0; i < s->plan->num_nodes && s->state == SUP_STARTING; i++) {
        struct zt_sup_node *node = &s->nodes[i];

        if (s->plan->only_node >= 0 && s->plan->only_node != i)
            continue;
        if (node->state == NODE_IDLE) {
            node->loss_noted = false;
            zt_sup_node_enter(node, NODE_READY);
            if (paused)
                zt_sup_node_pause(node, false);
            continue;
        }
        if (node->state == NODE_OFF && zt_sup_node_start(node, &fault))
            zt_sup_node_failed(s, node, zt_err_exit_code(fault.code), fault.text);
    }
    zt_sup_advance(s);
}

static void on_restart_timer(uv_timer_t *timer)
{
    start_nodes(timer->data);
}

/* No node is starting any more: number the ranks and send each node its JOB. */
/* A host of the job without MPI where others have it; NULL: they are alike. */
static const char *host_without_mpi(const struct zt_supervisor *s)
{
    const char *without = NULL;
    bool any = false;

    for (int i = 0; i < s->plan->num_nodes; i++) {
        if (s->nodes[i].state != NODE_READY)
            continue;
        any = any || s->nodes[i].has_mpi;
        if (!s->nodes[i].has_mpi && !without)
            without = s->plan->nodes[i].host;
    }
    return any ? without : NULL;
}

/* What node `i` of the plan is to start. */
static json_t *job_frame(const struct zt_supervisor *s, int i, const char *without_mpi)
{
    json_t *o = zt_preflight_apply(s, zt_job_plan_frame(s->plan, &s->group, i), i);

    if (s->group.restart < s->plan->max_restarts)
        json_object_set_new(o, "stay", json_true());
    if (without_mpi)
        json_object_set_new(json_object_get(o, "env"), "ZLAUNCH_NO_MPI",
                            zt_json_text(without_mpi, strlen(without_mpi)));
    return o;
}

static void run_job(struct zt_supervisor *s)
{
    const char *without_mpi = host_without_mpi(s);
    struct zt_fault fault = {0};

    zt_group_arrange(&s->group, s->plan, s->present);
    zt_notes_release(&s->notes);
    if (zt_notes_init(&s->notes, s->group.world, &fault) ||
        zt_sup_store_begin(s, &fault)) {
        zt_notes_node_lost(&s->notes, "", fault.text, zt_err_exit_code(fault.code));
        zt_sup_stop(s, SIGTERM, 0);
        return;
    }
    if (without_mpi && s->plan->is_plugin)
        zt_render_message(
            s->render, ZT_LOG_INFO,
            "%s has no backends/mpi.so beside its zworker, other hosts have: "
            "where ranks are left to choose, they talk by TCP",
            without_mpi);
    s->state = SUP_RUNNING;
    s->notes.asked_by = s->early_signal;
    s->progress_s = zt_now();
    zt_sup_pmi_reset(s);
    zt_sup_input_reset(s);
    for (int i = 0; i < s->plan->num_nodes; i++) {
        struct zt_sup_node *node = &s->nodes[i];

        for (int k = 0; s->plan->num_nodes > 1 && s->group.node_rank[i] >= 0 &&
                        k < s->plan->nodes[i].num_slots;
             k++)
            s->notes.ranks[s->group.first_rank[i] + k].host = s->plan->nodes[i].host;
        if (node->state != NODE_READY)
            continue;
        if (s->group.node_rank[i] < 0) { /* one more than --max_elastic_nodes */
            zt_sup_node_enter(node, NODE_DONE);
            zt_sup_node_close(node);
            continue;
        }
        zt_sup_node_enter(node, NODE_RUNNING);
        zt_sup_node_send(node, ZT_FRAME_JOB, job_frame(s, i, without_mpi));
        if (s->early_signal)
            zt_sup_send_signal(node, s->early_signal);
    }
}

static void note_too_few(struct zt_supervisor *s, int num)
{
    char text[128];

    snprintf(text, sizeof(text),
             "only %d node%s could be started, at least %d are wanted", num,
             num == 1 ? "" : "s", s->plan->min_nodes);
    zt_notes_node_lost(&s->notes, "", num ? text : "no node could be started",
                       s->start_code ? s->start_code : 69);
}

static void run_when_ready(struct zt_supervisor *s)
{
    int num = 0;

    if (s->num_in[NODE_STARTING])
        return;
    for (int i = 0; i < s->plan->num_nodes; i++) {
        s->present[i] = s->nodes[i].state == NODE_READY || s->plan->only_node >= 0;
        num += s->present[i];
    }
    if (num >= s->plan->min_nodes) {
        if (!zt_preflight_busy(s))
            run_job(s);
        return;
    }
    note_too_few(s, num);
    zt_sup_stop(s, SIGTERM, 0);
}

/* Processes of this host that channels to waiting daemons hang on; their number. */
static int list_waiting(const struct zt_supervisor *s, pid_t *out)
{
    int num = 0;

    for (int i = 0; i < s->plan->num_nodes; i++)
        if (s->nodes[i].state == NODE_IDLE && s->nodes[i].channel->pid)
            out[num++] = s->nodes[i].channel->pid;
    return num;
}

int zt_sup_kill_others(const struct zt_supervisor *s)
{
    return zt_proc_signal_others(SIGKILL, s->waiting, list_waiting(s, s->waiting));
}

/* Those that are dead, unless it is a daemon's: how that ended is its channel's to hear. */
static void reap_leftovers(const struct zt_supervisor *s)
{
    int num = list_waiting(s, s->waiting), status;
    siginfo_t info = {.si_pid = 0};
    bool ours = true;

    while (ours && waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid) {
        for (int i = 0; i < num; i++)
            ours = ours && s->waiting[i] != info.si_pid;
        if (ours)
            waitpid(info.si_pid, &status, WNOHANG);
        info.si_pid = 0;
    }
}

/* Kill the ranks that a dead daemon left; they are children of this subreaper now. */
static void kill_leftovers(const struct zt_supervisor *s)
{
    for (int i = 0; i < LEFTOVER_TRIES; i++) {
        if (zt_sup_kill_others(s) == 0)
            break;
        reap_leftovers(s);
        usleep(
            LEFTOVER_US); /* the death of a grandchild is not signalled to this process */
    }
    zt_shm_files_remove_unused();
}

/* Is this an end that a restart is for? */
static bool is_restartable(const struct zt_supervisor *s, const struct zt_verdict *v,
                           bool ran)
{
    bool asked = s->notes.stop != ZT_STOP_NONE && s->notes.stop != ZT_STOP_HANG;

    return v->exit_code && !v->saved && !v->unsaved && !asked && !s->stops &&
           (ran || s->group.restart > 0) &&
           !(v->rank && zt_fail_is_permanent(v->rank->fail, s->begun));
}

static bool may_restart(const struct zt_supervisor *s, const struct zt_verdict *v,
                        bool ran)
{
    return s->group.restart < s->plan->max_restarts && is_restartable(s, v, ran);
}

/* A job that is not started again although it was before. */
static void tell_used_up(struct zt_supervisor *s, const struct zt_verdict *v)
{
    char text[128];

    if (!s->plan->max_restarts || s->group.restart < s->plan->max_restarts ||
        !is_restartable(s, v, true))
        return;
    snprintf(text, sizeof(text),
             "  restart %d of %d was the last one that --max_restarts allows",
             s->group.restart, s->plan->max_restarts);
    zt_render_block(s->render, text);
}

static void print_verdict(struct zt_supervisor *s, const struct zt_verdict *v)
{
    char *sentence, *evidence;

    zt_verdict_text(&s->notes, v, &sentence, &evidence);
    if (sentence && !zt_render_is_json(s->render)) {
        for (const char *p = sentence; *p;) { /* each line is a problem */
            int n = (int)strcspn(p, "\n");

            zt_render_message(s->render,
                              v->exit_code && !v->saved ? ZT_LOG_ERROR : ZT_LOG_INFO,
                              "%.*s", n, p);
            p += n + (p[n] == '\n');
        }
        zt_render_block(s->render, evidence ? evidence : "");
    }
    free(sentence);
    free(evidence);
}

static void restart(struct zt_supervisor *s, const struct zt_verdict *v)
{
    int shift = s->group.restart < 10 ? s->group.restart : 10;
    int wait_ms = BACKOFF_MS << shift;
    json_t *o = zt_verdict_json(&s->notes, v);
    struct zt_fault fault = {0};
    char text[128];

    if (wait_ms > BACKOFF_MAX_MS)
        wait_ms = BACKOFF_MAX_MS;
    print_verdict(s, v);
    if (!s->num_in[NODE_IDLE]) /* nobody is left who would have kept them */
        s->kept_step = 0;
    s->group.restart++;
    json_object_set_new(o, "event", json_string("restart"));
    json_object_set_new(o, "restart", json_integer(s->group.restart));
    json_object_set_new(o, "max_restarts", json_integer(s->plan->max_restarts));
    if (s->plan->is_plugin)
        json_object_set_new(
            o, "from_step",
            json_integer((s->kept_step > s->saved_step ? s->kept_step : s->saved_step) +
                         1));
    zt_render_record(s->render, o);
    json_decref(o);
    if (!zt_render_is_json(s->render))
        zt_render_message(s->render, ZT_LOG_WARN, "restart %d of %d in %.1f s%s",
                          s->group.restart, s->plan->max_restarts, wait_ms / 1000.0,
                          zt_sup_restart_text(s, text, sizeof(text)));
    zt_notes_release(&s->notes);
    if (zt_notes_init(&s->notes, s->plan->world, &fault)) {
        zt_notes_node_lost(&s->notes, "", fault.text, zt_err_exit_code(fault.code));
        if (!zt_sup_end_idle(s))
            uv_stop(&s->loop);
        return;
    }
    s->notes.saves = s->saves;
    s->notes.saved_before = s->saves && s->saved_step > 0;
    s->notes.behind = s->saved_step < s->newest_step ? s->saved_step : 0;
    s->state = SUP_WAITING;
    uv_timer_start(&s->restart_timer, on_restart_timer, (uint64_t)wait_ms, 0);
}

bool zt_sup_end_idle(struct zt_supervisor *s)
{
    if (!s->num_in[NODE_IDLE])
        return false;
    s->ending = true;
    s->state = SUP_STOPPING;
    uv_timer_stop(&s->restart_timer);
    for (int i = 0; i < s->plan->num_nodes; i++) {
        if (s->nodes[i].state != NODE_IDLE)
            continue;
        zt_sup_node_enter(&s->nodes[i], NODE_DONE);
        zt_sup_node_send(&s->nodes[i], ZT_FRAME_END, NULL);
    }
    zt_sup_set_deadline(s, CLOSE_MS + (s->plan->same_host ? 0 : ZT_REMOTE_MS));
    return true;
}

bool zt_sup_is_over(const struct zt_supervisor *s)
{
    return s->num_in[NODE_OFF] + s->num_in[NODE_IDLE] == s->plan->num_nodes;
}

/* Every channel is down, or its daemon waits. */
static void on_all_over(struct zt_supervisor *s)
{
    struct zt_verdict v;
    bool ran = false;

    uv_timer_stop(&s->deadline);
    if (s->state == SUP_STARTING && s->notes.stop == ZT_STOP_NONE)
        note_too_few(s, 0); /* of an elastic job: each of them was left out */
    if (s->unclean)
        kill_leftovers(s);
    for (int i = 0; i < s->notes.num_ranks; i++)
        ran = ran || s->notes.ranks[i].started;
    zt_notes_judge(&s->notes, &v);
    if (!s->ending && may_restart(s, &v, ran))
        restart(s, &v);
    else if (!zt_sup_end_idle(s))
        uv_stop(&s->loop);
}

void zt_sup_advance(struct zt_supervisor *s)
{
    int busy = s->num_in[NODE_STARTING] + s->num_in[NODE_READY] + s->num_in[NODE_RUNNING];

    if (s->state == SUP_WAITING)
        return;
    if (zt_sup_is_over(s)) {
        on_all_over(s);
        return;
    }
    if (s->state == SUP_STARTING) {
        run_when_ready(s);
        return;
    }
    for (int i = 0; i < s->plan->num_nodes; i++)
        busy = busy || (s->nodes[i].state != NODE_OFF && s->nodes[i].state != NODE_DONE);
    if (!busy) /* all said DONE and are about to close their ends */
        zt_sup_set_deadline(s, CLOSE_MS + (s->plan->same_host ? 0 : ZT_REMOTE_MS));
}

/* ------------------------------------------------------------------ the end */

#define NAMED_RANKS 16 /* in one message */

/* The log is what was asked for: a job that did well without it is not fine. */
static void judge_logs(struct zt_supervisor *s, struct zt_verdict *v, json_t *end)
{
    char ranks[NAMED_RANKS * 12 + 32] = "", text[ZT_FAULT_TEXT];
    size_t at = 0;
    int num = 0;

    if (!s->log_is_lost || v->exit_code)
        return;
    v->exit_code = zt_err_exit_code(ZT_E_CANTCREATE);
    json_object_set_new(end, "exit_code", json_integer(v->exit_code));
    for (int i = 0; i < s->notes.num_ranks; i++)
        if (s->notes.ranks[i].log_is_lost && num++ < NAMED_RANKS)
            at += (size_t)snprintf(ranks + at, sizeof(ranks) - at, "%s%d",
                                   num > 1 ? ", " : "", s->notes.ranks[i].rank);
    if (num > NAMED_RANKS)
        snprintf(ranks + at, sizeof(ranks) - at, " and %d more", num - NAMED_RANKS);
    snprintf(text, sizeof(text),
             "the log file%s of rank%s %s in %s took no more, and what %s above; "
             "all else went well",
             num > 1 ? "s" : "", num > 1 ? "s" : "", ranks, s->plan->log_dir,
             num > 1 ? "they lack is" : "it lacks is");
    json_object_set_new(end, "cause", zt_json_text(text, strlen(text)));
    zt_render_message(s->render, ZT_LOG_ERROR, "%s", text);
}

/* So is what was printed: before the end is told, which says it. */
static void judge_output(struct zt_supervisor *s, struct zt_verdict *v, json_t *end)
{
    const char *log = zt_detach_log();
    char text[ZT_FAULT_TEXT];
    int e;

    zt_render_flush(s->render);
    e = zt_render_lost(s->render);
    if (!e)
        return;
    snprintf(text, sizeof(text), "%s%s: %s; what was printed there is not complete",
             log ? "log file " : "standard output", log ? log : "", strerror(e));
    if (log) /* for who has attached; in the foreground it is the last word on stderr */
        zt_render_message(s->render, ZT_LOG_ERROR, "%s", text);
    if (v->exit_code)
        return;
    v->exit_code = zt_err_exit_code(ZT_E_CANTCREATE);
    json_object_set_new(end, "exit_code", json_integer(v->exit_code));
    json_object_set_new(end, "cause", zt_json_text(text, strlen(text)));
}

static int finish_job(struct zt_supervisor *s)
{
    char unsaved[2 * ZT_SUP_DIR + 128];
    struct zt_fault fault = {0};
    struct zt_verdict v;
    json_t *end;

    zt_notes_judge(&s->notes, &v);
    end = zt_verdict_json(&s->notes, &v);
    json_object_set_new(end, "job", json_string(s->plan->job_id));
    if (s->group.restart)
        json_object_set_new(end, "restarts", json_integer(s->group.restart));
    if (v.exit_code && s->trains) {
        json_object_set_new(
            end, "last_step",
            json_integer(s->last_step > s->saved_step ? s->last_step : s->saved_step));
        json_object_set_new(end, "saved_step", json_integer(s->saved_step));
    }
    zt_render_finish_live(s->render);
    print_verdict(s, &v);
    tell_used_up(s, &v);
    if (v.exit_code)
        zt_render_block(s->render, zt_sup_unsaved_text(s, unsaved, sizeof(unsaved)));
    judge_logs(s, &v, end);
    judge_output(s, &v, end);
    if (s->plan->summary && zt_summary_write(s->plan->summary, end, &fault)) {
        zt_render_message(s->render, ZT_LOG_ERROR, "%s", fault.text);
        if (!v.exit_code) {
            v.exit_code = zt_err_exit_code(fault.code);
            json_object_set_new(end, "exit_code", json_integer(v.exit_code));
            json_object_set_new(end, "cause",
                                zt_json_text(fault.text, strlen(fault.text)));
        }
    }
    if (s->verbose)
        zt_render_message(s->render, ZT_LOG_INFO, "exit code %d", v.exit_code);
    zt_render_record(s->render, end); /* the last one */
    json_decref(end);
    return v.exit_code;
}

/* After a stop, a reader that blocks must not keep zlaunch alive. */
static void flush_output(struct zt_supervisor *s)
{
    double until = zt_now() + FLUSH_OUTPUT_S;

    while (s->stops && !zt_render_flush(s->render)) {
        if (zt_now() > until)
            zt_render_discard(s->render); /* the next round writes what others can take */
        usleep(1000);
    }
}

static void on_walk_close(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void init_timers(struct zt_supervisor *s)
{
    uv_timer_t *timers[] = {&s->tick, &s->flush, &s->deadline, &s->timeout,
                            &s->restart_timer};

    for (size_t i = 0; i < sizeof(timers) / sizeof(*timers); i++) {
        uv_timer_init(&s->loop, timers[i]);
        timers[i]->data = s;
    }
    s->ticked_s = zt_now();
    uv_timer_start(&s->tick, on_tick, TICK_MS, TICK_MS);
    if (s->plan->timeout_s > 0)
        uv_timer_start(&s->timeout, zt_sup_on_timeout,
                       (uint64_t)(s->plan->timeout_s * 1000), 0);
}

static zt_err open_supervisor(struct zt_supervisor *s,
                              const struct zt_render_config *screen,
                              struct zt_fault *fault)
{
    int num = s->plan->num_nodes;
    struct zt_render_config cfg = *screen;
    zt_err rc;

    cfg.on_line = zt_sup_ctl_line;
    cfg.on_line_ctx = s;
    rc = zt_limits_open_files(ZT_LIMITS_FILES + NODE_FILES * (uint64_t)num,
                              "for the nodes of this job zlaunch needs", fault);
    if (!rc)
        rc = zt_render_open(&cfg, &s->render, fault);
    if (!rc)
        rc = zt_notes_init(&s->notes, s->plan->world, fault);
    if (!rc)
        rc = zt_group_init(&s->group, s->plan, fault);
    if (rc)
        return rc;
    s->nodes = calloc((size_t)num, sizeof(*s->nodes));
    s->present = calloc((size_t)num, sizeof(*s->present));
    s->waiting = calloc((size_t)num, sizeof(*s->waiting));
    if (!s->nodes || !s->present || !s->waiting)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for %d nodes", num);
    s->num_in[NODE_OFF] = num;
    for (int i = 0; i < num; i++) {
        s->nodes[i].sup = s;
        s->nodes[i].index = i;
    }
    return ZT_OK;
}

/* A loop that cannot watch signals is of no use, and what it has opened goes with the
 * process. */
static zt_err open_loop(struct zt_supervisor *s, struct zt_fault *fault)
{
    int e = uv_loop_init(&s->loop);

    if (!e)
        e = zt_sup_watch_signals(s);
    return e ? zt_fault_set(fault, ZT_E_SYSTEM, "zlaunch cannot watch what happens: %s",
                            uv_strerror(e))
             : ZT_OK;
}

static void release_supervisor(struct zt_supervisor *s)
{
    for (int i = 0; s->nodes && i < s->plan->num_nodes; i++)
        zt_buf_release(&s->nodes[i].in);
    free(s->nodes);
    free(s->present);
    free(s->waiting);
    zt_buf_release(&s->pmi_pairs);
    zt_preflight_reset(s);
    zt_group_release(&s->group);
    zt_render_close(s->render);
    zt_notes_release(&s->notes);
}

zt_err zt_supervise(const struct zt_job_plan *plan, const struct zt_render_config *screen,
                    bool verbose, int *exit_code, struct zt_fault *fault)
{
    struct zt_supervisor s = {.plan = plan, .verbose = verbose};
    zt_err rc;

    signal(SIGPIPE, SIG_IGN);
    rc = open_supervisor(&s, screen, fault);
    if (!rc)
        rc = zt_summary_begin(plan->summary, fault);
    if (!rc)
        rc = open_loop(&s, fault);
    if (rc) {
        release_supervisor(&s);
        return rc;
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    init_timers(&s);
    zt_sup_ctl_open(&s);
    zt_sup_input_open(&s);
    start_nodes(&s);
    uv_run(&s.loop, UV_RUN_DEFAULT);
    *exit_code = finish_job(&s);
    flush_output(&s);
    zt_sup_store_end(&s);
    if (!zt_render_flush(s.render) || !zt_render_lost(s.render) || *exit_code)
        zt_sup_ctl_finish(&s, *exit_code);
    else /* the end itself */
        zt_sup_ctl_finish(&s, zt_err_exit_code(ZT_E_CANTCREATE));
    uv_walk(&s.loop, on_walk_close, NULL);
    uv_run(&s.loop, UV_RUN_DEFAULT);
    uv_loop_close(&s.loop);
    zt_render_drain(s.render); /* signals end zlaunch again, should this block */
    *exit_code = zt_streams_lost("zlaunch", zt_render_lost(s.render), *exit_code);
    release_supervisor(&s);
    zt_sup_ctl_release(&s);
    zt_sup_input_release(&s);
    return ZT_OK;
}
