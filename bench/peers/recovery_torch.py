#!/usr/bin/env python3
"""A rank of a small data-parallel job of PyTorch over Gloo that resumes from its checkpoint, for
bench/recovery_torch.py. A launcher runs and restarts it; it does not depend on the launcher,
except for the reports below.

  recovery_torch.py STATE STEPS

RECOVERY_PACE: seconds of a step in addition to its computation. RECOVERY_TIMEOUT: timeout of
collectives in seconds; empty: the default. RECOVERY_SPEAKS: "muster" reports its steps by Muster's
Python module, "nvidia" sends heartbeats to nvidia-resiliency-ext's monitor; empty: no reports. Each
rank prints `step N rank R pid P at T` after each step, in seconds since the epoch.
"""
import datetime
import os
import sys
import time

import torch
import torch.distributed as dist


def reporter(kind):
    """Returns the function to call after each step."""
    if kind == "muster":
        import muster_progress
        muster_progress.begin()
        return lambda step: muster_progress.step(step)
    if kind == "nvidia":
        from nvidia_resiliency_ext.fault_tolerance import RankMonitorClient
        client = RankMonitorClient()
        client.init_workload_monitoring()
        return lambda step: client.send_heartbeat()
    return lambda step: None


def main():
    state, steps = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    seconds = os.environ.get("RECOVERY_TIMEOUT")
    timeout = {"timeout": datetime.timedelta(seconds=float(seconds))} if seconds else {}
    dist.init_process_group("gloo", **timeout)
    rank = dist.get_rank()
    report = reporter(os.environ.get("RECOVERY_SPEAKS"))
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first = 0
    if os.path.exists(state):
        saved = torch.load(state)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    for step in range(first + 1, steps + 1):
        torch.manual_seed(100 * step + rank)
        optimizer.zero_grad()
        model(torch.randn(16, 32)).square().mean().backward()
        optimizer.step()
        if rank == 0:
            torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, state + ".new")
            os.replace(state + ".new", state)
        dist.barrier()
        print(f"step {step} rank {rank} pid {os.getpid()} at {time.time():.3f}", flush=True)
        report(step)
        time.sleep(float(os.environ["RECOVERY_PACE"]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
