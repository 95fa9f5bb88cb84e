/*
 * memory.cpp -- allocations with guards around them, and copies.
 *
 *      | no access, 1 MiB | slack ... | data | slack < 256 | no access, 1 MiB |
 *
 * Data starts at a multiple of 256, as on a device, and ends as near to the guard as that
 * allows. Slack is filled with a byte and compared after each piece of work;
 * AddressSanitizer knows it as poisoned. Data starts as bytes 0xFF, a NaN in every type,
 * from pages of one file, so that what nobody writes costs nothing. Device memory is
 * mapped without access while nothing runs. What was freed keeps its addresses for a
 * while, without access.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <deque>
#include <map>

#include "shim.h"

#if SHIM_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n)   ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

static const size_t ALIGN = 256, GUARD = (size_t)1 << 20, FILL = (size_t)8 << 20;
static const unsigned char BESIDE = 0xA5;
static const size_t MAX_FREED = 256;

struct region {
    shim_side side;
    char *map;
    size_t map_bytes;
    char *body; /* between the guards */
    size_t body_bytes;
    char *data;
    size_t bytes;
};

static std::map<uintptr_t, region> live; /* by data */
static std::deque<region> freed;
static size_t used;
static int fill_fd = -1;
static bool is_open;

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t total(void)
{
    return (size_t)shim_option("SHIM_MEMORY_MB", 4096) << 20;
}

/* ---------------------------------------------------------------- slack */

static void mark_slack(const region &r)
{
    char *end = r.data + r.bytes, *last = r.body + r.body_bytes;

    memset(r.body, BESIDE, (size_t)(r.data - r.body));
    memset(end, BESIDE, (size_t)(last - end));
    ASAN_POISON_MEMORY_REGION(r.body, (size_t)(r.data - r.body));
    ASAN_POISON_MEMORY_REGION(end, (size_t)(last - end));
}

/* The first byte of [p, end) that is not as it was left, or end. */
__attribute__((no_sanitize("address"))) static const char *changed(const char *p,
                                                                   const char *end)
{
    uint64_t word;

    for (; p < end && (uintptr_t)p % 8; p++)
        if ((unsigned char)*p != BESIDE)
            return p;
    for (; end - p >= 8; p += 8) {
        word = *(const uint64_t *)p;
        if (word != 0xA5A5A5A5A5A5A5A5u)
            break;
    }
    for (; p < end; p++)
        if ((unsigned char)*p != BESIDE)
            return p;
    return end;
}

static const char *name_of(shim_side side)
{
    return side == SHIM_DEVICE ? "device" : side == SHIM_HOST ? "pinned" : "managed";
}

static void check_region(const region &r)
{
    const char *last = r.body + r.body_bytes;
    const char *before = changed(r.body, r.data),
               *behind = changed(r.data + r.bytes, last);

    if (before != r.data)
        shim_die("wrote outside an allocation: at offset %td of %zu bytes of %s memory",
                 before - r.data, r.bytes, name_of(r.side));
    if (behind != last)
        shim_die("wrote outside an allocation: at offset %td of %zu bytes of %s memory",
                 behind - r.data, r.bytes, name_of(r.side));
}

void shim_memory_check(void)
{
    for (const auto &[at, r] : live)
        check_region(r);
}

/* ---------------------------------------------------------------- access */

static void set_access(const region &r, int prot)
{
    if (mprotect(r.body, r.body_bytes, prot) != 0)
        shim_die("mprotect failed");
}

static void tell_fault(const char *at, const region &r, bool gone)
{
    const char *who = shim_running() ? "" : "host code ";

    if (gone)
        shim_die("%stouched freed memory: offset %td of %zu bytes of %s memory", who,
                 at - r.data, r.bytes, name_of(r.side));
    if (at >= r.body && at < r.body + r.body_bytes)
        shim_die("%stouched device memory: offset %td of %zu bytes", who, at - r.data,
                 r.bytes);
    shim_die("%swent outside an allocation: offset %td of %zu bytes of %s memory", who,
             at - r.data, r.bytes, name_of(r.side));
}

static void on_fault(int sig, siginfo_t *info, void *)
{
    const char *at = (const char *)info->si_addr;

    signal(sig, SIG_DFL);
    for (const auto &[key, r] : live)
        if (at >= r.map && at < r.map + r.map_bytes)
            tell_fault(at, r, false);
    for (const region &r : freed)
        if (at >= r.map && at < r.map + r.map_bytes)
            tell_fault(at, r, true);
    if (shim_fiber_overflowed(at))
        shim_die("the stack of a thread overflowed");
    if (shim_running() && info->si_code > 0)
        shim_die("a fault at %p: a bad pointer, or one that is not aligned",
                 (const void *)at);
    raise(sig);
}

/* Anew each time: test frameworks put theirs in its place. */
static void catch_faults(void)
{
    static char alternate[64 << 10];
    stack_t stack = {};
    struct sigaction act = {};

    stack.ss_sp = alternate;
    stack.ss_size = sizeof(alternate);
    sigaltstack(&stack, NULL);
    act.sa_sigaction = on_fault;
    act.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &act, NULL);
    sigaction(SIGBUS, &act, NULL);
}

void shim_memory_open(void)
{
    catch_faults();
    for (const auto &[at, r] : live)
        if (r.side == SHIM_DEVICE)
            set_access(r, PROT_READ | PROT_WRITE);
    is_open = true;
}

void shim_memory_close(void)
{
    for (const auto &[at, r] : live)
        if (r.side == SHIM_DEVICE)
            set_access(r, PROT_NONE);
    is_open = false;
}

/* ---------------------------------------------------------------- allocations */

static int open_fill(void)
{
    int fd = memfd_create("shim-nan", MFD_CLOEXEC);
    char some[4096];

    memset(some, 0xFF, sizeof(some));
    for (size_t at = 0; fd >= 0 && at < FILL; at += sizeof(some))
        if (pwrite(fd, some, sizeof(some), (off_t)at) != (ssize_t)sizeof(some))
            shim_die("no memory for the pattern of new memory");
    return fd;
}

static bool map_region(region *r)
{
    size_t guarded = round_up(r->bytes, ALIGN);
    void *map;

    r->body_bytes = round_up(guarded, page_bytes());
    r->map_bytes = r->body_bytes + 2 * GUARD;
    map = mmap(NULL, r->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
               -1, 0);
    if (map == MAP_FAILED)
        return false;
    r->map = (char *)map;
    r->body = r->map + GUARD;
    r->data = r->body + r->body_bytes - guarded;
    for (size_t at = 0; at < r->body_bytes; at += FILL) {
        size_t n = r->body_bytes - at < FILL ? r->body_bytes - at : FILL;

        if (mmap(r->body + at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
                 fill_fd, 0) == MAP_FAILED) {
            munmap(r->map, r->map_bytes);
            return false;
        }
    }
    return true;
}

static cudaError_t allocate(shim_side side, void **out, size_t bytes)
{
    region r = {};

    if (!out)
        return shim_error(cudaErrorInvalidValue);
    *out = NULL;
    if (bytes == 0)
        return side == SHIM_BOTH ? shim_error(cudaErrorInvalidValue) : cudaSuccess;
    if (fill_fd < 0)
        fill_fd = open_fill();
    r.side = side;
    r.bytes = bytes;
    if (bytes > total() || (side != SHIM_HOST && bytes > total() - used) ||
        !map_region(&r))
        return shim_error(cudaErrorMemoryAllocation);
    mark_slack(r);
    if (side == SHIM_DEVICE && !is_open)
        set_access(r, PROT_NONE);
    used += side == SHIM_HOST ? 0 : bytes;
    live[(uintptr_t)r.data] = r;
    catch_faults();
    *out = r.data;
    return cudaSuccess;
}

static void forget_oldest(void)
{
    munmap(freed.front().map, freed.front().map_bytes);
    freed.pop_front();
}

/* Waits for everything first, as the real one does. */
static cudaError_t release(void *ptr, bool host)
{
    std::map<uintptr_t, region>::iterator it;
    region r;

    if (!ptr)
        return cudaSuccess;
    it = live.find((uintptr_t)ptr);
    if (it == live.end() || (it->second.side == SHIM_HOST) != host)
        return shim_error(cudaErrorInvalidValue);
    shim_finish_all();
    r = it->second;
    set_access(r, PROT_READ | PROT_WRITE);
    check_region(r);
    live.erase(it);
    used -= host ? 0 : r.bytes;
    ASAN_UNPOISON_MEMORY_REGION(r.body, r.body_bytes);
    if (mmap(r.body, r.body_bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
             0) == MAP_FAILED)
        shim_die("mmap failed");
    freed.push_back(r);
    if (freed.size() > MAX_FREED)
        forget_oldest();
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    return allocate(SHIM_DEVICE, out, bytes);
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    return allocate(SHIM_HOST, out, bytes);
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned int)
{
    return allocate(SHIM_HOST, out, bytes);
}

cudaError_t cudaMallocManaged(void **out, size_t bytes, unsigned int)
{
    return allocate(SHIM_BOTH, out, bytes);
}

cudaError_t cudaFree(void *ptr)
{
    return release(ptr, false);
}

cudaError_t cudaFreeHost(void *ptr)
{
    return release(ptr, true);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = total() - used;
    *total_bytes = total();
    return cudaSuccess;
}

/* ---------------------------------------------------------------- copies */

shim_side shim_side_of(const void *p, size_t *rest)
{
    auto it = live.upper_bound((uintptr_t)p);

    *rest = SIZE_MAX;
    if (it == live.begin())
        return SHIM_HOST;
    --it;
    if ((uintptr_t)p >= it->first + round_up(it->second.bytes, ALIGN))
        return SHIM_HOST; /* memory that is not ours */
    *rest = (uintptr_t)p < it->first + it->second.bytes
                ? it->first + it->second.bytes - (uintptr_t)p
                : 0;
    return it->second.side;
}

static bool fits(const void *p, size_t bytes, bool device)
{
    size_t rest;
    shim_side side = shim_side_of(p, &rest);

    return p && bytes <= rest && (side == SHIM_BOTH || (side == SHIM_DEVICE) == device);
}

static bool allowed(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    size_t rest;

    switch (kind) {
    case cudaMemcpyHostToHost:
        return fits(dst, bytes, false) && fits(src, bytes, false);
    case cudaMemcpyHostToDevice:
        return fits(dst, bytes, true) && fits(src, bytes, false);
    case cudaMemcpyDeviceToHost:
        return fits(dst, bytes, false) && fits(src, bytes, true);
    case cudaMemcpyDeviceToDevice:
        return fits(dst, bytes, true) && fits(src, bytes, true);
    default:
        shim_side_of(dst, &rest);
        if (bytes > rest)
            return false;
        shim_side_of(src, &rest);
        return bytes <= rest;
    }
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t stream)
{
    if (bytes > 0 && !allowed(dst, src, bytes, kind))
        return shim_error(cudaErrorInvalidValue);
    return shim_enqueue(stream, {NULL, "a copy", [dst, src, bytes] {
                                     if (bytes > 0)
                                         memmove(dst, src, bytes);
                                 }});
}

cudaError_t cudaMemsetAsync(void *ptr, int value, size_t bytes, cudaStream_t stream)
{
    if (bytes > 0 && !fits(ptr, bytes, true))
        return shim_error(cudaErrorInvalidValue);
    return shim_enqueue(stream, {NULL, "a memset", [ptr, value, bytes] {
                                     if (bytes > 0)
                                         memset(ptr, value, bytes);
                                 }});
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    cudaError_t e = cudaMemcpyAsync(dst, src, bytes, kind, 0);

    return e == cudaSuccess ? cudaStreamSynchronize(0) : e;
}

cudaError_t cudaMemset(void *ptr, int value, size_t bytes)
{
    return cudaMemsetAsync(ptr, value, bytes, 0);
}
