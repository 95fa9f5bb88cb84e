/* meet_join.c -- how a meeting begins, grows and ends. */
#include "worker/comm/meet.h"
#include "worker/comm/room.h"

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
 * Give [at, at + bytes) of the file memory. errno's number, or 0. There must be room for
 * the rest of it, and for the next step of all ranks, which may take theirs meanwhile.
 */
static int allocate(const struct zt_meet *m, uint64_t at, size_t bytes)
{
    struct rlimit most;
    int e = 0;

    /* past this limit the kernel does not refuse, it ends the process */
    if (!getrlimit(RLIMIT_FSIZE, &most) && at + bytes > most.rlim_cur)
        return EFBIG;
    while (!e && bytes) {
        size_t n = bytes < CHUNK_MAX ? bytes : CHUNK_MAX;

        size_t room = zt_comm_room();

        if (room < bytes || room / (size_t)m->world < n)
            return ENOMEM;
        e = posix_fallocate(m->fd, (off_t)at, (off_t)n);
        if (e == EINTR)
            e = 0;
        else
            at += n, bytes -= n;
    }
    return e;
}

/* The reverse. Memory that stays is a loss, not an error. */
static void give_back(const struct zt_meet *m, uint64_t at, size_t bytes)
{
    if (bytes)
        (void)!fallocate(m->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
                         (off_t)bytes);
}

static void *map(int fd, uint64_t at, size_t bytes)
{
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)at);
}

static void drop_piece(struct zt_meet *m, const struct zt_meet_piece *piece,
                       const struct zt_heap_region *region)
{
    give_back(m, region->file_off + piece->from, piece->to - piece->from);
    munmap(region->at, region->bytes);
}

/* Map all of a piece and give this rank's part memory; or neither. */
static zt_err take_piece(struct zt_meet *m, const struct zt_meet_piece *piece,
                         struct zt_heap_region *out, struct zt_fault *fault)
{
    int me = zt_meet_name(m, m->rank), e;

    out->bytes = piece->bytes;
    if (piece->bytes > PIECE_MAX)
        return zt_fault_set(fault, ZT_E_NOMEM, "comm: no machine has %zu bytes",
                            piece->bytes);
    out->at = map(m->fd, out->file_off, out->bytes);
    if (out->at == MAP_FAILED)
        return zt_fault_set(fault, ZT_E_NOMEM,
                            "comm: rank %d: no addresses for %zu bytes of shared memory: "
                            "%s; raise 'ulimit -v'",
                            me, out->bytes, strerror(errno));
    e = allocate(m, out->file_off + piece->from, piece->to - piece->from);
    if (!e)
        return ZT_OK;
    drop_piece(m, piece, out);
    return zt_fault_set(fault, ZT_E_NOMEM,
                        "comm: rank %d: no shared memory for %zu bytes: %s", me,
                        piece->to - piece->from, strerror(e));
}

/* Some rank got nothing: which, if this one did? */
static zt_err refused(const struct zt_meet *m, const struct zt_meet_piece *piece,
                      const struct zt_fault *why, struct zt_fault *fault)
{
    for (int r = 0; r < m->world; r++)
        if (r != m->rank && atomic_load(&m->line[r].no_memory) && !why->code)
            return zt_fault_set(fault, ZT_E_NOMEM,
                                "comm: rank %d has no shared memory for its part of %zu "
                                "bytes",
                                zt_meet_name(m, r), piece->bytes);
    return zt_fault_set(fault, ZT_E_NOMEM, "%s", why->text);
}

zt_err zt_meet_claim(struct zt_meet *m, const struct zt_comm_call *call,
                     const struct zt_meet_piece *piece, struct zt_heap_region *out,
                     struct zt_fault *fault)
{
    struct zt_heap_region region = {0};
    struct zt_shm_header mine = {0};
    struct zt_fault why = {0};
    bool all = true;
    zt_err rc, mine_rc;

    if (m->rank == piece->leader)
        mine.send_off = atomic_fetch_add(&m->file->file_end,
                                         piece->bytes > PIECE_MAX ? 0 : piece->bytes);
    rc = zt_meet_begin(m, call, &mine, fault);
    if (rc)
        return rc;
    region.file_off = zt_meet_header(m, piece->leader)->send_off;
    mine_rc = take_piece(m, piece, &region, &why);
    atomic_store(&m->line[m->rank].no_memory, mine_rc != ZT_OK);
    rc = zt_meet_sync(m, fault);
    for (int r = 0; !rc && r < m->world; r++)
        all = all && !atomic_load(&m->line[r].no_memory);
    if (!rc && all) {
        *out = region;
        return ZT_OK;
    }
    if (!mine_rc)
        drop_piece(m, piece, &region);
    return rc ? rc : refused(m, piece, &why, fault);
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

static void set_places(struct zt_meet *m, void *head)
{
    m->head = head;
    m->line = (void *)((char *)head + ZT_SHM_PAGE);
    m->area = (char *)m->line + lines_bytes(m->world);
}

/* Rank 0: give the lines memory, and say what the group is. */
static zt_err publish(struct zt_meet *m, struct zt_shm_head *h, struct zt_fault *fault)
{
    int e;

    if (atomic_load(&h->magic))
        return zt_fault_set(fault, ZT_E_ARG, "comm: this shared memory was used before");
    e = allocate(m, ZT_SHM_PAGE, lines_bytes(m->world));
    if (e)
        return zt_fault_set(fault, ZT_E_NOMEM, "comm: no shared memory: %s", strerror(e));
    h->world = (uint32_t)m->world;
    atomic_store(&h->file_end, fixed_bytes(m->world));
    atomic_store(&h->magic, ZT_SHM_MAGIC);
    zt_shm_ring(h);
    return ZT_OK;
}

/* The others: wait for that, and agree. */
static zt_err await_publish(struct zt_meet *m, struct zt_shm_head *h,
                            struct zt_fault *fault)
{
    double deadline = zt_meet_now_s() + m->timeout_s;

    for (;;) {
        uint32_t bell = atomic_load(&h->bell), magic = atomic_load(&h->magic);
        uint32_t word = atomic_load(&h->abort);

        if (word)
            return zt_meet_aborted(m, word, fault);
        if (magic == ZT_SHM_MAGIC)
            break;
        if (magic)
            return zt_fault_set(fault, ZT_E_PEER,
                                "comm: rank 0 uses another layout (%08x, not %08x)",
                                magic, ZT_SHM_MAGIC);
        if (zt_meet_now_s() >= deadline)
            return zt_fault_set(fault, ZT_E_PEER,
                                "comm: open on rank %d: rank 0 did not come within %g s",
                                m->rank, m->timeout_s);
        zt_meet_sleep(h, bell, deadline);
    }
    if (h->world != (uint32_t)m->world)
        return zt_fault_set(fault, ZT_E_PEER,
                            "comm: rank %d expects a world of %d, rank 0 made one of %u",
                            m->rank, m->world, h->world);
    return ZT_OK;
}

/* Map the first page, agree through it, then map all that is fixed. */
static zt_err map_all(struct zt_meet *m, struct zt_fault *fault)
{
    int e = allocate(m, 0, ZT_SHM_PAGE); /* never shrinks what is there */
    struct zt_shm_head *first;
    void *at;
    zt_err rc;

    if (e)
        return zt_fault_set(fault, ZT_E_SYSTEM, "comm: shared memory (descriptor %d): %s",
                            m->fd, strerror(e));
    first = map(m->fd, 0, ZT_SHM_PAGE);
    if (first == MAP_FAILED)
        return zt_fault_set(fault, ZT_E_SYSTEM, "comm: cannot map %u bytes: %s",
                            ZT_SHM_PAGE, strerror(errno));
    rc = m->rank ? await_publish(m, first, fault) : publish(m, first, fault);
    munmap(first, ZT_SHM_PAGE);
    if (rc)
        return rc;
    at = map(m->fd, 0, fixed_bytes(m->world));
    if (at == MAP_FAILED)
        return zt_fault_set(fault, ZT_E_SYSTEM, "comm: cannot map %zu bytes: %s",
                            fixed_bytes(m->world), strerror(errno));
    set_places(m, at);
    m->file = m->head;
    return ZT_OK;
}

/* Take my line and give my area memory. */
static zt_err take_place(struct zt_meet *m, struct zt_fault *fault)
{
    uint64_t area = (uint64_t)(zt_meet_small(m, m->rank, 0) - (char *)m->head);
    uint32_t state = ZT_SHM_ABSENT;
    int e;

    if (!atomic_compare_exchange_strong(&m->line[m->rank].state, &state,
                                        ZT_SHM_PRESENT)) {
        munmap(m->head, fixed_bytes(m->world)); /* the line is another's: leave it */
        m->head = NULL;
        return zt_fault_set(fault, ZT_E_ARG, "comm: there is a rank %d already", m->rank);
    }
    e = allocate(m, area, ZT_SHM_AREA_BYTES);
    if (e)
        return zt_fault_set(fault, ZT_E_NOMEM,
                            "comm: rank %d: no shared memory for %zu bytes: %s", m->rank,
                            ZT_SHM_AREA_BYTES, strerror(e));
    return ZT_OK;
}

zt_err zt_meet_join(struct zt_meet *m, const struct zt_comm_config *cfg,
                    struct zt_fault *fault)
{
    struct zt_comm_call call = {.op = ZT_COMM_OPEN};
    struct zt_shm_header mine = {0};
    zt_err rc;

    memset(m, 0, sizeof(*m));
    if (cfg->world > ZT_SHM_MAX_WORLD)
        return zt_fault_set(fault, ZT_E_LIMIT,
                            "comm: shm is for at most %d ranks, not %d", ZT_SHM_MAX_WORLD,
                            cfg->world);
    if (!(cfg->timeout_s > 0))
        return zt_fault_set(fault, ZT_E_ARG, "comm: shm needs a timeout above 0 s");
    m->fd = cfg->shm_fd;
    m->rank = cfg->rank;
    m->world = cfg->world;
    m->timeout_s = cfg->timeout_s;
    m->spin = ZT_MEET_SPIN_START;
    m->doing = zt_comm_op_name(ZT_COMM_OPEN);

    rc = map_all(m, fault);
    if (!rc)
        rc = take_place(m, fault);
    if (!rc)
        rc = zt_meet_begin(m, &call, &mine, fault);
    if (rc)
        zt_meet_leave(m);
    return rc;
}

/* ---------------------------------------------------------------- groups */
/* What a member of `m` knows of the group before it has memory. */
static zt_err init_group(const struct zt_meet *m, const int *members, int num_members,
                         int my_index, struct zt_meet *group, struct zt_fault *fault)
{
    *group = (struct zt_meet){.file = m->file,
                              .fd = m->fd,
                              .rank = my_index,
                              .world = num_members,
                              .spin = ZT_MEET_SPIN_START,
                              .timeout_s = m->timeout_s,
                              .heap = {.outer = &m->heap},
                              .doing = zt_comm_op_name(ZT_COMM_OPEN)};
    group->name = calloc((size_t)num_members, sizeof(*group->name));
    if (!group->name)
        return zt_fault_set(fault, ZT_E_SYSTEM, "comm: out of memory");
    for (int i = 0; i < num_members; i++)
        group->name[i] = zt_meet_name(m, members[i]);
    return ZT_OK;
}

zt_err zt_meet_split(struct zt_meet *m, const int *members, int num_members, int my_index,
                     struct zt_meet *group, struct zt_fault *fault)
{
    struct zt_comm_call call = {.op = ZT_COMM_SPLIT};
    size_t areas = ZT_SHM_PAGE + lines_bytes(num_members);
    struct zt_meet_piece piece = {
        .leader = members[0],
        .bytes = fixed_bytes(num_members),
        .from = my_index ? areas + (size_t)my_index * ZT_SHM_AREA_BYTES : 0,
        .to = areas + ((size_t)my_index + 1) * ZT_SHM_AREA_BYTES};
    struct zt_heap_region region;
    zt_err rc = init_group(m, members, num_members, my_index, group, fault);

    if (rc)
        return rc;
    rc = zt_meet_claim(m, &call, &piece, &region, fault);
    if (rc) {
        free(group->name);
        return rc;
    }
    group->file_off = region.file_off;
    set_places(group, region.at);
    return ZT_OK;
}

/* The last member to leave a group gives its memory back to the machine. */
static void empty_group(struct zt_meet *m)
{
    if (atomic_fetch_add(&m->head->gone, 1) + 1 != (uint32_t)m->world)
        return;
    for (size_t i = 0; i < m->heap.num; i++)
        give_back(m, m->heap.by_off[i].file_off, m->heap.by_off[i].bytes);
    give_back(m, m->file_off, fixed_bytes(m->world));
}

void zt_meet_leave(struct zt_meet *m)
{
    if (m->head) {
        atomic_store(&m->line[m->rank].state, ZT_SHM_LEFT);
        zt_shm_ring(m->head);
        if (m->head != m->file)
            empty_group(m);
        munmap(m->head, fixed_bytes(m->world));
        m->head = NULL;
    }
    zt_heap_release(&m->heap);
    free(m->name);
    m->name = NULL;
}
