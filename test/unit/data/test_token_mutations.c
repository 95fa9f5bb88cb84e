/*
 * Token files with changed bytes, against readers of their own: a mutant that is accepted
 * holds the tokens that its bytes say, and one that is refused breaks a rule of its format.
 */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "test/unit/mutations.h"
#include "worker/data/tokens.h"

enum { MOST = 64 };

/* What a file says. */
struct expected {
    int64_t token[MOST];
    int num;
};

static uint64_t number(const uint8_t *p, size_t width)
{
    uint64_t v = 0;

    for (size_t i = width; i > 0; i--)
        v = v << 8 | p[i - 1];
    return v;
}

static int64_t signed_number(const uint8_t *p, size_t width)
{
    uint64_t v = number(p, width), sign = (uint64_t)1 << (8 * width - 1);

    return width < 8 && (v & sign) ? (int64_t)v - (int64_t)(2 * sign) : (int64_t)v;
}

/* ---- llm.c ---- */

static bool expect_llmc(const uint8_t *p, size_t n, struct expected *out)
{
    uint64_t magic = number(p, 4), version = number(p + 4, 4), num = number(p + 8, 4);
    size_t width = magic == 20240801 ? 4 : 2;

    out->num = 0;
    if ((magic != 20240520 || version != 1) && (magic != 20240801 || version != 7))
        return false;
    if (num == 0 || num > MOST || n != 1024 + num * width)
        return false;
    for (; out->num < (int)num; out->num++)
        out->token[out->num] =
            (int64_t)number(p + 1024 + (size_t)out->num * width, width);
    return true;
}

/* ---- Megatron ---- */

/* The tokens of one sequence, behind those of the ones before. *end: the furthest byte. */
static bool expect_sequence(const uint8_t *idx, uint64_t S, uint64_t i, size_t width,
                            bool is_signed, const uint8_t *bin, size_t bin_bytes,
                            uint64_t *end, struct expected *out)
{
    int64_t n = signed_number(idx + 34 + 4 * i, 4);
    uint64_t at = number(idx + 34 + 4 * S + 8 * i, 8);

    if (n < 0 || at % width || at > bin_bytes || (uint64_t)n > (bin_bytes - at) / width ||
        out->num + n > MOST)
        return false;
    for (int64_t k = 0; k < n; k++) {
        const uint8_t *p = bin + at + (size_t)k * width;

        out->token[out->num++] =
            is_signed ? signed_number(p, width) : (int64_t)number(p, width);
    }
    *end = at + (uint64_t)n * width > *end ? at + (uint64_t)n * width : *end;
    return true;
}

static bool expect_megatron(const uint8_t *idx, size_t n, const uint8_t *bin,
                            size_t bin_bytes, struct expected *out)
{
    static const size_t widths[9] = {0, 1, 1, 2, 4, 8, 0, 0, 2};
    uint64_t S = number(idx + 18, 8), D = number(idx + 26, 8), last = 0, end = 0;
    const uint8_t *borders;

    out->num = 0;
    if (memcmp(idx, "MMIDIDX\0\0", 9) != 0 || number(idx + 9, 8) != 1 || idx[17] > 8 ||
        !widths[idx[17]] || S > n || D > n)
        return false;
    if (n != 34 + 12 * S + 8 * D && n != 34 + 13 * S + 8 * D)
        return false;
    borders = idx + 34 + 12 * S;
    for (uint64_t i = 0; i < D; i++) {
        uint64_t b = number(borders + 8 * i, 8);

        if ((i == 0 && b) || b < last || b > INT64_MAX)
            return false;
        last = b;
    }
    for (uint64_t i = 0; i < S; i++)
        if (!expect_sequence(idx, S, i, widths[idx[17]], idx[17] != 1 && idx[17] != 8,
                             bin, bin_bytes, &end, out))
            return false;
    return last == S && end == bin_bytes && out->num > 0;
}

/* ---- the same ---- */

static void same_tokens(const struct expected *e, const struct zt_token_run *runs,
                        int64_t num_runs)
{
    int at = 0;

    for (int64_t r = 0; r < num_runs; r++)
        for (int64_t i = 0; i < runs[r].n; i++, at++)
            if (at >= e->num || zt_tokens_get(&runs[r], i) != e->token[at])
                fail_msg("token %d is %lld", at, (long long)zt_tokens_get(&runs[r], i));
    assert_int_equal(at, e->num);
}

static void test_changed_llmc_files_hold_what_they_say(void **state)
{
    int mutations = num_mutations(2000), accepted = 0;
    _Alignas(8) uint8_t whole[1024 + 2 * 20] = {0}, bytes[sizeof(whole)];
    uint64_t x = mutation_seed();

    (void)state;
    memcpy(whole, (const uint32_t[]){htole32(20240520), htole32(1), htole32(20)}, 12);
    for (size_t i = 1024; i < sizeof(whole); i++)
        whole[i] = (uint8_t)(i * 7);
    for (int i = 0; i < mutations; i++) {
        struct zt_mapping m = {.data = bytes, .bytes = sizeof(bytes) - (i % 8 == 7)};
        struct zt_fault fault = {0};
        struct zt_token_run run;
        struct expected e;
        int64_t vocab;
        bool good;

        memcpy(bytes, whole, sizeof(whole));
        /* mostly where something stands: the head, or the tokens */
        change_bytes(bytes + (i % 2 ? 1024 : 0), i % 2 ? sizeof(bytes) - 1024 : 12, NULL,
                     &x);
        good = expect_llmc(bytes, m.bytes, &e);
        assert_int_equal(zt_tokens_parse_llmc("f", m, &run, &vocab, &fault) == ZT_OK,
                         good);
        if (good)
            same_tokens(&e, &run, 1);
        else
            assert_int_equal(fault.code, ZT_E_FORMAT);
        accepted += good;
    }
    print_message("%d mutations, %d accepted\n", mutations, accepted);
    assert_true(accepted > mutations / 20 && accepted < mutations * 19 / 20);
}

/* Sequences of 3, 2 and 4 uint16 tokens, the second behind the third; two documents. */
static size_t make_megatron(uint8_t *idx, uint8_t *bin)
{
    static const uint8_t lengths[] = {3, 2, 4}, offsets[] = {0, 14, 6},
                         borders[] = {0, 1, 3};

    memset(idx, 0, 34 + 3 * 12 + 3 * 8);
    memcpy(idx, "MMIDIDX\0\0\1", 10);
    idx[17] = 8;
    idx[18] = idx[26] = 3;
    for (int i = 0; i < 3; i++) {
        idx[34 + 4 * i] = lengths[i];
        idx[34 + 12 + 8 * i] = offsets[i];
        idx[34 + 36 + 8 * i] = borders[i];
    }
    for (uint8_t i = 0; i < 18; i++)
        bin[i] = (uint8_t)(i * 29);
    return 34 + 3 * 12 + 3 * 8;
}

static void test_changed_megatron_files_hold_what_they_say(void **state)
{
    /* where a change often makes another good file: type, lengths, offsets, borders */
    static const uint8_t places[] = {17, 34, 38, 42, 46, 54, 62, 70, 78, 86};
    int mutations = num_mutations(2000), accepted = 0;
    _Alignas(8) uint8_t bin[18], whole[128], idx[128];
    size_t n = make_megatron(whole, bin);
    uint64_t x = mutation_seed();

    (void)state;
    for (int i = 0; i < mutations; i++) {
        struct zt_token_run *runs = NULL;
        struct zt_fault fault = {0};
        struct expected e;
        int64_t num = 0;
        bool good;

        memcpy(idx, whole, n);
        for (int k = 0; i % 2 && k < 2; k++)
            idx[places[next_random(&x) % sizeof(places)]] = (uint8_t)(x >> 32) % 19;
        if (i % 2 == 0)
            change_bytes(idx, n, NULL, &x);
        good = expect_megatron(idx, n, bin, sizeof(bin), &e);
        assert_int_equal(zt_tokens_parse_megatron(
                             "f", (struct zt_mapping){.data = idx, .bytes = n},
                             (struct zt_mapping){.data = bin, .bytes = sizeof(bin)},
                             &runs, &num, &fault) == ZT_OK,
                         good);
        if (good)
            same_tokens(&e, runs, num);
        else
            assert_int_equal(fault.code, ZT_E_FORMAT);
        accepted += good;
        free(runs);
    }
    print_message("%d mutations, %d accepted\n", mutations, accepted);
    assert_true(accepted > mutations / 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changed_llmc_files_hold_what_they_say),
        cmocka_unit_test(test_changed_megatron_files_hold_what_they_say),
    };

    return cmocka_run_group_tests_name("token mutations", tests, NULL, NULL);
}
