/*
 * proof.h -- both ends of a connection prove that they know the job's secret.
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
 * was recorded works a second time; the two ends say different words, so nothing can be
 * reflected. Numbers are big-endian. What follows on the connection is neither encrypted
 * nor signed: the proof keeps strangers out, it does not hide anything from who owns the
 * wires.
 *
 * A client of another generation that knows the secret gets a verdict that says so. One
 * that does not know it gets nothing: the connection closes.
 * Threads: unlocked; one thread at a time.
 */
#ifndef STORE_PROOF_H
#define STORE_PROOF_H

#include "store/secret.h"

#define ZT_PROOF_NONCE     32
#define ZT_PROOF_MAC       32
#define ZT_PROOF_CHALLENGE (4 + ZT_PROOF_NONCE)
#define ZT_PROOF_ANSWER    (4 + 8 + ZT_PROOF_NONCE + ZT_PROOF_MAC)
#define ZT_PROOF_VERDICT   (1 + 8 + ZT_PROOF_MAC)
#define ZT_JOB_ID_BYTES    128

/* Borrowed; must outlive the proof. */
struct zt_proof_key {
    const struct zt_secret *secret;
    const char *job; /* the job's id, at most ZT_JOB_ID_BYTES bytes of it count */
};

typedef enum zt_proof_result {
    ZT_PROOF_GOOD = 1,
    ZT_PROOF_STALE = 2, /* knows the secret, but belongs to another generation */
    ZT_PROOF_BAD = 3,   /* a stranger: no verdict is sent */
} zt_proof_result;

struct zt_proof {
    uint8_t server_nonce[ZT_PROOF_NONCE], client_nonce[ZT_PROOF_NONCE];
    uint64_t generation; /* the client's */
};

/* Server: draw a nonce and write the challenge. zt_secret_random() must have worked. */
void zt_proof_challenge(struct zt_proof *p, uint8_t out[ZT_PROOF_CHALLENGE]);
/* Server: look at the answer; `out` is written unless the result is ZT_PROOF_BAD. */
zt_proof_result zt_proof_check(struct zt_proof *p, const struct zt_proof_key *key,
                               uint64_t generation, const uint8_t answer[ZT_PROOF_ANSWER],
                               uint8_t out[ZT_PROOF_VERDICT]);

/* Client: answer the challenge. ZT_E_FORMAT: that is no challenge of a zlaunch store. */
zt_err zt_proof_answer(struct zt_proof *p, const struct zt_proof_key *key,
                       uint64_t generation, const uint8_t challenge[ZT_PROOF_CHALLENGE],
                       uint8_t out[ZT_PROOF_ANSWER],
                       struct zt_fault *fault) ZT_MUST_CHECK;
/* Client: ZT_E_PEER: the server does not know the secret, or is of another generation. */
zt_err zt_proof_accept(const struct zt_proof *p, const struct zt_proof_key *key,
                       const uint8_t verdict[ZT_PROOF_VERDICT],
                       struct zt_fault *fault) ZT_MUST_CHECK;

#endif
