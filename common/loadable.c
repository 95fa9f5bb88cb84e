#include "common/loadable.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool zt_loadable_find(const char *env, const char *file, char *out, size_t out_bytes)
{
    static const char *const places[] = {"%s/%s", "%s/../lib/zlaunch/%s"};
    const char *set = getenv(env);
    char self[PATH_MAX];
    ssize_t n;

    if (set) {
        snprintf(out, out_bytes, "%s", set);
        return set[0] && strcmp(set, "0") != 0;
    }
    n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n <= 0)
        return false;
    self[n] = 0;
    *strrchr(self, '/') = 0;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        int len = snprintf(out, out_bytes, places[i], self, file);

        if (len > 0 && (size_t)len < out_bytes && access(out, R_OK) == 0)
            return true;
    }
    return false;
}
