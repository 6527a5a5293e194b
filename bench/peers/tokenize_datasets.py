"""Hugging Face's side of bench/tokenize.py: datasets reads the file, tokenizers encodes, datasets
writes Arrow files.

Usage:
  tokenize_datasets.py TEXT.jsonl TOKENIZER.json PROCESSES FOLDER
      prints {"seconds": …, "tokens": …}
  tokenize_datasets.py TEXT.jsonl TOKENIZER.json --train SIZE
      trains byte-level BPE on the file's texts
  tokenize_datasets.py MODEL TOKENIZER.json --convert
      converts a SentencePiece model to the format of tokenizers
"""
import json
import os
import sys
import time

EOS = "<|endoftext|>"


def train(text, out, size):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    with open(text) as file:
        texts = [json.loads(line)["text"] for line in file]
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=[EOS], show_progress=False))
    tokenizer.save(out)


def convert(model, out):
    import transformers
    transformers.LlamaTokenizerFast(vocab_file=model, legacy=False, add_bos_token=False).backend_tokenizer.save(out)


def tokenize(text, tokenizer_path, processes, folder):
    # datasets needs all cores with several processes; tokenizers uses them with one.
    os.environ["TOKENIZERS_PARALLELISM"] = "false" if processes > 1 else "true"
    import datasets
    from tokenizers import Tokenizer
    datasets.disable_progress_bars()
    start = time.perf_counter()
    tokenizer = Tokenizer.from_file(tokenizer_path)

    def encode(batch):
        return {"ids": [e.ids for e in tokenizer.encode_batch_fast(batch["text"], add_special_tokens=False)]}

    data = datasets.load_dataset("json", data_files=text, split="train", cache_dir=f"{folder}/cache")
    data = data.map(encode, batched=True, remove_columns=data.column_names, num_proc=processes if processes > 1 else None)
    data.save_to_disk(f"{folder}/tokens")
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "tokens": sum(len(ids) for ids in data["ids"]),
            "versions": f"datasets {datasets.__version__}"}


if __name__ == "__main__":
    if "--train" in sys.argv:
        train(sys.argv[1], sys.argv[2], int(sys.argv[4]))
    elif "--convert" in sys.argv:
        convert(sys.argv[1], sys.argv[2])
    else:
        print(json.dumps(tokenize(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])))
