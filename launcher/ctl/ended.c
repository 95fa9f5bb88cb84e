/*
 * The last job of a folder, for who asks for it when it is over: the one that began last,
 * whichever ended last. A job writes FOLDER.last in the folder of its socket when it begins,
 * and when it ends if none has begun since; one that never began, only where there is none.
 * FOLDER is a hash of the path
 * that it was started in, so there is one file for each.
 */
#include "common/json/line.h"
#include "launcher/ctl/private.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD_BYTES 12288 /* two paths, each byte of which may be \u00XX */

static uint64_t hash_of(const char *text)
{
    uint64_t h = 1469598103934665603ull; /* FNV-1a */

    for (; *text; text++)
        h = (h ^ (uint8_t)*text) * 1099511628211ull;
    return h;
}

static zt_err record_path(const char *dir, const char *folder, char out[ZT_CTL_PATH])
{
    char name[32];

    snprintf(name, sizeof(name), "%016llx", (unsigned long long)hash_of(folder));
    return zt_ctl_path(dir, name, ".last", out, NULL);
}

/* It appears whole or not at all. Best effort: it is a courtesy. */
static void write_record(const json_t *record, const char *path)
{
    char work[ZT_CTL_PATH + 16];
    FILE *f;
    bool good;

    snprintf(work, sizeof(work), "%s.%d", path, (int)getpid());
    f = fopen(work, "we");
    if (!f)
        return;
    good = json_dumpf(record, f, JSON_COMPACT) == 0;
    good = fclose(f) == 0 && good;
    if (!good || rename(work, path))
        unlink(work);
}

static json_t *read_record(const char *path)
{
    char text[RECORD_BYTES];
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof(text), f) : 0;

    if (f)
        fclose(f);
    return n ? zt_json_object(text, n) : NULL;
}

/* Each job writes its name when it begins: another one there has begun later, or has begun
 * and this one has not. */
static bool has_other_job(const char *path, const char *job)
{
    json_t *record = read_record(path);
    bool other = record && strcmp(zt_json_get_text(record, "job", job), job) != 0;

    json_decref(record);
    return other;
}

void zt_ctl_note_job(const char *job, const char *log, const int *exit_code, int lost)
{
    char dir[ZT_CTL_PATH], path[ZT_CTL_PATH], here[PATH_MAX], when[ZT_TIMESTAMP_BYTES];
    json_t *o;

    if (!getcwd(here, sizeof(here)) || zt_ctl_dir(dir, NULL) ||
        record_path(dir, here, path) || (exit_code && has_other_job(path, job)))
        return;
    zt_timestamp(when);
    o = json_object();
    json_object_set_new(o, "job", json_string(job));
    json_object_set_new(o, "folder", zt_json_text(here, strlen(here)));
    json_object_set_new(o, "ts", json_string(when));
    if (log)
        json_object_set_new(o, "log_file", zt_json_text(log, strlen(log)));
    if (log && lost)
        json_object_set_new(o, "log_error", json_string(strerror(lost)));
    if (exit_code)
        json_object_set_new(o, "exit_code", json_integer(*exit_code));
    write_record(o, path);
    json_decref(o);
}

static bool is_meant(const json_t *record, const char *name, const char *here)
{
    const char *job = zt_json_get_text(record, "job", "");

    if (strcmp(name, "last") == 0)
        return strcmp(zt_json_get_text(record, "folder", ""), here) == 0;
    return strncmp(job, name, strlen(name)) == 0;
}

/* Of two jobs whose names begin alike that of this folder is meant, else the newer one. */
static bool is_better(const json_t *a, const json_t *b, const char *here)
{
    bool a_here = strcmp(zt_json_get_text(a, "folder", ""), here) == 0;
    bool b_here = strcmp(zt_json_get_text(b, "folder", ""), here) == 0;

    return a_here != b_here
               ? a_here
               : strcmp(zt_json_get_text(a, "ts", ""), zt_json_get_text(b, "ts", "")) > 0;
}

/* Takes the place of *found, which may be NULL, where it is better. */
static void find_in(const char *dir, const char *name, const char *here, json_t **found)
{
    DIR *d = opendir(dir);
    const struct dirent *e;
    char path[ZT_CTL_PATH];

    while (d && (e = readdir(d))) {
        const char *dot = strrchr(e->d_name, '.');
        json_t *record;

        if (!dot || strcmp(dot, ".last") != 0 ||
            zt_ctl_path(dir, e->d_name, "", path, NULL))
            continue;
        record = read_record(path);
        if (record && is_meant(record, name, here) &&
            (!*found || is_better(record, *found, here))) {
            json_decref(*found);
            *found = record;
        } else {
            json_decref(record);
        }
    }
    if (d)
        closedir(d);
}

static void describe(const json_t *record, bool by_folder, char *out, size_t bytes)
{
    const char *log = zt_json_get_text(record, "log_file", NULL);
    const char *lost = zt_json_get_text(record, "log_error", NULL);
    const char *ts = zt_json_get_text(record, "ts", "?");
    const char *clock = strlen(ts) > 11 ? ts + 11 : "";
    const char *which = by_folder ? "the last job of this folder, " : "job ";
    const char *job = zt_json_get_text(record, "job", "?");
    size_t n;

    if (json_object_get(record, "exit_code"))
        n = (size_t)snprintf(out, bytes,
                             "%s%s%s ended at %.10s %.8s UTC with exit code %lld", which,
                             job, by_folder ? "," : "", ts, clock,
                             (long long)zt_json_get_int(record, "exit_code", 0));
    else
        n = (size_t)snprintf(
            out, bytes,
            "%s%s%s began at %.10s %.8s UTC and was killed before it could say how "
            "it ended",
            which, job, by_folder ? "," : "", ts, clock);
    if (n < bytes && log && lost)
        snprintf(out + n, bytes - n, "; %s has not all that it wrote: %s", log, lost);
    else if (n < bytes && log)
        snprintf(out + n, bytes - n, "; what it wrote is in %s", log);
    else if (n < bytes)
        snprintf(out + n, bytes - n,
                 "; what it wrote went to where it was started (--detach and --log_file "
                 "keep it)");
}

bool zt_ctl_find_ended(const char *name, char *out, size_t bytes)
{
    char dir[ZT_CTL_PATH], here[PATH_MAX];
    json_t *record = NULL;

    if (!getcwd(here, sizeof(here)))
        return false;
    for (int i = 0; i < 2; i++)
        if (zt_ctl_dir_at(i, false, dir, NULL) == ZT_OK)
            find_in(dir, name, here, &record);
    if (!record)
        return false;
    describe(record, strcmp(name, "last") == 0, out, bytes);
    json_decref(record);
    return true;
}
