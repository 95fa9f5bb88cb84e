/*
 * hostlist.h -- Slurm's short forms: lists of hosts, and lists of counts.
 *
 *      list    := item ( sep item )*          sep: one or more of  ,  blank  newline
 *      item    := text ( '[' ranges ']' text )*
 *      ranges  := range ( ',' range )*
 *      range   := number | number '-' number
 *      counts  := count [ '(x' repeat ')' ] ( ',' count [ '(x' repeat ')' ] )*
 *
 * A number of a range has at least as many digits as its low bound is written with:
 * [08-11] is 08 09 10 11, [9-011] is 9 10 11. The leftmost bracket varies slowest. Names
 * come in the order of the list, a name twice comes twice.
 * Bounds:    ZT_HOSTLIST_MAX names of ZT_HOSTLIST_NAME bytes; more is ZT_E_LIMIT before
 *            any memory is taken for it.
 * Ownership: the caller owns the struct, the struct its names.
 * Threads:   any.
 */
#ifndef COMMON_HOSTLIST_H
#define COMMON_HOSTLIST_H

#include "common/fault.h"

#define ZT_HOSTLIST_MAX  262144
#define ZT_HOSTLIST_NAME 255 /* bytes of a name */

struct zt_hostlist {
    char **name; /* (num) */
    int num;
};

/* ZT_E_USAGE with the place for anything that is no list; an empty list has no names. */
zt_err zt_hostlist_expand(const char *text, struct zt_hostlist *out,
                          struct zt_fault *fault) ZT_MUST_CHECK;
void zt_hostlist_release(struct zt_hostlist *h);

/*
 * "2(x3),1" is 2 2 2 1: the counts of exactly num_nodes nodes. *out: (num_nodes),
 * allocated. ZT_E_USAGE: no such list, or of another length.
 */
zt_err zt_counts_expand(const char *text, int num_nodes, int **out,
                        struct zt_fault *fault) ZT_MUST_CHECK;

#endif
