"""Command blocks of the documents that users come with.

The documents are those of MaxText, JAX-Toolbox's MaxText, Pax and AXLearn, and the Slurm recipe for
Llama 2. The constants are their command lines, word for word; the tests fill in what stands in <…>
and $…. BLOCKS lists every fenced block of each document by its text, with the tests that hold it:
its resolution (mesh, batch, precision, steps, paths), a real run scaled to a tiny model, or, in
NOT_BUILT, the error with which this version refuses it. Blocks that install, download or start
containers are not Muster's.
"""
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import unittest

from harness import BIN, SOURCE, TINY, MusterTest, step_lines

WRAPPERS = SOURCE / "slurm"
EIGHT_GPUS = [f"gpu bus={16 * index} temperature=60" for index in range(1, 9)]
SCRIPTS = "paxml/contrib/gpu/scripts_gpu"
QUICK = "python3 MaxText/train.py MaxText/configs/base.yml hardware=gpu run_name=$YOUR_JOB_NAME"
LLAMA2_7B_LINE = ("python3 MaxText/train.py MaxText/configs/base.yml model_name=llama2-7b per_device_batch_size=2 max_target_length=4096 scan_layers=true "
                  "steps=15 remat_policy=minimal use_iota_embed=true logits_dot_in_fp32=false enable_checkpointing=false base_output_directory=local_train "
                  "dataset_path=local dataset_type=synthetic attention=dot_product hardware=gpu run_name=${YOUR_JOB_NAME}")
MAXTEXT_SBATCH = "sbatch -N 1 -A <ACCOUNT> -p <PARTITION> -J <JOBNAME> scripts/example_slurm.sub"
MAXTEXT_VARIABLES = ("CONTAINER=<CONTAINER> BASE_WORKSPACE_DIR=<PATH_TO_WORKSPACE> BASE_TFDS_DATA_DIR=<PATH_TO_THE_PILE> "
                     "BASE_VOCAB_PATH=<PATH_TO_SENTENCEPIECE_MODEL> LOG_DIR_LOCAL=<LOG_DIR_LOCAL> OUTPUT_DIR=<OUTPUT_DIR_LOCAL> " + MAXTEXT_SBATCH)
AOT_COMPILE = ("# Run the below on a single machine, e.g. a CPU python3 MaxText/train_compile.py MaxText/configs/base.yml compile_topology=v5e-256 "
               "compile_topology_num_slices=2 global_parameter_scale=16 per_device_batch_size=4")
AOT_SAVE = ('# Run the below on a single machine, e.g. a CPU export LIBTPU_INIT_ARGS="--xla_enable_async_all_gather=true" python3 MaxText/train_compile.py '
            "MaxText/configs/base.yml compile_topology=v5e-256 compile_topology_num_slices=2 compiled_trainstep_file=my_compiled_train.pickle "
            "global_parameter_scale=16 per_device_batch_size=4 steps=10000 learning_rate=1e-3")
AOT_LOAD = ('# Run the below on each host of the target hardware, e.g. each host on 2 slices of v5e-256 '
            'export LIBTPU_INIT_ARGS="--xla_enable_async_all_gather=true" python3 MaxText/train.py MaxText/configs/base.yml run_name=example_load_compile '
            "compiled_trainstep_file=my_compiled_train.pickle global_parameter_scale=16 per_device_batch_size=4 steps=10000 learning_rate=1e-3 "
            "base_output_directory=gs://my-output-bucket dataset_path=gs://my-dataset-bucket")
PILE_SINGLE = f"bash {SCRIPTS}/run_pile_singlenode.sh <TFDS_DATA_DIR> <VOCAB_PATH> <PRECISION> <NUM_GPUS> <PERCORE_BATCH_SIZE> <LOGDIR>"
PILE_SINGLE_FP8 = f"ENABLE_FP8=1 bash {SCRIPTS}/run_pile_singlenode.sh /opt/paxml/datasets /opt/paxml/vocab bfloat16 8 4 log_dir"
LAMBADA = f"bash {SCRIPTS}/run_lambada_singlenode.sh <TFDS_DATA_DIR> <VOCAB_PATH> <PRECISION> <NUM_GPUS> <PERCORE_BATCH_SIZE> <LOGDIR>"
DOWNLOAD_PILE = f"export TFDS_DATA_DIR=/opt/paxml/datasets/ python3 {SCRIPTS}/download_the_pile.py"
PAX_VARIABLES = ("BASE_WORKSPACE_DIR=<PATH_TO_WORKSPACE> BASE_TFDS_DATA_DIR=<PATH_TO_THE_PILE> BASE_VOCAB_PATH=<PATH_TO_SENTENCEPIECE_MODEL> "
                 "LOG_DIR_LOCAL=<LOG_DIR_LOCAL> OUTPUT_DIR=<OUTPUT_DIR_LOCAL>")
SBATCH = "-A <ACCOUNT> -p <PARTITION> -J <JOBNAME>"
PILE_SBATCH = (f"CONTAINER=<CONTAINER> {PAX_VARIABLES} PREC=bfloat16 GPUS_PER_NODE=8 PERCORE_BATCH_SIZE=4 ENABLE_FP8=<ENABLE_FP8> "
               f"sbatch -N 8 {SBATCH} scripts/example_slurm_pile.sub")
CONVERT_LLAMA = ("python3 -m convert_llama_ckpt --base-model-path <meta checkpoint path> --pax-model-path <path to save checkpoint to> "
                 "--model-size <7b, 13b, or 70b>")
CONVERT_TE = ("python converter/main.py --input-path=/your_path_to_src_ckpt --output-path=/your_path_to_output_ckpt --fw=pax --direction=fw2te "
              "--num-of-layer=<NUM_LAYERS> --num-of-head=<NUM_HEADS> --head-dim=<DIMS_PER_HEAD> --mlp-intermediate-dim=<MLP_DIM> --skip-bias --weight-only "
              "--use-gated-activations")
CONVERT_TE_70B = "--num-gqa-groups=8 --pax-split-qkv --te-qkv-layout=kv_packed"
LLAMA_SBATCH = ("CONTAINER=<CONTAINER> BASE_WORKSPACE_DIR=<PATH_TO_WORKSPACE> BASE_TFDS_DATA_DIR=<PATH_TO_BOOLQ> BASE_VOCAB_PATH=<PATH_TO_LLAMA_TOKENIZER> "
                "OUTPUT_DIR=<OUTPUT_DIR_LOCAL> EVAL_ONLY=<EVAL_ONLY> USE_LORA=<USE_LORA> BASE_CHECKPOINT_RESTORE_PATH=<PATH_TO_PRETRAINED_CHECKPOINT> "
                "LOG_DIR_LOCAL=<DIR_TO_STORE_NEW_CHECKPOINTS_AND_LOGS> CONFIG=<LLaMA_CONFIG> ENABLE_TE=<ENABLE_TE> "
                f"sbatch -N <NUM_NODES> {SBATCH} scripts/example_slurm_llama.sub")
LORA_SBATCH = ("CONTAINER=<CONTAINER> BASE_WORKSPACE_DIR=$PWD BASE_TFDS_DATA_DIR=<PATH_TO_BOOLQ> BASE_VOCAB_PATH=<PATH_TO_LLAMA_TOKENIZER> "
               "OUTPUT_DIR=lora_stdout EVAL_ONLY=0 USE_LORA=1 BASE_CHECKPOINT_RESTORE_PATH=<PATH_TO_PRETRAINED_CHECKPOINT> LOG_DIR_LOCAL=7b_log_dir "
               f"CONFIG=LLaMA7B ENABLE_TE=1 sbatch -N 2 {SBATCH} scripts/example_slurm_llama.sub")
BASE_CONFIG_SBATCH = (f"CONTAINER=<CONTAINER> CONFIG=<CONFIG_NAME> {PAX_VARIABLES} PREC=<PRECISION> GPUS_PER_NODE=<GPUS_PER_NODE> ENABLE_TE=<ENABLE_TE> "
                      f"ENABLE_FP8=<ENABLE_FP8> sbatch -N <NUM_NODES> {SBATCH} scripts/launch_base_script.sub")
SYNTHETIC_SBATCH = ("BASE_WORKSPACE_DIR=<PATH_TO_WORKSPACE> CONFIG=Synthetic<126M, 5B, 175B> OUTPUT_DIR=<OUTPUT_DIR> PREC=bfloat16 ENABLE_TE=<ENABLE_TE> "
                    f"ENABLE_FP8=<ENABLE_FP8> LOG_DIR_LOCAL=<LOG_DIR> sbatch -N <NODES> {SBATCH} -t <TIME_LIMIT> scripts/launch_base_script.sub")
SYNTHETIC_5B_SBATCH = ("BASE_WORKSPACE_DIR=<PATH_TO_WORKSPACE> CONFIG=Synthetic5B OUTPUT_DIR=output_synthetic_5b PREC=bfloat16 ENABLE_TE=1 ENABLE_FP8=0 "
                       f"LOG_DIR_LOCAL=log_dir_synthetic_5b sbatch -N 32 {SBATCH} scripts/launch_base_config.sub")
FUJI_LINE = ("python3 -m axlearn.common.launch_trainer_main --module=text.gpt.c4_trainer --config=${CONFIG} --trainer_dir=${TRAINER_DIR} "
             "--data_dir=gs://axlearn-public/tensorflow_datasets --jax_backend=gpu")
RECIPE = "DTYPE=<fp8/bf16> sbatch -A ${SBATCH_ACCOUNT} -p ${SBATCH_PARTITION} -N ${NUM_NODES} $STAGE_PATH/launch.sh"


def words(line, **values):
    """Returns the words of a command line of a document, as a shell splits them. `values` are for
    $NAME, ${NAME} and <NAME>. A comment and `export NAME=…` in front are left out.
    """
    if line.startswith("# "):
        line = line[re.search("python3|export", line).start():]
    line = re.sub(r'^export \w+=("[^"]*"|\S+) ', "", line)
    filled = re.sub(r"\$\{(\w+)\}|\$(\w+)|<([^>]+)>", lambda found: shlex.quote(values[found[1] or found[2] or found[3]]), line)
    return shlex.split(filled)


def joined(block):
    return " ".join(block.replace("\\\n", " ").split())


def digest_of(block):
    return hashlib.sha256(joined(block).encode()).hexdigest()[:12]


JOB = {"YOUR_JOB_NAME": "job"}
MAXTEXT = words(QUICK, **JOB)[:3]
LLAMA2_7B = words(LLAMA2_7B_LINE, **JOB)
FUJI = [word for word in words(FUJI_LINE, CONFIG="fuji-3B-v3-flash-single-host", TRAINER_DIR="trainer") if not word.startswith("--data_dir")]
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
# By document, each fenced block in its order: the beginning of the SHA-256 of its text (blanks
# joined, lines that end in a backslash continued), its text or the beginning of it, and the tests
# that hold it: methods of Seeds, or of another file as FILE.METHOD. A string: why no test does.
BLOCKS = {
    "JAX-Toolbox's MaxText": [
        ("f79f85cc8ea3", "docker run -ti --gpus=all", CONTAINER),
        ("b0a65c9acf6e", QUICK, ["test_maxtext_quick_run", "test_maxtext_quick_run_trains"]),
        ("8252784edf33", LLAMA2_7B_LINE, ["test_maxtext_llama2_7b_is_fsdp_over_the_nodes_gpus", "test_maxtext_line_trains"]),
        ("9430e80169f9", MAXTEXT_SBATCH, ["test_maxtext_script", "test_slurm_wrappers.test_maxtext", "test_slurm.test_every_array_task_finds_the_shared_scripts"]),
        ("2122b4aaada0", MAXTEXT_VARIABLES, ["test_maxtext_script", "test_slurm.test_maxtext_with_two_ranks_per_node_and_names_that_need_quotes"]),
        ("1d2c71300c0d", f'XLA_FLAGS="{XLA_FLAGS["maxtext"]}"', ["test_flash_attention_and_xla_flags_are_one_warning_each", "test_maxtext_line_trains"]),
    ],
    "MaxText": [
        ("2030dd2c80e5", "logName=", "a query of Cloud Logging"),
        ("277d721a7649", AOT_COMPILE, ["test_compilation_ahead_of_time"]),
        ("80dca05b3c34", AOT_SAVE, ["test_compilation_ahead_of_time"]),
        ("4b8dbedecc7e", AOT_LOAD, ["test_the_line_of_a_compiled_step", "test_compilation_ahead_of_time", "test_object_stores.test_the_line_of_a_compiled_step_trains_on_buckets"]),
    ],
    "Pax": [
        ("bb65f76289cb", "wget -P c4_sentencepiece", DOWNLOAD),
        ("134a84adeaea", "docker run -v", CONTAINER),
        ("fed286e84515", "docker run -ti --gpus=all", CONTAINER),
        ("7bf2012606c7", DOWNLOAD_PILE, ["test_downloads", "test_seed_scripts.test_cut_connections_resume_within_the_file"]),
        ("80e8dc199db3", "cd $(python", "shows Pax's source code"),
        ("4ebfc965952c", PILE_SINGLE, ["test_pax_pile_on_one_node", "test_pax_pile_on_one_node_trains"]),
        ("9c1c4c8cdd81", PILE_SINGLE_FP8, ["test_pax_pile_on_one_node", "test_pax_pile_on_one_node_trains"]),
        ("994d076c5849", LAMBADA, ["test_evaluation_scripts"]),
        ("f095da0ac4af", PILE_SBATCH, ["test_pax_pile_script", "test_slurm.test_pax_trains_the_pile"]),
        ("094dc4237771", "... --fdl_config=paxml.contrib.gpu.scripts_gpu.configs.Pile126M ...", ["test_pax_main_with_fdl_flags", "test_pax_main_trains"]),
        ("039a475d5193", "--fdl.<PARAM_NAME>=<NEW_VALUE>", ["test_pax_main_with_fdl_flags", "test_pax_main_trains"]),
        ("7aee5aa2ae71", "export ENABLE_TE=0", ["test_pax_variables_may_be_exported"]),
        ("9c1c4c8cdd81", PILE_SINGLE_FP8, ["test_pax_pile_on_one_node", "test_pax_pile_on_one_node_trains"]),
        ("927dbc0c2730", f'BASE_XLA_FLAGS="{XLA_FLAGS["pax"]}" bash run_pile_multinode.sh ...', ["test_pax_pile_on_several_nodes"]),
        ("d10f3f0b824f", CONVERT_LLAMA, ["test_converters", "test_entry_points.test_converters_make_what_a_run_loads"]),
        ("16ac24cc3289", CONVERT_TE, ["test_converters", "test_entry_points.test_converters_make_what_a_run_loads"]),
        ("ddedece53309", CONVERT_TE_70B, ["test_converters"]),
        ("4f211cfeea63", LLAMA_SBATCH, ["test_pax_llama_script", "test_slurm.test_pax_llama"]),
        ("0a6e72590296", LORA_SBATCH, ["test_pax_llama_script", "test_lora_trains_adapters"]),
        ("fe14ca1bfdbc", BASE_CONFIG_SBATCH, ["test_pax_base_configs", "test_slurm.test_pax_base_configs"]),
        ("501abdc0350c", "--fdl.DCN_MESH_SHAPE=[1,16,1]", ["test_pax_synthetic_5b"]),
        ("5245eb390a25", SYNTHETIC_SBATCH, ["test_pax_base_configs", "test_pax_line_trains_in_fp8"]),
        ("851e95926432", SYNTHETIC_5B_SBATCH, ["test_pax_synthetic_5b", "test_seed_scripts.test_launch_base_config_is_launch_base_script", "test_pax_line_trains_in_fp8"]),
    ],
    "AXLearn": [
        ("ded1bf36ead6", "docker run -ti --gpus=all", CONTAINER),
        ("6713355d70b3", FUJI_LINE, ["test_axlearn_fuji", "test_axlearn_line_trains", "test_object_stores.test_axlearns_line_trains_on_its_bucket"]),
        ("537e23cdfc99", f'XLA_FLAGS="{XLA_FLAGS["axlearn"]}"', ["test_flash_attention_and_xla_flags_are_one_warning_each", "test_axlearn_line_trains"]),
    ],
    "the Llama 2 70B recipe": [
        ("a3c3d4679cce", "grep 'completed step:'", ["test_maxtext_line_trains", "test_slurm.test_the_llama_recipe"]),
        ("ed3e52bec4c6", "(sequence length) * (global batch size)", ["test_figures_of_the_recipe"]),
        ("80b11883d115", "(total tokens)", ["test_figures_of_the_recipe"]),
        ("fbff27db961c", "MFU = (global batch size)", FORMULA),
        ("e4a95d2e01eb", "peak FLOPS for H100", FORMULA),
        ("ca5bb21690a6", "export STAGE_PATH", ["test_slurm.test_the_llama_recipe"]),
        ("9674dad397aa", RECIPE, ["test_recipe", "test_slurm.test_the_llama_recipe"]),
        ("868effb337ab", "model flops = (sequence length)", FORMULA),
    ],
}
# Texts of BLOCKS that are a part of their block.
PARTS = [text for blocks in BLOCKS.values() for _, text, holders in blocks if isinstance(holders, str)] + [
    CONVERT_LLAMA, "grep 'completed step:'", "(sequence length) * (global batch size)", "(total tokens)", "export STAGE_PATH"]
# The variables of the documents' sbatch lines, with values for <…>.
SLURM = {"PATH_TO_WORKSPACE": "{dir}", "ACCOUNT": "account", "PARTITION": "partition", "JOBNAME": "job"}


def variables_of(line, **values):
    """Returns the variables in front of sbatch, but for the image."""
    line = words(line, **SLURM, **values)
    return {name: value for name, value in (word.split("=", 1) for word in line[:line.index("sbatch")]) if name != "CONTAINER"}


PILE = variables_of(PILE_SBATCH, CONTAINER="image", PATH_TO_THE_PILE="/pile", PATH_TO_SENTENCEPIECE_MODEL="/vocab", LOG_DIR_LOCAL="logs", OUTPUT_DIR_LOCAL="out",
                    ENABLE_FP8="1")
SYNTHETIC = variables_of(SYNTHETIC_5B_SBATCH)
# Blocks that this version refuses: (command, the item that builds it, part of the error).
NOT_BUILT = [
    (words(PILE_SINGLE_FP8), "10", "this script calls muster itself; start it without muster run: "),
    (words(LAMBADA, TFDS_DATA_DIR="/data", VOCAB_PATH="/vocab", PRECISION="bfloat16", NUM_GPUS="8", PERCORE_BATCH_SIZE="4", LOGDIR="log_dir"), "10",
     "start it without muster run: bash "),
    (words(DOWNLOAD_PILE), "10", "start it without muster run: "),
    (["BASE_XLA_FLAGS=--xla_x", "bash", "run_pile_multinode.sh"], "10", "start it without muster run: BASE_XLA_FLAGS=--xla_x bash run_pile_multinode.sh;"),
]


class Seeds(MusterTest):
    def setUp(self):
        super().setUp()
        for name in ("CONFIG", "XLA_FLAGS", "NVTE_FUSED_ATTN"):
            self.env.pop(name, None)
        self.env["XDG_CACHE_HOME"] = str(self.dir / "cache")

    def show(self, *line, env=None):
        """Returns `muster config show --json` of a line."""
        return json.loads(self.muster("config", "show", "--json", *line, check=0, env=env).stdout)

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
        self.assertEqual((shown["nodes"], shown["ranks_per_node"]), (nodes, ranks), shown["warnings"])
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
        passed = self.dir / "words"
        (programs / "muster").write_text(f'#!/bin/sh\nshift 2\nprintf "%s\\n" "$@" > {passed}\n')
        (programs / "muster").chmod(0o755)
        passed.unlink(missing_ok=True)
        done = subprocess.run(["bash", WRAPPERS / name, *arguments], cwd=self.dir, capture_output=True, text=True, timeout=60, env={
            "PATH": os.environ["PATH"], "HOME": str(self.dir), "MUSTER_BIN_DIR": str(programs), "SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "job",
            "SLURM_JOB_NUM_NODES": str(nodes), **{key: value.format(dir=self.dir) for key, value in variables.items()}})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        line = [word for word in passed.read_text().splitlines() if word != "--insecure"]
        if "--ranks-per-node" not in line:
            line += ["--ranks-per-node", "8"]  # sbatch's --ntasks-per-node
        return [*line, "--nodes", str(nodes)]

    # ------------------------------------------------------------------ the list of blocks

    def test_every_block_has_tests_that_exist(self):
        self.assertEqual({document: len(blocks) for document, blocks in BLOCKS.items()},
                         {"JAX-Toolbox's MaxText": 6, "MaxText": 4, "Pax": 23, "AXLearn": 3, "the Llama 2 70B recipe": 8})
        folder = pathlib.Path(__file__).parent
        for document, blocks in BLOCKS.items():
            for _, block, holders in blocks:
                for holder in [] if isinstance(holders, str) else holders:
                    file, _, method = holder.rpartition(".")
                    text = (folder / f"{file or 'test_seeds'}.py").read_text()
                    with self.subTest(document=document, block=block):
                        self.assertTrue(f"    def {method}(self" in text, f"{holder} does not exist")
        self.assertTrue((SOURCE / FORMULA).exists())

    def test_complete_blocks_have_the_text_of_the_documents(self):
        for document, blocks in BLOCKS.items():
            for digest, text, _ in blocks:
                if text in PARTS:
                    continue
                with self.subTest(document=document, block=text):
                    self.assertEqual(digest, digest_of(text))

    def test_the_documents_have_these_blocks(self):
        """Compares with the documents where they are beside the source tree."""
        folder = next((path for up in (1, 2) for path in [SOURCE.resolve().parents[up - 1] / "shared/seeds"] if path.is_dir()), None)
        if folder is None:
            self.skipTest("the documents are not beside the source tree")
        found = {}
        for path in sorted(folder.glob("*.txt")):
            blocks = [joined(block) for block in re.findall(r"^```[^\n]*\n(.*?)^```", path.read_text(), re.M | re.S)]
            found[tuple(digest_of(block) for block in blocks)] = blocks
        for document, blocks in BLOCKS.items():
            digests = tuple(digest for digest, _, _ in blocks)
            with self.subTest(document=document):
                self.assertIn(digests, found)
                for (_, text, _), block in zip(blocks, found[digests]):
                    self.assertIn(joined(text), block)

    def test_rows_of_what_is_absent_are_in_the_readme(self):
        readme = (SOURCE / "README.md").read_text()
        missing = " ".join(readme[readme.index("## What is not there yet"):readme.index("## Figures")].split())
        rows = [row for row in (SOURCE / "docs/coming-from.md").read_text().splitlines() if row.startswith("| ")]
        # A part of a row of docs/coming-from.md that states what is absent: the words of README's
        # list. None: refused for good, with a way that the row names.
        absent = {"three-pass names": "three-pass values of `matmul_precision`", "the 1160B model": "1160B model",
                  "no ArrayRecord, and nothing is downloaded from the Hub": "ArrayRecord files, downloads from the Hugging Face Hub",
                  "an unknown Fuji name": None,
                  "`--lora-input-adapters-path`": None, "`TFDS_DATA_DIR=…` with several data sets": None, "`bash run_pile_singlenode.sh …`": None}
        for part, words_of_readme in absent.items():
            self.assertTrue(any(part in row for row in rows), part)
            if words_of_readme is not None:
                self.assertIn(words_of_readme, missing)
        for row in rows:
            if re.search("not built yet|refused|no ArrayRecord|keys of its own", row):
                self.assertTrue(any(part in row for part in absent), f"README's list has nothing about: {row}")

    # ------------------------------------------------------------------ JAX-Toolbox's MaxText

    def test_maxtext_quick_run(self):
        self.gpus(*EIGHT_GPUS)
        shown = self.show(*words(QUICK, **JOB))
        self.assert_resolves(shown, ranks=8, output=self.dir / "job", dtype="bfloat16", ici_fsdp_parallelism=8, per_device_batch_size=12.0, steps=150001)

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
        # hardware=gpu: on this machine's CPU, dtype would depend on its speed.
        bare = self.show(*self.wrapper("example_slurm.sub", {}, 1), "hardware=gpu")
        self.assert_resolves(bare, ranks=8, output=self.dir / "local_train/job-7", dtype="bfloat16", global_batch_size=16, steps=15)
        given = variables_of(MAXTEXT_VARIABLES, CONTAINER="image", PATH_TO_THE_PILE="/pile", PATH_TO_SENTENCEPIECE_MODEL="/vocab", LOG_DIR_LOCAL="logs",
                             OUTPUT_DIR_LOCAL="out")
        line = self.wrapper("example_slurm.sub", {**given, "PREC": "bfloat16"}, 1)
        self.assert_resolves(self.show(*line), ranks=8, output=self.dir / "logs/job-7", dtype="bfloat16", per_device_batch_size=2.0, global_batch_size=16,
                             ici_fsdp_parallelism=8, steps=15, enable_checkpointing=False, remat_policy="minimal_with_context")

    # ------------------------------------------------------------------ MaxText

    def test_compilation_ahead_of_time(self):
        exported = {"LIBTPU_INIT_ARGS": "--xla_enable_async_all_gather=true"}
        saved = ["compiled_trainstep_file=my_compiled_train.pickle", "global_parameter_scale=16", "per_device_batch_size=4", "steps=10000", "learning_rate=1e-3"]
        for line, saves in ((AOT_COMPILE, False), (AOT_SAVE, True)):
            planned = self.muster("run", *words(line), check=0, env=exported)
            for text in ("2 nodes of 256 × TPU v5e", "data=2 fsdp=256 (512 ranks), 2,048 sequences", "it fits: "):
                self.assertIn(text, planned.stdout)
            self.assertEqual("saved the plan in" in planned.stderr, saves)
        # The line that loads it trains, without the compiled function; two slices of 256 chips.
        shown = self.show(*MAXTEXT, "run_name=example_load_compile", *saved, "base_output_directory=out", "hardware=gpu", "--nodes", "64",
                          "--ranks-per-node", "8", env=exported)
        self.assert_resolves(shown, ranks=8, nodes=64, output=self.dir / "out/example_load_compile", dtype="bfloat16", steps=10000, learning_rate=1e-3,
                             global_parameter_scale=16, per_device_batch_size=4.0, global_batch_size=2048)
        for name, times in (("compiled_trainstep_file", 0), ("LIBTPU_INIT_ARGS", 1)):
            self.assertEqual(sum(name in warning for warning in shown["warnings"]), times, shown["warnings"])

    def test_the_line_of_a_compiled_step(self):
        """gs:// for both paths, and no dataset_type, which is c4 then, as in MaxText."""
        self.gpus(*EIGHT_GPUS)
        shown = self.show(*words(AOT_LOAD), "--nodes", "64", "--ranks-per-node", "8", "hardware=gpu", env={"LIBTPU_INIT_ARGS": "--xla_x"})
        self.assert_resolves(shown, ranks=8, nodes=64, output="gs://my-output-bucket/example_load_compile", dtype="bfloat16", dataset_type="c4",
                             dataset_path="gs://my-dataset-bucket", steps=10000, learning_rate=1e-3, global_parameter_scale=16, global_batch_size=2048)
        self.assertEqual(shown["settings"]["dataset_type"]["origin"], "MaxText's default for a dataset_path")
        changed = json.loads(self.muster("config", "show", "--changed", "--json", *words(AOT_LOAD), check=0).stdout)["settings"]
        self.assertEqual(set(changed), {"run_name", "compiled_trainstep_file", "global_parameter_scale", "per_device_batch_size", "steps", "learning_rate",
                                        "base_output_directory", "dataset_path"})

    def test_a_data_set_without_a_type_trains(self):
        """Token shards, or text that is tokenized at its first use."""
        shards, tokenizer = self.make_shards()
        for name, path in (("shards", shards), ("text", self.dir / "text.txt")):
            result = self.muster("run", *MAXTEXT, f"run_name={name}", *TINY, "steps=3", "hardware=cpu", "enable_checkpointing=false", f"dataset_path={path}",
                                 f"tokenizer_path={tokenizer}", "vocab_size=320", check=0)
            self.assert_trains(result.stdout, 3)
            self.assertEqual(result.stderr.count("tokenised"), 1 if name == "text" else 0, result.stderr)
        self.assertIn("tokenizer_path is empty", self.muster("run", *MAXTEXT, "run_name=no", *TINY, f"dataset_path={self.dir}/text.txt", check=2).stderr)
        # MaxText's placeholder, without the type that makes it one.
        self.assertIn("no such file or folder: " + str(self.dir / "local") + "; give the data's folder, or dataset_type=synthetic",
                      self.muster("run", *MAXTEXT, "run_name=no", *TINY, "dataset_path=local", check=2).stderr)

    # ------------------------------------------------------------------ Pax

    def test_lora_trains_adapters(self):
        self.make_boolq()
        line = variables_of(LORA_SBATCH, CONTAINER="image", PWD=str(self.dir), PATH_TO_BOOLQ=str(self.dir), PATH_TO_LLAMA_TOKENIZER="/vocab",
                            PATH_TO_PRETRAINED_CHECKPOINT="/pretrained")
        mlp = ["gate_proj", "up_proj", "down_proj"]
        lora = {"enable_lora": True, "lora_rank": 32, "lora_alpha": 32, "lora_targets": ["q_proj", "k_proj", "v_proj", "o_proj", *mlp]}
        shown = self.show(*self.wrapper("example_slurm_llama.sub", line, 2))
        self.assert_resolves(shown, ranks=8, nodes=2, load_parameters_path="/pretrained", steps=600, learning_rate=1e-4, **lora)
        shown = self.show(*self.wrapper("example_slurm_llama.sub", {**line, "LORA_RANK": "8", "LORA_TARGET_LAYERS": "mlp"}, 2))
        self.assert_resolves(shown, ranks=8, nodes=2, **{**lora, "lora_rank": 8, "lora_alpha": 8, "lora_targets": mlp})

    def test_downloads(self):
        data = {"TFDS_DATA_DIR": str(self.dir / "datasets"), "MUSTER_FETCH_PAUSE_S": "0.01"}
        refused = self.script("download_the_pile.py", env=data, check=1)
        self.assertIn(f"into {self.dir}/datasets/the_pile", refused.stdout + refused.stderr)

    def test_pax_pile_on_one_node(self):
        given = words(PILE_SINGLE_FP8)[3:]
        self.assertEqual(given, words(PILE_SINGLE, TFDS_DATA_DIR="/opt/paxml/datasets", VOCAB_PATH="/opt/paxml/vocab", PRECISION="bfloat16", NUM_GPUS="8",
                                      PERCORE_BATCH_SIZE="4", LOGDIR="log_dir")[2:])
        for fp8 in ("0", "1"):
            shown = json.loads(self.script("run_pile_singlenode.sh", *given, env={"ENABLE_FP8": fp8}).stdout)
            self.assert_resolves(shown, ranks=8, output=self.dir / "log_dir", dtype="bfloat16", quantization="fp8" if fp8 == "1" else "",
                                 per_device_batch_size=4.0, global_batch_size=32, ici_data_parallelism=8, dataset_path="/opt/paxml/datasets",
                                 tokenizer_path="/opt/paxml/vocab", steps=600000, packing=False)

    def test_pax_pile_on_several_nodes(self):
        shards, tokenizer = self.make_shards()
        done = self.script("run_pile_multinode.sh", shards, tokenizer, "float32", 2, 1, "logs", *TINY_PAX, env={"BASE_XLA_FLAGS": XLA_FLAGS["pax"]}, runs=True)
        self.assert_trains(done.stdout, 3)
        self.assertEqual((done.stdout + done.stderr).count("warning: BASE_XLA_FLAGS="), 1, done.stderr)

    def test_evaluation_scripts(self):
        """Lambada of a run of the Pile's script, and BoolQ of a small LLaMA, on small data of the
        same formats.
        """
        shards, tokenizer = self.make_shards()
        self.script("run_pile_singlenode.sh", shards, tokenizer, "float32", 2, 1, self.dir / "logs", *TINY_PAX, runs=True)
        (self.dir / "lambada").mkdir()
        (self.dir / "bool_q").mkdir()
        texts = ["In the beginning was the word", "the word was with many others", "In the beginning was the house"]
        (self.dir / "lambada/lambada_test_en.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        questions = [{"passage": "In the beginning", "question": "was it the word", "title": "Word", "answer": i % 2 == 0} for i in range(4)]
        (self.dir / "bool_q/dev.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))
        line = words(LAMBADA, TFDS_DATA_DIR=str(self.dir), VOCAB_PATH=str(tokenizer), PRECISION="float32", NUM_GPUS="2", PERCORE_BATCH_SIZE="1",
                     LOGDIR=str(self.dir / "logs"))
        done = self.script("run_lambada_singlenode.sh", *line[2:], *TINY_PAX[:-3], *TINY_PAX[-2:], runs=True)
        self.assertRegex(done.stdout, r"(?m)^lambada +acc +\d\.\d{4} ± \S+ +3 +\d+$")
        results = json.loads((self.dir / "logs/evaluations/results-3.json").read_text())
        self.assertEqual(results["results"]["lambada"]["samples"], 3)
        boolq = {"VOCAB_PATH": str(tokenizer), "TFDS_DATA_DIR": str(self.dir), "CHECKPOINT_RESTORE_PATH": str(self.dir / "llama"), "EVAL_ONLY": "1", "NUM_GPUS": "2",
                 "LOG_DIR": str(self.dir / "boolq"), "PREC": "float32", "PERCORE_BATCH_SIZE": "1"}
        tiny = [word for word in TINY_PAX if not word.startswith("--fdl.LR_COS")]
        self.muster("run", "CONFIG=LLaMA7B", "LOG_DIR=llama", "PREC=float32", "PERCORE_BATCH_SIZE=1", "--fdl.ICI_MESH_SHAPE=[1,1,1]", "dataset_type=synthetic",
                    *tiny, check=0)
        tiny.remove("--fdl.MAX_STEPS=3")
        done = self.script("run_llama_boolq.sh", *tiny, "max_target_length=128", env=boolq, runs=True)
        self.assertRegex(done.stdout, r"(?m)^boolq +acc +0\.5000 ± \S+ +4 +\d+$")

    def make_boolq(self):
        """Makes empty files of BoolQ in the folder of the test."""
        (self.dir / "bool_q").mkdir()
        for name in ("train.jsonl", "dev.jsonl"):
            (self.dir / "bool_q" / name).touch()

    def test_pax_llama_script(self):
        self.make_boolq()
        line = variables_of(LLAMA_SBATCH, CONTAINER="image", PATH_TO_BOOLQ=str(self.dir), PATH_TO_LLAMA_TOKENIZER="/vocab", OUTPUT_DIR_LOCAL="out", EVAL_ONLY="0",
                            USE_LORA="0", PATH_TO_PRETRAINED_CHECKPOINT="/pretrained", DIR_TO_STORE_NEW_CHECKPOINTS_AND_LOGS="logs", LLaMA_CONFIG="LLaMA7B",
                            ENABLE_TE="1", NUM_NODES="2")
        boolq = {**line, "PREC": "bfloat16"}
        for config, parameters in (("LLaMA7B", 6_738_415_616), ("LLaMA13B", 13_015_864_320), ("LLaMA70B", 68_976_648_192)):
            shown = self.show(*self.wrapper("example_slurm_llama.sub", {**boolq, "CONFIG": config}, 2))
            self.assert_resolves(shown, ranks=8, nodes=2, dtype="bfloat16", global_batch_size=32, max_target_length=4096, output=self.dir / "logs",
                                 load_parameters_path="/pretrained", dataset_path=str(self.dir / "logs/boolq/tokens"), use_sft=True, tokenizer_path="/vocab", steps=1000,
                                 learning_rate=1e-6, learning_rate_warmup_steps=500, eval_tasks=f"boolq={self.dir}/bool_q/dev.jsonl")
            self.assertEqual(shown["parameters"], parameters)
        shown = self.show(*self.wrapper("example_slurm_llama.sub", {**boolq, "EVAL_ONLY": "1"}, 2))
        self.assert_resolves(shown, ranks=8, nodes=2, eval_only=True, eval_tasks=f"boolq={self.dir}/bool_q/dev.jsonl", eval_bos_id=1, eval_add_bos=True,
                             load_parameters_path="/pretrained", tokenizer_path="/vocab")

    def test_pax_base_configs(self):
        for config, nodes, batch, fp8 in (("GPT126M", 8, 4, "0"), ("GPT5B", 32, 8, "1"), ("GPT175B", 32, 6, "1"), ("GLaM126M64E", 8, 8, "0"),
                                          ("GLaM64B64E", 64, 4, "0"), ("Synthetic126M", 8, 4, "0"), ("Synthetic5B", 32, 8, "0"),
                                          ("Synthetic175B", 32, 6, "1")):
            if config.startswith("Synthetic"):
                variables = variables_of(SYNTHETIC_SBATCH.replace("Synthetic<126M, 5B, 175B>", config), OUTPUT_DIR="out", ENABLE_TE="1", ENABLE_FP8=fp8,
                                         LOG_DIR="logs", NODES=str(nodes), TIME_LIMIT="1:00")
            else:
                variables = variables_of(BASE_CONFIG_SBATCH, CONTAINER="image", CONFIG_NAME=config, PATH_TO_THE_PILE="/pile",
                                         PATH_TO_SENTENCEPIECE_MODEL="/vocab", LOG_DIR_LOCAL="logs", OUTPUT_DIR_LOCAL="out", PRECISION="bfloat16",
                                         GPUS_PER_NODE="8", ENABLE_TE="1", ENABLE_FP8=fp8, NUM_NODES=str(nodes))
            with self.subTest(config=config):
                shown = self.show(*self.wrapper("launch_base_script.sub", variables, nodes))
                self.assert_resolves(shown, ranks=8, nodes=nodes, dtype="bfloat16", output=self.dir / "logs", quantization="fp8" if fp8 == "1" else "",
                                     global_batch_size=8 * nodes * batch, max_target_length=2048,
                                     dataset_type="synthetic" if config.startswith("Synthetic") else shown["settings"]["dataset_type"]["value"])

    def test_converters(self):
        given = {"meta checkpoint path": str(META), "path to save checkpoint to": str(self.dir / "pax"), "7b, 13b, or 70b": "7b"}
        line = words(CONVERT_LLAMA, **given)
        # The files are those of a tiny model, not of the 7B one.
        self.assertIn("--model-size 7b requires base_num_decoder_layers=32, but ", self.muster("run", *line, check=2).stderr)
        self.assertEqual(line[-2:], ["--model-size", "7b"])
        self.muster("run", *line[:-2], check=0)
        grouped = [word.replace("--num-gqa-groups=8", "--num-gqa-groups=4") for word in words(CONVERT_TE_70B)]
        for name, more in (("te", []), ("grouped", grouped)):
            line = CONVERT_TE.replace("/your_path_to_src_ckpt", f"{self.dir}/pax").replace("/your_path_to_output_ckpt", f"{self.dir}/{name}")
            self.muster("run", *words(line, NUM_LAYERS="2", NUM_HEADS="4", DIMS_PER_HEAD="4", MLP_DIM="44"), *more, check=0)
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
        line = words(FUJI_LINE, CONFIG="fuji-3B-v3-flash-single-host", TRAINER_DIR="trainer")
        self.assert_resolves(self.show(*line), ranks=8, output=self.dir / "trainer", dataset_path="gs://axlearn-public/tensorflow_datasets",
                             ici_fsdp_parallelism=8, global_batch_size=16)

    # ------------------------------------------------------------------ the Llama 2 70B recipe

    def test_recipe(self):
        # Each column of the tables: GPUs, and the nodes along FSDP and data.
        for gpus, fsdp, data in ((64, 8, 1), (128, 16, 1), (256, 32, 1), (512, 16, 4), (1024, 16, 8), (2048, 16, 16)):
            for dtype, quantization in (("bf16", ""), ("fp8", "fp8")):
                with self.subTest(gpus=gpus, dtype=dtype):
                    given = variables_of(RECIPE, SBATCH_ACCOUNT="a", SBATCH_PARTITION="p", NUM_NODES=str(gpus // 8), STAGE_PATH="{dir}", **{"fp8/bf16": dtype})
                    shown = self.show(*self.wrapper("launch.sh", {"STAGE_PATH": "{dir}", **given}, gpus // 8))
                    self.assert_resolves(shown, ranks=8, nodes=gpus // 8, dtype="bfloat16", quantization=quantization, ici_fsdp_parallelism=8,
                                         dcn_fsdp_parallelism=fsdp, dcn_data_parallelism=data, per_device_batch_size=2.0, global_batch_size=2 * gpus,
                                         max_target_length=4096, steps=50)
                    self.assertEqual(shown["parameters"], 68_976_648_192)

    # ------------------------------------------------------------ what is not built, and precision

    def test_what_is_not_built_is_refused(self):
        for line, item, error in NOT_BUILT:
            with self.subTest(line=line, item=item):
                self.assertIn(error, self.muster("run", *line, check=2).stderr)

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

    def test_dcn_mesh_shape_trains_on_two_nodes(self):
        """Data parallelism between two nodes of two ranks, FSDP inside them."""
        coordinator = self.start_coordinator()
        for name in ("node0", "node1"):
            self.start_worker(coordinator, name, 2)
        line = ["CONFIG=Synthetic126M", "--fdl.ICI_MESH_SHAPE=[1,2,1]", "--fdl.DCN_MESH_SHAPE=[2,1,1]", f"LOG_DIR={self.dir}/dcn", "hardware=cpu",
                "--fdl.PERCORE_BATCH_SIZE=1", *TINY_PAX, "--nodes", "2", "--ranks-per-node", "2"]
        result = self.muster("submit", *line, "--follow", check=0)
        self.assert_trains(result.stdout, 3)
        shown = json.loads(self.muster("config", "show", *line, "--json", check=0).stdout)["train_config"]
        self.assertEqual((shown["dcn_data_parallelism"], shown["ici_fsdp_parallelism"]), (2, 2))
        job = self.job(1)
        self.assertEqual(sorted({rank["worker"] for rank in job["placement"]}), ["node0", "node1"])
        wrong = [word.replace("[2,1,1]", "[4,1,1]") for word in line]
        self.assertIn("--fdl.DCN_MESH_SHAPE=[4,1,1], which are the degrees [data,fsdp,tensor]: dcn_data=4: the degrees multiply to 4 but there are 2 nodes",
                      self.muster("submit", *wrong, check=2).stderr)

    def test_maxtext_line_trains(self):
        tiny = [word for word in TINY if not word.startswith("dtype=")]
        line = [*(word for word in LLAMA2_7B if not word.startswith(("hardware=", "steps=", "per_device", "max_target"))), *tiny, "steps=3", "hardware=cpu"]
        result = self.muster("run", *line, check=0, env={"XLA_FLAGS": XLA_FLAGS["maxtext"], "NVTE_FUSED_ATTN": "1"})
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
