#include "launcher/ssh/known_hosts.h"

#include "launcher/ssh/formats.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX_BYTES (64u << 20)
#define DEFAULT_PORT   22

char *zt_known_name(const char *host, int port)
{
    char *name;

    if (port == DEFAULT_PORT)
        return strdup(host);
    return asprintf(&name, "[%s]:%d", host, port) < 0 ? NULL : name;
}

/* ------------------------------------------------------------------ one line */

struct line_word {
    const char *p;
    size_t n;
};

static bool next_word(const char **p, const char *end, struct line_word *out)
{
    while (*p < end && (**p == ' ' || **p == '\t'))
        ++*p;
    out->p = *p;
    while (*p < end && **p != ' ' && **p != '\t')
        ++*p;
    out->n = (size_t)(*p - out->p);
    return out->n > 0;
}

static bool word_is(struct line_word w, const char *text)
{
    return w.n == strlen(text) && memcmp(w.p, text, w.n) == 0;
}

/* |1|base64 salt|base64 HMAC-SHA1(salt, name) */
static bool hashed_match(struct line_word names, const char *name)
{
    const char *salt_text = names.p + 3;
    const char *bar = memchr(salt_text, '|', names.n - 3);
    uint8_t *salt = NULL, *want = NULL, got[ZT_SHA1_BYTES];
    size_t salt_bytes, want_bytes;
    char lower[512];
    bool match = false;
    size_t n = strlen(name);

    if (!bar || n >= sizeof(lower))
        return false;
    for (size_t i = 0; i <= n; i++)
        lower[i] = name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] + 32) : name[i];
    salt = zt_base64_decode(salt_text, (size_t)(bar - salt_text), &salt_bytes);
    want = zt_base64_decode(bar + 1, (size_t)(names.p + names.n - bar - 1), &want_bytes);
    if (salt && want && want_bytes == sizeof(got)) {
        zt_hmac_sha1(salt, salt_bytes, lower, n, got);
        match = memcmp(got, want, sizeof(got)) == 0;
    }
    free(salt);
    free(want);
    return match;
}

static bool names_match(struct line_word names, const char *name)
{
    if (names.n > 3 && memcmp(names.p, "|1|", 3) == 0)
        return hashed_match(names, name);
    return zt_pattern_list(names.p, names.n, ',', name) > 0;
}

static zt_err add(struct zt_known *known, const struct zt_known_entry *entry,
                  const char *file)
{
    struct zt_known_entry *grown =
        realloc(known->entry, (size_t)(known->num + 1) * sizeof(*grown));
    char *name = strdup(file);

    if (grown)
        known->entry = grown;
    if (!grown || !name) {
        free(name);
        return ZT_E_NOMEM;
    }
    grown[known->num] = *entry;
    grown[known->num++].file = name;
    return ZT_OK;
}

static zt_err parse_line(const char *p, const char *end, const char *file, int line,
                         const char *name, const char *bare, struct zt_known *known)
{
    struct zt_known_entry e = {.line = line};
    struct line_word names, type, key;
    zt_err rc;

    if (!next_word(&p, end, &names) || *names.p == '#')
        return ZT_OK;
    if (*names.p == '@') {
        e.authority = word_is(names, "@cert-authority");
        e.revoked = word_is(names, "@revoked");
        if ((!e.authority && !e.revoked) || !next_word(&p, end, &names))
            return ZT_OK;
    }
    if (!next_word(&p, end, &type) || !next_word(&p, end, &key) ||
        type.n >= sizeof(e.type))
        return ZT_OK;
    if (!names_match(names, name)) {
        if (!bare || !names_match(names, bare))
            return ZT_OK;
        e.bare = true;
    }
    memcpy(e.type, type.p, type.n);
    e.blob = zt_base64_decode(key.p, key.n, &e.blob_bytes);
    if (!e.blob)
        return ZT_OK; /* damaged: as if it were not there */
    rc = add(known, &e, file);
    if (rc)
        free(e.blob);
    return rc;
}

/* ------------------------------------------------------------------ files */

zt_err zt_known_parse(const char *text, size_t bytes, const char *file, const char *host,
                      int port, struct zt_known *known)
{
    const char *p = text, *all = text + bytes;
    char *name = zt_known_name(host, port);
    zt_err rc = name ? ZT_OK : ZT_E_NOMEM;

    for (int line = 1; !rc && p < all; line++) {
        const char *nl = memchr(p, '\n', (size_t)(all - p));
        const char *end = nl ? nl : all;

        if (end > p && end[-1] == '\r')
            end--;
        rc = parse_line(p, end, file, line, name, port == DEFAULT_PORT ? NULL : host,
                        known);
        p = nl ? nl + 1 : all;
    }
    free(name);
    return rc;
}

zt_err zt_known_read(const char *file, const char *host, int port, struct zt_known *known,
                     struct zt_fault *fault)
{
    size_t n;
    char *text = zt_small_file(file, FILE_MAX_BYTES, &n);
    zt_err rc;

    if (!text && (errno == ENOENT || errno == ENOTDIR))
        return ZT_OK;
    if (!text && strcmp(file, "/dev/null") == 0)
        return ZT_OK;
    if (!text)
        return zt_fault_set(fault, ZT_E_NOINPUT, "known hosts file %s: %s", file,
                            strerror(errno));
    rc = zt_known_parse(text, n, file, host, port, known);
    free(text);
    if (rc)
        return zt_fault_set(fault, rc, "known hosts file %s: no memory", file);
    return ZT_OK;
}

void zt_known_release(struct zt_known *known)
{
    for (int i = 0; i < known->num; i++) {
        free(known->entry[i].file);
        free(known->entry[i].blob);
    }
    free(known->entry);
    *known = (struct zt_known){0};
}

/* ------------------------------------------------------------------ questions */

static bool has_type(const struct zt_known *known, const char *type, size_t n)
{
    for (int i = 0; i < known->num; i++) {
        const struct zt_known_entry *e = &known->entry[i];

        if (!e->authority && !e->revoked && strlen(e->type) == n &&
            memcmp(e->type, type, n) == 0)
            return true;
    }
    return false;
}

bool zt_known_order(const struct zt_known *known, const char *usable, char *out,
                    size_t out_bytes)
{
    size_t at = 0;
    bool any = false, some = false;

    for (int i = 0; i < known->num; i++)
        any = any || !known->entry[i].revoked;
    out[0] = 0;
    for (int wanted = 1; wanted >= 0; wanted--)
        for (const char *p = usable; *p;) {
            size_t n = strcspn(p, ",");

            if (has_type(known, p, n) == (wanted == 1) && at + n + 2 < out_bytes) {
                at += (size_t)snprintf(out + at, out_bytes - at, "%s%.*s", at ? "," : "",
                                       (int)n, p);
                some = some || wanted == 1;
            }
            p += n + (p[n] == ',');
        }
    return !any || some;
}

zt_known_verdict zt_known_check(const struct zt_known *known, const char *type,
                                const uint8_t *blob, size_t blob_bytes,
                                const struct zt_known_entry **which)
{
    zt_known_verdict verdict = ZT_KNOWN_UNKNOWN;

    *which = NULL;
    for (int i = 0; i < known->num; i++) {
        const struct zt_known_entry *e = &known->entry[i];
        bool same = e->blob_bytes == blob_bytes && memcmp(e->blob, blob, blob_bytes) == 0;
        zt_known_verdict v = ZT_KNOWN_UNKNOWN;

        if (e->revoked) {
            if (!same)
                continue;
            *which = e;
            return ZT_KNOWN_REVOKED; /* nothing outweighs it */
        }
        if (e->authority)
            continue;
        if (same)
            v = ZT_KNOWN_GOOD;
        else if (!e->bare)
            v = strcmp(e->type, type) == 0 ? ZT_KNOWN_CHANGED : ZT_KNOWN_OTHER_TYPE;
        if (v == ZT_KNOWN_UNKNOWN || verdict == ZT_KNOWN_GOOD)
            continue;
        /* good beats changed beats other type; the first line of a kind is named */
        if (verdict == ZT_KNOWN_UNKNOWN || v == ZT_KNOWN_GOOD ||
            (v == ZT_KNOWN_CHANGED && verdict == ZT_KNOWN_OTHER_TYPE)) {
            verdict = v;
            *which = e;
        }
    }
    return verdict;
}
