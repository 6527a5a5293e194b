"""`muster eval`: against lm-evaluation-harness' results for a model of transformers (tests/golden/
make_evaluation.py), as its model, and with bad input.
"""
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import unittest

from harness import BIN, SOURCE, TINY, MusterTest
from python_tools import named_python

GOLDEN = SOURCE / "tests/golden/evaluation"
TASKS = ("lambada", "boolq", "choice", "loglikelihood", "perplexity")
# The harness' model `hf` and `muster` on the same tasks.
BOTH_MODELS = """
import json, sys
import lm_eval
from lm_eval.tasks import TaskManager
sys.path.insert(0, sys.argv[1])
import muster_lm_eval
folder, hf, ours, tasks = sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5].split(",")
manager = TaskManager(include_path=folder, include_defaults=False)
results = {}
for name, arguments in (("hf", {"pretrained": hf, "dtype": "float32", "max_length": 48}),
                        ("muster", {"run": ours, "length": 48, "hardware": "cpu", "batch": 4})):
    done = lm_eval.simple_evaluate(model=name, model_args=arguments, tasks=tasks, task_manager=manager, device="cpu" if name == "hf" else None,
                                   bootstrap_iters=0, num_fewshot=None, log_samples=True)
    samples = {task: [sample["filtered_resps"] for sample in done["samples"][task]] for task in tasks}
    results[name] = {"results": done["results"], "samples": samples}
print("RESULTS" + json.dumps(results, default=str))
"""
LM_EVAL_TASKS = {
    "last_word": ("lambada", "loglikelihood", {"doc_to_text": "{{text.split(' ')[:-1]|join(' ')}}", "doc_to_target": "{{' '+text.split(' ')[-1]}}",
                                               "metric_list": [{"metric": "perplexity", "aggregation": "perplexity"}, {"metric": "acc"}]}),
    "yes_no": ("boolq", "multiple_choice", {"doc_to_text": "{{passage}}\nQuestion: {{question}}?\nAnswer:", "doc_to_target": "{{answer|int}}",
                                            "doc_to_choice": ["no", "yes"], "metric_list": [{"metric": "acc"}]}),
    "choices": ("choice", "multiple_choice", {"doc_to_text": "{{context}}", "doc_to_target": "{{gold}}", "target_delimiter": "", "doc_to_choice": "{{choices}}",
                                              "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}, {"metric": "acc_mutual_info"}]}),
    "few_shots": ("choice", "multiple_choice", {"doc_to_text": "{{context}}", "doc_to_target": "{{gold}}", "target_delimiter": "", "num_fewshot": 1,
                                                "doc_to_choice": "{{choices}}", "fewshot_split": "test", "metric_list": [{"metric": "acc"}]}),
    "whole_text": ("perplexity", "loglikelihood_rolling", {"doc_to_text": "", "doc_to_target": "{{text}}", "metric_list": [
        {"metric": "word_perplexity"}, {"metric": "byte_perplexity"}, {"metric": "bits_per_byte"}]}),
    "generated": ("lambada", "generate_until", {"doc_to_text": "{{text.split(' ')[:-1]|join(' ')}}", "doc_to_target": "{{text.split(' ')[-1]}}",
                                                "generation_kwargs": {"until": [" the", "\n"], "max_new_tokens": 4, "do_sample": False},
                                                "metric_list": [{"metric": "exact_match"}]}),
    # The prompts are longer than a sequence.
    "generated_after_long_prompts": ("perplexity", "generate_until", {"doc_to_text": "{{text}}", "doc_to_target": "", "metric_list": [{"metric": "exact_match"}],
                                                                      "generation_kwargs": {"until": ["\n\n"], "max_new_tokens": 8, "do_sample": False}}),
}


def jsonl(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def mean_and_error(values):
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))


class Evaluation(MusterTest):
    def setUp(self):
        super().setUp()
        self.ours = self.dir / "ours"
        self.muster("convert", GOLDEN / "model", self.ours, check=0)

    def evaluate(self, *words, check=0):
        return self.muster("eval", "--run", self.ours, "--hardware", "cpu", *words, check=check)

    def test_results_equal_those_of_lm_evaluation_harness(self):
        expected = json.loads((GOLDEN / "expected.json").read_text())
        files = [word for task in TASKS for word in ("--task", f"{task}={GOLDEN / task}.jsonl")]
        for batch in (1, 5):
            out = self.dir / f"out{batch}"
            printed = self.evaluate(*files, "--length", 48, "--truncate", "--batch", batch, "--out", out, "--json").stdout
            results = json.loads(printed)
            self.assertEqual(results, json.loads(next(out.glob("results-*.json")).read_text()))
            for task in TASKS:
                (path,) = out.glob(f"{task}-*.jsonl")
                samples = jsonl(path)
                self.assertEqual(results["results"][task]["samples"], len(samples))
                values = [value for sample in samples for value in sample.get("log_likelihoods", [sample.get("log_likelihood")])]
                self.assertEqual(len(values), len(expected[task]))
                for value, wanted in zip(values, expected[task]):
                    self.assertAlmostEqual(value, wanted["log_likelihood"], delta=1e-5 * max(1, abs(wanted["log_likelihood"])))
                if "is_greedy" in samples[0] and task != "perplexity":
                    self.assertEqual([sample["is_greedy"] for sample in samples], [wanted["is_greedy"] for wanted in expected[task]])
            self.assert_metrics(results["results"], expected)
        table = self.evaluate(*files[:2], "--length", 48, "--truncate").stdout
        self.assertRegex(table, r"(?m)^lambada +acc +0\.5000 ± 0\.1291 +16 +\d+$")

    def assert_metrics(self, results, expected):
        """Compares metrics with those of the expected log-likelihoods."""
        last = expected["lambada"]
        acc, error = mean_and_error([1 if answer["is_greedy"] else 0 for answer in last])
        self.assertEqual(acc, 0.5)
        self.assertAlmostEqual(results["lambada"]["acc"], acc)
        self.assertAlmostEqual(results["lambada"]["acc_stderr"], error)
        self.assertAlmostEqual(results["lambada"]["perplexity"] / math.exp(-mean_and_error([answer["log_likelihood"] for answer in last])[0]), 1, delta=1e-5)
        answers = jsonl(GOLDEN / "boolq.jsonl")
        pairs = [[answer["log_likelihood"] for answer in expected["boolq"][2 * i:2 * i + 2]] for i in range(len(answers))]
        right = [1 if (no < yes) == answer["answer"] else 0 for (no, yes), answer in zip(pairs, answers)]
        self.assertAlmostEqual(results["boolq"]["acc"], mean_and_error(right)[0])
        self.assertAlmostEqual(results["boolq"]["acc_stderr"], mean_and_error(right)[1])
        texts = [line["text"] for line in jsonl(GOLDEN / "perplexity.jsonl")]
        total = sum(answer["log_likelihood"] for answer in expected["perplexity"])
        self.assertAlmostEqual(results["perplexity"]["bits_per_byte"], -total / math.log(2) / sum(len(text.encode()) for text in texts), delta=1e-5)
        words = sum(len(text.split()) for text in texts)
        self.assertAlmostEqual(results["perplexity"]["word_perplexity"] / math.exp(-total / words), 1, delta=1e-4)

    def test_bad_input(self):
        lines = self.dir / "dev.jsonl"
        lines.write_text('{"passage": "a", "question": "b", "answer": true}\n{"passage": "a", "answer": true}\n')
        for words, complaints in (
                (["--task", f"boolq={lines}"], [f"{lines}:2: ", 'the field "question" is missing']),
                (["--task", f"boolk={lines}"], ["there is no task", "did you mean boolq?"]),
                (["--task", f"boolq={self.dir}/test.jsonl"], ["there is no such file", "has dev.jsonl"]),
                (["--task", f"perplexity={GOLDEN}/perplexity.jsonl", "--length", 0], ["--length"]),
                (["--task", f"loglikelihood={GOLDEN}/loglikelihood.jsonl", "--length", 48], ["jsonl:4: ", "tokens, but a sequence has 48", "eval_truncate"]),
                (["--task", f"lambada={GOLDEN}/lambada.jsonl", "--bos-id", 5000], ["eval_bos_id", "5000"]),
                (["--task", f"lambada={GOLDEN}/lambada.jsonl", "--hardware", "tpu"], ["tpu", "cpu, gpu or auto"]),
                (["--task", f"lambada={GOLDEN}/lambada.jsonl", "--out", "/proc/nope"], ["eval_output: /proc/nope"]),
                (["--task", f"lambada={GOLDEN}/lambada.jsonl", "--batch", 1_000_000, "--hardware", "cpu"], ["the evaluation needs ", "but this machine has "]),
                (["--task", f"lambada={self.dir}/a,b.jsonl"], [f"the path {self.dir}/a,b.jsonl of lambada has a comma"]),
                ([], ["--task NAME=FILE"])):
            with self.subTest(words=words):
                result = self.muster("eval", "--run", self.ours, *words, check=2)
                for complaint in complaints:
                    self.assertIn(complaint, result.stderr)
        self.assertIn("no folder checkpoints", self.muster("eval", "--run", self.dir, "--task", f"boolq={lines}", check=2).stderr)
        for words in ([], ["--task", f"boolq={lines}", "--hardware", "cpu"]):
            self.assertIn("give --run DIR", self.muster("eval", *words, check=2).stderr)

    def test_an_evaluation_allocates_what_is_planned(self):
        (self.dir / "text.txt").write_text("".join(f"rank {i % 10} waits for rank {i % 7} and then continues.\n" for i in range(3000)))
        self.muster("train-tokenizer", "--text", "text.txt", "--vocab-size", 300, "--fewer-ok", "--out", "t", check=0)
        self.muster("tokenize", "--text", "text.txt", "--tokenizer", "t.model", "--out", "shards", check=0)
        words = [self.base_yml(), "run_name=small", "base_output_directory=out", *TINY, "vocab_size=300", "base_emb_dim=256", "base_mlp_dim=512", "head_dim=64",
                 "base_num_decoder_layers=4", "dataset_type=shards", "dataset_path=shards", "eval_holdout_fraction=0.3"]
        for mesh in (["ici_fsdp_parallelism=2", "ici_tensor_parallelism=2"], ["ici_pipeline_parallelism=2", "ici_context_parallelism=2", "num_pipeline_microbatches=2"]):
            name = f"run_name={mesh[0].split('_')[1]}"
            trained = self.muster("run", *words, name, *mesh, "steps=2", "--ranks", 4, check=0).stdout
            evaluated = self.muster("run", *words, name, *mesh, "eval_only=true", "--ranks", 4, check=0).stdout
            self.assertRegex(evaluated, r"(?m)^eval metrics after step: 1, loss=")
            (before, _), (total, parts) = (re.search(r"^memory: ([\d.]+) MiB \((.*)\)$", output, re.M).groups() for output in (trained, evaluated))
            self.assertLess(float(total), float(before) / 2)
            for part in ("gradients", "optimizer", "activations", "checkpoint"):
                self.assertNotIn(part, parts)
            planned = json.loads(self.muster("plan", *words, name, *mesh, "eval_only=true", "compile_topology=cpu-4", "--json", check=0).stdout)["memory"]
            uses = {use["name"]: use["bytes"] for use in planned["stages"][0]["uses"]}
            self.assertEqual(planned["checkpoint_bytes"], 0)
            libraries = uses.pop("libraries")
            self.assertEqual(f"{(planned['stages'][0]['device_bytes'] - libraries) / 2**20:.1f}", total)
            self.assertNotIn("time", planned)
            self.assertEqual(sorted(f"{use} {bytes_ / 2**20:.1f}" for use, bytes_ in uses.items() if bytes_), sorted(parts.split(", ")))

    def test_prompts_as_json_lines(self):
        """The options of muster decode that lm-evaluation-harness needs."""
        prompts = [line["text"] for line in jsonl(GOLDEN / "lambada.jsonl")][:3] + ["two\nlines"]

        def decode(*words, lines=prompts, check=0, **fields):
            (self.dir / "prompts.jsonl").write_text("".join(json.dumps({"prompt": prompt, **fields}) + "\n" for prompt in lines))
            done = self.muster("decode", "--run", self.ours, "--prompts", self.dir / "prompts.jsonl", "--max-tokens", 4, "--json", *words, check=check)
            return done.stderr if check else [json.loads(line) for line in done.stdout.split("\n") if line]

        default = decode()
        self.assertEqual([entry["prompt"] for entry in default], prompts)
        # The tokenizer has a token at the beginning, but its texts do not begin with it.
        self.assertEqual(decode("--bos-id", 0), decode("--add-bos"))
        self.assertNotEqual(decode("--add-bos"), default)
        # Only the last tokens of a longer prompt count, whatever the beginning is.
        long = [f"{start} {prompts[0]}" * 3 for start in ("Saul", "David")]
        first, second = (entry["text"] for entry in decode("--length", 12, lines=long))
        self.assertEqual(first, second)
        sampled = [decode("--temperature", 1, seed=seed, lines=[prompts[0]] * 2) for seed in (1, 1, 2)]
        self.assertEqual(sampled[0], sampled[1])
        self.assertNotEqual(sampled[0], sampled[2])
        for words, complaint in ((["--length", 4], "--length is 4; it must be above --max-tokens (4)"), (["--bos-id", 5000], "--bos-id is 5000; the model has")):
            self.assertIn(complaint, decode(*words, check=2))
        self.assertIn('prompts.jsonl:1: the field "seed" is -1; it must be a whole number of at least 0', decode(seed=-1, check=2))
        self.assertIn('prompts.jsonl:1: the field "prompt" is 7; it must be a string', decode(lines=[7], check=2))
        self.assertIn('prompts.jsonl:1: unknown field "sead"; there are prompt, seed, stop and adapter', decode(sead=1, check=2))
        # Each line has its own stop texts.
        whole = default[0]["text"]
        for stop in (whole[2:4], ["never in it", whole[3:5], whole[-1]]):
            expected = min((whole.split(text)[0] for text in ([stop] if isinstance(stop, str) else stop)), key=len)
            self.assertEqual([entry["text"] for entry in decode(lines=prompts[:1], stop=stop)], [expected])
        for stop in (7, [""], ["a"] * 65):
            self.assertIn('prompts.jsonl:1: the field "stop" is ', decode(stop=stop, check=2))

    def test_lm_evaluation_harness_runs_on_a_model_of_muster(self):
        python = named_python("lm_eval")
        if python is None or named_python("torch") is None:
            self.skipTest("no Python with lm_eval and torch: name one in MUSTER_PEERS_PYTHON")
        # The tokenizer puts a token before each text.
        theirs = self.dir / "hf"
        shutil.copytree(GOLDEN / "model", theirs)
        tokenizer = json.loads((theirs / "tokenizer.json").read_text())
        bos, text = {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
        tokenizer["post_processor"] = {"type": "TemplateProcessing", "single": [bos, text], "pair": [bos, text, {"Sequence": {"id": "B", "type_id": 1}}],
                                       "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}}}
        (theirs / "tokenizer.json").write_text(json.dumps(tokenizer))
        ours = self.dir / "ours-with-bos"
        self.muster("convert", theirs, ours, check=0)
        tasks = self.dir / "tasks"
        tasks.mkdir()
        for name, (data, kind, fields) in LM_EVAL_TASKS.items():
            (tasks / f"{name}.yaml").write_text(json.dumps({
                "task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(GOLDEN / f"{data}.jsonl")}}, "test_split": "test",
                "output_type": kind, "metadata": {"version": 1}, **fields}))
        done = subprocess.run([python, "-c", BOTH_MODELS, SOURCE / "scripts", tasks, theirs, ours, ",".join(LM_EVAL_TASKS)],
                              capture_output=True, text=True, timeout=400, cwd=self.dir,
                              env={**os.environ, "MUSTER_BIN_DIR": str(BIN), "HF_HOME": str(self.dir / "hf"), "HF_HUB_OFFLINE": "1"})
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        both = json.loads(done.stdout[done.stdout.index("RESULTS") + len("RESULTS"):])
        for task in LM_EVAL_TASKS:
            theirs, ours = (both[name]["results"][task] for name in ("hf", "muster"))
            self.assertEqual(theirs.keys(), ours.keys())
            metrics = [key for key, value in theirs.items() if isinstance(value, float) and "stderr" not in key]
            self.assertTrue(metrics, theirs)
            for key in metrics:
                self.assertAlmostEqual(ours[key], theirs[key], delta=1e-5 * max(1, abs(theirs[key])), msg=f"{task} {key}")
        for task in ("generated", "generated_after_long_prompts"):
            self.assertEqual(both["muster"]["samples"][task], both["hf"]["samples"][task])
            self.assertTrue(any(text != [""] for text in both["hf"]["samples"][task]), both["hf"]["samples"][task])


if __name__ == "__main__":
    unittest.main()
