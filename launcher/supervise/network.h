/*
 * network.h -- choose the network over which the ranks of several nodes talk.
 *
 * The daemons try each other's addresses (worker/daemon/links.h) and report what they
 * reached; the functions here evaluate these reports. One address of each node is
 * chosen such that every node reaches the chosen address of every other node. The
 * addresses are of one subnet if possible, else of interfaces with the same name, else
 * any. If several networks qualify, the one with the fastest links wins, and if the speed
 * is not known or equal, the one with the shortest round trip.
 *
 * Ownership: the caller owns the structs; zt_links_table_release() and
 *            zt_links_choice_release() free what is inside. A choice points into its
 *            table.
 * Threads:   one.
 */
#ifndef LAUNCHER_SUPERVISE_NETWORK_H
#define LAUNCHER_SUPERVISE_NETWORK_H

#include "common/fault.h"

#include <jansson.h>
#include <netinet/in.h>

#define ZT_PREFLIGHT_ADDRESSES 16 /* of one node */

struct zt_link_address {
    char name[64];               /* of the interface */
    char text[INET6_ADDRSTRLEN]; /* as people and programs write it */
    uint8_t bytes[16];           /* 4 of them for IPv4 */
    int family;                  /* AF_INET, AF_INET6 */
    int bits;                    /* of the network's prefix */
    int port;
    int mbps;       /* 0: not known */
    double mean_us; /* mean round trip from the nodes that reached it */
    int num_from;   /* nodes that reached it */
};

struct zt_link_node {
    const char *host;   /* not owned */
    bool rdma;          /* it has InfiniBand or another RDMA network */
    char *ask, *answer; /* tokens by which probes of this test are recognised */
    struct zt_link_address at[ZT_PREFLIGHT_ADDRESSES]; /* (num) without loopback */
    int num;
};

struct zt_links_table {
    struct zt_link_node *node; /* (num) */
    int num;
    bool *reached; /* (num, num) from, to: by any address */
};

zt_err zt_links_table_init(struct zt_links_table *t, int num,
                           struct zt_fault *fault) ZT_MUST_CHECK;
void zt_links_table_release(struct zt_links_table *t);
/* Store the body of node i's LINKS_HERE or LINKS_FOUND. False: the body is malformed; a
 * part of it may have been stored. */
bool zt_links_table_here(struct zt_links_table *t, int i, const json_t *here);
bool zt_links_table_found(struct zt_links_table *t, int i, const json_t *found);
/* Clear the results of LINKS_FOUND, for another round. */
void zt_links_table_clear(struct zt_links_table *t);

struct zt_links_choice {
    int *at; /* (num) index of each node's address; NULL: no network joins all nodes */
    double mean_us;            /* mean round trip */
    int mbps;                  /* of the slowest link; 0: not known */
    bool one_name, one_subnet; /* all addresses share the interface name, the subnet */
};

zt_err zt_links_choose(const struct zt_links_table *t, struct zt_links_choice *out,
                       struct zt_fault *fault) ZT_MUST_CHECK;
void zt_links_choice_release(struct zt_links_choice *c);

/* "eth0 10.0.0.0/24 reaches all 4 nodes, rtt 0.2 ms" */
void zt_links_choice_text(const struct zt_links_table *t, const struct zt_links_choice *c,
                          char *out, size_t out_bytes);
/* Environment of the ranks of node i, {NAME: value}; variables that are already set keep
 * their value. NULL: no memory. */
json_t *zt_links_choice_env(const struct zt_links_table *t,
                            const struct zt_links_choice *c, int i);
/* A line "  n1 cannot reach n0 (10.0.0.1), n2 (...)" for each node that cannot reach all
 * others; *num_pairs: how many ordered pairs failed. Allocated; NULL: no memory. */
char *zt_links_missing_text(const struct zt_links_table *t, int *num_pairs);

#endif
