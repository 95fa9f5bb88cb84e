/*
 * main.c -- zero_to_fp32: the weights of a checkpoint as one fp32 model, for who knows
 * the script of that name. Options and meaning are DeepSpeed's.
 */
#include <stdio.h>

#include "worker/tools/export.h"
#include "worker/tools/output_name.h"
#include "worker/tools/tool.h"

static const struct zt_option options[] = {
    {.name = "tag",
     .kind = ZT_OPT_STRING,
     .letter = 't',
     .value = "TAG",
     .help =
         "which checkpoint of the folder; default: the one that its file `latest` names"},
    {.name = "max_shard_size",
     .kind = ZT_OPT_STRING,
     .value = "SIZE",
     .def = "5GB",
     .help = "cut files in an output folder at this size: 5GB, 500MB, 2GiB"},
    {.name = "safe_serialization",
     .kind = ZT_OPT_FLAG,
     .def = "false",
     .help = "write safetensors into an output folder instead of pytorch_model.bin"},
    {.name = "exclude_frozen_parameters",
     .kind = ZT_OPT_FLAG,
     .def = "false",
     .help = "leave out parameters that were not trained"},
    {.name = "debug",
     .kind = ZT_OPT_FLAG,
     .def = "false",
     .letter = 'd',
     .help = "name each tensor that is written"},
    {.name = NULL},
};

static void say(const struct zt_checkpoint_source *s, bool debug)
{
    int64_t elems = 0;
    int params = 0;

    printf("%s: %s\n", s->path, s->form);
    for (int i = 0; i < s->num; i++) {
        const struct zt_source_tensor *t = &s->tensors[i];

        if (zt_source_is_elsewhere(s, i))
            continue;
        if (debug)
            printf("  %s: %lld elements%s%s\n", t->t.name, (long long)t->t.numel,
                   t->t.alias_of ? ", another name of " : "",
                   t->t.alias_of ? t->t.alias_of : "");
        if (t->t.alias_of || t->buffer)
            continue;
        elems += t->t.numel;
        params++;
    }
    printf("%d parameters, %lld elements\n", params, (long long)elems);
}

/* What is of folders alone is not passed over beside a file. */
static zt_err check_options(const zt_args *args, const char *to, struct zt_fault *fault)
{
    if (zt_form_of_name(to) == ZT_NAME_FOLDER)
        return ZT_OK;
    if (zt_args_given(args, "max_shard_size"))
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--max_shard_size cuts files in a folder, and %s is one file",
                            to);
    if (zt_args_flag(args, "safe_serialization") && zt_form_of_name(to) == ZT_NAME_PICKLE)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--safe_serialization writes safetensors, and by its ending "
                            "%s is a file of torch.save: a name that ends in "
                            ".safetensors, or a folder, gets them",
                            to);
    return ZT_OK;
}

static zt_err run(const zt_args *args, const char *const *words, int num_words,
                  struct zt_fault *fault)
{
    struct zt_tensor_export how = {.to = words[1],
                                   .dtype = ZT_F32,
                                   .safe = zt_args_flag(args, "safe_serialization"),
                                   .leave_frozen =
                                       zt_args_flag(args, "exclude_frozen_parameters")};
    const char *size = zt_args_string(args, "max_shard_size");
    struct zt_checkpoint_source *s = NULL;
    struct zt_exported made;
    zt_err rc;

    (void)num_words;
    if (!zt_parse_size(size, &how.shard_bytes))
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--max_shard_size %s: no size; 5GB, 500MB and 2GiB are some",
                            size);
    rc = check_options(args, words[1], fault);
    if (!rc)
        rc = zt_source_open(words[0], zt_args_string(args, "tag"), &s, fault);
    if (!rc)
        say(s, zt_args_flag(args, "debug"));
    if (!rc)
        rc = zt_source_check_apart(s, words[1], fault);
    if (!rc)
        rc = zt_export(s, &how, &made, fault);
    if (!rc)
        zt_export_print(&how, &made, "fp32");
    zt_source_close(s);
    return rc;
}

static const struct zt_tool tool = {
    .name = "zero_to_fp32",
    .words = "CHECKPOINT_DIR OUTPUT",
    .about =
        "Write the weights of a checkpoint of zlaunch or of DeepSpeed (ZeRO stages 1 to "
        "3) as one model in fp32. OUTPUT that ends in .bin, .pt, .pth or .safetensors is "
        "a file, else a folder. Data stream through a small buffer, whatever their size",
    .min_words = 2,
    .max_words = 2,
    .options = options,
    .run = run,
};

int main(int argc, char **argv)
{
    return zt_tool_main(tool.name, "weights of a checkpoint as one fp32 model", &tool, 1,
                        argc, argv);
}
