/* Collectives over shared memory give what a sum in rank order by hand gives. */
#include "test/unit/comm/ranks.h"

#include <sys/resource.h>

/* Counts around every border: nothing, a line, a block, the small area, slots. */
static const size_t counts[] = {0, 1, 7, 1023, 9001, 140001, 300007};
#define NUM_COUNTS (sizeof(counts) / sizeof(counts[0]))
#define MANY       140001u /* pieces of several slots */
#define MOST       300007u
#define GUARD      0xa5

enum place { HEAP, OUTSIDE, NUM_PLACE };

/* Long vectors take long to make: of two types only. */
static bool too_long(size_t n, zt_dtype dtype)
{
    return n > 10000 && dtype != ZT_F32 && dtype != ZT_I32;
}

static const zt_dtype all_dtypes[] = {ZT_F32, ZT_BF16, ZT_F16, ZT_I32, ZT_I64, ZT_U8};

/* Buffers that a rank uses for one test: in the heap and outside, with a guard behind. */
struct buffers {
    char *send[NUM_PLACE], *recv[NUM_PLACE];
    char *input, *want; /* what this rank sends, what it should get */
    size_t bytes;
};

static void make_buffers(struct zt_comm *c, struct buffers *b, size_t bytes)
{
    void *p;

    b->bytes = bytes + 64;
    DO(zt_comm_alloc(c, b->bytes, &p, &fault));
    b->send[HEAP] = p;
    DO(zt_comm_alloc(c, b->bytes, &p, &fault));
    b->recv[HEAP] = p;
    b->send[OUTSIDE] = malloc(b->bytes);
    b->recv[OUTSIDE] = malloc(b->bytes);
    b->input = malloc(b->bytes);
    b->want = malloc(b->bytes);
    CHECK(b->send[OUTSIDE] && b->recv[OUTSIDE] && b->input && b->want);
}

static void drop_buffers(struct buffers *b)
{
    free(b->send[OUTSIDE]);
    free(b->recv[OUTSIDE]);
    free(b->input);
    free(b->want);
}

static void check_result(const char *recv, const char *want, size_t bytes)
{
    CHECK(!memcmp(recv, want, bytes));
    for (size_t i = 0; i < 64; i++)
        CHECK((uint8_t)recv[bytes + i] == GUARD);
}

/* ---------------------------------------------------------------- all_reduce */
/* What this rank sends and what all should get, for the calls that follow. */
static void prepare_reduce(struct buffers *b, int world, size_t n, zt_dtype dtype,
                           zt_reduce_op op, float scale)
{
    uint64_t seed = n * 31 + (uint64_t)dtype;

    fill(b->input, n, dtype, seed, my_rank);
    expect_reduction(b->want, n, dtype, seed, world, op, scale);
}

static void reduce_once(struct zt_comm *c, struct buffers *b, char *send, char *recv,
                        size_t n, zt_dtype dtype, zt_reduce_op op, float scale)
{
    size_t bytes = n * zt_dtype_bytes(dtype);

    memset(recv, GUARD, b->bytes);
    memcpy(send, b->input, bytes);
    DO(zt_all_reduce(c, send, recv, n, dtype, op, scale, &fault));
    check_result(recv, b->want, bytes);
}

static void reduce_everywhere(struct zt_comm *c)
{
    struct buffers b;

    make_buffers(c, &b, MOST * 4);
    for (size_t i = 0; i < NUM_COUNTS; i++) {
        size_t n = counts[i];
        float scale = i % 2 ? 1.0f : 0.3f;

        for (size_t d = 0; d < 3; d++) {
            zt_dtype t = all_dtypes[d];

            if (too_long(n, t))
                continue;
            prepare_reduce(&b, zt_comm_world(c), n, t, ZT_SUM, scale);
            for (int way = 0; way < 4; way++)
                reduce_once(c, &b, b.send[way & 1], b.recv[way >> 1], n, t, ZT_SUM,
                            scale);
            for (int at = 0; at < NUM_PLACE; at++)
                reduce_once(c, &b, b.recv[at], b.recv[at], n, t, ZT_SUM, scale);
        }
    }
    drop_buffers(&b);
}

static void test_all_reduce_is_the_rank_order_sum_of_2(void **state)
{
    (void)state;
    run_ranks(2, reduce_everywhere);
}

static void test_all_reduce_is_the_rank_order_sum_of_3(void **state)
{
    (void)state;
    run_ranks(3, reduce_everywhere);
}

static void test_all_reduce_is_the_rank_order_sum_of_4(void **state)
{
    (void)state;
    run_ranks(4, reduce_everywhere);
}

static void reduce_kinds(struct zt_comm *c)
{
    static const size_t some[] = {7, 70001};
    struct buffers b;

    make_buffers(c, &b, 70001 * 8);
    for (size_t i = 0; i < 2; i++)
        for (size_t d = 0; d < 6; d++)
            for (int op = ZT_SUM; op <= ZT_MAX; op++) {
                zt_dtype t = all_dtypes[d];

                prepare_reduce(&b, zt_comm_world(c), some[i], t, (zt_reduce_op)op, 1);
                for (int at = 0; at < NUM_PLACE; at++)
                    reduce_once(c, &b, b.send[at], b.recv[at], some[i], t,
                                (zt_reduce_op)op, 1);
            }
    drop_buffers(&b);
}

static void test_sum_and_max_hold_for_every_dtype(void **state)
{
    (void)state;
    run_ranks(3, reduce_kinds);
}

/* ---------------------------------------------------------------- the others */
static void scatter_everywhere(struct zt_comm *c)
{
    size_t world = (size_t)zt_comm_world(c);
    struct buffers b;
    char *sum;

    make_buffers(c, &b, MANY * 4 * world);
    sum = malloc(MANY * 4 * world);
    for (size_t i = 0; i < NUM_COUNTS - 1; i++)
        for (size_t d = 0; d < 3; d++) {
            zt_dtype dtype = all_dtypes[d];
            size_t n = counts[i], bytes = n * zt_dtype_bytes(dtype);

            if (too_long(n, dtype))
                continue;
            fill(b.input, n * world, dtype, n, my_rank);
            expect_reduction(sum, n * world, dtype, n, (int)world, ZT_SUM, 0.7f);
            for (int way = 0; way < 6; way++) {
                char *send = b.send[way & 1], *recv = b.recv[way >> 1 & 1];

                if (way == 4) /* in place, the slice that peers do not read */
                    recv = send + (size_t)my_rank * bytes;
                if (way == 5)
                    recv = send = b.send[HEAP];
                memset(recv, GUARD, bytes + 64);
                memcpy(send, b.input, world * bytes);
                DO(zt_reduce_scatter(c, send, recv, n, dtype, 0.7f, &fault));
                CHECK(!memcmp(recv, sum + (size_t)my_rank * bytes, bytes));
            }
        }
    free(sum);
    drop_buffers(&b);
}

static void gather_everywhere(struct zt_comm *c)
{
    size_t world = (size_t)zt_comm_world(c);
    struct buffers b;

    make_buffers(c, &b, MANY * 8 * world);
    for (size_t i = 0; i < NUM_COUNTS - 1; i++)
        for (size_t d = 0; d < 6; d++) {
            zt_dtype dtype = all_dtypes[d];
            size_t n = counts[i], bytes = n * zt_dtype_bytes(dtype);

            if (too_long(n, dtype))
                continue;
            for (size_t r = 0; r < world; r++)
                fill(b.want + r * bytes, n, dtype, n, (int)r);
            memcpy(b.input, b.want + (size_t)my_rank * bytes, bytes);
            for (int way = 0; way < 6; way++) {
                char *send = b.send[way & 1], *recv = b.recv[way >> 1 & 1];

                if (way >= 4) {
                    recv = b.recv[way & 1];
                    send = recv + (size_t)my_rank * bytes;
                }
                memset(recv, GUARD, b.bytes);
                memcpy(send, b.input, bytes);
                DO(zt_all_gather(c, send, recv, n, dtype, &fault));
                check_result(recv, b.want, world * bytes);
            }
        }
    drop_buffers(&b);
}

static void exchange_everywhere(struct zt_comm *c)
{
    size_t world = (size_t)zt_comm_world(c);
    struct buffers b;
    char *all;

    make_buffers(c, &b, MANY * 8 * world);
    all = malloc(MANY * 8 * world);
    for (size_t i = 0; i < NUM_COUNTS - 1; i++)
        for (size_t d = 0; d < 6; d++) {
            zt_dtype dtype = all_dtypes[d];
            size_t n = counts[i], bytes = n * zt_dtype_bytes(dtype);

            if (too_long(n, dtype))
                continue;
            for (size_t r = 0; r < world; r++) {
                fill(all, n * world, dtype, n, (int)r);
                memcpy(b.want + r * bytes, all + (size_t)my_rank * bytes, bytes);
                if ((int)r == my_rank)
                    memcpy(b.input, all, world * bytes);
            }
            for (int way = 0; way < 6; way++) {
                char *send = b.send[way & 1], *recv = b.recv[way >> 1 & 1];

                if (way >= 4)
                    send = recv = b.recv[way & 1];
                memset(recv, GUARD, b.bytes);
                memcpy(send, b.input, world * bytes);
                DO(zt_all_to_all(c, send, recv, n, dtype, &fault));
                check_result(recv, b.want, world * bytes);
            }
        }
    free(all);
    drop_buffers(&b);
}

static void broadcast_everywhere(struct zt_comm *c)
{
    struct buffers b;

    make_buffers(c, &b, MOST * 8);
    for (size_t i = 0; i < NUM_COUNTS; i++)
        for (size_t d = 0; d < 6; d++)
            for (int root = 0; root < zt_comm_world(c); root++)
                for (int way = 0; way < 4; way++) {
                    zt_dtype dtype = all_dtypes[d];
                    size_t n = counts[i], bytes = n * zt_dtype_bytes(dtype);
                    enum place at = my_rank == root ? way & 1 : way >> 1;

                    if (too_long(n, dtype) || (n > 10000 && root == 2))
                        continue;
                    if (!way)
                        fill(b.want, n, dtype, n, root);
                    memset(b.recv[at], GUARD, b.bytes);
                    if (my_rank == root)
                        memcpy(b.recv[at], b.want, bytes);
                    DO(zt_broadcast(c, b.recv[at], n, dtype, root, &fault));
                    check_result(b.recv[at], b.want, bytes);
                }
    drop_buffers(&b);
}

static void test_reduce_scatter_gives_each_rank_its_slice_of_the_sum(void **state)
{
    (void)state;
    run_ranks(2, scatter_everywhere);
    run_ranks(3, scatter_everywhere);
}

static void test_all_gather_puts_rank_r_at_place_r(void **state)
{
    (void)state;
    run_ranks(2, gather_everywhere);
    run_ranks(3, gather_everywhere);
}

static void test_all_to_all_is_a_transpose(void **state)
{
    (void)state;
    run_ranks(2, exchange_everywhere);
    run_ranks(3, exchange_everywhere);
}

static void test_broadcast_gives_the_roots_bytes_to_all(void **state)
{
    (void)state;
    run_ranks(3, broadcast_everywhere);
}

static void sum_doubles(struct zt_comm *c)
{
    static double v[2500];
    int world = zt_comm_world(c);

    for (int n = 0; n <= 2500; n += 1250) {
        for (int i = 0; i < n; i++)
            v[i] = 0.1 * (i + 1) / (my_rank + 3);
        DO(zt_sum_f64(c, v, n, &fault));
        for (int i = 0; i < n; i++) {
            double want = 0.1 * (i + 1) / 3;

            for (int r = 1; r < world; r++)
                want += 0.1 * (i + 1) / (r + 3);
            CHECK(v[i] == want);
        }
    }
}

static void test_sum_f64_adds_in_rank_order(void **state)
{
    (void)state;
    run_ranks(4, sum_doubles);
}

/* Whoever passed the barrier sees what every rank wrote before it. */
static void barrier_orders(struct zt_comm *c)
{
    void *p;
    int *count;
    int sum[1];

    DO(zt_comm_alloc(c, sizeof(int), &p, &fault));
    count = p;
    for (int round = 1; round <= 2000; round++) {
        *count = round * (my_rank + 1);
        DO(zt_barrier(c, &fault));
        sum[0] = *count;
        DO(zt_all_reduce(c, sum, sum, 1, ZT_I32, ZT_SUM, 1.0f, &fault));
        CHECK(sum[0] == round * 6);
    }
}

static void test_thousands_of_short_calls_stay_in_step(void **state)
{
    (void)state;
    run_ranks(3, barrier_orders);
}

/* ---------------------------------------------------------------- asynchronous */
#define FLIGHTS 150 /* more than the queue holds */

static void fly(struct zt_comm *c)
{
    size_t n = 5001, world = (size_t)zt_comm_world(c);
    float *want = malloc(n * world * 4), *own = malloc(n * 4), *sum = malloc(n * 4);
    float *buf[FLIGHTS];
    zt_comm_handle h[FLIGHTS];
    void *p;

    CHECK(want && own && sum);
    for (int i = 0; i < FLIGHTS; i++) {
        DO(zt_comm_alloc(c, n * world * 4, &p, &fault));
        buf[i] = p;
    }
    for (int i = 0; i < FLIGHTS; i++) {
        fill(buf[i], n * world, ZT_F32, (uint64_t)i, my_rank);
        if (i % 3 == 0)
            DO(zt_all_reduce_start(c, buf[i], buf[i], n, ZT_F32, ZT_SUM, 0.5f, &h[i],
                                   &fault));
        else if (i % 3 == 1)
            DO(zt_reduce_scatter_start(c, buf[i], buf[i], n, ZT_F32, 0.5f, &h[i],
                                       &fault));
        else
            DO(zt_all_gather_start(c, buf[i - 1], buf[i], n, ZT_F32, &h[i], &fault));
        CHECK(h[i] == (zt_comm_handle)i + 1);
        if (i % 50 == 20) { /* takes its turn among them */
            fill(own, n, ZT_F32, 77, my_rank);
            DO(zt_all_reduce(c, own, own, n, ZT_F32, ZT_SUM, 1.0f, &fault));
            expect_reduction(sum, n, ZT_F32, 77, (int)world, ZT_SUM, 1.0f);
            CHECK(!memcmp(own, sum, n * 4));
        }
    }
    DO(zt_comm_wait(c, 0, &fault));
    for (int i = FLIGHTS - 1; i >= 0; i--) {
        DO(zt_comm_wait(c, h[i], &fault));
        expect_reduction(want, n * world, ZT_F32, (uint64_t)(i % 3 == 2 ? i - 1 : i),
                         (int)world, ZT_SUM, 0.5f);
        if (i % 3 == 0)
            CHECK(!memcmp(buf[i], want, n * 4));
        else if (i % 3 == 1)
            CHECK(!memcmp(buf[i], want + (size_t)my_rank * n, n * 4));
        else
            CHECK(!memcmp(buf[i], want, n * world * 4));
    }
    CHECK(zt_comm_wait(c, FLIGHTS + 1, &fault) == ZT_E_ARG);
    free(want);
    free(own);
    free(sum);
}

static void test_started_calls_complete_in_order_beside_blocking_ones(void **state)
{
    (void)state;
    run_ranks(2, fly);
    run_ranks(3, fly);
}

static void close_early(struct zt_comm *c)
{
    static float buf[100000];
    zt_comm_handle h;

    for (int i = 0; i < 5; i++)
        DO(zt_all_reduce_start(c, buf, buf, 100000, ZT_F32, ZT_SUM, 1.0f, &h, &fault));
}

static void test_close_runs_what_was_started(void **state)
{
    (void)state;
    run_ranks(2, close_early);
}

/* ---------------------------------------------------------------- memory */
static void check_piece(const void *at, size_t bytes)
{
    const char *p = at;

    CHECK((uintptr_t)p % 4096 == 0);
    for (size_t i = 0; i < bytes; i++)
        CHECK(p[i] == 0);
}

static void grow(struct zt_comm *c)
{
    enum { NUM = 40 };
    int world = zt_comm_world(c);
    int32_t *own[NUM];
    void *p;

    for (size_t i = 0; i < NUM; i++) {
        size_t count = i % 7 * 1500; /* none at all, a page, several */

        DO(zt_comm_alloc(c, count * 4, &p, &fault));
        check_piece(p, count * 4);
        own[i] = p;
        for (size_t k = 0; k < count; k++)
            own[i][k] = my_rank + (int)k;
        if (i % 5 == 0) {
            DO(zt_comm_alloc_shared(c, count, &p, &fault));
            check_piece(p, count);
            memset(p, 0, count);
        }
    }
    for (size_t i = 0; i < NUM; i++) {
        size_t count = i % 7 * 1500;

        DO(zt_all_reduce(c, own[i], own[i], count, ZT_I32, ZT_SUM, 1.0f, &fault));
        for (size_t k = 0; k < count; k++)
            CHECK(own[i][k] == world * (world - 1) / 2 + world * (int)k);
    }
}

static void test_memory_grows_piece_by_piece(void **state)
{
    (void)state;
    run_ranks(1, grow);
    run_ranks(3, grow);
}

/* More than any machine has, on all; then more than the last rank may have. */
static void ask_too_much(struct zt_comm *c)
{
    bool last = my_rank == zt_comm_world(c) - 1;
    struct rlimit few;
    void *none = &few;

    CHECK(!getrlimit(RLIMIT_AS, &few));
    for (int shared = 0; shared < 2; shared++) {
        zt_err (*alloc)(struct zt_comm *, size_t, void **, struct zt_fault *) =
            shared ? zt_comm_alloc_shared : zt_comm_alloc;

        few.rlim_cur = few.rlim_max;
        CHECK(!setrlimit(RLIMIT_AS, &few));
        CHECK(alloc(c, SIZE_MAX, &none, &fault) == ZT_E_NOMEM);
        CHECK(alloc(c, (size_t)1 << 45, &none, &fault) == ZT_E_NOMEM);
        few.rlim_cur = 400u << 20;
        if (last)
            CHECK(!setrlimit(RLIMIT_AS, &few));
        CHECK(alloc(c, 450u << 20, &none, &fault) == ZT_E_NOMEM);
        CHECK(strstr(fault.text, last ? "no addresses" : "has no shared memory"));
    }
    CHECK(none == &few);
    few.rlim_cur = few.rlim_max;
    CHECK(!setrlimit(RLIMIT_AS, &few));
    grow(c); /* it broke nothing */
}

/* The kernel ends a process that grows a file past this limit, if it gets that far. */
static void ask_past_file_limit(struct zt_comm *c)
{
    struct rlimit few;
    void *p;

    CHECK(!getrlimit(RLIMIT_FSIZE, &few));
    few.rlim_cur = 64u << 20;
    if (my_rank)
        CHECK(!setrlimit(RLIMIT_FSIZE, &few));
    DO(zt_comm_alloc(c, 4096, &p, &fault));
    CHECK(zt_comm_alloc(c, 64u << 20, &p, &fault) == ZT_E_NOMEM);
    CHECK(strstr(fault.text, my_rank ? "rank 1: no shared" : "rank 1 has no shared"));
    DO(zt_barrier(c, &fault));
}

static void test_memory_that_one_lacks_is_refused_to_all_and_breaks_nothing(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* these live in more addresses than the test allows */
#endif
    run_ranks(1, ask_too_much);
    run_ranks(3, ask_too_much);
    run_ranks(2, ask_past_file_limit);
}

static void write_in_turns(struct zt_comm *c)
{
    int world = zt_comm_world(c);
    static int own[1000];
    void *all, *more;
    int *v;

    DO(zt_comm_alloc_shared(c, 10000, &all, &fault));
    DO(zt_comm_alloc_shared(c, 4096, &more, &fault));
    CHECK(zt_comm_can_share(c));
    check_piece(all, 10000);
    memset(more, 0, 4096);
    v = all;
    DO(zt_barrier(c, &fault));
    for (int i = my_rank; i < 2500; i += world)
        v[i] = i * 3;
    DO(zt_barrier(c, &fault));
    for (int i = 0; i < 2500; i++)
        CHECK(v[i] == i * 3);
    DO(zt_barrier(c, &fault));
    /* collectives read and write it in place */
    DO(zt_all_reduce(c, v + 1000, own, 1000, ZT_I32, ZT_SUM, 1.0f, &fault));
    for (int i = 0; i < 1000; i++)
        CHECK(own[i] == world * (i + 1000) * 3);
    for (int i = 0; i < 700; i++)
        own[i] = my_rank * 1000 + i;
    DO(zt_all_gather(c, own, v, 700, ZT_I32, &fault));
    for (int i = 0; i < 700 * world; i++)
        CHECK(v[i] == i / 700 * 1000 + i % 700);
    DO(zt_all_gather(c, v + 700 * my_rank, v, 700, ZT_I32, &fault));
    for (int i = 0; i < 700 * world; i++)
        CHECK(v[i] == i / 700 * 1000 + i % 700);
}

static void test_common_memory_is_one_for_all_ranks(void **state)
{
    (void)state;
    run_ranks(3, write_in_turns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_reduce_is_the_rank_order_sum_of_2),
        cmocka_unit_test(test_all_reduce_is_the_rank_order_sum_of_3),
        cmocka_unit_test(test_all_reduce_is_the_rank_order_sum_of_4),
        cmocka_unit_test(test_sum_and_max_hold_for_every_dtype),
        cmocka_unit_test(test_reduce_scatter_gives_each_rank_its_slice_of_the_sum),
        cmocka_unit_test(test_all_gather_puts_rank_r_at_place_r),
        cmocka_unit_test(test_all_to_all_is_a_transpose),
        cmocka_unit_test(test_broadcast_gives_the_roots_bytes_to_all),
        cmocka_unit_test(test_sum_f64_adds_in_rank_order),
        cmocka_unit_test(test_thousands_of_short_calls_stay_in_step),
        cmocka_unit_test(test_started_calls_complete_in_order_beside_blocking_ones),
        cmocka_unit_test(test_close_runs_what_was_started),
        cmocka_unit_test(test_memory_grows_piece_by_piece),
        cmocka_unit_test(test_memory_that_one_lacks_is_refused_to_all_and_breaks_nothing),
        cmocka_unit_test(test_common_memory_is_one_for_all_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
