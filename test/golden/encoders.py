"""Write a folder of test/golden/ for each task of an encoder: what transformers and PyTorch compute for small
models (golden.py says what the files are). In a task's folder are

    model/               weights, config.json and a tokenizer
    rows.jsonl           what is trained on
    batch.safetensors    fields of one batch, by name
    probe.safetensors    loss, logits (of classes) and gradients of it, but for those that are rounding alone
    curve.txt            loss and gradient norm of 20 steps of AdamW over the rows (not of masked_lm)
"""

import os
import shutil

import golden
import check_bert
import torch
import transformers
from safetensors.numpy import save_file


def write_task(family, task, model, rounding):
    folder, rows = os.path.join(golden.HERE, family, task), check_bert.rows_of(task, 53)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    weights = check_bert.save_with_tokenizer(model, folder)
    fields = check_bert.random_fields(task)
    save_file(fields, os.path.join(folder, "batch.safetensors"))
    want = check_bert.reference(model, task, fields)
    if want["logits"].ndim == 3:  # those of padding are nobody's business, and loss and gradients have the others
        del want["logits"]
    save_file({n: v for n, v in want.items() if not n.endswith(rounding)}, os.path.join(folder, "probe.safetensors"))
    check_bert.write_rows(folder, task, rows)
    written = [f for f in os.listdir(folder) if f.startswith(task + ".json")]
    os.rename(os.path.join(folder, written[0]), os.path.join(folder, "rows.jsonl"))
    if task != "masked_lm":
        with open(os.path.join(folder, "curve.txt"), "w", encoding="utf-8") as f:
            for loss, norm in check_bert.train(model, task, weights, rows, 4, 16):
                f.write(f"{loss:.9g} {norm:.9g}\n")


def write(family, models, rounding):
    """test/golden/FAMILY/TASK/ for the model of each task; rounding: ends of names of gradients."""
    for task, model in models.items():
        write_task(family, task, model, rounding)
    with open(os.path.join(golden.HERE, family, "versions.txt"), "w", encoding="utf-8") as f:
        f.write(f"torch {torch.__version__}\ntransformers {transformers.__version__}\n")
