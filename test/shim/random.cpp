/*
 * random.cpp -- the numbers that orders are drawn from (SplitMix64).
 */
#include "shim.h"

static uint64_t seed, state;
static bool seeded;

void shim_set_seed(uint64_t s)
{
    seed = state = s;
    seeded = true;
}

uint64_t shim_seed(void)
{
    if (!seeded)
        shim_set_seed((uint64_t)shim_option("SHIM_SEED", 0));
    return seed;
}

uint64_t shim_random(void)
{
    uint64_t z;

    shim_seed();
    z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}
