"""The collectives of bench_comm by torch.distributed over gloo, for bench/run_comm.

    python comm_gloo.py [ranks] [largest MiB] [rounds]

fp32, one core and one thread a rank. Prints `collective bytes GB/s`: bytes of the whole
vector over the time of one call, from the first rank's start to the last one's end of a
short batch of calls; the best batch. A collective that gloo lacks is left out.
"""

import os
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

BATCH_S = 0.002
CELL_S = 1.0
SIZES_KIB = (64, 256, 1024, 4096, 25600, 102400, 262144)


def all_reduce(whole, mine):
    dist.all_reduce(whole)


def reduce_scatter(whole, mine):
    dist.reduce_scatter_tensor(mine, whole)


def all_gather(whole, mine):
    dist.all_gather_into_tensor(whole, mine)


def batch(call, whole, mine, reps):
    """Seconds of one of `reps` calls."""
    whole.zero_()
    mine.zero_()
    call(whole, mine)
    dist.barrier()
    dist.barrier()
    start = time.monotonic_ns()
    for _ in range(reps):
        call(whole, mine)
    end = time.monotonic_ns()
    span = torch.tensor([-start, end], dtype=torch.int64)
    dist.all_reduce(span, op=dist.ReduceOp.MAX)
    return int(span[0] + span[1]) * 1e-9 / reps


def best_of(call, whole, mine, rounds):
    best = batch(call, whole, mine, 2)
    reps = max(1, min(2000, int(BATCH_S / best)))
    spent = 0.0
    for i in range(rounds):
        if i >= 5 and spent >= CELL_S:
            break
        s = batch(call, whole, mine, reps)
        best = min(best, s)
        spent += s * reps
    return best


def run(rank, world, port, largest, rounds):
    os.sched_setaffinity(0, {rank % os.cpu_count()})
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    for kib in SIZES_KIB:
        if kib << 10 > largest:
            break
        piece = (kib << 10) // 4 // world
        whole, mine = torch.zeros(piece * world), torch.zeros(piece)
        for call in (all_reduce, reduce_scatter, all_gather):
            try:
                s = best_of(call, whole, mine, rounds)
            except RuntimeError as e:
                print(f"comm_gloo: {call.__name__}: {e}", file=sys.stderr)
                continue
            if rank == 0:
                print(f"{call.__name__} {kib << 10} {whole.nbytes * 1e-9 / s:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    args = [int(a) for a in sys.argv[1:]]
    ranks, mib, times = (args + [2, 256, 50][len(args) :])[:3]
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        free = s.getsockname()[1]
    mp.spawn(run, (ranks, free, mib << 20, times), nprocs=ranks)
