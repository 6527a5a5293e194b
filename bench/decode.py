#!/usr/bin/env python3
"""Measures tokens per second of greedy decoding of one sequence with a KV cache, in fp32 and bf16,
beside transformers with the same weights.

  bench/decode.py --bin build/release/bin [--out bench/results/decode.json] [--threads 1,2]

The model is a Llama of 134 M random weights (537 MB, which like any practical model exceeds the
caches). transformers saves it and both load it. Programs alternate; figures are medians. In fp32
both must produce the same tokens. With random weights many tokens are nearly equally likely, so
bf16 may choose others.

The peers' Python is $MUSTER_PEERS_PYTHON, or a virtual environment made in build/peers from
bench/peers/requirements.txt.
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
from peers.environment import describe_run, peers_python  # noqa: E402
from peers.program import Program  # noqa: E402

PROMPT, NEW, ROUNDS = 512, 64, 4
PEER = BENCH / "peers/decode_transformers.py"


def commands(binaries, folder, threads):
    ours = [str(binaries / "decode"), str(folder), str(threads), str(PROMPT + NEW)]
    peer = [peers_python(), str(PEER), str(folder), str(threads)]
    return {f"{program}_{short}": [*command, dtype] for short, dtype in (("fp32", "float32"), ("bf16", "bfloat16"))
            for program, command in (("muster", ours), ("transformers", peer))}


def weight_bytes(folder, dtype):
    """Bytes of the weights in the decoding type; the file is fp32."""
    return os.path.getsize(folder / "model.safetensors") // (2 if dtype == "bf16" else 1)


def measure(binaries, folder, threads):
    print(f"{threads} thread(s)", file=sys.stderr)
    programs, answers = [], {}
    try:
        for name, command in commands(binaries, folder, threads).items():
            programs.append(Program(name, command, threads))
        for _ in range(ROUNDS):
            for program in programs:
                answers.setdefault(program.name, []).append(program.request(f"generate {PROMPT} {NEW}"))
    finally:
        for program in programs:
            program.close()
    return summarise(answers, programs, folder, threads)


def summarise(answers, programs, folder, threads):
    expected = answers["muster_fp32"][0]["tokens"]
    if answers["transformers_fp32"][0]["tokens"] != expected:
        raise RuntimeError("the programs choose different tokens: one of them is wrong")
    results, ours, rates = {}, {}, {}
    for program in programs:
        dtype = program.name.split("_")[1]
        token = statistics.median(s for answer in answers[program.name] for s in answer["decode_seconds"])
        prefill = statistics.median(answer["prefill_seconds"] for answer in answers[program.name])
        our_token, our_prefill = ours.setdefault(dtype, (token, prefill))
        # Every weight is read once per token: the memory bandwidth is the limit.
        rates.setdefault(dtype, round(weight_bytes(folder, dtype) / our_token / 1e9, 1))
        results[program.name] = {
            "decode_tokens_per_second": round(1 / token, 2),
            "prefill_tokens_per_second": round(PROMPT / prefill, 1),
            "muster_decodes_faster_by": round(token / our_token, 2),
            "muster_prefills_faster_by": round(prefill / our_prefill, 2),
            "version": program.ready.get("version"),
        }
        print(f"  {program.name:18} {1 / token:8.1f} tokens/s  x{token / our_token:.2f}"
              f"   prompt {PROMPT / prefill:8.0f} tokens/s  x{prefill / our_prefill:.2f}", file=sys.stderr)
    return {"threads": threads, "results": results, "weights_read_gb_per_second": rates}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=BENCH.parent / "build/release/bin")
    parser.add_argument("--out", type=pathlib.Path, default=BENCH / "results/decode.json")
    parser.add_argument("--threads", default="1,2")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([peers_python(), str(PEER), str(folder), "--make"], check=True)
        report = {**describe_run(),
                  "what": f"greedy decoding of one sequence with a KV cache: a prompt of {PROMPT} tokens, then {NEW}",
                  "model": json.loads((folder / "config.json").read_text()),
                  "cases": [measure(args.bin, folder, int(threads)) for threads in args.threads.split(",")]}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
