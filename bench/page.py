#!/usr/bin/env python3
"""Measures the page in a browser: size, first paint, and the main thread with a large fleet.

  bench/page.py [--out bench/results/page.json]

tests/page/fake_coordinator.py serves 1,000 jobs, 12,500 nodes and a job of 100,000 ranks; jobs,
ranks and curves change each second. Each view is open for so long that it loads everything at least
twice; `loaded` counts the answers. The targets are 300 KB, 1 s, 100 ms per update and 30 frames/s.
Tasks of the main thread of at least 50 ms are listed, as browsers report only these.
"""
import argparse
import gzip
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "page"))
sys.path.insert(0, str(ROOT / "bench"))
import fake_coordinator  # noqa: E402
import fleet_data  # noqa: E402
from browser import chromium_or_skip, playwright_or_skip  # noqa: E402
from peers.environment import describe_run  # noqa: E402

MESH = (("data", 1250), ("pipeline", 10), ("tensor", 8))
# Address and seconds. Many nodes are loaded every two minutes.
VIEWS = {"fleet": ("#/", 25), "nodes": ("#/nodes", 130), "mesh": ("#/jobs/1/mesh", 25), "job": ("#/jobs/1", 25), "incident": ("#/incidents/12", 10)}
OPENING_MS = 3000
OBSERVE = """window.tasks = [];
performance.setResourceTimingBufferSize(10000);
new PerformanceObserver(list => { for (const entry of list.getEntries()) window.tasks.push([entry.startTime, entry.duration]); }).observe({ type: "longtask", buffered: true });"""
LOADED = """() => {
  const counts = {};
  for (const { name } of performance.getEntriesByType("resource")) {
    const path = new URL(name).pathname;
    if (path.startsWith("/api/v1/")) counts[path.slice(8)] = (counts[path.slice(8)] ?? 0) + 1;
  }
  return counts;
}"""
# Pans the mesh on every frame for three seconds.
PAN = """async () => {
  const canvas = document.querySelector(".mesh-canvas");
  const send = (kind, x, y) => canvas.dispatchEvent(new PointerEvent(kind, { clientX: x, clientY: y, pointerId: 1 }));
  const begin = performance.now();
  let frames = 0;
  try { send("pointerdown", 300, 400); } catch { /* there is no such pointer to capture */ }
  await new Promise(resolve => {
    const step = () => {
      ++frames;
      send("pointermove", 300 + 40 * Math.sin(frames / 5), 400 + frames % 30);
      if (performance.now() - begin < 3000) requestAnimationFrame(step); else resolve();
    };
    step();
  });
  return frames / ((performance.now() - begin) / 1000);
}"""


class BusyFleet(fleet_data.FleetData):
    """A fleet in which every running job completes a step between two events."""

    def advance(self):
        for row in self.rows.values():
            if row["state"] == "RUNNING":
                row["step"] += 1
        self.step += 1


def measure(browser, url, address, seconds, pans):
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.add_init_script(OBSERVE)
    page.goto(url + address)
    page.wait_for_timeout(1000 * seconds)
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    tasks = page.evaluate("window.tasks")
    row = {"first_paint_ms": round(paint), "long_tasks": len(tasks), "longest_task_ms": round(max((duration for _, duration in tasks), default=0)),
           "longest_update_ms": round(max((duration for start, duration in tasks if start > OPENING_MS), default=0)), "loaded": page.evaluate(LOADED)}
    if pans:
        row["frames_per_second"] = round(page.evaluate(PAN), 1)
    context.close()
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/page.json")
    args = parser.parse_args()
    files = [path for path in (ROOT / "coordinator/page").rglob("*") if path.suffix in (".html", ".js", ".css", ".svg")]
    size = sum(len(gzip.compress(path.read_bytes(), 9)) for path in files)
    api = playwright_or_skip()
    coordinator = fake_coordinator.FakeCoordinator(BusyFleet(jobs=1000, nodes=12_500, mesh=MESH))
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_or_skip(), args=["--no-sandbox"])
        version = browser.version
        rows = {name: measure(browser, coordinator.url, address, seconds, name == "mesh") for name, (address, seconds) in VIEWS.items()}
        browser.close()
    coordinator.stop()
    for name, row in rows.items():
        print(f"  {name}: {row}", file=sys.stderr)
    report = {**describe_run(), "what": "the page with 1,000 jobs, 12,500 nodes and 100,000 ranks", "chromium": version, "compressed_bytes": size, "views": rows}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
