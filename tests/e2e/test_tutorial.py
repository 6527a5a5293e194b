"""The commands of docs/tutorial.md: from a text to a model whose answers are right in `muster eval`
and over HTTP, trained at once or killed in between. With MUSTER_PEERS_PYTHON also in transformers.
"""
import contextlib
import hashlib
import http.client
import json
import os
import re
import signal
import subprocess
import unittest

from harness import BIN, SOURCE, MusterTest, processes_with_mark, wait_until

PEERS_PYTHON = os.environ.get("MUSTER_PEERS_PYTHON")
BLOCKS = re.compile(r"^```bash\n(.*?)^```", re.M | re.S)
REQUIRED = 0.95
CHANCE = 0.65  # three standard errors above the half of 100 questions
ANSWERS = (" no", " yes")
# Prints the log-probabilities of both answers to each prompt, as a model of transformers has them.
LOAD_IN_TRANSFORMERS = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, prompts, answers = json.load(sys.stdin)
tokenizer = AutoTokenizer.from_pretrained(folder, use_fast=False)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
ids_of = lambda text: tokenizer(text, add_special_tokens=False).input_ids
scores = []
with torch.no_grad():
    for prompt in prompts:
        of_prompt = []
        for answer in answers:
            ids, begin = ids_of(prompt + answer), len(ids_of(prompt))
            logs = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
            of_prompt.append(sum(logs[i - 1, ids[i]].item() for i in range(begin, len(ids))))
        scores.append(of_prompt)
print(json.dumps(scores))
"""


def hashes_of(checkpoint):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(checkpoint.glob("*.safetensors"))}


class Tutorial(MusterTest):
    def setUp(self):
        super().setUp()
        self.env["PATH"] = f"{BIN}:{os.environ['PATH']}"
        self.blocks = BLOCKS.findall((SOURCE / "docs/tutorial.md").read_text())

    def run_block(self, contained, seconds=240):
        """Runs the block of the page that contains the text. Returns its output."""
        (block,) = [block for block in self.blocks if contained in block]
        self.blocks.remove(block)
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", block], cwd=self.dir, env=self.env, capture_output=True, text=True, timeout=seconds)
        self.assertEqual(done.returncode, 0, f"{block}\n{done.stdout}\n{done.stderr}")
        return block, done.stdout + done.stderr

    def accuracy_in(self, output):
        """Returns the accuracy in the line of an evaluation during a training."""
        found = re.search(r"^eval tasks after step: \d+, boolq/acc=(\d\.\d+)", output, re.M)
        self.assertTrue(found, output)
        return float(found[1])

    def test_from_a_text_to_answers(self):
        self.run_block("train-tokenizer")
        self.run_block("run_name=base")
        self.run_block("samples.jsonl")
        guessed = float(re.search(r"^boolq +acc +(\d\.\d+)", self.run_block("--run base")[1], re.M)[1])
        self.assertLess(guessed, CHANCE)
        command, output = self.run_block("run_name=tuned")
        tuned = self.accuracy_in(output)
        self.assertGreaterEqual(tuned, REQUIRED, output)
        adapted = self.accuracy_in(self.run_block("run_name=adapted")[1])
        self.assertGreaterEqual(adapted, REQUIRED)
        self.run_block("muster convert tuned")
        self.assertEqual(self.blocks, [], "blocks that no test runs")
        (results,) = (self.dir / "results").glob("results-200.json")
        self.assertEqual(json.loads(results.read_text())["results"]["boolq"]["acc"], tuned)
        self.questions = [json.loads(line) for line in (self.dir / "dev.jsonl").read_text().splitlines()]
        self.prompts = [f"{entry['passage']}\nQuestion: {entry['question']}?\nAnswer:" for entry in self.questions]
        self.killed_and_resumed(command)
        self.served(tuned)
        if PEERS_PYTHON:
            self.in_transformers({"tuned": tuned, "adapted": adapted})

    def killed_and_resumed(self, command):
        """Kills all processes of a training, gives the command again, and compares the bits."""
        again = command.replace("run_name=tuned", "run_name=killed")
        run = self.start("bash", "-euo", "pipefail", "-c", again)
        checkpoints = self.dir / "killed/checkpoints"
        wait_until(lambda: (checkpoints / "50/manifest.json").exists() or run.poll() is not None, 120, "the first checkpoint")
        self.assertIsNone(run.poll(), self.output(run))
        for pid in processes_with_mark(self.mark):
            # Ranks end with the process that started them.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        run.wait(timeout=30)
        wait_until(lambda: not processes_with_mark(self.mark), 30, "the end of all processes")
        self.assertFalse((checkpoints / "200").exists())
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", again], cwd=self.dir, env=self.env, capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        # A rank that is killed after its worker may have saved another checkpoint.
        self.assertRegex(done.stdout, r"(?m)^restored checkpoint \S+/([5-9]\d|1\d\d): ")
        self.assertEqual(hashes_of(checkpoints / "200"), hashes_of(self.dir / "tuned/checkpoints/200"))

    def served(self, accuracy):
        port_file = self.dir / "port"
        server = self.start(BIN / "muster", "serve", "--run", "tuned", "--listen", "127.0.0.1:0", "--port-file", port_file)
        port = int(self.wait_for_file(server, port_file))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.request("POST", "/v1/completions", json.dumps({"prompt": self.prompts, "max_tokens": 3, "temperature": 0}))
        response = connection.getresponse()
        body = response.read().decode()
        self.assertEqual(response.status, 200, body)
        texts = [choice["text"] for choice in sorted(json.loads(body)["choices"], key=lambda choice: choice["index"])]
        right = sum(text == ANSWERS[entry["answer"]] for text, entry in zip(texts, self.questions))
        self.assertAlmostEqual(right / len(texts), accuracy, delta=1.5 / len(texts), msg=str(texts))
        connection.close()
        server.terminate()
        self.assertEqual(server.wait(timeout=30), 0, self.output(server))

    def in_transformers(self, accuracies):
        for name, accuracy in accuracies.items():
            done = subprocess.run([PEERS_PYTHON, "-c", LOAD_IN_TRANSFORMERS], input=json.dumps([str(self.dir / f"{name}-hf"), self.prompts, ANSWERS]),
                                  capture_output=True, text=True, timeout=240, env={**self.env, "HF_HUB_OFFLINE": "1"})
            self.assertEqual(done.returncode, 0, done.stderr[-3000:])
            scores = json.loads(done.stdout)
            right = sum((yes > no) == entry["answer"] for (no, yes), entry in zip(scores, self.questions))
            self.assertEqual(right / len(scores), accuracy, name)


if __name__ == "__main__":
    unittest.main()
