/*
 * prompt.c -- the tokenizer of a run, and its prompts: how many there are and how long, for the
 * plan of memory counts their passes.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/log.h"
#include "worker/checkpoint/hf_folder.h"
#include "worker/config/resolve.h"
#include "worker/data/tokens.h"
#include "worker/engine/data.h"
#include "worker/engine/engine.h"

/* The folder of weights that were named by one of their files. */
static const char *folder_of(const char *weights, char out[PATH_MAX])
{
    struct stat sb;
    char *slash;

    if (!weights || stat(weights, &sb) || S_ISDIR(sb.st_mode))
        return weights;
    snprintf(out, PATH_MAX, "%s", weights);
    slash = strrchr(out, '/');
    if (!slash)
        return ".";
    slash[slash == out] = 0;
    return out;
}

/* That of --tokenizer_name, else the one beside the weights. The latter is a find: where it
 * cannot be read, files of ids and prompts of ids do as well, and only text is refused. */
static zt_err open_tokenizer(struct zt_engine *e, struct zt_fault *fault)
{
    char folder[PATH_MAX];
    const char *given = e->run->tokenizer_name;
    const char *model = folder_of(e->run->model_name_or_path, folder);
    struct zt_fault why = {0};
    zt_err rc = model ? zt_hf_folder_check(model, fault) : ZT_OK;

    if (rc) /* before what is missing without its tokenizer */
        return zt_fault_context(fault, rc, "--model_name_or_path");
    if (e->run->train_tokenizer)
        return zt_engine_make_tokenizer(e, fault);
    if (given && strcmp(given, "bytes") == 0)
        return ZT_OK;
    if (given) {
        rc = zt_tokenizer_open(given, &e->tokenizer, fault);
        return rc ? zt_fault_context(fault, rc, "--tokenizer_name") : ZT_OK;
    }
    if (!model || !zt_tokenizer_is_in(model))
        return ZT_OK;
    if (zt_tokenizer_open(model, &e->tokenizer, &why) == ZT_OK)
        return ZT_OK;
    if (why.code == ZT_E_NOMEM) {
        if (fault)
            *fault = why;
        return why.code;
    }
    e->tokenizer_refusal = why;
    if (e->run->rank == 0)
        zt_warn("data", "the tokenizer of %s cannot be read, so tokens are ids: %s",
                model, why.text);
    return ZT_OK;
}

zt_err zt_engine_open_tokenizer(struct zt_engine *e, struct zt_fault *fault)
{
    return open_tokenizer(e, fault);
}

struct zt_prompt_encoding zt_engine_prompt_encoding(const struct zt_engine *e)
{
    return (struct zt_prompt_encoding){.tokenizer = e->tokenizer,
                                       .bytes = zt_engine_has_byte_vocab(e),
                                       .vocab = e->model->vocab,
                                       .ends = e->source_size > 0};
}

static zt_err add_texts(struct zt_engine *e, const struct zt_prompt_encoding *how,
                        struct zt_fault *fault)
{
    const char *const *text = e->run->prompt;
    char name[64] = "--prompt";
    zt_err rc = ZT_OK;

    if (!text[0])
        return zt_prompts_add(&e->prompts, how, name, "", 0, fault);
    for (int i = 0; !rc && text[i]; i++) {
        if (text[1])
            snprintf(name, sizeof(name), "--prompt, text %d", i + 1);
        rc = zt_prompts_add(&e->prompts, how, name, text[i], strlen(text[i]), fault);
    }
    return rc;
}

/* The columns of a training say what is read, and what it is meant to become. */
static zt_err add_files(struct zt_engine *e, struct zt_prompts *p,
                        struct zt_prompt_encoding *how, const char *const *files,
                        struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    const struct zt_text_pair pair = zt_engine_pair(run);
    zt_err rc = ZT_OK;

    how->pair = &pair;
    if (run->predict_with_generate)
        p->meant_column = run->target_column ? run->target_column : "completion";
    for (int i = 0; !rc && files[i]; i++) {
        if (strcmp(run->data_format, "auto") == 0)
            rc = zt_tokens_refuse_foreign(files[i], fault);
        if (!rc)
            rc = zt_prompts_add_file(
                p, how, files[i], run->data_format,
                run->source_column ? run->source_column : run->text_column, fault);
    }
    how->pair = NULL;
    return rc;
}

/* The rows whose loss an evaluation takes, in their order. */
static zt_err add_eval_files(struct zt_engine *e, struct zt_prompt_encoding *how,
                             struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    int64_t batches = run->eval_batches * run->per_device_eval_batch_size * run->world;
    zt_err rc = add_files(e, &e->eval_prompts, how, run->eval_files, fault);

    zt_prompts_limit(&e->eval_prompts, run->max_eval_samples);
    zt_prompts_limit(&e->eval_prompts, batches);
    return rc;
}

/* One at a time, as long as the context lets it be beside an answer; none is there yet. */
static zt_err expect_dialogue(struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_value *given = zt_option_given(e->run->config, "generate_tokens");
    int64_t half = e->block_size / 2, longest;

    if (!e->source_size && e->run->generate_tokens > half && half > 0 && !given)
        ((struct zt_run *)e->run)->generate_tokens = half; /* as usual, but less */
    longest =
        e->source_size ? e->source_size - 1 : e->block_size + 1 - e->run->generate_tokens;
    if (longest < 1)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "%s %lld: with what is typed there are %lld "
                            "tokens (--block_size), and an answer has to be shorter",
                            given ? given->where : "--max_new_tokens",
                            (long long)e->run->generate_tokens, (long long)e->block_size);
    e->prompts.num = 1;
    e->prompts.longest = longest;
    return ZT_OK;
}

/* Of a prompt that is longer than the context its end is read; of a source its begin, and the token
 * that ends it. */
static void tell_of_cut(const struct zt_engine *e, const struct zt_prompts *p)
{
    int64_t most = e->source_size ? e->source_size : e->text_size;
    char read[64];

    if (e->run->rank || p->longest <= most)
        return;
    if (e->source_size)
        snprintf(read, sizeof(read), "first %lld and the last", (long long)most - 1);
    else
        snprintf(read, sizeof(read), "last %lld", (long long)most);
    zt_warn("data", "the longest %s has %lld tokens, of which the %s are read: %s",
            e->source_size ? "source" : "prompt", (long long)p->longest, read,
            e->source_size && e->run->max_source_length ? "that is --max_source_length"
            : most == e->model->max_tokens ? "the model takes no more at once"
            : !e->source_size              ? "that is --block_size"
                                           : "--max_source_length takes more");
}

/* Of a text that grows past what it sees at once, the second half of that is seen further on. */
static void tell_of_forgetting(const struct zt_engine *e, const struct zt_prompts *p)
{
    int64_t most = e->model->max_tokens;
    bool grows = p->num && zt_engine_generation(e, p).restarts;

    if (e->run->rank || !grows || p->longest > e->text_size || e->text_size == most)
        return;
    zt_log(
        e->run->model_name_or_path && most ? ZT_LOG_WARN : ZT_LOG_INFO, "data",
        "texts may grow past the %lld tokens that they see at once (--block_size), and "
        "forget their beginning",
        (long long)e->text_size);
}

static void tell_of_broken_text(const struct zt_engine *e)
{
    if (e->run->rank == 0 && e->prompts.num_replaced)
        zt_warn("data",
                "%s holds %" PRIu64 " sequences of bytes that are no UTF-8; each is read "
                "as U+FFFD",
                e->run->test_file, e->prompts.num_replaced);
}

static zt_err open_prompts(struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    struct zt_prompt_encoding how = zt_engine_prompt_encoding(e);
    const char *const test_files[] = {run->test_file, NULL};
    bool rates = run->predict_with_generate && run->do_eval && run->eval_files[0];
    zt_err rc = ZT_OK;

    zt_prompts_init(&e->prompts);
    zt_prompts_init(&e->eval_prompts);
    if (run->generate_tokens == 0)
        return ZT_OK;
    if (rates)
        rc = add_eval_files(e, &how, fault);
    if (rc)
        return rc;
    if (run->interactive)
        return expect_dialogue(e, fault);
    if (run->test_file)
        return add_files(e, &e->prompts, &how, test_files, fault);
    return rates && !run->prompt[0] ? ZT_OK : add_texts(e, &how, fault);
}

zt_err zt_engine_open_prompts(struct zt_engine *e, struct zt_fault *fault)
{
    zt_err rc = open_prompts(e, fault);

    if (!rc && !e->run->interactive)
        tell_of_cut(e, &e->prompts);
    if (!rc && !e->run->interactive)
        tell_of_forgetting(e, &e->prompts);
    if (!rc && e->run->test_file)
        tell_of_broken_text(e);
    if (!rc) {
        tell_of_cut(e, &e->eval_prompts);
        tell_of_forgetting(e, &e->eval_prompts);
    }
    return rc;
}

struct zt_generation zt_engine_generation(const struct zt_engine *e,
                                          const struct zt_prompts *prompts)
{
    return zt_generation_of(e->run, prompts->num, prompts->longest, e->text_size,
                            e->source_size);
}
