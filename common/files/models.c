#include "common/files/models.h"

#include <stdio.h>
#include <sys/stat.h>

bool zt_find_model(const char *folder, char found[PATH_MAX])
{
    static const char *const names[] = {
        "model.safetensors", "model.safetensors.index.json", "adapter_model.safetensors",
        "pytorch_model.bin", "pytorch_model.bin.index.json"};
    struct stat st;

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        snprintf(found, PATH_MAX, "%s/%s", folder, names[i]);
        if (stat(found, &st) == 0)
            return true;
    }
    return false;
}
