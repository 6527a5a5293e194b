#!/usr/bin/env python3
"""Compares trainings with weight_dtype=bfloat16 and float32: tokens/s, memory and checkpoint size.

  bench/weights.py --bin build/release/bin [--out bench/results/weights.json] [--rounds 5]
  [--steps 30] [--threads 1]

The model is S of bench/cpu_train.py, with synthetic data on one rank. A round is a run of each
kind, one after the other: both weight types with activations of bfloat16 and of float32. Figures
are medians over all rounds, and ratios medians of the rounds' ratios. Memory is the peak that the
kernel reports for the rank.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

BENCH = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH))
from peers.cpu_train_common import SIZES  # noqa: E402
from peers.environment import describe_run  # noqa: E402

TYPES = ("float32", "bfloat16")


def train(binaries, folder, name, dtype, weights, steps, threads):
    """Returns tokens/s (the median of all steps but the first two), peak memory, and the bytes of
    the checkpoint at the end.
    """
    c = SIZES["S"]
    metrics = folder / f"{name}.jsonl"
    command = [binaries / "muster", "run", BENCH.parent / "configs/base.yml", f"run_name={name}", f"base_output_directory={folder}/out",
               "dataset_type=synthetic", "hardware=cpu", "override_model_config=true", f"base_emb_dim={c['width']}",
               f"base_num_decoder_layers={c['layers']}", f"base_num_query_heads={c['heads']}", f"base_num_kv_heads={c['heads']}",
               f"head_dim={c['width'] // c['heads']}", f"base_mlp_dim={c['mlp']}", f"vocab_size={c['vocab']}",
               f"max_target_length={c['seq']}", f"per_device_batch_size={c['batch']}", "remat_policy=none", f"steps={steps}",
               "async_checkpointing=False", f"dtype={dtype}", f"weight_dtype={weights}", f"threads_per_rank={threads}",
               f"metrics_file={metrics}", "--ranks", "1"]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{name} ended with status {status}")
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    seconds = [row["perf/step_time_seconds"] for row in rows if "perf/step_time_seconds" in row][2:]
    saved = sum(file.stat().st_size for file in (folder / "out" / name / "checkpoints" / str(steps)).glob("*.safetensors"))
    return {"tokens_per_second": c["batch"] * c["seq"] / statistics.median(seconds), "peak_mib": usage.ru_maxrss / 1024,
            "checkpoint_mib": saved / 2**20}


def measure(binaries, folder, rounds, steps, threads):
    runs = {}  # (dtype, weights) -> figure -> one value per round
    for number in range(rounds):
        for dtype in TYPES:
            for weights in TYPES:
                figures = train(binaries, folder, f"{number}-{dtype}-{weights}", dtype, weights, steps, threads)
                for figure, value in figures.items():
                    runs.setdefault((dtype, weights), {}).setdefault(figure, []).append(value)
                print(f"round {number}: dtype={dtype} weight_dtype={weights}: {figures}", file=sys.stderr, flush=True)
    results = []
    for dtype in TYPES:
        wide, narrow = runs[dtype, "float32"], runs[dtype, "bfloat16"]
        row = {"dtype": dtype}
        for figure, values in narrow.items():
            row[figure] = {"float32": round(statistics.median(wide[figure]), 1), "bfloat16": round(statistics.median(values), 1),
                           "ratio": round(statistics.median(b / a for a, b in zip(wide[figure], values)), 3)}
        results.append(row)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=BENCH.parent / "build/release/bin")
    parser.add_argument("--out", type=pathlib.Path, default=BENCH / "results/weights.json")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        results = measure(args.bin, pathlib.Path(name), args.rounds, args.steps, args.threads)
    report = {**describe_run(), "what": "trainings with weight_dtype=bfloat16 and float32", "size": "S", "config": SIZES["S"],
              "rounds": args.rounds, "steps": args.steps, "threads": args.threads, "results": results}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
