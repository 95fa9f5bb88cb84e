/*
 * client_state.h -- what a plugin keeps in checkpoints (<zlaunch/save.h>): named bytes.
 *
 *      TAG/client_state.safetensors        a tensor of bytes (u8) a key
 *
 * Ownership: a zt_client_state owns its bytes.
 * Threads:   one at a time.
 */
#ifndef WORKER_ENGINE_CHECKPOINT_CLIENT_STATE_H
#define WORKER_ENGINE_CHECKPOINT_CLIENT_STATE_H

#include "worker/engine/engine.h"

#define ZT_CLIENT_STATE_FILE "client_state.safetensors"

/* What the plugin's save_state hands over; *out is NULL where it has no such hook.
 * ZT_E_PLUGIN, with the plugin's name. */
zt_err zt_client_state_collect(const struct zt_engine *e, zt_client_state **out,
                               struct zt_fault *fault) ZT_MUST_CHECK;
void zt_client_state_free(zt_client_state *s); /* NULL is fine */

/* Into `dir`, synced. */
zt_err zt_client_state_write(const zt_client_state *s, const char *dir,
                             struct zt_fault *fault) ZT_MUST_CHECK;
/* Back from there; empty where there is no such file. Release it, also when it fails. */
zt_err zt_client_state_read(const char *dir, zt_client_state **out,
                            struct zt_fault *fault) ZT_MUST_CHECK;

/* Collective. What rank 0 has read (the others: NULL) to every rank's load_state.
 * *refused: of this rank. */
zt_err zt_client_state_give(struct zt_engine *e, const zt_client_state *of_rank_0,
                            zt_err *refused, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
