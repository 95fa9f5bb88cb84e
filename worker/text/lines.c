/*
 * lines.c -- threads take pieces of the text in turn, and give their ids in the same turn.
 */
#include "worker/text/lines.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "common/proc.h"

#define PIECE_BYTES  ((size_t)1 << 20)
#define MOST_THREADS 256

struct team {
    const struct zt_lines_job *job;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t turned;
    size_t taken;           /* bytes of the text that somebody has */
    uint64_t pieces, given; /* pieces taken; pieces whose ids the sink has */
    uint64_t replaced;
    zt_err rc; /* of the first piece that failed: nothing is taken or given after it */
    struct zt_fault fault;
};

/* A thread's own. */
struct hand {
    struct zt_encoder *encoder;
    struct zt_buf ids, lengths; /* int32_t; uint32_t per line */
    struct zt_fault fault;
};

/* The next piece: whole lines. False: nothing is left. */
static bool take_piece(struct team *t, size_t *from, size_t *to, uint64_t *number)
{
    const struct zt_lines_job *job = t->job;
    const char *end = NULL;

    pthread_mutex_lock(&t->lock);
    *from = t->taken;
    if (!t->rc && *from < job->n) {
        size_t least = job->n - *from < PIECE_BYTES ? job->n - *from : PIECE_BYTES;

        end = memchr(job->text + *from + least - 1, '\n', job->n - *from - least + 1);
        *to = end ? (size_t)(end + 1 - job->text) : job->n;
        t->taken = *to;
        *number = t->pieces++;
        end = job->text;
    }
    pthread_mutex_unlock(&t->lock);
    return end;
}

static zt_err encode_line(const struct zt_lines_job *job, struct hand *h,
                          const char *line, size_t n)
{
    const int32_t *ids;
    uint32_t count;
    size_t num;
    zt_err rc = zt_encode(h->encoder, line, n, true, &ids, &num, &h->fault);

    if (rc)
        return zt_fault_context(&h->fault, rc, "%s: line at byte %zu", job->name,
                                (size_t)(line - job->text));
    count = (uint32_t)num;
    rc = zt_buf_put(&h->ids, ids, num * sizeof(*ids));
    if (!rc)
        rc = zt_buf_put(&h->lengths, &count, sizeof(count));
    return rc ? zt_fault_set(&h->fault, rc, "%s: no memory for its tokens", job->name)
              : ZT_OK;
}

static zt_err encode_piece(const struct zt_lines_job *job, struct hand *h, size_t from,
                           size_t to)
{
    zt_err rc = ZT_OK;

    zt_buf_drop(&h->ids, zt_buf_used(&h->ids));
    zt_buf_drop(&h->lengths, zt_buf_used(&h->lengths));
    while (!rc && from < to) {
        const char *line = job->text + from, *end = memchr(line, '\n', to - from);
        size_t n = end ? (size_t)(end + 1 - line) : to - from;

        rc = encode_line(job, h, line, n);
        from += n;
    }
    return rc;
}

/* Waits for the pieces before. */
static void give_piece(struct team *t, struct hand *h, uint64_t number, size_t to,
                       zt_err rc)
{
    pthread_mutex_lock(&t->lock);
    while (t->given < number)
        pthread_cond_wait(&t->turned, &t->lock);
    if (!t->rc && !rc)
        rc = t->job->sink(t->job->user,
                          (const int32_t *)(const void *)zt_buf_head(&h->ids),
                          zt_buf_used(&h->ids) / sizeof(int32_t),
                          (const uint32_t *)(const void *)zt_buf_head(&h->lengths),
                          zt_buf_used(&h->lengths) / sizeof(uint32_t), to, &h->fault);
    if (!t->rc && rc) {
        t->rc = rc;
        t->fault = h->fault;
    }
    t->given++;
    pthread_cond_broadcast(&t->turned);
    pthread_mutex_unlock(&t->lock);
}

static void work(struct team *t)
{
    struct hand h = {0};
    size_t from, to;
    uint64_t number;
    zt_err rc;

    zt_buf_init(&h.ids, SIZE_MAX / 4);
    zt_buf_init(&h.lengths, SIZE_MAX / 4);
    rc = zt_encoder_open(t->job->tokenizer, &h.encoder, &h.fault);
    while (take_piece(t, &from, &to, &number))
        give_piece(t, &h, number, to, rc ? rc : encode_piece(t->job, &h, from, to));
    pthread_mutex_lock(&t->lock);
    if (h.encoder)
        t->replaced += zt_encoder_num_replaced(h.encoder);
    pthread_mutex_unlock(&t->lock);
    zt_encoder_close(h.encoder);
    zt_buf_release(&h.ids);
    zt_buf_release(&h.lengths);
}

static void *help(void *team)
{
    zt_signal_block_user();
    work(team);
    return NULL;
}

static int num_threads(const struct zt_lines_job *job)
{
    size_t most = job->n / PIECE_BYTES + 1;
    int n = job->threads;
    cpu_set_t own;

    if (n <= 0)
        n = sched_getaffinity(0, sizeof(own), &own) ? 1 : CPU_COUNT(&own);
    n = n < MOST_THREADS ? n : MOST_THREADS;
    return (size_t)n < most ? n : (int)most;
}

zt_err zt_lines_encode(const struct zt_lines_job *job, uint64_t *replaced,
                       struct zt_fault *fault)
{
    struct team t = {.job = job,
                     .lock = PTHREAD_MUTEX_INITIALIZER,
                     .turned = PTHREAD_COND_INITIALIZER};
    int want = num_threads(job), started = 0;
    pthread_t threads[MOST_THREADS];

    /* this thread is one of them; fewer than wanted do as well */
    while (started + 1 < want && pthread_create(&threads[started], NULL, help, &t) == 0)
        started++;
    work(&t);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    pthread_cond_destroy(&t.turned);
    pthread_mutex_destroy(&t.lock);
    *replaced += t.replaced;
    if (t.rc && fault)
        *fault = t.fault;
    return t.rc;
}
