/*
 * megatron.c -- the .idx of a Megatron dataset.
 *
 *      0   9        17      18  26  34         34+4S        34+12S          34+12S+8D
 *      |MMIDIDX\0\0| u64 1 | u8 | S | D | S lengths | S byte offsets | D borders [|modes]
 *
 * Lengths are i32, offsets and borders i64, all little-endian and none of them aligned.
 * The modes of multimodal files say nothing about tokens and are passed over.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "worker/data/tokens.h"

#define HEADER 34

struct index {
    const char *path;
    const uint8_t *lengths, *offsets, *borders;
    int64_t num_seq, num_border;
    zt_token_code code;
};

static int32_t load_i32(const uint8_t *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof(v));
    return (int32_t)le32toh(v);
}

static int64_t load_i64(const uint8_t *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof(v));
    return (int64_t)le64toh(v);
}

static zt_err token_code(const char *path, uint8_t code, zt_token_code *out,
                         struct zt_fault *fault)
{
    static const zt_token_code codes[] = {
        [1] = ZT_TOKEN_U8,  [2] = ZT_TOKEN_I8,  [3] = ZT_TOKEN_I16,
        [4] = ZT_TOKEN_I32, [5] = ZT_TOKEN_I64, [8] = ZT_TOKEN_U16};

    if (code == 6 || code == 7)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: its numbers are floating point, so they are no tokens",
                            path);
    if (code == 0 || code > 8)
        return zt_fault_set(fault, ZT_E_FORMAT, "%s: malformed: unknown type code %d",
                            path, code);
    *out = codes[code];
    return ZT_OK;
}

static zt_err parse_header(const char *path, struct zt_mapping m, struct index *x,
                           struct zt_fault *fault)
{
    uint64_t S, D, rest, want;
    zt_err rc;

    if (m.bytes < HEADER)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: truncated: %zu bytes, less than the header of a "
                            "Megatron index",
                            path, m.bytes);
    if (memcmp(m.data, "MMIDIDX\0\0", 9) != 0)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: is no Megatron index (it does not begin with MMIDIDX)",
                            path);
    if (load_i64(m.data + 9) != 1)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: Megatron index of version %lld; version 1 is known",
                            path, (long long)load_i64(m.data + 9));
    rc = token_code(path, m.data[17], &x->code, fault);
    if (rc)
        return rc;
    S = (uint64_t)load_i64(m.data + 18);
    D = (uint64_t)load_i64(m.data + 26);
    rest = m.bytes - HEADER;
    if (S > rest / 12 || D > (rest - S * 12) / 8)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: truncated: %llu sequences and %llu document borders do "
                            "not fit in %zu bytes; make it again",
                            path, (unsigned long long)S, (unsigned long long)D, m.bytes);
    want = S * 12 + D * 8;
    if (rest != want && rest != want + S)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: malformed: %llu bytes too many at its end; make it "
                            "again",
                            path, (unsigned long long)(rest - want));
    x->path = path;
    x->num_seq = (int64_t)S;
    x->num_border = (int64_t)D;
    x->lengths = m.data + HEADER;
    x->offsets = x->lengths + S * 4;
    x->borders = x->offsets + S * 8;
    return ZT_OK;
}

/* Borders rise from 0 to the number of sequences. */
static zt_err check_borders(const struct index *x, struct zt_fault *fault)
{
    int64_t last = 0;

    for (int64_t i = 0; i < x->num_border; i++) {
        int64_t b = load_i64(x->borders + 8 * i);

        if (b < last || (i == 0 && b != 0))
            return zt_fault_set(fault, ZT_E_FORMAT,
                                "%s: malformed: document border %lld is %lld after %lld",
                                x->path, (long long)i, (long long)b, (long long)last);
        last = b;
    }
    if (last != x->num_seq)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: malformed: its documents end at sequence %lld of %lld",
                            x->path, (long long)last, (long long)x->num_seq);
    return ZT_OK;
}

/* One sequence: its place in the .bin. *end follows the furthest byte in use. */
static zt_err check_sequence(const struct index *x, int64_t i, size_t bin_bytes,
                             struct zt_token_run *out, int64_t *off, int64_t *end,
                             struct zt_fault *fault)
{
    int64_t n = load_i32(x->lengths + 4 * i), at = load_i64(x->offsets + 8 * i);
    int64_t width = (int64_t)zt_token_bytes(x->code), all = (int64_t)bin_bytes;

    if (n < 0 || at < 0 || at % width)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: malformed: sequence %lld has %lld tokens at byte %lld",
                            x->path, (long long)i, (long long)n, (long long)at);
    if (at > all || n > (all - at) / width)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: sequence %lld lies past the end of its .bin (%lld "
                            "bytes): the .bin is truncated or of another run",
                            x->path, (long long)i, (long long)all);
    *off = at;
    *out = (struct zt_token_run){.n = n, .code = x->code};
    if (at + n * width > *end)
        *end = at + n * width;
    return ZT_OK;
}

static zt_err append(struct zt_token_run **runs, int64_t *n, struct zt_token_run run)
{
    if ((*n & (*n - 1)) == 0) { /* full at every power of two */
        struct zt_token_run *more =
            realloc(*runs, (size_t)(*n ? 2 * *n : 1) * sizeof(run));

        if (!more)
            return ZT_E_NOMEM;
        *runs = more;
    }
    (*runs)[(*n)++] = run;
    return ZT_OK;
}

static zt_err gather_runs(const struct index *x, struct zt_mapping bin,
                          struct zt_token_run **runs, int64_t *num_runs,
                          struct zt_fault *fault)
{
    int64_t end = 0, next = -1;

    for (int64_t i = 0; i < x->num_seq; i++) {
        struct zt_token_run run = {0};
        int64_t off = 0;
        zt_err rc = check_sequence(x, i, bin.bytes, &run, &off, &end, fault);

        if (rc)
            return rc;
        if (run.n == 0)
            continue;
        run.data = bin.data + off;
        if (*runs && off == next)
            (*runs)[*num_runs - 1].n += run.n;
        else if (append(runs, num_runs, run))
            return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", x->path);
        next = off + run.n * (int64_t)zt_token_bytes(x->code);
    }
    if (end != (int64_t)bin.bytes)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: describes %lld bytes, its .bin has %zu: they are not of "
                            "the same run",
                            x->path, (long long)end, bin.bytes);
    if (!*num_runs)
        return zt_fault_set(fault, ZT_E_FORMAT, "%s: holds no tokens", x->path);
    return ZT_OK;
}

zt_err zt_tokens_parse_megatron(const char *idx_path, struct zt_mapping idx,
                                struct zt_mapping bin, struct zt_token_run **runs,
                                int64_t *num_runs, struct zt_fault *fault)
{
    struct zt_token_run *got = NULL;
    int64_t n = 0;
    struct index x = {0};
    zt_err rc = parse_header(idx_path, idx, &x, fault);

    if (!rc)
        rc = check_borders(&x, fault);
    if (!rc)
        rc = gather_runs(&x, bin, &got, &n, fault);
    if (rc) {
        free(got);
        return rc;
    }
    *runs = got;
    *num_runs = n;
    return ZT_OK;
}

zt_err zt_tokens_megatron_lengths(struct zt_mapping idx, uint32_t **lengths, int64_t *num,
                                  struct zt_fault *fault)
{
    int64_t n = load_i64(idx.data + 18);
    uint32_t *out = malloc((size_t)(n ? n : 1) * sizeof(*out));

    if (!out)
        return zt_fault_set(fault, ZT_E_NOMEM, "data files: no memory");
    for (int64_t i = 0; i < n; i++)
        out[i] = (uint32_t)load_i32(idx.data + HEADER + 4 * i);
    *lengths = out;
    *num = n;
    return ZT_OK;
}
