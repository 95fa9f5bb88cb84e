/* mesh.c -- calls on a mesh: headers, waits, and how a failure ends them. */
#include "worker/comm/mesh/private.h"

#include "common/half.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#define SPIN_MIN    16u
#define YIELDS      16u
#define FLUSH_S     0.02 /* for a message whose receiver may be gone */
#define LINGER_NS   20000000
#define BLAME_S     1.0 /* from an error of the library to the daemon's abort word */
#define LOST_S      0.2 /* for messages that explain why a rank is gone */
#define MISSING_MAX 4

/*
 * When a rank dies. UCX, under MPICH, copies large messages straight out of the sender's
 * memory and calls abort() when that is gone. So once a rank is known to be dead no
 * message is moved any more, and a rank that fails lingers a moment, with its memory,
 * until the others on its node have seen the same abort word. When a rank is killed in
 * the middle of such a copy its peer can still end by abort(); the daemon names the
 * first.
 */
struct zt_mesh_process zt_mesh_process = {.next_tags = ZT_MESH_NUM_TAGS};

/* ---------------------------------------------------------------- what is wrong */
int zt_mesh_find_lost(const struct zt_transport *transport, double *lost_at)
{
    int e = transport->find_lost ? transport->find_lost() : 0;

    if (!e)
        return 0;
    if (!*lost_at)
        *lost_at = zt_mesh_now_s();
    return zt_mesh_now_s() - *lost_at < LOST_S ? 0 : e;
}

bool zt_mesh_flush(const struct zt_mesh *m, struct zt_transport_batch *b)
{
    double until = zt_mesh_now_s() + FLUSH_S;
    bool done = false;

    while (!m->transport->poll(b, &done) && !done && zt_mesh_now_s() < until)
        sched_yield();
    return done;
}

void zt_mesh_end(struct zt_mesh *m, uint32_t word, bool tell)
{
    static struct zt_mesh_header last; /* valid while a message may be in flight */
    struct zt_mesh_family *f = m->family;
    struct zt_transport_batch *b;

    if (f->has_ended)
        return;
    f->has_ended = zt_mesh_process.failed = true;
    atomic_store(&f->end_word, word);
    if (!tell || !f->abort_tag)
        return;
    if (f->head)
        zt_shm_mark_abort(f->head, (int)(word >> 16), (int)(word & 0xffff) - 1);
    b = m->transport->batch_open(f->world);
    if (!b)
        return;
    last = (struct zt_mesh_header){.op = ZT_MESH_OP_ABORT, .count = word};
    for (int r = 0; r < f->world; r++)
        if (r != f->rank)
            m->transport->send(b, &last, sizeof(last), r, f->abort_tag);
    /* ranks of this node read it in the page; see above why nothing is moved now */
    if (f->head)
        zt_mesh_sleep_ns(LINGER_NS);
    else
        zt_mesh_flush(m, b);
    m->transport->batch_close(b);
}

static uint32_t blame(int error_text, int rank)
{
    return (uint32_t)error_text << 16 | (uint32_t)(rank + 1);
}

static zt_err aborted(struct zt_mesh *m, uint32_t word, bool tell, struct zt_fault *fault)
{
    char where[96];

    zt_mesh_end(m, word, tell);
    snprintf(where, sizeof(where), "%s (call %llu) on rank %d: ", m->call_name,
             (unsigned long long)m->seq, m->family->rank);
    return zt_shm_abort_fault(word, where, fault);
}

/* The abort word of this process, or the daemon's; 0: none. */
static uint32_t abort_word(const struct zt_mesh_family *f)
{
    uint32_t word = atomic_load(&f->abort);

    return word || !f->head ? word : atomic_load(&f->head->abort);
}

/* Receive an abort message if one is there; else *word is left as it is. */
static int receive_abort(struct zt_mesh *m, uint32_t *word)
{
    struct zt_mesh_family *f = m->family;
    struct zt_mesh_header last;
    bool got = false;
    int e = f->abort_tag ? m->transport->try_recv(&last, sizeof(last), f->abort_tag, &got)
                         : 0;

    if (!e && got)
        *word = (uint32_t)last.count;
    return e;
}

/* A rank that leaves because of another one has said so before, but another message may
 * say more, and others may be gone as well: a moment for both. */
static uint32_t await_reason(struct zt_mesh *m)
{
    double until = zt_mesh_now_s() + LOST_S;
    uint32_t word = 0;

    while (!receive_abort(m, &word) && !word && zt_mesh_now_s() < until)
        zt_mesh_sleep_ns(ZT_MESH_SLEEP_NS);
    return word;
}

/* Nobody tells who left first: "ranks 1 and 2 are gone"; false: one alone is. */
static bool several_lost(const struct zt_mesh *m, char *out, size_t cap)
{
    int lost[MISSING_MAX + 1], num = m->transport->lost_ranks(lost, MISSING_MAX + 1);
    size_t at = 0;

    for (int i = 0; num > 1 && i < num && at < cap; i++)
        at += (size_t)snprintf(out + at, cap - at, "%s%d",
                               !i            ? "ranks "
                               : i < num - 1 ? ", "
                                             : " and ",
                               lost[i]);
    if (num > 1 && at < cap)
        snprintf(out + at, cap - at,
                 "%s are gone; which of them was the first is not "
                 "known",
                 num > MISSING_MAX ? " and more" : "");
    return num > 1;
}

/* The fault for an error of the transport; if a rank turns out to be gone, that instead.
 */
static zt_err transport_error(struct zt_mesh *m, int error, struct zt_fault *fault)
{
    double until = zt_mesh_now_s() + BLAME_S;
    int rank = m->transport->error_rank ? m->transport->error_rank(error) : -1;
    uint32_t word = 0;
    char text[512];
    zt_err code = m->transport->error_code ? m->transport->error_code(error) : ZT_E_LOST;

    while (m->family->head && !abort_word(m->family) && zt_mesh_now_s() < until)
        zt_mesh_sleep_ns(10 * 1000 * 1000);
    if (abort_word(m->family))
        return aborted(m, abort_word(m->family), true, fault);
    if (rank >= 0)
        word = await_reason(m);
    if (word)
        return aborted(m, word, false, fault);
    if (rank >= 0 && several_lost(m, text, sizeof(text))) {
        rank = -1;
    } else {
        m->transport->error_text(error, text, sizeof(text));
        rank = rank >= 0 ? rank : m->family->rank;
    }
    zt_mesh_end(m, blame(code == ZT_E_LOST ? ZT_SHM_WHY_LOST : ZT_SHM_WHY_FAILED, rank),
                true);
    return zt_fault_set(fault, code, "comm: %s (call %llu) on rank %d: %s: %s",
                        m->call_name, (unsigned long long)m->seq, m->family->rank,
                        m->transport->name, text);
}

static zt_err too_late(struct zt_mesh *m, const struct zt_transport_batch *b,
                       struct zt_fault *fault)
{
    int late[MISSING_MAX + 1],
        num = m->transport->pending_ranks(b, late, MISSING_MAX + 1);
    char list[96] = "";
    size_t used = 0;

    for (int i = 0; i < num && i < MISSING_MAX; i++) {
        int len =
            snprintf(list + used, sizeof(list) - used, "%s%d", i ? ", " : "", late[i]);

        used += len > 0 ? (size_t)len : 0;
    }
    zt_mesh_end(m, blame(ZT_SHM_WHY_LATE, num ? late[0] : m->family->rank), true);
    return zt_fault_set(fault, ZT_E_PEER,
                        "comm: %s (call %llu) on rank %d: rank%s %s%s did not come "
                        "within %g s",
                        m->call_name, (unsigned long long)m->seq, m->family->rank,
                        num > 1 ? "s" : "", list, num > MISSING_MAX ? " and more" : "",
                        m->family->timeout_s);
}

/* Has anybody aborted? *word says who is blamed; 0: nobody, go on. *tell: the others may
 * not know. */
static int check_aborted(struct zt_mesh *m, uint32_t *word, bool *tell)
{
    int e = m->family->error;

    *word = abort_word(m->family);
    *tell = true;
    if (*word || e)
        return e;
    e = receive_abort(m, word);
    *tell = !*word;
    return e || *word ? e : zt_mesh_find_lost(m->transport, &m->family->lost_at);
}

/* ---------------------------------------------------------------- waiting */
/* Between two polls, once spinning did not pay: let others have the core. */
static void back_off(unsigned turn)
{
    if (turn < YIELDS)
        sched_yield();
    else
        zt_mesh_sleep_ns(ZT_MESH_SLEEP_NS);
}

/* Between two polls of a wait: has somebody aborted, or is the time over? */
static zt_err check_peers(struct zt_mesh *m, struct zt_transport_batch *b, bool *done,
                          double deadline, struct zt_fault *fault)
{
    uint32_t word;
    bool tell;
    int e = check_aborted(m, &word, &tell);

    if (!e && !word && zt_mesh_now_s() < deadline)
        return ZT_OK;
    if (!e) /* messages that were sent before the abort count */
        e = m->transport->poll(b, done);
    if (e)
        return transport_error(m, e, fault);
    if (*done)
        return ZT_OK;
    return word ? aborted(m, word, tell, fault) : too_late(m, b, fault);
}

static zt_err wait_on(struct zt_mesh *m, struct zt_transport_batch *b,
                      struct zt_fault *fault)
{
    unsigned spin = m->background ? 0 : m->spin;
    double deadline = 0;
    bool done = false;

    for (unsigned i = 0;; i += i < UINT_MAX) {
        int e = m->family->error ? m->family->error : m->transport->poll(b, &done);
        zt_err rc;

        if (e)
            return transport_error(m, e, fault);
        if (done && i < spin)
            m->spin = m->spin < ZT_MESH_SPIN_MAX / 2 ? m->spin * 2 : ZT_MESH_SPIN_MAX;
        if (done)
            return ZT_OK;
        if (i < spin)
            continue;
        if (i == spin) {
            deadline = zt_mesh_now_s() + m->family->timeout_s;
            if (!m->background)
                m->spin = m->spin > SPIN_MIN * 2 ? m->spin / 2 : SPIN_MIN;
        }
        rc = check_peers(m, b, &done, deadline, fault);
        if (rc || done)
            return rc;
        back_off(i - spin);
    }
}

void zt_mesh_send(struct zt_mesh *m, int b, const void *at, size_t bytes, int to)
{
    int e = m->transport->send(m->batch[b], at, bytes, m->member[to],
                               m->tags + ZT_MESH_TAG_BATCH + b / 2);

    if (e)
        m->family->error = e;
}

void zt_mesh_recv(struct zt_mesh *m, int b, void *at, size_t bytes, int from)
{
    int e = m->transport->recv(m->batch[b], at, bytes, m->member[from],
                               m->tags + ZT_MESH_TAG_BATCH + b / 2);

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
    return area + (size_t)rank * ZT_MESH_SLOT_BYTES;
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
                                .scale = zt_float_of_bits(h->scale_bits)};

    zt_comm_call_text(&call, out, out_bytes);
}

/* All members have all headers and fail alike; ranks outside the group must be told. */
static void disagree(struct zt_mesh *m)
{
    zt_mesh_end(m, blame(ZT_SHM_WHY_FAILED, m->family->rank),
                m->world < m->family->world);
}

static zt_err compare(struct zt_mesh *m, struct zt_fault *fault)
{
    const struct zt_mesh_header *first = zt_mesh_header(m, 0);
    char want[128], other[128];

    for (int r = 0; r < m->world; r++)
        if (zt_mesh_header(m, r)->op == ZT_MESH_OP_CLOSED) {
            disagree(m);
            return zt_fault_set(fault, ZT_E_PEER,
                                "comm: %s (call %llu) on rank %d: rank %d has closed its "
                                "communicator",
                                m->call_name, (unsigned long long)m->seq, m->family->rank,
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

/* Fill a slot with the header and payload for one rank. */
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

/* Send every rank's slot to every other; each starts with another peer. */
static zt_err exchange(struct zt_mesh *m, const struct zt_mesh_header *h,
                       const struct zt_mesh_small *small, struct zt_fault *fault)
{
    int e = 0;

    for (int i = 1; !e && i < m->world; i++) {
        int from = (m->rank + m->world - i) % m->world;

        e = m->transport->recv(m->headers, slot(m->in, from), ZT_MESH_SLOT_BYTES,
                               m->member[from], m->tags + ZT_MESH_TAG_HEADER);
    }
    for (int i = 1; !e && i < m->world; i++) {
        int to = (m->rank + i) % m->world;
        char *at = slot(m->out, small && small->stride ? to : 0);
        size_t bytes = i == 1 || (small && small->stride)
                           ? fill(at, h, small, to)
                           : sizeof(*h) + (small ? small->bytes : 0);

        e = m->transport->send(m->headers, at, bytes, m->member[to],
                               m->tags + ZT_MESH_TAG_HEADER);
    }
    fill(slot(m->in, m->rank), h, small, m->rank);
    return e ? transport_error(m, e, fault) : wait_on(m, m->headers, fault);
}

zt_err zt_mesh_begin(struct zt_mesh *m, const struct zt_comm_call *call, uint8_t flags,
                     const struct zt_mesh_small *small, struct zt_fault *fault)
{
    struct zt_mesh_header h = {.seq = ++m->seq,
                               .count = call->count,
                               .scale_bits = zt_float_bits(call->scale),
                               .root = call->root,
                               .next_tags = zt_mesh_process.next_tags,
                               .op = (uint8_t)call->op,
                               .dtype = (uint8_t)call->dtype,
                               .reduce = (uint8_t)call->reduce,
                               .flags = flags};
    uint32_t word = abort_word(m->family);
    zt_err rc;

    m->call_name = zt_comm_op_name(call->op);
    m->background = call->background;
    if (word)
        return aborted(m, word, true, fault);
    rc = exchange(m, &h, small, fault);
    return rc ? rc : compare(m, fault);
}

bool zt_mesh_failed(const struct zt_mesh *m, struct zt_fault *fault)
{
    uint32_t word = abort_word(m->family);
    char text[512];
    int e;

    word = word ? word : atomic_load(&m->family->end_word);
    if (word) {
        zt_shm_abort_fault(word, "", fault);
        return true;
    }
    e = m->transport->find_lost ? m->transport->find_lost() : 0;
    if (!e)
        return false;
    if (!several_lost(m, text, sizeof(text)))
        m->transport->error_text(e, text, sizeof(text));
    zt_fault_set(fault, ZT_E_LOST, "comm: %s: %s", m->transport->name, text);
    return true;
}

void zt_mesh_abort(struct zt_mesh *m, int rank)
{
    struct zt_mesh_family *f = m->family;
    uint32_t none = 0, word = blame(ZT_SHM_WHY_FAILED, m->member[rank]);

    atomic_compare_exchange_strong(&f->abort, &none, word);
    if (f->head)
        zt_shm_mark_abort(f->head, ZT_SHM_WHY_FAILED, m->member[rank]);
}
