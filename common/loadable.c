#include "common/loadable.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder of the executable. */
static bool own_folder(char out[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);

    if (n <= 0)
        return false;
    out[n] = 0;
    *strrchr(out, '/') = 0;
    return true;
}

bool zt_loadable_find(const char *env, const char *file, char *out, size_t out_bytes)
{
    static const char *const places[] = {"%s/%s", "%s/../lib/zlaunch/%s"};
    const char *set = getenv(env);
    char self[PATH_MAX];

    if (set) {
        snprintf(out, out_bytes, "%s", set);
        return set[0] && strcmp(set, "0") != 0;
    }
    if (!own_folder(self))
        return false;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        int len = snprintf(out, out_bytes, places[i], self, file);

        if (len > 0 && (size_t)len < out_bytes && access(out, R_OK) == 0)
            return true;
    }
    return false;
}

const struct zt_device_object zt_cuda_object = {
    .device = "cuda", .environment = "ZLAUNCH_CUDA_BACKEND", .file = "backends/cuda.so"};

static const struct zt_device_object *const device_objects[] = {&zt_cuda_object, NULL};

bool zt_device_object_is_wanted(const char *device)
{
    char path[ZT_LOADABLE_PATH];

    for (int i = 0; device_objects[i]; i++) {
        const struct zt_device_object *o = device_objects[i];

        if ((strcmp(device, "auto") == 0 || strcmp(device, o->device) == 0) &&
            zt_loadable_find(o->environment, o->file, path, sizeof(path)))
            return true;
    }
    return false;
}

/* Is `name` in folder[0..n)? */
static bool is_in_folder(const char *folder, size_t n, const char *name, char *out,
                         size_t out_bytes)
{
    int len = snprintf(out, out_bytes, "%.*s/%s", (int)n, folder, name);

    return n && len > 0 && (size_t)len < out_bytes && access(out, R_OK) == 0;
}

bool zt_plugin_find(const char *name, char *out, size_t out_bytes)
{
    const char *path = getenv("ZLAUNCH_PLUGIN_PATH");
    char self[PATH_MAX] = "", folders[3 * PATH_MAX];

    if (strchr(name, '/') || access(name, F_OK) == 0) {
        snprintf(out, out_bytes, "%s", name);
        return true;
    }
    (void)own_folder(self);
    snprintf(folders, sizeof(folders), "%s%s%s/models:%s/../lib/zlaunch/models",
             path ? path : "", path && *path ? ":" : "", self, self);
    for (const char *f = folders; *f;) {
        size_t n = strcspn(f, ":");

        if (is_in_folder(f, n, name, out, out_bytes))
            return true;
        f += n + (f[n] != 0);
    }
    snprintf(out, out_bytes, "%s", folders);
    return false;
}

const char *zt_plugin_header_flags(char *out, size_t out_bytes)
{
    char self[PATH_MAX], path[ZT_LOADABLE_PATH], real[PATH_MAX];

    snprintf(out, out_bytes, "$(pkg-config --cflags zlaunch)");
    if (!own_folder(self))
        return out;
    snprintf(path, sizeof(path), "%s/../include", self);
    if (!realpath(path, real))
        return out;
    snprintf(path, sizeof(path), "%s/zlaunch/plugin.h", real);
    if (access(path, R_OK) == 0)
        snprintf(out, out_bytes, "-I %s", real);
    return out;
}
