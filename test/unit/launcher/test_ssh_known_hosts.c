/* known_hosts: which lines are about a host, and what a key shown by it is worth. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "launcher/ssh/formats.h"
#include "launcher/ssh/known_hosts.h"

#define ED_A "AAAAC3NzaC1lZDI1NTE5AAAAIKjDSv/L1ynuJyb/DBExDvTe9AmpweSphO5SWp0WDVQ9"
#define ED_B "AAAAC3NzaC1lZDI1NTE5AAAAIKn5656+d/0n13J3QrDm+bgYcst2Kk5rWYCmhG1r8gLZ"
#define ED   "ssh-ed25519"
#define EC   "ecdsa-sha2-nistp256"
#define KEYS "ssh-ed25519,ecdsa-sha2-nistp256"

/* Made by ssh-keygen -H from node.example and [node.example]:2201. */
#define HASHED                                                                           \
    "|1|22/wyWqaMEDNXlC34Vo9OViH2aA=|UqXM17oSKLkdmg7W7j5XV3FegsA= " ED " " ED_A "\n"
#define HASHED_2201                                                                      \
    "|1|X4FmffhtOcI/KmqzA8QGO2a+VIM=|LDsphBVG0Y0xZjRAerxm2+dqVdM= " ED " " ED_A "\n"

/* The verdict about a key of that base64 and type; *line is the line that decided, or 0.
 */
static zt_known_verdict ask(const char *text, const char *host, int port,
                            const char *type, const char *key, int *line)
{
    const struct zt_known_entry *e;
    struct zt_known known = {0};
    zt_known_verdict v;
    uint8_t *blob;
    size_t n;

    assert_int_equal(zt_known_parse(text, strlen(text), "kh", host, port, &known), ZT_OK);
    blob = zt_base64_decode(key, strlen(key), &n);
    v = zt_known_check(&known, type, blob, n, &e);
    *line = e ? e->line : 0;
    if (e)
        assert_string_equal(e->file, "kh");
    free(blob);
    zt_known_release(&known);
    return v;
}

static void each_kind_of_line_gives_its_verdict(void **state)
{
    static const struct {
        const char *text, *host;
        int port;
        zt_known_verdict want;
        int line;
    } cases[] = {
        {"", "h", 22, ZT_KNOWN_UNKNOWN, 0},
        {"h " ED " " ED_A "\n", "h", 22, ZT_KNOWN_GOOD, 1},
        {"h " ED " " ED_A, "h", 22, ZT_KNOWN_GOOD, 1},
        {"# x\n\n\th  " ED "\t" ED_A " comment\r\n", "h", 22, ZT_KNOWN_GOOD, 3},
        {"H " ED " " ED_A "\n", "h", 22, ZT_KNOWN_GOOD, 1},
        {"h " ED " " ED_B "\n", "h", 22, ZT_KNOWN_CHANGED, 1},
        {"h " ED " " ED_B "\nh " ED " " ED_A "\n", "h", 22, ZT_KNOWN_GOOD, 2},
        {"hh " ED " " ED_B "\n", "h", 22, ZT_KNOWN_UNKNOWN, 0},
        {"a,h,b " ED " " ED_A "\n", "h", 22, ZT_KNOWN_GOOD, 1},
        {"*.lan,!bad.lan " ED " " ED_A "\n", "x.lan", 22, ZT_KNOWN_GOOD, 1},
        {"*.lan,!bad.lan " ED " " ED_A "\n", "bad.lan", 22, ZT_KNOWN_UNKNOWN, 0},
        {"h " EC " " ED_B "\n", "h", 22, ZT_KNOWN_OTHER_TYPE, 1},
        {"h " EC " " ED_B "\nh " ED " " ED_B "\n", "h", 22, ZT_KNOWN_CHANGED, 2},
        {"[h]:2201 " ED " " ED_A "\n", "h", 2201, ZT_KNOWN_GOOD, 1},
        {"[h]:2201 " ED " " ED_A "\n", "h", 22, ZT_KNOWN_UNKNOWN, 0},
        {"[h]:2201 " ED " " ED_B "\n", "h", 2201, ZT_KNOWN_CHANGED, 1},
        /* the bare name confirms a key on another port, but says nothing against one */
        {"h " ED " " ED_A "\n", "h", 2201, ZT_KNOWN_GOOD, 1},
        {"h " ED " " ED_B "\n", "h", 2201, ZT_KNOWN_UNKNOWN, 0},
        {HASHED, "node.example", 22, ZT_KNOWN_GOOD, 1},
        {HASHED, "Node.Example", 22, ZT_KNOWN_GOOD, 1},
        {HASHED, "node.example2", 22, ZT_KNOWN_UNKNOWN, 0},
        {HASHED_2201, "node.example", 2201, ZT_KNOWN_GOOD, 1},
        {HASHED_2201, "node.example", 22, ZT_KNOWN_UNKNOWN, 0},
        {"h " ED " " ED_A "\n@revoked * " ED " " ED_A "\n", "h", 22, ZT_KNOWN_REVOKED, 2},
        {"@revoked h " ED " " ED_B "\nh " ED " " ED_A "\n", "h", 22, ZT_KNOWN_GOOD, 2},
        {"@cert-authority * " ED " " ED_A "\n", "h", 22, ZT_KNOWN_UNKNOWN, 0},
        {"@other h " ED " " ED_A "\n", "h", 22, ZT_KNOWN_UNKNOWN, 0},
        /* damaged lines are as if they were not there */
        {"h " ED "\nh\nh " ED " A\nh " ED " !!!\n@revoked\n|1|x h\n|1| " ED " " ED_A "\n",
         "h", 22, ZT_KNOWN_UNKNOWN, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        int line;

        if (ask(cases[i].text, cases[i].host, cases[i].port, ED, ED_A, &line) !=
                cases[i].want ||
            line != cases[i].line)
            fail_msg("case %zu: line %d", i, line);
    }
}

static void known_types_are_asked_for_first(void **state)
{
    static const struct {
        const char *text, *order;
        bool possible;
    } cases[] = {
        {"", KEYS, true},
        {"h " EC " " ED_A "\n", EC "," ED, true},
        {"h " ED " " ED_A "\n", KEYS, true},
        {"h " EC " " ED_A "\nh " ED " " ED_B "\n", KEYS, true},
        {"h ssh-rsa " ED_A "\n", KEYS, false},
        {"h ssh-rsa " ED_A "\nh " EC " " ED_A "\n", EC "," ED, true},
        {"@cert-authority h " ED " " ED_A "\n", KEYS, false},
        {"@revoked h " EC " " ED_A "\n", KEYS, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct zt_known known = {0};
        char order[2 * sizeof(KEYS)];

        assert_int_equal(
            zt_known_parse(cases[i].text, strlen(cases[i].text), "f", "h", 22, &known),
            ZT_OK);
        assert_int_equal(zt_known_order(&known, KEYS, order, sizeof(order)),
                         cases[i].possible);
        assert_string_equal(order, cases[i].order);
        zt_known_release(&known);
    }
}

static void several_files_add_up_and_missing_ones_are_fine(void **state)
{
    char path[] = "/tmp/zt_known_XXXXXX", *name;
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    struct zt_known known = {0};
    struct zt_fault fault = {0};

    (void)state;
    fprintf(f, "\nh %s %s\n", ED, ED_A);
    fclose(f);
    assert_int_equal(zt_known_read("/nonexistent/known_hosts", "h", 22, &known, &fault),
                     ZT_OK);
    assert_int_equal(zt_known_read("/dev/null", "h", 22, &known, &fault), ZT_OK);
    assert_int_equal(zt_known_read(path, "h", 22, &known, &fault), ZT_OK);
    assert_int_equal(zt_known_read("/", "h", 22, &known, &fault), ZT_E_NOINPUT);
    assert_non_null(strstr(fault.text, "known hosts file /"));
    assert_int_equal(known.num, 1);
    assert_int_equal(known.entry[0].line, 2);
    assert_string_equal(known.entry[0].file, path);
    zt_known_release(&known);
    remove(path);
    name = zt_known_name("fe80::1", 2201);
    assert_string_equal(name, "[fe80::1]:2201");
    free(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_line_gives_its_verdict),
        cmocka_unit_test(known_types_are_asked_for_first),
        cmocka_unit_test(several_files_add_up_and_missing_ones_are_fine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
