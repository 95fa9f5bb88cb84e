/*
 * run.h -- everything a rank was asked to do, parsed once, checked, and const from then
 * on.
 *
 * Built from the command line after the target, the environment (ZLAUNCH_<OPTION>) and
 * the DeepSpeed config file; precedence flag > environment > file > rule > default. Every
 * problem of all three is reported together.
 * Ownership: zt_run_open() allocates, zt_run_close() frees; all strings live as long.
 * Threads:   read-only after open, so any.
 */
#ifndef WORKER_CONFIG_RUN_H
#define WORKER_CONFIG_RUN_H

#include "common/fault.h"
#include "include/zlaunch/option.h"
#include "worker/optim/optim.h"
#include "worker/optim/scaler.h"
#include "worker/optim/sched/sched.h"

typedef enum zt_offload_device {
    ZT_OFFLOAD_NONE,
    ZT_OFFLOAD_CPU,
    ZT_OFFLOAD_NVME
} zt_offload_device;

/* Master weights, moments and gradients away from the device. */
struct zt_offload_optimizer {
    zt_offload_device device;
    double ratio;     /* of the elements; the rest stays on the device */
    int buffer_count; /* pieces of state in host memory at once, of all kinds together */
    const char *const *nvme_paths; /* folders, NULL behind the last; NULL: none */
    bool pipeline_read, pipeline_write;
};

/* Weights that are gathered for use, stage 3, away from the device in between. */
struct zt_offload_param {
    zt_offload_device device;
    int buffer_count;    /* pieces in host memory at once, with nvme */
    int64_t buffer_size; /* elements of a piece */
    int64_t max_in_cpu;  /* elements of a rank in host memory, with nvme */
    const char *const *nvme_paths;
};

/* Files of offloaded state and how they are read and written. */
struct zt_aio_config {
    int64_t block_size;
    int queue_depth, threads;
    bool single_submit, overlap_events;
};

/* ZeRO and the exchange of gradients; sizes count elements. */
struct zt_zero_options {
    int stage;
    bool overlap_comm;
    bool reduce_scatter, allgather_partitions;
    int64_t reduce_bucket_size, allgather_bucket_size;
    int64_t sub_group_size; /* elements the optimizer takes at a time, in whole
                             * chunks of 4096; 0: all */
    int64_t prefetch_bucket_size, max_live_parameters, max_reuse_distance;
    int64_t param_persistence_threshold, model_persistence_threshold;
    int hpz_partition_size; /* ranks of a group with a secondary partition; 1: none */
    bool ignore_unused_parameters;
    bool
        gather_16bit_on_save; /* at any stage: saved weights are those it computes with */
    bool share_node_weights;  /* stages 1 and 2: one copy for the ranks of a node */
    bool prescale_gradients;
    double predivide_factor;
    bool cpu_offload, cpu_offload_param; /* old keys for device cpu */
    struct zt_offload_param offload_param;
    struct zt_offload_optimizer offload_optimizer;
    zt_dtype communication_dtype, grad_accum_dtype;
};

typedef enum zt_reduction_order { ZT_ORDER_RANK, ZT_ORDER_ANY } zt_reduction_order;

/* When a beam search has ended: when its best beam cannot be expected to beat the worst of
 * num_beams finished texts; with the first num_beams of them; when none can be better. */
typedef enum zt_early_stopping {
    ZT_STOP_HEURISTIC,
    ZT_STOP_FIRST,
    ZT_STOP_NEVER
} zt_early_stopping;

/* The type of an option's member, by the KIND of its row. */
#define ZT_DECLARE_FLAG(name)   bool name;
#define ZT_DECLARE_INT(name)    int64_t name;
#define ZT_DECLARE_FLOAT(name)  double name;
#define ZT_DECLARE_STRING(name) const char *name;
#define ZT_DECLARE_CHOICE(name) const char *name;
#define ZT_DECLARE_NAMED(name)  const char *name;
#define ZT_DECLARE_LIST(name)   const char *const *name;
#define ZT_DECLARE_ENUM(name)   zt_##name name;

struct zt_run {
    int rank, world, local_rank, local_world;
    uint64_t attempt; /* restarts of the job before this start */
    const char *job;  /* its id */

/* An option is a member of the same name: options.def says what it means. */
#define SETTING(kind, name, ...) ZT_DECLARE_##kind(name)
#define COMMAND(kind, name, ...) ZT_DECLARE_##kind(name)
#define PLACED(kind, name, member, ...)
#include "worker/config/options.def"

    const char *const *train_files; /* globs already expanded, NULL-terminated */
    const char *const *eval_files;  /* may be empty: then a held-out split is used */

    /* what keys of DeepSpeed's format say */
    int64_t train_batch_size, micro_batch_size, grad_accum_steps;
    int64_t logging_steps;
    uint64_t save_memory_bytes;   /* that a save may wait in; UINT64_MAX: all it needs */
    uint64_t device_memory_bytes; /* a rank may take on its device; UINT64_MAX: all */
    zt_dtype compute_dtype;       /* ZT_F32, ZT_BF16, ZT_F16 */
    double max_grad_norm;         /* 0: no clipping */
    bool cpu_checkpointing;       /* inputs of recomputed blocks wait in host memory */
    bool profile_checkpointing;   /* log the times of recomputed blocks */
    bool check_grad_overflow;     /* bf16: skip the step on inf or nan */
    bool dump_state;              /* print the resolved config at the start */
    bool dataloader_drop_last;
    bool save_on_each_node;
    bool save_statistics;        /* say how fast each checkpoint was written */
    const char *tag_validation;  /* of plugins' tags: Ignore, Warn, Fail, in any case */
    bool load_from_fp32_weights; /* a checkpoint's master, not its 16-bit weights */
    struct zt_zero_options zero;
    struct zt_aio_config aio;
    struct zt_optim_config optim;
    struct zt_sched_config sched;
    struct zt_scaler_config scaler;

    const zt_args *model_args; /* the plugin's own options */
    struct zt_config *config;  /* the resolved tree, for printing */
    bool has_json;             /* --deepspeed: part of it was written in JSON */
};

/* What the caller knows that options cannot say. */
struct zt_run_facts {
    int rank, world, local_rank, local_world;
    uint64_t attempt;                      /* restarts of the job before this start */
    char job[128];                         /* its id */
    const struct zt_option *model_options; /* of the plugin; NULL: none */
    const char *program;                   /* for messages: "train.so" */
};

/*
 * argv holds the words after the target. All problems go to `fault`, one a line, each
 * with file:line:col or the option's name. ZT_E_USAGE for the command line, ZT_E_CONFIG
 * for the config, ZT_E_NOINPUT for a file that is not there.
 */
zt_err zt_run_open(int argc, char **argv, const struct zt_run_facts *facts,
                   struct zt_run **out, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_run_close(struct zt_run *run); /* NULL is fine */

/* What an earlier run left in output_dir is not replaced, nor mixed with, by accident: this is
 * before it is known which checkpoint is gone on from. ZT_E_CANTCREATE. */
zt_err zt_run_check_output_dir(const struct zt_run *run,
                               struct zt_fault *fault) ZT_MUST_CHECK;
/* The same of a run that goes on with another training than the one there. */
zt_err zt_run_check_replaced(const struct zt_run *run,
                             struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Second half, once the model is built: "auto" values that follow from its hidden size
 * (reduce_bucket_size and friends), and the schedule's total steps once the data are
 * known.
 */
void zt_run_resolve_steps(struct zt_run *run, int64_t total_steps); /* they are others */
zt_err zt_run_resolve(struct zt_run *run, int64_t hidden_size, int64_t total_steps,
                      struct zt_fault *fault) ZT_MUST_CHECK;

/* The resolved config as JSON (comments carry the origin of every value) to `out`. */
struct _IO_FILE;
zt_err zt_run_print_config(const struct zt_run *run, struct _IO_FILE *out,
                           struct zt_fault *fault) ZT_MUST_CHECK;
/* The same as one JSON event: "config", and in "origins" where each value comes from. */
zt_err zt_run_print_config_json(const struct zt_run *run, struct _IO_FILE *out,
                                struct zt_fault *fault) ZT_MUST_CHECK;

/* Remarks on the config, one sentence each: accepted oddities, keys without effect. NULL
 * behind the last. */
const char *zt_run_note(const struct zt_run *run, int i);

/* Which of these options (names without dashes, NULL behind the last) somebody typed, as
 * messages call it: "--max_steps". NULL: none. Files are for many runs and do not count. */
const char *zt_run_says(const struct zt_run *run, const char *const *names);

/* What is typed and says another value of this key than `text`, a number or a name, as messages
 * call it: "--zero_stage". NULL: nothing. */
const char *zt_run_key_says_otherwise(const struct zt_run *run, const char *path,
                                      const char *text);

/* Whether the JSON has a value for this key, and not "auto". */
bool zt_run_json_says(const struct zt_run *run, const char *path);

/* Whether it is a file of the run's data, by whatever name. */
bool zt_run_reads(const struct zt_run *run, const char *file);

/* --metric_for_best_model as events call it: "loss", of eval_loss too. */
const char *zt_run_best_metric(const struct zt_run *run);

/* The run options under their headings, as wide as the terminal. */
void zt_run_print_help(struct _IO_FILE *out);

/* What is done with options of other programs, as a page of markdown. */
void zt_run_print_names(struct _IO_FILE *out);

/* The run options, for help, man pages and completion. */
const struct zt_option *zt_run_options(void);

#endif
