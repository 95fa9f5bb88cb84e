/*
 * resume.c -- which checkpoint training goes on from.
 *
 * Rank 0 looks into the folder and tells the others, so that all try the same ones in the
 * same order; whether one is good is known when every rank has read and verified what it
 * needs of it.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/files/folders.h"
#include "common/files/models.h"
#include "common/json/line.h"
#include "common/log.h"
#include "common/message/event.h"
#include "common/trace/trace.h"
#include "worker/checkpoint/checksummed_json.h"
#include "worker/config/canonical_text.h"
#include "worker/engine/checkpoint/private.h"
#include "worker/engine/checkpoint/replicas.h"

#define MOST_TRIED 16 /* of a folder, newest first */
#define MOST_NAMED 12 /* differences */

/* What rank 0 found; the same on all ranks. */
struct candidates {
    char root[PATH_MAX]; /* of checkpoint-STEP; or the one folder */
    int64_t num;         /* steps to try; -1: the folder itself */
    int64_t step[MOST_TRIED];
    int64_t code; /* zt_err: there is nothing, and there has to be */
};

/* ---- finding, on rank 0 ---- */

static bool is_checkpoint(const char *fmt, const char *a, const char *b,
                          struct candidates *c)
{
    char tag[ZT_CKPT_TAG];

    snprintf(c->root, sizeof(c->root), fmt, a, b);
    c->num = -1;
    return zt_ckpt_is_here(c->root) || zt_ckpt_is_incomplete(c->root) ||
           zt_ckpt_find_tag(c->root, tag); /* what they lack is told when they are read */
}

static void dir_of(const struct candidates *c, int64_t i, char dir[PATH_MAX])
{
    struct zt_ckpt_place p = {.root = ""};

    zt_ckpt_place_of_step(&p, c->root, c->step[i]);
    zt_ckpt_final_dir(&p, dir);
}

/* One that this job has saved, before it was restarted. */
static bool is_of_job(const char *dir, int64_t step, const char *job)
{
    char path[PATH_MAX + 64];
    json_t *root = NULL;
    uint64_t hash;
    bool is;

    snprintf(path, sizeof(path), "%s/global_step%lld/manifest.json", dir,
             (long long)step);
    if (zt_sealed_json_load(path, &root, &hash, NULL))
        return false;
    is = strcmp(zt_json_get_text(root, "job", ""), job) == 0;
    json_decref(root);
    return is;
}

/* Those of this job; NULL: of all. */
static zt_err list_folder(const char *root, const char *job, struct candidates *c,
                          struct zt_fault *fault)
{
    int64_t *steps = NULL;
    int num = 0;
    zt_err rc = zt_ckpt_list(root, &steps, &num, fault);

    snprintf(c->root, sizeof(c->root), "%s", root);
    c->num = 0;
    for (int64_t i = 0; !rc && i < num && c->num < MOST_TRIED; i++) {
        char dir[PATH_MAX];

        c->step[c->num] = steps[i];
        dir_of(c, c->num, dir);
        c->num += zt_is_filled_folder(dir) /* not of a save killed early */
                  && (!job || is_of_job(dir, steps[i], job));
    }
    free(steps);
    return rc;
}

static bool is_restarted(const struct zt_run *run)
{
    return run->attempt > 0 && strcmp(run->save_strategy, "no") != 0;
}

static bool is_on_disk(const struct zt_run *run)
{
    return run->resume_from_checkpoint || is_restarted(run);
}

bool zt_checkpoint_is_wanted(const struct zt_run *run)
{
    return is_on_disk(run) || (run->attempt > 0 && run->checkpoint_in_memory > 0);
}

/* What the newest is, where all are known to be none of ours; else "". */
static const char *what_they_are(const struct candidates *c)
{
    const char *what = "";
    char dir[PATH_MAX];

    for (int64_t i = c->num - 1; i >= 0; i--) {
        dir_of(c, i, dir);
        what = zt_ckpt_is_here(dir) ? "" : zt_ckpt_describe_foreign(dir);
        if (!*what)
            break;
    }
    return what;
}

static bool is_file(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

/* A name that is there, and may not be looked into. */
static bool is_forbidden(const char *fmt, const char *a, const char *b)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), fmt, a, b);
    return !is_file(path) && access(path, R_OK | X_OK) != 0 && errno == EACCES;
}

/* Of a step, as it is told: "500", or the tag in its checkpoint, "global_step500". "": of none;
 * a folder that is not there may end in a number, too. */
static const char *digits_of_step(const char *what)
{
    static const char tag[] = "global_step", digits[] = "0123456789";
    const char *step = what + (strncmp(what, tag, strlen(tag)) ? 0 : strlen(tag));

    return step[strspn(step, digits)] ? "" : step;
}

/* What a folder of that name is, or one in --output_dir; "": nothing that is known. */
static const char *describe_named(const struct zt_run *run, const char *what)
{
    const char *they_are = zt_ckpt_describe_foreign(what);
    const char *digits = digits_of_step(what);
    char path[PATH_MAX];

    if (*they_are || !run->output_dir || strchr(what, '/'))
        return they_are;
    snprintf(path, sizeof(path), "%s/%s", run->output_dir, what);
    they_are = zt_ckpt_describe_foreign(path);
    if (*they_are || !*digits)
        return they_are;
    snprintf(path, sizeof(path), "%s/checkpoint-%s", run->output_dir, digits);
    return zt_ckpt_describe_foreign(path);
}

/* Checkpoints of a folder that are all none of ours. */
static zt_err refuse_foreign(const char *what, const struct candidates *c,
                             struct zt_fault *fault)
{
    const char *they_are = what_they_are(c);

    return *they_are ? zt_fault_set(fault, ZT_E_NOINPUT,
                                    "--resume_from_checkpoint %s: %s/checkpoint-%lld is "
                                    "none of zlaunch%s",
                                    what, c->root, (long long)c->step[0], they_are)
                     : ZT_OK;
}

/* A folder, a folder of checkpoints, or a name in --output_dir. */
static zt_err find_named(const struct zt_run *run, const char *what, struct candidates *c,
                         struct zt_fault *fault)
{
    const char *digits = digits_of_step(what), *they_are;
    zt_err rc;

    if (is_checkpoint("%s%s", what, "", c))
        return ZT_OK;
    if (run->output_dir && !strchr(what, '/') &&
        (is_checkpoint("%s/%s", run->output_dir, what, c) ||
         is_checkpoint("%s/checkpoint-%s", run->output_dir, digits, c)))
        return ZT_OK;
    if (is_forbidden("%s%s", what, "") ||
        (run->output_dir && !strchr(what, '/') &&
         (is_forbidden("%s/%s", run->output_dir, what) ||
          is_forbidden("%s/checkpoint-%s", run->output_dir, digits))))
        return zt_fault_set(fault, ZT_E_NOINPUT, "--resume_from_checkpoint %s: %s", what,
                            strerror(EACCES));
    if (is_file(what))
        return zt_fault_set(
            fault, ZT_E_NOINPUT,
            "--resume_from_checkpoint %s: that is a file; a checkpoint is a "
            "folder, and weights alone begin by --model_name_or_path",
            what);
    rc = list_folder(what, NULL, c, fault);
    if (rc || c->num > 0)
        return rc ? rc : refuse_foreign(what, c, fault);
    they_are = describe_named(run, what);
    if (*they_are)
        return zt_fault_set(fault, ZT_E_NOINPUT,
                            "--resume_from_checkpoint %s: that is none of zlaunch%s",
                            what, they_are);
    if (run->output_dir && list_folder(run->output_dir, NULL, c, NULL) == ZT_OK &&
        c->num > 0 && !*what_they_are(c))
        return zt_fault_set(fault, ZT_E_NOINPUT,
                            "--resume_from_checkpoint %s: there is no checkpoint of that "
                            "name; the newest in %s is checkpoint-%lld",
                            what, run->output_dir, (long long)c->step[0]);
    return zt_fault_set(fault, ZT_E_NOINPUT,
                        "--resume_from_checkpoint %s: there is no checkpoint of that "
                        "name, nor one in that folder",
                        what);
}

static zt_err find(const struct zt_run *run, const char *what, struct candidates *c,
                   struct zt_fault *fault)
{
    bool any = !what || strcmp(what, "auto") == 0;
    bool must = what && strcasecmp(what, "true") == 0;
    char name[PATH_MAX];
    zt_err rc;

    if (is_restarted(run)) {
        rc = list_folder(run->output_dir, run->job, c, fault);
        if (rc || c->num || !what)
            return rc;
    }
    if (!any && !must) {
        snprintf(name, sizeof(name), "%s", what); /* without the slashes at its end */
        for (size_t n = strlen(name); n > 1 && name[n - 1] == '/'; n--)
            name[n - 1] = 0;
        return find_named(run, name, c, fault);
    }
    rc = list_folder(run->output_dir, NULL, c, fault);
    if (!rc && must && !c->num)
        rc = zt_fault_set(fault, ZT_E_NOINPUT,
                          "--resume_from_checkpoint: there is no checkpoint in %s",
                          run->output_dir);
    return rc ? rc : refuse_foreign(what, c, fault);
}

static zt_err agree_on_candidates(struct zt_engine *e, const char *what,
                                  struct candidates *c, struct zt_fault *fault)
{
    struct zt_ckpt_outcome mine = {0};
    zt_err refused, rc;

    if (e->run->rank == 0)
        mine.code = find(e->run, what, c, fault);
    rc = zt_ckpt_share_outcome(e, &mine, NULL, &refused, fault);
    if (!rc && !refused)
        rc = zt_broadcast(e->comm, c, sizeof(*c), ZT_U8, 0, fault);
    return rc ? rc : refused;
}

/* ---- what differs ---- */

/* The line of `text` with this key; NULL: there is none. */
static const char *find_line(const char *text, const char *key, size_t n)
{
    for (const char *line = text; *line; line++) {
        if (strncmp(line, key, n) == 0)
            return line;
        line = strchr(line, '\n');
        if (!line)
            break;
    }
    return NULL;
}

/* Where a run saves, and from where it goes on, changes nothing of its numbers. */
static bool matters(const char *line)
{
    return strncmp(line, "zlaunch.save_", 13) != 0 &&
           strncmp(line, "zlaunch.resume_", 15) != 0;
}

/* One of them; what nobody has written in this run says where it comes from. */
static void tell_difference(const struct zt_run *run, const char *mine, const char *was)
{
    const char *rule = zt_run_config_rule(run, mine);

    zt_info("checkpoint", "it is resumed with another value: %.*s%s%s%s, was %.*s",
            (int)strcspn(mine, "\n"), mine, rule ? " (" : "", rule ? rule : "",
            rule ? ")" : "", (int)strcspn(was, "\n"), was);
}

/* Is it the same list, in whichever way it was written: "a b" and "a,b"? Both end with their
 * lines. */
static bool is_same_value(const char *a, const char *b)
{
    static const char between[] = " ,[]\"";

    do {
        size_t n = strcspn(a += strspn(a, between), " ,[]\"\n");
        size_t k = strcspn(b += strspn(b, between), " ,[]\"\n");

        if (n != k || strncmp(a, b, n) != 0)
            return false;
        a += n;
        b += n;
    } while (*a && *a != '\n');
    b += strspn(b, between);
    return !*b || *b == '\n';
}

/* Rank 0: "optimizer.params.lr: 0.1, was 0.2". */
static void tell_differences(const struct zt_run *run, const char *was)
{
    char *now = NULL;
    int num = 0;

    if (!was || zt_run_config_text(run, &now, NULL))
        return;
    for (const char *line = was; *line; line++) {
        const char *end = line + strcspn(line, "\n"), *colon = strstr(line, ": "), *mine;

        if (!colon || colon > end || !matters(line))
            mine = line;
        else
            mine = find_line(now, line, (size_t)(colon + 2 - line));
        if (mine && mine != line && !is_same_value(mine, line) && num++ < MOST_NAMED)
            tell_difference(run, mine, colon + 2);
        if (!*end)
            break;
        line = end;
    }
    if (num > MOST_NAMED)
        zt_info("checkpoint", "... and with %d more", num - MOST_NAMED);
    free(now);
}

static const char *behind_line(const char *line)
{
    line += strcspn(line, "\n");
    return *line ? line + 1 : line;
}

/* A checkpoint of another plugin. */
static bool name_plugin(const struct zt_engine *e, const json_t *root, const char *dir,
                        struct zt_fault *fault)
{
    const json_t *of = json_object_get(root, "fingerprints");
    const char *plugin = zt_json_get_text(of, "plugin", e->plugin->name);

    if (!fault || strcmp(plugin, e->plugin->name) == 0)
        return false;
    zt_fault_set(fault, fault->code, "%s: the checkpoint is of the plugin %s, not of %s",
                 dir, plugin, e->plugin->name);
    return true;
}

/* "n_layer 2, this one 3; ...": options of `prefix` in which the checkpoint's run, `was`,
 * and this one, `now`, differ. From a share, as of dropout, no size follows. False: there is
 * none. */
static bool list_differences(const struct zt_run *run, const char *was, const char *now,
                             const char *prefix, char *text, size_t cap)
{
    const char *name = strrchr(prefix, '.') + 1;
    size_t skip = (size_t)(name - prefix), n = 0;

    for (const char *line = was; *line; line = behind_line(line)) {
        const char *colon = strstr(line, ": "), *mine;
        size_t len = strcspn(line, "\n"), head = colon ? (size_t)(colon + 2 - line) : 0;

        if (strncmp(line, prefix, strlen(prefix)) != 0 || !head || head > len ||
            zt_run_is_share(run, line))
            continue;
        mine = find_line(now, line, head);
        if (!mine || (strcspn(mine, "\n") == len && strncmp(mine, line, len) == 0) ||
            n >= cap)
            continue;
        n += (size_t)snprintf(text + n, cap - n, "%s%.*s %.*s, this one %.*s",
                              n ? "; " : "", (int)(head - 2 - skip), line + skip,
                              (int)(len - head), line + head,
                              (int)(strcspn(mine, "\n") - head), mine + head);
    }
    return n > 0;
}

/* A model that the checkpoint is not of, by the options in which they differ, if any do:
 * its own, or those that give it its vocabulary. */
static void name_model(const struct zt_run *run, const char *was, const char *dir,
                       struct zt_fault *fault)
{
    static const struct {
        const char *prefix, *of;
    } rows[] = {{"zlaunch.model.", "model"},
                {"zlaunch.train_tokenizer", "run"},
                {"zlaunch.tokenizer_name", "run"}};
    char text[512], *now = NULL;

    if (!was || !fault || zt_run_config_text(run, &now, NULL))
        return;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (!list_differences(run, was, now, rows[i].prefix, text, sizeof(text)))
            continue;
        zt_fault_set(fault, fault->code, "%s: the checkpoint's %s has %s", dir,
                     rows[i].of, text);
        break;
    }
    free(now);
}

/* ---- trying ---- */

static zt_err open_one(const struct zt_run *run, const char *dir, struct zt_ckpt **c,
                       struct zt_fault *fault)
{
    return run->save_on_each_node ? zt_ckpt_open_partial(dir, NULL, c, fault)
                                  : zt_ckpt_open(dir, NULL, c, fault);
}

/* What differs, where that is known. */
static void name_other_model(const struct zt_engine *e, const json_t *root,
                             const char *dir, struct zt_fault *fault)
{
    if (!name_plugin(e, root, dir, fault))
        name_model(e->run, zt_json_get_text(root, "config", NULL), dir, fault);
}

/* Without its data. */
static zt_err look_at(struct zt_engine *e, const char *dir, struct zt_fault *fault)
{
    struct zt_ckpt *c = NULL;
    const json_t *root;
    zt_err rc = open_one(e->run, dir, &c, fault);

    if (rc)
        return rc;
    root = zt_ckpt_manifest(c)->root;
    rc = zt_ckpt_match_model(e, c, fault);
    if (rc == ZT_E_CONFIG)
        name_other_model(e, root, dir, fault);
    if (!rc)
        rc = zt_ckpt_check_same_model(e, dir, zt_ckpt_dir(c), root, fault);
    zt_ckpt_close(c);
    return rc;
}

static zt_err load(struct zt_engine *e, const char *dir, zt_client_state **client,
                   struct zt_fault *fault)
{
    struct zt_ckpt *c = NULL;
    const json_t *root;
    zt_err rc = open_one(e->run, dir, &c, fault);

    if (rc)
        return rc;
    root = zt_ckpt_manifest(c)->root;
    rc = zt_ckpt_load_state(e, c, ZT_CKPT_GO_ON, fault);
    if (rc == ZT_E_CONFIG)
        name_other_model(e, root, dir, fault);
    if (!rc && e->run->rank == 0)
        rc = zt_ckpt_check_same_model(e, dir, zt_ckpt_dir(c), root, fault);
    if (!rc)
        rc = zt_ckpt_training_restore(e, json_object_get(root, "training"), fault);
    if (!rc && e->run->rank == 0 && e->plugin->load_state)
        rc = zt_client_state_read(zt_ckpt_dir(c), client, fault);
    if (rc && fault && strncmp(fault->text, dir, strlen(dir)) != 0)
        (void)zt_fault_context(fault, rc, "%s", dir);
    else if (!rc && e->run->rank == 0)
        tell_differences(e->run, zt_json_get_text(root, "config", NULL));
    zt_ckpt_close(c);
    return rc;
}

/* All ranks have read theirs: the plugin gets its own. */
static zt_err give_client_state(struct zt_engine *e, const zt_client_state *client,
                                zt_err *refused, struct zt_fault *fault)
{
    struct zt_ckpt_outcome mine = {0};
    zt_err hook = ZT_OK, rc;

    if (!e->plugin->load_state)
        return ZT_OK;
    rc = zt_client_state_give(e, client, &hook, fault);
    mine.code = hook;
    return rc ? rc : zt_ckpt_share_outcome(e, &mine, NULL, refused, fault);
}

/* Rank 0 looks whether this is where the run itself would save the step. */
static zt_err find_out_if_own(struct zt_engine *e, const char *dir,
                              struct zt_fault *fault)
{
    struct zt_ckpt_place p = {.root = ""};
    struct stat a, b;
    char own[PATH_MAX];
    uint8_t is_own = 0;
    zt_err rc;

    if (e->run->rank == 0 && e->run->output_dir) {
        zt_ckpt_place_of_step(&p, e->run->output_dir, e->first_step);
        zt_ckpt_final_dir(&p, own);
        is_own = stat(dir, &a) == 0 && stat(own, &b) == 0 && a.st_dev == b.st_dev &&
                 a.st_ino == b.st_ino;
    }
    rc = zt_broadcast(e->comm, &is_own, 1, ZT_U8, 0, fault);
    if (!rc && is_own)
        e->saved_step = e->first_step;
    return rc;
}

/* A folder of a name that this run gives to a checkpoint, and none of zlaunch; or a file. */
static zt_err check_names_to_come(const struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    int64_t *steps = NULL;
    int num = 0;
    zt_err rc;

    if (!run->do_train || run->overwrite_output_dir ||
        !strcmp(run->save_strategy, "no") || !run->output_dir)
        return ZT_OK;
    rc = zt_ckpt_list(run->output_dir, &steps, &num, fault);
    for (int i = 0; !rc && i < num; i++) {
        struct zt_ckpt_place p = {.root = ""};
        char dir[PATH_MAX];

        zt_ckpt_place_of_step(&p, run->output_dir, steps[i]);
        zt_ckpt_final_dir(&p, dir);
        if (steps[i] > e->first_step && steps[i] <= e->total_steps &&
            zt_ckpt_is_foreign(dir))
            rc = zt_fault_set(fault, ZT_E_CANTCREATE,
                              "--output_dir: %s is none of zlaunch, and a checkpoint of "
                              "step %lld would replace it: move it away, or save in "
                              "another folder",
                              dir, (long long)steps[i]);
    }
    free(steps);
    return rc;
}

/* Collective. What --output_dir has is replaced by a training that goes on in it, and by one
 * from elsewhere only if a checkpoint there is of the same training. */
static zt_err check_output_dir(struct zt_engine *e, const char *from,
                               struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    struct zt_ckpt_outcome mine = {0};
    zt_err refused, rc;

    if (run->rank == 0 && run->output_dir && !zt_is_within(from, run->output_dir) &&
        !zt_ckpt_has_of_training(run->output_dir, e->training_id))
        mine.code = zt_run_check_replaced(run, fault);
    if (run->rank == 0 && !mine.code)
        mine.code = check_names_to_come(e, fault);
    rc = zt_ckpt_share_outcome(e, &mine, NULL, &refused, fault);
    return rc ? rc : refused;
}

zt_err zt_checkpoint_check_names(struct zt_engine *e, struct zt_fault *fault)
{
    struct zt_ckpt_outcome mine = {0};
    zt_err refused, rc;

    if (e->run->rank == 0)
        mine.code = check_names_to_come(e, fault);
    rc = zt_ckpt_share_outcome(e, &mine, NULL, &refused, fault);
    return rc ? rc : refused;
}

static zt_err try_one(struct zt_engine *e, const char *dir, zt_err *refused,
                      struct zt_fault *fault)
{
    zt_client_state *client = NULL;
    struct zt_ckpt_outcome mine = {0};
    zt_err rc;

    zt_trace_begin("checkpoint", "read");
    mine.code = load(e, dir, &client, fault);
    rc = zt_ckpt_share_outcome(e, &mine, NULL, refused, fault);
    zt_trace_end();
    if (!rc && !*refused)
        rc = give_client_state(e, client, refused, fault);
    zt_client_state_free(client);
    if (rc || *refused)
        return rc;
    rc = zt_zero_publish(e->zero, fault);
    if (!rc)
        rc = find_out_if_own(e, dir, fault);
    if (!rc)
        rc = zt_ckpt_best_take_over(e, dir, fault);
    if (!rc && e->run->rank == 0)
        zt_event_checkpoint("resumed", dir, e->first_step);
    return rc;
}

/* Of a damaged one the next older may be whole; another model is another model. */
static bool may_pass_over(zt_err refused)
{
    return refused == ZT_E_FORMAT || refused == ZT_E_NOINPUT || refused == ZT_E_SYSTEM;
}

/* Its name once: the reason begins with it. */
static void tell_passed_over(const char *dir, const struct zt_fault *why)
{
    const char *text = why ? why->text : "it is damaged";
    size_t n = strlen(dir);

    if (strncmp(text, dir, n) == 0 && text[n] == '/')
        text += n + 1;
    else if (strncmp(text, dir, n) == 0 && strncmp(text + n, ": ", 2) == 0)
        text += n + 2;
    zt_warn("checkpoint", "%s is passed over: %s", dir, text);
}

static zt_err refuse_all(const struct candidates *c, zt_err refused,
                         struct zt_fault *fault)
{
    if (refused == ZT_E_SYSTEM)
        return zt_fault_context(fault, refused, "none of the checkpoints can be read");
    return zt_fault_set(fault, refused,
                        "%s: none of its checkpoints is whole, for what is said above; "
                        "--overwrite_output_dir instead of --resume_from_checkpoint "
                        "begins anew",
                        c->root);
}

static zt_err try_all(struct zt_engine *e, const struct candidates *c, bool *resumed,
                      struct zt_fault *fault)
{
    zt_err refused = ZT_OK, rc = ZT_OK;

    for (int64_t i = 0; !rc && !*resumed && i < c->num; i++) {
        char dir[PATH_MAX];

        dir_of(c, i, dir);
        rc = try_one(e, dir, &refused, fault);
        *resumed = !rc && !refused;
        if (!rc && refused && !may_pass_over(refused))
            return refused;
        if (!rc && refused && e->run->rank == 0)
            tell_passed_over(dir, fault);
    }
    if (rc || *resumed || !c->num)
        return rc;
    return refuse_all(c, refused, fault);
}

/* Of an older one on purpose: what was saved after it stays, and must not be taken for
 * this run's own. */
static void warn_of_newer(const struct zt_run *run, int64_t step)
{
    const char *what = run->resume_from_checkpoint;
    int64_t newest;

    if (run->rank || run->attempt || !run->output_dir || !run->do_train || !what ||
        strcmp(what, "auto") == 0 || strcasecmp(what, "true") == 0)
        return;
    newest = zt_ckpt_newest(run->output_dir);
    if (newest > step)
        zt_warn(
            "checkpoint",
            "%s has checkpoint-%lld of an earlier run, and this one goes on from step "
            "%lld: --resume_from_checkpoint auto takes the one of the latest step, "
            "whosever it is, so remove the newer ones or use another folder",
            run->output_dir, (long long)newest, (long long)step);
}

zt_err zt_checkpoint_resume(struct zt_engine *e, bool *resumed, struct zt_fault *fault)
{
    const char *what = e->run->resume_from_checkpoint;
    struct candidates c = {.num = 0};
    zt_err refused = ZT_OK, rc;

    *resumed = false;
    zt_event_phase("reading a checkpoint");
    rc = is_on_disk(e->run) ? agree_on_candidates(e, what, &c, fault) : ZT_OK;
    if (!rc && e->replicas && e->run->attempt > 0)
        rc = zt_replicas_resume(e, c.num > 0 ? c.step[0] : 0, resumed, fault);
    if (!rc && *resumed)
        rc = zt_ckpt_best_take_over(e, NULL, fault);
    if (rc || *resumed || !is_on_disk(e->run))
        return rc;
    if (c.num >= 0) {
        rc = try_all(e, &c, resumed, fault);
    } else {
        rc = try_one(e, c.root, &refused, fault);
        rc = rc ? rc : refused;
        *resumed = !rc;
    }
    if (!rc && *resumed)
        rc = check_output_dir(e, c.root, fault);
    if (!rc && !*resumed && e->run->rank == 0)
        zt_info("checkpoint",
                "there is no checkpoint %sin %s: training begins with step 1",
                is_restarted(e->run) ? "of this job " : "", c.root);
    if (!rc && *resumed)
        warn_of_newer(e->run, e->first_step);
    return rc;
}

zt_err zt_checkpoint_check_resume(struct zt_engine *e, struct zt_fault *fault)
{
    const char *what = e->run->resume_from_checkpoint;
    struct candidates c = {.num = 0};
    zt_err rc;

    if (!what)
        return ZT_OK;
    rc = find(e->run, what, &c, fault);
    if (rc || c.num < 0)
        return rc ? rc : look_at(e, c.root, fault);
    for (int64_t i = 0; i < c.num; i++) {
        char dir[PATH_MAX];

        dir_of(&c, i, dir);
        rc = look_at(e, dir, fault);
        if (!rc || !may_pass_over(rc))
            return rc;
        tell_passed_over(dir, fault);
    }
    return c.num ? refuse_all(&c, rc, fault) : ZT_OK;
}
