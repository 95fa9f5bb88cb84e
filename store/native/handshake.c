#include "store/native/handshake.h"

#include <string.h>

#include <sodium.h>

static const uint8_t server_magic[4] = {'Z', 'T', 'S', '1'};
static const uint8_t client_magic[4] = {'Z', 'T', 'C', '1'};

static void put_u64(uint8_t *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> (56 - 8 * i));
}

static uint64_t get_u64(const uint8_t *p)
{
    uint64_t v = 0;

    for (int i = 0; i < 8; i++)
        v = v << 8 | p[i];
    return v;
}

/* Every field has a fixed length but the job id, whose length comes before it. */
static void make_mac(const struct zt_handshake *p, const struct zt_handshake_key *key,
                     const uint8_t who[4], uint8_t verdict, uint64_t generation,
                     uint8_t out[ZT_HANDSHAKE_MAC])
{
    crypto_auth_hmacsha256_state h;
    uint8_t head[4 + 1 + 1 + 8 + 8];
    size_t job_bytes = strnlen(key->job, ZT_JOB_ID_BYTES);

    memcpy(head, who, 4);
    head[4] = verdict;
    head[5] = (uint8_t)job_bytes;
    put_u64(head + 6, p->generation);
    put_u64(head + 14, generation);
    crypto_auth_hmacsha256_init(&h, key->secret->key, sizeof(key->secret->key));
    crypto_auth_hmacsha256_update(&h, head, sizeof(head));
    crypto_auth_hmacsha256_update(&h, (const uint8_t *)key->job, job_bytes);
    crypto_auth_hmacsha256_update(&h, p->server_nonce, sizeof(p->server_nonce));
    crypto_auth_hmacsha256_update(&h, p->client_nonce, sizeof(p->client_nonce));
    crypto_auth_hmacsha256_final(&h, out);
    sodium_memzero(&h, sizeof(h));
}

void zt_handshake_challenge(struct zt_handshake *p, uint8_t out[ZT_HANDSHAKE_CHALLENGE])
{
    randombytes_buf(p->server_nonce, sizeof(p->server_nonce));
    memcpy(out, server_magic, 4);
    memcpy(out + 4, p->server_nonce, sizeof(p->server_nonce));
}

zt_handshake_result zt_handshake_verify(struct zt_handshake *p,
                                        const struct zt_handshake_key *key,
                                        uint64_t generation,
                                        const uint8_t answer[ZT_HANDSHAKE_ANSWER],
                                        uint8_t out[ZT_HANDSHAKE_VERDICT])
{
    uint8_t mac[ZT_HANDSHAKE_MAC];
    zt_handshake_result result;

    if (memcmp(answer, client_magic, 4) != 0)
        return ZT_HANDSHAKE_BAD;
    p->generation = get_u64(answer + 4);
    memcpy(p->client_nonce, answer + 12, ZT_HANDSHAKE_NONCE);
    make_mac(p, key, client_magic, 0, p->generation, mac);
    if (sodium_memcmp(mac, answer + 12 + ZT_HANDSHAKE_NONCE, ZT_HANDSHAKE_MAC) != 0)
        return ZT_HANDSHAKE_BAD;
    result = p->generation == generation ? ZT_HANDSHAKE_GOOD : ZT_HANDSHAKE_STALE;
    out[0] = (uint8_t)result;
    put_u64(out + 1, generation);
    make_mac(p, key, server_magic, out[0], generation, out + 9);
    return result;
}

zt_err zt_handshake_respond(struct zt_handshake *p, const struct zt_handshake_key *key,
                            uint64_t generation,
                            const uint8_t challenge[ZT_HANDSHAKE_CHALLENGE],
                            uint8_t out[ZT_HANDSHAKE_ANSWER], struct zt_fault *fault)
{
    if (sodium_init() < 0)
        return zt_fault_set(fault, ZT_E_SYSTEM, "no random numbers here");
    if (memcmp(challenge, server_magic, 4) != 0)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "what answers there is no rendezvous store of this version");
    memcpy(p->server_nonce, challenge + 4, ZT_HANDSHAKE_NONCE);
    randombytes_buf(p->client_nonce, sizeof(p->client_nonce));
    p->generation = generation;
    memcpy(out, client_magic, 4);
    put_u64(out + 4, generation);
    memcpy(out + 12, p->client_nonce, ZT_HANDSHAKE_NONCE);
    make_mac(p, key, client_magic, 0, generation, out + 12 + ZT_HANDSHAKE_NONCE);
    return ZT_OK;
}

zt_err zt_handshake_accept(const struct zt_handshake *p,
                           const struct zt_handshake_key *key,
                           const uint8_t verdict[ZT_HANDSHAKE_VERDICT],
                           struct zt_fault *fault)
{
    uint64_t generation = get_u64(verdict + 1);
    uint8_t mac[ZT_HANDSHAKE_MAC];

    make_mac(p, key, server_magic, verdict[0], generation, mac);
    if (sodium_memcmp(mac, verdict + 9, ZT_HANDSHAKE_MAC) != 0)
        return zt_fault_set(fault, ZT_E_PEER,
                            "what answers there does not know this job's secret");
    if (verdict[0] == ZT_HANDSHAKE_GOOD)
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_PEER,
                        "the job is at generation %llu, this process belongs to "
                        "generation %llu: it %s and must end",
                        (unsigned long long)generation, (unsigned long long)p->generation,
                        p->generation < generation ? "was replaced by a restart"
                                                   : "is ahead of the store");
}
