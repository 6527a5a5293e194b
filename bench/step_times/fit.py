"""Fits the constants of calibrations to rows, by damped least squares of relative errors.

Constants that few rows determine stay near their expected values. These come, in this order, from
DEFAULTS, from what a program's documents state (PROGRAMS in priors.py), and from the calibrations
of the same program or device, each fitted to its own rows only.
"""
import math

from step_times.priors import BOUNDS, IN_8_BITS, OF_OFFLOADING, default_prior, related_prior


def inverse(matrix):
    """Gauss-Jordan elimination with pivots."""
    n = len(matrix)
    a = [list(row) + [float(i == j) for j in range(n)] for i, row in enumerate(matrix)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(a[r][i]))
        a[i], a[pivot] = a[pivot], a[i]
        scale = a[i][i]
        a[i] = [v / scale for v in a[i]]
        for r in range(n):
            if r != i and a[r][i]:
                factor = a[r][i]
                a[r] = [x - factor * y for x, y in zip(a[r], a[i])]
    return [row[n:] for row in a]


# Residuals above this, in percent, count linearly instead of by their squares (Huber, 1964), so
# that rows that contradict all others do not bend the constants.
HUBER = 3.0
# Bounds of the work of a fit.
STEPS_MAX = 40
JACOBIANS_MAX = 5


def loss(residuals):
    return sum(r * r if abs(r) <= HUBER else 2 * HUBER * abs(r) - HUBER ** 2 for r in residuals)


class Fit:
    """A fit to rows with expected values and widths of the constants (priors.Prior)."""

    def __init__(self, rows, forecasts, device, prior):
        self.rows, self.forecasts, self.device, self.prior = rows, forecasts, device, prior
        skipped = set() if any(row.in_8_bits for row in rows) else IN_8_BITS
        if not any("offload" in row.fields["remat"] for row in rows):
            skipped = skipped | OF_OFFLOADING
        self.names = [name for name in BOUNDS if name not in skipped]

    def residuals(self, constants):
        seconds = self.forecasts.seconds(self.rows, self.device, constants)
        return [100 * math.log(s / row.published) for s, row in zip(seconds, self.rows)]

    def deviations(self, constants):
        return [(constants[name] - self.prior.means[name]) / self.prior.widths[name] for name in self.names]

    def cost(self, constants, residuals):
        return loss(residuals) + sum(d * d for d in self.deviations(constants))

    def columns(self, constants, now):
        """The derivatives of the residuals by each constant."""
        columns = []
        for name in self.names:
            step = 0.02 * self.prior.widths[name]
            if constants[name] + step > BOUNDS[name][1]:
                step = -step
            moved = self.residuals({**constants, name: constants[name] + step})
            columns.append([(b - a) / step for a, b in zip(now, moved)])
        return columns

    def normal_matrix(self, columns, now):
        weights = [1 if abs(r) <= HUBER else HUBER / abs(r) for r in now]
        normal = [[sum(w * x * y for w, x, y in zip(weights, a, b)) for b in columns] for a in columns]
        return normal, weights

    def secant(self, columns, change, before, after):
        """Corrects the derivatives by what a step showed (Broyden, 1965), in place."""
        scaled = [change[name] / self.prior.widths[name] for name in self.names]
        size = sum(c * c for c in scaled)
        for row in range(len(before)):
            missed = after[row] - before[row] - sum(c[row] * change[name] for c, name in zip(columns, self.names))
            for i, name in enumerate(self.names):
                columns[i][row] += missed * scaled[i] / size / self.prior.widths[name]

    def descend(self, constants, columns=None):
        """Returns the constants of a local minimum and its cost. `columns`: the derivatives at
        `constants`."""
        now = self.residuals(constants)
        cost, damping, computed = self.cost(constants, now), 0.3, 0
        if columns is None:
            columns, computed = self.columns(constants, now), 1
        is_new = True
        for _ in range(STEPS_MAX):
            normal, weights = self.normal_matrix(columns, now)
            deviations = self.deviations(constants)
            gradient = []
            for i, name in enumerate(self.names):
                width = self.prior.widths[name]
                normal[i][i] += 1 / width ** 2
                gradient.append(sum(w * c * r for w, c, r in zip(weights, columns[i], now)) + deviations[i] / width)
            moved = self.step(constants, normal, gradient, damping)
            after = self.residuals(moved)
            cost_after = self.cost(moved, after)
            change = {name: moved[name] - constants[name] for name in self.names}
            if any(change.values()):
                self.secant(columns, change, now, after)
            if cost_after < cost * (1 - 1e-3):
                constants, now, cost, damping, is_new = moved, after, cost_after, damping / 4, False
                continue
            damping *= 6
            if damping > 100 and not is_new and computed < JACOBIANS_MAX:
                columns, computed, damping, is_new = self.columns(constants, now), computed + 1, 0.3, True
            elif damping > 100:
                break
        return constants, cost

    def step(self, constants, normal, gradient, damping):
        """A damped step. Constants whose step would leave their bounds stop there, and the step of
        the others is computed without them."""
        free, moved = list(range(len(self.names))), dict(constants)
        while free:
            damped = [[normal[i][j] * (1 + damping * (i == j)) for j in free] for i in free]
            solved = [sum(x * gradient[j] for x, j in zip(row, free)) for row in inverse(damped)]
            kept = []
            for i, change in zip(free, solved):
                name = self.names[i]
                low, high = BOUNDS[name]
                target = constants[name] - change
                moved[name] = min(high, max(low, target))
                if low <= target <= high:
                    kept.append(i)
            if len(kept) == len(free):
                break
            free = kept
        return moved

    def run(self, starts=None):
        """Returns the constants with the least cost of several starts. Communication that is hidden
        completely has no derivative, so starts with slow links and slow overlap belong to them."""
        if not self.rows:
            return dict(self.prior.means)
        found = [self.descend(constants, columns) for constants, columns in starts or self.starts()]
        return min(found, key=lambda one: one[1])[0]

    def starts(self):
        """Returns pairs of constants and derivatives."""
        starts = [dict(self.prior.means)]
        if any(row.gpus > 8 for row in self.rows):
            starts.append({**self.prior.means, "network_link_fraction": 0.35})
            starts.append({**self.prior.means, "overlap_slowdown": 0.5})
        return [(start, self.columns(start, self.residuals(start))) for start in starts]


# Rows of calibrations that determine their constants: by words of their names.
CHOSEN = {
    "llmfoundry-h100": ("MPT-760m H100 x32", "MPT-1b H100 x32", "MPT-1b H100 x8 bf16 S8192", "MPT-1b H100 x8 bf16 S32768", "MPT-1b H100 x8 fp8 S512",
                        "MPT-3b H100 x256", "MPT-3b H100 x8 bf16 S65536", "MPT-3b H100 x8 fp8 S2048", "MPT-7b H100 x8 bf16 S4096",
                        "MPT-13b H100 x8 bf16 S2048", "MPT-30b H100 x8 bf16 S1024", "MPT-70b H100 x64"),
    "maxtext-h100": ("Llama2-70B H100 x2048 bf16", "Llama2-70B H100 x128 fp8", "Llama2-70B H100 x1024 fp8", "Llama3-70B H100 x128 bf16",
                     "Llama3-70B H100 x512 fp8", "Llama3-70B H100 x2048 fp8"),
    "maxtext-v5e": ("16B v5e x512 ", "16B v5e x8192", "32B v5e x256 ", "32B v5e x4096", "64B v5e x1024", "64B v5e x8192", "128B v5e x256 ", "128B v5e x4096"),
    "maxtext-v5p": ("32B v5p", "128B v5p x128", "512B v5p"),
    "megatronlm-a100": ("22B A100 x8 fp16 S2048 B4 dp1 tp8 full", "175B A100 x64 fp16 S2048 B64 dp1 tp8 pp8 selective",
                        "530B A100 x280 fp16 S2048 B280 dp1 tp8 pp35 full", "1T A100 x512 fp16 S2048 B512 dp1 tp8 pp64 selective"),
    "megatronlm-h100": ("GPT-7.1B", "GPT-32B", "GPT-70B", "GPT-314B"),
    "muster-h200": ("Muster 125M", "Muster Llama2-7B"),
    "muster_0dde019-h200": ("125M", "Llama2-7B"),
    "pax_te-h100": ("126M", "Pax-GPT-5B H100 x256 bf16", "Pax-GPT-175B H100 x256 fp8"),
    "pax_te-a100": ("126M", "175B"),
    "torchtitan_202412_asynctp-h100-96gb-500w": ("S8192", "S131072"),
    "torchtitan_202412-h100-96gb-500w": ("Llama3.1-70B", "fp8 compile S8192 B16", "S131072"),
}


def choose_rows(name, group):
    """Returns the rows that CHOSEN names; if it names none, rows that are spread over precisions
    and sizes of models: at most half of them, and at least one."""
    if name in CHOSEN:
        return [row for words in CHOSEN[name] for row in group if words in row.name]
    count = max(1, len(group) // 2)
    ordered = sorted(group, key=lambda r: (r.in_8_bits, r.published * r.gpus / (r.gbs * r.seq), r.name))
    return [ordered[int((i + 0.5) * len(ordered) / count)] for i in range(count)]


def error(predicted, published):
    """Returns the error of a forecast, in percent."""
    return 100 * (predicted / published - 1)


class Calibration:
    """The rows of a program on a device, and the constants for them."""

    def __init__(self, name, group, fitted, forecasts, device):
        self.name, self.group, self.fitted = name, group, fitted
        self.forecasts, self.device = forecasts, device
        self.constants, self.prior = {}, default_prior(name)

    def fit(self, rows, prior):
        return Fit(rows, self.forecasts, self.device, prior)

    def rows_without(self, family):
        """Returns the fitted rows that are not of the family."""
        return [row for row in self.fitted if row.family != family]

    def own_fit(self, family=None):
        """Returns the constants on which the fitted rows depend, without other calibrations and
        without the rows of the family."""
        prior = default_prior(self.name)
        fit = self.fit(self.rows_without(family), prior)
        constants = fit.run()
        moved = {name: abs(constants[name] - prior.means[name]) / prior.widths[name] for name in fit.names}
        return {name: constants[name] for name, width in moved.items() if width > 1e-3}

    def prior_of(self, fits):
        """`fits`: own_fit() of all calibrations, by name."""
        return related_prior(self.name, default_prior(self.name), fits)

    def borrow(self, fits):
        self.prior = self.prior_of(fits)

    def fit_all(self):
        constants = self.fit(self.fitted, self.prior).run()
        self.constants = {key: float(f"{value:.4g}") for key, value in constants.items()}

    def left_out(self, fits_without):
        """Returns the seconds of each row if no row of its family is fitted, neither here nor in
        the calibrations that give the expected values, by the row's name. Also returns the families
        for which the constants were fitted again. `fits_without(family)`: own_fit(family) of all
        calibrations, by name."""
        seconds, refitted = {}, set()
        starts = None
        for family in sorted({row.family for row in self.group}):
            own = [row for row in self.group if row.family == family]
            rest = self.rows_without(family)
            prior = self.prior_of(fits_without(family))
            constants = self.constants
            if prior != self.prior:
                constants = self.fit(rest, prior).run()
            elif len(rest) < len(self.fitted):
                whole = self.fit(self.fitted, self.prior)
                starts = starts or whole.starts()
                constants = self.fit_rest(rest, whole.names, starts)
            if constants is not self.constants:
                refitted.add(family)
            seconds.update(zip((row.name for row in own), self.forecasts.seconds(own, self.device, constants)))
        return seconds, refitted

    def fit_rest(self, rest, names, starts):
        """Fits some of the fitted rows. `names`, `starts`: of the fit to all of them."""
        fit = self.fit(rest, self.prior)
        of_rest = [i for i, row in enumerate(self.fitted) if row in rest]
        return fit.run([(start, [[column[i] for i in of_rest] for name, column in zip(names, columns) if name in fit.names])
                        for start, columns in starts])

    def results(self, fits_without):
        """Returns a record per row."""
        left_out, refitted = self.left_out(fits_without)
        out = []
        for row, predicted in zip(self.group, self.forecasts.seconds(self.group, self.device, self.constants)):
            out.append({"row": row.name, "calibration": self.name, "family": row.family, "source": row.source, "fitted": row in self.fitted,
                        "predicted": predicted, "published": row.published, "error": error(predicted, row.published),
                        "left_out_error": error(left_out[row.name], row.published), "refitted": row.family in refitted,
                        "published_is_derived": row.is_derived, "assumptions": row.assumptions})
        return out


class FitsWithout:
    """The fits of all calibrations to their own rows without those of a family, each computed
    once."""

    def __init__(self, calibrations):
        self.calibrations = calibrations
        self.whole = {one.name: one.own_fit() for one in calibrations}
        self.of_families = {}

    def __call__(self, family):
        if family not in self.of_families:
            self.of_families[family] = {one.name: self.whole[one.name] if len(one.rows_without(family)) == len(one.fitted) else one.own_fit(family)
                                        for one in self.calibrations}
        return self.of_families[family]
