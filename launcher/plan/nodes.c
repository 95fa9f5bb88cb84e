/* Which hosts and slots, and how each host is reached. */
#include "launcher/plan/plan.h"

#include "common/cores/cores.h"
#include "common/loadable.h"
#include "common/sysfile.h"
#include "launcher/plan/hostfile.h"
#include "launcher/start/slurm.h"
#include "launcher/start/start.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_HOSTFILE "/job/hostfile"

/* ------------------------------------------------------------------ hosts and slots */

/* The devices this process may see, where the user or Slurm has said so; "" and "-1" are none. */
static const char *visible_devices(void)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");

    return list && *list && *list != '-' ? list : NULL;
}

static int count_devices(const char *list)
{
    int n = 1;

    for (; *list; list++)
        n += *list == ',';
    return n;
}

int zt_job_plan_own_gpus(const struct zt_launch *l)
{
    return zt_device_object_is_wanted(l->device) ? zt_sysfile_count_gpus("/dev") : 0;
}

/* Devices for which ranks are started unasked. A list that is in the environment on a machine
 * without GPUs makes no ranks of a model; what a program does with it is not known. */
static int devices_to_use(const struct zt_launch *l)
{
    const char *devices = visible_devices();
    int own = zt_job_plan_own_gpus(l);
    bool chosen = l->include || l->exclude;

    return devices && (own || chosen || !l->is_plugin) ? count_devices(devices) : own;
}

/* No hostfile: this host. As many slots as asked for, or one for each device or core. */
static zt_err own_hosts(const struct zt_launch *l, struct zt_hosts *out,
                        struct zt_fault *fault)
{
    const char *devices = visible_devices();
    int slots = l->num_gpus > 0 ? l->num_gpus : devices_to_use(l);
    struct zt_cores cores;
    zt_err rc;

    if (slots == 0)
        slots = 1;
    if ((l->include || l->exclude) && !devices && zt_job_plan_own_gpus(l) == 0) {
        rc = zt_cores_init(&cores, l->core_list, fault);
        if (rc)
            return rc;
        slots = cores.num;
        zt_cores_release(&cores);
    }
    return zt_hosts_one("localhost", slots, out, fault);
}

/* A dry run of --num_nodes without a list of hosts: they need not exist, and each is taken to be
 * like this one. */
static bool are_assumed(const struct zt_launch *l)
{
    return l->action == ZT_LAUNCH_DRY_RUN && l->num_nodes > 1;
}

static zt_err assumed_hosts(const struct zt_launch *l, struct zt_hosts *out,
                            struct zt_fault *fault)
{
    char *text = NULL;
    size_t bytes;
    FILE *f;
    int slots;
    zt_err rc = own_hosts(l, out, fault);

    if (rc)
        return rc;
    slots = zt_hosts_total(out);
    zt_hosts_release(out);
    f = open_memstream(&text, &bytes);
    if (!f)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the plan");
    for (int i = 0; i < l->num_nodes; i++)
        fprintf(f, "node%d slots=%d\n", i, slots);
    rc = fclose(f) ? zt_fault_set(fault, ZT_E_NOMEM, "no memory for the plan")
                   : zt_hosts_parse(text, bytes, "--num_nodes", out, fault);
    free(text);
    return rc;
}

/* Inside sbatch or salloc, unless the user says otherwise. */
static bool is_slurm_job(const struct zt_launch *l)
{
    return !l->hostfile && zt_slurm_is_allocation() &&
           (strcmp(l->launcher, "auto") == 0 || strcmp(l->launcher, "slurm") == 0);
}

static zt_err read_hosts(const struct zt_launch *l, struct zt_hosts *out, bool *from_file,
                         struct zt_fault *fault)
{
    const char *path = l->hostfile ? l->hostfile : DEFAULT_HOSTFILE;

    *from_file = true;
    if (is_slurm_job(l))
        return zt_slurm_hosts(out, fault);
    *from_file = l->hostfile || access(path, R_OK) == 0;
    if (*from_file)
        return zt_hosts_read(path, out, fault);
    return are_assumed(l) ? assumed_hosts(l, out, fault) : own_hosts(l, out, fault);
}

static zt_err choose_hosts(const struct zt_launch *l, struct zt_hosts *h, bool *from_file,
                           struct zt_fault *fault)
{
    zt_err rc;

    if (l->include && l->exclude)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--include and --exclude do not go together");
    if ((l->include || l->exclude) && (l->num_gpus > 0 || l->num_nodes > 0))
        return zt_fault_set(
            fault, ZT_E_USAGE,
            "--num_gpus and --num_nodes do not go together with --include or "
            "--exclude");
    rc = read_hosts(l, h, from_file, fault);
    if (rc)
        return rc;
    if (l->include)
        rc = zt_hosts_include(h, l->include, fault);
    if (!rc && l->exclude)
        rc = zt_hosts_exclude(h, l->exclude, fault);
    if (rc && !*from_file && visible_devices())
        zt_fault_context(fault, rc, "CUDA_VISIBLE_DEVICES=%s", visible_devices());
    if (!rc && l->num_nodes > h->num && is_slurm_job(l))
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--num_nodes %d: the Slurm job has %d node%s; ask Slurm for "
                            "more, as by sbatch -N %d",
                            l->num_nodes, h->num, h->num == 1 ? "" : "s", l->num_nodes);
    if (!rc)
        rc = zt_hosts_limit(h, l->num_nodes, l->num_gpus, fault);
    return rc;
}

/* ------------------------------------------------------------------ how to get there */

static bool is_mpi(const char *launcher)
{
    static const char *const kinds[] = {"openmpi", "mpich", "impi", "mvapich"};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (strcmp(launcher, kinds[i]) == 0)
            return true;
    return false;
}

static zt_err no_starter(const struct zt_job_plan *p, const char *name,
                         struct zt_fault *fault)
{
    char names[512] = "";
    size_t at = 0;

    for (int i = 0; i < p->num_nodes && at < sizeof(names); i++)
        if (!p->nodes[i].starter)
            at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", at ? ", " : "",
                                   p->nodes[i].host);
    return zt_fault_set(
        fault, ZT_E_UNSUPPORTED,
        "remote hosts are not available in this version: %s (it was built "
        "without the %s launcher)",
        names, name);
}

/* auto: this host directly, others by ssh; the nodes of a Slurm job by srun. */
static zt_err choose_starters(struct zt_job_plan *p, const struct zt_launch *l,
                              const struct zt_hosts *h, struct zt_fault *fault)
{
    bool automatic = strcmp(l->launcher, "auto") == 0;
    bool slurm = is_slurm_job(l);
    const char *name = slurm ? "slurm" : automatic ? "ssh" : l->launcher;
    const struct zt_starter *other = zt_starter_find(name);
    const char *here = NULL;
    bool missing = false;

    p->same_host = true;
    for (int i = 0; i < h->num; i++) {
        bool direct =
            automatic && !slurm && !l->force_multi && zt_host_is_here(&h->host[i]);

        if (direct && here)
            return zt_fault_set(
                fault, ZT_E_USAGE,
                "the hosts %s and %s are both this machine; name it once, or use "
                "--launcher local to have a node for each",
                here, h->host[i].name);
        if (direct)
            here = h->host[i].name;
        p->nodes[i].starter = direct ? &zt_starter_local : other;
        p->same_host = p->same_host && p->nodes[i].starter == &zt_starter_local;
        missing = missing || !p->nodes[i].starter;
    }
    return missing ? no_starter(p, name, fault) : ZT_OK;
}

static zt_err no_allocation(struct zt_fault *fault)
{
    if (getenv("SLURM_JOB_ID"))
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--launcher slurm: srun has started this zlaunch several "
                            "times; start it once, or let srun start zworker");
    return zt_fault_set(fault, ZT_E_USAGE,
                        "--launcher slurm: this is not inside a Slurm allocation "
                        "(SLURM_JOB_ID is not set); get one by salloc -N 2, or use a "
                        "batch script (scripts/zlaunch.sbatch); without --launcher the "
                        "ranks run on this host");
}

static zt_err choose_way(struct zt_job_plan *p, const struct zt_launch *l,
                         const struct zt_hosts *h, struct zt_fault *fault)
{
    bool srun = strcmp(l->launcher, "slurm") == 0 && !l->is_plugin;

    if (l->node_rank >= h->num)
        return zt_fault_set(fault, ZT_E_USAGE, "--node_rank %d: there are %d nodes",
                            l->node_rank, h->num);
    if (l->launcher_args && *l->launcher_args && !is_mpi(l->launcher) && !srun)
        return zt_fault_set(
            fault, ZT_E_USAGE,
            "--launcher_args: they are words for mpirun (--launcher openmpi "
            "and its like), and for the srun that --launcher slurm starts a "
            "program with; here is neither: leave them out");
    p->only_node = l->node_rank;
    if (l->node_rank >= 0 && (is_mpi(l->launcher) || strcmp(l->launcher, "slurm") == 0))
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--launcher %s does not go together with --no_ssh, where "
                            "each zlaunch starts the ranks of its own node",
                            l->launcher);
    if (l->node_rank >= 0) {
        p->nodes[l->node_rank].starter = &zt_starter_local;
        p->same_host = h->num == 1;
        return ZT_OK;
    }
    if (is_mpi(l->launcher) || srun) {
        p->mpirun = l->launcher;
        return ZT_OK;
    }
    if (strcmp(l->launcher, "slurm") == 0 && !l->hostfile && !zt_slurm_is_allocation())
        return no_allocation(fault);
    return choose_starters(p, l, h, fault);
}

/* ------------------------------------------------------------------ nodes */

/* "0,2", or the entries of the user's own list that the slots count. */
static char *device_list(const struct zt_host *h, const char *own)
{
    char *text = NULL;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);

    if (!f)
        return NULL;
    for (int k = 0; k < h->num_slots; k++) {
        const char *entry = own;

        for (int skip = h->slots[k]; own && skip > 0; skip--)
            entry += strcspn(entry, ",") + 1;
        if (own)
            fprintf(f, "%s%.*s", k ? "," : "", (int)strcspn(entry, ","), entry);
        else
            fprintf(f, "%s%d", k ? "," : "", h->slots[k]);
    }
    fclose(f);
    return text;
}

/* Slots of this host count the devices that this process may see. More ranks than those share
 * them, or run on processors: the list stays as it is, and no device is made up. */
static zt_err choose_devices(const struct zt_launch *l, const struct zt_host *h,
                             bool in_hostfile, bool is_here, char **out,
                             struct zt_fault *fault)
{
    const char *own = is_here ? getenv("CUDA_VISIBLE_DEVICES") : NULL;
    int last = h->slots[h->num_slots - 1];
    int num = own && visible_devices() ? count_devices(own) : 0;

    if (own && last >= num) {
        if (!num || !in_hostfile || !(l->include || zt_job_plan_own_gpus(l) > 0))
            return ZT_OK;
        return zt_fault_set(fault, ZT_E_USAGE,
                            "host %s: slot %d is asked for, and CUDA_VISIBLE_DEVICES=%s "
                            "leaves %d, counted from 0: choose among them, or unset it",
                            h->name, last, own, num);
    }
    *out = device_list(h, own);
    return *out ? ZT_OK : zt_fault_set(fault, ZT_E_NOMEM, "no memory for the plan");
}

/* Moves the strings of h. */
static zt_err take_hosts(struct zt_job_plan *p, const struct zt_launch *l,
                         struct zt_hosts *h, bool from_file, struct zt_fault *fault)
{
    bool chosen =
        from_file || visible_devices() || l->include || l->exclude || l->num_gpus > 0;
    bool in_hostfile = from_file && !is_slurm_job(l);
    zt_err rc = ZT_OK;

    p->nodes = calloc((size_t)h->num, sizeof(*p->nodes));
    if (!p->nodes)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the plan");
    p->are_assumed = !from_file && are_assumed(l);
    p->num_nodes = h->num;
    p->world = zt_hosts_total(h);
    for (int i = 0; !rc && i < h->num; i++) {
        bool is_here = !from_file || i == l->node_rank || zt_host_is_here(&h->host[i]);
        struct zt_job_plan_node *n = &p->nodes[i];

        n->host = strdup(h->host[i].name);
        n->user = h->host[i].user ? strdup(h->host[i].user) : NULL;
        n->port = h->host[i].port;
        n->num_slots = h->host[i].num_slots;
        if (!n->host || (h->host[i].user && !n->user))
            return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the plan");
        if (chosen)
            rc = choose_devices(l, &h->host[i], in_hostfile, is_here, &n->devices, fault);
        n->slots = h->host[i].slots;
        h->host[i].slots = NULL;
    }
    return rc;
}

zt_err zt_job_plan_choose_nodes(struct zt_job_plan *p, const struct zt_launch *l,
                                struct zt_fault *fault)
{
    struct zt_hosts h = {0};
    bool from_file = false;
    zt_err rc = choose_hosts(l, &h, &from_file, fault);

    if (!rc)
        rc = take_hosts(p, l, &h, from_file, fault);
    if (!rc)
        rc = choose_way(p, l, &h, fault);
    zt_hosts_release(&h);
    if (rc)
        return rc;
    p->elastic = l->elastic;
    p->max_nodes =
        l->max_nodes > 0 && l->max_nodes < p->num_nodes ? l->max_nodes : p->num_nodes;
    p->min_nodes = !l->elastic ? p->num_nodes : l->min_nodes > 0 ? l->min_nodes : 1;
    if (p->min_nodes > p->num_nodes)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--min_elastic_nodes %d: there are %d nodes", p->min_nodes,
                            p->num_nodes);
    return ZT_OK;
}

void zt_job_plan_nodes_release(struct zt_job_plan *p)
{
    for (int i = 0; i < p->num_nodes; i++) {
        free(p->nodes[i].host);
        free(p->nodes[i].user);
        free(p->nodes[i].slots);
        free(p->nodes[i].devices);
    }
    free(p->nodes);
}
