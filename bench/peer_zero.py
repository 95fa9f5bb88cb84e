"""The same GPT-2 steps on several ranks with PyTorch's and DeepSpeed's data parallelism; for
bench/run_zero and bench/run_offload.

    torchrun --nproc_per_node 2 bench/peer_zero.py --kind ddp|zero1|fsdp|ds1|ds2|ds3
        --data tokens.bin --dtype fp32|bf16 --rows B --block T --steps N
        [--offload optimizer|all --nvme DIR]

Rank 0 prints "step SECONDS" for every step but the first two. gloo carries the collectives.
ddp: DistributedDataParallel. zero1: ZeroRedundancyOptimizer over it. fsdp: FULL_SHARD, a unit
a layer. ds1 to ds3: DeepSpeed's ZeRO stages with torch's AdamW. --offload, of ds3: ZeRO-Infinity, the
optimizer's state (and weights) in files in DIR, both pipelines, DeepSpeed's CPU Adam.
bf16: autocast over fp32 weights for ddp and zero1, FSDP's mixed precision, DeepSpeed's bf16.
"""

import argparse
import functools
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peer_torch import GPT2, Layer, Trainer  # noqa: E402


def groups(model):
    params = list(model.parameters())
    return [{"params": [p for p in params if p.dim() > 1], "weight_decay": 0.1},
            {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0}]


class Ours:
    """One rank; batch() is peer_torch's, from this rank's part of the data."""

    batch = Trainer.batch

    def __init__(self, args):
        import numpy as np

        self.args = args
        rank = dist.get_rank()
        torch.manual_seed(1)
        self.model = GPT2(args.layers, args.heads, args.width, args.vocab, args.positions)
        self.tokens = np.fromfile(args.data, dtype=np.uint16).astype(np.int64)
        self.at = rank * args.rows * args.block
        self.engine = None
        getattr(self, args.kind.rstrip("123") if args.kind.startswith("ds") else args.kind)()

    def ddp(self):
        self.loss = DDP(self.model, gradient_as_bucket_view=True)
        self.optimizer = torch.optim.AdamW(groups(self.model), lr=1e-4, fused=True)

    def zero1(self):
        from torch.distributed.optim import ZeroRedundancyOptimizer

        self.loss = DDP(self.model, gradient_as_bucket_view=True)
        self.optimizer = ZeroRedundancyOptimizer(self.model.parameters(), torch.optim.AdamW,
                                                 lr=1e-4, fused=True)

    def fsdp(self):
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision
        from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

        mixed = MixedPrecision(torch.bfloat16, torch.bfloat16) if self.args.dtype == "bf16" else None
        self.loss = FSDP(self.model, device_id=torch.device("cpu"), mixed_precision=mixed,
                         use_orig_params=True,
                         auto_wrap_policy=functools.partial(transformer_auto_wrap_policy,
                                                            transformer_layer_cls={Layer}))
        self.optimizer = torch.optim.AdamW(self.loss.parameters(), lr=1e-4, foreach=True)

    def ds(self):
        import deepspeed

        stage = int(self.args.kind[2])
        config = {"train_micro_batch_size_per_gpu": self.args.rows, "gradient_clipping": 1.0,
                  "zero_optimization": {"stage": stage},
                  "zero_allow_untested_optimizer": True,
                  "bf16": {"enabled": self.args.dtype == "bf16"}}
        if self.args.offload:
            config.update(self.infinity(config["zero_optimization"]))
            self.engine, _, _, _ = deepspeed.initialize(
                model=self.model, model_parameters=groups(self.model), config=config)
            return
        optimizer = torch.optim.AdamW(groups(self.model), lr=1e-4, foreach=True)
        self.engine, _, _, _ = deepspeed.initialize(model=self.model, optimizer=optimizer,
                                                    config=config)

    def infinity(self, zero):
        files = {"device": "nvme", "nvme_path": self.args.nvme, "pin_memory": True}
        zero.update(offload_optimizer=dict(files, buffer_count=12, pipeline_read=True,
                                           pipeline_write=True),
                    sub_group_size=20_000_000, stage3_param_persistence_threshold=0)
        if self.args.offload == "all":
            zero["offload_param"] = dict(files, buffer_count=8, buffer_size=40_000_000)
        return {"zero_optimization": zero,
                "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}},
                "aio": {"block_size": 1 << 20, "queue_depth": 16, "thread_count": 1,
                        "single_submit": False, "overlap_events": True}}

    def step(self):
        ids, targets = self.batch()
        if self.engine:
            loss = self.engine(ids, targets)
            self.engine.backward(loss)
            self.engine.step()
            return
        auto = self.args.dtype == "bf16" and self.args.kind != "fsdp"
        with torch.autocast("cpu", torch.bfloat16, enabled=auto):
            loss = self.loss(ids, targets)
        loss.backward()
        if self.args.kind == "fsdp":
            self.loss.clip_grad_norm_(1.0)
        else:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=self.args.kind == "fsdp")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", required=True,
                        choices=("ddp", "zero1", "fsdp", "ds1", "ds2", "ds3"))
    parser.add_argument("--data", required=True)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--offload", choices=("optimizer", "all"))
    parser.add_argument("--nvme")
    parser.add_argument("--local_rank", type=int, default=0)
    for name, default in (("rows", 4), ("block", 512), ("layers", 12), ("heads", 12),
                          ("width", 768), ("vocab", 50257), ("positions", 1024),
                          ("threads", 1)):
        parser.add_argument("--" + name, type=int, default=default)
    args = parser.parse_args()
    args.bytes = False
    torch.set_num_threads(args.threads)
    dist.init_process_group("gloo")
    rank = Ours(args)
    for i in range(args.steps + 2):
        start = time.perf_counter()
        rank.step()
        took = time.perf_counter() - start
        if i >= 2 and dist.get_rank() == 0:
            print(f"step {took:.6f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
