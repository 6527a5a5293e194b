"""`muster serve` with the client of OpenAI and with curl; limits, and clients that leave."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import unittest

from harness import BIN, SOURCE, TINY, wait_until
from python_tools import python_or_skip
from serving import CONTEXT, ServeTest

PEERS_PYTHON = os.environ.get("MUSTER_PEERS_PYTHON")
PEER_LOST = 76

# A user of the client. Prints one JSON object.
CLIENT = """
import json, sys
import openai
client = openai.OpenAI(base_url=sys.argv[1], api_key=sys.argv[2], max_retries=0)
out = {"models": [model.id for model in client.models.list()], "model": client.models.retrieve("speaks").id}
body = dict(model="speaks", prompt="rank 3 waits", temperature=0, max_tokens=12)
answer = client.completions.create(**body)
out["text"], out["finish"], out["usage"] = answer.choices[0].text, answer.choices[0].finish_reason, answer.usage.to_dict()
chunks = list(client.completions.create(**body, stream=True, stream_options={"include_usage": True}))
out["streamed"] = "".join(choice.text for chunk in chunks for choice in chunk.choices)
out["chunks"], out["stream_usage"] = len(chunks), chunks[-1].usage.to_dict()
several = client.completions.create(**{**body, "prompt": ["rank 3 waits", "rank 7"]}, n=2)
out["several"] = [[choice.index, choice.text] for choice in several.choices]
echo = client.completions.create(**{**body, "max_tokens": 2}, echo=True, logprobs=2)
out["echo"], out["logprobs"] = echo.choices[0].text, echo.choices[0].logprobs.to_dict()
out["stopped"] = client.completions.create(**body, stop=[" rank"]).choices[0].to_dict()
sampled = dict(model="speaks", prompt="rank", max_tokens=20, temperature=2, n=3, seed=5)
out["sampled"] = [[choice.text for choice in client.completions.create(**sampled).choices] for _ in range(2)]
for name, call in (("chat", lambda: client.chat.completions.create(model="speaks", messages=[{"role": "user", "content": "Hi"}])),
                   ("unknown", lambda: client.completions.create(model="other", prompt="x")),
                   ("long", lambda: client.completions.create(model="speaks", prompt="rank " * 300)),
                   ("key", lambda: openai.OpenAI(base_url=sys.argv[1], api_key="wrong-key", max_retries=0).models.list())):
    try:
        call()
        out[name] = None
    except openai.APIStatusError as error:
        out[name] = [type(error).__name__, error.status_code, error.body["message"]]
print(json.dumps(out))
"""

# Greedy continuations of token ids by transformers, and log-probabilities of all tokens.
TRANSFORMERS = """
import json, sys, torch
from transformers import AutoModelForCausalLM
folder, prompts, count = json.load(sys.stdin)
model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
out = []
with torch.no_grad():
    for prompt in prompts:
        ids = list(prompt)
        for _ in range(count):
            ids.append(model(torch.tensor([ids])).logits[0, -1].argmax().item())
        logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0], -1)
        out.append([ids, [logprobs[i - 1, ids[i]].item() for i in range(1, len(ids))]])
print(json.dumps(out))
"""


class Clients(ServeTest):
    def test_client_of_openai(self):
        python = python_or_skip("openai")
        (self.dir / "keys").write_text("first-key-12345678\nsecond-key-12345678\n")
        self.serve("--api-key-file", self.dir / "keys")
        result = subprocess.run([python, "-c", CLIENT, f"http://127.0.0.1:{self.port}/v1", "second-key-12345678"], capture_output=True,
                                text=True, env=self.env, timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        out = json.loads(result.stdout)
        self.assertEqual((out["models"], out["model"]), (["speaks"], "speaks"))
        decoded = json.loads(self.muster("decode", "--run", self.run_folder, "--prompt", "rank 3 waits", "--max-tokens", "12", "--json",
                                         check=0).stdout)["text"]
        self.assertEqual(out["text"], decoded)
        self.assertIn(" for rank", out["text"])
        tokens = out["usage"]["completion_tokens"]  # the model ends its documents
        self.assertEqual(out["finish"], "length" if tokens == 12 else "stop")
        self.assertEqual((out["streamed"], out["stream_usage"]), (out["text"], out["usage"]))
        self.assertGreater(out["chunks"], 4)
        self.assertEqual([index for index, _ in out["several"]], [0, 1, 2, 3])
        self.assertEqual([text for _, text in out["several"][:2]], [out["text"]] * 2)
        self.assertNotEqual(out["several"][2][1], out["text"])
        self.assertTrue(out["echo"].startswith("rank 3 waits"))
        logprobs = out["logprobs"]
        self.assertEqual("".join(logprobs["tokens"]), out["echo"])
        self.assertEqual(logprobs["text_offset"][:2], [0, len(logprobs["tokens"][0])])
        self.assertIsNone(logprobs["token_logprobs"][0])
        for token, value, top in list(zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"]))[1:]:
            self.assertEqual(top[token], value)
            self.assertLessEqual(value, max(top.values()))
        self.assertEqual(logprobs["token_logprobs"][-1], max(logprobs["top_logprobs"][-1].values()))
        self.assertEqual((out["stopped"]["text"], out["stopped"]["finish_reason"]), (out["text"].split(" rank")[0], "stop"))
        self.assertEqual(out["sampled"][0], out["sampled"][1])
        self.assertEqual(len(set(out["sampled"][0])), 3)
        self.assertEqual(out["chat"][:2], ["BadRequestError", 400])
        self.assertIn("no chat template", out["chat"][2])
        self.assertEqual(out["unknown"], ["NotFoundError", 404, "no such model: other; there is speaks"])
        self.assertIn(f"the context has room for {CONTEXT}", out["long"][2])
        self.assertEqual(out["key"], ["AuthenticationError", 401, "the API key is unknown"])

    def test_curl(self):
        if not shutil.which("curl"):
            self.skipTest("no curl")
        self.serve("--body-kib", "4096")
        curl = ["curl", "--silent", "--show-error", "--max-time", "60", "--no-buffer"]
        url = f"http://127.0.0.1:{self.port}/v1/completions"

        def run(*words):
            return subprocess.run([*curl, *map(str, words)], capture_output=True, text=True, check=True, timeout=90).stdout
        plain = json.loads(run(url, "-d", '{"prompt": "rank 3", "max_tokens": 6, "temperature": 0}'))
        lines = run(url, "-d", '{"prompt": "rank 3", "max_tokens": 6, "temperature": 0, "stream": true}').split("\n\n")
        self.assertEqual(lines[-2:], ["data: [DONE]", ""])
        streamed = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines[:-2]]
        self.assertEqual("".join(choice["text"] for choice in streamed), plain["choices"][0]["text"])
        self.assertEqual(streamed[-1]["finish_reason"], "length")
        # curl sends large bodies after "100 Continue", and reads the error of a larger one.
        for size, expected in ((2 << 20, "context has room"), (5 << 20, "larger than 4194304 bytes")):
            (self.dir / "body").write_text(json.dumps({"prompt": [1] * (size // 3)}))
            self.assertIn(expected, run(url, "--data-binary", f"@{self.dir}/body"))
        self.assertEqual(run(f"http://127.0.0.1:{self.port}/healthz"), "ok\n")

    def test_chats_are_rendered_by_the_template(self):
        (self.dir / "chat.jinja").write_text("{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system message') }}{% endif %}"
                                             "{{ m.content }}{% endfor %}")
        self.serve("--chat-template", self.dir / "chat.jinja")
        user = {"role": "user", "content": "rank 3 waits"}
        body = {"messages": [user], "temperature": 0, "max_tokens": 8}
        answer = json.loads(self.request("/v1/chat/completions", body)[2])
        message = answer["choices"][0]["message"]
        self.assertEqual(message["role"], "assistant")
        self.assertGreater(len(message["content"]), 0)
        longer = json.loads(self.request("/v1/chat/completions", {**body, "messages": [user, user]})[2])
        self.assertGreater(longer["usage"]["prompt_tokens"], answer["usage"]["prompt_tokens"])
        refused = self.request("/v1/chat/completions", {**body, "messages": [{"role": "system", "content": "x"}, user]})
        self.assertEqual(refused[0], 400)
        self.assertIn("no system message", refused[2])

    def test_a_stop_token_has_logprobs(self):
        self.serve()
        body = {"prompt": [5, 9, 41], "max_tokens": 1, "echo": True, "logprobs": 1, "logit_bias": {"40": 100}, "stop_token_ids": [40]}
        choice = self.complete(**body)["choices"][0]
        logprobs = choice["logprobs"]
        self.assertEqual(choice["finish_reason"], "stop")
        self.assertEqual([len(values) for values in logprobs.values()], [4] * 4)
        self.assertEqual("".join(logprobs["tokens"]), choice["text"])
        self.assertEqual((logprobs["tokens"][-1], logprobs["text_offset"][-1]), ("", len(choice["text"])))
        self.assertEqual(logprobs["token_logprobs"][-1], logprobs["top_logprobs"][-1][""])

    def test_int8_cache(self):
        logprobs, blocks = [], []
        for words in ((), ("--int8-cache",)):
            server = self.serve("--cache-mib", "1", "--context", "4096", *words)
            blocks.append(self.metric("muster_serve_cache_blocks"))
            answer = self.complete(prompt=list(range(3, 100)), max_tokens=8, echo=True, logprobs=1, ignore_eos=True)
            logprobs.append(answer["choices"][0]["logprobs"]["token_logprobs"][1:])
            server.terminate()
            self.assertEqual(server.wait(60), 0)
        # A head has 8 elements of 4 bytes, or of 1 byte with a scale of 4 bytes.
        self.assertEqual(blocks, [(1 << 20) // (128 * 32), (1 << 20) // (128 * 12)])
        # The prompt's tokens are the same, so their log-probabilities differ by the rounding alone.
        differences = [abs(a - b) for a, b in zip(*(each[:96] for each in logprobs), strict=True)]
        self.assertLess(max(differences), 0.3)
        self.assertGreater(max(differences), 0)

    @unittest.skipUnless(PEERS_PYTHON, "MUSTER_PEERS_PYTHON names no Python with transformers")
    def test_tokens_and_logprobs_are_those_of_transformers(self):
        self.muster("convert", self.run_folder, self.dir / "hf", check=0)
        prompts = [[5], [9, 40, 41, 42, 77], list(range(3, 60))]
        result = subprocess.run([PEERS_PYTHON, "-c", TRANSFORMERS], input=json.dumps([str(self.dir / "hf"), prompts, 20]), text=True,
                                capture_output=True, env={**self.env, "HF_HUB_OFFLINE": "1"}, timeout=300)
        self.assertEqual(result.returncode, 0, result.stderr[-3000:])
        self.serve("--step-tokens", "16", "--batch", "4")
        ours = self.complete(prompt=prompts, max_tokens=20, echo=True, logprobs=1, ignore_eos=True)
        for choice, (ids, logprobs) in zip(ours["choices"], json.loads(result.stdout)):
            self.assertEqual(len(choice["logprobs"]["token_logprobs"]), len(ids))
            for a, b in zip(choice["logprobs"]["token_logprobs"][1:], logprobs):
                self.assertAlmostEqual(a, b, places=4)


# Requests completions of all models at the same time. Prints the texts by model.
ADAPTERS_CLIENT = """
import concurrent.futures, json, sys
import openai
client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
names = json.loads(sys.argv[2])
out = {"models": [[model.id, model.parent] for model in client.models.list()], "one": client.models.retrieve(names[1]).to_dict()}
def complete(name):
    chunks = client.completions.create(model=name, prompt="rank 3 waits", temperature=0, max_tokens=24, stream=True)
    return "".join(choice.text for chunk in chunks for choice in chunk.choices)
with concurrent.futures.ThreadPoolExecutor(9) as pool:
    texts = list(pool.map(complete, names * 3))
out["texts"] = {name: texts[i::len(names)] for i, name in enumerate(names)}
answer = client.completions.create(model=names[1], prompt="rank", max_tokens=1)
out["answered_by"] = answer.model
try:
    client.completions.create(model="secnd", prompt="x")
except openai.APIStatusError as error:
    out["unknown"] = [type(error).__name__, error.body["param"], error.body["message"]]
print(json.dumps(out))
"""


class Adapters(ServeTest):
    """Two adapters of one base: the checkpoint of a run, and a folder of PEFT."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        muster = lambda *words: subprocess.run([BIN / "muster", *map(str, words)], check=True, capture_output=True, text=True, timeout=170, cwd=cls.model)
        for name, text in (("first", "rank 3 waits and waits and waits again.\n"), ("second", "rank 3 waits never, but rank 7 does.\n")):
            (cls.model / f"{name}.txt").write_text(text * 500)
            muster("tokenize", "--text", cls.model / f"{name}.txt", "--tokenizer", cls.model / "tok.model", "--out", cls.model / name)
            cls.train(name, f"dataset_path={cls.model}/{name}", "enable_lora=true", "lora_rank=4", "lora_alpha=8", "steps=40",
                      "warmup_steps_fraction=0", f"load_parameters_path={cls.run_folder}")
            muster("convert", cls.model / "out" / name, cls.model / f"{name}-merged", "--to", "muster")
        muster("convert", cls.run_folder, cls.model / "hf")
        muster("convert", cls.model / "out/second", cls.model / "peft", "--to", "peft", "--base", cls.model / "hf")
        cls.adapters = ["--adapter", f"first={cls.model}/out/first", "--adapter", f"second={cls.model}/peft"]

    def merged_texts(self, prompt):
        """Returns the greedy texts of the base and of the merged models."""
        folders = {"speaks": self.run_folder, **{name: self.model / f"{name}-merged" for name in ("first", "second")}}
        return {name: json.loads(self.muster("decode", "--run", folder, "--tokenizer", self.model / "tok.model", "--prompt", prompt, "--max-tokens", "24",
                                             "--json", check=0).stdout)["text"] for name, folder in folders.items()}

    def test_requests_of_a_batch_choose_their_adapter(self):
        python = python_or_skip("openai")
        self.serve("--batch", "16", *self.adapters)
        names = ["speaks", "first", "second"]
        result = subprocess.run([python, "-c", ADAPTERS_CLIENT, f"http://127.0.0.1:{self.port}/v1", json.dumps(names)], capture_output=True,
                                text=True, env=self.env, timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        out = json.loads(result.stdout)
        self.assertEqual(out["models"], [["speaks", None], ["first", "speaks"], ["second", "speaks"]])
        self.assertEqual((out["one"]["id"], out["one"]["parent"], out["answered_by"]), ("first", "speaks", "first"))
        merged = self.merged_texts("rank 3 waits")
        self.assertEqual(len(set(merged.values())), 3, merged)
        self.assertEqual(out["texts"], {name: [text] * 3 for name, text in merged.items()})
        self.assertEqual(out["unknown"], ["NotFoundError", "model", "no such model: secnd; did you mean second? /v1/models lists all"])
        self.assertEqual(self.complete(prompt="rank 3 waits", max_tokens=24)["model"], "speaks")

    def test_models_are_listed(self):
        server = self.serve(*self.adapters[:2])
        self.assertIn("; 1 adapter, ", self.output(server))
        server = self.serve(*self.adapters)
        self.assertIn("; 2 adapters, ", self.output(server))
        status, _, body = self.request("/v1/models")
        self.assertEqual(status, 200, body)
        self.assertEqual([(model["id"], model["root"], model["parent"]) for model in json.loads(body)["data"]],
                         [("speaks", "speaks", None), ("first", "first", "speaks"), ("second", "second", "speaks")])
        status, _, body = self.request("/v1/models/second")
        self.assertEqual((status, json.loads(body)["parent"]), (200, "speaks"))
        status, _, body = self.request("/v1/completions", {"model": "€" * 100_000, "prompt": "a"})
        self.assertEqual(status, 404)
        self.assertIn("there are speaks and 2 adapters; /v1/models lists all", json.loads(body)["error"]["message"])
        self.assertLess(len(body), 1000)

    def test_a_base_that_has_moved(self):
        """The error of a run with enable_lora names a command that works."""
        moved = self.dir / "moved"
        run = self.model / "out/first"
        words = ["decode", "--tokenizer", self.model / "tok.model", "--prompt", "rank 3 waits", "--max-tokens", "24", "--json"]
        expected = self.merged_texts("rank 3 waits")["first"]
        shutil.move(self.run_folder, moved)
        try:
            refused = self.muster(*words, "--run", run, check=2)
            self.assertIn("has adapters alone, and their base cannot be read", refused.stderr)
            self.assertIn("--run BASE --adapter NAME=", refused.stderr)
            served = self.muster(*words, "--run", moved, "--adapter", f"first={run}", check=0)
        finally:
            shutil.move(moved, self.run_folder)
        out = json.loads(served.stdout)
        self.assertEqual((out["text"], out["adapter"]), (expected, "first"))

    def test_decode_computes_adapters_together(self):
        lines = [{"prompt": "rank 3 waits"}, {"prompt": "rank 3 waits", "adapter": "second"}, {"prompt": "rank 3 waits", "adapter": None}]
        (self.dir / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        words = ["decode", "--run", self.run_folder, *self.adapters, "--max-tokens", "24", "--json"]
        outputs = [json.loads(line) for line in self.muster(*words, "--prompts", self.dir / "prompts.jsonl", check=0).stdout.splitlines()]
        merged = self.merged_texts("rank 3 waits")
        self.assertEqual([output["text"] for output in outputs], [merged[name] for name in ("first", "second", "speaks")])
        self.assertEqual([output["adapter"] for output in outputs], ["first", "second", None])
        # A folder of adapters is the merged model.
        alone = self.muster("decode", "--run", self.model / "out/first", "--prompt", "rank 3 waits", "--max-tokens", "24", "--json", check=0)
        self.assertEqual(json.loads(alone.stdout)["text"], merged["first"])
        for line, sentence in (
                ('{"prompt": "a", "adapter": "third"}', "the prompt in line 1 has the adapter third; there are first, second"),
                ('{"prompt": "a", "adapter": ""}', 'the field "adapter" is ""; it must be the name of an --adapter')):
            (self.dir / "prompts.jsonl").write_text(line + "\n")
            self.assertIn(sentence, self.muster(*words, "--prompts", self.dir / "prompts.jsonl", check=2).stderr)
        refused = self.muster(*words, "--prompt", "a", check=2)
        self.assertIn("--adapter is given 2 times, but all prompts would use the first one", refused.stderr)

    def test_adapters_that_do_not_fit_are_refused(self):
        too_large = self.dir / "too-large"
        shutil.copytree(self.model / "peft", too_large)
        config = json.loads((too_large / "adapter_config.json").read_text())
        (too_large / "adapter_config.json").write_text(json.dumps({**config, "r": 1000}))
        self.train("other", "steps=1", "init_weights_seed=5", folder=self.dir)
        for words, sentence in (
                (["a"], "--adapter a: it must be NAME=DIR"),
                (["speaks=x"], "speaks is the name of the base"),
                ([f"a={self.dir}/nothing"], f"no adapter_config.json in {self.dir}/nothing; it must be the folder of a run with enable_lora"),
                ([f"a={self.run_folder}"], "has a complete model, and no adapters"),
                ([f"a={SOURCE}/tests/golden/lora/llama_gqa"], "has adapters of another base: tensor base_model.model.model.layers.0."),
                ([f"a={too_large}"], "lora_rank is 1000, but q_proj is a matrix of 32 x 32: it must be at most 32")):
            with self.subTest(sentence):
                refused = self.muster("serve", "--run", self.run_folder, *(part for word in words for part in ("--adapter", word)), check=2)
                self.assertIn(sentence, refused.stderr)
        refused = self.muster("serve", "--run", self.dir / "out/other", "--tokenizer", self.model / "tok.model", *self.adapters[:2], check=2)
        self.assertIn("the tensors have the same shapes, but other values", refused.stderr)


def children(process):
    """Returns the process ids of the other ranks of a server."""
    return [int(pid) for pid in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def runs(pid):
    """Returns whether a process has not ended. A zombie has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class TensorParallel(ServeTest):
    """A model that several processes divide. It has 4 query heads and 2 KV heads."""
    ENDLESS = {"prompt": "rank", "max_tokens": 16000, "n": 2, "ignore_eos": True}

    def texts(self, *words):
        self.env["OMP_NUM_THREADS"] = "1"
        done = self.muster("decode", *words, "--prompts", self.dir / "prompts.jsonl", "--max-tokens", "24", "--json", check=0)
        return [json.loads(line)["text"] for line in done.stdout.splitlines()]

    def test_decode_has_the_texts_of_one_process(self):
        (self.dir / "prompts.jsonl").write_text("".join(json.dumps({"prompt": f"rank {i} waits", "seed": i}) + "\n" for i in range(5)))
        for words in ([], ["--temperature", "1.5"], ["--int8-cache"]):
            run = ["--run", self.run_folder, *words]
            one = self.texts(*run)
            self.assertGreater(len(set(one)), 2)
            for ranks in ("2", "4"):
                self.assertEqual(self.texts(*run, "--tensor-parallel", ranks), one, words)
        line = [SOURCE / "configs/base.yml", "run_name=speaks", f"base_output_directory={self.model}/out", *TINY, "vocab_size=320",
                f"max_target_length={CONTEXT}", f"tokenizer_path={self.model}/tok.model", "ici_fsdp_parallelism=1", "ici_tensor_parallelism=2"]
        self.assertEqual(self.texts(*line), self.texts("--run", self.run_folder))
        for words, sentence in ((["--tensor-parallel", "3"], "--tensor-parallel is 3, but"),
                                (["--tensor-parallel", "2", "--hardware", "gpu"], "--tensor-parallel is 2, but one process computes a model on a GPU"),
                                (["--hardware", "tpu"], "--hardware"), (["--hardware", "gpu"], "--hardware gpu: ")):
            with self.subTest(sentence):
                refused = self.muster("decode", "--run", self.run_folder, *words, "--prompt", "a", check=2)
                self.assertIn(sentence, refused.stderr)
        # The device of a config file is used. Its mesh is the training's and does not forbid a GPU.
        self.assertIn("--hardware gpu: ", self.muster("decode", *line, "hardware=gpu", "--prompt", "a", check=2).stderr)

    def test_adapters_have_the_texts_of_one_process(self):
        self.train("adapted", "enable_lora=true", "lora_rank=4", "lora_alpha=8", "steps=20", "warmup_steps_fraction=0",
                   f"load_parameters_path={self.run_folder}", folder=self.dir)
        (self.dir / "prompts.jsonl").write_text("".join(json.dumps({"prompt": f"rank {i} waits"}) + "\n" for i in range(3)))
        merged = ["--run", self.dir / "out/adapted", "--tokenizer", self.model / "tok.model"]
        one = self.texts(*merged)
        self.assertEqual(self.texts(*merged, "--tensor-parallel", "2"), one)
        beside = ["--run", self.run_folder, "--adapter", f"adapted={self.dir}/out/adapted", "--tensor-parallel", "2"]
        self.assertEqual(self.texts(*beside), one)

    def test_auto_is_the_cpu_if_the_model_is_divided(self):
        done = self.muster("decode", "--run", self.run_folder, "--tensor-parallel", "2", "--hardware", "auto", "--prompt", "a", "--max-tokens", "2", check=0)
        self.assertIn("(--hardware auto: one process computes a model on a GPU, and --tensor-parallel is 2)", done.stderr)

    def test_server_answers_as_one_process(self):
        body = {"prompt": ["rank 3 waits", "rank 7"], "max_tokens": 20, "logprobs": 3, "echo": True}
        self.serve()
        one = self.complete(**body)
        for ranks in ("2", "4"):
            server = self.serve("--tensor-parallel", ranks)
            self.assertEqual(len(children(server)), int(ranks) - 1)
            several = self.complete(**body)
            for a, b in zip(one["choices"], several["choices"], strict=True):
                self.assertEqual(a["text"], b["text"])
                for x, y in zip(a["logprobs"]["token_logprobs"][1:], b["logprobs"]["token_logprobs"][1:], strict=True):
                    self.assertAlmostEqual(x, y, places=4)
            ranks_of_server = children(server)
            server.terminate()
            self.assertEqual(server.wait(60), 0, self.output(server))
            self.assertFalse(any(map(runs, ranks_of_server)))

    def test_lost_rank_ends_the_server(self):
        for busy in (False, True):
            server = self.serve("--tensor-parallel", "2", "--context", "16384")
            rank, = children(server)
            if busy:
                connection = self.open({**self.ENDLESS, "stream": True})
                wait_until(lambda: self.metric("muster_serve_output_tokens_total") > 0, 30, "an output token")
            os.kill(rank, signal.SIGKILL)
            self.assertEqual(server.wait(60), PEER_LOST, self.output(server))
            self.assertIn("rank 1", self.output(server))
            self.assertIn("; the server ends", self.output(server))
            if busy:
                received = b""
                while part := connection.recv(1 << 16):
                    received += part
                self.assertIn(b'data: {"error":', received)

    def test_server_names_the_rank_that_was_lost_first(self):
        server = self.serve("--tensor-parallel", "4", "--context", "16384")
        self.open({**self.ENDLESS, "stream": True})
        wait_until(lambda: self.metric("muster_serve_output_tokens_total") > 0, 30, "an output token")
        lost = children(server)[2]
        os.kill(lost, signal.SIGKILL)
        self.assertEqual(server.wait(60), PEER_LOST, self.output(server))
        self.assertIn(f"rank 3 of the model (process {lost}) was ended by signal 9", self.output(server))

    def test_server_with_a_stopped_rank_ends_at_the_second_signal(self):
        server = self.serve("--tensor-parallel", "2", "--context", "16384")
        rank, = children(server)
        self.open({**self.ENDLESS, "stream": True})
        wait_until(lambda: self.metric("muster_serve_output_tokens_total") > 0, 30, "an output token")
        os.kill(rank, signal.SIGSTOP)
        server.send_signal(signal.SIGTERM)
        wait_until(lambda: self.request("/healthz")[0] == 503, 30, "a server that ends")
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(30), 0, self.output(server))
        self.assertFalse(runs(rank))

    def test_ranks_end_with_their_server(self):
        server = self.serve("--tensor-parallel", "4")
        ranks = children(server)
        for pid in ranks:
            os.kill(pid, signal.SIGTERM)  # Ctrl-C and service managers signal all processes
        self.complete(prompt="rank", max_tokens=2)
        server.kill()
        server.wait(60)
        wait_until(lambda: not any(map(runs, ranks)), 30, "the end of the ranks")


class Limits(ServeTest):
    def test_malformed_requests_are_answered(self):
        self.serve()
        completion, chat = "/v1/completions", "/v1/chat/completions"
        for path, body, status, sentence in (
                (completion, b"{", 400, "the body is not JSON"),
                (completion, b'{"prompt": "\xff"}', 400, "the body is not JSON"),
                (completion, b"[" * 100_000, 400, "nested deeper than 16"),
                (completion, b"[]", 400, "must be a JSON object"),
                (completion, {}, 400, "prompt is missing"),
                (completion, {"prompt": 7}, 400, "prompt is 7; it must be a text"),
                (completion, {"prompt": [1, "a"]}, 400, 'prompt has "a" among its token ids'),
                (completion, {"prompt": [320]}, 400, "token id 320; ids are 0 to 319"),
                (completion, {"prompt": []}, 400, "prompt is []"),
                (completion, {"prompt": "a", "max_tokens": -1}, 400, "max_tokens is -1; it must be a whole number from 0"),
                (completion, {"prompt": "a", "max_tokens": 10**30}, 400, "max_tokens is 1e+30"),
                (completion, {"prompt": "a", "max_tokens": 1000}, 400, f"exceed the context of {CONTEXT} tokens"),
                (completion, {"prompt": "a", "temperature": "hot"}, 400, 'temperature is "hot"; it must be a number from 0 to 100'),
                (completion, {"prompt": "a", "temprature": 1}, 400, 'unknown field "temprature"; did you mean temperature?'),
                (completion, {"prompt": "a", "messages": []}, 400, "belongs to the other kind"),
                (completion, {"prompt": "a", "logit_bias": {"x": 1}}, 400, 'logit_bias has "x": 1'),
                (completion, {"prompt": "a", "stop": 3}, 400, "stop has 3"),
                (completion, {"prompt": ["a"] * 100, "n": 2}, 400, "200 prompts times choices; at most 128"),
                (completion, {"prompt": "a", "model": "gpt-4"}, 404, "no such model: gpt-4; there is speaks"),
                (chat, {"messages": []}, 400, "messages must be a list"),
                (chat, {"messages": [{"role": "user"}]}, 400, "messages[0] has no content"),
                (chat, {"messages": [{"role": "user", "content": "a"}], "tools": [{}]}, 400, "; only [] is supported"),
                (chat, {"messages": [{"role": "user", "content": "a"}], "response_format": {"type": 7}}, 400, 'only {"type":"text"}'),
                (chat, {"messages": [{"role": "user", "content": [{"type": 7}]}]}, 400, "only parts of type text"),
                (completion, {"prompt": "a", "store": True}, 400, "store is true; only false is supported"),
                (chat, {"messages": [{"role": "user", "content": "a"}]}, 400, "no chat template"),
                ("/v1/embeddings", {}, 404, "the model generates text and has no embeddings; there are /v1/completions"),
                ("/v1/models/other", None, 404, "no such model: other")):
            with self.subTest(sentence):
                answer = self.request(path, body)
                error = json.loads(answer[2])["error"]
                self.assertEqual(answer[0], status, answer)
                self.assertIn(sentence, error["message"])
                self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertEqual(self.request(completion, None)[0], 405)
        self.assertEqual(self.request("/metrics", b"x")[0], 405)
        self.assertEqual(self.request("/metrics", b"x", method="GET")[0], 400)
        for path, status in (("/healthz", 200), ("/nowhere", 404)):
            whole, head = self.request(path), self.request(path, method="HEAD")
            self.assertEqual((head[0], head[1]["Content-Length"], head[2]), (status, str(len(whole[2])), ""))
        for raw, status in ((b"nonsense\r\n\r\n", b"400"), (b"GET / HTTP/1.1\r\nA: " + b"x" * 100_000, b"431"),
                            (b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b"413"),
                            # The body of an unknown path is not awaited.
                            (b"POST /v2/upload HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n", b"404"),
                            (b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"400")):
            with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
                connection.sendall(raw)
                self.assertTrue(connection.recv(4096).startswith(b"HTTP/1.1 " + status), raw[:40])
        self.assertEqual(self.complete(prompt="rank 3", max_tokens=1)["usage"]["completion_tokens"], 1)

    def test_full_queue(self):
        self.serve("--batch", "1", "--waiting", "1", "--context", "16384")
        # Both requests take many seconds, and never have to complete.
        first, second = (self.open({"prompt": "rank", "max_tokens": 16000, "stream": True, "ignore_eos": True}) for _ in range(2))
        wait_until(lambda: self.metric("muster_serve_running") == self.metric("muster_serve_waiting") == 1, 30, "a waiting request")
        status, headers, body = self.request("/v1/completions", {"prompt": "rank", "max_tokens": 1})
        self.assertEqual((status, headers.get("Retry-After")), (429, "1"), body)
        self.assertIn("the limit is 2. Try again later", json.loads(body)["error"]["message"])
        # The refusal does not disturb the first request.
        before = self.metric("muster_serve_output_tokens_total")
        wait_until(lambda: self.metric("muster_serve_output_tokens_total") > before, 30, "more output")
        self.assertEqual((self.metric("muster_serve_running"), self.metric("muster_serve_waiting")), (1, 1))
        first.close()
        second.close()
        self.wait_until_idle()
        self.complete(prompt="rank", max_tokens=1)

    def test_neutral_fields_of_openai_are_accepted(self):
        self.serve()
        self.complete(prompt="rank", max_tokens=1, store=False, metadata={"a": "b"}, service_tier="auto", user="me", prompt_cache_key="x")
        chat = {"messages": [{"role": "user", "content": "a"}], "parallel_tool_calls": True, "reasoning_effort": "none", "tools": []}
        self.assertIn("no chat template", self.request("/v1/chat/completions", chat)[2])

    def test_requests_that_are_too_large(self):
        self.serve("--batch", "1", "--waiting", "1", "--context", "1024")
        for fields, sentence in (({"n": 3}, "the request has 3 outputs; at most 2 run or wait on this server"),
                                 ({"n": 128, "max_tokens": 1000, "logprobs": 20}, "at most 1048576: lower n, max_tokens or logprobs")):
            status, _, body = self.request("/v1/completions", {"prompt": "rank", **fields})
            self.assertEqual(status, 400, body)
            self.assertIn(sentence, json.loads(body)["error"]["message"])

    def test_slow_and_silent_clients(self):
        self.serve("--header-seconds", "0.5", "--connections", "20")
        silent = [socket.create_connection(("127.0.0.1", self.port), timeout=30) for _ in range(30)]
        for connection in silent:
            self.addCleanup(connection.close)
        # They neither keep others out nor stay.
        self.complete(prompt="rank", max_tokens=1)
        slow = silent[-1]
        slow.sendall(b"POST /v1/completions HT")
        self.assertEqual(slow.recv(100), b"")
        wait_until(lambda: self.metric("muster_serve_connections") == 1, 30, "closed connections")


class Leaving(ServeTest):
    # This request takes so long that its state is observed for certain; it never has to complete.
    ENDLESS = {"prompt": "rank", "max_tokens": 16000, "n": 60, "ignore_eos": True}
    ROOM = ("--context", "16384")

    def test_client_that_leaves(self):
        self.serve("--batch", "4", *self.ROOM)
        for stream in (True, False):
            connection = self.open({**self.ENDLESS, "stream": stream})
            wait_until(lambda: self.metric("muster_serve_waiting") > 0, 30, "waiting outputs")
            before = self.metric("muster_serve_output_tokens_total")
            connection.close()
            self.wait_until_idle()
            self.assertLess(self.metric("muster_serve_output_tokens_total") - before, 60 * 16000)

    def test_client_that_does_not_read(self):
        self.serve("--batch", "64", "--write-seconds", "1", "--context", "512")
        self.open({"prompt": "rank", "max_tokens": 380, "n": 128, "ignore_eos": True, "stream": True, "logprobs": 20}, receive_buffer=4096)
        wait_until(lambda: self.metric("muster_serve_output_tokens_total") > 0, 30, "an output token")
        self.wait_until_idle()
        self.assertLess(self.metric("muster_serve_output_tokens_total"), 128 * 380)

    def test_server_that_ends_completes_its_requests(self):
        server = self.serve("--batch", "4", *self.ROOM)
        # The endless request keeps the other one waiting until the server has received the signal.
        endless = self.open({**self.ENDLESS, "stream": True})
        wait_until(lambda: self.metric("muster_serve_running") == 4, 30, "running outputs")
        answers = []
        thread = threading.Thread(target=lambda: answers.append(self.complete(prompt="rank", max_tokens=100, n=8, ignore_eos=True)))
        thread.start()
        wait_until(lambda: self.metric("muster_serve_waiting") > 60, 30, "waiting outputs of both requests")
        server.send_signal(signal.SIGTERM)
        wait_until(lambda: self.request("/healthz")[0] == 503, 30, "a server that ends")
        status, headers, _ = self.request("/v1/completions", {"prompt": "rank"})
        self.assertEqual((status, headers["Connection"]), (503, "close"))
        endless.close()
        thread.join(60)
        self.assertEqual(server.wait(60), 0, self.output(server))
        self.assertEqual(answers[0]["usage"]["completion_tokens"], 8 * 100)

    def test_second_signal_ends_at_once(self):
        server = self.serve("--batch", "1", *self.ROOM)
        self.open({**self.ENDLESS, "stream": True})
        wait_until(lambda: self.metric("muster_serve_running") > 0, 30, "running outputs")
        server.send_signal(signal.SIGTERM)
        wait_until(lambda: self.request("/healthz")[0] == 503, 30, "a server that ends")
        server.send_signal(signal.SIGTERM)
        # After the first signal alone the outputs would run for 30 s.
        self.assertEqual(server.wait(20), 0, self.output(server))


class EmulatedGpu(ServeTest):
    """The command `decode` with --hardware gpu, on the emulated device."""

    def decode(self, trainer, *words):
        run = [BIN / trainer, "decode", "--checkpoint", self.run_folder / "checkpoints", "--prompt", "rank 3 waits", "--max-tokens", "12", "--json"]
        return subprocess.run([*map(str, run), *words], capture_output=True, text=True, env=self.env, timeout=120)

    def test_decode_has_the_text_of_the_cpu(self):
        if not (BIN / "emulated_muster_trainer").exists():
            self.skipTest("this build has no emulated_muster_trainer")
        for words in ([], ["--kv-cache", "int8"]):
            gpu = self.decode("emulated_muster_trainer", "--hardware", "gpu", *words)
            self.assertEqual(gpu.returncode, 0, gpu.stderr)
            self.assertRegex(gpu.stderr, r"backend: .*\(--hardware gpu\)")
            self.assertEqual(gpu.stdout, self.decode("muster-trainer", *words).stdout)
        self.env["MUSTER_EMULATED_DRIVER"] = "0"
        refused = self.decode("emulated_muster_trainer", "--hardware", "gpu")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("--hardware gpu: no NVIDIA driver is loaded here", refused.stderr)
        cpu = self.decode("emulated_muster_trainer", "--hardware", "auto")
        self.assertIn("backend: CPU", cpu.stderr)
        self.assertEqual(cpu.returncode, 0, cpu.stderr)


class CommandLine(ServeTest):
    def test_prompts_of_a_file(self):
        prompts = self.dir / "prompts"
        words = ["decode", "--run", self.run_folder, "--max-tokens", "4", "--prompts", prompts]
        prompts.write_bytes(b"rank 3 waits\r\n\nrank 7\n")
        lines = [json.loads(line) for line in self.muster(*words, "--json", check=0).stdout.splitlines()]
        self.assertEqual([line["prompt"] for line in lines], ["rank 3 waits", "rank 7"])
        with open("/dev/full", "w") as full:  # the error of several writes is reported once
            result = subprocess.run([BIN / "muster", *map(str, words)], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(result.stderr.count("error"), 1, result.stderr)
        prompts.write_text("rank 3 waits\n\n" + "rank " * 140_000)
        self.assertIn("the prompt in line 3 has", self.muster(*words, check=2).stderr)

    def put(self, text):
        path = self.dir / f"keys-{len(text)}"
        path.write_text(text)
        return path

    def test_bad_options(self):
        for words, sentence in ((("--run", self.dir / "nowhere"), "nowhere"),
                                (("--run", self.run_folder, "--listen", "0.0.0.0:0"), "give --api-key-file FILE"),
                                (("--run", self.run_folder, "--listen", "8000"), "the port is missing"),
                                (("--run", self.run_folder, "--api-key-file", self.dir / "no"), "No such file"),
                                (("--run", self.run_folder, "--api-key-file", self.put("# none\n")), "there are no keys"),
                                (("--run", self.run_folder, "--api-key-file", self.put("too-short\n")), "line 1 is no token"),
                                (("--run", self.run_folder, "--tokenizer", self.dir / "no"), "no"),
                                (("--run", self.run_folder, "--context", "0"), "--context"),
                                (("--run", self.run_folder, "--context", "1000000", "--cache-mib", "1"), "has room for")):
            with self.subTest(sentence):
                self.assertIn(sentence, self.muster("serve", *words, check=2).stderr)


if __name__ == "__main__":
    unittest.main()
