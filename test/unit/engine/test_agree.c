/* Ranks that were given different things say so, all in the same words. */
#include "test/unit/comm/ranks.h"

#include "test/unit/data/files.h"
#include "worker/engine/agree.h"

/* ---- what ranks say ---- */

static const char *texts[MAX_RANKS]; /* of each rank */
static const char *expected;         /* NULL: they agree */

static void agree_rank(struct zt_comm *c)
{
    float x = 1;
    zt_err rc = zt_agree(c, "the config", texts[my_rank], &fault);

    if (expected && (rc != ZT_E_PEER || strcmp(fault.text, expected) != 0)) {
        fprintf(stderr, "rank %d: code %d: %s\n   not: %s\n", my_rank, (int)rc,
                rc ? fault.text : "", expected);
        _exit(1);
    }
    CHECK(expected || rc == ZT_OK);
    /* nobody has lost step */
    DO(zt_all_reduce(c, &x, &x, 1, ZT_F32, ZT_SUM, 1, &fault));
    CHECK(x == (float)zt_comm_world(c));
}

/* Each of `world` ranks finds `message`; NULL: no difference. */
static void ranks_say(int world, const char *message)
{
    struct group g = {.world = world};

    expected = message;
    make_fd(&g);
    for (int r = 0; r < world; r++)
        start_rank(&g, r, true, agree_rank);
    assert_ranks_end_well(&g);
}

#define SAYS(who, its, zeros)                                                            \
    who " differs from rank 0 in the config: it has \"" its                              \
        "\" where rank 0 has \"" zeros "\"; start all ranks with the same"

static void test_equal_texts_agree(void **state)
{
    char *long_text = malloc(100001);

    (void)state;
    memset(long_text, 'x', 100000);
    long_text[100000] = 0;
    for (int r = 0; r < 4; r++)
        texts[r] = "stage: 1\nlr: 2\n";
    ranks_say(1, NULL);
    ranks_say(4, NULL);
    for (int r = 0; r < 4; r++)
        texts[r] = "";
    ranks_say(3, NULL);
    for (int r = 0; r < 4; r++)
        texts[r] = long_text;
    ranks_say(2, NULL);
    free(long_text);
}

static void test_the_first_rank_and_line_that_differ_are_named(void **state)
{
    (void)state;
    texts[0] = texts[1] = "a: 0\nstage: 1\nz: 1\n";
    texts[2] = "a: 0\nstage: 2\nz: 2\n";
    texts[3] = texts[0];
    ranks_say(4, SAYS("rank 2", "stage: 2", "stage: 1"));
    texts[3] = "b";
    ranks_say(4, SAYS("rank 2 (and 1 more)", "stage: 2", "stage: 1"));
    texts[1] = "a: 0\nstage: 1\nz: 1\n\n";
    ranks_say(2, SAYS("rank 1", "(nothing)", "(nothing)"));
}

static void test_a_text_that_ends_early_is_told(void **state)
{
    (void)state;
    texts[0] = "a: 0\nstage: 1\n";
    texts[1] = "a: 0\n";
    ranks_say(2, SAYS("rank 1", "(nothing)", "stage: 1"));
    texts[0] = "a: 0\n";
    texts[1] = "a: 0\nstage: 1\n";
    ranks_say(2, SAYS("rank 1", "stage: 1", "(nothing)"));
    texts[0] = "";
    ranks_say(2, SAYS("rank 1", "a: 0", "(nothing)"));
    texts[0] = "a: 0\nstage: 10";
    ranks_say(2, SAYS("rank 1", "stage: 1", "stage: 10"));
}

static void test_a_line_that_one_lacks_is_told(void **state)
{
    (void)state;
    texts[0] = "a: 0\nstage: 1\nz: 1\n";
    texts[1] = "a: 0\nb: 7\nstage: 1\nz: 1\n";
    ranks_say(2, SAYS("rank 1", "b: 7", "(nothing)"));
    texts[1] = "a: 0\nz: 1\n";
    ranks_say(2, SAYS("rank 1", "(nothing)", "stage: 1"));
}

/* The message for a difference at byte `at` of a text of `lines` lines of 99 and a \n. */
static void differ_at(size_t lines, size_t at)
{
    char *a = malloc(lines * 100 + 1), *b, line[2][100], message[1024];
    size_t from = at / 100 * 100;

    for (size_t i = 0; i < lines * 100; i++)
        a[i] = i % 100 == 99 ? '\n' : (char)('a' + mix(1, 2, i) % 26);
    a[lines * 100] = 0;
    b = strdup(a);
    b[at] = '#';
    snprintf(line[0], sizeof(line[0]), "%.99s", a + from);
    snprintf(line[1], sizeof(line[1]), "%.99s", b + from);
    snprintf(message, sizeof(message), SAYS("rank 1", "%s", "%s"), line[1], line[0]);
    texts[0] = a;
    texts[1] = b;
    ranks_say(2, message);
    free(a);
    free(b);
}

static void test_a_difference_anywhere_in_a_long_text_is_found(void **state)
{
    static const size_t places[] = {0, 98, 100, 16383, 16384, 16385, 40000, 49998};

    (void)state;
    /* pieces are 16384 bytes, so the line of 16384 lies in two of them */
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
        differ_at(500, places[i]);
}

static void test_long_lines_are_cut_around_the_difference(void **state)
{
    char a[1200], b[1200], message[2048], dots[2][301];

    (void)state;
    memset(a, 'x', sizeof(a) - 1);
    a[sizeof(a) - 1] = 0;
    memcpy(b, a, sizeof(a));
    b[5] = 'y';
    texts[0] = a;
    texts[1] = b;
    snprintf(message, sizeof(message), SAYS("rank 1", "%.300s", "%.300s"), b, a);
    ranks_say(2, message);
    b[5] = 'x';
    b[900] = 'y';
    snprintf(dots[0], sizeof(dots[0]), "...%.297s", a + 800);
    snprintf(dots[1], sizeof(dots[1]), "...%.297s", b + 800);
    snprintf(message, sizeof(message), SAYS("rank 1", "%s", "%s"), dots[1], dots[0]);
    ranks_say(2, message);
}

static void test_a_cut_leaves_no_half_character(void **state)
{
    char a[400] = "", b[400] = "", message[1024], line[2][300];

    (void)state;
    strcpy(a, "ab"); /* then characters of 3 bytes: the limit is inside of one */
    strcpy(b, "xb");
    for (int i = 0; i < 120; i++) {
        strcat(a, "\xe2\x82\xac");
        strcat(b, "\xe2\x82\xac");
    }
    snprintf(line[0], sizeof(line[0]), "%.299s", a);
    snprintf(line[1], sizeof(line[1]), "%.299s", b);
    texts[0] = a;
    texts[1] = b;
    snprintf(message, sizeof(message), SAYS("rank 1", "%s", "%s"), line[1], line[0]);
    ranks_say(2, message);
}

static void dying_rank(struct zt_comm *c)
{
    if (my_rank == 1) {
        zt_comm_abort(c, 1);
        _exit(0);
    }
    CHECK(zt_agree(c, "the config", texts[my_rank], &fault) == ZT_E_PEER);
    CHECK(!strstr(fault.text, "differs"));
}

static void test_a_dead_peer_is_that_and_no_difference(void **state)
{
    struct group g = {.world = 3};

    (void)state;
    for (int r = 0; r < 3; r++)
        texts[r] = "a";
    make_fd(&g);
    for (int r = 0; r < 3; r++)
        start_rank(&g, r, true, dying_rank);
    assert_ranks_end_well(&g);
}

/* ---- texts of models ---- */

struct shape {
    int64_t rows;
    float deviation;
    unsigned flags;
    const char *name;
    bool tied;
};

static struct shape shape; /* what build() declares */

static zt_err build(zt_model *m, void **self)
{
    zt_block *a = zt_model_block(m, "a"), *b = zt_model_block(m, "b");
    zt_param *w = zt_block_param(a, "a.w", ZT_SHAPE(shape.rows, 4),
                                 ZT_NORMAL(0, shape.deviation), shape.flags);

    *self = NULL;
    zt_block_param(b, shape.name, ZT_SHAPE(4), ZT_ZEROS(), ZT_NO_DECAY);
    if (shape.tied)
        zt_block_share(b, w);
    return zt_model_status(m);
}

static const struct zt_plugin plugin = {
    .abi = ZT_ABI, .struct_bytes = sizeof(plugin), .name = "toy", .build = build};

/* The caller frees. */
static char *model_text(struct shape s, int world)
{
    struct zt_model_config mc = {.compute_dtype = ZT_F32};
    struct zt_model *m = NULL;
    char *text = NULL;

    shape = s;
    assert_int_equal(zt_model_open(&plugin, &mc, &m, NULL), ZT_OK);
    zt_model_layout(m, world);
    assert_int_equal(zt_agree_model_text(m, &text, NULL), ZT_OK);
    zt_model_close(m);
    return text;
}

static void test_a_model_s_text_holds_all_that_build_declares(void **state)
{
    static const struct shape base = {3, 0.02f, 0, "b.b", true};
    static const struct shape others[] = {
        {4, 0.02f, 0, "b.b", true},         {3, 0.03f, 0, "b.b", true},
        {3, 0.02f, ZT_FROZEN, "b.b", true}, {3, 0.02f, ZT_NO_DECAY, "b.b", true},
        {3, 0.02f, 0, "b.c", true},         {3, 0.02f, 0, "b.b", false}};
    char *text = model_text(base, 1), *again = model_text(base, 3);

    (void)state;
    assert_string_equal(text,
                        "plugin toy\nhidden size 0\nvocabulary 0\n"
                        "field tokens: i32 (B, T), required, padded with 0\n"
                        "field targets: i32 (B, T), required, a label, padded with -100\n"
                        "loss divided by targets of targets\nblock a\n"
                        "parameter a.w: (3, 4), normal 0 0.0199999996\nblock b\n"
                        "parameter b.b: (4), no decay, zeros\nshares a.w\n");
    assert_string_equal(text, again);
    free(again);
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        char *other = model_text(others[i], 1);

        assert_string_not_equal(text, other);
        free(other);
    }
    free(text);
}

/* ---- texts of data ---- */

/* The caller frees. */
static char *data_text(const char *train, const char *eval, const char *format)
{
    struct zt_dataset *a = NULL, *b = NULL;
    char *text = NULL;

    assert_int_equal(zt_dataset_open((const char *[]){train, NULL}, format, 0, &a, NULL),
                     ZT_OK);
    if (eval)
        assert_int_equal(
            zt_dataset_open((const char *[]){eval, NULL}, format, 0, &b, NULL), ZT_OK);
    assert_int_equal(zt_agree_data_text(a, b, &text, NULL), ZT_OK);
    zt_dataset_close(a);
    zt_dataset_close(b);
    return text;
}

static void test_a_text_of_data_follows_contents_not_paths(void **state)
{
    const char *a = put_file("a.txt", "one two", 7),
               *same = put_file("b.txt", "one two", 7);
    const char *other = put_file("c.txt", "one tww", 7);
    char *ta = data_text(a, NULL, "text"), *tb = data_text(same, NULL, "text");
    char *tc = data_text(other, NULL, "text"), *td = data_text(a, same, "text");

    (void)state;
    assert_string_equal(ta, tb);
    assert_non_null(strstr(ta, "training data: 8 tokens of text\n"));
    assert_non_null(strstr(ta, "training data: vocabulary 257\n"));
    assert_non_null(strstr(ta, "evaluation data: none\n"));
    assert_string_not_equal(ta, tc);
    assert_string_not_equal(ta, td);
    free(ta);
    free(tb);
    free(tc);
    free(td);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_texts_agree),
        cmocka_unit_test(test_the_first_rank_and_line_that_differ_are_named),
        cmocka_unit_test(test_a_text_that_ends_early_is_told),
        cmocka_unit_test(test_a_line_that_one_lacks_is_told),
        cmocka_unit_test(test_a_difference_anywhere_in_a_long_text_is_found),
        cmocka_unit_test(test_long_lines_are_cut_around_the_difference),
        cmocka_unit_test(test_a_cut_leaves_no_half_character),
        cmocka_unit_test(test_a_dead_peer_is_that_and_no_difference),
        cmocka_unit_test(test_a_model_s_text_holds_all_that_build_declares),
        cmocka_unit_test_setup_teardown(test_a_text_of_data_follows_contents_not_paths,
                                        scratch_make, scratch_remove),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
