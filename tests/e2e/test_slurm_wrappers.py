"""The wrappers' variables for MaxText, Pax and the Llama recipe: each has its effect, or causes one
warning.

No Slurm is needed: a wrapper is a shell script that executes `muster slurm run`. Here `muster slurm
submit --dry-run` checks the same arguments.
"""
import os
import shlex
import subprocess
import unittest

from harness import BIN, MusterTest
from slurm_case import WRAPPERS

STAND_IN = f"""#!/bin/bash
if [ "$1" = tokenize ]; then printf '%s\\n' "$@" > "$WORDS.tokenize"; exit; fi
[ "$1 $2" = "slurm run" ] || exit 99
shift 2
printf '%s\\n' "$@" > "$WORDS"
exec {shlex.quote(str(BIN / "muster"))} slurm submit --dry-run "$@"
"""
# Variables without effect: those of XLA, of Transformer Engine, and of fine-tuning in a run without
# it.
NO_EFFECT = {"NVTE_FUSED_ATTN": "1", "XLA_FLAGS": "--xla_gpu_graph_level=0", "BASE_XLA_FLAGS": "--xla_x", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.9",
             "LORA_RANK": "32", "LORA_TARGET_LAYERS": "all"}
PAX_NO_EFFECT = {"ENABLE_TE": "1", "PAXML_DIR": "/opt/paxml", "BASE_SCRIPT": "run.sh", "MODEL": "llama2-7b", "RUN_NAME": "first", "MAXTEXT_DIR": "/opt/maxtext"}


class SlurmWrapperVariables(MusterTest):
    def run_wrapper(self, name, variables, *arguments, env=None):
        """Runs a wrapper without other variables of a job. Returns (exit code, output, the
        arguments of `muster slurm run`).
        """
        programs = self.dir / "programs"
        programs.mkdir(exist_ok=True)
        (programs / "muster").write_text(STAND_IN)
        (programs / "muster").chmod(0o755)
        words = self.dir / "words"
        outputs = lambda: [path for pattern in ("**/output-7-0-0.txt", "**/log-maxtext-*_7.out") for path in self.dir.glob(pattern)]  # noqa: E731
        for path in (words, *outputs()):
            path.unlink(missing_ok=True)
        result = subprocess.run(["bash", WRAPPERS / name, *map(str, arguments)], cwd=self.dir, capture_output=True, text=True, timeout=60, env={
            "PATH": os.environ["PATH"], "HOME": str(self.dir), "MUSTER_BIN_DIR": str(programs), "WORDS": str(words), "SLURM_JOB_ID": "7",
            "SLURM_JOB_NAME": "maxtext:test", "SLURM_JOB_NUM_NODES": "4", **variables, **(env or {})})
        printed = result.stdout + result.stderr + "".join(path.read_text() for path in outputs())
        return result.returncode, printed, words.read_text().splitlines() if words.exists() else []

    def check(self, name, works, no_effect, *arguments):
        """Checks each variable. `works`: {variable: (value, the arguments that it becomes)}."""
        variables = {**{variable: value for variable, (value, _) in works.items()}, **no_effect}
        code, printed, words = self.run_wrapper(name, variables, *arguments)
        self.assertEqual(code, 0, printed)
        line = "\n".join(words) + "\n"
        for variable, (_, becomes) in works.items():
            for word in becomes:
                self.assertIn(f"{word}\n", line, f"{variable} in {name}")
            self.assertNotIn(f"warning: {variable}=", printed, name)
        for variable, value in no_effect.items():
            self.assertEqual(printed.count(f"warning: {variable}={value} has no effect: "), 1, f"{variable} in {name}:\n{printed}")
        # Without these variables there are no warnings.
        code, printed, _ = self.run_wrapper(name, {variable: works[variable][0] for variable in ("CONFIG", "STAGE_PATH", "DTYPE") if variable in works}, *arguments)
        self.assertEqual(code, 0, printed)
        self.assertEqual([variable for variable in variables if f"warning: {variable}=" in printed], [], printed)
        # The kinds of jobs that Muster does not have.
        if name != "example_slurm_llama.sub":
            code, printed, words = self.run_wrapper(name, {**variables, "EVAL_ONLY": "1"}, *arguments)
            self.assertEqual((code, words), (3, []), printed)
            self.assertRegex(printed, "not built yet: EVAL_ONLY=1: .*evaluation")
        code, printed, words = self.run_wrapper(name, {**variables, "USE_LORA": "true"}, *arguments)
        if name == "example_slurm_llama.sub":
            self.assertEqual(code, 0, printed)
            self.assertLessEqual({"USE_LORA=true", "LORA_RANK=32", "LORA_TARGET_LAYERS=all"}, set(words), printed)
            self.assertNotIn("LORA_RANK=32 has no effect", printed)
        else:
            self.assertEqual((code, words), (2, []), printed)
            self.assertIn("USE_LORA=true: this script does not fine-tune", printed)

    def common_variables(self):
        """Returns the variables that all scripts of JAX-Toolbox have."""
        work, data, vocabulary = self.dir / "the work", self.dir / "the pile", self.dir / "a vocabulary"
        data.mkdir()
        (data / "index.json").touch()
        return work, data, vocabulary, {
            "CONTAINER": ("image.sqsh", ["--container\nimage.sqsh", *(f"--container-mounts\n{path}:{path}" for path in (work, data, vocabulary))]),
            "GPUS_PER_NODE": ("2", ["--ranks-per-node\n2"])}

    def test_maxtext(self):
        work, data, vocabulary, common_variables = self.common_variables()
        self.check("example_slurm.sub", {
            **common_variables, "BASE_WORKSPACE_DIR": (str(work), []), "LOG_DIR_LOCAL": ("the logs", [f"base_output_directory={work}/the logs"]),
            "OUTPUT_DIR": ("the output", []), "BASE_TFDS_DATA_DIR": (str(data), [f"dataset_path={data}", "dataset_type=shards"]),
            "BASE_VOCAB_PATH": (str(vocabulary), [f"tokenizer_path={vocabulary}"]), "PREC": ("float32", ["dtype=float32"]),
            "PERCORE_BATCH_SIZE": ("3", ["per_device_batch_size=3"]), "ENABLE_FP8": ("1", ["quantization=fp8"]),
            "BASE_CHECKPOINT_RESTORE_PATH": ("/pre/trained", ["load_parameters_path=/pre/trained"]), "MODEL": ("llama2-13b", ["model_name=llama2-13b"]),
            "RUN_NAME": ("first", ["run_name=first"])},
            {**NO_EFFECT, "ENABLE_TE": "1", "MAXTEXT_DIR": "/opt/maxtext", "CONFIG": "LLaMA7B", "PAXML_DIR": "/opt/paxml", "BASE_SCRIPT": "run.sh"})
        _, _, words = self.run_wrapper("example_slurm.sub", {"ENABLE_FP8": "0", "EVAL_ONLY": "0", "USE_LORA": "0", "OUTPUT_DIR": "the output", "RUN_NAME": "first"},
                                       "--spares", 1, "steps=3")
        self.assertTrue((self.dir / "the output/first/output-7-0-0.txt").exists())
        self.assertFalse([word for word in words if word.startswith("quantization")])
        self.assertEqual(words[-3:], ["--spares", "1", "steps=3"])

    def test_pax(self):
        work, data, vocabulary, common_variables = self.common_variables()
        pax = {**common_variables, **{name: (value, [f"{name}={value}"]) for name, value in (
            ("BASE_WORKSPACE_DIR", work), ("LOG_DIR_LOCAL", "the_logs"), ("BASE_TFDS_DATA_DIR", data), ("BASE_VOCAB_PATH", vocabulary), ("PREC", "float32"),
            ("PERCORE_BATCH_SIZE", "3"), ("ENABLE_FP8", "1"))}, "OUTPUT_DIR": ("the output", [])}
        pax = {name: (str(value), words) for name, (value, words) in pax.items()}
        restore = {"BASE_CHECKPOINT_RESTORE_PATH": ("/pre/trained", ["BASE_CHECKPOINT_RESTORE_PATH=/pre/trained"])}
        self.check("example_slurm_pile.sub", {**pax, **restore}, {**NO_EFFECT, **PAX_NO_EFFECT, "CONFIG": "GPT5B"})
        self.run_wrapper("example_slurm_pile.sub", {"BASE_WORKSPACE_DIR": str(work), "OUTPUT_DIR": "the output"})
        self.assertTrue((work / "the output/output-7-0-0.txt").exists())
        self.check("launch_base_script.sub", {**pax, **restore, "CONFIG": ("GPT126M", ["CONFIG=GPT126M"])}, {**NO_EFFECT, **PAX_NO_EFFECT})
        # BASE_TFDS_DATA_DIR has BoolQ, of which it makes tokens.
        (data / "bool_q").mkdir()
        for split in ("train", "dev"):
            (data / f"bool_q/{split}.jsonl").write_text('{"question": "is it so", "title": "T", "answer": true, "passage": "It is so."}\n')
        tokens = f"{work}/the_logs/boolq/tokens"
        llama = {**pax, **restore, "CONFIG": ("LLaMA13B", ["CONFIG=LLaMA13B"]), "BASE_TFDS_DATA_DIR": (
            str(data), [f"dataset_path={tokens}", "use_sft=True", f"eval_tasks=boolq={data}/bool_q/dev.jsonl"])}
        self.check("example_slurm_llama.sub", llama, {**NO_EFFECT, **PAX_NO_EFFECT})
        made = (self.dir / "words.tokenize").read_text().splitlines()
        self.assertEqual(made[1:], ["--sft", "--bos", "--text", f"{work}/the_logs/boolq/train.jsonl", "--tokenizer", str(vocabulary), "--out", tokens])
        # The defaults are those of Pax's run_llama_boolq.sh, and its variables replace them.
        fine_tuning = {name: llama[name][0] for name in ("BASE_WORKSPACE_DIR", "BASE_TFDS_DATA_DIR", "BASE_VOCAB_PATH", "LOG_DIR_LOCAL")}
        for variables, expected in (
                ({}, {"PERCORE_BATCH_SIZE=2", "--fdl.MAX_SEQ_LEN=4096", "--fdl.MAX_STEPS=1000", "--fdl.LEARNING_RATE=1e-6",
                      "--fdl.LR_SCHEDULE=linear_rampup_cosine_decay", "--fdl.LR_COS_WARMUP=500"}),
                ({"USE_LORA": "1"}, {"USE_LORA=1", "--fdl.MAX_STEPS=600", "--fdl.LEARNING_RATE=1e-4", "--fdl.LR_SCHEDULE=constant"}),
                ({"MAX_STEPS": "7", "DCN_MESH_SHAPE": "[1,1,1]"}, {"--fdl.MAX_STEPS=7", "--fdl.DCN_MESH_SHAPE=[1,1,1]"})):
            for variable in ("BASE_CHECKPOINT_RESTORE_PATH", "BASE_CHECKPOINT_DIR"):
                code, printed, words = self.run_wrapper("example_slurm_llama.sub", {**fine_tuning, **variables, variable: "/pre/trained"})
                self.assertEqual(code, 0, printed)
                self.assertLessEqual({"BASE_CHECKPOINT_RESTORE_PATH=/pre/trained", *expected}, set(words), printed)
        code, printed, _ = self.run_wrapper("example_slurm_llama.sub", {"BASE_TFDS_DATA_DIR": str(data)})
        self.assertEqual(code, 2, printed)
        self.assertIn("BASE_VOCAB_PATH is not set", printed)

    def test_scripts_outside_slurm_print_how_to_submit_them(self):
        for name in ("example_slurm.sub", "example_slurm_llama.sub", "example_slurm_pile.sub", "launch_base_script.sub", "launch_base_config.sub", "launch.sh"):
            done = subprocess.run(["bash", WRAPPERS / name], cwd=self.dir, capture_output=True, text=True, timeout=60,
                                  env={"PATH": os.environ["PATH"], "MUSTER_BIN_DIR": str(BIN)})
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("not in a Slurm job: submit it with sbatch", done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_the_llama_recipe(self):
        stage = self.dir / "the stage"
        recipe = {"STAGE_PATH": (str(stage), [f"base_output_directory={stage}/results/25.05/fp8/70b/32/runs"]), "DTYPE": ("fp8", ["quantization=fp8"]),
                  "GSW_VERSION": ("25.05", []), "JOB_TOTAL_GPUS": ("32", []), "CONTAINER": ("image.sqsh", ["--container\nimage.sqsh"]),
                  "GPUS_PER_NODE": ("8", ["--ranks-per-node\n8"])}
        others = {name: "/nowhere" for name in ("PREC", "ENABLE_FP8", "PERCORE_BATCH_SIZE", "CONFIG", "BASE_TFDS_DATA_DIR", "BASE_VOCAB_PATH", "LOG_DIR_LOCAL",
                                                "OUTPUT_DIR", "BASE_WORKSPACE_DIR", "BASE_CHECKPOINT_RESTORE_PATH", "ENABLE_TE", "MODEL", "RUN_NAME",
                                                "MAXTEXT_DIR", "PAXML_DIR", "BASE_SCRIPT")}
        self.check("launch.sh", recipe, {**NO_EFFECT, **others})
        self.run_wrapper("launch.sh", {name: value for name, (value, _) in recipe.items()})
        self.assertTrue((stage / "results/25.05/fp8/70b/32/log-maxtext-32_70b_7.out").exists())
        # Exactly the variables on the recipe's page.
        code, printed, words = self.run_wrapper("launch.sh", {"STAGE_PATH": str(stage), "DTYPE": "bf16"})
        self.assertEqual(code, 0, printed)
        self.assertTrue((stage / "results/25.02/bf16/70b/32/log-maxtext-32_70b_7.out").exists())
        for word in ("model_name=llama2-70b", "steps=50", "per_device_batch_size=2", "max_target_length=4096", "dtype=bfloat16", "dataset_type=synthetic"):
            self.assertIn(word, words)
        code, printed, words = self.run_wrapper("launch.sh", {"STAGE_PATH": str(stage), "DTYPE": "bf16", "JOB_TOTAL_GPUS": "512"})
        self.assertIn("JOB_TOTAL_GPUS=512 names the folder of the results, but 4 nodes with 8 ranks each train", printed)
        self.assertIn("dcn_fsdp_parallelism=-1", words)
        code, printed, _ = self.run_wrapper("launch.sh", {"STAGE_PATH": str(stage)})
        self.assertEqual(code, 2)
        self.assertIn("DTYPE=: bf16 or fp8 is required", printed)


if __name__ == "__main__":
    unittest.main()
