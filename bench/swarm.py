#!/usr/bin/env python3
"""Measures one coordinator with thousands of simulated workers over real gRPC streams.

  bench/swarm.py --bin build/release/bin [--workers 1000,4000] [--tls] [--queue JOBS] [--faults]
                 [--processes N] [--out bench/results/swarm.json]

The workers (bench/swarm) run in several processes on the same machine and compete with the
coordinator for its cores: compare ratios, not seconds. Adds the run to the runs in --out. For each
number of workers, the figures are:

  queued                  --queue jobs that wait for twice as many nodes as there are workers
  registered_s            from the start of the workers' processes until every worker is registered
  idle, running           over --seconds: the coordinator's CPU time per heartbeat, resident memory
                          per worker, and the round trip of a message through the core (p50, p99)
  told_s                  from the submission until every worker has its order to start
  running_after_s         from the submission until every rank of a job on all workers is up
  bytes_per_rank          resident memory that the job added, per rank
  node_lost_s             with --faults, from the loss of one node's ranks until every other worker
                          has its order to stop
  back_s                  with --faults, from the start of a coordinator that was killed until every
                          worker is registered again; `attempt` is the job's attempt after that
  abort_s                 from the death of one rank until every other worker has its order to stop
  restarted_s             from that death until every rank of the next attempt is up
  cancelled_s             from the request to cancel until the job has ended
  stored_mib              bytes that the coordinator wrote from the death to the end of the job
  stream_ends             ended streams by reason: healthy workers that were lost
  cpu_s                   CPU time of the coordinator and of the workers' processes, by stage; it
                          does not depend on other programs that run on the machine
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from peers.environment import describe_run  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
SLOTS = 8
# gRPC's debug checks search all operations of a process for each one: small processes cost less.
WORKERS_PER_PROCESS = 1000
POLL_SECONDS = 0.02
SETTLE_SECONDS = 3
NODES_MAX = 10_000  # nodes of one job


def run_openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)


def make_certificate(folder):
    """Writes a self-signed certificate for localhost, which is also its own CA."""
    key, certificate = folder / "tls.key", folder / "tls.crt"
    run_openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", certificate)
    return key, certificate


def cpu_seconds_of(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Coordinator:
    def __init__(self, binaries, folder, tls):
        self.folder, self.tls = folder, tls
        self.certificate = None
        self.extra = []
        if tls:
            key, self.certificate = make_certificate(folder)
            self.extra = ["--tls-cert", self.certificate, "--tls-key", key]
        self.binaries = binaries
        self.log = folder / "coordinator.log"
        self.address = "127.0.0.1:0"
        self.start()
        self.empty_kib = self.resident_kib()

    def start(self):
        ports = self.folder / "ports.json"
        ports.unlink(missing_ok=True)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [str(part) for part in (self.binaries / "muster-coordinator", "--listen", self.address, "--http", "127.0.0.1:0", "--state-dir",
                                        self.folder / "state", "--port-file", ports, *self.extra)], stderr=log)
        deadline = time.monotonic() + 20
        while not ports.exists():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(self.log.read_text())
            time.sleep(0.01)
        self.address = f"127.0.0.1:{json.loads(ports.read_text())['grpc_port']}"

    def restart(self):
        """Kills the coordinator and starts it again on the same port and state."""
        self.process.kill()
        self.process.wait()
        self.start()

    def cpu_seconds(self):
        return cpu_seconds_of(self.process)

    def resident_kib(self):
        return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{self.process.pid}/status").read_text())[1])

    def written_bytes(self):
        return int(re.search(r"^wchar: (\d+)", pathlib.Path(f"/proc/{self.process.pid}/io").read_text(), re.M)[1])

    def wait_for_line(self, pattern, count, seconds):
        """Waits until the log has `count` lines that match. Returns the time of waiting."""
        begin = time.monotonic()
        while len(re.findall(pattern, self.log.read_text())) < count:
            if time.monotonic() - begin > seconds:
                raise TimeoutError(f"{pattern} did not appear {count} times within {seconds} s")
            if self.process.poll() is not None:
                raise RuntimeError(f"the coordinator has ended: {self.log.read_text()[-500:]}")
            time.sleep(POLL_SECONDS)
        return time.monotonic() - begin


class Swarm:
    """The workers, divided among processes."""

    def __init__(self, binaries, coordinator, workers, processes):
        trust = ["--tls-ca", str(coordinator.certificate)] if coordinator.tls else []
        self.workers = workers
        self.begin = time.monotonic()
        self.processes = []
        for i in range(processes):
            first, last = workers * i // processes, workers * (i + 1) // processes
            self.processes.append(
                subprocess.Popen([str(binaries / "swarm"), "--coordinator", coordinator.address, "--workers", str(last - first), "--first",
                                  str(first), "--slots", str(SLOTS), *trust], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))

    def call(self, process, command):
        process.stdin.write(command + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    def report(self):
        records = [self.call(process, "report") for process in self.processes]
        ends = {}
        for record in records:
            for text, count in record["stream_ends"].items():
                reason = re.sub(r"worker \S+", "a worker", text, count=1)
                ends[reason] = ends.get(reason, 0) + count
        total = {key: sum(record[key] for record in records) for key in ("registered", "registrations", "started", "stopped", "heartbeats", "round_trips")}
        total |= {key: max(record[key] for record in records) for key in ("registered_at_ns", "started_at_ns", "stopped_at_ns")}
        total |= {key: round(max(record[key] for record in records), 2) for key in ("p50_ms", "p99_ms")}
        return total | {"stream_ends": ends}

    def wait_until_registered(self, seconds):
        while time.monotonic() - self.begin < seconds:
            record = self.report()
            if record["registered"] >= self.workers:
                return record["registered_at_ns"] / 1e9 - self.begin
            time.sleep(0.1)
        raise TimeoutError(f"{record['registered']} of {self.workers} workers registered within {seconds} s")

    def cpu_seconds(self):
        return sum(map(cpu_seconds_of, self.processes))

    def kill_a_rank(self):
        return self.call(self.processes[0], "kill") / 1e9

    def lose_node(self):
        return self.call(self.processes[0], "lose") / 1e9

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


def measure_heartbeats(coordinator, swarm, seconds):
    swarm.report()
    cpu, begin = coordinator.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    record = swarm.report()
    spent, elapsed = coordinator.cpu_seconds() - cpu, time.monotonic() - begin
    return {
        "heartbeats_per_s": round(record["heartbeats"] / elapsed),
        "cpu_us_per_heartbeat": round(1e6 * spent / max(record["heartbeats"], 1), 1),
        "cores": round(spent / elapsed, 3),
        "kib_per_worker": round((coordinator.resident_kib() - coordinator.empty_kib) / swarm.workers, 1),
        "round_trip_p50_ms": record["p50_ms"],
        "round_trip_p99_ms": record["p99_ms"],
    }


def measure(args, workers, figures):
    with tempfile.TemporaryDirectory() as folder:
        coordinator = Coordinator(args.bin, pathlib.Path(folder), args.tls)
        if args.queue:
            figures["queued"] = fill_queue(args.bin, coordinator, args.queue, 2 * workers)
        swarm = Swarm(args.bin, coordinator, workers, args.processes or max(2, workers // WORKERS_PER_PROCESS))
        try:
            fill_in(args, coordinator, swarm, figures)
        except (TimeoutError, RuntimeError, subprocess.SubprocessError) as problem:
            decisions = [line for line in coordinator.log.read_text().splitlines() if " job " in line or " warning " in line]
            printed = (getattr(problem, "stderr", None) or b"").decode(errors="replace").strip()
            figures["failed"] = "; ".join([str(problem)[-500:], printed[-500:], *(line[:300] for line in decisions[-1:])])
        finally:
            try:
                figures["stream_ends"] = swarm.report()["stream_ends"]
            finally:
                swarm.stop()
                coordinator.process.terminate()
                try:
                    coordinator.process.wait(timeout=30)
                except subprocess.TimeoutExpired:
                    coordinator.process.kill()


def fill_queue(binaries, coordinator, count, nodes):
    submitter = Swarm(binaries, coordinator, 0, 1)
    accepted = submitter.call(submitter.processes[0], f"queue {count} {min(nodes, NODES_MAX)}")
    submitter.stop()
    return accepted


class Stages:
    """Adds the CPU time of each stage to the figures."""

    def __init__(self, coordinator, swarm, figures):
        self.coordinator, self.swarm = coordinator, swarm
        self.seconds = figures["cpu_s"] = {}
        self.spent = (0, 0)

    def begin(self):
        self.spent = (self.coordinator.cpu_seconds(), self.swarm.cpu_seconds())

    def end(self, name):
        spent = (self.coordinator.cpu_seconds(), self.swarm.cpu_seconds())
        self.seconds[name] = {"coordinator": round(spent[0] - self.spent[0], 2), "workers": round(spent[1] - self.spent[1], 2)}
        self.spent = spent


def fill_in(args, coordinator, swarm, figures):
    limit = args.limit
    stages = Stages(coordinator, swarm, figures)
    figures["registered_s"] = round(swarm.wait_until_registered(limit), 2)
    stages.end("registered")
    time.sleep(SETTLE_SECONDS)
    figures["idle"] = measure_heartbeats(coordinator, swarm, args.seconds)
    environment = os.environ | {"MUSTER_COORDINATOR": coordinator.address}
    if coordinator.tls:
        environment["MUSTER_TLS_CA"] = str(coordinator.certificate)

    def muster(*words):
        subprocess.run([str(args.bin / "muster"), *map(str, words)], env=environment, check=True, capture_output=True, timeout=limit)

    ranks = swarm.workers * SLOTS
    swarm.report()
    stages.begin()
    idle_kib, begin = coordinator.resident_kib(), time.monotonic()
    muster("submit", "--priority", 1, "--nodes", swarm.workers, "--ranks-per-node", SLOTS, "--restarts", 9, "--no-check", "--json", "--", "true")
    figures["told_s"] = round(wait_for_ranks(swarm, "started", ranks, begin, limit), 2)
    coordinator.wait_for_line(r"RUNNING: attempt 1", 1, limit)
    figures["running_after_s"] = round(time.monotonic() - begin, 2)
    stages.end("running")
    time.sleep(SETTLE_SECONDS)
    figures["running"] = measure_heartbeats(coordinator, swarm, args.seconds)
    figures["bytes_per_rank"] = round(1024 * (coordinator.resident_kib() - idle_kib) / ranks)

    written = coordinator.written_bytes()
    swarm.report()
    stages.begin()
    killed = swarm.kill_a_rank()
    figures["abort_s"] = round(wait_for_ranks(swarm, "stopped", ranks - 1, killed, limit), 3)
    stages.end("aborted")
    coordinator.wait_for_line(r"RUNNING: attempt 2", 1, limit)
    stages.end("restarted")
    figures["restarted_s"] = round(time.monotonic() - killed, 2)
    figures["stored_mib"] = round((coordinator.written_bytes() - written) / 2**20, 2)
    if args.faults:
        measure_faults(coordinator, swarm, figures, ranks, limit, stages)
    stages.begin()
    begin = time.monotonic()
    muster("cancel", 1 + figures.get("queued", 0))
    coordinator.wait_for_line(r"CANCELLED: ", 1, limit)
    figures["cancelled_s"] = round(time.monotonic() - begin, 2)
    stages.end("cancelled")


def wait_for_ranks(swarm, what, ranks, begin, limit):
    """Waits until `ranks` ranks were started or stopped. Returns the last one's time."""
    count = 0
    while count < ranks:
        record = swarm.report()
        count += record[what]
        if time.monotonic() - begin > limit:
            raise TimeoutError(f"{count} of {ranks} ranks were {what} within {limit} s")
        time.sleep(POLL_SECONDS)
    return record[f"{what}_at_ns"] / 1e9 - begin


def measure_faults(coordinator, swarm, figures, ranks, limit, stages):
    time.sleep(SETTLE_SECONDS)
    swarm.report()
    stages.begin()
    lost = swarm.lose_node()
    figures["node_lost_s"] = round(wait_for_ranks(swarm, "stopped", ranks - SLOTS, lost, limit), 3)
    stages.end("node lost")
    coordinator.wait_for_line(r"RUNNING: attempt 3", 1, limit)
    time.sleep(SETTLE_SECONDS)
    restarted = time.monotonic()
    coordinator.restart()
    stages.begin()
    while (registered := swarm.report())["registered"] < swarm.workers or registered["registered_at_ns"] / 1e9 < restarted:
        if time.monotonic() - restarted > limit:
            raise TimeoutError(f"{registered['registered']} workers registered again within {limit} s")
        time.sleep(0.1)
    figures["back_s"] = round(registered["registered_at_ns"] / 1e9 - restarted, 2)
    stages.end("back")
    time.sleep(2 * SETTLE_SECONDS)
    figures["attempt"] = max(map(int, re.findall(r"RUNNING: attempt (\d+)", coordinator.log.read_text())))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--workers", default="1000,4000")
    parser.add_argument("--processes", type=int, help="processes of the workers; default: 2, or one for each 1,000")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--queue", type=int, default=0, help="jobs that wait while the workers connect")
    parser.add_argument("--faults", action="store_true", help="also lose a node and restart the coordinator")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--limit", type=float, default=120, help="time limit of each stage")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/swarm.json")
    args = parser.parse_args()
    run = {**describe_run(), "tls": args.tls, "workers": {}}
    runs = json.loads(args.out.read_text())["runs"] if args.out.exists() else []
    for workers in map(int, args.workers.split(",")):
        figures = run["workers"][str(workers)] = {}
        measure(args, workers, figures)
        print(workers, json.dumps(figures), flush=True)
        result = {"what": f"one coordinator and simulated workers of {SLOTS} ranks, in processes on its machine", "runs": [*runs, run]}
        args.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
