/*
 * task.h -- what the run trains for: --task, as far as the plugin can do it, and what that
 * makes of the data.
 *
 *      causal_lm, seq2seq      the next token is learnt
 *      masked_lm               tokens that are masked
 *      classify, regress, tag  examples: rows of records with a class, a number, or a class of
 *                              each word
 */
#ifndef WORKER_ENGINE_TASKS_TASK_H
#define WORKER_ENGINE_TASKS_TASK_H

#include "worker/data/tokens.h"
#include "worker/engine/engine.h"

/* e->task, before data and model are opened. ZT_E_USAGE: the plugin has no such task, with
 * those that it has. */
zt_err zt_engine_pick_task(struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;

const char *zt_task_name(zt_task task); /* as --task spells it */

/* "masked_lm, classify": what --task can be with this plugin. */
#define ZT_TASKS_TEXT 128
void zt_plugin_list_tasks(const struct zt_plugin *plugin, char out[ZT_TASKS_TEXT]);

/*
 * e->labels: the classes, before the data are opened. Those that the config.json of the weights
 * names, where its head is of this task, else those of the training data, else of the
 * evaluation data; so are those of a head without weights whose config.json only numbers
 * them. ZT_E_CONFIG (adapters of another task, too), ZT_E_FORMAT, ZT_E_NOINPUT, ZT_E_USAGE.
 */
zt_err zt_engine_open_labels(struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;

/* "classify": the task whose trained head a folder of weights has, by its config.json; NULL: none
 * of classes or numbers. */
const char *zt_task_of_trained_head(const char *folder);

/* What the task makes of text: set in *how, whose tokenizer is set already. e->examples is
 * written, and has to stay. ZT_E_USAGE: the run has no tokenizer that the task needs, or
 * options of other tasks. */
zt_err zt_engine_encode_for_task(struct zt_engine *e, struct zt_text_encoding *how,
                                 struct zt_fault *fault) ZT_MUST_CHECK;

/* e->test_data, of *how, whose rows need no labels. */
zt_err zt_engine_open_test_data(struct zt_engine *e, const struct zt_text_encoding *how,
                                struct zt_fault *fault) ZT_MUST_CHECK;

/* Of what kind rows of its data are. */
struct zt_row_options zt_task_rows(zt_task task);

/* Whether rows of --test_file are predicted; of other tasks they are continued. */
bool zt_engine_predicts(const struct zt_engine *e);

/* How texts of examples are read without their labels; ZT_EXAMPLES_NONE: rows are none. */
struct zt_example_spec zt_task_texts_of_examples(const struct zt_engine *e);

/* Whether rows of the data are examples: with a label, each by itself. */
bool zt_task_reads_examples(zt_task task);

#endif
