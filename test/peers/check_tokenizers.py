"""Our tokenizers beside those of the package `tokenizers`: ids and texts, line by line.

By itself: VENV/bin/python test/peers/check_tokenizers.py [--lines N] [TEXT...]
It needs `tokenizers` alone. TEXTs are files to take lines from, beside the ones that are made
here; .xz and .bz2 are read as they are.
"""

import bz2
import glob
import json
import lzma
import os
import random
import struct
import subprocess
import sys
import tempfile

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

TOOL = "build/release/peers/tokenize"
GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SIZE = 3000


# ---- text
def made_lines(rng, n):
    """What files seldom hold: emoji with their joiners, marks, blanks of all kinds, control characters,
    broken UTF-8, special tokens in the text."""
    odd = (["\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\U0001f44d\U0001f3fd", "e\u0301\u0323",
            "\u1e0b\u0323", "\ufb01", "\u212b", "\u0130I\u0131i", "\u017f", "'\u017f", "\u00a0", "\u2003\u2009", "\u200b",
            "\u3000", "\u0085", "\u2028", "\x00", "\x07", "\ufeff", "\ufffd", "\u00ad", "\u4e2d\u6587", "\uac00\u11a8", "\u1100\u1161",
            "\u0e33", "\u0958", "\u1f82", "\u0915\u094d\u0937", "\u05d0\u05b0", "\u0661\u0662", "\u216b", "\u00bd", "\u24b6", "_", "  ", "   ", "\t",
            "\n", "\r\n", "\n\n  ", "<s>", "</s>", "[MASK]", " <mask> ", "<|end|>", "<|x|>", "don't", "I'LL", "'S", "1234567",
            "3.14", "a" * 120, "\u2581", "<0x0A>", "\u0660\u0303", "\uff21\uff22", "\u2460", "###", "##ing", "!?.,", "->", "::"]
           + [chr(c) for c in range(256)])
    words = ["the", "Quick", "brown", "FOX", "jumps", "\u00fcber", "na\u00efve", "\u041f\u0440\u0438\u0432\u0435\u0442", "\u65e5\u672c\u8a9e", "return", "x", "42"]
    for _ in range(n):
        parts = [rng.choice(odd if rng.random() < 0.5 else words) for _ in range(rng.randrange(1, 12))]
        line = rng.choice(["", " "]).join(parts).encode()
        if rng.random() < 0.15:
            line = bytearray(line)
            for _ in range(rng.randrange(1, 4)):
                line.insert(rng.randrange(len(line) + 1), rng.randrange(128, 256))
            line = bytes(line)
        yield line


def read(path):
    opened = {".xz": lzma.open, ".bz2": bz2.open}.get(os.path.splitext(path)[1], open)
    with opened(path, "rb") as f:
        return f.read().split(b"\n")


def corpus(files, n):
    rng = random.Random(7)
    sources = [f for f in glob.glob("**/*.[ch]", recursive=True) + glob.glob("**/*.md", recursive=True)
               if not f.startswith("build/")]
    lines = list(made_lines(rng, n // 4)) + [bytes([b]) for b in range(256)] + [b""]
    groups = [[line for f in sources for line in read(f)]] + [read(f) for f in files]
    for group in groups:
        lines += rng.sample(group, min(len(group), (n - n // 4) // len(groups)))
    return lines


def long_lines():
    text = open("README.md", "rb").read() + "\u65e5\u672c\u8a9e \U0001f469".encode()
    mega = 1 << 20
    return [(text * (mega // len(text) + 1))[:mega], b"a" * mega, b" " * mega, b"ab" * (mega // 2), b"\xff" * (mega // 8),
            "e\u0323\u0301".encode() * (mega // 8), b"\n" * (mega // 4), b"1" * (mega // 4)]


# ---- tokenizers
def train(tok, lines, kind=trainers.BpeTrainer, **how):
    special = how.pop("special_tokens", [])
    # no zero byte: it would become a token, and jansson reads no key with one
    tok.train_from_iterator((line.decode(errors="replace").replace("\0", "") for line in lines),
                            kind(vocab_size=SIZE, show_progress=False, special_tokens=special, **how))
    return tok


def gpt2(lines, end="<|end|>"):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    return train(tok, lines, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=[end])


def llama3(lines):
    tok = Tokenizer(models.BPE(ignore_merges=True))
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(GPT4), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    train(tok, lines, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<s>", "<|end|>"])
    tok.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 0)])])
    return tok


def qwen2(lines):
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(GPT4.replace("{1,3}", "")), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    train(tok, lines, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tok.add_special_tokens([AddedToken("<|end|>"), AddedToken("<|x|>", lstrip=True)])
    tok.add_tokens([AddedToken("::"), AddedToken("<mask>", rstrip=True, lstrip=True), AddedToken("fox", single_word=True)])
    return tok


def o200k(lines):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(O200K), "removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    return train(tok, lines, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def roberta(lines):
    tok = gpt2(lines)
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tok.add_special_tokens(["<s>", "</s>", AddedToken("<mask>", lstrip=True)])
    tok.post_processor = processors.RobertaProcessing(("</s>", tok.token_to_id("</s>")), ("<s>", tok.token_to_id("<s>")))
    return tok


def llama2(lines):
    tok = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tok.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                     decoders.Strip(" ", 1, 0)])
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    train(tok, [line[:60] for line in lines], special_tokens=special, limit_alphabet=300, max_token_length=12)
    spec = json.loads(tok.to_str())
    spec["added_tokens"] = spec["added_tokens"][:3]
    tok = Tokenizer.from_str(json.dumps(spec))
    tok.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A $B", special_tokens=[("<s>", 1), ("</s>", 2)])
    return tok


def bert(lines, **how):
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer = normalizers.BertNormalizer(**how)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.decoder = decoders.WordPiece()
    train(tok, lines, trainers.WordPieceTrainer, special_tokens=["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"], limit_alphabet=400)
    tok.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return tok


def bert_cased(lines):
    return bert(lines, lowercase=False)


def charsmap(pairs):
    """A small double array with chains of one child each, for texts of distinct first bytes."""
    units, texts = {0: 0}, bytearray()
    next_free = 512
    for key, value in pairs:
        at = len(texts)
        texts += value.encode() + b"\0"
        node, offset = 0, 256  # the root's children lie at 256 ^ byte
        units[0] = offset << 10
        for i, byte in enumerate(key.encode()):
            child = offset ^ byte
            offset_here = next_free
            next_free += 256
            last = i + 1 == len(key.encode())
            units[child] = (child ^ offset_here) << 10 | byte | (0x100 if last else 0)
            node, offset = child, offset_here
        units[offset] = 0x80000000 | at
    blob = b"".join(struct.pack("<I", units.get(i, 0)) for i in range(next_free))
    return struct.pack("<I", len(blob)) + blob + bytes(texts)


def t5(lines):
    tok = Tokenizer(models.Unigram())
    table = charsmap([("\ufb01", "fi"), ("\u00a0", " "), ("\u3000", " "), ("A\u030a", "\u00c5"), ("\u200b", ""), ("\u2460", "1")])
    tok.normalizer = normalizers.Sequence([normalizers.Precompiled(table), normalizers.Strip(left=False, right=True),
                                           normalizers.Replace(Regex(" {2,}"), "\u2581")])
    tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tok.decoder = decoders.Metaspace(prepend_scheme="always")
    train(tok, lines, trainers.UnigramTrainer, unk_token="<unk>", special_tokens=["<pad>", "</s>", "<unk>"])
    tok.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    return tok


def xlm(lines):
    tok = Tokenizer(models.Unigram())
    tok.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.StripAccents()])
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="first")])
    tok.decoder = decoders.Metaspace(prepend_scheme="first")
    train(tok, lines, trainers.UnigramTrainer, unk_token="<unk>",
          special_tokens=["<s>", "<unk>"] + [f"<0x{b:02X}>" for b in range(256)])
    spec = json.loads(tok.to_str())
    spec["model"]["byte_fallback"] = True
    spec["added_tokens"] = spec["added_tokens"][:2]
    return Tokenizer.from_str(json.dumps(spec))


def deberta(lines):
    """As DebertaV2Tokenizer of transformers makes it of a vocabulary."""
    tok = Tokenizer(models.Unigram())
    tok.normalizer = normalizers.Sequence([normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFC(),
                                           normalizers.Strip(left=False, right=True)])
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(prepend_scheme="always")])
    tok.decoder = decoders.Metaspace(prepend_scheme="always")
    train(tok, lines, trainers.UnigramTrainer, unk_token="[UNK]", special_tokens=["[PAD]", "[CLS]", "[SEP]", "[UNK]"])
    tok.add_special_tokens([AddedToken("[MASK]", special=True)])
    tok.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    return tok


def clip(lines):
    tok = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tok.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(),
                                           normalizers.Strip()])
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)])
    tok.decoder = decoders.BPEDecoder(suffix="</w>")
    return train(tok, lines, end_of_word_suffix="</w>", special_tokens=["<unk>"], limit_alphabet=200)


def pieces(lines):
    tok = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##", fuse_unk=True))
    tok.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.Replace(Regex(r"\d+\b"), "#")])
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("merged_with_previous"), pre_tokenizers.Split(" ", "merged_with_next"),
        pre_tokenizers.Split(Regex(r"\s\w"), "contiguous"), pre_tokenizers.Digits()])
    tok.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    return train(tok, lines, continuing_subword_prefix="##", special_tokens=["<unk>"], limit_alphabet=200)


def words(lines):
    tok = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tok.normalizer = normalizers.Lowercase()
    tok.pre_tokenizer = pre_tokenizers.Whitespace()
    train(tok, lines, trainers.WordLevelTrainer, special_tokens=["<unk>"])
    tok.add_tokens([AddedToken("quick brown", normalized=True)])
    return tok


def gpt2_files(lines):
    """The same from the two files of older folders, vocab.json and merges.txt."""
    return gpt2(lines, end="<|endoftext|>")


gpt2_files.files = True
KINDS = [gpt2, gpt2_files, llama3, qwen2, o200k, roberta, llama2, bert, bert_cased, t5, xlm, deberta, clip, pieces, words]


# ---- comparing
def ours(folder, what, records):
    data = b"".join(struct.pack("<I", len(r)) + r for r in records)
    done = subprocess.run([TOOL, folder, what], input=data, capture_output=True, check=False)
    if done.returncode:
        raise AssertionError(f"{what}: {done.stderr.decode(errors='replace').strip()}")
    out, at = [], 0
    while at < len(done.stdout):
        n, = struct.unpack_from("<I", done.stdout, at)
        out.append(done.stdout[at + 4:at + 4 + n])
        at += 4 + n
    assert len(out) == len(records), f"{what}: {len(out)} records of {len(records)}"
    return out


def same(what, inputs, got, want):
    wrong = [i for i in range(len(want)) if got[i] != want[i]]
    if wrong:
        i = min(wrong, key=lambda i: len(inputs[i]))
        raise AssertionError(f"{what}: {len(wrong)} of {len(want)} differ, as for {inputs[i][:200]!r}:\n"
                             f"    ours   {got[i][:200]!r}\n    theirs {want[i][:200]!r}")


def ids_of(raw):
    return list(struct.unpack(f"<{len(raw) // 4}i", raw))


def compare(tok, lines, long=(), files=False):
    tok.no_truncation()
    tok.no_padding()
    texts = [line.decode(errors="replace") for line in [*lines, *long]]
    lines = [*lines, *long]
    with tempfile.TemporaryDirectory() as folder:
        if files:
            tok.model.save(folder)
        else:
            tok.save(os.path.join(folder, "tokenizer.json"))
        plain = [tok.encode(t, add_special_tokens=False).ids for t in texts]
        framed = [tok.encode(t).ids for t in texts]
        same("encode", lines, [ids_of(r) for r in ours(folder, "encode", lines)], plain)
        same("frame", lines, [ids_of(r) for r in ours(folder, "frame", lines)], framed)
        packed = [struct.pack(f"<{len(i)}i", *i) for i in framed[:len(lines) - len(long)]]
        rng = random.Random(3)
        size = tok.get_vocab_size()
        for _ in range(500):  # ids that no text gives, and one that no token has
            some = [rng.randrange(size + 2) for _ in range(rng.randrange(1, 9))]
            packed.append(struct.pack(f"<{len(some)}i", *some))
        for what, skip in (("decode", False), ("skip", True)):
            same(what, packed, [r.decode() for r in ours(folder, what, packed)],
                 [tok.decode(ids_of(p), skip_special_tokens=skip) for p in packed])
        told = packed[:len(packed) - 500]
        same("stream", told, [r.decode() for r in ours(folder, "stream", told)],
             [tok.decode(ids_of(p), skip_special_tokens=False) for p in told])
    return sum(map(len, framed))


def run(n, files, names=()):
    lines = corpus(files, n)
    failed = 0
    for kind in KINDS:
        if names and kind.__name__ not in names:
            continue
        try:
            num = compare(kind(lines), lines, long_lines(), hasattr(kind, "files"))
            print(f"  ok      {kind.__name__:12} {len(lines)} lines, {num} ids", flush=True)
        except AssertionError as e:
            failed += 1
            print(f"  FAILED  {kind.__name__:12} {e}", flush=True)
    print(f"{(len(names) or len(KINDS)) - failed} passed, {failed} failed")
    return failed


def as_check(kind):
    """One kind as test/peers/run has its checks."""
    def check(folder):
        lines = corpus([], 2000)
        num = compare(kind(lines), lines, (), hasattr(kind, "files"))
        return f"{len(lines)} lines, {num} ids"
    check.__module__, check.__name__ = __name__, kind.__name__
    return check


def main(args):
    n, names = 10000, []
    while args and args[0].startswith("--"):
        if args[0] == "--lines":
            n = int(args[1])
        elif args[0] == "--only":
            names.append(args[1])
        args = args[2:]
    return run(n, args, names) != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
