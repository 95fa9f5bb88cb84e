/* The shim inside a shared object that a program loads, beside what the program does of
 * its own: handlers of signals, memory, children, its end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "test/unit/cuda/loaded.h"

extern "C" {
#include <cmocka.h>
}

static const struct loaded_cuda *cuda;
static const struct loaded_nccl *nccl;

/* In a child: says what is wrong, and ends. */
#define CHECK(what)                                                                      \
    do {                                                                                 \
        if (!(what)) {                                                                   \
            fprintf(stderr, "%s:%d: %s; %s\n", __FILE__, __LINE__, #what, dlerror());    \
            _exit(1);                                                                    \
        }                                                                                \
    } while (0)

/* The objects lie beside this program. */
static void *load(const char *name, const char *symbol, void **handle)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 64);
    void *at;

    CHECK(n > 0);
    path[n] = 0;
    strcpy(strrchr(path, '/') + 1, name);
    *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    CHECK(*handle);
    at = dlsym(*handle, symbol);
    CHECK(at);
    return at;
}

static void *load_cuda(void)
{
    void *handle;

    cuda = (const struct loaded_cuda *)load("loaded_cuda.so", "loaded_cuda", &handle);
    return handle;
}

static void load_both(void)
{
    void *handle;

    load_cuda();
    nccl = (const struct loaded_nccl *)load("loaded_nccl.so", "loaded_nccl", &handle);
}

/* What a child says that runs f; its status. */
static std::string in_child(void (*f)(void), int *status)
{
    const struct rlimit no_core = {0, 0};
    std::string said;
    char text[4096];
    int pipes[2];
    ssize_t n;
    pid_t child;

    fflush(stdout);
    assert_int_equal(pipe(pipes), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* not the test framework's */
        signal(SIGABRT, SIG_DFL);
        setrlimit(RLIMIT_CORE, &no_core);
        alarm(30);
        dup2(pipes[1], STDERR_FILENO);
        close(pipes[0]);
        close(pipes[1]);
        f();
        exit(0); /* with all that is done at the end of a program */
    }
    close(pipes[1]);
    while ((n = read(pipes[0], text, sizeof(text))) > 0)
        said.append(text, (size_t)n);
    close(pipes[0]);
    assert_int_equal(waitpid(child, status, 0), child);
    return said;
}

static void expect_good(void (*f)(void))
{
    int status;
    std::string said = in_child(f, &status);

    if (status != 0)
        fail_msg("status %x: %s", status, said.c_str());
}

static void expect_words(void (*f)(void), const char *part)
{
    int status;
    std::string said = in_child(f, &status);

    if (status == 0 || said.find(part) == std::string::npos)
        fail_msg("status %x; want \"%s\" in \"%s\"", status, part, said.c_str());
}

/* ---------------------------------------------------------------- use */
static int *new_numbers(int n)
{
    void *p = NULL;

    CHECK(cuda->alloc(&p, (size_t)n * sizeof(int)) == 0);
    return (int *)p;
}

static void count_up(void)
{
    const int n = 1000;
    int *own = (int *)malloc(n * sizeof(*own)), *x = new_numbers(n);

    CHECK(own);
    for (int i = 0; i < n; i++)
        own[i] = i;
    CHECK(cuda->copy(x, own, n * sizeof(*own)) == 0);
    CHECK(cuda->add_one(x, n) == 0);
    CHECK(cuda->sync() == 0);
    CHECK(cuda->copy(own, x, n * sizeof(*own)) == 0);
    for (int i = 0; i < n; i++)
        CHECK(own[i] == i + 1);
    CHECK(cuda->free(x) == 0);
    free(own);
}

static void use_it(void)
{
    load_cuda();
    count_up();
}

static void test_kernels_and_memory_of_the_program_go_together(void **)
{
    expect_good(use_it);
}

static void write_far(void)
{
    load_cuda();
    CHECK(cuda->write_at(new_numbers(4), 4 + 64) == 0);
    cuda->sync();
}

static void touch_the_device(void)
{
    load_cuda();
    *(volatile int *)(new_numbers(4) + 1) = 0;
}

static void test_faults_are_told_with_the_name_of_the_kernel(void **)
{
    expect_words(write_far, "kernel write_at_kernel(int*, long)");
    expect_words(touch_the_device,
                 "host code touched device memory: offset 4 of 16 bytes");
}

/* ---------------------------------------------------------------- handlers */
static void own_handler(int)
{
    static const char text[] = "the program's own handler\n";
    ssize_t n = write(STDERR_FILENO, text, sizeof(text) - 1);

    _exit(n > 0 ? 3 : 4);
}

static void real_fault(void)
{
    *(volatile int *)mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) = 1;
}

static void handler_before(void)
{
    signal(SIGSEGV, own_handler);
    load_cuda();
    count_up();
    real_fault();
}

static void handler_after(void)
{
    load_cuda();
    count_up();
    signal(SIGSEGV, own_handler);
    count_up();
    real_fault();
}

static void handler_after_fault_of_a_kernel(void)
{
    load_cuda();
    count_up();
    signal(SIGSEGV, own_handler);
    CHECK(cuda->write_at(new_numbers(4), 4 + 64) == 0);
    cuda->sync();
}

static struct sigaction previous;

static void passing_handler(int sig, siginfo_t *info, void *context)
{
    static const char text[] = "passed on\n";
    ssize_t n = write(STDERR_FILENO, text, sizeof(text) - 1);

    if (n < 0 || !(previous.sa_flags & SA_SIGINFO))
        _exit(5);
    previous.sa_sigaction(sig, info, context);
}

/* The program's handler hands on to the shim's, and the shim's to it. */
static void handlers_in_a_ring(void)
{
    struct sigaction act = {};

    load_cuda();
    count_up();
    act.sa_sigaction = passing_handler;
    act.sa_flags = SA_SIGINFO;
    CHECK(sigaction(SIGSEGV, &act, &previous) == 0);
    count_up();
    real_fault();
}

static void sent_from_elsewhere(void)
{
    load_cuda();
    count_up();
    raise(SIGSEGV);
    CHECK(!"it had no effect");
}

static void test_faults_of_the_program_stay_the_programs(void **)
{
    std::string said;
    int status;

    expect_words(handler_before, "the program's own handler");
    expect_words(handler_after, "the program's own handler");
    expect_words(handler_after_fault_of_a_kernel, "kernel write_at_kernel");
    said = in_child(handlers_in_a_ring, &status);
    assert_string_equal(said.c_str(), "passed on\n"); /* once */
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    in_child(sent_from_elsewhere, &status);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

/* ---------------------------------------------------------------- ends and children */
static int *kept;

static void free_at_exit(void)
{
    CHECK(cuda->free(kept) == 0);
    count_up();
}

static void last_of_all(void)
{
    atexit(free_at_exit); /* runs after what the object has registered */
    load_cuda();
    kept = new_numbers(10);
    CHECK(cuda->add_one(kept, 10) == 0); /* and nobody waits for it */
}

static void unload(void)
{
    void *handle = load_cuda();

    count_up();
    CHECK(dlclose(handle) == 0);
    handle = load_cuda();
    count_up();
    CHECK(dlclose(handle) == 0);
}

static void with_children(void)
{
    int status;
    pid_t child;

    load_cuda();
    count_up();
    CHECK(system("exit 7") >> 8 == 7);
    child = fork();
    if (child == 0) {
        count_up();
        _exit(9);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 9);
    count_up();
}

static void test_a_program_may_free_late_unload_and_fork(void **)
{
    expect_good(last_of_all);
    expect_good(unload);
    expect_good(with_children);
}

/* ---------------------------------------------------------------- nccl */
struct meeting {
    char id[128];
    std::atomic<int> made;
};

static void rank_of_two(struct meeting *m, int rank)
{
    int own = rank + 1, *x;

    setenv("NCCL_HOSTID", rank ? "one" : "zero", 1);
    load_both();
    if (rank == 0) {
        CHECK(nccl->make_id(m->id) == 0);
        m->made = 1;
    }
    while (!m->made)
        usleep(200);
    x = new_numbers(1);
    CHECK(cuda->copy(x, &own, sizeof(own)) == 0);
    CHECK(nccl->sum(m->id, rank, 2, x) == 0);
    CHECK(cuda->copy(&own, x, sizeof(own)) == 0);
    CHECK(own == 3);
}

static void two_ranks(void)
{
    struct meeting *m = (struct meeting *)mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE,
                                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status;
    pid_t other = fork();

    CHECK(other >= 0);
    rank_of_two(m, other == 0);
    if (other == 0)
        _exit(0);
    CHECK(waitpid(other, &status, 0) == other);
    CHECK(status == 0);
}

static void test_a_second_object_calls_nccl_of_the_first(void **)
{
    expect_good(two_ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels_and_memory_of_the_program_go_together),
        cmocka_unit_test(test_faults_are_told_with_the_name_of_the_kernel),
        cmocka_unit_test(test_faults_of_the_program_stay_the_programs),
        cmocka_unit_test(test_a_program_may_free_late_unload_and_fork),
        cmocka_unit_test(test_a_second_object_calls_nccl_of_the_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
