/* Communicators on a device: what they compute, and when. */
#include "test/unit/comm/fake_nccl.h"

static const zt_dtype all_dtypes[] = {ZT_F32, ZT_BF16, ZT_F16, ZT_I32, ZT_I64, ZT_U8};
static const size_t some_counts[] = {1, 3, 1000, 4099, 40001};
#define NUM_OF(a) (sizeof(a) / sizeof((a)[0]))

/* What every rank finds: room for both sides of a collective, and for the expectation. */
struct buffers {
    char *send, *recv, *want;
};

static struct buffers make_buffers(int world, size_t count)
{
    size_t bytes = (size_t)world * count * 8 + 64;

    return (struct buffers){calloc(1, bytes), calloc(1, bytes), calloc(1, bytes)};
}

static void free_buffers(struct buffers *b)
{
    free(b->send);
    free(b->recv);
    free(b->want);
}

/* The main stream's work, with what the host may then look at. */
static void sync_main(void)
{
    DO(late->sync(late_dev, NULL, &fault));
}

static bool same(const void *a, const void *b, size_t count, zt_dtype dtype)
{
    return !memcmp(a, b, count * zt_dtype_bytes(dtype));
}

/* ---------------------------------------------------------------- every collective */
/* Each once on the device and once on the host: the same bits. */
static void all_collectives(struct zt_comm *host, struct zt_comm *c, zt_dtype dtype,
                            size_t count)
{
    int world = zt_comm_world(c), rank = zt_comm_rank(c);
    size_t all = count * (size_t)world;
    float scale = dtype <= ZT_F16 ? 0.3f : 1.0f;
    struct buffers b = make_buffers(world, count);

    fill(b.send, all, dtype, count, rank);
    DO(zt_all_reduce(host, b.send, b.want, count, dtype, ZT_SUM, scale, &fault));
    DO(zt_all_reduce(c, b.send, b.recv, count, dtype, ZT_SUM, scale, &fault));
    sync_main();
    CHECK(same(b.recv, b.want, count, dtype));

    DO(zt_reduce_scatter(host, b.send, b.want, count, dtype, scale, &fault));
    DO(zt_reduce_scatter(c, b.send, b.recv, count, dtype, scale, &fault));
    sync_main();
    CHECK(same(b.recv, b.want, count, dtype));

    DO(zt_all_gather(host, b.send, b.want, count, dtype, &fault));
    DO(zt_all_gather(c, b.send, b.recv, count, dtype, &fault));
    sync_main();
    CHECK(same(b.recv, b.want, all, dtype));

    DO(zt_all_to_all(host, b.send, b.want, count, dtype, &fault));
    DO(zt_all_to_all(c, b.send, b.recv, count, dtype, &fault));
    sync_main();
    CHECK(same(b.recv, b.want, all, dtype));

    for (int root = 0; root < world; root++) {
        fill(b.want, count, dtype, 99, root);
        fill(b.recv, count, dtype, 99, rank);
        DO(zt_broadcast(c, b.recv, count, dtype, root, &fault));
        sync_main();
        CHECK(same(b.recv, b.want, count, dtype));
    }
    if (dtype > ZT_F16) {
        DO(zt_all_reduce(host, b.send, b.want, count, dtype, ZT_MAX, 1, &fault));
        DO(zt_all_reduce(c, b.send, b.recv, count, dtype, ZT_MAX, 1, &fault));
        sync_main();
        CHECK(same(b.recv, b.want, count, dtype));
    }
    free_buffers(&b);
}

static void rank_all_collectives(struct zt_comm *host)
{
    struct zt_comm *c;

    DO(open_device(host, &c));
    CHECK(zt_comm_rank(c) == zt_comm_rank(host));
    CHECK(zt_comm_world(c) == zt_comm_world(host));
    CHECK(zt_comm_host(c) == host && zt_comm_host(host) == host);
    CHECK(!zt_comm_can_share(c));
    for (size_t d = 0; d < NUM_OF(all_dtypes); d++)
        for (size_t n = 0; n < NUM_OF(some_counts); n++)
            all_collectives(host, c, all_dtypes[d], some_counts[n]);
    CHECK(!zt_comm_failed(c, NULL));
    zt_comm_close(c);
    CHECK(fake_open == fake_closed && !fake_aborted);
}

static void bits_are_those_of_the_host(void **state)
{
    (void)state;
    device_cfg.ordered = true;
    for (int world = 1; world <= 4; world++)
        run_device_ranks(world, rank_all_collectives);
}

/* A value that costs little to make. */
static float quick(int rank, size_t i)
{
    return (float)(((uint32_t)i * 2654435761u >> 9) % 9973) / 7.0f + (float)rank * 0.1f;
}

/* More than the staging memory holds at a time; the sums by arithmetic, in rank order. */
static void rank_long_sums(struct zt_comm *host)
{
    size_t count = zt_comm_device_bytes(3) / 3 / sizeof(float) + 12345, all = 3 * count;
    float *send = malloc(all * sizeof(*send)), *want = malloc(all * sizeof(*want));
    float *recv = malloc(all * sizeof(*recv));
    struct zt_comm *c;

    DO(open_device(host, &c));
    for (size_t i = 0; i < all; i++) {
        send[i] = quick(my_rank, i);
        want[i] = (quick(0, i) + quick(1, i) + quick(2, i)) * 0.3f;
    }
    DO(zt_reduce_scatter(c, send, recv, count, ZT_F32, 0.3f, &fault));
    sync_main();
    CHECK(same(recv, want + (size_t)my_rank * count, count, ZT_F32));
    DO(zt_all_reduce(c, send, recv, all, ZT_F32, ZT_SUM, 0.3f, &fault));
    sync_main();
    CHECK(same(recv, want, all, ZT_F32));
    for (int r = 0; r < 3; r++)
        for (size_t i = 0; i < count; i++)
            want[(size_t)r * count + i] = quick(r, (size_t)my_rank * count + i);
    DO(zt_all_to_all(c, send, send, count, ZT_F32, &fault));
    sync_main();
    CHECK(same(send, want, all, ZT_F32));
    zt_comm_close(c);
    free(send);
    free(recv);
    free(want);
}

static void sums_longer_than_the_staging_memory_are_cut(void **state)
{
    (void)state;
    device_cfg.ordered = true;
    run_device_ranks(3, rank_long_sums);
}

/* ---------------------------------------------------------------- in place */
static void rank_in_place(struct zt_comm *host)
{
    int world = zt_comm_world(host);
    size_t bytes = 0;
    struct zt_comm *c;

    DO(open_device(host, &c));
    for (size_t d = 0; d < NUM_OF(all_dtypes); d++)
        for (size_t n = 0; n < NUM_OF(some_counts); n++) {
            zt_dtype dtype = all_dtypes[d];
            size_t count = some_counts[n], all = count * (size_t)world;
            struct buffers b = make_buffers(world, count);
            float scale = dtype <= ZT_F16 ? 3 : 1;

            bytes = count * zt_dtype_bytes(dtype);
            fill(b.send, all, dtype, n, my_rank);
            memcpy(b.recv, b.send, (size_t)world * bytes);
            DO(zt_all_reduce(host, b.send, b.want, all, dtype, ZT_SUM, scale, &fault));
            DO(zt_all_reduce(c, b.recv, b.recv, all, dtype, ZT_SUM, scale, &fault));
            sync_main();
            CHECK(same(b.recv, b.want, all, dtype));

            for (int own = 0; own < 2; own++) { /* at the front, at the own slice */
                char *at = b.recv + (own ? (size_t)my_rank * bytes : 0);

                memcpy(b.recv, b.send, (size_t)world * bytes);
                DO(zt_reduce_scatter(c, b.recv, at, count, dtype, scale, &fault));
                sync_main();
                CHECK(same(at, b.want + (size_t)my_rank * bytes, count, dtype));
            }
            DO(zt_all_gather(host, b.send, b.want, count, dtype, &fault));
            memcpy(b.recv + (size_t)my_rank * bytes, b.send, bytes);
            DO(zt_all_gather(c, b.recv + (size_t)my_rank * bytes, b.recv, count, dtype,
                             &fault));
            sync_main();
            CHECK(same(b.recv, b.want, all, dtype));

            DO(zt_all_to_all(host, b.send, b.want, count, dtype, &fault));
            memcpy(b.recv, b.send, (size_t)world * bytes);
            DO(zt_all_to_all(c, b.recv, b.recv, count, dtype, &fault));
            sync_main();
            CHECK(same(b.recv, b.want, all, dtype));
            free_buffers(&b);
        }
    zt_comm_close(c);
}

static void in_place_is_as_apart(void **state)
{
    (void)state;
    for (int world = 1; world <= 3; world++) {
        device_cfg.ordered = true;
        run_device_ranks(world, rank_in_place);
    }
}

/* ---------------------------------------------------------------- as NCCL sums */
static void rank_plain(struct zt_comm *host)
{
    const size_t count = 1003;
    struct buffers b = make_buffers(3, count);
    struct zt_comm *c;

    DO(open_device(host, &c));
    fill(b.send, 3 * count, ZT_F32, 5, my_rank);
    expect_reduction(b.want, 3 * count, ZT_F32, 5, 3, ZT_SUM, 0.25f);
    DO(zt_all_reduce(c, b.send, b.recv, 3 * count, ZT_F32, ZT_SUM, 0.25f, &fault));
    sync_main();
    CHECK(same(b.recv, b.want, 3 * count, ZT_F32)); /* a power of two rounds nothing */
    DO(zt_reduce_scatter(c, b.send, b.send, count, ZT_F32, 0.25f, &fault));
    sync_main();
    CHECK(same(b.send, b.want + (size_t)my_rank * count * 4, count, ZT_F32));
    zt_comm_close(c);
    free_buffers(&b);
}

static void nccls_own_sums_are_scaled_too(void **state)
{
    (void)state;
    device_cfg.ordered = false;
    run_device_ranks(3, rank_plain);
    device_cfg.ordered = true;
}

/* ---------------------------------------------------------------- when */
struct seen {
    const float *at;
    float *copy;
};

/* Work of the main stream that looks at memory when its time has come. */
static void look(void *arg)
{
    const struct seen *s = arg;

    *s->copy = *s->at;
}

static void rank_order(struct zt_comm *host)
{
    float one = 1, two = 2, before = -1, after = -1, own = 0, sum = 0;
    float *send, *recv;
    struct seen early, late_look;
    zt_comm_handle h;
    struct zt_comm *c;
    void *p;

    DO(open_device(host, &c));
    DO(zt_comm_alloc(c, sizeof(float), &p, &fault));
    send = p;
    DO(zt_comm_alloc(c, sizeof(float), &p, &fault));
    recv = p;
    CHECK(*send == 0 && *recv == 0);
    late_waits = 0;
    /* written by the main stream before; overwritten there once it waited */
    DO(late->upload(late_dev, NULL, send, &one, sizeof(one), &fault));
    DO(zt_all_reduce_start(c, send, recv, 1, ZT_F32, ZT_SUM, 1, &h, &fault));
    early = (struct seen){recv, &before};
    late_queue(NULL, look, &early, sizeof(early));
    DO(zt_comm_wait(c, h, &fault));
    late_look = (struct seen){recv, &after};
    late_queue(NULL, look, &late_look, sizeof(late_look));
    DO(late->upload(late_dev, NULL, send, &two, sizeof(two), &fault));
    DO(zt_all_reduce(c, send, recv, 1, ZT_F32, ZT_SUM, 1, &fault));
    CHECK(late_waits == 0 && *send == 0 && *recv == 0 && before == -1);
    sync_main();
    CHECK(before == 0); /* what comes before the wait does not wait */
    CHECK(after == 2 && *recv == 4);
    /* only the stream of collectives runs now, and takes the main one along */
    DO(late->upload(late_dev, NULL, &own, &two, sizeof(two), &fault));
    DO(zt_all_reduce_start(c, &own, &sum, 1, ZT_F32, ZT_SUM, 1, &h, &fault));
    zt_comm_close(c);
    CHECK(sum == 4);
}

static void the_streams_wait_and_the_host_does_not(void **state)
{
    (void)state;
    run_device_ranks(2, rank_order);
}

/* More in flight than there are places in the ring. */
static void rank_many(struct zt_comm *host)
{
    enum { MANY = 700 };
    int32_t in[MANY], out[MANY];
    zt_comm_handle h[MANY];
    struct zt_comm *c;
    double sum = my_rank + 1;

    DO(open_device(host, &c));
    for (int i = 0; i < MANY; i++) {
        in[i] = 1000 * my_rank + i;
        DO(zt_all_reduce_start(c, &in[i], &out[i], 1, ZT_I32, ZT_SUM, 1, &h[i], &fault));
        CHECK(h[i] && (!i || h[i] > h[i - 1]));
        if (i % 100 == 0) { /* calls for the host have numbers, and no place */
            DO(zt_sum_f64(c, &sum, 1, &fault));
            CHECK(sum == (i ? sum : 3));
            DO(zt_barrier(c, &fault));
        }
    }
    DO(zt_comm_wait(c, h[MANY / 2], &fault));
    sync_main();
    for (int i = 0; i <= MANY / 2; i++)
        CHECK(out[i] == 1000 + 2 * i);
    DO(zt_comm_wait(c, h[MANY - 1], &fault));
    sync_main();
    for (int i = 0; i < MANY; i++)
        CHECK(out[i] == 1000 + 2 * i);
    CHECK(zt_comm_wait(c, h[MANY - 1] + 100, &fault) == ZT_E_ARG);
    DO(zt_comm_wait(c, 0, &fault));
    zt_comm_close(c);
}

static void many_may_be_in_flight(void **state)
{
    (void)state;
    run_device_ranks(2, rank_many);
}

/* ---------------------------------------------------------------- groups */
static void rank_groups(struct zt_comm *host)
{
    int64_t mine = 10 + my_rank, pair[2], all[4], alone;
    struct zt_comm *c, *near, *single;
    zt_comm_handle h[3];
    double sum = my_rank;
    void *p;

    DO(open_device(host, &c));
    DO(zt_comm_split(c, my_rank / 2, &near, &fault));
    DO(zt_comm_split(c, my_rank == 3 ? 7 : 8, &single, &fault));
    CHECK(zt_comm_world(near) == 2 && zt_comm_rank(near) == my_rank % 2);
    CHECK(zt_comm_world(single) == (my_rank == 3 ? 1 : 3));
    DO(zt_comm_alloc(near, 4096, &p, &fault));
    DO(zt_all_gather_start(near, &mine, pair, 1, ZT_I64, &h[0], &fault));
    DO(zt_all_gather_start(c, &mine, all, 1, ZT_I64, &h[1], &fault));
    DO(zt_all_reduce_start(single, &mine, &alone, 1, ZT_I64, ZT_SUM, 1, &h[2], &fault));
    CHECK(h[0] < h[1] && h[1] < h[2]);
    for (int i = 0; i < 3; i++)
        DO(zt_comm_wait(c, h[i], &fault));
    sync_main();
    for (int r = 0; r < 4; r++)
        CHECK(all[r] == 10 + r);
    CHECK(pair[0] == 10 + my_rank / 2 * 2 && pair[1] == pair[0] + 1);
    CHECK(alone == (my_rank == 3 ? 13 : 33));
    DO(zt_sum_f64(near, &sum, 1, &fault));
    CHECK(sum == my_rank / 2 * 4 + 1);
    DO(zt_barrier(single, &fault));
    all_collectives(zt_comm_host(near), near, ZT_BF16, 1000);
    zt_comm_close(single);
    zt_comm_close(near);
    DO(zt_barrier(c, &fault));
    zt_comm_close(c);
    CHECK(fake_open == fake_closed && !fake_aborted);
}

static void groups_share_the_stream_and_its_order(void **state)
{
    (void)state;
    run_device_ranks(4, rank_groups);
}

/* ---------------------------------------------------------------- memory, arguments */
static void rank_memory(struct zt_comm *host)
{
    struct zt_device_memory was, is;
    struct zt_comm *c;
    void *p = NULL;
    double one = 1;

    late = late_open();
    DO(late->memory(late_dev, &was, &fault));
    device_cfg.timeout_s = 60;
    DO(open_device(host, &c));
    DO(late->memory(late_dev, &is, &fault));
    CHECK(is.used - was.used == zt_comm_device_bytes(zt_comm_world(host)));
    late_fails_above = my_rank == 1 ? (size_t)1 << 20 : 0;
    CHECK(zt_comm_alloc(c, (size_t)2 << 20, &p, &fault) == ZT_E_NOMEM && !p);
    CHECK(strstr(fault.text, my_rank == 1 ? "the device has no" : "rank 1 has no"));
    DO(late->memory(late_dev, &was, &fault));
    CHECK(was.used == is.used);
    DO(zt_comm_alloc(c, 4096, &p, &fault)); /* which broke nothing */
    DO(zt_sum_f64(c, &one, 1, &fault));
    CHECK(zt_comm_alloc_shared(c, 4096, &p, &fault) == ZT_E_UNSUPPORTED);
    zt_comm_close(c);
    DO(late->memory(late_dev, &was, &fault));
    CHECK(was.used == is.used - zt_comm_device_bytes(zt_comm_world(host)));
}

static void memory_is_the_devices_and_all_get_it_or_none(void **state)
{
    (void)state;
    run_device_ranks(3, rank_memory);
}

static void rank_arguments(struct zt_comm *host)
{
    float x[8] = {0};
    struct zt_comm *c;

    DO(open_device(host, &c));
    CHECK(zt_all_reduce(c, x, x, 4, ZT_F32, ZT_MAX, 1, &fault) == ZT_E_ARG);
    CHECK(strstr(fault.text, "no maximum of f32"));
    CHECK(zt_all_reduce(c, x, x + 1, 4, ZT_F32, ZT_SUM, 1, &fault) == ZT_E_ARG);
    DO(zt_all_reduce(c, x, x, 0, ZT_F32, ZT_SUM, 1, &fault));
    DO(zt_all_reduce(c, x, x, 4, ZT_F32, ZT_SUM, 1, &fault));
    DO(zt_barrier(c, &fault));
    zt_comm_close(c);
}

static void bad_arguments_break_nothing(void **state)
{
    (void)state;
    run_device_ranks(2, rank_arguments);
}

static void sizes_are_known_to_plans(void **state)
{
    (void)state;
    assert_int_equal(zt_comm_device_bytes(1), 0);
    assert_int_equal(zt_comm_device_bytes(2), (size_t)32 << 20);
    for (int world = 2; world <= 4096; world *= 2) /* all ranks' rows, none too short */
        assert_true(zt_comm_device_bytes(world) / (size_t)world >= (size_t)128 << 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_the_host),
        cmocka_unit_test(sums_longer_than_the_staging_memory_are_cut),
        cmocka_unit_test(in_place_is_as_apart),
        cmocka_unit_test(nccls_own_sums_are_scaled_too),
        cmocka_unit_test(the_streams_wait_and_the_host_does_not),
        cmocka_unit_test(many_may_be_in_flight),
        cmocka_unit_test(groups_share_the_stream_and_its_order),
        cmocka_unit_test(memory_is_the_devices_and_all_get_it_or_none),
        cmocka_unit_test(bad_arguments_break_nothing),
        cmocka_unit_test(sizes_are_known_to_plans),
    };

    return cmocka_run_group_tests_name("nccl", tests, NULL, NULL);
}
