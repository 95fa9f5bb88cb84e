/*
 * Files that are no plugin, or not ours, are refused with the reason and the way out.
 * Each is made here with the C compiler; without one those tests are skipped.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "worker/autograd/model.h"

static char folder[] = "/tmp/zt_plugin_XXXXXX";
static bool have_cc;

static const char *in_folder(const char *name)
{
    static char path[128];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text)
{
    FILE *f = fopen(in_folder(name), "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* Compile `text` to x.so with `flags`. */
static const char *compile(const char *text, const char *flags)
{
    char command[512];

    if (!have_cc)
        skip();
    write_file("x.c", text);
    snprintf(command, sizeof(command), "cc -Iinclude %s -o %s/x.so %s/x.c", flags, folder,
             folder);
    if (system(command) != 0) /* NOLINT: a test's own command */
        fail_msg("%s", command);
    return in_folder("x.so");
}

static void expect_refusal(const char *path, zt_err code, const char *text)
{
    const struct zt_plugin *p = NULL;
    struct zt_fault fault = {ZT_OK, ""};

    assert_int_equal(zt_plugin_load(path, &p, &fault), code);
    assert_null(p);
    if (!strstr(fault.text, text) || !strstr(fault.text, path))
        fail_msg("\"%s\" does not say \"%s\"", fault.text, text);
}

#define HEAD "#include <zlaunch/plugin.h>\n"
#define FUNCS                                                                            \
    "static zt_err b(zt_model *m, void **s) { (void)m; *s = 0; return ZT_OK; }\n"        \
    "static zt_tensor *f(zt_step *s, void *v, const zt_batch *b)"                        \
    "{ (void)s; (void)v; (void)b; return 0; }\n"
#define SHARED "-shared -fPIC"

static void test_what_is_not_there_or_no_shared_object(void **state)
{
    (void)state;
    expect_refusal(in_folder("absent.so"), ZT_E_NOINPUT, "No such file");
    expect_refusal(folder, ZT_E_NOINPUT, "it is a folder");
    write_file("text.so", "hello");
    expect_refusal(in_folder("text.so"), ZT_E_PLUGIN, "it is not a shared object: build");
    write_file("empty.so", "");
    expect_refusal(in_folder("empty.so"), ZT_E_PLUGIN, "it is not a shared object");
    write_file("model.c", "int main(void) { return 0; }");
    expect_refusal(in_folder("model.c"), ZT_E_PLUGIN, "not a shared object but C source");
}

static void test_object_files_and_programs(void **state)
{
    (void)state;
    expect_refusal(compile("int x;", "-c"), ZT_E_PLUGIN, "it is an object file");
    expect_refusal(compile("int main(void) { return 0; }", "-no-pie"), ZT_E_PLUGIN,
                   "it is a program");
    expect_refusal(compile("int main(void) { return 0; }", "-fPIE -pie"), ZT_E_PLUGIN,
                   "cannot be loaded: cannot dynamically load position-independent");
}

static void test_truncated_shared_object(void **state)
{
    const char *path = compile(HEAD FUNCS "ZT_PLUGIN(.name = \"x\", .build = b,"
                                          ".forward = f);",
                               SHARED);

    (void)state;
    assert_int_equal(truncate(path, 9000), 0);
    expect_refusal(path, ZT_E_PLUGIN, "it is cut short (9000 bytes)");
    assert_int_equal(truncate(path, 100), 0);
    expect_refusal(path, ZT_E_PLUGIN, "it is cut short (100 bytes)");
    assert_int_equal(truncate(path, 20), 0);
    expect_refusal(path, ZT_E_PLUGIN, "it is not a shared object");
}

static void test_undefined_symbols_are_named(void **state)
{
    (void)state;
    expect_refusal(compile("int zt_op_of_tomorrow(void);"
                           "int f(void) { return zt_op_of_tomorrow(); }",
                           SHARED),
                   ZT_E_PLUGIN,
                   "uses zt_op_of_tomorrow, which zlaunch " ZT_VERSION
                   " does not have: if the name is right");
    expect_refusal(compile("int my_own(void); int f(void) { return my_own(); }", SHARED),
                   ZT_E_PLUGIN, "uses my_own, which nothing defines");
}

static void test_entry_that_is_missing_or_lacks_members(void **state)
{
    (void)state;
    expect_refusal(compile("int x;", SHARED), ZT_E_PLUGIN,
                   "exports no zt_plugin_entry: end it with ZT_PLUGIN");
    expect_refusal(compile(HEAD FUNCS "ZT_PLUGIN(.name = \"x\", .forward = f);\n"
                                      "void *use = (void *)b;",
                           SHARED),
                   ZT_E_PLUGIN, "ZT_PLUGIN() lacks .build");
    expect_refusal(compile(HEAD FUNCS "ZT_PLUGIN(.name = \"x\", .build = b);\n"
                                      "void *use = (void *)f;",
                           SHARED),
                   ZT_E_PLUGIN, "ZT_PLUGIN() lacks .forward");
}

static void test_flags_that_mean_nothing_are_refused(void **state)
{
    (void)state;
    expect_refusal(compile(HEAD FUNCS "ZT_PLUGIN(.name = \"x\", .build = b, .forward = f,"
                                      ".flags = ZT_PLUGIN_CACHED | 64);",
                           SHARED),
                   ZT_E_PLUGIN, ".flags has 0x40, no flag");
    expect_refusal(compile(HEAD FUNCS "ZT_PLUGIN(.name = \"x\", .build = b, .forward = f,"
                                      ".flags = ZT_PLUGIN_CACHED_SOURCE);",
                           SHARED),
                   ZT_E_PLUGIN, "ZT_PLUGIN_CACHED_SOURCE without ZT_PLUGIN_CACHED");
    expect_refusal(
        compile(HEAD FUNCS "ZT_PLUGIN(.name = \"\", .build = b, .forward = f);", SHARED),
        ZT_E_PLUGIN, "lacks .name");
}

/* A plugin whose entry has these members set by hand. */
static const char *by_hand(const char *members)
{
    char text[2048];

    snprintf(text, sizeof(text),
             HEAD FUNCS "static const struct zt_option o[] = {{.name = \"n\"}, {0}};\n"
                        "ZT_API extern const struct zt_plugin zt_plugin_entry;"
                        "const struct zt_plugin zt_plugin_entry = {%s, .name = \"x\","
                        ".build = b, .forward = f, .options = o};",
             members);
    return compile(text, SHARED);
}

static void test_other_versions_are_refused_by_their_number(void **state)
{
    (void)state;
    expect_refusal(by_hand(".abi = 2, .struct_bytes = 88"), ZT_E_PLUGIN,
                   "was built against plugin ABI 2, this zworker (zlaunch " ZT_VERSION
                   ") offers 3.5: rebuild it");
    expect_refusal(by_hand(".abi = 4 << 16"), ZT_E_PLUGIN,
                   "was built against plugin ABI 4.0, this zworker");
    expect_refusal(by_hand(".abi = ZT_ABI + 2"), ZT_E_PLUGIN,
                   "was built against plugin ABI 3.7, this zworker (zlaunch " ZT_VERSION
                   ") offers 3.5: run it with the newer zlaunch");
}

static void test_sizes_that_no_header_has_are_refused(void **state)
{
    (void)state;
    expect_refusal(by_hand(".abi = ZT_ABI, .struct_bytes = 8"), ZT_E_PLUGIN,
                   "its struct zt_plugin has 8 bytes, ours ");
    expect_refusal(by_hand(".abi = ZT_ABI, .struct_bytes = 4000000000"), ZT_E_PLUGIN,
                   "its struct zt_plugin has 4000000000 bytes, ours ");
    expect_refusal(by_hand(".abi = ZT_ABI, .struct_bytes = sizeof(struct zt_plugin) - 1"),
                   ZT_E_PLUGIN, "its struct zt_plugin has ");
    expect_refusal(by_hand(".abi = ZT_ABI, .struct_bytes = sizeof(struct zt_plugin)"),
                   ZT_E_PLUGIN, "the rows of its options have 0 bytes, ours ");
    expect_refusal(by_hand(".abi = ZT_ABI, .struct_bytes = sizeof(struct zt_plugin),"
                           ".option_bytes = sizeof(struct zt_option) + 8"),
                   ZT_E_PLUGIN, "the rows of its options have ");
}

/* A plugin with these rows of options. */
static const char *with_options(const char *rows)
{
    char text[1024];

    snprintf(text, sizeof(text),
             HEAD FUNCS
             "static const struct zt_option o[] = {%s, {0}};\n"
             "ZT_PLUGIN(.name = \"x\", .build = b, .forward = f, .options = o);",
             rows);
    return compile(text, SHARED);
}

static void test_options_that_nobody_could_give_are_refused_by_name(void **state)
{
    (void)state;
    expect_refusal(with_options("{.name = \"n_x\"}, {.name = \"n-x\"}"), ZT_E_PLUGIN,
                   "option \"n-x\": another one has this name");
    expect_refusal(with_options("{.name = \"n\"}, {.name = \"m\", .alias = \"n\"}"),
                   ZT_E_PLUGIN, "option \"m\": another one has this name");
    expect_refusal(with_options("{.name = \"--n\"}"), ZT_E_PLUGIN,
                   "option \"--n\": a name has letters, digits and _ alone");
    expect_refusal(with_options("{.name = \"\"}"), ZT_E_PLUGIN,
                   "option \"\": a name has");
    expect_refusal(with_options("{.name = \"n\", .kind = 17}"), ZT_E_PLUGIN,
                   "option \"n\": there is no such kind");
    expect_refusal(with_options("{.name = \"n\", .kind = ZT_OPT_CHOICE}"), ZT_E_PLUGIN,
                   "option \"n\": a choice needs .choices");
    expect_refusal(
        with_options("{.name = \"n\", .kind = ZT_OPT_INT, .min = 3, .max = 1}"),
        ZT_E_PLUGIN, "option \"n\": .min is above .max");
    expect_refusal(with_options("{.name = \"n\", .kind = ZT_OPT_INT, .def = \"x\"}"),
                   ZT_E_PLUGIN, "the default of an option: n: \"x\" is no whole number");
}

/* Members that an older header did not have are zero, whatever lies behind. */
static void test_shorter_structs_are_of_older_headers(void **state)
{
    static const char source[] = HEAD FUNCS
        "struct older_option { const char *name; zt_option_kind kind;"
        " const char *value, *def; };\n"
        "static const struct older_option o[] = {"
        "{.name = \"first\", .kind = ZT_OPT_INT, .value = \"N\", .def = \"7\"},"
        "{.name = \"second\", .kind = ZT_OPT_FLAG}, {0}};\n"
        "struct older_plugin { uint32_t abi, struct_bytes, option_bytes;"
        " const char *name, *summary; const struct older_option *options;"
        " zt_err (*build)(zt_model *m, void **self);"
        " zt_tensor *(*forward)(zt_step *s, void *self, const zt_batch *b);"
        " long not_the_plugins; };\n"
        "ZT_API extern const struct older_plugin zt_plugin_entry;"
        "const struct older_plugin zt_plugin_entry = {ZT_ABI_MAJOR << 16,"
        " offsetof(struct older_plugin, not_the_plugins), sizeof(o[0]), \"older\", 0, o,"
        " b, f, -1};";
    const struct zt_plugin *p = NULL, *again = NULL;
    struct zt_fault fault = {ZT_OK, ""};
    char made[128], path[128];

    (void)state;
    snprintf(made, sizeof(made), "%s", compile(source, SHARED));
    snprintf(path, sizeof(path), "%s", in_folder("older.so"));
    assert_int_equal(rename(made, path), 0); /* it stays open: x.so is for the next */
    assert_int_equal(zt_plugin_load(path, &p, &fault), ZT_OK);
    assert_string_equal(p->name, "older");
    assert_non_null(p->forward);
    assert_null(p->release);
    assert_null(p->setup);
    assert_null(p->after_step);
    assert_string_equal(p->options[0].name, "first");
    assert_string_equal(p->options[0].def, "7");
    assert_null(p->options[0].help);
    assert_string_equal(p->options[1].name, "second");
    assert_int_equal(p->options[1].kind, ZT_OPT_FLAG);
    assert_true(p->options[1].max == 0);
    assert_null(p->options[2].name);
    assert_int_equal(zt_plugin_load(path, &again, &fault), ZT_OK);
    assert_ptr_equal(p, again);
}

static void test_good_plugin_loads_with_and_without_a_slash(void **state)
{
    const char *path = compile(HEAD FUNCS "ZT_PLUGIN(.name = \"good\", .build = b,"
                                          ".forward = f);",
                               SHARED);
    const struct zt_plugin *p = NULL, *q = NULL;
    struct zt_fault fault = {ZT_OK, ""};
    char here[512];

    (void)state;
    assert_int_equal(zt_plugin_load(path, &p, &fault), ZT_OK);
    assert_string_equal(p->name, "good");
    assert_non_null(getcwd(here, sizeof(here)));
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(zt_plugin_load("x.so", &q, &fault), ZT_OK);
    assert_int_equal(chdir(here), 0);
    assert_ptr_equal(p, q);
}

static int make_folder(void **state)
{
    (void)state;
    /* the headers are found from the top of the tree, where tests are run */
    have_cc = access("include/zlaunch/plugin.h", R_OK) == 0 &&
              system("cc --version >/dev/null 2>&1") == 0; /* NOLINT */
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    const char *const names[] = {"text.so", "empty.so", "model.c",
                                 "x.c",     "x.so",     "older.so"};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        unlink(in_folder(names[i]));
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_not_there_or_no_shared_object),
        cmocka_unit_test(test_object_files_and_programs),
        cmocka_unit_test(test_truncated_shared_object),
        cmocka_unit_test(test_undefined_symbols_are_named),
        cmocka_unit_test(test_entry_that_is_missing_or_lacks_members),
        cmocka_unit_test(test_other_versions_are_refused_by_their_number),
        cmocka_unit_test(test_sizes_that_no_header_has_are_refused),
        cmocka_unit_test(test_flags_that_mean_nothing_are_refused),
        cmocka_unit_test(test_options_that_nobody_could_give_are_refused_by_name),
        cmocka_unit_test(test_shorter_structs_are_of_older_headers),
        cmocka_unit_test(test_good_plugin_loads_with_and_without_a_slash),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
