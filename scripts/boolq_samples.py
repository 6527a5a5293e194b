#!/usr/bin/env python3
"""Makes samples for fine-tuning (docs/fine-tuning.md) of BoolQ's JSON lines.

    python3 scripts/boolq_samples.py TFDS_DATA_DIR/bool_q/train.jsonl boolq.jsonl

A question becomes {"prompt": "<passage>\\nQuestion: <question>?\\nAnswer:", "completion": " yes"},
or " no", which are the prompt and the answers of lm-evaluation-harness.
"""
import json
import pathlib
import sys


def sample(line, number):
    """Returns the sample of a line of BoolQ."""
    try:
        entry = json.loads(line)
        passage, question, answer = entry["passage"], entry["question"], entry["answer"]
    except (ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"line {number} is no entry of BoolQ with passage, question and answer: {type(error).__name__}: {error}") from None
    if not isinstance(answer, bool):
        raise SystemExit(f"line {number} has the answer {json.dumps(answer)}; true or false is required")
    return {"prompt": f"{passage}\nQuestion: {question}?\nAnswer:", "completion": " yes" if answer else " no"}


def main():
    if len(sys.argv) != 3:
        raise SystemExit("usage: boolq_samples.py BOOLQ.jsonl SAMPLES.jsonl")
    with open(sys.argv[1], encoding="utf-8") as lines:
        samples = "".join(json.dumps(sample(line, number), ensure_ascii=False) + "\n"
                          for number, line in enumerate(lines, 1) if line.strip())
    # An unchanged file keeps its time, so that muster tokenize resumes after it was killed.
    path = pathlib.Path(sys.argv[2])
    if path.exists() and path.read_text(encoding="utf-8") == samples:
        return
    partial = path.with_name(path.name + ".tmp")
    partial.write_text(samples, encoding="utf-8")
    partial.replace(path)


if __name__ == "__main__":
    main()
