"""Fits the constants of a calibration to rows, by damped least squares of relative errors."""
import math

# Constants that a fit may change, with their bounds and the scale of a step. A fit changes only
# those on which its rows depend.
BOUNDS = {
    "gemm_fraction": (0.3, 0.95),
    "gemm_fp8_fraction": (0.15, 0.9),
    "attention_forward_fraction": (0.08, 0.8),
    "attention_backward_fraction": (0.08, 0.7),
    "memory_passes": (0.2, 6),
    "kernel_us": (0.1, 60),
    "step_ms": (0, 300),
    "node_link_fraction": (0.1, 0.98),
    "network_link_fraction": (0.1, 0.98),
    "overlap_slowdown": (0, 1),
    "inline_overlap": (0, 0.95),
    "host_copy_overlap": (0, 1),
    "reduction_overlap": (0, 0.95),
    "straggling": (0, 0.06),
}
STARTS = {
    "gemm_fraction": 0.72, "gemm_fp8_fraction": 0.5, "gemm_depth": 100, "attention_forward_fraction": 0.55, "attention_backward_fraction": 0.4,
    "attention_length": 300, "attention_fused": 1, "memory_fraction": 0.8, "memory_passes": 1, "kernel_us": 1, "step_ms": 0,
    "node_link_fraction": 0.75, "network_link_fraction": 0.75, "overlap_slowdown": 0.1, "inline_overlap": 0, "host_copy_overlap": 0, "reduction_overlap": 0, "one_queue": 1, "straggling": 0,
}
# Deviations from the starts that cost as much as an error of 1%: keeps constants that few rows
# determine near plausible values.
WIDTHS = {"gemm_fraction": 0.15, "gemm_fp8_fraction": 0.15, "attention_forward_fraction": 0.15, "attention_backward_fraction": 0.12, "memory_passes": 0.7,
          "kernel_us": 4, "step_ms": 15, "node_link_fraction": 0.15, "network_link_fraction": 0.15, "overlap_slowdown": 0.15, "inline_overlap": 0.3, "host_copy_overlap": 0.3, "reduction_overlap": 0.3, "straggling": 0.008}


def solve(matrix, vector):
    """Gaussian elimination with pivots."""
    n = len(vector)
    a = [list(row) + [v] for row, v in zip(matrix, vector)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(a[r][i]))
        a[i], a[pivot] = a[pivot], a[i]
        for r in range(i + 1, n):
            factor = a[r][i] / a[i][i]
            for c in range(i, n + 1):
                a[r][c] -= factor * a[i][c]
    x = [0.0] * n
    for i in reversed(range(n)):
        x[i] = (a[i][n] - sum(a[i][c] * x[c] for c in range(i + 1, n))) / a[i][i]
    return x


# Residuals above this, in percent, count linearly instead of by their squares (Huber, 1964), so
# that rows that contradict all others do not bend the constants.
HUBER = 3.0


def loss(residuals):
    return sum(r * r if abs(r) <= HUBER else 2 * HUBER * abs(r) - HUBER ** 2 for r in residuals)


class Fit:
    def __init__(self, rows, forecasts, device, starts):
        self.rows, self.forecasts, self.device, self.starts = rows, forecasts, device, starts

    def residuals(self, constants):
        seconds = self.forecasts.seconds(self.rows, self.device, constants)
        return [100 * math.log(s / row.published) for s, row in zip(seconds, self.rows)]

    def prior(self, constants, names):
        return [(constants[name] - self.starts[name]) / WIDTHS[name] for name in names]

    def run(self, rounds=12):
        names = list(BOUNDS)
        constants = dict(self.starts)
        if not self.rows:
            return constants
        now = self.residuals(constants)
        damping = 1.0
        cost = loss(now) + sum(p * p for p in self.prior(constants, names))
        for _ in range(rounds):
            columns = []
            for name in names:
                step = 0.02 * WIDTHS[name]
                moved = dict(constants)
                if moved[name] + step > BOUNDS[name][1]:
                    step = -step
                moved[name] += step
                columns.append([(b - a) / step for a, b in zip(now, self.residuals(moved))])
            n = len(names)
            prior = self.prior(constants, names)
            weights = [1 if abs(r) <= HUBER else HUBER / abs(r) for r in now]
            gradient = [sum(w * c * r for w, c, r in zip(weights, columns[i], now)) + prior[i] / WIDTHS[names[i]] for i in range(n)]
            normal = [[sum(w * x * y for w, x, y in zip(weights, columns[i], columns[j])) for j in range(n)] for i in range(n)]
            for i in range(n):
                normal[i][i] += 1 / WIDTHS[names[i]] ** 2
            improved = False
            for _ in range(6):
                damped = [[v * (1 + damping) if i == j else v for j, v in enumerate(row)] for i, row in enumerate(normal)]
                step = solve(damped, gradient)
                moved = {**constants}
                for i, name in enumerate(names):
                    low, high = BOUNDS[name]
                    moved[name] = min(high, max(low, constants[name] - step[i]))
                after = self.residuals(moved)
                cost_after = loss(after) + sum(p * p for p in self.prior(moved, names))
                if cost_after < cost:
                    improved = cost - cost_after > 1e-4 * cost
                    constants, now, cost, damping = moved, after, cost_after, damping / 5
                    break
                damping *= 4
            if not improved:
                break
        return constants


# Rows of small calibrations that determine their constants: by words of their names.
CHOSEN = {
    "muster-h200": ("Muster 125M", "Muster Llama2-7B"),
    "muster_0dde019-h200": ("125M", "Llama2-7B"),
    "pax_te-h100": ("126M", "Pax-GPT-5B H100 x256 bf16", "Pax-GPT-175B H100 x256 fp8"),
    "pax_te-a100": ("126M", "175B"),
    "maxtext-v5p": ("v5p x512", "v5p x128"),
    "torchtitan_202412_asynctp-h100-96gb-500w": ("S8192", "S131072"),
    "torchtitan_202412-h100-96gb-500w": ("Llama3.1-70B", "fp8 compile S8192 B16", "S131072"),
}


def choose_rows(name, group):
    """Returns the rows that CHOSEN names; if it names none, rows that are spread over precisions
    and sizes of models: at most half of them, and at least one."""
    count = max(1, len(group) // 2) if len(group) <= 9 else len(group) // 4 if len(group) <= 30 else len(group) // 7
    if name in CHOSEN:
        return [row for words in CHOSEN[name] for row in group if words in row.name]
    ordered = sorted(group, key=lambda r: (r.in_8_bits, r.published * r.gpus / (r.gbs * r.seq), r.name))
    return [ordered[int((i + 0.5) * len(ordered) / count)] for i in range(count)]


def text_of(constants, fitted, header, facts):
    lines = [f"# {line}" for line in header]
    lines += [f"{key}: {value}" for key, value in facts.items()]
    lines += [f"{key}: {constants[key]:.4g}" for key in STARTS]
    lines += ["# The rows of bench/step_times/published.csv to which the constants were fitted.", "fitted_rows:"]
    return "\n".join(lines + [f'  - "{row}"' for row in fitted]) + "\n"


def error(predicted, published):
    """Returns the error of a forecast, in percent."""
    return 100 * (predicted / published - 1)


def fit(name, group, forecasts, device, device_name, path, read, writes):
    """Fits (if `writes`) and forecasts the rows of a calibration. Returns a record per row."""
    existing = read(path) if path.exists() else {}
    by_name = {row.name: row for row in group}
    starts = {**STARTS, "one_queue": 1.0 if name.startswith("muster") else 0.0}
    fitted = [by_name[r] for r in existing.get("fitted_rows", []) if r in by_name] or choose_rows(name, group)
    constants = {key: existing.get(key, value) for key, value in starts.items()}
    if writes:
        constants = Fit(fitted, forecasts, device, starts).run()
        constants = {key: float(f"{value:.4g}") for key, value in constants.items()}
    seconds = forecasts.seconds(group, device, constants)
    errors = [error(predicted, row.published) for predicted, row in zip(seconds, group)]
    if writes:
        path.parent.mkdir(exist_ok=True)
        program, machine = name.split("-", 1)
        facts = {"device": device_name, "steps": len(group), "fitted": len(fitted), "devices": max(row.gpus for row in group), "error_percent": f"{max(map(abs, errors)):.1f}"}
        header = [f"The shares of a device ({machine}) that {program} attains.",
                  "Fitted by `bench/step_times.py --fit` to the rows named below.", "docs/planning.md explains the constants."]
        path.write_text(text_of(constants, [row.name for row in fitted], header, facts))
    left_out = {}
    refitted = {row.family for row in fitted if any(other.family != row.family for other in fitted)}
    for family in sorted({row.family for row in group}):
        rest = [row for row in fitted if row.family != family]
        own = [row for row in group if row.family == family]
        if rest:
            without = Fit(rest, forecasts, device, starts).run(5) if family in refitted else constants
            for row, value in zip(own, forecasts.seconds(own, device, without)):
                left_out[row.name] = value
    out = []
    for row, predicted, own_error in zip(group, seconds, errors):
        left = left_out.get(row.name)
        out.append({"row": row.name, "calibration": name, "family": row.family, "source": row.source, "fitted": row in fitted,
                    "predicted": predicted, "published": row.published, "error": own_error,
                    "left_out_error": error(left, row.published) if left else None, "refitted": row.family in refitted,
                    "published_is_derived": row.is_derived, "assumptions": row.assumptions})
    return out
