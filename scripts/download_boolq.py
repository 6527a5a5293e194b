#!/usr/bin/env python3
"""Downloads BoolQ to $TFDS_DATA_DIR/bool_q, as Pax's script of this name.

    export TFDS_DATA_DIR=/data; python3 scripts/download_boolq.py [--mirror URL]

The files are train.jsonl and dev.jsonl of its authors' bucket.
"""
import argparse

from fetch import data_folder, fetch_all

NAMES = ["train.jsonl", "dev.jsonl"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mirror", default="https://storage.googleapis.com/boolq", help="a folder with train.jsonl and dev.jsonl")
    options = parser.parse_args()
    folder = data_folder() / "bool_q"
    fetch_all("BoolQ", options.mirror, NAMES, folder, f"Without a network, put train.jsonl and dev.jsonl into {folder}")


if __name__ == "__main__":
    main()
