/*
 * A rank of bench/run_cluster: says in a file when it is ready and when it is told to go.
 *
 *      bench_startup --rank FILE [stay|deaf|loop]
 *
 * Each line of FILE is "ready|term NANOSECONDS RANK PID RESTART", the time since 1970.
 * Ready: it runs, and where all ranks share memory (one zlaunch node) it has passed a
 * barrier. Then it ends; `stay`: it waits for SIGTERM; `deaf`: and does not end; `loop`:
 * rank 1 spins, the others stay. Without --rank it explains itself.
 */
#include "common/env.h"
#include "worker/comm/comm.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BARRIER_S 60

static int64_t rank, restart; /* for the handler, too */
static int fd = -1;
static bool deaf;

/* The first of these that is set: zlaunch and torchrun, MPICH, PMIx, Slurm. */
static int64_t find_rank(void)
{
    static const char *const names[] = {"RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"};
    int64_t n = 0;

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (getenv(names[i]) && zt_env_int(names[i], 0, 1 << 24, &n, NULL) == ZT_OK)
            return n;
    return 0;
}

static void say(const char *what)
{
    struct timespec now;
    char line[128];
    int n;

    clock_gettime(CLOCK_REALTIME, &now);
    n = snprintf(line, sizeof(line), "%s %lld%09ld %" PRId64 " %d %" PRId64 "\n", what,
                 (long long)now.tv_sec, now.tv_nsec, rank, (int)getpid(), restart);
    if (write(fd, line, (size_t)n) != n)
        _exit(73);
}

static void on_term(int sig)
{
    (void)sig;
    say("term");
    if (!deaf)
        _exit(0);
}

static zt_err pass_barrier(struct zt_fault *fault)
{
    struct zt_comm_config cfg = {
        .engine = "shm", .rank = (int)rank, .timeout_s = BARRIER_S};
    struct zt_comm *comm = NULL;
    int64_t shm = -1, world = 1;
    zt_err rc = zt_env_int("ZLAUNCH_SHM_FD", 0, 1 << 20, &shm, fault);

    if (!rc)
        rc = zt_env_int("WORLD_SIZE", 1, 1 << 24, &world, fault);
    if (rc || shm < 0 || world < 2)
        return rc;
    cfg.world = (int)world;
    cfg.shm_fd = (int)shm;
    rc = zt_comm_open(&cfg, &comm, fault);
    if (!rc)
        rc = zt_barrier(comm, fault);
    zt_comm_close(comm);
    return rc;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 3 ? argv[3] : "";
    struct sigaction sa = {.sa_handler = on_term};
    struct zt_fault fault = {0};
    volatile uint64_t spin = 0;

    if (argc < 3 || strcmp(argv[1], "--rank") != 0) {
        puts("bench_startup: a rank of bench/run_cluster, which prints what is measured");
        return 0;
    }
    rank = find_rank();
    deaf = strcmp(mode, "deaf") == 0;
    fd = open(argv[2], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || zt_env_int("ZLAUNCH_RESTART_COUNT", 0, 1 << 20, &restart, &fault)) {
        fprintf(stderr, "bench_startup: %s: cannot be written\n", argv[2]);
        return 73;
    }
    if (*mode)
        sigaction(SIGTERM, &sa, NULL);
    if (pass_barrier(&fault)) {
        fprintf(stderr, "bench_startup: %s\n", fault.text);
        return zt_err_exit_code(fault.code);
    }
    say("ready");
    while (strcmp(mode, "loop") == 0 && rank == 1)
        spin++;
    while (*mode)
        pause();
    return 0;
}
