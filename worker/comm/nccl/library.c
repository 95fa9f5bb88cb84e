/* library.c -- finds and loads NCCL. */
#include "worker/comm/nccl/library.h"

#include <dlfcn.h>

#include "common/loadable.h"

#define FILE_NAME "backends/nccl.so"

static const struct zt_nccl *loaded;

static zt_err check_table(const char *path, const struct zt_nccl *w,
                          struct zt_fault *fault)
{
    if (!w)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED, "comm: %s exports no %s: rebuild it",
                            path, ZT_NCCL_SYMBOL);
    if (w->abi != ZT_NCCL_ABI || w->struct_bytes != sizeof(*w))
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "comm: %s is of another version of zlaunch: run make again",
                            path);
    return ZT_OK;
}

/* Where the object is; false: nowhere. */
static bool find_object(char path[ZT_LOADABLE_PATH])
{
    return zt_loadable_find("ZLAUNCH_NCCL_BACKEND", FILE_NAME, path, ZT_LOADABLE_PATH);
}

bool zt_nccl_is_built(void)
{
    char path[ZT_LOADABLE_PATH];

    return find_object(path);
}

/* Never unloaded: threads of NCCL outlive its communicators. */
static zt_err load(struct zt_fault *fault)
{
    const struct zt_nccl *w;
    char path[ZT_LOADABLE_PATH];
    void *object;
    zt_err rc;

    if (!find_object(path))
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "comm: this build has no NCCL (%s is not beside the "
                            "program), which several GPUs need: apt install libnccl2 "
                            "libnccl-dev, then run make",
                            FILE_NAME);
    object = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!object)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "comm: NCCL cannot be used: %s (is the library installed? "
                            "apt install libnccl2)",
                            dlerror());
    w = dlsym(object, ZT_NCCL_SYMBOL);
    rc = check_table(path, w, fault);
    if (!rc)
        loaded = w;
    return rc;
}

zt_err zt_nccl_load(const struct zt_nccl **out, struct zt_fault *fault)
{
    zt_err rc = loaded ? ZT_OK : load(fault);

    if (!rc)
        *out = loaded;
    return rc;
}

void zt_nccl_set_library(const struct zt_nccl *table)
{
    loaded = table;
}
