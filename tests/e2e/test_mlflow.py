"""deploy/monitoring/mlflow_log.py with a stand-in for MLflow's REST API, and with MLflow's own
server.
"""
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import unittest
import urllib.request

from harness import SOURCE, MusterTest, metrics, wait_until
from python_tools import python_or_skip

READ = """
import json, sys
from mlflow import MlflowClient
client = MlflowClient(sys.argv[1])
[run] = client.search_runs([client.get_experiment_by_name("tests").experiment_id])
history = client.get_metric_history(run.info.run_id, "learning/loss")
print(json.dumps({"name": run.info.run_name, "status": run.info.status, "losses": sorted([one.step, one.value] for one in history)}))
"""


class Mlflow:
    """A stand-in that stores experiments, runs and logged figures."""

    def __init__(self):
        self.experiments, self.runs, self.ended, self.failures = {}, {}, [], 0
        mlflow = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = mlflow.answer(self.path.removeprefix("/api/2.0/mlflow/"), body)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *words):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def answer(self, path, body):
        if self.failures > 0:
            self.failures -= 1
            return 503, {}
        if path == "experiments/search":
            name = body["filter"].split("'")[1]
            return 200, {"experiments": [{"experiment_id": self.experiments[name]}] if name in self.experiments else []}
        if path == "experiments/create":
            self.experiments[body["name"]] = str(len(self.experiments) + 1)
            return 200, {"experiment_id": self.experiments[body["name"]]}
        if path == "runs/create":
            run = f"run{len(self.runs)}"
            self.runs[run] = (body["experiment_id"], body["run_name"], [])
            return 200, {"run": {"info": {"run_id": run}}}
        if path == "runs/log-batch":
            if len(body["metrics"]) > 1000:
                return 400, {"message": "too many"}
            self.runs[body["run_id"]][2].extend(body["metrics"])
            return 200, {}
        if path == "runs/update":
            self.ended.append((body["run_id"], body["status"]))
            return 200, {}
        return 404, {}

    def stop(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class MlflowLog(MusterTest):
    def log(self, uri, check=0):
        result = subprocess.run([sys.executable, str(SOURCE / "deploy/monitoring/mlflow_log.py"), str(self.dir / "metrics.jsonl"), "--tracking-uri", uri,
                                 "--experiment", "tests"], capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, check, result.stdout + result.stderr)
        return result.stderr

    def train(self, steps):
        self.muster(*self.run_args("logged", f"steps={steps}", f"metrics_file={self.dir}/metrics.jsonl", ranks=1), check=0)

    def test_run_is_logged_once_and_resumed(self):
        server = Mlflow()
        self.addCleanup(server.stop)
        uri = f"http://127.0.0.1:{server.server.server_port}"
        self.assertIn("there is no", self.log(uri, check=1))
        self.train(60)  # more than one batch of a thousand figures
        server.failures = 1
        self.log(uri)
        self.log(uri)
        self.train(63)
        self.log(uri)
        self.assertEqual(list(server.experiments), ["tests"])
        self.assertEqual([(experiment, name) for experiment, name, _ in server.runs.values()], [("1", "logged")])
        losses = [(one["step"], one["value"]) for one in server.runs["run0"][2] if one["key"] == "learning/loss"]
        rows = metrics(self.dir / "metrics.jsonl")
        self.assertEqual(losses, [(step, rows[step]["learning/loss"]) for step in range(63)])
        self.assertIn(("run0", "FINISHED"), server.ended)
        with open(self.dir / "metrics.jsonl", "a") as file:
            file.write('{"run_name": "log\n{"run_name": "logged", "step": 63, "learning/loss": 1.5}\n')
        self.assertIn("left out", self.log(uri))
        self.assertEqual((server.runs["run0"][2][-1]["step"], server.runs["run0"][2][-1]["value"]), (63, 1.5))

    def test_real_server_has_the_logged_figures(self):
        python = python_or_skip("mlflow")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        uri = f"http://127.0.0.1:{port}"
        server = self.start(python, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", port, "--workers", 1, "--backend-store-uri",
                            f"sqlite:///{self.dir}/mlflow.db", "--artifacts-destination", self.dir / "artifacts")
        try:
            def answers():
                self.assertIsNone(server.poll(), self.output(server))
                try:
                    return urllib.request.urlopen(f"{uri}/health", timeout=5).status == 200
                except OSError:
                    return False
            wait_until(answers, 300, "MLflow's server")  # it imports for a minute on a busy machine
            self.train(20)
            self.log(uri)
            self.train(23)
            self.log(uri)
            read = subprocess.run([python, "-c", READ, uri], capture_output=True, text=True, timeout=120, env=self.env)
            self.assertEqual(read.returncode, 0, read.stderr)
        finally:
            os.killpg(server.pid, signal.SIGTERM)  # it has children
            server.wait(timeout=30)
        rows = metrics(self.dir / "metrics.jsonl")
        self.assertEqual(json.loads(read.stdout), {"name": "logged", "status": "FINISHED", "losses": [
            [step, rows[step]["learning/loss"]] for step in range(23)]})


if __name__ == "__main__":
    unittest.main()
