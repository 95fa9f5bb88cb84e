/*
 * comm_mpich.c -- the collectives of bench_comm by an MPI library, for bench/run_comm.
 *
 *      mpicc -O3 comm_mpich.c && mpirun -n N a.out [largest MiB] [rounds]
 *
 * In place, fp32, one core a rank. Prints `collective bytes GB/s`: bytes of the whole
 * vector over the time of one call, from the first rank's start to the last one's end of
 * a short batch of calls; the best batch.
 */
#define _GNU_SOURCE /* CPU_SET */
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BATCH_S 0.002
#define CELL_S  1.0

static const char *const names[] = {"all_reduce", "reduce_scatter", "all_gather"};

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void once(int what, float *buf, int piece, int world)
{
    if (what == 0)
        MPI_Allreduce(MPI_IN_PLACE, buf, piece * world, MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
    else if (what == 1)
        MPI_Reduce_scatter_block(MPI_IN_PLACE, buf, piece, MPI_FLOAT, MPI_SUM,
                                 MPI_COMM_WORLD);
    else
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, buf, piece, MPI_FLOAT,
                      MPI_COMM_WORLD);
}

/* Seconds of one of `reps` calls. */
static double batch(int what, float *buf, int piece, int world, int reps)
{
    int64_t span[2];

    memset(buf, 0, (size_t)piece * (size_t)world * sizeof(*buf)); /* sums stay finite */
    once(what, buf, piece, world);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    span[0] = -now_ns();
    for (int i = 0; i < reps; i++)
        once(what, buf, piece, world);
    span[1] = now_ns();
    MPI_Allreduce(MPI_IN_PLACE, span, 2, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    return (double)(span[0] + span[1]) * 1e-9 / reps;
}

static double best_of(int what, float *buf, int piece, int world, int rounds)
{
    double best = batch(what, buf, piece, world, 2), spent = 0;
    int reps = best < BATCH_S / 2000 ? 2000 : best > BATCH_S ? 1 : (int)(BATCH_S / best);

    for (int i = 0; i < rounds && (i < 5 || spent < CELL_S); i++) {
        double s = batch(what, buf, piece, world, reps);

        best = s < best ? s : best;
        spent += s * reps;
    }
    return best;
}

int main(int argc, char **argv)
{
    static const size_t kib[] = {64, 256, 1024, 4096, 25600, 102400, 262144};
    size_t largest = (size_t)(argc > 1 ? atoi(argv[1]) : 256) << 20;
    int rounds = argc > 2 ? atoi(argv[2]) : 50, rank, world;
    float *buf = malloc(largest);
    cpu_set_t one;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    CPU_ZERO(&one);
    CPU_SET((unsigned)rank % (unsigned)sysconf(_SC_NPROCESSORS_ONLN), &one);
    if (!buf || sched_setaffinity(0, sizeof(one), &one))
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (size_t i = 0; i < sizeof(kib) / sizeof(kib[0]); i++)
        for (int what = 0; what < 3 && kib[i] << 10 <= largest; what++) {
            size_t bytes = kib[i] << 10, piece = bytes / sizeof(*buf) / (size_t)world;
            double s = best_of(what, buf, (int)piece, world, rounds);

            if (!rank)
                printf("%s %zu %.3f\n", names[what], bytes,
                       (double)(piece * (size_t)world * sizeof(*buf)) * 1e-9 / s);
        }
    free(buf);
    return MPI_Finalize();
}
