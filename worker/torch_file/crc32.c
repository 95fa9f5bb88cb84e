/* crc32.c -- the check sum of zip, eight bytes at a time. */
#include <endian.h>
#include <string.h>

#include "worker/torch_file/zip_write.h"

static uint32_t table[8][256];

static void make_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;

        for (int k = 0; k < 8; k++)
            c = c & 1 ? 0xedb88320u ^ c >> 1 : c >> 1;
        table[0][i] = c;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++)
            table[t][i] = table[t - 1][i] >> 8 ^ table[0][table[t - 1][i] & 255];
}

uint32_t zt_crc32(uint32_t crc, const void *data, size_t bytes)
{
    const uint8_t *p = data;

    if (!table[7][1])
        make_table();
    crc = ~crc;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint64_t x;

        memcpy(&x, p, 8);
        x = le64toh(x) ^ crc;
        crc = 0;
        for (int t = 0; t < 8; t++)
            crc ^= table[7 - t][x >> 8 * t & 255];
    }
    while (bytes--)
        crc = crc >> 8 ^ table[0][(crc ^ *p++) & 255];
    return ~crc;
}
