"""Tokenizers that ztok --train makes beside those of the trainer of `tokenizers`: vocabulary and merges, and ids.

By itself: VENV/bin/python test/peers/check_trained.py [--lines N] [--seed N] [TEXT...]
"""

import json
import os
import random
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from check_sentencepiece import fresh_lines
from check_tokenizers import corpus, ids_of, made_lines, ours, same

END = "<|endoftext|>"


def prose(rng, lines):
    return lines


def repeated(rng, lines):
    """Few letters, long runs: counts are equal, pairs overlap, tokens come about in two ways."""
    return ["".join(rng.choice("aab ") * rng.choice([1, 1, 2, 3, 7]) for _ in range(rng.randrange(30))).encode() for _ in lines]


def few(rng, lines):
    """So little that all pairs are used up."""
    return lines[:5]


KINDS = [(prose, 5000), (prose, 600), (repeated, 1200), (few, 4000)]


def theirs(path, size):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.train([path], trainers.BpeTrainer(vocab_size=size, show_progress=False, special_tokens=[END],
                                          initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return json.loads(tok.to_str())["model"]


def compare(kind, size, rng, n, files=()):
    lines = kind(rng, corpus(list(files), n // 2) + list(made_lines(rng, n // 4)) + list(fresh_lines(rng, n // 4)))
    text = "\n".join(line.decode(errors="replace") for line in lines).encode()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "text")
        with open(path, "wb") as f:
            f.write(text)
        out = os.path.join(folder, "out")
        subprocess.run(["bin/ztok", "--train", str(size), path, "--out", out], check=True, stdout=subprocess.DEVNULL)
        made = Tokenizer.from_file(os.path.join(out, "tokenizer.json"))
        got, want = json.loads(made.to_str())["model"], theirs(path, size)
        assert got["vocab"] == want["vocab"], f"{kind.__name__} {size}: vocabularies differ"
        merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in want["merges"]]
        mine = [tuple(m) for m in got["merges"]]
        first = next((i for i, (a, b) in enumerate(zip(mine, merges)) if a != b), min(len(mine), len(merges)))
        assert mine == merges, f"{kind.__name__} {size}: merge {first} of {len(mine)} and {len(merges)}: {mine[first:first + 2]}, {merges[first:first + 2]}"
        want = [made.encode(line.decode(errors="replace")).ids for line in lines]
        same("encode", lines, [ids_of(r) for r in ours(out, "encode", lines)], want)
    return f"{len(text)} bytes, {len(merges)} merges"


def as_check(kind, size):
    def check(folder):
        return compare(kind, size, random.Random(), 2000)
    check.__module__, check.__name__ = __name__, f"{kind.__name__}_{size}"
    return check


def main(args):
    n, seed = 10000, random.randrange(1 << 30)
    while args and args[0].startswith("--"):
        n, seed = (int(args[1]), seed) if args[0] == "--lines" else (n, int(args[1]))
        args = args[2:]
    failed = 0
    print(f"seed {seed}")
    for kind, size in KINDS:
        try:
            print(f"  ok      {kind.__name__:10} {size:6} {compare(kind, size, random.Random(seed), n, args)}", flush=True)
        except AssertionError as e:
            failed += 1
            print(f"  FAILED  {e}", flush=True)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
