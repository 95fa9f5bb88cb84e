/*
 * report.h -- `zlaunch --report`: the hardware and software of this host, the limits that
 * matter to a job, and for each problem what to do about it.
 */
#ifndef LAUNCHER_REPORT_REPORT_H
#define LAUNCHER_REPORT_REPORT_H

#include "launcher/launch.h"

/*
 * As text, or with --log_format json as one JSON object: {event: "report", usable,
 * zlaunch, zworker, host, limits, reach, problems: [{level, what, todo}]}. Returns the
 * exit code: 0 unless something makes it impossible to run anything.
 */
int zt_host_report(const struct zt_launch *l, FILE *out);

/* ---------------------------------------------------------------- what limits a job */

#define ZT_NO_LIMIT UINT64_MAX

/* All bytes; ZT_NO_LIMIT where there is none. */
struct zt_host_limits {
    uint64_t open_files, open_files_hard, processes, locked_bytes, address_bytes;
    uint64_t shm_bytes, shm_free_bytes; /* /dev/shm; 0: there is none */
    uint64_t total_bytes, free_bytes;   /* memory of the machine */
    uint64_t cgroup_bytes;              /* memory that the control group may have, */
    uint64_t cgroup_used_bytes;         /* and has */
    double cgroup_cpus;                 /* 0: no limit */
    int num_cpus;                       /* in the affinity mask */
    int memfd_error;                    /* errno of making shared memory; 0: it works */
    bool rdma;
    char huge_pages[16]; /* "always", "madvise", "never"; empty: not known */
};

void zt_host_limits_read(struct zt_host_limits *h);

typedef enum zt_problem_level {
    ZT_PROBLEM_NOTE,    /* something could be better */
    ZT_PROBLEM_WARNING, /* some jobs will fail, or be slow */
    ZT_PROBLEM_ERROR,   /* nothing can run */
} zt_problem_level;

typedef void (*zt_problem_told)(void *ctx, zt_problem_level level, const char *what,
                                const char *todo);
/* Report each of these limits that is a problem. */
void zt_host_limits_judge(const struct zt_host_limits *h, zt_problem_told told,
                          void *ctx);

#endif
