"""Write a folder of test/golden/: what transformers and PyTorch compute for a small model.

The default tests compare with these files, so that they need no Python. Made again only
when a model or batch changes; the values are those of whichever versions are installed
(they are written into versions.txt), in fp32 on a CPU.

    model/               weights and config.json as transformers saves them
    batch.safetensors    tokens and targets (3, 29); every seventh target is left out
    probe.safetensors    loss, logits and gradients of that batch, as test/peers/probe.c
                         names them
    bf16.txt             how far PyTorch in bf16 is from that: logits, and the worst
                         gradient, as test/peers/compare.c measures
    data.bin             tokens to train on, nanoGPT's format
    curve.txt            step, loss, gradient norm, rate of 50 steps of AdamW
    greedy.txt           prompt, and what transformers continues it with
    eval.txt             mean loss over data.bin with the initial weights
"""

import copy
import os
import shutil
import sys

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "peers"))
import checks  # noqa: E402
import ours  # noqa: E402
import theirs  # noqa: E402

STEPS, ROWS, BLOCK, SEED = 50, 4, 23, 11  # as test/integration/golden_lib.sh runs them
HOW = dict(lr=3e-3, weight_decay=0.1, warmup=5, clip=1.0)
PROMPT, NEW = [7, 77, 30, 2], 30


def mean_loss(model, stream):
    total = 0.0
    with torch.no_grad():
        for at in range(0, len(stream) - 1, BLOCK):
            ids = torch.from_numpy(stream[at:at + BLOCK + 1])
            logits = model(ids[None, :-1]).logits[0]
            total += float(torch.nn.functional.cross_entropy(logits, ids[1:], reduction="sum"))
    return total / (len(stream) - 1)


def rounding(model, tokens, targets):
    """Distances of a bf16 copy from the model: logits, and the worst gradient."""
    exact = theirs.probe(model, tokens, targets)
    rough = theirs.probe(copy.deepcopy(model).to(torch.bfloat16), tokens, targets)
    far = {name: checks.distance(rough[name], exact[name]) for name in exact}
    return far["logits"], max(far[name] for name in far if name.startswith("grad."))


def write(name, model, new=NEW):
    """test/golden/NAME/ for this model. `new`: tokens of greedy text."""
    folder, vocab = os.path.join(HERE, name), model.config.vocab_size

    def path(file):
        return os.path.join(folder, file)

    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    model.save_pretrained(path("model"))
    os.remove(path("model/generation_config.json"))

    ids = np.random.default_rng(2).integers(0, vocab, size=(3, 30))
    tokens, targets = ids[:, :-1].copy(), ids[:, 1:].copy()
    targets.reshape(-1)[::7] = -100
    save_file({"tokens": tokens.astype(np.int32), "targets": targets.astype(np.int32)},
              path("batch.safetensors"))
    save_file(theirs.probe(model, tokens, targets), path("probe.safetensors"))

    with open(path("bf16.txt"), "w", encoding="utf-8") as f:
        f.write("%.3g %.3g\n" % rounding(model, tokens, targets))

    text, margin = theirs.greedy(model, PROMPT, new)
    assert margin > 1e-2 and len(set(text)) > 8, (margin, text)
    with open(path("greedy.txt"), "w", encoding="utf-8") as f:
        f.write(" ".join(map(str, PROMPT)) + "\n" + " ".join(map(str, text)) + "\n")

    # not a multiple of the block, and the steps go through it more than once
    stream = theirs.make_stream(3, vocab, 67 * BLOCK + 9)
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
