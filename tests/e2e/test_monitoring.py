"""Prometheus, Alertmanager and Grafana's dashboards on a real run: metrics, rules, queries and a
notification.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

import monitoring
from harness import SOURCE, TINY, MusterTest, wait_until
from monitoring import SHIPPED

PICTURES = os.environ.get("MUSTER_DASHBOARD_PICTURES")  # a folder for pictures
DRAWN_SECONDS = 90  # panels show losses a minute after their start
TOOLS_MISSING = monitoring.missing_tool()


class Monitoring(MusterTest):
    def run_tool(self, *command):
        result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_metrics_page_matches_the_table(self):
        made = self.muster("metrics", "--markdown", check=0).stdout
        self.assertEqual((SOURCE / "docs/metrics.md").read_text(), made, "make it again: muster metrics --markdown > docs/metrics.md")
        plain = self.muster("metrics", check=0).stdout
        for name in monitoring.declared_metrics(self):
            self.assertIn(name, plain)

    def test_dashboards_match_their_script(self):
        self.run_tool(SHIPPED / "make_dashboards.py", "--out", self.dir)
        for path in (SHIPPED / "dashboards").iterdir():
            self.assertEqual(path.read_text(), (self.dir / path.name).read_text(), f"make them again: {SHIPPED}/make_dashboards.py")

    def test_dashboard_links_resolve(self):
        known = {dashboard["uid"]: {variable["name"] for variable in dashboard["templating"]["list"]}
                 for dashboard in monitoring.dashboards().values()}
        for name, dashboard in monitoring.dashboards().items():
            links = re.findall(r"/d/([a-z-]+)\?([^\"]*)", json.dumps(dashboard))
            self.assertTrue(links, name)
            for uid, query in links:
                names = re.findall(r"var-(\w+)=", query) + re.findall(r"\$\{(\w+):queryparam\}", query)
                self.assertLessEqual(set(names), known[uid], uid)

    def test_each_query_selects_the_chosen_clusters(self):
        for name, dashboard in monitoring.dashboards().items():
            for title, _, expr in monitoring.panel_queries(dashboard, 1):
                read = re.findall(r"((?:\b\w+:)?\b(?:muster|process)_\w+(?::\w+)?|ALERTS)(\{[^}]*\})?", expr)
                self.assertTrue(read, expr)
                self.assertEqual([metric for metric, labels in read if 'cluster=~".*"' not in labels], [], f"{name}, {title}")

    def test_each_alert_has_a_runbook_and_both_kinds_of_cases(self):
        rules = "".join(path.read_text() for path in sorted((SHIPPED / "rules").iterdir()))
        cases = "".join(path.read_text() for path in sorted((SOURCE / "tests/monitoring").iterdir()))
        alerts = re.findall(r"- alert: (\w+)(.*?)(?=- alert:|- name:|\Z)", rules, re.S)
        self.assertGreater(len(alerts), 10)
        for name, body in alerts:
            page = re.search(r"runbook: (\S+)", body)
            self.assertTrue(page and name in (SOURCE / page.group(1)).read_text(), f"{name} has no page that speaks of it")
            followed_by = re.findall(rf"alertname: {name}[,\n]\s*exp_alerts:(.*)", cases)
            self.assertIn(" []", [one.rstrip("}") for one in followed_by], f"no case where {name} does not fire")
            self.assertIn("", followed_by, f"no case where {name} fires")
        for _, body in alerts:
            for metric in re.findall(r"\bmuster_[a-z_]+\b", re.search(r"expr:(.*?)(for|labels):", body, re.S).group(1)):
                self.assertTrue(metric in monitoring.declared_metrics(self) or f":{metric}:" in rules, metric)

    @unittest.skipIf(TOOLS_MISSING, f"{TOOLS_MISSING} is not installed: {monitoring.PACKAGES}")
    def test_rules_and_configurations_are_valid(self):
        self.run_tool("promtool", "check", "rules", *sorted((SHIPPED / "rules").iterdir()))
        self.run_tool("promtool", "check", "config", SHIPPED / "prometheus.yml")
        self.run_tool("promtool", "test", "rules", *sorted((SOURCE / "tests/monitoring").iterdir()))
        self.run_tool("amtool", "check-config", SHIPPED / "alertmanager.yml")

    @unittest.skipIf(TOOLS_MISSING, f"{TOOLS_MISSING} is not installed: {monitoring.PACKAGES}")
    def test_hang_is_scraped_drawn_and_notified(self):
        self.store_gemm_peak()
        coordinator = self.start_coordinator()
        self.gpus("gpu bus=16 temperature=61 utilization=97 power=412000 sm=1755 used=52000000000 corrected=2 remap_failed=0", "gpu bus=32 temperature=84 utilization=93 power=380000 sm=1230 throttle=64 used=51000000000 remap_failed=0", "xid 1 31")
        workers = [self.start_worker(coordinator, name=name) for name in ("node0", "node1")]
        receiver = monitoring.Receiver()
        self.addCleanup(receiver.stop)
        prometheus = monitoring.start_prometheus(self, coordinator, workers, monitoring.start_alertmanager(self, receiver))
        self.muster("submit", self.base_yml(), "run_name=hung", f"base_output_directory={self.dir}/out", "dataset_type=synthetic", *TINY,
                    "steps=1000000", "checkpoint_period=300", "restarts_max=3", "--ranks", 4, check=0)
        wait_until(lambda: self.samples(coordinator).get('muster_job_checkpoint_step{job_id="1",name="hung"}', 0) > 0, 60, "a checkpoint")
        wait_until(lambda: any(s.startswith("muster_job_straggler_score") for s in self.samples(coordinator)), 60, "the state of slow ranks")
        self.draw_for(DRAWN_SECONDS)
        os.kill(self.ranks_of_test()[2], signal.SIGSTOP)
        alert = wait_until(lambda: receiver.alerts("MusterHang"), 60, "a notification")[0]
        incidents = json.loads(self.muster("incident", "list", "--json", check=0).stdout)["incidents"]
        hang = [incident["id"] for incident in incidents if incident["kind"] == "hang"][0]
        self.assertEqual(alert["labels"]["incident"], str(hang))
        self.assertEqual((alert["labels"]["job_id"], alert["labels"]["rank"]), ("1", "2"))
        self.assertIn(f"incident {hang}: job 1 (hung) hangs; suspect: rank 2 on node", alert["annotations"]["summary"])
        self.assertEqual(alert["annotations"]["description"], f"muster incident show {hang}")
        self.assertEqual(alert["annotations"]["page"], f"http://{alert['labels']['instance']}/#/incidents/{hang}")
        wait_until(lambda: self.job(1)["attempt"] == 2 and self.job(1)["state"] == "RUNNING", 60, "the next attempt")

        declared = monitoring.declared_metrics(self)
        for process in (coordinator, *workers):
            page = self.page(process, "/metrics")[1]
            self.assertEqual(monitoring.undeclared(page, declared), [])
            check = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True, timeout=30)
            self.assertEqual((check.returncode, check.stdout + check.stderr), (0, ""))
        self.check_panels(prometheus)
        self.draw_for(DRAWN_SECONDS)
        self.draw_panels(prometheus)

    @staticmethod
    def draw_for(seconds):
        """Waits, so that a picture shows the time before and after a fault. Without pictures,
        returns at once.
        """
        if PICTURES:
            time.sleep(seconds)

    def draw_panels(self, prometheus):
        for name in monitoring.dashboards() if PICTURES else ():
            self.run_tool(SHIPPED / "draw_dashboard.py", SHIPPED / "dashboards" / f"{name}.json", "--prometheus", prometheus,
                          "--job", 1, "--seconds", 2 * DRAWN_SECONDS, "--out", pathlib.Path(PICTURES) / f"{name}.svg")

    def check_panels(self, prometheus):
        """Sends each query of each panel, as Grafana does. Some need two scrapes of the second
        attempt.
        """
        for name, dashboard in monitoring.dashboards().items():
            for title, _, expr in monitoring.panel_queries(dashboard, 1):
                if "rpc_seconds" in expr:  # a quantile needs calls within the panel's interval
                    self.muster("list", check=0)
                wait_until(lambda: monitoring.query_range(prometheus, expr), 30, f"data of {name}, {title}: {expr}")


if __name__ == "__main__":
    unittest.main()
