/*
 * mutations.h -- changed bytes, for tests that know what a format means: what is accepted
 * of a mutant means what it says, or what it meant before.
 */
#ifndef TEST_UNIT_MUTATIONS_H
#define TEST_UNIT_MUTATIONS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* How many; ZT_MUTATIONS says it otherwise. */
static inline int num_mutations(int usual)
{
    const char *words = getenv("ZT_MUTATIONS");

    return words ? atoi(words) : usual;
}

/* Where they begin: the same each time, or as ZT_MUTATION_SEED, a number, says. */
static inline uint64_t mutation_seed(void)
{
    const char *words = getenv("ZT_MUTATION_SEED");

    return 88172645463325252u ^
           (words ? strtoull(words, NULL, 10) * 0x9e3779b97f4a7c15u : 0);
}

/* The next number of a generator (Marsaglia's xorshift64). */
static inline uint64_t next_random(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

/* One to three bytes of n become others; `letters`: some of these, NULL: any. */
static inline void change_bytes(uint8_t *bytes, size_t n, const char *letters,
                                uint64_t *x)
{
    for (uint64_t k = next_random(x) % 3 + 1; k > 0; k--) {
        size_t at = next_random(x) % n;
        uint64_t r = next_random(x) >> 20;

        bytes[at] = letters ? (uint8_t)letters[r % strlen(letters)] : (uint8_t)r;
    }
}

#endif
