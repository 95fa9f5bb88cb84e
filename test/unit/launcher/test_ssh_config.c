/* ssh_config: what is honoured, what is passed over, and what is left to ssh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/stat.h>
#include <unistd.h>

#include "launcher/ssh/config.h"
#include "launcher/ssh/route.h"

static void parse(const char *text, const char *host, struct zt_ssh_config *c)
{
    zt_ssh_config_init(c);
    assert_int_equal(zt_ssh_config_parse(text, strlen(text), "cfg", NULL, host, c),
                     ZT_OK);
}

static void simple_keywords_are_taken_from_the_blocks_that_match(void **state)
{
    static const char text[] = "User first\n"
                               "Host node?  !node9\n"
                               "  HostName=10.0.0.1\n"
                               "\tPort = 2201 # no: a comment\n"
                               "  user second\n"
                               "  IdentityFile ~/.ssh/a\n"
                               "  IdentityFile \"/with blank/b\"\n"
                               "  IdentitiesOnly yes\n"
                               "  UserKnownHostsFile /k1 /k2\n"
                               "  StrictHostKeyChecking no\n"
                               "  SendEnv LANG LC_*\n"
                               "Host other\n"
                               "  ProxyCommand nc %h %p\n"
                               "Host *\n"
                               "  Port 9\n"
                               "  ProxyJump gate\n"
                               "  ServerAliveInterval 5\n";
    struct zt_ssh_config c;

    (void)state;
    parse(text, "node1", &c);
    assert_string_equal(c.host_name, "10.0.0.1");
    assert_int_equal(c.port, 2201);
    assert_string_equal(c.user, "first");
    assert_int_equal(c.num_files, 2);
    assert_string_equal(c.file[1], "/with blank/b");
    assert_int_equal(c.identities_only, 1);
    assert_int_equal(c.strict, 0);
    assert_int_equal(c.num_known, 2);
    assert_string_equal(c.jump, "gate");
    assert_null(c.needs_program);
    zt_ssh_config_release(&c);
    parse(text, "node9", &c);
    assert_null(c.host_name);
    assert_int_equal(c.port, 9);
    zt_ssh_config_release(&c);
    parse(text, "other", &c);
    assert_string_equal(c.needs_program, "cfg:13 sets ProxyCommand");
    assert_null(c.jump);
    zt_ssh_config_release(&c);
}

static void what_it_cannot_do_is_named_with_its_line(void **state)
{
    static const struct {
        const char *text, *want; /* NULL: nothing */
    } cases[] = {
        {"CertificateFile x\n", "cfg:1 sets CertificateFile"},
        {"\nMatch exec true\n", "cfg:2 has a Match block"},
        {"Match all\nPort 3\n", NULL},
        {"Host a\nMatch host h\n", "cfg:2 has a Match block"},
        {"Host a\nCertificateFile x\n", NULL},
        {"ProxyCommand none\nProxyJump x\n", NULL},
        {"ProxyJump none\nProxyCommand x\n", NULL},
        {"ProxyJump a,b\n", "cfg:1 sets a ProxyJump over several hosts"},
        {"PubkeyAuthentication no\n", "cfg:1 switches PubkeyAuthentication off"},
        {"PubkeyAuthentication yes\n", NULL},
        {"Port x\n", "cfg:1 has a Port that is none"},
        {"Port 70000\n", "cfg:1 has a Port that is none"},
        {"User \"abc\n", "cfg:1 is a line zlaunch cannot read"},
        {"HostKeyAlias x\nPort x\n", "cfg:1 sets HostKeyAlias"},
        {"Include x\n", "cfg:1 includes a file"},
        {"Port\n", "cfg:1 is a line zlaunch cannot read"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct zt_ssh_config c;

        parse(cases[i].text, "h", &c);
        if (!cases[i].want)
            assert_null(c.needs_program);
        else
            assert_string_equal(c.needs_program ? c.needs_program : "", cases[i].want);
        zt_ssh_config_release(&c);
    }
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void includes_are_followed_in_place(void **state)
{
    char folder[] = "/tmp/zt_cfg_XXXXXX", path[64];
    struct zt_ssh_config c;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/10.conf", folder);
    write_file(path, "Host h\nPort 10\n");
    snprintf(path, sizeof(path), "%s/20.conf", folder);
    write_file(path, "User twenty\nHost x\nUser no\nInclude 20.conf\n");
    snprintf(path, sizeof(path), "%s/config", folder);
    write_file(path, "Include *.conf nothing*\nPort 30\nUser thirty\nInclude config\n");
    zt_ssh_config_init(&c);
    assert_int_equal(zt_ssh_config_read(path, folder, "h", &c, NULL), ZT_OK);
    assert_int_equal(c.port, 10);
    assert_string_equal(c.user, "twenty");
    assert_non_null(c.needs_program); /* it includes itself: cut short, and said */
    zt_ssh_config_release(&c);
    assert_int_equal(zt_ssh_config_read("/nonexistent", "/", "h", &c, NULL), ZT_OK);
    for (const char *const *n =
             (const char *const[]){"10.conf", "20.conf", "config", NULL};
         *n; n++) {
        snprintf(path, sizeof(path), "%s/%s", folder, *n);
        remove(path);
    }
    rmdir(folder);
}

static void tokens_expand(void **state)
{
    static const struct zt_ssh_tokens t = {"/home/u", "h.lan", "me", "you", 2201};
    static const struct {
        const char *text, *want; /* NULL: not known */
    } cases[] = {
        {"~/.ssh/id", "/home/u/.ssh/id"},
        {"~", "/home/u"},
        {"~other/x", "~other/x"},
        {"%h-%p-%u-%r-%d-%%", "h.lan-2201-me-you-/home/u-%"},
        {"%C", NULL},
        {"x%", NULL},
        {"", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char *got = zt_ssh_config_expand(cases[i].text, &t);

        if (cases[i].want)
            assert_string_equal(got, cases[i].want);
        else
            assert_null(got);
        free(got);
    }
}

static void a_jump_host_is_taken_apart(void **state)
{
    static const struct {
        const char *text, *user, *host; /* host NULL: refused */
        int port;
    } cases[] = {
        {"gate", NULL, "gate", 0},
        {"me@gate:2201", "me", "gate", 2201},
        {"ssh://me@gate:22", "me", "gate", 22},
        {"a@b@gate", "a@b", "gate", 0},
        {"[fe80::1]:7", NULL, "fe80::1", 7},
        {"me@[::1]", "me", "::1", 0},
        {"::1", NULL, "::1", 0},
        {"gate:", NULL, NULL, 0},
        {"gate:0", NULL, NULL, 0},
        {"gate:65536", NULL, NULL, 0},
        {"gate:2x", NULL, NULL, 0},
        {"@gate", NULL, NULL, 0},
        {"me@", NULL, NULL, 0},
        {"-oProxyCommand=x", NULL, NULL, 0},
        {"me@-x", NULL, NULL, 0},
        {"[::1]x", NULL, NULL, 0},
        {"[::1", NULL, NULL, 0},
        {"", NULL, NULL, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char *user = NULL, *host = NULL;
        int port = -1;
        zt_err rc = zt_ssh_split(cases[i].text, &user, &host, &port, NULL);

        if (!cases[i].host) {
            if (rc != ZT_E_USAGE)
                fail_msg("'%s' was taken", cases[i].text);
            continue;
        }
        assert_int_equal(rc, ZT_OK);
        assert_string_equal(host, cases[i].host);
        assert_string_equal(user ? user : "", cases[i].user ? cases[i].user : "");
        assert_int_equal(port, cases[i].port);
        free(user);
        free(host);
    }
}

/* Options beat ssh_config, which beats the defaults; all from a home of the test's. */
static void a_route_merges_options_config_and_defaults(void **state)
{
    char home[] = "/tmp/zt_home_XXXXXX", path[64], want[80];
    struct zt_ssh_options opt = {.check_host_key = true};
    struct zt_ssh_target t = {"n1", "n1", NULL, 0, 3.0};
    struct zt_ssh_route r;

    (void)state;
    assert_non_null(mkdtemp(home));
    setenv("HOME", home, 1);
    setenv("SSH_AUTH_SOCK", "/agent", 1);
    assert_int_equal(zt_ssh_route_init(&r, &t, &opt, NULL), ZT_OK);
    assert_string_equal(r.link.host, "n1");
    assert_int_equal(r.link.port, 22);
    assert_true(r.link.check_host_key);
    assert_string_equal(r.link.agent, "/agent");
    assert_null(r.link.identities[0]);
    snprintf(want, sizeof(want), "%s/.ssh/id_ed25519", home);
    assert_string_equal(r.link.default_files[0], want);
    snprintf(want, sizeof(want), "%s/.ssh/known_hosts", home);
    assert_string_equal(r.link.known_files[0], want);
    zt_ssh_route_release(&r);

    snprintf(path, sizeof(path), "%s/.ssh", home);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/.ssh/config", home);
    write_file(path, "Host n1\nHostName %h.lan\nPort 7\nUser cfg\nIdentityFile ~/k-%r\n"
                     "IdentitiesOnly yes\nProxyJump gate\nStrictHostKeyChecking off\n"
                     "UserKnownHostsFile ~/kh\n");
    assert_int_equal(zt_ssh_route_init(&r, &t, &opt, NULL), ZT_OK);
    assert_string_equal(r.link.host, "n1.lan");
    assert_int_equal(r.link.port, 7);
    assert_string_equal(r.link.user, "cfg");
    snprintf(want, sizeof(want), "%s/k-cfg", home);
    assert_string_equal(r.link.identities[0], want);
    assert_null(r.link.default_files[0]);
    assert_null(r.link.agent);
    assert_false(r.link.check_host_key);
    assert_string_equal(r.jump, "gate");
    assert_string_equal(r.program_config, path);
    zt_ssh_route_release(&r);

    t.user = "opt";
    t.port = 8;
    opt = (struct zt_ssh_options){.check_host_key = true,
                                  .identity = "/key",
                                  .known_hosts = "/known",
                                  .jump = "none"};
    assert_int_equal(zt_ssh_route_init(&r, &t, &opt, NULL), ZT_OK);
    assert_int_equal(r.link.port, 8);
    assert_string_equal(r.link.user, "opt");
    assert_string_equal(r.link.identities[0], "/key");
    assert_string_equal(r.link.known_files[0], "/known");
    assert_true(r.link.check_host_key);
    assert_null(r.jump);
    zt_ssh_route_release(&r);
    remove(path);
    snprintf(path, sizeof(path), "%s/.ssh", home);
    rmdir(path);
    rmdir(home);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simple_keywords_are_taken_from_the_blocks_that_match),
        cmocka_unit_test(what_it_cannot_do_is_named_with_its_line),
        cmocka_unit_test(includes_are_followed_in_place),
        cmocka_unit_test(tokens_expand),
        cmocka_unit_test(a_jump_host_is_taken_apart),
        cmocka_unit_test(a_route_merges_options_config_and_defaults),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
