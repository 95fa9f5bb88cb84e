/*
 * tokenize FOLDER encode|frame: records on stdin to ids; tokenize FOLDER decode|skip|stream: ids to text.
 * A record is a little-endian u32 of its size in bytes, then its bytes; ids are i32. A record in gives one out.
 * For the comparison with the package `tokenizers` (check_tokenizers.py).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/text/tokenizer.h"

static void stop(const char *what)
{
    fprintf(stderr, "tokenize: %s\n", what);
    exit(1);
}

/* False: the end of stdin. */
static bool read_record(struct zt_buf *in)
{
    uint8_t *to;
    uint32_t n;

    zt_buf_drop(in, zt_buf_used(in));
    if (fread(&n, sizeof(n), 1, stdin) != 1)
        return false;
    if (zt_buf_reserve(in, n, &to))
        stop("no memory");
    if (n && fread(to, 1, n, stdin) != n)
        stop("a record is cut short");
    zt_buf_commit(in, n);
    return true;
}

static void write_record(const void *data, size_t bytes)
{
    uint32_t n = (uint32_t)bytes;

    if (fwrite(&n, sizeof(n), 1, stdout) != 1 || fwrite(data, 1, bytes, stdout) != bytes)
        stop("stdout cannot be written");
}

static void stream(struct zt_token_stream *s, const int32_t *ids, size_t num,
                   struct zt_buf *out)
{
    struct zt_fault fault = {0};

    for (size_t i = 0; i < num; i++)
        if (zt_token_stream_put(s, ids[i], out, &fault))
            stop(fault.text);
    if (zt_token_stream_end(s, out, &fault))
        stop(fault.text);
}

static void decode(const struct zt_tokenizer *t, struct zt_token_stream *s, bool skip,
                   const struct zt_buf *in)
{
    const int32_t *ids = (const int32_t *)(const void *)zt_buf_head(in);
    size_t num = zt_buf_used(in) / sizeof(*ids);
    struct zt_fault fault = {0};
    struct zt_buf out;

    zt_buf_init(&out, ZT_TEXT_MAX_BYTES);
    if (s)
        stream(s, ids, num, &out);
    else if (zt_decode(t, ids, num, skip, &out, &fault))
        stop(fault.text);
    write_record(zt_buf_head(&out), zt_buf_used(&out));
    zt_buf_release(&out);
}

static void encode(struct zt_encoder *e, bool frame, const struct zt_buf *in)
{
    struct zt_fault fault = {0};
    const int32_t *ids;
    size_t num;

    if (zt_encode(e, (const char *)zt_buf_head(in), zt_buf_used(in), frame, &ids, &num,
                  &fault))
        stop(fault.text);
    write_record(ids, num * sizeof(*ids));
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[2] : "";
    struct zt_tokenizer *t = NULL;
    struct zt_encoder *e = NULL;
    struct zt_token_stream *s = NULL;
    struct zt_fault fault = {0};
    struct zt_buf in;
    zt_err rc;

    if (argc != 3)
        stop("usage: tokenize FOLDER encode|frame|decode|skip|stream");
    zt_buf_init(&in, ZT_TEXT_MAX_BYTES);
    rc = zt_tokenizer_open(argv[1], &t, &fault);
    if (!rc)
        rc = zt_encoder_open(t, &e, &fault);
    if (!rc && strcmp(what, "stream") == 0)
        rc = zt_token_stream_open(t, false, &s, &fault);
    if (rc)
        stop(fault.text);
    while (read_record(&in)) {
        if (strcmp(what, "encode") == 0 || strcmp(what, "frame") == 0)
            encode(e, strcmp(what, "frame") == 0, &in);
        else
            decode(t, s, strcmp(what, "skip") == 0, &in);
    }
    zt_buf_release(&in);
    zt_token_stream_close(s);
    zt_encoder_close(e);
    zt_tokenizer_close(t);
    return 0;
}
