/*
 * secret.h -- the secret of a job: 32 random bytes that every process of it knows.
 *
 * Written as 64 hex digits and a newline, in a file that only its owner can open, or in
 * a pipe. It never stands in an argument or in a variable; the environment carries a
 * descriptor number (ZLAUNCH_SECRET_FD) or a path (ZLAUNCH_SECRET_FILE). A descriptor is
 * the better of the two: nothing is left on a disk.
 * Threads: any. Wipe what is no longer needed.
 */
#ifndef STORE_CORE_SECRET_H
#define STORE_CORE_SECRET_H

#include "common/fault.h"

#define ZT_SECRET_BYTES 32
#define ZT_SECRET_TEXT  (2 * ZT_SECRET_BYTES + 2) /* digits, newline, NUL */

struct zt_secret {
    uint8_t key[ZT_SECRET_BYTES];
};

/* ZT_E_SYSTEM: the machine gives no random numbers. */
zt_err zt_secret_random(struct zt_secret *out, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_secret_wipe(struct zt_secret *s);

/* The text form, NUL-terminated. */
void zt_secret_text(const struct zt_secret *s, char out[ZT_SECRET_TEXT]);
/* The text form from memory; blanks around it are fine. ZT_E_FORMAT naming `where`. */
zt_err zt_secret_parse(const char *text, size_t bytes, const char *where,
                       struct zt_secret *out, struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * From a file: a regular one, of this user or root, without any right for group and
 * others (ZT_E_USAGE saying so); or from a descriptor, up to its end or the newline: of a
 * file always from its start, of a pipe what is there.
 */
zt_err zt_secret_read_file(const char *path, struct zt_secret *out,
                           struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_secret_read_fd(int fd, struct zt_secret *out,
                         struct zt_fault *fault) ZT_MUST_CHECK;

/* Makes the file, mode 0600; ZT_E_CANTCREATE when something of that name exists. */
zt_err zt_secret_write_file(const char *path, const struct zt_secret *s,
                            struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * What ZLAUNCH_SECRET_FD or else ZLAUNCH_SECRET_FILE names. Neither set: *found is false.
 * A descriptor is read once in a process and remembered (a pipe gives its bytes once).
 */
zt_err zt_secret_from_env(struct zt_secret *out, bool *found,
                          struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * No secret at all: 32 bytes that anybody gets who knows `text`. For jobs on a network
 * that is trusted, where every process must make the same bytes out of its environment.
 */
void zt_secret_derive(const char *text, struct zt_secret *out);

#endif
