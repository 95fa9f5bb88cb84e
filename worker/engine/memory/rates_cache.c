#include "worker/engine/memory/rates_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"

#define WEEK (7 * 24 * 3600)

/* The folder, made where it is missing; false: the user has no place for caches. */
static bool find_folder(char *out, size_t cap)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;

    if (cache && cache[0] == '/') {
        n = snprintf(out, cap, "%s", cache);
    } else if (home && home[0] == '/') {
        n = snprintf(out, cap, "%s/.cache", home);
    } else {
        return false;
    }
    if (n < 0 || (size_t)n >= cap - sizeof("/zlaunch"))
        return false;
    if (mkdir(out, 0700) && errno != EEXIST)
        return false;
    snprintf(out + n, cap - (size_t)n, "/zlaunch");
    return !mkdir(out, 0700) || errno == EEXIST;
}

static json_t *load(const char *folder)
{
    char path[4200];
    json_t *all;

    snprintf(path, sizeof(path), "%s/rates.json", folder);
    all = json_load_file(path, 0, NULL);
    if (!json_is_object(all)) {
        json_decref(all);
        all = json_object();
    }
    return all;
}

/* Homes are shared between machines. */
static void add_host(const char *key, char *out, size_t cap)
{
    char host[128] = "";

    gethostname(host, sizeof(host) - 1);
    snprintf(out, cap, "%s: %s", host, key);
}

json_t *zt_rates_cache_get(const char *key)
{
    char folder[4096], full[ZT_RATES_KEY + 160];
    json_t *all, *found, *rates = NULL;
    double age;

    if (!find_folder(folder, sizeof(folder)))
        return NULL;
    add_host(key, full, sizeof(full));
    all = load(folder);
    found = json_object_get(all, full);
    age =
        difftime(time(NULL), (time_t)json_integer_value(json_object_get(found, "time")));
    if (found && age >= 0 && age < WEEK)
        rates = json_deep_copy(json_object_get(found, "rates"));
    json_decref(all);
    return rates;
}

/* Under another name first, so that readers find a whole file. */
static int replace(const char *folder, const json_t *all)
{
    char tmp[4200], path[4200];
    int fd, rc;

    snprintf(tmp, sizeof(tmp), "%s/rates.XXXXXX", folder);
    snprintf(path, sizeof(path), "%s/rates.json", folder);
    fd = mkostemp(tmp, O_CLOEXEC);
    if (fd < 0)
        return -1;
    rc = json_dumpfd(all, fd, JSON_INDENT(1));
    rc = close(fd) || rc ? -1 : rename(tmp, path);
    if (rc)
        (void)unlink(tmp);
    return rc;
}

void zt_rates_cache_put(const char *key, const json_t *rates)
{
    char folder[4096], full[ZT_RATES_KEY + 160];
    json_t *all;

    if (!find_folder(folder, sizeof(folder)))
        return;
    add_host(key, full, sizeof(full));
    all = load(folder);
    json_object_set_new(all, full,
                        json_pack("{sI so}", "time", (json_int_t)time(NULL), "rates",
                                  json_deep_copy(rates)));
    if (replace(folder, all))
        zt_debug("memory", "%s/rates.json: %s", folder, strerror(errno));
    json_decref(all);
}
