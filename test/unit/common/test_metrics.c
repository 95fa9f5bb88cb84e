/* The table of metrics: its rows, the values they compute, the line and the docs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/message/metrics.h"

static const struct zt_step_stats all = {.step = 12,
                                         .total_steps = 100,
                                         .loss = 3.25,
                                         .lr = 3e-4,
                                         .grad_norm = 1.5,
                                         .tokens = 1000,
                                         .seconds = 2,
                                         .flops = 6e9,
                                         .gemm_peak = 1e10,
                                         .loss_scale = 65536,
                                         .steps_per_s = 8,
                                         .samples = 96,
                                         .skipped = 2,
                                         .peak_device_bytes = 1 << 20,
                                         .file_bytes = 1 << 21,
                                         .rank_wait = 0.5,
                                         .file_wait = 1.5,
                                         .fingerprint = 0xdeadbeef,
                                         .has_fingerprint = true};

static const struct zt_metric_value *value_of(const struct zt_metric_value *values, int n,
                                              const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(values[i].metric->name, name))
            return &values[i];
    return NULL;
}

static void test_rows_are_whole_and_columns_are_their_own(void **state)
{
    int n = 0;

    (void)state;
    for (const struct zt_metric *m = zt_metrics; m->name; m++, n++) {
        assert_true(m->unit && m->help);
        assert_true(m->event == ZT_METRIC_EVAL ? m->measure_eval && !m->measure
                                               : m->measure && !m->measure_eval);
        assert_true(!m->column || m->format);
        for (const struct zt_metric *o = zt_metrics; o < m; o++) {
            if (o->event != m->event)
                continue;
            assert_string_not_equal(o->name, m->name);
            assert_true(!m->column || o->column != m->column);
        }
    }
    assert_true(n > 0 && n <= ZT_MAX_METRICS);
}

static void test_values_follow_from_what_was_measured(void **state)
{
    struct zt_metric_value values[ZT_MAX_METRICS];
    int n = zt_step_metrics_measure(&all, values);

    (void)state;
    assert_int_equal(value_of(values, n, "step")->integer, 12);
    assert_true(value_of(values, n, "tokens_per_s")->real == 500);
    assert_true(value_of(values, n, "gemm_share")->real == 0.3);
    assert_true(value_of(values, n, "eta_s")->real == 11);
    assert_true(value_of(values, n, "rank_wait_share")->real == 0.25);
    assert_true(value_of(values, n, "file_wait_share")->real == 0.75);
    assert_int_equal(value_of(values, n, "file_bytes")->integer, 1 << 21);
    assert_null(value_of(values, n, "peak_host_bytes"));
    assert_string_equal(value_of(values, n, "fingerprint")->text, "00000000deadbeef");
}

static void test_an_evaluation_says_what_its_loss_is_of(void **state)
{
    struct zt_eval_stats s = {.step = 12, .tokens = 100, .loss = log(8.0)};
    struct zt_metric_value values[ZT_MAX_METRICS];
    int n = zt_eval_metrics_measure(&s, values);

    (void)state;
    assert_int_equal(n, 3);
    assert_int_equal(value_of(values, n, "step")->integer, 12);
    assert_int_equal(value_of(values, n, "tokens")->integer, 100);
    assert_null(value_of(values, n, "perplexity"));
    assert_null(value_of(values, n, "bits_per_byte"));
    s.is_per_token = true;
    n = zt_eval_metrics_measure(&s, values);
    assert_true(fabs(value_of(values, n, "perplexity")->real - 8) < 1e-12);
    assert_null(value_of(values, n, "bits_per_byte"));
    s.is_of_bytes = true;
    n = zt_eval_metrics_measure(&s, values);
    assert_true(fabs(value_of(values, n, "bits_per_byte")->real - 3) < 1e-12);
    assert_null(value_of(values, n, "samples"));
    s = (struct zt_eval_stats){
        .step = 12, .tokens = 100, .samples = 7, .loss = 1, .is_per_row = true};
    n = zt_eval_metrics_measure(&s, values);
    assert_int_equal(value_of(values, n, "samples")->integer, 7);
    assert_null(value_of(values, n, "tokens"));
}

static void test_what_a_step_does_not_have_is_left_out(void **state)
{
    struct zt_step_stats few = {.step = 1, .seconds = 1};
    struct zt_metric_value values[ZT_MAX_METRICS];
    int n = zt_step_metrics_measure(&few, values);

    (void)state;
    assert_null(value_of(values, n, "gemm_share"));
    assert_null(value_of(values, n, "rank_wait_share"));
    assert_null(value_of(values, n, "file_wait_share"));
    assert_null(value_of(values, n, "loss_scale"));
    assert_null(value_of(values, n, "fingerprint"));
    assert_null(value_of(values, n, "eta_s"));
}

static void test_nothing_is_faster_than_its_peak(void **state)
{
    struct zt_step_stats fast = all;
    struct zt_metric_value values[ZT_MAX_METRICS];
    int n;

    (void)state;
    fast.gemm_peak = 1e9;
    n = zt_step_metrics_measure(&fast, values);
    assert_true(value_of(values, n, "gemm_share")->real == 1);
}

static void test_a_narrow_line_has_what_is_most_telling_whole(void **state)
{
    json_t *ev =
        json_pack("{si si sf sf sf sf si sf sf}", "step", 123, "total_steps", 1000,
                  "loss", 3.25, "lr", 3e-4, "grad_norm", 1.25, "tokens_per_s", 45123.0,
                  "peak_device_bytes", 1 << 20, "gemm_share", 0.61, "eta_s", 125.0);
    char line[256];

    (void)state;
    assert_non_null(ev);
    zt_metrics_line(ev, 0, line, sizeof(line));
    assert_string_equal(line, "step 123/1000  loss 3.2500  lr 0.0003  grad 1.25  45.1k "
                              "tok/s  61% of GEMM peak  mem 1.0 MiB  eta 2m05s");
    zt_metrics_line(ev, (int)strlen(line), line, sizeof(line));
    assert_non_null(strstr(line, "grad"));
    zt_metrics_line(ev, 79, line, sizeof(line));
    assert_string_equal(line, "step 123/1000  loss 3.2500  45.1k tok/s  mem 1.0 MiB  eta "
                              "2m05s");
    zt_metrics_line(ev, 82, line, sizeof(line));
    assert_string_equal(line, "step 123/1000  loss 3.2500  45.1k tok/s  61% of GEMM peak"
                              "  mem 1.0 MiB  eta 2m05s");
    zt_metrics_line(ev, 59, line, sizeof(line));
    assert_string_equal(line, "step 123/1000  loss 3.2500  45.1k tok/s  eta 2m05s");
    zt_metrics_line(ev, 10, line, sizeof(line));
    assert_string_equal(line, "step 123/1000  loss 3.2500");
    json_decref(ev);
}

static void test_a_line_is_cut_where_the_buffer_ends(void **state)
{
    json_t *ev = json_pack("{si si sf}", "step", 12, "total_steps", 100, "loss", 3.25);
    char line[64];

    (void)state;
    zt_metrics_line(ev, 0, line, sizeof(line));
    assert_string_equal(line, "step 12/100  loss 3.2500");
    zt_metrics_line(ev, 0, line, 10);
    assert_string_equal(line, "step 12/1");
    json_decref(ev);
}

/* docs/METRICS.md is what the table prints. */
static void test_docs_are_up_to_date(void **state)
{
    char *want = NULL, *got = malloc(1 << 16);
    size_t bytes = 0, n;
    FILE *f = open_memstream(&want, &bytes), *doc = fopen("docs/METRICS.md", "r");

    (void)state;
    assert_true(f && doc && got);
    zt_metrics_print_markdown(f);
    fclose(f);
    n = fread(got, 1, (1 << 16) - 1, doc);
    got[n] = 0;
    fclose(doc);
    assert_string_equal(got, want);
    free(got);
    free(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_whole_and_columns_are_their_own),
        cmocka_unit_test(test_values_follow_from_what_was_measured),
        cmocka_unit_test(test_an_evaluation_says_what_its_loss_is_of),
        cmocka_unit_test(test_what_a_step_does_not_have_is_left_out),
        cmocka_unit_test(test_nothing_is_faster_than_its_peak),
        cmocka_unit_test(test_a_narrow_line_has_what_is_most_telling_whole),
        cmocka_unit_test(test_a_line_is_cut_where_the_buffer_ends),
        cmocka_unit_test(test_docs_are_up_to_date),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
