"""Writes the page and the plot of bench/step_times.py."""
import html
import math
import re

# Rows that contradict others, or whose source leaves out what decides them. They are not fitted
# separately and stay in all figures.
REMARKS = {
    "MPT-30b H100 x8 bf16 S8192": "2.6 times the source's step of S4096: attention would take 30% of that step, but takes 19% in MPT-13b by its steps of "
                                  "S4096 and S16384, and less in wider models",
    "MPT-760m H100 x8 bf16 S2048 B384": "the source states 9% less than on 16 GPUs with the same micro-batch",
    "Pax TE Llama2-7B H100 x16": "fine-tuning on BoolQ, not pretraining (the README's table of SFT results)",
    "Pax Llama2-7B H100 x16": "fine-tuning on BoolQ, not pretraining (the README's table of SFT results)",
    "MaxText Llama2-7B H100 x8": "a release a year older than that of the other rows of MaxText on H100",
    "Megatron-GPT-1.7B": "the source prints parameters only; width and layers are chosen to give them",
    "Megatron-GPT-16B": "the source prints parameters only; width and layers are chosen to give them",
    "Megatron-GPT-32B": "the source prints parameters only; width and layers are chosen to give them",
    "Megatron-GPT-7.1B": "the source prints parameters only; width and layers are chosen to give them",
    "fp8 rowwise": "kernels of scaled GEMMs by rows, slower than bf16 in the source",
    "x8 fp8 S32768": "the source's fp8 step is slower than its bf16 step of the same batch",
    "Muster GPT2-124M": "measured before the logits' gradient was written in bf16, whose predicted gain is 1.7 ms at a vocabulary of 32,000 "
                        "(docs/internals/cuda-step.md), so 2.7 ms at 50,304",
}


# Pairs of rows of which no model can meet both if the second one must not take less time per token
# than the first one, with the reason.
PAIRS = [
    ("MPT-760m H100 x8 bf16 S2048 B384", "MPT-760m H100 x16 bf16 S2048 B384", "the same micro-batch, once per step in place of twice, and a network"),
    ("Llama2-70B H100 x1024 fp8", "Llama2-70B H100 x2048 fp8", "the same work per GPU on more nodes"),
    ("Llama3-70B H100 x1024 fp8", "Llama3-70B H100 x2048 fp8", "the same work per GPU on more nodes"),
    ("Llama3-70B H100 x128 bf16", "Llama3-70B H100 x512 bf16", "the same work per GPU on more nodes"),
    ("Llama2-70B H100 x512 bf16", "Llama2-70B H100 x2048 bf16", "the same work per GPU on more nodes"),
]


def tokens_per_gpu(name):
    gpus, length, sequences = (int(re.search(rf" {letter}(\d+)", name)[1]) for letter in "xSB")
    return sequences * length / gpus


def contradictions(rows):
    """Returns lines of a table: a pair, by how much the second row is faster per token, and the
    least error of both."""
    lines = []
    for fast, slow, reason in PAIRS:
        first, second = (next((r for r in rows if words in r["row"]), None) for words in (fast, slow))
        if first is None or second is None:
            continue
        ratio = first["published"] / tokens_per_gpu(first["row"]) / (second["published"] / tokens_per_gpu(second["row"]))
        if ratio > 1:
            lines.append(f"| {first['row']} | {second['row']} | {reason} | {100 * (ratio - 1):.1f}% | {100 * (ratio - 1) / (ratio + 1):.1f}% |\n")
    return lines


def remark_on(row):
    return next((text for words, text in REMARKS.items() if words in row), "")


def percent(value):
    return "–" if value is None else f"{value:+.1f}%"


NOTE = ("The model's form, the fitted rows, the division of programs into calibrations and the shares of kernels were chosen with the errors of all rows "
        "in view. So the errors of other rows may be larger than those of the held-out rows. A calibration with one or two rows has not been tested.")


def summary_of(rows):
    """Figures of all rows. Left out: only rows for which the constants were fitted again."""
    def mean(errors):
        return sum(errors) / max(len(errors), 1)

    errors = [abs(r["error"]) for r in rows]
    held = [abs(r["error"]) for r in rows if not r["fitted"]]
    left = [r["left_out_error"] for r in rows if r["refitted"]]
    sizes = [abs(e) for e in left]
    assumptions = [name for r in rows for name in r["assumptions"]]
    return {"rows": len(rows), "fitted_rows": sum(r["fitted"] for r in rows), "mean_percent": mean(errors), "worst_percent": max(errors),
            "within_5_percent": sum(e <= 5 for e in errors), "held_out_rows": len(held), "held_out_mean_percent": mean(held),
            "held_out_within_5_percent": sum(e <= 5 for e in held), "left_out_rows": len(left), "left_out_mean_percent": mean(sizes),
            "left_out_within_8_percent": sum(e <= 8 for e in sizes), "left_out_worst_percent": max(left, key=abs, default=0.0),
            "derived_rows": sum(r["published_is_derived"] for r in rows), "assumed_rows": {name: assumptions.count(name) for name in sorted(set(assumptions))},
            "note": NOTE}


def published(row):
    return f"{row['published']:.4g}" + ("*" if row["published_is_derived"] else "")


def write_page(out, path):
    summary, rows = out["summary"], out["rows"]

    def assumed(name):
        return summary["assumed_rows"].get(name, 0)

    text = f"""# Forecast and published step times

Written by `bench/step_times.py`; do not edit. The forecasts are those of `muster plan` ([planning.md](planning.md))
with the calibration of each program and device (`configs/calibration`). *Fitted*: the constants were fitted to the row;
all other rows are held out. *Left out*: the error if no row of the same program (in any version), model and device is
fitted. The constants are then fitted to the other rows of the calibration; if none is left, they have their expected
values. These come from the program's documents and from other calibrations (`bench/step_times/priors.py`), which are
fitted without the rows, too. The figures below count only rows whose constants were fitted again.

The model's form, which rows are fitted, the division of programs into calibrations and the shares of kernels were
chosen with the errors of all rows in view. So the errors of other rows may be larger than those of the held-out rows. A
calibration with one or two rows has not been tested.

| rows | fitted | worst | held-out rows | within 5% | mean | left-out rows | within 8% | mean | worst |
|---|---|---|---|---|---|---|---|---|---|
| {summary["rows"]} | {summary["fitted_rows"]} | {summary["worst_percent"]:.1f}% | {summary["held_out_rows"]} | {summary["held_out_within_5_percent"]} | {summary["held_out_mean_percent"]:.1f}% | {summary["left_out_rows"]} | {summary["left_out_within_8_percent"]} | {summary["left_out_mean_percent"]:.1f}% | {percent(summary["left_out_worst_percent"])} |

What the sources do not state:

- Seconds with * are derived: the source states FLOP/s only ({summary["derived_rows"]} rows). They are Muster's count of FLOPs over the
  source's FLOP/s, so a difference between the two counts is a part of the error.
- The micro-batch of {assumed("micro-batch")} rows and the remat policy of {assumed("remat")} rows are assumed.
- Llama 3.1 405B ({assumed("layers")} rows) has 128 layers in place of 126, because the trainer's stages have equal sizes.
- Rows with FSDP and a pipeline ({assumed("data parallelism for FSDP")} rows) are forecast with data parallelism in place of FSDP: these programs
  gather parameters once per step.

![Forecast and published step times](step-times.svg)

## Rows more than 5% off

The cause is stated where the source, or a contradiction between rows, shows it; the others are limits of the model.

| row | published, s | forecast, s | error | cause |
|---|---|---|---|---|
"""
    for row in sorted(rows, key=lambda r: -abs(r["error"])):
        if abs(row["error"]) > 5:
            text += f"| {row['row']} | {published(row)} | {row['predicted']:.4g} | {percent(row['error'])} | {remark_on(row['row'])} |\n"
    text += """
## Rows that contradict each other

The second row of a pair does no less work per token than the first one, but its source states less time. The last
column is the least error that a forecast can have for both.

| row | row with no less work | its further work | faster by | least error |
|---|---|---|---|---|
"""
    text += "".join(contradictions(rows))
    text += "\n## All rows\n\n| row | published, s | forecast, s | error | | left out | source |\n|---|---|---|---|---|---|---|\n"
    for row in sorted(rows, key=lambda r: (r["calibration"], r["family"], r["row"])):
        kind = "fitted" if row["fitted"] else "held out"
        text += (f"| {row['row']} | {published(row)} | {row['predicted']:.4g} | {percent(row['error'])} | {kind} | {percent(row['left_out_error'])} | "
                 f"{row['source']} |\n")
    text += "\n## Not forecast\n\n"
    for row in out["not_planned"]:
        text += f"- {row['row']}: {row['problem']}\n"
    path.write_text(text)


COLOURS = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#9c755f", "#edc948", "#ff9da7", "#79706e"]


def program_of(row):
    """Returns the first word of the program's name: "torchtitan"."""
    return row["calibration"].split("-")[0].split("_")[0]


def write_plot(out, path):
    """A scatter plot of forecast against published seconds, with a band of 5%."""
    rows = out["rows"]
    low = math.log10(min(min(r["published"], r["predicted"]) for r in rows)) - 0.1
    high = math.log10(max(max(r["published"], r["predicted"]) for r in rows)) + 0.1
    size, left, top = 620, 70, 30

    def at(seconds):
        return (math.log10(seconds) - low) / (high - low) * size

    programs = sorted({program_of(r) for r in rows})
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + size + 170}" height="{top + size + 60}" font-family="sans-serif" font-size="13">',
             '<rect width="100%" height="100%" fill="white"/>', f'<rect x="{left}" y="{top}" width="{size}" height="{size}" fill="#f7f7f8"/>']
    shift = math.log10(1.05) / (high - low) * size
    parts.append(f'<polygon points="{left},{top + size - shift:.1f} {left + size - shift:.1f},{top} {left + size},{top} {left + size},{top + shift:.1f} '
                 f'{left + shift:.1f},{top + size} {left},{top + size}" fill="#dfe5ea"/>')
    parts.append(f'<line x1="{left}" y1="{top + size}" x2="{left + size}" y2="{top}" stroke="#888"/>')
    for power in range(math.ceil(low), math.floor(high) + 1):
        x = at(10 ** power)
        parts.append(f'<line x1="{left + x:.1f}" y1="{top}" x2="{left + x:.1f}" y2="{top + size}" stroke="#ddd"/>')
        parts.append(f'<line x1="{left}" y1="{top + size - x:.1f}" x2="{left + size}" y2="{top + size - x:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left + x:.1f}" y="{top + size + 18}" text-anchor="middle">{10 ** power:g} s</text>')
        parts.append(f'<text x="{left - 8}" y="{top + size - x + 4:.1f}" text-anchor="end">{10 ** power:g} s</text>')
    for row in rows:
        colour = COLOURS[programs.index(program_of(row)) % len(COLOURS)]
        fill = "none" if row["fitted"] else colour
        parts.append(f'<ellipse cx="{left + at(row["published"]):.1f}" cy="{top + size - at(row["predicted"]):.1f}" rx="4" ry="4" fill="{fill}" stroke="{colour}" '
                     f'stroke-width="1.5" fill-opacity="0.75"><title>{html.escape(row["row"])}: {row["error"]:+.1f}%</title></ellipse>')
    for i, program in enumerate(programs):
        y = top + 14 + 22 * i
        parts.append(f'<ellipse cx="{left + size + 22}" cy="{y - 4}" rx="5" ry="5" fill="{COLOURS[i % len(COLOURS)]}"/><text x="{left + size + 34}" y="{y}">{program}</text>')
    y = top + 14 + 22 * len(programs)
    parts.append(f'<ellipse cx="{left + size + 22}" cy="{y - 4}" rx="4" ry="4" fill="none" stroke="#555" stroke-width="1.5"/><text x="{left + size + 34}" y="{y}">fitted</text>')
    parts.append(f'<rect x="{left + size + 15}" y="{y + 12}" width="14" height="10" fill="#dfe5ea"/><text x="{left + size + 34}" y="{y + 22}">within 5%</text>')
    parts.append(f'<text x="{left + size / 2}" y="{top + size + 42}" text-anchor="middle">published step time</text>')
    parts.append(f'<text x="18" y="{top + size / 2}" text-anchor="middle" transform="rotate(-90 18 {top + size / 2})">forecast step time</text>')
    path.write_text("\n".join(parts) + "\n</svg>\n")
