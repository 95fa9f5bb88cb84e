#include "worker/engine/output_dir.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/files/folders.h"
#include "common/files/models.h"
#include "common/log.h"
#include "common/message/event.h"
#include "worker/checkpoint/atomic_file.h"
#include "worker/checkpoint/disk_space.h"
#include "worker/checkpoint/folder.h"
#include "worker/engine/checkpoint/checkpoint.h"
#include "worker/engine/engine.h"
#include "worker/engine/weights.h"

#define OPTION     "--output_dir" /* of the run's own folder */
#define MOST_TRIES 100

static zt_err check_folder(const char *option, const char *dir, struct zt_fault *fault)
{
    const char *front = option ? option : "", *space = option ? " " : "";
    struct stat st;

    if (stat(dir, &st) == 0 && !S_ISDIR(st.st_mode))
        return zt_fault_set(fault, ZT_E_CANTCREATE,
                            "%s%s%s: that is a file; name a folder", front, space, dir);
    if (access(dir, W_OK | X_OK))
        return zt_fault_set(fault, ZT_E_CANTCREATE, "%s%s%s: %s", front, space, dir,
                            strerror(errno));
    return ZT_OK;
}

zt_err zt_output_dir_make(const char *option, const char *dir, struct zt_fault *fault)
{
    zt_err rc = zt_folders_make(option, dir, NULL, fault);

    if (!rc)
        rc = check_folder(option, dir, fault);
    if (!rc)
        zt_atomic_file_remove_stale(dir);
    return rc;
}

zt_err zt_output_dir_check(const struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    const char *dir = run->output_dir;
    bool takes_weights = run->do_train || run->merge_adapters;
    zt_err rc;

    if (!dir)
        return ZT_OK;
    rc = zt_folders_check(OPTION, dir, fault);
    if (!rc && access(dir, F_OK) == 0)
        rc = check_folder(OPTION, dir, fault);
    if (!rc && takes_weights)
        rc = zt_run_check_output_dir(run, fault);
    return rc || !takes_weights ? rc : zt_weights_check_checkpoint(e, dir, fault);
}

zt_err zt_output_dir_write(const char *dir, const char *name, const struct zt_buf *text,
                           struct zt_fault *fault)
{
    struct zt_atomic_file f = {0};
    char path[PATH_MAX];
    zt_err rc;

    if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
        return zt_fault_set(fault, ZT_E_CANTCREATE, "%s: the path is too long", dir);
    rc = zt_output_dir_make(OPTION, dir, fault);
    if (!rc)
        rc = zt_atomic_file_open(&f, path, (int64_t)zt_buf_used(text), fault);
    if (!rc)
        rc = zt_atomic_file_write(&f, zt_buf_head(text), zt_buf_used(text), fault);
    if (!rc)
        rc = zt_atomic_file_publish(&f, fault);
    zt_atomic_file_release(&f);
    if (!rc)
        zt_event_text("saved", path);
    return rc;
}

/* ---- the folder of the run ---- */

/* For the signals that end a process which does not expect them. */
static const struct zt_output_dir *volatile held;

static const int end_signals[] = {SIGTERM, SIGINT, SIGHUP};

/* They wait while a folder is made or removed: a process that ends in between leaves it. */
static void block_end_signals(sigset_t *before)
{
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(end_signals) / sizeof(*end_signals); i++)
        sigaddset(&set, end_signals[i]);
    pthread_sigmask(SIG_BLOCK, &set, before);
}

void zt_output_dir_leave(void)
{
    const struct zt_output_dir *d = held;
    sigset_t before;

    if (!d)
        return;
    block_end_signals(&before);
    zt_folder_lock_remove(&d->lock);
    zt_folders_remove(d->path, d->made);
    held = NULL;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void on_end(int sig)
{
    zt_output_dir_leave();
    raise(sig); /* which now does what it does without a handler */
}

static void watch_signals(void)
{
    struct sigaction action = {.sa_handler = on_end,
                               .sa_flags = (int)SA_RESETHAND | SA_ONSTACK},
                     before;

    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(end_signals) / sizeof(*end_signals); i++)
        if (sigaction(end_signals[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            sigaction(end_signals[i], &action, NULL);
}

/* Libraries that fail end the process by exit(), as MPI does where it cannot start. */
static void watch_exit(void)
{
    static bool watched;

    if (!watched)
        watched = atexit(zt_output_dir_leave) == 0;
}

/* zlaunch's jobs have names that no other job has; other launchers' may be given twice. */
static bool is_unique_name(const char *job)
{
    const char *own = getenv("ZLAUNCH_JOB_ID");

    return own && strcmp(own, job) == 0;
}

/* The folder, and its lock. */
static zt_err try_to_take(struct zt_output_dir *d, const struct zt_run *run,
                          struct zt_fault *fault)
{
    const char *dir = run->output_dir;
    zt_err rc = zt_folders_make(OPTION, dir, &d->made, fault);

    snprintf(d->path, sizeof(d->path), "%s", dir);
    if (!rc)
        rc = check_folder(OPTION, dir, fault);
    if (!rc)
        rc =
            zt_folder_lock_take(dir, run->job, is_unique_name(run->job), &d->lock, fault);
    if (!rc && stat(dir, &d->folder) < 0)
        rc = zt_fault_set(fault, ZT_E_CANTCREATE, OPTION " %s: %s", dir, strerror(errno));
    if (rc)
        zt_folders_remove(dir, d->made);
    return rc;
}

/* What is to be a folder of each node is one. A rank of the same job that was killed may still
 * be on its way out, for a moment. */
static zt_err take_own(struct zt_output_dir *d, const struct zt_run *run,
                       struct zt_fault *fault)
{
    zt_err rc = try_to_take(d, run, fault);

    for (int i = 0; !rc && d->lock.is_others && i < MOST_TRIES; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
        rc = try_to_take(d, run, fault);
    }
    if (rc || !d->lock.is_others)
        return rc;
    return zt_fault_set(fault, ZT_E_CANTCREATE,
                        OPTION
                        " %s: with --save_on_each_node each node has a folder of its "
                        "own, and another node of this job has this one: leave "
                        "--save_on_each_node out where nodes share a file system",
                        run->output_dir);
}

static zt_err take_folder(struct zt_output_dir *d, const struct zt_run *run,
                          struct zt_fault *fault)
{
    zt_err rc =
        run->save_on_each_node ? take_own(d, run, fault) : try_to_take(d, run, fault);

    /* another run that ends may have removed the folder meanwhile */
    for (int i = 0; rc && i < MOST_TRIES && access(run->output_dir, F_OK); i++)
        rc = try_to_take(d, run, fault);
    if (rc)
        return rc;
    held = d;
    watch_signals();
    watch_exit();
    return ZT_OK;
}

static zt_err take(struct zt_output_dir *d, const struct zt_run *run,
                   struct zt_fault *fault)
{
    sigset_t before;
    zt_err rc;

    block_end_signals(&before);
    rc = take_folder(d, run, fault);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        return rc;
    /* another run may have ended in it since the options were read */
    return zt_run_check_output_dir(run, fault);
}

static bool is_same_folder(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* What lies in a folder that came to the place of the run's is somebody's. */
static zt_err check_other_folder(const struct zt_run *run, struct zt_fault *fault)
{
    char model[PATH_MAX];

    if (run->overwrite_output_dir || (!zt_has_checkpoints(run->output_dir, false) &&
                                      !zt_find_model(run->output_dir, model)))
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_CANTCREATE,
                        OPTION " %s: the folder of this run was moved away or removed, "
                               "and another with checkpoints or a model is in its place: "
                               "nothing is saved over these",
                        run->output_dir);
}

static zt_err take_again(struct zt_output_dir *d, const struct zt_run *run,
                         struct zt_fault *fault)
{
    struct zt_output_dir now = {.lock.fd = -1};
    bool same;
    zt_err rc = try_to_take(&now, run, fault);

    if (rc)
        return rc;
    same = is_same_folder(&now.folder, &d->folder);
    rc = same ? ZT_OK : check_other_folder(run, fault);
    if (rc) {
        zt_folder_lock_remove(&now.lock);
        zt_folder_lock_release(&now.lock);
        return rc;
    }
    if (same)
        zt_warn("output",
                "%s: its " ZT_FOLDER_LOCK_NAME " was removed, and is made again",
                run->output_dir);
    else
        zt_warn("output",
                "%s was moved away or removed: what is saved from here on is in a new "
                "folder of that name",
                run->output_dir);
    zt_folder_lock_release(&d->lock);
    now.model = d->model;
    *d = now;
    return ZT_OK;
}

zt_err zt_output_dir_hold(struct zt_engine *e, struct zt_fault *fault)
{
    struct zt_output_dir *d = &e->output;
    sigset_t before;
    zt_err rc;

    if (d->lock.fd < 0 || zt_folder_lock_is_in_place(&d->lock))
        return zt_output_dir_make(OPTION, e->run->output_dir, fault);
    block_end_signals(&before);
    rc = take_again(d, e->run, fault);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static int64_t bytes_of_weights(const struct zt_engine *e)
{
    const struct zt_model *m = e->model;
    int64_t bytes = 1 << 16; /* config.json, and the head of each file */

    if (e->adapters && !e->run->merge_adapters)
        return bytes + zt_adapters_bytes(m) + 600 * (int64_t)m->num_params;

    for (int i = 0; i < m->num_params; i++)
        bytes += m->params[i]->numel * (int64_t)zt_dtype_bytes(zt_weights_dtype(e->run)) +
                 (int64_t)strlen(m->params[i]->name) + 128;
    return bytes;
}

/* They stay: whose they are is not this run's to say. But they must not be taken for its own. */
static void warn_of_older_checkpoints(const struct zt_run *run)
{
    int64_t newest;

    if (!run->do_train || zt_checkpoint_is_wanted(run))
        return;
    newest = zt_ckpt_newest(run->output_dir);
    if (newest >= 0)
        zt_warn(
            "output",
            "%s has checkpoint-%lld of an earlier run, and this one begins anew beside "
            "it: --resume_from_checkpoint auto takes the one of the latest step, "
            "whosever it is, and --save_total_limit leaves those of an earlier run, so "
            "remove these or use another folder",
            run->output_dir, (long long)newest);
}

static bool look_up_model(const struct zt_output_dir *d, struct stat *out)
{
    char found[PATH_MAX];

    return zt_find_model(d->path, found) && stat(found, out) == 0;
}

void zt_output_dir_remove_results(const struct zt_output_dir *d, const struct zt_run *run)
{
    static const char *const names[] = {"eval_results.json", "predictions.jsonl",
                                        "predict_results.json"};
    char path[PATH_MAX];

    for (size_t i = 0; d->model.st_ino && i < sizeof(names) / sizeof(*names); i++)
        if (snprintf(path, sizeof(path), "%s/%s", d->path, names[i]) < PATH_MAX &&
            !zt_run_reads(run, path) && unlink(path) == 0)
            zt_info("output", "%s is removed: it was of the weights that are replaced",
                    path);
}

void zt_output_dir_own_model(struct zt_output_dir *d)
{
    if (!look_up_model(d, &d->model))
        d->model = (struct stat){0};
}

bool zt_output_dir_has_other_model(const struct zt_output_dir *d)
{
    struct stat now;

    return look_up_model(d, &now) &&
           (now.st_dev != d->model.st_dev || now.st_ino != d->model.st_ino ||
            now.st_size != d->model.st_size ||
            now.st_mtim.tv_sec != d->model.st_mtim.tv_sec ||
            now.st_mtim.tv_nsec != d->model.st_mtim.tv_nsec);
}

zt_err zt_output_dir_open(struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    const char *dir = run->output_dir;
    zt_err rc;

    if (run->rank && (!run->save_on_each_node || run->local_rank))
        return ZT_OK;
    rc = take(&e->output, run, fault);
    if (rc)
        return rc;
    zt_atomic_file_remove_stale(dir); /* now, not while one may be written */
    zt_ckpt_remove_stale(dir);
    if (run->rank)
        return ZT_OK; /* rank 0 alone writes weights */
    rc = zt_weights_check_checkpoint(e, dir, fault);
    if (rc)
        return rc;
    zt_output_dir_own_model(&e->output);
    warn_of_older_checkpoints(run);
    return zt_disk_reserve(dir, bytes_of_weights(e), &e->disk_reserved, fault);
}

void zt_output_dir_close(struct zt_engine *e)
{
    zt_output_dir_leave();
    zt_folder_lock_release(&e->output.lock);
}
