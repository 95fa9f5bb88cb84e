/* Samples that share rows: which, by best fit decreasing, and what the fields of such a row hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "test/unit/data/files.h"
#include "worker/data/packing.h"
#include "worker/data/sampler.h"
#include "worker/data/tokens.h"

enum { NUM = 97, T = 20, PAD = 7, NO_TARGET = -5 };

static struct zt_fault fault;

/* ---- which samples share a row ---- */

static uint64_t state_of_random = 12345;

static uint32_t below(uint32_t n)
{
    state_of_random = state_of_random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state_of_random >> 33) % n;
}

/* The row that best fit decreasing puts each sample in, by looking at all rows. */
static int64_t obvious(const uint32_t *sizes, int64_t num, int64_t capacity,
                       int64_t *row_of)
{
    int64_t *room = malloc((size_t)num * sizeof(*room)), num_rows = 0;
    int64_t *age = calloc((size_t)num, sizeof(*age)), now = 0;

    for (int64_t size = capacity; size > 0; size--)
        for (int64_t i = 0; i < num; i++) {
            int64_t best = -1;

            if (sizes[i] != size)
                continue;
            for (int64_t r = 0; r < num_rows; r++)
                if (room[r] >= size && (best < 0 || room[r] < room[best] ||
                                        (room[r] == room[best] && age[r] > age[best])))
                    best = r;
            if (best < 0) {
                best = num_rows++;
                room[best] = capacity;
            }
            room[best] -= size;
            age[best] = ++now;
            row_of[i] = best;
        }
    free(room);
    free(age);
    return num_rows;
}

static void check_packing(const uint32_t *sizes, int64_t num, int64_t capacity)
{
    int64_t *want = malloc((size_t)num * sizeof(*want)), total = 0, rows;
    struct zt_packing p;

    rows = obvious(sizes, num, capacity, want);
    assert_int_equal(zt_packing_make(&p, sizes, num, capacity, &fault), ZT_OK);
    assert_int_equal(p.num_rows, rows);
    assert_int_equal(p.first[0], 0);
    assert_int_equal(p.first[rows], num);
    for (int64_t r = 0; r < rows; r++) {
        int64_t used = 0;

        assert_true(p.first[r + 1] > p.first[r]);
        for (int64_t k = p.first[r]; k < p.first[r + 1]; k++) {
            assert_int_equal(want[p.samples[k]], r);
            want[p.samples[k]] = -1; /* once */
            used += sizes[p.samples[k]];
        }
        assert_true(used <= capacity);
        total += used;
    }
    /* any two rows hold more than one row's worth, or they would be one */
    assert_true(2 * total > (rows - 1) * capacity);
    zt_packing_release(&p);
    free(want);
}

static void test_rows_are_those_of_best_fit_decreasing(void **state)
{
    static const int64_t capacities[] = {1, 5, 63, 64, 65, 4095, 4096, 300000};
    uint32_t sizes[400];

    (void)state;
    for (int c = 0; c < 8; c++)
        for (int kind = 0; kind < 4; kind++) {
            uint32_t most = (uint32_t)capacities[c];
            int64_t num = kind == 3 ? 1 : 400;

            if (c == 7 && kind < 3) /* the obvious way asks for every size */
                num = 40;
            for (int64_t i = 0; i < num; i++)
                sizes[i] = kind == 0   ? 1 + below(most)
                           : kind == 1 ? 1 + below(most / 3 + 1)
                                       : most;
            check_packing(sizes, num, capacities[c]);
        }
}

/* ---- rows ---- */

/* Row i is text of length_of(i) bytes, each of them the number of the row. */
static int64_t length_of(int i)
{
    return i == 40 ? 3 * T : 1 + i * 29 % (T - 2);
}

static struct zt_dataset *rows_of(int num)
{
    static char text[NUM * 96];
    struct zt_text_encoding how = {.keeps_lengths = true, .threads = 1};
    struct zt_dataset *ds = NULL;
    const char *path;
    size_t n = 0;

    for (int i = 0; i < num; i++) {
        n += (size_t)sprintf(text + n, "{\"text\": \"");
        for (int k = 0; k < length_of(i); k++)
            text[n++] = (char)('#' + i % 57);
        n += (size_t)sprintf(text + n, "\"}\n");
    }
    path = put_file("rows.jsonl", text, n);
    if (zt_dataset_open_text((const char *const[]){path, NULL}, "auto", &how, 0, &ds,
                             &fault))
        fail_msg("%s", fault.text);
    return ds;
}

/* What is read of one row. */
struct seen {
    int32_t tokens[T], targets[T], length, positions[T], begin[T], end[T];
};

static const struct zt_field fields[] = {
    {.name = "tokens", .dtype = ZT_I32, .shape = {ZT_DIM_B, ZT_DIM_T}, .pad = PAD},
    {.name = "targets", .dtype = ZT_I32, .shape = {ZT_DIM_B, ZT_DIM_T}, .pad = NO_TARGET},
    {.name = "lengths", .dtype = ZT_I32, .shape = {ZT_DIM_B}},
    {.name = "positions", .dtype = ZT_I32, .shape = {ZT_DIM_B, ZT_DIM_T}, .pad = 2},
    {.name = "segment_begin", .dtype = ZT_I32, .shape = {ZT_DIM_B, ZT_DIM_T}, .pad = 9},
    {.name = "segment_end", .dtype = ZT_I32, .shape = {ZT_DIM_B, ZT_DIM_T}, .pad = 9},
};

/* A sample that is not marked in `taken` and begins with these tokens, whole or cut off at T. */
static int64_t find_sample(const struct zt_dataset *ds, const int32_t *tokens,
                           const int32_t *targets, int64_t n, int *taken)
{
    for (int64_t i = 0; i < zt_dataset_num_samples(ds); i++) {
        int32_t whole[4 * T];
        int64_t at, all;

        zt_dataset_sample(ds, i, &at, &all);
        assert_int_equal(zt_dataset_read(ds, at, all, whole, &fault), ZT_OK);
        if (taken[i] || n != (all - 1 < T ? all - 1 : T) ||
            memcmp(tokens, whole, (size_t)n * sizeof(*tokens)) != 0 ||
            memcmp(targets, whole + 1, (size_t)n * sizeof(*tokens)) != 0)
            continue;
        taken[i] = 1;
        return i;
    }
    fail_msg("no sample has these %d tokens", (int)n);
    return -1;
}

/* The fields of a row agree with each other; each of its samples is marked in `taken`. */
static int64_t check_row(const struct zt_dataset *ds, const struct seen *r, int64_t width,
                         int *taken)
{
    int64_t at = 0, samples = 0;

    while (at < r->length) {
        int64_t end = r->end[at];

        assert_true(end > at && end <= r->length);
        for (int64_t i = at; i < end; i++) {
            assert_int_equal(r->begin[i], at);
            assert_int_equal(r->end[i], end);
            assert_int_equal(r->positions[i], i - at);
        }
        find_sample(ds, r->tokens + at, r->targets + at, end - at, taken);
        samples++;
        at = end;
    }
    for (; at < width; at++) {
        assert_int_equal(r->tokens[at], PAD);
        assert_int_equal(r->targets[at], NO_TARGET);
        assert_int_equal(r->positions[at], 2);
        assert_int_equal(r->begin[at], at);
        assert_int_equal(r->end[at], at + 1);
    }
    return samples;
}

enum { MOST_ROWS = 24 };

/* Fields of up to MOST_ROWS rows. */
struct batch {
    int32_t of[6][MOST_ROWS * T];
    struct zt_field_buffers to;
};

static struct batch *batch_open(void)
{
    struct batch *b = calloc(1, sizeof(*b));

    assert_non_null(b);
    b->to = (struct zt_field_buffers){.fields = fields, .num = 6};
    for (int i = 0; i < 6; i++)
        b->to.data[i] = b->of[i];
    return b;
}

static struct seen row_of_batch(const struct batch *b, int64_t row, int64_t width)
{
    struct seen r = {.length = b->of[2][row]};
    int32_t *const to[] = {r.tokens, r.targets, NULL, r.positions, r.begin, r.end};

    for (int i = 0; i < 6; i++)
        if (to[i])
            memcpy(to[i], b->of[i] + row * width, (size_t)width * sizeof(int32_t));
    return r;
}

static struct zt_dataset *packed_rows(int num)
{
    struct zt_dataset *ds = rows_of(num);

    assert_false(zt_dataset_is_packed(ds));
    assert_int_equal(zt_dataset_num_rows(ds), num);
    assert_int_equal(zt_dataset_pack(ds, T, &fault), ZT_OK);
    assert_true(zt_dataset_is_packed(ds));
    assert_true(zt_dataset_num_rows(ds) < num && zt_dataset_num_rows(ds) > 0);
    return ds;
}

/* The rows of two epochs, by row of the global batch; returns how many. */
static int64_t read_epochs(const struct zt_dataset *ds, struct zt_sampler_config cfg,
                           struct seen *out, int64_t *widths)
{
    struct batch *b = batch_open();
    int64_t G = cfg.micro_rows * cfg.num_micro * cfg.world;
    int64_t steps = 2 * zt_dataset_num_rows(ds) / G + 1;

    for (cfg.rank = 0; cfg.rank < cfg.world; cfg.rank++) {
        struct zt_sampler *s = NULL;

        assert_int_equal(zt_sampler_open(ds, &cfg, &s, &fault), ZT_OK);
        assert_int_equal(zt_sampler_num_blocks(s), zt_dataset_num_rows(ds));
        for (int64_t i = 0; i < steps * cfg.num_micro; i++) {
            int64_t step = i / cfg.num_micro + 1, m = i % cfg.num_micro;
            struct zt_widths width = {0};

            assert_int_equal(zt_sampler_read(s, step, m, &b->to, &width, &fault), ZT_OK);
            assert_true(width.row <= T);
            for (int64_t row = 0; row < cfg.micro_rows; row++) {
                int64_t at = (step - 1) * G + zt_sampler_row0(s, m) + row;

                memset(&out[at], 0, sizeof(out[at]));
                out[at] = row_of_batch(b, row, width.row);
                widths[at] = width.row;
            }
        }
        zt_sampler_close(s);
    }
    free(b);
    return steps * G;
}

static void test_each_sample_is_read_once_in_an_epoch_whoever_reads_it(void **state)
{
    struct zt_dataset *ds = packed_rows(NUM);
    struct seen *want = malloc(4 * NUM * sizeof(*want));
    struct seen *got = malloc(4 * NUM * sizeof(*got));
    int64_t *widths = malloc(4 * NUM * sizeof(*widths)), rows = zt_dataset_num_rows(ds);
    int taken[NUM] = {0};
    int64_t samples = 0;

    (void)state;
    for (int world = 1; world <= 8; world++)
        for (int64_t micro = 1; micro <= 3; micro++) {
            struct zt_sampler_config cfg = {.block_size = T,
                                            .seed = 5,
                                            .world = world,
                                            .num_micro = micro,
                                            .micro_rows = 24 / (world * micro),
                                            .padding = {1, micro == 2}};
            int64_t num;

            if (world * micro * cfg.micro_rows != 24)
                continue;
            num = read_epochs(ds, cfg, world * micro == 1 ? want : got, widths);
            for (int64_t i = 0; world * micro > 1 && i < num; i++) {
                size_t n = (size_t)want[i].length * sizeof(int32_t);

                assert_int_equal(got[i].length, want[i].length);
                assert_memory_equal(got[i].tokens, want[i].tokens, n);
                assert_memory_equal(got[i].begin, want[i].begin, n);
                check_row(ds, &got[i], widths[i], (int[NUM]){0});
            }
        }
    for (int64_t i = 0; i < rows; i++)
        samples += check_row(ds, &want[i], want[i].length, taken);
    assert_int_equal(samples, NUM);
    for (int i = 0; i < NUM; i++)
        assert_int_equal(taken[i], 1);
    free(want);
    free(got);
    free(widths);
    zt_dataset_close(ds);
}

static void test_evaluation_reads_each_sample_once(void **state)
{
    struct zt_dataset *ds = packed_rows(NUM);
    struct batch *b = batch_open();
    int taken[NUM] = {0};
    int64_t samples = 0;

    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        struct zt_eval_batches ev;

        assert_int_equal(zt_eval_batches_init(&ev, ds, T, 4, rank, 3, &fault), ZT_OK);
        ev.padding.multiple = 4;
        for (int64_t k = 0; k < ev.num_batches; k++) {
            struct zt_widths width = {0};
            int64_t num = 0;

            assert_int_equal(zt_eval_batches_read(&ev, k, &b->to, &num, &width, &fault),
                             ZT_OK);
            assert_int_equal(width.row % 4, 0);
            for (int64_t row = 0; row < 4; row++) {
                struct seen r = row_of_batch(b, row, width.row);

                assert_true((r.length > 0) == (row < num));
                samples += check_row(ds, &r, width.row, taken);
            }
        }
    }
    assert_int_equal(samples, NUM);
    free(b);
    zt_dataset_close(ds);
}

static void test_a_position_set_back_gives_the_same_rows(void **state)
{
    struct zt_dataset *ds = packed_rows(NUM), *other = rows_of(NUM);
    struct zt_sampler_config cfg = {
        .block_size = T, .micro_rows = 3, .num_micro = 1, .world = 1, .seed = 4};
    struct batch *x = batch_open(), *y = batch_open();
    struct zt_sampler *s = NULL, *t = NULL;
    struct zt_sampler_state at;

    (void)state;
    assert_int_equal(zt_sampler_open(ds, &cfg, &s, &fault), ZT_OK);
    assert_int_equal(zt_sampler_open(ds, &cfg, &t, &fault), ZT_OK);
    for (int64_t done = 0; done < zt_dataset_num_rows(ds); done++) {
        struct zt_widths wx = {0}, wy = {0};

        zt_sampler_tell(s, done, &at);
        assert_int_equal(zt_sampler_seek(t, &at, &fault), ZT_OK);
        assert_int_equal(zt_sampler_read(s, done + 1, 0, &x->to, &wx, &fault), ZT_OK);
        assert_int_equal(zt_sampler_read(t, 1, 0, &y->to, &wy, &fault), ZT_OK);
        assert_int_equal(wx.row, wy.row);
        assert_memory_equal(x->of, y->of, sizeof(x->of));
    }
    /* of rows of another length, or of samples that share none, it is no position */
    assert_true(zt_dataset_fingerprint(ds) != zt_dataset_fingerprint(other));
    assert_int_equal(zt_dataset_pack(other, T + 4, &fault), ZT_OK);
    assert_true(zt_dataset_fingerprint(ds) != zt_dataset_fingerprint(other));
    zt_sampler_close(s);
    zt_sampler_close(t);
    assert_int_equal(zt_sampler_open(other, &cfg, &s, &fault), ZT_OK);
    assert_int_equal(zt_sampler_seek(s, &at, &fault), ZT_E_CONFIG);
    zt_sampler_close(s);
    free(x);
    free(y);
    zt_dataset_close(ds);
    zt_dataset_close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_those_of_best_fit_decreasing),
        cmocka_unit_test(test_each_sample_is_read_once_in_an_epoch_whoever_reads_it),
        cmocka_unit_test(test_evaluation_reads_each_sample_once),
        cmocka_unit_test(test_a_position_set_back_gives_the_same_rows),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
