/* output_dir.h -- the folder of --output_dir: there when something is saved in it. It is one run's. */
#ifndef WORKER_ENGINE_OUTPUT_DIR_H
#define WORKER_ENGINE_OUTPUT_DIR_H

#include <sys/stat.h>

#include "common/buf.h"
#include "common/fault.h"
#include "worker/checkpoint/folder_lock.h"

struct zt_engine;
struct zt_run;

/* The folder, with its parents; it is fine if it is there. ZT_E_CANTCREATE when it cannot
 * be made or written to. option: that named it, as messages do; NULL: none. */
zt_err zt_output_dir_make(const char *option, const char *dir,
                          struct zt_fault *fault) ZT_MUST_CHECK;

/* Rank 0 of a run that is not to begin: what it would be refused for at its start, without
 * a file made. ZT_E_CANTCREATE. */
zt_err zt_output_dir_check(const struct zt_engine *e,
                           struct zt_fault *fault) ZT_MUST_CHECK;

/* All of `name` in the folder, which is made, or the file that was there before; tells it as an
 * event "saved". ZT_E_CANTCREATE, ZT_E_IO, ZT_E_NOSPACE. */
zt_err zt_output_dir_write(const char *dir, const char *name, const struct zt_buf *text,
                           struct zt_fault *fault) ZT_MUST_CHECK;

/* The folder of a run while it runs. */
struct zt_output_dir {
    struct zt_folder_lock lock;
    char path[PATH_MAX];
    struct stat folder; /* as it was when it was locked */
    size_t made; /* bytes of the path that name the first folder that this run made */
    struct stat model; /* the one in it at the start, or that this run saved; 0: none */
};

/*
 * Before training rather than after, on the ranks that write files there: that the folder of
 * the run can be made and written to, that no other run has it (from here on it is locked),
 * and that the disk has room for the weights, which is held where the file system can, until
 * zt_engine_save() takes it. ZT_E_CANTCREATE.
 */
zt_err zt_output_dir_open(struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;
/*
 * Before something is saved there, on a rank that has opened it: the folder is there, and is locked by
 * this run. One that was moved away or removed meanwhile is made again, which is a warning; another
 * folder that came to its place with a model or checkpoints is nobody's to save over.
 * ZT_E_CANTCREATE: that, or another run has it by now.
 */
zt_err zt_output_dir_hold(struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;
/* What told of a model that was there at the start and is replaced now: eval_results.json,
 * predictions.jsonl and predict_results.json, but for data of the run. Nothing where there was none. */
void zt_output_dir_remove_results(const struct zt_output_dir *d,
                                  const struct zt_run *run);
/* The model that is in the folder now is this run's to replace. */
void zt_output_dir_own_model(struct zt_output_dir *d);
/* Another program has put one there since. */
bool zt_output_dir_has_other_model(const struct zt_output_dir *d);
/* The lock goes, and a folder that was made goes where nothing was saved in it. SIGTERM,
 * SIGINT and SIGHUP do that, too, where nothing else handles them. */
void zt_output_dir_close(struct zt_engine *e);
/* What is left to do for a process that ends at once; fine in a signal handler. */
void zt_output_dir_leave(void);

#endif
