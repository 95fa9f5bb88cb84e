"""The other side: models of transformers, trained by a few lines of PyTorch."""

import os

import numpy as np
import torch
from transformers import (GemmaConfig, GemmaForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig,
                          LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)
from transformers.utils import logging

logging.disable_progress_bar()
torch.set_num_threads(os.cpu_count())
torch.use_deterministic_algorithms(True, warn_only=True)


def randomize(model, spread):
    """Random weights, also where transformers would put zeros and ones."""
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 1:
                p.add_(torch.randn_like(p) * 0.1)
            else:
                p.normal_(0, spread)
    return model


def make_model(seed=0, spread=0.08, **sizes):
    torch.manual_seed(seed)
    config = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0,
                        eos_token_id=0, attn_implementation="eager", **sizes)
    return randomize(GPT2LMHeadModel(config).float().eval(), spread)


def make_llama(kind, seed=0, spread=0.08, **config):
    """`kind`: the model_type of config.json."""
    torch.manual_seed(seed)
    how, model = {"llama": (LlamaConfig, LlamaForCausalLM),
                  "mistral": (MistralConfig, MistralForCausalLM),
                  "qwen2": (Qwen2Config, Qwen2ForCausalLM),
                  "qwen3": (Qwen3Config, Qwen3ForCausalLM),
                  "gemma": (GemmaConfig, GemmaForCausalLM)}[kind]
    # a padding token would have no gradient of its row
    config = how(bos_token_id=0, eos_token_id=0, pad_token_id=None, attn_implementation="eager",
                 **config)
    return randomize(model(config).float().eval(), spread)


def make_stream(seed, vocab, n):
    """Tokens that can be learnt: each often follows from the one before."""
    rng = np.random.default_rng(seed)
    follow = rng.integers(0, vocab, size=vocab)
    out = np.empty(n, dtype=np.int64)
    out[0] = vocab - 1  # the largest id occurs: it says the vocabulary of the file
    for i in range(1, n):
        out[i] = follow[out[i - 1]] if rng.random() < 0.6 else int(vocab * rng.random() ** 2)
    return out


def probe(model, tokens, targets):
    """Loss, logits and gradients of one batch, named as the probe names them."""
    model.zero_grad()
    ids, want = torch.from_numpy(tokens).long(), torch.from_numpy(targets).long()
    logits = model(ids).logits
    loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), want.flatten(),
                                             ignore_index=-100)
    loss.backward()
    out = {"loss": loss.detach().reshape(1), "logits": logits.detach()}
    for name, p in model.named_parameters():
        if p.grad is not None:
            out["grad." + name] = p.grad
    return {k: v.float().numpy() for k, v in out.items()}


def train(model, batches, steps, lr, weight_decay, warmup, clip, betas=(0.9, 0.999), eps=1e-8):
    """AdamW, linear warm-up and decay, clipping; decay on matrices and embeddings alone.

    Returns (loss, grad_norm, lr) of every step.
    """
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2],
               "weight_decay": weight_decay},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=betas, eps=eps)
    curve = []
    for k, (tokens, targets) in enumerate(batches):
        rate = lr * (k / warmup if k < warmup else (steps - k) / max(1, steps - warmup))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        logits = model(torch.from_numpy(tokens)).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1),
                                                 torch.from_numpy(targets).flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        curve.append((loss.item(), float(norm), rate))
    return curve


def greedy(model, prompt, count):
    """The likeliest continuation, and by how much the closest choice was won."""
    ids = torch.tensor([prompt])
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count,
                             min_new_tokens=count, do_sample=False, use_cache=True,
                             pad_token_id=0, eos_token_id=None)
        top = model(out).logits[0, len(prompt) - 1:-1].topk(2).values
    return out[0].tolist(), float((top[:, 0] - top[:, 1]).min())
