/*
 * The link test, run before the ranks of a job on several nodes are started: daemons try
 * each other's addresses, and one network is chosen (network.h).
 *
 *      IDLE --LINKS to all--> ASKING --LINKS_HERE of all: LINKS_TRY to all--> TRYING
 *                                          ^                                    |
 *                                          +--- second round, longer timeout ---+
 *      TRYING --LINKS_FOUND of all--> DONE: a network was chosen, or the job is stopped
 *
 * If a node is lost meanwhile (--elastic_training) the test starts again with the nodes
 * that are left. Nodes that are all in one network are not tested.
 */
#include "launcher/supervise/private.h"

#include "common/json/line.h"

#include <assert.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS 2000
#define SETTLE_MS                                                                        \
    250 /* first round: how long a node goes on once it reached all others */
#define WHAT_TO_DO                                                                       \
    "open the ports between the nodes, leave a node out with --exclude, or skip this "   \
    "test with --no_preflight"

typedef enum state { IDLE, ASKING, TRYING, DONE } state;

struct zt_preflight {
    state state;
    int *plan_index; /* (table.num) index in the plan */
    bool *answered;  /* (table.num) */
    int num_answered;
    int round;
    bool patient; /* second round: wait for the whole timeout */
    struct zt_links_table table;
    struct zt_links_choice choice;
};

static void release(struct zt_preflight *p)
{
    zt_links_choice_release(&p->choice);
    zt_links_table_release(&p->table);
    free(p->plan_index);
    free(p->answered);
    *p = (struct zt_preflight){.round = p->round};
}

void zt_preflight_reset(struct zt_supervisor *s)
{
    if (s->preflight)
        release(s->preflight);
    free(s->preflight);
    s->preflight = NULL;
}

static int num_ready(const struct zt_supervisor *s)
{
    int num = 0;

    for (int i = 0; i < s->plan->num_nodes; i++)
        num += s->nodes[i].state == NODE_READY;
    return num;
}

/* Only if nodes are in different networks, and every node reports its network. */
static bool is_needed(const struct zt_supervisor *s)
{
    const struct zt_sup_node *first = NULL;
    bool differ = false;

    if (!s->plan->launch->preflight || s->plan->only_node >= 0)
        return false;
    for (int i = 0; i < s->plan->num_nodes; i++) {
        const struct zt_sup_node *node = &s->nodes[i];

        if (node->state != NODE_READY)
            continue;
        if (!node->network[0])
            return false;
        first = first ? first : node;
        differ = differ || strcmp(node->network, first->network) != 0;
    }
    return differ;
}

static bool same_nodes(const struct zt_supervisor *s, const struct zt_preflight *p)
{
    for (int i = 0; i < p->table.num; i++)
        if (s->nodes[p->plan_index[i]].state != NODE_READY)
            return false;
    return p->table.num == num_ready(s);
}

static void fail(struct zt_supervisor *s, int exit_code, const char *text)
{
    zt_notes_node_lost(&s->notes, "", text, exit_code);
    zt_sup_stop(s, SIGTERM, 0);
}

static void expect_all(struct zt_preflight *p, state next)
{
    p->state = next;
    p->num_answered = 0;
    memset(p->answered, 0, (size_t)p->table.num * sizeof(*p->answered));
}

static zt_err start(struct zt_supervisor *s, struct zt_fault *fault)
{
    struct zt_preflight *p = s->preflight;
    int num = num_ready(s), k = 0;
    zt_err rc;

    assert(num > 1); /* see is_needed() */
    release(p);
    rc = zt_links_table_init(&p->table, num, fault);
    if (rc)
        return rc;
    p->plan_index = calloc((size_t)num, sizeof(*p->plan_index));
    p->answered = calloc((size_t)num, sizeof(*p->answered));
    if (!p->plan_index || !p->answered)
        return zt_fault_set(fault, ZT_E_NOMEM, "links: no memory for %d nodes", num);
    expect_all(p, ASKING);
    for (int i = 0; i < s->plan->num_nodes; i++) {
        if (s->nodes[i].state != NODE_READY)
            continue;
        p->plan_index[k] = i;
        p->table.node[k++].host = s->plan->nodes[i].host;
        zt_sup_node_send(&s->nodes[i], ZT_FRAME_LINKS, NULL);
    }
    return ZT_OK;
}

bool zt_preflight_busy(struct zt_supervisor *s)
{
    struct zt_fault fault = {0};

    if (!is_needed(s)) {
        zt_preflight_reset(s);
        return false;
    }
    if (!s->preflight)
        s->preflight = calloc(1, sizeof(*s->preflight));
    if (!s->preflight) {
        zt_fault_set(&fault, ZT_E_NOMEM, "links: no memory");
    } else if (s->preflight->state != IDLE && same_nodes(s, s->preflight)) {
        return s->preflight->state != DONE;
    } else if (start(s, &fault) == ZT_OK) {
        return true;
    }
    fail(s, zt_err_exit_code(fault.code), fault.text);
    return true;
}

/* ------------------------------------------------------------------ trying */

static json_t *request_json(const struct zt_preflight *p)
{
    json_t *nodes = json_array();

    for (int i = 0; i < p->table.num; i++) {
        const struct zt_link_node *n = &p->table.node[i];
        json_t *at = json_array();

        for (int k = 0; k < n->num; k++)
            json_array_append_new(at, json_pack("[s,i]", n->at[k].text, n->at[k].port));
        json_array_append_new(nodes, json_pack("{s:s,s:s,s:o}", "ask", n->ask, "answer",
                                               n->answer, "at", at));
    }
    return json_pack("{s:i,s:i,s:i,s:o}", "round", p->round, "timeout_ms", TIMEOUT_MS,
                     "settle_ms", p->patient ? TIMEOUT_MS : SETTLE_MS, "nodes", nodes);
}

/* Every node gets the same request, after its own index. */
static void send_requests(struct zt_supervisor *s)
{
    struct zt_preflight *p = s->preflight;
    json_t *order;
    struct zt_buf body;

    p->round++;
    order = request_json(p);
    zt_buf_init(&body, ZT_FRAME_MAX - 1);
    expect_all(p, TRYING);
    if (zt_buf_put_u32(&body, 0) || zt_json_put(&body, order)) {
        zt_render_message(s->render, ZT_LOG_WARN,
                          "links: %d nodes are too many to test all of them",
                          p->table.num);
        p->state = DONE;
    }
    for (int i = 0; p->state == TRYING && i < p->table.num; i++) {
        zt_set_u32(body.data + body.off, (uint32_t)i);
        zt_sup_node_send_bytes(&s->nodes[p->plan_index[i]], ZT_FRAME_LINKS_TRY,
                               zt_buf_head(&body), zt_buf_used(&body));
    }
    zt_buf_release(&body);
    json_decref(order);
    if (p->state == DONE)
        zt_sup_advance(s);
}

static void fail_unreachable(struct zt_supervisor *s)
{
    struct zt_links_table *t = &s->preflight->table;
    int pairs;
    char *table = zt_links_missing_text(t, &pairs), text[512];

    if (pairs)
        snprintf(text, sizeof(text),
                 "links: %d of the %lld ways between the %d nodes do not work; %s", pairs,
                 (long long)t->num * (t->num - 1), t->num, WHAT_TO_DO);
    else
        snprintf(text, sizeof(text),
                 "links: the %d nodes reach each other, but no address of a node is "
                 "reached by all others; " WHAT_TO_DO,
                 t->num);
    if (!zt_render_is_json(s->render) && pairs && table) {
        zt_render_message(s->render, ZT_LOG_ERROR, "links between the nodes:");
        zt_render_block(s->render, table);
    } else if (pairs && table) {
        json_t *o = json_pack("{s:s,s:b}", "event", "links", "ok", 0);

        json_object_set_new(o, "text", zt_json_text(table, strlen(table)));
        zt_render_record(s->render, o);
        json_decref(o);
    }
    free(table);
    fail(s, zt_err_exit_code(ZT_E_HOST), text);
}

static void accept_choice(struct zt_supervisor *s)
{
    struct zt_preflight *p = s->preflight;
    char text[256];
    json_t *o;

    zt_links_choice_text(&p->table, &p->choice, text, sizeof(text));
    if (s->group.restart == 0)
        zt_render_message(s->render, ZT_LOG_INFO, "links: %s", text);
    o = json_pack("{s:s,s:b,s:s,s:f}", "event", "links", "ok", 1, "text", text, "rtt_ms",
                  p->choice.mean_us / 1000);
    zt_render_record(s->render, o);
    json_decref(o);
}

/* Every node has reported what it reaches. */
static void conclude(struct zt_supervisor *s)
{
    struct zt_preflight *p = s->preflight;
    struct zt_fault fault = {0};

    if (zt_links_choose(&p->table, &p->choice, &fault)) {
        fail(s, zt_err_exit_code(fault.code), fault.text);
    } else if (p->choice.at) {
        p->state = DONE;
        accept_choice(s);
        zt_sup_advance(s);
    } else if (!p->patient) { /* a packet may have been lost */
        p->patient = true;
        zt_links_table_clear(&p->table);
        send_requests(s);
    } else {
        p->state = DONE;
        fail_unreachable(s);
    }
}

/* ------------------------------------------------------------------ frames */

/* The node's index in the table if an answer of it is expected in this state; else -1. */
static int expected_index(const struct zt_sup_node *node, state wanted)
{
    const struct zt_preflight *p = node->sup->preflight;

    if (!p || p->state != wanted || node->state != NODE_READY)
        return -1;
    for (int i = 0; i < p->table.num; i++)
        if (p->plan_index[i] == node->index)
            return p->answered[i] ? -1 : i;
    return -1;
}

static bool mark_answered(struct zt_preflight *p, int i)
{
    p->answered[i] = true;
    return ++p->num_answered == p->table.num;
}

static void fail_malformed(struct zt_sup_node *node)
{
    zt_sup_node_failed(node->sup, node, zt_err_exit_code(ZT_E_SYSTEM),
                       "what it says about its links makes no sense");
}

void zt_preflight_on_here(struct zt_sup_node *node, const struct zt_frame *f)
{
    struct zt_preflight *p = node->sup->preflight;
    int i = expected_index(node, ASKING);
    json_t *o;

    if (i < 0)
        return;
    o = zt_json_object(f->body, f->body_bytes);
    if (!zt_links_table_here(&p->table, i, o))
        fail_malformed(node);
    else if (mark_answered(p, i))
        send_requests(node->sup);
    json_decref(o);
}

void zt_preflight_on_found(struct zt_sup_node *node, const struct zt_frame *f)
{
    struct zt_preflight *p = node->sup->preflight;
    int i = expected_index(node, TRYING);
    json_t *o;

    if (i < 0)
        return;
    o = zt_json_object(f->body, f->body_bytes);
    if (zt_json_get_int(o, "round", -1) == p->round) {
        if (!zt_links_table_found(&p->table, i, o))
            fail_malformed(node);
        else if (mark_answered(p, i))
            conclude(node->sup);
    }
    json_decref(o);
}

/* ------------------------------------------------------------------ the result */

/* The index in the table of a node of the plan; -1: it was not tested. */
static int table_index(const struct zt_preflight *p, int plan_index)
{
    for (int i = 0; i < p->table.num; i++)
        if (p->plan_index[i] == plan_index)
            return i;
    return -1;
}

json_t *zt_preflight_apply(const struct zt_supervisor *s, json_t *job, int plan_index)
{
    const struct zt_preflight *p = s->preflight;
    int row, first;

    if (!p || !p->choice.at)
        return job;
    row = table_index(p, plan_index);
    first = table_index(p, zt_group_node_of(&s->group, s->plan, 0));
    if (row < 0 || first < 0)
        return job;
    json_object_set_new(job, "defaults", zt_links_choice_env(&p->table, &p->choice, row));
    if (!s->plan->launch->master_addr)
        json_object_set_new(
            job, "master_addr",
            json_string(p->table.node[first].at[p->choice.at[first]].text));
    return job;
}
