/* State in pieces: in tiers that move them, of every kind, and what is not given back. */
#include <signal.h>

#include "test/unit/zero/job.h"

/* ---- tiers ---- */

static void compare_tiers(int world, int stage, zt_dtype dtype, zt_dtype accum,
                          int64_t sub_group)
{
    static struct result want;
    struct job j = make_job(world, stage, dtype);

    j.micro_batches = 2;
    j.every = world == 3;
    j.o.grad_accum_dtype = accum;
    train(&j, &want);
    j.on_host = true;
    j.o.sub_group_size = sub_group;
    assert_trains_like(&j, &want);
    j.in_reach = true;
    j.ratio = 0.4;
    assert_trains_like(&j, &want);
    j.dir = "."; /* a folder of a drive, not of memory */
    j.pipeline = stage & 1;
    j.in_reach = dtype == ZT_F32;
    j.weights_too = stage == 3;
    assert_trains_like(&j, &want);
    if (stage < 3)
        return;
    j.weights_in_host = 30000 / world; /* of weights the first blocks */
    assert_trains_like(&j, &want);
    j.weights_in_host = 0;
    j.dir = NULL;
    j.o.max_live_parameters = 5000;
    j.o.max_reuse_distance = 0;
    assert_trains_like(&j, &want);
}

static void test_state_on_the_host_and_in_files_trains_to_the_same_bits(void **state)
{
    (void)state;
    for (int world = 1; world < 4; world++)
        for (int stage = 0; stage < 4; stage++) {
            compare_tiers(world, stage, ZT_F32, ZT_F32, 5000);
            compare_tiers(world, stage, ZT_BF16, ZT_F32, 8192);
            compare_tiers(world, stage, ZT_BF16, ZT_BF16, 4096);
        }
}

static void places_rank(struct zt_comm *c)
{
    struct zt_zero_bytes bytes;
    struct rank r;

    open_rank(&r, the_job, c);
    bytes = zt_zero_measure(r.zero);
    CHECK(bytes.in[ZT_PLACE_HOST].master > 0 && bytes.in[ZT_PLACE_HOST].moments > 0);
    CHECK(bytes.in[ZT_PLACE_HOST].moments == 2 * bytes.in[ZT_PLACE_HOST].master);
    /* two buffers of a piece for each region */
    CHECK(bytes.in[ZT_PLACE_DEVICE].master == (size_t)2 * 4096 * sizeof(float));
    CHECK(bytes.in[ZT_PLACE_DEVICE].moments == (size_t)4 * 4096 * sizeof(float));
    CHECK(zt_zero_total(&bytes, ZT_PLACE_PINNED) == 0);
    CHECK(zt_zero_total(&bytes, ZT_PLACE_FILE) == 0);
    close_rank(&r);
}

static void test_state_is_counted_where_it_is(void **state)
{
    struct job j = make_job(2, 2, ZT_BF16);

    (void)state;
    j.on_host = true;
    j.o.sub_group_size = 4096;
    run_job(&j, places_rank);
}

static void in_place_rank(struct zt_comm *c)
{
    struct zt_zero_config cfg;
    struct rank r = {.comm = c};

    open_model(&r, the_job);
    plan_rank(&r);
    open_device(&r);
    cfg = zero_config(&r);
    cfg.tiers[ZT_STATE_GRADIENTS] = &zt_host_tier;
    CHECK(zt_zero_open(&cfg, &r.zero, &fault) == ZT_E_UNSUPPORTED);
    CHECK(strstr(fault.text, zt_state_name(ZT_STATE_GRADIENTS)));
    close_rank(&r);
}

static void test_state_that_is_worked_on_in_place_stays_on_the_device(void **state)
{
    struct job j = make_job(2, 1, ZT_F32);

    (void)state;
    j.o.grad_accum_dtype = ZT_BF16; /* summed in place, behind the last micro-batch */
    j.micro_batches = 2;
    run_job(&j, in_place_rank);
}

/* ---- kinds ---- */

#define MAX_KINDS (ZT_STATE_MOMENT + 2)

static float saved[MAX_KINDS][MAX_WEIGHTS];

/* All of one kind, parameter after parameter, out or in. */
static void save_kind(struct rank *r, zt_state_kind kind)
{
    float *out = saved[kind];

    for (int i = 0; i < r->model->num_params; i++) {
        const struct zt_param *p = r->model->params[i];

        if (!zt_zero_has(r->zero, kind, p))
            continue;
        DO(zt_zero_get(r->zero, kind, p, 0, p->numel, out, &fault));
        out += p->numel;
    }
}

static void restore_kind(struct rank *r, zt_state_kind kind)
{
    const float *in = saved[kind];

    for (int i = 0; i < r->model->num_params; i++) {
        const struct zt_param *p = r->model->params[i];
        int64_t from, n;

        if (!zt_zero_has(r->zero, kind, p))
            continue;
        zt_zero_part(r->zero, p, &from, &n);
        DO(zt_zero_set(r->zero, kind, p, from, n, in + from, &fault));
        in += p->numel;
    }
}

static const zt_state_kind kept_kinds[] = {ZT_STATE_WEIGHTS, ZT_STATE_MASTER,
                                           ZT_STATE_MOMENT, ZT_STATE_MOMENT + 1};

/* Two steps, all state out, a third step; then other values, all state in, the third. */
static void resuming_rank(struct zt_comm *c)
{
    uint64_t want, got;
    double first[2], second[2];
    struct rank r;

    open_rank(&r, the_job, c);
    DO(train_step(&r, 1, first));
    DO(train_step(&r, 2, first));
    for (int i = 0; i < 4; i++)
        save_kind(&r, kept_kinds[i]);
    DO(train_step(&r, 3, first));
    DO(zt_zero_fingerprint(r.zero, &want, &fault));
    DO(zt_zero_init(r.zero, JOB_SEED + 1, &fault));
    DO(zt_zero_fingerprint(r.zero, &got, &fault));
    CHECK(got != want);
    for (int i = 0; i < 4; i++)
        restore_kind(&r, kept_kinds[i]);
    DO(zt_zero_publish(r.zero, &fault));
    DO(train_step(&r, 3, second));
    DO(zt_zero_fingerprint(r.zero, &got, &fault));
    CHECK(got == want && first[0] == second[0] && first[1] == second[1]);
    close_rank(&r);
}

static void test_state_of_every_kind_can_be_taken_out_and_put_back(void **state)
{
    (void)state;
    for (int world = 1; world < 4; world++)
        for (int stage = 0; stage < 4; stage++) {
            struct job j = make_job(world, stage, stage & 1 ? ZT_F32 : ZT_BF16);

            j.on_host = world == 2;
            j.o.sub_group_size = j.on_host ? 4096 : 0;
            run_job(&j, resuming_rank);
        }
}

/* The gradients of a step, before the optimizer has them. */
static void gradients_rank(struct zt_comm *c)
{
    double sum = 0, all;
    struct rank r;
    int n = 0;

    open_rank(&r, the_job, c);
    for (int64_t i = 0; i < the_job->micro_batches; i++)
        DO(run_pass(&r, ZT_MODE_TRAIN, 1, i, my_rank, NULL));
    save_kind(&r, ZT_STATE_GRADIENTS);
    for (int i = 0; i < r.model->num_params; i++)
        n += zt_zero_has(r.zero, ZT_STATE_GRADIENTS, r.model->params[i])
                 ? (int)r.model->params[i]->numel
                 : 0;
    for (int i = 0; i < n; i++)
        sum += (double)saved[ZT_STATE_GRADIENTS][i] * saved[ZT_STATE_GRADIENTS][i];
    DO(zt_zero_sumsq(r.zero, &all, &fault));
    DO(zt_sum_f64(c, &all, 1, &fault));
    CHECK(sum > 0 && fabs(sum - all) <= 1e-12 * all);
    if (my_rank == 0)
        memcpy(the_result->weights, saved[ZT_STATE_GRADIENTS],
               sizeof(float[MAX_WEIGHTS]));
    close_rank(&r);
}

static void test_gradients_are_those_of_all_ranks_at_every_stage(void **state)
{
    static struct result want;

    (void)state;
    for (int stage = 0; stage < 4; stage++) {
        struct job j = make_job(3, stage, ZT_F32);

        j.on_host = stage == 3;
        j.o.sub_group_size = 4096;
        run_job(&j, gradients_rank);
        if (stage == 0)
            want = *the_result;
        assert_memory_equal(the_result->weights, want.weights, sizeof(want.weights));
    }
}

static void absent_rank(struct zt_comm *c)
{
    const struct zt_param *trained, *alone, *frozen;
    float x[1] = {0};
    struct rank r;

    open_rank(&r, the_job, c);
    trained = zt_model_find(r.model, "a.up");
    alone = zt_model_find(r.model, "wpe");
    frozen = zt_model_find(r.model, "frozen.w");
    CHECK(!zt_zero_has(r.zero, ZT_STATE_MASTER, trained)); /* weights are fp32 */
    CHECK(zt_zero_has(r.zero, ZT_STATE_MOMENT, trained));
    CHECK(!zt_zero_has(r.zero, ZT_STATE_MOMENT + 2, trained));
    CHECK(zt_zero_has(r.zero, ZT_STATE_VALUE, alone));
    CHECK(!zt_zero_has(r.zero, ZT_STATE_MOMENT, alone));
    CHECK(!zt_zero_has(r.zero, ZT_STATE_GRADIENTS, alone));
    CHECK(!zt_zero_has(r.zero, ZT_STATE_GRADIENTS, frozen));
    CHECK(zt_zero_get(r.zero, ZT_STATE_MASTER, trained, 0, 1, x, &fault) == ZT_E_ARG);
    CHECK(strstr(fault.text, "a.up has no master weights"));
    CHECK(zt_zero_set(r.zero, ZT_STATE_MOMENT, frozen, 0, 1, x, &fault) == ZT_E_ARG);
    close_rank(&r);
}

static void test_state_that_is_not_there_is_refused_by_name(void **state)
{
    struct job j = make_job(2, 2, ZT_F32);

    (void)state;
    run_job(&j, absent_rank);
}

/* ---- a parameter that is frozen in a block that is not ---- */

static void frozen_alone_rank(struct zt_comm *c)
{
    static float before[NET_T * NET_D], after[NET_T * NET_D], wte[2][NET_VOCAB * NET_D];
    const struct zt_param *p, *trained;
    struct zt_piece piece;
    double sums[2];
    struct rank r;
    int64_t begin, n;

    open_rank(&r, the_job, c);
    p = zt_model_find(r.model, "wpe");
    trained = zt_model_find(r.model, "wte");
    CHECK(p->block == trained->block && !p->block->frozen);
    DO(zt_zero_get(r.zero, ZT_STATE_VALUE, p, 0, p->numel, before, &fault));
    DO(zt_zero_get(r.zero, ZT_STATE_VALUE, trained, 0, trained->numel, wte[0], &fault));
    for (int step = 1; step < 4; step++)
        DO(train_step(&r, step, sums)); /* with weight decay */
    DO(zt_zero_get(r.zero, ZT_STATE_VALUE, p, 0, p->numel, after, &fault));
    DO(zt_zero_get(r.zero, ZT_STATE_VALUE, trained, 0, trained->numel, wte[1], &fault));
    CHECK(memcmp(before, after, sizeof(before)) == 0);
    CHECK(memcmp(wte[0], wte[1], sizeof(wte[0])) != 0);
    DO(run_pass(&r, ZT_MODE_TRAIN, 9, 0, my_rank, NULL));
    zt_zero_part(r.zero, p, &begin, &n);
    if (n > 0) { /* its room among the gradients and moments is as it was made */
        for (int k = 0; k < 2; k++) {
            DO(zt_state_acquire_around(r.zero, k ? ZT_STATE_MOMENT : ZT_STATE_GRADIENTS,
                                       p->block, p->offset_elems + begin, n, ZT_READ,
                                       &piece, &fault));
            for (int64_t i = begin; i < begin + n; i++)
                CHECK(*(float *)zt_piece_at(&piece, p->offset_elems + i) == 0);
            DO(zt_state_commit(&piece, ZT_OK, &fault));
        }
    }
    close_rank(&r);
}

static void test_a_parameter_that_is_frozen_alone_is_not_touched(void **state)
{
    (void)state;
    for (int stage = 0; stage < 4; stage++) {
        struct job j = make_job(2, stage, stage & 1 ? ZT_F32 : ZT_BF16);

        run_job(&j, frozen_alone_rank);
    }
}

/* ---- acquire and commit ---- */

static void failing_rank(struct zt_comm *c)
{
    struct zt_piece piece;
    const struct zt_block *b;
    struct rank r;
    int64_t begin, n;

    open_rank(&r, the_job, c);
    b = zt_model_find(r.model, "a.up")->block;
    zt_state_held(r.zero, ZT_STATE_MOMENT, b, &begin, &n);
    DO(zt_state_acquire(r.zero, ZT_STATE_MOMENT, b, begin, n, ZT_READ_WRITE, &piece,
                        &fault));
    CHECK(piece.n == 4096);
    *(float *)piece.data = 7;
    CHECK(zt_state_commit(&piece, ZT_E_NUMERIC, &fault) == ZT_E_NUMERIC);
    CHECK(zt_state_commit(&piece, ZT_OK, &fault) == ZT_OK); /* it is given back already */
    DO(zt_state_acquire(r.zero, ZT_STATE_MOMENT, b, begin, n, ZT_READ, &piece, &fault));
    CHECK(*(float *)piece.data == 0);
    DO(zt_state_commit(&piece, ZT_OK, &fault));
    close_rank(&r);
}

static void test_what_failed_is_not_written_back(void **state)
{
    struct job j = make_job(2, 2, ZT_F32);

    (void)state;
    j.on_host = true;
    j.o.sub_group_size = 4096;
    run_job(&j, failing_rank);
}

/* Ends by the assertion of zt_region_close(). */
static void forgetful_rank(struct zt_comm *c)
{
    struct zt_piece piece;
    const struct zt_block *b;
    struct rank r;
    int64_t begin, n;

    if (!freopen("/dev/null", "w", stderr))
        _exit(1);
    open_rank(&r, the_job, c);
    b = zt_model_find(r.model, "a.up")->block;
    zt_state_held(r.zero, ZT_STATE_MOMENT, b, &begin, &n);
    DO(zt_state_acquire(r.zero, ZT_STATE_MOMENT, b, begin, n, ZT_READ, &piece, &fault));
    zt_zero_close(r.zero);
}

static void test_a_piece_that_is_not_committed_ends_the_process(void **state)
{
    struct job j = make_job(1, 0, ZT_F32);
    struct group g;
    int status;

    (void)state;
    start_job(&g, &j, forgetful_rank);
    assert_int_equal(waitpid(g.pid[0], &status, 0), g.pid[0]);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    close(g.fd);
}

/* ---- lengths of pieces in files ---- */

#define EIGHTH ((int64_t)1 << 18) /* of the longest piece of blocks that are not long */

/* Blocks of a model on shapes alone. */
struct lengths {
    int num;
    int64_t elems[16]; /* 0: a block without parameters */
};

static struct lengths lengths_now;
static int lengths_flags; /* of each parameter */

static zt_err lengths_build(zt_model *m, void **self)
{
    *self = NULL;
    for (int i = 0; i < lengths_now.num; i++) {
        int64_t n = lengths_now.elems[i];
        char name[16];
        zt_block *b;

        snprintf(name, sizeof(name), "b%d", i);
        b = zt_model_block(m, name);
        snprintf(name, sizeof(name), "b%d.w", i);
        if (n)
            zt_block_param(b, name, ZT_SHAPE(n / 64, 64), ZT_ONES(), lengths_flags);
    }
    zt_model_set_hidden_size(m, 64);
    zt_model_set_max_tokens(m, 8);
    zt_model_set_vocab(m, 64);
    return zt_model_status(m);
}

/* The state of such a model in files; staged: of a device that does not reach host memory. */
static void open_lengths(struct rank *r, const struct job *j, struct lengths l,
                         bool staged)
{
    static struct zt_plugin plugin; /* the model's, as long as that is open */
    struct zt_model_config mc = {.compute_dtype = j->dtype};
    struct zt_zero_config cfg;

    plugin = net_plugin;
    plugin.build = lengths_build;
    *r = (struct rank){.j = j};
    lengths_now = l;
    DO(zt_model_open(&plugin, &mc, &r->model, &fault));
    zt_model_layout(r->model, j->world);
    DO(zt_backend_find("meta", &r->backend, &fault));
    DO(r->backend->open(0, 1, &r->device, &fault));
    cfg = zero_config(r);
    cfg.staged = staged;
    DO(zt_zero_open(&cfg, &r->zero, &fault));
}

static void close_lengths(struct rank *r)
{
    zt_zero_close(r->zero);
    r->backend->close(r->device);
    zt_model_close(r->model);
}

/* The length of pieces of the state of such a model in files, on `world` ranks; INT64_MAX: none of
 * it is there. */
static int64_t piece_of(int world, struct lengths l)
{
    struct job j = make_job(world, 2, ZT_BF16);
    struct rank r;
    int64_t least = INT64_MAX;

    j.dir = ".";
    j.pipeline = true;
    open_lengths(&r, &j, l, false);
    for (int i = 0; i < l.num; i++)
        for (int kind = ZT_STATE_MASTER; kind <= ZT_STATE_MOMENT + 1; kind++) {
            int64_t n = zt_state_piece_elems(r.zero, kind, r.model->blocks[i]);

            least = n < least ? n : least;
        }
    close_lengths(&r);
    return least;
}

static void test_pieces_in_files_cut_blocks_evenly(void **state)
{
    int64_t align = ZT_SHARD_ALIGN, layer = 7 * EIGHTH, longest = 8 * EIGHTH;
    struct lengths layers = {13, {38 * EIGHTH}};

    (void)state;
    /* a long block and twelve layers: 18 pieces of a layer's length, rather than 17 longer ones */
    for (int i = 1; i < layers.num; i++)
        layers.elems[i] = layer;
    assert_int_equal(piece_of(1, layers), layer);
    /* one block alone, in three */
    assert_int_equal(piece_of(1, (struct lengths){1, {18 * EIGHTH}}), 6 * EIGHTH);
    assert_int_equal(piece_of(1, (struct lengths){1, {18 * EIGHTH + 3 * align}}),
                     6 * EIGHTH + align);
    /* not as short as a short block's */
    assert_int_equal(piece_of(1, (struct lengths){2, {longest, EIGHTH}}), longest);
    assert_int_equal(piece_of(1, (struct lengths){2, {2 * EIGHTH, EIGHTH}}), 2 * EIGHTH);
    /* what a rank has of it */
    assert_int_equal(piece_of(2, (struct lengths){1, {18 * EIGHTH}}), 9 * EIGHTH / 2);
    assert_int_equal(piece_of(1, (struct lengths){1, {longest + align}}),
                     longest / 2 + align);
}

/* So that there are no more of them the longer blocks are. */
static void test_pieces_of_long_blocks_are_longer(void **state)
{
    int64_t longest = 8 * EIGHTH;

    (void)state;
    assert_int_equal(piece_of(1, (struct lengths){1, {16 * longest}}), longest);
    assert_int_equal(piece_of(1, (struct lengths){1, {32 * longest}}), 2 * longest);
    assert_int_equal(piece_of(4, (struct lengths){1, {128 * longest}}), 2 * longest);
    assert_int_equal(piece_of(1, (struct lengths){1, {128 * longest}}), 4 * longest);
}

static void test_blocks_without_state_in_files_have_no_piece(void **state)
{
    (void)state;
    assert_int_equal(piece_of(1, (struct lengths){3, {0, 18 * EIGHTH, 0}}), 6 * EIGHTH);
    assert_int_equal(piece_of(2, (struct lengths){2, {0, 2 * EIGHTH}}), EIGHTH);
    lengths_flags = ZT_FROZEN;
    assert_true(piece_of(1, (struct lengths){2, {EIGHTH, 0}}) == INT64_MAX);
    lengths_flags = 0;
}

/* ---- weights in host memory and in files ---- */

#define LEAST ((int64_t)ZT_SHARD_ALIGN)

/* Weights of two ranks whose shards are 4, 2, 8 and 1 times LEAST; a small block between them stays
 * whole on the device. Where up to `most` elements may be in host memory, `in_host` are; the first
 * `first` of the four, and the others are in files. */
static void place_weights(int64_t most, int first, int64_t in_host, bool staged)
{
    const struct lengths l = {5,
                              {8 * LEAST, LEAST / 2, 4 * LEAST, 16 * LEAST, 2 * LEAST}};
    struct job j = make_job(2, 3, ZT_BF16);
    struct zt_zero_bytes bytes;
    size_t width = sizeof(uint16_t);
    struct rank r;

    j.dir = ".";
    j.weights_too = true;
    j.in_reach = !staged;
    j.weights_in_host = most;
    j.o.param_persistence_threshold = LEAST;
    open_lengths(&r, &j, l, staged);
    for (int i = 0, n = 0; i < l.num; i++) {
        zt_store_kind want = i == 1        ? ZT_STORE_DEVICE
                             : n++ < first ? ZT_STORE_HOST
                                           : ZT_STORE_OFFLOADED;

        assert_int_equal(r.zero->regions[ZT_STATE_WEIGHTS].in[i], want);
        assert_true(zt_state_has(r.zero, ZT_STATE_WEIGHTS, r.model->blocks[i]));
        /* state of the optimizer is where it would be without */
        assert_int_equal(r.zero->regions[ZT_STATE_MASTER].in[i], ZT_STORE_OFFLOADED);
    }
    bytes = zt_zero_measure(r.zero);
    assert_int_equal(bytes.weights_in_host, (size_t)in_host * width);
    assert_int_equal(bytes.in[ZT_PLACE_FILE].weights,
                     (size_t)(15 * LEAST - in_host) * width);
    if (first ==
        4) { /* the block that is whole, and two buffers where pieces are copied */
        size_t device = 2 * LEAST + (staged ? 2 * JOB_WEIGHTS_PIECE : 0);

        assert_int_equal(bytes.in[ZT_PLACE_DEVICE].weights, device * width);
        assert_int_equal(bytes.in[staged ? ZT_PLACE_PINNED : ZT_PLACE_HOST].weights,
                         bytes.weights_in_host);
    }
    close_lengths(&r);
}

static void test_the_first_weights_that_fit_stay_in_host_memory(void **state)
{
    static const struct {
        int64_t most;
        int first;
        int64_t in_host;
    } cases[] = {{0, 0, 0},
                 {4 * LEAST - 1, 0, 0}, /* nor is the second, which would fit */
                 {4 * LEAST, 1, 4 * LEAST},
                 {6 * LEAST - 1, 1, 4 * LEAST},
                 {6 * LEAST, 2, 6 * LEAST},
                 {7 * LEAST, 2, 6 * LEAST}, /* nor is the last, which would fit */
                 {14 * LEAST, 3, 14 * LEAST},
                 {15 * LEAST, 4, 15 * LEAST}, /* none is in files */
                 {INT64_MAX, 4, 15 * LEAST}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        for (int staged = 0; staged < 2; staged++)
            place_weights(cases[i].most, cases[i].first, cases[i].in_host, staged);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state_on_the_host_and_in_files_trains_to_the_same_bits),
        cmocka_unit_test(test_state_is_counted_where_it_is),
        cmocka_unit_test(test_state_that_is_worked_on_in_place_stays_on_the_device),
        cmocka_unit_test(test_state_of_every_kind_can_be_taken_out_and_put_back),
        cmocka_unit_test(test_gradients_are_those_of_all_ranks_at_every_stage),
        cmocka_unit_test(test_state_that_is_not_there_is_refused_by_name),
        cmocka_unit_test(test_a_parameter_that_is_frozen_alone_is_not_touched),
        cmocka_unit_test(test_what_failed_is_not_written_back),
        cmocka_unit_test(test_a_piece_that_is_not_committed_ends_the_process),
        cmocka_unit_test(test_pieces_in_files_cut_blocks_evenly),
        cmocka_unit_test(test_pieces_of_long_blocks_are_longer),
        cmocka_unit_test(test_blocks_without_state_in_files_have_no_piece),
        cmocka_unit_test(test_the_first_weights_that_fit_stay_in_host_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
