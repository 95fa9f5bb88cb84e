/*
 * made_tokenizer.c -- --train_tokenizer: a tokenizer made from the training files before
 * anything else, by one rank of a node, in the output folder, where the others find it.
 *
 * Ranks have no connections yet, and need none: whoever locks the folder first makes it, the
 * others wait for the lock. Beside it stands what it was made of, so a run that goes on, and
 * a restarted one, take it again, and one of other files is not mistaken for theirs.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/log.h"
#include "common/mapped_file.h"
#include "worker/checkpoint/hf_folder.h"
#include "worker/data/tokens.h"
#include "worker/engine/data.h"
#include "worker/engine/tasks/task.h"
#include "worker/text/train/byte_bpe.h"

#define STAMP "zlaunch_made_of"

struct making {
    const struct zt_engine *engine;
    const struct zt_run *run;
    char stamp[64]; /* of the text, the number of tokens and the next */
    bool ends; /* the end of text is behind each: of sources, which have it in training */
    struct zt_buf json;
    struct zt_fault *fault;
};

/* ---- the text ---- */

typedef zt_err (*take_text)(void *to, const char *path, const struct zt_mapping *text,
                            struct zt_fault *fault);

/* Bytes that are tokens [from, to) of a file are a text. `row` is room for it. */
static zt_err take_bytes(const struct making *m, const struct zt_token_file *file,
                         int64_t from, int64_t to, struct zt_buf *row, take_text take,
                         void *user)
{
    struct zt_mapping text;
    zt_err rc = ZT_OK;

    zt_buf_drop(row, zt_buf_used(row));
    for (int64_t i = from; !rc && i < to; i++)
        rc = zt_buf_put_u8(row, (uint8_t)zt_tokens_get(&file->runs[0], i));
    if (rc)
        return zt_fault_set(m->fault, rc, "%s: no host memory for a row", file->path);
    text = (struct zt_mapping){zt_buf_head(row), zt_buf_used(row)};
    return text.bytes ? take(user, file->path, &text, m->fault) : ZT_OK;
}

/* Rows of records are there as bytes, each with the end of text behind it. */
static zt_err take_rows(const struct making *m, const struct zt_token_file *file,
                        struct zt_buf *row, take_text take, void *user)
{
    int64_t from = 0;
    zt_err rc = ZT_OK;

    for (int64_t i = 0; !rc && i < file->num_tokens; i++) {
        if (zt_tokens_get(&file->runs[0], i) != ZT_TEXT_END)
            continue;
        rc = take_bytes(m, file, from, i, row, take, user);
        from = i + 1;
    }
    return rc;
}

/* Words: where a byte has a tag, one begins. */
static zt_err take_words(const struct making *m, const struct zt_token_file *file,
                         int64_t at, int64_t n, struct zt_buf *row, take_text take,
                         void *user)
{
    int64_t from = 0;
    zt_err rc = ZT_OK;

    for (int64_t i = 1; !rc && i <= n; i++) {
        if (i < n && !zt_tokens_get(&file->runs[0], at + n + i))
            continue;
        rc = take_bytes(m, file, at + from, at + i, row, take, user);
        from = i;
    }
    return rc;
}

/* Rows with labels: a text or two, each by itself, or words. */
static zt_err take_examples(const struct making *m, const struct zt_token_file *file,
                            struct zt_buf *row, take_text take, void *user)
{
    bool words = m->engine->task == ZT_TASK_TAG;
    int64_t at = 0;
    zt_err rc = ZT_OK;

    for (int64_t i = 0; !rc && i < file->num_lengths; i += ZT_EXAMPLE_WORDS) {
        struct zt_example x;

        memcpy(&x, file->lengths + i, sizeof(x));
        if (words) {
            rc = take_words(m, file, at, x.first, row, take, user);
        } else {
            rc = take_bytes(m, file, at, at + x.first, row, take, user);
            if (!rc)
                rc = take_bytes(m, file, at + x.first, at + x.tokens, row, take, user);
        }
        at += x.tokens;
    }
    return rc;
}

static zt_err take_file(const struct making *m, const struct zt_token_file *file,
                        bool examples, take_text take, void *user)
{
    struct zt_buf row;
    zt_err rc;

    if (!file->encoded)
        return take(user, file->path, &file->data, m->fault);
    zt_buf_init(&row, SIZE_MAX / 4);
    rc = (examples ? take_examples : take_rows)(m, file, &row, take, user);
    zt_buf_release(&row);
    return rc;
}

/* Every training file, which is text as the run reads it. */
static zt_err read_texts(const struct making *m, take_text take, void *to)
{
    const struct zt_example_spec rows = zt_task_texts_of_examples(m->engine);
    bool examples = rows.kind != ZT_EXAMPLES_NONE;
    const struct zt_text_encoding how = {.column = m->run->text_column,
                                         .pair = zt_engine_pair(m->run),
                                         .examples = examples ? &rows : NULL,
                                         .keeps_lengths = examples};
    zt_token_format format = zt_token_format_parse(m->run->data_format);
    zt_err rc = ZT_OK;

    for (const char *const *path = m->run->train_files; !rc && *path; path++) {
        struct zt_token_file file = {0};

        rc = zt_token_file_open(*path, format, &how, &file, m->fault);
        if (!rc && !file.bytes)
            rc = zt_fault_set(m->fault, ZT_E_USAGE,
                              "--train_tokenizer: %s holds token ids (%s), not text",
                              *path, zt_token_format_name(file.format));
        if (!rc)
            rc = take_file(m, &file, examples, take, to);
        zt_token_file_release(&file);
    }
    return rc;
}

static zt_err hash_text(void *to, const char *path, const struct zt_mapping *text,
                        struct zt_fault *fault)
{
    uint64_t *hash = to;

    (void)path;
    (void)fault;
    *hash = XXH3_64bits_withSeed(text->data, text->bytes, *hash + 1);
    return ZT_OK;
}

static zt_err count_text(void *to, const char *path, const struct zt_mapping *text,
                         struct zt_fault *fault)
{
    return zt_byte_bpe_add(to, path, (const char *)text->data, text->bytes, fault);
}

static zt_err make(struct making *m)
{
    int32_t size = (int32_t)m->run->train_tokenizer, num = 0;
    struct zt_byte_bpe *b = NULL;
    zt_err rc = zt_byte_bpe_open(&b, m->fault);

    zt_info("data", "making a tokenizer of %d tokens from the training files", (int)size);
    if (!rc)
        rc = read_texts(m, count_text, b);
    if (!rc)
        rc = zt_byte_bpe_make(b, size, m->ends, &m->json, &num, m->fault);
    if (!rc && num < size)
        zt_warn(
            "data",
            "--train_tokenizer %d: the training files have pairs for %d tokens, which "
            "is what the tokenizer has",
            (int)size, (int)num);
    zt_byte_bpe_close(b);
    return rc;
}

/* ---- the folder ---- */

/* *whole: a tokenizer of this text is there. ZT_E_CANTCREATE: another one is. */
static zt_err look(const struct making *m, bool *whole)
{
    const char *dir = m->run->output_dir;
    char path[PATH_MAX + 32];
    json_t *config;
    const char *stamp;

    *whole = false;
    snprintf(path, sizeof(path), "%s/tokenizer.json", dir);
    if (access(path, F_OK))
        return ZT_OK;
    snprintf(path, sizeof(path), "%s/tokenizer_config.json", dir);
    config = json_load_file(path, 0, NULL);
    stamp = json_string_value(json_object_get(config, STAMP));
    *whole = stamp && strcmp(stamp, m->stamp) == 0;
    json_decref(config);
    if (*whole || m->run->overwrite_output_dir)
        return ZT_OK;
    return zt_fault_set(
        m->fault, ZT_E_CANTCREATE,
        "--train_tokenizer: %s/tokenizer.json is there and was not made of "
        "these files with %" PRId64 " tokens: remove it, give another "
        "--output_dir, or use it by --tokenizer_name",
        dir, m->run->train_tokenizer);
}

static zt_err save(struct making *m)
{
    json_t *config = json_loads(ZT_BYTE_BPE_CONFIG, 0, NULL);
    char *text = NULL;
    zt_err rc = zt_buf_put_u8(&m->json, 0);

    if (!rc && config && json_object_set_new(config, STAMP, json_string(m->stamp)) == 0)
        text = json_dumps(config, JSON_INDENT(2));
    json_decref(config);
    if (!text)
        return zt_fault_set(m->fault, ZT_E_NOMEM, "--train_tokenizer: no host memory");
    rc = zt_hf_write_text(m->run->output_dir, "tokenizer_config.json", text, m->fault);
    if (!rc) /* last: where it is, all is there */
        rc = zt_hf_write_text(m->run->output_dir, "tokenizer.json",
                              (const char *)zt_buf_head(&m->json), m->fault);
    free(text);
    return rc;
}

/* The lock goes with the process; a file system without locks costs work, not sense: each
 * rank then makes the same files. -1: no lock. */
static int lock_folder(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = -1;

    while (fd >= 0 && (rc = flock(fd, LOCK_EX)) && errno == EINTR)
        ;
    if (fd >= 0 && rc) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static zt_err make_in_folder(struct making *m)
{
    const char *dir = m->run->output_dir;
    bool whole = false;
    zt_err rc = zt_output_dir_make("--output_dir", dir, m->fault);
    int lock;

    if (rc)
        return rc;
    lock = lock_folder(dir);
    rc = look(m, &whole);
    if (!rc && !whole)
        rc = make(m);
    if (!rc && !whole)
        rc = save(m);
    if (lock >= 0)
        close(lock);
    return rc;
}

zt_err zt_engine_make_tokenizer(struct zt_engine *e, struct zt_fault *fault)
{
    struct making m = {.engine = e, .run = e->run, .fault = fault};
    uint64_t hash = 0;
    zt_err rc = read_texts(&m, hash_text, &hash);

    if (rc)
        return rc;
    m.ends = e->task == ZT_TASK_SEQ2SEQ;
    snprintf(m.stamp, sizeof(m.stamp), "%016" PRIx64 " %" PRId64 "%s", hash,
             e->run->train_tokenizer, m.ends ? " ended" : "");
    zt_buf_init(&m.json, SIZE_MAX / 4);
    if (e->run->dry_run || e->run->check_config) { /* nothing is left behind */
        rc = make(&m);
        if (!rc)
            rc = zt_tokenizer_parse("--train_tokenizer",
                                    (const char *)zt_buf_head(&m.json),
                                    zt_buf_used(&m.json), &e->tokenizer, fault);
    } else {
        rc = make_in_folder(&m);
        if (!rc) {
            ((struct zt_run *)e->run)->tokenizer_name = e->run->output_dir;
            rc = zt_tokenizer_open(e->run->output_dir, &e->tokenizer, fault);
        }
    }
    zt_buf_release(&m.json);
    return rc;
}
