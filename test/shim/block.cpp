/*
 * block.cpp -- runs the threads of a block from barrier to barrier.
 *
 * A thread that blocks or ends picks the next one itself and switches to it. A pass
 * visits each thread of a range once, in steps of a prime from a random start, and is
 * repeated while any thread ran; then comes the next range. Ranges are the whole block, so
 * that all threads keep step, or one warp, which then runs ahead of the others as far as
 * it can: chosen at random for each block. When no thread of any range can run, it is a deadlock.
 * One fiber runs thread after thread as long as none blocks, so a kernel without barriers
 * runs on one stack.
 */
#include <stdio.h>
#include <string.h>
#include <vector>

#include "shim.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

static const unsigned WARP = 32, NOBODY = ~0u;

enum state { FRESH, READY, AT_BARRIER, IN_WARP_CALL, DONE };

struct thread {
    enum state state;
    uint3 index;
    shim_fiber *fiber;
    struct shim_place at; /* where it waits */
    shim_warp_kind kind;
    unsigned mask, from;
    uint64_t value, result;
};

static struct {
    const std::function<void()> *body;
    std::vector<struct thread> threads;
    std::vector<unsigned> calling; /* by warp: lanes in a warp call */
    unsigned num, num_done, num_at_barrier;
    unsigned now, met_first; /* threads: the running one, the first at the barrier */
    struct {
        unsigned num, at, step; /* ranges */
        unsigned idle;          /* ranges in a row in which nobody ran */
    } round;
    struct {
        unsigned first, num;       /* the range */
        unsigned left, next, step; /* next: from its first */
        bool ran;
    } pass;
} block;

static std::vector<shim_fiber *> idle;
static bool inside;

/* ---------------------------------------------------------------- what goes wrong */

static std::string name_of(unsigned t)
{
    const uint3 &i = block.threads[t].index;
    char text[64];

    snprintf(text, sizeof(text), "thread (%u,%u,%u)", i.x, i.y, i.z);
    return text;
}

static bool same_place(struct shim_place a, struct shim_place b)
{
    return a.line == b.line && strcmp(a.file, b.file) == 0;
}

static std::string tell(unsigned t)
{
    const struct thread &th = block.threads[t];
    char text[300];
    static const char *const call[] = {"__syncwarp", "__ballot_sync", "a shuffle"};

    if (th.state == AT_BARRIER)
        snprintf(text, sizeof(text), "%s waits at __syncthreads, %s:%d",
                 name_of(t).c_str(), th.at.file, th.at.line);
    else if (th.state == IN_WARP_CALL)
        snprintf(text, sizeof(text), "%s is in %s of lanes %08x, %s:%d",
                 name_of(t).c_str(), call[th.kind], th.mask, th.at.file, th.at.line);
    else
        snprintf(text, sizeof(text), "%s %s", name_of(t).c_str(),
                 th.state == DONE ? "has left the kernel" : "has not come this far");
    return text;
}

static bool same_call(const struct thread &a, const struct thread &b)
{
    return a.state == IN_WARP_CALL && b.state == IN_WARP_CALL && a.kind == b.kind &&
           a.mask == b.mask && same_place(a.at, b.at);
}

/* Nobody can go on: somebody waits in a warp call for a lane that will not come. */
[[noreturn]] static void die_stuck(void)
{
    for (unsigned t = 0; t < block.num; t++) {
        const struct thread &th = block.threads[t];

        if (th.state != IN_WARP_CALL)
            continue;
        for (unsigned lane = 0; lane < WARP; lane++) {
            unsigned other = t - t % WARP + lane;

            if (th.mask >> lane & 1 && !same_call(th, block.threads[other])) {
                block.now = t;
                threadIdx = th.index;
                shim_die("%s, but %s", tell(t).c_str(), tell(other).c_str());
            }
        }
    }
    shim_die("threads wait for each other; %s", tell(0).c_str());
}

bool shim_in_thread(void)
{
    return inside && shim_on_device();
}

/* ---------------------------------------------------------------- whose turn it is */

/* A step that visits all of n (at most 1024): a larger prime. */
static unsigned draw_step(unsigned n)
{
    static const unsigned primes[] = {1031, 1033, 1039, 1049, 1051, 1061, 1063, 1069,
                                      1087, 1091, 1093, 1097, 1103, 1109, 1117, 1123};

    return primes[shim_random() % 16] % n;
}

static void start_pass(void)
{
    block.pass.left = block.pass.num;
    block.pass.next = (unsigned)(shim_random() % block.pass.num);
    block.pass.step = draw_step(block.pass.num);
    block.pass.ran = false;
}

static void next_range(void)
{
    unsigned first;

    block.round.at = (block.round.at + block.round.step) % block.round.num;
    first = block.round.num == 1 ? 0 : block.round.at * WARP;
    block.pass.first = first;
    block.pass.num = block.round.num == 1       ? block.num
                     : block.num - first < WARP ? block.num - first
                                                : WARP;
    start_pass();
}

static void start_round(void)
{
    block.round.num = shim_random() & 1 ? 1 : (block.num + WARP - 1) / WARP;
    block.round.at = (unsigned)(shim_random() % block.round.num);
    block.round.step = draw_step(block.round.num);
    block.round.idle = 0;
    next_range();
}

/* The next thread that can run, NOBODY when all are done. */
static unsigned next_thread(void)
{
    while (block.num_done < block.num) {
        while (block.pass.left > 0) {
            unsigned t = block.pass.first + block.pass.next;

            block.pass.left--;
            block.pass.next = (block.pass.next + block.pass.step) % block.pass.num;
            if (block.threads[t].state <= READY) {
                block.pass.ran = true;
                return t;
            }
        }
        block.round.idle = block.pass.ran ? 0 : block.round.idle + 1;
        if (block.pass.ran)
            start_pass();
        else if (block.round.idle < block.round.num)
            next_range();
        else
            die_stuck();
    }
    return NOBODY;
}

static void set_now(unsigned t)
{
    block.now = t;
    threadIdx = block.threads[t].index;
}

static void leave(unsigned t)
{
    block.threads[t].state = DONE;
    block.num_done++;
    if (block.num_at_barrier > 0)
        shim_die("divergent barrier: %s, but %s", tell(t).c_str(),
                 tell(block.met_first).c_str());
}

/* A fiber's life: threads from their start to their end, one after the other. */
static void run_threads(shim_fiber *self)
{
    for (;;) {
        unsigned t = block.now;

        block.threads[t].fiber = self;
        block.threads[t].state = READY;
        (*block.body)();
        leave(t);
        t = next_thread();
        if (t != NOBODY)
            set_now(t);
        if (t != NOBODY && block.threads[t].state == FRESH)
            continue;
        idle.push_back(self);
        shim_fiber_switch(self,
                          t == NOBODY ? shim_fiber_first() : block.threads[t].fiber);
    }
}

static shim_fiber *fiber_for(unsigned t)
{
    shim_fiber *f;

    if (block.threads[t].state != FRESH)
        return block.threads[t].fiber;
    if (idle.empty())
        return shim_fiber_new(run_threads);
    f = idle.back();
    idle.pop_back();
    return f;
}

/* Others run until it is this thread's turn again; it must be ready by then. */
static void give_way(void)
{
    unsigned me = block.now, t = next_thread();

    if (t == me)
        return;
    set_now(t);
    shim_fiber_switch(block.threads[me].fiber, fiber_for(t));
}

/* ---------------------------------------------------------------- meeting points */

void shim_barrier(struct shim_place at)
{
    struct thread &me = block.threads[block.now];

    me.at = at;
    me.state = AT_BARRIER;
    if (block.num_at_barrier == 0)
        block.met_first = block.now;
    else if (!same_place(at, block.threads[block.met_first].at))
        shim_die("divergent barrier: %s, but %s", tell(block.now).c_str(),
                 tell(block.met_first).c_str());
    for (unsigned t = 0; block.num_done > 0 && t < block.num; t++)
        if (block.threads[t].state == DONE)
            shim_die("divergent barrier: %s, but %s", tell(block.now).c_str(),
                     tell(t).c_str());
    if (++block.num_at_barrier == block.num) {
        for (unsigned t = 0; t < block.num; t++)
            block.threads[t].state = READY;
        block.num_at_barrier = 0;
    }
    give_way();
}

unsigned shim_lane(void)
{
    return block.now % WARP;
}

/* Gives every lane of the mask its answer. */
static void answer(unsigned base, const struct thread &call)
{
    uint64_t bits = 0;

    for (unsigned lane = 0; lane < WARP; lane++)
        if (call.mask >> lane & 1)
            bits |= (uint64_t)(block.threads[base + lane].value != 0) << lane;
    for (unsigned lane = 0; lane < WARP; lane++) {
        struct thread &t = block.threads[base + lane < block.num ? base + lane : base];

        if (!(call.mask >> lane & 1))
            continue;
        t.result = t.kind == SHIM_SHFL ? block.threads[base + t.from].value : bits;
        t.state = READY;
    }
}

static bool complete(unsigned base, const struct thread &call)
{
    if ((block.calling[base / WARP] & call.mask) != call.mask)
        return false;
    for (unsigned lane = 0; lane < WARP; lane++)
        if (call.mask >> lane & 1 && !same_call(call, block.threads[base + lane]))
            return false;
    return true;
}

uint64_t shim_warp(shim_warp_kind kind, unsigned mask, uint64_t value, unsigned from,
                   struct shim_place at)
{
    unsigned lane = shim_lane(), base = block.now - lane;
    unsigned there = block.num - base < WARP ? (1u << (block.num - base)) - 1u : ~0u;
    struct thread &me = block.threads[block.now];

    if (!(mask >> lane & 1))
        shim_die("lane %u is not in its own mask %08x, %s:%d", lane, mask, at.file,
                 at.line);
    if (mask & ~there)
        shim_die("mask %08x names lanes that are not there: the warp has %08x, %s:%d",
                 mask, there, at.file, at.line);
    if (kind == SHIM_SHFL && !(mask >> from & 1))
        shim_die("reads lane %u, which is not in the mask %08x, %s:%d", from, mask,
                 at.file, at.line);
    me.kind = kind;
    me.mask = mask;
    me.from = from;
    me.value = value;
    me.at = at;
    me.state = IN_WARP_CALL;
    block.calling[base / WARP] |= 1u << lane;
    if (!complete(base, me)) {
        give_way();
    } else {
        block.calling[base / WARP] &= ~mask;
        answer(base, me);
    }
    return me.result;
}

/* ---------------------------------------------------------------- grids */

static void set_up(dim3 size)
{
    block.num = size.x * size.y * size.z;
    block.threads.resize(block.num);
    block.calling.resize((block.num + WARP - 1) / WARP);
    for (unsigned t = 0; t < block.num; t++)
        block.threads[t].index = {t % size.x, t / size.x % size.y, t / size.x / size.y};
}

static void run_block(void)
{
    unsigned t;

    for (struct thread &th : block.threads)
        th.state = FRESH;
    for (unsigned &lanes : block.calling)
        lanes = 0;
    block.num_done = block.num_at_barrier = 0;
    start_round();
    t = next_thread();
    set_now(t);
    inside = true;
    shim_fiber_switch(shim_fiber_first(), fiber_for(t));
    inside = false;
}

/* Blocks in an order of its own too: nothing says that block 0 is first. */
void shim_run_grid(dim3 grid, dim3 size, const std::function<void()> &body)
{
    uint64_t num = (uint64_t)grid.x * grid.y * grid.z, start = shim_random() % num;
    bool backwards = shim_random() & 1;

    block.body = &body;
    blockDim = size;
    gridDim = grid;
    set_up(size);
    for (uint64_t i = 0; i < num; i++) {
        uint64_t b = (start + (backwards ? num - i : i)) % num;

        blockIdx = {(unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y),
                    (unsigned)(b / grid.x / grid.y)};
        run_block();
    }
}
