/*
 * collect.c -- a round takes the texts of some items of each rank: all ranks learn how many
 * bytes the most have, and send as many, filled up with zeros. Before a text are its bytes, uint64_t.
 */
#include "worker/generate/collect.h"

#include <stdlib.h>
#include <string.h>

#define ROUND 64 /* items of a rank in a round */

zt_err zt_collect_begin(struct zt_buf *mine, size_t *at)
{
    const uint64_t unknown = 0;

    *at = zt_buf_used(mine);
    return zt_buf_put(mine, &unknown, sizeof(unknown));
}

void zt_collect_end(struct zt_buf *mine, size_t at)
{
    uint64_t n = zt_buf_used(mine) - at - sizeof(n);

    memcpy(mine->data + mine->off + at, &n, sizeof(n));
}

/* Bytes of the text at p. */
static size_t length_of(const void *p)
{
    uint64_t n;

    memcpy(&n, p, sizeof(n));
    return (size_t)n;
}

/* The texts of items [first, last) from what the ranks sent, (world, bytes). */
static zt_err take_round(const char *all, size_t bytes, int world, int64_t each,
                         int64_t first, int64_t last, zt_take_text take, void *user,
                         struct zt_fault *fault)
{
    size_t *at = calloc((size_t)world, sizeof(*at));
    zt_err rc = ZT_OK;

    if (!at)
        return zt_fault_set(fault, ZT_E_NOMEM, "generation: no host memory");
    for (int64_t t = first * each; !rc && t < last * each; t++) {
        int64_t i = t / each;
        size_t r = (size_t)(i % world);
        const char *text = all + r * bytes + at[r] + sizeof(uint64_t);
        size_t n = length_of(all + r * bytes + at[r]);

        at[r] += sizeof(uint64_t) + n;
        rc = take(user, i, text, n, fault);
    }
    free(at);
    return rc;
}

/* Bytes [from, to) of mine to all ranks; `all` is (world, *bytes), the caller's. */
static zt_err share(struct zt_comm *c, const struct zt_buf *mine, size_t from, size_t to,
                    char **all, size_t *bytes, struct zt_fault *fault)
{
    int64_t most = (int64_t)(to - from), world = zt_comm_world(c);
    char *sent;
    zt_err rc = zt_all_reduce(c, &most, &most, 1, ZT_I64, ZT_MAX, 1, fault);

    if (rc)
        return rc;
    *bytes = ((size_t)most + sizeof(int32_t)) / sizeof(int32_t) * sizeof(int32_t);
    sent = calloc(1, *bytes);
    *all = malloc(*bytes * (size_t)world);
    if (!sent || !*all) {
        free(sent);
        return zt_fault_set(fault, ZT_E_NOMEM, "generation: no host memory");
    }
    if (to > from)
        memcpy(sent, zt_buf_head(mine) + from, to - from);
    rc = zt_all_gather(c, sent, *all, *bytes / sizeof(int32_t), ZT_I32, fault);
    free(sent);
    return rc;
}

zt_err zt_collect_texts(struct zt_comm *c, int64_t num, int64_t each,
                        const struct zt_buf *mine, zt_take_text take, void *user,
                        struct zt_fault *fault)
{
    int world = zt_comm_world(c);
    int64_t round = (int64_t)ROUND * world;
    zt_err rc = ZT_OK, taken = ZT_OK;
    struct zt_fault why = {0};
    size_t at = 0;

    for (int64_t first = 0; !rc && first < num; first += round) {
        int64_t last = first + round < num ? first + round : num;
        char *all = NULL;
        size_t bytes = 0, to = at;

        for (int64_t i = 0; i < ROUND * each && to < zt_buf_used(mine); i++)
            to += sizeof(uint64_t) + length_of(zt_buf_head(mine) + to);
        rc = share(c, mine, at, to, &all, &bytes, fault);
        if (!rc && !taken && zt_comm_rank(c) == 0)
            taken = take_round(all, bytes, world, each, first, last, take, user, &why);
        free(all);
        at = to;
    }
    if (!rc && taken && fault)
        *fault = why;
    return rc ? rc : taken;
}
