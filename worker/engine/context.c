#include "worker/engine/context.h"

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

struct zt_generation zt_generation_of(const struct zt_run *run, int64_t num_prompts,
                                      int64_t longest, int64_t text_size,
                                      int64_t source_size)
{
    int64_t of_rank = (num_prompts + run->world - 1) / run->world;
    struct zt_generation g = {.longest = source_size ? 1 : longest};
    int64_t most = g.longest + run->generate_tokens; /* whose last is read by nobody */

    g.each = run->num_beams > 1 ? run->num_beams : run->num_return_sequences;
    g.rows = least(of_rank > 0 ? of_rank : 1, run->per_device_eval_batch_size) * g.each;
    g.cache_rows = g.rows + (run->num_beams > 1);
    g.tokens = least(most > 1 ? most - 1 : 1, text_size);
    g.restarts = most - 1 > text_size;
    if (source_size) { /* targets to learn from may be shorter than texts to write */
        g.tokens = most > 1 ? most - 1 : 1;
        g.restarts = false;
        g.source_rows = run->num_beams > 1 ? run->num_beams : 1;
        g.num_sources = g.rows / g.source_rows;
        g.source_tokens = least(longest + 1, source_size); /* with the end of bytes */
    }
    return g;
}

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
