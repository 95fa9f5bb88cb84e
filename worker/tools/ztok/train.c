/* train.c -- ztok --train: a tokenizer of text files. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "common/files/folders.h"
#include "worker/checkpoint/hf_folder.h"
#include "worker/checkpoint/tokenizer_files.h"
#include "worker/text/rows/lines.h"
#include "worker/text/train/byte_bpe.h"
#include "worker/tools/ztok/ztok.h"

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
    zt_err rc = zt_ztok_open_text(name, &text, fault);

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

/* Also one of another form: beside this one neither would be whole. */
static zt_err check_new(const char *dir, struct zt_fault *fault)
{
    char found[PATH_MAX];

    return zt_find_tokenizer(dir, found)
               ? zt_fault_set(fault, ZT_E_CANTCREATE,
                              "%s: is there already; remove it, or give another --out",
                              found)
               : ZT_OK;
}

static zt_err save_tokenizer(const char *dir, struct zt_buf *json, struct zt_fault *fault)
{
    zt_err rc = zt_buf_put_u8(json, 0);

    if (rc)
        return zt_fault_set(fault, rc, "ztok: no memory");
    rc = check_new(dir, fault); /* one may have come while the text was read */
    if (!rc)
        rc = zt_folders_make(NULL, dir, NULL, fault);
    if (rc)
        return rc;
    rc = zt_hf_write_text(dir, "tokenizer_config.json", ZT_BYTE_BPE_CONFIG, fault);
    return rc ? rc
              : zt_hf_write_text(dir, "tokenizer.json", (const char *)zt_buf_head(json),
                                 fault);
}

zt_err zt_ztok_train(const zt_args *args, const char *const *words, int num_words,
                     struct zt_fault *fault)
{
    const char *dir = zt_args_string(args, "out");
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
    else if (zt_args_given(args, "threads"))
        rc = zt_fault_set(fault, ZT_E_USAGE,
                          "--threads: --train has one thread; leave it out");
    else
        rc = zt_ztok_check_column(zt_args_string(args, "text_column"), words, num_words,
                                  fault);
    if (!rc)
        rc = check_new(dir, fault);
    if (!rc)
        rc = zt_byte_bpe_open(&b, fault);
    for (int i = 0; !rc && i < num_words; i++)
        rc = count_words(b, words[i], zt_args_string(args, "text_column"), fault);
    if (!rc)
        rc = zt_byte_bpe_make(b, size, false, &json, &num, fault);
    if (!rc)
        rc = save_tokenizer(dir, &json, fault);
    if (!rc)
        printf("%s/tokenizer.json: %d tokens%s\n", dir, (int)num,
               num < size ? "; the text has no more" : "");
    zt_buf_release(&json);
    zt_byte_bpe_close(b);
    return rc;
}
