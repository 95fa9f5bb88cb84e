/*
 * fake_nccl.h -- a table like that of backends/nccl.c, without NCCL and without a GPU:
 * bytes travel by a shared-memory communicator of the same ranks, when the late device
 * (late_device.h) comes to it. As with the real one, a call is under way for a while
 * before it is queued, and what is not allowed meanwhile ends the test. Faults on
 * request.
 */
#ifndef TEST_UNIT_COMM_FAKE_NCCL_H
#define TEST_UNIT_COMM_FAKE_NCCL_H

#include "worker/comm/nccl/library.h"

#include "test/unit/comm/late_device.h"

#include <pthread.h>
#include <time.h>

#define FAKE_POLLS 2 /* until a call is done */

/* What goes wrong on this rank, from when on. */
static struct {
    bool no_id, open_hangs, open_fails, calls_hang;
    int version;               /* 0: 22809 */
    const char *gpu;           /* NULL: one of its own */
    _Atomic int error;         /* of state() */
    _Atomic bool device_hangs; /* collectives never end, but for abort() */
} fake;

/* What was seen. */
static _Atomic int fake_aborted, fake_closed, fake_open;

struct fake_call {
    struct zt_nccl_comm *c;
    enum { FAKE_GATHER, FAKE_BROADCAST, FAKE_EXCHANGE, FAKE_REDUCE } kind;
    const void *send;
    void *recv;
    size_t bytes, send_stride, recv_stride;
    int root;
    struct zt_nccl_reduction how;
};

struct zt_nccl_comm {
    struct zt_comm *carrier;
    int rank, world, polls;
    bool hangs; /* polls do not help */
    _Atomic bool aborted;
    struct zt_stream *stream; /* of the call that is not queued yet */
    struct fake_call call;
    /* a split that is under way */
    struct zt_nccl_comm *child, **child_out;
};

static const char *fake_names[] = {"no error", "an invented error"};

static int fake_ready(const struct zt_nccl_comm *c)
{
    CHECK(c && !c->polls && !c->hangs && !c->aborted);
    return 0;
}

/* ---------------------------------------------------------------- moving */
static void fake_exchange(const struct fake_call *call)
{
    size_t world = (size_t)call->c->world, n = call->bytes;
    char *out = malloc(world * n), *in = malloc(world * n);

    for (size_t r = 0; r < world; r++)
        memcpy(out + r * n, (const char *)call->send + r * call->send_stride, n);
    if (!zt_all_to_all(call->c->carrier, out, in, n, ZT_U8, &fault))
        for (size_t r = 0; r < world; r++)
            memcpy((char *)call->recv + r * call->recv_stride, in + r * n, n);
    free(in);
    free(out);
}

/* On the device: a failure shows as bytes that are not there. */
static void fake_run(void *arg)
{
    const struct fake_call *call = arg;
    struct zt_comm *by = call->c->carrier;
    const struct zt_nccl_reduction *how = &call->how;
    struct timespec t = {0, 1000000};
    zt_err rc = ZT_OK;

    while (fake.device_hangs && !call->c->aborted)
        nanosleep(&t, NULL);
    if (call->c->aborted)
        return;
    if (call->kind == FAKE_GATHER)
        rc = zt_all_gather(by, call->send, call->recv, call->bytes, ZT_U8, &fault);
    else if (call->kind == FAKE_BROADCAST)
        rc = zt_broadcast(by, call->recv, call->bytes, ZT_U8, call->root, &fault);
    else if (call->kind == FAKE_EXCHANGE)
        fake_exchange(call);
    else if (how->scatter)
        rc = zt_reduce_scatter(by, call->send, call->recv, how->count, how->dtype, 1,
                               &fault);
    else
        rc = zt_all_reduce(by, call->send, call->recv, how->count, how->dtype,
                           how->max ? ZT_MAX : ZT_SUM, 1, &fault);
    (void)rc;
}

static int fake_start(struct zt_nccl_comm *c, void *stream, struct fake_call call)
{
    fake_ready(c);
    call.c = c;
    c->call = call;
    c->stream = stream;
    c->polls = FAKE_POLLS;
    c->hangs = fake.calls_hang;
    return 0;
}

static int fake_all_gather(struct zt_nccl_comm *c, void *stream, const void *send,
                           void *recv, size_t bytes)
{
    return fake_start(
        c, stream,
        (struct fake_call){
            .kind = FAKE_GATHER, .send = send, .recv = recv, .bytes = bytes});
}

static int fake_broadcast(struct zt_nccl_comm *c, void *stream, void *buf, size_t bytes,
                          int root)
{
    return fake_start(
        c, stream,
        (struct fake_call){
            .kind = FAKE_BROADCAST, .recv = buf, .bytes = bytes, .root = root});
}

static int fake_all_to_all(struct zt_nccl_comm *c, void *stream, const void *send,
                           size_t send_stride, void *recv, size_t recv_stride,
                           size_t bytes)
{
    CHECK(send != recv);
    return fake_start(c, stream,
                      (struct fake_call){.kind = FAKE_EXCHANGE,
                                         .send = send,
                                         .recv = recv,
                                         .bytes = bytes,
                                         .send_stride = send_stride,
                                         .recv_stride = recv_stride});
}

static int fake_reduce(struct zt_nccl_comm *c, void *stream, const void *send, void *recv,
                       const struct zt_nccl_reduction *how)
{
    if (how->scatter) /* the one way to be in place that NCCL knows */
        CHECK(recv != send || c->rank == 0);
    return fake_start(
        c, stream,
        (struct fake_call){.kind = FAKE_REDUCE, .send = send, .recv = recv, .how = *how});
}

/* ---------------------------------------------------------------- communicators */
static int fake_version(int *out)
{
    *out = fake.version ? fake.version : 22809;
    return 0;
}

static int fake_gpu(char out[ZT_NCCL_GPU_BYTES])
{
    snprintf(out, ZT_NCCL_GPU_BYTES, "0000:%02x:00.0", my_rank);
    if (fake.gpu)
        snprintf(out, ZT_NCCL_GPU_BYTES, "%s", fake.gpu);
    return 0;
}

/* Made before the ranks were, so that all have it. */
static int fake_fd = -1;

static int fake_make_id(unsigned char id[ZT_UNIQUE_ID_BYTES])
{
    snprintf((char *)id, ZT_UNIQUE_ID_BYTES, "fake id of descriptor %d", fake_fd);
    return fake.no_id;
}

static int fake_open_comm(int world, int rank, const unsigned char *ids, int num_ids,
                          struct zt_nccl_comm **out)
{
    struct zt_comm_config cfg = {
        .engine = "shm", .rank = rank, .world = world, .timeout_s = 60};
    struct zt_nccl_comm *c = calloc(1, sizeof(*c));

    CHECK(num_ids == 1);
    CHECK(sscanf((const char *)ids, "fake id of descriptor %d", &cfg.shm_fd) == 1);
    if (fake.open_fails) {
        free(c);
        return 1;
    }
    c->rank = rank;
    c->world = world;
    c->polls = FAKE_POLLS;
    c->hangs = fake.open_hangs;
    if (!c->hangs)
        DO(zt_comm_open(&cfg, &c->carrier, &fault));
    atomic_fetch_add(&fake_open, 1);
    *out = c;
    return 0;
}

static int fake_split(struct zt_nccl_comm *c, int color, int key,
                      struct zt_nccl_comm **out)
{
    struct zt_comm *part;

    fake_ready(c);
    DO(zt_comm_split(c->carrier, color < 0 ? 1000 + c->rank : color, &part, &fault));
    c->polls = FAKE_POLLS;
    c->child = NULL;
    c->child_out = out;
    if (color < 0) {
        zt_comm_close(part);
        return 0;
    }
    c->child = calloc(1, sizeof(*c->child));
    c->child->carrier = part;
    c->child->rank = zt_comm_rank(part);
    c->child->world = zt_comm_world(part);
    c->child->polls = FAKE_POLLS;
    CHECK(c->child->rank == key);
    atomic_fetch_add(&fake_open, 1);
    return 0;
}

/* The watch asks, too; what is under way moves for the thread that started it. */
static int fake_state(struct zt_nccl_comm *c, bool *busy)
{
    static pthread_t starter;

    if (!starter)
        starter = pthread_self();
    CHECK(c && !c->aborted);
    if (pthread_self() == starter && c->polls && !c->hangs && !--c->polls) {
        if (c->stream)
            late_queue(c->stream, fake_run, &c->call, sizeof(c->call));
        c->stream = NULL;
        if (c->child_out)
            *c->child_out = c->child;
        c->child_out = NULL;
    }
    *busy = c->polls || c->hangs;
    return fake.error;
}

static int fake_finish(struct zt_nccl_comm *c)
{
    fake_ready(c);
    c->polls = FAKE_POLLS;
    return 0;
}

static void fake_close(struct zt_nccl_comm *c)
{
    fake_ready(c);
    zt_comm_close(c->carrier);
    free(c);
    atomic_fetch_add(&fake_closed, 1);
}

/* The device may still be at one of them: so they are kept. */
static struct zt_nccl_comm *volatile fake_kept[64];

static void fake_abort(struct zt_nccl_comm *const *all, int num)
{
    for (int i = 0; i < num; i++) {
        CHECK(!all[i]->aborted);
        fake_kept[atomic_load(&fake_aborted) % 64] = all[i];
        atomic_fetch_add(&fake_aborted, 1);
        all[i]->aborted = true;
        if (all[i]->carrier)
            zt_comm_abort(all[i]->carrier, all[i]->rank);
    }
}

static void fake_error_text(struct zt_nccl_comm *c, int error, char *out,
                            size_t out_bytes)
{
    (void)c;
    snprintf(out, out_bytes, "%s", fake_names[error != 0]);
}

static const struct zt_nccl UNUSED fake_nccl = {
    .abi = ZT_NCCL_ABI,
    .struct_bytes = sizeof(struct zt_nccl),
    .name = "fake NCCL",
    .version = fake_version,
    .gpu = fake_gpu,
    .make_id = fake_make_id,
    .open = fake_open_comm,
    .split = fake_split,
    .state = fake_state,
    .finish = fake_finish,
    .close = fake_close,
    .abort = fake_abort,
    .all_gather = fake_all_gather,
    .broadcast = fake_broadcast,
    .all_to_all = fake_all_to_all,
    .reduce = fake_reduce,
    .error_text = fake_error_text,
};

/* ---------------------------------------------------------------- ranks */
static const struct zt_backend *late;
static struct zt_device_comm_config device_cfg;

/* A communicator on the late device over `host`, as device_cfg says. */
static zt_err UNUSED open_device(struct zt_comm *host, struct zt_comm **out)
{
    late = late_open();
    zt_nccl_set_library(&fake_nccl);
    device_cfg.host = host;
    device_cfg.backend = late;
    device_cfg.device = late_dev;
    if (device_cfg.timeout_s <= 0)
        device_cfg.timeout_s = 60;
    return zt_comm_open_device(&device_cfg, out, &fault);
}

/* As run_ranks(): fn gets the communicator of the host. */
static void UNUSED run_device_ranks(int world, rank_fn fn)
{
    fake_fd = memfd_create("fake", MFD_CLOEXEC);
    assert_true(fake_fd >= 0);
    run_ranks(world, fn);
    close(fake_fd);
}

#endif
