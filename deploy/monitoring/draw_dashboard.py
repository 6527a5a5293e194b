#!/usr/bin/env python3
"""Draws a dashboard's panels as one SVG, with a Prometheus' present data: shows a dashboard without
Grafana.

  deploy/monitoring/draw_dashboard.py deploy/monitoring/dashboards/job.json
  --prometheus http://127.0.0.1:9090 --job 7 --out job.svg

The queries are the dashboard's; the drawing is only like Grafana's.
"""
import argparse
import html
import json
import math
import pathlib
import time
import urllib.parse
import urllib.request

COLUMN, ROW, GAP, TITLE = 56, 30, 8, 22
BACKGROUND, PANEL, TEXT, DIM, GRID = "#111217", "#181b1f", "#d8d9da", "#8e8e8e", "#2c3235"
COLOURS = ["#73bf69", "#f2cc0c", "#5794f2", "#ff780a", "#f2495c", "#b877d9", "#37872d", "#8ab8ff", "#ffa6b0", "#c8f2c2"]
INCIDENT = "#e02f44"
ROWS_MAX, LEGEND_MAX = 12, 6
TICKS = 4  # the intended number of marks on an axis


def query(url, **parameters):
    with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(parameters)}", timeout=20) as response:
        return json.load(response)["data"]["result"]


def shown(value, unit):
    if value is None or math.isnan(value) or math.isinf(value):
        return "–"
    if unit == "percentunit":
        return f"{100 * value:.3g}%"
    if unit == "dateTimeAsIso":
        return time.strftime("%H:%M:%S", time.gmtime(value / 1000))
    if unit == "s":
        for scale, name in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs")):
            if abs(value) >= scale:
                return f"{value / scale:.3g} {name}"
        return "0" if value == 0 else f"{value:.2g} s"
    for scale, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= scale:
            return f"{value / (1e3 if name == 'k' else scale):.3g} {name}"
    return f"{value:.4g}"


def label(series, legend):
    if legend in ("", "__auto"):
        return ", ".join(f"{k}={v}" for k, v in series["metric"].items() if k not in ("__name__", "instance", "job")) or "value"
    for key, value in series["metric"].items():
        legend = legend.replace("{{" + key + "}}", value)
    return legend


def ticks(low, high):
    """Returns round numbers from at most `low` to at least `high`."""
    rough = (high - low) / TICKS
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * part for part in (1, 2, 2.5, 5, 10) if size * part >= rough)
    first = math.floor(low / step + 1e-9)
    count = math.ceil(high / step - 1e-9) - first
    return [(first + i) * step for i in range(count + 1)]


def stacked(series):
    """Stacks each series on the previous ones, as far as those have a value at that time."""
    height = {}
    for name, points in series:
        for at, value in points:
            height[at] = height.get(at, 0.0) + value
        yield name, [(at, height[at]) for at, _ in points]


def numbers(series):
    return [(float(at), float(value)) for at, value in series["values"] if value not in ("NaN", "+Inf", "-Inf")]


class Picture:
    def __init__(self, prometheus, job, seconds):
        self.prometheus, self.job = prometheus, job
        self.end = time.time()
        self.start = self.end - seconds
        self.step = max(1, int(seconds / 120))
        self.parts = []
        self.incidents = []  # when they were opened

    def filled(self, expr):
        return expr.replace("$cluster", ".*").replace("$instance", ".*").replace("$job_id", str(self.job)).replace("$__rate_interval", f"{max(10, 4 * self.step)}s").replace(
            "$__range", f"{int(self.end - self.start)}s")

    def range(self, target):
        return query(f"{self.prometheus}/api/v1/query_range", query=self.filled(target["expr"]), start=self.start, end=self.end, step=self.step)

    def instant(self, target):
        return query(f"{self.prometheus}/api/v1/query", query=self.filled(target["expr"]), time=self.end)

    def text(self, x, y, words, size=11, colour=TEXT, anchor="start"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}">{html.escape(str(words))}</text>')

    def box(self, x, y, width, height, colour, title=""):
        inside = f"<title>{html.escape(title)}</title>" if title else ""
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}">{inside}</rect>')

    def panel(self, panel):
        place = panel["gridPos"]
        x, y = GAP + place["x"] * COLUMN, 44 + place["y"] * ROW
        width, height = place["w"] * COLUMN - GAP, place["h"] * ROW - GAP
        self.box(x, y, width, height, PANEL)
        self.text(x + 8, y + 16, panel["title"], 12)
        area = (x + 8, y + TITLE, width - 16, height - TITLE - 6)
        {"stat": self.stat, "timeseries": self.lines, "status-history": self.rows, "heatmap": self.buckets, "table": self.table}[panel["type"]](panel, area)

    def stat(self, panel, area):
        x, y, width, height = area
        found = self.instant(panel["targets"][0])
        words = "no data"
        if found:
            by_name = panel["options"].get("textMode") == "name"
            defaults = panel["fieldConfig"]["defaults"]
            value = float(found[0]["value"][1])
            if "decimals" in defaults:
                value = round(value, defaults["decimals"])
            words = label(found[0], panel["targets"][0]["legendFormat"]) if by_name else shown(value, defaults["unit"])
        self.text(x + width / 2, y + height / 2 + 12, words, 30, COLOURS[0], "middle")

    def axes(self, area, marks, unit):
        x, y, width, height = area
        for mark in marks:
            at = y + height - height * (mark - marks[0]) / (marks[-1] - marks[0])
            self.parts.append(f'<line x1="{x}" x2="{x + width}" y1="{at:.1f}" y2="{at:.1f}" stroke="{GRID}"/>')
            self.text(x - 4, at + 4, shown(mark, unit), 9, DIM, "end")
        for moment in self.incidents:
            at = x + width * (moment - self.start) / (self.end - self.start)
            self.parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y}" y2="{y + height}" stroke="{INCIDENT}" stroke-dasharray="3,3"/>')
        for i in range(3):
            at = self.start + (self.end - self.start) * i / 2
            self.text(x + width * i / 2, y + height + 12, time.strftime("%H:%M:%S", time.gmtime(at)), 9, DIM, ("start", "middle", "end")[i])

    def lines(self, panel, area):
        unit = panel["fieldConfig"]["defaults"]["unit"]
        series = [(label(one, target["legendFormat"]), numbers(one)) for target in panel["targets"] for one in self.range(target)]
        series = [(name, points) for name, points in series if points]
        is_stacked = "stacking" in panel["fieldConfig"]["defaults"]["custom"]
        if is_stacked:
            series = list(stacked(series))
        x, y, width, height = area
        x, width, height = x + 46, width - 46, height - 34
        values = [value for _, points in series for _, value in points]
        if not values:
            return self.text(x + width / 2, y + height / 2, "no data", 14, DIM, "middle")
        low, high = min(values + [0.0] if min(values) < 0.5 * max(values) else values), max(values)
        low = min(low, panel["fieldConfig"]["defaults"].get("min", 0.0 if is_stacked else low))
        high = max(high, panel["fieldConfig"]["defaults"].get("max", high))
        if low == high:
            low, high = (0.0, high or 1.0)
        marks = ticks(low, high)
        low, high = marks[0], marks[-1]
        self.axes((x, y + 4, width, height), marks, unit)
        # The first of coinciding series is visible: those stacked on it are zero.
        for i, (name, points) in reversed(list(enumerate(series))):
            colour = COLOURS[i % len(COLOURS)]
            path, last = [], None
            for at, value in points:
                px, py = x + width * (at - self.start) / (self.end - self.start), y + 4 + height * (1 - (value - low) / (high - low))
                path.append(f"{'M' if last is None or at - last > 2 * self.step else 'L'}{px:.1f},{py:.1f}")
                last = at
            self.parts.append(f'<path d="{" ".join(path)}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
            if len(points) == 1:
                self.box(px - 2, py - 2, 4, 4, colour)
        at, left = x - 40, len(series) - LEGEND_MAX
        for i, (name, _) in enumerate(series[:LEGEND_MAX]):
            name = name if len(name) < 34 else name[:32] + "…"
            if at + 14 + 6 * len(name) > x + width and i > 0:
                left += LEGEND_MAX - i
                break
            self.box(at, y + height + 22, 8, 8, COLOURS[i % len(COLOURS)])
            self.text(at + 11, y + height + 30, name, 10, DIM)
            at += 20 + 5.6 * len(name)
        if left > 0:
            self.text(at, y + height + 30, f"+{left}", 10, DIM)

    @staticmethod
    def heat(part):
        part = min(1.0, max(0.0, part))
        return f"rgb({int(40 + 210 * part)},{int(90 + 80 * (1 - abs(2 * part - 1)))},{int(220 - 190 * part)})"

    def cell(self, at, x, width, y, height, part):
        """Returns the values sampled at that time, which apply to the time since the previous
        sample.
        """
        right = x + width * (at - self.start) / (self.end - self.start)
        left = max(x, right - width * self.step / (self.end - self.start) - 0.3)
        self.box(left, y, right - left, height, self.heat(part))

    def rows(self, panel, area):
        target, unit = panel["targets"][0], panel["fieldConfig"]["defaults"]["unit"]
        series = sorted(((label(one, target["legendFormat"]), numbers(one)) for one in self.range(target)),
                        key=lambda one: (len(one[0]), one[0]))
        values = [value for _, points in series for _, value in points]
        x, y, width, height = area
        if not values:
            return self.text(x + width / 2, y + height / 2, "no data", 14, DIM, "middle")
        low, high = min(values), max(values)
        tall = (height - 20) / len(series)
        for i, (name, points) in enumerate(series):
            self.text(x + 30, y + tall * (i + 0.5) + 4, name, 9, DIM, "end")
            for at, value in points:
                self.cell(at, x + 36, width - 36, y + tall * i + 1, tall - 2, (value - low) / (high - low) if high > low else 0)
        self.text(x + 36, y + height - 4, f"rank, over time; blue {shown(low, unit)} … red {shown(high, unit)}", 10, DIM)

    def buckets(self, panel, area):
        found = self.range(panel["targets"][0])
        series = sorted(((float(one["metric"]["le"]), dict(numbers(one))) for one in found), key=lambda one: one[0])
        x, y, width, height = area
        cells = []
        for i, (bound, points) in enumerate(series):
            below = series[i - 1][1] if i else {}
            cells += [(i, at, value - below.get(at, 0)) for at, value in points.items()]
        top = max((value for _, _, value in cells), default=0)
        if top <= 0:
            return self.text(x + width / 2, y + height / 2, "no data", 14, DIM, "middle")
        tall = (height - 8) / len(series)
        for i, (bound, _) in enumerate(series):
            if i % 2 == 0:
                self.text(x + 40, y + height - 8 - tall * (i + 0.3), shown(bound, "s") if math.isfinite(bound) else "more", 9, DIM, "end")
        for i, at, value in cells:
            if value > 0:
                self.cell(at, x + 46, width - 46, y + height - 8 - tall * (i + 1), tall - 1, value / top)

    def table(self, panel, area):
        x, y, width, _ = area
        rows, renamed = [], {}  # rows: (labels, shown values)
        excluded = {"Time", "__name__", "job"}
        for step in panel.get("transformations", []):
            if step["id"] == "organize":
                excluded |= {name for name, is_out in step["options"]["excludeByName"].items() if is_out}
                renamed.update(step["options"]["renameByName"])
        units = {override["matcher"]["options"]: override["properties"][0]["value"] for override in panel["fieldConfig"]["overrides"]}
        for i, target in enumerate(panel["targets"]):
            column = "Value" if len(panel["targets"]) == 1 else f"Value #{chr(ord('A') + i)}"
            for one in self.instant(target):
                metric = one["metric"]
                # As in Grafana: merge with a row that contradicts no label.
                row = next((row for row in rows if i not in row["of"] and all(row["labels"].get(k, v) == v for k, v in metric.items())), None)
                if row is None:
                    row = {"labels": {}, "of": set(), "shown": {}}
                    rows.append(row)
                row["labels"].update(metric)
                row["of"].add(i)
                # The coordinator of a job is at the top of the page.
                row["shown"].update({k: v for k, v in metric.items() if k not in excluded and (k != "instance" or "job_id" not in metric)})
                if column not in excluded:
                    row["shown"][renamed.get(column, column)] = shown(float(one["value"][1]), units.get(renamed.get(column, column), "short"))
        columns = list(dict.fromkeys(name for row in rows for name in row["shown"]))
        if not columns:
            return self.text(x + width / 2, y + 40, "no data", 14, DIM, "middle")
        wide = width / len(columns)
        for i, name in enumerate(columns):
            self.text(x + i * wide, y + 14, name, 11, COLOURS[2])
            for j, row in enumerate(rows[:ROWS_MAX]):
                words = str(row["shown"].get(name, ""))
                fits = max(3, int(wide / 6.6))
                self.text(x + i * wide, y + 32 + 17 * j, words if len(words) <= fits else words[:fits - 1] + "…", 11)

    def draw(self, dashboard):
        for annotation in dashboard["annotations"]["list"]:
            moments = [float(one["value"][1]) / 1000 for one in self.instant(annotation)]
            self.incidents += [moment for moment in moments if self.start < moment < self.end]
        for panel in dashboard["panels"]:
            self.panel(panel)
        width = 24 * COLUMN + GAP
        height = 52 + max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"]) * ROW
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="DejaVu Sans, sans-serif">'
                f'<rect width="{width}" height="{height}" fill="{BACKGROUND}"/>'
                f'<text x="{GAP}" y="28" font-size="18" fill="{TEXT}">{html.escape(dashboard["title"])}</text>')
        return head + "\n".join(self.parts) + "</svg>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dashboard", type=pathlib.Path)
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090")
    parser.add_argument("--job", default=".+", help="what $job_id stands for")
    parser.add_argument("--seconds", type=int, default=120, help="of the past")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    picture = Picture(arguments.prometheus, arguments.job, arguments.seconds)
    arguments.out.write_text(picture.draw(json.loads(arguments.dashboard.read_text())))


if __name__ == "__main__":
    main()
