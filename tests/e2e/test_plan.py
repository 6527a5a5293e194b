"""muster plan: the memory of jobs on machines that this one need not have."""
import json
import os
import pathlib
import signal
import unittest

from harness import BIN, MusterTest, wait_until

LLAMA = ["model_name=llama2-70b", "per_device_batch_size=4"]


class Plan(MusterTest):
    def plan(self, *words, check=0):
        return self.muster("plan", self.base_yml(), *words, check=check)

    def memory(self, *words, check=0):
        return json.loads(self.plan(*words, "--json", check=check).stdout)

    def test_maxtexts_line_is_planned(self):
        line = ["MaxText/configs/base.yml", "compile_topology=v5e-256", "compile_topology_num_slices=2", "global_parameter_scale=16",
                "per_device_batch_size=4"]
        pasted = self.muster("run", "python3", "MaxText/train_compile.py", *line, check=0)
        self.assertIn("machines: 2 nodes of 256 × TPU v5e (v5e)", pasted.stdout)
        self.assertIn("mesh: data=2 fsdp=256 (512 ranks), 2,048 sequences of 2048 tokens in a step", pasted.stdout)
        self.assertIn("it fits:", pasted.stdout)
        self.assertEqual(self.muster("plan", "python3", "MaxText/train_compile.py", *line, check=0).stdout, pasted.stdout)

    def test_a_job_that_does_not_fit_gets_the_error_of_a_run_and_values_that_do(self):
        refused = self.plan(*LLAMA, "compile_topology=h100-64", check=2)
        self.assertIn("together         157", refused.stdout)
        self.assertIn("rank 0's plan on NVIDIA H100 80GB HBM3, and the memory beside it:", refused.stderr)
        self.assertRegex(refused.stderr, r"out of memory: rank 0 needs \d+ MiB of the GPU's memory, 81009 MiB are free")
        lines = [line.split("#")[0].split() for line in refused.stderr.splitlines() if line.startswith("  ") and "=" in line]
        self.assertRegex(refused.stderr, r"\n  dcn_data_parallelism=\d dcn_fsdp_parallelism=\d\n")
        self.assertTrue(any(line[0].startswith("compile_topology_num_slices=") for line in lines), refused.stderr)
        seconds = []
        for line in lines:  # each can be pasted; the fastest on these machines is the first
            step = self.memory(*LLAMA, "compile_topology=h100-64", *line)
            self.assertTrue(step["memory"]["fits"], line)
            if step["nodes"] == 8:
                seconds.append(step["step"]["seconds"] / step["sequences"])
        self.assertEqual(seconds, sorted(seconds))
        fits = self.plan(*LLAMA, "compile_topology=h100-64", "dcn_data_parallelism=1", "dcn_fsdp_parallelism=-1")
        self.assertIn("mesh: fsdp=64 (64 ranks)", fits.stdout)
        shown = self.memory(*LLAMA, "compile_topology=h100-64", check=2)
        self.assertFalse(shown["memory"]["fits"])
        self.assertGreater(shown["memory"]["stages"][0]["device_bytes"], shown["memory"]["memory_bytes"])

    def test_a_large_fleet_takes_seconds(self):
        shown = self.memory(*LLAMA, "compile_topology=h100-256", "compile_topology_num_slices=64", "dcn_data_parallelism=64", "dcn_fsdp_parallelism=-1")
        self.assertEqual((shown["nodes"], shown["ranks_per_node"], shown["mesh"]), (2048, 8, "data=64 fsdp=256"))
        self.assertEqual(shown["warnings"], [])
        uses = {use["name"] for use in shown["memory"]["stages"][0]["uses"]}
        self.assertLessEqual({"parameters", "gradients", "optimizer", "activations", "NCCL", "CUDA context"}, uses)

    def test_stages_of_a_pipeline_are_listed(self):
        shown = self.plan(*LLAMA, "compile_topology=h200-32", "dcn_data_parallelism=1", "dcn_pipeline_parallelism=4", "gradient_accumulation_steps=8")
        self.assertRegex(shown.stdout, r"MiB PER DEVICE +STAGE 0 +STAGE 1 +STAGE 2 +STAGE 3\n")

    def test_other_dialects(self):
        pax = self.muster("plan", "CONFIG=GPT175B", "compile_topology=a100-768", check=0).stdout
        self.assertIn("GPT175B: 174,604,259,328 parameters", pax)
        fuji = self.muster("plan", "--module=text.gpt.c4_trainer", "--config=fuji-7B-v2", "compile_topology=p5-64", check=0).stdout
        self.assertIn("machines: 8 nodes of 8 × NVIDIA H100 80GB HBM3 (p5)", fuji)

    def test_values_are_compared_in_a_table(self):
        words = [*LLAMA, "compile_topology=h200-64", "dcn_fsdp_parallelism=-1", "dcn_data_parallelism=1", "--vary", "per_device_batch_size=1,4,0.3",
                 "--vary", "remat_policy=full,none"]
        table = self.plan(*words).stdout.splitlines()
        self.assertRegex(table[0], r"^per_device_batch_size +remat_policy +MESH +SEQUENCES +MiB PER DEVICE +OF ITS MEMORY +STEP +TOKENS/S/DEVICE +MFU")
        self.assertRegex(table[1], r"^1 +full +fsdp=64 +64 +[\d.]+ +\d+% +[\d.]+ s +\d+ +[\d.]+% +fits$")
        self.assertRegex(table[4], r"^4 +none +fsdp=64 +256 +[\d.]+ +\d+% +[\d.]+ s +\d+ +[\d.]+% +does not fit$")
        self.assertIn("must be a whole number", table[5])
        rows = self.memory(*words)
        self.assertGreater(rows[2]["step"]["mfu"], rows[0]["step"]["mfu"])
        needed = [row["memory"]["stages"][0]["device_bytes"] for row in rows[:4]]
        self.assertEqual([needed[0] < needed[1], needed[0] < needed[2], needed[2] < needed[3]], [True] * 3)
        self.assertEqual(rows[3]["values"], {"per_device_batch_size": "4", "remat_policy": "none"})
        self.assertIn("more than 256 combinations", self.plan("compile_topology=h100-8", "--vary", "steps=" + ",".join(map(str, range(300))), check=2).stderr)
        self.assertIn("did you mean steps", self.plan("compile_topology=h100-8", "--vary", "stps=1,2", check=2).stderr)
        self.assertIn("expected KEY=VALUE,VALUE,…", self.plan("compile_topology=h100-8", "--vary", "steps", check=2).stderr)

    def test_the_time_of_a_step(self):
        words = ["model_name=llama2-7b", "compile_topology=h200-1", "per_device_batch_size=2", "max_target_length=4096", "dtype=bfloat16",
                 "remat_policy=minimal_with_context", "steps=1000"]
        step = self.memory(*words, "--price", "3")["step"]
        # bench/results/gpu/h200-2026-11-28: 0.6755 s
        self.assertAlmostEqual(step["seconds"] / 0.6755, 1, delta=0.05)
        self.assertAlmostEqual(step["tokens_per_second"], 8192 / step["seconds"], places=3)
        self.assertAlmostEqual(step["gpu_hours"], 1000 * step["seconds"] / 3600)
        self.assertAlmostEqual(step["cost"], 3 * step["gpu_hours"])
        self.assertAlmostEqual(sum(part["seconds"] for part in step["parts"]), step["seconds"])
        self.assertLess(step["mfu_causal"], step["mfu"])
        text = self.plan(*words).stdout
        self.assertRegex(text, r"step time: 0\.\d+ s \(calibrated: \d+ steps of muster measured on NVIDIA H200, forecast within")
        self.assertRegex(text, r"WHERE THE STEP GOES +SECONDS +SHARE\nideal GEMMs ")
        self.assertIn("mesh: 1 rank, 2 sequences", text)
        self.assertIn("checkpoint: none (enable_checkpointing=false)", self.plan(*words, "enable_checkpointing=false").stdout)
        other = self.plan("compile_topology=h100-8", "model_name=llama2-7b").stdout
        self.assertIn("calibrated on another device: ", other)
        self.assertIn("on at most 1 device, links are not measured", self.plan("compile_topology=h200-8", "model_name=llama2-7b").stdout)
        self.assertIn("interruptions: ", text)
        self.assertNotIn("interruptions: ", self.plan(*words, "--failure-rate", "0").stdout)
        self.assertIn("roofline only", self.plan("compile_topology=rtx4090-1").stdout)

    def test_a_fleet_is_timed_in_seconds_too(self):
        step = self.memory("model_name=llama2-70b", "per_device_batch_size=2", "max_target_length=4096", "remat_policy=full", "compile_topology=h100-2048",
                           "dcn_fsdp_parallelism=16", "dcn_data_parallelism=16", "dtype=bfloat16", "--program", "maxtext")["step"]
        self.assertAlmostEqual(step["seconds"] / 7.066, 1, delta=0.1)

    def test_the_timeline_is_a_picture_of_the_step(self):
        words = ["model_name=llama2-7b", "compile_topology=h100-16", "dcn_fsdp_parallelism=2", "dcn_data_parallelism=1"]
        self.plan(*words, "--timeline", self.dir / "step.json")
        events = json.loads((self.dir / "step.json").read_text())["traceEvents"]
        lanes = {event["args"]["name"] for event in events if event["ph"] == "M"}
        self.assertLessEqual({"computation", "parameters and gradients"}, lanes)
        self.plan(*words, "--timeline", self.dir / "step.svg")
        self.assertIn("parameters and gradients", (self.dir / "step.svg").read_text())
        self.assertIn("must end in .json", self.plan(*words, "--timeline", self.dir / "step.png", check=2).stderr)
        self.assertFalse((self.dir / "step.png").exists())

    def test_a_search_prints_settings_that_can_be_pasted(self):
        job = ["model_name=llama2-7b", "per_device_batch_size=2", "compile_topology=h100-16", "dcn_fsdp_parallelism=2", "dcn_data_parallelism=1"]
        words = [*job, "--search", "--search-limit", "80", "--keep", "global_batch_size,zero_stage"]
        shown = self.memory(*words)
        self.assertEqual((shown["planned"], shown["complete"], shown["interrupted"]), (80, False, False))
        self.assertEqual(shown, self.memory(*words), "equal commands print equal rows")
        self.assertEqual(shown["own"]["line"], "")
        rows = shown["rows"]
        self.assertGreater(len(rows), 3)
        for row in (shown["own"], rows[0], rows[-1]):
            planned = self.memory(*job, *row["line"].split())
            self.assertEqual(planned["memory"]["stages"], row["memory"]["stages"], row["line"])
            self.assertAlmostEqual(planned["step"]["seconds"], row["step"]["seconds"])
            self.assertEqual((planned["sequences"], planned["mesh"]), (32, row["mesh"]))
            self.assertTrue(planned["memory"]["fits"])
        needed = [max(stage["device_bytes"] for stage in row["memory"]["stages"]) for row in rows]
        speeds = [row["step"]["tokens_per_second"] for row in rows]
        self.assertEqual((needed, speeds), (sorted(needed), sorted(speeds)), "no row is beaten by another")
        self.assertGreater(speeds[-1], shown["own"]["step"]["tokens_per_second"])
        text = self.plan(*words).stdout
        self.assertRegex(text, r"^ROW +MiB PER DEVICE +SHARE +STEP +TOKENS/S/DEVICE +MFU +SEQUENCES\n")
        self.assertRegex(text, r"\nyours +[\d.]+ ")
        self.assertIn(f"\n  {rows[-1]['line']}\n", text)
        self.assertIn("80 settings planned, ", text)

    def test_ctrl_c_prints_what_a_search_has_found(self):
        search = self.start(BIN / "muster", "plan", self.base_yml(), "model_name=llama2-7b", "per_device_batch_size=2", "compile_topology=h100-64",
                            "--search", "--search-limit", "100000", "--json")
        children = pathlib.Path(f"/proc/{search.pid}/task/{search.pid}/children")

        def has_searched():
            for child in children.read_text().split():
                times = pathlib.Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()
                if int(times[11]) >= os.sysconf("SC_CLK_TCK") // 2:  # half a second of computation
                    return True
            return False
        wait_until(has_searched, 60, "plans")
        search.send_signal(signal.SIGINT)
        self.assertEqual(search.wait(timeout=60), 130, self.output(search))
        out, err = search.out_path.read_text(), search.err_path.read_text()
        shown = json.loads(out)
        self.assertEqual((shown["complete"], shown["interrupted"]), (False, True))
        self.assertGreater(shown["planned"], 1)
        self.assertRegex(err, r"interrupted after [\d,]+ of at most 100000 settings")

    def test_two_plans_are_compared(self):
        for name, remat in (("a", "full"), ("b", "minimal")):
            (self.dir / f"{name}.yml").write_text(f"base_config: {self.base_yml()}\nmodel_name: llama2-7b\nremat_policy: {remat}\n")
        both = ["--compare", self.dir / "a.yml", self.dir / "b.yml", "compile_topology=h200-8", "per_device_batch_size=2"]
        shown = json.loads(self.muster("plan", *both, "--json", check=0).stdout)
        self.assertEqual(shown["keys"], {"remat_policy": ["full", "minimal"]})
        alone = self.muster("plan", self.dir / "b.yml", *both[3:], "--json", check=0)
        self.assertEqual(shown["plans"][1]["memory"]["stages"], json.loads(alone.stdout)["memory"]["stages"])
        text = self.muster("plan", *both, "--price", "2", check=0).stdout
        self.assertRegex(text, r"\nremat_policy +full +minimal\n")
        self.assertRegex(text, r"\nMiB per device +[\d.]+ +[\d.]+ +\+[\d.]+%\n")
        self.assertRegex(text, r"\ncost +[\d,]+ +[\d,]+ +-[\d.]+%\n")
        words = self.plan("model_name=llama2-7b", "compile_topology=h200-8", "per_device_batch_size=2", "--compare", "per_device_batch_size=1 remat_policy=none")
        self.assertRegex(words.stdout, r"\nremat_policy +full +none\n")
        missing = self.muster("plan", "--compare", "none.yml", *both[2:], check=2)
        self.assertIn("none.yml", missing.stderr)

    def test_ones_own_topology(self):
        folder = self.dir / "own/topologies"
        folder.mkdir(parents=True)
        (folder.parent / "base.yml").write_text(pathlib.Path(self.base_yml()).read_text(encoding="utf-8"))
        (folder / "lab.yml").write_text("device: NVIDIA RTX 6000 Ada\nmemory_mib: 48500\ndevices_per_node: 2\n")
        own = self.muster("plan", folder.parent / "base.yml", "compile_topology=lab-4", check=0).stdout
        self.assertIn("machines: 2 nodes of 2 × NVIDIA RTX 6000 Ada (lab)", own)
        for option in (["--price", "2"], ["--timeline", self.dir / "step.json"]):
            refused = self.muster("plan", folder.parent / "base.yml", "compile_topology=lab-4", *option, check=2)
            self.assertIn(f"{option[0]} needs the time of a step, and the topology lab does not give it; add bf16_tflops, fp32_tflops, memory_gb_s",
                          refused.stderr)
            self.assertEqual(refused.stdout, "")
        self.assertFalse((self.dir / "step.json").exists())
        for option in (["--price", "2"], ["--timeline", self.dir / "step.json"]):
            refused = self.muster("plan", self.base_yml(), "compile_topology=h100-8", "eval_only=true", "dataset_type=shards",
                                  "dataset_path=a", "eval_dataset_path=b", "load_parameters_path=c", *option, check=2)
            self.assertIn(f"{option[0]} needs the time of a training step, and a job with eval_only=true has none", refused.stderr)
        self.assertFalse((self.dir / "step.json").exists())
        (folder / "lab.yml").write_text("device: NVIDIA RTX 6000 Ada\nmemory_mib: -1\n")
        self.assertIn("lab.yml:2: memory_mib=-1: expected a number from 1 to",
                      self.muster("plan", folder.parent / "base.yml", "compile_topology=lab-4", check=2).stderr)
        (folder / "lab.yml").write_text("device: X\nmemory_mib: 48500\ndevices_per_node: 2\nmemory_gb_s: -5\n")
        self.assertIn("lab.yml:4: memory_gb_s=-5: expected a number above 0",
                      self.muster("plan", folder.parent / "base.yml", "compile_topology=lab-4", check=2).stderr)

    def test_mistakes_are_named(self):
        for words, message in ((["compile_topology=h10-64"], "no such topology in"), (["compile_topology=h10-64"], "h100"),
                               (["compile_topology=h100-12"], "h100-8 or h100-16"), ([], "compile_topology is missing"),
                               (["compile_topology=h100-8", "compile_topology_num_slices=0"], "must be from 1 to"),
                               (["compile_topology=h100-8", "ici_tensor_parallelism=3"], "ici_tensor_parallelism"),
                               (["compile_topology=h100-8", "model_name=llama2-7"], "did you mean llama2-7b"),
                               (["compile_topology=h100-8", "hardware=cpu"], "the devices of compile_topology=h100 are accelerators"),
                               (["compile_topology=cpu-4", "hardware=gpu"], "the devices of compile_topology=cpu are CPUs"),
                               (["compile_topology=h100-8", "--price", "-1"], "--price -1: must be at least 0"),
                               (["compile_topology=h100-8", "--failure-rate", "-1"], "--failure-rate -1: must be from 0 to 1"),
                               (["compile_topology=h100-8", "--search", "--vary", "steps=1,2"], "--vary and --search exclude each other"),
                               (["compile_topology=h100-8", "--search", "--compare", "steps=1"], "--search and --compare exclude each other"),
                               (["compile_topology=h100-8", "--keep", "mu_dtype"], "--keep has an effect with --search only"),
                               (["compile_topology=h100-8", "--search", "--search-limit", "0"], "--search-limit 0: must be from 1 to"),
                               (["compile_topology=h100-8", "--search", "--keep", "remat_polici"], "did you mean remat_policy?"),
                               (["compile_topology=h100-8", "--search", "--keep", "steps"], "it changes global_batch_size, per_device_batch_size"),
                               (["compile_topology=h10-64", "--search"], "no such topology in"),
                               (["compile_topology=h100-8", "--search", "ici_tensor_parallelism=3"], "ici_tensor_parallelism"),
                               (["compile_topology=h100-1", "--search", "--keep", "per_device_batch_size,gradient_accumulation_steps,remat_policy,mu_dtype,zero_stage"],
                                "nothing is free to vary"),
                               (["compile_topology=rtx4090-1", "model_name=llama2-70b", "--search", "--search-limit", "20"], "fits in the memory of"),
                               (["compile_topology=h100-8", "--program", "pytorch"], "there is no calibration pytorch-h100.yml")):
            refused = self.plan(*words, check=2)
            self.assertIn(message, refused.stderr, words)
            self.assertEqual(refused.stdout, "")

    def test_a_run_names_the_command_that_reads_the_key(self):
        shown = self.muster("config", "show", self.base_yml(), "compile_topology=h100-8", check=0)
        self.assertIn("muster plan reads it", shown.stderr)


if __name__ == "__main__":
    unittest.main()
