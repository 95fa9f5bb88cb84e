/* Kinds of private key, of files that ssh-keygen writes here and now. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "launcher/ssh/key.h"

static void kinds_of_files_are_told_apart(void **state)
{
    static const struct {
        const char *options;
        zt_key_kind want;
    } cases[] = {
        {"-t ed25519 -N ''", ZT_KEY_USABLE},
        {"-t ecdsa -b 256 -N ''", ZT_KEY_USABLE},
        {"-t ecdsa -b 521 -N ''", ZT_KEY_USABLE},
        {"-t ecdsa -m PEM -N ''", ZT_KEY_USABLE},
        {"-t ecdsa -m PKCS8 -N ''", ZT_KEY_USABLE},
        {"-t ed25519 -N secret", ZT_KEY_ENCRYPTED},
        {"-t ecdsa -m PEM -N secret", ZT_KEY_ENCRYPTED},
        {"-t ecdsa -m PKCS8 -N secret", ZT_KEY_ENCRYPTED},
        {"-t rsa -b 1024 -N ''", ZT_KEY_RSA},
        {"-t rsa -b 1024 -m PEM -N ''", ZT_KEY_RSA},
    };
    char folder[] = "/tmp/zt_key_XXXXXX", command[200], path[64];

    (void)state;
    if (system("command -v ssh-keygen >/dev/null") != 0)
        skip();
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/k", folder);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        snprintf(command, sizeof(command), "rm -f %s; ssh-keygen -q %s -f %s", path,
                 cases[i].options, path);
        assert_int_equal(system(command), 0);
        if (zt_key_read(path) != cases[i].want)
            fail_msg("ssh-keygen %s", cases[i].options);
    }
    snprintf(command, sizeof(command), "%s.pub", path);
    assert_int_equal(zt_key_read(command), ZT_KEY_OTHER);
    assert_int_equal(zt_key_read("/nonexistent"), ZT_KEY_ABSENT);
    assert_int_equal(zt_key_read("/"), ZT_KEY_OTHER);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

static void damaged_files_are_no_keys(void **state)
{
    static const char *const texts[] = {
        "",
        "-----BEGIN ",
        "-----BEGIN OPENSSH PRIVATE KEY",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "-----BEGIN OPENSSH PRIVATE KEY-----\n-----END",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA\n-----END",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA////\n-----END",
        "-----BEGIN OPENSSH PRIVATE KEY-----\n%%%%\n-----END",
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        assert_int_equal(zt_key_parse(texts[i], strlen(texts[i])), ZT_KEY_OTHER);
}

static void types_are_told_apart(void **state)
{
    static const struct {
        const char *type;
        zt_key_kind want;
    } cases[] = {
        {"ssh-ed25519", ZT_KEY_USABLE},
        {"ecdsa-sha2-nistp384", ZT_KEY_USABLE},
        {"ssh-rsa", ZT_KEY_RSA},
        {"sk-ssh-ed25519@openssh.com", ZT_KEY_HARDWARE},
        {"ssh-ed25519-cert-v01@openssh.com", ZT_KEY_OTHER},
        {"ssh-dss", ZT_KEY_OTHER},
        {"", ZT_KEY_OTHER},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_int_equal(zt_key_kind_of_type(cases[i].type, strlen(cases[i].type)),
                         cases[i].want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_of_files_are_told_apart),
        cmocka_unit_test(damaged_files_are_no_keys),
        cmocka_unit_test(types_are_told_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
