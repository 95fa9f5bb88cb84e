/*
 * phase.h -- what a rank is doing now, as text that can be read after the rank died.
 *
 * The daemon shares one memfd with the ranks of its node; each rank has a slot in it and
 * writes a short text there, which costs a copy and no system call. A slot holds two
 * texts and the index of the valid one, so a rank that is killed while writing leaves the
 * older text intact.
 * Threads: one writer per slot; readers anywhere, in any process.
 */
#ifndef COMMON_MESSAGE_PHASE_H
#define COMMON_MESSAGE_PHASE_H

#include "include/zlaunch/types.h"

#define ZT_PHASE_TEXT 124 /* bytes, with the final NUL */

struct zt_phase_slot {
    uint32_t which; /* bit 0: index of the text that counts; bit 1: the work is done */
    uint32_t call;  /* the last collective: see zt_phase_set_collective() */
    char text[2][ZT_PHASE_TEXT];
};

void zt_phase_write(struct zt_phase_slot *slot, const char *text); /* cut to fit */
/*
 * A collective of kind `op` (below 32) begins, or ends: the slot then holds
 * count << 6 | op << 1 | inside, where count is how many have begun, modulo 2^26.
 */
void zt_phase_set_collective(struct zt_phase_slot *slot, unsigned op, bool inside);
struct zt_collective_state {
    unsigned count, op;
    bool inside;
};
struct zt_collective_state zt_phase_read_collective(const struct zt_phase_slot *slot);

void zt_phase_read(const struct zt_phase_slot *slot, char out[ZT_PHASE_TEXT]);

/* What was asked of the rank is done, or has failed and was reported: it may end. */
void zt_phase_set_done(struct zt_phase_slot *slot);
/* A rank that began and has not said that it is done; programs without phases never begin. */
bool zt_phase_is_unfinished(const struct zt_phase_slot *slot);

#endif
