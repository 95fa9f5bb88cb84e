/* join.c -- how ranks join a group, split it, allocate and leave. */
#include "worker/comm/shm/group.h"
#include "worker/comm/shm/available_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* A signal makes the kernel give up, and give back, a whole request: keep them short. */
#define CHUNK_MAX ((size_t)64 << 20)
/* Larger pieces are refused without asking, so that file offsets cannot run out. */
#define PIECE_MAX ((size_t)1 << 46)

/* ---------------------------------------------------------------- memory of the file */
/*
 * Allocate pages for [at, at + bytes) of the file. Returns errno's number, or 0. There
 * must be memory for the rest of it, and for the next step of all ranks at the same time.
 */
static int allocate_pages(const struct zt_shm_group *g, uint64_t at, size_t bytes)
{
    struct rlimit most;
    int e = 0;

    /* past this limit the kernel does not refuse, it ends the process */
    if (!getrlimit(RLIMIT_FSIZE, &most) && at + bytes > most.rlim_cur)
        return EFBIG;
    while (!e && bytes) {
        size_t n = bytes < CHUNK_MAX ? bytes : CHUNK_MAX;

        size_t room = zt_comm_available_memory();

        if (room < bytes || room / (size_t)g->world < n)
            return ENOMEM;
        e = posix_fallocate(g->fd, (off_t)at, (off_t)n);
        if (e == EINTR)
            e = 0;
        else
            at += n, bytes -= n;
    }
    return e;
}

/* The reverse. Failing costs memory, but is no error. */
static void free_pages(const struct zt_shm_group *g, uint64_t at, size_t bytes)
{
    if (bytes)
        (void)!fallocate(g->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
                         (off_t)bytes);
}

static void *map(int fd, uint64_t at, size_t bytes)
{
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)at);
}

static void unmap_piece(struct zt_shm_group *g, const struct zt_shm_piece *piece,
                        const struct zt_heap_region *region)
{
    free_pages(g, region->file_off + piece->from, piece->to - piece->from);
    munmap(region->at, region->bytes);
}

/* Map all of a piece and give this rank's part memory; or neither. */
static zt_err map_piece(struct zt_shm_group *g, const struct zt_shm_piece *piece,
                        struct zt_heap_region *out, struct zt_fault *fault)
{
    int me = zt_shm_group_global_rank(g, g->rank), e;

    out->bytes = piece->bytes;
    if (piece->bytes > PIECE_MAX)
        return zt_fault_set(fault, ZT_E_NOMEM, "comm: no machine has %zu bytes",
                            piece->bytes);
    out->at = map(g->fd, out->file_off, out->bytes);
    if (out->at == MAP_FAILED)
        return zt_fault_set(fault, ZT_E_NOMEM,
                            "comm: rank %d: no addresses for %zu bytes of shared memory: "
                            "%s; raise 'ulimit -v'",
                            me, out->bytes, strerror(errno));
    e = allocate_pages(g, out->file_off + piece->from, piece->to - piece->from);
    if (!e)
        return ZT_OK;
    unmap_piece(g, piece, out);
    return zt_fault_set(fault, ZT_E_NOMEM,
                        "comm: rank %d: no shared memory for %zu bytes: %s", me,
                        piece->to - piece->from, strerror(e));
}

/* Some rank got nothing: which, if this one did? */
static zt_err no_memory_error(const struct zt_shm_group *g,
                              const struct zt_shm_piece *piece,
                              const struct zt_fault *why, struct zt_fault *fault)
{
    for (int r = 0; r < g->world; r++)
        if (r != g->rank && atomic_load(&g->line[r].no_memory) && !why->code)
            return zt_fault_set(fault, ZT_E_NOMEM,
                                "comm: rank %d has no shared memory for its part of %zu "
                                "bytes",
                                zt_shm_group_global_rank(g, r), piece->bytes);
    return zt_fault_set(fault, ZT_E_NOMEM, "%s", why->text);
}

zt_err zt_shm_group_alloc(struct zt_shm_group *g, const struct zt_comm_call *call,
                          const struct zt_shm_piece *piece, struct zt_heap_region *out,
                          struct zt_fault *fault)
{
    struct zt_heap_region region = {0};
    struct zt_shm_header mine = {0};
    struct zt_fault why = {0};
    bool all = true;
    zt_err rc, mine_rc;

    if (g->rank == piece->leader)
        mine.send_off = atomic_fetch_add(&g->file->file_end,
                                         piece->bytes > PIECE_MAX ? 0 : piece->bytes);
    rc = zt_shm_group_begin(g, call, &mine, fault);
    if (rc)
        return rc;
    region.file_off = zt_shm_group_header(g, piece->leader)->send_off;
    mine_rc = map_piece(g, piece, &region, &why);
    atomic_store(&g->line[g->rank].no_memory, mine_rc != ZT_OK);
    rc = zt_shm_group_barrier(g, fault);
    for (int r = 0; !rc && r < g->world; r++)
        all = all && !atomic_load(&g->line[r].no_memory);
    if (!rc && all) {
        *out = region;
        return ZT_OK;
    }
    if (!mine_rc)
        unmap_piece(g, piece, &region);
    return rc ? rc : no_memory_error(g, piece, &why, fault);
}

/* ---------------------------------------------------------------- the first world */
static size_t lines_bytes(int world)
{
    return zt_shm_page_up((size_t)world * sizeof(struct zt_shm_line));
}

/* Head, lines and areas. */
static size_t fixed_bytes(int world)
{
    return ZT_SHM_PAGE + lines_bytes(world) + (size_t)world * ZT_SHM_AREA_BYTES;
}

static void set_places(struct zt_shm_group *g, void *head)
{
    g->head = head;
    g->line = (void *)((char *)head + ZT_SHM_PAGE);
    g->area = (char *)g->line + lines_bytes(g->world);
}

/* Rank 0: give the lines memory, and say what the group is. */
static zt_err init_head(struct zt_shm_group *g, struct zt_shm_head *h,
                        struct zt_fault *fault)
{
    int e;

    if (atomic_load(&h->magic))
        return zt_fault_set(fault, ZT_E_ARG, "comm: this shared memory was used before");
    e = allocate_pages(g, ZT_SHM_PAGE, lines_bytes(g->world));
    if (e)
        return zt_fault_set(fault, ZT_E_NOMEM, "comm: no shared memory: %s", strerror(e));
    h->world = (uint32_t)g->world;
    atomic_store(&h->file_end, fixed_bytes(g->world));
    atomic_store(&h->magic, ZT_SHM_MAGIC);
    zt_shm_wake(h);
    return ZT_OK;
}

/* The others: wait for that, and agree. */
static zt_err await_head(struct zt_shm_group *g, struct zt_shm_head *h,
                         struct zt_fault *fault)
{
    double deadline = zt_shm_now_s() + g->timeout_s;

    for (;;) {
        uint32_t wakeups = atomic_load(&h->wakeups), magic = atomic_load(&h->magic);
        uint32_t word = atomic_load(&h->abort);

        if (word)
            return zt_shm_group_abort_error(g, word, fault);
        if (magic == ZT_SHM_MAGIC)
            break;
        if (magic)
            return zt_fault_set(fault, ZT_E_PEER,
                                "comm: rank 0 uses another layout (%08x, not %08x)",
                                magic, ZT_SHM_MAGIC);
        if (zt_shm_now_s() >= deadline)
            return zt_fault_set(fault, ZT_E_PEER,
                                "comm: open on rank %d: rank 0 did not come within %g s",
                                g->rank, g->timeout_s);
        zt_shm_sleep(h, wakeups, deadline);
    }
    if (h->world != (uint32_t)g->world)
        return zt_fault_set(fault, ZT_E_PEER,
                            "comm: rank %d expects a world of %d, rank 0 made one of %u",
                            g->rank, g->world, h->world);
    return ZT_OK;
}

/* Map the first page, agree through it, then map all that is fixed. */
static zt_err map_all(struct zt_shm_group *g, struct zt_fault *fault)
{
    int e = allocate_pages(g, 0, ZT_SHM_PAGE); /* never shrinks what is there */
    struct zt_shm_head *first;
    void *at;
    zt_err rc;

    if (e)
        return zt_fault_set(fault, ZT_E_SYSTEM, "comm: shared memory (descriptor %d): %s",
                            g->fd, strerror(e));
    first = map(g->fd, 0, ZT_SHM_PAGE);
    if (first == MAP_FAILED)
        return zt_fault_set(fault, ZT_E_SYSTEM, "comm: cannot map %u bytes: %s",
                            ZT_SHM_PAGE, strerror(errno));
    rc = g->rank ? await_head(g, first, fault) : init_head(g, first, fault);
    munmap(first, ZT_SHM_PAGE);
    if (rc)
        return rc;
    at = map(g->fd, 0, fixed_bytes(g->world));
    if (at == MAP_FAILED)
        return zt_fault_set(fault, ZT_E_SYSTEM, "comm: cannot map %zu bytes: %s",
                            fixed_bytes(g->world), strerror(errno));
    set_places(g, at);
    g->file = g->head;
    return ZT_OK;
}

/* Take my line and give my area memory. */
static zt_err claim_line(struct zt_shm_group *g, struct zt_fault *fault)
{
    uint64_t area = (uint64_t)(zt_shm_group_small(g, g->rank, 0) - (char *)g->head);
    uint32_t state = ZT_SHM_ABSENT;
    int e;

    if (!atomic_compare_exchange_strong(&g->line[g->rank].state, &state,
                                        ZT_SHM_PRESENT)) {
        munmap(g->head, fixed_bytes(g->world)); /* the line is another's: leave it */
        g->head = NULL;
        return zt_fault_set(fault, ZT_E_ARG, "comm: there is a rank %d already", g->rank);
    }
    e = allocate_pages(g, area, ZT_SHM_AREA_BYTES);
    if (e)
        return zt_fault_set(fault, ZT_E_NOMEM,
                            "comm: rank %d: no shared memory for %zu bytes: %s", g->rank,
                            ZT_SHM_AREA_BYTES, strerror(e));
    return ZT_OK;
}

zt_err zt_shm_group_join(struct zt_shm_group *g, const struct zt_comm_config *cfg,
                         struct zt_fault *fault)
{
    struct zt_comm_call call = {.op = ZT_COMM_OPEN};
    struct zt_shm_header mine = {0};
    zt_err rc;

    memset(g, 0, sizeof(*g));
    if (cfg->world > ZT_SHM_MAX_WORLD)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "comm: shm is for at most %d ranks, not %d; --comm auto, or "
                            "tcp, takes more",
                            ZT_SHM_MAX_WORLD, cfg->world);
    if (!(cfg->timeout_s > 0))
        return zt_fault_set(fault, ZT_E_ARG, "comm: shm needs a timeout above 0 s");
    g->fd = cfg->shm_fd;
    g->rank = cfg->rank;
    g->world = cfg->world;
    g->timeout_s = cfg->timeout_s;
    g->spin = ZT_SHM_SPIN_START;
    g->call_name = zt_comm_op_name(ZT_COMM_OPEN);

    rc = map_all(g, fault);
    if (!rc)
        rc = claim_line(g, fault);
    if (!rc)
        rc = zt_shm_group_begin(g, &call, &mine, fault);
    if (rc)
        zt_shm_group_leave(g);
    return rc;
}

/* ---------------------------------------------------------------- groups */
/* What a member of `m` knows of the group before it has memory. */
static zt_err init_group(const struct zt_shm_group *g, const int *members,
                         int num_members, int my_index, struct zt_shm_group *child,
                         struct zt_fault *fault)
{
    *child = (struct zt_shm_group){.file = g->file,
                                   .fd = g->fd,
                                   .rank = my_index,
                                   .world = num_members,
                                   .spin = ZT_SHM_SPIN_START,
                                   .timeout_s = g->timeout_s,
                                   .heap = {.outer = &g->heap},
                                   .call_name = zt_comm_op_name(ZT_COMM_OPEN)};
    child->global_rank = calloc((size_t)num_members, sizeof(*child->global_rank));
    if (!child->global_rank)
        return zt_fault_set(fault, ZT_E_SYSTEM, "comm: out of memory");
    for (int i = 0; i < num_members; i++)
        child->global_rank[i] = zt_shm_group_global_rank(g, members[i]);
    return ZT_OK;
}

zt_err zt_shm_group_split(struct zt_shm_group *g, const int *members, int num_members,
                          int my_index, struct zt_shm_group *child,
                          struct zt_fault *fault)
{
    struct zt_comm_call call = {.op = ZT_COMM_SPLIT};
    size_t areas = ZT_SHM_PAGE + lines_bytes(num_members);
    struct zt_shm_piece piece = {
        .leader = members[0],
        .bytes = fixed_bytes(num_members),
        .from = my_index ? areas + (size_t)my_index * ZT_SHM_AREA_BYTES : 0,
        .to = areas + ((size_t)my_index + 1) * ZT_SHM_AREA_BYTES};
    struct zt_heap_region region;
    zt_err rc = init_group(g, members, num_members, my_index, child, fault);

    if (rc)
        return rc;
    rc = zt_shm_group_alloc(g, &call, &piece, &region, fault);
    if (rc) {
        free(child->global_rank);
        return rc;
    }
    child->file_off = region.file_off;
    set_places(child, region.at);
    return ZT_OK;
}

/* The last member to leave a group gives its memory back to the machine. */
static void free_group_memory(struct zt_shm_group *g)
{
    if (atomic_fetch_add(&g->head->gone, 1) + 1 != (uint32_t)g->world)
        return;
    for (size_t i = 0; i < g->heap.num; i++)
        free_pages(g, g->heap.by_off[i].file_off, g->heap.by_off[i].bytes);
    free_pages(g, g->file_off, fixed_bytes(g->world));
}

void zt_shm_group_leave(struct zt_shm_group *g)
{
    if (g->head) {
        atomic_store(&g->line[g->rank].state, ZT_SHM_LEFT);
        zt_shm_wake(g->head);
        if (g->head != g->file)
            free_group_memory(g);
        munmap(g->head, fixed_bytes(g->world));
        g->head = NULL;
    }
    zt_heap_release(&g->heap);
    free(g->global_rank);
    g->global_rank = NULL;
}
