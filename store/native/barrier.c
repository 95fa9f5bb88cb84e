/*
 * barrier.c -- barriers of the rendezvous store: who came, and who let the others wait.
 */
#include "store/native/session_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BARRIERS 1024u /* open at a time */

static struct store_barrier *find_barrier(const struct zt_hub *h, struct zt_span name)
{
    struct store_barrier *b = h->barriers;

    while (b &&
           (b->name_bytes != name.bytes || memcmp(b->name, name.data, name.bytes) != 0))
        b = b->next;
    return b;
}

static struct store_barrier *new_barrier(struct zt_hub *h, struct zt_span name,
                                         uint32_t count)
{
    struct store_barrier *b = calloc(1, sizeof(*b) + name.bytes);
    uint8_t *came = calloc((count + 7) / 8, 1);

    if (!b || !came) {
        free(b);
        free(came);
        return NULL;
    }
    b->count = count;
    b->came = came;
    b->name_bytes = name.bytes;
    if (name.bytes)
        memcpy(b->name, name.data, name.bytes);
    b->next = h->barriers;
    if (b->next)
        b->next->prev = b;
    h->barriers = b;
    h->num_barriers++;
    return b;
}

static void free_barrier(struct zt_hub *h, struct store_barrier *b)
{
    if (b->prev)
        b->prev->next = b->next;
    else
        h->barriers = b->next;
    if (b->next)
        b->next->prev = b->prev;
    h->num_barriers--;
    free(b->came);
    free(b);
}

void zt_barrier_leave(struct zt_session *s)
{
    struct store_barrier *b = s->barrier;

    s->barrier = NULL;
    if (s->prev_in_barrier)
        s->prev_in_barrier->next_in_barrier = s->next_in_barrier;
    else
        b->waiting = s->next_in_barrier;
    if (s->next_in_barrier)
        s->next_in_barrier->prev_in_barrier = s->prev_in_barrier;
    b->came[s->barrier_index / 8] &= (uint8_t) ~(1u << (s->barrier_index % 8));
    if (--b->num_came == 0)
        free_barrier(s->hub, b);
}

/* Everybody came: the barrier goes first, so that whoever is answered can start anew. */
static void open_barrier(struct zt_session *last)
{
    struct zt_session *s = last->barrier->waiting, *next;

    for (; s; s = next) {
        next = s->next_in_barrier;
        zt_session_stop_waiting(s);
        zt_session_reply_ok(s);
    }
}

static bool barrier_refused(struct zt_session *s, const struct store_barrier *b,
                            const struct zt_store_request *r)
{
    const char *noun = s->hub->members.noun;
    char text[ZT_SESSION_TEXT];

    if (b && b->count != r->count)
        snprintf(text, sizeof(text),
                 "barrier \"%.*s\": %s %u says it is for %u, others for %u",
                 (int)(r->key.bytes < 200 ? r->key.bytes : 200),
                 (const char *)r->key.data, noun, r->index, r->count, b->count);
    else if (b && b->came[r->index / 8] >> (r->index % 8) & 1)
        snprintf(text, sizeof(text), "barrier \"%.*s\": %s %u is in it already",
                 (int)(r->key.bytes < 200 ? r->key.bytes : 200),
                 (const char *)r->key.data, noun, r->index);
    else if (!b && s->hub->num_barriers >= MAX_BARRIERS)
        snprintf(text, sizeof(text), "%u barriers are open: no more", MAX_BARRIERS);
    else
        return false;
    zt_session_reply_text(s, ZT_STORE_REFUSED, text);
    return true;
}

zt_err zt_barrier_come(struct zt_session *s, const struct zt_store_request *r, double now)
{
    struct store_barrier *b = find_barrier(s->hub, r->key);

    if (barrier_refused(s, b, r))
        return ZT_OK;
    if (!b)
        b = new_barrier(s->hub, r->key, r->count);
    if (!b)
        return ZT_E_NOMEM;
    b->came[r->index / 8] |= (uint8_t)(1u << (r->index % 8));
    b->num_came++;
    s->barrier = b;
    s->barrier_index = r->index;
    s->prev_in_barrier = NULL;
    s->next_in_barrier = b->waiting;
    if (b->waiting)
        b->waiting->prev_in_barrier = s;
    b->waiting = s;
    zt_session_start_waiting(s, ZT_STORE_BARRIER, r->timeout_ms, now);
    if (b->num_came == b->count)
        open_barrier(s);
    return ZT_OK;
}

/*
 * One member's time is over: the barrier has failed for everybody in it, with the same
 * sentence; else those who wait longer would name this member as missing.
 */
void zt_barrier_expire(struct zt_session *s, double waited)
{
    const struct store_barrier *b = s->barrier;
    char text[ZT_SESSION_TEXT], who[1024] = "";
    struct zt_names names = {who, sizeof(who), 0, 0};

    for (uint32_t i = 0; i < b->count; i++)
        if (!(b->came[i / 8] >> (i % 8) & 1))
            zt_names_add(&names, &s->hub->members, i);
    zt_names_end(&names);
    snprintf(text, sizeof(text),
             "barrier \"%.*s\": %u of %u have not come within %.1f s: %s",
             (int)(b->name_bytes < 200 ? b->name_bytes : 200), b->name, names.num,
             b->count, waited, who);
    s = b->waiting;
    for (struct zt_session *next; s; s = next) {
        next = s->next_in_barrier;
        zt_session_stop_waiting(s);
        zt_session_reply_text(s, ZT_STORE_TIMEOUT, text);
    }
}
