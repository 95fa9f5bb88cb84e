#include "worker/engine/memory/process.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "kernels/cpu/features.h"
#include "kernels/cpu/parallel.h"
#include "kernels/integers.h"
#include "worker/comm/mesh/transport.h"

#define MIB ((size_t)1 << 20)

/* oneDNN's code and its buffers of fixed size, and per thread a stack and packed operands. */
#define FIRST_THREAD (2 * MIB)
#define NEXT_THREAD  (MIB / 2)
/* Of libmpi and UCX: libraries, queues, shared segments. */
#define MPI_OWN (10 * MIB)
/* Of what MPICH and UCX share between the ranks of a machine, measured with 2, 4 and 8 of
 * them: 4.1 for each. */
#define MPI_SHM (17 * MIB / 4)

size_t zt_process_memory_now(const char *root, int sharers)
{
    unsigned long long kib, all = 0, own = 0;
    char path[256], line[128];
    FILE *f;

    snprintf(path, sizeof(path), "%s/proc/self/smaps_rollup", root);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "Rss: %llu", &kib) == 1)
            all = kib;
        else if (sscanf(line, "Anonymous: %llu", &kib) == 1)
            own = kib;
    if (f)
        fclose(f);
    if (own > all)
        return 0;
    kib = own + (all - own) / (unsigned)sharers;
    return (size_t)((kib + 1023) >> 10) *
           MIB; /* whole ones, so that ranks say the same */
}

/* Products pack their operands by pieces of at most this. */
static size_t packed_bytes(const struct zt_run *run, size_t activations)
{
    size_t most = (run->compute_dtype == ZT_BF16 ? 16 : 8) * MIB, half = activations / 2;

    return half < most ? half : most;
}

/* Whether operands become fp32 first (kernels/cpu/gemm/convert_operands.c). */
static bool widens(const struct zt_run *run)
{
    return run->compute_dtype == ZT_F16 || run->tf32 || run->fp8 ||
           (run->compute_dtype == ZT_BF16 && !(zt_cpu_features() & ZT_CPU_FAST_BF16));
}

/* That of the largest matrix, by pieces, and what oneDNN packs of it. */
static size_t widened_bytes(const struct zt_model *m)
{
    const int64_t side = 2048;
    int64_t most = 0;

    for (int i = 0; i < m->num_params; i++) {
        const struct zt_param *p = m->params[i];
        int64_t n =
            p->ndim == 2 ? zt_min(p->shape[0], side) * zt_min(p->shape[1], side) : 0;

        most = n > most ? n : most;
    }
    return 2 * (size_t)most * sizeof(float);
}

static bool may_use_mpi(const struct zt_run *run)
{
    return run->world > 1 &&
           (!strcmp(run->comm, "mpi") ||
            (!strcmp(run->comm, "auto") && run->world > run->local_world));
}

/* "auto" takes it between hosts, and where an mpirun has started the ranks, if it is there. */
static bool uses_mpi(const struct zt_run *run)
{
    bool chosen = !strcmp(run->comm, "auto") && zt_transport_prefers_mpi() &&
                  (run->world > run->local_world || !getenv("ZLAUNCH_JOB_ID"));

    return run->world > 1 && (chosen || !strcmp(run->comm, "mpi"));
}

size_t zt_process_shm_bytes(const struct zt_run *run)
{
    return uses_mpi(run) && run->local_world > 1 ? (size_t)run->local_world * MPI_SHM : 0;
}

size_t zt_process_memory_later(const struct zt_run *run, const struct zt_model *model,
                               size_t activations)
{
    const struct zt_backend_info *b = zt_backend_lookup(run->device);

    if (!b || !b->counts_as_host_memory)
        return 0;
    return FIRST_THREAD + (size_t)(zt_num_threads() - 1) * NEXT_THREAD +
           packed_bytes(run, activations) + (widens(run) ? widened_bytes(model) : 0) +
           (may_use_mpi(run) ? MPI_OWN : 0);
}
