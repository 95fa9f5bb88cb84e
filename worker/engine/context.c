#include "worker/engine/context.h"

void zt_context_begin(struct zt_context *c, int64_t size, bool cached, int64_t n)
{
    *c = (struct zt_context){.size = size, .cached = cached};
    if (n > size)
        c->start = c->fed = n - size;
}

int64_t zt_context_next(struct zt_context *c, int64_t n, bool *restart)
{
    int64_t from;

    *restart = n - c->start > c->size;
    if (*restart)
        c->start = c->fed = n - (c->size + 1) / 2;
    from = c->cached ? c->fed : c->start;
    c->fed = n;
    return from;
}
