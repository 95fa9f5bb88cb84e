/* private.h -- what the readers of DeepSpeed's forms fill. */
#ifndef WORKER_DEEPSPEED_PRIVATE_H
#define WORKER_DEEPSPEED_PRIVATE_H

#include "worker/deepspeed/deepspeed.h"

/* One tensor for each kind that a rank has of a group; NULL: it has none. */
struct zt_ds_flat {
    const struct zt_safetensors_tensor *of_kind[ZT_DS_MAX_KINDS];
};

/* Elements of one parameter within a flat, in the parameter's order. */
struct zt_ds_piece {
    int64_t flat, first, elems;
};

struct zt_ds_files {
    struct zt_torch_file **files;
    int num_files;
    char **names; /* strings that belong here */
    size_t num_names;
    struct zt_ds_flat *flats;
    int64_t num_flats;
    struct zt_ds_piece *pieces;
    int64_t num_pieces;
};

zt_err zt_ds_no_memory(const struct zt_ds *ds, struct zt_fault *fault);
/* Open DIR/NAME; it is closed with the checkpoint. */
zt_err zt_ds_file(struct zt_ds *ds, const char *name, const struct zt_pickled **root,
                  struct zt_fault *fault) ZT_MUST_CHECK;
/* A copy of a text of a pickle that lives as long; NULL: no text, or no memory. */
const char *zt_ds_text(struct zt_ds *ds, const struct zt_pickled *v);
/* Add things; false: no memory. */
struct zt_ds_param *zt_ds_add_param(struct zt_ds *ds, const struct zt_pickled *name);
bool zt_ds_add_piece(struct zt_ds *ds, struct zt_ds_param *p, int64_t flat, int64_t first,
                     int64_t elems);
/* A flat with no tensors yet; -1: no memory. */
int64_t zt_ds_add_flat(struct zt_ds *ds);
/* Shape from a pickled torch.Size; false: none, or too large. */
bool zt_ds_set_shape(struct zt_ds *ds, struct zt_ds_param *p,
                     const struct zt_pickled *shape);
/* The number of a kind, which is added if it is new; -1: too many. */
int zt_ds_kind(struct zt_ds *ds, const char *name);

zt_err zt_ds_read_zero(struct zt_ds *ds, struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_ds_read_universal(struct zt_ds *ds, struct zt_fault *fault) ZT_MUST_CHECK;
/* Buffers, frozen parameters and aliases of the model files. */
zt_err zt_ds_read_rest(struct zt_ds *ds, const struct zt_pickled *const *models,
                       int num_models, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
