/* file_tier_rig.h -- stores of the tier of files, in two folders, for its tests. */
#ifndef TEST_FILE_TIER_RIG_H
#define TEST_FILE_TIER_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "worker/offload/tier.h"

#define PIECE  (3 * ZT_TIER_ALIGN)
#define PIECES 7

static struct zt_fault fault;
static struct zt_tier_config cfg;
static struct zt_swap swap;
static char dirs[2][64];
static const char *dir_list[3];

/* The engine of a test, over the one that does the work. */
static const struct zt_aio_engine *real = &zt_aio_libaio;

static inline int open_real(int depth, void **queue)
{
    return real->open(depth, queue);
}

static inline void close_real(void *queue)
{
    real->close(queue);
}

static inline int submit_real(void *queue, const struct zt_aio_request *const *requests,
                              int num)
{
    return real->submit(queue, requests, num);
}

static zt_err take(void *ctx, size_t bytes, void **out, struct zt_fault *f)
{
    (void)ctx;
    return cfg.backend->alloc(cfg.device, bytes, out, f);
}

static void give(void *ctx, void *p, size_t bytes)
{
    (void)ctx;
    cfg.backend->free(cfg.device, p, bytes);
}

static int open_cpu(void **state)
{
    (void)state;
    if (zt_backend_find("cpu", &cfg.backend, &fault) ||
        cfg.backend->open(0, 1, &cfg.device, &fault))
        return -1;
    for (int i = 0; i < 2; i++) {
        snprintf(dirs[i], sizeof(dirs[i]), "./test-file-tier-%d-XXXXXX", i);
        if (!mkdtemp(dirs[i]))
            return -1;
    }
    return 0;
}

static int close_cpu(void **state)
{
    (void)state;
    cfg.backend->close(cfg.device);
    return rmdir(dirs[0]) || rmdir(dirs[1]); /* nothing is left in them */
}

static void setting(bool direct, bool pipeline, int num_dirs, struct zt_aio_options o)
{
    dir_list[0] = dirs[0];
    dir_list[1] = num_dirs > 1 ? dirs[1] : NULL;
    swap = (struct zt_swap){.dirs = dir_list,
                            .pipeline_read = pipeline,
                            .pipeline_write = pipeline,
                            .verify = true};
    assert_int_equal(zt_aio_open(&o, &swap.aio, &fault), ZT_OK);
    cfg.bytes = PIECES * PIECE;
    cfg.piece_bytes = cfg.buffer_bytes = PIECE;
    cfg.in_order = false;
    cfg.direct = direct;
    cfg.memory = (struct zt_tier_memory){.alloc = take, .free = give};
    cfg.swap = &swap;
}

/* what with_each_engine() changes is the engine */
static struct zt_aio_options simple = {
    .block_size = 4096, .queue_depth = 2, .threads = 1, .overlap_events = true};

static void *open_store(void)
{
    void *store = NULL;

    assert_int_equal(zt_file_tier.open(&cfg, &store, &fault), ZT_OK);
    return store;
}

static void close_store(void *store)
{
    zt_file_tier.close(store);
    zt_aio_close(swap.aio);
}

static inline void write_piece(void *store, size_t i, char value)
{
    void *data = NULL;

    assert_int_equal(
        zt_file_tier.acquire(store, i * PIECE, PIECE, ZT_WRITE, &data, &fault), ZT_OK);
    memset(data, value, PIECE);
    assert_int_equal(zt_file_tier.commit(store, data, i * PIECE, PIECE, true, &fault),
                     ZT_OK);
}

static inline void read_piece(void *store, size_t i, char value)
{
    void *data = NULL;

    assert_int_equal(
        zt_file_tier.acquire(store, i * PIECE, PIECE, ZT_READ, &data, &fault), ZT_OK);
    for (size_t k = 0; k < PIECE; k++)
        assert_int_equal(((char *)data)[k], value);
    assert_int_equal(zt_file_tier.commit(store, data, i * PIECE, PIECE, false, &fault),
                     ZT_OK);
}

/* Calls `with` with each engine that there is; *engine has it meanwhile. */
static inline void with_each_engine(const struct zt_aio_engine **engine,
                                    void (*with)(void))
{
    for (int i = 0; zt_aio_engines[i]; i++) {
        void *queue;

        *engine = zt_aio_engines[i];
        if ((*engine)->open(2, &queue) != 0)
            continue; /* of a kernel without it */
        (*engine)->close(queue);
        with();
    }
}

/* Pieces from i on begin to move, as many as there are buffers for. */
static inline zt_err prefetch_from(void *store, size_t i)
{
    bool begun = true;
    zt_err rc = ZT_OK;

    for (; !rc && begun && i < PIECES; i++)
        rc = zt_file_tier.prefetch(store, i * PIECE, PIECE, &begun, &fault);
    return rc;
}

/* One turn of the optimizer: every piece read, changed and written, those behind it fetched. */
static inline zt_err turn(void *store, char was, char becomes)
{
    zt_err rc = ZT_OK;

    for (size_t i = 0; !rc && i < PIECES; i++) {
        void *data = NULL;

        rc = prefetch_from(store, i + 1);
        if (!rc)
            rc = zt_file_tier.acquire(store, i * PIECE, PIECE, ZT_READ_WRITE, &data,
                                      &fault);
        if (rc)
            break;
        for (size_t k = 0; k < PIECE; k++)
            assert_int_equal(((char *)data)[k], was ? (char)(was + (char)i) : 0);
        memset(data, becomes + (char)i, PIECE);
        rc = zt_file_tier.commit(store, data, i * PIECE, PIECE, true, &fault);
    }
    return rc;
}

#endif
