#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/options/options.h"

static const struct zt_option table[] = {
    {.name = "quiet",
     .kind = ZT_OPT_FLAG,
     .help = "say less",
     .group = "General",
     .letter = 'q'},
    {.name = "num_gpus",
     .kind = ZT_OPT_INT,
     .alias = "num_accelerators",
     .letter = 'n',
     .value = "N",
     .def = "1",
     .min = 1,
     .max = 1e9,
     .help = "ranks"},
    {.name = "rate",
     .kind = ZT_OPT_FLOAT,
     .value = "X",
     .def = "0.5",
     .help = "how fast"},
    {.name = "name",
     .kind = ZT_OPT_STRING,
     .alias = "called",
     .value = "TEXT",
     .help = "who"},
    {.name = "mode",
     .kind = ZT_OPT_CHOICE,
     .value = "MODE",
     .def = "slow",
     .choices = "slow|fast|fastest",
     .help = "how"},
    {.name = "files",
     .kind = ZT_OPT_LIST,
     .value = "FILE...",
     .help = "what",
     .flags = ZT_OPTION_PATH},
    {.name = "someday",
     .kind = ZT_OPT_INT,
     .value = "N",
     .help = "when",
     .group = "Refused",
     .refused = "it comes later"},
    {.name = NULL},
};

struct parse {
    zt_args *args;
    struct zt_text_arena arena;
    struct zt_problems report;
    int rest;
};

static int parse_words(struct parse *p, char **words, bool stop)
{
    int n = 0;

    *p = (struct parse){0};
    zt_problems_init(&p->report, &p->arena);
    assert_int_equal(zt_args_open(table, &p->args, NULL), ZT_OK);
    while (words[n])
        n++;
    zt_args_read_words((zt_args *const[]){p->args}, 1, n, words, stop ? &p->rest : NULL,
                       &p->report);
    zt_args_read_env(p->args, &p->report);
    return p->report.num_problems;
}

#define parse(p, ...)      parse_words(p, (char *[]){__VA_ARGS__, NULL}, false)
#define parse_upto(p, ...) parse_words(p, (char *[]){__VA_ARGS__, NULL}, true)

static void done(struct parse *p)
{
    zt_args_close(p->args);
    zt_text_arena_release(&p->arena);
}

static const char *said(const struct parse *p)
{
    return p->report.problems ? p->report.problems->text : "";
}

static void test_options_take_both_forms_and_both_spellings(void **state)
{
    struct parse p;

    (void)state;
    assert_int_equal(parse(&p, "--num-gpus", "4", "--rate=-1e-3", "--name=", "--quiet"),
                     0);
    assert_int_equal(zt_args_int(p.args, "num_gpus"), 4);
    assert_true(zt_args_float(p.args, "rate") == -1e-3);
    assert_string_equal(zt_args_string(p.args, "name"), "");
    assert_true(zt_args_flag(p.args, "quiet"));
    assert_true(zt_args_given(p.args, "rate"));
    assert_false(zt_args_given(p.args, "mode"));
    assert_string_equal(zt_args_string(p.args, "mode"), "slow");
    done(&p);
}

static void test_options_take_letters_and_aliases(void **state)
{
    struct parse p;

    (void)state;
    assert_int_equal(parse(&p, "-qn", "3"), 0);
    assert_true(zt_args_flag(p.args, "quiet"));
    assert_int_equal(zt_args_int(p.args, "num_gpus"), 3);
    done(&p);
    assert_int_equal(parse(&p, "-n7", "--num_accelerators", "9"), 0);
    assert_int_equal(zt_args_int(p.args, "num_gpus"), 9);
    done(&p);
    assert_int_equal(parse(&p, "--name", "a", "--name", "b", "--called", "b"), 0);
    assert_string_equal(zt_args_string(p.args, "name"), "b");
    done(&p);
    assert_int_equal(parse(&p, "--name", "a", "--called", "b"), 1);
    assert_string_equal(said(&p),
                        "--name and --called are two names of one option, and their "
                        "values differ: give one of them");
    done(&p);
}

static void test_options_choices_are_taken_in_any_case(void **state)
{
    struct parse p;

    (void)state;
    assert_int_equal(parse(&p, "--mode", "FAST"), 0);
    assert_string_equal(zt_args_string(p.args, "mode"), "fast");
    done(&p);
    assert_int_equal(parse(&p, "--mode", "FASTER"), 1);
    done(&p);
}

static void test_options_flags_can_be_cleared(void **state)
{
    struct parse p;

    (void)state;
    assert_int_equal(parse(&p, "--quiet", "--no-quiet"), 0);
    assert_false(zt_args_flag(p.args, "quiet"));
    assert_true(zt_args_given(p.args, "quiet"));
    done(&p);
    assert_int_equal(parse(&p, "--quiet", "False"), 0);
    assert_false(zt_args_flag(p.args, "quiet"));
    done(&p);
}

static void test_options_last_wins_but_lists_grow(void **state)
{
    struct parse p;
    const struct zt_value *v;

    (void)state;
    assert_int_equal(
        parse(&p, "--rate", "1", "--files", "a", "b", "--rate", "2", "--files=c"), 0);
    assert_true(zt_args_float(p.args, "rate") == 2);
    v = zt_args_value(p.args, "files");
    assert_string_equal(v->list[0], "a");
    assert_string_equal(v->list[2], "c");
    assert_null(v->list[3]);
    done(&p);
}

static void test_options_whole_numbers_may_be_written_as_powers(void **state)
{
    struct parse p;

    (void)state;
    assert_int_equal(parse(&p, "--num_gpus=5e8"), 0);
    assert_int_equal(zt_args_int(p.args, "num_gpus"), 500000000);
    done(&p);
}

static void test_options_bad_values_are_named(void **state)
{
    static const struct {
        char *word;
        const char *text;
    } bad[] = {
        {"--num_gpus=0", "\"0\" is no whole number from 1 to 1000000000"},
        {"--num_gpus=1.5", "\"1.5\""},
        {"--num_gpus=3x", "\"3x\""},
        {"--num_gpus= 3", "\" 3\""},
        {"--num_gpus=", "--num_gpus"},
        {"--num_gpus=9223372036854775808", "--num"},
        {"--rate=nan", "\"nan\""},
        {"--rate=0x10", "0x10"},
        {"--rate=1e999", "1e999"},
        {"--mode=fastes", "did you mean fast"},
        {"--quiet=perhaps", "\"perhaps\""},
        {"--no_quiet=1", "takes no value"},
        {"--someday=3", "it comes later"},
        {"--mod=fast", "did you mean --mode"},
        {"--name", "a value is missing"},
        {"stray", "stray"},
        {"-z", "-z"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct parse p;

        assert_int_equal(parse(&p, bad[i].word), 1);
        assert_non_null(strstr(said(&p), bad[i].text));
        assert_int_equal(p.report.code, ZT_E_USAGE);
        done(&p);
    }
}

static void test_options_report_all_problems_at_once(void **state)
{
    struct zt_fault fault = {0};
    struct parse p;

    (void)state;
    assert_int_equal(parse(&p, "--wrong", "1", "--rate", "x", "--num_gpus", "0"), 3);
    assert_int_equal(zt_problems_end(&p.report, &fault), ZT_E_USAGE);
    assert_non_null(strstr(fault.text, "--wrong"));
    assert_non_null(strstr(fault.text, "\n--rate"));
    assert_non_null(strstr(fault.text, "\n--num_gpus"));
    done(&p);
}

static void test_options_environment_gives_way_to_flags(void **state)
{
    struct parse p;

    (void)state;
    setenv("ZLAUNCH_RATE", "7", 1);
    setenv("ZLAUNCH_NUM_GPUS", "6", 1);
    setenv("ZLAUNCH_FILES", "x:y", 1);
    setenv("ZLAUNCH_NAME", "", 1);
    assert_int_equal(parse(&p, "--rate", "2"), 0);
    assert_true(zt_args_float(p.args, "rate") == 2);
    assert_int_equal(zt_args_int(p.args, "num_gpus"), 6);
    assert_string_equal(zt_args_value(p.args, "num_gpus")->where, "ZLAUNCH_NUM_GPUS");
    assert_string_equal(zt_args_value(p.args, "files")->list[1], "y");
    assert_null(zt_args_string(p.args, "name"));
    done(&p);
    unsetenv("ZLAUNCH_RATE");
    unsetenv("ZLAUNCH_NUM_GPUS");
    unsetenv("ZLAUNCH_FILES");
    unsetenv("ZLAUNCH_NAME");
}

static void test_options_values_of_a_file_are_the_weakest(void **state)
{
    struct parse p;

    (void)state;
    assert_int_equal(parse(&p, "--rate", "2"), 0);
    zt_args_set_from_file(p.args, "rate", (const char *[]){"3"}, 1, "f:1:1: \"rate\"",
                          "f:1:1", &p.report);
    zt_args_set_from_file(p.args, "name", (const char *[]){"n"}, 1, "f:1:2", "f:1:2",
                          &p.report);
    assert_true(zt_args_float(p.args, "rate") == 2);
    assert_string_equal(zt_args_string(p.args, "name"), "n");
    assert_string_equal(zt_args_value(p.args, "name")->where, "f:1:2");
    zt_args_set_from_file(p.args, "mode", (const char *[]){"x"}, 1, "f:1:3", "f:1:3",
                          &p.report);
    assert_int_equal(p.report.code, ZT_E_CONFIG);
    done(&p);
}

static void test_options_stop_at_the_target_when_asked(void **state)
{
    struct parse p;

    (void)state;
    assert_int_equal(parse_upto(&p, "-n", "2", "train.so", "--rate", "x"), 0);
    assert_int_equal(p.rest, 2);
    done(&p);
    assert_int_equal(parse_upto(&p, "--quiet", "--", "python3"), 0);
    assert_int_equal(p.rest, 1);
    done(&p);
}

static void test_options_a_wrong_default_is_the_tables_fault(void **state)
{
    static const struct zt_option wrong[] = {
        {.name = "n", .kind = ZT_OPT_INT, .def = "many", .help = "x"}, {.name = NULL}};
    struct zt_fault fault = {0};
    zt_args *args = NULL;

    (void)state;
    assert_int_equal(zt_args_open(wrong, &args, &fault), ZT_E_ARG);
    assert_null(args);
    assert_non_null(strstr(fault.text, "many"));
}

static void test_options_an_unknown_name_is_remembered(void **state)
{
    struct parse p;

    (void)state;
    parse(&p, "--quiet");
    assert_null(zt_args_misuse(p.args));
    assert_int_equal(zt_args_int(p.args, "num_cpus"), 0);
    assert_string_equal(zt_args_misuse(p.args),
                        "it asks for the option \"num_cpus\", which is not in its table; "
                        "there are quiet, num_gpus, rate, name, mode, files, someday");
    assert_false(zt_args_given(p.args, "other"));
    assert_non_null(strstr(zt_args_misuse(p.args), "\"num_cpus\"")); /* the first stays */
    done(&p);
    parse(&p, "--quiet");
    assert_non_null(zt_args_value(p.args, "other")); /* of another one: nothing is set */
    assert_null(zt_args_value(p.args, "other")->text);
    assert_non_null(strstr(zt_args_misuse(p.args), "\"other\""));
    done(&p);
}

static void test_options_another_kind_is_remembered(void **state)
{
    struct parse p;

    (void)state;
    parse(&p, "--num_gpus", "4");
    assert_true(zt_args_float(p.args, "num_gpus") == 0);
    assert_string_equal(zt_args_misuse(p.args),
                        "it reads the option \"num_gpus\" with zt_args_float(), but its "
                        "table says that it is a whole number");
    done(&p);
    parse(&p, "--files", "a", "b");
    assert_int_equal(zt_args_int(p.args, "num_accelerators"), 1); /* by another name */
    assert_string_equal(zt_args_string(p.args, "files"), "a");
    assert_string_equal(zt_args_string(p.args, "mode"), "slow");
    assert_true(zt_args_float(p.args, "rate") == 0.5);
    assert_null(zt_args_misuse(p.args));
    assert_false(zt_args_flag(p.args, "rate"));
    assert_non_null(strstr(zt_args_misuse(p.args), "zt_args_flag()"));
    done(&p);
}

static const struct zt_completion completion = {.program = "prog", .table = table};

static char *printed(int what)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);

    assert_non_null(f);
    if (what == 0)
        zt_options_print_help(f, NULL, table);
    else if (what == 1)
        zt_options_print_man(f, table);
    else if (what == 2)
        zt_options_print_bash(f, &completion);
    else
        zt_options_print_zsh(f, &completion);
    fclose(f);
    return text;
}

static void test_options_every_printed_form_has_every_option(void **state)
{
    (void)state;
    for (int what = 0; what < 4; what++) {
        char *text = printed(what);

        for (const struct zt_option *o = table; o->name; o++) {
            const char *name = o->name;

            if (what >= 2 && !strcmp(name, "someday"))
                assert_null(strstr(text, name)); /* nobody is led to a refused option */
            else
                assert_non_null(strstr(text, name));
        }
        free(text);
    }
}

static void test_options_reals_print_in_the_fewest_digits(void **state)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0.1, "0.1"},  {5e-5, "5e-05"}, {1.0 / 3, "0.3333333333333333"},
                 {0, "0"},      {600, "600"},    {-20, "-20"},
                 {5e8, "5e+08"}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char text[ZT_DOUBLE_TEXT];

        zt_format_double(cases[i].value, text);
        assert_string_equal(text, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_take_both_forms_and_both_spellings),
        cmocka_unit_test(test_options_take_letters_and_aliases),
        cmocka_unit_test(test_options_choices_are_taken_in_any_case),
        cmocka_unit_test(test_options_flags_can_be_cleared),
        cmocka_unit_test(test_options_last_wins_but_lists_grow),
        cmocka_unit_test(test_options_whole_numbers_may_be_written_as_powers),
        cmocka_unit_test(test_options_bad_values_are_named),
        cmocka_unit_test(test_options_report_all_problems_at_once),
        cmocka_unit_test(test_options_environment_gives_way_to_flags),
        cmocka_unit_test(test_options_values_of_a_file_are_the_weakest),
        cmocka_unit_test(test_options_stop_at_the_target_when_asked),
        cmocka_unit_test(test_options_a_wrong_default_is_the_tables_fault),
        cmocka_unit_test(test_options_an_unknown_name_is_remembered),
        cmocka_unit_test(test_options_another_kind_is_remembered),
        cmocka_unit_test(test_options_every_printed_form_has_every_option),
        cmocka_unit_test(test_options_reals_print_in_the_fewest_digits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
