/*
 * A hostfile, and behind a NUL byte a filter (include or exclude by its first byte). What
 * is accepted is consistent: hosts with names and ascending slots, each place once, and a
 * filter leaves a part of what was there, in its order.
 */
#include "launcher/plan/hostfile.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct zt_hosts *h)
{
    int total = 0;

    assert(h->num > 0);
    for (int i = 0; i < h->num; i++) {
        const struct zt_host *o = &h->host[i];

        assert(o->name[0] && o->num_slots > 0 && o->num_slots <= ZT_MAX_SLOTS);
        assert(o->port >= 0 && o->port <= 65535 && (!o->user || o->user[0]));
        for (int k = 1; k < o->num_slots; k++)
            assert(o->slots[k] > o->slots[k - 1]);
        total += o->num_slots;
    }
    assert(zt_hosts_total(h) == total);
}

static void filter(struct zt_hosts *h, const char *spec, bool include)
{
    int before = zt_hosts_total(h), hosts = h->num;
    struct zt_fault fault = {0};
    zt_err rc =
        include ? zt_hosts_include(h, spec, &fault) : zt_hosts_exclude(h, spec, &fault);

    check(h);
    assert(rc == ZT_OK || (rc == ZT_E_USAGE && fault.text[0]));
    if (rc)
        assert(zt_hosts_total(h) == before && h->num == hosts);
    else
        assert(zt_hosts_total(h) <= before);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = memchr(data, 0, size);
    size_t file_bytes = nul ? (size_t)(nul - data) : size;
    struct zt_hosts h = {0};
    struct zt_fault fault = {0};
    char *spec;

    if (zt_hosts_parse((const char *)data, file_bytes, "hosts", &h, &fault)) {
        assert(fault.code == ZT_E_FORMAT && fault.text[0]);
        return 0;
    }
    check(&h);
    spec = nul ? strndup((const char *)nul + 1, size - file_bytes - 1) : NULL;
    if (spec && spec[0])
        filter(&h, spec + 1, spec[0] == 'i');
    free(spec);
    zt_hosts_release(&h);
    return 0;
}
