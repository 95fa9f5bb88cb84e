/* Models of SentencePiece small enough to follow by hand; files that are none; folders. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "test/unit/data/files.h"
#include "test/unit/text/model_proto.h"
#include "worker/text/sentencepiece/protobuf.h"
#include "worker/text/sentencepiece/sentencepiece.h"
#include "worker/text/tokenizer.h"

#define B "\xe2\x96\x81" /* a blank in a piece */

enum { TRAINER = 2, NORMALIZER = 3 };
enum { MODEL_TYPE = 3, SUFFIX = 24, BYTE_FALLBACK = 35 }; /* of trainer_spec */
enum { CHARSMAP = 2, DUMMY = 3, REMOVE = 4, ESCAPE = 5 }; /* of normalizer_spec */

static struct zt_fault fault;

/* <unk> <s> </s>, and then: 3 _a, 4 b, 5 ab, 6 _, 7 a, 8 c */
static struct message small(int model_type)
{
    struct message m = {.n = 0};

    put_piece(&m, "<unk>", 0, 2);
    put_piece(&m, "<s>", 0, 3);
    put_piece(&m, "</s>", 0, 3);
    put_piece(&m, B "a", -1, 1);
    put_piece(&m, "b", -2, 1);
    put_piece(&m, "ab", -2.5f, 1);
    put_piece(&m, B, -3, 1);
    put_piece(&m, "a", -3, 1);
    put_piece(&m, "c", -4, 1);
    put_spec(&m, TRAINER, (uint32_t[]){MODEL_TYPE, (uint32_t)model_type, 0});
    return m;
}

static struct zt_sentencepiece *made(const struct message *m)
{
    struct zt_sentencepiece *p = NULL;

    fault = (struct zt_fault){0};
    if (zt_sentencepiece_parse("x.model", m->data, m->n, &p, &fault))
        fail_msg("%s", fault.text);
    return p;
}

static const char *as_text(const int32_t *ids, size_t num)
{
    static char out[4096];
    size_t at = 0;

    out[0] = 0;
    for (size_t i = 0; i < num && at < sizeof(out) - 16; i++)
        at += (size_t)snprintf(out + at, sizeof(out) - at, i ? " %d" : "%d", ids[i]);
    return out;
}

static void gives(const struct message *m, const char *text, const char *want)
{
    struct zt_sentencepiece *p = made(m);
    struct zt_sp_work w;
    struct zt_buf ids;
    uint64_t replaced = 0;

    zt_sp_work_init(&w);
    zt_buf_init(&ids, 1 << 20);
    assert_int_equal(
        zt_sentencepiece_encode(p, &w, text, strlen(text), ZT_SP_TEXT, &ids, &replaced),
        ZT_OK);
    assert_string_equal(as_text((const int32_t *)(const void *)ids.data,
                                zt_buf_used(&ids) / sizeof(int32_t)),
                        want);
    zt_buf_release(&ids);
    zt_sp_work_release(&w);
    zt_sentencepiece_free(p);
}

static void reads(const struct message *m, const int32_t *ids, size_t num,
                  const char *want)
{
    struct zt_sentencepiece *p = made(m);
    struct zt_sp_decoding d = {0};
    struct zt_buf out;

    zt_buf_init(&out, 1 << 20);
    for (size_t i = 0; i < num; i++)
        assert_int_equal(zt_sentencepiece_put(p, &d, ids[i], &out), ZT_OK);
    assert_int_equal(zt_sentencepiece_end(&d, &out), ZT_OK);
    assert_int_equal(zt_buf_used(&out), strlen(want));
    assert_memory_equal(zt_buf_head(&out), want, strlen(want));
    zt_buf_release(&out);
    zt_sentencepiece_free(p);
}

#define IDS(...) (const int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / 4

static void refused(const struct message *m, size_t n, const char *phrase)
{
    struct zt_sentencepiece *p = NULL;

    fault = (struct zt_fault){0};
    assert_int_equal(zt_sentencepiece_parse("x.model", m->data, n, &p, &fault),
                     ZT_E_FORMAT);
    assert_null(p);
    if (!strstr(fault.text, phrase) || strchr(fault.text, '\n'))
        fail_msg("\"%s\" does not say \"%s\"", fault.text, phrase);
}

/* ---- segmentation ---- */

static void test_unigram_takes_the_way_of_the_highest_sum(void **state)
{
    struct message m = small(1);

    (void)state;
    gives(&m, "ab", "3 4");     /* _a b: -3; _ ab: -5.5 */
    gives(&m, "aab", "3 5");    /* _a ab */
    gives(&m, "axyb", "3 0 4"); /* unknown ones side by side are one */
    gives(&m, "  a  b ",
          "3 6 4"); /* runs of blanks are one, and those at the ends none */
    gives(&m, " ", "");
    gives(&m, "", "");
}

static void test_bpe_joins_the_neighbours_of_the_highest_score(void **state)
{
    struct message m = small(2);

    (void)state;
    gives(&m, "ab", "3 4"); /* _a at -1 goes before ab at -2.5 */
    gives(&m, "cab", "6 8 5");
    gives(&m, "axb", "3 0 4");
}

static void test_user_symbols_stay_whole_and_unused_pieces_are_taken_apart(void **state)
{
    for (int type = 1; type <= 2; type++) {
        struct message m = small(type);

        (void)state;
        put_piece(&m, "ca", 0, 4);     /* 9 */
        put_piece(&m, "aa", -0.1f, 5); /* 10 */
        gives(&m, "bcab", "6 4 9 4");
        gives(&m, "caca", "6 9 9");
        gives(&m, "baa", "6 4 7 7");
    }
}

static void test_byte_fallback_puts_the_bytes_of_unknown_characters(void **state)
{
    struct message m = small(2);
    char name[16];

    (void)state;
    for (int b = 0; b < 256; b++) {
        snprintf(name, sizeof(name), "<0x%02X>", (unsigned)b);
        put_piece(&m, name, 0, 6); /* 9 + b */
    }
    put_spec(&m, TRAINER, (uint32_t[]){BYTE_FALLBACK, 1, 0});
    gives(&m, "a\xc3\xa9", "3 204 178");
    gives(&m, "\xff", "6 248 200 198"); /* no UTF-8: U+FFFD */
    reads(&m, IDS(3, 204, 178, 4),
          "a\xc3\xa9"
          "b");
    reads(&m, IDS(204, 3, 204, 204, 178), "\xef\xbf\xbd a\xef\xbf\xbd\xc3\xa9");
}

static void test_blanks_are_as_the_normalizer_spec_says(void **state)
{
    struct message m = small(1), n = small(1), s = small(1);

    (void)state;
    put_spec(&m, NORMALIZER, (uint32_t[]){DUMMY, 0, REMOVE, 0, 0});
    gives(&m, " a  b", "3 6 6 4");
    gives(&m, "a", "7");
    put_spec(&n, NORMALIZER, (uint32_t[]){ESCAPE, 0, 0});
    gives(&n, "a b", "0 7 0 4"); /* no piece has a blank as it is */
    put_spec(&s, TRAINER, (uint32_t[]){SUFFIX, 1, 0});
    gives(&s, "b", "4 6");
}

/* Longer ones win; what the rules make of a text is not looked up again. */
static void test_charsmap_replaces_the_longest_text(void **state)
{
    struct message m = small(1), spec = {.n = 0};
    struct {
        uint32_t bytes, units[512 + 256];
        char texts[8];
    } map = {.bytes = sizeof(map.units), .texts = "c\0a\0"};

    (void)state;
    /* "x" -> c, "xy" -> a; children of a node lie at its offset ^ their byte */
    map.units[0] = 256 << 10;
    map.units[256 ^ 'x'] = ((256u ^ 'x') ^ 512u) << 10 | 0x100 | 'x';
    map.units[512] = 0x80000000u | 0;
    map.units[512 ^ 'y'] = ((512u ^ 'y') ^ 640u) << 10 | 0x100 | 'y';
    map.units[640] = 0x80000000u | 2;
    put_bytes(&spec, CHARSMAP, &map, sizeof(map));
    put_bytes(&m, NORMALIZER, spec.data, spec.n);
    gives(&m, "bx", "6 4 8");
    gives(&m, "bxy", "6 4 7");
}

/* ---- decoding ---- */

static void test_only_the_blank_in_front_is_not_of_the_text(void **state)
{
    struct message m = small(1), keep = small(1);

    (void)state;
    reads(&m, IDS(3, 4, 3, 6, 8), "ab a c");
    reads(&m, IDS(1, 6, 6, 3, 2), "a"); /* control symbols are not of it, either */
    reads(&m, IDS(3, 0, 4, 99, -1), "a \xe2\x81\x87 b");
    put_spec(&keep, NORMALIZER, (uint32_t[]){REMOVE, 0, 0});
    reads(&keep, IDS(6, 6, 3), "  a"); /* of several blanks, the first */
}

/* ---- files ---- */

static void test_what_is_no_model_is_refused(void **state)
{
    struct message m = small(1), twice = small(1), bytes = small(1), words = small(3);
    struct message none = {.n = 0};

    (void)state;
    refused(&none, 0, "x.model: is no SentencePiece model: it holds no pieces");
    refused(&m, m.n - 1, "is no SentencePiece model, or cut short");
    put_piece(&twice, "ab", 0, 1);
    refused(&twice, twice.n, "piece 9 has the text of another one");
    put_piece(&bytes, "<0x00>", 0, 6);
    refused(&bytes, bytes.n, "piece 9 is a byte's");
    refused(&words, words.n, "is a model of words or characters");
    put_piece(&none, "a", 0, 1);
    refused(&none, none.n, "has no unknown piece");
    put_piece(&m, "x", 0, 2);
    refused(&m, m.n, "piece 9 is a second unknown one");
}

/* Cut anywhere, it is refused or read, and no byte behind its end is looked at. */
static void test_a_model_cut_anywhere_is_refused_or_read(void **state)
{
    struct message m = small(2);

    (void)state;
    for (size_t n = 0; n < m.n; n++) {
        struct zt_sentencepiece *p = NULL;
        uint8_t *part = malloc(n ? n : 1);

        assert_non_null(part);
        memcpy(part, m.data, n);
        if (zt_sentencepiece_parse("x.model", part, n, &p, &fault) != ZT_OK)
            assert_null(p);
        zt_sentencepiece_free(p);
        free(part);
    }
}

static void test_varints_that_never_end_and_lengths_past_the_end_are_bad(void **state)
{
    static const uint8_t endless[] = {8,   255, 255, 255, 255, 255,
                                      255, 255, 255, 255, 255, 255},
                         longer[] = {10, 5, 1},
                         huge[] = {10, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1},
                         group[] = {11, 12}, zero[] = {0, 0}, fixed[] = {13, 0, 0, 0};
    const struct {
        const uint8_t *s;
        size_t n;
    } all[] = {{endless, sizeof(endless)}, {longer, sizeof(longer)},
               {huge, sizeof(huge)},       {group, sizeof(group)},
               {zero, sizeof(zero)},       {fixed, sizeof(fixed)}};

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        struct zt_pb r = zt_pb_of(all[i].s, all[i].n);
        struct zt_pb_field f;

        assert_false(zt_pb_next(&r, &f));
        assert_true(r.bad);
    }
}

/* ---- folders ---- */

static const char *encoded(const char *text)
{
    struct zt_tokenizer *t = NULL;
    struct zt_encoder *e = NULL;
    const int32_t *ids;
    const char *out;
    size_t num = 0;

    fault = (struct zt_fault){0};
    if (zt_tokenizer_open(scratch_dir, &t, &fault) || zt_encoder_open(t, &e, &fault) ||
        zt_encode(e, text, strlen(text), true, &ids, &num, &fault)) {
        zt_tokenizer_close(t);
        return fault.text;
    }
    out = as_text(ids, num);
    zt_encoder_close(e);
    zt_tokenizer_close(t);
    return out;
}

static void put_text(const char *name, const char *text)
{
    put_file(name, text, strlen(text));
}

static void test_a_folder_with_a_model_alone_is_sentencepiece(void **state)
{
    struct message m = small(1);

    (void)state;
    put_file("spiece.model", m.data, m.n);
    assert_string_equal(encoded("a</s>b"), "3 0 4"); /* a control symbol is not found */
    unlink(in_scratch("spiece.model"));
    assert_non_null(strstr(encoded("a"), "nor tokenizer.model or spiece.model"));
}

static void test_llama_folders_frame_and_cut_at_added_tokens(void **state)
{
    struct message m = small(2);

    (void)state;
    put_file("tokenizer.model", m.data, m.n);
    put_text("tokenizer_config.json", "{\"tokenizer_class\":\"LlamaTokenizer\"}");
    assert_string_equal(encoded("a</s>b"), "1 3 2 6 4");
    put_text("tokenizer_config.json",
             "{\"tokenizer_class\":\"LlamaTokenizerFast\",\"legacy\":false,"
             "\"add_eos_token\":true,\"pad_token\":\"<pad>\"}");
    assert_string_equal(encoded("a</s>b<pad>"), "1 3 2 4 9 2");
    put_text("special_tokens_map.json", "{\"bos_token\":{\"content\":\"ab\"}}");
    assert_string_equal(encoded("ab"), "5 5 2");
    put_text("tokenizer_config.json",
             "{\"added_tokens_decoder\":{\"7\":{\"content\":\"zz\"}}}");
    assert_non_null(strstr(encoded("a"), "has id 7, which another token"));
    put_text("tokenizer_config.json", "{\"tokenizer_class\":\"XLMRobertaTokenizer\"}");
    assert_non_null(strstr(encoded("a"), "tokenizer_class XLMRobertaTokenizer is not"));
    unlink(in_scratch("special_tokens_map.json"));
    unlink(in_scratch("tokenizer_config.json"));
    unlink(in_scratch("tokenizer.model"));
}

static void test_t5_folders_have_sentinels_from_the_last_id_down(void **state)
{
    struct message m = small(1);

    (void)state;
    put_file("spiece.model", m.data, m.n);
    put_text("config.json", "{\"model_type\":\"t5\"}");
    put_text("added_tokens.json", "{\"<x>\":200}");
    assert_string_equal(encoded("a <extra_id_0> b<extra_id_99><x>"), "3 108 6 4 9 200 2");
    put_text("tokenizer_config.json", "{\"extra_ids\":0}");
    assert_string_equal(encoded("a<extra_id_0>"), "3 0 7 0 2");
    unlink(in_scratch("added_tokens.json"));
    unlink(in_scratch("tokenizer_config.json"));
    unlink(in_scratch("config.json"));
    unlink(in_scratch("spiece.model"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unigram_takes_the_way_of_the_highest_sum),
        cmocka_unit_test(test_bpe_joins_the_neighbours_of_the_highest_score),
        cmocka_unit_test(test_user_symbols_stay_whole_and_unused_pieces_are_taken_apart),
        cmocka_unit_test(test_byte_fallback_puts_the_bytes_of_unknown_characters),
        cmocka_unit_test(test_blanks_are_as_the_normalizer_spec_says),
        cmocka_unit_test(test_charsmap_replaces_the_longest_text),
        cmocka_unit_test(test_only_the_blank_in_front_is_not_of_the_text),
        cmocka_unit_test(test_what_is_no_model_is_refused),
        cmocka_unit_test(test_a_model_cut_anywhere_is_refused_or_read),
        cmocka_unit_test(test_varints_that_never_end_and_lengths_past_the_end_are_bad),
        cmocka_unit_test(test_a_folder_with_a_model_alone_is_sentencepiece),
        cmocka_unit_test(test_llama_folders_frame_and_cut_at_added_tokens),
        cmocka_unit_test(test_t5_folders_have_sentinels_from_the_last_id_down),
    };

    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
