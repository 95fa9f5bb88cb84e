#include "launcher/plan/plan.h"

#include "common/json/line.h"
#include "common/loadable.h"
#include "common/message/frame.h"
#include "launcher/plan/env_forward.h"
#include "launcher/start/program.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#define MAX_RANKS   4096 /* of one node */
#define MAX_WORLD   (1 << 20)
#define PMI_VALUE   1024  /* bytes of a value of PMI, with its NUL */
#define REMOTE_PORT 29500 /* MASTER_PORT where no free one can be asked for */

/* ------------------------------------------------------------------ what to run */

static bool ends_in(const char *name, const char *suffix)
{
    size_t n = strlen(name), k = strlen(suffix);

    return n > k && strcmp(name + n - k, suffix) == 0;
}

/* There is no such program. Is it what people give to other launchers, or a plugin's name
 * or source? Else the fault stays as it is. */
static zt_err explain_target(const char *target, zt_err rc, struct zt_fault *fault)
{
    char file[PATH_MAX], found[ZT_LOADABLE_PATH], flags[ZT_LOADABLE_PATH];

    snprintf(file, sizeof(file), "%s.so", target);
    if (rc != ZT_E_NOINPUT)
        return rc;
    if (ends_in(target, ".py"))
        return zt_fault_set(fault, rc,
                            "%s is a Python script, and what zlaunch trains itself is a "
                            "plugin, a model in C (docs/PLUGINS.md); to start the script "
                            "as it is, put -- python3 before it, behind the options of "
                            "zlaunch: zlaunch -- python3 %s",
                            target, target);
    if (ends_in(target, ".c"))
        return zt_fault_set(fault, rc,
                            "%s is C source: build the plugin, cc -O2 -shared -fPIC "
                            "%s -o %.*s.so %s (docs/PLUGINS.md), and give that",
                            target, zt_plugin_header_flags(flags, sizeof(flags)),
                            (int)strlen(target) - 2, target, target);
    if (strchr(target, '/') ? access(file, R_OK) == 0
                            : zt_plugin_find(file, found, sizeof(found)))
        return zt_fault_set(fault, rc, "there is no program '%s'; the plugin is %s.so",
                            target, target);
    return rc;
}

/* A path that is wrong, of a name that may be right. */
static zt_err explain_plugin(const char *path, int e, struct zt_fault *fault)
{
    const char *slash = strrchr(path, '/');
    char found[ZT_LOADABLE_PATH];

    if (slash && zt_plugin_find(slash + 1, found, sizeof(found)) &&
        access(found, R_OK) == 0)
        return zt_fault_set(fault, ZT_E_NOINPUT, "plugin %s: %s; there is %s", path,
                            strerror(e), found);
    return zt_fault_set(fault, ZT_E_NOINPUT, "plugin %s: %s", path, strerror(e));
}

/* Word i names a file, or is the text of an option. */
static zt_err refuse_word(char *const *words, int i, struct zt_fault *fault)
{
    int option = i;

    while (option > 0 && words[option][0] != '-')
        option--;
    return zt_fault_set(
        fault, ZT_E_USAGE,
        "%s%sword %d behind the target is not UTF-8: write it so (iconv -t "
        "UTF-8), or rename the file that it names",
        option ? words[option] : "", option ? ": " : "", i);
}

static zt_err choose_command(const struct zt_launch *l, struct zt_job_plan *p,
                             struct zt_fault *fault)
{
    const char *target = l->target[0];
    char found[ZT_LOADABLE_PATH];
    struct stat sb;
    int n = 0;
    zt_err rc;

    p->is_plugin = l->is_plugin;
    p->argv = calloc((size_t)l->target_argc + 2, sizeof(*p->argv));
    if (!p->argv)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the command");
    if (p->is_plugin) {
        if (!zt_plugin_find(target, found, sizeof(found)))
            return zt_fault_set(fault, ZT_E_NOINPUT,
                                "plugin %s: it is neither here nor in any of %s; "
                                "ZLAUNCH_PLUGIN_PATH names more folders",
                                target, found);
        target = found;
        if (stat(target, &sb) < 0)
            return explain_plugin(target, errno, fault);
        if (!S_ISREG(sb.st_mode))
            return zt_fault_set(fault, ZT_E_NOINPUT, "plugin %s is no file", target);
        p->argv[n++] = strdup(p->zworker);
        p->argv[n++] = strdup(target);
    } else {
        rc = zt_find_program(target, &p->argv[0], fault);
        if (rc)
            return explain_target(target, rc, fault);
        n = 1;
    }
    for (int i = 1; i < l->target_argc; i++)
        p->argv[n++] = strdup(l->target[i]);
    for (int i = 0; i < l->target_argc; i++) { /* the daemon is told in JSON */
        json_t *word = json_string(l->target[i]);

        if (!word && zt_json_is_short_of_memory())
            return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the command");
        if (!word)
            return refuse_word(l->target, i, fault);
        json_decref(word);
    }
    for (int i = 0; i < n; i++)
        if (!p->argv[i])
            return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the command");
    return ZT_OK;
}

/* ------------------------------------------------------------------ the rest */

/* A port nobody uses now; 29500 if the system gives none. */
static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = REMOTE_PORT;

    if (fd >= 0 && bind(fd, (struct sockaddr *)&a, n) == 0 &&
        getsockname(fd, (struct sockaddr *)&a, &n) == 0)
        port = ntohs(a.sin_port);
    if (fd >= 0)
        close(fd);
    return port;
}

/* NAME-RANDOM, where a file name cannot have all of a run's name; else zt-PID-RANDOM. */
static void name_job(struct zt_job_plan *p, const char *run_id)
{
    char *id = p->job_id;
    uint64_t r = 0;
    time_t now = time(NULL);
    struct tm tm;

    if (getrandom(&r, sizeof(r), 0) != sizeof(r))
        r = (uint64_t)now;
    if (*run_id)
        snprintf(id, sizeof(p->job_id), "%.22s-%016llx", run_id, (unsigned long long)r);
    else
        snprintf(id, sizeof(p->job_id), "zt-%d-%016llx", (int)getpid(),
                 (unsigned long long)r);
    localtime_r(&now, &tm);
    strftime(p->log_stamp, sizeof(p->log_stamp), "%Y%m%d%H%M%S", &tm);
}

static void set_env(struct zt_job_plan *p, const char *name, const char *value)
{
    json_object_set_new(p->env, name, zt_json_text(value, strlen(value)));
}

/* Options that the ranks read too, in the form every option has in the environment. */
static void pass_options(const struct zt_launch *l, struct zt_job_plan *p)
{
    set_env(p, "ZLAUNCH_LOG_FORMAT", l->json ? "json" : "text");
    set_env(p, "ZLAUNCH_LOG_LEVEL", l->level_name);
    if (l->device_given)
        set_env(p, "ZLAUNCH_DEVICE", l->device);
    p->serve_store = l->serve_store;
    if (l->serve_store) /* env:// of torch.distributed asks for this */
        set_env(p, "TORCHELASTIC_USE_AGENT_STORE", "True");
}

/* The address of rank 0 as other nodes reach it. */
static void choose_master(struct zt_job_plan *p, const struct zt_launch *l)
{
    const char *addr = p->num_nodes ? p->nodes[0].host : "";
    char own[256] = "127.0.0.1";

    if (p->same_host)
        addr = "127.0.0.1";
    else if ((l->serve_store || p->nodes[0].starter == &zt_starter_local) &&
             gethostname(own, 255) == 0)
        addr = own;
    snprintf(p->master_addr, sizeof(p->master_addr), "%s",
             l->master_addr ? l->master_addr : addr);
    /* --no_ssh: others ask nobody, either */
    p->master_port = l->master_port                     ? l->master_port
                     : p->same_host && l->node_rank < 0 ? 0
                                                        : REMOTE_PORT;
}

/* What --export says, word by word. */
static zt_err split_exports(const char *exports, char ***out, struct zt_fault *fault)
{
    char **list = calloc((exports ? strlen(exports) : 0) + 2, sizeof(*list));
    size_t num = 0;

    while (list && exports && *exports) {
        size_t n = strcspn(exports, ",");

        list[num] = strndup(exports, n);
        if (!list[num++])
            break;
        exports += n + (exports[n] == ',');
    }
    if (!list || (num && !list[num - 1])) {
        zt_forward_release(list);
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the plan");
    }
    *out = list;
    return ZT_OK;
}

/* NAME becomes NAME=VALUE. */
static zt_err take_own_value(char **item, struct zt_fault *fault)
{
    const char *value = strchr(*item, '=') ? NULL : getenv(*item);
    char *whole;

    if (!value)
        return ZT_OK;
    if (asprintf(&whole, "%s=%s", *item, value) < 0)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the plan");
    free(*item);
    *item = whole;
    return ZT_OK;
}

static zt_err choose_forward(struct zt_job_plan *p, const struct zt_launch *l,
                             struct zt_fault *fault)
{
    char **exports;
    zt_err rc = split_exports(l->exports, &exports, fault);

    if (rc)
        return rc;
    rc = zt_forward_env(environ, exports, &p->forward, &p->left_out, fault);
    for (size_t i = 0; !rc && exports[i]; i++)
        rc = take_own_value(&exports[i], fault);
    if (!rc)
        rc = zt_forward_named(environ, exports, &p->named, fault);
    zt_forward_release(exports);
    return rc;
}

static zt_err check_sizes(const struct zt_job_plan *p, struct zt_fault *fault)
{
    int64_t world = 0;

    for (int i = 0; i < p->num_nodes; i++) {
        if (p->nodes[i].num_slots > MAX_RANKS)
            return zt_fault_set(fault, ZT_E_USAGE,
                                "%d ranks on host %s; at most %d are possible",
                                p->nodes[i].num_slots, p->nodes[i].host, MAX_RANKS);
        world += p->nodes[i].num_slots;
    }
    if (world > MAX_WORLD)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "%lld ranks on %d nodes; at most %d are possible",
                            (long long)world, p->num_nodes, MAX_WORLD);
    return ZT_OK;
}

static zt_err fill(struct zt_job_plan *p, const struct zt_launch *l,
                   struct zt_fault *fault)
{
    zt_err rc = zt_find_zworker(&p->zworker, fault);

    if (!rc)
        rc = choose_command(l, p, fault);
    if (!rc)
        rc = zt_job_plan_choose_nodes(p, l, fault);
    if (!rc)
        rc = check_sizes(p, fault);
    if (!rc)
        rc = choose_forward(p, l, fault);
    if (rc)
        return rc;
    name_job(p, l->run_id);
    choose_master(p, l);
    p->launch = l;
    p->cwd = getcwd(NULL, 0);
    p->grace_ms = (int)(l->grace_s * 1000);
    p->timeout_s = l->timeout_s;
    p->hang_timeout_s = l->hang_timeout_s;
    p->max_restarts = l->max_restarts;
    p->bind = l->bind;
    p->core_list = l->core_list;
    p->log_dir = l->log_dir;
    p->summary = l->summary;
    p->env = json_object();
    if (!p->env)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the plan");
    pass_options(l, p);
    p->has_secret = p->only_node < 0;
    if (p->has_secret)
        rc = zt_secret_random(&p->secret, fault);
    return rc ? rc : zt_job_plan_choose_push(p, fault);
}

zt_err zt_job_plan_open(const struct zt_launch *launch, struct zt_job_plan **out,
                        struct zt_fault *fault)
{
    struct zt_job_plan *p = calloc(1, sizeof(*p));
    zt_err rc;

    if (!p)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the plan");
    rc = fill(p, launch, fault);
    if (rc) {
        zt_job_plan_close(p);
        return rc;
    }
    *out = p;
    return ZT_OK;
}

void zt_job_plan_close(struct zt_job_plan *plan)
{
    if (!plan)
        return;
    for (char **a = plan->argv; a && *a; a++)
        free(*a);
    free(plan->argv);
    free(plan->zworker);
    free(plan->cwd);
    json_decref(plan->env);
    zt_forward_release(plan->forward);
    zt_forward_release(plan->named);
    free(plan->left_out);
    zt_forward_release(plan->push);
    json_decref(plan->pushed);
    zt_job_plan_nodes_release(plan);
    zt_secret_wipe(&plan->secret);
    free(plan);
}

/* ------------------------------------------------------------------ a start of the job
 */

zt_err zt_group_init(struct zt_group *g, const struct zt_job_plan *plan,
                     struct zt_fault *fault)
{
    *g = (struct zt_group){0};
    g->node_rank = calloc((size_t)plan->num_nodes, sizeof(int));
    g->first_rank = calloc((size_t)plan->num_nodes, sizeof(int));
    g->at = calloc((size_t)plan->num_nodes, sizeof(int));
    if (!g->node_rank || !g->first_rank || !g->at) {
        zt_group_release(g);
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the plan");
    }
    for (int i = 0; i < plan->num_nodes; i++) /* none takes part before it is arranged */
        g->node_rank[i] = -1;
    return ZT_OK;
}

void zt_group_release(struct zt_group *g)
{
    free(g->node_rank);
    free(g->first_rank);
    free(g->at);
    free(g->pmi_mapping);
    *g = (struct zt_group){0};
}

/* Which ranks share a node, in PMI's words: "(vector,(0,2,4),(2,1,3))", a triple for each
 * run of nodes with equally many ranks: first node, nodes, ranks of each. NULL: no
 * memory, or longer than PMI allows; MPI then looks at host names. */
static char *pmi_mapping(const struct zt_job_plan *p, const struct zt_group *g)
{
    int first = 0, num = 0, each = 0;
    char *text = NULL;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);

    if (!f)
        return NULL;
    fputs("(vector", f);
    for (int i = 0; i <= g->num_nodes; i++) {
        int slots = i < g->num_nodes ? p->nodes[g->at[i]].num_slots : 0;

        if (num && slots != each) {
            fprintf(f, ",(%d,%d,%d)", first, num, each);
            first += num;
            num = 0;
        }
        each = slots;
        num++;
    }
    fputs(")", f);
    fclose(f);
    if (bytes < PMI_VALUE)
        return text;
    free(text);
    return NULL;
}

/* A node that may take the place of node `gone`; -1: none. */
static int find_spare(const struct zt_group *g, const struct zt_job_plan *plan,
                      const bool *present, int gone)
{
    for (int i = 0; i < plan->num_nodes; i++)
        if (present[i] && g->node_rank[i] < 0 &&
            plan->nodes[i].num_slots == plan->nodes[gone].num_slots)
            return i;
    return -1;
}

/* Everybody who is there keeps his place; false: not all places can be taken. */
static bool keep_places(struct zt_group *g, const struct zt_job_plan *plan,
                        const bool *present)
{
    int num = 0;

    for (int i = 0; i < plan->num_nodes; i++)
        num += present[i];
    if ((num < plan->max_nodes ? num : plan->max_nodes) != g->num_nodes)
        return false;
    for (int place = 0; place < g->num_nodes; place++) {
        int gone = g->at[place], spare;

        if (present[gone])
            continue;
        spare = find_spare(g, plan, present, gone);
        if (spare < 0)
            return false;
        g->at[place] = spare;
        g->node_rank[spare] = place;
        g->first_rank[spare] = g->first_rank[gone];
        g->node_rank[gone] = -1;
    }
    return true;
}

static void take_first(struct zt_group *g, const struct zt_job_plan *plan,
                       const bool *present)
{
    g->num_nodes = g->world = 0;
    for (int i = 0; i < plan->num_nodes; i++) {
        bool in = (!present || present[i]) && g->num_nodes < plan->max_nodes;

        g->node_rank[i] = in ? g->num_nodes : -1;
        g->first_rank[i] = g->world;
        if (!in)
            continue;
        g->at[g->num_nodes++] = i;
        g->world += plan->nodes[i].num_slots;
    }
}

void zt_group_arrange(struct zt_group *g, const struct zt_job_plan *plan,
                      const bool *present)
{
    if (!present || g->num_nodes == 0 || !keep_places(g, plan, present))
        take_first(g, plan, present);
    g->master_port = plan->master_port ? plan->master_port : free_port();
    free(g->pmi_mapping);
    /* with --no_ssh each node has a zlaunch of its own: nobody carries PMI between them */
    g->pmi_mapping =
        g->num_nodes > 1 && plan->only_node < 0 ? pmi_mapping(plan, g) : NULL;
}

int zt_group_node_of(const struct zt_group *g, const struct zt_job_plan *plan, int rank)
{
    for (int i = 0; i < plan->num_nodes; i++)
        if (g->node_rank[i] >= 0 && rank >= g->first_rank[i] &&
            rank < g->first_rank[i] + plan->nodes[i].num_slots)
            return i;
    return -1;
}

/* Nodes on one host share its cores: which part of them is this node's. */
static void set_share(json_t *o, const struct zt_job_plan *p, const struct zt_group *g,
                      int node)
{
    if (!p->same_host || g->num_nodes < 2)
        return;
    json_object_set_new(o, "share_first", json_integer(g->first_rank[node]));
    json_object_set_new(o, "share_ranks", json_integer(g->world));
}

static void set_text(json_t *o, const char *key, const char *value)
{
    json_object_set_new(o, key, value ? zt_json_text(value, strlen(value)) : json_null());
}

static json_t *rank_env(const struct zt_job_plan *p, int node)
{
    json_t *env = json_copy(p->env);

    if (p->nodes[node].devices)
        set_text(env, "CUDA_VISIBLE_DEVICES", p->nodes[node].devices);
    return env;
}

static void set_secret(json_t *o, const struct zt_job_plan *p)
{
    char text[ZT_SECRET_TEXT];

    if (p->has_secret)
        zt_secret_text(&p->secret, text);
    set_text(o, "secret", p->has_secret ? text : NULL);
}

/* What ranks know the job by. With --no_ssh it has to be the same of every zlaunch. */
static void set_rank_id(json_t *o, const struct zt_job_plan *p)
{
    char id[sizeof(p->master_addr) + 32];

    snprintf(id, sizeof(id), "no-ssh-%s-%d", p->master_addr, p->master_port);
    set_text(o, "id", p->only_node < 0 ? p->job_id : id);
}

json_t *zt_job_plan_frame(const struct zt_job_plan *p, const struct zt_group *g, int node)
{
    const struct zt_job_plan_node *n = &p->nodes[node];
    bool remote = n->starter != &zt_starter_local;
    json_t *o = json_object(), *argv = json_array();

    for (char **a = p->argv; *a; a++)
        json_array_append_new(argv, zt_json_text(*a, strlen(*a)));
    set_rank_id(o, p);
    json_object_set_new(o, "argv", argv);
    json_object_set_new(o, "self", json_boolean(p->is_plugin && remote));
    if (remote && p->pushed)
        json_object_set(o, "pushed", p->pushed);
    json_object_set_new(o, "env", rank_env(p, node));
    json_object_set_new(o, "first_rank", json_integer(g->first_rank[node]));
    json_object_set_new(o, "local_world", json_integer(n->num_slots));
    json_object_set_new(o, "world", json_integer(g->world));
    json_object_set_new(o, "node_rank", json_integer(g->node_rank[node]));
    json_object_set_new(o, "num_nodes", json_integer(g->num_nodes));
    json_object_set_new(o, "restart", json_integer(g->restart));
    json_object_set_new(o, "max_restarts", json_integer(p->max_restarts));
    json_object_set_new(o, "silence_ms", json_integer(remote ? ZT_SILENCE_MS : 0));
    set_share(o, p, g, node);
    set_text(o, "pmi_mapping", g->pmi_mapping);
    set_secret(o, p);
    set_text(o, "master_addr", p->master_addr);
    json_object_set_new(o, "master_port", json_integer(g->master_port));
    json_object_set_new(o, "grace_ms", json_integer(p->grace_ms));
    json_object_set_new(o, "hold_user_signals", json_boolean(p->is_plugin));
    json_object_set_new(o, "bind", json_boolean(p->bind));
    set_text(o, "core_list", p->core_list);
    set_text(o, "log_dir", p->log_dir);
    set_text(o, "log_stamp", p->log_stamp);
    set_text(o, "pid_file", p->pid_file[0] && !remote ? p->pid_file : NULL);
    return o;
}
