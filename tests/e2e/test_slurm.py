"""Jobs on a real Slurm, from sbatch to their exit code: each wrapper, `muster slurm submit`, and
bad options.
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest
import urllib.request

import monitoring
from harness import BIN, SOURCE, command_line, metrics, step_lines, wait_until
from lab import base_yml_of_lab
from slurm_case import ENDLESS, SlurmTest, WRAPPERS

TOOLS_MISSING = monitoring.missing_tool()
TEXT = "In the beginning God created the heaven and the earth. And the earth was without form, and void.\n" * 400


class SlurmWrappers(SlurmTest):
    def make_shards(self):
        """Returns (folder of shards, tokenizer) of a small text."""
        (self.dir / "text.txt").write_text(TEXT)
        self.muster("train-tokenizer", "--text", "text.txt", "--vocab-size", 290, "--out", "tokenizer", check=0)
        self.muster("tokenize", "--text", "text.txt", "--tokenizer", "tokenizer.model", "--out", "shards", check=0)
        return self.dir / "shards", self.dir / "tokenizer.model"

    def pax(self, script, *keys, nodes=2, config=None, name="paxml", env=None):
        return self.cluster.sbatch("-N", nodes, "-J", name, "-t", "10", WRAPPERS / script, "override_model_config=true", "--fdl.MAX_STEPS=6",
                                   "--fdl.NUM_LAYERS=2", "--fdl.NUM_HEADS=4", "--fdl.DIMS_PER_HEAD=8", "--fdl.MODEL_DIMS=32",
                                   "--fdl.HIDDEN_DIMS=64", "--fdl.VOCAB_SIZE=320", "--fdl.MAX_SEQ_LEN=32", "log_period=1", *keys,
                                   cwd=self.dir, env={"BASE_WORKSPACE_DIR": str(self.dir), "LOG_DIR_LOCAL": "logs", "OUTPUT_DIR": "the output",
                                                      "PREC": "float32", "GPUS_PER_NODE": "1", "PERCORE_BATCH_SIZE": "1",
                                                      **({"CONFIG": config} if config else {}), **(env or {})})

    def output(self, job, folder="the output"):
        path = self.dir / folder / f"output-{job}-0-0.txt"
        return path.read_text() if path.exists() else self.cluster.job_output(job)

    def assert_trained(self, job, steps, folder="the output"):
        end = self.cluster.wait_for_end(job)
        output = self.output(job, folder)
        self.assertEqual(end, ("COMPLETED", 0), output + self.cluster.log("slurmctld")[-2000:])
        self.assertEqual([step for step, _ in step_lines(output)][-1:], [steps - 1], output)
        return output

    def test_maxtext_with_two_ranks_per_node_and_names_that_need_quotes(self):
        space = self.dir / "it's a \"work\" space 100%"
        job = self.cluster.sbatch(
            "-N", 2, "-J", "a \"quoted\" job's name", WRAPPERS / "example_slurm.sub", *self.tiny("steps=8", "log_period=1"), cwd=self.dir, env={
                "GPUS_PER_NODE": "2", "BASE_WORKSPACE_DIR": str(space), "LOG_DIR_LOCAL": "log dir", "OUTPUT_DIR": "the output",
                "RUN_NAME": "first", "MODEL": "llama2-7b", "PREC": "float32", "CONTAINER": "ghcr.io/nvidia/jax:maxtext",
                "NVTE_FUSED_ATTN": "1", "XLA_FLAGS": "--xla_gpu_graph_level=0", "ENABLE_TE": "1", "BASE_TFDS_DATA_DIR": str(self.dir),
                "BASE_VOCAB_PATH": "/nowhere"})
        output = self.assert_trained(job, 8, f"{space}/the output/first")
        self.assertIn("2 of 2 nodes (node[1-2]) with 2 ranks each", output)
        self.assertTrue((space / "log dir/first/checkpoints/8").is_dir())
        printed = self.cluster.job_output(job) + output
        for name in ("NVTE_FUSED_ATTN", "XLA_FLAGS", "ENABLE_TE", "BASE_TFDS_DATA_DIR", "BASE_VOCAB_PATH", "--container"):
            self.assertEqual(printed.count(f"warning: {name}"), 1, f"{name} in {printed}")

    def test_pax_trains_the_pile(self):
        shards, tokenizer = self.make_shards()
        job = self.pax("example_slurm_pile.sub", env={"BASE_TFDS_DATA_DIR": str(shards), "BASE_VOCAB_PATH": str(tokenizer)})
        self.assert_trained(job, 6)
        self.assertTrue((self.dir / "logs/checkpoints/6").is_dir())

    def test_pax_base_configs(self):
        job = self.pax("launch_base_script.sub", config="Synthetic126M", nodes=1, env={"ENABLE_TE": "1", "BASE_XLA_FLAGS": "-x"})
        output = self.assert_trained(job, 6)
        self.assertEqual(output.count("ENABLE_TE"), 1, output)
        self.assertIn("BASE_XLA_FLAGS=-x has no effect", self.cluster.job_output(job) + output)
        self.assert_ends(self.pax("launch_base_script.sub", name="none"), "FAILED", 2)

    def test_pax_llama(self):
        """The lines of Pax's page: fine-tune on BoolQ's answers, train adapters, evaluate."""
        self.assert_trained(self.pax("example_slurm_llama.sub", "--fdl.NUM_KV_HEADS=2", config="LLaMA7B"), 6)
        questions = "".join(json.dumps({"question": f"is box {i} red", "title": "Boxes", "answer": i % 3 == 0, "passage": f"Box {i} is {colour}."}) + "\n"
                            for i, colour in enumerate(["red", "blue", "green"] * 4))
        (self.dir / "boolq/bool_q").mkdir(parents=True)
        for split in ("train", "dev"):
            (self.dir / f"boolq/bool_q/{split}.jsonl").write_text(questions)
        (self.dir / "text.txt").write_text("".join(f"Box {i} is red.\nQuestion: is box {i} red?\nAnswer: yes no\n" for i in range(300)))
        self.muster("train-tokenizer", "--text", "text.txt", "--vocab-size", 300, "--fewer-ok", "--out", "tokenizer", check=0)

        def boolq(name, *keys, **variables):
            # The documented folder of a checkpoint: it has checkpoints/NAME.
            return self.pax("example_slurm_llama.sub", "--fdl.NUM_KV_HEADS=2", "--fdl.MAX_SEQ_LEN=64", *keys, config="LLaMA7B", name=name, env={
                "BASE_TFDS_DATA_DIR": str(self.dir / "boolq"), "BASE_VOCAB_PATH": str(self.dir / "tokenizer.model"),
                "BASE_CHECKPOINT_RESTORE_PATH": str(self.dir / "logs"), "LOG_DIR_LOCAL": f"{name}_log_dir", "OUTPUT_DIR": name, "EVAL_ONLY": "0",
                "USE_LORA": "0", "ENABLE_TE": "1", **variables})

        def accuracy(name, steps):
            result = json.loads((self.dir / f"{name}_log_dir/evaluations/results-{steps}.json").read_text())["results"]["boolq"]
            self.assertEqual(result["samples"], 12)
            return result["acc"]

        tuned = self.assert_trained(boolq("tuned"), 6, "tuned")
        self.assertRegex(tuned, r"the data set in \S+/tuned_log_dir/boolq/tokens: 12 samples in 12 sequences")
        # Each of the two ranks has one sample, whose answer has a few tokens of some 30.
        weights = [int(found) for found in re.findall(r"^completed step: .* total_weights: (\d+),", tuned, re.M)]
        self.assertEqual(len(weights), 6)
        self.assertTrue(all(4 <= weight <= 8 for weight in weights), weights)
        self.assertRegex(tuned, r"(?m)^eval tasks after step: 5, boolq/acc=0\.\d+")
        adapted = self.assert_trained(boolq("adapted", USE_LORA="1", LORA_RANK="2", LORA_TARGET_LAYERS="attention"), 6, "adapted")
        self.assertIn("trained: adapters of ", adapted)
        self.assertRegex(adapted, r"(?m)^eval tasks after step: 5, boolq/acc=0\.\d+")
        evaluated = boolq("evaluated", EVAL_ONLY="1", BASE_CHECKPOINT_RESTORE_PATH=str(self.dir / "tuned_log_dir"))
        self.assert_ends(evaluated, "COMPLETED", 0)
        self.assertEqual(accuracy("evaluated", 6), accuracy("tuned", 6))
        refused = boolq("refused", BASE_TFDS_DATA_DIR=str(self.dir))
        self.assert_ends(refused, "FAILED", 2)
        self.assertIn(f"BoolQ: there is no file {self.dir}/bool_q/train.jsonl; scripts/download_boolq.py fetches it", self.output(refused, "refused"))

    def test_the_llama_recipe(self):
        stage = self.dir / "the stage"
        self.assert_ends(self.cluster.sbatch("-N1", WRAPPERS / "setup.sh", cwd=self.dir, env={"STAGE_PATH": str(stage)}), "COMPLETED", 0)
        # The command of the recipe's page, without the optional profiler.
        job = self.cluster.sbatch("-N2", "--ntasks-per-node=1", stage / "launch.sh", *self.tiny("per_device_batch_size=1"), cwd=self.dir, env={"DTYPE": "bf16"})
        self.assert_ends(job, "COMPLETED", 0)
        self.assertIn("completed step: 49, seconds: ", (stage / f"results/25.02/bf16/70b/2/log-maxtext-2_70b_{job}.out").read_text())
        env = {"STAGE_PATH": str(stage), "GSW_VERSION": "25.02", "GPUS_PER_NODE": "1"}
        # A stand-in for Nsight Systems that only writes a file.
        nsys = self.dir / "bin" / "nsys"
        nsys.parent.mkdir()
        nsys.write_text('#!/bin/bash\nout=$3\ncase $out in *-prof) eval "${PROFILER_DOES:-}" ;; esac\nshift; while [ "${1#--}" != "$1" ]; do shift 2; done\n"$@" & trap : TERM\n'
                        'while kill -0 $! 2> /dev/null; do wait $!; done\necho profile > "$out.nsys-rep"\n')
        nsys.chmod(0o755)
        env["PATH"] = f"{nsys.parent}:{self.env['PATH']}"
        job = self.cluster.sbatch("-N2", stage / "launch.sh", *self.tiny("per_device_batch_size=1"), cwd=self.dir, env={**env, "DTYPE": "bf16"})
        self.assert_ends(job, "COMPLETED", 0)
        results = stage / "results/25.02/bf16/70b/2"
        last = subprocess.run(f"grep 'completed step:' {results}/log-maxtext-2_70b_{job}.out | tail -1".replace("the stage", "'the stage'"),
                              shell=True, capture_output=True, text=True).stdout
        self.assertTrue(last.startswith("completed step: 49, seconds: "), last)
        self.assertEqual(sorted(path.name.split(f"_{job}")[1] for path in (results / "nsys").iterdir()), ["-perf.nsys-rep", "-prof.nsys-rep"])
        self.assert_ends(self.cluster.sbatch("-N1", stage / "launch.sh", cwd=self.dir, env={**env, "DTYPE": "fp4"}), "FAILED", 2)
        recipe = lambda does: self.cluster.sbatch("-N1", stage / "launch.sh", *self.tiny("per_device_batch_size=1", "enable_checkpointing=false"), cwd=self.dir,  # noqa: E731
                                                  env={**env, "DTYPE": "bf16", "PROFILER_DOES": does})
        job = recipe("exit 9")
        log = stage / f"results/25.02/bf16/70b/1/log-maxtext-1_70b_{job}.out"
        self.assertEqual(self.cluster.wait_for_end(job), ("COMPLETED", 0), log.read_text() if log.exists() else self.cluster.job_output(job))
        self.assertRegex(log.read_text(), "the profile failed with exit code .*; the benchmark continues without it")
        self.assertIn("completed step: 49", log.read_text())
        job = recipe(f"while [ ! -e {self.dir}/go ]; do sleep 0.2; done; exit 1")
        profile = stage / f"results/25.02/bf16/70b/1/maxtext-1_70b_{job}-prof.out"
        wait_until(lambda: profile.exists() and "inspect it with" in profile.read_text(), 30, "the profile's first line")
        self.cluster.must("scancel", "--batch", "--signal=USR1", job)
        wait_until(lambda: "leaves its allocation: SIGUSR1" in profile.read_text(), 30, "the signal in the profile")
        (self.dir / "go").touch()
        self.assert_ends(job, "FAILED", 75)

    def test_image_is_imported_from_its_registry(self):
        enroot = self.dir / "bin" / "enroot"
        enroot.parent.mkdir()
        enroot.write_text('#!/bin/bash\necho "$4" >> "$IMAGES"\necho "image of $4" > "$3"\n! [[ $4 = *missing* ]]\n')
        enroot.chmod(0o755)
        stage, requested = self.dir / "the stage", self.dir / "asked"
        env = {"STAGE_PATH": str(stage), "IMAGES": str(requested), "PATH": f"{enroot.parent}:{self.env['PATH']}"}
        images = {"ghcr.io/nvidia/jax:maxtext-2024-12-09": "ghcr.io#nvidia/jax:maxtext-2024-12-09", "nvidia/cuda:12.2.0": "nvidia/cuda:12.2.0",
                  "ubuntu:22.04": "ubuntu:22.04", "docker://localhost:5000/a/b": "localhost:5000#a/b", "me@nvcr.io#nvidia/jax": "me@nvcr.io#nvidia/jax"}
        for image in images:
            self.assert_ends(self.cluster.sbatch("-N1", WRAPPERS / "setup.sh", cwd=self.dir, env={**env, "CONTAINER": image}), "COMPLETED", 0)
        self.assertEqual(requested.read_text().split(), [f"docker://{uri}" for uri in images.values()])
        before = (stage / "muster.sqsh").read_text()
        job = self.cluster.sbatch("-N1", WRAPPERS / "setup.sh", cwd=self.dir, env={**env, "CONTAINER": "missing"})
        self.assert_ends(job, "FAILED", 1)
        self.assertEqual((stage / "muster.sqsh").read_text(), before, "the image that was there stays")
        self.assertEqual([path.name for path in stage.glob("muster.sqsh*")], ["muster.sqsh"])

    def test_every_array_task_finds_the_shared_scripts(self):
        def train(tasks):
            return self.cluster.sbatch("-N", 1, f"--array={tasks}", "-J", "an:array", "-o", "%a.out", WRAPPERS / "example_slurm.sub",
                                       *self.tiny("steps=8", "log_period=1"), cwd=self.dir,
                                       env={"GPUS_PER_NODE": "1", "BASE_WORKSPACE_DIR": str(self.dir)})
        # Otherwise the tasks would train one run at the same time.
        array = train("1-2")
        self.cluster.wait_for_state(f"{array}_1", "FAILED")
        self.cluster.wait_for_state(f"{array}_2", "FAILED", "CANCELLED")
        output = (self.dir / f"outputs/an-array-{array}/output-{array + 1}-0-0.txt").read_text()
        self.assertIn(f"the tasks of {array} continue one run but may run at the same time: use sbatch --array=1-2%1", output)
        # The first completed task ends the array.
        array = train("1-2%1")
        self.cluster.wait_for_state(f"{array}_1", "COMPLETED")
        self.cluster.wait_for_state(f"{array}_2", "CANCELLED")
        run = f"an-array-{array}"
        self.assertTrue((self.dir / "local_train" / run / "checkpoints/8").is_dir())
        # A single task, which has the array's own number.
        array = self.cluster.sbatch("-N", 1, "--array=1-3", "-o", "%a.out", WRAPPERS / "launch_base_script.sub", cwd=self.dir)
        for task in (1, 2, 3):
            self.cluster.wait_for_state(f"{array}_{task}", "FAILED")
            self.assertIn("CONFIG is not set", (self.dir / f"{task}.out").read_text())
        lost = self.dir / "lost"
        lost.mkdir()
        shutil.copy(WRAPPERS / "fleet.sub", lost)
        job = self.cluster.sbatch("-N1", lost / "fleet.sub", cwd=self.dir)
        self.assert_ends(job, "FAILED", 2)
        self.assertIn("wrapper.sh is not beside the script", self.cluster.job_output(job))


class SlurmPlaces(SlurmTest):
    TOPOLOGY = "SwitchName=leaf1 Nodes=node[1,4]\nSwitchName=leaf2 Nodes=node[2-3]\nSwitchName=top Switches=leaf[1-2]\n"
    GPUS = 2

    def test_ranks_are_ordered_by_switches_and_programs_find_their_gpus(self):
        job = self.cluster.sbatch("-N4", "--gpus-per-node=2", "--wrap", f"exec {BIN}/muster slurm run -- sh -c "
                                  "'echo rank $RANK of $WORLD_SIZE $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'", cwd=self.dir)
        self.assert_ends(job, "COMPLETED", 0)
        printed = self.cluster.job_output(job)
        for rank, node in enumerate(("node1", "node1", "node4", "node4", "node2", "node2", "node3", "node3")):
            self.assertIn(f"rank {rank} of 8 {node} 0,1", printed)


    def test_submitted_line_requests_all_gpus_of_the_partitions_nodes(self):
        def script(*words):
            made = self.muster("slurm", "submit", "--insecure", "--dry-run", "-N", 2, *words, self.base_yml(), "model_name=llama2-7b", "run_name=a",
                               f"base_output_directory={self.dir}", "dataset_type=synthetic", "hardware=gpu", check=0)
            return made.stdout, made.stderr
        text, printed = script()
        self.assertIn("muster: 2 ranks per node: the nodes of Slurm's default partition report 2 GPUs per node; --ranks-per-node N sets another number", printed)
        self.assertIn("#SBATCH --gpus-per-node=2\n", text)
        self.assertIn("--ranks-per-node 2", text)
        text, printed = script("--ranks-per-node", 1)
        self.assertNotIn("--gpus-per-node", text)
        self.assertNotIn("GPUs per node", printed)
        self.assertIn("the nodes of Slurm's partition nowhere report no GPUs", script("-p", "nowhere")[1])


class SlurmDefaults(SlurmTest):
    def test_srun_defaults_of_a_site_do_not_reach_the_workers(self):
        job = self.cluster.sbatch("-N2", "--export=NONE", "--wrap", "export FROM_SCRIPT=seen SLURM_MPI_TYPE=nonsense; "
                                  f"exec {BIN}/muster slurm run -- sh -c 'echo $SLURMD_NODENAME has $FROM_SCRIPT'", cwd=self.dir)
        self.assert_ends(job, "COMPLETED", 0)
        for node in ("node1", "node2"):
            self.assertIn(f"{node} has seen", self.cluster.job_output(job))

    def test_ranks_ignore_no_signal_and_workers_none_of_slurms(self):
        # The script itself may start with ignored signals.
        job = self.cluster.sbatch("-N1", "--wrap", f"trap '' TERM USR1; exec {BIN}/muster slurm run -- sh -c "
                                  "'for of in self $PPID; do echo $of $(grep -E \"^Sig(Blk|Ign)\" /proc/$of/status); done'", cwd=self.dir)
        self.assert_ends(job, "COMPLETED", 0)
        printed = self.cluster.job_output(job)
        self.assertIn(f"self SigBlk: {0:016x} SigIgn: {0:016x}", printed)
        ignored = int(re.search(r"^\d+ SigBlk: 0+ SigIgn: ([0-9a-f]+)", printed, re.M)[1], 16)
        for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"):
            self.assertFalse(ignored >> (signal.Signals[name] - 1) & 1, f"{name} in {printed}")


class SlurmContainer(SlurmTest):
    def setUp(self):
        folder = tempfile.mkdtemp(prefix="muster-p-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.PLUGIN = f"{folder}/pyxis_stand_in.so"
        built = subprocess.run(["cc", "-shared", "-fPIC", "-o", self.PLUGIN, SOURCE / "tests/e2e/pyxis_stand_in.c"], capture_output=True, text=True)
        if built.returncode != 0:
            self.skipTest(f"no plugin for Slurm can be built (libslurm-dev): {built.stderr[-200:]}")
        super().setUp()

    def test_image_applies_to_workers_and_ranks(self):
        space = self.dir / "a space"
        job = self.cluster.sbatch("-N2", WRAPPERS / "example_slurm.sub", *self.tiny("steps=3"), cwd=self.dir, env={
            "GPUS_PER_NODE": "1", "BASE_WORKSPACE_DIR": str(space), "RUN_NAME": "boxed", "CONTAINER": "image.sqsh"})
        self.assert_ends(job, "COMPLETED", 0)
        self.assertNotIn("has no effect: this Slurm", (space / f"outputs/boxed/output-{job}-0-0.txt").read_text())
        # The initial parameters are mounted, too, at a path that is valid in the container.
        shows = self.dir / "shows"
        shows.mkdir()
        (shows / "muster").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        (shows / "muster").chmod(0o755)
        for name, variable in (("again", "BASE_CHECKPOINT_RESTORE_PATH"), ("other", "BASE_CHECKPOINT_DIR")):
            job = self.cluster.sbatch("-N1", "-o", f"{name}.out", WRAPPERS / "example_slurm.sub", cwd=self.dir, env={
                "GPUS_PER_NODE": "1", "BASE_WORKSPACE_DIR": str(space), "RUN_NAME": name, "CONTAINER": "image.sqsh", variable: "pretrained",
                "MUSTER_BIN_DIR": str(shows)})
            self.assert_ends(job, "COMPLETED", 0)
            words = (space / f"outputs/{name}/output-{job}-0-0.txt").read_text().splitlines()
            path = f"{self.dir}/pretrained"
            self.assertIn(f"load_parameters_path={path}", words)
            self.assertEqual(words[words.index(f"{path}:{path}") - 1], "--container-mounts")
        # The folder of a fleet has an absolute path.
        fleet = self.cluster.sbatch("-N1", WRAPPERS / "fleet.sub", cwd=self.dir, env={
            "GPUS_PER_NODE": "1", "MUSTER_COORDINATOR": "127.0.0.1:1", "CONTAINER": "image.sqsh"})
        worker = wait_until(lambda: [pid for pid in self.cluster.processes_on("node1") if "/muster-worker --coordinator" in command_line(pid)], 30,
                            "a worker")[0]
        mounts = re.search(rb"STAND_IN_MOUNTS=([^\0]*)", pathlib.Path(f"/proc/{worker}/environ").read_bytes())[1].decode()
        self.assertIn(f"{self.dir}/muster-fleet:{self.dir}/muster-fleet", mounts.split(","))
        self.cancel(fleet)
        self.cluster.wait_for_idle()
        job = self.cluster.sbatch("-N2", "--wrap", f"exec {BIN}/muster slurm run --container image.sqsh --container-mounts /data:/data -- sh -c "
                                  "'echo $SLURMD_NODENAME in $STAND_IN_IMAGE at $STAND_IN_WORKDIR sees $STAND_IN_MOUNTS'", cwd=self.dir)
        self.assert_ends(job, "COMPLETED", 0)
        for node in ("node1", "node2"):
            self.assertRegex(self.cluster.job_output(job), f"{node} in image.sqsh at {self.dir} sees {BIN}:{BIN},.*,/data:/data")


class SlurmSubmit(SlurmTest):
    def submit(self, *arguments, check=0, insecure=True, env=None):
        return self.muster("slurm", "submit", *(["--insecure"] if insecure else []), *arguments, check=check, env=env)

    def test_impossible_jobs_are_refused_before_they_wait(self):
        program = ["--output", self.dir / "out", "--", "true"]
        for more in ([], ["--dry-run"], ["--address", "192.0.2.1"]):
            refused = self.submit("-N", 2, *more, *program, check=2, insecure=False).stderr
            self.assertIn("everybody who can reach it could run jobs as you; give --insecure to allow that", refused)
        self.assertFalse((self.dir / "out").exists())
        self.assertIn("give --insecure to allow that", self.submit("--metrics-port", 0, *program, check=2, insecure=False).stderr)
        self.submit("-N", 2, "--address", "127.0.0.1", "--dry-run", *program, insecure=False)
        self.submit("--dry-run", *program, insecure=False)

    def test_a_saved_plan_determines_the_nodes(self):
        """The plan of two nodes of one rank: the command gives neither."""
        words = [base_yml_of_lab(self, devices_per_node=1), *self.tiny("steps=4", "threads_per_rank=1", "enable_checkpointing=false", "run_name=planned"),
                 f"base_output_directory={self.dir}/runs", f"compiled_trainstep_file={self.dir}/two.plan"]
        self.muster("plan", *words, "compile_topology=lab-2", check=0)
        self.assertIn("the plan is for 2 nodes of 1 rank, and the job has 1 node of 1 rank", self.submit("-N", 1, *words, check=2).stderr)
        self.assertFalse((self.dir / "runs").exists())
        job = int(json.loads(self.submit("--json", *words).stdout)["slurm_job"])
        self.assertEqual(self.cluster.job(job)["NumNodes"], "2")
        self.assert_ends(job, "COMPLETED", 0)
        output = (self.dir / f"runs/planned/slurm-{job}.out").read_text()
        self.assertIn("2 of 2 nodes (node[1-2]) with 1 ranks each", output)
        self.assertRegex(output, r"summary: planned step [\d.e-]+ s, measured")

    def test_the_step_is_predicted_in_the_allocation(self):
        words = [base_yml_of_lab(self, devices_per_node=1), *self.tiny("steps=4", "enable_checkpointing=false"), f"base_output_directory={self.dir}/runs",
                 "compile_topology=lab-2"]
        for more, is_planned in (([], True), (["--no-plan"], False)):
            job = int(json.loads(self.submit("--json", "-N", 2, "--ranks-per-node", 1, *more, *words, f"run_name=named{len(more)}").stdout)["slurm_job"])
            self.assert_ends(job, "COMPLETED", 0)
            output = (self.dir / f"runs/named{len(more)}/slurm-{job}.out").read_text()
            self.assertEqual("summary: planned step" in output, is_planned, output)
            self.assertNotIn("compile_topology", output)

    def test_options_override_sbatchs_variables(self):
        env = {**self.env, "SBATCH_PARTITION": "nowhere", "SBATCH_TIMELIMIT": "1", "SBATCH_JOB_NAME": "other"}
        answer = json.loads(self.submit("-p", "main", "-t", "20", "-J", "mine", "--output", self.dir / "out", "--json", "--", "true", env=env).stdout)
        job = self.cluster.job(answer["slurm_job"])
        self.assertEqual((job["Partition"], job["TimeLimit"], job["JobName"]), ("main", "00:20:00", "mine"))
        self.assert_ends(int(answer["slurm_job"]), "COMPLETED", 0)
        # Options of sbatch override that.
        answer = json.loads(self.submit("-p", "urgent", "-t", "20", "-J", "mine", "--sbatch=--partition=main", "--sbatch", "-t 30 --comment='a b'",
                                        "--output", self.dir / "out", "--json", "--", "true", env=env).stdout)
        job = self.cluster.job(answer["slurm_job"])
        self.assertEqual((job["Partition"], job["TimeLimit"], job["JobName"]), ("main", "00:30:00", "mine"))
        self.assertIn("Comment=a b", self.cluster.query("scontrol", "show", "job", answer["slurm_job"]))
        self.assert_ends(int(answer["slurm_job"]), "COMPLETED", 0)
        self.assertIn("unclosed quote", self.submit("--sbatch=--comment='a", "--dry-run", "--output", self.dir / "out", "--", "true", check=2).stderr)
        self.assertIn("#SBATCH --signal=B:USR1@75\n", self.submit("-t", "5", "--output", self.dir / "out", "--dry-run", "--", "true").stdout)

    def test_ranks_that_share_a_node_get_a_processor_each(self):
        answer = json.loads(self.submit("--share-nodes", "--ranks-per-node", 3, "--output", self.dir / "out", "--json", "--", "sh", "-c",
                                        "echo the number $RANK").stdout)
        self.assert_ends(int(answer["slurm_job"]), "COMPLETED", 0)
        self.assertEqual(self.cluster.job(answer["slurm_job"])["NumCPUs"], "3")
        self.assertEqual(len(re.findall(r"the number \d", self.cluster.job_output(answer["slurm_job"]))), 3)

    def test_job_with_every_option_and_one_that_slurm_refuses(self):
        folder = self.dir / "it's \"here\" 100%"
        config = [self.base_yml(), *self.tiny("steps=4", "log_period=1"), "run_name=first", f"base_output_directory={folder}"]
        options = ["-N", 2, "-p", "main", "-J", "the \"first\" one's", "-t", "10", "--ranks-per-node", 2, "--spares", 1]
        script = self.submit(*options, "--dry-run", *config).stdout
        self.assertIn("#SBATCH --nodes=3\n", script)
        self.assertIn("#SBATCH --no-kill\n", script)
        self.assertFalse(folder.exists())
        answer = json.loads(self.submit(*options, "--json", *config).stdout)
        job = int(answer["slurm_job"])
        self.assertEqual(pathlib.Path(answer["script"]).read_text(), script)
        self.assert_ends(job, "COMPLETED", 0)
        output = (folder / f"first/slurm-{job}.out").read_text()
        self.assertEqual([step for step, _ in step_lines(output)], [0, 1, 2, 3], output)
        self.assertIn("2 of 3 nodes", output)
        refused = self.submit("-N", 9, "--ranks-per-node", 1, *config, check=2).stderr
        self.assertIn("the job needs 9 nodes, but partition main has 4: a smaller -N or another -p is needed", refused)
        refused = self.submit("-N", 2, "-p", "nowhere", "--ranks-per-node", 1, *config, check=2).stderr
        self.assertRegex(refused, "sbatch rejects the job: .*artition")
        wrong = self.submit("-N", 2, "--ranks-per-node", 1, *config, "stpes=3", check=2).stderr
        self.assertIn("steps", wrong)
        too_few = self.cluster.sbatch("-N1", "--wrap", f"exec {BIN}/muster slurm run --spares 1 -- true", cwd=self.dir)
        self.assert_ends(too_few, "FAILED", 2)
        self.assertIn("request -N 2", self.cluster.job_output(too_few))

    def test_submit_reports_why_a_job_waits(self):
        self.cluster.must("scontrol", "update", "partitionname=urgent", "MaxNodes=1")
        printed = self.submit("-N", 2, "-p", "urgent", "--output", self.dir / "out", "--", "true").stdout
        self.assertRegex(printed, r"cannot start until something is changed \(Partition\w+: more .*than the partition lets one job have")
        later = json.loads(self.submit("--output", self.dir / "two", "--json", "--sbatch=--begin=now+600", "--", "true").stdout)
        self.assertEqual(later["waits"], "it waits (BeginTime)")
        self.cluster.must("scancel", later["slurm_job"], re.search(r"Slurm job (\d+)", printed)[1])

    def test_program_in_a_chain_of_jobs_and_its_exit_code(self):
        lines = self.dir / "lines"
        answer = json.loads(self.submit("--chain", 3, "--restarts", 0, "--output", self.dir / "out", "--json", "--", "bash", "-c",
                                        f"echo \"$0\" >> {lines}; [ $(wc -l < {lines}) = 2 ]", "it's \"one\" line").stdout)
        # After a failed job the next one continues; a completed job ends the chain.
        for task, state in ((1, "FAILED"), (2, "COMPLETED"), (3, "CANCELLED")):
            self.cluster.wait_for_state(f"{answer['slurm_job']}_{task}", state)
        self.assertEqual(lines.read_text(), "it's \"one\" line\n" * 2)
        job = int(json.loads(self.submit("--restarts", 0, "--output", self.dir / "two", "--json", "--", "bash", "-c", "exit 7").stdout)["slurm_job"])
        self.assert_ends(job, "FAILED", 7)


class SlurmPages(SlurmTest):
    def submit(self, name, *options):
        """Submits a job on two nodes that serves its pages."""
        return json.loads(self.muster("slurm", "submit", "--insecure", "-N", 2, "--ranks-per-node", 1, "--metrics-port", 0, *options, "--json",
                                      self.base_yml(), *self.tiny(*ENDLESS), f"run_name={name}", f"base_output_directory={self.dir}/runs",
                                      f"metrics_file={self.dir}/{name}.jsonl", check=0).stdout)["slurm_job"]

    def test_target_files_exist_while_the_job_runs(self):
        job = self.submit("seen")
        self.wait_for_steps("seen", job, 5)
        files = lambda: sorted((self.dir / "runs/seen/prometheus").glob("*.json"))  # noqa: E731
        wait_until(lambda: len(files()) == 3, 20, "three addresses")
        self.assertEqual([path.name for path in files()], [f"test-{job}-{who}.json" for who in ("coordinator", "worker-node1", "worker-node2")])
        for path, what in zip(files(), ("coordinator", "worker", "worker")):
            self.assertEqual(path.stat().st_mode & 0o777, 0o644)
            [entry] = json.loads(path.read_text())
            self.assertEqual((entry["labels"]["job"], entry["labels"]["cluster"]), (f"muster-{what}", f"test-{job}"))
            with urllib.request.urlopen(f"http://{entry['targets'][0]}/metrics", timeout=10) as page:
                self.assertIn(f"muster_{'job' if what == 'coordinator' else 'worker'}_", page.read().decode())
        self.cancel(job)
        wait_until(lambda: not files(), 30, "the end of the addresses")

    def test_next_job_removes_target_files_of_killed_jobs(self):
        folder = self.dir / "prometheus"

        def wait_for(*jobs):
            """Waits until the folder has the target files of exactly these jobs: a coordinator and
            two workers each.
            """
            def condition():
                return sorted(re.match(r"test-(\d+)-(coordinator|worker-node\d).json", path.name)[1] for path in folder.glob("test-*"))
            wait_until(lambda: condition() == sorted(3 * [str(job) for job in jobs]), 60, f"addresses of {jobs} alone")
        killed = self.submit("killed", "--metrics-folder", folder)
        wait_for(killed)
        (folder / "notes.json").touch()
        # All at once: a process that observes another one's end would remove its own target file.
        pids = [pid for node in self.cluster.nodes for pid in self.cluster.processes_on(node) if str(BIN) in command_line(pid)]
        for signo in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):  # some die with their parents
                    os.kill(pid, signo)
        self.cluster.wait_for_end(killed)
        wait_for(killed)
        after = self.submit("after", "--metrics-folder", folder)
        wait_for(after)
        self.assertRegex((self.dir / f"runs/after/slurm-{after}.out").read_text(), f"3 addresses in {folder} of killed jobs or .* removed")
        # Files of running jobs and other files stay.
        other = self.submit("other", "--metrics-folder", folder)
        wait_for(after, other)
        self.assertTrue((folder / "notes.json").exists())
        for job in (after, other):
            self.cancel(job)

    @unittest.skipIf(TOOLS_MISSING, f"{TOOLS_MISSING} is not installed: {monitoring.PACKAGES}")
    def test_prometheus_discovers_new_jobs_and_drops_ended_ones(self):
        folder = self.dir / "prometheus/slurm"
        prometheus = monitoring.start_prometheus(self)
        jobs = [self.submit(name, "--metrics-folder", folder) for name in ("one", "two")]

        def values(expr):
            return {(one["metric"].get("cluster"), one["metric"].get("job"), one["metric"].get("node")): float(one["value"][1])
                    for one in monitoring.get_json(f"{prometheus}/api/v1/query", query=expr)["data"]["result"]}

        def ups(job):
            return [where for where, value in values(f'up{{cluster="test-{job}"}}').items() if value == 1]
        for job in jobs:
            found = wait_until(lambda: ups(job) if len(ups(job)) == 3 else None, 60, f"three targets of job {job}")  # noqa: B023
            self.assertEqual(sorted(who for _, who, _ in found), ["muster-coordinator", "muster-worker", "muster-worker"])
            self.assertEqual(len({node for _, who, node in found if who == "muster-worker"}), 2)
        # Both coordinators have a job 1, and their series stay separate: each has two ranks,
        # trains, and has a leader.
        for expr, expected in (("sum by (cluster) (muster_worker_ranks_running)", 2), ("sum by (cluster) (muster_workers)", 2),
                               ("sum by (cluster) (muster_coordinator_leader)", 1), ('sum by (cluster) (job_id:muster_running:max{job_id="1"})', 1)):
            def each(expr=expr, expected=expected):
                return {cluster: value for (cluster, _, _), value in values(expr).items() if cluster} == {f"test-{job}": expected for job in jobs}
            wait_until(each, 30, f"{expr} of each: {values(expr)}")
        wait_until(lambda: len(values('muster_job_step{job_id="1"} > 20')) == 2, 60, "steps of both")
        self.cancel(jobs[0])
        wait_until(lambda: not values(f'up{{cluster="test-{jobs[0]}"}}'), 30, "the end of the first one's series")
        self.assertEqual(len(ups(jobs[1])), 3)
        self.cancel(jobs[1])


class SlurmChain(SlurmTest):
    def test_next_task_resumes_at_the_step_of_the_last_one(self):
        config = [self.base_yml(), *self.tiny(*ENDLESS), "run_name=long", f"base_output_directory={self.dir}/runs",
                  f"metrics_file={self.dir}/long.jsonl"]
        array = json.loads(self.muster("slurm", "submit", "--insecure", "--chain", 3, "-N", 2, "--ranks-per-node", 1, "--json", *config,
                                       check=0).stdout)["slurm_job"]
        self.wait_for_steps("long", f"{array}_1", 30)
        # As with --signal=B:. This version's scancel does not signal the batch script of an array
        # whose other tasks wait.
        script = [pid for pid in self.cluster.processes_on("node1") if "muster slurm run" in command_line(pid)]
        os.kill(script[0], signal.SIGUSR1)
        self.cluster.wait_for_state(f"{array}_1", "FAILED")
        # The next task may have started already. No step is missing, and none was repeated.
        wait_until(lambda: (self.dir / f"runs/long/slurm-{array}_2.out").exists(), 60, "the second task")
        restored = wait_until(lambda: re.search(r"restored checkpoint \S+: (\d+) step", (
            self.dir / f"runs/long/slurm-{array}_2.out").read_text() + self.logs("long")), 60, "a restored checkpoint")
        self.wait_for_steps("long", f"{array}_2", int(restored[1]) + 10)
        self.cluster.must("scancel", array)
        self.cluster.wait_for_state(f"{array}_2", "CANCELLED")
        path = self.dir / "long.jsonl"
        steps = sorted(metrics(path))
        self.assertEqual(steps, list(range(len(steps))), "a step is missing")
        self.assertEqual(path.read_text().count("\n"), len(steps), "a step was made again")

    def test_singleton_jobs_train_one_run(self):
        keys = ["learning_rate_schedule_steps=600", "log_period=50", "checkpoint_period=50"]
        # the wrapper sets --dependency=singleton
        jobs = [self.train("long", f"steps={steps}", *keys) for steps in (200, 400)]
        third = json.loads(self.muster("slurm", "submit", "--insecure", "-d", f"afterany:{jobs[1]}", "-N", 2, "--ranks-per-node", 1, "--json", self.base_yml(),
                                       *self.tiny("steps=600", *keys), "run_name=long", f"base_output_directory={self.dir}/runs",
                                       f"metrics_file={self.dir}/long.jsonl", check=0).stdout)
        self.assertEqual(self.cluster.job(jobs[1])["Reason"], "Dependency")
        self.assertEqual(third["waits"], "it waits (Dependency)")
        for job in (*jobs, third["slurm_job"]):
            self.assert_ends(job, "COMPLETED", 0, "long")
        path = self.dir / "long.jsonl"
        self.assertEqual(sorted(metrics(path)), list(range(600)))
        self.assertEqual(path.read_text().count("\n"), 600, "a step was made again")

    def test_chain_ends_after_allocations_without_progress_or_too_many(self):
        def submit(name, *options):
            return json.loads(self.muster("slurm", "submit", "--chain", 9, "--restarts", 0, *options, "--output", self.dir / name, "--json", "--",
                                          "false", check=0).stdout)["slurm_job"]
        for array, allocations, why in ((submit("few", "--max-turns", 2), 2, "it has had 2 allocations, the limit of --max-turns 2"),
                                  (submit("many"), 5, "5 allocations in a row made no progress beyond the beginning")):
            for task in range(1, allocations + 1):
                self.cluster.wait_for_state(f"{array}_{task}", "FAILED")
            wait_until(lambda: not self.cluster.must("squeue", "-h", "-j", array), 30, "the end of the array")  # noqa: B023
            self.assertFalse(list(self.dir.glob(f"*/slurm-{array}_{allocations + 1}.out")))
            printed = next(self.dir.glob(f"*/slurm-{array}_{allocations}.out")).read_text()
            self.assertIn(f"is not queued again: {why}", printed)
            self.assertIn("the chain has ended", printed)
            self.assertIn("the next task of its chain continues", next(self.dir.glob(f"*/slurm-{array}_1.out")).read_text())

    def test_job_without_progress_ends_the_chain(self):
        array = json.loads(self.muster("slurm", "submit", "--chain", 3, "--restarts", 1, "--output", self.dir / "futile", "--json", "--",
                                       "false", check=0).stdout)["slurm_job"]
        self.assert_ends(f"{array}_1", "FAILED", 6)
        wait_until(lambda: not self.cluster.must("squeue", "-h", "-j", array), 30, "the end of the array")
        printed = next(self.dir.glob(f"*/slurm-{array}_1.out")).read_text()
        self.assertIn("the one restart is used up and made no progress", printed)
        self.assertIn("the chain has ended", printed)
        self.assertFalse(list(self.dir.glob(f"*/slurm-{array}_2.out")), "another allocation was used")

    def test_bad_input_ends_the_chain(self):
        array = self.cluster.sbatch("-N1", "--array=1-2%1", "-o", "%a.out", "--wrap", f"exec {BIN}/muster slurm run --chain {self.base_yml()} stpes=3",
                                    cwd=self.dir)
        self.cluster.wait_for_state(f"{array}_1", "FAILED")
        self.cluster.wait_for_state(f"{array}_2", "CANCELLED")
        self.assertIn("the chain has ended", (self.dir / "1.out").read_text())


if __name__ == "__main__":
    unittest.main()
