#include "common/utf8.h"

size_t zt_utf8_length(const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t need = p[0] < 0x80                    ? 1
                  : p[0] >= 0xc2 && p[0] <= 0xdf ? 2
                  : p[0] >= 0xe0 && p[0] <= 0xef ? 3
                  : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4
                                                 : 0;

    if (!need || need > n)
        return 0;
    for (size_t i = 1; i < need; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return need;
}
