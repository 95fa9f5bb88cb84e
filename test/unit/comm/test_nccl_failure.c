/* Communicators on a device: nobody hangs, and all are told why. */
#include "test/unit/comm/fake_nccl.h"

#include "worker/comm/shm/abort.h"

static bool says(const char *words)
{
    if (!strstr(fault.text, words))
        fprintf(stderr, "rank %d: \"%s\" is not in: %s\n", my_rank, words, fault.text);
    return strstr(fault.text, words) != NULL;
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---------------------------------------------------------------- opening */
static void rank_without_nccl(struct zt_comm *host)
{
    struct zt_comm *c;

    setenv("ZLAUNCH_NCCL_BACKEND", "", 1);
    late = late_open();
    device_cfg = (struct zt_device_comm_config){
        .host = host, .backend = late, .device = late_dev, .timeout_s = 60};
    zt_nccl_set_library(my_rank == 1 ? NULL : &fake_nccl);
    CHECK(zt_comm_open_device(&device_cfg, &c, &fault) == ZT_E_UNSUPPORTED);
    CHECK(says("libnccl2"));
    CHECK(my_rank == 1 || says("rank 1 on "));
    DO(zt_barrier(host, &fault)); /* which is as before */
}

static void a_rank_without_nccl_is_named_on_all(void **state)
{
    (void)state;
    run_device_ranks(3, rank_without_nccl);
}

static void rank_without_peers(struct zt_comm *host)
{
    float x = 3;
    struct zt_comm *c;

    setenv("ZLAUNCH_NCCL_BACKEND", "", 1);
    late = late_open();
    device_cfg = (struct zt_device_comm_config){
        .host = host, .backend = late, .device = late_dev, .timeout_s = 60};
    DO(zt_comm_open_device(&device_cfg, &c, &fault));
    DO(zt_all_reduce(c, &x, &x, 1, ZT_F32, ZT_SUM, 2, &fault));
    DO(late->sync(late_dev, NULL, &fault));
    CHECK(x == 6);
    zt_comm_close(c);
}

static void a_world_of_one_needs_no_nccl(void **state)
{
    (void)state;
    run_device_ranks(1, rank_without_peers);
}

static void rank_shared_gpu(struct zt_comm *host)
{
    struct zt_comm *c;

    fake.gpu = my_rank ? "0000:3b:00.0" : NULL;
    CHECK(open_device(host, &c) == ZT_E_PLAN);
    CHECK(says("ranks 1 and 2 are both on GPU 0000:3b:00.0"));
    CHECK(!getenv("NCCL_HOSTID"));
    device_cfg.share_gpu = true;
    setenv("NCCL_SOCKET_IFNAME", "mine", 1);
    DO(open_device(host, &c));
    CHECK(strstr(getenv("NCCL_HOSTID"), my_rank == 2 ? "-1" : "-0"));
    CHECK(!strcmp(getenv("NCCL_SOCKET_IFNAME"), "mine"));
    CHECK(!strcmp(getenv("NCCL_IB_DISABLE"), "1"));
    zt_comm_close(c);
}

static void ranks_on_one_gpu_are_refused_or_told_apart(void **state)
{
    (void)state;
    run_device_ranks(3, rank_shared_gpu);
}

static void rank_with_another_version(struct zt_comm *host)
{
    struct zt_comm *c;

    fake.version = my_rank == 1 ? 22703 : 0;
    CHECK(open_device(host, &c) == ZT_E_UNSUPPORTED);
    CHECK(says("rank 1 on ") && says("22703") && says("22809"));
    fake.version = 0;
    device_cfg.ordered = my_rank == 0;
    CHECK(open_device(host, &c) == ZT_E_ARG);
    device_cfg.ordered = true;
    fake.no_id = my_rank == 0;
    CHECK(open_device(host, &c) == ZT_E_SYSTEM);
    CHECK(says("rank 0 finds no network"));
    fake.no_id = false;
    late_fails_above = my_rank == 1 ? 1 << 20 : 0;
    CHECK(open_device(host, &c) == ZT_E_NOMEM);
    CHECK(says("the device has no ") && (my_rank == 1 || says("rank 1 on ")));
    late_fails_above = 0;
    DO(open_device(host, &c)); /* none of that broke anything */
    DO(zt_barrier(c, &fault));
    zt_comm_close(c);
}

static void what_ranks_see_before_nccl_starts_breaks_nothing(void **state)
{
    (void)state;
    run_device_ranks(2, rank_with_another_version);
}

static void rank_whose_meeting_hangs(struct zt_comm *host)
{
    double begin = now_s();
    struct zt_comm *c;

    device_cfg.timeout_s = my_rank == 0 ? 0.5 : 60;
    fake.open_hangs = true;
    CHECK(open_device(host, &c) == ZT_E_PEER);
    CHECK(my_rank ? says("rank 0 has failed") : says("did not reach the other ranks"));
    CHECK(fake_aborted == 1 && now_s() - begin < 30);
    CHECK(zt_barrier(host, &fault) == ZT_E_PEER);
}

static void a_meeting_that_does_not_end_is_given_up_on_all(void **state)
{
    (void)state;
    run_device_ranks(2, rank_whose_meeting_hangs);
}

static void rank_whose_meeting_fails(struct zt_comm *host)
{
    struct zt_comm *c;

    fake.open_fails = my_rank == 1;
    fake.open_hangs = true;
    CHECK(open_device(host, &c) == ZT_E_PEER);
    CHECK(my_rank == 1 ? says("fake NCCL: an invented error")
                       : says("rank 1 has failed"));
}

static void an_error_of_one_rank_at_the_meeting_ends_it_for_all(void **state)
{
    (void)state;
    run_device_ranks(3, rank_whose_meeting_fails);
}

/* ---------------------------------------------------------------- afterwards */
/* Each way to use a communicator that is over gives `rc` and the same sentence. */
static void expect_dead(struct zt_comm *c, const char *sentence)
{
    float x[4] = {0}, y[4];
    double d = 1;
    zt_comm_handle h;
    void *p;

    CHECK(zt_comm_failed(c, &fault) && says(sentence));
    CHECK(zt_sum_f64(c, &d, 1, &fault) == ZT_E_PEER && says(sentence));
    CHECK(zt_barrier(c, &fault) == ZT_E_PEER && says(sentence));
    CHECK(zt_all_gather(c, x, y, 1, ZT_F32, &fault) == ZT_E_PEER && says(sentence));
    CHECK(zt_all_reduce_start(c, x, y, 1, ZT_F32, ZT_SUM, 1, &h, &fault) == ZT_E_PEER);
    CHECK(says(sentence));
    CHECK(zt_comm_wait(c, 1, &fault) == ZT_E_PEER && says(sentence));
    CHECK(zt_comm_alloc(c, 4096, &p, &fault) == ZT_E_PEER);
}

/* ---------------------------------------------------------------- a hang */
static void rank_that_hangs_alone(struct zt_comm *host)
{
    float x[8] = {0}, y[16];
    double begin = now_s();
    struct zt_comm *c, *near;
    zt_comm_handle h;

    device_cfg.timeout_s = my_rank == 0 ? 1 : 60;
    DO(open_device(host, &c));
    DO(zt_comm_split(c, my_rank, &near, &fault));
    fake.device_hangs = true;
    DO(zt_all_gather_start(c, x, y, 8, ZT_F32, &h, &fault));
    DO(zt_comm_wait(c, h, &fault));
    DO(zt_barrier(host, &fault));
    DO(late->sync(late_dev, NULL, &fault)); /* which returns */
    CHECK(now_s() - begin < 30);
    expect_dead(c, my_rank ? "rank 0 has failed"
                           : "all_gather of 32 bytes (8 f32) (call 1 on the device) on "
                             "rank 0 did not end within 1 s");
    CHECK(zt_all_gather(near, x, y, 1, ZT_F32, &fault) == ZT_E_PEER);
    zt_comm_close(near);
    zt_comm_close(c);
    CHECK(fake_aborted == 1);
}

static void a_collective_that_does_not_end_is_ended(void **state)
{
    (void)state;
    run_device_ranks(2, rank_that_hangs_alone);
}

/* Of a family all that is open is aborted, in one go. */
static void rank_with_groups(struct zt_comm *host)
{
    struct zt_comm *c, *near, *far;
    float x = 0;

    DO(open_device(host, &c));
    DO(zt_comm_split(c, my_rank > 0, &near, &fault));
    DO(zt_comm_split(near, 0, &far, &fault));
    fake.device_hangs = true;
    DO(zt_all_reduce(far, &x, &x, 1, ZT_F32, ZT_SUM, 1, &fault));
    DO(zt_barrier(host, &fault));
    if (my_rank == 2)
        zt_comm_abort(near, 0); /* which is rank 1 of the world */
    DO(late->sync(late_dev, NULL, &fault));
    while (!zt_comm_failed(near, &fault) || fake_aborted < (my_rank ? 3 : 1))
        usleep(1000); /* rank 0 has nothing that hangs */
    expect_dead(near, "rank 1 has failed");
    zt_comm_close(far);
    zt_comm_close(near);
    zt_comm_close(c);
    CHECK(zt_barrier(host, &fault) == ZT_E_PEER);
}

static void an_abort_ends_the_whole_family_on_all_ranks(void **state)
{
    (void)state;
    run_device_ranks(3, rank_with_groups);
}

/* ---------------------------------------------------------------- errors */
static void rank_with_an_error(struct zt_comm *host)
{
    struct zt_comm *c;
    float x = 0;

    DO(open_device(host, &c));
    fake.device_hangs = true;
    DO(zt_all_reduce(c, &x, &x, 1, ZT_F32, ZT_SUM, 1, &fault));
    DO(zt_barrier(host, &fault));
    if (my_rank == 1)
        fake.error = 6;
    DO(late->sync(late_dev, NULL, &fault));
    expect_dead(c, my_rank == 1 ? "a collective on the device on rank 1: fake NCCL: an "
                                  "invented error"
                                : "rank 1 has failed");
    zt_comm_close(c);
}

static void an_error_that_nccl_notices_by_itself_ends_all(void **state)
{
    (void)state;
    run_device_ranks(3, rank_with_an_error);
}

/* What is never queued, since NCCL waits for a rank while it makes connections. */
static void rank_with_a_call_under_way(struct zt_comm *host)
{
    struct zt_comm *c;
    float x = 0;

    device_cfg.timeout_s = my_rank ? 60 : 0.5;
    DO(open_device(host, &c));
    fake.calls_hang = true;
    CHECK(zt_all_reduce(c, &x, &x, 1, ZT_F32, ZT_SUM, 1, &fault) == ZT_E_PEER);
    CHECK(my_rank ? says("rank 0 has failed") : says("did not reach the other ranks"));
    zt_comm_close(c);
    CHECK(fake_aborted == 1);
}

static void a_call_that_is_never_queued_is_given_up(void **state)
{
    (void)state;
    run_device_ranks(2, rank_with_a_call_under_way);
}

/* ---------------------------------------------------------------- differences */
static void rank_that_differs(struct zt_comm *host)
{
    struct zt_comm *c;
    float x[8] = {0}, y[24];
    double d = 1;
    zt_comm_handle h;

    DO(open_device(host, &c));
    DO(zt_all_gather_start(c, x, y, 2, ZT_F32, &h, &fault));
    DO(zt_sum_f64(c, &d, 1, &fault));
    fake.device_hangs = true; /* as it does where ranks differ */
    DO(zt_all_gather_start(c, x, y, my_rank == 2 ? 3 : 2, ZT_F32, &h, &fault));
    CHECK(zt_sum_f64(c, &d, 1, &fault) == ZT_E_PEER);
    CHECK(says("rank 2 for 2 so far, rank 0 for 2 others"));
    CHECK(my_rank != 2 || says("of rank 2 was all_gather of 12 bytes (3 f32)"));
    DO(late->sync(late_dev, NULL, &fault));
    zt_comm_close(c);
}

static void ranks_that_ask_for_different_things_are_told(void **state)
{
    (void)state;
    run_device_ranks(3, rank_that_differs);
}

/* ---------------------------------------------------------------- a death */
static void rank_that_dies(struct zt_comm *host)
{
    struct zt_comm *c;
    float x = 0;

    DO(open_device(host, &c));
    fake.device_hangs = true;
    DO(zt_all_reduce(c, &x, &x, 1, ZT_F32, ZT_SUM, 1, &fault));
    DO(zt_barrier(host, &fault));
    if (my_rank == 1)
        _exit(7);
    DO(late->sync(late_dev, NULL, &fault));
    expect_dead(c, "rank 1 has failed");
    zt_comm_close(c);
}

static void the_daemons_word_on_a_dead_rank_ends_the_device_too(void **state)
{
    struct group g = {.world = 3};
    int status[3];

    (void)state;
    fake_fd = memfd_create("fake", MFD_CLOEXEC);
    make_fd(&g);
    for (int r = 0; r < 3; r++)
        start_rank(&g, r, true, rank_that_dies);
    status[1] = end_of_rank(&g, 1);
    assert_int_equal(WEXITSTATUS(status[1]), 7);
    zt_comm_abort_fd(g.fd, 1);
    status[0] = end_of_rank(&g, 0);
    status[2] = end_of_rank(&g, 2);
    assert_int_equal(status[0] | status[2], 0);
    close(g.fd);
    close(fake_fd);
}

/* At the end of a run, too: a peer that does not come to close is not waited for. */
static void rank_that_leaves(struct zt_comm *host)
{
    struct zt_comm *c;
    float x = 0;

    DO(open_device(host, &c));
    fake.device_hangs = true;
    DO(zt_all_reduce(c, &x, &x, 1, ZT_F32, ZT_SUM, 1, &fault));
    DO(zt_barrier(host, &fault));
    zt_comm_abort(c, my_rank);
    zt_comm_close(c); /* waits for the stream, which the watch lets go */
    CHECK(fake_aborted == 1 && !fake_closed);
}

static void closing_what_hangs_returns(void **state)
{
    (void)state;
    run_device_ranks(2, rank_that_leaves);
}

static int reset(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof(fake));
    device_cfg = (struct zt_device_comm_config){.ordered = true};
    return 0;
}

#define TEST(name) cmocka_unit_test_setup(name, reset)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_rank_without_nccl_is_named_on_all),
        TEST(a_world_of_one_needs_no_nccl),
        TEST(ranks_on_one_gpu_are_refused_or_told_apart),
        TEST(what_ranks_see_before_nccl_starts_breaks_nothing),
        TEST(a_meeting_that_does_not_end_is_given_up_on_all),
        TEST(an_error_of_one_rank_at_the_meeting_ends_it_for_all),
        TEST(a_collective_that_does_not_end_is_ended),
        TEST(an_abort_ends_the_whole_family_on_all_ranks),
        TEST(an_error_that_nccl_notices_by_itself_ends_all),
        TEST(a_call_that_is_never_queued_is_given_up),
        TEST(ranks_that_ask_for_different_things_are_told),
        TEST(the_daemons_word_on_a_dead_rank_ends_the_device_too),
        TEST(closing_what_hangs_returns),
    };

    return cmocka_run_group_tests_name("nccl_failure", tests, NULL, NULL);
}
