/* The key store does what a plain array of keys would, keeps its limits, and wakes those
 * who wait exactly when their last key comes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/core/kv.h"

static const struct zt_kv_limits roomy = {1000, 1000, 1000, 1 << 20, 100};

static struct zt_span text(const char *s)
{
    return (struct zt_span){s, strlen(s)};
}

static bool is_text(struct zt_span s, const char *want)
{
    return s.bytes == strlen(want) && memcmp(s.data, want, s.bytes) == 0;
}

static void random_calls_agree_with_a_plain_array(void **state)
{
    enum { KEYS = 200 };
    char name[16], value[16], *model[KEYS] = {0};
    struct zt_span got;
    struct zt_kv *kv;
    size_t present = 0;

    (void)state;
    srand(7);
    assert_int_equal(zt_kv_open(&roomy, &kv), ZT_OK);
    for (int i = 0; i < 50000; i++) {
        int k = rand() % KEYS;

        snprintf(name, sizeof(name), "key %d", k);
        snprintf(value, sizeof(value), "%d", i);
        if (rand() % 3) {
            assert_int_equal(zt_kv_set(kv, text(name), text(value)), ZT_OK);
            present += !model[k];
            free(model[k]);
            model[k] = strdup(value);
        } else {
            assert_int_equal(zt_kv_delete(kv, text(name)), model[k] != NULL);
            present -= model[k] != NULL;
            free(model[k]);
            model[k] = NULL;
        }
        k = rand() % KEYS;
        snprintf(name, sizeof(name), "key %d", k);
        if (model[k]) {
            assert_int_equal(zt_kv_get(kv, text(name), &got), ZT_OK);
            assert_true(is_text(got, model[k]));
        } else {
            assert_int_equal(zt_kv_get(kv, text(name), &got), ZT_E_NOINPUT);
        }
        assert_int_equal(zt_kv_count(kv), present);
    }
    zt_kv_close(kv);
    for (int k = 0; k < KEYS; k++)
        free(model[k]);
}

static void a_counter_is_text_and_refuses_what_is_no_number(void **state)
{
    struct zt_span got;
    struct zt_kv *kv;
    int64_t v = 0;

    (void)state;
    assert_int_equal(zt_kv_open(&roomy, &kv), ZT_OK);
    assert_int_equal(zt_kv_add(kv, text("n"), -17, &v), ZT_OK);
    assert_int_equal(v, -17);
    assert_int_equal(zt_kv_get(kv, text("n"), &got), ZT_OK);
    assert_true(is_text(got, "-17"));
    assert_int_equal(zt_kv_add(kv, text("n"), 20, &v), ZT_OK);
    assert_int_equal(v, 3);
    for (const char *const *bad = (const char *const[]){"", "x", "1 ", " 1", "1x", "-",
                                                        "99999999999999999999", NULL};
         *bad; bad++) {
        assert_int_equal(zt_kv_set(kv, text("bad"), text(*bad)), ZT_OK);
        assert_int_equal(zt_kv_add(kv, text("bad"), 1, &v), ZT_E_FORMAT);
        assert_int_equal(zt_kv_get(kv, text("bad"), &got), ZT_OK);
        assert_true(is_text(got, *bad));
    }
    assert_int_equal(zt_kv_set(kv, text("max"), text("9223372036854775807")), ZT_OK);
    assert_int_equal(zt_kv_add(kv, text("max"), 1, &v), ZT_E_FORMAT);
    zt_kv_close(kv);
}

static void compare_set_stores_only_over_what_was_expected(void **state)
{
    struct zt_span now;
    struct zt_kv *kv;
    bool stored;

    (void)state;
    assert_int_equal(zt_kv_open(&roomy, &kv), ZT_OK);
    assert_int_equal(
        zt_kv_compare_set(kv, text("k"), text("a"), text("b"), &stored, &now), ZT_OK);
    assert_true(!stored && now.bytes == 0 && !zt_kv_has(kv, text("k")));
    assert_int_equal(zt_kv_compare_set(kv, text("k"), text(""), text("b"), &stored, &now),
                     ZT_OK);
    assert_true(stored && is_text(now, "b"));
    assert_int_equal(
        zt_kv_compare_set(kv, text("k"), text("a"), text("c"), &stored, &now), ZT_OK);
    assert_true(!stored && is_text(now, "b"));
    assert_int_equal(
        zt_kv_compare_set(kv, text("k"), text("b"), text("c"), &stored, &now), ZT_OK);
    assert_true(stored && is_text(now, "c"));
    zt_kv_close(kv);
}

static int done_count;
static void count_done(struct zt_kv_wait *w)
{
    assert_int_equal(w->missing, 0);
    done_count++;
}

static void a_wait_is_over_with_its_last_key_and_not_before(void **state)
{
    struct zt_kv_wait w = {.done = count_done}, other = {.done = count_done};
    struct zt_span keys[4];
    struct zt_kv *kv;

    (void)state;
    keys[0] = text("a");
    keys[1] = text("b");
    keys[2] = text("a"); /* twice: counts once */
    keys[3] = text("c");
    done_count = 0;
    assert_int_equal(zt_kv_open(&roomy, &kv), ZT_OK);
    assert_int_equal(zt_kv_set(kv, text("c"), text("")), ZT_OK);
    assert_int_equal(zt_kv_wait(kv, &w, keys, 4), ZT_OK);
    assert_int_equal(w.missing, 2);
    assert_int_equal(zt_kv_wait(kv, &other, keys, 1), ZT_OK);
    assert_true(is_text(zt_kv_missing(&w), "a"));
    assert_int_equal(zt_kv_set(kv, text("a"), text("1")), ZT_OK);
    assert_int_equal(done_count, 1); /* the other one */
    assert_true(is_text(zt_kv_missing(&w), "b"));
    assert_int_equal(zt_kv_set(kv, text("a"), text("2")), ZT_OK);
    assert_int_equal(done_count, 1);
    assert_int_equal(zt_kv_append(kv, text("b"), text("x")), ZT_OK);
    assert_int_equal(done_count, 2);
    assert_int_equal(zt_kv_wait(kv, &w, keys, 4), ZT_OK);
    assert_int_equal(w.missing, 0);
    assert_int_equal(done_count, 2);
    zt_kv_close(kv);
}

static void a_wait_taken_back_leaves_nothing(void **state)
{
    struct zt_kv_limits two = {100, 100, 2, 1 << 20, 100};
    struct zt_kv_wait w = {.done = count_done};
    struct zt_span keys[3];
    struct zt_kv *kv;

    (void)state;
    keys[0] = text("a");
    keys[1] = text("b");
    keys[2] = text("c");
    assert_int_equal(zt_kv_open(&two, &kv), ZT_OK);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(zt_kv_wait(kv, &w, keys, 3), ZT_E_LIMIT); /* places for two */
        assert_int_equal(w.missing, 0);
        assert_int_equal(zt_kv_wait(kv, &w, keys, 2), ZT_OK);
        zt_kv_unwait(kv, &w);
    }
    done_count = 0;
    assert_int_equal(zt_kv_set(kv, text("a"), text("")), ZT_OK);
    assert_int_equal(zt_kv_set(kv, text("b"), text("")), ZT_OK);
    assert_int_equal(zt_kv_set(kv, text("c"), text("")), ZT_E_LIMIT);
    assert_int_equal(done_count, 0);
    zt_kv_close(kv);
}

static void limits_hold_and_change_nothing(void **state)
{
    struct zt_kv_limits small = {4, 8, 100, 1200, 2};
    struct zt_kv_wait w = {.done = count_done};
    struct zt_span keys[3], got;
    struct zt_kv *kv;
    char name[8];
    int n = 0;

    (void)state;
    assert_int_equal(zt_kv_open(&small, &kv), ZT_OK);
    assert_int_equal(zt_kv_set(kv, text("12345"), text("")), ZT_E_LIMIT);
    assert_int_equal(zt_kv_set(kv, text("k"), text("123456789")), ZT_E_LIMIT);
    assert_int_equal(zt_kv_count(kv), 0);
    assert_int_equal(zt_kv_set(kv, text("k"), text("12345678")), ZT_OK);
    assert_int_equal(zt_kv_append(kv, text("k"), text("9")), ZT_E_LIMIT);
    assert_int_equal(zt_kv_get(kv, text("k"), &got), ZT_OK);
    assert_true(is_text(got, "12345678"));
    for (int i = 0; i < 3; i++)
        keys[i] = text("none");
    assert_int_equal(zt_kv_wait(kv, &w, keys, 3), ZT_E_LIMIT);
    while (snprintf(name, sizeof(name), "%d", n), !zt_kv_set(kv, text(name), text("")))
        assert_true(n++ < 100); /* the bytes are out first */
    n = 0;
    while (!zt_kv_push(kv, text("k"), text("12345678")))
        assert_true(n++ < 100);
    assert_true(zt_kv_delete(kv, text("0")));
    assert_int_equal(zt_kv_set(kv, text("0"), text("")), ZT_OK);
    zt_kv_clear(kv);
    assert_int_equal(zt_kv_count(kv), 0);
    assert_int_equal(zt_kv_push(kv, text("k"), text("12345678")), ZT_OK);
    zt_kv_close(kv);
}

static void a_queue_gives_back_in_order_and_wakes_one(void **state)
{
    struct zt_kv_wait a = {.done = count_done}, b = {.done = count_done};
    struct zt_span key = text("q");
    struct zt_kv *kv;
    size_t n;
    char *v;

    (void)state;
    done_count = 0;
    assert_int_equal(zt_kv_open(&roomy, &kv), ZT_OK);
    assert_int_equal(zt_kv_wait(kv, &a, &key, 1), ZT_OK);
    assert_int_equal(zt_kv_wait(kv, &b, &key, 1), ZT_OK);
    assert_int_equal(zt_kv_push(kv, key, text("one")), ZT_OK);
    assert_int_equal(done_count, 1);
    assert_int_equal(a.missing, 0);
    assert_int_equal(b.missing, 1);
    assert_int_equal(zt_kv_push(kv, key, text("")), ZT_OK);
    assert_int_equal(done_count, 2);
    assert_true(zt_kv_has(kv, key));
    assert_int_equal(zt_kv_queue_len(kv, key), 2);
    v = zt_kv_pop(kv, key, &n);
    assert_true(v && n == 3 && memcmp(v, "one", 3) == 0);
    free(v);
    v = zt_kv_pop(kv, key, &n);
    assert_true(v && n == 0);
    free(v);
    assert_null(zt_kv_pop(kv, key, &n));
    assert_false(zt_kv_has(kv, key));
    zt_kv_close(kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_calls_agree_with_a_plain_array),
        cmocka_unit_test(a_counter_is_text_and_refuses_what_is_no_number),
        cmocka_unit_test(compare_set_stores_only_over_what_was_expected),
        cmocka_unit_test(a_wait_is_over_with_its_last_key_and_not_before),
        cmocka_unit_test(a_wait_taken_back_leaves_nothing),
        cmocka_unit_test(limits_hold_and_change_nothing),
        cmocka_unit_test(a_queue_gives_back_in_order_and_wakes_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
