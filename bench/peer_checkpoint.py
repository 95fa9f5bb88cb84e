"""Checkpoints by PyTorch's own means of the tensors that bench/run_checkpoint saves.

    torchrun --nproc_per_node N bench/peer_checkpoint.py --do save|load --kind torch|dcp|async
        --dir DIR [--layers L] [--block POSITIONS]

GPT-2's parameters in fp32 with two moments each, every rank its slice (dim 0). torch: torch.save of
a rank's slices into its file and fsync, torch.load. dcp: torch.distributed.checkpoint of DTensors,
which syncs its files itself; it loads into tensors that are there, on any number of ranks. async:
its async_save, twice, the second one counts. Rank 0 prints "save SECONDS", "load SECONDS",
"stall SECONDS" (until async_save returns), "bytes N": from a barrier before to one behind.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def shapes(layers, positions, width=768, vocab=50257):
    yield "wte", (vocab, width)
    yield "wpe", (positions, width)
    for i in range(layers):
        for name, shape in (("ln_1.weight", (width,)), ("ln_1.bias", (width,)),
                            ("attn.c_attn.weight", (width, 3 * width)),
                            ("attn.c_attn.bias", (3 * width,)),
                            ("attn.c_proj.weight", (width, width)),
                            ("attn.c_proj.bias", (width,)), ("ln_2.weight", (width,)),
                            ("ln_2.bias", (width,)), ("mlp.c_fc.weight", (width, 4 * width)),
                            ("mlp.c_fc.bias", (4 * width,)),
                            ("mlp.c_proj.weight", (4 * width, width)),
                            ("mlp.c_proj.bias", (width,))):
            yield f"h.{i}.{name}", shape
    yield "ln_f.weight", (width,)
    yield "ln_f.bias", (width,)


def state_of(args):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(1)
    state = {}
    for kind in ("weights", "exp_avg", "exp_avg_sq"):
        for name, shape in shapes(args.layers, args.block):
            state[f"{kind}.{name}"] = distribute_tensor(torch.randn(shape), mesh, [Shard(0)],
                                                        src_data_rank=None)
    return state


def file_of(args):
    return os.path.join(args.dir, f"rank{dist.get_rank()}.pt")


def save_torch(args, state):
    os.makedirs(args.dir, exist_ok=True)
    with open(file_of(args), "wb") as f:
        torch.save({k: v.to_local() for k, v in state.items()}, f)
        f.flush()
        os.fsync(f.fileno())


def timed(call):
    dist.barrier()
    start = time.perf_counter()
    call()
    dist.barrier()
    return time.perf_counter() - start


def tell(what, value):
    if dist.get_rank() == 0:
        print(f"{what} {value:.6f}", flush=True)


def save_async(args, state):
    for i in range(2):
        begun = []
        start = time.perf_counter()

        def both():
            future = dcp.async_save(state, checkpoint_id=f"{args.dir}.{i}")
            begun.append(time.perf_counter() - start)
            future.result()

        dist.barrier()
        start = time.perf_counter()
        seconds = timed(both)
    tell("stall", begun[0])
    tell("save", seconds)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--do", required=True, choices=("save", "load"))
    parser.add_argument("--kind", required=True, choices=("torch", "dcp", "async"))
    parser.add_argument("--dir", required=True)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--block", type=int, default=1024)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if args.do == "load" and args.kind == "torch":
        tell("load", timed(lambda: torch.load(file_of(args), weights_only=True, mmap=False)))
    else:
        state = state_of(args)
        if dist.get_rank() == 0:
            print("bytes", sum(v.numel() * 4 for v in state.values()), flush=True)
        if args.kind == "async":
            save_async(args, state)
        elif args.kind == "torch":
            tell("save", timed(lambda: save_torch(args, state)))
        elif args.do == "save":
            tell("save", timed(lambda: dcp.save(state, checkpoint_id=args.dir)))
        else:
            tell("load", timed(lambda: dcp.load(state, checkpoint_id=args.dir)))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
