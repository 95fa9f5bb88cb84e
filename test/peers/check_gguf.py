"""GGUF files of ours, read by the gguf package: every tensor against what that package makes of the same weights."""

import os

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, quants
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

import ours
import theirs
from checks import check

GPT2 = {"token_embd": "wte", "position_embd": "wpe", "output_norm": "ln_f", "attn_norm": "ln_1",
        "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_norm": "ln_2", "ffn_up": "mlp.c_fc",
        "ffn_down": "mlp.c_proj"}
LLAMA = {"token_embd": "embed_tokens", "output_norm": "norm", "output": "lm_head", "attn_norm": "input_layernorm",
         "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
         "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def source_name(name, table, layers):
    parts = name.split(".")
    if parts[0] != "blk":
        return table[parts[0]] + "." + parts[1]
    return f"{layers}.{parts[1]}.{table[parts[2]]}.{parts[3]}"


def pairs(w, heads):
    """Rows of halves as adjacent pairs."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def wanted(model, name, weights):
    if model == "gpt2":
        key = source_name(name, GPT2, "h")
        w = weights[key]
        return w.T if w.ndim == 2 and key.startswith("h.") else w
    key = source_name(name, LLAMA, "layers")
    w = weights[key]
    return pairs(w, 4) if ".q_proj." in key else pairs(w, 2) if ".k_proj." in key else w


def encode(w, kind):
    w = np.ascontiguousarray(w)
    if kind == GGMLQuantizationType.F32:
        return w
    return w.astype(np.float16) if kind == GGMLQuantizationType.F16 else quants.quantize(w, kind)


def same_tensors(folder, model, path):
    weights = {n.removeprefix("transformer.").removeprefix("model."): t.float().numpy()
               for n, t in load_file(path + "/model.safetensors").items()}
    count = 0
    for dtype in ("f32", "f16", "bf16", "q8_0"):
        out = os.path.join(folder, dtype + ".gguf")
        ours._run([os.path.join(ours.BIN, "zckpt"), "convert", path, out, "--dtype", dtype])
        for t in GGUFReader(out).tensors:
            if t.name == "rope_freqs.weight":
                continue
            w = wanted(model, t.name, weights)
            reference = encode(w, t.tensor_type)
            if tuple(reversed([int(n) for n in t.shape])) != w.shape or \
                    np.ascontiguousarray(t.data).view(np.uint8).tobytes() != reference.view(np.uint8).tobytes():
                raise AssertionError(f"{dtype}: {t.name} differs")
            count += 1
    return f"{count} tensors"


@check
def gguf_of_gpt2_has_the_bytes_of_the_gguf_package(folder):
    path = os.path.join(folder, "model")
    theirs.make_model(seed=3, n_layer=2, n_head=2, n_embd=64, vocab_size=97, n_positions=40).save_pretrained(path)
    return same_tensors(folder, "gpt2", path)


@check
def gguf_of_llama_has_the_bytes_of_the_gguf_package(folder):
    path = os.path.join(folder, "model")
    LlamaForCausalLM(LlamaConfig(vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                                 num_attention_heads=4, num_key_value_heads=2,
                                 max_position_embeddings=64)).save_pretrained(path)
    return same_tensors(folder, "llama", path)
