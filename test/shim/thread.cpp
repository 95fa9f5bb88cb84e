/*
 * thread.cpp -- threads of the shim's own, which the program must not notice.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

#include "shim.h"

/* Code that a thread runs must never be unloaded. */
static void stay_loaded(void)
{
    Dl_info self;

    if (dladdr((const void *)stay_loaded, &self))
        dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

static void *thread_main(void *context)
{
    std::unique_ptr<std::function<void()>> f((std::function<void()> *)context);

    (*f)();
    return NULL;
}

void shim_new_thread(std::function<void()> f)
{
    sigset_t all, before;
    pthread_attr_t detached;
    pthread_t thread;

    stay_loaded();
    sigfillset(&all);
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
        sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &detached, thread_main,
                       new std::function<void()>(std::move(f))) != 0)
        shim_die("no thread for the shim");
    pthread_attr_destroy(&detached);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
