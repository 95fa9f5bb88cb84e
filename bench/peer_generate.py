"""Greedy text by `generate` of transformers; for bench/run_generate.

    peer_generate.py make FOLDER                     GPT-2 124M with random weights
    peer_generate.py serve FOLDER --dtype fp32|bf16 --rows B --prompt N --tokens N [--ways "WAY ..."]

`serve` tries the ways of --ways (eager: with its cache; compiled: a static cache and a compiled forward; both without
it), prints "how WAY" of the faster one, and then for each line that it reads tokens/s of one more call of
generate: the tokens of all rows over the time of the call, prompts included. Threads: OMP_NUM_THREADS.
"""

import argparse
import os
import sys
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def make(folder):
    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config(bos_token_id=50256, eos_token_id=50256)).save_pretrained(folder)


def write(model, a, **how):
    """Tokens/s of one call."""
    ids = torch.arange(a.rows * a.prompt).reshape(a.rows, a.prompt) * 37 % 50000
    start = time.perf_counter()
    with torch.inference_mode():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, use_cache=True,
                             max_new_tokens=a.tokens, min_new_tokens=a.tokens, pad_token_id=0, **how)
    took = time.perf_counter() - start
    assert out.shape == (a.rows, a.prompt + a.tokens)
    return a.rows * a.tokens / took


def serve(a):
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[a.dtype]
    model = GPT2LMHeadModel.from_pretrained(a.folder, dtype=dtype, attn_implementation="sdpa").eval()
    plain, ways = model.forward, []
    for name, compiled, how in (("eager", False, {}), ("compiled", True, {"cache_implementation": "static"})):
        if name not in a.ways.split():
            continue
        model.forward = torch.compile(plain) if compiled else plain
        try:
            write(model, a, **how)  # whatever is made at the first call
            ways.append((max(write(model, a, **how) for _ in range(2)), name, model.forward, how))
        except Exception as e:  # pylint: disable=broad-except
            print(f"{name}: {str(e).splitlines()[0]}", file=sys.stderr)
    _, name, model.forward, how = max(ways, key=lambda way: way[0])
    print("how", name, flush=True)
    for _ in sys.stdin:
        print(f"{write(model, a, **how):.2f}", flush=True)


p = argparse.ArgumentParser()
p.add_argument("what", choices=["make", "serve"])
p.add_argument("folder")
p.add_argument("--dtype", default="fp32")
p.add_argument("--ways", default="eager compiled")
for option in ("rows", "prompt", "tokens"):
    p.add_argument("--" + option, type=int, default=1)
args = p.parse_args()
make(args.folder) if args.what == "make" else serve(args)
