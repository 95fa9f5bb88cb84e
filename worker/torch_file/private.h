/* private.h -- what the files of the pickle reader share. */
#ifndef WORKER_TORCH_FILE_PRIVATE_H
#define WORKER_TORCH_FILE_PRIVATE_H

#include "worker/torch_file/pickle.h"

/* Zeroed memory that lives as long as the pickle; NULL when its limit is reached. */
void *zt_pickle_alloc(struct zt_pickle *p, size_t bytes);
/* A value of this kind; NULL as above. */
struct zt_pickled *zt_pickle_make(struct zt_pickle *p, zt_pickled_kind kind);
/* Put an item behind the others. False when the limit is reached. */
bool zt_pickle_append(struct zt_pickle *p, struct zt_pickled *to,
                      struct zt_pickled *item);

/* What calling `callee` with `args` gives; NULL with *why set: it is refused. */
struct zt_pickled *zt_pickle_call(struct zt_pickle *p, struct zt_pickled *callee,
                                  struct zt_pickled *args, const char **why);
/* The storage that a persistent id names; NULL with *why set. */
struct zt_pickled *zt_pickle_persistent(struct zt_pickle *p, struct zt_pickled *id,
                                        const char **why);

#endif
