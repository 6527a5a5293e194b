#!/usr/bin/env python3
"""Two faults compared with PyTorch: a stopped rank, and one that skips a collective; the time to
detection, and whether the rank is named.

  bench/faults_torch.py --bin build/release/bin [--ranks 8] [--runs 2] [--wait 90]
  [--out bench/results/faults_torch.json]

PyTorch's job is data parallel over Gloo under torchrun, without restarts, with its ranks on this
machine. Muster's job has 8 ranks on 4 workers as in bench/faults.py. Both train a tiny model at the
same pace. PyTorch has three rows: the default timeout of half an hour, of which --wait seconds are
observed; 30 s; and 30 s with TORCH_DISTRIBUTED_DEBUG=DETAIL, which checks each collective before it
runs. The flight recorder has no row: with TORCH_FR_BUFFER_SIZE it records Gloo's collectives, but
nothing writes the record when a collective times out.

Needs root, as bench/faults.py does, and $MUSTER_PEERS_PYTHON, as the other peers do.
"""
import argparse
import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from faults.cases import CASES  # noqa: E402
from faults.fleet import Fleet  # noqa: E402
from faults.scored import Pick, run_case  # noqa: E402
from faults.torch_job import SETTINGS, TorchJob  # noqa: E402
from peers.environment import describe_run, peers_python  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
FAULTS = ("SIGSTOP", "collective left out")
PACE_SECONDS = 0.1


def run_torch(fault, setting, seed, args):
    job = TorchJob(peers_python(), args.ranks, PACE_SECONDS, SETTINGS[setting])
    try:
        rank = Pick(seed, fault, args.ranks).rank()
        at = job.stop(rank) if fault == "SIGSTOP" else job.orders.give({"rank": rank, "kind": "skip_collective"})
        row = job.follow(at, args.wait)
    finally:
        job.close()
    return {"fault": fault, "program": f"PyTorch, {setting}", "seed": seed, "rank": rank, **row, "named": row["blamed"] == [rank]}


def run_muster(fleet, fault, seed):
    case = next(case for case in CASES if case.name == fault)
    row = run_case(fleet, case, seed)
    return {"fault": fault, "program": "Muster", "seed": seed, "seconds": row.get("seconds"),
            "ended_seconds": row.get("stopped_seconds"), "named": row.get("named", False), "lines": [row.get("sentence", row.get("error"))]}


def table(rows):
    """Prints one line per fault and program, as in docs/hangs.md."""
    lines = {}
    for row in rows:
        lines.setdefault((row["fault"], row["program"]), []).append(row)

    def median(values):
        values = [value for value in values if value is not None]
        return round(statistics.median(values), 1) if values else None
    return [{"fault": fault, "program": program, "runs": len(some), "noticed_seconds": median(row["seconds"] for row in some),
             "ended_seconds": median(row["ended_seconds"] for row in some), "named": sum(row["named"] for row in some)}
            for (fault, program), some in lines.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--wait", type=float, default=90, help="seconds that a job of PyTorch is watched after its fault")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/faults_torch.json")
    args = parser.parse_args()
    rows = []

    def record(row):
        print(json.dumps({key: value for key, value in row.items() if key != "lines"}), flush=True)
        rows.append(row)
    for seed in range(args.runs):
        for fault in FAULTS:
            fleet = Fleet(args.bin.resolve(), pace=PACE_SECONDS)
            try:
                record(run_muster(fleet, fault, seed))
            finally:
                fleet.close()
            for setting in SETTINGS:
                record(run_torch(fault, setting, seed, args))
    result = {**describe_run(), "what": "a fault of one rank of a small job, beside PyTorch with Gloo under torchrun",
              "pace_seconds": PACE_SECONDS, "watched_seconds": args.wait, "table": table(rows), "runs": rows}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["table"], indent=1))


if __name__ == "__main__":
    main()
