#include "store/rendezvous.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <sodium.h>

#include "common/message/frame.h"
#include "common/log.h"
#include "store/native/client.h"
#include "store/server_thread.h"
#include "store/fd_passing.h"
#include "store/core/sock.h"
#include "store/tcpstore/client.h"

#define NONCE_BYTES 16
#define LINGER_S    5.0
#define NAMED_MAX   16 /* ranks that are named one by one */

/* Keys in whichever store there is. */
struct zt_rendezvous {
    struct zt_launch_env env;
    double timeout_s;
    struct zt_store_thread *host; /* rank 0 of our own store */
    struct zt_store_client *own;
    struct zt_tcp_store *agent;
    char prefix[256]; /* of the agent's keys: this try of this job */
};

/* ---------------------------------------------------------------- keys */

static zt_err put(struct zt_rendezvous *r, const char *key, const void *value,
                  size_t bytes, struct zt_fault *fault)
{
    char full[512];

    if (r->own)
        return zt_store_set(r->own, key, value, bytes, fault);
    snprintf(full, sizeof(full), "%s/%s", r->prefix, key);
    return zt_tcp_store_set(r->agent, full, value, bytes, fault);
}

static zt_err fetch(struct zt_rendezvous *r, const char *key, double timeout_s,
                    void **value, size_t *bytes, struct zt_fault *fault)
{
    char full[512];

    if (r->own)
        return zt_store_get(r->own, key, timeout_s, value, bytes, fault);
    snprintf(full, sizeof(full), "%s/%s", r->prefix, key);
    return zt_tcp_store_get(r->agent, full, timeout_s, value, bytes, fault);
}

/* ---------------------------------------------------------------- our own store */

static bool is_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "localhost") == 0 ||
           strcmp(host, "::1") == 0;
}

/* of: what the secret comes from where nobody gave one, else "". */
static zt_err find_secret(const struct zt_launch_env *p, struct zt_secret *out,
                          char of[600], struct zt_fault *fault)
{
    char text[600];
    bool found;
    zt_err rc = zt_secret_from_env(out, &found, fault);

    of[0] = '\0';
    if (rc || found)
        return rc;
    snprintf(of, 600,
             "MASTER_ADDR (here %s), WORLD_SIZE (here %d) and ZLAUNCH_SECRET_FILE (here "
             "none)",
             p->master_addr, p->world);
    if (p->rank == 0 && !is_loopback(p->master_addr))
        zt_warn("store",
                "no secret for this job: whoever reaches %s port %d can disturb it; give "
                "all ranks the same ZLAUNCH_SECRET_FILE, or use a network you trust",
                p->master_addr, p->master_port);
    snprintf(text, sizeof(text), "%s %s %d %d", p->job, p->master_addr, p->master_port,
             p->world);
    zt_secret_derive(text, out);
    return ZT_OK;
}

/* With a loopback MASTER_ADDR rank 0 listens on loopback only. */
static zt_err open_host(struct zt_rendezvous *r, const struct zt_secret *secret,
                        struct zt_fault *fault)
{
    const struct zt_launch_env *p = &r->env;
    struct zt_store_server_config cfg = {
        .address = is_loopback(p->master_addr) && strcmp(p->master_addr, "::1") != 0
                       ? "127.0.0.1"
                       : NULL,
        .port = p->master_port,
        .job = p->job,
        .secret = secret,
        .generation = p->attempt + 1,
    };

    return zt_store_thread_open(&cfg, &r->host, fault);
}

static zt_err open_own(struct zt_rendezvous *r, struct zt_fault *fault)
{
    const struct zt_launch_env *p = &r->env;
    struct zt_secret secret;
    char secret_of[600];
    struct zt_store_config cfg = {
        .host = p->rank ? p->master_addr : "127.0.0.1",
        .port = p->master_port,
        .job = p->job,
        .secret = &secret,
        .generation = p->attempt + 1,
        .index = (uint32_t)p->rank,
        .count = (uint32_t)p->world,
        .timeout_s = r->timeout_s,
    };
    zt_err rc = find_secret(p, &secret, secret_of, fault);

    if (*secret_of)
        cfg.secret_of = secret_of;
    if (!rc && p->rank == 0)
        rc = open_host(r, &secret, fault);
    if (!rc)
        rc = zt_store_open(&cfg, &r->own, fault);
    zt_secret_wipe(&secret);
    return rc;
}

/* ---------------------------------------------------------------- torchrun's store */

/* ZT_E_PEER: the ranks from `first` on whose nonce is not there. */
static zt_err name_missing(struct zt_rendezvous *r, int first, struct zt_fault *fault)
{
    char who[256] = "";
    int num = 0;

    for (int i = first; i < r->env.world; i++) {
        size_t n = 0, at = strlen(who);
        void *nonce = NULL;
        char key[32];

        snprintf(key, sizeof(key), "join/%d", i);
        if (i > first && num < NAMED_MAX &&
            fetch(r, key, 0.05, &nonce, &n, NULL) == ZT_OK) {
            free(nonce);
            continue;
        }
        if (num++ < NAMED_MAX)
            snprintf(who + at, sizeof(who) - at, "%s%d", at ? ", " : "", i);
        else if (num == NAMED_MAX + 1)
            snprintf(who + at, sizeof(who) - at, " and others");
    }
    return zt_fault_set(fault, ZT_E_PEER,
                        "rendezvous: of %d ranks these have not come within %.0f s: rank "
                        "%s; was each of them started, with the same MASTER_ADDR, "
                        "MASTER_PORT and WORLD_SIZE?",
                        r->env.world, r->timeout_s, who);
}

/* The nonces of all ranks, (world) of NONCE_BYTES; rank 0's own is drawn here. */
static zt_err collect_nonces(struct zt_rendezvous *r, uint8_t *all,
                             struct zt_fault *fault)
{
    double deadline = zt_now() + r->timeout_s;
    zt_err rc = ZT_OK;

    randombytes_buf(all, NONCE_BYTES);
    for (int i = 1; !rc && i < r->env.world; i++) {
        double left = deadline - zt_now();
        void *nonce = NULL;
        char key[32];
        size_t n = 0;

        snprintf(key, sizeof(key), "join/%d", i);
        rc = fetch(r, key, left > 0.001 ? left : 0.001, &nonce, &n, fault);
        if (!rc && n != NONCE_BYTES)
            rc = zt_fault_set(fault, ZT_E_PEER, "rendezvous: rank %d said nonsense", i);
        else if (rc == ZT_E_PEER)
            rc = name_missing(r, i, fault);
        if (!rc)
            memcpy(all + (size_t)i * NONCE_BYTES, nonce, NONCE_BYTES);
        free(nonce);
    }
    return rc;
}

/* Rank 0: draw and publish the generation of this attempt, and confirm who has joined. */
static zt_err lead(struct zt_rendezvous *r, const char *base, struct zt_fault *fault)
{
    uint8_t *all = calloc((size_t)r->env.world, NONCE_BYTES);
    char generation[2 * NONCE_BYTES + 1], key[256];
    uint8_t drawn[NONCE_BYTES];
    zt_err rc;

    if (!all)
        return zt_fault_set(fault, ZT_E_NOMEM, "rendezvous: no memory");
    randombytes_buf(drawn, sizeof(drawn));
    sodium_bin2hex(generation, sizeof(generation), drawn, sizeof(drawn));
    snprintf(r->prefix, sizeof(r->prefix), "%s/%s", base, generation);
    snprintf(key, sizeof(key), "%s/generation", base);
    rc = zt_tcp_store_set(r->agent, key, generation, strlen(generation), fault);
    if (!rc)
        rc = collect_nonces(r, all, fault);
    if (!rc)
        rc = put(r, "go", all, (size_t)r->env.world * NONCE_BYTES, fault);
    free(all);
    return rc;
}

/* Try once: is this generation confirmed together with our nonce? It may be an old one.
 */
static zt_err try_follow(struct zt_rendezvous *r, const char *base,
                         const uint8_t mine[NONCE_BYTES], double left, bool *confirmed,
                         struct zt_fault *fault)
{
    size_t n = 0, at = (size_t)r->env.rank * NONCE_BYTES;
    void *generation = NULL, *go = NULL;
    char key[256];
    zt_err rc;

    *confirmed = false;
    snprintf(key, sizeof(key), "%s/generation", base);
    rc = zt_tcp_store_get(r->agent, key, left, &generation, &n, fault);
    if (rc)
        return zt_fault_context(fault, rc, "rendezvous: rank 0 has not come");
    snprintf(r->prefix, sizeof(r->prefix), "%s/%.32s", base, (char *)generation);
    free(generation);
    snprintf(key, sizeof(key), "join/%d", r->env.rank);
    rc = put(r, key, mine, NONCE_BYTES, fault);
    if (rc)
        return rc;
    if (fetch(r, "go", left < 0.5 ? left : 0.5, &go, &n, NULL))
        return ZT_OK; /* not yet */
    *confirmed = n >= at + NONCE_BYTES && memcmp((char *)go + at, mine, NONCE_BYTES) == 0;
    free(go);
    return ZT_OK;
}

static zt_err follow(struct zt_rendezvous *r, const char *base, struct zt_fault *fault)
{
    double deadline = zt_now() + r->timeout_s;
    uint8_t mine[NONCE_BYTES];
    bool confirmed = false;
    zt_err rc = ZT_OK;

    randombytes_buf(mine, sizeof(mine));
    while (!rc && !confirmed) {
        double left = deadline - zt_now();

        if (left <= 0)
            return zt_fault_set(fault, ZT_E_PEER,
                                "rendezvous: not all of the %d ranks have come within "
                                "%.0f s; rank 0 says which",
                                r->env.world, r->timeout_s);
        rc = try_follow(r, base, mine, left, &confirmed, fault);
        if (!rc && !confirmed)
            zt_sock_pause(0.02, deadline);
    }
    return rc;
}

static zt_err open_agent(struct zt_rendezvous *r, struct zt_fault *fault)
{
    const struct zt_launch_env *p = &r->env;
    char base[200];
    zt_err rc;

    if (sodium_init() < 0)
        return zt_fault_set(fault, ZT_E_SYSTEM, "no random numbers here");
    rc = zt_tcp_store_open(p->master_addr, p->master_port, r->timeout_s, 60, &r->agent,
                           fault);
    if (rc)
        return rc;
    snprintf(base, sizeof(base), "zt/%s/%llu", p->job, (unsigned long long)p->attempt);
    return p->rank ? follow(r, base, fault) : lead(r, base, fault);
}

/* ---------------------------------------------------------------- open and close */

zt_err zt_rendezvous_open(const struct zt_launch_env *env, double timeout_s,
                          struct zt_rendezvous **out, struct zt_fault *fault)
{
    struct zt_rendezvous *r;
    zt_err rc;

    if (!*env->master_addr || !env->master_port)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "%d ranks were started by %s, but %s is not set: they cannot "
                            "find each other; start them with zlaunch, or set "
                            "MASTER_ADDR (the host of rank 0) and MASTER_PORT (a free "
                            "port there)",
                            env->world, zt_launch_kind_name(env->kind),
                            *env->master_addr ? "MASTER_PORT" : "MASTER_ADDR");
    r = calloc(1, sizeof(*r));
    if (!r)
        return zt_fault_set(fault, ZT_E_NOMEM, "rendezvous: no memory");
    r->env = *env;
    r->timeout_s = timeout_s;
    rc = env->kind == ZT_LAUNCH_TORCHRUN ? open_agent(r, fault) : open_own(r, fault);
    if (rc) {
        zt_rendezvous_close(r);
        return rc;
    }
    *out = r;
    return ZT_OK;
}

void zt_rendezvous_close(struct zt_rendezvous *r)
{
    if (!r)
        return;
    zt_store_close(r->own);
    zt_tcp_store_close(r->agent);
    zt_store_thread_close(r->host, LINGER_S);
    free(r);
}

/* ---------------------------------------------------------------- gather */

/* "u32 length, bytes" of every rank, one after another. */
/* Stores speak of keys; who waits for a rank is to hear of the rank. */
static void name_silent(const struct zt_rendezvous *r, int rank, struct zt_fault *fault)
{
    if (fault && strstr(fault->text, ": nobody set it within "))
        zt_fault_set(fault, fault->code, "rank %d has sent nothing within %.1f s", rank,
                     r->timeout_s);
}

static zt_err build_table(struct zt_rendezvous *r, const char *name, const void *mine,
                          size_t bytes, struct zt_buf *table, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < r->env.world; i++) {
        void *value = NULL;
        size_t n = bytes;
        char key[160];

        snprintf(key, sizeof(key), "%s/%d", name, i);
        if (i)
            rc = fetch(r, key, r->timeout_s, &value, &n, fault);
        if (rc) {
            name_silent(r, i, fault);
            return rc;
        }
        rc = zt_buf_put_u32(table, (uint32_t)n);
        if (!rc)
            rc = zt_buf_put(table, i ? value : mine, n);
        if (rc)
            zt_fault_set(fault, rc, "rendezvous: \"%s\" of all ranks is too much", name);
        free(value);
    }
    return rc;
}

/* Takes `table`; the blobs lie in it, moved to its front. */
static zt_err split_table(uint8_t *table, size_t bytes, int world, struct zt_blob *all)
{
    size_t at = 0, to = 0;

    for (int i = 0; i < world; i++) {
        size_t n;

        if (bytes - at < 4)
            return ZT_E_FORMAT;
        n = zt_get_u32(table + at);
        at += 4;
        if (n > bytes - at)
            return ZT_E_FORMAT;
        memmove(table + to, table + at, n);
        all[i] = (struct zt_blob){table + to, n};
        at += n;
        to += n;
    }
    return at == bytes ? ZT_OK : ZT_E_FORMAT;
}

zt_err zt_rendezvous_gather(struct zt_rendezvous *r, const char *name, const void *mine,
                            size_t bytes, struct zt_blob *all, struct zt_fault *fault)
{
    struct zt_buf built;
    void *table = NULL;
    char key[160];
    size_t n = 0;
    zt_err rc;

    zt_buf_init(&built, 1u << 20);
    snprintf(key, sizeof(key), "%s/%d", name, r->env.rank);
    if (r->env.rank)
        rc = put(r, key, mine, bytes, fault);
    else
        rc = build_table(r, name, mine, bytes, &built, fault);
    snprintf(key, sizeof(key), "%s/all", name);
    if (!rc && !r->env.rank)
        rc = put(r, key, zt_buf_head(&built), zt_buf_used(&built), fault);
    zt_buf_release(&built);
    if (!rc)
        rc = fetch(r, key, r->timeout_s, &table, &n, fault);
    if (rc)
        name_silent(r, 0, fault);
    if (zt_err_is_about_peer(rc))
        return zt_fault_context(fault, rc, "waiting for all %d ranks at %s port %d",
                                r->env.world, r->env.master_addr, r->env.master_port);
    if (rc)
        return rc;
    if (split_table(table, n, r->env.world, all)) {
        free(table);
        return zt_fault_set(fault, ZT_E_PEER, "rendezvous: \"%s\" came back malformed",
                            name);
    }
    return ZT_OK;
}

/* ---------------------------------------------------------------- unique ids */

zt_err zt_rendezvous_unique_ids(struct zt_rendezvous *r, const char *name, int num_ids,
                                int (*make)(void *ctx, uint8_t id[ZT_UNIQUE_ID_BYTES]),
                                void *ctx, uint8_t (*ids)[ZT_UNIQUE_ID_BYTES],
                                struct zt_fault *fault)
{
    zt_err rc = ZT_OK;
    char key[160];

    for (int k = 0; !rc && k < num_ids; k++) {
        if (zt_unique_id_root(r->env.world, num_ids, k) != r->env.rank)
            continue;
        snprintf(key, sizeof(key), "id/%.100s/%d", name, k);
        if (make(ctx, ids[k]))
            rc = zt_fault_set(fault, ZT_E_SYSTEM,
                              "rank %d cannot make an id for communicator '%s'",
                              r->env.rank, name);
        else
            rc = put(r, key, ids[k], ZT_UNIQUE_ID_BYTES, fault);
    }
    for (int k = 0; !rc && k < num_ids; k++) {
        void *id = NULL;
        size_t n = 0;

        snprintf(key, sizeof(key), "id/%.100s/%d", name, k);
        rc = fetch(r, key, r->timeout_s, &id, &n, fault);
        if (rc)
            return zt_fault_context(fault, rc, "id %d of communicator '%s', from rank %d",
                                    k, name, zt_unique_id_root(r->env.world, num_ids, k));
        if (n != ZT_UNIQUE_ID_BYTES)
            rc = zt_fault_set(fault, ZT_E_PEER, "communicator '%s': an id of %zu bytes",
                              name, n);
        else
            memcpy(ids[k], id, ZT_UNIQUE_ID_BYTES);
        free(id);
    }
    return rc;
}

/* ---------------------------------------------------------------- shared memory */

/* What a rank says about its machine. */
struct machine {
    char id[96], host[64], socket[ZT_FD_SERVER_NAME];
    uint8_t token[ZT_FD_SERVER_TOKEN];
};

static zt_err one_machine(const struct zt_blob *all, int world, struct zt_fault *fault)
{
    const struct machine *first = (const struct machine *)(void *)all[0].data;

    for (int i = 0; i < world; i++) {
        const struct machine *m = (const struct machine *)(void *)all[i].data;

        if (all[i].bytes != sizeof(*m))
            return zt_fault_set(fault, ZT_E_PEER, "rank %d is of another version", i);
        if (strncmp(m->id, first->id, sizeof(m->id)) != 0)
            return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                                "ranks 0 and %d are on different machines (%.63s, %.63s) "
                                "and share no memory: use --comm tcp, or start them with "
                                "mpirun or srun --mpi=pmi2",
                                i, first->host, m->host);
    }
    return ZT_OK;
}

/* Rank 0 makes the file and hands it out. */
static zt_err give_memfd(struct zt_rendezvous *r, struct zt_fd_server *l,
                         struct zt_shared_memfd *g, struct zt_fault *fault)
{
    zt_err rc;

    g->fd = memfd_create("zlaunch-comm", MFD_CLOEXEC);
    if (g->fd < 0)
        return zt_fault_set(fault, ZT_E_SYSTEM, "shared memory: memfd_create failed");
    rc = zt_fd_server_send(l, g->fd, g->num, zt_now() + r->timeout_s, g->conn, fault);
    if (!rc)
        return ZT_OK;
    for (int i = 0; i < g->num; i++)
        if (g->conn[i] >= 0)
            close(g->conn[i]);
    close(g->fd);
    return rc;
}

static zt_err share_memfd(struct zt_rendezvous *r, struct zt_fd_server *l,
                          const struct machine *first, struct zt_shared_memfd *g,
                          struct zt_fault *fault)
{
    int rank = r->env.rank;

    g->num = rank ? 1 : r->env.world - 1;
    g->conn = calloc((size_t)g->num + 1, sizeof(*g->conn));
    g->rank = calloc((size_t)g->num + 1, sizeof(*g->rank));
    if (!g->conn || !g->rank)
        return zt_fault_set(fault, ZT_E_NOMEM, "rendezvous: no memory");
    for (int i = 0; i < g->num; i++)
        g->rank[i] = rank ? 0 : i + 1;
    if (!rank)
        return give_memfd(r, l, g, fault);
    return zt_fd_receive(first->socket, first->token, rank, zt_now() + r->timeout_s,
                         &g->fd, g->conn, fault);
}

void zt_shared_memfd_release(struct zt_shared_memfd *g)
{
    free(g->conn);
    free(g->rank);
    *g = (struct zt_shared_memfd){.fd = -1};
}

/* Everybody says where it is; *first: what rank 0 said. */
static zt_err gather_machines(struct zt_rendezvous *r, const struct zt_fd_server *local,
                              struct machine *first, struct zt_fault *fault)
{
    struct zt_blob *all = calloc((size_t)r->env.world + 1, sizeof(*all));
    struct machine mine = {0};
    zt_err rc = all ? zt_machine_id(mine.id, fault)
                    : zt_fault_set(fault, ZT_E_NOMEM, "rendezvous: no memory");

    if (!rc) {
        gethostname(mine.host, sizeof(mine.host) - 1);
        memcpy(mine.socket, local->name, sizeof(mine.socket));
        memcpy(mine.token, local->token, sizeof(mine.token));
        rc = zt_rendezvous_gather(r, "machine", &mine, sizeof(mine), all, fault);
    }
    if (!rc) {
        rc = one_machine(all, r->env.world, fault);
        if (!rc && all[0].data) /* one_machine() has looked at its size */
            memcpy(first, all[0].data, sizeof(*first));
        free(all[0].data);
    }
    free(all);
    return rc;
}

zt_err zt_rendezvous_share_memfd(struct zt_rendezvous *r, struct zt_shared_memfd *out,
                                 struct zt_fault *fault)
{
    struct zt_fd_server local = {.listen_fd = -1};
    struct zt_shared_memfd g = {.fd = -1};
    struct machine first = {0};
    zt_err rc = r->env.rank ? ZT_OK : zt_fd_server_listen(&local, fault);

    if (!rc)
        rc = gather_machines(r, &local, &first, fault);
    if (!rc)
        rc = share_memfd(r, &local, &first, &g, fault);
    if (rc)
        zt_shared_memfd_release(&g);
    else
        *out = g;
    zt_fd_server_release(&local);
    return rc;
}
