/*
 * models.h -- whether a folder has the weights of a model, or checkpoints, which nobody replaces
 *             unasked.
 *
 * Threads:   any.
 */
#ifndef COMMON_FILES_MODELS_H
#define COMMON_FILES_MODELS_H

#include <limits.h>
#include <stdbool.h>

/* The folder has weights, or adapters, by the names of Hugging Face's: `found` is the file. */
bool zt_find_model(const char *folder, char found[PATH_MAX]);

/* Something is in the folder, or it is closed to us; a file is none. */
bool zt_is_filled_folder(const char *folder);
/* The same, or what is there is no folder: a file, a link to nowhere. */
bool zt_is_taken(const char *path);

/* The folder has a folder checkpoint-STEP with something in it, or one that is closed to us; with
 * `own` one that is zlaunch's by its looks. */
bool zt_has_checkpoints(const char *folder, bool own);

#endif
