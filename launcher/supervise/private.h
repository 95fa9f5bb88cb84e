/*
 * private.h -- inside the supervisor; nobody else includes it.
 *
 *      supervise.c       the job, and the state machine above it all
 *      node.c            one node of it
 *      stop.c            stopping it, if need be by force
 *      hang.c            a job that makes no progress
 *      inspect.c         what is every rank doing?
 *      requests.c        answers to `zlaunch --ctl` and `--attach`
 *      preflight.c       the test of the links between nodes
 *      input.c           standard input, for a rank that asks for it
 *      pmi.c             the exchange between MPI ranks of several nodes
 *      store.c           the TCPStore of --serve_store
 *
 *      a start of the job
 *      STARTING --every node said HELLO: JOB to each--> RUNNING --all DONE--> the end
 *          |                                               |
 *          +--a node cannot be started--> STOPPING <-------+ a failure, the user, a limit
 *                                             |
 *                    the end <--nothing is left--> WAITING --back-off--> STARTING
 *
 *      a node
 *      OFF --start--> STARTING --HELLO--> READY --JOB--> RUNNING --DONE--> DONE --> OFF
 *                                           |               |               ^
 *                        the next start ----+----- IDLE <---+ DONE {waits}  | END
 *                                                   +-----------------------+
 *      on_down leads to OFF from everywhere. While the job may be started again daemons
 *      wait as IDLE: the next start uses them, and starts those that are OFF.
 */
#ifndef LAUNCHER_SUPERVISE_PRIVATE_H
#define LAUNCHER_SUPERVISE_PRIVATE_H

#include "common/message/frame.h"
#include "common/message/input.h"
#include "common/message/render.h"
#include "launcher/plan/plan.h"
#include "launcher/supervise/network.h"
#include "launcher/supervise/verdict.h"

/* queued output bytes above which ranks are no longer read from */
#define ZT_SCREEN_HIGH (1u << 20)

#define ZT_SUP_DIR PATH_MAX

/* added to a grace for the round trip to other hosts */
#define ZT_REMOTE_MS 1100

typedef enum zt_sup_state {
    SUP_STARTING,
    SUP_RUNNING,
    SUP_STOPPING,
    SUP_WAITING
} zt_sup_state;

typedef enum zt_sup_node_state {
    NODE_OFF,
    NODE_STARTING,
    NODE_READY,
    NODE_RUNNING,
    NODE_DONE,
    NODE_IDLE,
    NODE_NUM_STATES
} zt_sup_node_state;

struct zt_supervisor;

/* A node of the plan. */
struct zt_sup_node {
    struct zt_supervisor *sup;
    int index;        /* in the plan */
    bool has_mpi;     /* the daemon has backends/mpi.so beside it */
    char network[96]; /* the node's network as the daemon reports it; empty: unknown */
    zt_sup_node_state state;
    struct zt_channel *channel; /* NULL: down */
    struct zt_start_request rq;
    struct zt_buf in;
    double heard_s;  /* when something was last received */
    bool is_up;      /* the daemon has been executed there */
    uint32_t digest; /* of its last BEAT: changes when its ranks make progress */
    bool malformed;  /* it sent something that is no frame: nothing more is read */
    bool fenced;     /* all of its MPI ranks wait at the next fence */
    bool loss_noted; /* the reason is in the notes already */
    bool stayed;     /* its daemon has run an attempt of this job before */
};

/* See input.c. */
typedef enum zt_sup_input_state {
    INPUT_IDLE,
    INPUT_ASKED,
    INPUT_ANSWERED,
    INPUT_INTERRUPTED
} zt_sup_input_state;

struct zt_sup_input {
    zt_sup_input_state state;
    struct zt_sup_node *node; /* of the rank that asks */
    int rank;
    struct zt_line_reader reader;
    int64_t told_too_long;
    uv_poll_t poll;
    bool has_poll; /* standard input is one that can be polled */
};

struct zt_supervisor {
    const struct zt_job_plan *plan;
    struct zt_render *render;
    bool verbose;
    uv_loop_t loop;
    uv_signal_t signals[7];
    uv_timer_t tick, flush, deadline, timeout, restart_timer;
    zt_sup_state state;
    struct zt_sup_node *nodes;   /* (plan's num_nodes) */
    int num_in[NODE_NUM_STATES]; /* nodes in each state */
    int start_code;              /* exit code of the last node left out */
    bool *present;               /* (plan's num_nodes) scratch */
    pid_t *waiting;              /* likewise */
    struct zt_group group;
    struct zt_tcp_server *store;    /* of --serve_store; NULL: none */
    struct zt_preflight *preflight; /* NULL: not needed, or not begun */
    struct zt_notes notes;
    bool reading, unclean; /* unclean: a node went down before it was DONE */
    bool ending;           /* nothing more is started */
    int stop_grace_ms;     /* of the STOP that was sent; -1: none */
    int stops;             /* requests to stop, by the user or a limit */
    double ticked_s, pinged_s, progress_s;
    struct zt_buf pmi_pairs; /* key-value pairs of the MPI ranks since the last fence */
    int num_fenced;          /* nodes whose ranks have all reached the next fence */
    double inspect_until_s;  /* answers to INSPECT are awaited until then; 0: none */
    bool hang_seen;          /* the ranks were inspected because nothing goes on */
    bool saves;              /* the run saves checkpoints */
    int64_t save_grace_s;    /* that it has for one when it is stopped; -1: the default */
    int64_t saved_step;      /* of the newest; 0: none */
    int64_t newest_step;     /* of those that were there when the run began; -1: none */
    char
        saved_dir[ZT_SUP_DIR]; /* the newest, as the run names it; empty: nothing saved */
    bool told_unread;          /* that nobody reads standard output */
    bool log_is_lost;          /* of a rank: its log file took no more */
    int early_signal;          /* SIGUSR1 that came before there were ranks; 0: none */
    int64_t kept_step;         /* of the newest copies in memory; 0: none */
    bool begun;  /* the run has said what it does, or a program was started */
    bool trains; /* the run has steps */
    int64_t last_step, total_steps; /* of the last report; 0: none */
    char weights_dir[ZT_SUP_DIR];   /* where weights alone were saved; empty: nowhere */
    struct zt_sup_ctl *ctl;         /* `zlaunch --ctl`; NULL: no memory */
    struct zt_sup_input input;
};

/* checkpoints.c */
/* An event of a rank may be of one. True: it is for zlaunch alone. */
bool zt_sup_note_checkpoint(struct zt_supervisor *s, const json_t *event);
/* How long ranks have after a signal from outside; after a failure nothing is saved. */
int zt_sup_user_grace_ms(const struct zt_supervisor *s);
/* What of the training is lost with the job, as a line; empty: nothing that is known. */
const char *zt_sup_unsaved_text(const struct zt_supervisor *s, char *out, size_t cap);
/* ": from step 5, ..." */
const char *zt_sup_restart_text(const struct zt_supervisor *s, char *out, size_t cap);

/* stop.c */
/* Stop every node: `sig` to the ranks, SIGKILL after the grace, then by force. */
void zt_sup_stop(struct zt_supervisor *s, int sig, int grace_ms);
void zt_sup_set_deadline(struct zt_supervisor *s,
                         int ms);                  /* then all channels are closed */
int zt_sup_watch_signals(struct zt_supervisor *s); /* an error of libuv, or 0 */
void zt_sup_on_timeout(uv_timer_t *timer);         /* --timeout */
/* A node has changed its state: take the next step of the job's state machine. */
void zt_sup_advance(struct zt_supervisor *s);
/* The node is lost or could not be started. The first one is the cause of the end. */
void zt_sup_node_failed(struct zt_supervisor *s, struct zt_sup_node *node, int exit_code,
                        const char *text);
void zt_sup_send_signal(struct zt_sup_node *node, int sig); /* to each of its ranks */
/* At each tick: is there still somebody who reads what the job prints? */
void zt_sup_watch_readers(struct zt_supervisor *s);
void zt_sup_note_stop(struct zt_supervisor *s, zt_stop_reason reason, int sig);
/* Write queued output; stop reading from the nodes while too much is queued. */
void zt_sup_flush_screen(struct zt_supervisor *s);

/* supervise.c */
/* No more starts: daemons that wait for one are told to go. False: none waits. */
bool zt_sup_end_idle(struct zt_supervisor *s);
/* No rank is left, and no daemon that has not said so. */
bool zt_sup_is_over(const struct zt_supervisor *s);
/* SIGKILL for all below this process but the daemons that wait; how many there were. */
int zt_sup_kill_others(const struct zt_supervisor *s);

/* node.c */
void zt_sup_node_enter(struct zt_sup_node *node, zt_sup_node_state state);
zt_err zt_sup_node_start(struct zt_sup_node *node, struct zt_fault *fault) ZT_MUST_CHECK;
/* Takes the reference; NULL: an empty body. */
void zt_sup_node_send(struct zt_sup_node *node, zt_frame_type type, json_t *o);
void zt_sup_node_send_bytes(struct zt_sup_node *node, zt_frame_type type,
                            const void *body, size_t n);
void zt_sup_node_pause(struct zt_sup_node *node, bool pause);
void zt_sup_node_close(struct zt_sup_node *node); /* by force; on_down follows */
void zt_sup_node_check_silence(struct zt_sup_node *node, double now);
/* "worker-1: " when there are several nodes, else nothing. */
const char *zt_sup_node_label(const struct zt_sup_node *node, char out[ZT_NODE_NAME]);

/* input.c */
void zt_sup_input_open(struct zt_supervisor *s);
void zt_sup_input_release(struct zt_supervisor *s); /* the loop is closed */
void zt_sup_input_reset(struct zt_supervisor *s);   /* before each start of the job */
/* An event of a rank: where it asks for a line it gets the next one. */
void zt_sup_input_event(struct zt_sup_node *node, int rank, const json_t *event);
bool zt_sup_input_is_awaited(const struct zt_supervisor *s);
/* Ctrl-C. True: it ends the answer of a rank, and nothing else. */
bool zt_sup_input_interrupt(struct zt_supervisor *s);

/* hang.c */
void zt_sup_hang_tick(struct zt_supervisor *s, double now);

/* inspect.c: ask the daemons what their ranks are doing, and print it */
void zt_sup_inspect(struct zt_supervisor *s);
bool zt_sup_inspecting(const struct zt_supervisor *s); /* answers are awaited */
void zt_sup_inspected(struct zt_supervisor *s, const json_t *o);
/* When the time for answers is over: name the ranks that have not answered. */
void zt_sup_inspect_tick(struct zt_supervisor *s, double now);

/* requests.c */
void zt_sup_ctl_open(struct zt_supervisor *s);
void zt_sup_ctl_finish(struct zt_supervisor *s, int exit_code); /* the job is over */
void zt_sup_ctl_release(struct zt_supervisor *s);               /* the loop is closed */
void zt_sup_ctl_started(struct zt_supervisor *s);               /* one more rank */
/* True: it was an answer to a question, and for nobody else. */
bool zt_sup_ctl_event(struct zt_supervisor *s, int rank, json_t *event);
void zt_sup_ctl_line(void *ctx, int stream, const char *tag, const char *text, size_t n);

/* store.c: a fresh TCPStore for a start of the job, where one is asked for */
zt_err zt_sup_store_begin(struct zt_supervisor *s, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_sup_store_end(struct zt_supervisor *s);

/* pmi.c */
void zt_sup_pmi_reset(struct zt_supervisor *s);
void zt_sup_pmi_pairs(struct zt_sup_node *node, const struct zt_frame *f);
void zt_sup_pmi_fence(struct zt_sup_node *node);

/*
 * preflight.c: the link test, once all nodes are READY. True while it goes on;
 * zt_sup_advance() is called at its end. If it fails the job is being stopped.
 */
bool zt_preflight_busy(struct zt_supervisor *s);
void zt_preflight_on_here(struct zt_sup_node *node, const struct zt_frame *f);
void zt_preflight_on_found(struct zt_sup_node *node, const struct zt_frame *f);
/* Add the chosen network to the JOB of a node of the plan; returns `job`. */
json_t *zt_preflight_apply(const struct zt_supervisor *s, json_t *job, int plan_index);
void zt_preflight_reset(struct zt_supervisor *s); /* before each start of the job */

#endif
