"""What the live comparisons share: how to claim, to measure, and to run both sides."""

import os
import tempfile
import traceback

import numpy as np

import ours
import theirs

STEPS = 50
HOW = dict(lr=2e-3, weight_decay=0.1, warmup=5, clip=1.0)
checks = []


def check(function):
    checks.append(function)
    return function


def distance(a, b):
    """Largest difference over largest reference value."""
    return float(np.abs(a - b).max() / np.abs(b).max())


def noise(a, b):
    return float(np.linalg.norm(a.ravel() - b.ravel()) / np.linalg.norm(b.ravel()))


def expect(claim, value, limit):
    """A claim with its number; raises when the number is too large or not one."""
    if not value <= limit:
        raise AssertionError(f"{claim}: {value:.3g}, at most {limit:g}")
    return f"{claim} {value:.2g}"


def save(model, folder, **how):
    path = os.path.join(folder, "model")
    model.save_pretrained(path, **how)
    return path


def same_probe(a, b, tolerance, parts=("loss", "logits", "grad.")):
    """Every tensor of the reference is in ours and as close as it must be."""
    said = []
    for part in parts:
        names = [n for n in b if n.startswith(part)]
        far = {n: distance(a[n], b[n]) for n in names}
        worst = max(far, key=far.get)
        said.append(expect(part if part != "grad." else f"gradients ({worst[5:]})", far[worst],
                           tolerance))
    return ", ".join(said)


def half_precision(plugin, model, folder, tokens, targets, option, dtype):
    """Our error against fp32 is at most twice PyTorch's own, tensor by tensor."""
    got = ours.probe(folder, tokens, targets, save(model, folder), option, model=plugin)
    exact = theirs.probe(model, tokens, targets)
    rough = theirs.probe(model.to(dtype), tokens, targets)
    worst, where = 0.0, ""
    for key, value in exact.items():
        if key == "loss":
            continue
        ratio = noise(got[key], value) / noise(rough[key], value)
        if not ratio <= worst:
            worst, where = ratio, key
    loss = abs(float(got["loss"][0] - exact["loss"][0]))
    return (expect(f"error over PyTorch's ({where})", worst, 2.0) + ", logits "
            + f"{noise(got['logits'], exact['logits']):.2g}, " + expect("loss", loss, 0.02))


def train(plugin, model, width, folder, rows, ranks=1, accumulate=1, options=(), seed=11,
          steps=STEPS):
    """Both loss curves over the same batches; `rows` is the global batch, `width` its tokens."""
    vocab = model.config.vocab_size
    stream = theirs.make_stream(5, vocab, 37 * width + 1)
    weights, out = save(model, folder), os.path.join(folder, "trained")
    data = ours.write_tokens(os.path.join(folder, "data.bin"), stream)
    log = ours.zlaunch(
        ranks, "--do_train", "--train_file", data, "--data_format", "nanogpt", "--block_size",
        width, "--per_device_train_batch_size", rows // (ranks * accumulate),
        "--gradient_accumulation_steps", accumulate, "--max_steps", steps, "--seed", seed,
        "--model_name_or_path", weights, "--output_dir", out, "--learning_rate", HOW["lr"],
        "--weight_decay", HOW["weight_decay"], "--warmup_steps", HOW["warmup"],
        "--max_grad_norm", HOW["clip"], "--lr_scheduler_type", "linear", "--logging_steps", 1,
        *options, model=plugin)
    got = np.array([(e["loss"], e["grad_norm"], e["lr"]) for e in ours.events(log, "step")])
    want = np.array(theirs.train(model, ours.batches(stream, width, rows, seed, steps), steps,
                                 **HOW))
    if got.shape != want.shape:
        raise AssertionError(f"{len(got)} step events of {steps}")
    return got, want, out


def same_curve(got, want, tolerance):
    far = np.abs(got - want)
    # the rate is reported as it is used: double arithmetic on both sides
    rate = float((far[:, 2] / (want[:, 2] + 1e-12)).max())
    norm = float((far[:, 1] / want[:, 1]).max())
    fell = want[0, 0] - want[-1, 0]
    if fell < 0.3 or (want[:, 1] > HOW["clip"]).sum() < 3:
        raise AssertionError("the reference learns or clips too little to prove anything")
    return ", ".join([expect("loss", float(far[:, 0].max()), tolerance),
                      expect("gradient norm", norm, 10 * tolerance),
                      expect("rate", rate, 1e-6), f"{want[0, 0]:.2f} to {want[-1, 0]:.2f}"])


def generate(plugin, model, folder, prompt, count, *options):
    """Greedy text of both sides is the same."""
    want, margin = theirs.greedy(model, prompt, count)
    if margin < 1e-3 or len(set(want)) < 6:
        raise AssertionError(f"the reference is not clear enough: {margin:.2g}, {want}")
    log = ours.zlaunch(1, "--model_name_or_path", save(model, folder), "--prompt",
                       " ".join(map(str, prompt)), "--generate_tokens", count, "--temperature", 0,
                       *options, model=plugin)
    got = [int(w) for w in ours.events(log, "sample")[-1]["text"].split()]
    if got != want:
        raise AssertionError(f"ours   {got}\ntheirs {want}")
    return f"{count} tokens, closest choice {margin:.2g}"


def main(wanted):
    """Run the checks whose names hold one of `wanted` (none: all)."""
    passed = failed = 0
    for function in checks:
        name = f"{function.__module__}.{function.__name__}".removeprefix("check_")
        if wanted and not any(w.replace(": ", ".").replace(" ", "_") in name for w in wanted):
            continue
        name = name.replace(".", ": ").replace("_", " ")
        with tempfile.TemporaryDirectory() as folder:
            try:
                said = function(folder)
                passed += 1
                print(f"  ok      {name}\n          {said}", flush=True)
            except Exception as e:  # a check that cannot run has failed
                failed += 1
                text = str(e) if isinstance(e, (AssertionError, ours.Failed)) else traceback.format_exc()
                print(f"  FAILED  {name}", flush=True)
                print("".join(f"          | {line}\n" for line in text.splitlines()), flush=True)
    print(f"\n{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0
