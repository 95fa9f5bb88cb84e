/*
 * adapter_config.json of the package peft: any bytes. What is accepted has numbers in their
 * ranges and targets that can be matched, and its text is accepted again, with the same
 * numbers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker/engine/adapters/peft_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static zt_err read_bytes(const void *data, size_t n, struct zt_peft_config *out)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    char path[64];
    zt_err rc;

    if (fd < 0 || write(fd, data, n) != (ssize_t)n)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    rc = zt_peft_config_read(path, out, NULL);
    close(fd);
    return rc;
}

static void check(const struct zt_peft_config *c)
{
    struct zt_peft_words words = {.base = "base"};
    struct zt_peft_config again;
    bool is = false;
    char *text;

    if (c->rank < 1 || !(c->alpha >= 0) || !(c->dropout >= 0 && c->dropout < 1))
        abort();
    if (zt_targets_match(&c->targets, "model.layers.0.self_attn.q_proj", &is, NULL) &&
        !c->targets.pattern) /* an expression may give up */
        abort();
    if (c->targets.all_linear) /* is written as the names that it stands for */
        return;
    text = zt_peft_config_text(c, &words);
    if (!text || read_bytes(text, strlen(text), &again) || again.rank != c->rank ||
        again.alpha != c->alpha || again.rslora != c->rslora)
        abort();
    free(text);
    zt_peft_config_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct zt_peft_config c;

    if (read_bytes(data, n, &c))
        return 0;
    check(&c);
    zt_peft_config_release(&c);
    return 0;
}
