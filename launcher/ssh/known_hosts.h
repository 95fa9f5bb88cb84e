/*
 * known_hosts.h -- what known_hosts files say about one host.
 *
 * A line is [@cert-authority|@revoked] NAMES TYPE BASE64 [comment]. NAMES are patterns
 * with commas between ('!' negates), [host]:port for a port other than 22, or one hashed
 * name |1|salt|hash. Lines that do not parse are skipped, as OpenSSH does. For a port
 * other than 22, lines of the bare name count only to confirm a key, never to refuse one.
 *
 * Ownership: the caller owns the struct, the struct its entries.
 * Threads:   one.
 */
#ifndef LAUNCHER_SSH_KNOWN_HOSTS_H
#define LAUNCHER_SSH_KNOWN_HOSTS_H

#include "common/fault.h"

struct zt_known_entry {
    char *file;
    int line;
    char type[32]; /* "ssh-ed25519" */
    uint8_t *blob; /* the key as the wire has it */
    size_t blob_bytes;
    bool authority, revoked;
    bool bare; /* found under the name without the port */
};

struct zt_known {
    struct zt_known_entry *entry; /* (num), in order of files and lines */
    int num;
};

typedef enum zt_known_verdict {
    ZT_KNOWN_GOOD,
    ZT_KNOWN_UNKNOWN,    /* nothing is known about the host */
    ZT_KNOWN_OTHER_TYPE, /* keys of other types are known, none of this one */
    ZT_KNOWN_CHANGED,    /* another key of this type */
    ZT_KNOWN_REVOKED,
} zt_known_verdict;

/* Add what the text of one file says about host:port. ZT_E_NOMEM. */
zt_err zt_known_parse(const char *text, size_t bytes, const char *file, const char *host,
                      int port, struct zt_known *known) ZT_MUST_CHECK;
/*
 * Add what is in a file; one that is not there is no error. ZT_E_NOINPUT: it cannot be
 * read; the fault names it.
 */
zt_err zt_known_read(const char *file, const char *host, int port, struct zt_known *known,
                     struct zt_fault *fault) ZT_MUST_CHECK;
void zt_known_release(struct zt_known *known);

/*
 * Host key algorithms in the order to ask for: those of known keys first. False: keys
 * are known, but none of a type in `usable`, so that asking is in vain. `usable` is a
 * comma-separated list, best first; `out` has room for twice its length.
 */
bool zt_known_order(const struct zt_known *known, const char *usable, char *out,
                    size_t out_bytes);

/* *which: the line that decided, or NULL. */
zt_known_verdict zt_known_check(const struct zt_known *known, const char *type,
                                const uint8_t *blob, size_t blob_bytes,
                                const struct zt_known_entry **which);

/* "host", or "[host]:port" when the port is not 22. Allocated; NULL: no memory. */
char *zt_known_name(const char *host, int port);

#endif
