/*
 * mpi_ranks.h -- the same for ranks that an MPI launcher starts: the test program runs
 * itself under mpirun with the name of a scenario, which each rank carries out.
 *
 * A rank that got to the end of its scenario adds a byte to a file. Without mpirun or
 * without the MPI object the tests say so and are skipped.
 */
#ifndef TEST_UNIT_COMM_MPI_RANKS_H
#define TEST_UNIT_COMM_MPI_RANKS_H

#include "test/unit/comm/ranks.h"

#include <fcntl.h>

struct scenario {
    const char *name;
    rank_fn fn;
    bool is_open;     /* fn gets a communicator, else NULL */
    double timeout_s; /* 0: 60 */
};

/* Ends with {0}; the test program has one. */
extern const struct scenario scenarios[];

static char test_path[4096] UNUSED;

static int UNUSED env_number(const char *name, int none)
{
    const char *text = getenv(name);

    return text ? atoi(text) : none;
}

static struct zt_comm_config UNUSED mpi_config(double timeout_s)
{
    const char *words = getenv("TEST_WORDS"); /* a file in place of the daemon's memory */

    return (struct zt_comm_config){.engine = "mpi",
                                   .rank = env_number("PMI_RANK", 0),
                                   .world = env_number("PMI_SIZE", 1),
                                   .shm_fd = words ? open(words, O_RDWR | O_CLOEXEC) : -1,
                                   .node_ranks = env_number("TEST_NODE_RANKS", 0),
                                   .timeout_s = timeout_s > 0 ? timeout_s : 60};
}

/* A rank: do as the scenario says. */
static int UNUSED be_rank(const char *name)
{
    const struct scenario *s = scenarios;
    struct zt_comm_config cfg;
    struct zt_comm *c = NULL;
    int fine;

    while (s->name && strcmp(s->name, name) != 0)
        s++;
    CHECK(s->name);
    alarm(HANG_LIMIT);
    cfg = mpi_config(s->timeout_s);
    my_rank = cfg.rank;
    if (s->is_open)
        DO(zt_comm_open(&cfg, &c, &fault));
    s->fn(c);
    zt_comm_close(c);
    fine = open(getenv("TEST_FINE"), O_WRONLY | O_APPEND | O_CLOEXEC);
    CHECK(write(fine, ".", 1) == 1);
    return 0;
}

/*
 * Run a program on `world` ranks; `num_fine` of them must get to the end of the scenario.
 * Options go to mpirun. The exit status of mpirun, 0 if all ranks ended well.
 */
static int UNUSED run_program(int world, const char *options, const char *program,
                              const char *args, int num_fine)
{
    char command[9000], path[] = "/tmp/zt-fine-XXXXXX";
    int fd = mkstemp(path), status;
    off_t fine;

    assert_true(fd >= 0);
    setenv("TEST_FINE", path, 1);
    snprintf(command, sizeof(command), "mpirun %s -n %d %s %s 2>&1", options, world,
             program, args);
    status = system(command);
    fine = lseek(fd, 0, SEEK_END);
    unlink(path);
    close(fd);
    assert_int_equal(fine, num_fine);
    return status;
}

/* All ranks get to the end of it, and end well. */
static void UNUSED run_fine(int world, const char *name)
{
    assert_int_equal(run_program(world, "", test_path, name, world), 0);
}

/* Point the engine to the object of this build; false: there is none, or no mpirun. */
static bool UNUSED find_mpi(void)
{
    static const char *const places[] = {"../../bin", "../../../../bin"};
    char path[4200] = "", *slash;
    ssize_t n = readlink("/proc/self/exe", test_path, sizeof(test_path) - 1);

    if (n <= 0)
        return false;
    test_path[n] = 0;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s", test_path);
        slash = strrchr(path, '/') + 1;
        snprintf(slash, sizeof(path) - (size_t)(slash - path), "%s/backends/mpi.so",
                 places[i]);
        if (access(path, R_OK) == 0)
            break;
        path[0] = 0;
    }
    if (!path[0] || system("mpirun --version >/dev/null 2>&1"))
        return false;
    setenv("ZLAUNCH_MPI_BACKEND", path, 1);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* in ranks: what MPI loads leaks */
#ifdef __SANITIZE_THREAD__
    setenv("UCX_MEM_EVENTS", "n", 1); /* its hooks run in threads that TSan has left */
#endif
    return true;
}

/* main() of such a test program. */
#define MPI_MAIN(tests)                                                                  \
    int main(int argc, char **argv)                                                      \
    {                                                                                    \
        if (argc == 2)                                                                   \
            return be_rank(argv[1]);                                                     \
        if (!find_mpi()) {                                                               \
            printf("no MPI: apt install mpich libmpich-dev, then run make\n");           \
            return 77;                                                                   \
        }                                                                                \
        return cmocka_run_group_tests(tests, NULL, NULL);                                \
    }

#endif
