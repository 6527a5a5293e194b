#!/usr/bin/env python3
"""Measures GEMM of oneDNN, of the built-in kernels and of OpenBLAS on the shapes of
bench/cpu_train, in fp32, and in bf16 if the processor has AVX512-BF16.
trainer_core/ops/cpu/matmul.cc chooses by these figures.

  bench/gemm.py --bin build/release/bin [--runs 3] [--out bench/results/gemm.json]

The program `gemm` is built where OpenBLAS is installed (libopenblas-dev). Each figure is the median
over the runs of the median call; libraries alternate.
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
LIBRARIES = ("own_gflops", "onednn_gflops", "openblas_gflops")
RATIOS = (("own", "onednn"), ("own", "openblas"), ("onednn", "openblas"))


def ratios(row):
    return {f"{a}_over_{b}": round(row[f"{a}_gflops"] / row[f"{b}_gflops"], 3) for a, b in RATIOS
            if f"{a}_gflops" in row and f"{b}_gflops" in row}


def summarise(rows):
    """Returns the median ratios of the training shapes; products with few rows, as in decoding, are
    excluded.
    """
    result = {}
    for dtype, prefix in (("float32", ""), ("bfloat16", "bf16_")):
        training = [row for row in rows if row["m"] > 8 and row["dtype"] == dtype]
        for threads in sorted({row["threads"] for row in training}):
            of_threads = [row for row in training if row["threads"] == threads]
            for a, b in RATIOS:
                if f"{a}_over_{b}" in of_threads[0]:
                    median = statistics.median(row[f"{a}_over_{b}"] for row in of_threads)
                    result[f"{prefix}median_{a}_over_{b}_{threads}_threads"] = round(median, 3)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/gemm.json")
    args = parser.parse_args()
    runs = [json.loads(subprocess.run([str(args.bin / "gemm")], capture_output=True, text=True, check=True).stdout)
            for _ in range(args.runs)]
    rows = [{**same[0], **{library: statistics.median(row[library] for row in same) for library in LIBRARIES
                           if library in same[0]}} for same in zip(*runs)]
    for row in rows:
        row.update(ratios(row))
    summary = summarise(rows)
    result = {**describe_run(), "what": "GEMM, GFLOP/s", "runs": args.runs, **summary, "shapes": rows}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=2) + "\n")
    print(summary)


if __name__ == "__main__":
    main()
