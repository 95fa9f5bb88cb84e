#include "worker/engine/tasks/task.h"

#include <stdio.h>
#include <string.h>

static const char *const names[ZT_NUM_TASKS] = {
    [ZT_TASK_CAUSAL_LM] = "causal_lm",
    [ZT_TASK_MASKED_LM] = "masked_lm",
    [ZT_TASK_CLASSIFY] = "classify",
    [ZT_TASK_REGRESS] = "regress",
    [ZT_TASK_TAG] = "tag",
    [ZT_TASK_SEQ2SEQ] = "seq2seq",
};

const char *zt_task_name(zt_task task)
{
    return names[task];
}

static bool can(const struct zt_plugin *p, int task)
{
    unsigned tasks = p->tasks ? p->tasks : ZT_CAN(ZT_TASK_CAUSAL_LM);

    return tasks & ZT_CAN(task);
}

void zt_plugin_list_tasks(const struct zt_plugin *plugin, char out[ZT_TASKS_TEXT])
{
    size_t at = 0;

    out[0] = 0;
    for (int t = 0; t < ZT_NUM_TASKS; t++)
        if (can(plugin, t))
            at += (size_t)snprintf(out + at, ZT_TASKS_TEXT - at, "%s%s", at ? ", " : "",
                                   names[t]);
}

zt_err zt_engine_pick_task(struct zt_engine *e, struct zt_fault *fault)
{
    const char *wanted = e->run->task;
    char there[ZT_TASKS_TEXT];

    for (int t = 0; t < ZT_NUM_TASKS; t++)
        if (can(e->plugin, t) && (!wanted || strcmp(wanted, names[t]) == 0)) {
            e->task = (zt_task)t;
            return ZT_OK;
        }
    zt_plugin_list_tasks(e->plugin, there);
    if (!wanted)
        return zt_fault_set(fault, ZT_E_PLUGIN,
                            "plugin %s: .tasks is %#x, and none of its bits is a task",
                            e->plugin->name, e->plugin->tasks);
    return zt_fault_set(fault, ZT_E_USAGE,
                        "--task %s: %s is not built for it; it can be trained for %s",
                        wanted, e->plugin->name, there);
}
