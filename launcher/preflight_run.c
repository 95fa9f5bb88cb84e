/*
 * The test of the links as a part of starting a job.
 *
 *      IDLE --LINKS to all--> ASKING --LINKS_HERE of all: LINKS_TRY to all--> TRYING
 *                                          ^                                    |
 *                                          +--- once more, with patience -------+
 *      TRYING --LINKS_FOUND of all--> DONE: a network was chosen, or the job is stopped
 *
 * A node that goes away in the middle (--elastic_training) lets it begin again with those
 * that are left. Nodes that share one network have nothing to test.
 */
#include "launcher/preflight.h"

#include "common/jsonline.h"
#include "launcher/supervise_private.h"

#include <assert.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS 2000
#define SETTLE_MS  250 /* first try: from when all are reached somehow to the end */
#define WHAT_TO_DO                                                                       \
    "open the ports between the nodes, leave a node out with --exclude, or skip this "   \
    "test with --no_preflight"

typedef enum state { IDLE, ASKING, TRYING, DONE } state;

struct zt_preflight {
    state state;
    int *member; /* (table.num) index in the plan */
    bool *heard; /* (table.num) */
    int num_heard;
    int round;
    bool patient;
    struct zt_links_table table;
    struct zt_links_choice choice;
};

static void release(struct zt_preflight *p)
{
    zt_links_choice_release(&p->choice);
    zt_links_table_release(&p->table);
    free(p->member);
    free(p->heard);
    *p = (struct zt_preflight){.round = p->round};
}

void zt_preflight_reset(struct zt_sup *s)
{
    if (s->preflight)
        release(s->preflight);
    free(s->preflight);
    s->preflight = NULL;
}

static int num_ready(const struct zt_sup *s)
{
    int num = 0;

    for (int i = 0; i < s->plan->num_nodes; i++)
        num += s->members[i].state == MEMBER_READY;
    return num;
}

/* Are there nodes in different networks, and do all of them know in which? */
static bool is_wanted(const struct zt_sup *s)
{
    const struct zt_member *first = NULL;
    bool differ = false;

    if (!s->plan->launch->preflight || s->plan->only_node >= 0)
        return false;
    for (int i = 0; i < s->plan->num_nodes; i++) {
        const struct zt_member *m = &s->members[i];

        if (m->state != MEMBER_READY)
            continue;
        if (!m->network[0])
            return false;
        first = first ? first : m;
        differ = differ || strcmp(m->network, first->network) != 0;
    }
    return differ;
}

static bool same_members(const struct zt_sup *s, const struct zt_preflight *p)
{
    for (int i = 0; i < p->table.num; i++)
        if (s->members[p->member[i]].state != MEMBER_READY)
            return false;
    return p->table.num == num_ready(s);
}

static void fail(struct zt_sup *s, int exit_code, const char *text)
{
    zt_notes_down(&s->notes, "", text, exit_code);
    zt_sup_stop(s, SIGTERM, 0);
}

static void expect_all(struct zt_preflight *p, state next)
{
    p->state = next;
    p->num_heard = 0;
    memset(p->heard, 0, (size_t)p->table.num * sizeof(*p->heard));
}

static zt_err start(struct zt_sup *s, struct zt_fault *fault)
{
    struct zt_preflight *p = s->preflight;
    int num = num_ready(s), k = 0;
    zt_err rc;

    assert(num > 1); /* see is_wanted() */
    release(p);
    rc = zt_links_table_init(&p->table, num, fault);
    if (rc)
        return rc;
    p->member = calloc((size_t)num, sizeof(*p->member));
    p->heard = calloc((size_t)num, sizeof(*p->heard));
    if (!p->member || !p->heard)
        return zt_fault_set(fault, ZT_E_NOMEM, "links: no memory for %d nodes", num);
    expect_all(p, ASKING);
    for (int i = 0; i < s->plan->num_nodes; i++) {
        if (s->members[i].state != MEMBER_READY)
            continue;
        p->member[k] = i;
        p->table.node[k++].host = s->plan->nodes[i].host;
        zt_member_send(&s->members[i], ZT_FRAME_LINKS, NULL);
    }
    return ZT_OK;
}

bool zt_preflight_busy(struct zt_sup *s)
{
    struct zt_fault fault = {0};

    if (!is_wanted(s)) {
        zt_preflight_reset(s);
        return false;
    }
    if (!s->preflight)
        s->preflight = calloc(1, sizeof(*s->preflight));
    if (!s->preflight) {
        zt_fault_set(&fault, ZT_E_NOMEM, "links: no memory");
    } else if (s->preflight->state != IDLE && same_members(s, s->preflight)) {
        return s->preflight->state != DONE;
    } else if (start(s, &fault) == ZT_OK) {
        return true;
    }
    fail(s, zt_err_exit_code(fault.code), fault.text);
    return true;
}

/* ------------------------------------------------------------------ trying */

static json_t *order_of(const struct zt_preflight *p)
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

/* The same order for all, with each one's own index in front of it. */
static void send_orders(struct zt_sup *s)
{
    struct zt_preflight *p = s->preflight;
    json_t *order;
    struct zt_buf body;

    p->round++;
    order = order_of(p);
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
        zt_member_send_bytes(&s->members[p->member[i]], ZT_FRAME_LINKS_TRY,
                             zt_buf_head(&body), zt_buf_used(&body));
    }
    zt_buf_release(&body);
    json_decref(order);
    if (p->state == DONE)
        zt_sup_step(s);
}

static void refuse(struct zt_sup *s)
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

static void accept_choice(struct zt_sup *s)
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

/* All have told what they reach. */
static void conclude(struct zt_sup *s)
{
    struct zt_preflight *p = s->preflight;
    struct zt_fault fault = {0};

    if (zt_links_choose(&p->table, &p->choice, &fault)) {
        fail(s, zt_err_exit_code(fault.code), fault.text);
    } else if (p->choice.at) {
        p->state = DONE;
        accept_choice(s);
        zt_sup_step(s);
    } else if (!p->patient) { /* a packet may have been lost */
        p->patient = true;
        zt_links_table_again(&p->table);
        send_orders(s);
    } else {
        p->state = DONE;
        refuse(s);
    }
}

/* ------------------------------------------------------------------ frames */

/* The node's index in the table, when it is its turn to say something; -1: it is not. */
static int turn_of(const struct zt_member *m, state wanted)
{
    const struct zt_preflight *p = m->sup->preflight;

    if (!p || p->state != wanted || m->state != MEMBER_READY)
        return -1;
    for (int i = 0; i < p->table.num; i++)
        if (p->member[i] == m->index)
            return p->heard[i] ? -1 : i;
    return -1;
}

static bool hear(struct zt_preflight *p, int i)
{
    p->heard[i] = true;
    return ++p->num_heard == p->table.num;
}

static void garbled(struct zt_member *m)
{
    zt_sup_node_failed(m->sup, m, zt_err_exit_code(ZT_E_SYSTEM),
                       "what it says about its links makes no sense");
}

void zt_preflight_on_here(struct zt_member *m, const struct zt_frame *f)
{
    struct zt_preflight *p = m->sup->preflight;
    int i = turn_of(m, ASKING);
    json_t *o;

    if (i < 0)
        return;
    o = zt_json_object(f->body, f->body_bytes);
    if (!zt_links_table_here(&p->table, i, o))
        garbled(m);
    else if (hear(p, i))
        send_orders(m->sup);
    json_decref(o);
}

void zt_preflight_on_found(struct zt_member *m, const struct zt_frame *f)
{
    struct zt_preflight *p = m->sup->preflight;
    int i = turn_of(m, TRYING);
    json_t *o;

    if (i < 0)
        return;
    o = zt_json_object(f->body, f->body_bytes);
    if (zt_json_get_int(o, "round", -1) == p->round) {
        if (!zt_links_table_found(&p->table, i, o))
            garbled(m);
        else if (hear(p, i))
            conclude(m->sup);
    }
    json_decref(o);
}

/* ------------------------------------------------------------------ what follows */

/* The table's node for a node of the plan; -1: it was not tested. */
static int row_of(const struct zt_preflight *p, int node)
{
    for (int i = 0; i < p->table.num; i++)
        if (p->member[i] == node)
            return i;
    return -1;
}

json_t *zt_preflight_apply(const struct zt_sup *s, json_t *job, int node)
{
    const struct zt_preflight *p = s->preflight;
    int row, first;

    if (!p || !p->choice.at)
        return job;
    row = row_of(p, node);
    first = row_of(p, zt_group_node_of(&s->group, s->plan, 0));
    if (row < 0 || first < 0)
        return job;
    json_object_set_new(job, "defaults", zt_links_choice_env(&p->table, &p->choice, row));
    if (!s->plan->launch->master_addr)
        json_object_set_new(
            job, "master_addr",
            json_string(p->table.node[first].at[p->choice.at[first]].text));
    return job;
}
