/*
 * zio -- how fast files of a folder are read and written, over the settings of the config
 * section "aio"; prints the section with the fastest of them.
 *
 * What is measured is what offload to nvme does: pieces of a file without a name, past the
 * page cache, by the same code.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>

#include "worker/offload/aio.h"
#include "worker/tools/tool.h"

#define MIB ((size_t)1 << 20)

struct zio_job {
    const char *const *dirs;
    size_t bytes; /* of the file */
    char *data;   /* as many */
    int rounds;   /* each way; the fastest counts */
    bool json;
};

struct rate {
    struct zt_aio_options o;
    double read, write; /* GB/s */
    bool direct;
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* All of the file, once. */
static zt_err move_all(struct zt_aio *a, const struct zt_aio_files *f,
                       const struct zio_job *j, bool write, double *rate,
                       struct zt_fault *fault)
{
    struct zt_aio_job piece;
    double start = now(), here;
    zt_err rc;

    zt_aio_start(a, &piece, f, write, j->data, 0, j->bytes);
    rc = zt_aio_wait(a, &piece, fault);
    here = (double)j->bytes / (now() - start) / 1e9;
    *rate = here > *rate ? here : *rate;
    return rc;
}

static zt_err measure(const struct zio_job *j, struct rate *r, struct zt_fault *fault)
{
    struct zt_aio *a = NULL;
    struct zt_aio_files f;
    zt_err rc = zt_aio_open(&r->o, &a, fault);

    if (rc)
        return rc;
    rc = zt_aio_files_open(a, j->dirs, j->bytes, &f, fault);
    if (rc) {
        zt_aio_close(a);
        return rc;
    }
    r->direct = f.direct;
    r->read = r->write = 0;
    for (int i = 0; !rc && i < j->rounds; i++) {
        rc = move_all(a, &f, j, true, &r->write, fault);
        if (!rc)
            rc = move_all(a, &f, j, false, &r->read, fault);
    }
    zt_aio_files_close(&f);
    zt_aio_close(a);
    return rc;
}

/* ---- what is printed ---- */

static void print_rate(const struct zio_job *j, const struct rate *r)
{
    if (j->json)
        printf("{\"event\":\"zio\",\"block_size\":%lld,\"queue_depth\":%d,\"threads\":%d,"
               "\"read_gb_per_s\":%.3f,\"write_gb_per_s\":%.3f,\"direct\":%s}\n",
               (long long)r->o.block_size, r->o.queue_depth, r->o.threads, r->read,
               r->write, r->direct ? "true" : "false");
    else
        printf("%8lld KiB %6d %8d %10.2f %10.2f\n", (long long)r->o.block_size / 1024,
               r->o.queue_depth, r->o.threads, r->read, r->write);
    fflush(stdout);
}

static void print_section(const struct rate *r)
{
    printf(
        "\nfastest, reading and writing taken together:\n\n"
        "\"aio\": {\"block_size\": %lld, \"queue_depth\": %d, \"intra_op_parallelism\": "
        "%d, \"single_submit\": false, \"overlap_events\": true}\n",
        (long long)r->o.block_size, r->o.queue_depth, r->o.threads);
    if (!r->direct)
        puts("\nThis file system cannot be written to past the page cache (O_DIRECT): "
             "the figures are those of memory in part.");
}

/* A step reads somewhat more than it writes: seconds for one GB each way decide. */
static bool is_better(const struct rate *a, const struct rate *b)
{
    return 1 / a->read + 1 / a->write < 1 / b->read + 1 / b->write;
}

static zt_err sweep(const struct zio_job *j, struct zt_fault *fault)
{
    static const int64_t blocks[] = {128 << 10, 1 << 20, 8 << 20};
    static const int depths[] = {4, 16, 64}, threads[] = {1, 2, 4};
    struct rate best = {.read = 1e-9, .write = 1e-9};
    zt_err rc = ZT_OK;

    if (!j->json)
        printf("%12s %6s %8s %10s %10s\n", "block_size", "depth", "threads", "read GB/s",
               "write GB/s");
    for (int i = 0; !rc && i < 27; i++) {
        struct rate r = {.o = {.block_size = blocks[i / 9],
                               .queue_depth = depths[i / 3 % 3],
                               .threads = threads[i % 3],
                               .overlap_events = true}};

        rc = measure(j, &r, fault);
        if (!rc)
            print_rate(j, &r);
        if (!rc && is_better(&r, &best))
            best = r;
    }
    if (!rc && !j->json)
        print_section(&best);
    return rc;
}

/* ---- the program ---- */

static const struct zt_option options[] = {
    {.name = "size",
     .kind = ZT_OPT_INT,
     .value = "MIB",
     .def = "256",
     .min = 1,
     .max = 1 << 20,
     .help = "of the file that is written and read; it has no name and leaves nothing"},
    {.name = "rounds",
     .kind = ZT_OPT_INT,
     .value = "N",
     .def = "2",
     .min = 1,
     .max = 1 << 20,
     .help = "times that it is written and read; the fastest counts"},
    {.name = "json",
     .kind = ZT_OPT_FLAG,
     .help = "a line of JSON for each setting, and no section"},
    {.name = NULL},
};

/* Before anything is printed. Folders share the file evenly. */
static zt_err check_room(const struct zio_job *j, int num, struct zt_fault *fault)
{
    for (int i = 0; i < num; i++) {
        struct statvfs fs;
        double share = (double)j->bytes / num / MIB, left;

        if (statvfs(j->dirs[i], &fs))
            continue; /* making the file says what is wrong */
        left = (double)fs.f_bavail * (double)fs.f_frsize / MIB;
        if (left < share)
            return zt_fault_set(fault, ZT_E_CANTCREATE,
                                "%s: the %.1f MiB of --size that it gets are more than "
                                "the %.1f MiB that are free there: make room, or give a "
                                "smaller --size",
                                j->dirs[i], share, left);
    }
    return ZT_OK;
}

static zt_err run(const zt_args *args, const char *const *words, int num_words,
                  struct zt_fault *fault)
{
    const char *dirs[ZT_AIO_MAX_FILES + 1] = {NULL};
    struct zio_job j = {.dirs = dirs,
                        .bytes = (size_t)zt_args_int(args, "size") * MIB,
                        .rounds = (int)zt_args_int(args, "rounds"),
                        .json = zt_args_flag(args, "json")};
    zt_err rc;

    memcpy(dirs, words, (size_t)num_words * sizeof(*words));
    rc = check_room(&j, num_words, fault);
    if (rc)
        return rc;
    j.data = zt_aio_memory_map(j.bytes);
    if (!j.data)
        return zt_fault_set(fault, ZT_E_NOMEM, "%zu MiB for the data: %s", j.bytes / MIB,
                            strerror(errno));
    rc = sweep(&j, fault);
    zt_aio_memory_unmap(j.data, j.bytes);
    return rc;
}

static const struct zt_tool tool = {
    .name = "zio",
    .words = "PATH...",
    .about = "Measure how fast files in these folders (striped, one a drive) are read "
             "and written, over block sizes, queue depths and threads, and print the "
             "section \"aio\" of a config with the fastest",
    .min_words = 1,
    .max_words = ZT_AIO_MAX_FILES,
    .options = options,
    .run = run,
};

int main(int argc, char **argv)
{
    return zt_tool_main(tool.name, "how fast files are read and written", &tool, 1, argc,
                        argv);
}
