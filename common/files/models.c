#include "common/files/models.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static bool is_step(const char *name)
{
    static const char prefix[] = "checkpoint-";
    const char *digits = name + sizeof(prefix) - 1;

    return strncmp(name, prefix, sizeof(prefix) - 1) == 0 && *digits &&
           !digits[strspn(digits, "0123456789")];
}

/* "." and ".." are in every folder. */
bool zt_is_filled_folder(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;

    if (!d)
        return errno != ENOTDIR && errno != ENOENT;
    while (n < 3 && readdir(d))
        n++;
    closedir(d);
    return n > 2;
}

bool zt_is_taken(const char *path)
{
    struct stat st;

    if (zt_is_filled_folder(path))
        return true;
    return lstat(path, &st) == 0 && (stat(path, &st) != 0 || !S_ISDIR(st.st_mode));
}

static bool is_own_checkpoint(const char *folder)
{
    char latest[PATH_MAX], manifest[PATH_MAX];
    const char *step = strrchr(folder, '-') + 1;

    snprintf(latest, sizeof(latest), "%s/latest", folder);
    snprintf(manifest, sizeof(manifest), "%s/global_step%s/manifest.json", folder, step);
    return access(manifest, F_OK) == 0 || (access(latest, R_OK) && errno == EACCES);
}

bool zt_has_checkpoints(const char *folder, bool own)
{
    DIR *d = opendir(folder);
    const struct dirent *e;
    char path[PATH_MAX];
    bool found = false;

    while (d && !found && (e = readdir(d))) {
        if (!is_step(e->d_name) ||
            snprintf(path, sizeof(path), "%s/%s", folder, e->d_name) >= PATH_MAX)
            continue;
        found = zt_is_filled_folder(path) && (!own || is_own_checkpoint(path));
    }
    if (d)
        closedir(d);
    return found;
}
