/*
 * save.h -- checkpoints that a plugin asks for, and what it keeps in every checkpoint.
 *
 *      zt_save_checkpoint(w, "runs/a", "best")     in the hook after_step
 *      .save_state, .load_state                    hooks of struct zt_plugin (plugin.h)
 *
 * The engine saves all that training depends on; what else a plugin needs to go on (counts,
 * a schedule of its own, averages) it hands over in save_state: bytes under a key, which
 * load_state gets back unchanged. They belong to the job, not to a rank, so that any number
 * of ranks can go on: those of rank 0 are saved, and every rank gets them.
 * Errors: a failed call returns false and is remembered; later calls do nothing and
 *         return false. A save whose hook has failed is not made: a warning, and the run
 *         goes on. In the other hooks the run stops with the first failure.
 * Threads: the one that runs the hook.
 * All of it is there since ABI 3.2.
 */
#ifndef ZLAUNCH_SAVE_H
#define ZLAUNCH_SAVE_H

#include <zlaunch/types.h>
#include <zlaunch/weights.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Ask, in after_step and on every rank alike, for a checkpoint of all that training depends
 * on, after this step: DIR/TAG, and the file DIR/latest names it. `dir` NULL: --output_dir.
 * `tag`, a name without slashes that does not begin with a dot, and neither `latest` nor
 * checkpoint-N (N a number), which are the run's own, is the same on all ranks
 * (checkpoint.tag_validation says what happens when it is not); NULL: global_stepN. One of
 * that name is replaced, a folder that is no checkpoint is not. It is written while training
 * goes on, as others are; a disk that does not take it is a warning. --save_total_limit does
 * not count it, and --resume_from_checkpoint DIR, or DIR/TAG, goes on from it. At most
 * ZT_MOST_SAVES in one step.
 */
#define ZT_MOST_SAVES 4
ZT_API bool zt_save_checkpoint(zt_weights *w, const char *dir, const char *tag);

typedef struct zt_client_state zt_client_state; /* named bytes; owned by the engine */

/* Put them together at most. They are held in memory until the checkpoint is written. */
#define ZT_CLIENT_STATE_BYTES (64 << 20)

/* In save_state: `bytes` (0 is fine) of `data` under `key`, 1 to 200 printable ASCII
 * characters, once. The data are copied. */
ZT_API bool zt_client_state_put(zt_client_state *s, const char *key, const void *data,
                                size_t bytes);
/* In load_state: what was put, aligned as malloc does, until the hook returns. NULL: the
 * checkpoint has no such key, and *bytes is as it was. */
ZT_API const void *zt_client_state_get(const zt_client_state *s, const char *key,
                                       size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
