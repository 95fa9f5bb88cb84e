/* group.c -- barriers and calls of a group, and how a failure ends them. */
#include "worker/comm/shm/group.h"

#include "common/half.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

/*
 * A barrier has no word that all ranks write: each writes that it arrived in a line of its
 * own, and reads the lines of the others until all did. Between ranks with a core each
 * that is one way of a cache line from core to core, where a counter of arrivals and a
 * word that opens are three in a row.
 *
 * Two lines a rank, by parity of the barrier, are enough: who arrives at barrier p+2 has
 * passed p+1, so nobody reads what belonged to p any more.
 *
 * Waiting. A rank spins for a moment, then sleeps on the futex `wakeups`. The moment is a
 * budget of turns (a few ns to a few tens of ns each; the most is about what a sleep
 * costs) that doubles when spinning was enough and halves when it was not: ranks with a
 * core each meet without a system call, ranks that share one soon stop burning it. Every
 * so often a wait tries the whole budget: or ranks that were disturbed for a while, and
 * are never apart by less than the little they dare to spin, would sleep ever after. A
 * call in the background shares its core with work for sure: it spins the least, and does
 * not change the budget of others.
 *
 * No wake-up is lost: a rank stores its arrival and, when it finds that all arrived, looks
 * for sleepers; the sleeper counts itself, reads `wakeups`, then looks at the arrivals. All
 * in the one order of sequentially consistent accesses, so the last to arrive finds all
 * arrived at its first look, and it sees the sleeper or the sleeper sees it. Of ranks that
 * find sleepers at the same barrier the first wakes them (`woken`): it saw all arrivals, so
 * whoever is woken by it, or reads `wakeups` after it, does too. A rank that was killed
 * while it slept leaves the count too high; that costs needless wake-ups.
 */
#define SPIN_MIN    16u
#define SPIN_MAX    4096u
#define PROBE_EVERY 16u
/* The longest sleep of a group: an abort wakes those who sleep on the file's futex. */
#define GROUP_NAP_S 0.2

double zt_shm_now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline void cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* What other processors have read will be written soon: it is ours alone by then. */
static inline void prefetch_for_write(const void *at)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)at));
#else
    __builtin_prefetch(at, 1);
#endif
}

static bool reached(uint32_t have, uint32_t want)
{
    return (int32_t)(have - want) >= 0;
}

static bool has_arrived(const struct zt_shm_group *g, int rank, uint32_t phase)
{
    return reached(atomic_load(&zt_shm_group_arrival(g, rank, phase)->phase), phase);
}

/* Whether all ranks from `*next` on have arrived; else *next is one that has not. */
static bool all_arrived(const struct zt_shm_group *g, uint32_t phase, int *next)
{
    while (*next < g->world && has_arrived(g, *next, phase))
        ++*next;
    return *next == g->world;
}

/* "rank 1", "ranks 1, 3", "ranks 1, 2, 3, 4 and 12 more": those not yet at `phase`. */
static int missing_ranks_text(const struct zt_shm_group *g, uint32_t phase, int *first,
                              char *out, size_t out_bytes)
{
    int num = 0, len;
    char list[64] = "";
    size_t used = 0;

    for (int r = 0; r < g->world; r++) {
        if (has_arrived(g, r, phase))
            continue;
        if (!num)
            *first = r;
        if (++num <= 4) {
            len = snprintf(list + used, sizeof(list) - used, "%s%d", num > 1 ? ", " : "",
                           zt_shm_group_global_rank(g, r));
            used += len > 0 ? (size_t)len : 0;
        }
    }
    if (num > 4)
        snprintf(list + used, sizeof(list) - used, " and %d more", num - 4);
    snprintf(out, out_bytes, "rank%s %s", num > 1 ? "s" : "", list);
    return num;
}

zt_err zt_shm_group_abort_error(const struct zt_shm_group *g, uint32_t word,
                                struct zt_fault *fault)
{
    char where[96];

    snprintf(where, sizeof(where), "%s (call %llu) on rank %d: ", g->call_name,
             (unsigned long long)g->seq, zt_shm_group_global_rank(g, g->rank));
    return zt_shm_abort_fault(word, where, fault);
}

/* A rank that closed its communicator will never arrive at `phase`. */
static zt_err check_left(const struct zt_shm_group *g, uint32_t phase,
                         struct zt_fault *fault)
{
    for (int r = 0; r < g->world; r++)
        if (atomic_load(&g->line[r].state) == ZT_SHM_LEFT && !has_arrived(g, r, phase))
            return zt_fault_set(fault, ZT_E_PEER,
                                "comm: %s (call %llu) on rank %d: rank %d has closed its "
                                "communicator",
                                g->call_name, (unsigned long long)g->seq,
                                zt_shm_group_global_rank(g, g->rank),
                                zt_shm_group_global_rank(g, r));
    return ZT_OK;
}

static zt_err too_late(struct zt_shm_group *g, uint32_t phase, struct zt_fault *fault)
{
    char who[96];
    int first = 0;

    if (!missing_ranks_text(g, phase, &first, who, sizeof(who)))
        return ZT_OK; /* after all */
    zt_shm_mark_abort(g->file, ZT_SHM_WHY_LATE, zt_shm_group_global_rank(g, first));
    zt_shm_wake(g->head);
    return zt_fault_set(fault, ZT_E_PEER,
                        "comm: %s (call %llu) on rank %d: %s did not come within %g s",
                        g->call_name, (unsigned long long)g->seq,
                        zt_shm_group_global_rank(g, g->rank), who, g->timeout_s);
}

/* Sleep until `wakeups` differs from `seen`, or `deadline`; may return earlier. */
void zt_shm_sleep(struct zt_shm_head *h, uint32_t seen, double deadline)
{
    double left = deadline - zt_shm_now_s();
    struct timespec t = {0};

    if (left <= 0)
        return;
    if (left > 1e6)
        left = 1e6;
    t.tv_sec = (time_t)left;
    t.tv_nsec = (long)((left - floor(left)) * 1e9);
    syscall(SYS_futex, &h->wakeups, FUTEX_WAIT, seen, &t, NULL, 0);
}

/* Have all arrived within so many turns? */
static bool spin(const struct zt_shm_group *g, uint32_t phase, unsigned turns)
{
    int next = 0;

    for (unsigned i = 0; i < turns; i++) {
        if (all_arrived(g, phase, &next))
            return true;
        cpu_pause();
    }
    return false;
}

static bool adaptive_spin(struct zt_shm_group *g, uint32_t phase)
{
    bool probe = ++g->waits % PROBE_EVERY == 0;

    if (g->background)
        return spin(g, phase, SPIN_MIN);
    if (spin(g, phase, probe ? SPIN_MAX : g->spin)) {
        g->spin = probe || g->spin > SPIN_MAX / 2 ? SPIN_MAX : g->spin * 2;
        return true;
    }
    g->spin = g->spin > SPIN_MIN * 2 ? g->spin / 2 : SPIN_MIN;
    return false;
}

static zt_err wait_asleep(struct zt_shm_group *g, uint32_t phase, struct zt_fault *fault)
{
    struct zt_shm_head *h = g->head;
    double deadline = zt_shm_now_s() + g->timeout_s;
    zt_err rc = ZT_OK;
    int next = 0;

    atomic_fetch_add(&h->sleepers, 1);
    while (!rc) {
        uint32_t wakeups = atomic_load(&h->wakeups), word;
        double now = zt_shm_now_s(), until = deadline;

        if (all_arrived(g, phase, &next))
            break;
        word = atomic_load(&g->file->abort);
        rc =
            word ? zt_shm_group_abort_error(g, word, fault) : check_left(g, phase, fault);
        if (h != g->file && until > now + GROUP_NAP_S)
            until = now + GROUP_NAP_S;
        if (!rc && now >= deadline)
            rc = too_late(g, phase, fault);
        else if (!rc)
            zt_shm_sleep(h, wakeups, until);
    }
    atomic_fetch_sub(&h->sleepers, 1);
    return rc;
}

zt_err zt_shm_group_barrier(struct zt_shm_group *g, struct zt_fault *fault)
{
    struct zt_shm_head *h = g->head;
    uint32_t phase = ++g->phase, word = atomic_load(&g->file->abort);
    int next = 0;

    if (word)
        return zt_shm_group_abort_error(g, word, fault);
    /* the next line, at once where peers are through with it: they worked since they read it */
    if (phase != g->call_phase)
        prefetch_for_write(zt_shm_group_arrival(g, g->rank, phase + 1));
    atomic_store(&zt_shm_group_arrival(g, g->rank, phase)->phase, phase);
    if (!all_arrived(g, phase, &next) && !adaptive_spin(g, phase))
        return wait_asleep(g, phase, fault);
    if (phase == g->call_phase)
        prefetch_for_write(zt_shm_group_arrival(g, g->rank, phase + 1));
    if (atomic_load(&h->sleepers) && atomic_exchange(&h->woken, phase) != phase)
        zt_shm_wake(h);
    return ZT_OK;
}

static void header_text(const struct zt_shm_header *h, char *out, size_t out_bytes)
{
    struct zt_comm_call call = {.op = (zt_comm_op)h->op,
                                .dtype = (zt_dtype)h->dtype,
                                .reduce = (zt_reduce_op)h->reduce,
                                .root = h->root,
                                .count = h->count,
                                .scale = zt_float_of_bits(h->scale_bits)};

    zt_comm_call_text(&call, out, out_bytes);
}

static bool same_call(const struct zt_shm_header *a, const struct zt_shm_header *b)
{
    return a->seq == b->seq && a->op == b->op && a->count == b->count &&
           a->dtype == b->dtype && a->reduce == b->reduce && a->root == b->root &&
           a->scale_bits == b->scale_bits;
}

zt_err zt_shm_group_begin(struct zt_shm_group *g, const struct zt_comm_call *call,
                          struct zt_shm_header *mine, struct zt_fault *fault)
{
    char want[128], other[128];
    zt_err rc;

    g->call_name = zt_comm_op_name(call->op);
    g->background = call->background;
    g->seq++;
    mine->seq = g->seq;
    mine->count = call->count;
    mine->op = (uint8_t)call->op;
    mine->dtype = (uint8_t)call->dtype;
    mine->reduce = (uint8_t)call->reduce;
    mine->root = call->root;
    mine->scale_bits = zt_float_bits(call->scale);
    g->call_phase = g->phase + 1; /* the barrier below */
    zt_shm_group_arrival(g, g->rank, g->call_phase)->call = *mine;
    rc = zt_shm_group_barrier(g, fault);
    if (rc)
        return rc;
    for (int r = 1; r < g->world; r++) {
        if (same_call(zt_shm_group_header(g, r), zt_shm_group_header(g, 0)))
            continue;
        header_text(zt_shm_group_header(g, r), want, sizeof(want));
        header_text(zt_shm_group_header(g, 0), other, sizeof(other));
        return zt_fault_set(fault, ZT_E_PEER,
                            "comm: call %llu differs: rank %d wants %s, rank %d %s",
                            (unsigned long long)g->seq, zt_shm_group_global_rank(g, r),
                            want, zt_shm_group_global_rank(g, 0), other);
    }
    return ZT_OK;
}

bool zt_shm_group_failed(const struct zt_shm_group *g, struct zt_fault *fault)
{
    uint32_t word = atomic_load(&g->file->abort);

    if (word)
        zt_shm_abort_fault(word, "", fault);
    return word != 0;
}

void zt_shm_group_abort(struct zt_shm_group *g, int rank)
{
    bool member = rank >= 0 && rank < g->world;

    zt_shm_mark_abort(g->file, ZT_SHM_WHY_FAILED,
                      member ? zt_shm_group_global_rank(g, rank) : rank);
    if (g->head != g->file)
        zt_shm_wake(g->head);
}
