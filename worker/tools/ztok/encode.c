/*
 * encode.c -- text files to a Megatron dataset, with a note now and then from which the
 * same command goes on.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "common/files/folders.h"
#include "worker/records/foreign.h"
#include "worker/text/rows/lines.h"
#include "worker/tools/ztok/writer.h"
#include "worker/tools/ztok/ztok.h"

#define HEAD_BYTES ((size_t)4096)    /* of a file, which tell that it is binary */
#define NOTE_BYTES ((size_t)8 << 20) /* of text, from note to note */

struct encoding {
    struct zt_ids_writer out;
    struct zt_tokenizer *tokenizer;
    const char *const *names;
    struct zt_mapping *texts; /* (num) */
    int num;
    size_t total, before; /* bytes of all texts; of those that are done */
    const char *column;
    int threads;
    XXH3_state_t *done; /* of all text that is done */
    size_t since_note;  /* bytes of text */
    struct zt_lines_counts counts,
        counts_before; /* of this process; of the ones before */
    time_t told;
};

/* ---- progress ---- */

static void say_progress(struct encoding *e)
{
    time_t now = time(NULL);

    if (now < e->told + 2)
        return;
    e->told = now;
    fprintf(stderr, "ztok: %.1f %% of %.1f MB, %lld tokens\n",
            100.0 * (double)(e->before + (size_t)e->out.at.bytes) / (double)e->total,
            (double)e->total / 1e6, (long long)e->out.at.tokens);
}

/* Text of the file that is being done, up to `to`: it is done, and its pages may go. */
static void pass_text(struct encoding *e, size_t to)
{
    const struct zt_mapping *m = &e->texts[e->out.at.file];
    size_t from = (size_t)e->out.at.bytes;

    XXH3_64bits_update(e->done, m->data + from, to - from);
    zt_mapping_forget_part(m, from, to);
    e->out.at.bytes = (int64_t)to;
    e->since_note += to - from;
}

static void pass_end(struct encoding *e)
{
    size_t n = e->texts[e->out.at.file].bytes;

    XXH3_64bits_update(e->done, &n, sizeof(n));
    e->before += n;
    e->out.at.file++;
    e->out.at.bytes = 0;
}

static zt_err take(void *user, const int32_t *ids, size_t num,
                   const uint32_t *line_tokens, size_t num_lines, size_t bytes,
                   struct zt_fault *fault)
{
    struct encoding *e = user;
    zt_err rc = zt_ids_writer_put(&e->out, ids, num, line_tokens, num_lines, fault);

    if (rc)
        return rc;
    pass_text(e, bytes);
    say_progress(e);
    if (e->since_note < NOTE_BYTES)
        return ZT_OK;
    e->since_note = 0;
    e->out.at.text = XXH3_64bits_digest(e->done);
    e->out.at.replaced = (int64_t)(e->counts_before.replaced + e->counts.replaced);
    e->out.at.empty = (int64_t)(e->counts_before.blank + e->counts.blank);
    return zt_ids_writer_note(&e->out, fault);
}

/* ---- going on ---- */

/* The text up to the note is what it was. Else all begins anew. */
static bool is_same_text(struct encoding *e, const struct zt_ids_place *p)
{
    if (p->file >= e->num || (size_t)p->bytes > e->texts[p->file].bytes)
        return false;
    while (e->out.at.file < p->file) {
        pass_text(e, e->texts[e->out.at.file].bytes);
        pass_end(e);
    }
    pass_text(e, (size_t)p->bytes);
    return XXH3_64bits_digest(e->done) == p->text;
}

static zt_err go_on(struct encoding *e, struct zt_fault *fault)
{
    const struct zt_ids_place noted = e->out.at;

    XXH3_64bits_reset(e->done);
    e->out.at = (struct zt_ids_place){0};
    if (!noted.lines)
        return zt_ids_writer_begin(&e->out, fault);
    if (is_same_text(e, &noted)) {
        e->out.at = noted;
        e->counts_before = (struct zt_lines_counts){.replaced = (uint64_t)noted.replaced,
                                                    .blank = (uint64_t)noted.empty};
        fprintf(stderr, "ztok: going on behind line %lld of %s: %lld tokens are there\n",
                (long long)noted.lines, e->out.bin.partial, (long long)noted.tokens);
    } else {
        fprintf(stderr, "ztok: %s is of other text; beginning anew\n", e->out.note);
        XXH3_64bits_reset(e->done);
        e->out.at = (struct zt_ids_place){0};
        e->before = 0;
    }
    e->since_note = 0;
    return zt_ids_writer_begin(&e->out, fault);
}

/* ---- encoding ---- */

static zt_err encode_file(struct encoding *e, struct zt_fault *fault)
{
    const char *name = e->names[e->out.at.file];
    const struct zt_mapping *text = &e->texts[e->out.at.file];
    const struct zt_record_format *format = zt_record_format_of_file(name);
    struct zt_lines_job job = {.tokenizer = e->tokenizer,
                               .name = name,
                               .text = (const char *)text->data,
                               .n = text->bytes,
                               .from = (size_t)e->out.at.bytes,
                               .threads = e->threads,
                               .sink = take,
                               .user = e};

    if (job.from >= job.n)
        return ZT_OK;
    return format ? zt_lines_encode_records(&job, format, e->column, &e->counts, fault)
                  : zt_lines_encode(&job, &e->counts, fault);
}

static zt_err encode_files(struct encoding *e, struct zt_fault *fault)
{
    zt_err rc = go_on(e, fault);

    while (!rc && e->out.at.file < e->num) {
        rc = encode_file(e, fault);
        if (!rc) {
            pass_text(e, e->texts[e->out.at.file].bytes);
            pass_end(e);
        }
    }
    if (!rc && !e->out.at.tokens)
        rc = zt_fault_set(fault, ZT_E_FORMAT, "%s: no tokens in all of the text",
                          e->names[0]);
    return rc;
}

static void say_result(const struct encoding *e)
{
    uint64_t replaced = e->counts_before.replaced + e->counts.replaced;
    uint64_t empty = e->counts_before.blank + e->counts.blank;

    printf("%s: %lld tokens of %lld lines, %s; %" PRIu64 " places that were no UTF-8",
           e->out.bin.path, (long long)e->out.at.tokens, (long long)e->out.at.lines,
           e->out.wide ? "i32" : "u16", replaced);
    if (empty)
        printf("; %" PRIu64 " empty lines passed over", empty);
    putchar('\n');
}

/* ---- the whole ---- */

zt_err zt_ztok_open_text(const char *name, struct zt_mapping *out, struct zt_fault *fault)
{
    zt_err rc = zt_data_file_open(name, out, fault);
    size_t head = out->bytes < HEAD_BYTES ? out->bytes : HEAD_BYTES;
    const char *what = rc ? NULL : zt_foreign_data(*out);

    if (what)
        rc = zt_fault_set(fault, ZT_E_FORMAT, "%s: looks like %s", name, what);
    else if (!rc && head && memchr(out->data, 0, head))
        rc = zt_fault_set(fault, ZT_E_FORMAT,
                          "%s: holds zero bytes, so it is no plain text", name);
    if (rc)
        zt_mapping_release(out);
    return rc;
}

static zt_err open_texts(struct encoding *e, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    e->texts = calloc((size_t)e->num, sizeof(*e->texts));
    e->done = XXH3_createState();
    if (!e->texts || !e->done)
        return zt_fault_set(fault, ZT_E_NOMEM, "ztok: no memory");
    for (int i = 0; !rc && i < e->num; i++) {
        struct zt_mapping *m = &e->texts[i];

        rc = zt_ztok_open_text(e->names[i], m, fault);
        e->total += m->bytes;
    }
    return rc;
}

/* The same text becomes the same ids where this is the same: by the tokenizer, the column, and
 * what the names say that the files are. */
static uint64_t hash_of_maker(const struct encoding *e)
{
    XXH3_state_t *state = e->done; /* which is begun when text is read */
    const char *column = e->column ? e->column : "";

    XXH3_64bits_reset_withSeed(state, zt_tokenizer_fingerprint(e->tokenizer) +
                                          (e->column != NULL));
    XXH3_64bits_update(state, column, strlen(column));
    for (int i = 0; i < e->num; i++) {
        const struct zt_record_format *format = zt_record_format_of_file(e->names[i]);
        const char *name = format ? zt_record_format_name(format) : "text";

        XXH3_64bits_update(state, name, strlen(name) + 1);
    }
    return XXH3_64bits_digest(state);
}

zt_err zt_ztok_check_column(const char *column, const char *const *names, int num,
                            struct zt_fault *fault)
{
    bool has_records = !column;

    for (int i = 0; !has_records && i < num; i++)
        has_records = zt_record_format_of_file(names[i]) != NULL;
    return has_records
               ? ZT_OK
               : zt_fault_set(fault, ZT_E_USAGE,
                              "--text_column %s: it is of records (.jsonl, .json, .csv, "
                              ".tsv), and none of the files are such: leave it out",
                              column);
}

/* What is written, the first n characters of `out` and its ends, is none of the texts. */
static zt_err check_not_among(const struct encoding *e, const char *out, size_t n,
                              struct zt_fault *fault)
{
    static const char *const ends[] = {".bin", ".idx"};
    char path[PATH_MAX];

    for (int i = 0; i < 2 * e->num; i++) {
        snprintf(path, sizeof(path), "%.*s%s", (int)n, out, ends[i % 2]);
        if (zt_is_one_file(path, e->names[i / 2]))
            return zt_fault_set(fault, ZT_E_USAGE,
                                "--out %s: %s would be written, and is one of the texts; "
                                "give another",
                                out, path);
    }
    return ZT_OK;
}

static zt_err encode_all(struct encoding *e, const char *folder, const char *out,
                         struct zt_fault *fault)
{
    size_t n = strlen(out);
    zt_err rc = open_texts(e, fault);

    if (n > 4 && strcmp(out + n - 4, ".bin") == 0)
        n -= 4;
    if (!rc)
        rc = check_not_among(e, out, n, fault);
    if (!rc)
        rc = zt_tokenizer_open(folder, &e->tokenizer, fault);
    if (!rc)
        rc = zt_ids_writer_open(&e->out, out, n,
                                zt_tokenizer_vocab(e->tokenizer) > UINT16_MAX + 1,
                                hash_of_maker(e), fault);
    if (!rc)
        rc = encode_files(e, fault);
    if (!rc)
        rc = zt_ids_writer_end(&e->out, fault);
    if (!rc)
        say_result(e);
    else if (e->out.noted)
        fprintf(stderr,
                "ztok: what is done stays in %s: the same command goes on there\n",
                e->out.bin.partial);
    return rc;
}

zt_err zt_ztok_encode(const zt_args *args, const char *const *words, int num_words,
                      struct zt_fault *fault)
{
    const char *folder = zt_args_string(args, "tokenizer");
    const char *out = zt_args_string(args, "out");
    struct encoding e = {.names = words,
                         .num = num_words,
                         .column = zt_args_string(args, "text_column"),
                         .threads = (int)zt_args_int(args, "threads"),
                         .told = time(NULL)};
    zt_err rc;

    if (!folder || !out)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "%s missing, as in: ztok FILE... --tokenizer FOLDER --out "
                            "train.bin",
                            out      ? "--tokenizer is"
                            : folder ? "--out is"
                                     : "--tokenizer and --out are");
    if (!*out || out[strlen(out) - 1] == '/')
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--out \"%s\": name a file, as in --out %strain.bin", out,
                            out);
    rc = zt_ztok_check_column(e.column, words, num_words, fault);
    if (rc)
        return rc;
    rc = encode_all(&e, folder, out, fault);
    zt_ids_writer_close(&e.out);
    zt_tokenizer_close(e.tokenizer);
    for (int i = 0; e.texts && i < e.num; i++)
        zt_mapping_release(&e.texts[i]);
    free(e.texts);
    XXH3_freeState(e.done);
    return rc;
}
