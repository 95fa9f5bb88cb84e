/*
 * distance.c -- a bias for attention by the distance of query and key.
 *
 * Products of queries and keys with what buckets of distances have are made before, by
 * zt_matmul(); here every pair of a query and a key picks its own of them. Backward adds them
 * up again, by where each bucket begins among the distances.
 */
#include <stdlib.h>

#include "worker/autograd/tape.h"

enum { BY_QUERY, BY_KEY, FIRST, NUM_SAVED };

static void distance_backward(struct zt_step *s, struct zt_node *n)
{
    struct zt_distance_bwd_args a = {.scale = *(float *)n->attr};
    struct zt_grad_sink by_query = {.t = NULL}, by_key = {.t = NULL};
    bool apart = n->in[BY_QUERY] && n->in[BY_KEY] &&
                 n->in[BY_QUERY]->store == n->in[BY_KEY]->store;

    a.dy = zt_grad_of(n->out);
    a.first = zt_data(n->saved[FIRST]);
    if (n->in[BY_QUERY] &&
        zt_grad_sink_open(s, &by_query, n->in[BY_QUERY], ZT_SINK_SAME)) {
        a.dby_query = by_query.view;
        a.accumulate_query = by_query.accumulate;
    }
    if (n->in[BY_KEY] &&
        (apart ? zt_grad_sink_open_apart(s, &by_key, n->in[BY_KEY])
               : zt_grad_sink_open(s, &by_key, n->in[BY_KEY], ZT_SINK_SAME))) {
        a.dby_key = by_key.view;
        a.accumulate_key = by_key.accumulate;
    }
    if (!s->fault.code)
        zt_step_check(s, s->k->distance_bwd(s->cfg.device, NULL, &a, &s->fault));
    zt_grad_sink_close(s, &by_query);
    zt_grad_sink_close(s, &by_key);
}

static const struct zt_op op_distance = {"distance_bias", distance_backward};

/* Whether by_query and by_key, of which one may be NULL, go together. */
static bool check_operands(struct zt_step *s, const struct zt_tensor *by_query,
                           const struct zt_tensor *by_key, int64_t num_distances)
{
    const struct zt_view *a = by_query ? &by_query->view : &by_key->view;
    const struct zt_view *b = by_key ? &by_key->view : a;
    bool ok = a->ndim == 4 && b->ndim == 4 && a->dtype == b->dtype && a->dtype <= ZT_F16;

    for (int i = 0; ok && i < 4; i++)
        ok = a->shape[i] == b->shape[i] || i == 2;
    if (!ok)
        zt_step_fail(s, ZT_E_ARG, "by_query %s, by_key %s",
                     by_query ? ZT_SHAPE_TEXT(by_query) : "NULL",
                     by_key ? ZT_SHAPE_TEXT(by_key) : "NULL");
    else if (num_distances < a->shape[2] || num_distances < b->shape[2] ||
             (by_query && by_key && num_distances != a->shape[2] + b->shape[2] - 1))
        zt_step_fail(s, ZT_E_ARG, "%lld distances, but Tq + Tk - 1 are wanted of %s %s",
                     (long long)num_distances, by_query ? "by_query" : "by_key",
                     ZT_SHAPE_TEXT(by_query ? by_query : by_key));
    return !s->fault.code;
}

static bool check_buckets(struct zt_step *s, const int32_t *bucket, int64_t n,
                          int64_t most)
{
    for (int64_t i = 0; i < n; i++)
        if (bucket[i] < 0 || bucket[i] >= most || (i && bucket[i] < bucket[i - 1]))
            zt_step_fail(s, ZT_E_ARG,
                         "bucket[%lld] is %d: want numbers in [0, %lld), none less than "
                         "the one before it",
                         (long long)i, (int)bucket[i], (long long)most);
    return !s->fault.code;
}

/* Where each of R buckets begins among n distances, and n: (R + 1). */
static struct zt_tensor *first_of(struct zt_step *s, const int32_t *bucket, int64_t n,
                                  int64_t R)
{
    int32_t *first = malloc((size_t)(R + 1) * sizeof(*first));
    struct zt_tensor *t;

    if (!first)
        return zt_step_fail(s, ZT_E_NOMEM, "no host memory");
    for (int64_t u = 0, at = 0; u <= R; u++) {
        while (at < n && bucket[at] < u)
            at++;
        first[u] = (int32_t)at;
    }
    t = zt_constant(s, ZT_I32, ZT_SHAPE(R + 1), first);
    free(first);
    return t;
}

zt_tensor *zt_distance_bias(zt_step *s, zt_tensor *by_query, zt_tensor *by_key,
                            const int32_t *bucket, int64_t num_distances, float scale)
{
    struct zt_tensor *some = by_query ? by_query : by_key, *places, *y;
    struct zt_tensor *in[2], *saved[NUM_SAVED] = {NULL};
    struct zt_distance_args a = {.scale = scale};
    int64_t shape[4];

    if (!ZT_OP_START(s, "distance_bias", some) || !some ||
        !check_operands(s, by_query, by_key, num_distances) ||
        !check_buckets(s, bucket, num_distances, some->view.shape[3]))
        return NULL;
    places = zt_constant(s, ZT_I32, ZT_SHAPE(num_distances), bucket);
    saved[FIRST] = first_of(s, bucket, num_distances, some->view.shape[3]);
    if (!ZT_OP_START(s, "distance_bias", some, places))
        return NULL;
    in[BY_QUERY] = by_query ? zt_dense(s, by_query) : NULL;
    in[BY_KEY] = by_key ? zt_dense(s, by_key) : NULL;
    shape[0] = some->view.shape[1];
    shape[1] = some->view.shape[0];
    shape[2] =
        by_query ? by_query->view.shape[2] : num_distances - by_key->view.shape[2] + 1;
    shape[3] = num_distances - shape[2] + 1;
    y = zt_value_new(s, some->view.dtype, 4, shape);
    if (!y || s->fault.code)
        return NULL;
    if (in[BY_QUERY])
        a.by_query = zt_data(in[BY_QUERY]);
    if (in[BY_KEY])
        a.by_key = zt_data(in[BY_KEY]);
    a.bucket = zt_data(places);
    a.y = zt_data(y);
    zt_step_check(s, s->k->distance(s->cfg.device, NULL, &a, &s->fault));
    return zt_record(s, &op_distance, y, in, 2, saved, NUM_SAVED, &a.scale,
                     sizeof(a.scale));
}
