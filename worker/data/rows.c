#include "worker/data/rows.h"

#include "kernels/philox.h"

/* ---- examples ---- */

static int64_t min(int64_t x, int64_t y)
{
    return x < y ? x : y;
}

/* Of a shorter and a longer text that share `room`. */
static void share(int64_t *shorter, int64_t *longer, int64_t room)
{
    *longer = *shorter > room ? *shorter : min(*longer, room - *shorter);
    if (*longer < *shorter)
        *longer = *shorter;
    if (*shorter + *longer > room) {
        *shorter = room / 2;
        *longer = room - *shorter;
    }
}

int64_t zt_example_cut(const struct zt_row_options *o, const struct zt_example *x,
                       int64_t T, int64_t *a, int64_t *b)
{
    const struct zt_row_frame *f = x->is_pair ? &o->pair : &o->single;
    int64_t frame = (int64_t)(f->before.num + f->between.num + f->after.num);
    int64_t room = T > frame ? T - frame : 0;

    *a = x->first;
    *b = x->is_pair ? (int64_t)x->tokens - x->first : 0;
    if (!x->is_pair)
        *a = min(*a, room);
    else if (*a + *b > room)
        share(*a > *b ? b : a, *a > *b ? a : b, room);
    return min(*a + *b + frame, T);
}

/* ---- masks ---- */

static bool is_in(const struct zt_row_frame_part *p, int32_t id)
{
    size_t i = 0;

    while (i < p->num && p->ids[i] != id)
        i++;
    return i < p->num;
}

/* What frames texts is never to be predicted. */
static bool is_frame(const struct zt_row_options *o, int32_t id)
{
    return is_in(&o->single.before, id) || is_in(&o->single.after, id);
}

#define MASK_KEY UINT64_C(0x6d61736b6564206d) /* apart from other uses of the seed */

void zt_mask_row(const struct zt_row_options *o, int64_t epoch, int64_t place,
                 const int32_t *original, int64_t n, int32_t *tokens, int32_t *targets,
                 int32_t ignore)
{
    const struct zt_masking *m = &o->masking;
    struct zt_philox rng = {.seed = m->seed ^ MASK_KEY,
                            .stream = (uint64_t)epoch << 40 ^ (uint64_t)place};

    for (int64_t i = 0; i < n; i++) {
        int32_t id = original[i];
        bool chosen;
        uint32_t w[4];

        zt_philox_block(rng, (uint64_t)i, w);
        chosen = (double)w[0] < m->probability * 0x1p32 && !is_frame(o, id);
        if (targets)
            targets[i] = chosen ? id : ignore;
        if (chosen && (double)w[1] < 0.8 * 0x1p32)
            id = m->mask;
        else if (chosen && (double)w[1] < 0.9 * 0x1p32)
            id = (int32_t)((uint64_t)w[2] * (uint64_t)m->vocab >> 32);
        if (tokens)
            tokens[i] = id;
    }
}
