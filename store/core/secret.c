#include "store/core/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sodium.h>

#include "common/env.h"

zt_err zt_secret_random(struct zt_secret *out, struct zt_fault *fault)
{
    if (sodium_init() < 0)
        return zt_fault_set(fault, ZT_E_SYSTEM, "secret: no random numbers here");
    randombytes_buf(out->key, sizeof(out->key));
    return ZT_OK;
}

void zt_secret_wipe(struct zt_secret *s)
{
    sodium_memzero(s, sizeof(*s));
}

void zt_secret_text(const struct zt_secret *s, char out[ZT_SECRET_TEXT])
{
    sodium_bin2hex(out, ZT_SECRET_TEXT, s->key, sizeof(s->key));
    memcpy(out + ZT_SECRET_TEXT - 2, "\n", 2);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

zt_err zt_secret_parse(const char *text, size_t bytes, const char *where,
                       struct zt_secret *out, struct zt_fault *fault)
{
    struct zt_secret s;
    size_t got = 0;

    while (bytes && is_blank(*text)) {
        text++;
        bytes--;
    }
    while (bytes && is_blank(text[bytes - 1]))
        bytes--;
    if (bytes != 2 * sizeof(s.key) ||
        sodium_hex2bin(s.key, sizeof(s.key), text, bytes, NULL, &got, NULL) ||
        got != sizeof(s.key)) {
        zt_secret_wipe(&s);
        return zt_fault_set(
            fault, ZT_E_FORMAT,
            "%s: not a secret: %d hex digits are expected (make one with: "
            "head -c %d /dev/urandom | od -An -vtx1 | tr -d ' \\n')",
            where, 2 * ZT_SECRET_BYTES, ZT_SECRET_BYTES);
    }
    *out = s;
    zt_secret_wipe(&s);
    return ZT_OK;
}

/* Up to the end, a newline, or more than a secret can be. */
static zt_err read_text(int fd, const char *where, struct zt_secret *out,
                        struct zt_fault *fault)
{
    char text[256] = "";
    size_t n = 0;
    zt_err rc;

    while (n < sizeof(text) && !memchr(text, '\n', n)) {
        /* a file is read by place: processes that inherit it share its offset */
        ssize_t got = pread(fd, text + n, sizeof(text) - n, (off_t)n);

        if (got < 0 && errno == ESPIPE)
            got = read(fd, text + n, sizeof(text) - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return zt_fault_set(fault, ZT_E_NOINPUT, "%s: %s", where, strerror(errno));
        if (got == 0)
            break;
        n += (size_t)got;
    }
    rc = zt_secret_parse(text, n, where, out, fault);
    sodium_memzero(text, sizeof(text));
    return rc;
}

zt_err zt_secret_read_fd(int fd, struct zt_secret *out, struct zt_fault *fault)
{
    return read_text(fd, "the descriptor of the job's secret", out, fault);
}

static zt_err check_file(int fd, const char *path, struct zt_fault *fault)
{
    struct stat sb;

    if (fstat(fd, &sb) < 0)
        return zt_fault_set(fault, ZT_E_NOINPUT, "secret file %s: %s", path,
                            strerror(errno));
    if (!S_ISREG(sb.st_mode))
        return zt_fault_set(fault, ZT_E_USAGE, "secret file %s: no regular file", path);
    if (sb.st_uid != geteuid() && sb.st_uid != 0)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "secret file %s: it belongs to user %u, who could change it; "
                            "use one of your own",
                            path, (unsigned)sb.st_uid);
    if (sb.st_mode & 077)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "secret file %s: others may open it (mode %04o); do: chmod "
                            "600 %s",
                            path, (unsigned)sb.st_mode & 07777, path);
    return ZT_OK;
}

zt_err zt_secret_read_file(const char *path, struct zt_secret *out,
                           struct zt_fault *fault)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    zt_err rc;

    if (fd < 0)
        return zt_fault_set(fault, ZT_E_NOINPUT, "secret file %s: %s", path,
                            strerror(errno));
    rc = check_file(fd, path, fault);
    if (!rc)
        rc = read_text(fd, path, out, fault);
    close(fd);
    return rc;
}

zt_err zt_secret_write_file(const char *path, const struct zt_secret *s,
                            struct zt_fault *fault)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    char text[ZT_SECRET_TEXT];
    ssize_t n;

    if (fd < 0)
        return zt_fault_set(fault, ZT_E_CANTCREATE, "secret file %s: %s", path,
                            strerror(errno));
    zt_secret_text(s, text);
    n = write(fd, text, sizeof(text) - 1);
    sodium_memzero(text, sizeof(text));
    if (close(fd) < 0 || n != (ssize_t)sizeof(text) - 1) {
        unlink(path);
        return zt_fault_set(fault, ZT_E_CANTCREATE, "secret file %s: %s", path,
                            n < 0 ? strerror(errno) : "the disk is full");
    }
    return ZT_OK;
}

/* What came through the descriptor, for the next who asks. */
static struct {
    pthread_mutex_t lock;
    bool known;
    int64_t fd;
    struct zt_secret secret;
} from_fd = {.lock = PTHREAD_MUTEX_INITIALIZER};

static zt_err read_fd_once(int64_t fd, struct zt_secret *out, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    pthread_mutex_lock(&from_fd.lock);
    if (!from_fd.known || from_fd.fd != fd) {
        rc = zt_secret_read_fd((int)fd, &from_fd.secret, fault);
        from_fd.known = !rc;
        from_fd.fd = fd;
    }
    if (!rc)
        *out = from_fd.secret;
    pthread_mutex_unlock(&from_fd.lock);
    return rc ? zt_fault_context(fault, rc, "ZLAUNCH_SECRET_FD=%lld", (long long)fd) : rc;
}

zt_err zt_secret_from_env(struct zt_secret *out, bool *found, struct zt_fault *fault)
{
    const char *path = getenv("ZLAUNCH_SECRET_FILE");
    int64_t fd = -1;
    zt_err rc = zt_env_int("ZLAUNCH_SECRET_FD", 0, 1 << 20, &fd, fault);

    *found = false;
    if (rc)
        return rc;
    if (fd >= 0)
        rc = read_fd_once(fd, out, fault);
    else if (path && *path)
        rc = zt_secret_read_file(path, out, fault);
    else
        return ZT_OK;
    *found = !rc;
    return rc;
}

void zt_secret_derive(const char *text, struct zt_secret *out)
{
    static const char label[] = "zlaunch: no secret, only a name: ";
    crypto_hash_sha256_state h;

    crypto_hash_sha256_init(&h);
    crypto_hash_sha256_update(&h, (const uint8_t *)label, sizeof(label));
    crypto_hash_sha256_update(&h, (const uint8_t *)text, strlen(text));
    crypto_hash_sha256_final(&h, out->key);
}
