#include "test/unit/kernels/ref.h"

struct rope {
    int64_t B, T, H, D, P;
    int rotary;
    bool own; /* each row has positions of its own: (B, T) */
    struct arr x, y, pos, cos, sin;
    struct zt_view xv; /* a third of a packed (B, T, 3, H, D) */
};

static struct rope rope_new(zt_dtype dtype, int64_t D, int rotary, bool own)
{
    struct rope t = {
        .B = 2, .T = 5, .H = 3, .D = D, .P = 11, .rotary = rotary, .own = own};

    t.x = arr_new(dtype, 5, (int64_t[]){t.B, t.T, 3, t.H, D}, -2, 2);
    t.y = arr_new(dtype, 4, (int64_t[]){t.B, t.T, t.H, D}, -2, 2);
    t.pos = own ? arr_2(ZT_I32, t.B, t.T, 0, (double)t.P)
                : arr_1(ZT_I32, t.T, 0, (double)t.P);
    t.cos = arr_2(ZT_F32, t.P, rotary / 2, -1, 1);
    t.sin = arr_2(ZT_F32, t.P, rotary / 2, -1, 1);
    for (int64_t i = 0; i < t.cos.n; i++) {
        double angle = ref_uniform(0, 7);

        ref_put(&t.cos, i, cos(angle));
        ref_put(&t.sin, i, sin(angle));
    }
    t.xv = t.y.v;
    t.xv.data = (char *)t.x.v.data + (size_t)(t.H * D) * zt_dtype_bytes(dtype);
    t.xv.stride[0] = t.x.v.stride[0];
    t.xv.stride[1] = t.x.v.stride[1];
    return t;
}

static void rope_free(struct rope *t)
{
    arr_free(&t->x);
    arr_free(&t->y);
    arr_free(&t->pos);
    arr_free(&t->cos);
    arr_free(&t->sin);
}

/* What (b, t, h, i) becomes. */
static double rotated(const struct rope *r, int64_t b, int64_t t, int64_t h, int64_t i,
                      bool interleaved, bool inverse)
{
    const double *x = r->x.d + ((b * r->T + t) * 3 + 1) * r->H * r->D + h * r->D;
    int64_t half = r->rotary / 2, k, first, second;
    int64_t at = (int64_t)r->pos.d[r->own ? b * r->T + t : t];
    double c, s;

    if (i >= r->rotary)
        return x[i];
    k = interleaved ? i / 2 : i % half;
    first = interleaved ? 2 * k : k;
    second = interleaved ? 2 * k + 1 : k + half;
    c = r->cos.d[at * half + k];
    s = r->sin.d[at * half + k] * (inverse ? -1 : 1);
    return i == first ? x[first] * c - x[second] * s : x[second] * c + x[first] * s;
}

static void check(struct zt_device *dev, struct rope *t, int flags)
{
    bool interleaved = flags & 1, inverse = flags & 2, accumulate = flags & 4;
    struct zt_rope_args a = {t->xv,     t->y.v,      t->pos.v, t->cos.v,  t->sin.v,
                             t->rotary, interleaved, inverse,  accumulate};

    arr_restore(&t->y);
    REF_RUN(dev, rope, &a);
    for (int64_t i = 0; i < t->y.n; i++) {
        int64_t b = i / (t->T * t->H * t->D), at = i / (t->H * t->D) % t->T;
        double want = rotated(t, b, at, i / t->D % t->H, i % t->D, interleaved, inverse);

        ref_close("y", &t->y.v, i, want + (accumulate ? t->y.d[i] : 0), 1e-6);
    }
}

static void test_rope_is_the_reference(void **state)
{
    static const int dims[][2] = {{8, 8}, {64, 16}, {6, 0}, {2100, 2100}};
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 8; i++) {
            struct rope t =
                rope_new(ref_floats[d], dims[i % 4][0], dims[i % 4][1], i >= 4);

            for (int flags = 0; flags < 8; flags++)
                check(dev, &t, flags);
            rope_free(&t);
        }
    zt_cpu_backend.close(dev);
}

static void test_in_place_and_back_is_the_identity(void **state)
{
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        struct rope t = rope_new(ZT_F32, 64, 32, interleaved);
        struct zt_rope_args a = {t.xv,     t.xv,        t.pos.v, t.cos.v, t.sin.v,
                                 t.rotary, interleaved, false,   false};

        REF_RUN(dev, rope, &a);
        a.inverse = true;
        REF_RUN(dev, rope, &a);
        for (int64_t i = 0; i < t.x.n; i++) /* the packed neighbours too */
            ref_close("x", &t.x.v, i, t.x.d[i], 1e-6);
        rope_free(&t);
    }
    zt_cpu_backend.close(dev);
}

static void test_bad_positions_and_tables_are_named(void **state)
{
    struct zt_device *dev = ref_open(1);
    struct rope t = rope_new(ZT_F32, 8, 8, false), own = rope_new(ZT_F32, 8, 8, true);
    struct zt_rope_args a = {t.xv,     t.y.v, t.pos.v, t.cos.v, t.sin.v,
                             t.rotary, false, false,   false};

    (void)state;
    ref_put(&t.pos, 2, 11);
    REF_REFUSES(dev, rope, &a, "rope: position 11 is outside the table of 11");
    a.rotary_dims = 6;
    REF_REFUSES(dev, rope, &a,
                "rope: cos (11, 4) f32: want a last axis of rotary_dims / 2");
    a.rotary_dims = 10;
    REF_REFUSES(dev, rope, &a,
                "rope: x (2, 5, 3, 8) f32: want a last axis of at least rotary_dims");
    a.rotary_dims = 8;
    ref_put(&own.pos, 7, -1);
    a.positions = own.pos.v;
    REF_REFUSES(dev, rope, &a, "rope: position -1 is outside the table of 11");
    a.positions.shape[0] = 1;
    REF_REFUSES(dev, rope, &a, "rope: x (2, 5, 3, 8) f32 but positions (1, 5) i32");
    rope_free(&t);
    rope_free(&own);
    zt_cpu_backend.close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rope_is_the_reference),
        cmocka_unit_test(test_in_place_and_back_is_the_identity),
        cmocka_unit_test(test_bad_positions_and_tables_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
