#!/usr/bin/env python3
"""A Fuji model on several nodes, with the options of JAX-Toolbox's script of this name for AXLearn.

    python3 scripts/multinode.py --config=fuji-7B-v2-flash --num_gpus=16 --global_batch_size=16 \\
        --data_dir=FOLDER --trainer_dir=FOLDER

Without --data_dir the data is synthetic. Other words (key=value, --options of `muster run`) are
passed on. In a Slurm job the ranks are on its nodes, else on this machine.
"""
import argparse
import os
import pathlib
import shutil
import sys


def find_muster(here):
    """Returns the path of `muster`.

    It is in $MUSTER_BIN_DIR, else in the source tree or installation of `here`, else in PATH.
    """
    for folder in (os.environ.get("MUSTER_BIN_DIR"), here / "../build/release/bin", here / "../../../bin"):
        if folder and os.access(pathlib.Path(folder) / "muster", os.X_OK):
            return str(pathlib.Path(folder) / "muster")
    found = shutil.which("muster")
    if not found:
        sys.exit("muster: error: there is no muster beside this script and none in PATH; set MUSTER_BIN_DIR to its folder")
    return found


def command(options, rest, environment):
    """Returns the words behind `muster`.

    `environment`: a Slurm job's variables, if there is one.
    """
    words = [f"--module={options.module}", f"--config={options.config}", f"--trainer_dir={options.trainer_dir}",
             f"--data_dir={options.data_dir}", f"global_batch_size={options.global_batch_size}", f"steps={options.max_step}",
             f"checkpoint_period={options.save_every_n_steps}"]
    if options.max_sequence_length:
        words.append(f"max_target_length={options.max_sequence_length}")
    if options.vocab_path:
        words.append(f"tokenizer_path={options.vocab_path}")
    if "SLURM_JOB_ID" not in environment:
        return ["run", "--ranks", str(options.num_gpus), *words, *rest]
    nodes = int(environment.get("SLURM_JOB_NUM_NODES", "1"))
    if options.num_gpus % nodes:
        sys.exit(f"muster: error: --num_gpus={options.num_gpus}: the {nodes} nodes of the Slurm job must have equal shares of them")
    return ["slurm", "run", "--insecure", "--ranks-per-node", str(options.num_gpus // nodes), *words, *rest]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--module", default="text.gpt.c4_trainer")
    parser.add_argument("--config", default="fuji-7B-v2-flash", help="the Fuji model")
    parser.add_argument("--trainer_dir", default="axlearn-checkpoints", help="the run's folder")
    parser.add_argument("--data_dir", default=os.environ.get("DATA_DIR", "FAKE"), help="a data folder of TFDS, of text or of token shards")
    parser.add_argument("--vocab_path", help="the tokenizer, for text")
    parser.add_argument("--num_gpus", type=int, default=int(os.environ.get("NUM_PROCESSES", "16")), help="ranks on all nodes together")
    parser.add_argument("--global_batch_size", type=int, help="sequences of a step (default: 8, or the next multiple of the ranks)")
    parser.add_argument("--max_sequence_length", type=int, help="tokens of a sequence (default: the model's)")
    parser.add_argument("--max_step", type=int, default=100)
    parser.add_argument("--save_every_n_steps", type=int, default=500)
    options, rest = parser.parse_known_args()
    if options.num_gpus < 1:
        sys.exit(f"muster: error: --num_gpus={options.num_gpus}: must be at least 1")
    # The original has 8 sequences for 16 GPUs; here each rank has at least one.
    if options.global_batch_size is None:
        options.global_batch_size = -(-8 // options.num_gpus) * options.num_gpus
    if os.environ.get("SLURM_PROCID", "0") != "0":
        print("muster: this task has nothing to do: the first task starts all ranks", file=sys.stderr)
        return
    muster = find_muster(pathlib.Path(__file__).resolve().parent)
    os.execv(muster, [muster, *command(options, rest, os.environ)])


if __name__ == "__main__":
    main()
