/* Tokenizers small enough to follow by hand; what cannot be read, by name and place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>

#include "test/unit/data/files.h"
#include "worker/text/unicode/chars.h"
#include "worker/text/rows/lines.h"
#include "worker/text/regex/regex.h"
#include "worker/text/tokenizer.h"

static struct zt_fault fault;

/* JSON with ` for ". */
static const char *json(const char *text)
{
    static char ring[8][8192];
    static int at;
    char *p = ring[at++ % 8];

    snprintf(p, sizeof(ring[0]), "%s", text);
    for (char *q = p; *q; q++)
        *q = *q == '`' ? '"' : *q;
    return p;
}

static zt_err parse(const char *text, struct zt_tokenizer **out)
{
    const char *j = json(text);

    fault = (struct zt_fault){0};
    return zt_tokenizer_parse("t.json", j, strlen(j), out, &fault);
}

static struct zt_tokenizer *made(const char *text)
{
    struct zt_tokenizer *t = NULL;

    if (parse(text, &t))
        fail_msg("%s", fault.text);
    return t;
}

static void refused(const char *text, const char *phrase)
{
    struct zt_tokenizer *t = NULL;

    assert_int_equal(parse(text, &t), ZT_E_FORMAT);
    assert_null(t);
    if (!strstr(fault.text, phrase) || strchr(fault.text, '\n'))
        fail_msg("\"%s\" does not say \"%s\"", fault.text, phrase);
}

/* The ids as text: "3 1 4". */
static const char *ids_of(const struct zt_tokenizer *t, const char *text, size_t n)
{
    static char out[4096];
    struct zt_encoder *e = NULL;
    const int32_t *ids;
    size_t num = 0, at = 0;

    fault = (struct zt_fault){0};
    if (zt_encoder_open(t, &e, &fault) || zt_encode(e, text, n, true, &ids, &num, &fault))
        fail_msg("%s", fault.text);
    out[0] = 0;
    for (size_t i = 0; i < num && at < sizeof(out) - 16; i++)
        at += (size_t)snprintf(out + at, sizeof(out) - at, i ? " %d" : "%d", ids[i]);
    zt_encoder_close(e);
    return out;
}

static void gives(const char *tokenizer, const char *text, const char *ids)
{
    struct zt_tokenizer *t = made(tokenizer);

    assert_string_equal(ids_of(t, text, strlen(text)), ids);
    zt_tokenizer_close(t);
}

static void reads(const char *tokenizer, const int32_t *ids, size_t n, const char *text)
{
    struct zt_tokenizer *t = made(tokenizer);
    struct zt_token_stream *s = NULL;
    struct zt_buf whole, pieces;

    zt_buf_init(&whole, 1 << 20);
    zt_buf_init(&pieces, 1 << 20);
    assert_int_equal(zt_decode(t, ids, n, false, &whole, NULL), ZT_OK);
    assert_int_equal(zt_token_stream_open(t, false, &s, NULL), ZT_OK);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(zt_token_stream_put(s, ids[i], &pieces, NULL), ZT_OK);
    assert_int_equal(zt_token_stream_end(s, &pieces, NULL), ZT_OK);
    assert_int_equal(zt_buf_used(&whole), strlen(text));
    assert_memory_equal(zt_buf_head(&whole), text, strlen(text));
    assert_int_equal(zt_buf_used(&pieces), strlen(text));
    assert_memory_equal(zt_buf_head(&pieces), text, strlen(text));
    zt_token_stream_close(s);
    zt_buf_release(&whole);
    zt_buf_release(&pieces);
    zt_tokenizer_close(t);
}

#define IDS(...) (const int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / 4

#define BPE(settings, vocab, merges)                                                     \
    "{`model`:{`type`:`BPE`," settings "`vocab`:{" vocab "},`merges`:[" merges "]}"

/* ---- models ---- */

static void test_bpe_merges_by_rank_not_from_the_left(void **state)
{
    (void)state;
    /* abc: "b c" comes before "a b" */
    gives(BPE("", "`a`:0,`b`:1,`c`:2,`bc`:3,`ab`:4,`abc`:5", "`b c`,`a b`") "}", "abc",
          "0 3");
    gives(
        BPE("", "`a`:0,`b`:1,`c`:2,`bc`:3,`ab`:4,`abc`:5", "`b c`,[`a`,`b`],`a bc`") "}",
        "abcab", "5 4");
    /* of equal pairs the left one goes first */
    gives(BPE("", "`a`:0,`aa`:1", "`a a`") "}", "aaa", "1 0");
}

static void test_bpe_looks_up_whole_words_where_merges_are_ignored(void **state)
{
    (void)state;
    gives(BPE("`ignore_merges`:true,", "`a`:0,`b`:1,`ab`:2", "") "}", "ab", "2");
    gives(BPE("", "`a`:0,`b`:1,`ab`:2", "") "}", "ab", "0 1");
}

static void test_bpe_unknown_characters_are_fused_or_not_or_bytes(void **state)
{
    (void)state;
    gives(BPE("`unk_token`:`u`,", "`a`:0,`u`:1", "") "}", "xya", "1 1 0");
    gives(BPE("`unk_token`:`u`,`fuse_unk`:true,", "`a`:0,`u`:1", "") "}", "xya", "1 0");
    gives(BPE("`unk_token`:`u`,`byte_fallback`:true,",
              "`a`:0,`u`:1,`<0xC3>`:2,`<0xA9>`:3", "") "}",
          "a\xc3\xa9x", "0 2 3 1");
    gives(BPE("", "`a`:0", "") "}", "xax", "0"); /* none is named: left out */
    gives(BPE("`continuing_subword_prefix`:`#`,`end_of_word_suffix`:`$`,",
              "`a`:0,`#b`:1,`#c$`:2,`#bc$`:3", "`#b #c$`") "}",
          "abc", "0 3");
}

static void test_wordpiece_takes_the_longest_or_the_word_is_unknown(void **state)
{
    static const char t[] =
        "{`pre_tokenizer`:{`type`:`WhitespaceSplit`},`model`:{`type`:`WordPiece`,"
        "`unk_token`:`u`,`continuing_subword_prefix`:`##`,`max_input_chars_per_word`:5,"
        "`vocab`:{`u`:0,`a`:1,`ab`:2,`##c`:3,`##cd`:4,`##d`:5}}}";

    (void)state;
    gives(t, "abcd a abx abcdcd", "2 4 1 0 0");
}

static void test_unigram_finds_the_best_way_and_fuses_unknown(void **state)
{
    static const char t[] =
        "{`model`:{`type`:`Unigram`,`unk_id`:0,`vocab`:[[`u`,0.0],[`a`,-1.0],[`b`,-1.0],"
        "[`ab`,-1.5],[`abc`,-9.0],[`c`,-3]]}}";

    (void)state;
    gives(t, "abc", "3 5"); /* -4.5, not -9 and not -5 */
    gives(t, "axyb", "1 0 2");
    gives("{`model`:{`type`:`Unigram`,`vocab`:[[`a`,-1.0],[`aa`,-3.0],[`a`,-9.0]]}}",
          "aaa", "2 1"); /* the last one counts; of equal ways the first found */
}

static void test_model_without_id_for_a_text_is_an_error_that_shows_it(void **state)
{
    struct zt_tokenizer *t =
        made("{`model`:{`type`:`WordLevel`,`vocab`:{`a`:0},`unk_token`:`u`}}");
    struct zt_encoder *e = NULL;
    const int32_t *ids;
    size_t num;

    (void)state;
    assert_int_equal(zt_encoder_open(t, &e, NULL), ZT_OK);
    assert_int_equal(zt_encode(e, "xyz", 3, true, &ids, &num, &fault), ZT_E_FORMAT);
    assert_non_null(
        strstr(fault.text, "\"xyz\": its unknown token is not in its vocabulary: u"));
    assert_int_equal(zt_encode(e, "a", 1, true, &ids, &num, &fault), ZT_OK);
    assert_int_equal(num, 1);
    zt_encoder_close(e);
    zt_tokenizer_close(t);
}

/* ---- what goes before and after the model ---- */

#define LETTERS                                                                          \
    "`a`:0,`b`:1,`c`:2,`d`:3,`1`:4,`.`:5,`\xc4\xa0`:6,`ab`:7,`\xc4\xa0"                  \
    "a`:8"

static void test_gpt2_pattern_keeps_a_blank_with_the_word_behind(void **state)
{
    static const char t[] =
        BPE("", LETTERS, "`\xc4\xa0 a`,`a b`") ",`pre_tokenizer`:{`type`:`ByteLevel`,`"
                                               "add_prefix_space`:false}}";

    (void)state;
    gives(t, "ab ab", "7 8 1"); /* " ab": the blank takes a first */
    gives(t, "a  b", "0 6 6 1");
    gives(t, "a1.", "0 4 5");
}

static void test_added_tokens_are_cut_out_first_with_the_blanks_they_take(void **state)
{
    static const char t[] =
        BPE("`unk_token`:`u`,", "`a`:0,`b`:1,`u`:2",
            "") ",`normalizer`:{`type`:`Lowercase`},`added_tokens`:["
                "{`id`:3,`content`:`<s>`,`special`:true,`lstrip`:true},"
                "{`id`:4,`content`:`<s>>`,`special`:true},"
                "{`id`:5,`content`:`B`,`single_word`:true,`normalized`:true},"
                "{`id`:6,`content`:`;`,`rstrip`:true,`normalized`:false}]}";

    (void)state;
    gives(t, "a  <s>A", "0 3 0");
    gives(t, "<s>>b", "4 5"); /* the longest; `B` as its normalizer has it */
    gives(t, "ab b", "0 1 2 5");
    gives(t, ";  a", "6 0");
}

static void test_template_frames_a_text(void **state)
{
    static const char t[] = BPE("", "`a`:0,`s`:1,`e`:2",
                                "") ",`post_processor`:{`type`:`Sequence`,`processors`:["
                                    "{`type`:`TemplateProcessing`,`single`:[{`"
                                    "SpecialToken`:{`id`:`s`,`type_id`:0}},"
                                    "{`Sequence`:{`id`:`A`,`type_id`:0}}],`pair`:[],`"
                                    "special_tokens`:{`s`:{`id`:`s`,"
                                    "`ids`:[1],`tokens`:[`s`]}}},{`type`:`ByteLevel`}]}}";

    (void)state;
    gives(t, "a", "1 0");
    refused(
        BPE("", "`a`:0,`e`:1",
            "") ",`post_processor`:{`type`:`Sequence`,`processors`:[{`type`:"
                "`BertProcessing`,`cls`:[`e`,1],`sep`:[`e`,1]},{`type`:`BertProcessing`,"
                "`cls`:[`e`,1],`sep`:[`e`,1]}]}}",
        "$.post_processor: frames a text twice");
    refused(BPE("", "`a`:0", "") ",`post_processor`:{`type`:`BertProcessing`,`cls`:[`x`,"
                                 "7],`sep`:[`x`,7]}}",
            "$.post_processor: puts id 7, which no token has");
}

static void test_metaspace_goes_in_front_as_its_scheme_says(void **state)
{
#define META(scheme)                                                                     \
    BPE("", "`\xe2\x96\x81`:0,`a`:1,`b`:2,`\xe0\xb8\xb2`:3", "")                         \
    ",`normalizer`:{`type`:`Sequence`,`normalizers`:[{`type`:`NFKD`},{`type`:"           \
    "`StripAccents`}]},`pre_tokenizer`:{`type`:`Metaspace`,`replacement`:`\xe2\x96\x81`" \
    ",`prepend_scheme`"                                                                  \
    ":`" scheme "`},`added_tokens`:[{`id`:4,`content`:`<s>`}]}"
    (void)state;
    gives(META("always"), "a<s>b", "0 1 4 0 2");
    gives(META("first"), "a<s>b", "0 1 4 2");
    gives(META("never"), "a b", "1 0 2");
    /* of U+0E33 the mark goes; what was two characters has lost its first */
    gives(META("first"), "\xe0\xb8\xb3", "0 3");
    gives(META("first"), "\xe0\xb9\x8d\xe0\xb8\xb2", "3");
}

static void test_normalizers_compose_and_strip(void **state)
{
#define NORM(n)                                                                          \
    BPE("", "`a`:0,`\xc3\xa9`:1,`e`:2,`f`:3,`i`:4,` `:5,`\xcc\x81`:6,`\xe4\xb8\xad`:7",  \
        "")                                                                              \
    ",`normalizer`:" n "}"
    (void)state;
    gives(NORM("{`type`:`NFC`}"), "e\xcc\x81", "1");
    gives(NORM("{`type`:`NFD`}"), "\xc3\xa9", "2 6");
    gives(NORM("{`type`:`NFKC`}"), "\xef\xac\x81", "3 4");
    gives(
        NORM(
            "{`type`:`Sequence`,`normalizers`:[{`type`:`NFD`},{`type`:`StripAccents`}]}"),
        "\xc3\xa9", "2");
    gives(NORM("{`type`:`BertNormalizer`,`lowercase`:true,`strip_accents`:null}"),
          "\xc3\x89\xe4\xb8\xad\x07", "2 5 7 5");
    gives(NORM("{`type`:`Replace`,`pattern`:{`Regex`:` +`},`content`:`a`}"), "e   f",
          "2 0 3");
    gives(NORM("{`type`:`Strip`,`strip_left`:true,`strip_right`:false}"), "  e ", "2 5");
}

/* ---- decoding ---- */

static void test_byte_level_text_waits_for_whole_characters(void **state)
{
    static const char t[] =
        BPE("", "`\xc3\xa9`:0,`\xc3\x83`:1,`\xc2\xa9`:2,`a`:3,`\xc4\xa0`:4",
            "") ",`decoder`:{`type`:`ByteLevel`}}"; /* bytes e9, c3, a9, 61, 20 */

    (void)state;
    reads(t, IDS(3, 1, 2, 4, 3), "a\xc3\xa9 a");
    reads(t, IDS(3, 1, 3),
          "a\xef\xbf\xbd"
          "a");
    reads(t, IDS(1, 1, 99), "\xef\xbf\xbd\xef\xbf\xbd"); /* 99: no token has it */
}

/* They are whole, however many follow each other. */
static void test_replacement_characters_in_a_text_do_not_wait(void **state)
{
    static const char t[] =
        BPE("", "`\xc3\xaf`:0,`\xc2\xbf`:1,`\xc2\xbd`:2",
            "") ",`decoder`:{`type`:`ByteLevel`}}"; /* bytes ef, bf, bd */
#define SIX "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"

    (void)state;
    reads(t, IDS(0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2), SIX);
}

static void test_llama_decoder_turns_bytes_and_blanks_back(void **state)
{
    static const char t[] =
        BPE("",
            "`\xe2\x96\x81"
            "a`:0,`<0xC3>`:1,`<0xA9>`:2,`b`:3",
            "") ",`decoder`:{`type`:`Sequence`,`decoders`:[{`type`:`Replace`,`pattern`:{`"
                "String`:"
                "`\xe2\x96\x81`},`content`:` `},{`type`:`ByteFallback`},{`type`:`Fuse`},"
                "{`type`:`Strip`,`content`:` `,`start`:1,`stop`:0}]}}";

    (void)state;
    reads(t, IDS(0, 1, 2, 0, 3), "a\xc3\xa9 ab");
    reads(t, IDS(1, 2, 1, 2, 3, 1, 2, 1, 2),
          "\xc3\xa9\xc3\xa9"
          "b\xc3\xa9\xc3\xa9");
}

static void test_wordpiece_decoder_cleans_up(void **state)
{
    static const char t[] =
        "{`model`:{`type`:`WordPiece`,`unk_token`:`u`,`continuing_subword_prefix`:`##`,"
        "`vocab`:{`a`:0,`##b`:1,`.`:2}},`decoder`:{`type`:`WordPiece`,`prefix`:`##`,`"
        "cleanup`:true}}";

    (void)state;
    reads(t, IDS(0, 1, 0, 2), "ab a.");
}

/* ---- text that is broken, or long ---- */

static void test_broken_utf8_is_replaced_as_python_does_and_counted(void **state)
{
    static const struct {
        const char *in, *out;
    } texts[] = {
        {"a\xff"
         "b",
         "a\xef\xbf\xbd"
         "b"},
        {"\xe2\x82", "\xef\xbf\xbd"}, /* one maximal part */
        {"\xe2\x82\xe2\x82\xac", "\xef\xbf\xbd\xe2\x82\xac"},
        {"\xf0\x9f\x91", "\xef\xbf\xbd"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* a surrogate */
        {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    };
    uint64_t replaced = 0, want = 0;
    struct zt_buf out;

    (void)state;
    zt_buf_init(&out, 1 << 20);
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        zt_buf_drop(&out, zt_buf_used(&out));
        assert_int_equal(
            zt_utf8_repair(texts[i].in, strlen(texts[i].in), &out, &replaced), 0);
        assert_int_equal(zt_buf_used(&out), strlen(texts[i].out));
        assert_memory_equal(zt_buf_head(&out), texts[i].out, strlen(texts[i].out));
        for (const char *p = texts[i].out; (p = strstr(p, "\xef\xbf\xbd")); p += 3)
            want++;
        assert_int_equal(replaced, want);
    }
    zt_buf_release(&out);
}

/* By the square of its length this would take hours. */
static void test_a_word_of_a_megabyte_is_encoded(void **state)
{
    enum { N = 1 << 20 };
    struct zt_tokenizer *t =
        made(BPE("", "`a`:0,`b`:1,`aa`:2,`aaaa`:3,`aaab`:4", "`a a`,`aa aa`") "}");
    struct zt_encoder *e = NULL;
    char *text = malloc(N);
    const int32_t *ids;
    size_t num;

    (void)state;
    assert_non_null(text);
    memset(text, 'a', N);
    assert_int_equal(zt_encoder_open(t, &e, NULL), ZT_OK);
    assert_int_equal(zt_encode(e, text, N, true, &ids, &num, NULL), ZT_OK);
    assert_int_equal(num, N / 4);
    for (size_t i = 0; i < num; i++)
        assert_int_equal(ids[i], 3);
    free(text);
    zt_encoder_close(e);
    zt_tokenizer_close(t);
}

/* A megabyte of marks on one letter, out of order. */
static void test_a_megabyte_of_marks_is_put_in_order(void **state)
{
    enum { N = 1 << 18 };
    struct zt_tokenizer *t = made(NORM("{`type`:`NFD`}"));
    struct zt_encoder *e = NULL;
    char *text = malloc(4 * N + 1);
    const int32_t *ids;
    size_t num;

    (void)state;
    assert_non_null(text);
    for (int i = 0; i < N; i++)
        memcpy(text + 4 * i, "\xcc\x81\xcc\xa3", 4); /* above, below: below comes first */
    assert_int_equal(zt_encoder_open(t, &e, NULL), ZT_OK);
    assert_int_equal(zt_encode(e, text, 4 * N, true, &ids, &num, NULL), ZT_OK);
    assert_int_equal(num, N); /* those below have no token and are left out */
    free(text);
    zt_encoder_close(e);
    zt_tokenizer_close(t);
}

/* ---- lines, threads ---- */

struct taken {
    struct zt_buf ids, lengths;
    size_t bytes;
};

static zt_err take(void *user, const int32_t *ids, size_t num,
                   const uint32_t *line_tokens, size_t num_lines, size_t bytes,
                   struct zt_fault *f)
{
    struct taken *t = user;

    (void)f;
    t->bytes = bytes;
    return zt_buf_put(&t->ids, ids, num * 4) ||
                   zt_buf_put(&t->lengths, line_tokens, num_lines * 4)
               ? ZT_E_NOMEM
               : ZT_OK;
}

static void encode_lines(const struct zt_tokenizer *t, const char *text, size_t n,
                         int threads, struct taken *out, struct zt_lines_counts *counts)
{
    struct zt_lines_job job = {.tokenizer = t,
                               .name = "text",
                               .text = text,
                               .n = n,
                               .threads = threads,
                               .sink = take,
                               .user = out};

    zt_buf_init(&out->ids, 1 << 28);
    zt_buf_init(&out->lengths, 1 << 28);
    fault = (struct zt_fault){0};
    if (zt_lines_encode(&job, counts, &fault))
        fail_msg("%s", fault.text);
    assert_int_equal(out->bytes, n);
}

static void release_taken(struct taken *t)
{
    zt_buf_release(&t->ids);
    zt_buf_release(&t->lengths);
}

static void test_lines_are_the_same_with_any_number_of_threads(void **state)
{
    static const char gpt2[] =
        BPE("`unk_token`:`u`,", LETTERS ",`u`:9,`\xc4\x8a`:10",
            "`a b`") ",`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix_space`:false},"
                     "`post_processor`:{`type`:`BertProcessing`,`cls`:[`a`,0],`sep`:[`d`,"
                     "3]}}";
    struct zt_tokenizer *t = made(gpt2);
    size_t n = (5 << 20) + 7;
    char *text = malloc(n);
    struct taken one, more;
    struct zt_lines_counts counts[2] = {{0}};
    uint32_t x = 1;

    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < n; i++) {
        x = x * 1664525 + 1013904223;
        text[i] = x >> 24 < 8 ? '\n' : x >> 24 == 8 ? '\xff' : "abcd1. "[(x >> 16) % 7];
    }
    encode_lines(t, text, n, 1, &one, &counts[0]);
    encode_lines(t, text, n, 3, &more, &counts[1]);
    assert_true(counts[0].replaced > 1000);
    assert_int_equal(counts[0].replaced, counts[1].replaced);
    assert_int_equal(zt_buf_used(&one.ids), zt_buf_used(&more.ids));
    assert_memory_equal(zt_buf_head(&one.ids), zt_buf_head(&more.ids),
                        zt_buf_used(&one.ids));
    assert_int_equal(zt_buf_used(&one.lengths), zt_buf_used(&more.lengths));
    assert_memory_equal(zt_buf_head(&one.lengths), zt_buf_head(&more.lengths),
                        zt_buf_used(&one.lengths));
    release_taken(&one);
    release_taken(&more);
    encode_lines(t, "a\n\nb", 4, 2, &one, &counts[0]); /* lines with their ends, framed */
    assert_int_equal(zt_buf_used(&one.lengths), 3 * 4);
    assert_memory_equal(zt_buf_head(&one.ids),
                        ((int32_t[]){0, 0, 10, 3, 0, 10, 3, 0, 1, 3}), 10 * 4);
    release_taken(&one);
    free(text);
    zt_tokenizer_close(t);
}

/* ---- regular expressions ---- */

static void becomes(const char *pattern, const char *want)
{
    struct zt_setting where = {.file = "t.json"};
    struct zt_buf out;

    zt_buf_init(&out, 1 << 16);
    fault = (struct zt_fault){0};
    if (zt_regex_translate(&where, pattern, strlen(pattern), &out, &fault))
        fail_msg("%s: %s", pattern, fault.text);
    assert_int_equal(zt_buf_put(&out, "", 1), ZT_OK);
    assert_string_equal((const char *)zt_buf_head(&out), want);
    zt_buf_release(&out);
}

static void is_refused(const char *pattern, const char *phrase)
{
    struct zt_setting where = {.file = "t.json"};
    struct zt_regex *r = NULL;

    fault = (struct zt_fault){0};
    assert_int_equal(zt_regex_compile(&where, pattern, strlen(pattern), &r, &fault),
                     ZT_E_FORMAT);
    if (!strstr(fault.text, phrase))
        fail_msg("%s: \"%s\" does not say \"%s\"", pattern, fault.text, phrase);
}

static void test_patterns_mean_what_oniguruma_means(void **state)
{
    (void)state;
    becomes("(?i:'s)|\\p{N}{1,3}| ?[^\\s\\p{L}]+(?!\\S)",
            "(?i:'s)|\\p{N}{1,3}| ?[^\\p{White_Space}\\p{L}]+(?!\\P{White_Space})");
    becomes("a{,3}b{2}{x\\v\\h", "a{0,3}b{2}\\{x\\x0b[0-9A-Fa-f]");
    becomes("x(?:ab){1,2}+y", "x(?:(?:ab){1,2})+y"); /* not possessive */
    becomes("\\u4e00-[\\x{9fff}]", "\\x{4e00}-[\\x{9fff}]");
    becomes("[^\\w-]\\p{^Han}\\P{Greek}\\p{L}",
            "[^\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}-]\\p{^sc:Han}\\P{sc:Greek}\\p{L}");
    becomes("\\w",
            "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}]");
    is_refused("[a&&b]", "&& in a class");
    is_refused("[a[bc]]", "a class in a class");
    is_refused("(?<name>a)", "this kind of group");
    is_refused("a(?i)b", "this kind of group");
    is_refused("(?m:a.b)", "this kind of group");
    is_refused("a{2}?", "{n}?");
    is_refused("\\Ka", "\\K");
    is_refused("\\xff", "this \\x or \\u");
    is_refused("(a", "missing closing parenthesis");
    is_refused("a)", "a ) without (");
}

/* ---- what is refused ---- */

static void test_what_is_not_known_is_refused_by_its_place(void **state)
{
    (void)state;
    refused("{`model`:{`type`:`BPE`", "t.json:1:");
    refused("[]", "t.json: $: is no object");
    refused("{}", "$.model: is missing");
    refused("{`model`:{`type`:`Magic`}}", "$.model.type: Magic is not known");
    refused("{`modell`:{}}", "$.modell: is not known here");
    refused(BPE("`dropout`:0.1,", "`a`:0", "") "}",
            "$.model.dropout: merges left out at random");
    refused(BPE("", "`a`:0,`b`:0", "") "}",
            "$.model.vocab.b: has the id of another token");
    refused(BPE("", "`a`:0,`b`:1", "`a b`") "}", "$.model.merges[0]: \"a\" and \"b\"");
    refused(BPE("", "`a`:-1", "") "}", "$.model.vocab.a: has an id that is negative");
    refused(BPE("", "`a`:0",
                "") ",`normalizer`:{`type`:`Sequence`,`normalizers`:[{`type`:`NFC`},"
                    "{`type`:`Fancy`}]}}",
            "$.normalizer.normalizers[1].type: Fancy is not known");
    refused(BPE("", "`a`:0", "") ",`normalizer`:{`type`:`NFC`,`form`:1}}",
            "$.normalizer.form: is not known");
    refused(
        BPE("", "`a`:0", "") ",`pre_tokenizer`:{`type`:`Split`,`pattern`:{`Regex`:`(`},"
                             "`behavior`:`Isolated`,`invert`:false}}",
        "$.pre_tokenizer.pattern.Regex: as a regular");
    refused(BPE("", "`a`:0", "") ",`added_tokens`:[{`id`:0,`content`:`x`}]}",
            "$.added_tokens[0]: has id 0, which another token");
    refused(BPE("", "`a`:0", "") ",`added_tokens`:[{`id`:9,`content`:`a`}]}",
            "$.added_tokens[0]: has id 9, but \"a\" is 0");
    refused(BPE("", "`a`:0", "") ",`added_tokens`:[{`id`:9,`content`:`x`}]}",
            "$.added_tokens[0]: \"x\" has id 9, but is 1 for transformers");
    refused("{`model`:{`type`:`WordLevel`,`vocab`:{`a`:0}},`normalizer`:{`type`:`"
            "Precompiled`,"
            "`precompiled_charsmap`:`AAAA`}}",
            "precompiled_charsmap: is no precompiled");
}

/* ---- folders ---- */

static void test_folders_of_older_files_are_read_by_their_class(void **state)
{
    struct zt_tokenizer *t = NULL;
    static const char vocab[] =
        "{\"a\":0,\"b\":1,\"ab\":2,\"<|endoftext|>\":3,\"\xc4\xa0\":4}";
    static const char merges[] = "#version: 0.2\na b\n";
    static const char crlf[] = "#version: 0.2\r\na b\r\n";
    static const char windows[] = "[UNK]\r\n[CLS]\r\n[SEP]\r\nab\r\n##c\r\n";
    static const char words[] = "[UNK]\n[CLS]\n[SEP]\nab\n##c\n";

    (void)state;
    assert_false(zt_tokenizer_is_in(scratch_dir));
    assert_int_equal(zt_tokenizer_open(scratch_dir, &t, &fault), ZT_E_NOINPUT);
    put_file("vocab.json", vocab, sizeof(vocab) - 1);
    put_file("merges.txt", merges, sizeof(merges) - 1);
    assert_int_equal(zt_tokenizer_open(scratch_dir, &t, &fault), ZT_OK);
    assert_string_equal(ids_of(t, "ab<|endoftext|> a", 17), "2 3 4 0");
    zt_tokenizer_close(t);
    put_file("tokenizer_config.json", "{\"tokenizer_class\": \"MagicTokenizer\"}", 37);
    assert_int_equal(zt_tokenizer_open(scratch_dir, &t, &fault), ZT_E_FORMAT);
    assert_non_null(strstr(fault.text, "tokenizer_class MagicTokenizer is not known"));
    put_file("tokenizer_config.json", "{\"add_bos_token\": true}", 23);
    assert_int_equal(zt_tokenizer_open(scratch_dir, &t, &fault), ZT_E_FORMAT);
    assert_non_null(strstr(fault.text, "add_bos_token needs a tokenizer.json"));
    put_file("tokenizer_config.json", "{}", 2);
    put_file("config.json", "{\"model_type\": \"bart\"}", 22);
    assert_int_equal(zt_tokenizer_open(scratch_dir, &t, &fault), ZT_E_FORMAT);
    assert_non_null(strstr(fault.text, "model_type bart (config.json) is not known"));
    put_file("config.json", "{\"model_type\": \"gpt2\"}", 22);
    put_file("merges.txt", crlf, sizeof(crlf) - 1);
    assert_int_equal(zt_tokenizer_open(scratch_dir, &t, &fault), ZT_OK);
    assert_string_equal(ids_of(t, "ab<|endoftext|> a", 17), "2 3 4 0");
    zt_tokenizer_close(t);
    unlink(in_scratch("config.json"));
    unlink(in_scratch("vocab.json"));
    unlink(in_scratch("merges.txt"));
    put_file("vocab.txt", words, sizeof(words) - 1);
    put_file("tokenizer_config.json", "{\"tokenizer_class\": \"BertTokenizer\"}", 36);
    assert_int_equal(zt_tokenizer_open(scratch_dir, &t, &fault), ZT_OK);
    assert_string_equal(ids_of(t, "ABC x", 5), "1 3 4 0 2");
    assert_int_equal(zt_tokenizer_id(t, "[SEP]"), 2);
    assert_int_equal(zt_tokenizer_vocab(t), 5);
    zt_tokenizer_close(t);
    put_file("vocab.txt", windows, sizeof(windows) - 1);
    put_file("special_tokens_map.json", "{\"sep_token\": \"ab\", \"unk_token\": \"##c\"}",
             39);
    assert_int_equal(zt_tokenizer_open(scratch_dir, &t, &fault), ZT_OK);
    assert_string_equal(ids_of(t, "x [CLS]", 7), "1 4 1 3");
    zt_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bpe_merges_by_rank_not_from_the_left),
        cmocka_unit_test(test_bpe_looks_up_whole_words_where_merges_are_ignored),
        cmocka_unit_test(test_bpe_unknown_characters_are_fused_or_not_or_bytes),
        cmocka_unit_test(test_wordpiece_takes_the_longest_or_the_word_is_unknown),
        cmocka_unit_test(test_unigram_finds_the_best_way_and_fuses_unknown),
        cmocka_unit_test(test_model_without_id_for_a_text_is_an_error_that_shows_it),
        cmocka_unit_test(test_gpt2_pattern_keeps_a_blank_with_the_word_behind),
        cmocka_unit_test(test_added_tokens_are_cut_out_first_with_the_blanks_they_take),
        cmocka_unit_test(test_template_frames_a_text),
        cmocka_unit_test(test_metaspace_goes_in_front_as_its_scheme_says),
        cmocka_unit_test(test_normalizers_compose_and_strip),
        cmocka_unit_test(test_byte_level_text_waits_for_whole_characters),
        cmocka_unit_test(test_replacement_characters_in_a_text_do_not_wait),
        cmocka_unit_test(test_llama_decoder_turns_bytes_and_blanks_back),
        cmocka_unit_test(test_wordpiece_decoder_cleans_up),
        cmocka_unit_test(test_broken_utf8_is_replaced_as_python_does_and_counted),
        cmocka_unit_test(test_a_word_of_a_megabyte_is_encoded),
        cmocka_unit_test(test_a_megabyte_of_marks_is_put_in_order),
        cmocka_unit_test(test_lines_are_the_same_with_any_number_of_threads),
        cmocka_unit_test(test_patterns_mean_what_oniguruma_means),
        cmocka_unit_test(test_what_is_not_known_is_refused_by_its_place),
        cmocka_unit_test(test_folders_of_older_files_are_read_by_their_class),
    };

    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
