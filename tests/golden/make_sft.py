#!/usr/bin/env python3
"""Makes sft/*: samples for fine-tuning, their token ids and loss masks by transformers, and the
loss of a small Llama on them by PyTorch in fp64, each sample alone.

    python3 -m venv build/golden && build/golden/bin/pip install -r tests/golden/requirements.txt
    build/golden/bin/python tests/golden/make_sft.py                # writes beside itself

samples.jsonl has conversations, which chat/chatml.jinja renders and whose completions transformers
finds by the template's marks (return_assistant_tokens_mask), and prompts with completions, for
which the mask is that of TRL: the tokens behind those of the prompt alone, and the end of the
sequence.
sft.safetensors has the ids and weights of all samples, their lengths, the model's parameters, and
the losses: the mean over the completions' tokens, and the mean over the samples' means.
"""
import json
import pathlib

import torch
from safetensors.torch import save_file
from transformers import PreTrainedTokenizerFast

from make_reference import PLAIN, loss_sum, make_params, sizes

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "sft"


def turns(*texts):
    return [{"role": "assistant" if i % 2 else "user", "content": text} for i, text in enumerate(texts)]


SAMPLES = [
    {"messages": turns("What is 2 + 2?", "It is 4.")},
    {"messages": [{"role": "system", "content": "Be brief."}, *turns("The ranks' names?", "Zero, one.", "And then?", "  Two… ünd so on\n")]},
    {"prompt": "Is the sky blue?\nAnswer:", "completion": " yes"},
    {"prompt": "Count to three: ", "completion": "1 2 3", "weight": 2.5},
    {"messages": [*turns("a", "b"), {"role": "user", "content": "c"}, {"role": "assistant", "content": "not this", "weight": 0},
                  *turns("d", "but this one")]},
    {"messages": turns("Repeat a word.", "nothing " * 9)},
    {"text": "A text, of which all tokens count."},
]


def encoded(tokenizer, template, sample):
    """Returns the ids of a sample and the weight of each."""
    weight = sample.get("weight", 1.0)
    if "messages" in sample:
        out = tokenizer.apply_chat_template(sample["messages"], chat_template=template, return_dict=True, return_assistant_tokens_mask=True)
        ids, mask = out["input_ids"], out["assistant_masks"]
        # The weight of each answer, for the run of its tokens in the mask.
        answers = iter([message.get("weight", 1.0) for message in sample["messages"] if message["role"] == "assistant"])
        weights, before = [], 0
        for bit in mask:
            if bit and not before:
                current = next(answers)
            weights.append(weight * current if bit else 0.0)
            before = bit
        return ids, weights
    if "text" in sample:
        ids = tokenizer.encode(sample["text"], add_special_tokens=False) + [tokenizer.eos_token_id]
        return ids, [weight] * len(ids)
    prompt = tokenizer.encode(sample["prompt"], add_special_tokens=False)
    ids = tokenizer.encode(sample["prompt"] + sample["completion"], add_special_tokens=False) + [tokenizer.eos_token_id]
    assert ids[:len(prompt)] == prompt
    return ids, [0.0] * len(prompt) + [weight] * (len(ids) - len(prompt))


def main():
    OUT.mkdir(exist_ok=True)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(HERE / "tokenizers/llama3.json"), eos_token="<|end_of_text|>")
    template = (HERE / "chat/chatml.jinja").read_text()
    (OUT / "samples.jsonl").write_text("".join(json.dumps(sample, ensure_ascii=False) + "\n" for sample in SAMPLES))
    model = dict(PLAIN, **sizes(len(tokenizer), 12, 2, 2, 1, 6, 20))
    params = make_params(model, torch.Generator().manual_seed(11))
    total = weight_sum = mean_total = mean_weights = 0.0
    all_ids, all_weights, lengths = [], [], []
    for sample in SAMPLES:
        ids, weights = encoded(tokenizer, template, sample)
        tokens, targets = torch.tensor([ids[:-1]]), torch.tensor([ids[1:]])
        target_weights = torch.tensor([weights[1:]], dtype=torch.float64)
        loss = loss_sum(params, tokens, targets, target_weights, model)[0].item()
        total += loss
        weight_sum += target_weights.sum().item()
        counted = (target_weights > 0).sum().item()
        mean_total += loss / counted
        mean_weights += target_weights.sum().item() / counted
        all_ids += ids
        all_weights += weights
        lengths.append(len(ids))
    save_file({"ids": torch.tensor(all_ids, dtype=torch.int32), "weights": torch.tensor(all_weights, dtype=torch.float32),
               "lengths": torch.tensor(lengths, dtype=torch.int32),
               **{f"param/{name}": value.detach().to(torch.float32).contiguous() for name, value in params.items()}},
              OUT / "sft.safetensors", metadata={"config": json.dumps({"model": model}), "losses": json.dumps([total / weight_sum, mean_total / mean_weights])})


if __name__ == "__main__":
    main()
