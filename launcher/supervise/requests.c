/*
 * What a running job answers to `zlaunch --ctl` and `--attach`. `handlers` has a row for
 * each request. A request that the ranks have to answer is kept in `pending` until every
 * running rank has answered or ten minutes have passed.
 */
#include "launcher/supervise/private.h"

#include "common/json/line.h"
#include "common/log.h"
#include "launcher/ctl/ctl.h"
#include "launcher/ctl/detach.h"

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PENDING_MAX 8
#define RANKS_S     600.0 /* for all ranks to answer a request */
#define CHECK_MS    50
#define RANKS_MAX   4096             /* listed one by one up to so many */
#define FLUSH_S     0.5              /* for clients to read the last lines */
#define ANSWER_MAX  (PATH_MAX + 512) /* bytes of a rank's answer that are kept */

/* A request that the ranks have not all answered yet. */
struct pending {
    uint32_t client; /* 0: free */
    uint32_t id;     /* sent to the ranks with it; 0: `stacks`, which has no answers */
    double until_s;
    int num_ranks;
    char **answers; /* (num_ranks) NULL: none yet */
    int exit_code; /* largest of the answers: 1 is of a rank that names another; 0: all did */
};

struct zt_sup_ctl {
    struct zt_ctl *ctl; /* NULL: no socket could be made */
    uv_timer_t check;
    struct pending pending[PENDING_MAX];
    uint32_t last_id;
    double begun_s, step_s;
    json_t *step; /* the last step event; NULL: none yet */
};

/* ------------------------------------------------------------------ status */

static const char *state_name(const struct zt_supervisor *s)
{
    static const char *const names[] = {"starting", "running", "stopping", "waiting"};

    return names[s->state];
}

static const char *node_state_name(zt_sup_node_state state)
{
    static const char *const names[] = {"off",     "starting", "ready",
                                        "running", "done",     "idle"};

    return names[state];
}

static json_t *nodes_json(const struct zt_supervisor *s)
{
    json_t *list = json_array();

    for (int i = 0; i < s->plan->num_nodes && i < RANKS_MAX; i++) {
        const struct zt_job_plan_node *n = &s->plan->nodes[i];
        json_t *o = json_object();

        json_object_set_new(o, "host", zt_json_text(n->host, strlen(n->host)));
        json_object_set_new(o, "state", json_string(node_state_name(s->nodes[i].state)));
        json_object_set_new(o, "ranks", json_integer(n->num_slots));
        if (s->group.node_rank[i] >= 0)
            json_object_set_new(o, "first_rank", json_integer(s->group.first_rank[i]));
        json_array_append_new(list, o);
    }
    return list;
}

static bool is_alive(const struct zt_rank_note *r)
{
    return r->started && !r->exited;
}

static json_t *ranks_json(const struct zt_supervisor *s)
{
    json_t *o = json_object(), *pids = json_array();
    int running = 0, ended = 0;

    for (int i = 0; i < s->notes.num_ranks; i++) {
        const struct zt_rank_note *r = &s->notes.ranks[i];

        running += is_alive(r);
        ended += r->exited;
        if (i < RANKS_MAX)
            json_array_append_new(pids, json_integer(is_alive(r) ? r->pid : 0));
    }
    json_object_set_new(o, "total", json_integer(s->notes.num_ranks));
    json_object_set_new(o, "running", json_integer(running));
    json_object_set_new(o, "ended", json_integer(ended));
    json_object_set_new(o, "pids", pids);
    return o;
}

/* The words of the command, as far as they fit. */
static json_t *command_json(const struct zt_supervisor *s)
{
    const struct zt_launch *l = s->plan->launch;
    char text[1024] = "";
    size_t at = 0;

    for (int i = 0; i < l->target_argc && at < sizeof(text) - 1; i++) {
        snprintf(text + at, sizeof(text) - at, "%s%s", i ? " " : "", l->target[i]);
        at = strlen(text);
    }
    return zt_json_text(text, at);
}

static void handle_status(struct zt_supervisor *s, uint32_t client)
{
    struct zt_sup_ctl *k = s->ctl;
    json_t *o = json_object();
    double now = zt_now();

    json_object_set_new(o, "job", json_string(s->plan->job_id));
    json_object_set_new(o, "pid", json_integer(getpid()));
    json_object_set_new(o, "state", json_string(state_name(s)));
    json_object_set_new(o, "command", command_json(s));
    json_object_set_new(o, "elapsed_s", zt_json_real(now - k->begun_s));
    json_object_set_new(o, "restarts", json_integer(s->group.restart));
    json_object_set_new(o, "max_restarts", json_integer(s->plan->max_restarts));
    json_object_set_new(o, "nodes", nodes_json(s));
    json_object_set_new(o, "ranks", ranks_json(s));
    if (k->step) {
        json_object_set(o, "last_step", k->step);
        json_object_set_new(o, "last_step_s", zt_json_real(now - k->step_s));
    }
    if (zt_detach_log())
        json_object_set_new(o, "log_file",
                            zt_json_text(zt_detach_log(), strlen(zt_detach_log())));
    if (zt_detach_log() && zt_render_lost(s->render))
        json_object_set_new(o, "log_error",
                            json_string(strerror(zt_render_lost(s->render))));
    zt_ctl_answer(k->ctl, client, o);
    json_decref(o);
    zt_ctl_end(k->ctl, client, 0, NULL);
}

/* ------------------------------------------------------------------ answers of ranks */

static void pending_end(struct zt_sup_ctl *k, struct pending *p, int code,
                        const char *text)
{
    zt_ctl_end(k->ctl, p->client, code, text);
    for (int i = 0; i < p->num_ranks; i++)
        free(p->answers[i]);
    free(p->answers);
    *p = (struct pending){0};
}

/* Append ranks to "rank 0, 1"; many of them are only counted. */
static void name_rank(char text[256], int *num, int rank)
{
    size_t at = strlen(text);

    if (++*num <= 8)
        snprintf(text + at, 256 - at, "%s%d", *num > 1 ? ", " : "rank ", rank);
    else if (*num == 9)
        snprintf(text + at, 256 - at, ", ...");
}

/* Every answer once, with the ranks that gave it. */
static void print_answers(struct zt_sup_ctl *k, struct pending *p)
{
    for (int i = 0; i < p->num_ranks; i++) {
        char ranks[256] = "", *answer = p->answers[i];
        int num = 0;

        if (!answer)
            continue;
        for (int j = i; j < p->num_ranks; j++)
            if (p->answers[j] && strcmp(p->answers[j], answer) == 0) {
                name_rank(ranks, &num, j);
                if (j > i) {
                    free(p->answers[j]);
                    p->answers[j] = NULL;
                }
            }
        if (num == p->num_ranks && num > 1)
            zt_ctl_print(k->ctl, p->client, "all %d ranks: %s", num, answer);
        else
            zt_ctl_print(k->ctl, p->client, "%s: %s", ranks, answer);
    }
}

/* End a request that every running rank has answered, or whose time is over. */
static void pending_check(struct zt_supervisor *s, struct pending *p, double now)
{
    struct zt_sup_ctl *k = s->ctl;
    char silent[256] = "", text[512];
    int num_silent = 0, num_answers = 0;

    if (!zt_ctl_is_connected(k->ctl, p->client)) {
        pending_end(k, p, 0, NULL);
        return;
    }
    if (!p->id) {
        if (!zt_sup_inspecting(s))
            pending_end(k, p, 0, NULL);
        return;
    }
    for (int i = 0; i < p->num_ranks; i++) {
        num_answers += p->answers[i] != NULL;
        if (!p->answers[i] && i < s->notes.num_ranks && is_alive(&s->notes.ranks[i]))
            name_rank(silent, &num_silent, i);
    }
    if (num_silent && now < p->until_s)
        return;
    print_answers(k, p);
    if (num_silent) {
        snprintf(text, sizeof(text), "no answer in %.0f s from %s", RANKS_S, silent);
        pending_end(k, p, 1, text);
    } else if (!num_answers) {
        pending_end(k, p, 1, "the ranks have ended before they could answer");
    } else {
        pending_end(k, p, p->exit_code, NULL);
    }
}

static void on_check(uv_timer_t *timer)
{
    struct zt_supervisor *s = timer->data;
    double now = zt_now();
    bool busy = false;

    for (int i = 0; i < PENDING_MAX; i++) {
        struct pending *p = &s->ctl->pending[i];

        if (p->client)
            pending_check(s, p, now);
        busy = busy || p->client;
    }
    if (!busy)
        uv_timer_stop(timer);
}

/* A free entry; NULL: there is none, and the client has been answered. */
static struct pending *pending_new(struct zt_supervisor *s, uint32_t client,
                                   double seconds)
{
    struct zt_sup_ctl *k = s->ctl;
    bool any = false;

    for (int i = 0; i < s->notes.num_ranks; i++)
        any = any || is_alive(&s->notes.ranks[i]);
    if (!any) {
        zt_ctl_end(k->ctl, client, 1, "no rank of the job is running now");
        return NULL;
    }
    for (int i = 0; i < PENDING_MAX; i++) {
        struct pending *p = &k->pending[i];

        if (p->client)
            continue;
        p->client = client;
        p->until_s = zt_now() + seconds;
        uv_timer_start(&k->check, on_check, CHECK_MS, CHECK_MS);
        return p;
    }
    zt_ctl_end(k->ctl, client, 1,
               "the ranks are asked too much at once; try again later");
    return NULL;
}

static void handle_stacks(struct zt_supervisor *s, uint32_t client)
{
    if (!pending_new(s, client, 0))
        return;
    zt_ctl_follow(s->ctl->ctl, client, ZT_CTL_ALL_BUT_STDOUT, false);
    zt_sup_inspect(s);
}

/* `dir`: where the weights are to go; NULL: where the run has its own. */
static void request_ranks(struct zt_supervisor *s, uint32_t client, const char *request,
                          const char *dir)
{
    struct zt_sup_ctl *k = s->ctl;
    struct pending *p;

    if (!s->plan->is_plugin) {
        zt_ctl_end(k->ctl, client, 1,
                   "this job runs a program that zlaunch cannot ask; only plugins (.so) "
                   "listen");
        return;
    }
    p = pending_new(s, client, RANKS_S);
    if (!p)
        return;
    p->answers = calloc((size_t)s->notes.num_ranks, sizeof(*p->answers));
    if (!p->answers) {
        pending_end(k, p, 1, "no memory for the answers");
        return;
    }
    p->num_ranks = s->notes.num_ranks;
    p->id = ++k->last_id;
    for (int i = 0; i < s->plan->num_nodes; i++) {
        json_t *o;

        if (s->nodes[i].state != NODE_RUNNING)
            continue;
        o = json_object();
        json_object_set_new(o, "id", json_integer(p->id));
        json_object_set_new(o, "request", json_string(request));
        if (dir)
            json_object_set_new(o, "dir", zt_json_text(dir, strlen(dir)));
        zt_sup_node_send(&s->nodes[i], ZT_FRAME_REQUEST, o);
    }
}

/* All ranks save together, and this zlaunch asks its own. */
static void tell_of_other_nodes(struct zt_supervisor *s, uint32_t client)
{
    if (s->plan->only_node >= 0 && s->plan->num_nodes > 1)
        zt_ctl_print(s->ctl->ctl, client,
                     "all ranks save together, and other nodes have a zlaunch of their "
                     "own (--no_ssh): it is done when each of them has been asked");
}

static void handle_save(struct zt_supervisor *s, uint32_t client)
{
    tell_of_other_nodes(s, client);
    request_ranks(s, client, "save", NULL);
}

static void handle_save_weights(struct zt_supervisor *s, uint32_t client)
{
    tell_of_other_nodes(s, client);
    request_ranks(s, client, "save weights", NULL);
}

static void handle_trace(struct zt_supervisor *s, uint32_t client)
{
    request_ranks(s, client, "trace", NULL);
}

static void store_answer(struct zt_sup_ctl *k, int rank, const json_t *o)
{
    uint32_t id = (uint32_t)zt_json_get_int(o, "id", 0);
    bool ok = json_is_true(json_object_get(o, "ok"));
    int code = ok ? 0 : (int)zt_json_get_int(o, "exit_code", 1);

    for (int i = 0; i < PENDING_MAX; i++) {
        struct pending *p = &k->pending[i];

        if (!id || p->id != id || rank >= p->num_ranks || p->answers[rank])
            continue;
        p->answers[rank] = strndup(zt_json_get_text(o, "text", ""), ANSWER_MAX);
        if (code > p->exit_code)
            p->exit_code = code;
    }
}

/* ------------------------------------------------------------------ the rest */

/* Like the first SIGTERM; never like the second, which kills. */
static void handle_stop(struct zt_supervisor *s, uint32_t client)
{
    if (s->stops) {
        zt_ctl_end(s->ctl->ctl, client, 0, "the job is being stopped already");
        return;
    }
    s->notes.stop_by_ctl = true;
    kill(getpid(), SIGTERM); /* handled in the loop, after this request */
    zt_ctl_end(s->ctl->ctl, client, 0, "the job is told to stop");
}

static void handle_attach(struct zt_supervisor *s, uint32_t client)
{
    zt_ctl_follow(s->ctl->ctl, client, ZT_CTL_ALL, true);
}

static const struct {
    const char *request;
    void (*fn)(struct zt_supervisor *s, uint32_t client);
} handlers[] = {
#define ROW(name, request, shown) {request, handle_##name},
    ZT_CTL_REQUESTS(ROW)
#undef ROW
        {"attach", handle_attach}, /* by an option of its own */
};

static void on_request(void *ctx, uint32_t client, const char *request)
{
    static const char elsewhere[] = "save weights ";
    struct zt_supervisor *s = ctx;
    char text[256], known[128];

    if (strncmp(request, elsewhere, strlen(elsewhere)) == 0) {
        request_ranks(s, client, "save weights", request + strlen(elsewhere));
        return;
    }
    for (size_t i = 0; i < sizeof(handlers) / sizeof(*handlers); i++)
        if (strcmp(handlers[i].request, request) == 0) {
            handlers[i].fn(s, client);
            return;
        }
    snprintf(text, sizeof(text),
             "a job cannot be asked for '%.40s', but for %s; --ctl list names all jobs",
             request, zt_ctl_requests_text(known));
    zt_ctl_end(s->ctl->ctl, client, 2, text);
}

void zt_sup_ctl_open(struct zt_supervisor *s)
{
    struct zt_ctl_config cfg = {
        .loop = &s->loop, .job_id = s->plan->job_id, .on_request = on_request, .ctx = s};
    struct zt_sup_ctl *k = calloc(1, sizeof(*k));
    struct zt_fault fault = {0};

    if (!k)
        return;
    s->ctl = k;
    k->begun_s = zt_now();
    uv_timer_init(&s->loop, &k->check);
    k->check.data = s;
    if (zt_ctl_open(&cfg, &k->ctl, &fault))
        zt_render_message(s->render, ZT_LOG_WARN,
                          "nothing can be asked of this job by --ctl: %s", fault.text);
}

void zt_sup_ctl_line(void *ctx, int stream, const char *tag, const char *text, size_t n)
{
    struct zt_supervisor *s = ctx;

    if (s->ctl)
        zt_ctl_publish_line(s->ctl->ctl,
                            zt_render_is_json(s->render) ? ZT_CTL_EVENT : stream, tag,
                            text, n);
}

/* From here on it is the last job of its folder. A start that is refused is none, unless
 * there has been no other. */
static void note_begun(struct zt_supervisor *s)
{
    if (!s->begun && s->ctl && s->ctl->ctl)
        zt_ctl_note_job(s->plan->job_id, zt_detach_log(), NULL, 0);
    s->begun = true;
}

void zt_sup_ctl_started(struct zt_supervisor *s)
{
    int num = 0;

    if (s->plan->is_plugin)
        return; /* its ranks say when they have begun */
    note_begun(s);
    for (int i = 0; zt_detach_is_pending() && i < s->notes.num_ranks; i++)
        num += s->notes.ranks[i].started;
    if (num && num == s->notes.num_ranks)
        zt_detach_ready();
}

/* All that a run was given has been looked at when it says what it is going to do. */
static bool is_summary(const char *name, const json_t *event)
{
    return strcmp(name, "note") == 0 && json_object_get(event, "trains");
}

/* Is the run at work, as far as --detach waits: has it made a step, if it makes any? */
static bool has_begun(const char *name, const json_t *event)
{
    return strcmp(name, "step") == 0 ||
           (strcmp(name, "note") == 0 && json_is_false(json_object_get(event, "trains")));
}

bool zt_sup_ctl_event(struct zt_supervisor *s, int rank, json_t *event)
{
    const char *name = zt_json_get_text(event, "event", "");

    if (is_summary(name, event))
        note_begun(s);
    if (s->ctl && strcmp(name, "step") == 0) {
        json_decref(s->ctl->step);
        s->ctl->step = json_incref(event);
        s->ctl->step_s = zt_now();
    }
    if (has_begun(name, event) && zt_detach_is_pending())
        zt_detach_ready();
    if (!s->ctl)
        return strcmp(name, "answer") == 0;
    if (strcmp(name, "answer") == 0) {
        store_answer(s->ctl, rank, event);
        return true;
    }
    return false;
}

void zt_sup_ctl_finish(struct zt_supervisor *s, int exit_code)
{
    double until = zt_now() + FLUSH_S;

    if (!s->ctl)
        return;
    for (int i = 0; i < PENDING_MAX; i++) /* the last answers come with the end */
        if (s->ctl->pending[i].client)
            pending_check(s, &s->ctl->pending[i], zt_now());
    if (s->ctl->ctl)
        zt_ctl_note_job(s->plan->job_id, zt_detach_log(), &exit_code,
                        zt_render_lost(s->render));
    zt_ctl_finish(s->ctl->ctl, exit_code);
    while (!zt_ctl_flushed(s->ctl->ctl) && zt_now() < until)
        uv_run(&s->loop, UV_RUN_ONCE); /* the tick of the job ends each round */
    zt_ctl_close(s->ctl->ctl);
    s->ctl->ctl = NULL;
}

void zt_sup_ctl_release(struct zt_supervisor *s)
{
    if (!s->ctl)
        return;
    for (int i = 0; i < PENDING_MAX; i++)
        pending_end(s->ctl, &s->ctl->pending[i], 0, NULL);
    json_decref(s->ctl->step);
    free(s->ctl);
}
