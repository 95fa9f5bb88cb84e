#include "worker/comm/meet.h"

#include "worker/comm/fold.h"
#include "worker/comm/half.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

/*
 * Waiting. A rank spins for a moment, then sleeps on the bell. The moment is a budget of
 * turns (a few ns to a few tens of ns each) that doubles when spinning was enough and
 * halves when it was not: ranks with a core each meet without a system call, ranks that
 * share one soon stop burning it.
 *
 * No wake-up is lost: the opener stores the generation, then looks for sleepers; the
 * sleeper counts itself, reads the bell, then looks at the generation. Both in the one
 * order of sequentially consistent accesses, so one of them sees the other. A rank that
 * was killed while it slept leaves the count too high; that costs needless wake-ups.
 */
#define SPIN_MIN  16u
#define SPIN_MAX  2048u
#define CHUNK_MAX ((size_t)64 << 20)

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool reached(uint32_t have, uint32_t want)
{
    return (int32_t)(have - want) >= 0;
}

/* "rank 1", "ranks 1, 3", "ranks 1, 2, 3, 4 and 12 more": those not yet at `phase`. */
static int missing_text(const struct zt_meet *m, uint32_t phase, int *first, char *out,
                        size_t out_bytes)
{
    int num = 0, len;
    char list[64] = "";
    size_t used = 0;

    for (int r = 0; r < m->world; r++) {
        if (reached(atomic_load(&m->line[r].phase), phase))
            continue;
        if (!num)
            *first = r;
        if (++num <= 4) {
            len = snprintf(list + used, sizeof(list) - used, "%s%d", num > 1 ? ", " : "",
                           r);
            used += len > 0 ? (size_t)len : 0;
        }
    }
    if (num > 4)
        snprintf(list + used, sizeof(list) - used, " and %d more", num - 4);
    snprintf(out, out_bytes, "rank%s %s", num > 1 ? "s" : "", list);
    return num;
}

static zt_err aborted(const struct zt_meet *m, uint32_t word, struct zt_fault *fault)
{
    int rank = (int)(word & 0xffff) - 1;

    if (word >> 16 == ZT_SHM_WHY_LATE)
        return zt_fault_set(fault, ZT_E_PEER,
                            "comm: %s (call %llu) on rank %d: given up, because rank %d "
                            "did not come in time",
                            m->doing, (unsigned long long)m->seq, m->rank, rank);
    return zt_fault_set(fault, ZT_E_PEER,
                        "comm: %s (call %llu) on rank %d: rank %d has failed", m->doing,
                        (unsigned long long)m->seq, m->rank, rank);
}

/* A rank that closed its communicator will never arrive at `phase`. */
static zt_err check_left(const struct zt_meet *m, uint32_t phase, struct zt_fault *fault)
{
    for (int r = 0; r < m->world; r++)
        if (atomic_load(&m->line[r].state) == ZT_SHM_LEFT &&
            !reached(atomic_load(&m->line[r].phase), phase))
            return zt_fault_set(fault, ZT_E_PEER,
                                "comm: %s (call %llu) on rank %d: rank %d has closed its "
                                "communicator",
                                m->doing, (unsigned long long)m->seq, m->rank, r);
    return ZT_OK;
}

static zt_err too_late(struct zt_meet *m, uint32_t phase, struct zt_fault *fault)
{
    char who[96];
    int first = 0;

    if (!missing_text(m, phase, &first, who, sizeof(who))) {
        /* All came, and the last of them is about to open, or died right there. Nobody
         * can be past this phase, so opening it twice is harmless. */
        atomic_store(&m->head->generation, phase);
        zt_shm_ring(m->head);
        return ZT_OK;
    }
    zt_shm_mark_abort(m->head, ZT_SHM_WHY_LATE, first);
    return zt_fault_set(fault, ZT_E_PEER,
                        "comm: %s (call %llu) on rank %d: %s did not come within %g s",
                        m->doing, (unsigned long long)m->seq, m->rank, who, m->timeout_s);
}

/* Sleep until the bell leaves `seen`, or `deadline`. Returns for other reasons too. */
static void sleep_on_bell(struct zt_shm_head *h, uint32_t seen, double deadline)
{
    double left = deadline - now_s();
    struct timespec t = {0};

    if (left <= 0)
        return;
    if (left > 1e6)
        left = 1e6;
    t.tv_sec = (time_t)left;
    t.tv_nsec = (long)((left - floor(left)) * 1e9);
    syscall(SYS_futex, &h->bell, FUTEX_WAIT, seen, &t, NULL, 0);
}

static zt_err await(struct zt_meet *m, uint32_t phase, struct zt_fault *fault)
{
    struct zt_shm_head *h = m->head;
    double deadline;
    zt_err rc = ZT_OK;

    for (unsigned i = 0; i < m->spin; i++) {
        if (reached(atomic_load_explicit(&h->generation, memory_order_acquire), phase)) {
            m->spin = m->spin < SPIN_MAX / 2 ? m->spin * 2 : SPIN_MAX;
            return ZT_OK;
        }
        relax();
    }
    m->spin = m->spin > SPIN_MIN * 2 ? m->spin / 2 : SPIN_MIN;

    deadline = now_s() + m->timeout_s;
    atomic_fetch_add(&h->sleepers, 1);
    while (!rc) {
        uint32_t bell = atomic_load(&h->bell), word;

        if (reached(atomic_load(&h->generation), phase))
            break;
        word = atomic_load(&h->abort);
        rc = word ? aborted(m, word, fault) : check_left(m, phase, fault);
        if (!rc && now_s() >= deadline)
            rc = too_late(m, phase, fault);
        else if (!rc)
            sleep_on_bell(h, bell, deadline);
    }
    atomic_fetch_sub(&h->sleepers, 1);
    return rc;
}

zt_err zt_meet_sync(struct zt_meet *m, struct zt_fault *fault)
{
    struct zt_shm_head *h = m->head;
    uint32_t phase = ++m->phase, word = atomic_load(&h->abort);

    if (word)
        return aborted(m, word, fault);
    atomic_store(&m->line[m->rank].phase, phase);
    if (atomic_fetch_add(&h->arrived, 1) + 1 != (uint32_t)m->world * phase)
        return await(m, phase, fault);
    atomic_store(&h->generation, phase);
    if (atomic_load(&h->sleepers))
        zt_shm_ring(h);
    return ZT_OK;
}

static void header_text(const struct zt_shm_header *h, char *out, size_t out_bytes)
{
    struct zt_comm_call call = {.op = (zt_comm_op)h->op,
                                .dtype = (zt_dtype)h->dtype,
                                .reduce = (zt_reduce_op)h->reduce,
                                .root = h->root,
                                .count = h->count,
                                .scale = zt_bits_f32(h->scale_bits)};

    zt_comm_call_text(&call, out, out_bytes);
}

static bool same_call(const struct zt_shm_header *a, const struct zt_shm_header *b)
{
    return a->seq == b->seq && a->op == b->op && a->count == b->count &&
           a->dtype == b->dtype && a->reduce == b->reduce && a->root == b->root &&
           a->scale_bits == b->scale_bits;
}

zt_err zt_meet_begin(struct zt_meet *m, const struct zt_comm_call *call,
                     struct zt_shm_header *mine, struct zt_fault *fault)
{
    char want[128], other[128];
    zt_err rc;

    m->doing = zt_comm_op_name(call->op);
    m->seq++;
    mine->seq = m->seq;
    mine->count = call->count;
    mine->op = (uint8_t)call->op;
    mine->dtype = (uint8_t)call->dtype;
    mine->reduce = (uint8_t)call->reduce;
    mine->root = call->root;
    mine->scale_bits = zt_f32_bits(call->scale);
    m->line[m->rank].call[m->seq & 1] = *mine;
    rc = zt_meet_sync(m, fault);
    if (rc)
        return rc;
    for (int r = 1; r < m->world; r++) {
        if (same_call(zt_meet_header(m, r), zt_meet_header(m, 0)))
            continue;
        header_text(zt_meet_header(m, r), want, sizeof(want));
        header_text(zt_meet_header(m, 0), other, sizeof(other));
        return zt_fault_set(fault, ZT_E_PEER,
                            "comm: call %llu differs: rank %d wants %s, rank 0 %s",
                            (unsigned long long)m->seq, r, want, other);
    }
    return ZT_OK;
}

void zt_meet_abort(struct zt_meet *m, int rank)
{
    zt_shm_mark_abort(m->head, ZT_SHM_WHY_FAILED, rank);
}

/* ---------------------------------------------------------------- coming and going */
static size_t page_up(size_t bytes)
{
    return (bytes + ZT_SHM_PAGE - 1) / ZT_SHM_PAGE * ZT_SHM_PAGE;
}

/* In pieces: a signal makes the kernel give up, and give back, a whole request. */
static int allocate(int fd, size_t at, size_t bytes)
{
    int e = 0;

    while (!e && bytes) {
        size_t n = bytes < CHUNK_MAX ? bytes : CHUNK_MAX;

        e = posix_fallocate(fd, (off_t)at, (off_t)n);
        if (e == EINTR)
            e = 0;
        else
            at += n, bytes -= n;
    }
    return e;
}

zt_err zt_meet_reserve(struct zt_meet *m, const void *at, size_t bytes,
                       struct zt_fault *fault)
{
    int e = allocate(m->fd, (size_t)((const char *)at - (const char *)m->head), bytes);

    if (!e)
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_NOMEM,
                        "comm: rank %d: no shared memory for %zu bytes: %s", m->rank,
                        bytes, strerror(e));
}

/* Rank 0: size the file, give the lines memory, and say what the group is. */
static zt_err publish(struct zt_meet *m, struct zt_shm_head *h, struct zt_fault *fault)
{
    int e;

    if (atomic_load(&h->magic))
        return zt_fault_set(fault, ZT_E_ARG, "comm: this shared memory was used before");
    if (ftruncate(m->fd, (off_t)m->map_bytes))
        return zt_fault_set(fault, ZT_E_SYSTEM, "comm: shared memory of %zu bytes: %s",
                            m->map_bytes, strerror(errno));
    e = allocate(m->fd, ZT_SHM_PAGE, page_up((size_t)m->world * sizeof(*m->line)));
    if (e)
        return zt_fault_set(fault, ZT_E_NOMEM, "comm: no shared memory: %s", strerror(e));
    h->world = (uint32_t)m->world;
    h->heap_bytes = m->heap_bytes;
    h->file_bytes = m->map_bytes;
    atomic_store(&h->magic, ZT_SHM_MAGIC);
    zt_shm_ring(h);
    return ZT_OK;
}

/* The others: wait for that, and agree. */
static zt_err await_publish(struct zt_meet *m, struct zt_shm_head *h,
                            struct zt_fault *fault)
{
    double deadline = now_s() + m->timeout_s;

    for (;;) {
        uint32_t bell = atomic_load(&h->bell), magic = atomic_load(&h->magic);
        uint32_t word = atomic_load(&h->abort);

        if (word)
            return aborted(m, word, fault);
        if (magic == ZT_SHM_MAGIC)
            break;
        if (magic)
            return zt_fault_set(fault, ZT_E_PEER,
                                "comm: rank 0 uses another layout (%08x, not %08x)",
                                magic, ZT_SHM_MAGIC);
        if (now_s() >= deadline)
            return zt_fault_set(fault, ZT_E_PEER,
                                "comm: open on rank %d: rank 0 did not come within %g s",
                                m->rank, m->timeout_s);
        sleep_on_bell(h, bell, deadline);
    }
    if (h->world != (uint32_t)m->world || h->heap_bytes != m->heap_bytes ||
        h->file_bytes != m->map_bytes)
        return zt_fault_set(
            fault, ZT_E_PEER,
            "comm: rank %d expects a world of %d with heaps of %zu bytes (%zu in all), "
            "rank 0 made one of %u with %llu (%llu)",
            m->rank, m->world, m->heap_bytes, m->map_bytes, h->world,
            (unsigned long long)h->heap_bytes, (unsigned long long)h->file_bytes);
    return ZT_OK;
}

static zt_err map(struct zt_meet *m, size_t bytes, void **out, struct zt_fault *fault)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);

    if (at == MAP_FAILED)
        return zt_fault_set(fault, ZT_E_SYSTEM, "comm: cannot map %zu bytes: %s", bytes,
                            strerror(errno));
    *out = at;
    return ZT_OK;
}

/* Map the first page, agree through it, then map all in its place. */
static zt_err map_all(struct zt_meet *m, struct zt_fault *fault)
{
    int e = allocate(m->fd, 0, ZT_SHM_PAGE); /* never shrinks what is there */
    void *at;
    zt_err rc;

    if (e)
        return zt_fault_set(fault, ZT_E_SYSTEM, "comm: shared memory (descriptor %d): %s",
                            m->fd, strerror(e));
    rc = map(m, ZT_SHM_PAGE, &at, fault);
    if (rc)
        return rc;
    rc = m->rank ? await_publish(m, at, fault) : publish(m, at, fault);
    munmap(at, ZT_SHM_PAGE);
    if (!rc)
        rc = map(m, m->map_bytes, &at, fault);
    if (rc)
        return rc;
    m->head = at;
    m->line = (void *)((char *)at + ZT_SHM_PAGE);
    m->area = (char *)m->line + page_up((size_t)m->world * sizeof(*m->line));
    return ZT_OK;
}

zt_err zt_meet_join(struct zt_meet *m, const struct zt_comm_config *cfg,
                    struct zt_fault *fault)
{
    size_t lines = page_up((size_t)cfg->world * sizeof(*m->line));
    size_t fixed = 2 * ZT_SHM_SMALL_BYTES + 4 * ZT_SHM_SLOT_BYTES;
    struct zt_comm_call call = {.op = ZT_COMM_OPEN};
    struct zt_shm_header mine = {0};
    uint32_t state = ZT_SHM_ABSENT;
    zt_err rc;

    memset(m, 0, sizeof(*m));
    if (cfg->world > ZT_SHM_MAX_WORLD)
        return zt_fault_set(fault, ZT_E_LIMIT,
                            "comm: shm is for at most %d ranks, not %d", ZT_SHM_MAX_WORLD,
                            cfg->world);
    if (cfg->heap_bytes > (SIZE_MAX >> 2) / ZT_SHM_MAX_WORLD ||
        cfg->shared_bytes > SIZE_MAX >> 2)
        return zt_fault_set(fault, ZT_E_LIMIT, "comm: no heap can hold %zu bytes",
                            cfg->heap_bytes);
    if (!(cfg->timeout_s > 0))
        return zt_fault_set(fault, ZT_E_ARG, "comm: shm needs a timeout above 0 s");
    m->fd = cfg->shm_fd;
    m->rank = cfg->rank;
    m->world = cfg->world;
    m->timeout_s = cfg->timeout_s;
    m->spin = SPIN_MAX / 8;
    m->doing = zt_comm_op_name(ZT_COMM_OPEN);
    m->heap_bytes = page_up(cfg->heap_bytes);
    m->area_bytes = fixed + m->heap_bytes;
    m->shared_bytes = page_up(cfg->shared_bytes);
    m->map_bytes =
        ZT_SHM_PAGE + lines + (size_t)m->world * m->area_bytes + m->shared_bytes;

    rc = map_all(m, fault);
    if (!rc && !atomic_compare_exchange_strong(&m->line[m->rank].state, &state,
                                               ZT_SHM_PRESENT)) {
        munmap(m->head, m->map_bytes); /* the line is another's: leave it as it is */
        m->head = NULL;
        return zt_fault_set(fault, ZT_E_ARG, "comm: there is a rank %d already", m->rank);
    }
    if (!rc)
        rc = zt_meet_reserve(m, zt_meet_small(m, m->rank, 0), fixed, fault);
    if (!rc)
        rc = zt_meet_begin(m, &call, &mine, fault);
    if (rc)
        zt_meet_leave(m);
    return rc;
}

void zt_meet_leave(struct zt_meet *m)
{
    if (!m->head)
        return;
    atomic_store(&m->line[m->rank].state, ZT_SHM_LEFT);
    zt_shm_ring(m->head);
    munmap(m->head, m->map_bytes);
    m->head = NULL;
}
