/*
 * driver.c -- as much of CUDA's driver (libcuda.so.1) as cuDNN needs to build a plan:
 * nothing runs. Which kernel was loaded is kept for test_plans.c to see.
 */
#include <stdio.h>
#include <stdlib.h>

#define EXPORT       __attribute__((visibility("default")))
#define NOT_FOUND    500
#define SOME_ADDRESS ((void *)64)

EXPORT extern char driver_kernel[256];
char driver_kernel[256]; /* the last one */

/* ---- what is called ---- */

EXPORT int cuInit(unsigned flags);
EXPORT int cuGetExportTable(const void **table, const void *id);
EXPORT int cuDeviceGetCount(int *count);
EXPORT int cuDeviceGet(int *device, int ordinal);
EXPORT int cuDriverGetVersion(int *version);
EXPORT int cuGetErrorString(int error, const char **text);
EXPORT int cuLibraryLoadData(void **library, const void *code, void *a, void *b,
                             unsigned n, void *c, void *d, unsigned m);
EXPORT int cuLibraryGetKernel(void **kernel, void *library, const char *name);
EXPORT int cuLibraryUnload(void *library);

int cuInit(unsigned flags)
{
    (void)flags;
    return 0;
}

/* The runtime looks here for what it is made of; without it, it has no device. */
int cuGetExportTable(const void **table, const void *id)
{
    (void)table;
    (void)id;
    return NOT_FOUND;
}

int cuDeviceGetCount(int *count)
{
    *count = 1;
    return 0;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return 0;
}

int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return 0;
}

int cuGetErrorString(int error, const char **text)
{
    (void)error;
    *text = "";
    return 0;
}

int cuLibraryLoadData(void **library, const void *code, void *a, void *b, unsigned n,
                      void *c, void *d, unsigned m)
{
    (void)code, (void)a, (void)b, (void)n, (void)c, (void)d, (void)m;
    *library = SOME_ADDRESS;
    return 0;
}

int cuLibraryGetKernel(void **kernel, void *library, const char *name)
{
    (void)library;
    snprintf(driver_kernel, sizeof(driver_kernel), "%s", name);
    *kernel = SOME_ADDRESS;
    return 0;
}

int cuLibraryUnload(void *library)
{
    (void)library;
    return 0;
}

/* ---- what must be there, and is not called ---- */

#define NOT_CALLED(f)                                                                    \
    EXPORT int f(void);                                                                  \
    int f(void)                                                                          \
    {                                                                                    \
        fprintf(stderr, "driver.c: %s is called\n", #f);                                 \
        abort();                                                                         \
    }

NOT_CALLED(cuCtxGetCurrent)
NOT_CALLED(cuCtxGetLimit)
NOT_CALLED(cuCtxPopCurrent)
NOT_CALLED(cuCtxPushCurrent)
NOT_CALLED(cuGetErrorName)
NOT_CALLED(cuKernelGetAttribute)
NOT_CALLED(cuKernelSetAttribute)
NOT_CALLED(cuLaunchCooperativeKernel)
NOT_CALLED(cuLaunchKernel)
NOT_CALLED(cuLaunchKernelEx)
NOT_CALLED(cuLibraryLoadFromFile)
NOT_CALLED(cuLinkAddData)
NOT_CALLED(cuLinkComplete)
NOT_CALLED(cuLinkCreate)
NOT_CALLED(cuLinkDestroy)
NOT_CALLED(cuOccupancyMaxPotentialClusterSize)
NOT_CALLED(cuStreamGetCtx)
