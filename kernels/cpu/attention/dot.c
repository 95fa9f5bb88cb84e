#include "kernels/cpu/attention/dot.h"

#include "kernels/cpu/gemm/dot.h"

#define GROUP 12 /* rows that share one end of their keys: two blocks of registers */

bool zt_dot_attention_is_supported(const struct zt_attention_task *t)
{
    /* pairs along dim are read from q and dout in place */
    return t->operand == ZT_BF16 && t->dim % 2 == 0 && zt_dot_is_supported();
}

static int64_t pairs_of(int64_t n)
{
    return (n + 1) / 2;
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
        zt_dot_pack_transposed(k->transposed, ZT_DOT_B_WIDTH, src, v->stride[1], t->dim,
                               k->keys);
    if (k->row_major)
        zt_dot_pack(k->row_major, ZT_DOT_B_WIDTH, src, v->stride[1], k->keys, t->dim);
}

/* The columns of the strip that any of rows [row, row + rows) of it sees. */
static void seen(const struct zt_attention_task *t, const struct zt_strip *s, int64_t row,
                 int64_t rows, int64_t *lo, int64_t *hi)
{
    int64_t unused;

    zt_attention_visible(t, s, s->row + row, lo, &unused);
    zt_attention_visible(t, s, s->row + row + rows - 1, &unused, hi);
}

static int64_t group_rows(const struct zt_strip *s, int64_t row)
{
    return s->rows - row < GROUP ? s->rows - row : GROUP;
}

void zt_dot_scores(const struct zt_attention_task *t, const struct zt_strip *s,
                   const struct zt_attention_operand *left, const struct zt_dot_keys *k,
                   float alpha, float *scores)
{
    int64_t pairs = pairs_of(t->dim), panel = pairs * ZT_DOT_B_WIDTH;
    const uint32_t *b = k->transposed + (s->lo - k->from) / ZT_DOT_B_WIDTH * panel;
    struct zt_dot d = {.pairs = pairs,
                       .a_row = left->ld * (int64_t)sizeof(uint16_t),
                       .a_pair = sizeof(uint32_t),
                       .b_panel = panel,
                       .ldc = t->ld,
                       .alpha = alpha};

    for (int64_t row = 0; row < s->rows; row += GROUP) {
        int64_t lo, hi;

        d.m = group_rows(s, row);
        seen(t, s, row, d.m, &lo, &hi);
        lo = lo / ZT_DOT_B_WIDTH;
        d.a = (const uint16_t *)left->data + row * left->ld;
        d.b = b + lo * panel;
        d.c = scores + row * t->ld + lo * ZT_DOT_B_WIDTH;
        d.n = hi - lo * ZT_DOT_B_WIDTH;
        if (d.n > 0)
            zt_dot_product(&d);
    }
}

void zt_dot_values(const struct zt_attention_task *t, const struct zt_strip *s,
                   const float *probs, const struct zt_dot_keys *k, float alpha,
                   float *out)
{
    const uint32_t *b = k->row_major + (s->lo - k->from) / 2 * ZT_DOT_B_WIDTH;
    struct zt_dot d = {.n = t->dim,
                       .a_row = t->ld * (int64_t)sizeof(float),
                       .a_pair = sizeof(uint32_t),
                       .b_panel = pairs_of(k->keys) * ZT_DOT_B_WIDTH,
                       .ldc = t->dim,
                       .alpha = alpha};

    for (int64_t row = 0; row < s->rows; row += GROUP) {
        int64_t lo, hi;

        d.m = group_rows(s, row);
        seen(t, s, row, d.m, &lo, &hi);
        lo /= 2;
        d.pairs = hi > 2 * lo ? pairs_of(hi) - lo : 0;
        d.a = probs + row * t->ld + lo; /* two bf16 are as wide as a float */
        d.b = b + lo * ZT_DOT_B_WIDTH;
        d.c = out + row * t->dim;
        zt_dot_product(&d);
    }
}

size_t zt_dot_sums_words(const struct zt_attention_task *t)
{
    int64_t rows = t->tq < t->rows_of ? t->tq : t->rows_of;

    return zt_dot_words(rows, t->tk, ZT_DOT_A_WIDTH) +
           zt_dot_words(rows, t->dim, ZT_DOT_B_WIDTH);
}

void zt_dot_sums(const struct zt_attention_task *t, const struct zt_strip *s,
                 const float *probs, const struct zt_attention_operand *right,
                 float alpha, float *sums, uint32_t *buf)
{
    int64_t pairs = pairs_of(s->rows), from = 0, to = 0;
    uint32_t *b = buf + zt_dot_words(s->rows, s->keys, ZT_DOT_A_WIDTH);
    struct zt_dot d = {.n = t->dim,
                       .a_row = sizeof(uint32_t),
                       .a_pair = ZT_DOT_A_WIDTH * sizeof(uint32_t),
                       .b_panel = pairs * ZT_DOT_B_WIDTH,
                       .ldc = t->dim,
                       .alpha = alpha,
                       .accumulate = true};

    zt_dot_pack(buf, ZT_DOT_A_WIDTH, (const uint16_t *)(const void *)probs, 2 * t->ld,
                s->rows, s->keys);
    zt_dot_pack(b, ZT_DOT_B_WIDTH, right->data, right->ld, s->rows, t->dim);
    for (int64_t key = 0; key < s->keys; key += ZT_DOT_A_WIDTH) {
        int64_t lo, hi;

        d.m = s->keys - key < ZT_DOT_A_WIDTH ? s->keys - key : ZT_DOT_A_WIDTH;
        /* rows [from, to) see some of these keys: both ends rise from panel to panel */
        while (seen(t, s, from, 1, &lo, &hi), from < s->rows - 1 && hi <= key)
            from++;
        to = to > from ? to : from;
        while (seen(t, s, to, 1, &lo, &hi), to < s->rows - 1 && lo < key + d.m)
            to++;
        d.pairs = pairs_of(to + 1) - from / 2;
        d.a = buf + key * pairs + from / 2 * ZT_DOT_A_WIDTH;
        d.b = b + from / 2 * ZT_DOT_B_WIDTH;
        d.c = sums + key * t->dim;
        zt_dot_product(&d);
    }
}
