/* files.h -- a scratch folder, and files in it, for the tests of data and weights. */
#ifndef TEST_UNIT_DATA_FILES_H
#define TEST_UNIT_DATA_FILES_H

#include <dirent.h>
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char scratch_dir[64];

/* Paths live in a ring: a test may hold up to 16 at once. */
static inline const char *in_scratch(const char *name)
{
    static char ring[16][320];
    static int at;
    char *p = ring[at++ % 16];

    snprintf(p, sizeof(ring[0]), "%s/%s", scratch_dir, name);
    return p;
}

static inline const char *put_file(const char *name, const void *data, size_t n)
{
    const char *path = in_scratch(name);
    FILE *f = fopen(path, "wb");

    if (!f || (n && fwrite(data, 1, n, f) != n) || fclose(f))
        abort();
    return path;
}

/* Names in a folder, without . and .. */
static inline int count_files(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;

    if (!d)
        abort();
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}

static inline int scratch_make(void **state)
{
    (void)state;
    snprintf(scratch_dir, sizeof(scratch_dir), "/tmp/zt_test.XXXXXX");
    return mkdtemp(scratch_dir) ? 0 : -1;
}

static inline int remove_one(const char *path, const struct stat *st, int kind,
                             struct FTW *place)
{
    (void)st;
    (void)kind;
    (void)place;
    return remove(path);
}

static inline int scratch_remove(void **state)
{
    (void)state;
    return nftw(scratch_dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

#endif
