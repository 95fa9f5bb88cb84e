/*
 * Power is lost at any moment of a save: of what was not synced by then, each write, each new
 * name and each rename is on the disk or is not, by chance. A load finds the checkpoint
 * before, or the new one.
 *
 * The calls of a save are recorded with what they did to files and folders, and a disk is
 * made of them: what a later sync has covered, and of the rest what a coin says. Data of a file
 * and names in a folder are synced apart, as POSIX has it; real file systems keep more.
 * ZT_ROUNDS: losses of power for each kind of save (300; of large files 60); ZT_SEED: which.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>

#include "test/unit/data/files.h"
#include "test/unit/checkpoint/small_save.h"

#define MOST_OPS   4096
#define AT_ONCE    ((size_t)64 << 10) /* what a disk writes of one call, or does not */
#define MOST_NODES 1024
#define MOST_FDS   256

enum op_kind { LINK, UNLINK, RENAME, EXCHANGE, WRITE, CUT, SYNC };

/* LINK, UNLINK: `name` in folder `node` (is `other`). RENAME, EXCHANGE: it becomes `to` in
 * folder `other`. WRITE, CUT, SYNC: of `node`. */
struct op {
    enum op_kind kind;
    int node, other;
    char name[64], to[64];
    size_t at, bytes;
    char *data;
};

static struct {
    bool on;
    char root[PATH_MAX];
    struct op ops[MOST_OPS];
    int num;
    int num_nodes; /* 0: root */
    bool is_dir[MOST_NODES];
    int node_of[MOST_FDS];
    size_t place[MOST_FDS]; /* where the next write goes */
} rec;

/* ---- a tree of names ---- */

struct tree {
    struct entry {
        int dir, node; /* dir -1: free */
        char name[64];
    } entries[MOST_NODES];
    int num;
};

static struct tree live; /* as everything recorded so far has left it */

static struct entry *find(struct tree *t, int dir, const char *name)
{
    for (int i = 0; i < t->num; i++)
        if (t->entries[i].dir == dir && strcmp(t->entries[i].name, name) == 0)
            return &t->entries[i];
    return NULL;
}

static void link_node(struct tree *t, int dir, const char *name, int node)
{
    struct entry *e = find(t, dir, name);

    for (int i = 0; !e && i < t->num; i++)
        if (t->entries[i].dir < 0)
            e = &t->entries[i];
    if (!e) {
        assert_true(t->num < MOST_NODES);
        e = &t->entries[t->num++];
    }
    e->dir = dir;
    e->node = node;
    snprintf(e->name, sizeof(e->name), "%s", name);
}

/* What a call did to names; what is not there any more does nothing. */
static void apply(struct tree *t, const struct op *op)
{
    struct entry *a = find(t, op->node, op->name), *b;
    int node = a ? a->node : -1;

    switch (op->kind) {
    case LINK:
        link_node(t, op->node, op->name, op->other);
        break;
    case UNLINK:
        if (a)
            a->dir = -1;
        break;
    case RENAME:
        if (!a)
            break;
        a->dir = -1;
        link_node(t, op->other, op->to, node);
        break;
    case EXCHANGE:
        b = find(t, op->other, op->to);
        if (a && b) {
            a->node = b->node;
            b->node = node;
        }
        break;
    default:
        break;
    }
}

/* ---- recording ---- */

/* The folder that a path is in, and its last name; -1: not below the root. */
static int parent_of(const char *path, char name[64])
{
    size_t n = strlen(rec.root);
    char rest[PATH_MAX], *part, *next, *save = NULL;
    int dir = 0;

    if (!rec.on || strncmp(path, rec.root, n) != 0 || path[n] != '/')
        return -1;
    snprintf(rest, sizeof(rest), "%s", path + n + 1);
    part = strtok_r(rest, "/", &save);
    while (part && (next = strtok_r(NULL, "/", &save))) {
        const struct entry *e = find(&live, dir, part);

        if (!e)
            return -1;
        dir = e->node;
        part = next;
    }
    snprintf(name, 64, "%s", part ? part : "");
    return dir;
}

static struct op *note(enum op_kind kind, int node)
{
    int at = __atomic_fetch_add(&rec.num, 1, __ATOMIC_SEQ_CST); /* threads write, too */
    struct op *op = &rec.ops[at];

    assert_true(at < MOST_OPS - 1);
    *op = (struct op){.kind = kind, .node = node};
    return op;
}

static int node_at(const char *path)
{
    char name[64];
    int dir = parent_of(path, name);
    const struct entry *e = dir < 0 ? NULL : find(&live, dir, name);

    return e ? e->node : rec.on && strcmp(path, rec.root) == 0 ? 0 : -1;
}

static void note_new(const char *path, bool is_dir)
{
    char name[64];
    int dir = parent_of(path, name);
    struct op *op;

    if (dir < 0 || find(&live, dir, name))
        return;
    op = note(LINK, dir);
    op->other = ++rec.num_nodes;
    assert_true(rec.num_nodes < MOST_NODES);
    rec.is_dir[op->other] = is_dir;
    snprintf(op->name, sizeof(op->name), "%s", name);
    apply(&live, op);
}

static void note_gone(const char *path)
{
    char name[64];
    int dir = parent_of(path, name);
    struct op *op;

    if (dir < 0)
        return;
    op = note(UNLINK, dir);
    snprintf(op->name, sizeof(op->name), "%s", name);
    apply(&live, op);
}

static void note_rename(const char *from, const char *to, enum op_kind kind)
{
    char a[64], b[64];
    int dir = parent_of(from, a), into = parent_of(to, b);
    struct op *op;

    if (dir < 0 || into < 0)
        return;
    op = note(kind, dir);
    op->other = into;
    snprintf(op->name, sizeof(op->name), "%s", a);
    snprintf(op->to, sizeof(op->to), "%s", b);
    apply(&live, op);
}

static void note_data(int fd, size_t at, const char *data, size_t bytes)
{
    if (!rec.on || fd >= MOST_FDS || rec.node_of[fd] <= 0)
        return;
    for (size_t n; bytes > 0; at += n, data += n, bytes -= n) {
        struct op *op = note(WRITE, rec.node_of[fd]);

        n = bytes < AT_ONCE ? bytes : AT_ONCE;
        op->at = at;
        op->bytes = n;
        op->data = malloc(n);
        memcpy(op->data, data, n);
    }
}

/* ---- the calls, in place of the C library's ---- */

int open(const char *path, int flags, ...)
{
    va_list ap;
    int mode, fd;

    va_start(ap, flags);
    mode = flags & O_CREAT ? va_arg(ap, int) : 0;
    va_end(ap);
    fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    if (fd >= 0 && flags & O_CREAT)
        note_new(path, false);
    if (fd >= 0 && fd < MOST_FDS) {
        rec.node_of[fd] = node_at(path);
        rec.place[fd] = 0;
    }
    return fd;
}

int mkdir(const char *path, mode_t mode)
{
    int rc = (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);

    if (!rc)
        note_new(path, true);
    return rc;
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    ssize_t n = syscall(SYS_write, fd, data, bytes);

    if (n > 0 && fd < MOST_FDS) {
        note_data(fd, rec.place[fd], data, (size_t)n);
        rec.place[fd] += (size_t)n;
    }
    return n;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    ssize_t n = syscall(SYS_pwrite64, fd, data, bytes, at);

    if (n > 0)
        note_data(fd, (size_t)at, data, (size_t)n);
    return n;
}

int ftruncate(int fd, off_t bytes)
{
    int rc = (int)syscall(SYS_ftruncate, fd, bytes);

    if (!rc && rec.on && fd < MOST_FDS && rec.node_of[fd] > 0)
        note(CUT, rec.node_of[fd])->bytes = (size_t)bytes;
    return rc;
}

int fsync(int fd)
{
    if (rec.on && fd < MOST_FDS && rec.node_of[fd] >= 0)
        note(SYNC, rec.node_of[fd]);
    return 0; /* this disk is one of ours */
}

int rename(const char *from, const char *to)
{
    int rc = (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);

    if (!rc)
        note_rename(from, to, RENAME);
    return rc;
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    int rc = (int)syscall(SYS_renameat2, a, from, b, to, flags);

    if (!rc)
        note_rename(from, to, flags & RENAME_EXCHANGE ? EXCHANGE : RENAME);
    return rc;
}

int unlink(const char *path)
{
    int rc = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);

    if (!rc)
        note_gone(path);
    return rc;
}

int remove(const char *path)
{
    int rc = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);

    if (rc < 0 && errno == EISDIR)
        rc = (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
    if (!rc)
        note_gone(path);
    return rc;
}

/* ---- a disk after the power was lost ---- */

static bool coin(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 63;
}

/* A sync before operation `end` has made this one last. */
static bool is_synced(const struct op *op, int end)
{
    for (const struct op *s = op + 1; s < rec.ops + end; s++) {
        bool names = op->kind == RENAME || op->kind == EXCHANGE;

        if (s->kind == SYNC && (s->node == op->node || (names && s->node == op->other)))
            return true;
    }
    return false;
}

static void write_node(const struct tree *t, int node, const char *path, const bool *done)
{
    char below[PATH_MAX];

    if (rec.is_dir[node]) {
        assert_int_equal(mkdir(path, 0777), 0);
        for (int i = 0; i < t->num; i++) {
            if (t->entries[i].dir != node)
                continue;
            snprintf(below, sizeof(below), "%s/%s", path, t->entries[i].name);
            write_node(t, t->entries[i].node, below, done);
        }
    } else {
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);

        assert_true(fd >= 0);
        for (int i = 0; i < rec.num; i++) {
            const struct op *op = &rec.ops[i];

            if (op->node != node || !done[i])
                continue;
            if (op->kind == WRITE)
                assert_int_equal(pwrite(fd, op->data, op->bytes, (off_t)op->at),
                                 op->bytes);
            else if (op->kind == CUT)
                assert_int_equal(ftruncate(fd, (off_t)op->bytes), 0);
        }
        close(fd);
    }
}

/* Power is lost before operation `end`; the first `kept` are long on the disk. */
static float lose_power(int kept, int end, uint64_t *seed)
{
    static bool done[MOST_OPS];
    static struct tree t;
    char path[PATH_MAX];
    float found;

    memset(done, 0, sizeof(done));
    t.num = 0;
    for (int i = 0; i < end; i++) {
        done[i] = i < kept || is_synced(&rec.ops[i], end) || coin(seed);
        if (done[i])
            apply(&t, &rec.ops[i]);
    }
    snprintf(path, sizeof(path), "%s", in_scratch("after"));
    write_node(&t, 0, path, done);
    found = load(path);
    assert_int_equal(nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
    return found;
}

/* ---- the trials ---- */

static void begin_recording(const char *root)
{
    for (int i = 0; i < rec.num; i++)
        free(rec.ops[i].data);
    memset(&rec, 0, sizeof(rec));
    memset(&live, 0, sizeof(live));
    memset(rec.node_of, -1, sizeof(rec.node_of));
    snprintf(rec.root, sizeof(rec.root), "%s", root);
    rec.is_dir[0] = true;
    rec.on = true;
}

/* The moments that differ: not in the middle of one file's writes. */
static int list_moments(int kept, int *moments)
{
    int num = 0;

    for (int end = kept; end <= rec.num; end++) {
        bool inside = end > kept && end < rec.num && rec.ops[end - 1].kind == WRITE &&
                      rec.ops[end].kind == WRITE;

        if (!inside || end % 50 == 0)
            moments[num++] = end;
    }
    return num;
}

/* What is found is `old` or 2; both have to come, if all moments are tried. */
static void try_all_moments(int kept, float old)
{
    static int moments[MOST_OPS];
    uint64_t rounds = number_of("ZT_ROUNDS", is_large() ? 60 : 300),
             seed = number_of("ZT_SEED", 1);
    int num_old = 0, num_new = 0, num = list_moments(kept, moments);

    rec.on = false;
    assert_true(num > 20);
    for (uint64_t i = 0; i < rounds; i++) {
        int end = moments[i % (uint64_t)num];
        float found = lose_power(kept, end, &seed);

        if (found != old && found != 2)
            fail_msg("after %d calls there is version %g", end - kept, (double)found);
        num_old += found == old;
        num_new += found == 2;
    }
    assert_true(rounds < (uint64_t)num || (num_old && num_new));
    print_message("# power loss%s: %d moments\n", is_large() ? " of large files" : "",
                  num_old + num_new);
    assert_true(lose_power(kept, rec.num, &seed) == 2); /* what has returned stays */
}

static void test_a_first_save_is_there_or_not(void **state)
{
    const char *root = fresh_root("first");

    (void)state;
    skip_unless_wanted();
    begin_recording(root);
    assert_int_equal(save(root, 2), ZT_OK);
    try_all_moments(0, 0);
}

static void test_a_save_over_another_leaves_one_of_both(void **state)
{
    const char *root = fresh_root("second");
    int kept;

    (void)state;
    skip_unless_wanted();
    begin_recording(root);
    assert_int_equal(save(root, 1), ZT_OK);
    kept = rec.num;
    assert_int_equal(save(root, 2), ZT_OK);
    try_all_moments(kept, 1);
}

/* One that is removed is whole or not there: never a torn one under its name. */
static void test_pruning_leaves_nothing_torn(void **state)
{
    uint64_t seed = number_of("ZT_SEED", 1);
    const char *root = fresh_root("third");
    int kept, removed = 0;

    (void)state;
    skip_unless_wanted();
    begin_recording(root);
    assert_int_equal(save(root, 1), ZT_OK);
    assert_int_equal(mkdir(in_scratch("third/checkpoint-5"), 0777), 0);
    kept = rec.num;
    assert_int_equal(zt_ckpt_prune(root, NULL, 1, 5, -1, &removed, NULL), ZT_OK);
    assert_int_equal(removed, 1);
    rec.on = false;
    for (int turn = 0; turn < 4; turn++)
        for (int end = kept; end <= rec.num; end++) {
            float found = lose_power(kept, end, &seed);

            assert_true(found == 1 || found == 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_first_save_is_there_or_not, make_small),
        cmocka_unit_test_setup(test_a_save_over_another_leaves_one_of_both, make_small),
        cmocka_unit_test_setup(test_pruning_leaves_nothing_torn, make_small),
        cmocka_unit_test_setup(test_a_first_save_is_there_or_not, make_large),
        cmocka_unit_test_setup(test_a_save_over_another_leaves_one_of_both, make_large),
    };

    shared_reads = true;
    return cmocka_run_group_tests_name("power_loss", tests, scratch_make, scratch_remove);
}
