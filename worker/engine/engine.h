/*
 * engine.h -- a rank's whole machinery in one struct, opened once, and the loops over it.
 *
 * The engine is the only place that knows models, data, collectives, optimizers and
 * backends at the same time.
 * Ownership: the engine owns everything it opened; run and plugin are the caller's.
 * Threads:   one.
 * Failure:   every call leaves an engine that zt_engine_close() can take.
 */
#ifndef WORKER_ENGINE_ENGINE_H
#define WORKER_ENGINE_ENGINE_H

#include <jansson.h>

#include "worker/config/run.h"
#include "worker/autograd/step.h"
#include "worker/comm/comm.h"
#include "worker/data/dataset.h"
#include "worker/data/sampler.h"
#include "worker/engine/adapters/adapters.h"
#include "worker/engine/context.h"
#include "worker/engine/output_dir.h"
#include "worker/engine/peers.h"
#include "worker/engine/memory/alternatives.h"
#include "worker/engine/memory/plan.h"
#include "worker/optim/scaler.h"
#include "worker/text/rows/examples.h"
#include "worker/text/rows/prompts.h"
#include "worker/text/tokenizer.h"
#include "worker/zero/zero.h"

/* Words that steer a step: in device memory, and as the host last read or wrote them. */
struct zt_scalars {
    float grad_scale; /* unscale and clip */
    uint32_t skip;    /* not zero: this optimizer step does nothing */
    float loss;       /* summed over the micro-batches of a step */
};

/* Rows of a batch in host memory, field by field. */
struct zt_host_batch {
    int64_t rows;
    void *data[ZT_MAX_FIELDS]; /* (rows, ...) per field of the model; NULL: not offered */
};

/* The best evaluation so far. */
struct zt_best {
    double metric; /* --metric_for_best_model */
    double loss;   /* of the same evaluation, where this run made it; else 0 */
    int64_t step;  /* 0: none */
    double seen; /* the same of all evaluations, those whose step is not saved as well */
    int64_t seen_step; /* 0: none */
    int64_t
        since; /* evaluations in a row that were no better (early_stopping_threshold) */
    int64_t after;         /* those up to this step do not count; 0: all do */
    char folder[PATH_MAX]; /* that has its checkpoint-STEP; "": --output_dir */
    json_t *saved;         /* as the checkpoint that this run goes on from says it */
};

/* Evaluations as eval_results.json has them, on rank 0; NULL: none. */
struct zt_results {
    json_t *last; /* of the weights that the run has */
    json_t *best; /* of this run's own */
    double loss;  /* the last one's, on all ranks */
    int64_t step; /* after which it was; 0: of a run that trains nothing */
};

struct zt_engine;
struct zt_eval_stats;

/* Collective: what texts for e->eval_prompts are worth, into *stats, on all ranks. */
typedef zt_err (*zt_rate_texts)(struct zt_engine *e, struct zt_eval_stats *stats,
                                struct zt_fault *fault);

struct zt_engine {
    const struct zt_run *run;
    const struct zt_plugin *plugin;
    zt_task task;
    struct zt_labels labels; /* the classes of the task, where it has some */
    bool head_is_other;    /* that of the weights is of another task: it begins as new */
    bool told_of_left_out; /* of generation_config.json */
    struct zt_example_spec
        examples; /* how rows of the data are read, where they are that */

    const struct zt_backend *backend;
    struct zt_device *device;
    size_t device_own;           /* bytes that it took when it was opened */
    size_t process_now;          /* of this process before memory was planned */
    unsigned cpu_features;       /* see zt_cpu_isa_agree() */
    struct zt_peers *peers;      /* NULL: somebody else watches them */
    struct zt_comm *comm;        /* for host memory */
    struct zt_comm *device_comm; /* for device memory; NULL where that is host memory */
    struct zt_comm *sums;        /* the one of both whose failures a step must see */
    struct zt_model *model;
    struct zt_adapters *adapters; /* NULL: the model itself is trained */
    struct zt_zero *zero;
    struct zt_pool *pool;
    void *pool_base;
    struct zt_pool *host_pool; /* of inputs of recomputed blocks; NULL: none wait there */
    void *host_pool_base;
    struct zt_step *step;
    struct zt_memory_plan plan;

    struct zt_scaler scaler;
    struct zt_scalars *scalars, *on_host;

    struct zt_dataset *train_data,
        *eval_data;                    /* eval_data may be a view of the same files */
    struct zt_dataset *test_data;      /* to be predicted */
    struct zt_tokenizer *tokenizer;    /* of text and prompts; NULL: there is none */
    struct zt_fault tokenizer_refusal; /* why the one beside the weights cannot be read */
    struct zt_prompts prompts;         /* that text is written for */
    struct zt_prompts
        eval_prompts; /* that an evaluation writes for (--predict_with_generate) */
    struct zt_sampler *sampler;
    int64_t block_size;  /* tokens per row */
    int64_t text_size;   /* most tokens that a text to write sees at once */
    int64_t source_size; /* tokens of a source, of a model that reads one; else 0 */
    bool offered[ZT_MAX_FIELDS]; /* fields of the model that the data have */
    struct zt_host_batch batch;  /* of a training step: grad_accum_steps * B rows */
    struct zt_widths *widths;    /* (grad_accum_steps): of each micro-batch in it */
    double step_divisor;         /* of the loss, over all ranks, for the batch at hand */
    double step_tokens;          /* of its rows, as they are padded */
    int64_t total_steps;   /* planned_steps, or less once patience has ended the run */
    int64_t planned_steps; /* as the run was asked for */
    char
        new_params[PATH_MAX + 512]; /* which the weights do not have; "": they have all */
    int64_t first_step; /* steps before this run, by the checkpoint it goes on from */
    struct zt_best best;
    struct zt_results results;
    char
        weights_dir[PATH_MAX]; /* where weights went that were asked for last; "": none */
    zt_rate_texts rate_texts;  /* of who writes them; set before an evaluation */
    char training_id[24];      /* zt_checkpoint_name_training() */
    int64_t saved_step; /* of the newest checkpoint in its folder, by this run or the one
                           that it goes on from; 0: none */
    int64_t
        unsaved_step; /* of a checkpoint that failed, and none was saved since; 0: none */
    struct zt_fault unsaved_why;
    int64_t unsaved_own_step; /* the same of those that the plugin asks for */
    struct zt_fault unsaved_own_why;
    struct zt_fault
        saved_elsewhere;         /* why the weights at the end are not in --output_dir */
    struct zt_ckpt_saver *saver; /* NULL: nothing was to be saved yet */
    struct zt_save_requests saves; /* of the plugin, after the step at hand */
    struct zt_replicas *replicas;  /* NULL: the run keeps no copies in memory */
    int stop_code;                 /* stopped from outside: the exit code; 0: not */

    int64_t steps_taken, skipped,
        samples;             /* optimizer steps not skipped; skipped; rows seen */
    char frozen_weights[40]; /* "bf16 HASH": what adapters are beside; "": nobody asks */
    double
        rows_recut; /* what rows of another block size are more in these than they were */
    int64_t lost_in_a_row; /* the newest steps, whose loss was not finite */
    bool lost_updated;     /* one of them changed the weights all the same */
    double gemm_peak;      /* FLOP/s, the best that was measured; 0: not yet */
    bool save_refused;     /* the last save failed on rank 0, and all ranks know it */
    bool saved_lost;       /* the weights that it saved are not all finite; likewise */
    struct zt_output_dir output;
    int disk_reserved; /* for the weights at the end, on rank 0; -1: nothing */
    double rate;       /* steps a second so far; 0: not known */
    double first_loss; /* of step 1, on rank 0, or the first with a target */
    bool told_divergence, told_no_target;
    int losses_lost; /* reports in a row whose loss was no number, in fp16 */
};

/*
 * Everything up to the first step: data, model, plan, device, memory, peers, weights.
 * ZT_E_PLAN when the plan does not fit. *out is set, to be closed, whenever there was
 * memory for it.
 */
zt_err zt_engine_open(const struct zt_run *run, const struct zt_plugin *plugin,
                      struct zt_engine **out, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_engine_close(struct zt_engine *e); /* NULL is fine */

/* This rank goes for a reason of its own: the others need not wait for it. NULL is fine.
 */
void zt_engine_abort(struct zt_engine *e, zt_err why);

/* ZT_E_PLAN with what is too much, and what would fit. */
zt_err zt_engine_check_plan(const struct zt_engine *e,
                            struct zt_fault *fault) ZT_MUST_CHECK;
/* Rank 0 of a run that is not to begin: --output_dir and --resume_from_checkpoint are refused as
 * that run would be. Nothing is made, and no data of a checkpoint are read. */
zt_err zt_engine_check_folders(struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;

/* The same training with other settings, planned; of a run with --do_train. */
zt_err zt_engine_find_alternatives(const struct zt_engine *e,
                                   struct zt_memory_alternatives *out,
                                   struct zt_fault *fault) ZT_MUST_CHECK;

/* Device memory taken so far at its highest: regions and the pool's peak. */
size_t zt_engine_peak_bytes(const struct zt_engine *e);
/* Offloaded state and activations: in host memory so far at its highest, which on a
 * processor is in the former, too, and in files. */
size_t zt_engine_peak_host_bytes(const struct zt_engine *e);
size_t zt_engine_file_bytes(const struct zt_engine *e);

/* Collective. The timeline of all ranks, where run->trace asks for one. */
zt_err zt_engine_write_trace(struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;

/* The training loop: all steps, with logging, and evaluation on the way and after the last
 * step, before that is saved: which checkpoint is the best is known then. */
zt_err zt_engine_train(struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;

/* Whether an evaluation of these data can have a loss, without the model and before any step.
 * ZT_E_FORMAT: there are no targets, or no two tokens. */
zt_err zt_engine_check_eval_data(const struct zt_engine *e,
                                 struct zt_fault *fault) ZT_MUST_CHECK;

/* Mean loss over the evaluation data, every token once; an event of it. */
zt_err zt_engine_evaluate(struct zt_engine *e, int64_t step,
                          struct zt_fault *fault) ZT_MUST_CHECK;

/* Whether token ids are bytes, by --tokenizer_name, the data or the size of the
 * vocabulary. */
bool zt_engine_has_byte_vocab(const struct zt_engine *e);
/* What ends the texts that the run trains on, which is an end from then on, as where Trainer
 * aligns a model with its tokenizer; -1: it trains on none, or they have no end. */
int32_t zt_engine_learnt_end(const struct zt_engine *e);
/* What ends a text by the tokenizer, of bytes, or of ids as GPT-2 has them; -1: nothing says it. */
int64_t zt_engine_text_end(const struct zt_engine *e);
/* Once data and model are open: every token is one of the model's, and bytes are not taken
 * for the ids of another tokenizer. ZT_E_FORMAT, ZT_E_USAGE. */
zt_err zt_engine_check_vocab(const struct zt_engine *e,
                             struct zt_fault *fault) ZT_MUST_CHECK;
/* Rank 0 says what the run is about to do. */
void zt_engine_print_summary(const struct zt_engine *e);
/* What was asked for and will not happen, for rank 0 to say. */
void zt_engine_tell_of_no_effect(const struct zt_run *run);
/* Rank 0 logs what tokens are. */
void zt_engine_remark_on_vocab(const struct zt_engine *e);
/* Compute threads of this rank on a processor; 0: one for each that it may run on. */
int zt_engine_threads(const struct zt_run *run);
/* The tokenizer of the run, if it has one. ZT_E_NOINPUT,
 * ZT_E_FORMAT: --tokenizer_name is no folder with one that can be read. */
zt_err zt_engine_open_tokenizer(struct zt_engine *e,
                                struct zt_fault *fault) ZT_MUST_CHECK;
/* --train_tokenizer: that tokenizer, made by the first rank of a node that comes. */
zt_err zt_engine_make_tokenizer(struct zt_engine *e,
                                struct zt_fault *fault) ZT_MUST_CHECK;
/* The texts to continue, once the model is open: e->prompts and e->eval_prompts; of a dialogue
 * the number of those at a time, and how long the longest may be, alone. ZT_E_USAGE, ZT_E_FORMAT,
 * ZT_E_NOINPUT: see worker/text/rows/prompts.h. */
zt_err zt_engine_open_prompts(struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;
/* How texts that are typed become ids. */
struct zt_prompt_encoding zt_engine_prompt_encoding(const struct zt_engine *e);
/* What is written at once for prompts of this run. */
struct zt_generation zt_engine_generation(const struct zt_engine *e,
                                          const struct zt_prompts *prompts);

/* Collective, before zt_engine_save() in a folder that somebody names while the run goes on: no
 * model of another run is replaced. ZT_E_CANTCREATE. */
zt_err zt_engine_check_weights_dir(struct zt_engine *e, const char *dir,
                                   struct zt_fault *fault) ZT_MUST_CHECK;

/* Collective. Weights as model.safetensors and config.json in `dir`, which is made (rank
 * 0 writes). */
zt_err zt_engine_save(struct zt_engine *e, const char *dir,
                      struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Collective. The save at the end of a run. Where it fails and the job can be asked, the
 * ranks keep the weights for ten minutes, and save them where `--ctl JOB save weights DIR`
 * says.
 */
zt_err zt_engine_save_at_end(struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;

/* Last of all: weights are where they were to be, and the newest checkpoint that was due is on
 * the disk, or ZT_E_CANTCREATE. The
 * same on every rank. */
zt_err zt_engine_check_saved(const struct zt_engine *e,
                             struct zt_fault *fault) ZT_MUST_CHECK;

/* Collective. Weights from run->model_name_or_path, by name. Missing tensors (but for
 * those of ZT_EXTRA parameters, which begin as in a new model) and wrong shapes are
 * errors. */
zt_err zt_engine_load(struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;
/* Whether it will find all of them, from the files' headers alone; a checkpoint of zlaunch is
 * not looked at. */
zt_err zt_engine_check_weights(const struct zt_engine *e,
                               struct zt_fault *fault) ZT_MUST_CHECK;

#endif
