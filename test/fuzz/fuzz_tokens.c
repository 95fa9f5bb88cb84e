/*
 * Token files: byte 0 chooses the parser. 0: the rest is an llm.c file; otherwise a u16
 * (little-endian) splits the rest into a Megatron .bin of that many bytes and its .idx.
 * What is accepted must lie within the file, and every token of it is read.
 */
#include <stdlib.h>
#include <string.h>

#include "worker/data/tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A copy of its own, aligned as a mapping is, with red zones around it. */
static struct zt_mapping copy(const uint8_t *p, size_t n)
{
    uint8_t *own = malloc(n ? n : 1);

    if (!own)
        abort();
    memcpy(own, p, n);
    return (struct zt_mapping){.data = own, .bytes = n};
}

static void read_run(const struct zt_token_run *run, struct zt_mapping m)
{
    size_t width = zt_token_bytes(run->code);
    int32_t out[64];
    int64_t min, max;

    if (run->n <= 0 || run->data < m.data ||
        (uint64_t)run->n * width > (size_t)(m.data + m.bytes - run->data))
        abort();
    zt_tokens_range(run, &min, &max);
    for (int64_t i = 0; i < run->n; i += 64)
        zt_tokens_copy(run, i, run->n - i < 64 ? run->n - i : 64, out);
    if (zt_tokens_get(run, run->n - 1) < min || zt_tokens_get(run, 0) > max)
        abort();
}

static void llmc(struct zt_mapping file)
{
    struct zt_token_run run;
    int64_t vocab;

    if (zt_tokens_parse_llmc("fuzz", file, &run, &vocab, NULL) == ZT_OK)
        read_run(&run, file);
}

static void megatron(struct zt_mapping idx, struct zt_mapping bin)
{
    struct zt_token_run *runs = NULL;
    int64_t num = 0;

    if (zt_tokens_parse_megatron("fuzz", idx, bin, &runs, &num, NULL) == ZT_OK)
        for (int64_t i = 0; i < num; i++)
            read_run(&runs[i], bin);
    free(runs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct zt_mapping a, b;
    size_t cut;

    if (n < 3)
        return 0;
    cut = (size_t)data[1] | (size_t)data[2] << 8;
    if (data[0] == 0) {
        a = copy(data + 1, n - 1);
        llmc(a);
        free((void *)a.data);
        return 0;
    }
    if (cut > n - 3)
        cut = n - 3;
    b = copy(data + 3, cut);
    a = copy(data + 3 + cut, n - 3 - cut);
    megatron(a, b);
    free((void *)a.data);
    free((void *)b.data);
    return 0;
}
