/* --summary: how the job ended, as one line of JSON. */
#include "launcher/supervise/supervise.h"

#include "common/json/line.h"
#include "common/message/frame.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

zt_err zt_summary_begin(const char *path, struct zt_fault *fault)
{
    FILE *f = path ? fopen(path, "we") : NULL;
    int e = path && !f ? errno : 0;

    if (f)
        fclose(f);
    return e ? zt_fault_set(fault, ZT_E_CANTCREATE, "summary file %s: %s", path,
                            strerror(e))
             : ZT_OK;
}

zt_err zt_summary_write(const char *path, const json_t *end, struct zt_fault *fault)
{
    struct zt_buf line;
    FILE *f = fopen(path, "we");
    bool ok = f != NULL;

    zt_buf_init(&line, ZT_FRAME_MAX);
    ok = ok && zt_json_put(&line, end) == ZT_OK &&
         fprintf(f, "%.*s\n", (int)zt_buf_used(&line), (const char *)zt_buf_head(&line)) >
             0;
    if (f && fclose(f) != 0)
        ok = false;
    zt_buf_release(&line);
    if (!ok)
        return zt_fault_set(fault, ZT_E_CANTCREATE, "summary file %s: %s", path,
                            strerror(errno));
    return ZT_OK;
}
