/* result.c -- values that an evaluation pass hands out beside the loss. */
#include <string.h>

#include "worker/autograd/tape.h"

void zt_step_result(zt_step *s, const char *name, zt_tensor *t)
{
    size_t bytes = name ? strlen(name) + 1 : 0;
    struct zt_result *r;
    char *copy;

    if (s->pass.mode != ZT_MODE_EVAL || !ZT_OP_START(s, "result", t))
        return;
    if (bytes < 2 || zt_step_find_result(s, name) || t->store->param) {
        zt_step_fail(s, ZT_E_PLUGIN, "%s: %s", bytes < 2 ? "?" : name,
                     bytes < 2         ? "it has no name"
                     : t->store->param ? "a weight is no result"
                                       : "there is one of this name already");
        return;
    }
    t = zt_dense(s, t);
    r = t ? zt_arena_take(s->arena, sizeof(*r) + bytes) : NULL;
    if (!r) {
        zt_step_fail(s, ZT_E_NOMEM, "no host memory");
        return;
    }
    copy = (char *)(r + 1);
    memcpy(copy, name, bytes);
    *r = (struct zt_result){.next = s->results, .name = copy, .t = t};
    s->results = r;
    zt_store_ref(t->store); /* until the step ends */
}
