/* main.c -- zckpt: look into checkpoints, compare, convert and clear them away. */
#include <stddef.h>

#include "worker/tools/tool.h"
#include "worker/tools/zckpt/zckpt.h"

#define TAG                                                                              \
    {                                                                                    \
        .name = "tag", .kind = ZT_OPT_STRING, .letter = 't', .value = "TAG",             \
        .help = "which checkpoint of the folder; default: the one that its file "        \
                "`latest` names"                                                         \
    }
#define END                                                                              \
    {                                                                                    \
        .name = NULL                                                                     \
    }

static const struct zt_option tag_only[] = {TAG, END};

static const struct zt_option diff_options[] = {
    {.name = "kind",
     .kind = ZT_OPT_STRING,
     .def = "value",
     .value = "KIND",
     .help = "what is compared: value, or a kind of state that ls shows (exp_avg)"},
    {.name = "tolerance",
     .kind = ZT_OPT_FLOAT,
     .def = "0",
     .value = "X",
     .max = 1e30,
     .help = "differences of elements up to this count as none"},
    END};

#define OVERWRITE                                                                        \
    {                                                                                    \
        .name = "overwrite", .kind = ZT_OPT_FLAG,                                        \
        .help = "replace the file or the model that is there"                            \
    }

static const struct zt_option average_options[] = {OVERWRITE, END};

static const struct zt_option convert_options[] = {
    TAG,
    {.name = "to",
     .kind = ZT_OPT_CHOICE,
     .choices = "zlaunch|safetensors|pickle|gguf|universal",
     .help =
         "the form to write: a checkpoint to resume from, weights (safetensors, "
         "pytorch_model.bin), a file for llama.cpp, DeepSpeed's universal checkpoint. "
         "Default: by DST's ending, else zlaunch for a checkpoint of DeepSpeed and "
         "safetensors for others"},
    {.name = "dtype",
     .kind = ZT_OPT_CHOICE,
     .def = "f32",
     .choices = "f32|f16|bf16|q8_0",
     .help = "of weights (safetensors, pickle, gguf); q8_0 is for gguf alone"},
    {.name = "max_shard_size",
     .kind = ZT_OPT_STRING,
     .value = "SIZE",
     .def = "5GB",
     .help = "cut files of weights in a folder at this size"},
    OVERWRITE,
    END};

static const struct zt_option prune_options[] = {
    {.name = "keep",
     .kind = ZT_OPT_INT,
     .value = "N",
     .min = 1,
     .max = 1e9,
     .help = "how many stay, the best and the newest in any case; must be given"},
    {.name = "no_verify",
     .kind = ZT_OPT_FLAG,
     .help = "do not read the newest first: its shards are on several machines"},
    {.name = "dry_run",
     .kind = ZT_OPT_FLAG,
     .help = "say what would be removed and how many bytes that is; remove nothing"},
    END};

static const struct zt_tool tools[] = {
    {"zckpt ls", "PATH", "List what a checkpoint or a folder of weights holds", 1, 1,
     tag_only, zt_zckpt_ls},
    {"zckpt verify", "PATH ...",
     "Read all of each: that every tensor is there and finite, and the check sums of a "
     "checkpoint of zlaunch",
     1, ZT_TOOL_MAX_WORDS, tag_only, zt_zckpt_verify},
    {"zckpt diff", "A B", "Compare two, tensor by tensor; exit code 1 when they differ",
     2, 2, diff_options, zt_zckpt_diff},
    {"zckpt convert", "SRC DST",
     "Write a checkpoint or weights in another form. A checkpoint of DeepSpeed becomes "
     "one "
     "to resume from, with its moments",
     2, 2, convert_options, zt_zckpt_convert},
    {"zckpt average", "OUT A B ...",
     "Write the mean of the weights of several in fp32, as safetensors where OUT's "
     "ending "
     "says no other form",
     3, ZT_TOOL_MAX_WORDS, average_options, zt_zckpt_average},
    {"zckpt prune", "OUTPUT_DIR",
     "Remove the oldest checkpoint-N of a run's output folder; the best and the newest "
     "stay",
     1, 1, prune_options, zt_zckpt_prune},
};

int main(int argc, char **argv)
{
    return zt_tool_main("zckpt",
                        "look into checkpoints, compare, convert and clear them away",
                        tools, (int)(sizeof(tools) / sizeof(*tools)), argc, argv);
}
