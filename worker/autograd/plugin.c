/*
 * plugin.c -- finding out whether a file is a plugin that this program can run.
 *
 * What can be seen from outside (there, a shared object, whole) is looked at first, so
 * that the loader's own words are needed only for symbols.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/loadable.h"
#include "common/options/options.h"
#include "worker/autograd/abi.h"
#include "worker/autograd/model.h"

static bool is_source(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot && (!strcmp(dot, ".c") || !strcmp(dot, ".cc") || !strcmp(dot, ".cpp"));
}

static zt_err check_kind(const char *path, const ElfW(Ehdr) * head, ssize_t got,
                         struct zt_fault *fault)
{
    char flags[ZT_LOADABLE_PATH];

    if (got < (ssize_t)sizeof(*head) || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0)
        return zt_fault_set(
            fault, ZT_E_PLUGIN,
            "plugin %s: it is not a shared object%s: build it with cc -O2 -shared -fPIC "
            "%s -o NAME.so NAME.c",
            path, is_source(path) ? " but C source" : "",
            zt_plugin_header_flags(flags, sizeof(flags)));
    if (head->e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32))
        return zt_fault_set(fault, ZT_E_PLUGIN,
                            "plugin %s: it is for another word size than this program",
                            path);
    if (head->e_type != ET_DYN)
        return zt_fault_set(fault, ZT_E_PLUGIN,
                            "plugin %s: it is %s, not a shared object: link it with "
                            "cc -shared",
                            path,
                            head->e_type == ET_REL    ? "an object file"
                            : head->e_type == ET_EXEC ? "a program"
                                                      : "an ELF file of another kind");
    return ZT_OK;
}

/*
 * Does the file hold all that its headers promise? The loader maps it without looking,
 * and a page that is not there kills the process.
 */
static zt_err check_length(const char *path, int fd, const ElfW(Ehdr) * head,
                           uint64_t size, struct zt_fault *fault)
{
    uint64_t end = (uint64_t)head->e_shoff + (uint64_t)head->e_shnum * head->e_shentsize;

    for (int i = 0; i < head->e_phnum; i++) {
        ElfW(Phdr) ph;
        off_t at = (off_t)(head->e_phoff + (uint64_t)i * sizeof(ph));

        if (pread(fd, &ph, sizeof(ph), at) != (ssize_t)sizeof(ph))
            end = UINT64_MAX;
        else if (ph.p_offset > UINT64_MAX - ph.p_filesz)
            end = UINT64_MAX;
        else if (ph.p_offset + ph.p_filesz > end)
            end = ph.p_offset + ph.p_filesz;
    }
    if (end <= size)
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_PLUGIN,
                        "plugin %s: it is cut short (%llu bytes): build or copy it again",
                        path, (unsigned long long)size);
}

static zt_err check_file(const char *path, struct zt_fault *fault)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ElfW(Ehdr) head = {.e_type = 0};
    struct stat st;
    zt_err rc;

    if (fd < 0 || fstat(fd, &st)) {
        rc = zt_fault_set(fault, ZT_E_NOINPUT, "plugin %s: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        rc = zt_fault_set(fault, ZT_E_NOINPUT, "plugin %s: it is %s; give the .so", path,
                          S_ISDIR(st.st_mode) ? "a folder" : "not a file");
    } else {
        rc = check_kind(path, &head, read(fd, &head, sizeof(head)), fault);
        if (!rc)
            rc = check_length(path, fd, &head, (uint64_t)st.st_size, fault);
    }
    if (fd >= 0)
        close(fd);
    return rc;
}

/* The loader's sentence, without the path in front of it. */
static const char *without_path(const char *text, const char *path)
{
    size_t n = strlen(path);

    if (strncmp(text, path, n) == 0 && strncmp(text + n, ": ", 2) == 0)
        return text + n + 2;
    return text;
}

static zt_err explain_dlopen(const char *path, const char *opened, const char *text,
                             struct zt_fault *fault)
{
    static const char undefined[] = "undefined symbol: ";
    const char *at;

    text = without_path(text ? text : "the loader gave no reason", opened);
    at = strstr(text, undefined);
    if (!at)
        return zt_fault_set(fault, ZT_E_PLUGIN, "plugin %s cannot be loaded: %s", path,
                            text);
    at += strlen(undefined);
    if (strncmp(at, "zt_", 3) == 0)
        return zt_fault_set(
            fault, ZT_E_PLUGIN,
            "plugin %s uses %s, which zlaunch %s does not have: if the "
            "name is right (zlaunch/ops.h has all), rebuild it against the "
            "headers of this version",
            path, at, ZT_VERSION);
    return zt_fault_set(fault, ZT_E_PLUGIN,
                        "plugin %s uses %s, which nothing defines: link the library that "
                        "has it, or define it, and rebuild",
                        path, at);
}

/* ---- versions ---- */

#define OPTION_LEAST ZT_ABI_THROUGH(struct zt_option, kind)

/* "3.0"; before 3.0 it was a single small number. */
static const char *abi_text(uint32_t abi, char out[32])
{
    if (abi >> 16)
        snprintf(out, 32, "%u.%u", abi >> 16, abi & 0xffff);
    else
        snprintf(out, 32, "%u", abi);
    return out;
}

static zt_err check_abi(const char *path, const struct zt_plugin *p,
                        struct zt_fault *fault)
{
    char its[32], ours[32];

    if (!p)
        return zt_fault_set(fault, ZT_E_PLUGIN,
                            "plugin %s exports no %s: end it with ZT_PLUGIN(.name = ...)",
                            path, ZT_PLUGIN_SYMBOL);
    abi_text(p->abi, its);
    abi_text(ZT_ABI, ours);
    if (p->abi >> 16 != ZT_ABI_MAJOR)
        return zt_fault_set(fault, ZT_E_PLUGIN,
                            "plugin %s was built against plugin ABI %s, this zworker "
                            "(zlaunch %s) offers %s: rebuild it against the headers of "
                            "this version",
                            path, its, ZT_VERSION, ours);
    if (p->abi > ZT_ABI)
        return zt_fault_set(fault, ZT_E_PLUGIN,
                            "plugin %s was built against plugin ABI %s, this zworker "
                            "(zlaunch %s) offers %s: run it with the newer zlaunch, or "
                            "rebuild it against the headers of this version",
                            path, its, ZT_VERSION, ours);
    return ZT_OK;
}

/* What a plugin exports, as this version of the headers has it. */
struct zt_loaded_plugin {
    struct zt_loaded_plugin *next;
    const struct zt_plugin *entry; /* in its own memory */
    struct zt_plugin plugin;
    struct zt_option options[]; /* as many as it has, and the end */
};

/* Like the objects they are from, for the life of the process. */
static struct zt_loaded_plugin *loaded_plugins;

static size_t count_options(const struct zt_plugin *p)
{
    const char *row = (const char *)p->options, *name;
    size_t n = 0;

    for (; row; row += p->option_bytes, n++) {
        memcpy(&name, row, sizeof(name));
        if (!name)
            break;
    }
    return n;
}

static zt_err check_sizes(const char *path, const struct zt_plugin *p,
                          struct zt_fault *fault)
{
    struct zt_option row;
    uint32_t bytes = p->options ? p->option_bytes : (uint32_t)sizeof(row);

    if (bytes >= OPTION_LEAST && bytes <= sizeof(row) && bytes % sizeof(void *) == 0)
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_PLUGIN,
                        "plugin %s: the rows of its options have %u bytes, ours %zu: end "
                        "it with ZT_PLUGIN(.name = ...)",
                        path, bytes, sizeof(row));
}

static zt_err check_members(const char *path, const struct zt_plugin *p,
                            struct zt_fault *fault)
{
    uint32_t flags = p->flags & ~(ZT_PLUGIN_CACHED | ZT_PLUGIN_CACHED_SOURCE);

    if (!p->name || !*p->name || !p->build || !p->forward)
        return zt_fault_set(fault, ZT_E_PLUGIN, "plugin %s: ZT_PLUGIN() lacks .%s", path,
                            !p->name || !*p->name ? "name"
                            : !p->build           ? "build"
                                                  : "forward");
    if (flags)
        return zt_fault_set(fault, ZT_E_PLUGIN, "plugin %s: .flags has 0x%x, no flag",
                            path, flags);
    if ((p->flags & ZT_PLUGIN_CACHED_SOURCE) && !(p->flags & ZT_PLUGIN_CACHED))
        return zt_fault_set(fault, ZT_E_PLUGIN,
                            "plugin %s: .flags has ZT_PLUGIN_CACHED_SOURCE without "
                            "ZT_PLUGIN_CACHED, beside which it means something",
                            path);
    return ZT_OK;
}

/* Is `name` that of a row before `end`, as its name or its alias? '-' is '_' there. */
static bool is_taken(const struct zt_option *rows, const struct zt_option *end,
                     const char *name)
{
    bool taken = false;

    for (const struct zt_option *o = rows; name && o < end && !taken; o++)
        for (int second = 0; second < 2 && !taken; second++) {
            const char *a = second ? o->alias : o->name, *b = name;

            for (; a && *a && (*a == '-' ? '_' : *a) == (*b == '-' ? '_' : *b); a++)
                b++;
            taken = a && !*a && !*b;
        }
    return taken;
}

/* What is wrong with a row of options; NULL: nothing that could be seen before it is used. */
static const char *fault_of_row(const struct zt_option *rows, const struct zt_option *o)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789_-.";

    if (!*o->name || *o->name == '-' || o->name[strspn(o->name, letters)])
        return "a name has letters, digits and _ alone";
    if (o->kind > ZT_OPT_LIST)
        return "there is no such kind";
    if (o->kind == ZT_OPT_CHOICE && (!o->choices || !*o->choices))
        return "a choice needs .choices";
    if (o->min > o->max)
        return ".min is above .max";
    if (is_taken(rows, o, o->name) || is_taken(rows, o, o->alias))
        return "another one has this name";
    return NULL;
}

static zt_err check_options(const char *path, const struct zt_option *rows,
                            struct zt_fault *fault)
{
    zt_args *args = NULL;
    zt_err rc;

    for (const struct zt_option *o = rows; o->name; o++)
        if (fault_of_row(rows, o))
            return zt_fault_set(fault, ZT_E_PLUGIN, "plugin %s: option \"%s\": %s", path,
                                o->name, fault_of_row(rows, o));
    rc = zt_args_open(rows, &args, fault); /* the defaults */
    zt_args_close(args);
    if (rc == ZT_E_ARG && fault)
        fault->code = ZT_E_PLUGIN;
    return rc == ZT_E_ARG ? zt_fault_context(fault, ZT_E_PLUGIN, "plugin %s", path) : rc;
}

static zt_err take_entry(const char *path, const struct zt_plugin *entry,
                         const struct zt_plugin **out, struct zt_fault *fault)
{
    struct zt_loaded_plugin *l;
    struct zt_plugin p;
    size_t n;
    zt_err rc;

    if (!zt_abi_take(&p, sizeof(p), entry, entry->struct_bytes,
                     ZT_ABI_THROUGH(struct zt_plugin, forward)))
        return zt_fault_set(fault, ZT_E_PLUGIN,
                            "plugin %s: its struct zt_plugin has %u bytes, ours %zu: end "
                            "it with ZT_PLUGIN(.name = ...)",
                            path, entry->struct_bytes, sizeof(p));
    rc = check_sizes(path, &p, fault);
    if (!rc)
        rc = check_members(path, &p, fault);
    if (rc)
        return rc;
    n = count_options(&p);
    l = calloc(1, sizeof(*l) + (n + 1) * sizeof(l->options[0]));
    if (!l)
        return zt_fault_set(fault, ZT_E_NOMEM, "plugin %s: no host memory", path);
    for (size_t i = 0; i < n; i++)
        memcpy(&l->options[i], (const char *)p.options + i * p.option_bytes,
               p.option_bytes);
    rc = check_options(path, l->options, fault);
    if (rc) {
        free(l);
        return rc;
    }
    l->entry = entry;
    l->plugin = p;
    l->plugin.options = p.options ? l->options : NULL;
    l->next = loaded_plugins;
    loaded_plugins = l;
    *out = &l->plugin;
    return ZT_OK;
}

/* The plugin that an object exports; the same one when it is loaded again. */
static zt_err open_entry(const char *path, const struct zt_plugin *entry,
                         const struct zt_plugin **out, struct zt_fault *fault)
{
    zt_err rc = check_abi(path, entry, fault);

    for (struct zt_loaded_plugin *l = loaded_plugins; l && !rc; l = l->next) {
        if (l->entry != entry)
            continue;
        *out = &l->plugin;
        return ZT_OK;
    }
    return rc ? rc : take_entry(path, entry, out, fault);
}

zt_err zt_plugin_load(const char *path, const struct zt_plugin **out,
                      struct zt_fault *fault)
{
    const struct zt_plugin *p = NULL;
    char found[ZT_LOADABLE_PATH], *opened = NULL;
    void *handle;
    zt_err rc;

    if (!zt_plugin_find(path, found, sizeof(found)))
        return zt_fault_set(fault, ZT_E_NOINPUT,
                            "plugin %s: it is neither here nor in any of %s; "
                            "ZLAUNCH_PLUGIN_PATH names more folders",
                            path, found);
    path = found;
    rc = check_file(path, fault);
    if (rc)
        return rc;
    /* without a slash the loader would search its own folders */
    if (asprintf(&opened, "%s%s", strchr(path, '/') ? "" : "./", path) < 0)
        return zt_fault_set(fault, ZT_E_NOMEM, "plugin %s: no host memory", path);
    handle = dlopen(opened, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        rc = explain_dlopen(path, opened, dlerror(), fault);
    free(opened);
    if (rc)
        return rc;
    rc = open_entry(path, dlsym(handle, ZT_PLUGIN_SYMBOL), &p, fault);
    if (rc) {
        dlclose(handle);
        return rc;
    }
    *out = p;
    return ZT_OK;
}
