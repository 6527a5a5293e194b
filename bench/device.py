#!/usr/bin/env python3
"""Measures this machine with `muster bench device`, and compares the forecasts of `muster plan`
with steps of runs on this machine's CPU.

The runs differ in model, batch, sequence length, layers and ranks; none of them is among the
models that `muster bench device` measures. A run's time is the median of its steps without the
first three. Beside each error is that with the measured peaks alone, without the calibration.

  bench/device.py --bin build/release/bin [--steps 15] [--out bench/results/bench_device.json]

Nothing else should run on the machine.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from launch import ROOT  # noqa: E402
from peers.environment import describe_run  # noqa: E402

STEP = re.compile(r"^completed step: (\d+), seconds: ([\d.]+),", re.M)
SKIPPED_STEPS = 3
RUN_SECONDS_MAX = 600


def model(layers, emb, heads, mlp, vocabulary, length, batch, *more):
    return ["override_model_config=true", f"base_num_decoder_layers={layers}", f"base_emb_dim={emb}", f"base_num_query_heads={heads}",
            f"base_num_kv_heads={heads}", f"head_dim={emb // heads}", f"base_mlp_dim={mlp}", f"vocab_size={vocabulary}",
            f"max_target_length={length}", f"per_device_batch_size={batch}", *more]


JOBS = [
    {"name": "4 layers of 256", "ranks": 1, "words": model(4, 256, 4, 688, 4096, 256, 8, "remat_policy=none")},
    {"name": "6 layers of 512, remat", "ranks": 1, "words": model(6, 512, 8, 1376, 8192, 512, 2, "remat_policy=full")},
    {"name": "2 layers of 768, long", "ranks": 1, "words": model(2, 768, 12, 2048, 16384, 1024, 1, "remat_policy=none")},
    {"name": "4 layers of 384, fsdp", "ranks": 2,
     "words": model(4, 384, 6, 1024, 8192, 256, 4, "remat_policy=none", "ici_fsdp_parallelism=2")},
    {"name": "4 layers of 512, data", "ranks": 2,
     "words": model(4, 512, 8, 1376, 8192, 512, 1, "remat_policy=none", "ici_data_parallelism=2", "ici_fsdp_parallelism=1")},
    {"name": "3 layers of 512, tensor", "ranks": 2,
     "words": model(3, 512, 8, 1376, 8192, 256, 2, "remat_policy=none", "ici_tensor_parallelism=2", "ici_fsdp_parallelism=1")},
]


def run(command):
    result = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX)
    if result.returncode != 0:
        raise RuntimeError(f"{command}: exit {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}")
    return result.stdout


def measured_seconds(output):
    seconds = [float(seconds) for step, seconds in STEP.findall(output) if int(step) >= SKIPPED_STEPS]
    return {"median": statistics.median(seconds), "min": min(seconds), "max": max(seconds), "steps": len(seconds)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/bench_device.json")
    args = parser.parse_args()
    muster = str(args.bin / "muster")
    load = os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        base = f"{folder}/base.yml"
        shutil.copy(ROOT / "configs/base.yml", base)
        measured = json.loads(run([muster, "bench", "device", "here", "--out", folder, "--hardware", "cpu", "--json"]))
        # The same machine without a calibration.
        shutil.copy(f"{folder}/topologies/here.yml", f"{folder}/topologies/peaks.yml")
        jobs = []
        for number, job in enumerate(JOBS):
            words = [base, *job["words"], "dataset_type=synthetic", f"steps={args.steps}", "enable_checkpointing=false", "hardware=cpu",
                     f"run_name=job{number}", f"base_output_directory={folder}/out"]
            plans = {name: json.loads(run([muster, "plan", *words, f"compile_topology={name}-{job['ranks']}", "--json"]))["step"]["seconds"]
                     for name in ("here", "peaks")}
            seconds = measured_seconds(run([muster, "run", *words, "--ranks", str(job["ranks"])]))
            jobs.append({**job, "measured_seconds": seconds, "forecast_seconds": plans["here"], "forecast_seconds_by_peaks_alone": plans["peaks"],
                         "error_percent": 100 * (plans["here"] / seconds["median"] - 1),
                         "error_percent_by_peaks_alone": 100 * (plans["peaks"] / seconds["median"] - 1)})
            print(f"{job['name']}, {job['ranks']} ranks: measured {seconds['median']:.4f} s, forecast {jobs[-1]['error_percent']:+.1f}%, "
                  f"by peaks alone {jobs[-1]['error_percent_by_peaks_alone']:+.1f}%", flush=True)
        errors = [abs(job["error_percent"]) for job in jobs]
        result = {**describe_run(), "what": "forecasts of steps on the CPU of this machine after muster bench device",
                  "load_average_before": load, "largest_error_percent": max(errors), "mean_error_percent": statistics.mean(errors),
                  "jobs": jobs, "bench_device": measured}
        result["bench_device"].pop("topology_file")
        result["bench_device"].pop("calibration_file")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"largest error {max(errors):.1f}%, mean {statistics.mean(errors):.1f}%")


if __name__ == "__main__":
    main()
