/*
 * A save that ends at any moment leaves the checkpoint before it, or is there whole: the
 * process is killed before and after every system call of each of its threads, every file
 * is refused its bytes from some length on, and every write fails in each way that one can.
 * By default that is every seventh of these moments, of a large save fewer; ZT_MATRIX=full
 * takes all. And nothing is renamed that a loss of power could still take: when the folder
 * gets its name, all files and folders in it are synced. A flipped bit of a large file is
 * refused (ZT_MUTATIONS: how many, ZT_SEED: which; of small files: test_checkpoint).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "test/unit/data/files.h"
#include "test/unit/checkpoint/small_save.h"

/* ---- writes that fail, in place of the C library's ---- */

static const struct way {
    const char *name;
    int error;  /* 0: fewer bytes are written than were given; -1: none, and no error */
    bool stays; /* so do all writes after it */
    bool is_overcome;
} ways[] = {
    {"EINTR", EINTR, false, true},    {"a short write", 0, false, true},
    {"ENOSPC", ENOSPC, true, false},  {"a short write, then ENOSPC", 0, true, false},
    {"EIO, once", EIO, false, false}, {"no byte and no error", -1, true, false},
};
#define NUM_WAYS ((int)(sizeof(ways) / sizeof(ways[0])))

static struct {
    const struct way *way; /* NULL: all is well */
    int at, num;           /* the write that fails first; writes so far */
} disk_fault;

/* An odd number of bytes, which O_DIRECT could not write. */
static ssize_t write_less(int fd, const void *data, size_t bytes, off_t at)
{
    char name[64];
    int plain;
    ssize_t n;

    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    plain = open(name, O_WRONLY | O_CLOEXEC);
    n = syscall(SYS_pwrite64, plain, data, bytes / 2 | 1, at);
    close(plain);
    return n;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    const struct way *way = disk_fault.way;
    int i = __atomic_fetch_add(&disk_fault.num, 1, __ATOMIC_SEQ_CST); /* two threads */

    if (!way || i < disk_fault.at || (i > disk_fault.at && !way->stays))
        return syscall(SYS_pwrite64, fd, data, bytes, at);
    if (!way->error && i == disk_fault.at)
        return write_less(fd, data, bytes, at);
    errno = way->error > 0 ? way->error : ENOSPC;
    return way->error < 0 ? 0 : -1;
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    ssize_t n;

    if (!disk_fault.way)
        return syscall(SYS_write, fd, data, bytes);
    n = pwrite(fd, data, bytes, lseek(fd, 0, SEEK_CUR));
    if (n > 0)
        lseek(fd, n, SEEK_CUR);
    return n;
}

/* ---- what is not on the disk yet ---- */

#define MOST 64

struct disk {
    char dirty[MOST][PATH_MAX]; /* "": free */
    char path[MOST][PATH_MAX];  /* of descriptors */
};

static void set_dirty(struct disk *d, const char *path, bool dirty)
{
    int slot = -1;

    for (int i = 0; i < MOST; i++) {
        if (strcmp(d->dirty[i], path) == 0)
            slot = i;
        else if (slot < 0 && dirty && !d->dirty[i][0])
            slot = i;
    }
    if (dirty)
        assert_true(slot >= 0);
    if (slot >= 0)
        memcpy(d->dirty[slot], dirty ? path : "", dirty ? strlen(path) + 1 : 1);
}

static void parent_is_dirty(struct disk *d, const char *path)
{
    char dir[PATH_MAX];

    snprintf(dir, sizeof(dir), "%s", path);
    *strrchr(dir, '/') = 0;
    set_dirty(d, dir, true);
}

static void read_text(pid_t child, uint64_t at, char *out)
{
    struct iovec here = {out, PATH_MAX - 1};
    struct iovec there = {(void *)(uintptr_t)at, PATH_MAX - 1};
    ssize_t n = process_vm_readv(child, &here, 1, &there, 1, 0);

    for (size_t less = 4096; n < 0 && less > 16; less /= 2) { /* the end of a page */
        here.iov_len = there.iov_len = less / 2;
        n = process_vm_readv(child, &here, 1, &there, 1, 0);
    }
    out[n > 0 ? n : 0] = 0;
}

/* A rename: of a file within the work folder, or of that folder itself. */
static void on_rename(struct disk *d, const char *from, const char *to, int *num_renamed)
{
    if (!strstr(to, "/.checkpoint-4.tmp") && strstr(to, "/checkpoint-4")) {
        for (int i = 0; i < MOST; i++)
            if (strstr(d->dirty[i], "/.checkpoint-4.tmp"))
                fail_msg("renamed while %s is not synced", d->dirty[i]);
        (*num_renamed)++;
        return;
    }
    for (int i = 0; i < MOST; i++)
        if (strcmp(d->dirty[i], from) == 0)
            fail_msg("%s is renamed before it is synced", from);
    parent_is_dirty(d, to);
}

static void watch(struct disk *d, pid_t child, const struct __ptrace_syscall_info *in,
                  int64_t result, int *num_renamed)
{
    const __typeof__(in->entry.args[0]) *a = in->entry.args;
    char from[PATH_MAX], to[PATH_MAX];

    if (result < 0)
        return;
    switch (in->entry.nr) {
    case SYS_openat:
        read_text(child, a[1], from);
        if (result < MOST)
            snprintf(d->path[result], PATH_MAX, "%s", from);
        if (a[2] & O_CREAT)
            parent_is_dirty(d, from);
        break;
    case SYS_write:
    case SYS_pwrite64:
        if (a[0] > 2 && a[0] < MOST)
            set_dirty(d, d->path[a[0]], true);
        break;
    case SYS_fsync:
        if (a[0] < MOST)
            set_dirty(d, d->path[a[0]], false);
        break;
#ifdef SYS_rename
    case SYS_rename:
        read_text(child, a[0], from);
        read_text(child, a[1], to);
        on_rename(d, from, to, num_renamed);
        break;
#endif
    case SYS_renameat2:
        read_text(child, a[1], from);
        read_text(child, a[3], to);
        on_rename(d, from, to, num_renamed);
        break;
    default:
        break;
    }
}

/* ---- the trials ---- */

static pid_t begin_save(const char *root)
{
    pid_t child = fork();

    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        _exit(save(root, 2) != ZT_OK);
    }
    return child;
}

static int wait_for(pid_t child)
{
    int status = 0;

    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

/* The next thread that stops or ends, any of one child. */
static pid_t next_thread(int *status)
{
    pid_t who;

    while ((who = waitpid(-1, status, __WALL)) < 0 && errno == EINTR)
        ;
    return who;
}

enum { MAIN, BEHIND }; /* threads of a save: the caller, and those that write behind it */

#define MOST_THREADS 8

/* The call that each thread is in. */
struct calls {
    pid_t who[MOST_THREADS];
    struct __ptrace_syscall_info in[MOST_THREADS];
    int num;
};

static struct __ptrace_syscall_info *call_of(struct calls *c, pid_t who)
{
    int i = 0;

    while (i < c->num && c->who[i] != who)
        i++;
    if (i == c->num) {
        assert_true(c->num < MOST_THREADS);
        c->who[c->num++] = who;
    }
    return &c->in[i];
}

/* Kill at the n-th stop of a thread, two of which every system call has; false: it was over
 * before. n < 0: watch what is synced. */
static bool kill_at(const char *root, int thread, int n, int *num_renamed)
{
    struct calls calls = {.num = 0};
    struct __ptrace_syscall_info out;
    static struct disk disk;
    pid_t child = begin_save(root), who = child;
    int status = wait_for(child), num = 0;

    memset(&disk, 0, sizeof(disk));
    if (!WIFSTOPPED(status))
        skip(); /* nobody may be traced here */
    ptrace(
        PTRACE_SETOPTIONS, child, NULL,
        (void *)(long)(PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE));
    while (num != n) {
        int which;

        if (WIFSTOPPED(status))
            ptrace(PTRACE_SYSCALL, who, NULL, NULL);
        who = next_thread(&status);
        which = who == child ? MAIN : BEHIND;
        if (!WIFSTOPPED(status) && which == MAIN)
            return false;
        if (!WIFSTOPPED(status))
            continue;
        num += n >= 0 && which == thread;
        if (n >= 0)
            continue;
        memset(&out, 0, sizeof(out));
        ptrace(PTRACE_GET_SYSCALL_INFO, who, (void *)sizeof(out), &out);
        if (out.op == PTRACE_SYSCALL_INFO_ENTRY)
            *call_of(&calls, who) = out;
        else if (out.op == PTRACE_SYSCALL_INFO_EXIT)
            watch(&disk, child, call_of(&calls, who), out.exit.rval, num_renamed);
    }
    kill(child, SIGKILL);
    while (next_thread(&status) != child || WIFSTOPPED(status))
        ;
    return true;
}

static bool all_moments(void)
{
    const char *matrix = getenv("ZT_MATRIX");

    return matrix && strcmp(matrix, "full") == 0;
}

static int stride(int thread)
{
    return all_moments() ? 1 : !is_large() ? 7 : thread == MAIN ? 61 : 11;
}

static int first_moment(int thread)
{
    return (int)(number_of("ZT_SEED", 0) % (uint64_t)stride(thread));
}

static int last_thread(void)
{
    return is_large() ? BEHIND : MAIN;
}

static const char *of_size(void)
{
    return is_large() ? " of large files" : "";
}

/* Both threads that a large save has: it went past the page cache. */
static void assert_all_were_tried(int thread, int n)
{
    assert_true(n > (thread == MAIN ? 100 : 2 * 8));
}

static void test_a_kill_at_any_system_call_tears_nothing(void **state)
{
    const char *root = fresh_root("first");
    char made[PATH_MAX + 16];
    int num = 0;

    (void)state;
    skip_unless_wanted();
    snprintf(made, sizeof(made), "%s/checkpoint-4", root);
    for (int thread = MAIN; thread <= last_thread(); thread++) {
        int n = first_moment(thread);

        for (; kill_at(root, thread, n, NULL); n += stride(thread), num++) {
            float found = load(root);

            assert_true(found == 0 || found == 2);
            if (found == 2) /* the next trial is again one without a checkpoint */
                assert_int_equal(nftw(made, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
        }
        assert_true(load(root) == 2);
        assert_all_were_tried(thread, n);
        assert_int_equal(nftw(made, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
    }
    print_message("# kill%s: %d moments\n", of_size(), num);
}

static void test_a_kill_while_one_is_replaced_leaves_the_old_or_the_new(void **state)
{
    const char *root = fresh_root("second");
    int old = 0, num = 0;

    (void)state;
    skip_unless_wanted();
    assert_int_equal(save(root, 1), ZT_OK);
    for (int thread = MAIN; thread <= last_thread(); thread++) {
        int n = first_moment(thread);

        for (; kill_at(root, thread, n, NULL); n += stride(thread), num++) {
            float found = load(root);

            assert_true(found == 1 || found == 2);
            old += found == 1;
            if (found == 2)
                assert_int_equal(save(root, 1), ZT_OK);
        }
        assert_all_were_tried(thread, n);
        assert_true(load(root) == 2);
        assert_int_equal(save(root, 1), ZT_OK);
    }
    assert_true(old > num / 2);
    print_message("# kill while replacing%s: %d moments\n", of_size(), num);
}

static void test_a_folder_gets_its_name_when_all_of_it_is_synced(void **state)
{
    int num_renamed = 0;

    (void)state;
    skip_unless_wanted();
    assert_false(kill_at(fresh_root("third"), MAIN, -1, &num_renamed));
    assert_int_equal(num_renamed, 1);
}

static void test_a_disk_that_is_full_at_any_length_leaves_the_old_one(void **state)
{
    const char *root = fresh_root("full");
    int refused = 0;

    (void)state;
    skip_unless_wanted();
    assert_int_equal(save(root, 1), ZT_OK);
    for (rlim_t most = 0; most < 4096; most += 32 * (rlim_t)stride(MAIN)) {
        pid_t child = fork();
        int status;

        if (child == 0) {
            signal(SIGXFSZ, SIG_IGN);
            setrlimit(RLIMIT_FSIZE, &(struct rlimit){most, most});
            _exit(save(root, 2) != ZT_OK);
        }
        status = wait_for(child);
        assert_true(WIFEXITED(status));
        assert_true(load(root) == (WEXITSTATUS(status) ? 1 : 2));
        assert_int_equal(count_files(root), 1); /* and nothing beside it */
        refused += WEXITSTATUS(status);
        if (!WEXITSTATUS(status))
            break;
    }
    assert_true(refused > 50 / stride(MAIN));
    print_message("# full disk: %d moments\n", refused);
}

/* False: the save has no such write. */
static bool try_write(const char *root, int at, const struct way *way)
{
    zt_err rc;
    float found;
    bool fails;

    memset(&disk_fault, 0, sizeof(disk_fault));
    disk_fault.at = at;
    disk_fault.way = way;
    rc = save(root, 2);
    disk_fault.way = NULL;
    found = load(root);
    if (!rc != (way->is_overcome || disk_fault.num <= at) || found != (rc ? 1 : 2))
        fail_msg("%s at write %d: the save returns %d and leaves version %g", way->name,
                 at, rc, (double)found);
    assert_int_equal(count_files(root), 1); /* and nothing beside it */
    fails = disk_fault.num > at;
    if (!rc)
        assert_int_equal(save(root, 1), ZT_OK);
    return fails;
}

static void test_a_write_that_fails_leaves_the_old_one(void **state)
{
    const char *root = fresh_root("writes");
    int num = 0;

    (void)state;
    skip_unless_wanted();
    assert_int_equal(save(root, 1), ZT_OK);
    for (const struct way *way = ways; way < ways + NUM_WAYS; way++) {
        int step = all_moments() ? 1 : is_large() ? 5 : 53;
        int at = (int)(number_of("ZT_SEED", 0) % (uint64_t)step);

        for (; try_write(root, at, way); at += step)
            num++;
        assert_true(at > 8);
    }
    print_message("# failing write%s: %d moments\n", of_size(), num);
}

static void test_a_flipped_bit_is_refused(void **state)
{
    const char *root = fresh_root("flipped");
    uint64_t num = number_of("ZT_MUTATIONS", 10), seed = number_of("ZT_SEED", 1);
    char path[PATH_MAX + 64];
    struct stat st;
    int fd;

    (void)state;
    skip_unless_wanted();
    assert_int_equal(save(root, 1), ZT_OK);
    snprintf(path, sizeof(path),
             "%s/checkpoint-4/global_step4/zero_rank_00000.safetensors", root);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(fstat(fd, &st), 0);
    for (uint64_t i = 0; i < num; i++) {
        struct zt_fault fault = {0};
        unsigned char byte, bad;
        float found;
        off_t at;

        seed = seed * 6364136223846793005u + 1442695040888963407u;
        at = (off_t)((seed >> 16) % (uint64_t)st.st_size);
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        bad = (unsigned char)(byte ^ 1u << (seed >> 61));
        assert_int_equal(pwrite(fd, &bad, 1, at), 1);
        if (try_load(root, &found, &fault) != ZT_E_FORMAT)
            fail_msg("a flipped bit at %lld: %s", (long long)at, fault.text);
        assert_non_null(strstr(fault.text, "zero_rank_00000"));
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
    assert_true(load(root) == 1);
    print_message("# flipped bit%s: %d moments\n", of_size(), (int)num);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_kill_at_any_system_call_tears_nothing, make_small),
        cmocka_unit_test_setup(
            test_a_kill_while_one_is_replaced_leaves_the_old_or_the_new, make_small),
        cmocka_unit_test_setup(test_a_folder_gets_its_name_when_all_of_it_is_synced,
                               make_small),
        cmocka_unit_test_setup(test_a_disk_that_is_full_at_any_length_leaves_the_old_one,
                               make_small),
        cmocka_unit_test_setup(test_a_write_that_fails_leaves_the_old_one, make_small),
        cmocka_unit_test_setup(test_a_kill_at_any_system_call_tears_nothing, make_large),
        cmocka_unit_test_setup(
            test_a_kill_while_one_is_replaced_leaves_the_old_or_the_new, make_large),
        cmocka_unit_test_setup(test_a_folder_gets_its_name_when_all_of_it_is_synced,
                               make_large),
        cmocka_unit_test_setup(test_a_write_that_fails_leaves_the_old_one, make_large),
        cmocka_unit_test_setup(test_a_flipped_bit_is_refused, make_large),
    };

    return cmocka_run_group_tests_name("crash", tests, scratch_make, scratch_remove);
}
