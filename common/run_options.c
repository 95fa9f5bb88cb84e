/*
 * run_options.c -- the options behind the target. Names and defaults are those of Hugging
 * Face's Trainer where it has one.
 */
#include "common/run_options.h"

#define FLAG(n, text)                                                                    \
    {                                                                                    \
        .name = n, .kind = ZT_OPT_FLAG, .help = text                                     \
    }
#define INT(n, word, d, lo, hi, text)                                                    \
    {                                                                                    \
        .name = n, .kind = ZT_OPT_INT, .value = word, .def = d, .min = lo, .max = hi,    \
        .help = text                                                                     \
    }
#define REAL(n, word, d, lo, hi, text)                                                   \
    {                                                                                    \
        .name = n, .kind = ZT_OPT_FLOAT, .value = word, .def = d, .min = lo, .max = hi,  \
        .help = text                                                                     \
    }
#define TEXT(n, word, text)                                                              \
    {                                                                                    \
        .name = n, .kind = ZT_OPT_STRING, .value = word, .help = text                    \
    }
#define CHOICE(n, d, words, text)                                                        \
    {                                                                                    \
        .name = n, .kind = ZT_OPT_CHOICE, .value = words, .def = d, .choices = words,    \
        .help = text                                                                     \
    }
#define LIST(n, word, text)                                                              \
    {                                                                                    \
        .name = n, .kind = ZT_OPT_LIST, .value = word, .help = text                      \
    }

#define BIG   9e18
#define SMALL 2147483647.0

const struct zt_option zt_run_options[] = {
    TEXT("deepspeed", "FILE", "the config, in DeepSpeed's format"),
    FLAG("check_config", "print the resolved config, every value with its origin; stop"),
    FLAG("dry_run", "plan the memory, print it and stop"),
    FLAG("do_train", "train"),
    FLAG("do_eval", "evaluate, at the end and every --eval_steps"),

    LIST("train_file", "FILE...",
         "text or token files to learn from; globs are expanded"),
    LIST("eval_file", "FILE...",
         "files to evaluate on; without them a share of train_file is held out"),
    REAL("eval_fraction", "X", "0.1", 1e-6, 0.9, "the share that is held out"),
    CHOICE("data_format", "auto", "auto|text|nanogpt|llmc|megatron",
           "what the files are; auto looks at name and first bytes"),
    INT("block_size", "N", "0", 0, SMALL,
        "tokens per training row; 0: as many as the model takes"),
    FLAG("dataloader_drop_last", "leave out the last rows that fill no whole batch"),

    TEXT("model_name_or_path", "PATH",
         "start from these weights: a Hugging Face folder or a .safetensors file"),
    TEXT("output_dir", "DIR", "where the weights go; without it nothing is saved"),
    FLAG("overwrite_output_dir", "replace weights that are in output_dir"),

    INT("max_steps", "N", "-1", -1, BIG,
        "optimizer steps; -1: as many as num_train_epochs has"),
    REAL("num_train_epochs", "X", "3", 0, 1e12, "passes over the training files"),
    INT("per_device_train_batch_size", "N", "8", 1, SMALL,
        "rows per rank and micro-batch"),
    INT("per_device_eval_batch_size", "N", "8", 1, SMALL,
        "rows per rank in an evaluation"),
    INT("gradient_accumulation_steps", "N", "1", 1, SMALL,
        "micro-batches per optimizer step"),
    INT("seed", "N", "42", 0, BIG, "of initial weights, order of rows and dropout"),

    REAL("learning_rate", "X", "5e-5", 0, 1e6, "the optimizer's rate"),
    REAL("weight_decay", "X", "0", 0, 1e6, "of matrices and embeddings"),
    REAL("adam_beta1", "X", "0.9", 0, 1, "decay of the first moment"),
    REAL("adam_beta2", "X", "0.999", 0, 1, "decay of the second moment"),
    REAL("adam_epsilon", "X", "1e-8", 0, 1, "added to the root of the second moment"),
    REAL("max_grad_norm", "X", "1", 0, 1e12,
         "clip gradients to this global norm; 0: do not"),
    CHOICE("optim", "adamw", "adamw|adamw_torch|adamw_torch_fused",
           "the optimizer; all three names mean the same here"),
    CHOICE("lr_scheduler_type", "linear", "linear|cosine|constant|constant_with_warmup",
           "how the rate changes, when the config has no scheduler"),
    INT("warmup_steps", "N", "0", 0, BIG, "steps in which the rate rises from 0"),
    REAL("warmup_ratio", "X", "0", 0, 1,
         "the same as a share of all steps, when warmup_steps is 0"),

    FLAG("fp16", "compute in half precision with loss scaling"),
    FLAG("bf16", "compute in bfloat16"),
    FLAG("tf32",
         "without fp16 and bf16: products round fp32 to TF32 (10 bits of fraction), "
         "which a GPU multiplies faster"),
    FLAG("fp8",
         "with bf16: linear layers multiply fp8, scaled per tensor; not the output "
         "layer"),
    FLAG("stochastic_rounding",
         "with bf16: the optimizer rounds weights up or down by chance, not to nearest"),
    FLAG("gradient_checkpointing",
         "keep only the inputs of blocks and compute the rest again: less memory"),
    FLAG("reduce_every_micro_batch",
         "sum gradients over ranks after each micro-batch, as ZeRO stages 2 and 3 do"),
    CHOICE("device", "auto", "auto|cpu|cuda|meta", "where the tensors live"),
    CHOICE(
        "comm", "auto", "auto|shm|mpi|tcp",
        "how ranks talk: shared memory of a node, MPI, or TCP; auto: the first of these "
        "that the launch gave"),
    CHOICE(
        "reduction_order", "rank", "rank|any",
        "sums over GPUs: in the order of ranks, the same bits whatever the stage, or in "
        "any, faster"),
    FLAG("share_gpu", "let several ranks use one GPU, for tests"),
    FLAG("share_node_weights",
         "ZeRO 1 and 2: ranks of a node keep one copy of the weights between them"),
    INT("threads", "N", "0", 0, 4096,
        "compute threads per rank; 0: the cores of the machine divided by its ranks"),

    INT("logging_steps", "N", "10", 1, BIG, "steps between two progress reports"),
    INT("eval_steps", "N", "0", 0, BIG, "steps between evaluations; 0: only the last"),
    INT("eval_batches", "N", "0", 0, BIG, "most batches of one evaluation; 0: all"),
    INT("fingerprint_steps", "N", "0", 0, BIG,
        "report a hash of the weights every N steps; 0: never"),
    TEXT(
        "trace", "FILE",
        "write a timeline of compute and communication of all ranks, in Chrome's format"),

    TEXT("prompt", "TEXT", "text to continue when all is done"),
    INT("generate_tokens", "N", "0", 0, SMALL,
        "how many tokens to add to it; 100 when there is a prompt"),
    REAL("temperature", "X", "1", 0, 1000,
         "randomness of the text; 0: always the likeliest"),
    INT("top_k", "N", "0", 0, SMALL, "choose among the N likeliest; 0: among all"),
    REAL("top_p", "X", "1", 0, 1, "choose among those that make up this probability"),

    TEXT("resume_from_checkpoint", "DIR", "go on from a checkpoint"),
    INT("save_steps", "N", NULL, 0, 0, "steps between checkpoints"),
    INT("save_total_limit", "N", NULL, 0, 0, "checkpoints to keep"),
    TEXT("save_strategy", "WHEN", "when to write checkpoints"),
    TEXT("eval_strategy", "WHEN", "when to evaluate"),
    TEXT("report_to", "NAME", "where to send metrics"),
    TEXT("logging_dir", "DIR", "folder of metrics"),
    FLAG("torch_compile", "compile the model"),
    REAL("label_smoothing_factor", "X", NULL, 0, 0, "smooth the targets"),
    {.name = NULL},
};

const struct zt_option_extra zt_run_extras[] = {
    {.name = "deepspeed", .group = "Run", .alias = "deepspeed_config"},
    {.name = "train_file", .group = "Data"},
    {.name = "eval_file", .alias = "validation_file"},
    {.name = "model_name_or_path", .group = "Weights"},
    {.name = "max_steps", .group = "Length and batch"},
    {.name = "learning_rate", .group = "Optimizer and schedule"},
    {.name = "fp16", .group = "Numbers and machine"},
    {.name = "logging_steps", .group = "Reports"},
    {.name = "prompt", .group = "Text"},
    {.name = "resume_from_checkpoint",
     .group = "Known, but refused by this version",
     .refused = "checkpoints cannot be resumed yet; --model_name_or_path starts from "
                "saved weights"},
    {.name = "save_steps",
     .refused = "only the final weights are saved; give --output_dir"},
    {.name = "save_total_limit", .refused = "only the final weights are saved"},
    {.name = "save_strategy",
     .refused = "only the final weights are saved; give --output_dir"},
    {.name = "eval_strategy", .refused = "give --do_eval and --eval_steps instead"},
    {.name = "report_to",
     .refused = "metrics go to standard output; see zlaunch --log_format json"},
    {.name = "logging_dir",
     .refused = "metrics go to standard output; see zlaunch --log_format json"},
    {.name = "torch_compile", .refused = "plugins are compiled C already"},
    {.name = "label_smoothing_factor", .refused = "targets are not smoothed"},
    {.name = NULL},
};
