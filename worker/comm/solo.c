/*
 * solo.c -- a world of one: the slow, obvious meaning of every collective.
 *
 * Data moves from send to recv only; a sum of one term is scaled and rounded, one
 * element at a time, with the definitions of half.h.
 */
#include "worker/comm/engine.h"
#include "worker/comm/reduce.h"
#include "common/half.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct solo_region {
    struct solo_region *next;
    void *at;
    size_t bytes;
};

struct solo {
    struct solo *root; /* itself, or of a group: what it was split from */
    struct solo_region *regions;
    _Atomic int blamed; /* root: rank + 1 once aborted */
};

static zt_err new_solo(struct solo *root, void **self, struct zt_fault *fault)
{
    struct solo *s = calloc(1, sizeof(*s));

    if (!s)
        return zt_fault_set(fault, ZT_E_NOMEM, "comm: out of memory");
    s->root = root ? root : s;
    *self = s;
    return ZT_OK;
}

static zt_err solo_open(const struct zt_comm_config *cfg, void **self,
                        struct zt_fault *fault)
{
    if (cfg->world != 1)
        return zt_fault_set(fault, ZT_E_ARG, "comm: solo is for a world of 1, not %d",
                            cfg->world);
    return new_solo(NULL, self, fault);
}

static void solo_close(void *self)
{
    struct solo *s = self;
    struct solo_region *next;

    if (!s)
        return;
    for (struct solo_region *r = s->regions; r; r = next) {
        next = r->next;
        munmap(r->at, r->bytes);
        free(r);
    }
    free(s);
}

static zt_err solo_alloc(void *self, size_t bytes, bool shared, void **out,
                         struct zt_fault *fault)
{
    struct solo *s = self;
    struct solo_region *r = malloc(sizeof(*r));

    (void)shared; /* a world of one shares with itself */
    if (!r)
        return zt_fault_set(fault, ZT_E_NOMEM, "comm: out of memory");
    r->bytes = bytes ? bytes : 1;
    r->at =
        mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r->at == MAP_FAILED) {
        free(r);
        return zt_fault_set(fault, ZT_E_NOMEM, "comm: no memory for %zu bytes: %s", bytes,
                            strerror(errno));
    }
    r->next = s->regions;
    s->regions = r;
    *out = r->at;
    return ZT_OK;
}

/* recv = round(send * scale) */
static void scale_floats(const struct zt_comm_call *call)
{
    for (size_t i = 0; i < call->count; i++) {
        if (call->dtype == ZT_F32)
            ((float *)call->recv)[i] = ((const float *)call->send)[i] * call->scale;
        else if (call->dtype == ZT_BF16)
            ((uint16_t *)call->recv)[i] = zt_bf16_of_float(
                zt_float_of_bf16(((const uint16_t *)call->send)[i]) * call->scale);
        else
            ((uint16_t *)call->recv)[i] = zt_f16_of_float(
                zt_float_of_f16(((const uint16_t *)call->send)[i]) * call->scale);
    }
}

static zt_err solo_run(void *self, const struct zt_comm_call *call,
                       struct zt_fault *fault)
{
    struct solo *s = self;
    int blamed = atomic_load(&s->root->blamed);
    bool sums = call->op == ZT_COMM_ALL_REDUCE || call->op == ZT_COMM_REDUCE_SCATTER;

    if (blamed)
        return zt_fault_set(fault, ZT_E_PEER, "comm: %s: rank %d has failed",
                            zt_comm_op_name(call->op), blamed - 1);
    if (call->op == ZT_COMM_BARRIER || call->op == ZT_COMM_SUM_F64)
        return ZT_OK;
    if (sums && call->dtype <= ZT_F16)
        scale_floats(call);
    else if (call->send != call->recv && call->count)
        memcpy(call->recv, call->send, call->count * zt_dtype_bytes(call->dtype));
    return ZT_OK;
}

static zt_err solo_split(void *self, const int *members, int num_members, int my_index,
                         int group_id, void **group_self, struct zt_fault *fault)
{
    struct solo *s = self;

    (void)members, (void)num_members, (void)my_index, (void)group_id;
    return new_solo(s->root, group_self, fault);
}

static void solo_abort(void *self, int rank)
{
    struct solo *s = self;
    int none = 0;

    atomic_compare_exchange_strong(&s->root->blamed, &none, rank + 1);
}

static bool solo_failed(const void *self, struct zt_fault *fault)
{
    const struct solo *s = self;
    int blamed = atomic_load(&s->root->blamed);

    if (blamed)
        zt_fault_set(fault, ZT_E_PEER, "comm: rank %d has failed", blamed - 1);
    return blamed != 0;
}

static bool solo_is_default(const struct zt_comm_config *cfg)
{
    return cfg->world == 1;
}

const struct zt_comm_engine zt_comm_solo = {
    .ops = {.close = solo_close,
            .split = solo_split,
            .abort = solo_abort,
            .failed = solo_failed},
    .name = "solo",
    .can_share = true,
    .needs = ZT_COMM_NEEDS_NOTHING,
    .is_default = solo_is_default,
    .open = solo_open,
    .alloc = solo_alloc,
    .run = solo_run,
};
