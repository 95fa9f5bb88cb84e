/*
 * names.cpp -- the name of a kernel from the symbol table of the program or shared object
 * it is in: kernels are mostly static, and those dladdr does not see.
 */
#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>

#include "shim.h"

static const char *symbol_at(const char *image, size_t bytes, uintptr_t address,
                             uintptr_t base)
{
    const ElfW(Ehdr) *head = (const ElfW(Ehdr) *)image;
    const ElfW(Shdr) *sections = (const ElfW(Shdr) *)(image + head->e_shoff);

    if (head->e_shoff == 0 || head->e_shoff + head->e_shnum * sizeof(*sections) > bytes)
        return NULL;
    address -= head->e_type == ET_EXEC ? 0 : base;
    for (int i = 0; i < head->e_shnum; i++) {
        const ElfW(Shdr) *s = &sections[i];
        const ElfW(Sym) *symbol = (const ElfW(Sym) *)(image + s->sh_offset);

        if (s->sh_type != SHT_SYMTAB)
            continue;
        for (size_t n = s->sh_size / sizeof(*symbol); n > 0; n--, symbol++)
            if (symbol->st_value == address && (symbol->st_info & 15) == STT_FUNC)
                return image + sections[s->sh_link].sh_offset + symbol->st_name;
    }
    return NULL;
}

/* The file that the function was loaded from; the program's own name says too little. */
static int open_image(const Dl_info &where, const struct link_map *map)
{
    const char *path = map && map->l_name[0] ? where.dli_fname : "/proc/self/exe";

    return open(path, O_RDONLY | O_CLOEXEC);
}

std::string shim_name_of(const void *function)
{
    struct link_map *map = NULL;
    struct stat st;
    Dl_info where;
    const char *name;
    char *plain;
    void *image;
    int fd, status = -1;

    if (!dladdr1(function, &where, (void **)&map, RTLD_DL_LINKMAP))
        return "?";
    fd = open_image(where, map);
    if (fd < 0)
        return "?";
    if (fstat(fd, &st) != 0) {
        close(fd);
        return "?";
    }
    image = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (image == MAP_FAILED)
        return "?";
    name = symbol_at((const char *)image, (size_t)st.st_size, (uintptr_t)function,
                     (uintptr_t)where.dli_fbase);
    if (!name)
        return "?";
    plain = abi::__cxa_demangle(name, NULL, NULL, &status);
    return status == 0 ? plain : name;
}
