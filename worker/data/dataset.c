/*
 * dataset.c -- files behind one another, and views of them.
 *
 * A store holds the files and a flat table of their runs with the position where each
 * begins; a dataset is a window on a store. The store lives as long as any window.
 */
#include "worker/data/dataset.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/files/folders.h"
#include "worker/data/packing.h"
#include "worker/data/samples.h"
#include "worker/data/tokens.h"

/* Smaller files are read ahead whole; larger ones block by block. */
#define WHOLE_BYTES ((size_t)1 << 30)

struct store {
    int refs;
    struct zt_token_file *files;
    int num_files;
    struct zt_token_run *runs;
    int64_t *begin; /* (num_runs + 1): position of each run in the stream */
    int64_t num_runs, num_tokens;
    int64_t vocab, largest; /* the vocabulary the files ask for; their largest token */
    uint64_t hash, num_replaced, num_blank;
    bool bytes, large;
    struct zt_samples samples;
    struct zt_row_options rows;
};

struct zt_dataset {
    struct store *store;
    int64_t first, count;
    int64_t first_sample, num_samples; /* of the store's */
    struct zt_packing packing;         /* of its samples, where they share rows */
};

/* ---- checks over contents ---- */

static zt_err refuse_token(const struct zt_token_file *f, int64_t run, int64_t vocab,
                           struct zt_fault *fault)
{
    int64_t i = 0, place = 0, t;

    for (int64_t r = 0; r < run; r++)
        place += f->runs[r].n;
    while (t = zt_tokens_get(&f->runs[run], i), t >= 0 && t < vocab)
        i++;
    place += i;
    if (t < 0)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: token %lld, number %lld of the file, is negative; the "
                            "file is malformed or of another type",
                            f->path, (long long)t, (long long)place);
    if (f->encoded)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: token %lld, number %lld of its text, is not below the "
                            "model's vocabulary of %lld: the tokenizer is not the one of "
                            "the model (--tokenizer_name names that one), or has tokens "
                            "for which the model was not resized "
                            "(resize_token_embeddings() of transformers)",
                            f->path, (long long)t, (long long)place, (long long)vocab);
    return zt_fault_set(fault, ZT_E_FORMAT,
                        "%s: token %lld, number %lld of the file, is not below the "
                        "vocabulary of %lld: the file was made with another tokenizer, "
                        "or the model needs a larger vocabulary",
                        f->path, (long long)t, (long long)place, (long long)vocab);
}

/* Look at every token that its storage does not already bound. */
static zt_err scan(const struct zt_token_file *f, int64_t vocab, int64_t *largest,
                   struct zt_fault *fault)
{
    int64_t limit = vocab > 0 && vocab < INT32_MAX ? vocab : INT32_MAX;

    for (int64_t r = 0; r < f->num_runs; r++) {
        int64_t min = 0, max = 0;

        if (f->bytes && !f->encoded) /* 0..256, whatever the bytes are */
            max = f->runs[r].code == ZT_TOKEN_END ? ZT_TEXT_END : 255;
        else
            zt_tokens_range(&f->runs[r], &min, &max);
        if (f->bytes && max >= limit)
            return zt_fault_set(fault, ZT_E_FORMAT,
                                "%s: text needs a vocabulary of %d (256 bytes and "
                                "end-of-text), the model has %lld",
                                f->path, ZT_TEXT_VOCAB, (long long)vocab);
        if (min < 0 || max >= limit)
            return refuse_token(f, r, limit, fault);
        if (zt_tokens_are_context(&f->runs[r]))
            return zt_fault_set(fault, ZT_E_FORMAT,
                                "%s: no message of its conversations is the assistant's, "
                                "and the assistant's are what is learnt; learn all with "
                                "--assistant_only_loss false",
                                f->path);
        if (max > *largest)
            *largest = max;
    }
    return ZT_OK;
}

/* False: no memory. */
static bool hash_file(const struct zt_token_file *f, uint64_t *hash)
{
    enum { WHOLE = 1 << 20, PIECES = 256, PIECE = 4096 };
    XXH64_state_t *h = XXH64_createState();
    uint64_t layout[3] = {(uint64_t)f->format, f->data.bytes, (uint64_t)f->num_tokens};

    if (!h)
        return false;
    XXH64_reset(h, *hash);
    XXH64_update(h, layout, sizeof(layout));
    if (f->index.bytes)
        XXH64_update(h, f->index.data, f->index.bytes);
    if (f->data.bytes <= WHOLE) {
        XXH64_update(h, f->data.data, f->data.bytes);
    } else {
        for (size_t i = 0; i < PIECES; i++) {
            size_t last = f->data.bytes - PIECE;

            /* i * last / (PIECES - 1), without overflow */
            XXH64_update(h,
                         f->data.data + last / (PIECES - 1) * i +
                             last % (PIECES - 1) * i / (PIECES - 1),
                         PIECE);
        }
    }
    *hash = XXH64_digest(h);
    XXH64_freeState(h);
    return true;
}

static void advise(struct store *st, const struct zt_token_file *f)
{
    bool large = f->data.bytes > WHOLE_BYTES;

    st->large |= large;
    madvise((void *)f->data.data, f->data.bytes, large ? MADV_RANDOM : MADV_WILLNEED);
}

/* ---- opening ---- */

static void store_put(struct store *st)
{
    if (!st || --st->refs > 0)
        return;
    for (int i = 0; i < st->num_files; i++)
        zt_token_file_release(&st->files[i]);
    zt_samples_release(&st->samples);
    free(st->files);
    free(st->runs);
    free(st->begin);
    free(st);
}

/* A Megatron dataset may be named twice, by its .idx and its .bin. */
static bool named_already(const struct store *st, const struct zt_token_file *f)
{
    if (f->format != ZT_TOKENS_MEGATRON)
        return false;
    for (int i = 0; i < st->num_files; i++)
        if (st->files[i].format == ZT_TOKENS_MEGATRON &&
            zt_is_one_file(st->files[i].path, f->path))
            return true;
    return false;
}

/* One stream has one vocabulary. */
static zt_err check_kin(const struct store *st, const struct zt_token_file *f,
                        struct zt_fault *fault)
{
    const struct zt_token_file *a = st->num_files ? &st->files[0] : f;

    for (int i = 0; i < st->num_files; i++)
        if (st->files[i].vocab && f->vocab && st->files[i].vocab != f->vocab)
            a = &st->files[i];
    if (a->bytes != f->bytes || (a->vocab && f->vocab && a->vocab != f->vocab))
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s (%s) and %s (%s) have different vocabularies; train on "
                            "one kind, or name the format with --data_format",
                            a->path, zt_token_format_name(a->format), f->path,
                            zt_token_format_name(f->format));
    return ZT_OK;
}

static zt_err add_file(struct store *st, const char *path, zt_token_format format,
                       const struct zt_text_encoding *text, int64_t vocab,
                       struct zt_fault *fault)
{
    struct zt_token_file f = {0};
    zt_err rc = zt_token_file_open(path, format, text, &f, fault);

    if (rc)
        return rc;
    if (named_already(st, &f)) {
        zt_token_file_release(&f);
        return ZT_OK;
    }
    rc = check_kin(st, &f, fault);
    if (!rc) {
        madvise((void *)f.data.data, f.data.bytes, MADV_SEQUENTIAL);
        rc = scan(&f, vocab, &st->largest, fault);
    }
    if (!rc && !hash_file(&f, &st->hash))
        rc = zt_fault_set(fault, ZT_E_NOMEM, "data files: no memory");
    if (rc) {
        zt_token_file_release(&f);
        return rc;
    }
    if (f.vocab > st->vocab)
        st->vocab = f.vocab;
    st->bytes = f.bytes;
    st->num_replaced += f.num_replaced;
    st->num_blank += f.num_blank;
    advise(st, &f);
    st->num_runs += f.num_runs;
    st->files[st->num_files++] = f;
    return ZT_OK;
}

static zt_err line_up(struct store *st, struct zt_fault *fault)
{
    int64_t at = 0, k = 0;

    st->runs = malloc((size_t)(st->num_runs + 1) * sizeof(*st->runs));
    st->begin = malloc((size_t)(st->num_runs + 1) * sizeof(*st->begin));
    if (!st->runs || !st->begin)
        return zt_fault_set(fault, ZT_E_NOMEM, "data files: no memory");
    for (int i = 0; i < st->num_files; i++) {
        for (int64_t r = 0; r < st->files[i].num_runs; r++) {
            st->runs[k] = st->files[i].runs[r];
            st->begin[k++] = at;
            at += st->files[i].runs[r].n;
        }
    }
    st->begin[k] = st->num_tokens = at;
    return ZT_OK;
}

/* How many tokens of each pair of a file are its source; to be freed. */
static zt_err find_sources(const struct zt_token_file *f, uint32_t **out,
                           struct zt_fault *fault)
{
    uint32_t *sources = malloc((size_t)(f->num_lengths + 1) * sizeof(*sources));
    int64_t at = 0;

    if (!sources)
        return zt_fault_set(fault, ZT_E_NOMEM, "data files: no memory");
    for (int64_t i = 0; i < f->num_lengths; at += f->lengths[i++])
        sources[i] = (uint32_t)zt_tokens_leading_context(&f->runs[0], at, f->lengths[i]);
    *out = sources;
    return ZT_OK;
}

/* Of fewer tokens nothing can be learnt: the next one, or one that is no frame. */
static uint32_t least_tokens(const struct zt_row_options *o)
{
    size_t frame = o->single.before.num + o->single.after.num;

    return o->kind == ZT_ROWS_MASKED ? (uint32_t)frame + 1 : 2;
}

static zt_err add_samples(struct store *st, const struct zt_token_file *f, int64_t at,
                          bool pairs, struct zt_fault *fault)
{
    uint32_t *sources = NULL;
    zt_err rc = pairs ? find_sources(f, &sources, fault) : ZT_OK;

    if (!rc)
        rc = zt_samples_add(&st->samples, at, f->lengths, sources, f->num_lengths,
                            least_tokens(&st->rows), fault);
    free(sources);
    return rc;
}

/* Where samples are is a part of what the data are. */
static zt_err find_samples(struct store *st, bool pairs, struct zt_fault *fault)
{
    int64_t at = 0;
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < st->num_files; i++) {
        const struct zt_token_file *f = &st->files[i];

        if (!f->num_lengths)
            return zt_fault_set(
                fault, ZT_E_USAGE,
                "%s (%s) is one stream of tokens and has no samples to be "
                "rows of their own: --packing wrapped cuts it into rows",
                f->path, zt_token_format_name(f->format));
        rc = st->rows.kind == ZT_ROWS_EXAMPLES
                 ? zt_samples_add_examples(&st->samples, at, f->lengths, f->num_lengths,
                                           fault)
                 : add_samples(st, f, at, pairs, fault);
        st->hash =
            XXH64(f->lengths, (size_t)f->num_lengths * sizeof(*f->lengths), st->hash);
        at += f->num_tokens;
    }
    if (!rc && !st->samples.num)
        rc = zt_fault_set(fault, ZT_E_FORMAT, "%s%s: no sample has %s to learn from",
                          st->files[0].path, st->num_files > 1 ? " and others" : "",
                          st->rows.kind == ZT_ROWS_MASKED ? "a token that may be masked,"
                                                          : "two tokens, the least");
    return rc;
}

static zt_err fill_store(struct store *st, const char *const *files,
                         zt_token_format format, const struct zt_text_encoding *text,
                         int64_t vocab, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;
    int n = 0;

    while (files[n])
        n++;
    if (!n)
        return zt_fault_set(fault, ZT_E_NOINPUT,
                            "no data file; name one with --train_file");
    st->files = calloc((size_t)n, sizeof(*st->files));
    if (!st->files)
        return zt_fault_set(fault, ZT_E_NOMEM, "data files: no memory");
    if (text)
        st->rows = text->rows;
    for (int i = 0; !rc && i < n; i++)
        rc = add_file(st, files[i], format, text, vocab, fault);
    if (!rc)
        rc = line_up(st, fault);
    if (!rc && text && text->keeps_lengths)
        rc = find_samples(st, text->pair.separate, fault);
    if (st->largest >= st->vocab)
        st->vocab = st->largest + 1;
    return rc;
}

zt_err zt_dataset_open(const char *const *files, const char *format, int64_t vocab,
                       struct zt_dataset **out, struct zt_fault *fault)
{
    return zt_dataset_open_text(files, format, NULL, vocab, out, fault);
}

zt_err zt_dataset_open_text(const char *const *files, const char *format,
                            const struct zt_text_encoding *text, int64_t vocab,
                            struct zt_dataset **out, struct zt_fault *fault)
{
    zt_token_format f = zt_token_format_parse(format);
    struct zt_dataset *ds;
    zt_err rc;

    if (f == ZT_NUM_TOKEN_FORMATS)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "data format \"%s\" is not known; there are auto, text, "
                            "nanogpt, llmc and megatron",
                            format);
    ds = calloc(1, sizeof(*ds));
    if (ds)
        ds->store = calloc(1, sizeof(*ds->store));
    if (!ds || !ds->store) {
        free(ds);
        return zt_fault_set(fault, ZT_E_NOMEM, "data files: no memory");
    }
    ds->store->refs = 1;
    rc = fill_store(ds->store, files, f, text, vocab, fault);
    if (rc) {
        zt_dataset_close(ds);
        return rc;
    }
    ds->count = ds->store->num_tokens;
    ds->num_samples = ds->store->samples.num;
    *out = ds;
    return ZT_OK;
}

void zt_dataset_close(struct zt_dataset *ds)
{
    if (ds) {
        store_put(ds->store);
        zt_packing_release(&ds->packing);
    }
    free(ds);
}

/* ---- views ---- */

zt_err zt_dataset_view(struct zt_dataset *ds, int64_t first, int64_t count,
                       struct zt_dataset **out, struct zt_fault *fault)
{
    struct zt_dataset *v;

    if (first < 0 || count < 0 || first > ds->count || count > ds->count - first)
        return zt_fault_set(fault, ZT_E_ARG,
                            "view of tokens %lld + %lld of a dataset of %lld",
                            (long long)first, (long long)count, (long long)ds->count);
    v = malloc(sizeof(*v));
    if (!v)
        return zt_fault_set(fault, ZT_E_NOMEM, "data view: no memory");
    *v = (struct zt_dataset){
        .store = ds->store, .first = ds->first + first, .count = count};
    ds->store->refs++;
    *out = v;
    return ZT_OK;
}

const struct zt_example *zt_dataset_example(const struct zt_dataset *ds, int64_t i)
{
    return &ds->store->samples.examples[ds->first_sample + i];
}

const struct zt_row_options *zt_dataset_rows(const struct zt_dataset *ds)
{
    return &ds->store->rows;
}

zt_err zt_dataset_view_samples(struct zt_dataset *ds, int64_t first, int64_t count,
                               struct zt_dataset **out, struct zt_fault *fault)
{
    int64_t at, end, n;
    zt_err rc;

    if (first < 0 || count < 1 || first > ds->num_samples ||
        count > ds->num_samples - first)
        return zt_fault_set(
            fault, ZT_E_ARG, "view of samples %lld + %lld of a dataset of %lld",
            (long long)first, (long long)count, (long long)ds->num_samples);
    zt_dataset_sample(ds, first, &at, &n);
    zt_dataset_sample(ds, first + count - 1, &end, &n);
    rc = zt_dataset_view(ds, at, end + n - at, out, fault);
    if (rc)
        return rc;
    (*out)->first_sample = ds->first_sample + first;
    (*out)->num_samples = count;
    return ZT_OK;
}

static zt_err split_samples(struct zt_dataset *ds, double fraction,
                            struct zt_dataset **train, struct zt_dataset **eval,
                            struct zt_fault *fault)
{
    int64_t all = ds->num_samples, held = llround((double)all * fraction);
    struct zt_dataset *head = NULL;
    zt_err rc;

    held = held < 1 ? 1 : held < all ? held : all - 1;
    if (all < 2)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: one sample cannot be split into one to train and one to "
                            "evaluate on: give more data or an --eval_file",
                            ds->store->files[0].path);
    rc = zt_dataset_view_samples(ds, 0, all - held, &head, fault);
    if (!rc)
        rc = zt_dataset_view_samples(ds, all - held, held, eval, fault);
    if (rc)
        zt_dataset_close(head);
    else
        *train = head;
    return rc;
}

zt_err zt_dataset_split(struct zt_dataset *ds, double fraction, int64_t block_size,
                        struct zt_dataset **train, struct zt_dataset **eval,
                        struct zt_fault *fault)
{
    struct zt_dataset *head = NULL, *tail = NULL;
    int64_t held;
    zt_err rc;

    if (!(fraction > 0 && fraction < 1))
        return zt_fault_set(fault, ZT_E_ARG, "held-out fraction %g is not within (0, 1)",
                            fraction);
    if (ds->num_samples)
        return split_samples(ds, fraction, train, eval, fault);
    held = (int64_t)llround((double)ds->count * fraction);
    if (held <= block_size || ds->count - held <= block_size)
        return zt_fault_set(
            fault, ZT_E_FORMAT,
            "%s%s: %lld tokens split into %lld to train and %lld to evaluate "
            "on (--eval_fraction, --validation_split_percentage); each needs %lld "
            "(block_size + 1): give more data, "
            "another share, a smaller --block_size or an --eval_file",
            ds->store->files[0].path, ds->store->num_files > 1 ? " and others" : "",
            (long long)ds->count, (long long)(ds->count - held), (long long)held,
            (long long)block_size + 1);
    rc = zt_dataset_view(ds, 0, ds->count - held, &head, fault);
    if (!rc)
        rc = zt_dataset_view(ds, ds->count - held, held, &tail, fault);
    if (rc) {
        zt_dataset_close(head);
        return rc;
    }
    *train = head;
    *eval = tail;
    return ZT_OK;
}

/* ---- rows that samples share ---- */

int64_t zt_dataset_cut(const struct zt_dataset *ds, int64_t i, int64_t T, int64_t *at)
{
    int64_t n;

    zt_dataset_sample(ds, i, at, &n);
    n -= zt_dataset_rows(ds)->kind == ZT_ROWS_NEXT_TOKEN;
    return n < T ? n : T;
}

zt_err zt_dataset_pack(struct zt_dataset *ds, int64_t block_size, struct zt_fault *fault)
{
    uint32_t *sizes = malloc((size_t)ds->num_samples * sizeof(*sizes));
    zt_err rc;

    if (!sizes)
        return zt_fault_set(fault, ZT_E_NOMEM, "packing of samples: no memory");
    for (int64_t i = 0; i < ds->num_samples; i++) {
        int64_t at;

        sizes[i] = (uint32_t)zt_dataset_cut(ds, i, block_size, &at);
    }
    rc = zt_packing_make(&ds->packing, sizes, ds->num_samples, block_size, fault);
    free(sizes);
    return rc;
}

bool zt_dataset_is_packed(const struct zt_dataset *ds)
{
    return ds->packing.num_rows > 0;
}

int64_t zt_dataset_num_rows(const struct zt_dataset *ds)
{
    return ds->packing.num_rows ? ds->packing.num_rows : ds->num_samples;
}

const int64_t *zt_dataset_row(const struct zt_dataset *ds, int64_t i, int64_t *num)
{
    const struct zt_packing *p = &ds->packing;

    *num = p->first[i + 1] - p->first[i];
    return p->samples + p->first[i];
}

/* ---- what a dataset is ---- */

int64_t zt_dataset_num_tokens(const struct zt_dataset *ds)
{
    return ds->count;
}

int64_t zt_dataset_num_samples(const struct zt_dataset *ds)
{
    return ds->num_samples;
}

int64_t zt_dataset_num_short(const struct zt_dataset *ds)
{
    return ds->store->samples.num_short;
}

void zt_dataset_sample(const struct zt_dataset *ds, int64_t i, int64_t *at, int64_t *n)
{
    const struct zt_samples *s = &ds->store->samples;

    *at = s->at[ds->first_sample + i] - ds->first;
    *n = s->n[ds->first_sample + i];
}

bool zt_dataset_is_pairs(const struct zt_dataset *ds)
{
    return ds->num_samples > 0 && ds->store->samples.source != NULL;
}

int64_t zt_dataset_source(const struct zt_dataset *ds, int64_t i)
{
    return ds->store->samples.source[ds->first_sample + i];
}

int64_t zt_dataset_vocab(const struct zt_dataset *ds)
{
    return ds->store->vocab;
}

zt_err zt_dataset_check_vocab(const struct zt_dataset *ds, int64_t vocab,
                              struct zt_fault *fault)
{
    const struct store *st = ds->store;
    int64_t largest = 0;
    zt_err rc = ZT_OK;

    if (st->largest < vocab)
        return ZT_OK;
    for (int i = 0; !rc && i < st->num_files; i++)
        rc = scan(&st->files[i], vocab, &largest, fault);
    return rc;
}

bool zt_dataset_is_bytes(const struct zt_dataset *ds)
{
    return ds->store->bytes;
}

bool zt_dataset_is_encoded(const struct zt_dataset *ds)
{
    for (int i = 0; i < ds->store->num_files; i++)
        if (ds->store->files[i].encoded && !ds->store->files[i].bytes)
            return true;
    return false;
}

bool zt_dataset_has_ids(const struct zt_dataset *ds)
{
    for (int i = 0; i < ds->store->num_files; i++)
        if (!ds->store->files[i].encoded && !ds->store->files[i].bytes)
            return true;
    return false;
}

int zt_dataset_num_files(const struct zt_dataset *ds)
{
    return ds->store->num_files;
}

const struct zt_lines_columns *zt_dataset_columns(const struct zt_dataset *ds, int i,
                                                  const char **path)
{
    *path = ds->store->files[i].path;
    return &ds->store->files[i].columns;
}

bool zt_dataset_has_context(const struct zt_dataset *ds)
{
    for (int64_t r = 0; r < ds->store->num_runs; r++)
        if (ds->store->runs[r].code == ZT_TOKEN_I16_CONTEXT ||
            ds->store->runs[r].code == ZT_TOKEN_I32_CONTEXT)
            return true;
    return false;
}

uint64_t zt_dataset_num_blank(const struct zt_dataset *ds)
{
    return ds->store->num_blank;
}

uint64_t zt_dataset_num_replaced(const struct zt_dataset *ds)
{
    return ds->store->num_replaced;
}

const char *zt_dataset_carriage_returns(const struct zt_dataset *ds, bool *alone)
{
    for (int i = 0; i < ds->store->num_files; i++)
        if (ds->store->files[i].carriage_returns) {
            *alone = ds->store->files[i].no_line_feeds;
            return ds->store->files[i].path;
        }
    return NULL;
}

const char *zt_dataset_format(const struct zt_dataset *ds)
{
    const struct store *st = ds->store;

    for (int i = 1; i < st->num_files; i++)
        if (st->files[i].format != st->files[0].format)
            return "mixed";
    return zt_token_format_name(st->files[0].format);
}

uint64_t zt_dataset_fingerprint(const struct zt_dataset *ds)
{
    uint64_t borders[2] = {(uint64_t)ds->first, (uint64_t)ds->count};
    uint64_t hash = XXH64(borders, sizeof(borders), ds->store->hash);
    const struct zt_packing *p = &ds->packing;

    if (!p->num_rows)
        return hash;
    hash = XXH64(p->first, (size_t)(p->num_rows + 1) * sizeof(*p->first), hash);
    return XXH64(p->samples, (size_t)p->first[p->num_rows] * sizeof(*p->samples), hash);
}

/* ---- reading ---- */

/* The run that holds position `at` of the store, 0 <= at < all. */
static int64_t find_run(const struct store *st, int64_t at)
{
    int64_t lo = 0, hi = st->num_runs;

    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;

        if (st->begin[mid] <= at)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* `context`: what takes the place of tokens that are context; NULL: they do themselves. */
static zt_err read_tokens(const struct zt_dataset *ds, int64_t first, int64_t n,
                          const int32_t *context, int32_t *out, struct zt_fault *fault)
{
    const struct store *st = ds->store;
    int64_t at = ds->first + first;

    if (first < 0 || n < 0 || first > ds->count || n > ds->count - first)
        return zt_fault_set(fault, ZT_E_ARG, "tokens %lld + %lld of a dataset of %lld",
                            (long long)first, (long long)n, (long long)ds->count);
    if (n == 0)
        return ZT_OK;
    for (int64_t r = find_run(st, at); n > 0; r++) {
        int64_t skip = at - st->begin[r], take = st->runs[r].n - skip;

        take = take < n ? take : n;
        if (context)
            zt_tokens_copy_targets(&st->runs[r], skip, take, *context, out);
        else
            zt_tokens_copy(&st->runs[r], skip, take, out);
        out += take;
        at += take;
        n -= take;
    }
    return ZT_OK;
}

zt_err zt_dataset_read(const struct zt_dataset *ds, int64_t first, int64_t n,
                       int32_t *out, struct zt_fault *fault)
{
    return read_tokens(ds, first, n, NULL, out, fault);
}

zt_err zt_dataset_read_targets(const struct zt_dataset *ds, int64_t first, int64_t n,
                               int32_t context, int32_t *out, struct zt_fault *fault)
{
    return read_tokens(ds, first, n, &context, out, fault);
}

void zt_dataset_prefetch(const struct zt_dataset *ds, int64_t first, int64_t n)
{
    const struct store *st = ds->store;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    int64_t at = ds->first + first, r, skip;

    /* small files were asked for whole; one run is enough for a hint */
    if (!st->large || first < 0 || n <= 0 || first > ds->count || n > ds->count - first)
        return;
    r = find_run(st, at);
    skip = at - st->begin[r];
    if (n > st->runs[r].n - skip)
        n = st->runs[r].n - skip;
    if (st->runs[r].data) {
        size_t width = zt_token_bytes(st->runs[r].code);
        uintptr_t from = (uintptr_t)st->runs[r].data + (size_t)skip * width;
        uintptr_t page0 = from & ~(page - 1);

        madvise((void *)page0, from + (size_t)n * width - page0, MADV_WILLNEED);
    }
}
