/* look.c -- zckpt ls, verify and prune. */
#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/human.h"
#include "worker/checkpoint/folder.h"
#include "worker/checkpoint/folder_lock.h"
#include "worker/tools/export.h"
#include "worker/tools/zckpt/zckpt.h"

static void print_shape(const struct zt_checkpoint_tensor *t, char *out, size_t cap)
{
    size_t n = (size_t)snprintf(out, cap, "[");

    for (int i = 0; i < t->ndim && n < cap; i++)
        n += (size_t)snprintf(out + n, cap - n, "%s%lld", i ? ", " : "",
                              (long long)t->shape[i]);
    if (n < cap)
        snprintf(out + n, cap - n, "]");
}

static void print_kinds(const struct zt_checkpoint_source *s,
                        const struct zt_source_tensor *t)
{
    for (int k = 1; k < s->num_kinds; k++)
        if (t->kinds >> k & 1)
            printf(" %s", s->kinds[k]);
}

static void print_head(const struct zt_checkpoint_source *s)
{
    printf("%s: %s\n", s->path, s->form);
    if (s->ours) {
        const struct zt_ckpt_manifest *m = zt_ckpt_manifest(s->ours);
        const json_t *training = json_object_get(m->root, "training");

        printf("tag %s, step %lld, %d shard%s\n", m->tag,
               (long long)json_integer_value(json_object_get(training, "step")),
               m->num_shards, m->num_shards == 1 ? "" : "s");
    }
    if (s->deepspeed) {
        int64_t step = 0;

        printf("tag %s", s->deepspeed->tag);
        if (zt_pickled_int(zt_pickled_get(s->deepspeed->model, "global_steps"), &step))
            printf(", step %lld", (long long)step);
        if (s->deepspeed->world_size)
            printf(", %d rank%s", s->deepspeed->world_size,
                   s->deepspeed->world_size == 1 ? "" : "s");
        printf("\n");
    }
}

zt_err zt_zckpt_ls(const zt_args *args, const char *const *words, int num_words,
                   struct zt_fault *fault)
{
    struct zt_checkpoint_source *s = NULL;
    int64_t elems = 0;
    zt_err rc = zt_source_open(words[0], zt_args_string(args, "tag"), &s, fault);

    (void)num_words;
    if (rc)
        return rc;
    print_head(s);
    for (int i = 0; i < s->num; i++) {
        const struct zt_source_tensor *t = &s->tensors[i];
        char shape[160];

        print_shape(&t->t, shape, sizeof(shape));
        printf("  %-40s %-4s %-16s", t->t.name,
               t->stored && !t->stored->loadable ? t->stored->type
                                                 : zt_dtype_name(t->dtype),
               shape);
        print_kinds(s, t);
        if (t->t.alias_of)
            printf(" = %s", t->t.alias_of);
        else if (!t->t.trained)
            printf(" (%s)", t->buffer                     ? "buffer"
                            : zt_source_unread_type(s, i) ? "not read"
                            : s->folder                   ? "not of floats"
                                                          : "frozen");
        printf("\n");
        elems += t->t.alias_of ? 0 : t->t.numel;
    }
    printf("%d tensors, %lld elements\n", s->num, (long long)elems);
    zt_source_close(s);
    return ZT_OK;
}

/* ---- verify ---- */

static zt_err read_all(struct zt_checkpoint_source *s, int i, int kind, float *piece,
                       struct zt_fault *fault)
{
    const struct zt_source_tensor *t = &s->tensors[i];
    zt_err rc = ZT_OK;

    for (int64_t at = 0; !rc && at < t->t.numel; at += ZT_EXPORT_PIECE) {
        int64_t n = t->t.numel - at < ZT_EXPORT_PIECE ? t->t.numel - at : ZT_EXPORT_PIECE;

        rc = zt_source_read(s, kind, i, at, n, piece, fault);
        for (int64_t k = 0; !rc && k < n; k++)
            if (!isfinite(piece[k]))
                rc = zt_fault_set(
                    fault, ZT_E_NUMERIC, "%s: %s: element %lld of its %s is %g", s->path,
                    t->t.name, (long long)(at + k), s->kinds[kind],
                    isnan(piece[k]) ? (double)NAN : (double)piece[k]); /* nan, not -nan */
    }
    return rc;
}

/* A checkpoint of ours in a folder whose weights are what is read of it. */
static zt_err verify_beside(const char *path, int *tensors, struct zt_fault *fault)
{
    struct zt_ckpt *c = NULL;
    zt_err rc = zt_ckpt_open(path, NULL, &c, fault);

    if (!rc)
        rc = zt_ckpt_verify(c, fault);
    if (!rc)
        *tensors = zt_ckpt_manifest(c)->num_params + zt_ckpt_manifest(c)->num_aliases;
    zt_ckpt_close(c);
    return rc;
}

static zt_err verify(const char *path, const char *tag, float *piece,
                     struct zt_fault *fault)
{
    int beside = 0;
    struct zt_checkpoint_source *s = NULL;
    zt_err rc = zt_source_open(path, tag, &s, fault);

    if (!rc && s->ours)
        rc = zt_ckpt_verify(s->ours, fault);
    for (int i = 0; !rc && i < s->num; i++) {
        const char *unread = zt_source_unread_type(s, i);

        if (unread)
            rc = zt_fault_set(fault, ZT_E_UNSUPPORTED,
                              "%s: %s is stored as %s, which is not read: whether it is "
                              "finite is not known",
                              s->path, s->tensors[i].t.name, unread);
        for (int k = 0; !rc && k < s->num_kinds; k++)
            if (s->tensors[i].kinds >> k & 1 && s->tensors[i].t.readable)
                rc = read_all(s, i, k, piece, fault);
    }
    if (!rc && !s->ours && !tag && zt_ckpt_is_here(path))
        rc = verify_beside(path, &beside, fault);
    if (!rc)
        printf("%s: %s: whole, %d tensors\n", s->path, s->form, s->num);
    if (!rc && beside)
        printf("%s: zlaunch checkpoint: whole, %d tensors\n", path, beside);
    zt_source_close(s);
    return rc;
}

/* All of them, whatever is wrong with the first ones: its error is the first. */
zt_err zt_zckpt_verify(const zt_args *args, const char *const *words, int num_words,
                       struct zt_fault *fault)
{
    float *piece = malloc(ZT_EXPORT_PIECE * sizeof(*piece));
    int failed = 0;
    zt_err first = ZT_OK;

    if (!piece)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", words[0]);
    for (int i = 0; i < num_words; i++) {
        struct zt_fault why = {0};
        zt_err rc = verify(words[i], zt_args_string(args, "tag"), piece, &why);

        if (rc && num_words > 1)
            fprintf(stderr, "zckpt verify: %s\n", why.text);
        if (rc && !failed++) {
            first = rc;
            *fault = why;
        }
    }
    if (failed && num_words > 1)
        zt_fault_set(fault, first, "%d of %d are not whole, or could not be read", failed,
                     num_words);
    free(piece);
    return first;
}

/* ---- prune ---- */

/* The step of the checkpoint that the newest names as the best; -1: none. */
static int64_t best_step(const char *root, int64_t newest)
{
    struct zt_ckpt *c = NULL;
    char path[PATH_MAX];
    int64_t best = -1;

    snprintf(path, sizeof(path), "%s/checkpoint-%lld", root, (long long)newest);
    if (zt_ckpt_open_partial(path, NULL, &c, NULL) == ZT_OK) {
        const json_t *training = json_object_get(zt_ckpt_manifest(c)->root, "training");
        const json_t *step = json_object_get(json_object_get(training, "best"), "step");

        best = json_is_integer(step) ? json_integer_value(step) : -1;
    }
    zt_ckpt_close(c);
    return best;
}

/* What stays has to be worth it: nothing is removed for the sake of one that nobody can load. */
static zt_err verify_newest(const char *root, int64_t newest, struct zt_fault *fault)
{
    struct zt_fault why = {0};
    struct zt_ckpt *c = NULL;
    char path[PATH_MAX];
    zt_err rc;

    snprintf(path, sizeof(path), "%s/checkpoint-%lld", root, (long long)newest);
    rc = zt_ckpt_open(path, NULL, &c, &why);
    if (!rc)
        rc = zt_ckpt_verify(c, &why);
    zt_ckpt_close(c);
    return rc ? zt_fault_set(
                    fault, rc,
                    "nothing is removed, for the newest is not whole, or may not be "
                    "read: "
                    "%s; if it is damaged, remove %s yourself to keep older ones, or say "
                    "--no_verify if other machines have the rest of it",
                    why.text, path)
              : ZT_OK;
}

/* Checkpoints of other programs, which stay, leave the list. ZT_E_NOINPUT: there are no others. */
static zt_err leave_foreign_out(const char *root, int64_t *steps, int *num,
                                struct zt_fault *fault)
{
    const char *they_are = "";
    int kept = 0;

    for (int i = 0; i < *num; i++) {
        const char *what;
        char dir[PATH_MAX];

        snprintf(dir, sizeof(dir), "%s/checkpoint-%lld", root, (long long)steps[i]);
        what = zt_ckpt_is_here(dir) ? "" : zt_ckpt_describe_foreign(dir);
        they_are = *they_are ? they_are : what;
        if (!*what)
            steps[kept++] = steps[i];
    }
    if (!kept && *num)
        return zt_fault_set(fault, ZT_E_NOINPUT,
                            "%s/checkpoint-%lld is none of zlaunch%s; such stay, and "
                            "there are no others",
                            root, (long long)steps[0], they_are);
    *num = kept;
    return ZT_OK;
}

/* A name that is mistyped must not pass for a folder with nothing to remove. */
static zt_err check_root(const char *root, struct zt_fault *fault)
{
    struct stat st;

    if (stat(root, &st))
        return zt_fault_set(fault, ZT_E_NOINPUT, "%s: %s", root,
                            errno == ENOENT ? "no such file or folder" : strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return zt_fault_set(fault, ZT_E_NOINPUT,
                            "%s: that is a file; name the folder of the checkpoints",
                            root);
    if (zt_ckpt_is_here(root))
        return zt_fault_set(fault, ZT_E_USAGE,
                            "%s: that is one checkpoint; name the folder that it is in",
                            root);
    return ZT_OK;
}

static double bytes_in_tree; /* nftw has no other way to say it */

static int add_bytes(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)path;
    (void)at;
    if (type == FTW_F)
        bytes_in_tree += (double)st->st_size;
    return 0;
}

/* What prune would remove, and how much that is. */
static zt_err list_old(const char *root, int64_t keep, int64_t newest, int num_all,
                       struct zt_fault *fault)
{
    int64_t *steps = NULL;
    double all = 0;
    char path[PATH_MAX], bytes[ZT_HUMAN];
    int num = 0;
    zt_err rc = zt_ckpt_list_old(root, NULL, keep, newest, best_step(root, newest),
                                 &steps, &num, fault);

    for (int i = 0; !rc && i < num; i++) {
        snprintf(path, sizeof(path), "%s/checkpoint-%lld", root, (long long)steps[i]);
        bytes_in_tree = 0;
        if (nftw(path, add_bytes, 16, FTW_PHYS))
            rc = zt_fault_set(fault, ZT_E_SYSTEM, "%s: %s", path, strerror(errno));
        else
            printf("would remove %s, %s\n", path, zt_human_bytes(bytes, bytes_in_tree));
        all += bytes_in_tree;
    }
    if (!rc)
        printf("%s: %d of %d checkpoints would be removed, %s\n", root, num, num_all,
               zt_human_bytes(bytes, all));
    free(steps);
    return rc;
}

/* Remove them, or say which. */
static zt_err prune(const char *root, const zt_args *args, int num,
                    struct zt_fault *fault)
{
    int64_t keep = zt_args_int(args, "keep");
    int64_t newest = zt_ckpt_newest(root); /* that of the latest step may be none */
    int removed = 0;
    zt_err rc;

    if (num == 0) {
        printf("%s: has no checkpoints: nothing to remove\n", root);
        return ZT_OK;
    }
    if (zt_args_flag(args, "dry_run"))
        return list_old(root, keep, newest, num, fault);
    rc = zt_folder_lock_check(root, fault); /* a run may go back to what is old */
    if (!rc)
        rc = zt_ckpt_prune(root, NULL, keep, newest, best_step(root, newest), &removed,
                           fault);
    if (!rc)
        printf("%s: %d of %d checkpoints removed\n", root, removed, num);
    return rc;
}

zt_err zt_zckpt_prune(const zt_args *args, const char *const *words, int num_words,
                      struct zt_fault *fault)
{
    int64_t *steps = NULL;
    int num = 0;
    zt_err rc;

    (void)num_words;
    if (!zt_args_given(args, "keep"))
        return zt_fault_set(fault, ZT_E_USAGE, "--keep N: how many of the newest stay?");
    rc = check_root(words[0], fault);
    if (!rc)
        rc = zt_ckpt_list(words[0], &steps, &num, fault);
    if (!rc)
        rc = leave_foreign_out(words[0], steps, &num, fault);
    if (!rc && num > zt_args_int(args, "keep") && !zt_args_flag(args, "no_verify"))
        rc = verify_newest(words[0], steps[0], fault);
    if (!rc)
        rc = prune(words[0], args, num, fault);
    free(steps);
    return rc;
}
