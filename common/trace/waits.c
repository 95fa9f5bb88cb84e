#include "common/trace/waits.h"

#include "common/log.h"

#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

/*
 * A short collective takes less than a microsecond, of which two looks at the clock would
 * be a tenth. So waits are counted in ticks of the processor, where these run at one rate
 * whatever it does, and become seconds when they are asked for, by the ticks and the
 * seconds that have passed since the thread's first wait or its last question.
 */
static _Thread_local struct {
    bool started, has_ticks;
    uint64_t first, begin, spent[ZT_NUM_WAITS]; /* ticks */
    double first_s;                             /* the clock at tick `first` */
} waits;

static bool ticks_are_steady(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d = 0;

    return __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d >> 8 & 1);
#else
    return false;
#endif
}

static uint64_t now_ticks(void)
{
#if defined(__x86_64__)
    if (waits.has_ticks)
        return __rdtsc();
#endif
    return (uint64_t)(zt_now() * 1e9);
}

static void start(void)
{
    waits.started = true;
    waits.has_ticks = ticks_are_steady();
    waits.first_s = zt_now();
    waits.first = now_ticks();
}

void zt_wait_begin(void)
{
    if (!waits.started)
        start();
    waits.begin = now_ticks();
}

void zt_wait_end(zt_wait_kind kind)
{
    waits.spent[kind] += now_ticks() - waits.begin;
}

void zt_waits_take(double seconds[ZT_NUM_WAITS])
{
    double tick_s = 0;

    if (waits.started) {
        double now_s = zt_now();
        uint64_t now = now_ticks(), ticks = now - waits.first;

        tick_s = ticks ? (now_s - waits.first_s) / (double)ticks : 0;
        waits.first_s = now_s;
        waits.first = now;
    }
    for (int i = 0; i < ZT_NUM_WAITS; i++) {
        seconds[i] = (double)waits.spent[i] * tick_s;
        waits.spent[i] = 0;
    }
}
