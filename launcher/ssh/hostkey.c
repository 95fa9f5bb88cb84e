/*
 * The host key check. Before the handshake: prefer the key types that known_hosts has, so
 * that a host with several keys does not seem to have changed. After it: compare.
 * Nothing is ever written to known_hosts; the message has the command that does.
 */
#include "launcher/ssh/formats.h"
#include "launcher/ssh/known_hosts.h"
#include "launcher/ssh/session.h"

#include <stdlib.h>
#include <string.h>

#define SHA256_BYTES 32

/* libssh2 takes ssh-rsa as SHA-1 signatures, which current servers do not offer. */
static const char usable[] = "ssh-ed25519,ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,"
                             "ecdsa-sha2-nistp521";

static zt_err read_known(const struct zt_ssh_session *l, struct zt_known *known,
                         struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    *known = (struct zt_known){0};
    for (char *const *f = l->cfg->known_files; !rc && *f; f++)
        rc = zt_known_read(*f, l->cfg->host, l->cfg->port, known, fault);
    if (rc)
        zt_known_release(known);
    return rc;
}

zt_ssh_session_step zt_ssh_session_prefer_known(struct zt_ssh_session *l)
{
    char order[2 * sizeof(usable)];
    struct zt_fault fault = {0};
    struct zt_known known = {0};
    bool possible = true;

    if (l->cfg->check_host_key && read_known(l, &known, &fault))
        return zt_ssh_session_fail(l, false, fault.code, "%s", fault.text);
    possible = zt_known_order(&known, usable, order, sizeof(order));
    zt_known_release(&known);
    if (!possible)
        return zt_ssh_session_fail(
            l, true, ZT_E_HOST,
            "known_hosts has only an RSA key or a certificate authority "
            "for it, which the ssh library cannot check");
    if (libssh2_session_method_pref(l->session, LIBSSH2_METHOD_HOSTKEY, order))
        return zt_ssh_session_fail(l, false, ZT_E_HOST, "host key algorithms: %s",
                                   zt_ssh_session_error(l));
    return ZT_STEP_NEXT;
}

/* ------------------------------------------------------------------ what to say */

struct shown {
    const char *type;
    char *type_text, *fingerprint, *base64, *name;
};

static void shown_release(struct shown *k)
{
    free(k->type_text);
    free(k->fingerprint);
    free(k->base64);
    free(k->name);
}

static zt_ssh_session_step refuse(struct zt_ssh_session *l, zt_known_verdict verdict,
                                  const struct shown *k, const struct zt_known_entry *e)
{
    const char *file = l->cfg->known_files[0];

    switch (verdict) {
    case ZT_KNOWN_CHANGED:
        return zt_ssh_session_fail(
            l, false, ZT_E_HOST,
            "THE HOST KEY HAS CHANGED: it shows %s SHA256:%s, but %s:%d has another key. "
            "Either the machine was set up anew or somebody is in between; only if you "
            "know why, remove the old one: ssh-keygen -f '%s' -R '%s'",
            k->type, k->fingerprint, e->file, e->line, e->file, k->name);
    case ZT_KNOWN_REVOKED:
        return zt_ssh_session_fail(
            l, false, ZT_E_HOST,
            "its host key %s SHA256:%s is marked @revoked in %s:%d: do "
            "not use this machine until it has a new one",
            k->type, k->fingerprint, e->file, e->line);
    case ZT_KNOWN_OTHER_TYPE:
        return zt_ssh_session_fail(
            l, false, ZT_E_HOST,
            "the host key %s SHA256:%s is not known; %s:%d has one of type %s, which the "
            "host does not show. If the fingerprint is right, add it: "
            "echo '%s %s %s' >> '%s'",
            k->type, k->fingerprint, e->file, e->line, e->type, k->name, k->type,
            k->base64, file);
    default:
        return zt_ssh_session_fail(
            l, false, ZT_E_HOST,
            "the host key %s SHA256:%s is not known. If the fingerprint "
            "is right, add it: echo '%s %s %s' >> '%s'",
            k->type, k->fingerprint, k->name, k->type, k->base64, file);
    }
}

zt_ssh_session_step zt_ssh_session_check_host(struct zt_ssh_session *l)
{
    size_t n = 0, type_bytes;
    int kind;
    const uint8_t *blob = (const uint8_t *)libssh2_session_hostkey(l->session, &n, &kind);
    const char *hash = libssh2_hostkey_hash(l->session, LIBSSH2_HOSTKEY_HASH_SHA256);
    struct zt_ssh_reader w;
    const struct zt_known_entry *e;
    struct zt_fault fault = {0};
    struct zt_known known;
    struct shown k = {0};
    const uint8_t *type;
    zt_known_verdict verdict;

    if (!l->cfg->check_host_key)
        return ZT_STEP_NEXT;
    if (!blob || !hash)
        return zt_ssh_session_fail(l, false, ZT_E_HOST, "the server shows no host key");
    w = (struct zt_ssh_reader){blob, blob + n};
    if (!zt_ssh_read_string(&w, &type, &type_bytes))
        return zt_ssh_session_fail(l, false, ZT_E_HOST,
                                   "the server's host key is malformed");
    if (read_known(l, &known, &fault))
        return zt_ssh_session_fail(l, false, fault.code, "%s", fault.text);
    k.type_text = strndup((const char *)type, type_bytes);
    k.fingerprint = zt_base64_encode((const uint8_t *)hash, SHA256_BYTES, false);
    k.base64 = zt_base64_encode(blob, n, true);
    k.name = zt_known_name(l->cfg->host, l->cfg->port);
    k.type = k.type_text;
    if (!k.type || !k.fingerprint || !k.base64 || !k.name) {
        zt_ssh_session_fail(l, false, ZT_E_NOMEM, "no memory for the host key");
    } else {
        verdict = zt_known_check(&known, k.type, blob, n, &e);
        if (verdict != ZT_KNOWN_GOOD)
            refuse(l, verdict, &k, e);
    }
    shown_release(&k);
    zt_known_release(&known);
    return l->failed ? ZT_STEP_FAILED : ZT_STEP_NEXT;
}
