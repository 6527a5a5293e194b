#!/usr/bin/env python3
"""Runs the fault matrix in the simulator, for 8 to 16,384 ranks: the blamed rank, the latency, and
false alarms.

  bench/hang_simulation.py --bin build/release/bin [--runs 8:50,64:20,1024:5,16384:2]
  [--out bench/results/hang_simulation.json]

The coordinator's core is the real one; tests/simulation/fleet.h simulates trainings and faults.
Latencies are in simulated time, from the fault to its incident; bench/faults.py measures the
additional time of real workers, stacks and networks.
"""
import argparse
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from peers.environment import describe_run  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]


def measure(binary, ranks, seeds):
    answer = json.loads(subprocess.run([str(binary), ranks, seeds], capture_output=True, text=True, check=True).stdout)
    for row in answer["rows"]:
        figures = (f"named right {row['named_right']} of {row['runs']}, in time {row['in_time']}, p50 {row['latency_seconds_p50']:.2f} s, "
                f"p99 {row['latency_seconds_p99']:.2f} s" if "reported" in row else f"{row['runs']} runs")
        print(f"  {ranks:>6} ranks, {row['trouble']:16}: {figures}, false alarms {row['false_alarms']}", file=sys.stderr)
    return answer


def summary(rows):
    faults = [row for row in rows if "reported" in row]
    verdicts, right, runs = (sum(row[key] for row in faults) for key in ("reported", "named_right", "runs"))
    return {"faults": runs, "precision": right / verdicts, "recall": right / runs, "in_time": sum(row["in_time"] for row in faults),
            "runs_without_a_fault": sum(row["runs"] for row in rows if "reported" not in row),
            "false_alarms": sum(row["false_alarms"] for row in rows),
            "attempts_ended_for_nothing": sum(row["attempts_ended_for_nothing"] for row in rows)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--runs", default="8:50,64:20,1024:5,16384:2")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/hang_simulation.json")
    args = parser.parse_args()
    answers = [measure(args.bin / "hang_simulation", *pair.split(":")) for pair in args.runs.split(",")]
    rows = [row for answer in answers for row in answer["rows"]]
    report = {**describe_run(), "what": "simulated trainings with one fault each: incidents of the real coordinator core",
              "cpu_seconds": sum(answer["cpu_seconds"] for answer in answers), "summary": summary(rows), "cases": rows}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report["summary"]), file=sys.stderr)


if __name__ == "__main__":
    main()
