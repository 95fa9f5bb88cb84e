/*
 * Safetensors files: any bytes. What is accepted must be tensors that lie back to back
 * and fill the file, be found by their names, and be readable to the last byte.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker/checkpoint/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(const struct zt_safetensors_file *f)
{
    const uint8_t *next = NULL;
    unsigned sum = 0;

    for (int i = 0; i < zt_safetensors_count(f); i++) {
        const struct zt_safetensors_tensor *t = zt_safetensors_at(f, i);
        float x;

        if ((next && t->data != next) || zt_safetensors_find(f, t->name) != t)
            abort();
        next = t->data + t->bytes;
        for (size_t k = 0; k < t->bytes; k++)
            sum += t->data[k];
        if (t->elems > 0 &&
            zt_safetensors_read_f32(t, t->elems - 1, 1, &x, NULL) == ZT_E_ARG)
            abort();
    }
    if (zt_safetensors_metadata(f, "format") && sum == 0x7fffffff)
        putchar(' '); /* keeps the reads */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    struct zt_safetensors_file *f = NULL;
    char path[64];

    if (fd < 0 || write(fd, data, n) != (ssize_t)n)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (zt_safetensors_open(path, &f, NULL) == ZT_OK)
        check(f);
    zt_safetensors_close(f);
    close(fd);
    return 0;
}
