/*
 * main.c -- ztok: text files as token ids, once, for runs that read them (docs/DATA.md).
 *
 *      OUT.bin   the ids of all lines, one behind the other
 *      OUT.idx   Megatron's index of them: a line is a sequence, and a document
 *
 * With --train it makes a tokenizer of them first of all: OUT/tokenizer.json.
 *
 * The ids are those that --train_file makes of the same text. Both files grow under names
 * that end in .partial; the index is renamed last, so where it is, all of it is.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/mapped_file.h"
#include "worker/checkpoint/hf_folder.h"
#include "worker/text/rows/lines.h"
#include "worker/text/train/byte_bpe.h"
#include "worker/tools/tool.h"

#define HEAD_BYTES ((size_t)4096) /* of a file, which tell that it is binary */

enum { HEADER = 34, I32 = 4, U16 = 8 };

static const struct zt_option options[] = {
    {.name = "tokenizer",
     .kind = ZT_OPT_STRING,
     .letter = 't',
     .value = "FOLDER",
     .flags = ZT_OPTION_PATH,
     .help = "the Hugging Face folder whose tokenizer it is"},
    {.name = "out",
     .kind = ZT_OPT_STRING,
     .letter = 'o',
     .value = "FILE",
     .flags = ZT_OPTION_PATH,
     .help =
         "FILE.bin, or FILE alone; the index lies beside it as FILE.idx; with --train "
         "a folder"},
    {.name = "train",
     .kind = ZT_OPT_INT,
     .value = "N",
     .def = "0",
     .max = 1 << 24,
     .help =
         "make a byte-level BPE tokenizer of N tokens from the files: tokenizer.json in "
         "the folder --out"},
    {.name = "text_column",
     .kind = ZT_OPT_STRING,
     .value = "NAME",
     .help = "the column of records (.jsonl, .json, .csv, .tsv) that holds the text; "
             "without it text, else the only one with text"},
    {.name = "threads",
     .kind = ZT_OPT_INT,
     .value = "N",
     .def = "0",
     .max = 256,
     .help = "threads; 0: one for each processor that it may use"},
    {.name = NULL},
};

/* One of the two files while it grows. */
struct growing {
    char *path, *partial;
    FILE *f;
};

struct output {
    struct growing bin, idx;
    bool wide; /* ids are i32, else u16 */
    int64_t tokens, lines;
    size_t total, before; /* bytes of all texts; of those that are done */
    time_t told;
};

static zt_err cannot(const struct growing *g, struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_CANTCREATE, "%s: %s", g->partial, strerror(errno));
}

static zt_err put(const struct growing *g, const void *data, size_t bytes,
                  struct zt_fault *fault)
{
    return fwrite(data, 1, bytes, g->f) == bytes ? ZT_OK : cannot(g, fault);
}

static void say_progress(struct output *o, size_t bytes)
{
    time_t now = time(NULL);

    if (now < o->told + 2)
        return;
    o->told = now;
    fprintf(stderr, "ztok: %.1f %% of %.1f MB, %lld tokens\n",
            100.0 * (double)(o->before + bytes) / (double)o->total,
            (double)o->total / 1e6, (long long)o->tokens);
}

static zt_err take(void *user, const int32_t *ids, size_t num,
                   const uint32_t *line_tokens, size_t num_lines, size_t bytes,
                   struct zt_fault *fault)
{
    struct output *o = user;
    uint16_t narrow[4096];
    zt_err rc = ZT_OK;

    for (size_t i = 0; !rc && !o->wide && i < num;) {
        size_t n = 0;

        while (n < sizeof(narrow) / sizeof(*narrow) && i < num)
            narrow[n++] = htole16((uint16_t)ids[i++]);
        rc = put(&o->bin, narrow, n * sizeof(*narrow), fault);
    }
    for (size_t i = 0; !rc && o->wide && i < num; i++) {
        uint32_t id = htole32((uint32_t)ids[i]);

        rc = put(&o->bin, &id, sizeof(id), fault);
    }
    for (size_t i = 0; !rc && i < num_lines; i++) {
        uint32_t n = htole32(line_tokens[i]);

        rc = put(&o->idx, &n, sizeof(n), fault);
    }
    o->tokens += (int64_t)num;
    o->lines += (int64_t)num_lines;
    say_progress(o, bytes);
    return rc;
}

static zt_err put_u64(const struct growing *g, uint64_t v, struct zt_fault *fault)
{
    v = htole64(v);
    return put(g, &v, sizeof(v), fault);
}

/* Lengths are there; where each line begins, and that each is a document, follow. */
static zt_err end_index(struct output *o, struct zt_fault *fault)
{
    FILE *lengths = fopen(o->idx.partial, "re");
    uint64_t at = 0, width = o->wide ? 4 : 2;
    zt_err rc = ZT_OK;

    if (!lengths || fflush(o->idx.f) || fseek(lengths, HEADER, SEEK_SET))
        rc = cannot(&o->idx, fault);
    for (int64_t i = 0; !rc && i < o->lines; i++) {
        uint32_t n;

        rc = put_u64(&o->idx, at, fault);
        if (!rc && fread(&n, sizeof(n), 1, lengths) != 1)
            rc = cannot(&o->idx, fault);
        else if (!rc)
            at += le32toh(n) * width;
    }
    for (int64_t i = 0; !rc && i <= o->lines; i++)
        rc = put_u64(&o->idx, (uint64_t)i, fault);
    if (lengths)
        fclose(lengths);
    return rc;
}

static zt_err put_header(struct output *o, struct zt_fault *fault)
{
    uint8_t code = o->wide ? I32 : U16;
    zt_err rc = ZT_OK;

    if (fseek(o->idx.f, 0, SEEK_SET))
        return cannot(&o->idx, fault);
    rc = put(&o->idx, "MMIDIDX\0\0", 9, fault);
    if (!rc)
        rc = put_u64(&o->idx, 1, fault);
    if (!rc)
        rc = put(&o->idx, &code, 1, fault);
    if (!rc)
        rc = put_u64(&o->idx, (uint64_t)o->lines, fault);
    return rc ? rc : put_u64(&o->idx, (uint64_t)o->lines + 1, fault);
}

static zt_err begin_file(struct growing *g, const char *stem, size_t n, const char *end,
                         struct zt_fault *fault)
{
    if (asprintf(&g->path, "%.*s%s", (int)n, stem, end) < 0) {
        g->path = NULL;
        return zt_fault_set(fault, ZT_E_NOMEM, "ztok: no memory");
    }
    if (asprintf(&g->partial, "%s.partial", g->path) < 0) {
        g->partial = NULL;
        return zt_fault_set(fault, ZT_E_NOMEM, "ztok: no memory");
    }
    if (access(g->path, F_OK) == 0)
        return zt_fault_set(fault, ZT_E_CANTCREATE,
                            "%s: is there already; remove it, or give another --out",
                            g->path);
    g->f = fopen(g->partial, "we");
    return g->f ? ZT_OK : cannot(g, fault);
}

/* All of it on disk before it has its name. */
static zt_err end_file(struct growing *g, struct zt_fault *fault)
{
    FILE *f = g->f;
    bool bad = fflush(f) || fsync(fileno(f));

    g->f = NULL;
    bad |= fclose(f) != 0;
    return bad || rename(g->partial, g->path) ? cannot(g, fault) : ZT_OK;
}

static void release_file(struct growing *g)
{
    if (g->f)
        fclose(g->f);
    if (g->partial) /* not there any more where all went well */
        unlink(g->partial);
    free(g->path);
    free(g->partial);
}

static zt_err encode_files(struct output *o, const struct zt_tokenizer *t, int threads,
                           const struct zt_mapping *texts, const char *const *words,
                           int num, const char *column, struct zt_lines_counts *counts,
                           struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < num; i++) {
        struct zt_lines_job job = {.tokenizer = t,
                                   .name = words[i],
                                   .text = (const char *)texts[i].data,
                                   .n = texts[i].bytes,
                                   .threads = threads,
                                   .sink = take,
                                   .user = o};

        const struct zt_record_format *format = zt_record_format_of_file(words[i]);

        if (job.n && format)
            rc = zt_lines_encode_records(&job, format, column, counts, fault);
        else if (job.n)
            rc = zt_lines_encode(&job, counts, fault);
        o->before += job.n;
    }
    return rc;
}

static zt_err write_all(struct output *o, const char *stem, size_t n,
                        const struct zt_tokenizer *t, int threads,
                        const struct zt_mapping *texts, const char *const *words, int num,
                        const char *column, struct zt_fault *fault)
{
    static const uint8_t blank[HEADER];
    struct zt_lines_counts counts = {0};
    zt_err rc = begin_file(&o->bin, stem, n, ".bin", fault);

    if (!rc)
        rc = begin_file(&o->idx, stem, n, ".idx", fault);
    if (!rc)
        rc = put(&o->idx, blank, sizeof(blank), fault);
    if (!rc)
        rc = encode_files(o, t, threads, texts, words, num, column, &counts, fault);
    if (!rc && !o->tokens)
        rc = zt_fault_set(fault, ZT_E_FORMAT, "%s: no tokens in all of the text",
                          words[0]);
    if (!rc)
        rc = end_index(o, fault);
    if (!rc)
        rc = put_header(o, fault);
    if (!rc)
        rc = end_file(&o->bin, fault);
    if (!rc)
        rc = end_file(&o->idx, fault);
    if (!rc)
        printf("%s: %lld tokens of %lld lines, %s; %llu places that were no UTF-8\n",
               o->bin.path, (long long)o->tokens, (long long)o->lines,
               o->wide ? "i32" : "u16", (unsigned long long)counts.replaced);
    return rc;
}

/* ---- --train ---- */

struct row_counting {
    struct zt_byte_bpe *words;
    const char *name;
    struct zt_buf row;
};

/* Rows as bytes, each with the end of text behind it. */
static zt_err count_rows(void *user, const int32_t *ids, size_t num,
                         const uint32_t *row_bytes, size_t num_rows, size_t bytes,
                         struct zt_fault *fault)
{
    struct row_counting *c = user;
    zt_err rc = ZT_OK;

    (void)num;
    (void)bytes;
    for (size_t i = 0; !rc && i < num_rows; ids += row_bytes[i++]) {
        zt_buf_drop(&c->row, zt_buf_used(&c->row));
        for (uint32_t k = 0; !rc && k + 1 < row_bytes[i]; k++)
            rc = zt_buf_put_u8(&c->row, (uint8_t)ids[k]);
        rc = rc ? zt_fault_set(fault, rc, "%s: no memory for a row", c->name)
                : zt_byte_bpe_add(c->words, c->name, (const char *)zt_buf_head(&c->row),
                                  zt_buf_used(&c->row), fault);
    }
    return rc;
}

static zt_err count_words(struct zt_byte_bpe *b, const char *name, const char *column,
                          struct zt_fault *fault)
{
    const struct zt_record_format *format = zt_record_format_of_file(name);
    struct row_counting rows = {.words = b, .name = name};
    struct zt_lines_job job = {.name = name, .sink = count_rows, .user = &rows};
    struct zt_mapping text = {0};
    zt_err rc = zt_mapping_open(name, &text, fault);

    zt_buf_init(&rows.row, SIZE_MAX / 4);
    job.text = (const char *)text.data;
    job.n = text.bytes;
    if (!rc && format)
        rc = zt_lines_encode_records(&job, format, column, NULL, fault);
    else if (!rc)
        rc = zt_byte_bpe_add(b, name, job.text, job.n, fault);
    zt_buf_release(&rows.row);
    zt_mapping_release(&text);
    return rc;
}

static zt_err save_tokenizer(const char *dir, struct zt_buf *json, struct zt_fault *fault)
{
    zt_err rc = zt_buf_put_u8(json, 0);

    if (rc)
        return zt_fault_set(fault, rc, "ztok: no memory");
    if (mkdir(dir, 0777) && errno != EEXIST)
        return zt_fault_set(fault, ZT_E_CANTCREATE, "%s: %s", dir, strerror(errno));
    rc = zt_hf_write_text(dir, "tokenizer_config.json", ZT_BYTE_BPE_CONFIG, fault);
    return rc ? rc
              : zt_hf_write_text(dir, "tokenizer.json", (const char *)zt_buf_head(json),
                                 fault);
}

static zt_err train(const zt_args *args, const char *dir, const char *const *words,
                    int num_words, struct zt_fault *fault)
{
    int32_t size = (int32_t)zt_args_int(args, "train"), num = 0;
    struct zt_byte_bpe *b = NULL;
    struct zt_buf json;
    zt_err rc = ZT_OK;

    zt_buf_init(&json, SIZE_MAX / 4);
    if (!dir || zt_args_string(args, "tokenizer"))
        rc = zt_fault_set(fault, ZT_E_USAGE,
                          "--train makes a tokenizer: it takes --out FOLDER and no "
                          "--tokenizer, as in: ztok --train 32000 FILE... --out FOLDER");
    else if (size < ZT_BYTE_BPE_LEAST)
        rc = zt_fault_set(fault, ZT_E_USAGE,
                          "--train %d: 256 bytes and end-of-text are %d tokens", size,
                          ZT_BYTE_BPE_LEAST);
    if (!rc)
        rc = zt_byte_bpe_open(&b, fault);
    for (int i = 0; !rc && i < num_words; i++)
        rc = count_words(b, words[i], zt_args_string(args, "text_column"), fault);
    if (!rc)
        rc = zt_byte_bpe_make(b, size, &json, &num, fault);
    if (!rc)
        rc = save_tokenizer(dir, &json, fault);
    if (!rc)
        printf("%s/tokenizer.json: %d tokens%s\n", dir, (int)num,
               num < size ? "; the text has no more" : "");
    zt_buf_release(&json);
    zt_byte_bpe_close(b);
    return rc;
}

/* ---- the whole ---- */

static zt_err run(const zt_args *args, const char *const *words, int num_words,
                  struct zt_fault *fault)
{
    const char *folder = zt_args_string(args, "tokenizer");
    const char *out = zt_args_string(args, "out");
    struct zt_mapping *texts = calloc((size_t)num_words, sizeof(*texts));
    struct zt_tokenizer *t = NULL;
    struct output o = {.told = time(NULL)};
    size_t n = out ? strlen(out) : 0;
    zt_err rc = ZT_OK;

    if (zt_args_int(args, "train")) {
        free(texts);
        return train(args, out, words, num_words, fault);
    }
    if (!texts)
        return zt_fault_set(fault, ZT_E_NOMEM, "ztok: no memory");
    if (!folder || !out)
        rc = zt_fault_set(fault, ZT_E_USAGE,
                          "%s missing, as in: ztok FILE... --tokenizer FOLDER --out "
                          "train.bin",
                          out      ? "--tokenizer is"
                          : folder ? "--out is"
                                   : "--tokenizer and --out are");
    if (n > 4 && strcmp(out + n - 4, ".bin") == 0)
        n -= 4;
    for (int i = 0; !rc && i < num_words; i++) {
        rc = zt_mapping_open(words[i], &texts[i], fault);
        if (!rc && texts[i].bytes &&
            memchr(texts[i].data, 0,
                   texts[i].bytes < HEAD_BYTES ? texts[i].bytes : HEAD_BYTES))
            rc = zt_fault_set(fault, ZT_E_FORMAT,
                              "%s: holds zero bytes, so it is no plain text", words[i]);
        o.total += texts[i].bytes;
    }
    if (!rc)
        rc = zt_tokenizer_open(folder, &t, fault);
    o.wide = t && zt_tokenizer_vocab(t) > UINT16_MAX + 1;
    if (!rc)
        rc = write_all(&o, out, n, t, (int)zt_args_int(args, "threads"), texts, words,
                       num_words, zt_args_string(args, "text_column"), fault);
    release_file(&o.bin);
    release_file(&o.idx);
    zt_tokenizer_close(t);
    for (int i = 0; i < num_words; i++)
        zt_mapping_release(&texts[i]);
    free(texts);
    return rc;
}

int main(int argc, char **argv)
{
    static const struct zt_tool tool = {
        .name = "ztok",
        .words = "FILE...",
        .about = "Write text files as token ids, for --train_file: FILE.bin and FILE.idx",
        .min_words = 1,
        .max_words = ZT_TOOL_MAX_WORDS,
        .options = options,
        .run = run,
    };

    return zt_tool_main("ztok", tool.about, &tool, 1, argc, argv);
}
