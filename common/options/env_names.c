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

/* Options that print and end: of words alone. */
static const char *const printing[] = {"help", "help_all", "version"};

static bool is_printing(const char *word)
{
    char name[ZT_ENV_NAME_BYTES];

    for (size_t i = 0; i < sizeof(printing) / sizeof(*printing); i++) {
        zt_env_name_of(printing[i], name);
        if (strcmp(name, word) == 0)
            return true;
    }
    return false;
}

/* Of what no option is called: is it known as a word of a command line? */
static bool is_foreign(const char *word, const struct zt_env_readers *readers)
{
    char name[ZT_ENV_NAME_BYTES];

    for (int i = 0; i < readers->num_foreign; i++)
        for (const struct zt_foreign *f = readers->foreign[i]; f && f->name; f++) {
            zt_env_name_of(f->name, name);
            if (strcmp(name, word) == 0)
                return true;
        }
    return false;
}

/* Is `word` one of them? And if not, `near` is the nearest. */
static bool is_known(const char *word, const struct zt_env_readers *readers,
                     char near[ZT_ENV_NAME_BYTES])
{
    struct zt_suggest s;
    const char *best;

    zt_suggest_init(&s, word + strlen("ZLAUNCH_"));
    for (int i = 0; i < NUM_OTHERS; i++)
        zt_suggest_offer(&s, others[i] + strlen("ZLAUNCH_"));
    for (int t = 0; t < readers->num_tables; t++)
        for (const struct zt_option *o = readers->tables[t]; o->name; o++) {
            zt_suggest_offer(&s, o->name);
            if (o->alias)
                zt_suggest_offer(&s, o->alias);
        }
    best = zt_suggest_best(&s);
    near[0] = 0;
    if (!best)
        return false;
    zt_env_name_of(best, near);
    return strcmp(near, word) == 0;
}

static void tell_of(const char *word, const struct zt_env_readers *readers,
                    void (*tell)(void *ctx, const char *text), void *ctx)
{
    char near[ZT_ENV_NAME_BYTES], option[ZT_ENV_NAME_BYTES], text[512];
    bool known = is_known(word, readers, near), word_only = is_printing(word);
    size_t i = 0;

    if (known && !word_only)
        return;
    word_only = word_only || is_foreign(word, readers);
    for (const char *c = word + strlen("ZLAUNCH_"); *c; c++)
        option[i++] = (char)tolower((unsigned char)*c);
    option[i] = 0;
    if (word_only)
        snprintf(text, sizeof(text),
                 "%s is set in the environment and nothing reads it: --%s is for command "
                 "lines alone",
                 word, option);
    else
        snprintf(text, sizeof(text),
                 "%s is set in the environment and nothing reads it%s%s%s", word,
                 *near ? "; did you mean " : ": no option has that name", near,
                 *near ? "?" : "");
    tell(ctx, text);
}

void zt_env_names_check(const struct zt_env_readers *readers,
                        void (*tell)(void *ctx, const char *text), void *ctx)
{
    char word[ZT_ENV_NAME_BYTES];

    for (char **e = environ; *e; e++) {
        size_t n = strcspn(*e, "=");

        if (strncmp(*e, "ZLAUNCH_", strlen("ZLAUNCH_")) != 0 || n >= sizeof(word))
            continue;
        memcpy(word, *e, n);
        word[n] = 0;
        tell_of(word, readers, tell, ctx);
    }
}
