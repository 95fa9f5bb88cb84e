/* Safetensors files: byte for byte, round trips, and every rule a reader must enforce. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "test/unit/data/files.h"
#include "worker/checkpoint/safetensors.h"

static struct zt_fault fault;

/* ---- helpers ---- */

static struct zt_safetensors_file *opened(const char *path)
{
    struct zt_safetensors_file *f = NULL;

    if (zt_safetensors_open(path, &f, &fault))
        fail_msg("%s", fault.text);
    return f;
}

static size_t slurp(const char *path, void *buf, size_t cap)
{
    FILE *f = fopen(path, "rb");
    size_t n;

    assert_non_null(f);
    n = fread(buf, 1, cap, f);
    fclose(f);
    return n;
}

/* A file of this header and `data_bytes` of data, 0 1 2 ... */
static const char *put_st(const char *name, const char *header, size_t data_bytes)
{
    uint8_t buf[1024];
    uint64_t n = strlen(header);

    assert_true(8 + n + data_bytes <= sizeof(buf));
    memcpy(buf, &n, 8);
    memcpy(buf + 8, header, n);
    for (size_t i = 0; i < data_bytes; i++)
        buf[8 + n + i] = (uint8_t)i;
    return put_file(name, buf, 8 + n + data_bytes);
}

static void refused(const char *path, zt_err code, const char *phrase)
{
    struct zt_safetensors_file *f = NULL;

    fault = (struct zt_fault){0};
    assert_int_equal(zt_safetensors_open(path, &f, &fault), code);
    assert_null(f);
    if (!strstr(fault.text, phrase) || !strstr(fault.text, path))
        fail_msg("\"%s\" does not say \"%s\" of %s", fault.text, phrase, path);
}

/* ---- writing ---- */

static const int64_t two[] = {2}, three_by_two[] = {3, 2}, none[] = {4, 0};

static void test_written_bytes_are_the_documented_ones(void **state)
{
    static const char want[] =
        "\x58\0\0\0\0\0\0\0"
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}   "
        "\0\0\x80\x3f\0\0\0\xc0";
    struct zt_safetensors_decl w = {
        .name = "w", .dtype = ZT_F32, .ndim = 1, .shape = two};
    const char *path = in_scratch("w.safetensors");
    struct zt_safetensors_writer *out = NULL;
    char got[256];

    (void)state;
    assert_int_equal(zt_safetensors_writer_open(path, &w, 1, &out, &fault), ZT_OK);
    assert_int_equal(zt_safetensors_writer_put(out, (const float[]){1, -2}, 8, &fault),
                     ZT_OK);
    assert_int_equal(access(path, F_OK), -1); /* not before commit */
    assert_int_equal(zt_safetensors_writer_commit(out, &fault), ZT_OK);
    zt_safetensors_writer_close(out);
    assert_int_equal(slurp(path, got, sizeof(got)), sizeof(want) - 1);
    assert_memory_equal(got, want, sizeof(want) - 1);
}

static const struct zt_safetensors_decl all_kinds[] = {
    {.name = "f32", .dtype = ZT_F32, .ndim = 2, .shape = three_by_two},
    {.name = "scalar", .dtype = ZT_I64, .ndim = 0},
    {.name = "empty", .dtype = ZT_BF16, .ndim = 2, .shape = none},
    {.name = "bf16 \"\\\xc3\xa9\n", .dtype = ZT_BF16, .ndim = 1, .shape = two},
    {.name = "f16", .dtype = ZT_F16, .ndim = 1, .shape = two},
    {.name = "i32", .dtype = ZT_I32, .ndim = 1, .shape = two},
    {.name = "u8", .dtype = ZT_U8, .ndim = 2, .shape = three_by_two},
};
#define NUM_KINDS   (int)(sizeof(all_kinds) / sizeof(*all_kinds))
#define KINDS_BYTES (24 + 8 + 0 + 4 + 4 + 8 + 6)

static void test_every_dtype_round_trips_in_pieces_of_any_size(void **state)
{
    const char *path = in_scratch("all.safetensors");
    uint8_t data[KINDS_BYTES];

    (void)state;
    for (size_t i = 0; i < KINDS_BYTES; i++)
        data[i] = (uint8_t)(i * 7);
    for (size_t piece = 1; piece <= KINDS_BYTES; piece++) {
        struct zt_safetensors_writer *w = NULL;
        struct zt_safetensors_file *f;
        size_t at = 0;

        assert_int_equal(
            zt_safetensors_writer_open(path, all_kinds, NUM_KINDS, &w, &fault), ZT_OK);
        for (size_t i = 0; i < KINDS_BYTES; i += piece)
            assert_int_equal(zt_safetensors_writer_put(
                                 w, data + i,
                                 piece < KINDS_BYTES - i ? piece : KINDS_BYTES - i,
                                 &fault),
                             ZT_OK);
        assert_int_equal(zt_safetensors_writer_commit(w, &fault), ZT_OK);
        zt_safetensors_writer_close(w);
        f = opened(path);
        assert_int_equal(zt_safetensors_count(f), NUM_KINDS);
        assert_string_equal(zt_safetensors_metadata(f, "format"), "pt");
        for (int i = 0; i < NUM_KINDS; i++) {
            const struct zt_safetensors_decl *d = &all_kinds[i];
            const struct zt_safetensors_tensor *t = zt_safetensors_find(f, d->name);
            int64_t bytes = -1;

            assert_non_null(t);
            assert_true(t->loadable);
            assert_int_equal(t->dtype, d->dtype);
            assert_int_equal(t->ndim, d->ndim);
            for (int k = 0; k < d->ndim; k++)
                assert_int_equal(t->shape[k], d->shape[k]);
            assert_int_equal(zt_safetensors_decl_bytes(d, &bytes, &fault), ZT_OK);
            assert_int_equal(t->bytes, bytes);
            assert_memory_equal(t->data, data + at, t->bytes);
            at += t->bytes;
        }
        assert_null(zt_safetensors_find(f, "absent"));
        assert_null(zt_safetensors_at(f, NUM_KINDS));
        zt_safetensors_close(f);
    }
    unlink(path);
}

static void test_data_begin_aligned_to_eight(void **state)
{
    const char *path = in_scratch("pad.safetensors");
    char name[32] = {0};

    (void)state;
    for (int i = 0; i < 16; i++) {
        struct zt_safetensors_decl d = {.name = name, .dtype = ZT_U8, .ndim = 0};
        struct zt_safetensors_writer *w = NULL;
        struct zt_safetensors_file *f;

        name[i] = 'x';
        assert_int_equal(zt_safetensors_writer_open(path, &d, 1, &w, &fault), ZT_OK);
        assert_int_equal(zt_safetensors_writer_put(w, "!", 1, &fault), ZT_OK);
        assert_int_equal(zt_safetensors_writer_commit(w, &fault), ZT_OK);
        zt_safetensors_writer_close(w);
        f = opened(path); /* the mapping begins at a page */
        assert_int_equal((uintptr_t)zt_safetensors_at(f, 0)->data % 8, 0);
        zt_safetensors_close(f);
    }
    unlink(path);
}

static void test_no_commit_leaves_the_old_file_and_nothing_else(void **state)
{
    struct zt_safetensors_decl w = {
        .name = "w", .dtype = ZT_F32, .ndim = 1, .shape = two};
    const char *path = put_file("keep.safetensors", "old", 3);
    struct zt_safetensors_writer *out = NULL;
    int before = count_files(scratch_dir);
    char got[8];

    (void)state;
    assert_int_equal(zt_safetensors_writer_open(path, &w, 1, &out, &fault), ZT_OK);
    assert_int_equal(zt_safetensors_writer_put(out, "1234", 4, &fault), ZT_OK);
    assert_int_equal(zt_safetensors_writer_commit(out, &fault), ZT_E_ARG);
    assert_non_null(strstr(fault.text, "4 bytes of data never came"));
    assert_int_equal(zt_safetensors_writer_sync(out, &fault), ZT_E_ARG);
    assert_int_equal(zt_safetensors_writer_put(out, "12345", 5, &fault), ZT_E_ARG);
    zt_safetensors_writer_close(out);
    assert_int_equal(count_files(scratch_dir), before);
    assert_int_equal(slurp(path, got, sizeof(got)), 3);
    assert_memory_equal(got, "old", 3);
    unlink(path);
}

static void test_what_a_killed_writer_left_is_taken_over(void **state)
{
    struct zt_safetensors_decl w = {
        .name = "w", .dtype = ZT_F32, .ndim = 1, .shape = two};
    struct zt_safetensors_writer *out = NULL;
    int before = count_files(scratch_dir);
    char junk[4096] = {1};

    (void)state;
    put_file(".k.safetensors.tmp", junk, sizeof(junk));
    assert_int_equal(
        zt_safetensors_writer_open(in_scratch("k.safetensors"), &w, 1, &out, &fault),
        ZT_OK);
    assert_int_equal(zt_safetensors_writer_put(out, "12345678", 8, &fault), ZT_OK);
    assert_int_equal(zt_safetensors_writer_commit(out, &fault), ZT_OK);
    zt_safetensors_writer_close(out);
    assert_int_equal(count_files(scratch_dir), before + 1);
    zt_safetensors_close(opened(in_scratch("k.safetensors")));
    unlink(in_scratch("k.safetensors"));
}

static void test_two_writers_of_one_file_are_kept_apart(void **state)
{
    struct zt_safetensors_decl w = {
        .name = "w", .dtype = ZT_F32, .ndim = 1, .shape = two};
    const char *path = in_scratch("t.safetensors");
    struct zt_safetensors_writer *a = NULL, *b = NULL;

    (void)state;
    assert_int_equal(zt_safetensors_writer_open(path, &w, 1, &a, &fault), ZT_OK);
    assert_int_equal(zt_safetensors_writer_open(path, &w, 1, &b, &fault),
                     ZT_E_CANTCREATE);
    assert_non_null(strstr(fault.text, "another process"));
    assert_int_equal(zt_safetensors_writer_put(a, "12345678", 8, &fault), ZT_OK);
    assert_int_equal(zt_safetensors_writer_commit(a, &fault), ZT_OK);
    zt_safetensors_writer_close(a);
    zt_safetensors_close(opened(path));
    unlink(path);
}

/* The limit on the size of files stands in for a full disk: it can be seen when space is
 * claimed, or, `late`, while data are written. */
static void fill_disk(bool late)
{
    const int64_t big[] = {1 << 20};
    struct zt_safetensors_decl w = {
        .name = "w", .dtype = ZT_F32, .ndim = 1, .shape = big};
    const char *path = in_scratch("full.safetensors");
    struct zt_safetensors_writer *out = NULL;
    struct rlimit was, low = {.rlim_cur = 65536};
    int before = count_files(scratch_dir);
    static char data[50000];
    zt_err rc = ZT_OK;

    fault = (struct zt_fault){0};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    low.rlim_max = was.rlim_max;
    if (late)
        assert_int_equal(zt_safetensors_writer_open(path, &w, 1, &out, &fault), ZT_OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    if (!late)
        rc = zt_safetensors_writer_open(path, &w, 1, &out, &fault);
    for (int i = 0; !rc && i < 64; i++)
        rc = zt_safetensors_writer_put(out, data, sizeof(data), &fault);
    zt_safetensors_writer_close(out);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(rc, ZT_E_CANTCREATE);
    assert_non_null(strstr(fault.text, "full.safetensors: cannot write: "));
    assert_int_equal(count_files(scratch_dir), before);
}

static void test_a_disk_that_is_too_small_is_an_error_that_leaves_nothing(void **state)
{
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    fill_disk(false);
    fill_disk(true);
}

static void test_a_place_that_cannot_be_written_is_named(void **state)
{
    struct zt_safetensors_decl w = {
        .name = "w", .dtype = ZT_F32, .ndim = 1, .shape = two};
    struct zt_safetensors_writer *out = NULL;

    (void)state;
    assert_int_equal(zt_safetensors_writer_open(in_scratch("no/such/w.safetensors"), &w,
                                                1, &out, &fault),
                     ZT_E_CANTCREATE);
    assert_non_null(strstr(fault.text, "no/such/w.safetensors: cannot create: "));
    assert_null(out);
}

static void test_bad_declarations_are_refused_before_anything_is_written(void **state)
{
    const int64_t minus[] = {-1}, huge[] = {INT64_MAX, 2};
    const struct zt_safetensors_decl bad[] = {
        {.name = "w", .dtype = ZT_F32, .ndim = 1, .shape = minus},
        {.name = "w", .dtype = ZT_F32, .ndim = 2, .shape = huge},
        {.name = "w", .dtype = ZT_NUM_DTYPE, .ndim = 0},
        {.name = "w", .dtype = ZT_F32, .ndim = -1},
        {.name = "__metadata__", .dtype = ZT_F32, .ndim = 0},
        {.name = "\xff", .dtype = ZT_F32, .ndim = 0},
    };
    const struct zt_safetensors_decl twice[] = {{.name = "w", .dtype = ZT_F32},
                                                {.name = "w", .dtype = ZT_U8}};
    const char *path = in_scratch("bad.safetensors");
    struct zt_safetensors_writer *out = NULL;
    int before = count_files(scratch_dir);

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_int_equal(zt_safetensors_writer_open(path, &bad[i], 1, &out, &fault),
                         ZT_E_ARG);
    assert_int_equal(zt_safetensors_writer_open(path, twice, 2, &out, &fault), ZT_E_ARG);
    assert_null(out);
    assert_int_equal(count_files(scratch_dir), before);
}

/* ---- reading ---- */

static void test_a_foreign_file_with_any_order_and_types_is_listed(void **state)
{
    const char *path =
        put_st("f.safetensors",
               "{\"b\":{\"shape\":[2,1],\"data_offsets\":[4,6],\"dtype\":\"F8_E4M3\"},"
               "\"n\\u00e9\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[6,7]},"
               "\"z\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[7,8]},"
               "\"e\":{\"dtype\":\"F64\",\"shape\":[0,9223372036854775807,3],"
               "\"data_offsets\":[4,4]},"
               "\"a\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[0,4]}} ",
               8);
    static const char *const order[] = {"a", "e", "b", "n\xc3\xa9", "z"};
    struct zt_safetensors_file *f = opened(path);
    float x;

    (void)state;
    assert_int_equal(zt_safetensors_count(f), 5);
    assert_null(zt_safetensors_metadata(f, "format"));
    for (int i = 0; i < 5; i++) {
        assert_string_equal(zt_safetensors_at(f, i)->name, order[i]);
        assert_ptr_equal(zt_safetensors_find(f, order[i]), zt_safetensors_at(f, i));
        assert_int_equal(zt_safetensors_at(f, i)->loadable, i == 0);
    }
    assert_string_equal(zt_safetensors_at(f, 2)->type, "F8_E4M3");
    assert_int_equal(zt_safetensors_at(f, 2)->data[0], 4);
    assert_int_equal(zt_safetensors_read_f32(zt_safetensors_at(f, 2), 0, 1, &x, &fault),
                     ZT_E_UNSUPPORTED);
    assert_non_null(strstr(fault.text, "F8_E4M3"));
    assert_int_equal(zt_safetensors_read_f32(zt_safetensors_at(f, 0), 0, 1, &x, &fault),
                     ZT_E_UNSUPPORTED);
    zt_safetensors_close(f);
}

#define W(shape, offsets) W_OF("F32", shape, offsets)
#define W_OF(type, shape, offsets)                                                       \
    "{\"w\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void test_each_broken_rule_is_refused_with_its_reason(void **state)
{
    static const struct {
        const char *header;
        size_t data;
        const char *phrase;
    } cases[] = {
        {"", 8, "no JSON object"},
        {"[1]", 8, "no JSON object"},
        {" {}", 0, "no JSON object"},
        {"{\"w\":", 8, "malformed header"},
        {"{\"\xff\":1}", 8, "malformed header"},
        {"{\"a\\u0000b\":1}", 8, "malformed header"},
        {"{} x", 0, "malformed header"},
        {"{\"w\":1,\"w\":1}", 0, "duplicate"},
        {"{\"w\":1}", 0, "needs exactly"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "needs exactly"},
        {W("[2]", "[0]"), 8, "needs exactly"},
        {W("[2]", "[0,8],\"more\":1"), 8, "needs exactly"},
        {W("{}", "[0,8]"), 8, "needs exactly"},
        {W_OF("F33", "[2]", "[0,8]"), 8, "unknown dtype F33"},
        {W("[2.0]", "[0,8]"), 8, "axis 0"},
        {W("[2e0]", "[0,8]"), 8, "axis 0"},
        {W("[-2]", "[0,8]"), 8, "axis 0"},
        {W("[1,\"2\"]", "[0,8]"), 8, "axis 1"},
        {W("[99999999999999999999]", "[0,8]"), 8, "malformed header"},
        {W("[4294967296,4294967296]", "[0,8]"), 8, "too large"},
        {W("[2305843009213693952]", "[0,8]"), 8, "too large"},
        {W("[2]", "[0.0,8]"), 8, "lie outside"},
        {W("[2]", "[8,0]"), 8, "lie outside"},
        {W("[2]", "[-8,0]"), 8, "lie outside"},
        {W("[2]", "[0,8]"), 7, "lie outside"},
        {W("[2]", "[9007199254740993,9007199254741001]"), 8, "lie outside"},
        {W("[3]", "[0,8]"), 8, "do not take"},
        {W_OF("F4", "[3]", "[0,1]"), 1, "do not take"},
        {W("[1]", "[4,8]"), 8, "hole of 4 bytes"},
        {W("[1]", "[0,4]"), 8, "4 bytes after the last"},
        {"{}", 1, "1 bytes after the last"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
         6, "overlap of 2 bytes before tensor b"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]}}",
         4, "tensor b"},
        {"{\"__metadata__\":{\"n\":1}}", 0, "strings only"},
        {"{\"__metadata__\":\"x\"}", 0, "strings only"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        refused(put_st("r.safetensors", cases[i].header, cases[i].data), ZT_E_FORMAT,
                cases[i].phrase);
    refused(put_file("r.safetensors", "", 0), ZT_E_FORMAT, "truncated");
    refused(put_file("r.safetensors", "1234567", 7), ZT_E_FORMAT, "truncated");
    refused(put_file("r.safetensors", "\x03\0\0\0\0\0\0\0{}", 10), ZT_E_FORMAT,
            "ends after the file");
    refused(put_file("r.safetensors", "PK\3\4zipfile and more", 20), ZT_E_FORMAT,
            "no safetensors file");
    unlink(in_scratch("r.safetensors"));
    refused(in_scratch("r.safetensors"), ZT_E_NOINPUT, "No such file");
}

static void test_deep_nesting_is_refused_not_followed(void **state)
{
    enum { DEEP = 200000 };
    char *text = malloc(8 + DEEP);
    uint64_t n = DEEP;

    (void)state;
    assert_non_null(text);
    memcpy(text, &n, 8);
    memset(text + 8, '[', DEEP);
    memcpy(text + 8, "{\"w\":", 5);
    refused(put_file("deep.safetensors", text, 8 + DEEP), ZT_E_FORMAT, "depth");
    free(text);
}

static void test_floats_of_all_half_types_are_exact(void **state)
{
    static const uint16_t half[] = {0x0000, 0x8000, 0x3c00, 0xc000, 0x7bff, 0x0001,
                                    0x03ff, 0x0400, 0x7c00, 0xfc00, 0x3555, 0x7e00};
    static const float want[] = {0,        -0.0f,     1,          -2,
                                 65504,    0x1p-24f,  0x3ffp-24f, 0x1p-14f,
                                 INFINITY, -INFINITY, 0x1.554p-2f};
    static const uint16_t brain[] = {0x3f80, 0xc040, 0x0001, 0x7f80};
    const int64_t n12[] = {12}, n4[] = {4};
    const struct zt_safetensors_decl d[] = {
        {.name = "odd", .dtype = ZT_U8, .ndim = 0}, /* makes the others unaligned */
        {.name = "h", .dtype = ZT_F16, .ndim = 1, .shape = n12},
        {.name = "b", .dtype = ZT_BF16, .ndim = 1, .shape = n4},
        {.name = "f", .dtype = ZT_F32, .ndim = 1, .shape = n4}};
    const char *path = in_scratch("half.safetensors");
    struct zt_safetensors_writer *w = NULL;
    struct zt_safetensors_file *f;
    float got[12];

    (void)state;
    assert_int_equal(zt_safetensors_writer_open(path, d, 4, &w, &fault), ZT_OK);
    assert_int_equal(zt_safetensors_writer_put(w, "!", 1, &fault), ZT_OK);
    assert_int_equal(zt_safetensors_writer_put(w, half, sizeof(half), &fault), ZT_OK);
    assert_int_equal(zt_safetensors_writer_put(w, brain, sizeof(brain), &fault), ZT_OK);
    assert_int_equal(zt_safetensors_writer_put(w, want, 16, &fault), ZT_OK);
    assert_int_equal(zt_safetensors_writer_commit(w, &fault), ZT_OK);
    zt_safetensors_writer_close(w);
    f = opened(path);
    assert_int_equal(
        zt_safetensors_read_f32(zt_safetensors_find(f, "h"), 0, 12, got, &fault), ZT_OK);
    assert_memory_equal(got, want, sizeof(want));
    assert_true(isnan(got[11]));
    assert_int_equal(
        zt_safetensors_read_f32(zt_safetensors_find(f, "b"), 0, 4, got, &fault), ZT_OK);
    assert_memory_equal(got, ((const float[]){1, -3, 0x1p-133f, INFINITY}), 16);
    assert_int_equal(
        zt_safetensors_read_f32(zt_safetensors_find(f, "f"), 1, 3, got, &fault), ZT_OK);
    assert_memory_equal(got, want + 1, 12);
    assert_int_equal(
        zt_safetensors_read_f32(zt_safetensors_find(f, "f"), 2, 3, got, &fault),
        ZT_E_ARG);
    assert_int_equal(
        zt_safetensors_read_f32(zt_safetensors_find(f, "f"), -1, 1, got, &fault),
        ZT_E_ARG);
    zt_safetensors_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_bytes_are_the_documented_ones),
        cmocka_unit_test(test_every_dtype_round_trips_in_pieces_of_any_size),
        cmocka_unit_test(test_data_begin_aligned_to_eight),
        cmocka_unit_test(test_no_commit_leaves_the_old_file_and_nothing_else),
        cmocka_unit_test(test_what_a_killed_writer_left_is_taken_over),
        cmocka_unit_test(test_two_writers_of_one_file_are_kept_apart),
        cmocka_unit_test(test_a_disk_that_is_too_small_is_an_error_that_leaves_nothing),
        cmocka_unit_test(test_a_place_that_cannot_be_written_is_named),
        cmocka_unit_test(test_bad_declarations_are_refused_before_anything_is_written),
        cmocka_unit_test(test_a_foreign_file_with_any_order_and_types_is_listed),
        cmocka_unit_test(test_each_broken_rule_is_refused_with_its_reason),
        cmocka_unit_test(test_deep_nesting_is_refused_not_followed),
        cmocka_unit_test(test_floats_of_all_half_types_are_exact),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
