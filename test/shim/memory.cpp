/*
 * memory.cpp -- allocations with guards around them.
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
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory.h"

#if SHIM_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n)   ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

static const size_t ALIGN = 256, GUARD = (size_t)1 << 20, FILL = (size_t)8 << 20;
static const unsigned char BESIDE = 0xA5;
static const size_t MAX_FREED = 256;

/* never destroyed: a program may free after the end of main */
static std::map<uintptr_t, shim_region> &live = *new std::map<uintptr_t, shim_region>;
static std::deque<shim_region> &freed = *new std::deque<shim_region>;
static std::map<uintptr_t, size_t> &registered = *new std::map<uintptr_t, size_t>;
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

static void mark_slack(const shim_region &r)
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

const char *shim_side_name(shim_side side)
{
    return side == SHIM_DEVICE ? "device" : side == SHIM_HOST ? "pinned" : "managed";
}

static void check_region(const shim_region &r)
{
    const char *last = r.body + r.body_bytes;
    const char *before = changed(r.body, r.data),
               *behind = changed(r.data + r.bytes, last);

    if (before != r.data)
        shim_die("wrote outside an allocation: at offset %td of %zu bytes of %s memory",
                 before - r.data, r.bytes, shim_side_name(r.side));
    if (behind != last)
        shim_die("wrote outside an allocation: at offset %td of %zu bytes of %s memory",
                 behind - r.data, r.bytes, shim_side_name(r.side));
}

void shim_memory_check(void)
{
    for (const auto &[at, r] : live)
        check_region(r);
}

/* ---------------------------------------------------------------- access */

static void set_access(const shim_region &r, int prot)
{
    if (mprotect(r.body, r.body_bytes, prot) != 0)
        shim_die("mprotect failed");
}

void shim_memory_open(void)
{
    if (is_open)
        return;
    shim_catch_faults();
    for (const auto &[at, r] : live)
        if (r.side == SHIM_DEVICE)
            set_access(r, PROT_READ | PROT_WRITE);
    is_open = true;
}

void shim_memory_close(void)
{
    if (!is_open)
        return;
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

static bool map_region(shim_region *r)
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
    shim_locked hold;
    shim_region r = {};

    if (!out)
        return shim_error(cudaErrorInvalidValue);
    *out = NULL;
    if (bytes == 0)
        return side == SHIM_BOTH ? shim_error(cudaErrorInvalidValue) : cudaSuccess;
    if (fill_fd < 0)
        fill_fd = open_fill();
    r.side = side;
    r.bytes = bytes;
    cudaGetDevice(&r.device);
    if (bytes > total() || (side != SHIM_HOST && bytes > total() - used) ||
        !map_region(&r))
        return shim_error(cudaErrorMemoryAllocation);
    mark_slack(r);
    if (side == SHIM_DEVICE && !is_open)
        set_access(r, PROT_NONE);
    used += side == SHIM_HOST ? 0 : bytes;
    live[(uintptr_t)r.data] = r;
    shim_catch_faults();
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
    shim_locked hold;
    std::map<uintptr_t, shim_region>::iterator it;
    shim_region r;

    if (!ptr)
        return cudaSuccess;
    if (live.count((uintptr_t)ptr))
        shim_finish_all();
    it = live.find((uintptr_t)ptr); /* another thread may have been quicker */
    if (it == live.end() || (it->second.side == SHIM_HOST) != host)
        return shim_error(cudaErrorInvalidValue);
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
    if (shim_option("SHIM_NO_MANAGED", 0))
        return shim_error(cudaErrorNotSupported);
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
    shim_locked hold;

    *free_bytes = total() - used;
    *total_bytes = total();
    return cudaSuccess;
}

/* ---------------------------------------------------------------- whose memory it is */

bool shim_region_around(const char *at, shim_region *out, bool *is_freed)
{
    for (const auto &[key, r] : live)
        if (at >= r.map && at < r.map + r.map_bytes) {
            *out = r;
            *is_freed = false;
            return true;
        }
    for (const shim_region &r : freed)
        if (at >= r.map && at < r.map + r.map_bytes) {
            *out = r;
            *is_freed = true;
            return true;
        }
    return false;
}

static const shim_region *region_of(uintptr_t p)
{
    auto it = live.upper_bound(p);

    if (it == live.begin())
        return NULL;
    --it;
    return p < it->first + round_up(it->second.bytes, ALIGN) ? &it->second : NULL;
}

/* The range that cudaHostRegister() named and p is in; NULL: none. */
static const std::pair<const uintptr_t, size_t> *registered_around(uintptr_t p)
{
    auto it = registered.upper_bound(p);

    if (it == registered.begin())
        return NULL;
    --it;
    return p - it->first < it->second ? &*it : NULL;
}

shim_side shim_side_of(const void *p, size_t *rest)
{
    shim_locked hold;
    uintptr_t at = (uintptr_t)p;
    const shim_region *r = region_of(at);
    const auto *range = registered_around(at);

    if (r) {
        uintptr_t end = (uintptr_t)r->data + r->bytes;

        *rest = at < end ? end - at : 0;
        return r->side;
    }
    *rest = range ? range->first + range->second - at : SIZE_MAX;
    return SHIM_HOST;
}

/* Pages that are the program's own become pinned, for what asks; nothing else changes. */
cudaError_t cudaHostRegister(void *ptr, size_t bytes, unsigned int)
{
    shim_locked hold;
    uintptr_t first = (uintptr_t)ptr, last = first + bytes - 1;

    if (!ptr || bytes == 0 || last < first)
        return shim_error(cudaErrorInvalidValue);
    if (region_of(first) || region_of(last))
        return shim_error(cudaErrorInvalidValue);
    for (const auto &[at, n] : registered)
        if (at <= last && first < at + n)
            return shim_error(cudaErrorHostMemoryAlreadyRegistered);
    registered[first] = bytes;
    return cudaSuccess;
}

/* Waits for everything first: copies may be under way. */
cudaError_t cudaHostUnregister(void *ptr)
{
    shim_locked hold;

    if (!registered.count((uintptr_t)ptr))
        return shim_error(cudaErrorHostMemoryNotRegistered);
    shim_finish_all();
    registered.erase((uintptr_t)ptr);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *ptr)
{
    shim_locked hold;
    const shim_region *r = region_of((uintptr_t)ptr);
    void *p = const_cast<void *>(ptr);

    if (!out)
        return shim_error(cudaErrorInvalidValue);
    if (r && r->side == SHIM_DEVICE)
        *out = {cudaMemoryTypeDevice, r->device, p, NULL};
    else if (r && r->side == SHIM_BOTH)
        *out = {cudaMemoryTypeManaged, r->device, p, p};
    else if (r)
        *out = {cudaMemoryTypeHost, r->device, p, p};
    else if (registered_around((uintptr_t)ptr))
        *out = {cudaMemoryTypeHost, 0, p, p};
    else
        *out = {cudaMemoryTypeUnregistered, -2, NULL, p};
    return cudaSuccess;
}
