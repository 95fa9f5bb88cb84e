#include "launcher/ssh/key.h"

#include "launcher/ssh/formats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX_BYTES (1u << 20)

static const char magic[] = "openssh-key-v1"; /* its 0 belongs to it */

static bool is(const char *type, size_t n, const char *name)
{
    return n == strlen(name) && memcmp(type, name, n) == 0;
}

zt_key_kind zt_key_kind_of_type(const char *type, size_t n)
{
    if (is(type, n, "ssh-ed25519") || is(type, n, "ecdsa-sha2-nistp256") ||
        is(type, n, "ecdsa-sha2-nistp384") || is(type, n, "ecdsa-sha2-nistp521"))
        return ZT_KEY_USABLE;
    if (is(type, n, "ssh-rsa"))
        return ZT_KEY_RSA;
    if (is(type, n, "sk-ssh-ed25519@openssh.com") ||
        is(type, n, "sk-ecdsa-sha2-nistp256@openssh.com"))
        return ZT_KEY_HARDWARE;
    return ZT_KEY_OTHER;
}

/* magic, cipher, kdf, kdf options, u32 number of keys, public key, ... */
static zt_key_kind parse_openssh(const char *text, size_t bytes)
{
    size_t n, cipher_bytes, k;
    uint8_t *raw = zt_base64_decode(text, bytes, &n);
    zt_key_kind kind = ZT_KEY_OTHER;
    const uint8_t *cipher, *s;
    struct zt_ssh_reader w;
    uint32_t num;

    if (raw && n > sizeof(magic) && memcmp(raw, magic, sizeof(magic)) == 0) {
        w = (struct zt_ssh_reader){raw + sizeof(magic), raw + n};
        if (zt_ssh_read_string(&w, &cipher, &cipher_bytes) &&
            zt_ssh_read_string(&w, &s, &k) && zt_ssh_read_string(&w, &s, &k) &&
            zt_ssh_read_u32(&w, &num) && num >= 1 && zt_ssh_read_string(&w, &s, &k)) {
            w = (struct zt_ssh_reader){s, s + k};
            if (zt_ssh_read_string(&w, &s, &k))
                kind = zt_key_kind_of_type((const char *)s, k);
            if (kind == ZT_KEY_USABLE && !is((const char *)cipher, cipher_bytes, "none"))
                kind = ZT_KEY_ENCRYPTED;
        }
    }
    free(raw);
    return kind;
}

zt_key_kind zt_key_parse(const char *text, size_t bytes)
{
    static const char begin[] = "-----BEGIN ";
    const char *at = memmem(text, bytes, begin, strlen(begin)), *name, *end;
    const char *body;
    size_t left, n;

    if (!at)
        return ZT_KEY_OTHER;
    name = at + strlen(begin);
    left = bytes - (size_t)(name - text);
    end = memmem(name, left, "-----", 5);
    if (!end)
        return ZT_KEY_OTHER;
    n = (size_t)(end - name);
    body = end + 5;
    left = bytes - (size_t)(body - text);
    if (is(name, n, "OPENSSH PRIVATE KEY")) {
        end = memmem(body, left, "-----END", 8);
        return end ? parse_openssh(body, (size_t)(end - body)) : ZT_KEY_OTHER;
    }
    if (is(name, n, "RSA PRIVATE KEY"))
        return ZT_KEY_RSA;
    if (is(name, n, "ENCRYPTED PRIVATE KEY") ||
        (is(name, n, "EC PRIVATE KEY") && memmem(body, left, "ENCRYPTED", 9)))
        return ZT_KEY_ENCRYPTED;
    if (is(name, n, "EC PRIVATE KEY") || is(name, n, "PRIVATE KEY"))
        return ZT_KEY_USABLE;
    return ZT_KEY_OTHER;
}

zt_key_kind zt_key_read(const char *path)
{
    size_t n;
    char *text = zt_small_file(path, FILE_MAX_BYTES, &n);
    zt_key_kind kind;

    if (!text)
        return errno == ENOENT || errno == ENOTDIR ? ZT_KEY_ABSENT : ZT_KEY_OTHER;
    kind = zt_key_parse(text, n);
    explicit_bzero(text, n);
    free(text);
    return kind;
}
