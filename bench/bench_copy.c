/*
 * bench_copy.c -- bytes copied once in memory, by several processes beside each other: what the
 * stall of a save is measured by.
 *
 *      bench_copy BYTES PROCESSES [COPIES, default 3]
 *
 * Every process copies BYTES / PROCESSES by memcpy, from memory that was written to memory that was
 * touched. Prints the seconds of each copy, from the start of all to the end of the last one.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Huge pages where there are some, as regions of state have them. */
static char *touched(size_t bytes, int value)
{
    char *p =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        perror("bench_copy");
        exit(1);
    }
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, value, bytes);
    return p;
}

/* A byte from everybody means "ready"; a byte to everybody, "go". */
static void serve(int ready, int go, size_t bytes)
{
    char *from = touched(bytes, 1), *to = touched(bytes, 2), byte;

    do {
        if (write(ready, "r", 1) != 1 || read(go, &byte, 1) != 1)
            exit(1);
        if (byte == 'g')
            memcpy(to, from, bytes);
    } while (byte == 'g' && to[bytes - 1] == 1);
    exit(byte == 'g');
}

static void tell_all(int go, int processes, char byte)
{
    for (int i = 0; i < processes; i++)
        if (write(go, &byte, 1) != 1)
            exit(1);
}

static void wait_for_all(int ready, int processes)
{
    char byte;

    for (int i = 0; i < processes; i++)
        if (read(ready, &byte, 1) != 1)
            exit(1);
}

int main(int argc, char **argv)
{
    size_t bytes = argc > 2 ? strtoull(argv[1], NULL, 10) : 0;
    int processes = argc > 2 ? atoi(argv[2]) : 0, copies = argc > 3 ? atoi(argv[3]) : 3;
    int ready[2], go[2];

    if (!bytes || processes < 1 || pipe(ready) || pipe(go)) {
        fprintf(stderr, "usage: bench_copy BYTES PROCESSES [COPIES]\n");
        return 2;
    }
    for (int i = 0; i < processes; i++)
        if (fork() == 0)
            serve(ready[1], go[0], bytes / (size_t)processes);
    close(ready[1]); /* a process that dies ends the wait for it */
    wait_for_all(ready[0], processes);
    for (int i = 0; i < copies; i++) {
        double start = seconds_now();

        tell_all(go[1], processes, 'g');
        wait_for_all(ready[0], processes);
        printf("%.6f\n", seconds_now() - start);
    }
    tell_all(go[1], processes, 'q');
    while (wait(NULL) > 0)
        ;
    return 0;
}
