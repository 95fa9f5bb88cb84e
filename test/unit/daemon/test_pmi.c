/* The PMI server answers what MPI libraries ask, and survives whatever else it hears. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "worker/daemon/pmi.h"

#define WORLD 3

/* What the server sent, rank by rank. */
static char heard[WORLD][1 << 16];
static size_t heard_len[WORLD];
static bool refuse; /* nothing can be sent */

static bool hear(void *arg, int rank, const char *line, size_t n)
{
    assert_ptr_equal(arg, heard);
    assert_in_range(rank, 0, WORLD - 1);
    assert_true(n > 0 && n < ZT_PMI_LINE && line[n - 1] == '\n');
    if (heard_len[rank] + n < sizeof(heard[rank])) {
        memcpy(heard[rank] + heard_len[rank], line, n);
        heard_len[rank] += n;
        heard[rank][heard_len[rank]] = 0;
    }
    return !refuse;
}

static struct zt_pmi *open_server(const char *name)
{
    struct zt_pmi_config cfg = {
        .local = WORLD, .world = WORLD, .name = name, .send = hear, .arg = heard};
    struct zt_pmi *p = NULL;

    refuse = false;
    for (int r = 0; r < WORLD; r++)
        heard[r][heard_len[r] = 0] = 0;
    assert_int_equal(zt_pmi_open(&cfg, &p, NULL), ZT_OK);
    return p;
}

/* Rank says `line`; these are the answers to it. */
static void ask(struct zt_pmi *p, int rank, const char *line, const char *answer)
{
    heard[rank][heard_len[rank] = 0] = 0;
    assert_int_equal(zt_pmi_feed(p, rank, line, strlen(line)), ZT_PMI_FINE);
    assert_string_equal(heard[rank], answer);
}

static void start(struct zt_pmi *p, int rank)
{
    ask(p, rank, "cmd=init pmi_version=1 pmi_subversion=1\n",
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
}

/* ------------------------------------------------------------------ several nodes */
static char fenced[4096];
static int num_fences;

static void note_fence(void *arg, const char *pairs, size_t n)
{
    assert_ptr_equal(arg, heard);
    assert_true(n < sizeof(fenced));
    memcpy(fenced, pairs, n);
    fenced[n] = 0;
    num_fences++;
}

/* Ranks 1 and 2 of 3 are here. */
static struct zt_pmi *open_part(void)
{
    struct zt_pmi_config cfg = {.first = 1,
                                .local = 2,
                                .world = WORLD,
                                .name = "job",
                                .mapping = "(vector,(0,1,1),(1,1,2))",
                                .send = hear,
                                .fence = note_fence,
                                .arg = heard};
    struct zt_pmi *p = NULL;

    refuse = false;
    num_fences = 0;
    for (int r = 0; r < WORLD; r++)
        heard[r][heard_len[r] = 0] = 0;
    assert_int_equal(zt_pmi_open(&cfg, &p, NULL), ZT_OK);
    start(p, 1);
    start(p, 2);
    return p;
}

static void nodes_exchange_what_ranks_left_at_a_barrier(void **state)
{
    static const char others[] = "A0=from elsewhere\nB=later\n";
    struct zt_pmi *p = open_part();

    (void)state;
    ask(p, 1, "cmd=get_universe_size\n", "cmd=universe_size size=3\n");
    ask(p, 1, "cmd=get key=PMI_process_mapping\n",
        "cmd=get_result rc=0 msg=success value=(vector,(0,1,1),(1,1,2))\n");
    ask(p, 1, "cmd=put kvsname=zlaunch-job key=A1 value=x=1\n",
        "cmd=put_result rc=0 msg=success\n");
    ask(p, 2, "cmd=put kvsname=zlaunch-job key=A2 value=y\n",
        "cmd=put_result rc=0 msg=success\n");
    ask(p, 1, "cmd=barrier_in\n", "");
    assert_int_equal(num_fences, 0);
    assert_int_equal(zt_pmi_release(p, NULL), ZT_E_FORMAT); /* rank 2 is not there yet */
    ask(p, 2, "cmd=barrier_in\n", "");
    assert_int_equal(num_fences, 1);
    assert_string_equal(fenced, "A1=x=1\nA2=y\n");
    assert_int_equal(zt_pmi_merge(p, fenced, strlen(fenced), NULL),
                     ZT_OK); /* ours, too */
    assert_int_equal(zt_pmi_merge(p, others, strlen(others), NULL), ZT_OK);
    assert_int_equal(zt_pmi_release(p, NULL), ZT_OK);
    assert_string_equal(heard[1], "cmd=barrier_out\n");
    assert_string_equal(heard[2], "cmd=barrier_out\n");
    ask(p, 2, "cmd=get kvsname=zlaunch-job key=A0\n",
        "cmd=get_result rc=0 msg=success value=from elsewhere\n");
    ask(p, 2, "cmd=get kvsname=zlaunch-job key=A1\n",
        "cmd=get_result rc=0 msg=success value=x=1\n");
    ask(p, 1, "cmd=barrier_in\n", "");
    ask(p, 2, "cmd=barrier_in\n", "");
    assert_int_equal(num_fences, 2);
    assert_string_equal(fenced, ""); /* told once */
    zt_pmi_close(p);
}

static void pairs_of_other_nodes_are_checked(void **state)
{
    static const char *const bad[] = {"A", "A\n", "=x\n", "A=x", "A=x\nB\n"};
    struct zt_pmi *p = open_part();
    char line[2048];

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_int_equal(zt_pmi_merge(p, bad[i], strlen(bad[i]), NULL), ZT_E_FORMAT);
    assert_int_equal(zt_pmi_merge(p, "A=\0\n", 4, NULL), ZT_E_FORMAT);
    memset(line, 'v', sizeof(line));
    memcpy(line, "A=", 2);
    line[2 + ZT_PMI_VALUE] = '\n';
    assert_int_equal(zt_pmi_merge(p, line, 3 + ZT_PMI_VALUE, NULL), ZT_E_LIMIT);
    line[1 + ZT_PMI_VALUE] = '\n';
    assert_int_equal(zt_pmi_merge(p, line, 2 + ZT_PMI_VALUE, NULL), ZT_OK);
    /* such a key could not be told to the others */
    ask(p, 1, "cmd=put key=a=b value=c\n", "cmd=put_result rc=-1 msg=bad_key\n");
    zt_pmi_close(p);
}

/* ------------------------------------------------------------------ the language */
static void the_story_of_a_rank_of_mpich(void **state)
{
    struct zt_pmi *p = open_server("job 7");

    (void)state;
    assert_false(zt_pmi_needs_finalize(p, 0));
    start(p, 0);
    assert_true(zt_pmi_needs_finalize(p, 0));
    ask(p, 0, "cmd=get_maxes\n",
        "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n");
    ask(p, 0, "cmd=get_appnum\n", "cmd=appnum appnum=0\n");
    ask(p, 0, "cmd=get_universe_size\n", "cmd=universe_size size=3\n");
    ask(p, 0, "cmd=get_my_kvsname\n", "cmd=my_kvsname kvsname=zlaunch-job_7\n");
    ask(p, 0, "cmd=get kvsname=zlaunch-job_7 key=PMI_process_mapping\n",
        "cmd=get_result rc=0 msg=success value=(vector,(0,1,3))\n");
    ask(p, 0, "cmd=put kvsname=zlaunch-job_7 key=-bcast-1-0 value=a=b\n",
        "cmd=put_result rc=0 msg=success\n");
    start(p, 1);
    ask(p, 1, "cmd=get kvsname=zlaunch-job_7 key=-bcast-1-0\n",
        "cmd=get_result rc=0 msg=success value=a=b\n");
    ask(p, 1, "cmd=get kvsname=zlaunch-job_7 key=-bcast-1-1\n",
        "cmd=get_result rc=-1 msg=not_found value=unknown\n");
    ask(p, 0, "cmd=put kvsname=zlaunch-job_7 key=-bcast-1-0 value=again\n",
        "cmd=put_result rc=0 msg=success\n");
    ask(p, 1, "cmd=get kvsname=zlaunch-job_7 key=-bcast-1-0\n",
        "cmd=get_result rc=0 msg=success value=again\n");
    ask(p, 0, "cmd=finalize\n", "cmd=finalize_ack\n");
    assert_false(zt_pmi_needs_finalize(p, 0));
    assert_true(zt_pmi_needs_finalize(p, 1));
    zt_pmi_close(p);
}

static void a_barrier_opens_for_all_when_the_last_has_come(void **state)
{
    struct zt_pmi *p = open_server("j");

    (void)state;
    for (int r = 0; r < WORLD; r++)
        start(p, r);
    for (int round = 0; round < 3; round++) {
        ask(p, 2, "cmd=barrier_in\n", "");
        ask(p, 0, "cmd=barrier_in\n", "");
        ask(p, 1, "cmd=barrier_in\n", "cmd=barrier_out\n");
        for (int r = 0; r < WORLD; r++) {
            assert_string_equal(heard[r], "cmd=barrier_out\n");
            heard[r][heard_len[r] = 0] = 0;
        }
    }
    zt_pmi_close(p);
}

static void a_line_may_come_byte_by_byte_and_several_at_once(void **state)
{
    static const char line[] = "cmd=get_appnum\n";
    struct zt_pmi *p = open_server("j");

    (void)state;
    start(p, 1);
    heard[1][heard_len[1] = 0] = 0;
    for (size_t i = 0; line[i]; i++) {
        assert_string_equal(heard[1], "");
        assert_int_equal(zt_pmi_feed(p, 1, line + i, 1), ZT_PMI_FINE);
    }
    assert_string_equal(heard[1], "cmd=appnum appnum=0\n");
    ask(p, 1, "cmd=get_appnum\ncmd=get_universe_size\ncmd=get_app",
        "cmd=appnum appnum=0\ncmd=universe_size size=3\n");
    ask(p, 1, "num extra=1 word\n", "cmd=appnum appnum=0\n");
    zt_pmi_close(p);
}

static void abort_is_passed_on(void **state)
{
    struct zt_pmi *p = open_server("j");

    (void)state;
    start(p, 0);
    start(p, 1);
    assert_int_equal(zt_pmi_feed(p, 0, "cmd=abort exitcode=3\n", 21), ZT_PMI_ABORT);
    assert_int_equal(zt_pmi_abort_code(p, 0), 3);
    assert_int_equal(zt_pmi_feed(p, 1, "cmd=abort exitcode=0\n", 21), ZT_PMI_ABORT);
    assert_int_equal(zt_pmi_abort_code(p, 1), 1); /* an abort is no success */
    assert_int_equal(zt_pmi_abort_code(p, 2), 0);
    assert_int_equal(zt_pmi_feed(p, 0, "cmd=abort exitcode=1091087\n", 27), ZT_PMI_ABORT);
    assert_int_equal(zt_pmi_abort_code(p, 0), 71); /* an error code of MPICH's own */
    assert_true(zt_pmi_needs_finalize(p, 0));
    zt_pmi_close(p);
}

static void what_it_does_not_offer_is_refused_by_name(void **state)
{
    struct zt_pmi *p = open_server("j");

    (void)state;
    start(p, 0);
    ask(p, 0, "cmd=publish_name service=s port=p\n",
        "cmd=publish_result rc=-1 msg=unsupported\n");
    ask(p, 0, "cmd=lookup_name service=s\n", "cmd=lookup_result rc=-1 msg=unsupported\n");
    ask(p, 0, "cmd=put kvsname=other key=a value=b\n",
        "cmd=put_result rc=-1 msg=unknown_kvsname\n");
    ask(p, 0, "cmd=put kvsname=zlaunch-j key=a\n",
        "cmd=put_result rc=-1 msg=incomplete\n");
    ask(p, 0, "cmd=get kvsname=other key=PMI_process_mapping\n",
        "cmd=get_result rc=-1 msg=not_found value=unknown\n");
    ask(p, 1, "cmd=init pmi_version=2 pmi_subversion=0\n",
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n");
    zt_pmi_close(p);
}

/* ------------------------------------------------------------------ bounds */
static void keys_and_values_have_bounds(void **state)
{
    struct zt_pmi *p = open_server("j");
    char line[2 * ZT_PMI_VALUE], value[2 * ZT_PMI_VALUE];

    (void)state;
    start(p, 0);
    memset(value, 'v', sizeof(value));
    value[ZT_PMI_VALUE - 1] = 0;
    snprintf(line, sizeof(line), "cmd=put kvsname=zlaunch-j key=k value=%s\n", value);
    ask(p, 0, line, "cmd=put_result rc=0 msg=success\n");
    value[ZT_PMI_VALUE - 1] = 'v';
    value[ZT_PMI_VALUE] = 0;
    snprintf(line, sizeof(line), "cmd=put kvsname=zlaunch-j key=k value=%s\n", value);
    ask(p, 0, line, "cmd=put_result rc=-1 msg=too_long\n");
    value[ZT_PMI_KEY] = 0;
    snprintf(line, sizeof(line), "cmd=put kvsname=zlaunch-j key=%s value=x\n", value);
    ask(p, 0, line, "cmd=put_result rc=-1 msg=too_long\n");
    for (int i = 0; i < ZT_PMI_MAX_KEYS; i++) { /* "k" and the mapping are there */
        snprintf(line, sizeof(line), "cmd=put kvsname=zlaunch-j key=k%d value=x\n", i);
        ask(p, 0, line,
            i < ZT_PMI_MAX_KEYS - 2 ? "cmd=put_result rc=0 msg=success\n"
                                    : "cmd=put_result rc=-1 msg=too_many_keys\n");
    }
    ask(p, 0, "cmd=get kvsname=zlaunch-j key=k65000\n",
        "cmd=get_result rc=0 msg=success value=x\n");
    zt_pmi_close(p);
}

static void one_that_breaks_the_rules_is_not_heard_again(void **state)
{
    static const char *const bad[] = {
        "hello\n",
        "key=value\n",
        "\n",
        "cmd=spawn\n",
        "mcmd=spawn\n",
        "cmd=\n",
        "cmd=barrier_in\ncmd=barrier_in\n",
    };
    struct zt_pmi *p;
    char lines[2 * ZT_PMI_LINE];

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        p = open_server("j");
        start(p, 0);
        start(p, 1);
        assert_int_equal(zt_pmi_feed(p, 0, bad[i], strlen(bad[i])), ZT_PMI_BAD);
        heard[0][heard_len[0] = 0] = 0;
        assert_int_equal(zt_pmi_feed(p, 0, "cmd=get_appnum\n", 15), ZT_PMI_BAD);
        assert_string_equal(heard[0], "");
        ask(p, 1, "cmd=get_appnum\n", "cmd=appnum appnum=0\n"); /* others are */
        zt_pmi_close(p);
    }
    p = open_server("j");
    assert_int_equal(zt_pmi_feed(p, 0, "cmd=get_appnum\n", 15), ZT_PMI_BAD); /* no init */
    start(p, 1);
    assert_int_equal(zt_pmi_feed(p, 1, "cmd=get_appnum\0\n", 16), ZT_PMI_BAD);
    start(p, 2);
    memset(lines, 'x', sizeof(lines));
    assert_int_equal(zt_pmi_feed(p, 2, lines, sizeof(lines)), ZT_PMI_BAD); /* no end */
    zt_pmi_close(p);
    p = open_server("j");
    start(p, 0);
    refuse = true; /* its socket is full: it asks and does not read */
    assert_int_equal(zt_pmi_feed(p, 0, "cmd=get_appnum\n", 15), ZT_PMI_BAD);
    zt_pmi_close(p);
}

/* Random lines made of the language's own words, and random bytes. */
static void random_input_harms_nobody(void **state)
{
    static const char *const words[] = {
        "cmd=init",
        "pmi_version=1",
        "cmd=put",
        "cmd=get",
        "kvsname=zlaunch-j",
        "key=a",
        "key=",
        "value=1",
        "value=",
        "=",
        "cmd=barrier_in",
        "\n",
        "\n",
        "\n",
        " ",
        "  ",
        "cmd=finalize",
        "cmd",
        "cmd=get_maxes",
        "cmd=cmd=",
        "rank=99",
        "cmd=publish_name",
        "key=PMI_process_mapping",
    };
    uint64_t seed = 12345;

    (void)state;
    for (int round = 0; round < 3000; round++) {
        struct zt_pmi *p = open_server("j");

        for (int r = 0; r < WORLD - 1; r++) /* rank 2 speaks well later */
            start(p, r);
        for (int i = 0; i < 40; i++) {
            char junk[64];
            const char *say = junk;
            size_t n = 1 + (seed >> 40) % sizeof(junk);

            seed = seed * 6364136223846793005u + 1442695040888963407u;
            if (round % 3) {
                say = words[(seed >> 33) % (sizeof(words) / sizeof(*words))];
                n = strlen(say);
            } else {
                for (size_t k = 0; k < n; k++) {
                    seed = seed * 6364136223846793005u + 1442695040888963407u;
                    junk[k] = (char)(seed >> 56);
                }
            }
            (void)zt_pmi_feed(p, (int)(seed >> 62) % 2, say, n);
            if (round % 3)
                (void)zt_pmi_feed(p, (int)(seed >> 62) % 2, " ", 1);
        }
        start(p, 2);
        ask(p, 2, "cmd=get kvsname=zlaunch-j key=nothing\n",
            "cmd=get_result rc=-1 msg=not_found value=unknown\n");
        zt_pmi_close(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_story_of_a_rank_of_mpich),
        cmocka_unit_test(nodes_exchange_what_ranks_left_at_a_barrier),
        cmocka_unit_test(pairs_of_other_nodes_are_checked),
        cmocka_unit_test(a_barrier_opens_for_all_when_the_last_has_come),
        cmocka_unit_test(a_line_may_come_byte_by_byte_and_several_at_once),
        cmocka_unit_test(abort_is_passed_on),
        cmocka_unit_test(what_it_does_not_offer_is_refused_by_name),
        cmocka_unit_test(keys_and_values_have_bounds),
        cmocka_unit_test(one_that_breaks_the_rules_is_not_heard_again),
        cmocka_unit_test(random_input_harms_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
