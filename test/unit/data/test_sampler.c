/* The sampler's promises S1..S4, and that evaluation sees every token once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "test/unit/data/files.h"
#include "worker/data/rows.h"
#include "worker/data/sampler.h"

static struct zt_fault fault;

/* A dataset of n tokens whose token i is i. */
static struct zt_dataset *counting(int n)
{
    static uint16_t t[65536];
    struct zt_dataset *ds = NULL;
    const char *path;

    for (int i = 0; i < n; i++)
        t[i] = (uint16_t)i;
    path = put_file("count.bin", t, (size_t)n * sizeof(*t));
    if (zt_dataset_open((const char *const[]){path, NULL}, "nanogpt", 0, &ds, &fault))
        fail_msg("%s", fault.text);
    return ds;
}

/* Buffers for the fields that a token stream offers. */
static struct zt_field_buffers buffers_of(int32_t *tokens, int32_t *targets,
                                          int32_t *lengths)
{
    static const struct zt_field fields[] = {
        {.name = "tokens", .dtype = ZT_I32, .shape = {ZT_DIM_B, ZT_DIM_T}, .pad = 7},
        {.name = "targets", .dtype = ZT_I32, .shape = {ZT_DIM_B, ZT_DIM_T}, .pad = -5},
        {.name = "lengths", .dtype = ZT_I32, .shape = {ZT_DIM_B}},
    };

    return (struct zt_field_buffers){
        .fields = fields, .num = 3, .data = {tokens, targets, lengths}};
}

static struct zt_sampler *sampling(const struct zt_dataset *ds,
                                   struct zt_sampler_config cfg)
{
    struct zt_sampler *s = NULL;

    if (zt_sampler_open(ds, &cfg, &s, &fault))
        fail_msg("%s", fault.text);
    return s;
}

/* First token of each row; checks that a row is T tokens and their successors. */
static void read_rows(const struct zt_sampler *s, int64_t step, int64_t micro, int64_t B,
                      int64_t T, int32_t *starts)
{
    int32_t tokens[256], targets[256], lengths[256];
    struct zt_field_buffers out = buffers_of(tokens, targets, lengths);

    assert_true(B * T <= 256);
    assert_int_equal(zt_sampler_read(s, step, micro, &out, NULL, &fault), ZT_OK);
    for (int64_t b = 0; b < B; b++) {
        starts[b] = tokens[b * T];
        assert_int_equal(lengths[b], T);
        for (int64_t i = 0; i < T; i++) {
            assert_int_equal(tokens[b * T + i], starts[b] + i);
            assert_int_equal(targets[b * T + i], starts[b] + i + 1);
        }
    }
}

static void test_permutation_is_a_bijection_for_any_size(void **state)
{
    static uint8_t seen[5000];

    (void)state;
    for (int64_t n = 1; n < 5000; n = n < 70 ? n + 1 : n * 2 + 1) {
        memset(seen, 0, sizeof(seen));
        for (int64_t i = 0; i < n; i++) {
            int64_t p = zt_permute(42, n % 3, n, i);

            assert_in_range(p, 0, n - 1);
            assert_int_equal(seen[p]++, 0);
        }
    }
    for (int64_t i = 0; i < 100; i++)
        assert_true(zt_permute(1, 2, INT64_C(1) << 40, i) < INT64_C(1) << 40);
}

/* Chi-square of where 64 samples land over many keys: 63 degrees of freedom. */
static void test_permutation_depends_on_seed_and_epoch_and_spreads_evenly(void **state)
{
    enum { N = 64, KEYS = 6400 };
    int hits[N] = {0}, follows[N] = {0}, same = 0;
    double chi = 0, chi_next = 0;

    (void)state;
    for (int k = 0; k < KEYS; k++) {
        int64_t a = zt_permute((uint64_t)(k / 80), k % 80, N, 5);
        int64_t b = zt_permute((uint64_t)(k / 80), k % 80, N, 6);

        hits[a]++;
        follows[(b - a + N) % N]++;
        same += a == zt_permute((uint64_t)(k / 80) + 1000, k % 80, N, 5);
    }
    assert_int_equal(follows[0], 0);
    for (int i = 0; i < N; i++) {
        double e = (double)KEYS / N, f = (double)KEYS / (N - 1);

        chi += (hits[i] - e) * (hits[i] - e) / e;
        chi_next += i ? (follows[i] - f) * (follows[i] - f) / f : 0;
    }
    assert_true(chi < 120 && chi_next < 120); /* beyond 120: one chance in 10^5 */
    assert_in_range(same, 50, 160);           /* 100 expected of unrelated orders */
}

static void test_an_epoch_holds_each_block_once(void **state)
{
    struct zt_dataset *ds = counting(4 * 35 + 3);
    struct zt_sampler *s = sampling(
        ds, (struct zt_sampler_config){
                .block_size = 4, .micro_rows = 5, .num_micro = 1, .world = 1, .seed = 9});
    int seen[3][35] = {{0}}, moved = 0;

    (void)state;
    assert_int_equal(zt_sampler_num_blocks(s), 35);
    assert_int_equal(zt_sampler_num_steps(s, 1), 7);
    for (int64_t step = 1; step <= 21; step++) {
        int32_t starts[5];

        read_rows(s, step, 0, 5, 4, starts);
        for (int b = 0; b < 5; b++) {
            assert_int_equal(starts[b] % 4, 0);
            seen[(step - 1) / 7][starts[b] / 4]++;
            moved += starts[b] / 4 != ((step - 1) % 7) * 5 + b;
        }
    }
    for (int i = 0; i < 3 * 35; i++)
        assert_int_equal(seen[i / 35][i % 35], 1);
    assert_true(moved > 70); /* in order it would be 0 */
    zt_sampler_close(s);
    zt_dataset_close(ds);
}

/* All rows of `steps` global batches, in order of the global row. */
static void global_order(const struct zt_dataset *ds, struct zt_sampler_config cfg,
                         int64_t steps, int32_t *out)
{
    int64_t G = cfg.micro_rows * cfg.num_micro * cfg.world;

    memset(out, 0xff, (size_t)(steps * G) * sizeof(*out));
    for (cfg.rank = 0; cfg.rank < cfg.world; cfg.rank++) {
        struct zt_sampler *s = sampling(ds, cfg);

        for (int64_t step = 1; step <= steps; step++) {
            for (int64_t m = 0; m < cfg.num_micro; m++) {
                int32_t *row = out + (step - 1) * G + zt_sampler_row0(s, m);

                for (int64_t b = 0; b < cfg.micro_rows; b++)
                    assert_int_equal(row[b], -1); /* S1: nobody else has this row */
                read_rows(s, step, m, cfg.micro_rows, cfg.block_size, row);
            }
        }
        zt_sampler_close(s);
    }
}

static void test_any_factorisation_sees_the_same_rows_in_the_same_order(void **state)
{
    static const struct {
        int64_t rows, micro;
        int world;
    } ways[] = {{1, 1, 12}, {2, 3, 2}, {12, 1, 1}, {3, 1, 4}, {4, 3, 1}, {1, 12, 1}};
    struct zt_dataset *ds = counting(1003);
    int32_t want[12 * 40], got[12 * 40];

    (void)state;
    for (int kind = 0; kind < 8; kind++) {
        struct zt_sampler_config cfg = {.block_size = 3,
                                        .micro_rows = 1,
                                        .num_micro = 12,
                                        .world = 1,
                                        .seed = 3,
                                        .drop_last = kind & 1,
                                        .random_start = kind & 2,
                                        .in_order = kind & 4};

        global_order(ds, cfg, 40, want);
        for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
            cfg.micro_rows = ways[i].rows;
            cfg.num_micro = ways[i].micro;
            cfg.world = ways[i].world;
            global_order(ds, cfg, 40, got);
            assert_memory_equal(got, want, sizeof(want));
        }
    }
    zt_dataset_close(ds);
}

static void test_micro_batches_go_round_the_ranks(void **state)
{
    struct zt_dataset *ds = counting(100);
    struct zt_sampler *s = sampling(
        ds, (struct zt_sampler_config){
                .block_size = 2, .micro_rows = 5, .num_micro = 3, .rank = 1, .world = 4});

    (void)state;
    assert_int_equal(zt_sampler_global_rows(s), 60);
    assert_int_equal(zt_sampler_row0(s, 0), 5);
    assert_int_equal(zt_sampler_row0(s, 1), 25);
    assert_int_equal(zt_sampler_row0(s, 2), 45);
    zt_sampler_close(s);
    zt_dataset_close(ds);
}

static void test_drop_last_keeps_epochs_apart_and_drops_other_blocks_each(void **state)
{
    struct zt_dataset *ds = counting(2 * 10 + 1);
    struct zt_sampler *s = sampling(ds, (struct zt_sampler_config){.block_size = 2,
                                                                   .micro_rows = 4,
                                                                   .num_micro = 1,
                                                                   .world = 1,
                                                                   .drop_last = true});
    int dropped[10] = {0}, distinct = 0;

    (void)state;
    assert_int_equal(zt_sampler_num_steps(s, 3), 6);
    for (int e = 0; e < 20; e++) {
        int seen[10] = {0};

        for (int i = 0; i < 2; i++) {
            int32_t starts[4];

            read_rows(s, 2 * e + i + 1, 0, 4, 2, starts);
            for (int b = 0; b < 4; b++)
                assert_int_equal(seen[starts[b] / 2]++, 0);
        }
        for (int i = 0; i < 10; i++)
            dropped[i] += !seen[i];
    }
    for (int i = 0; i < 10; i++)
        distinct += dropped[i] > 0;
    assert_true(distinct > 5);
    zt_sampler_close(s);
    zt_dataset_close(ds);
}

static void test_seek_continues_exactly_where_tell_was(void **state)
{
    struct zt_dataset *ds = counting(500);

    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct zt_sampler_config cfg = {.block_size = 7,
                                        .micro_rows = 3,
                                        .num_micro = 2,
                                        .world = 3,
                                        .rank = 1,
                                        .seed = 77,
                                        .drop_last = kind & 1,
                                        .random_start = kind & 2};
        struct zt_sampler *all = sampling(ds, cfg), *some;
        struct zt_sampler_state at, chained;

        for (int64_t k = 0; k < 30; k++) {
            cfg.seed = 1; /* the position brings its own */
            some = sampling(ds, cfg);
            zt_sampler_tell(all, k, &at);
            assert_int_equal(zt_sampler_seek(some, &at, &fault), ZT_OK);
            for (int64_t step = 1; step <= 12; step++) {
                int32_t a[3], b[3];

                read_rows(all, k + step, 1, 3, 7, a);
                read_rows(some, step, 1, 3, 7, b);
                assert_memory_equal(a, b, sizeof(a));
                zt_sampler_tell(all, k + step, &at);
                zt_sampler_tell(some, step, &chained);
                assert_memory_equal(&at, &chained, sizeof(at));
            }
            zt_sampler_close(some);
        }
        zt_sampler_close(all);
    }
    zt_dataset_close(ds);
}

static void test_seek_under_another_world_goes_on_with_the_same_order(void **state)
{
    struct zt_dataset *ds = counting(300);
    struct zt_sampler_config cfg = {
        .block_size = 4, .micro_rows = 2, .num_micro = 1, .world = 1, .seed = 5};
    struct zt_sampler *a = sampling(ds, cfg), *b;
    struct zt_sampler_state at;

    (void)state;
    zt_sampler_tell(a, 9, &at);
    cfg.world = 5;
    for (cfg.rank = 0; cfg.rank < 5; cfg.rank++) {
        int32_t want[2], got[2];

        b = sampling(ds, cfg);
        assert_int_equal(zt_sampler_seek(b, &at, &fault), ZT_OK);
        for (int64_t step = 1; step <= 10; step++) {
            read_rows(b, step, 0, 2, 4, got);
            read_rows(a, 9 + (step - 1) * 5 + cfg.rank + 1, 0, 2, 4, want);
            assert_memory_equal(got, want, sizeof(got));
        }
        zt_sampler_close(b);
    }
    zt_sampler_close(a);
    zt_dataset_close(ds);
}

/* Blocks that a world reads in `steps` steps from a position on, in the global order, to `out`. */
static void read_from(const struct zt_dataset *ds, struct zt_sampler_config cfg,
                      const struct zt_sampler_state *at, int64_t steps, int32_t *out)
{
    int64_t G = cfg.micro_rows * cfg.num_micro * cfg.world;

    for (cfg.rank = 0; cfg.rank < cfg.world; cfg.rank++) {
        struct zt_sampler *s = sampling(ds, cfg);

        assert_int_equal(zt_sampler_seek(s, at, &fault), ZT_OK);
        for (int64_t step = 1; step <= steps; step++)
            for (int64_t m = 0; m < cfg.num_micro; m++)
                read_rows(s, step, m, cfg.micro_rows, cfg.block_size,
                          out + (step - 1) * G + zt_sampler_row0(s, m));
        zt_sampler_close(s);
    }
}

static void test_an_epoch_is_whole_by_1_to_8_ranks_from_any_restart(void **state)
{
    enum { T = 4, N = 61 };
    struct zt_dataset *ds = counting(T * N + 1);
    struct zt_sampler_config cfg = {.block_size = T, .seed = 11}, next;
    int tried = 0;

    (void)state;
    for (cfg.world = 1; cfg.world <= 8; cfg.world++) {
        for (int64_t k = 0; k < 4 * (N / cfg.world + 1); k++) {
            int32_t starts[4 * N];
            struct zt_sampler_state begin, at;
            struct zt_sampler *s;
            int64_t done, more;
            int seen[N] = {0};

            cfg.num_micro = k % 4 + 1;
            cfg.micro_rows = k % 2 + 1;
            done = k / 4 * cfg.world * cfg.num_micro * cfg.micro_rows;
            if (done > N)
                continue;
            s = sampling(ds, cfg);
            zt_sampler_tell(s, 0, &begin);
            zt_sampler_tell(s, k / 4, &at);
            zt_sampler_close(s);
            read_from(ds, cfg, &begin, k / 4, starts);
            next = cfg;
            next.world = (int)((cfg.world + k) % 8) + 1;
            next.num_micro = (k + 1) % 3 + 1;
            more = next.world * next.num_micro * next.micro_rows;
            read_from(ds, next, &at, (N - done + more - 1) / more, starts + done);
            for (int i = 0; i < N; i++)
                assert_int_equal(seen[starts[i] / T]++, 0);
            tried++;
        }
    }
    assert_in_range(tried, 200, 10000);
    print_message("%d restarts\n", tried);
    zt_dataset_close(ds);
}

static void test_seek_goes_on_behind_the_same_share_of_other_blocks(void **state)
{
    struct zt_dataset *ds = counting(301);
    struct zt_sampler_config cfg = {
        .block_size = 4, .micro_rows = 5, .num_micro = 1, .world = 1};
    struct zt_sampler *s = sampling(ds, cfg), *halves, *twice;
    struct zt_sampler_state at, now;

    (void)state;
    cfg.block_size = 2;
    halves = sampling(ds, cfg);
    cfg.block_size = 8;
    twice = sampling(ds, cfg);
    zt_sampler_tell(s, 12, &at);
    assert_int_equal(at.index, 60); /* of 75 */
    assert_int_equal(zt_sampler_seek(halves, &at, &fault), ZT_OK);
    zt_sampler_tell(halves, 0, &now);
    assert_int_equal(now.index, 120); /* of 150 */
    assert_int_equal(now.blocks, 150);
    assert_int_equal(zt_sampler_steps_left(halves, 1), 6);
    assert_int_equal(zt_sampler_seek(twice, &at, &fault), ZT_OK);
    zt_sampler_tell(twice, 0, &now);
    assert_int_equal(now.index, 60 * zt_sampler_num_blocks(twice) / 75);
    at.index = at.blocks;
    assert_int_equal(zt_sampler_seek(halves, &at, &fault), ZT_E_ARG);
    zt_sampler_close(s);
    zt_sampler_close(halves);
    zt_sampler_close(twice);
    zt_dataset_close(ds);
}

static void test_seek_refuses_other_data_and_changes_nothing(void **state)
{
    struct zt_dataset *ds = counting(300);
    struct zt_sampler *s =
        sampling(ds, (struct zt_sampler_config){
                         .block_size = 4, .micro_rows = 2, .num_micro = 1, .world = 1});
    struct zt_sampler_state at, bad, now;

    (void)state;
    zt_sampler_tell(s, 3, &at);
    bad = at;
    bad.fingerprint++;
    assert_int_equal(zt_sampler_seek(s, &bad, &fault), ZT_E_CONFIG);
    assert_non_null(strstr(fault.text, "other training data"));
    bad = at;
    bad.index = zt_sampler_num_blocks(s);
    assert_int_equal(zt_sampler_seek(s, &bad, &fault), ZT_E_ARG);
    bad.index = -1;
    assert_int_equal(zt_sampler_seek(s, &bad, &fault), ZT_E_ARG);
    zt_sampler_tell(s, 3, &now);
    assert_memory_equal(&at, &now, sizeof(at));
    zt_sampler_close(s);
    zt_dataset_close(ds);
}

static void test_random_start_moves_the_borders_between_epochs(void **state)
{
    struct zt_dataset *ds = counting(8 * 12);
    struct zt_sampler *s = sampling(ds, (struct zt_sampler_config){.block_size = 8,
                                                                   .micro_rows = 11,
                                                                   .num_micro = 1,
                                                                   .world = 1,
                                                                   .random_start = true});
    int offsets[8] = {0}, distinct = 0;

    (void)state;
    assert_int_equal(zt_sampler_num_blocks(s), 11);
    for (int64_t e = 0; e < 64; e++) {
        int32_t starts[11];

        read_rows(s, e + 1, 0, 11, 8, starts);
        for (int b = 1; b < 11; b++)
            assert_int_equal(starts[b] % 8, starts[0] % 8);
        offsets[starts[0] % 8]++;
    }
    for (int i = 0; i < 8; i++)
        distinct += offsets[i] > 0;
    assert_int_equal(distinct, 8);
    zt_sampler_close(s);
    zt_dataset_close(ds);
}

static void test_num_steps_counts_partial_steps_and_parts_of_epochs(void **state)
{
    struct zt_dataset *ds = counting(31);
    struct zt_sampler *s =
        sampling(ds, (struct zt_sampler_config){
                         .block_size = 1, .micro_rows = 4, .num_micro = 1, .world = 1});

    (void)state; /* 30 blocks in batches of 4 */
    assert_int_equal(zt_sampler_num_steps(s, 1), 8);
    assert_int_equal(zt_sampler_num_steps(s, 2), 15);
    assert_int_equal(zt_sampler_num_steps(s, 0.4), 3);
    assert_int_equal(zt_sampler_num_steps(s, 1e-9), 1);
    zt_sampler_close(s);
    zt_dataset_close(ds);
}

static void test_steps_left_are_those_to_the_same_end(void **state)
{
    struct zt_dataset *ds = counting(31);

    (void)state; /* 30 blocks */
    for (int drop = 0; drop < 2; drop++) {
        for (int64_t rows = 1; rows < 12; rows++) {
            struct zt_sampler_config c = {.block_size = 1,
                                          .micro_rows = rows,
                                          .num_micro = 1,
                                          .world = 1,
                                          .drop_last = drop};
            struct zt_sampler *s = sampling(ds, c), *other;
            int64_t all = zt_sampler_num_steps(s, 2.5);
            struct zt_sampler_state at;

            for (int64_t made = 0; made <= all + 3; made++) {
                zt_sampler_tell(s, made, &at);
                other = sampling(ds, c);
                assert_int_equal(zt_sampler_seek(other, &at, NULL), ZT_OK);
                assert_int_equal(zt_sampler_steps_left(other, 2.5), all - made);
                zt_sampler_close(other);
            }
            zt_sampler_tell(s, 2, &at); /* and goes on by 3 rows */
            c.micro_rows = 3;
            other = sampling(ds, c);
            assert_int_equal(zt_sampler_seek(other, &at, NULL), ZT_OK);
            assert_int_equal(zt_sampler_steps_left(other, 1),
                             at.epoch ? -((at.index + 2) / 3) + (at.index % 3 ? 1 : 0)
                                      : (30 - at.index + (drop ? 0 : 2)) / 3);
            zt_sampler_close(other);
            zt_sampler_close(s);
        }
    }
    zt_dataset_close(ds);
}

static void test_open_refuses_what_cannot_be_sampled(void **state)
{
    struct zt_dataset *ds = counting(10);
    struct zt_sampler_config ok = {
        .block_size = 4, .micro_rows = 1, .num_micro = 1, .world = 1};
    struct zt_sampler_config c;
    struct zt_sampler *s = NULL;
    int32_t buf[4];
    struct zt_field_buffers out = buffers_of(buf, buf, NULL);

    (void)state;
    c = ok, c.block_size = 10;
    assert_int_equal(zt_sampler_open(ds, &c, &s, &fault), ZT_E_FORMAT);
    assert_non_null(strstr(fault.text, "10 tokens, too few for one block"));
    c = ok, c.block_size = 6, c.random_start = true;
    assert_int_equal(zt_sampler_open(ds, &c, &s, &fault), ZT_E_FORMAT);
    c = ok, c.drop_last = true, c.micro_rows = 3;
    assert_int_equal(zt_sampler_open(ds, &c, &s, &fault), ZT_E_FORMAT);
    assert_non_null(strstr(fault.text, "drop_last"));
    c = ok, c.rank = 1;
    assert_int_equal(zt_sampler_open(ds, &c, &s, &fault), ZT_E_ARG);
    c = ok, c.micro_rows = 0;
    assert_int_equal(zt_sampler_open(ds, &c, &s, &fault), ZT_E_ARG);
    c = ok, c.micro_rows = INT64_MAX, c.num_micro = 2;
    assert_int_equal(zt_sampler_open(ds, &c, &s, &fault), ZT_E_ARG);
    assert_null(s);
    s = sampling(ds, ok);
    assert_int_equal(zt_sampler_read(s, 0, 0, &out, NULL, NULL), ZT_E_ARG);
    assert_int_equal(zt_sampler_read(s, 1, 1, &out, NULL, NULL), ZT_E_ARG);
    assert_int_equal(zt_sampler_read(s, INT64_MAX, 0, &out, NULL, NULL), ZT_E_ARG);
    zt_sampler_close(s);
    zt_dataset_close(ds);
}

/* A batch larger than the epoch: blocks repeat, but only across epochs. */
static void test_a_batch_larger_than_the_data_rolls_over(void **state)
{
    struct zt_dataset *ds = counting(2 * 3 + 1);
    struct zt_sampler *s =
        sampling(ds, (struct zt_sampler_config){
                         .block_size = 2, .micro_rows = 9, .num_micro = 1, .world = 1});
    int32_t starts[9];

    (void)state;
    read_rows(s, 1, 0, 9, 2, starts);
    for (int e = 0; e < 3; e++)
        assert_int_equal(starts[3 * e] + starts[3 * e + 1] + starts[3 * e + 2], 6);
    zt_sampler_close(s);
    zt_dataset_close(ds);
}

static void test_evaluation_covers_every_token_once_for_odd_sizes(void **state)
{
    (void)state;
    for (int n = 2; n < 60; n++) {
        struct zt_dataset *ds = counting(n);

        for (int kind = 0; kind < 12; kind++) {
            int64_t T = 1 + kind % 5 * 3, B = 1 + kind % 3, total = 0;
            int world = 1 + kind % 4, seen[64] = {0};

            for (int rank = 0; rank < world; rank++) {
                struct zt_eval_batches ev;
                int32_t x[64], y[64], lengths[8];
                struct zt_field_buffers out = buffers_of(x, y, lengths);

                assert_int_equal(zt_eval_batches_init(&ev, ds, T, B, rank, world, &fault),
                                 ZT_OK);
                assert_int_equal(ev.num_targets, n - 1);
                assert_true((ev.num_batches - 1) * world * B * T < n - 1);
                for (int64_t k = 0; k < ev.num_batches; k++) {
                    int64_t rows = -1, real = 0;

                    assert_int_equal(
                        zt_eval_batches_read(&ev, k, &out, &rows, NULL, &fault), ZT_OK);
                    for (int64_t i = 0; i < B * T; i++) {
                        assert_int_equal(y[i] == -5, i % T >= lengths[i / T]);
                        if (y[i] == -5) { /* the padding that was declared */
                            assert_int_equal(x[i], 7);
                            continue;
                        }
                        assert_int_equal(y[i], x[i] + 1);
                        seen[y[i]]++;
                        real++;
                    }
                    for (int64_t b = 0; b < B; b++)
                        assert_int_equal(lengths[b] > 0, b < rows);
                    total += real;
                }
                assert_int_equal(
                    zt_eval_batches_read(&ev, ev.num_batches, &out, &total, NULL, NULL),
                    ZT_E_ARG);
            }
            assert_int_equal(total, n - 1);
            for (int i = 0; i < n; i++)
                assert_int_equal(seen[i], i > 0);
        }
        zt_dataset_close(ds);
    }
}

/* ---- fields ---- */

static void expect_offer(struct zt_field f, zt_err code, bool offered, const char *text)
{
    bool there = !offered;

    fault.text[0] = 0;
    assert_int_equal(zt_data_offers(&f, "the training data",
                                    &(struct zt_row_options){.kind = ZT_ROWS_NEXT_TOKEN},
                                    false, &there, &fault),
                     code);
    if (!code)
        assert_int_equal(there, offered);
    else if (!strstr(fault.text, text))
        fail_msg("\"%s\" does not say \"%s\"", fault.text, text);
}

static void test_fields_are_offered_by_name_type_and_shape(void **state)
{
    struct zt_field f = {.name = "targets",
                         .dtype = ZT_I32,
                         .shape = {ZT_DIM_B, ZT_DIM_T},
                         .required = true};

    (void)state;
    expect_offer(f, ZT_OK, true, "");
    f.dtype = ZT_I64;
    expect_offer(f, ZT_E_PLUGIN, false,
                 "field targets is declared with another type than");
    f.dtype = ZT_I32, f.shape[1] = 0;
    expect_offer(f, ZT_E_PLUGIN, false, "have: i32 of shape {ZT_DIM_B, ZT_DIM_T}");
    f.name = "lengths";
    expect_offer(f, ZT_OK, true, "");
    f.shape[1] = ZT_DIM_T;
    expect_offer(f, ZT_E_PLUGIN, false, "have: i32 of shape {ZT_DIM_B}");
    f.name = "labels";
    expect_offer(f, ZT_E_PLUGIN, false,
                 "requires the field labels, which the training data do not offer; they "
                 "offer tokens, targets, lengths");
    f.required = false;
    expect_offer(f, ZT_OK, false, "");
}

static void test_what_keeps_samples_apart_is_offered_where_they_share_rows(void **state)
{
    static const char *const names[] = {"positions", "segment_begin", "segment_end"};

    (void)state;
    for (int kind = 0; kind < 2; kind++)
        for (int i = 0; i < 3; i++)
            for (int k = 0; k < 4; k++) {
                bool required = k & 1, packed = k & 2, there;
                const struct zt_row_options rows = {.kind = kind ? ZT_ROWS_MASKED
                                                                 : ZT_ROWS_NEXT_TOKEN};
                struct zt_field f = {.name = names[i],
                                     .dtype = ZT_I32,
                                     .shape = {ZT_DIM_B, ZT_DIM_T},
                                     .required = required};

                assert_int_equal(zt_data_offers(&f, "the training data", &rows, packed,
                                                &there, &fault),
                                 ZT_OK);
                assert_int_equal(there, required || packed);
            }
}

static void test_fields_that_are_not_wanted_are_not_read(void **state)
{
    struct zt_dataset *ds = counting(20);
    int32_t tokens[4] = {-1, -1, -1, -1}, lengths[2] = {-1, -1};
    struct zt_field_buffers out = buffers_of(tokens, NULL, lengths);

    (void)state;
    assert_int_equal(
        zt_data_fill_row(ds, &out, 1, 2, &(struct zt_row_piece){19, 1, 0, 0}, 1, &fault),
        ZT_OK);
    assert_int_equal(tokens[0], -1);
    assert_int_equal(tokens[2], 19);
    assert_int_equal(tokens[3], 7);
    assert_int_equal(lengths[0], -1);
    assert_int_equal(lengths[1], 1);
    zt_dataset_close(ds);
}

static void test_evaluation_needs_two_tokens(void **state)
{
    struct zt_dataset *ds = counting(1);
    struct zt_eval_batches ev;

    (void)state;
    assert_int_equal(zt_eval_batches_init(&ev, ds, 4, 1, 0, 1, &fault), ZT_E_FORMAT);
    assert_int_equal(zt_eval_batches_init(&ev, ds, 0, 1, 0, 1, &fault), ZT_E_ARG);
    zt_dataset_close(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permutation_is_a_bijection_for_any_size),
        cmocka_unit_test(test_permutation_depends_on_seed_and_epoch_and_spreads_evenly),
        cmocka_unit_test(test_an_epoch_holds_each_block_once),
        cmocka_unit_test(test_any_factorisation_sees_the_same_rows_in_the_same_order),
        cmocka_unit_test(test_micro_batches_go_round_the_ranks),
        cmocka_unit_test(test_drop_last_keeps_epochs_apart_and_drops_other_blocks_each),
        cmocka_unit_test(test_seek_continues_exactly_where_tell_was),
        cmocka_unit_test(test_seek_under_another_world_goes_on_with_the_same_order),
        cmocka_unit_test(test_an_epoch_is_whole_by_1_to_8_ranks_from_any_restart),
        cmocka_unit_test(test_seek_goes_on_behind_the_same_share_of_other_blocks),
        cmocka_unit_test(test_seek_refuses_other_data_and_changes_nothing),
        cmocka_unit_test(test_random_start_moves_the_borders_between_epochs),
        cmocka_unit_test(test_num_steps_counts_partial_steps_and_parts_of_epochs),
        cmocka_unit_test(test_steps_left_are_those_to_the_same_end),
        cmocka_unit_test(test_open_refuses_what_cannot_be_sampled),
        cmocka_unit_test(test_a_batch_larger_than_the_data_rolls_over),
        cmocka_unit_test(test_evaluation_covers_every_token_once_for_odd_sizes),
        cmocka_unit_test(test_fields_are_offered_by_name_type_and_shape),
        cmocka_unit_test(test_what_keeps_samples_apart_is_offered_where_they_share_rows),
        cmocka_unit_test(test_fields_that_are_not_wanted_are_not_read),
        cmocka_unit_test(test_evaluation_needs_two_tokens),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
