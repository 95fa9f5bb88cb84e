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

#include "common/backtrace.h"

static volatile int went_on;

static __attribute__((noinline)) void inner_function_of_the_test(void)
{
    raise(SIGQUIT);
    went_on++;
}

static void the_stack_is_printed_by_name_and_the_process_goes_on(void **state)
{
    char text[16384];
    int fds[2], status;
    size_t n = 0;
    ssize_t k;
    pid_t pid;

    (void)state;
    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (pid == 0) {
        dup2(fds[1], STDERR_FILENO);
        zt_backtrace_on_quit("rank 7");
        inner_function_of_the_test();
        inner_function_of_the_test();
        _exit(went_on == 2 ? 0 : 1);
    }
    close(fds[1]);
    while (n < sizeof(text) - 1 && (k = read(fds[0], text + n, sizeof(text) - 1 - n)) > 0)
        n += (size_t)k;
    text[n] = 0;
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(strncmp(text, "stack of rank 7:\n", 17) == 0);
    assert_non_null(strstr(text, "inner_function_of_the_test\n"));
    assert_non_null(strstr(text + 17, "stack of rank 7:\n"));
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
        cmocka_unit_test(a_handler_writes_nothing_below_the_stack_pointer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
