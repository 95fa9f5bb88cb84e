/* Model folders: single and sharded saves, what replaces what, and broken indexes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <jansson.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test/unit/data/files.h"
#include "worker/checkpoint/hf_folder.h"

static struct zt_fault fault;

enum { TENSORS = 5 };
static const int64_t shapes[TENSORS][2] = {{2, 3}, {1, 0}, {10, 1}, {1, 1}, {4, 2}};
static const char *const names[TENSORS] = {"b", "empty", "big", "a", "c.weight"};
static const int total_floats = 6 + 0 + 10 + 1 + 8;

static void declare(struct zt_safetensors_decl *d)
{
    for (int i = 0; i < TENSORS; i++)
        d[i] = (struct zt_safetensors_decl){
            .name = names[i], .dtype = ZT_F32, .ndim = 2, .shape = shapes[i]};
}

/* Element i of all data is first + i. */
static void save(const char *dir, int64_t shard_bytes, size_t piece, float first)
{
    struct zt_hf_writer *w = NULL;
    struct zt_safetensors_decl d[TENSORS];
    float data[32];

    declare(d);
    for (int i = 0; i < total_floats; i++)
        data[i] = first + (float)i;
    if (zt_hf_writer_open(dir, d, TENSORS, shard_bytes, &w, &fault))
        fail_msg("%s", fault.text);
    for (size_t at = 0, n; at < (size_t)total_floats * 4; at += n) {
        n = (size_t)total_floats * 4 - at < piece ? (size_t)total_floats * 4 - at : piece;
        assert_int_equal(zt_hf_writer_put(w, (char *)data + at, n, &fault), ZT_OK);
    }
    if (zt_hf_writer_commit(w, &fault))
        fail_msg("%s", fault.text);
    zt_hf_writer_close(w);
}

static void check(const char *path, float first)
{
    struct zt_hf_folder *hf = NULL;

    if (zt_hf_folder_open(path, &hf, &fault))
        fail_msg("%s", fault.text);
    assert_int_equal(zt_hf_folder_count(hf), TENSORS);
    for (int i = 0; i < TENSORS; i++) {
        const struct zt_safetensors_tensor *t = zt_hf_folder_find(hf, names[i]);
        float got[16];

        assert_non_null(t);
        assert_int_equal(t->ndim, 2);
        assert_int_equal(t->shape[0], shapes[i][0]);
        assert_int_equal(zt_safetensors_read_f32(t, 0, t->elems, got, &fault), ZT_OK);
        for (int64_t k = 0; k < t->elems; k++)
            assert_true(got[k] == first++);
    }
    assert_null(zt_hf_folder_find(hf, "absent"));
    assert_null(zt_hf_folder_at(hf, TENSORS));
    assert_string_equal(zt_hf_folder_at(hf, 0)->name, "a");
    zt_hf_folder_close(hf);
}

static bool there(const char *dir, const char *name)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static void test_small_weights_are_one_file_without_index(void **state)
{
    const char *dir = in_scratch("one");
    char file[512];

    (void)state;
    save(dir, ZT_HF_SHARD_BYTES, 7, 0);
    assert_int_equal(count_files(dir), 1);
    check(dir, 0);
    snprintf(file, sizeof(file), "%s/", dir);
    check(file, 0);
    snprintf(file, sizeof(file), "%s/model.safetensors", dir);
    check(file, 0);
}

static void test_shards_respect_the_limit_in_any_piece_size(void **state)
{
    const char *dir = in_scratch("many");
    char index[512];

    (void)state;
    for (size_t piece = 1; piece <= 100; piece += 3) {
        save(dir, 32, piece, (float)piece); /* 24 | 40: above the limit | 4 | 32 */
        assert_int_equal(count_files(dir), 5);
        assert_true(there(dir, "model-00004-of-00004.safetensors"));
        check(dir, (float)piece);
    }
    snprintf(index, sizeof(index), "%s/model.safetensors.index.json", dir);
    check(index, 100);
}

static void test_the_index_counts_tensor_bytes(void **state)
{
    const char *dir = in_scratch("index");
    char path[512];
    json_t *root, *map;

    (void)state;
    save(dir, 36, 100, 0); /* 24 | 40 | 4 + 32 */
    snprintf(path, sizeof(path), "%s/model.safetensors.index.json", dir);
    root = json_load_file(path, 0, NULL);
    map = json_object_get(root, "weight_map");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(root, "metadata"),
                                                        "total_size")),
                     100);
    assert_int_equal(json_object_size(map), TENSORS);
    assert_string_equal(json_string_value(json_object_get(map, "empty")),
                        "model-00001-of-00003.safetensors");
    assert_string_equal(json_string_value(json_object_get(map, "c.weight")),
                        "model-00003-of-00003.safetensors");
    json_decref(root);
}

static void test_a_save_replaces_an_earlier_one_of_another_cut(void **state)
{
    const char *dir = in_scratch("again");

    (void)state;
    save(dir, 32, 100, 0);
    save(dir, 64, 100, 1000);
    assert_int_equal(count_files(dir), 3);
    check(dir, 1000);
    save(dir, 1000, 100, 2000);
    assert_int_equal(count_files(dir), 1);
    check(dir, 2000);
    assert_int_equal(zt_hf_write_text(dir, "model-notes-of-me.safetensors", "x", &fault),
                     ZT_OK);
    save(dir, 32, 100, 3000);
    assert_false(there(dir, "model.safetensors"));
    assert_true(there(dir, "model-notes-of-me.safetensors"));
    check(dir, 3000);
}

/* A reader that looks for the other form first would open what was there before. */
static void test_a_save_replaces_files_of_torch_save_as_well(void **state)
{
    static const char *const older[] = {
        "pytorch_model.bin", "pytorch_model.bin.index.json",
        "pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"};
    const char *dir = in_scratch("torch");

    (void)state;
    save(dir, 32, 100, 0);
    for (size_t i = 0; i < sizeof(older) / sizeof(*older); i++)
        assert_int_equal(zt_hf_write_text(dir, older[i], "x", &fault), ZT_OK);
    assert_int_equal(zt_hf_write_text(dir, "my_pytorch_model.bin", "x", &fault), ZT_OK);
    save(dir, 1000, 100, 1000);
    for (size_t i = 0; i < sizeof(older) / sizeof(*older); i++)
        assert_false(there(dir, older[i]));
    assert_true(there(dir, "my_pytorch_model.bin"));
    assert_int_equal(count_files(dir), 2);
    check(dir, 1000);
}

static void test_an_abandoned_save_leaves_the_folder_as_it_was(void **state)
{
    const char *dir = in_scratch("left");
    struct zt_hf_writer *w = NULL;
    struct zt_safetensors_decl d[TENSORS];
    char zeros[128] = {0};

    (void)state;
    save(dir, 1000, 100, 5);
    declare(d);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(zt_hf_writer_open(dir, d, TENSORS, 32, &w, &fault), ZT_OK);
        assert_int_equal(zt_hf_writer_put(w, zeros, 60, &fault), ZT_OK);
        if (i == 1)
            assert_int_equal(zt_hf_writer_commit(w, &fault), ZT_E_ARG);
        if (i == 2)
            assert_int_equal(zt_hf_writer_put(w, zeros, 41, &fault), ZT_E_ARG);
        zt_hf_writer_close(w);
        assert_int_equal(count_files(dir), 1);
        check(dir, 5);
    }
    d[4].name = d[0].name; /* far apart, in two shards */
    assert_int_equal(zt_hf_writer_open(dir, d, TENSORS, 32, &w, &fault), ZT_E_ARG);
    declare(d);
    assert_int_equal(zt_hf_writer_open(dir, d, TENSORS, 0, &w, &fault), ZT_E_ARG);
    assert_int_equal(zt_hf_writer_open(in_scratch("left/model.safetensors/b"), d, TENSORS,
                                       32, &w, &fault),
                     ZT_E_CANTCREATE);
    assert_int_equal(count_files(dir), 1);
}

static void refused(const char *path, zt_err code, const char *phrase)
{
    struct zt_hf_folder *hf = NULL;

    fault = (struct zt_fault){0};
    assert_int_equal(zt_hf_folder_open(path, &hf, &fault), code);
    assert_null(hf);
    if (!strstr(fault.text, phrase))
        fail_msg("\"%s\" does not say \"%s\"", fault.text, phrase);
}

static void put_index(const char *dir, const char *text)
{
    assert_int_equal(zt_hf_write_text(dir, "model.safetensors.index.json", text, &fault),
                     ZT_OK);
}

static void test_broken_folders_are_refused_with_their_reason(void **state)
{
    const char *dir = in_scratch("broken");
    struct zt_safetensors_decl d[TENSORS];

    (void)state;
    declare(d);
    refused(dir, ZT_E_NOINPUT, "no such model folder");
    assert_int_equal(mkdir(dir, 0777), 0);
    refused(dir, ZT_E_NOINPUT, "no model.safetensors");
    assert_int_equal(zt_hf_write_text(dir, "pytorch_model.bin", "PK", &fault), ZT_OK);
    refused(dir, ZT_E_UNSUPPORTED, "torch.save");
    put_index(dir, "{\"weight_map\": {\"a\": \"x.safetensors\",}}");
    refused(dir, ZT_E_FORMAT, "index.json:1:");
    put_index(dir, "{\"metadata\": {}}");
    refused(dir, ZT_E_FORMAT, "no weight_map");
    put_index(dir, "{\"weight_map\": {\"a\": 1}}");
    refused(dir, ZT_E_FORMAT, "no string");
    put_index(dir, "{\"weight_map\": {\"a\": \"../x.safetensors\"}}");
    refused(dir, ZT_E_FORMAT, "outside the folder");
    put_index(dir, "{\"weight_map\": {\"a\": \"x.safetensors\"}}");
    refused(dir, ZT_E_NOINPUT, "shard named in");
    assert_int_equal(zt_hf_write_text(dir, "x.safetensors", "junk", &fault), ZT_OK);
    refused(dir, ZT_E_FORMAT, "truncated");
    assert_int_equal(zt_hf_write_text(dir, "x.safetensors",
                                      "\x02\x01\x01\x01\x01\x01\x01\x01{}", &fault),
                     ZT_OK);
    refused(dir, ZT_E_FORMAT, "header claims");
}

static void test_an_index_of_another_save_is_noticed(void **state)
{
    const char *dir = in_scratch("mixed");

    (void)state;
    save(dir, 32, 100, 0);
    put_index(dir, "{\"weight_map\": {\"a\": \"model-00001-of-00004.safetensors\"}}");
    refused(dir, ZT_E_FORMAT, "not of one save");
}

static void test_text_is_replaced_whole(void **state)
{
    const char *dir = in_scratch("text");
    char path[512], got[16] = {0};
    FILE *f;

    (void)state;
    assert_int_equal(mkdir(dir, 0777), 0);
    assert_int_equal(zt_hf_write_text(dir, "config.json", "{\"a\": 1234}", &fault),
                     ZT_OK);
    assert_int_equal(zt_hf_write_text(dir, "config.json", "{}", &fault), ZT_OK);
    assert_int_equal(count_files(dir), 1);
    snprintf(path, sizeof(path), "%s/config.json", dir);
    f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fread(got, 1, sizeof(got), f), 2);
    fclose(f);
    assert_string_equal(got, "{}");
}

static int num_threads(void)
{
    return count_files("/proc/self/task");
}

static void *end_at_once(void *ctx)
{
    return ctx;
}

/* How many there are where none of ours runs: a sanitiser starts its own beside the first. */
static int num_other_threads(void)
{
    pthread_t id;
    int n = num_threads();

    assert_int_equal(pthread_create(&id, NULL, end_at_once, NULL), 0);
    assert_int_equal(pthread_join(id, NULL), 0);
    for (int i = 0; i < 1000 && num_threads() > n; i++)
        usleep(1000);
    return num_threads();
}

/* A thread that was joined may be listed for a moment still. */
static bool threads_become(int num)
{
    for (int i = 0; i < 5000 && num_threads() > num; i++)
        usleep(1000);
    return num_threads() == num;
}

/* A file that is large is written by threads, from buffers: one file at a time. */
static void test_a_folder_of_many_large_files_writes_one_at_a_time(void **state)
{
    enum { FILES = 4 };
    static const int64_t shape[1] = {40 << 20};
    static const char *const of[FILES] = {"a", "b", "c", "d"};
    struct zt_safetensors_decl d[FILES];
    char *data = calloc(1, (size_t)shape[0]);
    struct zt_hf_writer *w = NULL;
    int before = num_other_threads(), most = 0;

    (void)state;
    assert_non_null(data);
    for (int i = 0; i < FILES; i++)
        d[i] = (struct zt_safetensors_decl){
            .name = of[i], .dtype = ZT_U8, .ndim = 1, .shape = shape};
    assert_int_equal(
        zt_hf_writer_open(in_scratch("large"), d, FILES, shape[0], &w, &fault), ZT_OK);
    assert_int_equal(num_threads(), before);
    for (int i = 0; i < FILES; i++) {
        assert_int_equal(zt_hf_writer_put(w, data, (size_t)shape[0], &fault), ZT_OK);
        assert_true(num_threads() > before);
        assert_true(!i || threads_become(most));
        most = num_threads();
    }
    assert_int_equal(zt_hf_writer_commit(w, &fault), ZT_OK);
    assert_true(threads_become(before));
    zt_hf_writer_close(w);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_weights_are_one_file_without_index),
        cmocka_unit_test(test_shards_respect_the_limit_in_any_piece_size),
        cmocka_unit_test(test_the_index_counts_tensor_bytes),
        cmocka_unit_test(test_a_folder_of_many_large_files_writes_one_at_a_time),
        cmocka_unit_test(test_a_save_replaces_an_earlier_one_of_another_cut),
        cmocka_unit_test(test_a_save_replaces_files_of_torch_save_as_well),
        cmocka_unit_test(test_an_abandoned_save_leaves_the_folder_as_it_was),
        cmocka_unit_test(test_broken_folders_are_refused_with_their_reason),
        cmocka_unit_test(test_an_index_of_another_save_is_noticed),
        cmocka_unit_test(test_text_is_replaced_whole),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
