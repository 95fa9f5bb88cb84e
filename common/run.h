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
#ifndef COMMON_RUN_H
#define COMMON_RUN_H

#include "common/fault.h"
#include "include/zlaunch/option.h"

typedef enum zt_optim_kind { ZT_OPTIM_ADAMW, ZT_OPTIM_ADAM } zt_optim_kind;

typedef enum zt_sched_kind {
    ZT_SCHED_CONSTANT,     /* no scheduler section and --lr_scheduler_type constant */
    ZT_SCHED_WARMUP,       /* WarmupLR */
    ZT_SCHED_WARMUP_DECAY, /* WarmupDecayLR */
    ZT_SCHED_LINEAR,       /* HF linear: linear warm-up, then linear to 0 */
    ZT_SCHED_COSINE,       /* HF cosine: linear warm-up, then half a cosine to 0 */
    ZT_SCHED_CONSTANT_WITH_WARMUP, /* HF: linear warm-up, then constant */
} zt_sched_kind;

struct zt_optim_config {
    zt_optim_kind kind;
    double lr, beta1, beta2, eps, weight_decay;
    bool decoupled; /* AdamW: decay on the weight; false: decay in the gradient */
    bool bias_correction;
};

struct zt_sched_config {
    zt_sched_kind kind;
    double min_lr, max_lr;
    int64_t warmup_steps;
    int64_t total_steps; /* 0: known only when the data are: max_steps of the run */
    bool warmup_log; /* Warmup*: logarithmic warm-up (the default there), else linear */
};

struct zt_scaler_config { /* fp16 only */
    double loss_scale;    /* 0: dynamic */
    int initial_scale_power;
    int64_t loss_scale_window;
    int hysteresis;
    bool consecutive_hysteresis;
    double min_loss_scale;
};

/* ZeRO and the exchange of gradients; sizes count elements. */
struct zt_zero_options {
    int stage;
    bool overlap_comm;
    bool reduce_scatter, allgather_partitions;
    int64_t reduce_bucket_size, allgather_bucket_size;
    int64_t sub_group_size; /* elements the optimizer takes at a time; 0: all */
    int64_t prefetch_bucket_size, max_live_parameters, max_reuse_distance;
    int64_t param_persistence_threshold, model_persistence_threshold;
    int hpz_partition_size; /* ranks of a group with a secondary partition; 1: none */
    bool ignore_unused_parameters;
    bool gather_16bit_on_save; /* stage 3: the saved weights are those it computes with */
    bool share_node_weights;   /* stages 1 and 2: one copy for the ranks of a node */
    bool prescale_gradients;
    double predivide_factor;
    zt_dtype communication_dtype, grad_accum_dtype;
};

struct zt_run {
    int rank, world, local_rank, local_world;

    /* what to do */
    bool do_train, do_eval;
    const char *const *train_files; /* globs already expanded, NULL-terminated */
    const char *const *eval_files;  /* may be empty: then a held-out split is used */
    double eval_fraction;    /* share of train_files held out when eval_files is empty */
    const char *data_format; /* auto|text|nanogpt|llmc|megatron */
    const char *output_dir;  /* NULL: nothing is saved */
    const char *init_from;   /* --model_name_or_path: a folder or .safetensors; NULL */
    bool resume_guard_overwrite; /* --overwrite_output_dir */
    int64_t max_steps;           /* -1: from num_train_epochs */
    double num_train_epochs;
    int64_t block_size; /* tokens per sample; 0: the model's own limit */
    int64_t seed;
    int64_t logging_steps, eval_steps, eval_batches; /* eval_batches 0: all */
    int64_t fingerprint_steps;                       /* 0: never */
    int64_t per_device_eval_batch_size;
    int threads; /* --threads; 0: cores / local ranks */

    /* text generated at the end of training, and after each evaluation if asked */
    const char *prompt;
    int64_t generate_tokens; /* 0: none */
    double temperature, top_p;
    int64_t top_k;

    /* numbers */
    int64_t train_batch_size, micro_batch_size, grad_accum_steps;
    zt_dtype compute_dtype; /* ZT_F32, ZT_BF16, ZT_F16 */
    bool tf32;              /* products of fp32 round their operands to TF32 */
    struct zt_zero_options zero;
    bool fp8;                 /* linear layers of a bf16 run multiply fp8 */
    bool stochastic_rounding; /* of bf16 weights from their fp32 master */
    double max_grad_norm;     /* 0: no clipping */
    bool check_grad_overflow; /* bf16: skip the step on inf or nan */
    struct zt_optim_config optim;
    struct zt_sched_config sched;
    struct zt_scaler_config scaler;

    bool gradient_checkpointing;
    bool reduce_every_micro_batch;
    bool dump_state; /* print the resolved config at the start */
    bool dataloader_drop_last;
    const char *device;      /* auto|cpu|cuda|meta */
    const char *comm;        /* auto|shm|mpi */
    bool share_gpu;          /* several ranks may use one GPU */
    bool ordered_reductions; /* GPUs: sums in rank order; else as NCCL likes */
    const char *trace;       /* file of the timeline; NULL: none */

    bool check_config;         /* print the resolved config and stop */
    bool dry_run;              /* plan memory and stop */
    const zt_args *model_args; /* the plugin's own options */
    struct zt_config *config;  /* the resolved tree, for printing */
};

/* What the caller knows that options cannot say. */
struct zt_run_facts {
    int rank, world, local_rank, local_world;
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

/*
 * Second half, once the model is built: "auto" values that follow from its hidden size
 * (reduce_bucket_size and friends), and the schedule's total steps once the data are
 * known.
 */
zt_err zt_run_resolve(struct zt_run *run, int64_t hidden_size, int64_t total_steps,
                      struct zt_fault *fault) ZT_MUST_CHECK;

/* The resolved config as JSON (comments carry the origin of every value) to `out`. */
struct _IO_FILE;
zt_err zt_run_print_config(const struct zt_run *run, struct _IO_FILE *out,
                           struct zt_fault *fault) ZT_MUST_CHECK;

/* Remarks on the config, one sentence each: accepted oddities, keys without effect. NULL
 * behind the last. */
const char *zt_run_note(const struct zt_run *run, int i);

/* The run options under their headings, as wide as the terminal. */
void zt_run_print_help(struct _IO_FILE *out);

/* The run options, for help, man pages and completion. */
extern const struct zt_option zt_run_options[];

#endif
