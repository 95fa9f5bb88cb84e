#include "launcher/ssh/push.h"

#include "common/mapped_file.h"
#include "launcher/ssh/quote.h"

#include <libssh2_sftp.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define DEFAULT_BASE ".zlaunch/push"
#define WRITE_BYTES  (256u << 10)
#define MB           1e6

struct push_file {
    const char *local;
    char *name;   /* below the folder */
    char *path;   /* there */
    char *part;   /* there, while it is not complete */
    size_t dir_n; /* bytes of the folders in `path` */
    long mode;
    struct zt_mapping content;
};

struct zt_push {
    char *dir;
    struct push_file *file; /* (num) */
    int num;

    struct zt_ssh_session *link; /* of the current step */
    LIBSSH2_SFTP *sftp;
    LIBSSH2_SFTP_HANDLE *handle;
    int state, index;
    size_t done;      /* bytes of the current file that are there */
    size_t mkdir_at;  /* bytes of the path whose folders exist */
    const char *what; /* the call that failed */
    unsigned long sftp_error;
};

/* ------------------------------------------------------------------ what is to be copied
 */

static const char *name_there(const char *path)
{
    const char *mark = strstr(path, "/./"), *slash = strrchr(path, '/');

    return mark ? mark + 3 : slash ? slash + 1 : path;
}

static zt_err open_file(struct push_file *f, const char *local, struct zt_fault *fault)
{
    struct stat sb;
    zt_err rc;

    f->local = local;
    rc = zt_mapping_open(local, &f->content, fault);
    if (rc)
        return zt_fault_context(fault, rc, "--push");
    f->mode = stat(local, &sb) == 0 && (sb.st_mode & 0111) ? 0755 : 0644;
    f->name = strdup(name_there(local));
    if (!f->name)
        return zt_fault_set(fault, ZT_E_NOMEM, "--push: no memory");
    if (!*f->name || strstr(f->name, "..") || f->name[strlen(f->name) - 1] == '/')
        return zt_fault_set(fault, ZT_E_USAGE, "--push: '%s' is no name of a file",
                            local);
    return ZT_OK;
}

static zt_err name_folder(struct zt_push *p, const char *base, struct zt_fault *fault)
{
    XXH3_state_t *hash = XXH3_createState();
    uint64_t bytes = 0;
    int ok;

    if (!hash || XXH3_64bits_reset(hash) != XXH_OK) {
        XXH3_freeState(hash);
        return zt_fault_set(fault, ZT_E_NOMEM, "--push: no memory");
    }
    for (int i = 0; i < p->num; i++) {
        const struct push_file *f = &p->file[i];
        uint64_t head[2] = {(uint64_t)f->mode, f->content.bytes};

        (void)!XXH3_64bits_update(hash, f->name, strlen(f->name) + 1);
        (void)!XXH3_64bits_update(hash, head, sizeof(head));
        if (f->content.bytes)
            (void)!XXH3_64bits_update(hash, f->content.data, f->content.bytes);
        bytes += f->content.bytes;
    }
    ok =
        asprintf(&p->dir, "%s/%llu-%016llx", base ? base : DEFAULT_BASE,
                 (unsigned long long)bytes, (unsigned long long)XXH3_64bits_digest(hash));
    XXH3_freeState(hash);
    if (ok < 0) {
        p->dir = NULL;
        return zt_fault_set(fault, ZT_E_NOMEM, "--push: no memory");
    }
    return ZT_OK;
}

/* Hosts may share the folder: what is not complete yet has a name that no other push has.
 */
static zt_err name_files(struct zt_push *p, struct zt_fault *fault)
{
    unsigned long long own;

    randombytes_buf(&own, sizeof(own));
    for (int i = 0; i < p->num; i++) {
        struct push_file *f = &p->file[i];

        if (asprintf(&f->path, "%s/%s", p->dir, f->name) < 0)
            f->path = NULL;
        if (!f->path || asprintf(&f->part, "%s.part-%016llx", f->path, own) < 0)
            return zt_fault_set(fault, ZT_E_NOMEM, "--push: no memory");
        f->dir_n = (size_t)(strrchr(f->path, '/') - f->path);
    }
    return ZT_OK;
}

zt_err zt_push_open(char *const *files, const char *base, struct zt_push **out,
                    struct zt_fault *fault)
{
    struct zt_push *p = calloc(1, sizeof(*p));
    zt_err rc = ZT_OK;
    int num = 0;

    while (files && files[num])
        num++;
    if (p)
        p->file = calloc((size_t)num + 1, sizeof(*p->file));
    if (!p || !p->file)
        rc = zt_fault_set(fault, ZT_E_NOMEM, "--push: no memory");
    for (; !rc && p->num < num; p->num++)
        rc = open_file(&p->file[p->num], files[p->num], fault);
    if (!rc)
        rc = name_folder(p, base, fault);
    if (!rc)
        rc = name_files(p, fault);
    if (rc) {
        zt_push_close(p);
        return rc;
    }
    *out = p;
    return ZT_OK;
}

void zt_push_close(struct zt_push *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->num; i++) {
        free(p->file[i].name);
        free(p->file[i].path);
        free(p->file[i].part);
        zt_mapping_release(&p->file[i].content);
    }
    free(p->file);
    free(p->dir);
    free(p);
}

const char *zt_push_dir(const struct zt_push *p)
{
    return p->dir;
}

size_t zt_push_bytes(const struct zt_push *p)
{
    size_t bytes = 0;

    for (int i = 0; i < p->num; i++)
        bytes += p->file[i].content.bytes;
    return bytes;
}

char *zt_push_find(const struct zt_push *p, const char *name)
{
    for (int i = 0; i < p->num; i++) {
        const char *slash = strrchr(p->file[i].path, '/');
        char *path;

        if (strcmp(slash + 1, name) != 0)
            continue;
        /* the shell works in another folder by then */
        if (asprintf(&path, "%s%s", *p->dir == '/' ? "" : "~/", p->file[i].path) < 0)
            return NULL;
        return path;
    }
    return NULL;
}

/* ------------------------------------------------------------------ through a shell */

/* One line; `head` then takes exactly the bytes that follow it, and no more. */
static zt_err put_file(const struct push_file *f, struct zt_buf *out)
{
    char *folder = strndup(f->path, f->dir_n), text[200];
    zt_err rc = folder ? ZT_OK : ZT_E_NOMEM;
    const struct {
        const char *before, *word;
    } parts[] = {
        {"zl_p=", f->path},
        {"; zl_t=", f->part},
        {"; { mkdir -p ", folder},
    };

    for (size_t i = 0; !rc && i < sizeof(parts) / sizeof(*parts); i++) {
        rc = zt_buf_put(out, parts[i].before, strlen(parts[i].before));
        if (!rc)
            rc = zt_shell_word(out, parts[i].word);
    }
    free(folder);
    snprintf(text, sizeof(text),
             " && head -c %zu >\"$zl_t\" && chmod %lo \"$zl_t\" && mv -f \"$zl_t\" "
             "\"$zl_p\"; } || { rm -f \"$zl_t\"; exit %d; }\n",
             f->content.bytes, f->mode, ZT_PUSH_FAILED);
    if (!rc)
        rc = zt_buf_put(out, text, strlen(text));
    if (!rc && f->content.bytes)
        rc = zt_buf_put(out, f->content.data, f->content.bytes);
    return rc;
}

zt_err zt_push_script(const struct zt_push *p, struct zt_buf *out)
{
    static const char start[] = "zl_n=$(printf '\\nx'); zl_n=${zl_n%x}; cd || cd /\n";
    zt_err rc = zt_buf_put(out, start, sizeof(start) - 1);

    for (int i = 0; !rc && i < p->num; i++)
        rc = put_file(&p->file[i], out);
    return rc;
}

/* ------------------------------------------------------------------ the copy */

enum {
    OPEN_SFTP,
    STAT,    /* is the file there? */
    FOLDERS, /* make the folders above it */
    CREATE,
    WRITE,
    CLOSE,
    SET_MODE,
    RENAME,
    LOOK_AGAIN, /* it could not be renamed: did another zlaunch bring it? */
    DROP_SAME,  /* it did: remove our part */
    CLOSE_BAD,  /* failed: close and remove the part, see how much room there is */
    UNLINK_BAD,
    ROOM,
    CLOSE_SFTP,
    FINISHED,
};

/* A call that gives a pointer says so in the session's error. */
static bool no_pointer_waits(const struct zt_ssh_session *l)
{
    return libssh2_session_last_errno(l->session) == LIBSSH2_ERROR_EAGAIN;
}

static bool waits(long rc)
{
    return rc == LIBSSH2_ERROR_EAGAIN;
}

static zt_ssh_session_step bad(struct zt_push *p, const char *what, int next)
{
    p->what = what;
    p->sftp_error = libssh2_sftp_last_error(p->sftp);
    p->state = next;
    return ZT_STEP_NEXT;
}

static zt_ssh_session_step go(struct zt_push *p, int state)
{
    p->state = state;
    return ZT_STEP_NEXT;
}

static struct push_file *current(struct zt_push *p)
{
    return &p->file[p->index];
}

static zt_ssh_session_step next_file(struct zt_push *p)
{
    p->index++;
    p->done = p->mkdir_at = 0;
    return go(p, p->index < p->num ? STAT : CLOSE_SFTP);
}

static zt_ssh_session_step open_sftp(struct zt_push *p)
{
    p->sftp = libssh2_sftp_init(p->link->session);
    if (!p->sftp && no_pointer_waits(p->link))
        return ZT_STEP_WAIT;
    if (!p->sftp)
        return zt_ssh_session_fail(
            p->link, false, ZT_E_CANTCREATE,
            "--push: the server offers no sftp (%s): enable its sftp "
            "subsystem, or install zlaunch there",
            zt_ssh_session_error(p->link));
    p->index = -1;
    return next_file(p);
}

static zt_ssh_session_step stat_step(struct zt_push *p)
{
    struct push_file *f = current(p);
    LIBSSH2_SFTP_ATTRIBUTES at;
    int rc = libssh2_sftp_stat_ex(p->sftp, f->path, (unsigned)strlen(f->path),
                                  LIBSSH2_SFTP_STAT, &at);
    bool same;

    if (waits(rc))
        return ZT_STEP_WAIT;
    same = rc == 0 && at.filesize == f->content.bytes;
    if (p->state == LOOK_AGAIN)
        return same ? go(p, DROP_SAME) : go(p, UNLINK_BAD);
    return same ? next_file(p) : go(p, FOLDERS);
}

/* Create the folders one after the other; an existing one is no error. */
static zt_ssh_session_step folders(struct zt_push *p)
{
    struct push_file *f = current(p);

    while (p->mkdir_at < f->dir_n) {
        size_t n = p->mkdir_at + 1 + strcspn(f->path + p->mkdir_at + 1, "/");
        int rc = libssh2_sftp_mkdir_ex(p->sftp, f->path, (unsigned)n, 0755);

        if (waits(rc))
            return ZT_STEP_WAIT;
        p->mkdir_at = n;
    }
    return go(p, CREATE);
}

static zt_ssh_session_step create(struct zt_push *p)
{
    struct push_file *f = current(p);

    p->handle =
        libssh2_sftp_open_ex(p->sftp, f->part, (unsigned)strlen(f->part),
                             LIBSSH2_FXF_WRITE | LIBSSH2_FXF_CREAT | LIBSSH2_FXF_TRUNC,
                             f->mode, LIBSSH2_SFTP_OPENFILE);
    if (p->handle)
        return go(p, WRITE);
    if (no_pointer_waits(p->link))
        return ZT_STEP_WAIT;
    return bad(p, "be created", ROOM);
}

static zt_ssh_session_step write_some(struct zt_push *p)
{
    struct push_file *f = current(p);

    while (p->done < f->content.bytes) {
        size_t left = f->content.bytes - p->done;
        ssize_t k = libssh2_sftp_write(p->handle, (const char *)f->content.data + p->done,
                                       left < WRITE_BYTES ? left : WRITE_BYTES);

        if (waits((long)k))
            return ZT_STEP_WAIT;
        if (k <= 0)
            return bad(p, "be written", CLOSE_BAD);
        p->done += (size_t)k;
    }
    return go(p, CLOSE);
}

static zt_ssh_session_step close_file(struct zt_push *p)
{
    int rc = libssh2_sftp_close_handle(p->handle);

    if (waits(rc))
        return ZT_STEP_WAIT;
    p->handle = NULL;
    if (p->state == CLOSE_BAD)
        return go(p, UNLINK_BAD);
    return rc ? bad(p, "be written", UNLINK_BAD) : go(p, SET_MODE);
}

/* The server's umask may have taken the right to execute. */
static zt_ssh_session_step set_mode(struct zt_push *p)
{
    struct push_file *f = current(p);
    LIBSSH2_SFTP_ATTRIBUTES at = {.flags = LIBSSH2_SFTP_ATTR_PERMISSIONS,
                                  .permissions = (unsigned long)f->mode};
    int rc = libssh2_sftp_stat_ex(p->sftp, f->part, (unsigned)strlen(f->part),
                                  LIBSSH2_SFTP_SETSTAT, &at);

    if (waits(rc))
        return ZT_STEP_WAIT;
    return rc ? bad(p, "be made executable", UNLINK_BAD) : go(p, RENAME);
}

static zt_ssh_session_step rename_file(struct zt_push *p)
{
    struct push_file *f = current(p);
    int rc =
        libssh2_sftp_rename_ex(p->sftp, f->part, (unsigned)strlen(f->part), f->path,
                               (unsigned)strlen(f->path), LIBSSH2_SFTP_RENAME_ATOMIC);

    if (waits(rc))
        return ZT_STEP_WAIT;
    if (rc)
        return bad(p, "be renamed", LOOK_AGAIN);
    return next_file(p);
}

static zt_ssh_session_step unlink_part(struct zt_push *p)
{
    struct push_file *f = current(p);
    int rc = libssh2_sftp_unlink_ex(p->sftp, f->part, (unsigned)strlen(f->part));

    if (waits(rc))
        return ZT_STEP_WAIT;
    return p->state == DROP_SAME ? next_file(p) : go(p, ROOM);
}

static const char *sftp_words(unsigned long code)
{
    switch (code) {
    case LIBSSH2_FX_PERMISSION_DENIED:
        return "permission denied";
    case LIBSSH2_FX_NO_SUCH_FILE:
    case LIBSSH2_FX_NO_SUCH_PATH:
        return "the folder is not there and cannot be made";
    case LIBSSH2_FX_NO_SPACE_ON_FILESYSTEM:
    case LIBSSH2_FX_QUOTA_EXCEEDED:
        return "the disk or the quota is full";
    case LIBSSH2_FX_WRITE_PROTECT:
        return "the file system is read-only";
    default:
        return "the server does not say why";
    }
}

/* sftp has no error code for a full disk: ask statvfs, of the folder or its parent. */
static zt_ssh_session_step room(struct zt_push *p)
{
    struct push_file *f = current(p);
    LIBSSH2_SFTP_STATVFS vfs = {0};
    int rc = libssh2_sftp_statvfs(p->sftp, f->path, f->dir_n, &vfs);
    double free_mb, need_mb = (double)f->content.bytes / MB;

    if (waits(rc))
        return ZT_STEP_WAIT;
    free_mb = (double)vfs.f_bavail * (double)vfs.f_frsize / MB;
    if (rc == 0 && (free_mb < need_mb || vfs.f_favail == 0))
        return zt_ssh_session_fail(
            p->link, false, ZT_E_CANTCREATE,
            "--push: %s cannot %s: no space left on the device (%.1f MB "
            "needed, %.1f MB free): make room there, or give --push_dir",
            f->path, p->what, need_mb, free_mb);
    return zt_ssh_session_fail(p->link, false, ZT_E_CANTCREATE,
                               "--push: %s cannot %s: %s: give --push_dir another folder",
                               f->path, p->what, sftp_words(p->sftp_error));
}

static zt_ssh_session_step close_sftp(struct zt_push *p)
{
    int rc = libssh2_sftp_shutdown(p->sftp);

    if (waits(rc))
        return ZT_STEP_WAIT;
    p->sftp = NULL;
    return go(p, FINISHED);
}

static zt_ssh_session_step (*const steps[])(struct zt_push *p) = {
    [OPEN_SFTP] = open_sftp,
    [STAT] = stat_step,
    [FOLDERS] = folders,
    [CREATE] = create,
    [WRITE] = write_some,
    [CLOSE] = close_file,
    [SET_MODE] = set_mode,
    [RENAME] = rename_file,
    [LOOK_AGAIN] = stat_step,
    [DROP_SAME] = unlink_part,
    [CLOSE_BAD] = close_file,
    [UNLINK_BAD] = unlink_part,
    [ROOM] = room,
    [CLOSE_SFTP] = close_sftp,
};

zt_ssh_session_step zt_push_step(struct zt_push *p, struct zt_ssh_session *l)
{
    zt_ssh_session_step step = ZT_STEP_NEXT;
    size_t before = p->done;

    p->link = l;
    while (step == ZT_STEP_NEXT && p->state != FINISHED)
        step = steps[p->state](p);
    if (step == ZT_STEP_WAIT && p->done != before) /* it moves: the clock starts again */
        zt_ssh_session_phase(l, l->phase_name, l->phase_s);
    return step;
}
