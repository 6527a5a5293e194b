#!/usr/bin/env python3
"""Measures the overhead of distributing a training step over 8 processes of this machine, per axis
of the mesh, beside PyTorch over Gloo.

  bench/mesh.py [--bin build/release/bin] [--axes data,fsdp] [--rounds 5]
  [--out bench/results/mesh.json]

The overhead of an axis is the step time on 8 processes of one thread each, divided by that of one
process with a thread per core, minus 1. Model, global batch and so the step's FLOPs are the same,
and all cores are busy in both cases. The overhead consists of messages and waiting for them, work
that several ranks repeat (a replica's optimizer, packing of weights), smaller GEMMs, and
eight processes that share few cores. Each trainer is compared with its own single process, so slow
GEMMs hide a trainer's overhead. Therefore step times are listed beside the ratios, and
`cpu_overhead` is the same ratio of the processor times of all ranks, which excludes idle waiting.

The programs of an axis are started and warmed first, then they alternate; figures are medians over
all timed steps. PyTorch is eager: a compiled single process would be faster, and its overhead
larger. Rows without a PyTorch figure give the reason. An axis that this version does not run is
omitted. Takes some 5 minutes on 2 cores.

The peers' Python is $MUSTER_PEERS_PYTHON, or a virtual environment made in build/peers from
bench/peers/requirements.txt.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
from dataclasses import dataclass, field

BENCH = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH))
from peers.environment import describe_run, peers_python  # noqa: E402
from peers.program import Program  # noqa: E402

RANKS = 8
STEPS_PER_ROUND = 1
PEER = BENCH / "peers/mesh_torch.py"
# The number of parameters lets 8 replicas with their optimizers fit into a small machine's memory.
DENSE = dict(layers=8, width=256, heads=8, mlp=688, vocab=4096, seq=256, batch=16)
SPARSE = dict(DENSE, mlp=344, experts=8)


@dataclass
class Axis:
    torch: str | None  # the peer's mode
    note: str = ""  # describes the peer, or gives the reason for its absence
    model: dict = field(default_factory=lambda: DENSE)
    extra: dict = field(default_factory=dict)  # settings of the distributed step only


AXES = {
    "data": Axis("ddp", "DistributedDataParallel"),
    "fsdp": Axis("fsdp2", "FSDP2, fully_shard of each layer"),
    "tensor": Axis("tensor", "DTensor, parallelize_module with sequence parallel and loss_parallel"),
    "sequence": Axis(None, "PyTorch has no all-to-all between sequence and heads"),
    "context": Axis(None, "PyTorch's context_parallel replaces attention kernels of GPUs alone"),
    "expert": Axis(None, "PyTorch has no experts of its own", SPARSE),
    "pipeline": Axis("pipeline", "torch.distributed.pipelining, Schedule1F1B", extra=dict(micro_batches=8)),
}


class Training(Program):
    def __init__(self, name, command, threads):
        super().__init__(name, command, threads)
        self.answers = []

    def run(self, steps):
        self.answers.append(self.request(f"steps {steps}"))

    def step_seconds(self):
        return statistics.median(s for answer in self.answers for s in answer["seconds"])

    def median(self, key):
        return statistics.median(answer[key] for answer in self.answers)


def words(values):
    return [f"{key}={value}" for key, value in values.items()]


def one_process(trainer, binaries, model, cores):
    command = [str(binaries / "mesh")] if trainer == "muster" else [peers_python(), str(PEER), "one", "1"]
    return Training(f"{trainer} one process", [*command, *words(model), f"threads={cores}"], cores)


def spread(trainer, binaries, name):
    """Returns None if this version or PyTorch does not support the axis."""
    axis = AXES[name]
    values = words({**axis.model, **axis.extra, "threads": 1})
    if trainer == "pytorch":
        return Training(f"pytorch {name}", [peers_python(), str(PEER), axis.torch, str(RANKS), *values], 1) if axis.torch else None
    program = Training(f"muster {name}", [str(binaries / "mesh"), *values, f"{name}={RANKS}"], 1)
    if program.ready["ready"]:
        return program
    print(f"  {name}: {program.ready['why']}", file=sys.stderr)
    program.close()
    return None


def measure(binaries, name, rounds, cores):
    """Measures one axis: its programs and those of one process alternate. Returns distributed and
    single results by trainer.
    """
    running = []
    try:
        pairs = {}
        for trainer in ("muster", "pytorch"):
            program = spread(trainer, binaries, name)
            if program is None and trainer == "muster":
                return {}
            if program is not None:
                running.append(program)
                running.append(one_process(trainer, binaries, AXES[name].model, cores))
                pairs[trainer] = running[-2:]
        for _ in range(rounds):
            for program in running:
                program.run(STEPS_PER_ROUND)
        return pairs
    finally:
        for program in running:
            program.close()


def figures(program, one):
    row = {
        "step_seconds": round(program.step_seconds(), 4),
        "one_process_step_seconds": round(one.step_seconds(), 4),
        "overhead": round(program.step_seconds() / one.step_seconds() - 1, 3),
        "cpu_seconds": round(program.median("cpu_seconds"), 4),
        "one_process_cpu_seconds": round(one.median("cpu_seconds"), 4),
        "cpu_overhead": round(program.median("cpu_seconds") / one.median("cpu_seconds") - 1, 3),
        "loss": round(program.median("loss"), 4),
    }
    for key in ("comm_seconds", "comm_hidden_fraction"):
        if key in program.answers[0]:
            row[key] = round(program.median(key), 4)
    return row


def row_of(name, pairs):
    row = {"axis": name, "peer": AXES[name].note, "model": "dense" if AXES[name].model is DENSE else "sparse"}
    for trainer, (program, one) in pairs.items():
        row[trainer] = figures(program, one)
    if "pytorch" in row:
        row["pytorch_step_over_ours"] = round(row["pytorch"]["step_seconds"] / row["muster"]["step_seconds"], 2)
    print(f"  {name:9}", *(f"{trainer} {row[trainer]['step_seconds']:.3f} s ({row[trainer]['overhead']:+.1%})" for trainer in pairs),
          file=sys.stderr)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=BENCH.parent / "build/release/bin")
    parser.add_argument("--axes", default=",".join(AXES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, default=BENCH / "results/mesh.json")
    args = parser.parse_args()
    axes = args.axes.split(",")
    cores = len(os.sched_getaffinity(0))
    rows, versions = [], set()
    for name in axes:
        pairs = measure(args.bin, name, args.rounds, cores)
        versions |= {program.ready["version"] for pair in pairs.values() for program in pair if "version" in program.ready}
        if pairs:
            rows.append(row_of(name, pairs))
    report = {**describe_run(), "what": "a training step on 8 processes over one on one process, fp32",
              "ranks": RANKS, "threads_of_one_process": cores, "rounds": args.rounds, "pytorch": " ".join(sorted(versions)),
              "models": {"dense": DENSE, "sparse": SPARSE}, "axes": rows}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
