"""Speed of our tokenizers beside the packages `tokenizers` and `sentencepiece`: the same text, line by line, on as many threads.

VENV/bin/python bench/peer_tokenize.py [--threads N] [--rounds N] [--mb N] [--text FILE] [KIND...]
VENV/bin/python bench/peer_tokenize.py [--threads N] --memory MB [KIND...]

Tokenizers are trained here on this repository's text, which is what they then encode, repeated with numbers put in so that not
all lines are the same; or on lines of FILEs (--text, more than once). Rounds of both take turns; the medians are printed. Theirs is `encode_batch_fast` where the package has it,
which leaves offsets out as ours does, else `encode_batch`. The number of ids has to be the same.

--memory: what bin/ztok takes at most, with 100 MB of text and with so many (gpt2 where no KIND is named).
"""

import glob
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
os.chdir(os.path.join(HERE, ".."))
sys.path.insert(0, "test/peers")
TOOL = "build/release/bench/bench_tokenize"


def text_of(megabytes, named):
    rng = random.Random(1)
    files = named or sorted(glob.glob("**/*.md", recursive=True) + glob.glob("**/*.[ch]", recursive=True))
    texts = [open(f, encoding="utf-8", errors="replace").read().split("\n") for f in files if not f.startswith("build/")]
    lines = [line for text in texts for line in text]
    out, size = [], 0
    while size < megabytes * 1e6:
        line = rng.choice(rng.choice(texts) if named else lines)  # of each file named as many
        line += f" {rng.randrange(100000)}\n" if rng.random() < 0.3 else "\n"
        out.append(line)
        size += len(line.encode())
    return out


class HuggingFace:
    def __init__(self, tok, folder, threads):
        tok.no_truncation()
        tok.no_padding()
        tok.save(os.path.join(folder, "tokenizer.json"))
        self.encode = getattr(tok, "encode_batch_fast", tok.encode_batch)

    def __call__(self, lines):
        return sum(len(e.ids) for e in self.encode(lines))


class SentencePiece:
    def __init__(self, model, folder, threads):
        import sentencepiece
        self.sp, self.threads = sentencepiece.SentencePieceProcessor(model_proto=model), threads
        with open(os.path.join(folder, "spiece.model"), "wb") as f:
            f.write(model)

    def __call__(self, lines):
        return sum(map(len, self.sp.encode(lines, num_threads=self.threads)))


def kinds():
    import check_tokenizers
    made = {k.__name__: (HuggingFace, k) for k in check_tokenizers.KINDS}
    try:
        import check_sentencepiece as sp
        made |= {f"spiece_{k.__name__}": (SentencePiece, lambda lines, k=k: k(lines, random.Random(1))) for k in (sp.unigram, sp.bpe, sp.llama2)}
    except ImportError:
        print("without sentencepiece: pip install sentencepiece")
    return made


def ours(folder, path, threads, rounds):
    out = subprocess.run([TOOL, folder, path, str(threads), str(rounds)], check=True, capture_output=True, text=True).stdout.split()
    return int(out[0]), [float(s) for s in out[1:]]


def compare(name, package, make, lines, path, threads, rounds):
    sample = [line.encode() for line in random.Random(2).sample(lines, min(len(lines), 20000))]
    with tempfile.TemporaryDirectory() as folder:
        theirs = package(make(sample), folder, threads)
        want = theirs(lines)  # warms up
        mine, other = [], []
        for _ in range(rounds):
            num, seconds = ours(folder, path, threads, 1)
            assert num == want, f"{name}: {num} ids, theirs {want}"
            mine += seconds
            start = time.monotonic()
            theirs(lines)
            other.append(time.monotonic() - start)
    size = os.path.getsize(path) / 1e6
    a, b = statistics.median(mine), statistics.median(other)
    print(f"{name:16} {want:9} {size / a:9.1f} {size / b:9.1f} {b / a:7.2f}x", flush=True)


def memory(name, package, make, lines, threads, sizes):
    """Peak resident MB and seconds of ztok for each size."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", ".")) as folder:
        package(make([line.encode() for line in random.Random(2).sample(lines, min(len(lines), 20000))]), folder, threads)
        block = "".join(lines).encode()
        for size in sizes:
            text = os.path.join(folder, "text.txt")
            with open(text, "wb") as f:
                while f.tell() < size * 1e6:
                    f.write(block)
            start = time.monotonic()
            run = subprocess.Popen(["bin/ztok", text, "--tokenizer", folder, "--out", os.path.join(folder, f"out{size}"),
                                    "--threads", str(threads)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            peak = 0  # its own: what wait4 says is at least what this process had when it forked
            while run.poll() is None:
                with open(f"/proc/{run.pid}/status", encoding="utf-8") as f:
                    peak = max([peak] + [int(line.split()[1]) for line in f if line.startswith("VmHWM:")])
                time.sleep(0.02)
            assert run.returncode == 0, f"{name}: ztok ended with {run.returncode}"
            seconds = time.monotonic() - start
            print(f"{name:16} {size:9} {peak * 1024 / 1e6:9.1f} {seconds:9.1f}", flush=True)


def main(args):
    threads, rounds, megabytes, named, most = len(os.sched_getaffinity(0)), 5, 8, [], 0
    while args and args[0].startswith("--"):
        what, value, args = args[0], args[1], args[2:]
        if what == "--text":
            named.append(value)
            continue
        value = int(value)
        most = value if what == "--memory" else most
        threads, rounds, megabytes = (value if what == "--threads" else threads, value if what == "--rounds" else rounds,
                                      value if what == "--mb" else megabytes)
    # before the package is loaded, which reads both then
    os.environ.update(RAYON_NUM_THREADS=str(threads), TOKENIZERS_PARALLELISM="true" if threads > 1 else "false")
    lines = text_of(megabytes, named)
    if most:
        print(f"bin/ztok, {threads} threads\n{'tokenizer':16} {'MB':>9} {'peak MB':>9} {'seconds':>9}", flush=True)
        for name, (package, make) in kinds().items():
            if name in (args or ["gpt2"]):
                memory(name, package, make, lines, threads, [100, most])
        return
    print(f"{megabytes} MB, {len(lines)} lines, {threads} threads, medians of {rounds} rounds\n"
          f"{'tokenizer':16} {'ids':>9} {'MB/s':>9} {'theirs':>9}", flush=True)
    with tempfile.NamedTemporaryFile() as f:
        f.write("".join(lines).encode())
        f.flush()
        for name, (package, make) in kinds().items():
            if not args or name in args:
                compare(name, package, make, lines, f.name, threads, rounds)


if __name__ == "__main__":
    main(sys.argv[1:])
