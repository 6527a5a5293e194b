#!/usr/bin/env python3
"""Measures waiting times of a training: for data, as a share of its steps, and for background
checkpoints, as a share of synchronous ones.

  bench/waits.py --bin build/release/bin [--out bench/results/waits.json] [--rounds 7] [--steps 65]
  [--folder /path/on/the/disk]

The model is S of bench/cpu_train.py, on all cores. Its data is a tokenised text of random words;
the shards are not in the page cache when a run begins. A round is a run with
async_checkpointing=True and one with False. Each saves every tenth step with fsync. A share is that
of one round; figures are medians over all rounds. A round takes some 25 seconds.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

BENCH = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH))
from peers.cpu_train_common import SIZES  # noqa: E402
from peers.environment import describe_run  # noqa: E402

PERIOD = 10  # steps between checkpoints
VOCABULARY, DOCUMENTS = 20_000, 40_000


def make_data(binaries, folder, vocabulary):
    """Writes documents of some to some hundred words, whose frequencies fall like those of a
    language.
    """
    draw = random.Random(1)
    words = ["".join(draw.choice("aeioubcdfghklmnprstvw") for _ in range(draw.randint(2, 9))) for _ in range(VOCABULARY)]
    weights = [1 / (rank + 3) for rank in range(VOCABULARY)]
    with open(folder / "text.txt", "w") as text:
        for _ in range(DOCUMENTS):
            text.write(" ".join(draw.choices(words, weights, k=int(4 + draw.expovariate(1 / 80)))) + "\n")
    run = dict(check=True, stdout=subprocess.DEVNULL)
    subprocess.run([binaries / "muster", "train-tokenizer", "--text", folder / "text.txt", "--vocab-size", str(vocabulary), "--out",
                    folder / "pieces"], **run)
    subprocess.run([binaries / "muster", "tokenize", "--text", folder / "text.txt", "--tokenizer", folder / "pieces.model", "--out",
                    folder / "shards"], **run)


def evict(folder):
    """Removes the files of a folder from the page cache."""
    for file in folder.iterdir():
        fd = os.open(file, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def train(binaries, folder, name, background, steps):
    """Returns the metrics of all steps except the first."""
    c = SIZES["S"]
    metrics = folder / f"{name}.jsonl"
    evict(folder / "shards")
    command = [binaries / "muster", "run", BENCH.parent / "configs/base.yml", f"run_name={name}", f"base_output_directory={folder}/out",
               "dataset_type=shards", f"dataset_path={folder}/shards", f"tokenizer_path={folder}/pieces.model",
               "override_model_config=true", f"base_emb_dim={c['width']}", f"base_num_decoder_layers={c['layers']}",
               f"base_num_query_heads={c['heads']}", f"base_num_kv_heads={c['heads']}", f"head_dim={c['width'] // c['heads']}",
               f"base_mlp_dim={c['mlp']}", f"vocab_size={c['vocab']}", f"max_target_length={c['seq']}",
               f"per_device_batch_size={c['batch']}", "remat_policy=none", f"steps={steps}", f"checkpoint_period={PERIOD}",
               "max_num_checkpoints_to_keep=1", "save_checkpoint_on_completion=False", f"async_checkpointing={background}",
               f"metrics_file={metrics}", "--ranks", "1"]
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [row for row in rows if "perf/step_time_seconds" in row][1:]


def measure(binaries, folder, rounds, steps):
    shares = {"data_wait_share_of_step": [], "stall_seconds_background": [], "stall_seconds_blocking": [],
              "stall_share_of_blocking": [], "step_seconds": []}
    for number in range(rounds):
        stalls = {}
        for background in (True, False):
            rows = train(binaries, folder, f"round{number}{background}", background, steps)
            saved = [row["perf/checkpoint_stall_seconds"] for row in rows]
            stalls[background] = sum(saved) / (steps // PERIOD)
            seconds = [row["perf/step_time_seconds"] for row in rows]
            shares["data_wait_share_of_step"].append(sum(row["perf/data_wait_seconds"] for row in rows) / sum(seconds))
            shares["step_seconds"].append(statistics.median(seconds))
        shares["stall_seconds_background"].append(stalls[True])
        shares["stall_seconds_blocking"].append(stalls[False])
        shares["stall_share_of_blocking"].append(stalls[True] / stalls[False])
        print(f"round {number}: data wait {100 * shares['data_wait_share_of_step'][-1]:.3f}% of a step, stall "
              f"{100 * shares['stall_share_of_blocking'][-1]:.1f}% of a blocking save", file=sys.stderr, flush=True)
    return {name: {"median": round(statistics.median(values), 6), "all": [round(value, 6) for value in values]}
            for name, values in shares.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=BENCH.parent / "build/release/bin")
    parser.add_argument("--out", type=pathlib.Path, default=BENCH / "results/waits.json")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=65, help="of a run; no multiple of 10, so that each save has a step behind it")
    parser.add_argument("--folder", type=pathlib.Path, default=None, help="where data and checkpoints lie; its disk is what is waited for")
    args = parser.parse_args()
    if args.steps % PERIOD == 0 or args.steps < PERIOD:
        parser.error(f"--steps is {args.steps}; it must be more than {PERIOD}, and no multiple of it")
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = pathlib.Path(name)
        make_data(args.bin, folder, SIZES["S"]["vocab"])
        results = measure(args.bin, folder, args.rounds, args.steps)
    report = {**describe_run(), "what": "a training's waits: for data, and for checkpoints in the background and not", "size": "S",
              "config": SIZES["S"], "rounds": args.rounds, "steps": args.steps, "checkpoint_period": PERIOD, "results": results}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
