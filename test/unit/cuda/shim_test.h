/*
 * shim_test.h -- what tests of the shim share: launches, and the last words of a process
 * that is meant to die.
 */
#ifndef TEST_UNIT_CUDA_SHIM_TEST_H
#define TEST_UNIT_CUDA_SHIM_TEST_H

/* before cmocka, whose macro fail() the headers of C++ do not survive */
#include "test/shim/shim.h"
#include <cublasLt.h>

#include "test/unit/cuda/device_test.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

template <typename... Formal, typename... Actual>
static inline cudaError_t launch(cudaStream_t stream, dim3 grid, dim3 block,
                                 void (*kernel)(Formal...), Actual... args)
{
    cudaLaunchConfig_t config = {};

    config.gridDim = grid;
    config.blockDim = block;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, static_cast<Formal>(args)...);
}

/* Runs f in a child that must end by a fault; what it said. */
static inline std::string last_words(void (*f)(void))
{
    const struct rlimit no_core = {0, 0};
    std::string said;
    char text[4096];
    int pipes[2], status = 0;
    ssize_t n;
    pid_t child;

    assert_int_equal(pipe(pipes), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &no_core);
        dup2(pipes[1], STDERR_FILENO);
        close(pipes[0]);
        close(pipes[1]);
        f();
        _exit(0);
    }
    close(pipes[1]);
    while ((n = read(pipes[0], text, sizeof(text))) > 0)
        said.append(text, (size_t)n);
    close(pipes[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        fail_msg("the process lived; it said \"%s\"", said.c_str());
    return said;
}

#endif
