#include "worker/engine/control_requests.h"

#include "common/trace/trace.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WEIGHTS "save weights"

static void begin_trace(struct zt_control_requests *a,
                        const struct zt_control_request *request)
{
    const char *job = getenv("ZLAUNCH_JOB_ID");
    struct zt_fault fault = {0};

    snprintf(a->path, sizeof(a->path), "zlaunch-trace-%.64s-%lld.json", job ? job : "job",
             (long long)request->id);
    if (zt_trace_open(a->path, a->run->rank, a->run->world, &fault)) {
        zt_event_answer(request, zt_err_exit_code(fault.code), fault.text);
        return;
    }
    zt_trace_thread("compute");
    a->trace = *request;
    a->trace_steps = ZT_CONTROL_TRACE_STEPS;
}

static void end_trace(struct zt_control_requests *a)
{
    char cwd[PATH_MAX], text[PATH_MAX + 512];
    int recorded = ZT_CONTROL_TRACE_STEPS - a->trace_steps;
    struct zt_fault fault = {0};

    a->trace_steps = 0;
    if (zt_trace_close(&fault)) {
        zt_event_answer(&a->trace, zt_err_exit_code(fault.code), fault.text);
        return;
    }
    snprintf(text, sizeof(text), "the timeline of %d step%s is in %s/%s.rank%d", recorded,
             recorded == 1 ? "" : "s", getcwd(cwd, sizeof(cwd)) ? cwd : ".", a->path,
             a->run->rank);
    zt_event_answer(&a->trace, 0, text);
}

static void answer_trace(struct zt_control_requests *a,
                         const struct zt_control_request *request)
{
    char text[1024];

    if (a->run->trace) {
        snprintf(text, sizeof(text),
                 "the timeline is recorded since the start and written to %.900s at the "
                 "end",
                 a->run->trace);
        zt_event_answer(request, 0, text);
    } else if (a->trace_steps) {
        zt_event_answer(request, 1, "a timeline is being recorded already");
    } else {
        begin_trace(a, request);
    }
}

static void answer_save(struct zt_control_requests *a,
                        const struct zt_control_request *request)
{
    if (!a->run->output_dir && !request->dir[0]) {
        zt_event_answer(request, 1,
                        "this run has no --output_dir to save to; ask for "
                        "'save weights DIR'");
    } else if (a->wants_save) {
        zt_event_answer(request, 1, "another save is asked for already");
    } else {
        a->save = *request;
        a->wants_save = true;
    }
}

bool zt_control_requests_wants_weights(const struct zt_control_requests *a)
{
    return strcmp(a->save.name, WEIGHTS) == 0;
}

void zt_control_requests_saved(struct zt_control_requests *a, int exit_code,
                               const char *text)
{
    a->wants_save = false;
    zt_event_answer(&a->save, exit_code, text);
}

static void answer(struct zt_control_requests *a,
                   const struct zt_control_request *request)
{
    char text[128];

    if (strcmp(request->name, "trace") == 0) {
        answer_trace(a, request);
    } else if (strcmp(request->name, "save") == 0 ||
               strcmp(request->name, WEIGHTS) == 0) {
        answer_save(a, request);
    } else {
        snprintf(text, sizeof(text), "this version knows nothing of '%s'", request->name);
        zt_event_answer(request, 1, text);
    }
}

void zt_control_requests_poll(struct zt_control_requests *a)
{
    struct zt_control_request request;

    if (a->trace_steps && --a->trace_steps == 0)
        end_trace(a);
    while (zt_event_next_request(&request))
        answer(a, &request);
}

void zt_control_requests_end(struct zt_control_requests *a)
{
    if (a->trace_steps)
        end_trace(a);
    if (a->wants_save) /* of this rank and not of all, or training has failed */
        zt_control_requests_saved(a, 1, "it came too late: no step follows");
}
