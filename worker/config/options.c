/*
 * options.c -- tables that are made from the rows of options.def.
 */
#include "worker/config/options.h"

#include <pthread.h>

#define BIG   9e18
#define SMALL 2147483647.0

/* ---- the options ---- */

#define OPTION_FLAG   .kind = ZT_OPT_FLAG
#define OPTION_INT    .kind = ZT_OPT_INT, .value = "N"
#define OPTION_FLOAT  .kind = ZT_OPT_FLOAT, .value = "X"
#define OPTION_STRING .kind = ZT_OPT_STRING
#define OPTION_CHOICE .kind = ZT_OPT_CHOICE
#define OPTION_NAMED  .kind = ZT_OPT_CHOICE
#define OPTION_ENUM   .kind = ZT_OPT_CHOICE
#define OPTION_LIST   .kind = ZT_OPT_LIST

static struct zt_option options[] = {
#define OPTION(kind_, name_, ...) {.name = #name_, OPTION_##kind_, __VA_ARGS__},
#define SETTING                   OPTION
#define COMMAND                   OPTION
#include "worker/config/options.def"
    {.name = NULL},
};

/* Row by row beside the options: where the choices of a NAMED one come from. */
#define NAMES_FLAG(name)   NULL
#define NAMES_INT(name)    NULL
#define NAMES_FLOAT(name)  NULL
#define NAMES_STRING(name) NULL
#define NAMES_CHOICE(name) NULL
#define NAMES_NAMED(name)  zt_##name##_names
#define NAMES_ENUM(name)   NULL
#define NAMES_LIST(name)   NULL

static const char *(*const names[])(void) = {
#define OPTION(kind, name, ...) NAMES_##kind(name),
#define SETTING                 OPTION
#define COMMAND                 OPTION
#include "worker/config/options.def"
};

static void fill_choices(void)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (names[i])
            options[i].choices = names[i]();
}

const struct zt_option *zt_run_options(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, fill_choices);
    return options;
}

/* ---- where they are stored ---- */

static const struct zt_enum_word zt_early_stopping_words[] = {
    {"false", ZT_STOP_HEURISTIC},
    {"true", ZT_STOP_FIRST},
    {"never", ZT_STOP_NEVER},
    {NULL, 0}};
static const struct zt_enum_word zt_reduction_order_words[] = {
    {"rank", ZT_ORDER_RANK},
    {"any", ZT_ORDER_ANY},
    {.word = NULL},
};

#define STORE_MEMBER(name, m) ZT_MEMBER_OF(struct zt_run, m)
#define STORE_FLAG            STORE_MEMBER
#define STORE_INT             STORE_MEMBER
#define STORE_FLOAT           STORE_MEMBER
#define STORE_STRING          STORE_MEMBER
#define STORE_CHOICE          STORE_MEMBER
#define STORE_LIST            STORE_MEMBER
#define STORE_NAMED           STORE_MEMBER
#define STORE_ENUM(name, m)   ZT_ENUM_MEMBER_OF(struct zt_run, m, zt_##name##_words)

/* Row by row beside the options. */
static const struct zt_struct_member stores[] = {
#define OPTION(kind, name, ...)         {.type = ZT_MEMBER_NONE},
#define COMMAND(kind, name, ...)        STORE_##kind(name, name),
#define SETTING(kind, name, ...)        STORE_##kind(name, name),
#define PLACED(kind, name, member, ...) STORE_##kind(name, member),
#include "worker/config/options.def"
};

void zt_run_store_options(struct zt_run *run, const zt_args *args)
{
    for (size_t i = 0; i < sizeof(stores) / sizeof(*stores); i++)
        if (stores[i].type != ZT_MEMBER_NONE)
            zt_struct_member_set(&stores[i], run, zt_args_value(args, options[i].name));
}
