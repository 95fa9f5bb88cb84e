/*
 * hf_folder_older.c -- what is left of the weights that a model folder had, in either form.
 *
 * A reader takes the first of model.safetensors, its index, pytorch_model.bin and its index.
 * These go before the shards: a kill in between leaves shards that nothing names, never an
 * index whose shards are gone.
 */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "worker/checkpoint/hf_folder.h"

/* Names that only a save of ours, of `transformers` or of peft makes; 0 is any digit. Adapters are
 * among them: transformers puts those of a folder on the model that it finds there. */
static const char *const heads[] = {"adapter_config.json",
                                    "adapter_model.safetensors",
                                    "adapter_model.bin",
                                    "model.safetensors",
                                    "model.safetensors.index.json",
                                    "pytorch_model.bin",
                                    "pytorch_model.bin.index.json",
                                    NULL};
static const char *const shards[] = {"model-00000-of-00000.safetensors",
                                     "pytorch_model-00000-of-00000.bin", NULL};

static bool is_like(const char *name, const char *pattern)
{
    size_t i = 0;

    while (pattern[i] &&
           (pattern[i] == '0' ? name[i] >= '0' && name[i] <= '9' : name[i] == pattern[i]))
        i++;
    return !pattern[i] && !name[i];
}

static bool is_among(const char *name, const char *const *patterns)
{
    for (; *patterns; patterns++)
        if (is_like(name, *patterns))
            return true;
    return false;
}

bool zt_hf_is_replaced(const char *name)
{
    return is_among(name, heads) || is_among(name, shards);
}

static zt_err remove_those(DIR *d, const char *dir, const char *const *patterns,
                           bool (*stays)(const void *arg, const char *name),
                           const void *arg, struct zt_fault *fault)
{
    rewinddir(d);
    for (const struct dirent *e = readdir(d); e; e = readdir(d))
        if (is_among(e->d_name, patterns) && !stays(arg, e->d_name) &&
            unlinkat(dirfd(d), e->d_name, 0) < 0 && errno != ENOENT)
            return zt_fault_set(fault, ZT_E_CANTCREATE,
                                "%s/%s: cannot remove the weights of an earlier save: %s",
                                dir, e->d_name, strerror(errno));
    return ZT_OK;
}

zt_err zt_hf_remove_older(const char *dir,
                          bool (*stays)(const void *arg, const char *name),
                          const void *arg, struct zt_fault *fault)
{
    DIR *d = opendir(dir);
    zt_err rc;

    if (!d)
        return zt_fault_set(fault, ZT_E_CANTCREATE, "%s: cannot list the folder: %s", dir,
                            strerror(errno));
    rc = remove_those(d, dir, heads, stays, arg, fault);
    (void)fsync(
        dirfd(d)); /* the order is kept through a loss of power, too, where it can be */
    if (!rc)
        rc = remove_those(d, dir, shards, stays, arg, fault);
    closedir(d);
    return rc;
}
