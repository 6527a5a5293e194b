#!/usr/bin/env python3
"""Compares the step times that `muster plan` forecasts with published and measured ones, and fits
the constants of configs/calibration.

  bench/step_times.py --bin build/release/bin                 # table, JSON, plot
  bench/step_times.py --bin build/release/bin --fit           # fits the constants first

Rows are in bench/step_times/published.csv. Each row becomes a job of base.yml, whose work the
trainer's own code gives (`muster-trainer step-times`). A calibration is a file of
configs/calibration for a program and a device; --fit fits its constants to the rows that it names
under `fitted_rows`, at most a third of all rows, and writes them. All other rows are held out.
Leave-one-family-out: the constants are fitted again without the rows of a family (a program in any
version, a model and a device), whose rows are then forecast. The expected values of the constants
(priors.py) come from calibrations that are fitted without these rows, too.

The model's form, the fitted rows of small calibrations (CHOSEN in fit.py), the division of programs
into calibrations and the shares of kernels were chosen with the errors of all rows in view. So the
errors of other rows may be larger than those of the held-out ones.

Where a source states FLOP/s only, the published seconds are Muster's count of FLOPs over them.
Where it does not state the micro-batch or the remat policy, they are assumed (Row.assumptions).

Writes bench/results/step-times.json, docs/step-times.md and docs/step-times.svg.
"""
import argparse
import concurrent.futures
import csv
import json
import math
import pathlib
import re
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parent
ROOT = BENCH.parent
sys.path.insert(0, str(BENCH))
from step_times.calibration_file import write_calibration  # noqa: E402
from step_times.fit import Calibration, FitsWithout, choose_rows  # noqa: E402
from step_times.models import MODELS, REMAT, REMAT_OF_FRAMEWORK, TOPOLOGIES  # noqa: E402
from step_times.report import summary_of, write_page, write_plot  # noqa: E402

CONFIG = ROOT / "configs/base.yml"
CALIBRATION = ROOT / "configs/calibration"


def flat_yaml(path):
    """Reads a file of `key: value` lines and of lists of `- value`; numbers become floats."""
    out, key = {}, None
    for line in path.read_text().splitlines():
        line = line.split("  #")[0].rstrip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("  - "):
            out[key].append(line[4:].strip().strip('"'))
            continue
        key, value = line.split(":", 1)
        value = value.strip().strip('"')
        if not value:
            out[key] = []
            continue
        try:
            out[key] = float(value)
        except ValueError:
            out[key] = value
    return out


class Row:
    """A published or measured step."""

    def __init__(self, fields):
        self.fields = fields
        self.framework, self.gpu, self.model = fields["framework"], fields["gpu"], fields["model"].split(" ")[0]
        self.precision, self.source = fields["precision"], fields["source"]
        self.gpus, self.seq = int(fields["num_gpus"]), int(fields["seq"])
        layout = re.findall(r"([a-z]+)(\d+)", fields["dp_or_fsdp"].replace("zero2-", "fsdp"))
        self.layout = {name: int(count) for name, count in layout}
        if "hsdp" in self.layout:  # shards in a node, copies between nodes
            self.layout = {"fsdp": 8, "dp": self.layout["hsdp"] // 8}
        number = lambda name, default=1: int(fields[name] or default)  # noqa: E731
        self.tp, self.pp, self.cp, self.vp = number("tp"), number("pp"), number("cp"), number("vp")
        self.gbs, self.mbs = number("gbs", 0), number("mbs", 0)
        self.name = " ".join(str(x) for x in (self.framework, self.model, self.gpu, f"x{self.gpus}", self.precision, f"S{self.seq}", f"B{self.gbs}",
                                               fields["dp_or_fsdp"], f"tp{self.tp}" if self.tp > 1 else "", f"pp{self.pp}" if self.pp > 1 else "",
                                               fields["remat"]) if x)
        seconds = fields["step_seconds"]
        self.published = float(seconds) if seconds else None
        self.tflops = float(fields["tflops_per_gpu"]) if fields["tflops_per_gpu"] else None
        # Constants that the source states for this step, in place of the calibration's.
        stated = {"unfused attention": "attention_fused", "no sequence parallelism": "sequence_parallel"}
        self.overrides = {constant: 0 for words, constant in stated.items() if words in fields["notes"]}
        self.problem = ""  # why the row cannot be planned

    @property
    def is_derived(self):
        """Whether prepare() computes the published seconds from the source's FLOP/s."""
        return not self.fields["step_seconds"]

    @property
    def assumptions(self):
        """The values that words() assumes because the source or the trainer lacks them."""
        sharded = self.layout.get("fsdp", 1) > 1
        known = {"micro-batch": not self.mbs, "remat": not self.fields["remat"], "layers": self.model == "Llama3.1-405B",
                 "data parallelism for FSDP": self.pp > 1 and sharded}
        return [name for name, is_assumed in known.items() if is_assumed]

    @property
    def program(self):
        words = self.framework.lower().replace("-", "").split(" ")
        if words[0] == "torchtitan":  # these variants run other kernels
            words += [kind.lower() for kind in ("eager", "rowwise", "asyncTP") if kind in self.precision]
        return "_".join(words)

    @property
    def calibration(self):
        return f"{self.program}-{TOPOLOGIES[self.gpu]}"

    @property
    def family(self):
        """The program in any version and variant, the model's shape and the device. Rows of a
        family may belong to several calibrations, which share constants (priors.py)."""
        shape = next(name for name, keys in MODELS.items() if keys == MODELS[self.model])
        return f"{self.program.split('_')[0]}, {shape}, {self.gpu}"

    @property
    def in_8_bits(self):
        return self.precision.startswith("fp8")

    def words(self):
        """The words of `muster plan`."""
        keys = dict(MODELS[self.model])
        # The ranks of a group of tensor, context and pipeline ranks compute the same sequences.
        copies = self.gpus // (self.tp * self.pp * self.cp)
        if not self.gbs:
            raise ValueError("the source does not state the batch")
        # Without a pipeline, more micro-batches would only take longer.
        mbs = self.mbs or max(1, self.gbs // copies // (4 * self.pp if self.pp > 1 else 1))
        micro_batches = self.gbs // copies // mbs
        if micro_batches < 1 or self.gbs % (copies * mbs):
            micro_batches, mbs = 1, self.gbs // copies
        per_step = micro_batches if self.pp == 1 else 1
        keys.update(override_model_config=True, max_target_length=self.seq, dtype="bfloat16", dataset_type="synthetic",
                    gradient_accumulation_steps=per_step, per_device_batch_size=self.gbs / per_step / self.gpus)
        if "gpt3" in str(keys.get("model_name", "")):
            keys["trainable_position_size"] = self.seq
        remat = self.fields["remat"] or REMAT_OF_FRAMEWORK.get(self.program_name(), "none")
        keys["remat_policy"] = "none" if remat == "none" and self.program == "muster" else REMAT[remat]
        if self.in_8_bits:
            keys["quantization"] = "fp8"
        node = 256 if self.gpu == "v5e" else 512 if self.gpu == "v5p" else 8
        rest = {"tensor": self.tp, "context": self.cp, "pipeline": self.pp, "fsdp": self.layout.get("fsdp", 1), "data": self.layout.get("dp", 1)}
        rest["data"] = rest["data"] if math.prod(rest.values()) == self.gpus else self.gpus // (math.prod(rest.values()) // rest["data"])
        if self.pp > 1:  # these programs gather parameters once per step
            rest["data"] *= rest["fsdp"]
            rest["fsdp"] = 1
        room = min(node, self.gpus)
        for axis in ("tensor", "context", "fsdp", "data", "pipeline"):
            inside = math.gcd(rest[axis], room)
            room //= inside
            keys[f"ici_{axis}_parallelism"] = inside
            keys[f"dcn_{axis}_parallelism"] = rest[axis] // inside
        if self.pp > 1:
            keys["num_pipeline_microbatches"] = micro_batches
            if self.vp > 1:
                keys["num_pipeline_repeats"] = self.vp
        if self.gpu == "v5p":
            topology = f"v5p-{self.gpus * 2}"
        else:
            topology = f"{TOPOLOGIES[self.gpu]}-{self.gpus}" if self.gpus <= node or self.gpu != "v5e" else "v5e-256"
        if self.gpu == "v5e":
            keys["compile_topology_num_slices"] = self.gpus // 256
        keys["compile_topology"] = topology
        return [f"{key}={value}" for key, value in keys.items()]

    def program_name(self):
        return self.framework.split(" ")[0]


def read_rows():
    with (BENCH / "step_times/published.csv").open() as file:
        return [Row(fields) for fields in csv.DictReader(file)]


def plan(muster, row):
    try:
        words = row.words()
    except ValueError as error:
        row.problem = str(error)
        return None
    done = subprocess.run([muster, "plan", str(CONFIG), *words, "--json"], capture_output=True, text=True)
    if not done.stdout:
        row.problem = done.stderr.strip().splitlines()[-1] if done.stderr else "no output"
        return None
    shown = json.loads(done.stdout)
    if shown["sequences"] != row.gbs:
        row.problem = f"planned {shown['sequences']} sequences in place of {row.gbs}"
        return None
    return shown["config"]


class Forecasts:
    """`muster-trainer step-times`, which has recorded the rows."""

    def __init__(self, trainer):
        self.process = subprocess.Popen([trainer, "step-times"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def request(self, line):
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit("muster-trainer step-times ended")
        return json.loads(answer)

    def seconds(self, rows, device, constants):
        alike = {}
        for row in rows:
            alike.setdefault(tuple(row.overrides.items()), []).append(row.name)
        seconds = {}
        for overrides, names in alike.items():
            machine = {"device": device, "constants": {**constants, **dict(overrides)}}
            seconds.update(zip(names, (one["seconds"] for one in self.request({"machine": machine, "jobs": names}))))
        return [seconds[row.name] for row in rows]


def device_of(gpu):
    topology = flat_yaml(ROOT / f"configs/topologies/{TOPOLOGIES[gpu]}.yml")
    device = {key: value for key, value in topology.items() if isinstance(value, float)}
    return {"fp8_tflops": 0.0, "multiprocessors": 0.0, **device}


def name_of(gpu):
    return flat_yaml(ROOT / f"configs/topologies/{TOPOLOGIES[gpu]}.yml")["device"]


def calibration_of(name, group, forecasts, fits):
    """Returns the calibration with the constants and fitted rows of its file; if `fits`, without
    constants and with newly chosen rows."""
    device = device_of(group[0].gpu)
    if fits:
        return Calibration(name, group, choose_rows(name, group), forecasts, device)
    stored = flat_yaml(CALIBRATION / f"{name}.yml")
    fitted = [row for row in group if row.name in stored["fitted_rows"]]
    calibration = Calibration(name, group, fitted, forecasts, device)
    calibration.constants = {key: stored[key] for key in calibration.prior.means}
    return calibration


def prepare(bin_folder, rows):
    """Plans and records all rows. Sets the published seconds of rows that state FLOP/s."""
    forecasts = Forecasts(str(bin_folder / "muster-trainer"))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        configs = list(pool.map(lambda row: plan(str(bin_folder / "muster"), row), rows))
    for row, config in zip(rows, configs):
        if config is None:
            continue
        forecasts.request({"job": row.name, "config": config})
        if row.published is None and row.tflops:
            out = forecasts.request({"machine": {"device": device_of(row.gpu)}, "jobs": [row.name]})[0]
            row.published = out["tflops"] / row.tflops
        if row.published is None:
            row.problem = "the source states no step time that the batch gives"
    return forecasts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of muster and muster-trainer")
    parser.add_argument("--fit", action="store_true", help="fit the constants and write configs/calibration")
    parser.add_argument("--only", default="", help="only calibrations whose name contains this")
    args = parser.parse_args()
    rows = [row for row in read_rows() if args.only in row.calibration]
    forecasts = prepare(args.bin, rows)
    for row in rows:
        if row.problem:
            print(f"not planned: {row.name}: {row.problem}", file=sys.stderr)
    planned = [row for row in rows if not row.problem]
    groups = {}
    for row in planned:
        groups.setdefault(row.calibration, []).append(row)
    calibrations = [calibration_of(name, group, forecasts, args.fit) for name, group in sorted(groups.items())]
    fits = FitsWithout(calibrations)
    results = []
    for calibration in calibrations:
        calibration.borrow(fits.whole)
        if args.fit:
            calibration.fit_all()
        own = calibration.results(fits)
        if args.fit:
            write_calibration(CALIBRATION, calibration, name_of(calibration.group[0].gpu), max(abs(r["error"]) for r in own))
        results += own
    for result in sorted(results, key=lambda r: -abs(r["error"])):
        left = "      –" if result["left_out_error"] is None else f"{result['left_out_error']:+6.1f}%"
        kind = "fitted  " if result["fitted"] else "held out"
        print(f"{result['predicted']:9.3f} {result['published']:9.3f} {result['error']:+7.1f}% {left}  {kind}  {result['row']}")
    summary = summary_of(results)
    print(json.dumps(summary, indent=1))
    if not args.only:
        problems = [{"row": row.name, "problem": row.problem} for row in rows if row.problem]
        out = {"summary": summary, "rows": results, "not_planned": problems}
        (ROOT / "bench/results/step-times.json").write_text(json.dumps(out, indent=1) + "\n")
        write_page(out, ROOT / "docs/step-times.md")
        write_plot(out, ROOT / "docs/step-times.svg")


if __name__ == "__main__":
    main()
