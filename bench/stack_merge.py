#!/usr/bin/env python3
"""Measures the coordinator's time to merge, classify and symbolise the stacks of very many ranks,
on one core.

  bench/stack_merge.py --bin build/release/bin [--ranks 8192,131072] [--runs 5]
  [--out bench/results/stack_merge.json]

Stacks and symbols are synthetic (described in bench/stack_merge/main.cc), so that only Muster's
code is measured. Figures are medians over the runs, each with another seed.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from peers.environment import describe_run  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]


def measure(binary, ranks, where, runs):
    answers = [json.loads(subprocess.run([str(binary), str(ranks), where, str(seed)], capture_output=True, text=True, check=True).stdout)
               for seed in range(1, runs + 1)]
    row = {key: statistics.median(answer[key] for answer in answers) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
           for key, value in answers[0].items()}
    print(f"  {ranks:7} ranks, a worker's {where}: {row['seconds']:.3f} s, of a core {row['cpu_seconds']:.3f} s (take {row['take_seconds']:.3f}, merge {row['merge_seconds']:.3f}), "
          f"{row['classes']:.0f} classes, blame {row['blame_seconds']:.3f} s, {row['peak_mib']:.0f} MiB", file=sys.stderr)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--ranks", default="8192,131072")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/stack_merge.json")
    args = parser.parse_args()
    rows = [measure(args.bin / "stack_merge", int(ranks), where, args.runs) for ranks in args.ranks.split(",") for where in ("near", "far")]
    report = {**describe_run(), "what": "stacks of all ranks' threads, from workers' messages to classes with symbols, one core",
              "runs": args.runs, "cases": rows}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
