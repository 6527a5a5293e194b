#!/usr/bin/env python3
"""Measures saving and loading checkpoints, in GB/s, beside dd, torch.save,
torch.distributed.checkpoint and the safetensors package.

  bench/checkpoint.py --bin build/release/bin [--out bench/results/checkpoint.json] [--mib 768]
  [--folder /path/on/the/disk]

Every save ends when the data is on the disk (fsync of files and folder). Every load begins with a
cold cache and ends with the tensors in already allocated memory, as in a restart. dd reads and
writes a file of the same size, from and to memory. Every program saves into a new folder and then
removes its previous one, as a job does that always needs a complete checkpoint. Single saves differ
much: a thinly provisioned disk writes three times as fast to blocks that were written before, and
file systems place new folders elsewhere. So programs alternate, and figures are medians. Muster
verifies checksums when it loads. Takes some six minutes on a disk of 0.5 GB/s.

The peers' Python is $MUSTER_PEERS_PYTHON, or a virtual environment made in build/peers from
bench/peers/requirements.txt.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

BENCH = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH))
from peers.environment import describe_run, peers_python  # noqa: E402
from peers.program import Program  # noqa: E402

PEERS = ("torch_save", "torch_dcp", "safetensors")


def evict(path):
    """Takes a file, or the files of a folder, out of the page cache."""
    path = pathlib.Path(path)
    for file in path.iterdir() if path.is_dir() else [path]:
        fd = os.open(file, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


class Dd:
    """Measures the disk itself with dd. The source is in memory, so that reading it takes no time.
    """

    name = "dd"

    def __init__(self, folder, bytes_):
        self.folder, self.path, self.count, self.blocks = folder, None, 0, bytes_ >> 22
        self.source = tempfile.NamedTemporaryFile(dir="/dev/shm")
        for _ in range(self.blocks):
            self.source.write(os.urandom(1 << 22))
        self.source.flush()

    def request(self, command):
        if command == "save":
            self.before, self.path = self.path, self.folder / f"dd{self.count}/numbers"
            self.path.parent.mkdir()
            self.count += 1
            words = [f"if={self.source.name}", f"of={self.path}", "conv=fsync"]
        else:
            words = [f"if={self.path}", "of=/dev/null"]
        start = time.monotonic()
        subprocess.run(["dd", *words, "bs=4M", "status=none"], check=True)
        seconds = time.monotonic() - start
        if command == "save" and self.before:
            shutil.rmtree(self.before.parent)
        return {"seconds": seconds, "path": str(self.path)}

    def close(self):
        self.source.close()


def measure(programs, rounds):
    seconds = {}
    for _ in range(rounds):
        for program in programs:
            saved = program.request("save")
            evict(saved["path"])
            seconds.setdefault((program.name, "save"), []).append(saved["seconds"])
            seconds.setdefault((program.name, "load"), []).append(program.request("load")["seconds"])
            if program.name == "muster":
                behind = program.request("background")
                seconds.setdefault(("muster", "background"), []).append(behind["seconds"])
                seconds.setdefault(("muster", "stall"), []).append(behind["stall_seconds"])
                for what in ("local_save", "local_load"):
                    seconds.setdefault(("muster", what), []).append(program.request(what)["seconds"])
                seconds.setdefault(("muster", "checksum"), []).append(program.request("checksum")["seconds"])
    return {key: statistics.median(values) for key, values in seconds.items()}


def summarise(seconds, names, bytes_):
    results = {}
    for name in names:
        row = {what: round(bytes_ / 1e9 / seconds[name, what], 3) for what in ("save", "load")}
        results[name] = {f"{what}_gb_per_second": rate for what, rate in row.items()}
        for what in ("save", "load"):
            results[name][f"{what}_share_of_dd"] = round(seconds["dd", what] / seconds[name, what], 2)
        print(f"  {name:12} save {row['save']:6.3f} GB/s, {results[name]['save_share_of_dd']:5.2f} of dd"
              f"   load {row['load']:6.3f} GB/s, {results[name]['load_share_of_dd']:5.2f} of dd", file=sys.stderr)
    stall, save = seconds["muster", "stall"], seconds["muster", "save"]
    # Only the copy: a training with longer forward and backward passes does not wait for the rest.
    results["muster"]["copy_seconds"] = round(stall, 4)
    results["muster"]["copy_share_of_blocking_save"] = round(stall / save, 4)
    # In memory, as with enable_emergency_checkpoint.
    for what in ("local_save", "local_load"):
        results["muster"][f"{what}_seconds"] = round(seconds["muster", what], 4)
        results["muster"][f"{what}_gb_per_second"] = round(bytes_ / 1e9 / seconds["muster", what], 2)
    print(f"  in the node's memory: save {results['muster']['local_save_gb_per_second']} GB/s, "
          f"load {results['muster']['local_load_gb_per_second']} GB/s", file=sys.stderr)
    results["muster"]["checksum_gb_per_second"] = round(bytes_ / 1e9 / seconds["muster", "checksum"], 1)
    print(f"  in the background: the copy takes {stall:.3f} s, {100 * stall / save:.1f}% of a blocking save; "
          f"checksums {results['muster']['checksum_gb_per_second']} GB/s", file=sys.stderr)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=BENCH.parent / "build/release/bin")
    parser.add_argument("--out", type=pathlib.Path, default=BENCH / "results/checkpoint.json")
    parser.add_argument("--mib", type=int, default=768)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--folder", type=pathlib.Path, default=None, help="where to write; its disk is what is measured")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = pathlib.Path(name)
        programs = [Program("muster", [str(args.bin / "checkpoint_bench"), str(folder / "muster"), str(args.mib)], 2)]
        try:
            bytes_ = programs[0].ready["bytes"]
            programs.insert(0, Dd(folder, bytes_))
            for peer in PEERS:
                command = [peers_python(), str(BENCH / "peers/checkpoint_torch.py"), peer, str(folder / peer), str(args.mib)]
                programs.append(Program(peer, command, 2))
            seconds = measure(programs, args.rounds)
        finally:
            for program in programs:
                program.close()
    report = {**describe_run(), "what": "a checkpoint saved until the disk has it, and loaded with a cold cache", "bytes": bytes_,
              "rounds": args.rounds, "results": summarise(seconds, [program.name for program in programs], bytes_)}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
