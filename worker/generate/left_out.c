#include "worker/generate/left_out.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"

/* Without an option of the name. Of those that are not here some say how long texts are, and
 * others which tokens begin, end or pad them. */
static const char *const not_built[] = {"min_length",
                                        "bad_words_ids",
                                        "suppress_tokens",
                                        "begin_suppress_tokens",
                                        "sequence_bias",
                                        "encoder_no_repeat_ngram_size",
                                        "encoder_repetition_penalty",
                                        "exponential_decay_length_penalty",
                                        "num_beam_groups",
                                        "diversity_penalty",
                                        "forced_decoder_ids",
                                        "penalty_alpha",
                                        "guidance_scale",
                                        "stop_strings",
                                        NULL};
static const char *const cuts_not_built[] = {"min_p", "typical_p", "epsilon_cutoff",
                                             "eta_cutoff", NULL};

struct left_out {
    char text[512];
};

static void add(struct left_out *n, const char *before, const char *name, const json_t *v)
{
    size_t at = strlen(n->text);
    char *value = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6)) : NULL;

    snprintf(n->text + at, sizeof(n->text) - at, "%s%s%s%s", before, name,
             value ? " " : "", value ? value : "");
    free(value);
}

/* false, true and "never" as --early_stopping has them. */
static double number_of(const json_t *v)
{
    if (json_is_string(v))
        return strcmp(json_string_value(v), "never") == 0 ? ZT_STOP_NEVER
                                                          : ZT_STOP_HEURISTIC;
    return json_is_number(v) ? json_number_value(v) : json_is_true(v);
}

/* null, false, 0, 1 and what is empty ask for nothing. */
static bool asks_for_nothing(const json_t *v)
{
    if (json_is_array(v) || json_is_object(v))
        return json_array_size(v) + json_object_size(v) == 0;
    return !json_is_string(v) && (number_of(v) == 0 || number_of(v) == 1);
}

/* Options of their names, as the run has them. */
static void find_options(const struct zt_run *run, const json_t *file, bool draws,
                         struct left_out *out)
{
    bool beams = run->num_beams > 1 || number_of(json_object_get(file, "num_beams")) > 1;
    const struct {
        const char *name;
        double ours;
        bool matters;
    } all[] = {
        {"do_sample", run->do_sample, draws},
        {"temperature", run->temperature, draws},
        {"top_k", (double)run->top_k, draws},
        {"top_p", run->top_p, draws},
        {"num_beams", (double)run->num_beams, true},
        {"num_return_sequences", (double)run->num_return_sequences, true},
        {"length_penalty", run->length_penalty, beams},
        {"early_stopping", run->early_stopping, beams},
        {"repetition_penalty", run->repetition_penalty, true},
        {"no_repeat_ngram_size", (double)run->no_repeat_ngram_size, true},
        {"min_new_tokens", (double)run->min_new_tokens, true},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        const json_t *v = json_object_get(file, all[i].name);

        if (!v || json_is_null(v) || !all[i].matters || number_of(v) == all[i].ours ||
            zt_run_says(run, (const char *const[]){all[i].name, NULL}))
            continue;
        add(out, *out->text ? " --" : "--", all[i].name, json_is_true(v) ? NULL : v);
    }
}

static void find_not_built(const json_t *file, const char *const *names,
                           struct left_out *out)
{
    for (; *names; names++)
        if (!asks_for_nothing(json_object_get(file, *names)))
            add(out, *out->text ? ", " : "", *names, NULL);
}

/* Whether tokens are drawn, or would be by the file, of which no option says otherwise. */
static bool may_draw(const struct zt_run *run, const json_t *file)
{
    return run->temperature > 0 &&
           (run->do_sample ||
            (json_is_true(json_object_get(file, "do_sample")) &&
             !zt_run_says(run, (const char *const[]){"do_sample", NULL})));
}

void zt_tell_of_left_out(const struct zt_run *run, const char *path)
{
    json_t *file = json_load_file(path, 0, NULL);
    bool draws = may_draw(run, file);
    struct left_out options = {.text = ""}, others = {.text = ""};

    find_options(run, file, draws, &options);
    find_not_built(file, not_built, &others);
    if (draws)
        find_not_built(file, cuts_not_built, &others);
    if (*options.text)
        zt_warn("generate",
                "%s: how texts are written is not taken from it; what it says is %s",
                path, options.text);
    if (*others.text)
        zt_warn("generate", "%s: %s: not built, texts are written without", path,
                others.text);
    json_decref(file);
}
