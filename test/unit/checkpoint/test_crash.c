/*
 * A save that ends at any moment leaves the checkpoint before it, or is there whole: the
 * process is killed before and after every system call of it, and every file is refused
 * its bytes from some length on. By default that is every seventh of these moments;
 * ZT_MATRIX=full takes all. And nothing is renamed that a loss of power could still
 * take: when the folder gets its name, all files and folders in it are synced.
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

/* Kill at the n-th stop, two of which every system call has; false: it was over before.
 * n < 0: watch what is synced. */
static bool kill_at(const char *root, int n, int *num_renamed)
{
    struct __ptrace_syscall_info in = {0}, out;
    static struct disk disk;
    struct disk *d = &disk;
    pid_t child = begin_save(root);
    int status = wait_for(child);

    memset(d, 0, sizeof(*d));
    if (!WIFSTOPPED(status))
        skip(); /* nobody may be traced here */
    ptrace(PTRACE_SETOPTIONS, child, NULL,
           (void *)(long)(PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD));
    for (int i = 0; i != n; i++) {
        ptrace(PTRACE_SYSCALL, child, NULL, NULL);
        status = wait_for(child);
        if (!WIFSTOPPED(status))
            break;
        if (n >= 0)
            continue;
        memset(&out, 0, sizeof(out));
        ptrace(PTRACE_GET_SYSCALL_INFO, child, (void *)sizeof(out), &out);
        if (out.op == PTRACE_SYSCALL_INFO_ENTRY)
            in = out;
        else if (out.op == PTRACE_SYSCALL_INFO_EXIT)
            watch(d, child, &in, out.exit.rval, num_renamed);
    }
    if (!WIFSTOPPED(status))
        return false;
    kill(child, SIGKILL);
    wait_for(child);
    return true;
}

static int stride(void)
{
    const char *matrix = getenv("ZT_MATRIX");

    return matrix && strcmp(matrix, "full") == 0 ? 1 : 7;
}

static void test_a_kill_at_any_system_call_tears_nothing(void **state)
{
    const char *root = fresh_root("first");
    float found = 0;
    int n = 0, num = 0;

    (void)state;
    for (; kill_at(root, n, NULL); n += stride(), num++) {
        found = load(root);
        assert_true(found == 0 || found == 2);
        if (found == 2) /* the next trial is again one without a checkpoint */
            assert_int_equal(nftw(in_scratch("first/checkpoint-4"), remove_one, 8,
                                  FTW_DEPTH | FTW_PHYS),
                             0);
    }
    assert_true(load(root) == 2);
    assert_true(n > 100);
    print_message("# kill: %d moments\n", num);
}

static void test_a_kill_while_one_is_replaced_leaves_the_old_or_the_new(void **state)
{
    const char *root = fresh_root("second");
    int old = 0, n = 0, num = 0;

    (void)state;
    assert_int_equal(save(root, 1), ZT_OK);
    while (kill_at(root, n, NULL)) {
        float found = load(root);

        assert_true(found == 1 || found == 2);
        old += found == 1;
        if (found == 2)
            assert_int_equal(save(root, 1), ZT_OK);
        n += stride();
        num++;
    }
    assert_true(old > 50 / stride() && n > 100);
    print_message("# kill while replacing: %d moments\n", num);
}

static void test_a_folder_gets_its_name_when_all_of_it_is_synced(void **state)
{
    int num_renamed = 0;

    (void)state;
    assert_false(kill_at(fresh_root("third"), -1, &num_renamed));
    assert_int_equal(num_renamed, 1);
}

static void test_a_disk_that_is_full_at_any_length_leaves_the_old_one(void **state)
{
    const char *root = fresh_root("full");
    int refused = 0;

    (void)state;
    assert_int_equal(save(root, 1), ZT_OK);
    for (rlim_t most = 0; most < 4096; most += 32 * (rlim_t)stride()) {
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
    assert_true(refused > 50 / stride());
    print_message("# full disk: %d moments\n", refused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_kill_at_any_system_call_tears_nothing),
        cmocka_unit_test(test_a_kill_while_one_is_replaced_leaves_the_old_or_the_new),
        cmocka_unit_test(test_a_folder_gets_its_name_when_all_of_it_is_synced),
        cmocka_unit_test(test_a_disk_that_is_full_at_any_length_leaves_the_old_one),
    };

    return cmocka_run_group_tests_name("crash", tests, scratch_make, scratch_remove);
}
