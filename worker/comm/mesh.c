#include "worker/comm/mesh.h"

#include "worker/comm/half.h"
#include "worker/comm/shm_layout.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/*
 * Tags. 0 is for the first headers of a mesh, when nobody knows yet what is free. From
 * then on a mesh and each group have four: headers, two kinds of batch, and (of the mesh
 * alone) aborts. Ranks may have made different numbers of groups, so a new one takes the
 * largest of what its ranks have free; groups of one split have no rank in common and
 * can have the same.
 *
 * Leaving. close() may come on a rank that failed while others work, so it waits for
 * nobody: it sends a header that says so, which the others find in their next call, or
 * at their end. The library's own end, which does wait, is left to the end of a process
 * that succeeds. Any other lets its launcher see that it did not end MPI, and stop the
 * rest.
 */
enum { TAG_HEADER, TAG_BATCH, TAG_ABORT = 3, NUM_TAGS };
#define TAG_LOBBY   0
#define OP_CLOSED   255u /* in a header: this rank has left */
#define OP_ABORT    254u /* and: it is over, count says why as in shm_layout.h */
#define SPIN_MIN    16u
#define SPIN_MAX    1024u
#define SLEEP_NS    50000
#define YIELDS      16u
#define FLUSH_S     0.02 /* for a message that nobody may be left to take */
#define BLAME_S     1.0  /* from an error of the library to the daemon's word on it */
#define SLOT_BYTES  (sizeof(struct zt_mesh_header) + ZT_MESH_SMALL_BYTES)
#define MISSING_MAX 4

struct zt_mesh_family {
    int rank, world; /* of the wire */
    int abort_tag;   /* 0: not yet known */
    double timeout_s;
    struct zt_shm_head *head; /* where the daemon tells of dead ranks; NULL: no daemon */
    _Atomic uint32_t abort;   /* as in shm_layout.h */
    bool is_dead;
    int error; /* of the wire, found outside a wait */
};

/* What one process has one of, since the library has. */
static struct {
    bool is_up, failed;
    int rank, world, max_tag, next_tags;
    long owed; /* headers of ranks that left, of closed meshes, still to come */
    double timeout_s;
    const struct zt_wire *wire;
} process = {.next_tags = NUM_TAGS};

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void sleep_ns(long ns)
{
    struct timespec t = {0, ns};

    nanosleep(&t, NULL);
}

/* ---------------------------------------------------------------- what is wrong */
/* Until all is sent, or a moment has passed: whoever should take it may be gone. */
static bool flush(const struct zt_mesh *m, struct zt_wire_batch *b)
{
    double until = now_s() + FLUSH_S;
    bool done = false;

    while (!m->wire->poll(b, &done) && !done && now_s() < until)
        sched_yield();
    return done;
}

/* The end of the family: give up what is in flight, tell the others why. */
static void die(struct zt_mesh *m, uint32_t word, bool tell)
{
    static struct zt_mesh_header last; /* stays while a message may be under way */
    struct zt_mesh_family *f = m->family;
    struct zt_wire_batch *b;

    if (f->is_dead)
        return;
    f->is_dead = process.failed = true;
    if (!tell || !f->abort_tag)
        return;
    if (f->head)
        zt_shm_mark_abort(f->head, (int)(word >> 16), (int)(word & 0xffff) - 1);
    b = m->wire->batch_open(f->world);
    if (!b)
        return;
    last = (struct zt_mesh_header){.op = OP_ABORT, .count = word};
    for (int r = 0; r < f->world; r++)
        if (r != f->rank)
            m->wire->send(b, &last, sizeof(last), r, f->abort_tag);
    flush(m, b);
    m->wire->batch_close(b);
}

static uint32_t blame(int why, int rank)
{
    return (uint32_t)why << 16 | (uint32_t)(rank + 1);
}

static zt_err aborted(struct zt_mesh *m, uint32_t word, bool tell, struct zt_fault *fault)
{
    int rank = (int)(word & 0xffff) - 1;

    die(m, word, tell);
    if (word >> 16 == ZT_SHM_WHY_LATE)
        return zt_fault_set(fault, ZT_E_PEER,
                            "comm: %s (call %llu) on rank %d: given up, because rank %d "
                            "did not come in time",
                            m->doing, (unsigned long long)m->seq, m->family->rank, rank);
    return zt_fault_set(fault, ZT_E_PEER,
                        "comm: %s (call %llu) on rank %d: rank %d has failed", m->doing,
                        (unsigned long long)m->seq, m->family->rank, rank);
}

/* An abort of this process, or one that the daemon tells of; 0: none. */
static uint32_t abort_word(const struct zt_mesh_family *f)
{
    uint32_t word = atomic_load(&f->abort);

    return word || !f->head ? word : atomic_load(&f->head->abort);
}

/* The library's words; unless a rank turns out to be gone, which explains them better. */
static zt_err wire_error(struct zt_mesh *m, int error, struct zt_fault *fault)
{
    double until = now_s() + BLAME_S;
    char text[512];

    while (m->family->head && !abort_word(m->family) && now_s() < until)
        sleep_ns(10 * 1000 * 1000);
    if (abort_word(m->family))
        return aborted(m, abort_word(m->family), true, fault);
    m->wire->why(error, text, sizeof(text));
    die(m, blame(ZT_SHM_WHY_FAILED, m->family->rank), true);
    return zt_fault_set(fault, ZT_E_PEER, "comm: %s (call %llu) on rank %d: %s: %s",
                        m->doing, (unsigned long long)m->seq, m->family->rank,
                        m->wire->name, text);
}

static zt_err too_late(struct zt_mesh *m, const struct zt_wire_batch *b,
                       struct zt_fault *fault)
{
    int who[MISSING_MAX + 1], num = m->wire->missing(b, who, MISSING_MAX + 1);
    char list[96] = "";
    size_t used = 0;

    for (int i = 0; i < num && i < MISSING_MAX; i++) {
        int len =
            snprintf(list + used, sizeof(list) - used, "%s%d", i ? ", " : "", who[i]);

        used += len > 0 ? (size_t)len : 0;
    }
    die(m, blame(ZT_SHM_WHY_LATE, num ? who[0] : m->family->rank), true);
    return zt_fault_set(fault, ZT_E_PEER,
                        "comm: %s (call %llu) on rank %d: rank%s %s%s did not come "
                        "within %g s",
                        m->doing, (unsigned long long)m->seq, m->family->rank,
                        num > 1 ? "s" : "", list, num > MISSING_MAX ? " and more" : "",
                        m->family->timeout_s);
}

/* Has anybody called it off? *word says who is to blame; 0: nobody, go on. */
static int listen(struct zt_mesh *m, uint32_t *word, bool *tell)
{
    struct zt_mesh_family *f = m->family;
    struct zt_mesh_header last;
    bool got = false;
    int e = f->error;

    *word = abort_word(f);
    *tell = true;
    if (*word || e || !f->abort_tag)
        return e;
    e = m->wire->heard(&last, sizeof(last), f->abort_tag, &got);
    if (!e && got) {
        *word = (uint32_t)last.count;
        *tell = false;
    }
    return e;
}

/* ---------------------------------------------------------------- waiting */
/* Between two looks, once spinning did not pay: let others have the core. */
static void rest(unsigned turn)
{
    if (turn < YIELDS)
        sched_yield();
    else
        sleep_ns(SLEEP_NS);
}

/* A look around, between two of a wait. */
static zt_err check_peers(struct zt_mesh *m, struct zt_wire_batch *b, bool *done,
                          double deadline, struct zt_fault *fault)
{
    uint32_t word;
    bool tell;
    int e = listen(m, &word, &tell);

    if (!e && !word && now_s() < deadline)
        return ZT_OK;
    if (!e) /* what was sent before the bad news counts */
        e = m->wire->poll(b, done);
    if (e)
        return wire_error(m, e, fault);
    if (*done)
        return ZT_OK;
    return word ? aborted(m, word, tell, fault) : too_late(m, b, fault);
}

static zt_err wait_on(struct zt_mesh *m, struct zt_wire_batch *b, struct zt_fault *fault)
{
    unsigned spin = m->background ? 0 : m->spin;
    double deadline = 0;
    bool done = false;

    for (unsigned i = 0;; i += i < UINT_MAX) {
        int e = m->family->error ? m->family->error : m->wire->poll(b, &done);
        zt_err rc;

        if (e)
            return wire_error(m, e, fault);
        if (done && i < spin)
            m->spin = m->spin < SPIN_MAX / 2 ? m->spin * 2 : SPIN_MAX;
        if (done)
            return ZT_OK;
        if (i < spin)
            continue;
        if (i == spin) {
            deadline = now_s() + m->family->timeout_s;
            if (!m->background)
                m->spin = m->spin > SPIN_MIN * 2 ? m->spin / 2 : SPIN_MIN;
        }
        rc = check_peers(m, b, &done, deadline, fault);
        if (rc || done)
            return rc;
        rest(i - spin);
    }
}

void zt_mesh_send(struct zt_mesh *m, int b, const void *at, size_t bytes, int to)
{
    int e =
        m->wire->send(m->batch[b], at, bytes, m->member[to], m->tags + TAG_BATCH + b / 2);

    if (e)
        m->family->error = e;
}

void zt_mesh_recv(struct zt_mesh *m, int b, void *at, size_t bytes, int from)
{
    int e = m->wire->recv(m->batch[b], at, bytes, m->member[from],
                          m->tags + TAG_BATCH + b / 2);

    if (e)
        m->family->error = e;
}

zt_err zt_mesh_wait(struct zt_mesh *m, int b, struct zt_fault *fault)
{
    return wait_on(m, m->batch[b], fault);
}

/* ---------------------------------------------------------------- one call */
static char *slot(char *area, int rank)
{
    return area + (size_t)rank * SLOT_BYTES;
}

const struct zt_mesh_header *zt_mesh_header(const struct zt_mesh *m, int rank)
{
    return (const void *)slot(m->in, rank);
}

const void *zt_mesh_payload(const struct zt_mesh *m, int rank)
{
    return slot(m->in, rank) + sizeof(struct zt_mesh_header);
}

static bool same_call(const struct zt_mesh_header *a, const struct zt_mesh_header *b)
{
    return a->seq == b->seq && a->op == b->op && a->count == b->count &&
           a->dtype == b->dtype && a->reduce == b->reduce && a->root == b->root &&
           a->scale_bits == b->scale_bits;
}

static void header_text(const struct zt_mesh_header *h, char *out, size_t out_bytes)
{
    struct zt_comm_call call = {.op = (zt_comm_op)h->op,
                                .dtype = (zt_dtype)h->dtype,
                                .reduce = (zt_reduce_op)h->reduce,
                                .root = h->root,
                                .count = h->count,
                                .scale = zt_bits_f32(h->scale_bits)};

    zt_comm_call_text(&call, out, out_bytes);
}

/* All have all headers, so all members come to the same end; other ranks must be told. */
static void disagree(struct zt_mesh *m)
{
    die(m, blame(ZT_SHM_WHY_FAILED, m->family->rank), m->world < m->family->world);
}

static zt_err compare(struct zt_mesh *m, struct zt_fault *fault)
{
    const struct zt_mesh_header *first = zt_mesh_header(m, 0);
    char want[128], other[128];

    for (int r = 0; r < m->world; r++)
        if (zt_mesh_header(m, r)->op == OP_CLOSED) {
            disagree(m);
            return zt_fault_set(fault, ZT_E_PEER,
                                "comm: %s (call %llu) on rank %d: rank %d has closed its "
                                "communicator",
                                m->doing, (unsigned long long)m->seq, m->family->rank,
                                m->member[r]);
        }
    for (int r = 1; r < m->world; r++) {
        if (same_call(zt_mesh_header(m, r), first))
            continue;
        disagree(m);
        header_text(zt_mesh_header(m, r), want, sizeof(want));
        header_text(first, other, sizeof(other));
        return zt_fault_set(
            fault, ZT_E_PEER, "comm: call %llu differs: rank %d wants %s, rank %d %s",
            (unsigned long long)m->seq, m->member[r], want, m->member[0], other);
    }
    return ZT_OK;
}

/* Fill a slot: header and payload for one rank. */
static size_t fill(char *at, const struct zt_mesh_header *h,
                   const struct zt_mesh_small *small, int rank)
{
    memcpy(at, h, sizeof(*h));
    if (!small || !small->bytes)
        return sizeof(*h);
    memcpy(at + sizeof(*h), (const char *)small->send + (size_t)rank * small->stride,
           small->bytes);
    return sizeof(*h) + small->bytes;
}

/* Every rank's slot to every other; each starts with another peer. */
static zt_err exchange(struct zt_mesh *m, const struct zt_mesh_header *h,
                       const struct zt_mesh_small *small, struct zt_fault *fault)
{
    int e = 0;

    for (int i = 1; !e && i < m->world; i++) {
        int from = (m->rank + m->world - i) % m->world;

        e = m->wire->recv(m->headers, slot(m->in, from), SLOT_BYTES, m->member[from],
                          m->tags + TAG_HEADER);
    }
    for (int i = 1; !e && i < m->world; i++) {
        int to = (m->rank + i) % m->world;
        char *at = slot(m->out, small && small->stride ? to : 0);
        size_t bytes = i == 1 || (small && small->stride)
                           ? fill(at, h, small, to)
                           : sizeof(*h) + (small ? small->bytes : 0);

        e = m->wire->send(m->headers, at, bytes, m->member[to], m->tags + TAG_HEADER);
    }
    fill(slot(m->in, m->rank), h, small, m->rank);
    return e ? wire_error(m, e, fault) : wait_on(m, m->headers, fault);
}

zt_err zt_mesh_begin(struct zt_mesh *m, const struct zt_comm_call *call, uint8_t flags,
                     const struct zt_mesh_small *small, struct zt_fault *fault)
{
    struct zt_mesh_header h = {.seq = ++m->seq,
                               .count = call->count,
                               .scale_bits = zt_f32_bits(call->scale),
                               .root = call->root,
                               .next_tags = process.next_tags,
                               .op = (uint8_t)call->op,
                               .dtype = (uint8_t)call->dtype,
                               .reduce = (uint8_t)call->reduce,
                               .flags = flags};
    uint32_t word = abort_word(m->family);
    zt_err rc;

    m->doing = zt_comm_op_name(call->op);
    m->background = call->background;
    if (word)
        return aborted(m, word, true, fault);
    rc = exchange(m, &h, small, fault);
    return rc ? rc : compare(m, fault);
}

void zt_mesh_abort(struct zt_mesh *m, int rank)
{
    struct zt_mesh_family *f = m->family;
    uint32_t none = 0, word = blame(ZT_SHM_WHY_FAILED, m->member[rank]);

    atomic_compare_exchange_strong(&f->abort, &none, word);
    if (f->head)
        zt_shm_mark_abort(f->head, ZT_SHM_WHY_FAILED, m->member[rank]);
}

/* ---------------------------------------------------------------- coming and going */
static void release(struct zt_mesh *m, bool keep_out)
{
    for (int i = 0; i < ZT_MESH_BATCHES; i++)
        m->wire->batch_close(m->batch[i]);
    m->wire->batch_close(m->headers);
    if (!keep_out)
        free(m->out);
    free(m->in);
    free(m->member);
    free(m);
}

/* A mesh that has yet to get its tags; NULL: no memory. */
static struct zt_mesh *allocate(const struct zt_wire *wire, struct zt_mesh_family *f,
                                int rank, int world)
{
    struct zt_mesh *m = calloc(1, sizeof(*m));
    bool fine;

    if (!m)
        return NULL;
    m->wire = wire;
    m->family = f;
    m->rank = rank;
    m->world = world;
    m->spin = SPIN_MAX / 8;
    m->doing = zt_comm_op_name(ZT_COMM_OPEN);
    m->member = calloc((size_t)world, sizeof(*m->member));
    m->out = calloc((size_t)world, SLOT_BYTES);
    m->in = calloc((size_t)world, SLOT_BYTES);
    m->headers = wire->batch_open(2 * world);
    fine = m->member && m->out && m->in && m->headers;
    for (int i = 0; i < ZT_MESH_BATCHES; i++)
        fine = (m->batch[i] = wire->batch_open(2 * world)) && fine;
    if (fine)
        return m;
    release(m, false);
    return NULL;
}

/* From the headers of a call: tags that are free on all ranks of `parent`. */
static zt_err take_tags(const struct zt_mesh *parent, int *tags, struct zt_fault *fault)
{
    int top = 0;

    for (int r = 0; r < parent->world; r++)
        if (zt_mesh_header(parent, r)->next_tags > top)
            top = zt_mesh_header(parent, r)->next_tags;
    if (top > process.max_tag - NUM_TAGS)
        return zt_fault_set(fault, ZT_E_LIMIT,
                            "comm: %s has no tags left for another communicator",
                            parent->wire->name);
    process.next_tags = top + NUM_TAGS;
    *tags = top;
    return ZT_OK;
}

/* The page with the daemon's word; NULL where there is no daemon, or no page. */
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

/* Take what the others still sent, and end the library with them. */
static void end_of_process(int status, void *unused)
{
    double deadline = now_s() + process.timeout_s;

    (void)unused;
    if (status != 0 || process.failed)
        return;
    while (process.owed > 0) {
        struct zt_mesh_header h;
        bool got = false;

        if (process.wire->heard(&h, sizeof(h), -1, &got) || now_s() >= deadline)
            return;
        if (got && h.op != OP_CLOSED)
            return;
        process.owed -= got;
        if (!got)
            sleep_ns(SLEEP_NS);
    }
    process.wire->stop();
}

static zt_err start_wire(const struct zt_comm_config *cfg, const struct zt_wire **out,
                         struct zt_fault *fault)
{
    char why[512] = "";
    zt_err rc = zt_wire_load(&process.wire, fault);

    if (rc)
        return rc;
    if (!process.is_up) {
        if (process.wire->start(&process.rank, &process.world, &process.max_tag, why,
                                sizeof(why)))
            return zt_fault_set(fault, ZT_E_SYSTEM, "comm: %s: %s", process.wire->name,
                                why);
        process.is_up = true;
        on_exit(end_of_process, NULL);
    }
    if (process.world != cfg->world || process.rank != cfg->rank) {
        process.failed = true;
        return zt_fault_set(
            fault, ZT_E_UNSUPPORTED,
            "comm: rank %d of %d is rank %d of %d to MPI: start the ranks "
            "with zlaunch on one node, or with the mpirun of this MPI, and "
            "leave RANK and WORLD_SIZE unset there",
            cfg->rank, cfg->world, process.rank, process.world);
    }
    process.timeout_s = cfg->timeout_s;
    *out = process.wire;
    return ZT_OK;
}

zt_err zt_mesh_open(const struct zt_comm_config *cfg, struct zt_mesh **out,
                    struct zt_fault *fault)
{
    struct zt_comm_call call = {.op = ZT_COMM_OPEN};
    const struct zt_wire *wire = NULL;
    struct zt_mesh_family *f;
    struct zt_mesh *m;
    zt_err rc;

    if (!(cfg->timeout_s > 0))
        return zt_fault_set(fault, ZT_E_ARG, "comm: mpi needs a timeout above 0 s");
    if (cfg->world > UINT16_MAX - 1)
        return zt_fault_set(fault, ZT_E_LIMIT, "comm: mpi is for at most %d ranks",
                            UINT16_MAX - 1);
    rc = start_wire(cfg, &wire, fault);
    if (rc)
        return rc;
    f = calloc(1, sizeof(*f));
    m = f ? allocate(wire, f, cfg->rank, cfg->world) : NULL;
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
    m->tags = TAG_LOBBY;
    rc = zt_mesh_begin(m, &call, 0, NULL, fault);
    if (!rc)
        rc = take_tags(m, &m->tags, fault);
    if (rc) {
        process.failed = true;
        release(m, false);
        release_family(f);
        return rc;
    }
    f->abort_tag = m->tags + TAG_ABORT;
    *out = m;
    return ZT_OK;
}

zt_err zt_mesh_split(struct zt_mesh *m, const int *members, int num_members, int my_index,
                     bool no_memory, struct zt_mesh **out, struct zt_fault *fault)
{
    struct zt_comm_call call = {.op = ZT_COMM_SPLIT};
    struct zt_mesh *g =
        no_memory ? NULL : allocate(m->wire, m->family, my_index, num_members);
    zt_err rc = zt_mesh_begin(m, &call, g ? 0 : ZT_MESH_NO_MEMORY, NULL, fault);
    int tags = 0;

    for (int r = 0; !rc && r < m->world; r++)
        if (zt_mesh_header(m, r)->flags & ZT_MESH_NO_MEMORY)
            rc = zt_fault_set(fault, ZT_E_NOMEM,
                              "comm: rank %d has no memory for a group of ranks",
                              m->member[r]);
    if (!rc)
        rc = take_tags(m, &tags, fault);
    if (rc) {
        if (g)
            release(g, false);
        return rc;
    }
    for (int i = 0; i < num_members; i++)
        g->member[i] = m->member[members[i]];
    g->tags = tags;
    *out = g;
    return ZT_OK;
}

/* To all others: this rank has left. */
static bool say_closed(struct zt_mesh *m)
{
    struct zt_mesh_header h = {.seq = m->seq + 1, .op = OP_CLOSED};

    process.owed += m->world - 1;
    memcpy(m->out, &h, sizeof(h));
    for (int i = 1; i < m->world; i++)
        if (m->wire->send(m->headers, m->out, sizeof(h),
                          m->member[(m->rank + i) % m->world], m->tags + TAG_HEADER))
            return false;
    return flush(m, m->headers);
}

void zt_mesh_close(struct zt_mesh *m)
{
    struct zt_mesh_family *f;
    bool is_root, sent = true;

    if (!m)
        return;
    f = m->family;
    is_root = f->abort_tag == m->tags + TAG_ABORT;
    if (!f->is_dead && atomic_load(&f->abort)) /* called off here, and nobody waited */
        die(m, atomic_load(&f->abort), true);
    else if (!f->is_dead)
        sent = say_closed(m);
    release(m, !sent); /* MPI may still read what it has not sent */
    if (is_root)
        release_family(f);
}
