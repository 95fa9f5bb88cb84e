/*
 * filter.c -- linked into every unit test: leaves out the tests whose name fits the
 * pattern in ZT_TEST_SKIP ("*" and "?" as in a shell). scripts/run_tests sets it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

__attribute__((constructor)) static void read_filter(void)
{
    const char *pattern = getenv("ZT_TEST_SKIP");

    if (pattern && *pattern)
        cmocka_set_skip_filter(pattern);
}
