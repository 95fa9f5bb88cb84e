/*
 * mpi.c -- messages by MPI, in a shared object of its own, as nothing else needs the
 * library. Any MPI-3 will do; the one it was compiled with must be there at run time.
 *
 * Everything travels as MPI_BYTE, so no MPI type for 16-bit floats is needed, and nothing
 * blocks but start() and stop(): a wait can then notice failures that MPI does not
 * report.
 */
#include "worker/comm/mesh/transport.h"

#include <mpi.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Slot i is in flight while request[i] is not MPI_REQUEST_NULL. */
struct zt_transport_batch {
    int num, max;
    int *peer; /* (max) */
    int *hit;  /* (max) what MPI_Testsome() found */
    MPI_Request *request;
    MPI_Status *status;
    bool *is_recv;
};

/* The library is one per process, and so is our part of it. */
static MPI_Comm world = MPI_COMM_NULL;

static void error_text(int error, char *out, size_t out_bytes)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int len = 0;

    if (MPI_Error_string(error, text, &len) != MPI_SUCCESS || !text[0])
        snprintf(text, sizeof(text), "error %d", error);
    for (char *p = text; *p; p++)
        if (*p == '\n')
            *p = ' ';
    snprintf(out, out_bytes, "%s", text);
}

/* ------------------------------------------------------------------ start, stop */
#define EXIT_SYSTEM 71

static bool is_starting;

/* Before MPI is up there is no error handler to set: what fails then ends the process with
 * the last byte of an error code, which looks like a signal or like another error. A destructor
 * comes after all that the program does at its exit. */
__attribute__((destructor)) static void on_exit_in_start(void)
{
    if (!is_starting)
        return;
    fputs("zworker: MPI does not start, for the reasons above; --comm tcp needs no MPI\n",
          stderr);
    fflush(NULL);
    _exit(EXIT_SYSTEM);
}

/* The socket to MPICH's launcher. */
static int pmi_fd = -1;
static const char finalize[] = "cmd=finalize\n";

static void find_launcher(void)
{
#ifdef MPICH_VERSION
    const char *fd = getenv("PMI_FD");

    if (fd)
        pmi_fd = atoi(fd);
#endif
}

static int start(int *rank, int *size, int *max_tag, char *out, size_t out_bytes)
{
    int is_up = 0, is_over = 0, level = MPI_THREAD_SINGLE, found = 0, e;
    int *upper = NULL;

    MPI_Initialized(&is_up);
    MPI_Finalized(&is_over);
    if (is_up || is_over) {
        snprintf(out, out_bytes, "MPI was started before in this process");
        return 1;
    }
    is_starting = true;
    e = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    is_starting = false;
    if (e == MPI_SUCCESS)
        e = MPI_Comm_dup(MPI_COMM_WORLD, &world);
    if (e != MPI_SUCCESS) {
        snprintf(out, out_bytes, "MPI does not start (error %d)", e);
        return e;
    }
    if (level < MPI_THREAD_SERIALIZED) {
        snprintf(out, out_bytes, "this MPI library knows no threads");
        return 1;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    find_launcher();
    MPI_Comm_rank(world, rank);
    MPI_Comm_size(world, size);
    MPI_Comm_get_attr(world, MPI_TAG_UB, &upper, &found);
    *max_tag = found ? *upper : 32767;
    return 0;
}

/*
 * MPI_Finalize of MPICH over UCX hangs at times between machines: a rank flushes its
 * connections, which needs the other side, and the other side waits already in a call
 * that makes no progress. A rank that zlaunch started says by itself that it has
 * finished, after a barrier, and leaves; its end closes the connections.
 */
static bool finish_by_hand(void)
{
    char ack[64];

    if (pmi_fd < 0 || !getenv("ZLAUNCH_CONTROL_FD") ||
        MPI_Barrier(MPI_COMM_WORLD) != MPI_SUCCESS ||
        write(pmi_fd, finalize, sizeof(finalize) - 1) != (ssize_t)sizeof(finalize) - 1)
        return false;
    (void)!read(pmi_fd, ack,
                sizeof(ack)); /* said is said, whatever becomes of the answer */
    return true;
}

/* MPICH's launchers, and zlaunch, take this for the end of MPI_Finalize. Hydra fails if its
 * answer finds nobody. Called by a signal's handler. */
static void leave(void)
{
    struct pollfd answer = {.fd = pmi_fd, .events = POLLIN};
    char ack[64];

    if (pmi_fd >= 0 &&
        write(pmi_fd, finalize, sizeof(finalize) - 1) == (ssize_t)sizeof(finalize) - 1 &&
        poll(&answer, 1, 2000) > 0)
        (void)!read(pmi_fd, ack, sizeof(ack));
}

static void stop(void)
{
    int is_over = 1;

    MPI_Finalized(&is_over);
    if (!is_over && !finish_by_hand())
        MPI_Finalize();
}

/* ------------------------------------------------------------------ batches */
static void batch_close(struct zt_transport_batch *b)
{
    if (!b)
        return;
    for (int i = 0; i < b->num; i++) {
        if (b->request[i] == MPI_REQUEST_NULL)
            continue;
        /* a send cannot be cancelled; it completes by itself or never */
        if (b->is_recv[i])
            MPI_Cancel(&b->request[i]);
        MPI_Request_free(&b->request[i]);
    }
    free(b->peer);
    free(b->hit);
    free(b->request);
    free(b->status);
    free(b->is_recv);
    free(b);
}

static struct zt_transport_batch *batch_open(int max)
{
    struct zt_transport_batch *b = calloc(1, sizeof(*b));
    size_t n = (size_t)(max > 0 ? max : 1);

    if (!b)
        return NULL;
    b->max = max;
    b->peer = calloc(n, sizeof(*b->peer));
    b->hit = calloc(n, sizeof(*b->hit));
    b->request = calloc(n, sizeof(*b->request));
    b->status = calloc(n, sizeof(*b->status));
    b->is_recv = calloc(n, sizeof(*b->is_recv));
    if (b->peer && b->hit && b->request && b->status && b->is_recv)
        return b;
    batch_close(b);
    return NULL;
}

static int post(struct zt_transport_batch *b, void *at, size_t bytes, int peer, int tag,
                bool is_recv)
{
    int i = b->num, e;

    if (i >= b->max)
        return MPI_ERR_COUNT;
    b->request[i] = MPI_REQUEST_NULL;
    e = is_recv ? MPI_Irecv(at, (int)bytes, MPI_BYTE, peer, tag, world, &b->request[i])
                : MPI_Isend(at, (int)bytes, MPI_BYTE, peer, tag, world, &b->request[i]);
    if (e != MPI_SUCCESS)
        return e;
    b->peer[i] = peer;
    b->is_recv[i] = is_recv;
    b->num++;
    return 0;
}

static int send_bytes(struct zt_transport_batch *b, const void *at, size_t bytes, int to,
                      int tag)
{
    return post(b, (void *)at, bytes, to, tag, false);
}

static int recv_bytes(struct zt_transport_batch *b, void *at, size_t bytes, int from,
                      int tag)
{
    return post(b, at, bytes, from, tag, true);
}

static int poll_batch(struct zt_transport_batch *b, bool *done)
{
    int hits = 0, e;

    *done = false;
    e = MPI_Testsome(b->num, b->request, &hits, b->hit, b->status);
    if (e == MPI_ERR_IN_STATUS)
        for (int i = 0; i < hits; i++)
            if (b->status[i].MPI_ERROR != MPI_SUCCESS)
                return b->status[i].MPI_ERROR;
    if (e != MPI_SUCCESS)
        return e;
    for (int i = 0; i < b->num; i++)
        if (b->request[i] != MPI_REQUEST_NULL)
            return 0;
    b->num = 0;
    *done = true;
    return 0;
}

static int pending_ranks(const struct zt_transport_batch *b, int *ranks, int max_ranks)
{
    int num = 0;

    /* the senders that have not sent, else the receivers */
    for (int pass = 0; pass < 2 && !num; pass++)
        for (int i = 0; i < b->num && num < max_ranks; i++)
            if (b->request[i] != MPI_REQUEST_NULL && b->is_recv[i] == !pass)
                ranks[num++] = b->peer[i];
    return num;
}

static int try_recv(void *at, size_t bytes, int tag, bool *got)
{
    MPI_Status status;
    int there = 0, len = 0, e;

    *got = false;
    e = MPI_Iprobe(MPI_ANY_SOURCE, tag < 0 ? MPI_ANY_TAG : tag, world, &there, &status);
    if (e != MPI_SUCCESS || !there)
        return e;
    MPI_Get_count(&status, MPI_BYTE, &len);
    if (len < 0 || (size_t)len > bytes)
        return MPI_ERR_TRUNCATE;
    e = MPI_Recv(at, len, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, world,
                 MPI_STATUS_IGNORE);
    *got = e == MPI_SUCCESS;
    return e;
}

__attribute__((visibility("default"))) extern const struct zt_transport zt_transport_mpi;
const struct zt_transport zt_transport_mpi = {
    .abi = ZT_TRANSPORT_ABI,
    .struct_bytes = sizeof(struct zt_transport),
    .name = "mpi",
    .sends_outlive_batch = true, /* MPI_Request_free() lets a send go on */
    .start = start,
    .stop = stop,
    .leave = leave,
    .batch_open = batch_open,
    .batch_close = batch_close,
    .send = send_bytes,
    .recv = recv_bytes,
    .poll = poll_batch,
    .pending_ranks = pending_ranks,
    .try_recv = try_recv,
    .error_text = error_text,
};
