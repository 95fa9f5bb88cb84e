#include "worker/zero/regions.h"

#include <assert.h>
#include <stdlib.h>

#include "kernels/integers.h"
#include "worker/zero/private.h"

_Static_assert(ZT_SHARD_ALIGN % ZT_NORM_CHUNK == 0, "shards are whole chunks of a norm");
_Static_assert(ZT_SHARD_ALIGN % ZT_TIER_ALIGN == 0, "so are pieces of one-byte state");

const char *zt_state_name(zt_state_kind kind)
{
    static const char *const names[ZT_NUM_STATE_KINDS + 1] = {
        [ZT_STATE_WEIGHTS] = "weights",     [ZT_STATE_MASTER] = "master weights",
        [ZT_STATE_GRADIENTS] = "gradients", [ZT_STATE_SECONDARY] = "secondary shards",
        [ZT_STATE_VALUE] = "value",
    };

    return names[kind] ? names[kind] : "optimizer state";
}

/* ---- memory ---- */

zt_err zt_memory_alloc(struct zt_zero *z, zt_memory_kind memory, size_t bytes, void **out,
                       struct zt_fault *fault)
{
    if (z->planning || memory == ZT_MEMORY_PRIVATE)
        return z->cfg.backend->alloc(z->cfg.device, bytes, out, fault);
    if (memory == ZT_MEMORY_NODE)
        return zt_comm_alloc_shared(z->cfg.comm, bytes, out, fault);
    return zt_comm_alloc(memory == ZT_MEMORY_GROUP ? z->secondary_comm : z->cfg.comm,
                         bytes, out, fault);
}

void zt_memory_free(struct zt_zero *z, zt_memory_kind memory, void *p, size_t bytes)
{
    if (p && (z->planning || memory == ZT_MEMORY_PRIVATE))
        z->cfg.backend->free(z->cfg.device, p, bytes);
}

/* The same for a tier, which knows neither ranks nor plans. */
static zt_err region_alloc(void *ctx, size_t bytes, void **out, struct zt_fault *fault)
{
    const struct zt_region *r = ctx;

    return zt_memory_alloc(r->zero, r->memory, bytes, out, fault);
}

static void region_free(void *ctx, void *p, size_t bytes)
{
    const struct zt_region *r = ctx;

    zt_memory_free(r->zero, r->memory, p, bytes);
}

/* Buffers of a tier that moves are no peer's. */
static zt_err buffer_alloc(void *ctx, size_t bytes, void **out, struct zt_fault *fault)
{
    const struct zt_region *r = ctx;

    return zt_memory_alloc(r->zero, ZT_MEMORY_PRIVATE, bytes, out, fault);
}

static void buffer_free(void *ctx, void *p, size_t bytes)
{
    const struct zt_region *r = ctx;

    zt_memory_free(r->zero, ZT_MEMORY_PRIVATE, p, bytes);
}

/* ---- opening ---- */

/* The first blocks, until offload_ratio of the elements that the optimizer works on are
 * among them: the same blocks for every kind of state, and on every rank. */
static void choose_moved(const struct zt_zero *z, struct zt_region *r)
{
    const struct zt_model *m = z->cfg.model;
    double all = 0, moved = 0;

    for (int i = 0; i < m->num_blocks; i++)
        all += m->blocks[i]->frozen ? 0 : (double)m->blocks[i]->padded_elems;
    for (int i = 0; i < m->num_blocks; i++) {
        r->in[i] =
            moved < z->cfg.offload_ratio * all ? ZT_STORE_OFFLOADED : ZT_STORE_DEVICE;
        moved += m->blocks[i]->frozen ? 0 : (double)m->blocks[i]->padded_elems;
    }
}

zt_err zt_region_open(struct zt_zero *z, zt_state_kind kind, zt_dtype dtype,
                      bool frozen_too, bool whole, struct zt_fault *fault)
{
    size_t n = (size_t)z->cfg.model->num_blocks + 1;
    struct zt_region *r = &z->regions[kind];

    *r = (struct zt_region){
        .zero = z,
        .kind = kind,
        .dtype = dtype,
        .stores = {[ZT_STORE_DEVICE] = {.tier = &zt_device_tier},
                   [ZT_STORE_HOST] = {.tier = &zt_host_tier},
                   [ZT_STORE_OFFLOADED] = {.tier = z->cfg.tiers[kind]}},
        .parts = z->cfg.world,
        .part = z->cfg.rank,
        .offset = calloc(n, sizeof(*r->offset)),
        .whole = calloc(n, sizeof(*r->whole)),
        .in = calloc(n, sizeof(*r->in)),
    };
    if (!r->offset || !r->whole || !r->in)
        return zt_fault_set(fault, ZT_E_NOMEM, "model state: no host memory");
    for (int i = 0; i < z->cfg.model->num_blocks; i++) {
        r->offset[i] = !frozen_too && z->cfg.model->blocks[i]->frozen ? -1 : 0;
        r->whole[i] = whole;
    }
    if (r->stores[ZT_STORE_OFFLOADED].tier)
        choose_moved(z, r);
    return ZT_OK;
}

/* Elements of the block in the region. */
static int64_t held_elems(const struct zt_region *r, const struct zt_block *b)
{
    return r->whole[b->index] ? b->padded_elems : b->padded_elems / r->parts;
}

/* Give every block that has such state its place in its store. */
static void place_blocks(struct zt_zero *z, struct zt_region *r)
{
    int64_t elems[ZT_NUM_STORES] = {0};

    for (int i = 0; i < z->cfg.model->num_blocks; i++) {
        if (r->offset[i] < 0)
            continue;
        r->offset[i] = elems[r->in[i]];
        elems[r->in[i]] += held_elems(r, z->cfg.model->blocks[i]);
    }
    for (zt_store_kind k = 0; k < ZT_NUM_STORES; k++)
        r->stores[k].bytes = (size_t)elems[k] * zt_dtype_bytes(r->dtype);
}

static bool is_in(const struct zt_region *r, int block, zt_store_kind store)
{
    return r->offset[block] >= 0 && r->in[block] == store;
}

/* The most elements of a block that is in the store. */
static int64_t longest_in(const struct zt_zero *z, const struct zt_region *r,
                          zt_store_kind store)
{
    int64_t longest = 0;

    for (int i = 0; i < z->cfg.model->num_blocks; i++)
        if (is_in(r, i, store))
            longest = zt_max(longest, held_elems(r, z->cfg.model->blocks[i]));
    return longest;
}

/* Of the blocks that are in files, each of at most `piece` elements. */
static int num_pieces(const struct zt_zero *z, const struct zt_region *r, int64_t piece)
{
    int num = 0;

    for (int i = 0; i < z->cfg.model->num_blocks; i++)
        if (is_in(r, i, ZT_STORE_OFFLOADED))
            num += (int)((held_elems(r, z->cfg.model->blocks[i]) + piece - 1) / piece);
    return num;
}

/*
 * State in files moves in pieces of at most a sixteenth of the longest block, of the same length for every kind. Long ones take the
 * room of many blocks' pieces in every buffer, and the more of a buffer is one piece, the more is read again that there was nearly
 * room for; short ones cost requests of the drive, and time to find. 8 to 32 MiB of fp32.
 */
#define LEAST_FILE_PIECE ((int64_t)2 << 20)
#define MOST_FILE_PIECE  ((int64_t)8 << 20)

static int64_t most_of_file_piece(const struct zt_zero *z, const struct zt_region *r)
{
    int64_t longest = 0;

    for (int i = 0; i < z->cfg.model->num_blocks; i++) {
        int64_t held = held_elems(r, z->cfg.model->blocks[i]);

        longest = held > longest ? held : longest;
    }
    longest = longest / 16 / ZT_SHARD_ALIGN * ZT_SHARD_ALIGN;
    return longest < LEAST_FILE_PIECE ? LEAST_FILE_PIECE
                                      : zt_min(longest, MOST_FILE_PIECE);
}

/* State in files is in pieces of at most `most` elements: of those that cut a block evenly and are
 * longer than half of that, those that leave the least room of buffers empty. */
static int64_t file_piece(const struct zt_zero *z, const struct zt_region *r,
                          int64_t most)
{
    int64_t best = most, least = most > 0 ? num_pieces(z, r, most) * most : 0;

    for (int i = 0; i < z->cfg.model->num_blocks && most > 0; i++) {
        int64_t held = held_elems(r, z->cfg.model->blocks[i]);
        int64_t n = (held + most - 1) / most, room, piece;

        if (!n || !is_in(r, i, ZT_STORE_OFFLOADED))
            continue;
        piece =
            ((held + n - 1) / n + ZT_SHARD_ALIGN - 1) / ZT_SHARD_ALIGN * ZT_SHARD_ALIGN;
        room = num_pieces(z, r, piece) * piece;
        if (piece > most / 2 && room < least) {
            best = piece;
            least = room;
        }
    }
    return best;
}

/* The longest piece of the kind that is wanted of a tier that moves, in elements. */
static int64_t most_moved(const struct zt_zero *z, const struct zt_region *r)
{
    return r->kind == ZT_STATE_WEIGHTS && z->cfg.weights_piece ? z->cfg.weights_piece
                                                               : zt_update_piece_elems(z);
}

static zt_err open_store(struct zt_zero *z, struct zt_region *r, zt_store_kind store,
                         struct zt_fault *fault)
{
    struct zt_region_store *s = &r->stores[store];
    bool files = s->tier == &zt_file_tier, on_device = store == ZT_STORE_DEVICE;
    int64_t longest = on_device ? 0 : zt_min(longest_in(z, r, store), most_moved(z, r));
    int64_t piece =
        files ? file_piece(z, r, zt_min(longest, most_of_file_piece(z, r))) : longest;
    int64_t used = zt_has_fp32_grads(z) ? piece : zt_min(piece, ZT_FP32_PIECE_ELEMS);
    struct zt_tier_config cfg = {
        .backend = z->cfg.backend,
        .device = z->cfg.device,
        .staged = z->cfg.staged,
        .direct = z->cfg.host_in_reach,
        .planning = z->planning,
        .bytes = s->bytes,
        .piece_bytes = (size_t)piece * zt_dtype_bytes(r->dtype),
        .buffer_bytes = (size_t)longest * zt_dtype_bytes(r->dtype),
        .num_pieces = files && piece > 0 ? num_pieces(z, r, used) : 0,
        .in_order = r->kind != ZT_STATE_WEIGHTS, /* those backward reads from behind */
        .memory = {.ctx = r,
                   .alloc = on_device ? region_alloc : buffer_alloc,
                   .free = on_device ? region_free : buffer_free},
        .swap = r->kind == ZT_STATE_WEIGHTS ? &z->cfg.weights_swap : &z->cfg.swap,
    };

    return s->bytes ? s->tier->open(&cfg, &s->store, fault) : ZT_OK;
}

zt_err zt_region_fill(struct zt_zero *z, zt_state_kind kind, zt_memory_kind memory,
                      bool in_place, struct zt_fault *fault)
{
    struct zt_region *r = &z->regions[kind];
    zt_err rc = ZT_OK;

    place_blocks(z, r);
    for (zt_store_kind k = ZT_STORE_HOST; in_place && k < ZT_NUM_STORES; k++)
        if (r->stores[k].bytes)
            return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                                "%s cannot be kept in the %s tier with these options: "
                                "blocks or collectives work on them in place",
                                zt_state_name(kind), r->stores[k].tier->name);
    r->memory = memory;
    for (zt_store_kind k = 0; !rc && k < ZT_NUM_STORES; k++)
        rc = open_store(z, r, k, fault);
    return rc;
}

void zt_region_close(struct zt_zero *z, zt_state_kind kind)
{
    struct zt_region *r = &z->regions[kind];

    assert(r->num_pieces == 0); /* S3: as many commits as acquires */
    for (zt_store_kind k = 0; k < ZT_NUM_STORES; k++)
        if (r->stores[k].tier)
            r->stores[k].tier->close(r->stores[k].store);
    free(r->offset);
    free(r->whole);
    free(r->in);
}

void zt_region_measure(const struct zt_region *r, size_t *bytes)
{
    for (zt_store_kind k = 0; k < ZT_NUM_STORES; k++)
        if (r->stores[k].store)
            r->stores[k].tier->measure(r->stores[k].store, bytes);
}

/* ---- what there is ---- */

bool zt_state_has(const struct zt_zero *z, zt_state_kind kind, const struct zt_block *b)
{
    const struct zt_region *r = &z->regions[kind];

    return r->in && r->stores[r->in[b->index]].store && r->offset[b->index] >= 0 &&
           b->padded_elems > 0;
}

/* The store that the block is in. */
static struct zt_region_store *store_of(const struct zt_region *r,
                                        const struct zt_block *b)
{
    return (struct zt_region_store *)&r->stores[r->in[b->index]];
}

bool zt_state_in_place(const struct zt_zero *z, zt_state_kind kind,
                       const struct zt_block *b)
{
    return z->regions[kind].in[b->index] == ZT_STORE_DEVICE;
}

void zt_state_held(const struct zt_zero *z, zt_state_kind kind, const struct zt_block *b,
                   int64_t *begin, int64_t *n)
{
    const struct zt_region *r = &z->regions[kind];

    *n = held_elems(r, b);
    *begin = r->whole[b->index] ? 0 : r->part * *n;
}

int64_t zt_state_piece_elems(const struct zt_zero *z, zt_state_kind kind,
                             const struct zt_block *b)
{
    const struct zt_region *r = &z->regions[kind];
    size_t most = SIZE_MAX;

    if (zt_state_has(z, kind, b))
        most = store_of(r, b)->tier->piece_bytes(store_of(r, b)->store);
    if (most == SIZE_MAX)
        return INT64_MAX;
    return (int64_t)(most / zt_dtype_bytes(r->dtype)) / ZT_SHARD_ALIGN * ZT_SHARD_ALIGN;
}

bool zt_state_is_resident(const struct zt_zero *z, zt_state_kind kind,
                          const struct zt_block *b)
{
    const struct zt_region_store *s = store_of(&z->regions[kind], b);

    return zt_state_in_place(z, kind, b) ||
           (s->tier->is_resident && s->tier->is_resident(s->store));
}

bool zt_state_lends(const struct zt_zero *z, zt_state_kind kind, const struct zt_block *b)
{
    const struct zt_region *r = &z->regions[kind];
    const struct zt_region_store *s = store_of(r, b);
    int64_t held = held_elems(r, b);

    return zt_state_in_place(z, kind, b) ||
           (s->tier->lends &&
            s->tier->lends(s->store, (size_t)held * zt_dtype_bytes(r->dtype)));
}

/* ---- pieces ---- */

/* A piece of a block as bytes of the store. */
static void locate(const struct zt_region *r, const struct zt_block *b, int64_t begin,
                   int64_t n, size_t *offset, size_t *bytes)
{
    size_t width = zt_dtype_bytes(r->dtype);
    int64_t first, held;

    zt_state_held(r->zero, r->kind, b, &first, &held);
    assert(begin % ZT_SHARD_ALIGN == 0 && n % ZT_SHARD_ALIGN == 0);
    assert(begin >= first && n >= 0 && n <= first + held - begin);
    *offset = (size_t)(r->offset[b->index] + begin - first) * width;
    *bytes = (size_t)n * width;
}

/* All n elements. */
static zt_err acquire(struct zt_zero *z, zt_state_kind kind, const struct zt_block *b,
                      int64_t begin, int64_t n, zt_access access, struct zt_piece *piece,
                      struct zt_fault *fault)
{
    struct zt_region *r = &z->regions[kind];
    size_t bytes;
    zt_err rc = zt_update_reach(z, b, fault);

    if (rc)
        return rc;
    assert(zt_state_has(z, kind, b));
    *piece = (struct zt_piece){
        .begin = begin, .n = n, .dtype = r->dtype, .from = store_of(r, b)};
    locate(r, b, begin, n, &piece->offset, &bytes);
    rc = piece->from->tier->acquire(piece->from->store, piece->offset, bytes, access,
                                    &piece->data, fault);
    if (rc)
        return zt_fault_context(fault, rc, "%s of block %s", zt_state_name(kind),
                                b->name);
    if (kind == ZT_STATE_GRADIENTS && access & ZT_WRITE)
        zt_norm_forget(z, b, begin);
    piece->access = access;
    piece->region = r;
    r->num_pieces++;
    return ZT_OK;
}

zt_err zt_state_acquire(struct zt_zero *z, zt_state_kind kind, const struct zt_block *b,
                        int64_t begin, int64_t n, zt_access access,
                        struct zt_piece *piece, struct zt_fault *fault)
{
    n = zt_min(n, zt_state_piece_elems(z, kind, b));
    return acquire(z, kind, b, begin, n, access, piece, fault);
}

zt_err zt_state_acquire_around(struct zt_zero *z, zt_state_kind kind,
                               const struct zt_block *b, int64_t begin, int64_t n,
                               zt_access access, struct zt_piece *piece,
                               struct zt_fault *fault)
{
    int64_t first = begin / ZT_SHARD_ALIGN * ZT_SHARD_ALIGN;
    int64_t end = (begin + n + ZT_SHARD_ALIGN - 1) / ZT_SHARD_ALIGN * ZT_SHARD_ALIGN;

    if (access == ZT_WRITE && (first != begin || end != begin + n))
        access = ZT_READ_WRITE;
    return zt_state_acquire(z, kind, b, first, end - first, access, piece, fault);
}

zt_err zt_state_acquire_all(struct zt_zero *z, zt_state_kind kind,
                            const struct zt_block *b, zt_access access,
                            struct zt_piece *piece, struct zt_fault *fault)
{
    int64_t begin, n;

    assert(zt_state_is_resident(z, kind, b) || zt_state_lends(z, kind, b));
    zt_state_held(z, kind, b, &begin, &n);
    return acquire(z, kind, b, begin, n, access, piece, fault);
}

zt_err zt_state_prefetch(struct zt_zero *z, zt_state_kind kind, const struct zt_block *b,
                         int64_t begin, int64_t n, bool *begun, struct zt_fault *fault)
{
    const struct zt_region *r = &z->regions[kind];
    const struct zt_region_store *s;
    int64_t end = begin + n;
    zt_err rc = ZT_OK;

    *begun = true;
    if (!zt_state_has(z, kind, b))
        return ZT_OK;
    s = store_of(r, b);
    if (!s->tier->prefetch)
        return ZT_OK;
    for (int64_t at = begin; !rc && *begun && at < end; at += n) {
        size_t offset, bytes;

        n = zt_min(end - at, zt_state_piece_elems(z, kind, b));
        locate(r, b, at, n, &offset, &bytes);
        rc = s->tier->prefetch(s->store, offset, bytes, begun, fault);
    }
    return rc;
}

zt_err zt_state_commit(struct zt_piece *piece, zt_err rc, struct zt_fault *fault)
{
    struct zt_region *r = piece->region;
    bool written = !rc && (piece->access & ZT_WRITE);
    zt_err failed;

    if (!r)
        return rc;
    assert(r->num_pieces > 0);
    r->num_pieces--;
    failed = piece->from->tier->commit(piece->from->store, piece->data, piece->offset,
                                       (size_t)piece->n * zt_dtype_bytes(piece->dtype),
                                       written, rc ? NULL : fault);
    *piece = (struct zt_piece){.data = NULL};
    return rc ? rc : failed;
}
