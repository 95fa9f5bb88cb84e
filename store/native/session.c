#include "store/native/session_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLACK_S 0.002 /* waits that end this close together are answered together */

/* ---------------------------------------------------------------- replies */

/* Small replies need no memory of their own. */
static void reply(struct zt_session *s, zt_store_status status, const void *body,
                  size_t bytes)
{
    uint8_t small[4 + 1 + ZT_SESSION_TEXT];
    struct zt_buf out = {.data = small, .cap = sizeof(small), .max = sizeof(small)};

    if (bytes <= ZT_SESSION_TEXT) {
        if (!zt_store_put_reply(&out, status, body, bytes))
            s->peer->send(s->peer, small, out.len);
        return;
    }
    zt_buf_init(&out, bytes + 5);
    if (zt_store_put_reply(&out, status, body, bytes))
        s->peer->drop(s->peer);
    else
        s->peer->send(s->peer, zt_buf_head(&out), zt_buf_used(&out));
    zt_buf_release(&out);
}

void zt_session_reply_ok(struct zt_session *s)
{
    reply(s, ZT_STORE_OK, "", 0);
}

void zt_session_reply_text(struct zt_session *s, zt_store_status status, const char *text)
{
    reply(s, status, text, strlen(text));
}

/* What a call of the key store came to, for changes that have no other answer. */
static zt_err reply_limit(struct zt_session *s, zt_err rc)
{
    if (rc == ZT_E_LIMIT)
        zt_session_reply_text(
            s, ZT_STORE_FULL,
            "the store is full: too many keys or too many bytes in this job");
    else if (rc == ZT_E_FORMAT)
        zt_session_reply_text(s, ZT_STORE_REFUSED,
                              "the key holds no number that could be added to");
    else
        return rc;
    return ZT_OK;
}

/* ---------------------------------------------------------------- hub */

zt_err zt_hub_open(uint64_t generation, const char *noun, struct zt_hub **out)
{
    static const struct zt_kv_limits limits = {
        .key_bytes = ZT_STORE_KEY,
        .value_bytes = ZT_STORE_VALUE,
        .num_keys = 1u << 18,
        .total_bytes = 256u << 20,
        .wait_keys = ZT_STORE_WAIT_KEYS,
    };
    struct zt_hub *h = calloc(1, sizeof(*h));
    zt_err rc;

    if (!h)
        return ZT_E_NOMEM;
    rc = zt_kv_open(&limits, &h->kv);
    if (rc) {
        free(h);
        return rc;
    }
    h->generation = generation;
    h->members.noun = noun;
    *out = h;
    return ZT_OK;
}

void zt_hub_close(struct zt_hub *h)
{
    if (!h)
        return;
    zt_members_release(&h->members);
    zt_kv_close(h->kv);
    free(h);
}

uint64_t zt_hub_generation(const struct zt_hub *h)
{
    return h->generation;
}

int zt_hub_num_members(const struct zt_hub *h)
{
    return (int)h->members.connected;
}

zt_err zt_hub_set(struct zt_hub *h, struct zt_span key, struct zt_span value)
{
    return zt_kv_set(h->kv, key, value);
}

void zt_hub_advance(struct zt_hub *h, uint64_t generation)
{
    char text[200];

    snprintf(
        text, sizeof(text),
        "the job went on to generation %llu: this process belongs to generation %llu "
        "and must end",
        (unsigned long long)generation, (unsigned long long)h->generation);
    h->generation = generation;
    for (struct zt_session *s = h->all, *next; s; s = next) {
        next = s->next;
        zt_session_stop_waiting(s);
        s->ended = true;
        s->is_member = false;
        zt_session_reply_text(s, ZT_STORE_STALE, text);
        s->peer->drop(s->peer);
    }
    zt_kv_clear(h->kv);
    zt_members_release(&h->members);
}

/* ---------------------------------------------------------------- waiting */

void zt_session_start_waiting(struct zt_session *s, zt_store_op op, uint32_t timeout_ms,
                              double now)
{
    struct zt_hub *h = s->hub;

    s->waiting_for = op;
    s->since = now;
    s->due = now + timeout_ms / 1e3;
    s->prev_waiting = NULL;
    s->next_waiting = h->waiting;
    if (h->waiting)
        h->waiting->prev_waiting = s;
    h->waiting = s;
    if (!h->next_due || s->due < h->next_due)
        h->next_due = s->due;
}

/* Whatever it waited for, it does no longer. */
void zt_session_stop_waiting(struct zt_session *s)
{
    struct zt_hub *h = s->hub;

    if (!s->waiting_for)
        return;
    s->waiting_for = (zt_store_op)0;
    if (s->prev_waiting)
        s->prev_waiting->next_waiting = s->next_waiting;
    else
        h->waiting = s->next_waiting;
    if (s->next_waiting)
        s->next_waiting->prev_waiting = s->prev_waiting;
    if (!h->waiting)
        h->next_due = 0;
    if (s->barrier)
        zt_barrier_leave(s);
    else
        zt_kv_unwait(h->kv, &s->wait);
    zt_buf_release(&s->key);
}

static void names_of_absent(const struct zt_hub *h, struct zt_names *n)
{
    for (uint32_t i = 0; i < h->members.count; i++)
        if (!h->members.member[i].connected)
            zt_names_add(n, &h->members, i);
    zt_names_end(n);
}

static void time_is_over_key(struct zt_session *s, double waited)
{
    struct zt_span key = zt_kv_missing(&s->wait);
    char text[ZT_SESSION_TEXT], who[1024] = "";
    struct zt_names names = {who, sizeof(who), 0, 0};

    names_of_absent(s->hub, &names);
    if (names.num) /* more to the point than what they would have set */
        snprintf(text, sizeof(text), "not there within %.1f s: %s", waited, who);
    else
        snprintf(text, sizeof(text), "key \"%.*s\": nobody set it within %.1f s",
                 (int)(key.bytes < 200 ? key.bytes : 200), (const char *)key.data,
                 waited);
    zt_session_stop_waiting(s);
    zt_session_reply_text(s, ZT_STORE_TIMEOUT, text);
}

/* The first that is due; *next: when the others are, 0: never. */
static struct zt_session *first_due(const struct zt_hub *h, double now, double *next)
{
    *next = 0;
    for (struct zt_session *s = h->waiting; s; s = s->next_waiting) {
        if (s->due <= now + SLACK_S)
            return s;
        *next = !*next || s->due < *next ? s->due : *next;
    }
    return NULL;
}

double zt_hub_expire(struct zt_hub *h, double now)
{
    struct zt_session *s;
    double next;

    if (!h->next_due || h->next_due > now)
        return h->next_due;
    while ((s = first_due(h, now, &next))) {
        if (s->barrier)
            zt_barrier_expire(s, now - s->since);
        else
            time_is_over_key(s, now - s->since);
    }
    h->next_due = next;
    return next;
}

double zt_hub_next(const struct zt_hub *h)
{
    return h->next_due;
}

/* ---------------------------------------------------------------- keys */

static zt_err answer_get(struct zt_session *s, struct zt_span key)
{
    struct zt_span value;
    zt_err rc = zt_kv_get(s->hub->kv, key, &value);

    if (!rc)
        reply(s, ZT_STORE_OK, value.data, value.bytes);
    return rc;
}

/* From inside a change by somebody else. */
static void wait_is_over(struct zt_kv_wait *w)
{
    struct zt_session *s =
        (struct zt_session *)((char *)w - offsetof(struct zt_session, wait));
    zt_store_op op = s->waiting_for;
    struct zt_buf key = s->key; /* outlives zt_session_stop_waiting() */

    zt_buf_init(&s->key, ZT_STORE_KEY);
    zt_session_stop_waiting(s);
    if (op == ZT_STORE_GET) {
        if (answer_get(s, (struct zt_span){zt_buf_head(&key), zt_buf_used(&key)}))
            s->peer->drop(s->peer); /* cannot be: it has just come */
    } else {
        zt_session_reply_ok(s);
    }
    zt_buf_release(&key);
}

static zt_err wait_for(struct zt_session *s, const struct zt_store_request *r,
                       const struct zt_span *keys, uint32_t num_keys, double now)
{
    zt_err rc = ZT_OK;

    s->wait.done = wait_is_over;
    if (r->op == ZT_STORE_GET)
        rc = zt_buf_put(&s->key, r->key.data, r->key.bytes);
    if (!rc)
        rc = zt_kv_wait(s->hub->kv, &s->wait, keys, num_keys);
    if (!rc && s->wait.missing) {
        zt_session_start_waiting(s, r->op, r->timeout_ms, now);
        return ZT_OK;
    }
    zt_buf_release(&s->key);
    if (rc)
        return reply_limit(s, rc);
    zt_session_reply_ok(s); /* WAIT for keys that are there: GET does not come here */
    return ZT_OK;
}

static zt_err do_get(struct zt_session *s, const struct zt_store_request *r, double now)
{
    char text[300];

    if (!answer_get(s, r->key))
        return ZT_OK;
    if (r->timeout_ms)
        return wait_for(s, r, &r->key, 1, now);
    snprintf(text, sizeof(text), "key \"%.*s\" is not set",
             (int)(r->key.bytes < 200 ? r->key.bytes : 200), (const char *)r->key.data);
    zt_session_reply_text(s, ZT_STORE_ABSENT, text);
    return ZT_OK;
}

static zt_err do_wait(struct zt_session *s, const struct zt_store_request *r, double now)
{
    bool all = true;

    for (uint32_t i = 0; i < r->num_keys; i++)
        all = all && zt_kv_has(s->hub->kv, r->keys[i]);
    if (!all && !r->timeout_ms) {
        zt_session_reply_text(s, ZT_STORE_ABSENT, "not all of the keys are set");
        return ZT_OK;
    }
    return wait_for(s, r, r->keys, r->num_keys, now);
}

static zt_err do_set(struct zt_session *s, const struct zt_store_request *r)
{
    zt_err rc = zt_kv_set(s->hub->kv, r->key, r->value);

    if (rc)
        return reply_limit(s, rc);
    zt_session_reply_ok(s);
    return ZT_OK;
}

static zt_err do_add(struct zt_session *s, const struct zt_store_request *r)
{
    uint8_t body[8];
    int64_t v;
    zt_err rc = zt_kv_add(s->hub->kv, r->key, r->delta, &v);

    if (rc)
        return reply_limit(s, rc);
    zt_store_put_i64(body, v);
    reply(s, ZT_STORE_OK, body, sizeof(body));
    return ZT_OK;
}

static zt_err do_cas(struct zt_session *s, const struct zt_store_request *r)
{
    struct zt_span now;
    struct zt_buf body;
    bool stored;
    zt_err rc =
        zt_kv_compare_set(s->hub->kv, r->key, r->expected, r->value, &stored, &now);

    if (rc)
        return reply_limit(s, rc);
    zt_buf_init(&body, now.bytes + 1);
    rc = zt_buf_put_u8(&body, stored);
    if (!rc)
        rc = zt_buf_put(&body, now.data, now.bytes);
    if (!rc)
        reply(s, ZT_STORE_OK, zt_buf_head(&body), zt_buf_used(&body));
    zt_buf_release(&body);
    return rc;
}

static zt_err do_delete(struct zt_session *s, const struct zt_store_request *r)
{
    uint8_t was = zt_kv_delete(s->hub->kv, r->key);

    reply(s, ZT_STORE_OK, &was, 1);
    return ZT_OK;
}

static zt_err do_join(struct zt_session *s, const struct zt_store_request *r)
{
    char text[ZT_SESSION_TEXT];
    zt_err rc;

    if (s->is_member)
        return ZT_E_FORMAT;
    rc =
        zt_members_join(&s->hub->members, r->index, r->count, r->key, text, sizeof(text));
    if (rc == ZT_E_ARG) {
        zt_session_reply_text(s, ZT_STORE_REFUSED, text);
        return ZT_OK;
    }
    if (rc)
        return rc;
    s->is_member = true;
    s->index = r->index;
    zt_session_reply_ok(s);
    return ZT_OK;
}

/* ---------------------------------------------------------------- sessions */

static zt_err run(struct zt_session *s, uint8_t op, struct zt_span body, double now)
{
    struct zt_store_request r;
    zt_err rc = zt_store_parse(op, body, &r);

    if (rc)
        return rc;
    switch (r.op) {
    case ZT_STORE_JOIN:
        return do_join(s, &r);
    case ZT_STORE_SET:
        return do_set(s, &r);
    case ZT_STORE_GET:
        return do_get(s, &r, now);
    case ZT_STORE_ADD:
        return do_add(s, &r);
    case ZT_STORE_CAS:
        return do_cas(s, &r);
    case ZT_STORE_WAIT:
        return do_wait(s, &r, now);
    case ZT_STORE_DELETE:
        return do_delete(s, &r);
    case ZT_STORE_BARRIER:
        return zt_barrier_come(s, &r, now);
    }
    return ZT_E_FORMAT;
}

/* Requests that lie whole in `in`, up to the first that has to wait. */
static zt_err run_all(struct zt_session *s, struct zt_buf *in, double now)
{
    struct zt_span body;
    uint8_t op;
    size_t n;

    while (!s->ended) {
        zt_err rc = zt_store_peek(in, &op, &body, &n);

        if (rc == ZT_E_SHORT)
            return s->waiting_for && zt_buf_used(in) ? ZT_E_FORMAT : ZT_OK;
        if (!rc && s->waiting_for)
            rc = ZT_E_FORMAT; /* one request at a time */
        if (!rc)
            rc = run(s, op, body, now);
        if (rc)
            return rc;
        zt_buf_drop(in, n);
    }
    return ZT_OK;
}

zt_err zt_session_feed(struct zt_session *s, const void *data, size_t bytes, double now)
{
    struct zt_buf view = {
        .data = (uint8_t *)data, .len = bytes, .cap = bytes, .max = bytes};
    zt_err rc;

    if (s->ended)
        return ZT_OK;
    if (!zt_buf_used(&s->in)) { /* most of the time: no copy, no memory */
        rc = run_all(s, &view, now);
        if (!rc && !s->ended && zt_buf_used(&view))
            rc = zt_buf_put(&s->in, zt_buf_head(&view), zt_buf_used(&view));
        return rc;
    }
    rc = zt_buf_put(&s->in, data, bytes);
    if (!rc)
        rc = run_all(s, &s->in, now);
    if (!zt_buf_used(&s->in))
        zt_buf_release(&s->in); /* thousands of clients are idle most of the time */
    return rc;
}

bool zt_session_is_partial(const struct zt_session *s)
{
    return zt_buf_used(&s->in) > 0;
}

zt_err zt_session_open(struct zt_hub *h, struct zt_peer *peer, struct zt_session **out)
{
    struct zt_session *s = calloc(1, sizeof(*s));

    if (!s)
        return ZT_E_NOMEM;
    s->hub = h;
    s->peer = peer;
    zt_buf_init(&s->key, ZT_STORE_KEY);
    zt_buf_init(&s->in, 2 * ((size_t)ZT_STORE_MESSAGE + 4));
    s->next = h->all;
    if (s->next)
        s->next->prev = s;
    h->all = s;
    *out = s;
    return ZT_OK;
}

void zt_session_close(struct zt_session *s)
{
    struct zt_hub *h;

    if (!s)
        return;
    h = s->hub;
    zt_session_stop_waiting(s);
    if (s->is_member)
        zt_members_leave(&h->members, s->index);
    if (s->prev)
        s->prev->next = s->next;
    else
        h->all = s->next;
    if (s->next)
        s->next->prev = s->prev;
    zt_buf_release(&s->in);
    zt_buf_release(&s->key);
    free(s);
}
