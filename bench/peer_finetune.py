"""Fine-tuning steps by transformers, as fast as PyTorch goes; for bench/run_finetune.

    peer_finetune.py make MODEL FOLDER                     config and random weights of the true shape
    peer_finetune.py serve MODEL FOLDER --dtype fp32|bf16 --rows B --length T --way WAY,UPDATE

MODEL: bert, deberta, t5, qwen or qwen-lora. `serve` makes two steps, prints "ready LOSS" with the loss of the first,
and then for each empty line that it reads the seconds of one more. A step is forward with dropout, backward, clipping to
norm 1 and AdamW (fused or foreach) on rows that are all of T tokens, with the masks that a data collator gives.
WAY: eager, or compiled by torch.compile. Attention is scaled_dot_product_attention where the model has it; bf16 is
autocast. Threads: OMP_NUM_THREADS.
"""

import argparse
import os
import sys
import time

import torch
from transformers import (AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, BertConfig,
                          DebertaV2Config, Qwen2Config, T5Config)

LABELS = {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}
# bert-base, deberta-v3-base, t5-small, Qwen2.5-0.5B with two of its layers
CONFIGS = {
    "bert": (AutoModelForSequenceClassification, lambda: BertConfig(**LABELS)),
    "deberta": (AutoModelForSequenceClassification, lambda: DebertaV2Config(
        vocab_size=128100, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072,
        max_position_embeddings=512, relative_attention=True, position_buckets=256, norm_rel_ebd="layer_norm",
        share_att_key=True, pos_att_type=["p2c", "c2p"], position_biased_input=False, type_vocab_size=0,
        pooler_hidden_size=768, layer_norm_eps=1e-7, **LABELS)),
    "t5": (AutoModelForSeq2SeqLM, lambda: T5Config(decoder_start_token_id=0)),
    "qwen": (AutoModelForCausalLM, lambda: Qwen2Config(
        vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=2, num_attention_heads=14,
        num_key_value_heads=2, max_position_embeddings=32768, rope_theta=1e6, tie_word_embeddings=True)),
}


def base_of(name):
    return name.removesuffix("-lora")


def make(name, folder):
    kind, config = CONFIGS[base_of(name)]
    torch.manual_seed(0)
    kind.from_config(config()).save_pretrained(folder)


def open_model(name, folder):
    kind, _ = CONFIGS[base_of(name)]
    how = {} if name == "deberta" else {"attn_implementation": "sdpa"}
    try:
        model = kind.from_pretrained(folder, dtype=torch.float32, **how)
    except ValueError:  # older versions have no sdpa for T5
        model = kind.from_pretrained(folder, dtype=torch.float32)
    if name.endswith("-lora"):
        from peft import LoraConfig, get_peft_model
        model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=16, lora_alpha=32,
                                                 target_modules="all-linear"))
    return model.train()


def batch(name, rows, length):
    """Ids below 256, as the bytes and words of the other side are."""
    ids = torch.randint(5, 250, (rows, length))
    fields = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if name == "bert":
        fields["token_type_ids"] = torch.zeros_like(ids)
    if name in ("bert", "deberta"):
        fields["labels"] = torch.randint(0, 2, (rows,))
    else:
        fields["labels"] = torch.randint(5, 250, (rows, length)) if name == "t5" else ids
    return fields


def serve(a):
    way, update = a.way.split(",")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.manual_seed(1)
    model = open_model(a.model, a.folder)
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in trained if p.dim() > 1], "weight_decay": 0.01},
              {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-5, **{update: True})
    run = torch.compile(model) if way == "compiled" else model

    def step():
        fields = batch(a.model, a.rows, a.length)
        with torch.autocast("cpu", torch.bfloat16, enabled=a.dtype == "bf16"):
            loss = run(**fields).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)  # memory stays where it is
        return loss.item()

    first = step()
    step()
    print(f"ready {first:.4f}", flush=True)
    for line in sys.stdin:
        if line.strip():
            break
        start = time.perf_counter()
        step()
        print(f"{time.perf_counter() - start:.6f}", flush=True)


p = argparse.ArgumentParser()
p.add_argument("what", choices=["make", "serve"])
p.add_argument("model", choices=[*CONFIGS, "qwen-lora"])
p.add_argument("folder")
p.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
p.add_argument("--way", default="eager,fused")
p.add_argument("--rows", type=int, default=8)
p.add_argument("--length", type=int, default=128)
args = p.parse_args()
make(args.model, args.folder) if args.what == "make" else serve(args)
