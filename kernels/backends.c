/* backends.c -- the list of backends, and how one is found by name. */
#include "kernels/backend.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "common/loadable.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/features.h"
#include "kernels/cuda/sizes.h"
#include "kernels/meta/meta.h"

/* ---- what is known by name alone ---- */

/* Libraries of hundreds of MB come with the object: they are not loaded without a driver.
 */
static bool may_have_gpu(void)
{
    return getenv(zt_cuda_object.environment) ||
           dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
}

static size_t cuda_own_bytes(void)
{
    char path[ZT_LOADABLE_PATH];
    bool sdpa = zt_loadable_find(ZT_SDPA_ENVIRONMENT, ZT_SDPA_FILE, path, sizeof(path));

    return ZT_CUDA_SCRATCH + ZT_CUDA_WORKSPACE + (sdpa ? ZT_SDPA_WORKSPACE : 0);
}

static const char *describe_meta(void)
{
    return "shapes and memory only, for plans";
}

/* "auto" takes the first that it may take and that works: the fastest come first. */
const struct zt_backend_info zt_backends[] = {
    {.name = "cuda",
     .object = &zt_cuda_object,
     .toolkit = "CUDA",
     .automatic = true,
     .is_likely = may_have_gpu,
     .own_bytes = cuda_own_bytes,
     .product_align = 64},
    {.name = "cpu",
     .built_in = &zt_cpu_backend,
     .automatic = true,
     .counts_as_host_memory = true,
     .describe = zt_cpu_instruction_sets},
    {.name = "meta",
     .built_in = &zt_meta_backend,
     .counts_as_host_memory = true,
     .describe = describe_meta},
    {.name = NULL},
};

#define NUM_BACKENDS (sizeof(zt_backends) / sizeof(*zt_backends) - 1)

const struct zt_backend_info *zt_backend_lookup(const char *name)
{
    for (const struct zt_backend_info *b = zt_backends; b->name; b++)
        if (strcmp(b->name, name) == 0)
            return b;
    return NULL;
}

size_t zt_backend_own_bytes(const char *name)
{
    const struct zt_backend_info *b = zt_backend_lookup(name);

    return b && b->own_bytes ? b->own_bytes() : 0;
}

bool zt_backend_is_built(const struct zt_backend_info *b)
{
    char path[ZT_LOADABLE_PATH];

    return b->built_in ||
           zt_loadable_find(b->object->environment, b->object->file, path, sizeof(path));
}

/* ---- objects ---- */

static zt_err check_table(const struct zt_backend_info *info, const char *path,
                          const struct zt_backend *b, struct zt_fault *fault)
{
    if (!b)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED, "device %s: %s exports no %s",
                            info->name, path, ZT_BACKEND_SYMBOL);
    if (b->abi != ZT_BACKEND_ABI || b->struct_bytes != sizeof(*b))
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "device %s: %s is of another version of zlaunch: run make "
                            "again",
                            info->name, path);
    return ZT_OK;
}

static zt_err load(const struct zt_backend_info *info, const struct zt_backend **out,
                   struct zt_fault *fault)
{
    const struct zt_backend *const *symbol;
    char path[ZT_LOADABLE_PATH];
    void *object;
    zt_err rc;

    if (!zt_loadable_find(info->object->environment, info->object->file, path,
                          sizeof(path)))
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "device %s: this build has no %s (%s is not beside the "
                            "program): install the %s toolkit and run make, or use "
                            "--device cpu",
                            info->name, info->toolkit, info->object->file, info->toolkit);
    object = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (!object)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "device %s: %s (is the %s runtime that it was built with "
                            "installed?); or use --device cpu",
                            info->name, dlerror(), info->toolkit);
    symbol = dlsym(object, ZT_BACKEND_SYMBOL);
    rc = check_table(info, path, symbol ? *symbol : NULL, fault);
    if (!rc && symbol)
        *out = *symbol;
    return rc;
}

/* Loaded once and for good: threads of a runtime outlive whoever closes it. */
static zt_err load_once(const struct zt_backend_info *info, const struct zt_backend **out,
                        struct zt_fault *fault)
{
    static const struct zt_backend *loaded[NUM_BACKENDS];
    const struct zt_backend **mine = &loaded[info - zt_backends];
    zt_err rc = *mine ? ZT_OK : load(info, mine, fault);

    if (!rc)
        *out = *mine;
    return rc;
}

/* ---- by name ---- */

/* A loaded backend is there where there is a device for it. */
static zt_err find(const struct zt_backend_info *info, const struct zt_backend **out,
                   struct zt_fault *fault)
{
    const struct zt_backend *b = NULL;
    int devices = 0;
    zt_err rc;

    *out = info->built_in;
    if (*out)
        return ZT_OK;
    rc = load_once(info, &b, fault);
    if (!rc && b)
        rc = b->count(&devices, fault);
    if (!rc)
        *out = b;
    return rc;
}

static zt_err find_automatic(const struct zt_backend **out, struct zt_fault *fault)
{
    for (const struct zt_backend_info *b = zt_backends; b->name; b++)
        if (b->automatic && (!b->is_likely || b->is_likely()) && !find(b, out, NULL))
            return ZT_OK;
    return zt_fault_set(fault, ZT_E_UNSUPPORTED, "no device works here");
}

zt_err zt_backend_find(const char *name, const struct zt_backend **out,
                       struct zt_fault *fault)
{
    const struct zt_backend_info *info = zt_backend_lookup(name);

    *out = NULL;
    if (info)
        return find(info, out, fault);
    if (strcmp(name, "auto") == 0)
        return find_automatic(out, fault);
    return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                        "no device called \"%s\"; there are auto, cpu, cuda and meta",
                        name);
}
