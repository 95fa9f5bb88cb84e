/*
 * members.h -- who belongs to a job and is connected; names for messages.
 *
 * Ownership: the caller owns the struct, the struct its arrays.
 * Threads:   one.
 */
#ifndef STORE_NATIVE_MEMBERS_H
#define STORE_NATIVE_MEMBERS_H

#include "store/core/kv.h"

struct zt_member {
    char *label; /* "node04 pid 77"; NULL: never connected */
    bool connected;
};

struct zt_members {
    const char *noun;         /* "rank" */
    struct zt_member *member; /* (count) */
    uint32_t count;           /* 0: not known yet */
    uint32_t connected;
};

/*
 * Member `index` of `count` is here. ZT_E_ARG with a sentence in `text`: it is already,
 * or others spoke of another count. ZT_E_NOMEM.
 */
zt_err zt_members_join(struct zt_members *m, uint32_t index, uint32_t count,
                       struct zt_span label, char *text, size_t text_bytes) ZT_MUST_CHECK;
void zt_members_leave(struct zt_members *m, uint32_t index);
void zt_members_release(struct zt_members *m);

/* A short list of names being written. */
struct zt_names {
    char *text;
    size_t bytes, used;
    uint32_t num;
};

/* Add a name and what is known of it: "rank 3 (never connected)"; a few are shown. */
void zt_names_add(struct zt_names *n, const struct zt_members *m, uint32_t index);
/* " and 12 others" where they were more than a few. */
void zt_names_end(struct zt_names *n);

#endif
