#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/engine/checkpoint/private.h"

/* The first rank that failed tells the others why. */
static zt_err pass_on(struct zt_engine *e, int from, zt_err code, struct zt_fault *fault)
{
    struct zt_fault why = {0};
    char text[ZT_FAULT_TEXT];
    zt_err rc;

    memset(text, 0, sizeof(text));
    if (e->run->rank == from)
        snprintf(text, sizeof(text), "%s", fault ? fault->text : "");
    rc = zt_broadcast(e->comm, text, sizeof(text), ZT_U8, from, &why);
    if (rc)
        return zt_fault_set(fault, rc, "%s", why.text);
    text[sizeof(text) - 1] = 0;
    if (e->run->rank != from) {
        zt_fault_set(fault, code, "rank %d: %s", from, text);
        usleep(ZT_PEER_FIRST_US); /* it is the other's to say, if this ends the run */
    }
    return ZT_OK;
}

zt_err zt_ckpt_share_outcome(struct zt_engine *e, const struct zt_ckpt_outcome *mine,
                             struct zt_ckpt_outcome *all, zt_err *refused,
                             struct zt_fault *fault)
{
    enum { WORDS = 3 };
    int world = e->run->world;
    int64_t send[WORDS] = {mine->code, mine->made.bytes, (int64_t)mine->made.index_hash};
    int64_t *got = calloc((size_t)world * WORDS, sizeof(*got));
    zt_err rc;

    *refused = ZT_OK;
    if (!got)
        return zt_fault_set(fault, ZT_E_NOMEM, "checkpoint: no host memory");
    rc = zt_all_gather(e->comm, send, got, WORDS, ZT_I64, mine->code ? NULL : fault);
    for (int r = 0; !rc && r < world; r++) {
        const int64_t *w = got + (size_t)r * WORDS;

        if (all)
            all[r] = (struct zt_ckpt_outcome){w[0], {w[1], (uint64_t)w[2]}};
        if (!w[0] || *refused)
            continue;
        *refused = (zt_err)w[0];
        rc = pass_on(e, r, *refused, fault);
    }
    free(got);
    return rc;
}
