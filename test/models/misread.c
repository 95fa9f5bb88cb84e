/*
 * misread.c -- GPT-2 that asks for an option wrongly: where ZT_MISREAD says ("build" or
 * "forward"), and how ("name": one that it does not have; "kind": a number as a text).
 */
#define zt_plugin_entry gpt2_entry
#include "models/gpt2.c"
#undef zt_plugin_entry

static void misread(const zt_model *m, const char *where)
{
    const char *wanted = getenv("ZT_MISREAD"), *how = getenv("ZT_MISREAD_HOW");

    if (!wanted || !how || strcmp(wanted, where) != 0)
        return;
    if (strcmp(how, "name") == 0)
        (void)zt_args_int(zt_model_args(m), "n_layr");
    else
        (void)zt_args_string(zt_model_args(m), "n_layer");
}

/* forward() is given no model handle; a plugin that wants its options there keeps it. */
static const zt_model *model;

static zt_err misread_build(zt_model *m, void **self)
{
    model = m;
    misread(m, "build");
    return build(m, self);
}

static zt_tensor *misread_forward(zt_step *s, void *self, const zt_batch *batch)
{
    misread(model, "forward");
    return forward(s, self, batch);
}

ZT_PLUGIN(.name = "misread", .summary = "GPT-2 that asks for an option wrongly",
          .options = options, .build = misread_build, .forward = misread_forward);
