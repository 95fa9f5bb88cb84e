/*
 * plan.h -- the memory of a rank, known before anything large is allocated.
 *
 * The model is executed on the meta backend: same code, same allocator, shapes only. So
 * the activations' peak is the one the run will have, not an estimate.
 */
#ifndef WORKER_ENGINE_MEMORY_PLAN_H
#define WORKER_ENGINE_MEMORY_PLAN_H

#include <jansson.h>

#include "kernels/meta/products.h"
#include "kernels/meta/work.h"
#include "worker/config/run.h"
#include "worker/engine/context.h"
#include "worker/zero/zero.h"

/* What a part of a step does: on the device, between ranks, with files. */
struct zt_phase_work {
    struct zt_device_work device;
    struct zt_zero_traffic traffic;
};

/* An optimizer step of one rank: its parts follow one another. */
struct zt_step_work {
    struct zt_phase_work first, last; /* micro-batches, forward and backward */
    struct zt_phase_work norm, update;
    int64_t micro_batches; /* with one `last` is empty; those in between reduce as the
                            * last one only where every one of them is reduced */
    bool reduces_each;
    double
        buffers; /* bytes of state of the optimizer that buffers of files hold at once */
    double weights_in_host; /* bytes of the first blocks, where others are in files */
};

struct zt_memory_plan {
    struct zt_zero_bytes state;
    size_t activations; /* peak of the step pool over training, evaluation, generation */
    size_t cache;       /* of them, keys and values of texts that are written */
    size_t host_activations; /* of them, what waits in host memory for backward */
    size_t device;      /* what the device and collectives on it take for themselves */
    size_t process;     /* program, libraries, buffers of theirs: see process.h */
    size_t process_now; /* the part of it that is there already; both 0: not known */
    size_t snapshot; /* of checkpoints: state that waits in host memory to be written */
    size_t snapshot_least; /* what that may become where there is no room for all of it */
    size_t replicas; /* copies of the state that outlive this rank, in host memory */
    size_t replicas_there; /* the part of them that an earlier start has left */
    size_t total;          /* of this rank, on its device and in the host's memory if
                         * that is the same */
    size_t on_device;      /* of the total, on the device: all but what is offloaded */
    size_t device_limit;   /* --device_memory; SIZE_MAX: none */
    size_t files;          /* of this rank in nvme_path */
    struct {
        const char *folder; /* NULL: every drive has room */
        size_t needs, left;
        bool in_memory;
    } full;      /* the drive of a folder, and what all local ranks need there */
    size_t host; /* state in the host's memory if that is another */
    size_t
        available; /* for `sharers` ranks: of this machine or its cgroup, or of a GPU */
    int sharers;
    size_t host_available; /* for one rank's `host`; SIZE_MAX: not known */
    size_t
        group_limit; /* of the control group that leaves no more; 0: the machine does */
    size_t shm, shm_available; /* of /dev/shm, for all local ranks; SIZE_MAX: not known */
    size_t addresses; /* what `ulimit -v` leaves this process; SIZE_MAX: no limit */
    double
        train_flops; /* matrix-product FLOPs of one micro-batch, forward and backward */
    struct zt_step_work work; /* of a training */
};

struct zt_memory_plan_inputs {
    const struct zt_run *run;
    struct zt_model *model; /* laid out; its blocks are bound elsewhere afterwards */
    int64_t block_size;
    int64_t num_prompts, longest_prompt;           /* of a generation: see context.h */
    int64_t num_eval_prompts, longest_eval_prompt; /* of those of an evaluation */
    int64_t text_size;   /* of a generation: most tokens seen at once; 0: block_size */
    int64_t source_size; /* of a model that reads a source; else 0 */
    size_t device_own;   /* bytes that the device took when it was opened; 0: not known */
    size_t process_now;  /* zt_process_memory_now() before this plan; 0: not counted */
    const bool *offered; /* per field of the model: the data have it */
    struct zt_products *products; /* NULL, or where the products of the run are added */
};

zt_err zt_memory_plan_make(const struct zt_memory_plan_inputs *in,
                           struct zt_memory_plan *out,
                           struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * The model once on shapes, without state: what ops take its parameters (zt_param.uses). A
 * forward pass of one row with all fields; of `in` run, model and the two sizes count.
 */
zt_err zt_memory_plan_note_uses(const struct zt_memory_plan_inputs *in,
                                struct zt_fault *fault) ZT_MUST_CHECK;

/* Whether memory of the device that a run names is apart from the host's. */
bool zt_run_is_staged(const struct zt_run *run);

/* Whether inputs of recomputed blocks wait in host memory. */
bool zt_run_moves_inputs(const struct zt_run *run);

/* What a plan and its run have in common; backend, device, comm and pools are not set. */
struct zt_zero_config zt_memory_plan_zero_config(const struct zt_run *run,
                                                 struct zt_model *model);

/*
 * Fill in what is available: with a device that has memory of its own what is free there,
 * else what this machine, its cgroup and its limits leave for the local ranks. `dev`
 * NULL: the device is not here, and nothing is known.
 */
zt_err zt_memory_plan_measure(struct zt_memory_plan *plan, const struct zt_run *run,
                              const struct zt_backend *backend, struct zt_device *dev,
                              struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Make and measure; with --activations auto the first way to keep activations whose plan
 * fits, written to `run` (which is in->run): kept, recomputed, recomputed from inputs in
 * host memory; the last of them when none fits. Bits do not depend on it, nor does the order
 * of collectives, so each rank chooses for itself.
 */
zt_err zt_memory_plan_choose(const struct zt_memory_plan_inputs *in, struct zt_run *run,
                             const struct zt_backend *backend, struct zt_device *dev,
                             struct zt_memory_plan *out,
                             struct zt_fault *fault) ZT_MUST_CHECK;

/* Whether the drives of nvme_path have room for the files; done by measure as well. */
void zt_memory_plan_find_room(struct zt_memory_plan *plan, const struct zt_run *run);

/* Where it does not fit, --save_memory auto is the least; done by measure as well. */
void zt_memory_plan_fit_snapshot(struct zt_memory_plan *plan, const struct zt_run *run);

bool zt_memory_plan_fits(const struct zt_memory_plan *plan);

/* A warning for each folder of nvme_path that this process cannot write to. */
void zt_memory_plan_warn_of_files(const struct zt_run *run);

/* ZT_E_PLAN when the local ranks do not fit: what is asked for, and what would fit. */
zt_err zt_memory_plan_check(const struct zt_memory_plan_inputs *in,
                            const struct zt_memory_plan *plan,
                            struct zt_fault *fault) ZT_MUST_CHECK;

/* The state by kind, wherever it is; gathered and shared weights count as weights. */
struct zt_state_bytes zt_memory_plan_by_kind(const struct zt_memory_plan *plan);

/* The same numbers as one object, in bytes: {"event": "memory_plan", ...}. NULL: no
 * memory. */
json_t *zt_memory_plan_json(const struct zt_memory_plan *plan, const struct zt_run *run,
                            const struct zt_model *model);

/* The table as text, for --dry_run and the refusal. */
void zt_memory_plan_print(const struct zt_memory_plan *plan, const struct zt_run *run,
                          const struct zt_model *model, char *out, size_t cap);

#endif
