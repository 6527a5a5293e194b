"""The scripts that MaxText's, Pax's and AXLearn's pages name.

The tests cover their positional arguments, and downloads from a server on loopback.
"""
import hashlib
import http.server
import json
import os
import pathlib
import re
import shlex
import subprocess
import threading
import unittest

from harness import BIN, SOURCE, MusterTest

SCRIPTS = SOURCE / "scripts"
# Prints the resolved job in place of running it.
STAND_IN = f"""#!/bin/bash
printf '%s\\n' "$@" > "$WORDS"
case $1 in
  run) shift; exec {shlex.quote(str(BIN / "muster"))} config show "$@" ;;
  *) exit 0 ;;
esac
"""


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`, with ranges.

    `cut`: bytes after which the next responses end, one entry each.
    """

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.cut, self.requests = {}, [], []
        self.password = None
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):  # noqa: N802
        server = self.server
        server.requests.append((self.path, self.headers.get("Range"), self.headers.get("Authorization")))
        body = server.files.get(self.path)
        if body is None:
            return self.send_error(404)
        if server.password and self.headers.get("Authorization") != server.password:
            return self.send_error(401)
        begin = 0
        tag = f'"{hashlib.md5(body).hexdigest()}"'
        requested = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if requested and self.headers.get("If-Range") == tag:
            begin = int(requested.group(1))
            if begin >= len(body):
                return self.send_error(416)
        self.send_response(206 if begin else 200)
        self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(body) - begin))
        self.end_headers()
        end = len(body)
        if server.cut and not self.path.endswith("SHA256SUMS.txt"):
            end = begin + server.cut.pop(0)
            self.close_connection = True
        self.wfile.write(body[begin:end])


class ScriptTest(MusterTest):
    def setUp(self):
        super().setUp()
        programs = self.dir / "programs"
        programs.mkdir()
        (programs / "muster").write_text(STAND_IN)
        (programs / "muster").chmod(0o755)
        self.words = self.dir / "words"
        self.clean = {"PATH": os.environ["PATH"], "HOME": str(self.dir), "MUSTER_BIN_DIR": str(programs), "WORDS": str(self.words),
                      "MUSTER_FETCH_PAUSE_S": "0.01"}

    def script(self, name, *arguments, env=None, check=0):
        """Returns the output; self.words has the words behind `muster`."""
        self.words.unlink(missing_ok=True)
        program = "python3" if name.endswith(".py") else "bash"
        result = subprocess.run([program, SCRIPTS / name, *map(str, arguments)], cwd=self.dir, capture_output=True, text=True, timeout=60,
                                env={**self.clean, **(env or {})})
        self.assertEqual(result.returncode, check, result.stdout + result.stderr)
        return result.stdout + result.stderr

    def shown(self, output, key):
        return re.search(rf"^{key}: (\S+)", output, re.M).group(1)


class SeedScripts(ScriptTest):
    def test_pile_on_one_node(self):
        shown = self.script("run_pile_singlenode.sh", "/opt/paxml/datasets", "/opt/paxml/vocab", "bfloat16", 8, 4, "log_dir", env={"ENABLE_FP8": "1"})
        for key, value in (("model_name", '"Pile126M"'), ("dataset_path", '"/opt/paxml/datasets"'), ("tokenizer_path", '"/opt/paxml/vocab"'),
                           ("dtype", '"bfloat16"'), ("per_device_batch_size", "4"), ("run_name", '"log_dir"'), ("quantization", '"fp8"'),
                           ("ici_data_parallelism", "8"), ("steps", None)):
            actual = self.shown(shown, key)
            if value:
                self.assertEqual(actual.removesuffix(".0"), value, key)
        self.assertIn("(8 ranks)", shown)
        self.assertIn("ranks", self.script("run_pile_singlenode.sh", "/d", "/v", "float32", 2, 1, "l", "steps=7"))
        self.assertIn("usage: run_pile_singlenode.sh", self.script("run_pile_singlenode.sh", "/d", check=2))
        self.assertIn("NUM_GPUS=many: a number is required", self.script("run_pile_singlenode.sh", "/d", "/v", "float32", "many", check=2))

    def test_pile_on_several_nodes(self):
        slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "8"}
        self.script("run_pile_multinode.sh", "/d", "/v", "bfloat16", 8, 4, "l", env=slurm)
        words = self.words.read_text().splitlines()
        self.assertEqual(words[:5], ["slurm", "run", "--insecure", "--ranks-per-node", "8"])
        for word in ("CONFIG=Pile126M", "TFDS_DATA_DIR=/d", "VOCAB_PATH=/v", "PREC=bfloat16", "PERCORE_BATCH_SIZE=4", "LOG_DIR=l",
                     "--fdl.ICI_MESH_SHAPE=[8,1,1]", "--fdl.DCN_MESH_SHAPE=[8,1,1]"):
            self.assertIn(word, words)
        self.assertIn("task 3 has nothing to do", self.script("run_pile_multinode.sh", "/d", "/v", env={**slurm, "SLURM_PROCID": "3"}))
        self.assertFalse(self.words.exists())

    def test_base_configs(self):
        shown = self.script("run_base_config_multinode.sh", "Synthetic126M", "float32", 2, "logs", "None", "", "--fdl.DCN_MESH_SHAPE=[1,1,1] --fdl.MAX_STEPS=3",
                            "--fdl.ICI_MESH_SHAPE=[2,1,1]")
        self.assertEqual((self.shown(shown, "steps"), self.shown(shown, "dataset_type"), self.shown(shown, "ici_data_parallelism")), ("3", '"synthetic"', "2"))
        self.script("run_base_config_multinode.sh", "GPT5B", "bfloat16", 8, "logs", "/data", "/vocab", env={"SLURM_JOB_ID": "7"})
        self.assertIn("TFDS_DATA_DIR=/data\nVOCAB_PATH=/vocab\n", self.words.read_text())

    def test_launch_base_config_is_launch_base_script(self):
        result = subprocess.run(["bash", SOURCE / "slurm/launch_base_config.sub", "steps=3"], cwd=self.dir, capture_output=True, text=True, timeout=60, env={
            **self.clean, "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "32", "CONFIG": "Synthetic5B", "PREC": "bfloat16", "ENABLE_TE": "1",
            "ENABLE_FP8": "0", "LOG_DIR_LOCAL": "logs", "BASE_WORKSPACE_DIR": str(self.dir)})
        self.assertEqual(result.returncode, 0, result.stderr)
        words = self.words.read_text().splitlines()
        self.assertIn("CONFIG=Synthetic5B", words)
        self.assertEqual(words[-1], "steps=3")
        outside = subprocess.run(["bash", SOURCE / "slurm/launch_base_config.sub"], cwd=self.dir, capture_output=True, text=True, timeout=60, env=self.clean)
        self.assertEqual(outside.returncode, 2)
        self.assertIn(f"submit it with sbatch -N NODES {SOURCE}/slurm/launch_base_config.sub", outside.stderr)

    def test_fuji_on_several_nodes(self):
        shown = self.script("multinode.py", "--config=fuji-1B-v3", "--num_gpus=2", "--global_batch_size=4", "--max_sequence_length=1024",
                            "--trainer_dir=out/first", "--data_dir=FAKE")
        self.assertEqual((self.shown(shown, "global_batch_size"), self.shown(shown, "max_target_length"), self.shown(shown, "steps")), ("4", "1024", "100"))
        self.script("multinode.py", "--num_gpus=16", "--max_step=5", "--spares=1", env={"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"})
        words = self.words.read_text().splitlines()
        self.assertEqual(words[:5], ["slurm", "run", "--insecure", "--ranks-per-node", "8"])
        self.assertIn("--config=fuji-7B-v2-flash", words)
        self.assertIn("steps=5", words)
        self.assertIn("--spares=1", words)
        self.assertIn("global_batch_size=16", words)
        # The defaults are a job that starts.
        self.assertEqual(self.shown(self.script("multinode.py", "--num_gpus=3"), "global_batch_size"), "9")
        self.assertIn("equal shares", self.script("multinode.py", "--num_gpus=3", env={"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}, check=1))

    def test_help_is_the_usage(self):
        for name in ("run_pile_singlenode.sh", "run_pile_multinode.sh", "run_base_config_multinode.sh", "run_lambada_singlenode.sh",
                     "run_llama_boolq.sh", "download_dataset.sh"):
            with self.subTest(script=name):
                shown = subprocess.run(["bash", SCRIPTS / name, "--help"], capture_output=True, text=True, timeout=60,
                                       env={**os.environ, "MUSTER_BIN_DIR": str(BIN)})
                self.assertEqual(shown.returncode, 0, shown.stderr)
                self.assertRegex(shown.stdout, rf"^usage: .*{name}")

    def test_maxtexts_benchmarks(self):
        for size, batch in (("16", "6"), ("32", "4"), ("64", "2"), ("128", "1")):
            # Its figures are those of 256 chips; here the last keys make it one rank's.
            shown = self.script(f"v5e/{size}b.sh", "RUN_NAME=bench", f"OUTPUT_PATH={self.dir}/out", "ici_fsdp_parallelism=1", "ici_tensor_parallelism=1",
                                "remat_policy=full")
            self.assertEqual(self.shown(shown, "global_parameter_scale"), size)
            self.assertEqual(self.shown(shown, "per_device_batch_size").removesuffix(".0"), batch)
            self.assertEqual((self.shown(shown, "steps"), self.shown(shown, "run_name")), ("15", '"bench"'))
        self.script("v5e/16b.sh", "EXECUTABLE=train_compile.py", "M_COMPILE_TOPOLOGY=v5e-256", check=2)

    def test_evaluation_scripts(self):
        data, vocabulary, logs = self.dir / "data", self.dir / "vocab", self.dir / "logs"
        data.mkdir()
        vocabulary.touch()
        self.assertIn("download_lambada.py", self.script("run_lambada_singlenode.sh", self.dir / "none", vocabulary, check=2))
        self.assertIn("no checkpoint", self.script("run_lambada_singlenode.sh", data, vocabulary, "bfloat16", 8, 4, logs, check=2))
        (logs / "checkpoints").mkdir(parents=True)
        self.assertIn("scripts/download_lambada.py fetches it", self.script("run_lambada_singlenode.sh", data, vocabulary, "bfloat16", 8, 4, logs, check=2))
        for file in ("lambada/lambada_test_en.jsonl", "bool_q/dev.jsonl"):
            (data / file).parent.mkdir()
            (data / file).touch()
        shown = self.script("run_lambada_singlenode.sh", data, vocabulary, "bfloat16", 8, 4, logs, "eval_truncate=true")
        for key, value in (("model_name", '"Pile126M"'), ("eval_tasks", f'"lambada={data}/lambada/lambada_test_en.jsonl"'), ("eval_only", "true"),
                           ("dtype", '"bfloat16"'), ("per_device_batch_size", "4"), ("ici_data_parallelism", "8"), ("eval_truncate", "true")):
            self.assertEqual(self.shown(shown, key).removesuffix(".0"), value, key)
        boolq = {"TFDS_DATA_DIR": str(data), "VOCAB_PATH": str(vocabulary)}
        self.assertIn("VOCAB_PATH is not set", self.script("run_llama_boolq.sh", check=2))
        self.assertIn("CHECKPOINT_RESTORE_PATH is not set", self.script("run_llama_boolq.sh", env={**boolq, "EVAL_ONLY": "1"}, check=2))
        evaluated = {**boolq, "EVAL_ONLY": "1", "CHECKPOINT_RESTORE_PATH": str(logs), "NUM_GPUS": "2", "LOG_DIR": str(self.dir / "out")}
        shown = self.script("run_llama_boolq.sh", env=evaluated)
        for key, value in (("model_name", '"LLaMA7B"'), ("eval_tasks", f'"boolq={data}/bool_q/dev.jsonl"'), ("eval_only", "true"), ("eval_bos_id", "1"),
                           ("eval_add_bos", "true"), ("ici_fsdp_parallelism", "2"), ("load_parameters_path", f'"{logs}"')):
            self.assertEqual(self.shown(shown, key), value, key)
        self.assertIn(f"BoolQ: there is no file {data}/bool_q/train.jsonl", self.script("run_llama_boolq.sh", env=boolq, check=2))
        self.assertIn("CONFIG=GPT5B", self.script("run_llama_boolq.sh", env={**boolq, "CONFIG": "GPT5B"}, check=2))

    def test_llama_is_fine_tuned_on_boolq(self):
        data, vocabulary = self.dir / "data", self.dir / "vocab"
        (data / "bool_q").mkdir(parents=True)
        vocabulary.touch()
        (data / "bool_q/train.jsonl").write_text('{"question": "is it so", "title": "T", "answer": true, "passage": "It is so."}\n'
                                                 '{"question": "is it not", "title": "T", "answer": false, "passage": "“It” is."}\n')
        (data / "bool_q/dev.jsonl").write_text("")
        env = {"TFDS_DATA_DIR": str(data), "VOCAB_PATH": str(vocabulary), "LOG_DIR": str(self.dir / "logs"), "CHECKPOINT_RESTORE_PATH": "/pretrained"}
        adapted = self.script("run_llama_boolq.sh", env={**env, "USE_LORA": "1"})
        for key, value in (("enable_lora", "true"), ("steps", "600"), ("learning_rate", "0.0001"), ("lr_schedule_type", '"constant"'),
                           ("ici_data_parallelism", "8"), ("eval_interval", "-1"), ("eval_tasks", f'"boolq={data}/bool_q/dev.jsonl"')):
            self.assertEqual(self.shown(adapted, key), value, key)
        self.assertEqual(self.shown(adapted, "run_name"), '"llama-LLaMA7B"')
        # Evaluates the adapters of the same folder, of which there are none yet.
        self.assertIn(f"there are none in {self.dir}/logs/llama-LLaMA7B/checkpoints",
                      self.script("run_llama_boolq.sh", env={**env, "USE_LORA": "1", "EVAL_ONLY": "1"}, check=2))
        one_file = {**env, "TFDS_DATA_DIR": str(data / "bool_q/train.jsonl")}
        self.assertIn("train.jsonl is a file; training and evaluation need the folder", self.script("run_llama_boolq.sh", env=one_file, check=2))
        env["DCN_MESH_SHAPE"] = "[1,1,1]"
        written = (self.dir / "logs/boolq/train.jsonl").stat().st_mtime_ns
        shown = self.script("run_llama_boolq.sh", env=env)
        self.assertEqual((self.dir / "logs/boolq/train.jsonl").stat().st_mtime_ns, written, "tokenize could not resume")
        samples = [json.loads(line) for line in (self.dir / "logs/boolq/train.jsonl").read_text().splitlines()]
        self.assertEqual(samples, [{"prompt": "It is so.\nQuestion: is it so?\nAnswer:", "completion": " yes"},
                                   {"prompt": "“It” is.\nQuestion: is it not?\nAnswer:", "completion": " no"}])
        for key, value in (("use_sft", "true"), ("dataset_path", f'"{self.dir}/logs/boolq/tokens"'), ("load_parameters_path", '"/pretrained"'),
                           ("steps", "1000"), ("max_target_length", "4096"), ("learning_rate", "1e-06"), ("learning_rate_warmup_steps", "500"),
                           ("packing", "false"), ("ici_fsdp_parallelism", "8")):
            self.assertEqual(self.shown(shown, key), value, key)
        with (data / "bool_q/train.jsonl").open("a") as file:
            file.write('{"question": "is it", "passage": "It is."}\n')
        self.assertIn("line 3 is no entry of BoolQ with passage, question and answer: KeyError: 'answer'",
                      self.script("run_llama_boolq.sh", env=env, check=2))


class RealRuns(ScriptTest):
    """The scripts train and evaluate small models on files of the format that they expect."""

    TINY = ["override_model_config=true", "--fdl.NUM_LAYERS=2", "--fdl.NUM_HEADS=4", "--fdl.DIMS_PER_HEAD=8", "--fdl.MODEL_DIMS=32", "--fdl.HIDDEN_DIMS=64",
            "--fdl.VOCAB_SIZE=320", "--fdl.MAX_SEQ_LEN=64"]

    def setUp(self):
        super().setUp()
        self.clean["MUSTER_BIN_DIR"] = str(BIN)
        self.clean["MUSTER_TEST_MARK"] = self.mark
        (self.dir / "pile").mkdir()
        (self.dir / "pile/text.txt").write_text("".join(f"Box {i} is red.\nQuestion: is box {i} red?\nAnswer: yes no\n" for i in range(300)))
        self.muster("train-tokenizer", "--text", "pile/text.txt", "--vocab-size", 300, "--fewer-ok", "--out", "t", check=0)

    def test_lambada(self):
        words = ("pile", "t.model", "float32", 2, 1, "logs", *self.TINY)
        self.assertIn("completed step: 3, ", self.script("run_pile_singlenode.sh", *words, "--fdl.MAX_STEPS=4"))
        (self.dir / "pile/lambada").mkdir()
        (self.dir / "pile/lambada/lambada_test_en.jsonl").write_text("".join(json.dumps({"text": f"Question: is box {i} red"}) + "\n" for i in range(5)))
        self.assertRegex(self.script("run_lambada_singlenode.sh", *words), r"(?m)^lambada +acc +[01]\.\d+ ± 0\.\d+ +5 ")
        self.assertEqual(json.loads((self.dir / "logs/evaluations/results-4.json").read_text())["results"]["lambada"]["samples"], 5)

    def test_boolq(self):
        words = [*self.TINY, "--fdl.NUM_KV_HEADS=2"]
        self.muster("run", "CONFIG=LLaMA7B", "PREC=float32", "LOG_DIR=base", *words, "--fdl.MAX_STEPS=1", "--fdl.PERCORE_BATCH_SIZE=1", "dataset_type=synthetic",
                    "--ranks", 1, check=0)
        (self.dir / "boolq/bool_q").mkdir(parents=True)
        for split in ("train", "dev"):
            (self.dir / f"boolq/bool_q/{split}.jsonl").write_text("".join(json.dumps(
                {"question": f"is box {i} red", "title": "Boxes", "answer": i % 2 == 0, "passage": f"Box {i} is red."}) + "\n" for i in range(8)))
        env = {"TFDS_DATA_DIR": "boolq", "VOCAB_PATH": "t.model", "PREC": "float32", "MAX_STEPS": "3", "MAX_SEQ_LEN": "64", "PERCORE_BATCH_SIZE": "1",
               "ICI_MESH_SHAPE": "[1,2,1]", "DCN_MESH_SHAPE": "[1,1,1]", "CHECKPOINT_RESTORE_PATH": str(self.dir / "base")}
        accuracy = r"(?m)^eval tasks after step: 2, boolq/acc=[01]\.\d+"
        self.assertRegex(self.script("run_llama_boolq.sh", *words, env={**env, "LOG_DIR": "tuned"}), accuracy)
        adapted = self.script("run_llama_boolq.sh", *words, env={**env, "LOG_DIR": "adapted", "USE_LORA": "1", "LORA_RANK": "2"})
        self.assertIn("trained: adapters of ", adapted)
        self.assertRegex(adapted, accuracy)
        evaluated = self.script("run_llama_boolq.sh", *words, env={
            **env, "LOG_DIR": "evaluated", "EVAL_ONLY": "1", "NUM_GPUS": "2", "CHECKPOINT_RESTORE_PATH": str(self.dir / "tuned/llama-LLaMA7B")})
        self.assertRegex(evaluated, r"(?m)^boolq +acc +[01]\.\d+ ± 0\.\d+ +8 ")
        of = lambda folder: json.loads((self.dir / folder / "evaluations/results-3.json").read_text())["results"]["boolq"]["acc"]  # noqa: E731
        self.assertEqual(of("evaluated/llama-LLaMA7B"), of("tuned/llama-LLaMA7B"))


class Downloads(ScriptTest):
    def setUp(self):
        super().setUp()
        self.server = Server()
        self.data = self.dir / "tfds"
        self.clean["TFDS_DATA_DIR"] = str(self.data)
        self.body = os.urandom(3_000_000)

    def tearDown(self):
        self.server.shutdown()
        self.server.server_close()
        super().tearDown()

    def pile(self, *more, **kwargs):
        return self.script("download_the_pile.py", "--mirror", self.server.url, "--files", "train/00.jsonl.zst", "val.jsonl.zst", *more, **kwargs)

    def serve_pile(self):
        self.server.files = {"/train/00.jsonl.zst": self.body, "/val.jsonl.zst": b"v" * 100}
        sums = "".join(f"{hashlib.sha256(body).hexdigest()}  .{name}\n" for name, body in self.server.files.items())
        self.server.files["/SHA256SUMS.txt"] = sums.encode()

    def test_cut_connections_resume_within_the_file(self):
        self.serve_pile()
        self.server.cut = [1_000_000, 500_000]
        self.pile()
        self.assertEqual((self.data / "the_pile/train/00.jsonl.zst").read_bytes(), self.body)
        ranges = [requested for path, requested, _ in self.server.requests if path == "/train/00.jsonl.zst"]
        self.assertEqual(ranges, [None, "bytes=1000000-", "bytes=1500000-"])
        # A file that is there is verified, and not fetched again.
        requests = len(self.server.requests)
        self.assertIn("is there already", self.pile())
        self.assertEqual([path for path, _, _ in self.server.requests[requests:]], ["/SHA256SUMS.txt"])
        self.assertEqual([path.name for path in self.data.rglob("*.part*")], [])

    def test_a_killed_download_resumes(self):
        self.serve_pile()
        self.server.cut = [1_000_000] + [0] * 4
        self.assertIn("could not be downloaded", self.pile(check=1))
        self.assertTrue((self.data / "the_pile/train/00.jsonl.zst.part").exists())
        self.assertFalse((self.data / "the_pile/train/00.jsonl.zst").exists())
        self.pile()
        self.assertEqual(self.server.requests[-2][1] or self.server.requests[-3][1], "bytes=1000000-")
        self.assertEqual((self.data / "the_pile/train/00.jsonl.zst").read_bytes(), self.body)

    def test_a_changed_file_is_fetched_from_its_start(self):
        self.serve_pile()
        self.server.cut = [1_000_000] + [0] * 4
        self.pile(check=1)
        self.body = os.urandom(2_000_000)
        self.serve_pile()
        self.pile()
        self.assertEqual((self.data / "the_pile/train/00.jsonl.zst").read_bytes(), self.body)

    def test_a_wrong_checksum_removes_the_file(self):
        self.serve_pile()
        self.server.files["/val.jsonl.zst"] = b"w" * 100
        refused = self.pile(check=1)
        self.assertRegex(refused, r"val\.jsonl\.zst: the sha256 checksum is [0-9a-f]{64}, but must be")
        self.assertEqual([path.name for path in (self.data / "the_pile").glob("val*")], [])

    def test_without_a_server_it_lists_files_and_folders(self):
        refused = self.script("download_the_pile.py", check=1)
        self.assertIn("--mirror URL (or PILE_MIRROR)", refused)
        self.assertIn(f"put train/00.jsonl.zst to train/29.jsonl.zst, val.jsonl.zst and test.jsonl.zst into {self.data}/the_pile", refused)
        for name, folder in (("download_lambada.py", "lambada"), ("download_boolq.py", "bool_q")):
            self.assertIn(f"into {self.data}/{folder}", self.script(name, "--mirror", "http://127.0.0.1:1", check=1))
        self.assertIn("404", self.pile(check=1))

    def test_lambada_comes_from_the_users_hub_with_their_token(self):
        path = "/datasets/EleutherAI/lambada_openai/resolve/main/data/lambada_test_en.jsonl"
        self.server.files[path] = b'{"text": "a"}\n'
        self.server.password = "Bearer secret"
        hub = {"HF_ENDPOINT": self.server.url}
        self.assertIn("access was refused (401)", self.script("download_lambada.py", env=hub, check=1))
        self.assertIn("states no checksum", self.script("download_lambada.py", env={**hub, "HF_TOKEN": "secret"}))
        self.assertEqual((self.data / "lambada/lambada_test_en.jsonl").read_bytes(), b'{"text": "a"}\n')

    def test_boolq_with_a_password(self):
        self.server.files.update({"/train.jsonl": b"1", "/dev.jsonl": b"2"})
        self.server.password = "Basic YWRhOmxvdmU="  # ada:love
        (self.dir / ".netrc").write_text("machine 127.0.0.1 login ada password love\n")
        (self.dir / ".netrc").chmod(0o600)
        self.script("download_boolq.py", "--mirror", self.server.url)
        self.assertEqual(sorted(path.name for path in (self.data / "bool_q").iterdir()), ["dev.jsonl", "train.jsonl"])

    def test_c4_uses_the_users_tool(self):
        programs = self.dir / "tools"
        programs.mkdir()
        tool = programs / "gcloud"
        tool.write_text('#!/bin/bash\nprintf "%s\\n" "$@" > "$WORDS"\ntarget=${!#}\nfor i in $(seq 0 1023); do touch "$target/c4-train.tfrecord-$i-of-01024"; done\n'
                        'for i in $(seq 0 "${LAST:-7}"); do touch "$target/c4-validation.tfrecord-$i-of-00008"; done\nexit "${FAILS:-0}"\n')
        tool.chmod(0o755)
        env = {"PATH": f"{programs}:/usr/bin:/bin"}
        shown = self.script("download_dataset.sh", "my-project", self.dir / "c4s", env=env)
        self.assertIn("dataset_type=c4", shown)
        self.assertIn("--billing-project\nmy-project\n", self.words.read_text())
        self.assertIn("7 files of the split validation, not 8", self.script("download_dataset.sh", "p", self.dir / "few", env={**env, "LAST": "6"}, check=2))
        self.assertIn("the same command resumes", self.script("download_dataset.sh", "p", self.dir / "c4s", env={**env, "FAILS": "1"}, check=2))
        bare = self.dir / "bare"
        bare.mkdir()
        for name in ("bash", "mkdir", "dirname"):
            (bare / name).symlink_to(pathlib.Path("/bin") / name)
        self.assertIn("neither gcloud nor gsutil", self.script("download_dataset.sh", "p", self.dir / "c4s", env={"PATH": str(bare)}, check=2))


if __name__ == "__main__":
    unittest.main()
