#!/usr/bin/env python3
"""Measures the size of the coordinator's /metrics and the time to make it, with 100,000 ranks.

  bench/metrics.py --bin build/release/bin [--ranks 100000] [--jobs 1,12,96,1000] [--scrapes 51]
  [--out bench/results/metrics.json]

The core and the metrics are the product's; heartbeats and faults are synthetic
(bench/metrics/main.cc). The target is 1 MB and 50 ms. The slowest scrape must meet it: also the
first one, which creates the series, those when all jobs complete at once, and those when the series
of these jobs end.
"""
import argparse
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from peers.environment import describe_run  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
BYTES_MAX, SECONDS_MAX = 1_000_000, 0.050
SLOWEST = ("slowest_seconds", "ended_slowest_seconds", "forgotten_slowest_seconds")


def measure(binary, ranks, jobs, scrapes):
    row = json.loads(subprocess.run([str(binary), str(ranks), str(jobs), str(scrapes)], capture_output=True, text=True, check=True).stdout)
    print(f"  {ranks} ranks in {jobs:5} jobs: {row['bytes'] / 1e3:.0f} kB, {row['series']} series ({row['lost_series']} of lost time), {1000 * row['seconds']:.1f} ms "
          f"(first {1000 * row['first_seconds']:.1f}, slowest {1000 * row['slowest_seconds']:.1f}; when all jobs are through {1000 * row['ended_slowest_seconds']:.1f}, "
          f"when their series go {1000 * row['forgotten_slowest_seconds']:.1f})", file=sys.stderr)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--ranks", type=int, default=100_000)
    parser.add_argument("--jobs", default="1,12,96,1000")
    parser.add_argument("--scrapes", type=int, default=51)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/metrics.json")
    args = parser.parse_args()
    rows = [measure(args.bin / "metrics_bench", args.ranks, int(jobs), args.scrapes) for jobs in args.jobs.split(",")]
    report = {**describe_run(), "what": "the coordinator's /metrics, made on the core's thread", "bytes_max": BYTES_MAX, "seconds_max": SECONDS_MAX,
              "met": all(row["bytes"] <= BYTES_MAX and max(row[name] for name in SLOWEST) <= SECONDS_MAX for row in rows), "cases": rows}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
