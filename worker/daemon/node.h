/*
 * node.h -- inside the daemon: the loop's state, shared by daemon.c (the states),
 * start_ranks.c, control.c (what zlaunch sends), output.c (what ranks write) and pmi_socket.c.
 * Nobody else includes it.
 *
 *      WAIT_JOB --JOB--> RUNNING --all ranks exit 0--> ENDING --nobody left--> DONE
 *                           |                                ^
 *                           +--> STOPPING --all ranks gone---+
 *                           a rank fails, STOP, zlaunch gone, SIGTERM
 *
 *      RUNNING    ranks live, none has failed
 *      STOPPING   ranks have SIGTERM; SIGKILL follows when the grace is over
 *      ENDING     all ranks are reaped; strays they left have SIGTERM, then SIGKILL
 *      DONE       nothing is left; the channel is flushed, then the loop ends
 *
 * Where the job may be started again (its JOB says "stay") ENDING leads to IDLE instead:
 * nothing is left but this process, and the next JOB leads to RUNNING. END, a zlaunch
 * that is gone and SIGTERM end it.
 */
#ifndef WORKER_DAEMON_NODE_H
#define WORKER_DAEMON_NODE_H

#include "common/message/frame.h"
#include "common/message/phase.h"
#include "worker/daemon/cgroup.h"
#include "worker/daemon/job.h"
#include "worker/daemon/lines.h"
#include "worker/daemon/links.h"
#include "worker/daemon/pmi.h"

#include <jansson.h>
#include <sys/types.h>
#include <uv.h>

#define ZT_TAIL_LINES 20
#define ZT_TAIL_BYTES 400 /* of one line */

typedef enum zt_node_state {
    ZT_NODE_WAIT_JOB,
    ZT_NODE_RUNNING,
    ZT_NODE_STOPPING,
    ZT_NODE_ENDING,
    ZT_NODE_IDLE,
    ZT_NODE_DONE,
} zt_node_state;

struct zt_daemon_node;
struct zt_local_rank;

/* The last lines of one stream, for the report of a failure. */
struct zt_tail {
    char *line[ZT_TAIL_LINES]; /* ring; NULL: not yet used */
    unsigned next;
};

/* One descriptor of a rank: its stdout (1), stderr (2) or control socket (0). */
struct zt_source {
    struct zt_local_rank *rank;
    int stream;
    int fd; /* -1: closed */
    uv_poll_t poll;
    struct zt_lines lines; /* stdout and stderr */
    struct zt_tail tail;
    struct zt_buf frames; /* control */
};

/* The daemon's end of the socket that a rank finds in PMI_FD. */
struct zt_pmi_socket {
    struct zt_local_rank *rank;
    int fd;    /* -1: closed */
    int error; /* of the last answer; 0: it went out, or its rank has ended */
    uv_poll_t poll;
};

struct zt_local_rank {
    struct zt_daemon_node *node;
    int rank, local_rank;
    pid_t pid;
    bool alive;
    int abort_status;           /* of waitpid; 0: it has not aborted */
    int log_fd;                 /* -1: output goes to zlaunch */
    struct zt_source source[3]; /* by stream */
    struct zt_pmi_socket pmi;
};

struct zt_daemon_node {
    uv_loop_t loop;
    zt_node_state state;
    uv_pipe_t in, out; /* to zlaunch */
    struct zt_buf frames;
    bool has_killed;         /* SIGKILL was sent: a rank that dies of it may be ours */
    bool orphaned;           /* zlaunch is gone: nobody listens */
    bool is_short_of_memory; /* and zlaunch was told */
    bool paused;             /* zlaunch reads too slowly: ranks wait in their pipes */
    uv_signal_t sigchld, sigterm, sigint, sighup;
    uv_timer_t grace, heartbeat;
    double heard_s, heartbeat_s; /* when zlaunch was last heard; our last heartbeat */
    struct zt_job *job;
    struct zt_local_rank *ranks; /* (job->local_world) */
    struct zt_links *links;      /* NULL: not asked to test them, or done */
    struct zt_pmi *pmi;          /* NULL: the job is on several nodes */
    int num_started, num_alive;
    int shm_fd, state_fd, secret_fd;
    int *replicas; /* (num_replicas) memory that ranks of the next start find again; -1 */
    int num_replicas;
    struct zt_cgroup cgroup;      /* of the ranks and all that they start */
    struct zt_phase_slot *phases; /* (job->local_world), mapped */
    size_t phases_bytes;
    uint64_t printed_bytes; /* by all ranks of the job */
    int64_t oom_kills;      /* seen so far */
    int exit_code;
};

/* daemon.c: queue a frame to zlaunch, made of two pieces; lost when zlaunch is gone. */
void zt_node_send(struct zt_daemon_node *n, zt_frame_type type, const void *a,
                  size_t a_bytes, const void *b, size_t b_bytes);

/* Takes the reference. */
void zt_node_send_json(struct zt_daemon_node *n, zt_frame_type type, json_t *o);
void zt_node_send_fault(struct zt_daemon_node *n, const struct zt_fault *fault);
void zt_node_signal(struct zt_daemon_node *n,
                    int sig); /* every living rank's process group */
/* SIGKILL for whoever is left after the grace; a shorter grace counts. */
void zt_node_stop(struct zt_daemon_node *n, int sig, int grace_ms);
void zt_node_on_zlaunch_gone(
    struct zt_daemon_node *n); /* nobody listens: stop, then end */

/* start_ranks.c: n->job is set. An error leaves ranks that did start. */
zt_err zt_node_start_job(struct zt_daemon_node *n, struct zt_fault *fault) ZT_MUST_CHECK;
/* What an attempt held, with its job. Its ranks are reaped and their handles closed. */
void zt_node_release_job(struct zt_daemon_node *n);
void zt_node_release_replicas(struct zt_daemon_node *n);

/* control.c: callbacks of the channel's reading end and of the heart. */
void zt_node_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf);
void zt_node_on_read(uv_stream_t *stream, ssize_t k, const uv_buf_t *buf);
void zt_node_on_heartbeat(uv_timer_t *timer);

/* output.c */
/* Take over the descriptors of a started rank and begin to read. */
zt_err zt_output_start(struct zt_local_rank *r, const int fds[3],
                       struct zt_fault *fault) ZT_MUST_CHECK;
/* All that a dead rank left in its descriptors, its last unfinished lines included. */
void zt_output_drain(struct zt_local_rank *r);
void zt_output_pause(struct zt_daemon_node *n, bool pause);
/* Put a frame into the rank's control socket; false: it does not take it. */
bool zt_output_send(struct zt_local_rank *r, zt_frame_type type, const void *body,
                    size_t n);
void zt_output_close(struct zt_local_rank *r);

/* pmi_socket.c */
/* A server for the ranks of n->job, if all of them are here. */
zt_err zt_pmi_open_server(struct zt_daemon_node *n, struct zt_fault *fault) ZT_MUST_CHECK;
/* *rank_fd: the rank's end, close-on-exec, for the caller to close; -1: no server. */
zt_err zt_pmi_socket_open(struct zt_local_rank *r, int *rank_fd,
                          struct zt_fault *fault) ZT_MUST_CHECK;
/* Serve what the rank has asked. */
void zt_pmi_socket_drain(struct zt_local_rank *r);
void zt_pmi_socket_close(struct zt_local_rank *r);

#endif
