/*
 * mpirun.h -- hand a job over to an MPI launcher (mpirun, srun) and watch that one child.
 *
 * The command lines are those that DeepSpeed's launcher builds for each kind. Ranks find
 * their place in what the MPI launcher sets.
 */
#ifndef LAUNCHER_MPIRUN_MPIRUN_H
#define LAUNCHER_MPIRUN_MPIRUN_H

#include "common/message/render.h"
#include "launcher/plan/plan.h"

struct zt_mpirun {
    char **argv; /* (num words), then NULL; allocated */
    size_t num;
    bool failed;       /* a word is missing: no memory */
    char hostfile[64]; /* to be written before and removed after; empty: none */
    const struct zt_job_plan *plan;
};

/* ZT_E_USAGE: filters, or unequal slots, with a kind that cannot have them. */
zt_err zt_mpirun_init(struct zt_mpirun *m, const struct zt_job_plan *plan,
                      struct zt_fault *fault) ZT_MUST_CHECK;
void zt_mpirun_release(struct zt_mpirun *m);

/*
 * Is `version`, what its --version says, that of the MPI whose options the command has?
 * ZT_E_USAGE: it is another one's; what says nothing of the known ones may be anybody's.
 */
zt_err zt_mpirun_check_version(const struct zt_job_plan *plan, const char *version,
                               struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Run it to its end; *exit_code is the child's, or 128 + the signal that ended it, or 124
 * when --timeout is over. Signals of the user go on to it, and `screen` says what they ask
 * for; whatever it leaves is killed.
 */
zt_err zt_mpirun_run(const struct zt_job_plan *plan,
                     const struct zt_render_config *screen, int *exit_code,
                     struct zt_fault *fault) ZT_MUST_CHECK;

#endif
