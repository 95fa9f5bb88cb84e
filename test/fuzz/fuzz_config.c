/*
 * Any bytes as a config: no crash, no leak; a run, or a problem that is told. A config
 * that is accepted is printed, read again, and must print the same.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/config/config.h"
#include "worker/config/run.h"
#include "worker/config/options.h"
#include "worker/config/resolve.h"

static const struct zt_option plugin_options[] = {
    {.name = "n_layer", .kind = ZT_OPT_INT, .min = 1, .max = 1000, .help = "layers"},
    {.name = NULL},
};

/* The printed resolved config, NULL when the bytes are refused. */
static char *resolve(const char *text, size_t n)
{
    struct zt_run run = {.world = 2, .local_world = 2};
    struct zt_fault fault = {0};
    struct zt_config c;
    char *out = NULL;
    size_t len;

    zt_config_init(&c);
    if (zt_args_open(zt_run_options(), &c.args, NULL) ||
        zt_args_open(plugin_options, &c.model_args, NULL))
        abort();
    zt_config_read_text(&c, "f", text, n);
    zt_config_to_args(&c);
    zt_resolve_all(&c, &run);
    zt_resolve_steps(&c, &run, run.max_steps > 0 ? run.max_steps : 100);
    zt_resolve_sizes(&c, &run, 64);
    if (zt_problems_end(&c.report, &fault)) {
        if (!fault.text[0])
            abort();
    } else {
        FILE *f = open_memstream(&out, &len);

        if (!f)
            abort();
        zt_config_complete(&c);
        zt_jtree_print(f, c.resolved);
        fclose(f);
    }
    zt_config_release(&c);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *first = resolve((const char *)data, size), *second, *third;

    if (!first)
        return 0;
    second = resolve(first, strlen(first));
    third = second ? resolve(second, strlen(second)) : NULL;
    if (!second || !third || strcmp(second, third) != 0) {
        fprintf(stderr, "first:\n%s\nsecond:\n%s\nthird:\n%s\n", first,
                second ? second : "(refused)", third ? third : "(refused)");
        abort();
    }
    free(first);
    free(second);
    free(third);
    return 0;
}
