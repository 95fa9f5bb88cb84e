"""Training steps of GPT-2 and of Llama or Qwen2 in PyTorch on a GPU; for bench/run_gpu and test/gpu.

    peer_torch_gpu.py speed --kind gpt2|llama --rows G --block T --steps N [sizes] [...]
    peer_torch_gpu.py curve --weights model.safetensors --rows G --block T --steps N [sizes]

A step is forward, backward, clipping to norm 1 and AdamW (fused) on G rows, in bf16:
  autocast  fp32 weights under torch.autocast
  pure      bf16 weights and gradients, fp32 masters that AdamW works on
`speed` times eager execution in both ways, then with the faster one torch.compile, layer by
layer and as a whole. A micro-batch is the largest divisor of G that fits. One JSON object a
line, printed as soon as it is known; `--seconds` is when nothing new is begun.
`curve` prints "MODE STEP LOSS" of GPT-2 that starts from these weights and learns the same G
rows in each step, in fp32 and in both ways above.
"""

import argparse
import gc
import json
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

STARTED = time.perf_counter()


# ---- models: linear layers, scaled_dot_product_attention, head over the whole vocabulary ----

def attend(q, k, v):
    """(B, T, H or K, h) each; query heads share key heads."""
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                       enable_gqa=q.shape[1] != k.shape[1])
    return y.transpose(1, 2).flatten(2)


class GPT2Layer(nn.Module):
    def __init__(self, a):
        super().__init__()
        D = a.width
        self.heads = a.heads
        self.ln_1, self.ln_2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.attn, self.attn_proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.fc, self.fc_proj = nn.Linear(D, a.inner), nn.Linear(a.inner, D)

    def forward(self, x):
        q, k, v = (t.unflatten(2, (self.heads, -1)) for t in self.attn(self.ln_1(x)).chunk(3, 2))
        x = x + self.attn_proj(attend(q, k, v))
        return x + self.fc_proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), 1e-6)


class LlamaLayer(nn.Module):
    def __init__(self, a):
        super().__init__()
        D, h = a.width, a.width // a.heads
        self.head = h
        self.norm_1, self.norm_2 = RMSNorm(D), RMSNorm(D)
        self.q, self.o = nn.Linear(D, D, bias=a.qkv_bias), nn.Linear(D, D, bias=False)
        self.k = nn.Linear(D, a.kv_heads * h, bias=a.qkv_bias)
        self.v = nn.Linear(D, a.kv_heads * h, bias=a.qkv_bias)
        self.gate, self.up = nn.Linear(D, a.inner, bias=False), nn.Linear(D, a.inner, bias=False)
        self.down = nn.Linear(a.inner, D, bias=False)

    def turn(self, x, cos, sin):
        a, b = x.unflatten(2, (-1, self.head)).chunk(2, 3)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), 3).to(x.dtype)

    def forward(self, x, cos, sin):
        n = self.norm_1(x)
        q, k = self.turn(self.q(n), cos, sin), self.turn(self.k(n), cos, sin)
        x = x + self.o(attend(q, k, self.v(n).unflatten(2, (-1, self.head))))
        n = self.norm_2(x)
        return x + self.down(F.silu(self.gate(n)) * self.up(n))


class Head(nn.Module):
    """The last norm, logits by the tied embedding, mean loss in fp32."""

    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x, weight, targets):
        logits = F.linear(self.norm(x), weight.to(x.dtype))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Model(nn.Module):
    def __init__(self, a):
        super().__init__()
        gpt2 = a.kind == "gpt2"
        self.wte = nn.Embedding(a.vocab, a.width)
        self.wpe = nn.Embedding(max(a.block, a.positions), a.width) if gpt2 else None
        self.layers = nn.ModuleList((GPT2Layer if gpt2 else LlamaLayer)(a) for _ in range(a.layers))
        self.head = Head(nn.LayerNorm(a.width) if gpt2 else RMSNorm(a.width))
        if not gpt2:
            h = a.width // a.heads
            turns = torch.outer(torch.arange(a.block), 1e6 ** (-torch.arange(0, h, 2) / h))
            self.register_buffer("cos", turns.cos()[:, None])  # (T, 1, h / 2)
            self.register_buffer("sin", turns.sin()[:, None])
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, ids, targets):
        x = self.wte(ids)
        if self.wpe is not None:
            x = x + self.wpe.weight[:ids.shape[1]]
        if torch.is_autocast_enabled(ids.device.type):
            x = x.to(torch.bfloat16)  # and so is what the layers add to
        more = () if self.wpe is not None else (self.cos.to(x.dtype), self.sin.to(x.dtype))
        for layer in self.layers:
            x = layer(x, *more)
        return self.head(x, self.wte.weight, targets)


def load(model, path):
    """GPT-2's weights from a file with Hugging Face's names; its matrices are (in, out)."""
    names = {"attn.weight": "attn.c_attn.weight", "attn.bias": "attn.c_attn.bias",
             "attn_proj": "attn.c_proj", "fc.": "mlp.c_fc.", "fc_proj": "mlp.c_proj"}
    with open(path, "rb") as f:
        table = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        at = f.tell()
    data = np.memmap(path, np.uint8, "r", at)
    with torch.no_grad():
        for name, p in model.named_parameters():
            key = name.replace("layers.", "h.").replace("head.norm", "ln_f")
            for mine, other in names.items():
                key = key.replace("." + mine, "." + other)
            entry = table["transformer." + key]
            if entry["dtype"] != "F32":
                raise SystemExit(f"{path}: {key} is {entry['dtype']}, not F32")
            begin, end = entry["data_offsets"]
            value = torch.from_numpy(np.array(data[begin:end]).view(np.float32))
            value = value.reshape(entry["shape"])
            p.copy_(value.T if ".h." in "." + key and p.dim() > 1 else value)


# ---- a step ----

class Trainer:
    def __init__(self, a, mode, how, rows, weights=None):
        torch.manual_seed(1)
        self.a, self.mode, self.rows = a, mode, rows
        with torch.device(a.device):
            self.model = Model(a)
        if weights:
            load(self.model, weights)
        self.masters, self.weights = list(self.model.parameters()), None
        if mode == "pure":
            self.masters = [p.detach().clone().requires_grad_() for p in self.masters]
            for p in self.masters:
                p.grad = torch.zeros_like(p)
            self.model.to(torch.bfloat16)
            self.weights = list(self.model.parameters())
        groups = [{"params": [p for p in self.masters if p.dim() > 1], "weight_decay": 0.1},
                  {"params": [p for p in self.masters if p.dim() < 2], "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=a.learning_rate, fused=True)
        if how == "whole":
            self.model.compile(dynamic=False)
        elif how == "layers":
            for part in (*self.model.layers, self.model.head):
                part.compile(dynamic=False)
        # all rows of a step, on the device from the start
        tokens = np.fromfile(a.data, np.uint16, a.rows * a.block + 1).astype(np.int64)
        tokens = torch.from_numpy(tokens).to(a.device)
        self.ids, self.targets = (tokens[i:i + a.rows * a.block].view(a.rows, a.block)
                                  for i in (0, 1))

    def step(self):
        """Queues a step; returns its mean loss, still on the device."""
        total = 0
        for i in range(0, self.a.rows, self.rows):
            with torch.autocast(self.a.device, torch.bfloat16, enabled=self.mode == "autocast"):
                loss = self.model(self.ids[i:i + self.rows], self.targets[i:i + self.rows])
            loss = loss * (self.rows / self.a.rows)
            loss.backward()
            total += loss.detach()
        if self.weights:
            with torch.no_grad():
                torch._foreach_copy_([p.grad for p in self.masters], [p.grad for p in self.weights])
        torch.nn.utils.clip_grad_norm_(self.masters, 1.0, foreach=True)
        self.optimizer.step()
        if self.weights:
            with torch.no_grad():
                torch._foreach_copy_(self.weights, self.masters)
            self.model.zero_grad()
        else:
            self.optimizer.zero_grad()
        return total

    def timed(self, steps):
        """Seconds of each step; nobody waits for the device in between."""
        if self.a.device == "cpu":
            at = [time.perf_counter()]
            for _ in range(steps):
                self.step()
                at.append(time.perf_counter())
            return [b - a for a, b in zip(at, at[1:])]
        events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
        events[0].record()
        for event in events[1:]:
            self.step()
            event.record()
        torch.cuda.synchronize()
        return [a.elapsed_time(b) / 1e3 for a, b in zip(events, events[1:])]


# ---- speed ----

def forget(device):
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def measure(a, mode, how, most):
    """A line for the largest micro-batch of at most `most` rows that fits; None: none does."""
    for rows in (r for r in range(most, 0, -1) if a.rows % r == 0):
        trainer = None
        forget(a.device)
        try:
            began = time.perf_counter()
            trainer = Trainer(a, mode, how, rows)
            loss = trainer.step().item()
            first = time.perf_counter() - began
            trainer.timed(2)
            took = trainer.timed(a.steps)
        except torch.OutOfMemoryError:
            continue
        peak = torch.cuda.max_memory_allocated() if a.device == "cuda" else 0
        print(json.dumps({"how": how, "mode": mode, "rows": rows, "first_s": round(first, 2),
                          "loss": loss, "peak_bytes": peak, "steps": took,
                          "torch": torch.__version__}), flush=True)
        return {"took": sorted(took)[len(took) // 2], "mode": mode, "rows": rows}
    print(f"{mode}, {how}: not even one row fits", file=sys.stderr)
    return None


def speed(a):
    late = lambda: time.perf_counter() - STARTED > a.seconds  # noqa: E731
    found = [measure(a, mode, "eager", a.rows) for mode in ("pure", "autocast") if not late()]
    found = [f for f in found if f]
    best = min(found, key=lambda f: f["took"]) if found else {"mode": "pure", "rows": a.rows}
    for how in a.compile:
        if not late():
            measure(a, best["mode"], how, best["rows"])
            torch._dynamo.reset()


# ---- curves ----

def curve(a):
    for mode in ("fp32", "autocast", "pure"):
        forget(a.device)
        trainer = Trainer(a, mode, "eager", a.rows, a.weights)
        losses = [trainer.step() for _ in range(a.steps)]
        for i, loss in enumerate(losses):
            print(f"{mode} {i + 1} {loss.item():.9g}", flush=True)
        del trainer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=("speed", "curve"))
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--data", required=True, help="tokens, uint16")
    parser.add_argument("--kind", default="gpt2", choices=("gpt2", "llama"))
    parser.add_argument("--qkv_bias", action="store_true")
    parser.add_argument("--weights")
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--compile", nargs="*", default=[], choices=("layers", "whole"))
    parser.add_argument("--seconds", type=float, default=1e9)
    for name, default in (("rows", None), ("block", None), ("steps", None), ("layers", 12),
                          ("heads", 12), ("kv_heads", 12), ("width", 768), ("inner", 3072),
                          ("vocab", 50257), ("positions", 1024)):
        parser.add_argument("--" + name, type=int, default=default, required=default is None)
    a = parser.parse_args()
    if a.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("PyTorch sees no GPU")
    speed(a) if a.task == "speed" else curve(a)


if __name__ == "__main__":
    main()
