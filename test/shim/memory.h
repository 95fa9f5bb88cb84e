/*
 * memory.h -- the record of an allocation. memory.cpp keeps them; faults.cpp looks up the
 * owner of an address, and copy.cpp what may be copied where.
 */
#ifndef SHIM_MEMORY_H
#define SHIM_MEMORY_H

#include <deque>
#include <map>

#include "shim.h"

struct shim_region {
    shim_side side;
    int device; /* current when it was allocated */
    char *map;
    size_t map_bytes;
    char *body; /* between the guards */
    size_t body_bytes;
    char *data;
    size_t bytes;
};

const char *shim_side_name(shim_side side);
/* The allocation that has `at` within its guards, live ones first. False: none. */
bool shim_region_around(const char *at, shim_region *out, bool *is_freed);

#endif
