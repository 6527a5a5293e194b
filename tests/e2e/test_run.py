"""`muster run`, the embedded mode, and a fleet, each with real coordinator, workers and ranks."""
import hashlib
import json
import os
import pathlib
import re
import signal
import time
import unittest

from harness import BIN, MusterTest, processes_with_mark, step_lines, wait_gone, wait_until
RESTORED = r"^restored checkpoint \S+/(\d+): "


def checkpoint_hashes(folder):
    """{file name: SHA-256} of the tensors of one checkpoint."""
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(folder.glob("*.safetensors"))}


class EmbeddedRun(MusterTest):
    def checkpoints(self, name):
        return self.dir / "out" / name / "checkpoints"

    def test_prints_every_step_line_and_ends_with_zero(self):
        result = self.muster(*self.run_args("lines", "steps=5", "log_period=2"), check=0)
        self.assertEqual([step for step, _ in step_lines(result.stdout)], [0, 1, 2, 3, 4])
        self.assertTrue((self.checkpoints("lines") / "5" / "model-00000-00000.safetensors").exists())
        self.assertEqual(wait_gone(self.mark, 30), [], "something is still running")

    def test_profiler_wraps_the_ranks(self):
        nsys = self.dir / "bin" / "nsys"
        nsys.parent.mkdir()
        nsys.write_text(f'#!/bin/bash\necho "$@" > {self.dir}/nsys\nshift; while [ "${{1#--}}" != "$1" ]; do shift 2; done\n'
                        'NSYS_PROFILING_SESSION_ID=1 exec "$@"\n')
        nsys.chmod(0o755)
        args = self.run_args("profiled", "steps=3", "profiler=nsys", "hardware=auto", "enable_checkpointing=False", ranks=1)
        result = self.muster(*args, check=0, env={"PATH": f"{nsys.parent}:{self.env['PATH']}"})
        self.assertIn("completed step: 2", result.stdout)
        self.assertRegex((self.dir / "nsys").read_text(), rf"^profile --output {self.dir}/out/profiled/profile .*"
                         r"--cuda-graph-trace node --capture-range cudaProfilerApi --capture-range-end stop \S*/muster run ")
        result = self.muster(*args, check=0, env={"PATH": "/nowhere"})
        self.assertIn("profiler=nsys: cannot record a profile: ", result.stderr)
        self.assertIn("completed step: 2", result.stdout)

    def test_axlearns_command_line_trains(self):
        result = self.muster("run", "python3", "-m", "axlearn.common.launch_trainer_main", "--module=text.gpt.c4_trainer",
                             "--config=fuji-test", f"--trainer_dir={self.dir}/out/fuji", "--data_dir=FAKE", "--jax_backend=cpu",
                             "--trainer_log_every_n_steps=2", "steps=5", "--ranks", "2", check=0)
        self.assertEqual([step for step, _ in step_lines(result.stdout)], [0, 1, 2, 3, 4])
        self.assertIn("total_weights: 2048,", result.stdout)  # 32 sequences of 64 tokens
        self.assertIn("muster: fuji-test: 4,168 parameters\n", result.stderr)
        self.assertTrue((self.checkpoints("fuji") / "5" / "model-00000-00000.safetensors").exists())

    def test_second_run_resumes(self):
        self.muster(*self.run_args("resume", "steps=10", "log_period=1", "learning_rate_schedule_steps=20"), check=0)
        again = self.muster(*self.run_args("resume", "steps=20", "log_period=1", "learning_rate_schedule_steps=20"), check=0)
        self.assertEqual([step for step, _ in step_lines(again.stdout)], list(range(10, 20)))
        whole = self.muster(*self.run_args("whole", "steps=20", "log_period=1"), check=0)
        self.assertEqual(step_lines(again.stdout), step_lines(whole.stdout)[10:])
        self.assertEqual(checkpoint_hashes(self.checkpoints("resume") / "20"),
                         checkpoint_hashes(self.checkpoints("whole") / "20"))

    def test_weights_in_bfloat16_resume_and_convert(self):
        def train(name, steps, *settings, weights="bfloat16"):
            args = self.run_args(name, f"steps={steps}", "learning_rate_schedule_steps=20", f"weight_dtype={weights}", *settings)
            return self.muster(*args, check=0)

        def model_bytes(name):
            return sum(file.stat().st_size for file in (self.checkpoints(name) / "20").glob("model-*.safetensors"))

        train("narrow", 10)
        again = train("narrow", 20)
        whole = train("narrow-whole", 20)
        self.assertEqual(step_lines(again.stdout), step_lines(whole.stdout)[10:])
        self.assertEqual(checkpoint_hashes(self.checkpoints("narrow") / "20"), checkpoint_hashes(self.checkpoints("narrow-whole") / "20"))
        train("wide", 20, weights="float32")
        self.assertLess(model_bytes("narrow"), 0.6 * model_bytes("wide"))
        # A checkpoint of one type begins a run of the other.
        for name, source, weights in (("rounded", "wide", "bfloat16"), ("widened", "narrow", "float32")):
            result = train(name, 5, f"load_parameters_path={self.checkpoints(source)}", weights=weights)
            self.assertEqual(len(step_lines(result.stdout)), 5)
        converted = json.loads(self.muster("convert", self.dir / "out" / "narrow", self.dir / "hf", "--json", check=0).stdout)
        self.assertEqual(converted["dtype"], "bfloat16")

    def losses(self, name, ranks, steps, *settings):
        metrics = self.dir / f"{name}-{ranks}.jsonl"
        batch = f"per_device_batch_size={8 // ranks}"
        result = self.muster(*self.run_args(name, f"steps={steps}", "learning_rate_schedule_steps=20", batch, f"metrics_file={metrics}",
                                            *settings, ranks=ranks), check=0)
        return [json.loads(line)["learning/loss"] for line in metrics.read_text().splitlines()], result.stdout

    def test_sharded_parameters_train_as_one_rank_does(self):
        one, _ = self.losses("one", 1, 8)
        shared, printed = self.losses("shared", 2, 6, "ici_fsdp_parallelism=2")
        self.assertRegex(printed, r"memory: .*gathered \d")
        hybrid, _ = self.losses("hybrid", 4, 6, "ici_data_parallelism=2", "ici_fsdp_parallelism=2", "zero_stage=2")
        split, _ = self.losses("split", 2, 6, "ici_context_parallelism=2")
        for other in (shared, hybrid, split):
            self.assertEqual(len(other), 6)
            for ours, theirs in zip(other, one):
                self.assertAlmostEqual(ours / theirs, 1, delta=1e-5)
        # Another number of ranks resumes at the step at which these stopped.
        again, printed = self.losses("shared", 1, 8)
        self.assertRegex(printed, re.compile(RESTORED, re.M))
        self.assertEqual(len(again), 2)
        for ours, theirs in zip(again, one[6:]):
            self.assertAlmostEqual(ours / theirs, 1, delta=1e-5)

    def test_sharded_experts_train_as_one_rank_does(self):
        experts = ("num_experts=4", "num_experts_per_tok=2", "capacity_factor=1")
        one, _ = self.losses("routed", 1, 6, *experts)
        spread, _ = self.losses("spread", 2, 4, "ici_expert_parallelism=2", *experts)
        again, printed = self.losses("spread", 1, 6, *experts)
        self.assertRegex(printed, re.compile(RESTORED, re.M))
        self.assertEqual((len(spread), len(again)), (4, 2))
        for ours, theirs in zip(spread + again, one):
            self.assertAlmostEqual(ours / theirs, 1, delta=1e-5)

    def test_killed_rank_is_reported_and_the_job_resumes_as_if_undisturbed(self):
        settings = ["learning_rate_schedule_steps=1000000", "checkpoint_period=50", "log_period=10"]
        run = self.start_run("disturbed", "steps=1000000", *settings)
        self.wait_for_step(run, 120)
        wait_until((self.checkpoints("disturbed") / "100/manifest.json").exists, 30, "the second checkpoint")
        os.kill(self.ranks_of_test()[2], signal.SIGKILL)
        restored = wait_until(lambda: re.search(RESTORED, self.output(run), re.M), 60, "attempt 2")
        wait_until(lambda: self.steps_after(RESTORED, run), 60, "its steps")
        os.kill(run.pid, signal.SIGINT)
        self.assertEqual(run.wait(timeout=60), 130, self.output(run))
        output = self.output(run)
        self.assertRegex(output, r"rank 2\b.*(signal 9|SIGKILL)")
        self.assertRegex(output, r"attempt 2")
        restored = int(restored[1])
        self.assertGreaterEqual(restored, 100, "not the newest checkpoint")
        self.assertEqual(self.steps_after(RESTORED, run)[0], restored, "attempt 2 began elsewhere")
        # Independent of the step of the kill: the bits equal those of an undisturbed run.
        last = max(int(p.name) for p in self.checkpoints("disturbed").iterdir() if p.name.isdigit())
        self.assertGreater(last, restored)
        self.muster(*self.run_args("undisturbed", f"steps={last}", *settings), check=0)
        self.assertEqual(checkpoint_hashes(self.checkpoints("disturbed") / str(last)),
                         checkpoint_hashes(self.checkpoints("undisturbed") / str(last)))

    def steps_after(self, pattern, run):
        """Returns the steps whose lines follow the matching line."""
        parts = re.split(pattern, run.out_path.read_text(), maxsplit=1, flags=re.M)
        return [step for step, _ in step_lines(parts[-1])] if len(parts) > 1 else []

    def test_two_jobs_in_one_output_directory_stay_separate(self):
        first = self.start_run("one", "steps=50", ranks=2)
        second = self.start_run("two", "steps=50", ranks=2)
        self.assertEqual((first.wait(60), second.wait(60)), (0, 0), self.output(first) + self.output(second))

    def test_repeated_kills_exhaust_the_restarts(self):
        run = self.start_run("hopeless", "steps=1000000", "log_period=1", "restarts_max=1", "enable_checkpointing=false")
        for _ in range(2):
            ranks = wait_until(lambda: len(r := self.ranks_of_test()) == 4 and r, 30, "four ranks")
            self.wait_for_new_steps(run)
            os.kill(ranks[1], signal.SIGKILL)
            wait_until(lambda: not set(ranks.values()) & set(self.ranks_of_test().values()), 30, "the end of the attempt")
        self.assertEqual(run.wait(timeout=60), 6, self.output(run))  # its restarts made no progress

    def wait_for_new_steps(self, run):
        before = len(step_lines(run.out_path.read_text()))
        wait_until(lambda: len(step_lines(run.out_path.read_text())) > before, 30, "a step")


class Fleet(MusterTest):
    """A long-lived coordinator with workers, and jobs submitted to it."""

    def submit(self, name, *overrides, ranks=4, extra=(), env=None):
        args = self.run_args(name, *overrides, ranks=ranks)
        args[0] = "submit"
        return json.loads(self.muster(*args, "--json", *extra, check=0, env=env).stdout)

    def wait_for_state(self, job_id, *states, seconds=60):
        def reached():
            job = self.job(job_id)
            return job if job["state"] in states else None
        return wait_until(reached, seconds, f"job {job_id} in {states}")

    def test_submit_status_logs_list_cancel(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator)
        first = self.submit("first", "steps=20", "log_period=1")
        followed = self.muster("logs", "-f", first["id"], check=0)
        self.assertEqual([s for s, _ in step_lines(followed.stdout)], list(range(20)))
        rows = [json.loads(row) for row in self.muster("logs", first["id"], "--json", check=0).stdout.splitlines()]
        self.assertEqual([row["line"] for row in rows], followed.stdout.splitlines())
        self.assertEqual({(row["attempt"], row["rank"]) for row in rows}, {(1, 0)})
        self.wait_for_state(first["id"], "SUCCEEDED")
        second = self.submit("second", "steps=1000000")
        self.wait_for_state(second["id"], "RUNNING")
        jobs = json.loads(self.muster("list", "--json", check=0).stdout)
        self.assertEqual([(j["spec"]["name"], j["state"]) for j in jobs["jobs"]],
                         [("second", "RUNNING"), ("first", "SUCCEEDED")])
        self.muster("cancel", second["id"], check=0)
        self.wait_for_state(second["id"], "CANCELLED", seconds=10)
        self.assertEqual(self.ranks_of_test(), {})
        self.assertIn("SUCCEEDED", self.muster("list", check=0).stdout)

    def test_environment_reaches_the_ranks(self):
        self.start_worker(self.start_coordinator())
        job = self.submit("secret", "steps=1000000", ranks=1, env={"TOKEN": "hush", "EMPTY": ""},
                          extra=["--env", "TOKEN", "--env", "EMPTY", "--env", "PLAIN=a=b"])
        self.wait_for_state(job["id"], "RUNNING")
        environ = pathlib.Path(f"/proc/{self.ranks_of_test()[0]}/environ").read_bytes().split(b"\0")
        self.assertLessEqual({b"TOKEN=hush", b"EMPTY=", b"PLAIN=a=b"}, set(environ))
        self.muster("cancel", job["id"], check=0)

    def test_submission_survives_a_restart_of_the_coordinator(self):
        coordinator = self.start_coordinator()
        coordinator.kill()
        coordinator.wait()
        args = self.run_args("patient", "steps=1")
        submission = self.start(BIN / "muster", "submit", *args[1:])
        wait_until(lambda: "trying again" in self.output(submission), 20, "the first try")
        self.start_coordinator(listen=coordinator.address)
        self.assertEqual(submission.wait(timeout=30), 0, self.output(submission))
        jobs = json.loads(self.muster("list", "--json", check=0).stdout)["jobs"]
        self.assertEqual([job["spec"]["name"] for job in jobs], ["patient"])

    def test_gang_placement_over_two_workers_and_a_queue(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, "node1", 2)
        wide = self.submit_nodes("wide", 2, 2, "steps=20")
        self.wait_for_state(wide["id"], "QUEUED")
        self.start_worker(coordinator, "node0", 2)
        done = self.wait_for_state(wide["id"], "SUCCEEDED")
        self.assertEqual([p["worker"] for p in done["placement"]], ["node0", "node0", "node1", "node1"])

    def submit_nodes(self, name, nodes, ranks_per_node, *overrides):
        args = self.run_args(name, "dcn_data_parallelism=-1", *overrides)
        args = ["submit", *args[1:-2], "--nodes", nodes, "--ranks-per-node", ranks_per_node, "--json"]
        return json.loads(self.muster(*args, check=0).stdout)

    def test_restarted_coordinator_recovers_its_jobs_and_workers(self):
        coordinator = self.start_coordinator()
        worker = self.start_worker(coordinator)
        job = self.submit("lasting", "steps=1000000")
        self.wait_for_state(job["id"], "RUNNING")
        ranks = wait_until(lambda: len(r := self.ranks_of_test()) == 4 and r, 20, "four ranks")
        os.kill(coordinator.pid, signal.SIGKILL)
        coordinator.wait()
        # The worker has noticed the loss, so a rank could have noticed it, too.
        wait_until(lambda: "lost the coordinator" in self.output(worker), 20, "the worker to notice")
        self.assertEqual(self.ranks_of_test(), ranks, "a rank noticed")
        again = self.start_coordinator(listen=coordinator.address)
        before = self.wait_for_state(job["id"], "RUNNING", seconds=20)["ranks"]
        reached = int(before[0]["step"]) if before else 0
        wait_until(lambda: (ranks := self.job(job["id"])["ranks"]) and int(ranks[0]["step"]) > reached, 20, "its steps")
        self.assertEqual(self.ranks_of_test(), ranks, "a rank was started again")
        self.muster("cancel", job["id"], check=0)
        done = self.wait_for_state(job["id"], "CANCELLED")
        self.assertEqual(int(done["attempt"]), 1, "the job was started again")
        steps = [s for s, _ in step_lines(self.muster("logs", job["id"], check=0).stdout)]
        self.assertGreater(steps[-1], reached - 100)
        self.assertEqual(steps, list(range(len(steps))), "a line of the logs is missing")
        self.assertIsNone(again.poll())

    def test_coordinator_with_another_state_receives_the_worker_without_old_ranks(self):
        coordinator = self.start_coordinator(state="first")
        worker = self.start_worker(coordinator)
        job = self.submit("old", "steps=1000000")
        self.wait_for_state(job["id"], "RUNNING")
        old = wait_until(lambda: len(r := self.ranks_of_test()) == 4 and set(r.values()), 20, "four ranks")
        coordinator.terminate()
        coordinator.wait(20)
        self.start_coordinator(state="second", listen=coordinator.address)
        job = self.submit("new", "steps=20")
        self.assertEqual(int(job["id"]), 1, "not the number of the earlier job")
        done = self.wait_for_state(job["id"], "SUCCEEDED", "FAILED")
        self.assertEqual((done["state"], int(done["attempt"])), ("SUCCEEDED", 1), done["reason"])
        self.assertFalse(old & set(processes_with_mark(self.mark)), "a rank of the earlier state still runs")
        self.assertIsNone(worker.poll())

    def test_paused_coordinator_blames_no_rank(self):
        lease_seconds = 2
        coordinator = self.start_coordinator(extra=["--worker-lease-ms", lease_seconds * 1000,
                                                    "--heartbeat-interval-ms", 200])
        self.start_worker(coordinator)
        job = self.submit("lasting", "steps=1000000")
        self.wait_for_state(job["id"], "RUNNING")
        ranks = wait_until(lambda: len(r := self.ranks_of_test()) == 4 and r, 20, "four ranks")
        os.kill(coordinator.pid, signal.SIGSTOP)
        time.sleep(2 * lease_seconds)
        os.kill(coordinator.pid, signal.SIGCONT)
        seen = int(self.job(job["id"])["ranks"][0]["step"])
        after = wait_until(lambda: int((j := self.job(job["id"]))["ranks"][0]["step"]) > seen and j, 20, "a heartbeat")
        self.assertEqual((after["state"], int(after["attempt"])), ("RUNNING", 1), after["reason"])
        self.assertEqual(self.ranks_of_test(), ranks)

    def test_ranks_that_end_while_the_coordinator_is_down_are_reported_later(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator)
        # Rank 0 opens its metrics file, a pipe, before the first step, and waits until the test
        # reads.
        gate = self.dir / "gate"
        os.mkfifo(gate)
        job = self.submit("short", "steps=10", f"metrics_file={gate}", extra=["--no-check"])
        self.wait_for_state(job["id"], "RUNNING")
        os.kill(coordinator.pid, signal.SIGKILL)
        coordinator.wait()
        reader = os.open(gate, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        wait_until(lambda: not self.ranks_of_test(), 60, "the end of the ranks")
        self.start_coordinator(listen=coordinator.address)
        self.wait_for_state(job["id"], "SUCCEEDED", seconds=20)

    def test_final_figures_of_a_job_shorter_than_a_heartbeat(self):
        coordinator = self.start_coordinator(extra=["--heartbeat-interval-ms", 60000, "--worker-lease-ms", 200000])
        worker = self.start_worker(coordinator)
        job = self.submit("short", "steps=7", "log_period=1")
        done = self.wait_for_state(job["id"], "SUCCEEDED", seconds=50)
        last_step, last_loss = step_lines(self.muster("logs", job["id"], check=0).stdout)[-1]
        self.assertEqual(last_step, 6)
        self.assertEqual([rank["step"] for rank in done["ranks"]], [7] * 4)
        for rank in done["ranks"]:
            self.assertEqual(f"{rank['loss']:.3f}", last_loss)
            self.assertGreater(rank["grad_norm"], 0)
            self.assertGreater(rank["tokens_per_second"], 0)
            self.assertEqual(rank["phase"], "SHUTDOWN")
        samples = self.samples(coordinator)
        labels = f'{{job_id="{job["id"]}",name="short"}}'
        self.assertEqual(samples[f"muster_job_step{labels}"], 7)
        self.assertEqual(f"{samples[f'muster_job_loss{labels}']:.3f}", last_loss)
        self.assertEqual(samples[f"muster_job_step_seconds_count{labels}"], 7)
        self.assertGreater(samples[f"muster_job_step_seconds_sum{labels}"], 0)
        self.assertEqual(self.samples(worker)["muster_worker_step_seconds_count"], 7 * 4)

    def test_pages(self):
        import shutil
        import subprocess
        self.store_gemm_peak()
        coordinator = self.start_coordinator()
        worker = self.start_worker(coordinator)
        job = self.submit("pages", "steps=1000000")
        self.wait_for_state(job["id"], "RUNNING")

        for process in (coordinator, worker):
            self.assertEqual(self.page(process, "/healthz")[0], 200)
            self.assertEqual(self.page(process, "/readyz")[0], 200)
        figures = ("step", "tokens_per_second", "mfu_ratio", "loss", "grad_norm")
        for process, whose, others in (
                (coordinator, "job", ("muster_job_step_seconds_bucket", "muster_fleet_heartbeat_age_seconds", "muster_jobs{",
                                      "muster_job_restarts_total")),
                (worker, "rank", ("muster_worker_step_seconds_bucket", "muster_worker_heartbeat_age_seconds"))):
            names = [f"muster_{whose}_{figure}{{" for figure in figures] + list(others)
            wait_until(lambda: all(name in self.page(process, "/metrics")[1] for name in names), 30, f"the metrics {names}")
        for process in (coordinator, worker):
            text = self.page(process, "/metrics")[1]
            if shutil.which("promtool"):
                lint = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True)
                self.assertEqual(lint.returncode, 0, lint.stdout + lint.stderr)


if __name__ == "__main__":
    unittest.main()
