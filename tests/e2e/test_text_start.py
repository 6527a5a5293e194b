"""Prompts of converted models begin as transformers begins them: `muster decode`, `muster serve`
and `muster eval` beside transformers on tiny models with tokenizers of several kinds.
"""
import json
import os
import subprocess
import unittest

from harness import SOURCE
from serving import ServerTest

PEERS_PYTHON = os.environ.get("MUSTER_PEERS_PYTHON")
TEXT = "The ranks of a mesh"

# Makes the models, and computes with each tokenizer's own rules: the tokens of a prompt, their
# log-probabilities, and a greedy continuation.
TRANSFORMERS = """
import json, pathlib, sys, torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, LlamaTokenizer, PreTrainedTokenizerFast
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
out, pieces, bpe, text = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3]), sys.argv[4]
torch.manual_seed(3)

def fast(name, begins=None, **tokens):
    tokenizer = Tokenizer.from_file(str(bpe / name))
    if begins:
        tokenizer.post_processor = TemplateProcessing(single=f"{begins} $A", special_tokens=[(begins, tokenizer.token_to_id(begins))])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens)

tokenizers = {
    "llama": LlamaTokenizer(pieces, legacy=True),
    "llama_without_bos": LlamaTokenizer(pieces, legacy=True, add_bos_token=False),
    "llama3": fast("llama3.json", "<|begin_of_text|>", bos_token="<|begin_of_text|>", eos_token="<|end_of_text|>"),
    "gpt2": fast("gpt2.json", bos_token="<|endoftext|>", eos_token="<|endoftext|>"),
    "qwen": fast("qwen.json", eos_token="<|endoftext|>"),
}
results = {}
for name, tokenizer in tokenizers.items():
    if name == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), n_positions=64, n_embd=32, n_layer=2, n_head=2, initializer_range=0.3))
    else:
        model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
                                             max_position_embeddings=64, initializer_range=0.3))
    model.save_pretrained(out / name)
    tokenizer.save_pretrained(out / name)
    own, model = type(tokenizer).from_pretrained(out / name), model.eval()
    prompt = own(text)["input_ids"]
    with torch.no_grad():
        logprobs = torch.log_softmax(model(torch.tensor([prompt])).logits[0].double(), -1)
        ids = list(prompt)
        for _ in range(8):
            ids.append(model(torch.tensor([ids])).logits[0, -1].argmax().item())
            if ids[-1] == own.eos_token_id:
                break
    results[name] = {"prompt": prompt, "logprobs": [logprobs[i - 1, prompt[i]].item() for i in range(1, len(prompt))],
                     "tokens": ids[len(prompt):], "text": own.decode(ids, skip_special_tokens=True)}
print(json.dumps(results))
"""


@unittest.skipUnless(PEERS_PYTHON, "MUSTER_PEERS_PYTHON names no Python with transformers")
class TextStart(ServerTest):
    def test_prompts_begin_as_in_transformers(self):
        (self.dir / "text.txt").write_text("".join(f"The ranks of a mesh meet in step {i}.\n" for i in range(300)))
        self.muster("train-tokenizer", "--text", self.dir / "text.txt", "--vocab-size", "300", "--out", self.dir / "t.model", check=0)
        done = subprocess.run([PEERS_PYTHON, "-c", TRANSFORMERS, self.dir / "hf", self.dir / "t.model", SOURCE / "tests/golden/tokenizers", TEXT],
                              capture_output=True, text=True, env={**self.env, "HF_HUB_OFFLINE": "1"}, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        results = json.loads(done.stdout)
        lengths = {name: len(result["prompt"]) for name, result in results.items()}
        self.assertEqual(lengths["llama"], lengths["llama_without_bos"] + 1)
        for name, expected in results.items():
            with self.subTest(name):
                self.check_model(name, expected)

    def check_model(self, name, expected):
        run = self.dir / name
        self.muster("convert", self.dir / "hf" / name, run, check=0)
        decoded = json.loads(self.muster("decode", "--run", run, "--prompt", TEXT, "--max-tokens", 8, "--json", check=0).stdout)
        self.assertEqual(TEXT + decoded["text"], expected["text"])
        server = self.serve_run(run)
        answer = self.complete(prompt=TEXT, max_tokens=0, echo=True, logprobs=1)
        self.assertEqual(answer["usage"]["prompt_tokens"], len(expected["prompt"]))
        for ours, theirs in zip(answer["choices"][0]["logprobs"]["token_logprobs"][1:], expected["logprobs"], strict=True):
            self.assertAlmostEqual(ours, theirs, places=3)
        server.terminate()
        self.assertEqual(server.wait(60), 0)
        # Scores of a text after a context have the same start.
        (self.dir / "task.jsonl").write_text(json.dumps({"context": TEXT[:9], "continuation": TEXT[9:]}) + "\n")
        self.muster("eval", "--run", run, "--task", f"loglikelihood={self.dir}/task.jsonl", "--out", self.dir / f"{name}-out", "--length", 32,
                    "--hardware", "cpu", check=0)
        (scores,) = (self.dir / f"{name}-out").glob("loglikelihood-*.jsonl")
        score = json.loads(scores.read_text())["log_likelihood"]
        sums = [sum(expected["logprobs"][first:]) for first in range(len(expected["logprobs"]))]
        self.assertLess(min(abs(score - one) for one in sums), 1e-3 * abs(score), (score, sums))


if __name__ == "__main__":
    unittest.main()
