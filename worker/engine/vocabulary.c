/*
 * vocabulary.c -- what the token ids of a run mean: bytes, or ids that somebody's
 * tokenizer made.
 *
 * Bytes are ids, too, so a model of another vocabulary would learn them without a word.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "worker/engine/engine.h"

#define GPT2_VOCAB 50257 /* whose last token ends a text */

static const struct zt_dataset *any_data(const struct zt_engine *e)
{
    return e->train_data ? e->train_data : e->eval_data ? e->eval_data : e->test_data;
}

static bool asks_for_bytes(const struct zt_engine *e)
{
    return e->run->tokenizer_name && strcmp(e->run->tokenizer_name, "bytes") == 0;
}

int32_t zt_engine_learnt_end(const struct zt_engine *e)
{
    return e->run->do_train && e->tokenizer ? zt_tokenizer_end(e->tokenizer) : -1;
}

int64_t zt_engine_text_end(const struct zt_engine *e)
{
    const struct zt_dataset *d = any_data(e);

    if (e->tokenizer)
        return zt_tokenizer_end(e->tokenizer);
    if (asks_for_bytes(e) || (d && zt_dataset_is_bytes(d)))
        return ZT_TEXT_END;
    return d && zt_dataset_vocab(d) == GPT2_VOCAB ? GPT2_VOCAB - 1 : -1;
}

bool zt_engine_has_byte_vocab(const struct zt_engine *e)
{
    const struct zt_dataset *d = any_data(e);

    if (asks_for_bytes(e) || e->tokenizer)
        return !e->tokenizer;
    return d ? zt_dataset_is_bytes(d) : e->model->vocab == ZT_TEXT_VOCAB;
}

static zt_err check_bytes(const struct zt_engine *e, const struct zt_dataset *d,
                          const char *const *files, struct zt_fault *fault)
{
    int64_t vocab = e->model->vocab;

    if (asks_for_bytes(e) && !zt_dataset_is_bytes(d))
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--tokenizer_name bytes, but %s holds token ids (%s)",
                            files[0], zt_dataset_format(d));
    if (asks_for_bytes(e) || !zt_dataset_is_bytes(d) || !vocab || vocab == ZT_TEXT_VOCAB)
        return ZT_OK;
    return zt_fault_set(
        fault, ZT_E_USAGE,
        "%s is text, whose tokens are its bytes (256, and end-of-text), but the model "
        "has "
        "%" PRId64
        " token ids: those of a tokenizer; name its folder by --tokenizer_name, or give "
        "files of tokens that it made (docs/DATA.md), or, to learn bytes all the same, "
        "--tokenizer_name bytes",
        files[0], vocab);
}

zt_err zt_engine_check_vocab(const struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    const struct {
        const struct zt_dataset *data;
        const char *const *files;
    } all[] = {{e->train_data, run->train_files},
               {e->eval_data, run->eval_files},
               {e->test_data, (const char *const[]){run->test_file, NULL}}};
    zt_err rc = ZT_OK;

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        if (all[i].data && e->model->vocab && !rc)
            rc = zt_dataset_check_vocab(all[i].data, e->model->vocab, fault);
        if (all[i].data && !rc)
            rc = check_bytes(e, all[i].data, all[i].files, fault);
    }
    if (!rc && asks_for_bytes(e) && e->model->vocab && e->model->vocab < ZT_TEXT_VOCAB)
        rc = zt_fault_set(fault, ZT_E_USAGE,
                          "--tokenizer_name bytes needs %d token ids (256, and "
                          "end-of-text), the model has %" PRId64,
                          ZT_TEXT_VOCAB, e->model->vocab);
    return rc;
}

static void remark_on_text(const struct zt_engine *e)
{
    const struct zt_dataset *all[3] = {e->train_data, e->eval_data, e->test_data};
    uint64_t replaced = 0, blank = 0;
    const char *returns = NULL;
    bool alone = false;
    int64_t short_ones = 0;

    for (int i = 0; i < 3; i++) {
        if (!all[i])
            continue;
        if (i != 1 || !e->train_data || e->run->eval_files[0]) { /* else the same files */
            replaced += zt_dataset_num_replaced(all[i]);
            blank += zt_dataset_num_blank(all[i]);
            short_ones += zt_dataset_num_short(all[i]);
        }
        if (!returns)
            returns = zt_dataset_carriage_returns(all[i], &alone);
    }
    if (short_ones)
        zt_warn("data", "%" PRId64 " sample%s of %s", short_ones,
                short_ones == 1 ? "" : "s",
                e->task == ZT_TASK_MASKED_LM
                    ? "no text passed over: no token could be masked"
                    : "fewer than two tokens passed over: nothing follows that could be "
                      "learnt");
    if (blank)
        zt_warn("data", "%" PRIu64 " empty lines of the records are passed over", blank);
    if (returns && alone)
        zt_warn("data",
                "%s: lines end with carriage returns alone, so that all of it is one "
                "line, and "
                "they are learnt; tr '\\r' '\\n' makes line feeds of them",
                returns);
    else if (returns)
        zt_warn("data",
                "%s: lines end with a carriage return and a line feed, as on Windows, "
                "and both are "
                "learnt; sed 's/\\r$//' leaves the line feed",
                returns);
    if (replaced)
        zt_warn("data",
                "the text holds %" PRIu64
                " sequences of bytes that are no UTF-8; each is read as U+FFFD",
                replaced);
}

void zt_engine_remark_on_vocab(const struct zt_engine *e)
{
    const struct zt_dataset *d = any_data(e);
    int64_t vocab = e->model->vocab;
    bool assumed = (e->train_data && zt_dataset_has_ids(e->train_data)) ||
                   (e->eval_data && zt_dataset_has_ids(e->eval_data)) ||
                   (e->test_data && zt_dataset_has_ids(e->test_data));
    char ids[256];

    if (e->run->rank || (!d && e->run->generate_tokens == 0))
        return;
    if (zt_engine_has_byte_vocab(e))
        snprintf(ids, sizeof(ids), "bytes, and %d for end-of-text", ZT_TEXT_END);
    else if (e->tokenizer)
        snprintf(
            ids, sizeof(ids), "ids of the tokenizer of %.64s, which has %" PRId64 "%s",
            e->run->train_tokenizer  ? "--train_tokenizer"
            : e->run->tokenizer_name ? e->run->tokenizer_name
                                     : e->run->model_name_or_path,
            zt_tokenizer_vocab(e->tokenizer),
            assumed ? " (files of ids do not say whose: theirs are assumed to be)" : "");
    else if (d)
        snprintf(ids, sizeof(ids), "ids from files (%s), which need %" PRId64,
                 zt_dataset_format(d), zt_dataset_vocab(d));
    else
        snprintf(ids, sizeof(ids), "ids: numbers in the prompt, and in the text");
    if (vocab && vocab != ZT_TEXT_VOCAB)
        zt_info("data", "tokens are %s; the model has %" PRId64, ids, vocab);
    else
        zt_info("data", "tokens are %s", ids);
    remark_on_text(e);
}
