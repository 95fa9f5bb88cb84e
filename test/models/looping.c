/*
 * looping.c -- GPT-2 whose rank ZT_LOOP_RANK never comes back from its third step: a rank
 * that is busy, and that the others wait for.
 */
#define zt_plugin_entry gpt2_entry
#include "models/gpt2.c" /* NOLINT(bugprone-suspicious-include): with another entry */
#undef zt_plugin_entry

static volatile int never;

static void loop_for_ever(void)
{
    while (!never)
        continue;
}

static zt_err after_step(zt_weights *w, void *self, int64_t step)
{
    const char *rank = getenv("RANK"), *victim = getenv("ZT_LOOP_RANK");

    (void)w;
    (void)self;
    if (step == 3 && rank && victim && strcmp(rank, victim) == 0)
        loop_for_ever();
    return ZT_OK;
}

ZT_PLUGIN(.name = "looping", .summary = "GPT-2 with a rank that loops",
          .options = options, .build = build, .forward = forward,
          .after_step = after_step);
