/*
 * deepspeed.h -- a checkpoint that DeepSpeed has saved: parameters and the state of their
 * optimizer, from the parts that its ranks wrote.
 *
 *      DIR/latest                                                text: TAG
 *      DIR/TAG/mp_rank_00_model_states.pt                        stages 0 to 2
 *      DIR/TAG/zero_pp_rank_D_mp_rank_00_model_states.pt         stage 3, of each rank
 *      DIR/TAG/[bf16_]zero_pp_rank_D_mp_rank_00_optim_states.pt  stages 1 to 3, of each rank
 *
 * or its universal form: DIR/TAG/zero/PARAMETER/{fp32,exp_avg,exp_avg_sq}.pt.
 * Checkpoints of tensor or pipeline parallel runs are refused, and those of experts.
 * Ownership: everything belongs to the open checkpoint.
 * Threads:   one.
 */
#ifndef WORKER_DEEPSPEED_DEEPSPEED_H
#define WORKER_DEEPSPEED_DEEPSPEED_H

#include "worker/torch_file/torch_file.h"

#define ZT_DS_MAX_KINDS 16

typedef enum zt_ds_role {
    ZT_DS_TRAINED, /* has every kind */
    ZT_DS_FROZEN,  /* these have a value alone */
    ZT_DS_BUFFER,
} zt_ds_role;

struct zt_ds_param {
    const char *name;
    zt_ds_role role;
    int ndim;
    const int64_t *shape;
    int64_t numel;
    int group;                                     /* parameter group; trained ones */
    const struct zt_safetensors_tensor *of_buffer; /* its only tensor; else NULL */
    int64_t first_piece, num_pieces;
};

/* A second name of a parameter (tied weights). */
struct zt_ds_alias {
    const char *name, *of;
};

struct zt_ds {
    char *dir; /* with the tag */
    const char *tag;
    int stage, world_size; /* stage 0: no optimizer file, or universal */
    bool universal;
    /* kind 0 is "master": the value in fp32 */
    int num_kinds;
    const char *kinds[ZT_DS_MAX_KINDS];
    int num_params, num_aliases;
    struct zt_ds_param *params;
    struct zt_ds_alias *aliases;
    int64_t optimizer_step; /* -1: not known */
    /* the dictionaries of rank 0, for everything else; NULL: there is none */
    const struct zt_pickled *model, *optimizer;
    struct zt_ds_files *files;
};

/* Whether `path` looks like one: DIR, with the tag `tag` (NULL: the one of its `latest`), or
 * DIR/TAG. Nothing is read. */
bool zt_ds_is_here(const char *path, const char *tag);
/* `tag`: NULL is the one that DIR/latest names, or `path` is DIR/TAG itself.
 * ZT_E_NOINPUT: a file is missing; ZT_E_FORMAT: files that do not fit together;
 * ZT_E_UNSUPPORTED. */
zt_err zt_ds_open(const char *path, const char *tag, struct zt_ds **out,
                  struct zt_fault *fault) ZT_MUST_CHECK;
void zt_ds_close(struct zt_ds *ds); /* NULL is fine */

/* Let go of the memory that reading has taken (common/mapped_file.h). */
void zt_ds_forget(const struct zt_ds *ds);

/* Elements [first, first + n) as floats. ZT_E_ARG: no such state or range. */
zt_err zt_ds_read(const struct zt_ds *ds, int kind, int param, int64_t first, int64_t n,
                  float *out, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
