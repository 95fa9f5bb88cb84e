#include "worker/data/samples.h"

#include <stdlib.h>

static zt_err make_room(struct zt_samples *s, int64_t more, struct zt_fault *fault)
{
    size_t num = (size_t)(s->num + more);
    int64_t *at = realloc(s->at, (num ? num : 1) * sizeof(*at));
    uint32_t *n;

    if (at)
        s->at = at;
    n = at ? realloc(s->n, (num ? num : 1) * sizeof(*n)) : NULL;
    if (n)
        s->n = n;
    return n ? ZT_OK : zt_fault_set(fault, ZT_E_NOMEM, "data files: no memory");
}

zt_err zt_samples_add(struct zt_samples *s, int64_t at, const uint32_t *lengths,
                      int64_t num, struct zt_fault *fault)
{
    zt_err rc = make_room(s, num, fault);

    for (int64_t i = 0; !rc && i < num; at += lengths[i++]) {
        if (lengths[i] < 2) {
            s->num_short++;
            continue;
        }
        s->at[s->num] = at;
        s->n[s->num++] = lengths[i];
    }
    return rc;
}

void zt_samples_release(struct zt_samples *s)
{
    free(s->at);
    free(s->n);
    *s = (struct zt_samples){.num = 0};
}
