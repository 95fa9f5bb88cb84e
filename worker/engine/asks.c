#include "worker/engine/asks.h"

#include "common/trace.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void begin_trace(struct zt_asks *a, const struct zt_event_ask *ask)
{
    const char *job = getenv("ZLAUNCH_JOB_ID");
    struct zt_fault fault = {0};

    snprintf(a->path, sizeof(a->path), "zlaunch-trace-%.64s-%lld.json", job ? job : "job",
             (long long)ask->id);
    if (zt_trace_open(a->path, a->run->rank, a->run->world, &fault)) {
        zt_event_answer(ask, false, fault.text);
        return;
    }
    zt_trace_thread("compute");
    a->trace = *ask;
    a->trace_steps = ZT_ASKS_TRACE_STEPS;
}

static void end_trace(struct zt_asks *a)
{
    char cwd[PATH_MAX], text[PATH_MAX + 512];
    int recorded = ZT_ASKS_TRACE_STEPS - a->trace_steps;
    struct zt_fault fault = {0};

    a->trace_steps = 0;
    if (zt_trace_close(&fault)) {
        zt_event_answer(&a->trace, false, fault.text);
        return;
    }
    snprintf(text, sizeof(text), "the timeline of %d step%s is in %s/%s.rank%d", recorded,
             recorded == 1 ? "" : "s", getcwd(cwd, sizeof(cwd)) ? cwd : ".", a->path,
             a->run->rank);
    zt_event_answer(&a->trace, true, text);
}

static void answer_trace(struct zt_asks *a, const struct zt_event_ask *ask)
{
    char text[1024];

    if (a->run->trace) {
        snprintf(text, sizeof(text),
                 "the timeline is recorded since the start and written to %.900s at the "
                 "end",
                 a->run->trace);
        zt_event_answer(ask, true, text);
    } else if (a->trace_steps) {
        zt_event_answer(ask, false, "a timeline is being recorded already");
    } else {
        begin_trace(a, ask);
    }
}

static void answer_save(struct zt_asks *a, const struct zt_event_ask *ask)
{
    if (!a->run->output_dir) {
        zt_event_answer(ask, false, "this run has no --output_dir to save to");
    } else if (a->wants_save) {
        zt_event_answer(ask, false, "the weights are being saved already");
    } else {
        a->save = *ask;
        a->wants_save = true;
    }
}

void zt_asks_saved(struct zt_asks *a, bool ok, const char *text)
{
    a->wants_save = false;
    zt_event_answer(&a->save, ok, text);
}

static void answer(struct zt_asks *a, const struct zt_event_ask *ask)
{
    char text[128];

    if (strcmp(ask->what, "trace") == 0) {
        answer_trace(a, ask);
    } else if (strcmp(ask->what, "save") == 0) {
        answer_save(a, ask);
    } else {
        snprintf(text, sizeof(text), "this version knows nothing of '%s'", ask->what);
        zt_event_answer(ask, false, text);
    }
}

void zt_asks_poll(struct zt_asks *a)
{
    struct zt_event_ask ask;

    if (a->trace_steps && --a->trace_steps == 0)
        end_trace(a);
    while (zt_event_asked(&ask))
        answer(a, &ask);
}

void zt_asks_end(struct zt_asks *a)
{
    if (a->trace_steps)
        end_trace(a);
    if (a->wants_save)
        zt_asks_saved(a, true, "that was the last step: its weights are saved now");
}
