"""Dependencies, time limits, arrays, quotas and labels, with the real programs."""
import json
import unittest

from harness import MusterTest, wait_until


class Queue(MusterTest):
    def submit(self, *args, check=0):
        result = self.muster("submit", "--json", *args, check=check)
        return json.loads(result.stdout) if check == 0 else result.stderr

    def wait_for(self, job, state):
        wait_until(lambda: self.job(job)["state"] == state, 60, f"job {job} {state}")
        return self.job(job)

    def test_jobs_wait_for_others_and_end_with_their_time_limit(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, "node0", slots=4, extra=("--label", "zone=a"))
        first = self.submit("--name", "first", "--time-limit", "1s", "--restarts", 0, "--", "sleep", "1000")["id"]
        repair = self.submit("--name", "repair", "--dependency", f"afternotok:{first}", "--", "true")["id"]
        lost = self.submit("--name", "lost", "--after-ok", first, "--", "true")["id"]
        elsewhere = self.submit("--name", "elsewhere", "--select", "zone=b", "--", "true")["id"]
        self.assertIn("job 99, which does not exist", self.submit("--after-any", 99, "--", "true", check=2))
        ended = self.wait_for(first, "FAILED")
        self.assertEqual(ended["exit_code"], 124)
        self.assertIn("it reaches its time limit of 1 s", ended["reason"])
        self.assertIsNone(ended["incident"], "the end of a time limit is no fault")
        self.wait_for(repair, "SUCCEEDED")
        self.assertIn(f"it waited until job {first} has succeeded, which is FAILED", self.wait_for(lost, "CANCELLED")["reason"])
        why = self.muster("status", elsewhere, "--why", check=0).stdout
        self.assertIn("0 workers have zone=b, and 0 of them can take its ranks now", why)
        self.assertIn("it does not have zone=b", why)
        self.start_worker(coordinator, "node1", slots=1, extra=("--label", "zone=b", "--taint", "dedicated=evals"))
        tolerant = self.submit("--name", "tolerant", "--select", "zone=b", "--tolerate", "dedicated=evals", "--", "true")["id"]
        self.wait_for(tolerant, "SUCCEEDED")
        self.assertEqual(self.job(elsewhere)["state"], "QUEUED")

    def test_tasks_of_an_array_and_quotas(self):
        policy = self.dir / "policy.json"
        policy.write_text(json.dumps({"user_defaults": {"running_jobs_max": 1, "priority_max": 3}}))
        coordinator = self.start_coordinator(extra=("--queue-policy", policy))
        self.start_worker(coordinator, "node0", slots=4)
        script = f"echo task $MUSTER_ARRAY_INDEX; while [ ! -e {self.dir}/go ]; do sleep 0.1; done"
        array = self.submit("--array", "3-5%2", "--name", "task", "--", "sh", "-c", script)
        jobs = [job["id"] for job in array["jobs"]]
        self.assertEqual([job["spec"]["name"] for job in array["jobs"]], ["task-3", "task-4", "task-5"])
        self.wait_for(jobs[0], "RUNNING")
        wait_until(lambda: "waits for its quota: running_jobs_max=1 of user" in self.job(jobs[1])["reason"], 30, "the quota")
        shares = json.loads(self.muster("shares", "--json", check=0).stdout)["shares"]
        self.assertEqual(shares[0]["quotas"]["running_jobs_max"], {"used": 1, "max": 1})
        self.assertIn("spec.priority is 4: the highest one of user", self.submit("--priority", 4, "--", "true", check=2))
        self.assertIn("task-4 and 1 more", self.muster("list", check=0).stdout)
        policy.write_text("{")  # is ignored
        wait_until(lambda: self.samples(coordinator)["muster_coordinator_queue_policy_valid"] == 0, 30, "the invalid file")
        policy.write_text("{}")
        self.wait_for(jobs[1], "RUNNING")
        wait_until(lambda: "at most 2 run at the same time" in self.job(jobs[2])["reason"], 30, "the array's limit")
        self.assertIn("cannot be combined", self.submit("--array", "1", "--follow", "--", "true", check=2))
        self.muster("cancel", "--array", array["array"], "--force", check=0)
        for job in jobs:
            self.wait_for(job, "CANCELLED")
        (self.dir / "go").touch()
        self.assertIn("no task of an array", self.muster("cancel", "--array", array["array"], check=2).stderr)


if __name__ == "__main__":
    unittest.main()
