/*
 * preflight.h -- before ranks start on several nodes: which network joins all of them?
 *
 * The daemons try each other's addresses (worker/daemon/links.h); here is what follows
 * from their answers. One address of each node is chosen, so that every node reaches
 * every other one's: of one subnet, or else of interfaces with one name, or else any.
 * Among such networks the one with the fastest links wins, and where that is not known,
 * or equal, the one with the shortest round trip.
 *
 * Ownership: zt_links_table_*() and zt_links_choice_release() as named; strings of a
 * choice are inside the table. Threads: one.
 */
#ifndef LAUNCHER_PREFLIGHT_H
#define LAUNCHER_PREFLIGHT_H

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
    double mean_us; /* round trip from the other nodes */
    int num_from;   /* of so many of them */
};

struct zt_link_node {
    const char *host; /* not owned */
    bool rdma;        /* it has InfiniBand or the like, which names say nothing about */
    char *ask, *answer;
    struct zt_link_address at[ZT_PREFLIGHT_ADDRESSES]; /* (num) no loopback */
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
/* What node i told in LINKS_HERE and LINKS_FOUND. False: that is not what it should be;
 * the table is as before, or has a part of it. */
bool zt_links_table_here(struct zt_links_table *t, int i, const json_t *here);
bool zt_links_table_found(struct zt_links_table *t, int i, const json_t *found);
/* Forget what was reached. */
void zt_links_table_again(struct zt_links_table *t);

struct zt_links_choice {
    int *at;        /* (num) of each node; NULL: no network joins all */
    double mean_us; /* round trip */
    int mbps;       /* of the slowest; 0: not known */
    bool one_name, one_subnet;
};

zt_err zt_links_choose(const struct zt_links_table *t, struct zt_links_choice *out,
                       struct zt_fault *fault) ZT_MUST_CHECK;
void zt_links_choice_release(struct zt_links_choice *c);

/* "eth0 10.0.0.0/24 reaches all 4 nodes, rtt 0.2 ms" */
void zt_links_choice_text(const struct zt_links_table *t, const struct zt_links_choice *c,
                          char *out, size_t out_bytes);
/* NAME: value that ranks of node i get when they do not have it. NULL: no memory. */
json_t *zt_links_choice_env(const struct zt_links_table *t,
                            const struct zt_links_choice *c, int i);
/* Who cannot reach whom, a line "  n1 cannot reach n0 (10.0.0.1), n2 (...)" for each node
 * that cannot; *num_pairs: so many. With malloc; NULL: no memory. */
char *zt_links_missing_text(const struct zt_links_table *t, int *num_pairs);

/* ---------------------------------------------------------------- in a job */

struct zt_sup;
struct zt_member;
struct zt_frame;
struct zt_preflight;

/*
 * Before a job runs, with all its nodes READY: true while the test goes on; zt_sup_step()
 * is called when it has ended. When it has failed the job is being stopped.
 */
bool zt_preflight_busy(struct zt_sup *s);
void zt_preflight_on_here(struct zt_member *m, const struct zt_frame *f);
void zt_preflight_on_found(struct zt_member *m, const struct zt_frame *f);
/* Put what was chosen into the JOB of a node, and give it back. */
json_t *zt_preflight_apply(const struct zt_sup *s, json_t *job, int node);
void zt_preflight_reset(struct zt_sup *s); /* a new start of the job */

#endif
