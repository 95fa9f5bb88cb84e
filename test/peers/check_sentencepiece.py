"""Our reading of SentencePiece's model files beside the package `sentencepiece`: ids and texts, line by line.

By itself: VENV/bin/python test/peers/check_sentencepiece.py [--lines N] [--seed N] [--only KIND] [TEXT...]
It needs `sentencepiece` and `tokenizers`. TEXTs are files to take lines from, as check_tokenizers.py takes them.
"""

import io
import json
import os
import random
import re
import struct
import sys
import tempfile

import sentencepiece

from check_tokenizers import corpus, ids_of, long_lines, made_lines, ours, same

SIZE = 8000
SCRIPTS = ((0x20, 0x7f), (0xa0, 0x250), (0x370, 0x530), (0x590, 0x700), (0x900, 0xe00), (0x1100, 0x1200), (0x2000, 0x2300),
           (0x2460, 0x24ff), (0x2570, 0x2590), (0x3040, 0x3100), (0x4e00, 0x5000), (0xac00, 0xad00), (0xf900, 0xfb10),
           (0xfe30, 0xffff), (0x1f300, 0x1f700), (0x10300, 0x10350))


def fresh_lines(rng, n):
    """Words of characters of many scripts, and bytes that are no text."""
    for _ in range(n):
        words = []
        for _ in range(rng.randrange(1, 9)):
            low, high = rng.choice(SCRIPTS)
            words.append("".join(chr(rng.randrange(low, high)) for _ in range(rng.randrange(1, 8))))
        line = rng.choice([" ", "  ", "\u3000", ""]).join(words).encode(errors="replace")
        if rng.random() < 0.2:
            at = rng.randrange(len(line) + 1)
            line = line[:at] + bytes(rng.randrange(256) for _ in range(rng.randrange(1, 5))) + line[at + 1:]
        yield line


def train(lines, **how):
    out = io.BytesIO()
    text = (line.decode(errors="replace").replace("\0", "")[:2000] for line in lines)
    how = {"vocab_size": SIZE, "hard_vocab_limit": False, "character_coverage": 0.98, "minloglevel": 2, **how}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(text), model_writer=out, **how)
    return out.getvalue()


def varint(v):
    out = b""
    while v > 127:
        out, v = out + bytes([v & 127 | 128]), v >> 7
    return out + bytes([v])


def set_types(model, rng, kind, share):
    """A share of the normal pieces of more than one character becomes pieces of that type: a field of the message behind
    the others wins."""
    out, at = b"", 0
    while at < len(model):
        start = at
        tag = model[at]
        at += 1
        n = shift = 0
        while True:
            byte = model[at]
            at += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        body = model[at:at + n]
        at += n
        if tag == 0x0a and b"\x18" not in body[-2:] and body[1] > 3 and rng.random() < share:
            body += bytes([0x18, kind])
            out += b"\x0a" + varint(len(body)) + body
        else:
            out += model[start:at]
    return out


# ---- models
def unigram(lines, rng):
    return train(lines)


def unigram_bytes(lines, rng):
    return train(lines, byte_fallback=True, user_defined_symbols=["<sep>", "don't", " the ", "\u65e5"], control_symbols=["<2de>"],
                 normalization_rule_name="nfkc_cf")


def unigram_suffix(lines, rng):
    return train(lines, treat_whitespace_as_suffix=True, normalization_rule_name="nmt_nfkc_cf", unk_surface=" ?? ", pad_id=3)


def unigram_raw(lines, rng):
    return train(lines, normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False)


def unigram_unused(lines, rng):
    return set_types(train(lines), rng, 5, 0.2)


def llama2(lines, rng):
    return train(lines, model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
                 split_digits=True, allow_whitespace_only_pieces=True)


def bpe(lines, rng):
    return train(lines, model_type="bpe", user_defined_symbols=["<sep>", "fox", "\u041f\u0440"], control_symbols=["<2de>"])


def bpe_suffix(lines, rng):
    return train(lines, model_type="bpe", treat_whitespace_as_suffix=True, split_by_whitespace=False)


def bpe_unused(lines, rng):
    return set_types(train(lines, model_type="bpe"), rng, 5, 0.3)


KINDS = [unigram, unigram_bytes, unigram_suffix, unigram_raw, unigram_unused, llama2, bpe, bpe_suffix, bpe_unused]


def test_lines(rng, n, files):
    return corpus(files, n // 3) + list(made_lines(rng, n // 3)) + list(fresh_lines(rng, n // 3))


def put_model(folder, model, name):
    with open(os.path.join(folder, name), "wb") as f:
        f.write(model)


def packed(ids):
    return struct.pack(f"<{len(ids)}i", *ids)


def texts_of(folder, sp, rng, ids):
    """Decoded at once and token by token; also ids that no text gives."""
    for _ in range(1000):
        ids.append([rng.randrange(sp.get_piece_size()) for _ in range(rng.randrange(1, 9))])
        ids.append([rng.randrange(min(300, sp.get_piece_size())) for _ in range(rng.randrange(1, 9))])
    records = [packed(i) for i in ids]
    want = [sp.decode(i).encode(errors="replace") for i in ids]
    for what in ("decode", "skip", "stream"):
        same(what, records, ours(folder, what, records), want)


def compare(kind, rng, n, files=(), long=()):
    lines = test_lines(rng, n, list(files))
    model = kind(lines, rng)
    sp = sentencepiece.SentencePieceProcessor(model_proto=model)
    everything = lines + list(long)
    with tempfile.TemporaryDirectory() as folder:
        put_model(folder, model, rng.choice(["spiece.model", "tokenizer.model"]))
        want = [sp.encode(line) for line in everything]
        same("encode", everything, [ids_of(r) for r in ours(folder, "encode", everything)], want)
        texts_of(folder, sp, rng, want[:len(lines)])
    return len(everything), sum(map(len, want))


# ---- folders: what the Python code of T5Tokenizer and LlamaTokenizer does around a model
def cut(text, tokens):
    """[(stretch, is a token)]"""
    out, done = [], 0
    for hit in re.finditer("|".join(re.escape(t) for t in sorted(tokens, key=len, reverse=True)), text):
        out += [(text[done:hit.start()], False), (hit.group(), True)]
        done = hit.end()
    out = [*out, (text[done:], False)]
    for i, (part, is_token) in enumerate(out):
        if is_token and tokens[part][1]:
            out[i - 1] = (out[i - 1][0].rstrip(), False)
            out[i + 1] = (out[i + 1][0].lstrip(), False)
    return [p for p in out if p[0]]


def salted(rng, lines, tokens):
    """Texts with tokens in them."""
    for line in lines:
        words = line.decode(errors="replace").split(" ")
        for _ in range(rng.randrange(3)):
            words.insert(rng.randrange(len(words) + 1), rng.choice(tokens))
        yield rng.choice([" ", ""]).join(words)


def compare_folder(rng, n, model, config, tokens, before, after, legacy=True):
    sp = sentencepiece.SentencePieceProcessor(model_proto=model)
    # a second normalizer_spec is merged with the first: add_dummy_prefix is false
    mute = sentencepiece.SentencePieceProcessor(model_proto=model + b"\x1a\x02\x18\x00")
    unk = "<unk>"

    def encode(text, first):
        if legacy or (first and not text.startswith("\u2581")):
            return sp.encode(text)
        if not text.startswith((" ", "\u2581")):
            return mute.encode(text)
        return mute.encode(unk + text)[len(mute.encode(unk)):]

    def ids(text):
        out = []
        for i, (part, is_token) in enumerate(cut(text, tokens)):
            out += [tokens[part][0]] if is_token else encode(part, i == 0)
        return before + out + after

    lines = list(salted(rng, test_lines(rng, n, []), [*tokens, "<2de>"]))
    if not legacy:
        lines = [line for line in lines if not line.startswith("\u2581")]
    records = [line.encode(errors="replace") for line in lines]
    with tempfile.TemporaryDirectory() as folder:
        put_model(folder, model, "tokenizer.model")
        with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)
        want = [ids(r.decode()) for r in records]
        same("frame", records, [ids_of(r) for r in ours(folder, "frame", records)], want)
        known = [packed(i) for i in want]
        same("stream", known, ours(folder, "stream", known), ours(folder, "decode", known))
    return len(records), sum(map(len, want))


def t5_folder(rng, n, legacy=True):
    model = train(test_lines(rng, n, []), pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    num = sentencepiece.SentencePieceProcessor(model_proto=model).get_piece_size()
    tokens = {f"<extra_id_{i}>": (num + 99 - i, True) for i in range(100)} | {"<pad>": (0, False), "</s>": (1, False), "<unk>": (2, False)}
    config = {"tokenizer_class": "T5Tokenizer", "eos_token": "</s>"} | ({} if legacy else {"legacy": False})
    return compare_folder(rng, n, model, config, tokens, [], [1], legacy)


def t5_folder_continued(rng, n):
    return t5_folder(rng, n, False)


def llama_folder(rng, n, legacy=True):
    model = llama2(test_lines(rng, n, []), rng)
    num = sentencepiece.SentencePieceProcessor(model_proto=model).get_piece_size()
    tokens = {"<unk>": (0, False), "<s>": (1, False), "</s>": (2, False), "<pad>": (num, False), "[INST]": (num + 1, False)}
    config = {"tokenizer_class": "LlamaTokenizer", "pad_token": "<pad>", "legacy": legacy, "add_eos_token": True,
              "additional_special_tokens": ["[INST]"]}
    return compare_folder(rng, n, model, config, tokens, [1], [2], legacy)


def llama_folder_continued(rng, n):
    return llama_folder(rng, n, False)


FOLDERS = [t5_folder, t5_folder_continued, llama_folder, llama_folder_continued]


def as_check(kind):
    """One kind as test/peers/run has its checks."""
    def check(folder):
        rng = random.Random()
        num, ids = kind(rng, 1500) if kind in FOLDERS else compare(kind, rng, 1500)
        return f"{num} lines, {ids} ids"
    check.__module__, check.__name__ = __name__, kind.__name__
    return check


def main(args):
    n, seed, names = 10000, random.randrange(1 << 30), []
    while args and args[0].startswith("--"):
        if args[0] == "--lines":
            n = int(args[1])
        elif args[0] == "--seed":
            seed = int(args[1])
        elif args[0] == "--only":
            names.append(args[1])
        args = args[2:]
    failed = 0
    print(f"seed {seed}")
    for kind in KINDS + FOLDERS:
        if names and kind.__name__ not in names:
            continue
        try:
            rng = random.Random(seed)
            num, ids = kind(rng, n) if kind in FOLDERS else compare(kind, rng, n, args, long_lines())
            print(f"  ok      {kind.__name__:22} {num} lines, {ids} ids", flush=True)
        except AssertionError as e:
            failed += 1
            print(f"  FAILED  {kind.__name__:22} {e}", flush=True)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
