/*
 * wire.h -- requests of PyTorch's TCPStore: where one ends, and what is in it.
 *
 * A request is a command byte and fields; integers are in the machine's order, a string
 * is a u64 length and bytes, a list a u64 count and its items. Nothing says how long a
 * request is as a whole, so it is scanned: field by field, and on from there when more
 * bytes have come, so that a client that sends one byte at a time costs no more than one
 * that sends all.
 * Threads: unlocked; one thread at a time.
 */
#ifndef STORE_TCPSTORE_WIRE_H
#define STORE_TCPSTORE_WIRE_H

#include "store/core/kv.h"

#define ZT_TCP_MAGIC   0x3C85F7CEu
#define ZT_TCP_KEY     8192u       /* bytes of a key */
#define ZT_TCP_VALUE   (8u << 20)  /* bytes of a value */
#define ZT_TCP_LIST    131072u     /* items of a list */
#define ZT_TCP_REQUEST (32u << 20) /* bytes of one request */

typedef enum zt_tcp_command {
    ZT_TCP_VALIDATE = 0,
    ZT_TCP_SET = 1,
    ZT_TCP_COMPARE_SET = 2,
    ZT_TCP_GET = 3,
    ZT_TCP_ADD = 4,
    ZT_TCP_CHECK = 5,
    ZT_TCP_WAIT = 6,
    ZT_TCP_NUM_KEYS = 7,
    ZT_TCP_DELETE = 8,
    ZT_TCP_APPEND = 9,
    ZT_TCP_MULTI_GET = 10,
    ZT_TCP_MULTI_SET = 11,
    ZT_TCP_CANCEL_WAIT = 12,
    ZT_TCP_PING = 13,
    ZT_TCP_QUEUE_PUSH = 14,
    ZT_TCP_QUEUE_POP = 15,
    ZT_TCP_QUEUE_LEN = 16,
    ZT_TCP_LIST_KEYS = 17,
    ZT_TCP_BARRIER = 18,
    ZT_TCP_NUM_COMMANDS
} zt_tcp_command;

/* How far a request has been scanned; zero before each. */
struct zt_tcp_scan {
    size_t at;      /* bytes that need not be looked at again */
    int field;      /* of the command's layout; 0: the command byte is next */
    uint64_t items; /* of the list that is being scanned; still to come */
    bool in_list;
};

/*
 * Does a whole request stand at the start of p? ZT_OK: *bytes long. ZT_E_SHORT: not all
 * there; call again with the same scan when there is more. ZT_E_FORMAT: an unknown
 * command, or a length past the limits.
 */
zt_err zt_tcp_scan(struct zt_tcp_scan *s, const uint8_t *p, size_t n,
                   size_t *bytes) ZT_MUST_CHECK;

/* Reads the fields of a request that has been scanned whole. */
struct zt_tcp_reader {
    const uint8_t *p, *end;
};
uint32_t zt_tcp_u32(struct zt_tcp_reader *r);
uint64_t zt_tcp_u64(struct zt_tcp_reader *r);
struct zt_span zt_tcp_bytes(struct zt_tcp_reader *r);

#endif
