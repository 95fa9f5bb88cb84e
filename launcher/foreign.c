/*
 * foreign.c -- the names before the target that are not options: those of other programs,
 * and what belongs behind it.
 */
#include "launcher/launch.h"

#define BEHIND "it is about what the target does: write it behind the target"

const struct zt_foreign zt_launch_foreign[] = {
#define ALREADY ZT_FOREIGN_ALREADY_ROW
#define REFUSED ZT_FOREIGN_REFUSED_ROW
#define LACKS   ZT_FOREIGN_LACKS_ROWS
#include "launcher/foreign.def"
    {.name = NULL},
};

static const struct zt_foreign rows[] = {
#define ALREADY ZT_FOREIGN_ALREADY_ROW
#define REFUSED ZT_FOREIGN_REFUSED_ROW
#define LACKS   ZT_FOREIGN_LACKS_ROWS
#include "launcher/foreign.def"
/* the target's: that they stand on its other side is all there is to say */
#define ALREADY(kind, name, ...) ZT_FOREIGN_REFUSED_ROW(kind, name, NULL, BEHIND)
#define OURS(kind, name, ...)    ZT_FOREIGN_REFUSED_ROW(kind, name, NULL, BEHIND)
#define KEY(kind, name, ...)     ZT_FOREIGN_REFUSED_ROW(kind, name, NULL, BEHIND)
#define REFUSED(kind, name, ...) ZT_FOREIGN_REFUSED_ROW(kind, name, NULL, BEHIND)
#define LACKS(name, ...)         ZT_FOREIGN_REFUSED_ROW(FLAG, name, NULL, BEHIND)
#include "worker/config/foreign.def"
    {.name = NULL},
};

/* Their choices and bounds are the target's matter. */
#define BIG                   0
#define SMALL                 0
#define ZT_OPTION_OF_SCHEDULE 0u

#define OPTION_FLAG   .kind = ZT_OPT_FLAG
#define OPTION_INT    .kind = ZT_OPT_INT, .value = "N"
#define OPTION_FLOAT  .kind = ZT_OPT_FLOAT, .value = "X"
#define OPTION_STRING .kind = ZT_OPT_STRING
#define OPTION_CHOICE .kind = ZT_OPT_CHOICE
#define OPTION_NAMED  .kind = ZT_OPT_STRING
#define OPTION_ENUM   .kind = ZT_OPT_CHOICE
#define OPTION_LIST   .kind = ZT_OPT_LIST

const struct zt_option zt_target_options[] = {
#define OPTION(kind_, name_, ...) {.name = #name_, OPTION_##kind_, __VA_ARGS__},
#define SETTING                   OPTION
#define COMMAND                   OPTION
#include "worker/config/options.def"
    {.name = NULL},
};

const struct zt_foreign_names zt_launch_foreign_names = {
    .rows = rows,
    .beyond = zt_target_options,
    .place = "is an option of the target: write it behind the target",
    .before = "zlaunch TARGET.so ",
    .behind = "",
};
