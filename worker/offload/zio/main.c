/*
 * zio -- how fast files of a folder are read and written, over the settings of the config
 * section "aio"; prints the section with the fastest of them.
 *
 * What is measured is what offload to nvme does: pieces of a file without a name, past the
 * page cache, by the same code.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "common/process/streams.h"
#include "worker/offload/aio.h"

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

static void print_help(FILE *out)
{
    fputs("zio [--size MIB] [--rounds N] [--json] PATH...\n\n"
          "How fast files in these folders (striped, one a drive) are read and written,\n"
          "over block sizes, queue depths and threads, and the \"aio\" section for a\n"
          "config with the fastest. It writes a file without a name of --size MiB\n"
          "(default 256) and leaves nothing.\n",
          out);
}

static int usage(const char *why)
{
    fprintf(stderr, "zio: error: %s\nTry 'zio --help'.\n", why);
    return zt_err_exit_code(ZT_E_USAGE);
}

/* Exit code, or -1: go on. */
static int read_options(int argc, char **argv, struct zio_job *j)
{
    static const struct option options[] = {{"size", required_argument, NULL, 's'},
                                            {"rounds", required_argument, NULL, 'r'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        long n = c == 's' || c == 'r' ? strtol(optarg, NULL, 10) : 1;

        if (c == '?')
            return usage("that is no option");
        if (n < 1 || n > 1 << 20)
            return usage("--size and --rounds are numbers from 1 on");
        if (c == 's')
            j->bytes = (size_t)n * MIB;
        else if (c == 'r')
            j->rounds = (int)n;
        else if (c == 'j')
            j->json = true;
        else {
            print_help(stdout);
            return 0;
        }
    }
    if (optind == argc)
        return usage("which folder? As in: zio /mnt/nvme0");
    return argc - optind > ZT_AIO_MAX_FILES ? usage("too many folders") : -1;
}

int main(int argc, char **argv)
{
    struct zio_job j = {.bytes = 256 * MIB, .rounds = 2};
    struct zt_fault fault = {0};
    int code;

    if (!zt_streams_open())
        return zt_err_exit_code(ZT_E_SYSTEM);
    code = read_options(argc, argv, &j);
    if (code >= 0)
        return zt_streams_end("zio", code);
    j.dirs = (const char *const *)argv + optind;
    j.data = mmap(NULL, j.bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (j.data == MAP_FAILED)
        zt_fault_set(&fault, ZT_E_NOMEM, "%zu MiB for the data: %s", j.bytes / MIB,
                     strerror(errno));
    else
        (void)sweep(&j, &fault);
    code = 0;
    if (fault.code) {
        fprintf(stderr, "zio: error: %s\n", fault.text);
        code = zt_err_exit_code(fault.code);
    }
    return zt_streams_end("zio", code);
}
