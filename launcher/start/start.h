/*
 * start.h -- the ways to reach a node.
 */
#ifndef LAUNCHER_START_START_H
#define LAUNCHER_START_START_H

#include "launcher/start/channel.h"

/* The starter of this name; NULL: not in this version. */
const struct zt_starter *zt_starter_find(const char *name);
/* All of them, from 0; NULL: there are no more. */
const struct zt_starter *zt_starter_at(size_t i);

#endif
