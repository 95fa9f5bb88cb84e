/*
 * room.h -- how much memory the machine can still give.
 *
 * Memory of a memfd is refused by nobody: asking for more than there is wakes the
 * kernel's OOM killer. So look first.
 */
#ifndef WORKER_COMM_ROOM_H
#define WORKER_COMM_ROOM_H

#include <stddef.h>

/*
 * Bytes, of the machine (free, reclaimable, swap) or of its control groups, whichever
 * has less; SIZE_MAX: cannot tell. Any thread; others may take it at any moment.
 */
size_t zt_comm_room(void);

#endif
