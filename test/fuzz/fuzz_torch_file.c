/*
 * Files of torch.save, zip and stream: any bytes. What is accepted must be values whose
 * kinds are known and tensors that can be read to the last byte.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker/torch_file/torch_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(struct zt_torch_file *f)
{
    struct zt_safetensors_tensor *tensors = NULL;
    char what[64];
    int num = 0;

    zt_pickled_describe(zt_torch_file_root(f), what, sizeof(what));
    if (zt_torch_file_tensors(f, NULL, &tensors, &num, NULL) != ZT_OK)
        return;
    for (int i = 0; i < num; i++) {
        const struct zt_safetensors_tensor *t = &tensors[i];
        float x[2];

        if (!t->name || !t->type || t->ndim > 64)
            abort();
        if (t->elems > 0 &&
            (zt_safetensors_read_f32(t, 0, 1, x, NULL) == ZT_E_ARG ||
             zt_safetensors_read_f32(t, t->elems - 1, 1, x + 1, NULL) == ZT_E_ARG))
            abort();
    }
    free(tensors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    struct zt_torch_file *f = NULL;
    char path[64];

    if (fd < 0 || write(fd, data, n) != (ssize_t)n)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (zt_torch_file_open(path, &f, NULL) == ZT_OK)
        check(f);
    zt_torch_file_close(f);
    close(fd);
    return 0;
}
