#!/usr/bin/env python3
"""Logs a run's metrics_file to an MLflow tracking server, by its REST API: nothing to install.

  deploy/monitoring/mlflow_log.py metrics.jsonl --tracking-uri http://127.0.0.1:5000
                                  [--experiment NAME] [--follow] [--state FILE]

Each run_name in the file becomes one MLflow run. With --follow the program waits for more lines
until it is interrupted. FILE (default: metrics.jsonl.mlflow) has the run's id and the number of
logged lines, so that the same command continues after an interruption.
"""
import argparse
import itertools
import json
import math
import os
import pathlib
import sys
import time
import urllib.error
import urllib.request

BATCH_MAX = 1000  # metrics in one request: the server's own bound
POLL_SECONDS = 1.0
TRIES = 5
DELAY_MAX_SECONDS = 60


class Server:
    def __init__(self, uri, is_patient):
        self.is_patient = is_patient  # waits for an unreachable server without a limit
        self.base = uri.rstrip("/") + "/api/2.0/mlflow/"
        self.token = os.environ.get("MLFLOW_TRACKING_TOKEN")

    def post(self, path, **body):
        return self.query(path, json.dumps(body).encode())

    def query(self, path, data=None):
        request = urllib.request.Request(self.base + path, data=data, headers={"Content-Type": "application/json"})
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        for attempt in itertools.count():
            try:
                with urllib.request.urlopen(request, timeout=30) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                printed = error.read().decode(errors="replace")
                if error.code < 500:
                    raise SystemExit(f"mlflow_log.py: {self.base}{path}: {error.code}: {printed[:500]}")
            except OSError as error:
                printed = str(error)
            if attempt + 1 >= TRIES and not self.is_patient:
                break
            time.sleep(min(2 ** attempt, DELAY_MAX_SECONDS))
        raise SystemExit(f"mlflow_log.py: {self.base}{path}: no answer in {TRIES} tries: {printed[:500]}")

    def experiment(self, name):
        found = self.post("experiments/search", filter=f"name = '{name}'", max_results=1).get("experiments", [])
        return found[0]["experiment_id"] if found else self.post("experiments/create", name=name)["experiment_id"]


def metrics_of(row, now_ms):
    return [{"key": key, "value": value, "timestamp": now_ms, "step": row["step"]} for key, value in row.items()
            if key != "step" and isinstance(value, (int, float)) and math.isfinite(value)]


class Logger:
    def __init__(self, server, arguments):
        self.server, self.path, self.experiment = server, arguments.metrics_file, arguments.experiment
        self.state_path = arguments.state or self.path.with_name(self.path.name + ".mlflow")
        self.state = json.loads(self.state_path.read_text()) if self.state_path.exists() else {"offset": 0, "runs": {}}

    def save(self):
        temporary = self.state_path.with_name(self.state_path.name + ".new")
        temporary.write_text(json.dumps(self.state))
        temporary.replace(self.state_path)

    def run_of(self, name):
        if name not in self.state["runs"]:
            now = int(1000 * time.time())
            made = self.server.post("runs/create", experiment_id=self.server.experiment(self.experiment), run_name=name, start_time=now,
                                    tags=[{"key": "muster.metrics_file", "value": str(self.path)}])
            self.state["runs"][name] = made["run"]["info"]["run_id"]
            self.save()
        return self.state["runs"][name]

    def log_new_lines(self):
        """Returns the number of logged lines."""
        lines = 0
        with open(self.path, "rb") as file:
            file.seek(self.state["offset"])
            pending, owner = [], None
            for raw in file:
                if not raw.endswith(b"\n"):
                    break  # the line is still being written
                try:
                    row = json.loads(raw)
                    row["run_name"], row["step"]
                except (ValueError, TypeError, KeyError):
                    print(f"mlflow_log.py: {self.path}: {raw[:80]!r} is no line of it, and left out", file=sys.stderr)
                    self.state["offset"] += len(raw)
                    continue
                metrics = metrics_of(row, int(1000 * time.time()))
                if pending and (owner != row["run_name"] or len(pending) + len(metrics) > BATCH_MAX):
                    self.send(owner, pending)
                    pending = []
                owner = row["run_name"]
                pending += metrics
                self.state["offset"] += len(raw)
                lines += 1
            if pending:
                self.send(owner, pending)
        return lines

    def send(self, name, metrics):
        self.server.post("runs/log-batch", run_id=self.run_of(name), metrics=metrics)
        self.save()

    def finish(self):
        for run in self.state["runs"].values():
            self.server.post("runs/update", run_id=run, status="FINISHED", end_time=int(1000 * time.time()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("metrics_file", type=pathlib.Path)
    parser.add_argument("--tracking-uri", default=os.environ.get("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000"))
    parser.add_argument("--experiment", default="muster")
    parser.add_argument("--follow", action="store_true", help="wait for more lines, also for the file itself")
    parser.add_argument("--state", type=pathlib.Path)
    arguments = parser.parse_args()
    if "'" in arguments.experiment:
        parser.error(f"--experiment {arguments.experiment}: MLflow's search takes no name with a quote")
    logger = Logger(Server(arguments.tracking_uri, arguments.follow), arguments)
    try:
        while arguments.follow and not arguments.metrics_file.exists():
            time.sleep(POLL_SECONDS)
        logger.log_new_lines()
        while arguments.follow:
            time.sleep(POLL_SECONDS)
            logger.log_new_lines()
    except KeyboardInterrupt:
        logger.server.is_patient = False
    except FileNotFoundError:
        sys.exit(f"mlflow_log.py: there is no {arguments.metrics_file}")
    logger.finish()


if __name__ == "__main__":
    main()
