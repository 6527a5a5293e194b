"""Command blocks of the documents that users come with.

The documents are those of MaxText, JAX-Toolbox's MaxText, Pax and AXLearn, and the Slurm recipe for
Llama 2. BLOCKS lists every fenced block of each document, with the tests that hold it: what it
resolves to (mesh, batch, precision, steps, paths), a real run scaled to a tiny model, or, in
NOT_BUILT, the error with which this version refuses it. Blocks that install, download or start
containers are not Muster's.
"""
import json
import os
import pathlib
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
# The flags of JAX-Toolbox's MaxText, of Pax's BASE_XLA_FLAGS, and of AXLearn; as documented, on
# several lines.
XLA_FLAGS = {
    "maxtext": """--xla_gpu_enable_latency_hiding_scheduler=true
            --xla_gpu_enable_async_all_gather=true
            --xla_gpu_enable_async_reduce_scatter=true
            --xla_gpu_enable_triton_gemm=false
            --xla_gpu_simplify_all_fp_conversions
            --xla_gpu_graph_level=0
            --xla_gpu_enable_async_all_reduce=true
            --xla_gpu_enable_highest_priority_async_stream=true
            --xla_gpu_all_reduce_combine_threshold_bytes=1073741824
            --xla_gpu_all_gather_combine_threshold_bytes=1073741824
            --xla_gpu_reduce_scatter_combine_threshold_bytes=134217728
            --xla_gpu_enable_pipelined_all_gather=true
            --xla_gpu_enable_pipelined_reduce_scatter=true
            --xla_gpu_enable_pipelined_all_reduce=true
            --xla_gpu_enable_while_loop_double_buffering=true
            --xla_gpu_enable_triton_softmax_fusion=false
            --xla_gpu_enable_all_gather_combine_by_dim=false
            --xla_gpu_enable_reduce_scatter_combine_by_dim=false
            --xla_disable_hlo_passes=rematerialization""",
    "pax": """--xla_gpu_enable_latency_hiding_scheduler=true --xla_gpu_enable_triton_gemm=false
                --xla_gpu_simplify_all_fp_conversions --xla_gpu_enable_async_all_gather=true
                --xla_gpu_enable_async_reduce_scatter=true  --xla_gpu_enable_highest_priority_async_stream=true
                --xla_gpu_enable_triton_softmax_fusion=false  --xla_gpu_all_reduce_combine_threshold_bytes=33554432
                --xla_gpu_graph_level=0 --xla_gpu_enable_async_all_reduce=true""",
    "axlearn": """--xla_gpu_enable_latency_hiding_scheduler=true
            --xla_gpu_enable_triton_gemm=false
            --xla_gpu_enable_command_buffer=
            --xla_gpu_all_reduce_combine_threshold_bytes=1073741824
            --xla_gpu_all_gather_combine_threshold_bytes=1073741824
            --xla_gpu_reduce_scatter_combine_threshold_bytes=1073741824
            --xla_gpu_enable_pipelined_all_gather=true
            --xla_gpu_enable_pipelined_reduce_scatter=true
            --xla_gpu_enable_pipelined_all_reduce=true
            --xla_gpu_enable_while_loop_double_buffering=true
            --xla_gpu_enable_all_gather_combine_by_dim=false
            --xla_gpu_enable_reduce_scatter_combine_by_dim=false
            --xla_disable_hlo_passes=rematerialization"""}
# Two layers in Pax's names, for the scripts that pass flags on.
TINY_PAX = ["--fdl.NUM_LAYERS=2", "--fdl.NUM_HEADS=4", "--fdl.DIMS_PER_HEAD=8", "--fdl.MODEL_DIMS=32", "--fdl.HIDDEN_DIMS=64", "--fdl.VOCAB_SIZE=320",
            "--fdl.MAX_SEQ_LEN=32", "--fdl.MAX_STEPS=3", "--fdl.LR_COS_WARMUP=0", "override_model_config=true", "hardware=cpu"]
META = SOURCE / "tests/golden/meta/llama2"
# Reasons for blocks that are not Muster's.
CONTAINER = "starts a container"
DOWNLOAD = "downloads a file"
# The figures of a summary, by the document's own example.
FORMULA = "tests/unit/trainer_core/report/run_figures_test.cc"
# By document, each fenced block in its order: the beginning of its command, and the tests that hold
# it: methods of Seeds, or of another file as FILE.METHOD. A string: why no test does.
BLOCKS = {
    "JAX-Toolbox's MaxText": [
        ("docker run -ti --gpus=all", CONTAINER),
        ("python3 MaxText/train.py MaxText/configs/base.yml hardware=gpu", ["test_maxtext_quick_run", "test_maxtext_quick_run_trains"]),
        ("python3 MaxText/train.py", ["test_maxtext_llama2_7b_is_fsdp_over_the_nodes_gpus", "test_maxtext_line_trains"]),
        ("sbatch -N 1 -A", ["test_maxtext_script", "test_slurm_wrappers.test_maxtext", "test_slurm.test_every_array_task_finds_the_shared_scripts"]),
        ("CONTAINER=", ["test_maxtext_script", "test_slurm.test_maxtext_with_two_ranks_per_node_and_names_that_need_quotes"]),
        ("XLA_FLAGS=", ["test_flash_attention_and_xla_flags_are_one_warning_each", "test_maxtext_line_trains"]),
    ],
    "MaxText": [
        ("logName=", "a query of Cloud Logging"),
        ("python3 MaxText/train_compile.py", ["test_what_is_not_built_is_refused"]),
        ("export LIBTPU_INIT_ARGS", ["test_compilation_ahead_of_time"]),
        ("export LIBTPU_INIT_ARGS", ["test_compilation_ahead_of_time", "test_what_is_not_built_is_refused"]),
    ],
    "Pax": [
        ("wget -P c4_sentencepiece", DOWNLOAD),
        ("docker run -v", CONTAINER),
        ("docker run -ti --gpus=all", CONTAINER),
        ("export TFDS_DATA_DIR", ["test_downloads", "test_seed_scripts.test_cut_connections_resume_within_the_file"]),
        ("cd $(python", "shows Pax's source code"),
        ("bash paxml/contrib/gpu/scripts_gpu/run_pile_singlenode.sh", ["test_pax_pile_on_one_node", "test_pax_pile_on_one_node_trains"]),
        ("ENABLE_FP8=1 bash", ["test_pax_pile_on_one_node", "test_pax_pile_on_one_node_trains"]),
        ("bash paxml/contrib/gpu/scripts_gpu/run_lambada_singlenode.sh", ["test_evaluation_scripts"]),
        ("CONTAINER=", ["test_pax_pile_script", "test_slurm.test_pax_trains_the_pile"]),
        ("...", ["test_pax_main_with_fdl_flags", "test_pax_main_trains"]),
        ("--fdl.<PARAM_NAME>", ["test_pax_main_with_fdl_flags", "test_pax_main_trains"]),
        ("export ENABLE_TE=0", ["test_pax_variables_may_be_exported"]),
        ("ENABLE_FP8=1 bash", ["test_pax_pile_on_one_node", "test_pax_pile_on_one_node_trains"]),
        ("BASE_XLA_FLAGS=", ["test_pax_pile_on_several_nodes"]),
        ("pip install", ["test_converters", "test_entry_points.test_converters_make_what_a_run_loads"]),
        ("python  converter/main.py", ["test_converters", "test_entry_points.test_converters_make_what_a_run_loads"]),
        ("--num-gqa-groups=8", ["test_converters"]),
        ("CONTAINER=", ["test_pax_llama_script", "test_slurm.test_pax_llama"]),
        ("CONTAINER=", ["test_pax_llama_script", "test_slurm.test_pax_llama"]),
        ("CONTAINER=", ["test_pax_base_configs", "test_slurm.test_pax_base_configs"]),
        ("--fdl.DCN_MESH_SHAPE", ["test_pax_synthetic_5b"]),
        ("BASE_WORKSPACE_DIR=", ["test_pax_base_configs", "test_pax_line_trains_in_fp8"]),
        ("BASE_WORKSPACE_DIR=", ["test_pax_synthetic_5b", "test_seed_scripts.test_launch_base_config_is_launch_base_script"]),
    ],
    "AXLearn": [
        ("docker run -ti --gpus=all", CONTAINER),
        ("python3 -m axlearn.common.launch_trainer_main", ["test_axlearn_fuji", "test_axlearn_line_trains", "test_what_is_not_built_is_refused"]),
        ("XLA_FLAGS=", ["test_flash_attention_and_xla_flags_are_one_warning_each", "test_axlearn_line_trains"]),
    ],
    "the Llama 2 70B recipe": [
        ("grep 'completed step:'", ["test_maxtext_line_trains", "test_slurm.test_the_llama_recipe"]),
        ("(sequence length) * (global batch size)", ["test_figures_of_the_recipe"]),
        ("(total tokens)", ["test_figures_of_the_recipe"]),
        ("MFU = (global batch size)", FORMULA),
        ("peak FLOPS for H100", FORMULA),
        ("export STAGE_PATH", ["test_slurm.test_the_llama_recipe"]),
        ("DTYPE=<fp8/bf16> sbatch", ["test_recipe", "test_slurm.test_the_llama_recipe"]),
        ("model flops = (sequence length)", FORMULA),
    ],
}
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

    def script(self, name, *arguments, env=None, check=0, runs=False):
        """Runs a script of scripts/ by its documented arguments. Returns the process; without
        `runs` `muster run` only resolves the line, as JSON on stdout.
        """
        programs = self.dir / "stand-in"
        programs.mkdir(exist_ok=True)
        (programs / "muster").write_text(f'#!/bin/sh\nshift\nexec "{BIN}/muster" config show --json "$@"\n')
        (programs / "muster").chmod(0o755)
        variables = {**self.env, "MUSTER_BIN_DIR": str(BIN if runs else programs), **(env or {})}
        done = subprocess.run(["python3" if name.endswith(".py") else "bash", SOURCE / "scripts" / name, *map(str, arguments)], cwd=self.dir,
                              capture_output=True, text=True, timeout=100, env=variables)
        self.assertEqual(done.returncode, check, done.stdout + done.stderr)
        return done

    def make_shards(self):
        """Returns a folder of token shards, and their tokenizer."""
        text = "".join(f"In the beginning was the word, and the word was with many others: {i * 7919 % 10007}.\n" for i in range(3000))
        (self.dir / "text.txt").write_text(text)
        self.muster("train-tokenizer", "--text", "text.txt", "--vocab-size", 300, "--fewer-ok", "--out", "tokenizer", check=0)
        self.muster("tokenize", "--text", "text.txt", "--tokenizer", "tokenizer.model", "--out", "shards", check=0)
        return self.dir / "shards", self.dir / "tokenizer.model"

    def assert_trains(self, printed, steps):
        self.assertEqual([step for step, _ in step_lines(printed)][-1:], [steps - 1], printed)

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

    # ------------------------------------------------------------------ the list of blocks

    def test_every_block_has_tests_that_exist(self):
        self.assertEqual({document: len(blocks) for document, blocks in BLOCKS.items()},
                         {"JAX-Toolbox's MaxText": 6, "MaxText": 4, "Pax": 23, "AXLearn": 3, "the Llama 2 70B recipe": 8})
        folder = pathlib.Path(__file__).parent
        for document, blocks in BLOCKS.items():
            for block, holders in blocks:
                for holder in [] if isinstance(holders, str) else holders:
                    file, _, method = holder.rpartition(".")
                    text = (folder / f"{file or 'test_seeds'}.py").read_text()
                    with self.subTest(document=document, block=block):
                        self.assertTrue(f"    def {method}(self" in text, f"{holder} does not exist")
        self.assertTrue((SOURCE / FORMULA).exists())

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
        for line, flags in (([*LLAMA2_7B, "attention=cudnn_flash_te", "remat_policy=minimal_flash"], XLA_FLAGS["maxtext"]),
                            ([*FUJI, "--data_dir=FAKE"], XLA_FLAGS["axlearn"])):
            shown = self.show(*line, env={"NVTE_FUSED_ATTN": "1", "XLA_FLAGS": flags})
            plain = self.show(*line)
            for name in ("NVTE_FUSED_ATTN", "XLA_FLAGS"):
                self.assertEqual(sum(name in warning for warning in shown["warnings"]), 1, shown["warnings"])
            self.assertEqual(shown["train_config"], plain["train_config"])

    def test_maxtext_script(self):
        # Without variables: the workspace is the folder of the submission.
        bare = self.show(*self.wrapper("example_slurm.sub", {}, 1))
        self.assert_resolves(bare, ranks=8, output=self.dir / "local_train/job-7", dtype="bfloat16", global_batch_size=16, steps=15)
        line = self.wrapper("example_slurm.sub", {"BASE_WORKSPACE_DIR": "{dir}", "BASE_TFDS_DATA_DIR": "/pile", "BASE_VOCAB_PATH": "/vocab",
                                                  "LOG_DIR_LOCAL": "logs", "OUTPUT_DIR": "out", "PREC": "bfloat16"}, 1)
        self.assert_resolves(self.show(*line), ranks=8, output=self.dir / "logs/job-7", dtype="bfloat16", per_device_batch_size=2.0, global_batch_size=16,
                             ici_fsdp_parallelism=8, steps=15, enable_checkpointing=False, remat_policy="minimal_with_context")

    # ------------------------------------------------------------------ MaxText

    def test_compilation_ahead_of_time(self):
        exported = {"LIBTPU_INIT_ARGS": "--xla_enable_async_all_gather=true"}
        saved = ["compiled_trainstep_file=my_compiled_train.pickle", "global_parameter_scale=16", "per_device_batch_size=4", "steps=10000", "learning_rate=1e-3"]
        refused = self.muster("run", "python3", "MaxText/train_compile.py", "MaxText/configs/base.yml", "compile_topology=v5e-256",
                              "compile_topology_num_slices=2", *saved, check=2, env=exported)
        self.assertIn("nothing is compiled here", refused.stderr)
        # The line that loads it trains, without the compiled function; two slices of 256 chips.
        shown = self.show(*MAXTEXT, "run_name=example_load_compile", *saved, "base_output_directory=out", "hardware=gpu", "--nodes", "64",
                          "--ranks-per-node", "8", env=exported)
        self.assert_resolves(shown, ranks=8, nodes=64, output=self.dir / "out/example_load_compile", dtype="bfloat16", steps=10000, learning_rate=1e-3,
                             global_parameter_scale=16, per_device_batch_size=4.0, global_batch_size=2048)
        for name in ("compiled_trainstep_file", "LIBTPU_INIT_ARGS"):
            self.assertEqual(sum(name in warning for warning in shown["warnings"]), 1, shown["warnings"])

    # ------------------------------------------------------------------ Pax

    def test_downloads(self):
        data = {"TFDS_DATA_DIR": str(self.dir / "datasets"), "MUSTER_FETCH_PAUSE_S": "0.01"}
        refused = self.script("download_the_pile.py", env=data, check=1)
        self.assertIn(f"into {self.dir}/datasets/the_pile", refused.stdout + refused.stderr)

    def test_pax_pile_on_one_node(self):
        words = ("/opt/paxml/datasets", "/opt/paxml/vocab", "bfloat16", 8, 4, "log_dir")
        for fp8 in ("0", "1"):
            shown = json.loads(self.script("run_pile_singlenode.sh", *words, env={"ENABLE_FP8": fp8}).stdout)
            self.assert_resolves(shown, ranks=8, output=self.dir / "log_dir", dtype="bfloat16", quantization="fp8" if fp8 == "1" else "",
                                 per_device_batch_size=4.0, global_batch_size=32, ici_data_parallelism=8, dataset_path="/opt/paxml/datasets",
                                 tokenizer_path="/opt/paxml/vocab", steps=600000, packing=False)

    def test_pax_pile_on_several_nodes(self):
        shards, tokenizer = self.make_shards()
        done = self.script("run_pile_multinode.sh", shards, tokenizer, "float32", 2, 1, "logs", *TINY_PAX, env={"BASE_XLA_FLAGS": XLA_FLAGS["pax"]}, runs=True)
        self.assert_trains(done.stdout, 3)
        self.assertEqual((done.stdout + done.stderr).count("warning: BASE_XLA_FLAGS="), 1, done.stderr)

    def test_evaluation_scripts(self):
        (self.dir / "logs/checkpoints").mkdir(parents=True)
        (self.dir / "vocab").touch()
        words = (self.dir, self.dir / "vocab", "bfloat16", 8, 4, self.dir / "logs")
        self.assertIn("not built yet: the accuracy on Lambada", self.script("run_lambada_singlenode.sh", *words, check=3).stderr)

    def test_pax_llama_script(self):
        boolq = {**PILE, "BASE_CHECKPOINT_RESTORE_PATH": "/pretrained", "CONFIG": "LLaMA7B", "EVAL_ONLY": "0", "USE_LORA": "0", "ENABLE_TE": "1", "ENABLE_FP8": "0",
                 "PERCORE_BATCH_SIZE": "2"}
        for config, parameters in (("LLaMA7B", 6_738_415_616), ("LLaMA13B", 13_015_864_320), ("LLaMA70B", 68_976_648_192)):
            shown = self.show(*self.wrapper("example_slurm_llama.sub", {**boolq, "CONFIG": config}, 2))
            self.assert_resolves(shown, ranks=8, nodes=2, dtype="bfloat16", global_batch_size=32, max_target_length=4096, output=self.dir / "logs",
                                 load_parameters_path="/pretrained", dataset_path="/pile", tokenizer_path="/vocab")
            self.assertEqual(shown["parameters"], parameters)
        for variable, what in (("EVAL_ONLY", "evaluation"), ("USE_LORA", "LoRA")):
            done = subprocess.run(["bash", WRAPPERS / "example_slurm_llama.sub"], cwd=self.dir, capture_output=True, text=True, timeout=60,
                                  env={"PATH": os.environ["PATH"], "MUSTER_BIN_DIR": str(BIN), "SLURM_JOB_ID": "7", variable: "1"})
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertRegex(done.stderr, f"not built yet: {variable}=1: .*{what}")

    def test_pax_base_configs(self):
        for config, nodes, batch, fp8 in (("GPT126M", 8, 4, "0"), ("GPT5B", 32, 8, "1"), ("GPT175B", 32, 6, "1"), ("GLaM126M64E", 8, 8, "0"),
                                          ("GLaM64B64E", 64, 4, "0"), ("Synthetic126M", 8, 4, "0"), ("Synthetic5B", 32, 8, "0"),
                                          ("Synthetic175B", 32, 6, "1")):
            variables = {**PILE, "CONFIG": config, "ENABLE_TE": "1", "ENABLE_FP8": fp8}
            del variables["PERCORE_BATCH_SIZE"]
            if config.startswith("Synthetic"):
                del variables["BASE_VOCAB_PATH"], variables["BASE_TFDS_DATA_DIR"]
            with self.subTest(config=config):
                shown = self.show(*self.wrapper("launch_base_script.sub", variables, nodes))
                self.assert_resolves(shown, ranks=8, nodes=nodes, dtype="bfloat16", output=self.dir / "logs", quantization="fp8" if fp8 == "1" else "",
                                     global_batch_size=8 * nodes * batch, max_target_length=2048,
                                     dataset_type="synthetic" if config.startswith("Synthetic") else shown["settings"]["dataset_type"]["value"])

    def test_converters(self):
        self.muster("run", "python3", "-m", "convert_llama_ckpt", "--base-model-path", META, "--pax-model-path", self.dir / "pax", "--model-size", "7b", check=0)
        grouped = ["--num-gqa-groups=8", "--pax-split-qkv", "--te-qkv-layout=kv_packed"]
        for name, more in (("te", []), ("grouped", grouped)):
            self.muster("run", "python", "converter/main.py", f"--input-path={self.dir}/pax", f"--output-path={self.dir}/{name}", "--fw=pax",
                        "--direction=fw2te", "--num-of-layer=2", "--num-of-head=4", "--head-dim=8", "--mlp-intermediate-dim=64", "--skip-bias",
                        "--weight-only", "--use-gated-activations", *more, check=0)
            self.assertTrue((self.dir / name / "checkpoints/0").is_dir())

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
        # Each column of the tables: GPUs, and the nodes along FSDP and data.
        for gpus, fsdp, data in ((64, 8, 1), (128, 16, 1), (256, 32, 1), (512, 16, 4), (1024, 16, 8), (2048, 16, 16)):
            for dtype, quantization in (("bf16", ""), ("fp8", "fp8")):
                with self.subTest(gpus=gpus, dtype=dtype):
                    shown = self.show(*self.wrapper("launch.sh", {"STAGE_PATH": "{dir}", "DTYPE": dtype}, gpus // 8))
                    self.assert_resolves(shown, ranks=8, nodes=gpus // 8, dtype="bfloat16", quantization=quantization, ici_fsdp_parallelism=8,
                                         dcn_fsdp_parallelism=fsdp, dcn_data_parallelism=data, per_device_batch_size=2.0, global_batch_size=2 * gpus,
                                         max_target_length=4096, steps=50)
                    self.assertEqual(shown["parameters"], 68_976_648_192)

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

    def test_maxtext_quick_run_trains(self):
        result = self.muster("run", *MAXTEXT, "run_name=job", *TINY, "steps=3", "hardware=cpu", "enable_checkpointing=false", check=0)
        self.assert_trains(result.stdout, 3)

    def test_figures_of_the_recipe(self):
        """Tokens/s and days to 1T tokens, by the document's formulas."""
        result = self.muster("run", *MAXTEXT, "run_name=job", *TINY, "steps=6", "hardware=cpu", "enable_checkpointing=false", check=0)
        summary = result.stdout[result.stdout.index("summary:"):]
        step, tokens = (float(text) for text in re.search(r"step ([\d.]+) s, .* ([\d.]+) tokens/s", summary).groups())
        days = float(re.search(r"1T tokens take ([\d.]+) days", summary).group(1))
        self.assertAlmostEqual(tokens * step / (32 * 2), 1, delta=0.02, msg=summary)
        self.assertAlmostEqual(1e12 / tokens / 86400 / days, 1, delta=0.001, msg=summary)

    def test_pax_pile_on_one_node_trains(self):
        shards, tokenizer = self.make_shards()
        for fp8 in ("0", "1"):
            done = self.script("run_pile_singlenode.sh", shards, tokenizer, "bfloat16", 2, 1, f"logs{fp8}", *TINY_PAX, env={"ENABLE_FP8": fp8}, runs=True)
            self.assert_trains(done.stdout, 3)
            config = json.loads((self.dir / f"logs{fp8}/config.json").read_text())
            self.assertEqual((config["dtype"], config["quantization"]), ("bfloat16", "fp8" if fp8 == "1" else ""))

    def test_pax_main_trains(self):
        shards, tokenizer = self.make_shards()
        result = self.muster("run", "python3", "-u", "-m", "paxml.main", "--fdl_config=paxml.contrib.gpu.scripts_gpu.configs.Pile126M", "--job_log_dir=log_dir",
                             f"--tfds_data_dir={shards}", '--fdl.FPROP_DTYPE="float32"', "--fdl.ICI_MESH_SHAPE=[2,1,1]", "--fdl.PERCORE_BATCH_SIZE=1",
                             *TINY_PAX, check=0, env={"VOCAB_PATH": str(tokenizer)})
        self.assert_trains(result.stdout, 3)

    def test_maxtext_line_trains(self):
        tiny = [word for word in TINY if not word.startswith("dtype=")]
        words = [*(word for word in LLAMA2_7B if not word.startswith(("hardware=", "steps=", "per_device", "max_target"))), *tiny, "steps=3", "hardware=cpu"]
        result = self.muster("run", *words, check=0, env={"XLA_FLAGS": XLA_FLAGS["maxtext"], "NVTE_FUSED_ATTN": "1"})
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
                             "--trainer_dir=trainer", "--data_dir=FAKE", "--jax_backend=cpu", "steps=3", check=0, env={"XLA_FLAGS": XLA_FLAGS["axlearn"]})
        self.assertEqual(step_lines(result.stdout)[-1][0], 2, result.stdout)
        self.assertIsNone(re.search("error", result.stderr), result.stderr)


if __name__ == "__main__":
    unittest.main()
