/*
 * managed.cpp -- arrays of the kernel tests: managed memory, which the device and the tests
 * both reach. Where there is none, and with ZT_TEST_COPIES=1, an array is host memory with a
 * twin on the device: around a kernel the arrays that its arguments point into are copied
 * there and back, and the pointers are changed to the twins.
 */
#include <cuda_runtime.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <map>
#include <set>

extern "C" {
void *ref_cuda_alloc(size_t bytes);
void ref_cuda_free(void *ptr);
void ref_cuda_enter(void *args, size_t bytes);
void ref_cuda_leave(void);
}

struct twin {
    char *device;
    size_t bytes;
};

#define ALIGNED ((size_t)256)

static std::map<char *, twin> twins; /* by where the host's begins */
static std::set<char *> entered;

static bool copies()
{
    const char *asked = getenv("ZT_TEST_COPIES");

    return asked && strcmp(asked, "1") == 0;
}

static void *alloc_twins(size_t bytes)
{
    size_t whole = (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
    char *host = (char *)aligned_alloc(ALIGNED, whole);
    void *device = NULL;

    if (!host || cudaMalloc(&device, whole) != cudaSuccess) {
        free(host);
        return NULL;
    }
    twins[host] = {(char *)device, bytes};
    return host;
}

void *ref_cuda_alloc(size_t bytes)
{
    void *p = NULL;

    if (!copies() && cudaMallocManaged(&p, bytes) == cudaSuccess)
        return p;
    (void)cudaGetLastError();
    return alloc_twins(bytes);
}

void ref_cuda_free(void *ptr)
{
    auto it = twins.find((char *)ptr);

    if (it == twins.end()) {
        cudaFree(ptr);
        return;
    }
    cudaFree(it->second.device);
    twins.erase(it);
    free(ptr);
}

static void must(cudaError_t e)
{
    if (e != cudaSuccess)
        abort();
}

/* Whatever word of the arguments is an address in an array is taken for a pointer. */
void ref_cuda_enter(void *args, size_t bytes)
{
    for (size_t at = 0; at + sizeof(char *) <= bytes; at += sizeof(char *)) {
        char *p;

        memcpy(&p, (char *)args + at, sizeof(p));
        auto it = twins.upper_bound(p);
        if (it == twins.begin() || p >= (--it)->first + it->second.bytes)
            continue;
        if (entered.insert(it->first).second)
            must(cudaMemcpy(it->second.device, it->first, it->second.bytes,
                            cudaMemcpyHostToDevice));
        p = it->second.device + (p - it->first);
        memcpy((char *)args + at, &p, sizeof(p));
    }
}

void ref_cuda_leave(void)
{
    for (char *host : entered)
        must(cudaMemcpy(host, twins[host].device, twins[host].bytes,
                        cudaMemcpyDeviceToHost));
    entered.clear();
}
