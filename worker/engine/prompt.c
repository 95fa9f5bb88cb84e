/* prompt.c -- how long the prompt of a run is: the plan of memory counts its pass. */
#include <ctype.h>
#include <string.h>

#include "worker/engine/engine.h"

int64_t zt_engine_prompt_tokens(const struct zt_engine *e)
{
    const char *p = e->run->prompt ? e->run->prompt : "";
    int64_t n = 0;

    if (zt_engine_has_byte_vocab(e))
        n = (int64_t)strlen(p);
    else
        for (; *p; p++)
            n += !isspace((unsigned char)*p) && (!p[1] || isspace((unsigned char)p[1]));
    return n ? n : 1; /* something must come first */
}
