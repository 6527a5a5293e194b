"""A draining worker stops its job in order: all ranks save the same step, and the job continues
without a counted restart.
"""
import ctypes
import json
import os
import signal
import unittest

from harness import MusterTest, wait_until

# Steps that take seconds, so that the vote at a step's end is too late to stop the other ranks.
LONG_STEPS = ["override_model_config=true", "base_emb_dim=256", "base_num_decoder_layers=4", "base_num_query_heads=4",
              "base_num_kv_heads=4", "head_dim=64", "base_mlp_dim=1024", "vocab_size=512", "max_target_length=512",
              "gradient_accumulation_steps=6", "per_device_batch_size=2", "learning_rate=1e-3"]


def hang_opens(path):
    """Makes each open() of the file wait in the kernel, as on a file system that does not respond.
    Returns a descriptor that ends this when it is closed.
    """
    # The constants are those of sys/fanotify.h.
    class_content, mark_add, open_permission, at_cwd = 4, 1, ctypes.c_uint64(0x10000), -100
    library = ctypes.CDLL(None, use_errno=True)
    group = library.fanotify_init(class_content, os.O_RDONLY)
    if group < 0 or library.fanotify_mark(group, mark_add, open_permission, at_cwd, os.fsencode(path)) != 0:
        raise unittest.SkipTest(f"fanotify: {os.strerror(ctypes.get_errno())}")
    os.set_inheritable(group, False)
    return group


class LeavingWorker(MusterTest):
    def submit(self, name, *overrides):
        """Submits a job on two nodes that shard a model and may not be restarted. Returns its
        number.
        """
        result = self.muster("submit", self.base_yml(), f"run_name={name}", f"base_output_directory={self.dir}/out",
                             "dataset_type=synthetic", "log_period=1", "restarts_max=0", "ici_fsdp_parallelism=1", "dcn_fsdp_parallelism=2",
                             *overrides, "--nodes", "2", "--ranks-per-node", "1", "--json", check=0)
        return json.loads(result.stdout)["id"]

    def state(self, job, *states):
        """Waits until the job is in one of these states. Returns it."""
        def condition():
            record = self.job(job)
            return record if record["state"] in states else None
        return wait_until(condition, 90, f"job {job} in state {' or '.join(states)}")

    def wait_for_steps(self, job, steps):
        wait_until(lambda: any(r["step"] >= steps for r in self.job(job)["ranks"]), 90, f"step {steps}")

    def checkpoints(self, name):
        return sorted(int(p.name) for p in (self.dir / "out" / name / "checkpoints").iterdir() if p.name.isdigit())

    def test_ranks_save_the_same_step_and_the_job_resumes_on_another_worker(self):
        coordinator = self.start_coordinator()
        leaver = self.start_worker(coordinator, "node1", 1)
        self.start_worker(coordinator, "node2", 1)
        job = self.submit("left", "steps=1000000", *LONG_STEPS)
        self.wait_for_steps(job, 1)
        leaver.send_signal(signal.SIGTERM)
        queued = self.state(job, "QUEUED", "FAILED")
        self.assertEqual(leaver.wait(timeout=60), 0, self.output(leaver))
        self.assertEqual(queued["state"], "QUEUED", queued)
        self.assertEqual([fault["message"] for fault in queued["faults"]], ["worker node1 is leaving"])
        self.assertIn("waits for 2 workers with 1 free slot each: fewer are connected", queued["reason"])
        self.assertIn("worker node1 is leaving; all ranks save and leave", self.output(coordinator))
        saved = self.checkpoints("left")
        self.assertEqual(len(saved), 1, self.output(leaver))
        folder = self.dir / "out/left/checkpoints" / str(saved[0])
        self.assertEqual(len(list(folder.glob("model-*.safetensors"))), 2, "not both ranks have saved")

        self.start_worker(coordinator, "node3", 1)
        self.state(job, "RUNNING")
        self.wait_for_steps(job, saved[0] + 1)
        self.assertIn(f"restored checkpoint {folder}: {saved[0]} step", self.muster("logs", job, check=0).stdout)
        self.muster("cancel", job, "--force", check=0)
        self.state(job, "CANCELLED")

    @unittest.skipUnless(os.geteuid() == 0, "only root can make a file hang")
    def test_unresponsive_file_does_not_hold_up_a_leaving_worker(self):
        coordinator = self.start_coordinator()
        worker = self.start_worker(coordinator, "node1", 1)
        self.muster("submit", "--restarts", 0, "--", "sleep", 1000, check=0)
        self.state(1, "RUNNING")
        self.addCleanup(os.close, hang_opens(next((self.dir / "work/node1").rglob("rank-0.log"))))
        self.muster("cancel", 1, "--force", check=0)
        self.state(1, "CANCELLED")
        worker.send_signal(signal.SIGTERM)
        self.assertEqual(worker.wait(timeout=60), 0, self.output(worker))
        self.assertIn("a file that is being read does not answer", self.output(worker))


if __name__ == "__main__":
    unittest.main()
