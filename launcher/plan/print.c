/* --dry_run: the plan as a table for a person, or as JSON. */
#include "launcher/plan/plan.h"

#include "common/cores/cores.h"
#include "common/json/line.h"
#include "launcher/mpirun/mpirun.h"
#include "launcher/start/start.h"

#include <stdlib.h>
#include <string.h>

/* The word as a shell would need it. */
static void print_word(FILE *out, const char *w)
{
    if (*w && !w[strcspn(w, " \t\n'\"\\$`&|;<>()*?[]{}~#!")]) {
        fprintf(out, " %s", w);
        return;
    }
    fputs(" '", out);
    for (; *w; w++)
        fprintf(out, *w == '\'' ? "'\\''" : "%c", *w);
    fputc('\'', out);
}

static void print_words(FILE *out, const char *title, char *const *words)
{
    fputs(title, out);
    for (; *words; words++)
        print_word(out, *words);
    fputc('\n', out);
}

const char *zt_job_plan_node_name(const struct zt_job_plan_node *n,
                                  char out[ZT_NODE_NAME])
{
    bool brackets = n->port && strchr(n->host, ':');
    char port[16] = "";

    if (n->port)
        snprintf(port, sizeof(port), ":%d", n->port);
    snprintf(out, ZT_NODE_NAME, "%s%s%s%s%s%s", n->user ? n->user : "",
             n->user ? "@" : "", brackets ? "[" : "", n->host, brackets ? "]" : "", port);
    return out;
}

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

/* Cores are known of this host alone. */
static void print_rank(FILE *out, const struct zt_job_plan *p, const struct zt_group *g,
                       int node, int i, const struct zt_cores *cores)
{
    const struct zt_job_plan_node *n = &p->nodes[node];
    int first = g->first_rank[node];
    struct zt_core_share share;
    char list[256];

    fprintf(out, "  rank %d: slot %d", first + i, n->slots[i]);
    if (n->starter == &zt_starter_local) {
        zt_cores_share(cores, p->same_host ? first + i : i,
                       p->same_host ? g->world : n->num_slots, &share);
        zt_cores_text(&share.mask, list, sizeof(list));
        fprintf(out, ", %d thread%s, cores %s%s", share.threads, plural(share.threads),
                list, p->bind && (share.bind || p->core_list) ? "" : " (not bound)");
        if (share.node >= 0)
            fprintf(out, ", NUMA node %d", share.node);
    }
    fputc('\n', out);
}

/* Ranks of a plugin look at them where there are GPUs; of another host that is not known.
 */
static bool devices_matter(const struct zt_job_plan *p, const struct zt_job_plan_node *n)
{
    if (!n->devices || !p->is_plugin)
        return n->devices;
    return strcmp(p->launch->device, "cpu") != 0 &&
           (n->starter != &zt_starter_local || zt_job_plan_own_gpus(p->launch) > 0);
}

static void print_node(FILE *out, const struct zt_job_plan *p, const struct zt_group *g,
                       int node, const struct zt_cores *cores)
{
    const struct zt_job_plan_node *n = &p->nodes[node];
    char name[ZT_NODE_NAME];

    fprintf(out, "node %d: %s, %d slot%s", node, zt_job_plan_node_name(n, name),
            n->num_slots, plural(n->num_slots));
    if (g->node_rank[node] < 0) {
        fputs(", spare: more than --max_elastic_nodes\n", out);
        return;
    }
    if (n->starter == &zt_starter_local)
        fprintf(out, ", %d core%s, daemon: %s --daemon\n", cores->num, plural(cores->num),
                p->zworker);
    else if (n->starter)
        fprintf(out, ", by %s, daemon: zworker --daemon\n", n->starter->name);
    else
        fputs(", by hand\n", out);
    if (devices_matter(p, n))
        fprintf(out, "  CUDA_VISIBLE_DEVICES=%s\n", n->devices);
    for (int i = 0; i < n->num_slots; i++)
        print_rank(out, p, g, node, i, cores);
}

static const char *started_by(const struct zt_job_plan *p)
{
    const char *name = p->nodes[0].starter ? p->nodes[0].starter->name : "hand";

    for (int i = 1; i < p->num_nodes; i++) /* this host beside others */
        if (p->nodes[i].starter && strcmp(p->nodes[i].starter->name, "local") != 0)
            return p->nodes[i].starter->name;
    return name;
}

static void print_nodes(FILE *out, const struct zt_job_plan *p, struct zt_group *g,
                        const struct zt_cores *cores)
{
    fprintf(out, "%d rank%s on %d node%s, started by: %s\n", g->world, plural(g->world),
            g->num_nodes, plural(g->num_nodes), started_by(p));
    if (p->are_assumed)
        fprintf(out,
                "nodes 0 to %d: %d slot%s each, taken to be like this host (no "
                "--hostfile names them)\n",
                p->num_nodes - 1, p->nodes[0].num_slots, plural(p->nodes[0].num_slots));
    for (int i = 0; !p->are_assumed && i < p->num_nodes; i++)
        print_node(out, p, g, i, cores);
    fprintf(out, "MASTER_ADDR=%s MASTER_PORT=%d WORLD_SIZE=%d\n", p->master_addr,
            g->master_port, g->world);
    for (char **e = p->named; *e; e++)
        fprintf(out, "also set: %s\n", *e);
    print_words(out, "command:", p->argv);
}

/* ---- as JSON ---- */

static json_t *words_json(char *const *words)
{
    json_t *list = json_array();

    for (; *words; words++)
        json_array_append_new(list, zt_json_text(*words, strlen(*words)));
    return list;
}

/* One line; takes the object. */
static zt_err dump(FILE *out, json_t *o, struct zt_fault *fault)
{
    bool ok = json_dumpf(o, out, JSON_COMPACT) == 0 && fputc('\n', out) != EOF;

    json_decref(o);
    return ok ? ZT_OK : zt_fault_set(fault, ZT_E_SYSTEM, "the plan could not be written");
}

static json_t *node_json(const struct zt_job_plan *p, const struct zt_group *g, int node,
                         const struct zt_cores *cores)
{
    const struct zt_job_plan_node *n = &p->nodes[node];
    json_t *o = json_object(), *ranks = json_array();
    char list[256];

    for (int i = 0; i < n->num_slots && g->node_rank[node] >= 0; i++) {
        int rank = g->first_rank[node] + i;
        json_t *r = json_pack("{si si}", "rank", rank, "slot", n->slots[i]);
        struct zt_core_share share;

        if (n->starter == &zt_starter_local) {
            zt_cores_share(cores, p->same_host ? rank : i,
                           p->same_host ? g->world : n->num_slots, &share);
            zt_cores_text(&share.mask, list, sizeof(list));
            json_object_set_new(r, "threads", json_integer(share.threads));
            json_object_set_new(r, "cores", json_string(list));
        }
        json_array_append_new(ranks, r);
    }
    json_object_set_new(o, "host", zt_json_text(n->host, strlen(n->host)));
    json_object_set_new(o, "started_by",
                        json_string(n->starter ? n->starter->name : "hand"));
    json_object_set_new(o, "ranks", ranks);
    return o;
}

static zt_err print_json(FILE *out, const struct zt_job_plan *p, const struct zt_group *g,
                         const struct zt_cores *cores, struct zt_fault *fault)
{
    json_t *o = zt_json_event("plan");
    json_t *nodes = json_array();

    json_object_set_new(o, "world", json_integer(g->world));
    json_object_set_new(o, "master_addr", json_string(p->master_addr));
    json_object_set_new(o, "master_port", json_integer(g->master_port));

    for (int i = 0; i < p->num_nodes; i++)
        json_array_append_new(nodes, node_json(p, g, i, cores));
    json_object_set_new(o, "nodes", nodes);
    json_object_set_new(o, "nodes_are_assumed", json_boolean(p->are_assumed));
    json_object_set_new(o, "command", words_json(p->argv));
    return dump(out, o, fault);
}

static zt_err print_mpirun(FILE *out, const struct zt_job_plan *p, bool json,
                           struct zt_fault *fault)
{
    struct zt_mpirun m;
    zt_err rc = zt_mpirun_init(&m, p, fault);

    if (rc)
        return rc;
    if (json) {
        json_t *o = zt_json_event("plan");

        json_object_set_new(o, "world", json_integer(p->world));
        json_object_set_new(o, "started_by", json_string(p->mpirun));
        json_object_set_new(o, "command", words_json(m.argv));
        zt_mpirun_release(&m);
        return dump(out, o, fault);
    }
    fprintf(out, "%d rank%s on %d node%s, started by: %s\n", p->world, plural(p->world),
            p->num_nodes, plural(p->num_nodes), p->mpirun);
    print_words(out, "command:", m.argv);
    zt_mpirun_release(&m);
    return ZT_OK;
}

zt_err zt_job_plan_print(const struct zt_job_plan *p, bool json, FILE *out,
                         struct zt_fault *fault)
{
    struct zt_group g = {0};
    struct zt_cores cores;
    zt_err rc;

    if (p->mpirun)
        return print_mpirun(out, p, json, fault);
    rc = zt_cores_init(&cores, p->core_list, fault);
    if (rc)
        return rc;
    rc = zt_group_init(&g, p, fault);
    if (!rc) {
        zt_group_arrange(&g, p, NULL);
        if (json)
            rc = print_json(out, p, &g, &cores, fault);
        else
            print_nodes(out, p, &g, &cores);
    }
    zt_group_release(&g);
    zt_cores_release(&cores);
    return rc;
}

/* As one pod of several has them, whose processes are to be one job. */
static void warn_of_rank(const struct zt_job_plan *p, FILE *out)
{
    const char *rank = getenv("RANK"), *size = getenv("WORLD_SIZE");

    if (rank && size && strtol(size, NULL, 10) > 1)
        fprintf(
            out,
            "RANK=%s and WORLD_SIZE=%s are those of one of several processes, and this "
            "zlaunch starts a job of its own; for one job, in its place: %s%s\n",
            rank, size, p->is_plugin ? "zworker " : "", p->launch->target[0]);
}

/* Each process of an mpirun, a torchrun or an srun, is a launcher with a job of its own. */
static void warn_of_outer(const struct zt_job_plan *p, FILE *out)
{
    static const struct {
        const char *size, *with; /* with: is set as well; NULL: nothing need be */
        const char *starter, *command;
    } rows[] = {
        {"PMI_SIZE", NULL, "mpirun", "mpirun -n"},
        {"OMPI_COMM_WORLD_SIZE", NULL, "mpirun", "mpirun -n"},
        {"MV2_COMM_WORLD_SIZE", NULL, "mpirun", "mpirun -n"},
        {"PALS_SIZE", NULL, "mpirun", "mpirun -n"},
        {"WORLD_SIZE", "TORCHELASTIC_RUN_ID", "torchrun",
         "torchrun --no-python --nproc_per_node"},
        {"SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID", "srun", "srun -n"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const char *text = getenv(rows[i].size);

        if (!text || strtol(text, NULL, 10) < 2 ||
            (rows[i].with && !getenv(rows[i].with)))
            continue;
        fprintf(out,
                "%s has started %s of this zlaunch, and each "
                "starts a job of its own; for one job: %s %s %s%s\n",
                rows[i].starter, text, rows[i].command, text,
                p->is_plugin ? "zworker " : "", p->launch->target[0]);
        return;
    }
    warn_of_rank(p, out);
}

/* Ranks of the first nodes that take part, on this host. */
static int ranks_here(const struct zt_job_plan *p, int num_nodes)
{
    int ranks = 0;

    for (int i = 0; i < num_nodes && i < p->max_nodes; i++)
        if (p->nodes[i].starter == &zt_starter_local)
            ranks += p->nodes[i].num_slots;
    return ranks;
}

/* What to write for a core for each rank: fewer ranks of the one node, or fewer nodes. */
static void print_advice(const struct zt_job_plan *p, int cores, FILE *out)
{
    int nodes = p->num_nodes;

    if (p->launch->include || p->launch->exclude) /* neither goes together with them */
        return;
    while (nodes > 0 && ranks_here(p, nodes) > cores)
        nodes--;
    if (p->num_nodes == 1)
        fprintf(out, "; --num_gpus %d would have a core for each", cores);
    else if (nodes > 0)
        fprintf(out, "; --num_nodes %d would have a core for each", nodes);
}

/* Variables of --export and env files that ranks find as zlaunch sets them. */
static void warn_of_named(const struct zt_job_plan *p, FILE *out)
{
    static const struct {
        const char *name, *by;
    } rows[] = {
        {"CUDA_VISIBLE_DEVICES", "by --include, --num_gpus and the hostfile"},
        {"MASTER_ADDR", "by --master_addr"},
        {"MASTER_PORT", "by --master_port"},
        {"WORLD_SIZE", "by --num_gpus and the hostfile"},
        {"LOCAL_WORLD_SIZE", "by --num_gpus and the hostfile"},
        {"RANK", "for each rank"},
        {"LOCAL_RANK", "for each rank"},
        {"NODE_RANK", "for each node"},
        {"GROUP_RANK", "for each node"},
    };

    for (char **e = p->named; *e; e++)
        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
            size_t n = strcspn(*e, "=");

            if (strlen(rows[i].name) == n && strncmp(*e, rows[i].name, n) == 0 &&
                (i > 0 || p->nodes[0].devices))
                fprintf(out,
                        "%s, which --export or an env file sets, has no effect: zlaunch "
                        "sets it %s\n",
                        *e, rows[i].by);
        }
}

/* Options about ssh, where nothing is reached by it. */
static void warn_of_ssh(const struct zt_job_plan *p, FILE *out)
{
    for (int i = 0; i < p->num_nodes; i++)
        if (p->nodes[i].starter == zt_starter_find("ssh"))
            return;
    for (const char *const *name = p->launch->about_ssh; *name; name++)
        fprintf(out, "--%s has no effect: no node of this job is reached by ssh\n",
                *name);
}

void zt_job_plan_warn(const struct zt_job_plan *p, FILE *out)
{
    struct zt_cores cores;
    int ranks = ranks_here(p, p->num_nodes);

    warn_of_outer(p, out);
    warn_of_ssh(p, out);
    if (!p->mpirun)
        warn_of_named(p, out);
    if (!p->is_plugin || ranks < 2 || zt_cores_init(&cores, p->core_list, NULL))
        return;
    if (ranks > cores.num) {
        fprintf(out, "%d ranks share %d core%s of this host and slow each other down",
                ranks, cores.num, plural(cores.num));
        print_advice(p, cores.num, out);
        fputc('\n', out);
    }
    zt_cores_release(&cores);
}
