#include "worker/engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/human.h"
#include "common/message/event.h"
#include "common/log.h"
#include "worker/checkpoint/disk_space.h"
#include "worker/checkpoint/reader.h"
#include "worker/config/canonical_text.h"
#include "worker/config/resolve.h"
#include "common/trace/trace.h"
#include "kernels/cpu/features.h"
#include "worker/engine/agree.h"
#include "worker/engine/batch.h"
#include "worker/engine/checkpoint/checkpoint.h"
#include "worker/engine/checkpoint/replicas.h"
#include "worker/engine/cpu_isa.h"
#include "worker/engine/data.h"
#include "worker/engine/memory/process.h"
#include "worker/engine/output_dir.h"
#include "worker/engine/tasks/best.h"
#include "worker/engine/tasks/results.h"
#include "worker/engine/tasks/task.h"
#include "worker/engine/tune/products.h"
#include "worker/engine/weights.h"

/* ---- model ---- */

static zt_err check_length(const struct zt_engine *e, const char *option, int64_t tokens,
                           struct zt_fault *fault)
{
    const struct zt_value *said = zt_option_given(e->run->config, option);

    if (!e->model->max_tokens || tokens <= e->model->max_tokens)
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_USAGE,
                        "%s%s %lld is longer than the %lld tokens that %s takes",
                        said ? "" : "--", said ? said->where : option, (long long)tokens,
                        (long long)e->model->max_tokens, e->plugin->name);
}

/* What an option says, else as much as transformers takes by itself and the model can. */
static int64_t length(const struct zt_engine *e, int64_t said, int64_t usual)
{
    int64_t most = e->model->max_tokens;

    return said ? said : most && most < usual ? most : usual;
}

/* As in transformers rows to learn or to evaluate say nothing about texts: these see what the
 * model takes. A new one has learnt no position behind those of its rows. */
static void set_text_size(struct zt_engine *e)
{
    const struct zt_run *run = e->run;
    bool is_of_rows = run->do_train || run->do_eval;

    e->text_size = e->block_size;
    if (run->model_name_or_path && is_of_rows && !run->interactive &&
        e->model->max_tokens)
        e->text_size = e->model->max_tokens;
}

/* Tokens of a row, and of its source where the model reads one. */
static zt_err set_lengths(struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    zt_err rc;

    if (e->task == ZT_TASK_SEQ2SEQ) {
        e->block_size = length(
            e, run->max_target_length ? run->max_target_length : run->block_size, 128);
        e->source_size = length(e, run->max_source_length, 1024);
        rc = check_length(e, run->max_target_length ? "max_target_length" : "block_size",
                          e->block_size, fault);
        return rc ? rc : check_length(e, "max_source_length", e->source_size, fault);
    }
    e->block_size = run->block_size ? run->block_size : e->model->max_tokens;
    if (e->block_size <= 0)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "%s takes sequences of any length: say --block_size",
                            e->plugin->name);
    return check_length(e, "block_size", e->block_size, fault);
}

static zt_err open_model(struct zt_engine *e, struct zt_fault *fault)
{
    char config[4096];
    struct zt_model_config cfg = {
        .args = e->run->model_args,
        .data_vocab = zt_engine_data_vocab(e),
        .block_size = e->run->block_size,
        .compute_dtype = e->run->compute_dtype,
        .partial_import = e->run->allow_partial_import,
        .new_head = e->run->ignore_mismatched_sizes,
        .task = e->task,
        .labels = e->labels.names,
        .has_tokenizer = e->tokenizer != NULL,
        .has_text_end = zt_engine_text_end(e) >= 0,
        .text_end = zt_engine_text_end(e),
        .text_begin = e->tokenizer ? zt_tokenizer_special(e->tokenizer, "bos_token") : -1,
        .text_pad = e->tokenizer ? zt_tokenizer_special(e->tokenizer, "pad_token") : -1,
        .learnt_end = zt_engine_learnt_end(e),
        .num_labels = e->labels.num,
    };
    zt_err rc;

    if (e->run->model_name_or_path) {
        rc = zt_weights_config_path(e->run->model_name_or_path, config, sizeof(config),
                                    fault);
        if (rc)
            return rc;
        cfg.config_json = config[0] ? config : NULL;
    }
    zt_event_phase("building the model");
    rc = zt_model_open(e->plugin, &cfg, &e->model, fault);
    if (rc)
        return rc;
    zt_model_layout(e->model, e->run->world);
    rc = set_lengths(e, fault);
    set_text_size(e);
    return rc ? rc : zt_engine_check_vocab(e, fault);
}

/* ---- memory and peers ---- */

/* What the ranks must have in common is compared before anything depends on it. */
static zt_err agree(struct zt_engine *e, struct zt_fault *fault)
{
    char *model = NULL, *config = NULL, *paths = NULL, *data = NULL;
    zt_err rc = ZT_OK;

    if (e->run->world == 1)
        return ZT_OK;
    zt_event_phase("comparing what the ranks were given");
    rc = zt_agree_model_text(e->model, &model, fault);
    if (!rc)
        rc = zt_run_config_text(e->run, &config, fault);
    if (!rc)
        rc = zt_run_paths_text(e->run, &paths, fault);
    if (!rc)
        rc = zt_agree_data_text(e->train_data, e->eval_data, &data, fault);
    if (!rc) /* first: values of the config follow from what is given */
        rc = zt_agree(e->comm, "its options", paths, fault);
    if (!rc)
        rc = zt_agree(e->comm, "the config", config, fault);
    if (!rc)
        rc = zt_agree(e->comm, "the model", model, fault);
    if (!rc)
        rc = zt_agree(e->comm, "the data", data, fault);
    free(model);
    free(config);
    free(paths);
    free(data);
    return rc;
}

static zt_err open_comm(struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    struct zt_comm_config cfg = {
        .engine = run->world > 1 ? run->comm : "solo",
        .rank = run->rank,
        .world = run->world,
        .shm_fd = -1,
        .node_ranks =
            run->rank % run->local_world == run->local_rank ? run->local_world : 0,
        .timeout_s = run->ddp_timeout,
    };
    zt_err rc;

    zt_event_phase("meeting the other ranks");
    rc = zt_peers_open(run, &e->peers, &cfg.shm_fd, fault);
    cfg.bootstrap = zt_peers_bootstrap(e->peers);
    if (!rc)
        rc = zt_comm_open(&cfg, &e->comm, fault);
    if (!rc && run->world > 1 && run->zero.share_node_weights &&
        !zt_comm_can_share(e->comm))
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "--share_node_weights needs ranks that share memory (--comm "
                            "shm); these talk by %s",
                            zt_comm_engine_name(e->comm));
    if (!rc)
        rc = agree(e, fault);
    return rc ? rc : zt_cpu_isa_agree(e->comm, e->cpu_features, fault);
}

static zt_err open_device_comm(struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    struct zt_device_comm_config cfg = {
        .host = e->comm,
        .backend = e->backend,
        .device = e->device,
        .share_gpu = run->share_gpu,
        .ordered = run->reduction_order == ZT_ORDER_RANK,
        .timeout_s = run->ddp_timeout,
    };
    zt_err rc;

    zt_event_phase("connecting the GPUs");
    rc = zt_comm_open_device(&cfg, &e->device_comm, fault);
    if (!rc)
        e->sums = e->device_comm;
    return rc;
}

/* Host memory that transfers reach; *out is NULL after a failure. */
static zt_err host_array(struct zt_engine *e, size_t bytes, void **out,
                         struct zt_fault *fault)
{
    *out = NULL;
    return e->backend->host_alloc(e->device, bytes, out, fault);
}

static zt_err open_pool(struct zt_engine *e, struct zt_fault *fault)
{
    zt_err rc;

    if (!e->plan.activations) /* no pass: weights are merged alone */
        return ZT_OK;
    rc = e->backend->alloc(e->device, e->plan.activations, &e->pool_base, fault);
    if (!rc)
        rc = zt_pool_open(e->pool_base, e->plan.activations, &e->pool, fault);
    if (!rc && !e->backend->unified)
        zt_pool_set_stream_ordered(e->pool);
    return rc;
}

/* Host memory in which the inputs of recomputed blocks wait for backward. */
static zt_err open_host_pool(struct zt_engine *e, struct zt_fault *fault)
{
    size_t bytes = e->plan.host_activations;
    zt_err rc;

    if (!bytes)
        return ZT_OK;
    rc = host_array(e, bytes, &e->host_pool_base, fault);
    if (!rc)
        rc = zt_pool_open(e->host_pool_base, bytes, &e->host_pool, fault);
    if (!rc && !e->backend->unified)
        zt_pool_set_stream_ordered(e->host_pool);
    return rc;
}

static zt_err open_zero(struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    struct zt_zero_config cfg = zt_memory_plan_zero_config(run, e->model);

    cfg.backend = e->backend;
    cfg.device = e->device;
    cfg.comm = e->device_comm ? e->device_comm : e->comm;
    cfg.gathered_bytes = e->plan.state.in[ZT_PLACE_DEVICE].gathered;
    cfg.transient_bytes = e->plan.state.in[ZT_PLACE_DEVICE].transient;
    return zt_zero_open(&cfg, &e->zero, fault);
}

/* A limit below what one call needs cannot be kept. */
static void warn_of_limit(const struct zt_engine *e)
{
    const struct zt_block *b = NULL;
    int64_t least = zt_zero_largest_call(e->zero, &b);

    if (e->run->rank == 0 && least > e->run->zero.max_live_parameters)
        zt_warn("zero",
                "stage3_max_live_parameters is %lld, but block %s alone needs %lld "
                "parameters at once: that many are held",
                (long long)e->run->zero.max_live_parameters, b->name, (long long)least);
}

/* The state, and what is small. */
static zt_err open_memory(struct zt_engine *e, struct zt_fault *fault)
{
    void *p = NULL;
    zt_err rc = open_zero(e, fault);

    if (!rc)
        warn_of_limit(e);
    if (!rc)
        rc = e->backend->alloc(e->device, sizeof(*e->scalars), &p, fault);
    e->scalars = p;
    if (!rc)
        rc = host_array(e, sizeof(*e->on_host), &p, fault);
    e->on_host = p;
    if (!rc && e->run->do_train)
        rc = zt_host_batch_open(e, e->run->micro_batch_size * e->run->grad_accum_steps,
                                &e->batch, fault);
    if (!rc && e->run->do_train) {
        e->widths = calloc((size_t)e->run->grad_accum_steps, sizeof(*e->widths));
        if (!e->widths)
            rc = zt_fault_set(fault, ZT_E_NOMEM, "no host memory");
    }
    return rc;
}

/* Options for GPUs mean less, or nothing, on a processor, and the reverse. */
static void remark_on_options(const struct zt_engine *e)
{
    const struct zt_run *run = e->run;
    const char *option = run->fp8 ? "--fp8" : run->tf32 ? "--tf32" : NULL;

    if (run->rank == 0 && !e->backend->runs_on_processor &&
        strcmp(run->cpu_isa, "auto") != 0)
        zt_info("cpu", "--cpu_isa is for runs on a cpu: it has no effect on a GPU");
    if (run->rank == 0 && run->profile_checkpointing && !run->gradient_checkpointing)
        zt_info("activations",
                "activation_checkpointing.profile has no effect: no block is recomputed "
                "(--gradient_checkpointing)");
    if (run->rank || !e->backend->runs_on_processor)
        return;
    if (run->reduction_order != ZT_ORDER_RANK)
        zt_info("comm",
                "--reduction_order any is for GPUs: on a cpu sums are in rank order");
    if (run->share_gpu)
        zt_info("comm", "--share_gpu has no effect on a cpu");
    if (option)
        zt_info("numbers",
                "%s on a cpu: operands of products are rounded as for a GPU, which "
                "is slower than not to",
                option);
}

static zt_err open_step(struct zt_engine *e, struct zt_fault *fault)
{
    struct zt_step_config cfg = {
        .backend = e->backend,
        .device = e->device,
        .pool = e->pool,
        .host_pool = e->host_pool,
        .model = e->model,
        .compute_dtype = e->run->compute_dtype,
        .any_order = e->run->reduction_order == ZT_ORDER_ANY,
        .tf32 = e->run->tf32,
        .fp8 = e->run->fp8,
        .recompute = e->run->gradient_checkpointing,
        .label_smoothing = (float)e->run->label_smoothing_factor,
        .product_align = zt_backend_lookup(e->backend->name)->product_align,
        .profile = e->run->do_train && e->run->profile_checkpointing,
        .seed = (uint64_t)e->run->seed,
        .hooks = zt_zero_hooks(e->zero),
    };
    remark_on_options(e);
    return zt_step_open(&cfg, &e->step, fault);
}

/* ---- the plan ---- */

static struct zt_memory_plan_inputs plan_inputs(const struct zt_engine *e)
{
    return (struct zt_memory_plan_inputs){
        .run = e->run,
        .model = e->model,
        .block_size = e->block_size,
        .text_size = e->text_size == e->block_size ? 0 : e->text_size,
        .source_size = e->source_size,
        .num_prompts = e->prompts.num,
        .longest_prompt = e->prompts.longest,
        .num_eval_prompts = e->eval_prompts.num,
        .longest_eval_prompt = e->eval_prompts.longest,
        .device_own = e->device_own,
        .process_now = e->process_now,
        .offered = e->offered};
}

static zt_err make_plan(struct zt_engine *e, struct zt_fault *fault)
{
    struct zt_memory_plan_inputs in;

    e->process_now = zt_process_memory_now("", e->run->local_world);
    in = plan_inputs(e);
    return zt_memory_plan_choose(&in, (struct zt_run *)e->run, e->backend, e->device,
                                 &e->plan, fault);
}

zt_err zt_engine_check_plan(const struct zt_engine *e, struct zt_fault *fault)
{
    struct zt_memory_plan_inputs in = plan_inputs(e);

    return zt_memory_plan_check(&in, &e->plan, fault);
}

zt_err zt_engine_find_alternatives(const struct zt_engine *e,
                                   struct zt_memory_alternatives *out,
                                   struct zt_fault *fault)
{
    struct zt_memory_plan_inputs in = plan_inputs(e);
    struct zt_rates rates;
    zt_err rc;

    zt_memory_alternatives_find(&in, &e->plan, out);
    rc = zt_rates_find(e->run, e->backend, e->device, zt_engine_threads(e->run), &rates,
                       fault);
    if (!rc)
        zt_memory_alternatives_time(out, &rates);
    return rc;
}

/* ---- the device ---- */

/* Ranks of a host take its devices in order; where one is all that a process sees, that
 * is the one it was meant to have. */
static int ordinal_of(const struct zt_engine *e, int devices)
{
    const struct zt_run *run = e->run;

    if (!zt_run_is_staged(run))
        return run->local_rank;
    return run->share_gpu || devices == 1 ? run->local_rank % devices : run->local_rank;
}

/* --cpu_isa; what it leaves is what this rank brings to zt_cpu_isa_agree(). */
static zt_err read_cpu_isa(struct zt_engine *e, struct zt_fault *fault)
{
    e->cpu_features = ZT_CPU_ANY_FEATURES;
    return e->backend->runs_on_processor
               ? zt_cpu_features_at(e->run->cpu_isa, &e->cpu_features, fault)
               : ZT_OK;
}

static zt_err open_device(struct zt_engine *e, struct zt_fault *fault)
{
    struct zt_run *run = (struct zt_run *)e->run;
    bool here = !run->dry_run && !run->check_config;
    struct zt_device_memory m;
    int devices = 0;
    zt_err rc;

    zt_event_phase("opening the device");
    rc = zt_backend_find(run->device, &e->backend, here ? fault : NULL);
    if (rc && !here && zt_run_is_staged(run)) /* its memory is planned all the same */
        return ZT_OK;
    if (rc)
        return rc;
    run->device = e->backend->name;
    if (here)
        rc = read_cpu_isa(e, fault);
    if (!rc)
        rc = e->backend->count(&devices, fault);
    if (!rc)
        rc = e->backend->open(ordinal_of(e, devices), zt_engine_threads(run), &e->device,
                              fault);
    if (!rc)
        rc = e->backend->memory(e->device, &m, fault);
    e->device_own = rc ? 0 : m.used;
    return rc;
}

/* ---- the whole ---- */

/* What can be known without memory or peers. */
static zt_err open_plan(struct zt_engine *e, struct zt_fault *fault)
{
    struct zt_run *run = (struct zt_run *)e->run;
    zt_err rc;

    rc = zt_trace_open(run->trace, run->rank, run->world, fault);
    if (rc)
        return rc;
    zt_trace_thread("compute");
    rc = zt_engine_pick_task(e, fault);
    if (!rc)
        rc = open_device(e, fault);
    if (rc)
        return rc;
    zt_event_phase("opening the data");
    rc = zt_engine_open_tokenizer(e, fault);
    if (!rc)
        rc = zt_engine_open_labels(e, fault);
    if (!rc)
        rc = zt_engine_open_data(e, fault);
    if (!rc)
        rc = open_model(e, fault);
    if (!rc)
        rc = zt_engine_match_fields(e, fault);
    if (!rc)
        rc = zt_adapters_open(e, fault);
    if (!rc && !run->dry_run && !run->check_config) /* before a plan of other sizes */
        rc = zt_engine_check_weights(e, fault);
    if (!rc)
        rc = zt_engine_open_prompts(e, fault);
    if (!rc)
        rc = zt_engine_divide_data(e, fault);
    if (!rc)
        rc = zt_engine_check_eval_data(e, fault);
    if (!rc)
        rc = zt_best_check(e, fault);
    if (!rc && run->do_train)
        rc = zt_engine_open_sampler(e, fault);
    if (!rc)
        rc = zt_run_resolve(run, e->model->hidden_size, e->total_steps, fault);
    if (rc)
        return rc;

    zt_engine_remark_on_vocab(e);
    zt_event_phase("planning memory");
    zt_scaler_init(&e->scaler, &run->scaler);
    rc = make_plan(e, fault);
    if (rc || run->dry_run || run->check_config)
        return rc;
    return zt_engine_check_plan(e, fault);
}

/* Files, peers and memory, now that they are known to do. */
static zt_err open_means(struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    char parameters[ZT_HUMAN], phase[64];
    zt_err rc = ZT_OK;

    if ((run->do_train || run->merge_adapters) && run->output_dir)
        rc = zt_output_dir_open(e, fault);
    if (!rc)
        rc = open_comm(e, fault);
    e->sums = e->comm;
    if (!rc && zt_run_is_staged(run))
        rc = open_device_comm(e, fault);
    if (!rc) {
        struct zt_memory_plan_inputs in = plan_inputs(e);

        rc = zt_engine_tune_products(e, &in, fault);
    }
    if (rc)
        return rc;
    zt_human_count(parameters, (double)e->model->numel);
    snprintf(phase, sizeof(phase), "preparing memory for %s parameters", parameters);
    zt_event_phase(phase);
    rc = open_memory(e, fault);
    return rc ? rc : zt_checkpoint_prepare(e, fault);
}

zt_err zt_engine_check_folders(struct zt_engine *e, struct zt_fault *fault)
{
    zt_err rc = zt_output_dir_check(e, fault);

    return rc || !e->run->do_train ? rc : zt_checkpoint_check_resume(e, fault);
}

/* What passes need beside the state, after the weights have come: while these are read it
 * would only stand beside them. */
static zt_err open_passes(struct zt_engine *e, struct zt_fault *fault)
{
    zt_err rc = zt_zero_open_pools(e->zero, fault);

    if (!rc)
        rc = open_pool(e, fault);
    if (!rc)
        rc = open_host_pool(e, fault);
    return rc ? rc : open_step(e, fault);
}

static zt_err open_weights(struct zt_engine *e, struct zt_fault *fault)
{
    const char *from = e->run->model_name_or_path;
    zt_err rc;

    zt_event_phase(from ? "loading weights" : "making the first weights");
    zt_trace_begin("weights", from ? "load" : "init");
    rc = !from ? zt_zero_init(e->zero, (uint64_t)e->run->seed, fault)
         : zt_ckpt_gives_weights(from) ? zt_checkpoint_load_weights(e, fault)
                                       : zt_engine_load(e, fault);
    if (!rc)
        rc = zt_adapters_load(e, fault);
    zt_trace_end();
    return rc ? rc : zt_zero_setup_model(e->zero, fault);
}

/* What a head of first values says of any data is worth nothing. */
static zt_err check_new_params(const struct zt_engine *e, struct zt_fault *fault)
{
    const char *task = NULL;

    if (!e->new_params[0])
        return ZT_OK;
    if (!zt_task_reads_examples(e->task))
        task = zt_task_of_trained_head(e->run->model_name_or_path);
    if (e->run->do_train) {
        if (!e->run->rank)
            zt_log(task ? ZT_LOG_WARN : ZT_LOG_INFO, "weights", "%s%s%s%s", e->new_params,
                   task ? "; the head that the folder has is for --task " : "",
                   task ? task : "",
                   task ? ", and this run has nothing to do with it" : "");
        return ZT_OK;
    }
    return zt_fault_set(fault, ZT_E_CONFIG, "%s%s%s", e->new_params,
                        task ? "; the head that the folder has is for --task " : "",
                        task ? task : "");
}

/* A plugin that sets itself up does so with first values, as at the start of the run that
 * is resumed, and under adapters no checkpoint has the model itself; else these are not
 * needed. */
static zt_err resume_or_open_weights(struct zt_engine *e, struct zt_fault *fault)
{
    bool wanted = e->run->do_train && zt_checkpoint_is_wanted(e->run), resumed = false;
    bool first = !wanted || e->plugin->setup || e->adapters;
    zt_err rc = first ? open_weights(e, fault) : ZT_OK;

    if (!rc)
        rc = zt_checkpoint_note_frozen(e, fault);
    if (!rc && wanted)
        rc = zt_checkpoint_resume(e, &resumed, fault);
    if (!rc && !resumed && !first)
        rc = open_weights(e, fault);
    if (!rc && !resumed)
        rc = check_new_params(e, fault);
    if (!rc && !resumed && e->run->do_train)
        rc = zt_checkpoint_check_names(e, fault);
    zt_checkpoint_name_training(e);
    return rc;
}

zt_err zt_engine_open(const struct zt_run *run, const struct zt_plugin *plugin,
                      struct zt_engine **out, struct zt_fault *fault)
{
    struct zt_engine *e = calloc(1, sizeof(*e));
    bool runs = !run->dry_run && !run->check_config;
    zt_err rc;

    if (!e)
        return zt_fault_set(fault, ZT_E_NOMEM, "engine: no host memory");
    e->run = run;
    e->plugin = plugin;
    e->disk_reserved = -1;
    e->output.lock.fd = -1;
    rc = open_plan(e, fault);
    if (!rc && runs)
        rc = open_means(e, fault);
    if (!rc && runs)
        rc = zt_replicas_open(e, fault);
    if (!rc && runs)
        rc = resume_or_open_weights(e, fault);
    if (!rc && runs)
        rc = open_passes(e, fault);
    *out = e;
    return rc;
}

void zt_engine_abort(struct zt_engine *e, zt_err why)
{
    if (e && e->sums && !zt_err_is_about_peer(why))
        zt_comm_abort(e->sums, e->run->rank);
}

void zt_engine_close(struct zt_engine *e)
{
    if (!e)
        return;
    zt_checkpoint_give_up(e);
    zt_replicas_close(e);
    zt_disk_release(&e->disk_reserved);
    zt_step_close(e->step);
    zt_pool_close(e->pool);
    zt_pool_close(e->host_pool);
    if (e->pool_base)
        e->backend->free(e->device, e->pool_base, e->plan.activations);
    if (e->scalars)
        e->backend->free(e->device, e->scalars, sizeof(*e->scalars));
    if (e->device) {
        e->backend->host_free(e->device, e->host_pool_base, e->plan.host_activations);
        e->backend->host_free(e->device, e->on_host, sizeof(*e->on_host));
        zt_host_batch_close(e, &e->batch);
    }
    zt_zero_close(e->zero);
    zt_comm_close(e->device_comm);
    zt_comm_close(e->comm);
    zt_peers_close(e->peers);
    if (e->device)
        e->backend->close(e->device);
    zt_sampler_close(e->sampler);
    zt_results_release(e);
    json_decref(e->best.saved);
    free(e->widths);
    zt_adapters_close(e->adapters);
    zt_model_close(e->model);
    zt_dataset_close(e->test_data);
    zt_dataset_close(e->eval_data);
    zt_dataset_close(e->train_data);
    zt_tokenizer_close(e->tokenizer);
    zt_labels_release(&e->labels);
    zt_prompts_release(&e->prompts);
    zt_prompts_release(&e->eval_prompts);
    zt_output_dir_close(e);
    free(e);
}

size_t zt_engine_peak_bytes(const struct zt_engine *e)
{
    struct zt_zero_bytes state = zt_zero_measure(e->zero);
    struct zt_device_memory m;

    if (!e->backend->unified && !e->backend->memory(e->device, &m, NULL))
        return m.peak;
    return zt_zero_total(&state, ZT_PLACE_DEVICE) + zt_pool_peak(e->pool) +
           zt_engine_peak_host_bytes(e);
}

size_t zt_engine_peak_host_bytes(const struct zt_engine *e)
{
    struct zt_zero_bytes state = zt_zero_measure(e->zero);

    return zt_zero_total(&state, ZT_PLACE_PINNED) + zt_zero_total(&state, ZT_PLACE_HOST) +
           (e->host_pool ? zt_pool_peak(e->host_pool) : 0);
}

size_t zt_engine_file_bytes(const struct zt_engine *e)
{
    struct zt_zero_bytes state = zt_zero_measure(e->zero);

    return zt_zero_total(&state, ZT_PLACE_FILE);
}

zt_err zt_engine_write_trace(struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    zt_err rc;

    if (!run->trace)
        return ZT_OK;
    rc = zt_trace_close(fault);
    if (!rc)
        rc = zt_barrier(e->comm, fault);
    if (!rc && !run->rank)
        rc = zt_trace_merge(run->trace, run->world, fault);
    if (!rc && !run->rank)
        zt_event_text("timeline", run->trace);
    return rc;
}
