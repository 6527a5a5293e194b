#!/usr/bin/env python3
"""Measures the MB/s of `muster tokenize` beside Hugging Face's datasets and tokenizers: the same
JSON lines to tokens on the disk, on all cores.

  bench/tokenize.py TEXT… [--bin build/release/bin] [--out bench/results/tokenize.json]
  [--vocab-size 32000] [--rounds 3]

TEXT are text files whose paragraphs become the documents. Two tokenizers are trained on them:
byte-level BPE by tokenizers, and a SentencePiece model by muster, converted for tokenizers.
Programs alternate. A figure is the median time from the start of the program to its end; for the
peers without Python's start. They must make nearly the same number of tokens: the conversion of
SentencePiece is not exact, and the libraries have different versions of Unicode.

The peers' Python is $MUSTER_PEERS_PYTHON, or a virtual environment made in build/peers from
bench/peers/requirements.txt.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

BENCH = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH))
from peers.environment import describe_run, peers_python  # noqa: E402

PEER = BENCH / "peers/tokenize_datasets.py"


def peer(*words):
    return subprocess.run([peers_python(), str(PEER), *map(str, words)], check=True, stdout=subprocess.PIPE, text=True).stdout


def make_input(texts, folder):
    """Writes one JSON line for each paragraph, and the same paragraphs as lines for training."""
    documents = []
    for text in texts:
        paragraphs = pathlib.Path(text).read_text(errors="replace").split("\n\n")
        documents += [" ".join(p.split("\n")) for p in paragraphs if p.strip()]
    (folder / "text.jsonl").write_text("".join(json.dumps({"text": d}, ensure_ascii=False) + "\n" for d in documents))
    (folder / "text.txt").write_text("\n".join(documents) + "\n")
    return sum(len(d.encode()) for d in documents)


def make_tokenizers(binaries, folder, size):
    peer(folder / "text.jsonl", folder / "bpe.json", "--train", size)
    subprocess.run([binaries / "muster", "train-tokenizer", "--text", folder / "text.txt", "--vocab-size", str(size), "--fewer-ok",
                    "--out", folder / "pieces"], check=True, stdout=subprocess.DEVNULL)
    peer(folder / "pieces.model", folder / "pieces.json", "--convert")
    return {"byte-level BPE": (folder / "bpe.json", folder / "bpe.json"),
            "SentencePiece": (folder / "pieces.model", folder / "pieces.json")}


def run_muster(binaries, folder, tokenizer):
    shutil.rmtree(folder / "shards", ignore_errors=True)
    start = time.perf_counter()
    done = subprocess.run([binaries / "muster", "tokenize", "--text", folder / "text.jsonl", "--tokenizer", tokenizer, "--out",
                           folder / "shards", "--no-eos", "--json"], check=True, stdout=subprocess.PIPE, text=True)
    return {"seconds": time.perf_counter() - start, "tokens": json.loads(done.stdout)["tokens"]}


def run_peer(folder, tokenizer, processes):
    shutil.rmtree(folder / "peer", ignore_errors=True)
    return json.loads(peer(folder / "text.jsonl", tokenizer, processes, folder / "peer"))


def measure(binaries, folder, tokenizers, rounds, megabytes):
    cores = len(os.sched_getaffinity(0))
    results = {}
    for name, (ours, theirs) in tokenizers.items():
        programs = {
            "muster": lambda ours=ours: run_muster(binaries, folder, ours),
            "datasets_threads": lambda theirs=theirs: run_peer(folder, theirs, 1),
            "datasets_processes": lambda theirs=theirs: run_peer(folder, theirs, cores),
        }
        runs = {program: [] for program in programs}
        for _ in range(rounds):
            for program, run in programs.items():
                runs[program].append(run())
        counts = {program: of_program[0]["tokens"] for program, of_program in runs.items()}
        if abs(counts["muster"] / counts["datasets_threads"] - 1) > (0.01 if name == "SentencePiece" else 1e-5):
            raise RuntimeError(f"{name}: the programs make different tokens: {counts}")
        results[name] = summarise(runs, megabytes)
        print(name, json.dumps(results[name]), file=sys.stderr)
    return results


def summarise(runs, megabytes):
    seconds = {program: statistics.median(t["seconds"] for t in of_program) for program, of_program in runs.items()}
    best = min(value for program, value in seconds.items() if program != "muster")
    return {"mb_per_second": {program: round(megabytes / value, 2) for program, value in seconds.items()},
            "muster_is_faster_by": round(best / seconds["muster"], 2),
            "tokens": runs["muster"][0]["tokens"], "versions": runs["datasets_threads"][0]["versions"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--bin", type=pathlib.Path, default=BENCH.parent / "build/release/bin")
    parser.add_argument("--out", type=pathlib.Path, default=BENCH / "results/tokenize.json")
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        megabytes = make_input(args.texts, folder) / 1e6
        tokenizers = make_tokenizers(args.bin.resolve(), folder, args.vocab_size)
        report = {**describe_run(), "text_mb": round(megabytes, 2),
                  "results": measure(args.bin.resolve(), folder, tokenizers, args.rounds, megabytes)}
    args.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
