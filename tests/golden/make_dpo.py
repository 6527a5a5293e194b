#!/usr/bin/env python3
"""Creates the golden file dpo/llama_gqa.safetensors of
tests/unit/trainer_core/loop/preference_golden_test.cc: the losses of direct preference
optimization, and their gradients, of a model with adapters in fp64. The environment is that of
make_lora.py.

    build/golden/bin/python tests/golden/make_dpo.py

The policy is the base hugging_face/llama_gqa with the adapters lora/llama_gqa, the reference model
is the base alone. The answers are the beginnings of sequences of tokens.json (PAIRS: sequence and
length, of the chosen and of the rejected answer) after their PROMPT first tokens. The formulas are
those of TRL (DPOTrainer.dpo_loss).

The file holds policy and reference (log-probabilities, (pairs, 2)) and, for each case, CASE.loss
(mean over pairs), CASE.rewards (pairs, 2) and CASE.grad.NAME of the adapters' matrices; its
metadata has PROMPT, PAIRS and the settings of the cases.
"""
import json
import pathlib

import peft
import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
NAME = "llama_gqa"
PROMPT = 3
PAIRS = (((0, 14), (1, 11)), ((2, 12), (0, 14)))
CASES = {"sigmoid": {"dpo_loss_type": "sigmoid", "dpo_beta": 0.1, "dpo_label_smoothing": 0.0},
         "smoothed": {"dpo_loss_type": "sigmoid", "dpo_beta": 0.5, "dpo_label_smoothing": 0.2},
         "hinge": {"dpo_loss_type": "hinge", "dpo_beta": 0.1, "dpo_label_smoothing": 0.0},
         "ipo": {"dpo_loss_type": "ipo", "dpo_beta": 0.1, "dpo_label_smoothing": 0.0}}


def logps(model, tokens):
    def of_answer(sequence, length):
        ids = torch.tensor(tokens[sequence][:length])
        log_probs = torch.log_softmax(model(input_ids=ids[None]).logits[0, :-1], dim=-1)
        return torch.gather(log_probs, 1, ids[1:, None])[PROMPT - 1:].sum()
    return torch.stack([torch.stack([of_answer(*answer) for answer in pair]) for pair in PAIRS])


def losses(policy, reference, answer_tokens, dpo_loss_type, dpo_beta, dpo_label_smoothing):
    if dpo_loss_type == "ipo":
        policy, reference = policy / answer_tokens, reference / answer_tokens
    chosen_logratios, rejected_logratios = (policy - reference).unbind(1)
    logits = chosen_logratios - rejected_logratios
    if dpo_loss_type == "sigmoid":
        loss = (-torch.nn.functional.logsigmoid(dpo_beta * logits) * (1 - dpo_label_smoothing)
                - torch.nn.functional.logsigmoid(-dpo_beta * logits) * dpo_label_smoothing)
    elif dpo_loss_type == "hinge":
        loss = torch.relu(1 - dpo_beta * logits)
    else:
        loss = (logits - 1 / (2 * dpo_beta)) ** 2
    return loss, dpo_beta * torch.stack([chosen_logratios, rejected_logratios], 1).detach()


def main():
    base = transformers.AutoModelForCausalLM.from_pretrained(HERE / "hugging_face" / NAME, attn_implementation="eager", dtype=torch.float32)
    model = peft.PeftModel.from_pretrained(base, HERE / "lora" / NAME, is_trainable=True, autocast_adapter_dtype=False).double().eval()
    adapters = {name.replace("base_model.model.", "").replace(".default", ""): value
                for name, value in model.named_parameters() if value.requires_grad}
    tokens = json.loads((HERE / "hugging_face" / NAME / "tokens.json").read_text())
    answer_tokens = torch.tensor([[length - PROMPT for _, length in pair] for pair in PAIRS])
    with torch.no_grad(), model.disable_adapter():
        reference = logps(model, tokens)
    tensors = {"reference": reference, "policy": logps(model, tokens).detach()}
    for case, settings in CASES.items():
        model.zero_grad()
        loss, rewards = losses(logps(model, tokens), reference, answer_tokens, **settings)
        loss.mean().backward()
        tensors[f"{case}.loss"] = loss.mean().reshape(1)
        tensors[f"{case}.rewards"] = rewards
        tensors.update({f"{case}.grad.{name}": value.grad.clone() for name, value in adapters.items()})
    folder = HERE / "dpo"
    folder.mkdir(exist_ok=True)
    save_file({name: value.detach().float().contiguous() for name, value in tensors.items()}, folder / f"{NAME}.safetensors",
              metadata={"prompt": str(PROMPT), "pairs": json.dumps(PAIRS), "cases": json.dumps(CASES)})


if __name__ == "__main__":
    main()
