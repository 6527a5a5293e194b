#!/usr/bin/env python3
"""Runs lm-evaluation-harness on a model of Muster, without a server.

    pip install lm-eval
    python3 scripts/muster_lm_eval.py --model muster --model_args run=out/first --tasks NAME,NAME

It is lm-eval's own command with the additional model `muster`. Its --model_args:

    run            a run's output folder, or a folder of muster convert
    tokenizer      a tokenizer file; default: the run's tokenizer_path
    length         tokens of a sequence; default: the run's max_target_length, and no limit for
                   generated texts
    batch          sequences per batch; default 1
    bos_id         the token before texts without a context; default: as the model's texts begin
    add_bos_token  whether bos_id also begins texts that have a context; default False
    hardware       cpu, gpu or auto; default auto
    max_gen_toks   tokens of generated answers; default 256

Log-likelihoods come from `muster eval`, generated texts from `muster decode`. Both are beside this
script, in MUSTER_BIN_DIR or on PATH. See docs/evaluation.md.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import lm_eval.models  # noqa: F401  registers lm-eval's own models beside this one
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs

from multinode import find_muster

# muster decode accepts 100,000 prompts and 64 MiB at a time.
PROMPTS_AT_ONCE = 1000
PROMPT_BYTES_AT_ONCE = 32 << 20  # half of the largest file of muster decode
MODEL_ARGS = ("run", "tokenizer", "length", "batch", "bos_id", "add_bos_token", "hardware", "max_gen_toks")
# lm-eval adds these itself.
LM_EVAL_ARGS = ("batch_size", "max_batch_size", "device")


def is_true(value):
    return value if isinstance(value, bool) else str(value).lower() in ("1", "true", "yes")


def line_of(number, prompt, until):
    """Returns the line of a prompt for `muster decode`."""
    return json.dumps({"prompt": prompt, "seed": number, "stop": [stop for stop in until if stop]}, ensure_ascii=False) + "\n"


def parts_of(group):
    """Divides requests so that each part is a file that `muster decode` accepts."""
    part, size = [], 0
    for request in group:
        bytes_of_line = len(line_of(*request).encode())
        if part and (len(part) == PROMPTS_AT_ONCE or size + bytes_of_line > PROMPT_BYTES_AT_ONCE):
            yield part
            part, size = [], 0
        part.append(request)
        size += bytes_of_line
    if part:
        yield part


@register_model("muster")
class MusterLM(LM):
    """A model of Muster. `muster eval` and `muster decode` compute many requests in one call."""

    def __init__(self, run, tokenizer=None, length=None, batch=None, bos_id=None, add_bos_token=False, hardware="auto", max_gen_toks=256, **others):
        super().__init__()
        for name in sorted(set(others) - set(LM_EVAL_ARGS)):
            sys.exit(f"muster: error: --model_args: there is no {name}; there are {', '.join(MODEL_ARGS)}")
        self.program, self.run, self.max_gen_toks = find_muster(pathlib.Path(__file__).resolve().parent), str(run), int(max_gen_toks)
        given = lambda **options: [word for name, value in options.items() if value is not None for word in (f"--{name.replace('_', '-')}", str(value))]  # noqa: E731
        both = given(tokenizer=tokenizer, length=length)
        self.scoring = [*both, *given(hardware=hardware, batch=batch, bos_id=bos_id), "--truncate"]
        self.decoding = both
        if is_true(add_bos_token):
            self.scoring.append("--add-bos")
            self.decoding = [*both, "--add-bos", *given(bos_id=bos_id)]

    @property
    def tokenizer_name(self):
        return self.run

    def call(self, *words):
        done = subprocess.run([self.program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"muster {words[0]} ended with code {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def score(self, task, lines):
        """Returns the result of each line of a task's file."""
        if not lines:
            return []
        with tempfile.TemporaryDirectory() as folder:
            requests, out = pathlib.Path(folder) / "requests.jsonl", pathlib.Path(folder) / "out"
            requests.write_text("".join(json.dumps(line) + "\n" for line in lines))
            self.call("eval", "--run", self.run, "--task", f"{task}={requests}", "--out", str(out), *self.scoring)
            (results,) = out.glob(f"{task}-*.jsonl")
            return [json.loads(line) for line in results.read_text().splitlines()]

    def loglikelihood(self, requests, disable_tqdm=False):
        lines = [dict(zip(("context", "continuation"), request.args)) for request in requests]
        return [(line["log_likelihood"], line["is_greedy"]) for line in self.score("loglikelihood", lines)]

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        return [line["log_likelihood"] for line in self.score("perplexity", [{"text": request.args[0]} for request in requests])]

    def generate_until(self, requests, disable_tqdm=False):
        # A request that is repeated is here several times, and each sample has a seed of its own.
        texts, groups = [""] * len(requests), {}
        for number, request in enumerate(requests):
            context, options = request.args
            options = normalize_gen_kwargs(options, self.max_gen_toks)
            groups.setdefault(json.dumps(self.words_of(options)), []).append((number, context, options["until"]))
        for words, group in groups.items():
            for part in parts_of(group):
                for (number, _, _), text in zip(part, self.generate(part, json.loads(words))):
                    texts[number] = text
        return texts

    def words_of(self, options):
        """Returns the options of muster decode for those of a request."""
        words = ["--max-tokens", str(options["max_gen_toks"])]
        if is_true(options["do_sample"]):
            sampling = {"temperature": 1.0, **options}  # as transformers; muster decode has 0
            for option, key in (("--temperature", "temperature"), ("--top-k", "top_k"), ("--top-p", "top_p")):
                if key in sampling:
                    words += [option, str(sampling[key])]
        return words

    def generate(self, prompts, words):
        """Returns the text after each prompt of (number, prompt, stops)."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "prompts.jsonl"
            file.write_text("".join(line_of(*prompt) for prompt in prompts), encoding="utf-8")
            printed = self.call("decode", "--run", self.run, "--prompts", str(file), "--json", *words, *self.decoding)
        return [json.loads(line)["text"] for line in printed.split("\n") if line]


def main():
    from lm_eval.__main__ import cli_evaluate
    cli_evaluate()


if __name__ == "__main__":
    main()
