#include "common/trace/waits.h"

#include "common/log.h"

static _Thread_local struct {
    double begin, seconds[ZT_NUM_WAITS];
} waits;

void zt_wait_begin(void)
{
    waits.begin = zt_now();
}

void zt_wait_end(zt_wait_kind kind)
{
    waits.seconds[kind] += zt_now() - waits.begin;
}

void zt_waits_take(double seconds[ZT_NUM_WAITS])
{
    for (int i = 0; i < ZT_NUM_WAITS; i++) {
        seconds[i] = waits.seconds[i];
        waits.seconds[i] = 0;
    }
}
