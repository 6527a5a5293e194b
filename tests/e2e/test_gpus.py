"""GPUs of nodes, with a fake NVML (tests/fake_nvml): which rank gets which GPU, and the treatment
of jobs and nodes whose GPU is lost.
"""
import json
import os
import pathlib
import re
import unittest

from harness import BIN, SOURCE, TINY, MusterTest, wait_until

PRINT_VISIBLE_DEVICES = "import os, time; print('sees', os.environ.get('CUDA_VISIBLE_DEVICES'), flush=True); time.sleep(1000)"


def uuid_of(index):
    return f"GPU-{index:08d}-fa4e-0000-0000-000000000000"


class Gpus(MusterTest):
    def setUp(self):
        super().setUp()
        self.gpus("gpu bus=16 temperature=60", "gpu bus=32 temperature=61")

    def start_gpu_worker(self, coordinator, name="node0", extra=()):
        """Starts a worker with as many slots as GPUs."""
        port_file = self.dir / f"worker-{len(self.processes)}.json"
        process = self.start(BIN / "muster-worker", "--coordinator", coordinator.address, "--name", name, "--work-dir",
                             self.dir / "work" / name, "--http", "127.0.0.1:0", "--sys-root", self.dir / "sys",
                             "--port-file", port_file, *extra)
        process.ports = json.loads(self.wait_for_file(process, port_file))
        return process

    def submit(self, name, *options, program=PRINT_VISIBLE_DEVICES):
        made = self.muster("submit", "--json", "--name", name, "--output", self.dir / "out" / name, *options, "--", "python3", "-c", program,
                           check=0)
        return json.loads(made.stdout)["id"]

    def wait_for_state(self, job, state):
        def condition():
            record = self.job(job)
            return record if record["state"] == state else None
        return wait_until(condition, 60, f"job {job} {state}")

    def seen_by(self, job, count):
        """Returns the ranks' values of CUDA_VISIBLE_DEVICES, in any order."""
        def visible_devices():
            lines = re.findall(r"sees (\S+)", self.muster("logs", job, "--rank", "all", "--no-merge", check=0).stdout)
            return sorted(lines) if len(lines) == count else None
        return wait_until(visible_devices, 30, f"{count} ranks of job {job} that list their devices")

    def node(self, name):
        nodes = json.loads(self.muster("node", "list", "--json", check=0).stdout)["nodes"]
        return next((node for node in nodes if node["name"] == name), None)

    def test_two_jobs_on_a_node_share_no_gpu(self):
        coordinator = self.start_coordinator()
        worker = self.start_gpu_worker(coordinator)
        self.assertIn("2 GPUs NVIDIA Fake 80GB, driver 550.54.15", self.output(worker))
        first, second = self.submit("first"), self.submit("second", "--gpus-per-rank", 1)
        self.assertEqual(self.seen_by(first, 1) + self.seen_by(second, 1), [uuid_of(0), uuid_of(1)])
        node = self.node("node0")
        self.assertEqual((node["slots"], node["gpus_used"], [gpu["uuid"] for gpu in node["gpus"]]), (2, 2, [uuid_of(0), uuid_of(1)]))
        self.assertRegex(self.muster("node", "list", check=0).stdout, r"node0 .*2 of 2 used, NVIDIA Fake 80GB")
        samples = self.samples(worker)
        self.assertEqual((samples["muster_worker_gpus"], samples["muster_worker_gpus_used"]), (2, 2))
        self.assertEqual(samples['muster_gpu_temperature_celsius{gpu="1"}'], 61)
        waits = self.submit("waits", "--gpus-per-rank", 1)
        self.assertIn("waits for 1 worker with 1 free slot and 1 free GPU: they are busy", self.job(waits)["reason"])
        self.muster("cancel", first, check=0)
        self.assertEqual(self.seen_by(waits, 1), [uuid_of(0)])
        # A job that takes more GPUs than its slot's share leaves a free slot without GPUs.
        self.muster("cancel", waits, check=0)
        self.muster("cancel", second, check=0)
        greedy = self.submit("greedy", "--gpus-per-rank", 2)
        self.assertEqual(self.seen_by(greedy, 1), [",".join((uuid_of(0), uuid_of(1)))])
        self.assertIn("waits for 1 worker with 1 free slot and its share of free GPUs: they are busy", self.job(self.submit("modest"))["reason"])
        self.muster("cancel", greedy, check=0)
        # Ranks share GPUs with 0 GPUs per rank: they see all GPUs of the worker.
        self.assertEqual(self.seen_by(self.submit("shares", "--gpus-per-rank", 0), 1), ["None"])

    def test_worker_offers_only_its_visible_devices(self):
        self.env["CUDA_VISIBLE_DEVICES"] = "1"
        coordinator = self.start_coordinator()
        self.start_gpu_worker(coordinator)
        self.assertEqual(self.seen_by(self.submit("alone"), 1), [uuid_of(1)])
        self.assertEqual([gpu["index"] for gpu in self.node("node0")["gpus"]], [1])

    def test_ranks_run_on_the_cpus_near_their_gpus(self):
        self.env["HWLOC_XMLFILE"] = str(SOURCE / "tests/fake_nvml/two_nodes.xml")
        if not {0, 1} <= os.sched_getaffinity(0):
            self.skipTest("CPUs 0 and 1 are not this process's")
        program = "import os; print('rank', os.environ['LOCAL_RANK'], 'on', sorted(os.sched_getaffinity(0)), flush=True)"
        coordinator = self.start_coordinator()
        worker = self.start_gpu_worker(coordinator)
        self.assertEqual([gpu["numa_node"] for gpu in wait_until(lambda: self.node("node0"), 30, "node0")["gpus"]], [0, 1])
        job = self.submit("near", "--ranks", 2, program=program)
        self.wait_for_state(job, "SUCCEEDED")
        shown = self.muster("logs", job, "--rank", "all", "--no-merge", check=0).stdout
        self.assertIn("rank 0 on [0]", shown)
        self.assertIn("rank 1 on [1]", shown)
        worker.terminate()
        worker.wait(timeout=30)
        self.start_gpu_worker(coordinator, "free", extra=["--no-pin-ranks"])
        job = self.submit("anywhere", "--ranks", 2, program=program)
        self.wait_for_state(job, "SUCCEEDED")
        self.assertRegex(self.muster("logs", job, "--rank", "all", "--no-merge", check=0).stdout, r"rank 1 on \[0, 1")

    def test_lost_gpu_is_the_cause_and_its_node_is_excluded(self):
        coordinator = self.start_coordinator()
        self.start_gpu_worker(coordinator, "node1")
        job = self.submit("loses", "--ranks", 2, "--restarts", 3)
        self.wait_for_state(job, "RUNNING")
        self.seen_by(job, 2)
        # From now on node2 has its own file, because node1's GPUs are about to disappear.
        self.env["MUSTER_FAKE_NVML"] = str(self.dir / "others")
        (self.dir / "others").write_text("gpu bus=16\ngpu bus=32\n")
        self.start_gpu_worker(coordinator, "node2")
        ranks = {rank["rank"]: rank["pid"] for rank in self.job(job)["ranks"]}
        self.gpus("gpu bus=16", "gpu bus=32 lost=1", "xid 1 79")
        os.kill(ranks[1], 6)
        record = wait_until(lambda: (lambda r: r if r["attempt"] == 2 and r["state"] == "RUNNING" else None)(self.job(job)), 60, "attempt 2")
        self.assertEqual({rank["worker"] for rank in record["placement"]}, {"node2"}, record)
        self.assertEqual(record["faults"][0]["kind"], "gpu fault", record)
        self.assertIn("GPU 1 is lost (Xid 79: fallen off the bus)", record["faults"][0]["message"])
        shown = self.muster("incident", "show", record["incident"]["id"], check=0).stdout
        self.assertRegex(shown, r"NVML: GPU 1 is lost \(Xid 79: fallen off the bus\)")
        node = wait_until(lambda: (lambda n: n if n and n.get("last_check") else None)(self.node("node1")), 30, "node1's check")
        # the GPU fault that excluded it
        self.assertEqual((node["exclusion"]["cause"], node["exclusion"]["times"]), ("check failed", 1), node)
        self.assertFalse(node["last_check"]["passed"], node)
        self.assertIn("GPU 1 is lost (Xid 79: fallen off the bus)", node["last_check"]["sentence"])

    def test_no_gpus_without_a_driver(self):
        self.gpus("init 9")
        coordinator = self.start_coordinator()
        worker = self.start_gpu_worker(coordinator)
        self.assertIn("no GPUs: the NVIDIA driver is not loaded (NVML reports 9, Driver Not Loaded)", self.output(worker))
        self.assertEqual(wait_until(lambda: self.node("node0"), 30, "node0")["slots"], 1)
        job = self.submit("wants", "--gpus-per-rank", 1)
        self.assertIn("waits for 1 worker with 1 free slot and 1 free GPU: fewer are connected; node0 has no GPUs: the NVIDIA driver is not loaded",
                      self.job(job)["reason"])
        self.assertRegex(self.muster("node", "list", check=0).stdout, r"node0 .* no GPUs: the NVIDIA driver is not loaded \(NVML reports 9")
        self.assertIn("the NVIDIA driver is not loaded", self.node("node0")["no_gpus_because"])

    def submit_line(self, *words, check=0):
        """Submits a small training with hardware=gpu. Returns the job and what the command
        reports.
        """
        made = self.muster("submit", "--json", self.base_yml(), *TINY, f"base_output_directory={self.dir}/out", "dataset_type=synthetic",
                           "hardware=gpu", "--no-check", *words, check=check)
        return (self.job(json.loads(made.stdout)["id"]) if check == 0 else None), made.stderr

    def test_submitted_line_has_a_rank_on_each_gpu_of_the_workers(self):
        coordinator = self.start_coordinator()
        job, printed = self.submit_line("run_name=early")
        self.assertEqual(job["spec"]["ranks_per_node"], 1)
        self.assertIn(f"muster: 1 rank per node: the workers of {coordinator.address} report no GPUs; --ranks-per-node N sets another number", printed)
        self.muster("cancel", job["id"])
        self.start_gpu_worker(coordinator, "node0")
        self.gpus(*(f"gpu bus={16 * index}" for index in range(1, 5)))
        self.start_gpu_worker(coordinator, "node1")
        wait_until(lambda: self.node("node0") and self.node("node1"), 30, "both workers")
        # The largest number that as many workers have as the job has nodes.
        for words, nodes, ranks in ((["run_name=one"], 1, 4), (["run_name=two", "--nodes", 2], 2, 2), (["run_name=own", "--gpus-per-rank", 2], 1, 2)):
            with self.subTest(words=words):
                job, printed = self.submit_line(*words)
                self.assertEqual((job["spec"]["nodes"], job["spec"]["ranks_per_node"]), (nodes, ranks), job)
                self.assertRegex(printed, rf"muster: {ranks} ranks per node: the workers of {coordinator.address} report \d GPUs per node")
                self.muster("cancel", job["id"])
        # A number in the line decides, without a question.
        for words, ranks in ((["--ranks", 3], 3), (["ici_fsdp_parallelism=2"], 2), (["hardware=cpu"], 1)):
            with self.subTest(words=words):
                job, printed = self.submit_line(f"run_name=stated-{ranks}", *words)
                self.assertEqual(job["spec"]["ranks_per_node"], ranks, job)
                self.assertNotIn("per node", printed)
                self.muster("cancel", job["id"])

    def test_submission_fetches_the_workers_once(self):
        coordinator = self.start_coordinator()
        self.start_gpu_worker(coordinator)
        wait_until(lambda: self.node("node0"), 30, "node0")
        listed = 'muster_coordinator_rpcs_total{code="OK",method="ListWorkers"}'
        before = self.samples(coordinator)[listed]
        # The ranks, the check of their memory and that of the output folder depend on the workers.
        _, printed = self.submit_line("run_name=once")
        self.assertIn("2 ranks per node: the workers of", printed)
        self.assertEqual(self.samples(coordinator)[listed] - before, 1)

    def test_submitted_line_waits_for_its_coordinator(self):
        _, printed = self.submit_line("--coordinator", "127.0.0.1:1", check=1)
        self.assertRegex(printed, "error: no coordinator answers at 127.0.0.1:1 ")

    def submit_to_emulated_trainer(self, *options, gpus=0):
        """Submits a small training with hardware=gpu, without a preflight check on its machine, to
        a worker whose GPU is the emulated device. Builds with sanitizers do not have that
        device.
        """
        trainer = BIN / "emulated_muster_trainer"
        if not trainer.exists():
            self.skipTest(f"this build has no {trainer.name}")
        self.start_worker(self.start_coordinator(), slots=1, extra=["--trainer", trainer])
        made = self.muster("submit", self.base_yml(), "run_name=tiny", f"base_output_directory={self.dir}/out", "dataset_type=synthetic", *TINY,
                           "enable_checkpointing=false", "hardware=gpu", "--gpus-per-rank", gpus, *options, "--json", check=0)
        return json.loads(made.stdout)["id"]

    def test_trainer_without_a_driver_is_not_restarted(self):
        self.env["MUSTER_EMULATED_DRIVER"] = "0"
        record = self.wait_for_state(self.submit_to_emulated_trainer("restarts_max=5"), "FAILED")
        self.assertEqual(record["attempt"], 1, record)
        self.assertIn("(bad input) before its first step: rank 0: hardware=gpu: no NVIDIA driver is loaded here: install one, or train with hardware=cpu",
                      record["reason"])

    def test_trainer_that_lacks_its_assigned_gpu_is_restarted(self):
        self.env["MUSTER_EMULATED_DRIVER"] = "0"
        record = self.wait_for_state(self.submit_to_emulated_trainer("restarts_max=1", gpus=1), "FAILED")
        self.assertEqual(record["attempt"], 2, record)
        self.assertIn("exited with code 1 before its first step: rank 0: hardware=gpu: no NVIDIA driver is loaded here", record["reason"])

    def test_plan_that_exceeds_memory_reports_what_would_fit(self):
        job = self.submit_to_emulated_trainer("per_device_batch_size=1048576", "restarts_max=5")
        record = self.wait_for_state(job, "FAILED")
        self.assertEqual(record["faults"][0]["kind"], "out of memory", record)
        self.assertRegex(record["faults"][0]["message"], r"exited with code 2 \(bad input\) before its first step: out of memory: rank 0 needs \d+ MiB of the "
                                                         r"GPU's memory, \d+ MiB are free; what would fit: per_device_batch_size=\d+ ")
        self.assertEqual(record["attempt"], 1, "an empty GPU has no room for it")
        shown = json.loads(self.muster("incident", "show", record["incident"]["id"], "--json", check=0).stdout)
        self.assertEqual(shown["kind"], "out of memory", shown)
        self.assertIn("what would fit", shown["sentence"])
        lines = "\n".join(shown["ranks"][0]["last_lines"])
        for row in ("activations", "optimizer", "together"):
            self.assertRegex(lines, rf"{row} +\d+\.\d MiB")

    def test_embedded_run_assigns_gpus(self):
        program = ["--", "python3", "-c", PRINT_VISIBLE_DEVICES.replace("time.sleep(1000)", "0")]
        alone = self.muster("run", "--name", "alone", *program, check=0).stdout
        self.assertIn(f"sees {uuid_of(0)},{uuid_of(1)}", alone)  # one slot has all GPUs
        both = self.muster("run", "--name", "both", "--ranks", 2, *program, check=0).stdout
        # LOCAL_RANK selects the GPU; equal lines of ranks are printed once
        self.assertIn(f"sees {uuid_of(0)},{uuid_of(1)}", both)
        self.assertEqual(both.count("sees"), 1, both)
        own = self.muster("run", "--name", "own", "--ranks", 1, "--gpus-per-rank", 2, *program, check=0).stdout
        self.assertIn(f"sees {uuid_of(0)},{uuid_of(1)}", own)
        few = self.muster("run", "--name", "few", "--ranks", 3, "--gpus-per-rank", 1, *program, check=2).stderr
        self.assertIn("--gpus-per-rank 1: 3 ranks need 3 GPUs, and this machine has 2 GPUs NVIDIA Fake 80GB", few)
        self.assertFalse(pathlib.Path(self.dir / "few").exists())
        more = self.muster("run", "--name", "more", "--ranks", 3, *program, check=0).stdout
        self.assertIn("sees None", more)
        self.assertEqual(more.count("sees"), 1, more)


if __name__ == "__main__":
    unittest.main()
