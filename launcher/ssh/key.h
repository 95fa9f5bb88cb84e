/*
 * key.h -- what kind of private key a file holds, without opening what is encrypted.
 *
 * Threads: any.
 */
#ifndef LAUNCHER_SSH_KEY_H
#define LAUNCHER_SSH_KEY_H

#include "include/zlaunch/types.h"

typedef enum zt_key_kind {
    ZT_KEY_ABSENT,    /* no such file */
    ZT_KEY_OTHER,     /* unreadable, or no private key */
    ZT_KEY_USABLE,    /* ed25519, ecdsa, or a container that may hold one */
    ZT_KEY_ENCRYPTED, /* needs a passphrase */
    ZT_KEY_RSA,
    ZT_KEY_HARDWARE, /* sk-... */
} zt_key_kind;

/* From a type's name: "ssh-ed25519", "sk-ssh-ed25519@openssh.com", ... OTHER:
 * certificates and what is unknown. */
zt_key_kind zt_key_kind_of_type(const char *type, size_t n);
zt_key_kind zt_key_parse(const char *text, size_t bytes);
zt_key_kind zt_key_read(const char *path);

#endif
