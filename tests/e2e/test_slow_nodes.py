"""A training leaves a node that has become slow, for a node that is free."""
import json
import os
import signal
import threading
import time
import unittest

from harness import TINY, MusterTest, wait_until


class Pulses:
    """Stops a process for most of each tenth of a second."""

    def __init__(self, pid):
        self.pid = pid
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            while not self.ended.is_set():
                os.kill(self.pid, signal.SIGSTOP)
                time.sleep(0.07)
                os.kill(self.pid, signal.SIGCONT)
                time.sleep(0.03)
        except ProcessLookupError:
            pass

    def end(self):
        self.ended.set()
        self.thread.join()


class SlowNodes(MusterTest):
    def incident(self):
        """Returns the incident of node1; None without one."""
        for one in json.loads(self.muster("incident", "list", 1, "--json", check=0).stdout)["incidents"]:
            shown = json.loads(self.muster("incident", "show", one["id"], "--json", check=0).stdout)
            # On a busy machine, node0 may be slow for a while, too.
            if any("node1 slows the job down" in moment["text"] for moment in shown["moments"]):
                return shown
        return None

    def test_a_training_leaves_a_slow_node_after_a_checkpoint(self):
        coordinator = self.start_coordinator(extra=["--slower-than-plan-seconds", "3"])
        for node in ("node0", "node1"):
            self.start_worker(coordinator, node, 1)
        self.muster("submit", self.base_yml(), "run_name=moves", f"base_output_directory={self.dir}/out", "dataset_type=synthetic", *TINY,
                    "base_emb_dim=128", "base_mlp_dim=512", "max_target_length=128", "steps=10000000", "log_period=100", "checkpoint_period=10000000", "restarts_max=1", "--nodes", 2, "--ranks-per-node", 1, check=0)
        wait_until(lambda: self.job(1)["ranks"][1:] and self.job(1)["ranks"][1]["step"] > 0, 60, "steps")
        self.muster("checkpoint", 1, check=0)

        time.sleep(15)  # a history of five windows
        self.start_worker(coordinator, "node2", 1)
        pulses = Pulses(self.ranks_of_test()[1])
        self.addCleanup(pulses.end)
        wait_until(self.incident, 120, "the incident")
        wait_until(lambda: "after its next checkpoint" in self.incident()["action"], 60, "the decision")
        self.muster("checkpoint", 1, check=0)
        job = wait_until(lambda: self.job(1)["attempt"] == 2 and self.job(1)["ranks"][1:] and self.job(1), 60, "the next attempt")
        pulses.end()
        self.assertEqual({rank["worker"] for rank in job["ranks"]}, {"node0", "node2"})
        closed = wait_until(lambda: not self.incident()["open"] and self.incident(), 90, "the result")
        self.assertRegex(closed["action"], r"^without node1, a step takes [0-9.e-]+ s, and took [0-9.e-]+ s before \(-\d+%\)$")
        first = json.loads(self.muster("history", 1, "--json", check=0).stdout)["attempts"][1]
        self.assertEqual(first["steps_lost"], 0, first)
        losses = json.loads(self.muster("goodput", 1, "--json", check=0).stdout)["all"]["losses"]
        self.assertGreater(sum(loss["seconds"] for loss in losses if loss["cause"] == "planned"), 0, losses)
        self.muster("cancel", 1, check=0)


if __name__ == "__main__":
    unittest.main()
