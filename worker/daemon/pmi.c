#include "worker/daemon/pmi.h"

#include "common/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEW_PAIRS_BYTES (64u << 20)
#define MAX_WORDS       8 /* key=value pairs of a line; more are ignored */

struct pmi_client {
    char line[ZT_PMI_LINE]; /* what came of the next one */
    size_t len;
    bool has_init, has_finalized, in_barrier, is_closed;
    int abort_code; /* 0: it called none */
};

struct pmi_pair {
    struct pmi_pair *next;
    char *key, *value;
};

#define NUM_BUCKETS 1024u /* a power of two */

struct zt_pmi {
    struct zt_pmi_config cfg; /* its strings are not kept */
    int num_waiting, num_keys;
    char name[ZT_PMI_NAME];
    struct pmi_client *client; /* (local) */
    struct zt_buf new_pairs; /* "key=value" lines since the last fence; for other nodes */
    struct pmi_pair *bucket[NUM_BUCKETS];
};

/* One message: "cmd=put kvsname=a key=b value=c", cut in place. */
struct message {
    char *key[MAX_WORDS], *value[MAX_WORDS];
    int num;
};

static struct pmi_client *client_of(const struct zt_pmi *p, int rank)
{
    return &p->client[rank - p->cfg.first];
}

static bool is_multi_node(const struct zt_pmi *p)
{
    return p->cfg.local < p->cfg.world;
}

/* ------------------------------------------------------------------ keys and values */
static struct pmi_pair **find_pair(struct zt_pmi *p, const char *key)
{
    uint32_t h = 2166136261u;
    struct pmi_pair **at;

    for (const char *c = key; *c; c++)
        h = (h ^ (uint8_t)*c) * 16777619u;
    at = &p->bucket[h & (NUM_BUCKETS - 1)];
    while (*at && strcmp((*at)->key, key) != 0)
        at = &(*at)->next;
    return at;
}

static const char no_memory[] = "no_memory";

/* NULL: stored; else why not, as a word for the reply. */
static const char *store_pair(struct zt_pmi *p, const char *key, const char *value)
{
    struct pmi_pair **at = find_pair(p, key), *pair = *at;
    char *copy;

    if (strlen(key) >= ZT_PMI_KEY || strlen(value) >= ZT_PMI_VALUE)
        return "too_long";
    if (!pair && p->num_keys >= ZT_PMI_MAX_KEYS)
        return "too_many_keys";
    copy = strdup(value);
    if (!copy)
        return no_memory;
    if (!pair) {
        pair = calloc(1, sizeof(*pair));
        if (pair)
            pair->key = strdup(key);
        if (!pair || !pair->key) {
            free(pair);
            free(copy);
            return no_memory;
        }
        *at = pair;
        p->num_keys++;
    }
    free(pair->value);
    pair->value = copy;
    return NULL;
}

/* ------------------------------------------------------------------ lines */
static void reply(struct zt_pmi *p, int rank, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void reply(struct zt_pmi *p, int rank, const char *fmt, ...)
{
    char line[ZT_PMI_LINE];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof(line) ||
        !p->cfg.send(p->cfg.arg, rank, line, (size_t)n))
        client_of(p, rank)->is_closed = true;
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

    client_of(p, rank)->has_init = client_of(p, rank)->has_init || fine;
    reply(p, rank, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=%d\n",
          fine ? 0 : -1);
    return ZT_PMI_FINE;
}

static zt_pmi_state on_get_maxes(struct zt_pmi *p, int rank, const struct message *m)
{
    (void)m;
    reply(p, rank, "cmd=maxes kvsname_max=%d keylen_max=%d vallen_max=%d\n", ZT_PMI_NAME,
          ZT_PMI_KEY, ZT_PMI_VALUE);
    return ZT_PMI_FINE;
}

static zt_pmi_state on_get_appnum(struct zt_pmi *p, int rank, const struct message *m)
{
    (void)m;
    reply(p, rank, "cmd=appnum appnum=0\n");
    return ZT_PMI_FINE;
}

static zt_pmi_state on_get_name(struct zt_pmi *p, int rank, const struct message *m)
{
    (void)m;
    reply(p, rank, "cmd=my_kvsname kvsname=%s\n", p->name);
    return ZT_PMI_FINE;
}

static zt_pmi_state on_get_universe(struct zt_pmi *p, int rank, const struct message *m)
{
    (void)m;
    reply(p, rank, "cmd=universe_size size=%d\n", p->cfg.world);
    return ZT_PMI_FINE;
}

/* A pair that a rank left, for this node and the others. */
static const char *put_pair(struct zt_pmi *p, const char *key, const char *value)
{
    const char *why = store_pair(p, key, value);

    if (why || !is_multi_node(p))
        return why;
    if (zt_buf_put(&p->new_pairs, key, strlen(key)) ||
        zt_buf_put_u8(&p->new_pairs, '=') ||
        zt_buf_put(&p->new_pairs, value, strlen(value)) ||
        zt_buf_put_u8(&p->new_pairs, '\n'))
        return no_memory;
    return NULL;
}

static zt_pmi_state on_put(struct zt_pmi *p, int rank, const struct message *m)
{
    const char *name = get(m, "kvsname"), *key = get(m, "key"), *value = get(m, "value");
    const char *why = !key || !value || !*key ? "incomplete"
                      : strchr(key, '=')      ? "bad_key" /* a line could not carry it */
                      : name && strcmp(name, p->name) != 0 ? "unknown_kvsname"
                                                           : put_pair(p, key, value);

    if (why == no_memory) /* MPICH does not give up at this answer */
        return ZT_PMI_FAILED;
    reply(p, rank, "cmd=put_result rc=%d msg=%s\n", why ? -1 : 0, why ? why : "success");
    return ZT_PMI_FINE;
}

static zt_pmi_state on_get(struct zt_pmi *p, int rank, const struct message *m)
{
    const char *name = get(m, "kvsname"), *key = get(m, "key");
    struct pmi_pair *found =
        key && (!name || strcmp(name, p->name) == 0) ? *find_pair(p, key) : NULL;

    if (found)
        reply(p, rank, "cmd=get_result rc=0 msg=success value=%s\n", found->value);
    else
        reply(p, rank, "cmd=get_result rc=-1 msg=not_found value=unknown\n");
    return ZT_PMI_FINE;
}

static void release_ranks(struct zt_pmi *p)
{
    p->num_waiting = 0;
    for (int i = 0; i < p->cfg.local; i++) {
        p->client[i].in_barrier = false;
        reply(p, p->cfg.first + i, "cmd=barrier_out\n");
    }
}

static zt_pmi_state on_barrier(struct zt_pmi *p, int rank, const struct message *m)
{
    (void)m;
    if (client_of(p, rank)->in_barrier)
        return ZT_PMI_BAD; /* it must wait for the answer to the first */
    client_of(p, rank)->in_barrier = true;
    if (++p->num_waiting < p->cfg.local)
        return ZT_PMI_FINE;
    if (!is_multi_node(p)) {
        release_ranks(p);
        return ZT_PMI_FINE;
    }
    p->cfg.fence(p->cfg.arg, (const char *)zt_buf_head(&p->new_pairs),
                 zt_buf_used(&p->new_pairs));
    zt_buf_drop(&p->new_pairs, zt_buf_used(&p->new_pairs));
    return ZT_PMI_FINE;
}

zt_err zt_pmi_merge(struct zt_pmi *p, const char *pairs, size_t n, struct zt_fault *fault)
{
    char line[ZT_PMI_KEY + ZT_PMI_VALUE];

    while (n) {
        const char *nl = memchr(pairs, '\n', n);
        size_t len = nl ? (size_t)(nl - pairs) : n;
        const char *why;
        char *is;

        if (!nl || len >= sizeof(line) || memchr(pairs, 0, len))
            return zt_fault_set(fault, ZT_E_FORMAT, "PMI pairs of other nodes: no lines");
        memcpy(line, pairs, len);
        line[len] = 0;
        is = strchr(line, '=');
        if (!is || is == line)
            return zt_fault_set(fault, ZT_E_FORMAT, "PMI pairs of other nodes: no pairs");
        *is = 0;
        why = store_pair(p, line, is + 1);
        if (why)
            return zt_fault_set(fault, ZT_E_LIMIT, "PMI pairs of other nodes: %s", why);
        pairs += len + 1;
        n -= len + 1;
    }
    return ZT_OK;
}

zt_err zt_pmi_release(struct zt_pmi *p, struct zt_fault *fault)
{
    if (!is_multi_node(p) || p->num_waiting < p->cfg.local)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "PMI: the end of a barrier that no rank waits at");
    release_ranks(p);
    return ZT_OK;
}

static zt_pmi_state on_finalize(struct zt_pmi *p, int rank, const struct message *m)
{
    (void)m;
    client_of(p, rank)->has_finalized = true;
    reply(p, rank, "cmd=finalize_ack\n");
    return ZT_PMI_FINE;
}

#define EXIT_SYSTEM 71

/* A program aborts with an exit code, MPICH itself (that cannot start, say) with one of its
 * error codes, whose last byte means nothing to anybody: 15, 143. */
static int code_of_abort(const char *text)
{
    long n = text ? strtol(text, NULL, 10) : 0;

    if (n < 0 || n > 255)
        return EXIT_SYSTEM;
    return n ? (int)n : 1;
}

/* No answer: the library waits for one until it is killed, and would go on with it. */
static zt_pmi_state on_abort(struct zt_pmi *p, int rank, const struct message *m)
{
    client_of(p, rank)->abort_code = code_of_abort(get(m, "exitcode"));
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
            if (handlers[i].handle != on_init && !client_of(p, rank)->has_init)
                return ZT_PMI_BAD;
            return handlers[i].handle(p, rank, &m);
        }
    for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++)
        if (strcmp(refusals[i].name, m.value[0]) == 0) {
            reply(p, rank, "cmd=%s rc=-1 msg=unsupported\n", refusals[i].answer);
            return ZT_PMI_FINE;
        }
    return ZT_PMI_BAD; /* spawn among others: nobody can wait for an answer to it */
}

zt_pmi_state zt_pmi_feed(struct zt_pmi *p, int rank, const char *bytes, size_t n)
{
    struct pmi_client *c = client_of(p, rank);
    zt_pmi_state state = ZT_PMI_FINE;

    for (size_t i = 0; i < n && !c->is_closed; i++) {
        if (bytes[i] != '\n') {
            if (!bytes[i] || c->len == sizeof(c->line) - 1)
                c->is_closed = true;
            else
                c->line[c->len++] = bytes[i];
            continue;
        }
        c->line[c->len] = 0;
        c->len = 0;
        state = on_line(p, rank, c->line);
        if (state == ZT_PMI_BAD)
            c->is_closed = true;
        if (state == ZT_PMI_ABORT || state == ZT_PMI_FAILED)
            return state;
    }
    return c->is_closed ? ZT_PMI_BAD : ZT_PMI_FINE;
}

bool zt_pmi_needs_finalize(const struct zt_pmi *p, int rank)
{
    return client_of(p, rank)->has_init && !client_of(p, rank)->has_finalized;
}

int zt_pmi_abort_code(const struct zt_pmi *p, int rank)
{
    return client_of(p, rank)->abort_code;
}

/* ------------------------------------------------------------------ open, close */
zt_err zt_pmi_open(const struct zt_pmi_config *cfg, struct zt_pmi **out,
                   struct zt_fault *fault)
{
    struct zt_pmi *p = calloc(1, sizeof(*p));
    const char *mapping = cfg->mapping;
    char here[64];

    if (p)
        p->client = calloc((size_t)cfg->local, sizeof(*p->client));
    if (!p || !p->client) {
        zt_pmi_close(p);
        return zt_fault_set(fault, ZT_E_NOMEM, "PMI server: no memory");
    }
    p->cfg = *cfg;
    zt_buf_init(&p->new_pairs, NEW_PAIRS_BYTES);
    snprintf(p->name, sizeof(p->name), "zlaunch-%.200s", cfg->name);
    for (char *c = p->name; *c; c++)
        if (*c <= ' ')
            *c = '_';
    /* all ranks are on one node: the library then uses shared memory between them */
    snprintf(here, sizeof(here), "(vector,(0,1,%d))", cfg->world);
    if (!mapping && !is_multi_node(p))
        mapping = here;
    /* one that is too long is left out: the library then asks for host names */
    if (mapping && strlen(mapping) < ZT_PMI_VALUE &&
        store_pair(p, "PMI_process_mapping", mapping)) {
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
            struct pmi_pair *pair = p->bucket[i];

            p->bucket[i] = pair->next;
            free(pair->key);
            free(pair->value);
            free(pair);
        }
    zt_buf_release(&p->new_pairs);
    free(p->client);
    free(p);
}
