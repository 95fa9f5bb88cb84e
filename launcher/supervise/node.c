/* One node: its channel, the frames it sends, and the check that it is alive. */
#include "launcher/supervise/private.h"

#include "common/json/line.h"
#include "launcher/start/start.h"

#include <stdlib.h>
#include <string.h>

const char *zt_sup_node_label(const struct zt_sup_node *node, char out[ZT_NODE_NAME])
{
    out[0] = 0;
    if (node->sup->plan->num_nodes > 1 ||
        node->sup->plan->nodes[node->index].starter != &zt_starter_local)
        snprintf(out, ZT_NODE_NAME, "%s: ", node->sup->plan->nodes[node->index].host);
    return out;
}

void zt_sup_node_enter(struct zt_sup_node *node, zt_sup_node_state state)
{
    node->sup->num_in[node->state]--;
    node->sup->num_in[state]++;
    node->state = state;
}

/* ------------------------------------------------------------------ to the daemon */

/* A frame that does not exist cannot be waited for: the job ends. */
static void cannot_send(struct zt_sup_node *node, zt_err rc)
{
    if (!node->channel || node->malformed)
        return;
    node->malformed = true;
    if (rc == ZT_E_LIMIT) /* of what is sent the words of the command alone can be long */
        zt_sup_node_failed(
            node->sup, node, zt_err_exit_code(ZT_E_USAGE),
            "the words of the command are longer than 1 MiB, the most that "
            "a node daemon is told: name fewer files");
    else
        zt_sup_node_failed(node->sup, node, zt_err_exit_code(ZT_E_NOMEM),
                           "no memory for what its node daemon has to know");
    zt_sup_node_close(node);
}

void zt_sup_node_send_bytes(struct zt_sup_node *node, zt_frame_type type,
                            const void *body, size_t n)
{
    struct zt_buf frame;
    zt_err rc;

    zt_buf_init(&frame, ZT_FRAME_MAX + ZT_FRAME_HEADER);
    rc = zt_frame_put(&frame, type, body, n);
    if (rc)
        cannot_send(node, rc);
    else if (node->channel)
        node->channel->ops->write(node->channel, zt_buf_head(&frame),
                                  zt_buf_used(&frame));
    zt_buf_release(&frame);
}

void zt_sup_node_send(struct zt_sup_node *node, zt_frame_type type, json_t *o)
{
    struct zt_buf body;
    zt_err rc = zt_json_is_short_of_memory() ? ZT_E_NOMEM : ZT_OK;

    zt_buf_init(&body, ZT_FRAME_MAX - 1);
    if (!rc && o)
        rc = zt_json_put(&body, o);
    if (!rc)
        zt_sup_node_send_bytes(node, type, o ? zt_buf_head(&body) : NULL,
                               zt_buf_used(&body));
    else
        cannot_send(node, rc);
    zt_buf_release(&body);
    json_decref(o);
}

void zt_sup_node_pause(struct zt_sup_node *node, bool pause)
{
    if (!node->channel)
        return;
    node->heard_s = zt_now();
    node->channel->ops->pause(node->channel, pause);
}

void zt_sup_node_close(struct zt_sup_node *node)
{
    if (node->channel)
        node->channel->ops->close(node->channel);
}

/* ------------------------------------------------------------------ from the daemon */

static struct zt_rank_note *note_of(struct zt_sup_node *node, int64_t rank)
{
    const struct zt_supervisor *s = node->sup;
    int first = s->group.first_rank[node->index];

    if (node->state != NODE_RUNNING || rank < first ||
        rank >= first + s->plan->nodes[node->index].num_slots ||
        rank >= s->notes.num_ranks)
        return NULL;
    return &s->notes.ranks[rank];
}

static void check_version(struct zt_sup_node *node, const char *version)
{
    char front[ZT_NODE_NAME];

    if (strcmp(version, ZT_VERSION) != 0)
        zt_render_message(node->sup->render, ZT_LOG_WARN,
                          "%szworker there is version %.40s, this zlaunch %s",
                          zt_sup_node_label(node, front), version, ZT_VERSION);
}

static void on_hello(struct zt_sup_node *node, const struct zt_frame *f)
{
    json_t *o = zt_json_object(f->body, f->body_bytes);
    int64_t protocol = zt_json_get_int(o, "protocol", 0);
    char text[512];

    if (protocol != ZT_PROTOCOL) {
        snprintf(text, sizeof(text),
                 "zworker %.40s speaks protocol %lld, this zlaunch %s %d: install the "
                 "same version on both",
                 zt_json_get_text(o, "version", "?"), (long long)protocol, ZT_VERSION,
                 ZT_PROTOCOL);
        zt_sup_node_failed(node->sup, node, 78, text);
        zt_sup_node_close(node);
    } else if (node->state == NODE_STARTING) {
        check_version(node, zt_json_get_text(o, "version", "?"));
        zt_sup_node_enter(node, NODE_READY);
        node->has_mpi = json_is_true(json_object_get(o, "mpi"));
        snprintf(node->network, sizeof(node->network), "%s",
                 zt_json_get_text(o, "network", ""));
        zt_sup_advance(node->sup);
    }
    json_decref(o);
}

static void on_started(struct zt_sup_node *node, const struct zt_frame *f)
{
    struct zt_supervisor *s = node->sup;
    json_t *o = zt_json_object(f->body, f->body_bytes);
    struct zt_rank_note *note = note_of(node, zt_json_get_int(o, "rank", -1));
    char front[ZT_NODE_NAME];

    if (note) {
        note->started = true;
        note->pid = (pid_t)zt_json_get_int(o, "pid", 0);
        if (s->verbose)
            zt_render_message(s->render, ZT_LOG_INFO, "%srank %d runs as pid %d",
                              zt_sup_node_label(node, front), note->rank, (int)note->pid);
        json_object_set_new(o, "event", json_string("started"));
        if (s->plan->num_nodes > 1)
            json_object_set_new(o, "host", json_string(s->plan->nodes[node->index].host));
        zt_render_record(s->render, o);
        zt_sup_ctl_started(s);
    }
    json_decref(o);
}

/* Nobody reads what zlaunch prints, and the job must end: see zt_sup_flush_screen(). */
static bool drops_output(const struct zt_supervisor *s)
{
    return s->stops && zt_render_pending_bytes(s->render) > ZT_SCREEN_HIGH;
}

static void on_output(struct zt_sup_node *node, const struct zt_frame *f)
{
    struct zt_supervisor *s = node->sup;

    if (f->body_bytes < 5 || drops_output(s))
        return;
    zt_render_output(s->render, (int)zt_get_u32(f->body), f->body[4],
                     (const char *)f->body + 5, f->body_bytes - 5);
}

static void on_logged(struct zt_sup_node *node, const struct zt_frame *f)
{
    struct zt_supervisor *s = node->sup;

    if (f->body_bytes < 4 || drops_output(s))
        return;
    zt_render_log(s->render, (int)zt_get_u32(f->body), (const char *)f->body + 4,
                  f->body_bytes - 4);
}

static void on_log_lost(struct zt_sup_node *node, const struct zt_frame *f)
{
    struct zt_rank_note *note =
        f->body_bytes == 4 ? note_of(node, zt_get_u32(f->body)) : NULL;

    if (note)
        note->log_is_lost = node->sup->log_is_lost = true;
}

static void on_relay(struct zt_sup_node *node, const struct zt_frame *f)
{
    struct zt_supervisor *s = node->sup;
    struct zt_rank_note *note;
    json_t *o;

    if (f->body_bytes < 4)
        return;
    o = zt_json_object(f->body + 4, f->body_bytes - 4);
    note = note_of(node, zt_get_u32(f->body));
    if (o && note && !zt_sup_note_checkpoint(s, o) &&
        !zt_sup_ctl_event(s, note->rank, o)) {
        bool fail = strcmp(zt_json_get_text(o, "event", ""), "fail") == 0;

        if (fail && !note->fail)
            note->fail = json_incref(o);
        s->progress_s = zt_now();
        if (fail || !s->plan->log_dir || note->log_is_lost) /* else it is in its file */
            zt_render_event(s->render, note->rank, o);
        zt_sup_input_event(node, note->rank, o);
    }
    json_decref(o);
}

static void on_exited(struct zt_sup_node *node, const struct zt_frame *f)
{
    struct zt_supervisor *s = node->sup;
    json_t *o = zt_json_object(f->body, f->body_bytes);
    struct zt_rank_note *note = note_of(node, zt_json_get_int(o, "rank", -1));

    if (note && !note->exited) {
        note->exited = true;
        note->order = s->notes.num_exited++;
        note->time_s = zt_now();
        note->signal = (int)zt_json_get_int(o, "signal", 0);
        note->code = (int)zt_json_get_int(o, "code", 0);
        note->stop_requested = json_is_true(json_object_get(o, "stop_requested"));
        note->oom = json_is_true(json_object_get(o, "oom"));
        note->phase = json_incref(json_object_get(o, "phase"));
        note->tail = json_incref(json_object_get(o, "tail"));
        json_object_set_new(o, "event", json_string("exited"));
        if (note->host)
            json_object_set_new(o, "host", json_string(note->host));
        zt_render_record(s->render, o);
        if ((note->code || note->signal) && !note->stop_requested)
            zt_sup_stop(s, SIGTERM, s->plan->grace_ms);
    }
    json_decref(o);
}

static void on_fault(struct zt_sup_node *node, const struct zt_frame *f)
{
    json_t *o = zt_json_object(f->body, f->body_bytes);

    zt_sup_node_failed(node->sup, node, (int)zt_json_get_int(o, "exit_code", 71),
                       zt_json_get_text(o, "text", "the node daemon failed"));
    json_decref(o);
}

static void on_done(struct zt_sup_node *node, const struct zt_frame *f)
{
    json_t *o = zt_json_object(f->body, f->body_bytes);

    if (node->state == NODE_RUNNING) {
        node->stayed = json_is_true(json_object_get(o, "waits"));
        zt_sup_node_enter(node, node->stayed ? NODE_IDLE : NODE_DONE);
    }
    json_decref(o);
    zt_sup_advance(node->sup);
}

/* The body is a digest that changes when ranks make progress. */
static void on_heartbeat(struct zt_sup_node *node, const struct zt_frame *f)
{
    uint32_t digest = f->body_bytes >= 4 ? zt_get_u32(f->body) : 0;

    if (digest != node->digest)
        node->sup->progress_s = zt_now();
    node->digest = digest;
}

static void on_inspected(struct zt_sup_node *node, const struct zt_frame *f)
{
    json_t *o = zt_json_object(f->body, f->body_bytes);

    if (note_of(node, zt_json_get_int(o, "rank", -1)))
        zt_sup_inspected(node->sup, o);
    json_decref(o);
}

static void on_pmi_pairs(struct zt_sup_node *node, const struct zt_frame *f)
{
    zt_sup_pmi_pairs(node, f);
}

static void on_pmi_fence(struct zt_sup_node *node, const struct zt_frame *f)
{
    (void)f;
    zt_sup_pmi_fence(node);
}

static const struct {
    zt_frame_type type;
    void (*handle)(struct zt_sup_node *node, const struct zt_frame *f);
} handlers[] = {
    {ZT_FRAME_HELLO, on_hello},
    {ZT_FRAME_STARTED, on_started},
    {ZT_FRAME_OUTPUT, on_output},
    {ZT_FRAME_LOGGED, on_logged},
    {ZT_FRAME_LOG_LOST, on_log_lost},
    {ZT_FRAME_RELAY, on_relay},
    {ZT_FRAME_EXITED, on_exited},
    {ZT_FRAME_FAULT, on_fault},
    {ZT_FRAME_DONE, on_done},
    {ZT_FRAME_INSPECTED, on_inspected},
    {ZT_FRAME_HEARTBEAT, on_heartbeat},
    {ZT_FRAME_LINKS_HERE, zt_preflight_on_here},
    {ZT_FRAME_LINKS_FOUND, zt_preflight_on_found},
    {ZT_FRAME_PMI_PAIRS, on_pmi_pairs},
    {ZT_FRAME_PMI_FENCE, on_pmi_fence},
};

/* What a frame says must not be half understood: a rank that is not known to run, or to have
 * ended, is neither waited for nor started again. */
static zt_err handle(struct zt_sup_node *node, const struct zt_frame *f,
                     struct zt_fault *fault)
{
    (void)zt_json_is_short_of_memory(); /* of before */
    for (size_t i = 0; i < sizeof(handlers) / sizeof(*handlers); i++)
        if (handlers[i].type == f->type)
            handlers[i].handle(node, f);
    return zt_json_is_short_of_memory()
               ? zt_fault_set(fault, ZT_E_NOMEM,
                              "no memory for what its node daemon says")
               : ZT_OK;
}

/* ------------------------------------------------------------------ the channel */

static void on_up(void *ctx)
{
    struct zt_sup_node *node = ctx;

    node->is_up = true; /* from now on HELLO is waited for */
    node->heard_s = zt_now();
}

static void on_bytes(void *ctx, const void *data, size_t n)
{
    struct zt_sup_node *node = ctx;
    struct zt_fault fault = {0};
    struct zt_frame f;
    zt_err rc;

    node->heard_s = zt_now();
    if (node->malformed)
        return;
    rc = zt_buf_put(&node->in, data, n);
    if (rc)
        zt_fault_set(&fault, rc, "no memory for what its node daemon says");
    while (!rc && (rc = zt_frame_peek(&node->in, &f, &fault)) == ZT_OK) {
        rc = handle(node, &f, &fault);
        zt_frame_drop(&node->in, &f);
    }
    if (rc != ZT_E_SHORT) {
        node->malformed = true;
        zt_sup_node_failed(node->sup, node, 71, fault.text);
        zt_sup_node_close(node);
    }
    zt_sup_flush_screen(node->sup);
}

static void on_note(void *ctx, const char *line)
{
    struct zt_sup_node *node = ctx;
    char front[ZT_NODE_NAME];

    zt_render_message(node->sup->render, ZT_LOG_INFO, "%s%s",
                      zt_sup_node_label(node, front), line);
}

static void on_down(void *ctx, const struct zt_fault *why)
{
    struct zt_sup_node *node = ctx;
    struct zt_supervisor *s = node->sup;
    bool left_nothing = node->state == NODE_DONE || node->state == NODE_IDLE;
    int code = node->channel->exit_code;
    char text[ZT_FAULT_TEXT + 64];

    if (!code && node->state == NODE_STARTING && (!why || why->code == ZT_E_SYSTEM))
        code = zt_err_exit_code(ZT_E_HOST); /* whatever failed, that is what it means */
    else if (!code)
        code = zt_err_exit_code(why ? why->code : ZT_E_SYSTEM);
    snprintf(text, sizeof(text), "%s%s", why ? why->text : "the node daemon ended early",
             node->state == NODE_RUNNING ? "; its ranks were stopped" : "");
    node->channel = NULL;
    node->stayed = false;
    s->unclean = s->unclean || !left_nothing;
    if (!left_nothing)
        zt_sup_node_failed(s, node, code, text);
    zt_sup_node_enter(node, NODE_OFF);
    zt_sup_advance(s);
    zt_sup_flush_screen(s);
}

static const struct zt_channel_events events = {
    .on_up = on_up, .on_bytes = on_bytes, .on_note = on_note, .on_down = on_down};

zt_err zt_sup_node_start(struct zt_sup_node *node, struct zt_fault *fault)
{
    const struct zt_job_plan *p = node->sup->plan;
    const struct zt_job_plan_node *n = &p->nodes[node->index];
    bool local = n->starter == &zt_starter_local;
    zt_err rc;

    zt_buf_release(&node->in);
    zt_buf_init(&node->in, 2 * ZT_FRAME_MAX);
    node->malformed = node->loss_noted = node->is_up = false;
    node->digest = 0;
    node->rq = (struct zt_start_request){
        .host = n->host,
        .user = n->user,
        .port = n->port ? n->port : p->ssh.port,
        .node_rank = node->index,
        .zworker = local ? p->zworker : p->launch->zworker,
        .cwd = local ? NULL : p->cwd,
        .env = local ? p->named : p->forward,
        .ssh = &p->ssh,
        .timeout_s = p->launch->connect_timeout_s,
    };
    rc = n->starter->start(&node->rq, &node->sup->loop, &events, node, &node->channel,
                           fault);
    if (rc)
        return rc;
    zt_sup_node_enter(node, NODE_STARTING);
    node->heard_s = zt_now();
    return ZT_OK;
}

/* How long the node may say nothing; called when it has been silent for a moment. */
static double silence_limit_s(const struct zt_sup_node *node)
{
    struct zt_channel *c = node->channel;
    double limit = ZT_SILENCE_MS / 1000.0;

    if (node->state == NODE_STARTING) /* the program is being loaded */
        limit = node->rq.timeout_s > limit ? node->rq.timeout_s : limit;
    else if (c->ops->lives && c->ops->lives(c))
        limit = ZT_SILENCE_SEEN_MS / 1000.0;
    return limit;
}

void zt_sup_node_check_silence(struct zt_sup_node *node, double now)
{
    double limit;
    char text[256];

    if (!(node->state == NODE_STARTING && node->is_up) && node->state != NODE_READY &&
        node->state != NODE_RUNNING && node->state != NODE_IDLE)
        return;
    if (!node->channel || now - node->heard_s < ZT_SILENCE_MS / 1000.0)
        return;
    limit = silence_limit_s(node);
    if (now - node->heard_s < limit)
        return;
    if (node->state == NODE_IDLE) { /* the next start begins with a new daemon */
        zt_sup_node_close(node);
        return;
    }
    snprintf(text, sizeof(text),
             node->state == NODE_STARTING
                 ? "the node daemon was started and has said nothing for %g s"
                 : "the node has been silent for %g s: it is down, cut off, or stopped",
             limit);
    zt_sup_node_failed(node->sup, node, zt_err_exit_code(ZT_E_HOST), text);
    zt_sup_node_close(node);
}
