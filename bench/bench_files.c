/*
 * bench_files.c -- files read or written by a plain loop over io_uring, which knows nothing
 * of offload: what bench/run_offload compares with.
 *
 *      bench_files read|write DIR MIB BLOCK DEPTH THREADS PASSES [fixed]
 *
 * Each thread has a file DIR/plain.N of its share, past the page cache, a ring, and memory
 * of huge pages. "fixed": file and memory are registered with the kernel. Prints GB/s, the
 * fastest of the passes; the file was written before, if it is read or PASSES says so.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MOST_THREADS 64

struct lane {
    int file, ring;
    char *data;
    size_t bytes;
    struct io_uring_params p;
    char *rings;
    struct io_uring_sqe *entries;
    pthread_t id;
};

static size_t block;
static unsigned depth;
static bool writes, fixed;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static double seconds_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *map(size_t bytes, int flags, int fd, off_t what)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, what);

    if (p == MAP_FAILED)
        die("mmap");
    return p;
}

static void open_lane(struct lane *l, const char *dir, int index)
{
    char path[4096];
    struct iovec v;
    size_t bytes;

    snprintf(path, sizeof(path), "%s/plain.%d", dir, index);
    l->file = open(path, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
    l->ring = (int)syscall(SYS_io_uring_setup, (long)depth, &l->p);
    if (l->file < 0 || l->ring < 0)
        die(l->file < 0 ? path : "io_uring_setup");
    bytes = l->p.cq_off.cqes + l->p.cq_entries * sizeof(struct io_uring_cqe);
    l->rings = map(bytes + l->p.sq_entries * sizeof(unsigned), MAP_SHARED, l->ring,
                   IORING_OFF_SQ_RING);
    l->entries = map(l->p.sq_entries * sizeof(struct io_uring_sqe), MAP_SHARED, l->ring,
                     IORING_OFF_SQES);
    l->data = map(l->bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)madvise(l->data, l->bytes, MADV_HUGEPAGE);
    memset(l->data, 1, l->bytes);
    v = (struct iovec){l->data, l->bytes};
    if (fixed &&
        (syscall(SYS_io_uring_register, l->ring, IORING_REGISTER_BUFFERS, &v, 1) < 0 ||
         syscall(SYS_io_uring_register, l->ring, IORING_REGISTER_FILES, &l->file, 1) < 0))
        die("io_uring_register");
}

static void fill_entry(const struct lane *l, struct io_uring_sqe *e, size_t at,
                       bool write)
{
    size_t left = l->bytes - at;

    memset(e, 0, sizeof(*e));
    if (fixed)
        e->opcode = write ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED;
    else
        e->opcode = write ? IORING_OP_WRITE : IORING_OP_READ;
    e->flags = fixed ? IOSQE_FIXED_FILE : 0;
    e->fd = fixed ? 0 : l->file;
    e->off = at;
    e->addr = (uint64_t)(uintptr_t)(l->data + at);
    e->len = (uint32_t)(left < block ? left : block);
    e->user_data = e->len;
}

/* All of the lane's file, once. */
static void move_lane(struct lane *l, bool write)
{
    unsigned *sq_tail = (unsigned *)(l->rings + l->p.sq_off.tail);
    unsigned *cq_head = (unsigned *)(l->rings + l->p.cq_off.head);
    unsigned *cq_tail = (unsigned *)(l->rings + l->p.cq_off.tail);
    unsigned *array = (unsigned *)(l->rings + l->p.sq_off.array), in_flight = 0;
    struct io_uring_cqe *ended = (struct io_uring_cqe *)(l->rings + l->p.cq_off.cqes);
    size_t at = 0;

    while (at < l->bytes || in_flight) {
        unsigned tail = *sq_tail, fresh = 0, head = *cq_head;

        for (; at < l->bytes && in_flight < depth; at += block, in_flight++, fresh++) {
            unsigned k = (tail + fresh) & (l->p.sq_entries - 1);

            fill_entry(l, &l->entries[k], at, write);
            array[k] = k;
        }
        __atomic_store_n(sq_tail, tail + fresh, __ATOMIC_RELEASE);
        if (syscall(SYS_io_uring_enter, l->ring, fresh, 1, IORING_ENTER_GETEVENTS, NULL,
                    0) != (long)fresh)
            die("io_uring_enter");
        for (; head != __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE); head++, in_flight--) {
            const struct io_uring_cqe *c = &ended[head & (l->p.cq_entries - 1)];

            errno = c->res < 0 ? -c->res : EIO;
            if (c->res != (int)c->user_data)
                die(write ? "write" : "read");
        }
        __atomic_store_n(cq_head, head, __ATOMIC_RELEASE);
    }
}

static void *run_lane(void *lane)
{
    move_lane(lane, writes);
    return NULL;
}

int main(int argc, char **argv)
{
    static struct lane lanes[MOST_THREADS];
    int threads = argc > 6 ? atoi(argv[6]) : 0, passes = argc > 7 ? atoi(argv[7]) : 0;
    double best = 0, bytes = argc > 3 ? atof(argv[3]) * (1 << 20) : 0;

    if (threads < 1 || threads > MOST_THREADS || passes < 1 || bytes < threads * 4096.0) {
        fprintf(stderr,
                "bench_files read|write DIR MIB BLOCK DEPTH THREADS PASSES [fixed]\n");
        return 2;
    }
    writes = strcmp(argv[1], "write") == 0;
    block = (size_t)atoll(argv[4]);
    depth = (unsigned)atoi(argv[5]);
    fixed = argc > 8 && strcmp(argv[8], "fixed") == 0;
    for (int i = 0; i < threads; i++) {
        lanes[i].bytes = (size_t)bytes / (size_t)threads / 4096 * 4096;
        open_lane(&lanes[i], argv[2], i);
        move_lane(&lanes[i], true);
    }
    for (int pass = 0; pass < passes; pass++) {
        double start = seconds_now(), rate;

        for (int i = 0; i < threads; i++)
            if (pthread_create(&lanes[i].id, NULL, run_lane, &lanes[i]))
                die("pthread_create");
        for (int i = 0; i < threads; i++)
            pthread_join(lanes[i].id, NULL);
        rate = (double)lanes[0].bytes * threads / (seconds_now() - start) / 1e9;
        best = rate > best ? rate : best;
    }
    printf("%.4f\n", best);
    return 0;
}
