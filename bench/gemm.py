#!/usr/bin/env python3
"""fp32 GEMM of oneDNN beside OpenBLAS on the shapes of bench/cpu_train: why oneDNN was chosen.

  bench/gemm.py --bin build/release/bin [--runs 3] [--out bench/results/gemm.json]

The program `gemm` is built where OpenBLAS is installed (libopenblas-dev). Each figure is the median over the runs
of the best call within 0.2 s.
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
LIBRARIES = ("onednn_gflops", "openblas_gflops")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/gemm.json")
    args = parser.parse_args()
    runs = [json.loads(subprocess.run([str(args.bin / "gemm")], capture_output=True, text=True, check=True).stdout)
            for _ in range(args.runs)]
    rows = [{**same[0], **{library: statistics.median(row[library] for row in same) for library in LIBRARIES}}
            for same in zip(*runs)]
    for row in rows:
        row["ratio"] = round(row["onednn_gflops"] / row["openblas_gflops"], 3)
    summary = {f"median_ratio_{threads}_threads": statistics.median(r["ratio"] for r in rows if r["threads"] == threads)
               for threads in sorted({r["threads"] for r in rows})}
    result = {**describe_run(), "what": "fp32 GEMM, GFLOP/s", "runs": args.runs, **summary, "shapes": rows}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=2) + "\n")
    print(summary)


if __name__ == "__main__":
    main()
