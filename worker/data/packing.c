/*
 * packing.c -- rows by the room that is left in them.
 *
 * Rows with the same room are a list. A bit for each amount of room says whether its list has
 * any, and a bit for each 64 of those, so that the least room of at least n is found in a few
 * words.
 */
#include "worker/data/packing.h"

#include <stdlib.h>
#include <string.h>

#define LEVELS 3
#define NONE   (-1)

struct rooms {
    int64_t
        *newest; /* (capacity + 1): the row with so much room that was put there last */
    int64_t *older; /* (num): the row before it */
    uint64_t *bits[LEVELS];
    int64_t words[LEVELS];
};

/* ---- the bits ---- */

static void set_bit(struct rooms *r, int64_t i)
{
    for (int level = 0; level < LEVELS; level++, i /= 64)
        r->bits[level][i / 64] |= UINT64_C(1) << (i % 64);
}

static void clear_bit(struct rooms *r, int64_t i)
{
    for (int level = 0; level < LEVELS; level++, i /= 64) {
        r->bits[level][i / 64] &= ~(UINT64_C(1) << (i % 64));
        if (r->bits[level][i / 64])
            return;
    }
}

/* The first bit from i on that is set, or NONE. */
static int64_t find_bit(const struct rooms *r, int64_t i)
{
    int level = 0;

    for (;;) { /* up, to a word with such a bit; the highest level is gone through */
        int64_t word = i / 64;
        uint64_t left = word < r->words[level] ? r->bits[level][word] >> (i % 64) : 0;

        if (left) {
            i += __builtin_ctzll(left);
            break;
        }
        if (word >= r->words[level])
            return NONE;
        i = level == LEVELS - 1 ? (word + 1) * 64 : word + 1;
        level += level < LEVELS - 1;
    }
    while (level-- > 0)
        i = i * 64 + __builtin_ctzll(r->bits[level][i]);
    return i;
}

/* ---- rows and their room ---- */

static void rooms_release(struct rooms *r)
{
    free(r->newest);
    free(r->older);
    for (int level = 0; level < LEVELS; level++)
        free(r->bits[level]);
}

static bool rooms_init(struct rooms *r, int64_t num, int64_t capacity)
{
    int64_t n = capacity + 1;
    bool made;

    *r = (struct rooms){.newest = malloc((size_t)n * sizeof(*r->newest)),
                        .older = malloc((size_t)num * sizeof(*r->older))};
    made = r->newest && r->older;
    for (int64_t i = 0; made && i < n; i++)
        r->newest[i] = NONE;
    for (int level = 0; level < LEVELS; level++) {
        n = (n + 63) / 64;
        r->words[level] = n;
        r->bits[level] = calloc((size_t)n, sizeof(*r->bits[level]));
        made = made && r->bits[level];
    }
    return made;
}

static void put_row(struct rooms *r, int64_t row, int64_t room)
{
    r->older[row] = r->newest[room];
    r->newest[room] = row;
    set_bit(r, room);
}

/* The row with the least room of at least `size`, or NONE; it is taken out. */
static int64_t take_row(struct rooms *r, int64_t size, int64_t *room)
{
    int64_t row;

    *room = find_bit(r, size);
    if (*room == NONE)
        return NONE;
    row = r->newest[*room];
    r->newest[*room] = r->older[row];
    if (r->newest[*room] == NONE)
        clear_bit(r, *room);
    return row;
}

/* ---- packing ---- */

/* Samples by size, the largest first. False: no memory. */
static bool sort_by_size(const uint32_t *sizes, int64_t num, int64_t capacity,
                         int64_t *samples)
{
    int64_t *at = calloc((size_t)capacity + 2, sizeof(*at));

    if (!at)
        return false;
    for (int64_t i = 0; i < num; i++) /* at[k]: how many of k - 1 */
        at[capacity - sizes[i] + 1]++;
    for (int64_t k = 1; k <= capacity; k++)
        at[k] += at[k - 1];
    for (int64_t i = 0; i < num; i++)
        samples[at[capacity - sizes[i]]++] = i;
    free(at);
    return true;
}

/* row_of[i]: the row of samples[i]; returns how many rows there are. */
static int64_t choose_rows(struct rooms *r, const uint32_t *sizes, int64_t num,
                           int64_t capacity, const int64_t *samples, int64_t *row_of)
{
    int64_t num_rows = 0;

    for (int64_t i = 0; i < num; i++) {
        int64_t size = sizes[samples[i]], room, row = take_row(r, size, &room);

        if (row == NONE) {
            row = num_rows++;
            room = capacity;
        }
        if (room > size)
            put_row(r, row, room - size);
        row_of[i] = row;
    }
    return num_rows;
}

/* Samples row by row, in the order in which they came. */
static zt_err list_rows(struct zt_packing *p, const int64_t *sorted,
                        const int64_t *row_of, int64_t num, int64_t num_rows,
                        struct zt_fault *fault)
{
    struct zt_packing made = {.samples = malloc((size_t)num * sizeof(*made.samples)),
                              .first = calloc((size_t)num_rows + 2, sizeof(*made.first)),
                              .num_rows = num_rows};

    if (!made.samples || !made.first) {
        zt_packing_release(&made);
        return zt_fault_set(fault, ZT_E_NOMEM, "packing of samples: no memory");
    }
    for (int64_t i = 0; i < num; i++) /* two behind: the next loop moves them by one */
        made.first[row_of[i] + 2]++;
    for (int64_t row = 2; row <= num_rows; row++)
        made.first[row] += made.first[row - 1];
    for (int64_t i = 0; i < num; i++)
        made.samples[made.first[row_of[i] + 1]++] = sorted[i];
    *p = made;
    return ZT_OK;
}

zt_err zt_packing_make(struct zt_packing *p, const uint32_t *sizes, int64_t num,
                       int64_t capacity, struct zt_fault *fault)
{
    int64_t *sorted = calloc((size_t)num, sizeof(*sorted));
    int64_t *row_of = calloc((size_t)num, sizeof(*row_of));
    struct rooms r;
    bool room = rooms_init(&r, num, capacity);
    zt_err rc = ZT_E_NOMEM;

    if (sorted && row_of && room && sort_by_size(sizes, num, capacity, sorted))
        rc = list_rows(p, sorted, row_of, num,
                       choose_rows(&r, sizes, num, capacity, sorted, row_of), fault);
    else
        zt_fault_set(fault, rc, "packing of samples: no memory");
    rooms_release(&r);
    free(sorted);
    free(row_of);
    return rc;
}

void zt_packing_release(struct zt_packing *p)
{
    free(p->samples);
    free(p->first);
    *p = (struct zt_packing){.num_rows = 0};
}
