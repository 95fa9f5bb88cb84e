/*
 * faults.cpp -- handles SIGSEGV and SIGBUS: reports the allocation of the address, and
 * passes signals that do not concern device memory to the program's own handlers.
 */
#include <signal.h>

#include "memory.h"

static struct sigaction others[2]; /* what was there before: SIGSEGV, SIGBUS */
static thread_local volatile sig_atomic_t passing
    __attribute__((tls_model("initial-exec")));

static void tell_fault(const char *at, const shim_region &r, bool gone)
{
    const char *who = shim_running() ? "" : "host code ";

    if (gone)
        shim_die("%stouched freed memory: offset %td of %zu bytes of %s memory", who,
                 at - r.data, r.bytes, shim_side_name(r.side));
    if (at >= r.body && at < r.body + r.body_bytes)
        shim_die("%stouched device memory: offset %td of %zu bytes", who, at - r.data,
                 r.bytes);
    shim_die("%swent outside an allocation: offset %td of %zu bytes of %s memory", who,
             at - r.data, r.bytes, shim_side_name(r.side));
}

/* Not ours. A handler that hands it back to us has nothing to say either. */
static void pass_on(int sig, siginfo_t *info, void *context)
{
    const struct sigaction &other = others[sig == SIGBUS];
    bool plain = !(other.sa_flags & SA_SIGINFO);

    if (passing ||
        (plain && (other.sa_handler == SIG_DFL || other.sa_handler == SIG_IGN))) {
        signal(sig, SIG_DFL); /* returning does it again */
        if (info->si_code <= 0)
            raise(sig); /* somebody sent it */
        return;
    }
    passing = 1;
    if (plain)
        other.sa_handler(sig);
    else
        other.sa_sigaction(sig, info, context);
    passing = 0;
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
    const char *at = (const char *)info->si_addr;
    shim_region r;
    bool gone;

    if (info->si_code > 0 && shim_region_around(at, &r, &gone))
        tell_fault(at, r, gone);
    if (shim_running() && shim_fiber_overflowed(at))
        shim_die("the stack of a thread overflowed");
    if (shim_running() && info->si_code > 0)
        shim_die("a fault at %p: a bad pointer, or one that is not aligned",
                 (const void *)at);
    pass_on(sig, info, context);
}

/* Anew each time: programs and test frameworks put theirs in its place. */
void shim_catch_faults(void)
{
    struct sigaction act = {}, before;

    act.sa_sigaction = on_fault;
    act.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int sig : {SIGSEGV, SIGBUS}) {
        if (sigaction(sig, &act, &before) != 0)
            shim_die("the handler of faults cannot be installed");
        if (!(before.sa_flags & SA_SIGINFO) || before.sa_sigaction != on_fault)
            others[sig == SIGBUS] = before;
    }
}

/* A fault on a full stack is told from another one. */
void shim_faults_on_device(void)
{
    static char alternate[64 << 10];
    stack_t stack = {};

    stack.ss_sp = alternate;
    stack.ss_size = sizeof(alternate);
    sigaltstack(&stack, NULL);
}
