"""Lost nodes are excluded until they pass a check; users exclude and admit nodes."""
import json
import signal
import unittest

from harness import MusterTest, wait_until


class Nodes(MusterTest):
    def node(self, name):
        nodes = json.loads(self.muster("node", "list", "--json", check=0).stdout)["nodes"]
        return next((node for node in nodes if node["name"] == name), None)

    def submit(self, name):
        args = self.run_args(name, "steps=1000000", "log_period=1", "restarts_max=2", "enable_checkpointing=false", ranks=1)
        args[0] = "submit"
        return json.loads(self.muster(*args, "--json", check=0).stdout)["id"]

    def running_on(self, job, worker, faults=0):
        """Waits until the job runs on that worker after at least that many faults. Returns it.

        The number is needed because the job counts as running on a lost node until the coordinator
        observes the loss.
        """
        def condition():
            record = self.job(job)
            self.assertNotEqual(record["state"], "FAILED", record["reason"])
            placed = [rank["worker"] for rank in record["placement"]]
            return record if record["state"] == "RUNNING" and placed == [worker] and len(record["faults"]) >= faults else None
        return wait_until(condition, 60, f"job {job} running on {worker}")

    def kill_and_start_again(self, coordinator, worker, name):
        worker.send_signal(signal.SIGKILL)
        worker.wait(timeout=30)
        return self.start_worker(coordinator, name, 1)

    def test_killed_worker_is_excluded_until_it_is_admitted(self):
        coordinator = self.start_coordinator()
        first = self.start_worker(coordinator, "node1", 1)
        job = self.submit("moves")
        self.running_on(job, "node1")
        # No other node exists, so this one is used once its check has passed, and the reason states
        # that.
        first = self.kill_and_start_again(coordinator, first, "node1")
        self.running_on(job, "node1", faults=1)
        node = self.node("node1")
        self.assertEqual(node["exclusion"]["cause"], "worker lost", node)
        self.assertTrue(node["last_check"]["passed"], node)
        self.assertGreater(node["last_check"]["seconds"], 0, node)
        self.assertIn("GFLOP/s", node["last_check"]["details"])
        self.assertIn("only excluded nodes have room: node1 (worker lost: ", self.output(coordinator))
        # It is not used while another node is available.
        self.start_worker(coordinator, "node2", 1)
        wait_until(lambda: self.node("node2"), 30, "node2")
        self.kill_and_start_again(coordinator, first, "node1")
        record = self.running_on(job, "node2", faults=2)
        self.assertEqual([fault["kind"] for fault in record["faults"]], ["worker lost"] * 2, record)
        shown = self.muster("node", "list", check=0).stdout
        self.assertRegex(shown, r"node1 .*left out for \d+m .*worker lost: ")
        self.assertEqual(self.samples(coordinator)['muster_fleet_excluded{cause="worker_lost"}'], 1)
        self.assertIn("node1 is good", self.muster("node", "admit", "node1", check=0).stdout)
        waiting = self.submit("second")
        self.running_on(waiting, "node1")

    def test_manual_exclusion_survives_a_coordinator_restart(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, "node1", 1)
        unknown = self.muster("node", "exclude", "node9", "--reason", "a typing mistake")
        self.assertNotEqual(unknown.returncode, 0)
        self.assertIn('there is no worker "node9"', unknown.stderr)
        self.muster("node", "exclude", "node1", "--reason", "x", "--for", "soon", check=2)
        printed = self.muster("node", "exclude", "node1", "--reason", "fan 3 is broken", "--for", "2h", check=0).stdout
        self.assertRegex(printed, r"node1 is left out for (2h 00m|1h 59m).*: excluded by hand: fan 3 is broken")
        coordinator.kill()
        coordinator.wait(timeout=30)
        coordinator = self.start_coordinator(listen=coordinator.address)
        job = self.submit("waits")
        wait_until(lambda: "left out: node1 (excluded by hand: fan 3 is broken)" in self.job(job)["reason"], 30, "the reason")
        self.muster("node", "admit", "node1", check=0)
        self.running_on(job, "node1")

    def test_planned_drain_moves_a_job_without_a_lost_step(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, "node1", 1)
        args = self.run_args("moves", "steps=1000000", "log_period=1", "restarts_max=0", "checkpoint_period=20", ranks=1)
        args[0] = "submit"
        job = json.loads(self.muster(*args, "--json", check=0).stdout)["id"]
        self.running_on(job, "node1")
        wait_until(lambda: self.job(job)["ranks"][0]["checkpoint_step"] >= 20, 60, "a checkpoint")
        self.start_worker(coordinator, "node2", 1)
        wait_until(lambda: self.node("node2"), 30, "node2")
        self.muster("node", "drain", "node1", "--at", "yesterday", "--reason", "x", check=2)
        printed = self.muster("node", "drain", "node1", "--at", "16s", "--reason", "kernel update", check=0).stdout
        self.assertRegex(printed, r"node1 is left out until admitted, drained in 1[56]s: excluded by hand: kernel update")
        planned = self.job(job)["ranks"][0]["step"]
        record = self.running_on(job, "node2", faults=1)
        self.assertEqual(record["attempt"], 2, record)
        wait_until(lambda: self.job(job)["ranks"][0]["step"] > planned, 60, "further steps")
        current, first = json.loads(self.muster("history", job, "--json", check=0).stdout)["attempts"]
        self.assertEqual(first["steps_lost"], 0, first)
        self.assertIn("worker node1 is drained as planned (kernel update)", first["end"])
        self.assertGreater(first["last_step"], planned, "it trained until shortly before")
        self.assertEqual(current["workers"], "node2")
        losses = json.loads(self.muster("goodput", job, "--json", check=0).stdout)["all"]["losses"]
        self.assertGreater(sum(loss["seconds"] for loss in losses if loss["cause"] == "planned"), 0, losses)
        self.assertEqual(json.loads(self.muster("incident", "list", "--json", check=0).stdout)["incidents"], [])


if __name__ == "__main__":
    unittest.main()
