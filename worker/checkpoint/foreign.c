/* foreign.c -- what other programs save where a checkpoint is looked for. */
#include <glob.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/files/models.h"
#include "worker/checkpoint/folder.h"
#include "worker/checkpoint/reader.h"

static bool has(const char *dir, const char *pattern)
{
    char path[2 * PATH_MAX];
    glob_t found = {.gl_pathc = 0};
    size_t n = 0;
    bool any;

    for (; *dir && n < PATH_MAX; dir++) { /* the folder's name is no pattern */
        if (strchr("*?[\\", *dir))
            path[n++] = '\\';
        path[n++] = *dir;
    }
    snprintf(path + n, sizeof(path) - n, "/%s", pattern);
    any = glob(path, 0, NULL, &found) == 0;
    globfree(&found);
    return any;
}

const char *zt_ckpt_describe_deepspeed(const char *dir)
{
    bool deepspeed = has(dir, "*mp_rank_00_model_states.pt") ||
                     has(dir, "*/*mp_rank_00_model_states.pt");
    bool zero = has(dir, "*_optim_states.pt") || has(dir, "*/*_optim_states.pt") ||
                has(dir, "latest_universal") || has(dir, "zero/*/fp32.pt") ||
                has(dir, "*/zero/*/fp32.pt");

    if (deepspeed && !zero)
        return "; it is one of DeepSpeed's without ZeRO, which is not read: "
               "zckpt verify FOLDER says how its weights are";
    if (deepspeed || has(dir, "latest_universal"))
        return "; it is one of DeepSpeed's, of which zckpt convert makes one of zlaunch: "
               "zckpt convert FOLDER OUTPUT_DIR";
    return "";
}

bool zt_ckpt_is_incomplete(const char *dir)
{
    bool no_state =
        has(dir, "latest") && has(dir, "zero_to_fp32") && !has(dir, "global_step*");

    return (no_state || has(dir, "global_step*/zero_rank_*.json")) &&
           !*zt_ckpt_describe_deepspeed(dir);
}

bool zt_ckpt_is_foreign(const char *dir)
{
    return zt_is_taken(dir) && !zt_ckpt_is_here(dir) && !zt_ckpt_is_incomplete(dir);
}

const char *zt_ckpt_describe_foreign(const char *dir)
{
    const char *deepspeed = zt_ckpt_describe_deepspeed(dir);

    if (*deepspeed || zt_ckpt_is_incomplete(dir))
        return deepspeed;
    if (has(dir, "trainer_state.json") && !has(dir, "global_step*"))
        return "; it is one of transformers' Trainer, of which the weights alone are "
               "read: "
               "--model_name_or_path begins a new training from them";
    if (has(dir, "config.json") && !has(dir, "global_step*"))
        return "; it holds weights alone, from which --model_name_or_path begins a new "
               "training";
    return "";
}
