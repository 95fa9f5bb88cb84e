/*
 * folders.h -- a folder with its parents: made, and removed where nothing came into it; and
 *              whether two paths are one.
 *
 * Threads:   any.
 */
#ifndef COMMON_FILES_FOLDERS_H
#define COMMON_FILES_FOLDERS_H

#include "common/fault.h"

/*
 * `dir` and what is missing above it; it is fine if all is there. `what` stands before it in
 * the text of a failure: "--output_dir"; NULL: nothing does. *made (may be NULL): the bytes of `dir` that name its
 * first folder that was not there; 0: all were. ZT_E_CANTCREATE, also where a file has the
 * name of a parent; that `dir` itself is no file is not looked at.
 */
zt_err zt_folders_make(const char *what, const char *dir, size_t *made,
                       struct zt_fault *fault) ZT_MUST_CHECK;

/* Whether zt_folders_make() could, as far as can be seen without making one. ZT_E_CANTCREATE, in its words. */
zt_err zt_folders_check(const char *what, const char *dir,
                        struct zt_fault *fault) ZT_MUST_CHECK;

/* Those that zt_folders_make() made, unless something is in them by now. Fine in a signal
 * handler. */
void zt_folders_remove(const char *dir, size_t made);

/* Whether both paths are there and lead to one file or folder. */
bool zt_is_one_file(const char *a, const char *b);
/* Whether `path` leads to the folder, or to a file in it, or is the name of one there. */
bool zt_is_of_folder(const char *folder, const char *path);
/* Whether both are there, and `path` leads to the folder or to what is anywhere below it. */
bool zt_is_within(const char *path, const char *folder);

#endif
