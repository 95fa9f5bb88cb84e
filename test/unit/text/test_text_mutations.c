/*
 * Files of records and tokenizers with changed bytes. A mutant of records is read as a reader of
 * its own here reads it, row by row, or refused by the line of its first bad row; nothing is
 * passed over but what is empty, and that is counted. A mutant of a tokenizer is refused by its
 * place, or makes ids of its vocabulary.
 */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "test/unit/mutations.h"
#include "worker/text/rows/lines.h"

enum { MOST_ROWS = 64, MOST_TEXT = 4096, END = 256 };

/* What a file says: its rows' texts, one behind the other, each with END behind it. */
struct expected {
    int32_t ids[MOST_TEXT];
    size_t num, rows, blank;
    size_t bad; /* the line of the first bad row; 0: all are good */
};

static void say(struct expected *e, int32_t id)
{
    assert_true(e->num < MOST_TEXT);
    e->ids[e->num++] = id;
}

static size_t line_of(const char *text, size_t at)
{
    size_t line = 1;

    for (size_t i = 0; i < at; i++)
        line += text[i] == '\n';
    return line;
}

/* ---- tables ---- */

/* The field at *at, to `to`. 0, or the place of what is wrong + 1. */
static size_t expect_field(const char *s, size_t n, size_t *at, struct expected *to)
{
    size_t i = *at;

    if (i == n || s[i] != '"') {
        for (; i < n && s[i] != ',' && s[i] != '\n'; i++)
            if (s[i] != '\r' || !(i + 1 == n || s[i + 1] == '\n'))
                say(to, (uint8_t)s[i]);
        *at = i;
        return 0;
    }
    for (i++; i < n; i++) {
        if (s[i] == '"' && (i + 1 == n || s[i + 1] != '"'))
            break;
        i += s[i] == '"';
        say(to, (uint8_t)s[i]);
    }
    if (i == n)
        return *at + 1;
    *at = i + 1;
    if (*at < n && s[*at] == '\r' && (*at + 1 == n || s[*at + 1] == '\n'))
        ++*at;
    return *at == n || s[*at] == ',' || s[*at] == '\n' ? 0 : i + 1;
}

/* Behind the header, of two columns: the text is the second. */
static void expect_table(const char *s, size_t n, size_t first, struct expected *e)
{
    *e = (struct expected){.num = 0};
    for (size_t at = first; at < n && !e->bad;) {
        size_t begin = at, fields = 0, wrong = 0;

        while (at < n && s[at] == '\r')
            at++;
        if (at == n || s[at] == '\n') {
            e->blank++;
            at += at < n;
            continue;
        }
        at = begin;
        for (bool more = true; more && !wrong; at += more) {
            struct expected other = {.num = 0};

            wrong = expect_field(s, n, &at, ++fields == 2 ? e : &other);
            more = !wrong && at < n && s[at] == ',';
        }
        if (wrong || fields != 2) {
            e->bad = line_of(s, wrong ? wrong - 1 : begin);
            continue;
        }
        at += at < n; /* the line feed */
        say(e, END);
        e->rows++;
    }
}

/* ---- lines of JSON ---- */

struct json_reader {
    const char *at, *end;
    bool bad;
    struct expected text; /* of the string just read */
};

static void skip_spaces(struct json_reader *r)
{
    while (r->at < r->end && strchr(" \t\r\n", *r->at))
        r->at++;
}

static bool takes(struct json_reader *r, const char *word)
{
    size_t n = strlen(word);

    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0)
        return false;
    r->at += n;
    return true;
}

static void say_utf8(struct expected *e, uint32_t c)
{
    if (c < 0x80) {
        say(e, (int32_t)c);
    } else if (c < 0x800) {
        say(e, (int32_t)(0xc0 | c >> 6));
        say(e, (int32_t)(0x80 | (c & 63)));
    } else {
        say(e, (int32_t)(0xe0 | c >> 12));
        say(e, (int32_t)(0x80 | (c >> 6 & 63)));
        say(e, (int32_t)(0x80 | (c & 63)));
    }
}

static void read_escape(struct json_reader *r)
{
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *known = r->at < r->end && *r->at ? strchr(names, *r->at) : NULL;
    uint32_t c = 0;

    if (known) {
        say(&r->text, meant[known - names]);
        r->at++;
        return;
    }
    r->bad |= !takes(r, "u") || r->end - r->at < 4;
    for (int i = 0; !r->bad && i < 4; i++) {
        char d = *r->at++;
        int digit = d >= '0' && d <= '9'   ? d - '0'
                    : d >= 'a' && d <= 'f' ? d - 'a' + 10
                    : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                           : -1;

        r->bad |= digit < 0;
        c = c << 4 | (uint32_t)(digit & 15);
    }
    r->bad |= c >= 0xd800 && c < 0xe000; /* no mutant here makes a pair of them */
    if (!r->bad)
        say_utf8(&r->text, c);
}

/* Behind its quote. Characters of two bytes are all that mutants have beside ASCII. */
static void read_string(struct json_reader *r)
{
    r->text.num = 0;
    while (!r->bad) {
        uint8_t c = r->at < r->end ? (uint8_t)*r->at++ : 0;

        if (c == '"')
            return;
        if (c == '\\') {
            read_escape(r);
            continue;
        }
        r->bad |= c < 0x20 || (c >= 0x80 && c != 0xc3);
        if (c == 0xc3 && !r->bad) {
            say(&r->text, c);
            c = r->at < r->end ? (uint8_t)*r->at++ : 0;
            r->bad |= c < 0x80 || c > 0xbf;
        }
        say(&r->text, c);
    }
}

static void read_digits(struct json_reader *r)
{
    r->bad |= r->at == r->end || *r->at < '0' || *r->at > '9';
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9')
        r->at++;
}

static void read_number(struct json_reader *r)
{
    takes(r, "-");
    if (!takes(r, "0"))
        read_digits(r);
    if (takes(r, "."))
        read_digits(r);
    if (!r->bad && (takes(r, "e") || takes(r, "E"))) {
        if (!takes(r, "+"))
            takes(r, "-");
        read_digits(r);
    }
}

static char read_value(struct json_reader *r, struct expected *text);

/* Behind its brace. `text`: NULL, or where the member of that name goes; '\0': there is none. */
static char read_object(struct json_reader *r, struct expected *text)
{
    struct expected keys[8];
    size_t num = 0;
    char kind = 0;

    skip_spaces(r);
    if (takes(r, "}"))
        return 0;
    while (!r->bad) {
        struct expected value = {.num = 0};
        char of;

        skip_spaces(r);
        r->bad |= !takes(r, "\"");
        read_string(r);
        assert_true(num < 8);
        keys[num] = r->text;
        for (size_t i = 0; i < num; i++)
            r->bad |=
                keys[i].num == keys[num].num &&
                memcmp(keys[i].ids, keys[num].ids, keys[num].num * sizeof(int32_t)) == 0;
        skip_spaces(r);
        r->bad |= !takes(r, ":");
        of = r->bad ? 0 : read_value(r, &value);
        if (text && keys[num].num == 4 && keys[num].ids[0] == 't' &&
            keys[num].ids[1] == 'e' && keys[num].ids[2] == 'x' &&
            keys[num].ids[3] == 't') {
            *text = value;
            kind = of;
        }
        num++;
        skip_spaces(r);
        if (takes(r, "}"))
            return kind;
        r->bad |= !takes(r, ",");
    }
    return 0;
}

static void read_array(struct json_reader *r)
{
    struct expected none;

    skip_spaces(r);
    if (takes(r, "]"))
        return;
    while (!r->bad) {
        read_value(r, &none);
        skip_spaces(r);
        if (takes(r, "]"))
            return;
        r->bad |= !takes(r, ",");
    }
}

/* Its first character; a string goes to *text. */
static char read_value(struct json_reader *r, struct expected *text)
{
    char first;

    skip_spaces(r);
    first = r->at < r->end ? *r->at : 0;
    if (takes(r, "\"")) {
        read_string(r);
        *text = r->text;
    } else if (takes(r, "{")) {
        read_object(r, NULL);
    } else if (takes(r, "[")) {
        read_array(r);
    } else if (!takes(r, "true") && !takes(r, "false") && !takes(r, "null")) {
        read_number(r);
    }
    return first;
}

static void expect_lines(const char *s, size_t n, size_t first, struct expected *e)
{
    *e = (struct expected){.num = 0};
    for (size_t at = first, end; at < n && !e->bad; at = end) {
        const char *feed = memchr(s + at, '\n', n - at);
        struct expected text = {.num = 0};
        struct json_reader r = {.at = s + at};
        char kind = 0;

        end = feed ? (size_t)(feed + 1 - s) : n;
        r.end = s + end;
        skip_spaces(&r);
        if (r.at == r.end) {
            e->blank++;
            continue;
        }
        r.bad = !takes(&r, "{");
        if (!r.bad)
            kind = read_object(&r, &text);
        skip_spaces(&r);
        if (r.bad || r.at < r.end || kind != '"') {
            e->bad = line_of(s, at);
            continue;
        }
        for (size_t i = 0; i < text.num; i++)
            say(e, text.ids[i]);
        say(e, END);
        e->rows++;
    }
}

/* ---- the same ---- */

static zt_err take(void *user, const int32_t *ids, size_t num, const uint32_t *row_tokens,
                   size_t num_rows, size_t bytes, struct zt_fault *fault)
{
    struct expected *e = user;

    (void)row_tokens;
    (void)bytes;
    (void)fault;
    for (size_t i = 0; i < num; i++)
        say(e, ids[i]);
    e->rows += num_rows;
    return ZT_OK;
}

/* False: it was refused, as it should be. */
static bool same_rows(const char *format, const char *text, size_t n,
                      const struct expected *want)
{
    struct expected got = {.num = 0};
    struct zt_lines_counts counts = {0};
    struct zt_fault fault = {0};
    struct zt_lines_job job = {.end = END,
                               .name = "f",
                               .text = text,
                               .n = n,
                               .threads = 1,
                               .sink = take,
                               .user = &got};
    zt_err rc = zt_lines_encode_records(&job, zt_record_format_named(format), "text",
                                        &counts, &fault);
    char place[32];

    snprintf(place, sizeof(place), "f:%zu: ", want->bad);
    if (want->bad || !want->rows) {
        /* a column of lists is one of conversations: refused by its name */
        if (!rc || (strncmp(fault.text, place, strlen(place)) != 0 &&
                    strncmp(fault.text, "f: \"text\" holds", 15) != 0 &&
                    (want->rows || strncmp(fault.text, "f: holds no rows", 16) != 0)))
            fail_msg("%s of %.*s: %s", place, (int)n, text, rc ? fault.text : "accepted");
        return false;
    }
    if (rc)
        fail_msg("%.*s: %s", (int)n, text, fault.text);
    if (got.rows != want->rows || counts.blank != want->blank || got.num != want->num ||
        memcmp(got.ids, want->ids, want->num * sizeof(*want->ids)) != 0)
        fail_msg("%zu rows and %zu empty ones in place of %zu and %zu, or other text: "
                 "%.*s",
                 got.rows, (size_t)counts.blank, want->rows, want->blank, (int)n, text);
    return true;
}

static void mutants_of(const char *format, const char *whole, size_t head,
                       const char *letters,
                       void (*expect)(const char *, size_t, size_t, struct expected *))
{
    int mutations = num_mutations(1000), accepted = 0;
    size_t n = strlen(whole);
    uint64_t x = mutation_seed();
    struct expected e;

    for (int i = 0; i < mutations; i++) {
        size_t len = n - (i % 16 == 15 ? next_random(&x) % (n - head) : 0);
        char *text = malloc(len); /* nothing behind it may be read */

        assert_non_null(text);
        memcpy(text, whole, len);
        if (len > head)
            change_bytes((uint8_t *)text + head, len - head, letters, &x);
        expect(text, len, head, &e);
        accepted += same_rows(format, text, len, &e);
        free(text);
    }
    print_message("%d mutations, %d accepted\n", mutations, accepted);
    assert_true(accepted > mutations / 20 && accepted < mutations * 19 / 20);
}

static void test_changed_tables_are_read_as_they_are_or_refused_by_line(void **state)
{
    static const char whole[] = "id,text\n"
                                "1,one word\n"
                                "2,\"quoted, \"\"twice\"\", \r\nin two lines\"\r\n"
                                "\n"
                                "\"3\",\n"
                                "4,\xc3\xa9 a'b\r\n"
                                "5,\"\"\n"
                                "6,end";

    (void)state;
    mutants_of("csv", whole, 8, "\"\"\",,\n\n\r a1", expect_table);
}

static void test_changed_lines_are_read_as_they_are_or_refused_by_line(void **state)
{
    static const char whole[] =
        "{\"id\": 12, \"text\": \"one word\", \"more\": [1, {\"a\": null}]}\n"
        "{\"text\":\"a \\\"quote\\\", \\u00e9 \xc3\xa9 \\n\\\\\",\"b\":-0.5e+3}\r\n"
        "\n"
        "  {\"text\" : \"\" , \"id\":true, \"idx\" : []}  \n"
        "{\"a\":{\"text\":\"inner\"}, \"text\":\"outer\"}\n"
        "{\"text\": \"end\"}";

    (void)state;
    mutants_of("jsonl", whole, 0, "\"\"{}[]:,,\\\n\n ntu01ex", expect_lines);
}

/* ---- tokenizers ---- */

static const char *const tokenizers[] = {
    "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[{\"id\":"
    "0,"
    "\"content\":\"<e>\",\"special\":true,\"lstrip\":false,\"rstrip\":true,\"single_"
    "word\":"
    "false,\"normalized\":false}],\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["
    "{"
    "\"type\":\"NFC\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":"
    "\"a\"}]},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
    "\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":{\"type\":"
    "\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{"
    "\"SpecialToken\":{\"id\":\"<e>\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{"
    "\"<e>\":{\"id\":\"<e>\",\"ids\":[0],\"tokens\":[\"<e>\"]}}},\"decoder\":{\"type\":"
    "\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},"
    "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
    "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":false,"
    "\"byte_fallback\":false,\"ignore_merges\":false,\"vocab\":{\"<e>\":0,\"a\":1,\"b\":"
    "2,"
    "\"\xc4\xa0\":3,\"ab\":4,\"\xc4\xa0"
    "ab\":5},\"merges\":[\"a b\",[\"\xc4\xa0\",\"ab\"]]}}",
    "{\"added_tokens\":[],\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":"
    "true,"
    "\"handle_chinese_chars\":true,\"strip_accents\":null,\"lowercase\":true},"
    "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"post_processor\":{\"type\":"
    "\"BertProcessing\",\"sep\":[\"[S]\",1],\"cls\":[\"[C]\",2]},\"decoder\":{\"type\":"
    "\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true},\"model\":{\"type\":\"WordPiece\","
    "\"unk_token\":\"[U]\",\"continuing_subword_prefix\":\"##\","
    "\"max_input_chars_per_word\":100,\"vocab\":{\"[U]\":0,\"[S]\":1,\"[C]\":2,\"a\":3,"
    "\"##b\":4}}}",
    "{\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Metaspace\","
    "\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"always\",\"split\":true},"
    "\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\","
    "\"prepend_scheme\":\"always\",\"split\":true},\"model\":{\"type\":\"Unigram\","
    "\"unk_id\":0,\"byte_fallback\":false,\"vocab\":[[\"<unk>\",0],[\"\xe2\x96\x81\",-1."
    "5],"
    "[\"a\",-2],[\"ab\",-2.5],[\"b\",-3]]}}",
};

static void make_ids(const struct zt_tokenizer *t)
{
    static const char text[] = "ab xab<e> b\xc3\xa9";
    struct zt_encoder *e = NULL;
    struct zt_fault fault = {0};
    const int32_t *ids;
    size_t num;

    assert_int_equal(zt_encoder_open(t, &e, &fault), ZT_OK);
    if (zt_encode(e, text, sizeof(text) - 1, true, &ids, &num, &fault))
        assert_non_null(strstr(fault.text, "the tokenizer has no id for"));
    else
        for (size_t i = 0; i < num; i++)
            assert_in_range(ids[i], 0, zt_tokenizer_vocab(t) - 1);
    zt_encoder_close(e);
}

/* Refused: by the line of the JSON, or by a place in it, which a renamed key is named in. */
static bool is_read(const char *json, size_t n, const char *renamed)
{
    struct zt_tokenizer *t = NULL;
    struct zt_fault fault = {0};
    int line = 0, column = 0;

    if (zt_tokenizer_parse("t.json", json, n, &t, &fault) == ZT_OK) {
        if (renamed)
            fail_msg("key %s passed over: %.*s", renamed, (int)n, json);
        make_ids(t);
        zt_tokenizer_close(t);
        return true;
    }
    if (renamed ? !strstr(fault.text, renamed)
                : strncmp(fault.text, "t.json: $", 9) != 0 &&
                      sscanf(fault.text, "t.json:%d:%d: ", &line, &column) != 2)
        fail_msg("%s: %.*s", fault.text, (int)n, json);
    return false;
}

/* The keys whose names are settings: not those of vocabularies and of special tokens. */
static void list_keys(json_t *value, json_t **owners, const char **keys, int *num)
{
    const char *key;
    json_t *v;
    size_t i;

    json_array_foreach(value, i, v) list_keys(v, owners, keys, num);
    json_object_foreach(value, key, v)
    {
        assert_true(*num < 256);
        owners[*num] = value;
        keys[(*num)++] = key;
        if (strcmp(key, "vocab") != 0 && strcmp(key, "special_tokens") != 0)
            list_keys(v, owners, keys, num);
    }
}

static void test_renamed_settings_of_tokenizers_are_refused_by_their_name(void **state)
{
    int tried = 0;

    (void)state;
    for (size_t k = 0; k < sizeof(tokenizers) / sizeof(*tokenizers); k++) {
        for (int i = 0;; i++, tried++) {
            json_t *root = json_loads(tokenizers[k], 0, NULL), *owners[256];
            const char *keys[256];
            char name[64], *text;
            int num = 0;

            list_keys(root, owners, keys, &num);
            if (i == num) {
                json_decref(root);
                break;
            }
            snprintf(name, sizeof(name), "%sX", keys[i]);
            json_object_set(owners[i], name, json_object_get(owners[i], keys[i]));
            json_object_del(owners[i], keys[i]);
            text = json_dumps(root, JSON_COMPACT);
            name[strlen(name) - 1] =
                '\0'; /* one that is missing is named as it should be */
            assert_false(is_read(text, strlen(text), name));
            free(text);
            json_decref(root);
        }
    }
    print_message("%d mutations, 0 accepted\n", tried);
}

/* A digit becomes another one, or a letter does. */
static void change_one(char *text, size_t n, uint64_t *x)
{
    static const char digits[] = "0123456789", letters[] = "abAtfen#";
    size_t at = next_random(x) % n;

    while (!strchr(digits, text[at]) && !strchr(letters, text[at]))
        at = (at + 1) % n;
    text[at] = strchr(digits, text[at]) ? digits[(next_random(x) >> 20) % 10]
                                        : letters[(next_random(x) >> 20) % 8];
}

static void test_changed_tokenizers_are_refused_by_place_or_make_ids(void **state)
{
    int mutations = num_mutations(1000), accepted = 0;
    uint64_t x = mutation_seed();

    (void)state;
    for (int i = 0; i < mutations; i++) {
        const char *whole =
            tokenizers[(size_t)i % (sizeof(tokenizers) / sizeof(*tokenizers))];
        size_t n = strlen(whole);
        char *text = strdup(whole);

        assert_non_null(text);
        if (i % 4 == 0)
            change_bytes((uint8_t *)text, n, NULL, &x);
        else
            change_one(text, n, &x);
        accepted += is_read(text, n, NULL);
        free(text);
    }
    print_message("%d mutations, %d accepted\n", mutations, accepted);
    assert_true(accepted > mutations / 50 && accepted < mutations * 19 / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changed_tables_are_read_as_they_are_or_refused_by_line),
        cmocka_unit_test(test_changed_lines_are_read_as_they_are_or_refused_by_line),
        cmocka_unit_test(test_renamed_settings_of_tokenizers_are_refused_by_their_name),
        cmocka_unit_test(test_changed_tokenizers_are_refused_by_place_or_make_ids),
    };

    return cmocka_run_group_tests_name("mutations of text", tests, NULL, NULL);
}
