#include "common/options/env_names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/suggest.h"

/* What is read beside options: by people's hands, and from one process of a job to
 * another. */
static const char *const others[] = {
    "ZLAUNCH_CONTROL_FD",  "ZLAUNCH_CUDA_BACKEND",  "ZLAUNCH_CUDNN_BACKEND",
    "ZLAUNCH_JOB_ID",      "ZLAUNCH_LOG_FORMAT",    "ZLAUNCH_LOG_LEVEL",
    "ZLAUNCH_MPI_BACKEND", "ZLAUNCH_NCCL_BACKEND",  "ZLAUNCH_NO_MPI",
    "ZLAUNCH_PLUGIN_PATH", "ZLAUNCH_PUSH_DIR",      "ZLAUNCH_RENDEZVOUS_TIMEOUT",
    "ZLAUNCH_REPLICA_FD",  "ZLAUNCH_RESTART_COUNT", "ZLAUNCH_SECRET_FD",
    "ZLAUNCH_SECRET_FILE", "ZLAUNCH_SHM_FD",        "ZLAUNCH_STATE_FD",
    "ZLAUNCH_ZWORKER",
};

#define NUM_OTHERS ((int)(sizeof(others) / sizeof(*others)))

void zt_env_name_of(const char *option, char out[ZT_ENV_NAME_BYTES])
{
    size_t n;

    snprintf(out, ZT_ENV_NAME_BYTES, "ZLAUNCH_%s", option);
    for (n = strlen("ZLAUNCH_"); out[n]; n++)
        out[n] = out[n] == '-' ? '_' : (char)toupper((unsigned char)out[n]);
}

/* Is `word` one of them? And if not, `near` is the nearest. */
static bool is_known(const char *word, const struct zt_option *const *tables, int num,
                     char near[ZT_ENV_NAME_BYTES])
{
    struct zt_suggest s;
    const char *best;

    zt_suggest_init(&s, word + strlen("ZLAUNCH_"));
    for (int i = 0; i < NUM_OTHERS; i++)
        zt_suggest_offer(&s, others[i] + strlen("ZLAUNCH_"));
    for (int t = 0; t < num; t++)
        for (const struct zt_option *o = tables[t]; o->name; o++)
            zt_suggest_offer(&s, o->name);
    best = zt_suggest_best(&s);
    near[0] = 0;
    if (!best)
        return false;
    zt_env_name_of(best, near);
    return strcmp(near, word) == 0;
}

void zt_env_names_check(const struct zt_option *const *tables, int num,
                        void (*tell)(void *ctx, const char *text), void *ctx)
{
    char word[ZT_ENV_NAME_BYTES], near[ZT_ENV_NAME_BYTES], text[512];

    for (char **e = environ; *e; e++) {
        size_t n = strcspn(*e, "=");

        if (strncmp(*e, "ZLAUNCH_", strlen("ZLAUNCH_")) != 0 || n >= sizeof(word))
            continue;
        memcpy(word, *e, n);
        word[n] = 0;
        if (is_known(word, tables, num, near))
            continue;
        snprintf(text, sizeof(text),
                 "%s is set in the environment and nothing reads it%s%s%s", word,
                 *near ? "; did you mean " : ": no option has that name", near,
                 *near ? "?" : "");
        tell(ctx, text);
    }
}
