/*
 * place_tool.c -- zero_to_fp32 beside a checkpoint, as DeepSpeed puts its script there: so
 * whoever gets the folder can take the weights out of it.
 *
 * The program is the one beside zworker, and static where that could be built. Without
 * one, or without room, the checkpoint is no less whole, so nothing here is an error.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/engine/checkpoint/private.h"

#define TOOL "zero_to_fp32"

/* The program's own folder; false: not known. */
static bool own_folder(char *out, size_t cap)
{
    ssize_t n = readlink("/proc/self/exe", out, cap - 1);
    char *slash;

    out[n > 0 ? n : 0] = 0;
    slash = strrchr(out, '/');
    if (slash)
        *slash = 0;
    return slash != NULL;
}

static bool copy_all(int from, int to)
{
    char piece[1 << 16];
    ssize_t n;

    while ((n = read(from, piece, sizeof(piece))) > 0)
        if (write(to, piece, (size_t)n) != n)
            return false;
    return n == 0 && fsync(to) == 0;
}

void zt_ckpt_place_tool(const char *dir)
{
    char own[PATH_MAX], path[PATH_MAX + 32];
    int from, to;
    bool good;

    if (!own_folder(own, sizeof(own)))
        return;
    snprintf(path, sizeof(path), "%s/" TOOL, own);
    from = open(path, O_RDONLY | O_CLOEXEC);
    if (from < 0)
        return;
    snprintf(path, sizeof(path), "%s/" TOOL, dir);
    to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    good = to >= 0 && copy_all(from, to);
    close(from);
    if (to >= 0 && close(to) < 0)
        good = false;
    if (to >= 0 && !good)
        unlink(path);
}
