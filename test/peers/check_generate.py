"""Texts that are written: greedy with rules, beam search, and what a draw is made from, against
`generate` of transformers."""

import json
import os

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import ours
from checks import check, expect, save

VOCAB, POSITIONS, END = 97, 96, 96


def make(seed, spread=0.4):
    """A small model whose texts differ, and end now and then."""
    torch.manual_seed(seed)
    config = GPT2Config(vocab_size=VOCAB, n_positions=POSITIONS, n_embd=48, n_layer=2, n_head=4,
                        initializer_range=spread, bos_token_id=END, eos_token_id=END,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    return GPT2LMHeadModel(config).eval()


def prompts_of(seed, num):
    """Of 1 to 12 tokens each."""
    drawn = np.random.default_rng(seed)
    return [drawn.integers(0, END, drawn.integers(1, 13)).tolist() for _ in range(num)]


def predict(folder, model, prompts, count, ranks, *options):
    """Our texts: lists of (new ids, score) for each prompt."""
    file, out = os.path.join(folder, "prompts.jsonl"), os.path.join(folder, "out")
    with open(file, "w") as f:
        for p in prompts:
            f.write(json.dumps({"prompt": " ".join(map(str, p))}) + "\n")
    ours.zlaunch(ranks, "--model_name_or_path", save(model, folder), "--test_file", file, "--output_dir", out,
                 "--overwrite_output_dir", "--max_new_tokens", count, *options)
    made = []
    for line in open(os.path.join(out, "predictions.jsonl")):
        row = json.loads(line)
        texts, scores = row["generated"], row.get("score", 0.0)
        if isinstance(texts, str):
            texts, scores = [texts], [scores]
        made.append([([int(w) for w in t.split()], s) for t, s in zip(texts, scores)])
    return made


def theirs(model, prompt, count, **how):
    ids = torch.tensor([prompt])
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, pad_token_id=0,
                             return_dict_in_generate=True, output_scores=True, **how)
    texts = []
    for row in out.sequences.tolist():
        row = row[len(prompt):]
        texts.append(row[:row.index(END)] if END in row else row)
    return texts, out


def same_beams(folder, ranks, num_beams, num, count, *options, **how):
    """The same texts in the same order with the same scores, unless two scores are as good as equal."""
    model, prompts = make(num_beams), prompts_of(num_beams, num)
    got = predict(folder, model, prompts, count, ranks, "--num_beams", num_beams, "--num_return_sequences",
                  num_beams, *options)
    far, ties = 0.0, 0
    for prompt, mine in zip(prompts, got):
        texts, out = theirs(model, prompt, count, num_beams=num_beams, num_return_sequences=num_beams,
                            do_sample=False, **how)
        scores = out.sequences_scores.tolist() if num_beams > 1 else [0.0]
        # they are sums over a power of the length, of hundreds at times, in fp32
        far = max([far] + [abs(a - b) / max(1.0, abs(b)) for (_, a), b in zip(mine, scores)])
        for k, text in enumerate(texts):
            if mine[k][0] == text:
                continue
            near = [j for j in range(len(scores)) if j != k and abs(scores[j] - scores[k]) < 1e-5]
            if not near:
                raise AssertionError(f"prompt {prompt}, text {k}:\nours   {mine[k]}\ntheirs {text} {scores[k]}")
            ties += 1
    return expect("scores", far, 5e-6) + f", {num} prompts, {ties} ties"


@check
def greedy_is_as_one_beam(folder):
    return same_beams(folder, 2, 1, 100, 30)


@check
def two_beams(folder):
    return same_beams(folder, 2, 2, 100, 24)


@check
def three_beams_with_length_penalty(folder):
    return same_beams(folder, 1, 3, 100, 24, "--length_penalty", 2.0, length_penalty=2.0)


@check
def four_beams_that_stop_early(folder):
    return same_beams(folder, 2, 4, 100, 24, "--early_stopping", "true", "--length_penalty", -0.5,
                      early_stopping=True, length_penalty=-0.5)


@check
def five_beams_with_rules(folder):
    return same_beams(folder, 1, 5, 100, 24, "--no_repeat_ngram_size", 2, "--repetition_penalty", 1.3,
                      "--early_stopping", "never", no_repeat_ngram_size=2, repetition_penalty=1.3,
                      early_stopping="never")


@check
def greedy_with_rules(folder):
    """Every rule by itself, and all together."""
    model, prompts = make(9), prompts_of(9, 40)
    for how in ({"repetition_penalty": 1.7}, {"no_repeat_ngram_size": 1}, {"no_repeat_ngram_size": 3},
                {"min_new_tokens": 12}, {"repetition_penalty": 0.6, "no_repeat_ngram_size": 2, "min_new_tokens": 5}):
        options = [w for k, v in how.items() for w in ("--" + k, v)]
        got = predict(folder, model, prompts, 25, 2, *options)
        for prompt, mine in zip(prompts, got):
            texts, _ = theirs(model, prompt, 25, do_sample=False, **how)
            if mine[0][0] != texts[0]:
                raise AssertionError(f"{how}, prompt {prompt}:\nours   {mine[0][0]}\ntheirs {texts[0]}")
    return f"{len(prompts)} prompts, 5 settings"


@check
def tokens_are_drawn_from_what_the_warpers_leave(folder):
    """First tokens of many texts: none that transformers rules out, each as often as it says."""
    model, prompt, worst = make(4, 0.15), [3, 1, 4, 1, 5], 0.0
    for how in ({"temperature": 0.7, "top_k": 7}, {"temperature": 1.3, "top_p": 0.6},
                {"temperature": 0.9, "top_k": 20, "top_p": 0.8, "repetition_penalty": 2.0}):
        options = [w for k, v in how.items() for w in ("--" + k, v)]
        got = predict(folder, model, [prompt] * 4, 1, 2, "--do_sample", "--num_return_sequences", 1000, "--seed", 5,
                      *options)
        how.setdefault("top_k", 0)
        scores = theirs(model, prompt, 1, do_sample=True, **how)[1].scores[0][0]
        p = torch.softmax(scores, -1).numpy()
        # where the text ends at once nothing is drawn that is seen
        drawn = [t[0][0] if t[0] else END for row in got for t in row]
        seen = np.bincount(drawn, minlength=VOCAB) / len(drawn)
        if seen[p == 0].any():
            raise AssertionError(f"{how}: {np.flatnonzero((p == 0) & (seen > 0))} cannot come")
        deviation = np.sqrt(np.maximum(p * (1 - p), 1e-9) / len(drawn))
        worst = max(worst, float((np.abs(seen - p) / deviation)[p > 0].max()))
    return expect("deviations from the probabilities", worst, 4.5)


@check
def a_text_is_the_same_alone_and_among_others(folder):
    """Drawn texts, too: whatever is written beside them, on however many ranks."""
    model, prompts = make(6, 0.2), prompts_of(6, 20)
    options = ("--do_sample", "--seed", 3, "--top_k", 30, "--per_device_eval_batch_size")
    want = predict(folder, model, prompts, 60, 1, *options, 1)
    for ranks, rows in ((1, 7), (2, 3), (3, 8)):
        if predict(folder, model, prompts, 60, ranks, *options, rows) != want:
            raise AssertionError(f"{ranks} ranks, {rows} rows")
    return f"{sum(len(t[0][0]) for t in want)} tokens"
