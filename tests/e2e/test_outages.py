"""Outages of the network of workers and their coordinator, in the test's network namespace."""
import json
import subprocess
import time
import unittest

from harness import TINY, wait_until
from own_network import OwnNetworkTest


class Outages(OwnNetworkTest):
    def cut_off(self, coordinator, seconds):
        """Drops all packets to and from the coordinator's port for so long."""
        port = str(coordinator.ports["grpc_port"])
        rules = [["INPUT", "-p", "tcp", side, port, "-j", "DROP"] for side in ("--dport", "--sport")]
        for rule in rules:
            subprocess.run(["iptables", "-I", *rule], check=True)
        time.sleep(seconds)
        for rule in rules:
            subprocess.run(["iptables", "-D", *rule], check=True)

    def test_new_connection_is_in_time_for_the_lease(self):
        """TCP would have repeated the packets of the old connection after the end of the lease."""
        coordinator = self.start_coordinator()
        worker = self.start_worker(coordinator, "node0", 1)
        job = json.loads(self.muster("submit", "--json", "--nodes", "1", "--", "sleep", "600", check=0).stdout)["id"]
        wait_until(lambda: self.job(job)["state"] == "RUNNING", 60, "the job")
        self.cut_off(coordinator, 7.5)
        wait_until(lambda: self.output(worker).count("registered with") >= 2, 60, "the worker's new connection")
        self.assertIn("its host acknowledges nothing; opening a new connection", self.output(worker))
        time.sleep(3)
        now = self.job(job)
        self.assertEqual((now["state"], now["attempt"]), ("RUNNING", 1), now)
        self.muster("cancel", str(job), check=0)

    def test_outage_longer_than_the_lease_ends_no_attempt(self):
        coordinator = self.start_coordinator()
        workers = [self.start_worker(coordinator, f"node{i}", 1) for i in range(2)]
        submitted = self.muster("submit", self.base_yml(), "run_name=outage", f"base_output_directory={self.dir}/out",
                                "dataset_type=synthetic", *TINY, "steps=100000000", "log_period=1000000", "--nodes", 2,
                                "--ranks-per-node", 1, "--json", check=0)
        job = json.loads(submitted.stdout)["id"]
        step = lambda: min((rank["step"] for rank in self.job(job)["ranks"]), default=-1)
        wait_until(lambda: step() >= 5, 90, "some steps")
        for outage, seconds in enumerate((25, 12)):  # the second one follows right after the first
            before = step()
            self.cut_off(coordinator, seconds)
            for worker in workers:
                wait_until(lambda: self.output(worker).count("registered with") >= outage + 2, 60, "the new connection")
            wait_until(lambda: step() > before, 60, "further steps")
        time.sleep(3)
        now = self.job(job)
        self.assertEqual((now["state"], now["attempt"], now["faults"]), ("RUNNING", 1, []), now)
        self.muster("cancel", str(job), check=0)


if __name__ == "__main__":
    unittest.main()
