/*
 * join.c -- how ranks join a mesh, split it and leave it.
 *
 * Leaving. A rank may close after a failure while others still work, so closing waits for
 * nobody: it sends a header that says "closed", which the others receive in their next
 * call or when they exit. Stopping the transport's library does wait, for a limited time; that
 * is left to the exit of a process that succeeds. One that fails leaves MPI without finalizing
 * it, by which its launcher knows to stop the rest.
 */
#include "worker/comm/mesh/private.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define END_S       30u /* at most, that a rank whose work is done waits for the others */
#define MAX_START_S 86400u /* at most, that it waits for them in the library's start */

static void release_parts(struct zt_mesh *m)
{
    for (int i = 0; i < ZT_MESH_BATCHES; i++)
        m->transport->batch_close(m->batch[i]);
    m->transport->batch_close(m->headers);
    free(m->in);
    free(m->member);
}

static void release(struct zt_mesh *m)
{
    release_parts(m);
    free(m->out);
    free(m);
}

/* All of it but `out`, which is freed when the transport has stopped. */
static void release_but_out(struct zt_mesh *m)
{
    release_parts(m);
    m->next_kept = zt_mesh_process.kept;
    zt_mesh_process.kept = m;
}

static void free_kept(void)
{
    struct zt_mesh *next;

    for (struct zt_mesh *m = zt_mesh_process.kept; m; m = next) {
        next = m->next_kept;
        free(m->out);
        free(m);
    }
    zt_mesh_process.kept = NULL;
}

/* A mesh without tags yet; NULL: no memory. */
static struct zt_mesh *allocate(const struct zt_transport *transport,
                                struct zt_mesh_family *f, int rank, int world)
{
    struct zt_mesh *m = calloc(1, sizeof(*m));
    bool fine;

    if (!m)
        return NULL;
    m->transport = transport;
    m->family = f;
    m->rank = rank;
    m->world = world;
    m->spin = ZT_MESH_SPIN_MAX / 8;
    m->call_name = zt_comm_op_name(ZT_COMM_OPEN);
    m->member = calloc((size_t)world, sizeof(*m->member));
    m->out = calloc((size_t)world, ZT_MESH_SLOT_BYTES);
    m->in = calloc((size_t)world, ZT_MESH_SLOT_BYTES);
    m->headers = transport->batch_open(2 * world);
    fine = m->member && m->out && m->in && m->headers;
    for (int i = 0; i < ZT_MESH_BATCHES; i++)
        fine = (m->batch[i] = transport->batch_open(2 * world)) && fine;
    if (fine)
        return m;
    release(m);
    return NULL;
}

/* Tags that are free on all ranks of `parent`, by the headers of its last call. */
static zt_err take_tags(const struct zt_mesh *parent, int *tags, struct zt_fault *fault)
{
    int top = 0;

    for (int r = 0; r < parent->world; r++)
        if (zt_mesh_header(parent, r)->next_tags > top)
            top = zt_mesh_header(parent, r)->next_tags;
    if (top > zt_mesh_process.max_tag - ZT_MESH_NUM_TAGS)
        return zt_fault_set(fault, ZT_E_LIMIT,
                            "comm: %s has no tags left for another communicator",
                            parent->transport->name);
    zt_mesh_process.next_tags = top + ZT_MESH_NUM_TAGS;
    *tags = top;
    return ZT_OK;
}

/* The page with the daemon's abort word; NULL where there is no daemon, or no page. */
static struct zt_shm_head *map_head(int fd)
{
    void *at;
    int e;

    if (fd < 0)
        return NULL;
    do /* grows an empty file to the first page, and never shrinks a larger one */
        e = posix_fallocate(fd, 0, ZT_SHM_PAGE);
    while (e == EINTR);
    if (e)
        return NULL;
    at = mmap(NULL, ZT_SHM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

static void release_family(struct zt_mesh_family *f)
{
    if (f->head)
        munmap(f->head, ZT_SHM_PAGE);
    free(f);
}

/* ---- the end of a process whose ranks end together ---- */

static char left_text[256];
static int left_code;
static void (*leave)(void); /* NULL: nothing to be said to the library's launcher */

static void leave_alone(int sig)
{
    (void)sig;
    (void)!write(STDERR_FILENO, left_text, strlen(left_text));
    if (leave)
        leave();
    _exit(left_code);
}

/* A library that has failed inside may wait for ever, in calls that nothing else ends: this
 * process leaves with left_text and left_code then, until alarm(0). */
static void limit(unsigned seconds)
{
    struct sigaction action = {.sa_handler = leave_alone};
    sigset_t set;

    sigemptyset(&action.sa_mask);
    sigaction(SIGALRM, &action, NULL);
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    alarm(seconds);
}

static void limit_start(const struct zt_comm_config *cfg, const char *name)
{
    unsigned seconds =
        cfg->timeout_s < MAX_START_S ? (unsigned)(cfg->timeout_s + 0.999) : MAX_START_S;

    snprintf(
        left_text, sizeof(left_text),
        "zworker: error: rank %d: %s does not start: after %u s (--ddp_timeout) ranks, "
        "or its launcher, have not answered\n",
        cfg->rank, name, seconds);
    left_code = zt_err_exit_code(ZT_E_LOST);
    leave = NULL;
    limit(seconds);
}

/* What this rank had to do is done: it ends well, without those that it waits for. */
static void limit_end(double timeout_s)
{
    unsigned seconds = timeout_s < END_S ? (unsigned)timeout_s : END_S;

    seconds = seconds ? seconds : 1;
    snprintf(left_text, sizeof(left_text),
             "zworker: warning: rank %d has done its work, but %s does not come to its "
             "end: it leaves without the others after %u s\n",
             zt_mesh_process.rank, zt_mesh_process.transport->name, seconds);
    leave = zt_mesh_process.transport->leave;
    limit(seconds);
}

/* The "closed" headers that are still due; false: a rank has failed. */
static bool receive_closes(const struct zt_transport *transport)
{
    double lost_at = 0;

    while (zt_mesh_process.num_unreceived_closes > 0) {
        struct zt_mesh_header h;
        bool got = false;

        if (transport->try_recv(&h, sizeof(h), -1, &got) ||
            zt_mesh_find_lost(transport, &lost_at))
            return false;
        if (got && h.op != ZT_MESH_OP_CLOSED)
            return false;
        zt_mesh_process.num_unreceived_closes -= got;
        if (!got)
            zt_mesh_sleep_ns(ZT_MESH_SLEEP_NS);
    }
    return true;
}

/* Whether every rank ends with `status`: MPI's launchers kill the others of one that leaves
 * without MPI_Finalize, and its code with them. */
static bool is_agreed(int status)
{
    return status == 0 || status == ZT_EXIT_REQUEUE || status == ZT_EXIT_TERMINATED;
}

/* Stop the library collectively. */
static void end_of_process(int status, void *unused)
{
    (void)unused;
    if (!is_agreed(status) || zt_mesh_process.failed)
        return;
    left_code = status;
    limit_end(zt_mesh_process.timeout_s);
    if (receive_closes(zt_mesh_process.transport)) {
        zt_mesh_process.transport->stop();
        free_kept();
    }
    alarm(0);
}

static zt_err start_transport(const struct zt_comm_config *cfg,
                              const struct zt_transport *transport,
                              struct zt_fault *fault)
{
    char error_text[512] = "";
    int failed;

    if (zt_mesh_process.is_up && zt_mesh_process.transport != transport)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "comm: this process uses %s, and cannot use %s as well",
                            zt_mesh_process.transport->name, transport->name);
    if (!zt_mesh_process.is_up) {
        limit_start(cfg, transport->name);
        failed =
            transport->start(&zt_mesh_process.rank, &zt_mesh_process.world,
                             &zt_mesh_process.max_tag, error_text, sizeof(error_text));
        alarm(0);
        if (failed)
            return zt_fault_set(fault, ZT_E_SYSTEM, "comm: %s: %s", transport->name,
                                error_text);
        zt_mesh_process.transport = transport;
        zt_mesh_process.is_up = true;
        on_exit(end_of_process, NULL);
    }
    if (zt_mesh_process.world != cfg->world || zt_mesh_process.rank != cfg->rank) {
        zt_mesh_process.failed = true;
        return zt_fault_set(
            fault, ZT_E_UNSUPPORTED,
            "comm: rank %d of %d is rank %d of %d to %s: start the ranks with zlaunch, "
            "or "
            "with the mpirun of the MPI that this build has%s, or give --comm tcp, which "
            "needs none",
            cfg->rank, cfg->world, zt_mesh_process.rank, zt_mesh_process.world,
            transport->name,
            getenv("WORLD_SIZE") ? " and without RANK and WORLD_SIZE" : "");
    }
    zt_mesh_process.timeout_s = cfg->timeout_s;
    return ZT_OK;
}

zt_err zt_mesh_open(const struct zt_comm_config *cfg,
                    const struct zt_transport *transport, struct zt_mesh **out,
                    struct zt_fault *fault)
{
    struct zt_comm_call call = {.op = ZT_COMM_OPEN};
    struct zt_mesh_family *f;
    struct zt_mesh *m;
    zt_err rc;

    if (!(cfg->timeout_s > 0))
        return zt_fault_set(fault, ZT_E_ARG, "comm: %s needs a timeout above 0 s",
                            transport->name);
    if (cfg->world > UINT16_MAX - 1)
        return zt_fault_set(fault, ZT_E_LIMIT, "comm: %s is for at most %d ranks",
                            transport->name, UINT16_MAX - 1);
    rc = start_transport(cfg, transport, fault);
    if (rc)
        return rc;
    f = calloc(1, sizeof(*f));
    m = f ? allocate(transport, f, cfg->rank, cfg->world) : NULL;
    if (!m) {
        free(f);
        return zt_fault_set(fault, ZT_E_NOMEM, "comm: out of memory");
    }
    f->rank = cfg->rank;
    f->world = cfg->world;
    f->timeout_s = cfg->timeout_s;
    f->head = map_head(cfg->shm_fd);
    for (int r = 0; r < cfg->world; r++)
        m->member[r] = r;
    m->tags = ZT_MESH_TAG_OPEN;
    rc = zt_mesh_begin(m, &call, 0, NULL, fault);
    if (!rc)
        rc = take_tags(m, &m->tags, fault);
    if (rc) {
        zt_mesh_process.failed = true;
        release(m);
        release_family(f);
        return rc;
    }
    f->abort_tag = m->tags + ZT_MESH_TAG_ABORT;
    *out = m;
    return ZT_OK;
}

zt_err zt_mesh_split(struct zt_mesh *m, const int *members, int num_members, int my_index,
                     bool no_memory, struct zt_mesh **out, struct zt_fault *fault)
{
    struct zt_comm_call call = {.op = ZT_COMM_SPLIT};
    struct zt_mesh *g =
        no_memory ? NULL : allocate(m->transport, m->family, my_index, num_members);
    zt_err rc = zt_mesh_begin(m, &call, g ? 0 : ZT_MESH_NO_MEMORY, NULL, fault);
    int tags = 0;

    for (int r = 0; !rc && r < m->world; r++)
        if (zt_mesh_header(m, r)->flags & ZT_MESH_NO_MEMORY)
            rc = zt_fault_set(fault, ZT_E_NOMEM,
                              "comm: rank %d has no memory for a group of ranks",
                              m->member[r]);
    if (!rc)
        rc = take_tags(m, &tags, fault);
    if (rc || !g) {
        if (g)
            release(g);
        return rc;
    }
    for (int i = 0; i < num_members; i++)
        g->member[i] = m->member[members[i]];
    g->tags = tags;
    *out = g;
    return ZT_OK;
}

/* Send to all others: this rank has closed. */
static bool send_closed(struct zt_mesh *m)
{
    struct zt_mesh_header h = {.seq = m->seq + 1, .op = ZT_MESH_OP_CLOSED};

    zt_mesh_process.num_unreceived_closes += m->world - 1;
    memcpy(m->out, &h, sizeof(h));
    for (int i = 1; i < m->world; i++)
        if (m->transport->send(m->headers, m->out, sizeof(h),
                               m->member[(m->rank + i) % m->world],
                               m->tags + ZT_MESH_TAG_HEADER))
            return false;
    return zt_mesh_flush(m, m->headers);
}

void zt_mesh_close(struct zt_mesh *m)
{
    struct zt_mesh_family *f;
    bool is_root, sent = true;

    if (!m)
        return;
    f = m->family;
    is_root = f->abort_tag == m->tags + ZT_MESH_TAG_ABORT;
    if (!f->has_ended && atomic_load(&f->abort)) /* aborted here, outside a wait */
        zt_mesh_end(m, atomic_load(&f->abort), true);
    else if (!f->has_ended)
        sent = send_closed(m);
    if (sent || !m->transport->sends_outlive_batch)
        release(m);
    else
        release_but_out(m);
    if (is_root)
        release_family(f);
}
