#include "worker/daemon/pmi.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORDS 8 /* key=value pairs of a line; more are ignored */

struct client {
    char line[ZT_PMI_LINE]; /* what came of the next one */
    size_t len;
    bool began, ended, waits, deaf;
    int abort_code; /* 0: it called none */
};

struct pair {
    struct pair *next;
    char *key, *value;
};

#define NUM_BUCKETS 1024u /* a power of two */

struct zt_pmi {
    int world, num_waiting, num_keys;
    char name[ZT_PMI_NAME];
    zt_pmi_send_fn send;
    void *arg;
    struct client *client; /* (world) */
    struct pair *bucket[NUM_BUCKETS];
};

/* One message: "cmd=put kvsname=a key=b value=c", cut in place. */
struct message {
    char *key[MAX_WORDS], *value[MAX_WORDS];
    int num;
};

/* ------------------------------------------------------------------ keys and values */
static struct pair **place_of(struct zt_pmi *p, const char *key)
{
    uint32_t h = 2166136261u;
    struct pair **at;

    for (const char *c = key; *c; c++)
        h = (h ^ (uint8_t)*c) * 16777619u;
    at = &p->bucket[h & (NUM_BUCKETS - 1)];
    while (*at && strcmp((*at)->key, key) != 0)
        at = &(*at)->next;
    return at;
}

/* NULL: kept; else why not, as a word. */
static const char *keep(struct zt_pmi *p, const char *key, const char *value)
{
    struct pair **at = place_of(p, key), *pair = *at;
    char *copy;

    if (strlen(key) >= ZT_PMI_KEY || strlen(value) >= ZT_PMI_VALUE)
        return "too_long";
    if (!pair && p->num_keys >= ZT_PMI_MAX_KEYS)
        return "too_many_keys";
    copy = strdup(value);
    if (!copy)
        return "no_memory";
    if (!pair) {
        pair = calloc(1, sizeof(*pair));
        if (pair)
            pair->key = strdup(key);
        if (!pair || !pair->key) {
            free(pair);
            free(copy);
            return "no_memory";
        }
        *at = pair;
        p->num_keys++;
    }
    free(pair->value);
    pair->value = copy;
    return NULL;
}

/* ------------------------------------------------------------------ lines */
static void say(struct zt_pmi *p, int rank, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void say(struct zt_pmi *p, int rank, const char *fmt, ...)
{
    char line[ZT_PMI_LINE];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof(line) || !p->send(p->arg, rank, line, (size_t)n))
        p->client[rank].deaf = true;
}

/* False: no message. Words without '=' are skipped, as libraries do. */
static bool parse(char *line, struct message *m)
{
    char *save = NULL;

    m->num = 0;
    for (char *word = strtok_r(line, " ", &save); word && m->num < MAX_WORDS;
         word = strtok_r(NULL, " ", &save)) {
        char *equals = strchr(word, '=');

        if (!equals)
            continue;
        *equals = 0;
        m->key[m->num] = word;
        m->value[m->num++] = equals + 1;
    }
    return m->num > 0 && strcmp(m->key[0], "cmd") == 0;
}

/* The value of a key of the message; NULL: it has none. */
static const char *get(const struct message *m, const char *key)
{
    for (int i = 0; i < m->num; i++)
        if (strcmp(m->key[i], key) == 0)
            return m->value[i];
    return NULL;
}

/* ------------------------------------------------------------------ what ranks say */
static zt_pmi_state on_init(struct zt_pmi *p, int rank, const struct message *m)
{
    const char *version = get(m, "pmi_version");
    bool fine = version && strcmp(version, "1") == 0;

    p->client[rank].began = p->client[rank].began || fine;
    say(p, rank, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=%d\n",
        fine ? 0 : -1);
    return ZT_PMI_FINE;
}

static zt_pmi_state on_get_maxes(struct zt_pmi *p, int rank, const struct message *m)
{
    (void)m;
    say(p, rank, "cmd=maxes kvsname_max=%d keylen_max=%d vallen_max=%d\n", ZT_PMI_NAME,
        ZT_PMI_KEY, ZT_PMI_VALUE);
    return ZT_PMI_FINE;
}

static zt_pmi_state on_get_appnum(struct zt_pmi *p, int rank, const struct message *m)
{
    (void)m;
    say(p, rank, "cmd=appnum appnum=0\n");
    return ZT_PMI_FINE;
}

static zt_pmi_state on_get_name(struct zt_pmi *p, int rank, const struct message *m)
{
    (void)m;
    say(p, rank, "cmd=my_kvsname kvsname=%s\n", p->name);
    return ZT_PMI_FINE;
}

static zt_pmi_state on_get_universe(struct zt_pmi *p, int rank, const struct message *m)
{
    (void)m;
    say(p, rank, "cmd=universe_size size=%d\n", p->world);
    return ZT_PMI_FINE;
}

static zt_pmi_state on_put(struct zt_pmi *p, int rank, const struct message *m)
{
    const char *name = get(m, "kvsname"), *key = get(m, "key"), *value = get(m, "value");
    const char *why = !key || !value || !*key         ? "incomplete"
                      : name && strcmp(name, p->name) ? "unknown_kvsname"
                                                      : keep(p, key, value);

    say(p, rank, "cmd=put_result rc=%d msg=%s\n", why ? -1 : 0, why ? why : "success");
    return ZT_PMI_FINE;
}

static zt_pmi_state on_get(struct zt_pmi *p, int rank, const struct message *m)
{
    const char *name = get(m, "kvsname"), *key = get(m, "key");
    struct pair *found =
        key && (!name || strcmp(name, p->name) == 0) ? *place_of(p, key) : NULL;

    if (found)
        say(p, rank, "cmd=get_result rc=0 msg=success value=%s\n", found->value);
    else
        say(p, rank, "cmd=get_result rc=-1 msg=not_found value=unknown\n");
    return ZT_PMI_FINE;
}

static zt_pmi_state on_barrier(struct zt_pmi *p, int rank, const struct message *m)
{
    (void)m;
    if (p->client[rank].waits)
        return ZT_PMI_BAD; /* it must wait for the answer to the first */
    p->client[rank].waits = true;
    if (++p->num_waiting < p->world)
        return ZT_PMI_FINE;
    p->num_waiting = 0;
    for (int r = 0; r < p->world; r++) {
        p->client[r].waits = false;
        say(p, r, "cmd=barrier_out\n");
    }
    return ZT_PMI_FINE;
}

static zt_pmi_state on_finalize(struct zt_pmi *p, int rank, const struct message *m)
{
    (void)m;
    p->client[rank].ended = true;
    say(p, rank, "cmd=finalize_ack\n");
    return ZT_PMI_FINE;
}

/* No answer: the library waits for one until it is killed, and would go on with it. */
static zt_pmi_state on_abort(struct zt_pmi *p, int rank, const struct message *m)
{
    const char *code = get(m, "exitcode");
    int n = code ? (int)(strtol(code, NULL, 10) & 255) : 0;

    p->client[rank].abort_code = n ? n : 1;
    return ZT_PMI_ABORT;
}

static const struct {
    const char *name;
    zt_pmi_state (*handle)(struct zt_pmi *p, int rank, const struct message *m);
} handlers[] = {
    {"init", on_init},
    {"get_maxes", on_get_maxes},
    {"get_appnum", on_get_appnum},
    {"get_my_kvsname", on_get_name},
    {"get_universe_size", on_get_universe},
    {"put", on_put},
    {"get", on_get},
    {"barrier_in", on_barrier},
    {"finalize", on_finalize},
    {"abort", on_abort},
};

/* Optional services that we have not, with what their client waits for. */
static const struct {
    const char *name, *answer;
} refusals[] = {
    {"publish_name", "publish_result"},
    {"unpublish_name", "unpublish_result"},
    {"lookup_name", "lookup_result"},
};

static zt_pmi_state on_line(struct zt_pmi *p, int rank, char *line)
{
    struct message m;

    if (!parse(line, &m))
        return ZT_PMI_BAD;
    for (size_t i = 0; i < sizeof(handlers) / sizeof(*handlers); i++)
        if (strcmp(handlers[i].name, m.value[0]) == 0) {
            if (handlers[i].handle != on_init && !p->client[rank].began)
                return ZT_PMI_BAD;
            return handlers[i].handle(p, rank, &m);
        }
    for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++)
        if (strcmp(refusals[i].name, m.value[0]) == 0) {
            say(p, rank, "cmd=%s rc=-1 msg=unsupported\n", refusals[i].answer);
            return ZT_PMI_FINE;
        }
    return ZT_PMI_BAD; /* spawn among others: nobody can wait for an answer to it */
}

zt_pmi_state zt_pmi_feed(struct zt_pmi *p, int rank, const char *bytes, size_t n)
{
    struct client *c = &p->client[rank];
    zt_pmi_state state = ZT_PMI_FINE;

    for (size_t i = 0; i < n && !c->deaf; i++) {
        if (bytes[i] != '\n') {
            if (!bytes[i] || c->len == sizeof(c->line) - 1)
                c->deaf = true;
            else
                c->line[c->len++] = bytes[i];
            continue;
        }
        c->line[c->len] = 0;
        c->len = 0;
        state = on_line(p, rank, c->line);
        if (state == ZT_PMI_BAD)
            c->deaf = true;
        if (state == ZT_PMI_ABORT)
            return state;
    }
    return c->deaf ? ZT_PMI_BAD : ZT_PMI_FINE;
}

bool zt_pmi_is_inside(const struct zt_pmi *p, int rank)
{
    return p->client[rank].began && !p->client[rank].ended;
}

int zt_pmi_abort_code(const struct zt_pmi *p, int rank)
{
    return p->client[rank].abort_code;
}

/* ------------------------------------------------------------------ open, close */
zt_err zt_pmi_open(int world, const char *name, zt_pmi_send_fn send, void *arg,
                   struct zt_pmi **out, struct zt_fault *fault)
{
    struct zt_pmi *p = calloc(1, sizeof(*p));
    char mapping[64];

    if (p)
        p->client = calloc((size_t)world, sizeof(*p->client));
    if (!p || !p->client) {
        zt_pmi_close(p);
        return zt_fault_set(fault, ZT_E_NOMEM, "PMI server: no memory");
    }
    p->world = world;
    p->send = send;
    p->arg = arg;
    snprintf(p->name, sizeof(p->name), "zlaunch-%.200s", name);
    for (char *c = p->name; *c; c++)
        if (*c <= ' ')
            *c = '_';
    /* all ranks are on one node: the library then uses shared memory between them */
    snprintf(mapping, sizeof(mapping), "(vector,(0,1,%d))", world);
    if (keep(p, "PMI_process_mapping", mapping)) {
        zt_pmi_close(p);
        return zt_fault_set(fault, ZT_E_NOMEM, "PMI server: no memory");
    }
    *out = p;
    return ZT_OK;
}

void zt_pmi_close(struct zt_pmi *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < NUM_BUCKETS; i++)
        while (p->bucket[i]) {
            struct pair *pair = p->bucket[i];

            p->bucket[i] = pair->next;
            free(pair->key);
            free(pair->value);
            free(pair);
        }
    free(p->client);
    free(p);
}
