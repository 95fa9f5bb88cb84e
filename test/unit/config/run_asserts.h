/* run_asserts.h -- that a run is taken, or refused with these words. After <cmocka.h>. */
#ifndef TEST_RUN_ASSERTS_H
#define TEST_RUN_ASSERTS_H

#include "test/unit/config/run_helper.h"

static void refused(struct run_trial t, zt_err code, const char *a, const char *b)
{
    if (t.run || t.rc != code || !strstr(t.fault.text, a) || !strstr(t.fault.text, b))
        print_error("code %d, wanted %d, with \"%s\" and \"%s\": %s\n", (int)t.rc,
                    (int)code, a, b, t.fault.text);
    assert_null(t.run);
    assert_int_equal(t.rc, code);
    assert_non_null(strstr(t.fault.text, a));
    assert_non_null(strstr(t.fault.text, b));
}

static struct zt_run *accepted(struct run_trial t)
{
    if (!t.run)
        print_error("%s\n", t.fault.text);
    assert_non_null(t.run);
    return t.run;
}

#endif
