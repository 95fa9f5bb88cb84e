/*
 * text_file.c -- the ids of a text file, by a tokenizer, in memory of this process or from
 * a cache.
 *
 * They are kept as narrow as the vocabulary allows, in a mapping that takes the file's place:
 * what is hashed, and compared over ranks, are the ids, wherever they come from.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "worker/data/dataset.h"
#include "worker/data/token_cache.h"
#include "worker/text/rows/lines.h"

struct filling {
    const char *path;
    uint8_t *ids; /* (room bytes) */
    size_t used, room, width;
    int64_t num;
    bool keeps_lengths;
    struct zt_buf lengths; /* uint32_t: of lines or rows */
};

static zt_err grow(struct filling *f, size_t bytes, struct zt_fault *fault)
{
    size_t room = f->room ? f->room : (size_t)1 << 20;
    void *more;

    if (bytes <= f->room - f->used)
        return ZT_OK;
    while (room - f->used < bytes)
        room += room / 2;
    room = (room + 4095) & ~(size_t)4095;
    more = f->room ? mremap(f->ids, f->room, room, MREMAP_MAYMOVE)
                   : mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                          -1, 0);
    if (more == MAP_FAILED)
        return zt_fault_set(fault, ZT_E_NOMEM,
                            "%s: no memory for its tokens (%zu MiB so far); ztok writes "
                            "them to a file once",
                            f->path, f->used >> 20);
    f->ids = more;
    f->room = room;
    return ZT_OK;
}

static zt_err take(void *user, const int32_t *ids, size_t num,
                   const uint32_t *line_tokens, size_t num_lines, size_t bytes,
                   struct zt_fault *fault)
{
    struct filling *f = user;
    zt_err rc = grow(f, num * f->width, fault);

    (void)bytes;
    if (!rc && f->keeps_lengths &&
        zt_buf_put(&f->lengths, line_tokens, num_lines * sizeof(*line_tokens)) != ZT_OK)
        rc = zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory for its rows", f->path);
    if (rc || !num)
        return rc;
    if (f->width == sizeof(*ids)) {
        memcpy(f->ids + f->used, ids, num * sizeof(*ids));
    } else {
        uint16_t *to = (uint16_t *)(void *)(f->ids + f->used);

        for (size_t i = 0; i < num; i++)
            to[i] = (uint16_t)ids[i];
    }
    f->used += num * f->width;
    f->num += (int64_t)num;
    return ZT_OK;
}

static const struct zt_record_format *format_of(const struct zt_token_file *file)
{
    return zt_record_format_named(zt_token_format_name(file->format));
}

/* Whether the first line of text, as opposed to records, ends with a carriage return; *alone: and
 * no line feed follows anywhere. */
static bool has_carriage_returns(const struct zt_token_file *file, bool *alone)
{
    const char *text = (const char *)file->data.data;
    const char *end = memchr(text, '\n', file->data.bytes);

    *alone = !end;
    if (format_of(file))
        return false;
    return end ? end > text && end[-1] == '\r'
               : memchr(text, '\r', file->data.bytes) != NULL;
}

/* The ids take the text's place. */
static void set_ids(struct zt_token_file *file, const struct zt_text_encoding *how,
                    const struct zt_cached_tokens *ids, bool marks_context)
{
    file->carriage_returns =
        how->tokenizer && has_carriage_returns(file, &file->no_line_feeds);
    zt_mapping_release(&file->data);
    file->lengths = ids->lengths;
    file->num_lengths = ids->num_lengths;
    file->data = ids->ids;
    file->encoded = true;
    file->bytes = !how->tokenizer;
    file->num_replaced += ids->counts.replaced;
    file->num_blank += ids->counts.blank;
    file->vocab = zt_text_vocab(how);
    file->runs[0] = (struct zt_token_run){
        .data = ids->ids.data, .n = ids->num, .code = zt_text_code(how, marks_context)};
    file->num_runs = ids->num > 0;
}

zt_err zt_text_check_ids(const struct zt_token_file *file,
                         const struct zt_text_encoding *how, int64_t num,
                         const uint32_t *lengths, size_t num_lengths,
                         struct zt_fault *fault)
{
    struct zt_example first;
    int64_t a, b;

    if (num)
        return ZT_OK;
    if (how->rows.kind == ZT_ROWS_EXAMPLES && num_lengths >= ZT_EXAMPLE_WORDS) {
        memcpy(&first, lengths, sizeof(first));
        if (zt_example_cut(&how->rows, &first, 1, &a, &b))
            return ZT_OK;
    }
    return zt_fault_set(fault, ZT_E_FORMAT, "%s: holds no tokens", file->path);
}

int64_t zt_text_vocab(const struct zt_text_encoding *how)
{
    return how->tokenizer ? zt_tokenizer_vocab(how->tokenizer) : ZT_TEXT_VOCAB;
}

zt_token_code zt_text_code(const struct zt_text_encoding *how, bool marks_context)
{
    int64_t vocab = zt_text_vocab(how);

    if (marks_context)
        return vocab <= INT16_MAX + 1 ? ZT_TOKEN_I16_CONTEXT : ZT_TOKEN_I32_CONTEXT;
    return vocab <= UINT16_MAX + 1 ? ZT_TOKEN_U16 : ZT_TOKEN_I32;
}

static struct zt_lines_job job_of(const struct zt_token_file *file,
                                  const struct zt_text_encoding *how)
{
    return (struct zt_lines_job){.tokenizer = how->tokenizer,
                                 .end = ZT_TEXT_END,
                                 .name = file->path,
                                 .text = (const char *)file->data.data,
                                 .n = file->data.bytes,
                                 .pair = how->pair,
                                 .examples = how->examples,
                                 .masked = how->rows.kind == ZT_ROWS_MASKED,
                                 .answers_only = how->answers_only,
                                 .threads = how->threads};
}

/* Which columns its rows come from, and whether some ids are context, given as ~id. */
static zt_err find_columns(struct zt_token_file *file, const struct zt_text_encoding *how,
                           bool *marks_context, struct zt_fault *fault)
{
    const struct zt_record_format *format = format_of(file);
    struct zt_lines_job job = job_of(file, how);
    zt_err rc =
        format ? zt_lines_find_columns(&job, format, how->column, &file->columns, fault)
               : ZT_OK;

    *marks_context = !rc && format && zt_lines_mark_context(&job, &file->columns);
    return rc;
}

zt_err zt_tokens_encode_into(const struct zt_token_file *file,
                             const struct zt_text_encoding *how, zt_lines_sink sink,
                             void *user, struct zt_lines_counts *counts,
                             struct zt_fault *fault)
{
    const struct zt_record_format *format = format_of(file);
    struct zt_lines_job job = job_of(file, how);

    job.sink = sink;
    job.user = user;
    return format ? zt_lines_encode_records(&job, format, how->column, counts, fault)
                  : zt_lines_encode(&job, counts, fault);
}

static zt_err take_lengths(const struct zt_buf *lengths, struct zt_cached_tokens *out,
                           struct zt_fault *fault)
{
    size_t bytes = zt_buf_used(lengths);

    if (!bytes)
        return ZT_OK;
    out->lengths = malloc(bytes);
    if (!out->lengths)
        return zt_fault_set(fault, ZT_E_NOMEM, "data files: no memory");
    memcpy(out->lengths, zt_buf_head(lengths), bytes);
    out->num_lengths = (int64_t)(bytes / sizeof(*out->lengths));
    return ZT_OK;
}

static zt_err encode_in_memory(const struct zt_token_file *file,
                               const struct zt_text_encoding *how, bool marks_context,
                               struct zt_cached_tokens *out, struct zt_fault *fault)
{
    struct filling f = {.path = file->path,
                        .width = zt_token_bytes(zt_text_code(how, marks_context)),
                        .keeps_lengths = how->keeps_lengths};
    struct zt_lines_counts counts = {0};
    zt_err rc;

    zt_buf_init(&f.lengths, SIZE_MAX / 4);
    rc = zt_tokens_encode_into(file, how, take, &f, &counts, fault);
    if (!rc)
        rc = take_lengths(&f.lengths, out, fault);
    zt_buf_release(&f.lengths);
    if (!rc)
        rc = zt_text_check_ids(file, how, f.num, out->lengths, (size_t)out->num_lengths,
                               fault);
    if (rc) {
        if (f.room)
            munmap(f.ids, f.room);
        free(out->lengths);
        out->lengths = NULL;
        return rc;
    }
    /* what is left of the last growth was never touched, but for its first page */
    if (f.room)
        munmap(f.ids + ((f.used + 4095) & ~(size_t)4095),
               f.room - ((f.used + 4095) & ~(size_t)4095));
    *out = (struct zt_cached_tokens){.ids = {.data = f.ids, .bytes = f.used},
                                     .num = f.num,
                                     .width = f.width,
                                     .lengths = out->lengths,
                                     .num_lengths = out->num_lengths,
                                     .counts = counts};
    return ZT_OK;
}

zt_err zt_tokens_encode_text(struct zt_token_file *file,
                             const struct zt_text_encoding *how, struct zt_fault *fault)
{
    struct zt_cached_tokens ids = {0};
    bool found = false, marks_context = false;
    zt_err rc = find_columns(file, how, &marks_context, fault);

    if (!rc && how->cache_dir && how->tokenizer)
        rc = zt_token_cache_get(how, file, marks_context, &found, &ids, fault);
    if (!rc && !found)
        rc = encode_in_memory(file, how, marks_context, &ids, fault);
    if (!rc)
        set_ids(file, how, &ids, marks_context);
    return rc;
}
