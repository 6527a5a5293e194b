"""Faults of jobs on a real Slurm: time limits, preemption, cancellation, drained and dead nodes;
and the workers of a fleet.
"""
import json
import os
import re
import signal
import time
import unittest
import urllib.request

import trust
from harness import BIN, command_line, metrics, wait_until
from slurm_case import ENDLESS, SlurmTest, WRAPPERS


class SlurmSignals(SlurmTest):
    def test_usr1_saves_and_the_next_allocation_resumes_at_the_same_step(self):
        job = self.train("usr1", *ENDLESS)
        self.wait_for_steps("usr1", job, 30)
        self.cluster.must("scancel", "--batch", "--signal=USR1", job)
        self.wait_for_requeue("usr1", job)
        output = self.output_of("usr1", job)
        self.assertIn("SIGUSR1: its time limit is near", output)
        self.assertIn("is queued again and resumes from its newest checkpoint", output)

        # A cancelled job saves its progress, and gets no third allocation.
        self.assertEqual(self.cancel(job)[0], "CANCELLED")
        self.assertIn("is not queued again: Slurm ends it", self.output_of("usr1", job))
        newest = max(int(path.name) for path in (self.dir / "runs/usr1/checkpoints").iterdir() if path.name.isdigit())
        self.assertEqual(newest, max(metrics(self.dir / "usr1.jsonl")) + 1, self.all_output("usr1", job))

    def test_manual_requeue_loses_no_step(self):
        job = self.train("by_hand", *ENDLESS)
        self.wait_for_steps("by_hand", job, 30)
        self.cluster.must("scontrol", "requeue", job)
        self.wait_for_requeue("by_hand", job)
        self.assertIn(f"Slurm job {job} was requeued from outside of the job", self.output_of("by_hand", job))
        self.cancel(job)

    def test_time_limit_requeues_the_job(self):
        job = self.train("limit", *ENDLESS, sbatch=["--signal=B:CONT@1"])
        self.wait_for_steps("limit", job, 20)
        # slurmctld checks every 30 s
        self.cluster.must("scontrol", "update", f"jobid={job}", "EndTime=now+2")
        self.wait_for_requeue("limit", job)
        self.assertIn("its time limit is reached", self.output_of("limit", job))
        self.cancel(job)

    def test_save_beyond_the_time_limit_still_requeues(self):
        job = self.run_program(program="trap '' TERM; while :; do sleep 1; done", sbatch=["-t", "10"])
        self.wait_for_words(job, "begins")
        self.cluster.must("scancel", "--batch", "--signal=USR1", job)
        self.wait_for_words(job, "leaves its allocation: SIGUSR1")
        self.cluster.must("scontrol", "update", f"jobid={job}", "EndTime=now+2")
        self.cluster.wait_for_state(job, "PENDING", seconds=120)
        self.assertEqual(self.cluster.job(job)["Restarts"], "1", self.cluster.job_output(job))
        self.assertRegex(self.cluster.job_output(job), r"the time limit was reached \d+ s after SIGUSR1, before the ranks had saved.*--signal=B:USR1@\d+ ")
        self.cancel(job)

    def test_early_signal_is_deferred(self):
        # The script's --signal leads by the whole limit, so Slurm sends it at its first check.
        job = self.train("early", *ENDLESS, sbatch=["-t", "2"])
        self.wait_for_output("early", job, r"SIGUSR1 arrived \d+ s before the time limit of 120 s, .* until a quarter of the limit is left", seconds=90)
        self.wait_for_steps("early", job, max(metrics(self.dir / "early.jsonl")) + 20)
        self.assertNotIn("leaves its allocation", self.output_of("early", job))
        self.assertEqual(self.cluster.state(job), "RUNNING")
        self.cluster.must("scancel", "--batch", "--signal=USR1", job)  # sent by a user
        self.wait_for_requeue("early", job)
        self.assertIn("SIGUSR1: its time limit is near", self.output_of("early", job))
        self.cancel(job)

    def test_allocations_without_progress_are_bounded(self):
        job = self.run_program()
        for allocation in range(1, 6):
            self.wait_for_words(job, "begins", allocation)
            self.cluster.must("scancel", "--batch", "--signal=USR1", job)
            if allocation == 5:
                break
            self.cluster.wait_for_state(job, "PENDING")
            self.assertIn(f"; {allocation} allocations in a row made no progress", self.cluster.job_output(job))
            self.cluster.start_again(job)
        self.assert_ends(job, "FAILED", 75)
        self.assertIn("is not queued again: 5 allocations in a row made no progress beyond the beginning", self.cluster.job_output(job))

    def test_array_task_requeues_only_itself(self):
        array = self.run_program(sbatch=["--array=1-2", "-J", "tasks", "-o", "%A_%a.out"])
        outputs = {task: self.dir / f"{array}_{task}.out" for task in (1, 2)}
        for task, path in outputs.items():
            wait_until(lambda: path.exists() and "begins" in path.read_text(), 60, f"task {task}")  # noqa: B023
        # The last task has the array's own number, which scontrol would apply to all tasks.
        self.assertEqual(self.cluster.job(f"{array}_2")["JobId"], str(array))
        self.cluster.must("scancel", "--batch", "--signal=USR1", f"{array}_2")
        self.cluster.wait_for_state(f"{array}_2", "PENDING")
        self.assertIn(f"Slurm job {array}_2 is queued again", outputs[2].read_text())
        one = self.cluster.job(f"{array}_1")
        self.assertEqual((one["JobState"], one["Restarts"]), ("RUNNING", "0"), outputs[1].read_text())
        self.assertNotIn("leaves its allocation", outputs[1].read_text())
        folders = [path.parents[1].name for path in self.dir.glob("**/muster/0001")]
        self.assertEqual(sorted(folders), [f"tasks-{array}_1", f"tasks-{array}_2"])
        self.cluster.must("scancel", array)
        self.cluster.wait_for_state(f"{array}_1", "CANCELLED")

    def test_preempted_job_saves_releases_its_nodes_and_resumes(self):
        job = self.train("preempted", *ENDLESS, nodes=4)
        self.wait_for_steps("preempted", job, 20)
        urgent = self.cluster.sbatch("-N4", "-p", "urgent", "--exclusive", "--wrap", "true", cwd=self.dir)
        before = time.monotonic()
        self.assert_ends(urgent, "COMPLETED", 0)
        self.wait_for_requeue("preempted", job)
        print(f"preempted to the end of the preempting job: {time.monotonic() - before:.1f} s of 30 s grace")
        self.cancel(job)

    def test_job_without_checkpoints_is_not_requeued(self):
        job = self.train("unsaved", *ENDLESS, "enable_checkpointing=false")
        self.wait_for_steps("unsaved", job, 5)
        self.cluster.must("scancel", "--batch", "--signal=USR1", job)
        self.assert_ends(job, "FAILED", 75, "unsaved")
        self.assertIn("another allocation would start from the beginning", self.output_of("unsaved", job))


class SlurmNodes(SlurmTest):
    def test_dead_node_and_dead_slurmd_use_two_spares(self):
        job = self.train("spared", *ENDLESS, nodes=4, sbatch=["--no-kill"], options=["--spares", "2"])
        self.wait_for_steps("spared", job, 30)
        victim = self.node_with_ranks()
        died = time.monotonic()
        self.cluster.kill_node(victim)
        self.wait_for_output("spared", job, f"in place of {victim}")
        self.wait_for_steps("spared", job, max(metrics(self.dir / "spared.jsonl")) + 5)
        print(f"a node's death to new steps on the spare: {time.monotonic() - died:.1f} s")
        # Slurm detects the loss later. The job loses the node and continues.
        self.cluster.down(victim)

        victim = self.node_with_ranks()
        self.addCleanup(self.cluster.kill_processes, victim)
        self.cluster.kill_slurmd(victim)  # the node's processes continue
        # An answer that is still on its way may revert the state; Slurm detects the loss itself
        # within half a minute.
        self.cluster.down(victim, "slurmd is gone")
        self.wait_for_output("spared", job, victim + r" gets no more ranks \(Slurm: DOWN.*its jobs move to other nodes", seconds=90)
        self.wait_for_output("spared", job, f"in place of {victim}")
        self.wait_for_steps("spared", job, max(metrics(self.dir / "spared.jsonl")) + 5)
        self.assertEqual(self.cluster.state(job), "RUNNING")
        steps = sorted(metrics(self.dir / "spared.jsonl"))
        self.assertEqual(steps, list(range(len(steps))))
        self.cancel(job)

    def node_with_ranks(self):
        """Returns a node with ranks, which the workers that registered first get. Omits the first
        node, whose death ends the job.
        """
        return next(node for node in self.cluster.nodes[1:] if any(
            "muster-trainer train" in command_line(pid) for pid in self.cluster.processes_on(node)))

    def test_job_continues_on_fewer_nodes_after_a_drain(self):
        job = self.train("fewer", *ENDLESS, nodes=2, sbatch=["--no-kill"], options=["--min-nodes", "1"])
        self.wait_for_steps("fewer", job, 30)
        self.cluster.drain("node2", "a fan is loud")
        self.wait_for_output("fewer", job, "node2 gets no more ranks .*a fan is loud")
        self.wait_for_output("fewer", job, "on 1 of 2 nodes")
        restored = self.wait_for_output("fewer", job, r"restored checkpoint \S+: (\d+) step")
        self.wait_for_steps("fewer", job, int(restored.group(1)) + 5)
        steps = sorted(metrics(self.dir / "fewer.jsonl"))
        self.assertEqual(steps, list(range(len(steps))), "it saved before it moved")
        self.cancel(job)

    def test_job_does_not_wait_for_a_node_that_never_reports(self):
        programs = self.dir / "programs"
        programs.mkdir()
        for program in BIN.iterdir():
            (programs / program.name).symlink_to(program)
        (programs / "muster-worker").unlink()
        (programs / "muster-worker").write_text(f'#!/bin/bash\n[ "$SLURMD_NODENAME" != node2 ] || exec sleep 1000\nexec {BIN}/muster-worker "$@"\n')
        (programs / "muster-worker").chmod(0o755)
        job = self.run_program("--spares", 1, nodes=2, sbatch=["--no-kill"], env={"MUSTER_BIN_DIR": str(programs)})
        self.wait_for_words(job, "begins")
        self.assertTrue(self.sruns(job))
        self.cluster.drain("node2", "a fan is loud")
        self.wait_for_words(job, "no worker has registered from node2; no longer waiting for it: Slurm: .*a fan is loud")
        wait_until(lambda: not self.sruns(job), 20, "srun's end")
        self.cluster.must("scancel", "--batch", "--signal=USR1", job)
        self.cluster.wait_for_state(job, "PENDING")
        self.cancel(job)

    def sruns(self, job):
        return [pid for pid in self.cluster.processes_on("node1") if command_line(pid).startswith("/usr/bin/srun")]

    def test_two_jobs_share_the_cluster(self):
        jobs = {name: self.train(name, "steps=300", "log_period=100") for name in ("left", "right")}
        self.wait_for_steps("left", jobs["left"])
        self.wait_for_steps("right", jobs["right"])
        self.assertEqual({self.cluster.job(job)["NodeList"] for job in jobs.values()}, {"node[1-2]", "node[3-4]"})
        for name, job in jobs.items():
            self.assert_ends(job, "COMPLETED", 0, name)


class SlurmFleet(SlurmTest):
    def test_allocation_of_workers_for_a_remote_coordinator(self):
        coordinator = self.start_coordinator()
        fleet = self.cluster.sbatch("-N2", WRAPPERS / "fleet.sub", cwd=self.dir, env={
            "GPUS_PER_NODE": "1", "MUSTER_COORDINATOR": coordinator.address})
        workers = lambda: json.loads(self.muster("list", "--workers", "--json", check=0).stdout)["workers"]  # noqa: E731
        wait_until(lambda: len(workers()) == 2, 30, "two workers")
        job = json.loads(self.muster("submit", self.base_yml(), f"base_output_directory={self.dir}/out", "run_name=fleet", "dataset_type=synthetic",
                                     *self.tiny(*ENDLESS), "--nodes", 2, "--ranks-per-node", 1, "--json", check=0).stdout)["id"]
        wait_until(lambda: any(int(rank["step"]) > 20 for rank in self.job(job)["ranks"]), 60, "steps")
        wait_until(lambda: "every worker is connected to the coordinator" in self.cluster.job_output(fleet), 30, "srun's end")
        self.cluster.must("scancel", "--batch", "--signal=USR1", fleet)
        self.cluster.wait_for_state(fleet, "PENDING")
        self.assertEqual(self.job(job)["state"], "QUEUED", self.output(coordinator))
        self.assertIn("is leaving", self.job(job)["faults"][-1]["message"])
        self.cluster.start_again(fleet)
        wait_until(lambda: self.job(job)["state"] == "RUNNING", 60, "its second allocation")
        wait_until(lambda: re.search(r"restored checkpoint \S+: [1-9]\d* step", self.muster("logs", job, check=0).stdout), 30, "the step at which it left")
        self.muster("cancel", job, check=0)
        wait_until(lambda: self.job(job)["state"] == "CANCELLED", 30, "its end")
        self.cancel(fleet)

    @unittest.skipIf(trust.why_not(), trust.why_not())
    def test_a_coordinator_with_tls_and_tokens_and_pages_for_prometheus(self):
        authority = trust.Authority(self.dir, "first")
        certificate, key = authority.sign("coordinator")
        for role in ("worker", "admin"):
            trust.replace(self.dir / "tokens" / role, f"{role}-token-0123456789abcdef\n")
        self.env.update(MUSTER_TLS_CA=str(authority.certificate), MUSTER_TOKEN_FILE=str(self.dir / "tokens/admin"))
        coordinator = self.start_coordinator(extra=("--tls-cert", certificate, "--tls-key", key, "--token-dir", self.dir / "tokens"))
        fleet = self.cluster.sbatch("-N2", WRAPPERS / "fleet.sub", "--metrics-port", 0, cwd=self.dir, env={
            "GPUS_PER_NODE": "1", "MUSTER_COORDINATOR": coordinator.address, "MUSTER_TLS_CA": os.path.relpath(authority.certificate, self.dir),
            "MUSTER_TOKEN_FILE": "tokens/admin", "MUSTER_WORKER_TOKEN_FILE": "tokens/worker"})
        self.wait_for_words(fleet, "every worker is connected to the coordinator")
        # Its own token may exclude nodes.
        self.cluster.drain("node2", "a fan is loud")
        self.wait_for_words(fleet, "node2 gets no more ranks")
        for node in ("node1", "node2"):
            address = self.dir / f"muster-fleet/prometheus/test-{fleet}-worker-{node}.json"
            wait_until(address.exists, 20, "an address")
            [entry] = json.loads(address.read_text())
            self.assertEqual(entry["labels"], {"job": "muster-worker", "node": node, "cluster": "test"})
            with urllib.request.urlopen(f"http://{entry['targets'][0]}/metrics", timeout=10) as page:
                self.assertIn("muster_worker_", page.read().decode())
        self.cancel(fleet)
        wait_until(lambda: not list((self.dir / "muster-fleet/prometheus").iterdir()), 30, "the end of the addresses")

    def test_fleet_without_a_coordinator_saves_and_ends(self):
        coordinator = self.start_coordinator()
        fleet = self.cluster.sbatch("-N1", WRAPPERS / "fleet.sub", "--patience-minutes", 1, cwd=self.dir, env={
            "GPUS_PER_NODE": "1", "MUSTER_COORDINATOR": coordinator.address})
        self.wait_for_words(fleet, "every worker is connected to the coordinator")
        job = json.loads(self.muster("submit", self.base_yml(), f"base_output_directory={self.dir}/out", "run_name=left", "dataset_type=synthetic",
                                     *self.tiny(*ENDLESS, "checkpoint_period=100000000"), "--json", check=0).stdout)["id"]
        wait_until(lambda: any(int(rank["step"]) > 20 for rank in self.job(job)["ranks"]), 60, "steps")
        coordinator.kill()
        coordinator.wait()
        self.assert_ends(fleet, "FAILED", 1)
        self.assertIn("for 1 minutes; the allocation ends", self.cluster.job_output(fleet))
        saved = [path.name for path in (self.dir / "out/left/checkpoints").iterdir() if path.name.isdigit()]
        self.assertTrue(saved, "what ran there has saved before it went")

    def test_fleet_ends_after_max_turns_or_when_its_workers_crash(self):
        coordinator = self.start_coordinator()
        env = {"GPUS_PER_NODE": "1", "MUSTER_COORDINATOR": coordinator.address}
        fleet = self.cluster.sbatch("-N1", WRAPPERS / "fleet.sub", "--max-turns", 2, cwd=self.dir, env=env)
        for allocation in (1, 2):
            self.wait_for_words(fleet, "every worker is connected to the coordinator", allocation)
            self.cluster.must("scancel", "--batch", "--signal=USR1", fleet)
            if allocation == 1:
                self.cluster.wait_for_state(fleet, "PENDING")
                self.cluster.start_again(fleet)
        self.assert_ends(fleet, "FAILED", 75)
        self.assertIn("is not queued again: it has had 2 allocations, the limit of --max-turns 2", self.cluster.job_output(fleet))
        fleet = self.cluster.sbatch("-N1", WRAPPERS / "fleet.sub", "--log-folder", "other", "--metrics-port", 0, "--metrics-cluster", "the east", cwd=self.dir,
                                    env=env)
        self.wait_for_words(fleet, "every worker is connected to the coordinator")
        address = self.dir / f"other/prometheus/test-{fleet}-worker-node1.json"
        wait_until(address.exists, 20, "an address")
        self.assertEqual(json.loads(address.read_text())[0]["labels"]["cluster"], "the east")
        for pid in self.cluster.processes_on("node1"):
            if "/muster-worker --coordinator" in command_line(pid):
                os.kill(pid, signal.SIGKILL)
        self.assert_ends(fleet, "FAILED", 1)
        self.assertIn("every worker has ended, although Slurm neither ends nor preempts the job", self.cluster.job_output(fleet))
        self.assertEqual(self.cluster.job(fleet)["Restarts"], "0")

    def test_restarted_coordinator_finds_its_workers(self):
        coordinator = self.start_coordinator()
        fleet = self.cluster.sbatch("-N2", WRAPPERS / "fleet.sub", cwd=self.dir, env={
            "GPUS_PER_NODE": "1", "MUSTER_COORDINATOR": coordinator.address})
        self.wait_for_words(fleet, "every worker is connected to the coordinator")
        coordinator.kill()
        coordinator.wait()
        self.wait_for_words(fleet, "no worker is connected to the coordinator .*; waiting for at most 30 minutes")
        # Without its earlier state the coordinator has no record of workers.
        self.start_coordinator(state="another", listen=coordinator.address)
        self.wait_for_words(fleet, "workers are connected to the coordinator again")
        workers = json.loads(self.muster("list", "--workers", "--json", check=0).stdout)["workers"]
        self.assertEqual(sorted(worker["name"] for worker in workers), ["node1", "node2"])
        self.assertEqual(self.cluster.state(fleet), "RUNNING", self.cluster.job_output(fleet))
        self.cancel(fleet)


if __name__ == "__main__":
    unittest.main()
