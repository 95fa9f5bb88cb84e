#include "store/launch_env.h"

#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/env.h"
#include "common/hostlist.h"

#define MAX_WORLD (1 << 20)

static const char *text_of(const char *name)
{
    const char *v = getenv(name);

    return v && *v ? v : NULL;
}

/* The first of several variables that is set. */
static const char *first_of(const char *const *names)
{
    for (; *names; names++)
        if (text_of(*names))
            return text_of(*names);
    return NULL;
}

static void copy(char *to, size_t bytes, const char *from)
{
    snprintf(to, bytes, "%s", from ? from : "");
}

static zt_err missing(const char *name, const char *because, struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_USAGE,
                        "environment variable %s is not set, but %s is: a rank needs "
                        "both, and a job of one rank neither",
                        name, because);
}

/* A number that must be there. */
static zt_err need_int(const char *name, const char *because, int64_t min, int64_t max,
                       int64_t *out, struct zt_fault *fault)
{
    if (!text_of(name))
        return missing(name, because, fault);
    return zt_env_int(name, min, max, out, fault);
}

/* Rank, world and local rank by the names that one launcher uses. */
struct names {
    zt_launch_kind kind;
    const char *rank, *world, *local_rank, *local_world;
};

static const struct names env_names = {.kind = ZT_LAUNCH_ENV,
                                       .rank = "RANK",
                                       .world = "WORLD_SIZE",
                                       .local_rank = "LOCAL_RANK",
                                       .local_world = "LOCAL_WORLD_SIZE"};
static const struct names slurm_names = {.kind = ZT_LAUNCH_SLURM,
                                         .rank = "SLURM_PROCID",
                                         .world = "SLURM_STEP_NUM_TASKS",
                                         .local_rank = "SLURM_LOCALID",
                                         .local_world = ""};
static const struct names mpi_names[] = {
    {.kind = ZT_LAUNCH_MPI,
     .rank = "OMPI_COMM_WORLD_RANK",
     .world = "OMPI_COMM_WORLD_SIZE",
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .local_world = "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {.kind = ZT_LAUNCH_MPI,
     .rank = "PMI_RANK",
     .world = "PMI_SIZE",
     .local_rank = "MPI_LOCALRANKID",
     .local_world = "MPI_LOCALNRANKS"},
    {.kind = ZT_LAUNCH_MPI,
     .rank = "MV2_COMM_WORLD_RANK",
     .world = "MV2_COMM_WORLD_SIZE",
     .local_rank = "MV2_COMM_WORLD_LOCAL_RANK",
     .local_world = "MV2_COMM_WORLD_LOCAL_SIZE"},
    {.kind = ZT_LAUNCH_MPI,
     .rank = "PALS_RANKID",
     .world = "PALS_SIZE",
     .local_rank = "PALS_LOCAL_RANKID",
     .local_world = "PALS_LOCAL_SIZE"},
};

static zt_err read_names(const struct names *n, struct zt_launch_env *p,
                         struct zt_fault *fault)
{
    int64_t rank = 0, world = 1, local = -1, locals = 0;
    const char *first = text_of(n->rank);
    zt_err rc = ZT_OK;

    if (text_of(n->world) || first)
        rc = need_int(n->world, n->rank, 1, MAX_WORLD, &world, fault);
    if (!rc && (world > 1 || first))
        rc = need_int(n->rank, n->world, 0, world - 1, &rank, fault);
    if (!rc && *n->local_world)
        rc = zt_env_int(n->local_world, 1, world, &locals, fault);
    if (!rc)
        rc = zt_env_int(n->local_rank, 0, (locals ? locals : world) - 1, &local, fault);
    if (rc)
        return rc;
    p->kind = n->kind;
    p->rank = (int)rank;
    p->world = (int)world;
    p->local_rank = (int)(local >= 0 ? local : rank);
    p->local_world = (int)locals;
    return ZT_OK;
}

/* ---------------------------------------------------------------- Slurm */

/* A task of a step with several of them; SLURM_PROCID alone proves nothing. */
static bool in_slurm_step(void)
{
    int64_t tasks = 0;

    return text_of("SLURM_STEP_ID") &&
           !zt_env_int("SLURM_STEP_NUM_TASKS", 1, MAX_WORLD, &tasks, NULL) && tasks > 1;
}

static zt_err slurm_local_world(struct zt_launch_env *p, struct zt_fault *fault)
{
    const char *counts = text_of("SLURM_STEP_TASKS_PER_NODE");
    int64_t node = 0, nodes = 1;
    int *count;
    zt_err rc = zt_env_int("SLURM_STEP_NUM_NODES", 1, MAX_WORLD, &nodes, fault);

    if (!rc)
        rc = zt_env_int("SLURM_NODEID", 0, nodes - 1, &node, fault);
    if (rc || !counts)
        return rc;
    rc = zt_counts_expand(counts, (int)nodes, &count, fault);
    if (rc)
        return zt_fault_context(fault, rc, "SLURM_STEP_TASKS_PER_NODE");
    p->local_world = count[node];
    free(count);
    return ZT_OK;
}

/* The first node of the step, and a port that follows from the step's id. */
static zt_err slurm_master(struct zt_launch_env *p, struct zt_fault *fault)
{
    const char *list = text_of("SLURM_STEP_NODELIST");
    int64_t nodes = 1, job = 0, step = 0;
    struct zt_hostlist hosts = {0};
    zt_err rc = zt_env_int("SLURM_STEP_NUM_NODES", 1, MAX_WORLD, &nodes, fault);

    if (!rc)
        rc = zt_env_int("SLURM_JOB_ID", 0, INT64_MAX, &job, fault);
    if (!rc)
        rc = zt_env_int("SLURM_STEP_ID", 0, INT64_MAX, &step, fault);
    if (!rc && !*p->master_addr && nodes > 1 && list)
        rc = zt_hostlist_expand(list, &hosts, fault);
    if (rc)
        return rc;
    if (!*p->master_addr)
        copy(p->master_addr, sizeof(p->master_addr),
             hosts.num ? hosts.name[0] : "127.0.0.1");
    if (!p->master_port)
        p->master_port = 20000 + (int)((uint64_t)(job * 37 + step) % 10000);
    zt_hostlist_release(&hosts);
    return ZT_OK;
}

/* ---------------------------------------------------------------- the whole */

/* The names by which Slurm or MPI has started this process; NULL: neither has. */
static const struct names *outer_names(void)
{
    if (in_slurm_step())
        return &slurm_names;
    for (size_t i = 0; i < sizeof(mpi_names) / sizeof(mpi_names[0]); i++)
        if (text_of(mpi_names[i].world))
            return &mpi_names[i];
    return NULL;
}

/* RANK=0 WORLD_SIZE=1 of a container or of the shell, under a launcher of several ranks: each
 * would train alone, and nobody would notice. zlaunch's own ranks inside a job of Slurm are
 * meant; of MPI's names it leaves them none, so those come from an mpirun that it has started. */
static zt_err check_alone(const struct zt_launch_env *p, struct zt_fault *fault)
{
    const struct names *outer = outer_names();
    struct zt_launch_env other = {.world = 1};
    bool ours = text_of("ZLAUNCH_CONTROL_FD") != NULL;

    if (p->world > 1 || !outer || (ours && outer->kind != ZT_LAUNCH_MPI) ||
        read_names(outer, &other, NULL) || other.world < 2)
        return ZT_OK;
    if (ours)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "zlaunch has started a job of one rank, and to an MPI "
                            "launcher in it (%s) this "
                            "is rank %d of %d: for one job of %d ranks use one of them, "
                            "zlaunch --num_gpus "
                            "%d TARGET.so or mpirun -n %d zworker TARGET.so",
                            outer->world, other.rank, other.world, other.world,
                            other.world, other.world);
    return zt_fault_set(
        fault, ZT_E_UNSUPPORTED,
        "RANK and WORLD_SIZE make this a job of one rank, and to %s (%s) it is rank %d "
        "of "
        "%d: for one job of %d ranks start them without RANK and WORLD_SIZE (unset RANK "
        "WORLD_SIZE); for jobs of one rank each start zlaunch --num_gpus 1",
        zt_launch_kind_name(outer->kind), outer->world, other.rank, other.world,
        other.world);
}

static zt_err read_rank(struct zt_launch_env *p, struct zt_fault *fault)
{
    const struct names *outer = outer_names();
    zt_err rc;

    if (!text_of("WORLD_SIZE") && !text_of("RANK"))
        return outer ? read_names(outer, p, fault) : ZT_OK;
    rc = read_names(&env_names, p, fault);
    return rc ? rc : check_alone(p, fault);
}

static zt_err read_master(struct zt_launch_env *p, struct zt_fault *fault)
{
    int64_t port = 0;
    zt_err rc = zt_env_int("MASTER_PORT", 1, 65535, &port, fault);

    if (rc)
        return rc;
    p->master_port = (int)port;
    copy(p->master_addr, sizeof(p->master_addr), text_of("MASTER_ADDR"));
    return p->kind == ZT_LAUNCH_SLURM ? slurm_master(p, fault) : ZT_OK;
}

static zt_err read_job(struct zt_launch_env *p, struct zt_fault *fault)
{
    const char *step = text_of("SLURM_STEP_ID"), *job = text_of("SLURM_JOB_ID");
    int64_t attempt = 0;
    zt_err rc = ZT_OK;

    for (const char *const *n = (const char *const[]){"TORCHELASTIC_RESTART_COUNT",
                                                      "SLURM_RESTART_COUNT", NULL};
         !rc && *n; n++)
        if (text_of(*n)) {
            rc = zt_env_int(*n, 0, INT64_MAX / 2, &attempt, fault);
            break;
        }
    if (rc)
        return rc;
    p->attempt = (uint64_t)attempt;
    if (p->kind == ZT_LAUNCH_SLURM && job)
        snprintf(p->job, sizeof(p->job), "%.40s.%.40s", job, step ? step : "0");
    else
        copy(p->job, sizeof(p->job),
             first_of((const char *const[]){"ZLAUNCH_JOB_ID", "TORCHELASTIC_RUN_ID",
                                            "SLURM_JOB_ID", NULL}));
    if (!*p->job)
        copy(p->job, sizeof(p->job), "none");
    return ZT_OK;
}

zt_err zt_launch_env_read(struct zt_launch_env *out, struct zt_fault *fault)
{
    const char *agent = text_of("TORCHELASTIC_USE_AGENT_STORE");
    struct zt_launch_env p = {.world = 1};
    zt_err rc = read_rank(&p, fault);

    if (!rc && p.kind == ZT_LAUNCH_SLURM)
        rc = slurm_local_world(&p, fault);
    if (!rc && text_of("ZLAUNCH_CONTROL_FD"))
        p.kind = ZT_LAUNCH_ZLAUNCH;
    else if (!rc && p.kind == ZT_LAUNCH_ENV && agent && strcmp(agent, "True") == 0)
        p.kind = ZT_LAUNCH_TORCHRUN; /* exactly this text, as torch has it */
    if (!rc)
        rc = read_master(&p, fault);
    if (!rc)
        rc = read_job(&p, fault);
    if (!rc)
        *out = p;
    return rc;
}

const char *zt_launch_kind_name(zt_launch_kind kind)
{
    static const char *const names[] = {
        [ZT_LAUNCH_ALONE] = "nobody",      [ZT_LAUNCH_ZLAUNCH] = "zlaunch",
        [ZT_LAUNCH_TORCHRUN] = "torchrun", [ZT_LAUNCH_ENV] = "RANK and WORLD_SIZE",
        [ZT_LAUNCH_SLURM] = "srun",        [ZT_LAUNCH_MPI] = "an MPI launcher",
    };

    return names[kind];
}

/* ---------------------------------------------------------------- torchrun */

void zt_torchrun_report_error(const struct zt_fault *fault)
{
    const char *path = text_of("TORCHELASTIC_ERROR_FILE");
    char temporary[4096], stamp[32];
    json_t *doc;

    if (!path || strlen(path) > sizeof(temporary) - 8)
        return;
    snprintf(temporary, sizeof(temporary), "%s.tmp", path);
    snprintf(stamp, sizeof(stamp), "%lld", (long long)time(NULL));
    doc = json_pack("{s:{s:s,s:{s:s,s:s}}}", "message", "message", fault->text,
                    "extraInfo", "py_callstack", "", "timestamp", stamp);
    if (doc && json_dump_file(doc, temporary, 0) == 0)
        (void)!rename(temporary, path);
    json_decref(doc);
}

static void *watch_agent(void *arg)
{
    struct pollfd p = {.fd = (int)(intptr_t)arg, .events = POLLIN};

    while (poll(&p, 1, -1) < 0)
        ;
    kill(getpid(), SIGTERM);
    poll(NULL, 0, 5000);
    kill(getpid(), SIGKILL);
    return NULL;
}

void zt_torchrun_follow_agent(const struct zt_launch_env *env)
{
    pid_t agent = getppid();
    pthread_t thread;
    sigset_t all, before;
    int fd;

    if (env->kind != ZT_LAUNCH_TORCHRUN || agent <= 1)
        return;
    /* not PR_SET_PDEATHSIG: that follows the parent's thread, which may end before it */
    fd = (int)syscall(SYS_pidfd_open, agent, 0);
    if (fd < 0)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, watch_agent, (void *)(intptr_t)fd) == 0)
        pthread_detach(thread);
    else
        close(fd);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
