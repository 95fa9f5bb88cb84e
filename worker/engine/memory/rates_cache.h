/*
 * rates_cache.h -- what was measured of this machine, kept for the user: a JSON file with
 * an object for each machine and kind of measurement. A file that cannot be read or
 * written only means that things are measured again. Threads: any, and other processes.
 */
#ifndef WORKER_ENGINE_MEMORY_RATES_CACHE_H
#define WORKER_ENGINE_MEMORY_RATES_CACHE_H

#include <jansson.h>

#define ZT_RATES_KEY 4096 /* bytes of a key that count */

/* A copy, the caller's; NULL: nothing of this machine, or it is older than a week. */
json_t *zt_rates_cache_get(const char *key);
void zt_rates_cache_put(const char *key, const json_t *rates);

#endif
