#include "common/message/phase.h"

#include <stdio.h>
#include <string.h>

void zt_phase_write(struct zt_phase_slot *slot, const char *text)
{
    uint32_t next = !(__atomic_load_n(&slot->which, __ATOMIC_RELAXED) & 1);

    snprintf(slot->text[next], sizeof(slot->text[next]), "%s", text);
    __atomic_store_n(&slot->which, next, __ATOMIC_RELEASE);
}

void zt_phase_read(const struct zt_phase_slot *slot, char out[ZT_PHASE_TEXT])
{
    uint32_t which = __atomic_load_n(&slot->which, __ATOMIC_ACQUIRE) & 1;

    memcpy(out, slot->text[which], ZT_PHASE_TEXT);
    out[ZT_PHASE_TEXT - 1] = 0;
}

void zt_phase_set_collective(struct zt_phase_slot *slot, unsigned op, bool inside)
{
    uint32_t count = __atomic_load_n(&slot->call, __ATOMIC_RELAXED) >> 6;

    count += inside;
    __atomic_store_n(&slot->call, count << 6 | (op & 31) << 1 | inside, __ATOMIC_RELAXED);
}

struct zt_collective_state zt_phase_read_collective(const struct zt_phase_slot *slot)
{
    uint32_t call = __atomic_load_n(&slot->call, __ATOMIC_RELAXED);

    return (struct zt_collective_state){
        .count = call >> 6, .op = call >> 1 & 31, .inside = call & 1};
}

void zt_phase_set_done(struct zt_phase_slot *slot)
{
    __atomic_fetch_or(&slot->which, 2, __ATOMIC_RELEASE);
}

bool zt_phase_is_unfinished(const struct zt_phase_slot *slot)
{
    uint32_t which = __atomic_load_n(&slot->which, __ATOMIC_ACQUIRE);

    return slot->text[which & 1][0] && !(which & 2);
}
