"""Reaches each message of docs/troubleshooting.json: one test for each row makes a program print
the row's messages. tests/tidy/messages.py checks that the rows and the tests are the same.
"""
import bz2
import gzip
import json
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

from control_group import ControlGroup
from harness import SOURCE, wait_gone
from programs import ProgramTest

sys.path.insert(0, str(SOURCE / "tests/tidy"))
import messages  # noqa: E402

HUGGING_FACE = SOURCE / "tests/golden/hugging_face"
META = SOURCE / "tests/golden/meta"
TOKENIZERS = SOURCE / "tests/golden/tokenizers"
SENTENCEPIECE = SOURCE / "tests/fuzz/seeds/sentencepiece/bpe.model"
LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n"
ROWS = {row["id"]: row for row in messages.rows_of(json.loads((SOURCE / messages.TABLE).read_text()))}


class Messages(ProgramTest):
    def setUp(self):
        super().setUp()
        self.model = self.dir / "model"
        self.shown = ""
        self.is_skipped = False

    def skipTest(self, reason):
        self.is_skipped = True
        super().skipTest(reason)

    def tearDown(self):
        super().tearDown()
        if self.is_skipped:
            return
        for message in ROWS[self._testMethodName.removeprefix("test_")]["messages"]:
            self.assertRegex(self.shown, messages.pattern_of(message))

    # ------------------------------------------------------------------ means

    def reach(self, *words, check=2, **kwargs):
        """Runs the command line to its end; its output is searched for the row's messages."""
        result = self.muster(*words, check=check, **kwargs)
        self.shown += result.stdout + result.stderr

    def reach_on(self, command, codes=(1, 2)):
        """Runs any command in the same way."""
        result = subprocess.run(list(map(str, command)), capture_output=True, text=True, errors="replace", env=self.env, cwd=self.dir,
                                timeout=120, stdin=subprocess.DEVNULL)
        self.assertIn(result.returncode, codes, result.stderr)
        self.assertEqual(wait_gone(self.mark, 30), [])
        self.shown += result.stdout + result.stderr

    def golden(self, family, **changes):
        """Copies a model and changes its config.json; None removes a key."""
        shutil.rmtree(self.model, ignore_errors=True)
        shutil.copytree(HUGGING_FACE / family, self.model)
        config = {**json.loads((self.model / "config.json").read_text()), **changes}
        (self.model / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not None}))

    def change_tensors(self, change):
        """Applies a function to the names and entries of the model's single file."""
        path = self.model / "model.safetensors"
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + length])
        header.pop("__metadata__", None)
        tensors = {name: (entry, data[8 + length:][slice(*entry["data_offsets"])]) for name, entry in header.items()}
        change(tensors)
        values = b""
        for name, (entry, content) in tensors.items():
            header[name] = {**entry, "data_offsets": [len(values), len(values) + len(content)]}
            values += content
        text = json.dumps({name: header[name] for name in tensors}).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + values)

    def convert(self, check=2):
        shutil.rmtree(self.dir / "out", ignore_errors=True)
        self.reach("convert", self.model, self.dir / "out", check=check)

    def folder_with(self, name, content=b""):
        """Converts a folder that has only this file."""
        shutil.rmtree(self.model, ignore_errors=True)
        (self.model / name).parent.mkdir(parents=True)
        (self.model / name).write_bytes(content)
        self.convert()

    def tokenize(self, text, *options, tokenizer=TOKENIZERS / "gpt2.json", check=2):
        shutil.rmtree(self.dir / "out", ignore_errors=True)
        self.reach("tokenize", "--text", text, "--tokenizer", tokenizer, "--out", self.dir / "out", *options, check=check)

    def text_of(self, name, content, *options, check=2):
        """Tokenizes a file with this content."""
        (self.dir / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        self.tokenize(self.dir / name, *options, check=check)

    def program(self, content, check=126):
        path = self.dir / "program"
        path.write_bytes(content)
        path.chmod(0o755)
        self.reach("run", "--", "./program", check=check)

    def run_words(self, *words, options=()):
        return [self.bin("muster"), "run", "--name", "job", *options, "--", *words]

    def group(self, controller, limits):
        try:
            group = ControlGroup(f"muster-{self.mark}", controller, limits)
        except OSError as error:
            self.skipTest(f"no control group of {controller} can be made here: {error}")
        self.addCleanup(group.remove)
        return group

    # ------------------------------------------------------------------ models and tokenizers

    def test_unused_tensors(self):
        self.golden("llama_gqa", num_hidden_layers=1)
        self.convert()

    def test_two_sets_of_weights(self):
        self.golden("llama_gqa")
        shutil.copy(HUGGING_FACE / "mistral/model-00001-of-00002.safetensors", self.model)
        shutil.copy(HUGGING_FACE / "mistral/model.safetensors.index.json", self.model)
        self.convert(check=0)

    def test_unread_fields(self):
        self.golden("llama_gqa", logits_scaling=8.0, layer_scale=0.5)
        self.convert(check=0)

    def test_tied_head(self):
        self.golden("llama_bias_tied")
        self.change_tensors(lambda tensors: tensors.update({"lm_head.weight": tensors.pop("model.embed_tokens.weight")}))
        self.convert(check=0)

    def test_gemma_activation(self):
        for old, new in (("gelu", None), ("gelu", "gelu_pytorch_tanh")):
            self.golden("gemma", hidden_act=old, hidden_activation=new)
            self.convert(check=0)

    def test_lfs_pointer(self):
        self.golden("llama_gqa")
        (self.model / "model.safetensors").write_bytes(LFS_POINTER)
        self.convert()
        self.text_of("pointer.txt", LFS_POINTER)

    def test_annex_pointer(self):
        self.golden("llama_gqa")
        (self.model / "model.safetensors").write_bytes(b"/annex/objects/SHA256E-s3--ab\n")
        self.convert()

    def test_xet_pointer(self):
        self.golden("llama_gqa")
        (self.model / "model.safetensors").write_text("# xet version 0\nfilesize = 12\nhash = 'ab'\n")
        self.convert()

    def test_web_page(self):
        self.golden("llama_gqa")
        (self.model / "model.safetensors").write_bytes(b"<!DOCTYPE html><html>Access denied</html>")
        self.convert()

    def test_unfinished_file(self):
        self.golden("llama_gqa")
        weights = (self.model / "model.safetensors").read_bytes()
        for content in (bytes(5000), weights[:100], weights[:len(weights) // 2]):
            (self.model / "model.safetensors").write_bytes(content)
            self.convert()

    def test_empty_file(self):
        self.golden("llama_gqa")
        (self.model / "model.safetensors").write_bytes(b"")
        self.convert()

    def test_dangling_shard(self):
        self.golden("mistral")
        shard = self.model / "model-00002-of-00002.safetensors"
        shard.unlink()
        shard.symlink_to("../../blobs/0123")
        self.convert()

    def test_stopped_download(self):
        self.folder_with("model-00001-of-00002.safetensors.incomplete")

    def test_missing_shards(self):
        self.golden("mistral")
        for shard in self.model.glob("*.safetensors"):
            shard.unlink()
        self.convert()

    def test_missing_half(self):
        self.folder_with("config.json", b"{}")
        self.folder_with("model.safetensors")

    def test_missing_meta_file(self):
        shutil.copytree(META / "llama2", self.model)
        shutil.copy(self.model / "consolidated.00.pth", self.model / "consolidated.02.pth")
        (self.model / "consolidated.01.pth").unlink(missing_ok=True)
        self.convert()

    def test_adapter(self):
        self.folder_with("adapter_config.json", b'{"base_model_name_or_path": "meta-llama/Llama-2-7b-hf"}')

    def test_pickle(self):
        self.folder_with("pytorch_model.bin", b"PK\x03\x04")

    def test_gguf(self):
        self.folder_with("model.q4.gguf", b"GGUF\x03")

    def test_other_format(self):
        for name in ("tf_model.h5", "flax_model.msgpack", "model.onnx", "llama.nemo", "__0_0.distcp", "mp_rank_00_model_states.pt",
                     "_CHECKPOINT_METADATA", "epoch=1.ckpt"):
            before = len(self.shown)
            self.folder_with(name)
            self.assertRegex(self.shown[before:], messages.pattern_of("X is of Y, which is not read"), name)

    def test_quantized(self):
        self.golden("llama_gqa", quantization_config={"quant_method": "gptq", "bits": 4})
        self.convert()

    def test_quantized_tensor(self):
        self.golden("llama_gqa")
        scale = ({"dtype": "F32", "shape": [1]}, bytes(4))
        self.change_tensors(lambda tensors: tensors.update({"model.layers.0.mlp.up_proj.weight_scale": scale}))
        self.convert()

    def test_wrapped_names(self):
        def wrap(tensors):
            for name in list(tensors):
                tensors[f"_orig_mod.{name}"] = tensors.pop(name)
        self.golden("llama_gqa")
        self.change_tensors(wrap)
        self.convert()

    def test_rope_of_layers(self):
        self.golden("llama_gqa", rope_scaling=None, rope_theta=None,
                    rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 1e6}})
        self.convert()

    def test_rope_scaling(self):
        for kind in ("linear", "dynamic", "yarn", "longrope"):
            self.golden("llama_gqa", rope_scaling={"rope_type": kind, "factor": 4.0})
            self.convert()
            self.assertIn(f"rope_scaling is of the type {kind}", self.shown)

    def test_hub_cache(self):
        (self.model / "snapshots/0123abcd").mkdir(parents=True)
        self.convert()

    def test_not_a_folder(self):
        self.reach("convert", HUGGING_FACE / "llama_gqa/model.safetensors", self.dir / "out")

    def test_inner_folder(self):
        shutil.copytree(HUGGING_FACE / "llama_gqa", self.model / "llama")
        self.convert()

    def test_broken_json(self):
        self.golden("llama_gqa")
        config = self.model / "config.json"
        config.write_text(config.read_text()[:-20])
        self.convert()

    def test_wide_json(self):
        self.golden("llama_gqa")
        config = self.model / "config.json"
        config.write_bytes(config.read_text().encode("utf-16"))
        self.convert()

    def test_unknown_encoding(self):
        (self.dir / "a.txt").write_text("some text\n")
        self.tokenize(self.dir / "a.txt", tokenizer=TOKENIZERS / "llama3.tiktoken")

    def test_unusable_tokenizer_json(self):
        folder = self.dir / "tokenizer"
        folder.mkdir()
        shutil.copy(SENTENCEPIECE, folder / "tokenizer.model")
        (folder / "tokenizer.json").write_text('{"model": {"type": "Unigram", "vocab": []}}')
        (self.dir / "a.txt").write_text("some text\n")
        self.tokenize(self.dir / "a.txt", tokenizer=folder / "tokenizer.json")
        self.tokenize(self.dir / "a.txt", tokenizer=folder, check=0)

    def test_other_ranks(self):
        folder = self.dir / "tokenizer"
        folder.mkdir()
        for name in ("cl100k_base", "llama3"):
            shutil.copy(TOKENIZERS / f"{name}.tiktoken", folder)
        (self.dir / "a.txt").write_text("some text\n")
        self.tokenize(self.dir / "a.txt", "--encoding", "cl100k_base", tokenizer=folder, check=0)

    def test_no_such_eos(self):
        folder = self.dir / "tokenizer"
        folder.mkdir()
        shutil.copy(TOKENIZERS / "gpt2.json", folder / "tokenizer.json")
        (folder / "tokenizer_config.json").write_text('{"eos_token": "<other>"}')
        (self.dir / "a.txt").write_text("some text\n")
        self.tokenize(self.dir / "a.txt", tokenizer=folder)

    def test_vocab_and_merges(self):
        folder = self.dir / "tokenizer"
        folder.mkdir()
        (folder / "vocab.json").write_text("{}")
        (folder / "merges.txt").touch()
        (self.dir / "a.txt").write_text("some text\n")
        self.tokenize(self.dir / "a.txt", tokenizer=folder)

    # ------------------------------------------------------------------ texts

    def test_dangling_text(self):
        (self.dir / "text").mkdir()
        (self.dir / "text/gone.txt").symlink_to("nowhere")
        self.tokenize(self.dir / "text")

    def test_link_to_itself(self):
        (self.dir / "text").mkdir()
        (self.dir / "text/a.txt").symlink_to("b.txt")
        (self.dir / "text/b.txt").symlink_to("a.txt")
        self.tokenize(self.dir / "text")

    def test_json_array(self):
        self.text_of("a.jsonl", '[{"text": "a"},\n{"text": "b"}]\n')
        self.text_of("a.json", '[{"instruction": "a"}]')
        self.assertEqual(self.shown.count("is a JSON array, not JSON lines; jq -c '.[]'"), 2, self.shown)

    def test_indented_json(self):
        self.text_of("a.jsonl", '{\n  "text": "a"\n}\n')

    def test_several_objects(self):
        self.text_of("a.jsonl", '{"text": "a"}{"text": "b"}\n')

    def test_lines_of_an_array(self):
        self.text_of("a.jsonl", '{"text": "a"},\n{"text": "b"}\n')

    def test_record_separators(self):
        self.text_of("a.jsonl", '\x1e{"text": "a"}\n\x1e{"text": "b"}\n')

    def test_strings_as_lines(self):
        self.text_of("a.jsonl", '"a"\n"b"\n')

    def test_chat_field(self):
        self.text_of("a.jsonl", '{"id": "x", "messages": [{"role": "user", "content": "hello"}]}\n')

    def test_exercise_fields(self):
        self.text_of("a.jsonl", '{"instruction": "add", "input": "", "output": "two"}\n')

    def test_other_field(self):
        self.text_of("a.jsonl", '{"id": 7, "content": "some text"}\n')

    def test_messages(self):
        self.text_of("a.jsonl", '{"text": [{"role": "user", "content": "hello"}]}\n')

    def test_list_of_text(self):
        self.text_of("a.jsonl", '{"text": ["one", "two"]}\n')

    def test_nested_text(self):
        self.text_of("a.jsonl", '{"text": {"body": "one"}}\n')

    def test_not_json(self):
        self.text_of("a.jsonl", '{"text": "one\n')

    def test_nul_in_line(self):
        self.text_of("a.jsonl", b'{"text": "one"}\n' + bytes(100))

    def test_large_window(self):
        # A frame whose header states a window of 2^41 bytes.
        self.text_of("a.txt.zst", b"\x28\xb5\x2f\xfd\x00\xf8\x01\x00\x00")

    def test_no_memory_for_window(self):
        # The window of --long=31, in an address space of 1.5 GiB.
        (self.dir / "a.txt.zst").write_bytes(b"\x28\xb5\x2f\xfd\x00\xa8\x21\x00\x00x\x02\x00\x00")
        words = [self.bin("muster"), "tokenize", "--threads", "1", "--text", self.dir / "a.txt.zst", "--tokenizer", TOKENIZERS / "gpt2.json",
                 "--out", self.dir / "out"]
        self.reach_on(["bash", "-c", 'ulimit -v 1572864; exec "$@"', "bash", *words])

    def test_window_in_container(self):
        # The window of --long=31, and 300 MiB of blanks: 2,400 blocks of 128 KiB of one byte each.
        size = 128 << 10
        block, last = (size << 3 | 2).to_bytes(3, "little") + b" ", (size << 3 | 3).to_bytes(3, "little") + b" "
        (self.dir / "a.txt.zst").write_bytes(b"\x28\xb5\x2f\xfd\x00\xa8" + block * 2399 + last)
        group = self.group("memory", {"memory.max": str(240 << 20)})
        self.reach_on(group.command(self.bin("muster"), "tokenize", "--threads", "1", "--text", self.dir / "a.txt.zst", "--tokenizer",
                                    TOKENIZERS / "gpt2.json", "--out", self.dir / "out"))

    def test_zstd_dictionary(self):
        # A frame whose header names the dictionary 7.
        self.text_of("a.txt.zst", b"\x28\xb5\x2f\xfd\x21\x07\x01\x09\x00\x00a")

    def test_joined_files(self):
        self.text_of("a.txt.gz", gzip.compress(b"some text\n") + b"and some more\n")

    def test_cut_compressed_file(self):
        self.text_of("a.txt.gz", gzip.compress(os.urandom(1000).hex().encode())[:-20])

    def test_other_compression(self):
        text = b"some text\n"
        for name, content in (("a.txt.xz", lzma.compress(text)), ("a.txt.bz2", bz2.compress(text)), ("a.txt.lz4", b"\x04\x22\x4d\x18"),
                              ("a.txt", bz2.compress(text)), ("a.lzma.txt.gz", gzip.compress(lzma.compress(text)))):
            before = len(self.shown)
            self.text_of(name, content)
            self.assertRegex(self.shown[before:], messages.pattern_of("is compressed: X is not read"), name)

    def test_tar_archive(self):
        (self.dir / "a").write_text("some text\n")
        subprocess.run(["tar", "-cf", self.dir / "a.txt", "a"], cwd=self.dir, check=True)
        self.tokenize(self.dir / "a.txt")

    def test_no_text_format(self):
        self.text_of("a.txt", b"ARROW1\0\0")
        self.text_of("b.txt", b"%PDF-1.7\n")

    def test_compressed_twice(self):
        self.text_of("a.txt.gz", gzip.compress(gzip.compress(b"some text\n")))

    def test_not_utf8(self):
        self.text_of("a.txt", "some text\n".encode("utf-16"))
        self.text_of("b.txt", b"some\x00text\n")
        self.text_of("c.txt", "some text\n".encode("utf-16-le"))

    def test_cr_alone(self):
        self.text_of("a.txt", "one\rtwo\rthree\r")

    def test_report_of_flaws(self):
        self.text_of("a.jsonl", b'{"text": "fine"}\n{"text": \n', "--bad-documents", "skip", check=0)
        self.text_of("a.jsonl", b'{"text": "fine"}\n{"text": "caf\xe9"}\n', "--bad-documents", "repair", check=0)

    # ------------------------------------------------------------------ programs and machines

    def test_no_interpreter_line(self):
        self.program(b"echo hi\n")

    def test_carriage_return_in_interpreter(self):
        self.program(b"#!/bin/sh\r\necho hi\r\n")

    def test_missing_interpreter(self):
        self.program(b"#!/opt/none/python3\n")

    def test_mark_before_interpreter(self):
        self.program("\ufeff#!/bin/sh\n".encode())
        self.program("#!/bin/sh\n".encode("utf-16"))

    def test_other_processor(self):
        program = bytearray(pathlib.Path("/bin/true").read_bytes())
        program[18:20] = b"\xf7\x00"  # BPF, on which no system starts programs
        self.program(bytes(program))

    def test_noexec(self):
        # In a mount namespace of its own.
        words = self.run_words("mounted/program")
        mount = 'mkdir -p mounted && mount -t tmpfs -o noexec none mounted && printf "#!/bin/sh\\n" > mounted/program && chmod +x mounted/program'
        if subprocess.run(["unshare", "--mount", "sh", "-c", mount], cwd=self.dir, capture_output=True).returncode != 0:
            self.skipTest("mounting needs root and namespaces")
        self.reach_on(["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh", *words], codes=(2,))

    def test_missing_loader(self):
        program = pathlib.Path("/bin/true").read_bytes()
        loader = re.search(rb"/lib[^\0]*/ld-[^\0]*\0", program)
        if not loader:
            self.skipTest("/bin/true has no dynamic loader")
        self.program(program.replace(loader.group(0), loader.group(0)[:-2] + b"X\0", 1))

    def test_missing_program(self):
        self.reach("run", "--", "nosuchprogram")
        (self.dir / "link").symlink_to("nowhere")
        for name in (".", "link"):
            self.reach("run", "--", f"{self.dir}/{name}")

    def test_not_retried(self):
        self.program(b"#!/bin/sh\nno-such-command\n", check=127)

    def test_pipe_was_read(self):
        result = subprocess.run(self.run_words("sh", "-c", "cat; exit 1"), input="some text\n", capture_output=True, text=True, env=self.env,
                                cwd=self.dir, timeout=120)
        self.assertEqual(result.returncode, 126, result.stderr)
        self.shown += result.stderr

    def test_pipe_continues(self):
        reader, writer = os.pipe()
        os.write(writer, b"one\ntwo\n")
        with os.fdopen(reader, "rb") as input_file:
            try:
                words = self.run_words("sh", "-c", 'read -r line; echo "$line"; test "$MUSTER_ATTEMPT" = 2')
                result = subprocess.run(words, stdin=input_file, capture_output=True, text=True, env=self.env, cwd=self.dir, timeout=120)
            finally:
                os.close(writer)
        self.shown += result.stderr

    def test_replaced_states(self):
        self.reach("run", "--", "sh", "-c", r"printf 'a\rb\rc\rd\n'", check=0)

    def test_out_of_memory(self):
        group = self.group("memory", {"memory.max": str(300 << 20)})
        eats = "data = []\nwhile True: data.append(bytearray(b'x' * (1 << 20)))\n"
        self.reach_on(group.command(*self.run_words("python3", "-c", eats, options=["--restarts", "0"])), codes=(137,))

    def test_child_out_of_memory(self):
        group = self.group("memory", {"memory.max": str(300 << 20)})
        eats = "data = []\nwhile True: data.append(bytearray(b'x' * (1 << 20)))\n"
        loader = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {eats!r}]); sys.exit(1)"
        self.reach_on(group.command(*self.run_words("python3", "-c", loader, options=["--restarts", "0"])), codes=(1,))

    def test_kernel_limits(self):
        spin = "while :; do :; done"
        # `ulimit -t` sets both limits, and at the hard one the kernel sends SIGKILL.
        for script, code in ((f"ulimit -t 1; {spin}", 137), (f"ulimit -t 1; sh -c '{spin}'; exit $?", 137),
                             (f"ulimit -c 0; ulimit -S -t 1; {spin}", 152), ("ulimit -c 0; kill -XFSZ $$", 153)):
            before = len(self.shown)
            self.reach_on(self.run_words("sh", "-c", script, options=["--restarts", "0"]), codes=(code,))
            self.assertRegex(self.shown[before:], r"is used up \(ulimit -t\): 1 s|limit of sizes \(ulimit -f\)", script)

    def test_pids_max(self):
        group = self.group("pids", {"pids.max": "30"})
        self.reach_on(group.command(*self.run_words("true")))

    def test_ulimit_u(self):
        os.chmod(self.dir, 0o777)
        as_user = ["setpriv", "--reuid", "61235", "--regid", "61235", "--clear-groups"] if os.getuid() == 0 else []
        self.reach_on([*as_user, "bash", "-c", 'ulimit -u 20; exec "$@"', "bash", *self.run_words("true")])

    def test_ulimit_n(self):
        self.reach_on(["sh", "-c", 'ulimit -n 20; exec "$@"', "sh", *self.run_words("true")])

    def test_ulimit_v(self):
        for limit in (400000, 500000, 600000):
            self.reach_on(["bash", "-c", f'ulimit -v {limit}; exec "$@"', "bash", *self.run_words("true")])
        # A larger limit suffices: none of the programs aborts.
        for limit in (700000, 800000, 1000000):
            self.reach_on(["bash", "-c", f'ulimit -v {limit}; exec "$@"', "bash", *self.run_words("true")], codes=(0,))

    def test_ulimit_d(self):
        self.reach_on(["bash", "-c", 'ulimit -d 100000; exec "$@"', "bash", *self.run_words("true")])

    def test_ulimit_s(self):
        self.reach_on(["bash", "-c", 'ulimit -s 64; exec "$@"', "bash", *self.run_words("true")])

    def test_ulimit_f(self):
        self.reach_on(["bash", "-c", 'ulimit -f 10; exec "$@"', "bash", *self.run_words("true")])

    def test_inotify(self):
        self.reach_on(self.without_inotify(61239, self.run_words("true")))

    def run_with_little_memory(self, limit):
        # The model's parameters alone have 1.6 GB.
        large = ["override_model_config=true", "base_emb_dim=4096", "base_mlp_dim=16384", "base_num_decoder_layers=2"]
        group = self.group("memory", {limit: str(400 << 20)})
        self.reach_on(group.command(self.bin("muster"), *self.run_args("large", *large, ranks=1)))

    def test_too_little_memory(self):
        self.run_with_little_memory("memory.max")

    def test_memory_high(self):
        self.run_with_little_memory("memory.high")

    def test_bus_error(self):
        # The file without a name is gone when the rank has ended; the other one stays.
        fills = ("import mmap, os\nfile = open('/dev/shm/large', 'w+b')\nfile.truncate(8 << 20)\n{}\n"
                 "memory = mmap.mmap(file.fileno(), 0)\nmemory[:] = b'x' * (8 << 20)\n")
        mount = "mount -t tmpfs -o size=4m none /dev/shm"
        if subprocess.run(["unshare", "--mount", "sh", "-c", mount], capture_output=True).returncode != 0:
            self.skipTest("mounting needs root and namespaces")
        for unlink in ("os.unlink('/dev/shm/large')", ""):
            words = self.run_words("python3", "-c", fills.format(unlink), options=["--restarts", "0"])
            self.reach_on(["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh", *words], codes=(135,))

    def test_small_shm(self):
        folder = self.dir / "small"
        mount = f"mkdir -p {folder} && mount -t tmpfs -o size=64k none {folder}"
        if subprocess.run(["unshare", "--mount", "sh", "-c", mount], capture_output=True).returncode != 0:
            self.skipTest("mounting needs root and namespaces")
        words = [self.bin("muster"), *map(str, self.run_args("local", "enable_checkpointing=true", "checkpoint_period=2", "steps=2",
                                                             "enable_emergency_checkpoint=true", f"local_checkpoint_directory={folder}",
                                                             "local_checkpoint_period=1", ranks=1))]
        self.reach_on(["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh", *words])

    def test_full_disk(self):
        mount = "mkdir -p small && mount -t tmpfs -o size=16k none small && cd small"
        if subprocess.run(["unshare", "--mount", "sh", "-c", mount], cwd=self.dir, capture_output=True).returncode != 0:
            self.skipTest("mounting needs root and namespaces")
        self.reach_on(["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh", *self.run_words("true")])


if __name__ == "__main__":
    unittest.main()
