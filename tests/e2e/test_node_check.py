"""Deep checks of idle nodes: on request, on a schedule, and beside jobs."""
import json
import unittest

from harness import BIN, MusterTest, wait_until
from steady_worker import steady_worker

class NodeCheck(MusterTest):
    def nodes(self):
        return {node["name"]: node for node in json.loads(self.muster("node", "list", "--json", check=0).stdout)["nodes"]}

    def wait_for_nodes(self, count):
        wait_until(lambda: sum(node["connected"] for node in self.nodes().values()) == count, 60, f"{count} workers")

    def start_steady_worker(self, coordinator, name, gemm=1):
        program = steady_worker(self.dir / f"programs-{name}", gemm)
        return self.start(program, "--coordinator", coordinator.address, "--name", name, "--slots", 1,
                          "--work-dir", self.dir / "work" / name, "--local-dir", self.dir / "local" / name,
                          "--trainer", BIN / "muster-trainer", "--http", "127.0.0.1:0", "--rendezvous", "127.0.0.1:0")

    def sweep(self):
        return json.loads(self.muster("node", "check", "--deep", "--show", "--json").stdout)

    def test_slow_node_is_excluded_with_the_reason(self):
        coordinator = self.start_coordinator()
        self.muster("node", "check", "--deep", check=2)  # there is no node
        healthy = ("node1", "node2", "node3")
        for name in healthy:
            self.start_steady_worker(coordinator, name)
        self.start_steady_worker(coordinator, "node4", gemm=0.01)
        self.wait_for_nodes(4)
        bad = self.muster("node", "check", "--deep", "--seconds", "0.01", check=2)
        self.assertIn("0.1", bad.stderr)
        unknown = self.muster("node", "check", "node9", "--deep")
        self.assertIn('there is no worker "node9"', unknown.stderr)
        done = self.muster("node", "check", "--deep", "--seconds", "0.1", "--storage", self.dir, "--json", check=1)
        sweep = json.loads(done.stdout)
        self.assertEqual({node["node"]: node["outcome"] for node in sweep["nodes"]},
                         dict.fromkeys(healthy, "passed") | {"node4": "failed"}, sweep)
        self.assertEqual(sweep["findings"], [])
        for name in ("gemm", "memory", "storage_write", "storage_read", "all_reduce"):
            for node in sweep["nodes"][1:]:
                self.assertGreater(node["check"]["measurements"][name]["value"], 0, (name, sweep))
        exclusion = self.nodes()["node4"]["exclusion"]
        self.assertEqual(exclusion["cause"], "deep check failed", exclusion)
        self.assertEqual(exclusion["reason"], "gemm is 0.01 TFLOP/s; the median of the 4 nodes of its kind is 1 TFLOP/s")
        self.assertEqual(exclusion["until_unix_ns"], 0)
        # The history and the exclusion are stored.
        coordinator.kill()
        coordinator.wait(timeout=30)
        coordinator = self.start_coordinator(listen=coordinator.address)
        checks = json.loads(self.muster("node", "checks", "node4", "--json", check=0).stdout)["checks"]
        self.assertEqual([check["passed"] for check in checks], [False], checks)
        self.assertRegex(self.muster("node", "checks", "node1", check=0).stdout, r"AGE +CHECK +GEMM(.|\n)*passed")
        self.wait_for_nodes(4)
        self.muster("node", "admit", "node4", check=0)
        self.assertNotIn("exclusion", self.nodes()["node4"])

    def test_job_ends_the_check_of_its_node(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, "node1", 1)
        self.wait_for_nodes(1)
        started = json.loads(self.muster("node", "check", "--deep", "--seconds", "600", "--no-wait", "--json", check=0).stdout)
        self.assertTrue(started["running"], started)
        busy = self.muster("node", "check", "--deep")
        self.assertIn(f"sweep {started['id']} is running", busy.stderr)
        args = self.run_args("needs-it", "steps=3", "enable_checkpointing=false", ranks=1)
        args[0] = "submit"
        job = json.loads(self.muster(*args, "--json", check=0).stdout)["id"]
        wait_until(lambda: self.job(job)["state"] == "SUCCEEDED", 90, "the job's end")
        wait_until(lambda: not self.sweep()["running"], 30, "the sweep's end")
        node = self.sweep()["nodes"][0]
        self.assertEqual((node["outcome"], node["sentence"]), ("skipped", "ranks need the node"))
        self.assertNotIn("exclusion", self.nodes()["node1"])
        self.muster("node", "check", "--deep", "--show", check=0)
        # A node that is named must have passed.
        self.muster("node", "check", "node1", "--deep", "--show", check=1)

    def test_wait_outlasts_a_restart_of_the_coordinator(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, "node1", 1)
        self.wait_for_nodes(1)
        check = self.start(BIN / "muster", "node", "check", "--deep", "--seconds", "600")
        wait_until(lambda: "test themselves" in self.output(check), 60, "the sweep")
        coordinator.kill()
        coordinator.wait(timeout=30)
        wait_until(lambda: "trying again" in self.output(check), 60, "the lost connection")
        self.start_coordinator(listen=coordinator.address)
        self.assertEqual(check.wait(timeout=60), 1)
        self.assertIn("the coordinator was restarted, which has ended the sweep", self.output(check))

    def test_idle_nodes_are_checked_on_a_schedule(self):
        coordinator = self.start_coordinator(extra=["--idle-check-every-seconds", "600"])
        self.start_worker(coordinator, "node1", 1)
        self.wait_for_nodes(1)

        def checks():
            return json.loads(self.muster("node", "checks", "node1", "--json", check=0).stdout)["checks"]
        wait_until(checks, 120, "a scheduled check")
        self.assertTrue(self.sweep()["scheduled"])
        self.assertEqual(len(checks()), 1)


if __name__ == "__main__":
    unittest.main()
