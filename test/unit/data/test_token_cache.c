/* Tokens of a text that are kept: made once, found again, and made anew when damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "test/unit/data/files.h"
#include "worker/data/dataset.h"
#include "worker/data/tokens.h"

#define JSON(b)                                                                          \
    "{\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,"         \
    "\"a\":" b "}},\"pre_tokenizer\":{\"type\":\"Whitespace\"}}"

static struct zt_fault fault;
static struct zt_tokenizer *small, *large; /* ids of 2 bytes, of 4 */

static struct zt_tokenizer *made(const char *json)
{
    struct zt_tokenizer *t = NULL;

    if (zt_tokenizer_parse("json", json, strlen(json), &t, &fault))
        fail_msg("%s", fault.text);
    return t;
}

static int set_up(void **state)
{
    if (scratch_make(state))
        return -1;
    small = made(JSON("1"));
    large = made(JSON("70000"));
    return 0;
}

static int tear_down(void **state)
{
    zt_tokenizer_close(small);
    zt_tokenizer_close(large);
    return scratch_remove(state);
}

static const char *cache_dir(void)
{
    return in_scratch("cache");
}

static void empty_cache(void)
{
    char command[400];

    snprintf(command, sizeof(command), "rm -rf %s", cache_dir());
    assert_int_equal(system(command), 0);
}

/* The only file in the cache. */
static const char *entry(void)
{
    static char path[800];
    DIR *d = opendir(cache_dir());
    struct dirent *e;
    int n = 0;

    assert_non_null(d);
    while ((e = readdir(d)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            snprintf(path, sizeof(path), "%s/%s", cache_dir(), e->d_name);
            n++;
        }
    closedir(d);
    assert_int_equal(n, 1);
    return path;
}

static uint64_t hash_with(const struct zt_tokenizer *t, const char *dir, bool reads_only,
                          const int32_t *want, int64_t num)
{
    struct zt_text_encoding how = {.tokenizer = t,
                                   .keeps_lengths = true,
                                   .threads = 1,
                                   .cache_dir = dir,
                                   .cache_reads_only = reads_only};
    const char *const files[] = {in_scratch("text.txt"), NULL};
    struct zt_dataset *ds = NULL;
    int32_t ids[16];
    uint64_t hash;

    if (zt_dataset_open_text(files, "text", &how, 0, &ds, &fault))
        fail_msg("%s", fault.text);
    assert_true(zt_dataset_is_encoded(ds));
    assert_int_equal(zt_dataset_num_tokens(ds), num);
    assert_int_equal(zt_dataset_num_replaced(ds), 1);
    assert_int_equal(zt_dataset_read(ds, 0, num, ids, &fault), ZT_OK);
    assert_memory_equal(ids, want, (size_t)num * sizeof(*ids));
    hash = zt_dataset_fingerprint(ds);
    zt_dataset_close(ds);
    return hash;
}

#define TEXT  "a b\na \xff\n"
#define SMALL (const int32_t[]){1, 0, 1, 0}, 4
#define LARGE (const int32_t[]){70000, 0, 70000, 0}, 4

static ino_t inode(void)
{
    struct stat st;

    assert_int_equal(stat(entry(), &st), 0);
    return st.st_ino;
}

static void test_tokens_are_made_once_and_are_the_same(void **state)
{
    uint64_t plain;
    ino_t first;

    (void)state;
    empty_cache();
    put_file("text.txt", TEXT, strlen(TEXT));
    plain = hash_with(small, NULL, false, SMALL);
    assert_true(hash_with(small, cache_dir(), false, SMALL) == plain);
    first = inode();
    assert_true(hash_with(small, cache_dir(), false, SMALL) == plain);
    assert_true(inode() == first);
    assert_true(hash_with(small, cache_dir(), true, SMALL) == plain);
}

static void test_another_text_or_tokenizer_has_tokens_of_its_own(void **state)
{
    (void)state;
    empty_cache();
    put_file("text.txt", TEXT, strlen(TEXT));
    hash_with(large, cache_dir(), false, LARGE);
    hash_with(small, cache_dir(), false, SMALL);
    assert_int_equal(count_files(cache_dir()), 2);
    put_file("text.txt", "a \xff a b\n", 8);
    hash_with(small, cache_dir(), false, (const int32_t[]){1, 0, 1, 0}, 4);
    assert_int_equal(count_files(cache_dir()), 3);
}

/* Each number of the header, ids, lengths of lines, and sizes of the file. */
static void test_damaged_tokens_are_made_again(void **state)
{
    static const long at[] = {0,  8,  12, 16, 24,  32,    40,    48,    56,   64,
                              72, 80, 88, 96, 104, 65536, 65543, 65544, 65551};
    struct stat st;
    ino_t first;

    (void)state;
    empty_cache();
    put_file("text.txt", TEXT, strlen(TEXT));
    hash_with(small, cache_dir(), false, SMALL);
    for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++) {
        FILE *f = fopen(entry(), "r+");
        int byte;

        first = inode();
        assert_non_null(f);
        assert_int_equal(fseek(f, at[i], SEEK_SET), 0);
        byte = fgetc(f);
        assert_int_equal(fseek(f, at[i], SEEK_SET), 0);
        assert_int_equal(fputc(byte ^ 1, f), byte ^ 1);
        assert_int_equal(fclose(f), 0);
        hash_with(small, cache_dir(), true,
                  SMALL); /* by itself, and nothing is changed */
        assert_true(inode() == first);
        hash_with(small, cache_dir(), false, SMALL);
        assert_true(inode() != first);
    }
    assert_int_equal(stat(entry(), &st), 0);
    for (long n = 0; n < 3; n++) {
        assert_int_equal(truncate(entry(), n == 0 ? 0 : st.st_size - n), 0);
        hash_with(small, cache_dir(), false, SMALL);
        assert_int_equal(stat(entry(), &st), 0);
        assert_int_equal(st.st_size, 65536 + 4 * 2 + 2 * 4);
    }
}

static void test_what_killed_processes_leave_is_in_nobodys_way(void **state)
{
    char path[900];
    FILE *f;

    (void)state;
    empty_cache();
    put_file("text.txt", TEXT, strlen(TEXT));
    hash_with(small, cache_dir(), false, SMALL);
    snprintf(path, sizeof(path), "%s/.%s.tmp", cache_dir(), strrchr(entry(), '/') + 1);
    assert_int_equal(unlink(entry()), 0);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    hash_with(small, cache_dir(), false, SMALL);
    assert_non_null(strstr(entry(), "/tokens-")); /* and nothing else */
}

static void test_processes_that_start_together_make_one(void **state)
{
    int status;

    (void)state;
    empty_cache();
    put_file("text.txt", TEXT, strlen(TEXT));
    for (int i = 0; i < 8; i++) {
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
            hash_with(small, cache_dir(), false, SMALL);
            _exit(0);
        }
    }
    for (int i = 0; i < 8; i++) {
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    entry();
}

static void test_a_folder_that_cannot_be_is_refused(void **state)
{
    struct zt_text_encoding how = {.tokenizer = small, .threads = 1};
    const char *const files[] = {put_file("text.txt", TEXT, strlen(TEXT)), NULL};
    struct zt_dataset *ds = NULL;

    (void)state;
    how.cache_dir = files[0];
    assert_int_equal(zt_dataset_open_text(files, "text", &how, 0, &ds, &fault),
                     ZT_E_CANTCREATE);
    assert_non_null(strstr(fault.text, "--data_cache_dir: cannot use"));
    how.cache_dir = in_scratch("text.txt/cache");
    assert_int_equal(zt_dataset_open_text(files, "text", &how, 0, &ds, &fault),
                     ZT_E_CANTCREATE);
    assert_non_null(strstr(fault.text, "text.txt/cache: Not a directory"));
    assert_null(ds);
}

static void test_a_folder_is_made_with_its_parents(void **state)
{
    struct zt_text_encoding how = {
        .tokenizer = small, .threads = 1, .cache_dir = in_scratch("none/of/cache")};
    const char *const files[] = {put_file("text.txt", TEXT, strlen(TEXT)), NULL};
    struct zt_dataset *ds = NULL;
    struct stat st;

    (void)state;
    assert_int_equal(zt_dataset_open_text(files, "text", &how, 0, &ds, &fault), ZT_OK);
    assert_int_equal(stat(in_scratch("none/of/cache"), &st), 0);
    zt_dataset_close(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_are_made_once_and_are_the_same),
        cmocka_unit_test(test_another_text_or_tokenizer_has_tokens_of_its_own),
        cmocka_unit_test(test_damaged_tokens_are_made_again),
        cmocka_unit_test(test_what_killed_processes_leave_is_in_nobodys_way),
        cmocka_unit_test(test_processes_that_start_together_make_one),
        cmocka_unit_test(test_a_folder_that_cannot_be_is_refused),
        cmocka_unit_test(test_a_folder_is_made_with_its_parents),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
