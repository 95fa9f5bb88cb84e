/*
 * Files of ssh: byte 0 chooses the parser (known_hosts, ssh_config, private key), the
 * rest is the text. What is accepted must be consistent: entries lie within the file,
 * tokens expand, a key that is listed is good or revoked.
 */
#include <stdlib.h>
#include <string.h>

#include "launcher/ssh/formats.h"
#include "launcher/ssh/config.h"
#include "launcher/ssh/known_hosts.h"
#include "launcher/ssh/key.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void known_hosts(const char *text, size_t n)
{
    static const char usable[] = "ssh-ed25519,ecdsa-sha2-nistp256";
    char order[2 * sizeof(usable)];
    struct zt_known known = {0};
    const struct zt_known_entry *e;
    int port = n && text[0] & 1 ? 2201 : 22, lines = 1;

    if (zt_known_parse(text, n, "f", "node.example", port, &known) != ZT_OK)
        abort();
    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    zt_known_order(&known, usable, order, sizeof(order));
    if (strlen(order) != strlen(usable))
        abort();
    for (int i = 0; i < known.num; i++) {
        struct zt_known_entry *k = &known.entry[i];
        zt_known_verdict v = zt_known_check(&known, k->type, k->blob, k->blob_bytes, &e);

        if (k->line < 1 || k->line > lines || (k->revoked && v != ZT_KNOWN_REVOKED) ||
            (!k->revoked && !k->authority && v != ZT_KNOWN_GOOD && v != ZT_KNOWN_REVOKED))
            abort();
        if (v == ZT_KNOWN_GOOD && !e)
            abort();
    }
    zt_known_release(&known);
}

static void ssh_config(const char *text, size_t n)
{
    static const struct zt_ssh_tokens tokens = {"/h", "node1", "u", "r", 22};
    struct zt_ssh_config c;

    zt_ssh_config_init(&c);
    if (zt_ssh_config_parse(text, n, "f", NULL, "node1", &c) != ZT_OK)
        abort();
    if (c.port < 0 || c.port > 65535)
        abort();
    for (int i = 0; i < c.num_files; i++)
        free(zt_ssh_config_expand(c.file[i], &tokens));
    if (c.host_name)
        free(zt_ssh_config_expand(c.host_name, &tokens));
    zt_ssh_config_release(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *own;

    if (n < 1)
        return 0;
    own = malloc(n > 1 ? n - 1 : 1); /* of its own, so that reading past it is seen */
    if (!own)
        abort();
    memcpy(own, data + 1, n - 1);
    if (data[0] % 3 == 0)
        known_hosts(own, n - 1);
    else if (data[0] % 3 == 1)
        ssh_config(own, n - 1);
    else
        zt_key_parse(own, n - 1);
    free(own);
    return 0;
}
