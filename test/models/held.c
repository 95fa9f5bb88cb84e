/* held.c -- GPT-2 that says what its process held at most when the weights had been read. */
#define zt_plugin_entry gpt2_entry
#include "models/gpt2.c" /* NOLINT(bugprone-suspicious-include): with another entry */
#undef zt_plugin_entry

/* The most of the resident set so far, in KiB, as "held N". */
static zt_err say_what_is_held(zt_weights *w, void *self)
{
    FILE *f = fopen("/proc/self/status", "re");
    long kib = 0;
    char line[256];

    (void)w;
    (void)self;
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "VmHWM: %ld", &kib) == 1)
            break;
    if (f)
        fclose(f);
    if (!kib)
        return ZT_E_PLUGIN;
    printf("held %ld\n", kib);
    fflush(stdout);
    return ZT_OK;
}

ZT_PLUGIN(.name = "held", .summary = "GPT-2 that says what is held", .options = options,
          .build = build, .forward = forward, .setup = say_what_is_held);
