/* The jobs that listen in our folders, and which of them is meant. */
#include "launcher/ctl/private.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_JOBS     4096
#define RANDOM_CHARS 16 /* at the end of an id */

/* ------------------------------------------------------------------ finding jobs */

static bool add_job(struct zt_ctl_jobs *jobs, const char *dir, const char *file)
{
    size_t n = strlen(file);
    struct zt_ctl_job *grown, *j;
    char path[ZT_CTL_PATH];
    struct stat sb;

    if (n < 6 || n - 5 >= ZT_CTL_JOB_NAME || *file == '.' ||
        strcmp(file + n - 5, ".sock") != 0 || jobs->num == MAX_JOBS)
        return true;
    if (zt_ctl_path(dir, file, "", path, NULL) || lstat(path, &sb) < 0 ||
        !S_ISSOCK(sb.st_mode))
        return true;
    grown = realloc(jobs->list, (size_t)(jobs->num + 1) * sizeof(*grown));
    if (!grown)
        return false;
    jobs->list = grown;
    j = &grown[jobs->num++];
    memcpy(j->name, file, n - 5);
    j->name[n - 5] = 0;
    memcpy(j->dir, dir, sizeof(j->dir));
    j->born = sb.st_mtim;
    return true;
}

static int newest_first(const void *a, const void *b)
{
    const struct zt_ctl_job *x = a, *y = b;

    if (x->born.tv_sec != y->born.tv_sec)
        return x->born.tv_sec < y->born.tv_sec ? 1 : -1;
    if (x->born.tv_nsec != y->born.tv_nsec)
        return x->born.tv_nsec < y->born.tv_nsec ? 1 : -1;
    return strcmp(x->name, y->name);
}

/* A folder that cannot be trusted is skipped, unless it is the only one. One that this
 * process is too short of means to look into may hold any job. */
zt_err zt_ctl_find_jobs(struct zt_ctl_jobs *jobs, struct zt_fault *fault)
{
    char dir[ZT_CTL_PATH];
    struct zt_fault bad = {0};
    int num_good = 0;

    *jobs = (struct zt_ctl_jobs){NULL, 0};
    for (int i = 0; i < 2; i++) {
        struct zt_fault why = {0};
        zt_err rc = zt_ctl_dir_at(i, false, dir, &why);
        struct dirent *e;
        DIR *d;

        if (rc == ZT_E_NOINPUT)
            continue;
        if (rc == ZT_E_NOMEM)
            return zt_fault_set(fault, rc, "%s", why.text);
        if (rc) {
            bad = why;
            continue;
        }
        num_good++;
        d = opendir(dir);
        if (!d)
            continue;
        rc = ZT_OK;
        while (!rc && (e = readdir(d)))
            if (!add_job(jobs, dir, e->d_name))
                rc = zt_fault_set(fault, ZT_E_NOMEM, "no memory for a list of jobs");
        closedir(d);
        if (rc)
            return rc;
    }
    if (bad.code && !num_good)
        return zt_fault_set(fault, bad.code, "%s", bad.text);
    if (jobs->num)
        qsort(jobs->list, (size_t)jobs->num, sizeof(*jobs->list), newest_first);
    return ZT_OK;
}

/* ------------------------------------------------------------------ one job by name */

/* The log of a job that has ended, in *newest the one that was written last. */
static void find_log_in(const char *dir, const char *name, struct zt_ctl_job *newest)
{
    DIR *d = opendir(dir);
    const struct dirent *e;
    char path[ZT_CTL_PATH];
    struct zt_ctl_job j;
    struct stat sb;

    while (d && (e = readdir(d))) {
        size_t n = strlen(e->d_name);

        if (n < 5 || n - 4 >= sizeof(j.name) || strcmp(e->d_name + n - 4, ".log") != 0 ||
            strncmp(e->d_name, name, strlen(name)) != 0 ||
            zt_ctl_path(dir, e->d_name, "", path, NULL) || stat(path, &sb))
            continue;
        j = (struct zt_ctl_job){.born = sb.st_mtim};
        memcpy(j.name, e->d_name, n - 4);
        snprintf(j.dir, sizeof(j.dir), "%s", dir);
        if (!*newest->name || newest_first(&j, newest) < 0)
            *newest = j;
    }
    if (d)
        closedir(d);
}

/* A job whose name begins so, which has ended, but left its output behind? */
static bool find_log(const char *name, struct zt_ctl_job *found)
{
    char dir[ZT_CTL_PATH];

    *found = (struct zt_ctl_job){.name = ""};
    for (int i = 0; i < 2; i++)
        if (*name && zt_ctl_dir_at(i, false, dir, NULL) == ZT_OK)
            find_log_in(dir, name, found);
    return *found->name;
}

/* What an id ends with. */
static bool is_random(const char *text)
{
    return strlen(text) == RANDOM_CHARS &&
           strspn(text, "0123456789abcdef") == RANDOM_CHARS;
}

static bool is_id(const char *name)
{
    const char *dash = strrchr(name, '-');

    return dash && is_random(dash + 1);
}

static zt_err no_job(const char *name, struct zt_fault *fault)
{
    char ended[2 * PATH_MAX], run[ZT_CTL_RUN];
    struct zt_ctl_job job;

    if (zt_ctl_find_ended(name, ended, sizeof(ended)))
        return zt_fault_set(fault, ZT_E_NOINPUT, "%s", ended);
    if (strcmp(name, "last") == 0)
        return zt_fault_set(fault, ZT_E_NOINPUT, "no job of this user runs here");
    if (find_log(name, &job))
        return zt_fault_set(
            fault, ZT_E_NOINPUT,
            "no job '%s' of this user runs here; of those that have ended "
            "it is %s whose log was kept last: %s/%s.log",
            name, job.name, job.dir, job.name);
    zt_ctl_run_id(name, run);
    if (strcmp(run, name) != 0 && !is_id(name))
        return zt_fault_set(fault, ZT_E_NOINPUT,
                            "no job '%s' of this user runs here; the id of a run of that "
                            "name begins with '%s-'; see: zlaunch --ctl list",
                            name, run);
    return zt_fault_set(fault, ZT_E_NOINPUT,
                        "no job '%s' of this user runs here; see: zlaunch --ctl list",
                        name);
}

/* The folder of the process at the other end of a connection. */
static void find_folder(const struct zt_ctl_talk *t, char folder[PATH_MAX])
{
    struct ucred peer = {.pid = 0};
    socklen_t bytes = sizeof(peer);
    char link[64];
    ssize_t n;

    getsockopt(t->fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
    snprintf(link, sizeof(link), "/proc/%d/cwd", (int)peer.pid);
    n = readlink(link, folder, PATH_MAX - 1);
    folder[n > 0 ? n : 0] = 0;
}

bool zt_ctl_is_from_here(const struct zt_ctl_job *j)
{
    char here[PATH_MAX];

    return getcwd(here, sizeof(here)) && strcmp(here, j->folder) == 0;
}

/* This folder has had a job, which is over: that is what is meant, not somebody else's. */
static bool has_ended_here(struct zt_fault *fault)
{
    char ended[2 * PATH_MAX];

    if (!zt_ctl_find_ended("last", ended, sizeof(ended)))
        return false;
    zt_fault_set(fault, ZT_E_NOINPUT, "%s", ended);
    return true;
}

/* Is it the id of a run of this name, and not of one whose name goes on? */
static bool is_of_run(const char *id, const char *name)
{
    size_t n = strlen(name);

    return strncmp(id, name, n) == 0 && id[n] == '-' && is_random(id + n + 1);
}

/*
 * The job whose name begins so, if exactly one does. A whole name always wins, be it that of
 * the job or that of its run. "last" is
 * the newest that was started from this folder; where there has been none, the newest,
 * which may_take() decides about.
 */
static zt_err choose(struct zt_ctl_jobs *jobs, const char *name, struct zt_ctl_talk *t,
                     struct zt_ctl_job *chosen, struct zt_fault *fault)
{
    bool last = strcmp(name, "last") == 0, found = false, is_run = false;

    for (int i = 0; i < jobs->num; i++)
        is_run = is_run || is_of_run(jobs->list[i].name, name);
    for (int i = 0; i < jobs->num; i++) {
        const struct zt_ctl_job *j = &jobs->list[i];
        bool whole = strcmp(j->name, name) == 0;
        struct zt_ctl_talk next;
        zt_err rc;

        if (!last && strncmp(j->name, name, strlen(name)) != 0)
            continue;
        if (!last && is_run && !whole && !is_of_run(j->name, name))
            continue;
        rc = zt_ctl_talk_open(&next, j, fault);
        if (rc) {
            zt_ctl_talk_close(&next);
            if (rc == ZT_E_NOINPUT)
                continue;
            if (found)
                zt_ctl_talk_close(t);
            return rc;
        }
        if (last && found) { /* that one is not from here; is this one? */
            struct zt_ctl_job other = *j;

            find_folder(&next, other.folder);
            if (!zt_ctl_is_from_here(&other)) {
                zt_ctl_talk_close(&next);
                continue;
            }
        } else if (found && !whole) {
            zt_ctl_talk_close(&next);
            zt_ctl_talk_close(t);
            return zt_fault_set(fault, ZT_E_USAGE,
                                "'%s' is the beginning of several jobs: %s and %s", name,
                                chosen->name, j->name);
        }
        if (found)
            zt_ctl_talk_close(t);
        *t = next;
        *chosen = *j;
        find_folder(t, chosen->folder);
        found = true;
        if (whole || (last && zt_ctl_is_from_here(chosen)))
            break;
    }
    if (found && last && !zt_ctl_is_from_here(chosen) && has_ended_here(fault)) {
        zt_ctl_talk_close(t);
        return ZT_E_NOINPUT;
    }
    if (!found)
        return no_job(name, fault);
    if (fault)
        *fault = (struct zt_fault){0};
    return ZT_OK;
}

zt_err zt_ctl_talk_to(const char *name, struct zt_ctl_talk *t, struct zt_ctl_job *chosen,
                      struct zt_fault *fault)
{
    struct zt_ctl_jobs jobs;
    char run[ZT_CTL_RUN];
    zt_err rc;

    zt_ctl_run_id(name, run);
    if (strlen(name) < sizeof(run)) /* else another run's may begin so, too */
        name = run;
    if (!*name) /* the beginning of every name */
        return zt_fault_set(fault, ZT_E_USAGE,
                            "the name of the job is empty, as a variable that is not set "
                            "is; give a job, or last");
    rc = zt_ctl_find_jobs(&jobs, fault);
    if (!rc)
        rc = choose(&jobs, name, t, chosen, fault);
    free(jobs.list);
    return rc;
}
