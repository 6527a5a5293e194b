"""The cost of a fault: the phases of its recovery and the job's lost time."""
import json
import os
import signal
import unittest

from harness import TINY, MusterTest, wait_until


class Goodput(MusterTest):
    def submit(self, name, *settings):
        self.muster("submit", self.base_yml(), f"run_name={name}", f"base_output_directory={self.dir}/out", "dataset_type=synthetic",
                    *TINY, "steps=1000000", "checkpoint_period=50", *settings, "--ranks", 2, check=0)

    def step(self):
        return min([rank["step"] for rank in self.job(1)["ranks"]] or [-1])

    def goodput(self):
        return json.loads(self.muster("goodput", 1, "--json", check=0).stdout)["all"]

    def incident(self, number):
        return json.loads(self.muster("incident", "show", number, "--json", check=0).stdout)

    def kill_and_come_back(self, number):
        os.kill(self.ranks_of_test()[1], signal.SIGKILL)
        return wait_until(lambda: (lambda r: r if r and r["over"] else None)(
            next((i["recovery"] for i in json.loads(self.muster("incident", "list", "--json", check=0).stdout)["incidents"]
                  if i["id"] == number), None)), 60, "the recovery")

    def test_each_second_is_accounted_for(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator)
        self.submit("killed", "restarts_max=3")
        wait_until(lambda: self.step() >= 120, 60, "120 steps")
        recovery = self.kill_and_come_back(1)
        self.assertEqual((recovery["attempts"], recovery["interrupted_by"]), (1, 0))
        self.assertGreaterEqual(recovery["restored_step"], 50)
        self.assertGreaterEqual(recovery["steps_lost"], 0)
        moments = [recovery[f"{name}_unix_ns"] for name in ("last_progress", "detected", "evidence", "decided", "stopped", "started", "up",
                                                            "loaded", "first_step", "caught_up")]
        self.assertEqual(moments, sorted(moments))
        shown = self.muster("incident", "show", 1, check=0).stdout
        for expected in ("recovery: last progress -> detected ", "-> first step ", f"resumed from step {recovery['restored_step']} of "):
            self.assertIn(expected, shown.replace("\n", " "))

        current, first = json.loads(self.muster("history", 1, "--json", check=0).stdout)["attempts"]
        self.assertEqual((first["attempt"], first["first_step"], first["incident_id"], first["ranks"]), (1, 0, 1, 2))
        self.assertGreaterEqual(first["last_step"], 120)
        self.assertIn("killed by signal 9", first["end"])
        self.assertEqual((current["attempt"], current["ended_unix_ns"], current["first_step"]), (2, 0, recovery["restored_step"]))
        self.assertRegex(self.muster("history", 1, check=0).stdout, r"\n1 .* 0 to \d+ +\d+ +incident 1: rank 1 ")

        all_time = self.goodput()
        self.assertAlmostEqual(all_time["productive_seconds"] + sum(loss["seconds"] for loss in all_time["losses"]),
                               all_time["wall_seconds"], places=6)
        self.assertGreater(sum(loss["seconds"] for loss in all_time["losses"] if loss["cause"] == "rank died"), 0)
        self.assertTrue(0 < all_time["ettr"] < 1, all_time)
        self.assertIn("goodput ", self.muster("status", 1, check=0).stdout)
        self.assertIn("GOODPUT", self.muster("list", check=0).stdout)
        self.assertIn("LOST AFTER", self.muster("goodput", check=0).stdout)
        self.assertIn("there is no job 9", self.muster("goodput", 9, check=2).stderr)
        samples = self.samples(coordinator)
        self.assertGreater(samples['muster_job_productive_seconds_total{job_id="1",name="killed"}'], 0)
        self.assertTrue(0 < samples['muster_job_goodput_ratio{job_id="1",name="killed"}'] < 1)

    def test_coordinator_downtime_is_accounted_for(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator)
        self.submit("going-on", "restarts_max=3")
        wait_until(lambda: self.step() >= 20, 60, "20 steps")
        before = self.goodput()
        coordinator.kill()
        coordinator.wait()
        self.start_coordinator(listen=coordinator.address)
        reached = wait_until(self.step_beyond_restart, 60, "steps after the restart")
        self.assertGreater(reached, 20)
        after = self.goodput()
        self.assertGreater(after["productive_seconds"], before["productive_seconds"])
        self.assertAlmostEqual(after["productive_seconds"] + sum(loss["seconds"] for loss in after["losses"]), after["wall_seconds"],
                               places=6)
        lost = {(loss["cause"], loss["what"]) for loss in after["losses"]}
        self.assertTrue(all(cause == "none" for cause, what in lost), lost)

    def step_beyond_restart(self):
        step = self.step()
        return step if step > 40 else None


if __name__ == "__main__":
    unittest.main()
