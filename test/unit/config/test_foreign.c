/*
 * test_foreign.c -- whoever brings a command line of Hugging Face's Trainer, of accelerate
 * launch, torchrun or deepspeed is answered, name by name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "test/unit/config/run_helper.h"
#include "worker/config/options.h"

/* The names as the programs have them; facts of transformers 4.46 and 5.23, of its example
 * scripts, of accelerate 1.15 and of torch 2. */
static const char *const names[] = {
    /* TrainingArguments, from first to last */
    "output_dir overwrite_output_dir do_train do_eval do_predict eval_strategy "
    "prediction_loss_only per_device_train_batch_size per_device_eval_batch_size "
    "per_gpu_train_batch_size per_gpu_eval_batch_size gradient_accumulation_steps "
    "eval_accumulation_steps eval_delay torch_empty_cache_steps learning_rate "
    "weight_decay adam_beta1 adam_beta2 adam_epsilon max_grad_norm num_train_epochs "
    "max_steps lr_scheduler_type lr_scheduler_kwargs warmup_ratio warmup_steps "
    "log_level log_level_replica log_on_each_node logging_dir logging_strategy "
    "logging_first_step logging_steps logging_nan_inf_filter save_strategy save_steps "
    "save_total_limit save_safetensors save_on_each_node save_only_model "
    "restore_callback_states_from_checkpoint no_cuda use_cpu use_mps_device seed "
    "data_seed jit_mode_eval use_ipex bf16 fp16 fp16_opt_level half_precision_backend "
    "bf16_full_eval fp16_full_eval tf32 local_rank ddp_backend tpu_num_cores "
    "tpu_metrics_debug debug dataloader_drop_last eval_steps dataloader_num_workers "
    "dataloader_prefetch_factor past_index run_name disable_tqdm remove_unused_columns "
    "label_names load_best_model_at_end metric_for_best_model greater_is_better "
    "ignore_data_skip fsdp fsdp_min_num_params fsdp_config "
    "fsdp_transformer_layer_cls_to_wrap accelerator_config deepspeed "
    "label_smoothing_factor optim optim_args adafactor group_by_length "
    "length_column_name report_to ddp_find_unused_parameters ddp_bucket_cap_mb "
    "ddp_broadcast_buffers dataloader_pin_memory dataloader_persistent_workers "
    "skip_memory_metrics use_legacy_prediction_loop push_to_hub resume_from_checkpoint "
    "hub_model_id hub_strategy hub_token hub_private_repo hub_always_push "
    "gradient_checkpointing gradient_checkpointing_kwargs include_inputs_for_metrics "
    "include_for_metrics eval_do_concat_batches fp16_backend evaluation_strategy "
    "push_to_hub_model_id push_to_hub_organization push_to_hub_token mp_parameters "
    "auto_find_batch_size full_determinism torchdynamo ray_scope ddp_timeout "
    "torch_compile torch_compile_backend torch_compile_mode dispatch_batches "
    "split_batches include_tokens_per_second include_num_input_tokens_seen "
    "neftune_noise_alpha optim_target_modules batch_eval_metrics eval_on_start "
    "use_liger_kernel eval_use_gather_object average_tokens_across_devices "
    "activation_checkpointing activation_checkpointing_kwargs liger_kernel_config "
    "use_cache project trackio_space_id trackio_bucket_id trackio_static_space_id "
    "enable_jit_checkpoint hub_revision parallelism_config "
    "dataloader_multiprocessing_context dataloader_in_order train_sampling_strategy "
    "ddp_static_graph",
    "sortish_sampler predict_with_generate generation_max_length generation_num_beams "
    "generation_config",
    /* run_clm, run_mlm, run_glue, run_translation */
    "model_name_or_path model_type config_overrides config_name cache_dir "
    "tokenizer_name use_fast_tokenizer model_revision token use_auth_token "
    "trust_remote_code "
    "torch_dtype dtype low_cpu_mem_usage dataset_name dataset_config_name train_file "
    "validation_file max_train_samples max_eval_samples streaming block_size "
    "overwrite_cache validation_split_percentage preprocessing_num_workers "
    "keep_linebreaks max_seq_length mlm_probability line_by_line pad_to_max_length "
    "task_name max_predict_samples test_file ignore_mismatched_sizes source_lang "
    "target_lang max_source_length max_target_length val_max_target_length num_beams "
    "ignore_pad_token_for_loss source_prefix forced_bos_token",
    /* accelerate launch */
    "config_file cpu multi_gpu tpu mixed_precision num_processes num_machines "
    "num_cpu_threads_per_process enable_cpu_affinity dynamo_backend dynamo_mode "
    "dynamo_use_fullgraph use_deepspeed use_fsdp use_parallelism_config "
    "use_megatron_lm gpu_ids same_network machine_rank main_process_ip "
    "main_process_port tee log_dir role rdzv_backend rdzv_conf monitor_interval module "
    "tpu_cluster no_tpu_cluster tpu_use_sudo vm env main_training_function "
    "ipex use_xpu "
    "downcast_bf16 deepspeed_config_file zero_stage offload_optimizer_device "
    "offload_param_device offload_optimizer_nvme_path offload_param_nvme_path "
    "gradient_clipping zero3_init_flag zero3_save_16bit_model deepspeed_hostfile "
    "deepspeed_exclusion_filter deepspeed_inclusion_filter deepspeed_multinode_launcher "
    "deepspeed_moe_layer_cls_names fsdp_offload_params fsdp_sharding_strategy "
    "megatron_lm_tp_degree fp8_backend aws_access_key_id mpirun_hostfile "
    "parallelism_config_tp_size",
    /* torchrun, and torch.distributed.launch */
    "nnodes nproc_per_node nproc-per-node rdzv_endpoint rdzv_id standalone start_method "
    "run_path redirects local_ranks_filter local_addr logs_specs event_log_handler "
    "numa_binding signals_to_handle duplicate_stdout_filters virtual_local_rank use_env "
    "max_restarts node_rank master_addr master_port no_python",
    /* deepspeed */
    "deepspeed_config deepspeed_mpi venv_script autotuning comment account",
};

static void test_foreign_every_name_is_answered(void **state)
{
    int count = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char list[6000], *save = NULL;

        snprintf(list, sizeof(list), "%s", names[i]);
        for (char *n = strtok_r(list, " ", &save); n; n = strtok_r(NULL, " ", &save)) {
            char word[128];
            struct run_trial t;

            snprintf(word, sizeof(word), "--%s", n);
            t = try_it(1, NULL, word, "1");
            if (strstr(t.fault.text, "unknown option"))
                print_error("%s\n", t.fault.text);
            assert_null(strstr(t.fault.text, "unknown option"));
            zt_run_close(t.run);
            count++;
        }
    }
    assert_true(count > 250);
}

static const struct {
    const char *words[8];
    const char *text; /* of the refusal; NULL: it is accepted */
} answers[] = {
    {{"--report_to", "none"}, NULL},
    {{"--report_to", "none", "wandb"},
     "--report_to wandb: no tracker is built; step lines go to"},
    {{"--save_strategy", "no"}, NULL},
    {{"--save_strategy", "epoch"}, "--save_strategy needs an --output_dir"},
    {{"--save-steps=5"}, "--save_steps needs an --output_dir"},
    {{"--save_strategy", "epoch", "--save_steps", "5", "--output_dir", "x"},
     "leave one of them out"},
    {{"--save_strategy", "best", "--output_dir", "x"},
     "nothing is evaluated on the way: say --eval_strategy steps, or epoch"},
    {{"--save_strategy", "best", "--output_dir", "x", "--eval_steps", "5", "--do_train"},
     "nothing is evaluated on the way: add --do_eval"},
    {{"--resume_from_checkpoint", "auto"}, "needs an --output_dir"},
    {{"--data_cache_dir", ""}, "--data_cache_dir: it is empty"},
    {{"--trace", ""},
     "--trace: it is empty, as a variable that is not set is; name a file"},
    {{"--load_best_model_at_end"}, "nothing is evaluated on the way"},
    {{"--save_only_model"}, "a checkpoint has all that training depends on"},
    {{"--enable_jit_checkpoint"}, "give one of these, and leave it out"},
    {{"--enable_jit_checkpoint", "false"}, NULL},
    {{"--logging_strategy", "steps"}, NULL},
    {{"--logging_strategy", "epoch"}, "every --logging_steps"},
    {{"--disable_tqdm", "True", "--save_safetensors", "--remove_unused_columns"}, NULL},
    {{"--ddp_find_unused_parameters", "False", "--local_rank=3"}, NULL},
    {{"--fp16_full_eval", "False", "--no_push_to_hub"}, NULL},
    {{"--push_to_hub"}, "--push_to_hub: nothing is uploaded"},
    {{"--fsdp", "full_shard auto_wrap"}, "--zero_stage 3"},
    {{"--hub_model_id", "x"}, "--hub_model_id x: nothing is uploaded"},
    {{"--validation_split_percentage", "100"},
     "--validation_split_percentage 100 (--eval_fraction 1): \"1\" is no number from"},
    {{"--validation_split_percentage", "x"},
     "--validation_split_percentage: \"x\" is no plain number"},
    {{"--max_seq_length", "x"}, "--max_seq_length: \"x\" is no whole number"},
    {{"--nproc_per_node", "4"}, "that is --num_gpus N, before the target"},
    {{"--rdzv-backend=c10d"}, "--rdzv-backend c10d: zlaunch starts the ranks"},
    {{"--standalone"}, NULL},
    {{"--master_port", "1"}, "--master_port is an option of zlaunch: write it before"},
    {{"--num_accelerators=2"}, "--num_accelerators is an option of zlaunch"},
    {{"--deepspeed_mpi"}, NULL},
    {{"--deepspeed", "--deepspeed_config", "{}"}, NULL},
    {{"--deepspeed"}, "--deepspeed: a value is missing"},
    {{"--deepspeed_mqi"}, "did you mean --deepspeed_mpi?"},
    {{"--logging_rhythm", "1"}, "--logging_rhythm: unknown option; see --help"},
    {{"--no_check_config", "--train_fil", "Makefile"}, "did you mean --train_file?"},
    {{"--mixed_precision", "fp8"}, "that is --bf16 --fp8"},
    {{"--zero_stage", "7"}, "--zero_stage: \"zero_optimization.stage\""},
    {{"--offload_param_device", "cpu"}, "offload_param needs ZeRO stage 3"},
    {{"--zero_stage=3", "--offload_param_device", "cpu"}, NULL},
    {{"--offload_param_device", "none"}, NULL},
    {{"--deepspeed", "{\"zero_optimization\": {\"stage\": \"auto\"}}"},
     "\"zero_optimization.stage\" is \"auto\", and nothing says which; write 0, 1, 2 or "
     "3"},
    {{"--zero_stage=2", "--deepspeed", "{\"zero_optimization\": {\"stage\": \"auto\"}}"},
     NULL},
    {{"--zero_stage=2", "--deepspeed", "{\"zero_optimization\": {\"stage\": 1}}"},
     "already, at --deepspeed:1:33; leave one"},
    {{"--zero_stage=1", "--deepspeed", "{\"zero_optimization\": {\"stage\": 1}}"}, NULL},
    {{"--eval_strategy", "no", "--eval_steps", "3"}, "--eval_strategy is no, but"},
    {{"--evaluation_strategy", "no", "--eval_steps", "5"},
     "--evaluation_strategy is no, but --eval_steps is 5"},
    {{"--evaluation_strategy", "epoch", "--train_file", "Makefile"}, NULL},
    {{"--evaluation_strategy", "epoch", "--eval_steps", "5"},
     "--evaluation_strategy is epoch, but --eval_steps is 5"},
    {{"--eval_strategy", "epoch", "--do_eval", "false"},
     "--eval_strategy is epoch, but --do_eval is false; leave one of them out"},
    {{"--eval_strategy", "no", "--no_do_eval", "--train_file", "Makefile"}, NULL},
    {{"--eval_strategy", "steps", "--eval_steps", "0"},
     "--eval_strategy is steps, but --eval_steps is 0; leave one of them out"},
    {{"--eval_strategy", "epoch", "--eval_steps", "0", "--train_file", "Makefile"}, NULL},
    {{"--evaluation_strategy", "epochs"}, "\"epochs\" is none of no|steps|epoch"},
    {{"--warmup_steps", "0.1"}, NULL},
    {{"--warmup_steps", "1.5"}, "--warmup_steps: \"1.5\" is no whole number"},
    {{"--warmup_steps", "10", "--warmup_steps", "0.1"},
     "--warmup_steps 0.1: --warmup_steps 10 stands before it; leave one of them out"},
    {{"--mixed_precision", "bf16", "--mixed_precision", "no"},
     "--mixed_precision no: --mixed_precision bf16 stands before it; leave one of them"},
    {{"--use_cpu", "--use_cpu", "false"}, "--use_cpu false: --use_cpu stands before it"},
    {{"--mixed_precision", "no", "--mixed_precision", "bf16"}, NULL},
    {{"--packing", "wrapped", "--packing", "true"}, NULL},
    {{"--threads", "1025"}, "\"1025\" is no whole number from 0 to 1024"},
    {{"--save_steps", "0.1"}, "--save_steps 0.1: it is a number of steps; a share"},
    {{"--bf16", "1", "--fp16=0"}, NULL},
    {{"-m", "20"}, NULL},
    {{"-r", "3"}, "-r 3: that is --gradient_checkpointing"},
    {{"-d", "524288"}, "-d 524288: that is --gradient_accumulation_steps"},
    {{"-b", "4", "-q", "0", "-z1"}, NULL},
    {{"--summary_column", "s"}, NULL},
    {{"--label_smoothing", "2"}, "--label_smoothing: \"2\" is no number from"},
    {{"--learning_rate", "1e-400"}, "--learning_rate: \"1e-400\" is no number"},
    {{"--deepspeed_config", "no/such.json"},
     "--deepspeed_config: cannot open no/such.json"},
    {{"--prompt=x", "--generate_tokens=2", "--min_new_tokens=3"},
     "--min_new_tokens 3 is more than the 2 of --generate_tokens"},
    {{"--prompt=x", "--max_new_tokens=2", "--min_new_tokens=3"},
     "--min_new_tokens 3 is more than the 2 of --max_new_tokens"},
    {{"-q"},
     "-q is an option of zlaunch: write it before the target, as in: zlaunch -q "
     "TARGET.so"},
    {{"--timeout", "5"},
     "write it before the target, as in: zlaunch --timeout 5 TARGET.so"},
    {{"--timeout=5"}, "write it before the target, as in: zlaunch --timeout 5 TARGET.so"},
    {{"--quiet"}, "write it before the target, as in: zlaunch --quiet TARGET.so"},
    {{"-v", "--max_steps", "3"}, "-v is an option of zlaunch: write it before"},
    {{"-H", "hosts"}, "-H is an option of zlaunch: write it before the target"},
    {{"-m"}, "-m: a value is missing"},
    {{"-z", "9"}, "-z: \"zero_optimization.stage\" must be"},
    {{"--redirects", "0", "--nnodes=1:1", "--role", "default"}, NULL},
    {{"--include_num_input_tokens_seen", "non_padding", "--project", "huggingface"},
     NULL},
    {{"--deepspeed", "{\"zero_optimization\": {\"stage\": \"3\"}}"}, NULL},
    {{"--deepspeed", "{\"zero_optimization\": {\"stage\": \"4\"}}"},
     "must be one of 0|1|2|3, a number without quotes, not \"4\""},
    {{"--deepspeed",
      "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": \"1e-3\"}}}"},
     "\"optimizer.params.lr\" must be a number in [0,inf), not \"1e-3\": write it "
     "without "
     "quotes"},
    {{"--deepspeed", "{\"train_batch_size\": \"8\"}"}, "write it without quotes"},
    {{"--deepspeed", "{\"dump_state\": True}"}, "a value of Python's; JSON has true"},
    {{"--num_gpus", "-1"}, "--num_gpus is an option of zlaunch"},
    {{"--deepspeed",
      "{\"disable_python_gc\": true, \"zero_optimization\": {\"stage\": 1, "
      "\"compute_grad_norm\": false, \"parameter_alignment\": true}}"},
     NULL},
    {{"--deepspeed", "{\"replace_with_kernel_inject\": true, \"dtype\": \"fp16\"}"},
     "config for DeepSpeed's inference"},
    {{"--deepspeed",
      "{\"torch_autocast\": {\"enabled\": false, \"dtype\": \"torch.bfloat16\"}}"},
     NULL},
    {{"--deepspeed", "{\"optimizer\": {\"type\": \"Sophia\"}}"}, "one of AdamW|Adam,"},
};

static void test_foreign_values_decide(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
        struct run_trial t = try_run(1, NULL, (char *const *)(uintptr_t)answers[i].words);
        bool right = answers[i].text ? !t.run && strstr(t.fault.text, answers[i].text) &&
                                           !strchr(t.fault.text, '\n')
                                     : t.run != NULL;

        if (!right)
            print_error("%s %s: %s\n", answers[i].words[0],
                        answers[i].words[1] ? answers[i].words[1] : "", t.fault.text);
        assert_true(right);
        zt_run_close(t.run);
    }
}

static struct zt_run *accepted(struct run_trial t)
{
    if (!t.run)
        print_error("%s\n", t.fault.text);
    assert_non_null(t.run);
    return t.run;
}

static void test_foreign_names_set_our_options(void **state)
{
    struct zt_run *r = accepted(try_it(
        1, NULL, "--max_seq_length", "64", "--torch_dtype", "bfloat16", "--no_cuda",
        "--per_gpu_train_batch_size=3", "--activation_checkpointing", "--data_seed", "9",
        "--max_eval_samples", "5", "--eval_strategy", "steps", "--logging_steps", "7",
        "--eval_file", "Makefile", "--validation_split_percentage", "7", "--run_name",
        "a run", "--ddp_timeout", "1800", "--max_steps", "50", "--warmup_steps", "0.1"));

    (void)state;
    assert_int_equal(r->block_size, 64);
    assert_int_equal(r->compute_dtype, ZT_BF16);
    assert_string_equal(r->device, "cpu");
    assert_int_equal(r->micro_batch_size, 3);
    assert_true(r->gradient_checkpointing);
    assert_int_equal(r->data_seed, 9);
    assert_int_equal(r->max_eval_samples, 5);
    assert_true(r->do_eval);
    assert_int_equal(r->eval_steps, 7);
    assert_true(r->eval_fraction == 0.07);
    assert_string_equal(r->run_name, "a run");
    assert_true(r->ddp_timeout == 1800);
    assert_true(r->warmup_ratio == 0.1 && r->warmup_steps == 0);
    zt_run_close(r);
    r = accepted(try_it(1, NULL, "--no_cuda", "false", "--mixed_precision=FP16"));
    assert_string_equal(r->device, "auto");
    assert_int_equal(r->compute_dtype, ZT_F16);
    zt_run_close(r);
    r = accepted(try_it(1, NULL, "-i", "Makefile", "-t", "64", "-l6e-4", "-u", "7", "-x",
                        "50", "-c", "0.1", "-k", "cosine", "-y", "0"));
    assert_string_equal(r->train_files[0], "Makefile");
    assert_int_equal(r->block_size, 64);
    assert_int_equal(r->warmup_steps, 7);
    assert_int_equal(r->max_steps, 50);
    zt_run_close(r);
    r = accepted(try_it(1, NULL, "--zero_stage", "1", "-z", "2", "--zero_stage", "3"));
    assert_int_equal(r->zero.stage, 3); /* the last one, as of every option */
    zt_run_close(r);
    r = accepted(try_it(1, NULL, "--train_file", "Makefile", "--eval_strategy", "steps"));
    assert_true(r->do_train && r->do_eval);
    zt_run_close(r);
    r = accepted(try_it(1, "{\"steps_per_print\": 7}", "--eval_file", "Makefile",
                        "--eval_strategy", "steps"));
    assert_int_equal(r->eval_steps, 7); /* as often as progress is said */
    zt_run_close(r);
    r = accepted(try_it(1, "{\"steps_per_print\": Infinity}", "--eval_file", "Makefile",
                        "--eval_strategy", "steps"));
    assert_true(r->eval_steps > 1000000);
    zt_run_close(r);
}

/* accelerate launch's words, with the origin of the values where the config is shown. */
static void test_foreign_names_set_keys_of_the_config(void **state)
{
    struct zt_run *r =
        accepted(try_it(4, NULL, "--zero_stage=3", "--offload_optimizer_device=none",
                        "--zero3_save_16bit_model=true", "--gradient_clipping", "0.5",
                        "--ddp_bucket_cap_mb=25"));
    char *text = resolved_text(r);

    (void)state;
    assert_int_equal(r->zero.stage, 3);
    assert_true(r->zero.gather_16bit_on_save);
    assert_true(r->max_grad_norm == 0.5);
    assert_int_equal(r->zero.reduce_bucket_size, 25 * 1024 * 1024 / 4);
    assert_non_null(strstr(text, "\"stage\": 3, // --zero_stage\n"));
    free(text);
    zt_run_close(r);
}

/* What reads as a number or as true or false is a folder's name where a folder is meant. */
static void test_foreign_names_of_folders_are_taken_as_they_are(void **state)
{
    static char folders[][8] = {"off", "no", "true", "yes", "12", "1e3", "null"};

    (void)state;
    for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
        struct zt_run *r = accepted(try_it(
            1, NULL, "--zero_stage=3", "--offload_optimizer_device=nvme",
            "--offload_optimizer_nvme_path", folders[i], "--offload_param_device=nvme",
            "--offload_param_nvme_path", folders[i]));

        assert_string_equal(r->zero.offload_optimizer.nvme_paths[0], folders[i]);
        assert_null(r->zero.offload_optimizer.nvme_paths[1]);
        assert_string_equal(r->zero.offload_param.nvme_paths[0], folders[i]);
        zt_run_close(r);
    }
}

/* What was taken is said, to whoever looks at the config. */
static void test_foreign_names_that_are_taken_are_noted(void **state)
{
    struct zt_run *r = accepted(try_it(1, NULL, "--zero_stage", "2", "--dtype", "float32",
                                       "--max_seq_length", "64"));

    (void)state;
    assert_string_equal(zt_run_note(r, 0),
                        "--zero_stage 2 is \"zero_optimization.stage\": 2 of the config");
    assert_non_null(strstr(zt_run_note(r, 1), "--dtype float32: master weights"));
    assert_string_equal(zt_run_note(r, 2), "--max_seq_length 64 is --block_size 64");
    zt_run_close(r);
    r = accepted(try_it(1, NULL, "--eval_delay=0.0", "--fsdp=", "--fsdp", "False"));
    assert_non_null(strstr(zt_run_note(r, 1), "there is nothing to switch off"));
    assert_non_null(strstr(zt_run_note(r, 2), "there is nothing to switch off"));
    zt_run_close(r);
}

/* The rows of a name stand together, an option is a row for some values alone, and what a
 * row leads to is there. */
static void test_foreign_table_is_in_order(void **state)
{
    const struct zt_foreign *rows = zt_run_foreign_names.rows;
    zt_args *args = NULL;

    (void)state;
    assert_int_equal(zt_args_open(zt_run_options(), &args, NULL), ZT_OK);
    for (const struct zt_foreign *f = rows; f->name; f++) {
        if (zt_args_find(args, f->name) && !f->values) /* that ours does not take */
            fail_msg("%s is an option", f->name);
        if (f->answer == ZT_FOREIGN_OPTION)
            assert_non_null(zt_args_find(args, f->to));
        if (f->answer == ZT_FOREIGN_KEY)
            assert_non_null(zt_key_find(f->to));
        if ((f->answer == ZT_FOREIGN_OPTION || f->answer == ZT_FOREIGN_KEY) == !f->to)
            fail_msg("%s leads nowhere", f->name);
        for (const struct zt_foreign *g = rows; g < f; g++)
            if (!strcmp(g->name, f->name) && strcmp(f[-1].name, f->name) != 0)
                fail_msg("%s is in two places", f->name);
    }
    zt_args_close(args);
}

static void test_foreign_docs_are_current(void **state)
{
    char *text = NULL, old[65536];
    size_t n;
    FILE *f = open_memstream(&text, &n), *docs = fopen("docs/NAMES.md", "r");

    (void)state;
    assert_non_null(f);
    zt_run_print_names(f);
    fclose(f);
    assert_non_null(docs);
    assert_int_equal(fread(old, 1, sizeof(old), docs), n); /* else: make docs */
    assert_memory_equal(old, text, n);
    fclose(docs);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_foreign_every_name_is_answered),
        cmocka_unit_test(test_foreign_values_decide),
        cmocka_unit_test(test_foreign_names_set_our_options),
        cmocka_unit_test(test_foreign_names_set_keys_of_the_config),
        cmocka_unit_test(test_foreign_names_of_folders_are_taken_as_they_are),
        cmocka_unit_test(test_foreign_names_that_are_taken_are_noted),
        cmocka_unit_test(test_foreign_table_is_in_order),
        cmocka_unit_test(test_foreign_docs_are_current),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
