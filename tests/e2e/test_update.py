"""`muster update`: a changed config or program is rolled in between two attempts on the same nodes,
and rolled back if it fails in its trial.
"""
import json
import os
import signal
import unittest

from harness import TINY, MusterTest, wait_until
from test_page import Browser


class Update(MusterTest):
    def history(self, job):
        """Returns the job's attempts, oldest first."""
        return json.loads(self.muster("history", job, "--json", check=0).stdout)["attempts"][::-1]

    def step(self, job):
        ranks = self.job(job)["ranks"]
        return ranks[0]["step"] if ranks else -1

    def wait_for_attempt(self, job, attempt, steps=1):
        def reached():
            now = self.job(job)
            self.assertNotIn(now["state"], ("FAILED", "SUCCEEDED"), now["reason"])
            return now["attempt"] == attempt and now["state"] == "RUNNING" and now["ranks"][0]["step"] >= steps
        wait_until(reached, 90, f"attempt {attempt} of job {job}")

    def test_learning_rate_is_changed_and_one_that_diverges_is_rolled_back(self):
        coordinator = self.start_coordinator()
        for name in ("node1", "node2"):
            self.start_worker(coordinator, name, slots=1)
        self.muster("submit", self.base_yml(), "run_name=mine", f"base_output_directory={self.dir}/out", "dataset_type=synthetic",
                    *TINY, "steps=1000000", "checkpoint_period=1000000", "lr_schedule_type=constant", "warmup_steps_fraction=0",
                    "learning_rate=1e-3", f"metrics_file={self.dir}/curve.jsonl", "restarts_max=0", "--nodes", 2,
                    "--ranks-per-node", 1, check=0)
        self.wait_for_attempt(1, 1, steps=20)
        refused = self.muster("update", 1, "learning_rate=5e-4", "base_emb_dim=128", check=2)
        self.assertIn("base_emb_dim=128: a job cannot be updated with it: its checkpoints would not fit the model", refused.stderr)
        self.assertEqual(self.job(1)["attempt"], 1)

        changed = self.muster("update", 1, "learning_rate=5e-4", "--rollback-steps", 5, check=0)
        self.assertIn("job 1: revision 2 (learning_rate=5e-4)", changed.stdout)
        wait_until(lambda: [r["end"] for r in self.job(1)["revisions"]] == ["passed its trial of 5 steps"], 90, "the trial")
        first, second = self.history(1)
        self.assertEqual((first["revision"], second["revision"]), (1, 2))
        self.assertEqual(first["steps_lost"], 0, first)
        self.assertEqual(second["first_step"], first["last_step"])
        self.assertEqual(second["workers"], first["workers"])
        self.assertIn("revision 2 is rolled in: learning_rate=5e-4", first["end"])
        wait_until(lambda: self.step(1) > second["first_step"] + 5, 60, "steps of the new revision")
        text = (self.dir / "curve.jsonl").read_text()
        rows = [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]
        self.assertEqual([row["step"] for row in rows], list(range(len(rows))), "a step is missing or repeated")
        rates = [row["learning/current_learning_rate"] for row in rows]
        self.assertAlmostEqual(rates[first["last_step"] - 1], 1e-3)
        self.assertAlmostEqual(rates[first["last_step"]], 5e-4)
        self.assertIsNone(self.job(1)["incident"], "an update is no fault")
        self.assertIn("planned", self.muster("goodput", 1, check=0).stdout)

        # The loss is infinite or NaN after some steps: exit code 3 ends a job that is not on trial.
        self.muster("update", 1, "learning_rate=1e38", "gradient_clipping_threshold=0", check=0)
        wait_until(lambda: len(self.history(1)) == 4, 120, "the rollback")
        self.wait_for_attempt(1, 4, steps=first["last_step"] + 1)
        job = self.job(1)
        self.assertEqual(job["revision"], 2)
        self.assertEqual(job["spec"]["train_config"]["learning_rate"], 5e-4)
        self.assertIn("so the job returns to revision 2", job["revisions"][1]["end"])
        self.assertIn("the job returns to revision 2", self.muster("incident", "show", job["incident"]["id"], check=0).stdout)
        text = self.muster("status", 1, check=0).stdout
        self.assertRegex(text, r"revision 2 \(current\), .* ago: learning_rate=5e-4; passed its trial of 5 steps\n")
        self.muster("cancel", 1, "--force", check=0)

    def test_broken_program_is_rolled_back_and_the_coordinator_is_killed_on_the_way(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, slots=1)
        loop = "while sleep 0.1; do :; done"
        self.muster("submit", "--restarts", 0, "--nodes", 1, "--ranks-per-node", 1, "--working-directory", self.dir, "--",
                    "sh", "-c", f"echo version 1; {loop}", check=0)
        wait_until(lambda: "version 1" in self.muster("logs", 1).stdout, 30, "the first version")
        self.muster("update", 1, "--at-checkpoint", "--", "sh", "-c", "exit 9", check=0)
        self.assertIn("pending", self.muster("status", 1, check=0).stdout)
        self.muster("update", 1, "--cancel", check=0)
        self.assertIn("no pending update", self.muster("update", 1, "--cancel", check=2).stderr)
        self.assertIn("has no keys", self.muster("update", 1, "steps=3", check=2).stderr)

        # The shell takes two seconds to end, so the coordinator is killed while the attempt ends.
        self.muster("update", 1, "--env", "WHICH=2", "--", "sh", "-c", f"trap 'sleep 2; exit' TERM; echo version $WHICH; {loop}", check=0)
        wait_until(lambda: "version 2" in self.muster("logs", 1).stdout, 60, "the second version")
        refused = self.muster("update", 1, "--", "env", check=2)
        self.assertIn("spec.environment lacks WHICH", refused.stderr)
        self.muster("update", 1, "--env", "WHICH=3", "--", "sh", "-c", "echo version 3; exit 9", check=0)
        os.kill(coordinator.pid, signal.SIGKILL)
        coordinator.wait(timeout=30)
        self.start_coordinator(listen=coordinator.address)
        wait_until(lambda: [a["revision"] for a in self.history(1)] == [1, 3, 4, 1], 90, "the rollback")
        wait_until(lambda: "version 1" in self.muster("logs", 1).stdout, 60, "the first version again")
        self.assertIn("version 3", self.muster("logs", 1, "--attempt", 3, check=0).stdout)
        self.assertIn("revision 4 failed before its first step, so the job returns to revision 1", self.job(1)["revisions"][-1]["end"])
        self.muster("cancel", 1, "--force", check=0)

    def test_config_of_a_job_without_settings_cannot_be_updated(self):
        """A job that was submitted by HTTP has only its config, as one of an earlier version."""
        coordinator = self.start_coordinator()
        self.muster("submit", self.base_yml(), "run_name=mine", f"base_output_directory={self.dir}/out", "dataset_type=synthetic",
                    *TINY, "steps=1000000", "--nodes", 1, "--ranks-per-node", 1, "--no-check", check=0)
        known = self.job(1)["spec"]
        spec = {name: known[name] for name in ("name", "nodes", "ranks_per_node", "output_directory", "steps", "train_config")}
        self.muster("cancel", 1, check=0)
        status, answer = Browser(coordinator.ports["http_port"]).post("/jobs", {"request_id": "once", "spec": spec})
        self.assertEqual((status, answer.get("id")), (200, 2), answer)
        refused = self.muster("update", 2, "learning_rate=1e-4", check=2)
        self.assertIn("the job has no record of its settings", refused.stderr)
        self.start_worker(coordinator, slots=1)
        self.wait_for_attempt(2, 1, steps=5)
        self.muster("update", 2, "--env", "OMP_NUM_THREADS=1", "--rollback-steps", 2, check=0)
        self.wait_for_attempt(2, 2, steps=6)
        wait_until(lambda: self.job(2)["revisions"][0]["end"] == "passed its trial of 2 steps", 60, "the trial")
        self.muster("cancel", 2, "--force", check=0)


if __name__ == "__main__":
    unittest.main()
