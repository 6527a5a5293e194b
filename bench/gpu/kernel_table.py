#!/usr/bin/env python3
"""Converts ncu's times of one training step into a table: the times of its kernels, and the minimum
times for their bytes and FLOPs.

  ncu --profile-from-start off --metrics gpu__time_duration.sum --clock-control none
  --csv --log-file ncu.csv gpu_bench profile > profile.jsonl
  bench/gpu/kernel_table.py ncu.csv --workload profile.jsonl [--device "NVIDIA H200"]
  [--json table.json]

Without --profile-from-start a CSV has several steps: the table covers the last complete one,
between two of the optimizer's kernels.
"""
import argparse
import collections
import csv
import gzip
import json
import pathlib
import re
import sys

# The default, the 125M model: 12 layers, 768 wide, 16 sequences of 1,024 tokens.
WORKLOAD_125M = {"layers": 12, "width": 768, "heads": 12, "kv_heads": 12, "head_dim": 64, "mlp": 2048, "vocab": 32000, "seq_len": 1024, "sequences": 16}
# The trainer's table of data sheets: {device, fp32, tf32, bf16, fp8, int8}, the more specific
# devices first.
PEAKS = pathlib.Path(__file__).resolve().parents[2] / "trainer_core/report/device_peaks.cc"
PEAKS_ROW = re.compile(r'\{"([^"]+)", [\d.]+, [\d.]+, ([\d.]+), [\d.]+, [\d.]+\}')
# Memory bandwidths in TB/s, of the same data sheets; the trainer does not need them.
BANDWIDTHS = {"H100 PCIe": 2.0, "H100 NVL": 3.9, "H100": 3.35, "H200 NVL": 4.8, "H200": 4.8, "A100": 2.0, "GB200": 8.0, "B200": 8.0, "GH200": 4.8}
# Kinds of kernels, with patterns of their names; the first match counts.
KINDS = (
    ("attention backward", r"bprop|matmul_dq|compute_dot_do_o|attention.*(d_keys|d_query|backward)|d_(keys|query)_kernel"),
    ("attention forward", r"fprop|attention.*forward|sdpa"),
    ("products", r"nvjet|gemm|splitKreduce|cutlass|cublas|xmma"),
    ("casts", r"convert"),
    ("activation backward", r"backward_kernel<.*(Silu|Gelu|Relu)"),
    ("activation forward", r"forward_kernel<.*(Silu|Gelu|Relu)"),
    ("cross-entropy", r"cross_entropy|logit_sums|sliced"),
    ("RoPE", r"rope"),
    ("norm backward", r"(rms|layer)(_norm)?_backward"),
    ("norm parameter gradients", r"parameter_gradients|add_blocks"),
    ("norm forward", r"rms_kernel|layer_norm|norm"),
    ("optimizer", r"adam|adafactor|sgd"),
    ("embedding gradient", r"scatter_kernel|(sort_chunks|merge_chunks|add_rows)_kernel|embedding_backward"),
    ("embedding", r"gather_kernel|embedding"),
    ("clipping and sums", r"reduce_kernel|block_sum"),
)


def kind_of(name):
    return next((kind for kind, pattern in KINDS if re.search(pattern, name)), "others")


def needed(w):
    """Returns (FLOPs, bytes) of a step by kind, with bf16 activations, fp32 weights, gradients and
    moments, and no remat.
    """
    tokens, d, layers, vocab, m = w["sequences"] * w["seq_len"], w["width"], w["layers"], w["vocab"], w["mlp"]
    q, kv = w["heads"] * w["head_dim"], w["kv_heads"] * w["head_dim"]
    weights = layers * (d * (q + 2 * kv) + q * d + 3 * d * m)
    params = weights + 2 * vocab * d
    scores = w["sequences"] * w["heads"] * w["seq_len"] ** 2 / 2 * w["head_dim"]
    norms = 2 * layers + 1
    return {
        "products": (6 * tokens * (weights + vocab * d), 0),
        "attention forward": (4 * scores * layers, 0),
        "attention backward": (10 * scores * layers, 0),
        "casts": (0, 6 * (weights + vocab * d)),  # each weight once per step
        "activation forward": (0, layers * tokens * 3 * m * 2),
        "activation backward": (0, layers * tokens * 5 * m * 2),
        "cross-entropy": (0, tokens * vocab * 8),  # fp32 logits once in, gradients once out
        "RoPE": (0, 2 * layers * tokens * (q + kv) * 4),
        "norm forward": (0, norms * tokens * d * 8),  # stream, delta, sum, normed
        "norm backward": (0, norms * tokens * d * 8),
        "norm parameter gradients": (0, norms * tokens * d * 4),
        "optimizer": (0, params * 28),
        "embedding": (0, tokens * d * 6),
        "embedding gradient": (0, tokens * d * 2 + vocab * d * 4),
        "clipping and sums": (0, params * 4),
    }


def peak_of(device):
    """Returns (bf16 TFLOP/s, TB/s) of a device by its name; zeros for an unknown one."""
    words = set(re.split("[ -]", device))
    rows = PEAKS_ROW.findall(PEAKS.read_text(encoding="utf-8"))
    if not rows:
        sys.exit(f"{PEAKS} has no table of peaks")
    for name, bf16 in rows:
        if words.issuperset(name.split(" ")) and name in BANDWIDTHS:
            return float(bf16), BANDWIDTHS[name]
    return 0, 0


def rows_of(path):
    opened = gzip.open(path, "rt") if path.endswith(".gz") else open(path, encoding="utf-8", errors="replace")
    with opened as file:
        lines = [line for line in file if line.startswith('"')]
    table = list(csv.reader(lines))
    if not table:
        return []
    name, value, unit = (table[0].index(key) for key in ("Kernel Name", "Metric Value", "Metric Unit"))
    scale = {"ns": 1e-9, "us": 1e-6, "usecond": 1e-6, "nsecond": 1e-9, "ms": 1e-3, "msecond": 1e-3, "s": 1.0}
    return [(row[name], float(row[value].replace(",", "")) * scale[row[unit]]) for row in table[1:] if len(row) > max(name, value, unit)]


def one_step(rows):
    ends = [i for i, (name, _) in enumerate(rows) if re.search("adam_kernel|adafactor", name)]
    return rows[ends[-2] + 1:ends[-1] + 1] if len(ends) > 1 else rows


def workload_of(path):
    """Returns (workload, device) from the output of `gpu_bench profile`."""
    workload, device = dict(WORKLOAD_125M), ""
    for line in open(path, encoding="utf-8") if path else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue  # a line printed by ncu
        device = row.get("device", device)
        workload.update({key: row[key] for key in WORKLOAD_125M if key in row})
    return workload, device


def table_of(rows, workload, device):
    """Returns rows by kind, the longest first. `floor_ms` is the time for the bytes and FLOPs at
    the data sheet's rates, `roofline` its share of the time.
    """
    tflops, tbps = peak_of(device)
    time, calls, longest = collections.Counter(), collections.Counter(), {}
    for name, seconds in rows:
        kind = kind_of(name)
        time[kind] += seconds
        calls[kind] += 1
        by_name = longest.setdefault(kind, collections.Counter())
        by_name[re.sub(r"<unnamed>::|muster::|void |\(.*", "", name)[:60]] += seconds
    floors, result = needed(workload), []
    for kind, seconds in time.most_common():
        flops, size = floors.get(kind, (0, 0))
        row = {"kind": kind, "ms": seconds * 1e3, "calls": calls[kind], "share": seconds / sum(time.values()), "longest": longest[kind].most_common(1)[0][0]}
        if flops:
            row.update(gflop=flops * 1e-9, tflops=flops / seconds * 1e-12)
        if size:
            row.update(mb=size * 1e-6, tbps=size / seconds * 1e-12)
        if tflops and (flops or size):
            floor = max(flops / (tflops * 1e12), size / (tbps * 1e12))
            row.update(floor_ms=floor * 1e3, roofline=floor / seconds)
        result.append(row)
    return result


def show(table, device, out=sys.stdout):
    total = sum(row["ms"] for row in table)
    print(f"{device or 'unknown device'}: {total:.2f} ms of kernels in a step, {sum(row['calls'] for row in table)} calls\n", file=out)
    print("| kind | ms | share | calls | needed | reached | floor ms | of roofline | longest kernel |\n|---|---|---|---|---|---|---|---|---|", file=out)
    for row in table:
        need = f"{row['gflop']:.0f} GFLOP" if "gflop" in row else f"{row['mb']:.0f} MB" if "mb" in row else ""
        got = f"{row['tflops']:.0f} TFLOP/s" if "tflops" in row else f"{row['tbps']:.2f} TB/s" if "tbps" in row else ""
        floor = f"{row['floor_ms']:.2f} | {row['roofline']:.0%}" if "floor_ms" in row else " | "
        print(f"| {row['kind']} | {row['ms']:.2f} | {row['share']:.1%} | {row['calls']} | {need} | {got} | {floor} | {row['longest']} |", file=out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv")
    parser.add_argument("--workload", help="output of `gpu_bench profile` (default: the 125M model)")
    parser.add_argument("--device", default="", help="the device's name, if --workload does not have it")
    parser.add_argument("--json", help="file to write the rows to")
    options = parser.parse_args()
    workload, device = workload_of(options.workload)
    device = options.device or device
    table = table_of(one_step(rows_of(options.csv)), workload, device)
    if not table:
        sys.exit(f"{options.csv} has no kernel")
    show(table, device)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"device": device, "workload": workload, "kernels": table}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
