/*
 * foreign.c -- the names behind the target that are not options: those of other programs,
 * and zlaunch's own options, which belong before it.
 */
#include "worker/config/options.h"

/* Those of the launcher as well: people write them on either side. */
static const struct zt_foreign rows[] = {
#define ALREADY ZT_FOREIGN_ALREADY_ROW
#define OURS    ZT_FOREIGN_OPTION_ROW
#define KEY     ZT_FOREIGN_KEY_ROW
#define REFUSED ZT_FOREIGN_REFUSED_ROW
#define LACKS   ZT_FOREIGN_LACKS_ROWS
#include "worker/config/foreign.def"
#define ALREADY ZT_FOREIGN_ALREADY_ROW
#define REFUSED ZT_FOREIGN_REFUSED_ROW
#define LACKS   ZT_FOREIGN_LACKS_ROWS
#include "launcher/foreign.def"
    {.name = NULL},
};

#define OPTION_FLAG    .kind = ZT_OPT_FLAG
#define OPTION_INT     .kind = ZT_OPT_INT
#define OPTION_SECONDS .kind = ZT_OPT_FLOAT
#define OPTION_STRING  .kind = ZT_OPT_STRING
#define OPTION_CHOICE  .kind = ZT_OPT_CHOICE

static const struct zt_option launcher_options[] = {
#define OPTION(kind_, name_, ...) {.name = #name_, OPTION_##kind_, __VA_ARGS__},
#include "launcher/options.def"
    {.name = NULL},
};

const struct zt_foreign_names zt_run_foreign_names = {
    .rows = rows,
    .beyond = launcher_options,
    .place = "is an option of zlaunch: write it before the target",
    .before = "zlaunch ",
    .behind = " TARGET.so",
};

void zt_run_print_names(FILE *out)
{
    fputs("# Options of other programs\n\nNames that Hugging Face's Trainer and its "
          "example scripts, accelerate launch, torchrun and deepspeed have, and zlaunch "
          "has not, or has under another name. What is not here and not in "
          "`zlaunch TARGET.so --help` is unknown.\n\nMade from the tables "
          "`worker/config/foreign.def` and `launcher/foreign.def` by `make docs`; where "
          "a name is in several lines, the first that fits the value counts. A name that "
          "zlaunch has, too, is here for values that mean something elsewhere alone.\n",
          out);
    zt_foreign_print_markdown(out, rows);
}
