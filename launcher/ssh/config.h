/*
 * config.h -- the part of ssh_config(5) that zlaunch honours itself: HostName, Port,
 * User, IdentityFile, IdentitiesOnly, ProxyJump, UserKnownHostsFile and
 * StrictHostKeyChecking, in Host blocks and included files. What it cannot do (Match,
 * ProxyCommand, certificates, ...) is noted in needs_program, with file and line, for the
 * host it applies to only; settings that change nothing here are passed over.
 *
 * As in ssh the first value of a keyword wins; IdentityFile adds up.
 * Ownership: the caller owns the struct, the struct its strings.
 * Threads:   one.
 */
#ifndef LAUNCHER_SSH_CONFIG_H
#define LAUNCHER_SSH_CONFIG_H

#include "common/fault.h"

#define ZT_SSH_MAX_FILES 16

struct zt_ssh_config {
    char *host_name;               /* NULL: the name itself */
    int port;                      /* 0: not set */
    char *user, *jump;             /* NULL: not set */
    char *file[ZT_SSH_MAX_FILES];  /* IdentityFile, not expanded */
    char *known[ZT_SSH_MAX_FILES]; /* UserKnownHostsFile, not expanded */
    int num_files, num_known;
    int identities_only, strict; /* -1: not set */
    bool jump_set, proxy_set;    /* also by "none" */
    char *needs_program;         /* "/home/u/.ssh/config:3 sets ProxyCommand"; or NULL */
};

void zt_ssh_config_init(struct zt_ssh_config *c);
void zt_ssh_config_release(struct zt_ssh_config *c);

/*
 * Take what a file's text says about `host`. folder: what Include is relative to; NULL:
 * Include is not followed but noted in needs_program. ZT_E_NOMEM. A malformed line is
 * left to the ssh program, which has the words for it.
 */
zt_err zt_ssh_config_parse(const char *text, size_t bytes, const char *file,
                           const char *folder, const char *host,
                           struct zt_ssh_config *c) ZT_MUST_CHECK;
/* The same from a file; one that is not there is no error. ZT_E_NOINPUT names it. */
zt_err zt_ssh_config_read(const char *file, const char *folder, const char *host,
                          struct zt_ssh_config *c, struct zt_fault *fault) ZT_MUST_CHECK;

/* What %-tokens and ~ stand for. */
struct zt_ssh_tokens {
    const char *home, *host, *local_user, *user;
    int port;
};
/*
 * Replace ~/ in front and %h %u %r %d %p %%. Allocated. NULL with errno ENOMEM, or EINVAL
 * for a token that is not known here.
 */
char *zt_ssh_config_expand(const char *text, const struct zt_ssh_tokens *t);

#endif
