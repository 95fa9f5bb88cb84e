/*
 * supervise_private.h -- inside the supervisor: the job (supervise.c), its end by force
 * (supervise_stop.c), one node of it
 * (supervise_node.c), a job that makes no progress (supervise_hang.c) and the exchange
 * between MPI ranks of several nodes (supervise_pmi.c). Nobody else includes it.
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
 *      on_down leads to OFF from everywhere.
 */
#ifndef LAUNCHER_SUPERVISE_PRIVATE_H
#define LAUNCHER_SUPERVISE_PRIVATE_H

#include "common/frame.h"
#include "common/render.h"
#include "launcher/plan.h"
#include "launcher/preflight.h"
#include "launcher/verdict.h"

/* bytes waiting for the screen before the job has to wait */
#define ZT_SCREEN_HIGH (1u << 20)

/* for the way to other hosts and back, on top of a grace */
#define ZT_REMOTE_MS 1100

typedef enum zt_sup_state {
    SUP_STARTING,
    SUP_RUNNING,
    SUP_STOPPING,
    SUP_WAITING
} zt_sup_state;

typedef enum zt_member_state {
    MEMBER_OFF,
    MEMBER_STARTING,
    MEMBER_READY,
    MEMBER_RUNNING,
    MEMBER_DONE,
    MEMBER_NUM_STATES
} zt_member_state;

struct zt_sup;

/* A node of the plan. */
struct zt_member {
    struct zt_sup *sup;
    int index;        /* in the plan */
    char network[96]; /* that the daemon is in; empty: it does not say */
    zt_member_state state;
    struct zt_channel *channel; /* NULL: down */
    struct zt_start_request rq;
    struct zt_buf in;
    double heard_s;  /* when it last said something */
    bool is_up;      /* the daemon has been executed there */
    uint32_t digest; /* of its last BEAT: changes when its ranks go on */
    bool garbled;    /* it said something that is no frame: not heard any more */
    bool fenced;     /* all of its MPI ranks wait at the next fence */
    bool down_told;  /* why it goes down is noted already */
};

struct zt_sup {
    const struct zt_plan *plan;
    struct zt_render *render;
    bool verbose;
    uv_loop_t loop;
    uv_signal_t signals[7];
    uv_timer_t tick, flush, deadline, timeout, again;
    zt_sup_state state;
    struct zt_member *members;     /* (plan's num_nodes) */
    int num_in[MEMBER_NUM_STATES]; /* members in each state */
    int start_code;                /* exit code of the last node left out */
    bool *present;                 /* (plan's num_nodes) scratch */
    struct zt_group group;
    struct zt_tcp_server *store;    /* of --serve_store; NULL: none */
    struct zt_preflight *preflight; /* NULL: not needed, or not begun */
    struct zt_notes notes;
    bool reading, unclean; /* unclean: a node went down before it was DONE */
    int stop_grace_ms;     /* of the order to stop that counts; -1: none */
    int stops;             /* how often the user asked, or a limit */
    double ticked_s, pinged_s, progress_s;
    struct zt_buf pmi_pairs; /* what MPI ranks left since the last fence */
    int num_fenced;          /* nodes whose ranks all wait at the next one */
    double look_until_s;     /* a hang was found: ranks tell until then; 0: none */
    struct zt_sup_ctl *ctl;  /* what others ask of the job; NULL: no memory */
};

/* supervise_stop.c */
/* Stop every node: two stages, then by force. */
void zt_sup_stop(struct zt_sup *s, int sig, int grace_ms);
void zt_sup_set_deadline(struct zt_sup *s, int ms); /* then all channels are closed */
void zt_sup_watch_signals(struct zt_sup *s);
void zt_sup_on_timeout(uv_timer_t *timer); /* --timeout */
/* A node changed its state: does the job go on, or is it over? */
void zt_sup_step(struct zt_sup *s);
/* The node is lost, or could not be started; the first one is the cause. */
void zt_sup_node_failed(struct zt_sup *s, struct zt_member *m, int exit_code,
                        const char *text);
void zt_sup_note_stop(struct zt_sup *s, zt_stop_reason reason, int sig);
/* Let the screen catch up, or go on reading. */
void zt_sup_pump(struct zt_sup *s);

/* supervise_node.c */
void zt_member_enter(struct zt_member *m, zt_member_state state);
zt_err zt_member_start(struct zt_member *m, struct zt_fault *fault) ZT_MUST_CHECK;
/* Takes the reference; NULL: an empty body. */
void zt_member_send(struct zt_member *m, zt_frame_type type, json_t *o);
void zt_member_send_bytes(struct zt_member *m, zt_frame_type type, const void *body,
                          size_t n);
void zt_member_pause(struct zt_member *m, bool pause);
void zt_member_close(struct zt_member *m); /* by force; its end follows as an event */
void zt_member_check_silence(struct zt_member *m, double now);
/* "worker-1: " when there are several nodes, else nothing. */
const char *zt_member_front(const struct zt_member *m, char out[ZT_NODE_NAME]);

/* supervise_hang.c */
void zt_hang_tick(struct zt_sup *s, double now);
void zt_hang_ask(struct zt_sup *s); /* every rank: what are you doing? */
void zt_hang_looked(struct zt_sup *s, const json_t *o);

/* supervise_ctl.c */
void zt_sup_ctl_open(struct zt_sup *s);
void zt_sup_ctl_finish(struct zt_sup *s, int exit_code); /* the job is over */
void zt_sup_ctl_release(struct zt_sup *s);               /* the loop is closed */
void zt_sup_ctl_started(struct zt_sup *s);               /* one more rank */
/* True: it was an answer to a question, and for nobody else. */
bool zt_sup_ctl_event(struct zt_sup *s, int rank, json_t *event);
void zt_sup_ctl_line(void *ctx, int stream, const char *tag, const char *text, size_t n);

/* supervise_store.c: a fresh TCPStore for a start of the job, where one is asked for */
zt_err zt_sup_store_begin(struct zt_sup *s, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_sup_store_end(struct zt_sup *s);

/* supervise_pmi.c */
void zt_sup_pmi_reset(struct zt_sup *s);
void zt_sup_pmi_pairs(struct zt_member *m, const struct zt_frame *f);
void zt_sup_pmi_fence(struct zt_member *m);

#endif
