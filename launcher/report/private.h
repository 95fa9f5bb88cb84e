/* private.h -- report.c, and reach.c for what lies outside of this host.
 * Nobody else includes it. */
#ifndef LAUNCHER_REPORT_PRIVATE_H
#define LAUNCHER_REPORT_PRIVATE_H

#include "launcher/report/report.h"

#include <jansson.h>

/* Every row goes into the JSON and onto the screen at once. */
struct zt_host_report_out {
    const struct zt_launch *launch;
    json_t *root, *group, *problems; /* group: borrowed from root */
    FILE *out;                       /* the text; NULL: JSON is wanted */
    int code;
};

void zt_host_report_group(struct zt_host_report_out *r, const char *key,
                          const char *title);
/* Takes the value. The text stands on the screen only. */
void zt_host_report_row(struct zt_host_report_out *r, const char *key, json_t *value,
                        const char *fmt, ...) ZT_PRINTF(4, 5);
/* code: the exit code when the level is ERROR. */
void zt_host_report_problem(struct zt_host_report_out *r, zt_problem_level level,
                            int code, const char *todo, const char *fmt, ...)
    ZT_PRINTF(5, 6);

/* Hostfile, ssh, batch system. */
void zt_host_report_reach(struct zt_host_report_out *r);

#endif
