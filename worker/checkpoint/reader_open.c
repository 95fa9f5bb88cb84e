/* reader_open.c -- finding and opening checkpoints; what can be checked without their data. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/files/models.h"
#include "common/mapped_file.h"
#include "worker/checkpoint/disk/read_ahead.h"
#include "worker/checkpoint/reader_private.h"
#include "worker/checkpoint/checksummed_json.h"

/* ---- finding ---- */

bool zt_ckpt_latest(const char *path, char tag[ZT_CKPT_TAG])
{
    char name[PATH_MAX];
    ssize_t n = -1;
    int fd;

    snprintf(name, sizeof(name), "%s/latest", path);
    fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        n = read(fd, tag, ZT_CKPT_TAG - 1);
        close(fd);
    }
    if (n <= 0)
        return false;
    tag[n] = 0;
    tag[strcspn(tag, "\r\n")] = 0;
    return zt_ckpt_is_plain_name(tag);
}

/* Also true of what may not be read: who opens it says so. */
static bool is_there(const char *folder, const char *name)
{
    return access(name, F_OK) == 0 || (errno == EACCES && access(folder, X_OK) == 0);
}

static bool has_manifest(const char *path, const char *tag)
{
    char name[PATH_MAX];

    snprintf(name, sizeof(name), "%s/%s%smanifest.json", path, tag ? tag : "",
             tag ? "/" : "");
    return is_there(path, name);
}

/* `latest` is there, and may not be read. */
static bool latest_is_forbidden(const char *path)
{
    char name[PATH_MAX];

    snprintf(name, sizeof(name), "%s/latest", path);
    return access(name, R_OK) != 0 && errno == EACCES && access(path, X_OK) == 0;
}

bool zt_ckpt_is_here(const char *path)
{
    char tag[ZT_CKPT_TAG];

    return has_manifest(path, NULL) ||
           (zt_ckpt_latest(path, tag) && has_manifest(path, tag)) ||
           latest_is_forbidden(path);
}

bool zt_ckpt_outranks_weights(const char *path)
{
    static const char step[] = "checkpoint-";
    char real[PATH_MAX];
    const char *name;

    if (has_manifest(path, NULL))
        return true;
    name = realpath(path, real) ? strrchr(real, '/') : NULL;
    return name && strncmp(name + 1, step, sizeof(step) - 1) == 0;
}

bool zt_ckpt_gives_weights(const char *path)
{
    char weights[PATH_MAX];

    return zt_ckpt_is_here(path) &&
           (!zt_find_model(path, weights) || zt_ckpt_outranks_weights(path));
}

bool zt_ckpt_find_tag(const char *path, char tag[ZT_CKPT_TAG])
{
    DIR *d = opendir(path);
    struct dirent *e;
    bool found = false;

    while (d && !found && (e = readdir(d)))
        found = zt_ckpt_is_plain_name(e->d_name) && strlen(e->d_name) < ZT_CKPT_TAG &&
                has_manifest(path, e->d_name);
    if (found)
        snprintf(tag, ZT_CKPT_TAG, "%s", e->d_name);
    if (d)
        closedir(d);
    return found;
}

static zt_err find_folder(const char *path, const char *tag, char **out,
                          struct zt_fault *fault)
{
    char latest[ZT_CKPT_TAG], found[ZT_CKPT_TAG];

    if (tag && !zt_ckpt_is_plain_name(tag))
        return zt_fault_set(fault, ZT_E_ARG, "%s: %s is no tag of a checkpoint", path,
                            tag);
    if (access(path, X_OK) && errno == EACCES)
        return zt_fault_set(fault, ZT_E_SYSTEM, "%s: %s", path, strerror(EACCES));
    if (!tag && latest_is_forbidden(path) && !has_manifest(path, NULL))
        return zt_fault_set(fault, ZT_E_SYSTEM, "%s/latest: %s", path, strerror(EACCES));
    if (!tag && !has_manifest(path, NULL)) {
        bool named = zt_ckpt_latest(path, latest);

        if (!(named && has_manifest(path, latest)) && zt_ckpt_find_tag(path, found))
            return zt_fault_set(fault, ZT_E_NOINPUT,
                                "%s: its file `latest` is missing, or names what is not "
                                "there; %s is: name the folder %s/%s",
                                path, found, path, found);
        if (!named)
            return zt_fault_set(fault, ZT_E_NOINPUT,
                                "%s: is no checkpoint: it has neither manifest.json nor "
                                "a file `latest` that names a folder",
                                path);
        tag = latest;
    }
    if (tag && !has_manifest(path, tag))
        return zt_fault_set(fault, ZT_E_NOINPUT, "%s: there is no checkpoint %s", path,
                            tag);
    if (asprintf(out, "%s%s%s", path, tag ? "/" : "", tag ? tag : "") < 0)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", path);
    return ZT_OK;
}

/* ---- opening ---- */

static zt_err load_manifest(struct zt_ckpt *c, struct zt_fault *fault)
{
    char name[PATH_MAX];
    json_t *root = NULL;
    uint64_t hash;
    zt_err rc;

    snprintf(name, sizeof(name), "%s/manifest.json", c->dir);
    rc = zt_sealed_json_load(name, &root, &hash, fault);
    return rc ? rc : zt_ckpt_manifest_parse(name, root, &c->manifest, fault);
}

static zt_err load_index(struct zt_ckpt *c, int i, struct zt_fault *fault)
{
    const struct zt_ckpt_shard *s = &c->manifest.shards[i];
    char name[PATH_MAX];
    json_t *root = NULL;
    uint64_t hash;
    zt_err rc;

    snprintf(name, sizeof(name), "%s/%s", c->dir, s->index);
    rc = zt_sealed_json_load(name, &root, &hash, fault);
    if (!rc && hash != s->index_hash) {
        json_decref(root);
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: damaged: it is not the index that manifest.json names",
                            name);
    }
    return rc ? rc : zt_ckpt_index_parse(name, &c->manifest, i, root, fault);
}

const char *zt_ckpt_first_tensor(const struct zt_ckpt *c, int shard, char *out,
                                 size_t cap)
{
    const struct zt_ckpt_manifest *m = &c->manifest;

    for (int64_t i = 0; i < m->num_parts; i++) {
        if (m->parts[i].shard != shard)
            continue;
        snprintf(out, cap, "%s of %s", m->kinds[m->parts[i].kind].name,
                 m->params[m->parts[i].param].name);
        return out;
    }
    return "no tensor";
}

static zt_err check_length(const struct zt_ckpt *c, int i, struct zt_fault *fault)
{
    const struct zt_ckpt_shard *s = &c->manifest.shards[i];
    char name[PATH_MAX], tensor[512];
    struct stat st;

    snprintf(name, sizeof(name), "%s/%s", c->dir, s->file);
    zt_ckpt_first_tensor(c, i, tensor, sizeof(tensor));
    if (stat(name, &st))
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: incomplete: %s; %s and others were in it", name,
                            strerror(errno), tensor);
    if (st.st_size != s->bytes)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: damaged: it has %lld bytes, not %lld; %s and others are "
                            "in it",
                            name, (long long)st.st_size, (long long)s->bytes, tensor);
    return ZT_OK;
}

/* An index that cannot be used leaves its tensors incomplete: both are said. */
static zt_err load_indexes(struct zt_ckpt *c, bool partial, struct zt_fault *fault)
{
    struct zt_ckpt_manifest *m = &c->manifest;
    struct zt_fault first = {0};
    zt_err rc;

    for (int i = 0; i < m->num_shards; i++) {
        struct zt_fault why = {0};

        rc = load_index(c, i, &why);
        if (rc && !(partial && rc == ZT_E_NOINPUT) && !first.code) {
            first = why;
            first.code = rc;
        }
    }
    rc = zt_ckpt_sort_parts(c->dir, m, fault);
    if (!rc && !partial)
        rc = zt_ckpt_check_complete(c->dir, m, fault);
    if (first.code)
        return rc ? zt_fault_context(fault, rc, "%s", first.text)
                  : zt_fault_set(fault, first.code, "%s", first.text);
    for (int i = 0; !rc && i < m->num_shards; i++)
        if (m->shards[i].root)
            rc = check_length(c, i, fault);
    return rc;
}

/* A name in the folder, or beside it. */
static bool is_name_of_file(const char *name)
{
    return name && zt_ckpt_is_plain_name(strncmp(name, "../", 3) ? name : name + 3);
}

static zt_err check_file(const struct zt_ckpt *c, const json_t *one,
                         struct zt_fault *fault)
{
    const char *file = json_string_value(json_object_get(one, "name"));
    const char *text = json_string_value(json_object_get(one, "xxh3"));
    struct zt_mapping map = {0};
    char name[PATH_MAX];
    uint64_t want = 0;
    bool same;
    zt_err rc;

    if (!is_name_of_file(file) || !text || !zt_hash_parse(text, &want))
        return zt_fault_set(fault, ZT_E_FORMAT, "%s/manifest.json: malformed: files",
                            c->dir);
    snprintf(name, sizeof(name), "%s/%s", c->dir, file);
    rc = zt_mapping_open(name, &map, fault);
    same =
        !rc && zt_hash_bytes(map.data ? (const void *)map.data : "", map.bytes) == want;
    zt_mapping_release(&map);
    if (rc)
        return zt_fault_context(fault, ZT_E_FORMAT, "incomplete");
    return same ? ZT_OK
                : zt_fault_set(fault, ZT_E_FORMAT,
                               "%s: damaged: its checksum does not match", name);
}

zt_err zt_ckpt_check_files(const struct zt_ckpt *c, const char *which,
                           struct zt_fault *fault)
{
    const json_t *list = json_object_get(c->manifest.root, which);
    zt_err rc = ZT_OK;

    for (size_t i = 0; !rc && i < json_array_size(list); i++)
        rc = check_file(c, json_array_get(list, i), fault);
    return rc;
}

static zt_err open_any(const char *path, const char *tag, bool partial,
                       struct zt_ckpt **out, struct zt_fault *fault)
{
    struct zt_ckpt *c = calloc(1, sizeof(*c));
    zt_err rc;

    if (!c)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", path);
    rc = find_folder(path, tag, &c->dir, fault);
    if (!rc)
        rc = load_manifest(c, fault);
    if (!rc)
        rc = load_indexes(c, partial, fault);
    if (!rc)
        rc = zt_ckpt_check_files(c, "files", fault);
    if (!rc && !(c->fds = malloc(((size_t)c->manifest.num_shards + 1) * sizeof(*c->fds))))
        rc = zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", path);
    for (int i = 0; !rc && i < c->manifest.num_shards; i++)
        c->fds[i] = -1;
    if (rc)
        zt_ckpt_close(c);
    else
        *out = c;
    return rc;
}

zt_err zt_ckpt_open(const char *path, const char *tag, struct zt_ckpt **out,
                    struct zt_fault *fault)
{
    return open_any(path, tag, false, out, fault);
}

zt_err zt_ckpt_open_partial(const char *path, const char *tag, struct zt_ckpt **out,
                            struct zt_fault *fault)
{
    return open_any(path, tag, true, out, fault);
}

void zt_ckpt_close(struct zt_ckpt *c)
{
    if (!c)
        return;
    zt_read_ahead_close(c->ahead);
    for (int i = 0; c->fds && i < c->manifest.num_shards; i++)
        if (c->fds[i] >= 0)
            close(c->fds[i]);
    free(c->fds);
    free(c->buf);
    free(c->dir);
    zt_ckpt_manifest_release(&c->manifest);
    free(c);
}
