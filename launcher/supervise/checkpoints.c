/* checkpoints.c -- what zlaunch knows of the checkpoints that its ranks save. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/json/line.h"
#include "launcher/supervise/private.h"

#define GRACE_MS (30 * 1000)

static void note_step(struct zt_supervisor *s, int64_t step, int64_t total)
{
    s->last_step = step;
    s->total_steps = total;
}

static void note_saved(struct zt_supervisor *s, int64_t step, const char *dir)
{
    s->saved_step = step;
    s->notes.behind = step < s->newest_step ? step : 0;
    s->weights_dir[0] = 0; /* older than this */
    snprintf(s->saved_dir, sizeof(s->saved_dir), "%s", dir);
}

bool zt_sup_note_checkpoint(struct zt_supervisor *s, const json_t *event)
{
    const char *name = zt_json_get_text(event, "event", "");
    int64_t step = zt_json_get_int(event, "step", -1);

    if (strcmp(name, "saves") == 0) {
        s->saves = s->notes.saves = true;
        s->save_grace_s = zt_json_get_int(event, "grace_s", -1);
        s->newest_step = zt_json_get_int(event, "newest_step", s->newest_step);
        return true;
    }
    if (strcmp(name, "kept") == 0) {
        s->kept_step = step;
        return true;
    }
    if (strcmp(name, "note") == 0 && json_is_true(json_object_get(event, "trains")))
        s->trains = true;
    else if (strcmp(name, "step") == 0)
        note_step(s, step, zt_json_get_int(event, "total_steps", 0));
    else if (step >= 0 && (strcmp(name, "saved") == 0 || strcmp(name, "resumed") == 0))
        note_saved(s, step, zt_json_get_text(event, "text", ""));
    else if (strcmp(name, "saved") == 0 &&
             json_is_true(
                 json_object_get(event, "weights"))) /* else results of the run */
        snprintf(s->weights_dir, sizeof(s->weights_dir), "%s",
                 zt_json_get_text(event, "text", ""));
    return false;
}

const char *zt_sup_unsaved_text(const struct zt_supervisor *s, char *out, size_t cap)
{
    long long saved = s->saved_step, last = s->last_step;

    out[0] = 0;
    if (!s->trains || last <= saved || (s->weights_dir[0] && last == s->total_steps))
        return out; /* the last: what the run was made for is there */
    if (saved > 0 && s->weights_dir[0])
        snprintf(out, cap,
                 "  after step %lld (saved in %s) weights alone are saved, the last in "
                 "%s; step "
                 "%lld was the last report",
                 saved, s->saved_dir, s->weights_dir, last);
    else if (saved > 0)
        snprintf(
            out, cap,
            "  after step %lld (saved in %s) nothing is known to be saved; step %lld "
            "was the last report",
            saved, s->saved_dir, last);
    else if (s->weights_dir[0])
        snprintf(
            out, cap,
            "  weights alone are saved, the last in %s; step %lld was the last report",
            s->weights_dir, last);
    else if (s->saves) /* one that was being written may be whole */
        snprintf(out, cap,
                 "  nothing is known to be saved; step %lld was the last report", last);
    else
        snprintf(out, cap,
                 "  nothing is saved; step %lld was the last report (--output_dir with "
                 "--save_steps saves on the way)",
                 last);
    return out;
}

/* What Slurm leaves of the job, less a moment to end; it has a time limit of its own. */
static int slurm_grace_ms(const char *end)
{
    long long left = strtoll(end, NULL, 10) - (long long)time(NULL) - 2;

    return left < 1                        ? 1000
           : left > ZT_GRACE_MAX_MS / 1000 ? ZT_GRACE_MAX_MS
                                           : (int)left * 1000;
}

int zt_sup_user_grace_ms(const struct zt_supervisor *s)
{
    const char *end = getenv("SLURM_JOB_END_TIME");
    int ms = GRACE_MS;

    if (!s->saves)
        return s->plan->grace_ms;
    if (s->save_grace_s >= 0)
        ms = s->save_grace_s < ZT_GRACE_MAX_MS / 1000 ? (int)s->save_grace_s * 1000
                                                      : ZT_GRACE_MAX_MS;
    else if (end)
        ms = slurm_grace_ms(end);
    return ms > s->plan->grace_ms ? ms : s->plan->grace_ms;
}

/* "Or later": what was saved last may not have been told before the ranks ended. */
const char *zt_sup_restart_text(const struct zt_supervisor *s, char *out, size_t cap)
{
    out[0] = 0;
    if (!s->plan->is_plugin)
        return out;
    if (s->kept_step > 0 && s->kept_step >= s->saved_step)
        snprintf(out, cap, ": from step %lld or later, after the newest copies in memory",
                 (long long)s->kept_step + 1);
    else if (s->saved_step > 0)
        snprintf(out, cap, ": from step %lld or later, after the newest checkpoint",
                 (long long)s->saved_step + 1);
    else if (s->saves)
        snprintf(out, cap,
                 ": from a checkpoint, if one was finished meanwhile, else from step 1");
    else
        snprintf(out, cap,
                 ": from step 1, for the run saves no checkpoints "
                 "(--save_steps)");
    return out;
}
