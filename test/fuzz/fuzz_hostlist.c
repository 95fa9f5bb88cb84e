/* Any text as a host list and as a count list: names within the bounds, or an error. */
#include "common/hostlist.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct zt_fault fault = {0};
    struct zt_hostlist h;
    int *count;

    memcpy(text, data, size);
    text[size] = 0;
    if (zt_hostlist_expand(text, &h, &fault) == ZT_OK) {
        assert(h.num >= 0 && h.num <= ZT_HOSTLIST_MAX);
        for (int i = 0; i < h.num; i++) {
            size_t n = strlen(h.name[i]);

            assert(n >= 1 && n <= ZT_HOSTLIST_NAME);
            assert(!strpbrk(h.name[i], "[], \t\n\r"));
        }
        zt_hostlist_release(&h);
    } else {
        assert(fault.code == ZT_E_USAGE || fault.code == ZT_E_LIMIT);
        assert(fault.text[0]);
    }
    for (int nodes = 1; nodes <= 9; nodes += 4)
        if (zt_counts_expand(text, nodes, &count, &fault) == ZT_OK) {
            for (int i = 0; i < nodes; i++)
                assert(count[i] >= 1);
            free(count);
        }
    free(text);
    return 0;
}
