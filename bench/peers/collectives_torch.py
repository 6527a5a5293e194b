"""torch.distributed's side of bench/collectives.py: RANKS processes over Gloo, with the same
commands on standard input.
"""
import json
import os
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

OPS = ["end", "all_reduce", "all_gather", "reduce_scatter"]


def operation(op, count, size):
    whole = torch.ones(count)
    if op == "all_reduce":
        return lambda: dist.all_reduce(whole)
    each = torch.ones(count // size)
    if op == "all_gather":
        return lambda: dist.all_gather_into_tensor(whole, each)
    return lambda: dist.reduce_scatter_tensor(each, whole)


def answer(value):
    os.write(4, (json.dumps(value) + "\n").encode())


def run_rank(rank, size, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=size)
    commands = os.fdopen(3, closefd=False) if rank == 0 else None
    if rank == 0:
        answer({"ready": True})
    while True:
        command = torch.zeros(3, dtype=torch.int64)
        if rank == 0:
            words = commands.readline().split()
            if words:
                command = torch.tensor([OPS.index(words[0]), int(words[1]), int(words[2])])
        dist.broadcast(command, 0)
        op, count, repeats = command.tolist()
        if op == 0:
            return
        once = operation(OPS[op], count // 4, size)
        once()
        dist.barrier()
        start = time.monotonic()
        for _ in range(repeats):
            once()
        times = [None] * size
        dist.all_gather_object(times, (start, time.monotonic()))
        if rank == 0:
            seconds = max(end for _, end in times) - min(begin for begin, _ in times)
            answer({"seconds": seconds / repeats})


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    # multiprocessing gives children another standard input; Gloo prints on standard output.
    os.dup2(0, 3)
    os.dup2(1, 4)
    os.dup2(2, 1)
    SIZE = int(sys.argv[1])
    mp.start_processes(run_rank, (SIZE, free_port()), SIZE, start_method="fork")
