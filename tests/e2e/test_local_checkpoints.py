"""A node is lost with its files: its ranks resume elsewhere from the copies in another node's
memory.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import tempfile
import unittest

from harness import MusterTest, wait_until

MODEL = ["override_model_config=true", "base_emb_dim=64", "base_num_decoder_layers=2", "base_num_query_heads=4", "base_num_kv_heads=4",
         "head_dim=16", "base_mlp_dim=128", "vocab_size=256", "max_target_length=64", "per_device_batch_size=1"]


@unittest.skipUnless(pathlib.Path("/dev/shm").is_dir(), "there is no storage in memory here")
class LocalCheckpoints(MusterTest):
    def setUp(self):
        super().setUp()
        self.memory = pathlib.Path(tempfile.mkdtemp(prefix="muster-e2e-", dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, self.memory, ignore_errors=True)

    def start_node(self, coordinator, name):
        return self.start_worker(coordinator, name, 1, extra=["--local-dir", str(self.memory / name)])

    def submit(self, *overrides):
        result = self.muster("submit", self.base_yml(), "run_name=kept", f"base_output_directory={self.dir}/out", "dataset_type=synthetic",
                             "log_period=1", "restarts_max=5", "ici_fsdp_parallelism=1", "dcn_fsdp_parallelism=2",
                             "enable_emergency_checkpoint=True", "local_checkpoint_period=5", "checkpoint_period=1000000", *MODEL,
                             *overrides, "--nodes", "2", "--ranks-per-node", "1", "--json", check=0)
        return json.loads(result.stdout)["id"]

    def saves(self, name):
        """Returns the steps of which a node has the copies of both ranks."""
        return sorted(int(save.name.split("-")[0]) for save in (self.memory / name).glob("muster-*/*")
                      if len(list(save.glob("part-*.json"))) == 2)

    def log(self, job):
        return self.muster("logs", job, check=0).stdout

    def test_lost_node_is_restored_from_another_nodes_copies(self):
        coordinator = self.start_coordinator()
        workers = {name: self.start_node(coordinator, name) for name in ("node1", "node2")}
        job = self.submit("steps=1000000")
        wait_until(lambda: all(self.saves(name) for name in workers), 90, "a local checkpoint on both nodes")
        self.start_node(coordinator, "node3")
        workers["node1"].send_signal(signal.SIGKILL)
        workers["node1"].wait()
        shutil.rmtree(self.memory / "node1")
        wait_until(lambda: "restored local checkpoint of step" in self.log(job), 120, "a restore from memory")
        line = re.search(r"restored local checkpoint of step (\d+) \(own copies; 2 files from rank \d's node\) in \d+\.\d\d s", self.log(job))
        self.assertIsNotNone(line, self.log(job)[-3000:])
        self.assertGreaterEqual(int(line[1]), 5)
        self.assertNotIn("restored checkpoint ", self.log(job), "nothing was on shared storage")
        wait_until(lambda: self.saves("node3"), 60, "copies on the node that came")
        # The nodes' copies end with the job.
        self.muster("cancel", job, "--force", check=0)
        wait_until(lambda: not [*self.memory.glob("node*/muster-*")], 30, "folders that are removed")

    def test_copies_survive_a_killed_worker_and_end_with_the_job(self):
        coordinator = self.start_coordinator()
        for name in ("node1", "node2"):
            worker = self.start_node(coordinator, name)
        job = self.submit("steps=3000")
        wait_until(lambda: all(self.saves(name) for name in ("node1", "node2")), 90, "a local checkpoint on both nodes")
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        self.start_node(coordinator, "node2")
        wait_until(lambda: self.job(job)["state"] == "SUCCEEDED", 120, "the job's end")
        self.assertRegex(self.log(job), r"restored local checkpoint of step \d+ \(own copies\) in ")
        self.assertEqual([*self.memory.glob("node*/muster-*")], [])

    def test_embedded_run_leaves_no_copies_in_memory(self):
        process = self.start_run("run", "enable_emergency_checkpoint=True", "local_checkpoint_period=1", "steps=1000000", ranks=2)
        self.wait_for_step(process, 5)
        [folder] = pathlib.Path("/dev/shm").glob(f"muster-run-{os.geteuid()}-{process.pid}-*")
        wait_until(lambda: any(folder.glob("muster-*/*")), 30, "a local checkpoint")
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        self.assertFalse(folder.exists())


if __name__ == "__main__":
    unittest.main()
