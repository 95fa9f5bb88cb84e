/*
 * best_so_far.c -- the best evaluation of the run that this one goes on from.
 *
 * It counts where it says which weights are the best by this run's own evaluations: of the same
 * metric, the same way up, on the same data; and with --load_best_model_at_end where its
 * checkpoint is there. That is looked for where the manifest says (`folder`: it was in none of
 * that run's own), then beside the checkpoint that is resumed, then in --output_dir.
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/json/line.h"
#include "common/log.h"
#include "common/suggest.h"
#include "worker/checkpoint/checksummed_json.h"
#include "worker/engine/checkpoint/private.h"
#include "worker/engine/data.h"

/* A run that evaluates nothing passes on what it was told. */
static json_t *pass_on(const struct zt_engine *e)
{
    json_t *copy = json_deep_copy(e->best.saved);

    if (copy && e->best.folder[0])
        json_object_set_new(copy, "folder", json_string(e->best.folder));
    return copy;
}

json_t *zt_ckpt_best_json(const struct zt_engine *e)
{
    const struct zt_best *b = &e->best;
    char hash[ZT_HASH_TEXT];
    json_t *o;

    if (!e->run->do_eval && b->saved)
        return pass_on(e);
    if (!b->step && !b->after && !b->seen_step)
        return NULL;
    zt_hash_print(zt_engine_eval_fingerprint(e), hash);
    o = json_pack("{s:o, s:I, s:o, s:I, s:I, s:s, s:b, s:o, s:s}", "metric",
                  zt_json_real(b->metric), "step", (json_int_t)b->step, "seen",
                  zt_json_real(b->seen), "seen_step", (json_int_t)b->seen_step, "since",
                  (json_int_t)b->since, "name", zt_run_best_metric(e->run),
                  "greater_is_better", e->run->greater_is_better, "label_smoothing",
                  zt_json_real(e->run->label_smoothing_factor), "data", hash);
    if (o && b->after)
        json_object_set_new(o, "after", json_integer(b->after));
    if (o && b->folder[0])
        json_object_set_new(o, "folder", json_string(b->folder));
    return o;
}

/* ---- does it count? ---- */

static const char *saved_metric(const json_t *saved)
{
    const char *name = zt_json_get_text(saved, "name", "loss");

    return strncmp(name, "eval_", 5) == 0 ? name + 5 : name;
}

/* Into `why`; false: it does. What an older checkpoint does not say is as it is here. */
static bool is_of_others(const struct zt_engine *e, char *why, size_t cap)
{
    const json_t *saved = e->best.saved;
    const char *name = saved_metric(saved), *mine = zt_run_best_metric(e->run);
    const json_t *greater = json_object_get(saved, "greater_is_better");
    bool is_greater = e->run->greater_is_better;
    double smooth = e->run->label_smoothing_factor;
    double smoothed = zt_json_get_real(saved, "label_smoothing", smooth);
    uint64_t data;

    if (strcmp(name, mine) != 0)
        snprintf(why, cap, "the best of them is known by %s, not by %s", name, mine);
    else if (json_is_boolean(greater) && json_is_true(greater) != is_greater)
        snprintf(why, cap, "the best of them is the one with the %s %s, now it is the %s",
                 is_greater ? "smallest" : "greatest", name,
                 is_greater ? "greatest" : "smallest");
    else if (zt_hash_parse(zt_json_get_text(saved, "data", ""), &data) &&
             data != zt_engine_eval_fingerprint(e))
        snprintf(why, cap, "they were of other evaluation data");
    else if (smoothed != smooth &&
             zt_is_one_of("loss|perplexity|bits_per_byte", mine, false))
        snprintf(why, cap, "--label_smoothing_factor was %g for them, and is %g now",
                 smoothed, smooth);
    else
        return false;
    return true;
}

static void forget(struct zt_best *b, int64_t step)
{
    b->metric = b->seen = 0;
    b->step = b->seen_step = b->since = 0;
    b->after = step;
    b->folder[0] = 0;
}

/* ---- where is its checkpoint? ---- */

void zt_ckpt_best_dir(const struct zt_engine *e, char out[PATH_MAX])
{
    const char *root = e->best.folder[0] ? e->best.folder : e->run->output_dir;
    struct zt_ckpt_place p = {.root = ""};

    zt_ckpt_place_of_step(&p, root, e->best.step);
    zt_ckpt_final_dir(&p, out);
}

/* ROOT of ROOT/checkpoint-N or ROOT/checkpoint-N/TAG; false: `dir` is neither. */
static bool cut_root(const char *dir, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s", dir);
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(out);
        char *name;

        while (n > 1 && out[n - 1] == '/')
            out[--n] = 0;
        name = strrchr(out, '/');
        if (strncmp(name ? name + 1 : out, "checkpoint-", 11) == 0) {
            if (name)
                name[name == out] = 0; /* of "/checkpoint-N" the slash stays */
            else
                snprintf(out, PATH_MAX, ".");
            return true;
        }
        if (!name)
            break;
        *name = 0;
    }
    return false;
}

/* The folder that has the checkpoint `dir`, as it is called or as it really is. */
static bool find_root(const char *dir, char out[PATH_MAX])
{
    char real[PATH_MAX];

    return dir && (cut_root(dir, out) || (realpath(dir, real) && cut_root(real, out)));
}

static bool is_own(const struct zt_engine *e, const char *root)
{
    struct stat a, b;

    return e->run->output_dir && stat(root, &a) == 0 &&
           stat(e->run->output_dir, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* By a name that holds in another working directory. */
static void set_folder(struct zt_engine *e, const char *root)
{
    char real[PATH_MAX];

    e->best.folder[0] = 0;
    if (!is_own(e, root))
        snprintf(e->best.folder, PATH_MAX, "%s", realpath(root, real) ? real : root);
}

/* That of e->best.folder: it is whole, and is of that evaluation. */
static zt_err look(const struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_best *b = &e->best;
    struct zt_ckpt *c = NULL;
    char dir[PATH_MAX];
    const json_t *best;
    double metric;
    zt_err rc;

    zt_ckpt_best_dir(e, dir);
    rc = e->run->save_on_each_node ? zt_ckpt_open_partial(dir, NULL, &c, fault)
                                   : zt_ckpt_open(dir, NULL, &c, fault);
    if (rc)
        return rc;
    best =
        json_object_get(json_object_get(zt_ckpt_manifest(c)->root, "training"), "best");
    metric = zt_json_get_real(best, "metric", b->metric);
    if (zt_json_get_int(best, "step", b->step) != b->step ||
        (metric != b->metric && !(isnan(metric) && isnan(b->metric))))
        rc = zt_fault_set(fault, ZT_E_FORMAT, "%s: is of another run", dir);
    zt_ckpt_close(c);
    return rc;
}

/* The first of the folders that has it; else the first one's reason. */
static zt_err find(struct zt_engine *e, const char *dir, struct zt_fault *fault)
{
    char recorded[PATH_MAX], beside[PATH_MAX];
    const char *roots[3];
    zt_err first = ZT_OK;
    int n = 0;

    snprintf(recorded, sizeof(recorded), "%s",
             zt_json_get_text(e->best.saved, "folder", ""));
    if (recorded[0])
        roots[n++] = recorded;
    if (find_root(dir, beside))
        roots[n++] = beside;
    if (e->run->output_dir)
        roots[n++] = e->run->output_dir;
    for (int i = 0; i < n; i++) {
        struct zt_fault why = {0};
        zt_err rc;

        set_folder(e, roots[i]);
        rc = look(e, &why);
        if (!rc)
            return ZT_OK;
        if (!first)
            *fault = why;
        first = first ? first : rc;
    }
    return first;
}

/* Where it should be, without a look. */
static void assume(struct zt_engine *e, const char *dir)
{
    const char *recorded = zt_json_get_text(e->best.saved, "folder", "");
    char beside[PATH_MAX];

    if (recorded[0])
        set_folder(e, recorded);
    else if (find_root(dir, beside))
        set_folder(e, beside);
}

static zt_err find_together(struct zt_engine *e, const char *dir, struct zt_fault *fault)
{
    struct zt_best *b = &e->best;
    struct zt_ckpt_outcome mine = {0};
    struct zt_fault why = {0};
    zt_err refused = ZT_OK, rc;

    mine.code = find(e, dir, &why);
    rc = zt_ckpt_share_outcome(e, &mine, NULL, &refused, &why);
    if (rc)
        return zt_fault_set(fault, rc, "%s", why.text);
    if (!refused)
        return ZT_OK;
    if (e->run->rank == 0)
        zt_warn(
            "checkpoint",
            "evaluations up to step %lld do not count for --load_best_model_at_end: the "
            "best of them, of step %lld, has no checkpoint to load (%s)",
            (long long)e->first_step, (long long)b->step, why.text);
    forget(b, e->first_step);
    return ZT_OK;
}

zt_err zt_ckpt_best_take_over(struct zt_engine *e, const char *dir,
                              struct zt_fault *fault)
{
    struct zt_best *b = &e->best;
    const json_t *saved = b->saved;
    char why[160];

    if (!saved)
        return ZT_OK;
    if (e->run->do_eval && is_of_others(e, why, sizeof(why))) {
        if (e->run->rank == 0)
            zt_info("checkpoint",
                    "evaluations up to step %lld do not count for which is the best: %s",
                    (long long)e->first_step, why);
        forget(b, e->first_step);
        return ZT_OK;
    }
    b->metric = zt_json_get_real(saved, "metric", 0);
    b->step = !isfinite(b->metric) ? 0 : zt_json_get_int(saved, "step", 0);
    b->seen = zt_json_get_real(saved, "seen", b->metric);
    b->seen_step = zt_json_get_int(saved, "seen_step", b->step);
    b->since = zt_json_get_int(saved, "since", 0);
    b->after = zt_json_get_int(saved, "after", 0);
    if (!b->step)
        return ZT_OK;
    if (e->run->load_best_model_at_end)
        return find_together(e, dir, fault);
    assume(e, dir);
    return ZT_OK;
}
