"""Write test/golden/gpt2/: what transformers and PyTorch compute for a small GPT-2.

    test/peers/setup build/venv
    build/venv/bin/python test/golden/make_gpt2.py

The default tests compare with these files, so that they need no Python. Made again only
when the model or the batch below changes; the values are those of whichever versions are
installed (they are written into versions.txt), in fp32 on a CPU.

    model/               weights and config.json as transformers saves them
    batch.safetensors    tokens and targets (3, 29); every seventh target is left out
    probe.safetensors    loss, logits and gradients of that batch, as test/peers/probe.c
                         names them
    data.bin             tokens to train on, nanoGPT's format
    curve.txt            step, loss, gradient norm, rate of 50 steps of AdamW
    greedy.txt           prompt, and what transformers continues it with
    eval.txt             mean loss over data.bin with the initial weights
"""

import os
import shutil
import sys

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "peers"))
import ours  # noqa: E402
import theirs  # noqa: E402

OUT = os.path.join(HERE, "gpt2")
SIZES = dict(n_layer=2, n_head=3, n_embd=48, vocab_size=131, n_positions=40)
STEPS, ROWS, BLOCK, SEED = 50, 4, 23, 11  # as test/integration/30-golden-gpt2.sh runs them
HOW = dict(lr=3e-3, weight_decay=0.1, warmup=5, clip=1.0)
PROMPT, NEW = [7, 77, 30, 2], 30


def path(name):
    return os.path.join(OUT, name)


def mean_loss(model, stream):
    total = 0.0
    with torch.no_grad():
        for at in range(0, len(stream) - 1, BLOCK):
            ids = torch.from_numpy(stream[at:at + BLOCK + 1])
            logits = model(ids[None, :-1]).logits[0]
            total += float(torch.nn.functional.cross_entropy(logits, ids[1:], reduction="sum"))
    return total / (len(stream) - 1)


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    os.makedirs(OUT)
    model = theirs.make_model(seed=4, spread=0.25, **SIZES)
    model.save_pretrained(path("model"))
    os.remove(path("model/generation_config.json"))

    ids = np.random.default_rng(2).integers(0, SIZES["vocab_size"], size=(3, 30))
    tokens, targets = ids[:, :-1].copy(), ids[:, 1:].copy()
    targets.reshape(-1)[::7] = -100
    save_file({"tokens": tokens.astype(np.int32), "targets": targets.astype(np.int32)},
              path("batch.safetensors"))
    save_file(theirs.probe(model, tokens, targets), path("probe.safetensors"))

    text, margin = theirs.greedy(model, PROMPT, NEW)
    assert margin > 1e-2 and len(set(text)) > 8, (margin, text)
    with open(path("greedy.txt"), "w", encoding="utf-8") as f:
        f.write(" ".join(map(str, PROMPT)) + "\n" + " ".join(map(str, text)) + "\n")

    # not a multiple of the block, and the steps go through it more than once
    stream = theirs.make_stream(3, SIZES["vocab_size"], 67 * BLOCK + 9)
    ours.write_tokens(path("data.bin"), stream)
    with open(path("eval.txt"), "w", encoding="utf-8") as f:
        f.write(f"{mean_loss(model, stream):.9g}\n")
    batches = ours.batches(stream, BLOCK, ROWS, SEED, STEPS)
    with open(path("curve.txt"), "w", encoding="utf-8") as f:
        for step, row in enumerate(theirs.train(model, batches, STEPS, **HOW), 1):
            f.write("%d %.9g %.9g %.9g\n" % (step, *row))
    with open(path("versions.txt"), "w", encoding="utf-8") as f:
        f.write(f"torch {torch.__version__}\ntransformers {transformers.__version__}\n"
                f"numpy {np.__version__}\n")


if __name__ == "__main__":
    main()
