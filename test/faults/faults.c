/*
 * faults.c -- calls into the C library that fail when they are told to; loaded by LD_PRELOAD.
 *
 * A failure point is a function of the C library and the calls that led to it: the name and
 * DEPTH return addresses, each as an offset in its file, are hashed. So a point is the
 * same one in every run, whatever threads and addresses do.
 *
 *      ZT_FAULTS_LIST=FILE    append a line for each new point: ROLE NAME HASH FILE+OFFSET ...
 *      ZT_FAULTS_FAIL=ROLE:HASH  fail the first call at this point ("ROLE:HASH:all": each one)
 *      ZT_FAULTS_DONE=FILE    append a line when that happens
 *
 *      ZT_FAULTS_SEATS=FOLDER where daemons number themselves
 *
 * ROLE is the name of the program; ctl for `zlaunch --ctl`, rankN for a rank of zworker, daemon for
 * the first daemon, daemon1 for the next. A call fails with an errno that the kernel may give there.
 */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define DEPTH  5
#define SKIP   2 /* frames of this file */
#define POINTS (1u << 16)

struct module {
    uintptr_t begin, end, base;
    uint64_t name_hash;
    char name[48];
};

static struct module modules[256];
static atomic_int num_modules;
static pthread_mutex_t modules_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t seen[POINTS];
static atomic_bool fired;
static char role[16];
static const char *list_path, *done_path;
static uint64_t fail_hash;
static bool fail_all, active;
static _Thread_local bool inside;

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

/* ---- where an address is ---- */

static int add_module(struct dl_phdr_info *info, size_t size, void *ctx)
{
    const char *slash = strrchr(info->dlpi_name, '/');
    struct module m = {.base = info->dlpi_addr, .begin = UINTPTR_MAX};
    int n = atomic_load(&num_modules);

    (void)size;
    (void)ctx;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + p->p_vaddr;

        if (p->p_type != PT_LOAD)
            continue;
        m.begin = at < m.begin ? at : m.begin;
        m.end = at + p->p_memsz > m.end ? at + p->p_memsz : m.end;
    }
    for (int i = 0; i < n; i++)
        if (modules[i].begin == m.begin && modules[i].end == m.end)
            return 0;
    snprintf(m.name, sizeof(m.name), "%s", slash ? slash + 1 : "program");
    for (const char *c = m.name; *c; c++)
        m.name_hash = mix(m.name_hash, (unsigned char)*c);
    if (n < (int)(sizeof(modules) / sizeof(modules[0]))) {
        modules[n] = m;
        atomic_store(&num_modules, n + 1);
    }
    return 0;
}

static const struct module *find_module(uintptr_t at)
{
    for (int i = atomic_load(&num_modules) - 1; i >= 0; i--)
        if (at >= modules[i].begin && at < modules[i].end)
            return &modules[i];
    return NULL;
}

static const struct module *module_of(uintptr_t at)
{
    const struct module *m = find_module(at);

    if (m || pthread_mutex_trylock(&modules_lock))
        return m;
    dl_iterate_phdr(add_module, NULL);
    pthread_mutex_unlock(&modules_lock);
    return find_module(at);
}

/* ---- points ---- */

static void append(const char *path, const char *line, size_t n)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path,
                          O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);

    if (fd >= 0 && syscall(SYS_write, fd, line, n) < 0)
        fd = -1;
    if (fd >= 0)
        syscall(SYS_close, fd);
}

static void note(const char *path, const char *name, uint64_t hash, void *const *frame,
                 int num)
{
    char line[1024];
    size_t at = (size_t)snprintf(line, sizeof(line), "%s %s %016llx", role, name,
                                 (unsigned long long)hash);

    for (int i = 0; i < num && at < sizeof(line) - 80; i++) {
        const struct module *m = module_of((uintptr_t)frame[i]);

        at +=
            (size_t)snprintf(line + at, sizeof(line) - at, " %s+0x%lx", m ? m->name : "?",
                             m ? (unsigned long)((uintptr_t)frame[i] - m->base) : 0ul);
    }
    line[at++] = '\n';
    append(path, line, at);
}

static bool is_new(uint64_t hash)
{
    for (uint32_t i = (uint32_t)hash % POINTS, tries = 0; tries < POINTS;
         i = (i + 1) % POINTS, tries++) {
        uint64_t was = 0;

        if (atomic_compare_exchange_strong(&seen[i], &was, hash))
            return true;
        if (was == hash)
            return false;
    }
    return false;
}

/* Shall this call fail? */
static bool strikes(const char *name)
{
    void *frame[DEPTH + SKIP];
    uint64_t hash = 1;
    bool hit = false;
    int n, was = errno;

    if (!active || inside)
        return false;
    inside = true;
    n = backtrace(frame, DEPTH + SKIP);
    for (const char *c = name; *c; c++)
        hash = mix(hash, (unsigned char)*c);
    for (int i = SKIP; i < n; i++) {
        const struct module *m = module_of((uintptr_t)frame[i]);

        hash = mix(hash, m ? mix(m->name_hash, (uintptr_t)frame[i] - m->base) : 0);
    }
    if (list_path && is_new(hash))
        note(list_path, name, hash, frame + SKIP, n - SKIP);
    if (hash == fail_hash && (fail_all || !atomic_exchange(&fired, true))) {
        hit = true;
        if (done_path)
            note(done_path, name, hash, frame + SKIP, n - SKIP);
    }
    inside = false;
    errno = was;
    return hit;
}

/* The first number that no daemon of the job has yet. */
static int take_seat(const char *folder)
{
    char path[512];
    int fd = -1, i = 0;

    for (; folder && fd < 0 && i < 16; i++) {
        snprintf(path, sizeof(path), "%s/%d", folder, i);
        fd = (int)syscall(SYS_openat, AT_FDCWD, path,
                          O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    }
    if (fd >= 0)
        syscall(SYS_close, fd);
    return fd >= 0 ? i - 1 : 0;
}

static bool has_word(int argc, char **argv, const char *word)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], word))
            return true;
    return false;
}

static void find_role(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];
    const char *rank = getenv("RANK");

    if (!strcmp(name, "zworker") && has_word(argc, argv, "--daemon")) {
        int seat = take_seat(getenv("ZT_FAULTS_SEATS"));

        snprintf(role, sizeof(role), seat ? "daemon%d" : "daemon", seat);
    } else if (!strcmp(name, "zworker")) {
        snprintf(role, sizeof(role), "rank%s", rank ? rank : "0");
    } else if (has_word(argc, argv, "--ctl")) {
        snprintf(role, sizeof(role), "ctl");
    } else if (name[0] == 'z') {
        snprintf(role, sizeof(role), "%s", name);
    }
}

__attribute__((constructor)) static void begin(int argc, char **argv)
{
    const char *fail = getenv("ZT_FAULTS_FAIL"), *colon = fail ? strchr(fail, ':') : NULL;
    void *warm[4];

    inside = true;
    (void)backtrace(warm, 4); /* loads the unwinder now */
    find_role(argc, argv);
    list_path = getenv("ZT_FAULTS_LIST");
    done_path = getenv("ZT_FAULTS_DONE");
    if (colon && (size_t)(colon - fail) == strlen(role) &&
        !strncmp(fail, role, strlen(role))) {
        fail_hash = strtoull(colon + 1, NULL, 16);
        fail_all = strstr(colon, ":all") != NULL;
    }
    active = role[0] && (list_path || fail_hash);
    inside = false;
}

/* ---- what fails ---- */

/* What a descriptor may say of an input or output error. */
static int io_errno(int fd, int of_file)
{
    struct sockaddr a = {0};
    socklen_t n = sizeof(a);
    struct stat st;

    if (fstat(fd, &st))
        return EBADF;
    if (S_ISREG(st.st_mode))
        return of_file;
    if (!S_ISSOCK(st.st_mode) || getsockname(fd, &a, &n))
        return EINTR; /* events and pipes do not break */
    return a.sa_family == AF_UNIX ? ENOMEM : ECONNRESET;
}

#define REAL(ret, name, params)                                                          \
    static ret(*real) params;                                                            \
    if (!real) {                                                                         \
        bool was = inside;                                                               \
        inside = true;                                                                   \
        real = (ret(*) params)dlsym(RTLD_NEXT, #name);                                   \
        inside = was;                                                                    \
    }

#define FAILS(ret, name, params, args, value, error)                                     \
    __attribute__((visibility("default"))) ret name params                               \
    {                                                                                    \
        REAL(ret, name, params)                                                          \
        if (strikes(#name)) {                                                            \
            errno = (error);                                                             \
            return value;                                                                \
        }                                                                                \
        return real args;                                                                \
    }

/* glibc's own names need no look-up, which allocates itself. */
void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t),
    *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);

static void *no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

__attribute__((visibility("default"))) void *malloc(size_t n)
{
    return strikes("malloc") ? no_memory() : __libc_malloc(n);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t each)
{
    return strikes("calloc") ? no_memory() : __libc_calloc(n, each);
}

__attribute__((visibility("default"))) void *realloc(void *p, size_t n)
{
    return strikes("realloc") ? no_memory() : __libc_realloc(p, n);
}

__attribute__((visibility("default"))) void *aligned_alloc(size_t align, size_t n)
{
    return strikes("aligned_alloc") ? no_memory() : __libc_memalign(align, n);
}

__attribute__((visibility("default"))) int posix_memalign(void **out, size_t align,
                                                          size_t n)
{
    void *p = strikes("posix_memalign") ? NULL : __libc_memalign(align, n);

    if (p)
        *out = p;
    return p ? 0 : ENOMEM;
}

FAILS(void *, mmap, (void *p, size_t n, int prot, int flags, int fd, off_t at),
      (p, n, prot, flags, fd, at), MAP_FAILED, ENOMEM)
FAILS(void *, mmap64, (void *p, size_t n, int prot, int flags, int fd, off64_t at),
      (p, n, prot, flags, fd, at), MAP_FAILED, ENOMEM)
FAILS(int, memfd_create, (const char *name, unsigned flags), (name, flags), -1, EMFILE)
FAILS(int, ftruncate, (int fd, off_t n), (fd, n), -1, ENOSPC)
FAILS(int, ftruncate64, (int fd, off64_t n), (fd, n), -1, ENOSPC)
FAILS(int, posix_fallocate, (int fd, off_t at, off_t n), (fd, at, n), ENOSPC, errno)
FAILS(int, posix_fallocate64, (int fd, off64_t at, off64_t n), (fd, at, n), ENOSPC, errno)
FAILS(int, fallocate, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n), -1,
      ENOSPC)
FAILS(int, fallocate64, (int fd, int mode, off64_t at, off64_t n), (fd, mode, at, n), -1,
      ENOSPC)

static mode_t mode_of(int flags, va_list *ap)
{
    return flags & (O_CREAT | __O_TMPFILE) ? (mode_t)va_arg(*ap, int) : 0;
}

#define OPENS(name, params, args)                                                        \
    __attribute__((visibility("default"))) int name params                               \
    {                                                                                    \
        mode_t mode;                                                                     \
        va_list ap;                                                                      \
        REAL(int, name, params)                                                          \
        va_start(ap, flags);                                                             \
        mode = mode_of(flags, &ap);                                                      \
        va_end(ap);                                                                      \
        if (strikes(#name)) {                                                            \
            errno = EMFILE;                                                              \
            return -1;                                                                   \
        }                                                                                \
        return real args;                                                                \
    }
OPENS(open, (const char *path, int flags, ...), (path, flags, mode))
OPENS(open64, (const char *path, int flags, ...), (path, flags, mode))
OPENS(openat, (int dir, const char *path, int flags, ...), (dir, path, flags, mode))
OPENS(openat64, (int dir, const char *path, int flags, ...), (dir, path, flags, mode))
FAILS(FILE *, fopen, (const char *path, const char *mode), (path, mode), NULL, EMFILE)
FAILS(FILE *, fopen64, (const char *path, const char *mode), (path, mode), NULL, EMFILE)
FAILS(FILE *, fdopen, (int fd, const char *mode), (fd, mode), NULL, ENOMEM)
FAILS(int, mkdir, (const char *path, mode_t mode), (path, mode), -1, ENOSPC)
FAILS(int, rename, (const char *from, const char *to), (from, to), -1, EIO)
FAILS(int, fsync, (int fd), (fd), -1, EIO)
FAILS(int, fdatasync, (int fd), (fd), -1, EIO)
FAILS(int, fflush, (FILE * f), (f), EOF, ENOSPC)

__attribute__((visibility("default"))) int fclose(FILE *f)
{
    REAL(int, fclose, (FILE *))
    bool strike = strikes("fclose");
    int rc = real(f);

    if (strike)
        errno = ENOSPC;
    return strike ? EOF : rc;
}

FAILS(ssize_t, read, (int fd, void *p, size_t n), (fd, p, n), -1, io_errno(fd, EIO))
FAILS(ssize_t, pread, (int fd, void *p, size_t n, off_t at), (fd, p, n, at), -1, EIO)
FAILS(ssize_t, pread64, (int fd, void *p, size_t n, off64_t at), (fd, p, n, at), -1, EIO)
FAILS(ssize_t, readv, (int fd, const struct iovec *v, int n), (fd, v, n), -1,
      io_errno(fd, EIO))
FAILS(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n), -1,
      io_errno(fd, ENOSPC))
FAILS(ssize_t, pwrite, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at), -1,
      ENOSPC)
FAILS(ssize_t, pwrite64, (int fd, const void *p, size_t n, off64_t at), (fd, p, n, at),
      -1, ENOSPC)
FAILS(ssize_t, writev, (int fd, const struct iovec *v, int n), (fd, v, n), -1,
      io_errno(fd, ENOSPC))

FAILS(int, socket, (int family, int type, int protocol), (family, type, protocol), -1,
      EMFILE)
FAILS(int, socketpair, (int family, int type, int protocol, int pair[2]),
      (family, type, protocol, pair), -1, EMFILE)
FAILS(int, bind, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n), -1,
      EADDRINUSE)
FAILS(int, listen, (int fd, int backlog), (fd, backlog), -1, EADDRINUSE)
FAILS(int, connect, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n), -1,
      ECONNREFUSED)
FAILS(int, accept, (int fd, struct sockaddr *a, socklen_t *n), (fd, a, n), -1, EMFILE)
FAILS(int, accept4, (int fd, struct sockaddr *a, socklen_t *n, int flags),
      (fd, a, n, flags), -1, EMFILE)
FAILS(ssize_t, send, (int fd, const void *p, size_t n, int flags), (fd, p, n, flags), -1,
      ECONNRESET)
FAILS(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags), -1,
      ECONNRESET)
FAILS(ssize_t, recv, (int fd, void *p, size_t n, int flags), (fd, p, n, flags), -1,
      ECONNRESET)
FAILS(ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags), -1,
      ECONNRESET)
FAILS(int, poll, (struct pollfd * p, nfds_t n, int ms), (p, n, ms), -1, ENOMEM)
FAILS(int, epoll_create1, (int flags), (flags), -1, EMFILE)
FAILS(int, epoll_ctl, (int fd, int op, int of, struct epoll_event *e), (fd, op, of, e),
      -1, ENOMEM)
FAILS(int, epoll_wait, (int fd, struct epoll_event *e, int n, int ms), (fd, e, n, ms), -1,
      EINTR)
FAILS(int, epoll_pwait, (int fd, struct epoll_event *e, int n, int ms, const sigset_t *s),
      (fd, e, n, ms, s), -1, EINTR)
FAILS(int, eventfd, (unsigned value, int flags), (value, flags), -1, EMFILE)
FAILS(int, pipe, (int pair[2]), (pair), -1, EMFILE)
FAILS(int, pipe2, (int pair[2], int flags), (pair, flags), -1, EMFILE)
FAILS(pid_t, fork, (void), (), -1, EAGAIN)
FAILS(int, execv, (const char *path, char *const *argv), (path, argv), -1, ENOMEM)
FAILS(int, execvp, (const char *path, char *const *argv), (path, argv), -1, ENOMEM)
FAILS(int, execvpe, (const char *path, char *const *argv, char *const *env),
      (path, argv, env), -1, ENOMEM)
FAILS(int, execve, (const char *path, char *const *argv, char *const *env),
      (path, argv, env), -1, ENOMEM)
FAILS(int, pthread_create,
      (pthread_t * t, const pthread_attr_t *a, void *(*f)(void *), void *ctx),
      (t, a, f, ctx), EAGAIN, errno)
