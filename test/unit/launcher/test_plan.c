/* Ranks of unequal nodes, of those that take part, and what each daemon is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/json/line.h"
#include "test/unit/launcher/plan_helper.h"

#include <sys/stat.h>

static const char uneven[] = "n0 slots=3\nn1 slots=1\nn2 slots=1\nn3 slots=2\n";
static const char *const local[] = {"--launcher", "local", "--", "true", NULL};
static const char *const elastic[] = {
    "--launcher", "local", "--elastic_training", "--max_elastic_nodes", "2", "--",
    "true",       NULL};

static json_t *job_of(const struct zt_job_plan *p, const struct zt_group *g, int node)
{
    json_t *o = zt_job_plan_frame(p, g, node);

    assert_non_null(o);
    return o;
}

static void ranks_follow_hosts_and_slots(void **state)
{
    static const int first[] = {0, 3, 4, 5};
    struct zt_group g;
    struct made m;

    (void)state;
    assert_int_equal(make_plan(&m, uneven, local), ZT_OK);
    assert_int_equal(m.plan->world, 7);
    assert_int_equal(zt_group_init(&g, m.plan, NULL), ZT_OK);
    zt_group_arrange(&g, m.plan, NULL);
    assert_int_equal(g.world, 7);
    for (int i = 0; i < 4; i++) {
        json_t *o = job_of(m.plan, &g, i);

        assert_int_equal(g.first_rank[i], first[i]);
        assert_int_equal(zt_json_get_int(o, "first_rank", -1), first[i]);
        assert_int_equal(zt_json_get_int(o, "node_rank", -1), i);
        assert_int_equal(zt_json_get_int(o, "num_nodes", -1), 4);
        assert_int_equal(zt_json_get_int(o, "share_first", -1), first[i]);
        assert_int_equal(zt_json_get_int(o, "share_ranks", -1), 7);
        assert_int_equal(zt_json_get_int(o, "silence_ms", -1), 0);
        assert_string_equal(zt_json_get_text(o, "pmi_mapping", ""),
                            "(vector,(0,1,3),(1,2,1),(3,1,2))");
        json_decref(o);
    }
    for (int r = 0; r < 7; r++)
        assert_int_equal(zt_group_node_of(&g, m.plan, r), r < 3 ? 0 : r < 5 ? r - 2 : 3);
    assert_int_equal(zt_group_node_of(&g, m.plan, 7), -1);
    zt_group_release(&g);
    unmake_plan(&m);
}

static void nodes_that_are_left_out_leave_no_gap(void **state)
{
    const bool present[] = {false, true, true, true};
    struct zt_group g;
    struct made m;
    json_t *o;

    (void)state;
    assert_int_equal(make_plan(&m, uneven, local), ZT_OK);
    assert_int_equal(zt_group_init(&g, m.plan, NULL), ZT_OK);
    g.restart = 2;
    zt_group_arrange(&g, m.plan, present);
    assert_int_equal(g.world, 4);
    assert_int_equal(g.num_nodes, 3);
    assert_int_equal(g.node_rank[0], -1);
    assert_int_equal(g.node_rank[3], 2);
    assert_int_equal(g.first_rank[3], 2);
    assert_int_equal(zt_group_node_of(&g, m.plan, 0), 1);
    o = job_of(m.plan, &g, 3);
    assert_int_equal(zt_json_get_int(o, "world", -1), 4);
    assert_int_equal(zt_json_get_int(o, "restart", -1), 2);
    assert_string_equal(zt_json_get_text(o, "pmi_mapping", ""),
                        "(vector,(0,2,1),(2,1,2))");
    json_decref(o);
    zt_group_release(&g);
    unmake_plan(&m);
}

/* All daemons get the same; where each node has its own zlaunch there can be none. */
static void a_job_has_a_secret_of_its_own(void **state)
{
    static const char *const no_ssh[] = {
        "--no_ssh", "--node_rank", "1", "--master_addr", "h", "--", "true", NULL};
    char first[ZT_SECRET_TEXT] = "";
    struct zt_group g;
    struct made m;
    json_t *o;

    (void)state;
    for (int i = 0; i < 3; i++) {
        const char *text;

        assert_int_equal(make_plan(&m, uneven, i < 2 ? local : no_ssh), ZT_OK);
        assert_int_equal(zt_group_init(&g, m.plan, NULL), ZT_OK);
        zt_group_arrange(&g, m.plan, NULL);
        o = job_of(m.plan, &g, 1);
        text = zt_json_get_text(o, "secret", "");
        assert_int_equal(strlen(text), i < 2 ? ZT_SECRET_TEXT - 1 : 0);
        assert_string_not_equal(text, i < 2 ? first : "a");
        snprintf(first, sizeof(first), "%s", text);
        json_decref(o);
        if (i < 2) {
            o = job_of(m.plan, &g, 3);
            assert_string_equal(zt_json_get_text(o, "secret", ""), first);
            json_decref(o);
        }
        zt_group_release(&g);
        unmake_plan(&m);
    }
}

static void no_more_nodes_than_the_bound_take_part(void **state)
{
    const bool present[] = {true, false, true, true};
    struct zt_group g;
    struct made m;

    (void)state;
    assert_int_equal(make_plan(&m, uneven, elastic), ZT_OK);
    assert_int_equal(m.plan->min_nodes, 1);
    assert_int_equal(m.plan->max_restarts, 100);
    assert_int_equal(zt_group_init(&g, m.plan, NULL), ZT_OK);
    zt_group_arrange(&g, m.plan, present);
    assert_int_equal(g.num_nodes, 2);
    assert_int_equal(g.world, 4);
    assert_int_equal(g.node_rank[2], 1);
    assert_int_equal(g.node_rank[3], -1);
    zt_group_release(&g);
    unmake_plan(&m);
}

/* What daemons hold is of the ranks that they had. */
static void a_spare_node_takes_the_place_of_one_that_is_gone(void **state)
{
    const bool first[] = {true, true, true, true}, lost[] = {false, true, true, true};
    const bool shrunk[] = {false, true, false, false};
    struct zt_group g;
    struct made m;

    (void)state; /* slots 3, 1, 1, 2 */
    assert_int_equal(make_plan(&m, uneven, elastic), ZT_OK);
    m.plan->max_nodes = 3;
    m.plan->nodes[3].num_slots = 3;
    assert_int_equal(zt_group_init(&g, m.plan, NULL), ZT_OK);
    zt_group_arrange(&g, m.plan, first);
    assert_int_equal(g.node_rank[3], -1);

    zt_group_arrange(&g, m.plan, lost);
    assert_int_equal(g.node_rank[0], -1);
    assert_int_equal(g.node_rank[3], 0);
    assert_int_equal(g.first_rank[3], 0);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(g.node_rank[i], i);
        assert_int_equal(g.first_rank[i], 2 + i);
    }
    assert_int_equal(g.world, 5);
    assert_int_equal(zt_group_node_of(&g, m.plan, 0), 3);
    assert_string_equal(g.pmi_mapping, "(vector,(0,1,3),(1,2,1))");

    zt_group_arrange(&g, m.plan, first); /* who is back waits */
    assert_int_equal(g.node_rank[0], -1);
    assert_int_equal(g.node_rank[3], 0);

    zt_group_arrange(&g, m.plan, shrunk);
    assert_int_equal(g.num_nodes, 1);
    assert_int_equal(g.node_rank[1], 0);
    zt_group_arrange(&g, m.plan, first); /* a place is free again */
    assert_int_equal(g.num_nodes, 3);
    assert_int_equal(g.node_rank[0], 0);
    zt_group_release(&g);
    unmake_plan(&m);
}

/* A spare with another number of slots would change the ranks of all: they start anew. */
static void without_a_spare_of_its_size_the_nodes_are_numbered_anew(void **state)
{
    const bool first[] = {true, true, true, true}, lost[] = {false, true, true, true};
    struct zt_group g;
    struct made m;

    (void)state;
    assert_int_equal(make_plan(&m, uneven, elastic), ZT_OK);
    m.plan->max_nodes = 3;
    assert_int_equal(zt_group_init(&g, m.plan, NULL), ZT_OK);
    zt_group_arrange(&g, m.plan, first);
    zt_group_arrange(&g, m.plan, lost);
    for (int i = 1; i < 4; i++)
        assert_int_equal(g.node_rank[i], i - 1);
    assert_int_equal(g.world, 4);
    zt_group_release(&g);
    unmake_plan(&m);
}

static void a_start_gets_a_port_of_its_own_unless_one_is_given(void **state)
{
    static const char *const given[] = {
        "--launcher", "local", "--master_port", "1234", "--", "true", NULL};
    struct zt_group g;
    struct made m;

    (void)state;
    assert_int_equal(make_plan(&m, uneven, given), ZT_OK);
    assert_int_equal(zt_group_init(&g, m.plan, NULL), ZT_OK);
    zt_group_arrange(&g, m.plan, NULL);
    assert_int_equal(g.master_port, 1234);
    zt_group_release(&g);
    unmake_plan(&m);
    assert_int_equal(make_plan(&m, uneven, local), ZT_OK);
    assert_int_equal(zt_group_init(&g, m.plan, NULL), ZT_OK);
    zt_group_arrange(&g, m.plan, NULL);
    assert_in_range(g.master_port, 1024, 65535);
    assert_string_equal(m.plan->master_addr, "127.0.0.1");
    zt_group_release(&g);
    unmake_plan(&m);
}

static void names_are_written_as_hostfiles_have_them(void **state)
{
    static const struct {
        const char *line, *name;
    } cases[] = {{"h slots=1\n", "h"},
                 {"u@h:22 slots=1\n", "u@h:22"},
                 {"[fe80::1]:2222 slots=1\n", "[fe80::1]:2222"},
                 {"fe80::1 slots=1\n", "fe80::1"}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char name[ZT_NODE_NAME];
        struct made m;

        assert_int_equal(make_plan(&m, cases[i].line, local), ZT_OK);
        assert_string_equal(zt_job_plan_node_name(&m.plan->nodes[0], name),
                            cases[i].name);
        unmake_plan(&m);
    }
}

static void touch(const char *folder, const char *name)
{
    char path[256];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(chmod(path, 0755), 0);
}

static bool is_pushed(const struct zt_job_plan *p, const char *end)
{
    for (char **f = p->push; *f; f++)
        if (strlen(*f) >= strlen(end) && !strcmp(*f + strlen(*f) - strlen(end), end))
            return true;
    return false;
}

static void all_backends_and_the_config_are_pushed(void **state)
{
    static const char *const backends[] = {"backends/mpi.so", "backends/nccl.so",
                                           "backends/cuda.so", "backends/cudnn.so"};
    char dir[] = "/tmp/zt-test-push-XXXXXX", path[256], config[256], plugin[256];
    const char *words[] = {"--push", plugin, config, "--seed", "1", NULL};
    struct made m;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/backends", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    for (int i = 0; i < 4; i++)
        touch(dir, backends[i]);
    touch(dir, "zworker");
    touch(dir, "m.so");
    touch(dir, "ds.json");
    snprintf(plugin, sizeof(plugin), "%s/m.so", dir);
    snprintf(config, sizeof(config), "--deepspeed=%s/ds.json", dir);
    snprintf(path, sizeof(path), "%s/zworker", dir);
    zworker = path;
    assert_int_equal(make_plan(&m, "h1 slots=1\n", words), ZT_OK);
    zworker = NULL;
    for (int i = 0; i < 4; i++)
        assert_true(is_pushed(m.plan, backends[i]));
    assert_true(is_pushed(m.plan, "/ds.json"));
    assert_string_equal(m.plan->argv[2], "--deepspeed");
    assert_string_equal(m.plan->argv[3], config + strlen("--deepspeed="));
    assert_string_equal(m.plan->argv[5], "1");
    assert_int_equal(json_integer_value(json_array_get(m.plan->pushed, 1)), 3);
    unmake_plan(&m);
    snprintf(path, sizeof(path), "rm -r %s", dir);
    assert_int_equal(system(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_follow_hosts_and_slots),
        cmocka_unit_test(nodes_that_are_left_out_leave_no_gap),
        cmocka_unit_test(a_job_has_a_secret_of_its_own),
        cmocka_unit_test(no_more_nodes_than_the_bound_take_part),
        cmocka_unit_test(a_spare_node_takes_the_place_of_one_that_is_gone),
        cmocka_unit_test(without_a_spare_of_its_size_the_nodes_are_numbered_anew),
        cmocka_unit_test(a_start_gets_a_port_of_its_own_unless_one_is_given),
        cmocka_unit_test(names_are_written_as_hostfiles_have_them),
        cmocka_unit_test(all_backends_and_the_config_are_pushed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
