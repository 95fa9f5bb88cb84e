/*
 * write.c -- the trace event format, as a part of one rank and as the whole.
 *
 *      {"otherData":{...},"displayTimeUnit":"ms","traceEvents":[      the head
 *      {"ph":"M",...},                                                 an event a line
 *      {"ph":"X",...}
 *      ]}                                                              the tail
 *
 * Line by line, so merging reads heads, adds up what they tell, and copies what lies
 * between heads and tails.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "common/json/line.h"
#include "common/mapped_file.h"
#include "common/trace/private.h"

static const char head_open[] = "{\"otherData\":";
static const char head_end[] = ",\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
static const char tail[] = "\n]}\n";

/* ---- a file that appears whole ---- */

struct out {
    FILE *f;
    char *path, *tmp; /* tmp: until it is renamed to path */
    int error;        /* errno of the first write that failed */
};

static zt_err out_failed(const struct out *o, const char *path, struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_CANTCREATE,
                        "timeline %s: cannot write: %s; make room or choose another "
                        "folder",
                        path, strerror(o->error));
}

static void out_release(struct out *o)
{
    if (o->f)
        fclose(o->f);
    if (o->tmp)
        unlink(o->tmp);
    free(o->tmp);
    free(o->path);
    *o = (struct out){0};
}

static zt_err out_open(struct out *o, const char *path, struct zt_fault *fault)
{
    zt_err rc;
    int fd;

    *o = (struct out){.path = strdup(path)};
    if (!o->path || asprintf(&o->tmp, "%s.tmp", path) < 0) {
        o->tmp = NULL;
        out_release(o);
        return zt_fault_set(fault, ZT_E_NOMEM, "timeline %s: no memory", path);
    }
    /* in a folder that others may write to, the name may be a link that waits for us */
    fd = open(o->tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    o->f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (o->f)
        return ZT_OK;
    o->error = errno;
    if (fd >= 0)
        close(fd);
    rc = out_failed(o, path, fault);
    out_release(o);
    return rc;
}

static void out_bytes(struct out *o, const void *data, size_t n)
{
    if (!o->error && n && fwrite(data, 1, n, o->f) != n)
        o->error = errno ? errno : EIO;
}

static void out_print(struct out *o, const char *fmt, ...) ZT_PRINTF(2, 3);
static void out_print(struct out *o, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (!o->error && vfprintf(o->f, fmt, ap) < 0)
        o->error = errno ? errno : EIO;
    va_end(ap);
}

/* Close and take the name; releases `o` in any case. */
static zt_err out_publish(struct out *o, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    if (fclose(o->f) && !o->error)
        o->error = errno;
    o->f = NULL;
    if (!o->error && rename(o->tmp, o->path) < 0)
        o->error = errno;
    if (o->error) {
        rc = out_failed(o, o->path, fault);
    } else {
        free(o->tmp);
        o->tmp = NULL;
    }
    out_release(o);
    return rc;
}

/* ---- the part of a rank ---- */

char *zt_trace_part_path(const char *path, int rank)
{
    char *part;

    return asprintf(&part, "%s.rank%d", path, rank) < 0 ? NULL : part;
}

/* A JSON string with its quotes; text that needs escapes goes through jansson. */
static void put_text(struct out *o, const char *text)
{
    size_t n = strlen(text);
    json_t *s;
    char *quoted;

    for (size_t i = 0; i <= n; i++) {
        unsigned char c = (unsigned char)text[i];

        if (i == n) {
            out_print(o, "\"%s\"", text);
            return;
        }
        if (c < 0x20 || c > 0x7e || c == '"' || c == '\\')
            break;
    }
    s = zt_json_text(text, n);
    quoted = s ? json_dumps(s, JSON_ENCODE_ANY) : NULL;
    out_print(o, "%s", quoted ? quoted : "\"?\"");
    free(quoted);
    json_decref(s);
}

/* "rank 0"'s thread "comm"; tid < 0: the process. */
static void put_name(struct out *o, int rank, int tid, const char *name)
{
    out_print(o,
              "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"args\":{\"name\":",
              rank, tid < 0 ? 0 : tid, tid < 0 ? "process_name" : "thread_name");
    put_text(o, name);
    out_print(o, "}}");
}

static void put_order(struct out *o, int rank, int tid)
{
    out_print(o,
              ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s_sort_index\","
              "\"args\":{\"sort_index\":%d}}",
              rank, tid < 0 ? 0 : tid, tid < 0 ? "process" : "thread",
              tid < 0 ? rank : tid);
}

static void put_time(struct out *o, const char *key, int64_t ns)
{
    out_print(o, ",\"%s\":%" PRId64 ".%03d", key, ns / 1000, (int)(ns % 1000));
}

static void put_event(struct out *o, const struct zt_trace_source *src, int tid,
                      const struct zt_trace_event *e)
{
    int64_t took = atomic_load_explicit(&e->took_ns, memory_order_relaxed);

    out_print(o, ",\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d",
              took == ZT_TRACE_INSTANT ? "i\",\"s\":\"t" : "X", src->rank, tid);
    put_time(o, "ts", e->start_ns);
    if (took == ZT_TRACE_OPEN) /* one that began after the close has no length */
        took = src->now_ns > e->start_ns ? src->now_ns - e->start_ns : 0;
    if (took >= 0)
        put_time(o, "dur", took);
    out_print(o, ",\"cat\":");
    put_text(o, e->category);
    out_print(o, ",\"name\":");
    put_text(o, e->name);
    if (e->key) {
        out_print(o, ",\"args\":{");
        put_text(o, e->key);
        out_print(o, ":%" PRId64 "}", e->value);
    }
    out_print(o, "}");
}

static const char *track_name(const struct zt_track *t, char buf[32])
{
    const char *name = atomic_load(&t->name);

    snprintf(buf, 32, "thread %d", t->tid);
    return name ? name : buf;
}

static void put_track(struct out *o, const struct zt_trace_source *src,
                      const struct zt_track *t)
{
    uint64_t dropped = atomic_load_explicit(&t->dropped, memory_order_acquire);
    uint32_t num = atomic_load_explicit(&t->num, memory_order_acquire);
    char buf[32];

    out_print(o, ",\n");
    put_name(o, src->rank, t->tid, track_name(t, buf));
    put_order(o, src->rank, t->tid);
    for (uint32_t i = 0; i < num; i++)
        put_event(o, src, t->tid, &t->chunks[i / ZT_TRACE_CHUNK][i % ZT_TRACE_CHUNK]);
    if (!dropped)
        return;
    out_print(o, ",\n{\"ph\":\"i\",\"s\":\"t\",\"pid\":%d,\"tid\":%d", src->rank, t->tid);
    put_time(o, "ts", atomic_load(&t->dropped_ns));
    out_print(o,
              ",\"cat\":\"trace\",\"name\":\"recording ends: no room\",\"args\":{"
              "\"dropped\":%" PRIu64 "}}",
              dropped);
}

static bool add_dropped(json_t *list, int rank, const char *thread, uint64_t events)
{
    json_t *text = zt_json_text(thread, strlen(thread));
    json_t *one = text ? json_pack("{s:i, s:o, s:I}", "rank", rank, "thread", text,
                                   "events", (json_int_t)events)
                       : NULL;

    return json_array_append_new(list, one) == 0;
}

/* One object per thread that dropped events: {"rank", "thread", "events"}. */
static json_t *dropped_list(const struct zt_trace_source *src)
{
    json_t *list = json_array();
    bool ok = list != NULL;
    char buf[32];

    for (const struct zt_track *t = src->tracks; ok && t; t = t->next) {
        uint64_t n = atomic_load_explicit(&t->dropped, memory_order_acquire);

        ok = !n || add_dropped(list, src->rank, track_name(t, buf), n);
    }
    if (ok && src->lost)
        ok = add_dropped(list, src->rank, "others", src->lost);
    if (!ok) {
        json_decref(list);
        return NULL;
    }
    return list;
}

/* Takes the reference of `dropped`. */
static zt_err put_head(struct out *o, int world, json_t *dropped, struct zt_fault *fault)
{
    json_t *data = dropped ? json_pack("{s:i, s:s, s:i, s:o}", "ranks", world, "clock",
                                       "CLOCK_MONOTONIC", "max_events_of_a_thread",
                                       ZT_TRACE_MAX_EVENTS, "dropped_events", dropped)
                           : NULL;
    char *text = data ? json_dumps(data, JSON_COMPACT) : NULL;

    json_decref(data);
    if (!text)
        return zt_fault_set(fault, ZT_E_NOMEM, "timeline %s: no memory", o->path);
    out_print(o, "%s%s%s", head_open, text, head_end);
    free(text);
    return ZT_OK;
}

static void put_tracks(struct out *o, const struct zt_trace_source *src)
{
    char name[32];

    snprintf(name, sizeof(name), "rank %d", src->rank);
    put_name(o, src->rank, -1, name);
    put_order(o, src->rank, -1);
    for (const struct zt_track *t = src->tracks; t; t = t->next)
        put_track(o, src, t);
    out_bytes(o, tail, sizeof(tail) - 1);
}

zt_err zt_trace_write(const struct zt_trace_source *src, struct zt_fault *fault)
{
    char *part = zt_trace_part_path(src->path, src->rank);
    struct out o;
    zt_err rc;

    if (!part)
        return zt_fault_set(fault, ZT_E_NOMEM, "timeline %s: no memory", src->path);
    rc = out_open(&o, part, fault);
    free(part);
    if (rc)
        return rc;
    rc = put_head(&o, src->world, dropped_list(src), fault);
    if (rc) {
        out_release(&o);
        return rc;
    }
    put_tracks(&o, src);
    return out_publish(&o, fault);
}

/* ---- the whole ---- */

struct trace_part {
    char *path;
    struct zt_mapping map;
    size_t body, body_bytes; /* the events */
};

/* The head as JSON, and where the events are; NULL: this is not a whole part. */
static json_t *read_head(struct trace_part *p)
{
    const size_t open_bytes = sizeof(head_open) - 1, tail_bytes = sizeof(tail) - 1;
    const char *text = (const char *)p->map.data, *end;
    size_t n = p->map.bytes;

    if (!text || n < open_bytes || memcmp(text, head_open, open_bytes) != 0)
        return NULL;
    end = memmem(text, n, head_end, sizeof(head_end) - 1);
    if (!end)
        return NULL;
    p->body = (size_t)(end - text) + sizeof(head_end) - 1;
    if (n - p->body < tail_bytes || memcmp(text + n - tail_bytes, tail, tail_bytes) != 0)
        return NULL;
    p->body_bytes = n - tail_bytes - p->body;
    return zt_json_object(text + open_bytes, (size_t)(end - text) - open_bytes);
}

/* Find the events of a part, and append what it dropped to `dropped`. */
static zt_err read_part(struct trace_part *p, json_t *dropped, struct zt_fault *fault)
{
    json_t *head = read_head(p), *list = json_object_get(head, "dropped_events");
    zt_err rc = ZT_OK;

    if (!json_is_array(list))
        rc = zt_fault_set(fault, ZT_E_FORMAT,
                          "timeline %s: is not a whole part of a timeline", p->path);
    else if (json_array_extend(dropped, list))
        rc = zt_fault_set(fault, ZT_E_NOMEM, "timeline %s: no memory", p->path);
    json_decref(head);
    return rc;
}

static zt_err open_part(struct trace_part *p, const char *path, int rank, json_t *dropped,
                        struct zt_fault *fault)
{
    zt_err rc;

    p->path = zt_trace_part_path(path, rank);
    if (!p->path)
        return zt_fault_set(fault, ZT_E_NOMEM, "timeline %s: no memory", path);
    rc = zt_mapping_open(p->path, &p->map, fault);
    if (rc)
        return zt_fault_context(fault, rc,
                                "the timeline of rank %d cannot be read (ranks of other "
                                "nodes must share its folder)",
                                rank);
    return read_part(p, dropped, fault);
}

static zt_err merge_parts(const char *path, struct trace_part *parts, int world,
                          struct zt_fault *fault)
{
    json_t *dropped = json_array();
    zt_err rc =
        dropped ? ZT_OK : zt_fault_set(fault, ZT_E_NOMEM, "timeline %s: no memory", path);
    struct out o;

    for (int r = 0; !rc && r < world; r++)
        rc = open_part(&parts[r], path, r, dropped, fault);
    if (!rc)
        rc = out_open(&o, path, fault);
    if (rc) {
        json_decref(dropped);
        return rc;
    }
    rc = put_head(&o, world, dropped, fault);
    if (rc) {
        out_release(&o);
        return rc;
    }
    for (int r = 0; r < world; r++) {
        out_bytes(&o, ",\n", r ? 2 : 0);
        out_bytes(&o, parts[r].map.data + parts[r].body, parts[r].body_bytes);
    }
    out_bytes(&o, tail, sizeof(tail) - 1);
    return out_publish(&o, fault);
}

zt_err zt_trace_merge(const char *path, int world, struct zt_fault *fault)
{
    struct trace_part *parts;
    zt_err rc;

    if (!path)
        return ZT_OK;
    parts = calloc((size_t)world, sizeof(*parts));
    if (!parts)
        return zt_fault_set(fault, ZT_E_NOMEM, "timeline %s: no memory", path);
    rc = merge_parts(path, parts, world, fault);
    for (int r = 0; r < world; r++) {
        zt_mapping_release(&parts[r].map);
        if (!rc)
            unlink(parts[r].path);
        free(parts[r].path);
    }
    free(parts);
    return rc;
}
