/*
 * frame.h -- the control channel's messages: zlaunch <-> daemon <- rank.
 *
 *      | u32 big-endian length of what follows | u8 type | body ... |
 *
 * The length counts the type byte, so it is at least 1; it is capped at ZT_FRAME_MAX and
 * anything else makes the channel unusable. Structured bodies are JSON objects, output is
 * raw bytes. docs/PROTOCOL.md lists every type with its fields and who may send it when.
 * Threads: unlocked; one thread at a time.
 */
#ifndef COMMON_MESSAGE_FRAME_H
#define COMMON_MESSAGE_FRAME_H

#include "common/buf.h"
#include "common/fault.h"

#define ZT_FRAME_MAX    (1u << 20) /* type and body, bytes */
#define ZT_FRAME_HEADER 4u
#define ZT_PROTOCOL     3 /* grows when a frame changes its meaning */

/* Both sides of the channel send at least one frame every ZT_HEARTBEAT_MS. A node, or a
 * zlaunch on another host, that is silent for ZT_SILENCE_MS is taken for dead. A daemon whose
 * process zlaunch sees alive gets ZT_SILENCE_SEEN_MS: on a crowded host it waits for the
 * processor, or for a disk. */
#define ZT_HEARTBEAT_MS    500
#define ZT_SILENCE_MS      2500
#define ZT_SILENCE_SEEN_MS 60000

/* The longest grace of JOB and STOP: a day, as --grace and --save_grace may be. */
#define ZT_GRACE_MAX_MS (86400 * 1000)

typedef enum zt_frame_type {
    /* zlaunch -> daemon */
    ZT_FRAME_JOB = 1,     /* JSON: what to start; again after a DONE that waits for it */
    ZT_FRAME_STOP = 2,    /* JSON {signal, grace_ms}: signal the ranks, then kill them */
    ZT_FRAME_SIGNAL = 3,  /* JSON {signal}: hand a signal to every rank, nothing more */
    ZT_FRAME_PING = 4,    /* empty: zlaunch is alive */
    ZT_FRAME_INSPECT = 5, /* empty: report what every rank is doing, as INSPECTED */
    ZT_FRAME_LINKS = 8,   /* empty: listen for other nodes, tell where as LINKS_HERE */
    ZT_FRAME_LINKS_TRY = 9, /* u32 own index, then JSON: try to reach all of these */
    ZT_FRAME_REQUEST = 6,   /* JSON {id, request}: the daemon passes it to every rank */
    ZT_FRAME_END = 7,       /* empty, after a DONE that waits: nothing more is started */
    ZT_FRAME_INPUT = 10, /* u32 rank, then what it gets: u8 kind, a line (input.h); to a
                            rank without the former */
    /* both ways: the PMI exchange between MPI ranks, see docs/PROTOCOL.md */
    ZT_FRAME_PMI_PAIRS = 12, /* "key=value" lines, each ending in '\n' */
    ZT_FRAME_PMI_FENCE = 13, /* empty: every rank of the node waits; or: all may go on */
    /* daemon -> zlaunch */
    ZT_FRAME_HELLO = 16,      /* JSON {protocol, version, pid}: the first frame */
    ZT_FRAME_STARTED = 17,    /* JSON {rank, pid} */
    ZT_FRAME_OUTPUT = 18,     /* u32 rank, u8 stream (1, 2), whole lines ending in '\n' */
    ZT_FRAME_RELAY = 19,      /* u32 rank, then the body of the rank's ZT_FRAME_EVENT */
    ZT_FRAME_EXITED = 20,     /* JSON {rank, pid, code|signal, stop_requested, ...} */
    ZT_FRAME_FAULT = 21,      /* JSON {exit_code, text}: the daemon itself cannot go on */
    ZT_FRAME_DONE = 22,       /* nothing of the job is left on this node; JSON {waits} */
    ZT_FRAME_HEARTBEAT = 23,  /* u32: a digest that changes as ranks make progress */
    ZT_FRAME_INSPECTED = 24,  /* JSON {rank, pid, state, stopped, phase, where, stack} */
    ZT_FRAME_LINKS_HERE = 25, /* JSON: the addresses of this node, see docs/PROTOCOL.md */
    ZT_FRAME_LINKS_FOUND = 26, /* JSON: which of the others were reached, how fast */
    ZT_FRAME_LOGGED = 27,      /* u32 rank, then the body of the rank's ZT_FRAME_LOG */
    ZT_FRAME_LOG_LOST = 28,    /* u32 rank: its log file takes no more */
    /* rank -> daemon */
    ZT_FRAME_EVENT = 32, /* JSON {event, ...}: see common/message/event.h */
    ZT_FRAME_LOG = 33,   /* JSON {ts, event, level, ...}: a line of its log */
    /* zlaunch --ctl and --attach <-> zlaunch, over the job's socket: see ctl.h */
    ZT_FRAME_CTL_REQUEST = 48, /* JSON {request}: the one frame of the client */
    ZT_FRAME_CTL_ANSWER = 49,  /* JSON: what was asked for */
    ZT_FRAME_CTL_LINE = 50,    /* u8 stream (1, 2), a line without its newline */
    ZT_FRAME_CTL_END = 51,     /* JSON {exit_code, text}: the last frame */
} zt_frame_type;

struct zt_frame {
    uint8_t type;
    const uint8_t *body; /* inside the buffer: valid until it changes */
    size_t body_bytes;
};

/* Append one frame, whole or not at all. ZT_E_LIMIT: body too long or buffer full. */
zt_err zt_frame_put(struct zt_buf *out, zt_frame_type type, const void *body,
                    size_t body_bytes) ZT_MUST_CHECK;

/*
 * Look at the first frame of `in`. ZT_E_SHORT: not complete yet (nothing is wrong);
 * ZT_E_FORMAT: the bytes are no frames and never will be. zt_frame_drop() removes it.
 */
zt_err zt_frame_peek(const struct zt_buf *in, struct zt_frame *out,
                     struct zt_fault *fault) ZT_MUST_CHECK;
void zt_frame_drop(struct zt_buf *in, const struct zt_frame *frame);

static inline uint32_t zt_get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
static inline void zt_set_u32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 24);
    p[1] = (uint8_t)(v >> 16);
    p[2] = (uint8_t)(v >> 8);
    p[3] = (uint8_t)v;
}

#endif
