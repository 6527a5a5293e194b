"""Command blocks of the documents that users come with.

The documents are those of MaxText, JAX-Toolbox's MaxText, Pax and AXLearn, and the Slurm recipe for
Llama 2. Each block is a case: what it resolves to (mesh, batch, precision, steps, paths), a real
run scaled to a tiny model, or, in NOT_BUILT, the error with which this version refuses it. Blocks
that install, download or start containers (docker, wget, pip, cd, FILE=…) are not Muster's.
"""
import json
import os
import re
import subprocess
import unittest

from harness import BIN, SOURCE, TINY, MusterTest, step_lines

WRAPPERS = SOURCE / "slurm"
EIGHT_GPUS = [f"gpu bus={16 * index} temperature=60" for index in range(1, 9)]
SCRIPTS = "paxml/contrib/gpu/scripts_gpu"
MAXTEXT = ["python3", "MaxText/train.py", "MaxText/configs/base.yml"]
LLAMA2_7B = [*MAXTEXT, "model_name=llama2-7b", "per_device_batch_size=2", "max_target_length=4096", "scan_layers=true", "steps=15", "remat_policy=minimal",
             "use_iota_embed=true", "logits_dot_in_fp32=false", "enable_checkpointing=false", "base_output_directory=local_train", "dataset_path=local",
             "dataset_type=synthetic", "attention=dot_product", "hardware=gpu", "run_name=job"]
FUJI = ["python3", "-m", "axlearn.common.launch_trainer_main", "--module=text.gpt.c4_trainer", "--config=fuji-3B-v3-flash-single-host",
        "--trainer_dir=trainer", "--jax_backend=gpu"]
XLA_FLAGS = "--xla_gpu_enable_latency_hiding_scheduler=true --xla_gpu_simplify_all_fp_conversions --xla_disable_hlo_passes=rematerialization"
# The variables of the documents' sbatch lines, with values for <…>.
PILE = {"BASE_WORKSPACE_DIR": "{dir}", "BASE_TFDS_DATA_DIR": "/pile", "BASE_VOCAB_PATH": "/vocab", "LOG_DIR_LOCAL": "logs", "OUTPUT_DIR": "out",
        "PREC": "bfloat16", "GPUS_PER_NODE": "8", "PERCORE_BATCH_SIZE": "4", "ENABLE_FP8": "1"}
SYNTHETIC = {"BASE_WORKSPACE_DIR": "{dir}", "CONFIG": "Synthetic5B", "OUTPUT_DIR": "output_synthetic_5b", "PREC": "bfloat16", "ENABLE_TE": "1", "ENABLE_FP8": "0",
             "LOG_DIR_LOCAL": "log_dir_synthetic_5b"}
# Blocks that this version refuses: (command, the item that builds it, part of the error).
NOT_BUILT = [
    (["python3", "MaxText/train_compile.py", "MaxText/configs/base.yml", "compile_topology=v5e-256", "compile_topology_num_slices=2",
      "global_parameter_scale=16", "per_device_batch_size=4"], "9", "nothing is compiled here"),
    (["ENABLE_FP8=1", "bash", f"{SCRIPTS}/run_pile_singlenode.sh", "/opt/paxml/datasets", "/opt/paxml/vocab", "bfloat16", "8", "4", "log_dir"], "10",
     "this is a shell, a script or a launcher"),
    (["bash", f"{SCRIPTS}/run_lambada_singlenode.sh", "/data", "/vocab", "bfloat16", "8", "4", "log_dir"], "10", "this is a shell, a script or a launcher"),
    (["python3", f"{SCRIPTS}/download_the_pile.py"], "10", "only command lines of MaxText/train.py"),
    (["BASE_XLA_FLAGS=--xla_x", "bash", "run_pile_multinode.sh"], "10", "this is a shell, a script or a launcher"),
    ([*MAXTEXT, "run_name=example_load_compile", "compiled_trainstep_file=my_compiled_train.pickle", "global_parameter_scale=16", "per_device_batch_size=4",
      "steps=10000", "learning_rate=1e-3", "base_output_directory=gs://my-output-bucket", "dataset_path=gs://my-dataset-bucket"], "15",
     "set dataset_type=shards"),
]


class Seeds(MusterTest):
    def setUp(self):
        super().setUp()
        for name in ("CONFIG", "XLA_FLAGS", "NVTE_FUSED_ATTN"):
            self.env.pop(name, None)
        self.env["XDG_CACHE_HOME"] = str(self.dir / "cache")

    def show(self, *words, env=None):
        """Returns `muster config show --json` of a line."""
        return json.loads(self.muster("config", "show", "--json", *words, check=0, env=env).stdout)

    def assert_resolves(self, shown, *, ranks, nodes=1, output=None, **settings):
        """`settings`: the values of keys; ranks: those of a node."""
        self.assertEqual((shown["nodes"], shown["ranks_per_node"]), (nodes, ranks), shown["settings"])
        if output is not None:
            self.assertEqual(shown["output_directory"], str(output))
        for key, value in settings.items():
            self.assertEqual(shown["settings"][key]["value"], value, key)

    def wrapper(self, name, variables, nodes, *arguments):
        """Returns the words that a script of slurm/ passes to `muster slurm run` on `nodes` nodes.

        They are arguments of `config show`.
        """
        programs = self.dir / "programs"
        programs.mkdir(exist_ok=True)
        words = self.dir / "words"
        (programs / "muster").write_text(f'#!/bin/sh\nshift 2\nprintf "%s\\n" "$@" > {words}\n')
        (programs / "muster").chmod(0o755)
        words.unlink(missing_ok=True)
        done = subprocess.run(["bash", WRAPPERS / name, *arguments], cwd=self.dir, capture_output=True, text=True, timeout=60, env={
            "PATH": os.environ["PATH"], "HOME": str(self.dir), "MUSTER_BIN_DIR": str(programs), "SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "job",
            "SLURM_JOB_NUM_NODES": str(nodes), **{key: value.format(dir=self.dir) for key, value in variables.items()}})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        line = [word for word in words.read_text().splitlines() if word != "--insecure"]
        if "--ranks-per-node" not in line:
            line += ["--ranks-per-node", "8"]  # sbatch's --ntasks-per-node
        return [*line, "--nodes", str(nodes)]

    # ------------------------------------------------------------------ JAX-Toolbox's MaxText

    def test_maxtext_quick_run(self):
        self.gpus(*EIGHT_GPUS)
        shown = self.show(*MAXTEXT, "hardware=gpu", "run_name=job")
        self.assert_resolves(shown, ranks=8, output=self.dir / "job", dtype="bfloat16", ici_fsdp_parallelism=8, per_device_batch_size=12.0, steps=150001)

    def test_addresses_of_buckets_resolve_without_a_network(self):
        shown = self.show(*MAXTEXT, "run_name=job", "base_output_directory=gs://my-output-bucket", "dataset_type=shards",
                          "dataset_path=gs://my-dataset-bucket", "--ranks", "8")
        self.assert_resolves(shown, ranks=8, output="gs://my-output-bucket/job", dataset_path="gs://my-dataset-bucket")
        shown = self.show(*FUJI, "--data_dir=gs://axlearn-public/tensorflow_datasets", "--ranks", "8")
        self.assert_resolves(shown, ranks=8, dataset_path="gs://axlearn-public/tensorflow_datasets")

    def test_maxtext_llama2_7b_is_fsdp_over_the_nodes_gpus(self):
        self.gpus(*EIGHT_GPUS)
        shown = self.show(*LLAMA2_7B)
        self.assert_resolves(shown, ranks=8, output=self.dir / "local_train/job", dtype="bfloat16", ici_fsdp_parallelism=8, ici_data_parallelism=1,
                             per_device_batch_size=2.0, global_batch_size=16, max_target_length=4096, steps=15, remat_policy="minimal",
                             enable_checkpointing=False, dataset_type="synthetic")
        self.assertEqual(shown["parameters"], 6_738_415_616)
        # --ranks and a closed mesh decide instead.
        self.assertEqual(self.show(*LLAMA2_7B, "--ranks", "2")["ranks_per_node"], 2)
        self.assertEqual(self.show(*LLAMA2_7B, "ici_fsdp_parallelism=4")["ranks_per_node"], 4)
        self.assertEqual(self.show(*LLAMA2_7B, "hardware=cpu")["ranks_per_node"], 1)

    def test_flash_attention_and_xla_flags_are_one_warning_each(self):
        self.gpus(*EIGHT_GPUS)
        shown = self.show(*LLAMA2_7B, "attention=cudnn_flash_te", "remat_policy=minimal_flash", env={"NVTE_FUSED_ATTN": "1", "XLA_FLAGS": XLA_FLAGS})
        for name in ("NVTE_FUSED_ATTN", "XLA_FLAGS"):
            self.assertEqual(sum(name in warning for warning in shown["warnings"]), 1, shown["warnings"])

    def test_maxtext_script(self):
        line = self.wrapper("example_slurm.sub", {"BASE_WORKSPACE_DIR": "{dir}", "BASE_TFDS_DATA_DIR": "/pile", "BASE_VOCAB_PATH": "/vocab",
                                                  "LOG_DIR_LOCAL": "logs", "OUTPUT_DIR": "out", "PREC": "bfloat16"}, 1)
        self.assert_resolves(self.show(*line), ranks=8, output=self.dir / "logs/job-7", dtype="bfloat16", per_device_batch_size=2.0, global_batch_size=16,
                             ici_fsdp_parallelism=8, steps=15, enable_checkpointing=False, remat_policy="minimal_with_context")

    # ------------------------------------------------------------------ Pax

    def test_pax_pile_script(self):
        shown = self.show(*self.wrapper("example_slurm_pile.sub", PILE, 8))
        self.assert_resolves(shown, ranks=8, nodes=8, output=self.dir / "logs", dtype="bfloat16", quantization="fp8", per_device_batch_size=4.0,
                             global_batch_size=256, ici_data_parallelism=8, dcn_data_parallelism=8, ici_fsdp_parallelism=1, packing=False,
                             dataset_path="/pile", tokenizer_path="/vocab", steps=600000)

    def test_pax_synthetic_5b(self):
        shown = self.show(*self.wrapper("launch_base_script.sub", SYNTHETIC, 32))
        self.assert_resolves(shown, ranks=8, nodes=32, output=self.dir / "log_dir_synthetic_5b", dtype="bfloat16", per_device_batch_size=8.0,
                             global_batch_size=2048, ici_fsdp_parallelism=8, dcn_fsdp_parallelism=32, dcn_data_parallelism=1, quantization="",
                             dataset_type="synthetic", steps=75000)
        sixteen = self.show(*self.wrapper("launch_base_script.sub", SYNTHETIC, 16, "--fdl.DCN_MESH_SHAPE=[1,16,1]"))
        self.assert_resolves(sixteen, ranks=8, nodes=16, dcn_fsdp_parallelism=16)

    def test_pax_main_with_fdl_flags(self):
        shown = self.show("python3", "-u", "-m", "paxml.main", "--fdl_config=paxml.contrib.gpu.scripts_gpu.configs.Pile126M", "--job_log_dir=log_dir",
                          "--tfds_data_dir=/pile", "--fdl.FPROP_DTYPE=\"bfloat16\"", "--fdl.ICI_MESH_SHAPE=[8,1,1]", "--fdl.PERCORE_BATCH_SIZE=4")
        self.assert_resolves(shown, ranks=8, output=self.dir / "log_dir", dtype="bfloat16", ici_data_parallelism=8, global_batch_size=32)

    def test_pax_variables_may_be_exported(self):
        exported = {"ENABLE_FP8": "1", "ENABLE_TE": "0", "PREC": "float32", "PERCORE_BATCH_SIZE": "2", "VOCAB_PATH": "/vocab", "NVTE_FUSED_ATTN": "0"}
        shown = self.show("CONFIG=GPT126M", env=exported)
        self.assert_resolves(shown, ranks=1, dtype="float32", quantization="fp8", per_device_batch_size=2.0, tokenizer_path="/vocab")
        self.assertEqual(shown["settings"]["dtype"]["origin"], "environment PREC")
        # The shell has taken CONFIG off the line.
        self.assert_resolves(self.show(env={**exported, "CONFIG": "GPT126M"}), ranks=1, dtype="float32")
        table = json.loads(self.muster("config", "show", "--variables", "--json", check=0).stdout)
        self.assertLessEqual(set(exported) - {"NVTE_FUSED_ATTN"}, {row["name"] for row in table})

    # ------------------------------------------------------------------ AXLearn

    def test_axlearn_fuji(self):
        self.gpus(*EIGHT_GPUS)
        shown = self.show(*FUJI, "--data_dir=FAKE")
        self.assert_resolves(shown, ranks=8, output=self.dir / "trainer", dtype="bfloat16", ici_fsdp_parallelism=8, global_batch_size=16,
                             max_target_length=8192, dataset_type="synthetic")

    # ------------------------------------------------------------------ the Llama 2 70B recipe

    def test_recipe(self):
        for gpus, fsdp, data in ((64, 8, 1), (256, 32, 1), (512, 16, 4), (1024, 16, 8)):
            line = self.wrapper("launch.sh", {"STAGE_PATH": "{dir}", "DTYPE": "bf16"}, gpus // 8)
            self.assert_resolves(self.show(*line), ranks=8, nodes=gpus // 8, dtype="bfloat16", ici_fsdp_parallelism=8, dcn_fsdp_parallelism=fsdp,
                                 dcn_data_parallelism=data, per_device_batch_size=2.0, global_batch_size=2 * gpus, max_target_length=4096, steps=50)
        line = self.wrapper("launch.sh", {"STAGE_PATH": "{dir}", "DTYPE": "fp8"}, 8)
        self.assert_resolves(self.show(*line), ranks=8, nodes=8, dtype="bfloat16", quantization="fp8")

    # ------------------------------------------------------------ what is not built, and precision

    def test_what_is_not_built_is_refused(self):
        for words, item, error in NOT_BUILT:
            with self.subTest(words=words, item=item):
                self.assertIn(error, self.muster("run", *words, check=2).stderr)

    def test_default_precision_is_measured_once_and_stays(self):
        line = (*MAXTEXT, "model_name=llama2-tiny", "hardware=cpu")
        first = self.show(*line)
        kept = list((self.dir / "cache/muster").glob("cpu-bfloat16-speed-*"))
        self.assertEqual(len(kept), 1)
        fast = float(kept[0].read_text()) >= 1
        self.assertEqual(first["settings"]["dtype"]["value"], "bfloat16" if fast else "float32")
        self.assertEqual(any("dtype is float32" in warning for warning in first["warnings"]), not fast)
        kept[0].write_text("0.63\n")
        slow = self.show(*line)
        self.assertEqual(slow["settings"]["dtype"]["value"], "float32")
        self.assertIn("bfloat16 reaches 0.63 of its speed; dtype=bfloat16 trains in bfloat16 nevertheless", "\n".join(slow["warnings"]))
        self.assertEqual(self.show(*line, "dtype=bfloat16")["settings"]["dtype"]["value"], "bfloat16")
        kept[0].write_text("1.7\n")
        self.assertEqual(self.show(*line)["settings"]["dtype"]["value"], "bfloat16")

    def test_note_about_the_base_file_appears_once(self):
        line = ("config", "show", *MAXTEXT, "model_name=llama2-tiny", "dtype=float32")
        self.assertIn("MaxText/configs/base.yml does not exist: using Muster's", self.muster(*line, check=0).stderr)
        self.assertEqual(self.muster(*line, check=0).stderr, "")

    # ------------------------------------------------------------------ real runs, of tiny models

    def test_maxtext_line_trains(self):
        tiny = [word for word in TINY if not word.startswith("dtype=")]
        words = [*(word for word in LLAMA2_7B if not word.startswith(("hardware=", "steps=", "per_device", "max_target"))), *tiny, "steps=3", "hardware=cpu"]
        result = self.muster("run", *words, check=0)
        # The recipe takes the last line by `grep 'completed step:' | tail -1`.
        self.assertEqual(step_lines(result.stdout)[-1][0], 2, result.stdout)

    def test_pax_line_trains_in_fp8(self):
        result = self.muster("run", "CONFIG=Synthetic126M", "--fdl.NUM_LAYERS=2", "--fdl.NUM_HEADS=2", "--fdl.MODEL_DIMS=64", "--fdl.HIDDEN_DIMS=128",
                             "--fdl.DIMS_PER_HEAD=32", "--fdl.VOCAB_SIZE=512", "--fdl.MAX_SEQ_LEN=64", "--fdl.MAX_STEPS=3", "--fdl.LR_COS_WARMUP=0",
                             "LOG_DIR=logs", "--ranks", "2", "hardware=cpu", check=0, env={"ENABLE_FP8": "1", "PREC": "bfloat16", "PERCORE_BATCH_SIZE": "1"})
        self.assertEqual(step_lines(result.stdout)[-1][0], 2, result.stdout)
        config = json.loads((self.dir / "logs/config.json").read_text())
        self.assertEqual(config["dtype"], "bfloat16")

    def test_axlearn_line_trains(self):
        result = self.muster("run", "python3", "-m", "axlearn.common.launch_trainer_main", "--module=text.gpt.c4_trainer", "--config=fuji-test",
                             "--trainer_dir=trainer", "--data_dir=FAKE", "--jax_backend=cpu", "steps=3", check=0)
        self.assertEqual(step_lines(result.stdout)[-1][0], 2, result.stdout)
        self.assertIsNone(re.search("error", result.stderr), result.stderr)


if __name__ == "__main__":
    unittest.main()
