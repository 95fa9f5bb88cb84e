"""Pairs of texts for the comparisons of encoder-decoders, and training on them by both sides."""

import json
import os

import numpy as np
import torch

import checks
import ours

STEPS = 20
HOW = dict(lr=2e-3, weight_decay=0.1, clip=1.0)


def batch(vocab, rows=3, source=13, target=9, seed=1):
    """Fields of one batch, with sources and targets of odd lengths behind which is padding."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, source + 1, size=rows).astype(np.int32)
    lengths[0] = source
    fields = dict(source=rng.integers(3, vocab, size=(rows, source)).astype(np.int32),
                  source_lengths=lengths,
                  targets=rng.integers(3, vocab, size=(rows, target)).astype(np.int32))
    for row in range(rows):
        fields["source"][row, lengths[row]:] = 0
        fields["targets"][row, target - 2 * row:] = -100
    return fields


def shifted(targets, start):
    out = np.full_like(targets, start)
    out[:, 1:] = np.where(targets[:, :-1] == -100, 0, targets[:, :-1])
    return out


def add_tokens(fields, model):
    return dict(fields, tokens=shifted(fields["targets"], model.config.decoder_start_token_id))


def run(model, fields):
    """Logits (B, T, V) of transformers."""
    source = torch.from_numpy(fields["source"]).long()
    at = torch.arange(source.shape[1])
    mask = (at < torch.from_numpy(fields["source_lengths"])[:, None]).long()
    return model(input_ids=source, attention_mask=mask,
                 decoder_input_ids=torch.from_numpy(fields["tokens"]).long()).logits


def loss_of(logits, targets, smoothing=0.0):
    """The mean over targets, as the Trainer's LabelSmoother has it."""
    want = torch.from_numpy(targets).long()
    log = torch.log_softmax(logits.float(), -1)
    hit = want != -100
    nll = -log.gather(-1, want.clamp(min=0)[..., None])[..., 0][hit].sum() / hit.sum()
    even = -log.mean(-1)[hit].sum() / hit.sum()
    return (1 - smoothing) * nll + smoothing * even


def theirs(model, fields, smoothing=0.0):
    model.zero_grad()
    logits = run(model, fields)
    loss = loss_of(logits, fields["targets"], smoothing)
    loss.backward()
    out = {"loss": loss.detach().reshape(1), "logits": logits.detach()}
    for name, p in model.named_parameters():
        if p.grad is not None:
            out["grad." + name] = p.grad
    return {k: v.float().numpy() for k, v in out.items()}


def write_pairs(folder, pairs, name="pairs.jsonl"):
    """Bytes cannot hold ids: texts of single letters, for the sizes of a batch alone."""
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as f:
        for source, target in pairs:
            f.write(json.dumps({"source": source, "target": target}) + "\n")
    return path


DATA = ("--tokenizer_name", "bytes", "--source_column", "source", "--target_column", "target")


def one_batch(plugin, model, folder, fields, *options, smoothing=0.0, tolerance=1e-4):
    fields = add_tokens(fields, model)
    filler = write_pairs(folder, [("a", "b")])
    if smoothing:
        options += ("--label_smoothing_factor", smoothing)
    got = ours.probe_fields(folder, fields, checks.save(model, folder), "--train_file", filler, *DATA,
                            "--max_source_length", fields["source"].shape[1], *options, model=plugin)
    return same(got, theirs(model, fields, smoothing), tolerance)


def same(got, want, tolerance=1e-4):
    """What same_probe() says, but for biases of keys: no softmax changes by them, so they have no gradient."""
    largest = max(float(np.abs(want[n]).max()) for n in want if n.startswith("grad."))
    for name in [n for n in want if n.endswith("k_proj.bias")]:
        checks.expect(name, float(np.abs(got[name]).max()) / largest, tolerance)
        del want[name]
    return checks.same_probe(got, want, tolerance)


# ---- training ----

def random_texts(rows, seed=3):
    """Sources of letters, and what can be learnt of them: each letter's next one, backwards."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(rows):
        letters = rng.integers(97, 105, size=rng.integers(2, 15))
        out.append(("".join(map(chr, letters)), "".join(chr(c + 1) for c in letters[::-1])))
    return out


def batches(model, texts, rows, seed, steps, length=128):
    """What training reads: see worker/data/pair_rows.h."""
    ids = [([*s.encode(), 256], [*t.encode(), 256][:length]) for s, t in texts]
    for step in range(steps):
        chosen = []
        for row in range(rows):
            at = step * rows + row
            chosen.append(ids[ours.permute(seed, at // len(ids), len(ids), at % len(ids))])
        widest = [max(len(pair[side]) for pair in chosen) for side in (0, 1)]
        fields = dict(source=np.zeros((rows, widest[0]), np.int32),
                      source_lengths=np.array([len(s) for s, _ in chosen], np.int32),
                      targets=np.full((rows, widest[1]), -100, np.int32))
        for row, (source, target) in enumerate(chosen):
            fields["source"][row, :len(source)] = source
            fields["targets"][row, :len(target)] = target
        yield add_tokens(fields, model)


def train(model, texts, rows, seed, steps, smoothing):
    """AdamW with linear decay, decay on matrices and embeddings alone, and not on T5's relative_attention_bias, a table that the
    Trainer of transformers leaves out by its name: (loss, norm, lr) of every step."""
    decays = {name: p.dim() >= 2 and "bias" not in name for name, p in model.named_parameters()}
    groups = [{"params": [p for name, p in model.named_parameters() if decays[name]], "weight_decay": HOW["weight_decay"]},
              {"params": [p for name, p in model.named_parameters() if not decays[name]], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=HOW["lr"], betas=(0.9, 0.999), eps=1e-8)
    curve = []
    for k, fields in enumerate(batches(model, texts, rows, seed, steps)):
        rate = HOW["lr"] * (steps - k) / steps
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = loss_of(run(model, fields), fields["targets"], smoothing)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), HOW["clip"])
        optimizer.step()
        curve.append((loss.item(), float(norm), rate))
    return np.array(curve)


def curves(plugin, model, folder, rows=4, ranks=1, accumulate=1, smoothing=0.0, seed=11, options=()):
    """Both curves over the same batches, and the folder of what we trained."""
    texts = random_texts(23)
    weights, out = checks.save(model, folder), os.path.join(folder, "trained")
    log = ours.zlaunch(
        ranks, "--do_train", "--train_file", write_pairs(folder, texts), *DATA,
        "--per_device_train_batch_size", rows // (ranks * accumulate),
        "--gradient_accumulation_steps", accumulate, "--max_steps", STEPS, "--seed", seed,
        "--model_name_or_path", weights, "--output_dir", out, "--learning_rate", HOW["lr"],
        "--weight_decay", HOW["weight_decay"], "--max_grad_norm", HOW["clip"],
        "--lr_scheduler_type", "linear", "--logging_steps", 1, "--label_smoothing_factor", smoothing,
        *options, model=plugin)
    got = np.array([(e["loss"], e["grad_norm"], e["lr"]) for e in ours.events(log, "step")])
    return got, train(model, texts, rows, seed, STEPS, smoothing), out


def written(model, source, count, beams=1, use_cache=True):
    """What transformers writes from a source, and by how much the closest choice was won."""
    with torch.no_grad():
        ids = torch.tensor([source])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count,
                             min_new_tokens=count, do_sample=False, num_beams=beams,
                             use_cache=use_cache, no_repeat_ngram_size=0,
                             encoder_no_repeat_ngram_size=0)[0]
        top = model(input_ids=ids, decoder_input_ids=out[None]).logits[0, :-1].topk(2).values
    return out[1:].tolist(), float((top[:, 0] - top[:, 1]).min())


def generate(plugin, model, folder, source, count, beams=1, use_cache=True):
    """The text that both sides write from a source is the same, greedily or by beam search."""
    model.config.forced_eos_token_id = model.generation_config.forced_eos_token_id = None
    want, margin = written(model, source, count, beams, use_cache)
    if (beams == 1 and margin < 1e-3) or len(set(want)) < 3:
        raise AssertionError(f"the reference is not clear enough: {margin:.2g}, {want}")
    log = ours.zlaunch(1, "--model_name_or_path", checks.save(model, folder), "--prompt",
                       " ".join(map(str, source)), "--generate_tokens", count, "--min_new_tokens",
                       count, "--temperature", 0, "--num_beams", beams, model=plugin)
    got = [int(w) for w in ours.events(log, "sample")[-1]["text"].split()]
    if got != want:
        raise AssertionError(f"ours   {got}\ntheirs {want}")
    return f"{count} tokens of {len(set(want))} sorts, closest choice {margin:.2g}"


def beams(plugin, model, folder, num_beams, num, count, *options, ranks=1, **how):
    """Texts and scores of beam search from `num` random sources, unless two scores are as good as equal."""
    rng = np.random.default_rng(num_beams)
    sources = [rng.integers(3, model.config.vocab_size, rng.integers(1, 13)).tolist() for _ in range(num)]
    file, out = os.path.join(folder, "sources.jsonl"), os.path.join(folder, "out")
    with open(file, "w", encoding="utf-8") as f:
        for ids in sources:
            f.write(json.dumps({"prompt": " ".join(map(str, ids))}) + "\n")
    ours.zlaunch(ranks, "--model_name_or_path", checks.save(model, folder), "--test_file", file, "--output_dir", out,
                 "--overwrite_output_dir", "--max_new_tokens", count, "--temperature", 0, "--num_beams", num_beams,
                 "--num_return_sequences", num_beams, *options, model=plugin)
    far, ties, differ, words, changed = 0.0, 0, set(), [], 0
    for source, line in zip(sources, open(os.path.join(out, "predictions.jsonl"), encoding="utf-8")):
        row = json.loads(line)
        texts, got = row["generated"], row.get("score", [0.0])
        texts = [texts] if num_beams == 1 else texts
        want, scores = best(model, source, count, num_beams, how)
        words.append(len(set(want[0])))
        changed += bool(how) and len(words) <= 20 and best(model, source, count, num_beams, {})[0] != want
        far = max([far] + [abs(a - b) / max(1.0, abs(b)) for a, b in zip(got, scores)])
        for k, text in enumerate(want):
            mine = [int(w) for w in texts[k].split()]
            differ.add(tuple(mine))
            if mine == text:
                continue
            if not any(j != k and abs(s - scores[k]) < 1e-5 * max(1.0, abs(s)) for j, s in enumerate(scores)):
                raise AssertionError(f"source {source}, text {k}:\nours   {mine} {got[k]}\ntheirs {text} {scores[k]}")
            ties += 1
    words = sorted(words)[num // 2]
    if len(differ) < num // 2 or words < 2 or (how and not changed):
        raise AssertionError(f"{len(differ)} texts of {num} sources, of {words} tokens, {changed} of 20 by the options: "
                             "the reference is not clear enough")
    return checks.expect("scores", far, 5e-6) + f", {num} sources, {len(differ)} texts of {words} tokens, {ties} ties"


def best(model, source, count, num_beams, how):
    """Texts of transformers without their start and end, and their scores."""
    ids, end = torch.tensor([source]), model.config.eos_token_id
    # its cache has layers for an encoder that is as deep as the decoder
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False,
                             num_beams=num_beams, num_return_sequences=num_beams, return_dict_in_generate=True,
                             output_scores=True, use_cache=False,
                             encoder_no_repeat_ngram_size=0, **{"no_repeat_ngram_size": 0, **how})
    texts = [row[1:] for row in out.sequences.tolist()]
    scores = out.sequences_scores.tolist() if num_beams > 1 else [0.0]
    return [row[:row.index(end)] if end in row else row for row in texts], scores


# options of ours, and what they are to transformers
BEAMS = {1: ((), {}), 2: ((), {}),
         3: (("--length_penalty", 2.0), {"length_penalty": 2.0}),
         4: (("--no_repeat_ngram_size", 2), {"no_repeat_ngram_size": 2}),
         5: (("--length_penalty", -0.5, "--no_repeat_ngram_size", 3, "--early_stopping", "true"),
             {"length_penalty": -0.5, "no_repeat_ngram_size": 3, "early_stopping": True})}


def all_beams(plugin, make, folder, num=100, count=20):
    """Bart's own configuration forces the last token; with 3 beams the first is forced, too, with 4 one of two last."""
    said = []
    for n, (options, how) in BEAMS.items():
        model = make(n)
        if n == 3:
            model.generation_config.forced_bos_token_id = 7
        if n == 4:
            model.generation_config.forced_eos_token_id = [model.config.eos_token_id, 9]
        said.append(f"{n}: " + beams(plugin, model, folder, n, num, count, *options, ranks=1 + n % 2, **how))
    return "; ".join(said)
