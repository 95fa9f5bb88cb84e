#include "worker/data/samples.h"

#include <stdlib.h>
#include <string.h>

static zt_err make_room(struct zt_samples *s, int64_t more, bool pairs,
                        struct zt_fault *fault)
{
    size_t num = (size_t)(s->num + more);
    int64_t *at = realloc(s->at, (num ? num : 1) * sizeof(*at));
    uint32_t *n;

    if (at)
        s->at = at;
    n = at ? realloc(s->n, (num ? num : 1) * sizeof(*n)) : NULL;
    if (n)
        s->n = n;
    if (n && pairs) {
        n = realloc(s->source, (num ? num : 1) * sizeof(*n));
        s->source = n ? n : s->source;
    }
    return n ? ZT_OK : zt_fault_set(fault, ZT_E_NOMEM, "data files: no memory");
}

zt_err zt_samples_add(struct zt_samples *s, int64_t at, const uint32_t *lengths,
                      const uint32_t *sources, int64_t num, uint32_t least,
                      struct zt_fault *fault)
{
    zt_err rc = make_room(s, num, sources != NULL, fault);

    for (int64_t i = 0; !rc && i < num; at += lengths[i++]) {
        if (lengths[i] < least ||
            (sources && (!sources[i] || sources[i] == lengths[i]))) {
            s->num_short++;
            continue;
        }
        if (sources)
            s->source[s->num] = sources[i];
        s->at[s->num] = at;
        s->n[s->num++] = lengths[i];
    }
    return rc;
}

zt_err zt_samples_add_examples(struct zt_samples *s, int64_t at, const uint32_t *words,
                               int64_t num_words, struct zt_fault *fault)
{
    int64_t num = num_words / (int64_t)ZT_EXAMPLE_WORDS;
    struct zt_example *more;
    zt_err rc = make_room(s, num, false, fault);

    if (rc)
        return rc;
    more = realloc(s->examples, (size_t)(s->num + num + 1) * sizeof(*more));
    if (!more)
        return zt_fault_set(fault, ZT_E_NOMEM, "data files: no memory");
    s->examples = more;
    memcpy(more + s->num, words, (size_t)num * sizeof(*more));
    for (int64_t i = 0; i < num; i++) {
        s->at[s->num] = at;
        s->n[s->num] = more[s->num].tokens;
        at += s->n[s->num++];
    }
    return ZT_OK;
}

void zt_samples_release(struct zt_samples *s)
{
    free(s->examples);
    free(s->at);
    free(s->n);
    free(s->source);
    *s = (struct zt_samples){.num = 0};
}
