/*
 * Functions of this program have hidden names, so the loader's table does not have them:
 * they are looked up in the symbol table of the program's file, which is mapped when a
 * stack is asked for. Nothing here takes a lock or allocates.
 */
#include "common/process/backtrace.h"

#include <elf.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FRAMES 64

/* from the linker: where the program begins; weak, as a library has none */
extern const char __executable_start[] __attribute__((weak));

static char head[80];

struct image {
    const uint8_t *bytes;
    size_t size;
    const Elf64_Sym *sym;
    size_t num_syms;
    const char *names;
    size_t names_bytes;
    uintptr_t base; /* where address 0 of the file is */
};

static void map_image(struct image *im)
{
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct stat sb;
    void *p;

    if (fd < 0)
        return;
    if (fstat(fd, &sb) == 0 && sb.st_size > (off_t)sizeof(Elf64_Ehdr)) {
        p = mmap(NULL, (size_t)sb.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p != MAP_FAILED) {
            im->bytes = p;
            im->size = (size_t)sb.st_size;
        }
    }
    close(fd);
}

static bool inside(const struct image *im, uint64_t off, uint64_t n)
{
    return off <= im->size && n <= im->size - off;
}

static void find_symbols(struct image *im)
{
    const Elf64_Ehdr *h = (const void *)im->bytes;
    const Elf64_Shdr *s;

    if (!im->bytes || memcmp(h->e_ident, ELFMAG, SELFMAG) != 0 ||
        h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_shentsize != sizeof(*s) ||
        !inside(im, h->e_shoff, (uint64_t)h->e_shnum * sizeof(*s)))
        return;
    s = (const void *)(im->bytes + h->e_shoff);
    im->base = h->e_type == ET_DYN ? (uintptr_t)__executable_start : 0;
    for (int i = 0; i < h->e_shnum; i++) {
        if (s[i].sh_type != SHT_SYMTAB || s[i].sh_link >= h->e_shnum ||
            !inside(im, s[i].sh_offset, s[i].sh_size) ||
            !inside(im, s[s[i].sh_link].sh_offset, s[s[i].sh_link].sh_size))
            continue;
        im->sym = (const void *)(im->bytes + s[i].sh_offset);
        im->num_syms = s[i].sh_size / sizeof(Elf64_Sym);
        im->names = (const char *)im->bytes + s[s[i].sh_link].sh_offset;
        im->names_bytes = s[s[i].sh_link].sh_size;
    }
}

/* The function of the program that holds this address; NULL: none. */
static const char *name_of(const struct image *im, uintptr_t at)
{
    for (size_t i = 0; i < im->num_syms; i++) {
        const Elf64_Sym *y = &im->sym[i];
        uintptr_t from = im->base + y->st_value;

        if (ELF64_ST_TYPE(y->st_info) == STT_FUNC && at >= from &&
            at - from < y->st_size && y->st_name < im->names_bytes &&
            memchr(im->names + y->st_name, 0, im->names_bytes - y->st_name))
            return im->names + y->st_name;
    }
    return NULL;
}

static void print_frame(const struct image *im, void *frame)
{
    /* the address is where the call returns to: one before it is the call */
    const char *name = name_of(im, (uintptr_t)frame - 1);

    if (!name) {
        backtrace_symbols_fd(&frame, 1, STDERR_FILENO);
        return;
    }
    (void)!write(STDERR_FILENO, name, strlen(name));
    (void)!write(STDERR_FILENO, "\n", 1);
}

static void print(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

/* The stack of the calling thread, without `own` frames of the handler. */
static __attribute__((noinline)) void print_stack(int own)
{
    void *frames[MAX_FRAMES];
    int n = backtrace(frames, MAX_FRAMES);
    struct image im = {0};

    map_image(&im);
    find_symbols(&im);
    print(head);
    for (int i = own; i < n; i++)
        print_frame(&im, frames[i]);
    if (im.bytes)
        munmap((void *)im.bytes, im.size);
}

static void on_quit(int sig)
{
    int e = errno;

    (void)sig;
    print_stack(3); /* print_stack(), this function and the signal's frame */
    errno = e;
}

void zt_signal_stack_open(void)
{
    static char stack[64 << 10]; /* what AVX-512 and AMX have in registers takes 12 KiB */
    const stack_t own = {.ss_sp = stack, .ss_size = sizeof(stack)};
    stack_t now;

    if (sigaltstack(NULL, &now) == 0 && (now.ss_flags & SS_DISABLE))
        (void)sigaltstack(&own, NULL); /* else a sanitizer has given one */
}

void zt_backtrace_on_quit(const char *name)
{
    struct sigaction action = {.sa_handler = on_quit,
                               .sa_flags = SA_RESTART | SA_ONSTACK};
    void *first[1];

    snprintf(head, sizeof(head), "stack of %.60s:\n", name);
    (void)backtrace(first, 1); /* loads what it needs now: the handler must not */
    zt_signal_stack_open();
    sigemptyset(&action.sa_mask);
    sigaction(SIGQUIT, &action, NULL);
}

/* ---- crashes ---- */

enum { CRASH_S = 5 };

static const struct {
    int sig;
    const char *text;
} crashes[] = {
    {SIGSEGV, "SIGSEGV, invalid memory access: "},
    {SIGBUS, "SIGBUS, memory that is not there: "},
    {SIGFPE, "SIGFPE, arithmetic error: "},
    {SIGILL, "SIGILL, invalid instruction: "},
    {SIGABRT, "SIGABRT, a check inside has failed: "},
};

/* The first thread that crashes is the one that is shown. The signal then does what it does
 * by default: by the instruction that is repeated, or sent again where nothing failed. */
static void on_crash(int sig, siginfo_t *info, void *context)
{
    static atomic_flag is_taken = ATOMIC_FLAG_INIT;

    (void)context;
    while (atomic_flag_test_and_set(&is_taken))
        pause();
    signal(SIGALRM, SIG_DFL); /* a stack that is destroyed must not keep the process */
    alarm(CRASH_S);
    for (size_t i = 0; i < sizeof(crashes) / sizeof(*crashes); i++)
        if (crashes[i].sig == sig)
            print(crashes[i].text);
    print_stack(3);
    if (info->si_code <= 0)
        raise(sig);
}

void zt_backtrace_on_crash(void)
{
    struct sigaction action = {.sa_sigaction = on_crash,
                               .sa_flags = (int)(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND)};
    struct sigaction now;

    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(crashes) / sizeof(*crashes); i++) {
        sigdelset(&action.sa_mask, SIGALRM);
        if (sigaction(crashes[i].sig, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
            sigaction(crashes[i].sig, &action, NULL); /* else a sanitizer has its own */
    }
}
