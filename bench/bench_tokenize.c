/*
 * bench_tokenize FOLDER TEXT THREADS ROUNDS: seconds that the tokenizer of a folder takes for a
 * text, line by line, one line a round; the first line is the number of ids.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/mapped_file.h"
#include "worker/text/rows/lines.h"

static zt_err count(void *user, const int32_t *ids, size_t num,
                    const uint32_t *line_tokens, size_t num_lines, size_t bytes,
                    struct zt_fault *fault)
{
    size_t *total = user;

    (void)ids;
    (void)line_tokens;
    (void)num_lines;
    (void)bytes;
    (void)fault;
    *total += num;
    return ZT_OK;
}

static zt_err run(const struct zt_tokenizer *t, const char *name, struct zt_mapping text,
                  int threads, int rounds, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int i = -1; !rc && i < rounds; i++) { /* the first one warms up */
        size_t total = 0;
        struct zt_lines_job job = {.tokenizer = t,
                                   .name = name,
                                   .text = (const char *)text.data,
                                   .n = text.bytes,
                                   .threads = threads,
                                   .sink = count,
                                   .user = &total};
        double start = zt_now();

        rc = zt_lines_encode(&job, NULL, fault);
        if (i < 0)
            printf("%zu\n", total);
        else
            printf("%.6f\n", zt_now() - start);
    }
    return rc;
}

int main(int argc, char **argv)
{
    struct zt_mapping text = {0};
    struct zt_tokenizer *t = NULL;
    struct zt_fault fault = {0};
    zt_err rc;

    if (argc != 5) {
        fprintf(stderr, "usage: bench_tokenize FOLDER TEXT THREADS ROUNDS\n");
        return 2;
    }
    rc = zt_tokenizer_open(argv[1], &t, &fault);
    if (!rc)
        rc = zt_mapping_open(argv[2], &text, &fault);
    if (!rc)
        rc = run(t, argv[2], text, atoi(argv[3]), atoi(argv[4]), &fault);
    if (rc)
        fprintf(stderr, "bench_tokenize: %s\n", fault.text);
    zt_mapping_release(&text);
    zt_tokenizer_close(t);
    return rc != 0;
}
