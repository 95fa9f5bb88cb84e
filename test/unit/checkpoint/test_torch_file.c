/* Files of torch.save: written and read back, both forms, and everything that is refused.
 * test/peers/torch_files.py does the same against PyTorch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "test/unit/data/files.h"
#include "test/unit/mutations.h"
#include "worker/checkpoint/hf_folder.h"
#include "worker/torch_file/torch_file.h"
#include "worker/torch_file/torch_write.h"
#include "worker/torch_file/zip_write.h"

static struct zt_fault fault;

#define MAGIC "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e"
#define PREAMBLE                                                                         \
    MAGIC "\x80\x02M\xe9\x03."                                                           \
          "\x80\x02}."
#define STORAGE                                                                          \
    "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"                                   \
    "0X\3\0\0\0cpuK\4"
#define REBUILD "ctorch._utils\n_rebuild_tensor_v2\n("
#define HOOKS                                                                            \
    "\x89"                                                                               \
    "ccollections\nOrderedDict\n)RtR"

/* Bytes of a string literal without the NUL at its end. */
#define LIT(s) (s), sizeof(s) - 1

static struct zt_torch_file *opened(const char *path)
{
    struct zt_torch_file *f = NULL;

    if (zt_torch_file_open(path, &f, &fault))
        fail_msg("%s", fault.text);
    return f;
}

static const char *put_pieces(const char *name, int n, ...)
{
    static uint8_t all[4096];
    size_t bytes = 0;
    va_list ap;

    va_start(ap, n);
    for (int i = 0; i < n; i++) {
        const char *p = va_arg(ap, const char *);
        size_t k = va_arg(ap, size_t);

        memcpy(all + bytes, p, k);
        bytes += k;
    }
    va_end(ap);
    return put_file(name, all, bytes);
}

/* A pickle alone, as the archive that torch.save would make of it. */
static const char *put_zip(const char *name, const char *pickle, size_t bytes)
{
    const char *path = in_scratch(name);
    float data[4] = {1, 2, 3, 4};
    struct zt_zip_writer w;

    if (zt_zip_writer_open(&w, path, 0, &fault) ||
        zt_zip_writer_begin(&w, "x/data.pkl", bytes, &fault) ||
        zt_zip_writer_put(&w, pickle, bytes, &fault) ||
        zt_zip_writer_begin(&w, "x/data/0", sizeof(data), &fault) ||
        zt_zip_writer_put(&w, data, sizeof(data), &fault) ||
        zt_zip_writer_publish(&w, &fault))
        fail_msg("%s", fault.text);
    zt_zip_writer_release(&w);
    return path;
}

static void refused(const char *path, zt_err code, const char *text)
{
    struct zt_torch_file *f = NULL;

    assert_int_equal(zt_torch_file_open(path, &f, &fault), code);
    assert_null(f);
    assert_non_null(strstr(fault.text, path));
    if (!strstr(fault.text, text))
        fail_msg("no \"%s\" in: %s", text, fault.text);
}

static const int64_t shape_w[] = {2, 3}, shape_b[] = {2}, shape_none[] = {0, 5};
static const struct zt_safetensors_decl decls[] = {
    {"w", ZT_F32, 2, shape_w},
    {"empty", ZT_F32, 2, shape_none},
    {"b", ZT_BF16, 1, shape_b},
    {"h", ZT_F16, 0, NULL},
};
static const float values_w[] = {1, -2, 3, 4, 5, 6};
static const uint16_t values_b[] = {0x3f80, 0xc000}, value_h = 0x3c00;

static const char *write_state(const char *name)
{
    const char *path = in_scratch(name);
    struct zt_torch_writer *w = NULL;
    struct zt_torch_values v;

    zt_torch_values_init(&v);
    zt_torch_put_tensors(&v, decls, 4);
    if (zt_torch_writer_open(path, &v, &w, &fault) ||
        zt_torch_writer_put(w, values_w, 5, &fault) ||
        zt_torch_writer_put(w, (const char *)values_w + 5, 19, &fault) ||
        zt_torch_writer_put(w, values_b, 4, &fault) ||
        zt_torch_writer_put(w, &value_h, 2, &fault) || zt_torch_writer_commit(w, &fault))
        fail_msg("%s", fault.text);
    zt_torch_writer_close(w);
    zt_torch_values_release(&v);
    return path;
}

static void check_state(const struct zt_safetensors_tensor *w,
                        const struct zt_safetensors_tensor *b)
{
    float got[6];

    assert_string_equal(w->type, "F32");
    assert_int_equal(w->ndim, 2);
    assert_int_equal(w->shape[1], 3);
    assert_int_equal(zt_safetensors_read_f32(w, 0, 6, got, &fault), ZT_OK);
    assert_memory_equal(got, values_w, sizeof(got));
    assert_int_equal(b->dtype, ZT_BF16);
    assert_int_equal(zt_safetensors_read_f32(b, 1, 1, got, &fault), ZT_OK);
    assert_true(got[0] == -2);
}

static void test_what_is_written_is_read_and_aligned(void **state)
{
    struct zt_torch_file *f = opened(write_state("a.pt"));
    struct zt_safetensors_tensor *t = NULL;
    int n = 0;
    float one = 0;

    (void)state;
    assert_int_equal(zt_torch_file_tensors(f, NULL, &t, &n, &fault), ZT_OK);
    assert_int_equal(n, 4);
    check_state(&t[0], &t[2]);
    assert_string_equal(t[1].name, "empty");
    assert_int_equal(t[1].elems, 0);
    assert_int_equal(t[3].ndim, 0);
    assert_int_equal(zt_safetensors_read_f32(&t[3], 0, 1, &one, &fault), ZT_OK);
    assert_true(one == 1);
    assert_int_equal((uintptr_t)t[0].data % 64, 0);
    assert_int_equal((uintptr_t)t[3].data % 64, 0);
    free(t);
    zt_torch_file_close(f);
}

static void test_a_writer_that_stops_leaves_nothing(void **state)
{
    const char *path = in_scratch("half/x.pt");
    struct zt_torch_writer *w = NULL;
    struct zt_torch_values v;

    (void)state;
    zt_torch_values_init(&v);
    zt_torch_put_tensors(&v, decls, 4);
    assert_int_equal(zt_torch_writer_open(path, &v, &w, &fault), ZT_E_CANTCREATE);
    zt_torch_values_release(&v);
    path = in_scratch("x.pt");
    zt_torch_values_init(&v);
    zt_torch_put_tensors(&v, decls, 4);
    assert_int_equal(zt_torch_writer_open(path, &v, &w, &fault), ZT_OK);
    assert_int_equal(zt_torch_writer_put(w, values_w, 24, &fault), ZT_OK);
    assert_int_equal(zt_torch_writer_commit(w, &fault), ZT_E_ARG);
    zt_torch_writer_close(w);
    zt_torch_values_release(&v);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void test_values_of_every_kind_come_back(void **state)
{
    const char *path = in_scratch("values.pt");
    const struct zt_pickled *root, *list;
    struct zt_torch_writer *w = NULL;
    struct zt_torch_file *f;
    struct zt_torch_values v;
    int64_t i = 0;
    double d = 0;

    (void)state;
    zt_torch_values_init(&v);
    zt_torch_put_mark(&v, ZT_TORCH_DICT);
    zt_torch_put_text(&v, "list");
    zt_torch_put_mark(&v, ZT_TORCH_LIST);
    zt_torch_put_int(&v, -5);
    zt_torch_put_int(&v, -(INT64_C(1) << 40));
    zt_torch_put_real(&v, 0.1);
    zt_torch_put_bool(&v, true);
    zt_torch_put_none(&v);
    zt_torch_put_end(&v, ZT_TORCH_LIST);
    zt_torch_put_end(&v, ZT_TORCH_DICT);
    assert_int_equal(zt_torch_writer_open(path, &v, &w, &fault), ZT_OK);
    assert_int_equal(zt_torch_writer_commit(w, &fault), ZT_OK);
    zt_torch_writer_close(w);
    zt_torch_values_release(&v);
    f = opened(path);
    root = zt_torch_file_root(f);
    list = zt_pickled_get(root, "list");
    assert_int_equal(zt_pickled_count(list), 5);
    assert_true(zt_pickled_int(zt_pickled_at(list, 0), &i) && i == -5);
    assert_true(zt_pickled_int(zt_pickled_at(list, 1), &i) && i == -(INT64_C(1) << 40));
    assert_true(zt_pickled_real(zt_pickled_at(list, 2), &d) && d == 0.1);
    assert_true(zt_pickled_int(zt_pickled_at(list, 3), &i) && i == 1);
    assert_int_equal(zt_pickled_at(list, 4)->kind, ZT_PICKLED_NONE);
    assert_null(zt_pickled_at(list, 5));
    assert_null(zt_pickled_get(root, "other"));
    zt_torch_file_close(f);
}

/* A tensor of the storage's 4 elements: [[1, 3], [2, 4]], a transposed view. */
#define TRANSPOSED "}(X\1\0\0\0w" REBUILD STORAGE "tQK\0(K\2K\2t(K\1K\2t" HOOKS "u."

static void test_the_stream_of_old_is_read_and_views_in_it(void **state)
{
    const char *path = put_pieces("old.bin", 5, LIT(PREAMBLE), LIT("\x80\x02" TRANSPOSED),
                                  LIT("\x80\x02]X\1\0\0\0"
                                      "0a."),
                                  LIT("\4\0\0\0\0\0\0\0"),
                                  LIT("\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40"));
    struct zt_torch_file *f = opened(path);
    struct zt_safetensors_tensor *t = NULL;
    float got[4];
    int n = 0;

    (void)state;
    assert_int_equal(zt_torch_file_tensors(f, NULL, &t, &n, &fault), ZT_OK);
    assert_int_equal(zt_safetensors_read_f32(t, 0, 4, got, &fault), ZT_OK);
    assert_true(got[0] == 1 && got[1] == 3 && got[2] == 2 && got[3] == 4);
    free(t);
    zt_torch_file_close(f);
}

static void test_nothing_is_executed_and_no_object_is_a_weight(void **state)
{
    static const char call[] =
        "\x80\x02}(X\1\0\0\0wcposix\nsystem\nX\x13\0\0\0touch /tmp/zt_owned\x85Ru.";
    struct zt_torch_file *f = opened(put_zip("evil.pt", LIT(call)));
    struct zt_safetensors_tensor *t = NULL;
    int n = 0;

    (void)state;
    assert_int_equal(zt_torch_file_tensors(f, NULL, &t, &n, &fault), ZT_E_FORMAT);
    assert_non_null(strstr(fault.text, "posix system"));
    assert_non_null(strstr(fault.text, "evil.pt"));
    assert_int_not_equal(access("/tmp/zt_owned", F_OK), 0);
    zt_torch_file_close(f);
}

static void test_malformed_pickles_are_refused_by_their_byte(void **state)
{
    static const struct {
        const char *pickle;
        size_t bytes;
        zt_err code;
        const char *text;
    } cases[] = {
        {LIT("\x80\x02}"), ZT_E_FORMAT, "ends in the middle"},
        {LIT("\x80\x02."), ZT_E_FORMAT, "takes a value where there is none"},
        {LIT("\x80\x01}."), ZT_E_FORMAT, "protocol"},
        {LIT("\x80\x02i."), ZT_E_UNSUPPORTED, "0x69"},
        {LIT("\x80\x02h\5."), ZT_E_FORMAT, "memo"},
        {LIT("\x80\x02]r\xff\xff\xff\xff."), ZT_E_FORMAT, "memo"},
        {LIT("\x80\x02t."), ZT_E_FORMAT, "mark"},
        {LIT("\x80\x02NNs."), ZT_E_FORMAT, "takes a value"},
        {LIT("\x80\x02NNNs."), ZT_E_FORMAT, "no dictionary"},
        {LIT("\x80\x02X\xff\xff\xff\xffx."), ZT_E_FORMAT, "ends in the middle"},
        {LIT("\x80\x02NQ."), ZT_E_FORMAT, "no storage"},
        {LIT("\x80\x02" REBUILD STORAGE "tQK\1(K\4t(K\1t" HOOKS "."), ZT_E_FORMAT,
         "does not fit into its storage"},
        {LIT("\x80\x02" REBUILD STORAGE
             "tQK\0(\x8a\x08\0\0\0\0\0\0\0\x40\x8a\x08\0\0\0\0\0\0\0\x40t(K\0K\0t" HOOKS
             "."),
         ZT_E_FORMAT, "does not fit into its storage"},
        {LIT("\x80\x02" REBUILD "NK\0(t(t" HOOKS "."), ZT_E_FORMAT, "not those of one"},
        {LIT("\x80\x02" REBUILD STORAGE "tQK\0(K\4t(K\1t\x89N}X\3\0\0\0neg\x88stR."),
         ZT_E_FORMAT, "stored by its negative"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        refused(put_zip("bad.pt", cases[i].pickle, cases[i].bytes), cases[i].code,
                cases[i].text);
}

static void test_a_storage_that_is_missing_or_short_is_named(void **state)
{
    static const char other[] =
        "\x80\x02" REBUILD "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
        "7X\3\0\0\0cpu"
        "K\4tQK\0(K\4t(K\1t" HOOKS ".";
    static const char longer[] =
        "\x80\x02" REBUILD "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
        "0X\3\0\0\0cpu"
        "K\5tQK\0(K\4t(K\1t" HOOKS ".";

    (void)state;
    refused(put_zip("m.pt", LIT(other)), ZT_E_FORMAT, "storage 7");
    refused(put_zip("s.pt", LIT(longer)), ZT_E_FORMAT, "data/0 has 16 bytes");
}

static size_t read_whole(const char *path, uint8_t *out, size_t cap)
{
    FILE *in = fopen(path, "rb");
    size_t n = in ? fread(out, 1, cap, in) : 0;

    if (!in || fclose(in))
        fail();
    return n;
}

/* Cut anywhere it is refused; with any byte changed it is refused or still readable. */
/* Whether the file is read, and a sum over the names and values of all its tensors. */
static bool same_state(const char *name, uint64_t *sum)
{
    struct zt_safetensors_tensor *t = NULL;
    struct zt_torch_file *f = NULL;
    float x[64];
    int num = 0;
    bool read = zt_torch_file_open(in_scratch(name), &f, &fault) == ZT_OK &&
                zt_torch_file_tensors(f, NULL, &t, &num, &fault) == ZT_OK;

    *sum = 14695981039346656037u;
    for (int i = 0; read && i < num; i++) {
        assert_true(t[i].elems <= 64);
        assert_int_equal(zt_safetensors_read_f32(&t[i], 0, t[i].elems, x, NULL), ZT_OK);
        *sum = (*sum ^ (uint64_t)t[i].dtype) * 1099511628211u;
        for (const char *c = t[i].name; *c; c++)
            *sum = (*sum ^ (uint8_t)*c) * 1099511628211u;
        for (size_t k = 0; k < (size_t)t[i].elems * sizeof(*x); k++)
            *sum = (*sum ^ ((const uint8_t *)x)[k]) * 1099511628211u;
    }
    free(t);
    zt_torch_file_close(f);
    return read;
}

static void test_damaged_archives_are_refused_or_harmless(void **state)
{
    static uint8_t bytes[8192], was[8192];
    size_t n = read_whole(write_state("whole.pt"), was, sizeof(was));
    int mutations = num_mutations(300), accepted = 0;
    uint64_t before = 0, x = mutation_seed();

    (void)state;
    assert_true(same_state("whole.pt", &before));
    for (int i = 0; i < mutations; i++) {
        size_t at[3], num = 1 + (size_t)i % 3;
        uint64_t after;

        memcpy(bytes, was, n);
        for (size_t k = 0; k < num; k++) {
            at[k] = next_random(&x) % n;
            bytes[at[k]] ^= (uint8_t)(1 + (x >> 32) % 255);
        }
        put_file("flip.pt", bytes, n);
        accepted += same_state("flip.pt", &after);
        if (same_state("flip.pt", &after) && after != before)
            fail_msg("another byte at %zu is not noticed", at[0]);
        put_file("cut.pt", was, x % n);
        assert_false(same_state("cut.pt", &after));
    }
    print_message("%d mutations, %d harmless\n", mutations, accepted);
}

static void test_other_files_are_refused(void **state)
{
    (void)state;
    refused(put_file("text.bin", LIT("hello, world")), ZT_E_UNSUPPORTED, "torch.save");
    refused(put_file("none.bin", "", 0), ZT_E_UNSUPPORTED, "torch.save");
    refused(put_file("zip.bin", LIT("PK\3\4 and nothing else here, 12345678")),
            ZT_E_FORMAT, "directory at its end");
}

static void test_a_model_folder_may_hold_pytorch_model_bin_and_shards_of_it(void **state)
{
    static const char index[] = "{\"weight_map\": {\"w\": \"s.bin\", \"b\": \"s.bin\"}}";
    struct zt_hf_folder *hf = NULL;

    (void)state;
    write_state("pytorch_model.bin");
    assert_int_equal(zt_hf_folder_open(scratch_dir, &hf, &fault), ZT_OK);
    assert_int_equal(zt_hf_folder_count(hf), 4);
    check_state(zt_hf_folder_find(hf, "w"), zt_hf_folder_find(hf, "b"));
    zt_hf_folder_close(hf);
    unlink(in_scratch("pytorch_model.bin"));
    write_state("s.bin");
    put_file("pytorch_model.bin.index.json", LIT(index));
    assert_int_equal(zt_hf_folder_open(scratch_dir, &hf, &fault), ZT_OK);
    assert_int_equal(zt_hf_folder_count(hf), 2);
    check_state(zt_hf_folder_find(hf, "w"), zt_hf_folder_find(hf, "b"));
    zt_hf_folder_close(hf);
    unlink(in_scratch("pytorch_model.bin.index.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_is_read_and_aligned),
        cmocka_unit_test(test_a_writer_that_stops_leaves_nothing),
        cmocka_unit_test(test_values_of_every_kind_come_back),
        cmocka_unit_test(test_the_stream_of_old_is_read_and_views_in_it),
        cmocka_unit_test(test_nothing_is_executed_and_no_object_is_a_weight),
        cmocka_unit_test(test_malformed_pickles_are_refused_by_their_byte),
        cmocka_unit_test(test_a_storage_that_is_missing_or_short_is_named),
        cmocka_unit_test(test_damaged_archives_are_refused_or_harmless),
        cmocka_unit_test(test_other_files_are_refused),
        cmocka_unit_test(test_a_model_folder_may_hold_pytorch_model_bin_and_shards_of_it),
    };

    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
