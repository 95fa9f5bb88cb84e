/*
 * aio_libaio.c -- the kernel's first asynchronous I/O, by the system calls that the library
 * libaio wraps. Every Linux has it, containers and old kernels too; it is asynchronous for
 * files past the page cache alone.
 */
#include <errno.h>
#include <linux/aio_abi.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/offload/aio_engine.h"

struct libaio_queue {
    aio_context_t context;
    struct iocb *blocks;     /* depth of them: what a call submits */
    struct iocb **addresses; /* of the blocks */
    struct io_event *events;
};

static void libaio_close(void *queue)
{
    struct libaio_queue *q = queue;

    if (!q)
        return;
    if (q->context)
        (void)syscall(SYS_io_destroy, q->context);
    free(q->blocks);
    free(q->addresses);
    free(q->events);
    free(q);
}

static int libaio_open(int depth, void **queue)
{
    struct libaio_queue *q = calloc(1, sizeof(*q));
    size_t n = (size_t)depth;
    int error = ENOMEM;

    if (!q)
        return ENOMEM;
    q->blocks = calloc(n, sizeof(*q->blocks));
    q->addresses = calloc(n, sizeof(struct iocb *));
    q->events = calloc(n, sizeof(*q->events));
    if (q->blocks && q->addresses && q->events)
        error = syscall(SYS_io_setup, (long)depth, &q->context) < 0 ? errno : 0;
    if (error) {
        q->context = 0;
        libaio_close(q);
        return error;
    }
    for (size_t i = 0; i < n; i++)
        q->addresses[i] = &q->blocks[i];
    *queue = q;
    return 0;
}

static int libaio_submit(void *queue, const struct zt_aio_request *const *requests,
                         int num)
{
    struct libaio_queue *q = queue;
    long n;

    for (int i = 0; i < num; i++) {
        const struct zt_aio_request *r = requests[i];

        q->blocks[i] = (struct iocb){
            .aio_data = (uint64_t)r->id,
            .aio_lio_opcode = r->write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
            .aio_fildes = (uint32_t)r->fd,
            .aio_buf = (uint64_t)(uintptr_t)r->data,
            .aio_nbytes = r->bytes,
            .aio_offset = r->offset,
        };
    }
    do
        n = syscall(SYS_io_submit, q->context, (long)num, q->addresses);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n == 0 ? -EAGAIN : (int)n;
}

static int libaio_reap(void *queue, int least, int most, struct zt_aio_result *results)
{
    struct libaio_queue *q = queue;
    long n;

    do
        n = syscall(SYS_io_getevents, q->context, (long)least, (long)most, q->events,
                    NULL);
    while (n < 0 && errno == EINTR);
    for (long i = 0; i < n; i++)
        results[i] = (struct zt_aio_result){.id = (int)q->events[i].data,
                                            .bytes = (int64_t)q->events[i].res};
    return n < 0 ? -errno : (int)n;
}

const struct zt_aio_engine zt_aio_libaio = {
    .name = "libaio",
    .open = libaio_open,
    .close = libaio_close,
    .submit = libaio_submit,
    .reap = libaio_reap,
};
