"""GPT-2 training steps in PyTorch, as fast as its own means go; for bench/run.

    peer_torch.py --data tokens.bin --dtype fp32|bf16 --rows B --block T --steps N [...]

Prints "step SECONDS" for every step but the first two, "first SECONDS" from the start of
the process to the end of the first one, and "how TEXT". What is tuned: bench/README.md.
The model is GPT-2 as usually written for speed: linear layers, scaled_dot_product_attention,
tanh gelu, tied head over the whole vocabulary, no dropout; AdamW with clipping at norm 1.
"""

import argparse
import os
import sys
import time

STARTED = time.time()
try:  # from when the process was made, not from when Python was ready
    with open("/proc/self/stat", encoding="ascii") as f:
        _ticks = int(f.read().rsplit(")", 1)[1].split()[19])
    with open("/proc/uptime", encoding="ascii") as f:
        _up = float(f.read().split()[0])
    STARTED = time.time() - (_up - _ticks / os.sysconf("SC_CLK_TCK"))
except OSError:
    pass

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.fc_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2)
                   for t in self.attn(self.ln_1(x)).split(D, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(y.transpose(1, 2).reshape(B, T, D))
        return x + self.fc_proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, layers, heads, width, vocab, positions):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(positions, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe.weight[:ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Trainer:
    """One way to run a step: `mode` fp32, autocast or pure; `update` fused or foreach."""

    def __init__(self, args, mode, update):
        torch.manual_seed(1)
        self.mode, self.args = mode, args
        self.model = GPT2(args.layers, args.heads, args.width, args.vocab,
                          max(args.block, args.positions))
        self.masters = list(self.model.parameters())
        self.weights = None
        if mode == "pure":  # bf16 weights and gradients, fp32 masters for the optimizer
            self.masters = [p.detach().clone().requires_grad_() for p in self.masters]
            for p in self.masters:
                p.grad = torch.zeros_like(p)
            self.model.to(torch.bfloat16)
            self.weights = list(self.model.parameters())
        groups = [{"params": [p for p in self.masters if p.dim() > 1], "weight_decay": 0.1},
                  {"params": [p for p in self.masters if p.dim() < 2], "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-4, **{update: True})
        self.loss = torch.compile(self.model) if args.compile else self.model
        self.at = 0
        self.tokens = np.fromfile(args.data, dtype=np.uint8 if args.bytes else np.uint16)
        self.tokens = self.tokens.astype(np.int64)

    def batch(self):
        T, rows = self.args.block, []
        for _ in range(self.args.rows):
            if self.at + T + 1 > len(self.tokens):
                self.at = 0
            rows.append(self.tokens[self.at:self.at + T + 1])
            self.at += T
        ids = torch.from_numpy(np.stack(rows))
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def step(self):
        ids, targets = self.batch()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.mode == "autocast"):
            loss = self.loss(ids, targets)
        loss.backward()
        if self.weights:
            with torch.no_grad():
                torch._foreach_copy_([p.grad for p in self.masters],
                                     [p.grad for p in self.weights])
        torch.nn.utils.clip_grad_norm_(self.masters, 1.0, foreach=True)
        self.optimizer.step()
        if self.weights:
            with torch.no_grad():
                torch._foreach_copy_(self.weights, self.masters)
        self.model.zero_grad(set_to_none=False)  # memory stays where it is
        return loss.item()

    def timed(self, steps):
        times = []
        for _ in range(steps):
            start = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - start)
        return times


def best_way(args):
    """The fastest of the ways this dtype can be run in, by two timed steps of each."""
    found = []
    for mode in ("fp32",) if args.dtype == "fp32" else ("pure", "autocast"):
        for update in ("fused", "foreach"):
            trainer = Trainer(args, mode, update)
            trainer.step()
            found.append((min(trainer.timed(2)), mode, update))
            del trainer
    return min(found)[1:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), required=True)
    parser.add_argument("--way", help="MODE,UPDATE; without it the fastest is looked for")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--bytes", action="store_true", help="the data are text, not uint16")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    for name, default in (("rows", 4), ("block", 64), ("layers", 12), ("heads", 12),
                          ("width", 768), ("vocab", 50257), ("positions", 1024)):
        parser.add_argument("--" + name, type=int, default=default)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    mode, update = args.way.split(",") if args.way else best_way(args)
    print(f"how {mode},{update}", flush=True)
    if args.steps < 1:
        return
    trainer = Trainer(args, mode, update)
    trainer.step()
    print(f"first {time.time() - STARTED:.4f}", flush=True)
    trainer.step()
    for took in trainer.timed(args.steps):
        print(f"step {took:.6f}", flush=True)
    print(f"torch {torch.__version__}")


if __name__ == "__main__":
    sys.exit(main())
