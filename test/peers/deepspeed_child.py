"""DeepSpeed's side of check_deepspeed.py: a tiny GPT-2 on its CPU accelerator, one process a rank.

torchrun --nproc_per_node 2 deepspeed_child.py JOB.json     losses go to JOB.json.out"""

import json
import os
import sys

os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed
import numpy as np
import torch
from transformers import GPT2LMHeadModel

job = json.load(open(sys.argv[1]))
torch.set_num_threads(1)
model = GPT2LMHeadModel.from_pretrained(job["model"]).train()
config = {
    "train_micro_batch_size_per_gpu": job["rows"] // 2,
    "zero_optimization": {"stage": job["stage"], "stage3_param_persistence_threshold": 0},
    "optimizer": {"type": "AdamW", "params": {"lr": job["lr"], "weight_decay": 0.0, "torch_adam": True}},
    "gradient_clipping": 1.0,
    "steps_per_print": 10**6,
}
if job.get("bf16"):
    config["bf16"] = {"enabled": True}
if job.get("universal"):
    config["checkpoint"] = {"load_universal": True}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
if job.get("universal"):
    engine.load_checkpoint(job["universal"])

width = job["width"]
tokens = np.fromfile(job["tokens"], dtype=np.uint16).astype(np.int64)
rows = range(engine.global_rank, job["rows"], 2)
x = torch.tensor(np.stack([tokens[r * width:(r + 1) * width] for r in rows]))
y = torch.tensor(np.stack([tokens[r * width + 1:(r + 1) * width + 1] for r in rows]))
losses = []
for step in range(job["steps"]):
    if step == job.get("save_after"):
        engine.save_checkpoint(job["save"])
    logits = engine(x).logits
    loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), y.flatten())
    engine.backward(loss)
    engine.step()
    mean = loss.detach().clone()
    torch.distributed.all_reduce(mean)
    losses.append(mean.item() / 2)
if engine.global_rank == 0:
    json.dump(losses, open(sys.argv[1] + ".out", "w"))
