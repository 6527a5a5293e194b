#!/usr/bin/env python3
"""Measures what viewers of the page cost a coordinator with a simulated fleet.

  bench/page_viewers.py --bin build/release/bin [--workers 12500] [--jobs 1000] [--viewers 20]
                        [--views fleet,nodes,job,mesh] [--seconds 15] [--rounds 3]
                        [--out bench/results/page_viewers.json]

The fleet is that of bench/swarm.py: a job of up to 10,000 nodes with 10 ranks each, and queued
jobs. Each viewer sends the requests of one view of the page at the page's pace, with a stream of
events beside them. For each view, periods without and with viewers alternate. The figures are
medians of the coordinator's CPU time per second, their difference, and the answers. CPU time hardly
depends on other programs of the machine. The target is 5% of a core for 20 viewers.
"""
import argparse
import collections
import gzip
import http.client
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import swarm  # noqa: E402
from peers.environment import describe_run  # noqa: E402

RANKS_PER_NODE = 10
SETTLE_SECONDS = 5
# The stream of each view, and its requests with the page's seconds between two of them.
VIEWS = {
    "fleet": ("events", {"incidents?limit=100": 5, "fleet/history": 10}),
    "nodes": ("events", {"nodes": 120}),
    "job": ("events?job={job}", {"jobs/{job}/history?limit=100": 5, "incidents?job={job}&limit=100": 5}),
    "mesh": ("events?job={job}", {"jobs/{job}/ranks": 1.5, "jobs/{job}/placement": 5}),
}


class Viewer:
    """A tab: a stream, and requests that are repeated."""

    def __init__(self, port, view, job, number):
        self.port, self.job = port, job
        self.stream, self.requests = VIEWS[view]
        self.bytes, self.answers, self.problems = 0, {}, []
        self.stopping = threading.Event()
        self.connections = []
        self.threads = [threading.Thread(target=self.run, args=(self.read_stream,), daemon=True)]
        # Viewers do not begin at the same moment.
        for path, seconds in self.requests.items():
            self.threads.append(threading.Thread(target=self.run, args=(self.poll, path, seconds, number), daemon=True))
        for thread in self.threads:
            thread.start()

    def run(self, what, *args):
        try:
            what(*args)
        except (OSError, http.client.HTTPException) as problem:
            if not self.stopping.is_set():
                self.problems.append(repr(problem))

    def connect(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        self.connections.append(connection)
        return connection

    def read_stream(self):
        connection = self.connect()
        connection.request("GET", f"/api/v1/{self.stream.format(job=self.job)}", headers={"Accept-Encoding": "gzip"})
        answer = connection.getresponse()
        while not self.stopping.is_set():
            part = answer.read1(65536)
            if not part:
                raise http.client.HTTPException(f"the stream has ended, with status {answer.status}")
            self.bytes += len(part)

    def poll(self, path, seconds, number):
        connection, etag = self.connect(), None
        self.stopping.wait(seconds * (number % 10) / 10)
        while not self.stopping.is_set():
            begin = time.monotonic()
            pages, after = 0, ""
            while True:  # nodes come in pages
                paged = f"{path}?limit=1000&after={after}" if path == "nodes" else path.format(job=self.job)
                headers = {"Accept-Encoding": "gzip", **({"If-None-Match": etag} if etag else {})}
                connection.request("GET", f"/api/v1/{paged}", headers=headers)
                answer = connection.getresponse()
                body = answer.read()
                self.bytes += len(body)
                etag = answer.getheader("ETag")
                key = f"{path} {answer.status}"
                self.answers[key] = self.answers.get(key, 0) + 1
                pages += 1
                if path != "nodes" or answer.status != 200:
                    break
                names = self.names(answer, body)
                if not names["more"]:
                    break
                after = names["nodes"][-1]["name"]
            self.stopping.wait(max(0, seconds - (time.monotonic() - begin)))

    @staticmethod
    def names(answer, body):
        if answer.getheader("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        return json.loads(body)

    def stop(self):
        self.stopping.set()
        for connection in self.connections:
            if connection.sock:
                connection.sock.close()


def cores(coordinator, seconds):
    """Returns the coordinator's CPU time per second."""
    cpu, begin = coordinator.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    return (coordinator.cpu_seconds() - cpu) / (time.monotonic() - begin)


def measure_view(args, coordinator, port, view, job):
    idle, watched, sent, answers, problems = [], [], [], collections.Counter(), set()
    for _ in range(args.rounds):
        idle.append(cores(coordinator, args.seconds))
        viewers = [Viewer(port, view, job, number) for number in range(args.viewers)]
        time.sleep(SETTLE_SECONDS)  # snapshots
        before = sum(viewer.bytes for viewer in viewers)
        watched.append(cores(coordinator, args.seconds))
        sent.append(sum(viewer.bytes for viewer in viewers) - before)
        for viewer in viewers:
            viewer.stop()
            answers.update(viewer.answers)
            problems.update(viewer.problems)
    without, beside = statistics.median(idle), statistics.median(watched)
    return {"cores_without_viewers": round(without, 3), "cores_with_viewers": round(beside, 3), "cores_of_viewers": round(beside - without, 3),
            "rounds": [[round(one, 3) for one in pair] for pair in zip(idle, watched)],
            "mib_per_second": round(statistics.median(sent) / args.seconds / 2**20, 2), "answers": dict(answers), **({"problems": sorted(problems)} if problems else {})}


def measure(args, coordinator, port, job):
    rows = {}
    for view in args.views.split(","):
        rows[view] = measure_view(args, coordinator, port, view, job)
        print(f"  {view}: {rows[view]}", file=sys.stderr, flush=True)
    return rows


def start_job(args, coordinator, nodes):
    command = [args.bin / "muster", "submit", "--nodes", nodes, "--ranks-per-node", RANKS_PER_NODE, "--priority", 1, "--no-check", "--json", "--", "true"]
    submitted = subprocess.run(list(map(str, command)), env={"MUSTER_COORDINATOR": coordinator.address}, check=True, capture_output=True, timeout=args.limit)
    coordinator.wait_for_line(r"RUNNING: attempt 1", 1, args.limit)
    return json.loads(submitted.stdout)["id"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=swarm.ROOT / "build/release/bin")
    parser.add_argument("--workers", type=int, default=12_500)
    parser.add_argument("--jobs", type=int, default=1000, help="all but one wait in the queue")
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--views", default=",".join(VIEWS))
    parser.add_argument("--seconds", type=float, default=15, help="time of each period")
    parser.add_argument("--rounds", type=int, default=3, help="pairs of periods for each view")
    parser.add_argument("--limit", type=float, default=300, help="time limit of each stage before")
    parser.add_argument("--out", type=pathlib.Path, default=swarm.ROOT / "bench/results/page_viewers.json")
    args = parser.parse_args()
    swarm.SLOTS = RANKS_PER_NODE
    nodes = min(args.workers, swarm.NODES_MAX)
    with tempfile.TemporaryDirectory() as folder:
        coordinator = swarm.Coordinator(args.bin, pathlib.Path(folder), tls=False)
        port = json.loads((pathlib.Path(folder) / "ports.json").read_text())["http_port"]
        workers = None
        try:
            workers = swarm.Swarm(args.bin, coordinator, args.workers, max(2, args.workers // swarm.WORKERS_PER_PROCESS))
            workers.wait_until_registered(args.limit)
            job = start_job(args, coordinator, nodes)
            queued = swarm.fill_queue(args.bin, coordinator, args.jobs - 1, nodes)
            rows = measure(args, coordinator, port, job)
        finally:
            if workers:
                workers.stop()
            coordinator.process.kill()
            coordinator.process.wait()
    report = {**describe_run(), "what": f"{args.viewers} viewers of a coordinator with {args.workers} simulated workers, a job of {nodes * RANKS_PER_NODE} ranks and {queued} queued jobs",
              "views": rows}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
