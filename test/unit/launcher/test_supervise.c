/*
 * The supervisor over many nodes whose daemons are played in this process: a starter that
 * starts nothing and answers frames as a daemon would.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include "common/message/frame.h"
#include "common/json/line.h"
#include "common/log.h"
#include "launcher/supervise/supervise.h"
#include "test/unit/launcher/plan_helper.h"

#define MAX_NODES 4096
#define BARRIERS  10

/* What a daemon does instead of all going well. */
enum trouble { NONE, NOT_THERE, RANK_FAILS, GOES_DOWN, BAD_FRAME, NO_ANSWER };

struct player {
    struct zt_channel channel;
    const struct zt_channel_events *ev;
    void *ctx;
    struct zt_buf out; /* what it will have said */
    int first, local, fences;
    bool up, down, over, stays, at_work;
};

static struct {
    struct player *player[MAX_NODES];
    int queue[2 * MAX_NODES], head, tail; /* nodes with something to tell */
    bool queued[MAX_NODES];
    uv_idle_t idle;
    bool idle_open;
    int starts, troubled, jobs;
    enum trouble trouble;
    int failures_left; /* starts of the job that have trouble */
    bool may_stay;     /* daemons do, where they are asked to */
    size_t pair_bytes;
} stage;

static void put(struct player *p, zt_frame_type type, const void *body, size_t n)
{
    assert_int_equal(zt_frame_put(&p->out, type, body, n), ZT_OK);
}

static void put_json(struct player *p, zt_frame_type type, const char *fmt, ...)
    ZT_PRINTF(3, 4);
static void put_json(struct player *p, zt_frame_type type, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    put(p, type, text, (size_t)n);
}

static void on_idle(uv_idle_t *idle);

/* Its turn comes on the loop, outside of any call. */
static void wake(struct player *p, uv_loop_t *loop)
{
    int i = (int)p->channel.exit_code; /* the node's number, while it is up */

    if (!stage.idle_open && loop) {
        uv_idle_init(loop, &stage.idle);
        stage.idle_open = true;
    }
    if (!stage.queued[i]) {
        stage.queued[i] = true;
        stage.queue[stage.tail++ % (2 * MAX_NODES)] = i;
    }
    uv_idle_start(&stage.idle, on_idle);
}

static void fence(struct player *p)
{
    char pair[256];
    int n = snprintf(pair, sizeof(pair), "P%d-%d=%0*d\n", p->first, p->fences,
                     (int)stage.pair_bytes, p->first);

    if (p->fences == 0) /* as MPI does: addresses first, then only barriers */
        put(p, ZT_FRAME_PMI_PAIRS, pair, (size_t)n);
    put(p, ZT_FRAME_PMI_FENCE, NULL, 0);
}

static void end_ranks(struct player *p, int code, bool stop_requested)
{
    for (int r = p->first; r < p->first + p->local; r++)
        put_json(
            p, ZT_FRAME_EXITED,
            "{\"rank\":%d,\"pid\":%d,\"code\":%d,\"stop_requested\":%s,\"phase\":\"\"}",
            r, 1000 + r, r == p->first ? code : 0, stop_requested ? "true" : "false");
    if (p->stays)
        put_json(p, ZT_FRAME_DONE, "{\"waits\":true}");
    else
        put(p, ZT_FRAME_DONE, NULL, 0);
    p->over = !p->stays;
    p->at_work = false;
}

static bool is_troubled(const struct player *p, enum trouble trouble)
{
    return stage.trouble == trouble && stage.failures_left > 0 &&
           p->channel.exit_code == stage.troubled;
}

/* It is looked at before the troubled node. */
static bool is_neighbour(const struct player *p)
{
    return stage.trouble == NO_ANSWER && p->channel.exit_code == stage.troubled - 1;
}

static void on_job(struct player *p, const struct zt_frame *f)
{
    json_t *o = zt_json_object(f->body, f->body_bytes);

    p->first = (int)zt_json_get_int(o, "first_rank", -1);
    p->local = (int)zt_json_get_int(o, "local_world", -1);
    p->stays = stage.may_stay && json_is_true(json_object_get(o, "stay"));
    p->at_work = true;
    p->fences = 0;
    stage.jobs++;
    json_decref(o);
    assert_true(p->first >= 0 && p->local > 0);
    for (int r = p->first; r < p->first + p->local; r++)
        put_json(p, ZT_FRAME_STARTED, "{\"rank\":%d,\"pid\":%d}", r, 1000 + r);
    if (is_troubled(p, RANK_FAILS)) {
        stage.failures_left -= p->stays; /* else when it leaves */
        end_ranks(p, 7, false);
    } else if (is_troubled(p, GOES_DOWN))
        p->down = true;
    else if (stage.trouble == NO_ANSWER) { /* nothing goes on: somebody looks */
        if (stage.jobs == stage.starts)
            raise(SIGQUIT);
    } else if (is_troubled(p, BAD_FRAME))
        assert_int_equal(zt_buf_put(&p->out, "Welcome!", 8), ZT_OK);
    else
        fence(p);
}

/* Asked what its ranks do, or for a sign of life; the troubled one is silent from here, and
 * its neighbour gives no sign of life. */
static void answer(struct player *p, zt_frame_type type)
{
    if (is_troubled(p, NO_ANSWER) || (is_neighbour(p) && type == ZT_FRAME_PING))
        return;
    if (type == ZT_FRAME_PING)
        put(p, ZT_FRAME_HEARTBEAT, "\0\0\0\0", 4);
    for (int r = p->first; type == ZT_FRAME_INSPECT && r < p->first + p->local; r++)
        put_json(p, ZT_FRAME_INSPECTED,
                 "{\"rank\":%d,\"pid\":%d,\"state\":\"waiting\",\"stopped\":false}", r,
                 1000 + r);
}

static void player_write(struct zt_channel *c, const void *data, size_t n)
{
    struct player *p = (struct player *)c;
    struct zt_fault fault = {0};
    struct zt_frame f;
    struct zt_buf in;

    zt_buf_init(&in, 2 * ZT_FRAME_MAX);
    assert_int_equal(zt_buf_put(&in, data, n), ZT_OK);
    assert_int_equal(zt_frame_peek(&in, &f, &fault), ZT_OK);
    if (f.type == ZT_FRAME_JOB)
        on_job(p, &f);
    else if (f.type == ZT_FRAME_PING || f.type == ZT_FRAME_INSPECT)
        answer(p, f.type);
    else if (f.type == ZT_FRAME_STOP && p->at_work)
        end_ranks(p, 1, true);
    else if (f.type == ZT_FRAME_END)
        p->over = true;
    else if (f.type == ZT_FRAME_PMI_FENCE && ++p->fences < BARRIERS)
        fence(p);
    else if (f.type == ZT_FRAME_PMI_FENCE)
        end_ranks(p, 0, false);
    zt_buf_release(&in);
    wake(p, NULL);
}

static void player_pause(struct zt_channel *c, bool pause)
{
    (void)c;
    (void)pause;
}

static void player_close(struct zt_channel *c)
{
    struct player *p = (struct player *)c;

    p->down = true;
    wake(p, NULL);
}

static bool player_lives(struct zt_channel *c)
{
    return is_neighbour((struct player *)c);
}

static const struct zt_channel_ops ops = {player_write, player_pause, player_close,
                                          player_lives};

static void leave(struct player *p)
{
    struct zt_fault why = {.code = ZT_E_HOST, .text = "went away"};

    stage.player[p->channel.exit_code] = NULL;
    if (stage.failures_left > 0 && p->channel.exit_code == stage.troubled)
        stage.failures_left--;
    p->channel.exit_code = 0;
    p->ev->on_down(p->ctx, p->over ? NULL : &why);
    zt_buf_release(&p->out);
    free(p);
}

static void on_idle(uv_idle_t *idle)
{
    struct player *p;
    struct zt_buf said;
    int i;

    if (stage.head == stage.tail) {
        uv_idle_stop(idle);
        return;
    }
    i = stage.queue[stage.head++ % (2 * MAX_NODES)];
    stage.queued[i] = false;
    p = stage.player[i];
    if (!p)
        return;
    if (!p->up && !p->down) {
        p->up = true;
        p->ev->on_up(p->ctx);
    }
    said = p->out;
    zt_buf_init(&p->out, 2 * ZT_FRAME_MAX);
    if (zt_buf_used(&said))
        p->ev->on_bytes(p->ctx, zt_buf_head(&said), zt_buf_used(&said));
    zt_buf_release(&said);
    if (p->down || (p->over && !zt_buf_used(&p->out)))
        leave(p);
}

static zt_err start_player(const struct zt_start_request *rq, uv_loop_t *loop,
                           const struct zt_channel_events *ev, void *ctx,
                           struct zt_channel **out, struct zt_fault *fault)
{
    struct player *p = calloc(1, sizeof(*p));

    (void)fault;
    assert_non_null(p);
    stage.starts++;
    p->channel.ops = &ops;
    p->channel.exit_code = rq->node_rank;
    p->ev = ev;
    p->ctx = ctx;
    zt_buf_init(&p->out, 2 * ZT_FRAME_MAX);
    p->down = is_troubled(p, NOT_THERE);
    put_json(p, ZT_FRAME_HELLO, "{\"protocol\":%d,\"version\":\"%s\",\"pid\":1}",
             ZT_PROTOCOL, ZT_VERSION);
    stage.player[rq->node_rank] = p;
    wake(p, loop);
    *out = &p->channel;
    return ZT_OK;
}

static const struct zt_starter starter = {.name = "player", .start = start_player};

/* Run a job over num_nodes played nodes; its exit code. What it says goes to `said`. */
static int play(int num_nodes, const char *const *words, char *said, size_t said_bytes)
{
    size_t bytes = (size_t)num_nodes * 24 + 1, at = 0;
    char *hosts = malloc(bytes), path[] = "/tmp/zt-test-said-XXXXXX";
    struct zt_render_config screen = {.level = ZT_LOG_INFO, .who = "zlaunch"};
    struct made m;
    ssize_t n;
    int code, fd = mkstemp(path);

    assert_non_null(hosts);
    assert_true(fd >= 0);
    unlink(path);
    screen.out_fd = screen.err_fd = fd;
    for (int i = 0; i < num_nodes; i++)
        at += (size_t)snprintf(hosts + at, bytes - at, "n%d slots=%d\n", i, 1 + i % 2);
    assert_int_equal(make_plan(&m, hosts, words), ZT_OK);
    for (int i = 0; i < num_nodes; i++)
        m.plan->nodes[i].starter = &starter;
    stage.idle_open = false;
    stage.head = stage.tail = stage.starts = stage.jobs = 0;
    memset(stage.queued, 0, sizeof(stage.queued));
    assert_int_equal(zt_supervise(m.plan, &screen, false, &code, NULL), ZT_OK);
    unmake_plan(&m);
    free(hosts);
    n = pread(fd, said, said_bytes - 1, 0);
    said[n > 0 ? n : 0] = 0;
    close(fd);
    for (int i = 0; i < num_nodes; i++) /* nobody is forgotten */
        assert_null(stage.player[i]);
    return code;
}

static const char *const plain[] = {"--launcher", "local", "--", "true", NULL};
static const char *const again[] = {"--launcher", "local", "--max_restarts", "3", "--",
                                    "true",       NULL};
static const char *const elastic[] = {"--launcher",     "local", "--elastic_training",
                                      "--max_restarts", "2",     "--",
                                      "true",           NULL};

static void set_trouble(enum trouble trouble, int node, int starts)
{
    stage.trouble = trouble;
    stage.troubled = node;
    stage.failures_left = starts;
}

static void every_number_of_nodes_meets_at_its_barriers(void **state)
{
    static const int sizes[] = {1, 2, 3, 500, 1000, 2000, 4000};
    char said[4096];

    (void)state;
    set_trouble(NONE, 0, 0);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        double from = zt_now();
        struct rusage use;

        assert_int_equal(play(sizes[i], plain, said, sizeof(said)), 0);
        assert_string_equal(said, "");
        assert_int_equal(stage.starts, sizes[i]);
        getrusage(RUSAGE_SELF, &use);
        if (sizes[i] >= 500)
            print_message("%d nodes: %d barriers in %.0f ms, peak memory %ld MiB\n",
                          sizes[i], BARRIERS, (zt_now() - from) * 1000,
                          use.ru_maxrss / 1024);
    }
}

static void the_node_in_trouble_is_named_and_all_others_end(void **state)
{
    static const struct {
        enum trouble trouble;
        int code;
        const char *said;
    } cases[] = {
        {NOT_THERE, 69, "error: n3: went away\n"},
        {RANK_FAILS, 7, "error: rank 4 on n3 (pid 1004) exited with code 7\n"},
        {GOES_DOWN, 69, "error: n3: went away; its ranks were stopped\n"},
        {BAD_FRAME, 71, "error: n3: control channel: a frame of 1466264675 bytes"},
    };
    char said[4096];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        set_trouble(cases[i].trouble, 3, 1);
        assert_int_equal(play(8, plain, said, sizeof(said)), cases[i].code);
        assert_non_null(strstr(said, cases[i].said));
    }
}

/* n2 has ranks 3 and n3 ranks 4 and 5: of n3 nothing is heard any more. Nothing but an
 * answer comes from n2 either, but its process is seen to live: it is not the one that is lost. */
static void every_rank_answers_or_is_named_as_silent(void **state)
{
    char said[4096], line[128];

    (void)state;
    set_trouble(NO_ANSWER, 3, 1);
    assert_int_equal(play(4, plain, said, sizeof(said)), 69);
    for (int r = 0; r < 4; r++) {
        snprintf(line, sizeof(line), "rank %d on n%d (pid %d) is waiting\n", r,
                 r < 2    ? r
                 : r == 3 ? 2
                          : 1,
                 1000 + r);
        assert_non_null(strstr(said, line));
    }
    assert_null(strstr(said, "(pid 1004) is"));
    assert_non_null(strstr(said, "no answer in 1 s about ranks 4 on n3, 5 on n3: "));
    assert_non_null(strstr(said, "n3: the node has been silent for 2.5 s"));
}

static void a_job_is_started_again_until_it_works(void **state)
{
    char said[4096];

    (void)state;
    set_trouble(RANK_FAILS, 2, 2);
    assert_int_equal(play(4, again, said, sizeof(said)), 0);
    assert_int_equal(stage.starts, 3 * 4);
    assert_non_null(strstr(said, "restart 2 of 3"));
    assert_null(strstr(said, "restart 3 of 3"));
    set_trouble(RANK_FAILS, 2, 9);
    assert_int_equal(play(4, again, said, sizeof(said)), 7);
    assert_int_equal(stage.starts, 4 * 4);
    set_trouble(NOT_THERE, 2, 9); /* never there: not even the first start */
    assert_int_equal(play(4, again, said, sizeof(said)), 69);
    assert_int_equal(stage.starts, 4);
}

/* Only what is lost is started again; in the end all are told to go. */
static void daemons_that_wait_are_used_again(void **state)
{
    char said[4096];

    (void)state;
    stage.may_stay = true;
    set_trouble(RANK_FAILS, 2, 2);
    assert_int_equal(play(4, again, said, sizeof(said)), 0);
    assert_int_equal(stage.starts, 4);
    assert_int_equal(stage.jobs, 3 * 4);
    set_trouble(RANK_FAILS, 2, 9);
    assert_int_equal(play(4, again, said, sizeof(said)), 7);
    assert_int_equal(stage.starts, 4);
    set_trouble(GOES_DOWN, 1, 1);
    assert_int_equal(play(4, again, said, sizeof(said)), 0);
    assert_int_equal(stage.starts, 4 + 1);
    assert_int_equal(stage.jobs, 2 * 4);
    set_trouble(NONE, 0, 0);
    assert_int_equal(play(4, again, said, sizeof(said)), 0);
    assert_int_equal(stage.jobs, 4);
    stage.may_stay = false;
}

static void an_elastic_job_goes_on_without_a_node(void **state)
{
    char said[4096];

    (void)state;
    set_trouble(NOT_THERE, 1, 9);
    assert_int_equal(play(4, elastic, said, sizeof(said)), 0);
    assert_non_null(strstr(said, "n1: went away; going on without this node"));
    set_trouble(GOES_DOWN, 1, 1);
    assert_int_equal(play(4, elastic, said, sizeof(said)), 0);
    assert_int_equal(stage.starts, 2 * 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_of_nodes_meets_at_its_barriers),
        cmocka_unit_test(the_node_in_trouble_is_named_and_all_others_end),
        cmocka_unit_test(every_rank_answers_or_is_named_as_silent),
        cmocka_unit_test(a_job_is_started_again_until_it_works),
        cmocka_unit_test(daemons_that_wait_are_used_again),
        cmocka_unit_test(an_elastic_job_goes_on_without_a_node),
    };

    stage.pair_bytes = 100;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
