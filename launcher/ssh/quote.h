/*
 * quote.h -- words and variables for a POSIX shell on another machine.
 *
 * The remote side gets one constant command, zt_shell_bootstrap: a shell that reads lines
 * from stdin and evaluates each. What is particular to a job (folder, variables, where
 * zworker is) goes through stdin, so that it is neither limited in length nor seen by
 * `ps`. The last line replaces the shell by zworker, whose stdin goes on where the lines
 * end: `read` takes no byte too many.
 *
 * Before that the shell writes "zlaunch-NONCE up" or "zlaunch-NONCE none" on stdout, so
 * that the output of start-up files ends at a line that can be recognised.
 * Threads: any.
 */
#ifndef LAUNCHER_SSH_QUOTE_H
#define LAUNCHER_SSH_QUOTE_H

#include "common/buf.h"
#include "common/fault.h"

/* One line without ' inside its quotes, ! or newline: csh and fish take it too. */
extern const char zt_shell_bootstrap[];

/* A name that a shell can export. */
bool zt_env_name_ok(const char *name, size_t n);

/*
 * Append one word that the shell reads back as exactly these bytes, on one line: newlines
 * become "$zl_n", which the script sets. ZT_E_NOMEM, ZT_E_LIMIT.
 */
zt_err zt_shell_word(struct zt_buf *out, const char *text) ZT_MUST_CHECK;

struct zt_shell_job {
    const char *nonce;           /* letters and digits */
    const char *cwd;             /* NULL: the home; not there: `other_cwd`, with a note */
    const char *other_cwd;       /* NULL: the home */
    char *const *env;            /* NAME=VALUE, NULL-terminated; may be NULL */
    const char *const *zworkers; /* paths or names, NULL-terminated: the first is taken */
    const char *pushed; /* folder from the home, becomes ZLAUNCH_PUSH_DIR; NULL: none */
};

/* The lines for the bootstrap. ZT_E_ARG: a variable that no shell can export. */
zt_err zt_shell_script(struct zt_buf *out, const struct zt_shell_job *job,
                       struct zt_fault *fault) ZT_MUST_CHECK;

#endif
