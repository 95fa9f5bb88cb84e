/* Whatever goes wrong between ranks that exchange messages has a name and an end. */
#include "test/unit/comm/mpi_ranks.h"
#include "worker/comm/shm/abort.h"

#include <signal.h>

static char words[] =
    "/tmp/zt-words-XXXXXX"; /* the file in place of the daemon's memory */

static void check_peer(zt_err rc, const char *part)
{
    if (rc == ZT_E_PEER && strstr(fault.text, part))
        return;
    fprintf(stderr, "rank %d: wanted '%s', got %s: %s\n", my_rank, part, zt_err_name(rc),
            rc ? fault.text : "");
    _exit(1);
}

/* Wait until the test's file is longer than a page: somebody called enough(). */
static void await_enough(void)
{
    while (lseek(open(getenv("TEST_WORDS"), O_RDONLY | O_CLOEXEC), 0, SEEK_END) <= 4096)
        usleep(10000);
}

static void enough(void)
{
    CHECK(truncate(getenv("TEST_WORDS"), 8192) == 0);
}

/* ---------------------------------------------------------------- ranks differ */
static void differ_in_op(struct zt_comm *c)
{
    float send[3] = {0}, recv[9] = {0};
    zt_err rc;

    if (my_rank == 1)
        rc = zt_all_gather(c, send, recv, 3, ZT_F32, &fault);
    else
        rc = zt_all_reduce(c, recv, recv, 8, ZT_BF16, ZT_SUM, 1.0f, &fault);
    check_peer(rc, "rank 1 wants all_gather of 12 bytes (3 f32), rank 0 all_reduce of 16 "
                   "bytes (8 bf16) sum times 1");
    check_peer(zt_barrier(c, &fault), "rank 1 wants all_gather"); /* and so it stays */
}

static void differ_in_root(struct zt_comm *c)
{
    static float v[100000];

    check_peer(zt_broadcast(c, v, 100000, ZT_F32, my_rank == 2, &fault),
               "rank 2 wants broadcast of 400000 bytes (100000 f32) from rank 1, rank 0 "
               "broadcast of 400000 bytes (100000 f32) from rank 0");
}

static void differ_in_length(struct zt_comm *c)
{
    static float v[100000];

    check_peer(zt_all_reduce(c, v, v, my_rank ? 10 : 100000, ZT_F32, ZT_SUM, 1, &fault),
               "rank 1 wants all_reduce of 40 bytes (10 f32) sum times 1, rank "
               "0 all_reduce of 400000 bytes (100000 f32) sum times 1");
}

static void differ_in_alloc(struct zt_comm *c)
{
    void *p;

    check_peer(zt_comm_alloc(c, my_rank ? 100 : 200, &p, &fault),
               "rank 1 wants alloc of 100 bytes, rank 0 alloc of 200 bytes");
}

/* In a group of ranks 1 and 2; messages speak of ranks of the whole. */
static void differ_in_group(struct zt_comm *c)
{
    struct zt_comm *g;
    double v = 1;
    zt_err rc;

    DO(zt_comm_split(c, my_rank > 0, &g, &fault));
    if (my_rank > 0) {
        rc = my_rank == 1 ? zt_barrier(g, &fault) : zt_sum_f64(g, &v, 1, &fault);
        check_peer(rc, "rank 2 wants sum_f64 of 8 bytes (1 f64), rank 1 barrier");
    }
    zt_comm_close(g);
}

/* ---------------------------------------------------------------- a rank is missing */
static void elsewhere(struct zt_comm *c)
{
    zt_err rc;

    if (my_rank == 1)
        await_enough();
    rc = zt_barrier(c, &fault);
    check_peer(rc, my_rank == 1   ? "given up, because rank 1 did not come in time"
                   : my_rank == 0 ? "rank 1 did not come"
                                  : ""); /* by its own clock, or told by rank 0 */
    if (my_rank == 0)
        enough();
}

static void leave_early(struct zt_comm *c)
{
    if (my_rank != 1)
        check_peer(zt_barrier(c, &fault), "rank 1 has closed its communicator");
}

static struct zt_comm *to_abort;

static void on_signal(int sig)
{
    (void)sig;
    zt_comm_abort(to_abort, 2);
}

static void call_off(struct zt_comm *c)
{
    struct sigaction act = {.sa_handler = on_signal};

    if (my_rank == 1) {
        to_abort = c;
        sigaction(SIGUSR2, &act, NULL);
        if (!fork()) {
            usleep(50000); /* so that it mostly strikes a wait; any moment will do */
            kill(getppid(), SIGUSR2);
            _exit(0);
        }
    }
    if (my_rank == 2)
        await_enough();
    check_peer(zt_barrier(c, &fault), "rank 2 has failed");
    if (my_rank == 0)
        enough();
}

/* ---------------------------------------------------------------- a rank dies */
static void reduce_until_it_fails(struct zt_comm *c)
{
    size_t n = 3000000;
    float *v = calloc(n, sizeof(*v));
    zt_err rc = ZT_OK;

    CHECK(v);
    for (int i = 0; !rc; i++) {
        if (my_rank == 1 && i == 3) {
            if (getenv("TEST_WORDS")) { /* as the daemon does when a rank is gone */
                zt_comm_abort_fd(open(getenv("TEST_WORDS"), O_RDWR | O_CLOEXEC), 1);
                usleep(20000); /* UCX aborts when it reads memory of the dead */
            }
            raise(SIGKILL);
        }
        rc = zt_all_reduce(c, v, v, n, ZT_F32, ZT_SUM, 1.0f, &fault);
    }
    check_peer(rc, "rank 1 has failed");
    free(v);
}

static void sum_until_it_fails(struct zt_comm *c)
{
    double v = 1;
    zt_err rc = ZT_OK;

    for (int i = 0; !rc; i++) {
        if (my_rank == 1 && i == 100) {
            zt_comm_abort_fd(open(getenv("TEST_WORDS"), O_RDWR | O_CLOEXEC), 1);
            raise(SIGKILL);
        }
        rc = zt_sum_f64(c, &v, 1, &fault);
    }
    check_peer(rc, "rank 1 has failed");
}

/* ---------------------------------------------------------------- failing on request */
static void fail_nth(struct zt_comm *none)
{
    struct zt_comm_config cfg = mpi_config(0);
    char engine[32];

    (void)none;
    cfg.shm_fd = -1;
    for (int nth = 1; nth <= 5; nth++) {
        float v[2] = {1, 2}, all[6];
        struct zt_comm *c;
        void *p;
        zt_err rc;

        snprintf(engine, sizeof(engine), "faulty:%d:mpi", nth);
        cfg.engine = my_rank ? "mpi" : engine;
        DO(zt_comm_open(&cfg, &c, &fault));
        rc = zt_comm_alloc(c, 100, &p, &fault);
        if (!rc)
            rc = zt_all_reduce(c, v, v, 2, ZT_F32, ZT_SUM, 1.0f, &fault);
        if (!rc)
            rc = zt_all_gather(c, v, all, 2, ZT_F32, &fault);
        if (!rc)
            rc = zt_barrier(c, &fault);
        if (nth == 5)
            CHECK(!rc);
        else
            check_peer(rc,
                       my_rank ? "rank 0 has failed" : "rank 0 fails here on request");
        zt_comm_close(c);
    }
}

static void other_world(struct zt_comm *none)
{
    struct zt_comm_config cfg = mpi_config(0);
    struct zt_comm *c;

    (void)none;
    cfg.world++;
    CHECK(zt_comm_open(&cfg, &c, &fault) == ZT_E_UNSUPPORTED);
    CHECK(strstr(fault.text, "rank 0 of 3 is rank 0 of 2 to mpi") || my_rank);
}

const struct scenario scenarios[] = {
    {"op", differ_in_op, true, 0},
    {"root", differ_in_root, true, 0},
    {"length", differ_in_length, true, 0},
    {"alloc", differ_in_alloc, true, 0},
    {"group", differ_in_group, true, 0},
    {"elsewhere", elsewhere, true, 2},
    {"leave", leave_early, true, 0},
    {"call-off", call_off, true, 0},
    {"die-long", reduce_until_it_fails, true, 0},
    {"die-short", sum_until_it_fails, true, 0},
    {"nth", fail_nth, false, 0},
    {"world", other_world, false, 0},
    {0},
};

/*
 * `num_fine` ranks get to the end. What they do by themselves is the question, so mpirun
 * must not kill the rest of a job when one of its ranks ends without MPI's blessing (nor
 * signal it by SIGUSR1), and the shell keeps from it how a rank ended.
 */
static void run_broken(int world, const char *name, int num_fine)
{
    char args[4300];

    snprintf(args, sizeof(args),
             "-c 'trap \"\" USR1; %s %s || echo rank $PMI_RANK: $? >&2'", test_path,
             name);
    run_program(world, "-disable-auto-cleanup", "sh", args, num_fine);
}

static void test_a_difference_names_both_sides_on_all_ranks(void **state)
{
    (void)state;
    run_broken(2, "op", 2);
    run_broken(3, "op", 3);
    run_broken(3, "root", 3);
    run_broken(2, "length", 2);
    run_broken(2, "alloc", 2);
    run_broken(3, "group", 3);
}

/* A fresh file that stands for the memory in which the daemon leaves its word. */
static void make_words(void)
{
    int fd;

    strcpy(strrchr(words, '-'), "-XXXXXX");
    fd = mkstemp(words);
    assert_true(fd >= 0);
    close(fd);
    setenv("TEST_WORDS", words, 1);
}

static void drop_words(void)
{
    unlink(words);
    unsetenv("TEST_WORDS");
}

static void test_a_missing_rank_is_named_at_the_deadline(void **state)
{
    (void)state;
    make_words();
    run_broken(3, "elsewhere", 3);
    drop_words();
}

static void test_a_rank_that_left_is_named_at_once(void **state)
{
    (void)state;
    run_broken(3, "leave", 3);
}

static void test_abort_from_a_signal_handler_reaches_all(void **state)
{
    (void)state;
    make_words();
    run_broken(3, "call-off", 3);
    drop_words();
}

static void test_a_killed_rank_is_named_to_the_others(void **state)
{
    (void)state;
    make_words();
    run_broken(3, "die-long", 2);
    drop_words();
    make_words();
    run_broken(3, "die-short", 2);
    drop_words();
}

/* Its launcher ends the others. */
static void test_without_a_daemon_nobody_outlives_a_killed_rank(void **state)
{
    (void)state;
    assert_int_not_equal(run_program(3, "", test_path, "die-long", 0), 0);
}

static void test_the_nth_call_can_fail_and_the_peer_learns_of_it(void **state)
{
    (void)state;
    run_broken(2, "nth", 2);
    run_broken(3, "nth", 3);
}

static void test_a_world_that_is_not_mpis_is_refused(void **state)
{
    (void)state;
    run_broken(2, "world", 2);
}

static void test_without_the_object_there_is_a_way_out(void **state)
{
    char *before = strdup(getenv("ZLAUNCH_MPI_BACKEND"));
    struct zt_comm_config cfg = mpi_config(0);
    struct zt_comm *c;

    (void)state;
    setenv("ZLAUNCH_MPI_BACKEND", "", 1);
    assert_int_equal(zt_comm_open(&cfg, &c, &fault), ZT_E_UNSUPPORTED);
    assert_non_null(strstr(fault.text, "apt install mpich libmpich-dev"));
    setenv("ZLAUNCH_MPI_BACKEND", "/nowhere/mpi.so", 1);
    assert_int_equal(zt_comm_open(&cfg, &c, &fault), ZT_E_UNSUPPORTED);
    assert_non_null(strstr(fault.text, "/nowhere/mpi.so"));
    setenv("ZLAUNCH_MPI_BACKEND", before, 1);
    free(before);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_difference_names_both_sides_on_all_ranks),
    cmocka_unit_test(test_a_missing_rank_is_named_at_the_deadline),
    cmocka_unit_test(test_a_rank_that_left_is_named_at_once),
    cmocka_unit_test(test_abort_from_a_signal_handler_reaches_all),
    cmocka_unit_test(test_a_killed_rank_is_named_to_the_others),
    cmocka_unit_test(test_without_a_daemon_nobody_outlives_a_killed_rank),
    cmocka_unit_test(test_the_nth_call_can_fail_and_the_peer_learns_of_it),
    cmocka_unit_test(test_a_world_that_is_not_mpis_is_refused),
    cmocka_unit_test(test_without_the_object_there_is_a_way_out),
};

MPI_MAIN(tests)
