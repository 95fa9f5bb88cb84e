"""Whole fine-tunings against the Trainer of transformers: the same DeepSpeed config, options, weights and order of rows."""

import json
import os
import subprocess
import sys

import numpy as np
from transformers import AutoTokenizer

import check_bart
import check_bert
import check_t5
import ours
import seq2seq
import theirs
from checks import check, expect, save

STEPS, SEED = 50, 11
ROWS = 8  # of a global batch
WIDTH = 16
HOW = dict(max_steps=STEPS, learning_rate=2e-3, weight_decay=0.1, warmup_steps=5, max_grad_norm=1.0, lr_scheduler_type="linear")


def write_config(folder, stage):
    """One file for both: what is "auto" follows from the options."""
    path = os.path.join(folder, "ds.json")
    with open(path, "w") as f:
        json.dump({"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
                   "train_batch_size": "auto", "gradient_clipping": "auto",
                   "zero_optimization": {"stage": stage, "overlap_comm": False}}, f)
    return path


def trainer(folder, ranks, job):
    """Events of the Trainer's steps, with DeepSpeed on its CPU accelerator."""
    path = os.path.join(folder, "job.json")
    with open(path, "w") as f:
        json.dump(dict(job, out=os.path.join(folder, "trainer")), f)
    child = os.path.join(os.path.dirname(os.path.abspath(__file__)), "trainer_child.py")
    env = dict(os.environ, DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1",
               PATH=os.path.dirname(sys.executable) + ":" + os.environ["PATH"])
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks),
                           child, path], capture_output=True, text=True, env=env, timeout=1800)
    if done.returncode:
        raise ours.Failed(done.stderr[-3000:])
    said = json.load(open(path + ".out"))
    if said["engine"] != "DeepSpeedEngine":
        raise AssertionError(f"the Trainer ran with {said['engine']}, not with DeepSpeed")
    return said["steps"]


def order(num):
    """Which row of the data is where in the global batches of all steps, one behind the other."""
    return [ours.permute(SEED, place // num, num, place % num) for place in range(STEPS * ROWS)]


def same_curve(folder, plugin, job, data, stage, *options, ranks=2, accumulate=1):
    """Loss and gradient norm of every step. `job`: task, model, rows as trainer_child.py takes them, and which loss."""
    config = write_config(folder, stage)
    how = dict(HOW, per_device_train_batch_size=ROWS // (ranks * accumulate), gradient_accumulation_steps=accumulate)
    theirs_log = trainer(folder, ranks, dict(job, deepspeed=config, arguments=how))
    words = [word for name, value in how.items() for word in ("--" + name, value)]
    log = ours.zlaunch(ranks, "--task", job["task"], "--do_train", "--train_file", data, "--deepspeed", config, "--seed", SEED,
                       "--logging_steps", 1, "--model_name_or_path", job["model"], *words, *options, model=plugin)
    got = np.array([[e["loss"], e["grad_norm"], e["lr"]] for e in ours.events(log, "step")])
    want = np.array([[s["loss"], s["grad_norm"], s["learning_rate"]] for s in theirs_log])
    if got.shape != (STEPS, 3) or want.shape != (STEPS, 3):
        raise AssertionError(f"{len(got)} steps of ours, {len(want)} of the Trainer's")
    if want[0, 0] - want[-1, 0] < 0.3:
        raise AssertionError(f"the Trainer learns too little to prove anything: {want[0, 0]:.3g} to {want[-1, 0]:.3g}")
    return (f"{STEPS} steps, " + expect("loss", float(np.abs(got - want)[:, 0].max()), 1e-3)
            + f", {want[0, 0]:.2f} to {want[-1, 0]:.2f}, "
            + expect("gradient norm", float((np.abs(got - want)[:, 1] / want[:, 1]).max()), 1e-3))


def with_bert(folder, task, stage, loss, **how):
    model = check_bert.save_with_tokenizer(check_bert.make_model(task), folder)
    data = check_bert.rows_of(task, 53)
    tokenizer = AutoTokenizer.from_pretrained(model)
    encoded = [check_bert.encode(tokenizer, task, row, WIDTH) for row in data]
    rows = [{"input_ids": encoded[i][0], "token_type_ids": encoded[i][1], "labels": encoded[i][2]} for i in order(len(data))]
    return same_curve(folder, "bert", dict(task=task, model=model, rows=rows, loss=loss),
                      check_bert.write_rows(folder, task, data), stage, "--block_size", WIDTH, **how)


@check
def a_classifier_learns_as_under_zero_1(folder):
    return with_bert(folder, "classify", 1, "mean of a rank's rows")


@check
def a_classifier_learns_as_under_zero_2(folder):
    return with_bert(folder, "classify", 2, "mean of a rank's rows")


@check
def a_classifier_on_one_rank_learns_as_under_zero_2(folder):
    return with_bert(folder, "classify", 2, "mean of a rank's rows", ranks=1)


@check
def a_tagger_learns_as_under_zero_2(folder):
    return with_bert(folder, "tag", 2, "sum over all items")


def with_pairs(folder, plugin, model, stage, smoothing=0.0, **how):
    texts = seq2seq.random_texts(53)
    ids = [([*source.encode(), 256], [*target.encode(), 256]) for source, target in texts]
    rows = [{"input_ids": ids[i][0], "labels": ids[i][1]} for i in order(len(ids))]
    return same_curve(folder, plugin, dict(task="seq2seq", model=save(model, folder), rows=rows, loss="sum over all items",
                                           smoothing=smoothing),
                      seq2seq.write_pairs(folder, texts), stage, *seq2seq.DATA, "--label_smoothing_factor", smoothing, **how)


@check
def a_t5_learns_as_under_zero_1(folder):
    return with_pairs(folder, "t5", check_t5.make("small"), 1)


@check
def a_t5_on_one_rank_accumulates_as_under_zero_2(folder):
    return with_pairs(folder, "t5", check_t5.make("small"), 2, ranks=1, accumulate=2)


@check
def a_bart_with_smoothed_targets_learns_as_under_zero_2(folder):
    return with_pairs(folder, "bart", check_bart.make("bart"), 2, smoothing=0.1)


def language(folder, stage):
    model = os.path.join(folder, "model")
    theirs.make_model(seed=3, n_layer=2, n_head=2, n_embd=32, vocab_size=97, n_positions=40).save_pretrained(model)
    stream = theirs.make_stream(5, 97, 61 * WIDTH + 1)
    starts = [i * WIDTH for i in order((len(stream) - 1) // WIDTH)]
    # the target of a row's last token is the first of the next, which the Trainer gets as a token more
    rows = [{"input_ids": stream[s:s + WIDTH + 1].tolist(), "labels": stream[s:s + WIDTH + 1].tolist()} for s in starts]
    return same_curve(folder, "gpt2", dict(task="causal_lm", model=model, rows=rows, loss="the model's"),
                      ours.write_tokens(os.path.join(folder, "data.bin"), stream), stage,
                      "--data_format", "nanogpt", "--block_size", WIDTH)


@check
def a_language_model_learns_as_under_zero_2(folder):
    return language(folder, 2)


@check
def a_language_model_learns_as_under_zero_3(folder):
    return language(folder, 3)
