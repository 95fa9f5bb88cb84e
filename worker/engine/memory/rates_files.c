#include "worker/engine/memory/rates_files.h"

#include <stdlib.h>
#include <time.h>

#include "common/log.h"
#include "worker/engine/memory/plan.h"

#define FILE_BYTES   ((size_t)256 << 20) /* less is in caches of the drive */
#define PIECE_BYTES  ((size_t)8 << 20)
#define SHORT_BYTES  ((size_t)1 << 20)
#define FILE_SECONDS 0.2 /* each way */
#define MOST_PIECES  1024

double zt_rates_share_of_bytes(double longer, double shorter, double lengths)
{
    double share = (longer - shorter) / (longer * (1 - lengths));

    return longer > shorter && share < 1 ? share : 1;
}

const char *const *zt_rates_folders(const struct zt_run *run)
{
    const struct zt_zero_options *z = &run->zero;

    return z->offload_optimizer.nvme_paths ? z->offload_optimizer.nvme_paths
                                           : z->offload_param.nvme_paths;
}

/* A file that is measured, `pieces` of which have been written, and checksums of all. */
struct file_bench {
    struct zt_aio *aio;
    struct zt_aio_files files;
    void *data;
    uint64_t *sums;
    size_t bytes, pieces;
    double moved; /* bytes, both ways */
};

static zt_err move_piece(struct file_bench *f, bool write, size_t piece, size_t bytes,
                         struct zt_fault *fault)
{
    struct zt_aio_job job;

    f->moved += (double)bytes;
    zt_aio_start(f->aio, &job, &f->files, write, f->data, piece * bytes, bytes, f->sums);
    return zt_aio_wait(f->aio, &job, fault);
}

/* As much as there is time for: what was never written is slower to write and faster to read
 * than state is in any step but the first. */
static zt_err begin_file(struct file_bench *f, struct zt_fault *fault)
{
    double start = zt_now();
    zt_err rc;

    f->pieces = 0;
    do
        rc = move_piece(f, true, f->pieces++, PIECE_BYTES, fault);
    while (!rc && f->pieces < f->bytes / PIECE_BYTES &&
           zt_now() - start < 2 * FILE_SECONDS);
    return rc;
}

static int compare(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;

    return (a > b) - (a < b);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof(*x), compare);
    return x[n / 2];
}

/* Seconds of piece number `i` of those of this length, of what was written before. */
static zt_err time_piece(struct file_bench *f, bool write, size_t bytes, size_t i,
                         double *seconds, struct zt_fault *fault)
{
    size_t num = f->pieces * (PIECE_BYTES / bytes);
    double start = zt_now();
    zt_err rc = move_piece(f, write, i % num, bytes, fault);

    *seconds = zt_now() - start;
    return rc;
}

/*
 * Bytes in a second, and what a piece takes beside them: by pieces of two lengths, in turns, or
 * what holds up a drive for a moment would be taken for their difference. Of the longer ones
 * all of the time counts; how it divides, the medians say.
 */
static zt_err time_way(struct file_bench *f, bool write, double *rate, double *beside,
                       struct zt_fault *fault)
{
    double longer[MOST_PIECES], shorter[MOST_PIECES], all = 0, start = zt_now(), share;
    int n = 0;
    zt_err rc = ZT_OK;

    while (!rc && n < MOST_PIECES && (n == 0 || zt_now() - start < FILE_SECONDS)) {
        rc = time_piece(f, write, PIECE_BYTES, (size_t)n, &longer[n], fault);
        if (!rc)
            rc = time_piece(f, write, SHORT_BYTES, (size_t)n, &shorter[n], fault);
        all += longer[n++];
    }
    if (rc)
        return rc;
    share = zt_rates_share_of_bytes(median(longer, n), median(shorter, n),
                                    (double)SHORT_BYTES / (double)PIECE_BYTES);
    *rate = (double)PIECE_BYTES * n / (all * share);
    *beside = all / n * (1 - share);
    return ZT_OK;
}

/* Of the whole process but this thread: the threads that move bytes. */
static double moving_seconds(void)
{
    struct timespec all, own;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &all);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &own);
    return (double)(all.tv_sec - own.tv_sec) + 1e-9 * (double)(all.tv_nsec - own.tv_nsec);
}

static zt_err time_both_ways(struct file_bench *f, struct zt_rates *out,
                             struct zt_fault *fault)
{
    double of_read = 0, of_write = 0, moved, busy;
    zt_err rc = begin_file(f, fault);

    moved = f->moved;
    busy = moving_seconds();
    if (!rc)
        rc = time_way(f, true, &out->write, &of_write, fault);
    if (!rc)
        rc = time_way(f, false, &out->read, &of_read, fault);
    moved = f->moved - moved;
    busy = moving_seconds() - busy;
    out->moves = busy > 0 ? moved / busy : 0;
    out->pieces = of_read + of_write > 0 ? 2 / (of_read + of_write) : 0;
    return rc;
}

/* As long as there is room for. */
static zt_err open_file(struct file_bench *f, const struct zt_run *run,
                        struct zt_fault *fault)
{
    zt_err rc;

    for (f->bytes = FILE_BYTES;; f->bytes /= 2) {
        rc = zt_aio_files_open(f->aio, zt_rates_folders(run), f->bytes,
                               "files with which drives are measured, no state",
                               "the plan and the run need no more than is said below; "
                               "--rates FILE has what another measurement said",
                               &f->files, fault);
        if (!rc || f->bytes == PIECE_BYTES)
            return rc;
    }
}

zt_err zt_rates_measure_files(const struct zt_run *run, struct zt_rates *out,
                              struct zt_fault *fault)
{
    struct zt_aio_options o = zt_memory_plan_zero_config(run, NULL).aio;
    struct file_bench f = {
        .data = zt_aio_memory_map(PIECE_BYTES),
        .sums = run->verify_swap ? calloc(FILE_BYTES / ZT_AIO_SUM_BYTES, sizeof(uint64_t))
                                 : NULL,
    };
    zt_err rc = ZT_OK;

    if (!f.data || (run->verify_swap && !f.sums))
        rc = zt_fault_set(fault, ZT_E_NOMEM, "no memory for a measurement of files");
    o.threads *= run->local_world;
    o.threads = o.threads < ZT_AIO_MAX_THREADS ? o.threads : ZT_AIO_MAX_THREADS;
    if (!rc)
        rc = zt_aio_open(&o, &f.aio, fault);
    if (!rc)
        rc = open_file(&f, run, fault);
    if (!rc) {
        rc = time_both_ways(&f, out, fault);
        zt_aio_files_close(&f.files);
    }
    zt_aio_close(f.aio);
    zt_aio_memory_unmap(f.data, PIECE_BYTES);
    free(f.sums);
    out->write /= run->local_world;
    out->read /= run->local_world;
    return rc;
}
