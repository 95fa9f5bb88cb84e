/*
 * cpu_isa.c -- linked into every unit test and every bench that has kernels:
 * ZLAUNCH_CPU_ISA limits their instructions as it limits those of a run. A level that
 * this processor does not have is a reason to skip the program.
 */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cpu/features.h"

__attribute__((constructor)) static void limit_instructions(void)
{
    const char *level = getenv("ZLAUNCH_CPU_ISA");
    struct zt_fault fault = {0};
    unsigned features = 0;
    zt_err rc;

    if (!level || !*level)
        return;
    rc = zt_cpu_features_at(level, &features, &fault);
    if (!rc)
        rc = zt_cpu_limit_features(features, &fault);
    if (!rc)
        return;
    fprintf(stderr, "%s\n", fault.text);
    exit(rc == ZT_E_UNSUPPORTED ? 77 : 1);
}
