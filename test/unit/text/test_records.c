/* Rows of records: what is meant is read, what is malformed is named by its line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/buf.h"
#include "worker/records/records.h"

static struct zt_fault fault;

/* All rows as an array; NULL: the fault says why not. */
static json_t *rows_of(const char *format, const char *text, size_t n, size_t *blank)
{
    json_t *rows = json_array(), *row;
    struct zt_records r;
    size_t to;
    zt_err rc;

    *blank = 0;
    rc = zt_records_open(&r, zt_record_format_named(format), "f", text, n, &fault);
    if (rc) {
        json_decref(rows);
        return NULL;
    }
    for (size_t from = r.first; !rc && from < n; from = to) {
        to = zt_records_end(&r, from);
        assert_true(to > from && to <= n);
        if (zt_records_is_blank(&r, from, to)) {
            (*blank)++;
            continue;
        }
        rc = zt_records_parse(&r, from, to, &row, &fault);
        if (!rc)
            json_array_append_new(rows, row);
    }
    zt_records_release(&r);
    if (rc) {
        json_decref(rows);
        return NULL;
    }
    return rows;
}

static void reads(const char *format, const char *text, const char *want, size_t blank)
{
    size_t found, n = strlen(text);
    char *copy = malloc(n ? n : 1); /* nothing behind it may be read */
    json_t *rows, *wanted = json_loads(want, JSON_ALLOW_NUL, NULL);

    assert_non_null(wanted);
    memcpy(copy, text, n);
    rows = rows_of(format, copy, n, &found);
    if (!rows)
        fail_msg("%s: %s", text, fault.text);
    if (!json_equal(rows, wanted))
        fail_msg("%s: %s", text, json_dumps(rows, JSON_ENCODE_ANY));
    assert_int_equal(found, blank);
    json_decref(rows);
    json_decref(wanted);
    free(copy);
}

static void refuses(const char *format, const char *text, const char *why)
{
    size_t blank;

    assert_null(rows_of(format, text, strlen(text), &blank));
    if (!strstr(fault.text, why))
        fail_msg("%s: %s", text, fault.text);
}

static void test_json_lines(void **state)
{
    (void)state;
    reads("jsonl", "{\"a\": 1}\n{\"b\": \"\\u00e9\\n\"}",
          "[{\"a\":1},{\"b\":\"\xc3\xa9\\n\"}]", 0);
    reads("jsonl", "\xef\xbb\xbf{\"a\": [1]}\r\n\r\n \t\n{}\n", "[{\"a\":[1]},{}]", 2);
    reads("jsonl", "{\"a\": \"x\\u0000y\"}", "[{\"a\":\"x\\u0000y\"}]", 0);
    reads("jsonl", "{\"id\": 18446744073709551616}", "[{\"id\":18446744073709551616.0}]",
          0);
    refuses("jsonl", "{}\n\n{\"a\": }\n", "f:3: is no JSON: unexpected token near '}'");
    refuses("jsonl", "{}\n[1]\n", "f:2: a row has to be an object");
    refuses("jsonl", "{\"a\": 1, \"a\": 2}\n", "f:1: is no JSON: duplicate object key");
    refuses("jsonl", "{} {}\n", "f:1: is no JSON");
    refuses("jsonl", "{\"a\": \"\xff\"}\n",
            "f:1: is no JSON: unable to decode byte 0xff");
    refuses("jsonl", "{\"a\": 1e999}\n", "f:1: is no JSON: real number overflow");
    refuses("jsonl", "\n\n", "f: holds no rows");
    refuses("jsonl", "", "f: holds no rows");
}

static void test_json_arrays(void **state)
{
    (void)state;
    reads("json", " [ {\"a\": \"]},{\\\"\"} ,\n{\"b\": {\"c\": [1, {}]}}\n]\n",
          "[{\"a\":\"]},{\\\"\"},{\"b\":{\"c\":[1,{}]}}]", 0);
    reads("json", "{\"a\": 1}\n{\"a\": 2}\n", "[{\"a\":1},{\"a\":2}]", 0);
    refuses("json", "[]", "f: holds no rows");
    refuses("json", "[\"a\", \"b\"]", "f:1: a row has to be an object");
    refuses("json", "[{\"a\": 1},\n{\"a\": 2}\n", "f:2: the array has no end");
    refuses("json", "[{\"a\": 1},\n{\"a\": 2},", "f:2: the array has no end");
    refuses("json", "[{\"a\": 1},", "f:1: the array has no end");
    refuses("json", "[{\"a\": 1},\n", "the array has no end");
    refuses("json", "[{\"a\": 1},\n]", "f:2: is no JSON");
    refuses(
        "json", "\n{\n\"v\": 1, \"data\": [\n{\"a\": 1}\n]\n}\n",
        "f:1: is one object, and the rows are to be the file: if they are in \"data\"");
    refuses("json", "{\n\"a\": 1\n}\n", "f:1: is one object over several lines");
    refuses("json", "{\n\"a\": 1\n}\n{}\n", "f:1: is no JSON");
    refuses("json", "[{\"a\": 1}\n{\"a\": 2}]", "is no JSON");
    refuses("json", "[{\"a\": 1}]\n{\"a\": 2}", "f:1: something stands behind the end");
    refuses("json", "[{\"a\": 1}, 5]", "f:1: a row has to be an object");
}

static void test_tables(void **state)
{
    (void)state;
    reads("csv", "a,b\n1,\"x, \"\"y\"\"\nz\"\n,\n",
          "[{\"a\":\"1\",\"b\":\"x, \\\"y\\\"\\nz\"},{\"a\":\"\",\"b\":\"\"}]", 0);
    reads("csv",
          "\xef\xbb\xbf"
          "a\r\nx\r\n\r\ny",
          "[{\"a\":\"x\"},{\"a\":\"y\"}]", 1);
    reads("csv", ",a\n0,it\"s\n", "[{\"\":\"0\",\"a\":\"it\\\"s\"}]", 0);
    reads("tsv", "a\tb\n1,2\t\"3\t4\"\n", "[{\"a\":\"1,2\",\"b\":\"3\\t4\"}]", 0);
    refuses("csv", "a,b\n1,2\n\n1\n", "f:4: has 1 field, and the header 2");
    refuses("csv", "a,b\n\"x\ny\",2,3\n", "f:2: has 3 fields");
    refuses("csv", "a,b\n1,\"2\n3,4\n", "f:2: the quote that begins here is not closed");
    refuses("csv", "a,b\n1,\"2\"3\n", "f:2: text stands behind the quote");
    refuses("csv", "a,b,a\n1,2,3\n", "f:1: two columns are named \"a\"");
    refuses("csv", "\n1,2\n", "f:1: the first line has to name the columns");
    refuses("csv", "a,b\n", "f: holds no rows");
    refuses(
        "csv", "a;b\n1;2\n",
        "f:1: the header is one column, \"a;b\": columns are separated by commas in a "
        ".csv, by tabs in a .tsv, and not by ';'");
    refuses(
        "csv", "a\tb\n1\t2\n",
        "tabs are those of a .tsv: give the file that name, or say --data_format tsv");
    refuses("tsv", "a,b\n1,2\n", "and not by ','");
    reads("csv", "\"a;b\"\n1;2\n", "[{\"a;b\":\"1;2\"}]", 0);
    reads("tsv", "a\n1;2\n", "[{\"a\":\"1;2\"}]", 0);
    refuses("csv", "", "f:1: the first line has to name the columns");
    refuses("csv", "a,b\r1,2\r", "f:1: lines end in CR alone: convert it (tr '\\r'");
    refuses("csv", "a,b\r1,2\r\n3,4\r\n", "f:1: lines end in CR alone");
    reads("csv", "\"a\rb\",c\r\n1\r2,3\r\n", "[{\"a\\rb\":\"1\\r2\",\"c\":\"3\"}]", 0);
}

static void finds(const char *text, const char *wanted, const char *name, const char *why)
{
    struct zt_records r;
    char *found;
    zt_err rc;

    assert_int_equal(zt_records_open(&r, zt_record_format_of_file("x.jsonlines"), "f",
                                     text, strlen(text), &fault),
                     ZT_OK);
    rc = zt_records_find_text(&r, wanted, &found, &fault);
    assert_int_equal(rc, name ? ZT_OK : ZT_E_USAGE);
    if (name)
        assert_string_equal(found, name);
    else if (!strstr(fault.text, why))
        fail_msg("%s", fault.text);
    free(found);
    zt_records_release(&r);
}

static void test_the_column_of_text(void **state)
{
    (void)state;
    finds("{\"x\": \"a\", \"text\": \"b\"}", NULL, "text", NULL);
    finds("{\"x\": \"a\", \"id\": 3}", NULL, "x", NULL);
    finds("\n{\"x\": \"a\", \"text\": \"b\"}", "x", "x", NULL);
    finds("{\"x\": \"a\", \"y\": \"b\"}", NULL, NULL,
          "f:1: no column is named \"text\", and of x, y it is not clear");
    finds("{\"x\": \"a\"}", "txt", NULL,
          "f:1: there is no column \"txt\"; the row has x");
}

/* ---- random rows, written and read; and mutated ---- */

static uint64_t seed = 20261123;

static uint32_t draw(uint32_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

static json_t *random_rows(void)
{
    static const char *const parts[] = {
        "a", "\"", ",", "\n", "\t",       "\r", "\\",
        "{", "}",  "[", "]",  "\xc3\xa9", " ",  "\xf0\x9f\x98\x80"};
    json_t *rows = json_array();

    for (uint32_t i = 0, n = 1 + draw(5); i < n; i++) {
        json_t *row = json_object();

        for (int c = 0; c < 2; c++) {
            char text[128] = "", name[2] = {(char)('a' + c), '\0'};

            for (uint32_t k = 0, m = draw(8); k < m; k++)
                strcat(text, parts[draw(sizeof(parts) / sizeof(*parts))]);
            json_object_set_new(row, name, json_string(text));
        }
        json_array_append_new(rows, row);
    }
    return rows;
}

static void put(struct zt_buf *b, const char *text)
{
    assert_int_equal(zt_buf_put(b, text, strlen(text)), ZT_OK);
}

static void put_field(struct zt_buf *b, const char *text)
{
    put(b, "\"");
    for (; *text; text++) {
        assert_int_equal(zt_buf_put(b, text, 1), ZT_OK);
        if (*text == '"')
            put(b, "\"");
    }
    put(b, "\"");
}

/* As another program would write them. */
static void write_rows(const char *format, const json_t *rows, struct zt_buf *out)
{
    bool table = format[0] != 'j', array = strcmp(format, "json") == 0;
    const char *sep = format[0] == 't' ? "\t" : ",";
    json_t *row;
    size_t i;

    zt_buf_init(out, 1 << 20);
    put(out, table ? "a" : array ? "[" : "");
    put(out, table ? sep : "");
    put(out, table ? "b\r\n" : "");
    json_array_foreach(rows, i, row)
    {
        char *text = json_dumps(row, draw(2) ? JSON_ENSURE_ASCII : 0);

        if (table) {
            put_field(out, json_string_value(json_object_get(row, "a")));
            put(out, sep);
            put_field(out, json_string_value(json_object_get(row, "b")));
            put(out, draw(2) ? "\n" : "\r\n");
        } else {
            put(out, array && i ? "," : "");
            put(out, text);
            put(out, array && draw(2) ? " " : "\n");
        }
        free(text);
    }
    put(out, array ? "]" : "");
}

/* A changed byte, one more, one less, or the end cut off. */
static void mutate(struct zt_buf *b)
{
    size_t n = zt_buf_used(b), at = draw((uint32_t)n);
    uint8_t *data = b->data + b->off;

    switch (draw(4)) {
    case 0:
        data[at] = (uint8_t)draw(256);
        break;
    case 1:
        data[at] = (uint8_t) "\"\n,{}[]\\"[draw(8)];
        break;
    case 2:
        memmove(data + at, data + at + 1, n - at - 1);
        b->len--;
        break;
    default:
        b->len = b->off + at;
    }
}

/* What is read is as it was written. What is mutated is refused with a line, or read as rows
 * that say so themselves: written and read once more they are the same. */
static void test_random_rows_and_mutations(void **state)
{
    static const char *const formats[] = {"jsonl", "json", "csv", "tsv"};
    size_t refused = 0, blank;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        const char *format = formats[i % 4];
        json_t *rows = random_rows(), *found;
        struct zt_buf text;

        write_rows(format, rows, &text);
        found =
            rows_of(format, (const char *)zt_buf_head(&text), zt_buf_used(&text), &blank);
        if (!found)
            fail_msg("%s", fault.text);
        assert_true(json_equal(rows, found));
        assert_int_equal(blank, 0);
        json_decref(found);
        json_decref(rows);
        mutate(&text);
        fault.text[0] = '\0';
        found =
            rows_of(format, (const char *)zt_buf_head(&text), zt_buf_used(&text), &blank);
        if (!found) {
            assert_int_equal(strncmp(fault.text, "f:", 2), 0);
            refused++;
        }
        json_decref(found);
        zt_buf_release(&text);
    }
    assert_true(refused > 300 && refused < 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_lines),
        cmocka_unit_test(test_json_arrays),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_the_column_of_text),
        cmocka_unit_test(test_random_rows_and_mutations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
