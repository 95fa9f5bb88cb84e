/* start_ranks.c -- what the ranks of a job share, and starting them one by one. */
#include "worker/daemon/node.h"
#include "worker/daemon/spawn.h"

#include "common/files/folders.h"
#include "common/process/limits.h"
#include "common/process/shm_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Of the daemon for one: its output, sockets and log; and a copy for the next start. */
#define RANK_FILES(job) (7 + (uint64_t)(job)->stay)

static void close_file(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Memory shared with the ranks of this node; gone with the last process that holds it. */
static zt_err open_shared(struct zt_daemon_node *n, struct zt_fault *fault)
{
    void *p;

    n->phases_bytes = (size_t)n->job->local_world * sizeof(*n->phases);
    n->shm_fd = memfd_create("zlaunch-comm", MFD_CLOEXEC);
    n->state_fd = memfd_create("zlaunch-state", MFD_CLOEXEC);
    if (n->shm_fd < 0 || n->state_fd < 0 ||
        ftruncate(n->state_fd, (off_t)n->phases_bytes) < 0)
        return zt_fault_set(fault, ZT_E_SYSTEM, "memory shared by the ranks: %s",
                            strerror(errno));
    p = mmap(NULL, n->phases_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, n->state_fd, 0);
    if (p == MAP_FAILED)
        return zt_fault_set(fault, ZT_E_SYSTEM, "memory shared by the ranks: %s",
                            strerror(errno));
    n->phases = p;
    return ZT_OK;
}

/* The job's secret as a file that ranks inherit: nothing to see in their environment. */
static zt_err open_secret(struct zt_daemon_node *n, struct zt_fault *fault)
{
    const char *text = n->job->secret;
    size_t len = text ? strlen(text) : 0;

    if (!text)
        return ZT_OK;
    n->secret_fd = memfd_create("zlaunch-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (n->secret_fd < 0 || write(n->secret_fd, text, len) != (ssize_t)len ||
        fcntl(n->secret_fd, F_ADD_SEALS,
              F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
        return zt_fault_set(fault, ZT_E_SYSTEM, "the job's secret: %s", strerror(errno));
    return ZT_OK;
}

void zt_node_release_replicas(struct zt_daemon_node *n)
{
    for (int i = 0; i < n->num_replicas; i++)
        close_file(&n->replicas[i]);
    free(n->replicas);
    n->replicas = NULL;
    n->num_replicas = 0;
}

/* A memory file for each rank of a job that may be started again: what ranks put there is
 * found by those of the next start. An empty one takes no memory. */
static zt_err open_replicas(struct zt_daemon_node *n, struct zt_fault *fault)
{
    int num = n->job->local_world;

    if (n->num_replicas != num)
        zt_node_release_replicas(n);
    if (n->job->max_restarts == 0 || n->replicas)
        return ZT_OK;
    n->replicas = calloc((size_t)num, sizeof(*n->replicas));
    if (!n->replicas)
        return zt_fault_set(fault, ZT_E_NOMEM, "daemon: no memory");
    for (; n->num_replicas < num; n->num_replicas++) {
        int fd = memfd_create("zlaunch-replica", MFD_CLOEXEC);

        if (fd < 0)
            return zt_fault_set(fault, ZT_E_SYSTEM, "memory kept for ranks: %s",
                                strerror(errno));
        n->replicas[n->num_replicas] = fd;
    }
    return ZT_OK;
}

static zt_err open_log(struct zt_daemon_node *n, struct zt_local_rank *r,
                       struct zt_fault *fault)
{
    char path[4096];
    zt_err rc;

    r->log_fd = -1;
    if (!n->job->log_dir)
        return ZT_OK;
    rc = zt_folders_make("log folder", n->job->log_dir, NULL, fault);
    if (rc)
        return rc;
    snprintf(path, sizeof(path), "%s/%s_rank%d.log", n->job->log_dir, n->job->log_stamp,
             r->rank);
    r->log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (r->log_fd < 0)
        return zt_fault_set(fault, ZT_E_CANTCREATE, "log file %s: %s", path,
                            strerror(errno));
    return ZT_OK;
}

static zt_err start_rank(struct zt_daemon_node *n, const struct zt_cores *cores, int i,
                         struct zt_fault *fault)
{
    struct zt_local_rank *r = &n->ranks[i];
    struct zt_core_share share;
    struct zt_spawn s = {.job = n->job,
                         .local_rank = i,
                         .share = &share,
                         .shm_fd = n->shm_fd,
                         .state_fd = n->state_fd,
                         .secret_fd = n->secret_fd,
                         .replica_fd = n->replicas ? n->replicas[i] : -1,
                         .cgroup_fd = n->cgroup.procs_fd};
    struct zt_spawned got;
    json_t *o;
    zt_err rc;

    r->node = n;
    r->rank = n->job->first_rank + i;
    r->local_rank = i;
    for (int k = 0; k < 3; k++)
        r->source[k].fd = -1;
    rc = open_log(n, r, fault);
    if (rc)
        return rc;
    zt_cores_share(cores, n->job->share_first + i, n->job->share_ranks, &share);
    rc = zt_pmi_socket_open(r, &s.pmi_fd, fault);
    if (rc)
        return rc;
    rc = zt_spawn_rank(&s, &got, fault);
    if (s.pmi_fd >= 0)
        close(s.pmi_fd);
    if (rc) {
        zt_pmi_socket_close(r);
        return rc;
    }
    r->pid = got.pid;
    r->alive = true;
    n->num_alive++;
    n->num_started = i + 1;
    o = json_object();
    json_object_set_new(o, "rank", json_integer(r->rank));
    json_object_set_new(o, "pid", json_integer(r->pid));
    zt_node_send_json(n, ZT_FRAME_STARTED, o);
    return zt_output_start(r, (int[3]){got.control_fd, got.out_fd[0], got.out_fd[1]},
                           fault);
}

void zt_node_release_job(struct zt_daemon_node *n)
{
    if (n->phases)
        munmap(n->phases, n->phases_bytes);
    n->phases = NULL;
    close_file(&n->shm_fd);
    close_file(&n->state_fd);
    close_file(&n->secret_fd);
    zt_pmi_close(n->pmi);
    n->pmi = NULL;
    free(n->ranks);
    n->ranks = NULL;
    n->num_started = n->num_alive = 0;
    n->has_killed = false;
    zt_job_close(n->job);
    n->job = NULL;
}

zt_err zt_node_start_job(struct zt_daemon_node *n, struct zt_fault *fault)
{
    struct zt_cores cores;
    zt_err rc = zt_limits_open_files(ZT_LIMITS_FILES + RANK_FILES(n->job) *
                                                           (uint64_t)n->job->local_world,
                                     "for the ranks of this node a daemon needs", fault);

    if (!rc)
        rc = open_shared(n, fault);
    if (!rc)
        rc = open_secret(n, fault);
    if (!rc)
        rc = open_replicas(n, fault);
    if (rc)
        return rc;
    zt_shm_files_remove_unused(); /* of jobs that were killed with their daemon */
    if (n->cgroup.dir_fd < 0)
        zt_cgroup_open(&n->cgroup);
    n->ranks = calloc((size_t)n->job->local_world, sizeof(*n->ranks));
    if (!n->ranks)
        return zt_fault_set(fault, ZT_E_NOMEM, "daemon: no memory");
    rc = zt_pmi_open_server(n, fault);
    if (rc)
        return rc;
    rc = zt_cores_init(&cores, n->job->core_list, fault);
    for (int i = 0; !rc && i < n->job->local_world; i++)
        rc = start_rank(n, &cores, i, fault);
    zt_cores_release(&cores);
    return rc;
}
