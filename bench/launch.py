#!/usr/bin/env python3
"""Measures the time from the command to the first completed optimizer step with 4 ranks, beside
torchrun.

The model has 4 layers, 256 wide, 4 heads, mlp 688, vocabulary 4096, sequence 256, fp32, data
parallel over Gloo, AdamW with clipping. Both are timed from fork to rank 0's first step line. They
alternate, after one warm-up each.

  bench/launch.py --bin build/release/bin [--runs 7] [--out bench/results/launch.json]

With --before, another build of muster takes the place of torchrun, to compare two commits. Its
configs are those of its own source tree, TREE in TREE/build/PRESET/bin.

  bench/launch.py --bin build/ci/bin --before ../old/build/ci/bin --out FILE.json

The peer's Python is $MUSTER_PEERS_PYTHON, or a virtual environment made in build/peers from
bench/peers/requirements.txt.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from peers.environment import describe_run, peers_python  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
FIRST_STEP = re.compile(r"^completed step: 0,")
RANKS = 4
BATCH = 2
RUN_SECONDS_MAX = 120


def time_to_first_step(command, env):
    """Seconds from fork to the first step line on stdout; the program then runs to its end."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    first, lines = None, []
    try:
        for line in process.stdout:
            lines.append(line)
            if first is None and FIRST_STEP.match(line):
                first = time.monotonic() - start
        process.wait(timeout=RUN_SECONDS_MAX)
    finally:
        process.kill()
        process.wait()
    if first is None or process.returncode != 0:
        raise RuntimeError(f"{command}: exit {process.returncode}\n{''.join(lines[-30:])}")
    return first


def muster_command(binaries, folder, name):
    tree = binaries.resolve().parents[2]
    return [str(binaries / "muster"), "run", str(tree / "configs/base.yml"), f"run_name={name}",
            f"base_output_directory={folder}", "dataset_type=synthetic", "dtype=float32", "override_model_config=true",
            "base_emb_dim=256", "base_num_decoder_layers=4", "base_num_query_heads=4", "base_num_kv_heads=4",
            "head_dim=64", "base_mlp_dim=688", "vocab_size=4096", "max_target_length=256",
            f"per_device_batch_size={BATCH}", "steps=2", "log_period=1", "enable_checkpointing=false",
            "remat_policy=none", "--ranks", str(RANKS)]


def torch_command(python):
    return [python, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS),
            "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0",
            str(ROOT / "bench/peers/torch_ddp_first_step.py"), "--batch", str(BATCH)]


def summary(seconds):
    return {"median": statistics.median(seconds), "min": min(seconds), "max": max(seconds), "all": seconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--before", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/launch.json")
    args = parser.parse_args()
    peer = "before" if args.before else "torchrun"
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    python = None if args.before else peers_python()
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        for run in range(args.runs + 1):
            muster_seconds = time_to_first_step(muster_command(args.bin, folder, f"launch{run}"), os.environ)
            if args.before:
                peer_seconds = time_to_first_step(muster_command(args.before, folder, f"before{run}"), os.environ)
            else:
                peer_seconds = time_to_first_step(torch_command(python), env)
            print(f"run {run}: muster {muster_seconds:.3f} s, {peer} {peer_seconds:.3f} s", flush=True)
            if run > 0:  # the first run of each fills the page cache
                ours.append(muster_seconds)
                theirs.append(peer_seconds)
    ratio = statistics.median(ours) / statistics.median(theirs)
    result = {
        **describe_run(),
        "what": "seconds from command to first completed optimizer step, 4 ranks on one machine",
        "runs": args.runs,
        "muster_seconds": summary(ours),
        f"{peer}_seconds": summary(theirs),
        f"ratio_muster_to_{peer}": ratio,
    }
    target = ""
    if args.before is None:
        result["target"] = {"ratio_max": 0.1, "seconds_max": 1.0}
        target = " (target 0.1 and 1 s)"
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"muster {statistics.median(ours):.3f} s, {peer} {statistics.median(theirs):.3f} s, ratio {ratio:.3f}{target}")


if __name__ == "__main__":
    main()
