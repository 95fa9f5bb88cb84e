/*
 * aio_io_uring.c -- the kernel's io_uring: requests and results pass through two rings of
 * memory that it shares with us, by its system calls alone.
 *
 *      ours          head           tail     the kernel moves the head of the requests and
 *      requests  ------|##############|----  the tail of the results, we the other two;
 *      results   ------|#####|-------------  positions only grow and wrap at 2^32
 *
 * The results' ring is twice as long as the requests', which are no more than the depth of
 * the queue, so no result is ever without a place. A result that is there costs no system
 * call.
 */
#include <errno.h>
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/offload/aio_engine.h"

struct uring_ring {
    _Atomic unsigned *head, *tail;
    unsigned mask;
};

struct uring_queue {
    int fd;
    struct uring_ring requests, results;
    struct io_uring_sqe *entries; /* of requests */
    struct io_uring_cqe *ended;   /* of results */
    void *rings;                  /* both, mapped */
    size_t rings_bytes, entries_bytes;
};

static void io_uring_close(void *queue)
{
    struct uring_queue *q = queue;

    if (!q)
        return;
    if (q->entries)
        (void)munmap(q->entries, q->entries_bytes);
    if (q->rings)
        (void)munmap(q->rings, q->rings_bytes);
    if (q->fd >= 0)
        (void)close(q->fd);
    free(q);
}

static void *map(int fd, size_t bytes, off_t what)
{
    void *p =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, what);

    return p == MAP_FAILED ? NULL : p;
}

static int map_rings(struct uring_queue *q, const struct io_uring_params *p)
{
    size_t requests = p->sq_off.array + p->sq_entries * sizeof(unsigned);
    size_t results = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
    char *at;

    q->rings_bytes = requests > results ? requests : results;
    q->entries_bytes = p->sq_entries * sizeof(struct io_uring_sqe);
    q->rings = at = map(q->fd, q->rings_bytes, IORING_OFF_SQ_RING);
    q->entries = map(q->fd, q->entries_bytes, IORING_OFF_SQES);
    if (!q->rings || !q->entries)
        return errno;
    q->requests =
        (struct uring_ring){(_Atomic unsigned *)(at + p->sq_off.head),
                            (_Atomic unsigned *)(at + p->sq_off.tail), p->sq_entries - 1};
    q->results =
        (struct uring_ring){(_Atomic unsigned *)(at + p->cq_off.head),
                            (_Atomic unsigned *)(at + p->cq_off.tail), p->cq_entries - 1};
    q->ended = (struct io_uring_cqe *)(at + p->cq_off.cqes);
    for (unsigned i = 0; i < p->sq_entries; i++)
        ((unsigned *)(at + p->sq_off.array))[i] = i;
    return 0;
}

/* Reads and writes of plain memory, and one mapping for both rings: Linux 5.6. */
#define NEEDED (IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP | IORING_FEAT_RW_CUR_POS)

static int io_uring_open(int depth, void **queue)
{
    struct uring_queue *q = calloc(1, sizeof(*q));
    struct io_uring_params p;
    int error;

    if (!q)
        return ENOMEM;
    memset(&p, 0, sizeof(p));
    q->fd = (int)syscall(SYS_io_uring_setup, (long)depth, &p);
    if (q->fd < 0)
        error = errno;
    else
        error = (p.features & NEEDED) == NEEDED ? map_rings(q, &p) : ENOSYS;
    if (error) {
        io_uring_close(q);
        return error;
    }
    *queue = q;
    return 0;
}

static int enter(const struct uring_queue *q, int submitted, int least)
{
    long n;

    do
        n = syscall(SYS_io_uring_enter, (long)q->fd, (long)submitted, (long)least,
                    least ? (long)IORING_ENTER_GETEVENTS : 0L, NULL, 0L);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : (int)n;
}

static int io_uring_submit(void *queue, const struct zt_aio_request *const *requests,
                           int num)
{
    struct uring_queue *q = queue;
    unsigned tail = atomic_load_explicit(q->requests.tail, memory_order_relaxed);
    int n;

    for (int i = 0; i < num; i++) {
        const struct zt_aio_request *r = requests[i];

        q->entries[(tail + (unsigned)i) & q->requests.mask] = (struct io_uring_sqe){
            .opcode = r->write ? IORING_OP_WRITE : IORING_OP_READ,
            .fd = r->fd,
            .off = (uint64_t)r->offset,
            .addr = (uint64_t)(uintptr_t)r->data,
            .len = (uint32_t)r->bytes,
            .user_data = (uint64_t)r->id,
        };
    }
    atomic_store_explicit(q->requests.tail, tail + (unsigned)num, memory_order_release);
    n = enter(q, num, 0);
    if (n == num)
        return n;
    /* What it left is given again by the caller: the kernel looks only while we call. */
    atomic_store_explicit(q->requests.tail,
                          atomic_load_explicit(q->requests.head, memory_order_acquire),
                          memory_order_release);
    return n > 0 ? n : n == 0 || n == -EBUSY ? -EAGAIN : n;
}

static int io_uring_reap(void *queue, int least, int most, struct zt_aio_result *results)
{
    struct uring_queue *q = queue;
    unsigned head = atomic_load_explicit(q->results.head, memory_order_relaxed), tail;
    int n = 0;

    tail = atomic_load_explicit(q->results.tail, memory_order_acquire);
    if ((int)(tail - head) < least) {
        int rc = enter(q, 0, least);

        if (rc < 0)
            return rc;
        tail = atomic_load_explicit(q->results.tail, memory_order_acquire);
    }
    for (; n < most && head != tail; n++, head++) {
        const struct io_uring_cqe *c = &q->ended[head & q->results.mask];

        results[n] = (struct zt_aio_result){.id = (int)c->user_data, .bytes = c->res};
    }
    atomic_store_explicit(q->results.head, head, memory_order_release);
    return n;
}

const struct zt_aio_engine zt_aio_io_uring = {
    .name = "io_uring",
    .open = io_uring_open,
    .close = io_uring_close,
    .submit = io_uring_submit,
    .reap = io_uring_reap,
};
