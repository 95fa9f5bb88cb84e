"""The Trainer's side of check_trainer.py: transformers with DeepSpeed on its CPU accelerator, one process a rank.

torchrun --nproc_per_node N trainer_child.py JOB.json     losses go to JOB.json.out"""

import json
import os
import sys

os.environ["DS_ACCELERATOR"] = "cpu"
import torch
from transformers import (AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification,
                          AutoModelForTokenClassification, Trainer, TrainingArguments)
from transformers.trainer_pt_utils import LabelSmoother

CLASSES = {"causal_lm": AutoModelForCausalLM, "classify": AutoModelForSequenceClassification,
           "tag": AutoModelForTokenClassification, "seq2seq": AutoModelForSeq2SeqLM}
# How the Trainer gets one loss from several ranks (compute_loss() of its class). It counts the labels of all ranks, passes
# the number to the model or to compute_loss_func, and multiplies what comes back by the number of ranks, since gradients are
# averaged over these: right for a sum divided by that number. Heads for classes, tags and pairs return the mean of a rank's
# own, whatever they are told, and would get a loss and gradients that are too large by the number of ranks.
LOSSES = {
    "the model's": {},  # of causal models: a sum over that number
    # equal numbers of rows, so the average over ranks is the mean over all
    "mean of a rank's rows": {"average_tokens_across_devices": False},
    "sum over all items": {},  # by compute_loss_func below: ranks have different numbers of items
}

job = json.load(open(sys.argv[1]))
torch.set_num_threads(1)
model = CLASSES[job["task"]].from_pretrained(job["model"], attn_implementation="eager")


class InOrder(Trainer):
    """Rows as they come: their order is part of the job."""

    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)


def collate(rows):
    """Padded to the longest."""
    def pad(name, fill):
        values = [row[name] for row in rows]
        if not isinstance(values[0], list):
            return torch.tensor(values)
        width = max(map(len, values))
        return torch.tensor([v + [fill] * (width - len(v)) for v in values])

    batch = {"input_ids": pad("input_ids", 0), "labels": pad("labels", -100)}
    lengths = torch.tensor([len(row["input_ids"]) for row in rows])
    batch["attention_mask"] = (torch.arange(batch["input_ids"].shape[1]) < lengths[:, None]).long()
    if "token_type_ids" in rows[0]:
        batch["token_type_ids"] = pad("token_type_ids", 0)
    if job["task"] == "causal_lm":
        # given, so that the Trainer counts these: of GPT2LMHeadModel it does not know that the first label is no target
        ids = batch["input_ids"]
        batch.update(input_ids=ids[:, :-1], labels=ids[:, 1:], shift_labels=ids[:, 1:],
                     attention_mask=batch["attention_mask"][:, :-1])
    if job["task"] == "seq2seq":
        batch["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(labels=batch["labels"])
    return batch


how = TrainingArguments(output_dir=job["out"], use_cpu=True, deepspeed=job["deepspeed"], report_to=[], save_strategy="no",
                        disable_tqdm=True, logging_steps=1, remove_unused_columns=False, **LOSSES[job["loss"]],
                        **job["arguments"])
trainer = InOrder(model=model, args=how, train_dataset=job["rows"], data_collator=collate,
                  compute_loss_func=LabelSmoother(job.get("smoothing", 0.0)) if job["loss"] == "sum over all items" else None)
trainer.train()
if trainer.is_world_process_zero():
    json.dump({"engine": type(trainer.model_wrapped).__name__,
               "steps": [s for s in trainer.state.log_history if "loss" in s]}, open(sys.argv[1] + ".out", "w"))
