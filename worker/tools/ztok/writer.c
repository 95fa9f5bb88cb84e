#include "worker/tools/ztok/writer.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/checkpoint/atomic_file.h"

enum { HEADER = 34, I32 = 4, U16 = 8 };

static zt_err cannot(const struct zt_growing_file *g, struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_CANTCREATE, "%s: %s", g->partial, strerror(errno));
}

static zt_err no_memory(struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_NOMEM, "ztok: no memory");
}

static size_t width_of(const struct zt_ids_writer *w)
{
    return w->wide ? sizeof(int32_t) : sizeof(uint16_t);
}

/* ---- the note ---- */

static const char *const place_keys[] = {"file",  "bytes",    "tokens",
                                         "lines", "replaced", "empty"};
#define NUM_KEYS (sizeof(place_keys) / sizeof(*place_keys))

static int64_t *number_of(struct zt_ids_place *p, size_t key)
{
    int64_t *const all[NUM_KEYS] = {&p->file,  &p->bytes,    &p->tokens,
                                    &p->lines, &p->replaced, &p->empty};

    return all[key];
}

static bool read_hash(const json_t *note, const char *key, uint64_t *out)
{
    const char *text = json_string_value(json_object_get(note, key));
    char *end;

    if (!text || strlen(text) != 16)
        return false;
    *out = strtoull(text, &end, 16);
    return !*end;
}

static int64_t bytes_of(const struct zt_growing_file *g)
{
    struct stat st;

    return stat(g->partial, &st) ? -1 : (int64_t)st.st_size;
}

/* Both files are at least as far as the note says. */
static bool is_covered(const struct zt_ids_writer *w, const struct zt_ids_place *p)
{
    return p->tokens <= INT64_MAX / 4 && p->lines <= INT64_MAX / 8 &&
           bytes_of(&w->bin) >= p->tokens * (int64_t)width_of(w) &&
           bytes_of(&w->idx) >= HEADER + 4 * p->lines;
}

/* A note that is none, or of something else: it begins anew. */
static void read_note(struct zt_ids_writer *w)
{
    json_t *note = json_load_file(w->note, 0, NULL);
    struct zt_ids_place p = {0};
    uint64_t maker = 0;
    bool good = read_hash(note, "text", &p.text) && read_hash(note, "maker", &maker) &&
                maker == w->maker;

    for (size_t i = 0; i < NUM_KEYS; i++) {
        const json_t *v = json_object_get(note, place_keys[i]);

        *number_of(&p, i) = json_integer_value(v);
        good = good && json_is_integer(v) && json_integer_value(v) >= 0;
    }
    json_decref(note);
    if (good && is_covered(w, &p)) {
        w->at = p;
        w->noted = true;
    }
}

static char *text_of_note(struct zt_ids_writer *w)
{
    char text[17], maker[17];
    json_t *note;
    char *out;

    snprintf(text, sizeof(text), "%016" PRIx64, w->at.text);
    snprintf(maker, sizeof(maker), "%016" PRIx64, w->maker);
    note = json_pack("{s:s,s:s}", "text", text, "maker", maker);
    for (size_t i = 0; note && i < NUM_KEYS; i++) {
        if (json_object_set_new(note, place_keys[i],
                                json_integer(*number_of(&w->at, i)))) {
            json_decref(note);
            note = NULL;
        }
    }
    out = note ? json_dumps(note, JSON_COMPACT) : NULL;
    json_decref(note);
    return out;
}

static bool is_on_disk(const struct zt_growing_file *g)
{
    return fflush(g->f) == 0 && fdatasync(fileno(g->f)) == 0;
}

zt_err zt_ids_writer_note(struct zt_ids_writer *w, struct zt_fault *fault)
{
    struct zt_atomic_file f = {.fd = -1};
    char *text;
    zt_err rc;

    if (!is_on_disk(&w->bin))
        return cannot(&w->bin, fault);
    if (!is_on_disk(&w->idx))
        return cannot(&w->idx, fault);
    text = text_of_note(w);
    if (!text)
        return no_memory(fault);
    rc = zt_atomic_file_open(&f, w->note, 0, fault);
    if (!rc)
        rc = zt_atomic_file_write(&f, text, strlen(text), fault);
    if (!rc)
        rc = zt_atomic_file_publish(&f, fault);
    zt_atomic_file_release(&f);
    free(text);
    w->noted |= !rc;
    return rc;
}

/* ---- opening ---- */

static zt_err name_file(struct zt_growing_file *g, const char *stem, size_t n,
                        const char *end, struct zt_fault *fault)
{
    if (asprintf(&g->path, "%.*s%s", (int)n, stem, end) < 0) {
        g->path = NULL;
        return no_memory(fault);
    }
    if (asprintf(&g->partial, "%s.partial", g->path) < 0) {
        g->partial = NULL;
        return no_memory(fault);
    }
    return ZT_OK;
}

static zt_err refuse_existing(const struct zt_growing_file *g, struct zt_fault *fault)
{
    if (access(g->path, F_OK))
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_CANTCREATE,
                        "%s: is there already; remove it, or give another --out",
                        g->path);
}

static zt_err open_file(struct zt_growing_file *g, bool lock, struct zt_fault *fault)
{
    zt_err rc = refuse_existing(g, fault);
    int fd = rc ? -1 : open(g->partial, O_RDWR | O_CREAT | O_CLOEXEC, 0666);

    if (rc)
        return rc;
    if (fd >= 0 && lock && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
        close(fd);
        return zt_fault_set(fault, ZT_E_CANTCREATE,
                            "%s: another process is writing it; give another --out",
                            g->partial);
    }
    g->f = fd < 0 ? NULL : fdopen(fd, "r+");
    if (!g->f) {
        rc = cannot(g, fault);
        if (fd >= 0)
            close(fd);
        return rc;
    }
    /* who was faster may have ended between the two looks: then this is its file */
    return refuse_existing(g, fault);
}

zt_err zt_ids_writer_open(struct zt_ids_writer *w, const char *stem, size_t n, bool wide,
                          uint64_t maker, struct zt_fault *fault)
{
    zt_err rc;

    *w = (struct zt_ids_writer){.wide = wide, .maker = maker};
    rc = name_file(&w->bin, stem, n, ".bin", fault);
    if (!rc)
        rc = name_file(&w->idx, stem, n, ".idx", fault);
    if (!rc && asprintf(&w->note, "%.*s.note", (int)n, stem) < 0) {
        w->note = NULL;
        rc = no_memory(fault);
    }
    if (!rc)
        rc = open_file(&w->bin, true, fault);
    if (!rc)
        rc = open_file(&w->idx, false, fault);
    if (!rc)
        read_note(w);
    return rc;
}

static zt_err begin_file(struct zt_growing_file *g, int64_t bytes, struct zt_fault *fault)
{
    if (ftruncate(fileno(g->f), (off_t)bytes) || fseeko(g->f, (off_t)bytes, SEEK_SET))
        return cannot(g, fault);
    return ZT_OK;
}

zt_err zt_ids_writer_begin(struct zt_ids_writer *w, struct zt_fault *fault)
{
    zt_err rc;

    if (!w->at.lines) { /* an older note is of what is cut off here */
        unlink(w->note);
        w->noted = false;
    }
    rc = begin_file(&w->bin, w->at.tokens * (int64_t)width_of(w), fault);
    return rc ? rc : begin_file(&w->idx, HEADER + 4 * w->at.lines, fault);
}

/* ---- writing ---- */

static zt_err put(const struct zt_growing_file *g, const void *data, size_t bytes,
                  struct zt_fault *fault)
{
    return fwrite(data, 1, bytes, g->f) == bytes ? ZT_OK : cannot(g, fault);
}

static zt_err put_narrow(const struct zt_growing_file *g, const int32_t *ids, size_t num,
                         struct zt_fault *fault)
{
    uint16_t narrow[4096];
    zt_err rc = ZT_OK;

    for (size_t i = 0; !rc && i < num;) {
        size_t n = 0;

        while (n < sizeof(narrow) / sizeof(*narrow) && i < num)
            narrow[n++] = htole16((uint16_t)ids[i++]);
        rc = put(g, narrow, n * sizeof(*narrow), fault);
    }
    return rc;
}

static zt_err put_u32(const struct zt_growing_file *g, const uint32_t *values, size_t num,
                      struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (size_t i = 0; !rc && i < num; i++) {
        uint32_t v = htole32(values[i]);

        rc = put(g, &v, sizeof(v), fault);
    }
    return rc;
}

zt_err zt_ids_writer_put(struct zt_ids_writer *w, const int32_t *ids, size_t num,
                         const uint32_t *line_tokens, size_t num_lines,
                         struct zt_fault *fault)
{
    zt_err rc = w->wide
                    ? put_u32(&w->bin, (const uint32_t *)(const void *)ids, num, fault)
                    : put_narrow(&w->bin, ids, num, fault);

    if (!rc)
        rc = put_u32(&w->idx, line_tokens, num_lines, fault);
    w->at.tokens += (int64_t)num;
    w->at.lines += (int64_t)num_lines;
    return rc;
}

/* ---- the end ---- */

static zt_err put_u64(const struct zt_growing_file *g, uint64_t v, struct zt_fault *fault)
{
    v = htole64(v);
    return put(g, &v, sizeof(v), fault);
}

/* Lengths are there; where each line begins, and that each is a document, follow. */
static zt_err end_index(struct zt_ids_writer *w, struct zt_fault *fault)
{
    FILE *lengths = fopen(w->idx.partial, "re");
    uint64_t at = 0;
    zt_err rc = ZT_OK;

    if (!lengths || fflush(w->idx.f) || fseek(lengths, HEADER, SEEK_SET))
        rc = cannot(&w->idx, fault);
    for (int64_t i = 0; !rc && i < w->at.lines; i++) {
        uint32_t n;

        rc = put_u64(&w->idx, at, fault);
        if (!rc && fread(&n, sizeof(n), 1, lengths) != 1)
            rc = cannot(&w->idx, fault);
        else if (!rc)
            at += le32toh(n) * width_of(w);
    }
    for (int64_t i = 0; !rc && i <= w->at.lines; i++)
        rc = put_u64(&w->idx, (uint64_t)i, fault);
    if (lengths)
        fclose(lengths);
    return rc;
}

static zt_err put_header(struct zt_ids_writer *w, struct zt_fault *fault)
{
    uint8_t code = w->wide ? I32 : U16;
    zt_err rc = ZT_OK;

    if (fseek(w->idx.f, 0, SEEK_SET))
        return cannot(&w->idx, fault);
    rc = put(&w->idx, "MMIDIDX\0\0", 9, fault);
    if (!rc)
        rc = put_u64(&w->idx, 1, fault);
    if (!rc)
        rc = put(&w->idx, &code, 1, fault);
    if (!rc)
        rc = put_u64(&w->idx, (uint64_t)w->at.lines, fault);
    return rc ? rc : put_u64(&w->idx, (uint64_t)w->at.lines + 1, fault);
}

/* All of it on disk before it has its name. The first file keeps its lock until both have. */
static zt_err end_file(struct zt_growing_file *g, struct zt_fault *fault)
{
    return is_on_disk(g) && rename(g->partial, g->path) == 0 ? ZT_OK : cannot(g, fault);
}

zt_err zt_ids_writer_end(struct zt_ids_writer *w, struct zt_fault *fault)
{
    zt_err rc = end_index(w, fault);

    if (!rc)
        rc = put_header(w, fault);
    if (!rc && !is_on_disk(&w->idx))
        rc = cannot(&w->idx, fault);
    if (!rc)
        rc = end_file(&w->bin, fault);
    if (!rc)
        rc = end_file(&w->idx, fault);
    if (!rc) {
        unlink(w->note);
        w->noted = false;
    }
    return rc;
}

static void close_file(struct zt_growing_file *g, bool keep)
{
    if (g->f && !keep) /* not there any more where all went well */
        unlink(g->partial);
    if (g->f)
        fclose(g->f);
    free(g->path);
    free(g->partial);
    *g = (struct zt_growing_file){0};
}

void zt_ids_writer_close(struct zt_ids_writer *w)
{
    close_file(&w->idx, w->noted);
    close_file(&w->bin, w->noted); /* last: it holds the lock */
    free(w->note);
    w->note = NULL;
}
