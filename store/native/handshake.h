/*
 * handshake.h -- both ends of a connection prove that they know the job's secret.
 *
 *      server                                            client
 *        | "ZTS1" nonce(32)                                 |  challenge, 36 bytes
 *        |------------------------------------------------->|
 *        |           "ZTC1" generation(8) nonce(32) mac(32) |  answer, 76 bytes
 *        |<-------------------------------------------------|
 *        | verdict(1) generation(8) mac(32)                 |  verdict, 41 bytes
 *        |------------------------------------------------->|
 *
 * A mac is HMAC-SHA-256 by the secret over: who speaks, the job id, both generations,
 * both nonces, the verdict. Both nonces are fresh for each connection, so nothing that
 * was recorded works a second time; the two ends sign different texts, so nothing can be
 * reflected. Numbers are big-endian. What follows on the connection is neither encrypted
 * nor signed: the handshake keeps strangers out; it hides nothing from whoever controls
 * the network.
 *
 * A client of another generation that knows the secret gets a verdict that says so. One
 * that does not know it gets nothing: the connection closes.
 * Threads: unlocked; one thread at a time.
 */
#ifndef STORE_NATIVE_HANDSHAKE_H
#define STORE_NATIVE_HANDSHAKE_H

#include "store/core/secret.h"

#define ZT_HANDSHAKE_NONCE     32
#define ZT_HANDSHAKE_MAC       32
#define ZT_HANDSHAKE_CHALLENGE (4 + ZT_HANDSHAKE_NONCE)
#define ZT_HANDSHAKE_ANSWER    (4 + 8 + ZT_HANDSHAKE_NONCE + ZT_HANDSHAKE_MAC)
#define ZT_HANDSHAKE_VERDICT   (1 + 8 + ZT_HANDSHAKE_MAC)
#define ZT_JOB_ID_BYTES        128

/* Borrowed; must outlive the handshake. */
struct zt_handshake_key {
    const struct zt_secret *secret;
    const char *job; /* the job's id, at most ZT_JOB_ID_BYTES bytes of it count */
};

typedef enum zt_handshake_result {
    ZT_HANDSHAKE_GOOD = 1,
    ZT_HANDSHAKE_STALE = 2, /* knows the secret, but belongs to another generation */
    ZT_HANDSHAKE_BAD = 3,   /* a stranger: no verdict is sent */
} zt_handshake_result;

struct zt_handshake {
    uint8_t server_nonce[ZT_HANDSHAKE_NONCE], client_nonce[ZT_HANDSHAKE_NONCE];
    uint64_t generation; /* the client's */
};

/* Server: draw a nonce and write the challenge. zt_secret_random() must have worked. */
void zt_handshake_challenge(struct zt_handshake *p, uint8_t out[ZT_HANDSHAKE_CHALLENGE]);
/* Server: verify the answer; `out` is written unless the result is ZT_HANDSHAKE_BAD. */
zt_handshake_result zt_handshake_verify(struct zt_handshake *p,
                                        const struct zt_handshake_key *key,
                                        uint64_t generation,
                                        const uint8_t answer[ZT_HANDSHAKE_ANSWER],
                                        uint8_t out[ZT_HANDSHAKE_VERDICT]);

/* Client: answer the challenge. ZT_E_FORMAT: that is no challenge of a zlaunch store. */
zt_err zt_handshake_respond(struct zt_handshake *p, const struct zt_handshake_key *key,
                            uint64_t generation,
                            const uint8_t challenge[ZT_HANDSHAKE_CHALLENGE],
                            uint8_t out[ZT_HANDSHAKE_ANSWER],
                            struct zt_fault *fault) ZT_MUST_CHECK;
/* Client: ZT_E_PEER: the server does not know the secret, or is of another generation. */
zt_err zt_handshake_accept(const struct zt_handshake *p,
                           const struct zt_handshake_key *key,
                           const uint8_t verdict[ZT_HANDSHAKE_VERDICT],
                           struct zt_fault *fault) ZT_MUST_CHECK;

#endif
