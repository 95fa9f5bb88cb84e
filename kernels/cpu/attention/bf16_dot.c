#include "kernels/cpu/attention/bf16_dot.h"

#include "kernels/integers.h"

bool zt_dot_attention_is_supported(const struct zt_attention_task *t)
{
    /* pairs along dim are read from q and dout in place, unless they are packed */
    return t->operand == ZT_BF16 && zt_dot_is_supported() &&
           (t->dim % 2 == 0 || zt_dot_form()->pack_rows);
}

size_t zt_dot_transposed_words(const struct zt_attention_task *t)
{
    return zt_dot_words(t->dim, t->tk, ZT_DOT_B_WIDTH);
}

size_t zt_dot_row_major_words(const struct zt_attention_task *t)
{
    return zt_dot_words(t->tk, t->dim, ZT_DOT_B_WIDTH);
}

void zt_dot_pack_keys(const struct zt_attention_task *t, const struct zt_dot_keys *k,
                      const struct zt_view *v, int64_t b, int64_t h)
{
    const uint16_t *src = zt_attention_at(v, b, k->from, h);

    if (k->transposed)
        zt_dot_pack_transposed(k->transposed, src, v->stride[1], t->dim, k->keys);
    if (k->row_major)
        zt_dot_pack(k->row_major, src, v->stride[1], k->keys, t->dim);
}

static int64_t rows_of(const struct zt_attention_task *t)
{
    return zt_min(t->tq, t->rows_of);
}

size_t zt_dot_left_words(const struct zt_attention_task *t)
{
    const struct zt_dot_form *form = zt_dot_form();

    return form->pack_rows ? zt_dot_words(t->dim, rows_of(t), form->left_rows) : 0;
}

struct zt_dot_left zt_dot_left_rows(const struct zt_attention_task *t,
                                    const struct zt_strip *s,
                                    const struct zt_attention_operand *rows,
                                    uint32_t *words)
{
    if (!zt_dot_form()->pack_rows)
        return zt_dot_left_in_place(rows->data, rows->ld);
    zt_dot_pack_left_rows(words, rows->data, rows->ld, t->dim, s->rows);
    return zt_dot_left(words, t->dim, 0, 0);
}

void zt_dot_scores(const struct zt_attention_task *t, const struct zt_strip *s,
                   const struct zt_dot_left *left, const struct zt_dot_keys *k,
                   float *scores)
{
    const int64_t group = zt_dot_form()->rows;
    int64_t panel = zt_dot_pairs(t->dim) * ZT_DOT_B_WIDTH;
    const uint32_t *b = k->transposed + (s->lo - k->from) / ZT_DOT_B_WIDTH * panel;
    struct zt_dot d = {.pairs = (t->dim + 1) / 2,
                       .a = *left,
                       .b_panel = panel,
                       .ldc = t->ld,
                       .alpha = 1};

    for (int64_t row = 0; row < s->rows; row += group) {
        int64_t lo, hi;

        d.m = zt_min(group, s->rows - row);
        zt_attention_seen(t, s, row, d.m, &lo, &hi);
        lo = lo / ZT_DOT_B_WIDTH;
        d.a.data =
            (const char *)left->data + row / 16 * left->rows16 + row % 16 * left->row;
        d.b = b + lo * panel;
        d.c = scores + row * t->ld + lo * ZT_DOT_B_WIDTH;
        d.n = zt_attention_lanes(hi) - lo * ZT_DOT_B_WIDTH;
        if (hi > lo * ZT_DOT_B_WIDTH)
            zt_dot_product(&d);
    }
}

void zt_dot_values(const struct zt_attention_task *t, const struct zt_strip *s,
                   const float *probs, const struct zt_dot_keys *k, float *out)
{
    const int64_t group = zt_dot_form()->rows;
    const int64_t step = zt_dot_form()->pairs;
    const uint32_t *b = k->row_major + (s->lo - k->from) / 2 * ZT_DOT_B_WIDTH;
    struct zt_dot d = {.n = t->dim,
                       .b_panel = zt_dot_pairs(k->keys) * ZT_DOT_B_WIDTH,
                       .ldc = t->dim,
                       .alpha = 1,
                       .accumulate = true};

    for (int64_t row = 0; row < s->rows; row += group) {
        int64_t lo, hi;

        d.m = zt_min(group, s->rows - row);
        zt_attention_seen(t, s, row, d.m, &lo, &hi);
        lo = lo / 2 / step * step;
        d.pairs = zt_dot_pairs(hi) - lo;
        /* two bf16 are as wide as a float */
        d.a = zt_dot_left_in_place(
            (const uint16_t *)(const void *)(probs + row * t->ld + lo), 2 * t->ld);
        d.b = b + lo * ZT_DOT_B_WIDTH;
        d.c = out + row * t->dim;
        if (hi > 2 * lo)
            zt_dot_product(&d);
    }
}

size_t zt_dot_rows_words(const struct zt_attention_task *t)
{
    return zt_dot_words(rows_of(t), t->dim, ZT_DOT_B_WIDTH);
}

void zt_dot_pack_rows(const struct zt_attention_task *t, const struct zt_strip *s,
                      const struct zt_attention_operand *rows, uint32_t *words)
{
    zt_dot_pack(words, rows->data, rows->ld, s->rows, t->dim);
}

size_t zt_dot_sums_words(const struct zt_attention_task *t)
{
    return zt_dot_words(rows_of(t), zt_min(t->tk, t->keys_of), zt_dot_form()->left_rows);
}

/* The rows [*from, *to] of a strip that see any of its columns [key, end). Without limits of
 * keys both rise from panel to panel, so the search goes on from where it was. */
struct seen_rows {
    int64_t lo[ZT_STRIP], hi[ZT_STRIP]; /* the columns that each row sees */
};

static bool find_rows(const struct zt_attention_task *t, const struct zt_strip *s,
                      const struct seen_rows *seen, int64_t key, int64_t end,
                      int64_t *from, int64_t *to)
{
    if (t->limited) {
        *from = s->rows;
        for (int64_t i = 0; i < s->rows; i++)
            if (seen->lo[i] < end && seen->hi[i] > key && seen->lo[i] < seen->hi[i]) {
                *from = zt_min(*from, i);
                *to = i;
            }
        return *from < s->rows;
    }
    while (*from < s->rows - 1 && seen->hi[*from] <= key)
        ++*from;
    *to = zt_max(*to, *from);
    while (*to < s->rows - 1 && seen->lo[*to] < end)
        ++*to;
    return true;
}

void zt_dot_sums(const struct zt_attention_task *t, const struct zt_strip *s,
                 const float *probs, const uint32_t *right, float *sums, uint32_t *buf)
{
    const int64_t step = zt_dot_form()->pairs, width = zt_dot_form()->left_rows;
    int64_t from = 0, to = 0;
    struct seen_rows seen = {.lo = {0}};
    struct zt_dot d = {.n = t->dim,
                       .b_panel = zt_dot_pairs(s->rows) * ZT_DOT_B_WIDTH,
                       .ldc = t->dim,
                       .alpha = 1,
                       .accumulate = true};

    zt_dot_pack_left(buf, (const uint16_t *)(const void *)probs, 2 * t->ld, s->rows,
                     s->keys);
    for (int64_t i = 0; i < s->rows; i++)
        zt_attention_visible(t, s, s->row + i, &seen.lo[i], &seen.hi[i]);
    for (int64_t key = 0; key < s->keys; key += width) {
        int64_t first;

        d.m = zt_min(width, s->keys - key);
        if (!find_rows(t, s, &seen, key, key + d.m, &from, &to))
            continue;
        first = from / 2 / step * step;
        d.pairs = zt_dot_pairs(to + 1) - first;
        d.a = zt_dot_left(buf, s->rows, key, first);
        d.b = right + first * ZT_DOT_B_WIDTH;
        d.c = sums + key * t->dim;
        zt_dot_product(&d);
    }
}
