/* Checkpoints on disk: what is written reads back, whatever changes is noticed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/unit/data/files.h"
#include "worker/checkpoint/folder.h"
#include "worker/checkpoint/hf_folder.h"
#include "worker/checkpoint/reader.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/checksummed_json.h"
#include "worker/checkpoint/shard.h"

static struct zt_fault fault;

#define BIG 1500000 /* elements: pieces of 4 MiB do not fit them evenly */

static const struct zt_ckpt_kind kinds[] = {{"weights", ZT_BF16}, {"master", ZT_F32}};
static const struct zt_ckpt_param params[] = {
    {.name = "a", .ndim = 2, .shape = {3, 5}, .numel = 15, .kinds = 3},
    {.name = "b", .ndim = 1, .shape = {BIG}, .numel = BIG, .kinds = 2},
};
static const struct zt_ckpt_tables tables = {kinds, 2, params, 2};

static void good(zt_err rc)
{
    if (rc)
        fail_msg("%s", fault.text);
}

/* ---- a file system that cannot exchange, and fails at the rename that is left ---- */

static struct {
    bool fail;
    int num; /* of checkpoint-5 into its place */
} renames;

int rename(const char *from, const char *to)
{
    const char *name = strrchr(from, '/');

    if (renames.fail && name && !strcmp(name, "/.checkpoint-5.tmp") &&
        ++renames.num == 2) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    if (renames.fail && flags) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_renameat2, a, from, b, to, flags);
}

/* ---- a checkpoint of two shards ---- */

static uint32_t value(int kind, int param, int64_t i)
{
    uint32_t v = 0x3f800000u + (uint32_t)(i * 7 + param * 3 + kind);

    return kind ? v : v & 0xffff;
}

static void put_part(struct zt_ckpt_shard_writer *w, const struct zt_ckpt_part *p)
{
    for (int64_t i = 0; i < p->elems; i++) {
        uint32_t v = value(p->kind, p->param, p->first + i);

        good(zt_ckpt_shard_put(w, &v, zt_dtype_bytes(kinds[p->kind].dtype), &fault));
    }
}

static json_t *write_shard(const char *dir, int rank, const struct zt_ckpt_part *parts,
                           int64_t n)
{
    char file[ZT_CKPT_SHARD_NAME], index[ZT_CKPT_SHARD_NAME], hash[ZT_HASH_TEXT];
    struct zt_ckpt_shard_made made = {0};
    struct zt_ckpt_shard_writer *w = NULL;

    good(zt_ckpt_shard_open(dir, rank, &tables, parts, n, &w, &fault));
    for (int64_t i = 0; i < n; i++)
        put_part(w, &parts[i]);
    good(zt_ckpt_shard_finish(w, &made, &fault));
    zt_ckpt_shard_close(w);
    zt_ckpt_shard_names(rank, file, index);
    zt_hash_print(made.index_hash, hash);
    return json_pack("{s:s, s:I, s:s, s:s}", "file", file, "bytes",
                     (json_int_t)made.bytes, "index", index, "index_xxh3", hash);
}

static void write_manifest(const char *dir, json_t *shards, const char *config)
{
    char hash[ZT_HASH_TEXT];
    json_t *root;
    char *text = NULL;
    size_t bytes;
    uint64_t h;

    zt_hash_print(zt_hash_bytes(config, strlen(config)), hash);
    root =
        json_pack("{s:s, s:i, s:s, s:[{s:s, s:s}, {s:s, s:s}],"
                  " s:[{s:s, s:[i, i], s:[i, i]}, {s:s, s:[i], s:[i]}], s:o,"
                  " s:[{s:s, s:i, s:s}]}",
                  "format", ZT_CKPT_FORMAT, "version", 1, "tag", "global_step4", "kinds",
                  "name", "weights", "dtype", "bf16", "name", "master", "dtype", "f32",
                  "params", "name", "a", "shape", 3, 5, "kinds", 0, 1, "name", "b",
                  "shape", BIG, "kinds", 1, "shards", shards, "files", "name",
                  "../config.json", "bytes", (int)strlen(config), "xxh3", hash);
    assert_non_null(root);
    good(zt_sealed_json_print(root, &text, &bytes, &h, &fault));
    good(zt_hf_write_text(dir, "manifest.json", text, &fault));
    free(text);
    json_decref(root);
}

/* All of a checkpoint, into the work folder. */
static void write_work(const struct zt_ckpt_place *p)
{
    static const struct zt_ckpt_part one[] = {{0, 0, 0, 15, 0, 0, NULL},
                                              {1, 0, 0, 7, 0, 0, NULL},
                                              {1, 1, 0, 1100000, 0, 0, NULL}};
    static const struct zt_ckpt_part two[] = {{1, 0, 7, 8, 0, 0, NULL},
                                              {1, 1, 1100000, 400000, 0, 0, NULL}};
    char work[PATH_MAX], top[PATH_MAX];
    json_t *shards = json_array();

    zt_ckpt_work_dir(p, work);
    zt_ckpt_work_top(p, top);
    json_array_append_new(shards, write_shard(work, 0, one, 3));
    json_array_append_new(shards, write_shard(work, 1, two, 2));
    good(zt_hf_write_text(top, "config.json", "{}", &fault));
    write_manifest(work, shards, "{}");
}

static const char *write_checkpoint(int64_t step)
{
    static char final[PATH_MAX];
    struct zt_ckpt_place p = {.root = ""};

    zt_ckpt_place_of_step(&p, in_scratch("runs"), step);
    mkdir(p.root, 0777);
    good(zt_ckpt_folder_begin(&p, &fault));
    write_work(&p);
    good(zt_ckpt_folder_publish(&p, &fault));
    zt_ckpt_final_dir(&p, final);
    return final;
}

static struct zt_ckpt *opened(const char *path)
{
    struct zt_ckpt *c = NULL;

    good(zt_ckpt_open(path, NULL, &c, &fault));
    return c;
}

/* ---- reading ---- */

static void test_any_range_reads_back(void **state)
{
    static const int64_t range[][2] = {{0, BIG},       {1048570, 12}, {1099998, 4},
                                       {BIG - 1, 1},   {5, 0},        {1048576, 51424},
                                       {1047, 1100000}};
    struct zt_ckpt *c = opened(write_checkpoint(4));
    uint32_t *got = calloc(BIG, sizeof(*got));

    (void)state;
    for (size_t r = 0; r < sizeof(range) / sizeof(range[0]); r++) {
        good(zt_ckpt_read(c, 1, 1, range[r][0], range[r][1], got, &fault));
        for (int64_t i = 0; i < range[r][1]; i++)
            assert_int_equal(got[i], value(1, 1, range[r][0] + i));
    }
    assert_int_equal(zt_ckpt_read(c, 0, 1, 0, 1, got, &fault), ZT_E_ARG);
    assert_int_equal(zt_ckpt_read(c, 1, 1, BIG, 1, got, &fault), ZT_E_ARG);
    good(zt_ckpt_verify(c, &fault));
    free(got);
    zt_ckpt_close(c);
}

/* Pieces that two ranges share, other ranges in between, and one that was not planned. */
static void test_planned_reads_are_the_same(void **state)
{
    static const int64_t range[][2] = {{0, 1000},
                                       {1000, 1048576},
                                       {1049576, 12},
                                       {1099990, 20},
                                       {1100010, BIG - 1100010}};
    struct zt_ckpt *c = opened(write_checkpoint(4));
    uint32_t *got = calloc(BIG, sizeof(*got));

    (void)state;
    good(zt_ckpt_plan_reads(c, false, &fault));
    for (int reads = 0; reads < 2; reads++) {
        if (reads)
            good(zt_ckpt_begin_reads(c, &fault));
        for (size_t r = 0; r < sizeof(range) / sizeof(range[0]); r++) {
            good(zt_ckpt_read(c, 1, 1, range[r][0], range[r][1], got, &fault));
            for (int64_t i = 0; i < range[r][1]; i++)
                assert_int_equal(got[i], reads ? value(1, 1, range[r][0] + i) : 0);
            if (reads && r == 2) {
                good(zt_ckpt_read(c, 1, 0, 2, 9, got, &fault));
                for (int64_t i = 0; i < 9; i++)
                    assert_int_equal(got[i], value(1, 0, 2 + i));
            }
        }
    }
    free(got);
    zt_ckpt_close(c);
}

static void test_halves_read_as_floats(void **state)
{
    struct zt_ckpt *c = opened(write_checkpoint(4));
    uint32_t got[15];

    (void)state;
    good(zt_ckpt_read_f32(c, 0, 0, 0, 15, (float *)got, &fault));
    for (int64_t i = 0; i < 15; i++)
        assert_int_equal(got[i], value(0, 0, i) << 16);
    assert_int_equal(zt_ckpt_value_kind(c, 0), 1);
    zt_ckpt_close(c);
}

static void test_a_shard_is_a_safetensors_file(void **state)
{
    const char *dir = write_checkpoint(4);
    struct zt_safetensors_file *f = NULL;
    char path[PATH_MAX];

    (void)state;
    snprintf(path, sizeof(path), "%s/global_step4/zero_rank_00001.safetensors", dir);
    good(zt_safetensors_open(path, &f, &fault));
    assert_int_equal(zt_safetensors_count(f), 2);
    assert_non_null(zt_safetensors_find(f, "master/b@1100000"));
    zt_safetensors_close(f);
    snprintf(path, sizeof(path), "%s/global_step4/zero_rank_00000.safetensors", dir);
    good(zt_safetensors_open(path, &f, &fault));
    assert_int_equal(zt_safetensors_find(f, "weights/a")->ndim, 2);
    zt_safetensors_close(f);
}

/* ---- damage ---- */

static zt_err load_all(const char *dir)
{
    struct zt_ckpt *c = NULL;
    zt_err rc = zt_ckpt_open(dir, NULL, &c, &fault);

    if (!rc)
        rc = zt_ckpt_verify(c, &fault);
    zt_ckpt_close(c);
    return rc;
}

static int num_flips;

/* Every `step`-th byte of a file gets one flipped bit, one at a time; with ZT_MUTATIONS every
 * byte of what is JSON, each with five bits in turn. */
static void flip_bits(const char *dir, const char *name, off_t step)
{
    char path[PATH_MAX], byte;
    struct stat st;
    int fd, bits = 1;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    if (getenv("ZT_MUTATIONS") && step < 100) {
        step = 1;
        bits = 5;
    }
    for (off_t i = 0; i < bits * st.st_size; i += step, num_flips++) {
        off_t at = i / bits;
        char bad;

        assert_int_equal(pread(fd, &byte, 1, at), 1);
        bad = (char)(byte ^ (1 << ((at + i % bits) % 8)));
        assert_int_equal(pwrite(fd, &bad, 1, at), 1);
        if (!load_all(dir))
            fail_msg("%s: a flipped bit at %lld is not noticed", name, (long long)at);
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
}

static void test_a_flipped_bit_is_noticed_in_every_file(void **state)
{
    const char *dir = write_checkpoint(4);

    (void)state;
    flip_bits(dir, "latest", 1);
    flip_bits(dir, "config.json", 1);
    flip_bits(dir, "global_step4/manifest.json", 7);
    flip_bits(dir, "global_step4/zero_rank_00000.json", 7);
    flip_bits(dir, "global_step4/zero_rank_00001.json", 7);
    flip_bits(dir, "global_step4/zero_rank_00000.safetensors", 299993);
    flip_bits(dir, "global_step4/zero_rank_00001.safetensors", 99991);
    good(load_all(dir));
    print_message("%d mutations, 0 accepted\n", num_flips);
}

static void test_damage_is_named_by_its_tensor(void **state)
{
    const char *dir = write_checkpoint(4);
    char path[PATH_MAX];
    struct stat st;

    (void)state;
    snprintf(path, sizeof(path), "%s/global_step4/zero_rank_00001.safetensors", dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 1), 0);
    assert_int_equal(load_all(dir), ZT_E_FORMAT);
    assert_non_null(strstr(fault.text, "master of a and others"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(load_all(dir), ZT_E_FORMAT);
    snprintf(path, sizeof(path), "%s/global_step4/zero_rank_00001.json", dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(load_all(dir), ZT_E_FORMAT);
    assert_non_null(strstr(fault.text, "master of a is missing from element 7 on"));
}

/* ---- folders ---- */

static void test_a_save_over_another_replaces_it(void **state)
{
    const char *dir = write_checkpoint(4);
    struct stat st;

    (void)state;
    good(load_all(dir));
    good(load_all(write_checkpoint(4)));
    assert_int_not_equal(stat(in_scratch("runs/.checkpoint-4.tmp"), &st), 0);
}

static void test_a_save_that_cannot_take_the_name_leaves_the_old_one(void **state)
{
    const char *dir = write_checkpoint(5);
    struct zt_ckpt_place p = {.root = ""};

    (void)state;
    zt_ckpt_place_of_step(&p, in_scratch("runs"), 5);
    good(zt_ckpt_folder_begin(&p, &fault));
    write_work(&p);
    renames.fail = true;
    assert_int_equal(zt_ckpt_folder_publish(&p, &fault), ZT_E_CANTCREATE);
    renames.fail = false;
    assert_int_equal(renames.num, 2);
    assert_non_null(strstr(fault.text, "checkpoint-5: cannot replace it: Input/output"));
    zt_ckpt_folder_abandon(&p);
    zt_ckpt_remove_stale(p.root);
    good(load_all(dir));
}

static void test_pruning_spares_the_newest_and_the_best(void **state)
{
    int64_t *steps = NULL;
    int num = 0, removed = 0;
    char root[PATH_MAX], dir[PATH_MAX + 32];

    (void)state;
    snprintf(root, sizeof(root), "%s", in_scratch("prune"));
    mkdir(root, 0777);
    for (int i = 1; i <= 12; i++) {
        snprintf(dir, sizeof(dir), "%s/checkpoint-%d", root, i);
        mkdir(dir, 0777);
        if (i != 7) /* which is somebody's notes */
            good(zt_hf_write_text(dir, "manifest.json", "{}", &fault));
    }
    /* a name that this program does not give, of step 4 again */
    snprintf(dir, sizeof(dir), "%s/checkpoint-04", root);
    mkdir(dir, 0777);
    good(zt_hf_write_text(dir, "manifest.json", "{}", &fault));
    good(zt_ckpt_prune(root, NULL, 11, 12, 3, &removed, &fault));
    assert_int_equal(removed, 0);
    good(zt_ckpt_prune(root, NULL, 2, 12, 3, &removed, &fault));
    assert_int_equal(removed, 9);
    good(zt_ckpt_list(root, &steps, &num, &fault));
    assert_int_equal(num, 3);
    assert_int_equal(steps[0], 12);
    assert_int_equal(steps[1], 7);
    assert_int_equal(steps[2], 3);
    free(steps);
}

/* A process that has begun to write a checkpoint there, and waits. */
static pid_t begin_one(const struct zt_ckpt_place *place)
{
    int pipes[2];
    pid_t pid;
    char c;

    assert_int_equal(pipe(pipes), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(prctl(PR_SET_PDEATHSIG, SIGKILL) || zt_ckpt_folder_begin(place, NULL) ||
              write(pipes[1], "x", 1) != 1 || pause());
    close(pipes[1]);
    assert_int_equal(read(pipes[0], &c, 1), 1);
    close(pipes[0]);
    return pid;
}

static void kill_it(pid_t pid)
{
    int status;

    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

/* What another process writes stays; so does what has another name. */
static void test_what_a_killed_save_left_is_removed(void **state)
{
    static const char *const names[] = {".checkpoint-7.tmp",
                                        ".checkpoint-8.tmp.old",
                                        ".half-way.checkpoint.tmp.old",
                                        ".checkpoint-x.tmp",
                                        ".checkpoint-9",
                                        ".mine.tmp",
                                        "mine.checkpoint.tmp",
                                        ".checkpoint.tmp",
                                        "checkpoint-10.tmp",
                                        ".tmp"};
    struct zt_ckpt_place place = {.root = ""}, own = {.tag = "half-way"};
    char root[PATH_MAX], path[PATH_MAX + 32], of_own[PATH_MAX];
    pid_t pid, own_pid;

    (void)state;
    snprintf(root, sizeof(root), "%s", in_scratch("stale"));
    snprintf(own.root, sizeof(own.root), "%s", root);
    assert_int_equal(mkdir(root, 0700), 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        snprintf(path, sizeof(path), "%s/%s", root, names[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    zt_ckpt_place_of_step(&place, root, 11);
    pid = begin_one(&place);
    own_pid = begin_one(&own);
    zt_ckpt_remove_stale(root);
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        snprintf(path, sizeof(path), "%s/%s", root, names[i]);
        assert_int_equal(access(path, F_OK), i < 3 ? -1 : 0);
    }
    zt_ckpt_work_top(&place, path);
    zt_ckpt_work_top(&own, of_own);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(access(of_own, F_OK), 0);
    kill_it(pid);
    kill_it(own_pid);
    zt_ckpt_remove_stale(root);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(access(of_own, F_OK), -1);
}

/* A plugin's folder is no run's: the next save there removes what one left. */
static void test_a_save_under_a_tag_removes_what_a_killed_one_left(void **state)
{
    struct zt_ckpt_place killed = {.tag = "a"}, live = {.tag = "b"}, next = {.tag = "c"};
    char left[PATH_MAX], path[PATH_MAX];
    pid_t pid;

    (void)state;
    snprintf(killed.root, sizeof(killed.root), "%s", in_scratch("tags"));
    assert_int_equal(mkdir(killed.root, 0700), 0);
    memcpy(live.root, killed.root, sizeof(live.root));
    memcpy(next.root, killed.root, sizeof(next.root));
    kill_it(begin_one(&killed));
    pid = begin_one(&live);
    good(zt_ckpt_folder_begin(&next, &fault));
    zt_ckpt_work_top(&killed, left);
    assert_int_equal(access(left, F_OK), -1);
    zt_ckpt_work_top(&live, path);
    assert_int_equal(access(path, F_OK), 0);
    kill_it(pid);
    zt_ckpt_folder_abandon(&next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_range_reads_back),
        cmocka_unit_test(test_planned_reads_are_the_same),
        cmocka_unit_test(test_halves_read_as_floats),
        cmocka_unit_test(test_a_shard_is_a_safetensors_file),
        cmocka_unit_test(test_a_flipped_bit_is_noticed_in_every_file),
        cmocka_unit_test(test_damage_is_named_by_its_tensor),
        cmocka_unit_test(test_a_save_over_another_replaces_it),
        cmocka_unit_test(test_a_save_that_cannot_take_the_name_leaves_the_old_one),
        cmocka_unit_test(test_pruning_spares_the_newest_and_the_best),
        cmocka_unit_test(test_what_a_killed_save_left_is_removed),
        cmocka_unit_test(test_a_save_under_a_tag_removes_what_a_killed_one_left),
    };

    return cmocka_run_group_tests_name("checkpoint", tests, scratch_make, scratch_remove);
}
