/* ctl_rig.h -- a server of the control socket, in a folder of its own, for the tests. */
#ifndef TEST_CTL_RIG_H
#define TEST_CTL_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/message/frame.h"
#include "common/json/line.h"
#include "common/log.h"
#include "launcher/ctl/private.h"
#include "zlaunch/types.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define JOB "zt-1-test"

/* A server on a loop of its own, in a fresh XDG_RUNTIME_DIR. */
struct rig {
    char run[64], dir[ZT_CTL_PATH];
    uv_loop_t loop;
    struct zt_ctl *ctl;
    char request[64];
    uint32_t client; /* that request last */
    int num_requests;
    bool loses_answers;
};

static void on_request(void *ctx, uint32_t client, const char *request)
{
    struct rig *r = ctx;

    snprintf(r->request, sizeof(r->request), "%s", request);
    r->client = client;
    r->num_requests++;
    if (strcmp(request, "status") == 0 && !r->loses_answers) {
        json_t *o = json_pack("{ss si}", "job", JOB, "pid", 7);

        zt_ctl_answer(r->ctl, client, o);
        json_decref(o);
        zt_ctl_end(r->ctl, client, 0, NULL);
    } else if (strcmp(request, "status without memory") == 0) {
        zt_ctl_answer(r->ctl, client, NULL);
        zt_ctl_end(r->ctl, client, 0, NULL);
    } else if (strcmp(request, "status in part") == 0) {
        json_t *o = json_object();

        json_object_set_new(o, "job", json_stringn_nocheck("", SIZE_MAX / 2));
        zt_ctl_answer(r->ctl, client, o);
        json_decref(o);
        zt_ctl_end(r->ctl, client, 0, NULL);
    } else if (strcmp(request, "status") == 0) {
        zt_ctl_end(r->ctl, client, 0, NULL);
    } else if (strcmp(request, "save") == 0) {
        zt_ctl_print(r->ctl, client, "%s", "not yet");
        zt_ctl_end(r->ctl, client, 1, NULL);
    } else if (strcmp(request, "attach") == 0) {
        zt_ctl_follow(r->ctl, client, ZT_CTL_ALL, true);
    }
}

static void set_run(struct rig *r)
{
    snprintf(r->run, sizeof(r->run), "/tmp/zt-ctl-XXXXXX");
    assert_non_null(mkdtemp(r->run));
    assert_int_equal(setenv("XDG_RUNTIME_DIR", r->run, 1), 0);
    snprintf(r->dir, sizeof(r->dir), "%s/zlaunch", r->run);
}

static void drop_run(struct rig *r)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", r->run);
    assert_int_equal(system(command), 0);
}

/* Questions to it go to `r`. */
static struct zt_ctl *serve(uv_loop_t *loop, struct rig *r, const char *job)
{
    struct zt_ctl_config cfg = {
        .loop = loop, .job_id = job, .on_request = on_request, .ctx = r};
    struct zt_ctl *ctl = NULL;
    struct zt_fault fault = {0};

    if (zt_ctl_open(&cfg, &ctl, &fault))
        fail_msg("%s", fault.text);
    return ctl;
}

static void rig_open(struct rig *r)
{
    memset(r, 0, sizeof(*r));
    set_run(r);
    assert_int_equal(uv_loop_init(&r->loop), 0);
    r->ctl = serve(&r->loop, r, JOB);
}

static void rig_close(struct rig *r)
{
    zt_ctl_close(r->ctl);
    uv_run(&r->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&r->loop), 0);
    drop_run(r);
}

/* A sanitizer's allocator answers as malloc does when there is too much to give. */
ZT_API const char *__asan_default_options(void);
ZT_API const char *__tsan_default_options(void);

const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

/* Let the server work for a moment; false when the deadline is over. */
static bool pump(struct rig *r, double until)
{
    uv_run(&r->loop, UV_RUN_NOWAIT);
    usleep(500);
    return zt_now() < until;
}

#endif
