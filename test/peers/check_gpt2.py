"""GPT-2 of ours against transformers and PyTorch, live."""

import json
import math
import os

import numpy as np
import torch
from transformers import GPT2LMHeadModel, GPT2Model

import checks
import ours
import theirs
from checks import check, expect, noise, same_curve, same_probe, save

SIZES = {
    "tiny": dict(n_layer=2, n_head=2, n_embd=32, vocab_size=97, n_positions=40),
    "odd": dict(n_layer=3, n_head=3, n_embd=51, n_inner=131, vocab_size=101, n_positions=37),
    "mid": dict(n_layer=4, n_head=6, n_embd=384, vocab_size=5003, n_positions=160),
}
SHAPES = {"tiny": (2, 17), "odd": (3, 31), "mid": (2, 129)}  # rows, tokens


def batch(name, seed=1, ignored=0.0):
    rows, width = SHAPES[name]
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, SIZES[name]["vocab_size"], size=(rows, width + 1))
    targets = ids[:, 1:].copy()
    targets[rng.random(targets.shape) < ignored] = -100
    return ids[:, :-1].copy(), targets


# ---- one batch ----

def one_batch(name, folder, *options, ignored=0.0):
    model = theirs.make_model(seed=3, **SIZES[name])
    tokens, targets = batch(name, ignored=ignored)
    got = ours.probe(folder, tokens, targets, save(model, folder), *options)
    return same_probe(got, theirs.probe(model, tokens, targets), 1e-4)


@check
def fp32_tiny_gives_the_same_logits_and_gradients(folder):
    return one_batch("tiny", folder)


@check
def fp32_odd_sizes_give_the_same_logits_and_gradients(folder):
    return one_batch("odd", folder)


@check
def fp32_mid_gives_the_same_logits_and_gradients(folder):
    return one_batch("mid", folder)


@check
def ignored_targets_add_nothing(folder):
    return one_batch("odd", folder, ignored=0.4)


@check
def recomputed_blocks_give_the_same_gradients(folder):
    return one_batch("odd", folder, "--gradient_checkpointing")


@check
def one_thread_gives_the_same_gradients(folder):
    return one_batch("tiny", folder, "--threads", "1")


@check
def a_single_token_is_a_batch(folder):
    model = theirs.make_model(seed=3, **SIZES["tiny"])
    tokens, targets = np.array([[5]]), np.array([[96]])
    got = ours.probe(folder, tokens, targets, save(model, folder))
    return same_probe(got, theirs.probe(model, tokens, targets), 1e-4)


def half_precision(name, folder, option, dtype):
    model = theirs.make_model(seed=3, **SIZES[name])
    return checks.half_precision("gpt2", model, folder, *batch(name), option, dtype)


@check
def bf16_is_as_exact_as_pytorch_odd(folder):
    return half_precision("odd", folder, "--bf16", torch.bfloat16)


@check
def bf16_is_as_exact_as_pytorch_mid(folder):
    return half_precision("mid", folder, "--bf16", torch.bfloat16)


@check
def fp16_is_as_exact_as_pytorch_mid(folder):
    return half_precision("mid", folder, "--fp16", torch.float16)


# ---- training ----

def curves(name, folder, **how):
    """Both loss curves, the model PyTorch trained, and the folder of the one we did."""
    model = theirs.make_model(seed=3, spread=0.05, **SIZES[name])
    got, want, out = checks.train("gpt2", model, SHAPES[name][1], folder, **how)
    return got, want, model, out


@check
def fifty_steps_of_adamw_tiny(folder):
    got, want, _, _ = curves("tiny", folder, rows=4)
    return same_curve(got, want, 1e-3)


@check
def fifty_steps_of_adamw_odd_sizes(folder):
    got, want, _, _ = curves("odd", folder, rows=3)
    return same_curve(got, want, 1e-3)


@check
def fifty_steps_of_adamw_mid(folder):
    got, want, _, _ = curves("mid", folder, rows=2)
    return same_curve(got, want, 1e-3)


@check
def fifty_steps_accumulated_on_two_ranks(folder):
    got, want, _, _ = curves("odd", folder, rows=8, ranks=2, accumulate=2)
    return same_curve(got, want, 1e-3)


@check
def fifty_steps_in_bf16_stay_near_fp32(folder):
    got, want, _, _ = curves("mid", folder, rows=2, options=("--bf16",))
    return same_curve(got, want, 2e-2)


# ---- files ----

@check
def what_we_train_opens_in_transformers(folder):
    _, _, trained, out = curves("odd", folder, rows=3)
    model, info = GPT2LMHeadModel.from_pretrained(out, output_loading_info=True,
                                                  attn_implementation="eager")
    wrong = [k for k in info["missing_keys"] if k != "lm_head.weight"]
    if wrong or info["unexpected_keys"] or info["mismatched_keys"]:
        raise AssertionError(f"transformers says {info}")
    tokens, targets = batch("odd")
    got = ours.probe(folder, tokens, targets, out)
    want = theirs.probe(model.float().eval(), tokens, targets)
    near = theirs.probe(trained, tokens, targets)
    return (same_probe(got, want, 1e-4) + "; against PyTorch's own training "
            + expect("logits", noise(got["logits"], near["logits"]), 1e-2))


@check
def a_checkpoint_opens_in_transformers(folder):
    """Saved in the middle of a run at stage 3: the weights are those that the run had then."""
    config = os.path.join(folder, "zero3.json")
    with open(config, "w", encoding="utf-8") as f:
        json.dump({"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
                   "zero_optimization": {"stage": 3,
                                         "stage3_gather_16bit_weights_on_model_save": True}}, f)
    options = ("--deepspeed", config, "--save_steps", "8")
    _, _, _, out = curves("odd", folder, rows=4, ranks=2, steps=16, options=options)
    opened = {}
    for name in ("checkpoint-8", "checkpoint-16"):
        opened[name], info = GPT2LMHeadModel.from_pretrained(
            os.path.join(out, name), output_loading_info=True, attn_implementation="eager")
        wrong = [k for k in info["missing_keys"] if k != "lm_head.weight"]
        if wrong or info["unexpected_keys"] or info["mismatched_keys"]:
            raise AssertionError(f"transformers says of {name}: {info}")
    tokens, targets = batch("odd")
    middle, end = (ours.probe(folder, tokens, targets, os.path.join(out, name)) for name in opened)
    said = [same_probe(ours_then, theirs.probe(model.float().eval(), tokens, targets), 1e-4)
            for ours_then, model in zip((middle, end), opened.values())]
    if noise(middle["logits"], end["logits"]) < 1e-3:
        raise AssertionError("both checkpoints hold the same weights")
    return "; ".join(said)


@check
def weights_without_the_class_prefix_load(folder):
    model = theirs.make_model(seed=3, **SIZES["odd"])
    path = os.path.join(folder, "bare")
    bare = GPT2Model(model.config)
    bare.load_state_dict(model.transformer.state_dict())
    bare.save_pretrained(path)
    tokens, targets = batch("odd")
    got = ours.probe(folder, tokens, targets, path)
    return same_probe(got, theirs.probe(model, tokens, targets), 1e-4)


@check
def sharded_weights_load(folder):
    model = theirs.make_model(seed=3, **SIZES["mid"])
    path = save(model, folder, max_shard_size="2MB")
    if not os.path.exists(os.path.join(path, "model.safetensors.index.json")):
        raise AssertionError("transformers wrote one file")
    tokens, targets = batch("mid")
    got = ours.probe(folder, tokens, targets, path)
    return same_probe(got, theirs.probe(model, tokens, targets), 1e-4)


@check
def weights_stored_in_bf16_load(folder):
    model = theirs.make_model(seed=3, **SIZES["odd"]).to(torch.bfloat16)
    path = save(model, folder)
    tokens, targets = batch("odd")
    got = ours.probe(folder, tokens, targets, path)
    return same_probe(got, theirs.probe(model.float(), tokens, targets), 1e-4)


@check
def initial_weights_are_distributed_as_in_transformers(folder):
    sizes = dict(n_layer=6, n_head=4, n_embd=128, vocab_size=500, n_positions=96)
    data = ours.write_tokens(os.path.join(folder, "data.bin"), theirs.make_stream(1, 500, 200))
    out = os.path.join(folder, "fresh")
    options = [w for k, v in sizes.items() for w in (f"--{k}", v)]
    ours.zlaunch(1, *options, "--do_train", "--train_file", data, "--data_format", "nanogpt",
                 "--block_size", 32, "--max_steps", 1, "--learning_rate", 0, "--output_dir", out)
    got = GPT2LMHeadModel.from_pretrained(out)
    torch.manual_seed(1)
    want = GPT2LMHeadModel(got.config)
    worst = 0.0
    for (name, a), (_, b) in zip(got.named_parameters(), want.named_parameters()):
        if a.shape != b.shape:
            raise AssertionError(name)
        if a.dim() == 1:
            if not torch.equal(a, b):
                raise AssertionError(f"{name} is not the constant that transformers uses")
            continue
        # deviations of samples of n normal numbers differ by about 1/sqrt(n)
        a, b = a.detach(), b.detach()
        off = abs(a.std() / b.std() - 1) * math.sqrt(a.numel())
        mean = abs(a.mean() / b.std()) * math.sqrt(a.numel())
        worst = max(worst, float(off), float(mean))
    return expect("deviations and means, in standard errors", worst, 5.0)


@check
def config_json_says_what_transformers_needs(folder):
    _, _, model, out = curves("tiny", folder, rows=2, steps=8)
    with open(os.path.join(out, "config.json"), encoding="utf-8") as f:
        text = json.load(f)
    for key in ("n_layer", "n_head", "n_embd", "vocab_size", "n_positions", "model_type",
                "activation_function", "layer_norm_epsilon"):
        want = getattr(model.config, key)
        if text[key] != want and abs(float(text[key]) - want) > 1e-12:
            raise AssertionError(f"{key}: {text[key]}, not {want}")
    return f"{len(text)} keys"


# ---- evaluation and text ----

@check
def evaluation_counts_every_token_once(folder):
    model = theirs.make_model(seed=3, **SIZES["odd"])
    stream = theirs.make_stream(9, SIZES["odd"]["vocab_size"], 7 * 31 + 12)
    data = ours.write_tokens(os.path.join(folder, "eval.bin"), stream)
    total = 0.0
    with torch.no_grad():
        for at in range(0, len(stream) - 1, 31):
            ids = torch.from_numpy(stream[at:at + 32])
            logits = model(ids[None, :-1]).logits[0]
            total += float(torch.nn.functional.cross_entropy(logits, ids[1:], reduction="sum"))
    want = total / (len(stream) - 1)
    said = []
    weights = save(model, folder)
    for ranks in (1, 2):
        log = ours.zlaunch(ranks, "--do_eval", "--eval_file", data, "--data_format", "nanogpt",
                           "--block_size", 31, "--per_device_eval_batch_size", 3,
                           "--model_name_or_path", weights)
        ev = ours.events(log, "eval")[-1]
        if ev["tokens"] != len(stream) - 1:
            raise AssertionError(f"{ev['tokens']} tokens of {len(stream) - 1}")
        said.append(expect(f"{ranks} ranks: loss", abs(ev["loss"] - want), 1e-4))
        expect("perplexity", abs(ev["perplexity"] / math.exp(want) - 1), 1e-4)
    return ", ".join(said)


def generate(folder, name, prompt, count):
    model = theirs.make_model(seed=4, spread=0.2, **SIZES[name])
    return checks.generate("gpt2", model, folder, prompt, count)


@check
def greedy_text_is_that_of_transformers(folder):
    return generate(folder, "tiny", [3, 14, 15, 92, 65], 35)


@check
def greedy_text_of_one_token_prompt(folder):
    return generate(folder, "odd", [7], 30)


@check
def greedy_text_mid(folder):
    return generate(folder, "mid", [4, 4000, 17, 256, 1, 2, 3], 60)
