#!/usr/bin/env python3
"""Creates the golden folder evaluation of tests/e2e/test_evaluation.py: a small random Llama with a
tokenizer as transformers saves them, files of evaluation tasks, and the results of
lm-evaluation-harness' model `hf` for them, in fp32.

    python3 -m venv build/golden
    build/golden/bin/pip install -r tests/golden/requirements.txt
    build/golden/bin/python tests/golden/make_evaluation.py      # writes beside itself

expected.json has, for each task, the log-likelihood of each request and whether it is greedy.
Half of the last words of Lambada's file are those that the model itself predicts.
"""
import json
import pathlib
import random
import shutil

import torch
import transformers
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

OUT = pathlib.Path(__file__).resolve().parent / "evaluation"
LENGTH = 48  # max_target_length of the test
WORDS = ("the a of word light day night water earth was and in to it that he she began good made called first second "
         "field tree river stone house wind sun moon star old new small great").split()


def sentence(rng, count):
    return " ".join(rng.choice(WORDS) for _ in range(count))


def make_tokenizer(rng):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=384, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([sentence(rng, 40) for _ in range(200)], trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|endoftext|>", eos_token="<|endoftext|>")


def make_model(tokenizer):
    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=24, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=8, max_position_embeddings=256, bos_token_id=0, eos_token_id=0, pad_token_id=None, tie_word_embeddings=True))
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(8 if value.dim() > 1 else 1)
    return model.float().eval()


def greedy_word(model, tokenizer, context):
    """Returns the next word of the model if it is a word of letters in one token, or None."""
    ids = tokenizer(context, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        token = model(ids).logits[0, -1].argmax().item()
    word = tokenizer.decode([token])
    if not (word.startswith(" ") and word[1:].isalpha()):
        return None
    whole = tokenizer(context + word)["input_ids"]
    return word if whole == ids[0].tolist() + [token] else None


def lambada(rng, model, tokenizer):
    lines, predicted = [], 0
    while predicted < 8:
        context = sentence(rng, rng.randint(3, 25))
        word = greedy_word(model, tokenizer, context)
        if word:
            predicted += 1
            lines += [context + word, sentence(rng, rng.randint(4, 25))]
    return [{"text": line} for line in lines]


def write(name, lines):
    (OUT / name).write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def files(rng, model, tokenizer):
    write("lambada.jsonl", lambada(rng, model, tokenizer))
    write("boolq.jsonl", [{"question": sentence(rng, 5), "title": "x", "answer": i % 3 == 0, "passage": sentence(rng, 8 + i)} for i in range(12)])
    write("choice.jsonl", [{"context": sentence(rng, 6), "choices": [" " + sentence(rng, 1 + (i + k) % 3) for k in range(4)], "gold": i % 4}
                           for i in range(12)])
    # Blanks at the end of a context, no context, other scripts, and a context that is too long.
    write("loglikelihood.jsonl", [
        {"context": "In the beginning ", "continuation": "was the word"}, {"context": "", "continuation": "the earth"},
        {"context": "größe 世界\u3000", "continuation": " ありがとう"},
        {"context": sentence(rng, 60), "continuation": " light and day"}, {"context": "a", "continuation": " " + sentence(rng, 20)}])
    write("perplexity.jsonl", [{"text": sentence(rng, count)} for count in (1, 5, 40, 90)] + [{"text": "größe\n\n世界  x"}])


def requests_of(task):
    lines = [json.loads(line) for line in (OUT / f"{task}.jsonl").read_text().splitlines()]
    if task == "lambada":
        return [(" ".join(line["text"].split(" ")[:-1]), " " + line["text"].split(" ")[-1]) for line in lines]
    if task == "boolq":
        return [(f"{line['passage']}\nQuestion: {line['question']}?\nAnswer:", answer) for line in lines for answer in (" no", " yes")]
    if task == "choice":
        return [(line["context"], choice) for line in lines for choice in line["choices"]]
    if task == "loglikelihood":
        return [(line["context"], line["continuation"]) for line in lines]
    return [(line["text"],) for line in lines]


def main():
    rng = random.Random(7)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    tokenizer = make_tokenizer(rng)
    model = make_model(tokenizer)
    model.save_pretrained(OUT / "model")
    tokenizer.save_pretrained(OUT / "model")
    files(rng, model, tokenizer)
    harness = HFLM(pretrained=model, tokenizer=tokenizer, max_length=LENGTH, batch_size=1)
    expected = {}
    for task in ("lambada", "boolq", "choice", "loglikelihood"):
        instances = [Instance("loglikelihood", {}, arguments, i) for i, arguments in enumerate(requests_of(task))]
        expected[task] = [{"log_likelihood": value, "is_greedy": bool(greedy)} for value, greedy in harness.loglikelihood(instances)]
    instances = [Instance("loglikelihood_rolling", {}, arguments, i) for i, arguments in enumerate(requests_of("perplexity"))]
    expected["perplexity"] = [{"log_likelihood": value} for value in harness.loglikelihood_rolling(instances)]
    (OUT / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
