/*
 * private.h -- what the files of checkpoint share.
 *
 *      kinds.c      which kinds of state there are, and what they are called
 *      training.c   where training stands, as JSON and back
 *      best_so_far.c the best evaluation of the run that is resumed, and its checkpoint
 *      outcome.c    how it went on every rank
 *      manifest.c   the manifest and the small files
 *      client_state.c what a plugin keeps in it
 *      place_tool.c zero_to_fp32 beside them
 *      tokenizer_files.c the tokenizer of the model folder
 *      save.c       a save, step by step
 *      writer.c     the thread that writes while training goes on, and its memory
 *      snapshot.c   how much that is
 *      load.c       tensors of a checkpoint into state
 *      resume.c     which checkpoint
 *      replicas.c   copies in memory that outlives the rank; replicas_resume.c
 *      requests.c   checkpoints that a plugin asks for
 */
#ifndef WORKER_ENGINE_CHECKPOINT_PRIVATE_H
#define WORKER_ENGINE_CHECKPOINT_PRIVATE_H

#include <jansson.h>

#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/reader.h"
#include "worker/checkpoint/shard.h"
#include "worker/engine/checkpoint/checkpoint.h"
#include "worker/engine/checkpoint/client_state.h"

/* ---- kinds ---- */

/* The tables of a manifest, of this run. Kind k of them is state of kind state[k]. */
struct zt_ckpt_state {
    struct zt_ckpt_kind kinds[ZT_CKPT_MAX_KINDS];
    zt_state_kind state[ZT_CKPT_MAX_KINDS];
    int num_kinds;
    struct zt_ckpt_param *params; /* in the order of the model */
    int num_params;
};

zt_err zt_ckpt_state_open(const struct zt_engine *e, struct zt_ckpt_state *out,
                          struct zt_fault *fault) ZT_MUST_CHECK;
void zt_ckpt_state_release(struct zt_ckpt_state *s);
/* "weights", "master", "exp_avg"; NULL: such state is not saved. */
const char *zt_ckpt_kind_name(const struct zt_engine *e, zt_state_kind kind);

/* ---- training ---- */

/* NULL: no memory. */
json_t *zt_ckpt_training_json(const struct zt_engine *e, int64_t step);
/* Into the engine. ZT_E_FORMAT names what is missing. */
zt_err zt_ckpt_training_restore(struct zt_engine *e, const json_t *training,
                                struct zt_fault *fault) ZT_MUST_CHECK;
json_t *zt_ckpt_fingerprints(const struct zt_engine *e);

/* ---- the best evaluation so far ---- */

/* As the manifest has it; NULL: nothing is to be said. */
json_t *zt_ckpt_best_json(const struct zt_engine *e);
/* The folder of its checkpoint. */
void zt_ckpt_best_dir(const struct zt_engine *e, char out[PATH_MAX]);
/* Collective, once training is restored from `dir` (NULL: from memory): e->best from e->best.saved
 * where that counts in this run, and where its checkpoint is. Rank 0 says what does not count. */
zt_err zt_ckpt_best_take_over(struct zt_engine *e, const char *dir,
                              struct zt_fault *fault) ZT_MUST_CHECK;

/* ---- outcomes ---- */

/* Of one rank. */
struct zt_ckpt_outcome {
    int64_t code; /* zt_err */
    struct zt_ckpt_shard_made made;
};

/*
 * Collective. Tell all ranks how it went here; all[world] may be NULL. *refused: the
 * failure of the first rank that has one, with its text in `fault`, on every rank.
 */
zt_err zt_ckpt_share_outcome(struct zt_engine *e, const struct zt_ckpt_outcome *mine,
                             struct zt_ckpt_outcome *all, zt_err *refused,
                             struct zt_fault *fault) ZT_MUST_CHECK;

/* ---- the manifest ---- */

/* zero_to_fp32 into a folder, executable; nothing where there is none. */
void zt_ckpt_place_tool(const char *dir);

/* What a manifest and the files beside it say of the training at hand. */
struct zt_ckpt_description {
    json_t *manifest; /* without files and shards */
    char *config, *trainer_state;
    const struct zt_run *run;
    int64_t learnt_end;
    zt_client_state *client; /* on rank 0; NULL: the plugin has none */
};

/* ZT_E_NOMEM; release it then, too. */
zt_err zt_ckpt_describe(const struct zt_engine *e, const struct zt_ckpt_place *place,
                        const struct zt_ckpt_state *s, int64_t step,
                        struct zt_ckpt_description *out,
                        struct zt_fault *fault) ZT_MUST_CHECK;
void zt_ckpt_description_release(struct zt_ckpt_description *d); /* zeroed is fine */
/* manifest.json, config.json and trainer_state.json into the work folder: once. Any
 * thread. */
zt_err zt_ckpt_write_description(const struct zt_ckpt_description *d,
                                 const struct zt_ckpt_place *place,
                                 const struct zt_ckpt_outcome *all, int world,
                                 struct zt_fault *fault) ZT_MUST_CHECK;

/* ---- requests of a plugin ---- */

/*
 * Collective. Where the plugin's request `i` of this step goes, the same on all ranks.
 * ZT_E_PLUGIN: no name of a tag, or other ranks have another (checkpoint.tag_validation).
 */
zt_err zt_ckpt_agree_on_request(struct zt_engine *e, int i, int64_t step,
                                struct zt_ckpt_place *out,
                                struct zt_fault *fault) ZT_MUST_CHECK;

/* ---- loading ---- */

/* What a checkpoint is read for. */
typedef enum zt_ckpt_use {
    ZT_CKPT_GO_ON,   /* this run, or the one that it goes on from: values and moments */
    ZT_CKPT_GO_BACK, /* this run: values alone */
    ZT_CKPT_LOOK,    /* the same, to be verified: nothing changes */
    ZT_CKPT_BEGIN, /* any run: values alone, to begin with; some parameters may be new */
} zt_ckpt_use;

/* This rank's ranges of what is wanted. What is under adapters is read with ZT_CKPT_BEGIN alone:
 * the checkpoints of a run under adapters lack it. */
zt_err zt_ckpt_load_state(struct zt_engine *e, struct zt_ckpt *c, zt_ckpt_use use,
                          struct zt_fault *fault) ZT_MUST_CHECK;

/* Whether its parameters are those of the model: ZT_E_CONFIG. No rank but this one is needed. */
zt_err zt_ckpt_match_model(struct zt_engine *e, struct zt_ckpt *c,
                           struct zt_fault *fault) ZT_MUST_CHECK;

/* Whether the checkpoint in `dir`, whose manifest, `root`, is in `tag_dir`, is of this model by its
 * config.json and what its adapters are beside: ZT_E_CONFIG with the value that is another. What may change on the way is told. */
zt_err zt_ckpt_check_same_model(const struct zt_engine *e, const char *dir,
                                const char *tag_dir, const json_t *root,
                                struct zt_fault *fault) ZT_MUST_CHECK;

#endif
