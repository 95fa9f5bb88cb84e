/* Limits of this host: read, and what is wrong with them. */
#include "launcher/report/report.h"

#include "common/message/render.h"
#include "common/process/cgroups.h"
#include "common/sysfile.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MIB           (1024.0 * 1024.0)
#define FEW_FILES     1024u
#define FEW_PROCESSES 512u
#define SMALL_SHM     (64u << 20) /* what containers have by default */
#define LITTLE_MEMORY (512u << 20)
#define LITTLE_LOCKED (64u << 20)

/* ------------------------------------------------------------------ reading */

static uint64_t soft_limit(int what, uint64_t *hard)
{
    struct rlimit r;

    if (getrlimit((__rlimit_resource_t)what, &r) < 0)
        r.rlim_cur = r.rlim_max = RLIM_INFINITY;
    if (hard)
        *hard = r.rlim_max == RLIM_INFINITY ? ZT_NO_LIMIT : r.rlim_max;
    return r.rlim_cur == RLIM_INFINITY ? ZT_NO_LIMIT : r.rlim_cur;
}

static void read_memory(struct zt_host_limits *h)
{
    struct zt_cgroups_memory group;

    zt_cgroups_read_memory("", &group);
    h->total_bytes = zt_sysfile_meminfo("MemTotal");
    h->free_bytes = zt_sysfile_meminfo("MemAvailable");
    h->cgroup_bytes = group.limit_bytes;
    h->cgroup_used_bytes = group.used_bytes;
}

static void read_processors(struct zt_host_limits *h)
{
    cpu_set_t mask;

    if (sched_getaffinity(0, sizeof(mask), &mask) == 0)
        h->num_cpus = CPU_COUNT(&mask);
    h->cgroup_cpus = zt_cgroups_read_cpus("");
}

static void read_shared_memory(struct zt_host_limits *h)
{
    struct statvfs v;
    int fd;

    if (statvfs("/dev/shm", &v) == 0) {
        h->shm_bytes = (uint64_t)v.f_blocks * v.f_frsize;
        h->shm_free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
    }
    fd = memfd_create("zlaunch-report", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 1 << 20) < 0)
        h->memfd_error = errno;
    if (fd >= 0)
        close(fd);
}

/* "always [madvise] never": what stands in brackets. */
static void read_huge_pages(struct zt_host_limits *h)
{
    char line[128], *from, *to;

    if (!zt_sysfile_line("/sys/kernel/mm/transparent_hugepage/enabled", line,
                         sizeof(line)))
        return;
    from = strchr(line, '[');
    to = from ? strchr(from, ']') : NULL;
    if (to)
        snprintf(h->huge_pages, sizeof(h->huge_pages), "%.*s", (int)(to - from - 1),
                 from + 1);
}

void zt_host_limits_read(struct zt_host_limits *h)
{
    *h = (struct zt_host_limits){0};
    h->open_files = soft_limit(RLIMIT_NOFILE, &h->open_files_hard);
    h->processes = soft_limit(RLIMIT_NPROC, NULL);
    h->locked_bytes = soft_limit(RLIMIT_MEMLOCK, NULL);
    h->address_bytes = soft_limit(RLIMIT_AS, NULL);
    h->rdma = zt_sysfile_has_rdma();
    read_memory(h);
    read_processors(h);
    read_shared_memory(h);
    read_huge_pages(h);
}

/* ------------------------------------------------------------------ judging */

struct told {
    zt_problem_told fn;
    void *ctx;
};

static void tell(const struct told *t, zt_problem_level level, const char *todo,
                 const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static void tell(const struct told *t, zt_problem_level level, const char *todo,
                 const char *fmt, ...)
{
    char what[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    t->fn(t->ctx, level, what, todo);
}

static void judge_memory(const struct zt_host_limits *h, const struct told *t)
{
    uint64_t left = h->cgroup_used_bytes < h->cgroup_bytes
                        ? h->cgroup_bytes - h->cgroup_used_bytes
                        : 0;

    if (h->free_bytes < LITTLE_MEMORY)
        tell(t, ZT_PROBLEM_WARNING,
             "end other programs, or run on a machine with more memory",
             "only %.0f MiB of memory are free", (double)h->free_bytes / MIB);
    if (h->cgroup_bytes != ZT_NO_LIMIT && left < LITTLE_MEMORY)
        tell(t, ZT_PROBLEM_WARNING,
             "give the container or the job more memory (docker run --memory, "
             "#SBATCH --mem)",
             "the control group has %.0f MiB of memory left of %.0f MiB",
             (double)left / MIB, (double)h->cgroup_bytes / MIB);
    if (h->address_bytes != ZT_NO_LIMIT)
        tell(t, ZT_PROBLEM_WARNING, "ulimit -v unlimited",
             "the address space is limited to %.0f MiB: memory that ranks share is "
             "mapped in each of them",
             (double)h->address_bytes / MIB);
    if (h->memfd_error)
        tell(t, ZT_PROBLEM_ERROR,
             "allow memfd_create to this process (a seccomp profile may forbid it), or "
             "free memory",
             "no memory to share between ranks can be had: %s", strerror(h->memfd_error));
    if (h->shm_bytes <= SMALL_SHM)
        tell(t, ZT_PROBLEM_WARNING,
             "docker run --shm-size=8g, or mount a tmpfs there; zlaunch's own "
             "collectives do not need it",
             "/dev/shm has %.0f MiB: MPI, NCCL and PyTorch's data loaders need more",
             (double)h->shm_bytes / MIB);
    if (h->rdma && h->locked_bytes < LITTLE_LOCKED)
        tell(t, ZT_PROBLEM_WARNING,
             "ulimit -l unlimited, for good in /etc/security/limits.conf; under Slurm "
             "PropagateResourceLimitsExcept=MEMLOCK",
             "only %.0f MiB of memory may be locked: InfiniBand needs more",
             (double)h->locked_bytes / MIB);
}

void zt_host_limits_judge(const struct zt_host_limits *h, zt_problem_told told, void *ctx)
{
    const struct told t = {told, ctx};

    judge_memory(h, &t);
    if (h->open_files < FEW_FILES)
        tell(&t, ZT_PROBLEM_WARNING,
             "ulimit -n 65536, for good in /etc/security/limits.conf",
             "only %llu files may be open: a daemon needs about six for each rank",
             (unsigned long long)h->open_files);
    if (h->processes < FEW_PROCESSES)
        tell(&t, ZT_PROBLEM_WARNING,
             "ulimit -u 4096, for good in /etc/security/limits.conf",
             "only %llu processes and threads of this user may run",
             (unsigned long long)h->processes);
    if (h->cgroup_cpus > 0 && h->cgroup_cpus < h->num_cpus)
        tell(&t, ZT_PROBLEM_NOTE,
             "threads are counted by that; docker run --cpus gives more",
             "the control group gives the time of %.4g of %d processors", h->cgroup_cpus,
             h->num_cpus);
    if (strcmp(h->huge_pages, "never") == 0)
        tell(&t, ZT_PROBLEM_NOTE,
             "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
             "transparent huge pages are off: large tensors are slower");
}
