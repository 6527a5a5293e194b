#!/usr/bin/env python3
"""Simulates weeks of training with the failure rates of the Llama 3 report: the use of the time,
and whether an operator is needed.

  bench/recovery_simulation.py --bin build/release/bin
  [--runs 64:2:54:5:56,256:5:54:3:224,256:1:54:3:224,1024:16:54:2:896,2048:32:54:1:1792]
  [--out bench/results/recovery_simulation.json]

Runs are NODES:SPARES:DAYS:SEEDS:FEWER, with 8 ranks per node. The report's rates scale with the
number of nodes; without
enough nodes and spares the job continues on FEWER nodes. The coordinator's core is the real one;
tests/simulation/long_training.h simulates the training. Times are simulated; bench/recovery.py
measures the additional time of real workers and networks in each recovery.
"""
import argparse
import collections
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from peers.environment import describe_run  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]


def simulate(binary, nodes, spares, days, seed, fewer):
    run = json.loads(subprocess.run([str(binary), nodes, spares, days, str(seed), fewer], capture_output=True, text=True, check=True).stdout)
    first = run["recoveries"]["progress_to_first_step_seconds"] or {"p50": 0, "p99": 0}
    print(f"  {run['plan']['ranks']:>6} ranks, seed {seed}: ETTR {run['ettr']:.4f} over {run['wall_seconds'] / 86400:.1f} days, "
          f"{run['interruptions']} interruptions, {run['needed_a_person']} needed a person; back after p50 {first['p50']:.0f} s, "
          f"p99 {first['p99']:.0f} s; {run['productive_on_fewer_nodes_seconds'] / 3600:.1f} h on fewer nodes; at most "
          f"{run['longest_without_a_step_seconds'] / 60:.0f} min without a new step ({run['waited_for'] or 'not in the queue'}); "
          f"{run['cpu_seconds']:.0f} s of processor time", file=sys.stderr, flush=True)
    return run


def summarize(runs):
    """Returns the figures over all seeds of one size: the ratio of sums, and lost time per day."""
    wall = sum(run["wall_seconds"] for run in runs)
    causes, whats = collections.Counter(), collections.Counter()
    for run in runs:
        for loss in run["losses"]:
            causes[loss["cause"]] += loss["seconds"]
            whats[loss["what"]] += loss["seconds"]
    per_day = 86400 / wall
    return {"ranks": runs[0]["plan"]["ranks"], "spares": runs[0]["plan"]["spare_nodes"], "seeds": len(runs), "days": wall / 86400,
            "ettr": sum(run["ettr"] * run["wall_seconds"] for run in runs) / wall, "ettr_least": min(run["ettr"] for run in runs),
            "speed_of_undisturbed": sum(run["speed_of_undisturbed"] * run["wall_seconds"] for run in runs) / wall,
            "interruptions": sum(run["interruptions"] for run in runs), "needed_a_person": sum(run["needed_a_person"] for run in runs),
            "progress_to_first_step_seconds": [run["recoveries"]["progress_to_first_step_seconds"] for run in runs],
            "lost_seconds_per_day_by_cause": {cause: seconds * per_day for cause, seconds in causes.most_common()},
            "lost_seconds_per_day_by_class": {what: seconds * per_day for what, seconds in whats.most_common()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--runs", default="64:2:54:5:56,256:5:54:3:224,256:1:54:3:224,1024:16:54:2:896,2048:32:54:1:1792")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/recovery_simulation.json")
    args = parser.parse_args()
    sizes = []
    for group in args.runs.split(","):
        nodes, spares, days, seeds, fewer = group.split(":")
        sizes.append([simulate(args.bin / "recovery_simulation", nodes, spares, days, seed, fewer) for seed in range(1, int(seeds) + 1)])
    report = {**describe_run(), "what": "simulated weeks of training with the Llama 3 report's failures: the real coordinator core's accounts",
              "summary": [summarize(runs) for runs in sizes], "runs": [run for runs in sizes for run in runs]}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
