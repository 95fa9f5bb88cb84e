/*
 * sample.h -- tests of many settings: all of them are run, or, where they take long (in a
 * sanitised build, under emulation), one of ZT_SAMPLE, chosen by ZT_SEED.
 */
#ifndef TEST_UNIT_SAMPLE_H
#define TEST_UNIT_SAMPLE_H

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <setjmp.h>

#include <cmocka.h>

static int64_t __attribute__((unused)) number_of(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);

    return text ? strtoll(text, NULL, 10) : otherwise;
}

/* Whether the next one of the settings is run. */
static bool __attribute__((unused)) in_sample(void)
{
    static uint64_t asked;
    int64_t one_of = number_of("ZT_SAMPLE", 1), chosen_by = number_of("ZT_SEED", 1);
    uint64_t x;

    if (one_of <= 1)
        return true;
    if (!asked)
        print_message("one of %" PRId64 " settings is run, chosen by ZT_SEED=%" PRId64
                      "\n",
                      one_of, chosen_by);
    /* splitmix64 */
    x = (uint64_t)chosen_by * 0x9e3779b97f4a7c15u + ++asked * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (x ^ x >> 31) % (uint64_t)one_of == 0;
}

#endif
