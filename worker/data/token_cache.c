#include "worker/data/token_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/files/folders.h"
#include "common/log.h"

#define VERSION      4u              /* another one for other ids of the same text */
#define HEADER_BYTES ((size_t)65536) /* a multiple of the page size of any machine */

/* In the machine's byte order: on another machine it is none. */
struct header {
    uint64_t magic;
    uint32_t version, width;
    uint64_t num, num_lines, num_replaced, num_blank, vocab;
    uint64_t text_bytes, text_hash[2],
        way; /* way: of the tokenizer and what it is given */
    uint64_t ids_hash, lines_hash;
    uint64_t hash; /* of all before */
};

#define MAGIC 0x736e656b6f74747aull /* "zttokens" */

struct cache_entry {
    const struct zt_text_encoding *how;
    const struct zt_token_file *file;
    bool marks_context;
    struct header want; /* what is known before the ids are */
    char path[PATH_MAX], partial[PATH_MAX], lock_path[PATH_MAX];
    int lock; /* -1: none */
    struct zt_fault *fault;
};

static uint64_t hash_header(const struct header *h)
{
    return XXH3_64bits(h, offsetof(struct header, hash));
}

static zt_err cannot(struct zt_fault *fault, const char *what, const char *path)
{
    return zt_fault_set(fault, ZT_E_CANTCREATE, "--data_cache_dir: %s %s: %s", what, path,
                        strerror(errno));
}

static uint64_t hash_pair(const struct zt_text_pair *p, uint64_t hash)
{
    const char *const parts[] = {p->source, p->target, p->source_lang, p->target_lang,
                                 p->prefix};

    for (size_t i = 0; (p->source || p->prefix) && i < sizeof(parts) / sizeof(*parts);
         i++)
        hash = XXH3_64bits_withSeed(parts[i] ? parts[i] : "",
                                    parts[i] ? strlen(parts[i]) + 1 : 0, hash);
    return p->separate ? XXH3_64bits_withSeed("separate", 9, hash) : hash;
}

/* Columns, and what number each label has. */
static uint64_t hash_examples(const struct zt_example_spec *spec, uint64_t hash)
{
    const char *const columns[] = {spec->text, spec->pair, spec->label};
    const struct zt_labels *l = spec->labels;
    const uint32_t how[3] = {(uint32_t)spec->kind, spec->unlabelled,
                             (uint32_t)spec->unknown};

    hash = XXH3_64bits_withSeed(how, sizeof(how), hash);
    for (size_t i = 0; i < sizeof(columns) / sizeof(*columns); i++)
        hash = XXH3_64bits_withSeed(columns[i] ? columns[i] : "",
                                    columns[i] ? strlen(columns[i]) + 1 : 0, hash);
    for (int64_t i = 0; l && i < l->num; i++)
        hash = XXH3_64bits_withSeed(l->names[i], strlen(l->names[i]) + 1, hash);
    return hash;
}

#define RECORDS_VERSION 2 /* another one for other ids of the same records */

/* Text as it stands has the tokenizer's hash itself. */
static uint64_t hash_way(const struct cache_entry *e)
{
    uint64_t tokenizer = zt_tokenizer_fingerprint(e->how->tokenizer);
    const char *format = zt_token_format_name(e->file->format);
    const char *column = e->how->column ? e->how->column : "";
    const int32_t end[] = {
        zt_tokenizer_end(e->how->tokenizer), /* of pairs: not of its JSON */
        RECORDS_VERSION};

    if (e->how->rows.kind == ZT_ROWS_MASKED) /* its lines have no line feeds */
        tokenizer = XXH3_64bits_withSeed("masked", 6, tokenizer);
    if (e->file->format == ZT_TOKENS_TEXT)
        return tokenizer;
    tokenizer = XXH3_64bits_withSeed(end, sizeof(end), tokenizer);
    tokenizer = XXH3_64bits_withSeed(format, strlen(format) + 1, tokenizer);
    tokenizer = hash_pair(&e->how->pair, tokenizer);
    if (e->how->examples)
        tokenizer = hash_examples(e->how->examples, tokenizer);
    if (e->marks_context)
        tokenizer = XXH3_64bits_withSeed("context", 8, tokenizer);
    return XXH3_64bits_withSeed(column, strlen(column), tokenizer);
}

static zt_err name_entry(struct cache_entry *e)
{
    struct zt_mapping text = e->file->data;
    XXH128_hash_t hash = XXH3_128bits(text.data, text.bytes);
    const char *dir = e->how->cache_dir;
    char name[128];

    e->want = (struct header){
        .magic = MAGIC,
        .version = VERSION,
        .vocab = (uint64_t)zt_tokenizer_vocab(e->how->tokenizer),
        .width = (uint32_t)zt_token_bytes(zt_text_code(e->how, e->marks_context)),
        .text_bytes = text.bytes,
        .text_hash = {hash.low64, hash.high64},
        .way = hash_way(e)};
    snprintf(name, sizeof(name), "tokens-%016" PRIx64 "%016" PRIx64 "-%016" PRIx64 ".bin",
             hash.high64, hash.low64, e->want.way);
    if (snprintf(e->path, sizeof(e->path), "%s/%s", dir, name) >= PATH_MAX ||
        snprintf(e->partial, sizeof(e->partial), "%s/.%s.tmp", dir, name) >= PATH_MAX ||
        snprintf(e->lock_path, sizeof(e->lock_path), "%s/.%s.lock", dir, name) >=
            PATH_MAX)
        return zt_fault_set(e->fault, ZT_E_CANTCREATE,
                            "--data_cache_dir %s: the path is too long", dir);
    return ZT_OK;
}

/* ---- finding ---- */

/* Bytes of the ids, up to where lengths begin. */
static size_t ids_room(const struct header *h)
{
    return (h->num * h->width + 3) & ~(size_t)3;
}

static bool is_of(const struct header *h, const struct header *want, size_t bytes)
{
    return h->hash == hash_header(h) && h->magic == want->magic &&
           h->version == want->version && h->width == want->width &&
           h->vocab == want->vocab && h->text_bytes == want->text_bytes &&
           memcmp(h->text_hash, want->text_hash, sizeof(h->text_hash)) == 0 &&
           h->way == want->way && h->num <= SIZE_MAX / 16 &&
           h->num_lines <= SIZE_MAX / 16 &&
           bytes == HEADER_BYTES + ids_room(h) + h->num_lines * sizeof(uint32_t);
}

/* False: they are damaged, or there is no memory. */
static bool read_lengths(int fd, const struct header *h, uint32_t **out)
{
    size_t bytes = h->num_lines * sizeof(**out);
    uint32_t *lengths = malloc(bytes ? bytes : 1);
    size_t done = 0;

    while (lengths && done < bytes) {
        ssize_t n = pread(fd, (uint8_t *)lengths + done, bytes - done,
                          (off_t)(HEADER_BYTES + ids_room(h) + done));

        if (n <= 0 && !(n < 0 && errno == EINTR))
            break;
        done += n > 0 ? (size_t)n : 0;
    }
    if (!lengths || done < bytes || XXH3_64bits(lengths, bytes) != h->lines_hash) {
        free(lengths);
        return false;
    }
    *out = lengths;
    return true;
}

/* Whether the file is whole, and what it says; its ids mapped. */
static bool map_ids(int fd, const struct header *want, bool keeps_lengths,
                    struct zt_cached_tokens *out)
{
    uint32_t *lengths = NULL;
    struct header h;
    struct stat st;
    size_t bytes;
    void *ids = NULL;

    if (fstat(fd, &st) || pread(fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h) ||
        !is_of(&h, want, (size_t)st.st_size))
        return false;
    bytes = h.num * h.width;
    if (bytes)
        ids = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, (off_t)HEADER_BYTES);
    if (ids == MAP_FAILED)
        return false;
    if (XXH3_64bits(ids, bytes) != h.ids_hash ||
        (keeps_lengths && !read_lengths(fd, &h, &lengths))) {
        if (bytes)
            munmap(ids, bytes);
        return false;
    }
    *out = (struct zt_cached_tokens){.ids = {.data = ids, .bytes = bytes},
                                     .num = (int64_t)h.num,
                                     .width = h.width,
                                     .lengths = lengths,
                                     .num_lengths = lengths ? (int64_t)h.num_lines : 0,
                                     .counts = {h.num_replaced, h.num_blank}};
    return true;
}

static bool find(const struct cache_entry *e, bool warns, struct zt_cached_tokens *out)
{
    int fd = open(e->path, O_RDONLY | O_CLOEXEC);
    bool found;

    if (fd < 0)
        return false;
    found = map_ids(fd, &e->want, e->how->keeps_lengths, out);
    close(fd);
    if (!found && warns)
        zt_warn("data", "%s: is damaged, or another version's; its tokens are made again",
                e->path);
    return found;
}

/* ---- making ---- */

struct ids_writing {
    const struct cache_entry *e;
    FILE *f;
    XXH3_state_t *hash;
    uint64_t num;
    struct zt_buf lengths; /* uint32_t */
};

static zt_err put(struct ids_writing *w, const void *data, size_t bytes,
                  struct zt_fault *fault)
{
    if (XXH3_64bits_update(w->hash, data, bytes) != XXH_OK ||
        fwrite(data, 1, bytes, w->f) != bytes)
        return cannot(fault, "cannot write", w->e->partial);
    return ZT_OK;
}

static zt_err take(void *user, const int32_t *ids, size_t num,
                   const uint32_t *line_tokens, size_t num_lines, size_t bytes,
                   struct zt_fault *fault)
{
    struct ids_writing *w = user;
    uint16_t narrow[4096];
    zt_err rc = ZT_OK;

    (void)bytes;
    w->num += num;
    if (zt_buf_put(&w->lengths, line_tokens, num_lines * sizeof(*line_tokens)) != ZT_OK)
        return zt_fault_set(fault, ZT_E_NOMEM, "--data_cache_dir: no host memory");
    if (w->e->want.width == sizeof(*ids))
        return put(w, ids, num * sizeof(*ids), fault);
    for (size_t i = 0; !rc && i < num;) {
        size_t n = 0;

        while (n < sizeof(narrow) / sizeof(*narrow) && i < num)
            narrow[n++] = (uint16_t)ids[i++];
        rc = put(w, narrow, n * sizeof(*narrow), fault);
    }
    return rc;
}

static zt_err write_ids(struct ids_writing *w)
{
    static const char blank[HEADER_BYTES];
    const struct cache_entry *e = w->e;
    struct zt_lines_counts counts = {0};
    struct header h = e->want;
    zt_err rc = ZT_OK;

    if (fwrite(blank, 1, sizeof(blank), w->f) != sizeof(blank))
        return cannot(e->fault, "cannot write", e->partial);
    rc = zt_tokens_encode_into(e->file, e->how, take, w, &counts, e->fault);
    if (!rc)
        rc = zt_text_check_ids(e->file, e->how, (int64_t)w->num,
                               (const uint32_t *)(const void *)zt_buf_head(&w->lengths),
                               zt_buf_used(&w->lengths) / sizeof(uint32_t), e->fault);
    if (rc)
        return rc;
    h.num = w->num;
    h.num_lines = zt_buf_used(&w->lengths) / sizeof(uint32_t);
    h.num_replaced = counts.replaced;
    h.num_blank = counts.blank;
    h.ids_hash = XXH3_64bits_digest(w->hash);
    h.lines_hash = XXH3_64bits(zt_buf_head(&w->lengths), zt_buf_used(&w->lengths));
    h.hash = hash_header(&h);
    if (fwrite(blank, 1, ids_room(&h) - h.num * h.width, w->f) !=
            ids_room(&h) - h.num * h.width ||
        fwrite(zt_buf_head(&w->lengths), 1, zt_buf_used(&w->lengths), w->f) !=
            zt_buf_used(&w->lengths))
        return cannot(e->fault, "cannot write", e->partial);
    if (fflush(w->f) || pwrite(fileno(w->f), &h, sizeof(h), 0) != (ssize_t)sizeof(h) ||
        fsync(fileno(w->f)))
        rc = cannot(e->fault, "cannot write", e->partial);
    return rc;
}

static zt_err make(const struct cache_entry *e)
{
    struct ids_writing w = {.e = e, .hash = XXH3_createState()};
    zt_err rc = ZT_OK;
    int fd;

    zt_buf_init(&w.lengths, SIZE_MAX / 4);
    if (!w.hash || XXH3_64bits_reset(w.hash) != XXH_OK) {
        XXH3_freeState(w.hash);
        return zt_fault_set(e->fault, ZT_E_NOMEM, "--data_cache_dir: no host memory");
    }
    (void)unlink(e->partial); /* of a process that was killed */
    fd = open(e->partial, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    w.f = fd >= 0 ? fdopen(fd, "w+") : NULL;
    if (!w.f)
        rc = cannot(e->fault, "cannot make", e->partial);
    if (fd >= 0 && !w.f)
        close(fd);
    if (!rc)
        rc = write_ids(&w);
    if (w.f && fclose(w.f) && !rc)
        rc = cannot(e->fault, "cannot write", e->partial);
    if (!rc && rename(e->partial, e->path))
        rc = cannot(e->fault, "cannot name", e->path);
    if (rc)
        (void)unlink(e->partial);
    zt_buf_release(&w.lengths);
    XXH3_freeState(w.hash);
    return rc;
}

/* ---- one of the processes ---- */

static void lock(struct cache_entry *e)
{
    e->lock = open(e->lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    while (e->lock >= 0 && flock(e->lock, LOCK_EX))
        if (errno != EINTR) {
            close(e->lock);
            e->lock = -1;
        }
    if (e->lock < 0) /* whoever else does the same has a file of its own */
        snprintf(e->partial + strlen(e->partial), 16, ".%d", (int)getpid());
}

/* The file goes before the lock: those who wait for it look for the tokens first. */
static void unlock(struct cache_entry *e)
{
    if (e->lock < 0)
        return;
    (void)unlink(e->lock_path);
    close(e->lock);
}

static zt_err make_folder(const struct cache_entry *e)
{
    const char *dir = e->how->cache_dir;
    struct stat st;
    zt_err rc = zt_folders_make("--data_cache_dir", dir, NULL, e->fault);

    if (rc)
        return rc;
    if (stat(dir, &st) == 0 && S_ISDIR(st.st_mode))
        return ZT_OK;
    errno = ENOTDIR;
    return cannot(e->fault, "cannot use", dir);
}

zt_err zt_token_cache_get(const struct zt_text_encoding *how,
                          const struct zt_token_file *text, bool marks_context,
                          bool *found, struct zt_cached_tokens *out,
                          struct zt_fault *fault)
{
    struct cache_entry e = {.how = how,
                            .file = text,
                            .marks_context = marks_context,
                            .lock = -1,
                            .fault = fault};
    zt_err rc = name_entry(&e);

    *found = !rc && find(&e, how->cache_reads_only, out);
    if (rc || *found || how->cache_reads_only)
        return rc;
    rc = make_folder(&e);
    if (rc)
        return rc;
    lock(&e);
    *found = find(&e, true, out);
    if (!*found) {
        zt_info("data", "%s: its tokens are made, for %s", text->path, how->cache_dir);
        rc = make(&e);
        *found = !rc && find(&e, false, out);
        if (!rc && !*found)
            rc = zt_fault_set(fault, ZT_E_CANTCREATE,
                              "--data_cache_dir: %s cannot be read again", e.path);
    }
    unlock(&e);
    return rc;
}
