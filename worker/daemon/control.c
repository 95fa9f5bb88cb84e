/* control.c -- the frames that zlaunch sends, and whether it is still there. */
#include "worker/daemon/node.h"

#include "common/json/line.h"
#include "common/log.h"
#include "common/process/cgroups.h"
#include "worker/daemon/inspect.h"

#include <signal.h>
#include <string.h>

#define WAITING (1u << ZT_NODE_WAIT_JOB | 1u << ZT_NODE_IDLE)

static zt_err on_job(struct zt_daemon_node *n, const struct zt_frame *f,
                     struct zt_fault *fault)
{
    zt_err rc;

    /* Of the attempt before. Its handles were closed in the turn of the loop that said
     * DONE, which this frame answers. */
    zt_node_release_job(n);
    rc = zt_job_open(f->body, f->body_bytes, &n->job, fault);
    zt_links_close(n->links);
    n->links = NULL;
    if (rc)
        return rc;
    n->oom_kills = zt_cgroups_count_oom_kills("");
    n->state = ZT_NODE_RUNNING;
    rc = zt_node_start_job(n, fault);
    if (rc) { /* those that did start are stopped like any others */
        zt_node_send_fault(n, fault);
        n->exit_code = zt_err_exit_code(rc);
        zt_node_stop(n, SIGKILL, 0);
    }
    return ZT_OK;
}

/* {"signal": N, ...}; 0 when it is none. */
static int signal_of(const json_t *o)
{
    int64_t sig = zt_json_get_int(o, "signal", 0);

    return sig > 0 && sig < NSIG ? (int)sig : 0;
}

static zt_err on_stop(struct zt_daemon_node *n, const struct zt_frame *f,
                      struct zt_fault *fault)
{
    json_t *o = zt_json_object(f->body, f->body_bytes);
    int sig = signal_of(o);
    int64_t grace = zt_json_get_int(o, "grace_ms", -1);

    json_decref(o);
    if (!sig || grace < 0 || grace > ZT_GRACE_MAX_MS)
        return zt_fault_set(fault, ZT_E_FORMAT, "STOP frame: no signal or no grace_ms");
    zt_node_stop(n, sig, (int)grace);
    return ZT_OK;
}

static zt_err on_signal(struct zt_daemon_node *n, const struct zt_frame *f,
                        struct zt_fault *fault)
{
    json_t *o = zt_json_object(f->body, f->body_bytes);
    int sig = signal_of(o);

    json_decref(o);
    if (!sig)
        return zt_fault_set(fault, ZT_E_FORMAT, "SIGNAL frame: no signal");
    zt_node_signal(n, sig);
    return ZT_OK;
}

static zt_err on_end(struct zt_daemon_node *n, const struct zt_frame *f,
                     struct zt_fault *fault)
{
    (void)f;
    (void)fault;
    uv_stop(&n->loop);
    return ZT_OK;
}

/* That it came is what counts: see on_read(). */
static zt_err on_ping(struct zt_daemon_node *n, const struct zt_frame *f,
                      struct zt_fault *fault)
{
    (void)n;
    (void)f;
    (void)fault;
    return ZT_OK;
}

/* The answer of a rank that does not listen. */
static void answer_for_rank(struct zt_daemon_node *n, const struct zt_local_rank *r,
                            int64_t id)
{
    json_t *o = json_object();
    struct zt_buf body;
    uint8_t head[4];

    json_object_set_new(o, "event", json_string("answer"));
    json_object_set_new(o, "id", json_integer(id));
    json_object_set_new(o, "ok", json_false());
    json_object_set_new(o, "text", json_string("the rank does not listen"));
    zt_buf_init(&body, ZT_FRAME_MAX - 1);
    zt_set_u32(head, (uint32_t)r->rank);
    if (zt_json_put(&body, o) == ZT_OK)
        zt_node_send(n, ZT_FRAME_RELAY, head, sizeof(head), zt_buf_head(&body),
                     zt_buf_used(&body));
    zt_buf_release(&body);
    json_decref(o);
}

static zt_err on_inspect(struct zt_daemon_node *n, const struct zt_frame *f,
                         struct zt_fault *fault)
{
    (void)f;
    (void)fault;
    for (int i = 0; i < n->num_started; i++)
        if (n->ranks[i].alive)
            zt_node_send_json(
                n, ZT_FRAME_INSPECTED,
                zt_inspect_rank(n->ranks[i].rank, n->ranks[i].pid, &n->phases[i]));
    return ZT_OK;
}

/* Handed on as it is; a rank that cannot take it has that said for it. */
static zt_err on_request(struct zt_daemon_node *n, const struct zt_frame *f,
                         struct zt_fault *fault)
{
    json_t *o = zt_json_object(f->body, f->body_bytes);
    int64_t id = zt_json_get_int(o, "id", 0);

    json_decref(o);
    if (id <= 0)
        return zt_fault_set(fault, ZT_E_FORMAT, "REQUEST frame: no id");
    for (int i = 0; i < n->num_started; i++)
        if (n->ranks[i].alive &&
            !zt_output_send(&n->ranks[i], ZT_FRAME_REQUEST, f->body, f->body_bytes))
            answer_for_rank(n, &n->ranks[i], id);
    return ZT_OK;
}

/* For the one rank that has asked. One that has ended meanwhile needs it no more; one that lives
 * has room for a line, and would wait for it for ever. */
static zt_err on_input(struct zt_daemon_node *n, const struct zt_frame *f,
                       struct zt_fault *fault)
{
    int64_t i;

    if (f->body_bytes < 5)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "INPUT frame: no rank, or nothing for it");
    i = (int64_t)zt_get_u32(f->body) - (n->job ? n->job->first_rank : 0);
    if (i < 0 || i >= n->num_started || !n->ranks[i].alive)
        return ZT_OK;
    return zt_output_send(&n->ranks[i], ZT_FRAME_INPUT, f->body + 4, f->body_bytes - 4)
               ? ZT_OK
               : zt_fault_set(fault, ZT_E_SYSTEM, "rank %d takes no line of input",
                              n->ranks[i].rank);
}

static zt_err on_pmi_pairs(struct zt_daemon_node *n, const struct zt_frame *f,
                           struct zt_fault *fault)
{
    return n->pmi ? zt_pmi_merge(n->pmi, (const char *)f->body, f->body_bytes, fault)
                  : ZT_OK;
}

static zt_err on_pmi_fence(struct zt_daemon_node *n, const struct zt_frame *f,
                           struct zt_fault *fault)
{
    (void)f;
    return n->pmi ? zt_pmi_release(n->pmi, fault) : ZT_OK;
}

static zt_err on_links(struct zt_daemon_node *n, const struct zt_frame *f,
                       struct zt_fault *fault)
{
    zt_err rc = n->links ? ZT_OK : zt_links_open(&n->loop, &n->links, fault);

    (void)f;
    if (!rc)
        zt_node_send_json(n, ZT_FRAME_LINKS_HERE, zt_links_describe(n->links));
    return rc;
}

static void on_links_found(void *ctx, json_t *found)
{
    zt_node_send_json(ctx, ZT_FRAME_LINKS_FOUND, found);
}

static zt_err on_links_try(struct zt_daemon_node *n, const struct zt_frame *f,
                           struct zt_fault *fault)
{
    if (!n->links)
        return zt_fault_set(fault, ZT_E_FORMAT, "LINKS_TRY frame: before LINKS");
    return zt_links_try(n->links, f->body, f->body_bytes, on_links_found, n, fault);
}

/* Which frame may come in which states; any other ends the conversation. */
static const struct {
    zt_frame_type type;
    unsigned states; /* bit set of zt_node_state */
    zt_err (*handle)(struct zt_daemon_node *n, const struct zt_frame *f,
                     struct zt_fault *fault);
} handlers[] = {
    {ZT_FRAME_JOB, WAITING, on_job},
    {ZT_FRAME_END, 1u << ZT_NODE_IDLE, on_end},
    {ZT_FRAME_STOP, ~0u, on_stop},
    {ZT_FRAME_LINKS, WAITING, on_links},
    {ZT_FRAME_LINKS_TRY, WAITING, on_links_try},
    {ZT_FRAME_SIGNAL, ~0u, on_signal},
    {ZT_FRAME_PING, ~0u, on_ping},
    {ZT_FRAME_INSPECT, ~0u, on_inspect},
    {ZT_FRAME_REQUEST, ~0u, on_request},
    {ZT_FRAME_INPUT, ~0u, on_input},
    {ZT_FRAME_PMI_PAIRS, ~0u, on_pmi_pairs},
    {ZT_FRAME_PMI_FENCE, ~0u, on_pmi_fence},
};

static zt_err dispatch(struct zt_daemon_node *n, const struct zt_frame *f,
                       struct zt_fault *fault)
{
    for (size_t i = 0; i < sizeof(handlers) / sizeof(*handlers); i++)
        if (handlers[i].type == f->type && handlers[i].states >> n->state & 1)
            return handlers[i].handle(n, f, fault);
    return zt_fault_set(fault, ZT_E_FORMAT, "unexpected frame of type %d", f->type);
}

void zt_node_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char block[65536]; /* the loop's own: one read at a time */

    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(block, sizeof(block));
}

void zt_node_on_read(uv_stream_t *stream, ssize_t k, const uv_buf_t *buf)
{
    struct zt_daemon_node *n = stream->data;
    struct zt_fault fault = {0};
    struct zt_frame f;
    zt_err rc;

    if (k == 0)
        return;
    if (k < 0) {
        uv_read_stop(stream);
        zt_node_on_zlaunch_gone(n);
        return;
    }
    n->heard_s = zt_now();
    rc = zt_buf_put(&n->frames, buf->base, (size_t)k);
    if (rc)
        zt_fault_set(&fault, rc, "no memory for what zlaunch says");
    while (!rc && (rc = zt_frame_peek(&n->frames, &f, &fault)) == ZT_OK) {
        rc = dispatch(n, &f, &fault);
        zt_frame_drop(&n->frames, &f);
    }
    if (rc && rc != ZT_E_SHORT) {
        zt_error("daemon", "%s", fault.text);
        zt_node_send_fault(n, &fault);
        uv_read_stop(stream);
        n->exit_code = zt_err_exit_code(rc);
        zt_node_on_zlaunch_gone(n);
    }
}

/* What the ranks' phase pages hold: it changes while they go on. Of a program nothing is known
 * but what it prints. */
static uint32_t digest_of(const struct zt_daemon_node *n)
{
    const uint8_t *p = (const uint8_t *)n->phases;
    bool is_plugin = n->job && n->job->hold_user_signals;
    uint32_t h = is_plugin ? 2166136261u : 2166136261u ^ (uint32_t)n->printed_bytes;

    for (size_t i = 0; p && i < n->phases_bytes; i++)
        h = (h ^ p[i]) * 16777619u;
    return h;
}

/* Say that this node lives, and ask whether zlaunch does. Time in which this process
 * itself stood still does not count. */
void zt_node_on_heartbeat(uv_timer_t *timer)
{
    struct zt_daemon_node *n = timer->data;
    double now = zt_now();
    uint8_t digest[4];

    if (now - n->heartbeat_s > 2 * ZT_HEARTBEAT_MS / 1000.0)
        n->heard_s = now;
    n->heartbeat_s = now;
    zt_set_u32(digest, digest_of(n));
    zt_node_send(n, ZT_FRAME_HEARTBEAT, digest, sizeof(digest), NULL, 0);
    if (n->job && n->job->silence_ms && !n->orphaned &&
        now - n->heard_s > n->job->silence_ms / 1000.0) {
        zt_error("daemon", "zlaunch has been silent for %d ms; stopping the ranks",
                 n->job->silence_ms);
        n->exit_code = zt_err_exit_code(ZT_E_HOST);
        zt_node_on_zlaunch_gone(n);
    }
}
