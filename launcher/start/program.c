#include "launcher/start/program.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"

static bool is_program(const char *path)
{
    struct stat sb;

    return stat(path, &sb) == 0 && S_ISREG(sb.st_mode) && access(path, X_OK) == 0;
}

/* Whether a file is a shared library that cannot be run: an ELF file to be loaded anywhere which
 * has no entry point. */
static bool is_library(const char *path)
{
    Elf64_Ehdr h = {.e_type = ET_NONE};
    FILE *f = fopen(path, "rbe");
    bool read = f && fread(&h, sizeof(h), 1, f) == 1;

    if (f)
        fclose(f);
    return read && memcmp(h.e_ident, ELFMAG, SELFMAG) == 0 &&
           h.e_ident[EI_CLASS] == ELFCLASS64 && h.e_type == ET_DYN && h.e_entry == 0;
}

static zt_err no_memory(struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_NOMEM, "no memory for a path");
}

/* The first `name` in PATH that can be executed; NULL: none. */
static char *search_path(const char *name)
{
    const char *dirs = getenv("PATH");

    for (const char *p = dirs ? dirs : "/usr/bin:/bin"; p; p = strchr(p, ':')) {
        char path[PATH_MAX];
        size_t n;

        p += *p == ':';
        n = strcspn(p, ":");
        snprintf(path, sizeof(path), "%.*s/%s", n ? (int)n : 1, n ? p : ".", name);
        if (is_program(path))
            return strdup(path);
    }
    return NULL;
}

static bool has_file(const char *folder, const char *name)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return access(path, R_OK) == 0;
}

/* A folder is no program; that of a model is somebody's who has the plugin built in. */
static zt_err refuse_folder(const char *name, struct zt_fault *fault)
{
    if (has_file(name, "config.json"))
        return zt_fault_set(fault, ZT_E_NOINPUT,
                            "cannot run %s: it is the folder of a model; the target is "
                            "the plugin of its model_type, as of gpt2: zlaunch gpt2.so "
                            "--model_name_or_path %s",
                            name, name);
    if (has_file(name, "__main__.py"))
        return zt_fault_set(fault, ZT_E_NOINPUT,
                            "cannot run %s: it is a folder; Python runs it, as in: "
                            "zlaunch -- python3 %s",
                            name, name);
    return zt_fault_set(fault, ZT_E_NOINPUT,
                        "cannot run %s: it is a folder; the target is a plugin, as "
                        "gpt2.so, or a program",
                        name);
}

zt_err zt_find_program(const char *name, char **out, struct zt_fault *fault)
{
    struct stat sb;
    char *found;

    if (!strchr(name, '/')) {
        found = search_path(name);
        if (!found && stat(name, &sb) == 0 && S_ISDIR(sb.st_mode))
            return refuse_folder(name, fault);
        if (!found && stat(name, &sb) == 0)
            return zt_fault_set(
                fault, ZT_E_NOINPUT,
                "program '%s' is not in PATH; write ./%s for the file in this "
                "folder",
                name, name);
        if (!found)
            return zt_fault_set(fault, ZT_E_NOINPUT, "program '%s' is not in PATH", name);
        *out = found;
        return ZT_OK;
    }
    if (stat(name, &sb) < 0)
        return zt_fault_set(fault, ZT_E_NOINPUT, "cannot run %s: %s", name,
                            strerror(errno));
    if (S_ISDIR(sb.st_mode))
        return refuse_folder(name, fault);
    if (is_library(name) || (!is_program(name) && strstr(name, ".so.")))
        return zt_fault_set(fault, ZT_E_NOINPUT,
                            "cannot run %s: the name of a plugin ends in .so", name);
    if (!is_program(name))
        return zt_fault_set(fault, ZT_E_NOINPUT,
                            "cannot run %s: it is no executable file; scripts go through "
                            "their interpreter, as in: zlaunch -- python3 %s",
                            name, name);
    found = strdup(name);
    if (!found)
        return no_memory(fault);
    *out = found;
    return ZT_OK;
}

zt_err zt_find_zworker(char **out, struct zt_fault *fault)
{
    const char *set = getenv("ZLAUNCH_ZWORKER");
    char self[PATH_MAX], *slash;
    ssize_t n;

    if (set && *set) {
        if (!is_program(set))
            return zt_fault_set(fault, ZT_E_NOINPUT,
                                "ZLAUNCH_ZWORKER is '%s', which is no executable file",
                                set);
        *out = strdup(set);
        return *out ? ZT_OK : no_memory(fault);
    }
    n = readlink("/proc/self/exe", self, sizeof(self) - 16);
    if (n > 0) {
        self[n] = 0;
        slash = strrchr(self, '/');
        memcpy(slash + 1, "zworker", sizeof("zworker"));
        if (is_program(self)) {
            *out = strdup(self);
            return *out ? ZT_OK : no_memory(fault);
        }
    }
    *out = search_path("zworker");
    if (!*out)
        return zt_fault_set(fault, ZT_E_NOINPUT,
                            "zworker is neither beside zlaunch nor in PATH; set "
                            "ZLAUNCH_ZWORKER to where it is");
    return ZT_OK;
}

static char *read_all(int fd, double seconds, size_t *n)
{
    double until = zt_now() + seconds;
    char *text = NULL;
    FILE *f = open_memstream(&text, n);
    char block[4096];
    size_t total = 0;
    ssize_t k = 1;

    while (f && k > 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int left_ms = (int)((until - zt_now()) * 1000);
        int got = left_ms > 0 ? poll(&p, 1, left_ms) : 0;

        if (got < 0 && errno == EINTR)
            continue;
        k = got > 0 ? read(fd, block, sizeof(block)) : 0;
        if (k > 0 && (total += (size_t)k) < (1u << 20))
            fwrite(block, 1, (size_t)k, f);
    }
    if (f)
        fclose(f);
    return text;
}

char *zt_program_output(char *const argv[], double seconds, size_t *n)
{
    posix_spawn_file_actions_t acts;
    int fds[2], status = 0, e;
    char *text = NULL;
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return NULL;
    posix_spawn_file_actions_init(&acts);
    posix_spawn_file_actions_adddup2(&acts, fds[1], STDOUT_FILENO);
    e = posix_spawn(&pid, argv[0], &acts, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&acts);
    close(fds[1]);
    if (e == 0) {
        text = read_all(fds[0], seconds, n);
        kill(pid, SIGKILL); /* it has said all, or takes too long */
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            continue;
    }
    close(fds[0]);
    return text;
}
