/*
 * main.c -- ztok: text files as token ids, once, for runs that read them (docs/DATA.md).
 *
 *      OUT.bin   the ids of all lines, one behind the other
 *      OUT.idx   Megatron's index of them: a line is a sequence, and a document
 *
 * With --train it makes a tokenizer of them: OUT/tokenizer.json. The ids are those that
 * --train_file makes of the same text.
 */
#include "worker/tools/ztok/ztok.h"

static const struct zt_option options[] = {
    {.name = "tokenizer",
     .kind = ZT_OPT_STRING,
     .letter = 't',
     .value = "FOLDER",
     .flags = ZT_OPTION_PATH,
     .help = "the Hugging Face folder whose tokenizer it is"},
    {.name = "out",
     .kind = ZT_OPT_STRING,
     .letter = 'o',
     .value = "FILE",
     .flags = ZT_OPTION_PATH,
     .help =
         "FILE.bin, or FILE alone; the index lies beside it as FILE.idx; with --train "
         "a folder"},
    {.name = "train",
     .kind = ZT_OPT_INT,
     .value = "N",
     .def = "0",
     .max = 1 << 24,
     .help =
         "make a byte-level BPE tokenizer of N tokens from the files: tokenizer.json in "
         "the folder --out, which has no tokenizer yet"},
    {.name = "text_column",
     .kind = ZT_OPT_STRING,
     .value = "NAME",
     .help = "the column of records (.jsonl, .json, .csv, .tsv) that holds the text; "
             "without it text, else the only one with text"},
    {.name = "threads",
     .kind = ZT_OPT_INT,
     .value = "N",
     .def = "0",
     .max = 256,
     .help = "threads; 0: one for each processor that it may use"},
    {.name = NULL},
};

static zt_err run(const zt_args *args, const char *const *words, int num_words,
                  struct zt_fault *fault)
{
    bool trains = zt_args_value(args, "train")->from != ZT_FROM_DEFAULT;

    return (trains ? zt_ztok_train : zt_ztok_encode)(args, words, num_words, fault);
}

int main(int argc, char **argv)
{
    static const struct zt_tool tool = {
        .name = "ztok",
        .words = "FILE...",
        .about = "Write text files as token ids, for --train_file: FILE.bin and FILE.idx",
        .min_words = 1,
        .max_words = ZT_TOOL_MAX_WORDS,
        .options = options,
        .run = run,
    };

    return zt_tool_main("ztok", tool.about, &tool, 1, argc, argv);
}
