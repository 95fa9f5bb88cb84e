/*
 * Choices as text: a line for what they hold of, then one for each product, its key and the
 * words of the choice. They are opaque to everybody else, and compared as text by ranks.
 *
 *      products 1 on NVIDIA H200, capability 90, 132 multiprocessors, cuBLASLt 130002, cuDNN
 *      50304 8192 768 1 768 768 50304 0 ... = 1a 0 0 0 0 0 0 0
 */
#include "kernels/cuda/gemm/gemm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/gemm/gated.h"

#define WIDE   11 /* 64-bit numbers of a key, then */
#define NARROW 12 /* of 32 bits */
static_assert(sizeof(struct zt_gemm_key) == WIDE * 8 + NARROW * 4, "all of it is text");

#define MOST_LINE 1024 /* bytes of a line, more than any has */

static zt_err no_memory(struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_NOMEM, "cuda: gemm: no host memory for choices");
}

void zt_gemm_choices_close(struct zt_gemm_choices *c)
{
    if (!c)
        return;
    if (c->begun)
        (void)cudaEventDestroy(c->begun);
    if (c->ended)
        (void)cudaEventDestroy(c->ended);
    free(c->at);
    free(c);
}

const struct zt_gemm_choice *zt_gemm_choice_of(const struct zt_device *dev,
                                               const struct zt_gemm_key *key)
{
    const struct zt_gemm_choices *c = dev->choices;

    for (int i = 0; c && i < c->num; i++)
        if (memcmp(&c->at[i].key, key, sizeof(*key)) == 0)
            return &c->at[i];
    return NULL;
}

zt_err zt_gemm_choice_add(struct zt_device *dev, const struct zt_gemm_choice *choice,
                          struct zt_fault *fault)
{
    struct zt_gemm_choices *c = dev->choices;

    if (c->num == c->room) {
        int room = c->room ? 2 * c->room : 32;
        void *at = realloc(c->at, (size_t)room * sizeof(*c->at));

        if (!at)
            return no_memory(fault);
        c->at = static_cast<struct zt_gemm_choice *>(at);
        c->room = room;
    }
    c->at[c->num++] = *choice;
    return ZT_OK;
}

/* ---- text ---- */

static zt_err describe(const struct zt_device *dev, char line[MOST_LINE],
                       struct zt_fault *fault)
{
    struct cudaDeviceProp prop = {};
    cudaError_t e = cudaGetDeviceProperties(&prop, dev->ordinal);

    if (e != cudaSuccess)
        return zt_cuda_failed("the properties of a device", e, fault);
    snprintf(line, MOST_LINE,
             "products 1 on %s, capability %d, %d multiprocessors, cuBLASLt %zu%s%s",
             prop.name, dev->capability, dev->num_sm, cublasLtGetVersion(),
             dev->sdpa ? ", " : "", dev->sdpa ? zt_cuda_gated_library(dev) : "");
    return ZT_OK;
}

static void format(const struct zt_gemm_choice *c, char line[MOST_LINE])
{
    int64_t wide[WIDE];
    int32_t narrow[NARROW];
    int n = 0;

    memcpy(wide, &c->key, sizeof(wide));
    memcpy(narrow, reinterpret_cast<const char *>(&c->key) + sizeof(wide),
           sizeof(narrow));
    for (int64_t x : wide)
        n += snprintf(line + n, MOST_LINE - (size_t)n, "%lld ", (long long)x);
    for (int32_t x : narrow)
        n += snprintf(line + n, MOST_LINE - (size_t)n, "%d ", (int)x);
    n += snprintf(line + n, MOST_LINE - (size_t)n, "=");
    for (uint64_t x : c->algo)
        n += snprintf(line + n, MOST_LINE - (size_t)n, " %llx", (unsigned long long)x);
}

/* The next number of a line; false: there is none. */
template <typename T>
static bool next_number(const char **at, int base, T (*parse)(const char *, char **, int),
                        T *out)
{
    char *end = NULL;

    *out = parse(*at, &end, base);
    if (end == *at || (*end != ' ' && *end != '\n' && *end != 0))
        return false;
    *at = end;
    return true;
}

/* A line of format(); *at moves to its end. */
static bool parse(const char **at, struct zt_gemm_choice *c)
{
    int64_t wide[WIDE];
    int32_t narrow[NARROW];
    long long number = 0;
    unsigned long long word = 0;

    for (int64_t &x : wide) {
        if (!next_number(at, 10, strtoll, &number))
            return false;
        x = number;
    }
    for (int32_t &x : narrow) {
        if (!next_number(at, 10, strtoll, &number) || number != (int32_t)number)
            return false;
        x = (int32_t)number;
    }
    if (strncmp(*at, " =", 2) != 0)
        return false;
    *at += 2;
    for (uint64_t &x : c->algo) {
        if (!next_number(at, 16, strtoull, &word))
            return false;
        x = word;
    }
    memcpy(&c->key, wide, sizeof(wide));
    memcpy(reinterpret_cast<char *>(&c->key) + sizeof(wide), narrow, sizeof(narrow));
    return **at == '\n';
}

static zt_err check_head(const struct zt_device *dev, const char *text,
                         struct zt_fault *fault)
{
    char here[MOST_LINE];
    zt_err rc = describe(dev, here, fault);
    size_t length = strcspn(text, "\n");

    if (rc || (length == strlen(here) && strncmp(text, here, length) == 0))
        return rc;
    return zt_fault_set(fault, ZT_E_CONFIG,
                        "the tuning of products is of \"%.*s\", but this is \"%s\": name "
                        "another file by --product_tuning",
                        length < 200 ? (int)length : 200, text, here);
}

zt_err zt_gemm_choices_read(struct zt_device *dev, const char *text,
                            struct zt_fault *fault)
{
    struct zt_gemm_choice c = {};
    int line = 1;
    zt_err rc;

    zt_gemm_choices_close(dev->choices);
    dev->choices =
        static_cast<struct zt_gemm_choices *>(calloc(1, sizeof(*dev->choices)));
    if (!dev->choices)
        return no_memory(fault);
    rc = text ? check_head(dev, text, fault) : ZT_OK;
    if (rc || !text)
        return rc;
    for (text += strcspn(text, "\n"); !rc && *text && text[1]; line++) {
        text++;
        rc = parse(&text, &c) ? zt_gemm_choice_add(dev, &c, fault)
                              : zt_fault_set(fault, ZT_E_FORMAT,
                                             "the tuning of products: line %d is none of "
                                             "its lines: remove the file",
                                             line + 1);
    }
    return rc;
}

zt_err zt_gemm_choices_text(const struct zt_device *dev, char **out,
                            struct zt_fault *fault)
{
    const struct zt_gemm_choices *c = dev->choices;
    size_t room = ((size_t)c->num + 1) * (MOST_LINE + 1) + 1, n;
    char *text = static_cast<char *>(malloc(room));
    zt_err rc = text ? describe(dev, text, fault) : no_memory(fault);

    if (rc) {
        free(text);
        return rc;
    }
    n = strlen(text);
    for (int i = 0; i < c->num; i++) {
        text[n++] = '\n';
        format(&c->at[i], text + n);
        n += strlen(text + n);
    }
    text[n++] = '\n';
    text[n] = 0;
    *out = text;
    return ZT_OK;
}
