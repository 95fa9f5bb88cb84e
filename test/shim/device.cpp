/*
 * device.cpp -- device properties, options, errors, and the report of a fault.
 */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "shim.h"

int64_t shim_option(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);

    return text && *text ? strtoll(text, NULL, 10) : otherwise;
}

/* ---------------------------------------------------------------- errors */
static thread_local cudaError_t last;

cudaError_t shim_error(cudaError_t e)
{
    if (e != cudaSuccess)
        last = e;
    return e;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = last;

    last = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last;
}

static const struct {
    cudaError_t code;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction",
     "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle",
     "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
};

const char *cudaGetErrorString(cudaError_t e)
{
    for (const auto &row : errors)
        if (row.code == e)
            return row.text;
    return "unknown error";
}

const char *cudaGetErrorName(cudaError_t e)
{
    for (const auto &row : errors)
        if (row.code == e)
            return row.name;
    return "cudaErrorUnknown";
}

void shim_die(const char *fmt, ...)
{
    const shim_work *w = shim_running();
    char where[100] = "", what[1000];
    std::string name;
    va_list args;

    if (w)
        name = w->kernel ? "kernel " + shim_name_of(w->kernel) + ", "
                         : std::string(w->what) + ", ";
    if (shim_in_thread())
        snprintf(where, sizeof(where), "block (%u,%u,%u), thread (%u,%u,%u), ",
                 blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y,
                 threadIdx.z);
    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    fflush(stdout);
    fprintf(stderr, "shim: %s%s%s\n", name.c_str(), where, what); /* in one piece */
    fflush(stderr);
    signal(SIGABRT, SIG_DFL); /* a test framework would go on */
    abort();
}

/* ---------------------------------------------------------------- the device */
static thread_local int ordinal;

static int num_devices(void)
{
    return (int)shim_option("SHIM_DEVICES", 1);
}

static int num_sms(void)
{
    return (int)shim_option("SHIM_SMS", 3);
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = num_devices();
    return *count > 0 ? cudaSuccess : shim_error(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int *device)
{
    *device = ordinal;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= num_devices())
        return shim_error(cudaErrorInvalidDevice);
    ordinal = device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    if (device < 0 || device >= num_devices())
        return shim_error(cudaErrorInvalidDevice);
    switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = 1024;
        break;
    case cudaDevAttrMaxGridDimX:
        *value = 0x7fffffff;
        break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
        *value = 65535;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = 48 << 10;
        break;
    case cudaDevAttrWarpSize:
        *value = 32;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = num_sms();
        break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = 2048;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        break;
    case cudaDevAttrManagedMemory:
        *value = 1;
        break;
    case cudaDevAttrConcurrentManagedAccess:
        *value = 1;
        break;
    default:
        return shim_error(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    size_t unused;

    if (device < 0 || device >= num_devices())
        return shim_error(cudaErrorInvalidDevice);
    *prop = {};
    snprintf(prop->name, sizeof(prop->name), "shim");
    cudaMemGetInfo(&unused, &prop->totalGlobalMem);
    prop->sharedMemPerBlock = 48 << 10;
    prop->sharedMemPerMultiprocessor = 228 << 10;
    prop->warpSize = 32;
    prop->maxThreadsPerBlock = 1024;
    prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = 1024;
    prop->maxThreadsDim[2] = 64;
    prop->maxGridSize[0] = 0x7fffffff;
    prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
    prop->major = 9;
    prop->multiProcessorCount = num_sms();
    prop->concurrentKernels = prop->unifiedAddressing = prop->managedMemory = 1;
    prop->asyncEngineCount = 3;
    prop->memoryBusWidth = 5120;
    prop->l2CacheSize = 50 << 20;
    prop->maxThreadsPerMultiProcessor = 2048;
    return cudaSuccess;
}

/* The same in every process, as for devices of one machine. */
cudaError_t cudaDeviceGetPCIBusId(char *text, int len, int device)
{
    if (device < 0 || device >= num_devices())
        return shim_error(cudaErrorInvalidDevice);
    if (!text || len < 13)
        return shim_error(cudaErrorInvalidValue);
    snprintf(text, (size_t)len, "%04x:%02x:00.0", device / 255, device % 255 + 1);
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}
