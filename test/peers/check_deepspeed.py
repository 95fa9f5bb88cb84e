"""Checkpoints of DeepSpeed, made live on its CPU accelerator, against what we make of them."""

import glob
import json
import os
import subprocess
import sys

import numpy as np
import torch
from safetensors.torch import load_file

import ours
import theirs
from checks import check, expect

ROWS, WIDTH, LR = 4, 16, 1e-3
SIZES = dict(n_layer=2, n_head=2, n_embd=32, vocab_size=97, n_positions=40)


def deepspeed(folder, **job):
    """Losses of a run of two ranks on one batch, step after step."""
    path = os.path.join(folder, "job.json")
    with open(path, "w") as f:
        json.dump(dict(job, rows=ROWS, width=WIDTH, lr=LR), f)
    child = os.path.join(os.path.dirname(os.path.abspath(__file__)), "deepspeed_child.py")
    env = dict(os.environ, DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1",
               PATH=os.path.dirname(sys.executable) + ":" + os.environ["PATH"])
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
                           child, path], capture_output=True, text=True, env=env,
                          timeout=900)
    if done.returncode:
        raise ours.Failed(done.stderr[-3000:])
    return json.load(open(path + ".out"))


def zckpt(*words):
    return ours._run([os.path.join(ours.BIN, "zckpt"), *map(str, words)])


def prepare(folder):
    model = os.path.join(folder, "model")
    theirs.make_model(seed=3, **SIZES).save_pretrained(model)
    ids = np.random.default_rng(1).integers(0, 97, size=ROWS * WIDTH + 1)
    return model, ours.write_tokens(os.path.join(folder, "batch.bin"), ids)


def train(model, tokens, *options):
    """Our losses on that batch, by step."""
    log = ours.zlaunch(1, "--do_train", "--train_file", tokens, "--data_format", "nanogpt", "--block_size", WIDTH,
                       "--per_device_train_batch_size", ROWS, "--learning_rate", LR, "--weight_decay", 0,
                       "--lr_scheduler_type", "constant", "--max_grad_norm", 1, "--logging_steps", 1,
                       "--model_name_or_path", model, *options)
    return {e["step"]: e["loss"] for e in ours.events(log, "step")}


def flat_truth(folder, stage):
    """Master weights and moments from the ranks' files, by torch alone, one group end to end or cut in two."""
    files = sorted(glob.glob(folder + "/global_step*/*_optim_states.pt"))
    ranks = [torch.load(f, weights_only=False)["optimizer_state_dict"] for f in files]
    if stage == 3:
        shapes = torch.load(sorted(glob.glob(folder + "/global_step*/*_model_states.pt"))[0],
                            weights_only=False)["param_shapes"]
        states = [r["optimizer_state_dict"]["state"][0] for r in ranks]
        flats = {"master": [torch.cat([g.flatten() for g in r["fp32_flat_groups"]]) for r in ranks]}
    else:
        shapes = torch.load(folder + "/global_step4/mp_rank_00_model_states.pt", weights_only=False)["param_shapes"]
        states = [r["base_optimizer_state"]["state"][0] for r in ranks]
        flats = {"master": [r["single_partition_of_fp32_groups"][0] for r in ranks]}
    flats.update({k: [s[k] for s in states] for k in ("exp_avg", "exp_avg_sq")})
    out, at = {}, 0
    for name, shape in ((n, s) for group in shapes for n, s in group.items()):
        count = shape.numel()
        for kind, parts in flats.items():
            if stage == 3:
                share = -(-count // len(parts))
                whole = torch.cat([p[at:at + share] for p in parts])[:count]
            else:
                whole = torch.cat([p.flatten() for p in parts])[at:at + count]
            out[kind + "/" + name] = whole.view(shape).float()
        at += -(-count // len(ranks)) if stage == 3 else count
    return out


def same_state(folder, saved, stage):
    """Every weight and moment is the one in DeepSpeed's files, bit by bit."""
    mine = load_file(glob.glob(folder + "/ours/checkpoint-4/global_step4/*.safetensors")[0])
    for name, wanted in flat_truth(saved, stage).items():
        got = mine[name] if name in mine else mine[name.replace("master/", "weights/")]
        if not torch.equal(got.float(), wanted):
            raise AssertionError(f"{name} differs")
    return f"{len(mine)} tensors"


def moves_to_us_and_back(folder, stage):
    model, tokens = prepare(folder)
    saved = os.path.join(folder, "ds")
    theirs_losses = deepspeed(folder, model=model, tokens=tokens, stage=stage, steps=8, save_after=4, save=saved)
    zckpt("convert", saved, folder + "/ours")
    said = same_state(folder, saved, stage)
    mine = train(model, tokens, "--max_steps", 8, "--resume_from_checkpoint", folder + "/ours/checkpoint-4",
                 "--save_steps", 6, "--output_dir", folder + "/out")
    far = max(abs(mine[i + 1] - theirs_losses[i]) for i in range(4, 8))
    said += ", " + expect("our losses after DeepSpeed's checkpoint", far, 1e-4)
    zckpt("convert", folder + "/out/checkpoint-6", folder + "/uni", "--to", "universal")
    back = deepspeed(folder, model=model, tokens=tokens, stage=stage, steps=2, universal=folder + "/uni")
    far = max(abs(mine[7 + i] - back[i]) for i in range(2))
    return said + ", " + expect("DeepSpeed's after ours", far, 1e-4)


@check
def deepspeed_zero_1_moves_to_us_and_back(folder):
    return moves_to_us_and_back(folder, 1)


@check
def deepspeed_zero_2_moves_to_us_and_back(folder):
    return moves_to_us_and_back(folder, 2)


@check
def deepspeed_zero_3_moves_to_us_and_back(folder):
    return moves_to_us_and_back(folder, 3)


@check
def deepspeed_bf16_imports_with_the_masters_bits(folder):
    model, tokens = prepare(folder)
    saved = os.path.join(folder, "ds")
    deepspeed(folder, model=model, tokens=tokens, stage=3, steps=5, save_after=4, save=saved, bf16=True)
    zckpt("convert", saved, folder + "/ours")
    return same_state(folder, saved, 3)


def same_file(folder, stage):
    """Our zero_to_fp32 writes what DeepSpeed's own script, which lies in its checkpoint, writes."""
    model, tokens = prepare(folder)
    saved = os.path.join(folder, "ds")
    deepspeed(folder, model=model, tokens=tokens, stage=stage, steps=5, save_after=4, save=saved)
    out = {"theirs": [sys.executable, saved + "/zero_to_fp32.py"], "ours": [os.path.join(ours.BIN, "zero_to_fp32")]}
    for who, command in out.items():
        ours._run([*command, saved, f"{folder}/{who}"])
    wanted, got = (torch.load(f"{folder}/{who}/pytorch_model.bin", weights_only=True) for who in out)
    if list(got) != list(wanted):
        raise AssertionError(f"names: {set(got) ^ set(wanted) or 'another order'}")
    for name in wanted:
        if got[name].dtype != wanted[name].dtype or not torch.equal(got[name], wanted[name]):
            raise AssertionError(f"{name} differs")
    return f"{len(got)} tensors, tied ones under both names: {'lm_head.weight' in got}"


@check
def zero_to_fp32_writes_what_deepspeeds_script_writes(folder):
    return ", ".join(f"stage {i}: {same_file(os.path.join(folder, str(i)), i)}" for i in (1, 2, 3)
                     if not os.makedirs(os.path.join(folder, str(i))))


@check
def pytorch_model_bin_opens_with_weights_only(folder):
    model, _ = prepare(folder)
    zckpt("convert", model, folder + "/w.bin")
    wanted, got = load_file(model + "/model.safetensors"), torch.load(folder + "/w.bin", weights_only=True)
    if set(got) != set(wanted) or any(not torch.equal(got[n], wanted[n]) for n in wanted):
        raise AssertionError("tensors differ")
    return f"{len(got)} tensors"
