/*
 * fiber.cpp -- stacks and the switch between them. swapcontext saves the signal mask, a
 * system call each time; a block of 256 threads with ten barriers would make 5000 of
 * them.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include <new>
#include <vector>

#include "shim.h"

#if SHIM_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

#ifndef SHIM_UCONTEXT
#if defined(__x86_64__) || defined(__aarch64__)
#define SHIM_UCONTEXT 0
#else
#define SHIM_UCONTEXT 1
#endif
#endif
#if SHIM_UCONTEXT
#include <ucontext.h>
#endif

static const size_t STACK = (size_t)(SHIM_ASAN ? 512 : 128) << 10, GUARD = 16 << 10;

struct shim_fiber {
    void *sp; /* while it does not run */
    char *stack;
    size_t bytes;
    shim_fiber_main main;
    void *fake; /* of AddressSanitizer */
#if SHIM_UCONTEXT
    ucontext_t context;
#endif
};

static const size_t SELF = (sizeof(shim_fiber) + 63) / 64 * 64;

static shim_fiber first;
static shim_fiber *entering, *leaving; /* across a switch */
static std::vector<shim_fiber *> fibers;

/* ---------------------------------------------------------------- the switch */

#if SHIM_UCONTEXT
/* swapcontext does it */
#elif defined(__x86_64__)
extern "C" void shim_switch(void **save, void *load);
asm(".text\n"
    ".p2align 4\n"
    ".globl shim_switch\n"
    ".hidden shim_switch\n"
    ".type shim_switch, @function\n"
    "shim_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size shim_switch, .-shim_switch\n");

/* Six registers, the address to return to, and none above it. */
static void *start_frame(char *top, void (*entry)(void))
{
    void **frame = (void **)top - 8;

    frame[6] = (void *)entry;
    return frame;
}
#elif defined(__aarch64__)
extern "C" void shim_switch(void **save, void *load);
asm(".text\n"
    ".p2align 4\n"
    ".globl shim_switch\n"
    ".hidden shim_switch\n"
    ".type shim_switch, %function\n"
    "shim_switch:\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp, #0]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n"
    "  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n"
    "  str x9, [x0]\n"
    "  mov sp, x1\n"
    "  ldp x19, x20, [sp, #0]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n"
    "  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n"
    "  ret\n"
    ".size shim_switch, .-shim_switch\n");

static void *start_frame(char *top, void (*entry)(void))
{
    void **frame = (void **)top - 20;

    frame[11] = (void *)entry; /* x30 */
    return frame;
}
#endif

static void arrive(shim_fiber *self)
{
#if SHIM_ASAN
    const void *bottom;
    size_t bytes;

    __sanitizer_finish_switch_fiber(self->fake, &bottom, &bytes);
    if (leaving == &first) {
        first.stack = (char *)bottom;
        first.bytes = bytes;
    }
#else
    (void)self;
#endif
}

static void enter(void)
{
    shim_fiber *self = entering;

    arrive(self);
    self->main(self);
    abort();
}

void shim_fiber_switch(shim_fiber *from, shim_fiber *to)
{
    entering = to;
    leaving = from;
#if SHIM_ASAN
    __sanitizer_start_switch_fiber(&from->fake, to->stack, to->bytes);
#endif
#if SHIM_UCONTEXT
    swapcontext(&from->context, &to->context);
#else
    shim_switch(&from->sp, to->sp);
#endif
    arrive(from);
}

/* ---------------------------------------------------------------- stacks */

shim_fiber *shim_fiber_first(void)
{
    return &first;
}

shim_fiber *shim_fiber_new(shim_fiber_main main)
{
    shim_fiber *f;
    void *map = mmap(NULL, GUARD + STACK, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (map == MAP_FAILED ||
        mprotect((char *)map + GUARD, STACK, PROT_READ | PROT_WRITE) != 0)
        shim_die("no memory for the stack of thread %zu of a block", fibers.size());
    /* at the top of its own stack */
    f = new ((char *)map + GUARD + STACK - SELF) shim_fiber();
    f->stack = (char *)map + GUARD;
    f->bytes = STACK - SELF;
    f->main = main;
#if SHIM_UCONTEXT
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = f->bytes;
    makecontext(&f->context, enter, 0);
#else
    f->sp = start_frame(f->stack + f->bytes, enter);
#endif
    fibers.push_back(f);
    return f;
}

bool shim_fiber_overflowed(const void *fault_address)
{
    const char *at = (const char *)fault_address;

    for (const shim_fiber *f : fibers)
        if (at < f->stack && at >= f->stack - GUARD)
            return true;
    return false;
}
