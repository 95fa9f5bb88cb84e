"""Our side of the comparisons: running zlaunch and the probe, and what they read."""

import json
import os
import subprocess

import numpy as np
from safetensors.numpy import load_file, save_file

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("ZT_BIN", os.path.join(ROOT, "bin"))
PROBE = os.environ.get("ZT_PROBE", os.path.join(ROOT, "build/release/peers/probe"))


class Failed(Exception):
    """A program of ours did not do what it was asked."""


def _run(command):
    env = {k: v for k, v in os.environ.items() if k != "ONEDNN_MAX_CPU_ISA"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, env=env)
    if done.returncode:
        raise Failed(f"{' '.join(command)}\nexit code {done.returncode}\n{done.stderr}{done.stdout}")
    return done.stdout


def write_tokens(path, tokens):
    """nanoGPT's format: uint16, nothing else."""
    np.asarray(tokens, dtype=np.uint16).tofile(path)
    return path


def plugin(name):
    return os.path.join(BIN, "models", name + ".so")


def probe(folder, tokens, targets, weights, *options, model="gpt2"):
    """Loss, logits and gradients of one batch, by name. tokens, targets: (B, T)."""
    rows, width = tokens.shape
    batch, out = os.path.join(folder, "batch.safetensors"), os.path.join(folder, "out.safetensors")
    filler = write_tokens(os.path.join(folder, "probe.bin"), np.zeros(rows * width + 1))
    save_file({"tokens": tokens.astype(np.int32), "targets": targets.astype(np.int32)}, batch)
    _run([PROBE, plugin(model), batch, out, "--do_train", "--train_file", filler, "--data_format", "nanogpt",
          "--block_size", str(width), "--per_device_train_batch_size", str(rows),
          "--model_name_or_path", weights, *options])
    return load_file(out)


def probe_fields(folder, fields, weights, *options, model):
    """The same with fields by name, as arrays of their types; `options` name data of its kind."""
    batch, out = os.path.join(folder, "batch.safetensors"), os.path.join(folder, "out.safetensors")
    save_file({name: np.ascontiguousarray(value) for name, value in fields.items()}, batch)
    rows, width = fields["tokens"].shape
    _run([PROBE, plugin(model), batch, out, "--do_train", "--block_size", str(width),
          "--per_device_train_batch_size", str(rows), "--model_name_or_path", weights,
          *map(str, options)])
    return load_file(out)


def zlaunch(ranks, *options, model="gpt2"):
    """Events of a run, in order."""
    text = _run([os.path.join(BIN, "zlaunch"), "--num_gpus", str(ranks), "--log_format", "json",
                 plugin(model), *map(str, options)])
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def dry_run(*options, model="gpt2"):
    """What one rank would do, as text."""
    return _run([os.path.join(BIN, "zlaunch"), "--num_gpus", "1", "--dry_run", plugin(model), *map(str, options)])


def events(log, kind):
    return [e for e in log if e["event"] == kind]


# ---- the order in which training reads its data (worker/data/sampler.h) ----

MASK = (1 << 64) - 1


def _mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def permute(seed, epoch, n, index):
    key = _mix(_mix(seed) ^ epoch)
    half = 1
    while half < 31 and (1 << (2 * half)) < n:
        half += 1
    mask, x = (1 << half) - 1, index
    while True:
        left, right = x >> half, x & mask
        for i in range(8):
            left, right = right, left ^ (_mix(right ^ _mix((key + i) & MASK)) & mask)
        x = left << half | right
        if x < n:
            return x


def batches(stream, block, rows, seed, steps):
    """(tokens, targets), each (rows, block), of every step; `rows` is the global batch."""
    n = (len(stream) - 1) // block
    for step in range(steps):
        places = [divmod(step * rows + r, n) for r in range(rows)]
        starts = [permute(seed, epoch, n, index) * block for epoch, index in places]
        yield (np.stack([stream[s:s + block] for s in starts]),
               np.stack([stream[s + 1:s + 1 + block] for s in starts]))
