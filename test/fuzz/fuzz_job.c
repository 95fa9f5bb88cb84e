/*
 * Any bytes as the body of a JOB frame: it is refused with a sentence, or every field of
 * the job is within its bounds and every list ends.
 */
#include "worker/daemon/job.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t total(char **list)
{
    size_t n = 0;

    for (; list && *list; list++)
        n += strlen(*list);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zt_fault fault = {0};
    struct zt_job *job = NULL;

    if (zt_job_open(data, size, &job, &fault)) {
        assert(!job && fault.text[0]);
        return 0;
    }
    assert(job->id && job->master_addr && job->argv && job->argv[0]);
    assert(job->local_world >= 1 && job->local_world <= ZT_MAX_LOCAL_RANKS);
    assert(job->first_rank >= 0 && job->first_rank + job->local_world <= job->world);
    assert(job->share_first + job->local_world <= job->share_ranks);
    assert(total(job->argv) + total(job->env) + total(job->defaults) < 64 * size + 65536);
    zt_job_close(job);
    return 0;
}
