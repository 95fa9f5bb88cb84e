/* What sections of a DeepSpeed config become: optimizer, schedule, loss scale, ZeRO, offload, precision. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "test/unit/config/run_asserts.h"

static void test_run_adam_is_decoupled_unless_told(void **state)
{
    struct zt_run *r =
        accepted(try_it(1, "{\"optimizer\": {\"type\": \"adam\", \"params\": {}}}"));

    (void)state;
    assert_string_equal(r->optim.optimizer->name, "AdamW");
    assert_true(optim_value(r, "lr") == 1e-3); /* a section without lr has DeepSpeed's */
    zt_run_close(r);
    r = accepted(try_it(1, "{\"optimizer\": {\"type\": \"Adam\", \"params\": "
                           "{\"adam_w_mode\": false}}}"));
    assert_string_equal(r->optim.optimizer->name, "Adam");
    zt_run_close(r);
    r = accepted(try_it(1, "{\"optimizer\": {\"type\": \"AdamW\", \"params\": "
                           "{\"adam_w_mode\": false, \"torch_adam\": true}}}"));
    assert_string_equal(r->optim.optimizer->name, "AdamW");
    assert_true(optim_value(r, "weight_decay") == 0.01);
    assert_non_null(strstr(zt_run_note(r, 0), "false has no effect with AdamW"));
    zt_run_close(r);
}

static void test_run_parameters_are_in_range_in_single_precision(void **state)
{
    (void)state;
    refused(try_it(1, NULL, "--adam_beta1=0.99999999"), ZT_E_USAGE, "--adam_beta1",
            "must be in [0,1), and 0.99999999 is not in single precision");
    refused(try_it(1, "{\"optimizer\": {\"type\": \"AdamW\", \"params\": "
                      "{\"betas\": [0.9, 0.999999999]}}}"),
            ZT_E_CONFIG, "optimizer.params.betas", "0.999999999 is not");
    refused(try_it(1, "{\"optimizer\": {\"type\": \"AdamW\", \"params\": "
                      "{\"eps\": 1e-50}}}"),
            ZT_E_CONFIG, "optimizer.params.eps", "in which it is 0");
    refused(try_it(1, "{\"optimizer\": {\"type\": \"AdamW\", \"params\": "
                      "{\"lr\": 1e300}}}"),
            ZT_E_CONFIG, "optimizer.params.lr", "in which it is inf");
    zt_run_close(accepted(try_it(1, NULL, "--adam_beta2=0.9999999")));
}

static void test_run_gradients_stay_in_range(void **state)
{
    (void)state;
    refused(try_it(2, "{\"communication_data_type\": \"fp16\", "
                      "\"gradient_predivide_factor\": 1e6}"),
            ZT_E_CONFIG, "gradient_predivide_factor 1e+06", "out of the range of fp16");
    refused(try_it(2, "{\"gradient_predivide_factor\": 1e-40}"), ZT_E_CONFIG,
            "gradient_predivide_factor 1e-40", "out of the range of single precision");
    zt_run_close(accepted(try_it(2, "{\"gradient_predivide_factor\": 1e6}")));
    refused(try_it(2, "{\"gradient_clipping\": 1e-50}"), ZT_E_CONFIG,
            "gradient_clipping 1e-50", "0 is without clipping");
    zt_run_close(accepted(try_it(2, "{\"gradient_clipping\": 1e-12}")));
}

static void test_run_schedules_have_deepspeeds_defaults(void **state)
{
    struct zt_run *r = accepted(
        try_it(1, "{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 3e-4}},"
                  "\"scheduler\": {\"type\": \"WarmupLR\"}}"));
    struct run_trial t;

    (void)state;
    assert_true(sched_value(r, "warmup_max_lr") == 3e-4); /* the optimizer's */
    assert_true(sched_value(r, "warmup_num_steps") == 1000);
    assert_true(sched_value(r, "warmup_type") == 0); /* log */
    zt_run_close(r);
    r = accepted(try_it(1, "{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": "
                           "{\"total_num_steps\": 500, \"warmup_type\": \"linear\"}}}"));
    assert_true(sched_value(r, "warmup_max_lr") == 1e-3);
    assert_true(sched_value(r, "total_num_steps") == 500);
    assert_true(sched_value(r, "warmup_type") == 1); /* linear */
    zt_run_close(r);
    r = accepted(
        try_it(1, "{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 3e-4}},"
                  "\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": "
                  "{\"total_num_steps\": 500, \"warmup_max_lr\": \"auto\"}}}"));
    assert_true(sched_value(r, "warmup_max_lr") == 3e-4); /* not an option's default */
    zt_run_close(r);
    refused(try_it(1, "{\"scheduler\": {\"type\": \"WarmupDecayLR\"}}"), ZT_E_CONFIG,
            "WarmupDecayLR", "total_num_steps");
    t = try_it(1, "{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": "
                  "{\"total_num_steps\": 0}}}");
    assert_null(strstr(t.fault.text, "needs")); /* it is there */
    refused(t, ZT_E_CONFIG, "total_num_steps", "not 0");
    refused(try_it(1, NULL, "--lr_scheduler_type", "constant", "--warmup_steps", "5"),
            ZT_E_USAGE, "--warmup_steps", "constant_with_warmup");
    r = accepted(try_it(1, NULL, "--lr_scheduler_type", "cosine", "--warmup_ratio", "0.1",
                        "--max_steps", "55"));
    assert_ptr_equal(r->sched.schedule, zt_schedule_of_option("cosine"));
    assert_true(sched_value(r, "warmup_num_steps") == 6); /* rounded up */
    assert_true(sched_value(r, "total_num_steps") == 55);
    zt_run_close(r);
    r = accepted(try_it(1, NULL, "--warmup_ratio", "0.1", "--warmup_steps", "5"));
    assert_string_equal(zt_run_note(r, 0),
                        "--warmup_ratio 0.1 gives way to --warmup_steps 5");
    zt_run_close(r);
}

static void test_run_loss_scaling_is_read(void **state)
{
    struct zt_run *r = accepted(try_it(
        1, "{\"fp16\": {\"enabled\": \"true\", \"loss_scale\": 128, "
           "\"initial_scale_power\": 12, \"loss_scale_window\": 5e2, \"hysteresis\": "
           "3, \"consecutive_hysteresis\": true, \"min_loss_scale\": 2}}"));

    (void)state;
    assert_int_equal(r->compute_dtype, ZT_F16);
    assert_true(r->scaler.loss_scale == 128 && r->scaler.min_loss_scale == 2);
    assert_int_equal(r->scaler.initial_scale_power, 12);
    assert_int_equal(r->scaler.loss_scale_window, 500);
    assert_int_equal(r->scaler.hysteresis, 3);
    assert_true(r->scaler.consecutive_hysteresis);
    zt_run_close(r);
    refused(try_it(1, "{\"fp16\": {\"initial_scale_power\": 1, \"min_loss_scale\": 4}}"),
            ZT_E_CONFIG, "min_loss_scale", "initial_scale_power");
    refused(try_it(1, "{\"fp16\": {\"enabled\": true, \"loss_scale\": 1e-10}}"),
            ZT_E_CONFIG, "loss_scale 1e-10", "smaller");
}

/* Every key of the section reaches the options, "auto" follows the model's width. */
static void test_run_zero_section_is_read(void **state)
{
    struct zt_run *r = accepted(try_it(
        4, "{\"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": \"auto\","
           " \"stage3_prefetch_bucket_size\": \"auto\", \"param_persistence_threshold\":"
           " \"auto\", \"max_live_parameters\": 5e6, \"stage3_max_reuse_distance\": 7,"
           " \"model_persistence_threshold\": 8, \"sub_group_size\": 9,"
           " \"allgather_partitions\": false, \"allgather_bucket_size\": 10,"
           " \"reduce_scatter\": false, \"overlap_comm\": false,"
           " \"ignore_unused_parameters\": false, \"zero_hpz_partition_size\": 2,"
           " \"stage3_gather_fp16_weights_on_model_save\": true},"
           " \"communication_data_type\": \"bf16\", \"prescale_gradients\": true,"
           " \"data_types\": {\"grad_accum_dtype\": \"fp16\"},"
           " \"gradient_predivide_factor\": 2.5}"));
    const struct zt_zero_options *o = &r->zero;

    (void)state;
    assert_int_equal(zt_run_resolve(r, 100, 10, NULL), ZT_OK);
    assert_int_equal(o->stage, 3);
    assert_int_equal(o->reduce_bucket_size, 10000);
    assert_int_equal(o->prefetch_bucket_size, 9000);
    assert_int_equal(o->param_persistence_threshold, 1000);
    assert_int_equal(o->max_live_parameters, 5000000);
    assert_int_equal(o->max_reuse_distance, 7);
    assert_int_equal(o->model_persistence_threshold, 8);
    assert_int_equal(o->sub_group_size, 9);
    assert_int_equal(o->allgather_bucket_size, 10);
    assert_int_equal(o->hpz_partition_size, 2);
    assert_false(o->allgather_partitions || o->reduce_scatter || o->overlap_comm);
    assert_false(o->ignore_unused_parameters);
    assert_true(o->gather_16bit_on_save && o->prescale_gradients);
    assert_int_equal(o->communication_dtype, ZT_BF16);
    assert_int_equal(o->grad_accum_dtype, ZT_F16);
    assert_true(o->predivide_factor == 2.5);
    zt_run_close(r);
}

static void test_run_zero_defaults_are_deepspeeds(void **state)
{
    struct zt_run *r = accepted(try_it(2, "{\"zero_optimization\": {\"stage\": 3}}"));
    const struct zt_zero_options *o = &r->zero;

    (void)state;
    assert_true(o->overlap_comm && o->reduce_scatter && o->allgather_partitions);
    assert_int_equal(o->reduce_bucket_size, 500000000);
    assert_int_equal(o->prefetch_bucket_size, 50000000);
    assert_int_equal(o->param_persistence_threshold, 100000);
    assert_true(o->model_persistence_threshold == INT64_MAX);
    assert_int_equal(o->max_live_parameters, 1000000000);
    assert_int_equal(o->communication_dtype, ZT_F32);
    assert_int_equal(o->hpz_partition_size, 1);
    zt_run_close(r);
    r = accepted(try_it(2, "{\"zero_optimization\": {\"stage\": 2}}"));
    assert_false(r->zero.overlap_comm);
    zt_run_close(r);
}

static void test_run_zero_contradictions_are_named(void **state)
{
    (void)state;
    refused(try_it(4, "{\"zero_optimization\": {\"stage\": 2,"
                      " \"zero_hpz_partition_size\": 2}}"),
            ZT_E_CONFIG, "zero_hpz_partition_size", "needs stage 3");
    refused(try_it(4, "{\"zero_optimization\": {\"stage\": 3,"
                      " \"zero_hpz_partition_size\": 3}}"),
            ZT_E_CONFIG, "zero_hpz_partition_size", "does not divide");
    /* 2^32 + 1, which an int would make 1 of */
    refused(try_it(4, "{\"zero_optimization\": {\"stage\": 3,"
                      " \"zero_hpz_partition_size\": 4294967297}}"),
            ZT_E_CONFIG, "zero_hpz_partition_size", "in [1,2147483647]");
    refused(try_it(2, "{}", "--share_node_weights"), ZT_E_USAGE, "--share_node_weights",
            "stages 1 and 2, not 0");
}

static void test_run_offload_in_its_spellings(void **state)
{
    const struct zt_offload_optimizer *o;
    struct zt_run *r =
        accepted(try_it(2,
                        "{\"zero_optimization\": {\"stage\": 1, \"offload_optimizer\":"
                        " {\"device\": \"cpu\", \"ratio\": 0.4}}}",
                        "--device_memory=1.5GiB"));

    (void)state;
    o = &r->zero.offload_optimizer;
    assert_true(o->device == ZT_OFFLOAD_CPU && o->ratio == 0.4);
    assert_int_equal(r->device_memory_bytes, 3ull << 29);
    zt_run_close(r);
    r = accepted(
        try_it(1, "{\"zero_optimization\": {\"stage\": 2, \"cpu_offload\": true}}"));
    o = &r->zero.offload_optimizer;
    assert_true(o->device == ZT_OFFLOAD_CPU && o->ratio == 1);
    zt_run_close(r);
    refused(try_it(1, "{\"zero_optimization\": {\"stage\": 2, \"cpu_offload\": true,"
                      " \"offload_optimizer\": {\"device\": \"none\"}}}"),
            ZT_E_CONFIG, "cpu_offload", "leave one of them out");
    refused(try_it(1, "{\"zero_optimization\": {\"stage\": 2, \"cpu_offload\": true,"
                      " \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": "
                      "\"/a\"}}}"),
            ZT_E_CONFIG, "cpu_offload", "is nvme; leave one of them out");
    refused(try_it(1,
                   "{\"zero_optimization\": {\"offload_optimizer\":"
                   " {\"device\": \"cpu\"}}}",
                   "--do_train", "--train_file=/proc/self/exe"),
            ZT_E_CONFIG, "offload_optimizer", "needs ZeRO stage 1, 2 or 3");
    refused(try_it(2,
                   "{\"data_types\": {\"grad_accum_dtype\": \"bf16\"},"
                   " \"gradient_accumulation_steps\": 2, \"zero_optimization\":"
                   " {\"stage\": 1, \"offload_optimizer\": {\"device\": \"cpu\"}}}",
                   "--do_train", "--train_file=/proc/self/exe"),
            ZT_E_CONFIG, "offload_optimizer", "--reduce_every_micro_batch");
    r = accepted(try_it(
        1,
        "{\"aio\": {\"thread_count\": 3, \"block_size\": 8192},"
        " \"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\":"
        " \"nvme\", \"nvme_path\": [\"/a\", \"/b\"], \"pipeline_read\": true}}}",
        "--verify_swap=false"));
    o = &r->zero.offload_optimizer;
    assert_true(o->device == ZT_OFFLOAD_NVME && o->pipeline_read && !o->pipeline_write);
    assert_string_equal(o->nvme_paths[1], "/b");
    assert_null(o->nvme_paths[2]);
    assert_true(r->aio.threads == 3 && r->aio.block_size == 8192 && !r->verify_swap);
    zt_run_close(r);
    refused(try_it(1, "{\"aio\": {\"thread_count\": 4, \"intra_op_parallelism\": 2}}"),
            ZT_E_CONFIG, "\"aio.thread_count\" is 4, but ",
            "\"aio.intra_op_parallelism\" is 2; leave one of them out");
    r = accepted(try_it(1, "{\"zero_optimization\":"
                           " {\"stage3_gather_fp16_weights_on_model_save\": true,"
                           " \"stage3_gather_16bit_weights_on_model_save\": \"auto\"}}"));
    assert_true(r->zero.gather_16bit_on_save);
    zt_run_close(r);
    refused(
        try_it(1,
               "{\"zero_optimization\": {\"stage\": 2, \"aio\": {\"block_size\": 5000},"
               " \"offload_optimizer\": {\"device\": \"nvme\"}}}"),
        ZT_E_CONFIG, "aio.block_size 5000", "offload_optimizer.nvme_path, a folder");
    refused(try_it(1, "{\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\":"
                      " {\"device\": \"nvme\", \"nvme_path\": [7]}}}"),
            ZT_E_CONFIG, "offload_optimizer.nvme_path", "must be a folder");
    refused(try_it(1, "{\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\":"
                      " {\"device\": \"nvme\", \"nvme_path\": []}}}"),
            ZT_E_CONFIG, "offload_optimizer.nvme_path", "must be a folder");
    refused(try_it(1, "{\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\":"
                      " {\"device\": \"nvme\", \"nvme_path\": \"auto\"}}}"),
            ZT_E_CONFIG, "say where, with ", "offload_optimizer.nvme_path, a folder");
    r = accepted(try_it(1,
                        "{\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\":"
                        " {\"device\": \"nvme\", \"nvme_path\": \"auto\"}}}",
                        "--offload_optimizer_nvme_path=/a"));
    assert_string_equal(r->zero.offload_optimizer.nvme_paths[0], "/a");
    zt_run_close(r);
    r = accepted(
        try_it(1, "{\"zero_optimization\": {\"stage\": 3, \"cpu_offload_params\": true,"
                  " \"offload_param\": {\"buffer_size\": 5000}}}"));
    assert_true(r->zero.offload_param.device == ZT_OFFLOAD_CPU);
    assert_int_equal(r->zero.offload_param.buffer_size, 5000);
    assert_int_equal(r->zero.offload_param.max_in_cpu, 0);
    zt_run_close(r);
    r = accepted(
        try_it(1, "{\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\":"
                  " \"nvme\", \"nvme_path\": \"/a\", \"max_in_cpu\": 1e9}}}"));
    assert_int_equal(r->zero.offload_param.max_in_cpu, 1000000000);
    assert_non_null(strstr(zt_run_note(r, 0), "1e9 is taken as 1000000000"));
    assert_null(zt_run_note(r, 1));
    zt_run_close(r);
    refused(try_it(1, "{\"zero_optimization\": {\"stage\": 3, \"offload_param\":"
                      " {\"device\": \"nvme\", \"nvme_path\": \"/a\","
                      " \"max_in_cpu\": -1}}}"),
            ZT_E_CONFIG, "offload_param.max_in_cpu", "[0,inf)");
    r = accepted(
        try_it(1, "{\"zero_optimization\": {\"stage\": 3, \"offload_param\":"
                  " {\"device\": \"cpu\", \"max_in_cpu\": 7, \"buffer_count\": 7}}}"));
    assert_null(zt_run_note(r, 0)); /* of nvme alone, both */
    zt_run_close(r);
    refused(
        try_it(4, "{\"zero_optimization\": {\"stage\": 2, \"zero_hpz_partition_size\":"
                  " 2, \"offload_param\": {\"device\": \"nvme\"}}}"),
        ZT_E_CONFIG, "offload_param needs ZeRO stage 3", "offload_param.nvme_path, a");
    r = accepted(try_it(1, "{\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\":"
                           " {\"device\": \"cpu\", \"nvme_path\": \"/a\"}}}"));
    assert_non_null(strstr(zt_run_note(r, 0), "\"device\" beside it is cpu, not nvme"));
    assert_null(zt_run_note(r, 1));
    zt_run_close(r);
    refused(try_it(1, "{\"aio\": {\"use_gds\": true}}"), ZT_E_CONFIG, "aio.use_gds",
            "cuFile");
    refused(try_it(1, NULL, "--device_memory=3x"), ZT_E_USAGE, "--device_memory", "2GiB");
    refused(try_it(1, NULL, "--device_memory=9e9G"), ZT_E_USAGE, "--device_memory",
            "2GiB");
    r = accepted(try_it(1, NULL, "--device_memory=20000000K"));
    assert_int_equal(r->device_memory_bytes, 20480000000);
    zt_run_close(r);
}

static void test_run_tf32_is_for_products_of_fp32(void **state)
{
    struct zt_run *r = accepted(try_it(1, NULL, "--tf32"));

    (void)state;
    assert_true(r->tf32);
    assert_null(zt_run_note(r, 0));
    zt_run_close(r);
    r = accepted(try_it(1, "{\"zlaunch\": {\"tf32\": true}}"));
    assert_true(r->tf32);
    zt_run_close(r);
    /* as in many a recipe for Hugging Face's Trainer */
    r = accepted(try_it(1, NULL, "--bf16", "True", "--tf32", "True"));
    assert_false(r->tf32);
    assert_string_equal(zt_run_note(r, 0),
                        "--tf32 changes nothing: no product is of fp32");
    zt_run_close(r);
    r = accepted(try_it(1, NULL));
    assert_false(r->tf32);
    zt_run_close(r);
}

static void test_run_stochastic_rounding_is_for_bf16(void **state)
{
    struct zt_run *r = accepted(try_it(1, NULL, "--bf16", "--stochastic_rounding"));

    (void)state;
    assert_true(r->stochastic_rounding);
    zt_run_close(r);
    r = accepted(try_it(1, "{\"bf16\": {\"enabled\": true},"
                           " \"zlaunch\": {\"stochastic_rounding\": true}}"));
    assert_true(r->stochastic_rounding);
    zt_run_close(r);
    refused(try_it(1, NULL, "--stochastic_rounding"), ZT_E_USAGE, "--stochastic_rounding",
            "give --bf16");
    refused(try_it(1, "{\"fp16\": {\"enabled\": true},"
                      " \"zlaunch\": {\"stochastic_rounding\": true}}"),
            ZT_E_CONFIG, "stochastic_rounding", "give --bf16");
}

static void test_run_split_master_is_for_bf16_rounded_to_nearest(void **state)
{
    struct zt_run *r = accepted(try_it(1, NULL, "--bf16", "--split_master"));

    (void)state;
    assert_true(r->split_master);
    zt_run_close(r);
    r = accepted(try_it(1, "{\"bf16\": {\"enabled\": true},"
                           " \"zlaunch\": {\"split_master\": true}}"));
    assert_true(r->split_master);
    zt_run_close(r);
    r = accepted(try_it(1, NULL, "--bf16"));
    assert_false(r->split_master);
    zt_run_close(r);
    refused(try_it(1, NULL, "--split_master"), ZT_E_USAGE, "--split_master",
            "give --bf16");
    refused(try_it(1, NULL, "--fp16", "--split_master"), ZT_E_USAGE, "--split_master",
            "give --bf16");
    refused(try_it(1, "{\"bf16\": {\"enabled\": true}, \"zlaunch\":"
                      " {\"split_master\": true, \"stochastic_rounding\": true}}"),
            ZT_E_CONFIG, "zlaunch.split_master", "zlaunch.stochastic_rounding");
}

static void test_run_fp8_goes_on_top_of_bf16(void **state)
{
    struct zt_run *r = accepted(try_it(1, NULL, "--bf16", "--fp8"));

    (void)state;
    assert_true(r->fp8 && r->compute_dtype == ZT_BF16);
    zt_run_close(r);
    r = accepted(try_it(1, "{\"bf16\": {\"enabled\": true},"
                           " \"zlaunch\": {\"fp8\": true}}"));
    assert_true(r->fp8);
    zt_run_close(r);
    refused(try_it(1, NULL, "--fp8"), ZT_E_USAGE, "--fp8 is about", "give --bf16");
    refused(try_it(1, NULL, "--fp8", "--fp16"), ZT_E_USAGE, "--fp8", "give --bf16");
    refused(try_it(1, "{\"zlaunch\": {\"fp8\": true}}"), ZT_E_CONFIG, "zlaunch.fp8",
            "give --bf16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_adam_is_decoupled_unless_told),
        cmocka_unit_test(test_run_parameters_are_in_range_in_single_precision),
        cmocka_unit_test(test_run_gradients_stay_in_range),
        cmocka_unit_test(test_run_schedules_have_deepspeeds_defaults),
        cmocka_unit_test(test_run_loss_scaling_is_read),
        cmocka_unit_test(test_run_zero_section_is_read),
        cmocka_unit_test(test_run_zero_defaults_are_deepspeeds),
        cmocka_unit_test(test_run_zero_contradictions_are_named),
        cmocka_unit_test(test_run_offload_in_its_spellings),
        cmocka_unit_test(test_run_tf32_is_for_products_of_fp32),
        cmocka_unit_test(test_run_stochastic_rounding_is_for_bf16),
        cmocka_unit_test(test_run_split_master_is_for_bf16_rounded_to_nearest),
        cmocka_unit_test(test_run_fp8_goes_on_top_of_bf16),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
