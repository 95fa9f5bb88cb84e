#include "worker/checkpoint/replica.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/checkpoint/checksummed_json.h"

#define HEAD  ZT_REPLICA_HEAD /* of the file as well */
#define PAGE  4096u
#define MAGIC 0x3130616c7065727aull /* "zrepla01" */

struct file_head {
    uint64_t magic, layout[2], data_bytes[2];
    uint64_t hash; /* of all before */
};

struct area_head {
    uint64_t magic, layout, bytes, data_hash;
    int64_t step;
    char text[ZT_REPLICA_TEXT];
    uint64_t hash; /* of all before */
};

_Static_assert(sizeof(struct area_head) <= HEAD, "the head of an area has room");

struct zt_replica {
    struct zt_replica_config cfg;
    char *map;
    size_t bytes;
};

size_t zt_replica_area_bytes(size_t data_bytes)
{
    return HEAD + (data_bytes + PAGE - 1) / PAGE * PAGE;
}

size_t zt_replica_file_bytes(size_t own_bytes, size_t copy_bytes)
{
    return HEAD +
           ZT_REPLICA_SLOTS * (zt_replica_area_bytes(own_bytes) +
                               (copy_bytes ? zt_replica_area_bytes(copy_bytes) : 0));
}

static struct area_head *head_of(const struct zt_replica *r, zt_replica_whose whose,
                                 int slot)
{
    size_t at = HEAD + (size_t)slot * zt_replica_area_bytes(r->cfg.data_bytes[whose]);

    if (whose == ZT_REPLICA_COPY)
        at += ZT_REPLICA_SLOTS * zt_replica_area_bytes(r->cfg.data_bytes[ZT_REPLICA_OWN]);
    return (struct area_head *)(r->map + at);
}

/* ---- the file ---- */

static void describe(const struct zt_replica_config *cfg, struct file_head *out)
{
    *out = (struct file_head){
        .magic = MAGIC,
        .layout = {cfg->layout[0], cfg->layout[1]},
        .data_bytes = {cfg->data_bytes[0], cfg->data_bytes[1]},
    };
    out->hash = zt_hash_bytes(out, offsetof(struct file_head, hash));
}

/* Is it the file of this configuration, as an earlier start has left it? */
static bool is_kept(const struct zt_replica *r)
{
    struct file_head want, found;
    struct stat st;

    describe(&r->cfg, &want);
    return fstat(r->cfg.fd, &st) == 0 && (size_t)st.st_size == r->bytes &&
           pread(r->cfg.fd, &found, sizeof(found), 0) == (ssize_t)sizeof(found) &&
           memcmp(&want, &found, sizeof(found)) == 0;
}

static zt_err make_file(struct zt_replica *r, struct zt_fault *fault)
{
    struct file_head head;
    int e = 0;

    if (r->bytes > INT64_MAX || ftruncate(r->cfg.fd, 0) < 0 ||
        ftruncate(r->cfg.fd, (off_t)r->bytes) < 0)
        e = r->bytes > INT64_MAX ? ENOMEM : errno;
    if (!e)
        e = posix_fallocate(r->cfg.fd, 0, (off_t)r->bytes);
    describe(&r->cfg, &head);
    if (!e && pwrite(r->cfg.fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head))
        e = errno;
    if (!e)
        return ZT_OK;
    (void)!ftruncate(r->cfg.fd, 0);
    return zt_fault_set(fault, ZT_E_NOMEM,
                        "copies of the state in memory: %.1f MiB cannot be had: %s",
                        (double)r->bytes / (1 << 20), strerror(e));
}

zt_err zt_replica_open(const struct zt_replica_config *cfg, struct zt_replica **out,
                       struct zt_fault *fault)
{
    struct zt_replica *r = calloc(1, sizeof(*r));
    zt_err rc;

    if (!r)
        return zt_fault_set(fault, ZT_E_NOMEM, "copies of the state: no host memory");
    r->cfg = *cfg;
    r->bytes = zt_replica_file_bytes(cfg->data_bytes[0], cfg->data_bytes[1]);
    rc = is_kept(r) ? ZT_OK : make_file(r, fault);
    if (!rc) {
        void *map = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, cfg->fd, 0);

        r->map = map == MAP_FAILED ? NULL : map;
        if (!r->map)
            rc = zt_fault_set(fault, ZT_E_NOMEM,
                              "copies of the state in memory: %.1f MiB cannot be mapped: "
                              "%s",
                              (double)r->bytes / (1 << 20), strerror(errno));
    }
    if (rc) {
        free(r);
        return rc;
    }
    *out = r;
    return ZT_OK;
}

void zt_replica_close(struct zt_replica *r)
{
    if (!r)
        return;
    munmap(r->map, r->bytes);
    free(r);
}

/* ---- an area ---- */

static uint64_t head_hash(const struct area_head *h)
{
    return zt_hash_bytes(h, offsetof(struct area_head, hash));
}

void *zt_replica_begin(struct zt_replica *r, zt_replica_whose whose, int slot)
{
    struct area_head *h = head_of(r, whose, slot);

    /* for who maps the file after this process was killed: before any data */
    __atomic_store_n(&h->magic, 0, __ATOMIC_SEQ_CST);
    return (char *)h + HEAD;
}

zt_err zt_replica_seal(struct zt_replica *r, zt_replica_whose whose, int slot,
                       int64_t step, size_t bytes, const char *text,
                       struct zt_fault *fault)
{
    struct area_head *h = head_of(r, whose, slot);

    if (bytes > r->cfg.data_bytes[whose] || strlen(text) >= sizeof(h->text))
        return zt_fault_set(fault, ZT_E_LIMIT,
                            "copies of the state in memory: where training stands takes "
                            "%zu bytes, more than there is room for",
                            strlen(text));
    h->layout = r->cfg.layout[whose];
    h->bytes = bytes;
    h->step = step;
    memset(h->text, 0, sizeof(h->text));
    memcpy(h->text, text, strlen(text));
    h->data_hash = zt_hash_bytes((char *)h + HEAD, bytes);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    h->magic = MAGIC;
    h->hash = head_hash(h);
    return ZT_OK;
}

int64_t zt_replica_step(const struct zt_replica *r, zt_replica_whose whose, int slot)
{
    const struct area_head *h;

    if (!r->cfg.data_bytes[whose])
        return -1;
    h = head_of(r, whose, slot);
    return h->magic == MAGIC && h->layout == r->cfg.layout[whose] &&
                   h->bytes <= r->cfg.data_bytes[whose] && h->hash == head_hash(h)
               ? h->step
               : -1;
}

bool zt_replica_is_whole(const struct zt_replica *r, zt_replica_whose whose, int slot)
{
    const struct area_head *h = head_of(r, whose, slot);

    return zt_hash_bytes((const char *)h + HEAD, h->bytes) == h->data_hash;
}

const char *zt_replica_text(const struct zt_replica *r, zt_replica_whose whose, int slot)
{
    return head_of(r, whose, slot)->text;
}

char *zt_replica_area(struct zt_replica *r, zt_replica_whose whose, int slot,
                      size_t *bytes)
{
    *bytes = zt_replica_area_bytes(r->cfg.data_bytes[whose]);
    return (char *)head_of(r, whose, slot);
}
