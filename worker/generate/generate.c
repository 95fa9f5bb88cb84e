/*
 * generate.c -- continue a prompt, one token at a time.
 *
 * A plugin that says that it can (ZT_PLUGIN_CACHED) is fed each token once and finds keys
 * and values of earlier ones in the cache; any other reads its whole context for each
 * token. Every rank runs the same passes and draws the same numbers, so that sharded
 * weights can be gathered on the way; rank 0 prints the text.
 */
#include "worker/generate/generate.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/message/event.h"
#include "common/half.h"
#include "kernels/philox.h"
#include "worker/engine/context.h"
#include "worker/generate/sample.h"

struct text {
    int32_t *ids;
    int64_t n, cap;
    bool bytes; /* ids are bytes; else they are printed as numbers */
};

/* The prompt as ids: a tokenizer's, its bytes, or numbers when the vocabulary is neither. */
static zt_err read_prompt(struct text *t, const struct zt_engine *e, const char *prompt,
                          struct zt_fault *fault)
{
    char *end;

    if (e->tokenizer) {
        if (e->num_prompt_ids)
            memcpy(t->ids, e->prompt_ids, (size_t)e->num_prompt_ids * sizeof(*t->ids));
        t->n = e->num_prompt_ids ? e->num_prompt_ids : 1; /* id 0 where there is none */
        return ZT_OK;
    }

    if (t->bytes) {
        for (const char *p = prompt; *p && t->n < t->cap; p++)
            t->ids[t->n++] = (unsigned char)*p;
        if (!t->n)
            t->ids[t->n++] = '\n';
        return ZT_OK;
    }
    for (const char *p = prompt; *p && t->n < t->cap; p = end) {
        long id = strtol(p, &end, 10);

        if (end == p)
            return zt_fault_set(
                fault, ZT_E_USAGE,
                "--prompt \"%s\": this model's vocabulary is not bytes: give token ids "
                "separated by blanks, the tokenizer's folder by --tokenizer_name, or "
                "--tokenizer_name bytes if it was trained on bytes",
                prompt);
        t->ids[t->n++] = id < 0 || id > INT32_MAX ? -1 : (int32_t)id; /* check_ids() */
        while (isspace((unsigned char)*end))
            end++;
    }
    if (!t->n)
        t->ids[t->n++] = 0;
    return ZT_OK;
}

static zt_err check_ids(const struct text *t, int64_t vocab, struct zt_fault *fault)
{
    for (int64_t i = 0; i < t->n; i++)
        if (t->ids[i] < 0 || t->ids[i] >= vocab)
            return zt_fault_set(fault, ZT_E_USAGE,
                                "--prompt: token %lld (from 0) is outside the vocabulary "
                                "of %lld",
                                (long long)i, (long long)vocab);
    return ZT_OK;
}

/* The last row of (1, R, V) floats on the device to (V) fp32 on the host. */
static zt_err read_logits(struct zt_engine *e, const struct zt_view *v, float *logits,
                          struct zt_fault *fault)
{
    size_t width = zt_dtype_bytes(v->dtype), bytes = (size_t)e->model->vocab * width;
    const char *last =
        (const char *)v->data + (size_t)((v->shape[1] - 1) * v->stride[1]) * width;
    /* 16-bit ones wait in the second half, ahead of the floats that they become */
    char *at = (char *)logits + (size_t)e->model->vocab * sizeof(float) - bytes;
    zt_err rc = e->backend->download(e->device, NULL, at, last, bytes, fault);

    if (!rc)
        rc = e->backend->sync(e->device, NULL, fault);
    for (int64_t i = 0; !rc && v->dtype != ZT_F32 && i < e->model->vocab; i++) {
        uint16_t h;

        memcpy(&h, at + 2 * i, sizeof(h));
        logits[i] = v->dtype == ZT_BF16 ? zt_float_of_bf16(h) : zt_float_of_f16(h);
    }
    return rc;
}

/* Logits (V) fp32 after `count` more tokens. */
static zt_err next_logits(struct zt_engine *e, const int32_t *ids, int64_t count,
                          float *logits, struct zt_fault *fault)
{
    struct zt_pass pass = {
        .mode = ZT_MODE_GENERATE, .B = 1, .T = count, .last_only = true};
    zt_tensor *out = NULL;
    zt_err rc;

    pass.fields[zt_batch_find(&e->model->layout, ZT_TOKENS)] = ids;
    zt_zero_pass_begin(e->zero, pass.mode, 0);
    rc = zt_step_forward(e->step, &pass, &out, fault);
    if (!rc)
        rc = read_logits(e, zt_tensor_view(out), logits, fault);
    zt_step_end(e->step);
    return rc ? rc : zt_zero_pass_end(e->zero, fault);
}

static bool is_cached(const struct zt_engine *e)
{
    return e->plugin->flags & ZT_PLUGIN_CACHED;
}

static zt_err continue_text(struct zt_engine *e, struct text *t, float *logits,
                            struct zt_choice *scratch, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    struct zt_sampling how = {run->temperature, run->top_p, run->top_k};
    struct zt_philox rng = {.seed = (uint64_t)run->seed, .stream = 0x67656e65726174ull};
    int64_t from, stop = t->n + run->generate_tokens;
    struct zt_context context;
    bool restart;
    zt_err rc = ZT_OK;

    zt_context_begin(&context, e->block_size, is_cached(e), t->n);
    while (!rc && t->n < stop) {
        from = zt_context_next(&context, t->n, &restart);
        if (restart)
            zt_step_cache_reset(e->step);
        rc = next_logits(e, t->ids + from, t->n - from, logits, fault);
        if (rc)
            break;
        t->ids[t->n] = zt_sample_token(logits, e->model->vocab, &how,
                                       zt_philox_uniform(rng, (uint64_t)t->n), scratch);
        if (t->ids[t->n] < 0)
            return zt_fault_set(fault, ZT_E_NUMERIC, "generation: all logits are NaN");
        if ((t->bytes && t->ids[t->n] >= ZT_TEXT_END) ||
            (e->tokenizer && t->ids[t->n] == zt_tokenizer_end(e->tokenizer)))
            break;
        t->n++;
    }
    return rc;
}

/* Without the special tokens, and as C has strings: a zero byte ends nothing. */
static zt_err print_decoded(const struct zt_engine *e, const struct text *t,
                            struct zt_fault *fault)
{
    struct zt_buf out;
    zt_err rc;

    zt_buf_init(&out, ZT_TEXT_MAX_BYTES);
    rc = zt_decode(e->tokenizer, t->ids, (size_t)t->n, true, &out, fault);
    for (uint8_t *p = out.data; p && p < out.data + out.len; p++)
        *p = *p ? *p : ' ';
    if (!rc && zt_buf_put_u8(&out, 0))
        rc = zt_fault_set(fault, ZT_E_NOMEM, "generation: no host memory");
    if (!rc)
        zt_event_text("sample", (const char *)zt_buf_head(&out));
    zt_buf_release(&out);
    return rc;
}

static void print_text(const struct text *t)
{
    size_t cap = (size_t)t->n * 12 + 1, at = 0;
    char *out = malloc(cap);

    if (!out)
        return;
    for (int64_t i = 0; i < t->n; i++) {
        if (t->bytes)
            out[at++] = t->ids[i] ? (char)t->ids[i] : ' ';
        else
            at += (size_t)snprintf(out + at, cap - at, i ? " %d" : "%d", t->ids[i]);
    }
    out[at] = 0;
    zt_event_text("sample", out);
    free(out);
}

zt_err zt_generate(struct zt_engine *e, struct zt_fault *fault)
{
    const char *prompt = e->run->prompt ? e->run->prompt : "";
    struct text t = {.cap = (int64_t)strlen(prompt) + 1 + e->num_prompt_ids,
                     .bytes = zt_engine_has_byte_vocab(e)};
    size_t vocab = (size_t)e->model->vocab;
    float *logits = malloc(vocab * sizeof(*logits));
    struct zt_choice *scratch = malloc(vocab * sizeof(*scratch));
    zt_err rc;

    zt_event_phase("generating text");
    t.ids = calloc((size_t)(t.cap + e->run->generate_tokens + 1), sizeof(*t.ids));
    if (!t.ids || !logits || !scratch) {
        rc = zt_fault_set(fault, ZT_E_NOMEM, "generation: no host memory");
        goto out;
    }
    rc = read_prompt(&t, e, prompt, fault);
    if (!rc)
        rc = check_ids(&t, e->model->vocab, fault);
    if (!rc && is_cached(e))
        rc = zt_step_cache_open(e->step, 1, e->block_size, fault);
    if (rc)
        goto out;
    rc = continue_text(e, &t, logits, scratch, fault);
    zt_step_cache_close(e->step);
    if (!rc && zt_comm_rank(e->comm) == 0 && e->tokenizer)
        rc = print_decoded(e, &t, fault);
    else if (!rc && zt_comm_rank(e->comm) == 0)
        print_text(&t);
out:
    free(t.ids);
    free(logits);
    free(scratch);
    return rc;
}
