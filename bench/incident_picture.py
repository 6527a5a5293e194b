#!/usr/bin/env python3
"""Draws `muster incident show` of a real incident as it appears on a terminal: docs/incident.svg.

  bench/incident_picture.py --bin build/release/bin [--case "collective left out"]
  [--out docs/incident.svg]

A job of 8 ranks on 4 workers has the fault, as in bench/faults.py (which needs root), and one
restart. The picture shows the program's output on a terminal of 100 columns, with colours.
"""
import argparse
import html
import os
import pathlib
import pty
import re
import subprocess
import sys
import termios

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from faults.cases import CASES  # noqa: E402
from faults.fleet import Fleet, Network  # noqa: E402
from faults.orders import wait_until  # noqa: E402
from faults.scored import MODEL, ROOT, WARM_STEPS, Pick  # noqa: E402

COLUMNS, LINES_MAX = 100, 200
FONT_PIXELS, COLUMN_PIXELS, LINE_PIXELS, MARGIN_PIXELS = 13, 7.8, 17, 16
BACKGROUND, TEXT = "#16181d", "#d8dee9"
# The terminal's attributes that the command uses (cli/terminal/terminal.h).
STYLES = {"31": 'fill="#ff6b6b"', "33": 'fill="#e5c07b"', "2": 'fill="#7d8590"'}
ESCAPE = re.compile(r"\x1b\[([0-9;]*)m")
INCIDENT_SECONDS_MAX = 60


def on_terminal(command, environment):
    """Returns the command's output on a terminal."""
    primary, secondary = pty.openpty()
    termios.tcsetwinsize(secondary, (LINES_MAX, COLUMNS))
    process = subprocess.Popen(command, stdin=secondary, stdout=secondary, stderr=subprocess.PIPE, env=environment)
    os.close(secondary)
    written = b""
    while True:
        try:
            piece = os.read(primary, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        written += piece
    os.close(primary)
    if process.wait() != 0:
        raise RuntimeError(process.stderr.read().decode())
    return written.decode().replace("\r\n", "\n")


def runs_of(line, style):
    """Yields (column, style, text) of a line's parts, and the style at its end."""
    runs, column, at = [], 0, 0
    for escape in [*ESCAPE.finditer(line), None]:
        text = line[at:escape.start() if escape else len(line)]
        if text:
            runs.append((column, style, text))
            column += len(text)
        if escape:
            at = escape.end()
            style = STYLES.get(escape.group(1), "")
    return runs, style


def svg_of(text, title):
    lines = text.rstrip("\n").split("\n")
    width = 2 * MARGIN_PIXELS + COLUMN_PIXELS * COLUMNS
    height = 2 * MARGIN_PIXELS + LINE_PIXELS * len(lines)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
           f'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="{FONT_PIXELS}" fill="{TEXT}">',
           f"<title>{html.escape(title)}</title>",
           f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>']
    style = ""
    for number, line in enumerate(lines):
        y = MARGIN_PIXELS + LINE_PIXELS * number + FONT_PIXELS
        runs, style = runs_of(line, style)
        for column, look, part in runs:
            column += len(part) - len(part.lstrip())
            part = part.strip()
            if not part:
                continue
            # Every font's columns are as wide as these.
            out.append(f'<text x="{MARGIN_PIXELS + COLUMN_PIXELS * column:.1f}" y="{y}" textLength="{COLUMN_PIXELS * len(part):.1f}" '
                       f'xml:space="preserve" {look}>{html.escape(part)}</text>')
    return "\n".join([*out, "</svg>", ""])


def have_incident(fleet, case):
    """Returns the number of the incident once its job runs again and the names of functions are
    known.
    """
    settings = [setting for setting in MODEL if not setting.startswith("restarts_max")]
    job = fleet.submit(ROOT / "configs/base.yml", "llama-pretrain", *settings, "restarts_max=1", *case.settings)
    fleet.wait_for_step(job, WARM_STEPS)
    truth = case.inject(fleet, job, Pick(0, case.name, len(fleet.workers) * fleet.slots, len(fleet.workers)))

    def finished():
        incidents = fleet.incidents(job)
        known = incidents and not incidents[0]["open"] and " in " in incidents[0]["suspects"][0]["source"]
        return incidents[0]["id"] if known else None
    try:
        return wait_until(finished, INCIDENT_SECONDS_MAX, "the incident's end")
    finally:
        if truth.undo:
            truth.undo()
        fleet.muster("cancel", job, "--force", check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--case", default="collective left out")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/incident.svg")
    args = parser.parse_args()
    case = next(case for case in CASES if case.name == args.case)
    fleet = Fleet(args.bin.resolve())
    try:
        incident = have_incident(fleet, case)
        environment = {key: value for key, value in fleet.environment.items() if key != "NO_COLOR"}
        text = on_terminal([*Network.inside(fleet.network.hub), str(fleet.binaries / "muster"), "incident", "show", str(incident)],
                           {**environment, "TERM": "xterm-256color"})
    finally:
        fleet.close()
    args.out.write_text(svg_of(f"$ muster incident show {incident}\n{text}", f"muster incident show {incident}"))
    print(text)


if __name__ == "__main__":
    main()
