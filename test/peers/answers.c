/*
 * answers FOLDER < rows.jsonl: the ids of each row's conversation, a line each; what is no answer of
 * the assistant's as ~id. For the comparison with transformers (check_answers.py).
 */
#include <stdio.h>

#include "worker/text/rows/lines.h"

static zt_err print(void *user, const int32_t *ids, size_t num,
                    const uint32_t *line_tokens, size_t num_lines, size_t bytes,
                    struct zt_fault *fault)
{
    size_t at = 0;

    (void)user;
    (void)num;
    (void)bytes;
    (void)fault;
    for (size_t i = 0; i < num_lines; i++) {
        for (uint32_t k = 0; k < line_tokens[i]; k++)
            printf("%d ", (int)ids[at++]);
        putchar('\n');
    }
    return ZT_OK;
}

static zt_err answer(const char *folder, struct zt_buf *rows, struct zt_fault *fault)
{
    struct zt_tokenizer *t = NULL;
    struct zt_lines_job job = {.name = "rows",
                               .text = (const char *)zt_buf_head(rows),
                               .n = zt_buf_used(rows),
                               .answers_only = true,
                               .sink = print};
    zt_err rc = zt_tokenizer_open(folder, &t, fault);

    job.tokenizer = t;
    if (!rc)
        rc = zt_lines_encode_records(&job, zt_record_format_named("jsonl"), NULL, NULL,
                                     fault);
    zt_tokenizer_close(t);
    return rc;
}

int main(int argc, char **argv)
{
    struct zt_fault fault = {ZT_OK, ""};
    struct zt_buf rows;
    char part[65536];
    size_t n;
    zt_err rc = argc == 2 ? ZT_OK : ZT_E_USAGE;

    zt_buf_init(&rows, (size_t)1 << 30);
    while (!rc && (n = fread(part, 1, sizeof(part), stdin)) > 0)
        rc = zt_buf_put(&rows, part, n);
    if (!rc)
        rc = answer(argv[1], &rows, &fault);
    zt_buf_release(&rows);
    if (rc)
        fprintf(stderr, "answers: %s\n", fault.text);
    return rc ? 1 : 0;
}
