"""Greedy text by `generate` of transformers; for bench/run_generate.

    peer_generate.py make FOLDER                   GPT-2 124M with random weights
    peer_generate.py run FOLDER --dtype fp32|bf16 --rows B --prompt N --tokens N --rounds N

`run` prints tokens/s of each round but the first: the tokens of all rows over the time of one call
of generate, with its cache, prompts included. Threads: OMP_NUM_THREADS.
"""

import argparse
import os
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def make(folder):
    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config(bos_token_id=50256, eos_token_id=50256)).save_pretrained(folder)


def run(a):
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[a.dtype]
    model = GPT2LMHeadModel.from_pretrained(a.folder, dtype=dtype).eval()
    ids = torch.arange(a.rows * a.prompt).reshape(a.rows, a.prompt) * 37 % 50000
    for i in range(a.rounds + 1):
        start = time.perf_counter()
        with torch.inference_mode():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, use_cache=True,
                                 max_new_tokens=a.tokens, min_new_tokens=a.tokens, pad_token_id=0)
        took = time.perf_counter() - start
        assert out.shape == (a.rows, a.prompt + a.tokens)
        if i:
            print(f"{a.rows * a.tokens / took:.2f}", flush=True)


p = argparse.ArgumentParser()
p.add_argument("what", choices=["make", "run"])
p.add_argument("folder")
p.add_argument("--dtype", default="fp32")
for name in ("rows", "prompt", "tokens", "rounds"):
    p.add_argument("--" + name, type=int, default=1)
args = p.parse_args()
make(args.folder) if args.what == "make" else run(args)
