"""LoRA adapters of ours against the package peft, live: their files, numbers and merging."""

import copy
import os

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM

import checks
import check_bert
import check_llama
import ours
import theirs
from checks import check, distance, expect, noise, same_curve, same_probe, save

STEPS = 20
GPT2 = dict(n_layer=2, n_head=4, n_embd=32, vocab_size=97, n_positions=64)


def base(name):
    """(plugin, model with random weights)"""
    if name == "gpt2":
        return "gpt2", theirs.make_model(seed=3, **GPT2)
    return "llama", check_llama.make(name)


def adapt(model, seed=5, fill=True, **how):
    """peft's adapters on a copy of the model; `fill`: B is random, too."""
    torch.manual_seed(seed)
    peft = get_peft_model(copy.deepcopy(model), LoraConfig(task_type="CAUSAL_LM", **how)).eval()
    with torch.no_grad():
        for n, p in peft.named_parameters():
            if fill and "lora_B" in n:
                p.normal_(0, 0.1)
    return peft


def plain(name):
    """Our name of a parameter of theirs."""
    return name.replace("base_model.model.", "").replace(".modules_to_save", "").replace(".default", "")


def their_probe(peft, tokens, targets):
    got = theirs.probe(peft, tokens, targets)
    return {("grad." + plain(k[5:]) if k.startswith("grad.") else k): v for k, v in got.items()}


def batch(model):
    ids = np.random.default_rng(1).integers(0, model.config.vocab_size, size=(3, 48))
    return ids[:, :-1].copy(), ids[:, 1:].copy()


# ---- one batch ----

def one_batch(name, folder, *options, **how):
    """Adapters that peft wrote, and the gradients of all their factors."""
    plugin, model = base(name)
    peft = adapt(model, **how)
    peft.save_pretrained(os.path.join(folder, "adapter"), save_embedding_layers=False)
    tokens, targets = batch(model)
    got = ours.probe(folder, tokens, targets, save(model, folder), "--adapter_name_or_path",
                     os.path.join(folder, "adapter"), *options, model=plugin)
    want = their_probe(peft, tokens, targets)
    if {k for k in got if k.startswith("grad.")} != {k for k in want if k.startswith("grad.")}:
        raise AssertionError(f"trained are {sorted(got)}, not {sorted(want)}")
    return same_probe(got, want, 1e-4) + f", {len(want) - 2} factors"


@check
def adapters_of_every_linear_op_of_llama_give_the_same_gradients(folder):
    return one_batch("llama3", folder, r=4, lora_alpha=16, target_modules="all-linear")


@check
def adapters_of_q_and_v_of_qwen2_give_the_same_gradients(folder):
    return one_batch("qwen2", folder, r=3, lora_alpha=7, target_modules=["q_proj", "v_proj"])


@check
def adapters_by_a_regular_expression_give_the_same_gradients(folder):
    return one_batch("gemma", folder, r=2, target_modules=r".*\.layers\.1\.(mlp|self_attn)\.\w+_proj")


@check
def rank_stabilised_adapters_give_the_same_gradients(folder):
    return one_batch("qwen3", folder, r=9, lora_alpha=4, use_rslora=True,
                     target_modules=["gate_proj", "down_proj", "o_proj"])


@check
def adapters_of_the_output_head_give_the_same_gradients(folder):
    return one_batch("llama", folder, r=4, target_modules=["lm_head", "up_proj"])


@check
def adapters_of_gpt2_give_the_same_gradients(folder):
    return one_batch("gpt2", folder, r=4, lora_alpha=16, fan_in_fan_out=True,
                     target_modules=["c_attn", "c_proj", "c_fc"])


@check
def adapters_of_recomputed_blocks_give_the_same_gradients(folder):
    return one_batch("llama3", folder, "--gradient_checkpointing", r=4, target_modules="all-linear")


@check
def adapters_in_bf16_are_as_exact_as_in_pytorch(folder):
    plugin, model = base("mid")
    peft = adapt(model, r=8, lora_alpha=16, target_modules="all-linear")
    peft.save_pretrained(os.path.join(folder, "adapter"))
    tokens, targets = batch(model)
    got = ours.probe(folder, tokens, targets, save(model, folder), "--adapter_name_or_path",
                     os.path.join(folder, "adapter"), "--bf16", model=plugin)
    exact = their_probe(peft, tokens, targets)
    rough = their_probe(peft.to(torch.bfloat16), tokens, targets)
    worst = max((noise(got[k], v) / noise(rough[k], v), k) for k, v in exact.items() if k != "loss")
    return expect(f"error over PyTorch's ({worst[1]})", worst[0], 2.0)


@check
def adapters_of_bert_and_its_classifier_give_the_same_gradients(folder):
    """The head is trained whole, as peft's modules_to_save."""
    model = check_bert.make_model("classify")
    torch.manual_seed(5)
    peft = get_peft_model(copy.deepcopy(model), LoraConfig(task_type="SEQ_CLS", r=4, lora_alpha=12,
                                                           target_modules=["query", "value"])).eval()
    with torch.no_grad():
        for n, p in peft.named_parameters():
            if "lora_B" in n or "modules_to_save" in n:
                p.normal_(0, 0.2)
    adapter, out = os.path.join(folder, "adapter"), os.path.join(folder, "out")
    peft.save_pretrained(adapter)
    fields = check_bert.random_fields("classify")
    weights = check_bert.save_with_tokenizer(model, folder)
    data = check_bert.write_rows(folder, "classify", check_bert.rows_of("classify", 40))
    how = ["--task", "classify", "--train_file", data, "--adapter_name_or_path", adapter]
    got = ours.probe_fields(folder, fields, weights, *how, model="bert")
    logits, loss = check_bert.forward(peft, "classify", fields)
    loss.backward()
    want = {"loss": loss.detach().reshape(1).numpy(), "logits": logits.detach().numpy()}
    want.update({"grad." + plain(n): p.grad.numpy() for n, p in peft.named_parameters()
                 if p.grad is not None})
    if set(got) != set(want):
        raise AssertionError(f"trained are {sorted(got)}, not {sorted(want)}")
    said = same_probe(got, want, 1e-4, parts=("loss", "logits")) + ", " + same_probe(
        got, want, 1e-3, parts=("grad.",))
    ours.zlaunch(2, *how, "--do_train", "--max_steps", 1, "--learning_rate", 0, "--model_name_or_path",
                 weights, "--per_device_train_batch_size", 2, "--output_dir", out, model="bert")
    again = PeftModel.from_pretrained(copy.deepcopy(model), out).eval()
    far = distance(check_bert.forward(again, "classify", fields)[0].detach().numpy(), want["logits"])
    return said + "; reopened: " + expect("logits", far, 1e-6)


# ---- training and files ----

def train(name, folder, ranks=1, options=(), rows=4, width=31, **how):
    """Both curves, what peft trained, the base and our folder: both begin with peft's first values."""
    plugin, model = base(name)
    peft = adapt(model, fill=False, **how)
    first, out = os.path.join(folder, "first"), os.path.join(folder, "trained")
    peft.save_pretrained(first)
    weights = save(model, folder)
    stream = theirs.make_stream(5, model.config.vocab_size, 37 * width + 1)
    data = ours.write_tokens(os.path.join(folder, "data.bin"), stream)
    log = ours.zlaunch(
        ranks, "--do_train", "--train_file", data, "--data_format", "nanogpt", "--block_size", width,
        "--per_device_train_batch_size", rows // ranks, "--max_steps", STEPS, "--seed", 11,
        "--model_name_or_path", weights, "--adapter_name_or_path", first, "--output_dir", out,
        "--learning_rate", 2e-2, "--weight_decay", 0.1, "--warmup_steps", 3, "--max_grad_norm", 1,
        "--lr_scheduler_type", "linear", "--logging_steps", 1, *options, model=plugin)
    got = np.array([(e["loss"], e["grad_norm"], e["lr"]) for e in ours.events(log, "step")])
    peft.train()
    want = np.array(theirs.train(peft, ours.batches(stream, width, rows, 11, STEPS), STEPS, lr=2e-2,
                                 weight_decay=0.1, warmup=3, clip=1.0))
    return got, want, peft.eval(), model, out


def same_training(got, want):
    """Adapters learn less in twenty steps than same_curve() asks for."""
    far = np.abs(got - want)
    if got.shape != want.shape or want[0, 0] - want[-1, 0] < 0.1:
        raise AssertionError(f"the reference learns too little: {want[0, 0]:.3f} to {want[-1, 0]:.3f}")
    return (expect("loss", float(far[:, 0].max()), 1e-3) + ", "
            + expect("gradient norm", float((far[:, 1] / want[:, 1]).max()), 1e-2)
            + f", {want[0, 0]:.2f} to {want[-1, 0]:.2f}")


def reopened(peft, model, out):
    """Our files in peft: every tensor is taken, and the numbers are those of peft's training."""
    again = PeftModel.from_pretrained(copy.deepcopy(model), out).eval()
    files = load_file(os.path.join(out, "adapter_model.safetensors"))
    state = {k.replace(".default", ""): v for k, v in again.state_dict().items() if "lora_" in k}
    if set(files) != set(state):
        raise AssertionError(f"tensors are {sorted(files)}, in peft {sorted(state)}")
    for k, v in files.items():
        if not np.array_equal(v, state[k].numpy()):
            raise AssertionError(f"{k} is not what peft has read")
    tokens, _ = batch(model)
    with torch.no_grad():
        a, b = (m(torch.from_numpy(tokens)).logits.numpy() for m in (again, peft))
    return expect("logits", distance(a, b), 1e-2)


@check
def twenty_steps_of_adapters_on_llama_and_their_files(folder):
    got, want, peft, model, out = train("llama3", folder, r=4, lora_alpha=16, target_modules="all-linear")
    return same_training(got, want) + "; reopened: " + reopened(peft, model, out)


@check
def twenty_steps_of_adapters_on_gpt2_with_two_ranks_and_their_files(folder):
    got, want, peft, model, out = train("gpt2", folder, ranks=2, r=4, lora_alpha=8, fan_in_fan_out=True,
                                        target_modules=["c_attn", "c_fc"])
    return same_training(got, want) + "; reopened: " + reopened(peft, model, out)


@check
def twenty_steps_of_adapters_on_qwen2_merged(folder):
    got, want, peft, _, out = train("qwen2", folder, options=["--merge_adapters"], r=4, lora_alpha=16,
                                    target_modules=["q_proj", "v_proj", "up_proj"])
    merged = AutoModelForCausalLM.from_pretrained(out, attn_implementation="eager").eval()
    tokens, _ = batch(merged)
    with torch.no_grad():
        a, b = (m(torch.from_numpy(tokens)).logits.numpy() for m in (merged, peft.merge_and_unload()))
    return same_training(got, want) + "; merged: " + expect("logits", distance(a, b), 1e-2)


def merged_alone(name, folder, **how):
    """An adapter of peft merged without training, against peft's merge_and_unload."""
    plugin, model = base(name)
    peft = adapt(model, **how)
    peft.save_pretrained(os.path.join(folder, "adapter"))
    out = os.path.join(folder, "merged")
    ours.zlaunch(2, "--model_name_or_path", save(model, folder), "--adapter_name_or_path",
                 os.path.join(folder, "adapter"), "--merge_adapters", "--output_dir", out, model=plugin)
    merged = AutoModelForCausalLM.from_pretrained(out)
    want = peft.merge_and_unload().state_dict()
    far = max((distance(v.numpy(), want[k].numpy()), k) for k, v in merged.state_dict().items())
    return expect(far[1], far[0], 1e-6)


@check
def merging_alone_gives_the_weights_that_peft_gives(folder):
    return merged_alone("llama3", folder, r=4, lora_alpha=16, target_modules="all-linear")


@check
def merging_alone_gives_the_weights_that_peft_gives_for_gpt2(folder):
    return merged_alone("gpt2", folder, r=4, fan_in_fan_out=True, target_modules=["c_attn", "c_proj", "c_fc"])


def fresh(name, folder, *options):
    """Our own first values, rate 0: what peft reads of them."""
    plugin, model = base(name)
    data = ours.write_tokens(os.path.join(folder, "data.bin"), theirs.make_stream(1, 90, 200))
    out = os.path.join(folder, "fresh")
    ours.zlaunch(1, "--do_train", "--train_file", data, "--data_format", "nanogpt", "--block_size", 32,
                 "--max_steps", 1, "--learning_rate", 0, "--output_dir", out, "--model_name_or_path",
                 save(model, folder), *options, model=plugin)
    return PeftModel.from_pretrained(copy.deepcopy(model), out), model


def like_peft(again, model, **how):
    """The same modules as peft chooses, the same scaling, and first values from the same range."""
    want = adapt(model, fill=False, **how)
    a, b = ({k: v for k, v in m.named_parameters() if "lora_" in k} for m in (again, want))
    if set(a) != set(b):
        raise AssertionError(f"adapters are {sorted(a)}, peft's {sorted(b)}")
    scales = [{n: m.scaling["default"] for n, m in x.named_modules() if hasattr(m, "lora_A")}
              for x in (again, want)]
    if scales[0] != scales[1]:
        raise AssertionError(f"scales are {scales[0]}, peft's {scales[1]}")
    values = {}
    for k, v in a.items():
        if "lora_B" in k and v.abs().max() > 0:
            raise AssertionError(f"{k} does not begin with zeros")
        if "lora_A" in k:
            values.setdefault(v.shape[1], []).append(v.detach().flatten())
    for width, parts in values.items():
        x = torch.cat(parts) * width ** 0.5
        off = abs(float(x.std()) * 3 ** 0.5 - 1) * len(x) ** 0.5
        if float(x.abs().max()) > 1 or off > 4:
            raise AssertionError(f"A of width {width} is not uniform in its range: {off:.2f}")
    return f"{len(a)} factors"


@check
def all_linear_means_what_it_means_for_peft(folder):
    return like_peft(*fresh("llama3", folder, "--lora_r", 4, "--lora_alpha", 12), r=4, lora_alpha=12,
                     target_modules="all-linear")


@check
def all_linear_of_gpt2_means_what_it_means_for_peft(folder):
    return like_peft(*fresh("gpt2", folder, "--lora_r", 4, "--use_rslora"), r=4, use_rslora=True,
                     fan_in_fan_out=True, target_modules="all-linear")


@check
def names_of_modules_mean_what_they_mean_for_peft(folder):
    return like_peft(*fresh("qwen3", folder, "--lora_r", 2, "--lora_target_modules", "q_proj", "mlp.up_proj"),
                     r=2, target_modules=["q_proj", "mlp.up_proj"])


@check
def a_regular_expression_means_what_it_means_for_peft(folder):
    how = r".*\.[02]\..*(q|down)_proj"
    return like_peft(*fresh("qwen3", folder, "--lora_r", 2, "--lora_target_modules", how), r=2,
                     target_modules=how)
