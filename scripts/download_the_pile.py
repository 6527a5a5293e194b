#!/usr/bin/env python3
"""Downloads the Pile to $TFDS_DATA_DIR/the_pile, as Pax's script of this name.

    export TFDS_DATA_DIR=/data; python3 scripts/download_the_pile.py --mirror https://…

The Pile has no public address since October 2023: --mirror (or PILE_MIRROR) names one that you may
use, a folder with train/00.jsonl.zst to train/29.jsonl.zst, val.jsonl.zst, test.jsonl.zst and, if
it has one, SHA256SUMS.txt. --files takes some of them. An interrupted download resumes.
"""
import argparse
import os

from fetch import data_folder, fail, fetch_all

TRAIN_FILES = 30
NAMES = [*(f"train/{i:02d}.jsonl.zst" for i in range(TRAIN_FILES)), "val.jsonl.zst", "test.jsonl.zst"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mirror", default=os.environ.get("PILE_MIRROR"))
    parser.add_argument("--files", nargs="+", metavar="NAME", default=NAMES, help="by default all 32")
    options = parser.parse_args()
    folder = data_folder() / "the_pile"
    by_hand = (f"Without a network, put train/00.jsonl.zst to train/{TRAIN_FILES - 1}.jsonl.zst, val.jsonl.zst and test.jsonl.zst into {folder},\n"
               "or synthetic data does: CONFIG=Synthetic126M")
    unknown = [name for name in options.files if name not in NAMES]
    if unknown:
        fail(f"--files {unknown[0]}: the Pile has {NAMES[0]} to {NAMES[TRAIN_FILES - 1]}, val.jsonl.zst and test.jsonl.zst")
    if not options.mirror:
        fail(f"the Pile has no public address any more: --mirror URL (or PILE_MIRROR) names one that you may use\n{by_hand}")
    fetch_all("the Pile", options.mirror, options.files, folder, by_hand)
    print(f"train on it: TFDS_DATA_DIR={folder} VOCAB_PATH=FILE")


if __name__ == "__main__":
    main()
