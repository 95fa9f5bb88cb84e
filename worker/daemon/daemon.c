/*
 * daemon.c -- the loop of one node. node.h draws the states; here are the edges.
 *
 * Killing has two stages: SIGTERM to each rank's group, then after the grace SIGKILL to
 * the groups, to the control group, and to every descendant wherever it hid. As a
 * subreaper the daemon adopts what ranks leave behind, so "descendant" misses nobody.
 */
#include "worker/daemon/daemon.h"

#include "common/json/line.h"
#include "common/log.h"
#include "common/proc.h"
#include "common/process/cgroups.h"
#include "common/process/shm_files.h"
#include "worker/comm/mesh/transport.h"
#include "worker/comm/shm/abort.h"
#include "worker/daemon/guard.h"
#include "worker/daemon/node.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define QUEUE_HIGH      (1u << 20) /* bytes waiting for zlaunch before ranks have to wait */
#define QUEUE_LOW       (256u << 10)
#define ORPHAN_GRACE_MS 500
#define SWEEP_MS        20

static void check_end(struct zt_daemon_node *n);

/* ------------------------------------------------------------------ to zlaunch */

struct send_req {
    uv_write_t req;
    struct zt_daemon_node *node;
    uint8_t bytes[];
};

void zt_node_on_zlaunch_gone(struct zt_daemon_node *n)
{
    if (n->orphaned)
        return;
    n->orphaned = true;
    zt_debug("daemon", "zlaunch is gone");
    if (n->job && n->job->pid_file)
        unlink(n->job->pid_file);
    if (!n->job || n->state == ZT_NODE_WAIT_JOB || n->state >= ZT_NODE_IDLE)
        uv_stop(&n->loop);
    else
        zt_node_stop(n, SIGTERM,
                     n->job->grace_ms < ORPHAN_GRACE_MS ? n->job->grace_ms
                                                        : ORPHAN_GRACE_MS);
}

static void on_sent(uv_write_t *req, int status)
{
    struct send_req *s = (struct send_req *)req;
    struct zt_daemon_node *n = s->node;

    free(s);
    if (status < 0) {
        zt_node_on_zlaunch_gone(n);
        return;
    }
    if (n->paused && uv_stream_get_write_queue_size((uv_stream_t *)&n->out) < QUEUE_LOW)
        zt_output_pause(n, false);
    if (n->state == ZT_NODE_DONE &&
        uv_stream_get_write_queue_size((uv_stream_t *)&n->out) == 0)
        uv_stop(&n->loop);
}

static void send_fault(struct zt_daemon_node *n, const char *text, int exit_code);

/* zlaunch would wait for a frame that does not exist: this node ends, and with it the
 * job. The reason may still find room, for what it replaces has been freed. */
static void cannot_send(struct zt_daemon_node *n)
{
    const char *text = "no memory for what zlaunch has to know; its ranks were stopped";

    if (n->orphaned)
        return;
    if (!n->is_short_of_memory) {
        n->is_short_of_memory = true;
        n->exit_code = zt_err_exit_code(ZT_E_NOMEM);
        zt_error("daemon", "%s", text);
        send_fault(n, text, n->exit_code);
    }
    if (n->state == ZT_NODE_RUNNING)
        zt_node_stop(n, SIGTERM, n->job->grace_ms);
    else
        zt_node_on_zlaunch_gone(n);
}

void zt_node_send(struct zt_daemon_node *n, zt_frame_type type, const void *a,
                  size_t a_bytes, const void *b, size_t b_bytes)
{
    size_t body = a_bytes + b_bytes;
    struct send_req *s;
    uv_buf_t buf;

    if (n->orphaned || body > ZT_FRAME_MAX - 1)
        return;
    s = malloc(sizeof(*s) + ZT_FRAME_HEADER + 1 + body);
    if (!s) {
        cannot_send(n);
        return;
    }
    s->node = n;
    zt_set_u32(s->bytes, (uint32_t)body + 1);
    s->bytes[ZT_FRAME_HEADER] = (uint8_t)type;
    if (a_bytes)
        memcpy(s->bytes + ZT_FRAME_HEADER + 1, a, a_bytes);
    if (b_bytes)
        memcpy(s->bytes + ZT_FRAME_HEADER + 1 + a_bytes, b, b_bytes);
    buf = uv_buf_init((char *)s->bytes, (unsigned)(ZT_FRAME_HEADER + 1 + body));
    if (uv_write(&s->req, (uv_stream_t *)&n->out, &buf, 1, on_sent)) {
        free(s);
        zt_node_on_zlaunch_gone(n);
        return;
    }
    if (!n->paused && uv_stream_get_write_queue_size((uv_stream_t *)&n->out) > QUEUE_HIGH)
        zt_output_pause(n, true);
}

/* Takes the reference. */
void zt_node_send_json(struct zt_daemon_node *n, zt_frame_type type, json_t *o)
{
    struct zt_buf body;

    zt_buf_init(&body, ZT_FRAME_MAX - 1);
    if (o && !zt_json_is_short_of_memory() && zt_json_put(&body, o) == ZT_OK)
        zt_node_send(n, type, zt_buf_head(&body), zt_buf_used(&body), NULL, 0);
    else
        cannot_send(n);
    zt_buf_release(&body);
    json_decref(o);
}

static void send_fault(struct zt_daemon_node *n, const char *text, int exit_code)
{
    json_t *o = json_object();

    json_object_set_new(o, "exit_code", json_integer(exit_code));
    json_object_set_new(o, "text", zt_json_text(text, strlen(text)));
    zt_node_send_json(n, ZT_FRAME_FAULT, o);
}

void zt_node_send_fault(struct zt_daemon_node *n, const struct zt_fault *fault)
{
    send_fault(n, fault->text, zt_err_exit_code(fault->code));
}

/* ------------------------------------------------------------------ life and death */

void zt_node_signal(struct zt_daemon_node *n, int sig)
{
    for (int i = 0; i < n->num_started; i++)
        if (n->ranks[i].alive)
            kill(-n->ranks[i].pid, sig);
}

static void kill_all(struct zt_daemon_node *n)
{
    n->has_killed = true;
    zt_node_signal(n, SIGKILL);
    zt_cgroup_kill(&n->cgroup);
    zt_proc_signal_descendants(SIGKILL);
}

/* The grace is over; repeated until nobody is left, for those that were just forking. */
static void on_grace(uv_timer_t *timer)
{
    struct zt_daemon_node *n = timer->data;

    kill_all(n);
    uv_timer_start(timer, on_grace, SWEEP_MS, 0);
    check_end(n);
}

void zt_node_stop(struct zt_daemon_node *n, int sig, int grace_ms)
{
    if (n->state != ZT_NODE_RUNNING && n->state != ZT_NODE_STOPPING &&
        n->state != ZT_NODE_ENDING)
        return;
    if (n->state == ZT_NODE_RUNNING)
        n->state = ZT_NODE_STOPPING;
    n->has_killed = n->has_killed || sig == SIGKILL;
    zt_node_signal(n, sig);
    zt_node_signal(n, SIGCONT); /* a stopped process hears SIGTERM only when it goes on */
    if (!uv_is_active((uv_handle_t *)&n->grace) ||
        uv_timer_get_due_in(&n->grace) > (uint64_t)grace_ms)
        uv_timer_start(&n->grace, on_grace, (uint64_t)grace_ms, 0);
    check_end(n);
}

/* Nothing is left on this node: say so, and leave when that is on its way, or wait for the
 * next start of the job. */
static void finish(struct zt_daemon_node *n)
{
    bool stays = n->job->stay && !n->exit_code && !n->orphaned;

    n->state = stays ? ZT_NODE_IDLE : ZT_NODE_DONE;
    uv_timer_stop(&n->grace);
    zt_shm_files_remove_unused();
    for (int i = 0; i < n->num_started; i++)
        zt_output_close(&n->ranks[i]);
    for (int i = 0; i < n->num_started; i++)
        zt_pmi_socket_close(&n->ranks[i]);
    if (n->orphaned)
        uv_stop(&n->loop);
    else if (stays)
        zt_node_send_json(n, ZT_FRAME_DONE, json_pack("{s:b}", "waits", true));
    else
        zt_node_send(n, ZT_FRAME_DONE, NULL, 0, NULL, 0); /* on_sent() ends the loop */
}

/* After every death: are all ranks reaped, and are there strays? */
static void check_end(struct zt_daemon_node *n)
{
    if (n->num_alive || n->state == ZT_NODE_WAIT_JOB || n->state >= ZT_NODE_IDLE)
        return;
    if (zt_proc_signal_descendants(0) == 0) {
        finish(n);
        return;
    }
    if (n->state == ZT_NODE_ENDING)
        return;
    n->state = ZT_NODE_ENDING;
    zt_proc_signal_descendants(SIGTERM);
    if (!uv_is_active((uv_handle_t *)&n->grace))
        uv_timer_start(&n->grace, on_grace, (uint64_t)n->job->grace_ms, 0);
}

static json_t *tail_json(const struct zt_local_rank *r)
{
    const struct zt_tail *t = &r->source[2].tail;
    json_t *list = json_array();

    if (!t->next) /* nothing on stderr: stdout may have the reason */
        t = &r->source[1].tail;
    for (unsigned i = 0; i < ZT_TAIL_LINES; i++) {
        const char *line = t->line[(t->next + i) % ZT_TAIL_LINES];

        if (line)
            json_array_append_new(list, zt_json_text(line, strlen(line)));
    }
    return list;
}

static void report_exit(struct zt_daemon_node *n, struct zt_local_rank *r, int status)
{
    bool signalled = WIFSIGNALED(status);
    bool by_others = signalled && WTERMSIG(status) == SIGKILL && !n->has_killed;
    int64_t kills =
        signalled && WTERMSIG(status) == SIGKILL ? zt_cgroups_count_oom_kills("") : -1;
    char phase[ZT_PHASE_TEXT];
    json_t *o = json_object();

    zt_phase_read(&n->phases[r->local_rank], phase);
    json_object_set_new(o, "rank", json_integer(r->rank));
    json_object_set_new(o, "pid", json_integer(r->pid));
    if (signalled)
        json_object_set_new(o, "signal", json_integer(WTERMSIG(status)));
    else
        json_object_set_new(o, "code", json_integer(WEXITSTATUS(status)));
    json_object_set_new(o, "stop_requested",
                        json_boolean(n->state != ZT_NODE_RUNNING && !by_others));
    json_object_set_new(o, "phase", zt_json_text(phase, strlen(phase)));
    json_object_set_new(o, "oom", json_boolean(kills > n->oom_kills));
    json_object_set_new(o, "tail", tail_json(r));
    zt_node_send_json(n, ZT_FRAME_EXITED, o);
    if (kills > n->oom_kills)
        n->oom_kills = kills;
}

/* It ended as if all were well, but its peers would wait for it in MPI for ever. */
static void report_no_finalize(struct zt_daemon_node *n, const struct zt_local_rank *r)
{
    struct zt_fault fault = {0};

    n->exit_code = zt_err_exit_code(
        zt_fault_set(&fault, ZT_E_PEER,
                     "rank %d ended with exit code 0 but without MPI_Finalize; the other "
                     "ranks are stopped",
                     r->rank));
    zt_node_send_fault(n, &fault);
}

/* So did this: its plugin, or a library that the plugin uses, has left. */
static void report_unfinished(struct zt_daemon_node *n, const struct zt_local_rank *r)
{
    struct zt_fault fault = {0};
    char phase[ZT_PHASE_TEXT];

    zt_phase_read(&n->phases[r->local_rank], phase);
    n->exit_code =
        zt_err_exit_code(zt_fault_set(&fault, ZT_E_PLUGIN,
                                      "rank %d ended with exit code 0 before its work "
                                      "was done (phase: %s): its plugin, or "
                                      "a library that the plugin uses, has ended the "
                                      "process; a plugin reports errors by "
                                      "what it returns. All ranks are stopped",
                                      r->rank, phase));
    zt_node_send_fault(n, &fault);
}

static void on_rank_exit(struct zt_daemon_node *n, struct zt_local_rank *r, int status)
{
    bool failed, inside, unfinished;
    int abort_code;

    r->alive = false;
    n->num_alive--;
    zt_pmi_socket_drain(r);
    zt_pmi_socket_close(r);
    abort_code = n->pmi ? zt_pmi_abort_code(n->pmi, r->rank) : 0;
    inside = n->pmi && zt_pmi_needs_finalize(n->pmi, r->rank);
    if (abort_code && WIFSIGNALED(status)) /* it was killed because it asked to be */
        status = W_EXITCODE(abort_code, 0);
    failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    unfinished = !failed && zt_phase_is_unfinished(&n->phases[r->local_rank]);
    if (failed || inside || unfinished)
        zt_comm_abort_fd(n->shm_fd, r->rank);
    zt_output_drain(r);
    report_exit(n, r, status);
    if (unfinished && n->state == ZT_NODE_RUNNING)
        report_unfinished(n, r);
    else if (inside && !failed && n->state == ZT_NODE_RUNNING)
        report_no_finalize(n, r);
    if ((failed || inside || unfinished) && n->state == ZT_NODE_RUNNING)
        zt_node_stop(n, SIGTERM, n->job->grace_ms);
}

static struct zt_local_rank *find_rank(struct zt_daemon_node *n, pid_t pid)
{
    for (int i = 0; i < n->num_started; i++)
        if (n->ranks[i].alive && n->ranks[i].pid == pid)
            return &n->ranks[i];
    return NULL;
}

/* Of ranks that ended together those that aborted come last: a library that finds its peer
 * gone aborts (UCX does), and the first end is taken for the cause. */
static void on_sigchld(uv_signal_t *handle, int sig)
{
    struct zt_daemon_node *n = handle->data;
    bool aborts = false;
    int status;
    pid_t pid;

    (void)sig;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        struct zt_local_rank *r = find_rank(n, pid);

        if (r && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) {
            r->abort_status = status;
            aborts = true;
        } else if (r) {
            on_rank_exit(n, r, status);
        }
    }
    for (int i = 0; aborts && i < n->num_started; i++)
        if (n->ranks[i].alive && n->ranks[i].abort_status)
            on_rank_exit(n, &n->ranks[i], n->ranks[i].abort_status);
    check_end(n);
}

static void on_sigterm(uv_signal_t *handle, int sig)
{
    struct zt_daemon_node *n = handle->data;
    char text[128];

    n->exit_code = 128 + sig;
    if (n->state == ZT_NODE_WAIT_JOB || n->state == ZT_NODE_IDLE) {
        uv_stop(&n->loop);
        return;
    }
    snprintf(text, sizeof(text), "the node daemon was asked to stop by %s",
             zt_signal_text(sig));
    send_fault(n, text, n->exit_code);
    zt_node_stop(n, SIGTERM, n->job->grace_ms);
}

/* ------------------------------------------------------------------ the process */

/* Frames on descriptors 0 and 1 move away, so that no rank and no print can touch them.
 */
static zt_err open_channel(struct zt_daemon_node *n, struct zt_fault *fault)
{
    int in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int e;

    if (in < 0 || out < 0 || null < 0 || dup2(null, STDIN_FILENO) < 0 ||
        dup2(null, STDOUT_FILENO) < 0)
        return zt_fault_set(fault, ZT_E_SYSTEM, "control channel: %s", strerror(errno));
    close(null);
    uv_pipe_init(&n->loop, &n->in, 0);
    uv_pipe_init(&n->loop, &n->out, 0);
    n->in.data = n->out.data = n;
    e = uv_pipe_open(&n->in, in);
    if (!e)
        e = uv_pipe_open(&n->out, out);
    if (!e)
        e = uv_read_start((uv_stream_t *)&n->in, zt_node_on_alloc, zt_node_on_read);
    if (e)
        return zt_fault_set(
            fault, ZT_E_SYSTEM,
            "control channel: %s; the daemon is started by zlaunch, not by "
            "hand",
            uv_strerror(e));
    return ZT_OK;
}

static zt_err open_node(struct zt_daemon_node *n, struct zt_fault *fault)
{
    const struct {
        uv_signal_t *handle;
        int sig;
        uv_signal_cb fn;
    } signals[] = {
        {&n->sigchld, SIGCHLD, on_sigchld},
        {&n->sigterm, SIGTERM, on_sigterm},
        {&n->sigint, SIGINT, on_sigterm},
        {&n->sighup, SIGHUP, on_sigterm},
    };
    zt_err rc;
    int e = uv_loop_init(&n->loop);

    if (e)
        return zt_fault_set(fault, ZT_E_SYSTEM, "event loop: %s", uv_strerror(e));
    n->shm_fd = n->state_fd = n->secret_fd = n->cgroup.dir_fd = n->cgroup.procs_fd = -1;
    zt_buf_init(&n->frames, 2 * ZT_FRAME_MAX);
    for (size_t i = 0; !e && i < sizeof(signals) / sizeof(*signals); i++) {
        e = uv_signal_init(&n->loop, signals[i].handle);
        signals[i].handle->data = n;
        if (!e)
            e = uv_signal_start(signals[i].handle, signals[i].fn, signals[i].sig);
    }
    if (e)
        return zt_fault_set(fault, ZT_E_SYSTEM, "signals: %s", uv_strerror(e));
    uv_timer_init(&n->loop, &n->grace);
    uv_timer_init(&n->loop, &n->heartbeat);
    n->grace.data = n->heartbeat.data = n;
    rc = open_channel(n, fault);
    if (rc)
        return rc;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_NAME, "zworker-daemon");
    return ZT_OK;
}

static void on_walk_close(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void close_node(struct zt_daemon_node *n)
{
    for (int i = 0; i < n->num_started; i++)
        zt_output_close(&n->ranks[i]);
    for (int i = 0; i < n->num_started; i++)
        zt_pmi_socket_close(&n->ranks[i]);
    zt_links_close(n->links);
    uv_walk(&n->loop, on_walk_close, NULL);
    uv_run(&n->loop, UV_RUN_DEFAULT);
    uv_loop_close(&n->loop);
    zt_node_release_job(n);
    zt_node_release_replicas(n);
    zt_cgroup_close(&n->cgroup);
    zt_buf_release(&n->frames);
}

int zt_daemon_main(int argc, char **argv)
{
    struct zt_daemon_node node = {0};
    struct zt_fault fault = {0};
    char network[ZT_LINKS_NETWORK];
    json_t *hello;
    int code;

    if (argc > 1 && strcmp(argv[1], "--guard") == 0 && !zt_guard_fork(&code))
        return code;
    signal(SIGPIPE, SIG_IGN);
    zt_json_watch_memory();
    if (open_node(&node, &fault)) {
        zt_error("daemon", "%s", fault.text);
        return zt_err_exit_code(fault.code);
    }
    hello = json_object();
    json_object_set_new(hello, "protocol", json_integer(ZT_PROTOCOL));
    json_object_set_new(hello, "version", json_string(ZT_VERSION));
    json_object_set_new(hello, "pid", json_integer(getpid()));
    zt_links_network(network);
    json_object_set_new(hello, "network", json_string(network));
    json_object_set_new(hello, "mpi", json_boolean(zt_transport_mpi_is_built()));
    zt_node_send_json(&node, ZT_FRAME_HELLO, hello);
    node.heard_s = node.heartbeat_s = zt_now();
    uv_timer_start(&node.heartbeat, zt_node_on_heartbeat, ZT_HEARTBEAT_MS,
                   ZT_HEARTBEAT_MS);
    uv_run(&node.loop, UV_RUN_DEFAULT);
    close_node(&node);
    return node.exit_code;
}
