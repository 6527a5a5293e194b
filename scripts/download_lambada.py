#!/usr/bin/env python3
"""Downloads Lambada to $TFDS_DATA_DIR/lambada, as Pax's script of this name.

    export TFDS_DATA_DIR=/data; python3 scripts/download_lambada.py [--mirror URL]

The file is lambada_test_en.jsonl of EleutherAI/lambada_openai on Hugging Face: HF_ENDPOINT names a
mirror of the Hub, HF_TOKEN is your token.
"""
import argparse
import os

from fetch import data_folder, fetch_all

NAME = "lambada_test_en.jsonl"


def main():
    hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mirror", default=f"{hub}/datasets/EleutherAI/lambada_openai/resolve/main/data", help=f"a folder with {NAME}")
    options = parser.parse_args()
    folder = data_folder() / "lambada"
    fetch_all("Lambada", options.mirror, [NAME], folder, f"Without a network, put {NAME} into {folder}")


if __name__ == "__main__":
    main()
