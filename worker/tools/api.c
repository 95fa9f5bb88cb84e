/* api.c -- the public header checkpoint.h: a source, and texts instead of faults. */
#include <stdio.h>
#include <string.h>

#include "worker/tools/source.h"

static zt_err tell(zt_err rc, const struct zt_fault *fault, char *why, size_t bytes)
{
    if (rc && why && bytes)
        snprintf(why, bytes, "%s", fault->text);
    return rc;
}

zt_err zt_checkpoint_open(const char *path, const char *tag, zt_checkpoint **out,
                          char *why, size_t why_bytes)
{
    struct zt_fault fault = {0};
    struct zt_checkpoint_source *s = NULL;
    zt_err rc = zt_source_open(path, tag, &s, &fault);

    if (rc)
        return tell(rc, &fault, why, why_bytes);
    *out = (zt_checkpoint *)s;
    return ZT_OK;
}

void zt_checkpoint_close(zt_checkpoint *c)
{
    zt_source_close((struct zt_checkpoint_source *)c);
}

int zt_checkpoint_count(const zt_checkpoint *c)
{
    return ((const struct zt_checkpoint_source *)c)->num;
}

const struct zt_checkpoint_tensor *zt_checkpoint_at(const zt_checkpoint *c, int i)
{
    const struct zt_checkpoint_source *s = (const struct zt_checkpoint_source *)c;

    return i >= 0 && i < s->num ? &s->tensors[i].t : NULL;
}

int zt_checkpoint_find(const zt_checkpoint *c, const char *name)
{
    return zt_source_find((const struct zt_checkpoint_source *)c, name);
}

zt_err zt_checkpoint_read(zt_checkpoint *c, int i, int64_t first, int64_t n, float *out,
                          char *why, size_t why_bytes)
{
    struct zt_checkpoint_source *s = (struct zt_checkpoint_source *)c;
    struct zt_fault fault = {0};
    zt_err rc;

    if (i < 0 || i >= s->num)
        rc = zt_fault_set(&fault, ZT_E_ARG, "%s: tensor %d of %d", s->path, i, s->num);
    else
        rc = zt_source_read(s, 0, i, first, n, out, &fault);
    return tell(rc, &fault, why, why_bytes);
}
