/* A process asked with SIGQUIT prints the functions it is in, and goes on. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/process/backtrace.h"

static volatile int went_on;

static __attribute__((noinline)) void inner_function_of_the_test(void)
{
    raise(SIGQUIT);
    went_on++;
}

/* What a child that runs `body` writes to stderr; its wait status. */
static int run_child(void (*body)(void), char *text, size_t cap)
{
    int fds[2], status = -1;
    size_t n = 0;
    ssize_t k;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (pid == 0) {
        dup2(fds[1], STDERR_FILENO);
        zt_backtrace_on_quit("rank 7");
        body();
        _exit(0);
    }
    close(fds[1]);
    while (n < cap - 1 && (k = read(fds[0], text + n, cap - 1 - n)) > 0)
        n += (size_t)k;
    text[n] = 0;
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void quit_twice(void)
{
    inner_function_of_the_test();
    inner_function_of_the_test();
    if (went_on != 2)
        _exit(1);
}

static void the_stack_is_printed_by_name_and_the_process_goes_on(void **state)
{
    char text[16384];
    int status = run_child(quit_twice, text, sizeof(text));

    (void)state;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(strncmp(text, "stack of rank 7:\n", 17) == 0);
    assert_non_null(strstr(text, "inner_function_of_the_test\n"));
    assert_non_null(strstr(text + 17, "stack of rank 7:\n"));
}

static int *volatile nowhere;

static __attribute__((noinline, no_sanitize("undefined"))) void
crashing_function_of_the_test(void)
{
    *nowhere = 1;
    went_on++;
}

static void crash(void)
{
    signal(SIGSEGV, SIG_DFL); /* a sanitizer's */
    zt_backtrace_on_crash();
    crashing_function_of_the_test();
}

static void sent(void)
{
    signal(SIGSEGV, SIG_DFL);
    zt_backtrace_on_crash();
    raise(SIGSEGV);
}

static void abandon(void)
{
    signal(SIGABRT, SIG_DFL);
    zt_backtrace_on_crash();
    abort();
}

static void a_crash_prints_its_stack_and_ends_as_it_does(void **state)
{
    char text[16384];
    int status = run_child(crash, text, sizeof(text));

    (void)state;
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
    assert_non_null(strstr(text, "SIGSEGV, invalid memory access: stack of rank 7:\n"));
    assert_non_null(strstr(text, "crashing_function_of_the_test\n"));
    status = run_child(sent, text, sizeof(text));
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
    assert_non_null(strstr(text, "stack of rank 7:\n"));
    status = run_child(abandon, text, sizeof(text));
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_non_null(
        strstr(text, "SIGABRT, a check inside has failed: stack of rank 7:\n"));
}

/* Kernels written at run time keep data where the stack pointer points; a handler must not
 * write there. */
static void a_handler_writes_nothing_below_the_stack_pointer(void **state)
{
    struct sigaction action;
    stack_t stack;

    (void)state;
    zt_backtrace_on_quit("rank 7");
    assert_int_equal(sigaction(SIGQUIT, NULL, &action), 0);
    assert_true(action.sa_flags & SA_ONSTACK);
    assert_int_equal(sigaltstack(NULL, &stack), 0);
    assert_false(stack.ss_flags & SS_DISABLE);
#if defined(__x86_64__)
    enum { BYTES = 1 << 18 };
    char *data = calloc(1, BYTES), *top = data + BYTES;
    int silent = open("/dev/null", O_WRONLY), err = dup(STDERR_FILENO);
    long pid = getpid(), done = SYS_kill;

    assert_non_null(data);
    dup2(silent, STDERR_FILENO);
    __asm__ volatile("mov %%rsp, %%rbx\n\t"
                     "mov %[top], %%rsp\n\t"
                     "syscall\n\t"
                     "mov %%rbx, %%rsp"
                     : "+a"(done)
                     : "D"(pid), "S"((long)SIGQUIT), [top] "r"(top)
                     : "rbx", "rcx", "r11", "memory", "cc");
    dup2(err, STDERR_FILENO);
    close(err);
    close(silent);
    assert_int_equal(done, 0);
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(data[i], 0);
    free(data);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_stack_is_printed_by_name_and_the_process_goes_on),
        cmocka_unit_test(a_crash_prints_its_stack_and_ends_as_it_does),
        cmocka_unit_test(a_handler_writes_nothing_below_the_stack_pointer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
