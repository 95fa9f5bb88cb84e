/*
 * cases.h -- what collectives by messages must give, over any wire: the bits that a sum
 * in rank order by hand gives, and every byte in its place. Run by each rank.
 */
#ifndef TEST_UNIT_COMM_CASES_H
#define TEST_UNIT_COMM_CASES_H

#include "test/unit/comm/ranks.h"

/* Counts around every border: nothing, a line, what rides along, pieces of the stage. */
static const size_t counts[] = {0, 1, 7, 2048, 2049, 9001, 300007, 1100001};
#define NUM_COUNTS (sizeof(counts) / sizeof(counts[0]))
#define GUARD      0xa5

static const zt_dtype all_dtypes[] = {ZT_F32, ZT_BF16, ZT_F16, ZT_I32, ZT_I64, ZT_U8};

/* Long vectors take long to make: of one type only. */
static bool UNUSED too_long(size_t n, zt_dtype dtype, size_t world)
{
    return (n > 10000 && dtype != ZT_F32) || n * world > 1100001;
}

static char *UNUSED take(size_t bytes)
{
    char *p = malloc(bytes + 64);

    CHECK(p);
    memset(p, GUARD, bytes + 64);
    return p;
}

static void UNUSED check_guard(const char *p, size_t bytes)
{
    for (size_t i = 0; i < 64; i++)
        CHECK((uint8_t)p[bytes + i] == GUARD);
}

/* ---------------------------------------------------------------- sums */
static void reduce_once(struct zt_comm *c, size_t n, zt_dtype dtype, zt_reduce_op op,
                        float scale)
{
    size_t bytes = n * zt_dtype_bytes(dtype);
    char *send = take(bytes), *recv = take(bytes), *want = take(bytes);
    uint64_t seed = n * 31 + (uint64_t)dtype;

    fill(send, n, dtype, seed, my_rank);
    expect_reduction(want, n, dtype, seed, zt_comm_world(c), op, scale);
    DO(zt_all_reduce(c, send, recv, n, dtype, op, scale, &fault));
    CHECK(!memcmp(recv, want, bytes));
    check_guard(recv, bytes);
    DO(zt_all_reduce(c, send, send, n, dtype, op, scale, &fault));
    CHECK(!memcmp(send, want, bytes));
    check_guard(send, bytes);
    free(send);
    free(recv);
    free(want);
}

static void reduce_everywhere(struct zt_comm *c)
{
    for (size_t i = 0; i < NUM_COUNTS; i++)
        for (size_t d = 0; d < 6; d++) {
            zt_dtype t = all_dtypes[d];

            if (too_long(counts[i], t, 1))
                continue;
            reduce_once(c, counts[i], t, ZT_SUM, t <= ZT_F16 ? 0.3f : 1.0f);
            if (i % 2)
                reduce_once(c, counts[i], t, ZT_MAX, 1.0f);
        }
}

static void scatter_everywhere(struct zt_comm *c)
{
    size_t world = (size_t)zt_comm_world(c);

    for (size_t i = 0; i < NUM_COUNTS; i++)
        for (size_t d = 0; d < 6; d++) {
            zt_dtype t = all_dtypes[d];
            size_t n = counts[i], bytes = n * zt_dtype_bytes(t), all = bytes * world;
            float scale = t <= ZT_F16 ? 0.7f : 1.0f;
            char *send, *out, *want;

            if (too_long(n, t, world))
                continue;
            send = take(all);
            out = take(bytes);
            want = take(all);
            expect_reduction(want, n * world, t, n, (int)world, ZT_SUM, scale);
            for (int way = 0; way < 3; way++) {
                char *recv = way == 0   ? out
                             : way == 1 ? send
                                        : send + (size_t)my_rank * bytes;

                fill(send, n * world, t, n, my_rank);
                DO(zt_reduce_scatter(c, send, recv, n, t, scale, &fault));
                CHECK(!memcmp(recv, want + (size_t)my_rank * bytes, bytes));
            }
            check_guard(send, all);
            check_guard(out, bytes);
            free(send);
            free(out);
            free(want);
        }
}

/* ---------------------------------------------------------------- moves */
static void gather_everywhere(struct zt_comm *c)
{
    size_t world = (size_t)zt_comm_world(c);

    for (size_t i = 0; i < NUM_COUNTS; i++)
        for (size_t d = 0; d < 6; d++) {
            zt_dtype t = all_dtypes[d];
            size_t n = counts[i], bytes = n * zt_dtype_bytes(t), all = bytes * world;
            char *send, *recv, *want;

            if (too_long(n, t, world))
                continue;
            send = take(bytes);
            recv = take(all);
            want = take(all);
            for (size_t r = 0; r < world; r++)
                fill(want + r * bytes, n, t, n, (int)r);
            memcpy(send, want + (size_t)my_rank * bytes, bytes);
            DO(zt_all_gather(c, send, recv, n, t, &fault));
            CHECK(!memcmp(recv, want, all));
            check_guard(recv, all);
            memset(recv, GUARD, all);
            memcpy(recv + (size_t)my_rank * bytes, send, bytes);
            DO(zt_all_gather(c, recv + (size_t)my_rank * bytes, recv, n, t, &fault));
            CHECK(!memcmp(recv, want, all));
            free(send);
            free(recv);
            free(want);
        }
}

/* In place on no rank, on some, on all. */
static void exchange_everywhere(struct zt_comm *c)
{
    size_t world = (size_t)zt_comm_world(c);

    for (size_t i = 0; i < NUM_COUNTS; i++)
        for (size_t d = 0; d < 6; d++) {
            zt_dtype t = all_dtypes[d];
            size_t n = counts[i], bytes = n * zt_dtype_bytes(t), all = bytes * world;
            char *send, *recv, *want, *one;

            if (too_long(n, t, world))
                continue;
            send = take(all);
            recv = take(all);
            want = take(all);
            one = take(all);
            for (size_t r = 0; r < world; r++) {
                fill(one, n * world, t, n, (int)r);
                memcpy(want + r * bytes, one + (size_t)my_rank * bytes, bytes);
            }
            for (int way = 0; way < 3; way++) {
                char *to = way == 0 || (way == 1 && my_rank % 2) ? recv : send;

                fill(send, n * world, t, n, my_rank);
                DO(zt_all_to_all(c, send, to, n, t, &fault));
                CHECK(!memcmp(to, want, all));
                check_guard(to, all);
            }
            free(send);
            free(recv);
            free(want);
            free(one);
        }
}

static void broadcast_everywhere(struct zt_comm *c)
{
    for (size_t i = 0; i < NUM_COUNTS; i++)
        for (size_t d = 0; d < 6; d++)
            for (int root = 0; root < zt_comm_world(c); root++) {
                zt_dtype t = all_dtypes[d];
                size_t n = counts[i], bytes = n * zt_dtype_bytes(t);
                char *buf, *want;

                if (too_long(n, t, 1))
                    continue;
                buf = take(bytes);
                want = take(bytes);
                fill(want, n, t, n, root);
                if (my_rank == root)
                    memcpy(buf, want, bytes);
                DO(zt_broadcast(c, buf, n, t, root, &fault));
                CHECK(!memcmp(buf, want, bytes));
                check_guard(buf, bytes);
                free(buf);
                free(want);
            }
}

static void sum_doubles(struct zt_comm *c)
{
    static double v[2500];

    for (int i = 0; i < 2500; i++)
        v[i] = 0.1 * (i + 1) / (my_rank + 3);
    DO(zt_sum_f64(c, v, 2500, &fault));
    for (int i = 0; i < 2500; i++) {
        double want = 0.1 * (i + 1) / 3;

        for (int r = 1; r < zt_comm_world(c); r++)
            want += 0.1 * (i + 1) / (r + 3);
        CHECK(v[i] == want);
    }
}

/* ---------------------------------------------------------------- and the rest */
static void memory_is_zeroed(struct zt_comm *c)
{
    void *p = NULL;

    CHECK(!zt_comm_can_share(c));
    CHECK(zt_comm_alloc_shared(c, 100, &p, &fault) == ZT_E_UNSUPPORTED);
    for (size_t bytes = 1; bytes < 100000; bytes *= 40) {
        DO(zt_comm_alloc(c, bytes, &p, &fault));
        CHECK((uintptr_t)p % 4096 == 0);
        for (size_t i = 0; i < bytes; i++)
            CHECK(((char *)p)[i] == 0);
        memset(p, my_rank, bytes);
    }
    DO(zt_barrier(c, &fault));
    CHECK(zt_comm_alloc(c, SIZE_MAX / 2, &p, &fault) == ZT_E_NOMEM);
    DO(zt_barrier(c, &fault)); /* breaks nothing */
}

#define FLIGHTS 30

static void fly(struct zt_comm *c)
{
    size_t n = 50001, world = (size_t)zt_comm_world(c);
    float *want = (float *)take(n * 4), *own = (float *)take(n * 4), *buf[FLIGHTS];
    zt_comm_handle h[FLIGHTS];

    for (int i = 0; i < FLIGHTS; i++) {
        buf[i] = (float *)take(n * world * 4);
        fill(buf[i], n, ZT_F32, (uint64_t)i, my_rank);
        if (i % 2)
            DO(zt_broadcast_start(c, buf[i], n, ZT_F32, i % (int)world, &h[i], &fault));
        else
            DO(zt_all_reduce_start(c, buf[i], buf[i], n, ZT_F32, ZT_SUM, 0.5f, &h[i],
                                   &fault));
        if (i % 10 == 3) { /* takes its turn among them */
            fill(own, n, ZT_F32, 77, my_rank);
            DO(zt_all_reduce(c, own, own, n, ZT_F32, ZT_SUM, 1.0f, &fault));
            expect_reduction(want, n, ZT_F32, 77, (int)world, ZT_SUM, 1.0f);
            CHECK(!memcmp(own, want, n * 4));
        }
    }
    for (int i = FLIGHTS - 1; i >= 0; i--) {
        DO(zt_comm_wait(c, h[i], &fault));
        if (i % 2)
            fill(want, n, ZT_F32, (uint64_t)i, i % (int)world);
        else
            expect_reduction(want, n, ZT_F32, (uint64_t)i, (int)world, ZT_SUM, 0.5f);
        CHECK(!memcmp(buf[i], want, n * 4));
        free(buf[i]);
    }
    free(want);
    free(own);
}

static void check_sum(struct zt_comm *c, size_t n, int first, int step)
{
    float *v = (float *)take(n * 4), *want = (float *)take(n * 4);

    for (size_t i = 0; i < n; i++) {
        v[i] = (float)(my_rank + 1) * (float)(i % 100);
        want[i] = 0;
        for (int k = 0; k < zt_comm_world(c); k++)
            want[i] += (float)(first + k * step + 1) * (float)(i % 100);
    }
    DO(zt_all_reduce(c, v, v, n, ZT_F32, ZT_SUM, 1.0f, &fault));
    CHECK(!memcmp(v, want, n * 4));
    free(v);
    free(want);
}

/* Rows and columns of 4 ranks, used in turns with the whole; then groups of groups. */
static void split_up(struct zt_comm *c)
{
    struct zt_comm *row, *column, *one;

    DO(zt_comm_split(c, my_rank / 2, &row, &fault));
    DO(zt_comm_split(c, my_rank % 2, &column, &fault));
    CHECK(zt_comm_rank(row) == my_rank % 2 && zt_comm_world(row) == 2);
    CHECK(zt_comm_rank(column) == my_rank / 2 && zt_comm_world(column) == 2);
    if (my_rank < 2) { /* only here: ranks have made different numbers of groups */
        DO(zt_comm_split(row, my_rank, &one, &fault));
        check_sum(one, 70000, my_rank, 1);
        zt_comm_close(one);
    }
    for (int i = 0; i < 3; i++) {
        check_sum(row, 7 + 30000 * (size_t)i, my_rank / 2 * 2, 1);
        check_sum(column, 30000, my_rank % 2, 2);
        check_sum(c, 50000, 0, 1);
    }
    zt_comm_close(row);
    DO(zt_comm_split(c, my_rank == 2, &row, &fault)); /* 3 ranks and 1 */
    if (my_rank == 2)
        check_sum(row, 100, 2, 1);
    else
        CHECK(zt_comm_world(row) == 3 &&
              zt_comm_rank(row) == (my_rank == 3 ? 2 : my_rank));
    zt_comm_close(row);
    zt_comm_close(column);
}

#endif
