/* Every token format, read back whole and in pieces; every way a file can be wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "test/unit/data/files.h"
#include "worker/data/dataset.h"
#include "worker/data/tokens.h"

#define FILES(...) ((const char *const[]){__VA_ARGS__, NULL})

static struct zt_fault fault;

static struct zt_dataset *opened(const char *const *files, const char *format)
{
    struct zt_dataset *ds = NULL;

    fault = (struct zt_fault){0};
    if (zt_dataset_open(files, format, 0, &ds, &fault))
        fail_msg("%s", fault.text);
    return ds;
}

/* The refusal carries the code, the path and a phrase. */
static void refused(const char *const *files, const char *format, int64_t vocab,
                    zt_err code, const char *phrase)
{
    struct zt_dataset *ds = NULL;

    fault = (struct zt_fault){0};
    assert_int_equal(zt_dataset_open(files, format, vocab, &ds, &fault), code);
    assert_null(ds);
    assert_int_equal(fault.code, code);
    if (!strstr(fault.text, phrase))
        fail_msg("\"%s\" does not say \"%s\"", fault.text, phrase);
    if (code != ZT_E_USAGE && !strstr(fault.text, scratch_dir))
        fail_msg("\"%s\" names no file", fault.text);
    assert_null(strchr(fault.text, '\n'));
}

static void holds(const struct zt_dataset *ds, const int32_t *want, int64_t n)
{
    int32_t got[64];

    assert_int_equal(zt_dataset_num_tokens(ds), n);
    for (int64_t first = 0; first <= n; first++) {
        for (int64_t k = 0; first + k <= n; k++) {
            memset(got, 0xee, sizeof(got));
            assert_int_equal(zt_dataset_read(ds, first, k, got, NULL), ZT_OK);
            assert_memory_equal(got, want + first, (size_t)k * sizeof(*got));
            assert_int_equal(got[k], (int32_t)0xeeeeeeee);
        }
    }
    assert_int_equal(zt_dataset_read(ds, 0, n + 1, got, NULL), ZT_E_ARG);
    assert_int_equal(zt_dataset_read(ds, n + 1, 0, got, NULL), ZT_E_ARG);
    assert_int_equal(zt_dataset_read(ds, -1, 1, got, NULL), ZT_E_ARG);
    assert_int_equal(zt_dataset_read(ds, 1, INT64_MAX, got, NULL), ZT_E_ARG);
}

static void test_text_is_bytes_with_an_end_after_each_file(void **state)
{
    const char *a = put_file("a.txt", "hi\xff", 3), *b = put_file("b.txt", "\n", 1);
    struct zt_dataset *ds = opened(FILES(a, b), "auto");

    (void)state;
    holds(ds, (const int32_t[]){'h', 'i', 255, 256, '\n', 256}, 6);
    assert_true(zt_dataset_is_bytes(ds));
    assert_int_equal(zt_dataset_vocab(ds), 257);
    assert_string_equal(zt_dataset_format(ds), "text");
    zt_dataset_close(ds);
}

static void test_nanogpt_is_plain_uint16(void **state)
{
    const uint16_t t[] = {1, 50256, 65535};
    struct zt_dataset *ds = opened(FILES(put_file("train.bin", t, sizeof(t))), "auto");

    (void)state;
    holds(ds, (const int32_t[]){1, 50256, 65535}, 3);
    assert_false(zt_dataset_is_bytes(ds));
    assert_int_equal(zt_dataset_vocab(ds), 65536);
    assert_string_equal(zt_dataset_format(ds), "nanogpt");
    zt_dataset_close(ds);
}

/* An llm.c file: header words 0..2, then `bytes` of tokens. */
static const char *put_llmc(const char *name, int32_t magic, int32_t version, int32_t n,
                            const void *tokens, size_t bytes)
{
    uint8_t buf[1024 + 64] = {0};

    memcpy(buf, (const int32_t[]){magic, version, n}, 12);
    memcpy(buf + 1024, tokens, bytes);
    return put_file(name, buf, 1024 + bytes);
}

static void test_records_are_the_text_of_a_column(void **state)
{
    static const char json[] = "{\"text\": \"a\\u00e9\"}\n\n{\"text\": \"\"}",
                      csv[] = "id,body,by\nn1,\"x\ny\",me\n";
    const char *lines = put_file("r.jsonl", json, sizeof(json) - 1);
    const char *table = put_file("r.csv", csv, sizeof(csv) - 1);
    struct zt_text_encoding how = {.column = "body"};
    struct zt_dataset *ds = opened(FILES(lines), "auto");

    (void)state;
    holds(ds, (const int32_t[]){'a', 0xc3, 0xa9, 256, 256}, 5);
    assert_true(zt_dataset_is_bytes(ds));
    assert_false(zt_dataset_is_encoded(ds));
    assert_int_equal(zt_dataset_vocab(ds), ZT_TEXT_VOCAB);
    assert_int_equal(zt_dataset_num_blank(ds), 1);
    assert_string_equal(zt_dataset_format(ds), "jsonl");
    zt_dataset_close(ds);
    refused(FILES(table), "auto", 0, ZT_E_USAGE, "r.csv:2: no column is named \"text\"");
    assert_int_equal(zt_dataset_open_text(FILES(table), "auto", &how, 0, &ds, NULL),
                     ZT_OK);
    holds(ds, (const int32_t[]){'x', '\n', 'y', 256}, 4);
    zt_dataset_close(ds);
    refused(FILES(put_file("r.json", "[]\n", 3)), "auto", 0, ZT_E_FORMAT,
            "holds no rows");
    refused(FILES(put_file("r.tsv", "a\tb\n1\n", 6)), "auto", 0, ZT_E_FORMAT,
            "r.tsv:2: has 1 field, and the header 2");
}

static void test_text_by_a_tokenizer_is_ids_line_by_line(void **state)
{
    static const char json[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"\\n\":3,"
        "\"s\":70000},"
        "\"merges\":[\"a b\"]},\"post_processor\":{\"type\":\"BertProcessing\","
        "\"cls\":[\"s\",70000],\"sep\":[\"b\",1]}}";
    const char *path = put_file("text.txt", "ab\nb\xff", 5),
               *ids = put_file("ids.bin", "\1\0", 2);
    struct zt_text_encoding how = {.threads = 2};
    struct zt_tokenizer *t = NULL;
    struct zt_dataset *ds = NULL, *bytes = opened(FILES(path), "auto");

    (void)state;
    assert_int_equal(zt_tokenizer_parse("json", json, sizeof(json) - 1, &t, NULL), ZT_OK);
    how.tokenizer = t;
    assert_int_equal(zt_dataset_open_text(FILES(path, ids), "auto", &how, 0, &ds, NULL),
                     ZT_OK);
    holds(ds, (const int32_t[]){70000, 2, 3, 1, 70000, 1, 1, 1}, 8);
    assert_false(zt_dataset_is_bytes(ds));
    assert_int_equal(zt_dataset_vocab(ds), 70001);
    assert_int_equal(zt_dataset_num_replaced(ds), 1);
    assert_true(zt_dataset_fingerprint(ds) != zt_dataset_fingerprint(bytes));
    zt_dataset_close(ds);
    how.tokenizer = NULL;
    how.refusal = &(struct zt_fault){.code = ZT_E_FORMAT, .text = "its model is Magic"};
    assert_int_equal(zt_dataset_open_text(FILES(path), "auto", &how, 0, &ds, &fault),
                     ZT_E_FORMAT);
    assert_non_null(strstr(fault.text, "cannot be read: its model is Magic"));
    assert_int_equal(zt_dataset_open_text(FILES(ids), "auto", &how, 0, &ds, &fault),
                     ZT_OK);
    zt_dataset_close(ds);
    zt_dataset_close(bytes);
    zt_tokenizer_close(t);
}

static void test_context_is_read_and_is_no_target(void **state)
{
    const int16_t narrow[] = {5, ~7, 0, ~0, ~32767};
    const int32_t wide[] = {5, ~7, 0, ~0, ~32767};
    const struct zt_token_run runs[] = {
        {.data = (const uint8_t *)narrow, .n = 5, .code = ZT_TOKEN_I16_CONTEXT},
        {.data = (const uint8_t *)wide, .n = 5, .code = ZT_TOKEN_I32_CONTEXT}};

    (void)state;
    for (int k = 0; k < 2; k++) {
        struct zt_token_run behind = runs[k];
        int32_t tokens[5], targets[5];
        int64_t min, max;

        zt_tokens_copy(&runs[k], 0, 5, tokens);
        assert_memory_equal(tokens, ((int32_t[]){5, 7, 0, 0, 32767}), sizeof(tokens));
        zt_tokens_copy_targets(&runs[k], 1, 4, -1, targets);
        assert_memory_equal(targets, ((int32_t[]){-1, 0, -1, -1}), 4 * sizeof(*targets));
        zt_tokens_range(&runs[k], &min, &max);
        assert_int_equal(min, 0);
        assert_int_equal(max, 32767);
        assert_int_equal(zt_tokens_get(&runs[k], 4), 32767);
        assert_false(zt_tokens_are_context(&runs[k]));
        behind.data += 3 * zt_token_bytes(behind.code);
        behind.n = 2;
        assert_true(zt_tokens_are_context(&behind));
    }
}

static void test_llmc_both_widths_tell_their_tokenizer(void **state)
{
    const uint16_t narrow[] = {7, 50256};
    const uint32_t wide[] = {128000, 5, 0};
    struct zt_dataset *ds =
        opened(FILES(put_llmc("n.bin", 20240520, 1, 2, narrow, 4)), "auto");

    (void)state;
    holds(ds, (const int32_t[]){7, 50256}, 2);
    assert_int_equal(zt_dataset_vocab(ds), 50257);
    assert_string_equal(zt_dataset_format(ds), "llmc");
    zt_dataset_close(ds);
    ds = opened(FILES(put_llmc("w.dat", 20240801, 7, 3, wide, 12)), "auto");
    holds(ds, (const int32_t[]){128000, 5, 0}, 3);
    assert_int_equal(zt_dataset_vocab(ds), 128256);
    zt_dataset_close(ds);
}

/* Documents [1,2,3] and [4,5] as uint16. */
static const uint8_t megatron_idx[82] = {
    'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 2, 0, 0,
    0,   0,   0,   0,   0,   3,   0,   0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0,
    0,   0,   0,   0,   0,   0,   0,   0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0,   0,   0,   1,   0,   0,   0,   0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0};
static const uint16_t megatron_bin[] = {1, 2, 3, 4, 5};

static void put_megatron(const uint8_t *idx, size_t idx_bytes, size_t bin_bytes)
{
    put_file("m.idx", idx, idx_bytes);
    put_file("m.bin", megatron_bin, bin_bytes);
}

static void test_megatron_by_any_of_its_names_counts_once(void **state)
{
    struct zt_dataset *ds;

    (void)state;
    put_megatron(megatron_idx, 82, 10);
    for (int i = 0; i < 3; i++) {
        ds = opened(FILES(in_scratch(((const char *[]){"m.idx", "m.bin", "m"})[i])),
                    i == 2 ? "megatron" : "auto");
        holds(ds, (const int32_t[]){1, 2, 3, 4, 5}, 5);
        assert_int_equal(zt_dataset_vocab(ds), 6);
        zt_dataset_close(ds);
    }
    ds = opened(FILES(in_scratch("m"), in_scratch("m.bin"), in_scratch("m.idx")), "auto");
    assert_int_equal(zt_dataset_num_tokens(ds), 5);
    assert_string_equal(zt_dataset_format(ds), "megatron");
    zt_dataset_close(ds);
}

static void test_megatron_sequences_follow_the_index_not_the_bin(void **state)
{
    uint8_t idx[84];
    struct zt_dataset *ds;

    (void)state;
    memcpy(idx, megatron_idx, 82);
    idx[34] = 2; /* lengths 2 and 3; the first sequence lies behind the second */
    idx[38] = 3;
    idx[42] = 6;
    idx[50] = 0;
    idx[82] = idx[83] = 0; /* modes of a multimodal file */
    put_megatron(idx, 84, 10);
    ds = opened(FILES(in_scratch("m.idx")), "auto");
    holds(ds, (const int32_t[]){4, 5, 1, 2, 3}, 5);
    zt_dataset_close(ds);
}

static void test_megatron_refuses_each_broken_field(void **state)
{
    static const struct {
        int at, value, idx_bytes, bin_bytes;
        const char *phrase;
    } cases[] = {
        {0, 'N', 82, 10, "no Megatron index"},
        {9, 2, 82, 10, "version 2"},
        {17, 7, 82, 10, "floating point"},
        {17, 9, 82, 10, "type code 9"},
        {17, 0, 82, 10, "type code 0"},
        {18, 3, 82, 10, "truncated"},
        {25, 0x80, 82, 10, "truncated"},
        {26, 2, 82, 10, "8 bytes too many"},
        {33, 0x7f, 82, 10, "truncated"},
        {34, 4, 82, 8, "past the end of its .bin"},
        {37, 0x80, 82, 10, "malformed: sequence 0"},
        {50, 5, 82, 10, "malformed: sequence 1"},
        {57, 0x80, 82, 10, "malformed: sequence 1"},
        {57, 0x40, 82, 10, "past the end"},
        {58, 1, 82, 10, "border 0"},
        {66, 3, 82, 10, "border 2 is 2 after 3"},
        {74, 1, 82, 10, "end at sequence 1 of 2"},
        {0, 'M', 81, 10, "truncated"},
        {0, 'M', 33, 10, "header"},
        {0, 'M', 82, 8, "past the end of its .bin"},
        {0, 'M', 82, 0, "past the end of its .bin"},
        {38, 1, 82, 10, "not of the same run"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint8_t idx[82];

        memcpy(idx, megatron_idx, 82);
        idx[cases[i].at] = (uint8_t)cases[i].value;
        put_megatron(idx, (size_t)cases[i].idx_bytes, (size_t)cases[i].bin_bytes);
        refused(FILES(in_scratch("m.idx")), "auto", 0, ZT_E_FORMAT, cases[i].phrase);
    }
    unlink(in_scratch("m.bin"));
    refused(FILES(in_scratch("m.idx")), "auto", 0, ZT_E_NOINPUT, "needs both");
    unlink(in_scratch("m.idx"));
}

static void test_llmc_refuses_wrong_version_and_wrong_size(void **state)
{
    const uint16_t t[] = {1, 2};

    (void)state;
    refused(FILES(put_llmc("x.bin", 20240520, 2, 2, t, 4)), "auto", 0, ZT_E_FORMAT,
            "version 2");
    refused(FILES(put_llmc("x.bin", 20240520, 1, 3, t, 4)), "auto", 0, ZT_E_FORMAT,
            "truncated");
    refused(FILES(put_llmc("x.bin", 20240520, 1, 1, t, 4)), "auto", 0, ZT_E_FORMAT,
            "malformed");
    refused(FILES(put_llmc("x.bin", 20240520, 1, -2, t, 4)), "auto", 0, ZT_E_FORMAT,
            "malformed");
    refused(FILES(put_llmc("x.bin", 20240520, 1, 0, t, 0)), "auto", 0, ZT_E_FORMAT,
            "no tokens");
    refused(FILES(put_llmc("x.bin", 20240801, 7, 2, t, 4)), "auto", 0, ZT_E_FORMAT,
            "truncated");
    refused(FILES(put_file("y.bin", t, 4)), "llmc", 0, ZT_E_FORMAT, "no llm.c magic");
    refused(FILES(put_file("y.bin", (const int32_t[]){20240520}, 4)), "auto", 0,
            ZT_E_FORMAT, "less than the llm.c header");
}

static void test_nanogpt_refuses_odd_empty_and_headed_files(void **state)
{
    const uint16_t t[] = {1, 2};

    (void)state;
    refused(FILES(put_file("o.bin", t, 3)), "auto", 0, ZT_E_FORMAT, "odd number");
    refused(FILES(put_file("e.bin", t, 0)), "auto", 0, ZT_E_FORMAT, "empty");
    refused(FILES(put_llmc("h.bin", 20240520, 1, 2, t, 4)), "nanogpt", 0, ZT_E_FORMAT,
            "--data_format llmc");
}

static void test_what_is_not_data_is_refused_by_what_it_is(void **state)
{
    static const struct {
        const char *head;
        size_t n;
        const char *phrase;
    } cases[] = {
        {"\x1f\x8b\x08", 3, "gzip"},
        {"PAR1", 4, "Parquet"},
        {"\x93NUMPY\x01", 7, "NumPy"},
        {"PK\x03\x04", 4, "zip"},
        {"MMIDIDX", 7, "name it .idx"},
        {"a\0b", 3, "zero bytes"},
        {"ARROW1\0\0", 8, "an Arrow table"},
        {"\xff\xff\xff\xff\x08\0\0\0........", 16, "an Arrow table"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        refused(FILES(put_file("f.dat", cases[i].head, cases[i].n)), "auto", 0,
                ZT_E_FORMAT, cases[i].phrase);
    for (size_t i = 0; i < 4; i++) {
        int32_t magic = (const int32_t[]){20240326, 20240522, 20240527, 20240328}[i];

        refused(FILES(put_file("f.bin", &magic, 4)), "auto", 0, ZT_E_FORMAT, "llm.c");
    }
    zt_dataset_close(opened(FILES(put_file("r.csv", "a,b\n", 4)), "text"));
    refused(FILES(put_file("e.txt", "", 0)), "auto", 0, ZT_E_FORMAT, "empty");
    refused(FILES(in_scratch("absent.txt")), "auto", 0, ZT_E_NOINPUT, "No such file");
    refused(FILES(scratch_dir), "auto", 0, ZT_E_NOINPUT, "is a folder; give a file");
    put_file("dataset_info.json", "{}", 2);
    refused(FILES(scratch_dir), "auto", 0, ZT_E_NOINPUT, "load_from_disk(...).to_json");
    put_file("dataset_dict.json", "{}", 2);
    refused(FILES(scratch_dir), "auto", 0, ZT_E_NOINPUT, "(...)[SPLIT].to_json");
    refused(FILES(put_file("t.txt", "a", 1)), "parquet", 0, ZT_E_USAGE, "not known");
    assert_int_equal(zt_dataset_open((const char *const[]){NULL}, "auto", 0,
                                     &(struct zt_dataset *){NULL}, NULL),
                     ZT_E_NOINPUT);
}

static void test_forced_text_takes_any_bytes(void **state)
{
    struct zt_dataset *ds = opened(FILES(put_file("z.bin", "\x1f\x8b\0", 3)), "text");

    (void)state;
    holds(ds, (const int32_t[]){0x1f, 0x8b, 0, 256}, 4);
    zt_dataset_close(ds);
}

static void test_a_token_past_the_vocabulary_is_named_with_its_place(void **state)
{
    const uint16_t t[] = {1, 2, 300, 400};
    uint8_t idx[82];

    (void)state;
    refused(FILES(put_file("v.bin", t, 8)), "auto", 300, ZT_E_FORMAT,
            "token 300, number 2");
    refused(FILES(put_file("v.txt", "a", 1)), "auto", 256, ZT_E_FORMAT, "257");
    memcpy(idx, megatron_idx, 82);
    put_megatron(idx, 82, 10);
    refused(FILES(in_scratch("m.idx")), "auto", 4, ZT_E_FORMAT, "token 4, number 3");
    idx[17] = 3; /* int16, and a negative one */
    put_file("m.idx", idx, 82);
    put_file("m.bin", (const int16_t[]){1, 2, 3, -4, 5}, 10);
    refused(FILES(in_scratch("m.idx")), "auto", 0, ZT_E_FORMAT, "token -4, number 3");
    unlink(in_scratch("m.bin"));
    unlink(in_scratch("m.idx"));
    refused(FILES(put_llmc("h.bin", 20240801, 7, 1, (const uint32_t[]){0x80000000}, 4)),
            "auto", 0, ZT_E_FORMAT, "token 2147483648");
}

static void test_the_vocabulary_of_a_model_can_be_checked_later(void **state)
{
    const char *a = put_llmc("c.bin", 20240520, 1, 2, (const uint16_t[]){7, 99}, 4);
    const char *b = put_llmc("d.bin", 20240520, 1, 2, (const uint16_t[]){300, 1}, 4);
    struct zt_dataset *ds = opened(FILES(a, b), "auto");

    (void)state;
    assert_int_equal(zt_dataset_check_vocab(ds, 301, &fault), ZT_OK);
    assert_int_equal(zt_dataset_check_vocab(ds, 300, &fault), ZT_E_FORMAT);
    assert_non_null(strstr(fault.text, "d.bin: token 300, number 0"));
    assert_int_equal(zt_dataset_check_vocab(ds, 99, &fault), ZT_E_FORMAT);
    assert_non_null(strstr(fault.text, "c.bin: token 99, number 1"));
    zt_dataset_close(ds);
    ds = opened(FILES(put_file("c.txt", "abc", 3)), "auto");
    assert_int_equal(zt_dataset_check_vocab(ds, 257, &fault), ZT_OK);
    assert_int_equal(zt_dataset_check_vocab(ds, 256, &fault), ZT_E_FORMAT);
    assert_non_null(strstr(fault.text, "257"));
    zt_dataset_close(ds);
}

static void test_files_of_different_vocabularies_do_not_mix(void **state)
{
    const char *text = put_file("k.txt", "ab", 2);
    const char *bin = put_file("k.bin", (const uint16_t[]){1, 2}, 4);
    const char *gpt2 = put_llmc("g.bin", 20240520, 1, 1, (const uint16_t[]){1}, 2);
    const char *llama = put_llmc("l.bin", 20240801, 7, 1, (const uint32_t[]){1}, 4);
    struct zt_dataset *ds;

    (void)state;
    refused(FILES(text, bin), "auto", 0, ZT_E_FORMAT, "different vocabularies");
    refused(FILES(gpt2, bin, llama), "auto", 0, ZT_E_FORMAT, "different vocabularies");
    ds = opened(FILES(gpt2, bin), "auto");
    holds(ds, (const int32_t[]){1, 1, 2}, 3);
    assert_string_equal(zt_dataset_format(ds), "mixed");
    assert_int_equal(zt_dataset_vocab(ds), 50257);
    zt_dataset_close(ds);
}

static void test_split_shares_out_every_token_once(void **state)
{
    struct zt_dataset *ds = opened(FILES(put_file("s.txt", "0123456789", 10)), "auto");
    struct zt_dataset *train = NULL, *eval = NULL;

    (void)state;
    assert_int_equal(zt_dataset_split(ds, 0.25, 2, &train, &eval, &fault), ZT_OK);
    zt_dataset_close(ds); /* the views keep the files */
    holds(train, (const int32_t[]){'0', '1', '2', '3', '4', '5', '6', '7'}, 8);
    holds(eval, (const int32_t[]){'8', '9', 256}, 3);
    assert_true(zt_dataset_fingerprint(train) != zt_dataset_fingerprint(eval));
    zt_dataset_close(train);
    zt_dataset_close(eval);
}

static void test_split_refuses_parts_shorter_than_a_block(void **state)
{
    struct zt_dataset *ds = opened(FILES(put_file("s.txt", "0123456789", 10)), "auto");
    struct zt_dataset *train = NULL, *eval = NULL;

    (void)state;
    assert_int_equal(zt_dataset_split(ds, 0.25, 3, &train, &eval, &fault), ZT_E_FORMAT);
    assert_non_null(strstr(fault.text, "s.txt: 11 tokens split into 8"));
    assert_non_null(strstr(
        fault.text, "on (--eval_fraction, --validation_split_percentage); each needs"));
    assert_int_equal(zt_dataset_split(ds, 0.75, 3, &train, &eval, &fault), ZT_E_FORMAT);
    assert_int_equal(zt_dataset_split(ds, 0, 3, &train, &eval, &fault), ZT_E_ARG);
    assert_int_equal(zt_dataset_split(ds, 1, 3, &train, &eval, &fault), ZT_E_ARG);
    assert_null(train);
    assert_null(eval);
    assert_int_equal(zt_dataset_view(ds, 5, 7, &train, &fault), ZT_E_ARG);
    zt_dataset_close(ds);
}

static uint64_t fingerprint(const char *const *files)
{
    struct zt_dataset *ds = opened(files, "text");
    uint64_t f = zt_dataset_fingerprint(ds);

    zt_dataset_close(ds);
    return f;
}

static void test_fingerprint_follows_contents_and_order_not_names(void **state)
{
    const char *a = put_file("fa", "one", 3), *b = put_file("fb", "two", 3);
    const char *c = put_file("fc", "one", 3), *ab = put_file("fab", "onetwo", 6);

    (void)state;
    assert_true(fingerprint(FILES(a)) == fingerprint(FILES(c)));
    assert_true(fingerprint(FILES(a)) != fingerprint(FILES(b)));
    assert_true(fingerprint(FILES(a, b)) != fingerprint(FILES(b, a)));
    assert_true(fingerprint(FILES(a, b)) != fingerprint(FILES(ab)));
}

static void test_fingerprint_sees_both_ends_of_a_large_file(void **state)
{
    size_t n = 3 << 20;
    char *big = malloc(n);
    uint64_t whole;

    (void)state;
    assert_non_null(big);
    memset(big, 'x', n);
    whole = fingerprint(FILES(put_file("big", big, n)));
    big[0] = 'y';
    assert_true(whole != fingerprint(FILES(put_file("big", big, n))));
    big[0] = 'x';
    big[n - 1] = 'y';
    assert_true(whole != fingerprint(FILES(put_file("big", big, n))));
    big[n - 1] = 'x';
    assert_true(whole != fingerprint(FILES(put_file("big", big, n - 1))));
    assert_true(whole == fingerprint(FILES(put_file("big", big, n))));
    free(big);
}

static void test_reads_cross_many_files(void **state)
{
    enum { FILES_N = 300 };
    char *names[FILES_N + 1] = {0};
    struct zt_dataset *ds;
    int32_t got[4 * FILES_N];

    (void)state;
    for (int i = 0; i < FILES_N; i++) {
        char name[16], text[4];

        snprintf(name, sizeof(name), "p%03d", i);
        snprintf(text, sizeof(text), "%03d", i);
        names[i] = strdup(put_file(name, text, 3));
        assert_non_null(names[i]);
    }
    ds = opened((const char *const *)names, "auto");
    assert_int_equal(zt_dataset_num_tokens(ds), 4 * FILES_N);
    assert_int_equal(zt_dataset_read(ds, 0, 4 * FILES_N, got, NULL), ZT_OK);
    for (int i = 0; i < FILES_N; i++) {
        assert_int_equal(got[4 * i], '0' + i / 100);
        assert_int_equal(got[4 * i + 2], '0' + i % 10);
        assert_int_equal(got[4 * i + 3], 256);
    }
    assert_int_equal(zt_dataset_read(ds, 1199, 1, got, NULL), ZT_OK);
    assert_int_equal(got[0], 256);
    zt_dataset_close(ds);
    for (int i = 0; i < FILES_N; i++)
        free(names[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_is_bytes_with_an_end_after_each_file),
        cmocka_unit_test(test_nanogpt_is_plain_uint16),
        cmocka_unit_test(test_records_are_the_text_of_a_column),
        cmocka_unit_test(test_text_by_a_tokenizer_is_ids_line_by_line),
        cmocka_unit_test(test_context_is_read_and_is_no_target),
        cmocka_unit_test(test_llmc_both_widths_tell_their_tokenizer),
        cmocka_unit_test(test_megatron_by_any_of_its_names_counts_once),
        cmocka_unit_test(test_megatron_sequences_follow_the_index_not_the_bin),
        cmocka_unit_test(test_megatron_refuses_each_broken_field),
        cmocka_unit_test(test_llmc_refuses_wrong_version_and_wrong_size),
        cmocka_unit_test(test_nanogpt_refuses_odd_empty_and_headed_files),
        cmocka_unit_test(test_what_is_not_data_is_refused_by_what_it_is),
        cmocka_unit_test(test_forced_text_takes_any_bytes),
        cmocka_unit_test(test_a_token_past_the_vocabulary_is_named_with_its_place),
        cmocka_unit_test(test_the_vocabulary_of_a_model_can_be_checked_later),
        cmocka_unit_test(test_files_of_different_vocabularies_do_not_mix),
        cmocka_unit_test(test_split_shares_out_every_token_once),
        cmocka_unit_test(test_split_refuses_parts_shorter_than_a_block),
        cmocka_unit_test(test_fingerprint_follows_contents_and_order_not_names),
        cmocka_unit_test(test_fingerprint_sees_both_ends_of_a_large_file),
        cmocka_unit_test(test_reads_cross_many_files),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
