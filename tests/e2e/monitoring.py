"""Runs the distribution's Prometheus and Alertmanager in a test's folder, with the configuration of
deploy/monitoring.
"""
import http.server
import json
import pathlib
import re
import shutil
import threading
import time
import urllib.parse
import urllib.request

from harness import SOURCE, wait_until

SHIPPED = SOURCE / "deploy" / "monitoring"
TOOLS = ("prometheus", "promtool", "prometheus-alertmanager", "amtool")
PACKAGES = "apt-get install prometheus prometheus-alertmanager"
LISTENING = re.compile(r'msg="Listening on" address=127\.0\.0\.1:(\d+)')
SAMPLE = re.compile(r"^([a-z_0-9:A-Z]+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'([a-z_A-Z0-9]+)="((?:[^"\\]|\\.)*)"')


def missing_tool():
    """Returns the first tool that is not installed, or None."""
    return next((tool for tool in TOOLS if shutil.which(tool) is None), None)


def get_json(url, **parameters):
    with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(parameters)}", timeout=20) as response:
        return json.load(response)


class Receiver:
    """A webhook that records the bodies of all notifications."""

    def __init__(self):
        bodies = self.bodies = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *words):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/alerts"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def alerts(self, name):
        return [alert for body in list(self.bodies) for alert in body["alerts"] if alert["labels"]["alertname"] == name]

    def stop(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def replaced(text, *pairs):
    for old, new in pairs:
        assert old in text, f"the shipped configuration has no {old!r} any more"
        text = text.replace(old, new)
    return text


def listening_port(test, process):
    def port():
        test.assertIsNone(process.poll(), test.output(process))
        found = LISTENING.search(test.output(process))
        return found and found.group(1)
    return wait_until(port, 30, "a port of " + process.args[0])


def start_alertmanager(test, receiver):
    """Starts an Alertmanager that notifies the receiver. Returns its URL."""
    folder = test.dir / "alertmanager"
    folder.mkdir()
    (folder / "alertmanager.yml").write_text(replaced((SHIPPED / "alertmanager.yml").read_text(), ("http://127.0.0.1:8080/alerts", receiver.url)))
    process = test.start("prometheus-alertmanager", f"--config.file={folder}/alertmanager.yml", f"--storage.path={folder}/data",
                         "--web.listen-address=127.0.0.1:0", "--cluster.listen-address=")
    return f"http://127.0.0.1:{listening_port(test, process)}"


def start_prometheus(test, coordinator=None, workers=(), alertmanager="http://127.0.0.1:1"):
    """Starts a Prometheus with the shipped rules that scrapes these daemons, and the targets of
    files in prometheus/slurm, each second. Returns its URL.
    """
    folder = test.dir / "prometheus"
    shutil.copytree(SHIPPED, folder)
    (folder / "slurm").mkdir()
    config = folder / "prometheus.yml"
    port = coordinator.ports["http_port"] if coordinator else 1
    config.write_text(replaced(config.read_text(), ("_interval: 15s", "_interval: 1s"), ("127.0.0.1:7071", f"127.0.0.1:{port}"),
                               ("127.0.0.1:9093", alertmanager.removeprefix("http://"))))
    (folder / "workers.json").write_text(json.dumps([{"targets": [f"127.0.0.1:{worker.ports['http_port']}" for worker in workers]}]))
    process = test.start("prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data", "--web.listen-address=127.0.0.1:0")
    return f"http://127.0.0.1:{listening_port(test, process)}"


def declared_metrics(test):
    return {row["name"]: row for row in json.loads(test.muster("metrics", "--json", check=0).stdout)["metrics"]}


def undeclared(page, declared):
    """Returns (series, reason) for samples of a page whose name or labels are not in the table of
    metrics.
    """
    found = []
    for line in page.splitlines():
        if not line or line.startswith("#"):
            continue
        name, labels, _ = SAMPLE.match(line).groups()
        names = {key for key, _ in LABEL.findall(labels or "")}
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        row = declared.get(name) or declared.get(base)
        if row is None or (row["name"] != name) != (row["type"] == "histogram"):
            found.append((line, "no such metric"))
        elif names - {"le"} != set(row["labels"]):
            found.append((line, f"its labels are {row['labels']}"))
    return found


def panel_queries(dashboard, job):
    """Returns [(panel's title, panel's type, query)] with the variables filled in."""
    def filled(expr):
        expr = expr.replace("$cluster", ".*").replace("$instance", ".*")
        return expr.replace("$job_id", str(job)).replace("$__rate_interval", "10s").replace("$__range", "5m")
    return [(panel["title"], panel["type"], filled(target["expr"])) for panel in dashboard["panels"] for target in panel["targets"]]


def query_range(prometheus, expr, seconds=120, step=1):
    """Returns the series of the last seconds, as a panel draws them."""
    now = time.time()
    answer = get_json(f"{prometheus}/api/v1/query_range", query=expr, start=now - seconds, end=now, step=step)
    return [series for series in answer["data"]["result"] if any(value not in ("NaN", "+Inf", "-Inf") for _, value in series["values"])]


def dashboards():
    return {path.stem: json.loads(path.read_text()) for path in sorted(pathlib.Path(SHIPPED / "dashboards").glob("*.json"))}
