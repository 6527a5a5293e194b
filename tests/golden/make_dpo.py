#!/usr/bin/env python3
"""Creates the golden files dpo/* of tests/unit/trainer_core/loop/preference_golden_test.cc: the
losses of direct preference optimization and their gradients by TRL's DPOTrainer, of models with
adapters in fp64.

    python3 -m venv build/golden
    build/golden/bin/pip install torch==2.8.0 transformers==4.56.2 peft==0.21.2 trl==0.23.1
    build/golden/bin/python tests/golden/make_dpo.py

The policy is the base hugging_face/NAME with the adapters lora/NAME, and the reference model is
the base alone. The log-probabilities, losses and rewards are those of
DPOTrainer.get_batch_loss_metrics, and the gradients those of its loss. A pair has the PROMPT first
tokens of a sequence of tokens.json, and answers that other sequences have behind theirs.

A file holds policy and reference (log-probabilities, (pairs, 2)) and, for each case, CASE.loss
(mean over pairs), CASE.rewards (the means over pairs of chosen and rejected ones) and
CASE.grad.NAME of the adapters' matrices. Its metadata has the pairs (prompt, chosen, rejected) and
the settings of the cases.
"""
import json
import pathlib
import tempfile

import datasets
import peft
import tokenizers
import torch
import transformers
import trl
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
PROMPT = 3
# The sequence of a prompt, and the sequences and lengths of both answers.
PAIRS = ((0, (0, 14), (1, 11)), (2, (2, 12), (0, 14)))
CASES = {"sigmoid": {"dpo_loss_type": "sigmoid", "dpo_beta": 0.1, "dpo_label_smoothing": 0.0},
         "smoothed": {"dpo_loss_type": "sigmoid", "dpo_beta": 0.5, "dpo_label_smoothing": 0.2},
         "hinge": {"dpo_loss_type": "hinge", "dpo_beta": 0.1, "dpo_label_smoothing": 0.0},
         "ipo": {"dpo_loss_type": "ipo", "dpo_beta": 0.1, "dpo_label_smoothing": 0.0}}


def trainer_of(model, folder, dpo_loss_type, dpo_beta, dpo_label_smoothing):
    """Returns TRL's trainer. Its tokenizer and data set are not used."""
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "</s>": 1}, unk_token="a"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="</s>", pad_token="</s>")
    data = datasets.Dataset.from_list([{"prompt": "a", "chosen": "a", "rejected": "a"}])
    config = trl.DPOConfig(output_dir=folder, loss_type=dpo_loss_type, beta=dpo_beta, label_smoothing=dpo_label_smoothing,
                           use_cpu=True, bf16=False, fp16=False, report_to=[], gradient_checkpointing=False, disable_dropout=True)
    return trl.DPOTrainer(model=model, ref_model=None, args=config, processing_class=tokenizer, train_dataset=data)


def batch_of(pairs):
    def padded(rows):
        width = max(map(len, rows))
        return torch.tensor([row + [0] * (width - len(row)) for row in rows])
    batch = {}
    for i, name in enumerate(("prompt", "chosen", "rejected")):
        rows = [pair[i] for pair in pairs]
        batch[f"{name}_input_ids"] = padded(rows)
        batch[f"{name}_attention_mask"] = padded([[1] * len(row) for row in rows])
    return batch


def make_case(name):
    base = transformers.AutoModelForCausalLM.from_pretrained(HERE / "hugging_face" / name, attn_implementation="eager", dtype=torch.float32)
    model = peft.PeftModel.from_pretrained(base, HERE / "lora" / name, is_trainable=True, autocast_adapter_dtype=False).double()
    adapters = {key.replace("base_model.model.", "").replace(".default", ""): value
                for key, value in model.named_parameters() if value.requires_grad}
    tokens = json.loads((HERE / "hugging_face" / name / "tokens.json").read_text())
    pairs = [[tokens[prompt][:PROMPT], *(tokens[sequence][PROMPT:length] for sequence, length in answers)]
             for prompt, *answers in PAIRS]
    batch = batch_of(pairs)
    tensors = {}
    for case, settings in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            trainer = trainer_of(model, folder, **settings)
        model.zero_grad()
        loss, metrics = trainer.get_batch_loss_metrics(model, batch)
        loss.backward()
        tensors[f"{case}.loss"] = loss.reshape(1)
        tensors[f"{case}.rewards"] = torch.tensor([metrics["rewards/chosen"], metrics["rewards/rejected"]], dtype=torch.float64)
        tensors.update({f"{case}.grad.{key}": value.grad.clone() for key, value in adapters.items()})
        if case == "sigmoid":
            with torch.no_grad():
                policy = trainer.concatenated_forward(model, batch)
            tensors["policy"] = torch.stack([policy["chosen_logps"], policy["rejected_logps"]], 1)
            tensors["reference"] = torch.stack(trainer.compute_ref_log_probs(batch), 1)
    folder = HERE / "dpo"
    folder.mkdir(exist_ok=True)
    save_file({key: value.detach().float().contiguous() for key, value in tensors.items()}, folder / f"{name}.safetensors",
              metadata={"pairs": json.dumps(pairs), "cases": json.dumps(CASES), "trl": trl.__version__})


if __name__ == "__main__":
    for model_name in ("llama_gqa", "mixtral"):
        make_case(model_name)
