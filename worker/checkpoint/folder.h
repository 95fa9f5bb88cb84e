/*
 * folder.h -- folders of checkpoints: how one comes to be in one instant, which there are,
 * and how old ones go.
 *
 *      ROOT/.NAME.tmp/TAG/...    while it is written
 *      ROOT/NAME/TAG/...         by one rename, when all of it is on the disk
 *
 * A folder of a plugin's own has no NAME: ROOT/.TAG.checkpoint.tmp becomes ROOT/TAG, and
 * after that ROOT/latest names it.
 * Threads: one process of those that share ROOT makes these calls; others write into the
 *          work folder between begin and publish.
 */
#ifndef WORKER_CHECKPOINT_FOLDER_H
#define WORKER_CHECKPOINT_FOLDER_H

#include <limits.h>

#include "common/fault.h"

struct zt_ckpt_place {
    char root[PATH_MAX];
    char name[200]; /* "": ROOT/TAG itself */
    char tag[200];
};

/* ROOT/checkpoint-STEP/global_stepSTEP */
void zt_ckpt_place_of_step(struct zt_ckpt_place *p, const char *root, int64_t step);

/* Where shards and manifest are written, and the folder that holds config.json. */
void zt_ckpt_work_dir(const struct zt_ckpt_place *p, char out[PATH_MAX]);
void zt_ckpt_work_top(const struct zt_ckpt_place *p, char out[PATH_MAX]);
/* Where it is once published. */
void zt_ckpt_final_dir(const struct zt_ckpt_place *p, char out[PATH_MAX]);

/* Make the work folder, empty, and lock it; what a killed save left is removed, in a
 * plugin's folder of any tag. A process writes one at a time. ZT_E_CANTCREATE. */
zt_err zt_ckpt_folder_begin(const struct zt_ckpt_place *p,
                            struct zt_fault *fault) ZT_MUST_CHECK;
/* Sync the folders, rename, `latest`. A checkpoint of that name is replaced. */
zt_err zt_ckpt_folder_publish(const struct zt_ckpt_place *p,
                              struct zt_fault *fault) ZT_MUST_CHECK;
/* Remove the work folder; best effort. */
void zt_ckpt_folder_abandon(const struct zt_ckpt_place *p);
/* Remove work folders that killed processes left in ROOT; best effort. */
void zt_ckpt_remove_stale(const char *root);

/*
 * Before weights with this config.json (its text; NULL: they have none) are written into
 * `dir`: one that is a checkpoint keeps its own config.json, which its manifest has the
 * check sum of, and weights that are not its `own` would not be read (zt_ckpt_outranks_weights).
 * ZT_E_CANTCREATE: it is a checkpoint of another model, or of other weights.
 */
zt_err zt_ckpt_check_config(const char *dir, const char *config, bool own,
                            struct zt_fault *fault) ZT_MUST_CHECK;

/* A folder with all that is in it; none is fine. ZT_E_CANTCREATE. */
zt_err zt_ckpt_remove_tree(const char *path, struct zt_fault *fault) ZT_MUST_CHECK;
/* The folder `from` takes the name `to`, both in `root`, in the same instant from one that has
 * it, which goes. ZT_E_CANTCREATE. */
zt_err zt_ckpt_replace_folder(const char *root, const char *from, const char *to,
                              struct zt_fault *fault) ZT_MUST_CHECK;

/* "checkpoint-12" is 12; anything else, "checkpoint-012" too, is -1. */
int64_t zt_ckpt_step_of_name(const char *name);
/* Steps of the folders checkpoint-STEP in ROOT, newest first; *steps is malloc'ed. A
 * folder that is not there has none. ZT_E_NOMEM. */
zt_err zt_ckpt_list(const char *root, int64_t **steps, int *num,
                    struct zt_fault *fault) ZT_MUST_CHECK;
/* The newest of them that is a checkpoint of zlaunch; -1: none is. */
int64_t zt_ckpt_newest(const char *root);
/* Whether one of them is of this training, by its name in manifests; "" is nobody's. */
bool zt_ckpt_has_of_training(const char *root, const char *training);
/*
 * The oldest of ROOT, those beyond the newest `limit` (> 0), but never that of step `newest`
 * or `best` (-1: none); oldest first, *steps is malloc'ed. What is no checkpoint of zlaunch
 * does not count, and with `training` (NULL: of any) neither does one of another training,
 * or one that does not say of which it is. ZT_E_NOMEM.
 */
zt_err zt_ckpt_list_old(const char *root, const char *training, int64_t limit,
                        int64_t newest, int64_t best, int64_t **steps, int *num,
                        struct zt_fault *fault) ZT_MUST_CHECK;
/* Remove these. *removed: how many. ZT_E_CANTCREATE; a kill leaves no torn one. */
zt_err zt_ckpt_prune(const char *root, const char *training, int64_t limit,
                     int64_t newest, int64_t best, int *removed,
                     struct zt_fault *fault) ZT_MUST_CHECK;

/* What a folder is that is no checkpoint of zlaunch, and what can be done with it, to be put
 * behind a sentence: "; it is ..."; "": that is not known. */
const char *zt_ckpt_describe_foreign(const char *dir);
const char *zt_ckpt_describe_deepspeed(const char *dir); /* of DeepSpeed's alone */
/* What is not there as a checkpoint is one of zlaunch, of which a part was removed, or not copied:
 * the folder that holds its state, the manifest in it, or `latest`. */
bool zt_ckpt_is_incomplete(const char *dir);
/* A folder with something in it, and none of zlaunch: no save takes its place. */
bool zt_ckpt_is_foreign(const char *dir);

#endif
