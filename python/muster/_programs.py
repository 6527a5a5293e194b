"""Console commands: each one becomes the program of the wheel with its name."""
import os
import pathlib
import sys
from typing import Optional

def bundled_program(name: str) -> Optional[str]:
    """Returns the path of a program of the wheel; None if the wheel has none."""
    path = pathlib.Path(__file__).resolve().parent / "_bundle" / "bin" / name
    return str(path) if path.is_file() else None


def _become(name: str) -> None:
    path = bundled_program(name)
    if path is None:
        sys.exit(f"{name}: this wheel has no programs")
    os.execv(path, [path, *sys.argv[1:]])


def muster() -> None:
    _become("muster")


def muster_coordinator() -> None:
    _become("muster-coordinator")


def muster_worker() -> None:
    _become("muster-worker")


def muster_trainer() -> None:
    _become("muster-trainer")


def muster_text() -> None:
    _become("muster-text")


def muster_serve() -> None:
    _become("muster-serve")
