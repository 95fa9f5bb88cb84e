/*
 * checkpoint.h -- the weights in a checkpoint, as fp32, for programs of their own.
 *
 * Opens checkpoints of zlaunch, of DeepSpeed (ZeRO stages 1 to 3, and its universal form)
 * and folders or files of weights (safetensors, pytorch_model.bin). Link with
 * -lzcheckpoint (pkg-config --cflags --libs zcheckpoint).
 *
 *      zt_checkpoint *c;
 *      char why[512];
 *      if (zt_checkpoint_open("out/checkpoint-100", NULL, &c, why, sizeof(why)))
 *          ... print `why`
 *      for (int i = 0; i < zt_checkpoint_count(c); i++)
 *          ... zt_checkpoint_at(c, i)->name
 *      zt_checkpoint_read(c, 0, 0, 16, floats, why, sizeof(why));
 *      zt_checkpoint_close(c);
 *
 * Ownership: tensors belong to the open checkpoint.
 * Threads:   one for each open checkpoint.
 */
#ifndef ZLAUNCH_CHECKPOINT_H
#define ZLAUNCH_CHECKPOINT_H

#include <zlaunch/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zt_checkpoint zt_checkpoint;

struct zt_checkpoint_tensor {
    const char *name;
    int ndim;
    const int64_t *shape; /* row-major */
    int64_t numel;
    bool trained; /* false: a frozen parameter, or a buffer */
    /* false: of integers, or of a type that is not read (F64, F8), or of the model under
     * adapters, whose values are where they came from */
    bool readable;
    const char *alias_of; /* another name of that tensor (tied weights); NULL: its own */
};

/* `tag`: which of several; NULL: the newest. Why it failed is put into `why`, which may
 * be NULL. */
ZT_API zt_err zt_checkpoint_open(const char *path, const char *tag, zt_checkpoint **out,
                                 char *why, size_t why_bytes) ZT_MUST_CHECK;
ZT_API void zt_checkpoint_close(zt_checkpoint *c); /* NULL is fine */

ZT_API int zt_checkpoint_count(const zt_checkpoint *c);
ZT_API const struct zt_checkpoint_tensor *zt_checkpoint_at(const zt_checkpoint *c, int i);
/* -1: there is none of that name. */
ZT_API int zt_checkpoint_find(const zt_checkpoint *c, const char *name);

/* Elements [first, first + n) of tensor i. */
ZT_API zt_err zt_checkpoint_read(zt_checkpoint *c, int i, int64_t first, int64_t n,
                                 float *out, char *why, size_t why_bytes) ZT_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
