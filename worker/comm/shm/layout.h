/*
 * layout.h -- what lies where in the memory the ranks of a node share.
 *
 *      | head, one page | lines, a page or more | rank 0: small, slots | rank 1 ... |
 *      | what ranks asked for later, piece by piece ...
 *
 * A piece is memory of zt_comm_alloc(), for every rank one after the other; or of
 * zt_comm_alloc_shared(); or the head, lines and areas of a group of ranks. Rank 0 of
 * the group reserves the next piece of the file and publishes where it is. Its
 * pages are allocated before anybody uses it.
 *
 * head:   who the group is, who sleeps, the abort word. The daemon may write that of
 *         the file before any rank has joined, so nobody clears it: fresh memory is zero.
 * lines:  of each rank: the barriers it arrived at, and what it wants of its calls.
 * small:  two areas by parity of the call number; a short message travels in one.
 * slots:  two input slots and two result slots; long messages in a rank's own memory
 *         pass through them in pieces.
 * Every word that is shared while it changes is atomic; a header or a buffer is written
 * before its rank arrives at a barrier and read after the barrier was passed.
 */
#ifndef WORKER_COMM_SHM_LAYOUT_H
#define WORKER_COMM_SHM_LAYOUT_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/fault.h"

#define ZT_SHM_MAGIC       0x7a746333u /* "ztc3": grows with the layout */
#define ZT_SHM_PAGE        4096u
#define ZT_SHM_MAX_WORLD   256
#define ZT_SHM_SMALL_BYTES (16u << 10)
#define ZT_SHM_SLOT_BYTES  (512u << 10)

/* Of a rank, for short messages and the slots. */
#define ZT_SHM_AREA_BYTES (2 * (size_t)ZT_SHM_SMALL_BYTES + 4 * (size_t)ZT_SHM_SLOT_BYTES)

static inline size_t zt_shm_page_up(size_t bytes)
{
    return (bytes + ZT_SHM_PAGE - 1) / ZT_SHM_PAGE * ZT_SHM_PAGE;
}

/* Why a group was aborted; upper half of the abort word, the lower is rank + 1. */
enum { ZT_SHM_WHY_FAILED = 1, ZT_SHM_WHY_LATE = 2, ZT_SHM_WHY_LOST = 3 };

struct zt_shm_head {
    _Atomic uint32_t magic; /* head of the file: rank 0 writes it last */
    uint32_t world;
    _Atomic uint64_t file_end; /* head of the file: pieces given away end here, bytes */

    _Atomic uint32_t gone; /* head of a group: members that left */

    /* Head of the file, for all groups in it; ranks are those of the world. */
    _Atomic uint32_t abort __attribute__((aligned(64)));
    /* The one futex: grows when sleepers are woken, when a rank leaves, on abort. */
    _Atomic uint32_t wakeups __attribute__((aligned(64)));
    _Atomic uint32_t sleepers;
    _Atomic uint32_t woken; /* the barrier whose sleepers were woken last */
};
_Static_assert(sizeof(struct zt_shm_head) <= ZT_SHM_PAGE, "the head is one page");

/* What a rank wants from its call number `seq`. */
struct zt_shm_header {
    uint64_t seq, count;
    uint64_t send_off, recv_off; /* of the buffers in the file, or ZT_HEAP_OUTSIDE */
    uint8_t op, dtype, reduce;
    uint8_t flags; /* ZT_SHM_STAGED; may differ between ranks */
    int32_t root;
    uint32_t scale_bits;
};
#define ZT_SHM_STAGED 1u /* send and recv overlap so that pieces must pass the slots */

enum { ZT_SHM_ABSENT, ZT_SHM_PRESENT, ZT_SHM_LEFT };

/*
 * A rank's arrival at a barrier: one cache line, so that who waits for the phase gets the
 * header with it; apart from the next by two, since processors fetch lines in pairs.
 */
struct zt_shm_arrival {
    _Atomic uint32_t phase __attribute__((aligned(128))); /* barriers arrived at */
    struct zt_shm_header call; /* that begins with this barrier, if one does */
};
_Static_assert(offsetof(struct zt_shm_arrival, call) + sizeof(struct zt_shm_header) <= 64,
               "an arrival is one cache line");

struct zt_shm_line {
    struct zt_shm_arrival arrival[2]; /* by parity of the phase */
    _Atomic uint32_t state;
    _Atomic uint32_t no_memory; /* for the piece that is being asked for */
};

/* Wake whoever sleeps. Async-signal-safe, like all here. */
static inline void zt_shm_wake(struct zt_shm_head *h)
{
    atomic_fetch_add(&h->wakeups, 1);
    syscall(SYS_futex, &h->wakeups, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* The first to abort is the one that is believed. */
static inline void zt_shm_mark_abort(struct zt_shm_head *h, int why, int rank)
{
    uint32_t none = 0, word = (uint32_t)why << 16 | (uint32_t)(rank + 1);

    atomic_compare_exchange_strong(&h->abort, &none, word);
    zt_shm_wake(h);
}

/* The fault that an abort word means; `where` is "", or "barrier (call 7) on rank 1: ". */
static inline zt_err zt_shm_abort_fault(uint32_t word, const char *where,
                                        struct zt_fault *fault)
{
    int why = (int)(word >> 16), rank = (int)(word & 0xffff) - 1;
    zt_err code = why == ZT_SHM_WHY_LOST ? ZT_E_LOST : ZT_E_PEER;

    if (rank < 0)
        return zt_fault_set(fault, code,
                            "comm: %sseveral ranks are gone; which of them was the first "
                            "is not known",
                            where);
    if (why == ZT_SHM_WHY_LATE)
        return zt_fault_set(fault, code,
                            "comm: %sgiven up, because rank %d did not come in time",
                            where, rank);
    if (why == ZT_SHM_WHY_LOST)
        return zt_fault_set(fault, code,
                            "comm: %sgiven up, because a connection to rank %d was lost",
                            where, rank);
    return zt_fault_set(fault, code, "comm: %srank %d has failed", where, rank);
}

#endif
