/*
 * names.cpp -- the name of a kernel from the symbol table of this program: kernels are
 * mostly static, and those dladdr does not see.
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

std::string shim_name_of(const void *function)
{
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), status = -1;
    struct stat st;
    Dl_info where;
    const char *name = NULL;
    char *plain;
    void *image;

    if (fd < 0 || fstat(fd, &st) != 0 || !dladdr(function, &where))
        return "?";
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
