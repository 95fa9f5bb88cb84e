/*
 * kv.c -- a chained hash table. An entry lives while it has a value, a queue, or a
 * waiter:
 *
 *      entry: key, value?, queue of items, list of links -> waits
 *      wait:  array of links, one for each key it misses
 *
 * A link that is done with has entry == NULL; the array goes when the wait ends.
 */
#include "store/core/kv.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#define FIRST_BUCKETS 64u

struct item {
    struct item *next;
    size_t bytes;
    uint8_t data[];
};

struct zt_kv_link {
    struct zt_kv_wait *wait;
    struct kv_entry *entry;
    struct zt_kv_link *prev, *next; /* waits of the same entry, oldest first */
};

struct kv_entry {
    struct kv_entry *next; /* in the bucket */
    uint64_t hash;
    bool present;
    uint8_t *value;
    size_t value_bytes;
    struct item *head, *tail;
    size_t queue_len;
    struct zt_kv_link *first, *last;
    size_t key_bytes;
    uint8_t key[];
};

struct zt_kv {
    struct zt_kv_limits limits;
    struct kv_entry **buckets;
    size_t num_buckets, num_entries, num_present, used;
    uint8_t hash_key[crypto_shorthash_KEYBYTES]; /* so that nobody can aim at a bucket */
};

zt_err zt_kv_open(const struct zt_kv_limits *limits, struct zt_kv **out)
{
    struct zt_kv *kv = calloc(1, sizeof(*kv));

    if (!kv || sodium_init() < 0) {
        free(kv);
        return ZT_E_NOMEM;
    }
    kv->limits = *limits;
    kv->num_buckets = FIRST_BUCKETS;
    kv->buckets = calloc(kv->num_buckets, sizeof(struct kv_entry *));
    if (!kv->buckets) {
        free(kv);
        return ZT_E_NOMEM;
    }
    crypto_shorthash_keygen(kv->hash_key);
    *out = kv;
    return ZT_OK;
}

/* ---------------------------------------------------------------- entries */

static uint64_t hash_of(const struct zt_kv *kv, struct zt_span key)
{
    uint8_t h[crypto_shorthash_BYTES];
    uint64_t v;

    crypto_shorthash(h, key.data, key.bytes, kv->hash_key);
    memcpy(&v, h, sizeof(v));
    return v;
}

static struct kv_entry *find_hash(const struct zt_kv *kv, struct zt_span key,
                                  uint64_t hash)
{
    struct kv_entry *e = kv->buckets[hash & (kv->num_buckets - 1)];

    while (e && (e->hash != hash || e->key_bytes != key.bytes ||
                 (key.bytes && memcmp(e->key, key.data, key.bytes) != 0)))
        e = e->next;
    return e;
}

static struct kv_entry *find(const struct zt_kv *kv, struct zt_span key)
{
    return find_hash(kv, key, hash_of(kv, key));
}

/* Twice the buckets; without memory for them chains get longer, that is all. */
static void grow(struct zt_kv *kv)
{
    size_t n = 2 * kv->num_buckets;
    struct kv_entry **buckets = calloc(n, sizeof(struct kv_entry *));

    if (!buckets)
        return;
    for (size_t i = 0; i < kv->num_buckets; i++)
        for (struct kv_entry *e = kv->buckets[i], *next; e; e = next) {
            next = e->next;
            e->next = buckets[e->hash & (n - 1)];
            buckets[e->hash & (n - 1)] = e;
        }
    free(kv->buckets);
    kv->buckets = buckets;
    kv->num_buckets = n;
}

static bool has_room(const struct zt_kv *kv, size_t more)
{
    return kv->used <= kv->limits.total_bytes &&
           more <= kv->limits.total_bytes - kv->used;
}

/* The entry of a key, made if there is none. */
static zt_err obtain(struct zt_kv *kv, struct zt_span key, struct kv_entry **out)
{
    uint64_t hash = hash_of(kv, key);
    struct kv_entry *e = find_hash(kv, key, hash);

    if (!e) {
        if (key.bytes > kv->limits.key_bytes || kv->num_entries >= kv->limits.num_keys ||
            !has_room(kv, sizeof(*e) + key.bytes))
            return ZT_E_LIMIT;
        e = calloc(1, sizeof(*e) + key.bytes);
        if (!e)
            return ZT_E_NOMEM;
        if (kv->num_entries >= kv->num_buckets)
            grow(kv);
        e->hash = hash;
        e->key_bytes = key.bytes;
        if (key.bytes)
            memcpy(e->key, key.data, key.bytes);
        e->next = kv->buckets[hash & (kv->num_buckets - 1)];
        kv->buckets[hash & (kv->num_buckets - 1)] = e;
        kv->num_entries++;
        kv->used += sizeof(*e) + key.bytes;
    }
    *out = e;
    return ZT_OK;
}

static void drop_value(struct zt_kv *kv, struct kv_entry *e)
{
    kv->num_present -= e->present;
    kv->used -= e->value_bytes;
    free(e->value);
    e->value = NULL;
    e->value_bytes = 0;
    e->present = false;
}

static struct item *take_item(struct zt_kv *kv, struct kv_entry *e)
{
    struct item *it = e->head;

    e->head = it->next;
    if (!e->head)
        e->tail = NULL;
    e->queue_len--;
    kv->used -= sizeof(*it) + it->bytes;
    return it;
}

/* Gone, unless something still needs it. */
static void settle(struct zt_kv *kv, struct kv_entry *e)
{
    struct kv_entry **at = &kv->buckets[e->hash & (kv->num_buckets - 1)];

    if (e->present || e->head || e->first)
        return;
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    kv->num_entries--;
    kv->used -= sizeof(*e) + e->key_bytes;
    free(e);
}

void zt_kv_clear(struct zt_kv *kv)
{
    for (size_t i = 0; i < kv->num_buckets; i++)
        for (struct kv_entry *e = kv->buckets[i], *next; e; e = next) {
            next = e->next;
            drop_value(kv, e);
            while (e->head)
                free(take_item(kv, e));
            settle(kv, e);
        }
}

void zt_kv_close(struct zt_kv *kv)
{
    if (!kv)
        return;
    zt_kv_clear(kv);
    free(kv->buckets);
    free(kv);
}

/* ---------------------------------------------------------------- waits */

static void unlink_one(struct zt_kv_link *l)
{
    struct kv_entry *e = l->entry;

    assert(e);
    if (l->prev)
        l->prev->next = l->next;
    else
        e->first = l->next;
    if (l->next)
        l->next->prev = l->prev;
    else
        e->last = l->prev;
    l->entry = NULL;
}

static void free_links(struct zt_kv *kv, struct zt_kv_wait *w)
{
    kv->used -= w->num_links * sizeof(*w->links);
    free(w->links);
    w->links = NULL;
    w->num_links = 0;
}

/* The key of `e` has come: for everybody, or for whoever waited longest. */
static void wake(struct zt_kv *kv, struct kv_entry *e, bool all)
{
    while (e->first) {
        struct zt_kv_link *l = e->first;
        struct zt_kv_wait *w = l->wait;

        unlink_one(l);
        if (--w->missing == 0) {
            free_links(kv, w);
            w->done(w);
        }
        if (!all)
            return;
    }
}

void zt_kv_unwait(struct zt_kv *kv, struct zt_kv_wait *w)
{
    for (size_t i = 0; i < w->num_links; i++) {
        struct kv_entry *e = w->links[i].entry;

        if (!e)
            continue;
        unlink_one(&w->links[i]);
        settle(kv, e);
    }
    free_links(kv, w);
    w->missing = 0;
}

static bool is_there(const struct kv_entry *e)
{
    return e && (e->present || e->head);
}

static bool waits_already(const struct kv_entry *e, const struct zt_kv_wait *w)
{
    return e->last && e->last->wait == w; /* nobody else came in between */
}

zt_err zt_kv_wait(struct zt_kv *kv, struct zt_kv_wait *w, const struct zt_span *keys,
                  size_t num_keys)
{
    size_t bytes = num_keys * sizeof(*w->links);
    zt_err rc = ZT_OK;

    w->missing = 0;
    w->links = NULL;
    w->num_links = 0;
    for (size_t i = 0; i < num_keys; i++)
        w->missing += !zt_kv_has(kv, keys[i]);
    if (!w->missing)
        return ZT_OK;
    w->missing = 0;
    if (num_keys > kv->limits.wait_keys || !has_room(kv, bytes))
        return ZT_E_LIMIT;
    w->links = calloc(num_keys, sizeof(*w->links));
    if (!w->links)
        return ZT_E_NOMEM;
    w->num_links = num_keys;
    kv->used += bytes;
    for (size_t i = 0; !rc && i < num_keys; i++) {
        struct zt_kv_link *l = &w->links[i];
        struct kv_entry *e;

        if (zt_kv_has(kv, keys[i]))
            continue;
        rc = obtain(kv, keys[i], &e);
        if (rc || waits_already(e, w))
            continue;
        *l = (struct zt_kv_link){w, e, e->last, NULL};
        *(e->last ? &e->last->next : &e->first) = l;
        e->last = l;
        w->missing++;
    }
    if (rc)
        zt_kv_unwait(kv, w);
    return rc;
}

struct zt_span zt_kv_missing(const struct zt_kv_wait *w)
{
    for (size_t i = 0; i < w->num_links; i++) {
        const struct kv_entry *e = w->links[i].entry;

        if (e)
            return (struct zt_span){e->key, e->key_bytes};
    }
    return (struct zt_span){"", 0};
}

/* ---------------------------------------------------------------- values */

/* The value becomes a copy of a, then b; the old one may be `a`. */
static zt_err store(struct zt_kv *kv, struct kv_entry *e, struct zt_span a,
                    struct zt_span b)
{
    uint8_t *value;

    if (a.bytes > kv->limits.value_bytes || b.bytes > kv->limits.value_bytes - a.bytes ||
        (a.bytes + b.bytes > e->value_bytes &&
         !has_room(kv, a.bytes + b.bytes - e->value_bytes)))
        return ZT_E_LIMIT;
    value = malloc(a.bytes + b.bytes + 1);
    if (!value)
        return ZT_E_NOMEM;
    if (a.bytes)
        memcpy(value, a.data, a.bytes);
    if (b.bytes)
        memcpy(value + a.bytes, b.data, b.bytes);
    drop_value(kv, e);
    e->value = value;
    e->value_bytes = a.bytes + b.bytes;
    e->present = true;
    kv->used += e->value_bytes;
    kv->num_present++;
    return ZT_OK;
}

static zt_err put(struct zt_kv *kv, struct zt_span key, struct zt_span a,
                  struct zt_span b, bool keep)
{
    struct kv_entry *e;
    zt_err rc = obtain(kv, key, &e);

    if (rc)
        return rc;
    if (keep)
        a = (struct zt_span){e->value, e->value_bytes};
    rc = store(kv, e, a, b);
    if (rc)
        settle(kv, e);
    else
        wake(kv, e, true);
    return rc;
}

zt_err zt_kv_set(struct zt_kv *kv, struct zt_span key, struct zt_span value)
{
    return put(kv, key, value, (struct zt_span){0}, false);
}

zt_err zt_kv_append(struct zt_kv *kv, struct zt_span key, struct zt_span value)
{
    return put(kv, key, (struct zt_span){0}, value, true);
}

zt_err zt_kv_get(const struct zt_kv *kv, struct zt_span key, struct zt_span *out)
{
    const struct kv_entry *e = find(kv, key);

    if (!e || !e->present)
        return ZT_E_NOINPUT;
    *out = (struct zt_span){e->value, e->value_bytes};
    return ZT_OK;
}

static zt_err read_number(const struct kv_entry *e, int64_t *out)
{
    char text[24], *end;
    long long v;

    if (!e->value_bytes || e->value_bytes >= sizeof(text))
        return ZT_E_FORMAT;
    memcpy(text, e->value, e->value_bytes);
    text[e->value_bytes] = 0;
    if (text[0] != '-' && (text[0] < '0' || text[0] > '9'))
        return ZT_E_FORMAT;
    errno = 0;
    v = strtoll(text, &end, 10);
    if (errno || end != text + e->value_bytes)
        return ZT_E_FORMAT;
    *out = v;
    return ZT_OK;
}

zt_err zt_kv_add(struct zt_kv *kv, struct zt_span key, int64_t delta, int64_t *out)
{
    const struct kv_entry *e = find(kv, key);
    int64_t v = 0;
    char text[24];
    int n;
    zt_err rc = e && e->present ? read_number(e, &v) : ZT_OK;

    if (rc)
        return rc;
    if (__builtin_add_overflow(v, delta, &v))
        return ZT_E_FORMAT;
    n = snprintf(text, sizeof(text), "%lld", (long long)v);
    rc = zt_kv_set(kv, key, (struct zt_span){text, (size_t)n});
    if (!rc)
        *out = v;
    return rc;
}

zt_err zt_kv_compare_set(struct zt_kv *kv, struct zt_span key, struct zt_span expected,
                         struct zt_span desired, bool *stored, struct zt_span *now)
{
    const struct kv_entry *e = find(kv, key);
    bool there = e && e->present;
    zt_err rc;

    *stored = false;
    *now = (struct zt_span){0};
    if (there
            ? e->value_bytes != expected.bytes ||
                  (expected.bytes && memcmp(e->value, expected.data, expected.bytes) != 0)
            : expected.bytes > 0) {
        if (there)
            *now = (struct zt_span){e->value, e->value_bytes};
        return ZT_OK;
    }
    rc = zt_kv_set(kv, key, desired);
    if (rc)
        return rc;
    *stored = true;
    return zt_kv_get(kv, key, now);
}

bool zt_kv_delete(struct zt_kv *kv, struct zt_span key)
{
    struct kv_entry *e = find(kv, key);

    if (!e || !e->present)
        return false;
    drop_value(kv, e);
    settle(kv, e);
    return true;
}

void zt_kv_each(const struct zt_kv *kv, void (*see)(void *ctx, struct zt_span key),
                void *ctx)
{
    for (size_t i = 0; i < kv->num_buckets; i++)
        for (const struct kv_entry *e = kv->buckets[i]; e; e = e->next)
            if (e->present)
                see(ctx, (struct zt_span){e->key, e->key_bytes});
}

size_t zt_kv_count(const struct zt_kv *kv)
{
    return kv->num_present;
}

bool zt_kv_has(const struct zt_kv *kv, struct zt_span key)
{
    return is_there(find(kv, key));
}

/* ---------------------------------------------------------------- queues */

zt_err zt_kv_push(struct zt_kv *kv, struct zt_span key, struct zt_span value)
{
    struct item *it = NULL;
    struct kv_entry *e;
    zt_err rc = obtain(kv, key, &e);

    if (rc)
        return rc;
    if (value.bytes > kv->limits.value_bytes || !has_room(kv, sizeof(*it) + value.bytes))
        rc = ZT_E_LIMIT;
    else if (!(it = malloc(sizeof(*it) + value.bytes)))
        rc = ZT_E_NOMEM;
    if (rc) {
        settle(kv, e);
        return rc;
    }
    it->next = NULL;
    it->bytes = value.bytes;
    if (value.bytes)
        memcpy(it->data, value.data, value.bytes);
    *(e->tail ? &e->tail->next : &e->head) = it;
    e->tail = it;
    e->queue_len++;
    kv->used += sizeof(*it) + value.bytes;
    wake(kv, e, false);
    return ZT_OK;
}

size_t zt_kv_queue_len(const struct zt_kv *kv, struct zt_span key)
{
    const struct kv_entry *e = find(kv, key);

    return e ? e->queue_len : 0;
}

void *zt_kv_pop(struct zt_kv *kv, struct zt_span key, size_t *bytes)
{
    struct kv_entry *e = find(kv, key);
    struct item *it;

    if (!e || !e->head)
        return NULL;
    it = take_item(kv, e);
    settle(kv, e);
    *bytes = it->bytes;
    memmove(it, it->data,
            it->bytes); /* the block becomes the value; its head is done with */
    return it;
}
