#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "common/suggest.h"

static void test_suggest_distance_counts_edits(void **state)
{
    static const struct {
        const char *a, *b;
        int distance;
    } cases[] = {
        {"", "", 0},
        {"abc", "abc", 0},
        {"", "abc", 3},
        {"abc", "", 3},
        {"stage", "stgae", 1},
        {"stage", "stag", 1},
        {"stage", "stages", 1},
        {"stage", "stake", 1},
        {"kitten", "sitting", 3},
        {"ca", "abc", 3},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_int_equal(zt_suggest_distance(cases[i].a, cases[i].b), cases[i].distance);
        assert_int_equal(zt_suggest_distance(cases[i].b, cases[i].a), cases[i].distance);
    }
}

static void test_suggest_ignores_case_and_dashes(void **state)
{
    (void)state;
    assert_int_equal(zt_suggest_distance("Learning-Rate", "learning_rate"), 0);
}

static void test_suggest_never_likes_what_is_too_long(void **state)
{
    char name[ZT_SUGGEST_MAX + 2];

    (void)state;
    memset(name, 'a', sizeof(name) - 1);
    name[sizeof(name) - 1] = 0;
    assert_int_equal(zt_suggest_distance(name, name), INT_MAX);
}

static void test_suggest_knows_a_name_without_one_of_its_words(void **state)
{
    static const struct {
        const char *word, *best;
    } cases[] = {
        {"per_device_batch_size", "per_device_train_batch_size"},
        {"Per-Device-Train-Batch", "per_device_train_batch_size"},
        {"device_train_batch_size", "per_device_train_batch_size"},
        {"batch_size", NULL},
        {"per_device_size_batch", NULL},
        {"per_device_batch_size_x", NULL},
        {"device_batch_size", NULL}, /* two are left out */
        {"per_device_train_batch_sizes", "per_device_train_batch_size"},
        {"per_device", "per_device_train_batch_size"},
        {"per-Device_train", "per_device_train_batch_size"},
        {"per_devi", NULL},
        {"per", NULL},
        {"learning", "learning_rate"},
        {"gradient", NULL}, /* of two */
        {"_", NULL},
        {"", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct zt_suggest s;

        zt_suggest_init(&s, cases[i].word);
        zt_suggest_offer(&s, "learning_rate");
        zt_suggest_offer(&s, "gradient_checkpointing");
        zt_suggest_offer(&s, "gradient_accumulation_steps");
        zt_suggest_offer(&s, "per_device_train_batch_size");
        if (cases[i].best)
            assert_string_equal(zt_suggest_best(&s), cases[i].best);
        else
            assert_null(zt_suggest_best(&s));
    }
}

static void test_suggest_takes_the_nearest_or_nothing(void **state)
{
    struct zt_suggest s;

    (void)state;
    zt_suggest_init(&s, "lr_schedular_type");
    zt_suggest_offer(&s, "learning_rate");
    zt_suggest_offer(&s, "lr_scheduler_type");
    zt_suggest_offer(&s, "optim");
    assert_string_equal(zt_suggest_best(&s), "lr_scheduler_type");
    zt_suggest_init(&s, "colour");
    zt_suggest_offer(&s, "learning_rate");
    assert_null(zt_suggest_best(&s));
}

static void test_a_word_is_one_of_a_list_whole_and_before_its_sign(void **state)
{
    (void)state;
    assert_true(zt_is_one_of("adamw|sgd|lion", "sgd", false));
    assert_true(zt_is_one_of("adamw|sgd|lion", "lion", false));
    assert_false(zt_is_one_of("adamw|sgd|lion", "sg", false));
    assert_false(zt_is_one_of("adamw|sgd|lion", "sgd|lion", false));
    assert_false(zt_is_one_of("adamw|sgd|lion", "SGD", false));
    assert_true(zt_is_one_of("adamw|sgd|lion", "SGD", true));
    assert_true(zt_is_one_of("on=1|off=0", "off", false));
    assert_false(zt_is_one_of("on=1|off=0", "off=0", false));
    assert_false(zt_is_one_of("a|b", "", false));
    assert_false(zt_is_one_of(NULL, "a", false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_suggest_distance_counts_edits),
        cmocka_unit_test(test_suggest_ignores_case_and_dashes),
        cmocka_unit_test(test_suggest_never_likes_what_is_too_long),
        cmocka_unit_test(test_suggest_knows_a_name_without_one_of_its_words),
        cmocka_unit_test(test_suggest_takes_the_nearest_or_nothing),
        cmocka_unit_test(test_a_word_is_one_of_a_list_whole_and_before_its_sign),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
