#!/usr/bin/env python3
"""Measures the start of jobs with and without a saved plan (compiled_trainstep_file).

Two figures, each with and without the file, alternating after one warm-up:

- the time from `muster run` to the first completed optimizer step, for 4 ranks on CPUs
  (the model of bench/launch.py);
- the time of `muster slurm submit --dry-run` for Llama-2 70B on 64 H100s, which plans the job's
  memory before it is queued, or compares it with the file.

  bench/saved_plan.py --bin build/release/bin [--runs 9] [--out bench/results/saved_plan.json]
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from launch import ROOT, muster_command, time_to_first_step  # noqa: E402
from peers.environment import describe_run  # noqa: E402

LARGE = ["model_name=llama2-70b", "per_device_batch_size=4", "dcn_data_parallelism=1", "dcn_fsdp_parallelism=-1",
         "hardware=gpu", "run_name=large", "dataset_type=synthetic"]


def run(command):
    """Seconds of a command that must succeed."""
    start = time.monotonic()
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise RuntimeError(f"{command}: exit {result.returncode}\n{result.stderr}")
    return time.monotonic() - start


def summary(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "all": values}


def alternate(runs, without, with_plan):
    """Calls both functions alternately with the number of the run, and summarizes their results."""
    times = {"without": [], "with": []}
    for number in range(runs + 1):
        for name, measure in (("without", without), ("with", with_plan)):
            seconds = measure(2 * number + (name == "with"))
            if number > 0:  # the first run of each fills the page cache
                times[name].append(seconds)
    return {name: summary(values) for name, values in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/saved_plan.json")
    args = parser.parse_args()
    muster = str(args.bin / "muster")
    base = str(ROOT / "configs/base.yml")
    with tempfile.TemporaryDirectory() as folder:
        small, large = f"{folder}/small.plan", f"{folder}/large.plan"
        words = [word for word in muster_command(args.bin, folder, 0)[3:] if "=" in word and not word.startswith("--")]
        run([muster, "plan", base, *words, "dtype=float32", "compile_topology=cpu-4", f"compiled_trainstep_file={small}"])
        first_step = alternate(
            args.runs,
            lambda number: time_to_first_step([*muster_command(args.bin, folder, number), "dtype=float32"], os.environ),
            lambda number: time_to_first_step([*muster_command(args.bin, folder, number), "dtype=float32", f"compiled_trainstep_file={small}"], os.environ))
        large_words = [*LARGE, f"base_output_directory={folder}/out"]
        run([muster, "plan", base, *large_words, "compile_topology=h100-64", f"compiled_trainstep_file={large}"])
        submit = [muster, "slurm", "submit", "--insecure", "--dry-run", "--gpus-per-node", "8", "-N", "8", base, *large_words, "compile_topology=h100"]
        dry_run = alternate(args.runs, lambda number: run(submit), lambda number: run([*submit, f"compiled_trainstep_file={large}"]))
        result = {
            **describe_run(),
            "what": "seconds with and without compiled_trainstep_file",
            "runs": args.runs,
            "load_average": os.getloadavg(),
            "first_step_of_4_ranks_on_cpus": first_step,
            "slurm_submit_dry_run_of_llama2_70b_on_64_h100": dry_run,
            "file_bytes": {"4 layers, 4 ranks": os.path.getsize(small), "llama2-70b, 64 ranks": os.path.getsize(large)},
        }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=2) + "\n")
    for what, times in (("first step", first_step), ("submit of 70B", dry_run)):
        print(f"{what}: without {times['without']['median']:.3f} s, with {times['with']['median']:.3f} s")


if __name__ == "__main__":
    main()
