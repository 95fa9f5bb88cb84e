/*
 * What ranks of two nodes and a zlaunch between them may say to a PMI server, in any
 * order: each record is a byte that says who speaks and how long, then the bytes. Answers
 * are whole lines, only of ranks of this node.
 */
#include "worker/daemon/pmi.h"

#include <assert.h>
#include <string.h>

#define FIRST 2
#define LOCAL 2
#define WORLD 5

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool send_line(void *arg, int rank, const char *line, size_t n)
{
    (void)arg;
    assert(rank >= FIRST && rank < FIRST + LOCAL);
    assert(n > 0 && n < ZT_PMI_LINE && line[n - 1] == '\n');
    assert(!memchr(line, 0, n) && memchr(line, '\n', n) == line + n - 1);
    return true;
}

static void fence(void *arg, const char *pairs, size_t n)
{
    struct zt_pmi **server = arg;

    assert(!n || pairs[n - 1] == '\n');
    /* another node takes what this one gives */
    assert(zt_pmi_merge(*server, pairs, n, NULL) == ZT_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zt_pmi *p = NULL;
    struct zt_pmi_config cfg = {.first = FIRST,
                                .local = LOCAL,
                                .world = size && data[0] & 1 ? WORLD : LOCAL,
                                .name = "a job",
                                .mapping = "(vector,(0,1,2))",
                                .send = send_line,
                                .fence = fence,
                                .arg = &p};

    if (zt_pmi_open(&cfg, &p, NULL))
        return 0;
    for (size_t at = 1; at < size;) {
        unsigned who = data[at] & 3;
        size_t n = data[at] >> 2;

        at++;
        n = n > size - at ? size - at : n;
        if (who < 2) {
            zt_pmi_state st =
                zt_pmi_feed(p, FIRST + (int)who, (const char *)data + at, n);

            assert(st == ZT_PMI_FINE || st == ZT_PMI_BAD || st == ZT_PMI_ABORT);
        } else if (who == 2) {
            (void)!zt_pmi_merge(p, (const char *)data + at, n, NULL);
        } else {
            (void)!zt_pmi_release(p, NULL);
        }
        at += n;
    }
    for (int r = FIRST; r < FIRST + LOCAL; r++) {
        (void)zt_pmi_needs_finalize(p, r);
        assert(zt_pmi_abort_code(p, r) >= 0 && zt_pmi_abort_code(p, r) < 256);
    }
    zt_pmi_close(p);
    return 0;
}
