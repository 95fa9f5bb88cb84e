/* The first cause and the exit code, from what was noted in order of arrival. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "launcher/supervise/verdict.h"

static void ended(struct zt_notes *n, int rank, int code, int signal, bool asked)
{
    struct zt_rank_note *r = &n->ranks[rank];

    r->started = r->exited = true;
    r->pid = 100 + rank;
    r->order = n->num_exited++;
    r->code = code;
    r->signal = signal;
    r->stop_requested = asked;
}

static void reported(struct zt_notes *n, int rank, const char *text, bool peer)
{
    n->ranks[rank].fail = json_pack("{ss sb}", "text", text, "peer", peer);
}

/* Judge, compare, release. `text`: part of the sentence; NULL: there must be none. */
static void expect(struct zt_notes *n, int exit_code, int rank, const char *text)
{
    char *sentence, *evidence;
    struct zt_verdict v;

    zt_notes_judge(n, &v);
    assert_int_equal(v.exit_code, exit_code);
    assert_int_equal(v.rank ? v.rank->rank : -1, rank);
    zt_verdict_text(n, &v, &sentence, &evidence);
    if (text) {
        assert_non_null(sentence);
        assert_non_null(strstr(sentence, text));
    } else {
        assert_null(sentence);
    }
    free(sentence);
    free(evidence);
    zt_notes_release(n);
}

static struct zt_notes notes(int ranks)
{
    struct zt_notes n;

    assert_int_equal(zt_notes_init(&n, ranks, NULL), ZT_OK);
    return n;
}

static void all_well_is_silent_success(void **state)
{
    struct zt_notes n = notes(2);

    (void)state;
    ended(&n, 0, 0, 0, false);
    ended(&n, 1, 0, 0, false);
    expect(&n, 0, -1, NULL);
}

static void the_first_rank_that_failed_by_itself_is_the_cause(void **state)
{
    struct zt_notes n = notes(3);

    (void)state;
    ended(&n, 1, 0, 0, false);
    ended(&n, 2, 7, 0, false);
    ended(&n, 0, 9, 0, true);
    expect(&n, 7, 2, "rank 2 (pid 102) exited with code 7");
}

/* What rank 0 found is told to the others, who report it as its. */
static void one_failure_that_all_report_is_said_once(void **state)
{
    struct zt_notes n = notes(3);
    char *sentence, *evidence;
    struct zt_verdict v;

    (void)state;
    for (int i = 0; i < 3; i++) {
        ended(&n, i, 66, 0, false);
        reported(&n, i,
                 i ? "--resume: rank 0: no checkpoint in out"
                   : "--resume: no checkpoint in out",
                 false);
    }
    zt_notes_judge(&n, &v);
    zt_verdict_text(&n, &v, &sentence, &evidence);
    assert_string_equal(sentence, "--resume: no checkpoint in out");
    assert_null(strstr(evidence, "no checkpoint"));
    free(sentence);
    free(evidence);
    json_decref(n.ranks[2].fail);
    reported(&n, 2, "rank 1: another reason", false);
    zt_verdict_text(&n, &v, &sentence, &evidence);
    assert_non_null(strstr(evidence, "rank 2 reported: rank 1: another reason"));
    free(sentence);
    free(evidence);
    zt_notes_release(&n);
}

/* SIGUSR1 to the ranks of a plugin: exit code 75 of all means that they have saved. */
static void ranks_that_saved_and_ended_are_no_failure(void **state)
{
    struct zt_notes n = notes(2);
    char *sentence, *evidence;
    struct zt_verdict v;

    (void)state;
    ended(&n, 0, 75, 0, false);
    ended(&n, 1, 75, 0, false);
    n.saves = true;
    n.asked_by = SIGUSR1;
    zt_notes_judge(&n, &v);
    assert_true(v.saved);
    assert_null(v.rank);
    assert_int_equal(v.exit_code, 75);
    zt_verdict_text(&n, &v, &sentence, &evidence);
    assert_non_null(strstr(sentence, "stopped by SIGUSR1"));
    assert_non_null(strstr(sentence, "the training is saved"));
    assert_string_equal(evidence, "");
    free(sentence);
    free(evidence);
    n.ranks[1].code = 0; /* rank 0 was faster, and this one was told to stop then */
    n.ranks[1].signal = SIGTERM;
    n.ranks[1].stop_requested = true;
    zt_notes_judge(&n, &v);
    assert_true(v.saved);
    assert_int_equal(v.exit_code, 75);
    n.saves = false; /* of another program it is a code like others */
    zt_notes_judge(&n, &v);
    assert_false(v.saved);
    assert_int_equal(v.rank->rank, 0);
    zt_notes_release(&n);
}

/* Each rank measures what its process takes. */
static void a_run_that_does_not_fit_is_said_once(void **state)
{
    static const char *const texts[] = {"this run needs 340 MiB, the process 15.5 MiB",
                                        "this run needs 341 MiB, the process 16 MiB",
                                        "this run needs 340 MiB for its files"};

    (void)state;
    for (int code = 70; code <= 78; code += 8)
        for (int other = 1; other < 3; other++) {
            struct zt_notes n = notes(2);
            char *sentence, *evidence;
            struct zt_verdict v;

            for (int i = 0; i < 2; i++) {
                ended(&n, i, code, 0, false);
                reported(&n, i, texts[i * other], false);
                json_object_set_new(n.ranks[i].fail, "exit_code", json_integer(code));
            }
            zt_notes_judge(&n, &v);
            zt_verdict_text(&n, &v, &sentence, &evidence);
            assert_int_equal(strstr(evidence, "rank 1 reported: ") == NULL,
                             code == 78 && other == 1);
            free(sentence);
            free(evidence);
            zt_notes_release(&n);
        }
}

/* 143 of a run that saves: it was to end, and is neither a failure of a rank nor to start again. */
static void ranks_that_could_not_save_were_stopped(void **state)
{
    struct zt_notes n = notes(2);
    struct zt_verdict v;

    (void)state;
    ended(&n, 1, 143, 0, false);
    ended(&n, 0, 0, SIGTERM, true);
    n.asked_by = SIGUSR1;
    zt_notes_judge(&n, &v);
    assert_false(v.unsaved); /* of another program it is a code like others */
    assert_int_equal(v.rank->rank, 1);
    n.saves = true;
    zt_notes_judge(&n, &v);
    assert_true(v.unsaved);
    assert_false(v.saved);
    reported(&n, 1, "it failed by itself", false);
    zt_notes_judge(&n, &v);
    assert_false(v.unsaved);
    json_decref(n.ranks[1].fail);
    n.ranks[1].fail = NULL;
    expect(&n, 143, -1,
           "stopped by SIGUSR1 to the ranks, and no checkpoint could be saved");
}

static void a_signal_is_128_and_its_number(void **state)
{
    struct zt_notes n = notes(2);

    (void)state;
    ended(&n, 0, 0, SIGSEGV, false);
    ended(&n, 1, 0, SIGTERM, true);
    expect(&n, 139, 0, "was killed by SIGSEGV");
}

static void a_rank_that_blames_another_is_not_the_cause(void **state)
{
    struct zt_notes n = notes(3);

    (void)state;
    reported(&n, 0, "rank 1 is gone", true);
    ended(&n, 0, 1, 0, false);
    ended(&n, 1, 0, SIGKILL, false);
    reported(&n, 2, "rank 1 is gone", true);
    ended(&n, 2, 1, 0, true);
    expect(&n, 137, 1, "rank 1 (pid 101) was killed by SIGKILL");
}

/* Both ranks ended because of the connection between them; neither had failed. */
static void a_lost_connection_is_the_cause_where_no_rank_failed(void **state)
{
    (void)state;
    for (int failure = 0; failure < 2; failure++) {
        struct zt_notes n = notes(3);

        reported(&n, 1, "rank 0 has failed", true);
        ended(&n, 1, 1, 0, false);
        n.ranks[0].fail = json_pack("{ss ss sb}", "code", zt_err_name(ZT_E_LOST), "text",
                                    "rank 1 on b is gone", "peer", true);
        ended(&n, 0, zt_err_exit_code(ZT_E_LOST), 0, false);
        ended(&n, 2, 0, failure ? SIGSEGV : SIGTERM, !failure);
        if (failure)
            expect(&n, 139, 2, "rank 2 (pid 102) was killed by SIGSEGV");
        else
            expect(&n, 69, 0, "rank 1 on b is gone");
    }
}

static void a_reported_code_beats_the_signal_that_stopped_the_rank(void **state)
{
    struct zt_notes n = notes(2);

    (void)state;
    n.ranks[1].fail =
        json_pack("{ss sb si}", "text", "no such key", "peer", false, "exit_code", 65);
    ended(&n, 1, 0, SIGTERM, true);
    ended(&n, 0, 0, SIGTERM, true);
    expect(&n, 65, 1, "no such key");
}

static void a_node_that_is_told_to_stop_saves_for_the_next_start(void **state)
{
    struct zt_notes n = notes(2);

    (void)state;
    zt_notes_node_lost(&n, "", "the node daemon was asked to stop", 128 + SIGTERM);
    ended(&n, 0, 75, 0, true);
    ended(&n, 1, 75, 0, true);
    expect(&n, 75, -1, "asked to stop");
    n = notes(2);
    zt_notes_node_lost(&n, "", "the node daemon was asked to stop", 128 + SIGHUP);
    ended(&n, 0, 75, 0, true);
    ended(&n, 1, 75, 0, true);
    expect(&n, 129, -1, "asked to stop");
}

static void a_victim_alone_is_believed(void **state)
{
    struct zt_notes n = notes(1);

    (void)state;
    reported(&n, 0, "rank 5 is gone", true);
    ended(&n, 0, 1, 0, false);
    expect(&n, 1, 0, "rank 5 is gone");
}

static void a_report_replaces_the_bare_code(void **state)
{
    struct zt_notes n = notes(2);

    (void)state;
    reported(&n, 0, "ds.json:1:2: unknown key", false);
    ended(&n, 0, 65, 0, false);
    reported(&n, 1, "ds.json:1:2: unknown key", false);
    ended(&n, 1, 65, 0, true);
    expect(&n, 65, 0, "ds.json:1:2: unknown key");
}

static void the_user_is_the_cause_unless_a_rank_failed_before(void **state)
{
    struct zt_notes n = notes(1);

    (void)state;
    n.stop = ZT_STOP_SIGNAL;
    n.stop_signal = SIGINT;
    n.stop_was_first = true;
    ended(&n, 0, 0, SIGTERM, true);
    expect(&n, 130, -1, "interrupted");

    n = notes(2);
    n.stop = ZT_STOP_SIGNAL;
    n.stop_signal = SIGINT;
    n.stop_was_first = n.saves = true;
    ended(&n, 0, 75, 0, true);
    ended(&n, 1, 75, 0, true);
    expect(&n, 130, -1, "interrupted; the training is saved: --resume_from_checkpoint");

    /* a later one of another run lies there: auto would take that */
    n = notes(1);
    n.stop = ZT_STOP_SIGNAL;
    n.stop_signal = SIGTERM;
    n.stop_was_first = n.saves = true;
    n.behind = 21;
    ended(&n, 0, 75, 0, true);
    expect(&n, 75, -1,
           "the training is saved: --resume_from_checkpoint checkpoint-21 goes on");

    /* between two starts: the one before has saved */
    n = notes(2);
    n.stop = ZT_STOP_SIGNAL;
    n.stop_signal = SIGTERM;
    n.stop_was_first = n.saves = n.saved_before = true;
    expect(&n, 75, -1, "the training is saved: --resume_from_checkpoint auto goes on");

    /* ranks that were started again had their own time to save */
    n = notes(2);
    n.stop = ZT_STOP_SIGNAL;
    n.stop_signal = SIGTERM;
    n.stop_was_first = n.saves = n.saved_before = true;
    ended(&n, 0, 0, SIGTERM, true);
    ended(&n, 1, 0, SIGTERM, true);
    expect(&n, 143, -1, "stopped by SIGTERM");

    n = notes(1);
    n.stop = ZT_STOP_SIGNAL;
    n.stop_signal = SIGINT;
    n.stop_was_first = n.stop_by_ctl = true;
    ended(&n, 0, 0, SIGTERM, true);
    expect(&n, 130, -1, "stopped by zlaunch --ctl");

    n = notes(1);
    ended(&n, 0, 3, 0, false);
    n.stop = ZT_STOP_SIGNAL;
    n.stop_signal = SIGINT;
    expect(&n, 3, 0, "exited with code 3");

    n = notes(1);
    n.stop = ZT_STOP_TIMEOUT;
    n.stop_was_first = true;
    ended(&n, 0, 0, SIGTERM, true);
    expect(&n, 124, -1, "--timeout");
}

static void sigterm_with_all_saved_asks_to_be_started_again(void **state)
{
    struct zt_notes n = notes(2);

    (void)state;
    n.stop = ZT_STOP_SIGNAL;
    n.stop_signal = SIGTERM;
    n.stop_was_first = true;
    ended(&n, 0, 75, 0, true);
    ended(&n, 1, 0, 0, true);
    expect(&n, 75, -1, "stopped by SIGTERM");

    n = notes(2);
    n.stop = ZT_STOP_SIGNAL;
    n.stop_signal = SIGTERM;
    n.stop_was_first = true;
    ended(&n, 0, 75, 0, true);
    ended(&n, 1, 0, SIGKILL, true);
    expect(&n, 143, -1, "stopped by SIGTERM");
}

static void a_lost_daemon_is_named(void **state)
{
    struct zt_notes n = notes(2);

    (void)state;
    n.ranks[0].started = n.ranks[1].started = true;
    zt_notes_node_lost(&n, "", "the node daemon (pid 42) was killed by SIGKILL", 137);
    zt_notes_node_lost(&n, "", "another one", 1);
    expect(&n, 137, -1, "the node daemon (pid 42) was killed by SIGKILL");

    n = notes(1);
    zt_notes_node_lost(&n, "", "ended early",
                       0); /* it vanished with code 0: still no success */
    expect(&n, 71, -1, "ended early");
}

static void a_lost_node_beats_ranks_that_fail_because_of_it(void **state)
{
    struct zt_notes n = notes(2);

    (void)state;
    zt_notes_node_lost(&n, "worker-1: ", "silent for 3 s", 69);
    ended(&n, 0, 1, 0, false);
    n.ranks[0].time_s = n.down_s + 0.5;
    expect(&n, 69, -1, "worker-1: silent for 3 s");

    n = notes(2); /* but one that failed before is the cause */
    zt_notes_node_lost(&n, "worker-1: ", "silent for 3 s", 69);
    ended(&n, 0, 1, 0, false);
    n.ranks[0].time_s = n.down_s - 0.5;
    n.ranks[0].host = "worker-0";
    expect(&n, 1, 0, "rank 0 on worker-0 (pid 100) exited with code 1");

    n = notes(2); /* unless it only blames others */
    zt_notes_node_lost(&n, "worker-1: ", "silent for 3 s", 69);
    reported(&n, 0, "rank 1 is gone", true);
    ended(&n, 0, 1, 0, false);
    n.ranks[0].time_s = n.down_s - 0.5;
    expect(&n, 69, -1, "worker-1: silent for 3 s");
}

static void a_kill_from_outside_goes_before_what_follows_from_it(void **state)
{
    struct zt_notes n = notes(3);

    (void)state;
    ended(&n, 0, 0, SIGABRT, false); /* heard of first, but a library gave up */
    ended(&n, 1, 1, 0, false);
    ended(&n, 2, 0, SIGKILL, false);
    expect(&n, 137, 2, "rank 2 (pid 102) was killed by SIGKILL");

    n = notes(2);
    ended(&n, 0, 7, 0, false);
    ended(&n, 1, 0, SIGKILL, true); /* this one was ours */
    expect(&n, 7, 0, "exited with code 7");
}

static void an_abort_beside_another_failure_is_its_consequence(void **state)
{
    struct zt_notes n = notes(2);

    (void)state;
    ended(&n, 0, 0, SIGABRT, false);
    ended(&n, 1, 0, SIGSEGV, false);
    expect(&n, 139, 1, "rank 1 (pid 101) was killed by SIGSEGV");

    n = notes(2); /* also of one that had been told to stop by then */
    ended(&n, 0, 0, SIGABRT, false);
    ended(&n, 1, 0, SIGHUP, true);
    expect(&n, 129, 1, "rank 1 (pid 101) was killed by SIGHUP");

    n = notes(2); /* but not one that was long before */
    ended(&n, 0, 0, SIGABRT, false);
    ended(&n, 1, 3, 0, false);
    n.ranks[1].time_s = 10;
    expect(&n, 134, 0, "rank 0 (pid 100) was killed by SIGABRT");
}

static void a_hang_names_the_suspect(void **state)
{
    struct zt_notes n = notes(2);

    (void)state;
    n.stop = ZT_STOP_HANG;
    n.stop_was_first = true;
    n.hang_s = 10;
    n.hang_rank = 1;
    n.ranks[1].host = "worker-1";
    n.ranks[1].state = json_pack("{ss ss}", "state", "stopped", "phase", "train step 3");
    ended(&n, 0, 0, SIGTERM, true);
    ended(&n, 1, 0, SIGKILL, true);
    expect(&n, 124, -1,
           "no progress for 10 s; rank 1 on worker-1 (pid 101) is stopped, during: train "
           "step 3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_well_is_silent_success),
        cmocka_unit_test(the_first_rank_that_failed_by_itself_is_the_cause),
        cmocka_unit_test(one_failure_that_all_report_is_said_once),
        cmocka_unit_test(a_run_that_does_not_fit_is_said_once),
        cmocka_unit_test(ranks_that_saved_and_ended_are_no_failure),
        cmocka_unit_test(ranks_that_could_not_save_were_stopped),
        cmocka_unit_test(a_signal_is_128_and_its_number),
        cmocka_unit_test(a_rank_that_blames_another_is_not_the_cause),
        cmocka_unit_test(a_lost_connection_is_the_cause_where_no_rank_failed),
        cmocka_unit_test(a_reported_code_beats_the_signal_that_stopped_the_rank),
        cmocka_unit_test(a_node_that_is_told_to_stop_saves_for_the_next_start),
        cmocka_unit_test(a_victim_alone_is_believed),
        cmocka_unit_test(a_report_replaces_the_bare_code),
        cmocka_unit_test(the_user_is_the_cause_unless_a_rank_failed_before),
        cmocka_unit_test(sigterm_with_all_saved_asks_to_be_started_again),
        cmocka_unit_test(a_lost_daemon_is_named),
        cmocka_unit_test(a_lost_node_beats_ranks_that_fail_because_of_it),
        cmocka_unit_test(a_kill_from_outside_goes_before_what_follows_from_it),
        cmocka_unit_test(an_abort_beside_another_failure_is_its_consequence),
        cmocka_unit_test(a_hang_names_the_suspect),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
