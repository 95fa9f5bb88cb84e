"""Write test/golden/seq2seq/: what transformers and PyTorch compute for small models that read one
text and write another (golden.py says what the files are). For each of MODELS a folder with

    model/               weights and config.json
    batch.safetensors    source, source_lengths, tokens and targets: rows of several lengths, padded
    probe.safetensors    loss, logits and gradients of it, but for those of keys' biases: rounding alone
    pairs.jsonl          what is trained on
    curve.txt            loss, gradient norm and rate of 20 steps of AdamW over the pairs, clipped
    greedy.txt           ids of a source, and those that transformers writes from it
    beams.jsonl          what it writes by beam search, as predictions.jsonl has it; scores are those of fp64

    test/peers/setup build/venv
    build/venv/bin/python test/golden/make_seq2seq.py [NAME...]

t5: relu, the head tied to the embedding, heads whose width together is not the model's, a decoder
deeper than the encoder, a source beyond the last bucket.
t5_gated: gated gelu and a head of its own, as T5 1.1.
bart: norms behind, scaled embeddings. blenderbot: norms in front, a norm at the end.
"""

import copy
import json
import os
import shutil
import sys

import golden
import check_bart
import check_t5
import numpy as np
import seq2seq
import torch
import transformers
from checks import save
from safetensors.numpy import save_file

T5 = dict(vocab_size=259, d_model=18, d_kv=5, num_heads=3, num_layers=1, num_decoder_layers=2, d_ff=22,
          relative_attention_num_buckets=8, relative_attention_max_distance=12)
BART = dict(vocab_size=259, d_model=12, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2,
            decoder_attention_heads=3, encoder_ffn_dim=22, decoder_ffn_dim=18,
            max_position_embeddings=24, scale_embedding=True)


def t5(*args, **more):
    """T5 does not scale scores: with queries as large as the rest, rounding would grow with every step."""
    model = check_t5.make(*args, **T5, **more)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(".q.weight"):
                p.mul_(0.2)
    return model


MODELS = {
    "t5": lambda: t5("small", seed=3, spread=0.6),
    "t5_gated": lambda: t5("gated", untied=True, seed=4, spread=0.4),
    "bart": lambda: check_bart.make("bart", seed=7, spread=0.5, **BART),
    "blenderbot": lambda: check_bart.make("blenderbot", seed=22, spread=0.5, **BART),
}
PROMPT, NEW = [3, 14, 15, 92, 65, 35, 89], 17
# as test/integration/30-golden-seq2seq.sh runs them
TEXTS, ROWS, SEED = 23, 4, 11
BEAMS, BEAM_NEW, SOURCES = 4, 12, 6
BEAM_HOW = dict(length_penalty=0.5, no_repeat_ngram_size=2)


def beams(model):
    """Lines of sources whose texts are clear: other precision, the same order; and that the settings change."""
    exact, rng, lines = copy.deepcopy(model).double(), np.random.default_rng(1), []
    while len(lines) < SOURCES:
        source = rng.integers(3, model.config.vocab_size, rng.integers(2, 13)).tolist()
        texts, near = seq2seq.best(model, source, BEAM_NEW, BEAMS, BEAM_HOW)
        same, scores = seq2seq.best(exact, source, BEAM_NEW, BEAMS, BEAM_HOW)
        plain, _ = seq2seq.best(model, source, BEAM_NEW, BEAMS, {})
        apart = min(a - b for a, b in zip(scores, scores[1:]))
        if texts == same and texts != plain and apart > 1e-3 and np.abs(np.subtract(near, scores)).max() < 2e-6:
            lines.append({"prompt": " ".join(map(str, source)), "generated": [" ".join(map(str, t)) for t in texts],
                          "score": [round(s, 9) for s in scores]})
    return lines


def write(name):
    model, folder = MODELS[name](), os.path.join(golden.HERE, "seq2seq", name)

    def path(file):
        return os.path.join(folder, file)

    # texts of these lengths are clear as they come; test/peers/check_bart.py has tokens that are forced
    model.config.forced_eos_token_id = model.generation_config.forced_eos_token_id = None
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    save(model, folder)
    os.remove(path("model/generation_config.json"))

    vocab = model.config.vocab_size
    fields = seq2seq.add_tokens(seq2seq.batch(vocab, source=21, target=11), model)
    save_file(fields, path("batch.safetensors"))
    save_file({n: v for n, v in seq2seq.theirs(model, fields).items() if not n.endswith("k_proj.bias")},
              path("probe.safetensors"))

    # transformers has a cache for as many layers in the decoder as in the encoder alone
    text, margin = seq2seq.written(model, PROMPT, NEW, use_cache=False)
    assert margin > 1e-2 and len(set(text)) > 4, (margin, text)
    with open(path("greedy.txt"), "w", encoding="utf-8") as f:
        f.write(" ".join(map(str, PROMPT)) + "\n" + " ".join(map(str, text)) + "\n")

    lines = beams(model)
    assert len({t for line in lines for t in line["generated"]}) > 2 * SOURCES, lines
    with open(path("beams.jsonl"), "w", encoding="utf-8") as f:
        f.write("".join(json.dumps(line) + "\n" for line in lines))

    texts = seq2seq.random_texts(TEXTS)
    seq2seq.write_pairs(folder, texts)
    exact, rows = (seq2seq.train(m, texts, ROWS, SEED, seq2seq.STEPS, 0.0)
                   for m in (copy.deepcopy(model).double(), model))
    far = abs(rows / exact - 1).max()
    assert far < 1e-4, f"rounding alone moves the curve by {far:.2g}"
    with open(path("curve.txt"), "w", encoding="utf-8") as f:
        for row in rows:
            f.write("%.9g %.9g %.9g\n" % tuple(row))
    with open(path("versions.txt"), "w", encoding="utf-8") as f:
        f.write(f"torch {torch.__version__}\ntransformers {transformers.__version__}\n")


if __name__ == "__main__":
    for one in sys.argv[1:] or MODELS:
        write(one)
