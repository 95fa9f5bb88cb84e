/*
 * Stopping a job: because of the user, a limit, or a lost node. The daemons send a
 * signal, then SIGKILL; after a deadline this process closes the channels and kills by
 * itself.
 */
#include "launcher/supervise/private.h"

#include "common/json/line.h"
#include "common/proc.h"
#include "common/process/streams.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#define DEADLINE_MS 400 /* over the grace, then zlaunch kills by itself */
#define AGAIN_MS    50

/* The daemons did not manage: kill every descendant and close every channel, but where a
 * daemon has, and waits for the next start. */
static void on_deadline(uv_timer_t *timer)
{
    struct zt_supervisor *s = timer->data;

    (void)zt_sup_kill_others(s);
    for (int i = 0; i < s->plan->num_nodes; i++)
        if (s->nodes[i].state != NODE_IDLE)
            zt_sup_node_close(&s->nodes[i]);
    uv_timer_start(timer, on_deadline, AGAIN_MS, 0);
    if (zt_sup_is_over(s)) /* of no channel that is down will be heard */
        zt_sup_advance(s);
}

void zt_sup_set_deadline(struct zt_supervisor *s, int ms)
{
    if (!uv_is_active((uv_handle_t *)&s->deadline) ||
        uv_timer_get_due_in(&s->deadline) > (uint64_t)ms)
        uv_timer_start(&s->deadline, on_deadline, (uint64_t)ms, 0);
}

void zt_sup_stop(struct zt_supervisor *s, int sig, int grace_ms)
{
    if (s->state == SUP_WAITING) {
        if (!zt_sup_end_idle(s))
            uv_stop(&s->loop);
        return;
    }
    if (s->stop_grace_ms >= 0 && s->stop_grace_ms <= grace_ms && sig != SIGKILL)
        return; /* a stop at least as quick is under way */
    s->state = SUP_STOPPING;
    s->stop_grace_ms = grace_ms;
    for (int i = 0; i < s->plan->num_nodes; i++) {
        struct zt_sup_node *node = &s->nodes[i];
        json_t *o;

        if (node->state == NODE_READY && node->stayed && !s->preflight)
            zt_sup_node_enter(node, NODE_IDLE); /* for the start after this */
        else if (node->state == NODE_STARTING || node->state == NODE_READY)
            zt_sup_node_close(node); /* no rank lives there */
        if (node->state != NODE_RUNNING)
            continue;
        o = json_object();
        json_object_set_new(o, "signal", json_integer(sig));
        json_object_set_new(o, "grace_ms", json_integer(grace_ms));
        zt_sup_node_send(node, ZT_FRAME_STOP, o);
    }
    grace_ms += DEADLINE_MS + (s->plan->same_host ? 0 : ZT_REMOTE_MS);
    zt_sup_set_deadline(s, zt_sup_is_over(s) ? 0 : grace_ms);
}

static bool any_failed(const struct zt_supervisor *s)
{
    for (int i = 0; i < s->notes.num_ranks; i++)
        if (s->notes.ranks[i].exited &&
            (s->notes.ranks[i].code || s->notes.ranks[i].signal))
            return true;
    return s->notes.down != NULL;
}

void zt_sup_note_stop(struct zt_supervisor *s, zt_stop_reason reason, int sig)
{
    if (s->notes.stop != ZT_STOP_NONE)
        return;
    s->notes.stop = reason;
    s->notes.stop_signal = sig;
    s->notes.stop_was_first = !any_failed(s);
}

/* The first signal stops the ranks gracefully; Ctrl-C after it kills them. Other signals are sent by
 * programs, some to the process and once more to its group (timeout, the init of a container): they ask
 * for the same again. */
static void stop_by_signal(struct zt_supervisor *s, int sig)
{
    zt_sup_note_stop(s, ZT_STOP_SIGNAL, sig);
    if (s->stops++ == 0) {
        zt_render_message(s->render, ZT_LOG_INFO, "%s: stopping the ranks%s",
                          s->notes.stop_by_ctl ? "told to by zlaunch --ctl"
                          : sig == SIGINT      ? "interrupted"
                                               : zt_signal_text(sig),
                          sig == SIGINT && !s->notes.stop_by_ctl
                              ? "; once more to kill them at once"
                              : "");
        zt_sup_stop(s, SIGTERM, zt_sup_user_grace_ms(s));
    } else if (sig == SIGINT) {
        zt_sup_stop(s, SIGKILL, 0);
    }
    zt_sup_flush_screen(s);
}

static void on_user_signal(uv_signal_t *handle, int sig)
{
    if (sig != SIGINT || !zt_sup_input_interrupt(handle->data))
        stop_by_signal(handle->data, sig);
}

/* As `zlaunch ... | head`. Who still sees standard error is told, and the job goes on: a
 * training is worth more than its output. Where that has nobody left as well it ends as
 * other programs of a pipeline do, and as after a hangup of the terminal. */
void zt_sup_watch_readers(struct zt_supervisor *s)
{
    bool told = s->told_unread;

    if (s->stops || !zt_streams_unread(STDOUT_FILENO))
        return;
    s->told_unread = true;
    zt_render_unread(s->render);
    if (zt_streams_unread(STDERR_FILENO))
        stop_by_signal(s, SIGPIPE);
    else if (!told)
        zt_render_message(
            s->render, ZT_LOG_WARN,
            "nobody reads standard output any more: the job goes on and what "
            "it prints there is lost; zlaunch --attach %s shows it, "
            "zlaunch --ctl %s stop ends it",
            s->plan->job_id, s->plan->job_id);
}

void zt_sup_send_signal(struct zt_sup_node *node, int sig)
{
    json_t *o = json_object();

    json_object_set_new(o, "signal", json_integer(sig));
    zt_sup_node_send(node, ZT_FRAME_SIGNAL, o);
}

/* As far as is known: its rank 0 has not said yet, or has. */
static bool trains_nothing(const struct zt_supervisor *s)
{
    return s->begun && !s->trains;
}

/* What SIGUSR1 and SIGUSR2 mean to the ranks of a plugin. */
static const char *signal_to_plugin(const struct zt_supervisor *s, int sig)
{
    if (sig == SIGUSR2)
        return "means nothing to a plugin: it goes on";
    if (trains_nothing(s))
        return "asks for a checkpoint, but this run trains nothing: it goes on";
    if (s->saves)
        return "asks for a checkpoint after the step at hand, and the end";
    if (s->last_step)
        return "asks for a checkpoint, but this run saves none (--save_steps): it goes "
               "on";
    return "asks for a checkpoint: it waits until training has begun";
}

static void on_forwarded_signal(uv_signal_t *handle, int sig)
{
    struct zt_supervisor *s = handle->data;

    if (s->plan->is_plugin) {
        zt_render_message(s->render, ZT_LOG_INFO, "%s %s",
                          sig == SIGUSR1 ? "SIGUSR1" : "SIGUSR2",
                          signal_to_plugin(s, sig));
        if (sig == SIGUSR2 || trains_nothing(s) || (s->last_step && !s->saves))
            return;
        s->notes.asked_by = sig;
        if (s->state == SUP_STARTING || s->state == SUP_WAITING)
            s->early_signal = sig;
    }
    for (int i = 0; i < s->plan->num_nodes; i++)
        if (s->nodes[i].state == NODE_RUNNING)
            zt_sup_send_signal(&s->nodes[i], sig);
}

/* Ctrl-\: what is every rank doing? */
static void on_quit(uv_signal_t *handle, int sig)
{
    (void)sig;
    zt_sup_inspect(handle->data);
}

/* Ctrl-Z. Daemons on other hosts would take a suspended zlaunch for dead. */
static void on_suspend(uv_signal_t *handle, int sig)
{
    struct zt_supervisor *s = handle->data;

    (void)sig;
    if (s->plan->same_host)
        raise(SIGSTOP);
    else
        zt_render_message(s->render, ZT_LOG_WARN,
                          "not suspended: other hosts would take this zlaunch for dead");
}

void zt_sup_on_timeout(uv_timer_t *timer)
{
    struct zt_supervisor *s = timer->data;

    zt_sup_note_stop(s, ZT_STOP_TIMEOUT, 0);
    s->stops++;
    zt_sup_stop(s, SIGTERM, zt_sup_user_grace_ms(s));
    zt_sup_flush_screen(s);
}

void zt_sup_node_failed(struct zt_supervisor *s, struct zt_sup_node *node, int exit_code,
                        const char *text)
{
    char front[ZT_NODE_NAME];
    bool started = node->state == NODE_RUNNING;

    if (node->loss_noted)
        return;
    node->loss_noted = true;
    zt_sup_node_label(node, front);
    if (s->plan->elastic && !started && s->state == SUP_STARTING) {
        zt_render_message(s->render, ZT_LOG_WARN, "%s%s; going on without this node",
                          front, text);
        s->start_code = exit_code;
        return;
    }
    if (s->state == SUP_STOPPING && !started)
        return; /* it was told to go */
    zt_notes_node_lost(&s->notes, front, text, exit_code);
    zt_sup_stop(s, SIGTERM, s->plan->grace_ms);
}

int zt_sup_watch_signals(struct zt_supervisor *s)
{
    const struct {
        int sig;
        uv_signal_cb fn;
    } rows[] = {
        {SIGINT, on_user_signal},       {SIGTERM, on_user_signal},
        {SIGHUP, on_user_signal},       {SIGUSR1, on_forwarded_signal},
        {SIGUSR2, on_forwarded_signal}, {SIGQUIT, on_quit},
        {SIGTSTP, on_suspend},
    };

    sigset_t set;
    int e = 0;

    for (size_t i = 0; !e && i < sizeof(rows) / sizeof(*rows); i++) {
        e = uv_signal_init(&s->loop, &s->signals[i]);
        s->signals[i].data = s;
        if (!e && !(rows[i].sig == SIGHUP && zt_signal_is_ignored(SIGHUP)))
            e = uv_signal_start(&s->signals[i], rows[i].fn, rows[i].sig);
    }
    sigemptyset(&set); /* main() has blocked them */
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    if (!e)
        sigprocmask(SIG_UNBLOCK, &set, NULL);
    return e;
}
