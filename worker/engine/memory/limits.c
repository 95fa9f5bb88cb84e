/* limits.c -- what there is for a memory plan, and whether the plan fits in. */
#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/log.h"
#include "common/process/cgroups.h"
#include "common/sysfile.h"
#include "worker/engine/memory/advice.h"
#include "worker/engine/memory/plan.h"
#include "worker/engine/memory/process.h"
#include "worker/offload/aio.h"

#define MIB ((double)(1 << 20))

/* ---- what is available ---- */

/* What this process may still take by its own limit; SIZE_MAX: no limit. */
static size_t address_space_left(void)
{
    struct rlimit r;
    unsigned long long pages = 0;
    FILE *f;

    if (getrlimit(RLIMIT_AS, &r) || r.rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    f = fopen("/proc/self/statm", "re");
    if (f) {
        if (fscanf(f, "%llu", &pages) != 1)
            pages = 0;
        fclose(f);
    }
    pages *= (unsigned long long)sysconf(_SC_PAGESIZE);
    return r.rlim_cur > pages ? r.rlim_cur - pages : 0;
}

size_t zt_memory_left(size_t *limit)
{
    uint64_t machine = zt_sysfile_meminfo("MemAvailable");
    struct zt_cgroups_memory group;

    zt_cgroups_read_memory("", &group);
    *limit = group.left_bytes < machine ? group.limit_bytes : 0;
    return *limit ? group.left_bytes : machine;
}

/* A folder of nvme_path, and what all local ranks have in it: stripes are as long as one another. */
struct share_of_files {
    const char *dir;
    dev_t drive;
    size_t bytes;
};

static int add_shares(struct share_of_files *out, int num, const char *const *dirs,
                      size_t bytes)
{
    size_t n = 0;
    struct stat st;

    while (dirs && dirs[n])
        n++;
    for (size_t i = 0; i < n; i++)
        if (!stat(dirs[i], &st)) /* else opening says what is wrong */
            out[num++] = (struct share_of_files){dirs[i], st.st_dev, bytes / n};
    return num;
}

/* Of `bytes` in host memory, what is not there yet. */
static size_t to_come(const struct zt_memory_plan *plan, size_t bytes)
{
    size_t there = plan->process_now + plan->replicas_there;

    return bytes > there ? bytes - there : 0;
}

/* What a file system that is in memory has left beside what the local ranks take there. */
static size_t left_in_memory(const struct zt_memory_plan *plan, const struct zt_run *run)
{
    size_t ranks = (size_t)run->local_world, all = plan->available, taken = plan->total;

    if (zt_run_is_staged(run)) {
        all = plan->host_available == SIZE_MAX ? SIZE_MAX : plan->host_available * ranks;
        taken = plan->host;
    }
    taken = to_come(plan, taken);
    return all == SIZE_MAX ? SIZE_MAX : taken > all / ranks ? 0 : all - taken * ranks;
}

static bool is_in_memory(const char *dir)
{
    struct statfs fs;

    return !statfs(dir, &fs) && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

void zt_memory_plan_find_room(struct zt_memory_plan *plan, const struct zt_run *run)
{
    const struct zt_state_bytes *s = &plan->state.in[ZT_PLACE_FILE];
    size_t ranks = (size_t)run->local_world, needs, left;
    struct share_of_files shares[2 * ZT_AIO_MAX_FILES];
    struct statvfs fs;
    int num;

    plan->full.folder = NULL;
    num = add_shares(shares, 0, s->weights ? run->zero.offload_param.nvme_paths : NULL,
                     s->weights * ranks);
    num = add_shares(shares, num, run->zero.offload_optimizer.nvme_paths,
                     (plan->files - s->weights) * ranks);
    for (int i = 0; i < num && !plan->full.folder; i++) {
        needs = 0;
        for (int k = 0; k < num; k++)
            needs += shares[k].drive == shares[i].drive ? shares[k].bytes : 0;
        if (statvfs(shares[i].dir, &fs))
            continue;
        left = fs.f_bavail * fs.f_frsize;
        plan->full.in_memory = is_in_memory(shares[i].dir);
        if (plan->full.in_memory && left_in_memory(plan, run) < left)
            left = left_in_memory(plan, run);
        if (needs > left) {
            plan->full.folder = shares[i].dir;
            plan->full.needs = needs;
            plan->full.left = left;
        }
    }
}

/*
 * For MPI, which fails in its own words or is killed by SIGBUS where that is too small. Its
 * size says the same to every rank. What is left there depends on which of them have begun
 * already, so the first one looks, where zlaunch ends the others.
 */
static size_t shm_left(const struct zt_memory_plan *plan, const struct zt_run *run)
{
    bool looks = run->local_rank == 0 && (run->dry_run || getenv("ZLAUNCH_JOB_ID"));
    struct statvfs fs;

    if (!plan->shm || statvfs("/dev/shm", &fs))
        return SIZE_MAX;
    return (looks ? fs.f_bavail : fs.f_blocks) * fs.f_frsize;
}

zt_err zt_memory_plan_measure(struct zt_memory_plan *plan, const struct zt_run *run,
                              const struct zt_backend *backend, struct zt_device *dev,
                              struct zt_fault *fault)
{
    struct zt_device_memory m;
    size_t left = zt_memory_left(&plan->group_limit);
    zt_err rc;

    plan->device_limit = run->device_memory_bytes;
    plan->shm_available = shm_left(plan, run);
    if (!zt_run_is_staged(run)) {
        plan->available = left;
        plan->sharers = run->local_world;
        plan->addresses = address_space_left();
        zt_memory_plan_find_room(plan, run);
        zt_memory_plan_fit_snapshot(plan, run);
        return ZT_OK;
    }
    plan->host_available = left / (size_t)run->local_world;
    zt_memory_plan_find_room(plan, run);
    zt_memory_plan_fit_snapshot(plan, run);
    if (!dev)
        return ZT_OK;
    rc = backend->memory(dev, &m, fault);
    plan->available = rc                   ? SIZE_MAX
                      : m.free < m.reserve ? m.used
                                           : m.free + m.used - m.reserve;
    plan->sharers = run->share_gpu ? run->local_world : 1;
    return rc;
}

/* ---- what does not fit ---- */

struct zt_state_bytes zt_memory_plan_by_kind(const struct zt_memory_plan *plan)
{
    struct zt_state_bytes sum = {.weights = 0};

    for (zt_memory_place place = 0; place < ZT_NUM_PLACES; place++) {
        const struct zt_state_bytes *s = &plan->state.in[place];

        sum.weights += s->weights + s->gathered + s->secondary;
        sum.master += s->master;
        sum.grads += s->grads + s->transient;
        sum.moments += s->moments;
    }
    return sum;
}

/* Bytes of addresses that a rank maps: its own memory, and its peers' to read. */
static size_t mapped(const struct zt_memory_plan *plan)
{
    return plan->total + plan->state.peers - (plan->host ? 0 : plan->process_now);
}

bool zt_memory_plan_fits(const struct zt_memory_plan *plan)
{
    size_t total = plan->host ? plan->total : to_come(plan, plan->total);

    return plan->on_device <= plan->device_limit && !plan->full.folder &&
           plan->shm <= plan->shm_available &&
           total <= plan->available / (size_t)plan->sharers &&
           to_come(plan, plan->host) <= plan->host_available &&
           mapped(plan) <= plan->addresses;
}

/* What there is less of than the plan needs. */
static void limit_text(const struct zt_memory_plan *plan, const struct zt_run *run,
                       char *out, size_t cap)
{
    if (mapped(plan) > plan->addresses)
        snprintf(out, cap,
                 "with the %.0f MiB of peers that it maps that is more than the %.0f MiB "
                 "of addresses that ulimit -v leaves it",
                 (double)plan->state.peers / MIB, (double)plan->addresses / MIB);
    else if (plan->shm > plan->shm_available)
        snprintf(
            out, cap,
            "MPI takes up to %.0f MiB of /dev/shm for the ranks of this machine, and "
            "%.0f MiB are left there",
            (double)plan->shm / MIB, (double)plan->shm_available / MIB);
    else if (plan->full.folder)
        snprintf(out, cap,
                 "the %.2f MiB in files of the ranks of this machine are more than the "
                 "%.2f MiB that the drive of nvme_path %.300s has left%s",
                 (double)plan->full.needs / MIB, (double)plan->full.left / MIB,
                 plan->full.folder,
                 plan->full.in_memory ? " (it is memory, which the run takes as well)"
                                      : "");
    else if (plan->on_device > plan->device_limit)
        snprintf(out, cap,
                 "%.1f MiB of that are on the device, and --device_memory is %.1f MiB",
                 (double)plan->on_device / MIB, (double)plan->device_limit / MIB);
    else if (to_come(plan, plan->host) > plan->host_available)
        snprintf(out, cap, "of %.0f MiB of it in host memory %.0f MiB are available",
                 (double)plan->host / MIB, (double)plan->host_available / MIB);
    else if (zt_run_is_staged(run))
        snprintf(out, cap, "%.0f MiB are free on the GPU", (double)plan->available / MIB);
    else if (plan->group_limit)
        snprintf(out, cap,
                 "the control group leaves %.0f MiB in all, of its limit of %.0f MiB",
                 (double)plan->available / MIB, (double)plan->group_limit / MIB);
    else
        snprintf(out, cap, "%.0f MiB are available in all",
                 (double)plan->available / MIB);
}

void zt_memory_plan_warn_of_files(const struct zt_run *run)
{
    const struct {
        const char *section;
        const char *const *dirs;
    } rows[] = {
        {"offload_optimizer", run->zero.offload_optimizer.device == ZT_OFFLOAD_NVME
                                  ? run->zero.offload_optimizer.nvme_paths
                                  : NULL},
        {"offload_param", run->zero.offload_param.device == ZT_OFFLOAD_NVME
                              ? run->zero.offload_param.nvme_paths
                              : NULL}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        for (int k = 0; rows[i].dirs && rows[i].dirs[k]; k++) {
            const char *dir = rows[i].dirs[k];
            struct stat st;

            errno = 0;
            if (stat(dir, &st) == 0 && !S_ISDIR(st.st_mode))
                errno = ENOTDIR;
            else if (errno == 0)
                (void)!access(dir, W_OK | X_OK);
            if (errno)
                zt_warn("config",
                        "zero_optimization.%s.nvme_path %s: %s: a run on this host would "
                        "end there; make a folder that can be written to",
                        rows[i].section, dir, strerror(errno));
        }
}

/*
 * Memory of the machine is shared, and what is left of it changes while its ranks begin:
 * each would refuse by another number. As with /dev/shm the first one looks where zlaunch
 * ends the others.
 */
static bool is_left_to_first(const struct zt_memory_plan *plan, const struct zt_run *run)
{
    struct zt_memory_plan other = *plan;

    if (run->local_rank == 0 || !getenv("ZLAUNCH_JOB_ID"))
        return false;
    if (!zt_run_is_staged(run))
        other.available = SIZE_MAX;
    other.host_available = SIZE_MAX;
    return zt_memory_plan_fits(&other);
}

zt_err zt_memory_plan_check(const struct zt_memory_plan_inputs *in,
                            const struct zt_memory_plan *plan, struct zt_fault *fault)
{
    const struct zt_run *run = in->run;
    const struct zt_state_bytes s = zt_memory_plan_by_kind(plan);
    char what[320], limit[480], advice[640], cache[48] = "";

    if (zt_memory_plan_fits(plan) || is_left_to_first(plan, run))
        return ZT_OK;
    if (plan->cache)
        snprintf(cache, sizeof(cache), " with a key/value cache %.0f",
                 (double)plan->cache / MIB);
    snprintf(what, sizeof(what),
             "weights %.0f, master %.0f, gradients %.0f, optimizer %.0f, activations "
             "%.0f%s, checkpoints %.0f, the process %.0f",
             (double)s.weights / MIB, (double)s.master / MIB, (double)s.grads / MIB,
             (double)s.moments / MIB,
             (double)(plan->activations +
                      (zt_run_is_staged(run) ? 0 : plan->host_activations)) /
                 MIB,
             cache, (double)(plan->snapshot + plan->replicas) / MIB,
             (double)plan->process / MIB);
    limit_text(plan, run, limit, sizeof(limit));
    if (plan->shm > plan->shm_available)
        snprintf(advice, sizeof(advice),
                 "make it larger (docker run --shm-size=1g, or mount -o remount,size=1g "
                 "/dev/shm), or take --comm shm on one machine, --comm tcp on several");
    else if (plan->full.folder && plan->full.in_memory)
        snprintf(advice, sizeof(advice), "name folders on drives in nvme_path");
    else if (plan->full.folder)
        snprintf(
            advice, sizeof(advice),
            "make room there, name more folders, on other drives, in nvme_path (each "
            "takes its share), or offload to memory: \"device\": \"cpu\"");
    else
        zt_memory_advice(in, plan, advice, sizeof(advice));
    return zt_fault_set(
        fault, ZT_E_PLAN,
        "this run needs %.0f MiB for each of %d local ranks at ZeRO stage "
        "%d (%s), but %s; %s",
        (double)(plan->total + plan->host) / MIB, run->local_world, run->zero.stage, what,
        limit, advice);
}
