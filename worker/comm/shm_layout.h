/*
 * shm_layout.h -- what lies where in the memory the ranks of a node share.
 *
 *      | head, one page | lines, a page or more | rank 0: small, slots, heap | rank 1 ...
 *
 * head:   who the group is, the barrier, the abort word. The daemon may write it before
 *         any rank came, so nobody clears it: fresh memory is zero.
 * line:   one per rank: where it is, and the headers of its last two calls.
 * small:  two areas by parity of the call number; a short message travels in one.
 * slots:  two input slots and two result slots; long messages outside the heap pass
 *         through them in pieces.
 * heap:   zt_comm_alloc(); equal offsets on all ranks.
 * Every word that is shared while it changes is atomic; a header or a buffer is written
 * before its rank arrives at a barrier and read after the barrier was passed.
 */
#ifndef WORKER_COMM_SHM_LAYOUT_H
#define WORKER_COMM_SHM_LAYOUT_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ZT_SHM_MAGIC       0x7a746331u /* "ztc1": grows with the layout */
#define ZT_SHM_PAGE        4096u
#define ZT_SHM_MAX_WORLD   256
#define ZT_SHM_SMALL_BYTES (16u << 10)
#define ZT_SHM_SLOT_BYTES  (512u << 10)

/* Why a group was aborted; upper half of the abort word, the lower is rank + 1. */
enum { ZT_SHM_WHY_FAILED = 1, ZT_SHM_WHY_LATE = 2 };

struct zt_shm_head {
    _Atomic uint32_t magic; /* rank 0 writes it last */
    uint32_t world;
    uint64_t heap_bytes; /* per rank */
    uint64_t file_bytes;

    _Atomic uint32_t abort __attribute__((aligned(64)));
    /* The one futex: grows when the barrier opens, when a rank leaves, on abort. */
    _Atomic uint32_t bell __attribute__((aligned(64)));
    _Atomic uint32_t sleepers;

    _Atomic uint32_t arrived __attribute__((aligned(64)));    /* by all ranks, ever */
    _Atomic uint32_t generation __attribute__((aligned(64))); /* barriers passed */
};
_Static_assert(sizeof(struct zt_shm_head) <= ZT_SHM_PAGE, "the head is one page");

/* What a rank wants from its call number `seq`. */
struct zt_shm_header {
    uint64_t seq, count;
    uint64_t send_off, recv_off; /* in this rank's heap; ZT_SHM_OUTSIDE: not there */
    uint8_t op, dtype, reduce;
    uint8_t flags; /* ZT_SHM_STAGED, ZT_SHM_NO_MEMORY; may differ between ranks */
    int32_t root;
    uint32_t scale_bits;
};
#define ZT_SHM_OUTSIDE   UINT64_MAX
#define ZT_SHM_STAGED    1u /* send and recv overlap so that pieces must pass the slots */
#define ZT_SHM_NO_MEMORY 2u /* alloc: this rank found no memory */

enum { ZT_SHM_ABSENT, ZT_SHM_PRESENT, ZT_SHM_LEFT };

struct zt_shm_line {
    _Atomic uint32_t phase __attribute__((aligned(64))); /* barriers arrived at */
    _Atomic uint32_t state;
    struct zt_shm_header call[2] __attribute__((aligned(64))); /* by parity of seq */
};

/* Wake whoever sleeps. Async-signal-safe, like all here. */
static inline void zt_shm_ring(struct zt_shm_head *h)
{
    atomic_fetch_add(&h->bell, 1);
    syscall(SYS_futex, &h->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* The first to abort is the one that is believed. */
static inline void zt_shm_mark_abort(struct zt_shm_head *h, int why, int rank)
{
    uint32_t none = 0, word = (uint32_t)why << 16 | (uint32_t)(rank + 1);

    atomic_compare_exchange_strong(&h->abort, &none, word);
    zt_shm_ring(h);
}

#endif
