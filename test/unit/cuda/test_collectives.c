/*
 * Communicators on a device, as a run has them: backends/cuda.so and backends/nccl.so are
 * loaded, here those of the shim, which executes them; a rank is a process.
 */
#include <limits.h>
#include <signal.h>

#include "kernels/backend.h"
#include "test/unit/comm/ranks.h"
#include "worker/comm/shm/abort.h"

static const struct zt_backend *be;
static struct zt_device *dev;
static struct zt_device_comm_config cfg = {.ordered = true, .timeout_s = 60};
static bool one_gpu; /* all ranks see the same one */

/* ---------------------------------------------------------------- a rank */
/* Beside this test, where make puts them. */
static void use_object(const char *env, const char *file)
{
    char path[PATH_MAX], out[PATH_MAX + 64];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

    CHECK(n > 0);
    path[n] = '\0';
    for (int up = 0; up < 3; up++) /* .../unit/cuda/test_collectives */
        *strrchr(path, '/') = '\0';
    snprintf(out, sizeof(out), "%s/shim/backends/%s", path, file);
    setenv(env, out, 0);
}

static struct zt_comm *open_all(struct zt_comm *host)
{
    struct zt_comm *c;
    char devices[16];

    use_object("ZLAUNCH_CUDA_BACKEND", "cuda.so");
    use_object("ZLAUNCH_NCCL_BACKEND", "nccl.so");
    snprintf(devices, sizeof(devices), "%d", zt_comm_world(host));
    setenv("SHIM_DEVICES", devices, 1);
    DO(zt_backend_find("cuda", &be, &fault));
    DO(be->open(one_gpu ? 0 : my_rank, 1, &dev, &fault));
    cfg.host = host;
    cfg.backend = be;
    cfg.device = dev;
    DO(zt_comm_open_device(&cfg, &c, &fault));
    return c;
}

static void close_all(struct zt_comm *c)
{
    zt_comm_close(c);
    be->close(dev);
}

static void *on_device(size_t bytes)
{
    void *p;

    DO(be->alloc(dev, bytes, &p, &fault));
    return p;
}

static void up(void *device, const void *host, size_t bytes)
{
    DO(be->upload(dev, NULL, device, host, bytes, &fault));
}

static void down(void *host, const void *device, size_t bytes)
{
    DO(be->download(dev, NULL, host, device, bytes, &fault));
    DO(be->sync(dev, NULL, &fault));
}

/* ---------------------------------------------------------------- every collective */
struct sides {
    char *send, *want, *got; /* of the host */
    char *from, *to;         /* of the device */
    size_t bytes;
};

static void expect(struct sides *s, size_t bytes, const char *what)
{
    down(s->got, s->to, bytes);
    if (memcmp(s->got, s->want, bytes) != 0) {
        fprintf(stderr, "rank %d: %s differs\n", my_rank, what);
        _exit(1);
    }
}

static void all_collectives(struct zt_comm *c, struct sides *s, zt_dtype dtype,
                            size_t count)
{
    struct zt_comm *host = zt_comm_host(c);
    size_t world = (size_t)zt_comm_world(c), bytes = count * zt_dtype_bytes(dtype);
    char *mine = s->to + (size_t)zt_comm_rank(c) * bytes;
    float scale = dtype <= ZT_F16 ? 0.3f : 1.0f;

    fill(s->send, count * world, dtype, count, zt_comm_rank(c));
    up(s->from, s->send, bytes * world);

    DO(zt_all_reduce(host, s->send, s->want, count, dtype, ZT_SUM, scale, &fault));
    DO(zt_all_reduce(c, s->from, s->to, count, dtype, ZT_SUM, scale, &fault));
    expect(s, bytes, "all_reduce");

    DO(zt_reduce_scatter(host, s->send, s->want, count, dtype, scale, &fault));
    DO(zt_reduce_scatter(c, s->from, s->to, count, dtype, scale, &fault));
    expect(s, bytes, "reduce_scatter");
    up(s->to, s->send, bytes * world);
    DO(zt_reduce_scatter(c, s->to, mine, count, dtype, scale, &fault));
    DO(be->copy(dev, NULL, s->to, mine, bytes, &fault));
    expect(s, bytes, "reduce_scatter in place");

    DO(zt_all_gather(host, s->send, s->want, count, dtype, &fault));
    up(mine, s->send, bytes);
    DO(zt_all_gather(c, mine, s->to, count, dtype, &fault));
    expect(s, bytes * world, "all_gather in place");

    DO(zt_all_to_all(host, s->send, s->want, count, dtype, &fault));
    DO(zt_all_to_all(c, s->from, s->to, count, dtype, &fault));
    expect(s, bytes * world, "all_to_all");
    up(s->to, s->send, bytes * world);
    DO(zt_all_to_all(c, s->to, s->to, count, dtype, &fault));
    expect(s, bytes * world, "all_to_all in place");

    fill(s->want, count, dtype, 99, zt_comm_world(c) - 1);
    fill(s->send, count, dtype, 99, zt_comm_rank(c));
    up(s->to, s->send, bytes);
    DO(zt_broadcast(c, s->to, count, dtype, zt_comm_world(c) - 1, &fault));
    expect(s, bytes, "broadcast");
}

static struct sides make_sides(int world, size_t count)
{
    struct sides s = {.bytes = (size_t)world * count * 8};

    s.send = malloc(s.bytes);
    s.want = malloc(s.bytes);
    s.got = malloc(s.bytes);
    s.from = on_device(s.bytes);
    s.to = on_device(s.bytes);
    return s;
}

static void free_sides(struct sides *s)
{
    free(s->send);
    free(s->want);
    free(s->got);
    be->free(dev, s->from, s->bytes);
    be->free(dev, s->to, s->bytes);
}

static void rank_all(struct zt_comm *host)
{
    static const size_t counts[] = {1, 7, 4099, 40001};
    struct zt_comm *c = open_all(host);
    struct sides s = make_sides(zt_comm_world(c), 40001);

    for (zt_dtype d = 0; d < ZT_NUM_DTYPE; d++)
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
            all_collectives(c, &s, d, counts[i]);
    DO(zt_barrier(c, &fault));
    free_sides(&s);
    close_all(c);
}

static void bits_are_those_of_the_host(void **state)
{
    (void)state;
    for (int world = 1; world <= 4; world++)
        run_ranks(world, rank_all);
}

static void ranks_share_a_gpu_on_request(void **state)
{
    (void)state;
    one_gpu = cfg.share_gpu = true;
    run_ranks(2, rank_all);
    one_gpu = cfg.share_gpu = false;
}

static void rank_refused(struct zt_comm *host)
{
    struct zt_comm *c;

    (void)host;
    use_object("ZLAUNCH_CUDA_BACKEND", "cuda.so");
    use_object("ZLAUNCH_NCCL_BACKEND", "nccl.so");
    DO(zt_backend_find("cuda", &be, &fault));
    DO(be->open(0, 1, &dev, &fault));
    cfg.host = host;
    cfg.backend = be;
    cfg.device = dev;
    CHECK(zt_comm_open_device(&cfg, &c, &fault) == ZT_E_PLAN);
    CHECK(strstr(fault.text, "ranks 0 and 1 are both on GPU "));
    be->close(dev);
}

static void two_ranks_on_a_gpu_are_refused(void **state)
{
    (void)state;
    run_ranks(2, rank_refused);
}

static void rank_groups(struct zt_comm *host)
{
    struct zt_comm *c = open_all(host), *near, *far;
    struct sides s = make_sides(4, 5000);
    zt_comm_handle h[2];

    DO(zt_comm_split(c, my_rank / 2, &near, &fault));
    DO(zt_comm_split(c, my_rank % 2, &far, &fault));
    all_collectives(near, &s, ZT_BF16, 5000);
    all_collectives(far, &s, ZT_F32, 5000);
    fill(s.send, 10, ZT_F32, 1, my_rank);
    up(s.from, s.send, 40);
    /* one after the other on one stream: what the first one makes the second one takes */
    DO(zt_all_gather_start(near, s.from, s.to, 10, ZT_F32, &h[0], &fault));
    DO(zt_all_gather_start(far, s.to, s.from, 20, ZT_F32, &h[1], &fault));
    DO(zt_comm_wait(c, h[1], &fault));
    down(s.got, s.from, 160);
    for (int i = 0; i < 4; i++) {
        fill(s.want, 10, ZT_F32, 1, i);
        CHECK(!memcmp(s.got + (size_t)i * 40, s.want, 40));
    }
    zt_comm_close(far);
    zt_comm_close(near);
    free_sides(&s);
    close_all(c);
}

static void groups_share_a_stream(void **state)
{
    (void)state;
    run_ranks(4, rank_groups);
}

/* ---------------------------------------------------------------- failure */
static void rank_beside_a_dead_one(struct zt_comm *host)
{
    struct zt_comm *c = open_all(host);
    void *p = on_device(1024);
    double d = 1;

    DO(zt_all_reduce(c, p, p, 256, ZT_F32, ZT_SUM, 1, &fault));
    DO(zt_barrier(c, &fault));
    if (my_rank == 1) /* before its device has come to it */
        raise(SIGKILL);
    be->sync(dev, NULL, NULL); /* returns, whatever it says */
    CHECK(zt_sum_f64(c, &d, 1, &fault) == ZT_E_PEER);
    CHECK(strstr(fault.text, "rank 1 has failed"));
    be->free(dev, p, 1024);
    close_all(c);
}

/* Where the library notices by itself, and where its work stays on the device for ever.
 */
static void a_rank_that_is_killed_ends_the_others(void **state)
{
    (void)state;
    for (int hang = 0; hang < 2; hang++) {
        struct group g = {.world = 3};
        int status[3];

        setenv("SHIM_NCCL_HANG", hang ? "1" : "0", 1);
        make_fd(&g);
        for (int r = 0; r < 3; r++)
            start_rank(&g, r, true, rank_beside_a_dead_one);
        status[1] = end_of_rank(&g, 1);
        assert_int_equal(WTERMSIG(status[1]), SIGKILL);
        zt_comm_abort_fd(g.fd, 1); /* as the daemon does */
        status[0] = end_of_rank(&g, 0);
        status[2] = end_of_rank(&g, 2);
        close(g.fd);
        assert_int_equal(status[0] | status[2], 0);
    }
    unsetenv("SHIM_NCCL_HANG");
}

static void rank_that_waits_for_one(struct zt_comm *host)
{
    struct zt_comm *c;
    void *p;

    cfg.timeout_s = my_rank ? 60 : 1;
    c = open_all(host);
    p = on_device(1024);
    if (my_rank != 1) {
        DO(zt_broadcast(c, p, 256, ZT_F32, 1, &fault));
        be->sync(dev, NULL, NULL);
        CHECK(zt_barrier(c, &fault) == ZT_E_PEER);
        CHECK(strstr(fault.text, my_rank ? "rank 0 has failed" : "within 1 s"));
    } else {
        while (!zt_comm_failed(c, &fault)) /* busy with something else */
            usleep(1000);
        CHECK(strstr(fault.text, "rank 0 has failed"));
    }
    be->free(dev, p, 1024);
    close_all(c);
}

static void a_rank_that_hangs_is_not_waited_for_longer_than_agreed(void **state)
{
    (void)state;
    run_ranks(3, rank_that_waits_for_one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_the_host),
        cmocka_unit_test(ranks_share_a_gpu_on_request),
        cmocka_unit_test(two_ranks_on_a_gpu_are_refused),
        cmocka_unit_test(groups_share_a_stream),
        cmocka_unit_test(a_rank_that_is_killed_ends_the_others),
        cmocka_unit_test(a_rank_that_hangs_is_not_waited_for_longer_than_agreed),
    };

    return cmocka_run_group_tests_name("collectives", tests, NULL, NULL);
}
