#include "launcher/mpirun/mpirun.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* MPI ranks that look for RANK find it where their launcher has put it. The program takes
 * the place of the shell, so its exit code stays. */
static const char place_script[] =
    "export RANK=\"${PMIX_RANK:-$PMI_RANK}\" "
    "LOCAL_RANK=\"${PALS_LOCAL_RANKID:-$MPI_LOCALRANKID}\"; exec \"$@\"";

static const char *const mvapich_env[] = {
    "MV2_SMP_USE_CMA=0",   "MV2_DEBUG_SHOW_BACKTRACE=1", "MV2_USE_CUDA=1",
    "MV2_SUPPORT_DL=1",    "MV2_ENABLE_AFFINITY=0",      "MV2_INTER_ALLGATHER_TUNING=5",
    "MV2_CUDA_USE_NAIVE=0"};

/* ------------------------------------------------------------------ words */

/* Takes `word`. */
static void take(struct zt_mpirun *m, char *word)
{
    char **grown = word ? realloc(m->argv, (m->num + 2) * sizeof(*grown)) : NULL;

    if (!grown) {
        free(word);
        m->failed = true;
        return;
    }
    m->argv = grown;
    m->argv[m->num++] = word;
    m->argv[m->num] = NULL;
}

static void add(struct zt_mpirun *m, const char *fmt, ...) ZT_PRINTF(2, 3);
static void add(struct zt_mpirun *m, const char *fmt, ...)
{
    char *word = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&word, fmt, ap) < 0)
        word = NULL;
    va_end(ap);
    take(m, word);
}

/* Split at blanks; quotes keep blanks, a backslash keeps any character. */
static void add_launcher_args(struct zt_mpirun *m)
{
    const char *args = m->plan->launch->launcher_args, *p = args ? args : "";

    while (*(p += strspn(p, " \t"))) {
        char *word = calloc(1, strlen(p) + 1), quote = 0;
        size_t n = 0;

        if (!word) {
            m->failed = true;
            return;
        }
        for (; *p && (quote || !strchr(" \t", *p)); p++) {
            if (quote && *p == quote)
                quote = 0;
            else if (!quote && (*p == '"' || *p == '\''))
                quote = *p;
            else if (*p == '\\' && p[1] && quote != '\'')
                word[n++] = *++p;
            else
                word[n++] = *p;
        }
        take(m, word);
    }
}

typedef void (*export_fn)(struct zt_mpirun *m, const char *name, int name_bytes,
                          const char *value);

static void each_export(struct zt_mpirun *m, export_fn fn)
{
    const char *key;
    json_t *v;

    for (char **e = m->plan->forward; *e; e++) {
        const char *is = strchr(*e, '=');

        fn(m, *e, (int)(is - *e), is + 1);
    }
    json_object_foreach(m->plan->env, key, v)
    {
        fn(m, key, (int)strlen(key), json_string_value(v));
    }
}

static void export_x(struct zt_mpirun *m, const char *name, int n, const char *value)
{
    add(m, "-x");
    add(m, "%.*s=%s", n, name, value);
}

static void export_genv(struct zt_mpirun *m, const char *name, int n, const char *value)
{
    add(m, "-genv");
    add(m, "%.*s=%s", n, name, value);
}

static void export_genv_words(struct zt_mpirun *m, const char *name, int n,
                              const char *value)
{
    add(m, "-genv");
    add(m, "%.*s", n, name);
    add(m, "%s", value);
}

static void export_env(struct zt_mpirun *m, const char *name, int n, const char *value)
{
    add(m, "-env");
    add(m, "%.*s=%s", n, name, value);
}

static void genv(struct zt_mpirun *m, const char *name, const char *value)
{
    export_genv_words(m, name, (int)strlen(name), value);
}

/* What mpich and impi ranks are told of the job. */
static void add_place(struct zt_mpirun *m)
{
    const struct zt_job_plan *p = m->plan;
    char number[16];

    genv(m, "MASTER_ADDR", p->master_addr);
    snprintf(number, sizeof(number), "%d", p->master_port);
    genv(m, "MASTER_PORT", number);
    snprintf(number, sizeof(number), "%d", p->world);
    genv(m, "WORLD_SIZE", number);
    snprintf(number, sizeof(number), "%d", p->nodes[0].num_slots);
    genv(m, "LOCAL_SIZE", number);
}

static void add_hosts(struct zt_mpirun *m)
{
    char *list = NULL;
    size_t bytes;
    FILE *f = open_memstream(&list, &bytes);

    for (int i = 0; f && i < m->plan->num_nodes; i++)
        fprintf(f, "%s%s", i ? "," : "", m->plan->nodes[i].host);
    if (f)
        fclose(f);
    take(m, list);
}

static void add_program(struct zt_mpirun *m)
{
    for (char **a = m->plan->argv; *a; a++)
        add(m, "%s", *a);
}

/* ------------------------------------------------------------------ the kinds */

static void build_openmpi(struct zt_mpirun *m)
{
    const char *hostfile = m->plan->launch->hostfile;
    const char *extra = m->plan->launch->launcher_args;

    add(m, "mpirun");
    add(m, "-n");
    add(m, "%d", m->plan->world);
    if (hostfile) {
        add(m, "-hostfile");
        add(m, "%s", hostfile);
    }
    add(m, "--mca");
    add(m, "btl");
    add(m, "^openib");
    if (!extra || !strstr(extra, "btl_tcp_if_include")) {
        add(m, "--mca");
        add(m, "btl_tcp_if_include");
        add(m, "eth0");
    }
    add_launcher_args(m);
    add(m, "-x");
    add(m, "UCX_TLS=tcp");
    each_export(m, export_x);
    add_program(m);
}

static void build_mpich(struct zt_mpirun *m)
{
    add(m, "mpirun");
    add(m, "-n");
    add(m, "%d", m->plan->world);
    add(m, "-ppn");
    add(m, "%d", m->plan->nodes[0].num_slots);
    add_launcher_args(m);
    each_export(m, export_genv);
    add_place(m);
    add(m, "-hosts");
    add_hosts(m);
    add(m, "sh");
    add(m, "-c");
    add(m, "%s", place_script);
    add(m, "sh");
    add_program(m);
}

static void build_impi(struct zt_mpirun *m)
{
    int per = m->plan->nodes[0].num_slots;

    add(m, "mpirun");
    add(m, "-ppn");
    add(m, "%d", per);
    add_launcher_args(m);
    each_export(m, export_genv_words);
    add_place(m);
    genv(m, "I_MPI_PIN", "0");
    add(m, "-hosts");
    add_hosts(m);
    for (int rank = 0; rank < m->plan->world; rank++) {
        if (rank)
            add(m, ":");
        add(m, "-n");
        add(m, "1");
        add(m, "-env");
        add(m, "RANK");
        add(m, "%d", rank);
        add(m, "-env");
        add(m, "LOCAL_RANK");
        add(m, "%d", rank % per);
        add_program(m);
    }
}

static void build_mvapich(struct zt_mpirun *m)
{
    snprintf(m->hostfile, sizeof(m->hostfile), "/tmp/%s.hosts", m->plan->job_id);
    add(m, "mpirun");
    add(m, "-np");
    add(m, "%d", m->plan->world);
    add(m, "-ppn");
    add(m, "%d", m->plan->nodes[0].num_slots);
    add(m, "--hostfile");
    add(m, "%s", m->hostfile);
    add_launcher_args(m);
    for (size_t i = 0; i < sizeof(mvapich_env) / sizeof(*mvapich_env); i++) {
        add(m, "-env");
        add(m, "%s", mvapich_env[i]);
    }
    each_export(m, export_env);
    add_program(m);
}

/* A comma would end the value: such a variable is named alone, srun takes it from here.
 */
static void build_srun(struct zt_mpirun *m)
{
    const struct zt_launch *l = m->plan->launch;
    char *list = NULL;
    size_t bytes;
    FILE *out = open_memstream(&list, &bytes);

    add(m, "srun");
    add(m, "-n");
    add(m, "%d", m->plan->world);
    add_launcher_args(m);
    if (l->hostfile || l->include || l->exclude) {
        add(m, "--nodelist");
        add_hosts(m);
    }
    if (l->num_nodes > 0) {
        add(m, "--nodes");
        add(m, "%d", l->num_nodes);
    }
    if (l->num_gpus > 0) {
        add(m, "--gpus");
        add(m, "%d", m->plan->world);
    }
    if (out)
        fputs("--export=ALL", out);
    for (char **e = m->plan->forward; out && *e; e++)
        fprintf(out, ",%.*s", (int)strcspn(*e, strchr(*e, ',') ? "=" : ""), *e);
    if (out)
        fclose(out);
    take(m, list);
    add_program(m);
}

static const struct {
    const char *name;
    bool filters;     /* --include, --exclude, --num_nodes, --num_gpus have a meaning */
    bool equal_slots; /* it counts ranks per node */
    bool sets_master; /* ranks get MASTER_ADDR and MASTER_PORT */
    void (*build)(struct zt_mpirun *m);
} kinds[] = {
    {.name = "openmpi", .build = build_openmpi},
    {.name = "mpich", .equal_slots = true, .sets_master = true, .build = build_mpich},
    {.name = "impi", .equal_slots = true, .sets_master = true, .build = build_impi},
    {.name = "mvapich", .equal_slots = true, .build = build_mvapich},
    {.name = "slurm", .filters = true, .build = build_srun},
};

/* What zlaunch does for ranks that it starts itself; NULL: nothing of that is asked for. */
static const char *asked_in_vain(const struct zt_launch *l, bool sets_master)
{
    const struct {
        bool asked;
        const char *option;
    } rows[] = {
        {l->elastic, "elastic_training"},
        {l->max_restarts > 0, "max_restarts"},
        {l->hang_timeout_s > 0, "hang_timeout"},
        {l->summary, "summary"},
        {l->log_dir, "enable_each_rank_log"},
        {l->serve_store, "serve_store"},
        {l->master_addr && !sets_master, "master_addr"},
        {l->master_port > 0 && !sets_master, "master_port"},
        {l->bind_cores_to_rank, "bind_cores_to_rank"},
        {l->core_list, "bind_core_list"},
        {l->ssh.push, "push"},
        {l->ssh.port > 0, "ssh_port"},
        {l->ssh.identity, "ssh_identity"},
        {l->ssh.known_hosts, "ssh_known_hosts"},
        {l->ssh_accept_any_host, "ssh_accept_any_host"},
        {l->ssh.jump, "ssh_jump"},
        {l->ssh.program, "ssh_program"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (rows[i].asked)
            return rows[i].option;
    return NULL;
}

static zt_err check(const struct zt_job_plan *p, size_t kind, struct zt_fault *fault)
{
    const struct zt_launch *l = p->launch;
    const char *vain = asked_in_vain(l, kinds[kind].sets_master);

    if (vain)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--launcher %s: %s starts the ranks, and --%s has no effect "
                            "there; leave out one of them",
                            kinds[kind].name, kinds[kind].filters ? "srun" : "mpirun",
                            vain);
    if (!kinds[kind].filters && (l->include || l->exclude || l->num_nodes > 0 ||
                                 (l->num_gpus > 0 && l->hostfile)))
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--launcher %s: --include, --exclude, --num_nodes and "
                            "--num_gpus have no effect there; write a hostfile with what "
                            "is to be used",
                            kinds[kind].name);
    for (int i = 1; kinds[kind].equal_slots && i < p->num_nodes; i++)
        if (p->nodes[i].num_slots != p->nodes[0].num_slots)
            return zt_fault_set(
                fault, ZT_E_USAGE,
                "--launcher %s: every host needs the same number of slots; %s has %d, %s "
                "%d",
                kinds[kind].name, p->nodes[0].host, p->nodes[0].num_slots,
                p->nodes[i].host, p->nodes[i].num_slots);
    for (int i = 0; kinds[kind].build != build_openmpi && i < p->num_nodes; i++)
        if (p->nodes[i].user || p->nodes[i].port) /* openmpi reads the file itself */
            return zt_fault_set(fault, ZT_E_USAGE,
                                "--launcher %s: host %s: names of hosts alone can be "
                                "given there, no user and no port; these belong into "
                                "~/.ssh/config",
                                kinds[kind].name, p->nodes[i].host);
    return ZT_OK;
}

zt_err zt_mpirun_init(struct zt_mpirun *m, const struct zt_job_plan *plan,
                      struct zt_fault *fault)
{
    size_t kind = 0;
    zt_err rc;

    while (kind < sizeof(kinds) / sizeof(*kinds) &&
           strcmp(kinds[kind].name, plan->mpirun) != 0)
        kind++;
    if (kind == sizeof(kinds) / sizeof(*kinds))
        return zt_fault_set(fault, ZT_E_USAGE, "--launcher %s: no MPI launcher",
                            plan->mpirun);
    rc = check(plan, kind, fault);
    if (rc)
        return rc;
    *m = (struct zt_mpirun){.plan = plan};
    kinds[kind].build(m);
    if (!m->failed)
        return ZT_OK;
    zt_mpirun_release(m);
    return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the command");
}

/* What tells them apart in what `mpirun --version` says. MVAPICH starts its ranks by Hydra, too. */
static const struct {
    const char *sign, *whose, *launchers;
} mpis[] = {
    {"HYDRA", "MPICH's", "mpich mvapich"},
    {"Intel(R) MPI", "Intel's", "impi"},
    {"Open MPI", "Open MPI's", "openmpi"},
};

zt_err zt_mpirun_check_version(const struct zt_job_plan *plan, const char *version,
                               struct zt_fault *fault)
{
    for (size_t i = 0; i < sizeof(mpis) / sizeof(*mpis); i++) {
        if (!strstr(version, mpis[i].sign))
            continue;
        if (strstr(mpis[i].launchers, plan->mpirun) || strcmp(plan->mpirun, "slurm") == 0)
            return ZT_OK;
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--launcher %s: the mpirun here is %s, which has other "
                            "options: say --launcher %.*s, or put the other one first in "
                            "PATH",
                            plan->mpirun, mpis[i].whose,
                            (int)strcspn(mpis[i].launchers, " "), mpis[i].launchers);
    }
    return ZT_OK;
}

void zt_mpirun_release(struct zt_mpirun *m)
{
    for (size_t i = 0; i < m->num; i++)
        free(m->argv[i]);
    free(m->argv);
}
