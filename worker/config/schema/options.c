/*
 * options.c -- the keys of the section "zlaunch": one for each option of options.def that
 * no key of DeepSpeed's format stands for.
 */
#include "worker/config/schema/rows.h"

#define KEY_FLAG   .type = ZT_KEY_BOOL
#define KEY_INT    .type = ZT_KEY_INT
#define KEY_FLOAT  .type = ZT_KEY_FLOAT
#define KEY_STRING .type = ZT_KEY_STRING
#define KEY_CHOICE .type = ZT_KEY_STRING
#define KEY_NAMED  .type = ZT_KEY_STRING
#define KEY_ENUM   .type = ZT_KEY_STRING
#define KEY_LIST   .type = ZT_KEY_ARRAY, .flags = ZT_KEY_STRINGS

const struct zt_key zt_keys_options[] = {
    K("zlaunch", OBJECT, HONOURED, NULL,
      .why = "run options that have no DeepSpeed key; a flag or the environment wins "
             "over them"),
#define SETTING(kind, name, ...)                                                         \
    {.path = "zlaunch." #name, KEY_##kind, .option = #name, .why = "--" #name},
#include "worker/config/options.def"
    K("zlaunch.model", OBJECT, HONOURED, NULL, .why = "the plugin's own options"),
    K("zlaunch.model.<option>", ANY, HONOURED, NULL, .why = "an option of the plugin"),
    {.path = NULL},
};
