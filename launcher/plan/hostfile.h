/*
 * hostfile.h -- hosts and their slots: the file, and the filters that choose among them.
 *
 *      line     [USER@]HOST[:PORT] slots=N      blank lines and lines starting with # are
 *               skipped; an IPv6 address with a port stands in brackets: [fe80::1]:22
 *      filter   NODE['@'NODE...], NODE = HOST[':'SLOT[','SLOT...]]; a bare HOST means all
 *               of its slots; slots of a repeated one are merged; IPv6 in brackets
 *
 * Order of lines is order of ranks; a filter never changes it. Hosts left without slots
 * disappear; no host left is an error. A host stands in a file once, unless each of its
 * lines has a port of its own.
 * Ownership: the caller owns the struct, the struct its arrays.
 * Threads:   one.
 */
#ifndef LAUNCHER_PLAN_HOSTFILE_H
#define LAUNCHER_PLAN_HOSTFILE_H

#include "common/fault.h"

#define ZT_MAX_SLOTS 4096 /* of one host */

struct zt_host {
    char *name; /* without user, port and brackets */
    char *user; /* NULL: none given */
    int port;   /* 0: none given */
    int num_slots;
    int *slots; /* (num_slots) ascending */
};

struct zt_hosts {
    struct zt_host *host; /* (num) */
    int num;
};

/* ZT_E_NOINPUT: no such file; ZT_E_USAGE with file:line for anything else in it. */
zt_err zt_hosts_read(const char *path, struct zt_hosts *out,
                     struct zt_fault *fault) ZT_MUST_CHECK;
/* The same from memory; `name` stands in messages. */
zt_err zt_hosts_parse(const char *text, size_t bytes, const char *name,
                      struct zt_hosts *out, struct zt_fault *fault) ZT_MUST_CHECK;
/* One host of slots 0..num_slots-1. */
zt_err zt_hosts_one(const char *name, int num_slots, struct zt_hosts *out,
                    struct zt_fault *fault) ZT_MUST_CHECK;
void zt_hosts_release(struct zt_hosts *h);

/* ZT_E_USAGE, hosts unchanged: malformed, an unknown host or slot, or nothing is left. */
zt_err zt_hosts_include(struct zt_hosts *h, const char *spec,
                        struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_hosts_exclude(struct zt_hosts *h, const char *spec,
                        struct zt_fault *fault) ZT_MUST_CHECK;
/* The first num_hosts hosts, slots 0..num_slots-1 of each; -1: all. */
zt_err zt_hosts_limit(struct zt_hosts *h, int num_hosts, int num_slots,
                      struct zt_fault *fault) ZT_MUST_CHECK;

int zt_hosts_total(const struct zt_hosts *h); /* slots of all hosts */
/* Is it this machine, by a name that says so? One with a user or a port is reached by ssh. */
bool zt_host_is_here(const struct zt_host *h);

#endif
