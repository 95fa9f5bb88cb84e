/*
 * push.h -- copy the binaries and inputs of a job to a node that shares no folder
 * with this one, over sftp.
 *
 * A file's name there is what follows "/./" in its path, as in `rsync --relative`, else
 * its last part: /usr/lib/zlaunch/./backends/mpi.so becomes backends/mpi.so. The folder
 * is BASE/<bytes>-<xxh3 of names, modes and contents>, so that what is there already need
 * not be copied, and different versions do not meet. Each file is written under a
 * temporary name and renamed; a failed copy leaves no part of a file.
 *
 * Ownership: zt_push_open() maps the files, zt_push_close() unmaps them.
 * Threads:   one.
 */
#ifndef LAUNCHER_SSH_PUSH_H
#define LAUNCHER_SSH_PUSH_H

#include "common/buf.h"
#include "launcher/ssh/session.h"

struct zt_push;

/*
 * files: NULL-terminated paths. base: a folder there, relative to the home unless it
 * starts with '/'; NULL: .zlaunch/push. ZT_E_NOINPUT names the file that is not there.
 */
zt_err zt_push_open(char *const *files, const char *base, struct zt_push **out,
                    struct zt_fault *fault) ZT_MUST_CHECK;
void zt_push_close(
    struct zt_push *p); /* NULL is fine; after the link's session is gone */

/* The folder there; the push's. */
const char *zt_push_dir(const struct zt_push *p);
/* The pushed file of that last name, with the folder in front; NULL: none. Allocated. */
char *zt_push_find(const struct zt_push *p, const char *name);
/* One step of the copy, for on_work: NEXT when all is there. */
zt_ssh_session_step zt_push_step(struct zt_push *p, struct zt_ssh_session *l);
size_t zt_push_bytes(const struct zt_push *p); /* of all files */

/*
 * The same through a shell, where there is no sftp session: lines for zt_shell_bootstrap
 * with the contents between them. All files are sent; a failure ends the shell with
 * ZT_PUSH_FAILED after it has said why on stderr. ZT_E_NOMEM, ZT_E_LIMIT.
 */
#define ZT_PUSH_FAILED 73
zt_err zt_push_script(const struct zt_push *p, struct zt_buf *out) ZT_MUST_CHECK;

#endif
