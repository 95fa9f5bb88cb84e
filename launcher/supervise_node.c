/* One node: its channel, the frames on it, and whether it is still there. */
#include "launcher/supervise_private.h"

#include "common/jsonline.h"
#include "launcher/start.h"

#include <stdlib.h>
#include <string.h>

const char *zt_member_front(const struct zt_member *m, char out[ZT_NODE_NAME])
{
    out[0] = 0;
    if (m->sup->plan->num_nodes > 1 ||
        m->sup->plan->nodes[m->index].starter != &zt_starter_local)
        snprintf(out, ZT_NODE_NAME, "%s: ", m->sup->plan->nodes[m->index].host);
    return out;
}

void zt_member_enter(struct zt_member *m, zt_member_state state)
{
    m->sup->num_in[m->state]--;
    m->sup->num_in[state]++;
    m->state = state;
}

/* ------------------------------------------------------------------ to the daemon */

void zt_member_send_bytes(struct zt_member *m, zt_frame_type type, const void *body,
                          size_t n)
{
    struct zt_buf frame;

    zt_buf_init(&frame, ZT_FRAME_MAX + ZT_FRAME_HEADER);
    if (m->channel && zt_frame_put(&frame, type, body, n) == ZT_OK)
        m->channel->ops->write(m->channel, zt_buf_head(&frame), zt_buf_used(&frame));
    zt_buf_release(&frame);
}

void zt_member_send(struct zt_member *m, zt_frame_type type, json_t *o)
{
    struct zt_buf body;

    zt_buf_init(&body, ZT_FRAME_MAX - 1);
    if (!o || zt_json_put(&body, o) == ZT_OK)
        zt_member_send_bytes(m, type, o ? zt_buf_head(&body) : NULL, zt_buf_used(&body));
    zt_buf_release(&body);
    json_decref(o);
}

void zt_member_pause(struct zt_member *m, bool pause)
{
    if (!m->channel)
        return;
    m->heard_s = zt_now();
    m->channel->ops->pause(m->channel, pause);
}

void zt_member_close(struct zt_member *m)
{
    if (m->channel)
        m->channel->ops->close(m->channel);
}

/* ------------------------------------------------------------------ from the daemon */

static struct zt_rank_note *note_of(struct zt_member *m, int64_t rank)
{
    const struct zt_sup *s = m->sup;
    int first = s->group.first_rank[m->index];

    if (m->state != MEMBER_RUNNING || rank < first ||
        rank >= first + s->plan->nodes[m->index].num_slots || rank >= s->notes.num_ranks)
        return NULL;
    return &s->notes.ranks[rank];
}

static void check_version(struct zt_member *m, const char *version)
{
    char front[ZT_NODE_NAME];

    if (strcmp(version, ZT_VERSION) != 0)
        zt_render_message(m->sup->render, ZT_LOG_WARN,
                          "%szworker there is version %.40s, this zlaunch %s",
                          zt_member_front(m, front), version, ZT_VERSION);
}

static void on_hello(struct zt_member *m, const struct zt_frame *f)
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
        zt_sup_node_failed(m->sup, m, 78, text);
        zt_member_close(m);
    } else if (m->state == MEMBER_STARTING) {
        check_version(m, zt_json_get_text(o, "version", "?"));
        zt_member_enter(m, MEMBER_READY);
        snprintf(m->network, sizeof(m->network), "%s",
                 zt_json_get_text(o, "network", ""));
        zt_sup_step(m->sup);
    }
    json_decref(o);
}

static void on_started(struct zt_member *m, const struct zt_frame *f)
{
    struct zt_sup *s = m->sup;
    json_t *o = zt_json_object(f->body, f->body_bytes);
    struct zt_rank_note *note = note_of(m, zt_json_get_int(o, "rank", -1));
    char front[ZT_NODE_NAME];

    if (note) {
        note->started = true;
        note->pid = (pid_t)zt_json_get_int(o, "pid", 0);
        if (s->verbose)
            zt_render_message(s->render, ZT_LOG_INFO, "%srank %d runs as pid %d",
                              zt_member_front(m, front), note->rank, (int)note->pid);
        json_object_set_new(o, "event", json_string("started"));
        if (s->plan->num_nodes > 1)
            json_object_set_new(o, "host", json_string(s->plan->nodes[m->index].host));
        zt_render_record(s->render, o);
        zt_sup_ctl_started(s);
    }
    json_decref(o);
}

static void on_output(struct zt_member *m, const struct zt_frame *f)
{
    struct zt_sup *s = m->sup;

    if (f->body_bytes < 5)
        return;
    if (s->stops && zt_render_pending_bytes(s->render) > ZT_SCREEN_HIGH)
        return; /* nobody reads, and the job must end: see zt_sup_pump() */
    zt_render_output(s->render, (int)zt_get_u32(f->body), f->body[4],
                     (const char *)f->body + 5, f->body_bytes - 5);
}

static void on_relay(struct zt_member *m, const struct zt_frame *f)
{
    struct zt_sup *s = m->sup;
    struct zt_rank_note *note;
    json_t *o;

    if (f->body_bytes < 4)
        return;
    o = zt_json_object(f->body + 4, f->body_bytes - 4);
    note = note_of(m, zt_get_u32(f->body));
    if (o && note && !zt_sup_ctl_event(s, note->rank, o)) {
        if (strcmp(zt_json_get_text(o, "event", ""), "fail") == 0 && !note->fail)
            note->fail = json_incref(o);
        s->progress_s = zt_now();
        zt_render_event(s->render, note->rank, o);
    }
    json_decref(o);
}

static void on_exited(struct zt_member *m, const struct zt_frame *f)
{
    struct zt_sup *s = m->sup;
    json_t *o = zt_json_object(f->body, f->body_bytes);
    struct zt_rank_note *note = note_of(m, zt_json_get_int(o, "rank", -1));

    if (note && !note->exited) {
        note->exited = true;
        note->order = s->notes.num_exited++;
        note->time_s = zt_now();
        note->signal = (int)zt_json_get_int(o, "signal", 0);
        note->code = (int)zt_json_get_int(o, "code", 0);
        note->asked = json_is_true(json_object_get(o, "asked"));
        note->oom = json_is_true(json_object_get(o, "oom"));
        note->phase = json_incref(json_object_get(o, "phase"));
        note->tail = json_incref(json_object_get(o, "tail"));
        json_object_set_new(o, "event", json_string("exited"));
        if (note->host)
            json_object_set_new(o, "host", json_string(note->host));
        zt_render_record(s->render, o);
        if ((note->code || note->signal) && !note->asked)
            zt_sup_stop(s, SIGTERM, s->plan->grace_ms);
    }
    json_decref(o);
}

static void on_fault(struct zt_member *m, const struct zt_frame *f)
{
    json_t *o = zt_json_object(f->body, f->body_bytes);

    zt_sup_node_failed(m->sup, m, (int)zt_json_get_int(o, "exit_code", 71),
                       zt_json_get_text(o, "text", "the node daemon failed"));
    json_decref(o);
}

static void on_done(struct zt_member *m, const struct zt_frame *f)
{
    (void)f;
    zt_member_enter(m, MEMBER_DONE);
    zt_sup_step(m->sup);
}

/* The body tells ranks that go on from ranks that do not. */
static void on_beat(struct zt_member *m, const struct zt_frame *f)
{
    uint32_t digest = f->body_bytes >= 4 ? zt_get_u32(f->body) : 0;

    if (digest != m->digest)
        m->sup->progress_s = zt_now();
    m->digest = digest;
}

static void on_looked(struct zt_member *m, const struct zt_frame *f)
{
    json_t *o = zt_json_object(f->body, f->body_bytes);

    if (note_of(m, zt_json_get_int(o, "rank", -1)))
        zt_hang_looked(m->sup, o);
    json_decref(o);
}

static void on_pmi_pairs(struct zt_member *m, const struct zt_frame *f)
{
    zt_sup_pmi_pairs(m, f);
}

static void on_pmi_fence(struct zt_member *m, const struct zt_frame *f)
{
    (void)f;
    zt_sup_pmi_fence(m);
}

static const struct {
    zt_frame_type type;
    void (*handle)(struct zt_member *m, const struct zt_frame *f);
} handlers[] = {
    {ZT_FRAME_HELLO, on_hello},
    {ZT_FRAME_STARTED, on_started},
    {ZT_FRAME_OUTPUT, on_output},
    {ZT_FRAME_RELAY, on_relay},
    {ZT_FRAME_EXITED, on_exited},
    {ZT_FRAME_FAULT, on_fault},
    {ZT_FRAME_DONE, on_done},
    {ZT_FRAME_LOOKED, on_looked},
    {ZT_FRAME_BEAT, on_beat},
    {ZT_FRAME_LINKS_HERE, zt_preflight_on_here},
    {ZT_FRAME_LINKS_FOUND, zt_preflight_on_found},
    {ZT_FRAME_PMI_PAIRS, on_pmi_pairs},
    {ZT_FRAME_PMI_FENCE, on_pmi_fence},
};

/* ------------------------------------------------------------------ the channel */

static void on_up(void *ctx)
{
    struct zt_member *m = ctx;

    m->is_up = true; /* from now on HELLO is waited for */
    m->heard_s = zt_now();
}

static void on_bytes(void *ctx, const void *data, size_t n)
{
    struct zt_member *m = ctx;
    struct zt_fault fault = {0};
    struct zt_frame f;
    zt_err rc;

    m->heard_s = zt_now();
    if (m->garbled)
        return;
    rc = zt_buf_put(&m->in, data, n);
    while (!rc && (rc = zt_frame_peek(&m->in, &f, &fault)) == ZT_OK) {
        for (size_t i = 0; i < sizeof(handlers) / sizeof(*handlers); i++)
            if (handlers[i].type == f.type)
                handlers[i].handle(m, &f);
        zt_frame_drop(&m->in, &f);
    }
    if (rc != ZT_E_SHORT) {
        m->garbled = true;
        zt_sup_node_failed(m->sup, m, 71, fault.text);
        zt_member_close(m);
    }
    zt_sup_pump(m->sup);
}

static void on_note(void *ctx, const char *line)
{
    struct zt_member *m = ctx;
    char front[ZT_NODE_NAME];

    zt_render_message(m->sup->render, ZT_LOG_INFO, "%s%s", zt_member_front(m, front),
                      line);
}

static void on_down(void *ctx, const struct zt_fault *why)
{
    struct zt_member *m = ctx;
    struct zt_sup *s = m->sup;
    int code = m->channel->exit_code;
    char text[ZT_FAULT_TEXT + 64];

    if (!code && m->state == MEMBER_STARTING && (!why || why->code == ZT_E_SYSTEM))
        code = zt_err_exit_code(ZT_E_HOST); /* whatever failed, that is what it means */
    else if (!code)
        code = zt_err_exit_code(why ? why->code : ZT_E_SYSTEM);
    snprintf(text, sizeof(text), "%s%s", why ? why->text : "the node daemon ended early",
             m->state == MEMBER_RUNNING ? "; its ranks were stopped" : "");
    m->channel = NULL;
    s->unclean = s->unclean || m->state != MEMBER_DONE;
    if (m->state != MEMBER_DONE)
        zt_sup_node_failed(s, m, code, text);
    zt_member_enter(m, MEMBER_OFF);
    zt_sup_step(s);
    zt_sup_pump(s);
}

static const struct zt_channel_events events = {
    .on_up = on_up, .on_bytes = on_bytes, .on_note = on_note, .on_down = on_down};

zt_err zt_member_start(struct zt_member *m, struct zt_fault *fault)
{
    const struct zt_plan *p = m->sup->plan;
    const struct zt_plan_node *n = &p->nodes[m->index];
    bool local = n->starter == &zt_starter_local;
    zt_err rc;

    zt_buf_release(&m->in);
    zt_buf_init(&m->in, 2 * ZT_FRAME_MAX);
    m->garbled = m->down_told = m->is_up = false;
    m->digest = 0;
    m->rq = (struct zt_start_request){
        .host = n->host,
        .user = n->user,
        .port = n->port ? n->port : p->ssh.port,
        .node_rank = m->index,
        .zworker = local ? p->zworker : p->launch->zworker,
        .cwd = local ? NULL : p->cwd,
        .env = local ? p->named : p->forward,
        .ssh = &p->ssh,
        .timeout_s = p->launch->connect_timeout_s,
    };
    rc = n->starter->start(&m->rq, &m->sup->loop, &events, m, &m->channel, fault);
    if (rc)
        return rc;
    zt_member_enter(m, MEMBER_STARTING);
    m->heard_s = zt_now();
    return ZT_OK;
}

void zt_member_check_silence(struct zt_member *m, double now)
{
    double limit = ZT_SILENCE_MS / 1000.0;
    char text[256];

    if (m->state == MEMBER_STARTING && m->is_up) /* the program is being loaded */
        limit = m->rq.timeout_s > limit ? m->rq.timeout_s : limit;
    else if (m->state != MEMBER_READY && m->state != MEMBER_RUNNING)
        return;
    if (!m->channel || now - m->heard_s < limit)
        return;
    snprintf(text, sizeof(text),
             m->state == MEMBER_STARTING
                 ? "the node daemon was started and has said nothing for %g s"
                 : "the node has been silent for %g s: it is down, cut off, or stopped",
             limit);
    zt_sup_node_failed(m->sup, m, zt_err_exit_code(ZT_E_HOST), text);
    zt_member_close(m);
}
