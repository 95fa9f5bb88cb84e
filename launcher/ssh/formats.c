#include "launcher/ssh/formats.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------ base64 */

static const char alphabet[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int digit(char c)
{
    const char *at = c ? strchr(alphabet, c) : NULL;

    return at ? (int)(at - alphabet) : -1;
}

uint8_t *zt_base64_decode(const char *text, size_t n, size_t *out_bytes)
{
    uint8_t *out = malloc(n / 4 * 3 + 4);
    uint32_t bits = 0;
    size_t used = 0, digits = 0, pads = 0;

    for (size_t i = 0; out && i < n; i++) {
        int d = digit(text[i]);

        if (isspace((unsigned char)text[i]))
            continue;
        if (text[i] == '=' && digits % 4 >= 2 && pads < 2) {
            pads++;
            continue;
        }
        if (d < 0 || pads) {
            free(out);
            return NULL;
        }
        bits = bits << 6 | (uint32_t)d;
        if (++digits % 4 != 1)
            out[used++] = (uint8_t)(bits >> (6 - 2 * ((digits - 1) % 4)));
    }
    if (!out || digits % 4 == 1) {
        free(out);
        return NULL;
    }
    out[used] = 0;
    *out_bytes = used;
    return out;
}

char *zt_base64_encode(const uint8_t *bytes, size_t n, bool pad)
{
    char *out = malloc((n + 2) / 3 * 4 + 1), *p = out;

    if (!out)
        return NULL;
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)bytes[i] << 16;
        size_t left = n - i;

        v |= left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0;
        v |= left > 2 ? bytes[i + 2] : 0;
        *p++ = alphabet[v >> 18];
        *p++ = alphabet[v >> 12 & 63];
        if (left > 1)
            *p++ = alphabet[v >> 6 & 63];
        else if (pad)
            *p++ = '=';
        if (left > 2)
            *p++ = alphabet[v & 63];
        else if (pad)
            *p++ = '=';
    }
    *p = 0;
    return out;
}

/* ------------------------------------------------------------------ SHA-1 */

struct sha1 {
    uint32_t h[5];
    uint8_t block[64];
    size_t fill;
    uint64_t bytes;
};

static uint32_t roll(uint32_t v, int n)
{
    return v << n | v >> (32 - n);
}

static void sha1_block(struct sha1 *s)
{
    uint32_t w[80], v[5], f, k, t;

    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)s->block[4 * i] << 24 | (uint32_t)s->block[4 * i + 1] << 16 |
               (uint32_t)s->block[4 * i + 2] << 8 | s->block[4 * i + 3];
    for (int i = 16; i < 80; i++)
        w[i] = roll(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    memcpy(v, s->h, sizeof(v));
    for (int i = 0; i < 80; i++) {
        if (i < 20) {
            f = (v[1] & v[2]) | (~v[1] & v[3]);
            k = 0x5a827999;
        } else if (i < 40) {
            f = v[1] ^ v[2] ^ v[3];
            k = 0x6ed9eba1;
        } else if (i < 60) {
            f = (v[1] & v[2]) | (v[1] & v[3]) | (v[2] & v[3]);
            k = 0x8f1bbcdc;
        } else {
            f = v[1] ^ v[2] ^ v[3];
            k = 0xca62c1d6;
        }
        t = roll(v[0], 5) + f + v[4] + k + w[i];
        v[4] = v[3];
        v[3] = v[2];
        v[2] = roll(v[1], 30);
        v[1] = v[0];
        v[0] = t;
    }
    for (int i = 0; i < 5; i++)
        s->h[i] += v[i];
    s->fill = 0;
}

static void sha1_init(struct sha1 *s)
{
    *s = (struct sha1){.h = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}};
}

static void sha1_put(struct sha1 *s, const uint8_t *p, size_t n)
{
    s->bytes += n;
    for (; n; n--) {
        s->block[s->fill++] = *p++;
        if (s->fill == sizeof(s->block))
            sha1_block(s);
    }
}

static void sha1_end(struct sha1 *s, uint8_t out[ZT_SHA1_BYTES])
{
    static const uint8_t one = 0x80, zero = 0;
    uint64_t bits = 8 * s->bytes;
    uint8_t length[8];

    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    sha1_put(s, &one, 1);
    while (s->fill != 56)
        sha1_put(s, &zero, 1);
    sha1_put(s, length, sizeof(length));
    for (int i = 0; i < ZT_SHA1_BYTES; i++)
        out[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

void zt_hmac_sha1(const uint8_t *key, size_t key_bytes, const void *data, size_t n,
                  uint8_t out[ZT_SHA1_BYTES])
{
    uint8_t inner[64] = {0}, outer[64];
    struct sha1 s;

    if (key_bytes > sizeof(inner)) {
        sha1_init(&s);
        sha1_put(&s, key, key_bytes);
        sha1_end(&s, inner);
    } else if (key_bytes) {
        memcpy(inner, key, key_bytes);
    }
    for (size_t i = 0; i < sizeof(inner); i++) {
        outer[i] = inner[i] ^ 0x5c;
        inner[i] ^= 0x36;
    }
    sha1_init(&s);
    sha1_put(&s, inner, sizeof(inner));
    sha1_put(&s, data, n);
    sha1_end(&s, out);
    sha1_init(&s);
    sha1_put(&s, outer, sizeof(outer));
    sha1_put(&s, out, ZT_SHA1_BYTES);
    sha1_end(&s, out);
}

/* ------------------------------------------------------------------ wire strings */

bool zt_ssh_read_u32(struct zt_ssh_reader *w, uint32_t *out)
{
    if (w->end - w->p < 4)
        return false;
    *out = (uint32_t)w->p[0] << 24 | (uint32_t)w->p[1] << 16 | (uint32_t)w->p[2] << 8 |
           w->p[3];
    w->p += 4;
    return true;
}

bool zt_ssh_read_string(struct zt_ssh_reader *w, const uint8_t **out, size_t *out_bytes)
{
    struct zt_ssh_reader at = *w;
    uint32_t n;

    if (!zt_ssh_read_u32(&at, &n) || (size_t)(at.end - at.p) < n)
        return false;
    *out = at.p;
    *out_bytes = n;
    w->p = at.p + n;
    return true;
}

/* ------------------------------------------------------------------ patterns */

bool zt_pattern_match(const char *pattern, size_t pattern_bytes, const char *text)
{
    const char *p = pattern, *end = pattern + pattern_bytes, *t = text;
    const char *star = NULL, *from = NULL;

    while (*t) {
        if (p < end && *p == '*') {
            star = ++p;
            from = t;
        } else if (p < end && (*p == '?' || tolower((unsigned char)*p) ==
                                                tolower((unsigned char)*t))) {
            p++;
            t++;
        } else if (star) {
            p = star;
            t = ++from;
        } else {
            return false;
        }
    }
    while (p < end && *p == '*')
        p++;
    return p == end;
}

static bool is_sep(char c, char sep)
{
    return sep == ' ' ? c == ' ' || c == '\t' : c == sep;
}

int zt_pattern_list(const char *list, size_t n, char sep, const char *text)
{
    const char *p = list, *end = list + n;
    int found = 0;

    while (p < end) {
        const char *word = p;
        bool negated = *p == '!';

        while (p < end && !is_sep(*p, sep))
            p++;
        word += negated;
        if (p > word && zt_pattern_match(word, (size_t)(p - word), text)) {
            if (negated)
                return -1;
            found = 1;
        }
        p += p < end;
    }
    return found;
}

/* ------------------------------------------------------------------ files */

char *zt_small_file(const char *path, size_t max, size_t *out_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), e = 0;
    struct stat sb;
    char *text = NULL;
    size_t n = 0;

    if (fd < 0)
        return NULL;
    if (fstat(fd, &sb) < 0)
        e = errno;
    else if (!S_ISREG(sb.st_mode))
        e = EINVAL;
    else if ((uint64_t)sb.st_size > max)
        e = EFBIG;
    else if (!(text = malloc((size_t)sb.st_size + 1)))
        e = ENOMEM;
    while (!e && n < (size_t)sb.st_size) {
        ssize_t k = read(fd, text + n, (size_t)sb.st_size - n);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            e = errno;
        if (k <= 0)
            break;
        n += (size_t)k;
    }
    close(fd);
    if (e || !text) {
        free(text);
        errno = e ? e : EIO;
        return NULL;
    }
    text[n] = 0;
    *out_bytes = n;
    return text;
}
