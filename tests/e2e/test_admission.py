"""Admission: jobs that cannot fit in the memory of their GPUs are refused before they wait in a
queue, and `status --why` compares a waiting job with the fleet.
"""
import json
import unittest

from harness import MusterTest, wait_until

LARGE = ["model_name=llama2-70b", "per_device_batch_size=64", "hardware=gpu", "enable_checkpointing=false"]
SMALL = ["model_name=llama2-tiny", "hardware=gpu"]


class Admission(MusterTest):
    def setUp(self):
        super().setUp()
        self.gpus(*[f"gpu bus={16 * (index + 1)}" for index in range(2)])

    def refused(self, *words):
        result = self.muster(*words, check=2)
        self.assertEqual(result.stdout, "")
        self.assertRegex(result.stderr, r"out of memory: rank 0 needs \d+ MiB of the GPU's memory")
        self.assertIn("--no-plan submits it without this check", result.stderr)
        return result.stderr

    def config(self, *words):
        return [self.base_yml(), "run_name=large", f"base_output_directory={self.dir / 'out'}", *words]

    def test_submit_compares_with_the_fleets_gpus(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, slots=2)
        wait_until(lambda: "node0" in self.muster("node", "list", check=0).stdout, 30, "the worker")
        error = self.refused("submit", *self.config(*LARGE))
        self.assertIn(f"does not fit in the memory of NVIDIA Fake 80GB, as the workers of {coordinator.address} report", error)
        self.assertIn("does not fit in the memory of NVIDIA H200, by compile_topology=h200-8",
                      self.refused("submit", *self.config(*LARGE, "compile_topology=h200-8")))
        self.assertEqual(json.loads(self.muster("list", "--all", "--json", check=0).stdout)["jobs"], [])
        waiting = json.loads(self.muster("submit", "--json", "--no-plan", "--nodes", 3, *self.config(*LARGE, "run_name=waits"), check=0).stdout)
        why = self.muster("status", waiting["id"], "--why", check=0, env={**self.env, "PATH": "/nonexistent"}).stdout
        self.assertRegex(why, r"needs 3 nodes with 2 free slots and 2 free GPUs each, and [\d,]+ MiB of each GPU's memory by the plan\nworkers that can .*: 0 of 1\n")
        self.assertRegex(why, r"node0 +2 of 2 +2 of 2 +NVIDIA Fake 80GB +its GPUs have only 81,920 MiB")
        self.muster("submit", *self.config(*SMALL, "run_name=small"), check=0)

    def test_slurm_submit_compares_with_the_named_or_the_largest_gpus(self):
        words = ["slurm", "submit", "--insecure", "--dry-run", "--gpus-per-node", 8, *self.config(*LARGE)]
        self.assertIn("the nodes' type is unknown (compile_topology=h100 names it)", self.refused(*words))
        self.assertIn("does not fit in the memory of NVIDIA H100 80GB HBM3, by compile_topology=h100", self.refused(*words, "compile_topology=h100"))
        self.assertIn("#SBATCH", self.muster(*words, "--no-plan", check=0).stdout)
        fits = [word if word != "per_device_batch_size=64" else "per_device_batch_size=1" for word in words]
        self.assertIn("#SBATCH", self.muster(*fits, "-N", 16, "dcn_data_parallelism=1", "dcn_fsdp_parallelism=-1", check=0).stdout)

    def test_k8s_render_reads_the_node_selector(self):
        words = ["k8s", "render", "--insecure", "--image", "muster:1", "--mount", "shared:/shared", "--gpus", 8, self.base_yml(), *LARGE,
                 "run_name=large", "base_output_directory=/shared"]
        for label, device in (("nvidia.com/gpu.product=NVIDIA-A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB"),
                              ("node.kubernetes.io/instance-type=p5.48xlarge", "NVIDIA H100 80GB HBM3"),
                              ("cloud.google.com/gke-accelerator=nvidia-h200-141gb", "NVIDIA H200")):
            self.assertIn(f"does not fit in the memory of {device}, by --node-selector", self.refused(*words, "--node-selector", label))
        self.assertIn("kind: JobSet", self.muster(*words, "--no-plan", check=0).stdout)

    def test_k8s_render_predicts_the_step_of_named_machines(self):
        def prediction(*words):
            made = self.muster("k8s", "render", "--json", "--insecure", "--image", "muster:1", "--mount", "shared:/shared", "--gpus", 8, self.base_yml(),
                               *SMALL, "run_name=small", "base_output_directory=/shared", "--nodes", 2, *words, check=0).stdout
            objects = json.loads(made)["items"]
            spec = json.loads(next(one["data"]["job.json"] for one in objects if "job.json" in one.get("data", {})))
            config = json.loads(spec["train_config_json"])
            self.assertEqual("planned_step_us" in spec, "planned_step_seconds" in config)
            return int(spec.get("planned_step_us", 0)), int(spec.get("planned_memory_bytes", 0))
        step, memory = prediction("--node-selector", "node.kubernetes.io/instance-type=p5.48xlarge")
        self.assertGreater(step, 0)
        self.assertGreater(memory, 0)
        self.assertEqual(prediction("compile_topology=p5-16"), (step, memory))
        # A GPU's name leaves the network between nodes open.
        self.assertEqual(prediction("--node-selector", "nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3"), (0, memory))
        self.assertEqual(prediction(), (0, 0))
        self.assertEqual(prediction("--node-selector", "node.kubernetes.io/instance-type=p5.48xlarge", "--no-plan"), (0, 0))


if __name__ == "__main__":
    unittest.main()
