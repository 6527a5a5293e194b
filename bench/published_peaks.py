#!/usr/bin/env python3
"""Compares the memory that `muster plan` computes with the peaks that other programs publish.

  bench/published_peaks.py --bin build/release/bin

Rows are those of bench/step_times/published.csv whose source states a peak: torchtitan's is the
memory that PyTorch's allocator has reserved, Megatron-LM's the memory that it has allocated. Each
becomes the job whose time is forecast for docs/step-times.md. The plan alone is compared, because
CUDA's context and NCCL's buffers are in no published figure. Both programs compute a micro-batch's
logits at once, and Muster in chunks: `with whole logits` adds LOGIT_BYTES per element to the plan.
Megatron-LM's rows do not recompute, so they are planned with remat_policy=none. Rows whose sharding
the trainer cannot express are left out.

Writes bench/results/published_peaks.json and the table in docs/memory.md.
"""
import argparse
import concurrent.futures
import importlib.util
import json
import pathlib
import re
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parent
ROOT = BENCH.parent
# The package of the same name hides the script.
spec = importlib.util.spec_from_file_location("step_times_script", BENCH / "step_times.py")
step_times = importlib.util.module_from_spec(spec)
spec.loader.exec_module(step_times)

# Memory beside the plan (startup/device_reserve.h), which the allocators do not count.
BESIDE = ("CUDA context", "kernels' code", "CUDA graphs", "NCCL", "scratch")
# At the beginning of the backward pass. torchtitan: logits and their gradient in bf16, and in fp32
# the output of log_softmax() and its gradient. Megatron-LM: logits in bf16, and in fp32 the
# softmax, which becomes the gradient in place.
LOGIT_BYTES = {"torchtitan": 12, "Megatron-LM": 6}
GIB = 2 ** 30
BEGIN, END = "<!-- published peaks: bench/published_peaks.py -->", "<!-- end of published peaks -->"


def peak_of(row):
    """Returns the published bytes, or None."""
    gibibytes = re.search(r"peak ([\d.]+) GiB", row.source)
    plain = re.search(r"mem_max (\d+) B", row.source)
    return float(gibibytes[1]) * GIB if gibibytes else float(plain[1]) if plain else None


def compare(muster, row):
    assumed = [what for what in row.assumptions if what in ("layers", "data parallelism for FSDP")]
    if assumed:
        return {"row": row.name, "problem": f"planned with other {' and '.join(assumed)}"}
    program = row.program_name()
    words = row.words() + (["remat_policy=none"] if program == "Megatron-LM" and not row.fields["remat"] else [])
    done = subprocess.run([muster, "plan", str(step_times.CONFIG), *words, "--json"], capture_output=True, text=True, timeout=300)
    if not done.stdout:
        return {"row": row.name, "problem": done.stderr.strip().splitlines()[-1]}
    shown = json.loads(done.stdout)
    config = shown["config"]
    tokens = config["per_device_batch_size"] * config["max_target_length"] / row.cp
    logits = LOGIT_BYTES[program] * tokens * config["vocab_size"] / row.tp
    stages = []
    for stage in shown["memory"]["stages"]:
        plan = sum(use["bytes"] for use in stage["uses"] if use["name"] not in BESIDE)
        is_last = stage["stage"] == len(shown["memory"]["stages"]) - 1
        stages.append((plan + (logits if is_last else 0), plan))
    with_logits, plan = max(stages)
    published = peak_of(row)
    return {"row": row.name, "source": row.source.split(" (")[0], "published": published, "plan": plan, "with_logits": with_logits,
            "error": 100 * (with_logits / published - 1)}


def table(results):
    lines = ["| job | published, GiB | plan, GiB | with whole logits, GiB | error | source |", "|---|---|---|---|---|---|"]
    for one in results:
        if "problem" not in one:
            lines.append(f"| {one['row']} | {one['published'] / GIB:.1f} | {one['plan'] / GIB:.1f} | {one['with_logits'] / GIB:.1f} "
                         f"| {one['error']:+.1f}% | {one['source']} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of muster and muster-trainer")
    args = parser.parse_args()
    rows = [row for row in step_times.read_rows() if peak_of(row)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda row: compare(str(args.bin / "muster"), row), rows))
    for one in results:
        if "problem" in one:
            print(f"not compared: {one['row']}: {one['problem']}", file=sys.stderr)
    (ROOT / "bench/results/published_peaks.json").write_text(json.dumps(results, indent=1) + "\n")
    page = ROOT / "docs/memory.md"
    before, rest = page.read_text().split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{table(results)}\n{END}{rest.split(END)[1]}")
    print(table(results))


if __name__ == "__main__":
    main()
