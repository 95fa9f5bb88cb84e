#include "common/human.h"

#include <math.h>
#include <stdio.h>

const char *zt_human_bytes(char out[ZT_HUMAN], double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t u = 0;

    while (bytes >= 1023.95 && u + 1 < sizeof(units) / sizeof(*units)) {
        bytes /= 1024;
        u++;
    }
    snprintf(out, ZT_HUMAN, u ? "%.1f %s" : "%.0f %s", bytes, units[u]);
    return out;
}

const char *zt_human_count(char out[ZT_HUMAN], double count)
{
    static const char *const units[] = {"", "k", "M", "G", "T"};
    size_t u = 0;

    while (count >= 999.95 && u + 1 < sizeof(units) / sizeof(*units)) {
        count /= 1000;
        u++;
    }
    snprintf(out, ZT_HUMAN, u || count < 10 ? "%.1f%s" : "%.0f%s", count, units[u]);
    return out;
}

const char *zt_human_seconds(char out[ZT_HUMAN], double seconds)
{
    long long s = isfinite(seconds) && seconds < 1e15 ? llround(seconds) : -1;

    if (s < 0)
        snprintf(out, ZT_HUMAN, "?");
    else if (s < 60)
        snprintf(out, ZT_HUMAN, "%llds", s);
    else if (s < 3600)
        snprintf(out, ZT_HUMAN, "%lldm%02llds", s / 60, s % 60);
    else if (s < 48 * 3600)
        snprintf(out, ZT_HUMAN, "%lldh%02lldm", s / 3600, s / 60 % 60);
    else
        snprintf(out, ZT_HUMAN, "%lldd%02lldh", s / 86400, s / 3600 % 24);
    return out;
}
