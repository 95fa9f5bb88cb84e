"""A file written and read by DeepSpeed's asynchronous I/O (deepspeed.ops.aio); for bench/run_offload.

    peer_files.py DIR MIB BLOCK DEPTH THREADS PASSES     prints "READ WRITE", GB/s, each the fastest pass

The extension is built at the first call (g++, libaio-dev). Memory: huge pages, aligned.
"""

import mmap
import os
import sys
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import torch  # noqa: E402
from deepspeed.ops.op_builder import AsyncIOBuilder  # noqa: E402

where, (mib, block, depth, threads, passes) = sys.argv[1], map(int, sys.argv[2:7])
size, path = mib << 20, os.path.join(where, "deepspeed")
handle = AsyncIOBuilder().load(verbose=False).aio_handle(block, depth, False, True, threads)
memory = mmap.mmap(-1, size + (2 << 20))
memory.madvise(mmap.MADV_HUGEPAGE)
data = torch.frombuffer(memory, dtype=torch.uint8)
at = -data.data_ptr() % (2 << 20)
data = data[at:at + size].fill_(1)


def move(call):
    start = time.perf_counter()
    call(data, path, 0)
    return size / (time.perf_counter() - start) / 1e9


move(handle.sync_pwrite)  # a file that was written before
write = max(move(handle.sync_pwrite) for _ in range(passes))
read = max(move(handle.sync_pread) for _ in range(passes))
print(f"{read:.4f} {write:.4f}")
