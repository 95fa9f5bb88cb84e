"""The Llama family of ours against transformers and PyTorch, live."""

import json
import math
import os

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import checks
import ours
import theirs
from checks import check, expect, noise, same_curve, same_probe, save

LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=32)
MODELS = {
    # plain: every head has its own keys
    "llama": ("llama", dict(num_hidden_layers=2, hidden_size=32, intermediate_size=88,
                            num_attention_heads=4, num_key_value_heads=4, vocab_size=97,
                            max_position_embeddings=64)),
    # heads wider than hidden_size / heads, stretched frequencies, shared keys
    "llama3": ("llama", dict(num_hidden_layers=3, hidden_size=66, intermediate_size=131,
                             num_attention_heads=6, num_key_value_heads=2, head_dim=18,
                             vocab_size=101, max_position_embeddings=96, rms_norm_eps=1e-5,
                             rope_parameters=LLAMA3)),
    "biases": ("llama", dict(num_hidden_layers=2, hidden_size=48, intermediate_size=96,
                             num_attention_heads=3, num_key_value_heads=1, vocab_size=101,
                             max_position_embeddings=64, attention_bias=True, mlp_bias=True,
                             tie_word_embeddings=True,
                             rope_parameters=dict(rope_type="linear", factor=3.0,
                                                  rope_theta=500.0))),
    "qwen2": ("qwen2", dict(num_hidden_layers=3, hidden_size=56, intermediate_size=120,
                            num_attention_heads=7, num_key_value_heads=1, vocab_size=103,
                            max_position_embeddings=96, tie_word_embeddings=True,
                            rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    "window": ("qwen2", dict(num_hidden_layers=3, hidden_size=48, intermediate_size=96,
                             num_attention_heads=4, num_key_value_heads=2, vocab_size=101,
                             max_position_embeddings=96, use_sliding_window=True,
                             sliding_window=7, max_window_layers=1)),
    "mistral": ("mistral", dict(num_hidden_layers=2, hidden_size=48, intermediate_size=104,
                                num_attention_heads=6, num_key_value_heads=2, vocab_size=101,
                                max_position_embeddings=96, sliding_window=9,
                                rope_parameters=dict(rope_type="default", rope_theta=1e4))),
    # heads wider than hidden_size / heads, norms of q and k, a window in the upper layer
    "qwen3": ("qwen3", dict(num_hidden_layers=3, hidden_size=40, intermediate_size=88,
                            num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                            vocab_size=103, max_position_embeddings=96, attention_bias=True,
                            use_sliding_window=True, sliding_window=11, max_window_layers=2,
                            rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    "qwen3tied": ("qwen3", dict(num_hidden_layers=2, hidden_size=48, intermediate_size=96,
                                num_attention_heads=3, num_key_value_heads=3, head_dim=32,
                                vocab_size=97, max_position_embeddings=64,
                                tie_word_embeddings=True,
                                rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    "gemma": ("gemma", dict(num_hidden_layers=2, hidden_size=44, intermediate_size=120,
                            num_attention_heads=4, num_key_value_heads=1, head_dim=24,
                            vocab_size=107, max_position_embeddings=96)),
    "gemmauntied": ("gemma", dict(num_hidden_layers=2, hidden_size=48, intermediate_size=96,
                                  num_attention_heads=3, num_key_value_heads=3, head_dim=16,
                                  vocab_size=103, max_position_embeddings=64,
                                  attention_bias=True, tie_word_embeddings=False)),
    "mid": ("llama", dict(num_hidden_layers=4, hidden_size=384, intermediate_size=1024,
                          num_attention_heads=6, num_key_value_heads=2, vocab_size=5003,
                          max_position_embeddings=160, tie_word_embeddings=True,
                          rope_parameters=LLAMA3)),
}
SHAPES = {"mid": (2, 129)}  # rows, tokens


def make(name, **how):
    kind, config = MODELS[name]
    return theirs.make_llama(kind, **{"seed": 3, **how}, **json.loads(json.dumps(config)))


def batch(name):
    rows, width = SHAPES.get(name, (3, 61))
    ids = np.random.default_rng(1).integers(0, MODELS[name][1]["vocab_size"],
                                            size=(rows, width + 1))
    return ids[:, :-1].copy(), ids[:, 1:].copy()


# ---- one batch ----

def one_batch(name, folder, *options):
    model = make(name)
    tokens, targets = batch(name)
    got = ours.probe(folder, tokens, targets, save(model, folder), *options, model="llama")
    return same_probe(got, theirs.probe(model, tokens, targets), 1e-4)


@check
def plain_llama_gives_the_same_logits_and_gradients(folder):
    return one_batch("llama", folder)


@check
def llama3_frequencies_and_wide_heads_give_the_same_logits_and_gradients(folder):
    return one_batch("llama3", folder)


@check
def llama_with_every_bias_and_linear_scaling_gives_the_same_logits_and_gradients(folder):
    return one_batch("biases", folder)


@check
def qwen2_gives_the_same_logits_and_gradients(folder):
    return one_batch("qwen2", folder)


@check
def qwen2_with_a_window_gives_the_same_logits_and_gradients(folder):
    return one_batch("window", folder)


@check
def mistral_gives_the_same_logits_and_gradients(folder):
    return one_batch("mistral", folder)


@check
def qwen3_with_biases_and_a_window_gives_the_same_logits_and_gradients(folder):
    return one_batch("qwen3", folder)


@check
def qwen3_with_a_tied_head_gives_the_same_logits_and_gradients(folder):
    return one_batch("qwen3tied", folder)


@check
def gemma_gives_the_same_logits_and_gradients(folder):
    return one_batch("gemma", folder)


@check
def gemma_with_a_head_of_its_own_gives_the_same_logits_and_gradients(folder):
    return one_batch("gemmauntied", folder)


@check
def mid_gives_the_same_logits_and_gradients(folder):
    return one_batch("mid", folder)


@check
def recomputed_blocks_give_the_same_gradients(folder):
    return one_batch("window", folder, "--gradient_checkpointing")


@check
def an_older_config_json_says_the_same(folder):
    """rope_theta and rope_scaling at the top, as transformers 4 writes them."""
    model = make("llama3")
    path = save(model, folder)
    name = os.path.join(path, "config.json")
    with open(name, encoding="utf-8") as f:
        config = json.load(f)
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope
    with open(name, "w", encoding="utf-8") as f:
        json.dump(config, f)
    tokens, targets = batch("llama3")
    got = ours.probe(folder, tokens, targets, path, model="llama")
    return same_probe(got, theirs.probe(model, tokens, targets), 1e-4)


@check
def bf16_is_as_exact_as_pytorch(folder):
    return checks.half_precision("llama", make("mid"), folder, *batch("mid"), "--bf16",
                                 torch.bfloat16)


@check
def bf16_is_as_exact_as_pytorch_with_biases(folder):
    return checks.half_precision("llama", make("qwen2"), folder, *batch("qwen2"), "--bf16",
                                 torch.bfloat16)


@check
def bf16_is_as_exact_as_pytorch_for_qwen3(folder):
    return checks.half_precision("llama", make("qwen3"), folder, *batch("qwen3"), "--bf16",
                                 torch.bfloat16)


@check
def bf16_is_as_exact_as_pytorch_for_gemma(folder):
    return checks.half_precision("llama", make("gemma"), folder, *batch("gemma"), "--bf16",
                                 torch.bfloat16)


# ---- training and files ----

def curves(name, folder, **how):
    """Both loss curves, the model PyTorch trained, and the folder of the one we did."""
    model = make(name, spread=0.05)
    got, want, out = checks.train("llama", model, 31, folder, **how)
    return got, want, model, out


@check
def fifty_steps_of_adamw_llama3(folder):
    got, want, _, _ = curves("llama3", folder, rows=4)
    return same_curve(got, want, 1e-3)


@check
def fifty_steps_of_adamw_qwen2_window_on_two_ranks(folder):
    got, want, _, _ = curves("window", folder, rows=4, ranks=2)
    return same_curve(got, want, 1e-3)


@check
def fifty_steps_of_adamw_mistral(folder):
    got, want, _, _ = curves("mistral", folder, rows=4)
    return same_curve(got, want, 1e-3)


@check
def fifty_steps_of_adamw_qwen3(folder):
    got, want, _, _ = curves("qwen3", folder, rows=4)
    return same_curve(got, want, 1e-3)


@check
def fifty_steps_of_adamw_gemma_on_two_ranks(folder):
    got, want, _, _ = curves("gemma", folder, rows=4, ranks=2)
    return same_curve(got, want, 1e-3)


def reopen(name, folder):
    """What we trained opens in transformers, and gives the same there."""
    _, _, trained, out = curves(name, folder, rows=4)
    model, info = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True,
                                                       attn_implementation="eager")
    wrong = [k for k in info["missing_keys"] if k != "lm_head.weight"]
    if type(model) is not type(trained) or wrong or info["unexpected_keys"] or \
            info["mismatched_keys"]:
        raise AssertionError(f"transformers says {type(model)} {info}")
    tokens, targets = batch(name)
    got = ours.probe(folder, tokens, targets, out, model="llama")
    want = theirs.probe(model.float().eval(), tokens, targets)
    near = theirs.probe(trained, tokens, targets)
    return (same_probe(got, want, 1e-4) + "; against PyTorch's own training "
            + expect("logits", noise(got["logits"], near["logits"]), 1e-2))


@check
def llama3_that_we_train_opens_in_transformers(folder):
    return reopen("llama3", folder)


@check
def llama_with_every_bias_that_we_train_opens_in_transformers(folder):
    return reopen("biases", folder)


@check
def qwen2_that_we_train_opens_in_transformers(folder):
    return reopen("qwen2", folder)


@check
def qwen2_with_a_window_that_we_train_opens_in_transformers(folder):
    return reopen("window", folder)


@check
def mistral_that_we_train_opens_in_transformers(folder):
    return reopen("mistral", folder)


@check
def qwen3_that_we_train_opens_in_transformers(folder):
    return reopen("qwen3", folder)


@check
def gemma_that_we_train_opens_in_transformers(folder):
    return reopen("gemma", folder)


@check
def config_json_comes_out_as_it_went_in(folder):
    said = []
    for name in MODELS:
        if name == "mid":
            continue
        path = os.path.join(folder, name)
        os.mkdir(path)
        _, _, model, out = curves(name, path, rows=2, steps=4)
        again = AutoConfig.from_pretrained(out)
        for key, want in model.config.to_dict().items():
            if key in ("dtype", "transformers_version", "_name_or_path", "use_cache",
                       "pad_token_id", "architectures"):
                continue
            got = getattr(again, key)
            if got != want and not (key == "max_window_layers" and not again.use_sliding_window):
                raise AssertionError(f"{name}: {key} is {got}, not {want}")
        said.append(name)
    return ", ".join(said)


def fresh(folder, *options):
    """A model with our initial weights, made from options alone."""
    data = ours.write_tokens(os.path.join(folder, "data.bin"), theirs.make_stream(1, 500, 200))
    out = os.path.join(folder, "fresh")
    ours.zlaunch(1, *options, "--do_train", "--train_file", data, "--data_format", "nanogpt",
                 "--block_size", 32, "--max_steps", 1, "--learning_rate", 0, "--output_dir", out,
                 model="llama")
    return AutoModelForCausalLM.from_pretrained(out)


def same_initial_weights(got):
    torch.manual_seed(1)
    want = type(got)(got.config)
    worst = 0.0
    for (name, a), (_, b) in zip(got.named_parameters(), want.named_parameters()):
        a, b = a.detach(), b.detach()
        if a.shape != b.shape or (a.dim() == 1 and not torch.equal(a, b)):
            raise AssertionError(f"{name} is not what transformers makes")
        if a.dim() == 2:
            # deviations of samples of n normal numbers differ by about 1/sqrt(n)
            off = abs(a.std() / b.std() - 1) * math.sqrt(a.numel())
            mean = abs(a.mean() / b.std()) * math.sqrt(a.numel())
            worst = max(worst, float(off), float(mean))
    return expect("deviations and means, in standard errors", worst, 5.0)


@check
def initial_weights_of_a_shrunk_llama_are_distributed_as_in_transformers(folder):
    got = fresh(folder, "--model", "llama3.1-8b", "--hidden_size", 128, "--intermediate_size",
                320, "--num_hidden_layers", 4, "--num_attention_heads", 4,
                "--num_key_value_heads", 2, "--initializer_range", 0.03)
    rope = got.config.rope_parameters
    if rope["rope_type"] != "llama3" or rope["factor"] != 8 or rope["rope_theta"] != 500000:
        raise AssertionError(f"rope is {rope}")
    return same_initial_weights(got)


@check
def initial_weights_of_a_shrunk_qwen2_are_distributed_as_in_transformers(folder):
    got = fresh(folder, "--model", "qwen2.5-0.5b", "--hidden_size", 96, "--intermediate_size",
                256, "--num_hidden_layers", 3, "--num_attention_heads", 6,
                "--num_key_value_heads", 2, "--sliding_window", 8, "--max_window_layers", 1)
    if got.config.layer_types != ["full_attention"] + ["sliding_attention"] * 2:
        raise AssertionError(f"layers are {got.config.layer_types}")
    return same_initial_weights(got)


@check
def initial_weights_of_a_shrunk_gemma_are_distributed_as_in_transformers(folder):
    return same_initial_weights(fresh(
        folder, "--model", "gemma-2b", "--hidden_size", 96, "--intermediate_size", 256,
        "--num_hidden_layers", 2, "--num_attention_heads", 4, "--num_key_value_heads", 1,
        "--head_dim", 32))


# ---- text ----

@check
def greedy_text_llama3(folder):
    return checks.generate("llama", make("llama3", seed=4, spread=0.2), folder, [3, 14, 15, 92], 60)


@check
def greedy_text_qwen2(folder):
    return checks.generate("llama", make("qwen2", seed=4, spread=0.3), folder, [7], 40)


@check
def greedy_text_qwen2_far_beyond_its_window(folder):
    return checks.generate("llama", make("window", seed=4, spread=0.3), folder,
                           [5, 6, 7, 8, 9, 10, 11, 12, 13, 14], 60)


@check
def greedy_text_mistral_far_beyond_its_window(folder):
    return checks.generate("llama", make("mistral", seed=4, spread=0.3), folder,
                           [5, 6, 7, 8, 9, 10, 11, 12], 60)


@check
def greedy_text_qwen3(folder):
    return checks.generate("llama", make("qwen3", seed=4, spread=0.3), folder, [7, 3], 50)


@check
def greedy_text_gemma(folder):
    return checks.generate("llama", make("gemma", seed=4, spread=0.3), folder, [2, 7, 3], 50)
