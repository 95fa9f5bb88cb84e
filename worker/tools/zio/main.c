/*
 * zio -- how fast files of a folder are read and written, by each engine and over the
 * settings of the config section "aio"; prints the section with the fastest of them.
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

/* Of a setting, those that are tried. */
struct values {
    int64_t of[3];
    int num;
};

struct zio_job {
    const char *const *dirs;
    size_t bytes;                           /* of the file */
    char *data;                             /* as many */
    int rounds;                             /* each way; the fastest counts */
    const struct zt_aio_engine *engines[4]; /* NULL behind the last */
    struct values block_size, queue_depth, threads;
    bool json;
};

struct rate {
    struct zt_aio_options o;
    const char *engine; /* that did it */
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

    zt_aio_start(a, &piece, f, write, j->data, 0, j->bytes, NULL);
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
    rc = zt_aio_files_open(a, j->dirs, j->bytes, "the files", "make room", &f, fault);
    if (rc) {
        zt_aio_close(a);
        return rc;
    }
    r->direct = f.direct;
    r->engine = zt_aio_engine_name(a);
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

/* The table begins with its first row: what fails before has none. */
static void print_rate(const struct zio_job *j, const struct rate *r, bool first)
{
    if (first && !j->json)
        printf("%-8s %12s %6s %8s %10s %10s\n", "engine", "block_size", "depth",
               "threads", "read GB/s", "write GB/s");
    if (j->json)
        printf("{\"event\":\"zio\",\"engine\":\"%s\",\"block_size\":%lld,"
               "\"queue_depth\":%d,\"threads\":%d,\"read_gb_per_s\":%.3f,"
               "\"write_gb_per_s\":%.3f,\"direct\":%s}\n",
               r->engine, (long long)r->o.block_size, r->o.queue_depth, r->o.threads,
               r->read, r->write, r->direct ? "true" : "false");
    else
        printf("%-8s %8lld KiB %6d %8d %10.2f %10.2f\n", r->engine,
               (long long)r->o.block_size / 1024, r->o.queue_depth, r->o.threads, r->read,
               r->write);
    fflush(stdout);
}

/* `usual`: the engine that is taken without being asked for. */
static void print_section(const struct rate *r, const struct zt_aio_engine *usual)
{
    printf(
        "\nfastest, reading and writing taken together:\n\n"
        "\"aio\": {\"block_size\": %lld, \"queue_depth\": %d, \"intra_op_parallelism\": "
        "%d, \"single_submit\": false, \"overlap_events\": true}\n",
        (long long)r->o.block_size, r->o.queue_depth, r->o.threads);
    if (r->o.engine != usual)
        printf("\nwith --aio_engine %s, or in the section \"zlaunch\": "
               "\"aio_engine\": \"%s\"\n",
               r->engine, r->engine);
    if (!r->direct)
        puts("\nThis file system cannot be written to past the page cache (O_DIRECT): "
             "the figures are those of memory in part.");
}

/* A step reads somewhat more than it writes: seconds for one GB each way decide. */
static bool is_better(const struct rate *a, const struct rate *b)
{
    return 1 / a->read + 1 / a->write < 1 / b->read + 1 / b->write;
}

/* One setting, by each engine in turn. *best has no engine before the first. */
static zt_err measure_engines(const struct zio_job *j, struct rate *r, struct rate *best,
                              struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && j->engines[i]; i++) {
        r->o.engine = j->engines[i];
        rc = measure(j, r, fault);
        if (!rc)
            print_rate(j, r, !best->engine);
        if (!rc && (!best->engine || is_better(r, best)))
            *best = *r;
    }
    return rc;
}

/* The one that a run takes without being told. */
static const struct zt_aio_engine *usual_engine(void)
{
    void *queue = NULL;
    int refused;
    const struct zt_aio_engine *e = zt_aio_engine_open(NULL, 1, &queue, &refused);

    if (e)
        e->close(queue);
    return e;
}

static zt_err sweep(const struct zio_job *j, struct zt_fault *fault)
{
    const struct values *b = &j->block_size, *d = &j->queue_depth, *t = &j->threads;
    struct rate best = {.engine = NULL};
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < b->num * d->num * t->num; i++) {
        struct rate r = {.o = {.block_size = b->of[i / (d->num * t->num)],
                               .queue_depth = (int)d->of[i / t->num % d->num],
                               .threads = (int)t->of[i % t->num],
                               .overlap_events = true}};

        rc = measure_engines(j, &r, &best, fault);
    }
    if (!rc && !j->json)
        print_section(&best, usual_engine());
    return rc;
}

/* ---- the program ---- */

/* The one that was asked for, or the three. */
static struct values values_of(const zt_args *args, const char *option, int64_t a,
                               int64_t b, int64_t c)
{
    int64_t asked = zt_args_int(args, option);

    return asked ? (struct values){{asked}, 1} : (struct values){{a, b, c}, 3};
}

/* The named one, or each whose queues the kernel lets us have: those but the last. */
static zt_err choose_engines(struct zio_job *j, const char *name, struct zt_fault *fault)
{
    int num = 0;

    for (int i = 0; zt_aio_engines[i]; i++) {
        const struct zt_aio_engine *e = zt_aio_engines[i];
        void *queue = NULL;
        int error;

        if (strcmp(name, "all") != 0 ? strcmp(name, e->name) != 0 : e == &zt_aio_psync)
            continue;
        error = e->open(1, &queue);
        if (!error) {
            e->close(queue);
            j->engines[num++] = e;
        } else if (!j->json) {
            printf("%s is not measured: the kernel does not let this process have it "
                   "(%s)\n",
                   e->name, strerror(error));
        }
    }
    return num ? ZT_OK
               : zt_fault_set(fault, ZT_E_SYSTEM,
                              "no engine is left to measure: --engine psync needs none "
                              "of the kernel's queues");
}

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
    {.name = "block_size",
     .kind = ZT_OPT_INT,
     .value = "BYTES",
     .def = "0",
     .max = 1 << 30,
     .help = "of a request, a multiple of 4096; 0: 128 KiB, 1 MiB and 8 MiB"},
    {.name = "queue_depth",
     .kind = ZT_OPT_INT,
     .value = "N",
     .def = "0",
     .max = 4096,
     .help = "requests of a thread at a time; 0: 4, 16 and 64"},
    {.name = "threads",
     .kind = ZT_OPT_INT,
     .value = "N",
     .def = "0",
     .max = 256,
     .help = "that read and write (intra_op_parallelism); 0: 1, 2 and 4"},
    {.name = "engine",
     .kind = ZT_OPT_CHOICE,
     .choices = "all|io_uring|libaio|psync",
     .def = "all",
     .help = "what reads and writes (--aio_engine of zlaunch); all: those with queues of "
             "the kernel, in turns"},
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
                        .block_size =
                            values_of(args, "block_size", 128 << 10, 1 << 20, 8 << 20),
                        .queue_depth = values_of(args, "queue_depth", 4, 16, 64),
                        .threads = values_of(args, "threads", 1, 2, 4),
                        .json = zt_args_flag(args, "json")};
    zt_err rc;

    if (j.block_size.of[0] % 4096)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--block_size %lld is no multiple of 4096, as direct access "
                            "to files needs",
                            (long long)j.block_size.of[0]);

    memcpy(dirs, words, (size_t)num_words * sizeof(*words));
    rc = check_room(&j, num_words, fault);
    if (!rc)
        rc = choose_engines(&j, zt_args_string(args, "engine"), fault);
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
    .about =
        "Measure how fast files in these folders (striped, one a drive) are read "
        "and written, over engines, block sizes, queue depths and threads, and print the "
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
