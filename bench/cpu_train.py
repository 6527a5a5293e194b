#!/usr/bin/env python3
"""Measures tokens per second of forward + backward + AdamW (clipped) in one process, beside PyTorch
and JAX.

  bench/cpu_train.py --bin build/release/bin [--out bench/results/cpu_train.json] [--sizes S,M]
  [--threads 1,2]
                     [--dtype float32|bfloat16] [--peers pytorch_compile,jax]

With bfloat16 all programs have bf16 activations. PyTorch runs with autocast and with bf16 weights,
eager and compiled; the fastest is the peer. On an AMD processor with AVX-512, PyTorch also runs in
fp32 with AVX-512 enabled in MKL.

All programs of a size and thread count are started and warmed first; then they alternate, so that
other load on the machine affects all alike. The figure is the median over all timed steps. Takes
about 7 minutes; --peers selects peers by the beginning of their names.

The peers' Python is $MUSTER_PEERS_PYTHON, or a virtual environment made in build/peers from
bench/peers/requirements.txt.
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

BENCH = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH))
from peers.cpu_train_common import SIZES  # noqa: E402
from peers.environment import describe_run, peers_python  # noqa: E402
from peers import mkl_vendor  # noqa: E402
from peers.program import Program  # noqa: E402

ROUNDS = {"S": 5, "M": 4}
STEPS_PER_ROUND = {"S": 3, "M": 1}
PROFILE_STEPS = {"S": 5, "M": 2}


class TrainingProgram(Program):
    def __init__(self, name, command, threads, preload):
        super().__init__(name, command, threads, preload)
        self.seconds, self.loss = [], None

    def run(self, steps):
        answer = self.request(f"steps {steps}")
        self.seconds += answer["seconds"]
        self.loss = answer["loss"]


def step_flops(c):
    """FLOPs of a step's matmuls: MaxText's formula, attention halved for causality."""
    tokens, d = c["batch"] * c["seq"], c["width"]
    matrices = c["layers"] * (4 * d * d + 3 * d * c["mlp"]) + c["vocab"] * d
    return 6 * tokens * matrices + 3 * c["layers"] * 4 * tokens * c["seq"] * d / 2


def commands(binaries, size, threads, dtype, preload):
    """Returns, by name, the command and its LD_PRELOAD."""
    python, peers = peers_python(), BENCH / "peers"
    where = [size, str(threads)]
    result = {"muster": ([str(binaries / "cpu_train"), *where, "none", dtype], None)}

    def torch(name, mode, precision, library=None):
        result[f"pytorch_{name}"] = ([python, str(peers / "cpu_train_torch.py"), *where, mode, precision], library)

    for mode in ("eager", "compile"):
        if dtype == "bfloat16":
            torch(f"{mode}_autocast", mode, "autocast")
            torch(f"{mode}_bf16_weights", mode, "bfloat16")
            continue
        torch(mode, mode, "float32")
        if preload:
            torch(f"{mode}_mkl_avx512", mode, "float32", preload)
    result["jax"] = ([python, str(peers / "cpu_train_jax.py"), *where, dtype], None)
    return result


def time_by_part(program, size):
    answer = program.request(f"profile {PROFILE_STEPS[size]}")
    step_ms = statistics.mean(answer["seconds"]) * 1e3
    rows = sorted(answer["ops"], key=lambda row: -row["ms"])
    for row in rows:
        row["share"] = round(row["ms"] / step_ms, 4)
        row["ms"] = round(row["ms"], 3)
        if "gflops_per_second" in row:
            row["gflops_per_second"] = round(row["gflops_per_second"], 1)
    return rows


def measure(binaries, size, threads, dtype, preload, peers):
    print(f"size {size}, {threads} thread(s), {dtype}", file=sys.stderr)
    programs = []
    try:
        for name, (command, library) in commands(binaries, size, threads, dtype, preload).items():
            if name == "muster" or name.startswith(peers):
                programs.append(TrainingProgram(name, command, threads, library))
        for _ in range(ROUNDS[size]):
            for program in programs:
                program.run(STEPS_PER_ROUND[size])
        ops = time_by_part(programs[0], size)
    finally:
        for program in programs:
            program.close()
    return summarise(programs, ops, size, threads)


def summarise(programs, ops, size, threads):
    tokens = SIZES[size]["batch"] * SIZES[size]["seq"]
    peak = programs[0].ready["gemm_peak_tflops"]
    ours = statistics.median(programs[0].seconds)
    results = {}
    for program in programs:
        median = statistics.median(program.seconds)
        results[program.name] = {
            "tokens_per_second": round(tokens / median, 1),
            "step_seconds_median": round(median, 5),
            "step_seconds_min": round(min(program.seconds), 5),
            "steps_timed": len(program.seconds),
            "fraction_of_gemm_peak": round(step_flops(SIZES[size]) / median / (peak * 1e12), 3),
            "muster_is_faster_by": round(median / ours, 2),
            "loss": round(program.loss, 4),
            # The peak of the program's own matmul, if it reports one: PyTorch uses MKL.
            "own_gemm_peak_tflops": round(program.ready["gemm_peak_tflops"], 4) if "gemm_peak_tflops" in program.ready else None,
            "version": program.ready.get("version"),
        }
        print(f"  {program.name:28} {results[program.name]['tokens_per_second']:9.0f} tokens/s"
              f"  x{results[program.name]['muster_is_faster_by']:.2f}", file=sys.stderr)
    return {"size": size, "threads": threads, "config": SIZES[size], "gemm_peak_tflops": round(peak, 4),
            "results": results, "where_our_time_goes": ops}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=BENCH.parent / "build/release/bin")
    parser.add_argument("--out", type=pathlib.Path, default=BENCH / "results/cpu_train.json")
    parser.add_argument("--sizes", default="S,M")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--peers", default="", help="beginnings of names, by commas; all when empty")
    args = parser.parse_args()
    peers = tuple(args.peers.split(","))
    with tempfile.TemporaryDirectory() as folder:
        preload = mkl_vendor.build(folder) if mkl_vendor.is_needed() else None
        cases = [measure(args.bin, size, int(threads), args.dtype, preload, peers) for size in args.sizes.split(",")
                 for threads in args.threads.split(",")]
    report = {**describe_run(), "what": f"forward + backward + AdamW with clipping, {args.dtype}, one process",
              "cases": cases}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
