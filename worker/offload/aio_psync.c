/*
 * aio_psync.c -- pread and pwrite, one request after the other, for kernels without any
 * queue: the threads are what runs at once.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "worker/offload/aio_engine.h"

struct psync_queue {
    struct zt_aio_result *ended; /* up to depth */
    int num;
};

static void psync_close(void *queue)
{
    struct psync_queue *q = queue;

    if (!q)
        return;
    free(q->ended);
    free(q);
}

static int psync_open(int depth, void **queue)
{
    struct psync_queue *q = calloc(1, sizeof(*q));

    if (!q)
        return ENOMEM;
    q->ended = calloc((size_t)depth, sizeof(*q->ended));
    if (!q->ended) {
        psync_close(q);
        return ENOMEM;
    }
    *queue = q;
    return 0;
}

/* All of it, in as many calls as it takes. */
static int64_t transfer(const struct zt_aio_request *r)
{
    size_t done = 0;

    while (done < r->bytes) {
        off_t at = r->offset + (off_t)done;
        ssize_t n = r->write ? pwrite(r->fd, r->data + done, r->bytes - done, at)
                             : pread(r->fd, r->data + done, r->bytes - done, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (int64_t)done;
}

static int psync_submit(void *queue, const struct zt_aio_request *const *requests,
                        int num)
{
    struct psync_queue *q = queue;

    for (int i = 0; i < num; i++)
        q->ended[q->num++] =
            (struct zt_aio_result){.id = requests[i]->id, .bytes = transfer(requests[i])};
    return num;
}

static int psync_reap(void *queue, int least, int most, struct zt_aio_result *results)
{
    struct psync_queue *q = queue;
    int n = 0;

    (void)least; /* all have ended */
    while (n < most && q->num)
        results[n++] = q->ended[--q->num];
    return n;
}

const struct zt_aio_engine zt_aio_psync = {
    .name = "psync",
    .open = psync_open,
    .close = psync_close,
    .submit = psync_submit,
    .reap = psync_reap,
};
