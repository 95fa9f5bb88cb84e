/*
 * tokens.c -- storage of tokens, and how a file is recognised.
 *
 * "auto" believes a magic first, then the file's name. What carries the magic of
 * something else (an archive, a table, llm.c weights) is refused by what it is rather than
 * trained on as bytes.
 */
#include "worker/data/tokens.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/data/dataset.h"
#include "worker/records/foreign.h"
#include "worker/records/records.h"

static const char *const format_names[ZT_NUM_TOKEN_FORMATS] = {
    [ZT_TOKENS_AUTO] = "auto",         [ZT_TOKENS_TEXT] = "text",
    [ZT_TOKENS_NANOGPT] = "nanogpt",   [ZT_TOKENS_LLMC] = "llmc",
    [ZT_TOKENS_MEGATRON] = "megatron", [ZT_TOKENS_JSONL] = "jsonl",
    [ZT_TOKENS_JSON] = "json",         [ZT_TOKENS_CSV] = "csv",
    [ZT_TOKENS_TSV] = "tsv",
};

const char *zt_token_format_name(zt_token_format f)
{
    return (unsigned)f < ZT_NUM_TOKEN_FORMATS ? format_names[f] : "unknown";
}

zt_token_format zt_token_format_parse(const char *name)
{
    int f = 0;

    while (f < ZT_NUM_TOKEN_FORMATS && strcmp(format_names[f], name) != 0)
        f++;
    return (zt_token_format)f;
}

/* ---- storage ---- */

size_t zt_token_bytes(zt_token_code code)
{
    static const uint8_t width[] = {
        [ZT_TOKEN_U8] = 1,          [ZT_TOKEN_I8] = 1,  [ZT_TOKEN_U16] = 2,
        [ZT_TOKEN_I16] = 2,         [ZT_TOKEN_U32] = 4, [ZT_TOKEN_I32] = 4,
        [ZT_TOKEN_I64] = 8,         [ZT_TOKEN_END] = 0, [ZT_TOKEN_I16_CONTEXT] = 2,
        [ZT_TOKEN_I32_CONTEXT] = 4,
    };

    return width[code];
}

/* A token that may be context. */
static int32_t learnt_or_read(int32_t stored)
{
    return stored < 0 ? ~stored : stored;
}

/* One loop per width, which the compiler vectorises; X(code, type, decode) */
#define CODES(X)                                                                         \
    X(ZT_TOKEN_U8, uint8_t, (uint8_t))                                                   \
    X(ZT_TOKEN_I8, int8_t, (int8_t))                                                     \
    X(ZT_TOKEN_U16, uint16_t, le16toh)                                                   \
    X(ZT_TOKEN_I16, int16_t, (int16_t)le16toh)                                           \
    X(ZT_TOKEN_U32, uint32_t, le32toh)                                                   \
    X(ZT_TOKEN_I32, int32_t, (int32_t)le32toh)                                           \
    X(ZT_TOKEN_I64, int64_t, (int64_t)le64toh)                                           \
    X(ZT_TOKEN_I16_CONTEXT, int16_t, learnt_or_read)                                     \
    X(ZT_TOKEN_I32_CONTEXT, int32_t, learnt_or_read)

void zt_tokens_copy(const struct zt_token_run *run, int64_t first, int64_t n,
                    int32_t *out)
{
#define COPY(code, type, decode)                                                         \
    case code: {                                                                         \
        const type *from = (const type *)(const void *)run->data + first;                \
                                                                                         \
        for (int64_t i = 0; i < n; i++)                                                  \
            out[i] = (int32_t)decode(from[i]);                                           \
        break;                                                                           \
    }
    switch (run->code) {
        CODES(COPY)
    case ZT_TOKEN_END:
        for (int64_t i = 0; i < n; i++)
            out[i] = ZT_TEXT_END;
    }
#undef COPY
}

static bool is_context(const struct zt_token_run *run, int64_t i)
{
    const int16_t *narrow = (const int16_t *)(const void *)run->data;
    const int32_t *wide = (const int32_t *)(const void *)run->data;

    return run->code == ZT_TOKEN_I16_CONTEXT   ? narrow[i] < 0
           : run->code == ZT_TOKEN_I32_CONTEXT ? wide[i] < 0
                                               : false;
}

void zt_tokens_copy_targets(const struct zt_token_run *run, int64_t first, int64_t n,
                            int32_t context, int32_t *out)
{
    zt_tokens_copy(run, first, n, out);
    for (int64_t i = 0; i < n; i++)
        if (is_context(run, first + i))
            out[i] = context;
}

int64_t zt_tokens_leading_context(const struct zt_token_run *run, int64_t first,
                                  int64_t n)
{
    int64_t i = 0;

    while (i < n && is_context(run, first + i))
        i++;
    return i;
}

bool zt_tokens_are_context(const struct zt_token_run *run)
{
    return zt_tokens_leading_context(run, 0, run->n) == run->n;
}

void zt_tokens_range(const struct zt_token_run *run, int64_t *min, int64_t *max)
{
#define RANGE(code, type, decode)                                                        \
    case code: {                                                                         \
        const type *from = (const type *)(const void *)run->data;                        \
        type lo = (type)decode(from[0]), hi = lo;                                        \
                                                                                         \
        for (int64_t i = 0; i < run->n; i++) {                                           \
            type t = (type)decode(from[i]);                                              \
                                                                                         \
            lo = t < lo ? t : lo;                                                        \
            hi = t > hi ? t : hi;                                                        \
        }                                                                                \
        *min = (int64_t)lo;                                                              \
        *max = (int64_t)hi;                                                              \
        break;                                                                           \
    }
    switch (run->code) {
        CODES(RANGE)
    case ZT_TOKEN_END:
        *min = *max = ZT_TEXT_END;
    }
#undef RANGE
}

int64_t zt_tokens_get(const struct zt_token_run *run, int64_t i)
{
    struct zt_token_run one = *run;
    int64_t min = 0, max = 0;

    one.n = 1;
    if (one.data)
        one.data += (size_t)i * zt_token_bytes(one.code);
    zt_tokens_range(&one, &min, &max);
    return min;
}

/* ---- what a file is ---- */

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);

    return n >= k && strcmp(s + n - k, tail) == 0;
}

static uint32_t first_u32(struct zt_mapping m)
{
    uint32_t v = 0;

    if (m.bytes >= sizeof(v))
        memcpy(&v, m.data, sizeof(v));
    return le32toh(v);
}

#define LLMC_GPT2   20240520u
#define LLMC_LLAMA3 20240801u

static bool has_llmc_magic(struct zt_mapping m)
{
    return first_u32(m) == LLMC_GPT2 || first_u32(m) == LLMC_LLAMA3;
}

static zt_token_format records_by_name(const char *path)
{
    const struct zt_record_format *f = zt_record_format_of_file(path);

    return f ? zt_token_format_parse(zt_record_format_name(f)) : ZT_NUM_TOKEN_FORMATS;
}

/* A new string, `path` less `cut` characters at its end, then `tail`. NULL: no memory. */
static char *rename_tail(const char *path, size_t cut, const char *tail)
{
    char *out = NULL;

    if (asprintf(&out, "%.*s%s", (int)(strlen(path) - cut), path, tail) < 0)
        return NULL;
    return out;
}

static bool exists(const char *path, size_t cut, const char *tail)
{
    char *name = rename_tail(path, cut, tail);
    bool yes = name && access(name, F_OK) == 0;

    free(name);
    return yes;
}

static zt_err refuse_foreign(const char *path, struct zt_mapping m,
                             struct zt_fault *fault)
{
    const char *what = zt_foreign_data(m);

    return what ? zt_fault_set(fault, ZT_E_FORMAT,
                               "%s: looks like %s; if it does hold text or tokens, name "
                               "them with --data_format",
                               path, what)
                : ZT_OK;
}

static bool has_zero_bytes(struct zt_mapping m)
{
    return m.bytes && memchr(m.data, 0, m.bytes < 4096 ? m.bytes : 4096);
}

zt_err zt_tokens_refuse_foreign(const char *path, struct zt_fault *fault)
{
    struct zt_mapping m = {0};
    zt_err rc = zt_data_file_open(path, &m, fault);

    if (!rc)
        rc = refuse_foreign(path, m, fault);
    if (!rc && has_zero_bytes(m))
        rc =
            zt_fault_set(fault, ZT_E_FORMAT,
                         "%s: holds zero bytes, so it is no plain text; if its bytes are "
                         "meant, say --data_format text",
                         path);
    zt_mapping_release(&m);
    return rc;
}

/* Of a file that is mapped already; its name breaks the tie. */
static zt_err recognise(const char *path, struct zt_mapping m, zt_token_format *out,
                        struct zt_fault *fault)
{
    zt_err rc = refuse_foreign(path, m, fault);

    if (rc)
        return rc;
    if (m.bytes >= 7 && memcmp(m.data, "MMIDIDX", 7) == 0)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: is a Megatron index; name it .idx, beside a .bin of the "
                            "same stem",
                            path);
    if (has_llmc_magic(m)) {
        *out = ZT_TOKENS_LLMC;
    } else if (ends_with(path, ".bin")) {
        *out = exists(path, 4, ".idx") ? ZT_TOKENS_MEGATRON : ZT_TOKENS_NANOGPT;
    } else if (has_zero_bytes(m)) {
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: holds zero bytes, so it is no plain text; if it holds "
                            "tokens say --data_format nanogpt, llmc or megatron, if its "
                            "bytes are meant, --data_format text",
                            path);
    } else {
        *out = records_by_name(path);
        if (*out == ZT_NUM_TOKEN_FORMATS)
            *out = ZT_TOKENS_TEXT;
    }
    return ZT_OK;
}

/* ---- the formats ---- */

zt_err zt_tokens_parse_llmc(const char *path, struct zt_mapping m,
                            struct zt_token_run *out, int64_t *vocab,
                            struct zt_fault *fault)
{
    enum { HEADER = 256 * 4 };
    bool llama = first_u32(m) == LLMC_LLAMA3;
    int32_t version = llama ? 7 : 1, found[3];
    size_t width = llama ? 4 : 2;
    int64_t body;

    if (!has_llmc_magic(m))
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: has no llm.c magic (20240520 or 20240801); is it a "
                            "headerless file? Then say --data_format nanogpt",
                            path);
    if (m.bytes < HEADER)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: truncated: %zu bytes, less than the llm.c header of %d; "
                            "make or fetch it again",
                            path, m.bytes, HEADER);
    memcpy(found, m.data, sizeof(found));
    found[1] = (int32_t)le32toh((uint32_t)found[1]);
    found[2] = (int32_t)le32toh((uint32_t)found[2]);
    if (found[1] != version)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: llm.c token file of version %d; version %d is known",
                            path, found[1], version);
    body = (int64_t)(m.bytes - HEADER);
    if (found[2] < 0 || (int64_t)found[2] * (int64_t)width != body)
        return zt_fault_set(
            fault, ZT_E_FORMAT,
            "%s: %s: the header says %d tokens of %zu bytes, the file has %lld "
            "bytes of them; make or fetch it again",
            path, (int64_t)found[2] * (int64_t)width > body ? "truncated" : "malformed",
            found[2], width, (long long)body);
    if (body == 0)
        return zt_fault_set(fault, ZT_E_FORMAT, "%s: holds no tokens", path);
    *out = (struct zt_token_run){.data = m.data + HEADER,
                                 .n = found[2],
                                 .code = llama ? ZT_TOKEN_U32 : ZT_TOKEN_U16};
    *vocab = llama ? 128256 : 50257;
    return ZT_OK;
}

static zt_err parse_nanogpt(const char *path, struct zt_mapping m,
                            struct zt_token_run *out, struct zt_fault *fault)
{
    if (has_llmc_magic(m))
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: has an llm.c header, which would be read as tokens; say "
                            "--data_format llmc",
                            path);
    if (m.bytes % 2)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: %zu bytes, an odd number, so no file of uint16 tokens; "
                            "it is truncated, or text (--data_format text)",
                            path, m.bytes);
    *out = (struct zt_token_run){
        .data = m.data, .n = (int64_t)(m.bytes / 2), .code = ZT_TOKEN_U16};
    return ZT_OK;
}

/* Runs of the formats that are one file. */
static zt_err parse_single(struct zt_token_file *f, struct zt_fault *fault)
{
    f->runs = calloc(2, sizeof(*f->runs));
    if (!f->runs)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", f->path);
    f->num_runs = 1;
    switch (f->format) {
    case ZT_TOKENS_LLMC:
        return zt_tokens_parse_llmc(f->path, f->data, f->runs, &f->vocab, fault);
    case ZT_TOKENS_NANOGPT:
        return parse_nanogpt(f->path, f->data, f->runs, fault);
    default:
        f->runs[0] = (struct zt_token_run){
            .data = f->data.data, .n = (int64_t)f->data.bytes, .code = ZT_TOKEN_U8};
        f->runs[1] = (struct zt_token_run){.n = 1, .code = ZT_TOKEN_END};
        f->num_runs = 2;
        f->vocab = ZT_TEXT_VOCAB;
        f->bytes = true;
        return ZT_OK;
    }
}

/* ---- opening ---- */

static zt_err open_single(struct zt_token_file *f, struct zt_fault *fault)
{
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the caller closes f */
    zt_err rc = zt_data_file_open(f->path, &f->data, fault);

    if (rc)
        return rc;
    if (f->data.bytes == 0)
        return zt_fault_set(fault, ZT_E_FORMAT, "%s: is empty; take it off the list",
                            f->path);
    if (f->format == ZT_TOKENS_AUTO)
        rc = recognise(f->path, f->data, &f->format, fault);
    if (!rc && f->format != ZT_TOKENS_MEGATRON)
        rc = parse_single(f, fault);
    return rc;
}

/* `stem_len` characters of f->path, with .idx and .bin behind, name the two files. */
static zt_err open_megatron(struct zt_token_file *f, size_t stem_len,
                            struct zt_fault *fault)
{
    size_t cut = strlen(f->path) - stem_len;
    char *idx = rename_tail(f->path, cut, ".idx");
    char *bin = rename_tail(f->path, cut, ".bin");
    zt_err rc = ZT_OK;

    zt_mapping_release(&f->data);
    if (!idx || !bin)
        rc = zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", f->path);
    if (!rc)
        rc = zt_mapping_open(idx, &f->index, fault);
    if (!rc)
        rc = zt_mapping_open(bin, &f->data, fault);
    if (rc)
        zt_fault_context(fault, rc, "Megatron dataset %.*s needs both .idx and .bin",
                         (int)stem_len, f->path);
    else
        rc = zt_tokens_parse_megatron(idx, f->index, f->data, &f->runs, &f->num_runs,
                                      fault);
    if (!rc) {
        free(f->path);
        f->path = bin;
        bin = NULL;
    }
    free(idx);
    free(bin);
    return rc;
}

static bool is_records(zt_token_format f)
{
    return zt_record_format_named(zt_token_format_name(f)) != NULL;
}

/* Text becomes what it is learnt as: bytes of a text file stay where they are. */
static zt_err encode_text(struct zt_token_file *f, const struct zt_text_encoding *how,
                          struct zt_fault *fault)
{
    static const struct zt_text_encoding as_bytes;

    how = how ? how : &as_bytes;
    if (how->refusal && how->refusal->code && !how->tokenizer)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s is text, and the tokenizer beside the weights cannot be "
                            "read: %s",
                            f->path, how->refusal->text);
    return how->tokenizer || f->format != ZT_TOKENS_TEXT
               ? zt_tokens_encode_text(f, how, fault)
               : ZT_OK;
}

zt_err zt_token_file_open(const char *path, zt_token_format format,
                          const struct zt_text_encoding *text, struct zt_token_file *out,
                          struct zt_fault *fault)
{
    struct zt_token_file f = {.format = format};
    bool named = ends_with(path, ".idx") || ends_with(path, ".bin");
    bool stem = !named && access(path, F_OK) < 0 && exists(path, 0, ".idx");
    zt_err rc = ZT_OK;

    f.path = strdup(path);
    if (!f.path)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", path);
    if (format == ZT_TOKENS_AUTO && (ends_with(path, ".idx") || stem))
        f.format = ZT_TOKENS_MEGATRON;
    if (f.format != ZT_TOKENS_MEGATRON)
        rc = open_single(&f, fault);
    if (!rc && text && text->pair.separate && !is_records(f.format))
        rc = zt_fault_set(
            fault, ZT_E_USAGE,
            "%s (%s) has no pairs of a text to read and one to write, which "
            "this model learns from: give records, .jsonl, .json, .csv or .tsv",
            path, zt_token_format_name(f.format));
    else if (!rc && text && (text->pair.source || text->pair.prefix) &&
             !is_records(f.format))
        rc = zt_fault_set(fault, ZT_E_USAGE,
                          "%s (%s) has no columns: --source_column, --target_column and "
                          "--source_prefix are for records, .jsonl, .json, .csv or .tsv",
                          path, zt_token_format_name(f.format));
    if (!rc && text && text->examples && !is_records(f.format))
        rc = zt_fault_set(fault, ZT_E_USAGE,
                          "%s (%s) has no columns: labels are in records, .jsonl, .json, "
                          ".csv or .tsv (--data_format)",
                          path, zt_token_format_name(f.format));
    if (!rc && f.bytes)
        rc = encode_text(&f, text, fault);
    if (!rc && f.format == ZT_TOKENS_MEGATRON)
        rc = open_megatron(&f, strlen(path) - (named ? 4 : 0), fault);
    if (!rc && f.format == ZT_TOKENS_MEGATRON && text && text->keeps_lengths)
        rc = zt_tokens_megatron_lengths(f.index, &f.lengths, &f.num_lengths, fault);
    if (rc) {
        zt_token_file_release(&f);
        return rc;
    }
    for (int64_t i = 0; i < f.num_runs; i++)
        f.num_tokens += f.runs[i].n;
    *out = f;
    return ZT_OK;
}

void zt_token_file_release(struct zt_token_file *f)
{
    free(f->path);
    free(f->lengths);
    free(f->runs);
    zt_lines_columns_release(&f->columns);
    zt_mapping_release(&f->data);
    zt_mapping_release(&f->index);
    *f = (struct zt_token_file){0};
}
