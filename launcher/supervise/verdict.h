/*
 * verdict.h -- why a job ended: the first cause, in words, and the exit code.
 *
 * The supervisor records events in the order in which it learns of them; the verdict is a
 * pure function of these notes. First cause: the first rank that failed by itself, unless
 * it only says that another rank failed (then the first that does not). Deaths on several
 * nodes, or at almost the same time, can be heard of in any order: SIGKILL that zlaunch
 * did not send comes from outside and follows from no other failure, so it goes first; an
 * abort just beside another failure is what libraries do when a peer is gone, so it goes
 * last. A rank that was asked to stop is never the cause. A node that was lost before
 * that is. A person or a limit that stopped the job before any rank had failed is the
 * cause itself.
 * Ownership: the notes own their strings.
 * Threads:   one.
 */
#ifndef LAUNCHER_SUPERVISE_VERDICT_H
#define LAUNCHER_SUPERVISE_VERDICT_H

#include "common/fault.h"

#include <jansson.h>
#include <sys/types.h>

typedef enum zt_stop_reason {
    ZT_STOP_NONE,
    ZT_STOP_SIGNAL,  /* zlaunch got SIGINT, SIGTERM or SIGHUP: `stop_signal` */
    ZT_STOP_TIMEOUT, /* --timeout */
    ZT_STOP_HANG,    /* --hang_timeout */
} zt_stop_reason;

struct zt_rank_note {
    int rank;
    const char *host; /* not owned; NULL: there is one node only */
    pid_t pid;
    bool started, exited;
    int order;           /* index of this exit among all exits, from 0 */
    double time_s;       /* when that was heard */
    int code, signal;    /* signal 0: it exited with `code` */
    bool stop_requested; /* it had been told to stop before it ended */
    bool oom;
    bool log_is_lost; /* its log file took no more: it is on the screen */
    json_t *phase;    /* string; NULL: unknown */
    json_t *tail;     /* last lines of its stderr; NULL: none */
    json_t *fail;     /* its own report: {code, exit_code, text, peer}; NULL: none */
    json_t *state;    /* the last answer to INSPECT; NULL: none */
};

struct zt_notes {
    struct zt_rank_note *ranks; /* (num_ranks) */
    int num_ranks, num_exited;
    zt_stop_reason stop;
    int stop_signal;
    bool stop_by_ctl;  /* it is SIGTERM that `--ctl JOB stop` asked for */
    bool saves;        /* exit code 75 of its ranks means that they have saved */
    bool saved_before; /* a start before this one has saved what a new job goes on from */
    int64_t behind; /* step of what they have saved where a later one of another run lies
                       * beside it; 0: it is the latest */
    int asked_by;   /* the signal that asked them to: SIGUSR1; 0: not through zlaunch */
    bool stop_was_first; /* no rank had failed when the stop came */
    double hang_s;       /* ZT_STOP_HANG: so long without progress, */
    int hang_rank;       /* probably because of this rank; -1: cannot tell */
    /* the first node that was lost, could not be started, or had to give up */
    char *down; /* sentence; NULL: none */
    int down_code;
    double down_s; /* when that was heard */
};

zt_err zt_notes_init(struct zt_notes *n, int num_ranks,
                     struct zt_fault *fault) ZT_MUST_CHECK;
void zt_notes_release(struct zt_notes *n);
/* A node is lost; only the first one counts. `front` names it, as in "worker-1: ". */
void zt_notes_node_lost(struct zt_notes *n, const char *front, const char *text,
                        int exit_code);

struct zt_verdict {
    int exit_code;
    const struct zt_rank_note
        *rank;          /* the first cause, inside the notes; NULL: no rank */
    bool saved;         /* the ranks were asked to end, and have saved first */
    bool unsaved;       /* they were asked by a signal of their own, and could not save */
    int others_stopped; /* ranks that ended because of it */
};

void zt_notes_judge(const struct zt_notes *n, struct zt_verdict *out);

/*
 * The cause as a person reads it: a sentence, and below it (may be empty) the evidence,
 * both allocated with malloc. NULL sentence: nothing went wrong, or no memory.
 */
void zt_verdict_text(const struct zt_notes *n, const struct zt_verdict *v,
                     char **sentence, char **evidence);

/* {"event": "end", "exit_code": ...}: the same facts for programs. NULL: no memory. */
json_t *zt_verdict_json(const struct zt_notes *n, const struct zt_verdict *v);

/* A failure that says of itself that what the job was given is wrong: another start would
 * repeat it, and it is no single rank's. So is that of a place where nothing can be written
 * if the run has not begun; later a disk may be full, and not stay so. `fail` may be NULL. */
bool zt_fail_is_permanent(const json_t *fail, bool begun);

#endif
