#!/usr/bin/env python3
"""Measures all-reduce, all-gather and reduce-scatter between 8 processes of this machine, beside
torch.distributed over Gloo and a bound by memory bandwidth.

  bench/collectives.py --bin build/release/bin [--ranks 8] [--rounds 7]
  [--out bench/results/collectives.json]

`shm` is Muster's transport between processes of a host, `gloo` is Gloo. The bound is the time to
copy, without any waiting, the bytes that each rank needs from the shared memory of the others in an
all-reduce: 2 (n-1)/n of the size (the bus bandwidth of NCCL-tests). Sizes are those of the whole
fp32 buffer. Programs alternate. A time lasts from the first rank's start to the last rank's end;
figures are medians. `cpu_ms` is the processor time of all ranks together, which the communication
takes from a concurrent computation; on a machine with other load it is more meaningful than the
time.

The peers' Python is $MUSTER_PEERS_PYTHON, or a virtual environment made in build/peers from
bench/peers/requirements.txt.
"""
import argparse
import json
import pathlib
import statistics
import sys

BENCH = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH))
from peers.environment import describe_run, peers_python  # noqa: E402
from peers.program import Program  # noqa: E402

SIZES = [1 << 10, 16 << 10, 256 << 10, 1 << 20, 8 << 20, 64 << 20]
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter")
PEER = BENCH / "peers/collectives_torch.py"
LARGE = 8 << 20  # from this size on the transfer dominates the waiting


def repeats(size):
    return max(3, min(200, (16 << 20) // size))


def measure(binaries, ranks, rounds):
    program = str(binaries / "collectives")
    commands = {name: [program, name, str(ranks)] for name in ("shm", "gloo")}
    commands["torch_gloo"] = [peers_python(), str(PEER), str(ranks)]
    programs, answers = [], {}
    try:
        for name, command in commands.items():
            programs.append(Program(name, command, 1))
        for _ in range(rounds):
            for size in SIZES:
                for running in programs:
                    bound = ("copy",) if running.name == "shm" else ()
                    for operation in (*OPERATIONS, *bound):
                        answer = running.request(f"{operation} {size} {repeats(size)}")
                        answers.setdefault((operation, size, running.name), []).append(answer)
    finally:
        for running in programs:
            running.close()
    return answers


def median_ms(answers, key):
    values = [answer[key] for answer in answers if key in answer]
    return round(1e3 * statistics.median(values), 4) if values else None


def summarise(answers, ranks):
    rows = []
    for operation in OPERATIONS:
        for size in SIZES:
            row = {"operation": operation, "bytes": size}
            for (what, bytes_, name), measured in answers.items():
                if (what, bytes_) != (operation, size):
                    continue
                row[f"{name}_ms"] = median_ms(measured, "seconds")
                if name == "shm":
                    row[f"{name}_cpu_ms"] = median_ms(measured, "cpu_seconds")
            # An all-reduce moves twice the bytes of either half.
            share = 1.0 if operation == "all_reduce" else 0.5
            copied = answers["copy", size, "shm"]
            row["bound_ms"] = round(share * median_ms(copied, "seconds"), 4)
            row["bound_cpu_ms"] = round(share * median_ms(copied, "cpu_seconds"), 4)
            row["bus_gb_per_s"] = round(share * 2 * (ranks - 1) / ranks * size / row["shm_ms"] / 1e6, 3)
            row["of_bound"] = round(row["bound_ms"] / row["shm_ms"], 3)
            row["of_bound_cpu"] = round(row["bound_cpu_ms"] / row["shm_cpu_ms"], 3)
            row["torch_over_shm"] = round(row["torch_gloo_ms"] / row["shm_ms"], 2)
            rows.append(row)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=BENCH.parent / "build/release/bin")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=pathlib.Path, default=BENCH / "results/collectives.json")
    args = parser.parse_args()
    rows = summarise(measure(args.bin, args.ranks, args.rounds), args.ranks)
    large = [row for row in rows if row["operation"] == "all_reduce" and row["bytes"] >= LARGE]
    summary = {"all_reduce_of_bound_large": min(row["of_bound"] for row in large),
               "all_reduce_of_bound_cpu_large": min(row["of_bound_cpu"] for row in large),
               "all_reduce_torch_over_shm": min(row["torch_over_shm"] for row in rows if row["operation"] == "all_reduce")}
    result = {**describe_run(), "what": "collectives between processes of one host", "ranks": args.ranks, "rounds": args.rounds,
              **summary, "operations": rows}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=2) + "\n")
    print(summary)


if __name__ == "__main__":
    main()
