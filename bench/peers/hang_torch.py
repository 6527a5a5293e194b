#!/usr/bin/env python3
"""A rank of a small data-parallel job of PyTorch over Gloo that skips a collective on order, as
bench/faults/faulty_trainer.cc does. bench/faults_torch.py runs it under torchrun.

In the folder FAULT_ORDERS rank N writes ready.N (its pid) after some steps, and done.<number>.N
(nanoseconds) when it carries out order.json. FAULT_PACE: seconds of a step in addition to its
computation. FAULT_TIMEOUT: timeout of collectives in seconds; empty: the default.
"""
import datetime
import json
import os
import pathlib
import time

import torch
import torch.distributed as dist

WARM_STEPS = 12


class Orders:
    def __init__(self, folder, rank):
        self.folder, self.rank, self.last = folder, rank, 0

    def skips_next(self):
        """Returns whether this rank is ordered to skip the next collective."""
        try:
            order = json.loads((self.folder / "order.json").read_text())
        except FileNotFoundError:
            return False
        if order["number"] == self.last:
            return False
        self.last = order["number"]
        is_ordered = any(fault["rank"] == self.rank for fault in order["faults"])
        if is_ordered:
            done = self.folder / f"done.{self.last}.{self.rank}"
            new = done.with_name(done.name + ".new")
            new.write_text(str(time.time_ns()))
            new.rename(done)
        return is_ordered


def main():
    torch.set_num_threads(1)
    seconds = os.environ.get("FAULT_TIMEOUT")
    timeout = {"timeout": datetime.timedelta(seconds=float(seconds))} if seconds else {}
    dist.init_process_group("gloo", **timeout)
    rank = dist.get_rank()
    folder = pathlib.Path(os.environ["FAULT_ORDERS"])
    orders = Orders(folder, rank)
    # Gradients are reduced by hand: DistributedDataParallel of PyTorch 2.8 ends with a segmentation
    # fault over Gloo if TORCH_DISTRIBUTED_DEBUG is DETAIL.
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    pace = float(os.environ["FAULT_PACE"])
    step = 0
    while True:
        optimizer.zero_grad()
        model(torch.randn(16, 32)).square().mean().backward()
        gradients = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        dist.all_reduce(gradients)
        for parameter, part in zip(model.parameters(), gradients.split([p.numel() for p in model.parameters()])):
            parameter.grad.copy_(part.view_as(parameter) / dist.get_world_size())
        optimizer.step()
        step += 1
        if step == WARM_STEPS:
            (folder / f"ready.{rank}").write_text(str(os.getpid()))
        if not orders.skips_next():
            dist.all_reduce(torch.ones(2))
        time.sleep(pace)


if __name__ == "__main__":
    main()
